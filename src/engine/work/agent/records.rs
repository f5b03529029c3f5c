//! Records of a run: its turn in the session memory, its prompt and output on disk.

use super::{AgentRunInputs, SelectedBackend};
use crate::agent::{AgentOutcome, AgentStatus};
use crate::domain::knowledge::session;
use crate::domain::model::ids::Timestamp;
use crate::engine::Engine;
use crate::process::private;
use crate::store::session as turns;

/// Prompt of a call and the recorded events.
pub(super) struct RunTranscript {
    pub(super) prompt: String,
    pub(super) learnings: Vec<String>,
    pub(super) events: Vec<session::SessionEvent>,
    pub(super) started: Timestamp,
}

impl Engine {
    /// Stores the run as a turn of the session memory, with its events; failures are logged.
    pub(super) async fn keep_turn(
        &self,
        task: &AgentRunInputs<'_>,
        chosen: &SelectedBackend,
        transcript: RunTranscript,
        outcome: &AgentOutcome,
    ) {
        let RunTranscript { prompt, learnings, events, started } = transcript;
        let used = self.used(chosen, outcome);
        let failed = !matches!(outcome.status, AgentStatus::Finished);
        let turn = session::SessionTurn {
            iteration: task.iteration,
            attempt: task.attempt,
            role: session::TurnRole::Agent,
            // Agent output is masked when it is read; the prompt contains text by people.
            prompt: self.checks.masker.mask(&prompt).into_owned(),
            response: outcome.final_message.clone(),
            backend: chosen.backend.clone(),
            model: chosen.model.clone(),
            tokens_in: used.usage.input.saturating_add(used.usage.cache_write),
            tokens_out: used.usage.output,
            tokens_cached: used.usage.cache_read,
            cost: used.cost.unwrap_or_default(),
            estimated: used.estimated,
            error: failed.then(|| outcome.status.words()),
            learnings,
            started,
            ended: self.clock.now(),
        };
        let id = task.current.id.clone();
        let kept = self.store.write(move |c| {
            if turns::add_turn(c, &id, &turns::NewTurn::pack(turn))? {
                let events: Vec<_> = events.into_iter().map(turns::NewEvent::pack).collect();
                turns::add_events(c, &id, &events)?;
            }
            Ok(())
        });
        if let Err(error) = kept.await {
            tracing::warn!(loop_id = %task.current.id, %error, "a run could not be kept in the session memory");
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
