//! Priority, rotation, return to the better backend.

use super::*;

#[test]
fn each_role_has_its_own_order() {
    let mut scene = BackendsFixture::new(settings());
    scene.settings.priority = BackendPriority { agent: vec!["c".to_owned()], assistant: vec!["b".to_owned()] };
    scene.settings.backends.get_mut("b").unwrap().roles = vec![BackendRole::Assistant];
    assert_eq!(scene.settings.in_order(BackendRole::Agent), ["c", "a"]);
    assert_eq!(scene.settings.in_order(BackendRole::Assistant), ["b", "a", "c"]);
    assert_eq!(scene.chosen(None, at(0)), "c");
    scene.limited("c", LimitKind::Rate, None, at(0));
    assert_eq!(scene.chosen(None, at(0)), "a");
    scene.limited("a", LimitKind::Auth, None, at(0));
    assert_eq!(scene.chosen(None, at(0)), "wait");
}

#[test]
fn avoided_backend_is_used_if_no_other_is_free() {
    let mut scene = BackendsFixture::new(only(&["a", "b"]));
    let chosen = |scene: &BackendsFixture| {
        let avoiding = CallRequest { avoid: vec!["a".to_owned()], ..request(None) };
        choose(&scene.state, &scene.settings, &avoiding, 7, at(0))
    };
    let takes = |choice, name| matches!(choice, BackendChoice::Use { backend, .. } if backend == name);
    assert!(takes(chosen(&scene), "b"));
    scene.limited("b", LimitKind::Rate, None, at(0));
    assert!(takes(chosen(&scene), "a"));
    scene.limited("a", LimitKind::Rate, None, at(0));
    assert!(matches!(chosen(&scene), BackendChoice::Wait { .. }));
}

