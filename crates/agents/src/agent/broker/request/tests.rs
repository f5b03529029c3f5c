//! Requests that are refused, and the reason.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use super::*;

fn rules<'a>(tokens: &'a [RunToken], allowed: &'a [String]) -> RequestRules<'a> {
    RequestRules {
        formats: FormatName::ALL,
        hosts: ["127.0.0.1:7".to_owned(), "localhost:7".to_owned()],
        base_path: "",
        tokens,
        allowed,
    }
}

fn tokens() -> [RunToken; 2] {
    ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"]
        .map(|variable| RunToken { token: format!("ralph-{variable}"), variable: variable.to_owned() })
}

fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<CheckedHead, RefusedRequest> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, _) = request.body(Body::empty()).expect("a request").into_parts();
    check_head(&rules(&tokens(), &[]), &parts)
}

const USUAL: [(&str, &str); 3] =
    [("host", "127.0.0.1:7"), ("x-api-key", "ralph-ANTHROPIC_API_KEY"), ("content-type", "application/json")];

#[test]
fn token_counts_only_in_its_header() {
    let bearer = |value: &'static str| [USUAL[0], USUAL[2], ("authorization", value)];
    let auth = |headers: &[(&str, &str)]| head("POST", "/v1/messages", headers).map(|head| head.auth).ok();
    assert_eq!(auth(&USUAL), Some((AuthHeader::ApiKey, 0)));
    assert_eq!(auth(&bearer("Bearer ralph-ANTHROPIC_AUTH_TOKEN")), Some((AuthHeader::Bearer, 1)));
    for wrong in [
        "Bearer ralph-ANTHROPIC_API_KEY",
        "Bearer  ralph-ANTHROPIC_AUTH_TOKEN",
        "Basic ralph-ANTHROPIC_AUTH_TOKEN",
        "ralph-ANTHROPIC_AUTH_TOKEN",
        "Bearer xralph-ANTHROPIC_AUTH_TOKEN",
    ] {
        assert_eq!(auth(&bearer(wrong)), None, "{wrong}");
    }
    let with_repeated_header = [USUAL[0], USUAL[1], USUAL[1], USUAL[2]];
    assert_eq!(auth(&with_repeated_header), None);
}

#[test]
fn unusual_heads_are_refused() {
    let with_header =
        |name: &'static str, value: &'static str| USUAL.into_iter().chain([(name, value)]).collect::<Vec<_>>();
    assert!(head("POST", "/v1/messages?beta=true", &USUAL).is_ok());
    for (method, uri, headers) in [
        ("PUT", "/v1/messages", USUAL.to_vec()),
        ("GET", "/v1/messages", USUAL.to_vec()),
        ("POST", "/v1/models", USUAL.to_vec()),
        ("POST", "/v1/messages/batches", USUAL.to_vec()),
        ("POST", "/v1/messages/", USUAL.to_vec()),
        ("POST", "/v1//messages", USUAL.to_vec()),
        ("POST", "/v1/./messages", USUAL.to_vec()),
        ("POST", "/v1/x/../messages", USUAL.to_vec()),
        ("POST", "/v1%2fmessages", USUAL.to_vec()),
        ("POST", "/v1/messages;x=1", USUAL.to_vec()),
        ("POST", "http://127.0.0.1:7/v1/messages", USUAL.to_vec()),
        ("POST", "/v1/messages?beta=false", USUAL.to_vec()),
        ("POST", "/v1/messages?key=1", USUAL.to_vec()),
        ("POST", "/v1/messages", with_header("upgrade", "websocket")),
        ("POST", "/v1/messages", with_header("host", "evil.example")),
        ("POST", "/v1/messages", with_header("content-encoding", "gzip")),
        ("POST", "/v1/messages", with_header("x-http-method-override", "DELETE")),
        ("POST", "/v1/messages", with_header("transfer-encoding", "gzip, chunked")),
        ("POST", "/v1/messages", with_header("content-type", "multipart/form-data")),
        ("POST", "/v1/messages", USUAL[..2].to_vec()),
        ("POST", "/v1/messages", vec![USUAL[1], USUAL[2]]),
        ("POST", "/v1/messages", vec![("host", "evil.example"), USUAL[1], USUAL[2]]),
    ] {
        assert!(head(method, uri, &headers).is_err(), "{method} {uri} {headers:?}");
    }
}

