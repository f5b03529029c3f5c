//! Times from the label to the start of the agent and to the ready pull request.

use std::time::Duration;

use ralph_bot::clock::Clock;
use ralph_bot::domain::loops::LoopState;
use ralph_bot::engine::Role;

use crate::machine::median;
use crate::report::{FigureRow, FigureTarget};
use crate::world::BenchWorld;
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    The test runs the complete service on the fake Gitea. Label to agent is the time from the label to the first \
    line of the agent's script, including delivery, permission, decision, fetch, tree, checks, prompt and sandbox. \
    Label to pull request is one iteration of an agent that finishes immediately, including commit, checks, \
    verification in a fresh checkout, push and comments, without pauses between changes. The figures are medians; \
    the first loop also creates the mirror.";

const NAME: &str = "label";
/// File in the work tree to which the agent writes its start time.
const NOTE: &str = "began-at.txt";

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let rounds = if run.size == Size::Brief { 1 } else { 10 };
    let files = [
        (".ralph.yml", format!("checks:\n  - name: noted\n    run: test -s {NOTE}\n")),
        ("README.md", "A sample.\n".to_owned()),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), text));
    let agent = format!("date +%s%3N >{NOTE}\n");
    let world = BenchWorld::start(run.folder()?, &files, &agent, Role::All).await?;
    let (mut times, mut ready) = (Vec::new(), Vec::new());
    for _ in 0..=rounds {
        let (agent, pull) = one(&world).await?;
        times.push(agent);
        ready.push(pull);
    }
    let sandbox =
        if world.sandboxed { "in bubblewrap" } else { "without a sandbox, because it does not work on this machine" };
    let (first, first_ready) = (times.remove(0), ready.remove(0));
    let words = format!("label to agent, {sandbox}, median of {rounds}");
    run.add(FigureRow::new(NAME, words, median(times).as_secs_f64(), "s").target(FigureTarget::Below(0.3)));
    run.add(FigureRow::new(NAME, "first loop", first.as_secs_f64(), "s"));
    let words = format!("label to ready pull request, {sandbox}, median of {rounds}");
    run.add(FigureRow::new(NAME, words, median(ready).as_secs_f64(), "s").target(FigureTarget::Below(3.0)));
    run.add(FigureRow::new(NAME, "first ready pull request", first_ready.as_secs_f64(), "s"));
    world.app.stop().await;
    Ok(())
}

/// Labels a new issue and waits for its pull request. Returns the times until the agent starts and until the pull request is
/// ready.
async fn one(world: &BenchWorld) -> anyhow::Result<(Duration, Duration)> {
    let issue = world.issue().await?;
    world.forge.flush().await;
    let labeled = Clock::System.now();
    world.label(issue).await?;
    let began = world
        .until("the agent", async || {
            let Some(found) = world.newest().await?.filter(|l| l.issue.issue == issue) else { return Ok(None) };
            let tree = world.engine().verification.workspaces.tree_dir(&found.id, &found.issue.repo);
            let text = std::fs::read_to_string(tree.join(NOTE)).unwrap_or_default();
            // A tree from the pool may still contain an earlier loop's file.
            let noted = text.strip_suffix('\n').and_then(|text| text.parse::<i64>().ok());
            Ok(noted.filter(|at| *at >= labeled.0))
        })
        .await?;
    let ready = world
        .until("the ready pull request", async || {
            let Some(found) = world.newest().await?.filter(|l| l.state == LoopState::Review) else { return Ok(None) };
            let Some(pull) = found.pull.opened else { return Ok(None) };
            let title =
                world.forge.with(|state| state.issue(world.repo, pull.number).map(|issue| issue.title.clone()))?;
            Ok((!title.starts_with("WIP")).then(|| Clock::System.now()))
        })
        .await?;
    let since = |at: i64| Duration::from_millis(u64::try_from(at - labeled.0).unwrap_or(0));
    Ok((since(began), since(ready.0)))
}
