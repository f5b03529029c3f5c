//! Removed keys and values, which no operator has a reason to change. Files and environment variables that still set them
//! cause a warning, and the built-in values apply.

use serde::Serialize;
use serde_json::{Map, Value};

use super::operator::OperatorFile;
use super::problem::ProblemCollector;
use super::yaml::{YamlNode, YamlValue};
use crate::domain::model::settings::{KeyProblem, join};
use crate::domain::supervision::{RENAMED_KEYS, SupervisionPreset, SupervisionSettings};

/// Removed keys by section; the section `""` lists whole sections.
const REMOVED: &[(&str, &str)] = &[
    ("", "workspace"),
    (
        "control",
        "window decay deadband adaptive_gains transition_smoothing profiles schedule windup_guard complexity min_progress_rate \
         stuck_critical oscillation_count regression_rate regression_critical slide_drop slide_iterations emergency_percent \
         resource_forecast quality_drop quality_critical integral_windup_limit derivative_spike",
    ),
    ("control.actuators.effort", "offset slope min max"),
    ("control.actuators.model", "strong_above strong_iterations strong_profiles cheap_below cheap_profiles"),
    ("control.actuators.breadth", "first_failure one_change everything"),
    ("control.actuators.memory", "base max"),
    ("oversight", "climb_after grace_iterations min_progress"),
    ("oversight.test_tampering", "skipped repeats"),
    ("oversight.regression", "test_pass_to_fail sudden_loss coverage_drop_percent completion_fall restores"),
    ("oversight.agent_failure", "iterations window"),
    ("oversight.no_change", "iterations high_iterations"),
    (
        "oversight.oscillation",
        "window tree_returns critical_tree_returns undo_redo_cycles critical_cycles file_churn_threshold sign_changes \
         min_swing trend_turns",
    ),
    (
        "oversight.stuck",
        "window progress_window same_error_count limit_share no_progress_gain same_reflection_count alarm_signals \
         idle_share step_part blocker_weight",
    ),
    (
        "oversight.resource_burn",
        "iteration_multiplier cost_multiplier time_multiplier critical_multiplier tool_calls tool_calls_completion \
         nearly_done alarm_below abort_efficiency abort_completion",
    ),
    ("oversight.token_growth", "window growth high_growth min_tokens"),
    ("oversight.deviation", "objective_similarity window low_iterations high_after scope_creep_ratio scope_min_files"),
    (
        "strategy",
        "early late near_completion min_progress limit_share blocker_count patience budget_critical tool_errors \
         min_quality",
    ),
    ("strategy.outlook", "steps benefit after_redirect guided_iterations learned_after_iterations trial_iterations"),
    (
        "memory",
        "limit strategies antipatterns estimates conventions min_confidence min_success_rate promote_confidence \
         promote_seen merged_confidence propose_after remark_similarity same_above strategy_gain half_life_days \
         archive_below query_terms query_postings",
    ),
    ("images", "max_images max_mib max_total_mib max_pixels timeout"),
    ("cooldown", "longest"),
    ("engine", "ambiguity_wait_ms retry_first_ms"),
    ("review", "timeout"),
    ("rotation", "iteration_cost"),
];

/// Removed values: key, value, and replacement.
const REMOVED_VALUES: &[(&str, &str, &str)] =
    &[("rotation.mode", "adaptive", "none"), ("intelligence", "fallback", "facts")];

/// Returns all removed keys.
#[cfg(test)]
pub(super) fn keys() -> impl Iterator<Item = String> {
    REMOVED.iter().flat_map(|(section, keys)| keys.split(' ').map(|key| join(section, key)))
}

/// Whether a key was removed.
fn is_removed(key: &str) -> bool {
    let (section, key) = key.rsplit_once('.').unwrap_or(("", key));
    REMOVED.iter().any(|(of, keys)| *of == section && keys.split(' ').any(|removed| removed == key))
}

/// Returns a problem with the names of removed keys omitted.
pub fn without_removed_keys(problem: KeyProblem) -> KeyProblem {
    problem.without(is_removed)
}

/// Returns the warning about a removed key, given its last name or an older one; `None` for all other keys.
pub(super) fn warning(key: &str) -> Option<String> {
    let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
    let renamed = RENAMED_KEYS.iter().find(|(group, of, old, _)| *old == name && join(group, of) == section);
    let current = renamed.map_or_else(|| key.to_owned(), |(.., new)| join(section, new));
    is_removed(&current).then(|| {
        let value = built_in(&current).map_or_else(String::new, |value| format!("the built-in value is {value}; "));
        format!("`{key}` no longer has an effect; {value}remove it")
    })
}

/// Returns the value of a removed key for messages and documents, including the value in the preset `pinned` if it differs.
/// `None` for lists, sections, keys without a value in any type, and keys that still exist.
pub(super) fn built_in(key: &str) -> Option<String> {
    if !is_removed(key) {
        return None;
    }
    let pointer = format!("/{}", key.replace('.', "/"));
    let of = |settings: Value| {
        settings.pointer(&pointer).filter(|value| !value.is_object() && !value.is_array()).map(|value| {
            // A whole number has no decimal point.
            value.as_str().map_or_else(|| value.to_string().trim_end_matches(".0").to_owned(), str::to_owned)
        })
    };
    let preset = |preset| of(values(&SupervisionSettings::of(preset)));
    let Some(value) = preset(SupervisionPreset::Default) else { return of(values(&OperatorFile::default())) };
    match preset(SupervisionPreset::Pinned) {
        Some(pinned) if pinned != value => Some(format!("{value}, or {pinned} with `preset: pinned`")),
        _ => Some(value),
    }
}

fn values(settings: &impl Serialize) -> Value {
    serde_json::to_value(settings).unwrap_or_default()
}

/// Removes these keys from a file and replaces these values, with a warning for each.
pub(super) fn drop_from(node: &mut YamlNode, path: &str, report: &mut ProblemCollector) {
    if let YamlValue::Text(value) = &mut node.value
        && let Some((.., current)) = REMOVED_VALUES.iter().find(|(key, old, _)| *key == path && *old == value.as_str())
    {
        let message = format!("`{path}`: `{value}` no longer exists and is read as `{current}`; choose another value");
        report.warn(node.place.clone(), path, message);
        *value = (*current).to_owned();
    }
    let YamlValue::Map(entries) = &mut node.value else { return };
    entries.retain_mut(|entry| {
        let key = join(path, &entry.key);
        let warning = warning(&key);
        match &warning {
            Some(message) => report.warn(entry.key_place.clone(), key, message),
            None => drop_from(&mut entry.node, &key, report),
        }
        warning.is_none()
    });
}

/// Removes these keys from the supervision sections of a file that is read without positions. Returns a warning for each.
pub fn drop_from_sections(sections: &mut Map<String, Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    drop_below(sections, "", &mut warnings);
    warnings
}

fn drop_below(section: &mut Map<String, Value>, path: &str, warnings: &mut Vec<String>) {
    section.retain(|name, value| {
        let key = join(path, name);
        let warning = warning(&key);
        if let (None, Value::Object(keys)) = (&warning, value) {
            drop_below(keys, &key, warnings);
        }
        let stays = warning.is_none();
        warnings.extend(warning);
        stays
    });
}
