//! Starts a child that shares the service's memory until it executes the program. This is like `vfork` and
//! `posix_spawn`, but with custom steps in between. `std` and tokio fork for such steps, which copies the page tables
//! of the service; see docs/decisions/0203-children-borrow-the-services-memory-until-they-become-their-program.md.
//!
//! Invariants: the calling thread is suspended until the child has executed the program or has ended, so nothing that
//! the child uses is changed or freed; other threads continue. The child only makes system calls on existing values:
//! it does not allocate, lock or panic. No signal handler of the service runs in the child. The child has its own
//! stack.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{LazyLock, Mutex, PoisonError};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Shell for scripts without a first line like `#!/bin/sh`, the same as in `execvp`.
const SHELL: &CStr = c"/bin/sh";
/// Size of the child's stack, in bytes. Its deepest frame has a buffer of 4 KiB.
const STACK: usize = 256 * 1024;
/// Highest number of a signal.
const LAST_SIGNAL: c_int = 64;

/// Children that were dropped before they ended. They are reaped when the next child is started or dropped.
static DROPPED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Steps of a child before it executes the program. They must not allocate, lock or panic.
pub(super) type Preparation = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Program to start, with everything that the child gets except standard input.
pub(super) struct DirectSpawn {
    program: CString,
    /// Arguments including the program's name as the first one.
    arguments: Vec<CString>,
    environment: Vec<CString>,
    folder: CString,
    /// Standard output and standard error.
    outputs: [OwnedFd; 2],
    preparation: Preparation,
    kill_on_drop: bool,
}

/// Child that was started by `DirectSpawn`.
pub(super) struct DirectChild {
    pid: Pid,
    /// File descriptor that becomes readable when the child ends.
    end: AsyncFd<OwnedFd>,
    status: Option<ExitStatus>,
    kill_on_drop: bool,
}

/// Whether the kernel can report the end of a child through a file descriptor (Linux 5.3).
pub(super) fn is_available() -> bool {
    static AVAILABLE: LazyLock<bool> =
        LazyLock::new(|| pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).is_ok());
    *AVAILABLE
}

impl DirectSpawn {
    /// Prepares a program with its path, arguments (without the program's name), complete environment, working
    /// directory and outputs. If a variable occurs twice, its last value is used. The child is not killed when it is
    /// dropped unless [`Self::kill_on_drop`] is set.
    ///
    /// # Errors
    /// `InvalidInput` if a text contains a zero byte.
    pub(super) fn new<'a>(
        program: &Path,
        arguments: impl Iterator<Item = &'a OsStr>,
        environment: &[(OsString, OsString)],
        folder: &Path,
        outputs: [OwnedFd; 2],
        preparation: Preparation,
    ) -> io::Result<Self> {
        let variables: BTreeMap<&OsString, &OsString> = environment.iter().map(|(name, value)| (name, value)).collect();
        let variables = variables.into_iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
        let program = CString::new(program.as_os_str().as_bytes())?;
        let arguments = arguments.map(|argument| CString::new(argument.as_bytes()));
        Ok(Self {
            arguments: std::iter::once(Ok(program.clone())).chain(arguments).collect::<Result<_, _>>()?,
            program,
            environment: variables.map(CString::new).collect::<Result<_, _>>()?,
            folder: CString::new(folder.as_os_str().as_bytes())?,
            outputs,
            preparation,
            kill_on_drop: false,
        })
    }

    /// Sets whether the child is killed when it is dropped before its end.
    pub(super) fn kill_on_drop(mut self, kill: bool) -> Self {
        self.kill_on_drop = kill;
        self
    }

    /// Starts the child with this standard input. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Those of the preparation steps and of `execve`.
    pub(super) fn spawn(&self, stdin: &OwnedFd) -> io::Result<DirectChild> {
        reap_dropped();
        let (_, own) = self.arguments.split_at(1);
        let of_shell = [SHELL, self.program.as_c_str()].into_iter().chain(own.iter().map(CString::as_c_str));
        let (of_program, of_shell) = (pointers(self.arguments.iter().map(CString::as_c_str)), pointers(of_shell));
        let environment = pointers(self.environment.iter().map(CString::as_c_str));
        let mut launch = Launch { spawn: self, stdin, of_program, of_shell, environment, error: 0 };
        let pid = launch.start()?;
        if launch.error != 0 {
            waitpid(Some(pid), WaitOptions::empty())?;
            return Err(io::Error::from_raw_os_error(launch.error));
        }
        DirectChild::new(pid, self.kill_on_drop).inspect_err(|_| {
            let _ = kill_process(pid, Signal::KILL);
            push_dropped(pid);
        })
    }
}

/// Data of a child that is being started, in memory that the child shares with the waiting thread.
struct Launch<'a> {
    spawn: &'a DirectSpawn,
    stdin: &'a OwnedFd,
    /// Arguments for `execve`.
    of_program: Vec<*const c_char>,
    /// Arguments for the shell that runs a script without an interpreter line.
    of_shell: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// Error number that prevented the child from executing the program; 0 for none.
    error: c_int,
}

