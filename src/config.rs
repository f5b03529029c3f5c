//! Operator file and repository file: the only reader of files and environment. Every error is found in one go, with its
//! place and the nearest valid key.

mod env;
pub mod operator;
mod problem;
mod renamed;
pub mod repository;
pub mod schema;
mod schema_check;
mod secret;
mod supervision_keys;
mod templates;
mod validate;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use url::Url;

pub use env::{DEFAULT_FILE, Env, FILE_VARIABLE, operator_file};
pub use operator::{
    AgentNetwork, ChecksSection, EngineSection, RetentionSection, SandboxRequired, SandboxSection, WorkspaceSection,
};
pub use problem::{ConfigProblem, ConfigProblems, SourceLocation};
pub use repository::parse_repository;
pub use secret::WEBHOOK_SECRET_MIN;

use crate::domain::knowledge::intelligence::ContextSettings;
use crate::domain::knowledge::memory::MemorySettings;
use crate::domain::model::ids::{ForgeName, Money, RepoRef, UserId};
use crate::domain::providers::backends::{BackendSettings, BackendsSettings, WireName};
use crate::domain::providers::prices::PriceTable;
use crate::domain::providers::rules::ModelRules;
use crate::domain::report::notice::ChannelKind;
use crate::domain::supervision::oversight::EscalationLevel;
use crate::domain::trust::permit::Team;
use crate::domain::trust::policy::Intelligence;
use crate::domain::trust::policy::Policy;
use operator::OperatorFile;
use problem::ProblemCollector;
use schema_check::SchemaView;
use yaml::YamlNode;

/// Names of the backends that need nothing but `enabled: true`.
pub const PRESETS: &[&str] = &["claude", "codex", "gemini", "opencode", "kimi", "aider"];

/// Largest configuration file that is read, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// What of the operator's file a command has a use for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigScope {
    /// All of it.
    Service,
    /// Neither forges nor channels: they may be missing, and their secrets are not read.
    Local,
    /// Only what the database is looked at with: no secret is read.
    Store,
}

/// The operator's settings, checked; secrets are read already and paths are resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the service listens and how people reach it.
    pub server: ServerConfig,
    /// Folder for the database, mirrors, work trees and logs.
    pub data_dir: PathBuf,
    /// Servers that are watched; at least one, names distinct. None beyond the reach of the service.
    pub forges: Vec<ForgeConfig>,
    /// Repositories that are watched; empty for all that the credential sees.
    pub repositories: Vec<RepoPattern>,
    /// How checks are found and run.
    pub checks: ChecksSection,
    /// What agents and checks can reach; `read_only` is absolute or relative to the working directory.
    pub sandbox: SandboxSection,
    /// Texts of the operator's own: name (`comment/status.md`) and content, in the order of their names.
    pub templates: Vec<(String, String)>,
    /// How work trees are kept.
    pub workspace: WorkspaceSection,
    /// How quickly the service goes about its work.
    pub engine: EngineSection,
    /// How long things are kept.
    pub retention: RetentionSection,
    /// Backends that are switched on, by name; at least one has the role of agent.
    pub backends: BTreeMap<String, BackendConfig>,
    /// Whether prompts are made for the moment, and whether models help with it.
    pub intelligence: Intelligence,
    /// The context block of prompts, and the models that write it and the summaries.
    pub context: ContextSettings,
    /// What loops learn, and how much of it a prompt carries.
    pub memory: MemorySettings,
    /// Money that is spent at most, beside what one loop may cost.
    pub money: MoneyLimits,
    /// Channels that are told of escalations; names distinct.
    pub channels: Vec<ChannelConfig>,
    /// Keys that still work but have to be changed.
    pub warnings: Vec<ConfigProblem>,
    choice: BackendsSettings,
    policy: Policy,
    allow: Vec<(ForgeName, UserId)>,
    teams: Vec<(ForgeName, Team)>,
    allow_bots: Vec<(ForgeName, UserId)>,
}

/// Where the service listens and how people reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Address and port.
    pub listen: SocketAddr,
    /// Address that webhooks are sent to, `http` or `https`.
    pub public_url: Option<Url>,
}

/// A server that is watched.
#[derive(Debug, Clone)]
pub struct ForgeConfig {
    /// Its short name.
    pub name: ForgeName,
    /// Which software it runs.
    pub kind: ForgeKind,
    /// Its address for people (`https://github.com`), `http` or `https`.
    pub url: Url,
    /// How the service signs in.
    pub auth: ForgeAuth,
    /// Secrets that a webhook may be signed with; at least one, each at least [`WEBHOOK_SECRET_MIN`] bytes.
    pub webhook_secrets: Vec<SecretString>,
    /// Numeric id of the bot's own account, where configured.
    pub own_id: Option<UserId>,
}

/// Which software a forge runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgeKind {
    /// github.com or GitHub Enterprise Server.
    GitHub,
    /// Gitea or Forgejo.
    Gitea,
}

/// How the service signs in to a forge.
#[derive(Debug, Clone)]
pub enum ForgeAuth {
    /// With an access token.
    Token(SecretString),
    /// As a GitHub App.
    App { id: u64, private_key: SecretString },
}

/// An enabled backend.
#[derive(Debug, Clone)]
pub struct BackendConfig {
    /// Its keys; a program with a slash in `command` is resolved, `roles` are those of its type if the file names none.
    pub settings: BackendSettings,
    /// Variables of `env` that are set, with their values.
    pub env: Vec<(String, SecretString)>,
    /// Rules of `models`, compiled.
    pub rules: ModelRules,
    /// Address of the HTTP API; always present for `api` and `internal`, never for others.
    pub url: Option<Url>,
    /// Protocol of the HTTP API; present if `url` is.
    pub wire: Option<WireName>,
    /// Key of the HTTP API.
    pub api_key: Option<SecretString>,
    /// Prices of its models: the configured ones before the built-in ones.
    pub prices: PriceTable,
}

