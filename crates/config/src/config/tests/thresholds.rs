//! Thresholds of control, oversight and strategy in both files.

use super::*;
use serde_json::json;

/// Returns the policy of an operator's file that contains `text`.
fn operator(text: &str) -> Policy {
    parse(&format!("{SMALL}{text}")).expect("valid").policy(&ForgeName::new("work"))
}

fn over(operator: &Policy, text: &str) -> String {
    let problems = parse_repository(".ralph.yml", text, operator).expect_err("a file with mistakes");
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn policy_keeps_only_keys_that_the_files_set() {
    let operator = operator(
        "preset: pinned\ncontrol: { window: 7, decay: , profiles: { standard: { kp: 0.6 } } }\noversight: { stuck: { enabled: false } }\nstrategy: {}\n",
    );
    let file = "preset: default\ncontrol: { profiles: { standard: { ki: 0.2 } } }\noversight: { stuck: { same_error_count: 4 } }\n";
    let settings = parse_repository(".ralph.yml", file, &operator).expect("valid");
    let policy = operator.with_repository(&settings);
    assert_eq!(
        json!(policy.thresholds),
        json!({
            "preset": "default",
            "control": { "window": 7, "profiles": { "standard": { "kp": 0.6, "ki": 0.2 } } },
            "oversight": { "stuck": { "enabled": false, "same_error_count": 4 } },
        })
    );
    let supervision = policy.supervision();
    assert_eq!((supervision.control.window, supervision.oversight.stuck.same_error_count), (7, 4));
    assert_eq!(operator.thresholds["preset"], "pinned");
}

#[test]
fn invalid_thresholds_of_the_operator_report_their_position() {
    insta::assert_snapshot!(problems(&format!(
        "{SMALL}preset: pined\ncontrol:\n  windw: 7\n  window: 1\n  decay: slow\n  base_profile: agressive\n  profiles: {{ mine: {{ kpp: 1 }} }}\n\
         oversight:\n  stuk: {{}}\n  stuck: {{ enabled: 1, window: 4, same_error_count: 2.5 }}\n  climb_after: 0\n\
         strategy: {{ early: 0.9, patience: 13, tool_error: 1 }}\n"
    )), @r"
    conf/ralph-control.yaml:4:9: `preset`: unknown value `pined`; allowed: `default`, `pinned`; did you mean `pinned`?
    conf/ralph-control.yaml:6:3: unknown key `windw` in `control`; did you mean `window`?
    conf/ralph-control.yaml:7:11: `control.window` is 1; it must be between 2 and 100
    conf/ralph-control.yaml:7:11: `control.stuck_iterations` is 3; it must be at most `control.window`, which is 1
    conf/ralph-control.yaml:7:11: `control.oscillation_count` is 2; it must be below `control.window`, which is 1
    conf/ralph-control.yaml:8:10: `control.decay`: expected a number, found text
    conf/ralph-control.yaml:9:17: `control.base_profile` is `agressive`; there is no such profile; did you mean `aggressive`?
    conf/ralph-control.yaml:10:21: `control.profiles.mine.ki` is missing; a custom profile needs kp, ki and kd
    conf/ralph-control.yaml:10:21: `control.profiles.mine.kd` is missing; a custom profile needs kp, ki and kd
    conf/ralph-control.yaml:10:23: unknown key `kpp` in `control.profiles.mine`; did you mean `kp`?
    conf/ralph-control.yaml:12:3: unknown key `stuk` in `oversight`; did you mean `stuck`?
    conf/ralph-control.yaml:13:21: `oversight.stuck.enabled`: expected true or false, found a number
    conf/ralph-control.yaml:13:32: `oversight.stuck.critical_error_count` is 10; it must be at most `oversight.stuck.window`, which is 4
    conf/ralph-control.yaml:13:53: `oversight.stuck.same_error_count`: expected a whole number, found a fraction
    conf/ralph-control.yaml:14:16: `oversight.climb_after` is 0; it must be between 1 and 100
    conf/ralph-control.yaml:15:20: `strategy.early` is 0.9; it must be below `strategy.late`, which is 0.8
    conf/ralph-control.yaml:15:35: `strategy.patience` is 13; it must be at most `strategy.escalation_threshold`, which is 12
    conf/ralph-control.yaml:15:39: unknown key `tool_error` in `strategy`; did you mean `tool_errors`?
    18 errors in the configuration; nothing was started
    ");
}

#[test]
fn contradictions_of_invalid_values_are_not_reported() {
    insta::assert_snapshot!(problems(&format!("{SMALL}control: {{ window: ten, stuck_iterations: 9 }}\n")), @r"
    conf/ralph-control.yaml:4:20: `control.window`: expected a whole number, found text
    1 error in the configuration; nothing was started
    ");
    insta::assert_snapshot!(problems(&format!("{SMALL}control: 5\noversight: []\nstrategy: x\n")), @r"
    conf/ralph-control.yaml:4:10: `control`: expected a map, found a number
    conf/ralph-control.yaml:5:12: `oversight`: expected a map, found a list
    conf/ralph-control.yaml:6:11: `strategy`: expected a map, found text
    3 errors in the configuration; nothing was started
    ");
}

#[test]
fn contradiction_of_a_default_is_reported_at_the_set_key() {
    insta::assert_snapshot!(problems(&format!("{SMALL}control:\n  window: 2\n")), @r"
    conf/ralph-control.yaml:5:11: `control.stuck_iterations` is 3; it must be at most `control.window`, which is 2
    conf/ralph-control.yaml:5:11: `control.oscillation_count` is 2; it must be below `control.window`, which is 2
    2 errors in the configuration; nothing was started
    ");
}

#[test]
fn invalid_variables_are_reported_by_name() {
    let wrong = with_env(
        SMALL,
        &[
            ("RALPH_CONTROL__WINDOW", "1000"),
            ("RALPH_OVERSIGHT__STUK__WINDOW", "5"),
            ("RALPH_STRATEGY__LATE", "soon"),
            ("RALPH_PRESET", "pinnned"),
        ],
    );
    insta::assert_snapshot!(wrong.expect_err("mistakes"), @r"
    environment variable RALPH_CONTROL__WINDOW: `control.window` is 1000; it must be between 2 and 100
    environment variable RALPH_OVERSIGHT__STUK__WINDOW: unknown key `stuk` in `oversight`; did you mean `stuck`?
    environment variable RALPH_PRESET: `preset`: unknown value `pinnned`; allowed: `default`, `pinned`; did you mean `pinned`?
    environment variable RALPH_STRATEGY__LATE: `strategy.late`: expected a number, found text
    4 errors in the configuration; nothing was started
    ");
}

#[test]
fn invalid_thresholds_of_a_repository_report_their_position() {
    let plain = Policy::default();
    insta::assert_snapshot!(over(&plain, "thresholds: {}\ncontrol:\n  window: 1\noversight:\n  stuck: { windw: 1 }\nstrategy: { late: 0.1 }\n"), @r"
    .ralph.yml:1:1: unknown key `thresholds`
    .ralph.yml:3:11: `control.window` is 1; it must be between 2 and 100
    .ralph.yml:3:11: `control.stuck_iterations` is 3; it must be at most `control.window`, which is 1
    .ralph.yml:3:11: `control.oscillation_count` is 2; it must be below `control.window`, which is 1
    .ralph.yml:5:12: unknown key `windw` in `oversight.stuck`; did you mean `window`?
    .ralph.yml:6:19: `strategy.early` is 0.2; it must be below `strategy.late`, which is 0.1
    ");
    let wide = operator("control: { window: 10 }\n");
    assert!(parse_repository("x", "control: { stuck_iterations: 9 }", &wide).is_ok());
    insta::assert_snapshot!(over(&plain, "control: { stuck_iterations: 9 }\n"), @r".ralph.yml:1:30: `control.stuck_iterations` is 9; it must be at most `control.window`, which is 5");
    let late = operator("control: { stuck_iterations: 5 }\n");
    insta::assert_snapshot!(over(&late, "control:\n  window: 4\n"), @r".ralph.yml:2:11: `control.stuck_iterations` is 5; it must be at most `control.window`, which is 4");
}

#[test]
fn repository_cannot_switch_off_oversight() {
    insta::assert_snapshot!(over(&Policy::default(), "\
control:
  auto_intervene: false
  actuators: { tone: { enabled: false } }
oversight:
  auto_escalate: false
  strict_regression: true
  stuck: { enabled: true, observe: false, window: 12 }
  test_tampering: { enabled: false }
"), @r"
    .ralph.yml:2:19: `control.auto_intervene`: only the operator's file can set this key
    .ralph.yml:5:18: `oversight.auto_escalate`: only the operator's file can set this key
    .ralph.yml:6:22: `oversight.strict_regression`: only the operator's file can set this key
    .ralph.yml:7:21: `oversight.stuck.enabled`: only the operator's file can set this key
    .ralph.yml:7:36: `oversight.stuck.observe`: only the operator's file can set this key
    .ralph.yml:8:30: `oversight.test_tampering.enabled`: only the operator's file can set this key
    ");
    let validator = jsonschema::validator_for(&schema::repository()).expect("a JSON Schema");
    for (file, valid) in [
        (
            json!({ "oversight": { "stuck": { "window": 6 } }, "control": { "actuators": { "tone": { "enabled": false } } } }),
            true,
        ),
        (json!({ "oversight": { "stuck": { "enabled": true } } }), false),
        (json!({ "oversight": { "auto_escalate": true } }), false),
        (json!({ "control": { "auto_intervene": true } }), false),
        (json!({ "oversight": { "stuck": { "window": 1 } } }), false),
        (json!({ "strategy": { "late": 1.5 } }), false),
    ] {
        assert_eq!(validator.is_valid(&file), valid, "{file}");
    }
}

/// Keys and settings that the page on supervision names.
#[test]
fn settings_of_the_supervision_page_exist_and_load() {
    let page = include_str!("../../../../../docs/guides/supervision.md");
    let reference = concat!(
        include_str!("../../../../../docs/reference/configuration.md"),
        include_str!("../../../../../docs/reference/thresholds.md")
    );
    let sections = ["control", "oversight", "strategy", "escalation", "limits", "protected", "tampering"];
    let quoted = page.split('`').skip(1).step_by(2);
    let (mut keys, mut settings) = (0, 0);
    for text in quoted {
        let (key, value) = text.split_once(": ").map_or((text, None), |(key, value)| (key, Some(value)));
        let mut names = key.split('.');
        let is_key = names.next().is_some_and(|name| sections.contains(&name)) && key.contains('.');
        if !is_key || key.contains(char::is_whitespace) {
            continue;
        }
        keys += 1;
        let last = names.next_back().expect("a key");
        assert!(reference.contains(&format!("`{last}`")), "docs/guides/supervision.md names `{key}`, which is no key");
        if let Some(value) = value {
            settings += 1;
            let nested = key.split('.').rev().fold(value.to_owned(), |inner, name| format!("{{ {name}: {inner} }}"));
            let file = nested.strip_prefix("{ ").and_then(|file| file.strip_suffix(" }")).expect("a map");
            let read = parse(&format!("{SMALL}{file}\n"));
            assert!(read.is_ok(), "docs/guides/supervision.md: `{text}`: {:?}", read.err());
        }
    }
    assert!(keys > 25 && settings >= 8, "{keys} keys, {settings} settings");
}

#[test]
fn old_names_of_thresholds_are_read_with_a_warning() {
    let text = format!(
        "{SMALL}preset: seed\noversight: {{ stuck: {{ alarm_beside: 1 }} }}\nstrategy:\n  outlook:\n    learnt_after: 6\n"
    );
    let config = parse(&text).expect("valid");
    let supervision = config.policy(&ForgeName::new("work")).supervision();
    assert_eq!(supervision.oversight.stuck.alarm_signals, 1);
    assert_eq!(supervision.strategy.outlook.learned_after_iterations, 6);
    assert_eq!(supervision.strategy.outlook.guided_iterations, 0, "the preset `pinned`");
    let warnings = config.warnings.iter().map(ToString::to_string).filter(|text| text.contains("is now called"));
    insta::assert_snapshot!(warnings.collect::<Vec<_>>().join("\n"), @r"
    conf/ralph-control.yaml:4:9: `seed` is now called `pinned`; rename it, the old name is read until version 1.0
    conf/ralph-control.yaml:5:23: `oversight.stuck.alarm_beside` is now called `oversight.stuck.alarm_signals`; rename it, the old name is read until version 1.0
    conf/ralph-control.yaml:8:5: `strategy.outlook.learnt_after` is now called `strategy.outlook.learned_after_iterations`; rename it, the old name is read until version 1.0
    ");
    let repository =
        parse_repository(".ralph.yml", "strategy: { outlook: { guided: 9 } }\n", &operator("")).expect("valid");
    assert_eq!(operator("").with_repository(&repository).supervision().strategy.outlook.guided_iterations, 9);
}
