//! Composition root: builds the adapters; starts and stops the service in order.

mod backends;
mod dashboard;
pub mod database;
pub mod host;
mod sandbox;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use failpoint::kill_point;
use ralph_types::failure::Failure;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::channels::{Channel, ChannelSettings, MailSettings};
use crate::checks::CheckRunner;
use crate::clock::Clock;
use crate::config::{ChannelConfig, Config, Env, ForgeAuth, ForgeConfig, ForgeKind, MailConfig};
use crate::domain::model::host::Host;
use crate::domain::model::ids::{AccountKind, ForgeName, User};
use crate::domain::providers::backends::BackendRole;
use crate::domain::trust::outbound::{Masker, OutboundFilter};
use crate::embed::StaticModel;
use crate::engine::{
    self, CallSettings, ChannelRetrySettings, Duty, Engine, EngineParts, ForgeAccount, ForgeSettings, LeaseOwner,
    LoopFolders, OnceEnd, Pace, ProgramSettings, Programs, QuestionSettings, Role, RoundSettings, ServiceSandbox,
    SharedParts, Wake, WorkParts,
};
use crate::forge::Forge;
use crate::forge::gitea::{Gitea, GiteaSettings};
use crate::forge::github::{GitHub, GitHubAuth, GitHubSettings};
use crate::forge::http::RateSettings;
use crate::forge::signature::SignatureStyle;
use crate::http::{self, Hook, HttpState};
use crate::net::serve::{ConnectionLimits, serve};
use crate::process::sandbox::{EtcCopies, Network, tool_environment};
use crate::process::{SandboxProbe, SandboxTier, free_space, private};
use crate::render::{MarkerKey, Renderer};
use crate::store::{Store, installation};
use crate::telemetry::{Metrics, Tracer};
use crate::web;
use crate::workspace::{WorkspaceSettings, Workspaces};
use backends::Built;
use sandbox::{egress, programs};

pub use backends::{api, backend, hidden_arguments};
pub use dashboard::{Dashboard, address_after_setup};
pub use sandbox::{check_visible, probe_settings, shown_folders};

/// Duration of a lease on a work effect.
const LEASE: Duration = Duration::from_secs(30);
/// Number of work trees of finished loops kept for reuse, per repository: the loops of a repository usually run one at a time.
const WORK_TREE_POOL: usize = 2;
/// Wait before the result of a call that timed out is looked up, in intervals of polling: 10 seconds by default, because lists of
/// forges lag behind, and because the kernel may send a lost request for 5 seconds.
const AMBIGUITY_WAIT_POLLS: u32 = 20;
/// Wait after the first failed call, in intervals of polling: 2 seconds by default.
const RETRY_FIRST_POLLS: u32 = 4;

/// Start options in addition to the configuration.
#[derive(Clone)]
pub struct Options {
    /// Role of this process.
    pub role: Role,
    /// Whether the process ends after one work effect and the rest of its iteration. Only for the role `Runner`.
    pub once: bool,
    /// Source of the current time.
    pub clock: Clock,
    /// Rates and retries of calls to forges.
    pub rates: RateSettings,
    /// Additional forges created by the caller, such as the local one.
    pub extra_forges: Vec<Arc<dyn Forge>>,
    /// Result of the sandbox probe; `None` to run the probe.
    pub sandbox: Option<SandboxProbe>,
    /// Whether to listen for webhooks. Without forges there are no webhooks.
    pub listen: bool,
    /// Whether the bot's own account may start loops by the label, as in a trial with a scripted agent.
    pub is_trial: bool,
    /// Path of this program for agents; `None` if unknown.
    pub program: Option<PathBuf>,
    /// Durations of leases, waits and retries.
    pub pace: Pace,
    /// Intervals of the reconciliation.
    pub rounds: RoundSettings,
    /// Retry settings for messages to channels.
    pub channel_retry: ChannelRetrySettings,
    /// Whether fetches omit blobs if the forge supports it.
    pub partial_clone: bool,
}

