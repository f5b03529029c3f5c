//! Installed coding agent with a tree and a scratch folder, and its runs against a provider on loopback.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::HeaderValue;
use ralph_bot::agent::{AgentEvent, AgentOutcome, AgentRun, BackendKind, BackendSetup, RunPurpose, build};
use ralph_bot::domain::trust::egress::Hosts;
use ralph_bot::domain::trust::visible::HiddenPath;
use ralph_bot::process::sandbox::Network;
use ralph_bot::process::sandbox::SandboxSettings;
use ralph_bot::process::{Cookie, EgressSettings, RefusedHosts, SandboxTier, survivors};
use secrecy::SecretString;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::provider::{ModelScript, ProviderServer};
use crate::harness::parts::{command, npm_part, output, program, setting};
use crate::harness::sandbox;

pub const ACP: &str = "acp";
pub const KEY: &str = "sk-a-key-of-the-tests";
/// File to which an agent that can run commands writes its environment.
pub const ENVIRONMENT: &str = "env.txt";
pub const PROMPT: &str = "Make the file and say when you are done.\n";
/// Time limit of a run; a run takes seconds, or a minute if it waits for its provider.
pub const WALL: Duration = Duration::from_secs(180);

/// Installed coding agent.
#[derive(Clone, Copy)]
pub struct InstalledAgent {
    /// Name of the preset; [`ACP`] for a command that speaks the Agent Client Protocol.
    pub preset: &'static str,
    /// Program and arguments; `None` if a part is missing.
    pub program: fn() -> Option<RealAgentProgram>,
    /// Name of the model for this agent.
    pub model: &'static str,
    /// Behavior of a model that writes `made.txt` and then reports completion.
    pub works: fn() -> ModelScript,
    /// Environment of the agent for a provider at this address.
    pub environment: fn(&str) -> Vec<(&'static str, String)>,
    /// Variables with a key, each with the variable that holds the provider's address, unknown to the preset.
    pub keys: &'static [(&'static str, &'static str)],
    /// Files of its sessions, unknown to the preset.
    pub session_files: &'static [&'static str],
}

/// Program with its first arguments, and the folders that it needs.
pub struct RealAgentProgram {
    pub command: Vec<String>,
    pub tools: Vec<PathBuf>,
}

impl RealAgentProgram {
    /// Program of an npm package, run by Node if it is a script.
    pub fn of_npm(package: &str, path: &str) -> Option<Self> {
        let package = npm_part(package)?.canonicalize().expect("the package is there");
        let program_file = package.join(path).display().to_string();
        let command = if path.ends_with(".js") {
            vec![program(&["node"], "install Node.js 20 or later")?.display().to_string(), program_file]
        } else {
            vec![program_file]
        };
        // Its parts lie beside it.
        let tools = package.ancestors().filter(|folder| folder.ends_with("node_modules")).map(Path::to_owned).collect();
        Some(Self { command, tools })
    }
}

/// Tree, scratch folder and program of an agent.
pub struct InstalledAgentFixture {
    pub agent: InstalledAgent,
    pub folder: TempDir,
    pub sandboxed: bool,
    program: RealAgentProgram,
    mark: String,
    /// Further arguments, and the paths that the agent may read for them.
    pub args: Vec<String>,
    pub read_only: Vec<PathBuf>,
    /// Folders of the service.
    pub hidden: Vec<HiddenPath>,
}

impl InstalledAgentFixture {
    /// Creates the folders; `None` if a program is missing.
    pub async fn new(agent: InstalledAgent) -> Option<Self> {
        let program = (agent.program)()?;
        let folder = tempfile::Builder::new().prefix("ralph-agent-").tempdir().expect("a folder");
        let tree = folder.path().join("tree");
        output(command("git").args(["init", "--quiet"]).arg(&tree)).await;
        let sandboxed = sandbox().await.tier == SandboxTier::A;
        let mark = uuid::Uuid::now_v7().simple().to_string();
        Some(Self {
            agent,
            folder,
            sandboxed,
            program,
            mark,
            args: Vec::new(),
            read_only: Vec::new(),
            hidden: Vec::new(),
        })
    }

