//! Runs one child to its end: reads its output, enforces its limits, and kills its remaining processes.

mod bubblewrap;

use std::future::pending;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use failpoint::kill_point;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::capture::{self, Captured, HeadAndTail, LineCutter};
use super::cgroup::RunCgroup;
use super::dialog::DialogWriter;
use super::sandbox::{END_ALL, SandboxBuilder, SandboxMechanism, SandboxStatus};
use super::shares::UserShare;
use super::usage::MeasuredRun;
use super::{
    Cookie, Finished, LineDecision, Lines, Masker, ProcessEnd, ProcessError, ProcessSpec, Sandbox, Stream,
    egress_proxy, end_survivors, memory, sandbox, spawn, survivors, usage,
};
use crate::clock::Stopwatch;

pub(super) use bubblewrap::installed as installed_bubblewrap;

/// Time for which output is read after the main process has ended, because its children may still write.
const DRAIN: Duration = Duration::from_secs(2);
/// Maximum time between SIGTERM and SIGKILL when a run is canceled. Cancellation takes at most 5 s in total.
const CANCEL_GRACE: Duration = Duration::from_secs(3);
/// Maximum time that a process gets to end its work by itself before SIGTERM, if its input has a way to ask for that.
const FAREWELL: Duration = Duration::from_secs(2);
/// Maximum wait for a killed process to end, because it may be in uninterruptible I/O. The kernel needs seconds on a busy machine
/// to free the millions of objects that some processes hold.
const KILL_WAIT: Duration = Duration::from_secs(30);
/// Number of SIGKILL, and the exit code of a shell or sandbox whose process was killed by it.
const KILLED: i32 = 9;
const KILLED_WITHIN: i32 = 128 + KILLED;
/// Bytes read at a time.
const CHUNK: usize = 64 * 1024;

/// Runs a program to its end and returns its output.
///
/// `lines` is called for each line while the program runs and can stop the program. Dropping the future kills the
/// program. Must not be called from a blocking-pool thread, because bubblewrap dies with the *thread* that started it.
///
/// # Errors
/// The program did not run. The end of a program that ran is in [`Finished::ended`].
pub async fn run(
    spec: ProcessSpec,
    cancel: &CancellationToken,
    lines: Option<Lines<'_>>,
) -> Result<Finished, ProcessError> {
    let watch = Stopwatch::start();
    let killed_before = memory::killed_so_far();
    let sandbox = match &spec.sandbox {
        Sandbox::None => None,
        Sandbox::View(view) => {
            let failed = |reason| ProcessError::Sandbox { program: spec.program.clone(), reason };
            let builder = match &view.settings.mechanism {
                SandboxMechanism::Bubblewrap => {
                    SandboxBuilder::Bubblewrap(installed_bubblewrap().await.map_err(failed)?)
                }
                SandboxMechanism::Landlock(helper) => SandboxBuilder::Landlock(helper),
            };
            Some((&**view, builder))
        }
    };
    let started = spawn::start(&spec, sandbox).await?;
    let spawn::Started { child, dialog, stdout, stderr, entrance, user, share, group, folder: _folder, status } =
        started;
    let _lease = user;
    let output = Output { dialog, ..Output::new((stdout, stderr), &spec, lines) };
    let measured = measured_run(child.id(), &spec.sandbox, group.clone(), share);
    let completion = watch_to_end(&spec, (child, status), output, measured, cancel);
    let mut finished = match (entrance, spec.egress()) {
        (Some(entrance), Some(egress)) => tokio::select! {
            finished = completion => finished?,
            never = egress_proxy::serve(entrance, egress) => match never {},
        },
        _ => completion.await?,
    };
    if let Some(group) = group {
        if let (Some(reason), false) = (group.exceeded(), finished.success()) {
            finished.ended = ProcessEnd::ResourceLimit(reason);
        }
        if let Some(group) = Arc::into_inner(group) {
            group.end().await;
        }
    }
    let killed = matches!(finished.ended, ProcessEnd::Signalled(KILLED) | ProcessEnd::Exited(KILLED_WITHIN));
    finished.out_of_memory = killed && memory::killed_so_far() > killed_before;
    finished.duration = watch.elapsed();
    Ok(finished)
}

