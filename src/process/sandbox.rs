//! Sandbox of a child: none, or a view of the machine that bubblewrap builds.
//!
//! The view is an allow list: the system's programs and libraries and the parts of `/etc` that they need, read-only; the
//! folders that the caller names; an empty `/tmp`, and new `/proc` and `/dev`; the host's network, or single hosts, only if
//! requested. PID, IPC and host name have namespaces of their own. All processes end with bubblewrap, and bubblewrap ends with
//! the service. System calls are filtered (`seccomp`). There is no Landlock tier for machines without user namespaces: only
//! [`Sandbox::None`] runs there.
//!
//! Programs never have the host's uid 0. Where the service has another user, bubblewrap creates a user namespace, and programs
//! keep the service's user. Where the service is root, programs have a user of their own, which reaches the view's folders
//! through mounts with mapped owners (`mounts`); no owner or permission of a file is ever changed.

mod attempts;
mod kernel_files;
mod mounts;
mod seccomp;
mod user;

use crate::domain::trust::limits::SandboxLimits;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Component, Path, PathBuf};
use std::process::ExitStatus;

use rustix::fs::MemfdFlags;

use super::Captured;
use super::egress_proxy::{EgressSettings, PROXY_FD};
use crate::domain::trust::egress::Target;
pub use attempts::attempts;
pub(super) use attempts::{BEGIN, CALLED, CONNECTED, END};
pub(super) use mounts::Mounts;
pub use user::SandboxUser;
pub(super) use user::pipe_of;

/// First version that can forbid nested user namespaces.
const FORBIDS_NESTING: (u32, u32) = (0, 8);
/// Folders of the system's programs and libraries. Symbolic links (`/bin` to `usr/bin`) are kept.
const SYSTEM: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"];
/// Parts of `/etc` that programs need and that contain no secrets.
const ETC: [&str; 32] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "group",
    "host.conf",
    "hosts",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "login.defs",
    "machine-id",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki",
    "protocols",
    "profile",
    "resolv.conf",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];
/// Prefixes of further such entries with versions in their names.
const ETC_PREFIXES: [&str; 3] = ["java-", "python3", "maven"];
/// Names of files with credentials; directly in a read-only folder they are replaced by empty files.
const LOGINS: [&str; 10] = [
    "credentials",
    "credentials.toml",
    "credentials.json",
    ".credentials.json",
    "auth.json",
    "auth.toml",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
];
/// Folders of tools that are found through `HOME`, each with the environment variable that overrides it.
const TOOL_HOMES: [(&str, &str); 2] = [(".rustup", "RUSTUP_HOME"), (".pyenv", "PYENV_ROOT")];
/// Numbers of the descriptors from which bubblewrap reads the filters of system calls, `/etc/passwd` and `/etc/group`.
const DATA_FDS: std::ops::Range<RawFd> = PROXY_FD + 1..PROXY_FD + 5;
/// Capabilities with which the working directory is entered and a program's user is set; the program does not have them.
const USER_CAPABILITIES: [&str; 4] = ["CAP_DAC_READ_SEARCH", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"];
/// Exit codes of setpriv if it cannot execute the program.
const SETPRIV_FAILED: std::ops::RangeInclusive<i32> = 126..=127;
/// Home in a sandbox if it is in memory.
const EMPTY_HOME: &str = "/home/agent";

/// Sandbox of a child.
#[derive(Debug, Clone, Default)]
pub enum Sandbox {
    /// No sandbox: the child can access everything that the service can.
    #[default]
    None,
    /// A bubblewrap sandbox with this view.
    Bubblewrap(SandboxView),
}

/// A view of the machine. Paths are absolute and exist; a deeper path takes precedence over one above it, so a read-only folder
/// can be inside a writable one.
#[derive(Debug, Clone, Default)]
pub struct SandboxView {
    /// Writable folders and files, at their own paths.
    pub writable: Vec<PathBuf>,
    /// Read-only folders and files, at their own paths (toolchains, the agent's program). Files with credentials directly in
    /// such a folder appear empty.
    pub read_only: Vec<PathBuf>,
    /// Home folder.
    pub home: ScratchHome,
    /// Network access.
    pub network: Network,
    /// User of its programs where the service is the host's root.
    pub user: SandboxUser,
    /// Limits of its processes.
    pub limits: SandboxLimits,
}

/// Network access of a sandbox. It always has a loopback interface.
#[derive(Debug, Clone, Default)]
pub enum Network {
    /// None.
    #[default]
    None,
    /// The network of this machine.
    Host,
    /// Allowed hosts only, through a proxy.
    Only(EgressSettings),
}

impl Network {
    /// Returns access to the whole network or none.
    pub fn all_or_nothing(all: bool) -> Self {
        if all { Self::Host } else { Self::None }
    }

    /// Adds allowed hosts, if access is limited to hosts.
    pub fn with(mut self, further: impl IntoIterator<Item = Target>) -> Self {
        if let Self::Only(egress) = &mut self {
            further.into_iter().for_each(|target| egress.hosts.add(target));
        }
        self
    }
}

/// Home folder in a sandbox; never the operator's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ScratchHome {
    /// An empty folder in memory that is lost at the end.
    #[default]
    Memory,
    /// This writable folder.
    Folder(PathBuf),
}

