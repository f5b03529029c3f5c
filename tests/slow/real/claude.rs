//! Backend `claude` with the real Claude Code and a scripted model.

use std::path::Path;
use std::time::Duration;

use ralph_bot::agent::{AgentEvent, AgentOutcome, AgentRun, AgentStatus, ResumedSession};
use ralph_bot::domain::model::ids::{Money, Timestamp};
use ralph_bot::domain::providers::limit::classify;
use ralph_bot::domain::trust::visible::{HiddenKind, HiddenPath};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::place::{InstalledAgent, InstalledAgentFixture, KEY, PROMPT, RealAgentProgram, WALL};
use super::provider::{ModelScript, ProviderServer};
use crate::harness::session_memory::Served;

/// Maximum time in milliseconds until the agent gives up on a provider that refuses everything, on a busy machine: three
/// retries.
const GIVEN_UP_MS: u64 = 60_000;

pub const CLAUDE: InstalledAgent = InstalledAgent {
    preset: "claude",
    program: || RealAgentProgram::of_npm("@anthropic-ai/claude-code@2.1.197", "bin/claude.exe"),
    model: "claude-sonnet-4-5",
    // Its tool wants the file's whole path, which each story gives it.
    works: || write_to(Path::new("made.txt")),
    environment: |url| vec![("ANTHROPIC_BASE_URL", url.to_owned()), ("ANTHROPIC_API_KEY", KEY.to_owned())],
    keys: &[],
    session_files: &[],
};

