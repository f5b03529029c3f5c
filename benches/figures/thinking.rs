//! Overhead of model calls: failover to the next backend, classification of a rejection, and composition of a prompt's
//! context.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::knowledge::intelligence::{Context, SummarySoFar};
use ralph_bot::domain::knowledge::memory::{Reflection, ReflectionFacts};
use ralph_bot::domain::knowledge::session::{SessionTurn, TurnRole, extract};
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::ids::{Money, Timestamp};
use ralph_bot::domain::providers::backends::BackendObservation;
use ralph_bot::domain::providers::limit::{LimitSignals, classify};
use ralph_bot::engine::Role as ServiceRole;
use ralph_bot::process::Masker;
use ralph_bot::store::{calls, memory, session};

use crate::machine::median;
use crate::report::{FigureRow, FigureTarget};
use crate::world::BenchWorld;
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    Failover: the complete service on the fake Gitea with two scripts as agents, from the first agent's limit \
    message to the second agent's start, including parking, tree, reservation, prompt and sandbox; the baseline is \
    label to first agent. Classification: a failed run with 1 MiB of log lines and the limit at the end, the \
    slowest of 100; the baseline counts the lines. Context: 1,000 iterations, turns of 4 KiB and learnings, up to \
    the finished block of 500 tokens, without a model, the slowest of 100; the baseline reads the turns.";

