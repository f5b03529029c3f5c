//! Event loop of the service: turns deliveries into steps of loops, and effects into events.
//!
//! `intake` reads deliveries and checks permissions; the store steps loops inside its write transaction; `executor`
//! executes the effects that they return; `timer` and `reconcile` create inputs from due times and from the state of
//! the world. Each module has a `…_step` function that processes one item and returns whether there was one; tests
//! and the simulation call these. `supervisor` runs them as tasks.

mod changes;
mod channel_effects;
mod claim;
mod comments;
mod commit_status;
mod concurrency_limits;
mod executor;
mod file_links;
mod forge_effects;
mod git_access;
mod inspect;
mod intake;
mod logs;
mod look_schedule;
mod memory;
mod merges;
mod polling;
mod presence;
mod prompt_memory;
mod providers;
mod reconcile;
mod recover;
mod redelivery;
mod remarks;
mod repository_access;
mod settings;
mod spans;
mod supervisor;
mod timer;
mod trial;
mod viewer_rights;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use changes::LoopPatch;
pub use channel_effects::ChannelRetrySettings;
pub use claim::HeldLeases;
use concurrency_limits::ConcurrencyLimits;
pub use forge_effects::label_specs;
pub use intake::{CommandPath, DashboardAnswer, DashboardAuthor, DashboardCommandError, DashboardOutcome};
pub use look_schedule::{LookSchedule, QUIET_AT_ONCE};
pub use presence::{ForgeAbsence, ForgeAccount};
pub use prompt_memory::PromptMemory;
pub use repository_access::ConfirmedRepositories;
pub use settings::{EngineSettings, RepositoryPattern};
pub use supervisor::{Role, run};
pub use viewer_rights::RightUnknown;

use crate::agent::Backend;
use crate::channels::Channel;
use crate::checks::CheckRunner;
use crate::clock::{Clock, ClockWatch};
use crate::domain::model::ids::{ForgeName, Timestamp};
use crate::domain::trust::outbound::OutboundFilter;
use crate::provider::assistant::Assistant;
use crate::render::{MarkerKey, Renderer};
use crate::store::Store;
use crate::telemetry::{Metrics, Tracer};
use crate::workspace::Workspaces;

/// Wakes the tasks of this process when work is available; other processes poll.
#[derive(Debug, Default)]
pub struct Wake {
    /// Deliveries are due.
    pub intake: Notify,
    /// An input of a loop is pending, or a slot for a running loop may be free.
    pub step: Notify,
    /// A timer was set.
    pub timer: Notify,
    /// Effects on a forge are pending.
    pub forge: Notify,
    /// Acknowledgements of comments are pending.
    pub seen: Notify,
    /// Messages for notification channels are pending.
    pub notify: Notify,
    /// Work effects are pending or were canceled.
    pub work: Notify,
    /// A round of reconciliation was requested.
    pub reconcile: Notify,
}

impl Wake {
    /// Signals that effects on a forge were queued.
    pub fn effects_queued(&self) {
        self.seen.notify_one();
        self.forge.notify_one();
    }

    /// Signals that a loop has taken a step, so that effects, messages and work may be pending.
    pub fn loop_stepped(&self) {
        self.effects_queued();
        self.notify.notify_waiters();
        self.work.notify_one();
        self.step.notify_one();
    }
}

/// Limits on concurrent calls to forges, by purpose.
#[derive(Debug)]
pub struct ForgeCallLimits {
    /// Calls that process deliveries.
    intake: ConcurrencyLimits,
    /// Calls that acknowledge comments.
    seen: ConcurrencyLimits,
    /// Calls of all other effects on a forge.
    forge: ConcurrencyLimits,
}

impl Default for ForgeCallLimits {
    fn default() -> Self {
        let [intake, seen, forge] = [supervisor::INTAKE, supervisor::SEERS, supervisor::FORGE_CALLERS]
            .map(|most| ConcurrencyLimits::new(most, most.div_ceil(2)));
        Self { intake, seen, forge }
    }
}

/// Backend that answers questions or gives second opinions.
pub enum Respondent {
    /// Program that runs without write access.
    Agent(Arc<dyn Backend>),
    /// Model over HTTP.
    Assistant(Arc<dyn Assistant>),
}

/// State and adapters that the tasks of the service share.
pub struct Engine {
    /// Database.
    pub store: Store,
    /// Clock.
    pub clock: Clock,
    /// Forge accounts by configured name.
    pub forges: HashMap<ForgeName, ForgeAccount>,
    /// Notification channels such as Slack or PagerDuty.
    pub channels: Vec<Channel>,
    /// Git mirrors and work trees.
    pub workspaces: Workspaces,
    /// Agent backends by configured name.
    pub backends: HashMap<String, Arc<dyn Backend>>,
    /// Backends that answer questions of the service, by configured name.
    pub assistants: HashMap<String, Respondent>,
    /// Backends that give second opinions, by configured name.
    pub reviewers: HashMap<String, Respondent>,
    /// Runner of checks.
    pub checks: CheckRunner,
    /// Renderer of templates.
    pub renderer: Renderer,
    /// Filter that every text passes before it leaves the service.
    pub outbound: OutboundFilter,
    /// Key from which the tokens of session memory servers are derived.
    pub mcp_key: String,
    /// Key that signs the markers in the bot's comments.
    pub marker_key: MarkerKey,
    /// Engine settings.
    pub settings: EngineSettings,
    /// Start of this process.
    pub started_at: Timestamp,
    /// Identity of this process as an owner of leases.
    pub owner: LeaseOwner,
    /// Leases of the effects on which this process works.
    pub held: HeldLeases,
    /// Random name of this installation. It is set in the environment of every process that the installation starts.
    pub instance: String,
    /// Wake-up signals between the tasks of this process.
    pub wake: Wake,
    /// Limits on concurrent calls to forges.
    pub call_limits: ForgeCallLimits,
    /// Times at which watched repositories are polled or reconciled next.
    pub looks: std::sync::Mutex<LookSchedule>,
    /// Repositories whose current names were confirmed by the forge recently.
    pub repository_access: ConfirmedRepositories,
    /// Detects changes of the system clock.
    pub watch: tokio::sync::Mutex<ClockWatch>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Traces.
    pub tracer: Tracer,
    /// Cancelled when the service stops; no new work is started.
    pub stopping: CancellationToken,
}

/// Identity of a process that owns leases. Processes on the same host and boot can be checked for being alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseOwner {
    /// Host name.
    pub host: String,
    /// Boot id of the host.
    pub boot: String,
    /// Process id.
    pub pid: u32,
    /// Random value that distinguishes processes with the same id.
    pub nonce: String,
}

impl LeaseOwner {
    /// Returns the name of the owner, `host/boot/pid/nonce`.
    pub fn name(&self) -> String {
        format!("{}/{}/{}/{}", self.host, self.boot, self.pid, self.nonce)
    }

    /// Parses `host/boot/pid/nonce`; `None` if it is malformed.
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.splitn(4, '/');
        let (host, boot, pid, nonce) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Self { host: host.into(), boot: boot.into(), pid: pid.parse().ok()?, nonce: nonce.into() })
    }

    /// Whether the owner is known to have ended: it belongs to an earlier boot of the host `here`, or its process on
    /// this host has exited. `alive` returns `true` if a process id belongs to a running process of this installation.
    pub fn is_gone(&self, here: &LeaseOwner, alive: impl Fn(u32) -> bool) -> bool {
        self.host == here.host
            && (self.boot != here.boot
                || (self.pid != here.pid && !alive(self.pid))
                || (self.pid == here.pid && self.nonce != here.nonce))
    }
}
