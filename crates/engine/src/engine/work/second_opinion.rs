//! Asks another backend for a second opinion: a program in a temporary checkout of the commit, or a model over HTTP.
//!
//! Failures never propagate: the result is then a reason why there is no opinion, and the loop decides the next step.
//! The answer is stored in the session memory under its commit, together with the end of its call, so that a restart
//! pays again only if the answer was lost. The cost of the calls is charged to the loop once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use failpoint::kill_point;
use ralph_types::failure::Failure;
use tokio_util::sync::CancellationToken;

use super::program_question::ProgramRun;
use super::remove_folder;
use crate::agent::{Backend, RunPurpose};
use crate::domain::knowledge::intelligence::{Ask, AssistantJob, JobKind, Reviewing, ask};
use crate::domain::knowledge::session;
use crate::domain::loops::{Loop, LoopInput, WorkOutcome};
use crate::domain::model::ids::{Money, RepoRef, Sha, Timestamp};
use crate::domain::model::opinion::{OpinionAnswer, OpinionEnd, OpinionRun};
use crate::domain::providers::backends::BackendRole;
use crate::domain::providers::chat::AnswerSchema;
use crate::domain::providers::limit::classify;
use crate::domain::providers::prices::TokenUsage;
use crate::domain::trust::outbound::Masker;
use crate::domain::trust::policy::ReviewPolicy;
use crate::engine::context::{ServiceContext, random};
use crate::engine::providers::{CallEnd, CallUsage, Calls, PlannedCall};
use crate::engine::receipt::{EffectError, Receipt};
use crate::engine::respondent::Respondent;
use crate::engine::work::Verification;
use crate::engine::work::program_question::ProgramRuns;
use crate::process::private;
use crate::provider::assistant::{self, AskLimits, Assistant, AssistantFault, Question};
use crate::store::calls::{self, CallContext, CallDecision};
use crate::store::leases::LeaseToken;
use crate::store::outbox::ClaimedEffect;
use crate::store::sql::Connection;
use crate::store::{StoreError, session as turns};

/// Number of failures of the service itself (disk, git) after which the service continues without the opinion.
const MAX_TRIES: u32 = 3;
/// Maximum length of a reason, in characters.
const REASON_CHARACTERS: usize = 300;

/// Request for a second opinion.
struct OpinionRequest<'a> {
    current: &'a Loop,
    review: &'a ReviewPolicy,
    commit: &'a Sha,
    ticket: u64,
    lease: &'a LeaseToken,
}

/// End of a call with its usage, and the answer or the reason why there is none.
struct OpinionCall {
    end: CallEnd,
    used: CallUsage,
    answer: Result<OpinionAnswer, Failure>,
}

/// Asks reviewers for second opinions.
pub(in crate::engine) struct Opinions {
    pub(in crate::engine) context: ServiceContext,
    pub(in crate::engine) calls: Arc<Calls>,
    pub(in crate::engine) verification: Arc<Verification>,
    pub(in crate::engine) program_runs: ProgramRuns,
    /// Backends that give second opinions, by configured name.
    pub(in crate::engine) reviewers: HashMap<String, Respondent>,
}

impl Opinions {
    /// Asks for a second opinion about a commit. Its errors can be retried.
    pub(super) async fn second_opinion(
        &self,
        claimed: &ClaimedEffect,
        lease: &LeaseToken,
        repo: &RepoRef,
        current: &Loop,
        (ticket, commit): (u64, &Sha),
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        let backend = current.settings.policy.review.as_ref().map_or("", |review| review.backend.as_str());
        let missing = |why| OpinionRun::free(commit.clone(), backend, OpinionEnd::Missing(why));
        let run = match self.opinion(claimed, lease, repo, current, (ticket, commit), cancel).await {
            Err(EffectError::Permanent { why }) => missing(why),
            Err(EffectError::Retry { why, .. }) if claimed.tries + 1 >= MAX_TRIES => missing(why),
            other => other?,
        };
        let input = LoopInput::Outcome { ticket, outcome: WorkOutcome::SecondOpinionGiven { run: Box::new(run) } };
        Ok(Receipt::with_input("ran a second opinion", input))
    }

