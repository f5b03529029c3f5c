//! The command line: one file a subcommand.

pub mod backends;
pub mod backup;
pub mod check;
pub mod completions;
#[cfg(feature = "demo")]
pub mod demo;
pub mod init;
pub mod local;
pub mod loops;
pub mod mcp;
pub mod memory;
pub mod replay;
pub mod sandbox_exec;
pub mod schema;
pub mod serve;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::config::{Config, ConfigProblems, ConfigScope, Env, operator_file};
use crate::domain::model::ids::Timestamp;
use crate::render::Renderer;

/// Turns a labelled issue into a supervised loop of coding-agent runs and a verified pull request.
#[derive(Debug, Parser)]
#[command(name = "ralph-bot", version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    /// What is the same for every subcommand.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every subcommand.
#[derive(Debug, Clone, clap::Args)]
pub struct Global {
    /// The operator's file [default: RALPH_CONFIG, else ralph-control.yaml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colours; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the service
    Serve(serve::ServeArgs),
    /// Run one loop on a local repository, without a forge
    Local(local::LocalArgs),
    /// List, show, pause, resume and abort loops
    Loops(loops::LoopsArgs),
    /// Show backends with what was called so far, or bring one back
    Backends(backends::BackendsArgs),
    /// Show, search, forget, archive, export and import what loops learnt
    Memory(memory::MemoryArgs),
    /// Take a recorded loop through control and oversight once more
    Replay(replay::ReplayArgs),
    /// Answer an agent's questions about its loop: an MCP server over standard input and output
    Mcp(mcp::McpArgs),
    /// Start a program in a sandbox with an egress proxy; called by the service only
    #[command(hide = true)]
    SandboxExec(sandbox_exec::SandboxExecArgs),
    /// Copy the database while the service runs
    Backup(backup::BackupArgs),
    /// Write a working configuration
    Init(init::InitArgs),
    /// Show the whole thing on this machine with nothing else
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
    /// Look for what would keep the service from working
    Check,
    /// Print the JSON Schema of a configuration file
    Schema(schema::SchemaArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
}

/// Why a subcommand did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The configuration is wrong; exit code 2.
    #[error(transparent)]
    Config(#[from] ConfigProblems),
    /// The arguments do not fit together; exit code 2.
    #[error("{0}")]
    Usage(String),
    /// It was tried and failed; exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl CliError {
    /// 1 it failed, 2 wrong usage or configuration.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Config(_) | Self::Usage(_) => 2,
        }
    }
}

/// What a subcommand comes to: an exit code of its own choosing, or an error.
pub type CliResult = Result<ExitCode, CliError>;

/// Reads the arguments, does what they say, and reports what went wrong on standard error.
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
        Command::Serve(args) => serve::run(&args, &cli.global, env),
        Command::Local(args) => local::run(&args, &cli.global, env),
        Command::Loops(args) => loops::run(&args, &cli.global, env),
        Command::Backends(args) => backends::run(&args, &cli.global, env),
        Command::Memory(args) => memory::run(&args, &cli.global, env),
        Command::Replay(args) => replay::run(&args, &cli.global, env),
        Command::Mcp(args) => mcp::run(&args, env),
        Command::SandboxExec(args) => sandbox_exec::run(&args),
        Command::Backup(args) => backup::run(&args, &cli.global, env),
        Command::Init(args) => init::run(&args, &cli.global, env),
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(&args, &cli.global, env),
        Command::Check => check::run(&cli.global, env),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}

/// What the operator's file says, for a command that reaches so far.
fn load(reach: ConfigScope, global: &Global, env: &Env) -> Result<Config, CliError> {
    let config = Config::load_for(reach, &operator_file(global.config.as_deref(), env), env)?;
    // What is wrong with a text of the operator's shows now, and not when it is first needed.
    Renderer::new(config.templates.clone()).map_err(|error| CliError::Usage(format!("`templates`: {error}")))?;
    Ok(config)
}

/// The database of a configuration.
fn database(config: &Config) -> PathBuf {
    config.data_dir.join("ralph.db")
}

/// Runs a subcommand that does several things at a time. What it leaves running when it is done is not waited for.
fn block_on(work: impl Future<Output = CliResult>) -> CliResult {
    block_on_with(None, work)
}

/// Runs `work` on so many threads; `None` for as many as there are processors.
fn block_on_with(threads: Option<usize>, work: impl Future<Output = CliResult>) -> CliResult {
    // Another part of the process may have chosen a provider already; either is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    let built = builder.enable_all().build();
    let runtime = built.map_err(|error| CliError::Failed(format!("no threads to run on: {error}")))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// Foreign text for a terminal: one line, without characters that would move the cursor or change colours.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Columns as wide as their widest cell.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// A moment in UTC.
fn moment(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.0) {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => at.0.to_string(),
    }
}

