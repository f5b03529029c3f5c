//! `ralph-bot init`: asks for forge, token and backend, and writes a configuration file. Also sets up a forge and runs
//! a trial on it.

mod forge;
mod login;
mod trial;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ralph_types::failure::Failure;

use super::error::{CliError, CliResult};
use super::global::Global;
use super::local::login::{FoundLogin, found, question};
use super::{block_on, print};
use crate::agent::presets;
use crate::config::forge_entry::{EntryAuth, ForgeEntry, quoted};
use crate::config::webhook_secrets::{ExistingSecret, SECRET_BYTES, random_secret, write_private};
use crate::config::{Config, Env, ForgeConfig, ForgeKind, operator_file};
use crate::setup::{self, OperatorFileLocation};

/// Arguments of `init`. Prompts for missing arguments; with `--yes`, uses their defaults.
#[derive(Debug, Clone, Args)]
pub struct InitArgs {
    /// Kind of forge
    #[arg(long, value_enum)]
    pub forge: Option<ForgeChoice>,
    /// Short name of the forge, part of the webhook address /webhooks/NAME
    #[arg(long)]
    pub name: Option<String>,
    /// Address of the forge; required for Gitea and Forgejo
    #[arg(long)]
    pub url: Option<String>,
    /// Environment variable with the access token
    #[arg(long, value_name = "VARIABLE", conflicts_with = "app_id")]
    pub token_env: Option<String>,
    /// File with the access token of the bot's account on Gitea or Forgejo, `-` for standard input; sets up everything on the forge
    #[arg(long, value_name = "FILE", conflicts_with_all = ["token_env", "app_id"])]
    pub token_file: Option<String>,
    /// Create a GitHub App in the browser, with its key, secrets and configuration
    #[arg(long, conflicts_with_all = ["app_id", "token_env", "token_file", "webhook", "login"])]
    pub create_app: bool,
    /// Organization that owns the App; otherwise your account does
    #[arg(long, value_name = "NAME", requires = "create_app")]
    pub organization: Option<String>,
    /// Address of GitHub's REST API, if it is not the usual one
    #[arg(long, value_name = "URL", requires = "create_app")]
    pub api_url: Option<String>,
    /// Id of the GitHub App
    #[arg(long, value_name = "NUMBER", requires = "private_key_file")]
    pub app_id: Option<u64>,
    /// File with the private key of the GitHub App
    #[arg(long, value_name = "FILE", requires = "app_id")]
    pub private_key_file: Option<PathBuf>,
    #[arg(long, help = format!("Backend that runs agents: {}", presets::names().join(", ")))]
    pub backend: Option<String>,
    /// Address at which the forge reaches this service
    #[arg(long)]
    pub public_url: Option<String>,
    /// Create and test the webhooks of the repositories; with an existing configuration, do only that
    #[arg(long)]
    pub webhook: bool,
    /// Repository to set up: webhook, labels, permissions; repeatable. With --webhook, the webhook only
    #[arg(long, value_name = "OWNER/NAME")]
    pub repository: Vec<String>,
    /// Create the client with which people log in to the dashboard (Gitea, Forgejo), or print where GitHub shows it; needs an existing
    /// configuration
    #[arg(long, conflicts_with = "webhook")]
    pub login: bool,
    /// Replace the secrets of the webhooks; the old ones are accepted until the next `init --webhook` without this
    #[arg(long, requires = "webhook")]
    pub new_secret: bool,
    /// Try the configured forge: a scripted agent works on a sample issue until its pull request is verified; `new` for a new private
    /// repository
    #[arg(long = "try", value_name = "OWNER/NAME", conflicts_with_all = ["webhook", "login", "create_app"])]
    pub try_in: Option<String>,
    /// Remove what --try made on the forge; with --try, after it succeeded
    #[arg(long)]
    pub clean_up: bool,
    /// Do not ask; use defaults
    #[arg(long)]
    pub yes: bool,
    /// Replace an existing configuration
    #[arg(long)]
    pub force: bool,
}

/// Kinds of forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ForgeChoice {
    /// github.com or Enterprise Server.
    Github,
    /// Gitea or Forgejo.
    Gitea,
}

