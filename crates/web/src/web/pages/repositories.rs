//! Page of repositories for operators: the effective settings, each with its source.

use std::sync::Arc;

use axum::extract::Query;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::home::{next, previous};
use super::layout::{self, PageDef, PageError, PageNav, PageRights, beginning, opened, page_template};
use crate::config::{KeySource, KeySources};
use crate::domain::model::ids::{ForgeName, RepoRef};
use crate::domain::report;
use crate::domain::trust::policy::{Policy, RepositorySettings};
use crate::store::loops::NewestSettings;
use crate::store::{StoreResult, forge_state, listing, loops};
use crate::web::{Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/repositories",
    template: page_template!("repositories.html"),
    title: "Repositories",
    nav: PageNav::Entry("Repositories"),
    rights: PageRights::Operator,
    show: |page| opened(page, show),
};

/// Number of repositories on a page.
const REPOSITORIES_SHOWN: usize = 20;
/// Maximum size of a setting on the page, in bytes.
const SETTING_SHOWN: usize = 500;

/// Query of the repositories.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RepositoriesQuery {
    page: usize,
}

/// Data of the page.
#[derive(Debug, Serialize)]
struct RepositoriesView {
    repositories: Vec<RepositoryLine>,
    count: usize,
    /// Address of the previous page; empty on the first page.
    previous: String,
    /// Address of the next page; empty on the last page.
    next: String,
}

/// Repository with its effective settings.
#[derive(Debug, Serialize)]
struct RepositoryLine {
    name: String,
    watched: bool,
    /// Whether a loop is open, so that the settings of the repository's file are known.
    known: bool,
    settings: Vec<SettingRow>,
    /// Settings of the repository's file without effect.
    overruled: Vec<String>,
}

/// Returns the page.
async fn show(
    state: Arc<WebState>,
    viewer: Viewer,
    Query(query): Query<RepositoriesQuery>,
) -> Result<Response, PageError> {
    let page = query.page.max(1);
    let forges: Vec<ForgeName> =
        state.engine.forges.settings.policies.keys().chain(state.engine.forges.accounts.keys()).cloned().collect();
    let read = state.engine.store.read(move |c| {
        let mut all = listing::repositories(c)?;
        for forge in forges {
            all.extend(forge_state::repositories(c, &forge)?);
        }
        all.sort_by(|a, b| (a.forge.as_str(), a.id.0).cmp(&(b.forge.as_str(), b.id.0)));
        all.dedup_by(|a, b| a.forge == b.forge && a.id == b.id);
        let count = all.len();
        let skipped = (page - 1).saturating_mul(REPOSITORIES_SHOWN);
        let shown: Vec<RepoRef> = all.into_iter().skip(skipped).take(REPOSITORIES_SHOWN).collect();
        let open = shown.iter().map(|repo| loops::newest_settings(c, repo));
        let open = open.collect::<StoreResult<Vec<_>>>()?;
        Ok((shown, open, count))
    });
    let (shown, open, count) = read.await?;
    let lines = shown.iter().zip(&open).map(|(repo, newest)| {
        let operators = state.engine.forges.settings.policy(&repo.forge);
        RepositoryLine {
            name: repo.to_string(),
            watched: state.engine.forges.settings.watches(repo),
            known: newest.is_some(),
            settings: rows((&operators, &state.engine.forges.settings.key_sources), newest.as_ref()),
            overruled: newest.as_ref().map(|newest| newest.overruled.clone()).unwrap_or_default(),
        }
    });
    let address = |page: usize| format!("/repositories?page={page}");
    let view = RepositoriesView {
        repositories: lines.collect(),
        count,
        previous: previous(page, address),
        next: next(page, REPOSITORIES_SHOWN, i64::try_from(count).unwrap_or(i64::MAX), address),
    };
    Ok(layout::page(&state, &viewer, &PAGE, &view))
}

/// Keys of the operator's configuration, or prefixes of keys.
type OperatorKeys = &'static [&'static str];
/// Name and value of a setting, the operator's keys, the key in the repository's file, and whether the values of both
/// files are combined.
type SettingText = (&'static str, String, OperatorKeys, &'static str, bool);

/// Keys that select the accounts allowed to give commands.
const WHO_MAY: OperatorKeys = &["permissions.command", "permissions.allow", "permissions.teams"];

