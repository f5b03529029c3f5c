//! `ralph-bot loops --server URL`: runs the same commands through the API of a running service.

use std::process::ExitCode;
use std::time::Duration;

use ralph_types::failure::Failure;
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::json;
use url::Url;

use super::text::{self, LoopRecord};
use super::{LIST_MAX, ListArgs, LoopsCommand, PauseArgs, ResumeArgs, ShowLoopArgs};
use crate::cli::{CliError, CliResult, one_line, print};
use crate::clock::Clock;
use crate::config::Env;
use crate::domain::knowledge::session::{SessionTurn, TurnRole};
use crate::domain::loops::command::PREFIX;
use crate::domain::model::ids::{
    AccountKind, ForgeName, LoopId, Money, Number, Ratio, RepoId, RepoRef, Timestamp, User, UserId,
};
use crate::domain::model::quantity::IterationLimit;
use crate::domain::report::loop_report::LoopReport;
use crate::store::listing::LoopRow;
use crate::web::api::problem::ApiProblem;
use crate::web::api::types::{ApiAudit, ApiCommandResult, ApiIterationDetail, ApiLoop, ApiLoopPage, ApiTurn};
use crate::web::api::{ROOT, VERSION_HEADER};

/// Default name of the environment variable with the token.
const TOKEN_VARIABLE: &str = "RALPH_TOKEN";
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of loops per page.
const PAGE: usize = 200;

/// Client for the loops of a running service.
pub(super) struct RemoteLoops {
    client: reqwest::Client,
    server: Url,
    token: SecretString,
    variable: String,
    json: bool,
}

