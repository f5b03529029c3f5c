//! Runs each check in its own sandbox and judges its result.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::reports::Reports;
use super::{counts, coverage};
use crate::domain::checks::criteria::{CheckVerdict, judge, objection, ran_none, understood, written_report};
use crate::domain::checks::dependencies::needs_network;
use crate::domain::model::signature::error_lines;
use crate::domain::model::task::{Check, CheckOutcome, CheckReport, TestResults};
use crate::domain::trust::bounds::CHECK_OUTPUT_BYTES;
use crate::process::sandbox::{Network, SandboxSettings, SandboxView, ScratchHome};
use crate::process::{self, Cookie, Finished, Masker, ProcessEnd, ProcessError, ProcessLimits, ProcessSpec, Sandbox};

/// Maximum number of bytes at the end of the output that the outcome contains.
const SHOWN_BYTES: usize = 16 * 1024;
/// Environment variables that make shells and interpreters run other code first. They are removed for checks.
const RUN_FIRST: [&str; 8] =
    ["BASH_ENV", "ENV", "ZDOTDIR", "PYTHONSTARTUP", "NODE_OPTIONS", "RUBYOPT", "PERL5OPT", "LD_PRELOAD"];
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Runner of checks on this machine.
#[derive(Debug, Clone)]
pub struct CheckRunner {
    /// Path of the shell, which is called with `-c` and the command.
    pub shell: PathBuf,
    /// Whether checks run in a sandbox; `false` only if the operator disabled sandboxes.
    pub sandboxed: bool,
    /// Settings of the sandbox.
    pub sandbox: SandboxSettings,
    /// Tool folders that are readable in the sandbox.
    pub read_only: Vec<PathBuf>,
    /// Default time limit of a check.
    pub timeout: Duration,
    /// Network access of checks.
    pub network: Network,
    /// Environment of checks, in addition to `HOME`, `TMPDIR` and `CI`; contains no secrets.
    pub env: Vec<(OsString, OsString)>,
    /// Masker for secrets in the output of checks.
    pub masker: Masker,
    /// Mark that identifies processes that left their process group.
    pub cookie: Option<Cookie>,
}

/// Reason why there are no outcomes. A failing check is an outcome, not an error.
#[derive(Debug, thiserror::Error)]
pub enum ChecksError {
    /// The work tree is missing.
    #[error("the work tree {0:?} is missing or not a folder; it has to be created again before checks can run")]
    NoTree(PathBuf),
    /// The scratch folder cannot be used.
    #[error("the scratch folder {folder:?} for checks could not be created: {source}; is the disk full?")]
    Scratch { folder: PathBuf, source: std::io::Error },
    /// No check could be started: the shell or the sandbox is missing.
    #[error("check `{check}` could not be started: {source}")]
    Start { check: String, source: ProcessError },
    /// The run was cancelled.
    #[error("the checks were cancelled while `{check}` ran")]
    Cancelled { check: String },
}

impl CheckRunner {
    /// Creates a runner with `/bin/sh`, a sandbox without network, and an empty environment.
    pub fn new() -> Self {
        Self {
            shell: PathBuf::from("/bin/sh"),
            sandboxed: true,
            sandbox: SandboxSettings::default(),
            read_only: Vec::new(),
            timeout: Duration::from_secs(600),
            network: Network::None,
            env: Vec::new(),
            masker: Masker::default(),
            cookie: None,
        }
    }

    /// Runs the checks sequentially in `tree`, each with its own time limit. `scratch` is their home folder outside
    /// the tree, which is created if it is missing. Returns one outcome per check, in order; a failing check does not
    /// prevent the next one.
    ///
    /// # Errors
    /// A check could not be run, or the run was canceled.
    pub async fn run_all(
        &self,
        tree: &Path,
        scratch: &Path,
        checks: &[Check],
        cancel: &CancellationToken,
    ) -> Result<CheckReport, ChecksError> {
        if !tree.is_dir() {
            return Err(ChecksError::NoTree(tree.to_owned()));
        }
        let temporary = scratch.join("tmp");
        std::fs::create_dir_all(&temporary)
            .map_err(|source| ChecksError::Scratch { folder: scratch.to_owned(), source })?;
        let mut report = CheckReport::default();
        for check in checks {
            report.outcomes.push(self.run(tree, scratch, check, cancel).await?);
        }
        Ok(report)
    }

    async fn run(
        &self,
        tree: &Path,
        scratch: &Path,
        check: &Check,
        cancel: &CancellationToken,
    ) -> Result<CheckOutcome, ChecksError> {
        let glob = check.junit.clone().or_else(|| written_report(&check.command));
        let reports = glob.and_then(|glob| Reports::new(tree, &glob));
        let before = match reports.clone() {
            Some(reports) => blocking(move || reports.stamps()).await.unwrap_or_default(),
            None => Default::default(),
        };
        let finished = process::run(self.spec(tree, scratch, check), cancel, None)
            .await
            .map_err(|source| ChecksError::Start { check: check.name.clone(), source })?;
        if finished.ended == ProcessEnd::Cancelled {
            return Err(ChecksError::Cancelled { check: check.name.clone() });
        }
        let written = match reports {
            Some(reports) => blocking(move || reports.tests_since(&before)).await.flatten(),
            None => None,
        };
        let printed = relative(&counts::strip_escapes(&finished.stdout.text()), tree);
        let mut outcome = outcome(check, self.wall(check), &finished, &printed, written);
        let is_offline = self.sandboxed && matches!(self.network, Network::None);
        if !outcome.holds && is_offline && needs_network(&printed).is_some() {
            outcome.why.push_str("; the output mentions a server, and checks have no network");
        }
        Ok(outcome)
    }

