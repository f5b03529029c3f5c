//! Stories of an operator's tools: a real Prometheus scrapes the service, and promtool checks its metrics
//! and our rules.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use fake_forge::{Dialect, FakeFault};
use ralph_bot::domain::loops::LoopState;
use serde_json::Value;
use test_support::free_port;
use tokio::io::AsyncWriteExt as _;

use crate::harness::parts::{command, output, program};
use crate::harness::service::{Service, stop};
use crate::harness::{Setup, on_one_forge, story};

on_one_forge!(prometheus_scrapes_the_service, each_json_log_line_contains_the_loop_id,);

pub(crate) fn solves(dialect: Dialect) -> Setup {
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
async fn alert_rules_pass_their_tests() {
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

/// Log of the real binary while it carries out a loop: each line is JSON, and those about the loop have its id, so that they are found by
/// it.
async fn each_json_log_line_contains_the_loop_id(dialect: Dialect) {
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
    assert_eq!(named("effect failed; the service retries it"), 1);
    let failed =
        lines.iter().find(|line| line["message"] == "effect failed; the service retries it").expect("it is there");
    assert_eq!(failed["span"]["loop_id"], done.id.as_str(), "the context of an effect: {failed}");
    service.finish().await;
}
