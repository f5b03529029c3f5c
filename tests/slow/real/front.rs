//! Address of a GitHub server in front of `emulate`, which has the API but no git: requests of git go to
//! `git http-backend`, deliveries go to the service, everything else goes to `emulate`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, OnceLock};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use data_encoding::BASE64;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::mirror::CommitMirror;
use crate::harness::parts::command;

/// Maximum size of a request or response, in bytes.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Front server with its state.
pub struct Front {
    /// Base URL for people, git and API clients.
    pub url: String,
    state: Arc<FrontState>,
    listener: Option<TcpListener>,
    _tasks: JoinSet<()>,
}

struct FrontState {
    /// Folder of the bare repositories, `owner/name.git`.
    repositories: PathBuf,
    /// Address of `emulate`.
    api: OnceLock<String>,
    service: OnceLock<SocketAddr>,
    client: reqwest::Client,
    mirror: tokio::sync::Mutex<Option<CommitMirror>>,
    refused: Mutex<Vec<String>>,
}

impl Front {
    /// Binds a port; requests wait until `serve`.
    pub async fn bind(repositories: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        // Another test may have chosen the same provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let state = Arc::new(FrontState {
            repositories,
            api: OnceLock::new(),
            service: OnceLock::new(),
            client: reqwest::Client::builder().no_proxy().build().expect("a client"),
            mirror: tokio::sync::Mutex::default(),
            refused: Mutex::default(),
        });
        Self { url, state, listener: Some(listener), _tasks: JoinSet::new() }
    }

    /// Starts to serve, with `emulate` at `api`; commits are copied to it with `token`.
    pub async fn serve(&mut self, api: String, repository: &str, token: &str) {
        let folder = self.state.repositories.join(format!("{repository}.git"));
        let mut mirror = CommitMirror::new(self.state.client.clone(), format!("{api}/repos/{repository}"), folder);
        mirror.follow(token).await.expect("the first commit is told");
        *self.state.mirror.lock().await = Some(mirror);
        self.state.api.set(api).expect("served once");
        let listener = self.listener.take().expect("served once");
        let router = axum::Router::new().fallback(answer).with_state(self.state.clone());
        self._tasks.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    }

    /// Address that forwards deliveries to the service, which may be started later.
    pub fn relay(&self) -> String {
        format!("{}/deliveries", self.url)
    }

    /// Sets the address of the service.
    pub fn hand_on_to(&self, service: SocketAddr) {
        self.state.service.set(service).expect("one service");
    }

    /// API calls that failed: method, path, status.
    pub fn refused(&self) -> Vec<String> {
        self.state.refused.lock().expect("no panic").clone()
    }

    /// Calls the API with a token.
    pub async fn call(&self, token: &str, method: Method, path: &str, body: serde_json::Value) -> serde_json::Value {
        let url = format!("{}/api/v3{path}", self.url);
        let mut request = self.state.client.request(method.clone(), url).bearer_auth(token);
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("its text");
        assert!(status.is_success(), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }
}

async fn answer(State(front): State<Arc<FrontState>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_BYTES).await.expect("a request");
    let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let git = parts.uri.path().split_once(".git/").map(|(repo, rest)| (repo.to_owned(), rest.to_owned()));
    if let Some((repo, rest)) = git {
        return front.git(&parts.method, &parts.headers, &repo, &rest, parts.uri.query(), body).await;
    }
    if path == "/deliveries" {
        let Some(service) = front.service.get() else { return status(StatusCode::BAD_GATEWAY, "nobody is there yet") };
        let mut headers = parts.headers;
        // `emulate` takes the time in milliseconds, which two deliveries can share; GitHub's ids are unique.
        let id = uuid::Uuid::now_v7().to_string();
        headers.insert("x-github-delivery", HeaderValue::try_from(id).expect("plain"));
        return front.pass_on(parts.method, &format!("http://{service}/webhooks/forge"), headers, body).await;
    }
    let api = front.api.get().expect("served with it");
    let inner = path.strip_prefix("/api/v3").or(path.strip_prefix("/api")).unwrap_or(&path);
    let method = parts.method.clone();
    let answer = front.pass_on(parts.method, &format!("{api}{inner}"), parts.headers, body).await;
    if !answer.status().is_success() {
        let line = format!("{method} {inner} {}", answer.status().as_u16());
        front.refused.lock().expect("no panic").push(line);
    }
    answer
}

impl FrontState {
    async fn pass_on(&self, method: Method, url: &str, mut headers: HeaderMap, body: Bytes) -> Response<Body> {
        headers.remove(header::HOST);
        let answer = self.client.request(method, url).headers(headers).body(body).send().await;
        let answer = answer.unwrap_or_else(|error| panic!("{url}: {error}"));
        let mut response = Response::new(Body::empty());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        response.headers_mut().remove(header::TRANSFER_ENCODING);
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(answer.bytes().await.expect("its body"));
        response
    }

    /// Serves git over HTTP for tokens that `emulate` knows. A push is answered once it has been copied to `emulate` with the
    /// same token, which must have write access.
    async fn git(
        &self,
        method: &Method,
        headers: &HeaderMap,
        repo: &str,
        rest: &str,
        query: Option<&str>,
        body: Bytes,
    ) -> Response<Body> {
        let Some(token) = self.signed_in(headers, repo).await else {
            let mut refusal = status(StatusCode::UNAUTHORIZED, "sign in\n");
            refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"git\""));
            return refusal;
        };
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut backend = command("git");
        backend
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.repositories)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("PATH_INFO", format!("{repo}.git/{rest}"))
            .env("QUERY_STRING", query.unwrap_or_default())
            .env("REQUEST_METHOD", method.as_str())
            .env("CONTENT_TYPE", text("content-type"))
            .env("HTTP_CONTENT_ENCODING", text("content-encoding"))
            .env("CONTENT_LENGTH", body.len().to_string())
            .env("GIT_PROTOCOL", text("git-protocol"))
            .env("REMOTE_USER", "somebody")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut backend = backend.spawn().expect("git starts");
        let mut stdin = backend.stdin.take().expect("piped");
        // It may answer before it has read everything.
        let _ = stdin.write_all(&body).await;
        drop(stdin);
        let output = backend.wait_with_output().await.expect("git ends").stdout;
        if rest == "git-receive-pack" {
            let mut mirror = self.mirror.lock().await;
            if let Err(why) = mirror.as_mut().expect("served with it").follow(&token).await {
                return status(StatusCode::FORBIDDEN, &why);
            }
        }
        from_cgi(&output)
    }

    /// Token of a git request, if the repository exists for it.
    async fn signed_in(&self, headers: &HeaderMap, repo: &str) -> Option<String> {
        let basic = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
        let pair = String::from_utf8(BASE64.decode(basic.as_bytes()).ok()?).ok()?;
        let token = pair.split_once(':')?.1.to_owned();
        let url = format!("{}/repos{repo}", self.api.get()?);
        let answer = self.client.get(url).bearer_auth(&token).send().await.ok()?;
        answer.status().is_success().then_some(token)
    }
}

fn status(code: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = code;
    response
}

fn from_cgi(output: &[u8]) -> Response<Body> {
    let end = output.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let mut response = Response::new(Body::from(output[end + 4..].to_vec()));
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let (name, value) = line.split_once(": ").expect("a header");
        if name.eq_ignore_ascii_case("status") {
            *response.status_mut() = value[..3].parse().expect("a status");
        } else {
            let value = HeaderValue::try_from(value).expect("a value");
            response.headers_mut().append(HeaderName::try_from(name).expect("a name"), value);
        }
    }
    response
}
