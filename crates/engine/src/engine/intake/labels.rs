//! Handling of the labels that start and pause loops.

use failpoint::kill_point;

use super::approved_text::ApprovedText;
use crate::domain::lifecycle::effect::ForgeEffect;
use crate::domain::loops::{CommandInput, CommentRef, ExistingPull, LoopInput, LoopStart, LoopTask, RunOptions};
use crate::domain::model::document::Unseen;
use crate::domain::model::event::{IssueSnapshot, names_label};
use crate::domain::model::ids::{AccountKind, IssueRef, LoopId, Number, RepoRef, Timestamp, User};
use crate::domain::report;
use crate::domain::report::view::{View, WhoMayView};
use crate::domain::trust::permit::{AccessLevel, Authorization, DenyAnswer, TeamRef};
use crate::engine::context::random;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::forges::rights::level;
use crate::engine::intake::page::page_of;
use crate::engine::intake::{
    Intake, IntakeError, IntakeOutcome, IntakeResult, Origin, QUIET_BEFORE_LABEL_MS, done, ignored, text_hash,
};
use crate::forge::ForgeErrorKind;
use crate::store::forge_state;
use crate::store::loops::{self, IssueRole};

/// Options of a new loop.
#[derive(Default)]
pub(super) struct NewLoop {
    pub options: RunOptions,
    /// Wishes for the plan; `None` if no plan is requested first.
    pub plan: Option<String>,
    /// Request in the command's text; may be empty.
    pub request: String,
    /// Existing pull request to work on.
    pub existing: Option<ExistingPull>,
}

/// Whether an App opened a pull request from a branch of the repository, such as Dependabot or Renovate. Hidden parts of its text
/// are removed without a confirmation, because an owner gave the App write access, and all of its texts have hidden parts.
fn is_of_app(issue: &IssueSnapshot, existing: Option<&ExistingPull>) -> bool {
    let is_app = issue.author.as_ref().is_some_and(|author| author.kind == AccountKind::Bot);
    is_app && existing.is_some_and(|pull| pull.fork.is_none())
}

impl Intake {
    /// Handles an event with the full set of labels by comparing it with the previous set.
    pub(in crate::engine) async fn label_set(
        &self,
        account: &ForgeAccount,
        repo: RepoRef,
        issue: IssueSnapshot,
        sender: User,
        origin: &Origin,
    ) -> IntakeResult {
        let all = self.forges.start_labels(&repo);
        let of = |labels: &[String]| all.each_ref().map(|label| names_label(labels, label));
        let (peek, number) = (repo.clone(), issue.number);
        let before = self.context.store.read(move |c| forge_state::labels(c, &peek, number)).await?;
        let had = of(&before.unwrap_or_default());
        let mut has = of(&issue.labels);
        let starts_trial = self.forges.settings.is_trial && had == [false; 2] && has.contains(&true);
        if sender.id == account.own()? && !starts_trial {
            return match had == has {
                true => ignored("our own doing"),
                false => self.own_labels(account, &repo, number, has).await,
            };
        }
        let changed = |has: [bool; 2], added: bool| {
            let mut pairs = had.into_iter().zip(has).zip(&all);
            pairs.find_map(|((had, has), label)| (had != has && has == added).then_some(label))
        };
        // The lists of deliveries are wrong: cleared labels are still in them, replaced ones are missing. Only what looks like
        // an added label is asked about together with the rest.
        if origin.reported && changed(has, true).is_none() {
            has = match account.forge.issue(&repo, number).await {
                Err(error) if error.kind == ForgeErrorKind::NotFound => {
                    return Ok(IntakeOutcome::Stale("stale: the issue no longer exists".into()));
                }
                found => of(&found?.labels),
            };
        }
        match (changed(has, true), changed(has, false)) {
            (Some(label), _) => self.label_added(account, &repo, (&issue, label), sender, origin).await,
            (None, Some(label)) => self.label_removed(account, &repo, (&issue, label), sender, origin).await,
            (None, None) => ignored(format!("{} did not change", all[0])),
        }
    }

    /// Stores the labels of an issue after the service itself changed labels that start loops, as a delivery reports.
    async fn own_labels(&self, account: &ForgeAccount, repo: &RepoRef, number: Number, has: [bool; 2]) -> IntakeResult {
        match account.forge.issue(repo, number).await {
            Err(error) if error.kind == ForgeErrorKind::NotFound => {}
            found => {
                let now = found?;
                if self.forges.start_labels(repo).map(|label| now.has_label(&label)) == has {
                    self.still_named(account, repo).await?;
                    self.save_labels(repo, &now).await?;
                }
            }
        }
        ignored("our own doing")
    }

    /// Stores the current labels of an issue. Called only after an event was processed, so that a postponed delivery
    /// finds the same difference again.
    async fn save_labels(&self, repo: &RepoRef, issue: &IssueSnapshot) -> Result<(), IntakeError> {
        let (repo, number, labels, at) = (repo.clone(), issue.number, issue.labels.clone(), issue.updated_at);
        Ok(self.context.store.write(move |c| forge_state::save_labels(c, &repo, number, &labels, at)).await?)
    }

