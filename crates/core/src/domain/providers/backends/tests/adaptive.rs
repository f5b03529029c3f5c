//! Mode `adaptive`: progress per cost.

use super::super::thompson::beta;
use super::*;

/// Returns the shares of choices of `a`, `b`, `c` over seeds.
fn shares(scene: &BackendsFixture, request: &CallRequest) -> [f64; 3] {
    let mut counts = [0.0; 3];
    for seed in 0..400 {
        match choose(&scene.state, &scene.settings, request, seed, at(0)) {
            BackendChoice::Use { backend, .. } => counts[usize::from(backend.as_bytes()[0] - b'a')] += 1.0 / 400.0,
            other => panic!("{other:?}"),
        }
    }
    counts
}

fn scene() -> BackendsFixture {
    let mut scene = BackendsFixture::new(settings());
    scene.settings.rotation.mode = RotationMode::Adaptive;
    scene
}

fn judge(
    scene: &mut BackendsFixture,
    backend: &str,
    task_type: TaskType,
    progress: f64,
    usd: Option<f64>,
    times: usize,
) {
    for _ in 0..times {
        let cost = usd.map(Money::from_usd);
        scene.see(BackendObservation::Judged { backend: backend.to_owned(), task_type, progress, cost }, at(0));
    }
}

#[test]
fn draws_have_mean_and_deviation_of_distribution() {
    for (a, b) in [(1.0, 1.0), (0.3, 0.7), (2.0, 5.0), (40.0, 160.0)] {
        let mut rng = luck(7, "test");
        let draws: Vec<f64> = (0..8_000).map(|_| beta(a, b, &mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / 8_000.0;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / 8_000.0;
        let (expected, spread) = (a / (a + b), a * b / ((a + b).powi(2) * (a + b + 1.0)));
        assert!(
            (mean - expected).abs() < 0.015 && (variance / spread - 1.0).abs() < 0.08,
            "{a} {b}: {mean} {variance}"
        );
        assert!(draws.iter().all(|draw| (0.0..=1.0).contains(draw)));
    }
    assert!(beta(1e-300, 1e-300, &mut luck(1, "")).is_finite());
}

#[test]
fn cheaper_progress_is_preferred_after_trying_all() {
    let mut scene = scene();
    let even = shares(&scene, &request(None));
    assert!(even.iter().all(|share| (0.22..0.45).contains(share)), "{even:?}");
    judge(&mut scene, "a", TaskType::TestFix, 0.3, Some(2.0), 40);
    judge(&mut scene, "b", TaskType::TestFix, 0.25, Some(0.3), 40);
    judge(&mut scene, "c", TaskType::TestFix, 0.01, Some(0.1), 40);
    let learnt = shares(&scene, &request(None));
    assert!(learnt[1] > 0.9, "{learnt:?}");
    // What was learnt on one sort of task says a little about another, not all.
    judge(&mut scene, "c", TaskType::Docs, 0.9, Some(0.1), 40);
    let mut docs = request(None);
    docs.task_type = TaskType::Docs;
    assert!(shares(&scene, &docs)[2] > 0.6, "{:?}", shares(&scene, &docs));
    // A session that could go on is worth something.
    assert!(shares(&BackendsFixture { state: Backends::default(), ..scene }, &request(Some("a")))[0] > 0.36);
}

#[test]
fn unknown_costs_count_as_average_and_free_models_need_progress() {
    let mut scene = scene();
    judge(&mut scene, "a", TaskType::TestFix, 0.2, None, 60);
    judge(&mut scene, "b", TaskType::TestFix, 0.2, Some(1.0), 60);
    scene.settings.backends.remove("c");
    let known = shares(&scene, &request(None));
    assert!(known[0] > 0.3 && known[1] > 0.3, "{known:?}");
    scene.settings = BackendsSettings { rotation: scene.settings.rotation, ..only(&["b", "c"]) };
    judge(&mut scene, "c", TaskType::TestFix, 0.0, Some(0.0), 60);
    let free = shares(&scene, &request(None));
    assert!(free[2] < 0.2, "{free:?}");
}

#[test]
fn implausible_statistics_are_ignored() {
    let mut scene = scene();
    for progress in [f64::NAN, f64::INFINITY, -5.0, 1e300] {
        judge(&mut scene, "a", TaskType::Other, progress, Some(-3.0), 300);
    }
    let posterior = scene.state.posteriors.of("a", TaskType::Other);
    assert!((posterior.gained + posterior.missed - 200.0).abs() < 1e-6 && posterior.cost == 0.0, "{posterior:?}");
    let broken = r#"{"posteriors":{"a":{"test-fix":{"gained":-1e308,"missed":1e308,"priced":-4}}}}"#;
    scene.state = serde_json::from_str(broken).unwrap();
    shares(&scene, &request(None));
}

#[test]
fn improved_backend_is_preferred_again() {
    let mut scene = scene();
    judge(&mut scene, "a", TaskType::TestFix, 0.5, Some(1.0), 1_000);
    judge(&mut scene, "b", TaskType::TestFix, 0.1, Some(1.0), 1_000);
    judge(&mut scene, "c", TaskType::TestFix, 0.05, Some(1.0), 1_000);
    judge(&mut scene, "a", TaskType::TestFix, 0.05, Some(1.0), 400);
    judge(&mut scene, "b", TaskType::TestFix, 0.5, Some(1.0), 400);
    assert!(shares(&scene, &request(None))[1] > 0.9);
}
