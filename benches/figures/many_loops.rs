//! Database with many loops, like a service after a year: transcripts, logs, calls, costs, deliveries, tokens.

use anyhow::Context;
use ralph_bot::domain::knowledge::session::{EventKind, SessionEvent, SessionTurn, TurnRole};
use ralph_bot::domain::loops::{
    Iteration, IterationJudgement, Loop, LoopStart, LoopState, LoopTask, RunOptions, TaskText,
};
use ralph_bot::domain::model::ids::{
    AccountKind, ForgeName, IssueRef, LoopId, Money, Number, Ratio, RepoId, RepoRef, Sha, Timestamp, User, UserId,
};
use ralph_bot::domain::model::task::{CheckOutcome, FileStat};
use ralph_bot::domain::trust::policy::Policy;
use ralph_bot::store::session::{NewEvent, NewTurn, add_events, add_turn};
use ralph_bot::store::sql::{Connection, params};
use ralph_bot::store::{Store, StoreError, StoreResult, loops};
use serde_json::json;

use crate::corpus::Corpus;

/// Number of loops per transaction.
const BATCH: usize = 20;
/// Number of repositories.
pub const REPOSITORIES: usize = 20;
/// Number of processed deliveries, and of changes in the audit log of accesses.
pub const DELIVERIES: i64 = 50_000;
/// Time of the first loop: 2026-09-21. Loops start one after another over sixty days.
const FIRST: i64 = 1_790_000_000_000;
const DAYS: i64 = 60;
const DAY_MS: i64 = 86_400_000;
/// States of twenty loops in rotation; most have ended.
const STATES: [LoopState; 20] = {
    let mut states = [LoopState::Merged; 20];
    states[0] = LoopState::Running;
    states[1] = LoopState::Queued;
    states[2] = LoopState::Review;
    states[3] = LoopState::Paused;
    states[4] = LoopState::LimitReached;
    states[5] = LoopState::Closed;
    states[6] = LoopState::Aborted;
    states
};

/// Loop with its texts, ready to be stored.
struct MadeLoop {
    start: LoopStart,
    state: LoopState,
    iterations: Vec<Iteration>,
    turns: Vec<NewTurn>,
    events: Vec<NewEvent>,
}

/// Returns the nth loop's identifier.
pub fn id_of(nth: usize) -> LoopId {
    LoopId::from_parts(Number(nth as u64 + 1), nth as u32)
}

/// Fills a database with `count` loops of `iterations` iterations.
pub async fn fill(store: &Store, corpus: &mut Corpus, count: usize, iterations: u32) -> anyhow::Result<()> {
    for first in (0..count).step_by(BATCH) {
        let batch: Vec<_> = (first..count.min(first + BATCH)).map(|nth| made(corpus, nth, count, iterations)).collect();
        let stored = store.write(move |c| batch.iter().try_for_each(|one| store_loop(c, one)));
        stored.await.context("filling the store")?;
    }
    store.write(finish).await.context("filling the store")
}

