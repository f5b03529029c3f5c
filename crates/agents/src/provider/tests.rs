//! Calls over a real connection.

pub(crate) mod stub;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::domain::providers::chat::{AnswerSchema, ChatMessage, ModelStop, ToolDefinition};
use crate::domain::providers::prices::TokenUsage;

use stub::{Stub, StubReply};

const KEY: &str = "swordfish-key-0815";
const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn settings(url: &str, wire: WireName) -> ApiSettings {
    ApiSettings {
        name: "mine".into(),
        url: url.into(),
        key: Some(KEY.into()),
        wire,
        models: [("small".to_owned(), "vendor-small-1".to_owned())].into(),
        timeout: Duration::from_secs(5),
    }
}

fn client(url: &str, wire: WireName) -> ApiClient {
    ApiClient::new(settings(url, wire), Clock::manual(NOW)).unwrap()
}

fn request() -> ChatRequest {
    ChatRequest {
        model: "small".into(),
        system: "be brief".into(),
        messages: vec![ChatMessage::User("hello".into())],
        tools: vec![ToolDefinition {
            name: "bash".into(),
            description: "d".into(),
            parameters: json!({"type": "object"}),
        }],
        max_tokens: 64,
        schema: None,
        cache: false,
        timeout: Duration::from_secs(5),
    }
}

async fn outcome(reply: StubReply) -> (Result<ChatAnswer, CallError>, Stub) {
    let stub = Stub::start([reply]).await;
    let result = client(&stub.url, WireName::Messages).complete(&request()).await;
    (result, stub)
}

#[tokio::test]
async fn all_wire_formats_are_sent_and_parsed() {
    let messages = json!({"model": "v", "content": [
        {"type": "text", "text": "hi"}, {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}},
    ], "stop_reason": "tool_use", "usage": {"input_tokens": 5, "output_tokens": 2}});
    let responses = json!({"model": "v", "status": "completed", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "a", "name": "bash", "arguments": "{\"command\":\"ls\"}"},
    ], "usage": {"input_tokens": 5, "output_tokens": 2}});
    let chat = json!({"model": "v", "choices": [{"finish_reason": "tool_calls", "message": {"content": "hi", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}},
    ]}}], "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
    for (wire, document, path, header) in [
        (WireName::Messages, messages, "/v1/messages", ("x-api-key", KEY.to_owned())),
        (WireName::Responses, responses, "/v1/responses", ("authorization", format!("Bearer {KEY}"))),
        (WireName::Chat, chat, "/v1/chat/completions", ("authorization", format!("Bearer {KEY}"))),
    ] {
        let stub = Stub::start([StubReply::json(document)]).await;
        let answer = client(&stub.url, wire).complete(&request()).await.unwrap();
        assert_eq!((answer.turn.text.as_str(), answer.stop, answer.model.as_str()), ("hi", ModelStop::Tools, "v"));
        assert_eq!(answer.turn.calls[0].arguments, r#"{"command":"ls"}"#);
        assert_eq!(answer.usage, Some(TokenUsage { input: 5, output: 2, ..TokenUsage::default() }));
        let received = stub.seen().remove(0);
        assert_eq!((received.path.as_str(), received.body["model"].as_str()), (path, Some("vendor-small-1")));
        assert_eq!(received.headers[header.0], header.1);
        assert_eq!(received.headers.contains_key("anthropic-version"), wire == WireName::Messages);
    }
}

