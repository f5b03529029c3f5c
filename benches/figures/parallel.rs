//! Loops that run at once, by `local --tasks --jobs`: time, processor time and memory of an iteration.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use ralph_bot::clock::Stopwatch;

use crate::machine::{ProcessorTimes, processor_times, resident_kib};
use crate::report::FigureRow;
use crate::trees::git;
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    `local --tasks --jobs 8` executes loops of two iterations, in bubblewrap, in a repository of 1,000 files; the scripted \
    agent writes two small files. The figures include the start of the program, the self-test of the sandbox, the trees of all \
    loops, checks at the base and after each iteration, and the final verification in a fresh checkout. The baseline is plain \
    git: for each loop a work tree, two times `git status`, `git add --all` and `git commit`, and a second work tree.";

const NAME: &str = "parallel";
/// Number of loops that run at once.
const AT_ONCE: usize = 8;
/// Number of iterations of each loop.
const ITERATIONS: usize = 2;

const AGENT: &str = "cat >/dev/null
n=$(cat n.txt 2>/dev/null || echo 0); n=$((n+1)); echo $n >n.txt
echo \"iteration $n\" >>work.txt
";
/// Plain git for the loop `$1`.
const PLAIN: &str = "set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=Mira GIT_AUTHOR_EMAIL=mira@localhost GIT_COMMITTER_NAME=Mira GIT_COMMITTER_EMAIL=mira@localhost
git worktree add -q --detach ../tree-$1 main
cd ../tree-$1
for n in 1 2; do echo $n >n.txt; echo $n >>work.txt; git status --porcelain >/dev/null; git add --all; git commit -qm $n; done
git worktree add -q --detach ../fresh-$1 HEAD
";

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let (files, loops) = match run.size {
        Size::Brief => (50, 2),
        _ => (1_000, 40),
    };
    let folder = run.folder()?;
    prepare(&folder, files, loops)?;
    let watch = Stopwatch::start();
    let (times, memory) = run_loops(&folder)?;
    let took = watch.elapsed();
    let watch = Stopwatch::start();
    run_plain(&folder, loops)?;
    let plain = watch.elapsed();
    let each = |time: Duration| time.as_secs_f64() * 1e3 / (loops * ITERATIONS) as f64;
    let row = FigureRow::new(NAME, format!("an iteration of {loops} loops, {AT_ONCE} at once"), each(took), "ms");
    run.add(row.beside("plain git", each(plain)));
    run.add(FigureRow::new(NAME, "processor time of the program for it", each(times.own), "ms"));
    run.add(FigureRow::new(NAME, "processor time of its children for it", each(times.children), "ms"));
    run.add(FigureRow::new(NAME, "memory of the program", memory as f64 / 1024.0, "MiB"));
    Ok(())
}

fn prepare(folder: &Path, files: usize, loops: usize) -> anyhow::Result<()> {
    let repo = folder.join("repo");
    for n in 0..files {
        let part = repo.join(format!("part{}", n % 20));
        std::fs::create_dir_all(&part)?;
        std::fs::write(part.join(format!("file{n}.txt")), format!("line of file {n}\n").repeat(40))?;
    }
    git(&repo, &["init", "--quiet", "--initial-branch=main"])?;
    git(&repo, &["add", "--all"])?;
    git(&repo, &["commit", "--quiet", "--message=files"])?;
    let agent = folder.join("agent.sh");
    std::fs::write(&agent, AGENT)?;
    let agent = agent.display();
    let configuration = format!(
        "backends:\n  mine: {{ type: script, command: [/bin/sh, '{agent}'] }}\nsandbox: {{ read_only: ['{agent}'] }}\n"
    );
    std::fs::write(folder.join("ralph-control.yaml"), configuration)?;
    let task = |n| {
        format!("  - title: 'Count to two, {n}'\n    checks: ['test \"$(cat n.txt 2>/dev/null)\" = {ITERATIONS}']\n")
    };
    let tasks: String = (0..loops).map(task).collect();
    std::fs::write(folder.join("tasks.yaml"), format!("tasks:\n{tasks}"))?;
    Ok(())
}

/// Runs the loops to their ends. Returns the processor times and the maximum resident memory of the program, in KiB.
fn run_loops(folder: &Path) -> anyhow::Result<(ProcessorTimes, u64)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ralph-bot"));
    command.args(["local", "--config", "../ralph-control.yaml", "--tasks", "../tasks.yaml", "--jobs"]);
    command.arg(AT_ONCE.to_string()).current_dir(folder.join("repo")).env("HOME", folder).env_remove("XDG_STATE_HOME");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(folder.join("local.log"))?);
    let mut child = command.spawn()?;
    let (mut times, mut memory) = (ProcessorTimes::default(), 0);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if let Ok(now) = processor_times(child.id()) {
            times = now;
        }
        memory = memory.max(resident_kib(child.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(20));
    };
    let log = std::fs::read_to_string(folder.join("local.log")).unwrap_or_default();
    ensure!(status.success(), "`local` ended with {status}: {log}");
    Ok((times, memory))
}

fn run_plain(folder: &Path, loops: usize) -> anyhow::Result<()> {
    let numbers: Vec<String> = (0..loops).map(|n| n.to_string()).collect();
    let mut xargs = Command::new("xargs");
    xargs.args(["-P", &AT_ONCE.to_string(), "-n", "1", "sh", "-c", PLAIN, "sh"]).current_dir(folder.join("repo"));
    let mut child = xargs.stdin(Stdio::piped()).spawn().context("xargs")?;
    std::io::Write::write_all(&mut child.stdin.take().context("a pipe")?, numbers.join("\n").as_bytes())?;
    ensure!(child.wait()?.success(), "plain git failed");
    Ok(())
}
