//! Checks of backends: whether they exist and respond, their versions and credentials. No model is called.

#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::future::join_all;

use super::finding::{BackendRow, CheckFinding};
use crate::agent::{AgentProgram, OutputFormat, UsageReport, presets};
use crate::app;
use crate::cli::table;
use crate::config::{BackendConfig, Config, Env};
use crate::domain::model::settings::did_you_mean;
use crate::domain::providers::backends::{BackendRole, BackendThresholds, BackendType};

/// Maximum wait for one backend.
const PROBE_TIMEOUT: Duration = Duration::from_secs(35);
/// Phrases in the output of discontinued programs, which only print a notice.
const GIVEN_UP: [&str; 6] =
    ["no longer", "deprecated", "discontinued", "has moved", "has been replaced", "end of life"];
/// Substrings of the names of environment variables that contain credentials.
const SIGNS_IN: [&str; 6] = ["_KEY", "_TOKEN", "CREDENTIALS", "_HOME", "_CONFIG", "_USE_"];

/// Checks all backends.
pub(super) async fn look(config: &Config, env: &Env) -> Vec<CheckFinding> {
    let each = config.backends.iter().map(|(name, backend)| async move {
        let (mut findings, version) = tokio::time::timeout(PROBE_TIMEOUT, ask(config, name, backend, env))
            .await
            .unwrap_or_else(|_| (vec![silent(name)], None));
        let row = BackendRow {
            name: name.clone(),
            kind: backend.settings.kind.map_or("preset", BackendType::as_str),
            roles: backend.settings.roles.clone(),
            version,
            models: models(backend),
            thresholds: thresholds(&backend.settings.thresholds),
        };
        if let Some(first) = findings.first_mut() {
            first.backend = Some(row);
        }
        findings
    });
    join_all(each).await.into_iter().flatten().collect()
}

/// Formats the table of backends; empty if there are none.
pub(super) fn overview(findings: &[CheckFinding]) -> String {
    let mut rows = findings.iter().filter_map(|finding| finding.backend.as_ref()).map(cells).peekable();
    if rows.peek().is_none() {
        return String::new();
    }
    let header = ["BACKEND", "TYPE", "ROLES", "VERSION", "MODELS", "THRESHOLDS"].map(str::to_owned);
    format!("\n{}", table(&std::iter::once(header).chain(rows).collect::<Vec<_>>()))
}

fn cells(row: &BackendRow) -> [String; 6] {
    let roles = row.roles.iter().map(|role| role.word());
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    [
        row.name.clone(),
        row.kind.to_owned(),
        roles.collect::<Vec<_>>().join(", "),
        or_dash(row.version.as_deref().unwrap_or_default()),
        or_dash(&row.models),
        or_dash(&row.thresholds),
    ]
}

fn title(name: &str) -> String {
    format!("backend {name}")
}

/// Removes the backend's name from the start of a sentence.
fn bare(name: &str, why: &str) -> String {
    why.strip_prefix(&format!("backend {name}: ")).unwrap_or(why).to_owned()
}

fn silent(name: &str) -> CheckFinding {
    let detail = format!("no answer within {} s", PROBE_TIMEOUT.as_secs());
    CheckFinding::fail(title(name), detail, "run it by hand; it may wait for a login or an update")
}

async fn ask(config: &Config, name: &str, backend: &BackendConfig, env: &Env) -> (Vec<CheckFinding>, Option<String>) {
    match backend.settings.kind {
        Some(kind) if kind.is_http() => (vec![ask_interface(config, name, backend, env).await], None),
        _ => ask_command(config, name, backend, env).await,
    }
}

/// Checks the presence, version and credentials of a program.
async fn ask_command(
    config: &Config,
    name: &str,
    backend: &BackendConfig,
    env: &Env,
) -> (Vec<CheckFinding>, Option<String>) {
    let known = backend.settings.kind.is_none().then(|| presets::program(name)).flatten();
    let install = known.map_or("install it, or fix its `command`".to_owned(), |known| {
        format!("install it with `{}`, or set `command` to its path", known.install_command())
    });
    let built = match app::backend(config, name, env) {
        Ok(built) => built,
        Err(why) => return (vec![CheckFinding::fail(title(name), bare(name, &format!("{why:#}")), install)], None),
    };
    let hidden = app::hidden_arguments(config, name, env).into_iter();
    let hidden = hidden.map(|why| CheckFinding::warn(format!("paths of {}", title(name)), bare(name, &why), ""));
    let keys = keys(name, backend, &built.hidden_keys());
    let said = match built.probe().await {
        Ok(said) => said,
        Err(why) => return (vec![CheckFinding::fail(title(name), format!("{why:#}"), install)], None),
    };
    let Some(known) = known else {
        let finding = CheckFinding::ok(title(name), "program found; not tested further");
        let findings = std::iter::once(finding).chain(hidden).chain(keys).chain(uncounted(name, backend));
        return (findings.collect(), None);
    };
    let (finding, version) = judge_version(name, known, &said);
    let is_sound = version.is_some();
    let (login, money) = (|| login(name, known, backend).or(keys), || uncounted(name, backend));
    let further = is_sound.then(|| login().into_iter().chain(money())).into_iter().flatten();
    (std::iter::once(finding).chain(hidden).chain(further).collect(), version)
}

