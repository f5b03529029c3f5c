//! Tests of backends, with three backends in the order `a`, `b`, `c`.

mod choosing;
mod claims;
mod properties;
mod regressions;
mod settings;
mod storm;
mod transitions;

use super::*;
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::providers::limit::{Limit, LimitKind, LimitSource};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const START: Timestamp = Timestamp(1_767_225_600_000);

fn at(minutes: i64) -> Timestamp {
    START.plus_ms(minutes * MINUTE)
}

fn settings() -> BackendsSettings {
    let both =
        BackendSettings { roles: vec![BackendRole::Agent, BackendRole::Assistant], ..BackendSettings::default() };
    let backends = ["a", "b", "c"].map(|name| (name.to_owned(), both.clone()));
    BackendsSettings { backends: backends.into(), ..BackendsSettings::default() }
}

fn only(names: &[&str]) -> BackendsSettings {
    let mut settings = settings();
    settings.backends.retain(|name, _| names.contains(&name.as_str()));
    settings
}

fn call(key: &str, backend: &str) -> BackendCall {
    BackendCall {
        key: key.to_owned(),
        loop_id: String::new(),
        role: BackendRole::Agent,
        backend: backend.to_owned(),
        model: None,
        resumed: false,
        previous: None,
    }
}

fn request(previous: Option<&str>) -> CallRequest {
    CallRequest {
        loop_id: String::new(),
        role: BackendRole::Agent,
        exclude: Vec::new(),
        avoid: Vec::new(),
        likely_cost: None,
        previous: previous.map(str::to_owned),
        session: None,
    }
}

fn limit(kind: LimitKind, until: Option<Timestamp>) -> Limit {
    Limit { kind, until, source: LimitSource::Stream, evidence: "the provider's words".to_owned() }
}

/// State of backends with its settings, to which tests apply observations.
struct BackendsFixture {
    state: Backends,
    settings: BackendsSettings,
    advice: Option<CallAdvice>,
}

impl BackendsFixture {
    fn new(settings: BackendsSettings) -> Self {
        Self { state: Backends::default(), settings, advice: None }
    }

    fn see(&mut self, observation: BackendObservation, now: Timestamp) -> Vec<BackendChange> {
        let transition = transition(std::mem::take(&mut self.state), &observation, &self.settings, now);
        self.state = transition.state;
        self.advice = transition.advice;
        transition.changes
    }

    fn start(&mut self, key: &str, backend: &str, now: Timestamp) -> Vec<BackendChange> {
        self.see(BackendObservation::CallStarted { call: call(key, backend), likely_cost: None }, now)
    }

    fn succeed(&mut self, key: &str, backend: &str, now: Timestamp) -> Vec<BackendChange> {
        let call = call(key, backend);
        self.see(BackendObservation::CallSucceeded { call, tokens: 10, cost: None }, now)
    }

    fn spend(&mut self, key: &str, backend: &str, usd: f64, now: Timestamp) -> Vec<BackendChange> {
        self.start(key, backend, now);
        let cost = Some(Money::from_usd(usd));
        self.see(BackendObservation::CallSucceeded { call: call(key, backend), tokens: 10, cost }, now)
    }

    fn fail(&mut self, key: &str, backend: &str, now: Timestamp) -> Vec<BackendChange> {
        let error = "exit code 1".to_owned();
        self.see(
            BackendObservation::CallFailed { call: call(key, backend), cost: None, error, seed: now.0 as u64 },
            now,
        )
    }

    fn hit(&mut self, key: &str, backend: &str, of: Limit, now: Timestamp) -> Vec<BackendChange> {
        let call = call(key, backend);
        self.see(BackendObservation::CallLimited { call, cost: None, limit: of, seed: now.0 as u64 }, now)
    }

    /// Starts a call that meets a limit at once.
    fn limited(
        &mut self,
        backend: &str,
        kind: LimitKind,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> Vec<BackendChange> {
        self.start("x", backend, now);
        self.hit("x", backend, limit(kind, until), now)
    }

    fn choose(&self, prefer: Option<&str>, now: Timestamp) -> BackendChoice {
        choose(&self.state, &self.settings, &request(prefer), 1, now)
    }

    /// Returns the name of the chosen backend, or `wait` or `never`.
    fn chosen(&self, prefer: Option<&str>, now: Timestamp) -> String {
        match self.choose(prefer, now) {
            BackendChoice::Use { backend, .. } => backend,
            BackendChoice::Wait { .. } => "wait".to_owned(),
            BackendChoice::Never { .. } => "never".to_owned(),
        }
    }

    fn status(&self, backend: &str) -> &BackendStatus {
        &self.state.backends[backend].status
    }

    fn until(&self, backend: &str) -> Timestamp {
        match self.status(backend) {
            BackendStatus::Parked(park) => park.until,
            other => panic!("{backend} is not parked: {other:?}"),
        }
    }
}
