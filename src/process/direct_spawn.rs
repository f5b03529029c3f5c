//! Starts a child without copying the service: by `posix_spawn`, with a session of its own and only the given descriptors.
//!
//! A child that does something of its own before it becomes the program has to be made by `fork`, which copies the page tables of the
//! service and lets every page that its threads write to afterwards fault once. That takes milliseconds, the more memory the service
//! has. `std` and tokio use `posix_spawn` for other children, but cannot give them a session.
//!
//! Accepted: descriptors are marked as close-on-exec before the child exists. One that another thread opens inheritably in between is
//! passed on. The service and its libraries open none.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::syscalls;

/// Shell of scripts without a first line like `#!/bin/sh`, as `execvp` chooses it.
const SHELL: &str = "/bin/sh";

/// Children that were dropped before they ended; they are reaped when the next one starts or is dropped.
static DROPPED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Program to start, with everything that the child gets but its standard input.
pub(super) struct DirectSpawn {
    /// Path of the program.
    pub(super) program: PathBuf,
    /// Arguments without the program's name.
    pub(super) arguments: Vec<OsString>,
    /// Working directory.
    pub(super) folder: PathBuf,
    /// Complete environment; of a name that is given twice, the last value.
    pub(super) environment: Vec<(OsString, OsString)>,
    /// Standard output and standard error.
    pub(super) outputs: [OwnedFd; 2],
    /// Descriptors above 2 in ascending order of their numbers in the child; each is itself at its number or above.
    pub(super) given: Vec<(RawFd, OwnedFd)>,
}

/// Child that was started directly. It is killed when it is dropped before its end.
pub(super) struct DirectChild {
    pid: Pid,
    /// Becomes readable when the child ends.
    end: AsyncFd<OwnedFd>,
    status: Option<ExitStatus>,
}

/// Whether children can be started directly: the kernel has `pidfd_open` (Linux 5.3) and `close_range` (5.11), and no process of the
/// service dumps core, which a child inherits. The first call sets the limit of core dumps to 0.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).is_ok()
            && pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).is_ok()
            && syscalls::seal_descriptors().is_ok()
    })
}

impl DirectSpawn {
    /// Starts the child with this standard input. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Those of `posix_spawn`, and `InvalidInput` if an argument or a variable contains a zero byte.
    pub(super) fn spawn(&self, stdin: &OwnedFd) -> io::Result<DirectChild> {
        reap_dropped();
        let arguments = self.arguments.iter().map(OsString::as_os_str);
        let pid = match self.posix_spawn(&self.program, arguments.clone(), stdin) {
            Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
                let script = std::iter::once(self.program.as_os_str());
                self.posix_spawn(Path::new(SHELL), script.chain(arguments), stdin)
            }
            result => result,
        }?;
        DirectChild::new(pid).inspect_err(|_| {
            let _ = kill_process(pid, Signal::KILL);
            push_dropped(pid);
        })
    }

    #[expect(unsafe_code, reason = "neither std nor rustix has posix_spawn with a session")]
    fn posix_spawn<'a>(
        &self,
        program: &Path,
        arguments: impl Iterator<Item = &'a OsStr>,
        stdin: &OwnedFd,
    ) -> io::Result<Pid> {
        let program = c_string(program.as_os_str())?;
        let folder = c_string(self.folder.as_os_str())?;
        let arguments = arguments.map(c_string).collect::<io::Result<Vec<CString>>>()?;
        let variables: BTreeMap<&OsString, &OsString> =
            self.environment.iter().map(|(name, value)| (name, value)).collect();
        let variables = variables.into_iter().map(|(name, value)| variable(name, value));
        let variables = variables.collect::<io::Result<Vec<CString>>>()?;
        let argv = pointers(std::iter::once(&program).chain(&arguments));
        let envp = pointers(variables.iter());

        syscalls::seal_descriptors()?;
        let (mut actions, mut attributes) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let mut actions = FileActions::new(&mut actions)?;
        let [stdout, stderr] = &self.outputs;
        for (number, source) in [(0, stdin), (1, stdout), (2, stderr)] {
            actions.pass(source, number)?;
        }
        for (number, source) in &self.given {
            actions.pass(source, *number)?;
        }
        actions.enter(&folder)?;
        let attributes = SpawnAttributes::of_a_session(&mut attributes)?;
        let mut pid = 0;
        // SAFETY: both objects are initialized, both arrays end with a null pointer, and all strings outlive the call.
        checked(unsafe {
            libc::posix_spawn(&raw mut pid, program.as_ptr(), actions.0, attributes.0, argv.as_ptr(), envp.as_ptr())
        })?;
        Pid::from_raw(pid).ok_or_else(|| io::Error::other("posix_spawn returned no process"))
    }
}

