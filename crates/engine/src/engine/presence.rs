//! Unavailable forges: the service starts without them, queries them repeatedly, and uses them as soon as they
//! respond.
//!
//! The service does nothing on a forge before it knows its own account there, because it must ignore its own actions.
//! The account is stored, so only the first start has to wait for the forge.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;

use crate::domain::model::authorship::CommitAuthor;
use crate::domain::model::ids::{ForgeName, User};
use crate::engine::context::ServiceContext;
use crate::engine::forges::Forges;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::settings::Pace;
use crate::forge::{Forge, ForgeError, ForgeErrorKind, ForgeResult};
use crate::store::{StoreError, installation};
use crate::workspace::Workspaces;

/// Maximum wait for a response of the forge.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time between two queries to an unavailable forge, in milliseconds.
const LONGEST_WAIT_MS: i64 = 30_000;
/// Waits for the response of a forge; a timeout is an error.
async fn answer<T>(forge: &dyn Forge, asked: impl Future<Output = ForgeResult<T>>) -> ForgeResult<T> {
    match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(ForgeError {
            kind: ForgeErrorKind::Transient { after_ms: None, ambiguous: false },
            what: format!("reach {}", forge.name()),
            detail: format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
            cause: None,
        }),
    }
}

/// Queries the forges for the service's accounts, and retries forges that do not respond.
pub struct Presence {
    pub(super) context: ServiceContext,
    pub(super) forges: Arc<Forges>,
    pub(super) workspaces: Arc<Workspaces>,
    pub(super) pace: Pace,
}

impl Presence {
    /// Queries all forges for the service's account at the start. Uses the stored account for those that do not
    /// respond.
    pub async fn meet_forges(&self) -> Result<(), StoreError> {
        let all = self.forges.accounts.values().map(async |account| {
            self.restore_account(account).await?;
            self.meet(account).await.map(drop)
        });
        join_all(all).await.into_iter().collect()
    }

    /// Queries the unavailable forges again. Returns `true` if all forges are available.
    pub async fn meet_absent_forges(&self) -> Result<bool, StoreError> {
        let absent = self.forges.accounts.values().filter(|account| account.absence().is_some());
        let met = join_all(absent.map(|account| self.meet(account))).await;
        let mut all = true;
        for there in met {
            let there = there?;
            all &= there;
            if there {
                self.context.wake.intake.notify_one();
                self.context.wake.reconcile.notify_one();
                self.context.wake.effects_queued();
            }
        }
        Ok(all)
    }

    /// Queries unavailable forges repeatedly until all are available or the service stops.
    pub(super) async fn await_forges(self: Arc<Self>) {
        for attempt in 1.. {
            if self.forges.absent_forges().is_empty() {
                return;
            }
            let wait_ms = self.pace.backoff_ms(attempt).min(LONGEST_WAIT_MS);
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or_default());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.context.stopping.cancelled() => return,
            }
            if let Err(error) = self.meet_absent_forges().await {
                tracing::warn!(%error, "could not store the account that a forge reported; the service asks again");
            }
        }
    }

    /// Uses the stored account and commit author that the forge reported earlier.
    async fn restore_account(&self, account: &ForgeAccount) -> Result<(), StoreError> {
        let name = account.forge.name();
        let (own, author) = (own_key(name), author_key(name));
        let known =
            self.context.store.read(move |c| Ok((installation::get(c, &own)?, installation::get(c, &author)?))).await?;
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
            self.context.store.write(move |c| installation::set(c, &key, &id)).await?;
        }
        match &author {
            Ok(Some(author)) => {
                let (key, text) = (author_key(name), format!("{}\n{}", author.name, author.email));
                self.context.store.write(move |c| installation::set(c, &key, &text)).await?;
                self.workspaces.set_author(name, author.clone());
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(forge = %name, %error, "the bot's address is unknown; the service uses the last known address")
            }
        }
        let before = account.absence();
        account.note(failure);
        self.context.metrics.forge_there(name.as_str(), failure.is_none());
        match account.absence() {
            None if before.is_some() => {
                tracing::info!(forge = %name, "the forge answers again; its loops continue")
            }
            Some(absence) if before.as_ref() == Some(&absence) => {}
            Some(absence) if absence.refused => tracing::error!("{absence}"),
            Some(absence) => tracing::warn!("{absence}"),
            None => {}
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