#[tokio::test]
async fn refusals_contain_signs_of_a_limit() {
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let quota = r#"{"error":{"message":"check your plan","code":"insufficient_quota"}}"#;
    let error = |code: &str| format!(r#"{{"type":"error","error":{{"type":"{code}","message":"m"}}}}"#);
    for (status, body, code, retryable) in [
        (429, error("rate_limit_error"), Some("rate_limit_error"), true),
        (429, quota.to_owned(), Some("insufficient_quota"), false),
        (500, error("api_error"), Some("api_error"), true),
        (503, String::new(), None, true),
        (529, overloaded.to_owned(), Some("overloaded_error"), true),
        (401, error("authentication_error"), Some("authentication_error"), false),
        (404, error("not_found_error"), Some("not_found_error"), false),
        (400, error("invalid_request_error"), Some("invalid_request_error"), false),
        (200, overloaded.to_owned(), Some("overloaded_error"), true),
    ] {
        let (result, stub) = outcome(StubReply::error(status, &body)).await;
        let failure = result.unwrap_err();
        assert_eq!(
            (failure.signals.status, failure.signals.code.as_deref(), failure.retryable),
            (Some(status), code, retryable)
        );
        assert!(failure.what.starts_with(&format!("mine (127.0.0.1): HTTP {status}: ")), "{failure}");
        assert!(!failure.signals.succeeded && stub.seen().len() == 1, "it is not tried again");
    }
    let headers = vec![
        ("Retry-After", "7".to_owned()),
        ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:00Z".to_owned()),
        ("x-ratelimit-reset-tokens", KEY.to_owned()),
        ("set-cookie", "a=b".to_owned()),
    ];
    let body = format!(r#"{{"error":{{"type":"usage_limit_reached","message":"key {KEY}","resets_in_seconds":90}}}}"#);
    let (result, _) = outcome(StubReply::Whole(429, headers, body)).await;
    let failure = result.unwrap_err();
    let mut headers = failure.signals.headers.clone();
    headers.retain(|(name, _)| name != "date");
    assert_eq!(
        headers,
        [
            ("retry-after", "7"),
            ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:00Z"),
            ("x-ratelimit-reset-tokens", "***")
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    assert_eq!(failure.signals.resets_at, Some(Timestamp(NOW.0 + 90_000)));
    assert!(!format!("{failure:?}").contains(KEY) && failure.what.contains("key ***"), "{failure:?}");
}

#[tokio::test]
async fn invalid_answers_are_errors() {
    let whole = |body: &str| StubReply::error(200, body);
    for (reply, words, retryable) in [
        (
            whole("<html>Sign in</html>"),
            "not JSON (expected value at line 1 column 1); it starts with: a web page",
            false,
        ),
        (whole("{\"content\":[{\"type\":\"te"), "not JSON (EOF", false),
        (whole(""), "not JSON", false),
        (whole("{}"), "not have the format `messages`: `content` is missing", false),
        (StubReply::Whole(302, vec![("location", "http://127.0.0.1:1/".into())], String::new()), "it redirects", false),
        (StubReply::Cut, "is incomplete", true),
        (StubReply::Huge(ASSISTANT_ANSWER_BYTES + 1), "larger than 8 MiB", false),
    ] {
        let (result, stub) = outcome(reply.clone()).await;
        let failure = result.unwrap_err();
        assert!(failure.what.contains(words), "{failure}");
        assert_eq!((failure.retryable, stub.seen().len()), (retryable, 1), "{failure}");
    }
    let (result, _) = outcome(StubReply::Huge(ASSISTANT_ANSWER_BYTES)).await;
    assert!(result.unwrap_err().what.contains("not JSON"), "at the limit it is read");
    let (result, _) = outcome(StubReply::Whole(500, Vec::new(), "x".repeat(3 * MAX_ERROR_BODY))).await;
    assert!(result.unwrap_err().what.len() < 3_000);
}

#[tokio::test]
async fn request_to_hanging_server_times_out() {
    let stub = Stub::start([StubReply::Hang]).await;
    let short = ChatRequest { timeout: Duration::from_millis(100), ..request() };
    let failure = client(&stub.url, WireName::Messages).complete(&short).await.unwrap_err();
    assert!(failure.what.contains("no complete answer within 0.1 s") && failure.retryable, "{failure}");
}

/// Closes the first `breaks` connections, then answers; returns the number of connections.
async fn fragile(breaks: usize, after: &'static [u8]) -> (Result<ChatAnswer, CallError>, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let taken = std::sync::atomic::AtomicUsize::new(0);
    let serve = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let number = taken.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]).await;
            if number >= breaks {
                stream.write_all(after).await.unwrap();
            }
        }
    };
    let client = client(&url, WireName::Messages);
    let pending = request();
    let result = tokio::select! {
        result = client.complete(&pending) => result,
        () = serve => unreachable!("it serves for ever"),
    };
    (result, taken.into_inner())
}

#[tokio::test]
async fn broken_connection_is_retried_once() {
    let good = b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"content\":[]}";
    assert!(matches!(fragile(1, good).await, (Ok(_), 2)));
    let (result, taken) = fragile(2, good).await;
    let failure = result.unwrap_err();
    assert!(failure.retryable && failure.what.contains("no connection") && taken == 2, "{failure}");
    let (result, taken) = fragile(0, b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"cont").await;
    assert!(result.unwrap_err().what.contains("is incomplete") && taken == 1, "a byte came");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/secret-path", listener.local_addr().unwrap());
    drop(listener);
    let failure = client(&url, WireName::Chat).complete(&request()).await.unwrap_err();
    assert!(failure.retryable && !failure.what.contains("secret-path"), "{failure}");
}

