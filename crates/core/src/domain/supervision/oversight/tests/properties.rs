//! Property tests for arbitrary histories: no panic, deterministic results, and a state that survives export and import.

use proptest::prelude::*;

use super::*;
use crate::domain::model::record::CheckFact;

fn figure() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), 0.0..=1.0, Just(0.3), Just(1.0)]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,2}", "[ -~é/.:]{0,60}", any::<String>()]
}

prop_compose! {
    fn record()(
        figures in prop::array::uniform8(figure()),
        texts in prop::array::uniform4(text()),
        files in prop::collection::vec("[a-c]{1,2}(/[a-c])?", 0..5),
        outcomes in prop::collection::vec(("[ab]", any::<bool>(), any::<Option<bool>>()), 0..4),
        some in prop::array::uniform8(any::<bool>()),
    ) -> Record {
        let check = |(name, passed, baseline)| CheckFact { name, passed, baseline };
        let [error, reflection, summary, failure] = texts;
        let record = Record {
            iteration: figures[0] * 10.0,
            completion: Ratio::new(figures[1]),
            errors: figures[2],
            tests_passing: some[0].then_some(figures[3] * 20.0),
            tests_failing: some[1].then_some(figures[4] * 20.0),
            coverage: some[2].then_some(figures[5] * 100.0),
            cost_usd: figures[6],
            tool_calls: figures[7] * 10_000.0,
            error_signature: some[3].then_some(error),
            reflection: some[4].then_some(reflection),
            tree: some[5].then(|| files.join("")),
            agent_failure: (some[6] && some[7]).then_some(failure),
            tampering: if some[6] && !some[7] { vec![summary.clone()] } else { Vec::new() },
            summary,
            files,
            checks: outcomes.into_iter().map(check).collect(),
            ..Record::default()
        };
        if some[0] { record.cleaned().0 } else { record }
    }
}

proptest! {
    #![proptest_config(test_support::cases(200))]

    #[test]
    fn every_history_gives_a_valid_decision(
        records in prop::collection::vec(record(), 1..14),
        task in text(),
        estimate in prop::option::of(figure()),
        alarm in prop::sample::select(vec![AlarmKind::StuckLoop, AlarmKind::Regression, AlarmKind::ResourceBurn, AlarmKind::Oscillation]),
        resume_at in 0..14_usize,
    ) {
        let facts = TaskFacts { task, estimated_iterations: estimate, ..TaskFacts::default() };
        let control = ControlView { alarms: vec![(alarm, DetectionSeverity::Critical)], ..ControlView::default() };
        let settings = OversightSettings::default();
        let mut state = OverseerState::default();
        let mut twin = OverseerState::default();
        for until in 1..=records.len() {
            if until == resume_at {
                state.resume(until as u32, "ann", &settings);
                twin.resume(until as u32, "ann", &settings);
            }
            let verdict = review(&mut state, &records[..until], &facts, &control, &settings);
            // The twin is stored and read back after each iteration.
            let stored = serde_json::to_string(&twin).expect("a state is JSON");
            twin = serde_json::from_str(&stored).expect("and comes back");
            let again = review(&mut twin, &records[..until], &facts, &control, &settings);
            prop_assert_eq!(format!("{verdict:?}"), format!("{again:?}"));
            prop_assert_eq!(&state, &twin);
            let stored = serde_json::to_string(&verdict).expect("a verdict is JSON");
            prop_assert!(serde_json::from_str::<OversightVerdict>(&stored).is_ok(), "{}", stored);
            prop_assert_eq!(verdict.detections.len(), verdict.interventions.len());
            prop_assert!(verdict.interventions.iter().all(|done| !done.reason.contains('\n')));
        }
        let size = serde_json::to_string(&state).expect("a state is JSON").len();
        prop_assert!(size < 16 * 1024, "the state has {} bytes", size);
    }

    #[test]
    fn causes_are_ordered_by_rank_for_any_history(
        records in prop::collection::vec(record(), 1..14),
        task in text(),
        seed in any::<bool>(),
    ) {
        let facts = TaskFacts { task, ..TaskFacts::default() };
        let settings = if seed { pinned_settings() } else { OversightSettings::default() };
        let mut state = OverseerState::default();
        for until in 1..=records.len() {
            let verdict = review(&mut state, &records[..until], &facts, &ControlView::default(), &settings);
            let acted = || verdict.interventions.iter().filter(|done| done.level > InterventionLevel::Log);
            let direct = acted().any(|done| done.basis != Basis::Words);
            let headline = verdict.headline().map(|done| done.basis);
            prop_assert!(!direct || headline != Some(Basis::Words), "{:?}", verdict.interventions);
            let most = verdict.interventions.iter().map(|done| done.level).max().filter(|most| *most >= InterventionLevel::Pause);
            prop_assert!(most.is_none() || verdict.headline().map(|done| done.level) == most, "{:?}", verdict.interventions);
            let at = |kind| verdict.interventions.iter().position(|done| done.kind == kind);
            let kinds: Vec<_> = verdict.detections.iter().map(|found| at(found.kind)).collect();
            prop_assert_eq!(kinds, (0..verdict.detections.len()).map(Some).collect::<Vec<_>>());
            for found in &verdict.detections {
                let row = found.kind.row();
                let named = |signal: &str| row.signals.iter().any(|(name, _)| *name == signal);
                prop_assert!(found.evidence.iter().all(|evidence| named(&evidence.signal)), "{:?}", found.evidence);
            }
        }
    }

    #[test]
    fn deviation_alone_never_pauses(
        words in prop::collection::vec((text(), text(), prop::option::of(0.0..0.4_f64), prop::collection::vec("[a-z]{4}/[a-z]{4}", 0..9)), 1..40),
        task in text(),
        redirects in 1..4_u32,
    ) {
        let facts = TaskFacts { task, scope: vec!["src/login".to_owned()], ..TaskFacts::default() };
        let mut settings = OversightSettings { redirects, ..OversightSettings::default() };
        for kind in DetectionKind::ALL.iter().filter(|kind| **kind != DetectionKind::Deviation) {
            *settings.enabled_mut(*kind) = false;
        }
        let records = trace(&vec![0.3; words.len()], |at, record| {
            let (summary, learning, similarity, files) = words[at].clone();
            (record.summary, record.learnings, record.files) = (summary, vec![learning], files);
            record.objective_similarity = similarity;
        });
        let mut state = OverseerState::default();
        for until in 1..=records.len() {
            let verdict = review(&mut state, &records[..until], &facts, &ControlView::default(), &settings);
            prop_assert!(verdict.decision < OversightDecision::Pause, "{:?}", verdict.interventions);
            prop_assert!(verdict.detections.iter().all(|found| found.severity < DetectionSeverity::Critical));
        }
    }
}

#[test]
fn empty_history_gives_no_decision() {
    assert_eq!(ReviewedLoop::default().review(&[]), OversightVerdict::default());
}
