//! Cooldowns, back-off, probation, clock changes, thresholds.

use super::*;
use crate::domain::model::quantity::{Duration, Usd};

#[test]
fn reported_end_is_used_with_jitter() {
    for (kind, minutes) in [(LimitKind::Rate, 1), (LimitKind::Quota, 5 * 60), (LimitKind::Overload, 10)] {
        let mut scene = BackendsFixture::new(settings());
        let changes = scene.limited("a", kind, Some(at(minutes)), at(0));
        let jitter_ms = scene.until("a").since(at(minutes));
        assert!((0..=30_000).contains(&jitter_ms) && jitter_ms <= minutes * MINUTE / 20, "{kind:?}: {jitter_ms}");
        assert!(matches!(&changes[..], [BackendChange::Parked { backend, .. }] if backend == "a"), "{changes:?}");
        let again = scene.see(BackendObservation::Elapsed, scene.until("a"));
        assert_eq!(again, [BackendChange::Reactivated { backend: "a".to_owned(), probation: true }]);
    }
}

#[test]
fn waits_without_a_stated_end_double_until_a_success() {
    let mut scene = BackendsFixture::new(only(&["a"]));
    let mut now = at(0);
    for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
        scene.limited("a", LimitKind::Overload, None, now);
        let length = scene.until("a").since(now);
        assert!((minutes * MINUTE * 9 / 10..=minutes * MINUTE).contains(&length), "{minutes}: {length}");
        now = scene.until("a");
    }
    scene.start("x", "a", now);
    assert_eq!(scene.succeed("x", "a", now), [BackendChange::Proven { backend: "a".to_owned() }]);
    scene.limited("a", LimitKind::Overload, None, now);
    assert!(scene.until("a").since(now) <= MINUTE);
}

#[test]
fn implausible_ends_are_ignored() {
    let now = at(0);
    let ends = [at(-1), now, Timestamp(-5), Timestamp(i64::MIN), at(10 * 366 * 24 * 60), Timestamp(i64::MAX)];
    for until in ends {
        let mut scene = BackendsFixture::new(settings());
        scene.limited("a", LimitKind::Quota, Some(until), now);
        assert!(scene.until("a").since(now) <= MINUTE, "{until:?}");
    }
    let mut scene = BackendsFixture::new(settings());
    scene.limited("a", LimitKind::Quota, Some(at(20 * 24 * 60)), now);
    let length = scene.until("a").since(now) - 20 * 24 * HOUR;
    assert!((0..=30_000).contains(&length), "a month's quota is waited for: {length}");
}

#[test]
fn repeated_short_ends_do_not_cause_rapid_calls() {
    let mut scene = BackendsFixture::new(only(&["a"]));
    let (mut now, mut calls) = (at(0), 0);
    while now < at(4 * 60) {
        scene.limited("a", LimitKind::Rate, Some(now.plus_ms(1_000)), now);
        (now, calls) = (scene.until("a"), calls + 1);
    }
    assert!((8..=12).contains(&calls), "{calls}");
}

#[test]
fn concurrent_calls_count_one_limit() {
    let mut scene = BackendsFixture::new(settings());
    for key in 0..50 {
        scene.start(&key.to_string(), "a", at(0));
    }
    let mut reported = 0;
    for key in 0..50 {
        reported += scene.hit(&key.to_string(), "a", limit(LimitKind::Overload, None), at(1)).len();
    }
    assert_eq!((reported, scene.state.backends["a"].backoff_step), (1, 1));
    assert!(scene.until("a") <= at(2));
    // A reported end replaces an estimated one, and the later of two reported ends counts.
    let mut scene = BackendsFixture::new(settings());
    for key in ["x", "y", "z"] {
        scene.start(key, "a", at(0));
    }
    scene.limited("a", LimitKind::Overload, None, at(0));
    scene.hit("x", "a", limit(LimitKind::Quota, Some(at(300))), at(0));
    scene.hit("y", "a", limit(LimitKind::Rate, Some(at(1))), at(0));
    scene.hit("z", "a", limit(LimitKind::Rate, None), at(0));
    assert!(scene.until("a") >= at(300));
}

