//! Gitea's API v1: repositories, commits and webhooks. Submodules implement issues and pull requests.

mod actions;
mod admin;
pub(super) mod attachments;
mod issues;
pub(super) mod payload;
mod pulls;
mod shape;

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use self::shape::GiteaShape;
use super::GiteaVersion;
use super::call::{FakeAnswer, FakeCall, FakeReply, id, zoned};
use super::core::Core;
use super::git::MAX_LISTED_COMMITS;
use super::rendering::rendered;
use super::serve::caller;
use super::state::pulls::StatusDraft;
use super::state::{Access, BranchPush, FakeEvent, FakeEventKind, FakeRefusal, FakeRepo, FakeState, MergeRule};
use ralph_types::ids::{RepoId, Sha};

/// Query parameter, default and maximum of the page size.
const PAGE: (&str, usize, usize) = ("limit", 30, 50);

/// Whether Gitea treats a pull request as a draft because of its title.
pub(super) fn is_work_in_progress(title: &str) -> bool {
    let title = title.to_ascii_uppercase();
    title.starts_with("WIP:") || title.starts_with("[WIP]")
}

/// Converts a refusal to Gitea's response.
fn refused(core: &Core, call: &FakeCall, refusal: &FakeRefusal) -> FakeReply {
    let status = match refusal {
        FakeRefusal::Unauthorized => 401,
        FakeRefusal::Forbidden(_) => 403,
        FakeRefusal::NotFound(_) => 404,
        FakeRefusal::Conflict(_) => 409,
        FakeRefusal::Invalid(_) => 422,
        FakeRefusal::NotMergeable(_) => 405,
        FakeRefusal::Archived(_) => 423,
        FakeRefusal::Git(_) | FakeRefusal::Broken => 500,
        FakeRefusal::Moved(id) => {
            let name = core.act(|state| state.repo(*id).map(|repo| state.full_name(repo)).unwrap_or_default());
            let rest = call.path.iter().skip(3).map(|part| format!("/{part}")).collect::<String>();
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(&call.query);
            let query = Some(query.finish()).filter(|query| !query.is_empty());
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            // Clients that follow this redirect send GET instead of POST.
            return FakeReply::empty(301).with("location", &format!("/api/v1/repos/{name}{rest}{query}"));
        }
    };
    let message = match refusal {
        FakeRefusal::Unauthorized => "invalid username, password or token".to_owned(),
        FakeRefusal::Broken => String::new(),
        FakeRefusal::Forbidden(text) | FakeRefusal::NotFound(text) => text.clone(),
        other => other.to_string(),
    };
    let mut body = json!({"message": message, "url": core.at("api/swagger")});
    if let FakeRefusal::NotFound(text) = refusal
        && !text.starts_with("user does not exist")
    {
        body["errors"] = Value::Null;
        body["message"] = json!("not found");
    }
    FakeReply::json(status, &body)
}

/// Returns the scopes of a request's token; `None` for all.
fn scopes_of(core: &Core, headers: &http::HeaderMap) -> Option<Vec<String>> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (_, credential) = value.split_once(' ')?;
    core.act(|state| state.tokens.get(credential.trim()).and_then(|token| token.scopes.clone()))
}

/// Handles a request below `/api/v1`.
pub(super) async fn answer(core: &Arc<Core>, mut call: FakeCall) -> FakeReply {
    let outcome = match caller(core, &call.headers) {
        Ok(who) => {
            call.caller = who;
            let scopes = scopes_of(core, &call.headers);
            match admin::in_scope(&call, scopes.as_deref()) {
                Ok(()) => dispatch(core, &call).await,
                Err(refusal) => Err(refusal),
            }
        }
        Err(refusal) => Err(refusal),
    };
    outcome.unwrap_or_else(|refusal| refused(core, &call, &refusal))
}

