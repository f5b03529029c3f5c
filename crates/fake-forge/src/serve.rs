//! HTTP server of the fake forge on loopback: injected faults, API, git and pages.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State as Extracted};
use axum::serve::{IncomingStream, Listener};
use http::{HeaderMap, Response, StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use super::call::{FakeCall, FakeReply, SignedIn};
use super::core::Core;
use super::faults::{CutSwitch, FakeFault, RequestRecord};
use super::{Dialect, gitea, github, http_git, lfs, logins, pages};
use ralph_types::ids::UserId;

/// Maximum body size of an API request, in bytes; pushes are unlimited.
const MAX_API_BODY: usize = 4 << 20;

/// Serves requests until dropped.
pub(super) async fn run(core: Arc<Core>, listener: TcpListener) {
    let router = Router::new().fallback(handle).with_state(core);
    let service = router.into_make_service_with_connect_info::<CutSwitch>();
    // Serving only ends with a listener error, and this listener never returns one.
    let _ = axum::serve(Connections(listener), service).await;
}

async fn handle(
    Extracted(core): Extracted<Arc<Core>>,
    ConnectInfo(cut): ConnectInfo<CutSwitch>,
    request: Request,
) -> Response<Body> {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let position = core.faults.note(RequestRecord {
        at: core.clock.now(),
        method: method.clone(),
        path: path.clone(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        authenticated: request.headers().contains_key(header::AUTHORIZATION),
        status: None,
    });
    let answer = match core.faults.take(&method, &path) {
        None => route(&core, request).await,
        Some(FakeFault::Delay(time)) => {
            tokio::time::sleep(time).await;
            route(&core, request).await
        }
        Some(FakeFault::Hang) => std::future::pending().await,
        Some(FakeFault::Reset { apply }) => {
            if apply {
                route(&core, request).await;
            }
            cut.now();
            return Response::default();
        }
        Some(FakeFault::Respond { status, headers, body, apply }) => {
            if apply {
                route(&core, request).await;
            }
            scripted(status, &headers, body)
        }
    };
    if method != "GET" {
        core.settle_auto_merges().await;
    }
    core.faults.answered(position, answer.status().as_u16());
    answer
}

fn scripted(status: u16, headers: &[(String, String)], body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (name.parse::<header::HeaderName>(), value.parse()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

async fn route(core: &Arc<Core>, request: Request) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if path.starts_with("/login/oauth/") {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, MAX_API_BODY).await.unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default();
        let answer = logins::serve(core, &parts.method, &path, query, &parts.headers, &body);
        return answer.unwrap_or_else(|| FakeReply::text(404, "no such page".to_owned())).into_response();
    }
    if core.dialect == Dialect::GitHub && github::manifests::is_page(&path) {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, MAX_API_BODY).await.unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default();
        return github::manifests::page(core, &parts.method, &path, query, &body).into_response();
    }
    if let Some((repo, rest)) = path.trim_start_matches('/').split_once(".git/") {
        return match rest.strip_prefix("info/lfs/") {
            Some(rest) => lfs::serve(core, request, repo, rest).await,
            None => http_git::serve(core, request, repo, rest).await,
        };
    }
    let root = match core.dialect {
        Dialect::Gitea => "/api/v1/",
        Dialect::GitHub => "/api/v3/",
    };
    if core.dialect == Dialect::GitHub {
        if path == "/api/graphql" {
            return api(core, request, "graphql").await;
        }
        if let Some(log) = github::job_log(core, &path) {
            return log.into_response();
        }
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let file = match core.dialect {
        Dialect::GitHub => github::attachments::serve(core, &path, &query),
        Dialect::Gitea => gitea::attachments::serve(core, &path, request.headers()),
    };
    if let Some(file) = file {
        return file.into_response();
    }
    match path.strip_prefix(root) {
        Some(rest) => {
            let rest = rest.to_owned();
            api(core, request, &rest).await
        }
        None => pages::serve(core, &path).await.into_response(),
    }
}

async fn api(core: &Arc<Core>, request: Request, rest: &str) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, MAX_API_BODY).await else {
        return FakeReply::text(413, "the body is too large".to_owned()).into_response();
    };
    let body = if bytes.is_empty() { Ok(serde_json::Value::Null) } else { serde_json::from_slice(&bytes) };
    let Ok(body) = body else { return FakeReply::text(400, "the body is not JSON".to_owned()).into_response() };
    let decode = |part: &str| {
        let spaced = part.replace('+', "%2B");
        let pair = url::form_urlencoded::parse(spaced.as_bytes()).next();
        pair.map(|(key, _)| key.into_owned()).unwrap_or_default()
    };
    let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let call = FakeCall {
        method: parts.method,
        path: rest.trim_end_matches('/').split('/').map(decode).collect(),
        query,
        headers: parts.headers,
        body,
        caller: None,
        signed_in: SignedIn::Nobody,
    };
    let reply = match core.dialect {
        Dialect::Gitea => gitea::answer(core, call).await,
        Dialect::GitHub => github::answer(core, call).await,
    };
    reply.into_response()
}

/// Returns the account of a request's credential; `None` without a credential.
pub(super) fn caller(core: &Core, headers: &HeaderMap) -> Result<Option<UserId>, super::state::FakeRefusal> {
    use super::state::FakeRefusal::Unauthorized;
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let (scheme, credential) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(Unauthorized)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return core.act(|state| state.authenticate(credential.trim())).map(Some);
    }
    let decoded = data_encoding::BASE64.decode(credential.trim().as_bytes()).map_err(|_| Unauthorized)?;
    let decoded = String::from_utf8(decoded).map_err(|_| Unauthorized)?;
    let (name, password) = decoded.split_once(':').ok_or(Unauthorized)?;
    core.act(|state| {
        let by_token = state.authenticate(password).or_else(|_| state.authenticate(name));
        by_token.or_else(|_| state.log_in(name, password))
    })
    .map(Some)
}

/// Listener whose connections a fault can reset.
struct Connections(TcpListener);

struct OpenConnection {
    stream: TcpStream,
    cut: CutSwitch,
}

impl Listener for Connections {
    type Io = OpenConnection;
    type Addr = CutSwitch;

    async fn accept(&mut self) -> (OpenConnection, CutSwitch) {
        let (stream, _) = Listener::accept(&mut self.0).await;
        let cut = CutSwitch::default();
        (OpenConnection { stream, cut: cut.clone() }, cut)
    }

    fn local_addr(&self) -> io::Result<CutSwitch> {
        Ok(CutSwitch::default())
    }
}

impl Connected<IncomingStream<'_, Connections>> for CutSwitch {
    fn connect_info(stream: IncomingStream<'_, Connections>) -> Self {
        stream.remote_addr().clone()
    }
}

impl OpenConnection {
    fn refuse(&self) -> io::Result<()> {
        if !self.cut.is_cut() {
            return Ok(());
        }
        // Without lingering, closing the socket sends a reset.
        self.stream.set_zero_linger()?;
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

impl AsyncRead for OpenConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for OpenConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.refuse()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.refuse()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