fn features(path: &str, body: &Value, allowed: &[&str]) -> Result<(), String> {
    let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
    let matched = formats::endpoint(FormatName::ALL, &Method::POST, path).unwrap_or_else(|_| panic!("{path}"));
    check_body(&rules(&[], &allowed), &matched, body.to_string().as_bytes()).map(drop).map_err(|refusal| refusal.why)
}

#[test]
fn provider_side_tools_are_refused_unless_configured() {
    let tool = |kind: &str| json!({ "model": "m", "tools": [{ "type": kind, "name": "x" }] });
    let part = |part: Value| json!({ "model": "m", "messages": [{ "role": "user", "content": [part] }] });
    let gemini = "/v1beta/models/m:generateContent";
    for (path, body, name) in [
        ("/v1/messages", tool("web_search_20250305"), "web_search"),
        ("/v1/messages", tool("code_execution_20250825"), "code_execution"),
        ("/v1/messages", tool("mcp_toolset"), "mcp_toolset"),
        ("/v1/messages", tool("of_tomorrow"), "of_tomorrow"),
        ("/v1/messages", json!({ "model": "m", "tools": [{ "name": "x" }] }), "untyped_tools"),
        ("/v1/messages", json!({ "model": "m", "tools": { "type": "web_fetch" } }), "untyped_tools"),
        ("/v1/messages", json!({ "model": "m", "mcp_servers": [] }), "mcp_servers"),
        ("/v1/messages", json!({ "model": "m", "container": "c" }), "container"),
        (
            "/v1/messages",
            part(json!({ "type": "image", "source": { "type": "url", "url": "https://x/?d" } })),
            "url_sources",
        ),
        ("/v1/messages", part(json!({ "type": "document", "source": { "type": "file", "file_id": "f" } })), "files"),
        ("/v1/messages/count_tokens", tool("web_search_20250305"), "web_search"),
        ("/v1/chat/completions", tool("web_search_preview"), "web_search_preview"),
        ("/v1/chat/completions", json!({ "model": "m", "web_search_options": {} }), "web_search_options"),
        ("/v1/chat/completions", json!({ "model": "m", "plugins": [{ "id": "web" }] }), "plugins"),
        ("/v1/chat/completions", json!({ "model": "gpt-4o-search-preview" }), "search_models"),
        ("/v1/chat/completions", json!({ "model": "groq/compound-mini" }), "search_models"),
        ("/v1/chat/completions", json!({ "model": "exa-pro" }), "search_models"),
        ("/v1/messages", json!({ "model": "m", "inference_geo": "us" }), "inference_geo"),
        ("/v1/responses", json!({ "model": "m", "previous_response_id": "r" }), "stored_responses"),
        ("/v1/responses", json!({ "model": "m", "input": [{ "type": "item_reference" }] }), "stored_responses"),
        ("/v1/responses", json!({ "model": "m", "input": [{ "id": "msg_1" }] }), "stored_responses"),
        ("/v1/responses", json!({ "model": "m", "input": [{ "id": "msg_1", "type": null }] }), "stored_responses"),
        ("/v1/responses", json!({ "model": "m", "input": [{ "id": "msg_1", "role": "user" }] }), "stored_responses"),
        ("/v1/chat/completions", json!({ "model": "m", "service_tier": "priority" }), "priority_tier"),
        (
            "/v1/chat/completions",
            part(json!({ "type": "image_url", "image_url": { "url": "https://x" } })),
            "url_sources",
        ),
        (
            "/v1/chat/completions",
            part(json!({ "type": "file", "file": { "filename": "a.pdf", "file_data": "https://x/?d" } })),
            "url_sources",
        ),
        (
            "/v1/chat/completions",
            part(json!({ "type": "input_audio", "input_audio": { "format": "mp3", "data": " HTTPS://x/?d" } })),
            "url_sources",
        ),
        ("/v1/chat/completions", part(json!({ "image": "http://x/?d" })), "url_sources"),
        ("/v1/chat/completions", part(json!({ "audio": "ftp://x/?d" })), "url_sources"),
        (
            "/v1/chat/completions",
            part(json!({ "type": "video", "video": ["https://x/1", "https://x/2"] })),
            "url_sources",
        ),
        ("/v1/responses", json!({ "model": "m", "input": [{ "image": { "source": "gs://x/d" } }] }), "url_sources"),
        ("/v1/responses", json!({ "model": "m", "input": [{ "type": "text", "image": ["s3://x/d"] }] }), "url_sources"),
        (
            "/v1/messages",
            part(
                json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "\nhttps:x" } }),
            ),
            "url_sources",
        ),
        (gemini, json!({ "contents": [{ "parts": [{ "inlineData": { "data": "gs://x/d" } }] }] }), "url_sources"),
        ("/v1/responses", tool("file_search"), "file_search"),
        ("/v1/responses", tool("code_interpreter"), "code_interpreter"),
        ("/v1/responses", tool("mcp"), "mcp"),
        ("/v1/responses", json!({ "model": "m", "background": true }), "background"),
        ("/v1/responses", json!({ "model": "m", "prompt": { "id": "p" } }), "prompt"),
        (
            "/v1/responses",
            json!({ "model": "m", "input": [{ "type": "tool_search_output", "tools": [{ "type": "mcp" }] }] }),
            "mcp",
        ),
        (gemini, json!({ "tools": [{ "googleSearch": {} }] }), "google_search"),
        (gemini, json!({ "tools": [{ "functionDeclarations": [], "url_context": {} }] }), "url_context"),
        (gemini, json!({ "cachedContent": "x" }), "cachedContent"),
        (gemini, json!({ "contents": [{ "parts": [{ "fileData": { "fileUri": "https://x" } }] }] }), "url_sources"),
        (
            "/v1beta/models/m:countTokens",
            json!({ "generateContentRequest": { "tools": [{ "codeExecution": {} }] } }),
            "code_execution",
        ),
    ] {
        let why = features(path, &body, &[]).expect_err(name);
        assert!(why.contains(&format!("`{name}`")), "{name}: {why}");
        // Named twice: by the field and by its content.
        let all = [name, "files"];
        assert_eq!(features(path, &body, &all), Ok(()), "{name}");
        assert!(features(path, &body, &["another"]).is_err(), "{name}");
    }
}

