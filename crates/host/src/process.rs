//! Starts all processes of the service: with argument lists, limits, termination of whole groups, and masked output of
//! limited size.
//!
//! Invariants: the child gets the descriptors 0, 1 and 2 and the given ones, and exactly the given environment. It
//! leads its own session, without a terminal. When [`run`] returns or is dropped, its process group is dead, and with
//! a [`Cookie`] also every other process that carries the cookie. Memory use is bounded by `keep_bytes`, and the child
//! never blocks on output.
//!
//! Known limitation: without a sandbox, a process that leaves the group *and* clears its environment is not found. A
//! sandbox prevents this by its PID namespace, or by the supervisor that becomes the parent of all orphaned processes
//! inside.

mod capture;
mod cgroup;
mod dialog;
mod disk;
mod egress_proxy;
mod memory;
pub mod private;
mod running;
pub mod sandbox;
mod sandbox_probe;
mod shares;
mod spawn;
mod stat;
mod survivors;
mod syscalls;
#[cfg(test)]
mod tests;
pub mod untrusted;
mod usage;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::domain::trust::outbound::Masker;
pub use capture::Captured;
pub use dialog::Dialog;
pub use disk::free_space;
pub use egress_proxy::{EgressSettings, RefusedHosts, sandbox_exec};
pub use memory::unmap_startup_pages;
use ralph_types::failure::Failure;
pub use running::run;
use sandbox::Network;
pub use sandbox::{Sandbox, SandboxUser, attempts, confined_exec};
pub use sandbox_probe::{
    EscapeTest, ProbeSettings, SandboxProbe, SandboxTier, enforces_limits, probe_landlock, probe_sandbox,
};
pub use spawn::{executable, harden};
pub use survivors::{COOKIE_VARIABLE, Cookie, Survivor, end_survivors, is_alive, survivors};

/// Program to run, with its limits.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// Path of the program, or a name that is looked up in the `PATH` of `env`.
    pub program: PathBuf,
    /// Arguments, without the program's name; never a shell string, never a secret.
    pub args: Vec<OsString>,
    /// Existing working directory.
    pub cwd: PathBuf,
    /// Complete environment of the child, which inherits no variables.
    pub env: Vec<(OsString, OsString)>,
    /// Standard input.
    pub stdin: Stdin,
    /// Limits of time and memory.
    pub limits: ProcessLimits,
    /// Sandbox of the child.
    pub sandbox: Sandbox,
    /// Mark that identifies the child's processes even if they leave the process group.
    pub cookie: Option<Cookie>,
    /// Secrets to mask in all output.
    pub secrets: Masker,
}

impl ProcessSpec {
    /// Creates a specification without arguments: empty environment, no input, default limits, no sandbox, no cookie.
    pub fn new(program: impl Into<PathBuf>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: cwd.into(),
            env: Vec::new(),
            stdin: Stdin::Null,
            limits: ProcessLimits::default(),
            sandbox: Sandbox::None,
            cookie: None,
            secrets: Masker::default(),
        }
    }

    /// Adds arguments.
    pub fn args<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the child's environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
}

impl ProcessSpec {
    /// Returns the settings of the egress proxy; `None` if the sandbox has none.
    fn egress(&self) -> Option<&EgressSettings> {
        match &self.sandbox {
            Sandbox::View(view) => match &view.network {
                Network::Only(egress) => Some(egress),
                Network::None | Network::Host => None,
            },
            Sandbox::None => None,
        }
    }
}

/// Standard input of a child.
#[derive(Clone, Default)]
pub enum Stdin {
    /// No input: `/dev/null`.
    #[default]
    Null,
    /// These bytes, followed by end of file.
    Bytes(Vec<u8>),
    /// Bytes that are sent while the process runs.
    Dialog(Dialog),
}

impl std::fmt::Debug for Stdin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Dialog(_) => f.write_str("Dialog"),
        }
    }
}

/// Limits of a run.
#[derive(Debug, Clone, Copy)]
pub struct ProcessLimits {
    /// Maximum running time.
    pub wall: Duration,
    /// Maximum time without output; `None` for no limit.
    pub idle: Option<Duration>,
    /// Time between SIGTERM and SIGKILL; at most 3 s when the run is cancelled.
    pub grace: Duration,
    /// Number of bytes that are kept of each output stream, half from its start and half from its end.
    pub keep_bytes: usize,
}

impl Default for ProcessLimits {
    /// Returns the defaults: ten minutes, no idle limit, 5 s of grace, 256 KiB per stream.
    fn default() -> Self {
        Self { wall: Duration::from_secs(600), idle: None, grace: Duration::from_secs(5), keep_bytes: 256 * 1024 }
    }
}

/// Output stream of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// Decision of the callback for lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineDecision {
    /// Continue.
    Continue,
    /// Stop the process, for this reason.
    Stop(String),
}

/// Callback for each output line, with secrets masked, without its line ending, cut at 1 MiB.
pub type Lines<'a> = &'a mut (dyn FnMut(Stream, &str) -> LineDecision + Send);

/// End of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The process exited with this code. In a sandbox, a death by signal is reported as 128 plus the signal's number.
    Exited(i32),
    /// The process was killed by a signal that the service did not send.
    Signalled(i32),
    /// The process was stopped because it exceeded its time limit.
    WallLimit,
    /// The process was stopped because it printed nothing for too long.
    IdleLimit,
    /// The process was stopped because its sandbox exceeded the limit that this reason names.
    ResourceLimit(String),
    /// The process was stopped because the token was canceled.
    Cancelled,
    /// The process was stopped for this reason by the callback for its lines.
    Stopped(String),
}

/// Result of a process that ran.
#[derive(Debug, Clone)]
pub struct Finished {
    /// End of the process.
    pub ended: ProcessEnd,
    /// Exit code, also of a process that exited after SIGTERM; `None` if it was killed.
    pub exit_code: Option<i32>,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// Whether the process was killed while the kernel was killing processes to free memory.
    pub out_of_memory: bool,
    /// Running time.
    pub duration: Duration,
}

impl Finished {
    /// Whether the process exited with code 0.
    pub fn success(&self) -> bool {
        self.ended == ProcessEnd::Exited(0)
    }
}

/// Error that prevented the execution of a program.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The program does not exist.
    #[error("there is no program {program:?}: install it, or give its full path in the configuration")]
    NotFound { program: PathBuf },
    /// The file cannot be executed.
    #[error("{program:?} cannot be executed: make it a regular file with the execute bit set (chmod +x)")]
    NotExecutable { program: PathBuf },
    /// The working directory is missing.
    #[error("the working directory {folder:?} of {program:?} is not an accessible folder: {source}")]
    NoFolder { program: PathBuf, folder: PathBuf, source: std::io::Error },
    /// The system could not start the program.
    #[error("{program:?} could not be started: {source}; {advice}")]
    Spawn { program: PathBuf, advice: &'static str, source: std::io::Error },
    /// Standard input or a further descriptor could not be prepared.
    #[error("the input of {program:?} could not be prepared ({what}): {source}")]
    Input { program: PathBuf, what: &'static str, source: std::io::Error },
    /// bubblewrap is missing or could not build the sandbox.
    #[error("the sandbox for {program:?} could not be built: {reason:#}")]
    Sandbox {
        program: PathBuf,
        #[source]
        reason: Failure,
    },
    /// Waiting for the child failed.
    #[error("{program:?} was started, but waiting for it failed: {source}; it was killed")]
    Wait { program: PathBuf, source: std::io::Error },
}
