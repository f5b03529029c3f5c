//! `backends` on a real database.

use super::*;
use crate::domain::loops::{LoopStart, LoopTask, LoopWait, RunOptions, TaskText};
use crate::domain::model::ids::{AccountKind, ForgeName, IssueRef, Money, Number, RepoId, RepoRef, User, UserId};
use crate::domain::providers::backends::BackendCall;
use crate::domain::providers::limit::{Limit, LimitKind, LimitSource};
use crate::domain::trust::policy::Policy;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn settings() -> BackendsSettings {
    let text = r#"{"backends": {"claude": {}, "helper": {"roles": ["assistant"]}}}"#;
    serde_json::from_str(text).expect("settings")
}

async fn see(store: &Store, observation: BackendObservation) {
    store.write(move |c| calls::observe(c, &observation, &settings(), NOW)).await.expect("stored");
}

fn call() -> BackendCall {
    BackendCall {
        key: "r-1/1".into(),
        loop_id: String::new(),
        role: BackendRole::Agent,
        backend: "claude".into(),
        model: None,
        resumed: false,
        previous: None,
    }
}

async fn state(store: &Store) -> BackendState {
    store.read(calls::state).await.expect("read").backends.remove("claude").unwrap_or_default()
}

#[tokio::test]
async fn backend_is_listed_and_enabled() {
    let store = Store::in_memory().expect("opened");
    list(&store, settings(), false, NOW).await.expect("nothing is known yet");
    see(&store, BackendObservation::CallStarted { call: call(), likely_cost: None }).await;
    let cost = Some(Money::from_usd(0.25));
    see(&store, BackendObservation::CallSucceeded { call: call(), tokens: 1_200, cost }).await;
    let cells = row("claude", &[BackendRole::Agent], &state(&store).await, NOW);
    assert_eq!(cells.join("|"), "claude|agent|active|1|0|1200|$0.25|$0.25|-");

    see(&store, BackendObservation::CallStarted { call: call(), likely_cost: None }).await;
    let until = NOW.plus_ms(HOUR_MS);
    let limit = Limit {
        kind: LimitKind::Quota,
        until: Some(until),
        evidence: "You've hit your limit\u{1b}[2J".into(),
        source: LimitSource::Text,
    };
    see(&store, BackendObservation::CallLimited { call: call(), cost: None, limit, seed: 1 }).await;
    let parked = state(&store).await;
    let cells = row("claude", &[BackendRole::Agent], &parked, NOW);
    assert!(cells[2].starts_with("cool-down until 2027-01-15 09:0"), "{cells:?}");
    assert!(cells[8].starts_with("used-up quota: You've hit your limit") && !cells[8].contains('\u{1b}'), "{cells:?}");
    let json = line("claude", &[BackendRole::Agent], Duration::hours(1), &parked, NOW);
    assert_eq!(
        (json["state"].as_str(), json["calls"].as_u64(), json["failed"].as_u64()),
        (Some("parked"), Some(2), Some(1))
    );

    enable(&store, settings(), "claude", true, NOW).await.expect("enabled");
    assert!(state(&store).await.is_active());
    enable(&store, settings(), "claude", false, NOW).await.expect("once more is no mistake");
    let wrong = enable(&store, settings(), "cluade", false, NOW).await.expect_err("there is none");
    assert!(wrong.to_string().contains("did you mean `claude`?"), "{wrong}");
}

#[tokio::test]
async fn expired_cooldown_is_not_listed() {
    let store = Store::in_memory().expect("opened");
    let limit = Limit { kind: LimitKind::Rate, until: None, evidence: "slow down".into(), source: LimitSource::Text };
    see(&store, BackendObservation::CallStarted { call: call(), likely_cost: None }).await;
    see(&store, BackendObservation::CallLimited { call: call(), cost: None, limit, seed: 1 }).await;
    let later = NOW.plus_ms(2 * HOUR_MS);
    let known = backends::transition(
        store.read(calls::state).await.expect("read"),
        &BackendObservation::Elapsed,
        &settings(),
        later,
    );
    let cells = row("claude", &[BackendRole::Agent], &known.state.backends["claude"], later);
    assert_eq!(cells[2], "active (on probation)");
    assert!(matches!(state(&store).await.status, BackendStatus::Parked(_)), "looking changes nothing");
    list(&store, settings(), true, later).await.expect("listed");
}

