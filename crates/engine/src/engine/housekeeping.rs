//! Removes old files, deliveries and memories, and work trees without loops.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use failpoint::kill_point;

use crate::domain::model::ids::{LoopId, Timestamp};
use crate::engine::context::ServiceContext;
use crate::engine::leases::Leases;
use crate::engine::logs;
use crate::engine::memory::summarize;
use crate::engine::prompt_memory::Recall;
use crate::engine::settings::LoopFolders;
use crate::store::{StoreError, inbox, installation, loops, memory, session as sessions, tokens};
use crate::workspace::{WorkspaceError, Workspaces};

/// Interval of the maintenance, in milliseconds.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Maximum number of batches per maintenance; the remaining ones follow at the next one.
const ROUNDS: usize = 1_000;
/// Maximum number of ended loops that are summarized per maintenance.
const LOOPS: usize = 100;

/// Removes files and rows whose time of retention is over.
pub(super) struct Housekeeping {
    pub(super) context: ServiceContext,
    pub(super) leases: Arc<Leases>,
    pub(super) workspaces: Arc<Workspaces>,
    pub(super) recall: Arc<Recall>,
    pub(super) folders: LoopFolders,
    /// Time of retention.
    pub(super) keep: Duration,
}

/// Work trees that existed at a time.
pub(super) struct StandingTrees {
    trees: Result<Vec<PathBuf>, WorkspaceError>,
    looked_at: Timestamp,
}

impl Housekeeping {
    /// Returns the work trees that exist now, for [`clean`](Self::clean), and the current time.
    pub(super) fn standing(&self) -> StandingTrees {
        StandingTrees { trees: self.workspaces.standing(), looked_at: self.context.clock.now() }
    }

    /// Removes the work trees of `standing` whose loops are not `live`, and rows whose time of retention is over; with
    /// `everything` also files of loops, and memories.
    pub(super) async fn clean(
        &self,
        standing: StandingTrees,
        live: HashSet<LoopId>,
        everything: bool,
    ) -> Result<(), StoreError> {
        self.clean_host(standing, live, everything).await;
        if self.leases.watch.lock().await.is_doubtful() {
            return Ok(());
        }
        if everything {
            self.maintain_memory().await?;
        }
        let before = self.retained_since();
        self.context
            .store
            .write(move |c| {
                inbox::purge(c, before)?;
                kill_point("K35");
                tokens::purge(c, before)?;
                loops::purge_inputs(c, before)
            })
            .await
            .map(drop)
    }

    /// Removes the work trees of `standing` whose loops are not `live`; with `everything`, also removes files of loops after
    /// their retention period.
    async fn clean_host(&self, standing: StandingTrees, live: HashSet<LoopId>, everything: bool) {
        let StandingTrees { trees, looked_at } = standing;
        let reaped = async { self.workspaces.reap(trees?, &live).await };
        match reaped.await {
            Ok(report) => tracing::debug!(?report, "reaped"),
            Err(error) => tracing::warn!(%error, "could not remove old work trees"),
        }
        if everything && !self.leases.watch.lock().await.is_doubtful() {
            self.forget_folders(&self.folders.sessions, live.clone(), looked_at).await;
            self.forget_folders(&self.folders.images, live.clone(), looked_at).await;
            self.forget_folders(&self.folders.logs, live, self.retained_since()).await;
        }
    }

    /// Removes files of this host at intervals, for a process without reconciliation.
    pub(super) async fn clean_host_at(&self, interval: Duration) {
        while !self.context.stopping.is_cancelled() {
            let standing = self.standing();
            match self.context.store.read(|c| loops::open_ids(c, None)).await {
                Ok(open) => self.clean_host(standing, open.into_iter().collect(), true).await,
                Err(error) => tracing::warn!(%error, "could not remove old files of this host"),
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = self.context.stopping.cancelled() => {}
            }
        }
    }

    /// Returns the time since which files and rows are retained.
    fn retained_since(&self) -> Timestamp {
        let keep = i64::try_from(self.keep.as_millis()).unwrap_or(i64::MAX);
        self.context.clock.now().plus_ms(-keep)
    }

    pub(in crate::engine) async fn forget_folders(&self, of_loops: &Path, live: HashSet<LoopId>, before: Timestamp) {
        let folder = of_loops.to_owned();
        match tokio::task::spawn_blocking(move || logs::forget(&folder, &live, before)).await {
            Ok((removed, failures)) => tracing::debug!(?of_loops, removed, ?failures, "old folders were removed"),
            Err(error) => tracing::warn!(?of_loops, %error, "could not remove old folders"),
        }
    }

    /// Performs the daily maintenance: missing final summaries, retention of turns and events, decay of unused
    /// learnings, embeddings.
    pub(super) async fn maintain_memory(&self) -> Result<(), StoreError> {
        const LOOKED: &str = "memory_kept_at";
        let now = self.context.clock.now();
        let last = self
            .context
            .store
            .read(|c| installation::get(c, LOOKED))
            .await?
            .and_then(|text| text.parse().ok().map(Timestamp));
        if last.is_some_and(|last| (0..DAY_MS).contains(&now.since(last))) {
            return Ok(());
        }
        for id in self.context.store.read(|c| sessions::unsummarized(c, LOOPS)).await? {
            if let Some(current) = self.context.store.read(move |c| loops::get(c, &id)).await? {
                summarize(&self.context, &self.recall.settings, &current).await;
            }
        }
        let settings = &self.recall.settings;
        let kept_ms = i64::try_from(self.keep.as_millis()).unwrap_or(i64::MAX);
        let days = u32::try_from(kept_ms / DAY_MS).unwrap_or(u32::MAX);
        let retention = sessions::SessionRetention { days, max_raw_turns: settings.max_raw_turns };
        for _ in 0..ROUNDS {
            let removed = self.context.store.write(move |c| sessions::apply_retention(c, retention, now)).await?;
            tracing::debug!(?removed, "removed old turns and events");
            if !removed.more {
                break;
            }
        }
        self.context.store.write(move |c| memory::proposals::drop_old_remarks(c, now)).await?;
        for _ in 0..ROUNDS {
            let settings = settings.clone();
            if !settings.enabled || self.context.store.write(move |c| memory::decay(c, &settings, now)).await? == 0 {
                break;
            }
        }
        for _ in 0..ROUNDS {
            if self.recall.embed_learnings().await? == 0 {
                break;
            }
        }
        self.context.store.write(move |c| installation::set(c, LOOKED, &now.0.to_string())).await
    }
}