impl RemoteLoops {
    /// Creates a client for a service.
    ///
    /// # Errors
    /// The address is invalid, or the environment variable with the token is not set.
    pub fn new(server: &str, variable: Option<&str>, json: bool, env: &Env) -> Result<Self, CliError> {
        let url = Url::parse(server).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.ok_or_else(|| CliError::usage("--server is not an address such as https://ralph.example.org"))?;
        let variable = variable.unwrap_or(TOKEN_VARIABLE).to_owned();
        let token = env.get(&variable).map(str::trim).filter(|token| !token.is_empty()).ok_or_else(|| {
            CliError::usage(format!(
                "environment variable {} is not set; set it to a personal token of {url}, which the dashboard makes",
                one_line(&variable)
            ))
        })?;
        // The provider may be installed already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A redirect would send the token to another place.
        let client = reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none()).build();
        let client = client.map_err(super::failed)?;
        Ok(Self { client, server: url, token: token.to_owned().into(), variable, json })
    }

    /// Runs a command.
    ///
    /// # Errors
    /// The service cannot be reached, refuses the request, or has another version.
    pub async fn run(&self, command: Option<&LoopsCommand>) -> CliResult {
        match command {
            None => self.list(false).await,
            Some(LoopsCommand::List(ListArgs { all })) => self.list(*all).await,
            Some(LoopsCommand::Show(args)) => self.show(args).await,
            Some(LoopsCommand::Report(args)) => {
                let report: LoopReport = self.get(&["loops", &args.id, "report"], &[]).await?;
                print(&text::report(&report, self.json)?)
            }
            Some(LoopsCommand::Export(args)) => {
                super::export(&self.record(&args.id).await?.current, args.file.as_deref(), self.json)
            }
            Some(LoopsCommand::Pause(args)) => self.steer(&args.id, &pause(args)).await,
            Some(LoopsCommand::Resume(args)) => self.steer(&args.id, &resume(args)).await,
            Some(LoopsCommand::Abort(args)) => {
                let line = format!("{PREFIX} abort {}", one_line(&args.reason.join(" ")));
                self.steer(&args.id, line.trim_end()).await
            }
        }
    }

    async fn list(&self, all: bool) -> CliResult {
        let (mut rows, mut cursor) = (Vec::new(), None);
        while rows.len() < LIST_MAX {
            let mut query = vec![("limit", PAGE.to_string())];
            query.extend((!all).then(|| ("open", "true".to_owned())));
            query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let page: ApiLoopPage = self.get(&["loops"], &query).await?;
            rows.extend(page.loops.iter().map(row).collect::<Result<Vec<_>, _>>()?);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        rows.truncate(LIST_MAX);
        print(&text::list(&rows, all, self.json, Clock::System.now()))
    }

    async fn show(&self, args: &ShowLoopArgs) -> CliResult {
        if args.report {
            let why = "--report sums up all loops of the database; run it without --server on the service's machine";
            return Err(CliError::usage(why.to_owned()));
        }
        if let Some(iteration) = args.prompt {
            let number = iteration.to_string();
            let found: ApiIterationDetail = self.get(&["loops", &args.id, "iterations", &number], &[]).await?;
            let turns = found.turns.unwrap_or_default();
            if turns.is_empty() {
                let why = "is stored, or you may not see it; old prompts are deleted";
                return Err(CliError::failed(format!("no prompt of iteration {iteration} {why}")));
            }
            let turns = turns.into_iter().map(|turn| session_turn(iteration, turn)).collect::<Result<Vec<_>, _>>()?;
            return print(&text::prompts(&turns, self.json)?);
        }
        let record = self.record(&args.id).await?;
        let now = Clock::System.now();
        match self.json {
            true => print(&text::record_json(&record, None, args.audit, now)?),
            false => print(&text::record_text(&record, None, args.audit, now)),
        }
    }

    /// Reads the complete record of a loop.
    async fn record(&self, id: &str) -> Result<LoopRecord, CliError> {
        let found: ApiAudit = self.get(&["loops", id, "audit"], &[]).await?;
        let version = found.version.clone();
        record(found).map_err(|error| self.other_version(&version, error))
    }

    /// Sends a command to a loop and prints the answer.
    async fn steer(&self, id: &str, line: &str) -> CliResult {
        let request = self.request(Method::POST, &["loops", id, "commands"])?.json(&json!({ "command": line }));
        let result: ApiCommandResult = self.sent(request).await?;
        let state = result.state.as_str();
        print(&text::answer(&result.loop_id, state, result.taken, &one_line(&result.says), self.json))?;
        Ok(ExitCode::SUCCESS)
    }

    fn request(&self, method: Method, path: &[&str]) -> Result<RequestBuilder, CliError> {
        let mut url = self.server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            // Below the path of the address, for services behind a proxy.
            segments.pop_if_empty().extend(ROOT.split('/').filter(|part| !part.is_empty())).extend(path);
        }
        url.set_query(None);
        let request = self.client.request(method, url).bearer_auth(self.token.expose_secret());
        Ok(request.header(ACCEPT, HeaderValue::from_static("application/json")))
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, String)]) -> Result<T, CliError> {
        let mut request = self.request(Method::GET, path)?.build().map_err(super::failed)?;
        if !query.is_empty() {
            request.url_mut().query_pairs_mut().extend_pairs(query);
        }
        self.sent(RequestBuilder::from_parts(self.client.clone(), request)).await
    }

    /// Sends a request and reads the answer.
    async fn sent<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, CliError> {
        let server = &self.server;
        let response = request.send().await.map_err(|error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(inner) = cause.source() {
                cause = inner;
            }
            CliError::failed(format!(
                "cannot reach {server}: {cause}; check the address, and that the service runs there"
            ))
        })?;
        let status = response.status();
        let version = response.headers().get(VERSION_HEADER).and_then(|value| value.to_str().ok()).map(one_line);
        let body = response
            .bytes()
            .await
            .map_err(|error| {
                Failure::new(format!("the connection to {server} broke off during its answer")).caused_by(error)
            })
            .map_err(|problem| CliError::failed(problem.with_hint("try again")))?;
        let Some(version) = version else {
            let why = "answered, but it has no API of ralph-bot at this address";
            return Err(CliError::failed(format!(
                "{server} {why} ({ROOT}, {status}); check --server, or update the service"
            )));
        };
        if status == StatusCode::UNAUTHORIZED {
            let why = "is unknown, expired or revoked; make a new one in the dashboard";
            return Err(CliError::failed(format!(
                "{server} refused the token in {}: it {why}",
                one_line(&self.variable)
            )));
        }
        if !status.is_success() {
            return Err(CliError::failed(match serde_json::from_slice::<ApiProblem>(&body) {
                Ok(problem) => one_line(&format!("{}; {}", problem.detail, problem.action)),
                Err(_) => format!("{server} answered {status}; see the log of the service"),
            }));
        }
        serde_json::from_slice(&body).map_err(|error| self.other_version(&version, error))
    }

    fn other_version(&self, version: &str, error: serde_json::Error) -> CliError {
        let own = env!("CARGO_PKG_VERSION");
        let problem = Failure::new(format!("cannot read the answer of {}", self.server)).caused_by(error);
        let version = one_line(version);
        CliError::failed(
            problem.with_hint(format!("the service has version {version}, this command {own}: use the same version")),
        )
    }
}

