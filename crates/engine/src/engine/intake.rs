//! Turns deliveries into inputs of loops, after confirming their content and the sender's permission with the forge.
//!
//! A delivery is only a hint: its signature proves that the sender knows the secret, not that the content is true. A
//! delivery that the forge does not confirm has no effect and is reported to the operator. If the forge cannot be
//! asked, the delivery is retried later.

mod approved_text;
mod comments;
mod confirm;
mod dashboard;
mod delivery_queues;
mod events;
mod existing_pulls;
mod labels;
pub(super) mod page;
mod plan_comments;
pub(super) mod pulls;
mod templates;

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::domain::loops::Loop;
use crate::domain::model::event::{CommentSnapshot, ForgeEvent};
use crate::domain::model::ids::{Number, RepoRef, Timestamp};
use crate::domain::supervision::oversight::AuditEntry;
use crate::engine::concurrency_limits::ConcurrencyLimits;
use crate::engine::context::ServiceContext;
use crate::engine::forges::Forges;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::receipt::EffectError;
use crate::engine::settings::Pace;
use crate::forge::{ForgeError, ForgeErrorKind, Webhooks};
use crate::store::StoreError;
use crate::store::inbox::WaitingDelivery;

pub use self::dashboard::{CommandPath, DashboardAnswer, DashboardAuthor, DashboardCommandError, DashboardOutcome};

/// Time before a label was set, in milliseconds, in which an edit by a user without write access makes a confirmation
/// of the text necessary. The person who set the label may have read the text before the edit.
pub(super) const QUIET_BEFORE_LABEL_MS: i64 = 120_000;

/// Unique key of the cause of an input. An input whose origin was processed before is ignored.
pub(super) struct Origin {
    key: String,
    received_at: Timestamp,
    /// Whether only a delivery reports the event, so that the forge has to confirm it.
    reported: bool,
    /// Whether polling found the event, which is some time after it happened.
    polled: bool,
    /// Entry that is added to the loop's audit log with the input.
    entry: Option<AuditEntry>,
}

impl Origin {
    fn delivery(waiting: &WaitingDelivery) -> Self {
        let key = format!("delivery/{}", waiting.id);
        Self {
            key,
            received_at: waiting.received_at,
            reported: true,
            polled: waiting.delivery.is_polled(),
            entry: None,
        }
    }

    /// Returns the origin of the forge's current state of a loop. It is the same for deliveries and for the
    /// reconciler.
    pub(super) fn state(current: &Loop, what: &str) -> String {
        format!("reconcile/{}/{what}/{}", current.id, current.updated_at.0)
    }

    /// Returns the origin of an event that the service read from the forge.
    fn found(at: Timestamp) -> Self {
        Self { key: String::new(), received_at: at, reported: false, polled: false, entry: None }
    }

    /// Returns the origin of a comment that was read from the forge.
    pub(super) fn found_comment(repo: &RepoRef, comment: &CommentSnapshot, at: Timestamp) -> Self {
        Self::found(at).comment(repo, comment)
    }

    /// Returns the origin of a comment. It does not depend on the delivery or reconciliation that reported the
    /// comment.
    fn comment(&self, repo: &RepoRef, comment: &CommentSnapshot) -> Self {
        self.with_key(format!("comment/{}/{}/{}", repo.forge, repo.id, comment.id))
    }

    /// Returns the origin of a review comment. It is the same whether the comment is delivered alone or with its
    /// review.
    fn remark(&self, repo: &RepoRef, comment: &CommentSnapshot) -> Self {
        self.with_key(format!("remark/{}/{}/{}", repo.forge, repo.id, comment.id))
    }

    /// Returns the origin of a review comment that was read from the forge. It equals the origin of the comment's
    /// delivery.
    fn found_remark(repo: &RepoRef, comment: &CommentSnapshot, at: Timestamp) -> Self {
        Self::found(at).remark(repo, comment)
    }

    /// Returns the origin of a change of the run label, by the forge's id of the change. It is the same for each
    /// delivery that reports the change.
    fn label_change(&self, repo: &RepoRef, issue: Number, id: i64) -> Self {
        self.with_key(format!("label/{}/{}/{issue}/event/{id}", repo.forge, repo.id))
    }