/// Answers from which the configuration is written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answers {
    kind: ForgeChoice,
    name: String,
    url: Option<String>,
    auth: Auth,
    backend: String,
    login_file: Option<PathBuf>,
    public_url: Option<String>,
}

impl Answers {
    fn entry(&self, secret: &str) -> ForgeEntry {
        ForgeEntry {
            name: self.name.clone(),
            kind: if self.kind == ForgeChoice::Github { ForgeKind::GitHub } else { ForgeKind::Gitea },
            url: self.url.clone(),
            api_url: None,
            auth: match &self.auth {
                Auth::TokenEnv(name) => EntryAuth::TokenEnv(name.clone()),
                Auth::App { id, key } => EntryAuth::App { id: *id, key: key.display().to_string() },
            },
            webhook_secret_file: Some(secret.to_owned()),
            public_url: self.public_url.clone(),
            backend: self.backend.clone(),
            login_file: self.login_file.as_ref().map(|file| file.display().to_string()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Auth {
    TokenEnv(String),
    App { id: u64, key: PathBuf },
}

/// Asks for missing answers and writes the configuration and a webhook secret.
///
/// # Errors
/// Fails on a missing or invalid answer, an existing configuration, or a write error.
pub fn run(args: &InitArgs, global: &Global, env: &Env) -> CliResult {
    let file = operator_file(global.config.as_deref(), env);
    let place = OperatorFileLocation { file: file.clone(), env: env.clone() };
    if args.try_in.is_some() || args.clean_up {
        return trial::run(args, global, &place);
    }
    if args.create_app {
        return forge::create_app(args, global, place);
    }
    if !args.webhook && !args.login && (args.token_file.is_some() || !args.repository.is_empty()) {
        return forge::set_up(args, global, &place);
    }
    if args.login && file.exists() {
        return login(args, global, env, &file);
    }
    if file.exists() && !args.force {
        if args.webhook {
            return webhooks(args, &args.repository, global, env, &file);
        }
        let message = format!("{} exists; --force replaces it, --config names another file", file.display());
        return Err(CliError::usage(message));
    }
    if args.login {
        let message = format!("{} does not exist; run `ralph-bot init` without --login first", file.display());
        return Err(CliError::usage(message));
    }
    let interactive = !args.yes;
    if interactive && !std::io::stdin().is_terminal() {
        return Err(CliError::usage("standard input is not a terminal; use --yes with --forge and the other options"));
    }
    let answers = answers(args, env, interactive)?;
    let written = write(&file, &answers)?;
    let next = next_steps(&answers, &file, &written);
    if global.json {
        let files: Vec<_> = [&file, &written].iter().map(|path| path.display().to_string()).collect();
        print(&format!("{}\n", serde_json::json!({ "written": files, "next": next })))?;
    } else {
        let steps: String = next.iter().enumerate().map(|(index, step)| format!("  {}. {step}\n", index + 1)).collect();
        print(&format!("Written: {} and {}\nNext:\n{steps}", file.display(), written.display()))?;
    }
    let asked = interactive && !args.webhook && answers.kind == ForgeChoice::Gitea && has_token(&answers, env);
    let repositories = if asked { ask_repositories()? } else { args.repository.clone() };
    if args.webhook || !repositories.is_empty() {
        return webhooks(args, &repositories, global, env, &file);
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the access token is set in the environment.
fn has_token(answers: &Answers, env: &Env) -> bool {
    matches!(&answers.auth, Auth::TokenEnv(name) if env.get(name).is_some_and(|token| !token.is_empty()))
}

fn ask_repositories() -> Result<Vec<String>, CliError> {
    let question = "Repositories to create webhooks for (owner/name, separated by commas; empty for none)";
    let input = dialoguer::Input::<String>::new().with_prompt(question).allow_empty(true).interact_text();
    let text = input.map_err(|error| CliError::failed(Failure::new("could not read the answer").caused_by(error)))?;
    Ok(text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect())
}

/// Creates and tests webhooks with the configuration in `file`; exit code 1 if a test delivery did not arrive.
fn webhooks(args: &InitArgs, repositories: &[String], global: &Global, env: &Env, file: &Path) -> CliResult {
    let config = Config::load(file, env)?;
    let forge = chosen(&config, args.name.as_deref())?;
    let app = matches!(forge.auth, crate::config::ForgeAuth::App { .. });
    if repositories.is_empty() && !app {
        return Err(CliError::usage("--webhook needs --repository OWNER/NAME (repeatable)"));
    }
    block_on(async {
        let existing = if args.new_secret { ExistingSecret::Replace } else { ExistingSecret::Keep };
        let outcome = setup::create_webhooks(&config, forge, repositories, existing, setup::DELIVERY_TIMEOUT).await?;
        if global.json {
            print(&format!("{}\n", serde_json::json!({ "webhooks": outcome.lines, "good": outcome.good })))?;
        } else {
            print(&(outcome.lines.join("\n") + "\n"))?;
        }
        Ok(if outcome.good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Creates the OAuth client for logins with the configuration in `file`.
fn login(args: &InitArgs, global: &Global, env: &Env, file: &Path) -> CliResult {
    let config = Config::load(file, env)?;
    let forge = chosen(&config, args.name.as_deref())?;
    block_on(async {
        let lines = login::create(&config, forge).await?;
        if global.json {
            print(&format!("{}\n", serde_json::json!({ "login": lines })))?;
        } else {
            print(&(lines.join("\n") + "\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns the forge with this name; without a name, the only configured forge.
fn chosen<'c>(config: &'c Config, name: Option<&str>) -> Result<&'c ForgeConfig, CliError> {
    let names = || config.forges.iter().map(|forge| forge.name.as_str()).collect::<Vec<_>>().join(", ");
    match (name, config.forges.as_slice()) {
        (Some(name), forges) => forges.iter().find(|forge| forge.name.as_str() == name).ok_or_else(|| {
            CliError::usage(format!("there is no forge `{name}` in the configuration; available: {}", names()))
        }),
        (None, [only]) => Ok(only),
        (None, _) => Err(CliError::usage(format!("--name is missing; choose one of {}", names()))),
    }
}

fn confirm(question: &str) -> Result<bool, CliError> {
    let agreed = dialoguer::Confirm::new().with_prompt(question).interact();
    agreed.map_err(|error| CliError::failed(Failure::new("could not read the answer").caused_by(error)))
}

fn answers(args: &InitArgs, env: &Env, interactive: bool) -> Result<Answers, CliError> {
    let kind = match args.forge {
        Some(kind) => kind,
        None if interactive => choose_forge()?,
        None => return Err(CliError::usage("--forge is missing; choose github or gitea")),
    };
    let url = match (&args.url, kind) {
        (Some(url), _) => Some(url.clone()),
        (None, ForgeChoice::Github) => None,
        (None, ForgeChoice::Gitea) if interactive => Some(ask("Address of the server", None)?),
        (None, ForgeChoice::Gitea) => {
            return Err(CliError::usage("--url is missing; give the address of the server"));
        }
    };
    let word = if kind == ForgeChoice::Github { "github" } else { "gitea" };
    let or_ask = |given: &Option<String>, question: &str, default: &str| match given {
        Some(answer) => Ok(answer.clone()),
        None if interactive => ask(question, Some(default)),
        None => Ok(default.to_owned()),
    };
    let name = or_ask(&args.name, "Short name of the forge", word)?;
    let variable = format!("RALPH_{}_TOKEN", name.to_uppercase().replace('-', "_"));
    let auth = match (args.app_id, &args.private_key_file) {
        (Some(_), _) if kind == ForgeChoice::Gitea => {
            return Err(CliError::usage("only GitHub supports Apps; use --token-env"));
        }
        (Some(id), Some(key)) => Auth::App { id, key: key.clone() },
        _ => Auth::TokenEnv(or_ask(&args.token_env, "Environment variable with the access token", &variable)?),
    };
    let backend = or_ask(&args.backend, "Backend that runs agents", "claude")?;
    if !presets::is_known(&backend) {
        let known = presets::names().join(", ");
        return Err(CliError::usage(format!("there is no backend `{backend}`; choose one of {known}")));
    }
    let public_url = match &args.public_url {
        None if interactive => {
            Some(ask("Address at which the forge reaches this service", Some("http://localhost:8080"))?)
        }
        given => given.clone(),
    };
    let login_file = match found(&backend, env) {
        Some(FoundLogin::File(file)) if interactive && confirm(&question(&backend, &file))? => Some(file),
        _ => None,
    };
    Ok(Answers { kind, name, url, auth, backend, login_file, public_url })
}

fn ask(question: &str, default: Option<&str>) -> Result<String, CliError> {
    let mut input = dialoguer::Input::<String>::new().with_prompt(question);
    if let Some(default) = default {
        input = input.default(default.to_owned());
    }
    input.interact_text().map_err(|error| CliError::failed(Failure::new("could not read the answer").caused_by(error)))
}

fn choose_forge() -> Result<ForgeChoice, CliError> {
    let choice =
        dialoguer::Select::new().with_prompt("Forge").items(["GitHub", "Gitea or Forgejo"]).default(0).interact();
    match choice.map_err(|error| CliError::failed(Failure::new("could not read the answer").caused_by(error)))? {
        0 => Ok(ForgeChoice::Github),
        _ => Ok(ForgeChoice::Gitea),
    }
}

/// Validates the configuration, writes a webhook secret unless one exists, then writes the configuration. Returns the
/// path of the secret.
fn write(file: &Path, answers: &Answers) -> Result<PathBuf, CliError> {
    let secret_name = format!("{}-webhook-secret", answers.name);
    let text = answers.entry(&secret_name).file();
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |what: &Path, error: std::io::Error| {
        CliError::failed(Failure::new(format!("could not write {}", what.display())).caused_by(error))
    };
    validate(&text, answers, &secret_name)?;
    let secret = folder.join(&secret_name);
    if !secret.exists() {
        let value = random_secret()
            .map_err(|error| CliError::failed(Failure::new("could not read /dev/urandom").caused_by(error)))?;
        write_private(&secret, &value).map_err(|error| failed(&secret, error))?;
    }
    let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(|error| failed(folder, error))?;
    draft.write_all(text.as_bytes()).map_err(|error| failed(file, error))?;
    draft.persist(file).map_err(|error| failed(file, error.error))?;
    Ok(secret)
}

/// Validates the configuration as the service would, with placeholder secrets.
fn validate(text: &str, answers: &Answers, secret_name: &str) -> Result<(), CliError> {
    let failed =
        |error: std::io::Error| CliError::failed(Failure::new("could not write a temporary file").caused_by(error));
    let folder = tempfile::tempdir().map_err(failed)?;
    std::fs::write(folder.path().join("stand-in"), "x".repeat(2 * SECRET_BYTES)).map_err(failed)?;
    let mut text = text.replace(&quoted(secret_name), &quoted("stand-in"));
    let mut variables = Vec::new();
    match &answers.auth {
        Auth::TokenEnv(name) => variables.push((name.as_str(), "token")),
        // The key may not exist yet; `ralph-bot check` verifies it.
        Auth::App { key, .. } => text = text.replace(&quoted(&key.display().to_string()), &quoted("stand-in")),
    }
    let parsed = Config::parse(&folder.path().join("ralph-control.yaml"), &text, &Env::of(variables));
    parsed.map(|_| ()).map_err(|problems| {
        let lines: Vec<String> = problems.0.into_iter().map(|problem| problem.message).collect();
        CliError::usage(lines.join("\n"))
    })
}

fn next_steps(answers: &Answers, file: &Path, secret: &Path) -> Vec<String> {
    let mut steps = Vec::new();
    if let Auth::TokenEnv(name) = &answers.auth {
        steps.push(format!("store the access token in the environment variable {name}"));
    }
    let base = answers.public_url.as_deref().unwrap_or("http://ADDRESS").trim_end_matches('/');
    let by_command = match answers.auth {
        Auth::TokenEnv(_) => "`ralph-bot init --webhook --repository OWNER/NAME` does this and tests it",
        Auth::App { .. } => "`ralph-bot init --webhook` prints all settings of the App",
    };
    steps.push(format!(
        "configure the forge to send webhooks (JSON) to {base}/webhooks/{} with the secret in {}; {by_command}",
        answers.name,
        secret.display()
    ));
    steps.push(format!("ralph-bot check --config {}", file.display()));
    steps
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, CliCommand};
    use crate::config::{ForgeAuth, ForgeKind};

    fn init(folder: &Path, options: &str) -> CliResult {
        let file = folder.join("ralph-control.yaml").display().to_string();
        let fixed = ["ralph-bot", "--config", &file, "--json", "init"];
        let cli = Cli::try_parse_from(fixed.into_iter().chain(options.split_whitespace())).expect("arguments");
        let CliCommand::Init(args) = &cli.command else { panic!("init") };
        run(args, &cli.global, &Env::default())
    }

    #[test]
    fn written_configuration_is_valid() {
        let folder = tempfile::tempdir().expect("a folder");
        init(folder.path(), "--yes --forge gitea --url https://git.example.org --public-url https://r.example.org")
            .expect("written");
        let file = folder.path().join("ralph-control.yaml");
        let env = Env::of([("RALPH_GITEA_TOKEN", "t"), ("ANTHROPIC_API_KEY", "k")]);
        let config = Config::load(&file, &env).expect("valid");
        assert_eq!((config.forges[0].kind, config.forges[0].name.as_str()), (ForgeKind::Gitea, "gitea"));
        assert_eq!(config.backends["claude"].env[0].0, "ANTHROPIC_API_KEY", "it could not sign in without");
        assert_eq!(config.server.public_url.map(|url| url.to_string()).as_deref(), Some("https://r.example.org/"));
    }

    #[test]
    fn app_is_written_with_its_key() {
        let folder = tempfile::tempdir().expect("a folder");
        init(folder.path(), "--yes --forge github --name gh --app-id 7 --private-key-file key.pem --backend codex")
            .expect("written");
        std::fs::write(folder.path().join("key.pem"), "key").expect("written");
        let config = Config::load(&folder.path().join("ralph-control.yaml"), &Env::default()).expect("valid");
        assert!(matches!(config.forges[0].auth, ForgeAuth::App { id: 7, .. }));
    }

    #[test]
    fn secret_is_private_and_kept_on_force() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        init(folder.path(), "--yes --forge github").expect("written");
        let path = folder.path().join("github-webhook-secret");
        let secret = std::fs::read_to_string(&path).expect("a secret");
        assert_eq!(secret.len(), 2 * SECRET_BYTES);
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);

        let again = init(folder.path(), "--yes --forge github").expect_err("it exists");
        assert!(again.to_string().ends_with("exists; --force replaces it, --config names another file"), "{again}");
        init(folder.path(), "--yes --force --forge github").expect("replaced");
        assert_eq!(std::fs::read_to_string(&path).expect("a secret"), secret);
    }

    #[test]
    fn webhooks_need_a_token_and_a_repository() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = "--yes --forge gitea --url http://127.0.0.1:1 --public-url https://r.example.org";
        init(folder.path(), first).expect("written");
        let without_token = init(folder.path(), "--yes --webhook --repository a/b").expect_err("no token");
        assert!(without_token.to_string().contains("RALPH_GITEA_TOKEN"), "{without_token}");
        assert_eq!(without_token.exit_code(), 2);

        let env = Env::of([("RALPH_GITEA_TOKEN", "t")]);
        let config = Config::load(&folder.path().join("ralph-control.yaml"), &env).expect("valid");
        assert_eq!(chosen(&config, None).expect("the only one").name.as_str(), "gitea");
        let error = chosen(&config, Some("other")).expect_err("no such forge");
        assert!(error.to_string().contains("available: gitea"), "{error}");
        assert!(Cli::try_parse_from(["ralph-bot", "init", "--create-app", "--webhook"]).is_err(), "one or the other");
    }

    #[test]
    fn invalid_answers_write_no_files() {
        let folder = tempfile::tempdir().expect("a folder");
        for (options, says) in [
            ("--yes", "--forge is missing"),
            ("--yes --forge gitea", "--url is missing"),
            ("--yes --forge gitea --url nonsense", "expected an address"),
            ("--yes --forge github --name Upper", "lower-case"),
            ("--yes --forge github --name ../x", "lower-case"),
            ("--yes --forge github --backend nobody", "choose one of claude"),
            ("--yes --forge gitea --url https://x --app-id 1 --private-key-file k", "only GitHub supports Apps"),
        ] {
            let error = init(folder.path(), options).expect_err(options);
            assert!(error.to_string().contains(says), "{options}: {error}");
            assert_eq!(error.exit_code(), 2);
            assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "{options}");
        }
    }
}