/// Setting with its value as text.
struct Setting {
    name: String,
    value: String,
    /// Keys, or prefixes of keys, in the operator's configuration that set the value; empty if none.
    operator: OperatorKeys,
    /// Key in the repository's file that sets or extends the value; empty if none.
    key: &'static str,
    /// Whether the values of both files are combined.
    adds: bool,
}

/// Row of the table.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct SettingRow {
    name: String,
    value: String,
    source: &'static str,
}

/// Returns a repository's settings, each with its source, from its newest open loop or otherwise from the operator's
/// configuration.
fn rows((operators, keys): (&Policy, &KeySources), newest: Option<&NewestSettings>) -> Vec<SettingRow> {
    let file = newest.and_then(|newest| newest.file.as_ref());
    let in_force = settings(newest.map_or(operators, |newest| &newest.policy));
    let of_operator = settings(operators);
    let is_set = |key: &str| !key.is_empty() && file.is_some_and(|file| sets(file, key));
    let is_overruled = |key: &str| {
        let begins = format!("`{key}`");
        newest.is_some_and(|newest| newest.overruled.iter().any(|note| note.starts_with(&begins)))
    };
    let row = |setting: Setting| {
        // Loops that started before the file's settings were stored contain only the effective values.
        let differs = || !of_operator.iter().any(|own| own.name == setting.name && own.value == setting.value);
        let by_repository = match file {
            Some(_) => is_set(setting.key) && !is_overruled(setting.key),
            None => differs(),
        };
        let by_operator = setting.operator.iter().filter_map(|key| keys.source(key)).max();
        let source = match (by_repository, by_operator.filter(|_| !by_repository || setting.adds)) {
            (true, None) => "repository's file",
            (true, Some(KeySource::File)) => "both files",
            (true, Some(KeySource::Variable)) => "repository's file, environment",
            (false, Some(KeySource::File)) => "operator's file",
            (false, Some(KeySource::Variable)) => "environment",
            (false, None) => "default",
        };
        SettingRow { value: beginning(&setting.value, SETTING_SHOWN), name: setting.name, source }
    };
    in_force.into_iter().map(row).collect()
}

/// Whether a repository's file sets a key.
fn sets(file: &RepositorySettings, key: &str) -> bool {
    match key {
        "checks" => !file.checks.is_empty(),
        "setup" => !file.setup.is_empty(),
        "detect" => file.detect_checks.is_some(),
        "task_type" => file.task_type.is_some(),
        "task" => file.task != Default::default(),
        "task_labels" => !file.task_labels.is_empty(),
        "progress" => file.progress.is_some(),
        "plan" => file.plan.is_some(),
        "protected.policy" => file.protected.is_some(),
        "protected.paths" => !file.protected_paths.is_empty(),
        "reviewers" => file.reviewers.is_some(),
        "base" => file.base.is_some(),
        "intelligence" => file.intelligence.is_some(),
        "tampering.iterations" => file.tampering_iterations.is_some(),
        "hooks" => !file.hooks.is_empty(),
        "review.when" => file.review.is_some(),
        "preset" | "control" | "oversight" | "strategy" => file.thresholds.contains_key(key),
        key => key.strip_prefix("limits.").is_some_and(|limit| {
            let limits = serde_json::to_value(&file.limits).unwrap_or_default();
            limits.get(limit).is_some_and(|value| !value.is_null())
        }),
    }
}

/// Returns a value as text: names and numbers unchanged, other values as JSON.
fn words(value: &impl Serialize) -> String {
    match serde_json::to_value(value).unwrap_or_default() {
        Json::Null => "none".to_owned(),
        Json::Bool(on) => if on { "yes" } else { "no" }.to_owned(),
        Json::String(text) => text.replace('_', " "),
        Json::Array(items) if items.is_empty() => "none".to_owned(),
        Json::Object(map) if map.values().all(is_unset) => "none".to_owned(),
        Json::Array(items) if items.iter().all(Json::is_string) => {
            items.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(", ")
        }
        value => value.to_string(),
    }
}

