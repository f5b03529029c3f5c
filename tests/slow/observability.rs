//! Stories of an operator's tools: a real Prometheus scrapes the service, promtool checks its metrics and our rules, and a collector
//! gets one trace from the delivery to the comment.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use fake_forge::{Dialect, FakeFault};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use ralph_bot::domain::loops::LoopState;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

use crate::harness::parts::{command, output, program};
use crate::harness::service::{Service, free_port, stop};
use crate::harness::{SECRET, Setup, World, on_one_forge, story};

on_one_forge!(
    prometheus_scrapes_the_service,
    one_trace_leads_from_delivery_to_comment,
    question_to_a_model_is_a_span_with_all_its_tokens,
    log_of_a_loop_in_json_names_it_in_each_line,
    absent_collector_changes_nothing,
);

fn solves(dialect: Dialect) -> Setup {
    Setup::new(dialect).agent("echo 42 >answer.txt\n")
}

fn deploy(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

async fn get(url: &str, accept: &str) -> (String, String) {
    let client = ralph_bot::net::client().build().expect("a client");
    let response = client.get(url).header("accept", accept).send().await.expect("an answer");
    let kind = response.headers()["content-type"].to_str().expect("text").to_owned();
    (kind, response.text().await.expect("text"))
}

/// Asks Prometheus until `holds`.
async fn ask(base: &str, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let client = ralph_bot::net::client().build().expect("a client");
    let asking = async {
        loop {
            let answer = match client.get(format!("{base}{path}")).send().await {
                Ok(response) => response.json().await.unwrap_or_default(),
                Err(_) => Value::Null,
            };
            if holds(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(90), asking).await.unwrap_or_else(|_| panic!("{path} does not hold"))
}

#[tokio::test]
async fn rules_pass_their_tests() {
    let Some(promtool) = program(&["promtool"], "install the package prometheus") else { return };
    output(command(&promtool).args(["check", "rules"]).arg(deploy("prometheus/alerts.yml"))).await;
    output(command(&promtool).args(["test", "rules"]).arg(deploy("prometheus/alerts.test.yml"))).await;
}

async fn prometheus_scrapes_the_service(dialect: Dialect) {
    let Some(promtool) = program(&["promtool"], "install the package prometheus") else { return };
    let Some(prometheus) = program(&["prometheus"], "install the package prometheus") else { return };
    story(solves(dialect), async |world| {
        assert_eq!(world.run().await.state, LoopState::Review);
        let address = world.app().address.expect("the service listens");
        let (kind, text) = get(&format!("http://{address}/metrics"), "*/*").await;
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        let mut check = command(&promtool);
        let mut check = check
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool starts");
        check.stdin.take().expect("a pipe").write_all(text.as_bytes()).await.expect("written");
        let checked = check.wait_with_output().await.expect("it ends");
        let said = String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success() && said.trim().is_empty(), "{said}\n{text}");
        let (kind, open) = get(&format!("http://{address}/metrics"), "application/openmetrics-text; version=1.0.0").await;
        assert!(kind.starts_with("application/openmetrics-text") && open.ends_with("# EOF\n"), "{kind}");

        let folder = tempfile::tempdir().expect("a folder");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{}']\nscrape_configs:\n  - job_name: ralph-bot\n    static_configs: [{{ targets: ['{address}'] }}]\n",
            deploy("prometheus/alerts.yml").display()
        );
        std::fs::write(folder.path().join("prometheus.yml"), config).expect("written");
        let port = free_port();
        let mut server = command(&prometheus);
        server
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = server.spawn().expect("Prometheus starts");
        let base = format!("http://127.0.0.1:{port}/api/v1");
        let value = |answer: &Value| {
            let all = answer["data"]["result"].as_array().cloned().unwrap_or_default();
            all.first().and_then(|one| one["value"][1].as_str()?.parse::<f64>().ok())
        };
        let is = |wanted: f64| move |answer: &Value| value(answer) == Some(wanted);
        ask(&base, "/query?query=sum(ralph_iterations_total)", is(1.0)).await;
        ask(&base, "/query?query=ralph_loops%7Bstate%3D%22review%22%7D", is(1.0)).await;
        ask(&base, "/query?query=up%7Bjob%3D%22ralph-bot%22%7D", is(1.0)).await;
        for query in [
            "sum(ralph_deliveries_total)",
            "sum(ralph_check_runs_total)",
            "sum(ralph_agent_runs_total)",
            "sum(ralph_effects_total)",
            "sum(ralph_forge_requests_total)",
            "sum(ralph_database_size_bytes)",
            "sum(ralph_disk_free_bytes)",
            "sum(ralph_iteration_duration_seconds_count)",
            "sum(ralph_delivery_store_duration_seconds_count)",
        ] {
            ask(&base, &format!("/query?query={query}"), |answer| value(answer).is_some_and(|value| value > 0.0)).await;
        }
        let rules = ask(&base, "/rules", |answer| {
            let rules = answer["data"]["groups"][0]["rules"].as_array();
            rules.is_some_and(|rules| !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok"))
        })
        .await;
        assert!(!rules.to_string().contains("\"state\":\"firing\""), "a healthy service alerts: {rules}");
        server.kill().await.expect("it ends");
    })
    .await;
}

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
        // Nobody knows whose models a script runs.
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

/// Log of the real binary while it carries out a loop: each line is JSON, and those about the loop have its id, so that they are found by
/// it.
async fn log_of_a_loop_in_json_names_it_in_each_line(dialect: Dialect) {
    let service = Service::new(solves(dialect), false).await;
    let mut child = service.spawn_in("all", vec![("RALPH_LOG_FORMAT", "json".to_owned())]);
    service.until("the service to listen", async || service.listens().await).await;
    service.world.forge.faults().next(1, "POST", "/comments$", FakeFault::status(502)).expect("a pattern");
    service.world.label().await;
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    service.wait_until_idle().await;
    assert!(stop(&mut child).await.success(), "{}", service.log());
    // On standard output are addresses for people.
    let log = service.full_log();
    let (lines, others): (Vec<_>, Vec<_>) = log.lines().partition(|line| line.starts_with('{'));
    assert!(
        others.iter().all(|line| line.starts_with("listening on ") || line.starts_with("dashboard: ")),
        "{others:?}"
    );
    let lines: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect();
    let of = |line: &Value| line["loop_id"].as_str().or(line["span"]["loop_id"].as_str()).map(str::to_owned);
    for line in &lines {
        for field in ["timestamp", "level", "message", "target"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
        assert!(of(line).is_none_or(|id| id == done.id.as_str()), "{line}");
    }
    let named = |message: &str| {
        let about: Vec<&Value> = lines.iter().filter(|line| line["message"] == message).collect();
        assert!(!about.is_empty(), "`{message}` is not in the log: {log}");
        about.iter().for_each(|line| assert!(of(line).is_some(), "no loop_id: {line}"));
        about.len()
    };
    assert!(named("step") >= 5, "every step of the loop is a line: {log}");
    assert_eq!(named("effect failed; will be retried"), 1);
    let failed = lines.iter().find(|line| line["message"] == "effect failed; will be retried").expect("it is there");
    assert_eq!(failed["span"]["loop_id"], done.id.as_str(), "the context of an effect: {failed}");
    service.finish().await;
}

async fn absent_collector_changes_nothing(dialect: Dialect) {
    let setup = solves(dialect).config("telemetry: { otlp_endpoint: 'http://127.0.0.1:1' }");
    story(setup, async |world| solved(world).await).await;
}
