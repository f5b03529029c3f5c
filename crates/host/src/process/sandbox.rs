//! Sandbox of a child: none, or a restricted view of the machine that bubblewrap builds.
//!
//! The view is an allow list (`domain::trust::visible`). It contains the system's programs and libraries and the
//! required parts of `/etc`, all read-only; the folders that the caller names; an empty `/tmp`; and new `/proc` and
//! `/dev`. The host's network, or single hosts, can be reached only if requested. Files of the service are hidden.
//! PID, IPC and host name have their own namespaces. All processes end with bubblewrap, and bubblewrap ends with the
//! service. System calls are filtered (`seccomp`). Where bubblewrap cannot create namespaces, programs can be confined
//! without them (`landlock`), which shows the same files but provides weaker isolation otherwise.
//!
//! Programs never have the host's uid 0. If the service is not root, bubblewrap creates a user namespace, and programs
//! keep the service's user. If the service is root, programs have a different user, which accesses the view's writable
//! folders and the service's files through mounts with mapped owners (`mounts`). Files in other shown folders that only
//! their owner may read stay unreadable. The owner and permissions of files are never changed.

mod arguments;
mod attempts;
mod environment;
mod etc;
mod failure;
mod kernel_files;
mod landlock;
mod logins;
mod mounts;
mod seccomp;
mod sockets;
mod tools;
mod user;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::MemfdFlags;

use super::cgroup;
use super::egress_proxy::{self, EgressSettings, PROXY_FD};
use crate::domain::trust::egress::Target;
use crate::domain::trust::limits::SandboxLimits;
use crate::domain::trust::visible::HiddenPath;
use arguments::Arguments;
pub use attempts::attempts;
pub(super) use attempts::{BEGIN, CALLED, CONNECTED, END};
pub use etc::EtcCopies;
pub(super) use failure::setup_failure;
pub(super) use landlock::END_ALL;
pub use landlock::confined_exec;
pub(super) use mounts::Mounts;
use ralph_types::failure::Failure;
pub use tools::{tool_environment, tools};
pub use user::SandboxUser;
pub(super) use user::{UserLease, pipe_of};

/// First version of bubblewrap that can forbid nested user namespaces.
const FORBIDS_NESTING: (u32, u32) = (0, 8);
/// First version of bubblewrap that can limit the size of a tmpfs.
const LIMITS_SIZES: (u32, u32) = (0, 7);
/// Range of the descriptors that bubblewrap uses: it reads the filters of system calls, `/etc/passwd`, `/etc/group`
/// and the environment from some, and writes its status to one.
const DATA_FDS: std::ops::Range<RawFd> = PROXY_FD + 1..PROXY_FD + 11;
/// Capabilities that are needed to enter the working directory and set the program's user. The program does not have
/// them.
const USER_CAPABILITIES: [&str; 4] = ["CAP_DAC_READ_SEARCH", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"];
/// Key of the exit code in bubblewrap's status.
const EXIT_CODE: &[u8] = b"\"exit-code\"";
/// Reason why a program cannot be started.
const TOO_MANY_FILES: &str = "there are more files than descriptors for them";
/// Path of the home in a sandbox if the home is a tmpfs.
const EMPTY_HOME: &str = "/home/agent";

/// Sandbox of a child.
#[derive(Debug, Clone, Default)]
pub enum Sandbox {
    /// No sandbox: the child can access everything that the service can.
    #[default]
    None,
    /// Sandbox with this view.
    View(Box<SandboxView>),
}

impl Sandbox {
    /// Creates a sandbox with this view.
    pub fn of(view: SandboxView) -> Self {
        Self::View(Box::new(view))
    }
}

/// View of the machine. Paths are absolute and exist. A deeper path takes precedence over a path above it, so a
/// read-only folder can be inside a writable one.
#[derive(Debug, Clone, Default)]
pub struct SandboxView {
    /// Writable folders and files, mounted at the same paths.
    pub writable: Vec<PathBuf>,
    /// Read-only folders and files, such as toolchains and the agent's program, mounted at the same paths. Files with
    /// credentials directly in such a folder appear empty.
    pub read_only: Vec<PathBuf>,
    /// Home folder.
    pub home: ScratchHome,
    /// Network access.
    pub network: Network,
    /// Settings that all sandboxes of the service share.
    pub settings: SandboxSettings,
}

/// Settings that all sandboxes of the service share.
#[derive(Debug, Clone, Default)]
pub struct SandboxSettings {
    /// Mechanism that confines programs.
    pub mechanism: SandboxMechanism,
    /// First of the users for programs, which is used if the service is the host's root.
    pub user: SandboxUser,
    /// Limits of the processes of one run.
    pub limits: SandboxLimits,
    /// Paths that are hidden in every sandbox.
    pub hidden: Arc<[HiddenPath]>,
    /// Copies of the parts of `/etc` that sandboxes show; `None` to mount each part separately, which takes longer.
    pub etc: Option<Arc<EtcCopies>>,
    /// Defenses to disable, so that tests can check that the probe notices it. Ignored in release builds.
    pub without: Vec<Defence>,
}

/// Mechanism that confines the programs in a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SandboxMechanism {
    /// Namespaces that bubblewrap creates (tier A).
    #[default]
    Bubblewrap,
    /// Landlock, set up by the program at this path, which is ralph-bot itself (tier B).
    Landlock(PathBuf),
}