fn is_unset(value: &Json) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Returns all settings of a policy.
fn settings(policy: &Policy) -> Vec<Setting> {
    let commands: Vec<&str> = policy.checks.iter().map(|check| check.command.as_str()).collect();
    let bots: Vec<i64> = policy.allow_bots.iter().map(|id| id.0).collect();
    let hooks: Vec<String> = policy
        .hooks
        .iter()
        .map(|hook| format!("{} ({}){}", hook.name, words(&hook.event), if hook.optional { ", not used" } else { "" }))
        .collect();
    let base = policy.base.clone().unwrap_or_else(|| "default branch".to_owned());
    let review = policy.review.as_ref().map(|review| format!("by {}, {} min", review.backend, review.timeout_s / 60));
    let reminder = format!("after {} min", policy.remind_after_s / 60);
    let fixed: [SettingText; 23] = [
        ("Who may give commands", report::who_may(policy), WHO_MAY, "", false),
        ("Bots that may give commands", words(&bots), &["permissions.allow_bots"], "", false),
        ("Label", policy.start_labels()[0].clone(), &["label_prefix"], "", false),
        ("Checks", words(&commands), &[], "checks", false),
        ("Checks are detected", words(&policy.detect_checks), &["checks.detect"], "detect", false),
        ("Set-up commands", words(&policy.setup), &[], "setup", false),
        ("Type of tasks", words(&policy.task_type), &[], "task_type", false),
        ("Facts about tasks", words(&policy.task), &[], "task", false),
        ("Facts about tasks by label", words(&policy.task_labels), &[], "task_labels", false),
        ("Reports", words(&policy.progress), &["progress"], "progress", false),
        ("Plan", words(&policy.plan), &["plan"], "plan", false),
        ("Protected paths", words(&policy.protected.paths), &["protected.paths"], "protected.paths", true),
        (
            "Response to changes of protected paths",
            words(&policy.protected.policy),
            &["protected.policy"],
            "protected.policy",
            false,
        ),
        (
            "Iterations with weakened tests",
            policy.tampering.iterations.to_string(),
            &["tampering"],
            "tampering.iterations",
            false,
        ),
        ("Reviewers", words(&policy.reviewers), &[], "reviewers", false),
        ("Second opinion", words(&review), &["review"], "review.when", false),
        ("Base branch", base, &[], "base", false),
        ("Branch prefix", policy.branch_prefix.clone(), &["branch_prefix"], "", false),
        ("Branch is deleted at the end", words(&policy.delete_branch), &["delete_branch"], "", false),
        ("Intelligence", words(&policy.intelligence), &["intelligence"], "intelligence", false),
        ("Reminder of an escalation", reminder, &["escalation.remind_after"], "", false),
        ("Schedule", words(&policy.schedule), &["schedule"], "", false),
        ("Hooks", words(&hooks), &["hooks"], "hooks", true),
    ];
    let fixed = fixed.map(|(name, value, operator, key, adds)| {
        let name = name.to_owned();
        Setting { name, value, operator, key, adds }
    });
    let limits = object(&policy.limits).into_iter().map(|(name, value)| {
        let (operator, key) = limit_keys(&name);
        Setting { name: format!("limits.{name}"), value: words(&value), operator, key, adds: false }
    });
    let thresholds = policy.thresholds.iter().map(|(name, value)| {
        let (operator, key) = threshold_keys(name);
        Setting { name: name.clone(), value: words(value), operator, key, adds: true }
    });
    fixed.into_iter().chain(limits).chain(thresholds).collect()
}

/// Returns the operator's keys for a limit, and the key in the repository's file that lowers it.
fn limit_keys(name: &str) -> (OperatorKeys, &'static str) {
    match name {
        "loops" => (&["limits.loops"], ""),
        "loops_per_forge" => (&["limits.loops_per_forge"], ""),
        "loops_per_repository" => (&["limits.loops_per_repository"], "limits.loops"),
        "iterations" => (&["limits.iterations"], "limits.iterations"),
        "timeout" => (&["limits.timeout"], "limits.timeout"),
        "agent_timeout" => (&["limits.agent_timeout"], ""),
        "agent_idle" => (&["limits.agent_idle"], ""),
        "agent_turns" => (&["limits.agent_turns"], ""),
        "cost_usd" => (&["limits.cost_usd"], "limits.cost_usd"),
        "cost_usd_per_day" => (&["limits.cost_usd_per_day"], ""),
        "cost_usd_per_repository_per_day" => (&["limits.cost_usd_per_repository_per_day"], "limits.cost_usd_per_day"),
        "comments_per_day" => (&["limits.comments_per_day"], "limits.comments_per_day"),
        "comments_per_hour" => (&["limits.comments_per_hour"], "limits.comments_per_hour"),
        _ => (&[], ""),
    }
}