/// Judges the output of `--version`.
fn judge_version(name: &str, known: &AgentProgram, said: &str) -> (CheckFinding, Option<String>) {
    let (name, install) = (title(name), known.install_command());
    let lower = said.to_lowercase();
    let number = version_in(said);
    let Some((version, (major, minor))) = number.filter(|_| !GIVEN_UP.iter().any(|words| lower.contains(words))) else {
        let detail = format!("the program reports no version, but: {said}");
        let fix = format!("the program is another one or discontinued; install `{install}`");
        return (CheckFinding::fail(name, detail, fix), None);
    };
    let (tried_major, tried_minor) = known.tested_version;
    let tried = format!("tested with {tried_major}.{tried_minor}");
    let finding = if major != tried_major || minor < tried_minor {
        let fix = format!("its output may not be recognized; install the tested version (`{install}`)");
        CheckFinding::warn(name, format!("{said}; this version of ralph-bot was {tried}"), fix)
    } else {
        CheckFinding::ok(name, format!("{said}; {tried}"))
    };
    (finding, Some(version))
}

/// Returns the first version number in a text, with its major and minor parts; `None` if there is none.
fn version_in(text: &str) -> Option<(String, (u32, u32))> {
    text.split(|c: char| c.is_whitespace() || "(),;:".contains(c)).find_map(|word| {
        let word = word.trim_start_matches(['v', 'V']);
        let mut parts = word.split('.');
        let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?);
        let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
        Some((word.trim_end_matches('.').to_owned(), (major, digits.parse().ok()?)))
    })
}

/// Warns if the cost of a program's runs is unknown, so that cost limits do not apply.
fn uncounted(name: &str, backend: &BackendConfig) -> Option<CheckFinding> {
    let warn = |detail: String, fix: &str| Some(CheckFinding::warn(format!("cost of {}", title(name)), detail, fix));
    let format = backend.settings.output.as_ref().and_then(|format| OutputFormat::named(format.as_str()));
    let of_preset = match backend.settings.kind {
        None => presets::usage(name),
        Some(BackendType::Acp) => Some(UsageReport::Tokens),
        Some(_) => None,
    };
    let usage = format.map(OutputFormat::usage).or(of_preset).unwrap_or(UsageReport::Nothing);
    let asked_for = [&backend.settings.models.default, &backend.settings.models.cheap, &backend.settings.models.strong]
        .into_iter()
        .flatten();
    let asked_for = asked_for.chain(backend.settings.models.rules.iter().map(|rule| &rule.model));
    let unpriced: Vec<&str> =
        asked_for.clone().filter(|model| backend.prices.price(model).is_none()).map(String::as_str).collect();
    match usage {
        UsageReport::Cost => None,
        UsageReport::Nothing if backend.settings.kind == Some(BackendType::Script) => None,
        UsageReport::Nothing => warn(
            "its output contains neither tokens nor cost, so cost limits do not apply".to_owned(),
            "limit iterations and time, or set another format in `output`",
        ),
        _ if !unpriced.is_empty() && usage != UsageReport::CostOfKnownModels => warn(
            format!("the price of {} is unknown, so cost limits do not apply", unpriced.join(", ")),
            "add it to `prices`",
        ),
        UsageReport::TokensAndModel => None,
        _ if asked_for.count() == 0 => warn(
            "it may report neither cost nor model; cost limits do not apply then".to_owned(),
            "set `models.default`, so that tokens have a price",
        ),
        _ => None,
    }
}

