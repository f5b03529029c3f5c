//! Tests of check runs, statuses and logs.

use serde_json::{Value, json};

use super::sample::answer;
use super::*;

const SHA: &str = "0123456789abcdef0123456789abcdef01234567";
const LOG: &str = "2026-01-31T12:00:00.0000000Z ##[group]Run cargo test\n\
                   2026-01-31T12:00:01.0000000Z test adds ... FAILED\n\
                   2026-01-31T12:00:02.0000000Z ##[error]Process completed with exit code 101.\n\
                   2026-01-31T12:00:03.0000000Z Post job cleanup.\n";

fn scripted(transport: &ContractTransport, runs: Value, statuses: Value) {
    let runs_at = "/repos/{owner}/{repo}/commits/{ref}/check-runs";
    let body = answer("GET", runs_at, 200, json!({ "total_count": 1, "check_runs": runs }));
    transport.on("GET", &format!("/repos/acme/app/commits/{SHA}/check-runs?filter=latest&per_page=100"), 200, body);
    scripted_statuses(transport, statuses);
}

fn scripted_statuses(transport: &ContractTransport, statuses: Value) {
    let status_at = "/repos/{owner}/{repo}/commits/{ref}/status";
    let body = answer("GET", status_at, 200, json!({ "statuses": statuses }));
    transport.on("GET", &format!("/repos/acme/app/commits/{SHA}/status?per_page=100"), 200, body);
}

fn run(id: u64, conclusion: Option<&str>, app: &str, output: Value) -> Value {
    let status = if conclusion.is_some() { "completed" } else { "in_progress" };
    let mut run = json!({
        "id": id, "name": format!("run {id}"), "status": status, "html_url": format!("https://page/{id}"),
        "app": { "slug": app }, "output": output, "head_sha": SHA, "check_suite": { "id": 1 },
        "details_url": format!("https://github.test/acme/app/actions/runs/1/job/{id}?pr=1"),
    });
    run["conclusion"] = json!(conclusion);
    run
}

#[tokio::test]
async fn conclusions_are_counted_and_failures_have_logs() {
    let (github, transport) = with_token();
    let quiet = json!({ "title": null, "summary": null, "text": null, "annotations_count": 0 });
    let remarked = json!({ "title": "2 problems", "summary": "lint", "text": null, "annotations_count": 1 });
    let runs = json!([
        run(1, Some("success"), "github-actions", quiet.clone()),
        run(2, Some("skipped"), "github-actions", quiet.clone()),
        run(3, Some("neutral"), "github-actions", quiet.clone()),
        run(4, Some("failure"), "github-actions", quiet.clone()),
        run(5, Some("timed_out"), "linter", remarked.clone()),
        run(6, Some("cancelled"), "github-actions", quiet.clone()),
        run(8, Some("action_required"), "github-actions", quiet),
    ]);
    let status = |state: &str, context: &str, text: &str| json!({ "state": state, "context": context, "description": text, "target_url": "https://ci/1" });
    let statuses = json!([status("success", "a", ""), status("success", "b", ""), status("error", "c", "no runner")]);
    scripted(&transport, runs, statuses);
    transport.on_with(
        "GET",
        "/repos/acme/app/actions/jobs/4/logs",
        302,
        &[("location", "https://storage.test/logs/4?sig=x")],
        Value::Null,
    );
    transport.outside("GET", "/logs/{id}").on_raw("GET", "/logs/4?sig=x", 200, &[], LOG);
    let template = "/repos/{owner}/{repo}/check-runs/{check_run_id}/annotations";
    let remark = json!([{ "path": "src/lib.rs", "start_line": 3, "annotation_level": "failure", "message": "unused" }]);
    let body = answer("GET", template, 200, remark);
    transport.on("GET", "/repos/acme/app/check-runs/5/annotations?per_page=100", 200, body);

    let state = github.ci_results(&repo(), &Sha::parse(SHA).unwrap()).await.unwrap();
    assert_eq!((state.passed, state.pending), (["run 1", "a", "b"].map(str::to_owned).to_vec(), vec![]));
    assert_eq!(state.skipped, ["run 2", "run 3", "run 6", "run 8"]);
    assert!(state.from_workflows);
    let failed: Vec<_> = state.failed.iter().map(|f| (f.name.as_str(), f.url.as_str(), f.log.as_str())).collect();
    let step = "##[group]Run cargo test\ntest adds ... FAILED\n##[error]Process completed with exit code 101.";
    assert_eq!(
        failed,
        [
            ("run 4", "https://page/4", step),
            ("run 5", "https://page/5", "2 problems\nlint\nsrc/lib.rs:3: failure: unused"),
            ("c", "https://ci/1", "no runner"),
        ]
    );
    // While something is pending, no log is read.
    let runs = json!([
        run(3, None, "github-actions", json!({ "annotations_count": 0 })),
        run(4, Some("failure"), "github-actions", json!({ "annotations_count": 0 })),
    ]);
    scripted(&transport, runs, json!([]));
    let state = github.ci_results(&repo(), &Sha::parse(SHA).unwrap()).await.unwrap();
    assert_eq!(
        (state.pending.as_slice(), state.failed[0].log.as_str()),
        (&["run 3".to_owned()][..], "ended as failure")
    );
    let foreign_request = transport.seen().into_iter().find(|seen| seen.target.starts_with("/logs/")).unwrap();
    assert!(foreign_request.headers.is_empty(), "nothing of ours goes to the storage: {:?}", foreign_request.headers);
    transport.finish();
}