/// Mechanism that is available on this machine.
#[derive(Debug, Clone, Copy)]
pub(super) enum SandboxBuilder<'a> {
    Bubblewrap(&'a Bubblewrap),
    Landlock(&'a Path),
}

/// Defense that tests can disable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defence {
    /// The allow list of files that are readable.
    Reads,
    /// The allow list of files that are writable.
    Writes,
    /// Hiding sockets of the machine.
    Sockets,
    /// The network namespace.
    Network,
    /// The PID namespace and the new `/proc`.
    Processes,
    /// Read-only and hidden files in `/proc`.
    KernelFiles,
    /// Filters of system calls.
    Filter,
    /// A separate session keyring.
    Keyring,
    /// A user other than root.
    User,
}

impl SandboxSettings {
    /// Whether programs can connect to Unix sockets of the service that are visible to them.
    pub fn reaches_sockets(&self) -> bool {
        self.mechanism == SandboxMechanism::Bubblewrap
    }

    /// Whether a defense is enabled.
    pub(super) fn has(&self, defence: Defence) -> bool {
        !(cfg!(debug_assertions) && self.without.contains(&defence))
    }
}

/// Network access of a sandbox. A loopback interface is always available.
#[derive(Debug, Clone, Default)]
pub enum Network {
    /// No access.
    #[default]
    None,
    /// Access to the network of this machine.
    Host,
    /// Access to allowed hosts only, through a proxy.
    Only(EgressSettings),
}

impl Network {
    /// Returns access to the whole network if `all`, otherwise none.
    pub fn all_or_nothing(all: bool) -> Self {
        if all { Self::Host } else { Self::None }
    }

    /// Adds allowed hosts if access is limited to hosts; otherwise does nothing.
    pub fn with(mut self, further: impl IntoIterator<Item = Target>) -> Self {
        if let Self::Only(egress) = &mut self {
            further.into_iter().for_each(|target| egress.hosts.add(target));
        }
        self
    }
}

/// Home folder in a sandbox. It is never the operator's home.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ScratchHome {
    /// Empty tmpfs, which is lost at the end.
    #[default]
    Memory,
    /// This writable folder.
    Folder(PathBuf),
}

impl ScratchHome {
    /// Returns the path of the home inside the sandbox.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Memory => Path::new(EMPTY_HOME),
            Self::Folder(folder) => folder,
        }
    }
}

/// Installed bubblewrap program.
#[derive(Debug, Clone)]
pub(super) struct Bubblewrap {
    pub(super) program: PathBuf,
    /// Version that bubblewrap prints.
    pub(super) version: String,
}

impl Bubblewrap {
    fn is_at_least(&self, wanted: (u32, u32)) -> bool {
        let mut numbers = self.version.split('.').map(|n| n.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= wanted
    }
}

impl SandboxView {
    /// Prepares starting a program in this view with this environment. `ports` are the ports of servers on this
    /// machine that the program may reach without access to the network.
    ///
    /// # Errors
    /// The reason, with advice.
    pub(super) fn prepare(
        &self,
        builder: SandboxBuilder<'_>,
        program: (&Path, &Path),
        environment: &[(OsString, OsString)],
        ports: &[u16],
    ) -> Result<Prepared, Failure> {
        match builder {
            SandboxBuilder::Bubblewrap(bubblewrap) => self.in_namespaces(bubblewrap, program, environment),
            SandboxBuilder::Landlock(helper) => self.confine(helper, program, environment, ports),
        }
    }