impl Options {
    /// Returns the configured options of a process that has all roles.
    pub fn of(config: &Config) -> Self {
        let poll = Duration::from_millis(u64::from(config.engine.poll_ms));
        Self {
            role: Role::All,
            once: false,
            clock: Clock::System,
            rates: rates(config),
            extra_forges: Vec::new(),
            sandbox: None,
            listen: true,
            is_trial: false,
            program: std::env::current_exe().ok(),
            pace: Pace {
                lease: LEASE,
                poll,
                ambiguity_wait: poll * AMBIGUITY_WAIT_POLLS,
                retry_first: poll * RETRY_FIRST_POLLS,
                retry_most: Duration::from_secs(300),
                stop_grace: Duration::from_secs(config.engine.stop_grace.as_seconds()),
            },
            rounds: RoundSettings {
                live: Duration::from_secs(60),
                idle: Duration::from_secs(15 * 60),
                missed_event_after_ms: 60_000,
            },
            channel_retry: ChannelRetrySettings::default(),
            partial_clone: true,
        }
    }
}

/// Returns the configured rates and retries of calls to forges.
pub fn rates(config: &Config) -> RateSettings {
    let mutation_interval_ms = config.engine.mutation_interval_ms.map(i64::from);
    RateSettings { mutation_interval_ms, ..RateSettings::default() }
}

/// Running service.
pub struct Application {
    /// Engine.
    pub engine: Arc<Engine>,
    /// Address at which webhooks are received; `None` if none are.
    pub address: Option<SocketAddr>,
    /// Dashboard; `None` if this process does not serve it.
    pub dashboard: Option<Dashboard>,
    loops: JoinHandle<Option<OnceEnd>>,
    listeners: Vec<JoinHandle<std::io::Result<()>>>,
    listener_shutdown: CancellationToken,
}

impl Application {
    /// Starts the service: opens the database, builds adapters, starts listening, then recovers after a crash.
    pub async fn start(config: &Config, env: &Env, options: Options) -> anyhow::Result<Self> {
        Self::run(build(config, env, &options).await?, config, &options).await
    }

    /// Starts the service with an engine from [`build`].
    pub async fn run(engine: Engine, config: &Config, options: &Options) -> anyhow::Result<Self> {
        let engine = Arc::new(engine);
        let listener_shutdown = CancellationToken::new();
        let (address, dashboard, mut served) = if options.role.ingests() && options.listen {
            let (address, dashboard, served) = listen(config, &engine).await?;
            (Some(address), dashboard, served)
        } else {
            (None, None, Vec::new())
        };
        if let Some(address) = config.server.metrics_listen.filter(|_| options.listen) {
            served.push((bind(address).await?, http::metrics_router(state(config, &engine))));
        }
        let limits = ConnectionLimits::of_this_process();
        let spawn = |(listener, router)| {
            let listener_shutdown = listener_shutdown.clone();
            #[expect(clippy::disallowed_methods, reason = "the root of all tasks")]
            tokio::spawn(serve(listener, router, limits, async move { listener_shutdown.cancelled().await }))
        };
        let listeners = served.into_iter().map(spawn).collect();
        // Deliveries are stored meanwhile; no sender waits for the recovery, even with a large database.
        let recovered = engine.recover().await.context("could not prepare the database after the last stop");
        recovered.inspect_err(|_| listener_shutdown.cancel())?;
        if engine.store.was_unclean() {
            check_integrity(&engine);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the root of all tasks; the engine's supervisor starts the others"
        )]
        let loops = tokio::spawn(engine::run(engine.clone(), Duty { role: options.role, once: options.once }));
        Ok(Self { engine, address, dashboard, loops, listeners, listener_shutdown })
    }

    /// Stops the service in order: deliveries, new work, agents (after their grace period), leases, database. Returns the
    /// end of a process that executes one work effect.
    pub async fn stop(self) -> Option<OnceEnd> {
        self.listener_shutdown.cancel();
        self.engine.context.stopping.cancel();
        kill_point("K36");
        for listener in self.listeners {
            if let Ok(Err(error)) = listener.await {
                tracing::warn!(%error, "a listener stopped with an error");
            }
        }
        let end = self.loops.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a task of the service failed");
            None
        });
        self.engine.context.tracer.stop().await;
        self.engine.store.close().await;
        end
    }

    /// Waits until the service stops because of a failure, or because its one work effect has ended.
    pub async fn stopped(&self) {
        self.engine.context.stopping.cancelled().await;
    }
}

