//! Effects on the forge: comments, labels, reactions, pull requests, escalation issues.

use std::sync::Arc;

use failpoint::kill_point;

use crate::domain::lifecycle::effect::{Effect, ForgeEffect, Mark};
use crate::domain::loops::{EscalationCause, ForgeChange, ForgeInput, Loop, LoopState};
use crate::domain::model::event::{IssueSnapshot, is_same_label, names_label};
use crate::domain::model::ids::{CommentId, Number, RepoRef};
use crate::domain::report;
use crate::domain::report::view::{EscalationSeverity, EscalationView, View};
use crate::domain::trust::outbound::{BodyText, Outbound, TitleText};
use crate::engine::comments::Comments;
use crate::engine::concurrency_limits::ForgeCallLimits;
use crate::engine::context::ServiceContext;
use crate::engine::executor::Executor;
use crate::engine::forges::Forges;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::forges::repository_access::RepositoryAccess;
use crate::engine::git_access::ForgeGit;
use crate::engine::receipt::{EffectError, Receipt, loop_of};
use crate::forge::{ForgeErrorKind, LabelSpec, NewIssue, NewPull, Reaction};
use crate::render::find_marker;
use crate::store::forge_posts::{ForgePost, digest};
use crate::store::forge_state;
use crate::store::loops::{self, IssueRole};
use crate::store::outbox::ClaimedEffect;

/// Executes effects on forges.
pub struct ForgeEffects {
    pub(super) context: ServiceContext,
    pub(super) forges: Arc<Forges>,
    pub(super) comments: Arc<Comments>,
    pub(super) git: ForgeGit,
    pub(super) executor: Arc<Executor>,
    /// Limits on concurrent calls.
    pub(super) limits: ForgeCallLimits,
}

impl ForgeEffects {
    pub(super) async fn forge_effect(&self, claimed: &ClaimedEffect) -> Result<Receipt, EffectError> {
        let Effect::Forge(effect) = &claimed.effect else { return Err(EffectError::wrong_lane(claimed)) };
        let account = self.forges.account(&claimed.place.repo)?;
        let repo = match self.forges.place(account, &claimed.place.repo, effect.creates_on_forge()).await? {
            RepositoryAccess::Usable(repo) => repo,
            RepositoryAccess::Unusable { why } => return Err(self.forges.wait_for_repository(claimed, why).await),
        };
        let outcome = self.perform_forge_effect(account, claimed, effect, repo.clone()).await;
        let refused = match &outcome {
            Err(EffectError::Permanent { why }) => Some(why),
            Ok(receipt) => receipt.refused.first().map(|(_, why)| why),
            Err(_) => None,
        };
        let Some(why) = refused.cloned() else { return outcome };
        match self.forges.place(account, &repo, true).await {
            // The call had no effect under the former name.
            Ok(RepositoryAccess::Usable(now)) if now.full_name() != repo.full_name() => {
                Err(EffectError::Retry { after_ms: Some(0), ambiguous: false, why })
            }
            Ok(RepositoryAccess::Unusable { why }) => Err(self.forges.wait_for_repository(claimed, why).await),
            _ => outcome,
        }
    }