    /// Handles an added label that starts loops.
    pub(super) async fn label_added(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        (reported, label): (&IssueSnapshot, &str),
        sender: User,
        origin: &Origin,
    ) -> IntakeResult {
        let number = reported.number;
        let near = origin.reported.then_some(reported.updated_at);
        let answer = self.ask_about_label(account, repo, (number, label), &sender, near).await?;
        let stale = |why: &str| Ok(IntakeOutcome::Stale(format!("stale: {why}")));
        let now = match &answer.issue {
            None => return stale("the issue no longer exists"),
            Some(now) if now.is_pull => return ignored("a pull request; loops start on issues"),
            Some(now) if !now.open => return stale("the issue is closed"),
            Some(now) if !now.has_label(label) => return stale("the label was removed again"),
            Some(now) => now.clone(),
        };
        let origin = match origin.reported {
            true => &self.confirmed_change(repo, (number, label), &sender, true, &answer, origin)?,
            false => origin,
        };
        let place = IssueRef { repo: repo.clone(), issue: number };
        if let Authorization::Deny { reason, answer } = answer.permission? {
            self.still_named(account, repo).await?;
            match answer {
                DenyAnswer::CannotTell(teams) => self.reply_cannot_tell(&place, &sender, &teams).await?,
                DenyAnswer::Silent | DenyAnswer::ThumbsDown => self.reply_who_may_start(&place, &sender).await?,
            }
            // Where events name their label, the reconciler may retry an ignored one by the forge's history.
            if !account.forge.server_info().await?.label_deltas {
                self.save_labels(repo, &now).await?;
            }
            return ignored(format!("{} may not start a loop: {reason}", sender.login));
        }
        kill_point("K08");
        let (r, n) = (repo.clone(), number);
        let open = self.context.store.read(move |c| loops::find(c, &r, n)).await?;
        let outcome = if let Some((id, IssueRole::Issue, true)) = open {
            let plan = self.forges.start_labels(repo)[1] == label;
            // A delivery that is repeated asks no more than is needed to know that.
            let (key, r) = (origin.part(0), repo.clone());
            let read = self
                .context
                .store
                .read(move |c| Ok((loops::outcome_of_input(c, &key)?, forge_state::labels(c, &r, number)?)));
            if let (Some(_), Some(labels)) = read.await?
                && names_label(&labels, label)
            {
                return Ok(IntakeOutcome::Repeated);
            }
            self.still_named(account, repo).await?;
            self.enqueue_input(&id, LoopInput::Command(CommandInput::RunLabelAdded { by: sender, plan }), origin, 0)
                .await?
        } else {
            let at = answer.change.as_ref().map_or(reported.updated_at, |change| change.at);
            let text = self.approved(account, repo, ApprovedText::of(reported, now.clone(), at), origin).await?;
            self.begin(account, place, text, sender, NewLoop::default(), None, origin).await?
        };
        self.save_labels(repo, &now).await?;
        Ok(outcome)
    }

    /// Starts a loop for an authorized user.
    #[expect(clippy::too_many_arguments, reason = "the effects of a start")]
    pub(super) async fn begin(
        &self,
        account: &ForgeAccount,
        place: IssueRef,
        text: ApprovedText,
        by: User,
        wanted: NewLoop,
        comment: Option<CommentRef>,
        origin: &Origin,
    ) -> IntakeResult {
        let ApprovedText { issue, at, edited_after } = text;
        let NewLoop { options, plan, request, existing } = wanted;
        let author_trusted = match &issue.author {
            // A trial's task is the bot's own.
            Some(author) if self.forges.settings.is_trial && author.id == account.own()? => true,
            Some(author) => level(account.forge.permission(&place.repo, author).await?) >= AccessLevel::Write,
            None => false,
        };
        let unconfirmed_editor = self.outside_editor(account, &place, at.min(origin.received_at)).await?;
        let (r, n) = (place.repo.clone(), place.issue);
        let earlier = self.context.store.read(move |c| loops::count_of_issue(c, &r, n)).await?;
        let html = page_of(account, &place.repo, &issue.body, issue.html.clone()).await?;
        let mut text = self.task_text(account, &place.repo, (&issue, html.as_deref()), author_trusted).await?;
        let hidden_removed = text.unseen.hidden();
        if is_of_app(&issue, existing.as_ref()) {
            text.unseen = Unseen::default();
        }
        self.still_named(account, &place.repo).await?;
        let start = LoopStart {
            request,
            existing,
            id: LoopId::from_parts(place.issue, random()),
            place: place.clone(),
            by,
            task: LoopTask {
                hash: text_hash(&issue.title, &issue.body),
                text,
                url: issue.url,
                author: issue.author,
                author_trusted,
                unconfirmed_editor,
                edited_after,
                labels: issue.labels,
            },
            options,
            plan,
            policy: self.forges.settings.policy(&place.repo.forge),
            comment,
            hidden_removed,
            round: earlier + 1,
        };
        let (now, id, key) = (self.context.clock.now(), start.id.clone(), origin.part(0));
        if self.context.store.write(move |c| loops::begin(c, start, &key, now)).await? {
            kill_point("K09");
            tracing::info!(loop_id = %id, repo = %place.repo, issue = %place.issue, "a loop starts");
            done(format!("loop {id} starts"))
        } else {
            ignored("the issue has an open loop already")
        }
    }

