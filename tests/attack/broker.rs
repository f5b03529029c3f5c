//! Requests to the broker of model keys and answers of a model that repeats everything.
//!
//! A program that obeys the attacker has the run's token; the tests send its requests as bytes. The canaries are the key (never in
//! the answers, in any form that the tests know), the model's list of requests (a forbidden one is never on it), and the
//! cents of each answer.
//!
//! Classes were seen to fail without their defence, by hand:
//! - heads: `request::check_head` without `check_form`, `check_query` or `check_content`, `request::token` with `contains`,
//!   `is_plain` that is always true;
//! - bodies: `Found::add` that does nothing, `unknown_fields` that returns none, `FieldNames::add` that accepts all;
//! - answers: `EventRedactor::push` and `whole` that return their input, `clean_headers` that returns what passed, `is_passed`
//!   that is always true, compressed answers and redirections that pass;
//! - memory: `RunMeter` with room for 200 requests of the maximum size;
//! - money: `RunMeter` without its budget, without the reserved amounts, without the excess of earlier requests, without
//!   `MOST_OPEN`, without its guard, that never ends the run (the stories do not end then); a dropped `OpenCall` that books nothing;
//!   `OpenRequest::cut` that takes an unknown answer for an empty one; `limit_output` that is not called.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fake_forge::Dialect;
use ralph_bot::agent::{AgentOutcome, AgentRun, AgentStatus, BackendKind, BackendSetup, RunPurpose, build};
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::ids::Money;
use ralph_bot::domain::providers::prices::PriceEntry;
use ralph_bot::process::Cookie;
use ralph_bot::process::sandbox::{Network, SandboxSettings};
use ralph_bot::store::calls;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::{Setup, live_story, story};

const KEY: &str = "sk-ant-api03-CANARYq8vT1xY73hGmpLw0RkEzzZW9";

/// Answer of the model: the bytes of each write, for the request that it received. The connection stays open after an empty write.
type BrokerScript = Arc<dyn Fn(&str) -> Vec<Vec<u8>> + Send + Sync>;

/// A model that answers by script and records its requests.
struct Model {
    url: String,
    seen: Arc<Mutex<Vec<String>>>,
    script: Arc<Mutex<BrokerScript>>,
    _task: JoinSet<()>,
}

impl Model {
    async fn start(script: BrokerScript) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (seen, script) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(script)));
        let mut task = JoinSet::new();
        let (known, answers) = (seen.clone(), script.clone());
        task.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (known, answers) = (known.clone(), answers.clone());
                open.spawn(async move {
                    let request = received(&mut stream).await;
                    known.lock().expect("no panic").push(request.clone());
                    let script = answers.lock().expect("no panic").clone();
                    for part in script(&request) {
                        if part.is_empty() {
                            std::future::pending::<()>().await;
                        }
                        if stream.write_all(&part).await.is_err() || stream.flush().await.is_err() {
                            return;
                        }
                        tokio::task::yield_now().await;
                    }
                });
            }
        });
        Self { url, seen, script, _task: task }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no panic").clone()
    }

    fn answers(&self, script: impl Fn(&str) -> Vec<Vec<u8>> + Send + Sync + 'static) {
        *self.script.lock().expect("no panic") = Arc::new(script);
    }
}

/// Reads one request.
async fn received(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
            return text;
        }
    }
}

/// Returns an answer with a body, in one write.
fn whole(status: &str, headers: &str, body: &[u8]) -> Vec<Vec<u8>> {
    let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    vec![[head.as_bytes(), body].concat()]
}

