//! Events of pull requests: merge, close, reviews and review comments.

use super::{IntakeError, IntakeResult, Origin, QUIET_BEFORE_LABEL_MS, done, ignored};
use crate::domain::lifecycle::effect::Effect;
use crate::domain::loops::command;
use crate::domain::loops::{CommentRef, Guidance, GuidanceSource, Loop, LoopInput, LoopState};
use crate::domain::model::event::{CommentSnapshot, PullSnapshot, ReviewVerdict};
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{LoopId, Number, RepoRef, Timestamp, User};
use crate::domain::trust::permit::Authorization;
use crate::engine::{Engine, ForgeAccount};
use crate::forge::ReviewComment;
use crate::store::loops::{self, IssueRole};
use crate::store::outbox;

impl Engine {
    pub(super) async fn pull_changed(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        reported: &PullSnapshot,
        origin: &Origin,
    ) -> IntakeResult {
        let number = reported.number;
        let at = repo.clone();
        if !matches!(self.store.read(move |c| loops::find(c, &at, number)).await?, Some((_, IssueRole::Pull, true))) {
            return ignored("no loop is open there");
        }
        let pull = self.confirmed_pull(account, repo, reported).await?;
        if pull.merged {
            return self.enqueue_for_open_loop(repo, number, IssueRole::Pull, LoopInput::PullMerged, origin).await;
        }
        if !pull.open {
            return self.enqueue_for_open_loop(repo, number, IssueRole::Pull, LoopInput::PullClosed, origin).await;
        }
        let elsewhere = |current: &Loop| current.pull.is_some() && current.base_branch != pull.base_branch;
        if self.open_loop(repo, number).await?.is_some_and(|current| elsewhere(&current)) {
            let input = LoopInput::PullRetargeted { base: pull.base_branch.clone() };
            return self.enqueue_for_open_loop(repo, number, IssueRole::Pull, input, origin).await;
        }
        self.inspect_where(repo, |l| in_review(l) && l.pull.as_ref().is_some_and(|p| p.number == number)).await
    }

    /// Enqueues an inspection of CI and of conflicts with the base for matching loops of a repository.
    pub(super) async fn inspect_where(&self, repo: &RepoRef, concerns: impl Fn(&Loop) -> bool) -> IntakeResult {
        let of = repo.clone();
        let open = self.store.read(move |c| loops::open_of_repository(c, &of)).await?;
        let mut asked = 0;
        for current in open {
            if let Some(commit) = current.pushed.clone().filter(|_| concerns(&current)) {
                let now = self.clock.now();
                let effect = Effect::Inspect { commit };
                self.store
                    .write(move |c| {
                        outbox::enqueue(c, current.id.as_str(), Some(&current.id), &current.place, &effect, now)
                    })
                    .await?;
                asked += 1;
            }
        }
        if asked == 0 { ignored("no loop waits for this there") } else { done(format!("{asked} loop(s) to inspect")) }
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
        let told = self.commands_of_review(&current.id, &place, &review.body, &review.sender, origin).await?;
        let commanded = told > 0;
        let changes = review.verdict == ReviewVerdict::ChangesRequested;
        if !changes && review.verdict != ReviewVerdict::Commented {
            return if commanded { done("commands of a review") } else { ignored("a review without requests") };
        }
        let said = asked_for(&review.body, changes, commanded);
        let mut items: Vec<_> =
            said.map(|text| (format!("review/{id}"), word(&review.sender, text, None))).into_iter().collect();
        let mut remarks = match account.forge.reviews() {
            Some(reviews) => reviews.review_comments(&repo, pull.number).await?,
            None => Vec::new(),
        };
        remarks.retain(|remark| belongs(remark, &review.sender, known.submitted_at));
        for remark in remarks {
            // Edited comments are never executed as commands.
            if !remark.comment.edited || !holds_commands(&remark.comment.body) {
                let (text, from) = (&remark.comment.body, origin.remark(&repo, &remark.comment));
                if self.commands_of_review(&current.id, &place, text, &review.sender, &from).await? == 0 {
                    items.push(item(remark, &review.sender));
                }
            }
        }
        if items.is_empty() && commanded {
            return done("commands of a review");
        }
        self.enqueue_input(&current.id, LoopInput::Reviewed { by: review.sender, items }, origin, told).await
    }

