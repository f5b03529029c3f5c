//! Git LFS: the batch API, and a store of objects in the folder where git-lfs keeps its own.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use http::{HeaderMap, Method, Response, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Dialect;
use super::call::FakeReply;
use super::core::Core;
use super::http_git::{admitted, refused};
use super::state::FakeRefusal;
use ralph_types::ids::RepoId;

/// Maximum size of an object, in bytes.
const MAX_OBJECT: usize = 128 << 20;
/// Query of GitHub's addresses of objects, which need no credential.
const SIGNATURE: &str = "signature=of-the-forge";

#[derive(Deserialize)]
struct BatchRequest {
    operation: String,
    objects: Vec<LfsObject>,
}

#[derive(Deserialize)]
struct LfsObject {
    oid: String,
    size: u64,
}

/// Handles a request for `{repo}.git/info/lfs/{rest}`.
pub(super) async fn serve(core: &Arc<Core>, request: Request, repo: &str, rest: &str) -> Response<Body> {
    let reply = reply(core, request, repo, rest).await.map(FakeReply::into_response);
    reply.unwrap_or_else(|refusal| refused(&refusal))
}

async fn reply(core: &Core, request: Request, repo: &str, rest: &str) -> Result<FakeReply, FakeRefusal> {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MAX_OBJECT).await else {
        return Ok(FakeReply::text(413, "the object is too large".to_owned()));
    };
    let uploads = parts.method == Method::PUT;
    let id = |writes| match parts.uri.query() {
        Some(SIGNATURE) if core.dialect == Dialect::GitHub => Ok(id_of(core, repo)?),
        _ => admitted(core, &parts.headers, repo, writes).map(|(id, _)| id),
    };
    if rest == "objects/batch" {
        let Ok(batch) = serde_json::from_slice::<BatchRequest>(&body) else {
            return Ok(FakeReply::text(422, "no batch request".to_owned()));
        };
        let id = id(batch.operation == "upload")?;
        let objects: Vec<Value> =
            batch.objects.iter().map(|one| answer(core, id, repo, &batch, one, &parts.headers)).collect();
        let reply = FakeReply::json(200, &json!({ "transfer": "basic", "objects": objects }));
        return Ok(reply.with("content-type", "application/vnd.git-lfs+json"));
    }
    if rest == "verify" {
        let Ok(object) = serde_json::from_slice::<LfsObject>(&body) else { return Ok(FakeReply::empty(422)) };
        let found = path(core, id(true)?, &object.oid).and_then(|path| path.metadata().ok());
        return Ok(FakeReply::empty(if found.is_some_and(|found| found.len() == object.size) { 200 } else { 404 }));
    }
    let oid = rest.strip_prefix("objects/").unwrap_or_default();
    let Some(path) = path(core, id(uploads)?, oid) else { return Ok(FakeReply::empty(404)) };
    let failed = |error: std::io::Error| FakeRefusal::Git(format!("{}: {error}", path.display()));
    if !uploads {
        return Ok(std::fs::read(&path).map_or_else(|_| FakeReply::empty(404), |content| FakeReply::file(&content)));
    }
    if data_encoding::HEXLOWER.encode(&<sha2::Sha256 as sha2::Digest>::digest(&body)) != oid {
        return Ok(FakeReply::text(422, "the content has another digest".to_owned()));
    }
    std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(failed)?;
    std::fs::write(&path, &body).map_err(failed)?;
    Ok(FakeReply::empty(200))
}

fn id_of(core: &Core, repo: &str) -> Result<RepoId, FakeRefusal> {
    let (owner, name) = repo.split_once('/').ok_or_else(|| FakeRefusal::NotFound(repo.to_owned()))?;
    core.act(|state| state.find_repo(owner, name).map(|repo| repo.id))
}

/// Returns the answer about one object of a batch.
fn answer(core: &Core, id: RepoId, repo: &str, batch: &BatchRequest, one: &LfsObject, headers: &HeaderMap) -> Value {
    let LfsObject { oid, size } = one;
    let exists = path(core, id, oid).is_some_and(|path| path.is_file());
    let address = |rest: &str| core.at(&format!("{repo}.git/info/lfs/{rest}"));
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let action = |rest: &str| match core.dialect {
        Dialect::GitHub => json!({ "href": format!("{}?{SIGNATURE}", address(rest)) }),
        Dialect::Gitea => json!({ "href": address(rest), "header": { "Authorization": authorization } }),
    };
    let object = format!("objects/{oid}");
    match (batch.operation.as_str(), exists) {
        ("download", true) => json!({ "oid": oid, "size": size, "actions": { "download": action(&object) } }),
        ("download", false) => {
            json!({ "oid": oid, "size": size, "error": { "code": 404, "message": "Object does not exist" } })
        }
        (_, true) => json!({ "oid": oid, "size": size }),
        (_, false) => {
            json!({ "oid": oid, "size": size, "actions": { "upload": action(&object), "verify": action("verify") } })
        }
    }
}

/// Returns the path of an object; `None` if its id is invalid.
fn path(core: &Core, repo: RepoId, oid: &str) -> Option<PathBuf> {
    let valid = oid.len() == 64 && oid.bytes().all(|byte| byte.is_ascii_hexdigit());
    valid.then(|| core.git.path(repo).join("lfs/objects").join(&oid[..2]).join(&oid[2..4]).join(oid))
}
