//! Refusals that only runs reported. They apply to the loop of the run, and for at most an hour to all if another loop confirms them.

use super::*;

fn of(loop_id: &str) -> BackendCall {
    BackendCall { loop_id: loop_id.to_owned(), model: Some("m".to_owned()), ..call(loop_id, "a") }
}

fn claim(scene: &mut BackendsFixture, loop_id: &str, limit: Limit, now: Timestamp) -> Vec<BackendChange> {
    scene.see(BackendObservation::CallStarted { call: of(loop_id), likely_cost: None }, now);
    scene.see(BackendObservation::LimitClaimed { call: of(loop_id), cost: None, limit, seed: 1 }, now)
}

/// Returns whether a loop may use backend `a`, or else until when it may not.
fn blocked(scene: &BackendsFixture, loop_id: &str, now: Timestamp) -> Option<Option<Timestamp>> {
    let request = CallRequest { loop_id: loop_id.to_owned(), ..request(None) };
    match choose(&scene.state, &scene.settings, &request, 1, now) {
        BackendChoice::Use { .. } => None,
        BackendChoice::Wait { until, .. } => Some(Some(until)),
        BackendChoice::Never { .. } => Some(None),
    }
}

#[test]
fn claimed_refusal_applies_only_to_its_loop() {
    for (kind, until) in [
        (LimitKind::Rate, Some(at(90))),
        (LimitKind::Quota, Some(at(90))),
        (LimitKind::Overload, None),
        (LimitKind::Auth, None),
        (LimitKind::Billing, None),
    ] {
        let mut scene = BackendsFixture::new(only(&["a"]));
        let changes = claim(&mut scene, "one", limit(kind, until), at(0));
        assert!(matches!(changes[..], [BackendChange::Claimed { .. }]), "{kind:?}: {changes:?}");
        assert!(scene.state.backends["a"].is_active(), "{kind:?}");
        assert_eq!(blocked(&scene, "two", at(0)), None, "{kind:?}");
        let end = blocked(&scene, "one", at(0)).unwrap_or_else(|| panic!("{kind:?}"));
        assert_eq!(end.is_none(), matches!(kind, LimitKind::Auth | LimitKind::Billing), "{kind:?}");
        if let Some(end) = end {
            assert_eq!(blocked(&scene, "one", end), None, "{kind:?}");
        }
        // The same loop cannot confirm itself.
        claim(&mut scene, "one", limit(kind, until), at(1));
        assert!(scene.state.backends["a"].is_active() && blocked(&scene, "two", at(1)).is_none(), "{kind:?}");
        scene.see(BackendObservation::Enabled { backend: "a".into() }, at(2));
        assert_eq!(blocked(&scene, "one", at(2)), None, "{kind:?}");
    }
}

#[test]
fn second_loop_confirms_a_claim() {
    let mut scene = BackendsFixture::new(only(&["a"]));
    claim(&mut scene, "one", limit(LimitKind::Quota, Some(at(10_000))), at(0));
    // Another kind does not confirm it.
    claim(&mut scene, "two", limit(LimitKind::Auth, None), at(1));
    assert!(scene.state.backends["a"].is_active());
    claim(&mut scene, "three", limit(LimitKind::Rate, Some(at(60))), at(2));
    let BackendStatus::Parked(park) = scene.status("a").clone() else { panic!("{:?}", scene.status("a")) };
    assert!(park.until >= at(60) && park.until < at(65), "the earlier end counts: {park:?}");
}

