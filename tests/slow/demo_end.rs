//! The end of the demo: by a button, by a signal, or because its reader has left. The real binary, at a terminal and on a pipe.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{CWD, Mode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStdout, Command};

use crate::harness::parts::command;

const WAIT: Duration = Duration::from_secs(120);

/// A demo with a separate folder for its temporary files.
struct RunningDemo {
    folder: tempfile::TempDir,
    process: Child,
    /// Its output; `None` after its reader has left.
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl RunningDemo {
    /// Starts the command that `demo` builds from the program's path.
    fn start(demo: impl FnOnce(&str) -> Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("tmp")).expect("a folder");
        let mut command = demo(env!("CARGO_BIN_EXE_ralph-bot"));
        command.current_dir(folder.path()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", folder.path()).env("TERM", "xterm").env("TMPDIR", folder.path().join("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut process = command.spawn().expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("an output")).lines();
        Self { folder, process, lines: Some(lines) }
    }

    /// Starts the demo at a terminal, by a line of a shell in which `DEMO` stands for it.
    fn at_terminal(line: &str) -> Self {
        Self::start(|program| {
            let mut script = command("script");
            script.args(["-qefc", &line.replace("DEMO", &format!("{program} demo --fast --json")), "/dev/null"]);
            script
        })
    }

    /// Waits for an event of the demo, before which no automatic answer may occur, and returns it.
    async fn until(&mut self, event: &str) -> Value {
        let lines = self.lines.as_mut().expect("an output");
        let found = async {
            loop {
                let line = lines.next_line().await.expect("a line").expect("it runs");
                let line: Value = serde_json::from_str(line.trim()).unwrap_or_default();
                assert_ne!(line["event"], "answered", "nobody answers for the person");
                if line["event"] == event {
                    return line;
                }
            }
        };
        tokio::time::timeout(WAIT, found).await.unwrap_or_else(|_| panic!("no event {event}"))
    }

    /// Files that a demo that has ended left behind.
    fn remaining(&self) -> Vec<PathBuf> {
        let folder = std::fs::read_dir(self.folder.path().join("tmp")).expect("a folder");
        folder.flatten().map(|entry| entry.path()).collect()
    }
}

/// At a terminal, the demo waits for a person, and Abort ends it normally.
#[tokio::test]
async fn demo_at_a_terminal_waits_for_a_button() {
    let mut demo = RunningDemo::at_terminal("DEMO");
    let opened = demo.until("opened").await;
    let link = url::Url::parse(opened["dashboard"].as_str().expect("an address")).expect("an address");
    let token = link.query_pairs().find(|(name, _)| name == "token").expect("a token").1.into_owned();
    let id = loop {
        let line = demo.until("state").await;
        if line["state"] == "paused" {
            break line["loop"].as_str().expect("an id").to_owned();
        }
    };
    assert_eq!(demo.until("waits").await["seconds"], 60);
    // Another test of this process may have done so.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build();
    let button = link.join(&format!("/loops/{id}/commands")).expect("an address");
    let pressed = client.expect("a client").post(button).bearer_auth(&token);
    let pressed =
        pressed.header("content-type", "application/x-www-form-urlencoded").body("csrf=&command=/ralph+abort");
    let answer = pressed.send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 303);
    let last = demo.until("aborted").await;
    assert_eq!((last["state"].as_str(), last["loop"].as_str()), (Some("aborted"), Some(id.as_str())), "{last}");
    demo.until("waiting").await;
}

/// A demo that waits for a person writes no output, and gets no signal if its parent ignores SIGHUP.
#[tokio::test]
async fn demo_whose_terminal_is_closed_ends_without_a_signal() {
    let folder = tempfile::tempdir().expect("a folder");
    // Closed when the last process that has it has ended.
    let lives = folder.path().join("lives");
    rustix::fs::mkfifoat(CWD, &lives, Mode::RUSR | Mode::WUSR).expect("a pipe");
    let mut alive = pipe::OpenOptions::new().open_receiver(&lives).expect("a pipe");
    let mut demo = RunningDemo::at_terminal(&format!("trap '' HUP; exec DEMO 3>{}", lives.display()));
    demo.until("waits").await;
    demo.process.kill().await.expect("the terminal is closed");
    let ended = tokio::time::timeout(WAIT / 2, alive.read_to_end(&mut Vec::new())).await;
    ended.expect("the demo ends by itself").expect("a pipe");
    assert_eq!(demo.remaining(), Vec::<PathBuf>::new());
}

/// The demo stops its loop and deletes its files for every way to end it.
#[tokio::test]
async fn demo_stops_cleanly_on_signals_and_when_its_reader_leaves() {
    for ended_by in [Some(Signal::HUP), Some(Signal::TERM), Some(Signal::INT), None] {
        let mut demo = RunningDemo::start(|program| {
            let mut demo = command(program);
            demo.args(["demo", "--fast", "--json"]);
            demo
        });
        demo.until("labeled").await;
        match ended_by {
            Some(signal) => {
                let id = demo.process.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).expect("it runs");
                kill_process(id, signal).expect("it runs");
            }
            None => demo.lines = None,
        }
        let ended = tokio::time::timeout(WAIT / 2, demo.process.wait()).await;
        let ended = ended.unwrap_or_else(|_| panic!("{ended_by:?} does not end it")).expect("it ran");
        assert!(ended.success(), "{ended_by:?}: {ended}");
        assert_eq!(demo.remaining(), Vec::<PathBuf>::new(), "{ended_by:?}");
    }
}
