//! Configuration files of the operator and of repositories. Only this module reads the environment. One pass finds all
//! errors, each with its position and the most similar valid key.

mod env;
pub mod forge_entry;
mod key_sources;
pub mod login_clients;
pub mod operator;
mod password_file;
mod problem;
pub mod reference;
mod removed;
mod renamed;
pub mod repository;
pub mod schema;
mod schema_check;
mod secret;
mod supervision_keys;
pub mod tasks;
mod templates;
pub mod trial;
mod validate;
mod validate_repository;
pub mod webhook_secrets;
pub mod workflows;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph_types::failure::Failure;
use secrecy::SecretString;
use url::Url;

pub use env::{DEFAULT_FILE, Env, FILE_VARIABLE, operator_file};
pub use key_sources::{KeySource, KeySources};
pub use login_clients::LoginClientConfig;
pub use operator::{
    AgentNetwork, ChecksSection, EngineSection, RetentionSection, RunnerSection, SandboxRequired, SandboxSection,
};
pub use problem::{ConfigProblem, ConfigProblems, SourceLocation};
pub use removed::{drop_from_sections, without_removed_keys};
pub use secret::WEBHOOK_SECRET_MIN;
pub use validate_repository::parse_repository;

use crate::domain::knowledge::intelligence::ContextSettings;
use crate::domain::knowledge::memory::MemorySettings;
use crate::domain::model::authorship::CommitSigning;
use crate::domain::model::database::PostgresAddress;
use crate::domain::model::hook::HookEvent;
use crate::domain::model::ids::{ForgeName, Money, RepoRef, UserId};
use crate::domain::providers::backends::{BackendSettings, BackendsSettings, WireName};
use crate::domain::providers::prices::PriceTable;
use crate::domain::providers::rules::ModelRules;
use crate::domain::report::notice::ChannelKind;
use crate::domain::supervision::oversight::EscalationLevel;
use crate::domain::trust::images::ImageSettings;
use crate::domain::trust::permit::TeamRef;
use crate::domain::trust::policy::Intelligence;
use crate::domain::trust::policy::{Policy, ReviewPolicy};
use operator::OperatorFile;
use problem::ProblemCollector;
use schema_check::SchemaView;
use yaml::YamlNode;

/// Maximum size of a configuration file, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Part of the operator's file that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigScope {
    /// The complete file.
    Service,
    /// Everything except forges and channels, which may be missing. Their secrets are not read.
    Local,
    /// Only the parts needed to read the database, without secrets.
    Store,
}

/// Backend that answers questions first, and its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssistantChoice {
    /// Name of a backend.
    pub backend: String,
    /// Model that answers; `None` for the backend's cheap model.
    pub model: Option<String>,
}

/// Validated settings of the operator, with secrets read and paths resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses of the service.
    pub server: ServerConfig,
    /// Dashboard and API.
    pub dashboard: DashboardConfig,
    /// Folder for the database, mirrors, work trees and logs.
    pub data_dir: PathBuf,
    /// Server of the database; `None` for SQLite in `data_dir`.
    pub database: Option<DatabaseConfig>,
    /// Watched forges, with distinct names. At least one for [`ConfigScope::Service`]; empty for other scopes.
    pub forges: Vec<ForgeConfig>,
    /// Watched repositories; empty for all that the credentials can access.
    pub repositories: Vec<RepoPattern>,
    /// Detection and execution of checks.
    pub checks: ChecksSection,
    /// Isolation of agents and checks; `read_only` is absolute or relative to the working directory.
    pub sandbox: SandboxSection,
    /// Path of the file; `None` if it does not exist.
    pub file: Option<PathBuf>,
    /// Files with the secrets that were read, each with its configuration key.
    pub secret_files: Vec<(String, PathBuf)>,
    /// Secrets that only other programs and libraries use, each with its name, for example signing keys and trace headers.
    pub other_secrets: Vec<(String, SecretString)>,
    /// Key for signing commits; `None` if commits are not signed.
    pub signing: Option<CommitSigning>,
    /// Hosts whose public repositories are fetched as submodules, in lower case, optionally with a port.
    pub submodule_hosts: Vec<String>,
    /// Custom templates: name (`comment/status.md`) and content, sorted by name.
    pub templates: Vec<(String, String)>,
    /// Intervals and time limits of the service.
    pub engine: EngineSection,
    /// This host.
    pub runner: RunnerSection,
    /// Retention of data.
    pub retention: RetentionSection,
    /// Enabled backends by name; at least one has the role `agent`.
    pub backends: BTreeMap<String, BackendConfig>,
    /// Level of prompt adaptation.
    pub intelligence: Intelligence,
    /// Assistant that answers questions first; `None` if the file and its models name none.
    pub assistant: Option<AssistantChoice>,
    /// Settings of the context block in prompts, and of the models that write it and the summaries.
    pub context: ContextSettings,
    /// Memory: learnings of loops and their use in prompts.
    pub memory: MemorySettings,
    /// Images in issues and comments.
    pub images: ImageSettings,
    /// Daily cost limits.
    pub money: MoneyLimits,
    /// Hooks, in the order in which they run.
    pub hooks: Vec<HookProgram>,
    /// Address of the trace collector; `None` if traces are disabled.
    pub otlp_endpoint: Option<Url>,
    /// Channels for escalations, with distinct names.
    pub channels: Vec<ChannelConfig>,
    /// Keys set by the operator, each with its source.
    pub key_sources: KeySources,
    /// Warnings about deprecated keys in the file.
    pub warnings: Vec<ConfigProblem>,
    choice: BackendsSettings,
    pub policy: Policy,
    allow: Vec<(ForgeName, UserId)>,
    teams: Vec<(ForgeName, TeamRef)>,
    allow_bots: Vec<(ForgeName, UserId)>,
}

