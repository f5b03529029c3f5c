//! Regression: compared with the best iteration, fewer tests or checks pass, coverage is lower, or completion falls.

use super::DetectionKind;
use super::basis::Basis;
use super::definition::{DetectionDefinition, DetectionRow, detection_settings};
use super::detection::{Detection, DetectionEvidence, DetectionSeverity};
use super::detection_input::{DetectionInput, check, line, number, percent};
use super::intervention::InterventionLevel;
use super::state::OverseerState;
use crate::domain::model::comparison::added;
use crate::domain::model::record::{CheckFact, Record};
use crate::domain::supervision::control::AlarmKind;

detection_settings! {
    /// Conditions of a regression.
    RegressionSettings {
        /// Whether it is a signal if tests or checks passed before and fail now.
        #[schemars(skip)]
        pub test_pass_to_fail: bool = true;
        /// Number of consecutive iterations that must show a loss; with 1, one flaky run is enough.
        pub consecutive: u32 = 2, in 1..=100;
        /// Share of all tests above which a loss is a regression at once, without a second iteration.
        #[schemars(skip)]
        pub sudden_loss: f64 = 0.2, in 0.0..=1.0;
        /// Loss of coverage, in percentage points, above which the detection is raised.
        #[schemars(skip)]
        pub coverage_drop_percent: f64 = 10.0, in 0.0..=100.0;
        /// Completion lost in consecutive iterations at which the detection is raised.
        #[schemars(skip)]
        pub completion_fall: f64 = 0.02, in 0.0..=1.0;
        /// Number of times that the best iteration is restored before a critical regression ends the loop.
        #[schemars(skip)]
        pub restores: u32 = 1, in 0..=100;
    }
}

impl DetectionDefinition for RegressionSettings {
    const ROW: DetectionRow = DetectionRow {
        title: "A check that passed now fails",
        pattern: "a check or a test that passed now fails, twice in a row, or coverage falls",
        signals: &[
            ("baseline_check", Basis::Measured),
            ("check", Basis::Measured),
            ("tests", Basis::Measured),
            ("failures", Basis::Measured),
            ("coverage", Basis::Measured),
            ("completion", Basis::Derived),
            ("alarm", Basis::Derived),
        ],
        effect: "critical: the best iteration is restored before the PAUSE",
        order: "First fix the check that used to pass.",
        advice: &[
            "Fix the check that used to pass before anything else.",
            "Compare with the best iteration and revert the change that broke it.",
        ],
        high: InterventionLevel::Warn,
        profile: |schedule| &schedule.sensitive,
        of_approach: true,
    };

    fn detect(&self, input: &DetectionInput<'_>) -> Option<Detection> {
        let mut evidence = Vec::new();
        let mut severity = DetectionSeverity::High;
        if self.test_pass_to_fail {
            let lost = lost_checks(input);
            for (name, at_baseline) in &lost {
                if *at_baseline {
                    severity = DetectionSeverity::Critical;
                }
                let signal = if *at_baseline { "baseline_check" } else { "check" };
                let when = if *at_baseline { "before the first iteration" } else { "in an earlier iteration" };
                let runs = self.consecutive;
                let text = format!("check `{}` passed {when} and has failed for {runs} iterations", line(name));
                evidence.push(DetectionEvidence::new(signal, runs, runs, text));
            }
            evidence.extend(lost_tests(input));
            evidence.extend(more_failures(input));
        }
        evidence.extend(lost_coverage(input));
        evidence.extend(falling_completion(input));
        // Control ignores weakened checks, so later iterations look like a regression to it.
        let best = || input.history.iter().map(|record| record.completion.get()).fold(0.0, f64::max);
        let seeming = input.partial && input.last.completion.get() >= best();
        if !seeming && input.control.alarm(AlarmKind::Regression) == Some(DetectionSeverity::Critical) {
            evidence.push(DetectionEvidence::new(
                "alarm",
                1,
                1,
                "the controller raised the alarm \"regression\"".to_owned(),
            ));
        }
        let about = evidence.first().map(|evidence| evidence.signal.clone())?;
        Some(Detection::of(DetectionKind::Regression, severity, evidence)?.about(&about))
    }

    fn ends_loop(&self, input: &DetectionInput<'_>, state: &OverseerState) -> bool {
        input.settings.strict_regression || state.restores >= self.restores && !state.is_held()
    }
}

/// Returns the number of the best earlier iteration: most passing checks, then highest completion, then newest. 0 is the
/// state before the first iteration, if more checks passed there. `None` if no earlier state is better than the newest
/// iteration. Ignores iterations that weakened checks.
pub(super) fn best_iteration(history: &[Record]) -> Option<u32> {
    let passed = |record: &Record| record.checks.iter().filter(|check| check.passed).count();
    let rank = |record: &Record| (passed(record), record.completion);
    let (last, before) = history.split_last()?;
    let mut best = None;
    for (at, record) in before.iter().enumerate() {
        if record.tampering.is_empty() && best.is_none_or(|best: usize| rank(record) >= rank(&before[best])) {
            best = Some(at);
        }
    }
    let baseline = last.checks.iter().filter(|check| check.baseline == Some(true)).count();
    match best {
        Some(at) if passed(&before[at]) >= baseline => {
            (rank(&before[at]) > rank(last)).then(|| number(&history[..=at]))
        }
        _ => (baseline > passed(last)).then_some(0),
    }
}

