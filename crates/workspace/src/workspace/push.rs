//! Pushes a commit to a branch whose current commit is known.

use super::git::{GitCommand, GitUrl, failure};
use super::layout::check_branch;
use super::mirror::is_partial;
use super::spawner::GitOutput;
use super::{WorkspaceError, Workspaces};
use crate::domain::loops::PushRefusal;
use crate::domain::model::ids::{LoopId, RepoRef, Sha};
use crate::domain::trust::outbound::ClearedCommit;

/// Maximum length of a rejection's message, in characters.
const REASON_CHARACTERS: usize = 1000;

/// Commit to push and its destination.
#[derive(Debug, Clone, Copy)]
pub struct PushRequest<'a> {
    pub loop_id: &'a LoopId,
    pub repo: &'a RepoRef,
    pub access: &'a GitUrl,
    /// Branch without `refs/heads/`.
    pub branch: &'a str,
    pub commit: &'a ClearedCommit,
    /// Expected commit of the branch; `None` if it must not exist.
    pub expected: Option<&'a Sha>,
}

/// Outcome of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushOutcome {
    Pushed,
    /// The branch was already at this commit, for example because an earlier response was lost.
    AlreadyThere,
    /// Nothing was changed, because the branch has moved or the forge rejected the push.
    Rejected {
        /// Current commit of the branch.
        remote: Option<Sha>,
        /// Message of the forge, at most 1000 characters; untrusted.
        reason: String,
        /// Kind of the refusal.
        refusal: PushRefusal,
    },
}

impl Workspaces {
    /// Pushes `commit` to `branch` if the branch is at the expected commit. After a transient error, the push may have
    /// happened; call again.
    pub async fn push(&self, request: PushRequest<'_>) -> Result<PushOutcome, WorkspaceError> {
        let PushRequest { loop_id, repo, access, branch, commit, expected } = request;
        let commit = commit.commit();
        check_branch(branch)?;
        let tree_paths = self.opened(loop_id, repo).await?;
        if let Some(refused) = self.upload_assets(&request, &tree_paths).await? {
            return Ok(refused);
        }
        let store = tree_paths.store;
        let lease = format!("--force-with-lease=refs/heads/{branch}:{}", expected.map_or("", Sha::as_str));
        let refspec = format!("{commit}:refs/heads/{branch}");
        // Without file contents, git must know the remote's objects, or it tries to send objects that are missing here.
        let negotiate = format!("push.negotiate={}", is_partial(&store));
        let call = GitCommand::new("push", &store).remote(access).config(negotiate);
        let call = call.args(["push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags"]);
        // A local repository is cleaned up by commands of its owner, not while a loop waits.
        let local =
            access.url.starts_with("file:").then_some("--receive-pack=git -c receive.autogc=false receive-pack");
        let call = call.args(local).args([lease.as_str(), "--", &access.url, &refspec]);
        let output = self.git.run(call).await?;
        if output.code == 0 {
            // A ref at this commit is reported as up to date regardless of the lease.
            let up_to_date = output.stdout.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"=\t"));
            return Ok(if up_to_date { PushOutcome::AlreadyThere } else { PushOutcome::Pushed });
        }
        if !self.has_commit(&store, commit).await? {
            return Err(WorkspaceError::CommitMissing { commit: commit.clone() });
        }
        let Some((reason, refusal)) = refusal(&output) else { return Err(failure("push", &output, Some(&access.url))) };
        let remote = self.remote_tips(&store, access, &[branch]).await?.into_iter().next().flatten();
        Ok(match remote {
            Some(tip) if tip == *commit => PushOutcome::AlreadyThere,
            remote if remote.as_ref() != expected => moved(remote),
            remote => PushOutcome::Rejected { remote, reason, refusal },
        })
    }

    /// Deletes `branch` on the forge if it is at `expected`. Returns `false` if the branch moved, is missing, or is
    /// protected by the forge.
    pub async fn delete_branch(
        &self,
        repo: &RepoRef,
        access: &GitUrl,
        branch: &str,
        expected: &Sha,
    ) -> Result<bool, WorkspaceError> {
        check_branch(branch)?;
        let mirror = self.layout.mirror(repo);
        let lease = format!("--force-with-lease=refs/heads/{branch}:{expected}");
        let refspec = format!(":refs/heads/{branch}");
        let call = GitCommand::new("delete the branch", &mirror).remote(access);
        let call = call.args(["push", "--porcelain", "--no-verify", "--no-signed"]);
        let output = self.git.run(call.args([lease.as_str(), "--", &access.url, &refspec])).await?;
        match output.code {
            0 => Ok(true),
            _ if refusal(&output).is_some() => Ok(false),
            _ => Err(failure("delete the branch", &output, Some(&access.url))),
        }
    }
}

fn moved(remote: Option<Sha>) -> PushOutcome {
    let reason = match &remote {
        Some(tip) => format!("someone else moved the branch to {}", tip.short()),
        None => "the branch was deleted".to_owned(),
    };
    PushOutcome::Rejected { remote, reason, refusal: PushRefusal::Other }
}

/// Returns the remote's message for a rejected ref and the kind of rejection; `None` if the push failed for another
/// reason.
fn refusal(output: &GitOutput) -> Option<(String, PushRefusal)> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let line = stdout.lines().find_map(|line| line.strip_prefix("!\t"))?;
    let summary = line.rsplit('\t').next().unwrap_or(line).trim();
    let lines = output.stderr.lines().filter_map(|line| line.strip_prefix("remote:"));
    let lines: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
    let told_apart = PushRefusal::of(&format!("{summary}\n{}", lines.join("\n")));
    let words = lines.into_iter().map(str::trim).collect::<Vec<_>>().join(" ");
    let reason = if words.is_empty() { summary.to_owned() } else { format!("{summary}: {words}") };
    Some((reason.chars().take(REASON_CHARACTERS).collect(), told_apart))
}