/// Database of PostgreSQL.
#[derive(Debug, Clone)]
pub struct DatabaseConfig {
    /// Address; the path of its root certificate is resolved.
    pub address: PostgresAddress,
    /// Password for each host of the address, in order; `None` if there is none.
    pub passwords: Vec<Option<SecretString>>,
}

/// Addresses of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Address and port for webhooks.
    pub listen: SocketAddr,
    /// Separate address and port for health and metrics in every role; `None` if not configured.
    pub metrics_listen: Option<SocketAddr>,
    /// Public address for webhooks, `http` or `https`; `None` if there is none.
    pub public_url: Option<Url>,
}

/// Dashboard and API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DashboardConfig {
    /// Whether the dashboard and the API are served.
    pub enabled: bool,
    /// Operators' accounts. Operators see all repositories.
    pub operators: Vec<(ForgeName, UserId)>,
    /// Separate address of the dashboard; `None` for the default.
    pub listen: Option<SocketAddr>,
}

/// Watched forge.
#[derive(Debug, Clone)]
pub struct ForgeConfig {
    /// Short name.
    pub name: ForgeName,
    /// Software of the forge.
    pub kind: ForgeKind,
    /// Address of the web interface (`https://github.com`), `http` or `https`.
    pub url: Url,
    /// Configured address of GitHub's REST API; `None` for the default.
    pub api_url: Option<Url>,
    /// Credentials of the service.
    pub auth: ForgeAuth,
    /// Source of changes.
    pub updates: ForgeUpdates,
    /// Accepted secrets for webhook signatures, each at least [`WEBHOOK_SECRET_MIN`] bytes; at least one if webhooks are
    /// used.
    pub webhook_secrets: Vec<SecretString>,
    /// Secrets of single repositories. A repository with a separate secret accepts no other secret.
    pub repository_secrets: Vec<webhook_secrets::RepositorySecrets>,
    /// Configured numeric id of the bot's account; `None` to query it.
    pub own_id: Option<UserId>,
    /// OAuth client for logins, from the file or created by `ralph-bot init --login`; `None` without a login.
    pub login: Option<LoginClientConfig>,
}

impl ForgeConfig {
    /// Returns the address of GitHub's REST API: the configured address, or a separate host for github.com and GHE.com and a
    /// path for Enterprise Server.
    pub fn github_api(&self) -> Url {
        github_api(&self.url, self.api_url.as_ref())
    }
}

/// Returns the address of the REST API of the GitHub server at `web`: `configured`, or the default.
pub fn github_api(web: &Url, configured: Option<&Url>) -> Url {
    let usual = match web.host_str() {
        Some("github.com" | "www.github.com") => "https://api.github.com/".to_owned(),
        Some(host) if host.ends_with(".ghe.com") => format!("{}://api.{host}/", web.scheme()),
        _ => format!("{}/api/v3/", web.as_str().trim_end_matches('/')),
    };
    configured.cloned().or_else(|| Url::parse(&usual).ok()).unwrap_or_else(|| web.clone())
}

/// Source of changes on a forge: webhooks, polling, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForgeUpdates {
    /// Whether the service receives webhooks.
    pub webhooks: bool,
    /// Polling interval; `None` without polling.
    pub poll: Option<Duration>,
}

impl Default for ForgeUpdates {
    fn default() -> Self {
        Self { webhooks: true, poll: None }
    }
}

