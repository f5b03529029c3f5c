//! Environment of one run: repository, home, canaries, the agent's program, and the socket that counts its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use regex::Regex;
use tempfile::TempDir;

use crate::agent::{Answer, Hello, NAME, SOCKET};
use crate::scenario::{Call, Claim, Files, Hint, SampleRepository, Scenario};

/// Maximum number of agent calls in one run.
pub const MAX_CALLS: usize = 30;
/// User's branch that is unrelated to any loop.
pub const OTHER_BRANCH: &str = "other";
/// User's ignored file.
pub const NOTES: &str = "local/notes.txt";

/// One call of the agent, as seen by the harness.
#[derive(Debug, Clone, Copy)]
pub struct SeenCall {
    /// Start of the connection.
    pub began: Instant,
    /// End of the connection; `None` while it is open.
    pub ended: Option<Instant>,
}

/// Environment of one run.
pub struct Arena {
    folder: TempDir,
    /// Commit of `main` at the start.
    pub base: String,
    /// Commit of the other branch.
    pub other: String,
    /// Key in the environment, and a private key's content in the home folder.
    pub secrets: [String; 2],
    /// Sleep time of leftover processes in seconds, which identifies them.
    pub survivor: String,
    calls: Arc<Mutex<Vec<SeenCall>>>,
}

impl Arena {
    /// Creates the environment; the scenario answers the agent's calls.
    pub fn new(scenario: &Scenario, repository: &SampleRepository, claim: &Claim) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("duel-").tempdir()?;
        let at = |path: &str| folder.path().join(path);
        let random: String = fs::read_to_string("/proc/sys/kernel/random/uuid")?.replace('-', "").trim().to_owned();
        let secrets = [format!("sk-ant-api03-{random}"), format!("private{random}key")];
        // Digits of the random number.
        let survivor = format!("8{}", u32::from_str_radix(&random[..7], 16)?);
        for path in ["agent/bin", "home/.ssh", "outside"] {
            fs::create_dir_all(at(path))?;
        }
        let settings = "[user]\n\tname = User\n\temail = user@example.org\n[init]\n\tdefaultBranch = main\n[commit]\n\tgpgSign = false\n";
        fs::write(at("home/.gitconfig"), settings)?;
        fs::write(at("home/.ssh/id_ed25519"), format!("{}\n", secrets[1]))?;
        fs::write(at("outside/canary.txt"), "untouched\n")?;
        let program = at("agent/bin").join(NAME);
        fs::copy(std::env::current_exe()?, &program).context("could not install the agent")?;
        let repo = at("repo");
        fs::create_dir_all(&repo)?;
        write(&repo, &repository.files)?;
        write(&repo, &scenario.files)?;
        let home = at("home");
        let git = |arguments: &[&str]| git(&repo, &home, arguments);
        git(&["init", "--quiet"])?;
        git(&["add", "--all"])?;
        git(&["commit", "--quiet", "--message", "Start"])?;
        git(&["checkout", "--quiet", "-b", OTHER_BRANCH])?;
        git(&["commit", "--quiet", "--allow-empty", "--message", "Work of the user"])?;
        git(&["checkout", "--quiet", "main"])?;
        fs::create_dir_all(repo.join("local"))?;
        fs::write(repo.join(NOTES), "notes of the user\n")?;
        let (base, other) = (git(&["rev-parse", "main"])?, git(&["rev-parse", OTHER_BRANCH])?);
        let socket = at("agent/bin").join(SOCKET);
        let listener = UnixListener::bind(&socket)?;
        // Agents run as another user.
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o777))?;
        let calls = Arc::default();
        let hint = |hint: &Hint| anyhow::Ok((hint.pattern.as_deref().map(Regex::new).transpose()?, hint.call.clone()));
        let hint = scenario.hint.as_ref().map(hint).transpose()?;
        let answers = CallServer {
            calls: Arc::clone(&calls),
            script: scenario.calls.clone(),
            cycle: scenario.cycle,
            hint,
            prompts: Arc::default(),
            claim: claim.clone(),
            values: BTreeMap::from([
                ("home", home.display().to_string()),
                ("outside", at("outside").display().to_string()),
                ("user", repo.display().to_string()),
                ("survivor", survivor.clone()),
            ]),
        };
        thread::spawn(move || {
            // The thread ends with the process. Deleting the socket's file earlier prevents new connections.
            for stream in listener.incoming().flatten() {
                let answers = answers.clone();
                thread::spawn(move || answers.serve(stream));
            }
        });
        Ok(Self { folder, base, other, secrets, survivor, calls })
    }

    /// Returns a path in the run's folder.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Returns the calls so far.
    pub fn calls(&self) -> Vec<SeenCall> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs git on the user's repository; returns the trimmed output.
    pub fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        git(&self.path("repo"), &self.path("home"), arguments)
    }
}

