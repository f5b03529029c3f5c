//! Result of an effect: its receipt, or the reason why it did not complete.

use crate::domain::loops::{ForgeChange, Loop, LoopInput, WorkOutcome};
use crate::domain::model::ids::Number;
use crate::forge::{ForgeError, ForgeErrorKind};
use crate::store::loop_files::LoopCommits;
use crate::store::loops::{self, IssueRole};
use crate::store::outbox::ClaimedEffect;
use crate::store::{Store, StoreError, forge_posts};

/// Result of a completed effect.
#[derive(Debug, Default)]
pub(super) struct Receipt {
    /// Result as text, for people and the audit log.
    pub text: String,
    /// Input for the loop.
    pub input: Option<LoopInput>,
    /// Object that now exists on the forge, by key and text digest.
    pub posted: Option<(String, forge_posts::ForgePost)>,
    /// Changes of the forge that are part of the effect and succeeded.
    pub made: Vec<ForgeChange>,
    /// Changes of the forge that are part of the effect and were refused permanently, each with the forge's response.
    pub refused: Vec<(ForgeChange, String)>,
    /// Commits for other hosts, and this host as the one with the loop's newest work tree; `None` if the store knows both.
    pub saved: Option<LoopCommits>,
    /// Issue or pull request that now belongs to the loop.
    pub number: Option<(Number, IssueRole)>,
}

impl Receipt {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Records the outcome of a change that is part of the effect. Returns an error if the change failed without being
    /// refused.
    pub(super) fn part(
        &mut self,
        change: ForgeChange,
        outcome: Result<(), impl Into<EffectError>>,
    ) -> Result<(), EffectError> {
        match outcome.map_err(Into::into) {
            Ok(()) => self.made.push(change),
            Err(EffectError::Permanent { why }) => self.refused.push((change, why)),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    pub(super) fn with_input(text: impl Into<String>, input: impl Into<LoopInput>) -> Self {
        Self { input: Some(input.into()), ..Self::text(text) }
    }

    /// Returns the receipt of work with this ticket.
    pub(super) fn outcome(text: impl Into<String>, ticket: u64, outcome: WorkOutcome) -> Self {
        Self::with_input(text, LoopInput::Outcome { ticket, outcome })
    }
}

/// Reason an effect did not complete.
#[derive(Debug)]
pub(super) enum EffectError {
    /// Transient failure: retry after `after_ms` milliseconds, or after the default backoff if `None`. `ambiguous`
    /// means that the effect may have happened.
    Retry { after_ms: Option<i64>, ambiguous: bool, why: String },
    /// Permanent failure.
    Permanent { why: String },
    /// The effect was cancelled.
    Stopped { why: String },
}

impl EffectError {
    /// Returns the error of an effect that another lane executes.
    pub(super) fn wrong_lane(claimed: &ClaimedEffect) -> Self {
        Self::Permanent { why: format!("{} is in the queue {}, which does not execute it", claimed.key, claimed.queue) }
    }
}

impl From<ForgeError> for EffectError {
    fn from(error: ForgeError) -> Self {
        let why = error.to_string();
        match error.kind {
            ForgeErrorKind::Transient { after_ms, ambiguous } => Self::Retry { after_ms, ambiguous, why },
            ForgeErrorKind::RateLimited { after_ms } => Self::Retry { after_ms: Some(after_ms), ambiguous: false, why },
            // The operator may replace a credential without a restart.
            ForgeErrorKind::Unauthorized => Self::Retry { after_ms: Some(60_000), ambiguous: false, why },
            _ => Self::Permanent { why },
        }
    }
}

/// Ambiguous, because the effect may have changed the forge before it used the database.
impl From<StoreError> for EffectError {
    fn from(error: StoreError) -> Self {
        Self::Retry { after_ms: None, ambiguous: true, why: error.to_string() }
    }
}

/// Returns the context of the log lines of an effect.
pub(super) fn effect_context(claimed: &ClaimedEffect) -> tracing::Span {
    match &claimed.loop_id {
        Some(id) => tracing::info_span!("effect", loop_id = %id, key = claimed.key),
        None => tracing::info_span!("effect", subject = claimed.subject, key = claimed.key),
    }
}

/// Returns the current state of the effect's loop.
pub(super) async fn loop_of(store: &Store, claimed: &ClaimedEffect) -> Result<Loop, EffectError> {
    let missing = || EffectError::Permanent { why: "the loop of the effect does not exist".into() };
    let id = claimed.loop_id.clone().ok_or_else(missing)?;
    store.read(move |c| loops::get(c, &id)).await?.ok_or_else(missing)
}