impl Launch<'_> {
    /// Returns the PID of the child when it has executed the program, or the error with which it has ended.
    #[expect(unsafe_code, reason = "neither std nor rustix has a child that shares memory")]
    fn start(&mut self) -> io::Result<Pid> {
        let mut stack: Vec<u128> = Vec::with_capacity(STACK / size_of::<u128>());
        let blocked = BlockedSignals::all()?;
        // SAFETY: the stack grows down from its aligned end and is large enough for `child`. It and this value are used by the child
        // alone, until it becomes the program or ends, because of CLONE_VFORK.
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(stack.capacity());
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            libc::clone(child, top.cast(), flags, std::ptr::from_mut(self).cast())
        };
        let error = io::Error::last_os_error();
        drop(blocked);
        Pid::from_raw(pid).filter(|_| pid > 0).ok_or(error)
    }

    /// Executes the program; returns only on an error.
    #[expect(unsafe_code, reason = "the system calls of a child")]
    fn run(&self) -> io::Result<()> {
        let Self { spawn, stdin, of_program, of_shell, environment, .. } = self;
        let [stdout, stderr] = &spawn.outputs;
        default_signal_handlers();
        // SAFETY: these are open, and the strings and arrays end as the calls expect. All signals are handled as for a new program.
        unsafe {
            for (number, source) in [(0, *stdin), (1, stdout), (2, stderr)] {
                checked(libc::dup2(source.as_raw_fd(), number))?;
            }
            checked(libc::chdir(spawn.folder.as_ptr()))?;
            (spawn.preparation)()?;
            let mut none = MaybeUninit::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            checked(libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()))?;
            let error = checked(libc::execve(spawn.program.as_ptr(), of_program.as_ptr(), environment.as_ptr()));
            if error.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOEXEC)) {
                return checked(libc::execve(SHELL.as_ptr(), of_shell.as_ptr(), environment.as_ptr()));
            }
            error
        }
    }
}

/// Entry point of the child.
#[expect(unsafe_code, reason = "C calls it")]
extern "C" fn child(launch: *mut c_void) -> c_int {
    // SAFETY: it is the launch that `start` passed, which its thread does not touch meanwhile.
    let launch = unsafe { &mut *launch.cast::<Launch<'_>>() };
    launch.error = launch.run().err().and_then(|error| error.raw_os_error()).unwrap_or(libc::EIO);
    // SAFETY: it ends this process at once, without handlers of the service.
    unsafe { libc::_exit(127) }
}

/// Turns the result of a call that sets `errno` into a `Result`. Does not allocate.
fn checked(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Resets signal handlers, which would otherwise run in the service's memory, and stops ignoring SIGPIPE, as `std`
/// does.
#[expect(unsafe_code, reason = "rustix does not handle signals")]
fn default_signal_handlers() {
    for signal in 1..=LAST_SIGNAL {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the structure is valid when it is zero, which is the default reaction; the table of reactions is the child's own.
        unsafe {
            if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0 {
                let action = action.assume_init_mut();
                if action.sa_sigaction != libc::SIG_IGN || signal == libc::SIGPIPE {
                    action.sa_sigaction = libc::SIG_DFL;
                    libc::sigaction(signal, action, std::ptr::null_mut());
                }
            }
        }
    }
}

/// Guard that blocks all signals of this thread until it is dropped.
struct BlockedSignals {
    before: libc::sigset_t,
}

#[expect(unsafe_code, reason = "rustix does not handle signals")]
impl BlockedSignals {
    fn all() -> io::Result<Self> {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the calls initialize both sets.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            match libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Self { before: before.assume_init() }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

#[expect(unsafe_code, reason = "rustix does not handle signals")]
impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is initialized.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

impl DirectChild {
    #[expect(unsafe_code, reason = "tokio cannot know that a descriptor stays open")]
    fn new(pid: Pid, kill_on_drop: bool) -> io::Result<Self> {
        let end = pidfd_open(pid, PidfdFlags::empty())?;
        // SAFETY: the descriptor is owned, so it stays open and the same as long as it is registered.
        let end = unsafe { AsyncFd::register_with_interest(end, Interest::READABLE) }?;
        Ok(Self { pid, end, status: None, kill_on_drop })
    }

    /// Returns the PID, which is not reused before the child was waited for.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for the end of the child. Cancel safe: after the future is dropped, another call returns the same status.
    ///
    /// # Errors
    /// The system does not report the status.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.status {
                return Ok(status);
            }
            let mut ready = self.end.readable().await?;
            self.status = reap(self.pid)?;
            if self.status.is_none() {
                ready.clear_ready();
            }
        }
    }
}

impl Drop for DirectChild {
    fn drop(&mut self) {
        if self.status.is_none() {
            if self.kill_on_drop {
                let _ = kill_process(self.pid, Signal::KILL);
            }
            push_dropped(self.pid);
            reap_dropped();
        }
    }
}

/// Returns the status of a child that has ended; `None` if it is still running.
fn reap(pid: Pid) -> io::Result<Option<ExitStatus>> {
    let ended = waitpid(Some(pid), WaitOptions::NOHANG)?;
    Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
}

fn push_dropped(pid: Pid) {
    DROPPED.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
}

fn reap_dropped() {
    DROPPED.lock().unwrap_or_else(PoisonError::into_inner).retain(|pid| matches!(reap(*pid), Ok(None)));
}

/// Returns a null-terminated array for `execve`. It is valid as long as the strings are.
fn pointers<'a>(strings: impl Iterator<Item = &'a CStr>) -> Vec<*const c_char> {
    strings.map(CStr::as_ptr).chain([std::ptr::null()]).collect()
}
