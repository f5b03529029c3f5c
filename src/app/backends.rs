//! Builds agent backends and assistants from the configuration.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

use super::programs;
use crate::agent::{
    self, Backend, BackendSetup, InternalAgentLimits, InternalSettings, LoginFile, ModelFunction, PriceFunction,
};
use crate::clock::Clock;
use crate::config::{BackendConfig, Config, Env, ForgeAuth, SandboxRequired};
use crate::domain::providers::backends::{
    BackendRole, BackendSettings, BackendType, StdinUse, WireName, provider_name,
};
use crate::domain::providers::prices::{PriceTable, TokenUsage};
use crate::domain::trust::outbound::{Masker, OutboundFilter};
use crate::domain::trust::visible::in_system;
use crate::engine::Respondent;
use crate::process::executable;
use crate::provider::{ApiClient, ApiSettings};

/// Time limit for a response of an HTTP API. A local model on a CPU needs minutes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// Length of a fingerprint, in bytes.
const FINGERPRINT_BYTES: usize = 16;

/// Backends built from the configuration. Unusable ones are neither in `agents` nor in `assistants`.
#[derive(Default)]
pub(super) struct Built {
    /// Agent backends by name.
    pub(super) agents: HashMap<String, Arc<dyn Backend>>,
    /// Assistants by name.
    pub(super) assistants: HashMap<String, Respondent>,
    /// Backends that give second opinions, by name.
    pub(super) reviewers: HashMap<String, Respondent>,
    /// Digest per backend, which changes if its settings, program or key change.
    pub(super) fingerprints: BTreeMap<String, String>,
    /// Name of the provider of each backend's models; unknown ones are missing.
    pub(super) providers: HashMap<String, &'static str>,
    /// Masker for the secrets in the configuration, see [`secrets`].
    pub(super) masker: Masker,
}

impl Built {
    /// Whether a backend can be used in a role.
    pub(super) fn can(&self, name: &str, role: BackendRole) -> bool {
        match role {
            BackendRole::Agent => self.agents.contains_key(name),
            BackendRole::Assistant => self.assistants.contains_key(name),
            BackendRole::Reviewer => self.reviewers.contains_key(name),
        }
    }
}

/// Builds all backends. Unusable ones are logged and left out. `key` makes fingerprints specific to this installation.
pub(super) fn build(config: &Config, env: &Env, clock: &Clock, key: &str) -> Built {
    let (path, tools) = programs(env);
    let mut built = Built { masker: secrets(config), ..Built::default() };
    for (name, backend) in &config.backends {
        built.fingerprints.insert(name.clone(), fingerprint(name, backend, &path, key));
        built.providers.extend(provider(name, backend).map(|provider| (name.clone(), provider)));
        for role in &backend.settings.roles {
            let done = match role {
                BackendRole::Agent => agent((config, &built.masker), name, backend, (&path, &tools), clock)
                    .map(|agent| drop(built.agents.insert(name.clone(), Arc::from(agent)))),
                BackendRole::Assistant if backend.settings.kind == Some(BackendType::Internal) => {
                    client(name, backend, clock)
                        .map(|client| drop(built.assistants.insert(name.clone(), Respondent::Assistant(client))))
                }
                BackendRole::Assistant => respondent((config, &built.masker), name, backend, (&path, &tools), clock)
                    .map(|assistant| drop(built.assistants.insert(name.clone(), assistant))),
                BackendRole::Reviewer => respondent((config, &built.masker), name, backend, (&path, &tools), clock)
                    .map(|reviewer| drop(built.reviewers.insert(name.clone(), reviewer))),
            };
            if let Err(why) = done {
                tracing::error!(backend = name, why = format!("{why:#}"), "this backend is not usable");
            }
        }
    }
    if built.agents.is_empty() {
        tracing::error!("no backend is usable; loops will fail until one is (see `ralph-bot check`)");
    }
    built
}

/// Returns the name of the provider of a backend's models, by the address of its API or by its preset. `None` if it is
/// unknown, or if the preset runs models of any vendor.
fn provider(name: &str, backend: &BackendConfig) -> Option<&'static str> {
    if let Some(host) = backend.url.as_ref().and_then(|url| url.host_str()) {
        return provider_name(host, backend.wire);
    }
    let is_preset = backend.settings.kind.is_none() && !agent::presets::is_of_any_vendor(name);
    agent::presets::model_hosts(name).first().filter(|_| is_preset).and_then(|host| provider_name(host, None))
}

