//! Tests of settings: defaults, deep merging, and errors that name the key, its value and the allowed values.

use super::*;
use crate::domain::model::settings::{Settings, lines, without_range};
use serde_json::json;

#[test]
fn defaults_are_valid_and_survive_serialization() {
    let settings = OversightSettings::default();
    assert_eq!(settings.validate(), []);
    assert_eq!(without_range::<OversightSettings>(), [""; 0], "every number has a range");
    let text = serde_json::to_string(&settings).expect("settings are JSON");
    assert_eq!(serde_json::from_str::<OversightSettings>(&text).expect("the same"), settings);
    assert_eq!(serde_json::from_str::<OversightSettings>("{}").expect("defaults"), settings);
    assert!(serde_json::from_str::<OversightSettings>(r#"{"stuck": {"windows": 3}}"#).is_err());
}

#[test]
fn setting_one_value_does_not_change_others() {
    let file: OversightSettings = serde_json::from_value(json!({"stuck": {"same_error_count": 2}})).expect("valid");
    assert_eq!((file.stuck.same_error_count, file.stuck.window), (2, OversightSettings::default().stuck.window));
    let merged =
        file.merged(&json!({"stuck": {"no_progress_iterations": 8}, "min_progress": 0, "auto_escalate": false}));
    let merged = merged.expect("valid");
    assert_eq!((merged.stuck.same_error_count, merged.stuck.no_progress_iterations), (2, 8));
    assert_eq!((merged.min_progress, merged.auto_escalate, merged.regression), (0.0, false, file.regression));
}

#[test]
fn every_detection_has_its_switches() {
    for kind in DetectionKind::ALL.iter().copied() {
        let disabled = OversightSettings::default().merged(&json!({kind.name(): {"enabled": false, "observe": true}}));
        assert_eq!(disabled.expect("valid").switches(kind), (false, true), "{kind}");
        let observed = kind == DetectionKind::TokenGrowth;
        assert_eq!(OversightSettings::default().switches(kind), (true, observed), "{kind}");
    }
}

#[test]
fn setting_errors_name_the_allowed_values() {
    let faults = |over: serde_json::Value| match pinned_settings().merged(&over) {
        Ok(_) => String::new(),
        Err(problems) => lines(&problems),
    };
    let types = json!({"stuck": {"windw": 3, "window": 2.5, "observe": 1}, "regression": 7, "min_progress": "a", "climb_after": -1});
    insta::assert_snapshot!(faults(types), @r#"
    `oversight.stuck.windw` is 3; there is no such key
    `oversight.stuck.window` is 2.5; expected a non-negative whole number
    `oversight.stuck.observe` is 1; expected true or false
    `oversight.regression` is 7; expected a section
    `oversight.min_progress` is "a"; expected a number
    `oversight.climb_after` is -1; expected a non-negative whole number
    "#);
    let values = json!({"stuck": {"same_error_count": 1, "window": 4}, "deviation": {"objective_similarity": 1.5},
        "resource_burn": {"iteration_multiplier": 3}});
    insta::assert_snapshot!(faults(values), @r"
    `oversight.stuck.same_error_count` is 1; it must be between 2 and 100
    `oversight.deviation.objective_similarity` is 1.5; it must be between 0 and 1
    `oversight.stuck.critical_error_count` is 5; it must be at most `oversight.stuck.window`, which is 4
    `oversight.resource_burn.iteration_multiplier` is 3; it must be at most `oversight.resource_burn.critical_multiplier`, which is 2.5
    ");
    assert_eq!(faults(json!({"climb_after": 5_000_000_000_u64})).lines().count(), 1);
}

#[test]
fn tighter_thresholds_detect_earlier() {
    let mut it = ReviewedLoop::default();
    it.settings = it.settings.merged(&json!({"stuck": {"same_error_count": 2}})).expect("valid");
    let error = |_: usize, r: &mut Record| r.error_signature = Some("boom".to_owned());
    assert!(signals(&it.run(&flat(3, error)), DetectionKind::Stuck).contains(&"same_error"));
    let mut it = ReviewedLoop::default();
    let overlay = json!({"stuck": {"same_error_count": 5, "no_progress_iterations": 8}});
    it.settings = it.settings.merged(&overlay).expect("valid");
    assert!(signals(&it.run(&flat(4, error)), DetectionKind::Stuck).is_empty());
    it.settings.regression.coverage_drop_percent = 1.0;
    let bleed = trace(&[0.3, 0.4], |at, r| r.coverage = Some([80.0, 78.5][at]));
    assert_eq!(signals(&it.run(&bleed), DetectionKind::Regression), ["coverage"]);
}
