//! Schedules evaluated over iterations, errors and times.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;
use super::facts;
use crate::domain::model::ids::{Money, Timestamp};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const START: Timestamp = Timestamp(1_795_305_600_000); // 2026-11-22T00:00:00Z, a Sunday

fn entries(value: Value) -> Vec<ScheduleEntry> {
    serde_json::from_value(value).unwrap()
}

fn schedule(value: Value) -> Schedule {
    Schedule::compile(&entries(value), "schedule", &["claude", "codex"]).unwrap()
}

/// Returns the rules that fire when `schedule` is evaluated with each of `facts`, at intervals of a minute.
fn played(schedule: &Schedule, facts: impl IntoIterator<Item = RuleFacts>) -> Vec<Vec<usize>> {
    let mut state = ScheduleState::begun(START);
    let look = |(minute, facts): (i64, RuleFacts)| {
        let look = schedule.look(&facts, START.plus_ms(minute * MINUTE), &mut state);
        look.firings.into_iter().map(|firing| firing.rule).collect()
    };
    (1..).zip(facts).map(look).collect()
}

fn iteration(iteration: u32) -> RuleFacts {
    RuleFacts { iteration, ..RuleFacts::default() }
}

#[test]
fn cost_cap_of_shipped_example_stops_loop() {
    let schedule = schedule(json!([
        { "trigger": { "when": "total_cost > 1.0" }, "action": "pause", "reason": "Cost limit reached" },
    ]));
    let mut state = ScheduleState::default();
    let look = schedule.look(&facts(), START, &mut state);
    let [firing] = look.firings.as_slice() else { panic!("{look:?}") };
    assert_eq!((&firing.action, firing.reason.as_str()), (&ScheduledAction::Pause, "Cost limit reached"));
    assert_eq!(firing.trigger, "total_cost > 1.0");
    assert!(firing.action.stops() && ScheduledAction::Abort.stops());
    assert!(!ScheduledAction::Escalate.stops() && !ScheduledAction::SwitchBackend(None).stops());
}

#[test]
fn condition_fires_once_until_false_again() {
    let schedule = schedule(json!([{ "trigger": { "when": "cost > 10" }, "action": "escalate" }]));
    let cost = |cost: f64| RuleFacts { cost: Money::from_usd(cost), ..RuleFacts::default() };
    let costs = [9.0, 10.5, 11.0, 30.0, 2.0, 12.0, 12.0].map(cost);
    let none = Vec::<usize>::new;
    assert_eq!(played(&schedule, costs), [none(), vec![0], none(), none(), none(), vec![0], none()]);
}

#[test]
fn failed_condition_is_reported_and_has_no_effect() {
    let schedule = schedule(json!([{ "trigger": { "when": "10 % iteration == 0" }, "action": "escalate" }]));
    let mut state = ScheduleState::default();
    let mut look = |n: u32| schedule.look(&iteration(n), START, &mut state);
    assert_eq!(look(5).firings.len(), 1);
    let broken = look(0);
    assert_eq!(
        (broken.firings.len(), broken.broken),
        (0, vec!["rule 1 of the schedule (`10 % iteration == 0`) has no effect: it takes a remainder by 0".to_owned()])
    );
    assert_eq!(look(5).firings.len(), 0, "it was true before");
}

#[test]
fn skipped_iterations_fire_a_rule_once() {
    let schedule = schedule(json!([
        { "trigger": { "at_iteration": 3 }, "action": "escalate" },
        { "trigger": { "every_iterations": 4 }, "action": "switch_backend" },
        { "trigger": { "at_iteration": 1, "when": "iteration == 8" }, "action": "set_model", "model": "opus" },
    ]));
    let looks = played(&schedule, [0, 1, 1, 2, 3, 3, 7, 8, 8, 13].map(iteration));
    let expected: [&[usize]; 10] = [&[], &[2], &[], &[], &[0], &[], &[1], &[1, 2], &[], &[1]];
    assert_eq!(looks, expected);
    // A loop without an earlier evaluation does not act on past times, and a restarted loop acts again.
    let mut state = ScheduleState::default();
    assert_eq!(schedule.look(&iteration(10), START, &mut state).firings, []);
    assert_eq!(schedule.look(&iteration(3), START, &mut state).firings.len(), 1);
}

