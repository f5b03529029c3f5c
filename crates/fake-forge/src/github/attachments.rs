//! Uploaded files in GitHub: HTML of texts, which contains signed addresses that expire after minutes, and downloads.

use http::HeaderMap;
use pulldown_cmark::{Parser, html};
use sha2::Digest;

use super::shape::with;
use crate::call::FakeReply;
use crate::core::Core;
use crate::state::{FakeAttachment, FakeRepo, FakeState};
use ralph_types::ids::Timestamp;
use serde_json::{Value, json};

/// Time for which a signed address is valid, in milliseconds.
const VALID_MS: i64 = 5 * 60 * 1000;
/// Path prefix of signed addresses.
const SIGNED: &str = "/private-user-images/";

/// Whether a request asks for the HTML of texts.
pub(super) fn wants_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.contains("github.full") || accepted.contains("github.v3.full")
}

/// Adds the HTML of its body to an issue or comment.
pub(super) fn with_html(core: &Core, state: &FakeState, repo: &FakeRepo, written: Value) -> Value {
    let body = written["body"].as_str().unwrap_or_default();
    let mut page = String::new();
    html::push_html(&mut page, Parser::new(body));
    for file in state.attachments_of(repo.id, body, None) {
        let address = core.at(&format!("user-attachments/assets/{}", file.id));
        page = page.replace(&address, &signed(core, file).replace('&', "&amp;"));
    }
    with(written, json!({ "body_html": page, "body_text": "" }))
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
/// session and is not served.
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
