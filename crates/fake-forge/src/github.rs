//! GitHub's REST API v3 and GraphQL: authentication, errors, limits and repositories.

mod admin;
mod apps;
pub(super) mod attachments;
mod commits;
mod graphql;
mod hooks;
mod issues;
pub(super) mod manifests;
pub(super) mod payload;
mod pulls;
mod shape;
mod shape_pulls;

use std::sync::Arc;

use http::{HeaderMap, Method, header};
use serde_json::{Value, json};
use sha2::Digest;

pub(super) use self::apps::{PRIVATE_KEY, for_git};
use self::shape::GitHubShape;
use super::call::{FakeAnswer, FakeCall, FakeReply, SignedIn, id, utc};
use super::core::Core;
use super::rendering::rendered;
use super::state::{Access, FakeRefusal, FakeRepo, FakeState};
use ralph_types::ids::{RepoId, Timestamp};

/// Query parameter, default and maximum of the page size.
const PAGE: (&str, usize, usize) = ("per_page", 30, 100);
/// Number of requests per hour and account: GitHub's limit for an App in a large organization.
const HOURLY_REQUESTS: u32 = 15_000;
const HOUR_MS: i64 = 3_600_000;

fn nothing_here() -> FakeRefusal {
    FakeRefusal::NotFound("no such endpoint".to_owned())
}

/// Handles a request below `/api/v3`, or to `/api/graphql` (path `graphql`).
pub(super) async fn answer(core: &Arc<Core>, mut call: FakeCall) -> FakeReply {
    let reply = match apps::sign_in(core, &call.headers) {
        Err(refused) => refused,
        Ok(signed_in) => {
            call.caller = signed_in.user();
            call.signed_in = signed_in;
            match spend(core, &call) {
                Err(limited) => return dated(core, limited),
                Ok(()) => match dispatch(core, &call).await {
                    Ok(reply) => attachments::with_html(core, &call, reply),
                    Err(refusal) => refused(core, &call, &refusal),
                },
            }
        }
    };
    let reply = with_quota(core, &call, reply);
    dated(core, unless_known(&call, reply))
}

fn dated(core: &Core, reply: FakeReply) -> FakeReply {
    let now = jiff::Timestamp::from_millisecond(core.clock.now().0).unwrap_or_default();
    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let reply = reply.with("date", &date).with("x-github-request-id", &uuid::Uuid::now_v7().to_string());
    reply.with("x-github-media-type", "github.v3; format=json")
}

/// Counts a request against the account's limit; returns GitHub's error response if the limit is exceeded.
fn spend(core: &Core, call: &FakeCall) -> Result<(), FakeReply> {
    core.act(|state| {
        let now = state.clock.now();
        let fresh = (HOURLY_REQUESTS, now.plus_ms(HOUR_MS));
        let entry = state.quota.entry(call.caller).or_insert(fresh);
        if entry.1 <= now {
            *entry = fresh;
        }
        if entry.0 == 0 {
            let message = "API rate limit exceeded";
            let (left, reset) = *entry;
            return Err(quota_headers(left, reset, FakeReply::json(403, &json!({"message": message}))));
        }
        entry.0 -= 1;
        Ok(())
    })
}

fn quota_headers(left: u32, reset: Timestamp, reply: FakeReply) -> FakeReply {
    reply
        .with("x-ratelimit-limit", &HOURLY_REQUESTS.to_string())
        .with("x-ratelimit-remaining", &left.to_string())
        .with("x-ratelimit-used", &(HOURLY_REQUESTS - left).to_string())
        .with("x-ratelimit-reset", &reset.0.div_euclid(1000).to_string())
        .with("x-ratelimit-resource", "core")
}

fn with_quota(core: &Core, call: &FakeCall, reply: FakeReply) -> FakeReply {
    match core.act(|state| state.quota.get(&call.caller).copied()) {
        Some((left, reset)) => quota_headers(left, reset, reply),
        None => reply,
    }
}

/// Adds an ETag, and responds with 304 if the client already has this response.
fn unless_known(call: &FakeCall, reply: FakeReply) -> FakeReply {
    if call.method != Method::GET || reply.status != http::StatusCode::OK {
        return reply;
    }
    let digest = data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(&reply.body));
    let tag = format!("W/\"{digest}\"");
    let known = call.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let same = known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag));
    let mut reply = reply.with("etag", &tag).with("cache-control", "private, max-age=60, s-maxage=60");
    if same {
        reply.status = http::StatusCode::NOT_MODIFIED;
        reply.body.clear();
        reply.headers.remove(header::CONTENT_TYPE);
    }
    reply
}