    async fn perform_forge_effect(
        &self,
        account: &ForgeAccount,
        claimed: &ClaimedEffect,
        effect: &ForgeEffect,
        repo: RepoRef,
    ) -> Result<Receipt, EffectError> {
        let issue = claimed.place.issue;
        match effect {
            ForgeEffect::Comment { on, view, .. } => {
                let operator = self.forges.settings.policy(&claimed.place.repo.forge).limits;
                let receipt = match &**view {
                    View::Iteration(_) => {
                        let current = loop_of(&self.context.store, claimed).await?;
                        let mut view = self.linked(account, &repo, &current, (**view).clone()).await;
                        self.add_check_lines(&current, &mut view).await;
                        self.comments.comment_once(account, claimed, &repo, *on, &view, &operator).await?
                    }
                    _ => self.comments.comment_once(account, claimed, &repo, *on, view, &operator).await?,
                };
                if let View::Iteration(iteration) = &**view {
                    self.fold_earlier(account, &repo, claimed, iteration.n).await?;
                }
                Ok(receipt)
            }
            ForgeEffect::Status { fresh } => {
                let current = loop_of(&self.context.store, claimed).await?;
                let view = self.comments.status(&current);
                if *fresh {
                    self.fresh_status(account, &repo, issue, claimed, &view).await
                } else {
                    self.comments.comment_in_place(account, claimed, &repo, issue, &view).await
                }
            }
            ForgeEffect::CommitStatus => self.commit_status(account, &repo, claimed).await,
            ForgeEffect::StateLabel { state } => self.state_label(account, &repo, issue, *state).await,
            ForgeEffect::DropRunLabel => {
                let [run, plan] = self.forges.start_labels(&repo);
                let planned = loop_of(&self.context.store, claimed).await?.knowledge.planning.is_some();
                for label in [Some(run), planned.then_some(plan)].into_iter().flatten() {
                    account.forge.remove_label(&repo, issue, &label).await?;
                    // Without this, a lost event would make setting the label again look like no change.
                    let repo = repo.clone();
                    self.context.store.write(move |c| forge_state::drop_label(c, &repo, issue, &label)).await?;
                }
                Ok(Receipt::text("label removed"))
            }
            ForgeEffect::React { comment, mark } => {
                if let Some(reactions) = account.forge.reactions() {
                    reactions.react(&repo, *comment, reaction_of(*mark)).await?;
                }
                Ok(Receipt::text("reacted"))
            }
            ForgeEffect::ReactToRemark { comment, mark } => {
                if let Some(reactions) = account.forge.reactions() {
                    reactions.react_to_remark(&repo, *comment, reaction_of(*mark)).await?;
                }
                Ok(Receipt::text("reacted"))
            }
            ForgeEffect::AnswerRemark { comment, commit, applied, .. } => {
                self.answer_remark(account, &repo, claimed, *comment, (commit, *applied)).await
            }
            ForgeEffect::Pull { ready, reviewers } => self.pull(account, &repo, claimed, *ready, reviewers).await,
            ForgeEffect::MergeWhenReady { commit } => self.merge_when_ready(account, &repo, claimed, commit).await,
            ForgeEffect::WithdrawMerge => self.withdraw_merge(account, &repo, claimed).await,
            ForgeEffect::DraftPull => self.draft_pull(account, &repo, claimed).await,
            ForgeEffect::Escalate { cause, view, reminder, .. } => {
                self.escalate(account, &repo, claimed, cause, view, *reminder).await
            }
            ForgeEffect::CloseEscalations { why } => self.close_escalations(account, &repo, claimed, why).await,
            ForgeEffect::Inspect { commit, base_moved } => {
                self.inspect(account, &repo, claimed, (commit, *base_moved)).await
            }
        }
    }

    /// Creates a new status comment, which later updates edit, and minimizes the previous one.
    async fn fresh_status(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        on: Number,
        claimed: &ClaimedEffect,
        view: &View,
    ) -> Result<Receipt, EffectError> {
        let operator = self.forges.settings.policy(&claimed.place.repo.forge).limits;
        if self.comments.over_budget(claimed, view, &operator).await?.is_some() {
            return self.comments.comment_in_place(account, claimed, repo, on, view).await;
        }
        // The key contains the row id: a retry finds its comment, and a second request creates a new one.
        let key = format!("status/{}", claimed.id);
        let mut receipt = self.comments.comment_under(account, claimed, repo, on, &key, view).await?;
        let old = self.comments.posted(&claimed.subject, "status").await?;
        if let (Some((_, new)), Some(old)) = (&receipt.posted, &old)
            && new.forge_id != old.forge_id
        {
            let mut outdated = view.clone();
            if let View::Status(inner) = &mut outdated {
                inner.superseded = true;
            }
            let body = self.comments.text(claimed, &format!("{key}/superseded"), &outdated);
            self.fold(account, repo, old, &body).await?;
        }
        if let Some((key, new)) = receipt.posted.take() {
            // The entry under its own key counts against the budget of comments; the entry `status` is kept up to
            // date.
            self.comments.record_post(claimed, &key, &new).await?;
            receipt.posted = Some(("status".into(), new));
        }
        Ok(receipt)
    }

    /// Minimizes the newest comment about an iteration before iteration `n`.
    async fn fold_earlier(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
        n: u32,
    ) -> Result<(), EffectError> {
        for earlier in (1..n).rev() {
            let key = format!("iteration/{earlier}");
            let Some(old) = self.comments.posted(&claimed.subject, &key).await? else { continue };
            let Some(view) = report::folded_iteration(&loop_of(&self.context.store, claimed).await?, earlier) else {
                return Ok(());
            };
            return self.fold(account, repo, &old, &self.comments.text(claimed, &key, &view)).await;
        }
        Ok(())
    }