/// Watches a started child until all of its processes have ended.
async fn watch_to_end(
    spec: &ProcessSpec,
    (mut child, built): (Child, Option<SandboxStatus>),
    mut output: Output<'_>,
    measured: Option<MeasuredRun>,
    cancel: &CancellationToken,
) -> Result<Finished, ProcessError> {
    let program = &spec.program;
    let mut guard = KillGuard::new(&child, spec);
    let mut limits = Watch {
        wall: Box::pin(tokio::time::sleep(spec.limits.wall)),
        resources: Box::pin(exceeded_limit(measured)),
        idle: spec.limits.idle,
        cancel,
    };

    let (why, status) = match until_end(&mut child, &mut output, &mut limits).await {
        WaitOutcome::Exited(status) => (None, status),
        WaitOutcome::Over(why) => {
            let most = if why == ProcessEnd::Cancelled { CANCEL_GRACE } else { spec.limits.grace };
            (Some(why), guard.end(&mut child, &mut output, spec.limits.grace.min(most)).await)
        }
    };
    // The pipes are read for a limited time, because a daemon may hold them open.
    let drained = tokio::time::timeout(DRAIN, output.drain()).await;
    guard.kill_rest().await;
    if drained.is_err() {
        let _ = tokio::time::timeout(Duration::from_millis(100), output.drain()).await;
    }
    guard.disarm();

    let status = status.map_err(|source| ProcessError::Wait { program: program.clone(), source })?;
    let (stdout, stderr) = output.finish();
    let is_built = built.is_some_and(|status| status.is_built());
    if why.is_none()
        && let Some(reason) = sandbox::setup_failure((&spec.sandbox, is_built), status, &stdout, &stderr)
    {
        return Err(ProcessError::Sandbox { program: program.clone(), reason: reason.into() });
    }
    let ended = why.unwrap_or_else(|| match (status.code(), status.signal()) {
        (Some(code), _) => ProcessEnd::Exited(code),
        (None, signal) => ProcessEnd::Signalled(signal.unwrap_or_default()),
    });
    let (out_of_memory, duration) = (false, Duration::ZERO);
    Ok(Finished { ended, exit_code: status.code(), stdout, stderr, out_of_memory, duration })
}

/// First event that ends the wait for a process.
enum WaitOutcome {
    Exited(std::io::Result<ExitStatus>),
    Over(ProcessEnd),
}

/// Limits that are enforced while a process runs.
struct Watch<'a> {
    wall: Pin<Box<Sleep>>,
    resources: Pin<Box<dyn Future<Output = String> + Send>>,
    idle: Option<Duration>,
    cancel: &'a CancellationToken,
}

/// Reads output and waits until the process exits, a limit is reached, or the callback for lines stops it.
async fn until_end(child: &mut Child, output: &mut Output<'_>, watch: &mut Watch<'_>) -> WaitOutcome {
    let idle_limit = watch.idle;
    let mut idle = Box::pin(silence(idle_limit));
    loop {
        tokio::select! {
            // In this order, so that limits are enforced for a process that floods its output.
            biased;
            () = watch.cancel.cancelled() => return WaitOutcome::Over(ProcessEnd::Cancelled),
            () = &mut watch.wall => return WaitOutcome::Over(ProcessEnd::WallLimit),
            reason = &mut watch.resources => return WaitOutcome::Over(ProcessEnd::ResourceLimit(reason)),
            status = child.wait() => return WaitOutcome::Exited(status),
            read = output.read() => {
                if let LineDecision::Stop(reason) = read {
                    return WaitOutcome::Over(ProcessEnd::Stopped(reason));
                }
                idle.set(silence(idle_limit));
            }
            () = &mut idle => return WaitOutcome::Over(ProcessEnd::IdleLimit),
        }
    }
}

/// Returns the started run to measure; `None` without a sandbox.
fn measured_run(
    pid: Option<u32>,
    sandbox: &Sandbox,
    group: Option<Arc<RunCgroup>>,
    share: Option<UserShare>,
) -> Option<MeasuredRun> {
    let Sandbox::View(view) = sandbox else { return None };
    Some(MeasuredRun { root: pid?, limits: view.settings.limits, folders: view.writable_folders(), group, share })
}

/// Completes when a run exceeds a limit; never completes without a run.
async fn exceeded_limit(run: Option<MeasuredRun>) -> String {
    match run {
        Some(run) => usage::exceeded(run).await,
        None => pending().await,
    }
}

/// Completes after `limit`; never completes if it is `None`.
async fn silence(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => pending().await,
    }
}

/// Both output streams of a child, stored within limits and split into lines, and the input that answers them.
struct Output<'a> {
    dialog: Option<DialogWriter>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    keepers: [HeadAndTail; 2],
    cutters: [LineCutter; 2],
    buffers: [Vec<u8>; 2],
    lines: Option<Lines<'a>>,
    secrets: Masker,
}

impl<'a> Output<'a> {
    fn new((stdout, stderr): (ChildStdout, ChildStderr), spec: &ProcessSpec, lines: Option<Lines<'a>>) -> Self {
        let keep = spec.limits.keep_bytes;
        Self {
            dialog: None,
            stdout: Some(stdout),
            stderr: Some(stderr),
            keepers: [HeadAndTail::new(keep), HeadAndTail::new(keep)],
            cutters: [LineCutter::default(), LineCutter::default()],
            buffers: [vec![0; CHUNK], vec![0; CHUNK]],
            lines,
            secrets: spec.secrets.clone(),
        }
    }

