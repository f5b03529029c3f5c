//! Handling of the label that starts and pauses loops.

use failpoint::kill_point;

use super::{IntakeError, IntakeOutcome, IntakeResult, Origin, QUIET_BEFORE_LABEL_MS, done, ignored, level, text_hash};
use crate::domain::lifecycle::effect::Effect;
use crate::domain::loops::{CommentRef, LoopInput, LoopStart, LoopTask, RunOptions};
use crate::domain::model::event::IssueSnapshot;
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{LoopId, Number, RepoRef, Timestamp, User};
use crate::domain::report;
use crate::domain::report::view::{View, WhoMayView};
use crate::domain::trust::permit::{AccessLevel, Authorization};
use crate::engine::{Engine, ForgeAccount};
use crate::forge::ForgeErrorKind;
use crate::store::forge_state;
use crate::store::loops::{self, IssueRole};

impl Engine {
    /// Handles an event with the full set of labels by comparing it with the previous set.
    pub(in crate::engine) async fn label_set(
        &self,
        account: &ForgeAccount,
        repo: RepoRef,
        issue: IssueSnapshot,
        sender: User,
        origin: &Origin,
    ) -> IntakeResult {
        let run = self.run_label(&repo);
        let (seen_in, labels, at) = (repo.clone(), issue.labels.clone(), issue.updated_at);
        let number = issue.number;
        let has = issue.labels.contains(&run);
        let peek = repo.clone();
        let before = self.store.read(move |c| forge_state::labels(c, &peek, number)).await?;
        let had = before.is_some_and(|labels| labels.contains(&run));
        let own = sender.id == account.user_id;
        let outcome = match (had, has) {
            _ if own => ignored("our own doing"),
            (false, true) => self.label_added(account, repo, issue, sender, origin).await,
            (true, false) => self.label_removed(account, repo, number, sender, origin).await,
            _ => ignored(format!("{run} did not change")),
        };
        self.seen(&seen_in, number, labels, at, outcome).await
    }

    /// Handles an event that names the added or removed run label.
    pub(super) async fn label_changed(
        &self,
        account: &ForgeAccount,
        repo: RepoRef,
        issue: IssueSnapshot,
        sender: User,
        on: bool,
        origin: &Origin,
    ) -> IntakeResult {
        let (seen_in, labels, at, number) = (repo.clone(), issue.labels.clone(), issue.updated_at, issue.number);
        if !on {
            let outcome = self.label_removed(account, repo, number, sender, origin).await;
            return self.seen(&seen_in, number, labels, at, outcome).await;
        }
        match self.label_added(account, repo, issue, sender, origin).await {
            // The reconciler may retry an ignored label by the forge's history.
            Ok(IntakeOutcome::Ignored(why)) => ignored(why),
            outcome => self.seen(&seen_in, number, labels, at, outcome).await,
        }
    }

    /// Stores a set of labels once its event was processed; a postponed delivery must find the same difference again.
    /// Timestamps of forges have a resolution of seconds, so a stale set must not replace a newer one of the same
    /// second.
    async fn seen(
        &self,
        repo: &RepoRef,
        number: Number,
        labels: Vec<String>,
        at: Timestamp,
        outcome: IntakeResult,
    ) -> IntakeResult {
        if matches!(outcome, Ok(IntakeOutcome::Done(_) | IntakeOutcome::Ignored(_))) {
            let repo = repo.clone();
            self.store.write(move |c| forge_state::save_labels(c, &repo, number, &labels, at)).await?;
        }
        outcome
    }

    async fn label_added(
        &self,
        account: &ForgeAccount,
        repo: RepoRef,
        issue: IssueSnapshot,
        sender: User,
        origin: &Origin,
    ) -> IntakeResult {
        if issue.is_pull {
            return ignored("a pull request; loops start on issues");
        }
        match account.forge.issue(&repo, issue.number).await {
            Err(e) if e.kind == ForgeErrorKind::NotFound => return ignored("stale: the issue is gone"),
            Err(e) => return Err(e.into()),
            Ok(now) if !now.open => return ignored("stale: the issue is closed"),
            Ok(now) if !now.labels.contains(&self.run_label(&repo)) => {
                return Ok(IntakeOutcome::Stale("stale: the label was removed again".into()));
            }
            Ok(_) => {}
        }
        let place = IssueRef { repo: repo.clone(), issue: issue.number };
        if let Authorization::Deny { reason, .. } = self.permitted(account, &repo, &sender).await? {
            self.reply_who_may_start(&place, &sender).await?;
            return ignored(format!("{} may not start a loop: {reason}", sender.login));
        }
        kill_point("K08");
        let (r, n) = (repo.clone(), issue.number);
        if let Some((id, IssueRole::Issue, true)) = self.store.read(move |c| loops::find(c, &r, n)).await? {
            return self.enqueue_input(&id, LoopInput::RunLabelAdded { by: sender }, origin, 0).await;
        }
        self.begin(account, place, issue, sender, RunOptions::default(), None, origin).await
    }

