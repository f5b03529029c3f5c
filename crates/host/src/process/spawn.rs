//! Starts a child: finds its program, prepares its descriptors and closes all others.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use failpoint::kill_point;
use ralph_types::failure::Failure;
use rustix::fs::{Access, Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::cgroup::{self, RunCgroup};
use super::dialog::DialogWriter;
use super::egress_proxy::{self, PROXY_FD, PROXY_PORT, ProxyEntrance};
use super::sandbox::{
    Defence, Mounts, Network, Prepared, SandboxBuilder, SandboxStatus, SandboxView, UserLease, pipe_of, readable,
};
use super::shares::{self, UserShare};
use super::survivors::{COOKIE_VARIABLE, Cookie};
use super::{ProcessError, ProcessSpec, Stdin, memory, syscalls};
use crate::domain::trust::limits::SandboxLimits;

/// Number of further files in transit while a sandbox passes its sockets to the service, which other runs of the user
/// cannot use up. One message may exceed the limit by its 253 files.
const PASSING_DESCRIPTORS: u64 = 1_024;
/// Value that is added to the niceness of a sandbox, so that the service has priority.
const NICE: i32 = 5;
/// Maximum number of attempts to start a program that a child of another thread briefly holds open for writing.
const MAX_BUSY_ATTEMPTS: u32 = 10;

/// Protects this process's memory and environment: disables core dumps, and makes `/proc` entries unreadable for other
/// processes of the same user. Called once, at the start of `main`.
///
/// # Errors
/// The system refuses; the program can continue without this protection.
pub fn harden() -> io::Result<()> {
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Returns the absolute path of a program: `program` itself if it contains a slash (relative to `base`), else the first
/// executable with that name in `path` (in the format of `PATH`; relative entries are ignored).
///
/// # Errors
/// `NotFound`, `NotExecutable`.
pub fn executable(program: &Path, base: &Path, path: &OsStr) -> Result<PathBuf, ProcessError> {
    let not_found = || ProcessError::NotFound { program: program.to_owned() };
    if program.as_os_str().as_bytes().contains(&b'/') {
        let file = base.join(program);
        let metadata = std::fs::metadata(&file).map_err(|_| not_found())?;
        return if metadata.is_file() && may_execute(&file) {
            Ok(file)
        } else {
            Err(ProcessError::NotExecutable { program: file })
        };
    }
    if program.as_os_str().is_empty() {
        return Err(not_found());
    }
    let mut refused = None;
    for folder in std::env::split_paths(path).filter(|folder| folder.is_absolute()) {
        let file = folder.join(program);
        if file.is_file() {
            if may_execute(&file) {
                return Ok(file);
            }
            refused.get_or_insert(file);
        }
    }
    Err(refused.map_or_else(not_found, |program| ProcessError::NotExecutable { program }))
}

fn may_execute(file: &Path) -> bool {
    rustix::fs::access(file, Access::EXEC_OK).is_ok()
}

/// Started program, and the way in which its egress proxy receives connections.
pub(super) struct Started {
    /// Child, which is killed when it is dropped, unless it is the supervisor of a sandbox.
    pub(super) child: Child,
    /// Writer of its input; `None` if nothing is sent while it runs.
    pub(super) dialog: Option<DialogWriter>,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) entrance: Option<ProxyEntrance>,
    /// User of the run, which no other run gets until this is dropped.
    pub(super) user: Option<UserLease>,
    /// Share of the limits of the service's user; `None` without a sandbox or with a separate user.
    pub(super) share: Option<UserShare>,
    /// Control group of the run; `None` if it has none.
    pub(super) group: Option<Arc<RunCgroup>>,
    /// Temporary folder of the run, which is removed when this is dropped.
    pub(super) folder: Option<tempfile::TempDir>,
    /// Status messages of bubblewrap.
    pub(super) status: Option<SandboxStatus>,
}

/// View of a sandbox, and the mechanism that builds it.
type BuiltSandbox<'a> = (&'a SandboxView, SandboxBuilder<'a>);

/// Starts the program of `spec`, in a sandbox if one is given.
pub(super) async fn start(spec: &ProcessSpec, sandbox: Option<BuiltSandbox<'_>>) -> Result<Started, ProcessError> {
    let program = program_in_folder(spec)?;
    let input = |what| {
        let program = program.clone();
        move |source| ProcessError::Input { program, what, source }
    };
    let no_proxy = input("the socket of its egress proxy");
    let mut entrance = None;
    let mut prepared = match sandbox {
        None => None,
        Some((view, builder)) => {
            let failed = |reason| ProcessError::Sandbox { program: program.clone(), reason };
            let here = matches!(builder, SandboxBuilder::Landlock(_)).then(|| spec.egress()).flatten();
            let (proxy, port) = here.map(|_| egress_proxy::listen_here()).transpose().map_err(no_proxy)?.unzip();
            let ports: Vec<u16> =
                port.into_iter().chain(here.iter().flat_map(|e| egress_proxy::ports_here(e))).collect();
            entrance = proxy;
            let environment = inner_environment(spec, view, port.unwrap_or(PROXY_PORT));
            Some(view.prepare(builder, (&program, &spec.cwd), &environment, &ports).map_err(failed)?)
        }
    };
    let folder = prepared.as_mut().and_then(|prepared| prepared.folder.take());
    let status = prepared.as_mut().and_then(|prepared| prepared.status.take());
    let lease = prepared.as_mut().and_then(|prepared| prepared.user.take());
    let user = lease.as_ref().map(UserLease::user);
    let mut given = Vec::new();
    // Sorted by number: bubblewrap's descriptors are above the proxy's.
    if spec.egress().is_some() && entrance.is_none() {
        let (ours, theirs) = egress_proxy::pair().map_err(input("the socket of its egress proxy"))?;
        given.push((PROXY_FD, theirs));
        entrance = Some(ProxyEntrance::Passed(ours));
    }
    given.extend(prepared.iter_mut().flat_map(|prepared| std::mem::take(&mut prepared.files)));
    let mounts = prepared.as_mut().and_then(|prepared| prepared.mounts.take());
    let mounted = mounts.is_some();
    let shares_user = sandbox.is_some() && user.is_none();
    let share = shares_user.then(|| UserShare::here(matches!(mounts, Some(Mounts::Own { .. }))));
    let supervised = matches!(sandbox, Some((_, SandboxBuilder::Landlock(_))));
    let ((out, stdout), (err, stderr)) =
        pipe_of(user).and_then(|out| Ok((out, pipe_of(user)?))).map_err(input("the pipes of its output"))?;
    let group = sandbox.and_then(|(view, _)| group_of_run(view.settings.limits)).map(Arc::new);
    let group_entrance = group.as_deref().map(RunCgroup::entrance).transpose().map_err(input("its control group"))?;
    let passes_sockets = matches!(entrance, Some(ProxyEntrance::Passed(_)));
    let descriptors = shares::MOST_DESCRIPTORS + if passes_sockets { PASSING_DESCRIPTORS } else { 0 };
    let limits = sandbox.map(|(view, _)| resource_limits(view.settings.limits, descriptors));
    let keyring = sandbox.is_some_and(|(view, _)| view.settings.has(Defence::Keyring));
    let preparation = preparation(ChildSetup { given, mounts, entrance: group_entrance, limits, keyring });
    let mut command = command(spec, &program, prepared, preparation);
    // A supervisor ends the processes inside before itself.
    command.stdout(stdout).stderr(stderr).kill_on_drop(!supervised);
    for attempt in 1.. {
        match command.stdin(stdin_of(&spec.stdin).map_err(input("standard input"))?).spawn() {
            Ok(mut child) => {
                let dialog = match &spec.stdin {
                    Stdin::Dialog(dialog) => child.stdin.take().map(|stdin| DialogWriter::new(dialog.clone(), stdin)),
                    Stdin::Null | Stdin::Bytes(_) => None,
                };
                let outputs = || {
                    let stdout = ChildStdout::from_std(std::process::ChildStdout::from(out))?;
                    Ok((stdout, ChildStderr::from_std(std::process::ChildStderr::from(err))?))
                };
                let (stdout, stderr) = outputs().map_err(input("the pipes of its output"))?;
                if let Some(pid) = child.id() {
                    memory::raise_oom_score(pid);
                }
                if spec.cookie.is_some() {
                    kill_point("K16");
                }
                return Ok(Started {
                    child,
                    dialog,
                    stdout,
                    stderr,
                    entrance,
                    user: lease,
                    share,
                    group,
                    folder,
                    status,
                });
            }
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && attempt < MAX_BUSY_ATTEMPTS => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // A zero byte, which the system never saw.
            Err(source) if source.raw_os_error().is_none() => {
                return Err(input("its arguments and environment")(source));
            }
            Err(source) if mounted && source.kind() == io::ErrorKind::PermissionDenied => {
                return Err(ProcessError::Sandbox { program, reason: mounts_refused(source) });
            }
            Err(source) => {
                let advice = advice(&source);
                return Err(ProcessError::Spawn { program, advice, source });
            }
        }
    }
    unreachable!("the loop returns at its last try")
}

/// Returns the path of the program of `spec`. Its folder must exist.
fn program_in_folder(spec: &ProcessSpec) -> Result<PathBuf, ProcessError> {
    let path = spec.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let program = executable(&spec.program, &spec.cwd, path.unwrap_or_default())?;
    let folder = std::fs::metadata(&spec.cwd)
        .and_then(|m| if m.is_dir() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::NotADirectory)) });
    match folder {
        Ok(()) => Ok(program),
        Err(source) => Err(ProcessError::NoFolder { program, folder: spec.cwd.clone(), source }),
    }
}

