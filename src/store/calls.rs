//! Calls of backends. Choosing a backend, reserving the money and marking the call as begun are one transaction, so that
//! two loops cannot take the same free place or the same last dollar, in one process or in several.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;

use super::StoreResult;
use crate::domain::model::ids::{LoopId, Money, RepoRef, Timestamp};
use crate::domain::providers::backends::{
    self, Advice, Backends, BackendsSettings, Blocked, Call, Change, Choice, Observation, Request, Role, Session, Why,
};
use crate::domain::providers::money::{Account, Ending, Ledger, Permit, Reached, Reservation, day_of, likely_cost};
use crate::domain::providers::prices::Usage;

/// Past calls that tell what the next one is likely to cost.
const PAST: u32 = 20;

/// Who calls, and for what.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// Unique over all calls: loop, ticket of the work, and try.
    pub key: String,
    /// The loop.
    pub loop_id: LoopId,
    /// Its repository.
    pub repo: RepoRef,
    /// Its iteration, from 1.
    pub iteration: u32,
    /// What for: `agent`, or the job of an assistant.
    pub purpose: String,
    /// Limits of money that hold for it.
    pub limits: MoneyLimits,
}

/// Limits of money, where there are any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoneyLimits {
    /// Of the loop, over its life.
    pub of_loop: Option<Money>,
    /// Of all calls of the loop for the same purpose.
    pub of_purpose: Option<Money>,
    /// What the loop has spent by its own account; the greater of this and what is booked counts.
    pub loop_spent: Money,
    /// Of the repository, a day.
    pub of_repository: Option<Money>,
    /// Of the service, a day.
    pub of_service: Option<Money>,
}

/// What a caller may do.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// Call this backend now; the call is booked.
    Call {
        /// Whom.
        backend: String,
        /// Which model; `None` for the backend's own.
        model: Option<String>,
        /// Why this one.
        why: Why,
        /// Whether an earlier session may go on.
        session: Session,
        /// What it may cost before it is ended, by limits of money as they are now.
        at_most: Option<Money>,
        /// Who calls; what it costs meanwhile is noted under this.
        caller: Box<Caller>,
        /// What changed among the backends.
        changes: Vec<Change>,
    },
    /// Ask again then.
    Wait {
        /// When.
        until: Timestamp,
        /// What holds each backend back.
        reasons: Vec<Blocked>,
    },
    /// Waiting does not help.
    Never {
        /// What holds each backend back.
        reasons: Vec<Blocked>,
    },
    /// A limit of money is in the way.
    NoMoney(Reached),
}

/// What followed from something that was seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observed {
    /// What changed among the backends.
    pub changes: Vec<Change>,
    /// What to do about the call.
    pub advice: Option<Advice>,
}

/// How a call ended, as it is booked.
#[derive(Debug, Clone, PartialEq)]
pub struct Booking {
    /// As far as money goes.
    pub ending: Ending,
    /// Whether the cost is an estimate of ours.
    pub estimated: bool,
    /// Tokens.
    pub usage: Usage,
    /// In one word.
    pub outcome: &'static str,
}

/// A call as it is booked, for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Booked {
    /// Iteration, from 1.
    pub iteration: u32,
    /// What for.
    pub purpose: String,
    /// Whom.
    pub backend: String,
    /// Which model.
    pub model: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// What it cost; what it holds while it is under way.
    pub cost: Money,
    /// Whether that is an estimate of ours.
    pub estimated: bool,
    /// Tokens.
    pub usage: Usage,
    /// How it ended; `None` while it is under way.
    pub outcome: Option<String>,
}

/// What is known of the backends. What cannot be read counts as nothing known.
pub fn state(c: &Connection) -> StoreResult<Backends> {
    let data: Option<String> = c.query_row("SELECT data FROM backends", [], |row| row.get(0)).optional()?;
    Ok(data.and_then(|data| serde_json::from_str(&data).ok()).unwrap_or_default())
}

