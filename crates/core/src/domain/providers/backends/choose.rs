//! Choice of a backend for a call, or of the time to wait for one.

use super::choice::{BackendChoice, Blocked, BlockedBy, CallRequest, SessionUse};
use super::claims::ClaimedState;
use super::luck;
use super::parking::settling_ms;
use super::proactive;
use super::rotation;
use super::settings::BackendsSettings;
use super::state::{BackendState, BackendStatus, Backends, InFlight, Probation};
use crate::domain::model::ids::Timestamp;

/// Time after which another trial call is allowed if the first one has not been answered, in milliseconds. The first one may
/// hang, or may report nothing before its end.
const TRIAL_MS: i64 = 60_000;
/// Range of the time after which a waiting call is decided again while trial calls are in progress, in milliseconds.
const LOOK_AGAIN_MS: std::ops::Range<i64> = 5_000..15_000;

/// Whether a backend can accept a call.
enum Availability {
    /// The backend is available. `settled` is true if its last cooldown is long enough ago, so that it need not rank behind other
    /// backends.
    Free {
        settled: bool,
    },
    Blocked(BlockedBy, Option<Timestamp>),
}

/// Chooses a backend for a call. The result depends only on the arguments. `seed` is used for the length of short waits; it should
/// differ between loops and calls.
pub fn choose(
    state: &Backends,
    settings: &BackendsSettings,
    request: &CallRequest,
    seed: u64,
    now: Timestamp,
) -> BackendChoice {
    let ranked = rotation::ranking(state, settings, request, now);
    let (mut settled, mut unsettled, mut avoided) = (None, None, None);
    let mut reasons = Vec::new();
    for name in ranked {
        match availability(state, settings, request, name, seed, now) {
            Availability::Free { .. } if request.avoid.iter().any(|avoid| avoid == name) => {
                avoided = avoided.or(Some(name));
            }
            Availability::Free { settled: true } => settled = settled.or(Some(name)),
            Availability::Free { settled: false } => unsettled = unsettled.or(Some(name)),
            Availability::Blocked(by, until) => reasons.push(Blocked { backend: name.to_owned(), by, until }),
        }
    }
    if let Some(name) = settled.or(unsettled).or(avoided) {
        let goes_on = request.session.as_ref().is_some_and(|session| {
            session.backend == name
                && session.context_pct.is_none_or(|filled| !settings.wants_fresh_session(name, filled))
        });
        let session = if goes_on { SessionUse::Resume } else { SessionUse::Fresh };
        return BackendChoice::Use { backend: name.to_owned(), session };
    }
    match reasons.iter().filter_map(|blocked| blocked.until).min() {
        Some(until) => BackendChoice::Wait { until: until.max(now.plus_ms(1)), reasons },
        None => BackendChoice::Never { reasons },
    }
}

fn availability(
    state: &Backends,
    settings: &BackendsSettings,
    request: &CallRequest,
    name: &str,
    seed: u64,
    now: Timestamp,
) -> Availability {
    let Some(configured) = settings.backends.get(name).filter(|backend| backend.enabled) else {
        return Availability::Blocked(BlockedBy::NotEnabled, None);
    };
    if request.exclude.iter().any(|excluded| excluded == name) {
        return Availability::Blocked(BlockedBy::Excluded, None);
    }
    let new = BackendState::default();
    let backend = state.backends.get(name).unwrap_or(&new);
    if let Some(claim) = backend.claims.of(&request.loop_id, now) {
        let by = match claim.state {
            ClaimedState::Parked(kind) => BlockedBy::Parked(kind, claim.reason.clone()),
            ClaimedState::Disabled(kind) => BlockedBy::Disabled(kind, claim.reason.clone()),
        };
        return Availability::Blocked(by, claim.until);
    }
    let settled = match &backend.status {
        BackendStatus::Disabled { kind, reason, .. } => {
            return Availability::Blocked(BlockedBy::Disabled(*kind, reason.clone()), None);
        }
        BackendStatus::Parked(park) => {
            let ends = park.ends(settings.cooldown.longest.as_millis(), now);
            if ends > now {
                return Availability::Blocked(BlockedBy::Parked(park.kind, park.reason.clone()), Some(ends));
            }
            // Its end was not noticed yet.
            now.since(ends) >= settling_ms(backend, now)
        }
        BackendStatus::Active { since, probation } => {
            if probation.as_ref().is_some_and(|probation| !has_room(backend, *since, probation, now)) {
                let until = now.plus_ms(luck(seed, "look").i64(LOOK_AGAIN_MS));
                return Availability::Blocked(BlockedBy::OnTrial, Some(until));
            }
            since.is_none_or(|since| now.since(since) >= settling_ms(backend, now))
        }
    };
    let likely = request.likely_cost.unwrap_or_default();
    match proactive::crossed(backend, &configured.thresholds, likely, now) {
        Some((threshold, until)) => Availability::Blocked(BlockedBy::Threshold(threshold), Some(until)),
        None => Availability::Free { settled },
    }
}

/// Whether a backend on probation can take one more call. At any time, the number of unanswered calls may not exceed the number
/// of answered ones, except that one is always allowed.
fn has_room(backend: &BackendState, since: Option<Timestamp>, probation: &Probation, now: Timestamp) -> bool {
    let waiting = |call: &&InFlight| {
        !call.answered && since.is_none_or(|since| call.since >= since) && now.since(call.since) < TRIAL_MS
    };
    let waiting = backend.in_flight.values().filter(waiting).count();
    u32::try_from(waiting).unwrap_or(u32::MAX) < probation.answered.max(1)
}
