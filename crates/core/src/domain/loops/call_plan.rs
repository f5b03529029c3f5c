//! Calls of one run of an agent: which call follows a refused one, or why none does.

use super::agent_run::AgentEnd;
use crate::domain::providers::backends::CallAdvice;
use crate::domain::providers::call_refusal::CallRefusal;
use crate::domain::providers::limit::{Limit, LimitKind};

/// Maximum number of calls per run; each refused call disables a backend for some time.
const MAX_CALLS: usize = 8;

/// Calls of one run so far. The run calls one backend after another until a provider serves it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallPlan {
    /// Number of ended calls.
    calls: usize,
    /// Backends that would refuse the run again.
    exclude: Vec<String>,
    /// Backends and models that a provider does not offer.
    missing: Vec<MissingModel>,
    /// Whether the run enabled a disabled backend. It does that once.
    enabled: bool,
    /// Whether a backend declined the task.
    declined: bool,
    /// Phrases about the refused calls, for people.
    left: Vec<String>,
}

/// Model that a backend does not have.
#[derive(Debug, Clone, PartialEq)]
struct MissingModel {
    backend: String,
    model: Option<String>,
}

/// Outcome of an attempt to call a backend.
#[derive(Debug, Clone, PartialEq)]
pub enum CallOutcome {
    /// The call could not start.
    NotStarted(CallRefusal),
    /// The call ended.
    Ended(RunCall),
}

/// Call that ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunCall {
    /// Name of the backend.
    pub backend: String,
    /// Model; `None` for the backend's default.
    pub model: Option<String>,
    /// Whether the backend does not have the session to resume.
    pub session_unknown: bool,
    /// Limit that refused the call; `None` if there was none.
    pub limit: Option<Limit>,
    /// Reason why the backend could not be used; `None` if it could.
    pub unavailable: Option<String>,
    /// Advice about the backend's state.
    pub advice: Option<CallAdvice>,
    /// Whether the prompt has optional content.
    pub can_shorten: bool,
}

/// Step after an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum NextCall {
    /// Select a backend and call it, after this preparation.
    Start(CallPreparation),
    /// The run ends with its last call.
    Ended,
    /// The run ends, because no backend serves it.
    Unserved(AgentEnd),
}

/// Preparation of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallPreparation {
    /// The call needs no preparation.
    None,
    /// Enable this backend: its problem may be solved, and a person who resumes a loop expects an attempt.
    Enable(String),
    /// Remove optional content from the prompt.
    ShortenPrompt,
    /// Continue the iteration in a new session.
    NewSession,
}

impl CallPlan {
    /// Returns the number of ended calls.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Returns the backends that must not be selected.
    pub fn excluded(&self) -> &[String] {
        &self.exclude
    }

    /// Returns a phrase about each refused call, for people.
    pub fn refused_calls(&self) -> &[String] {
        &self.left
    }

    /// Decides on the step after an attempt. `models` returns the models that the loop may use, for a backend.
    pub fn next(&mut self, outcome: CallOutcome, models: impl Fn(&str) -> Vec<String>) -> NextCall {
        match outcome {
            CallOutcome::NotStarted(refusal) => self.after_refusal(refusal),
            CallOutcome::Ended(call) => self.after_call(call, models),
        }
    }

    fn after_refusal(&mut self, refusal: CallRefusal) -> NextCall {
        if let Some(backend) = refusal.disabled_backend().filter(|_| !self.enabled) {
            self.enabled = true;
            return NextCall::Start(CallPreparation::Enable(backend.to_owned()));
        }
        let reason = refusal.to_string();
        NextCall::Unserved(match refusal {
            CallRefusal::Wait { until, .. } => AgentEnd::Limited { until: Some(until), reason },
            CallRefusal::NoMoney(reached) => AgentEnd::NoMoney { reason, until: reached.free_at },
            CallRefusal::Never { .. } => {
                let reason = if self.left.is_empty() { reason } else { self.left.join("; ") };
                if self.declined { AgentEnd::Declined { reason } } else { AgentEnd::Unavailable { reason } }
            }
        })
    }

