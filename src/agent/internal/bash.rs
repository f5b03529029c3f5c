//! The tool that runs commands, each in a shell of its own, in the run's sandbox.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::process::{self, Finished, ProcessEnd, ProcessError, ProcessLimits, ProcessSpec};

/// Longest command, in bytes; the system takes 128 KiB.
const MAX_COMMAND: usize = 100 * 1024;
/// What is kept of a command's output, in bytes: half from its beginning, half from its end.
const KEEP_BYTES: usize = 24 * 1024;
/// How long a command may run unless it asks for more.
const USUAL: Duration = Duration::from_secs(120);
/// How long it may ask for.
const LONGEST: Duration = Duration::from_secs(1_800);

/// What the model may ask for.
#[derive(Debug, Deserialize)]
pub(super) struct BashCommand {
    /// For the shell.
    command: String,
    /// Longest run, in seconds.
    #[serde(default, alias = "timeout")]
    timeout_seconds: Option<f64>,
}

/// JSON Schema of the arguments.
pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "A script for the shell; it may have many lines."},
            "timeout_seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST.as_secs(),
                "description": "How long it may run; 120 where nothing is said."},
        },
        "required": ["command"],
    })
}

/// What came of a command.
#[derive(Debug, PartialEq)]
pub(super) enum BashOutcome {
    /// What the model is told, and whether the command failed.
    Told { text: String, failed: bool },
    /// The run as a whole was cancelled.
    Cancelled,
    /// Nothing can be run here, for this reason.
    Impossible(String),
}

/// Where commands run: everything but the command and its time.
pub(super) struct AgentShell {
    /// The shell.
    pub(super) program: PathBuf,
    /// A run without arguments: folder, environment, sandbox, cookie, secrets.
    pub(super) spec: ProcessSpec,
    /// Longest silence.
    pub(super) idle: Duration,
}

impl AgentShell {
    /// Runs a command to its end, for `left` at most.
    pub(super) async fn run(&self, bash: BashCommand, left: Duration, cancel: &CancellationToken) -> BashOutcome {
        if bash.command.len() > MAX_COMMAND {
            let text = format!("a command of {} bytes is too long; write it to a file first", bash.command.len());
            return BashOutcome::Told { text, failed: true };
        }
        if bash.command.contains('\0') {
            return BashOutcome::Told { text: "a command cannot hold NUL characters".to_owned(), failed: true };
        }
        let asked = bash.timeout_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let wall = asked.filter(|asked| !asked.is_zero()).unwrap_or(USUAL).min(LONGEST).min(left);
        let mut spec = self.spec.clone();
        spec.program.clone_from(&self.program);
        // One stream, so that errors stand where they belong.
        spec.args = vec!["-c".into(), format!("exec 2>&1\n{}", bash.command).into()];
        spec.limits = ProcessLimits {
            wall,
            idle: Some(self.idle),
            grace: crate::agent::run_environment::GRACE,
            keep_bytes: KEEP_BYTES,
        };
        match process::run(spec, cancel, None).await {
            Ok(Finished { ended: ProcessEnd::Cancelled, .. }) => BashOutcome::Cancelled,
            Ok(finished) => told(&finished, wall, self.idle),
            Err(error @ (ProcessError::Wait { .. } | ProcessError::Input { .. } | ProcessError::Spawn { .. })) => {
                BashOutcome::Told { text: error.to_string(), failed: true }
            }
            Err(error) => BashOutcome::Impossible(error.to_string()),
        }
    }
}

fn told(finished: &Finished, wall: Duration, idle: Duration) -> BashOutcome {
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
            LONGEST.as_secs()
        )),
        ProcessEnd::IdleLimit => Some(format!("[it was ended: it printed nothing for {} s]", idle.as_secs_f64())),
        ProcessEnd::Cancelled | ProcessEnd::Stopped(_) => Some("[it was ended]".to_owned()),
    };
    let failed = how.is_some();
    if text.trim().is_empty() {
        "(no output)".clone_into(&mut text);
    }
    if let Some(how) = how {
        text = format!("{}\n{how}", text.trim_end());
    }
    BashOutcome::Told { text, failed }
}