#[test]
fn reports_of_two_loops_park_a_backend_for_an_hour_at_most() {
    for (kind, until, reason) in [
        (LimitKind::Quota, Some(at(10_000)), CooldownReason::Quota),
        (LimitKind::Auth, None, CooldownReason::Auth),
        (LimitKind::Billing, None, CooldownReason::Billing),
    ] {
        let mut scene = BackendsFixture::new(only(&["a"]));
        claim(&mut scene, "one", limit(kind, until), at(0));
        claim(&mut scene, "two", limit(kind, until), at(1));
        let BackendStatus::Parked(park) = scene.status("a").clone() else { panic!("{:?}", scene.status("a")) };
        assert_eq!(park.kind, reason);
        assert!(park.until > at(60) && park.until <= at(62), "{kind:?}: {park:?}");
        // Then a call of another loop tests the backend, and the two loops wait on.
        assert_eq!(blocked(&scene, "three", at(63)), None, "{kind:?}");
        for refused in ["one", "two"] {
            let end = blocked(&scene, refused, at(63)).unwrap_or_else(|| panic!("{kind:?}"));
            assert_eq!(end.is_some(), until.is_some(), "{kind:?}");
            assert!(end.is_none_or(|end| end >= at(9_990)), "{kind:?}: {end:?}");
        }
        // The service's own observation needs no confirmation.
        scene.see(BackendObservation::CallStarted { call: of("three"), likely_cost: None }, at(63));
        let observed =
            BackendObservation::CallLimited { call: of("three"), cost: None, limit: limit(kind, until), seed: 1 };
        scene.see(observed, at(63));
        match scene.status("a") {
            BackendStatus::Parked(park) => assert!(park.until >= at(10_000), "{kind:?}: {park:?}"),
            status => {
                assert!(matches!(status, BackendStatus::Disabled { .. }) && until.is_none(), "{kind:?}: {status:?}")
            }
        }
    }
}

#[test]
fn declined_call_does_not_disable_the_backend() {
    for kind in [LimitKind::Policy, LimitKind::Empty, LimitKind::OwnBudget] {
        let mut scene = BackendsFixture::new(only(&["a"]));
        assert_eq!(claim(&mut scene, "one", limit(kind, None), at(0)), [], "{kind:?}");
        assert_eq!(scene.advice, Some(CallAdvice::OtherBackend { backend: "a".into() }), "{kind:?}");
        assert_eq!((blocked(&scene, "one", at(0)), blocked(&scene, "two", at(0))), (None, None), "{kind:?}");
    }
}

#[test]
fn ended_claim_confirms_no_recovery() {
    let mut scene = BackendsFixture::new(only(&["a"]));
    claim(&mut scene, "one", limit(LimitKind::Rate, Some(at(5))), at(0));
    claim(&mut scene, "two", limit(LimitKind::Rate, Some(at(60))), at(10));
    assert!(scene.state.backends["a"].is_active());
    // A success of the loop ends its own claim.
    let served = BackendObservation::CallAnswered { call: of("two") };
    scene.see(BackendObservation::CallStarted { call: of("two"), likely_cost: None }, at(11));
    scene.see(served, at(11));
    assert_eq!(blocked(&scene, "two", at(11)), None);
}

#[test]
fn errors_of_one_loop_do_not_park_for_others() {
    let mut scene = BackendsFixture::new(only(&["a"]));
    let fail = |scene: &mut BackendsFixture, loop_id: &str, minute| {
        scene.see(BackendObservation::CallStarted { call: of(loop_id), likely_cost: None }, at(minute));
        let error = "exit code 1".to_owned();
        scene.see(BackendObservation::CallFailed { call: of(loop_id), cost: None, error, seed: 1 }, at(minute));
    };
    for minute in 0..9 {
        fail(&mut scene, "one", minute);
    }
    assert!(scene.state.backends["a"].is_active() && blocked(&scene, "two", at(9)).is_none());
    assert!(blocked(&scene, "one", at(9)).is_some());
    fail(&mut scene, "two", 10);
    assert!(matches!(scene.status("a"), BackendStatus::Parked(park) if park.kind == CooldownReason::Errors));
}

#[test]
fn missing_model_is_excluded_only_for_its_loop() {
    let mut scene = BackendsFixture::new(only(&["a"]));
    claim(&mut scene, "one", limit(LimitKind::ModelMissing, None), at(0));
    let backend = &scene.state.backends["a"];
    assert!(backend.lacks_model_for("one", "m", at(1)) && !backend.lacks_model_for("two", "m", at(1)));
    assert!(!backend.lacks_model_for("one", "m", at(25 * 60)));
    let stored = serde_json::to_string(&scene.state).expect("a text");
    assert_eq!(serde_json::from_str::<Backends>(&stored).expect("a state"), scene.state);
}
