//! State transitions of backends. No other code changes their state.

use super::claims::{ClaimedState, Claims, LONGEST_FOR_ALL_MS, RefusalClaim};
use super::ledger::HOUR_MS;
use super::observation::{BackendCall, BackendChange, BackendObservation, BackendTransition, CallAdvice};
use super::parking;
use super::proactive;
use super::settings::{BackendRole, BackendsSettings};
use super::state::{
    BackendState, BackendStatus, Backends, Cooldown, CooldownReason, DisabledFor, InFlight, MAX_MISSING, Probation,
};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::providers::limit::{Limit, LimitKind};

/// Time after which a call without events is abandoned, in milliseconds.
const LONGEST_CALL_MS: i64 = 12 * HOUR_MS;
/// Number of answered calls that end a probation.
const PROVEN: u32 = 16;

/// Returns the state after an observation. `now` may be before or long after the previous observation; neither makes a cooldown
/// longer than planned.
pub fn transition(
    state: Backends,
    observation: &BackendObservation,
    settings: &BackendsSettings,
    now: Timestamp,
) -> BackendTransition {
    let mut step = PendingTransition { state, settings, now, changes: Vec::new(), advice: None };
    step.elapse();
    step.observe(observation);
    BackendTransition { state: step.state, changes: step.changes, advice: step.advice }
}

/// Call that ended.
struct EndedCall {
    /// Whether the call started after the backend became active. The outcome of an older call adds no information.
    fresh: bool,
    /// Whether the call started before the backend was enabled again, so that it used the previous key.
    outdated: bool,
    /// Whether the model had not started to answer.
    unanswered: bool,
}

struct PendingTransition<'a> {
    state: Backends,
    settings: &'a BackendsSettings,
    now: Timestamp,
    changes: Vec<BackendChange>,
    advice: Option<CallAdvice>,
}

