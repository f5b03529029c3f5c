//! Tool that runs commands, each in its own shell, in the sandbox of the run.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::process::{self, Finished, ProcessEnd, ProcessError, ProcessLimits, ProcessSpec};

/// Maximum length of a command, in bytes; Linux accepts 128 KiB.
const MAX_COMMAND: usize = 100 * 1024;
/// Number of bytes that are kept of a command's output, half from its start and half from its end.
const KEEP_BYTES: usize = 24 * 1024;
/// Default time limit of a command.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum time limit that the model can request.
const MAX_TIMEOUT: Duration = Duration::from_secs(1_800);

/// Arguments of a call.
#[derive(Debug, Deserialize)]
pub(super) struct BashCommand {
    /// Script for the shell.
    command: String,
    /// Time limit in seconds.
    #[serde(default, alias = "timeout")]
    timeout_seconds: Option<f64>,
}

/// Returns the JSON Schema of the arguments.
pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "A script for the shell; it may have many lines."},
            "timeout_seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT.as_secs(),
                "description": "Time limit in seconds; 120 by default."},
        },
        "required": ["command"],
    })
}

/// Result of a command.
#[derive(Debug, PartialEq)]
pub(super) enum BashOutcome {
    /// Text for the model, and whether the command failed.
    Completed { text: String, failed: bool },
    /// The run was canceled.
    Cancelled,
    /// Commands cannot run, for this reason.
    Impossible(String),
}

/// Shell in which commands run.
pub(super) struct AgentShell {
    /// Program.
    pub(super) program: PathBuf,
    /// Specification without arguments: working directory, environment, sandbox, cookie, secrets.
    pub(super) spec: ProcessSpec,
    /// Maximum time without output.
    pub(super) idle: Duration,
}

impl AgentShell {
    /// Runs a command to its end, for at most `remaining`.
    pub(super) async fn run(&self, bash: BashCommand, remaining: Duration, cancel: &CancellationToken) -> BashOutcome {
        if bash.command.len() > MAX_COMMAND {
            let text = format!("a command of {} bytes is too long; write it to a file first", bash.command.len());
            return BashOutcome::Completed { text, failed: true };
        }
        if bash.command.contains('\0') {
            return BashOutcome::Completed { text: "a command cannot contain NUL characters".to_owned(), failed: true };
        }
        let asked = bash.timeout_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let wall = asked.filter(|asked| !asked.is_zero()).unwrap_or(DEFAULT_TIMEOUT).min(MAX_TIMEOUT).min(remaining);
        let mut spec = self.spec.clone();
        spec.program.clone_from(&self.program);
        // Both outputs share a stream, so that errors appear in order.
        spec.args = vec!["-c".into(), format!("exec 2>&1\n{}", bash.command).into()];
        spec.limits = ProcessLimits {
            wall,
            idle: Some(self.idle),
            grace: crate::agent::run_environment::GRACE,
            keep_bytes: KEEP_BYTES,
        };
        match process::run(spec, cancel, None).await {
            Ok(Finished { ended: ProcessEnd::Cancelled, .. }) => BashOutcome::Cancelled,
            Ok(finished) => describe_result(&finished, wall, self.idle),
            Err(error @ (ProcessError::Wait { .. } | ProcessError::Input { .. } | ProcessError::Spawn { .. })) => {
                BashOutcome::Completed { text: error.to_string(), failed: true }
            }
            Err(error) => BashOutcome::Impossible(error.to_string()),
        }
    }
}

fn describe_result(finished: &Finished, wall: Duration, idle: Duration) -> BashOutcome {
    let mut text = finished.stdout.text();
    if finished.stderr.total_bytes > 0 {
        text.push_str(&finished.stderr.text());
    }
    let how = match &finished.ended {
        ProcessEnd::Exited(0) => None,
        ProcessEnd::Exited(code) => Some(format!("[it exited with {code}]")),
        ProcessEnd::Signalled(signal) => Some(format!("[it was killed by signal {signal}]")),
        ProcessEnd::WallLimit => Some(format!(
            "[it was ended after {} s; set timeout_seconds if it needs longer, up to {}]",
            wall.as_secs_f64(),
            MAX_TIMEOUT.as_secs()
        )),
        ProcessEnd::IdleLimit => Some(format!("[it was ended: it printed nothing for {} s]", idle.as_secs_f64())),
        ProcessEnd::ResourceLimit(reason) => Some(format!("[it was ended: {reason}]")),
        ProcessEnd::Cancelled | ProcessEnd::Stopped(_) => Some("[it was ended]".to_owned()),
    };
    let failed = how.is_some();
    if text.trim().is_empty() {
        "(no output)".clone_into(&mut text);
    }
    if let Some(how) = how {
        text = format!("{}\n{how}", text.trim_end());
    }
    BashOutcome::Completed { text, failed }
}
