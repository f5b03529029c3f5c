//! Learnings from a loop's step. The step's transaction stores them.

use super::{LearnOutcome, LoopCredit, add_reflection, credit_iteration, credit_loop, learn, proposals, save};
use crate::domain::knowledge::memory::{
    Learning, LearningState, MemoryObservation, MemorySettings, ProposalState, Remark, from_iteration, from_loop,
    observed, remembered,
};
use crate::domain::knowledge::session;
use crate::domain::loops::{Loop, LoopInput};
use crate::domain::model::ids::{LoopId, RepoRef, Timestamp};
use crate::process::Masker;
use crate::store::StoreResult;
use crate::store::session as session_store;
use crate::store::sql::Connection;

/// Runs optional work in the caller's transaction. If it fails or panics, rolls it back and logs the error, and the step
/// continues.
fn guarded(c: &Connection, id: &LoopId, what: &str, work: impl FnOnce() -> StoreResult<()>) -> StoreResult<()> {
    c.prepare_cached("SAVEPOINT memory")?.execute([])?;
    let why = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("it panicked".to_owned()),
    };
    if let Some(why) = why {
        tracing::warn!(loop_id = %id, why, "{what}");
        c.prepare_cached("ROLLBACK TO memory")?.execute([])?;
    }
    c.prepare_cached("RELEASE memory")?.execute([])?;
    Ok(())
}

/// Settings for learning, and the masker of stored texts.
#[derive(Debug, Clone, Default)]
pub struct StepMemory {
    /// Memory settings; the store learns only if `enabled` is set.
    pub settings: MemorySettings,
    /// Masks secrets in stored texts.
    pub masker: Masker,
}

impl StepMemory {
    /// Returns settings with learning disabled.
    pub fn off() -> Self {
        Self { settings: MemorySettings { enabled: false, ..MemorySettings::default() }, ..Self::default() }
    }

    /// Stores a step's learnings in the caller's transaction. Rolls back and logs a failure, and the step continues.
    ///
    /// # Errors
    /// The caller's transaction was lost.
    pub fn learn_from(
        &self,
        c: &Connection,
        before: &Loop,
        after: &Loop,
        input: &LoopInput,
        now: Timestamp,
    ) -> StoreResult<()> {
        if !self.settings.enabled {
            return Ok(());
        }
        guarded(c, &after.id, "could not store the learnings of a step", || self.take_in(c, before, after, input, now))
    }

    /// Stores a step's events in the loop's memory, in the caller's transaction, even if learning is disabled. Handles
    /// failures like [`Self::learn_from`].
    ///
    /// # Errors
    /// The caller's transaction was lost.
    pub fn note(
        &self,
        c: &Connection,
        before: &Loop,
        after: &Loop,
        input: &LoopInput,
        now: Timestamp,
    ) -> StoreResult<()> {
        let mut events = session::step_events(before, after, input, now);
        if events.is_empty() {
            return Ok(());
        }
        for event in &mut events {
            event.text = self.masker.mask(&event.text).into_owned();
        }
        let events: Vec<_> = events.into_iter().map(session_store::NewEvent::pack).collect();
        guarded(c, &after.id, "cannot store the events of a step", || session_store::add_events(c, &after.id, &events))
    }

    fn take_in(
        &self,
        c: &Connection,
        before: &Loop,
        after: &Loop,
        input: &LoopInput,
        now: Timestamp,
    ) -> StoreResult<()> {
        for observation in observed(before, after, input) {
            self.take(c, after, observation, now)?;
        }
        Ok(())
    }

    fn take(&self, c: &Connection, current: &Loop, observation: MemoryObservation, now: Timestamp) -> StoreResult<()> {
        let (id, settings) = (&current.id, &self.settings);
        let mut learnt = Vec::new();
        match observation {
            // If learning for other loops is disabled, the loop still keeps its reflections.
            MemoryObservation::Iteration { reflection, .. } if !settings.learns() => {
                add_reflection(c, &self.masker, id, &reflection, now)?;
            }
            _ if !settings.learns() => {}
            MemoryObservation::Iteration { facts, reflection } => {
                // Credit the prompt's learnings before this iteration adds new ones.
                let did = (facts.approach.as_str(), facts.gained());
                if !facts.agent_failed {
                    credit_iteration(c, id, facts.iteration, did, settings, now)?;
                }
                add_reflection(c, &self.masker, id, &reflection, now)?;
                learnt = from_iteration(&facts, settings, now);
            }
            MemoryObservation::Ended { facts, succeeded } => {
                if let Some(succeeded) = succeeded {
                    let (repository, task_type) = (facts.repository.clone(), facts.task_type);
                    credit_loop(
                        c,
                        &LoopCredit { loop_id: id.clone(), repository, task_type, succeeded },
                        settings,
                        now,
                    )?;
                }
                learnt = from_loop(&facts, settings, now);
            }
            MemoryObservation::Rule { text, by, proposal } => {
                self.keep_rule(c, &current.issue.repo, &text, id, now)?;
                let by = self.masker.mask(&by).into_owned();
                match proposal {
                    Some(number) => drop(proposals::answer(c, number, ProposalState::Accepted, &by, now)?),
                    None => proposals::accept_same(c, &current.issue.repo, (&text, &by), settings, now)?,
                }
            }
            MemoryObservation::Remark { text } => {
                let text = self.masker.mask(&text).into_owned();
                let remark = Remark { loop_id: id.clone(), text };
                proposals::add_remark(c, &current.issue.repo, &remark, settings, now)?;
            }
            MemoryObservation::Told { numbers } => proposals::told(c, &numbers, now)?,
        }
        for learning in learnt {
            learn(c, &self.masker, learning, settings, now)?;
        }
        Ok(())
    }

    /// Stores a maintainer's rule as active, regardless of its earlier state.
    pub fn keep_rule(
        &self,
        c: &Connection,
        repo: &RepoRef,
        text: &str,
        id: &LoopId,
        now: Timestamp,
    ) -> StoreResult<()> {
        let rule = remembered(repo, text, id, now);
        let (LearnOutcome::Stored(known) | LearnOutcome::Merged(known) | LearnOutcome::Known(known)) =
            learn(c, &self.masker, rule.clone(), &self.settings, now)?;
        if known.is_worth_telling(&self.settings, now) {
            return Ok(());
        }
        let Learning { confidence, evidence, .. } = rule;
        save(c, &Learning { state: LearningState::Active, confidence, evidence, updated_at: now, ..known })
    }
}