const NAME: &str = "thinking";
/// Output of Claude Code when its provider rejects a call.
const REFUSED: &str = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"API Error: Request rejected (429) · rate limit exceeded, try again in 90s","duration_ms":5,"num_turns":1,"session_id":"s"}"#;
/// Lines that mention limits without reporting one.
const HARMLESS: &str = include_str!("../../tests/fixtures/limits/harmless.jsonl");
/// Number of turns of the loop whose context is composed.
const TURNS: u32 = 1_000;
/// Number of turns per summary.
const SUMMARISED: u32 = 10;
/// Size of the context block, in tokens.
const TOKENS: usize = 500;

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let rounds = if run.size == Size::Brief { 2 } else { 11 };
    let files = [
        (".ralph.yml".to_owned(), "checks:\n  - name: noted\n    run: test -s began-at.txt\n".to_owned()),
        ("README.md".to_owned(), "A sample.\n".to_owned()),
    ];
    let refusing = format!("cat >/dev/null; date +at:%s%3N; printf '%s\\n' '{REFUSED}'; exit 1");
    let refusing = serde_json::to_string(&["/bin/sh", "-c", &refusing, "claude"])?;
    let more = format!("  claude: {{ enabled: true, command: {refusing} }}\norder: {{ agent: [claude, mine] }}\n");
    let agent = "date +at:%s%3N | tee began-at.txt\n";
    let folder = run.folder()?;
    let world = BenchWorld::start_with(folder.clone(), &files, agent, ServiceRole::All, &more).await?;
    let logs = folder.join("data/logs");
    let (mut gaps, mut firsts, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..rounds {
        let (first, gap, ended) = failover(&world, &logs).await?;
        firsts.push(first);
        gaps.push(gap);
        last = Some(ended);
    }
    // The first loop warms up the caches.
    gaps.remove(0);
    firsts.remove(0);
    let row = FigureRow::new(
        NAME,
        format!("failover to the next agent, median of {}", rounds - 1),
        millis(median(gaps)),
        "ms",
    );
    run.add(row.beside("label to first agent", millis(median(firsts))).target(FigureTarget::Below(100.0)));
    classifying(run);
    let ended = last.context("no loop was run")?;
    context(run, &world, ended).await?;
    world.app.stop().await;
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn slowest(times: Vec<Duration>) -> Duration {
    times.into_iter().max().unwrap_or_default()
}

/// Runs one loop whose first backend rejects the call. Returns the time from the label to the first agent, the time from the
/// end of the first agent to the start of the second, and the ended loop.
async fn failover(world: &BenchWorld, logs: &Path) -> anyhow::Result<(Duration, Duration, Loop)> {
    let engine = world.engine();
    let (settings, now) = (engine.calls.settings.backends.clone(), engine.clock.now());
    let enabled = BackendObservation::Enabled { backend: "claude".to_owned() };
    engine.store.write(move |c| calls::observe(c, &enabled, &settings, now)).await?;
    let issue = world.issue().await?;
    world.forge.flush().await;
    let labeled = engine.clock.now();
    world.label(issue).await?;
    let ended = world
        .until("the end of the loop", async || {
            let found = world.newest().await?.filter(|l| l.issue.issue == issue);
            Ok(found.filter(|l| !matches!(l.state, LoopState::Queued | LoopState::Running)))
        })
        .await?;
    let served = ended.iterations.first().map(|iteration| &iteration.served);
    anyhow::ensure!(served.is_some_and(|served| served.backend == "mine"), "no failover: {served:?}");
    let (mut left, mut began) = (None, None);
    for entry in std::fs::read_dir(logs.join(ended.id.as_str()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name {
            name if name.ends_with("-2.log") => began = noted(&path),
            name if name.ends_with(".log") => left = noted(&path),
            _ => {}
        }
    }
    let (left, began) =
        (left.context("the first agent recorded no time")?, began.context("the second agent recorded no time")?);
    let span = |from: i64, to: i64| Duration::from_millis(u64::try_from(to - from).unwrap_or(0));
    Ok((span(labeled.0, left), span(left, began), ended))
}

/// Returns the time in an agent's output, in milliseconds since 1970.
fn noted(log: &Path) -> Option<i64> {
    let text = std::fs::read_to_string(log).ok()?;
    text.lines().find_map(|line| line.strip_prefix("at:")?.trim().parse().ok())
}

fn classifying(run: &mut FigureRun) {
    let rounds = if run.size == Size::Brief { 3 } else { 100 };
    let lines: Vec<&str> = HARMLESS.lines().collect();
    let mut output = String::with_capacity(1 << 20);
    for line in lines.iter().cycle() {
        if output.len() + line.len() > 1 << 20 {
            break;
        }
        output.push_str(line);
        output.push('\n');
    }
    let limit = "API Error: 429 rate limit exceeded, try again in 90s";
    let all = |message: &str| LimitSignals { messages: vec![format!("{message}{limit}")], ..LimitSignals::default() };
    let size = output.len() / 1_000;
    let mut many: Vec<String> =
        output.as_bytes().chunks(size).map(|part| String::from_utf8_lossy(part).into()).collect();
    many.push(limit.to_owned());
    let many = LimitSignals { messages: many, ..LimitSignals::default() };
    let now = Timestamp(1_700_000_000_000);
    for (what, signals) in [("1 MiB in one message", all(&output)), ("1 MiB in 1,000 messages", many)] {
        let (mut times, mut plain) = (Vec::new(), Vec::new());
        // The first classification compiles the patterns; the service does this while the first agent runs.
        let known = classify(&signals, now).is_some();
        for _ in 0..rounds {
            let watch = Stopwatch::start();
            std::hint::black_box(classify(std::hint::black_box(&signals), now));
            times.push(watch.elapsed());
            let watch = Stopwatch::start();
            std::hint::black_box(signals.messages.iter().map(|message| message.lines().count()).sum::<usize>());
            plain.push(watch.elapsed());
        }
        let found = if known { "found" } else { "missed" };
        let row = FigureRow::new(NAME, format!("classifying {what}, limit {found}"), millis(slowest(times)), "ms");
        run.add(row.beside("counting its lines", millis(median(plain))).target(FigureTarget::Below(5.0)));
    }
}

/// Composes contexts for a loop with a long history.
async fn context(run: &mut FigureRun, world: &BenchWorld, ended: Loop) -> anyhow::Result<()> {
    let turns = if run.size == Size::Brief { 50 } else { TURNS };
    let engine = world.engine();
    let current = lengthened(ended, turns)?;
    let id = current.id.clone();
    let remember = engine.store.write(move |c| {
        for iteration in 1..=turns {
            let kept = session::NewTurn::pack(turn(iteration));
            session::add_turn(c, &id, &kept)?;
            let approach = format!("rewrite part {iteration} of the parser");
            let facts = ReflectionFacts {
                iteration,
                approach,
                completion_before: 0.4,
                completion_after: 0.4,
                ..ReflectionFacts::default()
            };
            memory::add_reflection(c, &Masker::default(), &id, &Reflection::of(&facts), Timestamp(1))?;
            if iteration.is_multiple_of(SUMMARISED) {
                let from = iteration + 1 - SUMMARISED;
                let covered = session::turns(c, &id, from..=iteration)?;
                session::add_summary(c, &id, &extract(from, iteration, &covered, &[], Timestamp(1)))?;
            }
        }
        Ok(())
    });
    remember.await?;
    crate::recall::learnings_for(&engine.store, &current.issue.repo, turns as usize).await?;
    let (mut times, mut plain) = (Vec::new(), Vec::new());
    let mut tokens = 0;
    for _ in 0..if run.size == Size::Brief { 3 } else { 100 } {
        let watch = Stopwatch::start();
        let recalled = engine.recall.prompt_memory(&current).await;
        let of = current.id.clone();
        let summaries = engine.store.read(move |c| session::summaries(c, &of, 0)).await?;
        let mut context = Context::of(&current, engine.clock.now());
        let soft = |summary: ralph_bot::domain::knowledge::session::SessionSummary| SummarySoFar {
            from: summary.from,
            to: summary.to,
            text: summary.text,
        };
        context.history.summaries = summaries.into_iter().map(soft).collect();
        context.history.reflections = recalled.reflections;
        context.recall = recalled.learnings;
        tokens = context.block(TOKENS).tokens;
        times.push(watch.elapsed());
        let (of, watch) = (current.id.clone(), Stopwatch::start());
        engine.store.read(move |c| session::turns(c, &of, 1..=turns)).await?;
        plain.push(watch.elapsed());
    }
    let row = FigureRow::new(
        NAME,
        format!("context of {tokens} tokens with {turns} turns stored"),
        millis(slowest(times)),
        "ms",
    );
    run.add(row.beside("reading the turns", millis(median(plain))).target(FigureTarget::Below(20.0)));
    Ok(())
}

/// Returns the loop with copies of its first iteration.
fn lengthened(mut ended: Loop, iterations: u32) -> anyhow::Result<Loop> {
    let first = ended.iterations.first().context("the loop has no iteration")?.clone();
    ended.iterations.extend((2..=iterations).map(|number| {
        let mut next = first.clone();
        next.number = number;
        next.report.summary = format!("rewrote part {number} of the parser");
        next
    }));
    ended.spent.iterations = iterations;
    Ok(ended)
}

fn turn(iteration: u32) -> SessionTurn {
    let at = Timestamp(i64::from(iteration) * 1_000);
    SessionTurn {
        iteration,
        attempt: 0,
        role: TurnRole::Agent,
        prompt: format!("Mend part {iteration} of the parser.\n").repeat(60),
        response: format!("Part {iteration} of the parser was rewritten; the same check fails.\n").repeat(30),
        backend: "mine".to_owned(),
        model: None,
        tokens_in: 1_000,
        tokens_out: 500,
        tokens_cached: 0,
        cost: Money(0),
        estimated: true,
        error: None,
        learnings: Vec::new(),
        started: at,
        ended: at,
    }
}