    fn after_call(&mut self, call: RunCall, models: impl Fn(&str) -> Vec<String>) -> NextCall {
        self.calls += 1;
        let new_session = call.session_unknown || call.advice == Some(CallAdvice::FreshSession);
        let preparation = if new_session {
            CallPreparation::NewSession
        } else {
            let Some(phrase) = refusal_phrase(&call) else { return NextCall::Ended };
            self.left.push(phrase);
            self.declined |= call.limit.as_ref().is_some_and(|limit| limit.kind.declines());
            self.after_refused_call(call, models)
        };
        if self.calls == MAX_CALLS {
            return NextCall::Unserved(AgentEnd::Limited { until: None, reason: self.left.join("; ") });
        }
        NextCall::Start(preparation)
    }

    /// Excludes the backend of a refused call if it would refuse the next call, too.
    fn after_refused_call(&mut self, call: RunCall, models: impl Fn(&str) -> Vec<String>) -> CallPreparation {
        let would_refuse = match call.advice {
            Some(CallAdvice::ShorterPrompt { .. }) if call.can_shorten => return CallPreparation::ShortenPrompt,
            Some(CallAdvice::ShorterPrompt { .. } | CallAdvice::OtherBackend { .. }) => true,
            Some(CallAdvice::OtherModel { .. }) => {
                let backend = call.backend.clone();
                self.missing.push(MissingModel { backend: backend.clone(), model: call.model });
                let is_missing =
                    |model| self.missing.contains(&MissingModel { backend: backend.clone(), model: Some(model) });
                models(&backend).into_iter().all(is_missing)
            }
            Some(CallAdvice::FreshSession) | None => call.limit.is_none(),
        };
        if would_refuse {
            self.exclude.push(call.backend);
        }
        CallPreparation::None
    }
}

/// Returns a phrase about a refused call; `None` if the call was served.
fn refusal_phrase(call: &RunCall) -> Option<String> {
    match (&call.limit, &call.unavailable) {
        (Some(limit), _) => Some(format!("{} was left{}: {}", call.backend, limit_words(limit.kind), limit.evidence)),
        (None, Some(reason)) => Some(format!("{} was left: {reason}", call.backend)),
        (None, None) => None,
    }
}

