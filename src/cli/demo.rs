//! `ralph-bot demo`: runs a complete loop on this machine with a fake forge, a sample repository with failing tests, a
//! scripted agent, and the real service.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use clap::Args;
use ralph_types::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::{CliError, CliResult};
use super::global::Global;
use super::print;
use super::serve::{INTERRUPTED, Signals};
use crate::app::{Application, Options};
use crate::clock::Clock;
use crate::config::{Config, Env};
use crate::domain::loops::{Loop, LoopState};
use crate::domain::model::ids::{AccountKind, Number, RepoId, Timestamp, User};
use crate::forge::http::RateSettings;
use crate::process::{ProbeSettings, SandboxTier, probe_sandbox};
use crate::store::loops;
use fake_forge::{Access, Dialect, FakeForge};

/// Arguments of `demo`. `--json` prints one JSON line per event, the last with `"state":"review"`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Exit when the pull request is ready, instead of waiting for Ctrl-C
    #[arg(long)]
    pub exit: bool,
    /// Run without pauses for the reader
    #[arg(long)]
    pub fast: bool,
}

/// Maximum time until the pull request is ready; usually it takes seconds.
const READY_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum time until the pull request is ready if a person may answer, who needs time to read.
const WATCHED_TIMEOUT: Duration = Duration::from_secs(3600);
/// Time for which the demo waits for a person at a terminal to answer an escalation before it answers itself.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Time after which a demo that is ready ends by itself, because the person who could stop it may be absent.
const LINGER: Duration = Duration::from_secs(3600);
/// Interval between two looks whether somebody still reads the output.
const READER_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Secret of the demo's webhook.
const SECRET: &str = "a-secret-of-the-demo-that-signs-its-webhooks";

/// Files of the sample repository.
const FILES: &[(&str, &str, bool)] = &[
    ("README.md", include_str!("../../templates/demo/README.md"), false),
    ("stats.sh", include_str!("../../templates/demo/stats.sh"), true),
    ("test.sh", include_str!("../../templates/demo/test.sh"), true),
    (".ralph.yml", include_str!("../../templates/demo/ralph.yml"), false),
];
const ISSUE_TITLE: &str = "The statistics script fails its own tests";
const ISSUE_BODY: &str = include_str!("../../templates/demo/issue.md");
/// Prefix of an escalation issue's title.
const ESCALATION: &str = "ralph needs a decision";
/// Reply of the simulated maintainer to the escalation.
const ANSWER: &str = "/ralph resume `sort` compares text, so 9 comes after 10: sort by number.";
const AGENT: &str = include_str!("../../templates/demo/agent.sh");

/// Runs the demo.
pub fn run(args: &DemoArgs, global: &Global, env: &Env) -> CliResult {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed(Failure::new("could not start the demo").caused_by(error)))?;
    let outcome = runtime.block_on(demo(args, global.json, env));
    runtime.shutdown_timeout(Duration::from_secs(2));
    match outcome {
        Ok(code) => Ok(code),
        Err(error) => Err(CliError::failed(Failure::of(error))),
    }
}

