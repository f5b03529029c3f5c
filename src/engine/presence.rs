//! Forges that are not there: the service starts without them, asks them again, and goes on with them once they answer.
//!
//! Nothing is done on a forge before the service knows its own account there, because it must not obey itself. The account is
//! stored, so that only the first start ever waits for it.

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

/// Maximum wait for the answer of a forge.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time between two questions to a forge that is not there, in milliseconds.
const LONGEST_WAIT_MS: i64 = 30_000;
/// Value of an unknown account; forges count from 1.
const UNKNOWN: i64 = 0;

/// Reason why a forge is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeAbsence {
    /// Forge.
    pub forge: ForgeName,
    /// Whether it answered and refused the credential; otherwise it did not answer.
    pub refused: bool,
    /// Response of the forge, or the cause; holds no secret.
    pub detail: String,
    /// Whether its deliveries wait, because the service's own account on it is not known.
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

/// A configured account on a forge.
pub struct ForgeAccount {
    /// The adapter.
    pub forge: Arc<dyn Forge>,
    /// Numeric id of the account; its own actions are never handled as events.
    id: AtomicI64,
    /// Whether the operator configured the id, so that the forge is not asked for it.
    configured: bool,
    absence: Mutex<Option<ForgeAbsence>>,
}

impl ForgeAccount {
    /// Creates the account. `configured` is its id by the operator's file.
    pub fn new(forge: Arc<dyn Forge>, configured: Option<UserId>) -> Self {
        let id = AtomicI64::new(configured.map_or(UNKNOWN, |id| id.0));
        Self { forge, id, configured: configured.is_some(), absence: Mutex::new(None) }
    }

    /// Returns the id of the account; `None` if the forge never reported it.
    pub fn user_id(&self) -> Option<UserId> {
        Some(UserId(self.id.load(Ordering::SeqCst))).filter(|id| id.0 != UNKNOWN)
    }

    /// Returns the id of the account.
    ///
    /// # Errors
    /// `Transient` if the forge never reported it.
    pub fn own(&self) -> ForgeResult<UserId> {
        let kind = ForgeErrorKind::Transient { after_ms: None, ambiguous: false };
        let what = format!("know the service's own account on {}", self.forge.name());
        self.user_id().ok_or_else(|| ForgeError { kind, what, detail: "the forge has not answered yet".to_owned() })
    }

    /// Returns why the forge is not there; `None` if it is.
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

/// Returns the answer of a forge; one that takes too long counts as none.
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
    /// Asks all forges for the service's account at the start; uses what is stored of those that do not answer.
    pub async fn meet_forges(&self) -> Result<(), StoreError> {
        let all = self.forges.values().map(async |account| {
            self.restore_account(account).await?;
            self.meet(account).await.map(drop)
        });
        join_all(all).await.into_iter().collect()
    }

    /// Returns the forges that are not there, by name.
    pub fn absent_forges(&self) -> Vec<ForgeAbsence> {
        let mut absent: Vec<_> = self.forges.values().filter_map(ForgeAccount::absence).collect();
        absent.sort_by(|one, other| one.forge.as_str().cmp(other.forge.as_str()));
        absent
    }

    /// Returns the forges on which the service's account is not known.
    pub(super) fn unknown_forges(&self) -> Vec<ForgeName> {
        self.forges.values().filter(|of| of.user_id().is_none()).map(|of| of.forge.name().clone()).collect()
    }

    /// Asks the forges that are not there once more. Returns whether all are there.
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

    /// Asks absent forges again until all are there or the service stops.
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

    /// Uses the account and the author that the forge reported earlier.
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

    /// Asks a forge for the service's account and the author of its commits, and stores them. Returns whether it answered.
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
