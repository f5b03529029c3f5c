//! GitHub's authentication: personal tokens, signatures of Apps, installation tokens.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderMap, header};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::GitHubShape;
use super::{PAGE, address, nothing_here};
use crate::call::{FakeAnswer, FakeCall, FakeReply, SignedIn, id, utc};
use crate::core::Core;
use crate::hooks::FakeDelivery;
use crate::state::FakeRefusal;
use crate::state::apps::{FakeAppKey, TokenScope};
use ralph_types::ids::{RepoId, UserId};

/// Private key of all Apps of the fake forge.
pub(crate) const PRIVATE_KEY: &str = include_str!("app-key.pem");

impl FakeAppKey {
    /// Returns the private key in the PEM format.
    pub fn private_pem(self) -> &'static str {
        match self {
            Self::First => PRIVATE_KEY,
            Self::Second => include_str!("second-app-key.pem"),
        }
    }

    fn public_pem(self) -> &'static str {
        match self {
            Self::First => include_str!("app-key.pub.pem"),
            Self::Second => include_str!("second-app-key.pub.pem"),
        }
    }
}

/// Maximum lifetime of a signature and tolerated clock difference, in seconds.
const SIGNATURE_S: i64 = 600;
const LEEWAY_S: i64 = 60;

#[derive(Deserialize)]
struct FakeClaims {
    iat: i64,
    exp: i64,
    iss: Issuer,
}

/// App id, which GitHub accepts as a string and as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Issuer {
    Text(String),
    Number(i64),
}

fn bad(message: &str) -> FakeReply {
    FakeReply::json(
        401,
        &json!({"message": message, "documentation_url": "https://docs.github.com/rest", "status": "401"}),
    )
}

/// Returns the credential of a request, or the response to an invalid one.
pub(crate) fn sign_in(core: &Core, headers: &HeaderMap) -> Result<SignedIn, FakeReply> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(SignedIn::Nobody) };
    let text = value.to_str().unwrap_or_default();
    let (scheme, credential) = text.split_once(' ').ok_or_else(|| bad("Bad credentials"))?;
    let credential = match scheme.eq_ignore_ascii_case("basic") {
        true => password(credential.trim()).ok_or_else(|| bad("Bad credentials"))?,
        false => credential.trim().to_owned(),
    };
    if credential.split('.').count() == 3 {
        return signed(core, &credential);
    }
    core.act(|state| {
        if let Some(status) = state.unknown_yet(&credential) {
            let message = if status == 404 { "Not Found" } else { "Bad credentials" };
            return Err(FakeReply::json(status, &json!({"message": message, "status": status.to_string()})));
        }
        let user = state.authenticate(&credential).map_err(|_| bad("Bad credentials"))?;
        match state.narrowed.get(&credential) {
            Some(narrowed) if state.app(narrowed.app).is_ok_and(|app| app.suspended_at.is_some()) => {
                Err(FakeReply::json(403, &json!({"message": "This installation has been suspended"})))
            }
            Some(narrowed) => Ok(SignedIn::Installation(user, narrowed.clone())),
            None => Ok(SignedIn::Person(user)),
        }
    })
}

