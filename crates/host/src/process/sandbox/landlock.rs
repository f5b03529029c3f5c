//! Sandbox without namespaces (tier B). ralph-bot confines its own process by Landlock and filters of system calls,
//! and then executes the program.
//!
//! Landlock restricts files, and TCP connections by port; it also prevents programs from signaling and tracing
//! processes outside. The filter refuses operations that Landlock does not restrict: UDP, Unix sockets, servers,
//! System V IPC, limits of other processes. The program shares the machine's mount, PID and user namespaces, so the
//! isolation is incomplete (docs/guides/security.md).

mod supervise;

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;
use serde::{Deserialize, Serialize};

use super::{
    DATA_FDS, Defence, Network, Prepared, SandboxView, ScratchHome, arguments, etc, logins, readable, sockets,
};
use crate::domain::trust::visible::{self, SYSTEM};
use crate::process::private;
pub(in crate::process) use supervise::END_ALL;
pub use supervise::confined_exec;

/// Prefix of the supervisor's messages.
pub(super) const MESSAGE: &str = "landlock: ";
/// Exit code of the supervisor for a program that it cannot start.
pub(super) const NOT_STARTED: u8 = 126;
/// Number of the descriptor that contains the policy.
const POLICY_FD: RawFd = DATA_FDS.start;
/// Path of the kernel's files about processes. Access cannot be limited to a part, because new processes get new
/// folders in it.
const PROC: &str = "/proc";
/// Name of the folder in the home for temporary files, because `/tmp` belongs to the machine.
const TEMPORARY: &str = "tmp";
/// Reason why programs cannot be confined if the service is root.
const AS_ROOT: &str = "the service is root, whose files another user cannot reach without a mount namespace; run the service as \
                       a user other than root";

/// Access that a confined program keeps.
#[derive(Debug, Serialize, Deserialize)]
struct ConfinedAccess {
    /// Files and folders that can be read and executed.
    readable: Vec<PathBuf>,
    /// Files and folders that can be changed.
    writable: Vec<PathBuf>,
    /// Ports to which TCP connections are allowed; `None` for the whole network.
    ports: Option<Vec<u16>>,
    /// Whether socket types, signals and system calls that Landlock does not restrict are refused. `false` in tests
    /// only.
    sockets: bool,
    scopes: bool,
    filter: bool,
    environment: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    /// PID of the service.
    service: u32,
}

impl SandboxView {
    /// Prepares starting a program that is confined by `helper`, the path of ralph-bot itself. `ports` are the ports
    /// of servers on this machine to which the program may connect.
    ///
    /// # Errors
    /// The reason, with advice.
    pub(super) fn confine(
        &self,
        helper: &Path,
        (program, cwd): (&Path, &Path),
        environment: &[(OsString, OsString)],
        ports: &[u16],
    ) -> Result<Prepared, Failure> {
        if rustix::process::geteuid().is_root() {
            return Err(Failure::new(AS_ROOT));
        }
        let (home, folder) = self.home_on_disk()?;
        let mut environment = environment.to_vec();
        environment.retain(|(name, _)| name != "HOME" && name != "TMPDIR");
        environment.push(("TMPDIR".into(), home.join(TEMPORARY).into()));
        environment.push(("HOME".into(), home.clone().into()));
        // It exists and cannot be read, which ends git.
        environment.push(("GIT_CONFIG_NOSYSTEM".into(), "1".into()));
        let limited = !matches!(self.network, Network::Host) && self.settings.has(Defence::Network);
        let policy = ConfinedAccess {
            readable: self.readable(program)?,
            writable: self.changeable(&home)?,
            ports: limited.then(|| ports.to_vec()),
            sockets: self.settings.has(Defence::Sockets),
            scopes: self.settings.has(Defence::Processes),
            filter: self.settings.has(Defence::Filter),
            environment,
            cwd: cwd.to_owned(),
            service: std::process::id(),
        };
        let policy = serde_json::to_vec(&policy);
        let policy = policy.map_err(|error| Failure::new("cannot pass a path to it").caused_by(error))?;
        let files = vec![(POLICY_FD, in_memory(&policy)?)];
        let arguments = ["sandbox-exec", "--confine", "--"].map(OsString::from).to_vec();
        Ok(Prepared { program: helper.to_owned(), arguments, files, mounts: None, user: None, folder, status: None })
    }

