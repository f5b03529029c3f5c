//! Gitea's API for administrators and owners: accounts, tokens, organizations, teams, and the settings of a repository.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::shape::GiteaShape;
use super::{PAGE, answer_with};
use crate::GiteaVersion;
use crate::call::{FakeAnswer, FakeCall, FakeReply, id};
use crate::core::Core;
use crate::state::logins::FakeLoginApp;
use crate::state::{Access, FakeRefusal, FakeState, FakeTeam};
use ralph_types::ids::{RepoId, UserId};

fn nothing_here() -> FakeRefusal {
    FakeRefusal::NotFound("no such endpoint".to_owned())
}

fn account(state: &FakeState, login: &str) -> Result<UserId, FakeRefusal> {
    let account = state.account_named(login).map(|account| account.user.id);
    account.ok_or_else(|| FakeRefusal::NotFound(format!("user does not exist [uid: 0, name: {login}]")))
}

/// Handles requests outside a repository; `None` if the path is not one of these.
pub(super) async fn dispatch(core: &Arc<Core>, call: &FakeCall, path: &[&str]) -> Option<FakeAnswer> {
    Some(match (call.method.as_str(), path) {
        (_, ["admin", "users", rest @ ..]) => accounts(core, call, rest),
        ("POST", ["users", login, "tokens"]) => token(core, call, login),
        ("POST", ["orgs"]) => organization(core, call),
        ("DELETE", ["orgs", org]) => delete_account(core, call, org),
        (_, ["orgs", org, "teams", rest @ ..]) => teams_of(core, call, org, rest),
        (_, ["teams", text, rest @ ..]) => team(core, call, text, rest),
        ("POST", ["orgs", org, "repos"]) => create_repo(core, call, Some(org)).await,
        ("POST", ["user", "repos"]) => create_repo(core, call, None).await,
        _ => return None,
    })
}

fn accounts(core: &Core, call: &FakeCall, rest: &[&str]) -> FakeAnswer {
    // Authentication is checked before the body.
    let actor = call.actor()?;
    core.act(|state| state.require_administrator(actor))?;
    match (&call.method, rest) {
        (&Method::POST, []) => {
            let (login, password) = (call.needed("username")?, call.needed("password")?);
            core.act(|state| {
                let user = state.create_account(actor, login, password)?;
                Ok(FakeReply::json(201, &GiteaShape { core, state }.user(user.id)))
            })
        }
        (&Method::DELETE, [login]) => delete_account(core, call, login),
        _ => Err(nothing_here()),
    }
}

fn delete_account(core: &Core, call: &FakeCall, login: &str) -> FakeAnswer {
    let actor = call.actor()?;
    core.act(|state| state.delete_account(actor, login))?;
    Ok(FakeReply::empty(204))
}

fn token(core: &Core, call: &FakeCall, login: &str) -> FakeAnswer {
    let (actor, name) = (call.actor()?, call.needed("name")?);
    let scopes = call.list("scopes");
    core.act(|state| {
        if account(state, login)? != actor && !state.is_administrator(actor) {
            return Err(FakeRefusal::Forbidden(
                "doer should be the site admin or be same as the contextUser".to_owned(),
            ));
        }
        let user = account(state, login)?;
        let all = scopes.iter().any(|scope| scope == "all");
        let made = state.create_token(user, (!all).then(|| scopes.clone()));
        let last = made.get(32..).unwrap_or_default();
        let fields = json!({"id": 1, "name": name, "sha1": made, "token_last_eight": last, "scopes": scopes});
        Ok(FakeReply::json(201, &fields))
    })
}