/// Creates the respondent of a backend: a model over HTTP for type `api`, otherwise a program.
fn respondent(
    of: (&Config, &Masker),
    name: &str,
    backend: &BackendConfig,
    programs: (&OsStr, &[PathBuf]),
    clock: &Clock,
) -> Result<Respondent, Failure> {
    match backend.settings.kind {
        Some(BackendType::Api) => client(name, backend, clock).map(|client| Respondent::Assistant(client)),
        _ => agent(of, name, backend, programs, clock).map(|agent| Respondent::Agent(Arc::from(agent))),
    }
}

/// Creates the agent of one configured backend.
pub fn backend(config: &Config, name: &str, env: &Env) -> Result<Box<dyn Backend>, Failure> {
    let (path, tools) = programs(env);
    agent((config, &secrets(config)), name, configured(config, name)?, (&path, &tools), &Clock::System)
}

/// Returns one sentence for each existing path in the command of a backend that its sandbox hides, with the key that shows it.
pub fn hidden_arguments(config: &Config, name: &str, env: &Env) -> Vec<String> {
    let Some(backend) = config.backends.get(name).filter(|_| config.sandbox.required != SandboxRequired::None) else {
        return Vec::new();
    };
    let (_, tools) = programs(env);
    let shown: Vec<&PathBuf> = tools.iter().chain(&config.sandbox.read_only).collect();
    // The program itself is shown.
    let arguments: Vec<String> =
        command(backend).into_iter().skip(1).chain(backend.settings.args.iter().cloned()).collect();
    // An argument may be a line of a shell.
    let words = arguments
        .iter()
        .flat_map(|argument| argument.split(|c: char| c.is_whitespace() || "'\"`;|&<>()=$".contains(c)));
    let words = arguments.iter().map(String::as_str).chain(words);
    let paths: BTreeSet<PathBuf> = words.map(PathBuf::from).collect();
    let paths = paths.into_iter().filter(|path| path.is_absolute() && path.exists());
    let hidden = paths.filter(|path| !in_system(path) && !shown.iter().any(|folder| path.starts_with(folder)));
    hidden
        .map(|path| {
            let folder = path.parent().filter(|_| path.is_file()).unwrap_or(&path).display().to_string();
            let path = path.display();
            format!(
                "backend {name}: the sandbox hides {path}; show its folder by `sandbox: {{ read_only: [{folder}] }}`"
            )
        })
        .collect()
}

/// Creates the client of an HTTP backend.
pub fn api(config: &Config, name: &str) -> Result<Arc<ApiClient>, Failure> {
    client(name, configured(config, name)?, &Clock::System)
}

fn configured<'c>(config: &'c Config, name: &str) -> Result<&'c BackendConfig, Failure> {
    config.backends.get(name).ok_or_else(|| Failure::new(format!("no backend `{name}` is configured")))
}

fn agent(
    (config, masker): (&Config, &Masker),
    name: &str,
    backend: &BackendConfig,
    programs: (&OsStr, &[PathBuf]),
    clock: &Clock,
) -> Result<Box<dyn Backend>, Failure> {
    let setup = setup(name, backend, programs, (config, masker))?;
    if backend.settings.kind != Some(BackendType::Internal) {
        return agent::build(name, setup);
    }
    let bounds = bounds(backend.settings.context_window);
    let internal = InternalSettings {
        model: Arc::new(client(name, backend, clock)?.into_function()) as ModelFunction,
        default_model: backend.settings.models.default.clone().unwrap_or_default(),
        price: price(backend.prices.clone()),
        clock: clock.clone(),
        bounds,
        takes_images: backend.settings.images.unwrap_or(backend.wire.is_some_and(WireName::usually_takes_images)),
        // Without a sandbox agents have all rights of this user.
        commands_outside: config.sandbox.required == SandboxRequired::None,
    };
    agent::build_internal(name, setup, internal)
}