/// Takes something that was seen into account.
pub fn observe(
    c: &Connection,
    observation: &Observation,
    settings: &BackendsSettings,
    now: Timestamp,
) -> StoreResult<Observed> {
    let before = state(c)?;
    let transition = backends::next(before.clone(), observation, settings, now);
    if transition.state != before {
        let data = serde_json::to_string(&transition.state)?;
        c.execute("INSERT INTO backends (id, data) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET data = ?1", [data])?;
    }
    Ok(Observed { changes: transition.changes, advice: transition.advice })
}

/// Chooses a backend for a call, reserves what the call is likely to cost (by calls before it, where the request does not
/// say it), and books that it begins; or says what is in the way. `models` names the models that a backend may be asked for,
/// the first that it has, or the first of all where it seems to have none; its own where there is no name.
pub fn begin(
    c: &Connection,
    caller: &Caller,
    request: &Request,
    models: &dyn Fn(&str) -> Vec<String>,
    settings: &BackendsSettings,
    seed: u64,
    now: Timestamp,
) -> StoreResult<Begun> {
    let elapsed = observe(c, &Observation::Elapsed, settings, now)?;
    let likely = match request.likely_cost {
        Some(known) => known,
        None => likely(c, caller, request.role)?,
    };
    let request = Request { likely_cost: Some(likely), ..request.clone() };
    let known = state(c)?;
    let (backend, why, session) = match backends::choose(&known, settings, &request, seed, now) {
        Choice::Use { backend, why, session } => (backend, why, session),
        Choice::Wait { until, reasons } => return Ok(Begun::Wait { until, reasons }),
        Choice::Never { reasons } => return Ok(Begun::Never { reasons }),
    };
    let (reserve, at_most) = match ledger(c, caller, now)?.permit(likely, now) {
        Permit::Yes { reserve, at_most } => (reserve, at_most),
        Permit::No(reached) => return Ok(Begun::NoMoney(reached)),
    };
    let models = models(&backend);
    let lacks = |model: &&String| known.backends.get(&backend).is_some_and(|state| state.lacks_model(model, now));
    let model = models.iter().find(|model| !lacks(model)).or(models.first()).cloned();
    let same_model = request.session.as_ref().is_some_and(|left| left.model == model);
    let session = if same_model { session } else { Session::Fresh };
    let call = Call {
        key: caller.key.clone(),
        role: request.role,
        backend: backend.clone(),
        model: model.clone(),
        task_type: request.task_type,
        resumed: session == Session::Resume,
        previous: request.previous.clone(),
    };
    let started = Observation::CallStarted { call: call.clone(), likely_cost: Some(likely) };
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
    Ok(Begun::Call { backend, model, why, session, at_most, caller: Box::new(caller.clone()), changes })
}

/// The first words of a call came: its backend serves us.
pub fn answered(c: &Connection, key: &str, settings: &BackendsSettings, now: Timestamp) -> StoreResult<Observed> {
    let sql = "SELECT call FROM calls WHERE key = ?1 AND ended_at IS NULL";
    let call: Option<String> = c.query_row(sql, [key], |row| row.get(0)).optional()?;
    let Some(call) = call else { return Ok(Observed::default()) };
    observe(c, &Observation::CallAnswered { call: serde_json::from_str(&call)? }, settings, now)
}

/// Notes what a call under way has cost up to now, so that a lost process is not forgotten money; the limit that it reached
/// by that, with all that others under way have cost or are likely to.
pub fn shown(c: &Connection, caller: &Caller, cost: Money, now: Timestamp) -> StoreResult<Option<Reached>> {
    let sql = "UPDATE calls SET shown = max(coalesce(shown, 0), ?2) WHERE key = ?1 AND ended_at IS NULL";
    c.prepare_cached(sql)?.execute(params![caller.key, cost.0])?;
    Ok(ledger(c, caller, now)?.goes_on(cost, now).err())
}

