//! Composition of the services: gives each of them the values and services that it needs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::agent::Backend;
use crate::channels::Channel;
use crate::checks::CheckRunner;
use crate::clock::ClockWatch;
use crate::config::HookProgram;
use crate::domain::knowledge::memory::MemorySettings;
use crate::domain::model::host::Host;
use crate::domain::model::ids::ForgeName;
use crate::domain::report::dashboard_links::DashboardPages;
use crate::domain::report::notice::Audience;
use crate::domain::trust::images::ImageSettings;
use crate::domain::trust::limits::Limits;
use crate::domain::trust::outbound::OutboundFilter;
use crate::embed::StaticModel;
use crate::engine::Engine;
use crate::engine::channel_effects::Channels;
use crate::engine::claim::HeldLeases;
use crate::engine::comments::Comments;
use crate::engine::concurrency_limits::{ConcurrencyLimits, ForgeCallLimits, INTAKE};
use crate::engine::context::ServiceContext;
use crate::engine::executor::Executor;
use crate::engine::forge_effects::ForgeEffects;
use crate::engine::forges::Forges;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::forges::repository_access::ConfirmedRepositories;
use crate::engine::git_access::ForgeGit;
use crate::engine::housekeeping::Housekeeping;
use crate::engine::intake::Intake;
use crate::engine::leases::{LeaseOwner, Leases};
use crate::engine::look_schedule::LookSchedule;
use crate::engine::presence::Presence;
use crate::engine::programs::Programs;
use crate::engine::prompt_memory::Recall;
use crate::engine::providers::Calls;
use crate::engine::reconcile::{Reconciler, Rounds};
use crate::engine::respondent::Respondent;
use crate::engine::settings::{
    CallSettings, ChannelRetrySettings, ForgeSettings, LoopFolders, Pace, QuestionSettings, RoundSettings,
};
use crate::engine::work::assist::Assistants;
use crate::engine::work::handover::Handover;
use crate::engine::work::images::Images;
use crate::engine::work::program_question::ProgramRuns;
use crate::engine::work::prompt_inputs::Prompts;
use crate::engine::work::second_opinion::Opinions;
use crate::engine::work::{Branches, Runs, Verification, Work};
use crate::render::{MarkerKey, Renderer};
use crate::store::loops::Slots;
use crate::store::memory::StepMemory;
use crate::workspace::Workspaces;

/// Adapters and resolved sections of the configuration that the engine is composed of.
pub struct EngineParts {
    /// Parts of the services that other services use.
    pub shared: SharedParts,
    /// Parts of the services of work effects.
    pub work: WorkParts,
    /// Notification channels.
    pub channels: Vec<Channel>,
    /// Retry settings for messages to channels.
    pub channel_retry: ChannelRetrySettings,
    /// Intervals of the reconciliation.
    pub rounds: RoundSettings,
    /// Time for which logs and the session memory are kept after a loop's end, and processed deliveries after their receipt.
    pub keep: Duration,
}

/// Parts of the services that other services use.
pub struct SharedParts {
    /// Database, clock, metrics, traces and signals.
    pub context: ServiceContext,
    /// Accounts on forges by configured name.
    pub accounts: HashMap<ForgeName, ForgeAccount>,
    /// Watched repositories and the operator's policies.
    pub forges: ForgeSettings,
    /// Git mirrors and work trees.
    pub workspaces: Workspaces,
    /// Whether fetches omit blobs if the forge supports it.
    pub partial_clone: bool,
    /// Agent backends by configured name.
    pub backends: HashMap<String, Arc<dyn Backend>>,
    /// Backends, their models and spending limits.
    pub calls: CallSettings,
    /// Settings of memory.
    pub memory: MemorySettings,
    /// Embedding model for looking up learnings, in addition to full-text search.
    pub embedder: Option<Arc<StaticModel>>,
    /// Key from which the tokens of session memory servers are derived.
    pub mcp_key: String,
    /// Runner of checks.
    pub checks: CheckRunner,
    /// Name of this installation; sandbox, network and folders of programs.
    pub programs: Programs,
    /// Hooks of the operator.
    pub hooks: Vec<HookProgram>,
    /// Renderer of templates.
    pub renderer: Renderer,
    /// Filter that every text passes before it leaves the service.
    pub outbound: OutboundFilter,
    /// Key that signs the markers in the bot's comments.
    pub marker_key: MarkerKey,
    /// Pages of the dashboard that comments link to; `None` if only this machine can reach the dashboard.
    pub dashboard: Option<DashboardPages>,
    /// Identity of this process as an owner of leases.
    pub owner: LeaseOwner,
    /// Host of this process.
    pub host: Host,
    /// Maximum number of work effects that this process executes at the same time.
    pub workers: usize,
    /// Durations of leases, waits and retries.
    pub pace: Pace,
}

