//! Properties for any sequence of observations.

use proptest::prelude::*;

use super::*;
use crate::domain::model::quantity::Usd;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Observation, with the time since the previous one, which may be negative.
#[derive(Debug, Clone)]
struct Happening {
    after_ms: i64,
    key: u8,
    backend: usize,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Start(Option<i64>),
    Answer,
    Succeed(Option<i64>),
    Fail,
    Limit(LimitKind, Option<i64>),
    Abandon,
    Enable,
    Disable,
    Configure(u8),
    Elapse,
}

fn what() -> impl Strategy<Value = What> {
    let kinds = prop::sample::select(vec![
        LimitKind::Rate,
        LimitKind::Quota,
        LimitKind::Overload,
        LimitKind::Auth,
        LimitKind::Billing,
        LimitKind::ContextTooLong,
        LimitKind::ModelMissing,
    ]);
    let until = prop_oneof![
        Just(None),
        (-HOUR..40 * 24 * HOUR).prop_map(Some),
        any::<i64>().prop_map(Some),
        (0..10 * MINUTE).prop_map(Some)
    ];
    let cost = prop::option::of(-1_000_000_i64..5_000_000);
    prop_oneof![
        4 => cost.clone().prop_map(What::Start),
        1 => Just(What::Answer),
        3 => cost.prop_map(What::Succeed),
        3 => Just(What::Fail),
        4 => (kinds, until).prop_map(|(kind, until)| What::Limit(kind, until)),
        1 => Just(What::Abandon),
        1 => Just(What::Enable),
        1 => Just(What::Disable),
        1 => (0_u8..3).prop_map(What::Configure),
        2 => Just(What::Elapse),
    ]
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let after = prop_oneof![
        8 => 0..10 * MINUTE,
        2 => 0..6 * HOUR,
        1 => -2 * HOUR..0_i64,
        1 => -400 * 24 * HOUR..400 * 24 * HOUR
    ];
    let one = (after, 0_u8..6, 0_usize..3, what()).prop_map(|(after_ms, key, backend, what)| Happening {
        after_ms,
        key,
        backend,
        what,
    });
    prop::collection::vec(one, 0..60)
}

fn modes() -> impl Strategy<Value = BackendsSettings> {
    let mode = prop::sample::select(vec![RotationMode::None, RotationMode::RoundRobin, RotationMode::TimeSliced]);
    (mode, prop::option::of(1_u32..6), prop::option::of(0_i64..4_000_000)).prop_map(|(mode, requests, cost)| {
        let mut settings = settings();
        settings.rotation.mode = mode;
        let thresholds = &mut settings.backends.get_mut("b").unwrap().thresholds;
        thresholds.max_requests_per_window = requests;
        thresholds.max_cost_per_hour = cost.map(|cost| Usd(Money(cost)));
        thresholds.max_cost_per_day = cost.map(|cost| Usd(Money(cost * 2)));
        settings
    })
}

fn observation(of: &Happening, now: Timestamp) -> BackendObservation {
    let backend = NAMES[of.backend].to_owned();
    let call = call(&of.key.to_string(), &backend);
    let seed = now.0 as u64;
    match of.what.clone() {
        What::Start(cost) => BackendObservation::CallStarted { call, likely_cost: cost.map(Money) },
        What::Answer => BackendObservation::CallAnswered { call },
        What::Succeed(cost) => BackendObservation::CallSucceeded { call, tokens: 5, cost: cost.map(Money) },
        What::Fail => BackendObservation::CallFailed { call, cost: None, error: "broke\u{1b}[2J".repeat(60), seed },
        What::Limit(kind, until) => {
            let limit = limit(kind, until.map(|ms| now.plus_ms(ms)));
            BackendObservation::CallLimited { call, cost: Some(Money(100)), limit, seed }
        }
        What::Abandon => BackendObservation::CallAbandoned { call, cost: None },
        What::Enable => BackendObservation::Enabled { backend },
        What::Disable => BackendObservation::Disabled { backend, reason: "by hand".to_owned() },
        What::Configure(number) => {
            let fingerprints = NAMES.map(|name| (name.to_owned(), number.to_string())).into();
            BackendObservation::Configured { fingerprints }
        }
        What::Elapse => BackendObservation::Elapsed,
    }
}

