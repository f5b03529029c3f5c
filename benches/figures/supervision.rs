//! Cost of supervision: a step of control, a review by the overseer, the stored state, and a replay.

use std::time::Duration;

use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::model::ids::Ratio;
use ralph_bot::domain::model::record::{CheckFact, Record};
use ralph_bot::domain::supervision::control::{ControlSettings, ControlState};
use ralph_bot::domain::supervision::oversight::{self, ControlView, OverseerState, OversightSettings};
use ralph_bot::domain::supervision::replay::{ReplayLine, Trace};
use ralph_bot::domain::supervision::{SupervisionSettings, TaskFacts};

use crate::FigureRun;
use crate::report::{FigureRow, FigureTarget};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    The test uses generated loops of 100 iterations, in one thread. It measures each step of control and each \
    review of the hundredth iteration. The state is the largest export of control, with a hundred blockers per \
    iteration. A replay parses traces, runs control, oversight and strategy, and serializes the results. Another \
    implementation publishes less than 10 ms for control and about 200 ms for oversight.";

const NAME: &str = "supervision";
/// Number of iterations of a loop.
const HISTORY: usize = 100;
/// Number of timed loops.
const LOOPS: u64 = 2000;

/// Measures all rows.
pub fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let facts = TaskFacts { max_iterations: 200.0, ..TaskFacts::default() };
    let histories: Vec<Vec<Record>> = (0..LOOPS).map(history).collect();
    let (control, oversight) = times(&histories, &facts);
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    run.add(
        FigureRow::new(NAME, "step of control, 99th percentile", micros(control), "µs")
            .target(FigureTarget::Below(50.0)),
    );
    let row =
        FigureRow::new(NAME, "review by the overseer at 100 iterations, 99th percentile", micros(oversight), "µs");
    run.add(row.target(FigureTarget::Below(200.0)));
    run.add(
        FigureRow::new(NAME, "state of control", state_kib(&histories, &facts), "KiB")
            .target(FigureTarget::Below(64.0)),
    );
    run.add(
        FigureRow::new(NAME, "replayed iterations", replayed(&histories)?, "/s")
            .target(FigureTarget::AtLeast(10_000.0)),
    );
    Ok(())
}

/// Returns the records of a loop that never finishes: random progress with plateaus and setbacks, and recurring errors.
fn history(seed: u64) -> Vec<Record> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut passing, mut error, mut tree) = (0.0_f64, 0_u8, 0_u64);
    let record = |iteration: usize| {
        let tests = 60.0;
        match random.u8(..10) {
            0..4 => {}
            4..6 => passing = f64::max(passing - 3.0, 0.0),
            _ => (passing, error) = (f64::min(passing + f64::from(random.u8(..4)), 0.9 * tests), error.wrapping_add(1)),
        }
        // Supervision ignores digits in error messages.
        let case = char::from(b'a' + error % 26);
        tree = if random.bool() { tree } else { random.u64(..) };
        Record {
            iteration: iteration as f64,
            completion: Ratio::new(passing / tests),
            quality: 1.0,
            errors: f64::from(random.u8(1..3)),
            tests_passing: Some(passing),
            tests_failing: Some(tests - passing),
            tests_skipped: Some(0.0),
            error_signature: Some(format!("assertion failed in case_{case}: left != right")),
            learnings: vec![format!("case {case} needs another token")],
            reflection: Some(format!("case {case} needs another token")),
            summary: "Changed the parser so that more of its failing tests pass".to_owned(),
            files: vec![format!("src/parser/part{}.rs", random.u8(..9))],
            tree: Some(format!("{tree:016x}")),
            checks: vec![CheckFact { name: "test".to_owned(), passed: false, baseline: Some(false) }],
            duration_s: 300.0,
            tool_calls: 40.0,
            cost_usd: 1.0,
            ..Record::default()
        }
    };
    (1..=HISTORY).map(record).collect()
}

/// Returns two 99th percentiles: the time of a control step, and the time of a review of the last iteration.
fn times(histories: &[Vec<Record>], facts: &TaskFacts) -> (Duration, Duration) {
    let (control, oversight) = (ControlSettings::default(), OversightSettings::default());
    let (mut steps, mut reviews) = (Vec::new(), Vec::new());
    for history in histories {
        let (mut state, mut overseer) = (ControlState::default(), OverseerState::default());
        for at in 0..history.len() {
            let watch = Stopwatch::start();
            let decision = state.step(&history[at], facts, &control);
            steps.push(watch.elapsed());
            let view = ControlView::from(&decision);
            let watch = Stopwatch::start();
            let verdict = oversight::review(&mut overseer, &history[..=at], facts, &view, &oversight);
            if at + 1 == history.len() {
                reviews.push(watch.elapsed());
            }
            std::hint::black_box(verdict);
        }
    }
    (percentile(&mut steps), percentile(&mut reviews))
}

fn percentile(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() * 99 / 100).copied().unwrap_or_default()
}

/// Returns the size of the largest exported state, in KiB.
fn state_kib(histories: &[Vec<Record>], facts: &TaskFacts) -> f64 {
    let settings = ControlSettings::default();
    let mut largest = 0;
    for history in histories.iter().take(50) {
        let mut state = ControlState::default();
        for (at, record) in history.iter().enumerate() {
            let blockers = (0..100).map(|n| format!("service {} is not there {at}", "x".repeat(n))).collect();
            state.step(&Record { blockers, ..record.clone() }, facts, &settings);
            largest = largest.max(state.export().len());
        }
    }
    largest as f64 / 1024.0
}

/// Returns the number of replayed iterations per second, from text to text.
fn replayed(histories: &[Vec<Record>]) -> anyhow::Result<f64> {
    let settings = SupervisionSettings::default();
    let lines = |history: &Vec<Record>| -> Result<String, serde_json::Error> {
        Ok(history.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?.join("\n"))
    };
    let texts: Result<Vec<String>, _> = histories.iter().take(200).map(lines).collect();
    let texts = texts?;
    let watch = Stopwatch::start();
    let mut iterations = 0;
    for text in &texts {
        for (_, review) in Trace::parse(text)?.reviews(&settings) {
            std::hint::black_box(serde_json::to_string(&ReplayLine::from(&review))?);
            iterations += 1;
        }
    }
    Ok(f64::from(iterations) / watch.elapsed().as_secs_f64())
}
