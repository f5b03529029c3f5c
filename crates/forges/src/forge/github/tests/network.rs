//! Tests of the HTTP transport over sockets: Enterprise Server, redirects to other hosts, unreachable servers.

use axum::Router;
use axum::extract::Request as Incoming;
use axum::response::{IntoResponse, Response as Outgoing};
use bytes::Bytes;
use http::{Request, Response};
use serde_json::json;

use super::*;
use crate::domain::trust::outbound::Outbound;
use crate::forge::http::TransportError;

/// Transport of an unreachable server.
pub(super) struct Unreachable;

#[async_trait]
impl Transport for Unreachable {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        Err(TransportError { ambiguous: false, detail: "unreachable".into() })
    }
}

/// Starts a server until the test ends; returns its address.
async fn served(router: Router) -> (String, impl Future<Output = ()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    (address, async move { axum::serve(listener, router).await.unwrap() })
}

fn at(address: &str) -> GitHub {
    let settings = GitHubSettings { api_url: format!("{address}/api/v3/").parse().unwrap(), ..settings(token_auth()) };
    GitHub::new(settings, Clock::System).unwrap()
}

/// Runs a test with a server.
async fn while_serving<T>(server: impl Future<Output = ()>, test: impl Future<Output = T>) -> T {
    tokio::select! {
        () = server => panic!("the server ended"),
        outcome = test => outcome,
    }
}

async fn enterprise(request: Incoming) -> Outgoing {
    let path = request.uri().path().to_owned();
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if header("authorization") != "Bearer ghp_secret" || header("accept") != "application/vnd.github+json" {
        return (http::StatusCode::UNAUTHORIZED, "{}").into_response();
    }
    match path.as_str() {
        "/api/v3/user" => (
            [("x-github-enterprise-version", "3.19.1")],
            json!({ "id": 5, "login": "bot", "type": "User" }).to_string(),
        )
            .into_response(),
        "/api/v3/repos/acme/app/issues/comments/3" => json!({ "node_id": "N" }).to_string().into_response(),
        "/api/graphql" => json!({ "data": { "minimizeComment": {} } }).to_string().into_response(),
        _ => (http::StatusCode::IM_A_TEAPOT, path).into_response(),
    }
}

#[tokio::test]
async fn enterprise_server_is_called_at_its_addresses() {
    let (address, server) = served(Router::new().fallback(enterprise)).await;
    let github = at(&address);
    while_serving(server, async {
        assert_eq!(github.own_account().await.unwrap(), user(5, "bot"));
        assert_eq!(github.server_info().await.unwrap().product, "GitHub Enterprise Server 3.19.1");
        github.minimize_comment(&repo(), CommentId(3)).await.unwrap();
    })
    .await;
}

/// See docs/research/faults.md#f2.
#[tokio::test]
async fn unreachable_server_is_not_ambiguous() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let failure = at(&address).create_comment(&repo(), Number(1), &Outbound::of_test("x")).await.unwrap_err();
    assert_eq!(failure.kind, ForgeErrorKind::Transient { after_ms: None, ambiguous: false }, "{failure}");
    assert!(!failure.to_string().contains("ghp_secret"));
}

/// See docs/research/faults.md#f2.
#[tokio::test]
async fn closed_connection_is_ambiguous() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let hangs_up = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut some = [0; 64];
            tokio::io::AsyncReadExt::read(&mut stream, &mut some).await.unwrap();
        }
    };
    let github = at(&address);
    let failure =
        while_serving(hangs_up, github.create_comment(&repo(), Number(1), &Outbound::of_test("x"))).await.unwrap_err();
    assert_eq!(failure.kind, ForgeErrorKind::Transient { after_ms: None, ambiguous: true }, "{failure}");
}

#[tokio::test]
async fn logs_on_another_host_are_fetched_without_credential() {
    let storage = |request: Incoming| async move {
        let plain = !request.headers().contains_key("authorization");
        if plain {
            "##[group]Run x\n##[error]no".into_response()
        } else {
            http::StatusCode::BAD_REQUEST.into_response()
        }
    };
    let (foreign_server, storage) = served(Router::new().fallback(storage)).await;
    let api = move |request: Incoming| async move {
        let path = request.uri().path().to_owned();
        if path.ends_with("/logs") {
            return (http::StatusCode::FOUND, [("location", format!("{foreign_server}/log?sig=1"))]).into_response();
        }
        let run = json!({
            "id": 4, "name": "test", "status": "completed", "conclusion": "failure", "app": { "slug": "github-actions" },
        });
        let runs = if path.ends_with("/check-runs") { json!([run]) } else { json!([]) };
        json!({ "check_runs": runs, "statuses": [] }).to_string().into_response()
    };
    let (address, server) = served(Router::new().fallback(api)).await;
    let github = at(&address);
    let both = async { tokio::join!(server, storage) };
    let sha = Sha::parse(&"a".repeat(40)).unwrap();
    let state = while_serving(
        async {
            both.await;
        },
        github.ci_results(&repo(), &sha),
    )
    .await
    .unwrap();
    assert_eq!(state.failed[0].log, "##[group]Run x\n##[error]no");
}