    /// Returns the login of a user without write access who edited the text shortly before `labeled_at`, the time of
    /// its approval; `None` if there is none.
    pub(super) async fn outside_editor(
        &self,
        account: &ForgeAccount,
        place: &IssueRef,
        labeled_at: Timestamp,
    ) -> Result<Option<String>, IntakeError> {
        let from = labeled_at.plus_ms(-QUIET_BEFORE_LABEL_MS);
        let (repo, number) = (place.repo.clone(), place.issue);
        let mut editors: Vec<User> = self
            .context
            .store
            .read(move |c| forge_state::edits_since(c, &repo, number, from))
            .await?
            .into_iter()
            .filter(|(at, _)| *at <= labeled_at)
            .map(|(_, editor)| editor)
            .collect();
        if let Some(history) = account.forge.history() {
            let edits = history.issue_edits(&place.repo, place.issue).await?;
            let recent = edits.into_iter().filter(|e| e.at >= from && e.at <= labeled_at);
            editors.extend(recent.filter_map(|e| e.editor));
        }
        for editor in editors {
            if level(account.forge.permission(&place.repo, &editor).await?) < AccessLevel::Write {
                return Ok(Some(editor.login));
            }
        }
        Ok(None)
    }

    /// Replies to a user without permission with the people who may start loops, once per issue.
    pub(super) async fn reply_who_may_start(&self, place: &IssueRef, sender: &User) -> Result<(), IntakeError> {
        let policy = self.forges.settings.policy(&place.repo.forge);
        let view = View::WhoMay(WhoMayView {
            who: sender.login.clone(),
            label: self.forges.run_label(&place.repo),
            who_may: report::who_may(&policy),
            hidden_teams: Vec::new(),
        });
        self.enqueue_effect(
            place,
            ForgeEffect::Comment { key: "who-may".into(), on: place.issue, view: Box::new(view) },
        )
        .await
    }

    /// Comments that the permission of a person cannot be determined, with advice, once per issue.
    pub(super) async fn reply_cannot_tell(
        &self,
        place: &IssueRef,
        sender: &User,
        teams: &[TeamRef],
    ) -> Result<(), IntakeError> {
        let policy = self.forges.settings.policy(&place.repo.forge);
        let view = View::WhoMay(WhoMayView {
            who: sender.login.clone(),
            label: self.forges.run_label(&place.repo),
            who_may: report::who_may(&policy),
            hidden_teams: teams.iter().map(ToString::to_string).collect(),
        });
        let effect = ForgeEffect::Comment { key: "cannot-tell".into(), on: place.issue, view: Box::new(view) };
        self.enqueue_effect(place, effect).await
    }

    /// Handles a removed label that starts loops.
    pub(super) async fn label_removed(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        (reported, label): (&IssueSnapshot, &str),
        sender: User,
        origin: &Origin,
    ) -> IntakeResult {
        let number = reported.number;
        let near = origin.reported.then_some(reported.updated_at);
        let answer = self.ask_about_label(account, repo, (number, label), &sender, near).await?;
        let now = match &answer.issue {
            None => return Ok(IntakeOutcome::Stale("stale: the issue no longer exists".into())),
            Some(now) if now.has_label(label) => {
                return Ok(IntakeOutcome::Stale("stale: the label was set again".into()));
            }
            Some(now) if now.is_pull => return ignored("a pull request; its labels pause no loop"),
            // The loop still has a label.
            Some(now) if self.forges.start_labels(repo).iter().any(|other| now.has_label(other)) => {
                self.still_named(account, repo).await?;
                self.save_labels(repo, now).await?;
                return ignored(format!("{label} was removed, another label of the loop remains"));
            }
            Some(now) => now.clone(),
        };
        let origin = match origin.reported {
            true => &self.confirmed_change(repo, (number, label), &sender, false, &answer, origin)?,
            false => origin,
        };
        let permission = answer.permission?;
        self.still_named(account, repo).await?;
        let outcome = match permission {
            Authorization::Deny { reason, .. } => ignored(format!("{} may not pause a loop: {reason}", sender.login)),
            Authorization::Allow => {
                let input = LoopInput::Command(CommandInput::RunLabelRemoved { by: Some(sender) });
                self.enqueue_for_open_loop(repo, number, IssueRole::Issue, input, origin).await
            }
        }?;
        self.save_labels(repo, &now).await?;
        Ok(outcome)
    }
}