async fn dispatch(core: &Arc<Core>, call: &FakeCall) -> FakeAnswer {
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    if let Some(answer) = admin::dispatch(core, call, &path).await {
        return answer;
    }
    match (call.method.as_str(), path.as_slice()) {
        ("GET", ["version"]) => {
            let version = core.act(|state| state.gitea.number());
            Ok(FakeReply::json(200, &json!({"version": version})))
        }
        ("POST", ["markdown"]) => {
            let page = core.act(|state| rendered(state, call.text("Text").unwrap_or_default()));
            Ok(FakeReply::text(200, page).with("content-type", "text/html; charset=utf-8"))
        }
        ("GET", ["settings", "api"]) => {
            let (_, usual, most) = PAGE;
            let settings = json!({
                "max_response_items": most, "default_paging_num": usual, "default_git_trees_per_page": 1000,
                "default_max_blob_size": 10_485_760, "default_max_response_size": 104_857_600,
            });
            Ok(FakeReply::json(200, &settings))
        }
        ("GET", ["user"]) => {
            let user = call.actor()?;
            // An account sees its own restrictions.
            let suspended = core.act(|state| state.accounts.get(&user).is_some_and(|account| account.suspended));
            let mut own = core.act(|state| GiteaShape { core, state }.user(user));
            own["active"] = json!(!suspended);
            own["prohibit_login"] = json!(suspended);
            Ok(FakeReply::json(200, &own))
        }
        (_, ["user", "applications", "oauth2", rest @ ..]) => admin::login_apps(core, call, rest),
        ("GET", ["users", login]) => core.act(|state| {
            let account = state.account_named(login).ok_or_else(|| FakeRefusal::NotFound(format!("user {login}")))?;
            Ok(FakeReply::json(200, &GiteaShape { core, state }.user(account.user.id)))
        }),
        ("GET", ["user", "repos"]) => {
            call.actor()?;
            let repos = visible_repos(core, call, Access::Write);
            Ok(call.page(repos, &core.at("api/v1/user/repos"), PAGE))
        }
        ("GET", ["repos", "search"]) => {
            let repos = visible_repos(core, call, Access::Read);
            let mut reply = call.page(repos, &core.at("api/v1/repos/search"), PAGE);
            reply.body = [b"{\"ok\":true,\"data\":", reply.body.as_slice(), b"}"].concat();
            Ok(reply)
        }
        ("GET", ["repositories", text]) => {
            let repo = RepoId(id(text)?);
            visible(core, call, repo)?;
            of_repo(core, call, repo, &[]).await
        }
        (_, ["repos", owner, name, rest @ ..]) => {
            let repo = core.act(|state| state.find_repo(owner, name).map(|repo| repo.id))?;
            visible(core, call, repo)?;
            of_repo(core, call, repo, rest).await
        }
        _ => Err(FakeRefusal::NotFound("no such endpoint".to_owned())),
    }
}

fn visible(core: &Core, call: &FakeCall, repo: RepoId) -> Result<(), FakeRefusal> {
    core.act(|state| {
        let entry = state.repo(repo)?;
        match state.access(entry, call.caller) {
            Access::None => Err(FakeRefusal::NotFound(format!("repository {}", state.full_name(entry)))),
            _ => Ok(()),
        }
    })
}

fn visible_repos(core: &Core, call: &FakeCall, needed: Access) -> Vec<Value> {
    let wanted = call.param("q").unwrap_or_default().to_ascii_lowercase();
    core.act(|state| {
        let shape = GiteaShape { core, state };
        let seen = state.repos.values().filter(|repo| state.access(repo, call.caller) >= needed);
        let named = seen.filter(|repo| repo.name.to_ascii_lowercase().contains(&wanted));
        named.map(|repo| shape.repo(repo, call.caller)).collect()
    })
}