    /// Minimizes a comment of the bot, or replaces its text with `folded` on a forge that cannot minimize. Does
    /// nothing if the comment was deleted or cannot be changed.
    async fn fold(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        old: &ForgePost,
        folded: &Outbound<BodyText>,
    ) -> Result<(), EffectError> {
        let id = CommentId(old.forge_id);
        let result = match account.forge.minimizing() {
            Some(minimizing) => minimizing.minimize_comment(repo, id).await,
            None => account.forge.edit_comment(repo, id, folded).await,
        };
        match result {
            Err(e) if matches!(e.kind, ForgeErrorKind::NotFound | ForgeErrorKind::Denied) => Ok(()),
            other => Ok(other?),
        }
    }

    async fn state_label(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        issue: Number,
        state: Option<LoopState>,
    ) -> Result<Receipt, EffectError> {
        let prefix = self.forges.settings.policy(&repo.forge).label_prefix;
        let wanted = state.map(|s| format!("{prefix}{}", s.label()));
        let all: Vec<String> = LoopState::ALL.iter().map(|s| format!("{prefix}{}", s.label())).collect();
        let present = account.forge.issue(repo, issue).await?.labels;
        kill_point("K28");
        let is_wanted = |label: &str| wanted.as_ref().is_some_and(|wanted| is_same_label(wanted, label));
        let stale = present.iter().filter(|label| names_label(&all, label) && !is_wanted(label));
        for label in stale {
            account.forge.remove_label(repo, issue, label).await?;
        }
        if let Some(wanted) = wanted.filter(|wanted| !names_label(&present, wanted)) {
            let (specs, wanted) = (label_specs(&prefix), [wanted]);
            account.forge.ensure_labels(repo, &specs).await?;
            match account.forge.add_labels(repo, issue, &wanted).await {
                // Somebody deleted it after it was made; by now this is known, and it is made again.
                Err(error) if error.kind == ForgeErrorKind::NotFound => {
                    account.forge.ensure_labels(repo, &specs).await?;
                    account.forge.add_labels(repo, issue, &wanted).await?;
                }
                added => added?,
            }
        }
        kill_point("K28b");
        Ok(Receipt::text("label set"))
    }

    async fn pull(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
        ready: bool,
        reviewers: &[String],
    ) -> Result<Receipt, EffectError> {
        let current = loop_of(&self.context.store, claimed).await?;
        if current.branch.pushed.is_none() {
            return Ok(Receipt::text("nothing was pushed yet"));
        }
        let view = report::pull(&current, self.context.clock.now());
        let linked = self.linked(account, repo, &current, View::Pull(Box::new(view.clone()))).await;
        let body = self.comments.text(claimed, "pull", &linked);
        let title = self.comments.renderer.pull_title(&view);
        let mut receipt = Receipt::text("up to date");
        let number = match &current.pull.opened {
            Some(pull) => pull.number,
            None => {
                let pull =
                    match account.forge.find_pull(repo, &current.branch.name, &current.branch.base_branch).await? {
                        Some(pull) if pull.open => pull,
                        _ => self.open_pull(account, repo, &current, &title, &body).await?,
                    };
                receipt = Receipt::with_input(
                    pull.url.clone(),
                    ForgeInput::PullOpened { number: pull.number, url: pull.url.clone() },
                );
                receipt.number = Some((pull.number, IssueRole::Pull));
                pull.number
            }
        };
        let digest = digest(&format!("{}\n{}", title.as_str(), body.as_str()));
        let known = self.comments.posted(&claimed.subject, "pull").await?.map(|p| p.digest);
        let mut outdated = known.as_ref() != Some(&digest);
        if outdated {
            receipt.part(ForgeChange::PullText, account.forge.update_pull(repo, number, &title, &body).await)?;
            outdated = !receipt.refused.is_empty();
        }
        if !outdated {
            receipt.posted = Some(("pull".into(), ForgePost { forge_id: number.0 as i64, digest }));
        }
        if ready && current.state == LoopState::Review {
            if let Some(drafts) = account.forge.drafts() {
                receipt.part(ForgeChange::ReadyPull, drafts.set_pull_ready(repo, number).await)?;
            }
            if let Some(reviews) = account.forge.reviews().filter(|_| !reviewers.is_empty()) {
                let requested = reviews.request_reviewers(repo, number, reviewers).await;
                receipt.part(ForgeChange::Reviewers, requested)?;
            }
        }
        Ok(receipt)
    }