/// Converts a refusal to GitHub's response.
fn refused(core: &Core, call: &FakeCall, refusal: &FakeRefusal) -> FakeReply {
    let (status, message, errors) = match refusal {
        FakeRefusal::Unauthorized => (401, "Requires authentication".to_owned(), None),
        FakeRefusal::Forbidden(text) => (403, text.clone(), None),
        FakeRefusal::NotFound(_) => (404, "Not Found".to_owned(), None),
        FakeRefusal::Conflict(text) => {
            let error = json!({"resource": "Label", "code": "already_exists", "field": "name", "message": text});
            (422, "Validation Failed".to_owned(), Some(json!([error])))
        }
        FakeRefusal::Invalid(text) => {
            let error = json!({"resource": "Issue", "code": "custom", "message": text});
            (422, "Validation Failed".to_owned(), Some(json!([error])))
        }
        FakeRefusal::Archived(_) => (403, "Repository was archived so is read-only.".to_owned(), None),
        FakeRefusal::Broken => (500, "Server Error".to_owned(), None),
        FakeRefusal::NotMergeable(text) => (405, text.clone(), None),
        FakeRefusal::Git(text) => (500, text.clone(), None),
        FakeRefusal::Moved(moved) => {
            let rest = call.path.iter().skip(3).map(|part| format!("/{}", escaped(part))).collect::<String>();
            let address = core.at(&format!("api/v3/repositories/{moved}{rest}"));
            let body = json!({"message": "Moved Permanently", "url": address});
            return FakeReply::json(if call.method == Method::GET { 301 } else { 307 }, &body)
                .with("location", &address);
        }
    };
    let mut body = json!({
        "message": message, "documentation_url": "https://docs.github.com/rest", "status": status.to_string(),
    });
    if let Some(errors) = errors {
        body["errors"] = errors;
    }
    FakeReply::json(status, &body)
}

fn escaped(part: &str) -> String {
    url::form_urlencoded::byte_serialize(part.as_bytes()).collect::<String>().replace('+', "%20")
}

async fn dispatch(core: &Arc<Core>, call: &FakeCall) -> FakeAnswer {
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    if let Some(answer) = admin::dispatch(core, call, &path).await {
        return answer;
    }
    match (call.method.as_str(), path.as_slice()) {
        ("POST", ["graphql"]) => graphql::dispatch(core, call),
        (_, ["app", rest @ ..]) => apps::dispatch(core, call, rest),
        ("POST", ["app-manifests", code, "conversions"]) => manifests::convert(core, code),
        ("GET", ["repos", owner, name, "installation"]) => apps::installation_of(core, call, owner, name),
        ("GET", ["installation", "repositories"]) => apps::repositories(core, call),
        ("POST", ["markdown"]) => {
            let page = core.act(|state| rendered(state, call.text("text").unwrap_or_default()));
            Ok(FakeReply::text(200, page).with("content-type", "text/html; charset=utf-8"))
        }
        ("GET", ["meta"]) => Ok(FakeReply::json(200, &json!({"verifiable_password_authentication": false}))),
        ("GET", ["user"]) => {
            apps::only_people(call)?;
            let user = call.actor()?;
            Ok(core.act(|state| {
                let suspended =
                    state.accounts.get(&user).filter(|account| account.suspended).map(|known| utc(known.created_at));
                let own = GitHubShape { core, state }.profile(user);
                FakeReply::json(
                    200,
                    &match suspended {
                        Some(at) => shape::with(own, json!({"suspended_at": at})),
                        None => own,
                    },
                )
            }))
        }
        ("GET", ["users", login]) => core.act(|state| {
            let account = state.account_named(login).ok_or_else(|| FakeRefusal::NotFound(format!("user {login}")))?;
            Ok(FakeReply::json(200, &GitHubShape { core, state }.profile(account.user.id)))
        }),
        ("GET", ["orgs", org, "teams", name, "memberships", login]) => {
            apps::may_see_members(call)?;
            core.act(|state| membership(core, state, org, name, login))
        }
        ("GET", ["user", "repos"]) => {
            apps::only_people(call)?;
            let user = call.actor()?;
            let list = core.act(|state| {
                let shape = GitHubShape { core, state };
                let own = state.repos.values().filter(|repo| repo.owner == user || repo.access.contains_key(&user));
                own.map(|repo| shape.repo(repo, Some(user))).collect()
            });
            Ok(call.page(list, &address(core, call), PAGE))
        }
        (_, ["repositories", text, rest @ ..]) => of_visible_repo(core, call, RepoId(id(text)?), rest).await,
        (_, ["repos", owner, name, rest @ ..]) => {
            let repo = core.act(|state| state.find_repo(owner, name).map(|repo| repo.id))?;
            of_visible_repo(core, call, repo, rest).await
        }
        _ => Err(nothing_here()),
    }
}