fn stdin_of(stdin: &Stdin) -> io::Result<Stdio> {
    match stdin {
        Stdin::Null => File::open("/dev/null").map(Stdio::from),
        Stdin::Bytes(bytes) => readable(bytes).map(Stdio::from),
        Stdin::Dialog(_) => Ok(Stdio::piped()),
    }
}

fn cookie_variable(cookie: &Cookie) -> (OsString, OsString) {
    (COOKIE_VARIABLE.into(), cookie.as_str().into())
}

/// Returns the call of the program, or of the program that builds its sandbox, with its environment and preparation.
#[expect(unsafe_code, reason = "the only route to act in the child before it becomes the program")]
fn command(
    spec: &ProcessSpec,
    program: &Path,
    sandbox: Option<Prepared>,
    preparation: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> Command {
    let called = sandbox.as_ref().map_or(program, |sandbox| &sandbox.program);
    #[expect(clippy::disallowed_methods, reason = "the only place that spawns processes")]
    let mut command = Command::new(called);
    command.env_clear();
    match &sandbox {
        None => {
            command.current_dir(&spec.cwd).envs(spec.env.iter().map(|(name, value)| (name, value)));
        }
        Some(sandbox) => {
            command.current_dir("/").args(&sandbox.arguments).arg(program);
        }
    }
    command.args(&spec.args).envs(spec.cookie.iter().map(cookie_variable));
    // SAFETY: only system calls on values that exist already; nothing allocates, locks or panics.
    unsafe { command.pre_exec(preparation) };
    command
}

/// Returns the environment of a program in a sandbox whose egress proxy has this port. bubblewrap itself does not get
/// these variables: in its environment, the program could make it load libraries, and arguments of `--setenv` are
/// readable for every user of the machine.
fn inner_environment(spec: &ProcessSpec, view: &SandboxView, port: u16) -> Vec<(OsString, OsString)> {
    let mut environment = spec.env.clone();
    environment.push(("HOME".into(), view.home.folder().into()));
    environment.push(("TMPDIR".into(), "/tmp".into()));
    if matches!(view.network, Network::Only(_)) {
        environment.extend(egress_proxy::environment(port).map(|(name, value)| (name.into(), value.into())));
    }
    environment.extend(spec.cookie.iter().map(cookie_variable));
    environment
}

fn mounts_refused(error: io::Error) -> Failure {
    let problem = if rustix::process::geteuid().is_root() {
        Failure::new("the service is root and may not create mounts for it")
            .with_hint("run the service as a user other than root, or give it the capability CAP_SYS_ADMIN")
    } else {
        Failure::new("could not set up its user namespace")
            .with_hint("docs/guides/sandbox-host.md lists the requirements")
    };
    problem.caused_by(error)
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => "the interpreter in its first line (#!) or its loader is missing",
        Some(Errno::NOEXEC) => "it is neither a program for this machine nor a script with a first line like #!/bin/sh",
        Some(Errno::TOOBIG) => "its arguments are too long; hand them over by file or standard input",
        Some(Errno::AGAIN | Errno::NOMEM) => "the machine is out of processes or memory; lower the number of loops",
        Some(Errno::MFILE | Errno::NFILE) => "too many files are open; raise the limit (ulimit -n)",
        Some(Errno::TXTBSY) => "another process still writes to it; try again after it has finished",
        _ => "check that it can be run by hand as the user of this service",
    }
}