    async fn open_pull(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        title: &Outbound<TitleText>,
        body: &Outbound<BodyText>,
    ) -> Result<crate::domain::model::event::PullSnapshot, EffectError> {
        let new = NewPull {
            title: title.clone(),
            body: body.clone(),
            head: current.branch.name.clone(),
            base: current.branch.base_branch.clone(),
            draft: account.forge.drafts().is_some(),
        };
        kill_point("K25");
        let created = account.forge.create_pull(repo, &new).await;
        if created.is_err() {
            kill_point("K26");
        }
        kill_point("K27");
        match created {
            // An earlier call whose response was lost may have opened it.
            Err(e) if e.kind == ForgeErrorKind::Conflict => {
                match account.forge.find_pull(repo, &current.branch.name, &current.branch.base_branch).await? {
                    Some(pull) if pull.open => Ok(pull),
                    _ => Err(e.into()),
                }
            }
            other => Ok(other?),
        }
    }

    async fn escalate(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
        cause: &EscalationCause,
        view: &View,
        reminder: bool,
    ) -> Result<Receipt, EffectError> {
        let key = format!("escalation/{cause}");
        let marker = self.comments.marker(claimed, &key);
        let body = self.comments.text(claimed, &key, view);
        let prefix = self.forges.settings.policy(&repo.forge).label_prefix;
        let label = format!("{prefix}escalation");
        if let Some(posted) = self.comments.posted(&claimed.subject, &key).await? {
            let number = Number(posted.forge_id as u64);
            let open = match account.forge.issue(repo, number).await {
                Ok(issue) => issue.open,
                Err(e) if e.kind == ForgeErrorKind::NotFound => false,
                Err(e) => return Err(e.into()),
            };
            if open {
                let same = posted.digest == digest(body.as_str());
                return self.escalate_again(account, repo, claimed, number, &key, view, same).await;
            }
            if reminder {
                // A person closed the escalation issue, so the reminder goes to the loop's own issue.
                let (key, view) = (format!("again/{}", claimed.id), report::at_home(view.clone()));
                return self.comments.comment_under(account, claimed, repo, claimed.place.issue, &key, &view).await;
            }
        }
        if self.comments.may_exist_since(claimed).await?.is_some() {
            let open = account.forge.open_issues_with_label(repo, &label).await?;
            let own = account.own()?;
            let ours = |i: &&IssueSnapshot| {
                i.author.as_ref().is_some_and(|author| author.id == own)
                    && find_marker(&i.body, &self.comments.marker_key).as_ref() == Some(&marker)
            };
            if let Some(number) = open.iter().find(ours).map(|i| i.number) {
                return self.escalate_again(account, repo, claimed, number, &key, view, true).await;
            }
        }
        let View::Escalation(inner) = view else {
            return Err(EffectError::Permanent { why: "not an escalation".into() });
        };
        account.forge.ensure_labels(repo, &label_specs(&prefix)).await?;
        let created = self.open_escalation(account, repo, &label, inner, &body).await?;
        kill_point("K29");
        let posted = ForgePost { forge_id: created.number.0 as i64, digest: digest(body.as_str()) };
        let mut receipt = Receipt { posted: Some((key, posted)), ..Receipt::text(created.url) };
        receipt.number = Some((created.number, IssueRole::Escalation));
        Ok(receipt)
    }

    /// Opens an escalation issue, assigned to the person who asked for the loop, or unassigned if the forge refuses the
    /// assignment.
    async fn open_escalation(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        label: &str,
        view: &EscalationView,
        body: &Outbound<BodyText>,
    ) -> Result<IssueSnapshot, EffectError> {
        let labels = match view.severity {
            EscalationSeverity::Emergency => ["emergency", "blocking"],
            EscalationSeverity::Critical => ["critical", "needs-review"],
        };
        let mut issue = NewIssue {
            title: self.comments.renderer.escalation_title(view),
            body: body.clone(),
            labels: [label, labels[0], labels[1]].map(str::to_owned).to_vec(),
            assignees: view.assignee.iter().cloned().collect(),
        };
        match account.forge.create_issue(repo, &issue).await {
            Err(e)
                if matches!(e.kind, ForgeErrorKind::Bug | ForgeErrorKind::NotFound) && !issue.assignees.is_empty() =>
            {
                tracing::warn!(%repo, error = %e, "could not assign the escalation issue; opening it without assignee");
                issue.assignees.clear();
                Ok(account.forge.create_issue(repo, &issue).await?)
            }
            other => Ok(other?),
        }
    }

