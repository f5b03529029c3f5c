//! The operator's file as it is written: its keys, their defaults, and what they are for. `docs/configuration.md` and
//! the JSON Schema are made from these types.

mod backend;
mod escalation;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use backend::{Backend, BackendKind, Models, OutputFormat, Role, StdinUse, WireName};
pub use escalation::{ChannelKindName, ChannelSection, EscalationSection, LevelName};

use crate::domain::knowledge::intelligence::ContextSettings;
use crate::domain::knowledge::memory::MemorySettings;
use crate::domain::model::quantity::{Duration, Usd};
use crate::domain::providers::backends::{Orders, ParkingSettings, RotationSettings};
use crate::domain::providers::rules::ScheduleEntry;
use crate::domain::supervision::Preset;
use crate::domain::supervision::control::ControlSettings;
use crate::domain::supervision::oversight::OversightSettings;
use crate::domain::supervision::strategy::StrategySettings;
use crate::domain::trust::egress::{Egress, Hosts};
use crate::domain::trust::policy::Intelligence;
use crate::domain::trust::policy::{AgentLimits, Limits, PROTECTED_PATHS};

/// The operator's file, `ralph-control.yaml`. Relative paths are relative to the folder it is in.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OperatorFile {
    /// Where the service listens and how people reach it.
    pub server: Server,
    /// Folder for the database, mirrors, work trees and logs.
    pub data_dir: PathBuf,
    /// Servers that are watched; at least one.
    pub forges: Vec<Forge>,
    /// Repositories that are watched, `forge:owner/name` with globs. Empty: all that the token or the App sees.
    pub repositories: Vec<String>,
    /// Who may give commands and set the label.
    pub permissions: Permissions,
    /// Where the bot stops by itself.
    pub limits: LimitsSection,
    /// What the bot's labels begin with; `ralph:` makes `ralph:run`, `ralph:running`, ….
    pub label_prefix: String,
    /// What the bot's branches begin with.
    pub branch_prefix: String,
    /// Whether the branch of a loop that ended is deleted.
    pub delete_branch: bool,
    /// How a loop reports on its issue.
    pub progress: ProgressStyle,
    /// Paths that an agent may not change.
    pub protected: ProtectedSection,
    /// How checks are found and run.
    pub checks: Checks,
    /// What agents and checks can reach.
    pub sandbox: Sandbox,
    /// Folder with texts of the operator's own, each in place of the built-in one of the same name
    /// (`comment/status.md`, `prompt/iteration.md`, …).
    pub templates: Option<PathBuf>,
    /// How work trees are kept.
    pub workspace: Workspace,
    /// How quickly the service goes about its work.
    pub engine: EngineSection,
    /// How long things are kept.
    pub retention: Retention,
    /// What runs agents and answers prompts, by name. The names claude, codex, gemini, opencode, kimi and aider are
    /// presets that need nothing but `enabled: true`.
    pub backends: BTreeMap<String, Backend>,
    /// Which backend comes first, by role. Those that are not named follow in the order of their names.
    pub order: Orders,
    /// Whether and how backends take turns.
    pub rotation: RotationSettings,
    /// How long a backend is left alone that met a limit or failed too often.
    pub parking: ParkingSettings,
    /// Whether prompts are made for the moment, and whether models help with it: `full` asks the backends with the role
    /// `assistant`.
    pub intelligence: Intelligence,
    /// The context block of prompts, and the models that write it and the summaries.
    pub context: ContextSettings,
    /// What the settings of control, oversight and strategy begin with: values that can become better with a new version
    /// (the defaults below), or those of the design, which stay.
    pub preset: Preset,
    /// How loops are controlled; what is left out is as the preset has it.
    #[schemars(with = "ControlSettings")]
    pub control: Map<String, Value>,
    /// What the overseer looks for, and when it acts; what is left out is as the preset has it.
    #[schemars(with = "OversightSettings")]
    pub oversight: Map<String, Value>,
    /// How the next iteration is planned; what is left out is as the preset has it.
    #[schemars(with = "StrategySettings")]
    pub strategy: Map<String, Value>,
    /// What loops learn, and how much of it a prompt carries.
    pub memory: MemorySettings,
    /// Rules that act at given moments, in order.
    pub schedule: Vec<ScheduleEntry>,
    /// How people are told that a loop needs them.
    pub escalation: EscalationSection,
}

impl Default for OperatorFile {
    fn default() -> Self {
        Self {
            server: Server::default(),
            data_dir: PathBuf::from("data"),
            forges: Vec::new(),
            repositories: Vec::new(),
            permissions: Permissions::default(),
            limits: LimitsSection::default(),
            label_prefix: "ralph:".to_owned(),
            branch_prefix: "ralph/".to_owned(),
            delete_branch: false,
            progress: ProgressStyle::default(),
            protected: ProtectedSection::default(),
            checks: Checks::default(),
            sandbox: Sandbox::default(),
            templates: None,
            workspace: Workspace::default(),
            engine: EngineSection::default(),
            retention: Retention::default(),
            backends: BTreeMap::new(),
            order: Orders::default(),
            rotation: RotationSettings::default(),
            parking: ParkingSettings::default(),
            intelligence: Intelligence::default(),
            context: ContextSettings::default(),
            preset: Preset::default(),
            control: Map::new(),
            oversight: Map::new(),
            strategy: Map::new(),
            memory: MemorySettings::default(),
            schedule: Vec::new(),
            escalation: EscalationSection::default(),
        }
    }
}