#[tokio::test]
async fn offered_models_are_listed() {
    let list = json!({"object": "list", "data": [{"id": "a"}, {"name": "no id"}, {"id": "b"}]});
    let stub = Stub::start([StubReply::json(list), StubReply::json(json!({})), StubReply::error(401, "")]).await;
    let client = client(&format!("{}/v1/chat/completions", stub.url), WireName::Chat);
    assert_eq!(client.offered().await.unwrap(), ["a", "b"]);
    assert!(client.offered().await.unwrap_err().what.contains("no list of models"));
    assert_eq!(client.offered().await.unwrap_err().signals.status, Some(401));
    assert_eq!(stub.seen()[0].path, "/v1/models");
}

#[tokio::test]
async fn schema_is_not_sent_again_after_refusal() {
    let unknown = r#"{"error":{"message":"This response_format type is unavailable now"}}"#;
    let other = r#"{"error":{"message":"messages: too few"}}"#;
    let good = json!({"choices": [{"message": {"content": "{}"}}]});
    let replies = [StubReply::error(400, other), StubReply::error(400, unknown), StubReply::json(good)];
    let stub = Stub::start(replies).await;
    let client = client(&stub.url, WireName::Chat);
    let schema = Some(AnswerSchema { name: "plan".into(), schema: json!({"type": "object"}) });
    let with_schema = ChatRequest { schema, ..request() };
    assert!(client.complete(&with_schema).await.is_err() && client.complete(&with_schema).await.is_err());
    client.complete(&with_schema).await.unwrap();
    let sent: Vec<bool> = stub.seen().iter().map(|seen| seen.body.get("response_format").is_some()).collect();
    assert_eq!(sent, [true, true, false]);
}

#[tokio::test]
async fn client_can_be_used_as_a_function() {
    let stub = Stub::start([StubReply::said("hi")]).await;
    let function = Arc::new(client(&stub.url, WireName::Messages)).into_function();
    assert_eq!(function(request()).await.unwrap().turn.text, "hi");
}

#[test]
fn addresses_are_completed() {
    use WireName::{Chat, Messages, Responses};
    for (url, wire, calls) in [
        ("https://api.anthropic.com", Messages, "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/", Messages, "https://api.anthropic.com/v1/messages"),
        ("https://api.deepseek.com/anthropic", Messages, "https://api.deepseek.com/anthropic/v1/messages"),
        ("https://x.test/v1/messages", Messages, "https://x.test/v1/messages"),
        ("https://api.openai.com", Responses, "https://api.openai.com/v1/responses"),
        ("https://api.openai.com/v1", Chat, "https://api.openai.com/v1/chat/completions"),
        ("http://localhost:11434/", Chat, "http://localhost:11434/v1/chat/completions"),
        ("https://openrouter.ai/api/v1", Chat, "https://openrouter.ai/api/v1/chat/completions"),
        ("https://x.test/v1beta/openai/", Chat, "https://x.test/v1beta/openai/chat/completions"),
        ("https://x.test/a%20b/chat/completions?v=1#f", Chat, "https://x.test/a%20b/chat/completions?v=1"),
    ] {
        assert_eq!(addresses(&base(url).unwrap(), wire).0.as_str(), calls, "{url}");
    }
}

#[test]
fn invalid_settings_are_refused_without_secrets() {
    for (url, key, words) in [
        ("localhost:11434", "k", "http://"),
        ("", "k", "not a valid address"),
        ("ftp://x.test", "k", "http://"),
        ("https://user:swordfish@x.test", "k", "a user or a password"),
        ("https://x.test", "swordfish\nx", "a line break?"),
    ] {
        let settings = ApiSettings { key: Some(key.into()), ..settings(url, WireName::Chat) };
        let message = format!("{:#}", ApiClient::new(settings, Clock::System).err().unwrap());
        assert!(message.starts_with("backend mine: ") && message.contains(words), "{message}");
        assert!(!message.contains("swordfish"), "{message}");
    }
    assert!(!format!("{:?}", settings("https://x.test", WireName::Chat)).contains(KEY));
}