impl ScratchHome {
    /// Returns the path inside the sandbox.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Memory => Path::new(EMPTY_HOME),
            Self::Folder(folder) => folder,
        }
    }
}

/// The installed bubblewrap.
#[derive(Debug, Clone)]
pub(super) struct Bubblewrap {
    pub(super) program: PathBuf,
    /// Version that it prints.
    pub(super) version: String,
}

impl Bubblewrap {
    fn forbids_nesting(&self) -> bool {
        let mut numbers = self.version.split('.').map(|n| n.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= FORBIDS_NESTING
    }
}

impl SandboxView {
    /// Returns the folders that the programs in `path` (in the format of `PATH`) need in addition to the system's: each folder
    /// in it, and for `…/bin` the folder above, which contains the libraries. `home` and folders above it are left out.
    pub fn tools(path: &std::ffi::OsStr, home: &Path) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for folder in std::env::split_paths(path) {
            let folder = if folder.is_absolute() { folder.canonicalize().unwrap_or_default() } else { continue };
            if !folder.is_dir() || in_system(&folder) {
                continue;
            }
            let above = folder.parent().filter(|above| {
                let shared = above.ends_with(".local") || home.starts_with(above) || above.components().count() < 3;
                folder.ends_with("bin") && !shared
            });
            found.push(above.unwrap_or(&folder).to_owned());
            if above.is_some_and(|above| above.ends_with(".cargo")) {
                found.extend(above.map(|above| above.with_file_name(".rustup")).filter(|p| p.is_dir()));
            }
        }
        found.sort();
        found.dedup();
        found.retain(|folder| !home.starts_with(folder));
        found
    }

    /// Prepares starting a program in this view.
    ///
    /// # Errors
    /// The reason, with what to do.
    pub(super) fn prepare(&self, bubblewrap: &Bubblewrap, program: &Path, cwd: &Path) -> Result<Prepared, String> {
        let user = self.user.where_root();
        let Arguments { mut list, binds, .. } = self.arguments(bubblewrap, user, program, cwd)?;
        let mounts = user.map(|user| Mounts::new(user, &binds)).transpose()?;
        let mut numbers = DATA_FDS;
        let mut files = Vec::new();
        let mut add = |options: &[&str], content: &[u8], path: Option<&str>| -> Result<(), String> {
            let number = numbers.next().ok_or("there are more files than descriptors for them")?;
            let file = readable(content).and_then(|file| Ok(rustix::io::fcntl_dupfd_cloexec(&file, number)?));
            files.push((number, file.map_err(|e| format!("a file in memory could not be created: {e}"))?));
            list.extend(options.iter().map(OsString::from));
            list.push(number.to_string().into());
            list.extend(path.map(OsString::from));
            Ok(())
        };
        for filter in seccomp::filters()? {
            add(&["--add-seccomp-fd"], filter, None)?;
        }
        if let Some(user) = user {
            for (path, content) in user.accounts(self.home.folder()) {
                add(&["--perms", "0644", "--ro-bind-data"], content.as_bytes(), Some(path))?;
            }
        }
        list.push("--".into());
        list.extend(user.map(SandboxUser::before_program).transpose()?.unwrap_or_default());
        Ok(Prepared { arguments: list, files, mounts, user })
    }

