//! Events of pull requests: merge, close, reviews and review comments.

use std::collections::HashMap;

use crate::domain::lifecycle::effect::{Effect, ForgeEffect};
use crate::domain::loops::{
    CommandInput, CommentRef, ForgeInput, Guidance, GuidanceSource, Loop, LoopInput, LoopState, SEE_REMARKS,
    SuggestedChange, command, remark_key, suggested_text,
};
use crate::domain::model::document::Document;
use crate::domain::model::event::{CommentSnapshot, PullSnapshot, ReviewVerdict};
use crate::domain::model::ids::{IssueRef, LoopId, Number, RepoRef, Timestamp, User};
use crate::domain::report;
use crate::domain::trust::permit::Authorization;
use crate::domain::trust::sanitize::document::write_with_addresses;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::intake::page::document_of;
use crate::engine::intake::{Intake, IntakeError, IntakeResult, Origin, QUIET_BEFORE_LABEL_MS, done, ignored};
use crate::forge::{PullReview, ReviewComment};
use crate::store::loops::{self, IssueRole};
use crate::store::outbox;

impl Intake {
    pub(super) async fn pull_changed(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        reported: &PullSnapshot,
    ) -> IntakeResult {
        let number = reported.number;
        let at = repo.clone();
        // An existing pull request has the role of the loop's issue.
        let role = match self.context.store.read(move |c| loops::find(c, &at, number)).await? {
            Some((_, role @ (IssueRole::Pull | IssueRole::Issue), true)) => role,
            _ => return ignored("no loop is open there"),
        };
        let pull = self.confirmed_pull(account, repo, reported).await?;
        if pull.merged {
            return self
                .tell_state(account, repo, (number, role), "merged", LoopInput::Forge(ForgeInput::PullMerged))
                .await;
        }
        if !pull.open {
            return self
                .tell_state(account, repo, (number, role), "pull-closed", LoopInput::Forge(ForgeInput::PullClosed))
                .await;
        }
        let elsewhere =
            |current: &Loop| current.pull.opened.is_some() && current.branch.base_branch != pull.base_branch;
        if self.open_loop(repo, number).await?.is_some_and(|current| elsewhere(&current)) {
            let input = LoopInput::Forge(ForgeInput::PullRetargeted { base: pull.base_branch.clone() });
            let what = format!("pull-to-{}", pull.base_branch);
            return self.tell_state(account, repo, (number, role), &what, input).await;
        }
        let concerns = |l: &Loop| in_review(l) && l.pull.opened.as_ref().is_some_and(|p| p.number == number);
        self.inspect_where(repo, false, concerns).await
    }

    /// Enqueues an inspection of CI and of conflicts with the base for the matching loops of a repository.
    /// `base_moved` is true if their base has new commits.
    pub(in crate::engine) async fn inspect_where(
        &self,
        repo: &RepoRef,
        base_moved: bool,
        concerns: impl Fn(&Loop) -> bool,
    ) -> IntakeResult {
        let of = repo.clone();
        let open = self.context.store.read(move |c| loops::open_of_repository(c, &of)).await?;
        let mut asked = 0;
        for current in open {
            if let Some(commit) = current.branch.pushed.clone().filter(|_| concerns(&current)) {
                let now = self.context.clock.now();
                let effect = Effect::Forge(ForgeEffect::Inspect { commit, base_moved });
                self.context
                    .store
                    .write(move |c| {
                        outbox::enqueue(c, current.id.as_str(), Some(&current.id), &current.issue, &effect, now)
                    })
                    .await?;
                asked += 1;
            }
        }
        if asked == 0 { ignored("no loop waits for this event") } else { done(format!("{asked} loop(s) to inspect")) }
    }