fn membership(core: &Core, state: &FakeState, org: &str, name: &str, login: &str) -> FakeAnswer {
    let nobody = || FakeRefusal::NotFound(format!("membership of {login} in {org}/{name}"));
    let user = state.account_named(login).ok_or_else(nobody)?.user.id;
    let team = state.teams_of(org).find(|team| team.name == name).ok_or_else(nobody)?;
    let joined = *team.members.get(&user).ok_or_else(nobody)?;
    let url = core.at(&format!("api/v3/teams/{}/memberships/{login}", team.id));
    let state = if joined { "active" } else { "pending" };
    Ok(FakeReply::json(200, &json!({"url": url, "role": "member", "state": state})))
}

async fn of_visible_repo(core: &Arc<Core>, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    core.act(|state| {
        let entry = state.repo(repo)?;
        match state.access(entry, call.caller) {
            Access::None => Err(FakeRefusal::NotFound(format!("repository {}", state.full_name(entry)))),
            _ => Ok(()),
        }
    })?;
    apps::permitted(core, call, repo, rest)?;
    if let Some(answer) = admin::of_repo(core, call, repo, rest) {
        return answer;
    }
    if matches!(rest, ["issues", ..]) && !core.act(|state| state.repo(repo).map(|entry| entry.has_issues))? {
        return Ok(FakeReply::json(410, &json!({"message": "Issues are disabled for this repo"})));
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
        (_, ["hooks", rest @ ..]) => hooks::dispatch(core, call, repo, rest),
        ("GET", ["rules", "branches", name @ ..]) => core.act(|state| {
            let entry = state.repo(repo)?;
            let applies = name.join("/") != entry.default_branch;
            let one = |kind: &String| json!({"type": kind, "ruleset_source_type": "Repository", "ruleset_source": entry.name, "ruleset_id": 1});
            let rules = entry.rules.iter().filter(|_| applies).map(one).collect();
            Ok(call.page(rules, &address(core, call), PAGE))
        }),
        ("GET", ["collaborators", login, "permission"]) => permission(core, call, repo, login),
        (_, ["commits" | "statuses" | "check-runs" | "actions" | "branches" | "contents", ..]) => {
            commits::dispatch(core, call, repo, rest).await
        }
        _ => Err(nothing_here()),
    }
}

/// Responds with JSON built from the state and a repository.
fn answer_with(
    core: &Core,
    repo: RepoId,
    status: u16,
    write: impl FnOnce(&GitHubShape<'_>, &FakeRepo) -> Result<Value, FakeRefusal>,
) -> FakeAnswer {
    core.act(|state| {
        let state: &FakeState = state;
        Ok(FakeReply::json(status, &write(&GitHubShape { core, state }, state.repo(repo)?)?))
    })
}

/// Returns the address of a request without its query.
fn address(core: &Core, call: &FakeCall) -> String {
    let path: Vec<String> = call.path.iter().map(|part| escaped(part)).collect();
    core.at(&format!("api/v3/{}", path.join("/")))
}

fn permission(core: &Core, call: &FakeCall, repo: RepoId, login: &str) -> FakeAnswer {
    let actor = call.actor()?;
    answer_with(core, repo, 200, |shape, entry| {
        let state = shape.state;
        let account = state.account_named(login).map(|account| account.user.id);
        // An App's bot cannot be a collaborator.
        let user = account.filter(|user| state.app_of(*user).is_none());
        let user = user.ok_or_else(|| FakeRefusal::NotFound(format!("{login} is not a user")))?;
        if state.access(entry, Some(actor)) < Access::Write {
            return Err(FakeRefusal::Forbidden("Must have push access to view collaborator permission.".to_owned()));
        }
        let (permission, role) = match state.access(entry, Some(user)) {
            Access::Admin => ("admin", "admin"),
            Access::Maintain => ("write", "maintain"),
            Access::Write => ("write", "write"),
            Access::Triage => ("read", "triage"),
            Access::Read => ("read", "read"),
            Access::None => ("none", "none"),
        };
        let user = shape::with(shape.user(user), json!({"role_name": role}));
        Ok(json!({"permission": permission, "role_name": role, "user": user}))
    })
}

/// Returns a job's log, to which the API redirects; `None` for other addresses.
pub(super) fn job_log(core: &Core, path: &str) -> Option<FakeReply> {
    let (repo, run) = path.strip_prefix("/-/logs/")?.split_once('/')?;
    let (repo, run) = (RepoId(repo.parse().ok()?), run.parse::<i64>().ok()?);
    core.act(|state| {
        let runs = &state.repo(repo).ok()?.check_runs;
        let found = runs.iter().find(|known| known.id == run && !known.log.is_empty())?;
        Some(FakeReply::text(200, found.log.clone()))
    })
}

/// Returns the credential of a git request.
pub(super) fn git_sign_in(core: &Core, headers: &HeaderMap) -> Result<SignedIn, FakeRefusal> {
    apps::sign_in(core, headers).map_err(|refused| match refused.status.as_u16() {
        403 => FakeRefusal::Forbidden("the token is refused".to_owned()),
        404 => FakeRefusal::NotFound("repository".to_owned()),
        _ => FakeRefusal::Unauthorized,
    })
}