#[test]
fn on_error_matches_each_error_once() {
    let schedule =
        schedule(json!([{ "trigger": { "on_error": "Rate_Limit" }, "action": "switch_backend", "backend": "codex" }]));
    let failed = |n: u32, error: Option<&str>| RuleFacts { last_error: error.map(str::to_owned), ..iteration(n) };
    let looks = played(
        &schedule,
        [
            failed(1, Some("API error: rate_limit_error")),
            failed(1, Some("API error: rate_limit_error")),
            failed(2, Some("API error: rate_limit_error")),
            failed(2, Some("exit status 1")),
            failed(2, Some("RATE_LIMIT")),
            failed(3, None),
        ],
    );
    let expected: [&[usize]; 6] = [&[0], &[], &[0], &[], &[0], &[]];
    assert_eq!(looks, expected);
}

#[test]
fn refusals_fire_only_on_error_rules() {
    let schedule = schedule(json!([
        { "trigger": { "on_error": "rate_limit" }, "action": "escalate" },
        { "trigger": { "when": "has_error" }, "action": "pause" },
        { "trigger": { "at_iteration": 2 }, "action": "pause" },
        { "trigger": { "on_error": "boom" }, "action": "pause" },
    ]));
    let refused = |n: u32, words: &str| RuleFacts { refused: vec![words.to_owned()], ..iteration(n) };
    let refusal = refused(1, "claude was left for its rate limit: try again in 5m");
    assert_eq!(played(&schedule, [refusal.clone(), refusal]), [&[0][..], &[]]);
    // No iteration ended because all backends refused, and the previous iteration's error was already seen.
    let mut state = ScheduleState::begun(START);
    let failed = RuleFacts { last_error: Some("boom".to_owned()), ..iteration(1) };
    let rules = |look: Look| look.firings.into_iter().map(|firing| firing.rule).collect::<Vec<_>>();
    assert_eq!(rules(schedule.look(&failed, START, &mut state)), [1, 3]);
    let waits = RuleFacts { last_error: failed.last_error, ..refused(2, "claude: rate limit (5m)") };
    assert_eq!(rules(schedule.look_at_refusal(&waits, &mut state)), [0]);
    assert!(schedule.look_at_refusal(&waits, &mut state).firings.is_empty());
    assert_eq!(rules(schedule.look(&iteration(2), START, &mut state)), [2], "once it has ended");
}

#[test]
fn missed_cron_times_fire_every_rule_once() {
    let schedule = schedule(json!([
        { "trigger": { "cron": "30 * * * *" }, "action": "escalate", "reason": "half past" },
        { "trigger": { "cron": "*/30 * * * *" }, "action": "switch_backend" },
        { "trigger": { "cron": "0 9 * * MON" }, "action": "pause" },
    ]));
    let mut state = ScheduleState::begun(START);
    let mut look = |ms: i64| {
        let firings = schedule.look(&iteration(1), START.plus_ms(ms), &mut state).firings;
        firings.into_iter().map(|firing| firing.rule).collect::<Vec<_>>()
    };
    assert!(look(29 * MINUTE).is_empty());
    // An iteration from 00:29 to 00:47: both saw half past.
    assert_eq!(look(47 * MINUTE), [0, 1]);
    assert!(look(47 * MINUTE).is_empty());
    assert_eq!(look(60 * MINUTE), [1]);
    assert!(look(60 * MINUTE + 1).is_empty());
    // Many moments at once are one.
    assert_eq!(look(33 * HOUR - 1), [0, 1]);
    assert_eq!(look(33 * HOUR), [1, 2]);
    // The clock goes back a little, and comes again to where it was: nothing acts twice.
    assert!(look(32 * HOUR).is_empty());
    assert!(look(33 * HOUR).is_empty());
    assert_eq!(look(33 * HOUR + 30 * MINUTE), [0, 1]);
    // It was days ahead by mistake.
    assert_eq!(look(900 * HOUR), [0, 1, 2]);
    assert!(look(34 * HOUR).is_empty());
    assert_eq!(look(34 * HOUR + 30 * MINUTE), [0, 1]);
}

#[test]
fn new_loop_ignores_earlier_cron_times() {
    let schedule = schedule(json!([{ "trigger": { "cron": "* * * * *" }, "action": "escalate" }]));
    let mut state = ScheduleState::default();
    assert_eq!(schedule.look(&iteration(1), START, &mut state).firings, []);
    let look = schedule.look(&iteration(1), START.plus_ms(MINUTE), &mut state);
    assert_eq!(look.firings[0].reason, "* * * * * (UTC)");
}