    /// Starts a loop for an authorised user on the text of the signed payload.
    #[expect(clippy::too_many_arguments, reason = "the effects of a start")]
    pub(super) async fn begin(
        &self,
        account: &ForgeAccount,
        place: IssueRef,
        issue: IssueSnapshot,
        by: User,
        options: RunOptions,
        comment: Option<CommentRef>,
        origin: &Origin,
    ) -> IntakeResult {
        let author_trusted = match &issue.author {
            Some(author) => level(account.forge.permission(&place.repo, author).await?) >= AccessLevel::Write,
            None => false,
        };
        let unconfirmed_editor = self.outside_editor(account, &place, &issue, origin.received_at).await?;
        let (r, n) = (place.repo.clone(), place.issue);
        let earlier = self.store.read(move |c| loops::count_of_issue(c, &r, n)).await?;
        let (_, unseen) = LoopTask::read_issue(&issue.title, &issue.body);
        let hidden_removed = unseen.hidden();
        let start = LoopStart {
            id: LoopId::from_parts(place.issue, self.random()),
            place: place.clone(),
            by,
            task: LoopTask {
                hash: text_hash(&issue.title, &issue.body),
                title: issue.title,
                body: issue.body,
                url: issue.url,
                author: issue.author,
                author_trusted,
                unconfirmed_editor,
                labels: issue.labels,
                unseen,
            },
            options,
            policy: self.settings.policy(&place.repo.forge),
            comment,
            hidden_removed,
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

    /// Returns the login of a user without write access who edited the text shortly before it was labelled.
    pub(super) async fn outside_editor(
        &self,
        account: &ForgeAccount,
        place: &IssueRef,
        issue: &IssueSnapshot,
        received_at: Timestamp,
    ) -> Result<Option<String>, IntakeError> {
        let labelled_at = issue.updated_at.min(received_at);
        let from = labelled_at.plus_ms(-QUIET_BEFORE_LABEL_MS);
        let (repo, number) = (place.repo.clone(), place.issue);
        let mut editors: Vec<User> = self
            .store
            .read(move |c| forge_state::edits_since(c, &repo, number, from))
            .await?
            .into_iter()
            .filter(|(at, _)| *at <= labelled_at)
            .map(|(_, editor)| editor)
            .collect();
        if let Some(history) = account.forge.history() {
            let edits = history.issue_edits(&place.repo, place.issue).await?;
            let recent = edits.into_iter().filter(|e| e.at >= from && e.at <= labelled_at);
            editors.extend(recent.filter_map(|e| e.editor));
        }
        for editor in editors {
            if level(account.forge.permission(&place.repo, &editor).await?) < AccessLevel::Write {
                return Ok(Some(editor.login));
            }
        }
        Ok(None)
    }

    /// Comments once per issue who may start loops, in reply to a user without permission.
    pub(super) async fn reply_who_may_start(&self, place: &IssueRef, sender: &User) -> Result<(), IntakeError> {
        let policy = self.settings.policy(&place.repo.forge);
        let view = View::WhoMay(WhoMayView {
            who: sender.login.clone(),
            label: self.run_label(&place.repo),
            who_may: report::who_may(&policy),
        });
        self.enqueue_effect(place, Effect::Comment { key: "who-may".into(), on: place.issue, view: Box::new(view) })
            .await
    }

    async fn label_removed(
        &self,
        account: &ForgeAccount,
        repo: RepoRef,
        number: Number,
        sender: User,
        origin: &Origin,
    ) -> IntakeResult {
        match account.forge.issue(&repo, number).await {
            Err(e) if e.kind == ForgeErrorKind::NotFound => return ignored("stale: the issue is gone"),
            Err(e) => return Err(e.into()),
            Ok(now) if now.labels.contains(&self.run_label(&repo)) => {
                return Ok(IntakeOutcome::Stale("stale: the label is on again".into()));
            }
            Ok(_) => {}
        }
        if let Authorization::Deny { reason, .. } = self.permitted(account, &repo, &sender).await? {
            return ignored(format!("{} may not pause a loop: {reason}", sender.login));
        }
        self.enqueue_for_open_loop(
            &repo,
            number,
            IssueRole::Issue,
            LoopInput::RunLabelRemoved { by: Some(sender) },
            origin,
        )
        .await
    }
}