/// GitHub gives old check runs this conclusion, which its API description does not list.
#[tokio::test]
async fn stale_check_run_does_not_count() {
    let (github, transport) = with_token();
    scripted_statuses(&transport, json!([]));
    let output = json!({ "title": null, "summary": null, "text": null, "annotations_count": 0 });
    let runs = ["stale", "success"].into_iter().zip(1..);
    let runs: Vec<Value> = runs.map(|(end, id)| run(id, Some(end), "github-actions", output.clone())).collect();
    let body = json!({ "total_count": runs.len(), "check_runs": runs }).to_string();
    let target = format!("/repos/acme/app/commits/{SHA}/check-runs?filter=latest&per_page=100");
    transport.on_raw("GET", &target, 200, &[], &body);
    let state = github.ci_results(&repo(), &Sha::parse(SHA).unwrap()).await.unwrap();
    assert_eq!((state.passed.len(), state.pending.len(), state.failed), (1, 0, Vec::new()));
}

#[tokio::test]
async fn logs_are_fetched_for_a_limited_number_of_failures() {
    let (github, transport) = with_token();
    let output = json!({ "title": "bad", "summary": null, "text": null, "annotations_count": 0 });
    let runs: Vec<Value> = (1..=30).map(|id| run(id, Some("failure"), "github-actions", output.clone())).collect();
    scripted(&transport, json!(runs), json!([]));
    for id in 1..=10 {
        transport.on_raw("GET", &format!("/repos/acme/app/actions/jobs/{id}/logs"), 404, &[], "");
    }
    let state = github.ci_results(&repo(), &Sha::parse(SHA).unwrap()).await.unwrap();
    assert_eq!(state.failed.len(), 30);
    assert!(state.failed.iter().all(|failure| failure.log == "bad"));
    assert_eq!(transport.seen().len(), 12);
}

#[tokio::test]
async fn rate_limit_during_log_download_is_an_error() {
    let (github, transport) = with_token();
    let output = json!({ "title": null, "summary": null, "text": null, "annotations_count": 0 });
    scripted(&transport, json!([run(4, Some("failure"), "github-actions", output)]), json!([]));
    let limited = [("retry-after", "30")];
    transport.on_raw("GET", "/repos/acme/app/actions/jobs/4/logs", 429, &limited, "{}");
    let failure = github.ci_results(&repo(), &Sha::parse(SHA).unwrap()).await.unwrap_err();
    assert!(matches!(failure.kind, ForgeErrorKind::RateLimited { .. }), "{failure:?}");
}