    async fn opinion(
        &self,
        claimed: &ClaimedEffect,
        lease: &LeaseToken,
        repo: &RepoRef,
        current: &Loop,
        (ticket, commit): (u64, &Sha),
        cancel: &CancellationToken,
    ) -> Result<OpinionRun, EffectError> {
        let Some(review) = &current.settings.policy.review else {
            return Err(EffectError::Permanent { why: "the settings no longer request one".into() });
        };
        let asked = OpinionRequest { current, review, commit, ticket, lease };
        if claimed.attempts > 0 {
            self.calls.settle_lost(current, ticket, lease).await?;
            let cost = self.uncharged(current).await?;
            if let Some(run) = self.kept_opinion(&asked).await {
                return Ok(OpinionRun { cost, ..run });
            }
            let lost = OpinionRun::free(commit.clone(), &review.backend, OpinionEnd::Lost);
            return Ok(OpinionRun { cost, estimated: true, ..lost });
        }
        if let Some(run) = self.kept_opinion(&asked).await {
            let cost = self.uncharged(current).await?;
            return Ok(OpinionRun { cost, tokens_in: 0, tokens_out: 0, ..run });
        }
        self.new_opinion(repo, &asked, cancel).await.map_err(|error| match error {
            // Nothing was asked yet.
            EffectError::Retry { after_ms, why, .. } => EffectError::Retry { after_ms, ambiguous: false, why },
            other => other,
        })
    }

    /// Calls a backend for an opinion; returns an error only if no call was started.
    async fn new_opinion(
        &self,
        repo: &RepoRef,
        asked: &OpinionRequest<'_>,
        cancel: &CancellationToken,
    ) -> Result<OpinionRun, EffectError> {
        let OpinionRequest { current, review, commit, .. } = *asked;
        let Some(reviewer) = self.reviewers.get(&review.backend) else {
            let why =
                format!("the backend `{}` cannot be used here; `ralph-bot check` gives the reason", review.backend);
            return Err(EffectError::Permanent { why });
        };
        let Some(base) = &current.branch.base else {
            return Err(EffectError::Permanent { why: "the loop has no base to compare with".into() });
        };
        let patch = self.verification.workspaces.branch_diff((&current.id, repo), base, commit).await?;
        let has_tree = matches!(reviewer, Respondent::Agent(_));
        let job = Reviewing::of(current, &patch.text, patch.truncated, has_tree);
        let nonce = format!("{:08x}{:08x}", random(), random());
        let mut question = ask(&job, &nonce);
        question.prompt = self.verification.checks.masker.mask(&question.prompt).into_owned();
        let (caller, model) = match self.begin_opinion(asked, &question).await? {
            Ok(begun) => begun,
            Err(why) => {
                let end = OpinionEnd::Missing(why.to_string());
                return Ok(OpinionRun::free(commit.clone(), &review.backend, end));
            }
        };
        kill_point("K42");
        let started = self.context.clock.now();
        let wall = self.opinion_time(asked);
        let call = match reviewer {
            Respondent::Assistant(assistant) => {
                self.ask_model(&**assistant, (asked, &job, &question), model.as_deref(), wall, cancel).await
            }
            Respondent::Agent(agent) => {
                let run = (asked, &job, &question);
                self.run_reviewer(&**agent, run, (&caller, model.as_deref()), (repo, wall), cancel).await
            }
        };
        kill_point("K43");
        let turn = turns::NewTurn::pack(self.opinion_turn(asked, (question.prompt, model.clone(), started), &call));
        let (id, backend) = (current.id.clone(), (review.backend.as_str(), BackendRole::Reviewer));
        let keep = move |c: &Connection| turns::add_turn(c, &id, &turn).map(drop);
        let booked = self.calls.end_call_with(&caller.key, backend, &call.end, call.used, keep).await;
        self.context.metrics.question(JobKind::SecondOpinion.as_str(), call.end.word());
        let charged = match booked {
            Ok(_) => self.uncharged(current).await,
            Err(error) => Err(error),
        };
        let cost = charged.unwrap_or_else(|error| {
            tracing::warn!(loop_id = %current.id, %error, "could not record a second opinion and its cost");
            call.used.cost.unwrap_or_default()
        });
        kill_point("K44");
        let TokenUsage { input, output, cache_read, cache_write } = call.used.usage;
        Ok(OpinionRun {
            commit: commit.clone(),
            backend: review.backend.clone(),
            model,
            end: call.answer.map_or_else(
                |why| OpinionEnd::Missing(reason(&self.verification.checks.masker, &why.to_string())),
                OpinionEnd::Answered,
            ),
            cost,
            estimated: call.used.estimated,
            tokens_in: input.saturating_add(cache_read).saturating_add(cache_write),
            tokens_out: output,
        })
    }

    /// Returns the cost of the loop's second opinions that is not charged to the loop yet. This includes an opinion
    /// whose outcome was lost in a restart.
    async fn uncharged(&self, current: &Loop) -> Result<Money, StoreError> {
        let id = current.id.clone();
        let paid =
            self.context.store.read(move |c| calls::cost_of_purpose(c, &id, JobKind::SecondOpinion.as_str())).await?;
        Ok(Money(paid.0.saturating_sub(current.supervision.opinions.cost().0).max(0)))
    }