    /// Processes reviews since a given time whose deliveries may have been missed. Commands in them are ignored,
    /// because forges do not always report edits of reviews.
    pub(in crate::engine) async fn missed_reviews(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        id: &LoopId,
        number: Number,
        since: Timestamp,
    ) -> Result<(), IntakeError> {
        let asks = |verdict| matches!(verdict, ReviewVerdict::ChangesRequested | ReviewVerdict::Commented);
        let Some(forge) = account.forge.reviews() else { return Ok(()) };
        let mut reviews = forge.submitted_reviews(repo, number).await?;
        reviews.retain(|review| review.submitted_at >= since && asks(review.verdict));
        let of = id.clone();
        let Some(current) = self.store.read(move |c| loops::get(c, &of)).await?.filter(|_| !reviews.is_empty()) else {
            return Ok(());
        };
        let remarks = forge.review_comments(repo, number).await?;
        let mut known = current.reviews_seen;
        for review in reviews {
            let Some(sender) = review.author.filter(|author| author.id != account.user_id) else { continue };
            let changes = review.verdict == ReviewVerdict::ChangesRequested;
            let said = asked_for(&review.body, changes, holds_commands(&review.body));
            let said = said.map(|text| (format!("review/{}", review.id), word(&sender, text, None)));
            let theirs = remarks.iter().filter(|remark| belongs(remark, &sender, review.submitted_at));
            let theirs = theirs.filter(|remark| !holds_commands(&remark.comment.body)).cloned();
            let mut items: Vec<_> = said.into_iter().chain(theirs.map(|remark| item(remark, &sender))).collect();
            items.retain(|(key, _)| !known.contains(key));
            if items.is_empty() || matches!(self.permitted(account, repo, &sender).await?, Authorization::Deny { .. }) {
                continue;
            }
            known.extend(items.iter().map(|(key, _)| key.clone()));
            let origin = Origin::missed_review(repo, review.id, self.clock.now());
            self.enqueue_input(id, LoopInput::Reviewed { by: sender, items }, &origin, 0).await?;
        }
        Ok(())
    }

    /// Enqueues the commands of a review or remark in order; returns their number.
    async fn commands_of_review(
        &self,
        id: &LoopId,
        place: &IssueRef,
        text: &str,
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
                self.enqueue_input(id, LoopInput::Command { by: by.clone(), command, comment: Some(at) }, origin, part)
                    .await?;
            }
        }
        Ok(count)
    }

    #[expect(clippy::too_many_arguments, reason = "the effects of a remark")]
    pub(super) async fn remark(
        &self,
        account: &ForgeAccount,
        repo: RepoRef,
        pull: PullSnapshot,
        comment: CommentSnapshot,
        path: Option<String>,
        sender: User,
        origin: &Origin,
    ) -> IntakeResult {
        let Some(current) = self.open_loop(&repo, pull.number).await? else {
            return ignored("no loop is open there");
        };
        let verdict = self.confirmed_remark(account, &repo, pull.number, &comment, &sender).await?;
        if let Authorization::Deny { reason, .. } = verdict {
            return ignored(format!("{} may not ask for changes: {reason}", sender.login));
        }
        let place = IssueRef { repo: repo.clone(), issue: pull.number };
        let from = origin.remark(&repo, &comment);
        if self.commands_of_review(&current.id, &place, &comment.body, &sender, &from).await? > 0 {
            return done("commands of a remark");
        }
        let items = vec![(format!("remark/{}", comment.id), word(&sender, comment.body, path))];
        self.enqueue_input(&current.id, LoopInput::Reviewed { by: sender, items }, &from, 0).await
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

/// Returns the guidance in a review's body. In a body with commands, only the text before the first command counts,
/// and only if changes are requested.
fn asked_for(body: &str, changes: bool, commanded: bool) -> Option<String> {
    let before = || body.lines().take_while(|line| !line.trim_start().starts_with("/ralph"));
    let prose = match commanded {
        true if !changes => String::new(),
        true => before().collect::<Vec<_>>().join("\n"),
        false => body.to_owned(),
    };
    match prose.trim().is_empty() {
        true => changes.then(|| "Changes are requested; see the remarks.".into()),
        false => Some(prose),
    }
}

/// Whether a loop's pull request is in review.
pub(super) fn in_review(current: &Loop) -> bool {
    current.state == LoopState::Review
}

fn holds_commands(text: &str) -> bool {
    !command::parse(text).is_empty()
}

/// Whether a remark belongs to a review submitted at this time.
fn belongs(remark: &ReviewComment, by: &User, at: Timestamp) -> bool {
    let theirs = remark.comment.author.as_ref().is_some_and(|author| author.id == by.id);
    theirs && remark.comment.created_at >= at.plus_ms(-QUIET_BEFORE_LABEL_MS)
}

fn item(remark: ReviewComment, by: &User) -> (String, Guidance) {
    let path = remark.line.map_or(remark.path.clone(), |line| format!("{}:{line}", remark.path));
    (format!("remark/{}", remark.comment.id), word(by, remark.comment.body, Some(path)))
}

fn word(by: &User, text: String, path: Option<String>) -> Guidance {
    Guidance { who: by.login.clone(), source: GuidanceSource::Review, text, path, remember: false }
}
