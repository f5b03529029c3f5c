//! Records of a run: its turn in the session memory from its start, and its prompt and output on disk.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::prompt_inputs::PromptInputs;
use super::run_monitor::RunMonitor;
use super::selected_backend::SelectedBackend;
use crate::agent::{AgentEvent, AgentOutcome, AgentStatus, RunPurpose};
use crate::domain::knowledge::session::{OutputBuffer, SessionEvent, SessionTurn, TurnRole};
use crate::domain::loops::Loop;
use crate::domain::model::ids::{LoopId, Money, RepoRef, Sha, Timestamp};
use crate::domain::model::image::TaskImages;
use crate::engine::providers::CallUsage;
use crate::engine::work::Runs;
use crate::process::{RefusedHosts, private};
use crate::store::leases::LeaseToken;
use crate::store::sql::Connection;
use crate::store::{PendingWrite, StoreError, WriteGroup, session as turns};

/// Time between two writes of a running agent's actions to the store.
pub(super) const BATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Prompt of a call and the recorded events.
pub(super) struct RunTranscript {
    pub(super) prompt: String,
    pub(super) learnings: Vec<String>,
    /// Events that are not stored yet.
    pub(super) events: Vec<SessionEvent>,
    pub(super) started: Timestamp,
}

/// Turn of a run that ended, with the events that are not stored yet.
pub(super) struct EndedTurn {
    id: LoopId,
    lease: LeaseToken,
    turn: turns::NewTurn,
    events: Vec<turns::NewEvent>,
}

impl EndedTurn {
    /// Adds the turn to the writes of a commit. The next owner of a lost lease has stored the turn as interrupted.
    pub(super) fn add_to(self, group: &mut WriteGroup) -> PendingWrite<()> {
        group.add_kept(move |c| match self.lease.check(c) {
            Err(StoreError::Fenced { .. }) => Ok(()),
            held => held.and_then(|()| turns::end_turn(c, &self.id, &self.turn, &self.events).map(drop)),
        })
    }
}

/// Adds an agent's output to the next batch.
pub(super) fn note_output(output: &Mutex<OutputBuffer>, at: Timestamp, event: &AgentEvent) {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    match event {
        AgentEvent::Text { text } => output.add(at, text),
        AgentEvent::Used { .. } | AgentEvent::Session { .. } => {}
        _ => output.interrupt(),
    }
}

/// Inputs of a run, shared by all backends that are tried.
pub(super) struct AgentRunInputs<'a> {
    pub(super) current: &'a Loop,
    pub(super) repo: &'a RepoRef,
    pub(super) head: &'a Sha,
    pub(super) ticket: u64,
    pub(super) iteration: u32,
    pub(super) attempt: u32,
    /// Acquisition of the lease under which the run writes.
    pub(super) lease: LeaseToken,
    pub(super) purpose: RunPurpose,
    pub(super) prompt_inputs: PromptInputs,
    /// Images of the task that the loop has not recorded yet.
    pub(super) images: TaskImages,
    /// Hosts that the run requested and was denied.
    pub(super) refused: RefusedHosts,
}

impl Runs {
    /// Stores the start of a run, so that its turn is visible during the run; failures are logged.
    pub(super) async fn begin_turn(
        &self,
        task: &AgentRunInputs<'_>,
        chosen: &SelectedBackend,
        (prompt, learnings): (&str, &[String]),
        started: Timestamp,
    ) {
        let turn = turns::NewRunningTurn::pack(self.turn_of(task, chosen, prompt, (learnings.to_vec(), started)));
        let id = task.current.id.clone();
        let begin = move |c: &Connection| turns::begin_turn(c, &id, &turn);
        if let Err(error) = self.context.store.write(task.lease.guard(begin)).await {
            tracing::warn!(loop_id = %task.current.id, %error, "a run is not visible before it ends");
        }
    }

