//! Unavailable forges: the service starts without them, queries them repeatedly, and uses them as soon as they
//! respond.
//!
//! The service does nothing on a forge before it knows its own account there, because it must ignore its own actions.
//! The account is stored, so only the first start has to wait for the forge.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;

use super::Engine;
use crate::domain::model::authorship::CommitAuthor;
use crate::domain::model::ids::{ForgeName, User, UserId};
use crate::forge::{Forge, ForgeError, ForgeErrorKind, ForgeResult};
use crate::store::{StoreError, installation};

/// Maximum wait for a response of the forge.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time between two queries to an unavailable forge, in milliseconds.
const LONGEST_WAIT_MS: i64 = 30_000;
/// Value for an unknown account; ids of forges begin at 1.
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
            false => write!(f, "forge {forge} is not there yet ({detail}); it is asked again")?,
        }
        if self.waits { f.write_str("; its deliveries are stored and wait") } else { Ok(()) }
    }
}

/// Configured account on a forge.
pub struct ForgeAccount {
    /// Adapter of the forge.
    pub forge: Arc<dyn Forge>,
    /// Numeric id of the account. The account's own actions are never handled as events.
    id: AtomicI64,
    /// Whether the operator configured the id, so that it is not queried from the forge.
    configured: bool,
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
        self.user_id().ok_or_else(|| ForgeError { kind, what, detail: "the forge has not answered yet".to_owned() })
    }

    /// Returns the reason why the forge is unavailable; `None` if it is available.
    pub fn absence(&self) -> Option<ForgeAbsence> {
        self.absence.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, failure: Option<&ForgeError>) {
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

/// Waits for the response of a forge; a timeout is an error.
async fn answer<T>(forge: &dyn Forge, asked: impl Future<Output = ForgeResult<T>>) -> ForgeResult<T> {
    match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(ForgeError {
            kind: ForgeErrorKind::Transient { after_ms: None, ambiguous: false },
            what: format!("reach {}", forge.name()),
            detail: format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
        }),
    }
}

impl Engine {
    /// Queries all forges for the service's account at the start. Uses the stored account for those that do not
    /// respond.
    pub async fn meet_forges(&self) -> Result<(), StoreError> {
        let all = self.forges.values().map(async |account| {
            self.restore_account(account).await?;
            self.meet(account).await.map(drop)
        });
        join_all(all).await.into_iter().collect()
    }

    /// Returns the unavailable forges, sorted by name.
    pub fn absent_forges(&self) -> Vec<ForgeAbsence> {
        let mut absent: Vec<_> = self.forges.values().filter_map(ForgeAccount::absence).collect();
        absent.sort_by(|one, other| one.forge.as_str().cmp(other.forge.as_str()));
        absent
    }

    /// Returns the forges on which the service's account is not known.
    pub(super) fn unknown_forges(&self) -> Vec<ForgeName> {
        self.forges.values().filter(|of| of.user_id().is_none()).map(|of| of.forge.name().clone()).collect()
    }

    /// Queries the unavailable forges again. Returns `true` if all forges are available.
    pub async fn meet_absent_forges(&self) -> Result<bool, StoreError> {
        let absent = self.forges.values().filter(|account| account.absence().is_some());
        let met = join_all(absent.map(|account| self.meet(account))).await;
        let mut all = true;
        for there in met {
            let there = there?;
            all &= there;
            if there {
                self.wake.intake.notify_one();
                self.wake.reconcile.notify_one();
                self.wake.effects_queued();
            }
        }
        Ok(all)
    }

    /// Queries unavailable forges repeatedly until all are available or the service stops.
    pub(super) async fn await_forges(self: Arc<Self>) {
        for attempt in 1.. {
            if self.absent_forges().is_empty() {
                return;
            }
            let wait_ms = self.settings.backoff_ms(attempt).min(LONGEST_WAIT_MS);
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or_default());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stopping.cancelled() => return,
            }
            if let Err(error) = self.meet_absent_forges().await {
                tracing::error!(%error, "could not store the account that a forge reported; it is asked again");
            }
        }
    }

    /// Uses the stored account and commit author that the forge reported earlier.
    async fn restore_account(&self, account: &ForgeAccount) -> Result<(), StoreError> {
        let name = account.forge.name();
        let (own, author) = (own_key(name), author_key(name));
        let known = self.store.read(move |c| Ok((installation::get(c, &own)?, installation::get(c, &author)?))).await?;
        if let Some(id) = known.0.and_then(|text| text.parse().ok()).filter(|_| !account.configured) {
            account.id.store(id, Ordering::SeqCst);
        }
        let split = |text: String| {
            let (name, email) = text.split_once('\n')?;
            CommitAuthor::checked(name, email)
        };
        if let Some(author) = known.1.and_then(split) {
            self.workspaces.set_author(name, author);
        }
        Ok(())
    }

    /// Queries a forge for the service's account and the author of its commits, and stores them. Returns `true` if the
    /// forge responded.
    async fn meet(&self, account: &ForgeAccount) -> Result<bool, StoreError> {
        let (forge, name) = (&*account.forge, account.forge.name());
        let own: ForgeResult<Option<User>> = match account.configured {
            true => Ok(None),
            false => answer(forge, forge.own_account()).await.map(Some),
        };
        // A forge that is down is not asked twice.
        let author = match &own {
            Ok(_) => answer(forge, forge.commit_author()).await,
            Err(_) => Ok(None),
        };
        let down = |error: &&ForgeError| matches!(error.kind, ForgeErrorKind::Transient { .. });
        let failure = own.as_ref().err().or_else(|| author.as_ref().err().filter(down));
        if let Ok(Some(own)) = &own {
            account.id.store(own.id.0, Ordering::SeqCst);
            let (key, id) = (own_key(name), own.id.to_string());
            self.store.write(move |c| installation::set(c, &key, &id)).await?;
        }
        match &author {
            Ok(Some(author)) => {
                let (key, text) = (author_key(name), format!("{}\n{}", author.name, author.email));
                self.store.write(move |c| installation::set(c, &key, &text)).await?;
                self.workspaces.set_author(name, author.clone());
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(forge = %name, %error, "the bot's address is unknown; the last known one is used")
            }
        }
        let before = account.absence();
        account.note(failure);
        self.metrics.forge_there(name.as_str(), failure.is_none());
        match account.absence() {
            None if before.is_some() => {
                tracing::info!(forge = %name, "the forge answers again; its loops continue")
            }
            Some(absence) if before.as_ref() != Some(&absence) => tracing::error!("{absence}"),
            _ => {}
        }
        Ok(failure.is_none())
    }
}

fn own_key(forge: &ForgeName) -> String {
    format!("own/{forge}")
}

fn author_key(forge: &ForgeName) -> String {
    format!("author/{forge}")
}