    /// Returns the origin of a label found by the reconciler, by the forge's id of the change. It equals the origin of
    /// the change's delivery.
    pub(super) fn missed_label(repo: &RepoRef, issue: Number, id: i64, at: Timestamp) -> Self {
        Self::found(at).label_change(repo, issue, id)
    }

    /// Returns the origin of a review found by the reconciler.
    fn missed_review(repo: &RepoRef, id: i64, at: Timestamp) -> Self {
        Self::found(at).with_key(format!("review/{}/{}/{id}", repo.forge, repo.id))
    }

    /// Returns the origin of the content of a delivered review. It is the same for each delivery that reports the
    /// review.
    fn review(&self, repo: &RepoRef, id: i64) -> Self {
        self.with_key(format!("review-delivery/{}/{}/{id}", repo.forge, repo.id))
    }

    fn with_key(&self, key: String) -> Self {
        Self { key, received_at: self.received_at, reported: self.reported, polled: self.polled, entry: None }
    }

    fn part(&self, part: usize) -> String {
        format!("{}/{part}", self.key)
    }
}

/// Result of a delivery.
pub(super) enum IntakeOutcome {
    Done(String),
    Ignored(String),
    /// The same event was processed before, from another delivery.
    Repeated,
    /// The reported state of a label is outdated. Reported to the operator in the same way as a contradicted delivery.
    Stale(String),
}

/// Reason a delivery could not be processed.
#[derive(Debug)]
pub(super) enum IntakeError {
    /// Retry after `after_ms` milliseconds, or after the default backoff if `None`.
    Retry { after_ms: Option<i64>, why: String },
    /// The forge does not show the reported change yet; it may do so soon.
    NotShown(String),
    /// The forge contradicts the delivery.
    Contradicted(String),
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for IntakeError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ForgeError> for IntakeError {
    fn from(error: ForgeError) -> Self {
        let after_ms = match error.kind {
            ForgeErrorKind::RateLimited { after_ms } => Some(after_ms),
            ForgeErrorKind::Transient { after_ms, .. } => after_ms,
            _ => None,
        };
        Self::Retry { after_ms, why: error.to_string() }
    }
}

impl From<IntakeError> for EffectError {
    fn from(error: IntakeError) -> Self {
        match error {
            IntakeError::Store(error) => error.into(),
            IntakeError::Retry { after_ms, why } => Self::Retry { after_ms, ambiguous: false, why },
            IntakeError::NotShown(why) | IntakeError::Contradicted(why) => {
                Self::Retry { after_ms: None, ambiguous: false, why }
            }
        }
    }
}

/// Event that a delivery reports.
struct Report<'a> {
    account: &'a ForgeAccount,
    webhooks: &'a dyn Webhooks,
    event: ForgeEvent,
    /// GitHub App installation that the delivery names; `None` if it names none.
    installation: Option<u64>,
}

pub(super) type IntakeResult = Result<IntakeOutcome, IntakeError>;

fn ignored(why: impl Into<String>) -> IntakeResult {
    Ok(IntakeOutcome::Ignored(why.into()))
}

fn done(what: impl Into<String>) -> IntakeResult {
    Ok(IntakeOutcome::Done(what.into()))
}

/// Returns the SHA-256 hash of title and body in hexadecimal, as passed to `--confirm`.
pub(super) fn text_hash(title: &str, body: &str) -> String {
    let digest = Sha256::digest(format!("{title}\0{body}"));
    data_encoding::HEXLOWER.encode(&digest)
}

/// Turns deliveries into inputs of loops.
pub struct Intake {
    pub(super) context: ServiceContext,
    pub(super) forges: Arc<Forges>,
    pub(super) pace: Pace,
    /// Limits on the issues whose deliveries are processed concurrently.
    pub(super) limits: ConcurrencyLimits,
    /// Names of the agent backends, in order.
    pub(super) backends: Vec<String>,
    /// Whether loops learn from each other.
    pub(super) learns: bool,
}
