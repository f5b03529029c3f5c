//! `backends` of the operator's file as it is written.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::providers::backends::Thresholds;
use crate::domain::providers::prices::PriceEntry;
use crate::domain::providers::rules::ModelRule;
use crate::domain::supervision::control::ModelTier;

pub use crate::domain::providers::backends::Role;

/// Something that can run an agent or answer a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Backend {
    /// What it is: a coding agent's command, an HTTP model interface, the built-in agent on one, or any command. Left out
    /// for the presets.
    #[serde(rename = "type")]
    pub kind: Option<BackendKind>,
    /// Whether it is used.
    pub enabled: bool,
    /// Program and its first arguments; a list, never a shell string. A program with a slash is relative to this file.
    pub command: Vec<String>,
    /// Further arguments, in which {model}, {prompt}, {prompt_file}, {report}, {session} and {mcp_config} are filled in, with
    /// nothing where a run has no such thing; other braces stay. A prompt that is too long for an argument (128 KiB on Linux)
    /// is replaced by a pointer to its file.
    pub args: Vec<String>,
    /// Whether the prompt is given on standard input, as it is where this is left out.
    pub stdin: Option<StdinUse>,
    /// Files and folders, as paths from its home, in which a command keeps its sessions. They alone outlive a run, so that the
    /// next iteration can go on with the session ({session}); name nothing that it runs or reads its settings from. The
    /// presets for claude, codex, gemini and opencode know theirs.
    pub session_files: Vec<String>,
    /// Environment variables that are passed on, by name.
    pub env: Vec<String>,
    /// Whether the keys of its models stay with the service. Its runs get a token in a key's place that is good for one run,
    /// and an address of the service in place of the model's, through which they ask it and by no other way; other hosts of
    /// its makers they reach where `sandbox.network` names them. The presets know the variables of an API key or a token;
    /// logins that lie in files, and keys that a configuration of your own names, are given to the agent as they are.
    pub hide_keys: bool,
    /// Further variables of `env` that hold such a key, each with the variable that says where the model is:
    /// `{ MY_KEY: MY_MODEL_URL }`. For commands, and for what a configuration of your own names.
    pub keys: BTreeMap<String, String>,
    /// How a command's output is read; the preset's own way, or text.
    pub output: Option<OutputFormat>,
    /// What it is used for. An `api` backend answers questions and nothing else; a command runs agents and nothing else.
    pub roles: Vec<Role>,
    /// Which models it is asked for.
    pub models: Models,
    /// Address of the HTTP interface, for `api` and `internal`: `https://api.anthropic.com`, `http://localhost:11434`.
    pub url: Option<String>,
    /// What the HTTP interface speaks, for `api` and `internal`. Where left out, the address tells it: `messages` for
    /// Anthropic's, `responses` for OpenAI's own, `chat` for every other one.
    pub wire: Option<WireName>,
    /// Environment variable with the key of the HTTP interface.
    pub api_key_env: Option<String>,
    /// File with the key of the HTTP interface.
    pub api_key_file: Option<PathBuf>,
    /// Tokens that fit into its context; 128000 for `internal` where left out. Claude Code and codex tell it after a run, for
    /// `max_context_pct`; `context.budget_pct`, and both of the other backends, go by this figure alone.
    #[schemars(range(min = 4_000, max = 100_000_000))]
    pub context_window: Option<u64>,
    /// How far it is used before another one gets the work.
    pub thresholds: Thresholds,
    /// Prices by model in US dollars a million tokens, over the built-in ones, for backends that do not say what a call
    /// cost. A name that ends with `*` means all models whose names begin so.
    pub prices: BTreeMap<String, PriceEntry>,
}

impl Default for Backend {
    fn default() -> Self {
        Self {
            kind: None,
            enabled: true,
            command: Vec::new(),
            args: Vec::new(),
            stdin: None,
            session_files: Vec::new(),
            env: Vec::new(),
            hide_keys: true,
            keys: BTreeMap::new(),
            output: None,
            roles: vec![Role::Agent],
            models: Models::default(),
            url: None,
            wire: None,
            api_key_env: None,
            api_key_file: None,
            context_window: None,
            thresholds: Thresholds::default(),
            prices: BTreeMap::new(),
        }
    }
}

/// What a backend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// A coding agent's command.
    External,
    /// An HTTP model interface, for questions.
    Api,
    /// The built-in agent on an HTTP model interface.
    Internal,
    /// Any command.
    Script,
}

impl BackendKind {
    /// Whether it is a model behind an HTTP interface, and not a command.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Api | Self::Internal)
    }

    /// As the file writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Api => "api",
            Self::Internal => "internal",
            Self::Script => "script",
        }
    }
}

/// What an HTTP interface speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WireName {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Responses.
    Responses,
    /// OpenAI's Chat Completions, as most other servers speak it (Ollama, vLLM, llama.cpp, gateways).
    Chat,
}

impl WireName {
    /// What the interface at `host` speaks where nobody says it.
    pub fn of_host(host: &str) -> Self {
        let is = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
        if is("anthropic.com") {
            Self::Messages
        } else if is("api.openai.com") {
            Self::Responses
        } else {
            Self::Chat
        }
    }
}

/// How the prompt is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StdinUse {
    Prompt,
    None,
}

/// How a backend's output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputFormat {
    Claude,
    Codex,
    Gemini,
    Opencode,
    Jsonl,
    Text,
}

impl OutputFormat {
    /// As the file writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Jsonl => "jsonl",
            Self::Text => "text",
        }
    }
}

/// Which models a backend is asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Models {
    /// The usual one; the backend's own default where left out. Needed for `api` and `internal`.
    pub default: Option<String>,
    /// A cheaper one.
    pub cheap: Option<String>,
    /// A stronger one.
    pub strong: Option<String>,
    /// Rules that choose another one; the first that holds wins, before the tiers above.
    pub rules: Vec<ModelRule>,
}

impl Models {
    /// The model of a tier; one that is not configured is the usual one.
    pub fn of(&self, tier: ModelTier) -> Option<&String> {
        let wanted = match tier {
            ModelTier::Cheap => self.cheap.as_ref(),
            ModelTier::Strong => self.strong.as_ref(),
            ModelTier::Default => None,
        };
        wanted.or(self.default.as_ref())
    }
}