/// Returns the limits of the built-in agent. A small context window leaves less room for a response.
fn bounds(context_window: Option<u64>) -> InternalAgentLimits {
    let usual = InternalAgentLimits::default();
    let Some(context_window) = context_window else { return usual };
    let answer_tokens = u32::try_from(context_window / 4).unwrap_or(u32::MAX).min(usual.answer_tokens);
    InternalAgentLimits { context_window, answer_tokens, ..usual }
}

/// Returns a function that looks up prices in a table.
fn price(table: PriceTable) -> PriceFunction {
    Arc::new(move |model: &str, usage: &TokenUsage| table.estimate(usage, model).map(|cost| cost.money))
}

fn client(name: &str, backend: &BackendConfig, clock: &Clock) -> Result<Arc<ApiClient>, Failure> {
    let (Some(url), Some(wire)) = (&backend.url, backend.wire) else {
        return Err(Failure::new(format!("backend {name}: it has no HTTP API, so it cannot answer questions")));
    };
    let settings = ApiSettings {
        name: name.to_owned(),
        url: url.to_string(),
        key: backend.api_key.clone(),
        wire,
        models: BTreeMap::new(),
        timeout: ANSWER_TIMEOUT,
    };
    ApiClient::new(settings, clock.clone()).map(Arc::new)
}

fn setup(
    name: &str,
    backend: &BackendConfig,
    (path, tools): (&OsStr, &[PathBuf]),
    (config, masker): (&Config, &Masker),
) -> Result<BackendSetup, Failure> {
    let kind = match backend.settings.kind {
        None => agent::BackendKind::Preset(name.to_owned()),
        Some(BackendType::Script | BackendType::External) => agent::BackendKind::Script,
        Some(BackendType::Acp) => agent::BackendKind::Acp,
        Some(BackendType::Internal) => agent::BackendKind::Internal,
        Some(BackendType::Api) => {
            return Err(Failure::new(format!(
                "backend {name}: an `api` backend answers questions and cannot run agents"
            )));
        }
    };
    let mut setup = BackendSetup::new(kind, PathBuf::from("/"), path);
    setup.config = BackendSettings { command: command(backend), ..backend.settings.clone() };
    setup.output = backend.settings.output.as_ref().and_then(|format| agent::OutputFormat::named(format.as_str()));
    setup.prompt_on_stdin = backend.settings.stdin != Some(StdinUse::None);
    setup.env = backend.env.clone();
    setup.login = login(name, backend);
    setup.tools = tools.to_vec();
    setup.tools.extend(config.sandbox.read_only.iter().cloned());
    setup.masked = masker.clone();
    Ok(setup)
}

/// Returns the login file of a backend.
fn login(name: &str, backend: &BackendConfig) -> Option<LoginFile> {
    let source = backend.settings.login_file.clone()?;
    Some(LoginFile { source, in_home: agent::presets::login_file(name)? })
}

/// Returns a masker for all secrets in the configuration, except those passed to single backends by `env`.
fn secrets(config: &Config) -> Masker {
    let mut secrets = Vec::new();
    for forge in &config.forges {
        let name = &forge.name;
        secrets
            .extend(forge.webhook_secrets.iter().map(|secret| (format!("a webhook secret of {name}"), secret.clone())));
        let of_repositories = forge.repository_secrets.iter().flat_map(|of| &of.secrets);
        secrets.extend(of_repositories.map(|secret| (format!("a webhook secret of {name}"), secret.clone())));
        secrets.extend(forge.login.iter().map(|client| (format!("the login secret of {name}"), client.secret.clone())));
        secrets.push(match &forge.auth {
            ForgeAuth::Token(token) => (format!("the token of {name}"), token.clone()),
            ForgeAuth::App { private_key, .. } => (format!("the private key of {name}"), private_key.clone()),
        });
    }
    let passwords = config.database.iter().flat_map(|database| database.passwords.iter().flatten());
    secrets.extend(passwords.map(|password| ("the password of the database".to_owned(), password.clone())));
    for channel in &config.channels {
        secrets.push((format!("the address of channel {}", channel.name), channel.url.clone()));
        secrets.extend(
            channel.secret.iter().map(|secret| (format!("the secret of channel {}", channel.name), secret.clone())),
        );
    }
    let keys = config.backends.iter().filter_map(|(name, backend)| Some((name, backend.api_key.clone()?)));
    secrets.extend(keys.map(|(name, key)| (format!("the key of backend {name}"), key)));
    secrets.extend(config.other_secrets.iter().cloned());
    named(&secrets)
}