/// Returns a stream of events in chunks of this size, with a trailer.
fn streamed(body: &[u8], size: usize, trailer: &str) -> Vec<Vec<u8>> {
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\ntrailer: x-end\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut parts = vec![head.as_bytes().to_vec()];
    parts.extend(body.chunks(size).map(|part| [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat()));
    parts.push(format!("0\r\n{trailer}\r\n").into_bytes());
    parts
}

fn told() -> Vec<Vec<u8>> {
    let body = json!({ "model": "priced", "content": [], "usage": { "input_tokens": 100, "output_tokens": 10 } });
    whole("200 OK", "content-type: application/json\r\n", body.to_string().as_bytes())
}

/// The broker of a run that lasts as long as the attack.
struct AttackedRun {
    host: String,
    token: String,
    model: Model,
}

impl AttackedRun {
    /// Sends bytes to the broker; `HOST` and `TOKEN` stand for its address and the token.
    async fn send(&self, request: &str) -> Vec<u8> {
        let request = request.replace("TOKEN", &self.token).replace("HOST", &self.host);
        let mut stream = TcpStream::connect(&self.host).await.expect("the broker listens");
        let mut answer = Vec::new();
        let exchange = async {
            let _ = stream.write_all(request.as_bytes()).await;
            let _ = stream.read_to_end(&mut answer).await;
        };
        let _ = tokio::time::timeout(Duration::from_secs(10), exchange).await;
        answer
    }

    async fn post(&self, path: &str, auth: &str, body: &str) -> Vec<u8> {
        self.send(&posted(path, &format!("{auth}\r\ncontent-type: application/json"), body)).await
    }

    async fn ask(&self) -> Vec<u8> {
        self.post("/v1/messages", "x-api-key: TOKEN", MESSAGE).await
    }
}

const MESSAGE: &str = r#"{"model":"priced","max_tokens":10,"messages":[{"role":"user","content":"x"}]}"#;

fn posted(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n{headers}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Runs an attack while a program of the attacker runs, with this budget; returns the outcome of the run.
async fn attack(budget: Option<Money>, script: BrokerScript, attack: impl AsyncFnOnce(&AttackedRun)) -> AgentOutcome {
    attack_allowing(&[], budget, script, attack).await
}

/// Runs an attack where the operator allows these requests.
async fn attack_allowing(
    allowed: &[&str],
    budget: Option<Money>,
    script: BrokerScript,
    attack: impl AsyncFnOnce(&AttackedRun),
) -> AgentOutcome {
    let model = Model::start(script).await;
    let folder = tempfile::Builder::new().prefix("ralph-broker-").tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).expect("a tree");
    let agent = "echo \"$MODEL_URL $MODEL_KEY\" >address.new && mv address.new address; while [ ! -e stop ]; do sleep 0.02; done; echo done";
    let mut setup = BackendSetup::new(BackendKind::Script, "/", "/usr/bin:/bin");
    setup.config.command = ["/bin/sh", "-c", agent].map(str::to_owned).into();
    setup.config.keys = [("MODEL_KEY".to_owned(), "MODEL_URL".to_owned())].into();
    // 100 tokens read and 10 written cost 2 cents.
    let price = PriceEntry { input: 100.0, output: 1000.0, cache_read: None, cache_write: None };
    setup.config.prices = [("priced".to_owned(), price)].into();
    setup.config.server_tools = allowed.iter().map(|name| (*name).to_owned()).collect();
    setup.env = vec![("MODEL_KEY".into(), KEY.into()), ("MODEL_URL".into(), model.url.clone().into())];
    let backend = build("mine", setup).expect("a backend");
    let run = AgentRun {
        prompt: "x".into(),
        tree: tree.clone(),
        purpose: RunPurpose::Iteration,
        read_only: Vec::new(),
        scratch: folder.path().join("scratch"),
        loop_id: "L".into(),
        iteration: 1,
        model: None,
        wall: Duration::from_secs(300),
        idle: Duration::from_secs(300),
        max_turns: None,
        max_cost: budget,
        session: None,
        keep: None,
        mcp_config: None,
        tools: None,
        images: Default::default(),
        home_prepared: false,
        cookie: Cookie::new("attack", &uuid::Uuid::now_v7().simple().to_string(), 1),
        sandboxed: false,
        sandbox: SandboxSettings::default(),
        network: Network::Host,
        guard: None,
    };
    let cancel = CancellationToken::new();
    let mut ignore = |_| {};
    let running = backend.run(run, &cancel, &mut ignore);
    let attacking = async {
        let address = address(&tree).await;
        let (url, token) = address.trim().split_once(' ').expect("an address and a token");
        assert!(!address.contains(KEY), "the agent reads the key");
        let host = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let place = AttackedRun { host, token: token.to_owned(), model };
        attack(&place).await;
        std::fs::write(tree.join("stop"), "").expect("a file");
        let keys = place.model.seen().iter().filter(|request| request.matches(KEY).count() != 1).count();
        assert_eq!(keys, 0, "each request has the key once: {:?}", place.model.seen());
        assert!(!place.model.seen().iter().any(|request| request.contains(token)), "the token leaves the machine");
    };
    tokio::join!(running, attacking).0
}

async fn address(tree: &Path) -> String {
    loop {
        if let Ok(text) = std::fs::read_to_string(tree.join("address")) {
            return text;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Asserts that a request is refused with an error that names the broker, and never reaches the model.
async fn refused(place: &AttackedRun, name: &str, request: &str) {
    let before = place.model.seen().len();
    let answer = String::from_utf8_lossy(&place.send(request).await).into_owned();
    assert!(!answer.starts_with("HTTP/1.1 2"), "{name}: {answer}");
    assert!(!answer.contains(KEY), "{name}: {answer}");
    // The server refuses input that is not HTTP, with an empty body.
    assert!(
        answer.contains("ralph-bot: ")
            || ["HTTP/1.1 400", "HTTP/1.1 431"].iter().any(|begin| answer.starts_with(begin))
            || answer.is_empty(),
        "{name}: {answer}"
    );
    assert_eq!(place.model.seen().len(), before, "{name} reached the model: {:?}", place.model.seen().last());
}

/// Heads of requests that are refused: name, request line, headers. The body comes from a usual request.
const HEADS: [(&str, &str, &str); 61] = [
    ("no token", "POST /v1/messages", "content-type: application/json"),
    ("token in another header", "POST /v1/messages", "x-token: TOKEN\r\ncontent-type: application/json"),
    ("token in a cookie", "POST /v1/messages", "cookie: k=TOKEN\r\ncontent-type: application/json"),
    ("token in the query", "POST /v1/messages?key=TOKEN", "content-type: application/json"),
    ("token in two places", "POST /v1/messages?beta=TOKEN", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("token within the header", "POST /v1/messages", "x-api-key: xTOKENx\r\ncontent-type: application/json"),
    ("token with a scheme", "POST /v1/messages", "x-api-key: Bearer TOKEN\r\ncontent-type: application/json"),
    ("token of Google", "POST /v1/messages", "x-goog-api-key: TOKEN\r\ncontent-type: application/json"),
    ("basic authentication", "POST /v1/messages", "authorization: Basic TOKEN\r\ncontent-type: application/json"),
    ("two tokens", "POST /v1/messages", "x-api-key: TOKEN\r\nx-api-key: TOKEN\r\ncontent-type: application/json"),
    ("other method", "PUT /v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("delete", "DELETE /v1/models/m", "x-api-key: TOKEN"),
    ("patch", "PATCH /v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("trace", "TRACE /v1/models", "x-api-key: TOKEN"),
    ("options", "OPTIONS *", "x-api-key: TOKEN"),
    ("connect", "CONNECT evil.example:443", "x-api-key: TOKEN"),
    ("unknown method", "BREW /v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("absolute form", "POST http://evil.example/v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    (
        "absolute form of the broker",
        "POST http://HOST/v1/messages",
        "x-api-key: TOKEN\r\ncontent-type: application/json",
    ),
    ("batches", "POST /v1/messages/batches", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("files", "POST /v1/files", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("files of others", "GET /v1/files", "x-api-key: TOKEN"),
    ("containers", "POST /v1/containers", "authorization: Bearer TOKEN\r\ncontent-type: application/json"),
    ("administration", "GET /v1/organizations/api_keys", "x-api-key: TOKEN"),
    ("assistants", "POST /v1/assistants", "authorization: Bearer TOKEN\r\ncontent-type: application/json"),
    ("images", "POST /v1/images/generations", "authorization: Bearer TOKEN\r\ncontent-type: application/json"),
    ("stored answers", "GET /v1/responses/resp_1", "authorization: Bearer TOKEN"),
    ("uploads of Gemini", "POST /upload/v1beta/files", "x-goog-api-key: TOKEN\r\ncontent-type: application/json"),
    (
        "batches of Gemini",
        "POST /v1beta/models/m:batchGenerateContent",
        "x-goog-api-key: TOKEN\r\ncontent-type: application/json",
    ),
    ("dots", "POST /v1/files/../messages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("escaped dots", "POST /v1/messages/%2e%2e/files", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("escaped slash", "POST /v1%2Fmessages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("escaped letter", "POST /v1/%6dessages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("empty segment", "POST //evil.example/v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("backslash", "POST /v1\\messages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("path parameter", "POST /v1/messages;x=/../files", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    (
        "model with a slash",
        "POST /v1beta/models/a%2F..%2Fb:generateContent",
        "x-goog-api-key: TOKEN\r\ncontent-type: application/json",
    ),
    (
        "method override",
        "POST /v1/messages",
        "x-api-key: TOKEN\r\nx-http-method-override: GET\r\ncontent-type: application/json",
    ),
    (
        "method in the query",
        "POST /v1beta/models/m:generateContent?$httpMethod=DELETE",
        "x-goog-api-key: TOKEN\r\ncontent-type: application/json",
    ),
    (
        "other path in a header",
        "POST /v1/messages",
        "x-api-key: TOKEN\r\nx-original-url: /v1/files\r\ncontent-type: application/json",
    ),
    ("second host", "POST /v1/messages", "x-api-key: TOKEN\r\nhost: evil.example\r\ncontent-type: application/json"),
    (
        "forwarded host",
        "POST /v1/messages",
        "x-api-key: TOKEN\r\nx-forwarded-host: evil.example\r\ncontent-type: application/json",
    ),
    ("upgrade", "GET /v1/responses", "authorization: Bearer TOKEN\r\nupgrade: websocket\r\nconnection: upgrade"),
    (
        "upgrade to HTTP/2",
        "POST /v1/messages",
        "x-api-key: TOKEN\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\ncontent-type: application/json",
    ),
    ("folder above", "POST /v1/messages/../files", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("folder above the top", "POST /../v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("same folder", "POST /v1/./messages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("slash at the end", "POST /v1/messages/", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("capitals", "POST /V1/Messages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("escaped zero byte", "POST /v1/messages%00", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("escaped question mark", "POST /v1/messages%3Fbeta=true", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("escape of an escape", "POST /v1/%252e%252e/messages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("wide characters", "POST /v1/\u{ff4d}essages", "x-api-key: TOKEN\r\ncontent-type: application/json"),
    ("login in the address", "POST http://TOKEN@HOST/v1/messages", "content-type: application/json"),
    (
        "path of another server in a header",
        "POST /v1/messages",
        "x-api-key: TOKEN\r\nx-rewrite-url: /v1/files\r\ncontent-type: application/json",
    ),
    (
        "two kinds of content",
        "POST /v1/messages",
        "x-api-key: TOKEN\r\ncontent-type: text/plain\r\ncontent-type: application/json",
    ),
    ("other characters", "POST /v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json; charset=utf-7"),
    (
        "two encodings of the body",
        "POST /v1/messages",
        "x-api-key: TOKEN\r\ncontent-encoding: identity\r\ncontent-encoding: gzip\r\ncontent-type: application/json",
    ),
    ("token of the run with a comma", "POST /v1/messages", "x-api-key: TOKEN, TOKEN\r\ncontent-type: application/json"),
    ("compressed", "POST /v1/messages", "x-api-key: TOKEN\r\ncontent-encoding: gzip\r\ncontent-type: application/json"),
    ("form", "POST /v1/messages", "x-api-key: TOKEN\r\ncontent-type: multipart/form-data; boundary=x"),
];

/// Returns a usual request with further headers before its usual ones.
fn with_headers(headers: &str) -> String {
    let headers = headers.trim_end();
    posted("/v1/messages", &format!("{headers}\r\nx-api-key: TOKEN\r\ncontent-type: application/json"), MESSAGE)
}

/// See docs/research/threats.md#s4, docs/research/threats.md#s6.
#[tokio::test]
async fn forbidden_heads_never_reach_the_model() {
    let outcome = attack(None, Arc::new(|_| told()), async |place| {
        for (name, line, headers) in HEADS {
            // A usual body of the format, so that the head alone is at fault.
            let body = match line {
                gemini if gemini.contains("/v1beta") => r#"{"contents":[]}"#,
                _ => MESSAGE,
            };
            let length = body.len();
            let head = format!("{line} HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n{headers}\r\ncontent-length: {length}\r\n\r\n{body}");
            refused(place, name, &head).await;
        }
        for (name, request) in [
            ("no host", format!("POST /v1/messages HTTP/1.1\r\nx-api-key: TOKEN\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{MESSAGE}", MESSAGE.len())),
            ("other host", posted("/v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json", MESSAGE).replace("host: HOST", "host: evil.example")),
            ("HTTP/1.0", posted("/v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json", MESSAGE).replace("HTTP/1.1", "HTTP/1.0")),
            ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
            ("two lengths", posted("/v1/messages", "x-api-key: TOKEN\r\ncontent-length: 0\r\ncontent-type: application/json", MESSAGE)),
            ("space before the colon", posted("/v1/messages", "x-api-key : TOKEN\r\ncontent-type: application/json", MESSAGE)),
            ("folded header", posted("/v1/messages", "x-api-key:\r\n TOKEN\r\ncontent-type: application/json", MESSAGE)),
            ("unknown transfer encoding", posted("/v1/messages", "x-api-key: TOKEN\r\ntransfer-encoding: gzip, chunked\r\ncontent-type: application/json", MESSAGE)),
            ("bytes", "\x16\x03\x01\x02\r\n\r\n".to_owned()),
            ("length in a list", with_headers("content-length: 5, 5")),
            ("length with a sign", with_headers("content-length: +5")),
            ("chunked twice", with_headers("transfer-encoding: chunked\r\ntransfer-encoding: chunked")),
            ("transfer encoding of another name", with_headers("transfer-encoding: xchunked")),
            ("tab before the colon", with_headers("transfer-encoding\t: chunked")),
            ("zero byte in a header", with_headers("x-codex-a: a\0b")),
            ("line end within a header", with_headers("x-codex-a: a\rx-forwarded-host: b")),
            ("large header", with_headers(&format!("x-codex-a: {}", "a".repeat(2 << 20)))),
            ("many headers", with_headers(&(0..5_000).map(|n| format!("x-codex-{n}: a\r\n")).collect::<String>())),
            ("body later, for another host", with_headers("expect: 100-continue\r\nhost: evil.example")),
        ] {
            refused(place, name, &request).await;
        }
        assert!(HEADS.len() + bodies().len() >= 120);
        // A usual request passes, so that the others are refused for their own reason.
        assert!(place.ask().await.starts_with(b"HTTP/1.1 200"));
        assert_eq!(place.model.seen().len(), 1);
    })
    .await;
    let brokered = outcome.brokered.expect("it went through the broker");
    assert_eq!(brokered.counted.cost, Money(20_000));
    assert!(brokered.refused_requests.iter().any(|what| what.contains("/v1/messages/batches")), "{brokered:?}");
}

/// A second request after the first one's body is checked as a separate request.
#[tokio::test]
async fn smuggled_request_is_judged_by_itself() {
    attack(None, Arc::new(|_| told()), async |place| {
        let inner = "DELETE /v1/files/f HTTP/1.1\r\nhost: HOST\r\nx-api-key: TOKEN\r\n\r\n";
        let chunked = format!("transfer-encoding: chunked\r\nx-api-key: TOKEN\r\ncontent-type: application/json\r\n\r\n{:x}\r\n{MESSAGE}\r\n0\r\n\r\n{inner}", MESSAGE.len());
        let request = format!("POST /v1/messages HTTP/1.1\r\nhost: HOST\r\ncontent-length: 4\r\n{chunked}");
        place.send(&request).await;
        let seen = place.model.seen();
        assert!(seen.iter().all(|request| request.starts_with("POST /v1/messages ") && !request.contains("DELETE")), "{seen:?}");
        assert!(seen.iter().all(|request| !request.to_lowercase().contains("transfer-encoding")), "{seen:?}");
    })
    .await;
}

/// Bodies that are refused: name, path, header of the token, body.
fn bodies() -> Vec<(&'static str, &'static str, &'static str, String)> {
    let messages = |name, body: Value| (name, "/v1/messages", "x-api-key: TOKEN", with_model(body));
    let chat = |name, body: Value| (name, "/v1/chat/completions", "authorization: Bearer TOKEN", with_model(body));
    let responses = |name, body: Value| (name, "/v1/responses", "authorization: Bearer TOKEN", with_model(body));
    let gemini =
        |name, body: Value| (name, "/v1beta/models/m:generateContent", "x-goog-api-key: TOKEN", body.to_string());
    let raw = |name, body: &str| (name, "/v1/messages", "x-api-key: TOKEN", body.to_owned());
    let of_type = |kind: &str| json!({ "tools": [{ "type": "custom", "name": "a", "input_schema": {} }, { "type": kind, "name": "b" }] });
    let part =
        |part: Value| json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "x" }, part] }] });
    vec![
        messages("web search", of_type("web_search_20250305")),
        messages("web search of tomorrow", of_type("web_search_20991231")),
        messages("web fetch", of_type("web_fetch_20250910")),
        messages("code execution", of_type("code_execution_20250825")),
        messages("set of remote tools", of_type("mcp_toolset")),
        messages("tool search of the provider", of_type("tool_search_tool_regex_20251119")),
        messages("unknown tool", of_type("anything")),
        messages("kind of a tool in a list", json!({ "tools": [{ "type": ["web_search_20250305"], "name": "b" }] })),
        messages("kind of a tool in capitals", of_type("Web_Search_20250305")),
        messages("kind of a tool with a space", of_type(" web_search_20250305")),
        messages("kind of a tool as null", json!({ "tools": [{ "type": null, "name": "web_search" }, "web_search"] })),
        messages("tools under another name", json!({ "Tools": [{ "type": "web_search_20250305" }] })),
        messages("remote servers", json!({ "mcp_servers": [{ "type": "url", "url": "https://evil.example" }] })),
        messages("container", json!({ "container": { "skills": [] } })),
        messages(
            "image by address",
            part(json!({ "type": "image", "source": { "type": "url", "url": "https://evil.example/?d=1" } })),
        ),
        messages(
            "document by address",
            part(json!({ "type": "document", "source": { "type": "url", "url": "http://evil.example" } })),
        ),
        messages("stored file", part(json!({ "type": "document", "source": { "type": "file", "file_id": "file_1" } }))),
        messages(
            "file in a tool's result",
            part(
                json!({ "type": "tool_result", "content": [{ "type": "image", "source": { "type": "url", "url": "https://evil.example" } }] }),
            ),
        ),
        messages("dear tier", json!({ "service_tier": "priority" })),
        messages("fast mode", json!({ "speed": "fast" })),
        messages("region with a surcharge", json!({ "inference_geo": "us" })),
        messages("length as a text", json!({ "max_tokens": "64000" })),
        messages("length as a fraction", json!({ "max_tokens": 64_000.0 })),
        messages("negative length", json!({ "max_tokens": -1 })),
        chat("number of answers as a text", json!({ "n": "128" })),
        chat("number of answers as a fraction", json!({ "n": 128.0 })),
        chat("length of chat in a list", json!({ "max_completion_tokens": [64_000] })),
        chat("stream as a number", json!({ "stream": 1 })),
        chat("stream as a text", json!({ "stream": "true" })),
        chat("model that searches", json!({ "model": "groq/compound-mini" })),
        chat("model that searches, old name", json!({ "model": "compound-beta" })),
        responses("earlier answer of the store", json!({ "previous_response_id": "resp_1", "input": "x" })),
        responses("item of the store", json!({ "input": [{ "type": "item_reference", "id": "msg_1" }] })),
        responses("item of the store without a type", json!({ "input": [{ "id": "msg_1" }] })),
        responses("item of the store with an empty type", json!({ "input": [{ "id": "msg_1", "type": "" }] })),
        responses(
            "item of the store among messages",
            json!({ "input": [{ "role": "user", "content": "x" }, { "id": "m", "type": null }] }),
        ),
        chat("search of chat", json!({ "web_search_options": {} })),
        chat("search model", json!({ "model": "gpt-4o-search-preview" })),
        chat("hosted tool of chat", of_type("web_search")),
        chat(
            "built-in function of Moonshot",
            json!({ "tools": [{ "type": "builtin_function", "function": { "name": "$web_search" } }] }),
        ),
        chat("plugins of a gateway", json!({ "plugins": [{ "id": "web" }] })),
        chat("search parameters", json!({ "search_parameters": { "mode": "on" } })),
        chat("enabled search", json!({ "enable_search": true })),
        chat("other models of a gateway", json!({ "models": ["a", "b"] })),
        chat("image of chat", part(json!({ "type": "image_url", "image_url": { "url": "HTTPS://evil.example" } }))),
        chat("file of a gateway", part(json!({ "type": "file", "file": { "file_data": "https://evil.example/?d" } }))),
        chat(
            "sound by address",
            part(json!({ "type": "input_audio", "input_audio": { "data": "https://evil.example" } })),
        ),
        chat("image without a type", part(json!({ "image": "https://evil.example/?d" }))),
        chat("list of pictures", part(json!({ "type": "video", "video": ["https://evil.example/?d"] }))),
        chat("file of chat", part(json!({ "type": "file", "file": { "file_id": "f" } }))),
        responses("web search of responses", of_type("web_search_preview_2025_03_11")),
        responses("file search", of_type("file_search")),
        responses("code interpreter", of_type("code_interpreter")),
        responses("remote server", of_type("mcp")),
        responses("image generation", of_type("image_generation")),
        responses("computer", of_type("computer_use_preview")),
        responses("hidden in a group", json!({ "tools": [{ "type": "namespace", "tools": [{ "type": "mcp" }] }] })),
        responses(
            "hidden in the input",
            json!({ "input": [{ "type": "tool_search_output", "tools": [{ "type": "mcp" }] }] }),
        ),
        responses("stored prompt", json!({ "prompt": { "id": "p" } })),
        responses("answer for later", json!({ "background": true })),
        responses("conversation", json!({ "conversation": "c" })),
        responses(
            "file by address",
            json!({ "input": [{ "content": [{ "type": "input_file", "file_url": "https://evil.example" }] }] }),
        ),
        gemini("Google search", json!({ "tools": [{ "googleSearch": {} }] })),
        gemini("Google search, other spelling", json!({ "tools": [{ "google_search": {} }] })),
        gemini("search retrieval", json!({ "tools": [{ "googleSearchRetrieval": {} }] })),
        gemini("addresses", json!({ "tools": [{ "function_declarations": [], "url_context": {} }] })),
        gemini("code", json!({ "tools": [{ "codeExecution": {} }] })),
        gemini(
            "search of files",
            json!({ "tools": [{ "fileSearch": { "fileSearchStoreNames": ["fileSearchStores/1"] } }] }),
        ),
        gemini("search for enterprises", json!({ "tools": [{ "enterpriseWebSearch": {} }] })),
        gemini("computer of Gemini", json!({ "tools": [{ "computerUse": {} }] })),
        gemini("remote servers of Gemini", json!({ "tools": [{ "functionDeclarations": [], "mcpServers": [{}] }] })),
        gemini("maps", json!({ "tools": [{ "googleMaps": {} }] })),
        gemini("tools in an object", json!({ "tools": { "googleSearch": {} } })),
        gemini(
            "file by address of Gemini",
            json!({ "contents": [{ "parts": [{ "file_data": { "file_uri": "https://evil.example" } }] }] }),
        ),
        gemini("number of answers of Gemini as a text", json!({ "generationConfig": { "candidateCount": "8" } })),
        gemini("length of Gemini as a fraction", json!({ "generation_config": { "max_output_tokens": 8.5 } })),
        gemini("configuration in a list", json!({ "generationConfig": [{ "candidateCount": 8 }] })),
        gemini("stored content", json!({ "cachedContent": "cachedContents/1" })),
        raw("key twice", r#"{"model":"m","tools":[],"tools":[{"type":"web_search_20250305"}]}"#),
        raw("key twice, the last one harmless", r#"{"model":"m","tools":[{"type":"web_search_20250305"}],"tools":[]}"#),
        raw("key twice, escaped", r#"{"model":"m","tools":[],"t\u006fols":[{"type":"web_search_20250305"}]}"#),
        raw("two documents", r#"{"model":"m"}{"model":"m","mcp_servers":[]}"#),
        raw("byte order mark", "\u{feff}{\"model\":\"m\"}"),
        raw("comment", "{\"model\":\"m\"/*x*/}"),
        raw("no JSON", "model=m"),
        raw("list", "[{\"model\":\"m\"}]"),
        raw("no model", "{\"messages\":[]}"),
        raw("empty", ""),
        raw("deep", &format!("{{\"model\":\"m\",\"messages\":{}", "[".repeat(5_000))),
    ]
}

fn with_model(mut body: Value) -> String {
    if body["model"].is_null() {
        body["model"] = "priced".into();
    }
    body.to_string()
}

/// See docs/research/threats.md#s6.
#[tokio::test]
async fn requests_for_provider_side_tools_never_reach_the_model() {
    attack(None, Arc::new(|_| told()), async |place| {
        for (name, path, auth, body) in bodies() {
            refused(place, name, &posted(path, &format!("{auth}\r\ncontent-type: application/json"), &body)).await;
        }
        // The sent text is the parsed text: it has no escapes that another parser could read differently.
        let body =
            r#"{ "model" : "priced", "m\u0061x_tokens": 10, "messages": [ {"role":"user","content":"\u0041"} ] }"#;
        assert!(place.post("/v1/messages", "x-api-key: TOKEN", body).await.starts_with(b"HTTP/1.1 200"));
        let sent = place.model.seen().pop().expect("a request");
        assert!(
            sent.ends_with(r#"{"model":"priced","max_tokens":10,"messages":[{"role":"user","content":"A"}]}"#),
            "{sent}"
        );
    })
    .await;
}

/// The same references pass if the operator allows them; no other rule refuses them.
#[tokio::test]
async fn references_to_stored_answers_reach_the_model_where_they_are_allowed() {
    attack_allowing(&["stored_responses"], None, Arc::new(|_| told()), async |place| {
        let references = bodies().into_iter().filter(|(name, ..)| name.starts_with("item of the store"));
        let mut passed = 0;
        for (name, path, auth, body) in references {
            let answer = place.post(path, auth, &body).await;
            assert!(answer.starts_with(b"HTTP/1.1 200"), "{name}: {}", String::from_utf8_lossy(&answer));
            passed += 1;
        }
        assert_eq!((passed, place.model.seen().len()), (4, 4));
    })
    .await;
}

/// A run has room for two requests of the maximum size, and a small one is still accepted.
///
/// See docs/research/threats.md#s17.
#[tokio::test]
async fn large_requests_wait_for_requests_of_same_run() {
    attack(None, Arc::new(|_| told()), async |place| {
        let head = |length: usize| {
            let request = posted("/v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json", "");
            let request = request.replace("content-length: 0", &format!("content-length: {length}"));
            request.replace("TOKEN", &place.token).replace("HOST", &place.host)
        };
        let too_large = place.send(&head((32 << 20) + 1)).await;
        assert!(too_large.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&too_large));
        let numbers = "1,".repeat((4 << 20) / 2);
        let large = format!(r#"{{"model":"priced","max_tokens":10,"messages":[{numbers}1]}}"#);
        let large = [head(large.len()), large].concat();
        let start = Instant::now();
        assert!(place.send(&large).await.starts_with(b"HTTP/1.1 200"), "a large request alone");
        let alone = start.elapsed();
        let mut silent = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(&place.host).await.expect("the broker listens");
            stream.write_all(head(31 << 20).as_bytes()).await.expect("the head is taken");
            silent.push(stream);
        }
        assert!(place.ask().await.starts_with(b"HTTP/1.1 200"), "a small request waits");
        let mut waiting = std::pin::pin!(place.send(&large));
        let waits = tokio::time::timeout(alone * 4, waiting.as_mut()).await;
        assert!(waits.is_err(), "the third large request did not wait");
        drop(silent);
        let answer = waiting.await;
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    })
    .await;
}

/// Encodings of the key, made without the code under test.
fn disguises() -> Vec<(String, Vec<u8>)> {
    let key = KEY.as_bytes();
    let each = |f: &dyn Fn(u8) -> String| key.iter().map(|byte| f(*byte)).collect::<String>().into_bytes();
    let base64 = |text: &[u8], url: bool| {
        let encoding = if url { data_encoding::BASE64URL_NOPAD } else { data_encoding::BASE64 };
        encoding.encode(text).into_bytes()
    };
    let mut all: Vec<(String, Vec<u8>)> = vec![
        ("plain".into(), key.to_vec()),
        ("upper percent".into(), each(&|byte| format!("%{byte:02X}"))),
        ("lower percent".into(), each(&|byte| format!("%{byte:02x}"))),
        (
            "half percent".into(),
            each(&|byte| if byte % 2 == 0 { format!("%{byte:02x}") } else { char::from(byte).into() }),
        ),
        ("upper hex".into(), each(&|byte| format!("{byte:02X}"))),
        ("lower hex".into(), each(&|byte| format!("{byte:02x}"))),
        ("hex with colons".into(), each(&|byte| format!("{byte:02x}:"))),
        ("JSON escapes".into(), each(&|byte| format!("\\u{byte:04x}"))),
        ("spaces".into(), each(&|byte| format!("{} ", char::from(byte)))),
        ("case".into(), KEY.to_uppercase().into_bytes()),
        ("UTF-16 little".into(), key.iter().flat_map(|byte| [*byte, 0]).collect()),
        ("UTF-16 big".into(), key.iter().flat_map(|byte| [0, *byte]).collect()),
    ];
    for offset in 0..3 {
        for url in [false, true] {
            let inner = [&b"user:xyz"[..offset + 3], key, b"!?"].concat();
            all.push((format!("base64 at {offset}, url {url}"), base64(&inner, url)));
        }
    }
    all
}

/// Asserts that no part of the key that would be of use is in an answer, and that the answer came.
fn assert_clean(name: &str, disguise: &[u8], answer: &[u8]) {
    let text = String::from_utf8_lossy(answer);
    assert!(text.starts_with("HTTP/1.1 "), "{name}: {text}");
    // Half of a disguise is more than an attacker may learn.
    let half = disguise.len() / 2;
    for part in [&disguise[..half], &disguise[half..]] {
        assert!(!answer.windows(part.len()).any(|window| window == part), "{name}: {text}");
    }
    for (form, needle) in disguises() {
        assert!(!answer.windows(needle.len()).any(|window| window == needle), "{name}: {form} in {text}");
    }
}

/// Returns the body of an answer, without the framing of chunks.
fn body_of(answer: &[u8]) -> Vec<u8> {
    let at = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    let (head, mut rest) = answer.split_at(at);
    if !String::from_utf8_lossy(head).to_lowercase().contains("transfer-encoding: chunked") {
        return rest.to_vec();
    }
    let mut body = Vec::new();
    while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(String::from_utf8_lossy(&rest[..line]).trim(), 16).unwrap_or(0);
        let Some(chunk) = rest.get(line + 2..line + 2 + size).filter(|_| size > 0) else { break };
        body.extend_from_slice(chunk);
        rest = rest.get(line + 4 + size..).unwrap_or_default();
    }
    body
}

/// See docs/research/threats.md#s4.
#[tokio::test]
async fn answers_never_carry_the_key() {
    attack(None, Arc::new(|_| told()), async |place| {
        for (name, disguise) in disguises() {
            let event = [b"event: x\ndata: {\"!\":\"", disguise.as_slice(), b"\"}\n\n"].concat();
            let document = [b"{\"type\":\"message\",\"!\":\"", disguise.as_slice(), b"\"}"].concat();
            for size in [1, 7, event.len()] {
                let event = event.clone();
                place.model.answers(move |_| streamed(&event, size, "x-end: 1\r\n"));
                let answer = place.ask().await;
                assert_clean(&format!("{name} in a stream by {size}"), &disguise, &body_then(&answer));
                assert!(String::from_utf8_lossy(&body_of(&answer)).ends_with("\n\n"), "{name}: the stream stays one");
            }
            for status in ["200 OK", "400 Bad Request", "500 Oops", "429 Too Many Requests"] {
                let document = document.clone();
                place.model.answers(move |_| whole(status, "content-type: application/json\r\n", &document));
                assert_clean(&format!("{name} with {status}"), &disguise, &place.ask().await);
            }
            if let Some(value) =
                std::str::from_utf8(&disguise).ok().filter(|text| text.is_ascii() && !text.contains('\0'))
            {
                for header in
                    ["x-request-id", "retry-after", "content-type", "anthropic-x", "x-any", "set-cookie", "location"]
                {
                    let headers = format!("{header}: {value}\r\n");
                    place.model.answers(move |_| whole("200 OK", &headers, br#"{"text":"x"}"#));
                    assert_clean(&format!("{name} in {header}"), &disguise, &place.ask().await);
                }
                let trailer = format!("x-end: {value}\r\n");
                place.model.answers(move |_| streamed(b"data: {\"text\":\"x\"}\n\n", 4, &trailer));
                assert_clean(&format!("{name} in a trailer"), &disguise, &place.ask().await);
            }
        }
    })
    .await;
}

/// Returns the head and the unframed body of an answer.
fn body_then(answer: &[u8]) -> Vec<u8> {
    [b"HTTP/1.1 ".as_slice(), answer, &body_of(answer)].concat()
}

/// Answers that echo the request itself, that hide the key between two parts, or that do not match the request.
#[tokio::test]
async fn unusual_answers_carry_no_key() {
    attack(None, Arc::new(|_| told()), async |place| {
        place.model.answers(|request| whole("200 OK", "content-type: text/plain\r\n", request.as_bytes()));
        assert_clean("echo", KEY.as_bytes(), &place.ask().await);
        let (first, second) = KEY.split_at(20);
        let split = [("x-request-id", first), ("anthropic-y", second)]
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .concat();
        place.model.answers(move |_| whole("200 OK", &split, b"{}"));
        let answer = String::from_utf8_lossy(&place.ask().await).into_owned();
        assert!(!answer.contains(first) || !answer.contains(second), "{answer}");
        for pieces in [1, 2, 5] {
            let events: String = KEY
                .as_bytes()
                .chunks(pieces)
                .map(|part| {
                    format!(
                        "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"text\":\"{}\"}}}}\n\n",
                        String::from_utf8_lossy(part)
                    )
                })
                .collect();
            place.model.answers(move |_| streamed(events.as_bytes(), 50, ""));
            let body = String::from_utf8(body_of(&place.ask().await)).expect("text");
            let events =
                body.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
            let said: String =
                events.map(|event| event["delta"]["text"].as_str().unwrap_or_default().to_owned()).collect();
            assert!(
                said.contains("[key removed]") && !said.contains(&KEY[10..26]) && !said.contains(&KEY[26..]),
                "{said}"
            );
        }
        for headers in
            ["content-encoding: gzip\r\n", "content-encoding: br\r\n", "content-encoding: identity, deflate\r\n"]
        {
            place.model.answers(move |_| whole("200 OK", headers, KEY.as_bytes()));
            let answer = place.ask().await;
            assert!(answer.starts_with(b"HTTP/1.1 502"), "{headers}");
            assert_clean(headers, KEY.as_bytes(), &answer);
        }
        for status in ["302 Found", "307 Temporary Redirect"] {
            let location = format!("location: https://evil.example/{KEY}\r\n");
            place.model.answers(move |_| whole(status, &location, b""));
            let answer = place.ask().await;
            assert!(answer.starts_with(b"HTTP/1.1 502"), "{status}");
            assert_clean(status, KEY.as_bytes(), &answer);
        }
        let asked = place.model.seen();
        assert!(asked.iter().all(|request| request.to_lowercase().contains("accept-encoding: identity")), "{asked:?}");
    })
    .await;
}

/// Answers with their cost: name, answer, cost in millionths of a dollar.
fn priced() -> Vec<(&'static str, Vec<Vec<u8>>, i64)> {
    let json = |body: Value| whole("200 OK", "content-type: application/json\r\n", body.to_string().as_bytes());
    let stream = |events: &[Value]| {
        let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        streamed(text.as_bytes(), 3, "")
    };
    let start = json!({ "type": "message_start", "message": { "model": "priced", "usage": { "input_tokens": 50, "cache_read_input_tokens": 25, "cache_creation_input_tokens": 25, "output_tokens": 1 } } });
    let delta = json!({ "type": "content_block_delta", "index": 0, "delta": { "text": "x".repeat(300) } });
    let end = json!({ "type": "message_delta", "usage": { "output_tokens": 10 } });
    let stop = json!({ "type": "message_stop" });
    let cut = {
        let text: String = [&start, &delta].map(|event| format!("data: {event}\n\n")).concat();
        let mut parts = streamed(text.as_bytes(), 9, "");
        parts.pop();
        parts
    };
    // The estimate of the request's 77 bytes, at three bytes a token.
    let input = (MESSAGE.len().div_ceil(3) * 100) as i64;
    vec![
        ("document", told(), 20_000),
        ("stream", stream(&[start.clone(), delta.clone(), end, stop]), 20_000),
        ("stream that breaks off", cut, 10_000 + 100_000 + 11_000),
        ("document without usage", json(json!({ "model": "priced", "text": "x".repeat(30) })), input + 10_000),
        (
            "unknown model in the answer",
            json(json!({ "model": "cheap-unknown", "usage": { "input_tokens": 100, "output_tokens": 10 } })),
            20_000,
        ),
        (
            "usage in the text",
            json(
                json!({ "model": "priced", "text": "\"usage\":{\"output_tokens\":0}", "usage": { "input_tokens": 100, "output_tokens": 10 } }),
            ),
            20_000,
        ),
        (
            "hour-long cache",
            json(
                json!({ "model": "priced", "usage": { "cache_creation_input_tokens": 100, "cache_creation": { "ephemeral_1h_input_tokens": 100 }, "output_tokens": 10 } }),
            ),
            30_000,
        ),
        (
            "searches",
            json(
                json!({ "model": "priced", "usage": { "input_tokens": 100, "output_tokens": 10, "server_tool_use": { "web_search_requests": 3 } } }),
            ),
            50_000,
        ),
        ("no answer", vec![b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{\"model\":".to_vec()], input + 10_000),
        ("refusal", whole("429 Too Many Requests", "", b"{}"), 0),
        ("error", whole("500 Oops", "", b"{}"), 0),
    ]
}

/// See docs/research/threats.md#s4.
#[tokio::test]
async fn cost_of_every_answer_is_counted() {
    for (name, answer, cost) in priced() {
        let outcome = attack(None, Arc::new(move |_| answer.clone()), async |place| {
            place.ask().await;
        })
        .await;
        let counted = outcome.brokered.expect("it went through the broker").counted;
        let close = (counted.cost.0 - cost).abs() <= if name.contains("breaks off") { 12_000 } else { 0 };
        assert!(close, "{name}: {} instead of {}", counted.cost, Money(cost));
    }
}

/// A request of an agent that disconnects before the answer is charged.
#[tokio::test]
async fn abandoned_answer_is_counted() {
    let outcome = attack(None, Arc::new(|_| vec![b"HTTP/1.1 200 OK\r\n".to_vec()]), async |place| {
        let request = posted("/v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json", MESSAGE);
        let request = request.replace("TOKEN", &place.token).replace("HOST", &place.host);
        let mut stream = TcpStream::connect(&place.host).await.expect("the broker listens");
        stream.write_all(request.as_bytes()).await.expect("sent");
        while place.model.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(stream);
    })
    .await;
    let counted = outcome.brokered.expect("it went through the broker").counted;
    assert!(counted.cost.0 >= 10_000, "ten tokens of answer: {}", counted.cost);
}

/// A request of an agent that disconnects during hidden reasoning costs the longest answer.
#[tokio::test]
async fn hang_up_during_hidden_reasoning_is_counted() {
    let start = json!({ "type": "message_start", "message": { "model": "priced", "usage": { "input_tokens": 100, "output_tokens": 1 } } });
    let mut begin = streamed(format!("data: {start}\n\n").as_bytes(), 999, "");
    *begin.last_mut().expect("an end") = Vec::new();
    let script = move |_: &str| begin.clone();
    let long = MESSAGE.replace(r#""max_tokens":10"#, r#""max_tokens":5000,"stream":true"#);
    let outcome = attack(None, Arc::new(script), async |place| {
        let request = posted("/v1/messages", "x-api-key: TOKEN\r\ncontent-type: application/json", &long);
        let request = request.replace("TOKEN", &place.token).replace("HOST", &place.host);
        let mut stream = TcpStream::connect(&place.host).await.expect("the broker listens");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("message_start") {
            assert_ne!(stream.read_buf(&mut seen).await.expect("the begin of the answer"), 0, "it ended");
        }
        drop(stream);
    })
    .await;
    let counted = outcome.brokered.expect("it went through the broker").counted;
    assert_eq!(counted.cost, Money(10_000 + 5_000_000));
}

/// Parallel and consecutive calls stop at the budget, and every cent is counted.
#[tokio::test]
async fn parallel_calls_stay_within_the_budget() {
    let outcome = attack(Some(Money(1_000_000)), Arc::new(|_| told()), async |place| {
        let answers = futures::future::join_all((0..200).map(|_| place.ask())).await;
        let served = answers.iter().filter(|answer| answer.starts_with(b"HTTP/1.1 200")).count();
        let shown =
            answers.iter().filter(|answer| String::from_utf8_lossy(answer).contains("the budget is used up")).count();
        assert_eq!((served + shown, place.model.seen().len()), (200, served));
        assert!((40..=50).contains(&served), "{served} calls of 2 cents");
    })
    .await;
    assert_eq!(outcome.status, AgentStatus::OverBudget);
    let counted = outcome.brokered.expect("it went through the broker").counted;
    assert!(counted.cost <= Money(1_000_000) && counted.cost.0 == 20_000 * counted.requests as i64, "{counted:?}");
}

/// A loop of ten dollars whose agent makes 200 calls of 50 cents, 20 at a time, in the real service.
///
/// See docs/research/threats.md#s4.
#[tokio::test]
async fn loop_with_200_calls_ends_at_its_budget() {
    let answer = json!({ "model": "priced", "choices": [{ "finish_reason": "stop", "message": { "content": "x" } }],
        "usage": { "prompt_tokens": 1_000, "completion_tokens": 400 } });
    let body = answer.to_string();
    let model =
        Model::start(Arc::new(move |_| whole("200 OK", "content-type: application/json\r\n", body.as_bytes()))).await;
    let call = r#"curl -s -o /dev/null -X POST "$MODEL_URL/v1/chat/completions" -H "authorization: Bearer $MODEL_KEY" -H "content-type: application/json" -d '{"model":"priced","max_tokens":400,"messages":[{"role":"user","content":"x"}]}'"#;
    let agent = format!(
        "echo $RALPH_ITERATION >answer.txt\nfor group in 1 2 3 4 5 6 7 8 9 10; do for one in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do {call} & done; wait; done\nsleep 60\n"
    );
    let mut setup = Setup::new(Dialect::Gitea)
        .agent(&agent)
        .config("limits: { cost_usd: 10, comments_per_hour: 1000, comments_per_day: 1000 }\n");
    setup.backend = ", env: [MODEL_KEY, MODEL_URL], keys: { MODEL_KEY: MODEL_URL }, prices: { priced: { input: 100, output: 1000 } }".into();
    setup.env = vec![("MODEL_KEY", KEY.to_owned()), ("MODEL_URL", model.url.clone())];
    story(setup, async |world| {
        let stopped = world.run().await;
        let sent = model.seen().len() as i64;
        assert_eq!(stopped.state, LoopState::LimitReached, "{}", stopped.why);
        // Each cent that the model charged is the loop's, and none is above the limit: requests are smaller than estimated.
        assert_eq!(stopped.spent.cost, Money(sent * 500_000), "{sent} calls");
        assert!((15..=20).contains(&sent) && stopped.spent.cost <= Money(10_000_000), "{sent} calls");
        assert!(
            stopped.iterations[0].agent_problem.contains("cost limit"),
            "{:?}",
            stopped.iterations[0].agent_problem
        );
        assert!(stopped.iterations[0].tokens_in >= 1_000 * sent as u64, "{:?}", stopped.iterations[0].tokens_in);
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

/// The comment about the iteration contains a refused request.
///
/// See docs/research/threats.md#s6.
#[tokio::test]
async fn iteration_comment_lists_the_refused_request() {
    let model = Model::start(Arc::new(|_| told())).await;
    let call = r#"curl -s -o /dev/null "$MODEL_URL/v1/files" -H "authorization: Bearer $MODEL_KEY""#;
    let mut setup = Setup::new(Dialect::Gitea).agent(&format!("{call}\necho 42 >answer.txt\n"));
    setup.backend = ", env: [MODEL_KEY, MODEL_URL], keys: { MODEL_KEY: MODEL_URL }".into();
    setup.env = vec![("MODEL_KEY", KEY.to_owned()), ("MODEL_URL", model.url.clone())];
    story(setup, async |world| {
        assert_eq!(world.run().await.state, LoopState::Review);
        let comments = world.bot_comments();
        let told = comments.iter().find(|comment| comment.contains("Requests to the model refused"));
        assert!(told.is_some_and(|comment| comment.contains("GET /v1/files")), "{comments:#?}");
        assert!(model.seen().is_empty(), "{:?}", model.seen());
    })
    .await;
}

/// Two concurrent loops, whose agents together spend more than the day or the repository has left. Neither is above its own limit.
/// The agents ask for the models until both runs have started, which is free.
///
/// See docs/research/threats.md#p15 and docs/research/threats.md#s4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_loops_stay_within_the_shared_budget() {
    for shared in ["cost_usd_per_day: 8", "cost_usd_per_day: 100, cost_usd_per_repository_per_day: 8"] {
        // Each answer costs the maximum of its request: 50 cents.
        let answer = json!({ "model": "priced", "choices": [{ "finish_reason": "stop", "message": { "content": "x" } }],
            "usage": { "prompt_tokens": 1_000, "completion_tokens": 500 } });
        let (body, begun) = (answer.to_string(), Arc::new(AtomicBool::new(false)));
        let has_begun = begun.clone();
        let model = Model::start(Arc::new(move |request| {
            let models =
                json!({ "data": [{ "id": format!("begun-{}", has_begun.load(Ordering::SeqCst)) }] }).to_string();
            let body = if request.starts_with("GET ") { &models } else { &body };
            whole("200 OK", "content-type: application/json\r\n", body.as_bytes())
        }))
        .await;
        let auth = r#"-H "authorization: Bearer $MODEL_KEY""#;
        let call = format!(
            r#"curl -s -o /dev/null -X POST "$MODEL_URL/v1/chat/completions" {auth} -H "content-type: application/json" -d '{{"model":"priced","max_tokens":500,"messages":[{{"role":"user","content":"x"}}]}}'"#
        );
        let agent = format!(
            "echo $RALPH_ITERATION >answer.txt\nuntil curl -s \"$MODEL_URL/v1/models\" {auth} | grep -q begun-true; do sleep 0.1; done\n{call}\nfor group in 1 2 3 4 5 6; do for one in 1 2 3 4 5; do {call} & done; wait; done\nsleep 60\n"
        );
        let mut setup = Setup::new(Dialect::Gitea).agent(&agent).config(&format!(
            "limits: {{ loops_per_repository: 2, cost_usd: 7, {shared}, comments_per_hour: 1000, comments_per_day: 1000 }}\n"
        ));
        setup.backend = ", env: [MODEL_KEY, MODEL_URL], keys: { MODEL_KEY: MODEL_URL }, prices: { priced: { input: 0, output: 1000 } }".into();
        setup.env = vec![("MODEL_KEY", KEY.to_owned()), ("MODEL_URL", model.url.clone())];
        live_story(setup, async |world| {
            let who = world.maintainer.clone();
            let second = world.forge.open_issue(&who, world.repo, "Another answer is wrong", "It should be 43.", &[]);
            let second = second.await.expect("an issue");
            world.label().await;
            world.issue = second;
            world.label().await;
            let until = async |are: &dyn Fn(&Loop) -> bool, what: &str| {
                let both = async {
                    loop {
                        let all = world.all_loops().await;
                        if all.len() == 2 && all.iter().all(are) {
                            return all;
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                };
                tokio::time::timeout(Duration::from_secs(60), both).await.expect(what)
            };
            // A started run reserves its likely cost.
            let open = async || {
                let calls = "SELECT count(*) FROM calls WHERE ended_at IS NULL AND purpose = 'agent'";
                world.engine().store.read(move |c| Ok(c.query_row(calls, [], |row| row.get::<_, i64>(0))?)).await
            };
            until(&|one| one.spent.since.is_some(), "both runs begin").await;
            while open().await.expect("a count") < 2 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            begun.store(true, Ordering::SeqCst);
            let all = until(&|one| !one.iterations.is_empty() && one.spent.since.is_none(), "both runs end").await;
            let spent: Vec<Money> = all.iter().map(|one| one.spent.cost).collect();
            let sent = model.seen().iter().filter(|request| request.starts_with("POST ")).count() as i64;
            assert_eq!(spent[0].plus(spent[1]), Money(sent * 500_000), "{shared}: {sent} calls, {spent:?}");
            assert!((12..=16).contains(&sent), "{shared}: {sent} calls, {spent:?}");
            assert!(spent.iter().all(|cost| *cost > Money(0) && *cost <= Money(7_000_000)), "{shared}: {spent:?}");
            world.wait_until_idle().await;
        })
        .await;
    }
}

/// A model that writes as much as it may: the answer of a request is limited by the budget, in each wire format.
#[tokio::test]
async fn answer_length_is_limited_by_the_budget() {
    let writes_all = |request: &str| {
        let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").expect("a body").1).expect("JSON");
        let limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"].map(|name| body[name].as_u64());
        let asked = limits.into_iter().flatten().max().or(body["generationConfig"]["maxOutputTokens"].as_u64());
        let n = asked.unwrap_or(128_000);
        let all = json!({ "model": "priced", "modelVersion": "priced",
            "usage": { "input_tokens": 0, "output_tokens": n, "prompt_tokens": 0, "completion_tokens": n },
            "usageMetadata": { "promptTokenCount": 0, "candidatesTokenCount": n } });
        whole("200 OK", "content-type: application/json\r\n", all.to_string().as_bytes())
    };
    for (path, auth, body) in [
        ("/v1/messages", "x-api-key: TOKEN", json!({ "model": "priced", "messages": [], "max_tokens": 100_000 })),
        ("/v1/chat/completions", "authorization: Bearer TOKEN", json!({ "model": "priced", "messages": [] })),
        (
            "/v1/chat/completions",
            "authorization: Bearer TOKEN",
            json!({ "model": "priced", "messages": [], "max_tokens": 100_000 }),
        ),
        ("/v1/responses", "authorization: Bearer TOKEN", json!({ "model": "priced", "input": "x" })),
        ("/v1beta/models/priced:generateContent", "x-goog-api-key: TOKEN", json!({ "contents": [] })),
    ] {
        // Ten dollars pay for 10,000 tokens.
        let outcome = attack(Some(Money(10_000_000)), Arc::new(writes_all), async |place| {
            let answer = place.post(path, auth, &body.to_string()).await;
            assert!(answer.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&answer));
        })
        .await;
        let cost = outcome.brokered.expect("it went through the broker").counted.cost;
        assert!(cost > Money(9_000_000) && cost <= Money(10_000_000), "{path}: {cost}");
    }
}

/// Headers of a model's answer that agents do not need, such as cookies of the operator's account, are removed.
#[tokio::test]
async fn other_headers_of_answers_do_not_pass() {
    attack(None, Arc::new(|_| told()), async |place| {
        let headers = "set-cookie: account=1\r\nlocation: https://evil.example\r\nx-any: 1\r\nserver: x\r\nauthorization: x\r\n\
                       retry-after: 7\r\nx-request-id: r\r\n";
        place.model.answers(move |_| whole("200 OK", headers, b"{}"));
        let answer = String::from_utf8_lossy(&place.ask().await).to_lowercase();
        for name in ["set-cookie", "location", "x-any", "server", "authorization"] {
            assert!(!answer.contains(&format!("\n{name}:")), "{name}: {answer}");
        }
        assert!(answer.contains("\nretry-after: 7") && answer.contains("\nx-request-id: r"), "{answer}");
    })
    .await;
}

/// Output of Claude Code when its provider refuses it.
const CLAIMED: &str = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"API Error: 429 rate limit exceeded, try again in 8 days","session_id":"s"}"#;

/// A refusal blocks the backend for other loops only if the broker saw it, not if only the run reports it.
#[tokio::test]
async fn broker_refusal_affects_other_loops_only_if_observed() {
    for (status, seen) in
        [("429 Too Many Requests", true), ("529 Overloaded", true), ("401 Unauthorized", true), ("200 OK", false)]
    {
        let model = Model::start(Arc::new(move |_| {
            let error = json!({ "type": "error", "error": { "type": "x", "message": "invalid api key, or too many requests" } });
            whole(status, "content-type: application/json\r\nretry-after: 600\r\n", error.to_string().as_bytes())
        }))
        .await;
        let call = r#"curl -s -o /dev/null -X POST "$MODEL_URL/v1/messages" -H "x-api-key: $MODEL_KEY" -H "content-type: application/json" -d '{"model":"priced","max_tokens":10,"messages":[]}'"#;
        let mut setup =
            Setup::new(Dialect::Gitea).agent(&format!("cat >/dev/null\n{call}\necho '{CLAIMED}'\nexit 1\n"));
        setup.backend = ", output: claude, env: [MODEL_KEY, MODEL_URL], keys: { MODEL_KEY: MODEL_URL }, prices: { priced: { input: 100, output: 1000 } }".into();
        setup.env = vec![("MODEL_KEY", KEY.to_owned()), ("MODEL_URL", model.url.clone())];
        story(setup, async |world| {
            world.label().await;
            world.settle().await;
            let current = world.the_loop().await;
            let known = world.engine().store.read(calls::state).await.expect("a state");
            let backend = &known.backends["mine"];
            assert_eq!(backend.is_active(), !seen, "{status}: {backend:?}");
            let claim = backend.claims.of(current.id.as_str(), world.clock.now());
            assert_eq!(claim.is_some(), !seen, "{status}: {backend:?}");
            assert!(!model.seen().is_empty(), "{status}");
            world.comment("/ralph abort").await;
            world.settle().await;
        })
        .await;
    }
}