/// Writes and deletes files in a folder.
pub fn write(folder: &Path, files: &Files) -> anyhow::Result<()> {
    for (path, content) in files {
        let full = folder.join(path);
        match content {
            Some(text) => {
                fs::create_dir_all(full.parent().unwrap_or(folder))?;
                fs::write(&full, text)?;
            }
            None => fs::remove_file(&full).with_context(|| format!("could not delete {}", full.display()))?,
        }
    }
    Ok(())
}

fn git(folder: &Path, home: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(["-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*"]).args(arguments);
    let output = command.env("HOME", home).env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null()).output()?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Server that answers the agent's calls.
#[derive(Clone)]
struct CallServer {
    calls: Arc<Mutex<Vec<SeenCall>>>,
    script: Vec<Call>,
    cycle: bool,
    hint: Option<(Option<Regex>, Call)>,
    /// Distinct prompts so far.
    prompts: Arc<Mutex<BTreeSet<String>>>,
    claim: Claim,
    values: BTreeMap<&'static str, String>,
}

impl CallServer {
    /// Serves one call: its first line, the script, and the wait for its end.
    fn serve(&self, stream: UnixStream) {
        let mut reader = BufReader::new(&stream);
        let mut line = String::new();
        let _ = reader.read_line(&mut line);
        let Ok(hello) = serde_json::from_str::<Hello>(&line) else { return };
        let number = {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.push(SeenCall { began: Instant::now(), ended: None });
            calls.len() - 1
        };
        let answer = serde_json::to_string(&self.answer(number, &hello.prompt)).unwrap_or_default();
        let _ = (&stream).write_all(format!("{answer}\n").as_bytes());
        let _ = reader.read_to_end(&mut Vec::new());
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)[number].ended = Some(Instant::now());
    }

    /// Returns the script of a call.
    fn answer(&self, number: usize, prompt: &str) -> Answer {
        if number >= MAX_CALLS {
            return None;
        }
        let at = if self.cycle { number % self.script.len() } else { number.min(self.script.len() - 1) };
        let distinct = {
            let mut prompts = self.prompts.lock().unwrap_or_else(PoisonError::into_inner);
            prompts.insert(prompt.to_owned());
            prompts.len()
        };
        let is_hint =
            |pattern: &Option<Regex>| pattern.as_ref().map_or(distinct >= 3, |pattern| pattern.is_match(prompt));
        let hint = self.hint.as_ref().filter(|(pattern, _)| is_hint(pattern));
        let mut call = hint.map_or(&self.script[at], |(_, call)| call).clone();
        let mut reset = String::new();
        if let Some(limit) = &mut call.limit {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            limit.resets_at = now + limit.resets_in;
            reset = limit.resets_at.to_string();
        }
        let fill = |text: &mut String| {
            for (name, value) in self.values.iter().chain([(&"reset", &reset)]) {
                *text = text.replace(&format!("{{{name}}}"), value);
            }
        };
        if call.claim {
            let say = call.say.get_or_insert_with(|| "The task is done and all tests pass.".to_owned());
            say.push('\n');
            say.push_str(&self.claim.say);
            if let Some(run) = &self.claim.run {
                call.run = Some([call.run.as_deref().unwrap_or_default(), run].join("\n"));
            }
        }
        [&mut call.run, &mut call.raw, &mut call.say].into_iter().flatten().for_each(fill);
        call.limit.iter_mut().for_each(|limit| fill(&mut limit.message));
        Some(call)
    }
}
