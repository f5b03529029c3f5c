//! OpenAI Chat Completions and compatible servers. Authentication by bearer token; tools are functions; the last chunk
//! reports the usage if the request asks for it.

use serde_json::{Map, Value, json};

use super::definition::{AuthHeader, Endpoint, EndpointPurpose, WireFormat};
use super::unless_own;
use crate::agent::broker::usage::AnswerUsage;
use crate::domain::providers::usage::ReportedUsage;

/// Definition of the format.
pub(super) const FORMAT: WireFormat = WireFormat {
    name: "openai chat",
    auth: &[AuthHeader::Bearer],
    versions: &["/v1"],
    endpoints: &[
        Endpoint::post("/chat/completions", EndpointPurpose::Answer),
        Endpoint::get("/models"),
        Endpoint::get("/models/{}"),
    ],
    query: &[],
    fields: &[
        "model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "n",
        "stream",
        "stream_options",
        "stop",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "user",
        "seed",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "functions",
        "function_call",
        "response_format",
        "reasoning",
        "reasoning_effort",
        "reasoning_split",
        "thinking",
        "enable_thinking",
        "chat_template_kwargs",
        "verbosity",
        "prediction",
        "metadata",
        "store",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
    ],
    server_tool: |tool| unless_own(tool, &["function", "custom"]),
    features: |_| Vec::new(),
    output,
    limit_output,
    ask_usage,
    usage,
    vendor: None,
};

fn output(body: &Map<String, Value>) -> (Option<u64>, u64) {
    let limits = ["max_completion_tokens", "max_tokens"].map(|name| body.get(name).and_then(Value::as_u64));
    (limits.into_iter().flatten().max(), body.get("n").and_then(Value::as_u64).unwrap_or(1).max(1))
}

fn limit_output(body: &mut Map<String, Value>, most: u64) {
    let names = ["max_completion_tokens", "max_tokens"];
    let given: Vec<&str> = names.into_iter().filter(|name| body.contains_key(*name)).collect();
    for name in if given.is_empty() { &names[..1] } else { given.as_slice() } {
        body.insert((*name).to_owned(), most.into());
    }
}

fn ask_usage(body: &mut Map<String, Value>) {
    if body.get("stream") == Some(&Value::Bool(true)) {
        let options = body.entry("stream_options").or_insert_with(|| json!({}));
        if let Some(options) = options.as_object_mut() {
            options.insert("include_usage".to_owned(), Value::Bool(true));
        } else {
            *options = json!({ "include_usage": true });
        }
    }
}

fn usage(event: &Value, seen: &mut AnswerUsage) {
    // Moonshot reports the usage of a stream in its last choice.
    for usage in [&event["usage"], &event["choices"][0]["usage"]] {
        seen.record(ReportedUsage::of_chat(usage));
    }
    seen.name_model(&event["model"]);
    seen.end(
        event["choices"].as_array().is_some_and(|choices| choices.iter().any(|one| one["finish_reason"].is_string())),
    );
}
