//! CI results of a commit: commit statuses, and the logs of failed jobs of Actions (Gitea 1.24 or newer).

use serde::Deserialize;

use super::Gitea;
use super::client::under;
use super::map::{listed, text};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::forge::ci_log::{MAX_LOG_BYTES, failing_part, last_bytes};
use crate::forge::http::RequestPriority;
use crate::forge::{CiFailure, CiState, ForgeErrorKind, ForgeResult, VERIFIED_STATUS};

/// Maximum number of failures whose logs are fetched.
const MAX_LOGS: usize = 10;

#[derive(Debug, Deserialize)]
pub(super) struct WireStatuses {
    #[serde(default, deserialize_with = "listed")]
    pub(super) statuses: Vec<WireStatus>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireStatus {
    #[serde(default)]
    pub(super) id: i64,
    #[serde(default, deserialize_with = "text")]
    pub(super) status: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) context: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) description: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) target_url: String,
}

/// Runs of Actions for a commit.
#[derive(Debug, Deserialize)]
pub(super) struct WireRuns {
    #[serde(default, deserialize_with = "listed")]
    pub(super) workflow_runs: Vec<WireRun>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireRun {
    pub(super) id: i64,
    #[serde(default, deserialize_with = "text")]
    pub(super) head_sha: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireJobs {
    #[serde(default, deserialize_with = "listed")]
    pub(super) jobs: Vec<WireJob>,
}

/// Job of a run.
#[derive(Debug, Deserialize)]
pub(super) struct WireJob {
    pub(super) id: i64,
    #[serde(default, deserialize_with = "text")]
    name: String,
    /// Web address of the job; commit statuses have the same path.
    #[serde(default, deserialize_with = "text")]
    html_url: String,
    #[serde(default, deserialize_with = "text")]
    conclusion: String,
}

impl WireJob {
    pub(super) fn failed(&self) -> bool {
        self.conclusion == "failure"
    }

    /// Whether a commit status belongs to the job: it has the job's address, or the job's name between the names of
    /// workflow and event.
    pub(super) fn is_of(&self, status: &WireStatus) -> bool {
        let address = !status.target_url.is_empty() && self.html_url.ends_with(&status.target_url);
        address || status.context.contains(&format!("/ {} (", self.name))
    }
}

impl Gitea {
    /// Returns the CI results of a commit. Reads logs only after all results arrived, because no caller uses them earlier.
    pub(super) async fn ci_state(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<CiState> {
        let statuses = self.newest_statuses(repo, sha).await?;
        let mut state = CiState::default();
        let mut failed = Vec::new();
        let of_actions = |status: &WireStatus| status.target_url.contains("/actions/runs/");
        for status in statuses.into_iter().filter(|status| status.context != VERIFIED_STATUS) {
            state.from_workflows |= status.status != "skipped" && of_actions(&status);
            match status.status.as_str() {
                "success" | "warning" => state.passed.push(status.context),
                "skipped" => state.skipped.push(status.context),
                "error" | "failure" => failed.push(status),
                _ => state.pending.push(status.context),
            }
        }
        let jobs = match state.pending.is_empty() && failed.iter().any(of_actions) {
            true => self.failed_jobs(repo, sha).await?,
            false => Vec::new(),
        };
        for (n, status) in failed.into_iter().enumerate() {
            let job = jobs.iter().find(|job| n < MAX_LOGS && job.is_of(&status));
            let log = match job {
                Some(job) => self.job_log(repo, job).await?,
                None => None,
            };
            let log = log.unwrap_or_else(|| last_bytes(&status.description, MAX_LOG_BYTES).to_owned());
            // Addresses of the server's Actions have no host.
            let url = self.client.address(&[]).join(&status.target_url).map(String::from).unwrap_or_default();
            state.failed.push(CiFailure { name: status.context, url, log });
        }
        Ok(state)
    }

    /// Returns the newest status of each name of a commit.
    pub(super) async fn newest_statuses(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<Vec<WireStatus>> {
        let what = format!("read the statuses of {} in {repo}", sha.short());
        let path = under(repo, &["commits", sha.as_str(), "status"])?;
        let page = |page: WireStatuses| page.statuses;
        self.client.pages(&what, &path, &[], RequestPriority::Normal, page, |_| false).await
    }

    /// Returns the failed jobs of a commit; empty if the server does not report them.
    async fn failed_jobs(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<Vec<WireJob>> {
        let what = format!("list the runs of Actions for {} in {repo}", sha.short());
        let (path, query) = (under(repo, &["actions", "runs"])?, [("head_sha", sha.as_str())]);
        let page = |page: WireRuns| page.workflow_runs;
        let runs = self.client.pages(&what, &path, &query, RequestPriority::Normal, page, |_| false).await;
        let Some(runs) = or_unavailable(runs)? else { return Ok(Vec::new()) };
        let mut failed = Vec::new();
        // Older servers ignore the filter.
        for WireRun { id, .. } in runs.into_iter().filter(|run| run.head_sha == sha.as_str()).take(MAX_LOGS) {
            let id = id.to_string();
            let path = under(repo, &["actions", "runs", &id, "jobs"])?;
            let page = |page: WireJobs| page.jobs;
            let jobs = self.client.pages(&what, &path, &[], RequestPriority::Normal, page, |_| false).await;
            failed.extend(or_unavailable(jobs)?.into_iter().flatten().filter(WireJob::failed));
        }
        Ok(failed)
    }

    /// Returns the failing step of a job's log; `None` if there is no log.
    async fn job_log(&self, repo: &RepoRef, job: &WireJob) -> ForgeResult<Option<String>> {
        let id = job.id.to_string();
        let what = format!("read the log of job {id} in {repo}");
        let log = or_unavailable(self.client.bytes(&what, &under(repo, &["actions", "jobs", &id, "logs"])?).await)?;
        Ok(log.map(|log| failing_part(&log)).filter(|log| !log.trim().is_empty()))
    }
}

/// Converts an unavailable object to `None`: older servers, tokens without the scope and expired logs lack it.
fn or_unavailable<T>(result: ForgeResult<T>) -> ForgeResult<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(failure) if matches!(failure.kind, ForgeErrorKind::RateLimited { .. } | ForgeErrorKind::Unauthorized) => {
            Err(failure)
        }
        Err(failure) => {
            tracing::info!(%failure, "could not read the output of an Actions job; using the status's description");
            Ok(None)
        }
    }
}