fn named(secrets: &[(String, SecretString)]) -> Masker {
    Masker::named(secrets.iter().map(|(name, value)| (name.as_str(), value.expose_secret())))
}

/// Creates the filter that every outgoing text passes. It contains the configuration's secrets, the secrets among the backends'
/// variables, and the installation's `keys`.
pub(super) fn outbound(config: &Config, configured: &Masker, keys: [(&str, &String); 2]) -> OutboundFilter {
    let mut secrets = Vec::new();
    for (backend, settings) in &config.backends {
        let of_login = login(backend, settings).map(|login| login.secrets()).unwrap_or_default();
        secrets.extend(of_login.into_iter().map(|value| (format!("the login of backend {backend}"), value.into())));
        let secret = settings.env.iter().filter(|(name, value)| is_secret_variable(name, value.expose_secret()));
        secrets.extend(secret.map(|(name, value)| (format!("{name} of backend {backend}"), value.clone())));
    }
    secrets.extend(keys.map(|(name, key)| (name.to_owned(), SecretString::from(key.as_str()))));
    OutboundFilter::new(configured.with(&named(&secrets)))
}

/// Whether a backend's environment variable contains a secret, judged by its name or otherwise by its value. Names of
/// models, addresses and switches are not secrets, and they occur in ordinary text.
fn is_secret_variable(name: &str, value: &str) -> bool {
    /// Minimum length of a value that is considered generated, in bytes.
    const GENERATED_MIN: usize = 20;
    let name = name.to_ascii_uppercase();
    let named = ["KEY", "TOKEN", "SECRET", "PASS", "AUTH", "CREDENTIAL", "COOKIE", "PRIVATE"];
    let has = |class: fn(char) -> bool| value.contains(class);
    let is_generated = value.len() >= GENERATED_MIN
        && !value.contains("://")
        && !value.contains([' ', '/'])
        && has(|c| c.is_ascii_digit())
        && has(|c| c.is_ascii_lowercase())
        && has(|c| c.is_ascii_uppercase());
    let has_user = value.contains("://") && value.contains('@');
    named.iter().any(|word| name.contains(word)) || is_generated || has_user
}

/// Returns the program and its first arguments. A program with a slash becomes an absolute path.
fn command(backend: &BackendConfig) -> Vec<String> {
    let mut command = backend.settings.command.clone();
    if let Some(program) = command.first_mut().filter(|program| program.contains('/'))
        && let Ok(absolute) = std::path::absolute(&*program)
    {
        *program = absolute.display().to_string();
    }
    command
}

/// Returns a digest that changes with a backend's settings, program or key, without revealing them.
fn fingerprint(name: &str, backend: &BackendConfig, path: &OsString, key: &str) -> String {
    let command = command(backend);
    let program = (!backend.settings.kind.is_some_and(BackendType::is_http))
        .then(|| command.first().map_or(name, String::as_str))
        .and_then(|program| executable(Path::new(program), Path::new("/"), path).ok());
    let changed = program.as_deref().and_then(|file| std::fs::metadata(file).ok()?.modified().ok());
    let changed = changed.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_nanos());
    let settings = format!(
        "{:?}",
        (
            &backend.settings.kind,
            &command,
            &backend.settings.args,
            &backend.settings.stdin,
            (&backend.settings.session_files, &backend.settings.login_file),
            &backend.settings.output,
            (backend.settings.hide_keys, &backend.settings.keys, &backend.settings.server_tools),
            &backend.url,
            &backend.wire
        )
    );
    let models = format!("{:?}", (&backend.settings.models, backend.settings.context_window, program, changed));
    let secrets = backend.env.iter().flat_map(|(name, value)| [name.as_str(), value.expose_secret()]);
    let secrets = secrets.chain(backend.api_key.as_ref().map(ExposeSecret::expose_secret));
    // HMAC accepts keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key.as_bytes()) else { return String::new() };
    for part in [settings.as_str(), models.as_str()].into_iter().chain(secrets) {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part.as_bytes());
    }
    let digest = mac.finalize().into_bytes();
    HEXLOWER.encode(digest.get(..FINGERPRINT_BYTES).unwrap_or(&digest))
}
