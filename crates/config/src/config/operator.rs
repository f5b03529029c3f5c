//! Keys of the operator's file with defaults, ranges and documentation. `docs/reference/configuration.md` and the JSON
//! Schema are generated from these types.

mod dashboard;
mod escalation;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use dashboard::{DashboardSection, LoginSection};
pub use escalation::{ChannelKindName, ChannelSection, EscalationSection, LevelName};
use ralph_types::failure::Failure;

use crate::agent::presets;
use crate::domain::knowledge::intelligence::ContextSettings;
use crate::domain::knowledge::memory::MemorySettings;
use crate::domain::model::quantity::Duration;
use crate::domain::model::settings::config_section;
use crate::domain::providers::backends::{BackendPriority, BackendSettings, CooldownSettings, RotationSettings};
use crate::domain::providers::rules::ScheduleEntry;
use crate::domain::supervision::SupervisionPreset;
use crate::domain::supervision::control::ControlSettings;
use crate::domain::supervision::oversight::OversightSettings;
use crate::domain::supervision::strategy::StrategySettings;
use crate::domain::trust::egress::{Egress, Hosts};
use crate::domain::trust::images::ImageSettings;
use crate::domain::trust::limits::{Limits, SandboxLimits};
use crate::domain::trust::policy::Intelligence;
use crate::domain::trust::policy::{
    MinimumAccess, PlanPolicy, ProgressReport, ReviewTime, SANDBOX_USER, TamperingPolicy,
};
use crate::domain::trust::protected::{PROTECTED_PATHS, ProtectedPolicy};

