//! Regressions of a predecessor, by their numbers in `users-ask`.

use super::*;

#[test]
fn d1_backend_enabled_in_configuration_is_used() {
    let mut scene = BackendsFixture::new(settings());
    scene.settings.backends.get_mut("a").unwrap().enabled = false;
    scene.see(BackendObservation::Elapsed, at(0));
    assert_eq!(scene.chosen(None, at(0)), "b");
    scene.settings.backends.get_mut("a").unwrap().enabled = true;
    assert_eq!(scene.chosen(None, at(1)), "a");

    // A backend that was disabled for its key is enabled by another configuration, not by rereading the same one.
    let configured =
        |text: &str| BackendObservation::Configured { fingerprints: [("a".to_owned(), text.to_owned())].into() };
    scene.see(configured("key 1"), at(1));
    scene.limited("a", LimitKind::Auth, None, at(2));
    assert_eq!(scene.see(configured("key 1"), at(3)), []);
    assert_eq!(scene.chosen(None, at(3)), "b");
    assert_eq!(scene.see(configured("key 2"), at(4)), [BackendChange::Enabled { backend: "a".to_owned() }]);
    assert_eq!(scene.chosen(None, at(4)), "a");
}

#[test]
fn d2_cooldown_end_clears_consecutive_errors() {
    let mut scene = BackendsFixture::new(only(&["a"]));
    for minute in 0..3 {
        scene.start("x", "a", at(minute));
        scene.fail("x", "a", at(minute));
    }
    let first = scene.until("a");
    assert!(matches!(scene.status("a"), BackendStatus::Parked(Cooldown { kind: CooldownReason::Errors, .. })));
    scene.see(BackendObservation::Elapsed, first);
    assert_eq!(scene.state.backends["a"].consecutive_errors, 0);
    assert_eq!(scene.chosen(None, first), "a");
    // On probation one error is enough, and the wait grows.
    scene.start("x", "a", first);
    scene.fail("x", "a", first);
    let second = scene.until("a");
    assert!(second.since(first) > first.since(at(2)));
    // A success clears everything: it takes three errors again.
    scene.start("x", "a", second);
    scene.succeed("x", "a", second);
    for _ in 0..2 {
        scene.start("x", "a", second);
        scene.fail("x", "a", second);
    }
    assert!(scene.state.backends["a"].is_active());
}

#[test]
fn d3_too_long_prompt_causes_no_wait_and_no_retry() {
    let mut scene = BackendsFixture::new(only(&["a"]));
    let mut resumed = call("x", "a");
    resumed.resumed = true;
    let of = limit(LimitKind::ContextTooLong, None);
    scene.see(BackendObservation::CallLimited { call: resumed, cost: None, limit: of.clone(), seed: 1 }, at(0));
    assert_eq!(scene.advice, Some(CallAdvice::FreshSession));
    assert_eq!(scene.chosen(None, at(0)), "a", "no park");
    scene.hit("x", "a", of, at(0));
    assert_eq!(scene.advice, Some(CallAdvice::ShorterPrompt { backend: "a".to_owned() }));
    let mut excluding = request(None);
    excluding.exclude = vec!["a".to_owned()];
    let choice = choose(&scene.state, &scene.settings, &excluding, 1, at(0));
    assert!(matches!(&choice, BackendChoice::Never { reasons } if reasons[0].by == BlockedBy::Excluded), "{choice:?}");
    // Before it comes to that, a session that is nearly full is not resumed.
    let mut full = request(Some("a"));
    for (filled, session) in [(84.9, SessionUse::Resume), (85.0, SessionUse::Fresh), (f64::NAN, SessionUse::Fresh)] {
        full.session = Some(PreviousSession { backend: "a".to_owned(), model: None, context_pct: Some(filled) });
        let choice = choose(&scene.state, &scene.settings, &full, 1, at(0));
        assert!(
            matches!(choice, BackendChoice::Use { session: found, .. } if found == session),
            "{filled}: {choice:?}"
        );
    }
}

#[test]
fn d12_error_of_one_backend_does_not_affect_another() {
    let mut scene = BackendsFixture::new(settings());
    scene.limited("a", LimitKind::Rate, Some(at(5)), at(0));
    scene.start("x", "b", at(0));
    scene.succeed("x", "b", at(1));
    assert_eq!(scene.state.backends["b"].last_error, None);
    assert!(scene.state.backends["a"].last_error.is_some());
    let back = scene.until("a");
    scene.start("x", "a", back);
    scene.succeed("x", "a", back);
    assert_eq!(scene.state.backends["a"].last_error, None);
    assert_eq!(scene.state.backends["a"].recent_errors.len(), 1);
}

#[test]
fn d14_wait_ends_at_earliest_reactivation_or_person() {
    let mut scene = BackendsFixture::new(settings());
    scene.limited("a", LimitKind::Quota, Some(at(300)), at(0));
    scene.limited("b", LimitKind::Rate, Some(at(20)), at(0));
    scene.limited("c", LimitKind::Quota, Some(at(90)), at(0));
    let BackendChoice::Wait { until, reasons } = scene.choose(None, at(0)) else { panic!() };
    assert_eq!((until, reasons.len()), (scene.until("b"), 3));
    // Asking earlier gives the same answer; at the moment itself the wait is over.
    assert_eq!(scene.choose(None, at(10)), BackendChoice::Wait { until, reasons });
    assert_eq!(scene.chosen(None, until), "b");
    scene.see(BackendObservation::Enabled { backend: "a".to_owned() }, at(1));
    assert_eq!(scene.chosen(None, at(1)), "a");
}

#[test]
fn d16_iteration_without_backend_waits() {
    let mut scene = BackendsFixture::new(settings());
    for name in ["a", "b", "c"] {
        for _ in 0..3 {
            scene.start("x", name, at(0));
            scene.fail("x", name, at(0));
        }
    }
    let choice = scene.choose(None, at(0));
    assert!(matches!(choice, BackendChoice::Wait { until, .. } if until <= at(1)), "{choice:?}");
    assert_eq!(scene.chosen(None, at(1)), "a");
}
