//! What a child can see: all of the machine, or a view of it that bubblewrap builds.
//!
//! The view is an allow list. Nothing of the machine is there but: the system's programs and libraries and the parts
//! of `/etc` that they need, read-only; the folders that the caller names; a fresh `/tmp`, `/proc` and `/dev`; and the
//! host's network, or single hosts of it, only where asked for. Process ids, IPC and host name are the sandbox's own; all of it dies with
//! bubblewrap, and bubblewrap with us. There is no filter of system calls, and no Landlock tier for machines without
//! user namespaces: there, only [`Sandbox::None`] runs.

mod probe;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::{Captured, ProcessLimits, ProcessSpec};
use crate::domain::trust::egress::{Hosts, Target};

pub use probe::{EscapeTest, SandboxProbe, SandboxTier, probe};

/// Where bubblewrap is looked for; fixed, so that no environment decides what the sandbox is.
const PLACES: [&str; 4] =
    ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/run/wrappers/bin/bwrap", "/run/current-system/sw/bin/bwrap"];
/// First version that can forbid further user namespaces inside.
const FORBIDS_NESTING: (u32, u32) = (0, 8);
/// The system's programs and libraries. Symbolic links (`/bin` to `usr/bin`) are kept as such.
const SYSTEM: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"];
/// The parts of `/etc` that programs need and that hold no secret.
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
/// Prefixes of further such entries, which have versions in their names.
const ETC_PREFIXES: [&str; 3] = ["java-", "python3", "maven"];
/// Files that hold logins where they lie directly in a tool's folder; nothing is read from them inside.
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
/// Tools that find their data by `HOME` unless told otherwise: name of the folder, variable.
const TOOL_HOMES: [(&str, &str); 2] = [(".rustup", "RUSTUP_HOME"), (".pyenv", "PYENV_ROOT")];
/// Home of a sandbox without a folder for it.
const EMPTY_HOME: &str = "/home/agent";

/// Servers that are told of, a run.
const MOST_REFUSED: usize = 50;

/// What a child can see.
#[derive(Debug, Clone, Default)]
pub enum Sandbox {
    /// Everything that we can.
    #[default]
    None,
    /// Only this view.
    Bubblewrap(SandboxView),
}

/// A view of the machine. Paths are absolute and exist; a deeper path decides over one above it, so a read-only folder
/// can lie in a writable one.
#[derive(Debug, Clone, Default)]
pub struct SandboxView {
    /// Folders and files that can be read and written, at their own paths.
    pub writable: Vec<PathBuf>,
    /// Folders and files that can be read, at their own paths (tool chains, the agent's program). Login files
    /// directly in such a folder read as empty.
    pub read_only: Vec<PathBuf>,
    /// What `HOME` is.
    pub home: ScratchHome,
    /// What of the network is there.
    pub network: Network,
}

/// What of the network is there. Whatever it is, there is a loopback.
#[derive(Debug, Clone, Default)]
pub enum Network {
    /// Nothing else.
    #[default]
    None,
    /// All that this machine reaches.
    Host,
    /// Single hosts, by a proxy.
    Only(EgressSettings),
}

/// Lets single hosts be reached from a sandbox.
#[derive(Debug, Clone)]
pub struct EgressSettings {
    /// Which.
    pub hosts: Hosts,
    /// This program, which opens the proxy's port inside (see [`super::sandbox_exec`]); an absolute path.
    pub helper: PathBuf,
    /// What was asked for and is not among them.
    pub refused: RefusedHosts,
}

/// Servers that somebody in a sandbox was kept from, each once, the first of them; shared by those who hold it.
#[derive(Debug, Clone, Default)]
pub struct RefusedHosts(Arc<Mutex<BTreeSet<Target>>>);

impl RefusedHosts {
    /// Takes one in; whether it is new and there is room for it.
    pub(super) fn add(&self, target: &Target) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.len() < MOST_REFUSED && known.insert(target.clone())
    }

    /// Those so far, as `host:port`.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Target::to_string).collect()
    }
}

impl Network {
    /// All of the machine's, or nothing.
    pub fn all_or_nothing(all: bool) -> Self {
        if all { Self::Host } else { Self::None }
    }

