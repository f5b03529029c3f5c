//! GitHub's API for administrators (of Enterprise Server) and owners: accounts, tokens, organizations, teams, and the
//! settings of a repository.

use std::sync::Arc;

use serde_json::{Value, json};

use super::shape::GitHubShape;
use super::{answer_with, nothing_here};
use crate::call::{FakeAnswer, FakeCall, FakeReply};
use crate::core::Core;
use crate::state::{Access, FakeRefusal, FakeState, MergeRule};
use ralph_types::ids::{RepoId, UserId};

fn account(state: &FakeState, login: &str) -> Result<UserId, FakeRefusal> {
    let account = state.account_named(login).map(|account| account.user.id);
    account.ok_or_else(|| FakeRefusal::NotFound(format!("account {login}")))
}

fn access_named(name: &str) -> Access {
    match name {
        "admin" => Access::Admin,
        "maintain" => Access::Maintain,
        "push" | "write" => Access::Write,
        "triage" => Access::Triage,
        _ => Access::Read,
    }
}

/// Handles requests outside a repository; `None` if the path is not one of these.
pub(super) async fn dispatch(core: &Arc<Core>, call: &FakeCall, path: &[&str]) -> Option<FakeAnswer> {
    Some(match (call.method.as_str(), path) {
        ("POST", ["admin", "users"]) => create_account(core, call),
        ("DELETE", ["admin", "users", login]) => delete_account(core, call, login, 204),
        ("POST", ["admin", "users", login, "authorizations"]) => authorize(core, call, login),
        ("POST", ["admin", "organizations"]) => organization(core, call),
        ("DELETE", ["orgs", org]) => delete_account(core, call, org, 202),
        ("POST", ["orgs", org, "teams"]) => team(core, call, org),
        ("PUT", ["orgs", org, "teams", name, rest @ ..]) => join(core, call, org, name, rest),
        ("POST", ["orgs", org, "repos"]) => create_repo(core, call, Some(org)).await,
        ("POST", ["user", "repos"]) => create_repo(core, call, None).await,
        _ => return None,
    })
}

fn create_account(core: &Core, call: &FakeCall) -> FakeAnswer {
    let (actor, login) = (call.actor()?, call.needed("login")?);
    core.act(|state| {
        let user = state.create_account(actor, login, "")?;
        Ok(FakeReply::json(201, &GitHubShape { core, state }.user(user.id)))
    })
}

fn delete_account(core: &Core, call: &FakeCall, login: &str, status: u16) -> FakeAnswer {
    let actor = call.actor()?;
    core.act(|state| state.delete_account(actor, login))?;
    Ok(FakeReply::empty(status))
}

fn authorize(core: &Core, call: &FakeCall, login: &str) -> FakeAnswer {
    let actor = call.actor()?;
    core.act(|state| {
        state.require_administrator(actor)?;
        let user = account(state, login)?;
        let token = state.create_token(user, None);
        Ok(FakeReply::json(201, &json!({"id": 1, "token": token, "scopes": call.list("scopes")})))
    })
}

fn organization(core: &Core, call: &FakeCall) -> FakeAnswer {
    let (actor, login, admin) = (call.actor()?, call.needed("login")?, call.needed("admin")?);
    core.act(|state| {
        state.require_administrator(actor)?;
        let owner = account(state, admin)?;
        let org = state.create_organization(owner, login)?;
        Ok(FakeReply::json(201, &json!({"login": login, "id": org.id.0, "type": "Organization"})))
    })
}

fn team(core: &Core, call: &FakeCall, org: &str) -> FakeAnswer {
    let (actor, name) = (call.actor()?, call.needed("name")?);
    core.act(|state| {
        let id = state.create_team(actor, org, name, access_named(call.text("permission").unwrap_or("pull")), false)?;
        Ok(FakeReply::json(201, &json!({"id": id, "name": name, "slug": name, "privacy": "closed"})))
    })
}

fn join(core: &Core, call: &FakeCall, org: &str, name: &str, rest: &[&str]) -> FakeAnswer {
    let actor = call.actor()?;
    core.act(|state| {
        let team = state.teams_of(org).find(|team| team.name == name).map(|team| team.id);
        let team = team.ok_or_else(nothing_here)?;
        match rest {
            ["memberships", login] => {
                let user = account(state, login)?;
                state.edit_team(actor, team, |team| {
                    team.members.insert(user, true);
                })?;
                Ok(FakeReply::json(200, &json!({"url": "", "role": "member", "state": "active"})))
            }
            ["repos", owner, name] => {
                let repo = state.find_repo(owner, name)?.id;
                let access = call.text("permission").map(access_named);
                state.edit_team(actor, team, |team| {
                    team.repos.insert(repo);
                    team.access = access.unwrap_or(team.access);
                })?;
                Ok(FakeReply::empty(204))
            }
            _ => Err(nothing_here()),
        }
    })
}