/// Handles requests for an account's OAuth applications. Only responses to changes contain the secret.
pub(super) fn login_apps(core: &Core, call: &FakeCall, rest: &[&str]) -> FakeAnswer {
    let owner = call.actor()?;
    let shape = |app: &FakeLoginApp, secret: &str| {
        json!({
            "id": app.id, "name": app.name, "client_id": app.client_id, "client_secret": secret,
            "confidential_client": true, "skip_secondary_authorization": false, "redirect_uris": app.redirects,
            "created": "2026-01-02T03:04:05Z",
        })
    };
    match (call.method.as_str(), rest) {
        ("GET", []) => {
            let own = |state: &mut FakeState| -> Vec<Value> {
                state.logins.apps.iter().filter(|app| app.owner == owner).map(|app| shape(app, "")).collect()
            };
            Ok(call.page(core.act(own), &core.at("api/v1/user/applications/oauth2"), PAGE))
        }
        ("POST", []) => {
            let name = call.needed("name")?;
            let app = core.act(|state| state.add_login_app(owner, name, call.list("redirect_uris")));
            Ok(FakeReply::json(201, &shape(&app, &app.secret)))
        }
        ("PATCH", [text]) => {
            let (name, number) = (call.needed("name")?, id(text)?);
            core.act(|state| {
                let secret = state.fresh_secret();
                let mut apps = state.logins.apps.iter_mut();
                let app = apps.find(|app| app.id == number && app.owner == owner).ok_or_else(nothing_here)?;
                (app.name, app.secret, app.redirects) = (name.to_owned(), secret, call.list("redirect_uris"));
                Ok(FakeReply::json(200, &shape(app, &app.secret)))
            })
        }
        _ => Err(nothing_here()),
    }
}

fn organization(core: &Core, call: &FakeCall) -> FakeAnswer {
    let (actor, name) = (call.actor()?, call.needed("username")?);
    core.act(|state| {
        let org = state.create_organization(actor, name)?;
        let fields = json!({
            "id": org.id.0, "name": name, "full_name": "", "email": "", "avatar_url": core.at("avatars/org"),
            "description": "", "website": "", "location": "", "visibility": "public",
            "repo_admin_change_team_access": false, "username": name,
        });
        Ok(FakeReply::json(201, &fields))
    })
}

fn access_named(name: &str) -> Access {
    match name {
        "admin" | "owner" => Access::Admin,
        "write" => Access::Write,
        "read" => Access::Read,
        _ => Access::None,
    }
}

/// Returns a team in Gitea's format. In version 1.25, its permission is `none`, except for owners and administrators; in
/// version 1.22, it is the permission of the team's units.
fn team_json(state: &FakeState, team: &FakeTeam) -> Value {
    let (permission, unit) = match team.access {
        _ if team.owners => ("owner", "owner"),
        Access::Admin | Access::Maintain => ("admin", "admin"),
        Access::Write => ("none", "write"),
        Access::Triage | Access::Read => ("none", "read"),
        Access::None => ("none", "none"),
    };
    let permission = if state.gitea == GiteaVersion::V1_22 { unit } else { permission };
    let usual: &[&str] = match team.owners {
        true => &[
            "actions",
            "code",
            "ext_issues",
            "ext_wiki",
            "issues",
            "packages",
            "projects",
            "pulls",
            "releases",
            "wiki",
        ],
        false => &["code", "issues", "pulls"],
    };
    let units: Vec<String> = usual.iter().map(|name| format!("repo.{name}")).collect();
    let map: serde_json::Map<String, Value> = units.iter().map(|name| (name.clone(), json!(unit))).collect();
    json!({
        "id": team.id, "name": team.name, "description": "", "organization": null,
        "includes_all_repositories": team.everywhere, "permission": permission, "units": units, "units_map": map,
        "can_create_org_repo": team.owners,
    })
}

