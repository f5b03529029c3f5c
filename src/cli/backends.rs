//! `ralph-bot backends`: shows backends and their usage, and enables them.

#[cfg(test)]
mod tests;

use clap::{Args, Subcommand};
use ralph_types::failure::Failure;
use serde_json::json;

use super::error::{CliError, CliResult};
use super::global::Global;
use super::{attach, block_on, load, moment, one_line, print, table};
use crate::clock::Clock;
use crate::config::{ConfigScope, Env};
use crate::domain::loops::{LoopState, TimerKind, WaitReason};
use crate::domain::model::ids::{LoopId, Timestamp};
use crate::domain::model::quantity::Duration;
use crate::domain::model::settings::did_you_mean;
use crate::domain::providers::backends::{
    self, BackendObservation, BackendRole, BackendState, BackendStatus, Backends, BackendsSettings,
};
use crate::store::sql::Connection;
use crate::store::{Store, StoreResult, calls, loops, timers};

/// Maximum length of a reason in the table, in characters.
const REASON_MAX: usize = 90;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Arguments of `backends`; the default is `list`.
#[derive(Debug, Clone, Args)]
pub struct BackendsArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Option<BackendsCommand>,
}

/// Subcommands of `backends`.
#[derive(Debug, Clone, Subcommand)]
pub enum BackendsCommand {
    /// Show each backend's state, calls, tokens and cost, and the loops that wait for a backend
    List,
    /// Enable a backend that is in cool-down or disabled, and continue the loops that wait for a backend
    Enable(EnableArgs),
}

/// Arguments of `backends enable`.
#[derive(Debug, Clone, Args)]
pub struct EnableArgs {
    /// Name of the backend in the configuration
    pub name: String,
}

/// Lists backends, or enables one.
///
/// # Errors
/// Fails on an invalid configuration, a missing database, or a backend that is not configured.
pub fn run(args: &BackendsArgs, global: &Global, env: &Env) -> CliResult {
    let config = load(ConfigScope::Store, global, env)?;
    let settings = config.backends_settings();
    block_on(async {
        let store = attach(&config).await?;
        let now = Clock::System.now();
        let outcome = match &args.command {
            None | Some(BackendsCommand::List) => list(&store, settings, global.json, now).await,
            Some(BackendsCommand::Enable(args)) => enable(&store, settings, &args.name, global.json, now).await,
        };
        store.close().await;
        outcome
    })
}

async fn list(store: &Store, settings: BackendsSettings, json: bool, now: Timestamp) -> CliResult {
    let (state, waits) = store.read(|c| Ok((calls::state(c)?, waits(c)?))).await.map_err(failed)?;
    // Not stored: only shows cool-downs that are over as such.
    let state = backends::transition(state, &BackendObservation::Elapsed, &settings, now).state;
    let unknown = BackendState::default();
    let known = settings.backends.iter().map(|(name, of)| {
        let window = of.thresholds.window;
        (name.as_str(), of.roles.as_slice(), window, state.backends.get(name).unwrap_or(&unknown))
    });
    if json {
        let lines = known.map(|(name, roles, window, state)| format!("{}\n", line(name, roles, window, state, now)));
        return print(&lines.collect::<String>());
    }
    let header =
        ["BACKEND", "ROLES", "STATE", "CALLS", "FAILED", "TOKENS", "COST", "LAST 24 H", "REASON"].map(str::to_owned);
    let rows = known.map(|(name, roles, _, state)| row(name, roles, state, now));
    let backends = table(&std::iter::once(header).chain(rows).collect::<Vec<_>>());
    let rows = loop_rows(&waits, &state, now);
    if rows.is_empty() {
        return print(&backends);
    }
    let header = ["LOOP", "WAITS UNTIL", "REASON"].map(str::to_owned);
    print(&format!("{backends}\n{}", table(&std::iter::once(header).chain(rows).collect::<Vec<_>>())))
}

/// Open loop, and until when and why it waits for a backend; `None` if it does not wait.
type OpenLoop = (LoopId, Option<(Timestamp, String)>);

fn waits(c: &Connection) -> StoreResult<Vec<OpenLoop>> {
    let mut open = Vec::new();
    for id in loops::open_ids(c, None)? {
        let waiting = loops::get(c, &id)?.filter(|known| {
            known.state == LoopState::Waiting && known.run.wait.is_some_and(|wait| wait.on == WaitReason::Backend)
        });
        let until = timers::due(c, &id, TimerKind::Reactivate.as_str())?;
        open.push((id, until.zip(waiting.map(|known| known.why))));
    }
    Ok(open)
}