config_section! {
    /// The operator's file, `ralph-control.yaml`. Relative paths are relative to its folder.
    pub struct OperatorFile {
        /// Addresses of the service.
        pub server: ServerSection;
        /// Dashboard and API: `docs/guides/dashboard.md`.
        pub dashboard: DashboardSection;
        /// Traces.
        pub telemetry: TelemetrySection;
        /// Folder for the database, mirrors, work trees and logs. On ext4 without a journal, a power failure may damage commits.
        pub data_dir: PathBuf = PathBuf::from("data");
        /// Address of a database of PostgreSQL, `postgres://user@host[,host]/name`, in place of SQLite in `data_dir`:
        /// `docs/guides/postgresql.md`. The address contains no password.
        pub database: Option<String>;
        /// Environment variable with the password of the database, if it is not in the password file of libpq (`PGPASSFILE`,
        /// `~/.pgpass`).
        pub database_password_env: Option<String>;
        /// File with the password of the database.
        pub database_password_file: Option<PathBuf>;
        /// Watched forges; at least one.
        pub forges: Vec<ForgeSection>;
        /// Watched repositories, `forge:owner/name` with globs; all that the token or the App can access if empty.
        pub repositories: Vec<String>;
        /// Permissions for commands and the label.
        pub permissions: PermissionsSection;
        /// Limits at which the bot stops.
        pub limits: Limits => section;
        /// Prefix of the bot's labels; `ralph:` gives `ralph:run`, `ralph:running`, …. With `ralph/`, the labels of states are exclusive
        /// scoped labels on Gitea and Forgejo.
        pub label_prefix: String = "ralph:".to_owned();
        /// Prefix of the bot's branches.
        pub branch_prefix: String = "ralph/".to_owned();
        /// Whether the branch of a finished loop is deleted.
        pub delete_branch: bool = false;
        /// Signatures of the bot's commits.
        pub commits: CommitsSection;
        /// Submodules of repositories.
        pub submodules: SubmodulesSection;
        /// Progress reports on the issue: a comment per iteration, or the status comment only.
        pub progress: ProgressReport;
        /// Loops that make a plan for approval before the first iteration: loops with `/ralph plan` or the label `ralph:plan`,
        /// or every loop.
        pub plan: PlanPolicy;
        /// Protected paths, which an agent may change only if the issue or a request of a maintainer names the file.
        pub protected: ProtectedSection;
        /// Response to weakened tests.
        pub tampering: TamperingPolicy => section;
        /// Detection and execution of checks.
        pub checks: ChecksSection => section;
        /// Isolation of agents and checks.
        pub sandbox: SandboxSection;
        /// Programs that decide whether a loop continues.
        pub hooks: HooksSection;
        /// Second opinion of another backend before a pull request becomes ready.
        pub review: ReviewSection => section;
        /// Folder with custom templates, each in place of the built-in one of the same name (`comment/status.md`,
        /// `prompt/iteration.md`, …).
        pub templates: Option<PathBuf>;
        /// Intervals and time limits of the service.
        pub engine: EngineSection => section;
        /// This host, if several hosts share a database of PostgreSQL: `docs/guides/hosts.md`.
        pub runner: RunnerSection => section;
        /// Retention of data.
        pub retention: RetentionSection => section;
        /// Backends that run agents or answer questions, by name. {presets} are presets that need only
        /// `enabled: true`.
        pub backends: BTreeMap<String, BackendSettings> = BTreeMap::new() => section;
        /// Order of preference of backends, by role. Backends that are not listed follow in the order of their names.
        pub priority: BackendPriority;
        /// Rotation among backends.
        pub rotation: RotationSettings => section;
        /// Wait before a backend is used again after a limit or repeated failures.
        pub cooldown: CooldownSettings => section;
        /// Level of prompt adaptation: none, without models, or with questions to an assistant. Without an assistant, `summaries` and
        /// `full` act as `facts`.
        pub intelligence: Intelligence;
        /// Assistant: backend that answers questions of the service.
        pub assistant: AssistantSection;
        /// Context block of prompts, and the models that write it and the summaries.
        pub context: ContextSettings => section;
        /// Defaults of `control`, `oversight` and `strategy`: `default` can improve with a new version, `pinned` stays unchanged.
        pub preset: SupervisionPreset;
        /// Control of loops: error, trend, urgency and alarms.
        #[schemars(with = "ControlSettings")]
        pub control: Map<String, Value>;
        /// Detections and interventions of oversight.
        #[schemars(with = "OversightSettings")]
        pub oversight: Map<String, Value>;
        /// Planning of the next iteration.
        #[schemars(with = "StrategySettings")]
        pub strategy: Map<String, Value>;
        /// Memory: learnings of loops and their use in prompts.
        pub memory: MemorySettings => section;
        /// Images in issues and comments, which agents get as files.
        pub images: ImageSettings => section;
        /// Rules that act on a condition or at a time, in order.
        pub schedule: Vec<ScheduleEntry>;
        /// Notifications that a loop needs a person.
        pub escalation: EscalationSection => section;
    }
}

config_section! {
    /// Traces: `docs/guides/observability.md`. Metrics are always at `/metrics`, and logs on standard error.
    pub struct TelemetrySection {
        /// Address of an OpenTelemetry collector (OTLP over HTTP), such as `http://127.0.0.1:4318`; `/v1/traces` is appended. Traces
        /// are off without it.
        pub otlp_endpoint: Option<String>;
    }
}

config_section! {
    /// Addresses of the service.
    pub struct ServerSection {
        /// Address and port.
        pub listen: String = "127.0.0.1:8080".to_owned();
        /// Address and port for `/healthz`, `/readyz` and `/metrics` only, such as `127.0.0.1:9464`. Processes with the role `control` or
        /// `runner` listen nowhere without it; the metrics of iterations and of agents are theirs. Each process on a machine needs a
        /// separate port: `RALPH_SERVER__METRICS_LISTEN`.
        pub metrics_listen: Option<String>;
        /// Public address for webhooks.
        pub public_url: Option<String>;
    }
}

