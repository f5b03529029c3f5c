//! From a delivery to inputs of loops: who did it, may they, and what does it mean here.
//!
//! Fails closed: where the forge cannot be asked for somebody's permission, the delivery waits and is tried again.

use futures::StreamExt;
use sha2::{Digest, Sha256};

use super::{Engine, ForgeSeat};
use crate::domain::command::{self, Command, CommandError, RunOptions};
use crate::domain::effect::{Effect, Mark, Place};
use crate::domain::event::{CommentSnapshot, ForgeEvent, IssueSnapshot, PullSnapshot, ReviewVerdict};
use crate::domain::ids::{LoopId, Number, RepoRef, Timestamp, User};
use crate::domain::lifecycle::{CommentRef, Guidance, GuidanceSource, Input, Start, State, Task};
use crate::domain::permit::{self, DenyAnswer, Facts, Level, Verdict};
use crate::domain::policy::{Floor, Policy};
use crate::domain::view::{CommandReply, View, WhoMayView};
use crate::domain::{report, sanitize};
use crate::failpoint::kill_point;
use crate::forge::{ForgeError, ForgeErrorKind, Parsed, Permission};
use crate::store::inbox::{self, Handled, Waiting};
use crate::store::loops::{self, Role};
use crate::store::{StoreError, facts, outbox};

/// An edit by somebody without write access this short before the label makes the text need confirmation:
/// the person who labelled may have read the text before.
const QUIET_BEFORE_LABEL_MS: i64 = 120_000;
/// Deliveries handled at a time.
const BATCH: usize = 64;
/// Issues whose deliveries are handled at the same time.
const AT_ONCE: usize = 16;
/// How often a delivery is tried before a person has to look at it.
const MAX_TRIES: u32 = 20;

/// Where an input came from: makes a repeated one a no-op.
pub(super) struct Origin {
    key: String,
    received_at: Timestamp,
}

impl Origin {
    fn delivery(waiting: &Waiting) -> Self {
        Self { key: format!("delivery/{}", waiting.id), received_at: waiting.received_at }
    }

    /// A comment is the same whichever delivery told of it, or whether the reconciler found it.
    fn comment(repo: &RepoRef, comment: &CommentSnapshot, received_at: Timestamp) -> Self {
        Self { key: format!("comment/{}/{}/{}", repo.forge, repo.id, comment.id), received_at }
    }

    fn part(&self, part: usize) -> String {
        format!("{}/{part}", self.key)
    }
}

/// What became of a delivery.
pub(super) enum Outcome {
    Done(String),
    Ignored(String),
    /// It tells of a label that is off again: of how things were, not of how they are.
    Stale(String),
}

/// Why a delivery cannot be handled now, or ever.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Try again, not before so many milliseconds from now where known.
    Later { after_ms: Option<i64>, why: String },
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ForgeError> for Trouble {
    fn from(error: ForgeError) -> Self {
        let after_ms = match error.kind {
            ForgeErrorKind::RateLimited { after_ms } => Some(after_ms),
            ForgeErrorKind::Transient { after_ms, .. } => after_ms,
            _ => None,
        };
        Self::Later { after_ms, why: error.to_string() }
    }
}

pub(super) type Intake = Result<Outcome, Trouble>;

fn ignored(why: impl Into<String>) -> Intake {
    Ok(Outcome::Ignored(why.into()))
}

fn done(what: impl Into<String>) -> Intake {
    Ok(Outcome::Done(what.into()))
}

