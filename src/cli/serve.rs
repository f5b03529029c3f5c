//! `ralph-bot serve`: runs the service.

mod manager;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::{CliError, CliResult};
use super::global::Global;
use super::{block_on, block_on_with, load, print};
use crate::app::{Application, Dashboard, Options};
use crate::clock::Clock;
use crate::config::forge_entry::has_forge;
use crate::config::{Config, ConfigScope, Env, operator_file};
use crate::engine::{OnceEnd, Role};
use crate::process::unmap_startup_pages;
use crate::setup::{OperatorFileLocation, SetupMode, SetupServer};
use crate::telemetry;

/// Exit code of a command that a signal ended, as shells report Ctrl-C.
pub(super) const INTERRUPTED: u8 = 130;
/// Exit code of `serve --once` if no work was due: `EX_TEMPFAIL`.
const NO_WORK: u8 = 75;

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Part of the service to run; several processes can share one database
    #[arg(long, value_enum, default_value_t = ServeRole::All)]
    pub role: ServeRole,
    /// Execute one work effect and what continues its iteration, then exit: 0 if its outcome is recorded or it was given back, 75 if no
    /// work was due. Only for `--role runner`
    #[arg(long)]
    pub once: bool,
}

/// Arguments of a process with all roles.
const SERVE_ALL: ServeArgs = ServeArgs { role: ServeRole::All, once: false };

/// Parts of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServeRole {
    /// Accepts webhook deliveries.
    Ingest,
    /// Makes decisions and calls the forges.
    Control,
    /// Runs agents and checks.
    Runner,
    /// Everything.
    All,
}

impl From<ServeRole> for Role {
    fn from(role: ServeRole) -> Self {
        match role {
            ServeRole::Ingest => Self::Ingest,
            ServeRole::Control => Self::Control,
            ServeRole::Runner => Self::Runner,
            ServeRole::All => Self::All,
        }
    }
}

/// Runs the service until a signal or a fatal error.
///
/// # Errors
/// Fails on an invalid configuration, a failed start, or a fatal error.
pub fn run(args: &ServeArgs, global: &Global, env: &Env) -> CliResult {
    if args.once && !matches!(args.role, ServeRole::Runner) {
        return Err(CliError::usage("`--once` needs `--role runner`"));
    }
    let place = OperatorFileLocation { file: operator_file(global.config.as_deref(), env), env: env.clone() };
    // A file that is not valid is reported below.
    let wants_setup = matches!(args.role, ServeRole::All) && place.folder().is_dir();
    if wants_setup && has_forge(&place.file, env).is_ok_and(|has| !has) {
        telemetry::init(env).map_err(|error| CliError::usage(Failure::of(error)))?;
        return block_on(set_up_then_serve(place, global));
    }
    let config = load(ConfigScope::Service, global, env)?;
    telemetry::init(env).map_err(|error| CliError::usage(Failure::of(error)))?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    // The database's writer needs a separate processor when deliveries are the only work.
    let ingest = matches!(args.role, ServeRole::Ingest);
    let threads = ingest.then(|| std::thread::available_parallelism().map_or(1, |n| n.get().saturating_sub(1).max(1)));
    block_on_with(threads, serve(&config, env, args, global.json))
}

/// Serves the set-up until a forge is configured, then the service, in the same process.
async fn set_up_then_serve(place: OperatorFileLocation, global: &Global) -> CliResult {
    let mut signals = Signals::new()?;
    let listen = place.base()?.server.listen;
    let server = SetupServer::start(place.clone(), SetupMode::Service, listen, Clock::System).await;
    let server = server.map_err(|error| {
        let problem = Failure::new(format!("cannot listen on {listen}")).caused_by(error);
        CliError::failed(problem.with_hint("is another instance running?"))
    })?;
    let link = server.link();
    print(&if global.json {
        let (listening, setup) = (format!("http://{}", server.address), link.expose_secret());
        format!("{}\n", serde_json::json!({ "listening": listening, "setup": setup }))
    } else {
        format!("no forge is configured in {}; set-up: {}\n", place.file.display(), link.expose_secret())
    })?;
    manager::started(&format!("waits for the set-up on {}", server.address));
    let finished = tokio::select! {
        () = server.finished() => true,
        () = signals.next() => false,
        () = manager::keep_alive(None) => false,
    };
    server.stop().await;
    if !finished {
        return Ok(ExitCode::SUCCESS);
    }
    let config = load(ConfigScope::Service, global, &place.env)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    serve(&config, &place.env, &SERVE_ALL, global.json).await
}

