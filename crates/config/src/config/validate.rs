//! Validates the operator's file: contradictions, secrets, addresses and paths.

mod backends;
mod channels;
pub(super) mod commits;
mod dashboard;
mod database;
mod hooks;
pub(super) mod labels;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use serde_json::Map;
use url::Url;

use super::operator::{AccountEntry, ForgeKindName, ForgeSection, OperatorFile, SandboxRequired, UpdatesName};
use super::problem::{ConfigProblems, ProblemCollector};
use super::removed;
use super::secret::{self, SecretSource, WEBHOOK_SECRET_MIN};
use super::supervision_keys::SupervisionKeys;
use super::yaml::YamlNode;
use super::{
    AssistantChoice, Config, ConfigScope, Env, ForgeAuth, ForgeConfig, ForgeKind, ForgeUpdates, KeySources,
    MoneyLimits, RepoPattern, ServerConfig, templates, webhook_secrets,
};
use crate::agent::presets;
use crate::domain::knowledge::memory::{EMBEDDING_FILES, MemorySettings, NO_EMBEDDINGS};
use crate::domain::model::ids::{ForgeName, UserId};
use crate::domain::model::settings::{self, ConfigSection as _, Settings as _, did_you_mean};
use crate::domain::providers::backends::BackendSettings;
use crate::domain::providers::rules::RuleProblem;
use crate::domain::supervision::SupervisionPreset;
use crate::domain::trust::egress::Egress;
use crate::domain::trust::permit::TeamRef;
use crate::domain::trust::policy::Policy;
use crate::domain::trust::protected::Protected;

/// Allowed polling intervals, in seconds. A shorter interval uses too much of the forge's limit; a longer one makes people
/// wait.
const POLL_SECONDS: std::ops::RangeInclusive<u64> = 10..=3600;

/// Validates `file`; `root` has its values' positions.
pub(super) fn operator(
    file: OperatorFile,
    root: &YamlNode,
    base: &Path,
    (reach, env): (ConfigScope, &Env),
    report: ProblemCollector,
) -> Result<Config, ConfigProblems> {
    let reviewer = file.review.backend.clone();
    let assistant = backends::assistant_of(&file);
    let mut check = Validator { root, base, reach, env, report, secret_files: Vec::new(), reviewer, assistant };
    check.settings(file.check(""));
    let database = check.database(&file);
    let listen = check.listen("server.listen", &file.server.listen);
    let metrics_listen = file.server.metrics_listen.as_deref();
    let metrics_listen = metrics_listen.and_then(|text| check.listen("server.metrics_listen", text));
    let public_url = file.server.public_url.as_deref().and_then(|url| check.url("server.public_url", url));
    let mut forges = if reach == ConfigScope::Service { check.forges(&file.forges) } else { Vec::new() };
    check.repository_secrets(&mut forges, &base.join(&file.data_dir));
    check.login_clients(&mut forges, &base.join(&file.data_dir));
    let names: Vec<&str> = file.forges.iter().map(|forge| forge.name.as_str()).collect();
    let repositories = check.patterns(&file.repositories, &names);
    let allow = check.accounts("permissions.allow", &file.permissions.allow, &names);
    let teams = check.teams(&file.permissions.teams, &names);
    let allow_bots = check.accounts("permissions.allow_bots", &file.permissions.allow_bots, &names);
    let dashboard = check.dashboard(&file.dashboard, &forges, public_url.as_ref(), &names);
    let backends = check.backends(&file.backends);
    let choice = check.choice(&file);
    check.schedule(&file);
    check.assistant(&file);
    check.settings(file.context.validate());
    check.settings(file.memory.validate());
    check.settings(file.images.validate());
    let embeddings = check.embeddings(file.memory.embeddings.as_deref());
    let otlp_endpoint = file.telemetry.otlp_endpoint.as_deref();
    let otlp_endpoint = otlp_endpoint.and_then(|url| check.url("telemetry.otlp_endpoint", url));
    let channels = if reach == ConfigScope::Service { check.channels(&file.escalation.channels) } else { Vec::new() };
    let hooks = check.hooks(&file.hooks);
    let signing = check.commits(&file.commits);
    let other_secrets = secret::of_others(signing.as_ref(), env);
    let policy = Policy { hooks: hooks::names(&hooks), ..check.policy(&file) };
    check.network(&file);
    labels::check(&mut check.report, root, "runner.labels", &file.runner.labels);
    check.hosts("submodules.hosts", &file.submodules.hosts);
    let templates = check.templates(file.templates.as_deref());
    let mut sandbox = file.sandbox;
    sandbox.read_only = sandbox.read_only.iter().map(|path| base.join(path)).collect();
    let Validator { mut report, secret_files, assistant, .. } = check;
    let config = Config {
        server: ServerConfig {
            listen: listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8080))),
            metrics_listen,
            public_url,
        },
        dashboard,
        data_dir: base.join(&file.data_dir),
        database,
        forges,
        repositories,
        checks: file.checks,
        sandbox,
        file: None,
        secret_files,
        other_secrets,
        signing,
        submodule_hosts: file.submodules.hosts,
        templates,
        engine: file.engine,
        runner: file.runner,
        retention: file.retention,
        backends,
        choice,
        money: MoneyLimits {
            per_repository_day: file.limits.cost_usd_per_repository_per_day.map(|usd| usd.0),
            per_service_day: Some(file.limits.cost_usd_per_day.0),
        },
        hooks,
        otlp_endpoint,
        channels,
        key_sources: KeySources::of(root),
        warnings: report.take_warnings(),
        intelligence: file.intelligence,
        assistant: assistant.map(|backend| AssistantChoice { backend, model: file.assistant.model }),
        context: file.context,
        memory: MemorySettings { embeddings, ..file.memory },
        images: file.images,
        policy,
        allow,
        teams,
        allow_bots,
    };
    report.into_result(config)
}