    pub(super) async fn review(
        &self,
        account: &ForgeAccount,
        repo: RepoRef,
        pull: PullSnapshot,
        review: Reviewed,
        origin: &Origin,
    ) -> IntakeResult {
        let Some(current) = self.open_loop(&repo, pull.number).await? else {
            return ignored("no loop is open there");
        };
        let (known, verdict) = self.confirmed_review(account, &repo, pull.number, &review).await?;
        if let Authorization::Deny { reason, .. } = verdict {
            return ignored(format!("{} may not ask for changes: {reason}", review.sender.login));
        }
        let (id, origin) = (known.id, &origin.review(&repo, known.id));
        let place = IssueRef { repo: repo.clone(), issue: pull.number };
        let body = document_of(account, &repo, &review.body, known.html.clone()).await?;
        let changes = review.verdict == ReviewVerdict::ChangesRequested;
        let asks = changes || review.verdict == ReviewVerdict::Commented;
        let mut remarks = match account.forge.reviews().filter(|_| asks) {
            Some(reviews) => reviews.review_comments(&repo, pull.number).await?,
            None => Vec::new(),
        };
        remarks.retain(|remark| belongs(remark, &known, &review.sender));
        let mut remarks = self.with_documents(account, &repo, remarks).await?;
        // Edited comments are never executed as commands.
        remarks.retain(|(remark, text)| !remark.comment.edited || !holds_commands(text));
        self.still_named(account, &repo).await?;
        // Lists do not say whether a review was edited.
        let late = origin.polled && origin.received_at.since(known.submitted_at) > QUIET_BEFORE_LABEL_MS;
        let told = match late {
            true => 0,
            false => self.commands_of_review(&current.id, &place, &body, &review.sender, origin).await?,
        };
        let commanded = told > 0 || late && holds_commands(&body);
        if !asks {
            return if commanded { done("commands of a review") } else { ignored("a review without requests") };
        }
        let said = asked_for(&body, changes, commanded);
        let mut items: Vec<_> =
            said.map(|text| (format!("review/{id}"), word(&review.sender, text, None))).into_iter().collect();
        let mut suggestions = Vec::new();
        for (remark, text) in &remarks {
            let from = origin.remark(&repo, &remark.comment);
            if self.commands_of_review(&current.id, &place, text, &review.sender, &from).await? == 0 {
                suggestions.extend(suggestion(remark, text, &review.sender));
                items.push(item(remark, text, &review.sender));
            }
        }
        if items.is_empty() && commanded {
            return done("commands of a review");
        }
        self.enqueue_input(
            &current.id,
            LoopInput::Command(CommandInput::Reviewed { by: review.sender, items, suggestions }),
            origin,
            told,
        )
        .await
    }

    /// Processes reviews since a given time whose deliveries may have been missed. Commands in them are ignored,
    /// because forges do not always report edits of reviews. If the time is 0, the loop starts on an existing pull
    /// request: resolved threads, and reviews whose author approved later, are ignored.
    pub(in crate::engine) async fn missed_reviews(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        id: &LoopId,
        number: Number,
        since: Timestamp,
    ) -> Result<(), IntakeError> {
        let asks = |verdict| matches!(verdict, ReviewVerdict::ChangesRequested | ReviewVerdict::Commented);
        let (Some(forge), own) = (account.forge.reviews(), account.own()?) else { return Ok(()) };
        let mut reviews = forge.submitted_reviews(repo, number).await?;
        let any = !reviews.is_empty();
        let approvals: Vec<PullReview> =
            reviews.iter().filter(|review| review.verdict == ReviewVerdict::Approved).cloned().collect();
        let is_superseded = |review: &PullReview| {
            let later = approvals.iter().filter(|approval| approval.submitted_at > review.submitted_at);
            since == Timestamp(0) && later.map(|approval| &approval.author).any(|author| *author == review.author)
        };
        reviews.retain(|review| review.submitted_at >= since && asks(review.verdict) && !is_superseded(review));
        let of = id.clone();
        let Some(current) = self.context.store.read(move |c| loops::get(c, &of)).await?.filter(|_| any) else {
            return Ok(());
        };
        let mut remarks = forge.review_comments(repo, number).await?;
        if since == Timestamp(0) {
            let resolved = forge.resolved_remarks(repo, number).await?;
            remarks.retain(|remark| !resolved.contains(&remark.comment.id));
        }
        let mut known = current.pull.reviews_seen;
        let of_reviews: HashMap<i64, Option<User>> =
            reviews.iter().map(|review| (review.id, review.author.clone())).collect();
        for review in reviews {
            let Some(sender) = review.author.clone().filter(|author| author.id != own) else { continue };
            let changes = review.verdict == ReviewVerdict::ChangesRequested;
            let key = format!("review/{}", review.id);
            let said = match known.contains(&key) {
                true => None,
                false => {
                    let body = document_of(account, repo, &review.body, review.html.clone()).await?;
                    asked_for(&body, changes, holds_commands(&body))
                }
            };
            let said = said.map(|text| (key, word(&sender, text, None)));
            let theirs = remarks.iter().filter(|remark| belongs(remark, &review, &sender));
            let theirs = theirs.filter(|remark| !known.contains(&remark_key(remark.comment.id))).cloned().collect();
            let mut theirs = self.with_documents(account, repo, theirs).await?;
            theirs.retain(|(_, text)| !holds_commands(text));
            let suggestions = theirs.iter().filter_map(|(remark, text)| suggestion(remark, text, &sender)).collect();
            let theirs = theirs.iter().map(|(remark, text)| item(remark, text, &sender));
            let items: Vec<_> = said.into_iter().chain(theirs).collect();
            if items.is_empty() || matches!(self.permitted(account, repo, &sender).await?, Authorization::Deny { .. }) {
                continue;
            }
            self.still_named(account, repo).await?;
            known.extend(items.iter().map(|(key, _)| key.clone()));
            let origin = Origin::missed_review(repo, review.id, self.context.clock.now());
            self.enqueue_input(
                id,
                LoopInput::Command(CommandInput::Reviewed { by: sender, items, suggestions }),
                &origin,
                0,
            )
            .await?;
        }
        // Replies in the threads of earlier reviews, and of other people.
        for reply in remarks {
            let new = reply.comment.created_at >= since && !reply.comment.edited;
            let earlier = reply.review.is_some_and(|review| match of_reviews.get(&review) {
                Some(author) => *author != reply.comment.author,
                None => since > Timestamp(0),
            });
            let Some(sender) = reply.comment.author.clone().filter(|by| new && earlier && by.id != own) else {
                continue;
            };
            let key = remark_key(reply.comment.id);
            if known.contains(&key) || self.permitted(account, repo, &sender).await? != Authorization::Allow {
                continue;
            }
            let text = document_of(account, repo, &reply.comment.body, reply.comment.html.clone()).await?;
            if holds_commands(&text) {
                continue;
            }
            self.still_named(account, repo).await?;
            known.push(key);
            let origin = Origin::found_remark(repo, &reply.comment, self.context.clock.now());
            let suggestions = suggestion(&reply, &text, &sender).into_iter().collect();
            let items = vec![item(&reply, &text, &sender)];
            self.enqueue_input(
                id,
                LoopInput::Command(CommandInput::Reviewed { by: sender, items, suggestions }),
                &origin,
                0,
            )
            .await?;
        }
        Ok(())
    }

