//! Apps from manifests: the page for creating an App, the exchange of its code, and the page for installing it.

use http::Method;
use serde_json::{Value, json};

use super::PRIVATE_KEY;
use super::shape::GitHubShape;
use crate::call::{FakeAnswer, FakeReply};
use crate::core::Core;
use crate::pages::{escape, frame};
use crate::state::FakeRefusal;
use crate::state::apps::FakeManifest;

/// Whether a path is a page for creating or installing an App.
pub(crate) fn is_page(path: &str) -> bool {
    let organization = path.starts_with("/organizations/") && path.ends_with("/settings/apps/new");
    path == "/settings/apps/new" || organization || path == "/-/apps/create" || path.starts_with("/apps/")
}

/// Exchanges a manifest's code for the App with its secrets.
pub(super) fn convert(core: &Core, code: &str) -> FakeAnswer {
    core.act(|state| {
        let app = state.take_manifest_code(code)?;
        let mut answer = GitHubShape { core, state }.app(&app);
        let (client_id, client_secret) = app.client.clone().unwrap_or_default();
        let hook = (!app.hook.secret.is_empty()).then(|| app.hook.secret.clone());
        answer["client_id"] = json!(client_id);
        answer["client_secret"] = json!(client_secret);
        answer["webhook_secret"] = json!(hook);
        answer["pem"] = json!(PRIVATE_KEY);
        Ok(FakeReply::json(201, &answer))
    })
}

fn html(status: u16, title: &str, body: &str) -> FakeReply {
    FakeReply::text(status, frame(title, body)).with("content-type", "text/html; charset=utf-8")
}

fn field(text: &[u8], name: &str) -> String {
    let found = url::form_urlencoded::parse(text).find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned()).unwrap_or_default()
}

/// Handles a request for such a page. Assumes that the browser is logged in as an account that may create and install Apps.
pub(crate) fn page(core: &Core, method: &Method, path: &str, query: &str, body: &[u8]) -> FakeReply {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let state = field(query.as_bytes(), "state");
    match (method.as_str(), parts.as_slice()) {
        ("POST", ["settings", "apps", "new"]) => confirm(&field(body, "manifest"), &state),
        ("POST", ["organizations", org, "settings", "apps", "new"]) => {
            let known = core.act(|state| state.account_named(org).is_some_and(|account| account.organization));
            if known { confirm(&field(body, "manifest"), &state) } else { html(404, "Not found", "<p>Not found</p>") }
        }
        ("POST", ["-", "apps", "create"]) => create(core, &field(body, "manifest"), &field(body, "name"), &state),
        ("GET", ["apps", slug, "installations", "new"]) => html(
            200,
            "Install",
            &format!(
                "<h1>Install {slug}</h1><form method=\"post\" action=\"/apps/{slug}/installations\">\
                 <button>Install</button></form>",
                slug = escape(slug)
            ),
        ),
        ("POST", ["apps", slug, "installations"]) => install(core, slug),
        _ => html(404, "Not found", "<p>Not found</p>"),
    }
}

/// Returns the page that shows a manifest and asks for the App's name. Rejects an incomplete manifest, like GitHub.
fn confirm(manifest: &str, state: &str) -> FakeReply {
    let wrong = |why: &str| html(422, "Invalid manifest", &format!("<p>Error: {}</p>", escape(why)));
    let read: FakeManifest = match serde_json::from_str(manifest) {
        Ok(read) => read,
        Err(why) => return wrong(&why.to_string()),
    };
    if url::Url::parse(&read.url).is_err() || url::Url::parse(&read.redirect_url).is_err() {
        return wrong("url and redirect_url must be valid URLs");
    }
    html(
        200,
        "Create GitHub App",
        &format!(
            "<h1>Create GitHub App</h1><form method=\"post\" action=\"/-/apps/create?state={}\">\
             <input name=\"name\" value=\"{}\"><input type=\"hidden\" name=\"manifest\" value=\"{}\">\
             <button id=\"create\">Create GitHub App</button></form>",
            escape(&url::form_urlencoded::byte_serialize(state.as_bytes()).collect::<String>()),
            escape(&read.name),
            escape(manifest),
        ),
    )
}

fn create(core: &Core, manifest: &str, name: &str, state: &str) -> FakeReply {
    let read = serde_json::from_str::<FakeManifest>(manifest).map_err(|_| FakeRefusal::Invalid("manifest".to_owned()));
    let made = read.and_then(|mut read| {
        if !name.is_empty() {
            name.clone_into(&mut read.name);
        }
        core.act(|state| state.add_app_from(&read)).map(|code| (read.redirect_url, code))
    });
    let (redirect, code) = match made {
        Ok(made) => made,
        Err(refusal) => return html(422, "Not created", &format!("<p>{}</p>", escape(&refusal.to_string()))),
    };
    let Ok(mut address) = url::Url::parse(&redirect) else { return html(422, "Not created", "") };
    address.query_pairs_mut().append_pair("code", &code).append_pair("state", state);
    FakeReply::empty(302).with("location", address.as_str())
}

fn install(core: &Core, slug: &str) -> FakeReply {
    let found = core.act(|state| {
        let app = state.apps.values_mut().find(|app| app.slug == slug)?;
        app.installed = true;
        Some((app.installation, app.setup_url.clone()))
    });
    let Some((installation, address)) = found else { return html(404, "Not found", "<p>Not found</p>") };
    let Ok(mut address) = url::Url::parse(&address) else {
        return html(200, "Installed", &format!("<h1>Installed</h1><p>Installation {installation}</p>"));
    };
    let installation = Value::from(installation).to_string();
    address.query_pairs_mut().append_pair("installation_id", &installation).append_pair("setup_action", "install");
    FakeReply::empty(302).with("location", address.as_str())
}