/// Where the service listens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Address and port.
    pub listen: String,
    /// Address that forges send their webhooks to.
    pub public_url: Option<String>,
}

impl Default for Server {
    fn default() -> Self {
        Self { listen: "127.0.0.1:8080".to_owned(), public_url: None }
    }
}

/// A server that is watched.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Forge {
    /// Short name: lower-case letters, digits and hyphens. Webhooks go to `/webhooks/NAME`.
    pub name: String,
    /// Which software it runs; Forgejo is of kind gitea. Required.
    pub kind: Option<ForgeKindName>,
    /// Address of the server. Required for gitea; for github only with Enterprise Server.
    pub url: Option<String>,
    /// Number of the GitHub App.
    pub app_id: Option<u64>,
    /// File with the private key of the GitHub App.
    pub private_key_file: Option<PathBuf>,
    /// Environment variable with the private key of the GitHub App.
    pub private_key_env: Option<String>,
    /// Environment variable with an access token.
    pub token_env: Option<String>,
    /// File with an access token.
    pub token_file: Option<PathBuf>,
    /// Environment variable with the webhook secret, at least 32 bytes; several while a secret is being replaced.
    pub webhook_secret_env: Option<OneOrMany<String>>,
    /// File with the webhook secret, at least 32 bytes; several while a secret is being replaced.
    pub webhook_secret_file: Option<OneOrMany<PathBuf>>,
    /// Numeric id of the bot's own account, where its token may not ask for it.
    pub own_id: Option<i64>,
}

/// Kinds of forge, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ForgeKindName {
    Github,
    Gitea,
    Forgejo,
}

/// One value, or a list of them.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// All of them.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// Who may give commands and set the label.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Permissions {
    /// The least right for every command and for the label, asked of the forge at that moment.
    pub command: FloorName,
    /// Accounts that may whatever their right: numeric ids, as `forge:id` where there are several forges.
    pub allow: Vec<AccountEntry>,
    /// Teams whose members may whatever their right: `organisation/team`, as `forge:organisation/team` where there are
    /// several forges. Asked of the forge at that moment; GitHub wants an App to have the organisation's permission
    /// `Members: read` for it, Gitea an account of the organisation.
    pub teams: Vec<String>,
    /// Bot accounts that are listened to: numeric ids, as `forge:id` where there are several forges.
    pub allow_bots: Vec<AccountEntry>,
}

/// An account: its numeric id, or `forge:id`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AccountEntry {
    Id(i64),
    Text(String),
}

/// Rights, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FloorName {
    #[default]
    Write,
    Maintain,
    Admin,
}

/// Where the bot stops by itself. Nothing may be 0.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSection {
    /// Loops that run at the same time.
    pub loops: u32,
    /// The same on one forge, each of several; only `loops` counts where left out.
    pub loops_per_forge: Option<u32>,
    /// The same in one repository.
    pub loops_per_repository: u32,
    /// Iterations of one loop.
    pub iterations: u32,
    /// Running time of one loop.
    pub timeout: Duration,
    /// Running time of one agent run.
    pub agent_timeout: Duration,
    /// Longest silence of an agent before it is stopped.
    pub agent_idle: Duration,
    /// Turns of one agent run, for agents that count them; the agent's own limit where left out.
    #[schemars(range(min = 1))]
    pub agent_turns: Option<u32>,
    /// Money of one loop. A run of claude, opencode, aider, `internal` or `jsonl` is ended while it lasts, as these say what
    /// they use; codex, gemini and kimi say it at the end of a run only.
    pub cost_usd: Usd,
    /// Money of the whole service, a day.
    pub cost_usd_per_day: Usd,
    /// Money of one repository, a day; only the service's limit counts where left out.
    pub cost_usd_per_repository_per_day: Option<Usd>,
    /// Comments on one issue, a day.
    pub comments_per_day: u32,
    /// Comments on one issue, an hour.
    pub comments_per_hour: u32,
}

impl Default for LimitsSection {
    fn default() -> Self {
        let (limits, agent) = (Limits::default(), AgentLimits::default());
        Self {
            loops: limits.loops,
            loops_per_forge: limits.loops_per_forge,
            loops_per_repository: limits.loops_per_repository,
            iterations: limits.iterations,
            timeout: Duration::seconds(limits.timeout_s),
            agent_timeout: Duration::seconds(agent.wall_s),
            agent_idle: Duration::seconds(agent.idle_s),
            agent_turns: agent.turns,
            cost_usd: Usd(limits.cost),
            cost_usd_per_day: Usd(limits.cost_per_day),
            cost_usd_per_repository_per_day: None,
            comments_per_day: limits.comments_per_day,
            comments_per_hour: limits.comments_per_hour,
        }
    }
}

