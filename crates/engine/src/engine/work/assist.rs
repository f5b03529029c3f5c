//! Questions to assistants: selects a backend, sends the question and checks the answer.
//!
//! Questions never block a loop: all assistants of a question share one time limit, and every failure results in no
//! answer. Independent questions are asked concurrently, up to a limit, after their cost is reserved. Answers are
//! stored in the session memory, so a question is not paid for twice after a restart.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ralph_types::failure::Failure;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::program_question::ProgramAssistant;
use crate::clock::Stopwatch;
use crate::domain::knowledge::intelligence::{Ask, AssistantJob, JobKind, ask};
use crate::domain::knowledge::session;
use crate::domain::loops::Loop;
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::providers::backends::BackendRole;
use crate::domain::providers::chat::AnswerSchema;
use crate::domain::providers::limit::classify;
use crate::domain::providers::prices::TokenUsage;
use crate::domain::trust::outbound::Masker;
use crate::domain::trust::policy::Intelligence;
use crate::engine::context::{ServiceContext, random};
use crate::engine::providers::{CallEnd, CallUsage, Calls, PlannedCall};
use crate::engine::respondent::Respondent;
use crate::engine::settings::QuestionSettings;
use crate::engine::spans::ModelCall;
use crate::engine::work::program_question::ProgramRuns;
use crate::provider::assistant::{
    self, AskLimits, Assistant, AssistantAnswer, AssistantFailure, AssistantFault, Question, Spent,
};
use crate::store::calls::{self, CallContext, CallDecision};
use crate::store::leases::LeaseToken;
use crate::store::session as turns;

/// Maximum number of concurrent questions per loop.
const AT_ONCE: usize = 2;
/// Addition to the time limit of a question for the start of a program.
const PROGRAM_TIME: Duration = Duration::from_secs(90);
/// Estimated number of input tokens of a program's own instructions.
const PROGRAM_TOKENS: u64 = 20_000;
/// Number of consecutive failures after which a loop asks no more questions of the kind for some iterations.
const MAX_FAILURES: usize = 2;

/// Questions that one work effect of a loop asks.
pub(in crate::engine) struct Questions<'a> {
    /// Loop that the questions are about.
    pub current: &'a Loop,
    /// Ticket of the work effect; 0 if the questions belong to no work effect.
    pub ticket: u64,
    /// Acquisition of the lease under which the work effect runs.
    pub lease: &'a LeaseToken,
    /// Cancels all questions.
    pub cancel: &'a CancellationToken,
    slots: Semaphore,
    so_far: Mutex<AssistProgress>,
}

/// State shared by the questions.
#[derive(Default)]
struct AssistProgress {
    /// Assistants that failed and are not asked again.
    failed: Vec<String>,
    /// Number of questions asked.
    asked: u32,
    /// Reason of the first question without an answer.
    failure: Option<String>,
    /// Whether a question already retried a disabled backend.
    tried_disabled: bool,
    /// Total tokens and cost of the questions.
    used: CallUsage,
}

impl<'a> Questions<'a> {
    /// Creates an empty set of questions.
    pub fn of(current: &'a Loop, ticket: u64, lease: &'a LeaseToken, cancel: &'a CancellationToken) -> Self {
        Self { current, ticket, lease, cancel, slots: Semaphore::new(AT_ONCE), so_far: Mutex::default() }
    }

    /// Returns the total tokens and cost of the questions.
    pub fn used(&self) -> CallUsage {
        self.so_far().used
    }

    /// Returns the reason why an assistant gave no usable answer; `None` if none failed.
    pub fn failure(&self) -> Option<String> {
        self.so_far().failure.clone()
    }

    /// Asks an assistant, until the work is canceled.
    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        assistant: &dyn Assistant,
        question: &Question,
        limits: &AskLimits,
        rule: assistant::AnswerRule<'_, T>,
    ) -> Result<AssistantAnswer<T>, AssistantFailure> {
        tokio::select! {
            outcome = assistant::ask(assistant, question, limits, rule) => outcome,
            () = self.cancel.cancelled() => {
                let usage = TokenUsage::estimated(question.prompt.len(), 0);
                let spent = Spent { usage, estimated: true, calls: 1, model: String::new() };
                Err(AssistantFailure { what: "the work was stopped".to_owned(), spent, fault: AssistantFault::Time })
            }
        }
    }

    fn so_far(&self) -> MutexGuard<'_, AssistProgress> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Call of a selected assistant.
struct QuestionCall {
    /// 1-based index of the question within the work effect.
    number: u32,
    caller: CallContext,
    backend: String,
    model: String,
    started: Timestamp,
}

