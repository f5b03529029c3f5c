//! Page of the repositories, for operators: the settings in force, each with where it came from.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::home::{next, previous};
use super::layout::{self, PageError, PageFrame, beginning, require_operator};
use crate::config::operator::protected_paths;
use crate::domain::model::ids::{ForgeName, RepoRef};
use crate::domain::report;
use crate::domain::trust::policy::{Intelligence, Policy, RepositorySettings};
use crate::domain::trust::protected::Protected;
use crate::store::loops::NewestSettings;
use crate::store::{StoreResult, forge_state, listing, loops};
use crate::web::{Viewer, WebState};

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

/// Shows the repositories with the settings that are in force.
pub(super) async fn repositories(
    State(state): State<Arc<WebState>>,
    viewer: Viewer,
    Query(query): Query<RepositoriesQuery>,
) -> Response {
    let shown = repositories_page(&state, &viewer, query.page.max(1)).await;
    shown.unwrap_or_else(|error| error.page(&state, &viewer))
}

async fn repositories_page(state: &WebState, viewer: &Viewer, page: usize) -> Result<Response, PageError> {
    require_operator(viewer)?;
    let forges: Vec<ForgeName> =
        state.engine.settings.policies.keys().chain(state.engine.forges.keys()).cloned().collect();
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
    let rows: Vec<Json> = shown
        .iter()
        .zip(&open)
        .map(|(repo, newest)| {
            let operators = state.engine.settings.policy(&repo.forge);
            json!({
                "name": repo.to_string(),
                "watched": state.engine.settings.watches(repo),
                "known": newest.is_some(),
                "settings": rows(&operators, newest.as_ref()),
                "overruled": newest.as_ref().map(|newest| newest.overruled.clone()).unwrap_or_default(),
            })
        })
        .collect();
    let address = |page: usize| format!("/repositories?page={page}");
    let context = json!({
        "repositories": rows,
        "count": count,
        "previous": previous(page, address),
        "next": next(page, REPOSITORIES_SHOWN, i64::try_from(count).unwrap_or(i64::MAX), address),
    });
    let frame = PageFrame::still("Repositories", "repositories");
    Ok(layout::page(state, viewer, "repositories.html", &frame, context, Vec::new()))
}

/// Setting with its value in words.
struct Setting {
    name: String,
    value: String,
    /// Key of the repository's file that sets it or adds to it; empty if that file cannot.
    key: &'static str,
    /// Whether the values of both files count.
    adds: bool,
}

/// Row of the table.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct SettingRow {
    name: String,
    value: String,
    source: &'static str,
}

/// Returns the settings of a repository: those of its newest open loop, else the operator's, each with its source.
fn rows(operators: &Policy, newest: Option<&NewestSettings>) -> Vec<SettingRow> {
    let file = newest.and_then(|newest| newest.file.as_ref());
    let in_force = settings(newest.map_or(operators, |newest| &newest.policy));
    let of_operator = settings(operators);
    let defaults = settings(&default_policy());
    let value_in = |all: &[Setting], name: &str| {
        all.iter().find(|setting| setting.name == name).map(|setting| setting.value.clone())
    };
    let is_set = |key: &str| !key.is_empty() && file.is_some_and(|file| sets(file, key));
    let is_overruled = |key: &str| {
        let begins = format!("`{key}`");
        newest.is_some_and(|newest| newest.overruled.iter().any(|note| note.starts_with(&begins)))
    };
    let mut rows: Vec<SettingRow> = Vec::new();
    for setting in in_force {
        let own = value_in(&of_operator, &setting.name);
        let by_operator = own != value_in(&defaults, &setting.name);
        let source = match is_set(setting.key) && !is_overruled(setting.key) {
            true if setting.adds && by_operator => "both files",
            true => "repository's file",
            // Of loops that began before the file's settings were stored with them.
            false if file.is_none() && own.as_ref() != Some(&setting.value) => "repository's file",
            false if by_operator => "operator's file",
            false => "default",
        };
        rows.push(SettingRow { name: setting.name, value: beginning(&setting.value, SETTING_SHOWN), source });
    }
    rows
}

/// Returns the policy of an operator's file that sets nothing.
fn default_policy() -> Policy {
    let policy = Policy::default();
    let protected = Protected { paths: protected_paths(), ..policy.protected };
    Policy { protected, intelligence: Intelligence::default(), ..policy }
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
        "thresholds" => !file.thresholds.is_empty(),
        key => key.strip_prefix("limits.").is_some_and(|limit| {
            let limits = serde_json::to_value(&file.limits).unwrap_or_default();
            limits.get(limit).is_some_and(|value| !value.is_null())
        }),
    }
}