/// Creates the control group of a run; `None` if the service cannot create groups or on errors, because the limits are
/// also measured.
fn group_of_run(limits: SandboxLimits) -> Option<RunCgroup> {
    let created = RunCgroup::create(cgroup::parent().ok()?, limits);
    created.inspect_err(|error| tracing::warn!(%error, "a run has no control group; its limits are only measured")).ok()
}

/// Preparation of a child before it executes the program.
struct ChildSetup {
    /// Descriptors of the child above 2, by number.
    given: Vec<(RawFd, OwnedFd)>,
    mounts: Option<Mounts>,
    /// File through which the child enters its control group; `None` without one.
    entrance: Option<OwnedFd>,
    /// Limits of each process of the sandbox; `None` without a sandbox.
    limits: Option<[(Resource, Rlimit); 4]>,
    /// Whether the child gets its own session keyring.
    keyring: bool,
}

/// Returns the steps of a child before it executes the program: its own session, no core dumps, only the given
/// descriptors. In a sandbox, also its control group, limits, mounts and keyring. The steps only make system calls on
/// existing values; they do not allocate, lock or panic.
fn preparation(setup: ChildSetup) -> impl FnMut() -> io::Result<()> + Send + Sync + 'static {
    let ChildSetup { given, mounts, entrance, limits, keyring } = setup;
    move || {
        rustix::process::setsid()?;
        entrance.as_ref().map_or(Ok(()), cgroup::enter)?;
        if keyring {
            // Without one, keys are out of reach all the same: the filter of system calls refuses access to them.
            let _ = syscalls::join_new_keyring();
        }
        limits.map_or(Ok(()), limit_resources)?;
        // First, because the given descriptors may have the numbers of the mounts.
        mounts.as_ref().map_or(Ok(()), Mounts::attach)?;
        rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        given.iter().try_for_each(|(number, source)| place(source, *number))?;
        close_on_exec(&given)
    }
}