/// Checks the database's integrity in the background if the last stop was unclean. Damage stops the service.
fn check_integrity(engine: &Arc<Engine>) {
    let engine = engine.clone();
    #[expect(clippy::disallowed_methods, reason = "one look beside the start, which must not wait for it")]
    tokio::spawn(async move {
        match engine.store.integrity().await {
            Ok(findings) if findings.is_empty() => tracing::info!("the database is sound after an unclean stop"),
            Ok(findings) => {
                tracing::error!(?findings, "the database is damaged; restore a backup (`ralph-bot backup` makes them)");
                engine.context.stopping.cancel();
            }
            Err(error) => tracing::error!(%error, "could not check the database's integrity"),
        }
    });
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| format!("cannot listen on {address}; is another instance running?"))
}

/// Listener with the routes that it serves.
type ServedListener = (TcpListener, axum::Router);

/// Listens for webhooks and for the dashboard, which may share an address.
async fn listen(
    config: &Config,
    engine: &Arc<Engine>,
) -> anyhow::Result<(SocketAddr, Option<Dashboard>, Vec<ServedListener>)> {
    let listener = bind(config.server.listen).await?;
    let address = listener.local_addr()?;
    let mut served = vec![(listener, deliveries(config, engine))];
    let mut dashboard = None;
    if config.dashboard.enabled {
        let (opened, own) = dashboard::open(config, engine, address).await?;
        let routes = web::router(opened.state.clone());
        match own {
            Some(listener) => served.push((listener, routes)),
            None => served[0].1 = std::mem::take(&mut served[0].1).merge(routes),
        }
        dashboard = Some(opened);
    }
    Ok((address, dashboard, served))
}

/// Returns the routes for deliveries, health and metrics.
pub fn deliveries(config: &Config, engine: &Arc<Engine>) -> axum::Router {
    http::router(state(config, engine))
}

/// Returns the state of the routes for deliveries, health and metrics.
fn state(config: &Config, engine: &Arc<Engine>) -> Arc<HttpState> {
    let hooks = config.forges.iter().filter(|forge| forge.updates.webhooks).map(hook);
    let nudged = engine.clone();
    let wake = Arc::new(move || nudged.context.wake.intake.notify_one());
    let mut edge = HttpState::new(
        engine.store.clone(),
        engine.clock.clone(),
        hooks.collect(),
        engine.context.metrics.clone(),
        wake,
    );
    let asked = engine.clone();
    edge.absent = Arc::new(move || asked.forges.absent_forges().iter().map(ToString::to_string).collect());
    let (measured, data) = (engine.clone(), config.data_dir.clone());
    edge.measure = Arc::new(move |metrics: &Metrics| {
        for account in measured.forges.accounts.values() {
            if let Some(meter) = account.forge.meter() {
                metrics.forge_requests(account.forge.name().as_str(), meter.requests(), meter.remaining());
            }
        }
        if let Some(free) = free_space(&data) {
            metrics.disk_free(free);
        }
    });
    Arc::new(edge)
}

/// Returns the webhook endpoint of a forge.
pub fn hook(forge: &ForgeConfig) -> Hook {
    let style = match forge.kind {
        ForgeKind::GitHub => SignatureStyle::GitHub,
        ForgeKind::Gitea => SignatureStyle::Gitea,
    };
    let of_repositories = forge.repository_secrets.iter().map(|of| (of.repo, of.secrets.clone())).collect();
    Hook { name: forge.name.clone(), style, secrets: forge.webhook_secrets.clone(), of_repositories }
}

