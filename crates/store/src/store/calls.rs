//! Backend calls. One transaction chooses a backend, reserves the cost and records the call, so two loops cannot use the
//! same free slot or the same budget, whether in one process or several.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{StoreResult, costs, loops, timers};
use crate::domain::loops::{LoopInput, LoopState, TimerKind, WaitReason, WorkOutcome};
use crate::domain::model::ids::{LoopId, Money, RepoRef, Timestamp};
use crate::domain::providers::backends::{
    self, BackendCall, BackendChange, BackendChoice, BackendObservation, BackendRole, Backends, BackendsSettings,
    CallAdvice, CallRequest, SessionUse,
};
use crate::domain::providers::call_refusal::CallRefusal;
use crate::domain::providers::money::{
    CostAccount, CostAccounts, CostLimitReached, Ending, LIKELY_DEFAULT, Permit, Reservation, day_of, likely_cost,
};
use crate::domain::providers::prices::TokenUsage;
use crate::store::sql::{Connection, OptionalExtension, Row, SqlResult, ToSql, params};

/// Purpose of the calls that are runs of agents.
pub const AGENT: &str = "agent";
/// Number of past calls used to estimate the cost of a call.
const PAST: u32 = 20;

/// Loop and purpose of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallContext {
    /// Unique key: loop, ticket of the work, and attempt.
    pub key: String,
    /// The loop.
    pub loop_id: LoopId,
    /// Repository of the loop.
    pub repo: RepoRef,
    /// 1-based iteration.
    pub iteration: u32,
    /// Purpose of the call: [`AGENT`], or the job of an assistant.
    pub purpose: String,
    /// Cost limits of the call.
    pub limits: CallLimits,
}

/// Cost limits; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallLimits {
    /// Limit for all calls of the loop.
    pub of_loop: Option<Money>,
    /// Limit for all calls of the loop for the same purpose.
    pub of_purpose: Option<Money>,
    /// Total cost that the loop has recorded itself. The limits apply to the greater of this and the cost in the
    /// store.
    pub loop_spent: Money,
    /// Daily limit for the repository.
    pub of_repository: Option<Money>,
    /// Daily limit for the service.
    pub of_service: Option<Money>,
}

/// Decision about a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallDecision {
    /// Call this backend now; the call is recorded.
    Call {
        /// Name of the backend.
        backend: String,
        /// Model; `None` for the backend's default.
        model: Option<String>,
        /// Whether the session of the previous call is resumed.
        session: SessionUse,
        /// Cost at which the call is stopped, according to the current limits.
        at_most: Option<Money>,
        /// Loop and purpose under which the cost is recorded during the call.
        caller: Box<CallContext>,
        /// State changes of backends.
        changes: Vec<BackendChange>,
    },
    /// The call cannot start.
    Refused(CallRefusal),
}

/// Result of an observation of backends.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BackendChanges {
    /// State changes of backends.
    pub changes: Vec<BackendChange>,
    /// Advice about the observed call; `None` if there is none.
    pub advice: Option<CallAdvice>,
}

/// End of a call and its final cost.
#[derive(Debug, Clone, PartialEq)]
pub struct CallSettlement {
    /// End of the call, with its cost.
    pub ending: Ending,
    /// Whether the service estimated the cost.
    pub estimated: bool,
    /// Used tokens.
    pub usage: TokenUsage,
    /// Outcome as one word.
    pub outcome: &'static str,
}

/// A recorded call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// 1-based iteration.
    pub iteration: u32,
    /// Purpose of the call.
    pub purpose: String,
    /// Name of the backend.
    pub backend: String,
    /// Name of the model; `None` if it is unknown.
    pub model: Option<String>,
    /// Start time.
    pub started_at: Timestamp,
    /// Cost; the reserved cost while the call runs.
    pub cost: Money,
    /// Whether the service estimated the cost.
    pub estimated: bool,
    /// Used tokens.
    pub usage: TokenUsage,
    /// Outcome as one word; `None` while the call runs.
    pub outcome: Option<String>,
}

/// Returns the state of all backends, or the initial state if the stored one cannot be read.
pub fn state(c: &Connection) -> StoreResult<Backends> {
    let data: Option<String> = c.query_row("SELECT data FROM backends", [], |row| row.get(0)).optional()?;
    Ok(data.and_then(|data| serde_json::from_str(&data).ok()).unwrap_or_default())
}

/// Updates the state of backends with an observation.
pub fn observe(
    c: &Connection,
    observation: &BackendObservation,
    settings: &BackendsSettings,
    now: Timestamp,
) -> StoreResult<BackendChanges> {
    let before = state(c)?;
    let transition = backends::transition(before.clone(), observation, settings, now);
    if transition.state != before {
        let data = serde_json::to_string(&transition.state)?;
        c.execute("INSERT INTO backends (id, data) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET data = ?1", [data])?;
    }
    Ok(BackendChanges { changes: transition.changes, advice: transition.advice })
}