/// Returns a value as text: names and numbers as they are, other values as JSON.
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
    let fixed: [(&str, String, &'static str, bool); 23] = [
        ("Who may give commands", report::who_may(policy), "", false),
        ("Bots that may give commands", words(&bots), "", false),
        ("Label", policy.start_labels()[0].clone(), "", false),
        ("Checks", words(&commands), "checks", false),
        ("Checks are detected", words(&policy.detect_checks), "detect", false),
        ("Set-up commands", words(&policy.setup), "setup", true),
        ("Type of tasks", words(&policy.task_type), "task_type", false),
        ("Facts about tasks", words(&policy.task), "task", false),
        ("Facts about tasks by label", words(&policy.task_labels), "task_labels", false),
        ("Reports", words(&policy.progress), "progress", false),
        ("Plan", words(&policy.plan), "plan", false),
        ("Protected paths", words(&policy.protected.paths), "protected.paths", true),
        ("Response to changes of protected paths", words(&policy.protected.policy), "protected.policy", false),
        ("Iterations with weakened tests", policy.tampering.iterations.to_string(), "tampering.iterations", false),
        ("Reviewers", words(&policy.reviewers), "reviewers", false),
        ("Second opinion", words(&review), "review.when", false),
        ("Base branch", base, "base", false),
        ("Branch prefix", policy.branch_prefix.clone(), "", false),
        ("Branch is deleted at the end", words(&policy.delete_branch), "", false),
        ("Intelligence", words(&policy.intelligence), "intelligence", false),
        ("Reminder of an escalation", format!("after {} min", policy.remind_after_s / 60), "", false),
        ("Schedule", words(&policy.schedule), "", false),
        ("Hooks", words(&hooks), "hooks", true),
    ];
    let fixed = fixed.into_iter().map(|(name, value, key, adds)| Setting { name: name.to_owned(), value, key, adds });
    let limits = object(&policy.limits).into_iter().map(|(name, value)| {
        let key = match name.as_str() {
            "iterations" => "limits.iterations",
            "timeout" => "limits.timeout",
            "cost_usd" => "limits.cost_usd",
            "cost_usd_per_repository_per_day" => "limits.cost_usd_per_day",
            "loops_per_repository" => "limits.loops",
            "comments_per_day" => "limits.comments_per_day",
            "comments_per_hour" => "limits.comments_per_hour",
            _ => "",
        };
        Setting { name: format!("limits.{name}"), value: words(&value), key, adds: false }
    });
    let thresholds = policy.thresholds.iter().map(|(name, value)| Setting {
        name: name.clone(),
        value: words(value),
        key: "thresholds",
        adds: true,
    });
    fixed.chain(limits).chain(thresholds).collect()
}

fn object(value: &impl Serialize) -> Map<String, Json> {
    match serde_json::to_value(value) {
        Ok(Json::Object(map)) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_of_a_setting_is_the_file_that_sets_it() {
        let mut operators =
            Policy { branch_prefix: "bot/".into(), setup: vec!["make deps".into()], ..Policy::default() };
        operators.limits.iterations = 7;
        let mut file = RepositorySettings { setup: vec!["npm ci".into()], ..RepositorySettings::default() };
        // The same value as the operator's, a lower one, and a higher one, which is overruled.
        file.limits.iterations = Some(7);
        file.limits.comments_per_day = Some(5);
        file.limits.comments_per_hour = Some(50);
        file.reviewers = Some(vec!["ann".into()]);
        let newest = NewestSettings {
            policy: operators.with_repository(&file),
            overruled: operators.overruled(&file),
            file: Some(file),
        };
        let shown = rows(&operators, Some(&newest));
        let of = |name: &str| {
            let row = shown.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name}"));
            (row.value.clone(), row.source)
        };
        let table = [
            ("limits.iterations", "7", "repository's file"),
            ("limits.comments_per_day", "5", "repository's file"),
            ("limits.comments_per_hour", "6", "default"),
            ("limits.loops", "4", "default"),
            ("Set-up commands", "make deps, npm ci", "both files"),
            ("Reviewers", "ann", "repository's file"),
            ("Branch prefix", "bot/", "operator's file"),
            ("Plan", "on request", "default"),
            ("Base branch", "default branch", "default"),
        ];
        for (name, value, source) in table {
            assert_eq!(of(name), (value.to_owned(), source), "{name}");
        }
        let alone = rows(&operators, None);
        let iterations = alone.iter().find(|row| row.name == "limits.iterations").map(|row| row.source);
        assert_eq!(iterations, Some("operator's file"));
    }

    #[test]
    fn every_setting_of_a_policy_is_shown() {
        let names: Vec<String> = settings(&Policy::default()).into_iter().map(|setting| setting.name).collect();
        // `floor`, `allow` and `teams` are one row, and so are the two parts of `protected`; thresholds have a row each.
        let fields = object(&Policy::default()).len() - 1 + object(&Policy::default().limits).len();
        assert!(names.len() + 3 >= fields, "{} rows for {fields} fields: {names:?}", names.len());
    }
}
