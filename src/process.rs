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
mod mask;
pub mod sandbox;
mod spawn;
mod survivors;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::future::{Future, pending};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use crate::clock::Stopwatch;

pub use capture::Captured;
use capture::{Keeper, LineCutter};
pub use mask::Masker;
pub use sandbox::Sandbox;
pub use spawn::{executable, harden};
pub use survivors::{COOKIE_VARIABLE, Cookie, Survivor, end_survivors, survivors};

/// How long output is still read after the main process has ended, for what its children had yet to print.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a killed process may take to disappear before we give up waiting for it (uninterruptible I/O).
const KILL_WAIT: Duration = Duration::from_secs(5);
/// Bytes read at a time.
const CHUNK: usize = 64 * 1024;

/// What to run, and within which bounds.
#[derive(Debug, Clone)]
pub struct Spec {
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
    pub limits: Limits,
    /// What the child can see.
    pub sandbox: Sandbox,
    /// Mark by which processes are found that left the group.
    pub cookie: Option<Cookie>,
    /// What is masked in all output.
    pub secrets: Masker,
}

impl Spec {
    /// A program without arguments in `cwd`: empty environment, no input, default limits, no sandbox, no cookie.
    pub fn new(program: impl Into<PathBuf>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: cwd.into(),
            env: Vec::new(),
            stdin: Stdin::Null,
            fds: Vec::new(),
            limits: Limits::default(),
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
pub struct Limits {
    /// Longest run.
    pub wall: Duration,
    /// Longest silence on both outputs; `None` for no such limit.
    pub idle: Option<Duration>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Bytes kept of each output stream, half from its beginning and half from its end.
    pub keep_bytes: usize,
}

impl Default for Limits {
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
pub enum Ended {
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
    pub ended: Ended,
    /// Exit code, where there was one; also when we asked it to end and it did.
    pub exit_code: Option<i32>,
    /// What it printed on descriptor 1.
    pub stdout: Captured,
    /// What it printed on descriptor 2.
    pub stderr: Captured,
    /// From start to end.
    pub duration: Duration,
}

impl Finished {
    /// Whether it ended by itself with code 0.
    pub fn success(&self) -> bool {
        self.ended == Ended::Exited(0)
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

/// Runs a program to its end and returns what it printed.
///
/// `lines` is called for each line while the program runs and may end it. Dropping the future kills the program.
/// Must not be called from a blocking-pool thread: bubblewrap dies with the *thread* that started it.
///
/// # Errors
/// Only where nothing ran; how a program ended is in [`Finished::ended`].
pub async fn run(spec: Spec, cancel: &CancellationToken, lines: Option<Lines<'_>>) -> Result<Finished, ProcessError> {
    let watch = Stopwatch::start();
    let program = spec.program.clone();
    let mut child = spawn::start(&spec).await?;
    let mut guard = KillGuard::new(&child, &spec);
    let mut output = Output::new(&mut child, &spec, lines);
    let mut limits = Watch { wall: Box::pin(tokio::time::sleep(spec.limits.wall)), idle: spec.limits.idle, cancel };

    let (why, status) = match until_end(&mut child, &mut output, &mut limits).await {
        Step::Exited(status) => (None, status),
        Step::Over(why) => (Some(why), guard.end(&mut child, &mut output, spec.limits.grace).await),
    };
    // What is left of the pipes is read for a short while: a daemon may hold them open for ever.
    let drained = tokio::time::timeout(DRAIN, output.drain()).await;
    guard.kill_rest().await;
    if drained.is_err() {
        let _ = tokio::time::timeout(Duration::from_millis(100), output.drain()).await;
    }
    guard.disarm();

    let status = status.map_err(|source| ProcessError::Wait { program: program.clone(), source })?;
    let (stdout, stderr) = output.finish();
    if why.is_none()
        && let Some(reason) = sandbox::setup_failure(&spec.sandbox, status, &stdout, &stderr)
    {
        return Err(ProcessError::Sandbox { program, reason });
    }
    let ended = why.unwrap_or_else(|| match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Signalled(signal.unwrap_or_default()),
    });
    Ok(Finished { ended, exit_code: status.code(), stdout, stderr, duration: watch.elapsed() })
}

/// What came first.
enum Step {
    Exited(std::io::Result<ExitStatus>),
    Over(Ended),
}

/// The bounds that are watched while a process runs.
struct Watch<'a> {
    wall: Pin<Box<Sleep>>,
    idle: Option<Duration>,
    cancel: &'a CancellationToken,
}

/// Reads and waits until the process exits, a bound is reached, or the reader has had enough.
async fn until_end(child: &mut Child, output: &mut Output<'_>, watch: &mut Watch<'_>) -> Step {
    let idle_limit = watch.idle;
    let mut idle = Box::pin(silence(idle_limit));
    loop {
        tokio::select! {
            // In this order: a process that floods its output must not keep its limits from being seen.
            biased;
            () = watch.cancel.cancelled() => return Step::Over(Ended::Cancelled),
            () = &mut watch.wall => return Step::Over(Ended::WallLimit),
            status = child.wait() => return Step::Exited(status),
            read = output.read() => {
                if let Flow::Stop(reason) = read {
                    return Step::Over(Ended::Stopped(reason));
                }
                idle.set(silence(idle_limit));
            }
            () = &mut idle => return Step::Over(Ended::IdleLimit),
        }
    }
}

/// Ends after `limit`; never, without one.
async fn silence(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => pending().await,
    }
}

/// Both outputs of a child, kept within bounds and cut into lines.
struct Output<'a> {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    kept: [Keeper; 2],
    cutters: [LineCutter; 2],
    buffers: [Vec<u8>; 2],
    lines: Option<Lines<'a>>,
    secrets: Masker,
}

impl<'a> Output<'a> {
    fn new(child: &mut Child, spec: &Spec, lines: Option<Lines<'a>>) -> Self {
        let keep = spec.limits.keep_bytes;
        Self {
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            kept: [Keeper::new(keep), Keeper::new(keep)],
            cutters: [LineCutter::default(), LineCutter::default()],
            buffers: [vec![0; CHUNK], vec![0; CHUNK]],
            lines,
            secrets: spec.secrets.clone(),
        }
    }

