//! Records of a run: its turn in the session memory from its start, and its prompt and output on disk.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{AgentRunInputs, RunMonitor, SelectedBackend};
use crate::agent::{AgentEvent, AgentOutcome, AgentStatus};
use crate::domain::knowledge::session::{OutputBuffer, SessionEvent, SessionTurn, TurnRole};
use crate::domain::model::ids::{LoopId, Money, Timestamp};
use crate::engine::Engine;
use crate::process::private;
use crate::store::leases::LeaseToken;
use crate::store::session as turns;
use crate::store::sql::Connection;
use crate::store::{PendingWrite, StoreError, WriteGroup};

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

impl Engine {
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
        let lease = task.lease.clone();
        let begin = move |c: &Connection| lease.check(c).and_then(|()| turns::begin_turn(c, &id, &turn));
        if let Err(error) = self.store.write(begin).await {
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
        let (id, now, count) = (task.current.id.clone(), self.clock.now(), events.len());
        let batch = turns::RunBatch::pack(events, output);
        let lease = task.lease.clone();
        let add = move |c: &Connection| lease.check(c).and_then(|()| turns::add_batch(c, &id, &batch, now));
        match self.store.write(add).await {
            Ok(true) => monitor.stored += count,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(loop_id = %task.current.id, %error, "what an agent does could not be stored")
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
            ended: self.clock.now(),
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
            prompt: self.checks.masker.mask(prompt).into_owned(),
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
        let folder = self.settings.logs.join(task.current.id.as_str());
        // The output of each backend of a run has its own file.
        let again = if chosen.number == 0 { String::new() } else { format!("-{}", chosen.number + 1) };
        let name = format!("{:03}-{}{again}", task.iteration, task.attempt);
        let write = || -> std::io::Result<()> {
            private::create_folder(&folder)?;
            private::write(&folder.join(format!("{name}.prompt.md")), prompt)?;
            private::write(&folder.join(format!("{name}.log")), &outcome.output)
        };
        if let Err(error) = write() {
            tracing::warn!(folder = %folder.display(), %error, "prompt and output could not be kept");
        }
    }
}
