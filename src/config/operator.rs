//! The operator's file as it is written: its keys, their defaults, and what they are for. `docs/configuration.md` and
//! the JSON Schema are made from these types.

mod escalation;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use escalation::{ChannelKindName, ChannelSection, EscalationSection, LevelName};

use crate::domain::knowledge::intelligence::ContextSettings;
use crate::domain::knowledge::memory::MemorySettings;
use crate::domain::model::quantity::{Duration, Usd};
use crate::domain::model::settings::config_section;
use crate::domain::providers::backends::{BackendPriority, BackendSettings, CooldownSettings, RotationSettings};
use crate::domain::providers::rules::ScheduleEntry;
use crate::domain::supervision::Preset;
use crate::domain::supervision::control::ControlSettings;
use crate::domain::supervision::oversight::OversightSettings;
use crate::domain::supervision::strategy::StrategySettings;
use crate::domain::trust::egress::{Egress, Hosts};
use crate::domain::trust::policy::Intelligence;
use crate::domain::trust::policy::{AgentLimits, Floor, Limits, PROTECTED_PATHS, Progress, ProtectedPolicy};

config_section! {
    /// The operator's file, `ralph-control.yaml`. Relative paths are relative to the folder it is in.
    pub struct OperatorFile {
        /// Where the service listens and how people reach it.
        pub server: ServerSection;
        /// Folder for the database, mirrors, work trees and logs.
        pub data_dir: PathBuf = PathBuf::from("data");
        /// Servers that are watched; at least one.
        pub forges: Vec<ForgeSection>;
        /// Repositories that are watched, `forge:owner/name` with globs. Empty: all that the token or the App sees.
        pub repositories: Vec<String>;
        /// Who may give commands and set the label.
        pub permissions: PermissionsSection;
        /// Where the bot stops by itself.
        pub limits: LimitsSection => section;
        /// What the bot's labels begin with; `ralph:` makes `ralph:run`, `ralph:running`, ….
        pub label_prefix: String = "ralph:".to_owned();
        /// What the bot's branches begin with.
        pub branch_prefix: String = "ralph/".to_owned();
        /// Whether the branch of a loop that ended is deleted.
        pub delete_branch: bool = false;
        /// How a loop reports on its issue.
        pub progress: Progress;
        /// Paths that an agent may not change.
        pub protected: ProtectedSection;
        /// How checks are found and run.
        pub checks: ChecksSection => section;
        /// What agents and checks can reach.
        pub sandbox: SandboxSection;
        /// Folder with texts of the operator's own, each in place of the built-in one of the same name
        /// (`comment/status.md`, `prompt/iteration.md`, …).
        pub templates: Option<PathBuf>;
        /// How work trees are kept.
        pub workspace: WorkspaceSection;
        /// How quickly the service goes about its work.
        pub engine: EngineSection => section;
        /// How long things are kept.
        pub retention: RetentionSection => section;
        /// What runs agents and answers prompts, by name. The names claude, codex, gemini, opencode, kimi and aider are
        /// presets that need nothing but `enabled: true`.
        pub backends: BTreeMap<String, BackendSettings> = BTreeMap::new() => section;
        /// Which backend comes first, by role. Those that are not named follow in the order of their names.
        pub priority: BackendPriority;
        /// Whether and how backends take turns.
        pub rotation: RotationSettings => section;
        /// How long a backend is left alone that met a limit or failed too often.
        pub cooldown: CooldownSettings => section;
        /// Whether prompts are made for the moment, and whether models help with it: `full` asks the backends with the role
        /// `assistant`.
        pub intelligence: Intelligence;
        /// The context block of prompts, and the models that write it and the summaries.
        pub context: ContextSettings => section;
        /// What the settings of control, oversight and strategy begin with: values that can become better with a new version
        /// (the defaults below), or those of the design, which stay.
        pub preset: Preset;
        /// How loops are controlled; what is left out is as the preset has it.
        #[schemars(with = "ControlSettings")]
        pub control: Map<String, Value>;
        /// What the overseer looks for, and when it acts; what is left out is as the preset has it.
        #[schemars(with = "OversightSettings")]
        pub oversight: Map<String, Value>;
        /// How the next iteration is planned; what is left out is as the preset has it.
        #[schemars(with = "StrategySettings")]
        pub strategy: Map<String, Value>;
        /// What loops learn, and how much of it a prompt carries.
        pub memory: MemorySettings => section;
        /// Rules that act at given moments, in order.
        pub schedule: Vec<ScheduleEntry>;
        /// How people are told that a loop needs them.
        pub escalation: EscalationSection => section;
    }
}