/// Stores a loop: its start like the service, and its further rows as the service would write them.
fn store_loop(c: &Connection, made: &MadeLoop) -> StoreResult<()> {
    let MadeLoop { start, state, iterations, turns, events } = made;
    let (id, now) = (&start.id, iterations.first().map_or(Timestamp(FIRST), |one| one.started_at));
    loops::begin(c, start.clone(), &format!("figures/{id}"), now)?;
    let mut current: Loop = loops::get(c, id)?.ok_or(StoreError::Bug { detail: "the loop is missing".into() })?;
    current.state = *state;
    current.why = "The checks passed in a fresh checkout.".into();
    current.iterations.clone_from(iterations);
    current.spent.iterations = iterations.len() as u32;
    let cost: i64 = iterations.iter().map(|one| one.cost.0).sum();
    current.spent.cost = Money(cost);
    let sql = "UPDATE loops SET data = ?2, state = ?3, open = ?4 WHERE id = ?1";
    c.prepare_cached(sql)?.execute(params![
        id.as_str(),
        serde_json::to_string(&current)?,
        state.as_str(),
        state.is_open()
    ])?;
    let sql = "UPDATE loop_summaries SET state = ?2, open = ?3, waits = ?4, reason = ?5, iterations = ?6, cost = ?7, completion = 0.9
        WHERE loop_id = ?1";
    let row = params![
        id.as_str(),
        state.as_str(),
        state.is_open(),
        current.waits_for_person(),
        current.why,
        iterations.len() as i64,
        cost
    ];
    c.prepare_cached(sql)?.execute(row)?;
    for turn in turns {
        add_turn(c, id, turn)?;
    }
    add_events(c, id, events)?;
    let mut log =
        c.prepare_cached("INSERT INTO loop_events (loop_id, seq, at, input, reasons) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let mut audit = c.prepare_cached("INSERT INTO audit (loop_id, at, entry) VALUES (?1, ?2, ?3)")?;
    let mut call = c.prepare_cached(
        "INSERT INTO calls (key, loop_id, forge, repo_id, iteration, role, purpose, backend, call, day, started_at, ended_at,
             reserved, cost, tokens_in, tokens_out, outcome)
         VALUES (?1, ?2, ?3, ?4, ?5, 'agent', 'agent', ?6, '{}', ?7, ?8, ?8, 0, ?9, 9000, 700, 'ok')",
    )?;
    let repo = &start.place.repo;
    for (nth, one) in iterations.iter().enumerate() {
        let at = one.started_at.0;
        let input = json!({ "input": "checked", "ticket": nth, "report": { "outcomes": [{ "name": "test", "holds": false }] } });
        let reasons = json!(["The checks ran.", "The iteration is judged."]);
        log.execute(params![id.as_str(), nth as i64 + 10, at, input.to_string(), reasons.to_string()])?;
        let entry = json!({
            "iteration": one.number, "event": "intervened", "level": null, "kind": null, "cause": null,
            "reason": "The loop is allowed to continue.",
        });
        audit.execute(params![id.as_str(), at, entry.to_string()])?;
        let backend = ["claude", "codex", "gemini"][nth % 3];
        let key = format!("{id}/{nth}/1");
        let row =
            params![key, id.as_str(), repo.forge.as_str(), repo.id.0, one.number, backend, at / DAY_MS, at, one.cost.0];
        call.execute(row)?;
    }
    Ok(())
}

/// Adds the daily sums and the deliveries, and completes the pending effects of the loops' starts.
fn finish(c: &Connection) -> StoreResult<()> {
    c.execute_batch(
        "UPDATE outbox SET state = 'done', ended_at = 1 WHERE state = 'ready';
         DELETE FROM timers;
         DELETE FROM daily_costs;
         INSERT INTO daily_costs (day, forge, repo_id, backend, person_id, person, calls, cost, tokens_in, tokens_out)
             SELECT c.day, c.forge, c.repo_id, c.backend, s.person_id, max(s.person), count(*), sum(c.cost), sum(c.tokens_in),
                 sum(c.tokens_out)
             FROM calls c JOIN loop_summaries s ON s.loop_id = c.loop_id
             GROUP BY c.day, c.forge, c.repo_id, c.backend, s.person_id;",
    )?;
    let sql = "INSERT INTO inbox (forge, delivery, event, body, received_at, state, reason) VALUES ('forge', ?1, 'push', ?2, 1, ?3, '')";
    let mut statement = c.prepare_cached(sql)?;
    for nth in 0..DELIVERIES as usize {
        let state = ["done", "ignored", "done", "done"][nth % 4];
        statement.execute(params![
            format!("old-{nth}"),
            vec![7_u8; 600],
            if nth % 1_000 == 0 { "dead" } else { state }
        ])?;
    }
    let sql = "INSERT INTO access_audit (at, forge, account_id, login, address, via, method, path, status)
        VALUES (?1, 'forge', ?2, ?3, '203.0.113.7', 'session', 'POST', ?4, 303)";
    let mut statement = c.prepare_cached(sql)?;
    for nth in 0..DELIVERIES {
        let person = nth % 7;
        let path = format!("/loops/{}/commands", id_of(nth as usize));
        statement.execute(params![FIRST + nth, person + 1, format!("person{person}"), path])?;
    }
    Ok(())
}