/// Software of a forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgeKind {
    /// github.com or GitHub Enterprise Server.
    GitHub,
    /// Gitea or Forgejo.
    Gitea,
}

/// Credentials for a forge.
#[derive(Debug, Clone)]
pub enum ForgeAuth {
    /// Access token.
    Token(SecretString),
    /// GitHub App.
    App { id: u64, private_key: SecretString },
}

/// Enabled backend.
#[derive(Debug, Clone)]
pub struct BackendConfig {
    /// Settings of the backend. A program with a slash in `command` is resolved. If the file sets no `roles`, the default
    /// roles of the backend's type apply.
    pub settings: BackendSettings,
    /// Variables of `env` that are set in the environment, with their values.
    pub env: Vec<(String, SecretString)>,
    /// Compiled rules of `models`.
    pub rules: ModelRules,
    /// Address of the HTTP API; always set for `api` and `internal`, never for other types.
    pub url: Option<Url>,
    /// Protocol of the HTTP API; set if `url` is.
    pub wire: Option<WireName>,
    /// Key of the HTTP API.
    pub api_key: Option<SecretString>,
    /// Prices of the backend's models; configured prices override built-in ones.
    pub prices: PriceTable,
}

/// Maximum cost per day, in addition to the limit of each loop; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoneyLimits {
    /// Maximum cost of all loops of one repository.
    pub per_repository_day: Option<Money>,
    /// Maximum cost of all loops of the service.
    pub per_service_day: Option<Money>,
}

impl MoneyLimits {
    /// Returns the daily limit of a repository: the operator's limit per repository or, if unset, `by_file` (the limit in
    /// the repository's policy) if it is lower than the service's limit; otherwise `None`.
    pub fn of_repository(&self, by_file: Money) -> Option<Money> {
        let is_less = by_file > Money(0) && self.per_service_day.is_none_or(|all| by_file < all);
        [self.per_repository_day, is_less.then_some(by_file)].into_iter().flatten().min()
    }
}

/// Hook: a program that decides whether a loop continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookProgram {
    /// Event that triggers the hook.
    pub event: HookEvent,
    /// Name, unique within the event.
    pub name: String,
    /// Program with its arguments; a program with a slash is resolved.
    pub command: Vec<String>,
    /// Time limit.
    pub timeout: Duration,
    /// Whether the hook runs in the sandbox, if sandboxes are enabled.
    pub sandbox: bool,
    /// Whether the hook runs only for repositories whose configuration file names it.
    pub optional: bool,
}

/// Channel for escalations.
#[derive(Debug, Clone)]
pub struct ChannelConfig {
    /// Short name.
    pub name: String,
    /// Service of the channel.
    pub kind: ChannelKind,
    /// Address, `https`, or `http` if private addresses are allowed; may contain a secret.
    pub url: SecretString,
    /// Signing key, routing key, bot token or password.
    pub secret: Option<SecretString>,
    /// Slack room; set only with a bot token.
    pub room: Option<String>,
    /// Mail settings; set only for mail.
    pub mail: Option<MailConfig>,
    /// Levels sent to the channel; never empty.
    pub levels: Vec<EscalationLevel>,
    /// Whether the channel's address may be private.
    pub allow_private: bool,
}

/// Settings of a mail channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailConfig {
    /// User name for the mail server; `None` without a login.
    pub user: Option<String>,
    /// Sender, in the format of a mail header.
    pub from: String,
    /// Recipients, in the format of a mail header; never empty.
    pub to: Vec<String>,
    /// Whether a connection without implicit TLS requires STARTTLS.
    pub starttls: bool,
    /// Trusted certificates in PEM format, in addition to the system's; may be empty.
    pub ca: Vec<u8>,
}

/// Pattern for repositories of one forge; ignores letter case.
#[derive(Debug, Clone)]
pub struct RepoPattern {
    /// Forge of the repositories.
    pub forge: ForgeName,
    /// `owner/name` with globs; `*` does not match `/`.
    pub glob: globset::GlobMatcher,
}

impl RepoPattern {
    /// Whether the pattern matches `repo`.
    pub fn matches(&self, repo: &RepoRef) -> bool {
        self.forge == repo.forge && self.glob.is_match(repo.full_name())
    }
}

/// Returns the entries of one forge.
fn of_forge<T: Clone>(list: &[(ForgeName, T)], forge: &ForgeName) -> Vec<T> {
    list.iter().filter(|(name, _)| name == forge).map(|(_, entry)| entry.clone()).collect()
}

