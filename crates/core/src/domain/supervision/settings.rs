//! Settings of control, oversight and strategy, merged from the configuration files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::model::settings::{KeyProblem, Settings, did_you_mean, shortened};
use crate::domain::supervision::control::ControlSettings;
use crate::domain::supervision::oversight::OversightSettings;
use crate::domain::supervision::strategy::StrategySettings;

/// Settings of control, oversight and strategy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SupervisionSettings {
    /// Settings of the controller.
    pub control: ControlSettings,
    /// Settings of the overseer.
    pub oversight: OversightSettings,
    /// Settings of the strategy.
    pub strategy: StrategySettings,
}

/// Key of the preset, beside the keys of the three sections.
pub const PRESET: &str = "preset";

/// Set of default values for control, oversight and strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SupervisionPreset {
    /// The best known values. They may change with a new version.
    #[default]
    Default,
    /// Values that never change between versions. The old name of this preset is `seed`.
    #[serde(alias = "seed")]
    Pinned,
}

/// All values of [`SupervisionPreset::Pinned`]. A file stores them, so that changed defaults do not affect them.
const PINNED: &str = include_str!("pinned.json");

/// Renamed keys: group, section, old name, new name. The old names are accepted until version 1.0.
pub const RENAMED_KEYS: [(&str, &str, &str, &str); 5] = [
    ("oversight", "stuck", "alarm_beside", "alarm_signals"),
    ("strategy", "outlook", "task_worth", "task_value"),
    ("strategy", "outlook", "guided", "guided_iterations"),
    ("strategy", "outlook", "learnt_after", "learned_after_iterations"),
    ("strategy", "outlook", "learnt_within", "trial_iterations"),
];

/// Renames the old keys of a group. If both names are set, keeps the new name's value. Removes gain profiles that loops of
/// earlier versions stored and that no longer exist.
fn rename_keys(group: &str, layer: &mut Map<String, Value>) {
    if group == ControlSettings::GROUP {
        layer.remove("profiles");
    }
    for (_, section, old, new) in RENAMED_KEYS.into_iter().filter(|row| row.0 == group) {
        let Some(keys) = layer.get_mut(section).and_then(Value::as_object_mut) else { continue };
        if let Some(value) = keys.remove(old) {
            keys.entry(new).or_insert(value);
        }
    }
}

impl SupervisionPreset {
    /// Returns the preset with this name; `None` if unknown.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "default" => Some(Self::Default),
            "pinned" | "seed" => Some(Self::Pinned),
            _ => None,
        }
    }
}

impl SupervisionSettings {
    /// Returns the settings of a preset.
    pub fn of(preset: SupervisionPreset) -> Self {
        match preset {
            SupervisionPreset::Default => Self::default(),
            // A test verifies that the file is readable.
            SupervisionPreset::Pinned => serde_json::from_str(PINNED).unwrap_or_default(),
        }
    }

    /// Starts with the preset named in `overlay`, and overrides it with the keys `control`, `oversight` and `strategy` of
    /// `overlay`. Ignores other keys.
    ///
    /// # Errors
    /// All invalid keys.
    pub fn layered(overlay: &Map<String, Value>) -> Result<Self, Vec<KeyProblem>> {
        let mut problems = Vec::new();
        let settings = Self::laid(overlay, &mut problems);
        if problems.is_empty() { Ok(settings) } else { Err(problems) }
    }

    /// Like [`Self::layered`], but tolerates errors: an invalid section keeps the preset's values, and an unknown preset is
    /// replaced with the default one.
    pub fn tolerant(overlay: &Map<String, Value>) -> Self {
        Self::laid(overlay, &mut Vec::new())
    }

    fn laid(overlay: &Map<String, Value>, problems: &mut Vec<KeyProblem>) -> Self {
        let mut settings = Self::of(preset(overlay, problems));
        lay(&mut settings.control, overlay, problems);
        lay(&mut settings.oversight, overlay, problems);
        lay(&mut settings.strategy, overlay, problems);
        settings.keep_stated_counts(overlay);
        settings
    }

    /// Disables scaling for iteration counts that the file sets explicitly. Only a preset's counts are scaled to the loop's
    /// limit.
    fn keep_stated_counts(&mut self, overlay: &Map<String, Value>) {
        let states = |group: &str, path: &str| overlay.get(group).is_some_and(|group| group.pointer(path).is_some());
        let alone = |group: &str, count: &str, share: &str| states(group, count) && !states(group, share);
        if alone("oversight", "/stuck/critical_error_count", "/stuck/limit_share") {
            self.oversight.stuck.limit_share = 0.0;
        }
        if alone("strategy", "/escalation_threshold", "/limit_share") {
            self.strategy.limit_share = 0.0;
        }
    }
}

