//! Validates `backends`, `priority`, `rotation`, `cooldown` and `schedule`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use secrecy::SecretString;
use url::Url;

use super::Validator;
use crate::agent::presets;
use crate::config::BackendConfig;
use crate::config::operator::{AssistantSection, OperatorFile, ReviewSection};
use crate::domain::model::settings::did_you_mean;
use crate::domain::providers::backends::{BackendRole, BackendSettings, BackendType, BackendsSettings, WireName};
use crate::domain::providers::prices::PriceTable;
use crate::domain::providers::rules::{INVALID_NAME, ModelRules, Schedule, valid_model_name};
use crate::domain::trust::policy::{ReviewPolicy, ReviewTime};

/// Maximum time of a second opinion, in seconds; a slow backend must not delay a finished loop.
const REVIEW_TIMEOUT_S: u64 = 600;

/// Whether the backend is the built-in agent without the address of its model.
fn lacks_url(backend: &BackendSettings) -> bool {
    backend.kind == Some(BackendType::Internal) && backend.url.is_none()
}

/// Returns the name of the assistant's backend: the configured one, or the first agent's backend whose models name a model of the
/// section `context`. `None` if there is none, or if another backend already has the role.
pub(super) fn assistant_of(file: &OperatorFile) -> Option<String> {
    let has_role = |backend: &BackendSettings| {
        backend.kind == Some(BackendType::Api) || backend.roles.contains(&BackendRole::Assistant)
    };
    if file.assistant.backend.is_some() || file.backends.values().any(|backend| backend.enabled && has_role(backend)) {
        return file.assistant.backend.clone();
    }
    let wanted = file.assistant.model.iter().chain(&file.context.model).chain(&file.context.summary_model);
    let names = |backend: &BackendSettings, model: &String| {
        let models = &backend.models;
        let tiers = [&models.default, &models.cheap, &models.strong];
        tiers.into_iter().flatten().chain(models.rules.iter().map(|rule| &rule.model)).any(|name| name == model)
    };
    let open = |backend: &BackendSettings| backend.enabled && !lacks_url(backend);
    wanted.into_iter().find_map(|model| {
        let mut found = file.backends.iter().filter(|(_, backend)| open(backend) && names(backend, model));
        found.next().map(|(name, _)| name.clone())
    })
}