impl Config {
    /// Reads the operator's file at `path`.
    ///
    /// # Errors
    /// All problems in the file, in file order.
    pub fn load(path: &Path, env: &Env) -> Result<Self, ConfigProblems> {
        Self::load_for(ConfigScope::Service, path, env)
    }

    /// Reads the part of the operator's file at `path` that a command needs.
    ///
    /// # Errors
    /// All problems in this part, in file order.
    pub fn load_for(reach: ConfigScope, path: &Path, env: &Env) -> Result<Self, ConfigProblems> {
        let text = read_limited(path).map_err(|problem| ConfigProblems::of_file(path, &problem))?;
        Self::parse_for(reach, path, &text, env)
    }

    /// Parses `text` as the operator's file; `path` appears in messages and is the base of relative paths.
    ///
    /// # Errors
    /// All problems in the file, in file order.
    pub fn parse(path: &Path, text: &str, env: &Env) -> Result<Self, ConfigProblems> {
        Self::parse_for(ConfigScope::Service, path, text, env)
    }

    /// Whether `text` is a mapping with a value for this top-level key.
    pub fn has_key(text: &str, key: &str) -> bool {
        let mut unread = ProblemCollector::new(String::new());
        YamlNode::parse(text, &mut unread).is_some_and(|root| root.has(key))
    }

    /// Parses the part of `text` that a command needs.
    ///
    /// # Errors
    /// All problems in this part, in file order.
    pub fn parse_for(reach: ConfigScope, path: &Path, text: &str, env: &Env) -> Result<Self, ConfigProblems> {
        let mut report = ProblemCollector::new(path.display().to_string());
        let Some(mut root) = YamlNode::parse(text, &mut report) else { return Err(report.into_problems()) };
        let schema = schema::operator_types();
        let shape = SchemaView::new(schema);
        renamed::apply(&mut root, &mut report);
        removed::drop_from(&mut root, "", &mut report);
        renamed::supervision(&mut root, &mut report);
        env::apply(env, &mut root, shape, &mut report);
        let Some(file) = typed::<OperatorFile>(&root, shape, &mut report) else { return Err(report.into_problems()) };
        let base = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let config = validate::operator(file, &root, &base, (reach, env), report)?;
        Ok(Self { file: path.is_file().then(|| path.to_owned()), ..config })
    }

    /// Returns the policy for repositories of `forge`, before a repository's file is merged.
    pub fn policy(&self, forge: &ForgeName) -> Policy {
        Policy {
            allow: of_forge(&self.allow, forge),
            teams: of_forge(&self.teams, forge),
            allow_bots: of_forge(&self.allow_bots, forge),
            ..self.policy.clone()
        }
    }

    /// Returns the settings for second opinions; `None` if loops request none.
    pub fn review(&self) -> Option<&ReviewPolicy> {
        self.policy.review.as_ref()
    }

    /// Returns the settings for choosing a backend: enabled backends, priority, rotation and cool-down.
    pub fn backends_settings(&self) -> BackendsSettings {
        self.choice.clone()
    }

    /// Whether `repo` is watched.
    pub fn watches(&self, repo: &RepoRef) -> bool {
        self.repositories.is_empty() || self.repositories.iter().any(|pattern| pattern.matches(repo))
    }

    /// Returns the forge with this name.
    pub fn forge(&self, name: &ForgeName) -> Option<&ForgeConfig> {
        self.forges.iter().find(|forge| forge.name == *name)
    }
}

/// Reads a file of at most [`FILE_MAX`] bytes.
fn read_limited(path: &Path) -> Result<String, Failure> {
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::new("file not found")
            .with_hint("run `ralph-bot init` to create it, or set `--config` or RALPH_CONFIG to another path"),
        _ => Failure::new("cannot read the file").caused_by(error),
    })?;
    if metadata.len() > FILE_MAX {
        return Err(Failure::new(format!("the file has {} bytes, the maximum is {FILE_MAX}", metadata.len())));
    }
    std::fs::read_to_string(path).map_err(|error| Failure::new("cannot read the file").caused_by(error))
}

/// Deserializes a document after removing values that do not match the schema. `None` if no value is readable.
fn typed<T: serde::de::DeserializeOwned + Default>(
    root: &YamlNode,
    shape: SchemaView<'_>,
    report: &mut ProblemCollector,
) -> Option<T> {
    shape.check(root, "", report);
    let sound = root.without(report.take_keys());
    if sound.value == yaml::YamlValue::Null {
        return Some(T::default());
    }
    match serde_json::from_value(sound.to_json()) {
        Ok(value) => Some(value),
        Err(error) => {
            if report.is_empty() {
                report.add(SourceLocation::File, "", error.to_string());
            }
            None
        }
    }
}