/// Returns a row for each loop that waits for a backend, and for each open loop that was refused by one.
fn loop_rows(open: &[OpenLoop], state: &Backends, now: Timestamp) -> Vec<[String; 3]> {
    let refused = |id: &LoopId| {
        let of_backend = |(name, backend): (&String, &BackendState)| {
            let claim = backend.claims.of(id.as_str(), now)?;
            Some((claim.until, format!("{name}: {}", claim.words())))
        };
        state.backends.iter().filter_map(of_backend).collect::<Vec<_>>()
    };
    let mut rows = Vec::new();
    for (id, wait) in open {
        match wait {
            Some((until, why)) => rows.push([id.to_string(), moment(*until), shown(why)]),
            None => rows.extend(refused(id).into_iter().map(|(until, why)| {
                let until = until.map_or_else(|| "a person acts".to_owned(), moment);
                [id.to_string(), until, shown(&why)]
            })),
        }
    }
    rows
}

/// Returns a reason as one short line; `-` if there is none.
fn shown(reason: &str) -> String {
    let reason: String = one_line(reason).chars().take(REASON_MAX).collect();
    if reason.is_empty() { "-".to_owned() } else { reason }
}

async fn enable(store: &Store, settings: BackendsSettings, name: &str, json: bool, now: Timestamp) -> CliResult {
    if !settings.backends.contains_key(name) {
        let near = did_you_mean(name, settings.backends.keys().map(String::as_str));
        return Err(CliError::failed(format!("no backend {} is configured{near}", one_line(name))));
    }
    let enabled = name.to_owned();
    let observed = store.write(move |c| calls::enable(c, &enabled, &settings, now)).await.map_err(failed)?;
    let changed = !observed.changes.is_empty();
    if json {
        return print(&format!("{}\n", json!({ "backend": name, "changed": changed, "changes": observed.changes })));
    }
    let how = if changed { "is" } else { "was already" };
    print(&format!("{name} {how} enabled; loops that wait for a backend continue now\n"))
}

/// Formats a backend as JSON.
fn line(
    name: &str,
    roles: &[BackendRole],
    window: Duration,
    state: &BackendState,
    now: Timestamp,
) -> serde_json::Value {
    let window_ms = window.as_millis();
    let refused = state.claims.refusals.iter().filter(|(_, claim)| claim.holds(now));
    let refused = refused.map(|(id, claim)| json!({ "loop": id, "until": claim.until, "reason": claim.words() }));
    json!({
        "backend": name,
        "roles": roles,
        "state": word(state),
        "status": state.status,
        "in_flight": state.in_flight.len(),
        "calls": state.succeeded.saturating_add(state.failed),
        "failed": state.failed,
        "tokens": state.tokens,
        "cost_usd": state.cost.usd(),
        "calls_in_window": state.ledger.requests(window_ms, now),
        "cost_usd_last_hour": state.ledger.cost(HOUR_MS, now).usd(),
        "cost_usd_last_day": state.ledger.cost(DAY_MS, now).usd(),
        "consecutive_errors": state.consecutive_errors,
        "last_error": state.last_error,
        "refused_loops": refused.collect::<Vec<_>>(),
    })
}

fn word(state: &BackendState) -> &'static str {
    match &state.status {
        BackendStatus::Active { .. } => "active",
        BackendStatus::Parked(_) => "parked",
        BackendStatus::Disabled { .. } => "disabled",
    }
}

fn row(name: &str, roles: &[BackendRole], state: &BackendState, now: Timestamp) -> [String; 9] {
    let roles = roles.iter().map(|role| role.word());
    let with = |kind: &dyn std::fmt::Display, reason: &str| match reason {
        "" => kind.to_string(),
        reason => format!("{kind}: {reason}"),
    };
    let (status, why) = match &state.status {
        BackendStatus::Active { probation: Some(_), .. } => ("active (on probation)".to_owned(), last_error(state)),
        BackendStatus::Active { .. } => ("active".to_owned(), last_error(state)),
        BackendStatus::Parked(park) => {
            let about = if park.known { "" } else { "about " };
            (format!("cool-down until {about}{}", moment(park.until)), with(&park.kind, &park.reason))
        }
        BackendStatus::Disabled { kind, reason, .. } => ("disabled".to_owned(), with(kind, reason)),
    };
    [
        name.to_owned(),
        roles.collect::<Vec<_>>().join(", "),
        status,
        state.succeeded.saturating_add(state.failed).to_string(),
        state.failed.to_string(),
        state.tokens.to_string(),
        state.cost.to_string(),
        state.ledger.cost(DAY_MS, now).to_string(),
        shown(&why),
    ]
}

fn last_error(state: &BackendState) -> String {
    state.last_error.as_ref().map(|error| format!("last error: {}", error.text)).unwrap_or_default()
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> CliError {
    CliError::failed(Failure::of(error))
}
