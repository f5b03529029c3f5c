//! Simulation: the real state machine and the real store against a world of plain values, with seeded schedules of crashes,
//! lost responses, late calls, repeated and lost deliveries, and processes wrongly considered dead.
//!
//! `RALPH_SIM_SEEDS=n` plays n seeds; `RALPH_SIM_SEED=n` plays one seed and prints each step.

mod invariants;
mod rng;
mod run;
mod script;
mod world;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use ralph_bot::store::loops;
use run::{SOMETIMES, Sim};

/// Default number of seeds; CI plays 200.
const SEEDS: u64 = 40;

/// Plays a seed with faults and, if the script allows it, also without faults, and compares the outcomes. Returns the rare branches
/// that it reached.
fn play(seed: u64, trace: bool) -> BTreeSet<&'static str> {
    let end = |faults: bool| {
        let mut sim = Sim::new(seed, faults, trace);
        sim.play();
        let at_end = invariants::outcome(&sim.world, &sim.write(|c| loops::list(c, false, 1_000)));
        sim.finish();
        let open = sim.write(|c| loops::list(c, true, 1_000));
        assert!(open.is_empty(), "{} loops did not end", open.len());
        (at_end, sim)
    };
    let (with_faults, sim) = end(true);
    if sim.staged() {
        if trace {
            println!("without faults:");
        }
        let (without, _) = end(false);
        assert_eq!(
            serde_json::to_string_pretty(&with_faults).expect("JSON"),
            serde_json::to_string_pretty(&without).expect("JSON"),
            "faults changed the outcome"
        );
    }
    sim.reached
}

#[expect(clippy::disallowed_methods, reason = "which seeds to play is asked of the environment, here only")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn invariants_hold_for_every_seed() {
    if let Some(seed) = number("RALPH_SIM_SEED") {
        play(seed, true);
        return;
    }
    let (seeds, next) = (number("RALPH_SIM_SEEDS").unwrap_or(SEEDS), AtomicU64::new(0));
    let worker = || {
        let mut failed = Vec::new();
        let mut reached = BTreeSet::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return (failed, reached);
            }
            match catch_unwind(AssertUnwindSafe(|| play(seed, false))) {
                Ok(of_seed) => reached.extend(of_seed),
                Err(_) => {
                    eprintln!("seed {seed} fails; RALPH_SIM_SEED={seed} prints its steps");
                    failed.push(seed);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let ended: Vec<(Vec<u64>, BTreeSet<&str>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|w| w.join().expect("a worker")).collect()
    });
    let failed: Vec<u64> = ended.iter().flat_map(|(failed, _)| failed.clone()).collect();
    assert!(failed.is_empty(), "{} of {seeds} seeds fail: {failed:?}", failed.len());
    let is_missed = |branch: &&str| !ended.iter().any(|(_, reached)| reached.contains(*branch));
    let missed: Vec<&str> = SOMETIMES.into_iter().filter(is_missed).collect();
    assert!(seeds < SEEDS || missed.is_empty(), "no seed reaches: {missed:?}");
}