config_section! {
    /// A watched forge.
    pub struct ForgeSection {
        /// Short name: lower-case letters, digits and hyphens. Webhooks are received at `/webhooks/NAME`.
        pub name: String;
        /// Software of the forge. Required.
        pub kind: Option<ForgeKindName>;
        /// Address of the server. Required for `gitea`; for `github` only with Enterprise Server and GHE.com.
        pub url: Option<String>;
        /// Address of GitHub's REST API, if it is not the usual one: `https://api.github.com`, `https://api.NAME.ghe.com` for
        /// `https://NAME.ghe.com`, and `/api/v3` below the address of Enterprise Server.
        pub api_url: Option<String>;
        /// Id of the GitHub App.
        pub app_id: Option<u64>;
        /// File with the private key of the GitHub App.
        pub private_key_file: Option<PathBuf>;
        /// Environment variable with the private key of the GitHub App.
        pub private_key_env: Option<String>;
        /// Environment variable with an access token.
        pub token_env: Option<String>;
        /// File with an access token.
        pub token_file: Option<PathBuf>;
        /// Environment variable with the webhook secret, at least 32 bytes; a list while a secret is being replaced.
        pub webhook_secret_env: Option<OneOrMany<String>>;
        /// File with the webhook secret, at least 32 bytes; a list while a secret is being replaced.
        pub webhook_secret_file: Option<OneOrMany<PathBuf>>;
        /// Source of changes: `webhooks`; `poll`, which needs no webhook, no webhook secret, no public address and no administrator
        /// rights for them; or `both`, where polling finds unreported changes.
        pub updates: UpdatesName;
        /// Interval of polling, `10s` to `1h`. A forge with more than 200 repositories is polled less often where no loop is open.
        pub poll: Duration = Duration::seconds(30);
        /// Numeric id of the bot's account, if its token cannot read it.
        pub own_id: Option<i64>;
        /// Client with which people log in to the dashboard: `docs/guides/dashboard.md`. `ralph-bot init --login` makes one on Gitea and
        /// Forgejo and keeps it in `data_dir`.
        pub login: Option<LoginSection>;
    }
}

/// Source of changes on a forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UpdatesName {
    #[default]
    Webhooks,
    Poll,
    Both,
}

/// Kind of a forge in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ForgeKindName {
    Github,
    Gitea,
    Forgejo,
}

/// One value or a list of values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// Returns all values.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

config_section! {
    /// Signatures of the bot's commits. Author is the bot's account on the forge.
    pub struct CommitsSection {
        /// Whether commits are signed: `none`, or `git` for a key of the operator's.
        pub sign: CommitSigningName;
        /// Format of the signatures.
        pub format: SignatureFormat;
        /// File with the private SSH key, without a passphrase and readable only by the service. Required for the format `ssh`.
        pub key_file: Option<PathBuf>;
        /// Fingerprint or id of the OpenPGP key. Required for the format `openpgp`.
        pub key_id: Option<String>;
        /// Folder of GnuPG with that key, without a passphrase. Required for the format `openpgp`.
        pub gnupg_home: Option<PathBuf>;
    }
}

config_section! {
    /// Submodules of repositories: `docs/guides/your-repository.md`. Those on the repository's own forge need no key.
    pub struct SubmodulesSection {
        /// Hosts whose public repositories are fetched as submodules, by https and without a credential, such as `github.com`.
        pub hosts: Vec<String>;
    }
}

/// Signing of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CommitSigningName {
    #[default]
    None,
    Git,
}

/// Format of signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SignatureFormat {
    #[default]
    Ssh,
    OpenPgp,
}

config_section! {
    /// Permissions for commands and the label.
    pub struct PermissionsSection {
        /// Minimum permission for every command and for the label, checked with the forge each time.
        pub command: MinimumAccess;
        /// Accounts that are allowed regardless of their permission: numeric ids, or `forge:id` with several forges.
        pub allow: Vec<AccountEntry>;
        /// Teams whose members are allowed regardless of their permission: `organization/team`, or `forge:organization/team` with
        /// several forges. Checked with the forge each time; a GitHub App needs the organization permission `Members: read`, on
        /// Gitea the bot needs to be a member of the organization.
        pub teams: Vec<String>;
        /// Bot accounts whose commands are accepted: numeric ids, or `forge:id` with several forges.
        pub allow_bots: Vec<AccountEntry>;
    }
}