/// Builds the engine with all adapters.
pub async fn build(config: &Config, env: &Env, options: &Options) -> anyhow::Result<Engine> {
    failpoint::arm(|variable| env.get(variable))?;
    // Another part of the process may have installed a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let data = std::path::absolute(&config.data_dir).context("cannot make the data folder's path absolute")?;
    make_lasting(&data).with_context(|| format!("cannot create the data folder {}", data.display()))?;
    // A sandbox shows no path with `..`.
    let data = data.canonicalize().with_context(|| format!("cannot use the data folder {}", data.display()))?;
    let (store, instance) = database::open(config).await?;
    let options = &Options { clock: database::clock(config, &store, &options.clock).await?, ..options.clone() };
    let host = host::of(config, &data)?;
    let mut all: Vec<Arc<dyn Forge>> = options.extra_forges.clone();
    for forge in &config.forges {
        all.push(connect(forge, options.rates, &options.clock)?);
    }
    let account = |forge: Arc<dyn Forge>| {
        let own = configured_id(config, forge.name());
        (forge.name().clone(), ForgeAccount::new(forge, own))
    };
    let accounts: HashMap<ForgeName, ForgeAccount> = all.into_iter().map(account).collect();
    let mut sandbox = sandbox::find(config, env, options).await?;
    let key = marker_key(&store).await?;
    let mcp_key = mcp_key(&store).await?;
    let built = backends::build(config, env, &options.clock, &key);
    let outbound = backends::outbound(
        config,
        &built.masker,
        [("the key of markers", &key), ("the key of session memory", &mcp_key)],
    );
    let workspaces = Workspaces::open(workspace_settings(config, &data, outbound.clone()), options.clock.clone())?;
    workspaces.git_version().await?;
    sandbox.settings.etc = Some(Arc::new(EtcCopies::new(workspaces.folder_of_process()?)));
    let metrics = Metrics::new();
    metrics.sandbox_tier(&SandboxTier::ALL.map(SandboxTier::word), sandbox.tier.word());
    let shared = SharedParts {
        context: engine::ServiceContext {
            store,
            clock: options.clock.clone(),
            wake: Arc::new(Wake::default()),
            metrics: Arc::new(metrics),
            tracer: tracer(config)?,
            stopping: CancellationToken::new(),
        },
        forges: forge_settings(config, accounts.keys(), options.is_trial),
        accounts,
        workspaces,
        partial_clone: options.partial_clone,
        calls: calls(config, &built),
        backends: built.agents,
        memory: config.memory.clone(),
        embedder: embedder(config)?,
        mcp_key,
        checks: check_runner(config, env, &sandbox, built.masker),
        programs: Programs {
            instance,
            settings: ProgramSettings {
                program: options.program.clone(),
                scratch: data.join("scratch"),
                sandbox,
                agent_egress: egress(config),
            },
        },
        hooks: config.hooks.clone(),
        renderer: Renderer::new(config.templates.clone(), outbound.clone())?,
        marker_key: MarkerKey::new(key.as_bytes()),
        dashboard: dashboard::linked_pages(config),
        owner: owner(&host),
        host,
        workers: host::workers(config),
        pace: Pace {
            lease: failpoint::lease(|variable| env.get(variable)).unwrap_or(options.pace.lease),
            ..options.pace
        },
        outbound: outbound.clone(),
    };
    let work = WorkParts {
        assistants: built.assistants,
        reviewers: built.reviewers,
        questions: questions(config),
        images: config.images.clone(),
        folders: LoopFolders { logs: data.join("logs"), sessions: data.join("sessions"), images: data.join("images") },
    };
    let engine = Engine::new(EngineParts {
        shared,
        work,
        channels: channels(config, &outbound)?,
        channel_retry: options.channel_retry.clone(),
        rounds: options.rounds,
        keep: Duration::from_secs(u64::from(config.retention.days) * 86_400),
    });
    engine.presence.meet_forges().await?;
    Ok(engine)
}

fn workspace_settings(config: &Config, data: &Path, outbound: OutboundFilter) -> WorkspaceSettings {
    WorkspaceSettings {
        root: data.to_owned(),
        pool: WORK_TREE_POOL,
        committer_name: "ralph-bot".into(),
        committer_email: "ralph-bot@users.noreply.localhost".into(),
        authors: Arc::default(),
        signing: config.signing.clone(),
        protected: Vec::new(),
        outbound,
        submodule_hosts: config.submodule_hosts.clone(),
    }
}