    /// Returns the time limit of a run: the configured one, or the loop's remaining time if that is shorter.
    fn opinion_time(&self, asked: &OpinionRequest<'_>) -> Duration {
        let current = asked.current;
        let left = current.limits.time_ms - current.spent.time_at(self.context.clock.now());
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default()).max(Duration::from_secs(1));
        Duration::from_secs(asked.review.timeout_s).min(left)
    }

    /// Reserves the cost of a run and records its start, or returns the reason why it cannot start.
    async fn begin_opinion(
        &self,
        asked: &OpinionRequest<'_>,
        question: &Ask,
    ) -> Result<Result<(CallContext, Option<String>), Failure>, EffectError> {
        let OpinionRequest { current, review, ticket, lease, .. } = *asked;
        let model = self
            .calls
            .models_of(&review.backend, current, BackendRole::Reviewer, self.context.clock.now())
            .into_iter()
            .next();
        let read = question.prompt.len() + question.schema.to_string().len();
        let usage = TokenUsage { output: u64::from(question.max_output_tokens), ..TokenUsage::estimated(read, 0) };
        let likely = self.calls.estimated(&review.backend, model.as_deref(), &usage);
        let left = Money(current.limits.cost.0.saturating_sub(current.spent.cost.0));
        if let Some(cost) = likely.filter(|cost| current.limits.cost > Money(0) && *cost > left) {
            return Ok(Err(Failure::new(format!(
                "it would cost about {cost}, and {left} of the loop's budget are left"
            ))));
        }
        let others = self.calls.settings.backends.backends.keys().filter(|name| **name != review.backend);
        let planned = PlannedCall {
            key: format!("{}{:08x}", calls::key_prefix(&current.id, ticket), random()),
            lease: lease.clone(),
            purpose: JobKind::SecondOpinion.as_str(),
            role: BackendRole::Reviewer,
            exclude: others.cloned().collect(),
            model: None,
            likely,
            share: question.kind.budget_share(),
            previous_session: None,
        };
        Ok(match self.calls.begin_call(current, planned).await? {
            CallDecision::Call { model, caller, .. } => Ok((*caller, model)),
            CallDecision::Refused(refusal) => Err(Failure::new(refusal.only_of(&review.backend).to_string())),
        })
    }

    /// Asks a model over HTTP.
    async fn ask_model(
        &self,
        model: &dyn Assistant,
        (asked, job, question): (&OpinionRequest<'_>, &Reviewing, &Ask),
        name: Option<&str>,
        timeout: Duration,
        cancel: &CancellationToken,
    ) -> OpinionCall {
        let limits =
            AskLimits { model: name.unwrap_or_default().to_owned(), max_tokens: question.max_output_tokens, timeout };
        let schema = AnswerSchema { name: question.kind.as_str().to_owned(), schema: question.schema.clone() };
        let put = Question { system: String::new(), prompt: question.prompt.clone(), schema };
        let rule = |answer| job.checked(answer);
        let outcome = tokio::select! {
            outcome = assistant::ask(model, &put, &limits, &rule) => outcome,
            () = cancel.cancelled() => {
                let usage = TokenUsage::estimated(put.prompt.len(), 0);
                let cost = self.calls.estimated(&asked.review.backend, name, &usage);
                let used = CallUsage { usage, cost, estimated: true };
                return OpinionCall { end: CallEnd::Ended, used, answer: Err(Failure::new("its run was stopped")) };
            }
        };
        let (end, spent, answer) = match outcome {
            Ok(answered) => (CallEnd::Succeeded, answered.spent, Ok(answered.value)),
            Err(failure) => {
                let end = match &failure.fault {
                    AssistantFault::Answer => CallEnd::Unusable,
                    AssistantFault::Time => CallEnd::Failed(failure.what.clone()),
                    AssistantFault::Call(signals) => match classify(signals, self.context.clock.now()) {
                        Some(limit) => CallEnd::Limited(limit),
                        None => CallEnd::Failed(failure.what.clone()),
                    },
                };
                (end, failure.spent, Err(Failure::new(failure.what)))
            }
        };
        let cost = self.calls.estimated(&asked.review.backend, name, &spent.usage);
        let used = CallUsage { usage: spent.usage, cost, estimated: cost.is_some() || spent.estimated };
        OpinionCall { end, used, answer }
    }

    /// Runs a program in a temporary checkout of the commit and reads its last message.
    async fn run_reviewer(
        &self,
        agent: &dyn Backend,
        (asked, job, question): (&OpinionRequest<'_>, &Reviewing, &Ask),
        (caller, model): (&CallContext, Option<&str>),
        (repo, wall): (&RepoRef, Duration),
        cancel: &CancellationToken,
    ) -> OpinionCall {
        let failed = |why: String| OpinionCall {
            end: CallEnd::Ended,
            used: CallUsage { cost: Some(Money(0)), ..CallUsage::default() },
            answer: Err(Failure::new(why)),
        };
        let current = asked.current;
        let scratch = self.verification.programs.scratch_of(&current.id, "second-opinion");
        remove_folder(&scratch);
        if let Err(error) = private::create_folder(&scratch) {
            return failed(format!("could not create its folder {}: {error}", scratch.display()));
        }
        let checkout = match self.verification.workspaces.clean_checkout(&current.id, repo, asked.commit).await {
            Ok(checkout) => checkout,
            Err(error) => return failed(error.to_string()),
        };
        let prompt = format!(
            "{}\nEnd with one message that is only a JSON value that matches this JSON Schema:\n{}\n",
            question.prompt, question.schema
        );
        let run = ProgramRun {
            current,
            caller,
            backend: &asked.review.backend,
            model,
            purpose: RunPurpose::Review,
            prompt,
            tree: checkout.dir.clone(),
            read_only: checkout.read_only.clone(),
            scratch: scratch.clone(),
            wall,
            max_turns: current.settings.policy.limits.agent_turns,
            max_tokens: None,
        };
        let ended = self.program_runs.run_program(agent, run, cancel).await;
        remove_folder(&scratch);
        if let Err(error) = self.verification.workspaces.release_checkout(checkout).await {
            tracing::warn!(loop_id = %current.id, %error, "could not delete the checkout of a second opinion; the reaper deletes it later");
        }
        let read = |message: String| assistant::read_answer(&question.schema, &message);
        let answer = ended.message.and_then(read).and_then(|answer| job.checked(answer));
        let end = if ended.end == CallEnd::Succeeded && answer.is_err() { CallEnd::Unusable } else { ended.end };
        OpinionCall { end, used: ended.used, answer }
    }

    /// Returns the stored answer of an earlier run about the commit; `None` if there is none.
    async fn kept_opinion(&self, asked: &OpinionRequest<'_>) -> Option<OpinionRun> {
        let (id, now, head) = (asked.current.id.clone(), asked.current.spent.iterations, about(asked.commit));
        let kept = self.context.store.read(move |c| turns::turns(c, &id, now..=now)).await;
        let kept = kept.map_err(|error| {
            tracing::warn!(loop_id = %asked.current.id, %error, "cannot read earlier second opinions");
        });
        let same = |turn: &session::SessionTurn| turn.error.is_none() && turn.prompt.starts_with(&head);
        let turn = kept.ok()?.into_iter().rev().find(same)?;
        let answer = serde_json::from_str(&turn.response).ok()?;
        Some(OpinionRun {
            commit: asked.commit.clone(),
            backend: turn.backend,
            model: turn.model,
            end: OpinionEnd::Answered(answer),
            cost: turn.cost,
            estimated: turn.estimated,
            tokens_in: turn.tokens_in.saturating_add(turn.tokens_cached),
            tokens_out: turn.tokens_out,
        })
    }

    /// Returns the run as a turn of the session memory.
    fn opinion_turn(
        &self,
        asked: &OpinionRequest<'_>,
        (prompt, model, started): (String, Option<String>, Timestamp),
        call: &OpinionCall,
    ) -> session::SessionTurn {
        let (current, used) = (asked.current, call.used);
        let mask = |text: &str| self.verification.checks.masker.mask(text).into_owned();
        let response = call.answer.as_ref().ok().and_then(|answer| serde_json::to_string(answer).ok());
        session::SessionTurn {
            iteration: current.spent.iterations,
            attempt: 1,
            role: session::TurnRole::Assistant,
            prompt: format!("{}{prompt}", about(asked.commit)),
            response: mask(&response.unwrap_or_default()),
            backend: asked.review.backend.clone(),
            model,
            tokens_in: used.usage.input.saturating_add(used.usage.cache_write),
            tokens_out: used.usage.output,
            tokens_cached: used.usage.cache_read,
            cost: used.cost.unwrap_or_default(),
            estimated: used.estimated,
            error: call.answer.as_ref().err().map(|why| mask(&why.to_string())),
            learnings: Vec::new(),
            started,
            ended: self.context.clock.now(),
        }
    }
}

/// Returns the prefix of the stored question about a commit.
fn about(commit: &Sha) -> String {
    format!("Question for {}: {commit}\n\n", JobKind::SecondOpinion.as_str())
}

/// Returns a reason that can be shown to people: one line, with secrets masked, shortened to the maximum length.
pub(super) fn reason(masker: &Masker, why: &str) -> String {
    let masked = masker.mask(why);
    let line = masked.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(REASON_CHARACTERS).collect::<String>().trim_end_matches('.').to_owned()
}
