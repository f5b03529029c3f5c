//! Tests of control, oversight and strategy thresholds in both files.

use super::*;
use serde_json::json;

/// Returns the policy from an operator's file that contains `text`.
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
        "preset: pinned\ncontrol: { stuck_iterations: 4, max_iterations_percent: , actuators: { tone: { enabled: true } } }\noversight: { stuck: { enabled: false } }\nstrategy: {}\n",
    );
    let file = "preset: default\ncontrol: { actuators: { effort: { enabled: true } } }\noversight: { stuck: { no_progress_iterations: 4 } }\n";
    let settings = parse_repository(".ralph.yml", file, &operator).expect("valid");
    let policy = operator.with_repository(&settings);
    assert_eq!(
        json!(policy.thresholds),
        json!({
            "preset": "default",
            "control": { "stuck_iterations": 4, "actuators": { "tone": { "enabled": true }, "effort": { "enabled": true } } },
            "oversight": { "stuck": { "enabled": false, "no_progress_iterations": 4 } },
        })
    );
    let supervision = policy.supervision();
    assert_eq!((supervision.control.stuck_iterations, supervision.oversight.stuck.no_progress_iterations), (4, 4));
    assert_eq!(operator.thresholds["preset"], "pinned");
}

#[test]
fn invalid_thresholds_of_the_operator_report_their_position() {
    insta::assert_snapshot!(problems(&format!(
        "{SMALL}preset: pined\ncontrol:\n  base_profle: 7\n  stuck_iterations: 9\n  max_iterations_percent: -1\n  auto_intervene: 3\n  base_profile: agressive\n\
         oversight:\n  stuk: {{}}\n  stuck: {{ enabled: 1, critical_error_count: 4, no_progress_iterations: 2.5 }}\n  redirects: 0\n\
         strategy: {{ escalation_threshold: 0, outlok: 1 }}\n"
    )), @r"
    conf/ralph-control.yaml:4:9: `preset`: unknown value `pined`; allowed: `default`, `pinned`; did you mean `pinned`?
    conf/ralph-control.yaml:6:3: unknown key `base_profle` in `control`; did you mean `base_profile`?
    conf/ralph-control.yaml:7:21: `control.stuck_iterations` is 9; it must be at most 5
    conf/ralph-control.yaml:8:27: `control.max_iterations_percent` is -1; it must be between 0 and 1
    conf/ralph-control.yaml:9:19: `control.auto_intervene`: expected true or false, found a number
    conf/ralph-control.yaml:10:17: `control.base_profile` is `agressive`; there is no such profile; did you mean `aggressive`?
    conf/ralph-control.yaml:12:3: unknown key `stuk` in `oversight`; did you mean `stuck`?
    conf/ralph-control.yaml:13:21: `oversight.stuck.enabled`: expected true or false, found a number
    conf/ralph-control.yaml:13:46: `oversight.stuck.critical_error_count` is 4; it must be at least 5
    conf/ralph-control.yaml:13:73: `oversight.stuck.no_progress_iterations`: expected a whole number, found a fraction
    conf/ralph-control.yaml:14:14: `oversight.redirects` is 0; it must be between 1 and 100
    conf/ralph-control.yaml:15:35: `strategy.escalation_threshold` is 0; it must be between 1 and 100
    conf/ralph-control.yaml:15:35: `strategy.escalation_threshold` is 0; it must be at least 2
    conf/ralph-control.yaml:15:38: unknown key `outlok` in `strategy`; did you mean `outlook`?
    14 errors in the configuration; the command did not run
    ");
}

#[test]
fn contradictions_of_invalid_values_are_not_reported() {
    insta::assert_snapshot!(problems(&format!("{SMALL}control: {{ max_iterations_percent: ten }}\n")), @r"
    conf/ralph-control.yaml:4:36: `control.max_iterations_percent`: expected a number, found text
    1 error in the configuration; the command did not run
    ");
    insta::assert_snapshot!(problems(&format!("{SMALL}control: 5\noversight: []\nstrategy: x\n")), @r"
    conf/ralph-control.yaml:4:10: `control`: expected a map, found a number
    conf/ralph-control.yaml:5:12: `oversight`: expected a map, found a list
    conf/ralph-control.yaml:6:11: `strategy`: expected a map, found text
    3 errors in the configuration; the command did not run
    ");
}

#[test]
fn contradiction_of_a_built_in_value_is_reported_at_the_set_key() {
    insta::assert_snapshot!(problems(&format!("{SMALL}strategy:\n  escalation_threshold: 1\n")), @r"
    conf/ralph-control.yaml:5:25: `strategy.escalation_threshold` is 1; it must be at least 2
    1 error in the configuration; the command did not run
    ");
}

#[test]
fn invalid_variables_are_reported_by_name() {
    let wrong = with_env(
        SMALL,
        &[
            ("RALPH_CONTROL__STUCK_ITERATIONS", "1000"),
            ("RALPH_OVERSIGHT__STUK__ENABLED", "true"),
            ("RALPH_STRATEGY__ESCALATION_THRESHOLD", "soon"),
            ("RALPH_PRESET", "pinnned"),
        ],
    );
    insta::assert_snapshot!(wrong.expect_err("mistakes"), @r"
    environment variable RALPH_CONTROL__STUCK_ITERATIONS: `control.stuck_iterations` is 1000; it must be between 1 and 100
    environment variable RALPH_CONTROL__STUCK_ITERATIONS: `control.stuck_iterations` is 1000; it must be at most 5
    environment variable RALPH_OVERSIGHT__STUK__ENABLED: unknown key `stuk` in `oversight`; did you mean `stuck`?
    environment variable RALPH_PRESET: `preset`: unknown value `pinnned`; allowed: `default`, `pinned`; did you mean `pinned`?
    environment variable RALPH_STRATEGY__ESCALATION_THRESHOLD: `strategy.escalation_threshold`: expected a whole number, found text
    5 errors in the configuration; the command did not run
    ");
}

#[test]
fn invalid_thresholds_of_a_repository_report_their_position() {
    let plain = Policy::default();
    insta::assert_snapshot!(over(&plain, "thresholds: {}\ncontrol:\n  stuck_iterations: 9\noversight:\n  stuck: { no_progres_iterations: 1 }\nstrategy: { escalation_threshold: 1 }\n"), @r"
    .ralph.yml:1:1: unknown key `thresholds`
    .ralph.yml:3:21: `control.stuck_iterations` is 9; it must be at most 5
    .ralph.yml:5:12: unknown key `no_progres_iterations` in `oversight.stuck`; did you mean `no_progress_iterations`?
    .ralph.yml:6:35: `strategy.escalation_threshold` is 1; it must be at least 2
    ");
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
  stuck: { enabled: true, observe: false, no_progress_iterations: 12 }
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
            json!({ "oversight": { "stuck": { "no_progress_iterations": 6 } }, "control": { "actuators": { "tone": { "enabled": false } } } }),
            true,
        ),
        (json!({ "oversight": { "stuck": { "enabled": true } } }), false),
        (json!({ "oversight": { "auto_escalate": true } }), false),
        (json!({ "control": { "auto_intervene": true } }), false),
        (json!({ "oversight": { "stuck": { "no_progress_iterations": 1 } } }), false),
        (json!({ "strategy": { "escalation_threshold": 0 } }), false),
        (json!({ "strategy": { "late": 0.5 } }), false),
    ] {
        assert_eq!(validator.is_valid(&file), valid, "{file}");
    }
}

/// Checks the keys and settings named on the supervision page.
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
        let is_known = [last, key, &format!("{key}[]")].iter().any(|name| reference.contains(&format!("`{name}`")));
        assert!(is_known, "docs/guides/supervision.md names `{key}`, which is no key");
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
    let text = format!("{SMALL}preset: seed\nstrategy:\n  outlook:\n    task_worth: 20\n");
    let config = parse(&text).expect("valid");
    let supervision = config.policy(&ForgeName::new("work")).supervision();
    assert_eq!(supervision.strategy.outlook.task_value, 20.0);
    assert_eq!(supervision.strategy.outlook.guided_iterations, 0, "the preset `pinned`");
    let warnings = config.warnings.iter().map(ToString::to_string).filter(|text| text.contains("is now called"));
    insta::assert_snapshot!(warnings.collect::<Vec<_>>().join("\n"), @r"
    conf/ralph-control.yaml:4:9: `seed` is now called `pinned`; rename it, the old name is read until version 1.0
    conf/ralph-control.yaml:7:5: `strategy.outlook.task_worth` is now called `strategy.outlook.task_value`; rename it, the old name is read until version 1.0
    ");
    let repository =
        parse_repository(".ralph.yml", "strategy: { outlook: { task_worth: 9 } }\n", &operator("")).expect("valid");
    assert_eq!(operator("").with_repository(&repository).supervision().strategy.outlook.task_value, 9.0);
}

#[test]
fn removed_keys_have_no_effect_and_a_warning() {
    let text = format!(
        "{SMALL}control: {{ window: 7, schedule: {{ stuck: zzz }}, stuck_iterations: 4 }}\n\
         oversight: {{ stuck: {{ window: many, alarm_beside: 1 }} }}\nmemory: {{ half_life_days: 1 }}\n\
         workspace: {{ pool: 1 }}\nreview: {{ timeout: 1m }}\n"
    );
    let variables = [("RALPH_CONTROL__SCHEDULE__EARLY", "x"), ("RALPH_PARKING__LONGEST", "2d")];
    let config = with_env(&text, &variables).expect("valid");
    assert_eq!(json!(config.policy(&ForgeName::new("work")).thresholds)["control"], json!({ "stuck_iterations": 4 }));
    assert_eq!(config.memory, MemorySettings::default());
    let warnings = config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
    insta::assert_snapshot!(warnings.join("\n"), @r"
    ralph-control.yaml:4:12: `control.window` no longer has an effect; the built-in value is 5; remove it
    ralph-control.yaml:4:23: `control.schedule` no longer has an effect; remove it
    ralph-control.yaml:5:23: `oversight.stuck.window` no longer has an effect; the built-in value is 10, or 5 with `preset: pinned`; remove it
    ralph-control.yaml:5:37: `oversight.stuck.alarm_beside` no longer has an effect; the built-in value is 2, or 0 with `preset: pinned`; remove it
    ralph-control.yaml:6:11: `memory.half_life_days` no longer has an effect; the built-in value is 180; remove it
    ralph-control.yaml:7:1: `workspace` no longer has an effect; remove it
    ralph-control.yaml:8:11: `review.timeout` no longer has an effect; remove it
    environment variable RALPH_CONTROL__SCHEDULE__EARLY: `control.schedule` no longer has an effect; remove it
    environment variable RALPH_PARKING__LONGEST: `parking` is now called `cooldown`; rename it, the old name is read until version 1.0
    environment variable RALPH_PARKING__LONGEST: `cooldown.longest` no longer has an effect; the built-in value is 40d; remove it
    ");
    let repository = parse_repository(".ralph.yml", "strategy: { late: 9 }\n", &Policy::default()).expect("valid");
    assert_eq!(
        repository.warnings,
        [".ralph.yml:1:13: `strategy.late` no longer has an effect; the built-in value is 0.8; remove it"]
    );
    assert_eq!(json!(repository.thresholds), json!({}));
}

#[test]
fn removed_keys_are_in_no_schema() {
    let schemas = [schema::operator(), schema::repository()];
    for key in removed::keys() {
        assert!(schemas.iter().all(|schema| schema::find(schema, &key).is_none()), "{key}");
    }
}