/// Duplicates a descriptor to a number. Does not allocate.
#[expect(unsafe_code, reason = "the number is chosen by the caller")]
fn place(source: &OwnedFd, number: RawFd) -> io::Result<()> {
    if source.as_raw_fd() != number {
        // SAFETY: the number may be overwritten in the child; it is released again without closing.
        let mut target = unsafe { OwnedFd::from_raw_fd(number) };
        let done = rustix::io::dup2(source, &mut target);
        let _ = target.into_raw_fd();
        done?;
    }
    Ok(())
}

/// Returns the limits of each process in a sandbox: at most the limits of the service, and a share of its user's.
fn resource_limits(limits: SandboxLimits, descriptors: u64) -> [(Resource, Rlimit); 4] {
    [
        (Resource::Fsize, shares::lowered(Resource::Fsize, (limits.disk_mib + 1) << 20)),
        (Resource::Nofile, shares::lowered(Resource::Nofile, descriptors)),
        (Resource::Sigpending, shares::part_of_resource(Resource::Sigpending)),
        (Resource::Msgqueue, shares::part_of_resource(Resource::Msgqueue)),
    ]
}

/// Limits the resources of each process in a sandbox and lowers its priority. Does not allocate.
fn limit_resources(limits: [(Resource, Rlimit); 4]) -> io::Result<()> {
    limits.into_iter().try_for_each(|(resource, limit)| rustix::process::setrlimit(resource, limit))?;
    let _ = rustix::process::nice(NICE);
    Ok(())
}

/// Marks every descriptor above 2 as close-on-exec, except the given ones. Does not allocate.
#[expect(unsafe_code, reason = "descriptors are named by number here")]
fn close_on_exec(given: &[(RawFd, OwnedFd)]) -> io::Result<()> {
    let folder =
        rustix::fs::open("/proc/self/fd", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
    let mut entries = rustix::fs::RawDir::new(folder.as_fd(), &mut buffer);
    while let Some(entry) = entries.next() {
        let Some(number) = number(entry?.file_name().to_bytes()) else { continue };
        if number > 2 {
            let keep = given.iter().any(|(given, _)| *given == number);
            let flags = if keep { FdFlags::empty() } else { FdFlags::CLOEXEC };
            // SAFETY: the number was just listed as open, and the child has one thread.
            rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, flags)?;
        }
    }
    Ok(())
}

fn number(name: &[u8]) -> Option<RawFd> {
    std::str::from_utf8(name).ok()?.parse().ok()
}
