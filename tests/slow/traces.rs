//! Stories of traces: a collector gets one trace from the delivery to the comment.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use fake_forge::Dialect;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use ralph_bot::domain::loops::LoopState;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::harness::{SECRET, World, on_one_forge, story};
use crate::observability::solves;

on_one_forge!(
    one_trace_leads_from_delivery_to_comment,
    question_to_a_model_is_a_span_with_all_its_tokens,
    absent_collector_has_no_effect,
);

/// Collector of traces.
struct TraceCollector {
    endpoint: String,
    spans: Arc<Mutex<Vec<Span>>>,
    _task: JoinSet<()>,
}

impl TraceCollector {
    async fn start() -> Self {
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let router = Router::new().fallback(collect).with_state(spans.clone());
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { endpoint, spans, _task: task }
    }

    fn spans(&self) -> Vec<Span> {
        self.spans.lock().expect("no panic").clone()
    }
}

async fn collect(State(spans): State<Arc<Mutex<Vec<Span>>>>, uri: axum::http::Uri, body: Bytes) -> StatusCode {
    assert_eq!(uri.path(), "/v1/traces");
    let request = ExportTraceServiceRequest::decode(body).expect("OTLP");
    let mut spans = spans.lock().expect("no panic");
    for resource in request.resource_spans {
        let named = resource.resource.iter().flat_map(|resource| &resource.attributes);
        assert!(named.clone().any(|one| one.key == "service.name" && text(&one.value).contains("ralph-bot")));
        spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
    StatusCode::OK
}

fn text(value: &Option<opentelemetry_proto::tonic::common::v1::AnyValue>) -> String {
    match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Any::StringValue(text)) => text.clone(),
        Some(Any::IntValue(number)) => number.to_string(),
        Some(Any::DoubleValue(amount)) => amount.to_string(),
        other => format!("{other:?}"),
    }
}

fn attribute(span: &Span, name: &str) -> String {
    span.attributes.iter().find(|one| one.key == name).map_or_else(String::new, |one| text(&one.value))
}

async fn solved(world: &mut World) {
    assert_eq!(world.run().await.state, LoopState::Review);
    world.settle().await;
    // The last spans are sent when the service stops.
    world.restart().await;
}

async fn one_trace_leads_from_delivery_to_comment(dialect: Dialect) {
    let collector = TraceCollector::start().await;
    let mut setup = solves(dialect).config(&format!("telemetry: {{ otlp_endpoint: '{}' }}", collector.endpoint));
    setup.agent.push_str("echo '{\"type\":\"end\",\"usage\":{\"input_tokens\":1200,\"output_tokens\":34}}'\n");
    setup.backend.push_str(", output: jsonl");
    story(setup, async |world| {
        solved(world).await;
        let id = world.the_loop().await.id;
        let spans = collector.spans();
        let traces: BTreeSet<_> = spans.iter().map(|span| span.trace_id.clone()).collect();
        assert_eq!(traces.len(), 1, "one loop is one trace");
        let names: BTreeSet<_> = spans.iter().map(|span| span.name.as_str()).collect();
        for name in ["delivery", "prepare", "agent", "invoke_agent mine", "commit", "check", "push", "pull", "status"] {
            assert!(names.contains(name), "no span `{name}`: {names:?}");
        }
        let parents: BTreeSet<_> = spans.iter().map(|span| span.parent_span_id.clone()).collect();
        assert!(parents.len() == 1 && spans.iter().all(|span| attribute(span, "ralph.loop.id") == id.as_str()));
        let deliveries = spans.iter().filter(|span| span.name == "delivery");
        let first = deliveries.map(|span| span.start_time_unix_nano).min().expect("a delivery");
        // Runs of agents last a while although the clock of the story stands still, so that their start is computed.
        let before: Vec<_> = spans.iter().filter(|span| span.end_time_unix_nano < first).collect();
        assert!(before.is_empty(), "these precede the delivery at {first}: {before:?}");
        let agent = spans.iter().find(|span| span.name == "invoke_agent mine").expect("the agent");
        assert_eq!(attribute(agent, "gen_ai.operation.name"), "invoke_agent");
        assert_eq!(attribute(agent, "gen_ai.agent.name"), "mine");
        assert_eq!(attribute(agent, "gen_ai.usage.input_tokens"), "1200");
        assert_eq!(attribute(agent, "gen_ai.usage.output_tokens"), "34");
        // The vendor of a script's models is unknown.
        assert_eq!(attribute(agent, "gen_ai.provider.name"), "mine");
        // Neither texts of people nor prompts, outputs or secrets.
        let all = format!("{spans:?}");
        let token = world.environment().into_iter().find(|(name, _)| *name == "TOKEN").expect("a token").1;
        for text in ["The answer is wrong", "answer.txt", SECRET, &token, "http://"] {
            assert!(!all.contains(text), "{text} is in a span");
        }
    })
    .await;
}

/// Model that answers every question by advice for the prompt, with tokens from its cache.
async fn advise() -> axum::Json<Value> {
    let advice = serde_json::json!({
        "prompt": "Read check.sh first.", "system_context": "One file is wrong.", "focus_areas": [], "urgency": "normal",
    });
    axum::Json(serde_json::json!({
        "model": "helper-stub", "content": [{"type": "text", "text": advice.to_string()}], "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 1_000, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 200, "output_tokens": 100,
        },
    }))
}

async fn question_to_a_model_is_a_span_with_all_its_tokens(dialect: Dialect) {
    let collector = TraceCollector::start().await;
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let model = format!("http://{}", listener.local_addr().expect("an address"));
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let router = Router::new().fallback(advise);
        axum::serve(listener, router).await.expect("it serves");
    });
    let config = format!(
        "  helper: {{ type: api, url: '{model}', wire: messages, models: {{ default: helper-stub }} }}\n\
         intelligence: full\nlimits: {{ comments_per_hour: 1000, comments_per_day: 1000 }}\ntelemetry: {{ otlp_endpoint: '{}' }}\n",
        collector.endpoint
    );
    story(solves(dialect).config(&config), async |world| {
        solved(world).await;
        let spans = collector.spans();
        let asked: Vec<_> = spans.iter().filter(|span| span.name == "chat helper-stub").collect();
        assert!(!asked.is_empty(), "{spans:?}");
        for span in asked {
            assert_eq!(span.kind(), opentelemetry_proto::tonic::trace::v1::span::SpanKind::Client);
            for (name, expected) in [
                ("gen_ai.operation.name", "chat"),
                ("gen_ai.request.model", "helper-stub"),
                // Of an unknown host that whose protocol it speaks.
                ("gen_ai.provider.name", "anthropic"),
                ("gen_ai.usage.input_tokens", "1700"),
                ("gen_ai.usage.cache_read.input_tokens", "500"),
                ("gen_ai.usage.cache_creation.input_tokens", "200"),
                ("gen_ai.usage.output_tokens", "100"),
                ("gen_ai.agent.name", ""),
            ] {
                assert_eq!(attribute(span, name), expected, "{name}: {span:?}");
            }
        }
    })
    .await;
}

async fn absent_collector_has_no_effect(dialect: Dialect) {
    let setup = solves(dialect).config("telemetry: { otlp_endpoint: 'http://127.0.0.1:1' }");
    story(setup, async |world| solved(world).await).await;
}