/// End of a question to one assistant.
struct QuestionEnd<T> {
    end: CallEnd,
    used: CallUsage,
    answer: Result<T, Failure>,
}

/// Asks backends the questions of the service.
pub(in crate::engine) struct Assistants {
    pub(in crate::engine) context: ServiceContext,
    pub(in crate::engine) calls: Arc<Calls>,
    pub(in crate::engine) program_runs: ProgramRuns,
    /// Backends that answer questions, by configured name.
    pub(in crate::engine) respondents: HashMap<String, Respondent>,
    /// Masker of questions and stored answers.
    pub(in crate::engine) masker: Masker,
    pub(in crate::engine) settings: QuestionSettings,
}

impl Assistants {
    /// Whether the loop is configured to ask questions of this kind and an assistant is available.
    pub(in crate::engine) fn asks(&self, current: &Loop, kind: JobKind) -> bool {
        kind.is_asked(current.settings.policy.intelligence) && !self.respondents.is_empty()
    }

    /// Asks a model a question. Returns `None` if the loop asks no models, none is available, a cost limit is reached,
    /// or no answer is usable. `about` identifies the subject; a stored answer about the same subject is reused.
    pub(in crate::engine) async fn consult<J: AssistantJob + Sync>(
        &self,
        questions: &Questions<'_>,
        job: &J,
        about: &str,
    ) -> Option<J::Output> {
        let current = questions.current;
        if !self.asks(current, J::KIND) {
            return None;
        }
        let head = format!("Question for {}: {about}\n\n", J::KIND.as_str());
        if let Some(known) = self.answered_before(current, &head).await {
            return serde_json::from_str(&known).ok().and_then(|answer| job.checked(answer).ok());
        }
        if self.rests(current, J::KIND).await {
            return None;
        }
        let nonce = format!("{:08x}{:08x}", random(), random());
        let asked = Ask { max_output_tokens: self.settings.context.max_answer_tokens(J::KIND), ..ask(job, &nonce) };
        let question = Question {
            system: String::new(),
            prompt: self.masker.mask(&asked.prompt).into_owned(),
            schema: AnswerSchema { name: J::KIND.as_str().to_owned(), schema: asked.schema.clone() },
        };
        let _slot = questions.slots.acquire().await.ok()?;
        let watch = Stopwatch::start();
        for _ in 0..self.respondents.len() {
            if questions.cancel.is_cancelled() {
                break;
            }
            let call = self.begin_question(questions, &asked).await?;
            let timeout = self.time_limit(&asked, &call.backend).saturating_sub(watch.elapsed());
            let limits = AskLimits { model: call.model.clone(), max_tokens: asked.max_output_tokens, timeout };
            let ended = self.put(questions, &call, &question, &limits, &|answer| job.checked(answer)).await;
            let QuestionEnd { end, used, answer } = ended;
            questions.so_far().used.add(used);
            self.context.metrics.question(J::KIND.as_str(), end.word());
            self.calls.model_span(
                &current.id,
                &ModelCall {
                    operation: "chat",
                    backend: &call.backend,
                    model: Some(&call.model),
                    usage: used.usage,
                    usd: used.cost.unwrap_or_default().usd(),
                    started: call.started,
                    error: (end != CallEnd::Succeeded).then(|| end.word()),
                },
            );
            let booked =
                self.calls.end_call(&call.caller.key, (&call.backend, BackendRole::Assistant), &end, used).await;
            let prompt = format!("{head}{}", question.prompt);
            self.keep_answer(questions, &call, prompt, used, &answer).await;
            if let Err(error) = booked {
                tracing::warn!(loop_id = %current.id, %error, "could not record the cost of a question");
            }
            match answer {
                Ok(value) => return Some(value),
                Err(failure) => {
                    let (purpose, backend) = (J::KIND.as_str(), &call.backend);
                    tracing::warn!(loop_id = %current.id, purpose, backend, %failure, "an assistant gave no usable answer");
                    if questions.cancel.is_cancelled() {
                        return None;
                    }
                    let mut so_far = questions.so_far();
                    so_far.failure.get_or_insert_with(|| format!("{backend} gave no usable answer: {failure}"));
                    if end == CallEnd::Unusable {
                        return None;
                    }
                    so_far.failed.push(call.backend);
                }
            }
        }
        None
    }

    /// Returns the time limit of a question to a backend.
    fn time_limit(&self, asked: &Ask, backend: &str) -> Duration {
        let start = if self.is_program(backend) { PROGRAM_TIME } else { Duration::ZERO };
        self.settings.answer_timeout.unwrap_or(Duration::from_secs(asked.timeout_s) + start)
    }

