//! Times between two agent calls on a repository with 1,000 files, compared with a bare shell loop in the same run.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::arena::Arena;
use crate::run::{self, DuelTools};
use crate::scenario::{Best, Call, Claim, Contestant, SampleRepository, Scenario, contestants, folder, read};

/// Number of files in the repository.
const FILES: usize = 1_000;
/// Number of runs of each loop.
const ROUNDS: usize = 5;
/// Time limit of a run.
const LIMIT: Duration = Duration::from_secs(60);
/// Bare loop that performs the bot's steps between two calls with plain git.
const BARE: &str = "for n in 1 2 3 4 5 6 7 8; do claude -p \"$TASK\" --dangerously-skip-permissions; git add --all; \
    git commit --quiet --message \"Iteration $n\"; if sh -c \"$CHECK\"; then exit 0; fi; done; exit 1";

/// Time from the end of one call to the start of the next, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Bot's median.
    pub ours: f64,
    /// Bare loop's median.
    pub bare: f64,
    /// Whether the bot was built with optimization, according to its program's folder.
    pub optimized: bool,
    /// Number of measured times for the bot.
    pub count: usize,
}

/// Path of the published rates.
pub fn file() -> PathBuf {
    folder().join("rates.yml")
}

/// Reads the published rates; empty if they do not exist.
pub fn published() -> anyhow::Result<BTreeMap<String, Rate>> {
    if file().exists() { read(&file()) } else { Ok(BTreeMap::new()) }
}

/// Measures all rates and publishes them.
pub fn measure(tools: &DuelTools) -> anyhow::Result<()> {
    let mut rates = BTreeMap::new();
    // Kept until the end, because ext4 without a journal takes almost a millisecond to create a file for minutes after files
    // were deleted.
    let mut arenas = Vec::new();
    let idle = Call { say: Some("I looked at it.".into()), ..Call::default() };
    let works = Call { run: Some("echo one more >> count.txt".into()), ..Call::default() };
    for (name, call) in [("idle agent", idle), ("agent that changes a file", works)] {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            for contestant in [&contestants("ours.yml")?[0], &bare_loop()] {
                let times = if contestant.isolates { &mut ours } else { &mut bare };
                let arena = run_once(contestant, &call, tools)?;
                times.extend(gaps(&arena));
                arenas.push(arena);
            }
        }
        let count = ours.len();
        let rate = Rate { ours: median(ours), bare: median(bare), optimized: tools.is_optimized(), count };
        println!(
            "{name}: {:.1} ms, bare loop {:.1} ms, ratio {:.2}, {count} times",
            rate.ours,
            rate.bare,
            rate.ours / rate.bare
        );
        rates.insert(name.to_owned(), rate);
    }
    let rows: String = rates.iter().map(|(name, rate)| format!("{name}: {}\n", serde_json::json!(rate))).collect();
    fs::write(file(), format!("# Written by `cargo run --release -p duel -- rates`.\n{rows}"))?;
    Ok(())
}

fn bare_loop() -> Contestant {
    Contestant {
        name: "bare".into(),
        package: String::new(),
        setting: String::new(),
        unavailable: None,
        files: BTreeMap::new(),
        command: BARE.into(),
        done: None,
        branch: None,
        claim: Claim::default(),
        isolates: false,
    }
}

/// Runs a loop once.
fn run_once(contestant: &Contestant, call: &Call, tools: &DuelTools) -> anyhow::Result<Arena> {
    let file = |n: usize| (format!("src/part{}/file{n}.txt", n % 20), Some(format!("line of file {n}\n").repeat(50)));
    let mut files: BTreeMap<_, _> = (0..FILES).map(file).collect();
    files.insert("count.txt".into(), Some(String::new()));
    // The check reports each line as a passed test, because a loop without progress would be paused.
    let check = "n=$(wc -l <count.txt); echo \"test result: FAILED. $n passed; $((8 - n)) failed; 0 ignored; 0 measured\"; test $n -ge 8";
    let repository = SampleRepository {
        task: "Add lines to count.txt.".into(),
        check: check.into(),
        files,
        sources: Vec::new(),
        hidden: BTreeMap::new(),
        judge: String::new(),
        states: BTreeMap::new(),
        needs: Vec::new(),
    };
    let scenario = Scenario {
        name: "rates".into(),
        class: String::new(),
        about: String::new(),
        repository: String::new(),
        best: Best::Done,
        files: BTreeMap::new(),
        check: None,
        calls: vec![call.clone()],
        cycle: false,
        hint: None,
    };
    let arena = Arena::new(&scenario, &repository, &contestant.claim)?;
    run::run(contestant, &scenario, &repository, &arena, tools, LIMIT)?;
    Ok(arena)
}

/// Returns the times between a run's calls, in milliseconds.
fn gaps(arena: &Arena) -> Vec<f64> {
    let gap = |pair: &[crate::arena::SeenCall]| Some(pair[1].began.duration_since(pair[0].ended?).as_secs_f64() * 1e3);
    arena.calls().windows(2).filter_map(gap).collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
