//! What `check` finds out about backends: whether each is there, answers, is of a known version, and has what it needs to
//! sign in. No model is called.

#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::future::join_all;
use serde::Serialize;

use super::Finding;
use crate::agent::{AgentProgram, OutputFormat, UsageReport, presets};
use crate::app;
use crate::cli::table;
use crate::config::{BackendConfig, Config, Env};
use crate::domain::model::settings::did_you_mean;
use crate::domain::providers::backends::{BackendRole, BackendThresholds, BackendType};

/// Longest wait for one backend.
const PATIENCE: Duration = Duration::from_secs(35);
/// Words of a program that only says that it is no more.
const GIVEN_UP: [&str; 6] =
    ["no longer", "deprecated", "discontinued", "has moved", "has been replaced", "end of life"];
/// What names of variables hold that let a program sign in.
const SIGNS_IN: [&str; 6] = ["_KEY", "_TOKEN", "CREDENTIALS", "_HOME", "_CONFIG", "_USE_"];

/// A backend in the table of backends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What it is: `preset`, or its type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What it is used for.
    pub roles: Vec<BackendRole>,
    /// Its version, where it says one.
    pub version: Option<String>,
    /// Which models it is asked for.
    pub models: String,
    /// How far it is used; empty where nothing but errors limits it.
    pub thresholds: String,
}

