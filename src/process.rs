//! The only spawner of processes: argument lists, limits, group kill, capped and masked output.
//!
//! Invariants: the child sees descriptors 0, 1, 2 and the given ones, and exactly the given environment; it is the
//! leader of a session of its own, without a terminal; when [`run`] returns or is dropped, its process group is dead,
//! and with a [`Cookie`] everything else that still carries the cookie too; memory is bounded by `keep_bytes` whatever
//! the child prints, and the child is never blocked by us.
//!
//! Accepted: without a sandbox, a process that leaves the group *and* clears its environment is not found again; the
//! process-id namespace of the bubblewrap tier is what closes that hole.

mod capture;
mod egress_proxy;
mod mask;
mod memory;
mod running;
pub mod sandbox;
mod spawn;
mod survivors;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use capture::Captured;
pub use egress_proxy::sandbox_exec;
pub use mask::Masker;
pub use running::run;
pub use sandbox::Sandbox;
use sandbox::{EgressSettings, Network, SandboxView};
pub use spawn::{executable, harden};
pub use survivors::{COOKIE_VARIABLE, Cookie, Survivor, end_survivors, is_alive, survivors};

/// What to run, and within which bounds.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// A path, or a name that is looked up in the `PATH` of `env`.
    pub program: PathBuf,
    /// Arguments, without the program's name; never a shell string, never a secret.
    pub args: Vec<OsString>,
    /// Existing folder to run in.
    pub cwd: PathBuf,
    /// The whole environment of the child; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// What the child reads on descriptor 0.
    pub stdin: Stdin,
    /// Further descriptors: number in the child (3 to 63, each once) and what can be read there, at most 60 KiB.
    /// This is how secrets get to a child: they are then in no argument, environment or file.
    pub fds: Vec<(i32, Vec<u8>)>,
    /// Bounds.
    pub limits: ProcessLimits,
    /// What the child can see.
    pub sandbox: Sandbox,
    /// Mark by which processes are found that left the group.
    pub cookie: Option<Cookie>,
    /// What is masked in all output.
    pub secrets: Masker,
}

impl ProcessSpec {
    /// A program without arguments in `cwd`: empty environment, no input, default limits, no sandbox, no cookie.
    pub fn new(program: impl Into<PathBuf>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: cwd.into(),
            env: Vec::new(),
            stdin: Stdin::Null,
            fds: Vec::new(),
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
    /// What lets single hosts be reached, where that is wanted.
    fn egress(&self) -> Option<&EgressSettings> {
        match &self.sandbox {
            Sandbox::Bubblewrap(SandboxView { network: Network::Only(egress), .. }) => Some(egress),
            _ => None,
        }
    }
}

/// What a child reads on descriptor 0.
#[derive(Clone, Default)]
pub enum Stdin {
    /// Nothing: `/dev/null`.
    #[default]
    Null,
    /// These bytes, any number, then the end of input.
    Bytes(Vec<u8>),
}

impl std::fmt::Debug for Stdin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
        }
    }
}

/// Bounds of a run.
#[derive(Debug, Clone, Copy)]
pub struct ProcessLimits {
    /// Longest run.
    pub wall: Duration,
    /// Longest silence on both outputs; `None` for no such limit.
    pub idle: Option<Duration>,
    /// Time between SIGTERM and SIGKILL; at most 3 s of it where the run is cancelled.
    pub grace: Duration,
    /// Bytes kept of each output stream, half from its beginning and half from its end.
    pub keep_bytes: usize,
}

impl Default for ProcessLimits {
    /// Ten minutes, no idle limit, 5 s of grace, 256 KiB a stream.
    fn default() -> Self {
        Self { wall: Duration::from_secs(600), idle: None, grace: Duration::from_secs(5), keep_bytes: 256 * 1024 }
    }
}

/// Which output a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// What the reader of lines wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// End the process, for this reason.
    Stop(String),
}

/// Gets each line as it comes: masked, without its end, at most 1 MiB of it.
pub type Lines<'a> = &'a mut (dyn FnMut(Stream, &str) -> Flow + Send);

/// Why a run is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEnd {
    /// By itself, with this code. In a sandbox a signal shows as 128 + its number.
    Exited(i32),
    /// By a signal that was not ours.
    Signalled(i32),
    /// We ended it: it ran for too long.
    WallLimit,
    /// We ended it: it printed nothing for too long.
    IdleLimit,
    /// We ended it: the token was cancelled.
    Cancelled,
    /// We ended it: the reader of its lines asked for that, for this reason.
    Stopped(String),
}

/// A run that is over.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Why it is over.
    pub ended: ProcessEnd,
    /// Exit code, where there was one; also when we asked it to end and it did.
    pub exit_code: Option<i32>,
    /// What it printed on descriptor 1.
    pub stdout: Captured,
    /// What it printed on descriptor 2.
    pub stderr: Captured,
    /// Whether it was killed while the system ended processes for want of memory.
    pub out_of_memory: bool,
    /// From start to end.
    pub duration: Duration,
}

impl Finished {
    /// Whether it ended by itself with code 0.
    pub fn success(&self) -> bool {
        self.ended == ProcessEnd::Exited(0)
    }
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No such program.
    #[error("there is no program {program:?}: install it, or give its full path in the configuration")]
    NotFound { program: PathBuf },
    /// A file, but not one to run.
    #[error("{program:?} cannot be executed: make it a regular file with the execute bit set (chmod +x)")]
    NotExecutable { program: PathBuf },
    /// The folder to run in is missing.
    #[error("{folder:?}, where {program:?} was to run, is not a folder that can be entered: {source}")]
    NoFolder { program: PathBuf, folder: PathBuf, source: std::io::Error },
    /// The system refused.
    #[error("{program:?} could not be started: {source}; {advice}")]
    Spawn { program: PathBuf, advice: &'static str, source: std::io::Error },
    /// Input or a further descriptor could not be set up.
    #[error("the input of {program:?} could not be prepared ({what}): {source}")]
    Input { program: PathBuf, what: &'static str, source: std::io::Error },
    /// bubblewrap is missing, or could not build the view.
    #[error("the sandbox for {program:?} could not be built: {reason}")]
    Sandbox { program: PathBuf, reason: String },
    /// Waiting for the child failed.
    #[error("{program:?} was started, but waiting for it failed: {source}; it was killed")]
    Wait { program: PathBuf, source: std::io::Error },
}