/// Parts of the services of work effects.
pub struct WorkParts {
    /// Backends that answer questions of the service, by configured name.
    pub assistants: HashMap<String, Respondent>,
    /// Backends that give second opinions, by configured name.
    pub reviewers: HashMap<String, Respondent>,
    /// Settings of questions to assistants.
    pub questions: QuestionSettings,
    /// Settings of images in issues and comments.
    pub images: ImageSettings,
    /// Folders with one subfolder per loop.
    pub folders: LoopFolders,
}

/// Services that other services use.
struct Foundation {
    context: ServiceContext,
    leases: Arc<Leases>,
    executor: Arc<Executor>,
    forges: Arc<Forges>,
    git: ForgeGit,
    comments: Arc<Comments>,
    calls: Arc<Calls>,
    recall: Arc<Recall>,
    intake: Arc<Intake>,
    verification: Arc<Verification>,
    renderer: Arc<Renderer>,
}

impl Foundation {
    fn new(parts: SharedParts, audiences: Vec<Audience>) -> Self {
        let SharedParts { context, outbound, pace, .. } = parts;
        let workspaces = Arc::new(parts.workspaces);
        let renderer = Arc::new(parts.renderer);
        let leases = Arc::new(Leases {
            context: context.clone(),
            owner: parts.owner,
            workers: parts.workers,
            host: parts.host,
            held: HeldLeases::new(pace.lease),
            pace,
            watch: tokio::sync::Mutex::new(ClockWatch::new(context.clock.clone())),
        });
        let forges = Arc::new(Forges {
            context: context.clone(),
            accounts: parts.accounts,
            settings: parts.forges,
            confirmed: ConfirmedRepositories::default(),
        });
        let mut backends: Vec<String> = parts.backends.keys().cloned().collect();
        backends.sort_unstable();
        Self {
            executor: Arc::new(Executor {
                context: context.clone(),
                leases: leases.clone(),
                audiences,
                memory: StepMemory { settings: parts.memory.clone(), masker: parts.checks.masker.clone() },
                slots: slots(&forges.settings),
            }),
            git: ForgeGit {
                workspaces: workspaces.clone(),
                outbound: outbound.clone(),
                partial_clone: parts.partial_clone,
            },
            comments: Arc::new(Comments {
                context: context.clone(),
                renderer: renderer.clone(),
                marker_key: parts.marker_key,
                dashboard: parts.dashboard,
                started_at: context.clock.now(),
                default_backend: parts.calls.default_backend.clone(),
            }),
            calls: Arc::new(Calls {
                context: context.clone(),
                settings: parts.calls,
                backends: parts.backends,
                outbound: outbound.clone(),
            }),
            intake: Arc::new(Intake {
                context: context.clone(),
                forges: forges.clone(),
                pace,
                limits: ConcurrencyLimits::of_calls(INTAKE),
                backends,
                learns: parts.memory.learns(),
            }),
            recall: Arc::new(Recall {
                context: context.clone(),
                settings: parts.memory,
                embedder: parts.embedder,
                outbound,
                mcp_key: parts.mcp_key,
            }),
            verification: Arc::new(Verification {
                context: context.clone(),
                workspaces,
                checks: parts.checks,
                programs: Arc::new(parts.programs),
                hooks: parts.hooks,
            }),
            context,
            leases,
            forges,
            renderer,
        }
    }