impl DirectChild {
    fn new(pid: Pid) -> io::Result<Self> {
        let end = AsyncFd::with_interest(pidfd_open(pid, PidfdFlags::empty())?, Interest::READABLE)?;
        Ok(Self { pid, end, status: None })
    }

    /// Returns the PID, which no other process has before the end was waited for.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for the end. Dropping the future loses nothing; another call returns the same status.
    ///
    /// # Errors
    /// The system does not tell the status.
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
            let _ = kill_process(self.pid, Signal::KILL);
            push_dropped(self.pid);
            reap_dropped();
        }
    }
}

/// Returns the status of a child that has ended.
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

fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

fn variable(name: &OsStr, value: &OsStr) -> io::Result<CString> {
    Ok(CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())?)
}

/// Returns an array as `execve` takes it, ended by a null pointer. It is valid as long as the strings are.
fn pointers<'a>(strings: impl Iterator<Item = &'a CString>) -> Vec<*mut c_char> {
    strings.map(|text| text.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
}

/// Turns the result of a call that returns an error number into a `Result`.
fn checked(number: c_int) -> io::Result<()> {
    if number == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(number)) }
}

/// Actions of the child on its descriptors and folder, in order.
struct FileActions<'a>(&'a mut libc::posix_spawn_file_actions_t);

#[expect(unsafe_code, reason = "the only interface to these actions")]
impl<'a> FileActions<'a> {
    fn new(place: &'a mut MaybeUninit<libc::posix_spawn_file_actions_t>) -> io::Result<Self> {
        // SAFETY: the call initializes the object if it succeeds; it does not move afterwards.
        checked(unsafe { libc::posix_spawn_file_actions_init(place.as_mut_ptr()) })?;
        // SAFETY: it was initialized.
        Ok(Self(unsafe { place.assume_init_mut() }))
    }

    /// Gives the child a descriptor at a number, also if it has that number already.
    fn pass(&mut self, source: &OwnedFd, number: RawFd) -> io::Result<()> {
        // SAFETY: the object is initialized.
        checked(unsafe { libc::posix_spawn_file_actions_adddup2(self.0, source.as_raw_fd(), number) })
    }

    /// Sets the working directory.
    fn enter(&mut self, folder: &CString) -> io::Result<()> {
        // SAFETY: the object is initialized, and the call copies the string.
        checked(unsafe { libc::posix_spawn_file_actions_addchdir_np(self.0, folder.as_ptr()) })
    }
}

#[expect(unsafe_code, reason = "the object owns memory")]
impl Drop for FileActions<'_> {
    fn drop(&mut self) {
        // SAFETY: the object is initialized, and used no more.
        unsafe { libc::posix_spawn_file_actions_destroy(self.0) };
    }
}

/// Attributes of the child.
struct SpawnAttributes<'a>(&'a mut libc::posix_spawnattr_t);

#[expect(unsafe_code, reason = "the only interface to these attributes")]
impl<'a> SpawnAttributes<'a> {
    /// Returns the attributes of a child with its own session, no blocked signals and, as `std` does, the default reaction to SIGPIPE.
    fn of_a_session(place: &'a mut MaybeUninit<libc::posix_spawnattr_t>) -> io::Result<Self> {
        let flags = libc::POSIX_SPAWN_SETSID
            | libc::POSIX_SPAWN_SETSIGMASK as libc::c_short
            | libc::POSIX_SPAWN_SETSIGDEF as libc::c_short;
        let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: each object is initialized by its first call, and the attributes do not move afterwards.
        unsafe {
            checked(libc::posix_spawnattr_init(place.as_mut_ptr()))?;
            let attributes = Self(place.assume_init_mut());
            checked(libc::posix_spawnattr_setflags(attributes.0, flags))?;
            libc::sigemptyset(signals.as_mut_ptr());
            checked(libc::posix_spawnattr_setsigmask(attributes.0, signals.as_ptr()))?;
            libc::sigaddset(signals.as_mut_ptr(), libc::SIGPIPE);
            checked(libc::posix_spawnattr_setsigdefault(attributes.0, signals.as_ptr()))?;
            Ok(attributes)
        }
    }
}

#[expect(unsafe_code, reason = "the object may own memory")]
impl Drop for SpawnAttributes<'_> {
    fn drop(&mut self) {
        // SAFETY: the object is initialized, and used no more.
        unsafe { libc::posix_spawnattr_destroy(self.0) };
    }
}