async fn serve(config: &Config, env: &Env, args: &ServeArgs, json: bool) -> CliResult {
    // Registered before the start, so that no signal is lost.
    let mut signals = Signals::new()?;
    let options = Options { role: args.role.into(), once: args.once, ..Options::of(config) };
    let app = tokio::select! {
        app = Application::start(config, env, options) => app,
        // A start may wait for space on the disk. Deliveries that it accepted are stored.
        () = signals.next() => return Ok(ExitCode::SUCCESS),
    };
    let app = app.map_err(|error| CliError::failed(Failure::new("could not start the service").caused_by(error)))?;
    unmap_startup_pages();
    let dashboard = app.dashboard.as_ref().map(Dashboard::link);
    print(&announcement(config, app.address, dashboard.as_ref(), json))?;
    manager::started(&app.address.map_or("running".to_owned(), |address| format!("listening on {address}")));
    let asked = tokio::select! {
        () = signals.next() => true,
        () = app.stopped() => false,
        () = manager::keep_alive(Some(&app.engine.store)) => false,
    };
    manager::stopping();
    if asked {
        tracing::info!("stopping; agents get a grace period, a second signal stops immediately");
    }
    let end = tokio::select! {
        end = app.stop() => end,
        () = signals.next() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    match end {
        Some(OnceEnd::Worked) => Ok(ExitCode::SUCCESS),
        Some(OnceEnd::NoWork) => Ok(ExitCode::from(NO_WORK)),
        Some(OnceEnd::Failed) => Err(CliError::failed("could not claim or record the work; see the log")),
        None if asked => Ok(ExitCode::SUCCESS),
        None => Err(CliError::failed("the service stopped after a fatal error; see its log")),
    }
}

/// Listener for SIGINT and SIGTERM.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Starts listening.
    pub(super) fn new() -> Result<Self, CliError> {
        let failed = |error| CliError::failed(Failure::new("could not listen for signals").caused_by(error));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Formats the listening address, the webhook address of each forge, and the address of the dashboard, which has its token if it
/// is without a login.
fn announcement(config: &Config, address: Option<SocketAddr>, dashboard: Option<&SecretString>, json: bool) -> String {
    let dashboard = dashboard.map(ExposeSecret::expose_secret);
    let listening = address.map(|address| format!("http://{address}"));
    let base = match (&config.server.public_url, &listening) {
        (Some(url), _) => Some(url.as_str().trim_end_matches('/').to_owned()),
        (None, listening) => listening.clone(),
    };
    let base = base.filter(|_| address.is_some());
    let hooks = config.forges.iter().filter_map(|forge| {
        let base = base.as_ref()?;
        Some((forge.name.to_string(), format!("{base}/webhooks/{}", forge.name)))
    });
    if json {
        let hooks: serde_json::Map<_, _> = hooks.map(|(name, url)| (name, url.into())).collect();
        return format!(
            "{}\n",
            serde_json::json!({ "listening": listening, "webhooks": hooks, "dashboard": dashboard })
        );
    }
    let hooks: Vec<_> = hooks.map(|(name, url)| format!("{name}: {url}")).collect();
    match listening {
        Some(listening) => {
            let dashboard = dashboard.map(|address| format!("dashboard: {address}\n")).unwrap_or_default();
            format!("listening on {listening}; webhooks: {}\n{dashboard}", hooks.join(", "))
        }
        None => "running; another process accepts webhooks\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(folder: &Path, more: &str) -> Config {
        let env = Env::of([("T", "token"), ("S", "0123456789abcdef0123456789abcdef")]);
        let text = format!(
            "forges: [{{ name: work, kind: gitea, url: 'http://127.0.0.1:9', token_env: T, webhook_secret_env: S }}]
backends: {{ mine: {{ type: script, command: [sh] }} }}
{more}"
        );
        Config::parse(&folder.join("ralph-control.yaml"), &text, &env).expect("valid")
    }

    #[test]
    fn announcement_names_addresses() {
        let folder = tempfile::tempdir().expect("a folder");
        let address = Some(SocketAddr::from(([127, 0, 0, 1], 8080)));
        let plain = announcement(&config(folder.path(), ""), address, None, false);
        assert_eq!(plain, "listening on http://127.0.0.1:8080; webhooks: work: http://127.0.0.1:8080/webhooks/work\n");
        let public = config(folder.path(), "server: { public_url: 'https://r.example.org/' }");
        let line: serde_json::Value =
            serde_json::from_str(&announcement(&public, address, Some(&"https://r.example.org/".into()), true))
                .expect("JSON");
        assert_eq!(line["webhooks"]["work"], "https://r.example.org/webhooks/work");
        assert_eq!(line["listening"], "http://127.0.0.1:8080");
        assert_eq!(line["dashboard"], "https://r.example.org/");
        assert!(announcement(&public, None, None, false).starts_with("running; "));
        let with_token = announcement(
            &config(folder.path(), ""),
            address,
            Some(&"http://127.0.0.1:8080/login?token=t".into()),
            false,
        );
        assert!(with_token.ends_with("\ndashboard: http://127.0.0.1:8080/login?token=t\n"), "{with_token}");
    }

    #[tokio::test]
    async fn failed_start_reports_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("data"), "a file where the folder should be").expect("written");
        let outcome = serve(&config(folder.path(), ""), &Env::default(), &SERVE_ALL, false).await;
        let error = outcome.expect_err("it cannot start");
        assert!(error.to_string().contains("cannot create the data folder"), "{error}");
        assert_eq!(error.exit_code(), 1);
    }
}