/// Enables a backend at a person's request, and makes all waits for a backend due, because their due times no longer apply.
pub fn enable(c: &Connection, name: &str, settings: &BackendsSettings, now: Timestamp) -> StoreResult<BackendChanges> {
    let observed = observe(c, &BackendObservation::Enabled { backend: name.to_owned() }, settings, now)?;
    for waiting in loops::in_state(c, LoopState::Waiting)? {
        if waiting.run.wait.is_some_and(|wait| wait.on == WaitReason::Backend) {
            timers::set(c, &waiting.id, TimerKind::Reactivate.as_str(), now)?;
        }
    }
    Ok(observed)
}

/// Chooses a backend for a call, reserves the expected cost and records the start of the call, or returns the reason why the
/// call cannot start. If the request contains no expected cost, it is estimated from earlier calls. `models` lists the
/// models for each backend in order of preference. The call uses the first model that the backend supports, the first of all
/// if it supports none of them, or the backend's default model if the list is empty.
pub fn begin(
    c: &Connection,
    caller: &CallContext,
    request: &CallRequest,
    models: &dyn Fn(&str) -> Vec<String>,
    settings: &BackendsSettings,
    seed: u64,
    now: Timestamp,
) -> StoreResult<CallDecision> {
    let elapsed = observe(c, &BackendObservation::Elapsed, settings, now)?;
    let likely = match request.likely_cost {
        Some(known) => known,
        None => likely(c, caller, request.role)?,
    };
    let request = CallRequest { likely_cost: Some(likely), ..request.clone() };
    let known = state(c)?;
    let (backend, session) = match backends::choose(&known, settings, &request, seed, now) {
        BackendChoice::Use { backend, session } => (backend, session),
        BackendChoice::Wait { until, reasons } => {
            return Ok(CallDecision::Refused(CallRefusal::Wait { until, reasons }));
        }
        BackendChoice::Never { reasons } => return Ok(CallDecision::Refused(CallRefusal::Never { reasons })),
    };
    let (reserve, at_most) = match ledger(c, caller, now)?.permit(likely, now) {
        Permit::Yes { reserve, at_most } => (reserve, at_most),
        Permit::No(reached) => return Ok(CallDecision::Refused(CallRefusal::NoMoney(reached))),
    };
    let models = models(&backend);
    let lacks = |model: &&String| {
        known.backends.get(&backend).is_some_and(|b| b.lacks_model_for(caller.loop_id.as_str(), model, now))
    };
    let model = models.iter().find(|model| !lacks(model)).or(models.first()).cloned();
    let same_model = request.session.as_ref().is_some_and(|session| session.model == model);
    let session = if same_model { session } else { SessionUse::Fresh };
    let call = BackendCall {
        key: caller.key.clone(),
        loop_id: caller.loop_id.to_string(),
        role: request.role,
        backend: backend.clone(),
        model: model.clone(),
        resumed: session == SessionUse::Resume,
        previous: request.previous.clone(),
    };
    let started = BackendObservation::CallStarted { call: call.clone(), likely_cost: Some(likely) };
    let mut changes = elapsed.changes;
    changes.extend(observe(c, &started, settings, now)?.changes);
    c.prepare_cached(
        "INSERT INTO calls (key, loop_id, forge, repo_id, iteration, role, purpose, backend, model, call, day, started_at, reserved)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(params![
        caller.key,
        caller.loop_id.as_str(),
        caller.repo.forge.as_str(),
        caller.repo.id.0,
        caller.iteration,
        request.role.word(),
        caller.purpose,
        backend,
        model,
        serde_json::to_string(&call)?,
        day_of(now),
        now.0,
        reserve.0,
    ])?;
    Ok(CallDecision::Call { backend, model, session, at_most, caller: Box::new(caller.clone()), changes })
}

/// Records a call's first output, which shows that its backend works.
pub fn answered(c: &Connection, key: &str, settings: &BackendsSettings, now: Timestamp) -> StoreResult<BackendChanges> {
    let sql = "SELECT call FROM calls WHERE key = ?1 AND ended_at IS NULL";
    let call: Option<String> = c.query_row(sql, [key], |row| row.get(0)).optional()?;
    let Some(call) = call else { return Ok(BackendChanges::default()) };
    observe(c, &BackendObservation::CallAnswered { call: serde_json::from_str(&call)? }, settings, now)
}

/// Records the current cost of a running call, so that it is known even if the process dies. Returns the exceeded limit, if
/// any. The limits also cover the cost and reservations of other running calls.
pub fn record_cost(
    c: &Connection,
    caller: &CallContext,
    cost: Money,
    now: Timestamp,
) -> StoreResult<Option<CostLimitReached>> {
    let sql = "UPDATE calls SET shown = max(coalesce(shown, 0), ?2) WHERE key = ?1 AND ended_at IS NULL";
    c.prepare_cached(sql)?.execute(params![caller.key, cost.0])?;
    Ok(ledger(c, caller, now)?.goes_on(cost, now).err())
}

