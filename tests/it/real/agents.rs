//! The backends `codex`, `gemini` and `opencode` with the real programs, and a model that says what the test wants it
//! to. Each story is told for each of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_bot::agent::{AgentEvent, AgentOutcome, AgentRun, AgentStatus, BackendKind, BackendSettings, Resumed, build};
use ralph_bot::process::sandbox::Tier;
use ralph_bot::process::{Cookie, survivors};
use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::provider::{Model, Provider};
use crate::harness::sandbox;
use crate::parts::{npm_part, program, setting};

const KEY: &str = "sk-a-key-of-the-tests";
const PROMPT: &str = "Make the file and say when you are done.\n";
const COMMAND: &str = "echo made by the agent > made.txt";
/// Longest run; a run that ends by itself needs a few seconds, and one that waits for its provider a minute.
const WALL: Duration = Duration::from_secs(180);
/// Milliseconds after which a provider that refuses everything must have been given up, on a busy machine.
const GIVEN_UP_MS: u64 = 150_000;

/// An agent as it is installed.
struct Agent {
    preset: &'static str,
    package: &'static str,
    /// Its program, from its package; run by Node where it is a script.
    program: &'static str,
    model: &'static str,
    /// How it runs a command.
    command: fn() -> (&'static str, Value),
    environment: fn(&str) -> Vec<(&'static str, String)>,
}

const CODEX: Agent = Agent {
    preset: "codex",
    package: "@openai/codex@0.169.0",
    program: "bin/codex.js",
    model: "gpt-5",
    command: || ("exec_command", json!({ "cmd": COMMAND })),
    environment: |url| vec![("CODEX_API_KEY", KEY.to_owned()), ("OPENAI_BASE_URL", format!("{url}/v1"))],
};

const GEMINI: Agent = Agent {
    preset: "gemini",
    package: "@google/gemini-cli@0.61.0",
    program: "bundle/gemini.js",
    model: "gemini-2.5-flash",
    command: || ("run_shell_command", json!({ "command": COMMAND })),
    environment: |url| vec![("GEMINI_API_KEY", KEY.to_owned()), ("GOOGLE_GEMINI_BASE_URL", url.to_owned())],
};

const OPENCODE: Agent = Agent {
    preset: "opencode",
    package: "opencode-ai@1.18.33",
    program: "bin/opencode.exe",
    model: "stub/m",
    command: || ("bash", json!({ "command": COMMAND, "description": "Make the file" })),
    environment: |url| {
        let options = json!({ "baseURL": format!("{url}/v1"), "apiKey": "{env:STUB_KEY}" });
        let provider = json!({ "npm": "@ai-sdk/openai-compatible", "options": options, "models": { "m": {} } });
        let config = json!({ "provider": { "stub": provider } });
        vec![("STUB_KEY", KEY.to_owned()), ("OPENCODE_CONFIG_CONTENT", config.to_string())]
    },
};

/// A tree, a scratch folder and the program.
struct Place {
    agent: Agent,
    folder: TempDir,
    package: PathBuf,
    node: PathBuf,
    sandboxed: bool,
    mark: String,
}

impl Place {
    /// `None` where a program is missing.
    async fn new(agent: Agent) -> Option<Self> {
        let package = npm_part(agent.package)?.canonicalize().expect("the package is there");
        let node = program(&["node"], "install Node.js 20 or later")?;
        let folder = tempfile::Builder::new().prefix("ralph-agent-").tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("tree")).expect("a tree");
        let sandboxed = sandbox().await.tier == Tier::A;
        Some(Self { agent, folder, package, node, sandboxed, mark: uuid::Uuid::now_v7().simple().to_string() })
    }

    fn made(&self) -> PathBuf {
        self.folder.path().join("tree/made.txt")
    }

    fn run(&self, wall: Duration) -> AgentRun {
        AgentRun {
            prompt: PROMPT.into(),
            tree: self.folder.path().join("tree"),
            read_only: Vec::new(),
            scratch: self.folder.path().join("scratch"),
            loop_id: "L7".into(),
            iteration: 1,
            model: Some(self.agent.model.into()),
            wall,
            idle: wall,
            max_turns: None,
            max_cost: None,
            session: None,
            keep: None,
            mcp_config: None,
            cookie: Cookie::new("cli-test", &self.mark, 1),
            sandboxed: self.sandboxed,
            network: true,
        }
    }

    fn settings(&self, url: &str) -> BackendSettings {
        let path = setting("PATH").unwrap_or_default();
        let kind = BackendKind::Preset(self.agent.preset.into());
        let mut settings = BackendSettings::new(kind, self.folder.path(), path);
        let program = self.package.join(self.agent.program).display().to_string();
        settings.command =
            if program.ends_with(".js") { vec![self.node.display().to_string(), program] } else { vec![program] };
        // Its parts lie beside it.
        settings.tools = self
            .package
            .ancestors()
            .find(|folder| folder.ends_with("node_modules"))
            .map(Path::to_owned)
            .into_iter()
            .collect();
        let environment = (self.agent.environment)(url);
        settings.env = environment.into_iter().map(|(name, value)| (name.into(), SecretString::from(value))).collect();
        settings
    }

    /// Runs the agent against a provider.
    async fn outcome(
        &self,
        provider: &Provider,
        wall: Duration,
        cancel: &CancellationToken,
    ) -> (AgentOutcome, Vec<AgentEvent>) {
        self.outcome_of(self.run(wall), provider, cancel).await
    }

    async fn outcome_of(
        &self,
        run: AgentRun,
        provider: &Provider,
        cancel: &CancellationToken,
    ) -> (AgentOutcome, Vec<AgentEvent>) {
        let backend = build(self.agent.preset, self.settings(&provider.url)).expect("a backend");
        let mut events = Vec::new();
        let outcome = backend.run(run, cancel, &mut |event| events.push(event)).await;
        let left = survivors(&format!("cli-test-{}", self.mark));
        assert!(left.is_empty(), "processes are left: {left:?}");
        assert!(!outcome.output.contains(KEY), "the key is in the output");
        (outcome, events)
    }
}

/// It does its work, and what it used is read.
async fn works(agent: Agent) {
    let Some(place) = Place::new(agent).await else { return };
    let (tool, input) = (place.agent.command)();
    let provider = Provider::start(Model::Calls(tool, input)).await;
    let (outcome, events) = place.outcome(&provider, WALL, &CancellationToken::new()).await;
    assert_eq!(outcome.status, AgentStatus::Finished, "{}", outcome.output);
    assert_eq!(std::fs::read_to_string(place.made()).expect("the file"), "made by the agent\n", "{}", outcome.output);
    assert_eq!(outcome.final_message, "All done.");
    assert_eq!((outcome.tool_calls, outcome.tool_errors), (1, 0), "{:?}", outcome.errors);
    assert_eq!((outcome.tokens_in, outcome.tokens_out, outcome.cache_read), (246, 100, 6), "{}", outcome.output);
    let session = outcome.session.expect("a session");
    assert!(events.contains(&AgentEvent::Session { id: session }), "{events:?}");
    let told = |event: &AgentEvent| matches!(event, AgentEvent::ToolCalled { input, .. } if input.contains(COMMAND));
    assert!(events.iter().any(told), "{events:?}");
    let asked = provider.messages();
    assert!(asked.iter().any(|(_, body)| body.to_string().contains(PROMPT.trim())), "the prompt arrives");
}

/// It goes on with its session in a fresh home, and says so where it does not know it.
async fn remembers(agent: Agent) {
    let Some(place) = Place::new(agent).await else { return };
    let (tool, input) = (place.agent.command)();
    let provider = Provider::start(Model::Calls(tool, input)).await;
    let none = CancellationToken::new();
    let kept = |n: u32| place.folder.path().join("kept").join(n.to_string());
    let (first, _) = place.outcome_of(AgentRun { keep: Some(kept(1)), ..place.run(WALL) }, &provider, &none).await;
    assert!(first.status == AgentStatus::Finished && first.session_kept, "{}", first.output);
    assert_eq!(first.context_tokens, Some(173), "the last turn fills the context: {}", first.output);
    let asked = provider.messages().len();
    let session = Resumed { id: first.session.expect("a session"), files: kept(1), account: first.account };
    let run = AgentRun {
        prompt: "Go on with it.".into(),
        session: Some(session.clone()),
        keep: Some(kept(2)),
        ..place.run(WALL)
    };
    let (second, _) = place.outcome_of(run, &provider, &none).await;
    assert!(second.status == AgentStatus::Finished && second.session_kept, "{}", second.output);
    assert_eq!(second.session, Some(session.id.clone()));
    assert_eq!((second.tokens_in, second.tokens_out), (123, 50), "one turn: {}", second.output);
    let told: String = provider.messages()[asked..].iter().map(|(_, body)| body.to_string()).collect();
    assert!(told.contains(PROMPT.trim()) && told.contains("All done.") && told.contains("Go on with it."), "{told}");
    // Its files are gone.
    std::fs::remove_dir_all(kept(1)).expect("they were there");
    std::fs::create_dir_all(kept(1)).expect("a folder");
    let asked = provider.messages().len();
    let run = AgentRun { session: Some(session), keep: Some(kept(3)), ..place.run(WALL) };
    let (unknown, _) = place.outcome_of(run, &provider, &none).await;
    assert!(unknown.session_unknown && !unknown.session_kept, "{:?}: {}", unknown.status, unknown.output);
    assert_eq!(provider.messages().len(), asked, "nobody was asked");
}

/// What comes of a run against this model, which must be given up in time.
async fn ended(agent: Agent, model: Model) -> Option<AgentOutcome> {
    let place = Place::new(agent).await?;
    let provider = Provider::start(model).await;
    let (outcome, _) = place.outcome(&provider, WALL, &CancellationToken::new()).await;
    assert!(outcome.duration_ms < GIVEN_UP_MS, "it goes on for {} ms", outcome.duration_ms);
    let asked = provider.messages().len();
    assert!((1..=12).contains(&asked), "it asks {asked} times");
    assert!(!outcome.signals.succeeded, "{:?}", outcome.signals);
    assert!(!outcome.signals.messages.is_empty(), "{:?}", outcome.signals);
    Some(outcome)
}

async fn limited(agent: Agent, model: Model) -> Option<AgentOutcome> {
    let outcome = ended(agent, model).await?;
    assert!(matches!(outcome.status, AgentStatus::Limited { .. }), "{:?}: {}", outcome.status, outcome.output);
    Some(outcome)
}

async fn needs_somebody(agent: Agent) {
    let Some(outcome) = ended(agent, Model::Refuses(401)).await else { return };
    assert!(matches!(outcome.status, AgentStatus::Unavailable { .. }), "{:?}: {}", outcome.status, outcome.output);
    assert_eq!(outcome.signals.status, Some(401), "{:?}", outcome.signals);
}

/// A provider that talks nonsense makes no success.
async fn survives_nonsense(agent: Agent) {
    let Some(outcome) = ended(agent, Model::Babbles).await else { return };
    let failed = matches!(outcome.status, AgentStatus::Failed { .. } | AgentStatus::Limited { .. });
    assert!(failed, "{:?}: {}", outcome.status, outcome.output);
}

/// One that never answers is left at the time limit, and one that is asked to stops at once.
async fn is_ended(agent: Agent, again: Agent) {
    let Some(place) = Place::new(agent).await else { return };
    let provider = Provider::start(Model::Hangs).await;
    let (outcome, _) = place.outcome(&provider, Duration::from_secs(25), &CancellationToken::new()).await;
    assert!(matches!(outcome.status, AgentStatus::TimedOut { .. }), "{:?}", outcome.status);
    let Some(place) = Place::new(again).await else { return };
    let provider = Provider::start(Model::Hangs).await;
    let (cancel, mut asked) = (CancellationToken::new(), provider.asked.clone());
    let end = async {
        asked.wait_for(|asked| *asked > 0).await.expect("the provider runs");
        cancel.cancel();
    };
    let ((outcome, _), ()) = tokio::join!(place.outcome(&provider, WALL, &cancel), end);
    assert_eq!(outcome.status, AgentStatus::Cancelled);
}

/// The same stories for each agent.
macro_rules! stories {
    ($name:ident, $agent:expr) => {
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn it_does_its_work_and_what_it_used_is_read() {
                works($agent).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn it_goes_on_with_its_session_in_a_fresh_home() {
                remembers($agent).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_rate_limit_is_a_limit() {
                limited($agent, Model::Refuses(429)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn trouble_of_the_provider_is_waited_out() {
                limited($agent, Model::Refuses(500)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_wrong_key_needs_somebody() {
                needs_somebody($agent).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn nonsense_is_no_answer() {
                survives_nonsense($agent).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn it_is_ended_at_its_limit_and_in_the_middle_of_a_question() {
                is_ended($agent, $agent).await;
            }
        }
    };
}

stories!(codex, CODEX);
stories!(gemini, GEMINI);
stories!(opencode, OPENCODE);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_plan_s_limit_is_kept() {
    let error = json!({ "type": "usage_limit_reached", "message": "The limit is reached", "resets_at": 1_900_000_000 });
    let Some(outcome) = limited(CODEX, Model::Tells(429, json!({ "error": error }), "1")).await else { return };
    assert!(outcome.signals.messages.iter().any(|m| m.contains("Mar 17th, 2030")), "{:?}", outcome.signals);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_wait_that_a_provider_asks_for_is_not_sat_out() {
    let error = json!({ "type": "rate_limit_error", "message": "Slow down" });
    let Some(outcome) = limited(OPENCODE, Model::Tells(429, json!({ "error": error }), "86400")).await else { return };
    assert!(outcome.signals.messages.iter().any(|m| m.contains("Slow down")), "{:?}", outcome.signals);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_s_quota_is_given_up_at_once() {
    let violation = json!({ "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier" });
    let details = json!([
        { "@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation] },
        { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s" },
    ]);
    let error = json!({ "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "No quota left", "details": details });
    let Some(outcome) = limited(GEMINI, Model::Tells(429, json!({ "error": error }), "1")).await else { return };
    assert_eq!(outcome.signals.code.as_deref(), Some("TerminalQuotaError"), "{:?}", outcome.signals);
    assert_eq!(outcome.signals.status, Some(429));
}
