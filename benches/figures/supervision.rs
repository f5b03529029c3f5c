//! What deciding costs: a step of control, a look of the overseer, the state that is kept, and a replay.

use std::time::Duration;

use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::model::record::Record;
use ralph_bot::domain::simulate::{Agent, Mix, Order, seed_of};
use ralph_bot::domain::supervision::SupervisionSettings;
use ralph_bot::domain::supervision::TaskFacts;
use ralph_bot::domain::supervision::control::{ControlSettings, ControlState};
use ralph_bot::domain::supervision::oversight::{self, ControlView, OverseerState, OversightSettings};
use ralph_bot::domain::supervision::replay::{Line, Trace};

use crate::Run;
use crate::report::{Row, Target};

/// What is measured, for the page.
pub const WORDS: &str = "Loops of the simulated agent (`ralph-bot simulate`), in one thread. A step of control and a look of \
the overseer are timed one by one over the hundredth iteration of many loops, so that the history has 100 iterations; given \
is the slowest of 100. The state is the largest that is exported by control, with a hundred blockers an iteration. A replay \
reads traces of 100 iterations from their text, takes each through control, oversight and strategy, and writes its lines. \
The only other implementation that we know of publishes below 10 ms for control and about 200 ms for oversight, an iteration.";

const NAME: &str = "supervision";
/// Iterations of a loop.
const HISTORY: usize = 100;
/// Loops that are timed.
const LOOPS: u64 = 2000;

/// Runs all of it.
pub fn run(run: &mut Run) -> anyhow::Result<()> {
    let facts = TaskFacts { max_iterations: 200.0, ..TaskFacts::default() };
    let mix = Mix::named("everyday").unwrap_or_default();
    let histories: Vec<Vec<Record>> = (0..LOOPS).map(|task| history(&mix, task)).collect();
    let (control, oversight) = times(&histories, &facts);
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    run.add(Row::new(NAME, "a step of control, 99 of 100", micros(control), "µs").target(Target::Below(50.0)));
    let row = Row::new(NAME, "a look of the overseer at 100 iterations, 99 of 100", micros(oversight), "µs");
    run.add(row.target(Target::Below(200.0)));
    run.add(Row::new(NAME, "the state of control", state_kib(&histories, &facts), "KiB").target(Target::Below(64.0)));
    run.add(Row::new(NAME, "replayed iterations", replayed(&histories)?, "/s").target(Target::AtLeast(10_000.0)));
    Ok(())
}

/// A loop that is never finished, as the agent leaves it.
fn history(mix: &Mix, task: u64) -> Vec<Record> {
    let mut agent = Agent::of(mix, seed_of(1, task));
    let unfinished = |mut record: Record| {
        record.completion = record.completion.min(0.9);
        record.checks.iter_mut().for_each(|check| check.passed &= check.name != "test");
        record
    };
    (0..HISTORY).map(|_| unfinished(agent.iterate(&Order::default()).0)).collect()
}

/// The 99th percentile of a step and of a look, at the last iteration of each history.
fn times(histories: &[Vec<Record>], facts: &TaskFacts) -> (Duration, Duration) {
    let (control, oversight) = (ControlSettings::default(), OversightSettings::default());
    let (mut steps, mut looks) = (Vec::new(), Vec::new());
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
                looks.push(watch.elapsed());
            }
            std::hint::black_box(verdict);
        }
    }
    (percentile(&mut steps), percentile(&mut looks))
}

fn percentile(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() * 99 / 100).copied().unwrap_or_default()
}

/// The largest exported state, in KiB.
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

/// Iterations a second, from text to text.
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
            std::hint::black_box(serde_json::to_string(&Line::from(&review))?);
            iterations += 1;
        }
    }
    Ok(f64::from(iterations) / watch.elapsed().as_secs_f64())
}
