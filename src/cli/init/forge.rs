//! Set-up of a forge by `ralph-bot init`: a GitHub App from its manifest, or the token of the bot's account.

use std::io::{IsTerminal as _, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::super::serve::{INTERRUPTED, Signals};
use super::{ForgeChoice, InitArgs, chosen};
use crate::agent::presets;
use crate::cli::{CliError, CliResult, Global, block_on, print};
use crate::clock::Clock;
use crate::config::forge_entry::has_forge;
use crate::setup::{
    self, AppRequest, BotTokenRequest, CompleteOptions, CreatedForge, OperatorFileLocation, SetupMode, SetupReport,
    SetupServer, TokenSource,
};

/// Time between two checks whether the App has been installed.
const LOOK: Duration = Duration::from_secs(3);
/// Maximum size of a token, in bytes.
const MAX_TOKEN: u64 = 4096;

fn backend(args: &InitArgs) -> Result<String, CliError> {
    let backend = args.backend.clone().unwrap_or_else(|| "claude".to_owned());
    match presets::is_known(&backend) {
        true => Ok(backend),
        false => Err(CliError::usage(format!(
            "there is no backend `{backend}`; choose one of {}",
            presets::names().join(", ")
        ))),
    }
}

/// Creates a GitHub App. Serves a page on loopback with a button that leads to GitHub, and waits for GitHub's response
/// and the installation.
pub(super) fn create_app(args: &InitArgs, global: &Global, place: OperatorFileLocation) -> CliResult {
    if args.forge == Some(ForgeChoice::Gitea) {
        return Err(CliError::usage("only GitHub has Apps; use --token-file for Gitea and Forgejo"));
    }
    let request = AppRequest {
        name: args.name.clone().unwrap_or_else(|| "github".to_owned()),
        url: args.url.clone(),
        api_url: args.api_url.clone(),
        organization: args.organization.clone(),
        public_url: args.public_url.clone(),
        backend: backend(args)?,
    };
    block_on(async {
        let mut signals = Signals::new()?;
        if setup::pending(&place).map_err(CliError::failed)?.is_some() {
            let created = setup::configure(&place).map_err(CliError::failed)?;
            return installed(global, &place, created, &mut signals).await;
        }
        // Problems are reported before a page is opened.
        let nowhere = Url::parse("http://127.0.0.1/").map_err(|error| CliError::failed(Failure::of(error)))?;
        request.clone().start(&place, nowhere, None).map_err(CliError::usage)?;
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = SetupServer::start(place.clone(), SetupMode::CreateApp(request), listen, Clock::System).await;
        let server =
            server.map_err(|error| CliError::failed(Failure::new("cannot listen on 127.0.0.1").caused_by(error)))?;
        let (link, port) = (server.link(), server.address.port());
        if global.json {
            print(&format!("{}\n", serde_json::json!({ "open": link.expose_secret() })))?;
        } else {
            print(&format!(
                "Open this address in a browser, and create the App there:\n\n    {}\n\n\
                 On another machine, first run: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE\n\n\
                 Waiting for GitHub's answer, with which the configuration is written; then the App is to be installed.\n\
                 Ctrl-C ends this without a change.\n",
                link.expose_secret()
            ))?;
        }
        let failed = |why: &str| anstream::eprintln!("{why}");
        let created = tokio::select! {
            created = server.created(failed) => created,
            () = signals.next() => {
                server.stop().await;
                let _ = print("Stopped; nothing was written.\n");
                return Ok(ExitCode::from(INTERRUPTED));
            }
        };
        let outcome = installed(global, &place, created, &mut signals).await;
        server.stop().await;
        outcome
    })
}

/// Reports a created App, and waits until it is installed.
async fn installed(
    global: &Global,
    place: &OperatorFileLocation,
    created: CreatedForge,
    signals: &mut Signals,
) -> CliResult {
    let page = &created.installation_page;
    if global.json {
        print(&format!("{}\n", serde_json::json!({ "created": created.report, "install": page.as_str() })))?;
    } else {
        print(&format!(
            "{}\nInstall the App on the repositories that it works on:\n\n    {page}\n\nWaiting for the installation; Ctrl-C leaves it for later.\n",
            created.report.text()
        ))?;
    }
    let config = place.config()?;
    let forge = config.forge(&created.name).ok_or_else(|| CliError::failed("the configured forge no longer exists"))?;
    let waiting = async {
        let mut told = None;
        loop {
            match setup::installed_on(forge).await {
                Ok(names) if !names.is_empty() => return names,
                Ok(_) => {}
                Err(problem) => {
                    let why = format!("{problem:#}");
                    if told.as_ref() != Some(&why) {
                        anstream::eprintln!("{why}");
                        told = Some(why);
                    }
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let names = tokio::select! {
        names = waiting => names,
        () = signals.next() => Vec::new(),
    };
    next_steps(global, &SetupReport::default(), names.first().map(String::as_str), &names)
}

/// Sets up a forge with the token of the bot's account, or the missing parts of a configured forge.
pub(super) fn set_up(args: &InitArgs, global: &Global, place: &OperatorFileLocation) -> CliResult {
    let is_configured = has_forge(&place.file, &place.env)?;
    let request = match is_configured && args.token_file.is_none() {
        true => None,
        false => Some(request(args, place)?),
    };
    block_on(async {
        let mut report = SetupReport::default();
        if let Some(request) = request {
            report = request.configure(place).await.map_err(CliError::failed)?;
        }
        let config = place.config()?;
        let forge = chosen(&config, args.name.as_deref())?;
        let options =
            CompleteOptions { repositories: &args.repository, patience: setup::DELIVERY_TIMEOUT, routes: None };
        report.steps.extend(setup::complete(&config, forge, options).await?.steps);
        next_steps(global, &report, args.repository.first().map(String::as_str), &args.repository)
    })
}

fn request(args: &InitArgs, place: &OperatorFileLocation) -> Result<BotTokenRequest, CliError> {
    if args.forge == Some(ForgeChoice::Github) {
        return Err(CliError::usage("use --create-app for GitHub, or --token-env"));
    }
    let url = args.url.clone().ok_or_else(|| CliError::usage("--url is missing; give the address of the server"))?;
    let name = args.name.clone().unwrap_or_else(|| "gitea".to_owned());
    let token = match &args.token_file {
        Some(file) if file == "-" => TokenSource::Given(from_standard_input()?),
        Some(file) => {
            let path =
                std::path::absolute(file).map_err(|error| CliError::usage(Failure::new(file).caused_by(error)))?;
            let text =
                std::fs::read_to_string(&path).map_err(|error| CliError::usage(Failure::new(file).caused_by(error)))?;
            TokenSource::File(path.display().to_string(), SecretString::from(text.trim()))
        }
        None => {
            let usual = format!("RALPH_{}_TOKEN", name.to_uppercase().replace('-', "_"));
            let variable = args.token_env.clone().unwrap_or(usual);
            let token = place.env.get(&variable).filter(|token| !token.trim().is_empty()).ok_or_else(|| {
                CliError::usage(format!("no token: set the environment variable {variable}, or give --token-file FILE (`-` reads standard input)"))
            })?;
            TokenSource::Variable(variable, SecretString::from(token))
        }
    };
    Ok(BotTokenRequest { name, url, token, public_url: args.public_url.clone(), backend: backend(args)? })
}

fn from_standard_input() -> Result<SecretString, CliError> {
    let failed = |error: std::io::Error| CliError::failed(Failure::new("could not read the token").caused_by(error));
    if std::io::stdin().is_terminal() {
        let asked = dialoguer::Password::new().with_prompt("Token of the bot's account").interact();
        return asked.map(SecretString::from).map_err(|dialoguer::Error::IO(error)| failed(error));
    }
    let mut text = String::new();
    std::io::stdin().take(MAX_TOKEN).read_to_string(&mut text).map_err(failed)?;
    Ok(SecretString::from(text.trim()))
}

/// Prints a report and the next steps. The exit code is 1 if a step failed.
fn next_steps(global: &Global, report: &SetupReport, first: Option<&str>, repositories: &[String]) -> CliResult {
    let trial = format!("ralph-bot init --try {}", first.unwrap_or("OWNER/NAME"));
    let next = [trial.as_str(), "ralph-bot check", "ralph-bot serve"];
    if global.json {
        let good = report.is_good();
        let json = serde_json::json!({
            "steps": report.steps, "good": good, "changed": report.has_changed(), "repositories": repositories, "next": next,
        });
        print(&format!("{json}\n"))?;
    } else {
        let steps = if report.steps.is_empty() { String::new() } else { report.text() };
        print(&format!("{steps}Next:\n  {}\n", next.join("\n  ")))?;
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