#[test]
fn older_calls_do_not_end_cooldown_or_probation() {
    let mut scene = BackendsFixture::new(settings());
    scene.start("old", "a", at(0));
    scene.start("late", "a", at(0));
    scene.limited("a", LimitKind::Overload, None, at(1));
    scene.succeed("old", "a", at(1));
    assert_eq!(scene.chosen(None, at(1)), "b");
    scene.see(BackendObservation::Elapsed, at(3));
    scene.succeed("late", "a", at(3));
    assert!(matches!(scene.status("a"), BackendStatus::Active { probation: Some(_), .. }));
    // And an old call's limit without an end is outdated once the backend is active again.
    let mut scene = BackendsFixture::new(settings());
    scene.start("old", "a", at(0));
    scene.limited("a", LimitKind::Overload, None, at(1));
    scene.see(BackendObservation::Elapsed, at(3));
    assert_eq!(scene.hit("old", "a", limit(LimitKind::Overload, None), at(3)), []);
}

#[test]
fn auth_and_billing_errors_disable_until_a_person_acts() {
    for kind in [LimitKind::Auth, LimitKind::Billing] {
        let mut scene = BackendsFixture::new(only(&["a"]));
        let changes = scene.limited("a", kind, Some(at(1)), at(0));
        assert!(matches!(&changes[..], [BackendChange::Disabled { .. }]), "{changes:?}");
        assert_eq!(scene.chosen(None, at(60 * 24 * 365)), "never");
        scene.see(BackendObservation::Enabled { backend: "a".to_owned() }, at(5));
        assert_eq!(scene.chosen(None, at(5)), "a");
    }
    let mut scene = BackendsFixture::new(settings());
    scene.start("old", "a", at(0));
    scene.limited("a", LimitKind::Auth, None, at(1));
    scene.see(BackendObservation::Enabled { backend: "a".to_owned() }, at(2));
    scene.hit("old", "a", limit(LimitKind::Auth, None), at(3));
    assert!(scene.state.backends["a"].is_active(), "the old call used the old key");
    // A call that ran when the backend was parked still reports about the current key.
    scene.start("old", "a", at(4));
    scene.limited("a", LimitKind::Rate, None, at(4));
    scene.hit("old", "a", limit(LimitKind::Auth, None), at(4));
    assert!(matches!(scene.status("a"), BackendStatus::Disabled { kind: DisabledFor::Auth, .. }));
}

#[test]
fn disabled_by_person_until_enabled_by_person() {
    let mut scene = BackendsFixture::new(settings());
    let configured =
        |text: &str| BackendObservation::Configured { fingerprints: [("a".to_owned(), text.to_owned())].into() };
    scene.see(configured("1"), at(0));
    scene.see(BackendObservation::Disabled { backend: "a".to_owned(), reason: "maintenance".to_owned() }, at(0));
    scene.limited("a", LimitKind::Auth, None, at(0));
    scene.limited("a", LimitKind::Rate, None, at(0));
    scene.see(configured("2"), at(1));
    assert!(
        matches!(scene.status("a"), BackendStatus::Disabled { kind: DisabledFor::Person, reason, .. } if reason == "maintenance")
    );
    scene.see(BackendObservation::Enabled { backend: "a".to_owned() }, at(1));
    assert_eq!(scene.chosen(None, at(1)), "a");
}

#[test]
fn missing_model_is_remembered_for_a_day() {
    let mut scene = BackendsFixture::new(settings());
    let mut with_model = call("x", "a");
    with_model.model = Some("m-9".to_owned());
    let limit = limit(LimitKind::ModelMissing, None);
    scene.see(BackendObservation::CallLimited { call: with_model, cost: None, limit, seed: 1 }, at(0));
    assert_eq!(scene.advice, Some(CallAdvice::OtherModel { backend: "a".to_owned(), model: Some("m-9".to_owned()) }));
    let backend = &scene.state.backends["a"];
    assert!(backend.is_active() && backend.lacks_model("m-9", at(60)) && !backend.lacks_model("m-8", at(60)));
    assert!(!backend.lacks_model("m-9", at(25 * 60)));
}