/// Returns the settings of these forges.
fn forge_settings<'n>(config: &Config, names: impl Iterator<Item = &'n ForgeName>, is_trial: bool) -> ForgeSettings {
    ForgeSettings {
        repositories: config.repositories.clone(),
        updates: config.forges.iter().map(|forge| (forge.name.clone(), forge.updates)).collect(),
        policies: names.map(|name| (name.clone(), config.policy(name))).collect(),
        key_sources: config.key_sources.clone(),
        is_trial,
    }
}

fn questions(config: &Config) -> QuestionSettings {
    QuestionSettings {
        context: config.context.clone(),
        answer_timeout: config.engine.answer_timeout_s.map(|s| Duration::from_secs(u64::from(s))),
        summary_interval: config.memory.summary_interval,
    }
}

/// Creates the runner of checks, which finds the programs of the service's `PATH`.
fn check_runner(config: &Config, env: &Env, sandbox: &ServiceSandbox, masker: Masker) -> CheckRunner {
    let (path, tools) = programs(env);
    let mut check_env = tool_environment(&tools);
    check_env.push(("PATH".into(), path));
    check_env.push(("LANG".into(), "C.UTF-8".into()));
    let mut read_only = tools;
    read_only.extend(config.sandbox.read_only.iter().cloned());
    CheckRunner {
        sandboxed: sandbox.on,
        sandbox: sandbox.settings.clone(),
        read_only,
        timeout: Duration::from_secs(config.checks.timeout.as_seconds()),
        network: Network::all_or_nothing(config.checks.network),
        env: check_env,
        masker,
        ..CheckRunner::new()
    }
}

/// Creates a folder durably: syncs the parents of all created folders, so that the folders survive a power loss.
fn make_lasting(folder: &Path) -> std::io::Result<()> {
    let missing = folder.ancestors().take_while(|above| !above.exists()).count().max(1);
    private::create_folder(folder)?;
    for parent in folder.ancestors().skip(1).take(missing) {
        // The parent may belong to another user and be inaccessible.
        if let Err(error) = std::fs::File::open(parent).and_then(|parent| parent.sync_all()) {
            tracing::warn!(folder = %parent.display(), %error, "not synced; a power loss may delete its newest files");
        }
    }
    Ok(())
}

fn configured_id(config: &Config, name: &ForgeName) -> Option<crate::domain::model::ids::UserId> {
    config.forge(name).and_then(|forge| forge.own_id)
}

/// Creates the adapter of a configured forge.
pub fn connect(forge: &ForgeConfig, rates: RateSettings, clock: &Clock) -> anyhow::Result<Arc<dyn Forge>> {
    let own = forge.own_id.map(|id| User { id, login: String::new(), kind: AccountKind::Bot });
    Ok(match (forge.kind, &forge.auth) {
        (ForgeKind::Gitea, ForgeAuth::Token(token)) => {
            let settings =
                GiteaSettings { name: forge.name.clone(), url: forge.url.clone(), token: token.clone(), own, rates };
            Arc::new(Gitea::new(settings, clock.clone())?)
        }
        (ForgeKind::Gitea, ForgeAuth::App { .. }) => {
            bail!("forge {}: Gitea does not support Apps; use a token", forge.name)
        }
        (ForgeKind::GitHub, auth) => {
            let auth = match auth {
                ForgeAuth::Token(token) => GitHubAuth::Token(token.clone()),
                ForgeAuth::App { id, private_key } => {
                    GitHubAuth::App { app_id: *id, private_key_pem: private_key.clone() }
                }
            };
            let settings = GitHubSettings {
                name: forge.name.clone(),
                api_url: forge.github_api(),
                web_url: forge.url.clone(),
                auth,
                rates,
            };
            Arc::new(GitHub::new(settings, clock.clone())?)
        }
    })
}