/// Checks whether runs can read the credentials; `None` if no credentials are configured.
fn keys(name: &str, backend: &BackendConfig, hidden: &[&str]) -> Option<CheckFinding> {
    let secret = |name: &str| ["_KEY", "_TOKEN"].iter().any(|end| name.ends_with(end));
    let (names, is_hidden) = (backend.env.iter().map(|(name, _)| name.as_str()), |name: &&str| hidden.contains(name));
    let given: Vec<&str> = names.filter(|name| secret(name) && !is_hidden(name)).collect();
    let title = format!("keys of {}", title(name));
    match (given.as_slice(), hidden) {
        ([], []) => None,
        ([], hidden) => Some(CheckFinding::ok(title, format!("hidden from runs: {}", hidden.join(", ")))),
        (given, _) if !backend.settings.hide_keys => {
            Some(CheckFinding::ok(title, format!("runs can read {} because `hide_keys` is off", given.join(", "))))
        }
        (given, _) => {
            let fix = "add it to `keys` with the variable of the model's address, so that the service keeps it; or use a \
                       credential of low value";
            Some(CheckFinding::warn(title, format!("runs can read {}", given.join(", ")), fix))
        }
    }
}

/// Warns if no credential is passed to a program, because runs cannot use the logins of the service's user.
fn login(name: &str, known: &AgentProgram, backend: &BackendConfig) -> Option<CheckFinding> {
    let signs_in = |name: &str| SIGNS_IN.iter().any(|part| name.contains(part));
    if let Some(file) = &backend.settings.login_file {
        let title = format!("login of {}", title(name));
        return Some(match std::fs::read_to_string(file) {
            Ok(_) => CheckFinding::ok(title, format!("runs get a copy of {} and can read it", file.display())),
            Err(error) => CheckFinding::fail(title, format!("{}: {error}", file.display()), known.login_advice),
        });
    }
    if backend.env.iter().any(|(name, _)| signs_in(name)) {
        return None;
    }
    let detail =
        "no credential is passed to it, so it would wait for a login; runs do not see the logins of this account";
    let file = if known.login_file.is_some() { "; or name its login file in `login_file`" } else { "" };
    let fix = format!(
        "set the variable with its credential and add its name to `env`, such as {}: {}{file}",
        known.login_variables.join(", "),
        known.login_advice
    );
    Some(CheckFinding::warn(format!("login of {}", title(name)), detail, fix))
}

/// Checks that an HTTP API responds, accepts the key and offers the model.
async fn ask_interface(config: &Config, name: &str, backend: &BackendConfig, env: &Env) -> CheckFinding {
    let client = match app::api(config, name) {
        Ok(client) => client,
        Err(why) => {
            return CheckFinding::fail(title(name), bare(name, &format!("{why:#}")), "fix its entry in `backends`");
        }
    };
    // The built-in agent also needs a shell.
    if backend.settings.roles.contains(&BackendRole::Agent)
        && let Err(why) = app::backend(config, name, env)
    {
        return CheckFinding::fail(
            title(name),
            bare(name, &format!("{why:#}")),
            "fix its entry in `backends`, or install the missing program",
        );
    }
    let wanted = backend.settings.models.default.as_deref().unwrap_or_default();
    match client.offered().await {
        Ok(offered) if offered.is_empty() || offered.iter().any(|model| model == wanted) => {
            CheckFinding::ok(title(name), format!("answers; {} models", offered.len()))
        }
        Ok(offered) => {
            let near = did_you_mean(wanted, offered.iter().map(String::as_str));
            let detail = format!("answers, but does not offer the model `{wanted}`{near}");
            CheckFinding::warn(title(name), detail, "fix `models`, unless the API accepts unlisted names")
        }
        Err(error) => match error.signals.status {
            Some(401 | 403) => CheckFinding::fail(title(name), error.what, "set a valid key"),
            Some(404 | 405) => CheckFinding::ok(title(name), "answers; models cannot be listed"),
            _ => CheckFinding::fail(title(name), error.what, "check `url`, `wire` and the network connection"),
        },
    }
}

fn models(backend: &BackendConfig) -> String {
    let models = &backend.settings.models;
    let tiers = [("", &models.default), ("cheap ", &models.cheap), ("strong ", &models.strong)];
    let tiers = tiers.into_iter().filter_map(|(tier, model)| Some(format!("{tier}{}", model.as_deref()?)));
    let rules = match models.rules.len() {
        0 => None,
        1 => Some("1 rule".to_owned()),
        count => Some(format!("{count} rules")),
    };
    tiers.chain(rules).collect::<Vec<_>>().join(", ")
}

/// Formats the thresholds that differ from the defaults.
fn thresholds(thresholds: &BackendThresholds) -> String {
    let (usual, given) = (serde_json::to_value(BackendThresholds::default()), serde_json::to_value(thresholds));
    let (Ok(serde_json::Value::Object(usual)), Ok(serde_json::Value::Object(given))) = (usual, given) else {
        return String::new();
    };
    let other = given.iter().filter(|(key, value)| usual.get(*key) != Some(value));
    let shown = other.map(|(key, value)| format!("{key} {}", value.as_str().map_or(value.to_string(), str::to_owned)));
    shown.collect::<Vec<_>>().join(", ")
}
