//! Settings as written in configuration files, and the messages for invalid ones.

use super::*;
use crate::domain::model::quantity::{Duration, Usd};
use crate::domain::model::settings::lines;

#[test]
fn settings_survive_a_round_trip() {
    let text = r#"{
        "backends": {
            "claude": { "roles": ["agent", "assistant"], "thresholds": {
                "max_requests_per_window": 50, "window": "5h", "max_cost_per_hour": 5.00, "max_context_pct": 80 } },
            "kimi": { "enabled": false, "thresholds": { "window": 90, "max_cost_per_day": 2.5 } }
        },
        "priority": { "agent": ["kimi", "claude"] },
        "rotation": { "mode": "time_sliced", "interval": "1h30m", "order": ["claude"] },
        "cooldown": { "longest": "7d" }
    }"#;
    let settings: BackendsSettings = serde_json::from_str(text).unwrap();
    let claude = &settings.backends["claude"].thresholds;
    assert_eq!((claude.window, claude.max_cost_per_hour), (Duration::hours(5), Some(Usd::dollars(5))));
    assert_eq!((claude.max_context_pct, claude.max_consecutive_errors), (80, 3));
    assert_eq!(settings.backends["kimi"].thresholds.window, Duration::seconds(90));
    assert_eq!((settings.rotation.mode, settings.rotation.interval), (RotationMode::TimeSliced, Duration::minutes(90)));
    assert_eq!(settings.validate(), []);
    let written = serde_json::to_string(&settings).unwrap();
    assert!(written.contains(r#""interval":"1h30m""#) && written.contains(r#""max_cost_per_day":2.5"#), "{written}");
    assert_eq!(serde_json::from_str::<BackendsSettings>(&written).unwrap(), settings);
    assert_eq!(BackendsSettings::default().validate(), []);
}

#[test]
fn unreadable_settings_state_expected_form() {
    let cases = [
        (r#"{"rotation":{"mode":"robin"}}"#, "unknown variant `robin`"),
        (r#"{"rotation":{"interval":"1w"}}"#, "a duration such as 90s, 30m, 2h or 1h30m, at most a year"),
        (r#"{"rotation":{"interval":-5}}"#, "a duration such as"),
        (r#"{"backends":{"a":{"thresholds":{"max_cost_per_hour":[]}}}}"#, "an amount in US dollars such as"),
        (r#"{"backends":{"a":{"thresholds":{"max_cost_per_hour":-1}}}}"#, "from 0 to 1000000"),
        (r#"{"backends":{"a":{"thresholds":{"max_cost":1}}}}"#, "unknown field `max_cost`"),
        (r#"{"backends":{"a":{"roles":["boss"]}}}"#, "unknown variant `boss`"),
    ];
    for (text, words) in cases {
        let error = serde_json::from_str::<BackendsSettings>(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn invalid_settings_are_reported_with_key() {
    let text = r#"{
        "backends": {
            "claude": { "roles": [], "thresholds": { "max_requests_per_window": 0, "window": "2d", "max_cost_per_hour": 0,
                "max_context_pct": 0, "max_consecutive_errors": 0 } },
            "kimi": { "thresholds": { "max_cost_per_hour": 5, "max_cost_per_day": 4 } }
        },
        "priority": { "agent": ["kimmi", "kimi", "kimi", "claude"] },
        "rotation": { "interval": 5, "order": ["codex"] },
        "cooldown": { "backoff_first": "2h", "longest": "50d" }
    }"#;
    let settings: BackendsSettings = serde_json::from_str(text).unwrap();
    insta::assert_snapshot!(lines(&settings.validate()), @r"
    `backends.claude.thresholds.max_requests_per_window` is 0; it must be between 1 and 1000000
    `backends.claude.thresholds.window` is 2d; it must be between 1s and 1d
    `backends.claude.thresholds.max_cost_per_hour` is $0.00; it must be between $0.01 and $1000000.00
    `backends.claude.thresholds.max_context_pct` is 0; it must be between 1 and 100
    `backends.claude.thresholds.max_consecutive_errors` is 0; it must be between 1 and 1000
    `rotation.interval` is 5s; it must be between 1m and 31d
    `cooldown.longest` is 50d; it must be between 1h and 40d
    `backends.kimi.thresholds.max_cost_per_hour` is $5.00; it must be at most `backends.kimi.thresholds.max_cost_per_day`, which is $4.00
    `cooldown.backoff_first` is 2h; it must be at most `cooldown.backoff_max`, which is 1h
    `backends.claude.roles` is empty; list `agent`, `assistant`, `reviewer` or several of them
    `priority.agent[0]` is `kimmi`; there is no such backend; did you mean `kimi`?
    `priority.agent[2]` is `kimi`, which is already listed
    `priority.agent[3]` is `claude`, which does not have this role
    `rotation.order[0]` is `codex`; there is no such backend
    ");
}

#[test]
fn schema_describes_every_key_and_range() {
    fn keys(schema: &serde_json::Value, path: &str, missing: &mut Vec<String>) {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            if property["description"].as_str().is_none_or(str::is_empty) {
                missing.push(format!("{path}{key}"));
            }
        }
        for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
            keys(definition, &format!("{name}."), missing);
        }
    }
    let schema = serde_json::to_value(schemars::schema_for!(BackendsSettings)).unwrap();
    let mut missing = Vec::new();
    keys(&schema, "", &mut missing);
    assert_eq!(missing, Vec::<String>::new());
    let thresholds = &schema["$defs"]["BackendThresholds"]["properties"];
    assert_eq!(thresholds["window"]["format"], "duration-text");
    assert_eq!(thresholds["max_cost_per_hour"]["format"], "us-dollars");
}
