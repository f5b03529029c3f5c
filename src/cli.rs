//! Command line, one file per subcommand.

pub mod audit;
pub mod backends;
pub mod backup;
pub mod channels;
pub mod check;
pub mod completions;
#[cfg(feature = "demo")]
pub mod demo;
pub mod drain;
mod error;
mod global;
mod init;
pub mod local;
pub mod loops;
pub mod mcp;
pub mod memory;
pub mod migrate;
pub mod replay;
pub mod sandbox_attempts;
pub mod sandbox_exec;
pub mod schema;
pub mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ralph_types::failure::Failure;

use crate::app;
use crate::config::{Config, ConfigScope, Env, operator_file};
use crate::domain::model::ids::Timestamp;
use crate::domain::trust::outbound::OutboundFilter;
use crate::render::Renderer;
use crate::store::Store;

pub use error::{CliError, CliResult};
pub use global::{Color, Global};

/// Turns a labeled issue into a supervised loop of coding-agent runs and a verified pull request.
#[derive(Debug, Parser)]
#[command(name = "ralph-bot", version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    /// Options of every subcommand.
    #[command(flatten)]
    pub global: Global,
    /// Subcommand.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run the service
    Serve(serve::ServeArgs),
    /// Run one loop on a local repository, without a forge
    Local(local::LocalArgs),
    /// List, show, pause, resume and abort loops
    Loops(loops::LoopsArgs),
    /// Show backends and their usage, or enable one
    Backends(backends::BackendsArgs),
    /// Show logins and changes in the dashboard and by the API
    Audit(audit::AuditArgs),
    /// List the channels for notices, or send a test notice
    Channels(channels::ChannelsArgs),
    /// Show, search, delete, archive, export and import learnings
    Memory(memory::MemoryArgs),
    /// Run supervision again over a recorded loop
    Replay(replay::ReplayArgs),
    /// Serve the session memory of a loop to an agent (MCP over standard input and output)
    Mcp(mcp::McpArgs),
    /// Start a program inside a sandbox with access to selected hosts; used by the service
    #[command(hide = true)]
    SandboxExec(sandbox_exec::SandboxExecArgs),
    /// Try to leave a sandbox; used by the service inside of one
    #[command(hide = true)]
    SandboxAttempts(sandbox_attempts::SandboxAttemptsArgs),
    /// Copy the database while the service runs
    Backup(backup::BackupArgs),
    /// Move the data to another database while the service is stopped
    Migrate(migrate::MigrateArgs),
    /// Let this host finish its work and accept no more
    Drain(drain::DrainArgs),
    /// Write a configuration file and set up the forge
    Init(init::InitArgs),
    /// Show a complete loop on this machine, without a forge or an agent
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
    /// Check the configuration, this machine and everything the service depends on
    Check,
    /// Print the JSON Schema of a configuration file
    Schema(schema::SchemaArgs),
    /// Print shell completions
    Completions(completions::CompletionsArgs),
}