    /// Stores an agent's actions since the last batch. A failure is logged, and the events are stored with the next
    /// batch.
    pub(super) async fn keep_batch(
        &self,
        task: &AgentRunInputs<'_>,
        monitor: &mut RunMonitor,
        output: &Mutex<OutputBuffer>,
    ) {
        let output = output.lock().unwrap_or_else(PoisonError::into_inner).take();
        let events = monitor.unstored().to_vec();
        if events.is_empty() && output.is_empty() {
            return;
        }
        let (id, now, count) = (task.current.id.clone(), self.context.clock.now(), events.len());
        let batch = turns::RunBatch::pack(events, output);
        let add = move |c: &Connection| turns::add_batch(c, &id, &batch, now);
        match self.context.store.write(task.lease.guard(add)).await {
            Ok(true) => monitor.stored += count,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(loop_id = %task.current.id, %error, "could not store the activity of an agent")
            }
        }
    }

    /// Returns the run as a turn of the session memory, with its events.
    pub(super) fn ended_turn(
        &self,
        task: &AgentRunInputs<'_>,
        chosen: &SelectedBackend,
        transcript: RunTranscript,
        outcome: &AgentOutcome,
    ) -> EndedTurn {
        let RunTranscript { prompt, learnings, events, started } = transcript;
        let used = self.used(chosen, outcome);
        let failed = !matches!(outcome.status, AgentStatus::Finished);
        let turn = SessionTurn {
            response: outcome.final_message.clone(),
            tokens_in: used.usage.input.saturating_add(used.usage.cache_write),
            tokens_out: used.usage.output,
            tokens_cached: used.usage.cache_read,
            cost: used.cost.unwrap_or_default(),
            estimated: used.estimated,
            error: failed.then(|| outcome.status.words()),
            ended: self.context.clock.now(),
            ..self.turn_of(task, chosen, &prompt, (learnings, started))
        };
        let events = events.into_iter().map(turns::NewEvent::pack).collect();
        EndedTurn { id: task.current.id.clone(), lease: task.lease.clone(), turn: turns::NewTurn::pack(turn), events }
    }

    /// Returns the turn of a run that has just started.
    fn turn_of(
        &self,
        task: &AgentRunInputs<'_>,
        chosen: &SelectedBackend,
        prompt: &str,
        (learnings, started): (Vec<String>, Timestamp),
    ) -> SessionTurn {
        SessionTurn {
            iteration: task.iteration,
            attempt: task.attempt,
            role: TurnRole::Agent,
            // Agent output is masked when it is read; the prompt contains text by people.
            prompt: self.verification.checks.masker.mask(prompt).into_owned(),
            response: String::new(),
            backend: chosen.backend.clone(),
            model: chosen.model.clone(),
            tokens_in: 0,
            tokens_out: 0,
            tokens_cached: 0,
            cost: Money::default(),
            estimated: false,
            error: None,
            learnings,
            started,
            ended: started,
        }
    }

    /// Stores prompt and output of a run on disk; failures are logged.
    pub(super) fn keep_log(
        &self,
        task: &AgentRunInputs<'_>,
        chosen: &SelectedBackend,
        prompt: &str,
        outcome: &AgentOutcome,
    ) {
        let folder = self.folders.logs.join(task.current.id.as_str());
        // The output of each backend of a run has its own file.
        let again = if chosen.number == 0 { String::new() } else { format!("-{}", chosen.number + 1) };
        let name = format!("{:03}-{}{again}", task.iteration, task.attempt);
        let write = || -> std::io::Result<()> {
            private::create_folder(&folder)?;
            private::write(&folder.join(format!("{name}.prompt.md")), prompt)?;
            private::write(&folder.join(format!("{name}.log")), &outcome.output)
        };
        if let Err(error) = write() {
            tracing::warn!(folder = %folder.display(), %error, "could not store prompt and output");
        }
    }

    /// Returns the tokens and cost of a run. A cost that the agent did not report is estimated by the price table.
    pub(super) fn used(&self, chosen: &SelectedBackend, outcome: &AgentOutcome) -> CallUsage {
        self.calls.usage_of((&chosen.backend, chosen.model.as_deref()), outcome)
    }
}