    /// Reads one chunk of either stream, or writes input; never returns if both streams have ended and there is no input.
    async fn read(&mut self) -> LineDecision {
        let [out, err] = &mut self.buffers;
        let (index, read) = tokio::select! {
            written = next_input(&mut self.dialog) => return written,
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

    /// Stores a chunk and reports the lines that it completes. A chunk of 0 bytes is the end of the stream.
    fn take(&mut self, index: usize, read: usize) -> LineDecision {
        let bytes = &self.buffers[index][..read];
        self.keepers[index].push(bytes);
        let Some(lines) = self.lines.as_mut() else { return LineDecision::Continue };
        if read > 0 {
            kill_point("K19");
        }
        let stream = if index == 0 { Stream::Stdout } else { Stream::Stderr };
        let secrets = &self.secrets;
        let mut flow = LineDecision::Continue;
        let mut emit = |line: &[u8], cut: bool| {
            if flow == LineDecision::Continue {
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

    /// Reads until both streams have ended. Lines are still reported, but decisions of the callback are ignored.
    async fn drain(&mut self) {
        while self.stdout.is_some() || self.stderr.is_some() {
            self.read().await;
        }
    }

    fn finish(mut self) -> (Captured, Captured) {
        for index in 0..2 {
            // A last line without line ending, on an output that is still open.
            self.take(index, 0);
        }
        let [stdout, stderr] = self.keepers;
        (stdout.finish(&self.secrets), stderr.finish(&self.secrets))
    }
}

/// Returns the number of bytes read; 0 at the end and on an error. Never returns if `from` is `None`.
async fn next_chunk<R: tokio::io::AsyncRead + Unpin>(from: &mut Option<R>, buffer: &mut [u8]) -> usize {
    match from {
        Some(reader) => reader.read(buffer).await.unwrap_or(0),
        None => pending().await,
    }
}

/// Writes some input. Never returns if there is none.
async fn next_input(dialog: &mut Option<DialogWriter>) -> LineDecision {
    match dialog {
        Some(dialog) => dialog.write().await,
        None => pending().await,
    }
}

/// Guard that kills all processes of a run when it is dropped at the latest.
struct KillGuard {
    group: Option<Pid>,
    cookie: Option<Cookie>,
    sandboxed: bool,
    /// Signal that kills the main process and thereby all processes of its sandbox.
    kill: Signal,
}

impl KillGuard {
    fn new(child: &Child, spec: &ProcessSpec) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let supervised = match &spec.sandbox {
            Sandbox::View(view) => view.settings.mechanism != SandboxMechanism::Bubblewrap,
            Sandbox::None => false,
        };
        let kill = if supervised { END_ALL } else { Signal::KILL };
        Self { group: pid, cookie: spec.cookie.clone(), sandboxed: !matches!(spec.sandbox, Sandbox::None), kill }
    }

    /// Asks the process by its input to end its work, sends SIGTERM, waits for `grace`, and sends SIGKILL. Output is read in
    /// the meantime, so that the process does not block.
    async fn end(&self, child: &mut Child, output: &mut Output<'_>, grace: Duration) -> std::io::Result<ExitStatus> {
        let asks = output.dialog.as_ref().is_some_and(|dialog| dialog.dialog().say_farewell());
        if asks && let Some(status) = exit_within(child, output, FAREWELL).await {
            return status;
        }
        if !grace.is_zero() {
            self.terminate();
            if let Some(status) = exit_within(child, output, grace).await {
                return status;
            }
        }
        self.kill_now();
        match exit_within(child, output, KILL_WAIT).await {
            Some(status) => status,
            None => Err(std::io::Error::other("it did not end after SIGKILL (it may be in uninterruptible I/O)")),
        }
    }

    /// Sends SIGTERM. In a sandbox, only processes inside receive it, because the end of bubblewrap would kill them
    /// immediately.
    fn terminate(&self) {
        let inside = self.cookie.as_ref().map(|c| survivors(c.as_str())).unwrap_or_default();
        let inside: Vec<_> = inside.iter().filter(|s| Some(s.pid()) != self.group).collect();
        for survivor in &inside {
            survivor.signal(Signal::TERM);
            survivor.signal(Signal::CONT);
        }
        if (!self.sandboxed || inside.is_empty())
            && let Some(group) = self.group
        {
            let _ = kill_process_group(group, Signal::TERM);
            // A stopped process handles SIGTERM only after SIGCONT.
            let _ = kill_process_group(group, Signal::CONT);
        }
    }

    fn kill_group(&self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, self.kill);
        }
    }

    fn kill_now(&self) {
        self.kill_group();
        if let Some(cookie) = &self.cookie {
            for survivor in survivors(cookie.as_str()) {
                survivor.signal(Signal::KILL);
            }
        }
    }

    /// Kills the remaining processes and waits until they have ended.
    async fn kill_rest(&self) {
        self.kill_group();
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

/// Returns the exit status if the process exits within a time; otherwise `None`.
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