fn preset(overlay: &Map<String, Value>, problems: &mut Vec<KeyProblem>) -> SupervisionPreset {
    let Some(named) = overlay.get(PRESET) else { return SupervisionPreset::default() };
    let name = named.as_str().unwrap_or_default();
    SupervisionPreset::parse(name).unwrap_or_else(|| {
        let near = did_you_mean(name, ["default", "pinned"]);
        let message =
            format!("`{PRESET}` is {}; `default` or `pinned` is allowed{near}", shortened(&named.to_string()));
        problems.push(KeyProblem { key: PRESET.to_owned(), order: None, message });
        SupervisionPreset::default()
    })
}

fn lay<S: Settings>(settings: &mut S, overlay: &Map<String, Value>, problems: &mut Vec<KeyProblem>) {
    let layer = overlay.get(S::GROUP).cloned().map(|mut layer| {
        if let Some(keys) = layer.as_object_mut() {
            rename_keys(S::GROUP, keys);
        }
        layer
    });
    match layer.map(|layer| settings.merged(&layer)) {
        Some(Ok(merged)) => *settings = merged,
        Some(Err(wrong)) => problems.extend(wrong),
        None => {}
    }
}

/// Returns the keys that only the operator's file may set: all switches of oversight, and whether control advises and acts
/// by itself. A repository's maintainers therefore cannot disable the supervision of its loops.
pub fn operators_alone() -> Vec<String> {
    let mut keys = vec!["control.auto_intervene".to_owned(), "control.enabled".to_owned()];
    let oversight = serde_json::to_value(OversightSettings::default()).unwrap_or_default();
    switches(&oversight, OversightSettings::GROUP, &mut keys);
    keys
}

