//! Pushing one commit to one branch, and only from where we believe that branch to be.

use super::git::{GitCommand, GitOutput, GitUrl, failure};
use super::layout::check_branch;
use super::mirror::is_partial;
use super::{WorkspaceError, Workspaces};
use crate::domain::model::ids::{RepoRef, Sha};

/// Characters of a refusal that are handed on.
const REASON_CHARACTERS: usize = 1000;

/// What to push where.
#[derive(Debug, Clone, Copy)]
pub struct PushRequest<'a> {
    pub repo: &'a RepoRef,
    pub access: &'a GitUrl,
    /// Branch without `refs/heads/`.
    pub branch: &'a str,
    pub commit: &'a Sha,
    /// Where the branch is believed to be; `None` for a branch that must not exist yet.
    pub expected: Option<&'a Sha>,
}

/// What came of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushOutcome {
    Pushed,
    /// The branch was at this commit before; so an answer that got lost is found again.
    AlreadyThere,
    /// Nothing was changed: somebody else moved the branch, or the forge said no.
    Rejected {
        /// Where the branch is.
        remote: Option<Sha>,
        /// The forge's words, untrusted, at most 1000 characters.
        reason: String,
    },
}

impl Workspaces {
    /// Pushes `commit` to `branch` if the branch is where it is believed to be. After an error that is transient the
    /// push may or may not have happened: call again.
    pub async fn push(&self, request: PushRequest<'_>) -> Result<PushOutcome, WorkspaceError> {
        let PushRequest { repo, access, branch, commit, expected } = request;
        check_branch(branch)?;
        let mirror = self.layout.mirror(repo);
        if !self.has_commit(&mirror, commit).await? {
            return Err(WorkspaceError::CommitMissing { commit: commit.clone() });
        }
        let lease = format!("--force-with-lease=refs/heads/{branch}:{}", expected.map_or("", Sha::as_str));
        let refspec = format!("{commit}:refs/heads/{branch}");
        // Without file contents there must be no doubt about what the remote has, or git wants to send what it lacks.
        let negotiate = format!("push.negotiate={}", is_partial(&mirror));
        let call = GitCommand::new("push", &mirror).remote(access).config(negotiate);
        let call = call.args(["push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags"]);
        let output = self.git.run(call.args([lease.as_str(), "--", &access.url, &refspec])).await?;
        if output.code == 0 {
            // A ref that is there already is up to date, whatever the lease says.
            let there = output.stdout.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"=\t"));
            return Ok(if there { PushOutcome::AlreadyThere } else { PushOutcome::Pushed });
        }
        let Some(reason) = refusal(&output) else { return Err(failure("push", &output, Some(&access.url))) };
        let remote = self.remote_tips(&mirror, access, &[branch]).await?.into_iter().next().flatten();
        Ok(match remote {
            Some(tip) if tip == *commit => PushOutcome::AlreadyThere,
            remote if remote.as_ref() != expected => moved(remote),
            remote => PushOutcome::Rejected { remote, reason },
        })
    }

    /// Deletes `branch` on the forge if it is still at `expected`. `false` where it is elsewhere, gone, or kept by the
    /// forge.
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
        Some(tip) => format!("the branch is at {}, where somebody else put it", tip.short()),
        None => "the branch was deleted".to_owned(),
    };
    PushOutcome::Rejected { remote, reason }
}

/// Why the remote refused the ref; `None` where the push failed before it came to that.
fn refusal(output: &GitOutput) -> Option<String> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let line = stdout.lines().find_map(|line| line.strip_prefix("!\t"))?;
    let summary = line.rsplit('\t').next().unwrap_or(line).trim();
    let words = output.stderr.lines().filter_map(|line| line.strip_prefix("remote:")).map(str::trim);
    let words: Vec<&str> = words.filter(|line| !line.is_empty()).collect();
    let reason = if words.is_empty() { summary.to_owned() } else { format!("{summary}: {}", words.join(" ")) };
    Some(reason.chars().take(REASON_CHARACTERS).collect())
}
