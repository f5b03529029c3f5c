//! Style sheet, scripts and icons of the pages. The program embeds them and serves them at addresses that contain their
//! content's hash.
//!
//! `crates/web/src/web/assets/vendor` has unchanged files of the npm package `htmx.org` 4.0.1 with its license (Zero-Clause
//! BSD).

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

/// Number of hash digits (hexadecimal) in an address.
const DIGITS: usize = 16;
/// Cache headers. Browsers may cache an address indefinitely, because it changes with the content.
const KEEP: &str = "public, max-age=31536000, immutable";

macro_rules! embedded {
    ($($name:literal: $kind:literal),* $(,)?) => {
        &[$(($name, $kind, include_bytes!(concat!("assets/", $name)))),*]
    };
}

/// Name, media type and content of each file.
const FILES: &[(&str, &str, &[u8])] = embedded![
    "page.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "vendor/htmx.min.js": "text/javascript; charset=utf-8",
    "vendor/hx-sse.min.js": "text/javascript; charset=utf-8",
    "vendor/hx-csp.min.js": "text/javascript; charset=utf-8",
    "icon-rest.svg": "image/svg+xml",
    "icon-running.svg": "image/svg+xml",
    "icon-waiting.svg": "image/svg+xml",
    "icon-done.svg": "image/svg+xml",
    "icon-failed.svg": "image/svg+xml",
];

/// File with the hash of its content.
struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static [u8],
    hash: String,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let hash = |content: &[u8]| data_encoding::HEXLOWER.encode(&Sha256::digest(content))[..DIGITS].to_owned();
    FILES.iter().map(|(name, kind, content)| Asset { name, kind, content, hash: hash(content) }).collect()
});

/// Returns the address of a file; empty for an unknown name.
pub(super) fn address(name: &str) -> String {
    let found = ASSETS.iter().find(|asset| asset.name == name);
    found.map_or_else(String::new, |asset| format!("/assets/{}/{}", asset.hash, asset.name))
}

/// Returns the route that serves the files, for a server without the other pages.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/assets/{hash}/{*name}", get(file))
}

/// Returns a file, given the hash of its content and its name.
pub(super) async fn file(Path((hash, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name && asset.hash == hash) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let tag = format!("\"{hash}\"");
    let known = headers.get_all(IF_NONE_MATCH).iter().any(|value| {
        value.to_str().is_ok_and(|tags| tags.split(',').any(|known| known.trim() == tag || known.trim() == "*"))
    });
    let common = [(ETAG, tag), (CACHE_CONTROL, KEEP.to_owned())];
    match known {
        true => (StatusCode::NOT_MODIFIED, common).into_response(),
        false => (common, [(CONTENT_TYPE, asset.kind)], asset.content).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of the files in the npm package `htmx.org` 4.0.1.
    const VENDORED: [(&str, &str); 3] = [
        ("vendor/htmx.min.js", "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"),
        ("vendor/hx-sse.min.js", "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103"),
        ("vendor/hx-csp.min.js", "a7e1e6711ae6c3e50ad300fba7936cbe8d07599cdae313414a179ddd6b26e143"),
    ];

    #[test]
    fn vendored_files_are_unchanged_and_have_a_licence() {
        for (name, sum) in VENDORED {
            let (.., content) = FILES.iter().find(|file| file.0 == name).expect("the file is embedded");
            assert_eq!(data_encoding::HEXLOWER.encode(&Sha256::digest(content)), sum, "{name}");
        }
        let vendored = FILES.iter().filter(|file| file.0.starts_with("vendor/")).count();
        assert_eq!(vendored, VENDORED.len(), "each vendored file has a checksum");
        assert!(include_str!("assets/vendor/LICENSE.htmx").starts_with("Zero-Clause BSD"));
    }

    #[test]
    fn own_files_use_no_eval_and_no_external_resources() {
        for (name, _, content) in FILES.iter().filter(|file| !file.0.starts_with("vendor/")) {
            let text = String::from_utf8_lossy(content);
            for banned in ["eval(", "new Function", "innerHTML", "@import", "url(", "https://"] {
                assert!(!text.contains(banned), "{name} contains {banned}");
            }
        }
    }

    #[tokio::test]
    async fn file_is_served_under_its_hash_only() {
        let at = |name: &str| (address(name).split('/').nth(2).expect("a hash").to_owned(), name.to_owned());
        let served = file(Path(at("page.css")), HeaderMap::new()).await;
        assert_eq!(served.status(), StatusCode::OK);
        assert_eq!(served.headers()[CACHE_CONTROL], KEEP);
        let mut known = HeaderMap::new();
        known.insert(IF_NONE_MATCH, served.headers()[ETAG].clone());
        assert_eq!(file(Path(at("page.css")), known).await.status(), StatusCode::NOT_MODIFIED);
        let other = file(Path(("0123456789abcdef".into(), "page.css".into())), HeaderMap::new()).await;
        assert_eq!(other.status(), StatusCode::NOT_FOUND);
        assert_eq!(address("../../Cargo.toml"), "");
    }
}
