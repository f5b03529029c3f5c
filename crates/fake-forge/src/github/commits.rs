//! GitHub's API for branches, files, statuses, check runs and job logs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::apps::wrapped;
use super::shape::GitHubShape;
use super::{PAGE, address, answer_with, nothing_here};
use crate::call::{FakeAnswer, FakeCall, FakeReply, SignedIn, id};
use crate::core::Core;
use crate::state::pulls::StatusDraft;
use crate::state::{FakeCheckRun, FakeRefusal, FakeRepo};
use ralph_types::ids::{RepoId, Sha};

/// Handles `commits…`, `statuses…`, `check-runs…`, `actions…`, `branches…`, `contents…` of a repository.
pub(super) async fn dispatch(core: &Arc<Core>, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    match (call.method.as_str(), rest) {
        ("GET", ["branches"]) => {
            let branches = core.git.branches(repo).await?;
            let list = core.act(|state| {
                let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
                let one = |(name, sha): &(String, Sha)| {
                    let url = shape.api(entry, &format!("/commits/{sha}"));
                    let protected = entry.protected.contains(name);
                    json!({"name": name, "commit": {"sha": sha.as_str(), "url": url}, "protected": protected})
                };
                Ok(branches.iter().map(one).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        ("GET", ["branches", name @ ..]) => branch(core, repo, &name.join("/")).await,
        ("POST", ["statuses", sha]) => {
            let actor = call.actor()?;
            let sha = resolve(core, repo, sha).await?;
            let draft = StatusDraft {
                context: call.text("context").unwrap_or("default").to_owned(),
                state: call.needed("state")?.to_owned(),
                description: call.text("description").unwrap_or_default().to_owned(),
                target_url: call.text("target_url").unwrap_or_default().to_owned(),
            };
            let status = core.act(|state| state.set_status(actor, repo, &sha, &draft))?;
            answer_with(core, repo, 201, |shape, entry| Ok(shape.status(entry, &status)))
        }
        ("GET", ["commits", name, "statuses"]) => {
            let sha = resolve(core, repo, name).await?;
            let all = core.act(|state| {
                let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
                let all = entry.statuses.iter().rev().filter(|status| status.sha == sha);
                Ok(all.map(|status| shape.status(entry, status)).collect())
            })?;
            Ok(call.page(all, &address(core, call), PAGE))
        }
        ("GET", ["commits", name, "status"]) => {
            let sha = resolve(core, repo, name).await?;
            let (around, all) = core.act(|state| {
                let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
                let all: Vec<Value> =
                    state.latest_statuses(repo, &sha).iter().map(|status| shape.status(entry, status)).collect();
                Ok((shape.combined_status(entry, &sha), all))
            })?;
            Ok(wrapped(call.page(all, &address(core, call), PAGE), &around, "statuses"))
        }
        ("GET", ["commits", _, "check-runs"]) if is_fine_grained(core, call) => {
            Err(FakeRefusal::Forbidden("Resource not accessible by personal access token".to_owned()))
        }
        ("GET", ["actions", "runs"]) => {
            let sha = call.param("head_sha").unwrap_or_default().to_owned();
            list_runs(
                core,
                call,
                repo,
                "workflow_runs",
                |run| run.sha.as_str() == sha,
                |shape, entry, run| shape.workflow_run(entry, run),
            )
        }
        ("GET", ["actions", "runs", text, "jobs"]) => {
            let wanted = id(text)?;
            list_runs(core, call, repo, "jobs", |run| run.id == wanted, |shape, entry, run| shape.job(entry, run))
        }
        ("GET", ["commits", name, "check-runs"]) => {
            let sha = resolve(core, repo, name).await?;
            let name = call.param("check_name");
            let all: Vec<Value> = core.act(|state| {
                let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
                let is_named = |run: &&FakeCheckRun| name.is_none_or(|name| name == run.name);
                let all = entry.check_runs.iter().filter(|run| run.sha == sha).filter(is_named);
                Ok(all.map(|run| shape.check_run(entry, run)).collect())
            })?;
            let around = json!({"total_count": all.len()});
            Ok(wrapped(call.page(all, &address(core, call), PAGE), &around, "check_runs"))
        }
        ("POST", ["check-runs"]) => set_check_run(core, call, repo).await,
        ("PATCH", ["check-runs", text]) => update_check_run(core, call, repo, id(text)?),
        ("GET", ["check-runs", _, "annotations"]) => Ok(call.page(Vec::new(), &address(core, call), PAGE)),
        ("GET", ["check-runs", text]) => one_check_run(core, repo, 200, id(text)?),
        ("GET", ["actions", "jobs", text, "logs"]) => {
            let wanted = id(text)?;
            core.act(|state| {
                let runs = &state.repo(repo)?.check_runs;
                let there = runs.iter().any(|run| run.id == wanted && !run.log.is_empty());
                if !there {
                    return Err(FakeRefusal::NotFound(format!("log of job {wanted}")));
                }
                Ok(FakeReply::empty(302).with("location", &core.at(&format!("-/logs/{repo}/{wanted}"))))
            })
        }
        ("GET", ["contents", path @ ..]) => contents(core, call, repo, &path.join("/")).await,
        _ => Err(nothing_here()),
    }
}

fn is_fine_grained(core: &Core, call: &FakeCall) -> bool {
    matches!(call.signed_in, SignedIn::Person(_)) && core.act(|state| state.fine_grained_tokens)
}

/// Responds with the Actions jobs for which `wanted` is true, each formatted by `write`.
fn list_runs(
    core: &Core,
    call: &FakeCall,
    repo: RepoId,
    field: &str,
    wanted: impl Fn(&FakeCheckRun) -> bool,
    write: impl Fn(&GitHubShape<'_>, &FakeRepo, &FakeCheckRun) -> Value,
) -> FakeAnswer {
    let all: Vec<Value> = core.act(|state| {
        let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
        let found = entry.check_runs.iter().filter(|run| run.workflow.is_some() && wanted(run));
        Ok(found.map(|run| write(&shape, entry, run)).collect())
    })?;
    let around = json!({"total_count": all.len()});
    Ok(wrapped(call.page(all, &address(core, call), PAGE), &around, field))
}

async fn resolve(core: &Core, repo: RepoId, name: &str) -> Result<Sha, FakeRefusal> {
    let commit = core.git.resolve(repo, name).await?;
    commit.ok_or_else(|| FakeRefusal::Invalid(format!("No commit found for SHA: {name}")))
}

async fn branch(core: &Core, repo: RepoId, name: &str) -> FakeAnswer {
    let missing = || FakeRefusal::NotFound(format!("branch {name}"));
    let sha = core.git.branch(repo, name).await?.ok_or_else(missing)?;
    let commits = core.git.commits(repo, None, &sha, 1).await?;
    let commit = commits.first().ok_or_else(missing)?;
    answer_with(core, repo, 200, |shape, entry| Ok(shape.branch(entry, name, commit)))
}

fn one_check_run(core: &Core, repo: RepoId, status: u16, wanted: i64) -> FakeAnswer {
    answer_with(core, repo, status, |shape, entry| {
        let run = entry.check_runs.iter().find(|run| run.id == wanted);
        run.map(|run| shape.check_run(entry, run)).ok_or_else(nothing_here)
    })
}

async fn set_check_run(core: &Core, call: &FakeCall, repo: RepoId) -> FakeAnswer {
    let (actor, name) = (call.actor()?, call.needed("name")?);
    let sha = resolve(core, repo, call.needed("head_sha")?).await?;
    let app = app_of(call)?;
    let outcome = call.text("conclusion").map(|conclusion| (conclusion, summary(call), ""));
    let created = core.act(|state| state.set_check_run(actor, repo, &sha, name, outcome))?;
    complete(core, call, repo, (app, created))?;
    one_check_run(core, repo, 201, created)
}

fn update_check_run(core: &Core, call: &FakeCall, repo: RepoId, wanted: i64) -> FakeAnswer {
    let actor = call.actor()?;
    let app = app_of(call)?;
    core.act(|state| state.update_check_run(actor, repo, wanted, call.text("conclusion"), summary(call)))?;
    complete(core, call, repo, (app, wanted))?;
    one_check_run(core, repo, 200, wanted)
}

/// Adds the id that the App gave and a request's annotations, at most 50, to a check run.
fn complete(core: &Core, call: &FakeCall, repo: RepoId, (app, run): (i64, i64)) -> Result<(), FakeRefusal> {
    let list = call.body.pointer("/output/annotations").and_then(Value::as_array).cloned().unwrap_or_default();
    if list.len() > 50 {
        return Err(FakeRefusal::Invalid("No more than 50 annotations can be added in a request.".to_owned()));
    }
    let one = |found: &Value| {
        let text = |name: &str| found.get(name).and_then(Value::as_str).map(str::to_owned);
        Some((text("path")?, found.get("start_line")?.as_u64()?, text("message")?))
    };
    let parsed: Option<Vec<_>> = list.iter().map(one).collect();
    let parsed =
        parsed.ok_or_else(|| FakeRefusal::Invalid("an annotation lacks a path, line or message".to_owned()))?;
    core.act(|state| {
        let runs = &mut state.repo_mut(repo)?.check_runs;
        let run = runs.iter_mut().find(|known| known.id == run).ok_or_else(nothing_here)?;
        run.annotations.extend(parsed);
        run.set_by = Some((app, call.text("external_id").unwrap_or_default().to_owned()));
        Ok(())
    })
}

fn summary(call: &FakeCall) -> &str {
    call.body.get("output").and_then(|output| output.get("summary")).and_then(Value::as_str).unwrap_or_default()
}

/// Fails for personal tokens, which cannot write check runs.
/// Returns the App that made a request which only Apps can make.
fn app_of(call: &FakeCall) -> Result<i64, FakeRefusal> {
    match &call.signed_in {
        SignedIn::Installation(_, scope) => Ok(scope.app),
        _ => Err(FakeRefusal::Forbidden("You must authenticate via a GitHub App.".to_owned())),
    }
}

async fn contents(core: &Core, call: &FakeCall, repo: RepoId, path: &str) -> FakeAnswer {
    let default = core.act(|state| state.repo(repo).map(|entry| entry.default_branch.clone()))?;
    let missing = |_| FakeRefusal::NotFound(format!("file {path}"));
    let at = resolve(core, repo, call.param("ref").unwrap_or(&default)).await.map_err(missing)?;
    if let Some(entries) = core.git.entries_in(repo, at.as_str(), path).await? {
        let entry = |(path, kind): &(String, &str)| {
            let (name, address) = (path.rsplit('/').next().unwrap_or(path), address(core, call));
            json!({
                "name": name, "path": path, "sha": at.as_str(), "type": kind, "size": 1, "url": address,
                "git_url": null, "html_url": null, "download_url": null,
                "_links": {"self": address, "git": null, "html": null},
            })
        };
        return Ok(FakeReply::json(200, &entries.iter().map(entry).collect()));
    }
    let text = core.git.file_at(repo, at.as_str(), path).await?;
    let text = text.ok_or_else(|| FakeRefusal::NotFound(format!("file {path}")))?;
    let (name, address) = (path.rsplit('/').next().unwrap_or(path), address(core, call));
    let fields = json!({
        "name": name, "path": path, "sha": at.as_str(), "type": "file", "size": text.len(), "encoding": "base64",
        "content": data_encoding::BASE64.encode(text.as_bytes()), "url": address, "git_url": null, "html_url": null,
        "download_url": null, "_links": {"self": address, "git": null, "html": null},
    });
    Ok(FakeReply::json(200, &fields))
}
