//! Work effects that use git: commits, pushes, merges and restores.

use failpoint::kill_point;

use super::branch_state::BranchState;
use super::changed_tests::check_start;
use crate::domain::loops::{ConflictingCommit, IterationChange, Loop, LoopInput, MergeWith, WorkOutcome};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::trust::outbound::{
    self, ChangeSize, CommitText, MAX_CHANGE_BYTES, MAX_CHANGED_FILES, Outbound, Trailer,
};
use crate::domain::trust::protected::{NamedPaths, Protected, ProtectedPolicy, reported};
use crate::engine::forges::account::ForgeAccount;
use crate::engine::merges::revoke_merge;
use crate::engine::receipt::{EffectError, Receipt};
use crate::engine::work::Branches;
use crate::workspace::{
    ClearRequest, CommitInfo, CommitRequest, MergeOutcome, PrepareTree, PushOutcome, PushRequest, SetAside, TreeInfo,
};

/// Maximum length of the agent's part of a commit's subject, in characters.
const SUBJECT_CHARACTERS: usize = 100;

impl Branches {
    pub(super) async fn commit(
        &self,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        iteration: u32,
    ) -> Result<Receipt, EffectError> {
        let (Some(parent), Some(base)) = (&current.branch.head, &current.branch.base) else {
            return Err(EffectError::Permanent { why: "the loop has no commit to work on".into() });
        };
        let message = self.commit_message(repo, current, iteration).await;
        let protected = &current.settings.policy.protected;
        let none: [String; 0] = [];
        let extra = if protected.policy == ProtectedPolicy::Restore { &protected.paths[..] } else { &none[..] };
        let merging = current.branch.merging().map(|merging| &merging.other);
        let earlier: Vec<String> = current.iterations.iter().flat_map(|i| i.set_aside.clone()).collect();
        // A merge brings new files of the other side.
        let killed = merging.is_none() && current.current().is_some_and(|i| i.number == iteration && i.killed);
        // A merge of the base keeps the author's changes of protected paths.
        let named = current.named_paths().with(match merging {
            Some(_) => self.verification.paths_of_author(repo, current).await?,
            None => Vec::new(),
        });
        let request = CommitRequest {
            loop_id: &current.id,
            repo,
            parent,
            merge_parent: merging,
            message: &message,
            // After a merge of the base, the merged commit is the new base.
            base: merging
                .filter(|_| current.branch.merge_wanted() == Some(&MergeWith::Base))
                .or(current.branch.merging().and_then(|merging| merging.base.as_ref()))
                .unwrap_or(base),
            protected_base: merging.unwrap_or_else(|| protected_base(current, parent, base)),
            extra_protected: extra,
            named: Some(&named),
            set_aside: killed.then_some(SetAside { iteration, except: &earlier }),
        };
        let info = self.verification.workspaces.commit(request).await?;
        kill_point("K21");
        let blocked = blocked(current, &info, (protected, &named));
        let restored = reported(info.restored.clone());
        let change = self.change(current, &request, info).await?;
        let objective_cosine = self.runs.prompts.recall.objective_cosine(current, &change.stat);
        Ok(committed(ticket, IterationChange { blocked, restored, objective_cosine, ..change }))
    }