config_section! {
    /// Where the service listens.
    pub struct ServerSection {
        /// Address and port.
        pub listen: String = "127.0.0.1:8080".to_owned();
        /// Address that forges send their webhooks to.
        pub public_url: Option<String>;
    }
}

config_section! {
    /// A server that is watched.
    pub struct ForgeSection {
        /// Short name: lower-case letters, digits and hyphens. Webhooks go to `/webhooks/NAME`.
        pub name: String;
        /// Which software it runs; Forgejo is of kind gitea. Required.
        pub kind: Option<ForgeKindName>;
        /// Address of the server. Required for gitea; for github only with Enterprise Server.
        pub url: Option<String>;
        /// Number of the GitHub App.
        pub app_id: Option<u64>;
        /// File with the private key of the GitHub App.
        pub private_key_file: Option<PathBuf>;
        /// Environment variable with the private key of the GitHub App.
        pub private_key_env: Option<String>;
        /// Environment variable with an access token.
        pub token_env: Option<String>;
        /// File with an access token.
        pub token_file: Option<PathBuf>;
        /// Environment variable with the webhook secret, at least 32 bytes; several while a secret is being replaced.
        pub webhook_secret_env: Option<OneOrMany<String>>;
        /// File with the webhook secret, at least 32 bytes; several while a secret is being replaced.
        pub webhook_secret_file: Option<OneOrMany<PathBuf>>;
        /// Numeric id of the bot's own account, where its token may not ask for it.
        pub own_id: Option<i64>;
    }
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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

config_section! {
    /// Who may give commands and set the label.
    pub struct PermissionsSection {
        /// The least right for every command and for the label, asked of the forge at that moment.
        pub command: Floor;
        /// Accounts that may whatever their right: numeric ids, as `forge:id` where there are several forges.
        pub allow: Vec<AccountEntry>;
        /// Teams whose members may whatever their right: `organisation/team`, as `forge:organisation/team` where there are
        /// several forges. Asked of the forge at that moment; GitHub wants an App to have the organisation's permission
        /// `Members: read` for it, Gitea an account of the organisation.
        pub teams: Vec<String>;
        /// Bot accounts that are listened to: numeric ids, as `forge:id` where there are several forges.
        pub allow_bots: Vec<AccountEntry>;
    }
}

/// An account: its numeric id, or `forge:id`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AccountEntry {
    Id(i64),
    Text(String),
}

config_section! {
    /// Where the bot stops by itself. Nothing may be 0.
    pub struct LimitsSection {
        /// Loops that run at the same time.
        pub loops: u32 = Limits::default().loops, in 1..;
        /// The same on one forge, each of several; only `loops` counts where left out.
        pub loops_per_forge: Option<u32> = Limits::default().loops_per_forge, in 1.., at_most loops;
        /// The same in one repository.
        pub loops_per_repository: u32 = Limits::default().loops_per_repository, in 1.., at_most loops;
        /// Iterations of one loop.
        pub iterations: u32 = Limits::default().iterations, in 1..;
        /// Running time of one loop.
        pub timeout: Duration = Duration::seconds(Limits::default().timeout_s), in Duration::seconds(1)..;
        /// Running time of one agent run.
        pub agent_timeout: Duration = Duration::seconds(AgentLimits::default().wall_s), in Duration::seconds(1)..;
        /// Longest silence of an agent before it is stopped.
        pub agent_idle: Duration = Duration::seconds(AgentLimits::default().idle_s), in Duration::seconds(1)..;
        /// Turns of one agent run, for agents that count them; the agent's own limit where left out.
        pub agent_turns: Option<u32> = AgentLimits::default().turns, in 1..;
        /// Money of one loop. A run of claude, opencode, aider, `internal` or `jsonl` is ended while it lasts, as these say what
        /// they use; codex, gemini and kimi say it at the end of a run only.
        pub cost_usd: Usd = Usd(Limits::default().cost), in Usd::MIN.., at_most cost_usd_per_day, at_most cost_usd_per_repository_per_day;
        /// Money of the whole service, a day.
        pub cost_usd_per_day: Usd = Usd(Limits::default().cost_per_day), in Usd::MIN..;
        /// Money of one repository, a day; only the service's limit counts where left out.
        pub cost_usd_per_repository_per_day: Option<Usd>, in Usd::MIN.., at_most cost_usd_per_day;
        /// Comments on one issue, a day.
        pub comments_per_day: u32 = Limits::default().comments_per_day, in 1..;
        /// Comments on one issue, an hour.
        pub comments_per_hour: u32 = Limits::default().comments_per_hour, in 1..;
    }
}