fn password(basic: &str) -> Option<String> {
    let decoded = String::from_utf8(data_encoding::BASE64.decode(basic.as_bytes()).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some(if password.is_empty() { name } else { password }.to_owned())
}

/// Returns the App of a signature; fails for a signature with another key and for expired times.
fn signed(core: &Core, signature: &str) -> Result<SignedIn, FakeReply> {
    let unreadable = || bad("A JSON web token could not be decoded");
    let keys = core.act(|state| state.app_keys.clone());
    let mut validation = Validation::new(Algorithm::RS256);
    // The times are checked below, according to the forge's clock.
    validation.validate_exp = false;
    validation.required_spec_claims.clear();
    let decode = |key: &FakeAppKey| {
        let key = DecodingKey::from_rsa_pem(key.public_pem().as_bytes()).ok()?;
        jwt_ring::decode::<FakeClaims>(signature, &key, &validation).ok()
    };
    let claims = keys.iter().find_map(decode).ok_or_else(unreadable)?;
    let now = core.clock.now().0.div_euclid(1000);
    if claims.iat > now + LEEWAY_S {
        return Err(bad(
            "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
        ));
    }
    if claims.exp <= now {
        return Err(bad(
            "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the \
             assertion expires",
        ));
    }
    if claims.exp > now + SIGNATURE_S + LEEWAY_S {
        return Err(bad("'Expiration time' claim ('exp') is too far in the future"));
    }
    let app = match claims.iss {
        Issuer::Text(text) => text.parse().unwrap_or(0),
        Issuer::Number(number) => number,
    };
    match core.act(|state| state.app(app).is_ok()) {
        true => Ok(SignedIn::App(app)),
        false => Err(FakeReply::json(404, &json!({"message": "Integration not found"}))),
    }
}

/// Fails for Apps, which have no user account.
pub(super) fn only_people(call: &FakeCall) -> Result<(), FakeRefusal> {
    match call.signed_in {
        SignedIn::App(_) | SignedIn::Installation(..) => {
            Err(FakeRefusal::Forbidden("Resource not accessible by integration".to_owned()))
        }
        _ => Ok(()),
    }
}

fn own_app(call: &FakeCall) -> Result<i64, FakeRefusal> {
    match call.signed_in {
        SignedIn::App(app) => Ok(app),
        _ => Err(FakeRefusal::Unauthorized),
    }
}

/// Handles `app…`.
pub(super) fn dispatch(core: &Core, call: &FakeCall, rest: &[&str]) -> FakeAnswer {
    let app = own_app(call)?;
    match (call.method.as_str(), rest) {
        ("GET", []) => core.act(|state| Ok(FakeReply::json(200, &GitHubShape { core, state }.app(state.app(app)?)))),
        ("GET", ["installations"]) => {
            let list = core.act(|state| {
                let app = state.app(app)?;
                Ok(if app.installed { vec![GitHubShape { core, state }.installation(app)] } else { Vec::new() })
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        ("GET", ["installations", text]) => {
            let wanted = id(text)?;
            core.act(|state| {
                let app = state.app(app)?;
                if app.installation != wanted || !app.installed {
                    return Err(FakeRefusal::NotFound(format!("installation {wanted}")));
                }
                Ok(FakeReply::json(200, &GitHubShape { core, state }.installation(app)))
            })
        }
        ("GET", ["hook", "config"]) => core.act(|state| {
            let hook = &state.app(app)?.hook;
            let config = json!({"url": hook.url, "content_type": "json", "secret": "********", "insecure_ssl": "0"});
            Ok(FakeReply::json(200, &config))
        }),
        ("GET", ["hook", "deliveries"]) => {
            let list = deliveries_of(core, app)?.iter().rev().map(|(id, one)| described(*id, one)).collect();
            Ok(call.page(list, &address(core, call), PAGE))
        }
        ("POST", ["hook", "deliveries", text, "attempts"]) => {
            let wanted = id(text)?;
            let known = deliveries_of(core, app)?;
            let found = known.iter().find(|(id, _)| *id == wanted);
            let (_, one) = found.ok_or_else(|| FakeRefusal::NotFound(format!("delivery {wanted}")))?;
            // Use the webhook's current address.
            let hook = core.act(|state| state.app(app).map(|app| app.hook.clone()))?;
            let mut one = one.clone();
            (one.sent.url, one.sent.secret) = (hook.url, hook.secret);
            core.hooks.redeliver(&one);
            Ok(FakeReply::json(202, &json!({})))
        }
        ("POST", ["installations", text, "access_tokens"]) => mint(core, call, app, id(text)?),
        _ => Err(nothing_here()),
    }
}

/// Returns the delivery attempts of an App's webhook, oldest first, each with its id.
fn deliveries_of(core: &Core, app: i64) -> Result<Vec<(i64, FakeDelivery)>, FakeRefusal> {
    let hook = core.act(|state| state.app(app).map(|app| app.hook.id))?;
    let numbered = core.hooks.log().into_iter().zip(1i64..).map(|(one, id)| (id, one));
    Ok(numbered.filter(|(_, one)| one.sent.hook == hook).collect())
}

fn described(id: i64, one: &FakeDelivery) -> Value {
    let body: Value = serde_json::from_str(&one.sent.body).unwrap_or_default();
    let number = |path: &str| body.pointer(path).cloned().unwrap_or_default();
    json!({
        "id": id, "guid": one.id, "delivered_at": utc(one.at), "redelivery": one.sent.id.is_some(), "duration": 0.1,
        "status": if one.status.is_some() { "OK" } else { "failed to connect to host" },
        "status_code": one.status.unwrap_or(0), "event": one.sent.event.0, "action": body.get("action"),
        "installation_id": number("/installation/id"), "repository_id": number("/repository/id"), "throttled_at": null,
    })
}

fn mint(core: &Core, call: &FakeCall, app: i64, installation: i64) -> FakeAnswer {
    let list = |name: &str| call.body.get(name).and_then(Value::as_array);
    let ids =
        list("repository_ids").map(|ids| ids.iter().filter_map(Value::as_i64).map(RepoId).collect::<BTreeSet<_>>());
    let permissions = call.body.get("permissions").and_then(Value::as_object).map(|wanted| {
        let one = |(name, level): (&String, &Value)| (name.clone(), level.as_str().unwrap_or_default().to_owned());
        wanted.iter().map(one).collect::<BTreeMap<_, _>>()
    });
    core.act(|state| {
        if state.app(app)?.installation != installation {
            return Err(FakeRefusal::NotFound(format!("installation {installation}")));
        }
        let named = |name: &Value| {
            let name = name.as_str().unwrap_or_default();
            let found = state.repos.values().find(|repo| repo.name.eq_ignore_ascii_case(name));
            // An unknown name is treated as a repository outside the installation.
            found.map_or(RepoId(0), |repo| repo.id)
        };
        let repos = ids.or_else(|| list("repositories").map(|names| names.iter().map(named).collect()));
        let (token, expires_at, narrowed) = state.mint(app, repos.clone(), permissions)?;
        let selection = if repos.is_some() { "selected" } else { "all" };
        let mut body = json!({
            "token": token, "expires_at": utc(expires_at), "permissions": narrowed.permissions,
            "repository_selection": selection,
        });
        if repos.is_some() {
            body["repositories"] = GitHubShape { core, state }.repositories_of(&narrowed).into();
        }
        Ok(FakeReply::json(201, &body))
    })
}

/// Returns the installation of a repository.
pub(super) fn installation_of(core: &Core, call: &FakeCall, owner: &str, name: &str) -> FakeAnswer {
    let app = own_app(call)?;
    core.act(|state| {
        let (repo, app) = (state.find_repo(owner, name)?.id, state.app(app)?);
        if app.excluded.contains(&repo) || !app.installed {
            return Err(FakeRefusal::NotFound(format!("installation on {owner}/{name}")));
        }
        Ok(FakeReply::json(200, &GitHubShape { core, state }.installation(app)))
    })
}

/// Returns the repositories that an installation token can access.
pub(super) fn repositories(core: &Core, call: &FakeCall) -> FakeAnswer {
    let SignedIn::Installation(_, narrowed) = &call.signed_in else {
        let text = "You must authenticate with an installation access token in order to list repositories for an \
                    installation.";
        return Err(FakeRefusal::Forbidden(text.to_owned()));
    };
    let all = core.act(|state| GitHubShape { core, state }.repositories_of(narrowed));
    let total = all.len();
    let page = call.page(all, &address(core, call), PAGE);
    Ok(wrapped(page, &json!({"total_count": total, "repository_selection": "all"}), "repositories"))
}

/// Wraps a page of a list into a field of the object `around`.
pub(super) fn wrapped(mut page: FakeReply, around: &Value, field: &str) -> FakeReply {
    let list: Value = serde_json::from_slice(&page.body).unwrap_or_default();
    let mut object = around.clone();
    object[field] = list;
    page.body = object.to_string().into_bytes();
    page
}

/// Fails unless the credential permits the request in a repository.
pub(super) fn permitted(core: &Core, call: &FakeCall, repo: RepoId, rest: &[&str]) -> Result<(), FakeRefusal> {
    let narrowed = match &call.signed_in {
        SignedIn::Nobody | SignedIn::Person(_) => return Ok(()),
        SignedIn::App(_) => {
            return Err(FakeRefusal::Forbidden("Resource not accessible by integration".to_owned()));
        }
        SignedIn::Installation(_, narrowed) => narrowed,
    };
    reaches(core, narrowed, repo)?;
    let level = if call.method == http::Method::GET { "read" } else { "write" };
    let any: &[&str] = match rest {
        ["issues", ..] | ["labels", ..] => &["issues", "pull_requests"],
        ["pulls", ..] => &["pull_requests"],
        ["commits", _, "check-runs"] | ["check-runs", ..] => &["checks"],
        ["commits", _, "status" | "statuses"] | ["statuses", ..] => &["statuses"],
        ["actions", ..] => &["actions"],
        ["branches" | "contents" | "commits", ..] => &["contents"],
        ["hooks", ..] => &["repository_hooks"],
        _ => &["metadata"],
    };
    match any.iter().any(|permission| narrowed.permits(permission, level)) {
        true => Ok(()),
        false => Err(FakeRefusal::Forbidden("Resource not accessible by integration".to_owned())),
    }
}

/// Fails unless the credential may read the members of teams.
pub(super) fn may_see_members(call: &FakeCall) -> Result<(), FakeRefusal> {
    match &call.signed_in {
        SignedIn::Person(_) => Ok(()),
        SignedIn::Installation(_, narrowed) if narrowed.permits("members", "read") => Ok(()),
        _ => Err(FakeRefusal::Forbidden("Resource not accessible by integration".to_owned())),
    }
}

/// Fails unless an installation token includes a repository.
pub(crate) fn reaches(core: &Core, narrowed: &TokenScope, repo: RepoId) -> Result<(), FakeRefusal> {
    let excluded = core.act(|state| state.app(narrowed.app).map(|app| app.excluded.contains(&repo)))?;
    match excluded || narrowed.repos.as_ref().is_some_and(|only| !only.contains(&repo)) {
        true => Err(FakeRefusal::NotFound(format!("repository {repo}"))),
        false => Ok(()),
    }
}

/// Returns the account of a git request; an installation token needs the permission `contents`.
pub(crate) fn for_git(
    core: &Core,
    signed_in: &SignedIn,
    repo: RepoId,
    pushes: bool,
) -> Result<Option<UserId>, FakeRefusal> {
    match signed_in {
        SignedIn::App(_) => Err(FakeRefusal::Unauthorized),
        SignedIn::Installation(user, narrowed) => {
            reaches(core, narrowed, repo)?;
            match narrowed.permits("contents", if pushes { "write" } else { "read" }) {
                true => Ok(Some(*user)),
                false => Err(FakeRefusal::Forbidden("Resource not accessible by integration".to_owned())),
            }
        }
        other => Ok(other.user()),
    }
}