#[test]
fn unavailable_choice_lists_its_obstacles() {
    let scene = BackendsFixture::new(only(&[]));
    assert_eq!(scene.choose(None, at(0)), BackendChoice::Never { reasons: Vec::new() });
    let mut scene = BackendsFixture::new(settings());
    scene.settings.backends.get_mut("b").unwrap().enabled = false;
    scene.limited("a", LimitKind::Billing, None, at(0));
    scene.see(BackendObservation::Disabled { backend: "c".to_owned(), reason: String::new() }, at(0));
    let BackendChoice::Never { reasons } = scene.choose(None, at(0)) else { panic!() };
    let words: Vec<_> = reasons.iter().map(|blocked| format!("{}: {}", blocked.backend, blocked.by)).collect();
    insta::assert_snapshot!(words.join("\n"), @r"
    a: no money on the account (the provider's words)
    b: `enabled` is false in the configuration
    c: disabled by a person
    ");
}

#[test]
fn one_loop_tries_a_recovered_backend() {
    let mut scene = BackendsFixture::new(settings());
    scene.limited("a", LimitKind::Rate, Some(at(5)), at(0));
    assert_eq!(scene.chosen(Some("b"), at(4)), "b");
    let end_of_cooldown = scene.until("a");
    assert_eq!(scene.chosen(Some("b"), end_of_cooldown), "a");
    let mut first = call("first", "a");
    first.previous = Some("b".to_owned());
    let changes =
        scene.see(BackendObservation::CallStarted { call: first.clone(), likely_cost: None }, end_of_cooldown);
    assert!(changes.iter().any(|change| matches!(change, BackendChange::Rotated { .. })), "{changes:?}");
    assert_eq!(scene.chosen(Some("b"), end_of_cooldown), "b");
    assert_eq!(scene.chosen(None, end_of_cooldown.plus_ms(1_000)), "b");
    // The first words of the model are enough.
    let answered = scene.see(BackendObservation::CallAnswered { call: first }, end_of_cooldown.plus_ms(5_000));
    assert_eq!(answered, [BackendChange::Proven { backend: "a".to_owned() }]);
    assert_eq!(scene.chosen(Some("b"), end_of_cooldown.plus_ms(5_000)), "a");
}

#[test]
fn hanging_trial_does_not_block_other_calls() {
    let mut scene = BackendsFixture::new(only(&["a"]));
    scene.limited("a", LimitKind::Rate, None, at(0));
    let back = scene.until("a");
    scene.start("first", "a", back);
    let BackendChoice::Wait { until, reasons } = scene.choose(None, back) else { panic!() };
    assert!(reasons[0].by == BlockedBy::OnTrial && (5_000..15_000).contains(&until.since(back)), "{until:?}");
    assert_eq!(scene.chosen(None, back.plus_ms(MINUTE - 1)), "wait");
    assert_eq!(scene.chosen(None, back.plus_ms(MINUTE)), "a");
    scene.see(BackendObservation::CallAbandoned { call: call("first", "a"), cost: None }, back);
    assert_eq!(scene.chosen(None, back), "a");
}

#[test]
fn each_answer_allows_one_more_call_on_probation() {
    let mut scene = BackendsFixture::new(only(&["a"]));
    scene.limited("a", LimitKind::Rate, None, at(0));
    let back = scene.until("a");
    let (mut rounds, mut begun) = (Vec::new(), 0);
    while rounds.len() < 6 {
        let now = back.plus_ms(rounds.len() as i64 * 10_000);
        let first = begun;
        while begun - first < 50 && scene.chosen(None, now) == "a" {
            scene.start(&begun.to_string(), "a", now);
            begun += 1;
        }
        for key in first..begun {
            scene.see(BackendObservation::CallAnswered { call: call(&key.to_string(), "a") }, now.plus_ms(8_000));
        }
        rounds.push(begun - first);
    }
    assert_eq!(rounds, [1, 1, 2, 4, 8, 50]);
}

#[test]
fn repeated_cooldowns_prefer_another_backend() {
    let mut scene = BackendsFixture::new(settings());
    let (mut now, mut tries) = (at(0), 0);
    while now < at(8 * 60) {
        if scene.chosen(Some("b"), now) == "a" {
            tries += 1;
            scene.start("x", "a", now);
            scene.succeed("x", "a", now);
            scene.limited("a", LimitKind::Rate, Some(now.plus_ms(30_000)), now);
        }
        now = now.plus_ms(MINUTE);
    }
    assert!((15..=60).contains(&tries), "{tries}: without the rule it is one each minute or two");
    // With no other it is used at once.
    scene.settings = only(&["a"]);
    let back = scene.until("a");
    assert_eq!(scene.chosen(None, back), "a");
}

#[test]
fn round_robin_skips_cooling_backends() {
    let mut scene = BackendsFixture::new(settings());
    scene.settings.rotation.mode = RotationMode::RoundRobin;
    let round = |scene: &mut BackendsFixture, prefer: Option<&str>| {
        let chosen = scene.chosen(prefer, at(0));
        scene.start("x", &chosen, at(0));
        chosen
    };
    let shared: Vec<_> = (0..4).map(|_| round(&mut scene, None)).collect();
    assert_eq!(shared, ["a", "b", "c", "a"]);
    assert_eq!(round(&mut scene, Some("c")), "a", "a loop goes on from where it was");
    scene.limited("b", LimitKind::Rate, None, at(0));
    assert_eq!(round(&mut scene, Some("a")), "c");
    scene.settings.rotation.order = vec!["c".to_owned(), "a".to_owned()];
    assert_eq!(round(&mut scene, Some("a")), "c");
    scene.limited("a", LimitKind::Rate, None, at(0));
    scene.limited("c", LimitKind::Rate, None, at(0));
    assert_eq!(round(&mut scene, None), "wait");
}

#[test]
fn time_slices_follow_the_clock() {
    let mut scene = BackendsFixture::new(settings());
    scene.settings.rotation.mode = RotationMode::TimeSliced;
    let slices: Vec<_> = (0..6).map(|slice| scene.chosen(Some("a"), at(slice * 30))).collect();
    assert_eq!(slices[..3], slices[3..]);
    let mut names = slices[..3].to_vec();
    names.sort();
    assert_eq!(names, ["a", "b", "c"]);
    scene.settings.rotation.order = vec!["b".to_owned(), "a".to_owned()];
    let of = |minute: i64| scene.chosen(None, at(minute));
    assert_eq!((of(0), of(29), of(30), of(60)), (of(1), of(0), of(59), of(0)));
    assert_ne!(of(0), of(30));
    assert!(["a", "b"].contains(&scene.chosen(None, Timestamp(-1)).as_str()));
    // When the one in its turn is parked, the next in the order takes over.
    let (turn, other) = (scene.chosen(None, at(0)), scene.chosen(None, at(30)));
    scene.limited(&turn, LimitKind::Rate, None, at(0));
    assert_eq!(scene.chosen(None, at(0)), other);
}
