//! The command line on recorded loops: its output, and its errors for unreadable input.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::supervision::oversight::{DetectionKind, InterventionLevel};

use crate::harness::Setup;
use crate::harness::parts::command;
use crate::harness::service::Service;

/// Recorded loop without progress.
fn stuck() -> String {
    let line =
        |n: u32| format!("{{\"iteration\":{n},\"completion\":0.3,\"error_signature\":\"E0308\",\"tree\":\"{n}\"}}\n");
    (1..=8).map(line).collect()
}

async fn ralph(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = command(env!("CARGO_BIN_EXE_ralph-bot"));
    command.current_dir(folder).env_remove("RALPH_CONFIG").args(arguments).output().await.expect("it starts")
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn trace_is_replayed_as_json_lines_without_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("stuck.jsonl"), stuck()).expect("written");
    let output = ralph(folder.path(), &["replay", "stuck.jsonl", "--summary"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", utf8(&output.stderr));
    let lines: Vec<Value> =
        utf8(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 9);
    assert_eq!(lines[4]["interventions"][0]["level"], "redirect");
    assert_eq!((lines[4]["strategy"].as_str(), lines[4]["status"].as_str()), (Some("pivot"), Some("warning")));
    assert_eq!(lines[8]["ended"]["by"], "pause");

    let output = ralph(folder.path(), &["replay", "stuck.jsonl", "--plot", "stuck.svg", "--json"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", utf8(&output.stderr));
    assert!(std::fs::read_to_string(folder.path().join("stuck.svg")).expect("a chart").ends_with("</svg>\n"));

    // Settings decide: without the detection nothing is found.
    std::fs::write(folder.path().join("off.yaml"), "oversight: {stuck: {enabled: false}}\n").expect("written");
    let output = ralph(folder.path(), &["replay", "stuck.jsonl", "--json", "--config", "off.yaml"]).await;
    assert!(!utf8(&output.stdout).contains("\"stuck\""), "{}", utf8(&output.stdout));

    // The file of a service that lies beside sets no thresholds: nothing is different.
    let before = ralph(folder.path(), &["replay", "stuck.jsonl", "--json"]).await;
    std::fs::write(folder.path().join("ralph-control.yaml"), "forges: []\nlimits: {iterations: 5}\n").expect("written");
    let output = ralph(folder.path(), &["replay", "stuck.jsonl", "--json"]).await;
    assert_eq!((output.status.code(), &output.stdout), (Some(0), &before.stdout), "{}", utf8(&output.stderr));

    // Figures that cannot be are put right, and that is said.
    let odd = "{\"iteration\":1,\"completion\":-3,\"quality\":17}\n{\"iteration\":2,\"errors\":-1}\n";
    std::fs::write(folder.path().join("odd.jsonl"), odd).expect("written");
    let output = ralph(folder.path(), &["replay", "odd.jsonl"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        utf8(&output.stderr),
        "warning: odd.jsonl: 2 figures of iteration 1 were out of range and were clamped.\n\
         warning: odd.jsonl: One figure of iteration 2 was out of range and was clamped.\n"
    );
    std::fs::remove_file(folder.path().join("odd.jsonl")).expect("removed");

    std::fs::write(folder.path().join("on.yaml"), "").expect("written");
    let output = ralph(folder.path(), &["replay", ".", "--compare", "on.yaml", "off.yaml", "--json"]).await;
    let last = utf8(&output.stdout).lines().last().map(str::to_owned).expect("a line");
    let sum: Value = serde_json::from_str(&last).expect("JSON");
    assert_eq!((sum["a"]["loops"].as_u64(), sum["a"]["healthy"].as_u64()), (Some(1), Some(0)));
    assert!(sum["a"]["saved"].as_u64() >= sum["b"]["saved"].as_u64(), "{sum}");
}

#[tokio::test]
async fn stored_loop_is_replayed_by_id() {
    let service = Service::new(Setup::new(Dialect::Gitea), false).await;
    let mut process = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    service.world.label().await;
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    service.wait_until_idle().await;
    let folder = service.world.folder.path();
    let run = async |id: &str| {
        let mut command = command(env!("CARGO_BIN_EXE_ralph-bot"));
        command.current_dir(folder).env_remove("RALPH_CONFIG").envs(service.world.environment());
        command.args(["replay", id, "--json", "--summary"]).output().await.expect("it starts")
    };
    let output = run(done.id.as_str()).await;
    assert_eq!(output.status.code(), Some(0), "{}", utf8(&output.stderr));
    let lines: Vec<Value> =
        utf8(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), done.records().len() + 1);
    assert_eq!(lines.last().expect("a summary")["ended"]["by"], "finished");
    let output = run("r-9-zzzzzz").await;
    assert_eq!(output.status.code(), Some(1));
    assert!(utf8(&output.stderr).contains("there is no loop r-9-zzzzzz"), "{}", utf8(&output.stderr));
    process.kill().await.expect("stopped");
}

/// Figures for tuning thresholds: why a loop was stopped, whether guidance helped, and the outcome with other thresholds.
#[tokio::test]
async fn stored_loop_is_audited() {
    let limits = "limits: { iterations: 30, comments_per_hour: 1000, comments_per_day: 1000 }";
    let setup = Setup::new(Dialect::Gitea).agent("echo \"$RALPH_ITERATION\" >answer.txt\n").config(limits);
    let service = Service::new(setup, false).await;
    let mut process = service.spawn("all", None);
    service.until("the service to listen", async || service.listens().await).await;
    service.world.label().await;
    let paused = service.until_loop("the pause", |l| l.state == LoopState::Paused).await;
    service.wait_until_idle().await;
    let folder = service.world.folder.path();
    let id = paused.id.as_str();
    let run = async |arguments: &[&str]| {
        let mut command = command(env!("CARGO_BIN_EXE_ralph-bot"));
        command.current_dir(folder).env_remove("RALPH_CONFIG").envs(service.world.environment());
        let output = command.args(arguments).output().await.expect("it starts");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", utf8(&output.stderr));
        utf8(&output.stdout)
    };
    let counts = paused.oversight_report();
    let redirects = counts.interventions[&InterventionLevel::Redirect];
    let followed = counts.followed[&InterventionLevel::Redirect];
    let of_stuck = counts.effects[&DetectionKind::Stuck];
    assert!(redirects > 0 && followed.no_progress > 0 && of_stuck.progress == 0, "{counts:?}");

    let text = run(&["loops", "show", id, "--report", "--audit"]).await;
    let parts = [format!("\nLoop {id}\n"), "\nRepository mira/app\n".into(), "\nAll 1 loops\n".into()];
    let at: Vec<_> =
        parts.iter().map(|part| text.find(part.as_str()).unwrap_or_else(|| panic!("{part}: {text}"))).collect();
    assert!(at.is_sorted(), "{text}");
    for line in [
        format!("  {:<16}{:>5}   {of_stuck}\n", "stuck", counts.detections[&DetectionKind::Stuck]),
        format!("  {:<16}{redirects:>5}   {followed}\n", "REDIRECT"),
        format!("  {:<16}{:>5}\n", "PAUSE", 1),
    ] {
        assert_eq!(text.matches(&line).count(), 3, "{line}: {text}");
    }
    let after =
        |heading: &str| text.split_once(heading).map(|(_, rest)| rest).unwrap_or_else(|| panic!("{heading}: {text}"));
    let decisions = after("\nDecisions:\n").split("\n\n").next().expect("lines");
    assert!(
        decisions.contains(" REDIRECT The loop is stuck: ") && decisions.contains(" PAUSE    The loop is stuck"),
        "{text}"
    );
    assert!(after("\nEvents:\n").contains(" start: ") && after("\nEvents:\n").contains(" checked: "), "{text}");
    assert!(after("\nEffects:\n").contains(" escalation/stuck: done: "), "{text}");

    let json: Value =
        serde_json::from_str(&run(&["--json", "loops", "show", id, "--report", "--audit"]).await).expect("JSON");
    for of in [format!("Loop {id}"), "Repository mira/app".into(), "All 1 loops".into()] {
        let report = &json["report"][&of];
        assert_eq!(
            (&report["interventions"]["redirect"], &report["effects"]["stuck"]),
            (&redirects.into(), &serde_json::json!(of_stuck))
        );
        assert!(report["claims"].is_object(), "{of}: {report}");
    }
    let entries = json["audit"].as_array().expect("a list");
    let escalated = entries.iter().find(|entry| entry["event"] == "escalated");
    assert_eq!(escalated.and_then(|entry| entry["iteration"].as_u64()), Some(paused.spent.iterations.into()));
    assert!(
        json["events"].as_array().is_some_and(|events| events.len() > paused.iterations.len()),
        "{}",
        json["events"]
    );
    assert!(
        json["effects"]
            .as_array()
            .is_some_and(|effects| effects.iter().any(|effect| effect["key"] == "escalation/stuck"))
    );

    // As it ran, and under other thresholds over the same database.
    let as_it_ran = run(&["replay", id, "--json", "--summary"]).await;
    assert!(
        as_it_ran.contains("\"stuck\"") && as_it_ran.lines().last().is_some_and(|sum| sum.contains("\"pause\"")),
        "{as_it_ran}"
    );
    let file = std::fs::read_to_string(folder.join("ralph-control.yaml")).expect("the operator's file");
    std::fs::write(folder.join("other.yaml"), format!("{file}oversight: {{ stuck: {{ enabled: false }} }}\n"))
        .expect("written");
    let otherwise = run(&["replay", id, "--json", "--summary", "--config", "other.yaml"]).await;
    assert_eq!(otherwise.lines().count(), as_it_ran.lines().count());
    assert!(!otherwise.contains("\"stuck\""), "{otherwise}");

    // Each line of the exported trace fits the schema, and the report names the events.
    let schema = serde_json::from_str(&run(&["schema", "trace"]).await).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    for line in run(&["loops", "export", id, "--trace"]).await.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert!(schema.is_valid(&line), "{line}");
    }
    assert!(!schema.is_valid(&serde_json::json!({ "errors": "three" })));
    let report = run(&["loops", "report", id]).await;
    let redirected = format!("| REDIRECT | {redirects} | 0 | {} |\n", followed.no_progress);
    let effect = format!(" | 0 of {0} | 0 of {0} |\n", of_stuck.known());
    for part in [
        &format!("# Report on {id}: "),
        "\n| stuck: ",
        effect.as_str(),
        redirected.as_str(),
        ": PAUSE stuck (critical): ",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let json: Value = serde_json::from_str(&run(&["--json", "loops", "report", id]).await).expect("JSON");
    assert_eq!(json["course"].as_array().map(Vec::len), Some(paused.iterations.len()));
    let stuck = json["detections"].as_array().and_then(|all| all.iter().find(|one| one["kind"] == "stuck"));
    let stuck = stuck.expect("the detection");
    assert_eq!((&stuck["effectiveness"], &stuck["false_positive_rate"]), (&0.0.into(), &0.0.into()), "{stuck}");

    // The exported trace and the stored loop give the same comparison of two files.
    let trace = run(&["loops", "export", id, "--trace"]).await;
    assert_eq!(trace.lines().count(), paused.records().len() + 1);
    run(&["loops", "export", id, "--trace", "exported.jsonl"]).await;
    assert_eq!(std::fs::read_to_string(folder.join("exported.jsonl")).expect("a file"), trace);
    let both = ["replay", id, "exported.jsonl", "--compare", "ralph-control.yaml", "other.yaml", "--json"];
    let lines: Vec<Value> = run(&both).await.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [stored, exported, totals] = lines.as_slice() else { panic!("three lines: {lines:?}") };
    assert_eq!((stored["trace"].as_str(), exported["trace"].as_str()), (Some(id), Some("exported")));
    assert_eq!((&stored["a"], &stored["b"]), (&exported["a"], &exported["b"]));
    assert_eq!((&stored["a"]["ended"]["by"], &totals["a"]["loops"]), (&"pause".into(), &2.into()));
    assert_ne!(stored["a"], stored["b"], "the settings differ");
    process.kill().await.expect("stopped");
}

#[tokio::test]
async fn invalid_trace_is_reported_with_file_and_line() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("broken.jsonl"), "{\"iteration\":1}\n{\"iteration\":\n").expect("written");
    std::fs::write(folder.path().join("good.jsonl"), stuck()).expect("written");
    std::fs::write(folder.path().join("typo.yaml"), "control: {base_profle: x}\n").expect("written");
    let cases: [(&[&str], &str); 6] = [
        (&["replay", "broken.jsonl"], "broken.jsonl: line 2: "),
        (&["replay", "missing.jsonl"], "missing.jsonl: could not read"),
        (&["replay", "good.jsonl", "--config", "typo.yaml"], "did you mean `base_profile`"),
        (&["replay", "good.jsonl", "--config", "none.yaml"], "none.yaml: could not read"),
        (&["replay", "good.jsonl", "--compare", "typo.yaml", "typo.yaml"], "typo.yaml: `control.base_profle` is \"x\""),
        (&["replay", "good.jsonl", "--compare", "typo.yaml"], "--compare"),
    ];
    for (arguments, reason) in cases {
        let output = ralph(folder.path(), arguments).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", utf8(&output.stdout));
        assert!(utf8(&output.stderr).contains(reason), "{arguments:?}: {}", utf8(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}