/// An account: numeric id or `forge:id`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AccountEntry {
    Id(i64),
    Text(String),
}

config_section! {
    /// Protected paths, which an agent may change only if the issue or a request of a maintainer names the file.
    pub struct ProtectedSection {
        /// Reaction to a change: it is reverted before the commit, the loop stops, or it is kept and reported.
        pub policy: ProtectedPolicy;
        /// Globs from the root of the tree; `*` does not match `/`.
        pub paths: Vec<String> = protected_paths();
    }
}

config_section! {
    /// Detection and execution of checks.
    pub struct ChecksSection {
        /// Whether checks are detected from the tree, or proposed, if neither the issue nor the repository's file gives any.
        pub detect: bool = true;
        /// Time limit of checks that do not set one.
        pub timeout: Duration = Duration::minutes(10), in Duration::seconds(1)..;
        /// Whether checks have network access.
        pub network: bool = false;
    }
}

config_section! {
    /// Isolation of agents and checks.
    pub struct SandboxSection {
        /// Required sandbox: `auto` for bubblewrap (tier A) in public repositories, and in private ones also Landlock (tier B) where
        /// bubblewrap cannot isolate; `bubblewrap` or `landlock` as the least for all; or `none`.
        pub required: SandboxRequired;
        /// First of 256 numbers of users and groups of agents and checks in the sandbox where the service runs as root; each run
        /// has a separate number. No other program on the machine may use these numbers. If the service does not run as root,
        /// agents and checks have the service's user.
        pub user: u32 = SANDBOX_USER, in 1..=4_294_967_038;
        /// Limits of all processes of one run of an agent or a check.
        pub limits: SandboxLimits => section;
        /// Network access of agents: a list of hosts, reached through a proxy that cannot be bypassed, `all` for the host's network,
        /// or `none`. In a list, `example.org` allows ports 443 and 80 at public addresses, `*.example.org` all names below it, and
        /// `models.lan:8080` that port at any address. Servers of the models of known agents, and servers whose `http` address is in
        /// a backend's `env`, are always allowed. Comments list the hosts that were refused. Without a sandbox agents have the
        /// network access of the machine.
        pub network: AgentNetwork;
        /// Folders that agents and checks can read, in addition to `/usr` without `/usr/local` and the folders that programs on the `PATH`
        /// need: `PREFIX` for `PREFIX/bin` if it has folders such as `lib` or `share`, of `/usr/local` the folders of programs, libraries and their data. `data_dir`, the
        /// folders of this file and of files with secrets, and the service's home are hidden wherever they lie.
        pub read_only: Vec<PathBuf>;
    }
}

/// Network access of agents.
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
    /// Returns the allowed destinations.
    ///
    /// # Errors
    /// The host that is not valid.
    pub fn egress(&self) -> Result<Egress, Failure> {
        Ok(match self {
            Self::Word(NetworkWord::All) => Egress::Everything,
            Self::Word(NetworkWord::None) => Egress::Nothing,
            Self::Hosts(hosts) => Egress::Only(Hosts::parse(hosts)?),
        })
    }
}

/// Full network access or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkWord {
    All,
    None,
}

/// Required sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxRequired {
    #[default]
    Auto,
    Bubblewrap,
    Landlock,
    None,
}

config_section! {
    /// Intervals and time limits of the service. The defaults suit a forge that is shared with others.
    pub struct EngineSection {
        /// Interval at which a process polls for work of other processes, in milliseconds. Waits after failed calls are multiples of it.
        pub poll_ms: u32 = 500, in 10..=60_000;
        /// Minimum time between two changes on one forge, in milliseconds. By default there is none on Gitea and Forgejo; on
        /// GitHub it is 1000, and at most 80 changes a minute and 500 an hour are sent. `0` removes these limits, too.
        pub mutation_interval_ms: Option<u32>, in 0..=60_000;
        /// Maximum wait for the answer of an assistant, in seconds; by default 30, and 60 for advice on a prompt. A model without a
        /// graphics card may need more.
        pub answer_timeout_s: Option<u32>, in 1..=600;
        /// Time for running work, agents included, to end when the service stops. A service manager must wait longer
        /// (`TimeoutStopSec` of systemd, 90 seconds by default).
        pub stop_grace: Duration = Duration::seconds(10), in Duration::seconds(1)..=Duration::minutes(10);
    }
}

