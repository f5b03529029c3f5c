//! Runs a contestant on a scenario, with limits for time, output and calls.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::arena::{Arena, MAX_CALLS};
use crate::scenario::{Contestant, Part, SampleRepository, Scenario};

/// Environment variable that marks a run's processes.
const MARK: &str = "DUEL_RUN";
/// Maximum number of output bytes kept.
const MAX_OUTPUT: usize = 32 << 20;
/// Interval between two checks of a run.
const POLL: Duration = Duration::from_millis(20);
/// Time for processes to exit after the end.
const GRACE: Duration = Duration::from_millis(300);

/// Programs and folders needed by runs.
#[derive(Debug, Clone)]
pub struct DuelTools {
    /// `PATH` without the agent.
    path: String,
    /// Folder with the bot's program.
    bot: PathBuf,
    /// Folder with the installed peers.
    pub peers: PathBuf,
}

/// End of a run.
#[derive(Debug)]
pub struct Ended {
    /// Standard output and standard error.
    pub output: String,
    /// Whether it exited with code 0.
    pub success: bool,
    /// Whether it was killed because it exceeded the limit of time or calls.
    pub killed: bool,
    /// Duration.
    pub time: Duration,
    /// Number of processes left by the run.
    pub survivors: usize,
}

impl DuelTools {
    /// Finds the programs. They are called through shims, because a run has a different home.
    pub fn find(bot: Option<PathBuf>) -> anyhow::Result<Self> {
        let python = output("python3", &["-c", "import sys; print(sys.executable)"])?;
        let rust = format!("{}/bin/cargo", output("rustc", &["--print", "sysroot"])?);
        let node = output("node", &["-p", "process.execPath"])?;
        let mut folders: Vec<&str> = Vec::new();
        for program in [&python, &rust, &node] {
            let folder = program.rsplit_once('/').map_or("", |(folder, _)| folder);
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        folders.extend(["/usr/local/bin", "/usr/bin", "/bin"]);
        let bot = match bot {
            Some(bot) => bot.canonicalize().with_context(|| format!("no program {}", bot.display()))?,
            None => std::env::current_exe()?.with_file_name("ralph-bot"),
        };
        anyhow::ensure!(bot.is_file(), "{} does not exist; build it first: cargo build", bot.display());
        let bot = bot.parent().context("a folder")?.to_owned();
        let peers = crate::scenario::folder().join("../../target/peers");
        Ok(Self { path: folders.join(":"), bot, peers })
    }

    /// Returns the first part missing on this machine.
    pub fn missing<'a>(&self, parts: &'a [Part]) -> Option<&'a Part> {
        let has = |part: &Part| match part.program.contains('/') {
            true => crate::scenario::folder().join("../..").join(&part.program).exists(),
            false => self.path.split(':').any(|folder| Path::new(folder).join(&part.program).is_file()),
        };
        parts.iter().find(|part| !has(part))
    }

    /// Whether the bot was built with optimization, according to its folder's name.
    pub fn is_optimized(&self) -> bool {
        self.bot.ends_with("release")
    }

    /// Returns a command whose environment contains only a run's variables.
    pub fn command(&self, program: &str, arena: &Arena) -> Command {
        let mut command = Command::new(program);
        let path = format!("{}:{}", arena.path("agent/bin").display(), self.path);
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", arena.path("home"))
            .env("LANG", "C.UTF-8")
            .env("TERM", "dumb");
        command.env(MARK, mark(arena)).stdin(Stdio::null());
        command
    }
}