fn made(corpus: &mut Corpus, nth: usize, count: usize, iterations: u32) -> MadeLoop {
    let number = nth as u64 + 1;
    let repo = nth % REPOSITORIES;
    let by = User { id: UserId(nth as i64 % 7 + 1), login: format!("person{}", nth % 7), kind: AccountKind::User };
    let repo = RepoRef {
        forge: ForgeName::new("forge"),
        id: RepoId(repo as i64),
        owner: "acme".into(),
        name: format!("app{repo}"),
    };
    let start = LoopStart {
        request: String::new(),
        existing: None,
        id: id_of(nth),
        place: IssueRef { repo, issue: Number(number) },
        by,
        task: LoopTask {
            text: TaskText::new(corpus.text(6), corpus.text(60), None),
            url: format!("https://git.example.org/acme/issues/{number}"),
            hash: "0".repeat(64),
            author: None,
            author_trusted: true,
            unconfirmed_editor: None,
            edited_after: false,
            labels: Vec::new(),
        },
        options: RunOptions::default(),
        policy: Policy::default(),
        plan: None,
        comment: None,
        hidden_removed: 0,
        round: 1,
    };
    let begun = FIRST + nth as i64 * (DAYS * DAY_MS / count.max(1) as i64);
    let at = |iteration: u32| Timestamp(begun + i64::from(iteration) * 1_000);
    let turns = (1..=iterations).map(|iteration| {
        NewTurn::pack(SessionTurn {
            iteration,
            attempt: 1,
            role: TurnRole::Agent,
            prompt: corpus.text(30),
            response: corpus.text(30),
            backend: "mine".into(),
            model: None,
            tokens_in: 1,
            tokens_out: 1,
            tokens_cached: 0,
            cost: Money(1),
            estimated: false,
            error: None,
            learnings: Vec::new(),
            started: at(iteration),
            ended: at(iteration),
        })
    });
    let turns = turns.collect();
    let events = (1..=iterations).map(|iteration| {
        NewEvent::pack(SessionEvent {
            iteration,
            kind: EventKind::Check,
            tool: Some("tests".into()),
            path: None,
            text: corpus.text(20),
            failed: true,
            at: at(iteration),
        })
    });
    let events = events.collect();
    let iterations = (1..=iterations).map(|number| iteration(corpus, number, at(number))).collect();
    MadeLoop { start, state: STATES[nth % STATES.len()], iterations, turns, events }
}

/// Returns an ended iteration with reports, checks and the result of supervision.
fn iteration(corpus: &mut Corpus, number: u32, at: Timestamp) -> Iteration {
    let sha = Sha::parse(&format!("{number:040x}")).unwrap_or_else(|| unreachable!("40 digits"));
    let mut made = Iteration::new(number, at, sha.clone(), Vec::new());
    made.ended_at = Some(at.plus_ms(900));
    made.report.approach = corpus.text(6);
    made.report.summary = corpus.text(15);
    made.report.learnings = vec![corpus.text(8)];
    made.cost = Money(10_000 + i64::from(number));
    (made.tokens_in, made.tokens_out, made.tool_calls) = (9_000, 700, 12);
    made.served.backend = "claude".into();
    made.commit = Some(sha);
    let file = |name: &str| FileStat { path: name.into(), added: 12, removed: 3, binary: false, change: None };
    made.stat.files = vec![file("src/parse.rs"), file("src/lib.rs"), file("tests/parse.rs")];
    let outcome = |name: &str, holds: bool, output: String| CheckOutcome {
        name: name.into(),
        command: format!("make {name}"),
        holds,
        why: if holds { String::new() } else { "exit code 1".into() },
        duration_ms: 4_000,
        output,
        ..CheckOutcome::default()
    };
    made.checks.outcomes = vec![outcome("lint", true, String::new()), outcome("test", false, corpus.text(12))];
    made.completion = Ratio::new(f64::from(number % 97) / 100.0);
    let wave = f64::from(number % 9) / 10.0;
    let judged = json!({
        "p": wave, "i": wave * 2.0, "d": 0.1 - wave / 5.0, "signal": wave, "urgency": "elevated", "trend": "improving",
        "profile": "steady", "forecast": 4, "health": "warning", "approach": "persist", "way": "", "reasoning": corpus.text(8),
        "moved": [], "stops": null,
        "found": if number.is_multiple_of(5) {
            json!([{
                "kind": "stuck", "severity": "high", "level": "WARN", "fresh": true, "evidence": corpus.text(8),
                "recommendations": [corpus.text(8)],
            }])
        } else {
            json!([])
        },
    });
    made.judged = serde_json::from_value::<IterationJudgement>(judged).ok();
    made
}