/// Reserves the cost of the requests that a running call is about to send, if the limits allow it in addition to the cost
/// and reservations of other running calls. Otherwise, reserves nothing and returns the limit that the requests would
/// exceed.
pub fn commit_cost(
    c: &Connection,
    caller: &CallContext,
    committed: Money,
    now: Timestamp,
) -> StoreResult<Option<CostLimitReached>> {
    if let Err(reached) = ledger(c, caller, now)?.covers(committed, now) {
        return Ok(Some(reached));
    }
    let sql = "UPDATE calls SET shown = max(coalesce(shown, 0), ?2) WHERE key = ?1 AND ended_at IS NULL";
    c.prepare_cached(sql)?.execute(params![caller.key, committed.0])?;
    Ok(None)
}

/// Records the end of a call and updates its backend's state. `seen` creates the observation from the recorded call and its
/// cost. Does not change a call that has already ended, unless the call was settled as lost and had cost more.
pub fn end(
    c: &Connection,
    key: &str,
    booking: &CallSettlement,
    settings: &BackendsSettings,
    now: Timestamp,
    seen: impl FnOnce(BackendCall, Option<Money>) -> BackendObservation,
) -> StoreResult<BackendChanges> {
    let sql = "SELECT call, started_at, reserved, shown FROM calls WHERE key = ?1 AND ended_at IS NULL";
    let open = c.query_row(sql, [key], |row| {
        let at = Timestamp(row.get(1)?);
        let shown = row.get::<_, Option<i64>>(3)?.map(Money);
        Ok((row.get::<_, String>(0)?, Reservation { at, amount: Money(row.get(2)?), shown }))
    });
    let Some((call, reservation)) = open.optional()? else {
        if let Ending::Cost(real) = booking.ending {
            raise_lost(c, key, real, now)?;
        }
        return Ok(BackendChanges::default());
    };
    let cost = reservation.settle(booking.ending);
    let usage = booking.usage;
    c.execute(
        "UPDATE calls SET ended_at = ?2, cost = ?3, estimated = ?4, tokens_in = ?5, tokens_out = ?6, cache_read = ?7,
         cache_write = ?8, outcome = ?9 WHERE key = ?1",
        params![
            key,
            now.0,
            cost.0,
            booking.estimated,
            as_i64(usage.input),
            as_i64(usage.output),
            as_i64(usage.cache_read),
            as_i64(usage.cache_write),
            booking.outcome,
        ],
    )?;
    costs::add(c, key)?;
    let known = matches!(booking.ending, Ending::Cost(_)).then_some(cost);
    observe(c, &seen(serde_json::from_str(&call)?, known), settings, now)
}

/// Corrects the booked cost of a call that was settled as lost, after its host reported a higher one. A lower one is not corrected,
/// because recorded costs never decrease.
fn raise_lost(c: &Connection, key: &str, real: Money, now: Timestamp) -> StoreResult<()> {
    let sql = "SELECT loop_id, cost FROM calls WHERE key = ?1 AND outcome = 'lost' AND cost < ?2";
    let booked = c.query_row(sql, params![key, real.0], |row| Ok((row.get::<_, String>(0)?, Money(row.get(1)?))));
    let Some((id, booked)) = booked.optional()? else { return Ok(()) };
    c.execute("UPDATE calls SET cost = ?2 WHERE key = ?1", params![key, real.0])?;
    let cost = Money(real.0 - booked.0);
    costs::raise(c, key, cost)?;
    let input = LoopInput::Outcome { ticket: 0, outcome: WorkOutcome::AskedAtEnd { cost } };
    loops::enqueue_input(c, &LoopId::new(id), &format!("lost-cost/{key}/{}", real.0), &input, now).map(drop)
}