/// Returns the checks that passed earlier and failed in each of the last iterations. A flag states whether a check passed
/// before the first iteration.
fn lost_checks(input: &DetectionInput<'_>) -> Vec<(String, bool)> {
    let runs = input.settings.regression.consecutive;
    let (recent, history) = (input.recent(runs), input.history);
    if recent.len() < runs as usize {
        return Vec::new();
    }
    let before = &history[..history.len() - recent.len()];
    let passed_in = |record: &Record, at: usize, name: &str| check(record, at, name).is_some_and(|check| check.passed);
    let lost = |(at, fact): (usize, &CheckFact)| {
        let fails_now = recent.iter().all(|record| check(record, at, &fact.name).is_some_and(|check| !check.passed));
        let at_baseline = fact.baseline == Some(true);
        let passed = || at_baseline || before.iter().any(|record| passed_in(record, at, &fact.name));
        (fails_now && passed()).then(|| (fact.name.clone(), at_baseline))
    };
    let mut lost: Vec<_> = input.last.checks.iter().enumerate().filter_map(lost).collect();
    lost.sort_by_key(|(_, at_baseline)| !at_baseline);
    lost
}

/// Returns evidence that fewer tests pass than in the best iteration. Either far fewer pass in the newest iteration, or
/// fewer pass and some fail in each of the last `consecutive` iterations. `None` if more tests pass than in the previous
/// iteration.
fn lost_tests(input: &DetectionInput<'_>) -> Option<DetectionEvidence> {
    let settings = &input.settings.regression;
    let now = input.last.tests_passing?;
    if let [.., before, _] = input.history
        && before.tests_passing.is_some_and(|before| now > before)
    {
        return None;
    }
    let most = |records: &[Record]| records.iter().filter_map(|record| record.tests_passing).fold(0.0, f64::max);
    let best = most(input.history);
    let all = best.max(now + input.last.tests_failing.unwrap_or(0.0));
    let sudden = best - now > (all * settings.sudden_loss).max(1.0);
    let recent = input.recent(settings.consecutive);
    let best_before = most(&input.history[..input.history.len() - recent.len()]);
    let lasting = input.last.tests_failing.is_some_and(|failing| failing > 0.0)
        && recent.len() >= settings.consecutive as usize
        && recent.iter().all(|record| record.tests_passing.is_some_and(|passing| passing < best_before));
    let text = format!("{now} tests pass; {best} passed earlier");
    (sudden || lasting).then(|| DetectionEvidence::new("tests", now, best, text))
}

/// Returns evidence of additional failures that are known by name but not counted. In each of the last iterations, all
/// failures of an earlier iteration recur, with at least one new failure.
fn more_failures(input: &DetectionInput<'_>) -> Option<DetectionEvidence> {
    let runs = input.settings.regression.consecutive;
    let recent = input.recent(runs);
    if recent.len() < runs as usize {
        return None;
    }
    let before = &input.history[..input.history.len() - recent.len()];
    let worse = |then: &&Record| recent.iter().all(|record| added(&then.failures, &record.failures).is_some());
    let then = before.iter().filter(worse).min_by_key(|then| then.failures.len())?;
    let (few, many) = (then.failures.len(), input.last.failures.len());
    let new = added(&then.failures, &input.last.failures)?;
    let text = format!("{many} failures; the fewest were {few}; new: {}", line(new.first()?));
    Some(DetectionEvidence::new("failures", many as f64, few as f64, text))
}

/// Returns evidence that coverage fell by more than `coverage_drop_percent` percentage points, in one or several steps.
fn lost_coverage(input: &DetectionInput<'_>) -> Option<DetectionEvidence> {
    let allowed = input.settings.regression.coverage_drop_percent;
    let now = input.last.coverage?;
    let best = input.history.iter().filter_map(|record| record.coverage).fold(now, f64::max);
    let text = format!("coverage is {now:.1} %, down from {best:.1} %");
    (best - now > allowed).then(|| DetectionEvidence::new("coverage", best - now, allowed, text))
}

/// Returns evidence that completion fell in each of the last iterations, and in total by more than noise.
fn falling_completion(input: &DetectionInput<'_>) -> Option<DetectionEvidence> {
    let settings = &input.settings.regression;
    let newest_first = input.history.windows(2).rev();
    let falls =
        newest_first.map(|pair| pair[0].completion.get() - pair[1].completion.get()).take_while(|fall| *fall > 0.0);
    let (runs, fall) = falls.fold((0, 0.0), |(runs, sum), fall| (runs + 1, sum + fall));
    let text = format!("completion fell by {} in {runs} iterations in a row", percent(fall));
    let falling = runs >= settings.consecutive && fall >= settings.completion_fall;
    falling.then(|| DetectionEvidence::new("completion", fall, settings.completion_fall, text))
}