impl PendingTransition<'_> {
    /// Ends cooldowns that are over, removes old entries, and clamps future timestamps to now.
    fn elapse(&mut self) {
        let now = self.now;
        for (name, backend) in &mut self.state.backends {
            backend.in_flight.values_mut().for_each(|call| call.since = call.since.min(now));
            backend.claims.elapse(now);
            backend.in_flight.retain(|_, call| now.since(call.since) < LONGEST_CALL_MS);
            backend.parks.iter_mut().for_each(|at| *at = (*at).min(now));
            backend.ledger.settle(self.settings.thresholds(name).window.as_millis(), now);
            match &mut backend.status {
                BackendStatus::Active { since, .. } => {
                    *since = since.map(|since| since.min(now));
                }
                BackendStatus::Parked(park) => {
                    let ends = park.ends(self.settings.cooldown.longest.as_millis(), now);
                    park.since = park.since.min(now);
                    park.until = ends;
                    if ends <= now {
                        let probation = park.kind != CooldownReason::Threshold;
                        backend.status = if probation { active(now, true) } else { BackendStatus::default() };
                        backend.clear_errors();
                        self.changes.push(BackendChange::Reactivated { backend: name.clone(), probation });
                    }
                }
                BackendStatus::Disabled { since, .. } => *since = (*since).min(now),
            }
        }
    }

    fn observe(&mut self, observation: &BackendObservation) {
        match observation {
            BackendObservation::CallStarted { call, likely_cost } => self.started(call, *likely_cost),
            BackendObservation::CallAnswered { call } => self.answered(call),
            BackendObservation::CallSucceeded { call, tokens, cost } => self.succeeded(call, *tokens, *cost),
            BackendObservation::CallFailed { call, cost, error, seed } => self.failed(call, *cost, error, *seed),
            BackendObservation::CallLimited { call, cost, limit, seed } => self.limited(call, *cost, limit, *seed),
            BackendObservation::LimitClaimed { call, cost, limit, seed } => self.claimed(call, *cost, limit, *seed),
            BackendObservation::CallAbandoned { call, cost } => {
                self.end(call, *cost);
            }
            BackendObservation::Enabled { backend } => self.enable(backend),
            BackendObservation::Disabled { backend, reason } => self.disable(backend, DisabledFor::Person, reason),
            BackendObservation::Configured { fingerprints } => {
                for (name, fingerprint) in fingerprints {
                    self.configured(name, fingerprint);
                }
                self.state.backends.retain(|name, backend| {
                    let nothing = backend.is_active() && backend.in_flight.is_empty() && backend.ledger.is_empty();
                    fingerprints.contains_key(name) || !nothing
                });
            }
            BackendObservation::Elapsed => {}
        }
    }

    fn backend(&mut self, name: &str) -> &mut BackendState {
        self.state.backends.entry(name.to_owned()).or_default()
    }

    fn started(&mut self, call: &BackendCall, likely_cost: Option<Money>) {
        let now = self.now;
        let backend = self.backend(&call.backend);
        let likely_cost = likely_cost.unwrap_or_default().max(Money(0));
        backend.in_flight.insert(call.key.clone(), InFlight { since: now, likely_cost, answered: false });
        backend.ledger.add(1, Money(0), now);
        self.state.rotation.last.insert(call.role, call.backend.clone());
        if let Some(from) = call.previous.as_ref().filter(|from| **from != call.backend) {
            let (key, from, to) = (call.key.clone(), from.clone(), call.backend.clone());
            self.changes.push(BackendChange::Rotated { key, from, to });
        }
        self.park_at_threshold(&call.backend);
    }

    fn answered(&mut self, call: &BackendCall) {
        let backend = self.backend(&call.backend);
        let Some(begun) = backend.in_flight.get_mut(&call.key).filter(|call| !call.answered) else { return };
        begun.answered = true;
        let since = begun.since;
        backend.claims.served(&call.loop_id);
        if is_fresh(backend, Some(since)) {
            self.prove(&call.backend);
        }
    }

    /// Records that a backend answered a call, which counts for its probation.
    fn prove(&mut self, name: &str) {
        let backend = self.backend(name);
        backend.backoff_step = 0;
        let BackendStatus::Active { probation, .. } = &mut backend.status else { return };
        let Some(answered) = probation.as_mut().map(|probation| &mut probation.answered) else { return };
        *answered = answered.saturating_add(1);
        let first = *answered == 1;
        if *answered >= PROVEN {
            *probation = None;
        }
        if first {
            self.changes.push(BackendChange::Proven { backend: name.to_owned() });
        }
    }

    /// Removes a call from those in flight and adds its cost to the ledger.
    fn end(&mut self, call: &BackendCall, cost: Option<Money>) -> EndedCall {
        let now = self.now;
        let backend = self.backend(&call.backend);
        let begun = backend.in_flight.remove(&call.key);
        let cost = cost.unwrap_or_default().max(Money(0));
        // A call whose start was not reported is counted now.
        backend.ledger.add(u32::from(begun.is_none()), cost, now);
        backend.cost = backend.cost.plus(cost);
        let fresh = is_fresh(backend, begun.as_ref().map(|call| call.since));
        let outdated = backend.is_active() && !fresh;
        self.park_at_threshold(&call.backend);
        EndedCall { fresh, outdated, unanswered: !begun.is_some_and(|call| call.answered) }
    }

    fn succeeded(&mut self, call: &BackendCall, tokens: u64, cost: Option<Money>) {
        let ended = self.end(call, cost);
        let backend = self.backend(&call.backend);
        backend.succeeded = backend.succeeded.saturating_add(1);
        backend.tokens = backend.tokens.saturating_add(tokens);
        backend.claims.served(&call.loop_id);
        if ended.fresh {
            backend.last_error = None;
            backend.clear_errors();
            if ended.unanswered {
                self.prove(&call.backend);
            }
        }
    }

    fn failed(&mut self, call: &BackendCall, cost: Option<Money>, error: &str, seed: u64) {
        let ended = self.end(call, cost);
        let most = self.settings.thresholds(&call.backend).max_consecutive_errors.max(1);
        let now = self.now;
        let backend = self.backend(&call.backend);
        backend.note_error(error, now);
        let BackendStatus::Active { probation, .. } = &backend.status else { return };
        let on_trial = probation.as_ref().is_some_and(|probation| probation.answered == 0);
        if !ended.fresh {
            return;
        }
        backend.consecutive_errors = backend.consecutive_errors.saturating_add(1);
        if backend.error_loops.len() < 2 {
            backend.error_loops.insert(call.loop_id.clone());
        }
        // Errors of one loop can be its own doing.
        let is_of_one = call.role == BackendRole::Agent && backend.error_loops.len() < 2 && !call.loop_id.is_empty();
        if (on_trial || backend.consecutive_errors >= most) && is_of_one {
            self.claim(call, ClaimedState::Parked(CooldownReason::Errors), None, error, seed);
        } else if on_trial || backend.consecutive_errors >= most {
            self.park(&call.backend, CooldownReason::Errors, None, error, seed, true);
        }
    }

    /// Records a limit that only a run reported. It applies to the loop of the run, and for a limited time to all loops if another
    /// loop reported the same.
    fn claimed(&mut self, call: &BackendCall, cost: Option<Money>, limit: &Limit, seed: u64) {
        let state = match limit.kind {
            LimitKind::Auth => ClaimedState::Disabled(DisabledFor::Auth),
            LimitKind::Billing => ClaimedState::Disabled(DisabledFor::Billing),
            LimitKind::Rate => ClaimedState::Parked(CooldownReason::Rate),
            LimitKind::Quota => ClaimedState::Parked(CooldownReason::Quota),
            LimitKind::Overload => ClaimedState::Parked(CooldownReason::Overload),
            LimitKind::ModelMissing => {
                self.end(call, cost);
                let (now, model) = (self.now, call.model.clone());
                self.advice = Some(CallAdvice::OtherModel { backend: call.backend.clone(), model: model.clone() });
                if let Some(model) = model {
                    self.backend(&call.backend).claims.add_missing(&call.loop_id, model, now);
                }
                return;
            }
            // Concerns this call only.
            LimitKind::ContextTooLong | LimitKind::Policy | LimitKind::Empty | LimitKind::OwnBudget => {
                return self.limited(call, cost, limit, seed);
            }
        };
        let now = self.now;
        let ended = self.end(call, cost);
        let backend = self.backend(&call.backend);
        backend.note_error(&limit.evidence, now);
        let other = backend.claims.confirmed(&call.loop_id, state, now).map(|claim| claim.until);
        self.claim(call, state, limit.until, &limit.evidence, seed);
        let Some(other) = other else { return };
        let longest = Some(now.plus_ms(LONGEST_FOR_ALL_MS));
        // The earlier of the two ends: the later one may be made up.
        let earliest = [limit.until, other, longest].into_iter().flatten().min();
        let (kind, until, applies) = match state {
            ClaimedState::Parked(kind) => (kind, earliest.filter(|_| limit.until.is_some()), limit.until.is_some()),
            ClaimedState::Disabled(DisabledFor::Billing) => (CooldownReason::Billing, longest, !ended.outdated),
            ClaimedState::Disabled(_) => (CooldownReason::Auth, longest, !ended.outdated),
        };
        if ended.fresh || applies {
            self.park(&call.backend, kind, until, &limit.evidence, seed, ended.fresh);
        }
    }

    /// Blocks a backend for the loop of a call.
    fn claim(&mut self, call: &BackendCall, state: ClaimedState, reported: Option<Timestamp>, reason: &str, seed: u64) {
        let (now, settings) = (self.now, self.settings);
        let claims = &mut self.backend(&call.backend).claims;
        let step = claims.step(&call.loop_id);
        let until = match state {
            ClaimedState::Disabled(_) => None,
            ClaimedState::Parked(_) => Some(parking::end(reported, step, &settings.cooldown, seed, now).0),
        };
        let reason = super::shortened(reason);
        claims.add(&call.loop_id, RefusalClaim { since: now, until, state, step, reason: reason.clone() });
        let (backend, loop_id) = (call.backend.clone(), call.loop_id.clone());
        self.changes.push(BackendChange::Claimed { backend, loop_id, until, reason });
    }

    fn limited(&mut self, call: &BackendCall, cost: Option<Money>, limit: &Limit, seed: u64) {
        let ended = self.end(call, cost);
        let now = self.now;
        let name = call.backend.as_str();
        match limit.kind {
            LimitKind::ContextTooLong if call.resumed => self.advice = Some(CallAdvice::FreshSession),
            LimitKind::ContextTooLong => {
                self.advice = Some(CallAdvice::ShorterPrompt { backend: name.to_owned() });
            }
            LimitKind::ModelMissing => {
                let model = call.model.clone();
                self.advice = Some(CallAdvice::OtherModel { backend: name.to_owned(), model: model.clone() });
                let missing = &mut self.backend(name).missing_models;
                if let Some(model) = model {
                    missing.insert(model, now);
                }
                while missing.len() > MAX_MISSING {
                    let oldest = missing.iter().min_by_key(|(_, at)| **at).map(|(model, _)| model.clone());
                    oldest.map(|model| missing.remove(&model));
                }
            }
            LimitKind::Policy | LimitKind::Empty | LimitKind::OwnBudget => {
                self.backend(name).note_error(&limit.evidence, now);
                self.advice = Some(CallAdvice::OtherBackend { backend: name.to_owned() });
            }
            LimitKind::Auth | LimitKind::Billing => {
                self.backend(name).note_error(&limit.evidence, now);
                if !ended.outdated {
                    let kind = if limit.kind == LimitKind::Auth { DisabledFor::Auth } else { DisabledFor::Billing };
                    self.disable(name, kind, &limit.evidence);
                }
            }
            LimitKind::Rate | LimitKind::Quota | LimitKind::Overload => {
                self.backend(name).note_error(&limit.evidence, now);
                let reported = limit.until.filter(|until| *until > now);
                let kind = match limit.kind {
                    LimitKind::Quota => CooldownReason::Quota,
                    LimitKind::Overload => CooldownReason::Overload,
                    _ => CooldownReason::Rate,
                };
                // A limit of an older call without an end is over, as the backend became active since.
                if ended.fresh || reported.is_some() {
                    self.park(name, kind, reported, &limit.evidence, seed, ended.fresh);
                }
            }
        }
    }

    /// Starts the cooldown of an active backend. If the backend is in a cooldown already, the later of two reported ends applies,
    /// and a reported end replaces an estimated one.
    fn park(
        &mut self,
        name: &str,
        kind: CooldownReason,
        reported: Option<Timestamp>,
        reason: &str,
        seed: u64,
        fresh: bool,
    ) {
        let (now, settings) = (self.now, self.settings);
        let backend = self.backend(name);
        let again = match &backend.status {
            BackendStatus::Disabled { .. } => return,
            BackendStatus::Parked(park) if park.kind != CooldownReason::Threshold => Some(park.clone()),
            BackendStatus::Parked(_) | BackendStatus::Active { .. } => None,
        };
        // Concurrent calls that meet the same limit count once.
        let step = if again.is_none() && fresh { backend.backoff_step } else { 0 };
        let (mut until, known) = parking::end(reported, step, &settings.cooldown, seed, now);
        if let BackendStatus::Parked(cooldown) = &backend.status
            && cooldown.kind == CooldownReason::Threshold
        {
            until = until.max(cooldown.until);
        }
        match again {
            Some(park) if !known || (park.known && park.until >= until) => return,
            Some(_) => {}
            None => {
                backend.backoff_step = backend.backoff_step.saturating_add(u32::from(fresh)).min(32);
                backend.note_park(now);
            }
        }
        let reason = super::shortened(reason);
        self.set_park(name, Cooldown { since: now, until, kind, known, reason });
    }

    fn set_park(&mut self, name: &str, park: Cooldown) {
        let Cooldown { kind, until, reason, .. } = park.clone();
        self.backend(name).status = BackendStatus::Parked(park);
        self.changes.push(BackendChange::Parked { backend: name.to_owned(), kind, until, reason });
    }

    /// Starts the cooldown of a backend that reached a configured threshold. A backend on probation keeps its status, so that a
    /// call still has to test it; meanwhile the choice excludes it.
    fn park_at_threshold(&mut self, name: &str) {
        let Some(thresholds) = self.settings.backends.get(name).map(|backend| &backend.thresholds) else { return };
        let now = self.now;
        let backend = self.backend(name);
        if !matches!(backend.status, BackendStatus::Active { probation: None, .. }) {
            return;
        }
        if let Some((threshold, until)) = proactive::reached(backend, thresholds, now) {
            let reason = format!("`{threshold}` is reached");
            self.set_park(name, Cooldown { since: now, until, kind: CooldownReason::Threshold, known: true, reason });
        }
    }

    fn disable(&mut self, name: &str, kind: DisabledFor, reason: &str) {
        let now = self.now;
        let backend = self.backend(name);
        // A person's decision is not overwritten by the errors of calls in flight.
        if matches!(backend.status, BackendStatus::Disabled { kind: DisabledFor::Person, .. }) {
            return;
        }
        let reason = super::shortened(reason);
        backend.status = BackendStatus::Disabled { since: now, kind, reason: reason.clone() };
        self.changes.push(BackendChange::Disabled { backend: name.to_owned(), kind, reason });
    }

    /// Makes a backend active on probation and clears its errors.
    fn enable(&mut self, name: &str) {
        let now = self.now;
        let backend = self.backend(name);
        let was_away = !backend.is_active();
        let was_refused = backend.claims.refusals.values().any(|claim| claim.holds(now));
        backend.clear_errors();
        backend.claims = Claims::default();
        backend.backoff_step = 0;
        backend.last_error = None;
        backend.parks.clear();
        backend.missing_models.clear();
        if was_away {
            backend.status = active(now, true);
        }
        if was_away || was_refused {
            self.changes.push(BackendChange::Enabled { backend: name.to_owned() });
        }
    }

    fn configured(&mut self, name: &str, fingerprint: &str) {
        let backend = self.backend(name);
        let before = backend.fingerprint.replace(fingerprint.to_owned());
        let by_person = matches!(backend.status, BackendStatus::Disabled { kind: DisabledFor::Person, .. });
        if before.is_some_and(|before| before != fingerprint) && !by_person {
            self.enable(name);
        }
    }
}

fn active(now: Timestamp, on_probation: bool) -> BackendStatus {
    BackendStatus::Active { since: Some(now), probation: on_probation.then(Probation::default) }
}

/// Whether a call that started at `begun` started after the backend became active; true if its start is unknown. A cooldown for a
/// configured threshold is no evidence about the provider; calls that started before it remain fresh.
fn is_fresh(backend: &BackendState, begun: Option<Timestamp>) -> bool {
    match &backend.status {
        BackendStatus::Active { since: Some(since), .. } => begun.is_none_or(|begun| begun >= *since),
        BackendStatus::Active { since: None, .. }
        | BackendStatus::Parked(Cooldown { kind: CooldownReason::Threshold, .. }) => true,
        BackendStatus::Parked(_) | BackendStatus::Disabled { .. } => begun.is_none(),
    }
}