    /// Composes the services of work effects.
    fn work(&self, parts: WorkParts) -> Work {
        let Self { context, forges, calls, verification, .. } = self;
        let program_runs =
            ProgramRuns { context: context.clone(), calls: calls.clone(), programs: verification.programs.clone() };
        let assistants = Assistants {
            context: context.clone(),
            calls: calls.clone(),
            program_runs: program_runs.clone(),
            respondents: parts.assistants,
            masker: verification.checks.masker.clone(),
            settings: parts.questions,
        };
        let prompts = Prompts {
            context: context.clone(),
            calls: calls.clone(),
            verification: verification.clone(),
            assistants,
            recall: self.recall.clone(),
            renderer: self.renderer.clone(),
        };
        let images = Images { forges: forges.clone(), settings: parts.images, folder: parts.folders.images.clone() };
        let runs = Arc::new(Runs {
            context: context.clone(),
            calls: calls.clone(),
            verification: verification.clone(),
            prompts,
            images,
            folders: parts.folders,
        });
        Work {
            executor: self.executor.clone(),
            forges: forges.clone(),
            verification: verification.clone(),
            branches: Branches {
                context: context.clone(),
                forges: forges.clone(),
                git: self.git.clone(),
                verification: verification.clone(),
                runs: runs.clone(),
                intake: self.intake.clone(),
            },
            runs,
            opinions: Opinions {
                context: context.clone(),
                calls: calls.clone(),
                verification: verification.clone(),
                program_runs,
                reviewers: parts.reviewers,
            },
            handover: Handover {
                context: context.clone(),
                git: self.git.clone(),
                workspaces: verification.workspaces.clone(),
                host: self.leases.host.id.clone(),
            },
        }
    }
}

impl Engine {
    /// Composes the services.
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts { channels, channel_retry, rounds, keep, .. } = parts;
        let audiences = channels.iter().map(|channel| channel.audience().clone()).collect();
        let foundation = Foundation::new(parts.shared, audiences);
        let work = foundation.work(parts.work);
        let Foundation {
            context, leases, executor, forges, git, comments, calls, recall, intake, verification, ..
        } = foundation;
        let workspaces = &verification.workspaces;
        let housekeeping = Housekeeping {
            context: context.clone(),
            leases: leases.clone(),
            workspaces: workspaces.clone(),
            recall: recall.clone(),
            folders: work.runs.folders.clone(),
            keep,
        };
        Self {
            store: context.store.clone(),
            clock: context.clock.clone(),
            outbound: git.outbound.clone(),
            channels: Arc::new(Channels {
                context: context.clone(),
                leases: leases.clone(),
                channels,
                retry: channel_retry,
                dashboard: comments.dashboard.clone(),
                instance: verification.programs.instance.clone(),
            }),
            presence: Arc::new(Presence {
                context: context.clone(),
                forges: forges.clone(),
                workspaces: workspaces.clone(),
                pace: leases.pace,
            }),
            forge_effects: Arc::new(ForgeEffects {
                context: context.clone(),
                forges: forges.clone(),
                comments: comments.clone(),
                git: git.clone(),
                executor: executor.clone(),
                limits: ForgeCallLimits::default(),
            }),
            reconciler: Arc::new(Reconciler {
                context: context.clone(),
                forges: forges.clone(),
                comments,
                intake: intake.clone(),
                housekeeping,
                rounds: Rounds { settings: rounds, looks: Mutex::new(LookSchedule::default()) },
            }),
            runs: work.runs.clone(),
            work: Arc::new(work),
            context,
            leases,
            executor,
            forges,
            git,
            calls,
            recall,
            intake,
            verification,
        }
    }
}

/// Returns the maximum numbers of concurrent loops: the lowest of all forges.
fn slots(settings: &ForgeSettings) -> Slots {
    let lowest = |of: fn(&Limits) -> u32| settings.policies.values().map(|p| of(&p.limits)).min().unwrap_or(1);
    Slots {
        all: lowest(|limits| limits.loops),
        per_forge: lowest(|limits| limits.loops_per_forge.unwrap_or(limits.loops)),
        per_repository: lowest(|limits| limits.loops_per_repository),
    }
}
