//! Dashboard of a world's service, asked by HTTP.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ralph_bot::web::{self, AccessSettings, LiveFeed, WebAccess, WebState};
use tokio::task::JoinHandle;

use super::world::World;

/// Token of the operator.
const TOKEN: &str = "operator-token-of-the-stories";
/// Maximum wait for an answer.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// The dashboard, on a separate port.
pub struct ServedPages {
    pub url: String,
    client: reqwest::Client,
    server: JoinHandle<()>,
}

/// Answer to a request.
pub struct PageAnswer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl ServedPages {
    /// Serves the dashboard of a world. With `open`, requests need no token, as a browser sends none.
    pub async fn of(world: &World, open: bool) -> Self {
        let settings = AccessSettings {
            token: Some(TOKEN.into()),
            base: "http://127.0.0.1/".parse().expect("an address"),
            operators: Vec::new(),
            logins: HashMap::new(),
        };
        let access = WebAccess::new(settings).expect("created");
        let state = WebState { engine: world.engine().clone(), access, live: LiveFeed::default() };
        let router = web::router(Arc::new(state));
        let router = if open { router.layer(axum::middleware::map_request(with_token)) } else { router };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
        Self { url, client, server }
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).timeout(WAIT_LIMIT)
    }

    async fn sent(request: reqwest::RequestBuilder) -> PageAnswer {
        let response = request.send().await.expect("an answer");
        let text = |value: &reqwest::header::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let headers = response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        PageAnswer { status: response.status().as_u16(), headers, body: response.text().await.expect("a body") }
    }

    /// Reads a page as the operator.
    pub async fn get(&self, path: &str) -> PageAnswer {
        Self::sent(self.request(reqwest::Method::GET, path).bearer_auth(TOKEN)).await
    }

    /// Sends a request without any token, or with a wrong one.
    pub async fn without_token(&self, method: &str, path: &str, token: Option<&str>) -> PageAnswer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let request = self.request(method, path).header("content-type", "application/x-www-form-urlencoded");
        Self::sent(match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
        .await
    }

    /// Sends a form as the operator.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> PageAnswer {
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self.request(reqwest::Method::POST, path).bearer_auth(TOKEN);
        Self::sent(request.header("content-type", "application/x-www-form-urlencoded").body(form)).await
    }

    /// Sends a form while the service is stepped, as a live service would step itself.
    pub async fn press(&self, world: &World, path: &str, fields: &[(&str, &str)]) -> PageAnswer {
        let answer = self.post(path, fields);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                () = tokio::time::sleep(Duration::from_millis(20)) => world.settle().await,
            }
        }
    }

    /// Listens to a stream of events until there are `count`; returns their ids.
    pub async fn events(&self, path: &str, last: Option<&str>, count: usize) -> Vec<String> {
        self.listen(path, last, count, || ()).await
    }

    /// Listens as `events` does, and calls a function at the first event.
    pub async fn listen(&self, path: &str, last: Option<&str>, count: usize, begun: impl Fn()) -> Vec<String> {
        let mut request = self.client.get(format!("{}{path}", self.url)).bearer_auth(TOKEN);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let mut response = request.send().await.expect("a stream");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut text = String::new();
        let listening = async {
            while text.matches("id:").count() < count || !text.ends_with("\n\n") {
                let Some(chunk) = response.chunk().await.expect("a chunk") else { break };
                text.push_str(&String::from_utf8_lossy(&chunk));
                if text.contains("id:") {
                    begun();
                }
            }
        };
        let heard = tokio::time::timeout(WAIT_LIMIT, listening).await;
        assert!(heard.is_ok(), "only these events came: {text}");
        text.lines().filter_map(|line| line.strip_prefix("id:")).map(|id| id.trim().to_owned()).collect()
    }
}

impl Drop for ServedPages {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn with_token(mut request: axum::extract::Request) -> axum::extract::Request {
    let value = format!("Bearer {TOKEN}").parse().expect("a header");
    request.headers_mut().entry("authorization").or_insert(value);
    request
}