impl Engine {
    /// Handles the deliveries that wait: those of one issue in order, those of many at the same time, so that a slow
    /// forge holds up only its own. `true` where there were any.
    pub async fn intake_step(&self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let due = self.store.read(move |c| inbox::due(c, now, BATCH)).await?;
        let any = !due.is_empty();
        if any {
            kill_point("K06");
        }
        let mut by_place: Vec<(String, Vec<(Waiting, Parsed)>)> = Vec::new();
        for waiting in due {
            let parsed = match self.forges.get(&waiting.delivery.forge) {
                None => Parsed::Ignored("no such forge is configured any more".into()),
                Some(seat) => seat.forge.parse(&waiting.delivery.event, &waiting.delivery.body),
            };
            let place = place_of(&parsed);
            match by_place.iter_mut().find(|(known, _)| *known == place) {
                Some((_, group)) => group.push((waiting, parsed)),
                None => by_place.push((place, vec![(waiting, parsed)])),
            }
        }
        let groups = by_place.into_iter().map(async |(_, group)| {
            for (waiting, parsed) in group {
                if !self.handle(waiting, parsed).await? {
                    // What follows on the same issue waits for the next round.
                    break;
                }
            }
            Ok::<(), StoreError>(())
        });
        let handled: Vec<_> = futures::stream::iter(groups).buffer_unordered(AT_ONCE).collect().await;
        handled.into_iter().collect::<Result<(), _>>()?;
        Ok(any)
    }

