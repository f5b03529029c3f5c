//! What a simulation takes, and what it comes to: every policy over one mix.

use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::simulate::{Mix, contenders, figures, play_all};
use ralph_bot::domain::supervision::SupervisionSettings;

use crate::report::Row;
use crate::{Run, Size};

/// What is measured, for the page.
pub const WORDS: &str = "Tasks of the simulated agent in the mix `everyday`, each played by every policy that \
`ralph-bot simulate` compares, in one thread. A task counts once for each policy. The gap is the one in worth between a limit \
of ten iterations and an oracle; what it means, and the figures of all mixes, is in docs/simulation.md.";

const NAME: &str = "simulate";
/// What luck begins with.
const SEED: u64 = 1;

/// Runs all of it.
pub fn run(run: &mut Run) -> anyhow::Result<()> {
    let tasks = match run.size {
        Size::Brief => 20,
        Size::Usual => 300,
        Size::Full => 1000,
    };
    let mix = Mix::named("everyday").unwrap_or_default();
    let watch = Stopwatch::start();
    let policies = contenders(&SupervisionSettings::default());
    let played: Vec<_> = policies.iter().map(|(name, policy)| (name, play_all(&mix, policy, SEED, tasks))).collect();
    let seconds = watch.elapsed().as_secs_f64();
    let count = tasks as f64 * played.len() as f64;
    run.add(Row::new(NAME, format!("tasks, {tasks} by each of {} policies", played.len()), count / seconds, "/s"));
    let of = |wanted: &str| played.iter().find(|(name, _)| *name == wanted).map(|(_, played)| played.as_slice());
    let missing = || anyhow::anyhow!("a policy that is compared with is missing");
    let (ten, oracle) = (of("limit of 10").ok_or_else(missing)?, of("oracle").ok_or_else(missing)?);
    let closed = |name: &str| {
        let played = of(name).ok_or_else(missing)?;
        anyhow::Ok(figures(name, played, ten, oracle, &mix).gap.value * 100.0)
    };
    let row = Row::new(NAME, "gap closed by control, oversight and strategy", closed("ours")?, "%");
    run.add(row.beside("by the stall rule", closed("stall rule")?));
    Ok(())
}