/// Parses the arguments, runs the subcommand, and prints errors to standard error.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let choice = match cli.global.color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
    match run(cli, &Env::of_process()) {
        Ok(code) => code,
        Err(error) => {
            let red = anstyle::AnsiColor::Red.on_default().bold();
            anstream::eprintln!("{red}error:{red:#} {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(cli: Cli, env: &Env) -> CliResult {
    match cli.command {
        CliCommand::Serve(args) => serve::run(&args, &cli.global, env),
        CliCommand::Local(args) => local::run(&args, &cli.global, env),
        CliCommand::Loops(args) => loops::run(&args, &cli.global, env),
        CliCommand::Backends(args) => backends::run(&args, &cli.global, env),
        CliCommand::Audit(args) => audit::run(&args, &cli.global, env),
        CliCommand::Channels(args) => channels::run(&args, &cli.global, env),
        CliCommand::Memory(args) => memory::run(&args, &cli.global, env),
        CliCommand::Replay(args) => replay::run(&args, &cli.global, env),
        CliCommand::Mcp(args) => mcp::run(&args, env),
        CliCommand::SandboxExec(args) => sandbox_exec::run(&args),
        CliCommand::SandboxAttempts(args) => sandbox_attempts::run(&args),
        CliCommand::Backup(args) => backup::run(&args, &cli.global, env),
        CliCommand::Migrate(args) => migrate::run(&args, &cli.global, env),
        CliCommand::Drain(args) => drain::run(&args, &cli.global, env),
        CliCommand::Init(args) => init::run(&args, &cli.global, env),
        #[cfg(feature = "demo")]
        CliCommand::Demo(args) => demo::run(&args, &cli.global, env),
        CliCommand::Check => check::run(&cli.global, env),
        CliCommand::Schema(args) => schema::run(&args),
        CliCommand::Completions(args) => completions::run(&args),
    }
}

/// Loads the part of the operator's configuration that a subcommand needs, and validates its templates.
fn load(scope: ConfigScope, global: &Global, env: &Env) -> Result<Config, CliError> {
    let config = Config::load_for(scope, &operator_file(global.config.as_deref(), env), env)?;
    // Report invalid templates at the start, not when they are first used.
    Renderer::new(config.templates.clone(), OutboundFilter::default())
        .map_err(|error| CliError::usage(Failure::new("`templates`").caused_by(error)))?;
    Ok(config)
}

/// Opens the existing database while a service may be running on it.
async fn attach(config: &Config) -> Result<Store, CliError> {
    app::database::attach(config).await.map_err(CliError::failed)
}

/// Runs an asynchronous subcommand. Tasks that are still running at its end are abandoned.
fn block_on(work: impl Future<Output = CliResult>) -> CliResult {
    block_on_with(None, work)
}

/// Runs `work` on `threads` threads; with `None`, on one per processor.
fn block_on_with(threads: Option<usize>, work: impl Future<Output = CliResult>) -> CliResult {
    // Fails if a provider is already installed, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    let built = builder.enable_all().build();
    let runtime =
        built.map_err(|error| CliError::failed(Failure::new("could not start the runtime").caused_by(error)))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// Joins foreign text to one line without control characters, which is safe on terminals.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Formats rows as aligned columns.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Formats a time in UTC.
fn moment(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.0) {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => at.0.to_string(),
    }
}

/// Writes to standard output. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> CliResult {
    use std::io::Write as _;
    if cfg!(test) {
        // Test runners capture the output of the macro only.
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CliError::failed(Failure::new("could not write to standard output").caused_by(error)))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    /// Arguments of subcommands.
    #[derive(Debug, Parser)]
    enum Every {
        Serve(serve::ServeArgs),
        #[cfg(feature = "demo")]
        Demo(demo::DemoArgs),
        Local(local::LocalArgs),
        Loops(loops::LoopsArgs),
        Replay(replay::ReplayArgs),
        Backup(backup::BackupArgs),
        Migrate(migrate::MigrateArgs),
        Drain(drain::DrainArgs),
        Audit(audit::AuditArgs),
    }

    #[test]
    fn arguments_parse_as_documented() {
        let parse = |line: &str| Every::try_parse_from(std::iter::once("x").chain(line.split(' ')));
        assert!(matches!(parse("serve"), Ok(Every::Serve(a)) if a.role == serve::ServeRole::All));
        assert!(matches!(parse("serve --role ingest"), Ok(Every::Serve(a)) if a.role == serve::ServeRole::Ingest));
        #[cfg(feature = "demo")]
        assert!(matches!(parse("demo --exit --fast"), Ok(Every::Demo(a)) if a.exit && a.fast));
        assert!(matches!(parse("local --repo . --task fix --check a --check b --backend c"),
            Ok(Every::Local(a)) if a.check == ["a", "b"] && a.backend.as_deref() == Some("c")));
        assert!(matches!(parse("local --resume --guide harder"), Ok(Every::Local(a)) if a.resume == Some(None)));
        assert!(matches!(parse("local --resume r-1-aaaaaa --budget 2"),
            Ok(Every::Local(a)) if a.resume == Some(Some("r-1-aaaaaa".into())) && a.budget == Some(2.0)));
        assert!(matches!(parse("local --tasks t.yaml --jobs 3"), Ok(Every::Local(a)) if a.jobs == 3));
        assert!(matches!(parse("loops"), Ok(Every::Loops(a)) if a.command.is_none()));
        assert!(matches!(parse("loops abort r-1-aaaaaa no longer needed"),
            Ok(Every::Loops(loops::LoopsArgs { command: Some(loops::LoopsCommand::Abort(a)), .. }))
            if a.id == "r-1-aaaaaa" && a.reason.join(" ") == "no longer needed"));
        assert!(matches!(parse("loops resume r-1-aaaaaa --max-iterations 5 --timeout 90m --budget 2.5 try harder"),
            Ok(Every::Loops(loops::LoopsArgs { command: Some(loops::LoopsCommand::Resume(a)), .. }))
            if a.max_iterations.and_then(|limit| limit.count()) == Some(5) && a.timeout.map(|t| t.as_seconds()) == Some(5400) && a.guidance.len() == 2));
        assert!(matches!(parse("replay t.jsonl --plot t.svg --summary"),
            Ok(Every::Replay(a)) if a.plot.as_deref() == Some(std::path::Path::new("t.svg")) && a.summary));
        assert!(matches!(parse("replay traces r-1-aaaaaa --compare a.yaml b.yaml"),
            Ok(Every::Replay(a)) if a.traces.len() == 2 && a.compare.as_ref().map(Vec::len) == Some(2)));
        assert!(matches!(parse("backup x.db"), Ok(Every::Backup(a)) if a.file == std::path::Path::new("x.db")));
        assert!(matches!(parse("migrate --to postgres://r@db/r --password-env P"),
            Ok(Every::Migrate(a)) if a.to == "postgres://r@db/r" && a.password_env.as_deref() == Some("P")));
        assert!(
            matches!(parse("drain --host big --end"), Ok(Every::Drain(a)) if a.host.as_deref() == Some("big") && a.end)
        );
        assert!(matches!(parse("audit"), Ok(Every::Audit(a)) if a.limit == 100 && a.login.is_none()));
        assert!(matches!(parse("audit --login ann --limit 5 --before 7"),
            Ok(Every::Audit(a)) if a.login.as_deref() == Some("ann") && a.limit == 5 && a.before == Some(7)));
        for wrong in [
            "serve --role x",
            "audit --limit 0",
            "local",
            "local --task x --list",
            "local --task x --guide y",
            "local --task x --jobs 2",
            "local --tasks x --check y",
            "loops resume",
            "loops resume a --timeout soon",
            "backup",
            "migrate",
            "migrate --to x --password-env P --password-file f",
            "replay",
            "replay t --compare a.yaml",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn command_line_page_lists_every_subcommand() {
        let page = include_str!("../docs/reference/command-line.md");
        let command = Cli::command();
        let names = |of: &clap::Command| {
            let visible = of.get_subcommands().filter(|sub| !sub.is_hide_set());
            visible.map(|sub| sub.get_name().to_owned()).collect::<Vec<_>>()
        };
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `ralph-bot ")).collect();
        for name in names(&command).iter().filter(|name| *name != "help") {
            assert!(
                rows.iter().any(|row| row.contains(&format!("`ralph-bot {name}"))),
                "docs/reference/command-line.md leaves out {name}"
            );
        }
        for row in rows {
            let line = row.trim_start_matches("| `ralph-bot ").split('`').next().unwrap_or_default();
            let Some((called, rest)) = line.split_once(" [") else { continue };
            let listed = rest.split_once(']').map_or("", |(listed, _)| listed);
            let known = command.get_subcommands().find(|sub| sub.get_name() == called).expect(row);
            let positions = known.get_positionals().flat_map(|one| one.get_possible_values());
            let known = [names(known), positions.map(|value| value.get_name().to_owned()).collect()].concat();
            for name in listed.split("\\|").filter(|name| !name.starts_with('-')) {
                assert!(
                    known.iter().any(|one| one == name),
                    "docs/reference/command-line.md has {called} {name}: {known:?}"
                );
            }
        }
    }

    #[test]
    fn invalid_templates_are_configuration_errors() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ralph-control.yaml");
        let text = "forges: [{ name: w, kind: gitea, url: 'http://127.0.0.1:9', token_env: T, webhook_secret_env: S }]\n\
                    backends: { mine: { type: script, command: [sh] } }\ntemplates: texts\n";
        std::fs::write(&file, text).expect("written");
        let texts = folder.path().join("texts/comment");
        std::fs::create_dir_all(&texts).expect("made");
        let env = Env::of([("T", "token"), ("S", "0123456789abcdef0123456789abcdef")]);
        let global = Global { config: Some(file), json: false, color: Color::Never };
        assert_eq!(load(ConfigScope::Service, &global, &env).expect("an empty folder changes nothing").templates, []);
        for (name, text, why) in [
            ("statuss.md", "x", "there is no template comment/statuss.md; did you mean `comment/status.md`?"),
            ("status.md", "\n{% if %}", "template comment/status.md is not valid"),
        ] {
            std::fs::write(texts.join(name), text).expect("written");
            let error = load(ConfigScope::Service, &global, &env).expect_err(name);
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(error.exit_code(), 2);
            std::fs::remove_file(texts.join(name)).expect("removed");
        }
    }

    #[test]
    fn exit_codes_distinguish_failure_and_usage() {
        assert_eq!(CliError::failed(String::new()).exit_code(), 1);
        assert_eq!(CliError::usage(String::new()).exit_code(), 2);
        assert_eq!(CliError::Config(crate::config::ConfigProblems(Vec::new())).exit_code(), 2);
    }
}