/// Settles the calls of a loop whose process died; returns each call's backend, purpose and assumed cost. The calls of `counted`
/// backends recorded the cost of each request before they sent it; others cost at least [`assumed`].
pub fn abandon(
    c: &Connection,
    of: &LoopId,
    counted: &BTreeSet<String>,
    settings: &BackendsSettings,
    now: Timestamp,
) -> StoreResult<Vec<(String, BackendRole, Money)>> {
    let mut statement = c.prepare("SELECT key, backend FROM calls WHERE loop_id = ?1 AND ended_at IS NULL")?;
    let open = statement.query_map([of.as_str()], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let open = open.collect::<Result<Vec<_>, _>>()?;
    let mut lost = Vec::new();
    for (key, backend) in open {
        let at_least = if counted.contains(&backend) { Money(0) } else { assumed(c, &key)? };
        let ending = Ending::Lost { at_least };
        let booking = CallSettlement { ending, estimated: true, usage: TokenUsage::default(), outcome: "lost" };
        let mut who = None;
        end(c, &key, &booking, settings, now, |call, cost| {
            who = Some((call.backend.clone(), call.role));
            BackendObservation::CallAbandoned { call, cost }
        })?;
        if let Some((backend, role)) = who {
            lost.push((backend, role, cost_of(c, &key)?));
        }
    }
    Ok(lost)
}

/// Returns the cost to assume for a call that ended without a complete report: the reserved and the reported cost, and the cost of
/// the most expensive of the backend's past calls for the same purpose, whichever is highest. A first run of an agent may cost as
/// much as the first run of all.
pub fn assumed(c: &Connection, key: &str) -> StoreResult<Money> {
    let sql = "SELECT backend, purpose, max(reserved, coalesce(shown, 0)) FROM calls WHERE key = ?1";
    let (backend, purpose, known) = c
        .prepare_cached(sql)?
        .query_row([key], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, Money(row.get(2)?))))?;
    let sql = format!(
        "SELECT max(cost) FROM (SELECT cost FROM calls
             WHERE backend = ?1 AND purpose = ?2 AND outcome IN ('finished', 'failed') ORDER BY id DESC LIMIT {PAST}) past"
    );
    let most: Option<i64> = c.prepare_cached(&sql)?.query_row(params![backend, purpose], |row| row.get(0))?;
    let first = if purpose == AGENT { LIKELY_DEFAULT } else { Money(0) };
    Ok(known.max(most.map_or(first, Money)))
}

/// Whether an agent was started by a call whose key has the prefix `beginning`.
pub fn has_agent(c: &Connection, beginning: &str) -> StoreResult<bool> {
    let sql =
        "SELECT EXISTS (SELECT 1 FROM calls WHERE substr(key, 1, length(?1)) = ?1 AND key >= ?1 AND purpose = ?2)";
    Ok(c.prepare_cached(sql)?.query_row(params![beginning, AGENT], |row| row.get(0))?)
}

/// Returns the common key prefix of all calls for a loop's work with this ticket.
pub fn key_prefix(of: &LoopId, ticket: u64) -> String {
    format!("{of}/{ticket}/")
}

/// Returns the total cost of the finished calls whose keys have the prefix `beginning`.
pub fn cost_of(c: &Connection, beginning: &str) -> StoreResult<Money> {
    let sql = "SELECT coalesce(sum(cost), 0) FROM calls WHERE substr(key, 1, length(?1)) = ?1 AND key >= ?1";
    Ok(c.prepare_cached(sql)?.query_row([beginning], |row| row.get(0).map(Money))?)
}

/// Returns the total cost of a loop's finished calls for a purpose.
pub fn cost_of_purpose(c: &Connection, of: &LoopId, purpose: &str) -> StoreResult<Money> {
    let sql = "SELECT coalesce(sum(cost), 0) FROM calls WHERE loop_id = ?1 AND purpose = ?2";
    Ok(c.prepare_cached(sql)?.query_row([of.as_str(), purpose], |row| row.get(0).map(Money))?)
}