    /// Returns the home with a folder for temporary files. A new folder on disk replaces a home in memory.
    fn home_on_disk(&self) -> Result<(PathBuf, Option<tempfile::TempDir>), Failure> {
        let failed = |error: std::io::Error| Failure::new("cannot create its home").caused_by(error);
        let (home, folder) = match &self.home {
            ScratchHome::Folder(home) => (home.clone(), None),
            ScratchHome::Memory => {
                let folder = tempfile::Builder::new().prefix("ralph-home-").tempdir().map_err(failed)?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        private::create_folder(&home.join(TEMPORARY)).map_err(failed)?;
        Ok((home, folder))
    }

    /// Returns the readable paths with links resolved: the view's paths without hidden paths.
    fn readable(&self, program: &Path) -> Result<Vec<PathBuf>, Failure> {
        let real = program.canonicalize();
        let real = real.map_err(|error| Failure::new(format!("{program:?} cannot be found")).caused_by(error))?;
        let mut shown: Vec<PathBuf> = SYSTEM.map(PathBuf::from).into();
        shown.extend([arguments::package(&real).to_owned(), PROC.into()]);
        shown.extend(etc::shown());
        shown.extend(self.read_only.iter().cloned());
        let mut hidden = visible::covered(&self.settings.hidden, &self.all_shown())?;
        hidden.extend(self.read_only.iter().flat_map(|folder| logins::logins_in(folder)));
        let private = sockets::unreachable(&self.all_shown(), &self.writable_folders()).private;
        hidden.extend(private.into_iter().filter(|path| !self.is_of_service(path)));
        if !self.settings.has(Defence::Reads) {
            shown.extend(self.beside());
            hidden.clear();
        }
        let mut found = Vec::new();
        for path in shown.iter().filter_map(|path| path.canonicalize().ok()) {
            add_around(&path, &hidden, &mut found);
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// Returns the paths that can be changed.
    fn changeable(&self, home: &Path) -> Result<Vec<PathBuf>, Failure> {
        let mut found = self.writable.clone();
        found.push(home.to_owned());
        if !self.settings.has(Defence::Writes) {
            found.extend(self.beside());
        }
        if let Some(path) = found.iter().find(|path| !path.exists()) {
            return Err(Failure::new(format!("{path:?} cannot be added to it: it does not exist")));
        }
        match self.read_only.iter().find(|path| found.iter().any(|folder| path.starts_with(folder))) {
            Some(path) if self.settings.has(Defence::Writes) => Err(Failure::new(format!(
                "{path:?} cannot be read-only without namespaces, because the folder above is writable"
            ))),
            _ => Ok(found),
        }
    }
}

/// Adds a path without the hidden paths below it, by adding its entries as far as needed. Links are not followed.
fn add_around(path: &Path, hidden: &[PathBuf], found: &mut Vec<PathBuf>) {
    if hidden.iter().any(|hidden| hidden == path) {
        return;
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(path)) {
        found.push(path.to_owned());
        return;
    }
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            add_around(&entry.path(), hidden, found);
        }
    }
}

/// Returns a descriptor from which these bytes can be read. Its number is at least the policy's.
fn in_memory(bytes: &[u8]) -> Result<OwnedFd, Failure> {
    let file = readable(bytes).and_then(|file| Ok(rustix::io::fcntl_dupfd_cloexec(file.as_fd(), POLICY_FD)?));
    file.map_err(|error| Failure::new("could not create a file in memory").caused_by(error))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn hidden_paths_are_left_out_of_folders() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in ["tool/bin", "tool/data/secret", "tool/data/public", "other"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        symlink(root.join("other"), root.join("tool/link")).unwrap();
        let around = |hidden: &[&str]| {
            let hidden: Vec<PathBuf> = hidden.iter().map(|path| root.join(path)).collect();
            let mut found = Vec::new();
            add_around(&root.join("tool"), &hidden, &mut found);
            found.sort();
            found
        };
        assert_eq!(around(&["other"]), [root.join("tool")]);
        assert_eq!(around(&["tool/data/secret"]), [root.join("tool/bin"), root.join("tool/data/public")]);
        assert_eq!(around(&["tool"]), <[PathBuf; 0]>::default());
    }
}