/// Returns the description of a limit, as a phrase that follows "was left".
fn limit_words(kind: LimitKind) -> &'static str {
    match kind {
        LimitKind::Rate => " for its rate limit",
        LimitKind::Quota => " for a used-up quota",
        LimitKind::Overload => ", overloaded",
        LimitKind::Auth => ", not logged in",
        LimitKind::Billing => ", without money",
        LimitKind::ContextTooLong => ", its context too long",
        LimitKind::ModelMissing => ", without the model",
        LimitKind::Policy => ", refused by its usage policy",
        LimitKind::Empty => ", with an empty answer",
        LimitKind::OwnBudget => ", at its own budget",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::Timestamp;
    use crate::domain::providers::backends::{Blocked, BlockedBy, CooldownReason, DisabledFor};
    use crate::domain::providers::limit::LimitSource;

    fn ended(backend: &str, kind: Option<LimitKind>, advice: Option<CallAdvice>) -> RunCall {
        let limit =
            kind.map(|kind| Limit { kind, until: None, source: LimitSource::Stream, evidence: "said so".into() });
        RunCall { backend: backend.into(), model: Some("m".into()), limit, advice, ..RunCall::default() }
    }

    fn blocked(backend: &str, by: BlockedBy) -> Blocked {
        Blocked { backend: backend.into(), by, until: None }
    }

    fn two_models(_: &str) -> Vec<String> {
        vec!["m".into(), "n".into()]
    }

    #[test]
    fn calls_follow_refusals() {
        let shorter = || Some(CallAdvice::ShorterPrompt { backend: "a".into() });
        let other_model = || Some(CallAdvice::OtherModel { backend: "a".into(), model: Some("m".into()) });
        let other_backend = || Some(CallAdvice::OtherBackend { backend: "a".into() });
        let (none, too_long) = (CallPreparation::None, Some(LimitKind::ContextTooLong));
        let failed = RunCall { unavailable: Some("no login".into()), ..ended("a", None, None) };
        let unknown = RunCall { session_unknown: true, ..ended("a", None, None) };
        let shortened = RunCall { can_shorten: true, ..ended("a", too_long, shorter()) };
        // Call, preparation of the next one, whether the backend is excluded, phrase about the refusal.
        let rows = [
            (ended("a", Some(LimitKind::Rate), None), none.clone(), false, "a was left for its rate limit: said so"),
            (
                ended("a", Some(LimitKind::Empty), other_backend()),
                none.clone(),
                true,
                "a was left, with an empty answer: said so",
            ),
            (
                ended("a", Some(LimitKind::ModelMissing), other_model()),
                none.clone(),
                false,
                "a was left, without the model: said so",
            ),
            (ended("a", too_long, shorter()), none.clone(), true, "a was left, its context too long: said so"),
            (shortened, CallPreparation::ShortenPrompt, false, "a was left, its context too long: said so"),
            (ended("a", too_long, Some(CallAdvice::FreshSession)), CallPreparation::NewSession, false, ""),
            (unknown, CallPreparation::NewSession, false, ""),
            (failed, none, true, "a was left: no login"),
        ];
        for (call, preparation, excluded, phrase) in rows {
            let mut plan = CallPlan::default();
            let next = plan.next(CallOutcome::Ended(call.clone()), two_models);
            assert_eq!(next, NextCall::Start(preparation), "{call:?}");
            assert_eq!(
                (plan.excluded() == ["a"], plan.refused_calls().join("; ").as_str()),
                (excluded, phrase),
                "{call:?}"
            );
            assert_eq!(plan.calls(), 1);
        }
        let served = ended("a", None, None);
        assert_eq!(CallPlan::default().next(CallOutcome::Ended(served), two_models), NextCall::Ended);
    }

    #[test]
    fn backend_without_any_model_is_excluded() {
        let mut plan = CallPlan::default();
        for (model, excluded) in [("m", false), ("n", true)] {
            let advice = CallAdvice::OtherModel { backend: "a".into(), model: Some(model.into()) };
            let call = ended("a", Some(LimitKind::ModelMissing), Some(advice));
            plan.next(CallOutcome::Ended(RunCall { model: Some(model.into()), ..call }), two_models);
            assert_eq!(plan.excluded() == ["a"], excluded, "{model}");
        }
    }

    #[test]
    fn run_without_backend_ends_with_the_reason() {
        let disabled = || blocked("a", BlockedBy::Disabled(DisabledFor::Auth, String::new()));
        let parked = || blocked("b", BlockedBy::Parked(CooldownReason::Rate, String::new()));
        let never = || CallOutcome::NotStarted(CallRefusal::Never { reasons: vec![parked(), disabled()] });
        let mut plan = CallPlan::default();
        let wait = CallRefusal::Wait { until: Timestamp(9), reasons: vec![parked()] };
        let limited = AgentEnd::Limited { until: Some(Timestamp(9)), reason: "b: rate limit".into() };
        assert_eq!(plan.next(CallOutcome::NotStarted(wait), two_models), NextCall::Unserved(limited));
        // A disabled backend is tried once per run.
        assert_eq!(plan.next(never(), two_models), NextCall::Start(CallPreparation::Enable("a".into())));
        let reason = "b: rate limit; a: not logged in".to_owned();
        assert_eq!(plan.next(never(), two_models), NextCall::Unserved(AgentEnd::Unavailable { reason }));
        let advice = Some(CallAdvice::OtherBackend { backend: "a".into() });
        plan.next(CallOutcome::Ended(ended("a", Some(LimitKind::Policy), advice)), two_models);
        let reason = "a was left, refused by its usage policy: said so".to_owned();
        assert_eq!(plan.next(never(), two_models), NextCall::Unserved(AgentEnd::Declined { reason }));
        let none = CallRefusal::Never { reasons: Vec::new() };
        assert_eq!(none.to_string(), "no backend is configured for it");
    }

    #[test]
    fn number_of_calls_is_limited() {
        let mut plan = CallPlan::default();
        let mut next = || plan.next(CallOutcome::Ended(ended("a", Some(LimitKind::Rate), None)), two_models);
        for _ in 1..MAX_CALLS {
            assert_eq!(next(), NextCall::Start(CallPreparation::None));
        }
        assert!(matches!(next(), NextCall::Unserved(AgentEnd::Limited { until: None, .. })));
    }
}