fn switches(value: &Value, path: &str, keys: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        if value.is_boolean() {
            keys.push(path);
        } else {
            switches(value, &path, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::settings::{lines, overlay};
    use crate::domain::supervision::oversight::DetectionKind;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn pinned_preset_sets_every_value() {
        let written: Value = serde_json::from_str(PINNED).unwrap();
        let pinned = SupervisionSettings::of(SupervisionPreset::Pinned);
        let mut made = serde_json::to_value(&pinned).unwrap();
        for kind in DetectionKind::ALL {
            // Later detections are only observed, so their defaults make no difference.
            if written["oversight"].get(kind.name()).is_none() {
                assert!(pinned.oversight.switches(*kind).1, "pinned.json has no `{kind}`, which is not only observed");
                made["oversight"].as_object_mut().unwrap().remove(kind.name());
            }
        }
        assert_eq!(made, written, "pinned.json has every other key, as it is written");
        assert_eq!(
            (pinned.control.validate(), pinned.oversight.validate(), pinned.strategy.validate()),
            (vec![], vec![], vec![])
        );
    }

    #[test]
    fn layers_override_the_named_preset() {
        assert_eq!(SupervisionSettings::layered(&Map::new()), Ok(SupervisionSettings::default()));
        let mut both = map(json!({
            "control": { "window": 7, "schedule": { "stuck": "aggressive" }, "profiles": { "mine": { "kp": 1 } } },
            "oversight": { "stuck": { "enabled": false } },
        }));
        overlay(
            &mut both,
            &map(json!({
                "preset": "pinned",
                "control": { "stuck_iterations": 6, "schedule": { "early": "standard" } },
                "oversight": { "stuck": { "same_error_count": 4 } },
                "strategy": { "early": 0.1 },
            })),
        );
        let settings = SupervisionSettings::layered(&both).unwrap();
        let mut expected = SupervisionSettings::of(SupervisionPreset::Pinned);
        (expected.control.window, expected.control.stuck_iterations) = (7, 6);
        expected.control.schedule.stuck = "aggressive".to_owned();
        expected.control.schedule.early = "standard".to_owned();
        (expected.oversight.stuck.enabled, expected.oversight.stuck.same_error_count) = (false, 4);
        expected.strategy.early = 0.1;
        assert_eq!(settings, expected);
        assert_eq!(SupervisionSettings::tolerant(&both), expected);
    }

    #[test]
    fn old_names_of_keys_and_of_the_preset_are_read() {
        let old = map(json!({
            "preset": "seed",
            "oversight": { "stuck": { "alarm_beside": 1 } },
            "strategy": { "outlook": {
                "task_worth": 10.0, "guided": 5, "learnt_after": 6, "learnt_within": 7, "trial_iterations": 8,
            } },
        }));
        let settings = SupervisionSettings::layered(&old).unwrap();
        let mut expected = SupervisionSettings::of(SupervisionPreset::Pinned);
        expected.oversight.stuck.alarm_signals = 1;
        let outlook = &mut expected.strategy.outlook;
        (outlook.task_value, outlook.guided_iterations, outlook.learned_after_iterations) = (10.0, 5, 6);
        outlook.trial_iterations = 8;
        assert_eq!(settings, expected, "the new name counts where both are set");
        assert_eq!(serde_json::from_value::<SupervisionPreset>("seed".into()).unwrap(), SupervisionPreset::Pinned);
        assert_eq!(json!(SupervisionPreset::Pinned), "pinned");
    }

    #[test]
    fn problems_of_all_sections_are_reported_together() {
        let wrong = map(json!({
            "preset": "pined",
            "control": { "windw": 7 },
            "oversight": { "no_change": { "iterations": 5 } },
            "strategy": { "early": 0.9, "patience": 9 },
            "others": 1,
        }));
        insta::assert_snapshot!(lines(&SupervisionSettings::layered(&wrong).unwrap_err()), @r#"
        `preset` is "pined"; `default` or `pinned` is allowed; did you mean `pinned`?
        `control.windw` is 7; there is no such key
        `oversight.no_change.iterations` is 5; it must be at most `oversight.no_change.high_iterations`, which is 3
        `strategy.early` is 0.9; it must be below `strategy.late`, which is 0.8
        "#);
    }

    #[test]
    fn invalid_stored_section_falls_back_to_preset() {
        let old = map(json!({
            "preset": "gone",
            "control": { "window": 9 },
            "oversight": { "was_there_once": true, "climb_after": 4 },
            "strategy": "none",
        }));
        let settings = SupervisionSettings::tolerant(&old);
        assert_eq!(settings.control.window, 9);
        assert_eq!((settings.oversight, settings.strategy), Default::default());
        let contradictory = map(json!({ "control": { "window": 2 }, "strategy": { "late": 0.7 } }));
        let settings = SupervisionSettings::tolerant(&contradictory);
        assert_eq!((settings.control, settings.strategy.late), (ControlSettings::default(), 0.7));
    }

    #[test]
    fn stated_counts_of_iterations_do_not_follow_the_limit() {
        let shares = |overlay: Value| {
            let settings = SupervisionSettings::layered(&map(overlay)).expect("valid");
            (settings.oversight.stuck.limit_share, settings.strategy.limit_share)
        };
        assert_eq!(shares(json!({})), (0.7, 0.7));
        assert_eq!(shares(json!({ "oversight": { "stuck": { "critical_error_count": 9 } } })), (0.0, 0.7));
        assert_eq!(shares(json!({ "strategy": { "escalation_threshold": 20 } })), (0.7, 0.0));
        assert_eq!(shares(json!({ "strategy": { "escalation_threshold": 20, "limit_share": 0.5 } })), (0.7, 0.5));
        assert_eq!(shares(json!({ "preset": "pinned" })), (0.0, 0.0));
    }

    #[test]
    fn oversight_switches_are_operator_only() {
        // A repository can name a preset, so presets must not change any switch.
        let [default, pinned] = [SupervisionPreset::Default, SupervisionPreset::Pinned]
            .map(|preset| serde_json::to_value(SupervisionSettings::of(preset)).unwrap());
        for key in operators_alone() {
            let pointer = format!("/{}", key.replace('.', "/"));
            assert_eq!(default.pointer(&pointer).unwrap(), pinned.pointer(&pointer).unwrap(), "{key}");
        }
        insta::assert_snapshot!(operators_alone().join("\n"), @r"
        control.auto_intervene
        control.enabled
        oversight.enabled
        oversight.pause_on_critical
        oversight.auto_escalate
        oversight.strict_regression
        oversight.test_tampering.enabled
        oversight.test_tampering.observe
        oversight.regression.enabled
        oversight.regression.observe
        oversight.regression.test_pass_to_fail
        oversight.agent_failure.enabled
        oversight.agent_failure.observe
        oversight.no_change.enabled
        oversight.no_change.observe
        oversight.oscillation.enabled
        oversight.oscillation.observe
        oversight.stuck.enabled
        oversight.stuck.observe
        oversight.resource_burn.enabled
        oversight.resource_burn.observe
        oversight.token_growth.enabled
        oversight.token_growth.observe
        oversight.deviation.enabled
        oversight.deviation.observe
        ");
    }
}