async fn create_repo(core: &Arc<Core>, call: &FakeCall, org: Option<&str>) -> FakeAnswer {
    let (actor, name) = (call.actor()?, call.needed("name")?);
    let owner = core.act(|state| match org {
        None => Ok(state.user(actor).login),
        Some(org) => {
            let owner = account(state, org)?;
            state.require_owner(owner, actor)?;
            Ok(org.to_owned())
        }
    })?;
    let made = core.create_repo(&owner, name, &[]).await?;
    core.act(|state| {
        let private = call.body.get("private").and_then(Value::as_bool).unwrap_or(false);
        state.repo_mut(made).map(|entry| entry.private = private)
    })?;
    answer_with(core, made, 201, |shape, entry| Ok(shape.repo(entry, Some(actor))))
}

/// Handles the settings of a repository; `None` if the path is not one of these.
pub(super) fn of_repo(core: &Core, call: &FakeCall, repo: RepoId, rest: &[&str]) -> Option<FakeAnswer> {
    let admin = |change: &dyn Fn(&mut FakeState, UserId) -> Result<(), FakeRefusal>, status: u16| -> FakeAnswer {
        let actor = call.actor()?;
        core.act(|state| {
            state.require(repo, actor, Access::Admin)?;
            change(state, actor)
        })?;
        Ok(FakeReply::empty(status))
    };
    Some(match (call.method.as_str(), rest) {
        ("PATCH", []) => edit_repo(core, call, repo),
        ("DELETE", []) => admin(&|state, actor| state.delete_repo(actor, repo), 204),
        ("POST", ["transfer"]) => {
            let to = call.text("new_owner").unwrap_or_default();
            admin(&|state, actor| state.transfer_repo(actor, repo, to), 202)
        }
        ("PUT", ["branches", name @ .., "protection"]) => protect(core, call, repo, &name.join("/")),
        ("PUT", ["collaborators", login]) => {
            let access = access_named(call.text("permission").unwrap_or("push"));
            admin(&|state, _| account(state, login).and_then(|user| state.grant(repo, user, access)), 204)
        }
        ("DELETE", ["collaborators", login]) => {
            admin(&|state, _| account(state, login).and_then(|user| state.grant(repo, user, Access::None)), 204)
        }
        _ => return None,
    })
}

/// Protects a branch from pushes, and requires approvals and checks for merges into it.
fn protect(core: &Core, call: &FakeCall, repo: RepoId, name: &str) -> FakeAnswer {
    let actor = call.actor()?;
    let needed = ["required_status_checks", "enforce_admins", "required_pull_request_reviews", "restrictions"];
    if let Some(missing) = needed.iter().find(|field| call.body.get(**field).is_none()) {
        return Err(FakeRefusal::Invalid(format!("\"{missing}\" wasn't supplied.")));
    }
    let field = |path: &str| call.body.pointer(path);
    let approvals = field("/required_pull_request_reviews/required_approving_review_count").and_then(Value::as_u64);
    let checks = field("/required_status_checks/contexts").and_then(Value::as_array).cloned().unwrap_or_default();
    let checks = checks.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let rule = MergeRule { checks, approvals: approvals.unwrap_or(0) as usize };
    core.act(|state| {
        state.require(repo, actor, Access::Admin)?;
        state.repo_mut(repo).map(|entry| entry.merge_rules.insert(name.to_owned(), rule))
    })?;
    core.protect(repo, name, true)?;
    Ok(FakeReply::json(200, &json!({"url": core.at("api/v3/protection"), "enforce_admins": {"enabled": true}})))
}

fn edit_repo(core: &Core, call: &FakeCall, repo: RepoId) -> FakeAnswer {
    call.edit_repo(core, repo)?;
    if let Some(allowed) = call.body.get("allow_auto_merge").and_then(Value::as_bool) {
        core.act(|state| state.repo_mut(repo).map(|entry| entry.auto_merge_allowed = allowed))?;
    }
    answer_with(core, repo, 200, |shape, entry| Ok(shape.repo(entry, call.caller)))
}