config_section! {
    /// This host, if several hosts share a database of PostgreSQL: `docs/guides/hosts.md`.
    pub struct RunnerSection {
        /// Name of this host in lists; its host name by default.
        pub name: Option<String>;
        /// Labels of this host. It executes the work of repositories whose `runs_on` names only these.
        pub labels: Vec<String>;
        /// Maximum number of loops whose work this host executes at the same time; `limits.loops` by default.
        pub slots: Option<u32>, in 1..=1000;
    }
}

config_section! {
    /// Programs that decide whether a loop continues, in order by event: `docs/guides/hooks.md`.
    pub struct HooksSection {
        /// Before each run of an agent. A block pauses the loop.
        pub before_agent: Vec<HookSection>;
        /// After the checks of an iteration. A block passes its reason to the next run and delays the review.
        pub after_iteration: Vec<HookSection>;
        /// After every check passed in a fresh checkout. A block passes its reason to the next run.
        pub before_ready: Vec<HookSection>;
        /// After the loop stopped working: in review, at a limit, failed or ended. Verdicts are ignored.
        pub after_end: Vec<HookSection>;
    }
}

config_section! {
    /// Program that decides whether a loop continues: `docs/guides/hooks.md`. It reads JSON from standard input and prints a verdict.
    pub struct HookSection {
        /// Short name: lower-case letters, digits and hyphens.
        pub name: String;
        /// Program with its arguments; not a shell command. Required.
        pub command: Vec<String>;
        /// Time limit.
        pub timeout: Duration = Duration::minutes(1), in Duration::seconds(1)..=Duration::hours(1);
        /// Whether it runs in the sandbox: without network, the work tree read-only. Otherwise it has the same access as the
        /// service.
        pub sandbox: bool = true;
        /// Whether it only runs for repositories whose file names it in `hooks`.
        pub optional: bool = false;
    }
}

config_section! {
    /// Assistant: a backend that writes context blocks and summaries, and with `intelligence: full` advice and reflections. An agent's
    /// command answers in its own sandbox, which has no work tree, and within limits of time and tokens. Its cost counts as the loop's. If
    /// it does not answer, the loop continues with measured facts and reports this once.
    pub struct AssistantSection {
        /// Name of the backend, of any type. It gets the role `assistant` in addition to its roles, and answers questions first.
        /// By default the agent's backend whose `models` name `context.model` or `context.summary_model`, if there is one.
        pub backend: Option<String>;
        /// Model that answers, best a cheap one; that backend's cheap model if omitted.
        pub model: Option<String>;
    }
}

config_section! {
    /// Second opinion: another backend reads task, change and check results of finished work, without write access. Its findings
    /// lead to at most one further iteration of a loop, or are listed in the pull request. It approves nothing, and a loop does not
    /// wait for a backend that fails or is limited. Its cost counts as the loop's.
    pub struct ReviewSection {
        /// Name of the backend; best of another vendor than those that run the agents. No second opinion if omitted. It does not
        /// need the role `agent`; `roles: [reviewer]` keeps it from other uses.
        pub backend: Option<String>;
        /// Time at which the service asks the backend.
        pub when: ReviewTime;
    }
}

config_section! {
    /// Retention of data.
    pub struct RetentionSection {
        /// Retention in days: of prompts, output, answers and events of agents, of summaries and reflections after the loop's
        /// end, and of deliveries after their processing. The service processes a delivery again if it arrives again after this
        /// period.
        pub days: u32 = 30, in 7..=3_650;
    }
}

/// Returns the default protected paths: [`PROTECTED_PATHS`] and the presets' paths.
pub fn protected_paths() -> Vec<String> {
    PROTECTED_PATHS.iter().copied().chain(presets::protected_paths()).map(str::to_owned).collect()
}