    pub fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    /// Content of the file that the agent creates.
    pub fn made(&self) -> PathBuf {
        self.tree().join("made.txt")
    }

    pub fn run(&self, wall: Duration) -> AgentRun {
        AgentRun {
            prompt: PROMPT.into(),
            purpose: RunPurpose::Iteration,
            tree: self.tree(),
            read_only: self.read_only.clone(),
            scratch: self.folder.path().join("scratch"),
            loop_id: "L7".into(),
            iteration: 1,
            model: Some("good".into()),
            wall,
            idle: wall,
            max_turns: None,
            max_cost: None,
            session: None,
            keep: None,
            mcp_config: None,
            tools: None,
            images: Default::default(),
            home_prepared: false,
            cookie: Cookie::new("cli-test", &self.mark, 1),
            sandboxed: self.sandboxed,
            sandbox: SandboxSettings { hidden: self.hidden.clone().into(), ..SandboxSettings::default() },
            // Only the address of its model is allowed: an agent that needs more fails here.
            network: Network::Only(EgressSettings {
                hosts: Hosts::default(),
                helper: env!("CARGO_BIN_EXE_ralph-bot").into(),
                refused: RefusedHosts::default(),
            }),
            guard: None,
        }
    }

    fn settings(&self, url: &str) -> BackendSetup {
        let path = setting("PATH").unwrap_or_default();
        let kind = match self.agent.preset {
            ACP => BackendKind::Acp,
            preset => BackendKind::Preset(preset.into()),
        };
        let mut settings = BackendSetup::new(kind, self.folder.path(), path);
        settings.config.command.clone_from(&self.program.command);
        settings.tools.clone_from(&self.program.tools);
        settings.config.args.clone_from(&self.args);
        settings.config.session_files = self.agent.session_files.iter().map(|file| (*file).to_owned()).collect();
        settings.models = [("good".to_owned(), self.agent.model.to_owned())].into();
        let environment = (self.agent.environment)(url);
        settings.env = environment.into_iter().map(|(name, value)| (name.into(), SecretString::from(value))).collect();
        settings.config.keys = self.agent.keys.iter().map(|(key, at)| ((*key).into(), (*at).into())).collect();
        settings
    }

    /// Runs the agent with the default prompt against a provider.
    pub async fn outcome(
        &self,
        provider: &ProviderServer,
        wall: Duration,
        cancel: &CancellationToken,
    ) -> (AgentOutcome, Vec<AgentEvent>) {
        self.outcome_of(self.run(wall), provider, cancel).await
    }

    /// Runs the agent against a provider.
    pub async fn outcome_of(
        &self,
        run: AgentRun,
        provider: &ProviderServer,
        cancel: &CancellationToken,
    ) -> (AgentOutcome, Vec<AgentEvent>) {
        let backend = build(self.agent.preset, self.settings(&provider.url)).expect("a backend");
        let mut events = Vec::new();
        let outcome = backend.run(run, cancel, &mut |event| events.push(event)).await;
        let remaining = survivors(&format!("cli-test-{}", self.mark));
        assert!(remaining.is_empty(), "processes are left: {remaining:?}");
        assert!(!outcome.output.contains(KEY), "the key is in the output");
        // The model is asked with the key, and the agent has none.
        // See docs/research/threats.md#s4.
        for (headers, _) in provider.messages() {
            let has_key = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains(KEY));
            assert!(headers.values().any(has_key), "the key is missing: {headers:?}");
        }
        if let Ok(environment) = std::fs::read_to_string(self.tree().join(ENVIRONMENT)) {
            assert!(environment.contains("HOME=") && !environment.contains(KEY), "{environment}");
        }
        (outcome, events)
    }
}