    /// Returns comments on lines with their documents.
    async fn with_documents(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        remarks: Vec<ReviewComment>,
    ) -> Result<Vec<(ReviewComment, Document)>, IntakeError> {
        let mut read = Vec::with_capacity(remarks.len());
        for remark in remarks {
            let text = document_of(account, repo, &remark.comment.body, remark.comment.html.clone()).await?;
            read.push((remark, text));
        }
        Ok(read)
    }

    /// Enqueues the commands of a review or review comment in order; returns their number.
    async fn commands_of_review(
        &self,
        id: &LoopId,
        place: &IssueRef,
        text: &Document,
        by: &User,
        origin: &Origin,
    ) -> Result<usize, IntakeError> {
        let commands = command::parse(text);
        let count = commands.len();
        // Reviews accept no reactions, so there is no comment to name.
        let at = CommentRef { on: place.issue, id: None };
        for (part, parsed) in commands.into_iter().enumerate() {
            let key = format!("reply/{}/{part}", origin.key);
            if let Some(command) = self.understood(place, parsed, at, &key).await? {
                self.enqueue_input(
                    id,
                    LoopInput::Command(CommandInput::Given { by: by.clone(), command, comment: Some(at) }),
                    origin,
                    part,
                )
                .await?;
            }
        }
        Ok(count)
    }

    pub(super) async fn remark(
        &self,
        account: &ForgeAccount,
        repo: RepoRef,
        number: Number,
        comment: CommentSnapshot,
        sender: User,
        origin: &Origin,
    ) -> IntakeResult {
        let Some(current) = self.open_loop(&repo, number).await? else {
            return ignored("no loop is open there");
        };
        let (known, verdict) = self.confirmed_remark(account, &repo, number, &comment, &sender).await?;
        if let Authorization::Deny { reason, .. } = verdict {
            return ignored(format!("{} may not ask for changes: {reason}", sender.login));
        }
        let text = document_of(account, &repo, &comment.body, known.comment.html.clone()).await?;
        self.still_named(account, &repo).await?;
        let place = IssueRef { repo: repo.clone(), issue: number };
        let from = origin.remark(&repo, &comment);
        if self.commands_of_review(&current.id, &place, &text, &sender, &from).await? > 0 {
            return done("commands of a remark");
        }
        let suggestions = suggestion(&known, &text, &sender).into_iter().collect();
        let items = vec![item(&known, &text, &sender)];
        self.enqueue_input(
            &current.id,
            LoopInput::Command(CommandInput::Reviewed { by: sender, items, suggestions }),
            &from,
            0,
        )
        .await
    }