    /// `false` where the delivery was put off.
    async fn handle(&self, waiting: Waiting, parsed: Parsed) -> Result<bool, StoreError> {
        let id = waiting.id;
        let outcome = match (parsed, self.forges.get(&waiting.delivery.forge)) {
            (Parsed::Event(event), Some(seat)) => self.event(seat, *event, &Origin::delivery(&waiting)).await,
            (Parsed::Malformed(why), _) => ignored(format!("not understood: {why}")),
            (Parsed::Ignored(why), _) => ignored(why),
            (Parsed::Event(_), None) => ignored("no such forge is configured any more"),
        };
        let now = self.clock.now();
        match outcome {
            Ok(Outcome::Done(what)) => {
                self.store.write(move |c| inbox::finish(c, id, Handled::Done, &what)).await?;
                self.wake.decided();
            }
            Ok(Outcome::Ignored(why) | Outcome::Stale(why)) => {
                tracing::debug!(delivery = waiting.delivery.delivery, why, "delivery ignored");
                self.store.write(move |c| inbox::finish(c, id, Handled::Ignored, &why)).await?;
            }
            Err(Trouble::Store(error)) => return Err(error),
            Err(Trouble::Later { why, .. }) if waiting.attempts >= MAX_TRIES => {
                tracing::error!(delivery = waiting.delivery.delivery, why, "delivery given up");
                self.store.write(move |c| inbox::finish(c, id, Handled::Dead, &why)).await?;
            }
            Err(Trouble::Later { after_ms, why }) => {
                tracing::warn!(delivery = waiting.delivery.delivery, why, "delivery put off");
                let at = now.plus_ms(after_ms.unwrap_or_else(|| self.settings.backoff_ms(waiting.attempts + 1)));
                self.store.write(move |c| inbox::postpone(c, id, at, &why)).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn event(&self, seat: &ForgeSeat, event: ForgeEvent, origin: &Origin) -> Intake {
        let Some(repo) = event.repo().cloned() else {
            self.wake.reconcile.notify_one();
            return done("what is installed has changed");
        };
        if !self.settings.watches(&repo) {
            return ignored(format!("{repo} is not watched"));
        }
        let now = self.clock.now();
        let seen = repo.clone();
        self.store.write(move |c| facts::save_repository(c, &seen, now)).await?;
        let own = event.sender().is_some_and(|sender| sender.id == seat.own);
        match event {
            ForgeEvent::LabelSet { repo, issue, sender } => self.label_set(seat, repo, issue, sender, origin).await,
            _ if own => ignored("our own doing"),
            ForgeEvent::Labeled { repo, issue, label, sender } => {
                if label != self.run_label(&repo) {
                    return ignored(format!("the label {label} means nothing here"));
                }
                self.label_added(seat, repo, issue, sender, origin).await
            }
            ForgeEvent::Unlabeled { repo, issue, label, sender } => {
                if label != self.run_label(&repo) {
                    return ignored(format!("the label {label} means nothing here"));
                }
                self.label_removed(seat, repo, issue.number, sender, origin).await
            }
            ForgeEvent::IssueOpened { repo, issue, sender } => {
                // Where label events name their label, one follows by itself.
                if seat.forge.capabilities().await?.label_deltas {
                    return ignored("a new issue; its labels come by themselves");
                }
                self.label_set(seat, repo, issue, sender, origin).await
            }
            ForgeEvent::IssueEdited { repo, issue, sender } => {
                let at = issue.updated_at;
                self.store.write(move |c| facts::add_edit(c, &repo, issue.number, at, &sender)).await?;
                done("the edit is noted")
            }
            ForgeEvent::IssueClosed { repo, issue, .. } => self.issue_closed(seat, &repo, issue.number, origin).await,
            ForgeEvent::IssueReopened { .. } => ignored("reopened; the label starts a loop"),
            ForgeEvent::IssueGone { repo, number, .. } => {
                let input = Input::IssueEnded { how: "deleted or moved away".into() };
                self.tell_open(&repo, number, Role::Issue, input, origin).await
            }
            ForgeEvent::CommentCreated { repo, issue, comment, sender } => {
                self.comment(seat, repo, issue, comment, sender, origin.received_at).await
            }
            ForgeEvent::PullChanged { repo, pull, .. } => self.pull_changed(&repo, &pull, origin).await,
            ForgeEvent::ReviewSubmitted { repo, pull, id, verdict, body, sender, at } => {
                self.review(seat, repo, pull, Reviewed { id, verdict, body, sender, at }, origin).await
            }
            ForgeEvent::ReviewCommented { repo, pull, comment, path, sender } => {
                self.remark(seat, repo, pull, comment, path, sender, origin).await
            }
            ForgeEvent::ChecksChanged { repo, sha, .. } => {
                self.inspect_where(&repo, |l| l.pushed.as_ref() == Some(&sha)).await
            }
            ForgeEvent::Pushed { repo, branch, .. } => self.inspect_where(&repo, |l| l.base_branch == branch).await,
            ForgeEvent::RepositoryChanged { action, .. } => {
                self.wake.reconcile.notify_one();
                done(format!("the repository was {action}"))
            }
            ForgeEvent::InstallationChanged { action } => done(action),
        }
    }

    /// Name of the label that starts a loop.
    pub(super) fn run_label(&self, repo: &RepoRef) -> String {
        format!("{}run", self.settings.policy(&repo.forge).label_prefix)
    }

    /// A set of labels: what changed is found by comparing with the set seen before.
    async fn label_set(
        &self,
        seat: &ForgeSeat,
        repo: RepoRef,
        issue: IssueSnapshot,
        sender: User,
        origin: &Origin,
    ) -> Intake {
        let run = self.run_label(&repo);
        let (seen_in, labels, at) = (repo.clone(), issue.labels.clone(), issue.updated_at);
        let number = issue.number;
        let has = issue.labels.contains(&run);
        let peek = repo.clone();
        let before = self.store.read(move |c| facts::labels(c, &peek, number)).await?;
        let had = before.is_some_and(|labels| labels.contains(&run));
        let own = sender.id == seat.own;
        let outcome = match (had, has) {
            _ if own => ignored("our own doing"),
            (false, true) => self.label_added(seat, repo, issue, sender, origin).await,
            (true, false) => self.label_removed(seat, repo, number, sender, origin).await,
            _ => ignored(format!("{run} did not change")),
        };
        // Remembered last: a delivery that has to wait must find the same difference again. Forges tell times by the second,
        // so a set that is known to be old must not take the place of a newer one of the same second.
        if matches!(outcome, Ok(Outcome::Done(_) | Outcome::Ignored(_))) {
            self.store.write(move |c| facts::save_labels(c, &seen_in, number, &labels, at)).await?;
        }
        outcome
    }

    /// What the actor may do, asked of the forge now.
    pub(super) async fn permitted_now(
        &self,
        seat: &ForgeSeat,
        repo: &RepoRef,
        actor: &User,
    ) -> Result<Verdict, ForgeError> {
        let policy = self.settings.policy(&repo.forge);
        let level = level(seat.forge.permission(repo, actor).await?);
        let facts =
            Facts { floor: floor(&policy), allowed: &policy.allow, allowed_bots: &policy.allow_bots, own: seat.own };
        Ok(permit::may(actor, level, &facts))
    }

    async fn permitted(&self, seat: &ForgeSeat, repo: &RepoRef, actor: &User) -> Result<Verdict, Trouble> {
        Ok(self.permitted_now(seat, repo, actor).await?)
    }

    async fn label_added(
        &self,
        seat: &ForgeSeat,
        repo: RepoRef,
        issue: IssueSnapshot,
        sender: User,
        origin: &Origin,
    ) -> Intake {
        if issue.is_pull {
            return ignored("a pull request; loops start on issues");
        }
        match seat.forge.issue(&repo, issue.number).await {
            Err(e) if e.kind == ForgeErrorKind::NotFound => return ignored("stale: the issue is gone"),
            Err(e) => return Err(e.into()),
            Ok(now) if !now.open => return ignored("stale: the issue is closed"),
            Ok(now) if !now.labels.contains(&self.run_label(&repo)) => {
                return Ok(Outcome::Stale("stale: the label is off again".into()));
            }
            Ok(_) => {}
        }
        let place = Place { repo: repo.clone(), issue: issue.number };
        if let Verdict::Deny { reason, .. } = self.permitted(seat, &repo, &sender).await? {
            self.tell_who_may(&place, &sender).await?;
            return ignored(format!("{} may not start a loop: {reason}", sender.login));
        }
        kill_point("K08");
        let (r, n) = (repo.clone(), issue.number);
        if let Some((id, Role::Issue, true)) = self.store.read(move |c| loops::find(c, &r, n)).await? {
            return self.tell(&id, Input::RunLabelAdded { by: sender }, origin, 0).await;
        }
        self.begin(seat, place, issue, sender, RunOptions::default(), None, origin).await
    }

    /// Begins a loop for somebody who may, on the text as the signed payload has it.
    #[expect(clippy::too_many_arguments, reason = "a start and all that it came with")]
    async fn begin(
        &self,
        seat: &ForgeSeat,
        place: Place,
        issue: IssueSnapshot,
        by: User,
        options: RunOptions,
        comment: Option<CommentRef>,
        origin: &Origin,
    ) -> Intake {
        let author_trusted = match &issue.author {
            Some(author) => level(seat.forge.permission(&place.repo, author).await?) >= Level::Write,
            None => false,
        };
        let unconfirmed_editor = self.outside_editor(seat, &place, &issue, origin.received_at).await?;
        let (r, n) = (place.repo.clone(), place.issue);
        let earlier = self.store.read(move |c| loops::count_of_issue(c, &r, n)).await?;
        let hidden =
            sanitize::for_prompt(&issue.title).hidden_removed + sanitize::for_prompt(&issue.body).hidden_removed;
        let start = Start {
            id: LoopId::from_parts(place.issue, self.random()),
            place: place.clone(),
            by,
            task: Task {
                hash: text_hash(&issue.title, &issue.body),
                title: issue.title,
                body: issue.body,
                url: issue.url,
                author: issue.author,
                author_trusted,
                unconfirmed_editor,
                labels: issue.labels,
            },
            options,
            policy: self.settings.policy(&place.repo.forge),
            comment,
            hidden_removed: u32::try_from(hidden).unwrap_or(u32::MAX),
            round: earlier + 1,
        };
        let (now, id, key) = (self.clock.now(), start.id.clone(), origin.part(0));
        if self.store.write(move |c| loops::begin(c, start, &key, now)).await? {
            kill_point("K09");
            tracing::info!(loop_id = %id, repo = %place.repo, issue = %place.issue, "a loop begins");
            done(format!("loop {id} begins"))
        } else {
            ignored("the issue has an open loop already")
        }
    }

    /// Login of somebody without write access who changed the text shortly before it was labelled.
    async fn outside_editor(
        &self,
        seat: &ForgeSeat,
        place: &Place,
        issue: &IssueSnapshot,
        received_at: Timestamp,
    ) -> Result<Option<String>, Trouble> {
        let labelled_at = issue.updated_at.min(received_at);
        let from = labelled_at.plus_ms(-QUIET_BEFORE_LABEL_MS);
        let (repo, number) = (place.repo.clone(), place.issue);
        let mut editors: Vec<User> = self
            .store
            .read(move |c| facts::edits_since(c, &repo, number, from))
            .await?
            .into_iter()
            .filter(|(at, _)| *at <= labelled_at)
            .map(|(_, editor)| editor)
            .collect();
        if seat.forge.capabilities().await?.edit_history {
            let edits = seat.forge.issue_edits(&place.repo, place.issue).await?;
            let recent = edits.into_iter().filter(|e| e.at >= from && e.at <= labelled_at);
            editors.extend(recent.filter_map(|e| e.editor));
        }
        for editor in editors {
            if level(seat.forge.permission(&place.repo, &editor).await?) < Level::Write {
                return Ok(Some(editor.login));
            }
        }
        Ok(None)
    }

    /// One comment an issue that says who may, to somebody who may not.
    async fn tell_who_may(&self, place: &Place, sender: &User) -> Result<(), Trouble> {
        let policy = self.settings.policy(&place.repo.forge);
        let view = View::WhoMay(WhoMayView {
            who: sender.login.clone(),
            label: self.run_label(&place.repo),
            who_may: report::who_may(&policy),
        });
        self.say(place, Effect::Comment { key: "who-may".into(), on: place.issue, view: Box::new(view) }).await
    }

    /// Asks for an effect on an issue that needs no loop.
    pub(super) async fn say(&self, place: &Place, effect: Effect) -> Result<(), Trouble> {
        let (place, now) = (place.clone(), self.clock.now());
        self.store.write(move |c| outbox::push(c, &place.key(), None, &place, &effect, now)).await?;
        self.wake.talk.notify_one();
        Ok(())
    }

    async fn label_removed(
        &self,
        seat: &ForgeSeat,
        repo: RepoRef,
        number: Number,
        sender: User,
        origin: &Origin,
    ) -> Intake {
        if let Verdict::Deny { reason, .. } = self.permitted(seat, &repo, &sender).await? {
            return ignored(format!("{} may not pause a loop: {reason}", sender.login));
        }
        self.tell_open(&repo, number, Role::Issue, Input::RunLabelRemoved { by: sender }, origin).await
    }

    async fn issue_closed(&self, seat: &ForgeSeat, repo: &RepoRef, number: Number, origin: &Origin) -> Intake {
        let Some(current) = self.open_loop(repo, number).await? else {
            return ignored("no loop is open there");
        };
        if current.place.issue != number {
            // Closing an escalation or the pull request's issue side by hand ends nothing.
            return ignored("it is not the loop's own issue");
        }
        let merged = match &current.pull {
            Some(pull) => seat.forge.pull(repo, pull.number).await?.merged,
            None => false,
        };
        let input = if merged { Input::PullMerged } else { Input::IssueEnded { how: "closed".into() } };
        self.tell(&current.id, input, origin, 0).await
    }

    async fn open_loop(
        &self,
        repo: &RepoRef,
        number: Number,
    ) -> Result<Option<crate::domain::lifecycle::Loop>, Trouble> {
        let repo = repo.clone();
        let found = self
            .store
            .read(move |c| match loops::find(c, &repo, number)? {
                Some((id, _, true)) => loops::get(c, &id),
                _ => Ok(None),
            })
            .await?;
        Ok(found)
    }

    async fn tell_open(&self, repo: &RepoRef, number: Number, role: Role, input: Input, origin: &Origin) -> Intake {
        let at = repo.clone();
        match self.store.read(move |c| loops::find(c, &at, number)).await? {
            Some((id, found, true)) if found == role => self.tell(&id, input, origin, 0).await,
            _ => ignored("no loop is open there"),
        }
    }

    /// Leaves an input for a loop; the same origin again is a no-op.
    async fn tell(&self, id: &LoopId, input: Input, origin: &Origin, part: usize) -> Intake {
        let origin = origin.part(part);
        let (to, now) = (id.clone(), self.clock.now());
        self.store.write(move |c| loops::tell(c, &to, &origin, &input, now)).await?;
        self.wake.step.notify_one();
        done(format!("told {id}"))
    }

    /// A new comment: its commands, in order. Told of twice, or found by the reconciler as well, it is read once.
    pub(super) async fn comment(
        &self,
        seat: &ForgeSeat,
        repo: RepoRef,
        issue: IssueSnapshot,
        comment: CommentSnapshot,
        sender: User,
        received_at: Timestamp,
    ) -> Intake {
        let commands = command::parse(&comment.body);
        if commands.is_empty() {
            return ignored("no command in it");
        }
        let origin = Origin::comment(&repo, &comment, received_at);
        let key = origin.key.clone();
        if self.store.read(move |c| facts::heard(c, &key)).await? {
            return ignored("this comment was read already");
        }
        let outcome = self.commands(seat, repo, issue, comment, sender, commands, &origin).await?;
        kill_point("K30");
        let (key, now) = (origin.key, self.clock.now());
        self.store.write(move |c| facts::hear(c, &key, now)).await?;
        Ok(outcome)
    }

    #[expect(clippy::too_many_arguments, reason = "one comment and all that it came with")]
    async fn commands(
        &self,
        seat: &ForgeSeat,
        repo: RepoRef,
        issue: IssueSnapshot,
        comment: CommentSnapshot,
        sender: User,
        commands: Vec<Result<Command, CommandError>>,
        origin: &Origin,
    ) -> Intake {
        if comment.author.as_ref().is_some_and(|author| author.id != sender.id) {
            return ignored("not sent by its author");
        }
        let place = Place { repo, issue: issue.number };
        let at = CommentRef { on: issue.number, id: Some(comment.id) };
        if let Verdict::Deny { reason, answer } = self.permitted(seat, &place.repo, &sender).await? {
            if answer == DenyAnswer::ThumbsDown {
                self.say(&place, Effect::React { comment: comment.id, mark: Mark::Refused }).await?;
            }
            return ignored(format!("{} may not command: {reason}", sender.login));
        }
        self.say(&place, Effect::React { comment: comment.id, mark: Mark::Seen }).await?;
        let count = commands.len();
        for (part, parsed) in commands.into_iter().enumerate() {
            self.command(seat, &place, &issue, parsed, &sender, at, origin, part).await?;
        }
        done(format!("{count} command(s) of {}", sender.login))
    }

    #[expect(clippy::too_many_arguments, reason = "one command and all that it came with")]
    async fn command(
        &self,
        seat: &ForgeSeat,
        place: &Place,
        issue: &IssueSnapshot,
        parsed: Result<Command, CommandError>,
        sender: &User,
        at: CommentRef,
        origin: &Origin,
        part: usize,
    ) -> Intake {
        let key = format!("reply/{}/{part}", at.id.map_or(0, |id| id.0));
        let wrong = |line: String, problem: String, nearest: Option<String>| {
            let view = View::Reply(CommandReply { command: line, ok: false, lines: vec![problem], nearest });
            Effect::Comment { key: key.clone(), on: at.on, view: Box::new(view) }
        };
        let refuse = async |effect: Effect| -> Intake {
            self.say(place, effect).await?;
            if let Some(comment) = at.id {
                self.say(place, Effect::React { comment, mark: Mark::Wrong }).await?;
            }
            done("answered")
        };
        let command = match parsed {
            Err(CommandError { line, problem, nearest }) => return refuse(wrong(line, problem, nearest)).await,
            Ok(command) => command,
        };
        if let Some((problem, nearest)) = self.unknown_backend(&command) {
            return refuse(wrong(String::new(), problem, nearest)).await;
        }
        let (repo, number) = (place.repo.clone(), place.issue);
        let found = self.store.read(move |c| loops::find(c, &repo, number)).await?;
        match (found, command) {
            (Some((id, _, true)), command) => {
                let input = Input::Command { by: sender.clone(), command, comment: Some(at) };
                self.tell(&id, input, origin, part).await
            }
            (_, Command::Help) => {
                let view = report::help(&self.settings.policy(&place.repo.forge));
                self.say(place, Effect::Comment { key: key.clone(), on: at.on, view: Box::new(view) }).await?;
                if let Some(comment) = at.id {
                    self.say(place, Effect::React { comment, mark: Mark::Done }).await?;
                }
                done("help")
            }
            (None | Some((_, Role::Issue, false)), Command::Run { options }) if !issue.is_pull && issue.open => {
                let (place, by) = (place.clone(), sender.clone());
                if let Some(typed) =
                    options.confirm.as_deref().filter(|typed| !text_hash(&issue.title, &issue.body).starts_with(*typed))
                {
                    let problem = format!("`{typed}` is not the hash of the text as it is now; nothing was started.");
                    return refuse(wrong(String::new(), problem, None)).await;
                }
                self.begin(seat, place, issue.clone(), by, options, Some(at), origin).await
            }
            (Some((id, _, false)), _) => {
                let problem = format!(
                    "The loop {id} has ended. Set the label `{}` on its issue, or `/ralph run` there, to start a new one.",
                    self.run_label(&place.repo)
                );
                refuse(wrong(String::new(), problem, None)).await
            }
            (None, _) => {
                let problem = format!(
                    "There is no loop here. Set the label `{}`, or `/ralph run`, on an open issue.",
                    self.run_label(&place.repo)
                );
                refuse(wrong(String::new(), problem, Some("/ralph run".into()))).await
            }
        }
    }

    /// What is wrong with the backend that a command names, and the one that was likely meant.
    fn unknown_backend(&self, command: &Command) -> Option<(String, Option<String>)> {
        let (Command::Run { options } | Command::Resume { options, .. }) = command else { return None };
        let name = options.backend.as_deref().filter(|name| !self.backends.contains_key(*name))?;
        let mut known: Vec<&str> = self.backends.keys().map(String::as_str).collect();
        known.sort_unstable();
        let likely = known.iter().min_by_key(|known| strsim::damerau_levenshtein(name, known));
        let nearest = likely.map(|likely| format!("--backend {likely}"));
        Some((format!("No backend of that name can be used; there is {}.", known.join(", ")), nearest))
    }

    async fn pull_changed(&self, repo: &RepoRef, pull: &PullSnapshot, origin: &Origin) -> Intake {
        if pull.merged {
            return self.tell_open(repo, pull.number, Role::Pull, Input::PullMerged, origin).await;
        }
        if !pull.open {
            return self.tell_open(repo, pull.number, Role::Pull, Input::PullClosed, origin).await;
        }
        let number = pull.number;
        self.inspect_where(repo, |l| l.pull.as_ref().is_some_and(|p| p.number == number)).await
    }

    /// Asks for a look at CI and mergeability of the loops in review that the event may concern.
    async fn inspect_where(
        &self,
        repo: &RepoRef,
        concerns: impl Fn(&crate::domain::lifecycle::Loop) -> bool,
    ) -> Intake {
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

    async fn review(
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
        let commands = command::parse(&review.body);
        if !commands.is_empty() {
            for (part, command) in commands.into_iter().enumerate().filter_map(|(n, c)| Some((n, c.ok()?))) {
                let comment = Some(CommentRef { on: pull.number, id: None });
                let input = Input::Command { by: review.sender.clone(), command, comment };
                self.tell(&current.id, input, origin, part).await?;
            }
            return done("commands of a review");
        }
        let changes = review.verdict == ReviewVerdict::ChangesRequested;
        if !changes && review.verdict != ReviewVerdict::Commented {
            return ignored("a review that asks for nothing");
        }
        let id = match review.id {
            Some(id) => id,
            None => self.newest_review(seat, &repo, pull.number, &review.sender).await?,
        };
        let mut items = Vec::new();
        if !review.body.trim().is_empty() || changes {
            let text = if review.body.trim().is_empty() {
                "Changes are requested; see the remarks.".into()
            } else {
                review.body
            };
            items.push((format!("review/{id}"), word(&review.sender, text, None)));
        }
        for remark in seat.forge.review_remarks(&repo, pull.number).await? {
            let theirs = remark.comment.author.as_ref().is_some_and(|a| a.id == review.sender.id);
            if theirs && remark.comment.created_at >= review.at.plus_ms(-QUIET_BEFORE_LABEL_MS) {
                let path = remark.line.map_or(remark.path.clone(), |line| format!("{}:{line}", remark.path));
                items.push((
                    format!("remark/{}", remark.comment.id),
                    word(&review.sender, remark.comment.body, Some(path)),
                ));
            }
        }
        self.tell(&current.id, Input::Reviewed { by: review.sender, items }, origin, 0).await
    }

    /// The id of somebody's newest review, for forges whose events leave it out; 0 where there is none.
    async fn newest_review(&self, seat: &ForgeSeat, repo: &RepoRef, number: Number, by: &User) -> Result<i64, Trouble> {
        let reviews = seat.forge.reviews(repo, number).await?;
        let theirs = reviews.iter().rev().find(|r| r.author.as_ref().is_some_and(|a| a.id == by.id));
        Ok(theirs.map_or(0, |r| r.id))
    }

    #[expect(clippy::too_many_arguments, reason = "one remark and all that it came with")]
    async fn remark(
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
        let items = vec![(format!("remark/{}", comment.id), word(&sender, comment.body, path))];
        self.tell(&current.id, Input::Reviewed { by: sender, items }, origin, 0).await
    }
}

/// What has to be handled in order: the events of one issue or pull request; the rest of a repository as a whole.
fn place_of(parsed: &Parsed) -> String {
    let Parsed::Event(event) = parsed else { return String::new() };
    let number = match &**event {
        ForgeEvent::Labeled { issue, .. }
        | ForgeEvent::Unlabeled { issue, .. }
        | ForgeEvent::LabelSet { issue, .. }
        | ForgeEvent::IssueOpened { issue, .. }
        | ForgeEvent::IssueEdited { issue, .. }
        | ForgeEvent::IssueClosed { issue, .. }
        | ForgeEvent::IssueReopened { issue, .. }
        | ForgeEvent::CommentCreated { issue, .. } => issue.number.0,
        ForgeEvent::IssueGone { number, .. } => number.0,
        ForgeEvent::PullChanged { pull, .. }
        | ForgeEvent::ReviewSubmitted { pull, .. }
        | ForgeEvent::ReviewCommented { pull, .. } => pull.number.0,
        _ => 0,
    };
    event.repo().map_or_else(String::new, |repo| format!("{}/{}#{number}", repo.forge, repo.id))
}

/// A review as an event brought it.
struct Reviewed {
    id: Option<i64>,
    verdict: ReviewVerdict,
    body: String,
    sender: User,
    at: Timestamp,
}

fn word(by: &User, text: String, path: Option<String>) -> Guidance {
    Guidance { who: by.login.clone(), source: GuidanceSource::Review, text, path }
}

/// SHA-256 over title and body, hexadecimal; what `--confirm` names.
pub(super) fn text_hash(title: &str, body: &str) -> String {
    let digest = Sha256::digest(format!("{title}\0{body}"));
    data_encoding::HEXLOWER.encode(&digest)
}

fn floor(policy: &Policy) -> Level {
    match policy.floor {
        Floor::Write => Level::Write,
        Floor::Maintain => Level::Maintain,
        Floor::Admin => Level::Admin,
    }
}

pub(super) fn level(permission: Permission) -> Level {
    match permission {
        Permission::None => Level::None,
        Permission::Read => Level::Read,
        Permission::Triage => Level::Triage,
        Permission::Write => Level::Write,
        Permission::Maintain => Level::Maintain,
        Permission::Admin => Level::Admin,
    }
}