/// Returns the value that marks a run's processes.
fn mark(arena: &Arena) -> String {
    arena.path("").file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn output(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("could not run {program}"))?;
    anyhow::ensure!(output.status.success(), "{program} failed");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a contestant to its end.
pub fn run(
    contestant: &Contestant,
    scenario: &Scenario,
    repository: &SampleRepository,
    arena: &Arena,
    tools: &DuelTools,
    limit: Duration,
) -> anyhow::Result<Ended> {
    let check = scenario.check.as_ref().unwrap_or(&repository.check);
    // A folder of the sandbox must exist.
    let parts = crate::scenario::folder().join("../../target/parts");
    fs::create_dir_all(&parts)?;
    let parts = parts.canonicalize()?.display().to_string();
    let check = &check.replace("{parts}", &parts);
    let shown = [parts.as_str(), "/etc/nim", "/etc/racket", "/var/lib/ghc"]
        .into_iter()
        .filter(|folder| Path::new(folder).exists());
    let values = [
        ("shown", shown.map(|folder| format!("{folder:?}")).collect::<Vec<_>>().join(", ")),
        ("repo", arena.path("repo").display().to_string()),
        ("dir", arena.path("").display().to_string().trim_end_matches('/').to_owned()),
        ("bot", tools.bot.display().to_string()),
        ("peers", tools.peers.display().to_string()),
        ("task", repository.task.trim().to_owned()),
        ("check", check.clone()),
        // For use in JSON strings.
        ("task_json", inner_json(repository.task.trim())),
        ("check_json", inner_json(check)),
    ];
    let fill = |text: &str| {
        values.iter().fold(text.to_owned(), |text, (key, value)| text.replace(&format!("{{{key}}}"), value))
    };
    for (path, text) in &contestant.files {
        let file = arena.path(path);
        fs::create_dir_all(file.parent().context("a folder")?)?;
        fs::write(&file, fill(text))?;
    }
    if contestant.files.keys().any(|path| path.starts_with("repo/")) {
        arena.git(&["add", "--all"])?;
        arena.git(&["commit", "--quiet", "--message", "Set the loop up"])?;
    }
    // Peers have no network, only a loopback interface that is down.
    let mut command = match contestant.isolates {
        true => tools.command("sh", arena),
        false => {
            let mut command = tools.command("unshare", arena);
            command.args(["--net", "--map-root-user", "sh"]);
            command
        }
    };
    command.arg("-c").arg(fill(&contestant.command)).current_dir(arena.path("repo"));
    command.env("TASK", repository.task.trim()).env("CHECK", check).env("ANTHROPIC_API_KEY", &arena.secrets[0]);
    // Otherwise, Claude Code refuses to run as root.
    command.env("IS_SANDBOX", "1");
    let began = Instant::now();
    let mut watched = Watched::start(command)?;
    let deadline = began + limit;
    let mut status = None;
    while Instant::now() < deadline && arena.calls().len() <= MAX_CALLS {
        status = watched.child.try_wait()?;
        if status.is_some() {
            break;
        }
        thread::sleep(POLL);
    }
    let time = began.elapsed();
    watched.kill();
    thread::sleep(GRACE);
    let left = processes(arena);
    for pid in &left {
        let _ = kill_process(*pid, Signal::KILL);
    }
    let output = watched.output();
    Ok(Ended {
        output,
        success: status.is_some_and(|status| status.success()),
        killed: status.is_none(),
        time,
        survivors: if status.is_some() { left.len() } else { 0 },
    })
}

/// Escapes a text for a JSON string, without quotes.
fn inner_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Child process in a separate process group, whose output is read to the end.
pub struct Watched {
    child: Child,
    readers: Vec<thread::JoinHandle<Vec<u8>>>,
}

impl Watched {
    /// Starts the command.
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("could not start")?;
        let streams: [Option<Box<dyn Read + Send>>; 2] =
            [child.stdout.take().map(|s| Box::new(s) as _), child.stderr.take().map(|s| Box::new(s) as _)];
        let readers = streams.into_iter().flatten().map(|stream| thread::spawn(move || drain(stream))).collect();
        Ok(Self { child, readers })
    }

    /// Waits for the end within a limit; returns the exit status, or `None` at the limit.
    pub fn wait(&mut self, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            thread::sleep(POLL);
        }
        Ok(None)
    }

    /// Kills the remaining processes of the process group.
    pub fn kill(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }

    /// Returns the output after all writers have closed it.
    pub fn output(self) -> String {
        let bytes: Vec<u8> = self.readers.into_iter().filter_map(|reader| reader.join().ok()).flatten().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Reads a stream to its end and keeps its start.
fn drain(mut stream: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        kept.extend(&buffer[..count.min(MAX_OUTPUT - kept.len())]);
    }
    kept
}

/// Returns a run's processes: those with its mark, and those with the identifying sleep time of a script.
fn processes(arena: &Arena) -> Vec<Pid> {
    let (mark, number) = (format!("{MARK}={}", mark(arena)), arena.survivor.as_str());
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_of_run = |folder: &Path| {
        let holds = |file: &str, text: &str| {
            let content = fs::read(folder.join(file)).unwrap_or_default();
            content.split(|byte| *byte == 0).any(|part| part == text.as_bytes())
        };
        let is_dead = fs::read_to_string(folder.join("stat")).map_or(true, |stat| stat.contains(") Z "));
        !is_dead && (holds("environ", &mark) || holds("cmdline", number))
    };
    let found = numbers.filter(|pid| *pid != own && is_of_run(&Path::new("/proc").join(pid.to_string())));
    found.filter_map(|pid| Pid::from_raw(pid.cast_signed())).collect()
}
