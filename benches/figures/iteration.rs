//! Overhead of an iteration: its duration without the agent, the checks and the forge.

use std::path::PathBuf;
use std::time::Duration;

use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::loops::{Loop, LoopStep};
use ralph_bot::engine::Role;

use crate::machine::median;
use crate::report::{FigureRow, FigureTarget};
use crate::trees::git;
use crate::world::BenchWorld;
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    The test executes the service's steps one by one on a repository of 1,000 files. The time includes steps of \
    the loop, preparation of agent and checks, and the commit. It excludes agent, checks, push, calls to the \
    forge, and the final verification. The figure is the median of the iterations. The baseline is `git status`, \
    `git add --all` and `git commit` of the same change in a plain clone.";

const NAME: &str = "iteration";
/// Maximum number of steps of a loop.
const STEPS: usize = 20_000;

/// Measured loop.
pub struct MeasuredLoop {
    /// Overhead of each iteration.
    pub own: Vec<Duration>,
    /// Times of the same change by plain git.
    pub plain: Vec<Duration>,
}

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let (files, iterations) = match run.size {
        Size::Brief => (100, 2),
        _ => (1_000, 8),
    };
    let MeasuredLoop { own, plain } = measure(run.folder()?, files, iterations, 0).await?;
    let what = format!("overhead of an iteration, {files} files, median of {iterations}");
    let row = FigureRow::new(NAME, what, median(own).as_secs_f64() * 1e3, "ms").target(FigureTarget::AtMost(40.0));
    run.add(row.beside("plain git status, add and commit", median(plain).as_secs_f64() * 1e3));
    Ok(())
}

/// Runs a loop on a repository of `files` files. Each of its `iterations` iterations adds a line to a file, and a file of
/// `lines` lines unless that is 0.
pub async fn measure(folder: PathBuf, files: usize, iterations: usize, lines: usize) -> anyhow::Result<MeasuredLoop> {
    let mut content: Vec<_> = (0..files).map(|n| (format!("src/part{}/file{n}.txt", n % 20), text(n))).collect();
    // The check reports each line as a passed test, because a loop without progress would be paused.
    let check = format!(
        r#"checks:
  - name: enough
    run: |
      n=$(wc -l <count.txt)
      echo "running {iterations} tests"
      echo "test result: FAILED. $n passed; $(({iterations} - n)) failed; 0 ignored; 0 measured; 0 filtered out"
      test $n -ge {iterations}
"#
    );
    content.push((".ralph.yml".into(), check));
    content.push(("count.txt".into(), String::new()));
    let more = if lines > 0 { format!("seq {lines} >added$(wc -l <count.txt).txt\n") } else { String::new() };
    let agent = format!("echo one more >>count.txt\n{more}");
    let world = BenchWorld::start(folder.clone(), &content, &agent, Role::Ingest).await?;
    let own = iterate(&world).await?;
    let why = world.newest().await?.map(|ended| ended.why).unwrap_or_default();
    anyhow::ensure!(own.len() == iterations, "{} iterations instead of {iterations}: {why}", own.len());
    let plain = plain(&folder, &world, iterations.min(8))?;
    world.app.stop().await;
    Ok(MeasuredLoop { own, plain })
}

fn text(n: usize) -> String {
    format!("line of file {n}\n").repeat(50)
}

/// Runs one loop to its end. Returns the overhead of each iteration.
async fn iterate(world: &BenchWorld) -> anyhow::Result<Vec<Duration>> {
    let issue = world.issue().await?;
    world.label(issue).await?;
    let engine = world.engine();
    let mut own = Vec::new();
    for _ in 0..STEPS {
        world.forge.flush().await;
        let intake = engine.intake.intake_step().await?;
        let watch = Stopwatch::start();
        let stepped = engine.executor.loop_step().await?;
        let mut spent = watch.elapsed();
        while engine.forge_effects.forge_effect_step().await? {}
        let before = world.newest().await?;
        let watch = Stopwatch::start();
        let worked = !stepped && engine.work.work_step().await?;
        let mut work = watch.elapsed();
        let Some(before) = before else { continue };
        if worked {
            // The loop's state contains the duration of a run only after the loop has processed it.
            let told = Stopwatch::start();
            engine.executor.loop_step().await?;
            spent += told.elapsed();
            let after = world.newest().await?.unwrap_or_else(|| before.clone());
            work = match before.run.step {
                LoopStep::Agent => work.saturating_sub(agent_time(&after).saturating_sub(agent_time(&before))),
                LoopStep::Check => work.saturating_sub(check_time(&after)),
                LoopStep::Commit => work,
                _ => Duration::ZERO,
            };
            spent += work;
        }
        if before.spent.iterations as usize > own.len() {
            own.push(Duration::ZERO);
        }
        if let Some(current) = own.last_mut().filter(|_| {
            matches!(before.run.step, LoopStep::Agent | LoopStep::Commit | LoopStep::Push | LoopStep::Check)
        }) {
            *current += spent;
        }
        if !intake && !stepped && !worked {
            return Ok(own);
        }
    }
    anyhow::bail!("the loop never comes to rest")
}

/// Returns the duration of all agent runs in the current iteration.
fn agent_time(current: &Loop) -> Duration {
    Duration::from_millis(current.iterations.iter().map(|i| i.agent_ms).sum())
}

/// Returns the duration of the latest checks.
fn check_time(current: &Loop) -> Duration {
    let newest = current.latest_checks();
    Duration::from_millis(newest.map_or(0, |report| report.outcomes.iter().map(|o| o.duration_ms).sum()))
}

/// Measures the same change with plain git.
fn plain(folder: &std::path::Path, world: &BenchWorld, rounds: usize) -> anyhow::Result<Vec<Duration>> {
    let clone = folder.join("plain");
    let from = world.forge.repo_path(world.repo);
    git(folder, &["clone", "--quiet", "--branch", "main", &from.display().to_string(), "plain"])?;
    let mut times = Vec::new();
    let mut text = String::new();
    for _ in 0..rounds {
        text.push_str("one more\n");
        std::fs::write(clone.join("count.txt"), &text)?;
        let watch = Stopwatch::start();
        git(&clone, &["status", "--porcelain"])?;
        git(&clone, &["add", "--all"])?;
        git(&clone, &["commit", "--quiet", "--message", "one more"])?;
        times.push(watch.elapsed());
    }
    Ok(times)
}