    /// Comments on the open escalation issue with the same cause, unless the finding is unchanged.
    #[expect(clippy::too_many_arguments, reason = "an escalation and its current state")]
    async fn escalate_again(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
        number: Number,
        key: &str,
        view: &View,
        same: bool,
    ) -> Result<Receipt, EffectError> {
        if !same {
            self.comments.comment_under(account, claimed, repo, number, &format!("again/{}", claimed.id), view).await?;
        }
        let digest = digest(self.comments.text(claimed, key, view).as_str());
        let posted = ForgePost { forge_id: number.0 as i64, digest };
        let mut receipt = Receipt { posted: Some((key.to_owned(), posted)), ..Receipt::text(format!("on #{number}")) };
        receipt.number = Some((number, IssueRole::Escalation));
        Ok(receipt)
    }

    async fn close_escalations(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        claimed: &ClaimedEffect,
        why: &str,
    ) -> Result<Receipt, EffectError> {
        let Some(id) = claimed.loop_id.clone() else { return Ok(Receipt::text("no loop")) };
        let numbers = self.context.store.read(move |c| loops::numbers(c, &id, IssueRole::Escalation)).await?;
        let mut closed = 0;
        for number in numbers {
            match account.forge.issue(repo, number).await {
                Ok(issue) if issue.open => {
                    let key = format!("closed/{}/{number}", claimed.id);
                    let view = report::reply(true, vec![format!("Closed: {why}.")]);
                    self.comments.comment_under(account, claimed, repo, number, &key, &view).await?;
                    kill_point("K29b");
                    account.forge.set_issue_open(repo, number, false).await?;
                    closed += 1;
                }
                Ok(_) => {}
                Err(e) if e.kind == ForgeErrorKind::NotFound => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Receipt::text(format!("{closed} closed")))
    }
}

fn reaction_of(mark: Mark) -> Reaction {
    match mark {
        Mark::Seen => Reaction::Eyes,
        Mark::Done => Reaction::Rocket,
        Mark::Wrong => Reaction::Confused,
        Mark::Refused => Reaction::ThumbsDown,
    }
}

/// Returns the labels that the bot creates if they are missing.
pub fn label_specs(prefix: &str) -> Vec<LabelSpec> {
    let spec = |name: String, color: &str, description: &'static str| LabelSpec {
        name,
        color: color.into(),
        description,
        exclusive: false,
    };
    let state = |state: LoopState| match state {
        LoopState::NeedsCriteria => ("fbca04", "ralph-bot needs a check that measures completion"),
        LoopState::NeedsConfirm => ("fbca04", "ralph-bot needs the text to be confirmed"),
        LoopState::NeedsApproval => ("fbca04", "ralph-bot needs its plan to be approved"),
        LoopState::NeedsAnswer => ("fbca04", "ralph-bot needs answers about its plan"),
        LoopState::Queued => ("c5def5", "ralph-bot waits for a free slot"),
        LoopState::Running => ("1d76db", "ralph-bot is working on it"),
        LoopState::Waiting => ("c5def5", "ralph-bot waits for its backend"),
        LoopState::Paused => ("fbca04", "ralph-bot is paused; /ralph resume continues"),
        LoopState::Review => ("0e8a16", "ralph-bot is done; the pull request is ready for review"),
        LoopState::LimitReached => ("d93f0b", "ralph-bot reached a limit; /ralph resume raises it"),
        LoopState::Failed => ("b60205", "ralph-bot failed; /ralph resume once the cause is fixed"),
        LoopState::Merged => ("6f42c1", "the work of ralph-bot was merged"),
        LoopState::Closed => ("cccccc", "the work of ralph-bot was closed"),
        LoopState::Aborted => ("cccccc", "the loop was aborted"),
    };
    let mut specs = vec![
        spec(format!("{prefix}run"), "5319e7", "ralph-bot works on this issue"),
        spec(format!("{prefix}plan"), "5319e7", "ralph-bot works on this issue once its plan is approved"),
    ];
    specs.extend(LoopState::ALL.iter().map(|s| {
        let (color, description) = state(*s);
        // A loop has one state. The label that starts a loop stays beside it.
        LabelSpec { exclusive: prefix.ends_with('/'), ..spec(format!("{prefix}{}", s.label()), color, description) }
    }));
    specs.push(spec(format!("{prefix}escalation"), "b60205", "ralph-bot needs a person"));
    specs.push(spec("critical".into(), "b60205", "needs attention soon"));
    specs.push(spec("emergency".into(), "7f0000", "needs attention now"));
    specs.push(spec("needs-review".into(), "fbca04", "needs a review by a maintainer"));
    specs.push(spec("blocking".into(), "b60205", "blocks the loop until resolved"));
    specs
}