    fn in_namespaces(
        &self,
        bubblewrap: &Bubblewrap,
        (program, cwd): (&Path, &Path),
        environment: &[(OsString, OsString)],
    ) -> Result<Prepared, Failure> {
        let user = self.settings.user.where_root().filter(|_| self.settings.has(Defence::User));
        let user = user.map(SandboxUser::lease).transpose()?;
        let id = user.as_ref().map(UserLease::user);
        let Arguments { mut list, binds, last, .. } = self.arguments(bubblewrap, id, program, cwd)?;
        let binds = self.with_mapped_owners(binds);
        let mounts = match id {
            Some(user) => Some(Mounts::new(user, &binds)?),
            None if self.settings.has(Defence::User) => Mounts::own(),
            None => None,
        };
        let mut numbers = DATA_FDS;
        let mut files = Vec::new();
        let mut add = |options: &[&str], content: &[u8], path: Option<&str>| -> Result<(), Failure> {
            let number = numbers.next().ok_or(TOO_MANY_FILES)?;
            let file = readable(content).map_err(no_memory)?;
            files.push((number, rustix::io::fcntl_dupfd_cloexec(&file, number).map_err(no_memory)?));
            list.extend(options.iter().map(OsString::from));
            list.push(number.to_string().into());
            list.extend(path.map(OsString::from));
            Ok(())
        };
        if self.settings.has(Defence::Filter) {
            for filter in seccomp::filters()? {
                add(&["--add-seccomp-fd"], filter, None)?;
            }
            if cgroup::parent().is_err() {
                for filter in seccomp::of_unseen_memory()? {
                    add(&["--add-seccomp-fd"], filter, None)?;
                }
            }
        }
        if let Some(user) = id {
            for (path, content) in user.accounts(self.home.folder()) {
                add(&["--perms", "0644", "--ro-bind-data"], content.as_bytes(), Some(path))?;
            }
        }
        let exports = environment::exports(environment)?;
        add(&["--perms", "0444", "--file"], &exports, Some(environment::FILE))?;
        let status = File::from(rustix::fs::memfd_create("status", MemfdFlags::CLOEXEC).map_err(no_memory)?);
        let number = numbers.next().ok_or(TOO_MANY_FILES)?;
        files.push((number, rustix::io::fcntl_dupfd_cloexec(&status, number).map_err(no_memory)?));
        list.push("--json-status-fd".into());
        list.push(number.to_string().into());
        list.extend(last);
        list.push("--".into());
        list.extend(id.map(SandboxUser::before_program).transpose()?.unwrap_or_default());
        list.extend(environment::before_program(self.settings.limits, id.is_some()));
        if let Network::Only(egress) = &self.network {
            list.extend(egress_proxy::before_program(egress));
        }
        let status = Some(SandboxStatus(status));
        Ok(Prepared { program: bubblewrap.program.clone(), arguments: list, files, mounts, user, folder: None, status })
    }
}

/// Arguments, descriptors and mounts that starting a program in a sandbox needs.
pub(super) struct Prepared {
    /// Program that builds the sandbox.
    pub(super) program: PathBuf,
    /// Arguments of that program, which precede the program to run.
    pub(super) arguments: Vec<OsString>,
    /// Descriptors that the program reads, by number.
    pub(super) files: Vec<(RawFd, OwnedFd)>,
    /// Mount namespace to enter before bubblewrap starts; `None` to leave it to bubblewrap.
    pub(super) mounts: Option<Mounts>,
    /// Separate user of the program, which no other run has at the same time; `None` for the service's user.
    pub(super) user: Option<UserLease>,
    /// Temporary folder of the run, which is removed when this is dropped.
    pub(super) folder: Option<tempfile::TempDir>,
    /// Status messages of bubblewrap; `None` if another mechanism is used.
    pub(super) status: Option<SandboxStatus>,
}

/// Status messages of bubblewrap, on a descriptor that programs in the sandbox do not have.
#[derive(Debug)]
pub(super) struct SandboxStatus(File);

impl SandboxStatus {
    /// Whether the sandbox was built and its first program was started. bubblewrap reports the exit code of that
    /// program only.
    pub(super) fn is_built(&self) -> bool {
        let mut text = [0; 4096];
        let length = self.0.read_at(&mut text, 0).unwrap_or(0);
        text[..length].windows(EXIT_CODE.len()).any(|window| window == EXIT_CODE)
    }
}

fn no_memory(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::new("could not create a file in memory").caused_by(error)
}

/// Returns an anonymous file with these bytes. Unlike a pipe it never blocks and needs no writer.
pub(super) fn readable(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests;