/// Books the end of a call and what follows from it for its backend; `seen` makes the observation of the call as it was
/// booked and of its cost. A call that has ended already is left as it is.
pub fn end(
    c: &Connection,
    key: &str,
    booking: &Booking,
    settings: &BackendsSettings,
    now: Timestamp,
    seen: impl FnOnce(Call, Option<Money>) -> Observation,
) -> StoreResult<Observed> {
    let sql = "SELECT call, started_at, reserved, shown FROM calls WHERE key = ?1 AND ended_at IS NULL";
    let open = c.query_row(sql, [key], |row| {
        let at = Timestamp(row.get(1)?);
        let shown = row.get::<_, Option<i64>>(3)?.map(Money);
        Ok((row.get::<_, String>(0)?, Reservation { at, amount: Money(row.get(2)?), shown }))
    });
    let Some((call, reservation)) = open.optional()? else { return Ok(Observed::default()) };
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
            whole(usage.input),
            whole(usage.output),
            whole(usage.cache_read),
            whole(usage.cache_write),
            booking.outcome,
        ],
    )?;
    let known = matches!(booking.ending, Ending::Cost(_)).then_some(cost);
    observe(c, &seen(serde_json::from_str(&call)?, known), settings, now)
}

/// Settles the calls of a loop whose process died; whom each one called, for what, and the money that it is taken to have
/// cost.
pub fn abandon(
    c: &Connection,
    of: &LoopId,
    settings: &BackendsSettings,
    now: Timestamp,
) -> StoreResult<Vec<(String, Role, Money)>> {
    let mut statement = c.prepare("SELECT key FROM calls WHERE loop_id = ?1 AND ended_at IS NULL")?;
    let keys = statement.query_map([of.as_str()], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    let mut lost = Vec::new();
    let booking = Booking { ending: Ending::Lost, estimated: true, usage: Usage::default(), outcome: "lost" };
    for key in keys {
        let mut who = None;
        end(c, &key, &booking, settings, now, |call, cost| {
            who = Some((call.backend.clone(), call.role));
            Observation::CallAbandoned { call, cost }
        })?;
        if let Some((backend, role)) = who {
            lost.push((backend, role, cost_of(c, &key)?));
        }
    }
    Ok(lost)
}

/// How the keys of all calls begin that are made for a loop's work with this ticket.
pub fn key_start(of: &LoopId, ticket: u64) -> String {
    format!("{of}/{ticket}/")
}

/// What the calls cost in all that have ended and whose keys begin so.
pub fn cost_of(c: &Connection, beginning: &str) -> StoreResult<Money> {
    let sql = "SELECT coalesce(sum(cost), 0) FROM calls WHERE substr(key, 1, length(?1)) = ?1 AND key >= ?1";
    Ok(c.prepare_cached(sql)?.query_row([beginning], |row| row.get(0).map(Money))?)
}

/// The calls of a loop, oldest first.
pub fn of_loop(c: &Connection, of: &LoopId) -> StoreResult<Vec<Booked>> {
    let mut statement = c.prepare(
        "SELECT iteration, purpose, backend, model, started_at, coalesce(cost, max(reserved, coalesce(shown, 0))),
         estimated, tokens_in, tokens_out, cache_read, cache_write, outcome FROM calls WHERE loop_id = ?1 ORDER BY id",
    )?;
    let rows = statement.query_map([of.as_str()], booked)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn booked(row: &Row<'_>) -> rusqlite::Result<Booked> {
    let tokens = |at: usize| row.get::<_, i64>(at).map(|count| u64::try_from(count).unwrap_or_default());
    Ok(Booked {
        iteration: row.get(0)?,
        purpose: row.get(1)?,
        backend: row.get(2)?,
        model: row.get(3)?,
        started_at: Timestamp(row.get(4)?),
        cost: Money(row.get(5)?),
        estimated: row.get(6)?,
        usage: Usage { input: tokens(7)?, output: tokens(8)?, cache_read: tokens(9)?, cache_write: tokens(10)? },
        outcome: row.get(11)?,
    })
}

/// What a call is likely to cost: by the loop's own calls for the same purpose, else by everybody's.
fn likely(c: &Connection, caller: &Caller, role: Role) -> StoreResult<Money> {
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

/// The accounts that a call is paid from, without the call itself.
fn ledger(c: &Connection, caller: &Caller, now: Timestamp) -> StoreResult<Ledger> {
    let limits = caller.limits;
    let settled = |condition: &str, values: &[&dyn rusqlite::ToSql]| -> StoreResult<Money> {
        let sql = format!("SELECT coalesce(sum(cost), 0) FROM calls WHERE ended_at IS NOT NULL AND {condition}");
        Ok(c.prepare_cached(&sql)?.query_row(values, |row| row.get(0).map(Money))?)
    };
    let held = |condition: &str, values: &[&dyn rusqlite::ToSql]| -> StoreResult<Money> {
        let sql = format!(
            "SELECT coalesce(sum(max(reserved, coalesce(shown, 0))), 0) FROM calls
             WHERE ended_at IS NULL AND {condition} AND key <> ?{}",
            values.len() + 1
        );
        let values: Vec<_> = values.iter().copied().chain([&caller.key as &dyn rusqlite::ToSql]).collect();
        Ok(c.prepare_cached(&sql)?.query_row(&*values, |row| row.get(0).map(Money))?)
    };
    let (day, loop_id) = (day_of(now), caller.loop_id.as_str());
    let (forge, repo) = (caller.repo.forge.as_str(), caller.repo.id.0);
    let booked = settled("loop_id = ?1", &[&loop_id])?;
    Ok(Ledger {
        of_loop: Account {
            spent: booked.max(limits.loop_spent),
            reserved: held("loop_id = ?1", &[&loop_id])?,
            limit: limits.of_loop,
        },
        of_purpose: Account {
            spent: settled("loop_id = ?1 AND purpose = ?2", &[&loop_id, &caller.purpose])?,
            reserved: held("loop_id = ?1 AND purpose = ?2", &[&loop_id, &caller.purpose])?,
            limit: limits.of_purpose,
        },
        of_repository: Account {
            spent: settled("forge = ?1 AND repo_id = ?2 AND day = ?3", &[&forge, &repo, &day])?,
            reserved: held("forge = ?1 AND repo_id = ?2", &[&forge, &repo])?,
            limit: limits.of_repository,
        },
        of_service: Account {
            spent: settled("day = ?1", &[&day])?,
            reserved: held("1", &[])?,
            limit: limits.of_service,
        },
    })
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::checks::criteria::TaskType;
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

    fn caller(key: &str, of: &str) -> Caller {
        let repo = RepoRef { forge: ForgeName::new("work"), id: RepoId(7), owner: "team".into(), name: "app".into() };
        Caller {
            key: key.into(),
            loop_id: LoopId::new(of),
            repo,
            iteration: 1,
            purpose: "agent".into(),
            limits: MoneyLimits::default(),
        }
    }

    fn request() -> Request {
        Request {
            role: Role::Agent,
            task_type: TaskType::TestFix,
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

    fn begun(c: &Connection, key: &str, of: &str, limits: MoneyLimits) -> StoreResult<Begun> {
        let caller = Caller { limits, ..caller(key, of) };
        begin(c, &caller, &request(), &|_| Vec::new(), &settings(), 1, NOW)
    }

    fn backend_of(begun: &Begun) -> &str {
        match begun {
            Begun::Call { backend, .. } => backend,
            other => panic!("{other:?}"),
        }
    }

    fn booking(ending: Ending) -> Booking {
        Booking { ending, estimated: false, usage: Usage::default(), outcome: "finished" }
    }

    #[tokio::test]
    async fn a_limited_backend_is_left_alone_by_all_loops() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            assert_eq!(backend_of(&begun(c, "a/1", "a", MoneyLimits::default())?), "one");
            let limit = Limit {
                kind: LimitKind::Quota,
                until: Some(NOW.plus_ms(3_600_000)),
                source: LimitSource::Stream,
                evidence: "5-hour limit".into(),
            };
            let seen = |call, cost| Observation::CallLimited { call, cost, limit, seed: 1 };
            let observed = end(c, "a/1", &booking(Ending::Cost(Money(0))), &settings(), NOW, seen)?;
            assert!(matches!(&observed.changes[..], [Change::Parked { backend, .. }] if backend == "one"));
            assert_eq!(backend_of(&begun(c, "a/2", "a", MoneyLimits::default())?), "two");
            assert_eq!(backend_of(&begun(c, "b/1", "b", MoneyLimits::default())?), "two");
            // A repeated end changes nothing.
            let again = end(c, "a/1", &booking(Ending::Cost(Money(9))), &settings(), NOW, |call, cost| {
                Observation::CallAbandoned { call, cost }
            })?;
            assert_eq!(again, Observed::default());
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn what_is_known_of_backends_survives_and_damage_is_no_end() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let away = Observation::Disabled { backend: "one".into(), reason: "a holiday".into() };
            observe(c, &away, &settings(), NOW)?;
            assert_eq!(backend_of(&begun(c, "a/1", "a", MoneyLimits::default())?), "two");
            c.execute("UPDATE backends SET data = '{'", [])?;
            assert_eq!(state(c)?, Backends::default());
            assert_eq!(backend_of(&begun(c, "a/2", "a", MoneyLimits::default())?), "one");
            let mut only = request();
            only.exclude = vec!["one".into(), "two".into()];
            let none = begin(c, &caller("a/3", "a"), &only, &|_| Vec::new(), &settings(), 1, NOW)?;
            let Begun::Never { reasons } = none else { panic!("{none:?}") };
            assert!(reasons.iter().all(|blocked| blocked.by == BlockedBy::Excluded));
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn money_is_held_before_it_is_spent() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let limits = MoneyLimits { of_service: Some(Money::from_usd(0.6)), ..MoneyLimits::default() };
            let first = begun(c, "a/1", "a", limits)?;
            assert!(matches!(first, Begun::Call { at_most: Some(most), .. } if most == Money::from_usd(0.6)));
            // Half a dollar is held by the first: what is left does not do for another.
            let second = begun(c, "b/1", "b", limits)?;
            let Begun::NoMoney(reached) = second else { panic!("{second:?}") };
            assert!(reached.free_at.is_some_and(|at| at > NOW), "{reached}");
            shown(c, &caller("a/1", "a"), Money::from_usd(0.1), NOW)?;
            end(c, "a/1", &booking(Ending::Cost(Money::from_usd(0.01))), &settings(), NOW, |call, cost| {
                Observation::CallSucceeded { call, tokens: 10, cost, progress: None }
            })?;
            assert_eq!(backend_of(&begun(c, "b/1", "b", limits)?), "one");
            let booked = of_loop(c, &LoopId::new("a"))?;
            assert_eq!(booked.iter().map(|call| call.cost).collect::<Vec<_>>(), [Money::from_usd(0.01)]);
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn runs_side_by_side_see_what_the_others_cost() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let limits = MoneyLimits { of_service: Some(Money::from_usd(2.0)), ..MoneyLimits::default() };
            for key in ["a/1", "b/1"] {
                let begun = begun(c, key, &key[..1], limits)?;
                assert!(matches!(begun, Begun::Call { at_most: Some(_), .. }), "{begun:?}");
            }
            let costs = |key: &str, usd: f64| {
                let caller = Caller { limits, ..caller(key, &key[..1]) };
                shown(c, &caller, Money::from_usd(usd), NOW).map(|reached| reached.map(|reached| reached.scope))
            };
            assert_eq!((costs("a/1", 1.2)?, costs("b/1", 0.7)?), (None, None));
            // Each alone is far from what it could have cost when it began.
            assert_eq!(costs("b/1", 0.9)?, Some(LimitScope::ServiceDay));
            assert_eq!(costs("a/1", 1.2)?, Some(LimitScope::ServiceDay));
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn a_model_that_is_missing_is_not_asked_for_while_there_is_another() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let mut request = request();
            request.exclude = vec!["two".into()];
            let asked = |key: &str| {
                let models = |_: &str| vec!["m-9".to_owned(), "m-8".to_owned()];
                let begun = begin(c, &caller(key, "a"), &request, &models, &settings(), 1, NOW)?;
                let Begun::Call { model: Some(model), .. } = begun else { panic!("{begun:?}") };
                let evidence = "no such model".into();
                let limit = Limit { kind: LimitKind::ModelMissing, until: None, source: LimitSource::Stream, evidence };
                let seen = |call, cost| Observation::CallLimited { call, cost, limit, seed: 1 };
                end(c, key, &booking(Ending::Cost(Money(0))), &settings(), NOW, seen)?;
                StoreResult::Ok(model)
            };
            let all = [asked("a/1")?, asked("a/2")?, asked("a/3")?];
            assert_eq!(all, ["m-9", "m-8", "m-9"], "where it lacks all, the first is tried again");
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn a_repositorys_money_is_counted_by_repository_and_day() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let limits = MoneyLimits { of_repository: Some(Money::from_usd(0.6)), ..MoneyLimits::default() };
            let at = |key: &str, forge: &str, id: i64, now: Timestamp| {
                let repo = RepoRef { forge: ForgeName::new(forge), id: RepoId(id), ..caller("", "a").repo };
                begin(c, &Caller { limits, repo, ..caller(key, key) }, &request(), &|_| Vec::new(), &settings(), 1, now)
            };
            let cost = |key: &str, usd: f64| {
                let booking = booking(Ending::Cost(Money::from_usd(usd)));
                end(c, key, &booking, &settings(), NOW, |call, cost| Observation::CallSucceeded {
                    call,
                    tokens: 10,
                    cost,
                    progress: None,
                })
            };
            let money = |begun: Begun| !matches!(begun, Begun::NoMoney(_));
            // Half a dollar is held by the first call, whoever makes the next one here.
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
    async fn a_purpose_is_held_to_its_share() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            let limits = MoneyLimits { of_purpose: Some(Money::from_usd(0.03)), ..MoneyLimits::default() };
            let ask = |key: &str| {
                let caller = Caller { limits, purpose: "prompt".into(), ..caller(key, "a") };
                let request = Request { likely_cost: Some(Money::from_usd(0.01)), ..request() };
                begin(c, &caller, &request, &|_| Vec::new(), &settings(), 1, NOW)
            };
            // Calls for other purposes do not count.
            begun(c, "a/1/0", "a", MoneyLimits::default())?;
            for key in ["a/1/prompt-1", "a/1/prompt-2", "a/1/prompt-3"] {
                assert_eq!(backend_of(&ask(key)?), "one");
            }
            let fourth = ask("a/1/prompt-4")?;
            assert!(matches!(&fourth, Begun::NoMoney(reached) if reached.free_at.is_none()), "{fourth:?}");
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn calls_of_a_process_that_died_are_paid_and_free_their_place() {
        let store = Store::in_memory().expect("a store");
        on(&store, |c| {
            begun(c, "a/1/0", "a", MoneyLimits::default())?;
            begun(c, "a/2/question", "a", MoneyLimits::default())?;
            end(c, "a/2/question", &booking(Ending::Cost(Money::from_usd(0.05))), &settings(), NOW, |call, cost| {
                Observation::CallAbandoned { call, cost }
            })?;
            begun(c, "a/2/0", "a", MoneyLimits::default())?;
            shown(c, &caller("a/2/0", "a"), Money::from_usd(0.2), NOW)?;
            shown(c, &caller("a/2/0", "a"), Money::from_usd(0.1), NOW)?;
            let lost = |usd| ("one".to_owned(), Role::Agent, Money::from_usd(usd));
            let settled = abandon(c, &LoopId::new("a"), &settings(), NOW)?;
            assert!(settled.len() == 2 && settled.contains(&lost(0.2)), "{settled:?}");
            assert_eq!(abandon(c, &LoopId::new("a"), &settings(), NOW)?, []);
            // What ended before the process died was told to nobody either; other work was.
            assert_eq!(cost_of(c, &key_start(&LoopId::new("a"), 2))?, Money::from_usd(0.25));
            assert_eq!(cost_of(c, &key_start(&LoopId::new("a"), 22))?, Money(0));
            assert!(state(c)?.backends["one"].in_flight.is_empty());
            Ok(())
        })
        .await;
    }
}