/// Writes to standard output. A reader that went away (`| head`) is no failure.
pub(crate) fn print(text: &str) -> CliResult {
    use std::io::Write as _;
    if cfg!(test) {
        // Test runners capture the output of the macro only.
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CliError::Failed(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    /// The subcommands' arguments, also of those that `app` runs.
    #[derive(Debug, Parser)]
    enum Every {
        Serve(serve::ServeArgs),
        #[cfg(feature = "demo")]
        Demo(demo::DemoArgs),
        Local(local::LocalArgs),
        Loops(loops::LoopsArgs),
        Replay(replay::ReplayArgs),
        Backup(backup::BackupArgs),
    }

    #[test]
    fn arguments_are_read_as_documented() {
        let parse = |line: &str| Every::try_parse_from(std::iter::once("x").chain(line.split(' ')));
        assert!(matches!(parse("serve"), Ok(Every::Serve(a)) if a.role == serve::ServeRole::All));
        assert!(matches!(parse("serve --role ingest"), Ok(Every::Serve(a)) if a.role == serve::ServeRole::Ingest));
        #[cfg(feature = "demo")]
        assert!(matches!(parse("demo --exit --fast"), Ok(Every::Demo(a)) if a.exit && a.fast));
        assert!(matches!(parse("local --repo . --task fix --check a --check b --backend c"),
            Ok(Every::Local(a)) if a.check == ["a", "b"] && a.backend.as_deref() == Some("c")));
        assert!(matches!(parse("loops"), Ok(Every::Loops(a)) if a.command.is_none()));
        assert!(matches!(parse("loops abort r-1-aaaaaa no longer needed"),
            Ok(Every::Loops(loops::LoopsArgs { command: Some(loops::LoopsCommand::Abort(a)) }))
            if a.id == "r-1-aaaaaa" && a.reason.join(" ") == "no longer needed"));
        assert!(matches!(parse("loops resume r-1-aaaaaa --max-iterations 5 --timeout 90m --budget 2.5 try harder"),
            Ok(Every::Loops(loops::LoopsArgs { command: Some(loops::LoopsCommand::Resume(a)) }))
            if a.max_iterations == Some(5) && a.timeout.map(|t| t.as_seconds()) == Some(5400) && a.guidance.len() == 2));
        assert!(matches!(parse("replay t.jsonl --plot --summary"),
            Ok(Every::Replay(a)) if a.plot == Some(None) && a.summary));
        assert!(
            matches!(parse("replay t.jsonl --plot t.svg"), Ok(Every::Replay(a)) if a.plot.as_ref().is_some_and(Option::is_some))
        );
        assert!(matches!(parse("replay traces --compare a.yaml b.yaml"),
            Ok(Every::Replay(a)) if a.compare.as_ref().map(Vec::len) == Some(2)));
        assert!(matches!(parse("backup x.db"), Ok(Every::Backup(a)) if a.file == std::path::Path::new("x.db")));
        for wrong in [
            "serve --role x",
            "local --task x",
            "loops resume",
            "loops resume a --timeout soon",
            "backup",
            "replay",
            "replay t --compare a.yaml",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn command_line_page_lists_every_subcommand() {
        let page = include_str!("../docs/command-line.md");
        let command = Cli::command();
        let names = |of: &clap::Command| {
            let shown = of.get_subcommands().filter(|sub| !sub.is_hide_set());
            shown.map(|sub| sub.get_name().to_owned()).collect::<Vec<_>>()
        };
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `ralph-bot ")).collect();
        for name in names(&command).iter().filter(|name| *name != "help") {
            assert!(
                rows.iter().any(|row| row.contains(&format!("`ralph-bot {name}"))),
                "docs/command-line.md leaves out {name}"
            );
        }
        for row in rows {
            let Some((called, rest)) = row.trim_start_matches("| `ralph-bot ").split_once(" [") else { continue };
            let listed = rest.split_once(']').map_or("", |(listed, _)| listed);
            let known = command.get_subcommands().find(|sub| sub.get_name() == called).expect(row);
            let positions = known.get_positionals().flat_map(|one| one.get_possible_values());
            let known = [names(known), positions.map(|value| value.get_name().to_owned()).collect()].concat();
            for name in listed.split("\\|").filter(|name| !name.starts_with('-')) {
                assert!(known.iter().any(|one| one == name), "docs/command-line.md has {called} {name}: {known:?}");
            }
        }
    }

    #[test]
    fn texts_that_cannot_be_used_are_wrong_configuration() {
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
    fn exit_codes_tell_failure_from_wrong_usage() {
        assert_eq!(CliError::Failed(String::new()).exit_code(), 1);
        assert_eq!(CliError::Usage(String::new()).exit_code(), 2);
        assert_eq!(CliError::Config(ConfigProblems(Vec::new())).exit_code(), 2);
    }
}