/// Converts an audit record from the API.
fn record(found: ApiAudit) -> Result<LoopRecord, serde_json::Error> {
    Ok(LoopRecord {
        current: serde_json::from_value(found.state)?,
        calls: serde_json::from_value(found.calls)?,
        history: serde_json::from_value(found.events)?,
        effects: serde_json::from_value(found.effects)?,
        trail: serde_json::from_value(found.decisions)?,
    })
}

fn row(of: &ApiLoop) -> Result<LoopRow, CliError> {
    let (owner, name) = of.repository.split_once('/').unwrap_or(("", &of.repository));
    Ok(LoopRow {
        id: LoopId::new(&of.id),
        // The id of the repository is not printed.
        repo: RepoRef { forge: ForgeName::new(&of.forge), id: RepoId(0), owner: owner.into(), name: name.into() },
        issue: Number(of.issue),
        title: of.title.clone(),
        url: of.url.clone(),
        state: of.state,
        waits: of.waits,
        person: User { id: UserId(0), login: of.person.clone(), kind: AccountKind::User },
        reason: of.reason.clone(),
        iterations: of.iteration,
        max_iterations: of.max_iterations.map_or(IterationLimit::UNLIMITED, IterationLimit::of),
        completion: Ratio::new(of.completion),
        cost: Money::from_usd(of.cost_usd),
        cost_limit: Money::from_usd(of.cost_limit_usd),
        branch: of.branch.clone(),
        pull: of.pull.clone(),
        created_at: moment_of(&of.created_at)?,
        updated_at: moment_of(&of.updated_at)?,
    })
}

fn session_turn(iteration: u32, turn: ApiTurn) -> Result<SessionTurn, CliError> {
    Ok(SessionTurn {
        iteration,
        attempt: turn.attempt,
        role: if turn.role == TurnRole::Agent.as_str() { TurnRole::Agent } else { TurnRole::Assistant },
        prompt: turn.prompt,
        response: turn.response,
        backend: turn.backend,
        model: turn.model,
        tokens_in: turn.tokens_in,
        tokens_out: turn.tokens_out,
        tokens_cached: turn.tokens_cached,
        cost: Money::from_usd(turn.cost_usd),
        estimated: turn.estimated,
        error: turn.error,
        learnings: Vec::new(),
        started: moment_of(&turn.started_at)?,
        ended: moment_of(turn.ended_at.as_ref().unwrap_or(&turn.started_at))?,
    })
}

fn moment_of(text: &str) -> Result<Timestamp, CliError> {
    let parsed: Result<jiff::Timestamp, _> = text.parse();
    let parsed = parsed.map_err(|_| CliError::failed(format!("the service sent the time {}", one_line(text))))?;
    Ok(Timestamp(parsed.as_millisecond()))
}

fn pause(args: &PauseArgs) -> String {
    let now = if args.now { " --now" } else { "" };
    with_text(format!("{PREFIX} pause{now}"), &args.reason)
}

