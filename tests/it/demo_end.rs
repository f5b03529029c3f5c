//! The end of the demo: by a signal, or because nobody is left who reads it. The real binary, at a terminal and on a pipe.

use std::path::{Path, PathBuf};
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

/// A demo with a folder of its own for its temporary files.
struct RunningDemo {
    folder: tempfile::TempDir,
    process: Child,
    /// Its output; `None` once nobody reads it.
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl RunningDemo {
    /// Starts what `demo` makes of the demo's arguments and of its folder.
    fn start(demo: impl FnOnce(&str, &Path) -> Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("tmp")).expect("a folder");
        let mut command = demo(env!("CARGO_BIN_EXE_ralph-bot"), folder.path());
        command.current_dir(folder.path()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", folder.path()).env("TERM", "xterm").env("TMPDIR", folder.path().join("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut process = command.spawn().expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("an output")).lines();
        Self { folder, process, lines: Some(lines) }
    }

    /// Waits for an event of the demo.
    async fn until(&mut self, event: &str) {
        let lines = self.lines.as_mut().expect("an output");
        let found = async {
            loop {
                let line = lines.next_line().await.expect("a line").expect("it runs");
                let line: Value = serde_json::from_str(line.trim()).unwrap_or_default();
                if line["event"] == event {
                    return;
                }
            }
        };
        tokio::time::timeout(WAIT, found).await.unwrap_or_else(|_| panic!("no event {event}"));
    }

    /// Files that a demo that has ended left behind.
    fn remaining(&self) -> Vec<PathBuf> {
        let folder = std::fs::read_dir(self.folder.path().join("tmp")).expect("a folder");
        folder.flatten().map(|entry| entry.path()).collect()
    }
}

/// A demo that waits for a person writes nothing, and gets no signal where its starter ignores hang-ups.
#[tokio::test]
async fn demo_whose_terminal_is_closed_ends_without_a_signal() {
    let mut alive = None;
    let mut demo = RunningDemo::start(|program, folder| {
        // Closed when the last process that has it has ended.
        let lives = folder.join("lives");
        rustix::fs::mkfifoat(CWD, &lives, Mode::RUSR | Mode::WUSR).expect("a pipe");
        alive = Some(pipe::OpenOptions::new().open_receiver(&lives).expect("a pipe"));
        let line = format!("trap '' HUP; exec {program} demo --fast --json 3>{}", lives.display());
        let mut script = command("script");
        script.args(["-qefc", &line, "/dev/null"]);
        script
    });
    demo.until("waits").await;
    demo.process.kill().await.expect("the terminal is closed");
    let mut alive = alive.expect("a pipe");
    let ended = tokio::time::timeout(WAIT / 2, alive.read_to_end(&mut Vec::new())).await;
    ended.expect("the demo ends by itself").expect("a pipe");
    assert_eq!(demo.remaining(), Vec::<PathBuf>::new());
}

/// The demo stops its loop and deletes its files, whatever ends it.
#[tokio::test]
async fn demo_is_ended_in_order_by_signals_and_by_a_reader_that_leaves() {
    for ended_by in [Some(Signal::HUP), Some(Signal::TERM), Some(Signal::INT), None] {
        let mut demo = RunningDemo::start(|program, _| {
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