    /// Reads one chunk of either output; never returns when both have ended.
    async fn read(&mut self) -> Flow {
        let [out, err] = &mut self.buffers;
        let (index, read) = tokio::select! {
            read = next_chunk(&mut self.stdout, out) => (0, read),
            read = next_chunk(&mut self.stderr, err) => (1, read),
        };
        if read == 0 {
            if index == 0 {
                self.stdout = None;
            } else {
                self.stderr = None;
            }
        }
        self.take(index, read)
    }

    /// Keeps a chunk and hands on the lines it completes; a chunk of 0 bytes is the end of the output.
    fn take(&mut self, index: usize, read: usize) -> Flow {
        let bytes = &self.buffers[index][..read];
        self.kept[index].push(bytes);
        let Some(lines) = self.lines.as_mut() else { return Flow::Continue };
        let stream = if index == 0 { Stream::Stdout } else { Stream::Stderr };
        let secrets = &self.secrets;
        let mut flow = Flow::Continue;
        let mut emit = |line: &[u8], cut: bool| {
            if flow == Flow::Continue {
                flow = lines(stream, &capture::masked_line(secrets, line, cut));
            }
        };
        if read == 0 {
            self.cutters[index].end(&mut emit);
        } else {
            self.cutters[index].push(bytes, &mut emit);
        }
        flow
    }

    /// Reads on until both outputs have ended. Lines are still handed on; what their reader says no longer counts.
    async fn drain(&mut self) {
        while self.stdout.is_some() || self.stderr.is_some() {
            self.read().await;
        }
    }

    fn finish(mut self) -> (Captured, Captured) {
        for index in 0..2 {
            // A line without an end, on an output that something still holds open.
            self.take(index, 0);
        }
        let [stdout, stderr] = self.kept;
        (stdout.finish(&self.secrets), stderr.finish(&self.secrets))
    }
}

/// Number of bytes read; 0 at the end and on an error. Never returns where there is nothing to read from.
async fn next_chunk<R: tokio::io::AsyncRead + Unpin>(from: &mut Option<R>, buffer: &mut [u8]) -> usize {
    match from {
        Some(reader) => reader.read(buffer).await.unwrap_or(0),
        None => pending().await,
    }
}

/// Kills what belongs to a run, at the latest when dropped.
struct KillGuard {
    group: Option<rustix::process::Pid>,
    cookie: Option<Cookie>,
    sandboxed: bool,
}

impl KillGuard {
    fn new(child: &Child, spec: &Spec) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        Self { group: pid, cookie: spec.cookie.clone(), sandboxed: !matches!(spec.sandbox, Sandbox::None) }
    }

    /// SIGTERM, `grace`, SIGKILL. Output is read meanwhile, so that a process can finish what it is printing.
    async fn end(&self, child: &mut Child, output: &mut Output<'_>, grace: Duration) -> std::io::Result<ExitStatus> {
        if !grace.is_zero() {
            self.ask();
            if let Some(status) = exit_within(child, output, grace).await {
                return status;
            }
        }
        self.kill_now();
        match exit_within(child, output, KILL_WAIT).await {
            Some(status) => status,
            None => Err(std::io::Error::other("it does not die (stuck in the kernel)")),
        }
    }

    /// Asks to end. In a sandbox only those within are asked: bubblewrap itself would take them down without grace.
    fn ask(&self) {
        let inside = self.cookie.as_ref().map(|c| survivors(c.as_str())).unwrap_or_default();
        let inside: Vec<_> = inside.iter().filter(|s| Some(s.pid()) != self.group).collect();
        for survivor in &inside {
            survivor.signal(rustix::process::Signal::TERM);
            survivor.signal(rustix::process::Signal::CONT);
        }
        if (!self.sandboxed || inside.is_empty())
            && let Some(group) = self.group
        {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
            // One that was stopped sees the first signal only when it goes on.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::CONT);
        }
    }

    fn kill_now(&self) {
        if let Some(group) = self.group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        if let Some(cookie) = &self.cookie {
            for survivor in survivors(cookie.as_str()) {
                survivor.signal(rustix::process::Signal::KILL);
            }
        }
    }

    /// Kills what outlived the main process, and waits until it is gone.
    async fn kill_rest(&self) {
        self.kill_now();
        if let Some(cookie) = &self.cookie {
            end_survivors(cookie.as_str(), Duration::ZERO).await;
        }
    }

    fn disarm(&mut self) {
        self.group = None;
        self.cookie = None;
    }
}

impl Drop for KillGuard {
    fn drop(&mut self) {
        self.kill_now();
    }
}

/// The status, if the process exits in time.
async fn exit_within(
    child: &mut Child,
    output: &mut Output<'_>,
    time: Duration,
) -> Option<std::io::Result<ExitStatus>> {
    let mut limit = Box::pin(tokio::time::sleep(time));
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return Some(status),
            () = &mut limit => return None,
            _ = output.read() => {}
        }
    }
}

/// A future that is boxed where calls go round in a circle (a sandboxed run looks for bubblewrap by a run).
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