async fn demo(args: &DemoArgs, json: bool, env: &Env) -> anyhow::Result<ExitCode> {
    let screen = Screen { json };
    let mut signals = Signals::new()?;
    let mut hangup = signal(SignalKind::hangup()).context("could not listen for signals")?;
    let folder =
        tempfile::Builder::new().prefix("ralph-demo-").tempdir().context("could not create a temporary folder")?;
    let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.context("could not start the demo's forge")?;
    let maintainer = forge.add_user("mira", AccountKind::User);
    let bot = forge.add_user("ralph-bot", AccountKind::Bot);
    let repo = forge.create_repo("mira", "numbers", FILES).await?;
    forge.grant(repo, &bot, Access::Admin)?;

    let app = start(folder.path(), &forge, &bot, args, env).await?;
    let story = Story { forge: &forge, repo, maintainer: &maintainer, app: &app, screen: &screen };
    let outcome = tokio::select! {
        outcome = story.play(args.exit) => outcome,
        () = stopped(&mut signals, &mut hangup) => Ok(()),
    };
    // In order in any case: an agent may be running, and the files are deleted afterwards.
    tokio::select! {
        _ = app.stop() => {}
        () = signals.next() => return Ok(ExitCode::from(INTERRUPTED)),
    }
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Waits until the demo should end: after a signal (also of a closed terminal), or after the reader of its output closed the
/// pipe. Polls for the reader as well, because a program that ignores hang-ups (`nohup`, some job runners) gets no signal.
async fn stopped(signals: &mut Signals, hangup: &mut Signal) {
    let unread = async {
        while is_read(std::io::stdout()) {
            tokio::time::sleep(READER_INTERVAL).await;
        }
    };
    tokio::select! {
        () = signals.next() => {}
        _ = hangup.recv() => {}
        () = unread => {}
    }
}

/// Whether text written to `output` can still be read: not after its terminal, or the other end of its pipe, was closed.
fn is_read(output: impl AsFd) -> bool {
    let mut output = [PollFd::new(&output, PollFlags::empty())];
    let polled = poll(&mut output, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    polled.is_err() || !output[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// The demo's story: an issue, its loop, and the answer to an escalation.
struct Story<'a> {
    forge: &'a FakeForge,
    repo: RepoId,
    maintainer: &'a User,
    app: &'a Application,
    screen: &'a Screen,
}

impl Story<'_> {
    /// Plays the story to its end; then, unless the demo `exits`, waits for somebody to stop it.
    async fn play(&self, exits: bool) -> anyhow::Result<()> {
        let Self { forge, repo, maintainer, app, screen } = *self;
        let address = app.address.context("the service does not listen")?;
        forge.add_hook(repo, &format!("http://{address}/webhooks/demo"), SECRET).await?;
        let issue = forge.open_issue(maintainer, repo, ISSUE_TITLE, ISSUE_BODY, &[]).await?;
        let dashboard = app.dashboard.as_ref().map(|dashboard| dashboard.link().expose_secret().to_owned());
        let dashboard = dashboard.context("the service has no dashboard")?;
        let page = format!("{}mira/numbers/issues/{issue}", forge.url());
        screen.say(
            "opened",
            &format!(
                "mira opened an issue: {ISSUE_TITLE}\n{page}\nThe dashboard, with buttons for each command: {dashboard}\n\
                 Open them in a browser; Ctrl-C stops the demo."
            ),
            json!({ "url": page, "issue": issue.0, "dashboard": dashboard }),
        );
        forge.label(maintainer, repo, issue, "ralph:run").await?;
        screen.say("labeled", "mira labeled it ralph:run", json!({ "label": "ralph:run" }));

        let mut viewer = IssueViewer {
            forge,
            repo,
            maintainer,
            seen: HashMap::new(),
            state: None,
            answered: false,
            wait: answer_wait(exits, std::io::stdout().is_terminal()),
            escalated: None,
        };
        let limit = if viewer.wait.is_zero() { READY_TIMEOUT } else { WATCHED_TIMEOUT };
        let watched = tokio::time::timeout(limit, viewer.watch(app, screen)).await;
        let last = watched.context("the pull request was not ready in time")??;
        forge.flush().await;
        viewer.look(screen);
        let pull = last.pull.opened.as_ref().map(|p| p.url.clone()).unwrap_or_default();
        let (event, words) = match last.state {
            LoopState::Aborted => ("aborted", format!("The loop ended by a command: {}", last.why)),
            _ => {
                let iterations = last.spent.iterations;
                let words = format!(
                    "The pull request is ready after {iterations} iterations; every check passed in a fresh checkout: {pull}"
                );
                ("ready", words)
            }
        };
        screen.say(
            event,
            &words,
            json!({ "state": last.state.as_str(), "pull": pull, "iterations": last.spent.iterations, "loop": last.id }),
        );
        if !exits {
            let words = "Ctrl-C stops the demo and deletes its files; without it, the demo ends in an hour.";
            screen.say("waiting", words, json!({ "seconds": LINGER.as_secs() }));
            tokio::time::sleep(LINGER).await;
        }
        Ok(())
    }
}

/// Returns the time for which a person may answer an escalation; zero without a viewer.
fn answer_wait(exits: bool, is_terminal: bool) -> Duration {
    if exits || !is_terminal { Duration::ZERO } else { ANSWER_WAIT }
}

async fn start(
    folder: &Path,
    forge: &FakeForge,
    bot: &User,
    args: &DemoArgs,
    env: &Env,
) -> anyhow::Result<Application> {
    let agent = folder.join("agent.sh");
    std::fs::write(&agent, AGENT).context("could not write the demo's agent")?;
    let sandbox = probe_sandbox(&ProbeSettings {
        folder: folder.to_owned(),
        program: std::env::current_exe().ok(),
        ..ProbeSettings::default()
    })
    .await;
    // The demo also runs without a sandbox, because it only runs its own script.
    let required = if sandbox.tier == SandboxTier::A { "auto" } else { "none" };
    let pause = if args.fast { "0" } else { "3" };
    let text = format!(
        r#"server: {{ listen: "127.0.0.1:0" }}
data_dir: ./data
forges:
  - {{ name: demo, kind: gitea, url: "{url}", token_env: DEMO_TOKEN, webhook_secret_env: DEMO_SECRET }}
sandbox: {{ required: {required}, read_only: ["{folder}"] }}
limits: {{ iterations: 20, comments_per_hour: 60, comments_per_day: 60 }}
backends:
  scripted: {{ type: script, command: ["/bin/sh", "{folder}/agent.sh", "{pause}"], roles: [agent] }}
"#,
        url = forge.url(),
        folder = folder.display(),
    );
    let token = forge.token_for(bot);
    let mut known = vec![("DEMO_TOKEN", token.as_str()), ("DEMO_SECRET", SECRET)];
    known.extend(["PATH", "HOME"].iter().filter_map(|name| Some((*name, env.get(name)?))));
    let env = Env::of(known);
    let config = Config::parse(&folder.join("ralph-control.yaml"), &text, &env)?;
    let interval = if args.fast { 0 } else { 300 };
    let mut options = Options {
        rates: RateSettings { mutation_interval_ms: Some(interval), ..RateSettings::default() },
        sandbox: Some(sandbox),
        ..Options::of(&config)
    };
    options.pace.poll = Duration::from_millis(100);
    options.rounds.live = Duration::from_secs(10);
    Application::start(&config, &env, options).await
}

/// Writes a line. Output without a reader ends the demo cleanly by [`stopped`], not by an error.
fn write(line: &str) {
    let _ = print(&format!("{line}\n"));
}

/// Output of the demo, as text or as JSON lines.
struct Screen {
    json: bool,
}

impl Screen {
    fn say(&self, event: &str, words: &str, mut facts: serde_json::Value) {
        if self.json {
            facts["event"] = event.into();
            write(&facts.to_string());
        } else {
            let bold = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
            write(&format!("{bold}▌{bold:#} {}\n", words.replace('\n', "\n  ")));
        }
    }

    fn comment(&self, on: Number, who: &str, body: &str, edited: bool) {
        if self.json {
            let event = if edited { "edited" } else { "comment" };
            self.say(event, "", json!({ "on": on.0, "by": who, "text": body }));
            return;
        }
        let dim = Style::new().dimmed();
        let what = if edited { "edited a comment" } else { "commented" };
        let mut lines = vec![format!("{dim}── {who} {what} on #{on} ──{dim:#}")];
        lines.extend(body.lines().filter(|line| !line.starts_with("<!--")).map(|line| format!("   {line}")));
        lines.push(String::new());
        write(&lines.join("\n"));
    }
}

/// Viewer of the forge's issues, which remembers the printed texts.
struct IssueViewer<'a> {
    forge: &'a FakeForge,
    repo: RepoId,
    maintainer: &'a User,
    /// Printed text of each comment (by its id) and of each issue (by its negative number).
    seen: HashMap<i64, String>,
    state: Option<LoopState>,
    /// Whether the simulated maintainer has answered the escalation.
    answered: bool,
    /// Time for which a person may answer before the simulated maintainer does.
    wait: Duration,
    /// Time at which an escalation was opened; `None` if there is none.
    escalated: Option<Timestamp>,
}

impl IssueViewer<'_> {
    /// Prints events until the pull request is ready for review, or a person aborts the loop.
    async fn watch(&mut self, app: &Application, screen: &Screen) -> anyhow::Result<Loop> {
        loop {
            self.look(screen);
            let newest = app.engine.store.read(|c| loops::list(c, false, 1)).await?.into_iter().next();
            if let Some(current) = newest {
                if self.state != Some(current.state) {
                    self.state = Some(current.state);
                    let words = format!("The loop {} is {}: {}", current.id, current.state.as_str(), current.why);
                    let facts = json!({ "state": current.state.as_str(), "why": current.why, "loop": current.id });
                    // The caller prints the last line, with the pull request.
                    if current.state != LoopState::Review {
                        screen.say("state", &words, facts);
                    }
                }
                match current.state {
                    LoopState::Paused if !self.answered => self.answer(screen).await?,
                    LoopState::Paused => {}
                    LoopState::Aborted => return Ok(current),
                    _ => self.escalated = None,
                }
                let ended = matches!(current.state, LoopState::Failed | LoopState::LimitReached | LoopState::Closed);
                anyhow::ensure!(!ended, "the loop is {}: {}", current.state.as_str(), current.why);
                let ready = current.pull.opened.as_ref().is_some_and(|p| self.is_ready(p.number));
                if current.state == LoopState::Review && ready {
                    return Ok(current);
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Replies to the escalation as a maintainer, if it exists and no other answer arrived in time.
    async fn answer(&mut self, screen: &Screen) -> anyhow::Result<()> {
        let escalation = self.forge.with(|state| {
            let repo = state.repo(self.repo).ok()?;
            repo.issues.values().find(|i| i.open && i.title.starts_with(ESCALATION)).map(|i| i.number)
        });
        let Some(number) = escalation else { return Ok(()) };
        let Some(since) = self.escalated else {
            self.escalated = Some(Clock::System.now());
            // The escalation is printed before its question.
            self.look(screen);
            if !self.wait.is_zero() {
                let seconds = self.wait.as_secs();
                let words = format!(
                    "Answer on the issue or by a button of the dashboard; after {seconds} s, mira does it for you."
                );
                screen.say("waits", &words, json!({ "on": number.0, "seconds": seconds }));
            }
            return Ok(());
        };
        if Clock::System.now().since(since) < self.wait.as_millis() as i64 {
            return Ok(());
        }
        self.answered = true;
        self.look(screen);
        screen.say(
            "answered",
            &format!("mira replies on #{number}: {ANSWER}"),
            json!({ "on": number.0, "text": ANSWER }),
        );
        self.forge.comment(self.maintainer, self.repo, number, ANSWER).await?;
        Ok(())
    }

    fn is_ready(&self, pull: Number) -> bool {
        self.forge.with(|state| state.issue(self.repo, pull).is_ok_and(|i| i.open && !i.title.starts_with("WIP:")))
    }

    /// Prints new and changed comments, and issues that the bot opened.
    fn look(&mut self, screen: &Screen) {
        let (mine, repo) = (self.maintainer.id, self.repo);
        let numbers: Vec<(Number, String, String)> = self.forge.with(|state| {
            let issues = state.repo(repo).map(|r| r.issues.values().collect::<Vec<_>>()).unwrap_or_default();
            issues.iter().map(|i| (i.number, i.title.clone(), i.body.clone())).collect()
        });
        for (number, title, body) in numbers {
            // Ids of comments are positive, so issues use negative keys.
            if title.starts_with(ESCALATION) && self.seen.insert(-(number.0 as i64), String::new()).is_none() {
                screen.say("escalated", &format!("ralph-bot opened #{number}: {title}"), json!({ "issue": number.0 }));
                screen.comment(number, "ralph-bot", &body, false);
            }
            for comment in self.forge.comments(repo, number) {
                let before = self.seen.insert(comment.id.0, comment.body.clone());
                if before.as_ref() != Some(&comment.body) {
                    let who = if comment.author == Some(mine) { "mira" } else { "ralph-bot" };
                    screen.comment(number, who, &comment.body, before.is_some());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_of_the_output_is_present_until_it_closes() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        assert!(is_read(&writer));
        drop(reader);
        assert!(!is_read(&writer));
        let file = tempfile::tempfile().expect("a file");
        assert!(is_read(&file), "a file has no other end");
    }

    #[test]
    fn demo_waits_for_an_answer_only_at_an_open_terminal() {
        let table = [(false, true, ANSWER_WAIT), (true, true, Duration::ZERO), (false, false, Duration::ZERO)];
        for (exits, is_terminal, expected) in table {
            assert_eq!(answer_wait(exits, is_terminal), expected, "exits: {exits}, terminal: {is_terminal}");
        }
    }
}
