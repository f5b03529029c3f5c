//! Uploaded files in GitHub: rendered HTML with signed addresses that expire after minutes, and downloads.

use http::Method;
use sha2::Digest;

use crate::call::{FakeCall, FakeReply, id};
use crate::core::Core;
use crate::rendering::rendered;
use crate::state::{FakeAttachment, FakeRepo, FakeState};
use ralph_types::ids::{RepoId, Timestamp};
use serde_json::{Value, json};

/// Validity of a signed address, in milliseconds.
const VALID_MS: i64 = 5 * 60 * 1000;
/// Path prefix of signed addresses.
const SIGNED: &str = "/private-user-images/";

/// Adds rendered HTML to the issues, comments and reviews in a response if the request asks for it.
pub(super) fn with_html(core: &Core, call: &FakeCall, mut reply: FakeReply) -> FakeReply {
    let accepted = call.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if call.method != Method::GET || !accepted.contains("github.full") || !reply.status.is_success() {
        return reply;
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(&reply.body) else { return reply };
    core.act(|state| {
        let state: &FakeState = state;
        let found = match call.path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["repos", owner, name, ..] => state.find_repo(owner, name).ok(),
            ["repositories", text, ..] => id(text).ok().and_then(|id| state.repo(RepoId(id)).ok()),
            _ => None,
        };
        let Some(repo) = found else { return };
        let entries = match &mut value {
            Value::Array(entries) => entries.as_mut_slice(),
            one => std::slice::from_mut(one),
        };
        for entry in entries.iter_mut().filter(|entry| entry.get("body").is_some()) {
            let page = html_of(core, state, repo, entry["body"].as_str().unwrap_or_default());
            entry["body_html"] = json!(page);
            entry["body_text"] = json!("");
        }
    });
    reply.body = value.to_string().into_bytes();
    reply
}

/// Returns the HTML of a text.
fn html_of(core: &Core, state: &FakeState, repo: &FakeRepo, body: &str) -> String {
    let mut page = rendered(state, body);
    for file in state.attachments_of(repo.id, body, None) {
        let address = core.at(&format!("user-attachments/assets/{}", file.id));
        page = page.replace(&address, &signed(core, file).replace('&', "&amp;"));
    }
    page
}

fn signature(path: &str, until: i64) -> String {
    data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(format!("a key of the fake forge {path} {until}")))
}

fn signed(core: &Core, file: &FakeAttachment) -> String {
    let path = format!("{SIGNED}{}/1-{}.png", file.uploader, file.id);
    let until = core.clock.now().0 + VALID_MS;
    core.at(&format!("{}?until={until}&jwt={}", path.trim_start_matches('/'), signature(&path, until)))
}

/// Returns the file at a signed address; `None` for another path. The address in the Markdown text requires a browser
/// session, so it is not served.
pub(crate) fn serve(core: &Core, path: &str, query: &str) -> Option<FakeReply> {
    let missing = || FakeReply::text(404, "Not Found".to_owned());
    if path.starts_with("/user-attachments/assets/") {
        return Some(missing());
    }
    let name = path.strip_prefix(SIGNED)?;
    let params: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let param = |wanted: &str| params.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let until = param("until").and_then(|text| text.parse().ok()).unwrap_or(0);
    let valid = param("jwt") == Some(&signature(path, until)) && Timestamp(until) > core.clock.now();
    let id = name.rsplit_once("/1-").and_then(|(_, rest)| rest.strip_suffix(".png")).unwrap_or_default();
    Some(core.act(|state| match state.attachments.get(id).filter(|_| valid) {
        Some(file) => FakeReply::file(&file.content),
        None => missing(),
    }))
}
