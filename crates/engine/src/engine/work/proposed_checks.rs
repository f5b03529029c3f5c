//! Proposals of checks for a repository without any: collects the commands and tries each at the base.

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::assist::Questions;
use super::small_file;
use crate::domain::checks::criteria;
use crate::domain::knowledge::intelligence::{JobKind, SuggestingChecks};
use crate::domain::loops::{Loop, WorkOutcome};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::trust::policy::Policy;
use crate::engine::receipt::{EffectError, Receipt};
use crate::engine::work::Runs;
use crate::store::leases::LeaseToken;

impl Runs {
    /// Whether commands can be proposed for a tree without checks. Proposes none if the detection of checks is off.
    pub(super) fn proposes_checks(&self, current: &Loop, policy: &Policy, tree: &Path) -> bool {
        let files = |path: &str| small_file(&tree.join(path));
        policy.detect_checks
            && (self.prompts.assistants.asks(current, JobKind::Checks) || !criteria::propose(&files).is_empty())
    }

    /// Runs the commands that fit the tree, and those that an assistant suggests, at `commit` in the sandbox of the checks.
    pub(super) async fn try_proposals(
        &self,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        lease: &LeaseToken,
        commit: &Sha,
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        let view = self.verification.workspaces.agent_view(&current.id, repo);
        if !view.tree.is_dir() {
            self.verification.fresh_tree(current, repo, commit, cancel).await?;
        }
        let known = criteria::propose(&|path: &str| small_file(&view.tree.join(path)));
        let questions = Questions::of(current, ticket, lease, cancel);
        let mut suggested = Vec::new();
        if self.prompts.assistants.asks(current, JobKind::Checks) {
            let paths = self.verification.workspaces.paths_of(repo, commit).await?;
            let answer = self
                .prompts
                .assistants
                .consult(&questions, &SuggestingChecks::of(current, &paths), commit.as_str())
                .await;
            suggested = answer.map(|answer| answer.commands).unwrap_or_default();
        }
        let checks = criteria::trial(suggested.into_iter().chain(known));
        let place = (view.tree.as_path(), view.read_only.as_slice());
        let report = self.verification.run_checks((repo, current), "proposals", place, &checks, cancel).await?;
        // The commands may write files that the accepted check or the agent must not find.
        self.verification.workspaces.reset(&current.id, repo, commit).await?;
        let text = format!("{} of {} proposed checks pass", report.held(), report.outcomes.len());
        let outcome = WorkOutcome::ProposalsTried {
            report,
            cost: questions.used().cost.unwrap_or_default(),
            assistant_failure: questions.failure(),
        };
        Ok(Receipt::outcome(text, ticket, outcome))
    }
}