/// Returns the calls of a loop, oldest first.
pub fn of_loop(c: &Connection, of: &LoopId) -> StoreResult<Vec<CallRecord>> {
    let mut statement = c.prepare(
        "SELECT iteration, purpose, backend, model, started_at, coalesce(cost, max(reserved, coalesce(shown, 0))),
         estimated, tokens_in, tokens_out, cache_read, cache_write, outcome FROM calls WHERE loop_id = ?1 ORDER BY id",
    )?;
    let rows = statement.query_map([of.as_str()], booked)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn booked(row: &Row<'_>) -> SqlResult<CallRecord> {
    let tokens = |at: usize| row.get::<_, i64>(at).map(|count| u64::try_from(count).unwrap_or_default());
    Ok(CallRecord {
        iteration: row.get(0)?,
        purpose: row.get(1)?,
        backend: row.get(2)?,
        model: row.get(3)?,
        started_at: Timestamp(row.get(4)?),
        cost: Money(row.get(5)?),
        estimated: row.get(6)?,
        usage: TokenUsage { input: tokens(7)?, output: tokens(8)?, cache_read: tokens(9)?, cache_write: tokens(10)? },
        outcome: row.get(11)?,
    })
}

/// Returns the expected cost of a call, estimated from the loop's calls for the same purpose or, if there are none, from all
/// loops' calls.
fn likely(c: &Connection, caller: &CallContext, role: BackendRole) -> StoreResult<Money> {
    let past = |condition: &str, value: &str| -> StoreResult<Vec<Money>> {
        let sql = format!(
            "SELECT cost FROM calls WHERE {condition} AND role = ?2 AND purpose = ?3 AND outcome IN ('finished', 'failed')
             ORDER BY id DESC LIMIT {PAST}"
        );
        let mut statement = c.prepare_cached(&sql)?;
        let rows = statement.query_map(params![value, role.word(), caller.purpose], |row| row.get(0).map(Money))?;
        Ok(rows.collect::<Result<_, _>>()?)
    };
    let own = past("loop_id = ?1", caller.loop_id.as_str())?;
    let known = if own.is_empty() { past("forge = ?1", caller.repo.forge.as_str())? } else { own };
    Ok(likely_cost(&known))
}

/// Returns the current totals to which the call's cost is added, without the call itself.
fn ledger(c: &Connection, caller: &CallContext, now: Timestamp) -> StoreResult<CostAccounts> {
    let limits = caller.limits;
    let settled = |condition: &str, values: &[&dyn ToSql]| -> StoreResult<Money> {
        let sql = format!("SELECT coalesce(sum(cost), 0) FROM calls WHERE ended_at IS NOT NULL AND {condition}");
        Ok(c.prepare_cached(&sql)?.query_row(values, |row| row.get(0).map(Money))?)
    };
    let held = |condition: &str, values: &[&dyn ToSql]| -> StoreResult<Money> {
        let sql = format!(
            "SELECT coalesce(sum(max(reserved, coalesce(shown, 0))), 0) FROM calls
             WHERE ended_at IS NULL AND {condition} AND key <> ?{}",
            values.len() + 1
        );
        let values: Vec<_> = values.iter().copied().chain([&caller.key as &dyn ToSql]).collect();
        Ok(c.prepare_cached(&sql)?.query_row(&*values, |row| row.get(0).map(Money))?)
    };
    let (day, loop_id) = (day_of(now), caller.loop_id.as_str());
    let (forge, repo) = (caller.repo.forge.as_str(), caller.repo.id.0);
    let booked = settled("loop_id = ?1", &[&loop_id])?;
    Ok(CostAccounts {
        of_loop: CostAccount {
            spent: booked.max(limits.loop_spent),
            reserved: held("loop_id = ?1", &[&loop_id])?,
            limit: limits.of_loop,
        },
        of_purpose: CostAccount {
            spent: settled("loop_id = ?1 AND purpose = ?2", &[&loop_id, &caller.purpose])?,
            reserved: held("loop_id = ?1 AND purpose = ?2", &[&loop_id, &caller.purpose])?,
            limit: limits.of_purpose,
        },
        of_repository: CostAccount {
            spent: settled("forge = ?1 AND repo_id = ?2 AND day = ?3", &[&forge, &repo, &day])?,
            reserved: held("forge = ?1 AND repo_id = ?2", &[&forge, &repo])?,
            limit: limits.of_repository,
        },
        of_service: CostAccount {
            spent: settled("day = ?1", &[&day])?,
            reserved: held("TRUE", &[])?,
            limit: limits.of_service,
        },
    })
}

fn as_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::{ForgeName, RepoId};
    use crate::domain::providers::backends::{BackendSettings, BlockedBy};
    use crate::domain::providers::limit::{Limit, LimitKind, LimitSource};
    use crate::domain::providers::money::LimitScope;
    use crate::store::Store;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn settings() -> BackendsSettings {
        let mut settings = BackendsSettings::default();
        for name in ["one", "two"] {
            settings.backends.insert(name.into(), BackendSettings::default());
        }
        settings
    }

    fn caller(key: &str, of: &str) -> CallContext {
        let repo = RepoRef { forge: ForgeName::new("work"), id: RepoId(7), owner: "team".into(), name: "app".into() };
        CallContext {
            key: key.into(),
            loop_id: LoopId::new(of),
            repo,
            iteration: 1,
            purpose: "agent".into(),
            limits: CallLimits::default(),
        }
    }

    fn request() -> CallRequest {
        CallRequest {
            loop_id: String::new(),
            role: BackendRole::Agent,
            exclude: Vec::new(),
            avoid: Vec::new(),
            likely_cost: None,
            previous: None,
            session: None,
        }
    }

    async fn on<T: Send + 'static>(
        store: &Store,
        work: impl FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
    ) -> T {
        store.write(work).await.expect("a write")
    }

    fn begun(c: &Connection, key: &str, of: &str, limits: CallLimits) -> StoreResult<CallDecision> {
        let caller = CallContext { limits, ..caller(key, of) };
        begin(c, &caller, &request(), &|_| Vec::new(), &settings(), 1, NOW)
    }

    fn backend_of(begun: &CallDecision) -> &str {
        match begun {
            CallDecision::Call { backend, .. } => backend,
            other => panic!("{other:?}"),
        }
    }

    fn booking(ending: Ending) -> CallSettlement {
        CallSettlement { ending, estimated: false, usage: TokenUsage::default(), outcome: "finished" }
    }

    #[tokio::test]
    async fn limited_backend_is_avoided_by_all_loops() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            assert_eq!(backend_of(&begun(c, "a/1", "a", CallLimits::default())?), "one");
            let limit = Limit {
                kind: LimitKind::Quota,
                until: Some(NOW.plus_ms(3_600_000)),
                source: LimitSource::Stream,
                evidence: "5-hour limit".into(),
            };
            let limited = |call, cost| BackendObservation::CallLimited { call, cost, limit, seed: 1 };
            let observed = end(c, "a/1", &booking(Ending::Cost(Money(0))), &settings(), NOW, limited)?;
            assert!(matches!(&observed.changes[..], [BackendChange::Parked { backend, .. }] if backend == "one"));
            assert_eq!(backend_of(&begun(c, "a/2", "a", CallLimits::default())?), "two");
            assert_eq!(backend_of(&begun(c, "b/1", "b", CallLimits::default())?), "two");
            // A repeated end has no effect.
            let again = end(c, "a/1", &booking(Ending::Cost(Money(9))), &settings(), NOW, |call, cost| {
                BackendObservation::CallAbandoned { call, cost }
            })?;
            assert_eq!(again, BackendChanges::default());
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn backend_state_survives_restart_and_damage() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let away = BackendObservation::Disabled { backend: "one".into(), reason: "a holiday".into() };
            observe(c, &away, &settings(), NOW)?;
            assert_eq!(backend_of(&begun(c, "a/1", "a", CallLimits::default())?), "two");
            c.execute("UPDATE backends SET data = '{'", [])?;
            assert_eq!(state(c)?, Backends::default());
            assert_eq!(backend_of(&begun(c, "a/2", "a", CallLimits::default())?), "one");
            let mut only = request();
            only.exclude = vec!["one".into(), "two".into()];
            let none = begin(c, &caller("a/3", "a"), &only, &|_| Vec::new(), &settings(), 1, NOW)?;
            let CallDecision::Refused(CallRefusal::Never { reasons }) = none else { panic!("{none:?}") };
            assert!(reasons.iter().all(|blocked| blocked.by == BlockedBy::Excluded));
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn cost_is_reserved_before_the_call() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let limits = CallLimits { of_service: Some(Money::from_usd(0.6)), ..CallLimits::default() };
            let first = begun(c, "a/1", "a", limits)?;
            assert!(matches!(first, CallDecision::Call { at_most: Some(most), .. } if most == Money::from_usd(0.6)));
            // The first call reserves half a dollar; the rest is too little for another call.
            let second = begun(c, "b/1", "b", limits)?;
            let CallDecision::Refused(CallRefusal::NoMoney(reached)) = second else { panic!("{second:?}") };
            assert!(reached.free_at.is_some_and(|at| at > NOW), "{reached}");
            record_cost(c, &caller("a/1", "a"), Money::from_usd(0.1), NOW)?;
            end(c, "a/1", &booking(Ending::Cost(Money::from_usd(0.01))), &settings(), NOW, |call, cost| {
                BackendObservation::CallSucceeded { call, tokens: 10, cost }
            })?;
            assert_eq!(backend_of(&begun(c, "b/1", "b", limits)?), "one");
            let booked = of_loop(c, &LoopId::new("a"))?;
            assert_eq!(booked.iter().map(|call| call.cost).collect::<Vec<_>>(), [Money::from_usd(0.01)]);
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn concurrent_runs_count_against_each_other() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let limits = CallLimits { of_service: Some(Money::from_usd(2.0)), ..CallLimits::default() };
            for key in ["a/1", "b/1"] {
                let begun = begun(c, key, &key[..1], limits)?;
                assert!(matches!(begun, CallDecision::Call { at_most: Some(_), .. }), "{begun:?}");
            }
            let costs = |key: &str, usd: f64| {
                let caller = CallContext { limits, ..caller(key, &key[..1]) };
                record_cost(c, &caller, Money::from_usd(usd), NOW).map(|reached| reached.map(|reached| reached.scope))
            };
            assert_eq!((costs("a/1", 1.2)?, costs("b/1", 0.7)?), (None, None));
            // Each call is far below its own limit.
            assert_eq!(costs("b/1", 0.9)?, Some(LimitScope::ServiceDay));
            assert_eq!(costs("a/1", 1.2)?, Some(LimitScope::ServiceDay));
            Ok(())
        })
        .await;
    }

    /// Two processes on one database file reserve cost concurrently while some of their runs end. No reader ever sees
    /// settled plus reserved cost above the limit, and the whole limit gets used.
    ///
    /// See docs/research/threats.md#p15.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_reservations_in_one_file_stay_within_the_shared_limit() {
        const LIMIT: Money = Money(8_000_000);
        const STEP: Money = Money(70_000);
        const LIMITS: CallLimits = CallLimits {
            of_service: Some(LIMIT),
            of_loop: None,
            of_purpose: None,
            loop_spent: Money(0),
            of_repository: None,
        };
        /// Reserves 7 cents repeatedly until the store rejects a reservation. With `ends`, the run then ends at 70 cents and
        /// another one starts.
        async fn ask_until_refused(store: Store, of: String, ends: bool) {
            for attempt in 0.. {
                let (owner, key) = (of.clone(), format!("{of}/{attempt}"));
                let caller = CallContext { limits: LIMITS, ..caller(&key, &of) };
                let begun = {
                    let key = key.clone();
                    on(&store, move |c| begun(c, &key, &owner, LIMITS)).await
                };
                if !matches!(begun, CallDecision::Call { .. }) {
                    return;
                }
                let mut committed = Money(0);
                while !ends || committed.0 < 10 * STEP.0 {
                    let (caller, next) = (caller.clone(), committed.plus(STEP));
                    if on(&store, move |c| commit_cost(c, &caller, next, NOW)).await.is_some() {
                        return;
                    }
                    committed = next;
                }
                let ended = move |c: &Connection| {
                    end(c, &key, &booking(Ending::Cost(committed)), &settings(), NOW, |call, cost| {
                        BackendObservation::CallAbandoned { call, cost }
                    })
                };
                on(&store, ended).await;
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ralph.db");
        let own = Store::open(&path).expect("a store");
        let beside = Store::attach(&path).expect("a second process");
        let used = |c: &Connection| {
            let sql = "SELECT coalesce(sum(coalesce(cost, max(reserved, coalesce(shown, 0)))), 0) FROM calls";
            Ok(c.query_row(sql, [], |row| row.get(0).map(Money))?)
        };
        let mut runs = tokio::task::JoinSet::new();
        for number in 0..12 {
            let store = if number % 2 == 0 { own.clone() } else { beside.clone() };
            runs.spawn(ask_until_refused(store, format!("loop-{number}"), number % 3 == 0));
        }
        let mut most = Money(0);
        while !runs.is_empty() {
            most = most.max(own.read(used).await.expect("a read"));
            while let Some(ended) = runs.try_join_next() {
                ended.expect("no panic");
            }
        }
        let total = own.read(used).await.expect("a read");
        assert!(most <= LIMIT && total <= LIMIT, "at most {most}, in the end {total} of {LIMIT}");
        assert!(total.plus(STEP) > LIMIT, "{total} of {LIMIT}");
        for store in [beside, own] {
            store.close().await;
        }
    }

    #[tokio::test]
    async fn missing_model_is_replaced_by_the_next() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let mut request = request();
            request.exclude = vec!["two".into()];
            let begin_call = |key: &str| {
                let models = |_: &str| vec!["m-9".to_owned(), "m-8".to_owned()];
                let begun = begin(c, &caller(key, "a"), &request, &models, &settings(), 1, NOW)?;
                let CallDecision::Call { model: Some(model), .. } = begun else { panic!("{begun:?}") };
                let evidence = "no such model".into();
                let limit = Limit { kind: LimitKind::ModelMissing, until: None, source: LimitSource::Stream, evidence };
                let limited = |call, cost| BackendObservation::CallLimited { call, cost, limit, seed: 1 };
                end(c, key, &booking(Ending::Cost(Money(0))), &settings(), NOW, limited)?;
                StoreResult::Ok(model)
            };
            let all = [begin_call("a/1")?, begin_call("a/2")?, begin_call("a/3")?];
            assert_eq!(all, ["m-9", "m-8", "m-9"], "where it lacks all, the first is tried again");
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn repository_cost_is_counted_per_day() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let limits = CallLimits { of_repository: Some(Money::from_usd(0.6)), ..CallLimits::default() };
            let at = |key: &str, forge: &str, id: i64, now: Timestamp| {
                let repo = RepoRef { forge: ForgeName::new(forge), id: RepoId(id), ..caller("", "a").repo };
                begin(
                    c,
                    &CallContext { limits, repo, ..caller(key, key) },
                    &request(),
                    &|_| Vec::new(),
                    &settings(),
                    1,
                    now,
                )
            };
            let cost = |key: &str, usd: f64| {
                let booking = booking(Ending::Cost(Money::from_usd(usd)));
                end(c, key, &booking, &settings(), NOW, |call, cost| BackendObservation::CallSucceeded {
                    call,
                    tokens: 10,
                    cost,
                })
            };
            let money = |begun: CallDecision| !matches!(begun, CallDecision::Refused(CallRefusal::NoMoney(_)));
            // The first call reserves half a dollar for calls of any loop.
            assert!(money(at("a", "work", 7, NOW)?));
            assert!(!money(at("b", "work", 7, NOW)?), "what is held counts");
            assert!(money(at("c", "work", 8, NOW)?) && money(at("d", "other", 7, NOW)?), "others have their own");
            cost("a", 0.59)?;
            assert!(!money(at("e", "work", 7, NOW)?), "what is spent counts");
            assert!(money(at("f", "work", 7, NOW.plus_ms(24 * 3_600_000))?), "another day");
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn purpose_is_limited_to_its_share() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let limits = CallLimits { of_purpose: Some(Money::from_usd(0.03)), ..CallLimits::default() };
            let ask = |key: &str| {
                let caller = CallContext { limits, purpose: "prompt".into(), ..caller(key, "a") };
                let request = CallRequest { likely_cost: Some(Money::from_usd(0.01)), ..request() };
                begin(c, &caller, &request, &|_| Vec::new(), &settings(), 1, NOW)
            };
            // Calls for other purposes do not count.
            begun(c, "a/1/0", "a", CallLimits::default())?;
            for key in ["a/1/prompt-1", "a/1/prompt-2", "a/1/prompt-3"] {
                assert_eq!(backend_of(&ask(key)?), "one");
            }
            let fourth = ask("a/1/prompt-4")?;
            let CallDecision::Refused(CallRefusal::NoMoney(reached)) = fourth else { panic!("{fourth:?}") };
            assert_eq!(reached.free_at, None);
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn calls_of_a_dead_process_are_charged_and_free_their_slot() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            begun(c, "a/1/0", "a", CallLimits::default())?;
            begun(c, "a/2/question", "a", CallLimits::default())?;
            end(c, "a/2/question", &booking(Ending::Cost(Money::from_usd(0.05))), &settings(), NOW, |call, cost| {
                BackendObservation::CallAbandoned { call, cost }
            })?;
            begun(c, "a/2/0", "a", CallLimits::default())?;
            record_cost(c, &caller("a/2/0", "a"), Money::from_usd(0.2), NOW)?;
            record_cost(c, &caller("a/2/0", "a"), Money::from_usd(0.1), NOW)?;
            let lost = |usd| ("one".to_owned(), BackendRole::Agent, Money::from_usd(usd));
            let counted = BTreeSet::from(["one".to_owned()]);
            let settled = abandon(c, &LoopId::new("a"), &counted, &settings(), NOW)?;
            assert!(settled.len() == 2 && settled.contains(&lost(0.2)), "{settled:?}");
            assert_eq!(abandon(c, &LoopId::new("a"), &counted, &settings(), NOW)?, []);
            // Includes calls that ended before the process died, and excludes calls of other work.
            assert_eq!(cost_of(c, &key_prefix(&LoopId::new("a"), 2))?, Money::from_usd(0.25));
            assert_eq!(cost_of(c, &key_prefix(&LoopId::new("a"), 22))?, Money(0));
            assert!(state(c)?.backends["one"].in_flight.is_empty());
            Ok(())
        })
        .await;
    }

    /// Runs whose requests are not counted are booked at least at the cost of the most expensive one.
    #[tokio::test]
    async fn lost_call_without_complete_report_costs_as_much_as_any_before() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let cost_of_lost = |key: &str, shown: Option<f64>| {
                begun(c, key, "a", CallLimits::default())?;
                if let Some(shown) = shown {
                    record_cost(c, &caller(key, "a"), Money::from_usd(shown), NOW)?;
                }
                let settled = abandon(c, &LoopId::new("a"), &BTreeSet::new(), &settings(), NOW)?;
                Ok::<_, crate::store::StoreError>(settled[0].2)
            };
            assert_eq!(cost_of_lost("a/1/0", None)?, LIKELY_DEFAULT);
            for (key, usd) in [("b/1/0", 0.1), ("b/2/0", 0.7), ("b/3/0", 0.1)] {
                begun(c, key, "b", CallLimits::default())?;
                end(c, key, &booking(Ending::Cost(Money::from_usd(usd))), &settings(), NOW, |call, cost| {
                    BackendObservation::CallAbandoned { call, cost }
                })?;
            }
            assert_eq!(cost_of_lost("a/2/0", None)?, Money::from_usd(0.7));
            assert_eq!(cost_of_lost("a/3/0", Some(0.2))?, Money::from_usd(0.7));
            assert_eq!(cost_of_lost("a/4/0", Some(0.9))?, Money::from_usd(0.9));
            Ok(())
        })
        .await;
    }

    /// A host that was only cut off reports the real cost of a run that another host has settled.
    #[tokio::test]
    async fn late_report_raises_the_cost_of_a_lost_call() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let sum = |c: &Connection| -> StoreResult<Money> {
                Ok(c.query_row("SELECT sum(cost) FROM daily_costs", [], |row| row.get(0).map(Money))?)
            };
            begun(c, "a/1/0", "a", CallLimits::default())?;
            abandon(c, &LoopId::new("a"), &BTreeSet::new(), &settings(), NOW)?;
            for (real, booked) in [(0.4, 0.5), (0.8, 0.8), (0.8, 0.8)] {
                end(c, "a/1/0", &booking(Ending::Cost(Money::from_usd(real))), &settings(), NOW, |call, cost| {
                    BackendObservation::CallAbandoned { call, cost }
                })?;
                assert_eq!(cost_of(c, &key_prefix(&LoopId::new("a"), 1))?, Money::from_usd(booked));
                assert_eq!(sum(c)?, Money::from_usd(booked));
            }
            let inputs = c.query_row("SELECT count(*), max(input) FROM inputs", [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
            })?;
            let expected =
                LoopInput::Outcome { ticket: 0, outcome: WorkOutcome::AskedAtEnd { cost: Money::from_usd(0.3) } };
            assert_eq!(inputs, (1, serde_json::to_string(&expected)?));
            Ok(())
        })
        .await;
    }
}