fn teams_of(core: &Core, call: &FakeCall, org: &str, rest: &[&str]) -> FakeAnswer {
    let actor = call.actor()?;
    match (&call.method, rest) {
        (&Method::GET, ["search"]) => {
            let wanted = call.param("q").unwrap_or_default().to_ascii_lowercase();
            core.act(|state| {
                let owner = account(state, org)?;
                if !state.belongs_to(owner, actor) && !state.is_administrator(actor) && owner != actor {
                    return Err(FakeRefusal::Forbidden("Must be an organization member".to_owned()));
                }
                // Members who are not owners find only their own teams.
                let all = state.owns(owner, actor) || state.is_administrator(actor);
                let seen = state.teams_of(org).filter(|team| all || team.members.get(&actor) == Some(&true));
                let found = seen.filter(|team| team.name.to_ascii_lowercase().contains(&wanted));
                let found: Vec<Value> = found.map(|team| team_json(state, team)).collect();
                Ok(FakeReply::json(200, &json!({"ok": true, "data": found})))
            })
        }
        (&Method::POST, []) => {
            let name = call.needed("name")?;
            let units = call.body.get("units_map").and_then(Value::as_object);
            let unit = units.and_then(|units| units.get("repo.code")).and_then(Value::as_str);
            let access = access_named(unit.or(call.text("permission")).unwrap_or("read"));
            let everywhere = call.body.get("includes_all_repositories").and_then(Value::as_bool).unwrap_or(false);
            core.act(|state| {
                let made = state.create_team(actor, org, name, access, everywhere)?;
                Ok(FakeReply::json(201, &team_json(state, state.team(made)?)))
            })
        }
        _ => Err(nothing_here()),
    }
}

/// Fails unless the account is a member of the team, owns the organization, or is an administrator.
fn may_see(state: &FakeState, team: &FakeTeam, actor: UserId) -> Result<(), FakeRefusal> {
    if state.require_owner(team.org, actor).is_ok() || team.members.get(&actor) == Some(&true) {
        return Ok(());
    }
    match state.belongs_to(team.org, actor) {
        true => Err(FakeRefusal::Forbidden("Must be a team member".to_owned())),
        false => Err(FakeRefusal::NotFound(format!("team {}", team.id))),
    }
}

