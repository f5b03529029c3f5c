//! Commits, pushes, merges and restores.

use failpoint::kill_point;

use crate::domain::loops::{IterationChange, Loop, LoopInput, MergeWith};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::trust::policy::{Protected, ProtectedPolicy};
use crate::domain::trust::tamper;
use crate::engine::executor::{EffectError, Receipt};
use crate::engine::{Engine, ForgeAccount};
use crate::process::Masker;
use crate::workspace::{CommitInfo, CommitRequest, MergeOutcome, PrepareTree, PushOutcome, PushRequest};

/// Maximum number of changed files that are pushed without a review by a person.
const MAX_CHANGED_FILES: usize = 100;

impl Engine {
    pub(super) async fn commit(
        &self,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        iteration: u32,
    ) -> Result<Receipt, EffectError> {
        let (Some(parent), Some(base)) = (&current.head, &current.base) else {
            return Err(EffectError::Permanent { why: "the loop has no commit to work on".into() });
        };
        let message = self.commit_message(repo, current, iteration).await;
        let protected = &current.policy.protected;
        let none: [String; 0] = [];
        let extra = if protected.policy == ProtectedPolicy::Restore { &protected.paths[..] } else { &none[..] };
        let merging = current.merging.as_ref().map(|merging| &merging.other);
        let request = CommitRequest {
            loop_id: &current.id,
            repo,
            parent,
            merge_parent: merging,
            message: &message,
            // After a merge of the base, the merged commit is the new base.
            base: merging.filter(|_| current.merge_wanted == Some(MergeWith::Base)).unwrap_or(base),
            protected_base: merging.unwrap_or(base),
            extra_protected: extra,
        };
        let info = self.workspaces.commit(request).await?;
        kill_point("K21");
        let findings = tamper::scan(&info.diff, &tamper::TamperContext::default());
        let blocked = blocked(&info, protected);
        let change = IterationChange {
            commit: info.commit,
            tree: info.tree,
            stat: info.stat,
            branch_stat: Some(info.branch_stat),
            restored: info.restored,
            findings,
            conflict_markers: info.conflict_markers,
            blocked,
        };
        let text = change.commit.as_ref().map_or("nothing changed".to_owned(), ToString::to_string);
        Ok(Receipt::with_input(text, LoopInput::Committed { ticket, change: Box::new(change) }))
    }

    /// Restores the files of an earlier commit as a new commit.
    pub(super) async fn restore(
        &self,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        iteration: u32,
        to: &Sha,
    ) -> Result<Receipt, EffectError> {
        let Some(head) = &current.head else {
            return Err(EffectError::Permanent { why: "the loop has no commit to go back from".into() });
        };
        self.workspaces.reset(&current.id, repo, to).await?;
        let what = match iteration {
            0 => "the state before the first iteration".to_owned(),
            best => format!("the state of iteration {best}"),
        };
        let message = format!("ralph: back to {what}\n\nRalph-Loop: {}\n", current.id);
        let request = CommitRequest {
            loop_id: &current.id,
            repo,
            parent: head,
            merge_parent: None,
            message: &message,
            base: to,
            protected_base: to,
            extra_protected: &[],
        };
        let info = self.workspaces.commit(request).await?;
        Ok(Receipt::with_input(what, LoopInput::Restored { ticket, commit: info.commit }))
    }

    async fn commit_message(&self, repo: &RepoRef, current: &Loop, iteration: u32) -> String {
        let report = current.current().map(|i| i.report.summary.trim()).filter(|s| !s.is_empty());
        let own = self.workspaces.agent_messages(&current.id, repo).await;
        let summary = report.map(str::to_owned).or_else(|| own.last().cloned());
        let summary = summary.unwrap_or_else(|| current.task.title.clone());
        let first: String =
            summary.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(100).collect();
        let by = &current.requested_by;
        format!(
            "ralph: iteration {iteration}: {first}\n\nRalph-Loop: {}\nCo-authored-by: {} <{}+{}@users.noreply.{}>\n",
            current.id,
            by.login,
            by.id,
            by.login,
            host_of(&current.task.url),
        )
    }

    pub(super) async fn push(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        commit: &Sha,
    ) -> Result<Receipt, EffectError> {
        if let Some(lost) = self.authority_lost(account, repo, current).await? {
            return Ok(lost);
        }
        let access = self.git_url(account, repo, true).await?;
        let request =
            PushRequest { repo, access: &access, branch: &current.branch, commit, expected: current.pushed.as_ref() };
        match self.workspaces.push(request).await? {
            PushOutcome::Pushed | PushOutcome::AlreadyThere => {
                kill_point("K24");
                Ok(Receipt::with_input("pushed", LoopInput::Pushed { ticket, commit: commit.clone() }))
            }
            PushOutcome::Rejected { remote, reason } => {
                let reason = format!("`{}`: {reason}", current.branch);
                Ok(Receipt::with_input(reason.clone(), LoopInput::PushRejected { ticket, remote, reason }))
            }
        }
    }

    pub(super) async fn merge(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        other: Option<&Sha>,
    ) -> Result<Receipt, EffectError> {
        let Some(head) = &current.head else {
            return Err(EffectError::Permanent { why: "the loop has no commit to merge with".into() });
        };
        let access = self.git_url(account, repo, false).await?;
        let request = PrepareTree {
            loop_id: &current.id,
            repo,
            access: &access,
            base_branch: &current.base_branch,
            branch: &current.branch,
            resume_at: Some(head),
            partial: self.settings.partial_clone && account.forge.server_info().await?.partial_clone,
        };
        let tree = self.workspaces.prepare(request).await?;
        // If people pushed again, their latest commit contains the recorded one.
        let other = match other {
            Some(seen) => tree.remote_branch.unwrap_or_else(|| seen.clone()),
            None => tree.base,
        };
        self.workspaces.reset(&current.id, repo, head).await?;
        let (conflicts, up_to_date) = match self.workspaces.merge_base_into(&current.id, repo, head, &other).await? {
            MergeOutcome::UpToDate => (Vec::new(), true),
            MergeOutcome::Clean { .. } => (Vec::new(), false),
            MergeOutcome::Conflict { files } => (files, false),
        };
        Ok(Receipt::with_input("merged into the tree", LoopInput::Merged { ticket, other, conflicts, up_to_date }))
    }
}

/// Returns the reason a change must not be pushed before a person has reviewed it.
fn blocked(info: &CommitInfo, protected: &Protected) -> Option<String> {
    if info.changed_files > MAX_CHANGED_FILES {
        return Some(format!("the change touches {} files, more than {MAX_CHANGED_FILES}", info.changed_files));
    }
    if info.diff_truncated {
        return Some("the change is larger than 4 MiB".into());
    }
    if !info.oversized.is_empty() {
        return Some(format!("the change holds large binary files: {}", info.oversized.join(", ")));
    }
    let secrets = Masker::default();
    let added = info.diff.lines().filter(|l| l.starts_with('+') && !l.starts_with("+++"));
    if let Some(line) = added.into_iter().find(|line| secrets.mask(line) != *line) {
        return Some(format!(
            "the change seems to hold a secret: `{}`",
            secrets.mask(line.trim_start_matches('+').trim())
        ));
    }
    if protected.policy == ProtectedPolicy::Block {
        let hit = protected.touched(&info.stat).into_iter().next()?;
        return Some(format!("the change touches the protected file `{hit}`"));
    }
    None
}

fn host_of(url: &str) -> String {
    url::Url::parse(url).ok().and_then(|u| u.host_str().map(str::to_owned)).unwrap_or_else(|| "localhost".into())
}