    /// Returns the change of a commit, with the findings about the complete change of the branch.
    pub(super) async fn change(
        &self,
        current: &Loop,
        request: &CommitRequest<'_>,
        info: CommitInfo,
    ) -> Result<IterationChange, EffectError> {
        let CommitRequest { repo, merge_parent, base, .. } = *request;
        let of_base = self.verification.workspaces.paths_of(repo, base).await?;
        let start = check_start(current, &of_base);
        let is_replaced = |path: &str| start.depends_on(path);
        let findings = self.verification.findings_of(repo, current, &info.tree, &info.diff, &is_replaced).await?;
        let names = (&current.id, repo);
        let state = BranchState { repo, current, base, to: &info.tree, diff: &info.branch, paths: &info.branch_paths };
        let mut branch = self.verification.branch_findings(state, &start).await?;
        if let (Some(other), Some(MergeWith::Pushed(_))) = (merge_parent, current.branch.merge_wanted()) {
            let complete = self.verification.workspaces.branch_diff(names, base, other).await?;
            let paths = self.verification.workspaces.changed_paths(names, base, other).await?;
            let theirs = self
                .verification
                .branch_findings(BranchState { to: other, diff: &complete, paths: &paths, ..state }, &start)
                .await?;
            branch.iter_mut().for_each(|finding| finding.pushed |= theirs.iter().any(|one| one.is_same(finding)));
        }
        Ok(IterationChange {
            commit: info.commit,
            tree: info.tree,
            stat: info.stat,
            branch_stat: Some(info.branch_stat),
            restored: Vec::new(),
            findings,
            branch_findings: Some(branch),
            conflict_markers: info.conflict_markers,
            blocked: None,
            set_aside: info.set_aside,
            refused: info.refused,
            // The other side of a merge is on the forge.
            bytes: if merge_parent.is_some() { 0 } else { info.diff.len() as u64 + info.binary_bytes },
            binary_bytes: if merge_parent.is_some() { 0 } else { info.binary_bytes },
            objective_cosine: None,
        })
    }

    /// Creates a commit that restores the files of an earlier commit.
    pub(super) async fn restore(
        &self,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        iteration: u32,
        to: &Sha,
    ) -> Result<Receipt, EffectError> {
        let Some(head) = &current.branch.head else {
            return Err(EffectError::Permanent { why: "the loop has no commit to go back from".into() });
        };
        let retained_as = match self.verification.workspaces.keep(&current.id, repo, head).await {
            Ok(name) => Some(name),
            Err(error) => {
                tracing::warn!(loop_id = %current.id, %error, "could not keep the undone work");
                None
            }
        };
        self.verification.workspaces.reset(&current.id, repo, to).await?;
        let what = match iteration {
            0 => "the state before the first iteration".to_owned(),
            best => format!("the state of iteration {best}"),
        };
        let subject = own_subject(current, &format!("back to {what}"));
        let message = self.git.outbound.message(&subject, &[], &self.own_trailers(repo, current));
        let request = CommitRequest { protected_base: to, ..on_top(current, repo, (head, to), &message) };
        let info = self.verification.workspaces.commit(request).await?;
        Ok(Receipt::outcome(what, ticket, WorkOutcome::Restored { commit: info.commit, retained_as }))
    }

    /// Returns the trailers of all commits of a loop: its id, and the sign-off if the repository requires one.
    pub(super) fn own_trailers(&self, repo: &RepoRef, current: &Loop) -> Vec<Trailer> {
        let signs = current.settings.policy.commits.signoff == Some(true);
        let signoff = signs.then(|| Trailer::SignedOff(self.verification.workspaces.author_on(&repo.forge)));
        [Trailer::Loop(current.id.to_string())].into_iter().chain(signoff).collect()
    }

