//! The service's accounts on forges, and forges that are unavailable.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::domain::model::ids::{ForgeName, RepoRef, UserId};
use crate::engine::forges::Forges;
use crate::engine::receipt::EffectError;
use crate::forge::{Forge, ForgeError, ForgeErrorKind, ForgeResult};

/// Value for an unknown account; ids of forges start at 1.
const UNKNOWN: i64 = 0;

/// Reason why a forge is unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeAbsence {
    /// Name of the forge.
    pub forge: ForgeName,
    /// Whether the forge responded and refused the credential; `false` if it did not respond.
    pub refused: bool,
    /// Response of the forge, or the cause of the failure. Contains no secret.
    pub detail: String,
    /// Whether deliveries of the forge wait, because the service's own account there is unknown.
    pub waits: bool,
}

impl fmt::Display for ForgeAbsence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { forge, detail, .. } = self;
        match self.refused {
            true => write!(
                f,
                "forge {forge} refuses the credential ({detail}); permit it on the forge, or replace it and restart"
            )?,
            false => write!(f, "forge {forge} is unavailable ({detail}); the service retries")?,
        }
        if self.waits { f.write_str("; its deliveries are stored and wait") } else { Ok(()) }
    }
}

/// Configured account on a forge.
pub struct ForgeAccount {
    /// Adapter of the forge.
    pub forge: Arc<dyn Forge>,
    /// Numeric id of the account. The account's own actions are never handled as events.
    pub(in crate::engine) id: AtomicI64,
    /// Whether the operator configured the id, so that it is not queried from the forge.
    pub(in crate::engine) configured: bool,
    absence: Mutex<Option<ForgeAbsence>>,
}

impl ForgeAccount {
    /// Creates the account. `configured` is its id from the operator's configuration, if set.
    pub fn new(forge: Arc<dyn Forge>, configured: Option<UserId>) -> Self {
        let id = AtomicI64::new(configured.map_or(UNKNOWN, |id| id.0));
        Self { forge, id, configured: configured.is_some(), absence: Mutex::new(None) }
    }

    /// Returns the id of the account; `None` if neither the operator nor the forge has provided it.
    pub fn user_id(&self) -> Option<UserId> {
        Some(UserId(self.id.load(Ordering::SeqCst))).filter(|id| id.0 != UNKNOWN)
    }

    /// Returns the id of the account.
    ///
    /// # Errors
    /// `Transient` if the id is unknown.
    pub fn own(&self) -> ForgeResult<UserId> {
        let kind = ForgeErrorKind::Transient { after_ms: None, ambiguous: false };
        let what = format!("know the service's own account on {}", self.forge.name());
        self.user_id().ok_or_else(|| ForgeError {
            kind,
            what,
            detail: "the forge has not answered yet".to_owned(),
            cause: None,
        })
    }

    /// Returns the reason why the forge is unavailable; `None` if it is available.
    pub fn absence(&self) -> Option<ForgeAbsence> {
        self.absence.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores the failure of the last request, or that the forge is available.
    pub(in crate::engine) fn note(&self, failure: Option<&ForgeError>) {
        let refused = |kind: &ForgeErrorKind| matches!(kind, ForgeErrorKind::Unauthorized | ForgeErrorKind::Denied);
        let absence = failure.map(|error| ForgeAbsence {
            forge: self.forge.name().clone(),
            refused: refused(&error.kind),
            detail: error.detail.clone(),
            waits: self.user_id().is_none(),
        });
        *self.absence.lock().unwrap_or_else(PoisonError::into_inner) = absence;
    }
}

impl Forges {
    /// Returns the account on the forge of a repository.
    ///
    /// # Errors
    /// `Retry` if the forge is not configured.
    pub(in crate::engine) fn account(&self, repo: &RepoRef) -> Result<&ForgeAccount, EffectError> {
        let why =
            || format!("no forge named {} is configured; add it to the configuration or abort the loop", repo.forge);
        self.accounts.get(&repo.forge).ok_or_else(|| EffectError::Retry {
            after_ms: Some(60_000),
            ambiguous: false,
            why: why(),
        })
    }

    /// Returns the unavailable forges, sorted by name.
    pub fn absent_forges(&self) -> Vec<ForgeAbsence> {
        let mut absent: Vec<_> = self.accounts.values().filter_map(ForgeAccount::absence).collect();
        absent.sort_by(|one, other| one.forge.as_str().cmp(other.forge.as_str()));
        absent
    }

    /// Returns the forges on which the service's account is not known.
    pub(in crate::engine) fn unknown_forges(&self) -> Vec<ForgeName> {
        self.accounts.values().filter(|of| of.user_id().is_none()).map(|of| of.forge.name().clone()).collect()
    }
}