    /// The same with further hosts, where it is single hosts.
    pub fn with(mut self, further: impl IntoIterator<Item = Target>) -> Self {
        if let Self::Only(egress) = &mut self {
            further.into_iter().for_each(|target| egress.hosts.add(target));
        }
        self
    }
}

/// The home of what runs in a sandbox; never the operator's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ScratchHome {
    /// An empty one, in memory, gone at the end.
    #[default]
    Memory,
    /// This folder, which is writable.
    Folder(PathBuf),
}

impl ScratchHome {
    /// Its path inside.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Memory => Path::new(EMPTY_HOME),
            Self::Folder(folder) => folder,
        }
    }
}

/// bubblewrap as it is installed here.
#[derive(Debug, Clone)]
pub(super) struct Bubblewrap {
    pub(super) program: PathBuf,
    /// As it calls itself.
    version: String,
}

impl Bubblewrap {
    fn forbids_nesting(&self) -> bool {
        let mut numbers = self.version.split('.').map(|n| n.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= FORBIDS_NESTING
    }
}

/// Looks for bubblewrap, once in the life of this process; why it cannot be used, where it cannot. Boxed, as calls go
/// round in a circle here: a sandboxed run looks for bubblewrap, which is a run.
pub(super) fn installed() -> BoxFuture<'static, Result<&'static Bubblewrap, String>> {
    static FOUND: OnceCell<Result<Bubblewrap, String>> = OnceCell::const_new();
    Box::pin(async { FOUND.get_or_init(find).await.as_ref().map_err(Clone::clone) })
}

async fn find() -> Result<Bubblewrap, String> {
    let program = PLACES.iter().map(Path::new).find(|p| p.is_file()).ok_or(
        "bubblewrap is not installed: install the package `bubblewrap` (apt, dnf, apk and pacman all have it)",
    )?;
    let mut spec = ProcessSpec::new(program, "/").args(["--version"]);
    spec.limits = ProcessLimits { wall: Duration::from_secs(10), keep_bytes: 4096, ..ProcessLimits::default() };
    let finished = super::run(spec, &CancellationToken::new(), None).await.map_err(|e| e.to_string())?;
    let version = finished.stdout.head.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    if finished.success() && version.starts_with(|c: char| c.is_ascii_digit()) {
        Ok(Bubblewrap { program: program.to_owned(), version })
    } else {
        Err(format!("{} --version did not work: {}", program.display(), finished.stderr.text().trim()))
    }
}

impl SandboxView {
    /// Folders that the programs in `path` (as in `PATH`) need beside the system's: each folder that is named there,
    /// and for `…/bin` also the folder above it, where the libraries are. Folders above or at `home` are never taken
    /// whole.
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