/// Checks the invariants of a state and of a choice made from it.
fn holds(scene: &BackendsFixture, seed: u64, now: Timestamp) -> Result<(), TestCaseError> {
    for (name, backend) in &scene.state.backends {
        if let BackendStatus::Parked(park) = &backend.status {
            prop_assert!(park.since <= now && park.until > now, "{name}: {park:?}");
            prop_assert!(park.until.since(now) <= 40 * 24 * HOUR, "{name}: {park:?}");
        }
        prop_assert!(backend.recent_errors.len() <= 10 && backend.parks.len() <= 10 && backend.in_flight.len() <= 6);
        prop_assert!(backend.recent_errors.iter().all(|error| error.text.chars().count() <= 300));
    }
    let mut request = request(Some(NAMES[seed as usize % 3]));
    request.exclude = vec![NAMES[seed as usize / 3 % 3].to_owned()];
    let choice = choose(&scene.state, &scene.settings, &request, seed, now);
    prop_assert_eq!(&choice, &choose(&scene.state, &scene.settings, &request, seed, now), "the same again");
    match choice {
        BackendChoice::Use { backend, .. } => {
            prop_assert!(!request.exclude.contains(&backend));
            prop_assert!(scene.state.backends.get(&backend).is_none_or(BackendState::is_active), "{backend}");
        }
        // A wait never ends in the past, and is reported with its reason.
        BackendChoice::Wait { until, reasons } => {
            prop_assert!(until > now && until.since(now) <= 40 * 24 * HOUR && reasons.len() == 3, "{until:?}");
        }
        BackendChoice::Never { reasons } => {
            let helpless = |blocked: &Blocked| matches!(blocked.by, BlockedBy::Excluded | BlockedBy::Disabled(..));
            prop_assert!(reasons.len() == 3 && reasons.iter().all(helpless), "{reasons:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..test_support::cases(96) })]

    #[test]
    fn invariants_hold_for_any_observations(settings in modes(), happenings in happenings(), restart in 0_usize..60, seed: u64) {
        let mut scene = BackendsFixture::new(settings);
        let mut now = START;
        for (index, of) in happenings.iter().enumerate() {
            now = now.plus_ms(of.after_ms);
            let observed = observation(of, now);
            let again = transition(scene.state.clone(), &observed, &scene.settings, now);
            let changes = scene.see(observed, now);
            prop_assert_eq!((&again.state, &again.changes), (&scene.state, &changes), "the same again");
            let stored = serde_json::to_string(&scene.state).unwrap();
            prop_assert!(stored.len() < 100_000);
            let restored: Backends = serde_json::from_str(&stored).unwrap();
            prop_assert_eq!(&restored, &scene.state);
            if index == restart {
                scene.state = restored;
            }
            holds(&scene, seed.wrapping_add(index as u64), now)?;
        }
        // Everything that is not disabled can be used again, in time: no park and no trial is for ever.
        let later = now.plus_ms(40 * 24 * HOUR + MINUTE);
        for name in NAMES {
            let mut only = request(None);
            only.exclude = NAMES.iter().filter(|other| **other != name).map(|other| (*other).to_owned()).collect();
            let disabled = matches!(scene.state.backends.get(name), Some(backend) if matches!(backend.status, BackendStatus::Disabled { .. }));
            scene.see(BackendObservation::Elapsed, later);
            let free = matches!(choose(&scene.state, &scene.settings, &only, seed, later), BackendChoice::Use { .. });
            prop_assert_eq!(free, !disabled, "{}", name);
        }
    }

    #[test]
    fn waiting_until_stated_time_avoids_busy_loop(settings in modes(), happenings in happenings()) {
        let mut scene = BackendsFixture::new(settings);
        let mut now = START;
        for of in &happenings {
            now = now.plus_ms(of.after_ms);
            scene.see(observation(of, now), now);
        }
        // With nothing else under way, each wait brings a free backend or a later end; few are needed.
        let mut waits = 0;
        while let BackendChoice::Wait { until, .. } = scene.choose(None, now) {
            now = until;
            scene.see(BackendObservation::Elapsed, now);
            waits += 1;
            prop_assert!(waits <= 12 * 60 + 10, "spins");
        }
    }

    #[test]
    fn incomplete_state_is_readable(happenings in happenings(), lacks in prop::collection::vec(0_usize..20, 1..4)) {
        let mut scene = BackendsFixture::new(settings());
        let mut now = START;
        for of in &happenings {
            now = now.plus_ms(of.after_ms);
            scene.see(observation(of, now), now);
        }
        let mut stored = serde_json::to_value(&scene.state).unwrap();
        for backend in stored["backends"].as_object_mut().unwrap().values_mut() {
            let fields = backend.as_object_mut().unwrap();
            for lack in &lacks {
                let key = fields.keys().nth(*lack).cloned();
                key.map(|key| fields.remove(&key));
            }
        }
        scene.state = serde_json::from_value(stored).unwrap();
        scene.see(BackendObservation::Elapsed, now);
        holds(&scene, 3, now)?;
    }
}

#[test]
fn empty_and_damaged_states_are_usable() {
    assert_eq!(serde_json::from_str::<Backends>("{}").unwrap(), Backends::default());
    let text = r#"{"backends":{"a":{"status":{"is":"parked","since":9000000000000000,"until":9223372036854775807,"kind":"rate"}}}}"#;
    let mut scene = BackendsFixture::new(only(&["a"]));
    scene.state = serde_json::from_str(text).unwrap();
    assert_eq!(scene.chosen(None, at(0)), "wait");
    scene.see(BackendObservation::Elapsed, at(0));
    assert_eq!(scene.chosen(None, at(40 * 24 * 60 + 1)), "a");
}
