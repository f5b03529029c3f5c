//! Gitea's API for Actions runs, their jobs and logs, as in version 1.24 and later. Each check run in the state is one
//! run with one job.

use serde_json::{Value, json};

use crate::GiteaVersion;
use crate::call::{FakeAnswer, FakeCall, FakeReply, id};
use crate::core::Core;
use crate::state::{FakeCheckRun, FakeRefusal};
use ralph_types::ids::RepoId;

/// Handles `actions…` of a repository.
pub(super) fn dispatch(core: &Core, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    if core.act(|state| state.gitea) == GiteaVersion::V1_22 {
        return Err(FakeRefusal::NotFound("not found".to_owned()));
    }
    match (call.method.as_str(), rest) {
        ("GET", ["runs"]) => {
            let sha = call.param("head_sha").unwrap_or_default().to_owned();
            list(
                core,
                repo,
                "workflow_runs",
                |run| run.sha.as_str() == sha,
                |run, _| json!({"id": run.id, "head_sha": run.sha.as_str(), "status": status(run), "conclusion": run.conclusion}),
            )
        }
        ("GET", ["runs", text, "jobs"]) => {
            let wanted = id(text)?;
            list(
                core,
                repo,
                "jobs",
                |run| run.id == wanted,
                |run, page| {
                    json!({"id": run.id, "run_id": run.id, "name": run.name, "head_sha": run.sha.as_str(), "status": status(run),
                    "conclusion": run.conclusion, "html_url": format!("{page}/actions/runs/{}/jobs/0", run.id)})
                },
            )
        }
        ("GET", ["jobs", text, "logs"]) => {
            let wanted = id(text)?;
            core.act(|state| {
                let runs = &state.repo(repo)?.check_runs;
                let found = runs.iter().find(|run| run.id == wanted && !run.log.is_empty());
                let missing = || FakeRefusal::NotFound(format!("log of job {wanted}"));
                Ok(FakeReply::text(200, found.ok_or_else(missing)?.log.clone()))
            })
        }
        _ => Err(FakeRefusal::NotFound("not found".to_owned())),
    }
}

fn status(run: &FakeCheckRun) -> &'static str {
    if run.conclusion.is_some() { "completed" } else { "in_progress" }
}

/// Responds with the jobs for which `wanted` is true, each formatted by `write` with the address of the repository's
/// page.
fn list(
    core: &Core,
    repo: RepoId,
    field: &str,
    wanted: impl Fn(&FakeCheckRun) -> bool,
    write: impl Fn(&FakeCheckRun, &str) -> Value,
) -> FakeAnswer {
    core.act(|state| {
        let entry = state.repo(repo)?;
        let owner = state.accounts.get(&entry.owner).map(|account| account.user.login.clone()).unwrap_or_default();
        let page = core.at(&format!("{owner}/{}", entry.name));
        let all: Vec<Value> = entry.check_runs.iter().filter(|run| wanted(run)).map(|run| write(run, &page)).collect();
        let total = all.len();
        Ok(FakeReply::json(200, &json!({"total_count": total, field: all})).with("x-total-count", &total.to_string()))
    })
}