    /// Whether an assistant is a program, as opposed to a model over HTTP.
    fn is_program(&self, backend: &str) -> bool {
        matches!(self.respondents.get(backend), Some(Respondent::Agent(_)))
    }

    /// Whether the loop asks no question of this kind now. With `intelligence: summaries` it asks one per
    /// `memory.summary_interval` iterations. In this interval, no further question follows some failures in a row.
    async fn rests(&self, current: &Loop, kind: JobKind) -> bool {
        let (id, first) = (current.id.clone(), current.spent.iterations.saturating_sub(self.settings.summary_interval));
        let booked = self.context.store.read(move |c| calls::of_loop(c, &id)).await.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "cannot read earlier questions");
            Vec::new()
        });
        let recent = booked.iter().rev().filter(|call| call.purpose == kind.as_str() && call.iteration > first);
        let mut outcomes = recent.map(|call| call.outcome.as_deref());
        if current.settings.policy.intelligence == Intelligence::Summaries {
            return outcomes.next().is_some();
        }
        let newest: Vec<_> = outcomes.take(MAX_FAILURES).collect();
        newest.len() == MAX_FAILURES && !newest.contains(&Some(CallEnd::Succeeded.word()))
    }

    /// Returns the stored answer to a question with this heading; `None` if there is none.
    async fn answered_before(&self, current: &Loop, head: &str) -> Option<String> {
        let (id, now) = (current.id.clone(), current.spent.iterations);
        let kept = self.context.store.read(move |c| turns::turns(c, &id, now..=now)).await;
        let kept = kept.map_err(|error| tracing::warn!(loop_id = %current.id, %error, "cannot read earlier answers"));
        let mut kept = kept.ok()?.into_iter().rev();
        let same = |turn: &session::SessionTurn| {
            turn.role == session::TurnRole::Assistant && turn.error.is_none() && turn.prompt.starts_with(head)
        };
        kept.find(same).map(|turn| turn.response)
    }

    /// Selects an assistant and reserves the cost; `None` if no assistant is available now. Does not wait for one.
    async fn begin_question(&self, questions: &Questions<'_>, asked: &Ask) -> Option<QuestionCall> {
        let current = questions.current;
        let (purpose, now) = (asked.kind.as_str(), self.context.clock.now());
        let (number, failed) = {
            let mut so_far = questions.so_far();
            so_far.asked += 1;
            (so_far.asked, so_far.failed.clone())
        };
        let start = calls::key_prefix(&current.id, questions.ticket);
        // Postponed work runs again under the same ticket.
        let key = format!("{start}{purpose}-{number}-{:08x}", random());
        let read = asked.prompt.len() + asked.schema.to_string().len();
        let usage = TokenUsage { output: u64::from(asked.max_output_tokens), ..TokenUsage::estimated(read, 0) };
        let of_program = TokenUsage { input: PROGRAM_TOKENS, ..TokenUsage::default() };
        let models = self.calls.models(current, BackendRole::Assistant, now);
        let open = models.iter().filter(|(name, _)| self.respondents.contains_key(*name) && !failed.contains(*name));
        // The backend is not known yet, so the highest price counts; one without a price costs nothing.
        let wanted = self.settings.context.model_for(asked.kind).map(str::to_owned);
        let estimated = |(name, own): (&String, &Vec<String>)| {
            let usage = if self.is_program(name) { usage.plus(of_program) } else { usage };
            self.calls.estimated(name, wanted.as_ref().or(own.first()).map(String::as_str), &usage)
        };
        let likely = open.filter_map(estimated).max();
        let planned = PlannedCall {
            key,
            lease: questions.lease.clone(),
            purpose,
            role: BackendRole::Assistant,
            exclude: failed,
            likely: Some(likely.unwrap_or(Money(0))),
            model: wanted,
            share: asked.kind.budget_share(),
            previous_session: None,
        };
        let mut begun = self.calls.begin_call(current, planned.clone()).await;
        // At the start of a loop, retry a disabled backend, as for agents.
        if let Ok(CallDecision::Refused(refusal)) = &begun
            && let Some(backend) = refusal.disabled_backend()
            && current.spent.iterations <= 1
            && !std::mem::replace(&mut questions.so_far().tried_disabled, true)
        {
            self.calls.enable(backend).await;
            begun = self.calls.begin_call(current, planned).await;
        }
        let why = match begun {
            Ok(CallDecision::Call { backend, model, caller, .. }) => {
                let model = model.unwrap_or_default();
                return Some(QuestionCall { number, caller: *caller, backend, model, started: now });
            }
            Ok(CallDecision::Refused(refusal)) => refusal.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::info!(loop_id = %current.id, purpose, why, "no model is asked");
        None
    }

    /// Sends the question to the selected assistant. Ends early if the work is canceled.
    async fn put<T: serde::de::DeserializeOwned>(
        &self,
        questions: &Questions<'_>,
        call: &QuestionCall,
        question: &Question,
        limits: &AskLimits,
        rule: assistant::AnswerRule<'_, T>,
    ) -> QuestionEnd<T> {
        let (outcome, record) = match self.respondents.get(&call.backend) {
            Some(Respondent::Assistant(model)) => (questions.ask(&**model, question, limits, rule).await, None),
            Some(Respondent::Agent(agent)) => {
                let model = call.model.as_str();
                let program = ProgramAssistant::new(
                    &self.program_runs,
                    &**agent,
                    questions.current,
                    &call.caller,
                    &call.backend,
                    model,
                    questions.cancel,
                );
                let outcome = questions.ask(&program, question, limits, rule).await;
                (outcome, Some(program.into_record()))
            }
            None => {
                let what = format!("the backend `{}` cannot answer questions on this machine", call.backend);
                (Err(AssistantFailure { what, spent: Spent::default(), fault: AssistantFault::Time }), None)
            }
        };
        let end = match &outcome {
            Ok(_) => CallEnd::Succeeded,
            Err(failure) => self.end_of(questions, failure),
        };
        let (spent, answer) = match outcome {
            Ok(answered) => (answered.spent, Ok(answered.value)),
            Err(failure) => (failure.spent, Err(Failure::new(failure.what))),
        };
        let by_tokens = self.used_by_question(call, &spent);
        let Some((used, failure)) = record else { return QuestionEnd { end, used: by_tokens, answer } };
        let end = match (end, failure) {
            (CallEnd::Failed(_), failure) => failure.unwrap_or(CallEnd::Ended),
            (end, _) => end,
        };
        // A run without known tokens is estimated by the length of the question.
        let used = if used == CallUsage::default() { by_tokens } else { used };
        QuestionEnd { end, used, answer }
    }

    /// Classifies a failure for the state of the backend.
    fn end_of(&self, questions: &Questions<'_>, failure: &AssistantFailure) -> CallEnd {
        match &failure.fault {
            AssistantFault::Answer => CallEnd::Unusable,
            _ if questions.cancel.is_cancelled() => CallEnd::Ended,
            AssistantFault::Time => CallEnd::Failed(failure.what.clone()),
            AssistantFault::Call(signals) => match classify(signals, self.context.clock.now()) {
                Some(limit) => CallEnd::Limited(limit),
                None => CallEnd::Failed(failure.what.clone()),
            },
        }
    }

    /// Returns the tokens and cost of a question, by the prices of the requested model.
    fn used_by_question(&self, call: &QuestionCall, spent: &Spent) -> CallUsage {
        let usage = spent.usage;
        let cost = self.calls.estimated(&call.backend, Some(&call.model), &usage);
        CallUsage { usage, cost, estimated: cost.is_some() || spent.estimated }
    }

    /// Stores the question and its answer as a turn of the session memory; failures are logged.
    async fn keep_answer<T: Serialize>(
        &self,
        questions: &Questions<'_>,
        call: &QuestionCall,
        prompt: String,
        used: CallUsage,
        answer: &Result<T, Failure>,
    ) {
        let current = questions.current;
        let response = answer.as_ref().ok().and_then(|value| serde_json::to_string(value).ok());
        let mask = |text: &str| self.masker.mask(text).into_owned();
        let turn = session::SessionTurn {
            iteration: current.spent.iterations,
            attempt: call.number,
            role: session::TurnRole::Assistant,
            prompt,
            response: mask(&response.unwrap_or_default()),
            backend: call.backend.clone(),
            model: Some(call.model.clone()),
            tokens_in: used.usage.input.saturating_add(used.usage.cache_write),
            tokens_out: used.usage.output,
            tokens_cached: used.usage.cache_read,
            cost: used.cost.unwrap_or_default(),
            estimated: used.estimated,
            error: answer.as_ref().err().map(|failure| mask(&failure.to_string())),
            learnings: Vec::new(),
            started: call.started,
            ended: self.context.clock.now(),
        };
        let id = current.id.clone();
        let kept = self
            .context
            .store
            .write(questions.lease.guard(move |c| turns::add_turn(c, &id, &turns::NewTurn::pack(turn)).map(drop)));
        if let Err(error) = kept.await {
            tracing::warn!(loop_id = %current.id, %error, "could not store a question in the session memory");
        }
    }
}