/// Money that is spent at most within a day, beside what one loop may cost; `None` does not limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoneyLimits {
    /// In one repository.
    pub per_repository_day: Option<Money>,
    /// In the whole service.
    pub per_service_day: Option<Money>,
}

impl MoneyLimits {
    /// Most that a repository may spend, whose loops read `by_file` as their limit of a day: the operator's for the whole
    /// service, or less where its file sets less; `None` where neither sets one.
    pub fn of_repository(&self, by_file: Money) -> Option<Money> {
        let is_less = by_file > Money(0) && self.per_service_day.is_none_or(|all| by_file < all);
        [self.per_repository_day, is_less.then_some(by_file)].into_iter().flatten().min()
    }
}

/// A channel that is told of escalations.
#[derive(Debug, Clone)]
pub struct ChannelConfig {
    /// Its short name.
    pub name: String,
    /// Which service it is.
    pub kind: ChannelKind,
    /// Its address, `https`, or `http` where it may be private; may hold a secret.
    pub url: SecretString,
    /// Key of the signature, or routing key.
    pub secret: Option<SecretString>,
    /// What it is told of; never empty.
    pub levels: Vec<EscalationLevel>,
    /// Whether it may be at an address that is not public.
    pub allow_private: bool,
}

/// Repositories of one forge, by owner and name; case does not matter.
#[derive(Debug, Clone)]
pub struct RepoPattern {
    /// Which forge.
    pub forge: ForgeName,
    /// `owner/name` with globs; `*` stays within one part.
    pub glob: globset::GlobMatcher,
}

impl RepoPattern {
    /// Whether `repo` is one of them.
    pub fn matches(&self, repo: &RepoRef) -> bool {
        self.forge == repo.forge && self.glob.is_match(repo.full_name())
    }
}

/// What a list has for one forge.
fn of_forge<T: Clone>(list: &[(ForgeName, T)], forge: &ForgeName) -> Vec<T> {
    list.iter().filter(|(name, _)| name == forge).map(|(_, entry)| entry.clone()).collect()
}

impl Config {
    /// Reads the operator's file at `path`.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the file.
    pub fn load(path: &Path, env: &Env) -> Result<Self, ConfigProblems> {
        Self::load_for(ConfigScope::Service, path, env)
    }

    /// Reads as much of the operator's file at `path` as a command has a use for.
    ///
    /// # Errors
    /// Everything that is wrong with that, in the order of the file.
    pub fn load_for(reach: ConfigScope, path: &Path, env: &Env) -> Result<Self, ConfigProblems> {
        let text = read_limited(path).map_err(|message| {
            let file = path.display().to_string();
            ConfigProblems(vec![ConfigProblem { file, place: SourceLocation::File, key: String::new(), message }])
        })?;
        Self::parse_for(reach, path, &text, env)
    }

    /// Reads `text` as the operator's file; `path` is for messages and for resolving relative paths.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the file.
    pub fn parse(path: &Path, text: &str, env: &Env) -> Result<Self, ConfigProblems> {
        Self::parse_for(ConfigScope::Service, path, text, env)
    }

    /// Reads as much of `text` as a command has a use for.
    ///
    /// # Errors
    /// Everything that is wrong with that, in the order of the file.
    pub fn parse_for(reach: ConfigScope, path: &Path, text: &str, env: &Env) -> Result<Self, ConfigProblems> {
        let mut report = ProblemCollector::new(path.display().to_string());
        let Some(mut root) = YamlNode::parse(text, &mut report) else { return Err(report.into_problems()) };
        let schema = schema::operator_shape();
        let shape = SchemaView::new(&schema);
        renamed::apply(&mut root, &mut report);
        env::apply(env, &mut root, shape, &mut report);
        let Some(file) = typed::<OperatorFile>(&root, shape, &mut report) else { return Err(report.into_problems()) };
        let base = path.parent().unwrap_or(Path::new("")).to_path_buf();
        validate::operator(file, &root, &base, (reach, env), report)
    }

    /// What decisions about repositories of `forge` depend on, before the repository's file is merged in.
    pub fn policy(&self, forge: &ForgeName) -> Policy {
        Policy {
            allow: of_forge(&self.allow, forge),
            teams: of_forge(&self.teams, forge),
            allow_bots: of_forge(&self.allow_bots, forge),
            ..self.policy.clone()
        }
    }

    /// What the choice of a backend depends on: those that are switched on, their order, and how they take turns.
    pub fn backends_settings(&self) -> BackendsSettings {
        self.choice.clone()
    }

    /// Whether `repo` is watched.
    pub fn watches(&self, repo: &RepoRef) -> bool {
        self.repositories.is_empty() || self.repositories.iter().any(|pattern| pattern.matches(repo))
    }

    /// The forge of that name.
    pub fn forge(&self, name: &ForgeName) -> Option<&ForgeConfig> {
        self.forges.iter().find(|forge| forge.name == *name)
    }
}

/// Reads a file of sensible size; the error is a sentence.
fn read_limited(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            "there is no such file; `ralph-bot init` writes one, and `--config` or RALPH_CONFIG names another"
                .to_owned()
        }
        _ => format!("not readable: {error}"),
    })?;
    if metadata.len() > FILE_MAX {
        return Err(format!("{} bytes are too many for a configuration", metadata.len()));
    }
    std::fs::read_to_string(path).map_err(|error| format!("not readable: {error}"))
}

/// The tree as a typed value, without what is not of its shape. `None` when nothing more can be said about it.
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