#[test]
fn usual_requests_of_agents_pass() {
    for (path, body) in [
        (
            "/v1/messages",
            json!({ "model": "m", "max_tokens": 9, "stream": true, "system": [{ "type": "text", "text": "x" }],
            "metadata": { "user_id": "u" }, "thinking": { "type": "adaptive" }, "context_management": { "edits": [] },
            "tools": [{ "name": "Bash", "input_schema": { "type": "object", "properties": { "tools": { "type": "array" }, "url": "https://x" } } },
                { "type": "bash_20250124", "name": "bash" }, { "type": "custom", "name": "y", "input_schema": {} }],
            "messages": [{ "role": "assistant", "content": [{ "type": "tool_use", "id": "i", "name": "f", "input": { "url": "https://x", "tools": [1] } }] },
                { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "i", "content": "https://x" },
                    { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AA" } }] }] }),
        ),
        (
            "/v1/chat/completions",
            json!({ "model": "m", "messages": [{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "data:image/png;base64,AA" } }] }],
            "tools": [{ "type": "function", "function": { "name": "f", "parameters": { "properties": { "file_id": {} } } } }], "stream_options": { "include_usage": true } }),
        ),
        (
            "/v1/responses",
            json!({ "model": "m", "input": [{ "type": "function_call", "id": "f", "arguments": "{}" },
                { "role": "user", "content": "x" }, { "id": "m", "role": "assistant", "content": "x" }], "store": false,
            "tools": [{ "type": "function", "name": "f" }, { "type": "namespace", "tools": [{ "type": "function" }] }] }),
        ),
        (
            "/v1beta/models/m:generateContent",
            json!({ "contents": [{ "parts": [{ "functionCall": { "name": "f", "args": { "url": "https://x" } } }] }],
            "tools": [{ "functionDeclarations": [{ "name": "f", "parametersJsonSchema": { "properties": { "uri": { "type": "string" } } } }] }] }),
        ),
    ] {
        assert_eq!(features(path, &body, &[]), Ok(()), "{path}");
    }
}

#[test]
fn texts_may_start_with_an_address() {
    let text = "https://forge.example/acme/app/issues/7";
    let content = |content: Value| json!({ "model": "m", "messages": [{ "role": "user", "content": content }] });
    for (path, body) in [
        ("/v1/messages", content(text.into())),
        ("/v1/messages", content(json!([{ "type": "text", "text": text }]))),
        ("/v1/messages", content(json!([{ "type": "thinking", "thinking": text, "signature": "s" }]))),
        (
            "/v1/messages",
            content(json!([{ "type": "document", "title": text, "context": text,
                "source": { "type": "text", "media_type": "text/plain", "data": text } }])),
        ),
        (
            "/v1/messages",
            content(
                json!([{ "type": "search_result", "source": text, "title": text, "content": [{ "type": "text", "text": text }] }]),
            ),
        ),
        ("/v1/messages", json!({ "model": "m", "system": text, "messages": [], "stop_sequences": ["http://"] })),
        ("/v1/responses", json!({ "model": "m", "input": text, "instructions": text })),
        ("/v1/responses", json!({ "model": "m", "input": [{ "type": "custom_tool_call", "input": text }] })),
        ("/v1/responses", json!({ "model": "m", "input": [{ "type": "function_call_output", "output": text }] })),
        (
            "/v1/responses",
            json!({ "model": "m", "input": [{ "type": "local_shell_call", "action": { "command": ["curl", text] } },
                { "type": "shell_call_output", "output": [{ "stdout": text, "stderr": text }] },
                { "type": "apply_patch_call", "operation": { "path": "a", "diff": text } },
                { "type": "reasoning", "summary": [{ "type": "summary_text", "text": text }] }] }),
        ),
        (
            "/v1/chat/completions",
            json!({ "model": "m", "messages": [{ "role": "assistant", "content": null, "refusal": text, "reasoning_content": text,
                "tool_calls": [{ "function": { "name": "f", "arguments": text } }] }, { "role": "tool", "content": text }] }),
        ),
        (
            "/v1beta/models/m:generateContent",
            json!({ "contents": [{ "parts": [{ "text": text }, { "executableCode": { "code": text } },
                { "codeExecutionResult": { "output": text } }, { "functionResponse": { "response": { "result": text } } }] }] }),
        ),
    ] {
        assert_eq!(features(path, &body, &[]), Ok(()), "{body}");
    }
}

#[test]
fn lengths_and_counts_are_whole_numbers() {
    let with_model = |mut body: Value| {
        body["model"] = "m".into();
        body
    };
    for (path, body, named) in [
        ("/v1/messages", json!({ "max_tokens": "64000" }), "`max_tokens`"),
        ("/v1/messages", json!({ "max_tokens": 64_000.0 }), "`max_tokens`"),
        ("/v1/messages", json!({ "thinking": { "type": "enabled", "budget_tokens": "9" } }), "`budget_tokens`"),
        ("/v1/chat/completions", json!({ "n": "128" }), "`n`"),
        ("/v1/chat/completions", json!({ "n": 128.0 }), "`n`"),
        ("/v1/chat/completions", json!({ "max_completion_tokens": -1 }), "`max_completion_tokens`"),
        ("/v1/chat/completions", json!({ "stream": 1 }), "`stream` is 1"),
        ("/v1/responses", json!({ "max_output_tokens": [1] }), "`max_output_tokens`"),
        (
            "/v1beta/models/m:generateContent",
            json!({ "generationConfig": { "candidateCount": "8" } }),
            "`candidateCount`",
        ),
        (
            "/v1beta/models/m:generateContent",
            json!({ "generation_config": { "max_output_tokens": 8.5 } }),
            "`max_output_tokens`",
        ),
        (
            "/v1beta/models/m:generateContent",
            json!({ "generationConfig": [{ "candidateCount": 8 }] }),
            "`generationConfig`",
        ),
    ] {
        let why = features(path, &with_model(body.clone()), &[]).expect_err(named);
        assert!(why.contains(named), "{body}: {why}");
    }
    for (path, body) in [
        ("/v1/messages", json!({ "max_tokens": 64_000, "stream": false, "thinking": { "type": "adaptive" } })),
        ("/v1/chat/completions", json!({ "n": null, "stream": null, "max_tokens": 1 })),
        ("/v1beta/models/m:generateContent", json!({ "generationConfig": { "maxOutputTokens": 8 } })),
    ] {
        assert_eq!(features(path, &with_model(body.clone()), &[]), Ok(()), "{body}");
    }
}