impl Validator<'_> {
    pub(super) fn backends(&mut self, backends: &BTreeMap<String, BackendSettings>) -> BTreeMap<String, BackendConfig> {
        let enabled: Vec<_> = backends.iter().filter(|(_, backend)| backend.enabled).collect();
        if !enabled.iter().any(|(name, backend)| self.roles(name, backend).contains(&BackendRole::Agent)) {
            self.wrong(
                "backends",
                "no backend with the role `agent` is enabled; add one, for example `claude: { enabled: true }`",
            );
        }
        let mut checked = BTreeMap::new();
        let has_usable = enabled.iter().any(|(_, backend)| !lacks_url(backend));
        for (name, backend) in enabled {
            let key = format!("backends.{name}");
            let config = self.backend(&key, name, backend);
            // A file for several programs may leave the address of the built-in agent open.
            match config {
                Some(config) if !lacks_url(backend) => drop(checked.insert(name.clone(), config)),
                _ if !lacks_url(backend) => {}
                _ if has_usable => {
                    self.warn(&key, "is not used, because `url` is missing; set it to the address of the HTTP API");
                }
                _ => self.wrong(&key, "`url` is missing; set it to the address of the HTTP API"),
            }
        }
        checked
    }

    /// Returns the settings for choosing a backend. Disabled backends are allowed in `priority` and `rotation.order`.
    pub(super) fn choice(&mut self, file: &OperatorFile) -> BackendsSettings {
        let with_roles = |(name, backend): (&String, &BackendSettings)| {
            (name.clone(), BackendSettings { roles: self.roles(name, backend), ..backend.clone() })
        };
        let mut settings = BackendsSettings {
            backends: file.backends.iter().map(with_roles).collect(),
            priority: file.priority.clone(),
            rotation: file.rotation.clone(),
            cooldown: file.cooldown.clone(),
        };
        self.settings(settings.validate());
        settings.backends.retain(|_, backend| backend.enabled);
        let first = self.assistant.iter().filter(|name| !settings.priority.assistant.contains(name));
        settings.priority.assistant.splice(0..0, first.cloned().collect::<Vec<_>>());
        settings
    }

    pub(super) fn schedule(&mut self, file: &OperatorFile) {
        let agents =
            file.backends.iter().filter(|(name, backend)| self.roles(name, backend).contains(&BackendRole::Agent));
        let agents: Vec<&str> = agents.map(|(name, _)| name.as_str()).collect();
        if let Err(problems) = Schedule::compile(&file.schedule, "schedule", &agents) {
            self.rules(problems);
        }
    }

    /// Returns the roles of a backend; an `api` backend is an assistant by default.
    fn roles(&self, name: &str, backend: &BackendSettings) -> Vec<BackendRole> {
        let mut roles = backend.roles.clone();
        if backend.kind == Some(BackendType::Api) && !self.root.has(&format!("backends.{name}.roles")) {
            roles = vec![BackendRole::Assistant];
        }
        for (named, role) in [(&self.assistant, BackendRole::Assistant), (&self.reviewer, BackendRole::Reviewer)] {
            if named.as_deref() == Some(name) && !roles.contains(&role) {
                roles.push(role);
            }
        }
        roles
    }

    /// Checks the assistant, and warns about settings of models that are never asked. The backend must be configured but may be
    /// disabled.
    pub(super) fn assistant(&mut self, file: &OperatorFile) {
        let AssistantSection { backend, model } = &file.assistant;
        let unknown = backend.as_ref().filter(|name| !file.backends.contains_key(*name));
        if let Some(backend) = unknown {
            let near = did_you_mean(backend, file.backends.keys().map(String::as_str));
            self.wrong("assistant.backend", format!("there is no backend `{backend}` in `backends`{near}"));
        }
        if model.as_ref().is_some_and(|name| !valid_model_name(name)) {
            self.wrong("assistant.model", INVALID_NAME);
        }
        let mut with_role = file
            .backends
            .iter()
            .filter(|(name, backend)| backend.enabled && self.roles(name, backend).contains(&BackendRole::Assistant));
        let why = if !file.intelligence.asks() {
            "`intelligence` asks no models; set `intelligence: summaries`"
        } else if unknown.is_none() && with_role.next().is_none() {
            "no backend answers questions; set `assistant.backend`"
        } else {
            return;
        };
        let given = [
            ("assistant.backend", backend),
            ("assistant.model", model),
            ("context.model", &file.context.model),
            ("context.summary_model", &file.context.summary_model),
        ];
        for (key, _) in given.into_iter().filter(|(_, value)| value.is_some()) {
            self.warn(key, format!("has no effect, because {why}"));
        }
    }

    /// Returns the settings for second opinions. The backend must be configured but may be disabled.
    pub(super) fn review(
        &mut self,
        review: &ReviewSection,
        backends: &BTreeMap<String, BackendSettings>,
    ) -> Option<ReviewPolicy> {
        let backend = review.backend.clone()?;
        if !backends.contains_key(&backend) {
            let near = did_you_mean(&backend, backends.keys().map(String::as_str));
            self.wrong("review.backend", format!("there is no backend `{backend}` in `backends`{near}"));
            return None;
        }
        let policy = ReviewPolicy { backend, timeout_s: REVIEW_TIMEOUT_S };
        (review.when == ReviewTime::Ready).then_some(policy)
    }

    fn backend(&mut self, key: &str, name: &str, backend: &BackendSettings) -> Option<BackendConfig> {
        let roles = self.roles(name, backend);
        match backend.kind {
            None if !presets::is_known(name) => {
                let near = did_you_mean(name, presets::names());
                self.wrong(key, format!("`{name}` is not a preset and has no `type`{near}"));
            }
            Some(kind) if kind.is_http() => self.http(key, kind, backend, &roles),
            kind => self.command(key, kind, backend),
        }
        let with_model = backend.args.iter().position(|argument| argument.contains("{model}"));
        if let Some(index) = with_model.filter(|_| backend.models.default.is_none()) {
            self.wrong(&format!("{key}.args[{index}]"), "`{model}` needs `models.default`");
        }
        let mut command = backend.command.clone();
        if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
            *program = self.base.join(&*program).display().to_string();
        }
        let url = backend.url.as_deref().and_then(|url| self.url(&format!("{key}.url"), url));
        let wire =
            url.as_ref().map(|url| backend.wire.unwrap_or(WireName::of_host(url.host_str().unwrap_or_default())));
        let api_key = self.one_of(key, "api_key", &backend.api_key_env, &backend.api_key_file);
        let api_key = api_key.and_then(|(key, source)| self.secret(&key, &source));
        let passed_on = |name: &String| Some((name.clone(), SecretString::from(self.env.get(name)?.to_owned())));
        let env = backend.env.iter().filter_map(passed_on).collect();
        let (rules, prices) = self.models(key, backend);
        Some(BackendConfig {
            settings: BackendSettings {
                command,
                roles,
                login_file: self.login_file(key, name, backend),
                ..backend.clone()
            },
            env,
            rules: rules?,
            url,
            wire,
            api_key,
            prices: prices?,
        })
    }

    /// Returns the path of a login file; `~` is the service's home.
    fn login_file(&mut self, key: &str, name: &str, backend: &BackendSettings) -> Option<PathBuf> {
        let file = backend.login_file.as_ref()?;
        if backend.kind.is_some() || presets::login_file(name).is_none() {
            self.wrong(
                &format!("{key}.login_file"),
                "has no effect on this backend, which has no known login file; remove it",
            );
        }
        let home = self.env.get("HOME").map(Path::new);
        match (file.strip_prefix("~"), home) {
            (Ok(below), Some(home)) => Some(home.join(below)),
            _ => Some(self.base.join(file)),
        }
    }

    fn models(&mut self, key: &str, backend: &BackendSettings) -> (Option<ModelRules>, Option<PriceTable>) {
        let section = format!("{key}.models");
        let tiers = [("cheap", &backend.models.cheap), ("strong", &backend.models.strong)];
        for (tier, model) in tiers.into_iter().filter_map(|(tier, model)| Some((tier, model.as_deref()?))) {
            // The default model and the rules' models are checked together with the rules.
            for mut problem in ModelRules::compile(Some(model), &[], &section).err().into_iter().flatten() {
                problem.key = format!("{section}.{tier}");
                self.rules(vec![problem]);
            }
        }
        let compiled = ModelRules::compile(backend.models.default.as_deref(), &backend.models.rules, &section);
        let rules = compiled.map_err(|problems| self.rules(problems)).ok();
        let priced = PriceTable::with_entries(&backend.prices, &format!("{key}.prices"));
        let prices = priced.map_err(|problems| self.settings(problems)).ok();
        (rules, prices)
    }

    /// Checks the keys of an HTTP API backend: required keys must be set, and keys that the backend does not read must not.
    fn http(&mut self, key: &str, kind: BackendType, backend: &BackendSettings, roles: &[BackendRole]) {
        if backend.url.is_none() && kind == BackendType::Api {
            self.wrong(key, "`url` is missing; set it to the address of the HTTP API");
        }
        if kind == BackendType::Api && roles.contains(&BackendRole::Agent) {
            self.wrong(key, "an `api` backend cannot run agents; use `type: internal` or `roles: [assistant]`");
        }
        if backend.models.default.is_none() {
            self.wrong(key, "`models.default` is missing; an HTTP API has no default model");
        }
        let unread = [
            ("command", !backend.command.is_empty()),
            ("args", !backend.args.is_empty()),
            ("session_files", !backend.session_files.is_empty()),
            ("stdin", backend.stdin.is_some()),
            ("output", backend.output.is_some()),
            ("hide_keys", !backend.hide_keys),
            ("keys", !backend.keys.is_empty()),
            ("server_tools", !backend.server_tools.is_empty()),
        ];
        for (field, _) in unread.iter().filter(|(_, given)| *given) {
            let why = format!("has no effect with `type: {}`, which runs no command; remove it", kind.as_str());
            self.wrong(&format!("{key}.{field}"), why);
        }
    }

    /// Checks that hidden keys are passed to the backend and that the address of their model is known.
    fn keys(&mut self, key: &str, backend: &BackendSettings) {
        if !backend.hide_keys && !backend.keys.is_empty() {
            self.wrong(&format!("{key}.keys"), "has no effect because `hide_keys` is false; remove one of them");
        }
        for (name, address) in &backend.keys {
            let field = format!("{key}.keys.{name}");
            for variable in [name, address] {
                if !backend.env.contains(variable) {
                    self.wrong(&field, format!("`{variable}` is not in `env`, so the command does not get it"));
                }
            }
            // The address may contain a key, so do not print it.
            let is_address = |text: &str| Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
            match (self.env.get(name), self.env.get(address)) {
                (_, Some(text)) if !is_address(text) => {
                    let why = format!("`{address}` does not contain an address such as `https://example.org/v1`");
                    self.wrong(&field, why);
                }
                (Some(_), None) => {
                    self.wrong(&field, format!("`{address}` is not set; set it to the address of the model"))
                }
                _ => {}
            }
        }
    }

    /// Checks the keys of a command backend: required keys must be set, and keys that the backend does not read must not.
    fn command(&mut self, key: &str, kind: Option<BackendType>, backend: &BackendSettings) {
        if kind.is_some() && backend.command.is_empty() {
            self.wrong(key, "`command` is missing; set it to a list of the program and its arguments");
        }
        if backend.command.first().is_some_and(|program| program.trim().is_empty()) {
            self.wrong(&format!("{key}.command"), "the name of the program is empty");
        }
        for (index, path) in backend.session_files.iter().enumerate() {
            let within = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
            if path.is_empty() || !within {
                let why = format!("`{path}` is not a path within the home folder, such as `.tool/sessions`");
                self.wrong(&format!("{key}.session_files[{index}]"), why);
            }
        }
        self.keys(key, backend);
        for (field, given) in [("stdin", backend.stdin.is_some()), ("output", backend.output.is_some())] {
            if given && kind == Some(BackendType::Acp) {
                let why = "has no effect with `type: acp`, whose protocol has both; remove it";
                self.wrong(&format!("{key}.{field}"), why);
            }
        }
        let unread = [
            ("url", backend.url.is_some()),
            ("wire", backend.wire.is_some()),
            ("api_key_env", backend.api_key_env.is_some()),
            ("api_key_file", backend.api_key_file.is_some()),
        ];
        for (field, _) in unread.iter().filter(|(_, given)| *given) {
            let why = "has no effect on a command; pass its key with `env`";
            self.wrong(&format!("{key}.{field}"), why);
        }
        if backend.images.is_some() {
            let why = "has no effect on a command, which gets images as files; it is for `type: internal`";
            self.wrong(&format!("{key}.images"), why);
        }
    }
}
