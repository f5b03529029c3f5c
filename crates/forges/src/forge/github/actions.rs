//! GitHub Actions: selects the relevant check run of several with one name, and reads jobs if check runs cannot be
//! read.

use http::Method;
use serde::Deserialize;

use super::GitHub;
use super::ci::GitHubCheckRun;
use super::client::ApiCall;
use crate::domain::model::ids::{RepoRef, Sha};
use crate::forge::{ForgeErrorKind, ForgeResult};

/// Maximum number of workflow runs of a commit whose jobs are read.
const MAX_RUNS: usize = 30;

#[derive(Deserialize)]
struct WorkflowRunPage {
    workflow_runs: Vec<WorkflowRun>,
}

/// Run of a workflow on a commit.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct WorkflowRun {
    id: u64,
    workflow_id: u64,
    event: String,
    check_suite_id: Option<u64>,
    path: Option<String>,
}

impl WorkflowRun {
    /// Whether both runs have the same workflow and event.
    fn is_like(&self, other: &Self) -> bool {
        (self.workflow_id, &self.event) == (other.workflow_id, &other.event)
    }
}

#[derive(Deserialize)]
struct JobPage {
    jobs: Vec<WorkflowJob>,
}

#[derive(Deserialize)]
struct WorkflowJob {
    id: u64,
    name: String,
    status: String,
    conclusion: Option<String>,
    html_url: Option<String>,
}

impl GitHub {
    /// Removes outdated check runs: of several with the same name, workflow and event, the newest remains.
    pub(super) async fn newest_runs(
        &self,
        repo: &RepoRef,
        sha: &Sha,
        runs: Vec<GitHubCheckRun>,
    ) -> ForgeResult<Vec<GitHubCheckRun>> {
        let repeated = runs.iter().any(|run| runs.iter().filter(|other| other.name == run.name).count() > 1);
        let workflows = if repeated { self.workflow_runs(repo, sha).await? } else { None };
        Ok(match workflows {
            Some(workflows) => newest(runs, &workflows),
            None => runs,
        })
    }

    /// Returns the jobs of a commit's workflow runs, for credentials that cannot read check runs. Empty if they cannot
    /// read jobs either.
    pub(super) async fn jobs_of(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<Vec<GitHubCheckRun>> {
        let Some(workflows) = self.workflow_runs(repo, sha).await? else { return Ok(Vec::new()) };
        let newer = |run: &WorkflowRun| workflows.iter().any(|other| other.id > run.id && other.is_like(run));
        let mut jobs = Vec::new();
        for run in workflows.iter().filter(|run| !newer(run)).take(MAX_RUNS) {
            let path = ["actions", "runs", &run.id.to_string(), "jobs"];
            let call = ApiCall::on(repo, Method::GET, &path, format!("read the jobs of {} on", sha.short()));
            let call = call.query(&[("filter", "latest"), ("per_page", "100")]);
            let page = self.client.pages(&call, |page: JobPage| page.jobs).await?;
            jobs.extend(
                page.into_iter()
                    .map(|job| GitHubCheckRun::of_job(job.id, job.name, job.status, job.conclusion, job.html_url)),
            );
        }
        Ok(jobs)
    }

    /// Returns the paths of the workflows that started on a commit; `None` if the credential cannot read them, or they have no path.
    pub(super) async fn workflow_paths(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<Option<Vec<String>>> {
        let Some(runs) = self.workflow_runs(repo, sha).await? else { return Ok(None) };
        let path = |run: WorkflowRun| run.path.map(|path| path.split('@').next().unwrap_or_default().to_owned());
        Ok(runs.into_iter().map(path).collect())
    }

    /// Returns the workflow runs of a commit; `None` if the credential cannot read them.
    async fn workflow_runs(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<Option<Vec<WorkflowRun>>> {
        let what = format!("read the workflow runs of {} on", sha.short());
        let call = ApiCall::on(repo, Method::GET, &["actions", "runs"], what);
        let call = call.query(&[("head_sha", sha.as_str()), ("per_page", "100")]);
        match self.client.pages(&call, |page: WorkflowRunPage| page.workflow_runs).await {
            Err(failure) if matches!(failure.kind, ForgeErrorKind::Denied | ForgeErrorKind::NotFound) => {
                tracing::info!(%failure, "cannot read the workflow runs of a commit");
                Ok(None)
            }
            found => found.map(Some),
        }
    }
}

/// Removes each check run for which there is a newer one with the same name, workflow and event. Check runs without a
/// workflow remain.
fn newest(runs: Vec<GitHubCheckRun>, workflows: &[WorkflowRun]) -> Vec<GitHubCheckRun> {
    let of = |run: &GitHubCheckRun| {
        let suite = run.suite()?;
        workflows.iter().find(|workflow| workflow.check_suite_id == Some(suite))
    };
    let replaced = |run: &GitHubCheckRun| {
        let Some(workflow) = of(run) else { return false };
        let is_newer = |other: &GitHubCheckRun| other.id > run.id && of(other).is_some_and(|one| one.is_like(workflow));
        runs.iter().any(|other| other.name == run.name && is_newer(other))
    };
    let stays: Vec<bool> = runs.iter().map(|run| !replaced(run)).collect();
    runs.into_iter().zip(stays).filter_map(|(run, stays)| stays.then_some(run)).collect()
}