fn resume(args: &ResumeArgs) -> String {
    let mut line = format!("{PREFIX} resume");
    let mut add = |name: &str, value: &str| {
        let escaped = one_line(value).replace('\\', "\\\\").replace('"', "\\\"");
        line.push_str(&format!(" {name} \"{escaped}\""));
    };
    if let Some(iterations) = args.max_iterations {
        add("--max-iterations", &iterations.to_string());
    }
    if let Some(timeout) = args.timeout {
        add("--timeout", &format!("{}s", timeout.as_seconds()));
    }
    if let Some(budget) = args.budget {
        add("--budget", &budget.to_string());
    }
    args.check.iter().for_each(|check| add("--check", check));
    args.backend.iter().for_each(|backend| add("--backend", backend));
    args.base.iter().for_each(|base| add("--base", base));
    with_text(line, &args.guidance)
}

/// Appends free text to a command, after the end of its options.
fn with_text(line: String, words: &[String]) -> String {
    let text = one_line(&words.join(" "));
    if text.is_empty() { line } else { format!("{line} -- {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::loops::RunOptions;
    use crate::domain::loops::command::{self, LoopCommand};
    use crate::domain::model::quantity;

    fn parsed(line: &str) -> LoopCommand {
        let mut commands = command::parse_typed(line);
        assert_eq!(commands.len(), 1, "{line}");
        commands.remove(0).expect(line)
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn arguments_become_the_command_of_a_comment() {
        let args = PauseArgs { id: "r-1".into(), now: true, reason: words("--now it is lunch") };
        let LoopCommand::Pause(command) = parsed(&pause(&args)) else { panic!("a pause") };
        assert_eq!((command.now, command.reason.as_str()), (true, "--now it is lunch"));
        let bare = ResumeArgs {
            id: "r-1".into(),
            max_iterations: None,
            timeout: None,
            budget: None,
            check: Vec::new(),
            backend: None,
            base: None,
            guidance: Vec::new(),
        };
        let LoopCommand::Resume(command) = parsed(&resume(&bare)) else { panic!("a resume") };
        assert_eq!((command.options, command.guidance.as_str()), (RunOptions::default(), ""));
        let all = ResumeArgs {
            max_iterations: Some(IterationLimit::of(40)),
            timeout: quantity::Duration::parse("90m"),
            budget: Some(2.5),
            check: vec![r#"sh -c "echo \"a b\"""#.into(), "./lint".into()],
            backend: Some("mine".into()),
            base: Some("next".into()),
            guidance: words("try --harder"),
            ..bare
        };
        let LoopCommand::Resume(command) = parsed(&resume(&all)) else { panic!("a resume") };
        let expected = RunOptions {
            checks: vec![r#"sh -c "echo \"a b\"""#.into(), "./lint".into()],
            max_iterations: Some(IterationLimit::of(40)),
            timeout_s: Some(5400),
            budget: Some(Money(2_500_000)),
            backend: Some("mine".into()),
            base: Some("next".into()),
            confirm: None,
        };
        assert_eq!((command.options, command.guidance.as_str()), (expected, "try --harder"));
    }

    #[test]
    fn invalid_addresses_and_missing_tokens_are_usage_errors() {
        let env = Env::of([("RALPH_TOKEN", "ralph_x"), ("EMPTY", " ")]);
        for server in ["", "ralph.example.org", "file:///etc/passwd", "ftp://ralph.example.org"] {
            let error = RemoteLoops::new(server, None, false, &env).err().expect(server);
            assert!(error.exit_code() == 2 && error.to_string().contains("--server"), "{error}");
        }
        for variable in ["OTHER", "EMPTY"] {
            let error = RemoteLoops::new("http://127.0.0.1:1", Some(variable), false, &env).err().expect(variable);
            assert!(error.to_string().contains(&format!("variable {variable} is not set")), "{error}");
        }
        assert!(RemoteLoops::new("http://127.0.0.1:1/base", None, false, &env).is_ok());
    }

    #[tokio::test]
    async fn unreachable_service_is_named() {
        let env = Env::of([("RALPH_TOKEN", "ralph_x")]);
        let remote = RemoteLoops::new("http://127.0.0.1:1/", None, false, &env).expect("prepared");
        let error = remote.run(None).await.expect_err("nobody listens");
        assert!(error.to_string().starts_with("cannot reach http://127.0.0.1:1/: "), "{error}");
        assert!(!error.to_string().contains("ralph_x"), "{error}");
    }
}
