//! Google Gemini. Authentication by `x-goog-api-key`; a tool's kind is the name of its field; each chunk reports the
//! usage. Field names follow protocol buffers and can be written in camel case or snake case.

use serde_json::{Map, Value, json};

use super::definition::{AuthHeader, Endpoint, EndpointPurpose, WireFormat};
use crate::agent::broker::usage::AnswerUsage;
use crate::domain::providers::prices::Vendor;
use crate::domain::providers::usage::ReportedUsage;

/// Definition of the format.
pub(super) const FORMAT: WireFormat = WireFormat {
    name: "gemini",
    auth: &[AuthHeader::GoogleKey],
    versions: &["/v1beta", "/v1alpha", "/v1"],
    endpoints: &[
        Endpoint::post("/models/{}:generateContent", EndpointPurpose::Answer),
        Endpoint::post("/models/{}:streamGenerateContent", EndpointPurpose::Answer),
        Endpoint::post("/models/{}:countTokens", EndpointPurpose::Count),
        Endpoint::get("/models"),
        Endpoint::get("/models/{}"),
    ],
    query: &[("alt", &["sse", "json"]), ("pageSize", &[]), ("pageToken", &[])],
    fields: &[
        "model",
        "contents",
        "systemInstruction",
        "system_instruction",
        "tools",
        "toolConfig",
        "tool_config",
        "generationConfig",
        "generation_config",
        "safetySettings",
        "safety_settings",
        "generateContentRequest",
        "generate_content_request",
        "labels",
    ],
    server_tool,
    features,
    output,
    limit_output,
    ask_usage: |_| {},
    usage,
    vendor: Some(Vendor::Google),
};

/// Returns the name of the feature for a tool; each field other than the declared functions is a tool of the provider.
fn server_tool(tool: &Value) -> Option<String> {
    let Some(fields) = tool.as_object() else { return Some("untyped_tools".to_owned()) };
    let other = fields.keys().find(|name| !matches!(name.as_str(), "functionDeclarations" | "function_declarations"));
    other.map(|name| snake(name))
}

/// Converts a name to snake case: `googleSearch` to `google_search`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

/// Returns the configuration if it occurs under both spellings: which of two limits holds would be the provider's choice.
fn features(body: &Map<String, Value>) -> Vec<&'static str> {
    let is_twice = body.contains_key("generationConfig") && body.contains_key("generation_config");
    is_twice.then_some("generation_config").into_iter().collect()
}

/// Returns the objects that configure the response, under both spellings of their field.
fn config(body: &Map<String, Value>) -> Vec<&Map<String, Value>> {
    let names = ["generationConfig", "generation_config"];
    names.into_iter().filter_map(|name| body.get(name)?.as_object()).collect()
}

fn output(body: &Map<String, Value>) -> (Option<u64>, u64) {
    let all = |names: [&str; 2]| {
        let configs = config(body);
        let numbers = configs.iter().flat_map(|config| names.map(|name| config.get(name).and_then(Value::as_u64)));
        numbers.flatten().max()
    };
    let choices = all(["candidateCount", "candidate_count"]).unwrap_or(1).max(1);
    (all(["maxOutputTokens", "max_output_tokens"]), choices)
}

fn limit_output(body: &mut Map<String, Value>, most: u64) {
    let name = if body.contains_key("generation_config") { "generation_config" } else { "generationConfig" };
    let config = body.entry(name).or_insert_with(|| json!({}));
    if let Some(config) = config.as_object_mut() {
        config.remove("max_output_tokens");
        config.insert("maxOutputTokens".to_owned(), most.into());
    }
}

fn usage(event: &Value, seen: &mut AnswerUsage) {
    for event in event.as_array().map_or_else(|| std::slice::from_ref(event), Vec::as_slice) {
        seen.record(ReportedUsage::of_gemini(&event["usageMetadata"]));
        seen.name_model(&event["modelVersion"]);
        let candidates = event["candidates"].as_array();
        seen.end(candidates.is_some_and(|all| all.iter().any(|one| one["finishReason"].is_string())));
    }
}