/// How a loop reports, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProgressStyle {
    #[default]
    Comments,
    StatusOnly,
}

/// Paths that an agent may not change.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProtectedSection {
    /// What happens to a change: put back before the commit, the loop stops, or kept and shown.
    pub policy: ProtectedName,
    /// Globs from the top of the tree; `*` stays within a folder.
    pub paths: Vec<String>,
}

impl Default for ProtectedSection {
    fn default() -> Self {
        let paths = PROTECTED_PATHS.iter().map(|path| (*path).to_owned()).collect();
        Self { policy: ProtectedName::default(), paths }
    }
}

/// What happens to a change of a protected path, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProtectedName {
    #[default]
    Restore,
    Block,
    Allow,
}

/// How checks are found and run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Checks {
    /// Whether checks may be found from the tree where neither the issue nor the repository's file names any.
    pub detect: bool,
    /// Time of one check that names none.
    pub timeout: Duration,
    /// Whether checks may use the network.
    pub network: bool,
}

impl Default for Checks {
    fn default() -> Self {
        Self { detect: true, timeout: Duration::minutes(10), network: false }
    }
}

/// What agents and checks can reach.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sandbox {
    /// What is required before a loop runs: the tier that the repository asks for, bubblewrap always, or none.
    pub required: SandboxRequired,
    /// What agents may reach: the servers of their model and those of a list, by a proxy that nothing gets around, or the
    /// host's network (`all`), or nothing (`none`). In a list `example.org` stands for ports 443 and 80 at public addresses,
    /// `*.example.org` for all names below, and `models.lan:8080` for that port wherever the host is; an empty list leaves the
    /// model alone. Hosts of the models of known agents need not be listed, nor servers whose `http` address is in a
    /// backend's `env`, as opencode's are. Comments tell which hosts an agent was kept from. Without a sandbox it reaches all
    /// that the machine does.
    pub network: AgentNetwork,
    /// Folders that agents and checks may read beside the system's tool chains.
    pub read_only: Vec<PathBuf>,
}

/// The network that agents have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AgentNetwork {
    Word(NetworkWord),
    Hosts(Vec<String>),
}

impl Default for AgentNetwork {
    fn default() -> Self {
        Self::Hosts(Vec::new())
    }
}

impl AgentNetwork {
    /// What may be reached; the error says which host is none.
    pub fn egress(&self) -> Result<Egress, String> {
        Ok(match self {
            Self::Word(NetworkWord::All) => Egress::Everything,
            Self::Word(NetworkWord::None) => Egress::Nothing,
            Self::Hosts(hosts) => Egress::Only(Hosts::parse(hosts)?),
        })
    }
}

/// All of the network or nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkWord {
    All,
    None,
}

/// What is required before a loop runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxRequired {
    #[default]
    Auto,
    Bubblewrap,
    None,
}

/// How work trees are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workspace {
    /// Trees of ended loops kept for reuse, a repository; 0 removes them at once.
    pub pool: u32,
}

impl Default for Workspace {
    fn default() -> Self {
        Self { pool: 2 }
    }
}

/// How quickly the service goes about its work. The defaults are polite to a forge that others use too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSection {
    /// Longest time until a process sees what another process left for it, in milliseconds.
    #[schemars(range(min = 10, max = 60_000))]
    pub poll_ms: u32,
    /// Wait before a call whose outcome is not known is looked up and tried again, in milliseconds: lists of forges lag
    /// behind.
    #[schemars(range(max = 600_000))]
    pub ambiguity_wait_ms: u32,
    /// First wait after a failed call, in milliseconds; doubles with each failure up to five minutes.
    #[schemars(range(min = 10, max = 300_000))]
    pub retry_first_ms: u32,
    /// Least time between two changes on one forge, in milliseconds; GitHub asks for a second.
    #[schemars(range(max = 60_000))]
    pub mutation_interval_ms: u32,
    /// Longest wait for the answer of an assistant, in seconds; where left out, 30, and 60 for a prompt's advice. A model on
    /// a machine without a graphics card may need more.
    #[schemars(range(min = 1, max = 600))]
    pub answer_timeout_s: Option<u32>,
}

impl Default for EngineSection {
    fn default() -> Self {
        Self {
            poll_ms: 500,
            ambiguity_wait_ms: 10_000,
            retry_first_ms: 2_000,
            mutation_interval_ms: 1_000,
            answer_timeout_s: None,
        }
    }
}

/// How long things are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Days that agents' prompts and output are kept after a loop's end, and deliveries after they were handled. A
    /// delivery that comes again later is taken for a new one.
    #[schemars(range(min = 7, max = 3_650))]
    pub days: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { days: 30 }
    }
}