    /// Handles a comment without a command in the conversation of a loop's pull request. A reply in a review's thread
    /// becomes a review comment for the agent. For other comments, people who may give commands get a reply, once,
    /// that explains which comments reach the agent.
    pub(super) async fn plain_comment(
        &self,
        account: &ForgeAccount,
        repo: RepoRef,
        number: Number,
        comment: CommentSnapshot,
        sender: User,
        origin: &Origin,
    ) -> IntakeResult {
        let of_pull = |current: &Loop| current.pull.opened.as_ref().is_some_and(|pull| pull.number == number);
        let Some(current) = self.open_loop(&repo, number).await?.filter(of_pull) else {
            return ignored("no command in it");
        };
        let Some(forge) = account.forge.webhooks() else { return ignored("no command in it") };
        if forge.is_review_comment(&repo, comment.id).await? {
            return self.remark(account, repo, number, comment, sender, origin).await;
        }
        match self.confirmed_comment(account, &repo, number, &comment, &sender).await {
            Ok((_, Authorization::Allow)) => {}
            // Nothing is lost with a comment that does nothing.
            Ok((_, Authorization::Deny { .. })) | Err(IntakeError::Contradicted(_) | IntakeError::NotShown(_)) => {
                return ignored("no command in it");
            }
            Err(trouble) => return Err(trouble),
        }
        self.still_named(account, &repo).await?;
        let lines = [
            "A plain comment does not reach the agent. To ask for changes, submit a review, reply in the thread of a review, or comment `/ralph guide TEXT`.",
        ];
        let view = report::reply(false, lines.map(str::to_owned).to_vec());
        let effect =
            Effect::Forge(ForgeEffect::Comment { key: "plain-comment".into(), on: number, view: Box::new(view) });
        let (place, id, now) = (current.issue, current.id, self.context.clock.now());
        self.context.store.write(move |c| outbox::enqueue(c, id.as_str(), Some(&id), &place, &effect, now)).await?;
        self.context.wake.effects_queued();
        done("replied with the ways to reach the agent")
    }
}

/// Review from an event.
pub(super) struct Reviewed {
    pub(super) id: Option<i64>,
    pub(super) verdict: ReviewVerdict,
    pub(super) body: String,
    pub(super) sender: User,
    pub(super) at: Timestamp,
}

/// Returns the guidance in a review's body; `None` if there is none. In a body with commands, only the text before the
/// first command is guidance, and only if the review requests changes.
fn asked_for(body: &Document, changes: bool, commanded: bool) -> Option<String> {
    let prose = match commanded {
        true if !changes => String::new(),
        _ => command::text_before(body),
    };
    match prose.trim().is_empty() {
        true => changes.then(|| SEE_REMARKS.into()),
        false => Some(prose),
    }
}

/// Whether a loop's pull request is in review.
pub(in crate::engine) fn in_review(current: &Loop) -> bool {
    current.state == LoopState::Review
}

fn holds_commands(text: &Document) -> bool {
    !command::parse(text).is_empty()
}

/// Whether a review comment belongs to a review of this account. Compares the review's id or, if the forge reports no
/// id, the time. Replies of other people in a thread have the id of the thread's review.
pub(in crate::engine) fn belongs(remark: &ReviewComment, review: &PullReview, by: &User) -> bool {
    let theirs = remark.comment.author.as_ref().is_some_and(|author| author.id == by.id);
    let of_review = match remark.review {
        Some(id) => id == review.id,
        None => remark.comment.created_at >= review.submitted_at.plus_ms(-QUIET_BEFORE_LABEL_MS),
    };
    theirs && of_review
}

fn item(remark: &ReviewComment, text: &Document, by: &User) -> (String, Guidance) {
    let path = remark.line.map_or(remark.path.clone(), |line| format!("{}:{line}", remark.path));
    (remark_key(remark.comment.id), word(by, write_with_addresses(&text.parts), Some(path)))
}

/// Returns the change that a review comment suggests; `None` if it suggests none.
fn suggestion(remark: &ReviewComment, text: &Document, by: &User) -> Option<SuggestedChange> {
    let (lines, replacement) = (remark.lines.clone()?, suggested_text(text)?);
    let (comment, path) = (remark.comment.id, remark.path.clone());
    let guidance = item(remark, text, by).1;
    Some(SuggestedChange { comment, by: by.clone(), path, lines, text: replacement, remark: guidance })
}

fn word(by: &User, text: String, path: Option<String>) -> Guidance {
    Guidance { who: by.login.clone(), source: GuidanceSource::Review, text, path, remember: false }
}
