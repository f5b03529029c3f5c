//! Logins with OAuth 2.0: the page for granting access, and the endpoint for exchanging a code.

use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::Dialect;
use super::call::FakeReply;
use super::core::Core;
use super::pages::{escape, frame};
use super::state::logins::{CodeRefusal, LoginAsked};
use ralph_types::ids::AccountKind;

/// Parameters of a query or a form.
struct LoginValues(Vec<(String, String)>);

impl LoginValues {
    fn parse(text: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(text).into_owned().collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }
}

/// Handles a request below `/login/oauth/`; `None` for another path. The page's form contains the account that grants access
/// (`as`), or no account to deny it.
pub(super) fn serve(
    core: &Core,
    method: &Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Option<FakeReply> {
    match (method.as_str(), path) {
        ("GET" | "POST", "/login/oauth/authorize") => Some(authorize(core, method, query, body)),
        ("POST", "/login/oauth/access_token") => Some(token(core, headers, body)),
        _ => None,
    }
}

fn page(status: u16, title: &str, body: &str) -> FakeReply {
    FakeReply::text(status, frame(title, body)).with("content-type", "text/html; charset=utf-8")
}

fn authorize(core: &Core, method: &Method, query: &str, body: &[u8]) -> FakeReply {
    let asked = LoginValues::parse(query.as_bytes());
    let app = core.act(|state| state.login_app(asked.text("client_id")).cloned());
    let Some(app) = app else {
        return match core.dialect {
            Dialect::GitHub => page(404, "Not found", "<p>There is no such client.</p>"),
            Dialect::Gitea => page(400, "Client ID not registered", "<p>Client ID not registered</p>"),
        };
    };
    let redirect = asked.text("redirect_uri");
    if !app.redirects.iter().any(|known| known == redirect) {
        return page(400, "Wrong redirect", "<p>The redirect_uri is not associated with this application.</p>");
    }
    let back = |pairs: &[(&str, &str)]| {
        let Ok(mut address) = url::Url::parse(redirect) else { return page(400, "Wrong redirect", "") };
        address.query_pairs_mut().extend_pairs(pairs).append_pair("state", asked.text("state"));
        FakeReply::empty(302).with("location", address.as_str())
    };
    if asked.text("response_type") != "code" && core.dialect == Dialect::Gitea {
        return back(&[("error", "unsupported_response_type")]);
    }
    match (asked.get("code_challenge"), asked.get("code_challenge_method")) {
        (None, None) | (Some(_), Some("S256")) => {}
        _ => return back(&[("error", "invalid_request"), ("error_description", "unsupported code challenge method")]),
    }
    if method == Method::GET {
        return page(200, "Log in", &choices(core, &app.name, query));
    }
    let answer = LoginValues::parse(body);
    let person = answer.get("as").and_then(|login| core.act(|state| Some(state.account_named(login)?.clone())));
    let Some(person) = person else { return back(&[("error", "access_denied")]) };
    if person.suspended {
        return page(403, "Suspended", "<p>Your account was suspended.</p>");
    }
    let scopes = asked.text("scope").split([' ', ',']).filter(|scope| !scope.is_empty()).map(str::to_owned).collect();
    let login = LoginAsked {
        client_id: app.client_id,
        redirect: redirect.to_owned(),
        challenge: asked.get("code_challenge").map(str::to_owned),
        scopes,
    };
    let code = core.act(|state| state.agree_to_login(person.user.id, &login));
    back(&[("code", &code)])
}

/// Returns a form with the accounts that can grant access, because the browser is not logged in.
fn choices(core: &Core, app: &str, query: &str) -> String {
    let people: Vec<String> = core.act(|state| {
        let people =
            state.accounts.values().filter(|known| !known.organization && known.user.kind == AccountKind::User);
        people.map(|known| known.user.login.clone()).collect()
    });
    let button = |login: &String| {
        let login = escape(login);
        format!("<p><button name=\"as\" value=\"{login}\">Agree as {login}</button></p>")
    };
    let buttons: String = people.iter().map(button).collect();
    format!(
        "<h1>{} asks who you are</h1><form method=\"post\" action=\"/login/oauth/authorize?{}\">{buttons}\
         <p><button name=\"deny\" value=\"yes\">Deny</button></p></form>",
        escape(app),
        escape(query),
    )
}

fn token(core: &Core, headers: &HeaderMap, body: &[u8]) -> FakeReply {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let values = if header("content-type").starts_with("application/json") {
        let read: Value = serde_json::from_slice(body).unwrap_or_default();
        let pairs = read.as_object().into_iter().flatten();
        LoginValues(pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect())
    } else {
        LoginValues::parse(body)
    };
    let (client, code) = ((values.text("client_id"), values.text("client_secret")), values.text("code"));
    let (redirect, verifier) = (values.text("redirect_uri"), values.get("code_verifier"));
    if core.dialect == Dialect::Gitea && values.text("grant_type") != "authorization_code" {
        let words = "Only refresh_token or authorization_code grant type is supported";
        return FakeReply::json(400, &json!({"error": "unsupported_grant_type", "error_description": words}));
    }
    let outcome = core.act(|state| state.exchange_code(client, code, redirect, verifier));
    match (core.dialect, outcome) {
        (Dialect::Gitea, Ok((token, _))) => FakeReply::json(
            200,
            &json!({"access_token": token, "token_type": "bearer", "expires_in": 3600, "refresh_token": "unused"}),
        ),
        (Dialect::Gitea, Err(refusal)) => {
            let words = match refusal {
                CodeRefusal::Client => "invalid client secret",
                CodeRefusal::Redirect => "unexpected redirect URI",
                CodeRefusal::Code => "client is not authorized",
                CodeRefusal::Verifier => "failed PKCE code challenge",
            };
            FakeReply::json(400, &json!({"error": "unauthorized_client", "error_description": words}))
        }
        (Dialect::GitHub, outcome) => {
            let answer = match outcome {
                Ok((token, scopes)) => {
                    json!({"access_token": token, "token_type": "bearer", "scope": scopes.join(",")})
                }
                Err(refusal) => {
                    let (error, words) = match refusal {
                        CodeRefusal::Client => {
                            ("incorrect_client_credentials", "The client_id and/or client_secret passed are incorrect.")
                        }
                        CodeRefusal::Redirect => (
                            "redirect_uri_mismatch",
                            "The redirect_uri MUST match the registered callback URL for this application.",
                        ),
                        CodeRefusal::Code | CodeRefusal::Verifier => {
                            ("bad_verification_code", "The code passed is incorrect or expired.")
                        }
                    };
                    json!({"error": error, "error_description": words})
                }
            };
            // GitHub reports errors with status 200, and responds with a form unless the client asks for JSON.
            if header("accept").contains("json") {
                return FakeReply::json(200, &answer);
            }
            let mut form = url::form_urlencoded::Serializer::new(String::new());
            for (key, value) in answer.as_object().into_iter().flatten() {
                form.append_pair(key, value.as_str().unwrap_or_default());
            }
            FakeReply::text(200, form.finish()).with("content-type", "application/x-www-form-urlencoded")
        }
    }
}
