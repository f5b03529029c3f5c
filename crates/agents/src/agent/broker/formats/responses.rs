//! OpenAI Responses. Authentication by bearer token; hosted tools are identified by their `type`; the last event
//! reports the usage.

use serde_json::{Map, Value};

use super::definition::{AuthHeader, Endpoint, EndpointPurpose, WireFormat};
use super::unless_own;
use crate::agent::broker::usage::AnswerUsage;
use crate::domain::providers::prices::Vendor;
use crate::domain::providers::usage::ReportedUsage;

/// Types of tools that the agent runs itself, and of groups of tools, which are checked one by one.
const OWN_TOOLS: [&str; 5] = ["function", "custom", "local_shell", "apply_patch", "namespace"];

/// Definition of the format.
pub(super) const FORMAT: WireFormat = WireFormat {
    name: "openai responses",
    auth: &[AuthHeader::Bearer],
    versions: &["/v1"],
    endpoints: &[
        Endpoint::post("/responses", EndpointPurpose::Answer),
        Endpoint::post("/responses/compact", EndpointPurpose::Answer),
        Endpoint::post("/responses/input_tokens", EndpointPurpose::Count),
        Endpoint::get("/models"),
        Endpoint::get("/models/{}"),
    ],
    query: &[("client_version", &[])],
    fields: &[
        "model",
        "input",
        "instructions",
        "max_output_tokens",
        "metadata",
        "client_metadata",
        "parallel_tool_calls",
        "previous_response_id",
        "reasoning",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
        "include",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "context_management",
        "background",
    ],
    server_tool,
    features,
    output: |body| (body.get("max_output_tokens").and_then(Value::as_u64), 1),
    limit_output: |body, most| drop(body.insert("max_output_tokens".to_owned(), most.into())),
    ask_usage: |_| {},
    usage,
    vendor: Some(Vendor::OpenAi),
};

fn server_tool(tool: &Value) -> Option<String> {
    match tool["type"].as_str() {
        // A search among groups of tools that the agent makes itself.
        Some("tool_search") if tool["execution"] == "client" => None,
        _ => unless_own(tool, &OWN_TOOLS),
    }
}

/// Returns the names of requested features: background responses, which report their usage to no request, and
/// references to earlier responses, which add input that the request does not show.
fn features(body: &Map<String, Value>) -> Vec<&'static str> {
    let is_later = body.get("background").is_some_and(|value| *value != Value::Bool(false) && !value.is_null());
    let continues = body.get("previous_response_id").is_some_and(|value| !value.is_null());
    let names = [is_later.then_some("background"), continues.then_some("stored_responses")];
    names.into_iter().flatten().collect()
}

fn usage(event: &Value, seen: &mut AnswerUsage) {
    for usage in [&event["usage"], &event["response"]["usage"]] {
        seen.record(ReportedUsage::of_responses(usage));
    }
    seen.name_model(&event["model"]);
    seen.name_model(&event["response"]["model"]);
    seen.end(matches!(
        event["type"].as_str(),
        Some("response.completed" | "response.incomplete" | "response.failed" | "response.done")
    ));
}