    async fn commit_message(&self, repo: &RepoRef, current: &Loop, iteration: u32) -> Outbound<CommitText> {
        let report = current.current().map(|i| i.report.summary.trim()).filter(|s| !s.is_empty());
        let own = self.verification.workspaces.agent_messages(&current.id, repo).await;
        let summary = report.map(str::to_owned).or_else(|| own.last().cloned());
        let summary = summary.unwrap_or_else(|| current.task.text.title().to_owned());
        let first = outbound::subject(&self.git.outbound.masked(&summary), SUBJECT_CHARACTERS);
        let by = &current.people.requested_by;
        let mut trailers = self.own_trailers(repo, current);
        // Without a forge, the author is the person.
        if let Some(host) = host_of(&current.task.url) {
            trailers.insert(1, Trailer::CoAuthor(by.login.clone(), by.id.0, host));
        }
        let rules = &current.settings.policy.commits;
        let subject = match rules.title {
            Some(_) => rules.titled(&first, current.task_type(), current.issue.issue),
            None => format!("ralph: iteration {iteration}: {first}"),
        };
        self.git.outbound.message(&subject, &[], &trailers)
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
        if current.pull.merge_ordered.is_some() {
            // The new commits have no merge approval.
            revoke_merge(account, repo, current).await?;
        }
        let access = match self.git.fork_url(account, current, true).await? {
            Some(fork) => fork,
            None => self.git.git_url(account, repo, true).await?,
        };
        let (branch, base, pushed) =
            (&current.branch.name, current.branch.base.as_ref(), current.branch.pushed.as_ref());
        let commit = match self
            .verification
            .workspaces
            .clear(ClearRequest { loop_id: &current.id, repo, branch, commit, base, pushed })
            .await?
        {
            Ok(cleared) => cleared,
            Err(leak) => {
                self.context.metrics.refused("secret", 1);
                let reason = leak.to_string();
                return Ok(Receipt::outcome(reason.clone(), ticket, WorkOutcome::PushBlocked { reason }));
            }
        };
        let request =
            PushRequest { loop_id: &current.id, repo, access: &access, branch, commit: &commit, expected: pushed };
        match self.verification.workspaces.push(request).await? {
            PushOutcome::Pushed | PushOutcome::AlreadyThere => {
                kill_point("K24");
                Ok(Receipt::outcome("pushed", ticket, WorkOutcome::Pushed { commit: commit.commit().clone() }))
            }
            PushOutcome::Rejected { reason, refusal, .. } if refusal.is_transient() => {
                let why = format!("the forge failed during the push to `{}`: {reason}", current.branch.name);
                Err(EffectError::Retry { after_ms: None, ambiguous: true, why })
            }
            PushOutcome::Rejected { remote, reason, refusal } => {
                let reason = format!("`{}`: {reason}", current.branch.name);
                let rejected = LoopInput::Outcome {
                    ticket,
                    outcome: WorkOutcome::PushRejected { remote, reason: reason.clone(), refusal },
                };
                Ok(Receipt::with_input(reason, rejected))
            }
        }
    }

    /// Prepares the loop's tree at the head of its branch, after fetching from the remote.
    pub(super) async fn tree_at_head(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
    ) -> Result<TreeInfo, EffectError> {
        let access = self.git.git_url(account, repo, false).await?;
        let fork = self.git.fork_url(account, current, false).await?;
        let request = PrepareTree {
            fork: fork.as_ref(),
            loop_id: &current.id,
            repo,
            access: &access,
            base_branch: &current.branch.base_branch,
            branch: &current.branch.name,
            resume_at: current.branch.head.as_ref(),
            partial: self.git.partial_clone && account.forge.server_info().await?.partial_clone,
        };
        Ok(self.verification.workspaces.prepare(request).await?)
    }

    pub(super) async fn merge(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        other: Option<&Sha>,
    ) -> Result<Receipt, EffectError> {
        let Some(head) = &current.branch.head else {
            return Err(EffectError::Permanent { why: "the loop has no commit to merge with".into() });
        };
        let tree = self.tree_at_head(account, repo, current).await?;
        // If people pushed again, their latest commit contains the recorded one.
        let (other, base) = match (other, &current.branch.base) {
            (Some(seen), Some(base)) => {
                let other = tree.remote_branch.unwrap_or_else(|| seen.clone());
                let contained = self.verification.workspaces.contained_base(repo, base, &tree.base, &other).await?;
                (other, Some(contained))
            }
            (Some(seen), None) => (tree.remote_branch.unwrap_or_else(|| seen.clone()), None),
            (None, _) => (tree.base, None),
        };
        self.verification.workspaces.reset(&current.id, repo, head).await?;
        let (conflicts, up_to_date) =
            match self.verification.workspaces.merge_base_into(&current.id, repo, head, &other).await? {
                MergeOutcome::UpToDate => (Vec::new(), true),
                MergeOutcome::Clean { .. } => (Vec::new(), false),
                MergeOutcome::Conflict { files } => (files, false),
            };
        let cause = match conflicts.is_empty() {
            true => None,
            false => {
                self.verification.workspaces.conflicting_commit((&current.id, repo), (head, &other), &conflicts).await?
            }
        };
        let cause = cause.map(|(commit, author)| ConflictingCommit { commit, author });
        let merged =
            LoopInput::Outcome { ticket, outcome: WorkOutcome::Merged { other, conflicts, cause, up_to_date, base } };
        Ok(Receipt::with_input("merged into the tree", merged))
    }
}