fn team(core: &Core, call: &FakeCall, text: &str, rest: &[&str]) -> FakeAnswer {
    let (actor, team) = (call.actor()?, id(text)?);
    core.act(|state| {
        let found = state.team(team)?;
        may_see(state, found, actor)?;
        match (call.method.as_str(), rest) {
            ("GET", []) => Ok(FakeReply::json(200, &team_json(state, found))),
            ("GET", ["members"]) => {
                let joined = found.members.iter().filter(|(_, joined)| **joined);
                let list = joined.map(|(user, _)| GiteaShape { core, state }.user(*user)).collect();
                Ok(call.page(list, &core.at(&format!("api/v1/teams/{team}/members")), PAGE))
            }
            ("GET", ["members", login]) => {
                let nobody = || FakeRefusal::NotFound(format!("member {login}"));
                let user = account(state, login).map_err(|_| nobody())?;
                found.members.get(&user).filter(|joined| **joined).ok_or_else(nobody)?;
                Ok(FakeReply::json(200, &GiteaShape { core, state }.user(user)))
            }
            ("PUT", ["members", login]) => {
                let user = account(state, login)?;
                state.edit_team(actor, team, |team| {
                    team.members.insert(user, true);
                })?;
                Ok(FakeReply::empty(204))
            }
            ("DELETE", ["members", login]) => {
                let user = account(state, login)?;
                state.edit_team(actor, team, |team| {
                    team.members.remove(&user);
                })?;
                Ok(FakeReply::empty(204))
            }
            ("PUT", ["repos", owner, name]) => {
                let repo = state.find_repo(owner, name)?.id;
                state.edit_team(actor, team, |team| {
                    team.repos.insert(repo);
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
    let with_file = call.body.get("auto_init").and_then(Value::as_bool).unwrap_or(false);
    let files: &[(&str, &str, bool)] = if with_file { &[("README.md", "# A repository\n", false)] } else { &[] };
    let made = core.create_repo(&owner, name, files).await?;
    core.act(|state| {
        let private = call.body.get("private").and_then(Value::as_bool).unwrap_or(false);
        state.repo_mut(made).map(|entry| entry.private = private)
    })?;
    answer_with(core, made, 201, |shape, entry| Ok(shape.repo(entry, Some(actor))))
}

/// Handles the settings of a repository and its teams; `None` if the path is not one of these.
pub(super) fn of_repo(core: &Core, call: &FakeCall, repo: RepoId, rest: &[&str]) -> Option<FakeAnswer> {
    Some(match (call.method.as_str(), rest) {
        ("PATCH", []) => edit_repo(core, call, repo),
        ("DELETE", []) => call.actor().and_then(|actor| {
            core.act(|state| state.delete_repo(actor, repo))?;
            Ok(FakeReply::empty(204))
        }),
        ("POST", ["transfer"]) => call.actor().and_then(|actor| {
            let to = call.needed("new_owner")?;
            core.act(|state| state.transfer_repo(actor, repo, to))?;
            answer_with(core, repo, 202, |shape, entry| Ok(shape.repo(entry, call.caller)))
        }),
        ("GET", ["teams"]) => call.actor().and_then(|_| {
            core.act(|state| {
                let entry = state.repo(repo)?;
                if !state.accounts.get(&entry.owner).is_some_and(|owner| owner.organization) {
                    return Ok(FakeReply::json(405, &json!({"message": "repo is not owned by an organization"})));
                }
                let list: Vec<Value> = state.teams_with(entry).map(|team| team_json(state, team)).collect();
                Ok(FakeReply::json(200, &Value::Array(list)))
            })
        }),
        ("PUT", ["collaborators", login]) => call.actor().and_then(|actor| {
            core.act(|state| {
                state.require(repo, actor, Access::Admin)?;
                let user = account(state, login)?;
                state.grant(repo, user, access_named(call.text("permission").unwrap_or("write")))?;
                Ok(FakeReply::empty(204))
            })
        }),
        ("DELETE", ["collaborators", login]) => call.actor().and_then(|actor| {
            core.act(|state| {
                state.require(repo, actor, Access::Admin)?;
                let user = account(state, login)?;
                state.grant(repo, user, Access::None)?;
                Ok(FakeReply::empty(204))
            })
        }),
        _ => return None,
    })
}

fn edit_repo(core: &Core, call: &FakeCall, repo: RepoId) -> FakeAnswer {
    call.edit_repo(core, repo)?;
    answer_with(core, repo, 200, |shape, entry| Ok(shape.repo(entry, call.caller)))
}

/// Returns the scopes that a request needs.
fn needed_scopes(method: &Method, path: &[&str]) -> Vec<String> {
    let categories: &[&str] = match path {
        ["repos", _, _, "issues" | "labels" | "milestones", ..] => &["issue"],
        ["repos" | "repositories", ..] => &["repository"],
        ["orgs", _, "repos"] => &["organization", "repository"],
        ["orgs" | "teams", ..] => &["organization"],
        ["user", "repos"] => &["user", "repository"],
        ["user" | "users", ..] => &["user"],
        ["admin", ..] => &["admin"],
        _ => &[],
    };
    let level = if *method == Method::GET { "read" } else { "write" };
    categories.iter().map(|category| format!("{level}:{category}")).collect()
}

/// Fails unless the token of a request has the scopes that it needs.
pub(super) fn in_scope(call: &FakeCall, scopes: Option<&[String]>) -> Result<(), FakeRefusal> {
    let Some(scopes) = scopes else { return Ok(()) };
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    for needed in needed_scopes(&call.method, &path) {
        let writing = needed.replace("read:", "write:");
        if !scopes.iter().any(|scope| *scope == needed || *scope == writing) {
            return Err(FakeRefusal::Forbidden(format!(
                "token does not have at least one of required scope(s), required=[{needed}], token scope={}",
                scopes.join(",")
            )));
        }
    }
    Ok(())
}