#[test]
fn clock_jumps_do_not_extend_cooldowns() {
    for jump in [-10 * 365 * 24 * HOUR, -HOUR, HOUR, 10 * 365 * 24 * HOUR] {
        let mut scene = BackendsFixture::new(only(&["a"]));
        scene.limited("a", LimitKind::Rate, Some(at(10)), at(0));
        let after_jump = at(1).plus_ms(jump);
        scene.see(BackendObservation::Elapsed, after_jump);
        assert_eq!(scene.chosen(None, after_jump.plus_ms(11 * MINUTE)), "a", "{jump}");
        // And without an observation in between.
        let mut scene = BackendsFixture::new(only(&["a"]));
        scene.limited("a", LimitKind::Rate, Some(at(10)), at(0));
        match scene.choose(None, after_jump) {
            BackendChoice::Wait { until, .. } => assert!(until.since(after_jump) <= 11 * MINUTE, "{jump}"),
            other => assert!(jump > 0, "{other:?}"),
        }
    }
    // Money spent "in the future" still counts, and is forgotten in time.
    let mut scene = BackendsFixture::new(settings());
    scene.settings.backends.get_mut("a").unwrap().thresholds.max_cost_per_hour = Some(Usd(Money::from_usd(5.0)));
    scene.spend("x", "a", 4.0, at(0));
    let back = at(-600);
    scene.spend("x", "a", 4.0, back);
    assert_eq!(scene.chosen(None, back), "b");
    assert_eq!(scene.chosen(None, back.plus_ms(61 * MINUTE)), "a");
}

#[test]
fn thresholds_block_calls_until_capacity_returns() {
    let of = |change: fn(&mut BackendThresholds)| {
        let mut scene = BackendsFixture::new(settings());
        change(&mut scene.settings.backends.get_mut("a").unwrap().thresholds);
        scene
    };
    let mut scene = of(|t| (t.max_requests_per_window, t.window) = (Some(4), Duration::minutes(10)));
    for minute in 0..4 {
        assert_eq!(scene.chosen(None, at(minute)), "a");
        scene.start("x", "a", at(minute));
    }
    assert_eq!(scene.chosen(None, at(3)), "b");
    let BackendStatus::Parked(park) = scene.status("a").clone() else { panic!() };
    // A quarter of 4 is free when the first of them is 10 minutes old.
    assert_eq!((park.kind, park.until), (CooldownReason::Threshold, at(10)));
    assert_eq!(scene.chosen(None, at(10)), "a");

    let mut scene = of(|t| t.max_cost_per_hour = Some(Usd(Money::from_usd(5.0))));
    scene.spend("x", "a", 4.0, at(0));
    let mut expensive_request = request(None);
    expensive_request.likely_cost = Some(Money::from_usd(2.0));
    let choice = choose(&scene.state, &scene.settings, &expensive_request, 1, at(1));
    assert!(matches!(&choice, BackendChoice::Use { backend, .. } if backend == "b"), "{choice:?}");
    assert_eq!(scene.chosen(None, at(1)), "a", "a call of unknown cost fits");
    scene.spend("x", "a", 1.0, at(30));
    assert_eq!(scene.until("a"), at(60));
    // Running calls count with their likely cost.
    let mut scene = of(|t| t.max_cost_per_day = Some(Usd(Money::from_usd(5.0))));
    let likely_cost = Some(Money::from_usd(4.0));
    scene.see(BackendObservation::CallStarted { call: call("x", "a"), likely_cost }, at(0));
    let choice = choose(&scene.state, &scene.settings, &expensive_request, 1, at(0));
    assert!(matches!(&choice, BackendChoice::Use { backend, .. } if backend == "b"), "{choice:?}");
    scene.spend("x", "a", 6.0, at(1));
    assert_eq!(scene.until("a"), at(1).plus_ms(24 * HOUR));
    // A call that is dearer than the threshold is made where nothing was spent.
    let scene = of(|t| t.max_cost_per_hour = Some(Usd(Money::from_usd(0.5))));
    let choice = choose(&scene.state, &scene.settings, &expensive_request, 1, at(0));
    assert!(matches!(&choice, BackendChoice::Use { backend, .. } if backend == "a"), "{choice:?}");
}

#[test]
fn ledger_is_accurate_and_bounded() {
    let mut ledger = UsageLedger::default();
    let mut times = Vec::new();
    for second in 0..48 * 3600 / 7 {
        let now = START.plus_ms(second * 7_000);
        ledger.settle(10 * MINUTE, now);
        ledger.add(1, Money(1_000), now);
        times.push(now);
    }
    let now = *times.last().unwrap();
    let exact = |window: i64| times.iter().filter(|at| now.since(**at) < window).count() as f64;
    for (window, slack) in [(10 * MINUTE, 3.0), (HOUR, 9.0), (24 * HOUR, 130.0)] {
        let counted = f64::from(ledger.requests(window, now));
        assert!((exact(window)..=exact(window) + slack).contains(&counted), "{window}: {counted} {}", exact(window));
        assert_eq!(ledger.cost(window, now).0, ledger.requests(window, now) as i64 * 1_000);
    }
    assert!(ledger.entries() < 250, "{}", ledger.entries());
}