#[test]
fn disabled_backend_is_listed_with_reason() {
    let status = r#"{"is": "disabled", "since": 1, "kind": "auth", "reason": "401: invalid x-api-key"}"#;
    let state = BackendState { status: serde_json::from_str(status).unwrap(), ..BackendState::default() };
    let cells = row("claude", &[BackendRole::Agent, BackendRole::Assistant], &state, NOW);
    assert_eq!(
        cells.join("|"),
        "claude|agent, assistant|disabled|0|0|0|$0.00|$0.00|not logged in: 401: invalid x-api-key"
    );
}

fn start(number: u64) -> LoopStart {
    let repo = RepoRef { forge: ForgeName::new("work"), id: RepoId(7), owner: "team".into(), name: "app".into() };
    LoopStart {
        request: String::new(),
        existing: None,
        id: LoopId::from_parts(Number(number), 0),
        place: IssueRef { repo, issue: Number(number) },
        by: User { id: UserId(5), login: "alice".into(), kind: AccountKind::User },
        task: LoopTask {
            text: TaskText::new("Fix it", "", None),
            url: "https://git.example.org/team/app/issues/1".into(),
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
    }
}

/// Stores two loops: one waits for a backend until `until`, the other one is queued.
fn two_loops(c: &Connection, until: Timestamp) -> StoreResult<(LoopId, LoopId)> {
    let (waiting, other) = (LoopId::from_parts(Number(1), 0), LoopId::from_parts(Number(2), 0));
    loops::begin(c, start(1), "first", NOW)?;
    loops::begin(c, start(2), "second", NOW)?;
    let mut known = loops::get(c, &waiting)?.expect("stored");
    known.state = LoopState::Waiting;
    known.run.wait = Some(LoopWait { on: WaitReason::Backend, since: NOW, told: false });
    known.why = "no agent is available: claude: used-up quota (You've hit your limit)".into();
    let data = serde_json::to_string(&known)?;
    c.execute("UPDATE loops SET data = ?1, state = 'waiting' WHERE id = ?2", [data.as_str(), waiting.as_str()])?;
    timers::set(c, &waiting, TimerKind::Reactivate.as_str(), until)?;
    Ok((waiting, other))
}

#[tokio::test]
async fn waiting_loops_are_listed_and_continue_when_a_backend_is_enabled() {
    let store = Store::in_memory().expect("opened");
    let until = NOW.plus_ms(DAY_MS);
    let (waiting, other) = store.write(move |c| two_loops(c, until)).await.expect("stored");
    let refused = BackendCall { loop_id: other.to_string(), ..call() };
    let evidence = "Not logged in\u{1b}[2J".into();
    let limit = Limit { kind: LimitKind::Auth, until: None, evidence, source: LimitSource::Text };
    see(&store, BackendObservation::CallStarted { call: refused.clone(), likely_cost: None }).await;
    see(&store, BackendObservation::LimitClaimed { call: refused, cost: None, limit, seed: 1 }).await;

    let (open, known) = store.read(|c| Ok((waits(c)?, calls::state(c)?))).await.expect("read");
    let mut rows = loop_rows(&open, &known, NOW).into_iter().map(|row| row.join("|")).collect::<Vec<_>>();
    rows.sort();
    assert_eq!(rows.len(), 2, "{rows:?}");
    let first = format!("{waiting}|2027-01-16 08:00");
    assert!(rows[0].starts_with(&first) && rows[0].contains("used-up quota (You've hit"), "{rows:?}");
    assert_eq!(rows[1], format!("{other}|a person acts|claude: not logged in: Not logged in [2J"));
    let json = line("claude", &[BackendRole::Agent], Duration::hours(1), &state(&store).await, NOW);
    assert_eq!(json["refused_loops"][0]["loop"], other.as_str());
    list(&store, settings(), false, NOW).await.expect("listed");

    enable(&store, settings(), "claude", false, NOW).await.expect("enabled");
    let due = store.read(move |c| timers::due(c, &waiting, TimerKind::Reactivate.as_str())).await.expect("read");
    assert_eq!(due, Some(NOW), "the wait is over now");
    let (open, known) = store.read(|c| Ok((waits(c)?, calls::state(c)?))).await.expect("read");
    assert_eq!(loop_rows(&open, &known, NOW).len(), 1, "the other loop is not refused any more");
}
