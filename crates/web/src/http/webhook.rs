//! `POST /webhooks/{forge}`: limits the size, verifies the signature, stores the delivery and responds with 202. The path
//! and not a header selects the forge, because Gitea also sends GitHub's headers.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use failpoint::kill_point;
use futures::StreamExt;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::room::BodyPlace;
use super::{Hook, HttpState};
use crate::clock::Stopwatch;
use crate::domain::model::ids::RepoId;
use crate::domain::trust::bounds::DELIVERY_BYTES;
use crate::forge::signature::{SignatureStyle, verify_headers};
use crate::store::StoreError;
use crate::store::inbox::{self, Body as Packed, StoredDelivery};

/// Maximum length of a delivery id and event name, in bytes.
const HEADER_MAX: usize = 200;

/// Handles a delivery.
pub(super) async fn take(
    State(edge): State<Arc<HttpState>>,
    Path(forge): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    kill_point("K01");
    let Some(hook) = edge.hooks.get(&forge) else {
        return refuse(&edge, "unknown", StatusCode::NOT_FOUND, "no such forge is configured");
    };
    let name = hook.name.as_str();
    let watch = Stopwatch::start();
    match receive(&edge, hook, &headers, body).await {
        Ok(true) => {
            edge.metrics.delivery(name, "accepted");
            edge.metrics.delivery_stored(watch.elapsed().as_secs_f64());
            (edge.wake)();
            (StatusCode::ACCEPTED, "stored\n").into_response()
        }
        Ok(false) => {
            edge.metrics.delivery(name, "repeated");
            (StatusCode::ACCEPTED, "known already\n").into_response()
        }
        Err((status, why)) => refuse(&edge, name, status, why),
    }
}

fn refuse(edge: &HttpState, name: &str, status: StatusCode, why: &str) -> Response {
    tracing::warn!(forge = name, status = status.as_u16(), why, "delivery refused");
    edge.metrics.delivery(name, "refused");
    (status, format!("{why}\n")).into_response()
}

type Refusal = (StatusCode, &'static str);

/// Verifies and stores a delivery; returns `true` if it is new.
async fn receive(edge: &HttpState, hook: &Hook, headers: &HeaderMap, body: Body) -> Result<bool, Refusal> {
    check_form(headers)?;
    let (delivery_header, event_header) = match hook.style {
        SignatureStyle::GitHub => (["x-github-delivery", "x-github-delivery"], ["x-github-event", "x-github-event"]),
        SignatureStyle::Gitea => (["x-gitea-delivery", "x-forgejo-delivery"], ["x-gitea-event", "x-forgejo-event"]),
    };
    let delivery = one_of(headers, &delivery_header).ok_or((StatusCode::BAD_REQUEST, "the delivery has no id"))?;
    let event = one_of(headers, &event_header).ok_or((StatusCode::BAD_REQUEST, "the delivery names no event"))?;
    if delivery.starts_with(inbox::POLLED) {
        return Err((StatusCode::BAD_REQUEST, "the delivery id does not have the format of a forge"));
    }
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    if announced.is_some_and(|length: usize| length > DELIVERY_BYTES) {
        return Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 26 MiB"));
    }
    // The budget counts the memory until the body is stored.
    let (body, _place) = read(edge, body).await?;
    let values = |name: &str| headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect::<Vec<_>>();
    let secrets = secrets_for(hook, &body)?;
    if !verify_headers(hook.style, secrets, values, &body) {
        let why = match std::ptr::eq(secrets, hook.secrets.as_slice()) {
            true => "the signature is invalid",
            false => "the signature does not match the repository's own secret",
        };
        return Err((StatusCode::UNAUTHORIZED, why));
    }
    let row = StoredDelivery { forge: hook.name.clone(), delivery, event, body: Packed::pack(&body) };
    drop(body);
    let now = edge.clock.now();
    kill_point("K03");
    let inserted = edge.store.write(move |c| {
        let new = inbox::insert(c, &row, now)?;
        kill_point("K04");
        Ok(new)
    });
    let new = inserted.await.map_err(|error| {
        tracing::warn!(%error, "could not store a delivery");
        match error {
            StoreError::Full { .. } => (StatusCode::SERVICE_UNAVAILABLE, "the disk is full"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "could not store the delivery"),
        }
    })?;
    kill_point("K05");
    Ok(new)
}

/// Returns the secrets that may sign a body: the secrets of its repository, if any, otherwise the forge's.
fn secrets_for<'a>(hook: &'a Hook, body: &[u8]) -> Result<&'a [SecretString], Refusal> {
    #[derive(Deserialize)]
    struct RepositoryOf<'a> {
        #[serde(borrow, default)]
        repository: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct NumberOf {
        id: i64,
    }
    if hook.of_repositories.is_empty() {
        return Ok(&hook.secrets);
    }
    // The processing rejects invalid JSON and duplicate keys. The body is not verified yet, so do not build a tree of values
    // from it.
    let Some(repository) = serde_json::from_slice::<RepositoryOf<'_>>(body).ok().and_then(|named| named.repository)
    else {
        return Ok(&hook.secrets);
    };
    let number = Some(repository.get()).filter(|text| text.starts_with('{')).map(serde_json::from_str::<NumberOf>);
    let Some(Ok(NumberOf { id })) = number else {
        return Err((StatusCode::UNAUTHORIZED, "the repository of the delivery has no number"));
    };
    Ok(hook.of_repositories.get(&RepoId(id)).unwrap_or(&hook.secrets))
}

/// Accepts only uncompressed JSON. The signature of a form does not cover its decoded content, and a compressed body
/// may be a decompression bomb.
fn check_form(headers: &HeaderMap) -> Result<(), Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "set the webhook's content type to application/json"));
    }
    let packed = headers.get(header::CONTENT_ENCODING).is_some_and(|v| v.as_bytes() != b"identity");
    if packed {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "compressed bodies are not accepted"));
    }
    Ok(())
}

/// Returns the value of the first present header; `None` if no header is present or its value is invalid.
fn one_of(headers: &HeaderMap, names: &[&str]) -> Option<String> {
    let value = names.iter().find_map(|name| headers.get(*name))?.to_str().ok()?;
    let sensible = !value.is_empty() && value.len() <= HEADER_MAX && !value.contains(char::is_control);
    sensible.then(|| value.to_owned())
}

/// Reads a body within the memory budget; see [`BodyRoom`](super::room::BodyRoom).
async fn read(edge: &HttpState, body: Body) -> Result<(Vec<u8>, BodyPlace<'_>), Refusal> {
    let place = edge.room.enter();
    let full =
        (StatusCode::SERVICE_UNAVAILABLE, "too many bodies arrive at a time, and this one is too large or too slow");
    let mut bytes = Vec::new();
    let mut stream = body.into_data_stream();
    loop {
        let next = tokio::select! {
            () = place.until_dropped() => return Err(full),
            next = stream.next() => next,
        };
        let Some(chunk) = next else { break };
        let chunk = chunk.map_err(|_| (StatusCode::BAD_REQUEST, "the body broke off"))?;
        if bytes.len() + chunk.len() > DELIVERY_BYTES {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 26 MiB"));
        }
        place.add(chunk.len()).await;
        bytes.extend_from_slice(&chunk);
        kill_point("K02");
    }
    if place.complete() { Ok((bytes, place)) } else { Err(full) }
}