fn write_to(path: &Path) -> ModelScript {
    ModelScript::Calls("Write", json!({ "file_path": path, "content": "made by the agent\n" }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_completes_and_usage_is_read() {
    let Some(place) = InstalledAgentFixture::new(CLAUDE).await else { return };
    let made = place.made();
    let provider = ProviderServer::start(write_to(&made)).await;
    let (outcome, events) = place.outcome(&provider, WALL, &CancellationToken::new()).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{}", outcome.output);
    assert_eq!(std::fs::read_to_string(&made).expect("the file"), "made by the agent\n");
    assert_eq!(outcome.final_message, "All done.");
    assert_eq!((outcome.tool_calls, outcome.tool_errors), (1, 0), "{:?}", outcome.errors);
    assert_eq!((outcome.tokens_in, outcome.tokens_out), (246, 100));
    assert!(outcome.cost.is_some_and(|cost| cost > Money(0)), "{:?}", outcome.cost);
    let session = outcome.session.expect("a session");
    assert!(events.contains(&AgentEvent::Session { id: session }), "{events:?}");
    let path = made.display().to_string();
    assert!(events.contains(&AgentEvent::ToolCalled { name: "Write".into(), input: path.clone() }), "{events:?}");
    assert!(events.contains(&AgentEvent::FileChanged { path }), "{events:?}");
    let requests = provider.messages();
    assert_eq!(requests.len(), 2, "one question a step");
    let (headers, first) = &requests[0];
    assert_eq!(headers["x-api-key"], KEY);
    assert_eq!(first["model"], "claude-sonnet-4-5");
    assert!(first["messages"].to_string().contains(PROMPT.trim()), "the prompt arrives: {}", first["messages"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_resumes_in_new_home() {
    let Some(place) = InstalledAgentFixture::new(CLAUDE).await else { return };
    let made = place.made();
    let provider = ProviderServer::start(write_to(&made)).await;
    let none = CancellationToken::new();
    let (first_kept, kept) = (place.folder.path().join("kept/1"), place.folder.path().join("kept/2"));
    let run = AgentRun { keep: Some(first_kept.clone()), ..place.run(WALL) };
    let (first, _) = place.outcome_of(run, &provider, &none).await;
    assert!(first.status == AgentStatus::Finished && first.session_kept, "{}", first.output);
    // A turn reads 123 tokens; the number of written tokens is reported at its end.
    assert!(first.context_tokens.is_some_and(|tokens| (123..=173).contains(&tokens)), "{:?}", first.context_tokens);
    assert_eq!(first.context_window, Some(200_000));
    assert!(!first_kept.join(".claude.json").exists(), "its settings are not kept");

    let id = first.session.clone().expect("a session");
    let session = ResumedSession { id: id.clone(), files: first_kept, account: first.account };
    let run = AgentRun {
        prompt: "Go on with it.".into(),
        session: Some(session.clone()),
        keep: Some(kept.clone()),
        ..place.run(WALL)
    };
    let (second, _) = place.outcome_of(run, &provider, &none).await;
    assert!(second.status == AgentStatus::Finished && second.session_kept, "{}", second.output);
    assert_eq!(second.session, Some(id));
    let requests = provider.messages();
    assert_eq!(requests.len(), 3, "two turns, then one");
    let conversation = requests[2].1["messages"].to_string();
    assert!(
        conversation.contains(PROMPT.trim())
            && conversation.contains("All done.")
            && conversation.contains("Go on with it."),
        "{conversation}"
    );
    // One turn, without the earlier cost of the session.
    assert_eq!((second.tokens_in, second.tokens_out), (123, 50), "{}", second.output);
    assert_eq!(second.cost.map(|cost| cost.0 * 2), first.cost.map(|cost| cost.0 / 2 * 2), "{}", second.output);

    let session = ResumedSession { id: "11111111-54c7-4bca-994c-e5ab76a2e6ab".into(), ..session };
    let run = AgentRun { session: Some(session), keep: Some(place.folder.path().join("kept/3")), ..place.run(WALL) };
    let (unknown, _) = place.outcome_of(run, &provider, &none).await;
    assert!(unknown.session_unknown && !unknown.session_kept, "{:?}: {}", unknown.status, unknown.output);
    assert_eq!(provider.messages().len(), 3, "nobody was asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsandboxed_agent_may_edit_but_not_run_commands() {
    let Some(mut place) = InstalledAgentFixture::new(CLAUDE).await else { return };
    place.sandboxed = false;
    let made = place.made();
    let command = json!({ "command": format!("sh -c 'date > {}'", made.display()), "description": "Make the file" });
    let provider = ProviderServer::start(ModelScript::Calls("Bash", command)).await;
    let (outcome, _) = place.outcome(&provider, WALL, &CancellationToken::new()).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{}", outcome.output);
    assert_eq!(outcome.denied, ["Bash"]);
    assert!(!made.exists(), "the command did not run");
    let provider = ProviderServer::start(write_to(&made)).await;
    let (outcome, _) = place.outcome(&provider, WALL, &CancellationToken::new()).await;
    assert_eq!(outcome.denied, [] as [&str; 0], "{}", outcome.output);
    assert!(made.exists(), "the file is made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sandboxed_agent_queries_session_memory() {
    let Some(mut place) = InstalledAgentFixture::new(CLAUDE).await else { return };
    let served = Served::start(false).await;
    let config = served.config_file();
    place.args = vec!["--mcp-config".into(), config.display().to_string()];
    if !place.sandboxed {
        place.args.extend(["--allowedTools".to_owned(), "mcp__session_memory".to_owned()]);
    }
    place.read_only = vec![config, served.socket.clone(), env!("CARGO_BIN_EXE_ralph-bot").into()];
    place.hidden = vec![HiddenPath { path: served.folder(), kind: HiddenKind::Folder, name: "`data_dir`".to_owned() }];
    let search = json!({ "query": "lazily.*walrus", "tier": "raw" });
    let provider = ProviderServer::start(ModelScript::Calls("mcp__session_memory__search", search)).await;
    let (outcome, _) = place.outcome(&provider, WALL, &CancellationToken::new()).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{}", outcome.output);
    assert_eq!((outcome.tool_calls, outcome.tool_errors), (1, 0), "{:?}", outcome.errors);
    let requests = provider.messages();
    assert_eq!(requests.len(), 2, "one question a step");
    let offered = requests[0].1["tools"].to_string();
    assert!(offered.contains("mcp__session_memory__search"), "the tools are offered: {offered}");
    let answer =
        requests[1].1["messages"].as_array().and_then(|messages| messages.last()).expect("a message").to_string();
    assert!(answer.contains("Decided to parse lazily") && answer.contains("iteration 1"), "{answer}");
    assert!(!outcome.output.contains(served.token.as_str()), "the token is not told");
}

/// Runs the agent against a provider that refuses with a status.
async fn refused(status: u16) -> Option<AgentOutcome> {
    given_up(ModelScript::Refuses(status)).await
}

/// Runs the agent against a provider that never answers usefully.
async fn given_up(model: ModelScript) -> Option<AgentOutcome> {
    given_up_by(CLAUDE, model).await
}

async fn given_up_by(agent: InstalledAgent, model: ModelScript) -> Option<AgentOutcome> {
    let place = InstalledAgentFixture::new(agent).await?;
    let provider = ProviderServer::start(model).await;
    let (outcome, _) = place.outcome(&provider, WALL, &CancellationToken::new()).await;
    assert!(outcome.duration_ms < GIVEN_UP_MS, "it goes on for {} ms", outcome.duration_ms);
    let request_count = provider.messages().len();
    assert!((1..=4).contains(&request_count), "it asks {request_count} times");
    Some(outcome)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_limit_is_recognized() {
    let Some(outcome) = refused(429).await else { return };
    assert!(matches!(outcome.status, AgentStatus::Limited { .. }), "{:?}: {}", outcome.status, outcome.output);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_limit_end_is_read() {
    const HEADERS: &[(&str, &str)] = &[
        ("anthropic-ratelimit-unified-status", "rejected"),
        ("anthropic-ratelimit-unified-reset", "1900000000"),
        ("anthropic-ratelimit-unified-representative-claim", "five_hour"),
    ];
    let error =
        json!({ "type": "rate_limit_error", "message": "This request would exceed your account's rate limit." });
    let refusal = ModelScript::Tells(429, json!({ "type": "error", "error": error }), HEADERS);
    // Plan limits apply to logins; with an API key they are not reported.
    let environment: fn(&str) -> Vec<(&'static str, String)> =
        |url| vec![("ANTHROPIC_BASE_URL", url.to_owned()), ("CLAUDE_CODE_OAUTH_TOKEN", KEY.to_owned())];
    let Some(outcome) = given_up_by(InstalledAgent { environment, ..CLAUDE }, refusal).await else { return };
    let limit = classify(&outcome.signals, Timestamp(1_899_990_000_000)).expect("a limit");
    assert_eq!(limit.until, Some(Timestamp(1_900_000_000_000)), "{:?} {}", outcome.signals, outcome.output);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_answer_is_an_error() {
    let Some(outcome) = given_up(ModelScript::Babbles).await else { return };
    let failed = matches!(outcome.status, AgentStatus::Failed { .. } | AgentStatus::Limited { .. });
    assert!(failed, "{:?}: {}", outcome.status, outcome.output);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provider_errors_are_retried() {
    let Some(outcome) = refused(500).await else { return };
    assert!(matches!(outcome.status, AgentStatus::Limited { .. }), "{:?}: {}", outcome.status, outcome.output);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_key_needs_a_person() {
    let Some(outcome) = refused(401).await else { return };
    assert!(matches!(outcome.status, AgentStatus::Unavailable { .. }), "{:?}: {}", outcome.status, outcome.output);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_to_unresponsive_provider_times_out() {
    let Some(place) = InstalledAgentFixture::new(CLAUDE).await else { return };
    let provider = ProviderServer::start(ModelScript::Hangs).await;
    let (outcome, _) = place.outcome(&provider, Duration::from_secs(8), &CancellationToken::new()).await;
    assert!(matches!(outcome.status, AgentStatus::TimedOut { .. }), "{:?}", outcome.status);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_is_stopped_on_cancel() {
    let Some(place) = InstalledAgentFixture::new(CLAUDE).await else { return };
    let provider = ProviderServer::start(ModelScript::Hangs).await;
    let cancel = CancellationToken::new();
    let mut request_count = provider.asked.clone();
    let end = async {
        request_count.wait_for(|request_count| *request_count > 0).await.expect("the provider runs");
        cancel.cancel();
    };
    let ((outcome, _), ()) = tokio::join!(place.outcome(&provider, WALL, &cancel), end);
    assert_eq!(outcome.status, AgentStatus::Cancelled);
}
