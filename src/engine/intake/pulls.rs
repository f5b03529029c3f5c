//! Pull requests: merged, closed, reviewed, remarked upon.

use super::{Intake, Origin, QUIET_BEFORE_LABEL_MS, Trouble, done, ignored};
use crate::domain::command::{self};
use crate::domain::effect::{Effect, Place};
use crate::domain::event::{CommentSnapshot, PullSnapshot, ReviewVerdict};
use crate::domain::ids::{LoopId, Number, RepoRef, Timestamp, User};
use crate::domain::lifecycle::{CommentRef, Guidance, GuidanceSource, Input, Loop, State};
use crate::domain::permit::Verdict;
use crate::engine::{Engine, ForgeSeat};
use crate::store::loops::{self, Role};
use crate::store::outbox;

impl Engine {
    pub(super) async fn pull_changed(&self, repo: &RepoRef, pull: &PullSnapshot, origin: &Origin) -> Intake {
        if pull.merged {
            return self.tell_open(repo, pull.number, Role::Pull, Input::PullMerged, origin).await;
        }
        if !pull.open {
            return self.tell_open(repo, pull.number, Role::Pull, Input::PullClosed, origin).await;
        }
        let number = pull.number;
        let elsewhere = |current: &Loop| current.pull.is_some() && current.base_branch != pull.base_branch;
        if self.open_loop(repo, number).await?.is_some_and(|current| elsewhere(&current)) {
            let input = Input::PullRetargeted { base: pull.base_branch.clone() };
            return self.tell_open(repo, number, Role::Pull, input, origin).await;
        }
        self.inspect_where(repo, |l| l.pull.as_ref().is_some_and(|p| p.number == number)).await
    }

    /// Asks for a look at CI and mergeability of the loops in review that the event may concern.
    pub(super) async fn inspect_where(&self, repo: &RepoRef, concerns: impl Fn(&Loop) -> bool) -> Intake {
        let open = self.store.read(|c| loops::in_state(c, State::Review)).await?;
        let mut asked = 0;
        for current in open.into_iter().filter(|l| l.place.repo.forge == repo.forge && l.place.repo.id == repo.id) {
            if let Some(commit) = current.pushed.clone().filter(|_| concerns(&current)) {
                let now = self.clock.now();
                let effect = Effect::Inspect { commit };
                self.store
                    .write(move |c| {
                        outbox::push(c, current.id.as_str(), Some(&current.id), &current.place, &effect, now)
                    })
                    .await?;
                asked += 1;
            }
        }
        if asked == 0 { ignored("no loop is in review there") } else { done(format!("{asked} loop(s) to look at")) }
    }

    pub(super) async fn review(
        &self,
        seat: &ForgeSeat,
        repo: RepoRef,
        pull: PullSnapshot,
        review: Reviewed,
        origin: &Origin,
    ) -> Intake {
        let Some(current) = self.open_loop(&repo, pull.number).await? else {
            return ignored("no loop is open there");
        };
        if let Verdict::Deny { reason, .. } = self.permitted(seat, &repo, &review.sender).await? {
            return ignored(format!("{} may not ask for changes: {reason}", review.sender.login));
        }
        let place = Place { repo: repo.clone(), issue: pull.number };
        let told = self.commands_of_review(&current.id, &place, &review.body, &review.sender, origin).await?;
        let commanded = told > 0;
        let changes = review.verdict == ReviewVerdict::ChangesRequested;
        if !changes && review.verdict != ReviewVerdict::Commented {
            return if commanded { done("commands of a review") } else { ignored("a review that asks for nothing") };
        }
        // Of a text with commands, what stands before the first is said to the agent where changes are asked for.
        let prose = match commanded {
            true if !changes => String::new(),
            true => review
                .body
                .lines()
                .take_while(|line| !line.trim_start().starts_with("/ralph"))
                .collect::<Vec<_>>()
                .join("\n"),
            false => review.body,
        };
        let id = match review.id {
            Some(id) => id,
            None => self.newest_review(seat, &repo, pull.number, &review.sender).await?,
        };
        let mut items = Vec::new();
        if !prose.trim().is_empty() || changes {
            let empty = prose.trim().is_empty();
            let text = if empty { "Changes are requested; see the remarks.".into() } else { prose };
            items.push((format!("review/{id}"), word(&review.sender, text, None)));
        }
        for remark in seat.forge.review_remarks(&repo, pull.number).await? {
            let theirs = remark.comment.author.as_ref().is_some_and(|a| a.id == review.sender.id);
            if theirs && remark.comment.created_at >= review.at.plus_ms(-QUIET_BEFORE_LABEL_MS) {
                let (text, from) = (&remark.comment.body, Origin::remark(&repo, &remark.comment, origin.received_at));
                if self.commands_of_review(&current.id, &place, text, &review.sender, &from).await? > 0 {
                    continue;
                }
                let path = remark.line.map_or(remark.path.clone(), |line| format!("{}:{line}", remark.path));
                items.push((
                    format!("remark/{}", remark.comment.id),
                    word(&review.sender, remark.comment.body, Some(path)),
                ));
            }
        }
        if items.is_empty() && commanded {
            return done("commands of a review");
        }
        self.tell(&current.id, Input::Reviewed { by: review.sender, items }, origin, told).await
    }