/// Creates the tracer, which is disabled if no collector is configured.
fn tracer(config: &Config) -> anyhow::Result<Tracer> {
    let Some(endpoint) = &config.otlp_endpoint else { return Ok(Tracer::default()) };
    Tracer::start(endpoint, tokio::runtime::Handle::current())
        .map_err(|why| anyhow::Error::new(why).context("`telemetry.otlp_endpoint`: traces cannot be sent"))
}

/// Creates the configured channels.
fn channels(config: &Config, outbound: &OutboundFilter) -> anyhow::Result<Vec<Channel>> {
    let one =
        |of: &ChannelConfig| channel(of, outbound).map_err(|why| anyhow::Error::new(why).context(of.name.clone()));
    config.channels.iter().map(one).collect()
}

/// Creates a configured channel. The error contains no secret.
pub fn channel(channel: &ChannelConfig, outbound: &OutboundFilter) -> Result<Channel, Failure> {
    let settings = ChannelSettings {
        name: channel.name.clone(),
        kind: channel.kind,
        url: channel.url.clone(),
        secret: channel.secret.clone(),
        levels: channel.levels.clone(),
        allow_private: channel.allow_private,
        room: channel.room.clone(),
        mail: channel.mail.clone().map(|MailConfig { user, from, to, starttls, ca }| MailSettings {
            user,
            from,
            to,
            starttls,
            ca,
        }),
    };
    Channel::new(settings, outbound.clone())
}

/// Returns the key of markers, which is generated once.
async fn marker_key(store: &Store) -> anyhow::Result<String> {
    let made = uuid::Uuid::new_v4().simple().to_string();
    Ok(store.write(move |c| installation::get_or_insert(c, "marker_key", &made)).await?)
}

/// Returns the key of session memory tokens, which is generated once.
async fn mcp_key(store: &Store) -> anyhow::Result<String> {
    let made = uuid::Uuid::new_v4().simple().to_string();
    Ok(store.write(move |c| installation::get_or_insert(c, "mcp_key", &made)).await?)
}

/// Returns the settings of model calls. Backends that cannot be used here are disabled.
fn calls(config: &Config, built: &Built) -> CallSettings {
    let mut choice = config.backends_settings();
    for (name, backend) in &mut choice.backends {
        backend.roles.retain(|role| built.can(name, *role));
        backend.enabled &= !backend.roles.is_empty();
    }
    let agents = choice.in_order(BackendRole::Agent);
    let configured = || config.backends.iter().find(|(_, b)| b.settings.roles.contains(&BackendRole::Agent));
    let default_backend = agents.first().map(|name| (*name).to_owned());
    let default_backend = default_backend.or_else(|| configured().map(|(name, _)| name.clone())).unwrap_or_default();
    let backends = || config.backends.iter();
    CallSettings {
        default_backend,
        rules: backends().map(|(name, backend)| (name.clone(), backend.rules.clone())).collect(),
        prices: backends().map(|(name, backend)| (name.clone(), backend.prices.clone())).collect(),
        backends: choice,
        fingerprints: built.fingerprints.clone(),
        providers: built.providers.clone(),
        assistant: config.assistant.clone(),
        money: config.money,
    }
}

/// Loads the configured embedding model; `None` if none is configured.
pub(crate) fn embedder(config: &Config) -> anyhow::Result<Option<Arc<StaticModel>>> {
    let Some(folder) = config.memory.embeddings.as_ref().filter(|_| config.memory.enabled) else { return Ok(None) };
    let model = StaticModel::load(folder).map_err(|why| anyhow::Error::new(why).context("`memory.embeddings`"))?;
    Ok(Some(Arc::new(model)))
}

/// Returns the identity of this process. The host name is part of it, because containers that share a folder have process ids of
/// their own.
fn owner(host: &Host) -> LeaseOwner {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    LeaseOwner {
        host: format!("{}{}", host.owner_prefix(), host::machine_name()),
        boot: boot.trim().to_owned(),
        pid: std::process::id(),
        nonce: uuid::Uuid::now_v7().simple().to_string(),
    }
}
