//! Takes over the work of processes that have exited.

use std::time::Duration;

use failpoint::kill_point;

use crate::domain::lifecycle::effect::EffectQueue;
use crate::domain::providers::backends::BackendObservation;
use crate::engine::Engine;
use crate::engine::leases::LeaseOwner;
use crate::process;
use crate::store::{StoreError, leases, outbox};

/// Time between two attempts to recover while the database is full or busy.
const RETRY: Duration = Duration::from_secs(1);

impl Engine {
    /// Recovers after a stop: [`Engine::recover_once`], repeated while the database is full or busy, because the listener
    /// already accepts deliveries.
    ///
    /// # Errors
    /// If the database failed in another way.
    pub async fn recover(&self) -> Result<(), StoreError> {
        kill_point("K37b");
        loop {
            match self.recover_once().await {
                Err(error @ (StoreError::Full { .. } | StoreError::Busy)) => {
                    tracing::error!(%error, "could not prepare the database after the last stop; the service retries");
                    tokio::time::sleep(RETRY).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Ends the leases of processes that have exited, and the child processes that they left running.
    async fn recover_once(&self) -> Result<(), StoreError> {
        self.channels.forget_channels().await?;
        let fingerprints = self.calls.settings.fingerprints.clone();
        self.calls.observe(BackendObservation::Configured { fingerprints }).await;
        let now = self.clock.now();
        let here = self.leases.owner.clone();
        let own = here.name();
        let owners = self.store.read(move |c| leases::owners(c, now)).await?;
        for name in owners.into_iter().filter(|name| *name != own) {
            let gone = LeaseOwner::parse(&name).is_some_and(|o| o.is_gone(&here, process::is_alive));
            if gone {
                tracing::info!(owner = name, "a process ended; this process takes over its work");
                self.store.write(move |c| leases::end_all(c, &name)).await?;
                kill_point("K37");
            }
        }
        // End leftover processes now; their work may not be resumed for a long time.
        let mut lost = self.store.read(move |c| outbox::lost_work(c, now)).await?;
        lost.retain(|id| !self.leases.held.contains(&outbox::lease_name(id.as_str(), EffectQueue::Work.as_str())));
        let ended = lost.iter().map(async |id| {
            let left = process::end_survivors(&self.verification.programs.cookie_of(id), Duration::ZERO).await;
            if left > 0 {
                tracing::error!(loop_id = %id, left, "could not end the processes of a lost run");
            }
        });
        futures::future::join_all(ended).await;
        Ok(())
    }
}