#[test]
fn schedule_state_survives_serialization() {
    let schedule = schedule(json!([
        { "trigger": { "when": "has_error" }, "action": "escalate" },
        { "trigger": { "on_error": "mismatched" }, "action": "escalate" },
    ]));
    let mut state = ScheduleState::begun(START);
    assert_eq!(schedule.look(&facts(), START, &mut state).firings.len(), 2);
    let mut state: ScheduleState = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
    assert_eq!(schedule.look(&facts(), START, &mut state).firings, []);
    assert_eq!(serde_json::from_str::<ScheduleState>("{}").unwrap(), ScheduleState::default());
}

#[test]
fn invalid_schedules_are_reported_with_path() {
    let long = "x".repeat(301);
    let entries = entries(json!([
        { "trigger": {}, "action": "pause" },
        { "trigger": { "when": "costs > 1" }, "action": "pause", "model": "opus" },
        { "trigger": { "at_iteration": 0, "every_iterations": 0, "on_error": " " }, "action": "abort" },
        { "trigger": { "cron": "99 * * * *" }, "action": "set_model" },
        { "trigger": { "cron": "0 0 30 2 *" }, "action": "switch_backend", "backend": "codx" },
        { "trigger": { "cron": "* * * * * *" }, "action": "escalate", "backend": "claude", "reason": long },
        { "trigger": { "cron": "" }, "action": "set_model", "model": "-x" },
    ]));
    let problems = Schedule::compile(&entries, "schedule", &["claude", "codex"]).unwrap_err();
    let keys: Vec<&str> = problems.iter().map(|problem| problem.key.trim_start_matches("schedule")).collect();
    assert_eq!(
        keys,
        [
            "[0].trigger",
            "[1].model",
            "[1].trigger.when",
            "[2].trigger.at_iteration",
            "[2].trigger.every_iterations",
            "[2].trigger.on_error",
            "[3].model",
            "[3].trigger.cron",
            "[4].backend",
            "[4].trigger.cron",
            "[5].backend",
            "[5].trigger.cron",
            "[5].reason",
            "[6].model",
            "[6].trigger.cron",
        ]
    );
    let message = |key: &str| problems.iter().find(|p| p.key.ends_with(key)).unwrap().to_string();
    assert_eq!(message("[4].backend"), "`schedule[4].backend`: there is no backend `codx`; did you mean `codex`?");
    assert_eq!(message("[4].trigger.cron"), "`schedule[4].trigger.cron`: matches no time");
    assert!(message("[3].trigger.cron").contains("is not a cron pattern of five fields"));
    assert!(serde_json::from_value::<ScheduleEntry>(json!({ "trigger": { "wen": "x" }, "action": "pause" })).is_err());
    assert!(serde_json::from_value::<ScheduleEntry>(json!({ "trigger": {}, "action": "resume" })).is_err());
}

#[test]
fn leap_days_match() {
    let schedule = schedule(json!([{ "trigger": { "cron": "0 0 29 2 *" }, "action": "escalate" }]));
    let mut state = ScheduleState::begun(START);
    assert_eq!(schedule.look(&iteration(1), START.plus_ms(365 * 24 * HOUR), &mut state).firings, []);
    assert_eq!(schedule.look(&iteration(1), START.plus_ms(500 * 24 * HOUR), &mut state).firings.len(), 1);
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    #[test]
    fn each_cron_time_fires_once_for_any_evaluations(steps in proptest::collection::vec(0..5_400_i64, 1..30)) {
        let schedule = schedule(json!([{ "trigger": { "cron": "0 * * * *" }, "action": "escalate" }]));
        let mut state = ScheduleState::begun(START);
        let mut now = START;
        for seconds in steps {
            let next = now.plus_ms(seconds * 1_000);
            let passed_an_hour = now.0.div_euclid(HOUR) != next.0.div_euclid(HOUR);
            prop_assert_eq!(schedule.look(&iteration(1), next, &mut state).firings.len(), usize::from(passed_an_hour));
            now = next;
        }
    }

    #[test]
    fn any_time_and_pattern_do_not_panic(at in any::<i64>(), now in any::<i64>(), cron in "[0-9*/,LW# A-Z-]{0,20}") {
        let entry = json!([{ "trigger": { "cron": cron }, "action": "escalate" }]);
        if let Ok(schedule) = Schedule::compile(&entries(entry), "schedule", &[]) {
            let mut state = ScheduleState::begun(Timestamp(at));
            schedule.look(&iteration(1), Timestamp(now), &mut state);
        }
    }
}