/// Everything about backends.
pub(super) async fn look(config: &Config, env: &Env) -> Vec<Finding> {
    let each = config.backends.iter().map(|(name, backend)| async move {
        let (mut findings, version) = tokio::time::timeout(PATIENCE, ask(config, name, backend, env))
            .await
            .unwrap_or_else(|_| (vec![silent(name)], None));
        let row = Row {
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

/// The table of the backends that were found, for people; empty where there are none.
pub(super) fn overview(findings: &[Finding]) -> String {
    let mut rows = findings.iter().filter_map(|finding| finding.backend.as_ref()).map(cells).peekable();
    if rows.peek().is_none() {
        return String::new();
    }
    let header = ["BACKEND", "TYPE", "ROLES", "VERSION", "MODELS", "THRESHOLDS"].map(str::to_owned);
    format!("\n{}", table(&std::iter::once(header).chain(rows).collect::<Vec<_>>()))
}

fn cells(row: &Row) -> [String; 6] {
    let roles = row.roles.iter().map(|role| match role {
        BackendRole::Agent => "agent",
        BackendRole::Assistant => "assistant",
    });
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

/// A sentence without the backend's name before it, which the finding has already.
fn bare(name: &str, why: &str) -> String {
    why.strip_prefix(&format!("backend {name}: ")).unwrap_or(why).to_owned()
}

fn silent(name: &str) -> Finding {
    let detail = format!("no answer within {} s", PATIENCE.as_secs());
    Finding::fail(title(name), detail, "run it by hand: it may wait for a login or for an update")
}

async fn ask(config: &Config, name: &str, backend: &BackendConfig, env: &Env) -> (Vec<Finding>, Option<String>) {
    match backend.settings.kind {
        Some(kind) if kind.is_http() => (vec![ask_interface(config, name, backend, env).await], None),
        _ => ask_command(config, name, backend, env).await,
    }
}

/// Whether a program is there, which version it is, and whether it could sign in.
async fn ask_command(
    config: &Config,
    name: &str,
    backend: &BackendConfig,
    env: &Env,
) -> (Vec<Finding>, Option<String>) {
    let known = backend.settings.kind.is_none().then(|| presets::program(name)).flatten();
    let install = known.map_or("install it, or mend its `command`".to_owned(), |known| {
        format!("`{}` installs it; `command` names it where it is elsewhere", known.install_command())
    });
    let built = match app::backend(config, name, env) {
        Ok(built) => built,
        Err(why) => return (vec![Finding::fail(title(name), bare(name, &why), install)], None),
    };
    let keys = keys(name, backend, &built.hidden_keys());
    let said = match built.probe().await {
        Ok(said) => said,
        Err(why) => return (vec![Finding::fail(title(name), why, install)], None),
    };
    let Some(known) = known else {
        let finding = Finding::ok(title(name), "its program is there; whether it works, a run will show");
        return (std::iter::once(finding).chain(keys).chain(uncounted(name, backend)).collect(), None);
    };
    let (finding, version) = judge_version(name, known, &said);
    let is_sound = version.is_some();
    let (login, money) = (|| login(name, known, backend).or(keys), || uncounted(name, backend));
    let further = is_sound.then(|| login().into_iter().chain(money())).into_iter().flatten();
    (std::iter::once(finding).chain(further).collect(), version)
}

/// What to make of what `--version` printed.
fn judge_version(name: &str, known: &AgentProgram, said: &str) -> (Finding, Option<String>) {
    let (name, install) = (title(name), known.install_command());
    let lower = said.to_lowercase();
    let number = version_in(said);
    let Some((version, (major, minor))) = number.filter(|_| !GIVEN_UP.iter().any(|words| lower.contains(words))) else {
        let detail = format!("the program under this name says no version, but: {said}");
        let fix = format!("another program, or one that was given up, is in its place; install it (`{install}`)");
        return (Finding::fail(name, detail, fix), None);
    };
    let (tried_major, tried_minor) = known.tested_version;
    let tried = format!("tried with {tried_major}.{tried_minor}");
    let finding = if major != tried_major || minor < tried_minor {
        let fix = format!("what it prints may be read as plain text only; install another one (`{install}`)");
        Finding::warn(name, format!("{said}; this version of ralph-bot was {tried}"), fix)
    } else {
        Finding::ok(name, format!("{said}; {tried}"))
    };
    (finding, Some(version))
}

/// The first version number of a text, whole, and its first two parts.
fn version_in(text: &str) -> Option<(String, (u32, u32))> {
    text.split(|c: char| c.is_whitespace() || "(),;:".contains(c)).find_map(|word| {
        let word = word.trim_start_matches(['v', 'V']);
        let mut parts = word.split('.');
        let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?);
        let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
        Some((word.trim_end_matches('.').to_owned(), (major, digits.parse().ok()?)))
    })
}

/// Why limits of money do not hold a program's runs, where nobody could say what they cost.
fn uncounted(name: &str, backend: &BackendConfig) -> Option<Finding> {
    let warn = |detail: String, fix: &str| Some(Finding::warn(format!("cost of {}", title(name)), detail, fix));
    let format = backend.settings.output.as_ref().and_then(|format| OutputFormat::named(format.as_str()));
    let of_preset = backend.settings.kind.is_none().then(|| presets::usage(name)).flatten();
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
            "its text tells neither tokens nor cost, so limits of money do not hold it".to_owned(),
            "limit its iterations and its time, or have its output read in another format (`output`)",
        ),
        _ if !unpriced.is_empty() && usage != UsageReport::CostOfKnownModels => warn(
            format!("no price is known for {}, so limits of money do not hold it", unpriced.join(", ")),
            "add what it costs to its `prices`",
        ),
        UsageReport::TokensAndModel => None,
        _ if asked_for.count() == 0 => warn(
            "it need not say what it costs, nor does it name its model: limits of money do not hold it then".to_owned(),
            "set `models.default`, so that its tokens have a price",
        ),
        _ => None,
    }
}

/// Whether what it signs in with stays with the service; nothing where it is given no such thing.
fn keys(name: &str, backend: &BackendConfig, hidden: &[&str]) -> Option<Finding> {
    let secret = |name: &str| ["_KEY", "_TOKEN"].iter().any(|end| name.ends_with(end));
    let (names, is_hidden) = (backend.env.iter().map(|(name, _)| name.as_str()), |name: &&str| hidden.contains(name));
    let given: Vec<&str> = names.filter(|name| secret(name) && !is_hidden(name)).collect();
    let title = format!("keys of {}", title(name));
    match (given.as_slice(), hidden) {
        ([], []) => None,
        ([], hidden) => Some(Finding::ok(title, format!("its runs do not see {}", hidden.join(", ")))),
        (given, _) if !backend.settings.hide_keys => {
            Some(Finding::ok(title, format!("its runs can read {}, as `hide_keys` says", given.join(", "))))
        }
        (given, _) => {
            let fix = "name it in `keys` with the variable of its model's address, so that it stays with the service; or \
                       give it nothing that is worth stealing";
            Some(Finding::warn(title, format!("its runs can read {}", given.join(", ")), fix))
        }
    }
}

/// Each run has a home of its own, so a login of this account is not seen: something has to be passed on.
fn login(name: &str, known: &AgentProgram, backend: &BackendConfig) -> Option<Finding> {
    let signs_in = |name: &str| SIGNS_IN.iter().any(|part| name.contains(part));
    if backend.env.iter().any(|(name, _)| signs_in(name)) {
        return None;
    }
    let detail = "no key is passed on to it, so it would wait for a login; runs do not see the logins of this account";
    let fix = format!(
        "set the variable that holds its key and list its name in `env`, such as {}",
        known.login_variables.join(", ")
    );
    Some(Finding::warn(format!("login of {}", title(name)), detail, fix))
}

/// Whether an HTTP interface answers, takes the key and has the model.
async fn ask_interface(config: &Config, name: &str, backend: &BackendConfig, env: &Env) -> Finding {
    let client = match app::api(config, name) {
        Ok(client) => client,
        Err(why) => return Finding::fail(title(name), bare(name, &why), "mend its entry in `backends`"),
    };
    // Our own agent needs a shell here as well.
    if backend.settings.roles.contains(&BackendRole::Agent)
        && let Err(why) = app::backend(config, name, env)
    {
        return Finding::fail(
            title(name),
            bare(name, &why),
            "mend its entry in `backends`, or install what is missing",
        );
    }
    let wanted = backend.settings.models.default.as_deref().unwrap_or_default();
    match client.offered().await {
        Ok(offered) if offered.is_empty() || offered.iter().any(|model| model == wanted) => {
            Finding::ok(title(name), format!("answers; {} models", offered.len()))
        }
        Ok(offered) => {
            let near = did_you_mean(wanted, offered.iter().map(String::as_str));
            let detail = format!("answers, but offers no model `{wanted}`{near}");
            Finding::warn(title(name), detail, "mend `models`, unless it takes names that it does not list")
        }
        Err(error) => match error.signals.status {
            Some(401 | 403) => Finding::fail(title(name), error.what, "the key is not good, or is missing"),
            Some(404 | 405) => Finding::ok(title(name), "answers; it has no list of models"),
            _ => Finding::fail(title(name), error.what, "look at `url` and `wire`, and at the network between"),
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

/// The thresholds that are not as usual, as the file would write them.
fn thresholds(thresholds: &BackendThresholds) -> String {
    let (usual, given) = (serde_json::to_value(BackendThresholds::default()), serde_json::to_value(thresholds));
    let (Ok(serde_json::Value::Object(usual)), Ok(serde_json::Value::Object(given))) = (usual, given) else {
        return String::new();
    };
    let other = given.iter().filter(|(key, value)| usual.get(*key) != Some(value));
    let shown = other.map(|(key, value)| format!("{key} {}", value.as_str().map_or(value.to_string(), str::to_owned)));
    shown.collect::<Vec<_>>().join(", ")
}