fn committed(ticket: u64, change: IterationChange) -> Receipt {
    let text = change.commit.as_ref().map_or("nothing changed".to_owned(), ToString::to_string);
    Receipt::outcome(text, ticket, WorkOutcome::Committed { change: Box::new(change) })
}

/// Returns the subject of a commit that the service makes by itself, by the rules of the repository.
pub(super) fn own_subject(current: &Loop, text: &str) -> String {
    let rules = &current.settings.policy.commits;
    match rules.title {
        Some(_) => rules.titled(text, current.task_type(), current.issue.issue),
        None => format!("ralph: {text}"),
    }
}

/// Returns the reason why a change must not be pushed before a person has reviewed it; `None` if it may be pushed.
fn blocked(current: &Loop, info: &CommitInfo, (protected, named): (&Protected, &NamedPaths)) -> Option<String> {
    if !info.oversized.is_empty() {
        return Some(format!("the change contains large binary files: {}", info.oversized.join(", ")));
    }
    if let Some(why) = size_of_loop(current, info).exceeded() {
        return Some(why);
    }
    let files = outbound::files_of_patch(&info.branch.text);
    if files > MAX_CHANGED_FILES {
        return Some(format!("the branch touches {files} files, more than {MAX_CHANGED_FILES}"));
    }
    if info.diff_truncated || info.branch.truncated || info.branch.text.len() as u64 > MAX_CHANGE_BYTES {
        return Some("the change is larger than 4 MiB".into());
    }
    if let Some(leak) = &info.leak {
        return Some(leak.to_string());
    }
    if protected.policy == ProtectedPolicy::Block {
        let hit = protected.touched(&info.stat).into_iter().find(|path| !named.name(path))?;
        return Some(format!("the change touches the protected file `{hit}`"));
    }
    None
}

/// Returns the size of all commits of a loop including the new one. Commits that were undone later count as well,
/// because every commit is pushed.
fn size_of_loop(current: &Loop, info: &CommitInfo) -> ChangeSize {
    let made = || current.iterations.iter().filter(|iteration| iteration.commit.is_some() && !iteration.merged);
    let stats = made().map(|iteration| &iteration.stat).chain(current.branch.merging().is_none().then_some(&info.stat));
    let new = if current.branch.merging().is_none() { info.diff.len() as u64 + info.binary_bytes } else { 0 };
    let new_binary = if current.branch.merging().is_none() { info.binary_bytes } else { 0 };
    ChangeSize {
        files: stats.flat_map(|stat| &stat.files).map(|file| file.path.clone()).collect(),
        bytes: made().map(|iteration| iteration.change_bytes).sum::<u64>() + new,
        binary_bytes: made().map(|iteration| iteration.binary_bytes).sum::<u64>() + new_binary,
    }
}

pub(super) fn host_of(url: &str) -> Option<String> {
    url::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned))
}

/// Returns the commit whose versions of protected paths stay: the base, or the parent on an existing pull request, whose author
/// may have changed them.
fn protected_base<'a>(current: &Loop, parent: &'a Sha, base: &'a Sha) -> &'a Sha {
    if current.pull.existing.is_some() { parent } else { base }
}

/// Returns the request for a commit of the service on top of `parent`, whose branch starts at `base`.
pub(super) fn on_top<'a>(
    current: &'a Loop,
    repo: &'a RepoRef,
    (parent, base): (&'a Sha, &'a Sha),
    message: &'a Outbound<CommitText>,
) -> CommitRequest<'a> {
    CommitRequest {
        loop_id: &current.id,
        repo,
        parent,
        merge_parent: None,
        message,
        base,
        protected_base: protected_base(current, parent, base),
        extra_protected: &[],
        named: None,
        set_aside: None,
    }
}