struct Validator<'a> {
    root: &'a YamlNode,
    base: &'a Path,
    reach: ConfigScope,
    env: &'a Env,
    report: ProblemCollector,
    /// Files with secrets that were read, with their keys.
    secret_files: Vec<(String, PathBuf)>,
    /// Backend that gives second opinions.
    reviewer: Option<String>,
    /// Backend that is the assistant.
    assistant: Option<String>,
}

impl Validator<'_> {
    /// Adds a warning about the value at `key`.
    fn warn(&mut self, key: &str, message: impl std::fmt::Display) {
        let place = self.root.place_at(key);
        self.report.warn(place, key, format!("`{key}`: {message:#}"));
    }

    /// Adds a problem of the value at `key`.
    fn wrong(&mut self, key: &str, message: impl std::fmt::Display) {
        let place = self.root.place_at(key);
        self.report.add(place, key, format!("`{key}`: {message:#}"));
    }

    /// Adds problems of settings with their positions in the file.
    fn settings(&mut self, problems: Vec<settings::KeyProblem>) {
        for problem in problems {
            let problem = removed::without_removed_keys(problem);
            // The file may set only the other one of two conflicting keys.
            let other = problem.other().unwrap_or_default();
            let written = if self.root.has(&problem.key) || !self.root.has(other) { &problem.key } else { other };
            let place = self.root.place_at(written);
            self.report.add(place, problem.key.clone(), problem.message);
        }
    }

    /// Returns the folder of the embedding model after checking that its files exist.
    fn embeddings(&mut self, folder: Option<&Path>) -> Option<PathBuf> {
        let folder = self.base.join(folder?);
        if !cfg!(feature = "embeddings") {
            self.wrong("memory.embeddings", NO_EMBEDDINGS);
            return None;
        }
        for file in EMBEDDING_FILES.map(|name| folder.join(name)) {
            if let Err(error) = std::fs::metadata(&file) {
                self.wrong("memory.embeddings", format!("{}: {error}", file.display()));
            }
        }
        Some(folder)
    }

    /// Adds problems of rules. The position is the rule's position; lines and columns in the message refer to the
    /// expression.
    fn rules(&mut self, problems: Vec<RuleProblem>) {
        for problem in problems {
            let place = self.root.place_at(&problem.key);
            self.report.add(place, problem.key.clone(), problem.to_string());
        }
    }

    fn listen(&mut self, key: &str, text: &str) -> Option<SocketAddr> {
        let address = text.parse().ok();
        if address.is_none() {
            self.wrong(key, "expected an address and a port such as 127.0.0.1:8080 or [::]:8080");
        }
        address
    }

    /// Parses a server address: http or https, with a host, without credentials, query and fragment.
    fn url(&mut self, key: &str, text: &str) -> Option<Url> {
        let Ok(url) = Url::parse(text) else {
            self.wrong(key, "expected an address such as https://git.example.org");
            return None;
        };
        let why = if !matches!(url.scheme(), "http" | "https") {
            "the address must start with https:// or http://"
        } else if !url.username().is_empty() || url.password().is_some() {
            "the address must not contain a user or password; set `token_env` or `token_file`"
        } else if url.query().is_some() || url.fragment().is_some() {
            "the address must not contain `?` or `#`"
        } else {
            return Some(url);
        };
        self.wrong(key, why);
        None
    }

    fn forges(&mut self, forges: &[ForgeSection]) -> Vec<ForgeConfig> {
        if forges.is_empty() {
            self.wrong("forges", "at least one forge is required; `ralph-bot init` adds one");
        }
        let mut checked = Vec::new();
        for (index, forge) in forges.iter().enumerate() {
            let key = format!("forges[{index}]");
            let good_name = self.forge_name(&key, forge);
            if good_name && forges.iter().take(index).any(|other| other.name == forge.name) {
                self.wrong(&format!("{key}.name"), format!("two forges are named `{}`", forge.name));
            }
            checked.extend(self.forge(&key, forge));
        }
        checked
    }

    /// Whether a name is valid for routes, keys and messages.
    fn short_name(&mut self, key: &str, name: &str) -> bool {
        const LONGEST: usize = 40;
        if name.is_empty() {
            self.wrong(key, "`name` is missing");
            return false;
        }
        let harmless = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !harmless || name.starts_with('-') || name.len() > LONGEST {
            let rule = format!("expected lower-case letters, digits and hyphens, at most {LONGEST}");
            self.wrong(&format!("{key}.name"), rule);
            return false;
        }
        true
    }

    fn forge_name(&mut self, key: &str, forge: &ForgeSection) -> bool {
        let name = &forge.name;
        if !self.short_name(key, name) {
            return false;
        }
        let kind = match forge.kind {
            Some(ForgeKindName::Github) => "github",
            Some(_) => "gitea",
            None => return true,
        };
        if matches!(name.as_str(), "github" | "gitea") && name != kind {
            self.wrong(&format!("{key}.name"), format!("a forge of kind {kind} cannot be named `{name}`"));
            return false;
        }
        true
    }

    fn forge(&mut self, key: &str, forge: &ForgeSection) -> Option<ForgeConfig> {
        let kind = match forge.kind {
            Some(ForgeKindName::Github) => Some(ForgeKind::GitHub),
            Some(ForgeKindName::Gitea | ForgeKindName::Forgejo) => Some(ForgeKind::Gitea),
            None => {
                self.wrong(key, "`kind` is missing; set it to `github` or `gitea`");
                None
            }
        };
        let url = match (&forge.url, kind) {
            (Some(url), _) => self.url(&format!("{key}.url"), url),
            (None, Some(ForgeKind::Gitea)) => {
                self.wrong(key, "`url` is missing; set it to the address of the Gitea or Forgejo server");
                None
            }
            (None, _) => Url::parse("https://github.com").ok(),
        };
        let api_url = forge.api_url.as_ref().and_then(|address| match kind {
            Some(ForgeKind::Gitea) => {
                self.wrong(&format!("{key}.api_url"), "only GitHub has a separate API address; remove it");
                None
            }
            _ => self.url(&format!("{key}.api_url"), address),
        });
        let auth = self.forge_auth(key, forge, kind);
        let updates = self.updates(key, forge);
        let webhook_secrets = self.webhook_secrets(key, forge);
        let login = self.login(key, forge.login.as_ref());
        Some(ForgeConfig {
            name: ForgeName::new(&forge.name),
            kind: kind?,
            url: url?,
            api_url,
            auth: auth?,
            updates,
            webhook_secrets,
            repository_secrets: Vec::new(),
            own_id: forge.own_id.map(UserId),
            login,
        })
    }

    fn forge_auth(&mut self, key: &str, forge: &ForgeSection, kind: Option<ForgeKind>) -> Option<ForgeAuth> {
        let token = self.one_of(key, "token", &forge.token_env, &forge.token_file);
        let private_key = self.one_of(key, "private_key", &forge.private_key_env, &forge.private_key_file);
        if forge.app_id.is_some() && token.is_some() {
            self.wrong(key, "`app_id` and a token cannot be combined; keep one of them");
            return None;
        }
        if kind == Some(ForgeKind::Gitea) && (forge.app_id.is_some() || private_key.is_some()) {
            self.wrong(key, "only GitHub has Apps; use `token_env` or `token_file`");
            return None;
        }
        match (forge.app_id, private_key, token) {
            (Some(id), Some((key, source)), _) => {
                let private_key = self.secret(&key, &source)?;
                Some(ForgeAuth::App { id, private_key })
            }
            (Some(_), None, _) => {
                self.wrong(key, "`app_id` needs `private_key_file` or `private_key_env`");
                None
            }
            (None, Some((field, _)), _) => {
                self.wrong(&field, "a private key needs the `app_id` it belongs to");
                None
            }
            (None, None, Some((key, source))) => Some(ForgeAuth::Token(self.secret(&key, &source)?)),
            (None, None, None) => {
                let or_app = if kind == Some(ForgeKind::Gitea) { "" } else { ", or `app_id` with `private_key_file`" };
                self.wrong(key, format!("no credentials; set `token_env` or `token_file`{or_app}"));
                None
            }
        }
    }

    /// Returns the source of a secret from `NAME_env` or `NAME_file`, with its key.
    fn one_of(
        &mut self,
        key: &str,
        name: &str,
        variable: &Option<String>,
        file: &Option<PathBuf>,
    ) -> Option<(String, SecretSource)> {
        match (variable, file) {
            (Some(_), Some(_)) => {
                let place = if key.is_empty() { format!("{name}_file") } else { key.to_owned() };
                self.wrong(&place, format!("`{name}_env` and `{name}_file` cannot be combined; keep one of them"));
                self.one_of(key, name, variable, &None)
            }
            (Some(variable), None) => {
                Some((settings::join(key, &format!("{name}_env")), SecretSource::Variable(variable.clone())))
            }
            (None, Some(file)) => {
                Some((settings::join(key, &format!("{name}_file")), SecretSource::File(file.clone())))
            }
            (None, None) => None,
        }
    }

    fn secret(&mut self, key: &str, source: &SecretSource) -> Option<SecretString> {
        if self.reach == ConfigScope::Store {
            return Some(SecretString::default());
        }
        self.read_secret(key, source)
    }

    fn read_secret(&mut self, key: &str, source: &SecretSource) -> Option<SecretString> {
        if let SecretSource::File(path) = source {
            self.secret_files.push((key.to_owned(), self.base.join(path)));
        }
        secret::read(source, self.env, self.base).map_err(|why| self.wrong(key, why)).ok()
    }

    fn updates(&mut self, key: &str, forge: &ForgeSection) -> ForgeUpdates {
        let interval = forge.poll.as_seconds();
        if !POLL_SECONDS.contains(&interval) {
            let (least, most) = (POLL_SECONDS.start(), POLL_SECONDS.end() / 3600);
            self.wrong(&format!("{key}.poll"), format!("must be from {least}s to {most}h"));
        }
        let poll = (forge.updates != UpdatesName::Webhooks).then(|| std::time::Duration::from_secs(interval));
        ForgeUpdates { webhooks: forge.updates != UpdatesName::Poll, poll }
    }

    fn webhook_secrets(&mut self, key: &str, forge: &ForgeSection) -> Vec<SecretString> {
        let mut sources = Vec::new();
        for variable in forge.webhook_secret_env.iter().flat_map(|list| list.as_slice()) {
            sources.push((format!("{key}.webhook_secret_env"), SecretSource::Variable(variable.clone())));
        }
        for file in forge.webhook_secret_file.iter().flat_map(|list| list.as_slice()) {
            sources.push((format!("{key}.webhook_secret_file"), SecretSource::File(file.clone())));
        }
        if sources.is_empty() && forge.updates != UpdatesName::Poll {
            self.wrong(key, "no webhook secret; set `webhook_secret_env` or `webhook_secret_file`, or `updates: poll`");
        }
        let mut secrets = Vec::new();
        for (key, source) in sources {
            let Some(secret) = self.secret(&key, &source) else { continue };
            let length = secret.expose_secret().len();
            if length < WEBHOOK_SECRET_MIN {
                let why = format!("the secret has {length} bytes; at least {WEBHOOK_SECRET_MIN} are required");
                self.wrong(&key, why);
            } else {
                secrets.push(secret);
            }
        }
        secrets
    }

    /// Reads the webhook secrets of single repositories from the data folder.
    fn repository_secrets(&mut self, forges: &mut [ForgeConfig], data: &Path) {
        for forge in forges {
            match webhook_secrets::read(data, &forge.name) {
                Ok(found) => forge.repository_secrets = found,
                Err(why) => self.wrong("data_dir", why),
            }
        }
    }

    fn patterns(&mut self, patterns: &[String], forges: &[&str]) -> Vec<RepoPattern> {
        let mut checked = Vec::new();
        for (index, text) in patterns.iter().enumerate() {
            let key = format!("repositories[{index}]");
            let parts = text.split_once(':').filter(|(_, repo)| repo.split('/').filter(|p| !p.is_empty()).count() == 2);
            let Some((forge, repo)) = parts else {
                self.wrong(&key, "expected `forge:owner/name`, where owner and name may contain `*`");
                continue;
            };
            if !forges.contains(&forge) {
                let near = did_you_mean(forge, forges.iter().copied());
                self.wrong(&key, format!("there is no forge named `{forge}`{near}"));
                continue;
            }
            match globset::GlobBuilder::new(repo).literal_separator(true).case_insensitive(true).build() {
                Ok(glob) => checked.push(RepoPattern { forge: ForgeName::new(forge), glob: glob.compile_matcher() }),
                Err(error) => self.wrong(&key, format!("invalid pattern: {}", error.kind())),
            }
        }
        checked
    }

    /// Returns accounts with their forges, because ids are only unique within a forge.
    fn accounts(&mut self, key: &str, entries: &[AccountEntry], forges: &[&str]) -> Vec<(ForgeName, UserId)> {
        let mut checked = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let key = format!("{key}[{index}]");
            let (forge, id) = match (entry, forges) {
                (AccountEntry::Id(id), [only]) => (*only, Some(*id)),
                (AccountEntry::Id(_), _) => {
                    self.wrong(&key, "with several forges write the account as `forge:id`");
                    continue;
                }
                (AccountEntry::Text(text), _) => match text.split_once(':') {
                    Some((forge, id)) => (forge, id.parse().ok()),
                    None => (forges.first().copied().unwrap_or(""), None),
                },
            };
            match id.filter(|id| *id > 0) {
                None => {
                    self.wrong(&key, "expected the numeric id of an account, or `forge:id`; logins are not accepted because they can be reassigned")
                }
                Some(_) if !forges.contains(&forge) => {
                    let near = did_you_mean(forge, forges.iter().copied());
                    self.wrong(&key, format!("there is no forge named `{forge}`{near}"));
                }
                Some(id) => checked.push((ForgeName::new(forge), UserId(id))),
            }
        }
        checked
    }

    fn teams(&mut self, entries: &[String], forges: &[&str]) -> Vec<(ForgeName, TeamRef)> {
        let mut checked = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let key = format!("permissions.teams[{index}]");
            let (forge, team) = match (entry.split_once(':'), forges) {
                (Some((forge, team)), _) => (forge, team),
                (None, [only]) => (*only, entry.as_str()),
                (None, _) => {
                    self.wrong(&key, "with several forges write the team as `forge:organization/team`");
                    continue;
                }
            };
            match TeamRef::parse(team) {
                None => self.wrong(&key, "expected `organization/team`"),
                Some(_) if !forges.contains(&forge) => {
                    let near = did_you_mean(forge, forges.iter().copied());
                    self.wrong(&key, format!("there is no forge named `{forge}`{near}"));
                }
                Some(team) => checked.push((ForgeName::new(forge), team)),
            }
        }
        checked
    }

    /// Checks that the network access of agents can be enforced.
    fn network(&mut self, file: &OperatorFile) {
        let egress = file.sandbox.network.egress();
        match &egress {
            Err(why) => self.wrong("sandbox.network", why),
            Ok(Egress::Everything) => return,
            Ok(_) => {}
        }
        if file.sandbox.required == SandboxRequired::None && self.root.has("sandbox.network") {
            let why = "network access cannot be limited without a sandbox; set `sandbox.required` to `auto`";
            self.wrong("sandbox.network", why);
        }
        if !matches!(egress, Ok(Egress::Nothing)) {
            return;
        }
        let calls_out = |(name, backend): &(&String, &BackendSettings)| backend.enabled && presets::is_known(name);
        for (name, _) in file.backends.iter().filter(calls_out) {
            let why = format!(
                "`{name}` reaches its model over the network, which `sandbox.network: none` takes from it; use `[]`, \
                 which leaves it that, or an agent of `type: internal`, whose model the service asks"
            );
            self.wrong(&format!("backends.{name}"), why);
        }
    }

    /// Checks names of hosts, optionally with a port.
    fn hosts(&mut self, key: &str, hosts: &[String]) {
        let is_host = |host: &String| {
            let url = url::Url::parse(&format!("https://{host}/"));
            url.is_ok_and(|url| {
                url.as_str() == format!("https://{host}/") && url.path() == "/" && url.username().is_empty()
            })
        };
        for (index, _) in hosts.iter().enumerate().filter(|(_, host)| !is_host(host)) {
            self.wrong(&format!("{key}[{index}]"), "expected a host in lower case, such as `github.com`");
        }
    }

    /// Reads the custom templates; the renderer checks their syntax.
    fn templates(&mut self, folder: Option<&Path>) -> Vec<(String, String)> {
        let Some(folder) = folder else { return Vec::new() };
        templates::read(&self.base.join(folder)).unwrap_or_else(|why| {
            self.wrong("templates", why);
            Vec::new()
        })
    }

    fn policy(&mut self, file: &OperatorFile) -> Policy {
        let prefix = &file.label_prefix;
        if prefix.is_empty() || prefix.len() > 20 || prefix.contains(|c: char| c.is_control() || c == ',') {
            self.wrong("label_prefix", "expected 1 to 20 characters without commas, such as `ralph:`");
        }
        if !commits::valid_branch_prefix(&file.branch_prefix) {
            self.wrong("branch_prefix", "expected letters, digits and `-_./`, such as `ralph/`");
        }
        for (index, glob) in file.protected.paths.iter().enumerate() {
            if let Err(error) = globset::Glob::new(glob) {
                self.wrong(&format!("protected.paths[{index}]"), format!("invalid pattern: {}", error.kind()));
            }
        }
        let thresholds = SupervisionKeys {
            preset: Some(file.preset).filter(|preset| *preset != SupervisionPreset::default()),
            control: file.control.clone(),
            oversight: file.oversight.clone(),
            strategy: file.strategy.clone(),
        };
        let thresholds = thresholds.check(&Map::new(), self.root, &mut self.report);
        Policy {
            label_prefix: prefix.clone(),
            floor: file.permissions.command,
            limits: file.limits.clone(),
            progress: file.progress,
            plan: file.plan,
            detect_checks: file.checks.detect,
            protected: Protected { policy: file.protected.policy, paths: file.protected.paths.clone() },
            branch_prefix: file.branch_prefix.clone(),
            delete_branch: file.delete_branch,
            thresholds,
            remind_after_s: file.escalation.remind_after.as_seconds(),
            schedule: file.schedule.clone(),
            intelligence: file.intelligence,
            tampering: file.tampering.clone(),
            review: self.review(&file.review, &file.backends),
            ..Policy::default()
        }
    }
}