    /// Returns bubblewrap's arguments for this view. They contain no secrets.
    fn arguments(
        &self,
        bubblewrap: &Bubblewrap,
        user: Option<SandboxUser>,
        program: &Path,
        cwd: &Path,
    ) -> Result<Arguments, String> {
        let mut arguments = Arguments { user, ..Arguments::default() };
        arguments.flags(&["--unshare-pid", "--unshare-ipc", "--unshare-uts"]);
        arguments.flags(&["--unshare-cgroup-try", "--hostname", "sandbox"]);
        if !matches!(self.network, Network::Host) {
            arguments.flags(&["--unshare-net"]);
        }
        arguments.flags(&["--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
        if user.is_some() {
            USER_CAPABILITIES.iter().for_each(|capability| arguments.flags(&["--cap-add", capability]));
        } else {
            arguments.flags(&["--unshare-user"]);
            if bubblewrap.forbids_nesting() {
                arguments.flags(&["--disable-userns"]);
            }
        }
        arguments.system();
        arguments.flags(&["--proc", "/proc"]);
        arguments.flags(&kernel_files::arguments()?);
        arguments.flags(&["--dev", "/dev"]);
        arguments.empty("/tmp");
        if user.is_some() {
            arguments.empty("/dev/shm");
        }
        arguments.flags(&["--tmpfs", "/run"]);

        let mut binds: Vec<(&Path, bool)> = self.read_only.iter().map(|p| (p.as_path(), false)).collect();
        binds.extend(self.writable.iter().map(|p| (p.as_path(), true)));
        match &self.home {
            ScratchHome::Memory => arguments.empty(EMPTY_HOME),
            ScratchHome::Folder(folder) => binds.push((folder, true)),
        }
        // Shallow paths first, so that deeper ones are mounted on top; at the same path, writable takes precedence.
        binds.sort_by_key(|(path, writable)| (path.components().count(), *path, *writable));
        binds.dedup();
        for (path, writable) in binds {
            arguments.bind(path, writable)?;
        }
        self.show_program(&mut arguments, program)?;
        if let Network::Only(egress) = &self.network
            && !self.shows(&egress.helper)
        {
            arguments.bind(&egress.helper, false)?;
        }
        arguments.push("--chdir", &[cwd.as_os_str()]);
        Ok(arguments)
    }

    /// Adds the program itself, with the package that it links to.
    fn show_program(&self, arguments: &mut Arguments, program: &Path) -> Result<(), String> {
        let real = program.canonicalize().map_err(|e| format!("{program:?} cannot be found: {e}"))?;
        if !self.shows(&real) {
            arguments.bind(package(&real), false)?;
        }
        if real != program && !self.shows(program) && !program.starts_with(package(&real)) {
            arguments.mount("--symlink", &real, program);
        }
        Ok(())
    }

    fn shows(&self, path: &Path) -> bool {
        in_system(path) || self.read_only.iter().chain(&self.writable).any(|shown| path.starts_with(shown))
    }
}

/// Returns environment variables with which tools in these folders find their data in spite of a different `HOME`.
pub fn tool_environment(tools: &[PathBuf]) -> Vec<(OsString, OsString)> {
    tools
        .iter()
        .filter_map(|folder| {
            let (_, variable) = TOOL_HOMES.iter().find(|(name, _)| folder.ends_with(name))?;
            Some((OsString::from(variable), folder.into()))
        })
        .collect()
}

fn in_system(path: &Path) -> bool {
    SYSTEM.iter().any(|folder| path.starts_with(folder))
}

/// Returns the folder that a program needs: the outermost `node_modules` that contains it, else the program itself.
fn package(program: &Path) -> &Path {
    program.ancestors().filter(|above| above.ends_with("node_modules")).last().unwrap_or(program)
}

/// Arguments, descriptors and mounts that starting a program in a sandbox needs.
pub(super) struct Prepared {
    /// Arguments of bubblewrap, up to the program.
    pub(super) arguments: Vec<OsString>,
    /// Descriptors that bubblewrap reads, by number.
    pub(super) files: Vec<(RawFd, OwnedFd)>,
    /// Mounts to attach before bubblewrap starts.
    pub(super) mounts: Option<Mounts>,
    /// User of the program, if it is not the service's.
    pub(super) user: Option<SandboxUser>,
}

/// Returns an anonymous file with these bytes. Unlike a pipe it never blocks and needs no writer.
pub(super) fn readable(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// An argument list for bubblewrap.
#[derive(Default)]
struct Arguments {
    list: Vec<OsString>,
    /// User of the program, if it is not bubblewrap's.
    user: Option<SandboxUser>,
    /// Folders above mounts that were created.
    folders: BTreeSet<PathBuf>,
    /// Paths of the view, and whether they are writable, in the order in which they are mounted.
    binds: Vec<(PathBuf, bool)>,
}

impl Arguments {
    fn flags(&mut self, flags: &[&str]) {
        self.list.extend(flags.iter().map(OsString::from));
    }

    fn push(&mut self, flag: &str, values: &[&std::ffi::OsStr]) {
        self.list.push(flag.into());
        self.list.extend(values.iter().map(OsString::from));
    }

    /// Adds an empty folder in memory. It belongs to bubblewrap's user, so another one gets permission to write.
    fn empty(&mut self, path: &str) {
        if self.user.is_some() {
            self.open_folders_above(Path::new(path));
            self.flags(&["--perms", "1777"]);
        }
        self.flags(&["--tmpfs", path]);
    }

    /// Adds `path`, made from `source`.
    fn mount(&mut self, flag: &str, source: &Path, path: &Path) {
        if self.user.is_some() {
            self.open_folders_above(path);
        }
        self.push(flag, &[source.as_os_str(), path.as_os_str()]);
    }

    /// Creates the folders above a mount so that every user can enter them; bubblewrap lets only its own do so.
    fn open_folders_above(&mut self, path: &Path) {
        let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|folder| folder.parent().is_some()).collect();
        above.reverse();
        for folder in above {
            if !in_system(folder) && self.folders.insert(folder.to_owned()) {
                self.push("--perms", &["0755".as_ref(), "--dir".as_ref(), folder.as_os_str()]);
            }
        }
    }

    /// Adds the system folders and files that exist on this machine.
    fn system(&mut self) {
        for folder in SYSTEM.map(Path::new) {
            match std::fs::read_link(folder) {
                Ok(target) => self.mount("--symlink", &target, folder),
                Err(_) if folder.is_dir() => self.mount("--ro-bind", folder, folder),
                Err(_) => {}
            }
        }
        let etc = Path::new("/etc");
        let named = ETC.iter().map(|name| etc.join(name));
        let versioned = std::fs::read_dir(etc).into_iter().flatten().flatten().filter(|entry| {
            entry.file_name().to_str().is_some_and(|name| ETC_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        });
        for path in named.chain(versioned.map(|entry| entry.path())).filter(|p| p.exists()) {
            self.mount("--ro-bind", &path, &path);
        }
    }

    /// Binds a path of the machine at the same path.
    fn bind(&mut self, path: &Path, writable: bool) -> Result<(), String> {
        let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
        if !plain || !path.is_absolute() || path.parent().is_none() {
            return Err(format!("{path:?} cannot be added to it: an absolute path below / without `..` is required"));
        }
        if !path.exists() {
            return Err(format!("{path:?} cannot be added to it: it does not exist"));
        }
        self.mount(if writable { "--bind" } else { "--ro-bind" }, path, path);
        self.binds.push((path.to_owned(), writable));
        if !writable {
            for login in LOGINS.map(|name| path.join(name)).iter().filter(|file| file.is_file()) {
                self.push("--ro-bind", &["/dev/null".as_ref(), login.as_os_str()]);
            }
        }
        Ok(())
    }
}

/// Returns the reason if the sandbox failed: bubblewrap then prints one line on standard error and exits with 1, and setpriv,
/// which starts the program as another user, with 126 or 127.
pub(super) fn setup_failure(
    sandbox: &Sandbox,
    status: ExitStatus,
    stdout: &Captured,
    stderr: &Captured,
) -> Option<String> {
    let output = stderr.head.trim();
    if matches!(sandbox, Sandbox::None) || stdout.total_bytes > 0 || output.contains('\n') {
        return None;
    }
    if let Some(message) = output.strip_prefix("bwrap: ") {
        return (status.code() == Some(1)).then(|| format!("bubblewrap: {message}; {}", remedy(message)));
    }
    let message = output.strip_prefix("setpriv: ")?;
    let failed = status.code().is_some_and(|code| SETPRIV_FAILED.contains(&code));
    failed.then(|| format!("setpriv: {message}; {}", remedy(message)))
}

fn remedy(message: &str) -> &'static str {
    if message.contains("failed to execute") && message.contains("Permission denied") {
        "its user (`sandbox.user`) may not read or execute the program: give others these permissions (chmod o+rX)"
    } else if message.contains("execvp") || message.contains("failed to execute") {
        "the program, or the interpreter in its first line, is not in the view: add its folder to the tools"
    } else if ["uid map", "RTM_NEWADDR", "user namespace", "unshare", "namespace failed", "Creating new"]
        .iter()
        .any(|part| message.contains(part))
    {
        "this machine does not let it make user namespaces: on Ubuntu give bwrap an AppArmor profile that allows \
         `userns`, in a container allow them in its seccomp profile (or run it with its own user namespaces)"
    } else if message.contains("Unknown option") {
        "update bubblewrap to 0.6 or newer"
    } else if message.contains("proc") {
        kernel_files::fix_of_hidden_proc()
    } else {
        "run `ralph-bot check` for a full test of the sandbox"
    }
}

#[cfg(test)]
mod tests;