config_section! {
    /// Paths that an agent may not change.
    pub struct ProtectedSection {
        /// What happens to a change: put back before the commit, the loop stops, or kept and shown.
        pub policy: ProtectedPolicy;
        /// Globs from the top of the tree; `*` stays within a folder.
        pub paths: Vec<String> = PROTECTED_PATHS.iter().map(|path| (*path).to_owned()).collect();
    }
}

config_section! {
    /// How checks are found and run.
    pub struct ChecksSection {
        /// Whether checks may be found from the tree where neither the issue nor the repository's file names any.
        pub detect: bool = true;
        /// Time of one check that names none.
        pub timeout: Duration = Duration::minutes(10), in Duration::seconds(1)..;
        /// Whether checks may use the network.
        pub network: bool = false;
    }
}

config_section! {
    /// What agents and checks can reach.
    pub struct SandboxSection {
        /// What is required before a loop runs: the tier that the repository asks for, bubblewrap always, or none.
        pub required: SandboxRequired;
        /// What agents may reach: the servers of their model and those of a list, by a proxy that nothing gets around, or the
        /// host's network (`all`), or nothing (`none`). In a list `example.org` stands for ports 443 and 80 at public addresses,
        /// `*.example.org` for all names below, and `models.lan:8080` for that port wherever the host is; an empty list leaves the
        /// model alone. Hosts of the models of known agents need not be listed, nor servers whose `http` address is in a
        /// backend's `env`, as opencode's are. Comments tell which hosts an agent was kept from. Without a sandbox it reaches all
        /// that the machine does.
        pub network: AgentNetwork;
        /// Folders that agents and checks may read beside the system's tool chains.
        pub read_only: Vec<PathBuf>;
    }
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

config_section! {
    /// How work trees are kept.
    pub struct WorkspaceSection {
        /// Trees of ended loops kept for reuse, a repository; 0 removes them at once.
        pub pool: u32 = 2;
    }
}

config_section! {
    /// How quickly the service goes about its work. The defaults are polite to a forge that others use too.
    pub struct EngineSection {
        /// Longest time until a process sees what another process left for it, in milliseconds.
        pub poll_ms: u32 = 500, in 10..=60_000;
        /// Wait before a call whose outcome is not known is looked up and tried again, in milliseconds: lists of forges lag
        /// behind.
        pub ambiguity_wait_ms: u32 = 10_000, in 0..=600_000;
        /// First wait after a failed call, in milliseconds; doubles with each failure up to five minutes.
        pub retry_first_ms: u32 = 2_000, in 10..=300_000;
        /// Least time between two changes on one forge, in milliseconds; GitHub asks for a second.
        pub mutation_interval_ms: u32 = 1_000, in 0..=60_000;
        /// Longest wait for the answer of an assistant, in seconds; where left out, 30, and 60 for a prompt's advice. A model on
        /// a machine without a graphics card may need more.
        pub answer_timeout_s: Option<u32>, in 1..=600;
    }
}

config_section! {
    /// How long things are kept.
    pub struct RetentionSection {
        /// Days that agents' prompts and output are kept after a loop's end, and deliveries after they were handled. A
        /// delivery that comes again later is taken for a new one.
        pub days: u32 = 30, in 7..=3_650;
    }
}
