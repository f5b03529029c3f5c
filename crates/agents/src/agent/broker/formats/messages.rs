//! Anthropic Messages. Authentication by `x-api-key` or bearer token; a tool's kind is its `type`; the first and the
//! last event report the usage.

use serde_json::{Map, Value};

use super::definition::{AuthHeader, Endpoint, EndpointPurpose, WireFormat};
use super::unless_own;
use crate::agent::broker::usage::AnswerUsage;
use crate::domain::providers::prices::Vendor;
use crate::domain::providers::usage::ReportedUsage;

/// Types of tools that the agent runs itself.
const OWN_TOOLS: [&str; 6] = ["custom", "bash", "text_editor", "memory", "computer", "computer_use"];

/// Definition of the format.
pub(super) const FORMAT: WireFormat = WireFormat {
    name: "anthropic messages",
    auth: &[AuthHeader::ApiKey, AuthHeader::Bearer],
    versions: &["/v1"],
    endpoints: &[
        Endpoint::post("/messages", EndpointPurpose::Answer),
        Endpoint::post("/messages/count_tokens", EndpointPurpose::Count),
        Endpoint::get("/models"),
        Endpoint::get("/models/{}"),
    ],
    query: &[("beta", &["true"]), ("limit", &[]), ("after_id", &[]), ("before_id", &[])],
    fields: &[
        "model",
        "messages",
        "max_tokens",
        "metadata",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
        "service_tier",
        "context_management",
        "output_config",
        "output_format",
        "cache_control",
        "inference_geo",
        "diagnostics",
    ],
    server_tool,
    features,
    output: |body| (body.get("max_tokens").and_then(Value::as_u64), 1),
    limit_output,
    ask_usage: |_| {},
    usage,
    vendor: Some(Vendor::Anthropic),
};

/// Returns the name of the feature for a tool; a tool without a type is run by the agent.
fn server_tool(tool: &Value) -> Option<String> {
    if tool.get("type").is_none() && tool.get("input_schema").is_some() {
        return None;
    }
    unless_own(tool, &OWN_TOOLS)
}

/// Returns the names of requested features, such as regions with a surcharge.
fn features(body: &Map<String, Value>) -> Vec<&'static str> {
    let is_usual = body.get("inference_geo").is_none_or(|region| region.is_null() || region == "global");
    if is_usual { Vec::new() } else { vec!["inference_geo"] }
}

/// Limits the tokens of a response, and the tokens for thinking to fewer than that.
fn limit_output(body: &mut Map<String, Value>, most: u64) {
    body.insert("max_tokens".to_owned(), most.into());
    if let Some(budget) = body.get_mut("thinking").and_then(|thinking| thinking.get_mut("budget_tokens"))
        && budget.as_u64().is_some_and(|budget| budget >= most)
    {
        *budget = (most / 2).into();
    }
}

fn usage(event: &Value, seen: &mut AnswerUsage) {
    for usage in [&event["usage"], &event["message"]["usage"]] {
        seen.record(ReportedUsage::of_messages(usage));
    }
    seen.name_model(&event["model"]);
    seen.name_model(&event["message"]["model"]);
    seen.end(event["type"] == "message_stop" || event["delta"]["stop_reason"].is_string());
}
