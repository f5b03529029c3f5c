//! Host that executes work: a data folder, whose processes share a row in the list of hosts.

use crate::domain::model::ids::LoopId;

/// Host as its processes describe it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    /// Random id, which is kept in the data folder.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Version of the service.
    pub version: String,
    /// Maximum number of concurrent loops.
    pub slots: u32,
    /// Labels that repositories can require.
    pub labels: Vec<String>,
}

/// Whether a host with these labels has all needed ones.
pub fn has_labels(labels: &[String], needed: &[String]) -> bool {
    needed.iter().all(|label| labels.contains(label))
}

impl Host {
    /// Returns the part of the names of this host's lease owners before the host name: `id@`.
    pub fn owner_prefix(&self) -> String {
        format!("{}@", self.id)
    }
}

/// Time without a heartbeat after which a host counts as lost, in milliseconds.
const LIVE_MS: i64 = 60_000;

/// Loop whose work waits because no host that accepts work has its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopWithoutHost {
    /// Id of the loop.
    pub id: LoopId,
    /// All labels that its work needs.
    pub labels: Vec<String>,
    /// Time since the work became due, in milliseconds.
    pub waiting_ms: i64,
}

impl LoopWithoutHost {
    /// Returns a line for people.
    pub fn line(&self) -> String {
        format!("loop {}: no host has the labels {}", self.id, self.labels.join(" "))
    }
}

/// Host in the list of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedHost {
    /// Description.
    pub host: Host,
    /// Time since its last heartbeat, in milliseconds, by the database's clock; `None` if it was stopped.
    pub silent_ms: Option<i64>,
    /// Whether it finishes its work and accepts no more.
    pub is_draining: bool,
    /// Number of work effects that it executes.
    pub running: u64,
}

impl ListedHost {
    /// Whether it starts work of other hosts' loops: it is alive, and does not drain.
    pub fn takes_work(&self) -> bool {
        !self.is_draining && self.silent_ms.is_some_and(|silent| silent < LIVE_MS)
    }

    /// Returns a line for people.
    pub fn line(&self) -> String {
        let Host { name, version, slots, labels, .. } = &self.host;
        let state = if self.is_draining { ", draining" } else { "" };
        let labels = if labels.is_empty() { String::new() } else { format!(", labels {}", labels.join(" ")) };
        let seen = self.silent_ms.map_or("stopped".to_owned(), |silent| format!("seen {} s ago", silent / 1000));
        format!("host {name}: {seen}, {} of {slots} slots, version {version}{labels}{state}", self.running)
    }
}