    /// Tells a loop the commands in a review or in one of its remarks, in order; how many there are.
    async fn commands_of_review(
        &self,
        id: &LoopId,
        place: &Place,
        text: &str,
        by: &User,
        origin: &Origin,
    ) -> Result<usize, Trouble> {
        let commands = command::parse(text);
        let count = commands.len();
        // Nothing of a review can be reacted to, so there is no comment to name.
        let at = CommentRef { on: place.issue, id: None };
        for (part, parsed) in commands.into_iter().enumerate() {
            let key = format!("reply/{}/{part}", origin.key);
            if let Some(command) = self.understood(place, parsed, at, &key).await? {
                self.tell(id, Input::Command { by: by.clone(), command, comment: Some(at) }, origin, part).await?;
            }
        }
        Ok(count)
    }

    /// The id of somebody's newest review, for forges whose events leave it out; 0 where there is none.
    pub(super) async fn newest_review(
        &self,
        seat: &ForgeSeat,
        repo: &RepoRef,
        number: Number,
        by: &User,
    ) -> Result<i64, Trouble> {
        let reviews = seat.forge.reviews(repo, number).await?;
        let theirs = reviews.iter().rev().find(|r| r.author.as_ref().is_some_and(|a| a.id == by.id));
        Ok(theirs.map_or(0, |r| r.id))
    }

    #[expect(clippy::too_many_arguments, reason = "one remark and all that it came with")]
    pub(super) async fn remark(
        &self,
        seat: &ForgeSeat,
        repo: RepoRef,
        pull: PullSnapshot,
        comment: CommentSnapshot,
        path: Option<String>,
        sender: User,
        origin: &Origin,
    ) -> Intake {
        let Some(current) = self.open_loop(&repo, pull.number).await? else {
            return ignored("no loop is open there");
        };
        if let Verdict::Deny { reason, .. } = self.permitted(seat, &repo, &sender).await? {
            return ignored(format!("{} may not ask for changes: {reason}", sender.login));
        }
        let place = Place { repo: repo.clone(), issue: pull.number };
        let from = Origin::remark(&repo, &comment, origin.received_at);
        if self.commands_of_review(&current.id, &place, &comment.body, &sender, &from).await? > 0 {
            return done("commands of a remark");
        }
        let items = vec![(format!("remark/{}", comment.id), word(&sender, comment.body, path))];
        self.tell(&current.id, Input::Reviewed { by: sender, items }, origin, 0).await
    }
}

/// A review as an event brought it.
pub(super) struct Reviewed {
    pub(super) id: Option<i64>,
    pub(super) verdict: ReviewVerdict,
    pub(super) body: String,
    pub(super) sender: User,
    pub(super) at: Timestamp,
}

fn word(by: &User, text: String, path: Option<String>) -> Guidance {
    Guidance { who: by.login.clone(), source: GuidanceSource::Review, text, path, remember: false }
}
