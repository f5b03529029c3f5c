//! Event loop of the service: turns deliveries into steps of loops, and effects into events.
//!
//! Each service has its own settings and the services that it needs; `composition` gives them out. `intake` reads
//! deliveries and checks permissions; `executor` steps loops inside the store's write transaction and records the
//! outcomes of effects; `forge_effects`, `work` and `channel_effects` execute the effects; `timer` and `reconcile` create
//! inputs from due times and from the state of the world. Each service has a `…_step` function that processes one item
//! and returns whether there was one; tests and the simulation call these. `supervisor` runs them as tasks.

mod changes;
mod channel_effects;
mod claim;
mod comments;
mod commit_status;
mod composition;
mod concurrency_limits;
mod context;
mod executor;
mod file_links;
mod forge_effects;
mod forge_queue;
mod forges;
mod git_access;
mod housekeeping;
mod inspect;
mod intake;
mod leases;
mod logs;
mod look_schedule;
mod memory;
mod merges;
mod missing_hosts;
mod polling;
mod presence;
mod programs;
mod prompt_memory;
mod providers;
mod receipt;
mod reconcile;
mod recover;
mod redelivery;
mod remarks;
mod respondent;
mod settings;
mod spans;
mod supervisor;
mod timer;
mod trial;
mod work;

use std::sync::Arc;

pub use changes::LoopPatch;
pub use channel_effects::Channels;
pub use composition::{EngineParts, SharedParts, WorkParts};
pub use context::{ServiceContext, Wake};
pub use executor::Executor;
pub use forge_effects::{ForgeEffects, label_specs};
pub use forges::Forges;
pub use forges::account::{ForgeAbsence, ForgeAccount};
pub use forges::rights::RightUnknown;
pub use git_access::ForgeGit;
pub use intake::{CommandPath, DashboardAnswer, DashboardAuthor, DashboardCommandError, DashboardOutcome, Intake};
pub use leases::{LeaseOwner, Leases};
pub use look_schedule::QUIET_AT_ONCE;
pub use presence::Presence;
pub use programs::Programs;
pub use prompt_memory::{PromptMemory, Recall};
pub use providers::Calls;
pub use reconcile::Reconciler;
pub use respondent::Respondent;
pub use settings::{
    CallSettings, ChannelRetrySettings, ForgeSettings, LoopFolders, Pace, ProgramSettings, QuestionSettings,
    RoundSettings, ServiceSandbox,
};
pub use supervisor::{Duty, OnceEnd, Role, run};
pub use work::{Runs, Verification, Work};

use crate::clock::Clock;
use crate::domain::trust::outbound::OutboundFilter;
use crate::store::Store;

/// Services of one process. The dashboard and the command line also use its database, clock and filter.
pub struct Engine {
    /// Connection to the database.
    pub store: Store,
    /// Source of the current time.
    pub clock: Clock,
    /// Filter that every text passes before it leaves the service.
    pub outbound: OutboundFilter,
    /// Handles that all services share.
    pub context: ServiceContext,
    /// Leases of this process.
    pub leases: Arc<Leases>,
    /// Steps of loops, and outcomes of effects.
    pub executor: Arc<Executor>,
    /// Notices to channels.
    pub channels: Arc<Channels>,
    /// Accounts on forges, and rights there.
    pub forges: Arc<Forges>,
    /// Forges that do not answer.
    pub presence: Arc<Presence>,
    /// Repositories by git.
    pub git: ForgeGit,
    /// Effects on forges.
    pub forge_effects: Arc<ForgeEffects>,
    /// Model calls.
    pub calls: Arc<Calls>,
    /// Memory for prompts.
    pub recall: Arc<Recall>,
    /// Deliveries and commands.
    pub intake: Arc<Intake>,
    /// Work trees, checks and hooks.
    pub verification: Arc<Verification>,
    /// Runs of agents.
    pub runs: Arc<Runs>,
    /// Work effects.
    pub work: Arc<Work>,
    /// Reconciliation.
    pub reconciler: Arc<Reconciler>,
}