/// Returns the keys for a group of thresholds in both files.
fn threshold_keys(name: &str) -> (OperatorKeys, &'static str) {
    match name {
        "preset" => (&["preset"], "preset"),
        "control" => (&["control"], "control"),
        "oversight" => (&["oversight"], "oversight"),
        "strategy" => (&["strategy"], "strategy"),
        _ => (&[], ""),
    }
}

fn object(value: &impl Serialize) -> Map<String, Json> {
    match serde_json::to_value(value) {
        Ok(Json::Object(map)) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::config::operator::OperatorFile;
    use crate::config::{Config, Env};
    use crate::domain::model::quantity::IterationLimit;

    #[test]
    fn setting_names_its_source() {
        let env = Env::of([
            ("T", "token"),
            ("S", "0123456789abcdef0123456789abcdef"),
            ("RALPH_LIMITS__TIMEOUT", "3h"),
            ("RALPH_PROTECTED__PATHS", r#"["a"]"#),
        ]);
        // Two of these equal the defaults.
        let text = "forges: [{ name: work, kind: gitea, url: 'https://git.example.org', token_env: T, webhook_secret_env: S }]\n\
            backends: { claude: {} }\nbranch_prefix: ralph/\nlimits: { iterations: 7, comments_per_hour: 6 }\n\
            control: { stuck_iterations: 4 }\n";
        let config = Config::parse(Path::new("ralph-control.yaml"), text, &env).expect("valid");
        let operators = config.policy(&ForgeName::new("work"));
        let mut file = RepositorySettings::default();
        // The operator's value, a lower one, and a higher one, which has no effect.
        file.limits.iterations = Some(IterationLimit::of(7));
        file.limits.comments_per_day = Some(5);
        file.limits.comments_per_hour = Some(50);
        file.limits.loops = Some(1);
        file.reviewers = Some(vec!["ann".into()]);
        file.protected_paths = vec!["b".into()];
        file.thresholds.insert("oversight".into(), json!({}));
        let newest = NewestSettings {
            policy: operators.with_repository(&file),
            overruled: operators.overruled(&file),
            file: Some(file),
        };
        let shown = rows((&operators, &config.key_sources), Some(&newest));
        let of = |name: &str| {
            let row = shown.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name}"));
            (row.value.clone(), row.source)
        };
        let table = [
            ("limits.iterations", "7", "repository's file"),
            ("limits.comments_per_day", "5", "repository's file"),
            ("limits.comments_per_hour", "6", "operator's file"),
            ("limits.loops", "4", "default"),
            ("limits.loops_per_repository", "1", "repository's file"),
            ("limits.timeout", "3h", "environment"),
            ("Protected paths", "a, b", "repository's file, environment"),
            ("Reviewers", "ann", "repository's file"),
            ("Branch prefix", "ralph/", "operator's file"),
            ("Label", "ralph:run", "default"),
            ("Plan", "on request", "default"),
            ("Base branch", "default branch", "default"),
            ("control", r#"{"stuck_iterations":4}"#, "operator's file"),
        ];
        for (name, value, source) in table {
            assert_eq!(of(name), (value.to_owned(), source), "{name}");
        }
        let alone = rows((&operators, &config.key_sources), None);
        let iterations = alone.iter().find(|row| row.name == "limits.iterations").map(|row| row.source);
        assert_eq!(iterations, Some("operator's file"));
    }

    /// A missing or misspelled key would always show its setting as a default.
    #[test]
    fn every_setting_has_keys_that_exist() {
        let file: Json = serde_json::to_value(OperatorFile::default()).expect("JSON");
        let policy = Policy { thresholds: object(&json!({ "control": {}, "oversight": {} })), ..Policy::default() };
        for setting in settings(&policy) {
            for key in setting.operator {
                let pointer = format!("/{}", key.replace('.', "/"));
                assert!(file.pointer(&pointer).is_some(), "{}: there is no key {key}", setting.name);
            }
            assert!(!setting.operator.is_empty() || !setting.key.is_empty(), "{} has no key", setting.name);
        }
    }

    #[test]
    fn every_setting_of_a_policy_is_shown() {
        let names: Vec<String> = settings(&Policy::default()).into_iter().map(|setting| setting.name).collect();
        // `floor`, `allow` and `teams` share one row, as do the two parts of `protected`; each threshold has its own row.
        let fields = object(&Policy::default()).len() - 1 + object(&Policy::default().limits).len();
        assert!(names.len() + 3 >= fields, "{} rows for {fields} fields: {names:?}", names.len());
    }
}