    /// bubblewrap's arguments for this view, up to the program's. No secret is in them.
    pub(super) fn arguments(
        &self,
        bubblewrap: &Bubblewrap,
        program: &Path,
        cwd: &Path,
    ) -> Result<Vec<OsString>, String> {
        let mut arguments = Arguments::default();
        arguments.flags(&["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]);
        arguments.flags(&["--unshare-cgroup-try", "--hostname", "sandbox"]);
        if bubblewrap.forbids_nesting() {
            arguments.flags(&["--disable-userns"]);
        }
        if !matches!(self.network, Network::Host) {
            arguments.flags(&["--unshare-net"]);
        }
        arguments.flags(&["--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
        arguments.system();
        arguments.flags(&["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]);

        let mut binds: Vec<(&Path, bool)> = self.read_only.iter().map(|p| (p.as_path(), false)).collect();
        binds.extend(self.writable.iter().map(|p| (p.as_path(), true)));
        match &self.home {
            ScratchHome::Memory => arguments.flags(&["--tmpfs", EMPTY_HOME]),
            ScratchHome::Folder(folder) => binds.push((folder, true)),
        }
        // Shallow first, so that what lies deeper is put on top; at the same place, writable wins.
        binds.sort_by_key(|(path, writable)| (path.components().count(), *path, *writable));
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
        Ok(arguments.0)
    }

    /// The program itself is always there, with the package that it is a link into.
    fn show_program(&self, arguments: &mut Arguments, program: &Path) -> Result<(), String> {
        let real = program.canonicalize().map_err(|e| format!("{program:?} cannot be found: {e}"))?;
        if !self.shows(&real) {
            arguments.bind(package(&real), false)?;
        }
        if real != program && !self.shows(program) && !program.starts_with(package(&real)) {
            arguments.push("--symlink", &[real.as_os_str(), program.as_os_str()]);
        }
        Ok(())
    }

    fn shows(&self, path: &Path) -> bool {
        in_system(path) || self.read_only.iter().chain(&self.writable).any(|shown| path.starts_with(shown))
    }
}

/// Variables by which tools in these folders still find their data when `HOME` is another.
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

/// What of the machine a program needs: all of `node_modules`, where it lies in one; else itself.
fn package(program: &Path) -> &Path {
    program.ancestors().filter(|above| above.ends_with("node_modules")).last().unwrap_or(program)
}

/// An argument list for bubblewrap.
#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn flags(&mut self, flags: &[&str]) {
        self.0.extend(flags.iter().map(OsString::from));
    }

    fn push(&mut self, flag: &str, values: &[&std::ffi::OsStr]) {
        self.0.push(flag.into());
        self.0.extend(values.iter().map(OsString::from));
    }

    /// What every view has, as far as this machine has it.
    fn system(&mut self) {
        for folder in SYSTEM.map(Path::new) {
            match std::fs::read_link(folder) {
                Ok(target) => self.push("--symlink", &[target.as_os_str(), folder.as_os_str()]),
                Err(_) if folder.is_dir() => self.push("--ro-bind", &[folder.as_os_str(), folder.as_os_str()]),
                Err(_) => {}
            }
        }
        let etc = Path::new("/etc");
        let named = ETC.iter().map(|name| etc.join(name));
        let versioned = std::fs::read_dir(etc).into_iter().flatten().flatten().filter(|entry| {
            entry.file_name().to_str().is_some_and(|name| ETC_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        });
        for path in named.chain(versioned.map(|entry| entry.path())).filter(|p| p.exists()) {
            self.push("--ro-bind", &[path.as_os_str(), path.as_os_str()]);
        }
    }

    /// Shows a path of the machine at the same place.
    fn bind(&mut self, path: &Path, writable: bool) -> Result<(), String> {
        let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
        if !plain || !path.is_absolute() || path.parent().is_none() {
            return Err(format!("{path:?} cannot be shown in it: an absolute path below / without `..` is needed"));
        }
        if !path.exists() {
            return Err(format!("{path:?} is to be shown in it, but does not exist"));
        }
        self.push(if writable { "--bind" } else { "--ro-bind" }, &[path.as_os_str(), path.as_os_str()]);
        if !writable {
            for login in LOGINS.map(|name| path.join(name)).iter().filter(|file| file.is_file()) {
                self.push("--ro-bind", &["/dev/null".as_ref(), login.as_os_str()]);
            }
        }
        Ok(())
    }
}

/// Why bubblewrap itself failed, where it did: it says so on its error output and ends with 1.
pub(super) fn setup_failure(
    sandbox: &Sandbox,
    status: ExitStatus,
    stdout: &Captured,
    stderr: &Captured,
) -> Option<String> {
    let said = stderr.head.trim().strip_prefix("bwrap: ")?;
    if matches!(sandbox, Sandbox::None) || status.code() != Some(1) || stdout.total_bytes > 0 || said.contains('\n') {
        return None;
    }
    Some(format!("bubblewrap: {said}; {}", remedy(said)))
}

fn remedy(said: &str) -> &'static str {
    if said.contains("execvp") {
        "the program, or the interpreter in its first line, is not in the view: add its folder to the tools"
    } else if ["uid map", "RTM_NEWADDR", "user namespace", "unshare", "namespace failed", "Creating new"]
        .iter()
        .any(|part| said.contains(part))
    {
        "this machine does not let it make user namespaces: on Ubuntu give bwrap an AppArmor profile that allows \
         `userns`, in a container allow them in its seccomp profile (or run it with its own user namespaces)"
    } else if said.contains("proc") {
        "inside a container /proc is partly hidden; start it with `--security-opt systempaths=unconfined`"
    } else {
        "run `ralph-bot check` for a full test of the sandbox"
    }
}

#[cfg(test)]
mod tests;