    fn wall(&self, check: &Check) -> Duration {
        check.timeout_s.map_or(self.timeout, Duration::from_secs)
    }

    fn spec(&self, tree: &Path, scratch: &Path, check: &Check) -> ProcessSpec {
        // Merges stderr into stdout to keep the order of messages.
        let command = format!("exec 2>&1\n{}", check.command);
        let mut spec = ProcessSpec::new(&self.shell, tree).args(["-c".to_owned(), command]);
        let ours = ["HOME", "TMPDIR", "CI", "SHELL", "PATH"].map(OsStr::new);
        let runs_first = |name: &OsStr| RUN_FIRST.iter().any(|known| name == *known);
        let kept = self.env.iter().filter(|(name, _)| !ours.contains(&name.as_os_str()) && !runs_first(name));
        spec.env = kept.cloned().collect();
        spec = spec.env("HOME", scratch).env("TMPDIR", scratch.join("tmp")).env("CI", "true").env("SHELL", &self.shell);
        if let Some((_, path)) = self.env.iter().find(|(name, _)| name == "PATH") {
            spec = spec.env("PATH", search_path(path, tree));
        }
        spec.limits =
            ProcessLimits { wall: self.wall(check), idle: None, grace: GRACE, keep_bytes: CHECK_OUTPUT_BYTES };
        if self.sandboxed {
            spec.sandbox = Sandbox::of(SandboxView {
                writable: vec![tree.to_owned()],
                read_only: self.read_only.clone(),
                home: ScratchHome::Folder(scratch.to_owned()),
                network: self.network.clone(),
                settings: self.sandbox.clone(),
            });
        }
        spec.cookie = self.cookie.clone();
        spec.secrets = self.masker.clone();
        spec
    }
}

/// Returns the absolute folders of a search path that are outside the tree, so that files in the tree cannot replace
/// programs.
fn search_path(path: &OsStr, tree: &Path) -> OsString {
    let outside = |folder: &PathBuf| folder.is_absolute() && !folder.starts_with(tree);
    std::env::join_paths(std::env::split_paths(path).filter(outside)).unwrap_or_default()
}

impl Default for CheckRunner {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs blocking `work` on a thread; `None` if it panicked.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// Makes absolute paths in the tree relative, because people and agents know files by their names in the repository.
fn relative(output: &str, tree: &Path) -> String {
    let resolved = tree.canonicalize().ok();
    let mut text = output.to_owned();
    for tree in [Some(tree.to_owned()), resolved].into_iter().flatten() {
        // A shorter path could be the start of others.
        let Some(tree) = tree.to_str().filter(|path| path.len() > 1 && text.contains(*path)) else { continue };
        text = text.replace(&format!("file://{tree}/"), "").replace(&format!("{tree}/"), "").replace(tree, ".");
    }
    text
}

fn outcome(
    check: &Check,
    wall: Duration,
    finished: &Finished,
    output: &str,
    written: Option<TestResults>,
) -> CheckOutcome {
    let by_pattern = || check.counts.as_ref().and_then(|pattern| counts::read_pattern(pattern, output));
    let mut tests = written.unwrap_or_else(|| counts::read(output));
    tests.counts = tests.counts.or_else(by_pattern);
    let (exit_code, mut verdict) = match finished.ended {
        _ if finished.out_of_memory => {
            (finished.exit_code, failed("the machine's memory ran out and the system killed it".to_owned()))
        }
        ProcessEnd::Exited(code) => (Some(code), judge(&check.rule, Some(code), output)),
        ProcessEnd::WallLimit => (None, failed(format!("timed out after {} s", wall.as_secs()))),
        ProcessEnd::ResourceLimit(ref reason) => (None, failed(reason.clone())),
        ProcessEnd::Signalled(_) | ProcessEnd::IdleLimit | ProcessEnd::Cancelled | ProcessEnd::Stopped(_) => {
            (None, judge(&check.rule, None, output))
        }
    };
    let none = ran_none(check, &tests).filter(|_| verdict.holds);
    let contradicted = none.is_some();
    if let Some(why) = none {
        (verdict.holds, verdict.why) = (false, why);
    }
    let objection = objection(check, &tests).filter(|_| verdict.holds);
    let understood = understood(exit_code, &tests);
    CheckOutcome {
        name: check.name.clone(),
        command: check.command.clone(),
        failing_tests: tests.failing,
        incomplete: tests.incomplete,
        flaky: false,
        ran_once: false,
        contradicted,
        extra_failures: tests.extra,
        understood,
        runners: tests.runners,
        objectors: if objection.is_some() { tests.objectors } else { Default::default() },
        errors: if verdict.holds && objection.is_none() { Vec::new() } else { error_lines(output) },
        objection,
        holds: verdict.holds,
        why: verdict.why,
        exit_code,
        duration_ms: u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX),
        tests: tests.counts,
        coverage: coverage::read(output),
        measured: verdict.measured,
        wanted: verdict.wanted,
        output: tail(output, SHOWN_BYTES).to_owned(),
    }
}

fn failed(why: String) -> CheckVerdict {
    CheckVerdict { holds: false, why, measured: None, wanted: None }
}

/// Returns the last complete lines of a text, at most `bytes` long.
fn tail(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let end = &text[text.ceil_char_boundary(text.len() - bytes)..];
    // Drop the cut first line, unless the text is a single line.
    end.split_once('\n').map(|(_, whole)| whole).filter(|whole| !whole.is_empty()).unwrap_or(end)
}

#[cfg(test)]
mod tests;