/// Responds with JSON built from the state and a repository.
fn answer_with(
    core: &Core,
    repo: RepoId,
    status: u16,
    write: impl FnOnce(&GiteaShape<'_>, &FakeRepo) -> Result<Value, FakeRefusal>,
) -> FakeAnswer {
    core.act(|state| {
        let state: &FakeState = state;
        Ok(FakeReply::json(status, &write(&GiteaShape { core, state }, state.repo(repo)?)?))
    })
}

async fn of_repo(core: &Arc<Core>, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    if let Some(answer) = admin::of_repo(core, call, repo, rest) {
        return answer;
    }
    match (call.method.as_str(), rest) {
        ("GET", []) => answer_with(core, repo, 200, |shape, entry| Ok(shape.repo(entry, call.caller))),
        (_, ["labels", rest @ ..]) => issues::labels(core, call, repo, rest),
        (_, ["issues", rest @ ..]) => issues::dispatch(core, call, repo, rest),
        ("POST", ["forks"]) => {
            let fork = core.fork(call.actor()?, repo).await?;
            answer_with(core, fork, 202, |shape, entry| Ok(shape.repo(entry, call.caller)))
        }
        (_, ["pulls", rest @ ..]) => pulls::dispatch(core, call, repo, rest).await,
        (_, ["actions", rest @ ..]) => actions::dispatch(core, call, repo, rest),
        (_, ["hooks", rest @ ..]) => hooks(core, call, repo, rest).await,
        (_, ["collaborators", rest @ ..]) => collaborators(core, call, repo, rest),
        (_, ["branches" | "branch_protections", ..]) => branches(core, call, repo, rest).await,
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
        ("GET", ["statuses", name] | ["commits", name, "statuses"]) => {
            let sha = resolve(core, repo, name).await?;
            let all = core.act(|state| {
                let (shape, entry) = (GiteaShape { core, state }, state.repo(repo)?);
                let all = entry.statuses.iter().rev().filter(|status| status.sha == sha);
                Ok(all.map(|status| shape.status(entry, status)).collect())
            })?;
            Ok(call.page(all, &address(core, call), PAGE))
        }
        ("GET", ["commits", name, "status"]) => {
            let sha = resolve(core, repo, name).await?;
            answer_with(core, repo, 200, |shape, entry| Ok(shape.combined_status(entry, &sha)))
        }
        ("GET", ["raw" | "contents", path @ ..]) => contents(core, call, repo, rest[0], &path.join("/")).await,
        _ => Err(FakeRefusal::NotFound("no such endpoint".to_owned())),
    }
}

/// Returns the address of a request without its query.
fn address(core: &Core, call: &FakeCall) -> String {
    core.at(&format!("api/v1/{}", call.path.join("/")))
}

async fn resolve(core: &Core, repo: RepoId, name: &str) -> Result<Sha, FakeRefusal> {
    let commit = core.git.resolve(repo, name).await?;
    commit.ok_or_else(|| FakeRefusal::NotFound(format!("commit {name}")))
}

async fn contents(core: &Core, call: &FakeCall, repo: RepoId, kind: &str, path: &str) -> FakeAnswer {
    let default = core.act(|state| state.repo(repo).map(|entry| entry.default_branch.clone()))?;
    let at = resolve(core, repo, call.param("ref").unwrap_or(&default)).await?;
    if kind == "contents"
        && let Some(entries) = core.git.entries_in(repo, at.as_str(), path).await?
    {
        let entry = |(path, kind): &(String, &str)| {
            let name = path.rsplit('/').next().unwrap_or(path);
            json!({"name": name, "path": path, "sha": at.as_str(), "type": kind, "size": 1})
        };
        return Ok(FakeReply::json(200, &entries.iter().map(entry).collect()));
    }
    let Some(text) = core.git.file_at(repo, at.as_str(), path).await? else {
        let errors = [format!("object does not exist [id: , rel_path: {path}]")];
        let body = json!({"errors": errors, "message": "GetContentsOrList", "url": core.at("api/swagger")});
        return Ok(FakeReply::json(404, &body));
    };
    if kind == "raw" {
        return Ok(FakeReply::text(200, text));
    }
    let content = data_encoding::BASE64.encode(text.as_bytes());
    let name = path.rsplit('/').next().unwrap_or(path);
    let (full_name, made) =
        core.act(|state| state.repo(repo).map(|entry| (state.full_name(entry), entry.created_at)))?;
    let own = core.at(&format!("api/v1/repos/{full_name}/contents/{path}?ref={default}"));
    let blob = core.at(&format!("api/v1/repos/{full_name}/git/blobs/{at}"));
    let page = |kind: &str| core.at(&format!("{full_name}/{kind}/branch/{default}/{path}"));
    let fields = json!({
        "name": name, "path": path, "sha": at.as_str(), "type": "file", "size": text.len(), "encoding": "base64",
        "content": content, "last_commit_sha": at.as_str(), "last_committer_date": zoned(made),
        "last_author_date": zoned(made), "target": null, "url": own, "html_url": page("src"), "git_url": blob,
        "download_url": page("raw"), "submodule_git_url": null,
        "_links": {"self": own, "git": blob, "html": page("src")},
    });
    Ok(FakeReply::json(200, &fields))
}

fn collaborators(core: &Core, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    let actor = call.actor()?;
    core.act(|state| {
        let entry = state.repo(repo)?;
        let find = |login: &str| {
            let account = state.account_named(login).map(|account| account.user.id);
            account.ok_or_else(|| FakeRefusal::NotFound(format!("user does not exist [uid: 0, name: {login}]")))
        };
        match (call.method.as_str(), rest) {
            ("GET", []) => {
                let list = entry.access.keys().map(|user| GiteaShape { core, state }.user(*user)).collect();
                Ok(call.page(list, &address(core, call), PAGE))
            }
            ("GET", [login]) => {
                let known = entry.access.contains_key(&find(login)?);
                Ok(FakeReply::empty(if known { 204 } else { 404 }))
            }
            ("GET", [login, "permission"]) => {
                let user = find(login)?;
                if user != actor && state.access(entry, Some(actor)) < Access::Admin {
                    let text = "Only admins can query all permissions, repo admins can query all repo permissions, \
                                collaborators can query only their own";
                    return Err(FakeRefusal::Forbidden(text.to_owned()));
                }
                // Since 1.25, this response ignores units of teams. Earlier versions return the lowest unit, and all units
                // of a team are equal here.
                let access = match state.gitea {
                    GiteaVersion::V1_22 => state.access(entry, Some(user)),
                    GiteaVersion::V1_25 => state.access_without_units(entry, user),
                };
                let permission = match access {
                    Access::Admin if user == entry.owner || state.owns(entry.owner, user) => "owner",
                    Access::Admin => "admin",
                    Access::Maintain | Access::Write => "write",
                    Access::Triage | Access::Read => "read",
                    Access::None => "none",
                };
                let user = GiteaShape { core, state }.user(user);
                Ok(FakeReply::json(200, &json!({"permission": permission, "role_name": permission, "user": user})))
            }
            _ => Err(FakeRefusal::NotFound("no such endpoint".to_owned())),
        }
    })
}

async fn branches(core: &Core, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    match (call.method.as_str(), rest) {
        ("GET", ["branches"]) => {
            let mut list = Vec::new();
            for (name, sha) in core.git.branches(repo).await? {
                list.push(one_branch(core, call, repo, &name, &sha).await?);
            }
            Ok(call.page(list, &address(core, call), PAGE))
        }
        ("GET", ["branches", name @ ..]) => {
            let name = name.join("/");
            let sha = core.git.branch(repo, &name).await?;
            let sha = sha.ok_or_else(|| FakeRefusal::NotFound(format!("branch {name}")))?;
            Ok(FakeReply::json(200, &one_branch(core, call, repo, &name, &sha).await?))
        }
        ("DELETE", ["branches", name @ ..]) => {
            core.move_branch(call.actor()?, repo, &name.join("/"), None).await?;
            Ok(FakeReply::empty(204))
        }
        ("GET", ["branch_protections"]) => core.act(|state| {
            let protected = &state.repo(repo)?.protected;
            let list: Vec<Value> = protected.iter().map(|name| protection(name)).collect();
            Ok(FakeReply::json(200, &Value::Array(list)))
        }),
        ("POST", ["branch_protections"]) => protect(core, call, repo),
        ("GET", ["branch_protections", name @ ..]) => core.act(|state| {
            let name = name.join("/");
            match state.repo(repo)?.protected.contains(&name) {
                true => Ok(FakeReply::json(200, &protection(&name))),
                false => Err(FakeRefusal::NotFound(format!("branch protection {name}"))),
            }
        }),
        _ => Err(FakeRefusal::NotFound("no such endpoint".to_owned())),
    }
}

/// Protects a branch from pushes, and requires approvals and checks for merges into it.
fn protect(core: &Core, call: &FakeCall, repo: RepoId) -> FakeAnswer {
    let actor = call.actor()?;
    let name = call.text("rule_name").or(call.text("branch_name")).unwrap_or_default();
    if name.is_empty() {
        return Err(FakeRefusal::Invalid("both rule_name and branch_name are empty".to_owned()));
    }
    let approvals = call.body.get("required_approvals").and_then(Value::as_u64).unwrap_or(0) as usize;
    let rule = MergeRule { checks: call.list("status_check_contexts"), approvals };
    core.act(|state| {
        state.require(repo, actor, Access::Admin)?;
        state.repo_mut(repo).map(|entry| entry.merge_rules.insert(name.to_owned(), rule))
    })?;
    if call.body.get("enable_push").and_then(Value::as_bool) != Some(true) {
        core.protect(repo, name, true)?;
    }
    Ok(FakeReply::json(201, &protection(name)))
}

fn protection(name: &str) -> Value {
    json!({"branch_name": name, "rule_name": name, "enable_push": false, "enable_push_whitelist": false})
}

async fn one_branch(core: &Core, call: &FakeCall, repo: RepoId, name: &str, sha: &Sha) -> Result<Value, FakeRefusal> {
    let commits = core.git.commits(repo, None, sha, 1).await?;
    let commit = commits.first().ok_or_else(|| FakeRefusal::NotFound(format!("commit {sha}")))?;
    core.act(|state| Ok(GiteaShape { core, state }.branch(state.repo(repo)?, name, commit, call.caller)))
}

async fn hooks(core: &Arc<Core>, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    let actor = call.actor()?;
    let version = core.act(|state| state.require(repo, actor, Access::Admin).map(|()| state.gitea))?;
    let strings = |value: Option<&Value>| -> Option<Vec<String>> {
        let list = value?.as_array()?;
        Some(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    };
    let events = strings(call.body.get("events"));
    let config = |name: &str| call.body.get("config").and_then(|config| config.get(name)).and_then(Value::as_str);
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let list = core.act(|state| {
                let shape = GiteaShape { core, state };
                Ok(state.repo(repo)?.hooks.iter().map(|hook| shape.hook(hook)).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        (&Method::POST, []) => {
            call.needed("type")?;
            let url = config("url").ok_or_else(|| FakeRefusal::Invalid("Missing config option: url".to_owned()))?;
            let active = call.body.get("active").and_then(Value::as_bool).unwrap_or(false);
            let events = payload::expand(&events.unwrap_or_default(), version);
            let secret = config("secret").unwrap_or_default();
            let created = core.act(|state| state.add_hook(actor, repo, url, secret, events, active))?;
            answer_with(core, repo, 201, |shape, entry| Ok(shape.hook(find_hook(entry, created)?)))
        }
        (&Method::GET, [text]) => {
            let wanted = id(text)?;
            answer_with(core, repo, 200, |shape, entry| Ok(shape.hook(find_hook(entry, wanted)?)))
        }
        (&Method::PATCH, [text]) => {
            let wanted = id(text)?;
            core.act(|state| {
                state.edit_hook(actor, repo, wanted, |hook| {
                    if let Some(events) = &events {
                        hook.events = payload::expand(events, version);
                    }
                    hook.active = call.body.get("active").and_then(Value::as_bool).unwrap_or(hook.active);
                    hook.url = config("url").unwrap_or(&hook.url).to_owned();
                    hook.secret = config("secret").unwrap_or(&hook.secret).to_owned();
                })
            })?;
            answer_with(core, repo, 200, |shape, entry| Ok(shape.hook(find_hook(entry, wanted)?)))
        }
        (&Method::DELETE, [text]) => {
            let wanted = id(text)?;
            core.act(|state| state.remove_hook(actor, repo, wanted))?;
            Ok(FakeReply::empty(204))
        }
        (&Method::POST, [text, "tests"]) => {
            test_hook(core, call, repo, id(text)?).await?;
            Ok(FakeReply::empty(204))
        }
        _ => Err(FakeRefusal::NotFound("no such endpoint".to_owned())),
    }
}

fn find_hook(repo: &FakeRepo, wanted: i64) -> Result<&super::state::FakeHook, FakeRefusal> {
    let hook = repo.hooks.iter().find(|hook| hook.id == wanted);
    hook.ok_or_else(|| FakeRefusal::NotFound(format!("webhook {wanted}")))
}

/// Sends a push event without a push, like Gitea's test delivery. Does nothing in an empty repository.
async fn test_hook(core: &Core, call: &FakeCall, repo: RepoId, wanted: i64) -> Result<(), FakeRefusal> {
    let actor = call.actor()?;
    let branch = core.act(|state| state.repo(repo).map(|entry| entry.default_branch.clone()))?;
    let tip = core.git.branch(repo, &branch).await?;
    let tip = tip.ok_or_else(|| FakeRefusal::NotFound(format!("the branch {branch}")))?;
    let commits = core.git.commits(repo, None, &tip, MAX_LISTED_COMMITS.min(1)).await?;
    let head = commits.last().cloned();
    let push = BranchPush { branch, before: Some(tip.clone()), after: Some(tip), forced: false, commits, head };
    core.act(|state| {
        let hook = find_hook(state.repo(repo)?, wanted)?.clone();
        let event = FakeEvent { repo, actor, what: FakeEventKind::Pushed(Box::new(push.clone())) };
        for payload in payload::test_push(core, state, &event, &push) {
            core.hooks.send(payload.to(&hook));
        }
        Ok(())
    })
}
