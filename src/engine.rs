//! Turns deliveries into steps, and effects into events.
//!
//! `intake` reads deliveries and asks who may; the store steps loops inside its write transaction; `executor` does what
//! they decided; `timer` and `reconcile` make events of time and of what the world looks like. Each has a `…_step` that
//! does one piece and says whether there was any, which is what tests and the simulation call; `supervisor` runs them.

mod assist;
mod comments;
mod executor;
mod hands;
mod intake;
mod logs;
mod memory;
mod notify;
mod providers;
mod recall;
mod reconcile;
mod settings;
mod supervisor;
mod talk;
mod timer;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use hands::Hands;
pub use notify::NotifySettings;
pub use recall::Recalled;
pub use settings::{EngineSettings, RepositoryPattern};
pub use supervisor::{Role, run};

use crate::agent::Backend;
use crate::checks::CheckRunner;
use crate::clock::{Clock, ClockWatch};
use crate::domain::model::ids::{ForgeName, UserId};
use crate::escalate::Channel;
use crate::forge::Forge;
use crate::provider::assistant::Assistant;
use crate::render::{MarkerKey, Renderer};
use crate::store::Store;
use crate::telemetry::Metrics;
use crate::workspace::Workspaces;

/// Tells loops in this process that there is something to do; other processes find out by polling.
#[derive(Debug, Default)]
pub struct Wake {
    /// Deliveries wait.
    pub intake: Notify,
    /// Inputs wait, or slots may be free.
    pub step: Notify,
    /// A timer was set.
    pub timer: Notify,
    /// Effects for the forge wait.
    pub talk: Notify,
    /// Comments wait to be told that they were seen.
    pub seen: Notify,
    /// Messages for channels wait.
    pub notify: Notify,
    /// Work waits, or should be stopped.
    pub work: Notify,
    /// The world should be looked at.
    pub reconcile: Notify,
}

impl Wake {
    /// Something is to be said to a forge.
    pub fn said(&self) {
        self.seen.notify_one();
        self.talk.notify_one();
    }

    /// After a step: whatever it decided may be waiting.
    pub fn decided(&self) {
        self.said();
        self.notify.notify_waiters();
        self.work.notify_one();
        self.step.notify_one();
    }
}

/// Calls to forges under way, by what they are for.
#[derive(Debug)]
pub struct Shares {
    /// Handling deliveries.
    intake: Hands,
    /// Saying that a comment was seen.
    seen: Hands,
    /// All else that is said.
    talk: Hands,
}

impl Default for Shares {
    fn default() -> Self {
        let [intake, seen, talk] =
            [supervisor::INTAKE, supervisor::SEERS, supervisor::TALKERS].map(|most| Hands::new(most, most.div_ceil(2)));
        Self { intake, seen, talk }
    }
}

/// A forge and our account there.
pub struct ForgeSeat {
    /// The adapter.
    pub forge: Arc<dyn Forge>,
    /// Our own numeric id: what it does is never an event.
    pub own: UserId,
}

/// Everything that the loops of the service share.
pub struct Engine {
    /// Durable state.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// Servers by configured name.
    pub forges: HashMap<ForgeName, ForgeSeat>,
    /// Channels outside of the forges.
    pub channels: Vec<Channel>,
    /// Git.
    pub workspaces: Workspaces,
    /// Agents by configured name.
    pub backends: HashMap<String, Arc<dyn Backend>>,
    /// What answers questions, by configured name.
    pub assistants: HashMap<String, Arc<dyn Assistant>>,
    /// Checks.
    pub checks: CheckRunner,
    /// Texts.
    pub renderer: Renderer,
    /// What the tokens of the session memory's servers are made with.
    pub mcp_key: String,
    /// What the markers in our texts are signed with.
    pub marker_key: MarkerKey,
    /// Settings.
    pub settings: EngineSettings,
    /// This process in leases.
    pub owner: Owner,
    /// Random name of this installation: in the environment of every process that it starts.
    pub instance: String,
    /// Wakers.
    pub wake: Wake,
    /// Calls to forges under way.
    pub hands: Shares,
    /// Notices when the clock is set anew.
    pub watch: tokio::sync::Mutex<ClockWatch>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Set when the service stops: no new work.
    pub stopping: CancellationToken,
}

/// A process in leases. Where host and boot are the same, its life can be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Name of the machine.
    pub host: String,
    /// Which start of the machine.
    pub boot: String,
    /// Process id.
    pub pid: u32,
    /// Tells two processes of the same id apart.
    pub nonce: String,
}

impl Owner {
    /// `host/boot/pid/nonce`.
    pub fn name(&self) -> String {
        format!("{}/{}/{}/{}", self.host, self.boot, self.pid, self.nonce)
    }

    /// Reads a name back.
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.splitn(4, '/');
        let (host, boot, pid, nonce) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Self { host: host.into(), boot: boot.into(), pid: pid.parse().ok()?, nonce: nonce.into() })
    }

    /// Whether the owner is known to be gone: an earlier start of this machine, or a process of it that has ended.
    /// `alive` says whether a process of this machine runs and is one of ours.
    pub fn is_gone(&self, here: &Owner, alive: impl Fn(u32) -> bool) -> bool {
        self.host == here.host
            && (self.boot != here.boot
                || (self.pid != here.pid && !alive(self.pid))
                || (self.pid == here.pid && self.nonce != here.nonce))
    }
}
