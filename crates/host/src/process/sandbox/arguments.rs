//! Arguments for bubblewrap that build a view.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use ralph_types::failure::Failure;

use super::logins::logins_in;
use super::{
    Bubblewrap, Defence, EMPTY_HOME, FORBIDS_NESTING, LIMITS_SIZES, Network, SandboxUser, SandboxView, ScratchHome,
    USER_CAPABILITIES, etc, kernel_files, sockets,
};
use crate::domain::trust::visible::{self, HiddenKind, LOCAL, SYSTEM, in_system};

/// Divisor of the memory limit: each tmpfs may use at most one part of this many.
const MEMORY_PART: u64 = 4;
/// Maximum size of `/run`, in bytes.
const RUN_BYTES: u64 = 16 << 20;

/// Ways in which a path is shown in a view. If a path has several, they are mounted in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Covered,
    ReadOnly,
    Writable,
}

/// Argument list for bubblewrap.
#[derive(Default)]
pub(super) struct Arguments {
    /// Arguments before the data that are read from descriptors.
    pub(super) list: Vec<OsString>,
    /// Arguments after these data.
    pub(super) last: Vec<OsString>,
    /// Paths of the view, and whether they are writable, in the order in which they are mounted.
    pub(super) binds: Vec<(PathBuf, bool)>,
    /// User of the program; `None` for bubblewrap's own user.
    user: Option<SandboxUser>,
    /// Whether the size of a tmpfs can be limited.
    sizes: bool,
    /// Parent folders of mounts that were already created.
    folders: BTreeSet<PathBuf>,
}

impl SandboxView {
    /// Returns bubblewrap's arguments for this view. They contain no secrets.
    pub(super) fn arguments(
        &self,
        bubblewrap: &Bubblewrap,
        user: Option<SandboxUser>,
        program: &Path,
        cwd: &Path,
    ) -> Result<Arguments, Failure> {
        let sizes = bubblewrap.is_at_least(LIMITS_SIZES);
        let mut arguments = Arguments { user, sizes, ..Arguments::default() };
        let has = |defence| self.settings.has(defence);
        if has(Defence::Processes) {
            arguments.flags(&["--unshare-pid"]);
        }
        arguments.flags(&["--unshare-ipc", "--unshare-uts"]);
        arguments.flags(&["--unshare-cgroup-try", "--hostname", "sandbox"]);
        if !matches!(self.network, Network::Host) && has(Defence::Network) {
            arguments.flags(&["--unshare-net"]);
        }
        arguments.flags(&["--die-with-parent", "--new-session"]);
        if has(Defence::User) {
            arguments.flags(&["--cap-drop", "ALL"]);
        }
        if user.is_some() {
            USER_CAPABILITIES.iter().for_each(|capability| arguments.flags(&["--cap-add", capability]));
        } else if has(Defence::User) {
            arguments.flags(&["--unshare-user"]);
            if bubblewrap.is_at_least(FORBIDS_NESTING) {
                arguments.flags(&["--disable-userns"]);
            }
        }
        arguments.system();
        arguments.etc(self.etc_copy(program).as_deref());
        arguments.flags(if has(Defence::Processes) { &["--proc", "/proc"] } else { &["--ro-bind", "/proc", "/proc"] });
        if has(Defence::KernelFiles) {
            arguments.flags(&kernel_files::arguments()?);
        }
        arguments.flags(&["--dev", "/dev"]);
        let size = (self.settings.limits.memory_mib << 20) / MEMORY_PART;
        arguments.empty("/tmp", size);
        arguments.empty("/dev/shm", size);
        arguments.size(RUN_BYTES);
        arguments.flags(&["--tmpfs", "/run"]);
        if self.home == ScratchHome::Memory {
            arguments.empty(EMPTY_HOME, size);
        }
        self.show_paths(&mut arguments)?;
        self.show_program(&mut arguments, program)?;
        if let Network::Only(egress) = &self.network
            && !self.shows(&egress.helper)
        {
            arguments.bind(&egress.helper, false)?;
        }
        let unreachable = sockets::unreachable(&self.all_shown(), &self.writable_folders());
        for socket in unreachable.sockets.into_iter().filter(|_| has(Defence::Sockets)) {
            arguments.push("--ro-bind", &["/dev/null".as_ref(), socket.as_os_str()]);
        }
        // Another user cannot read them anyway.
        let private =
            unreachable.private.into_iter().filter(|path| !self.is_of_service(path) && !program.starts_with(path));
        for path in private.filter(|_| has(Defence::Reads) && user.is_none()) {
            if path.is_dir() {
                arguments.cover(&path);
            } else {
                arguments.push("--ro-bind", &["/dev/null".as_ref(), path.as_os_str()]);
            }
        }
        // Folders that were created for mounts are in memory without a limit.
        for folder in ["/dev", "/"] {
            arguments.last.extend(["--remount-ro", folder].map(OsString::from));
        }
        arguments.last.extend(["--chdir".into(), cwd.as_os_str().to_owned()]);
        Ok(arguments)
    }

    /// Adds the paths of the view and hides paths. Shallow paths come first, so that deeper ones are mounted on top of
    /// them.
    fn show_paths(&self, arguments: &mut Arguments) -> Result<(), Failure> {
        let read_only = || self.read_only.iter().map(PathBuf::as_path);
        let mut paths: Vec<(PathBuf, Shown)> = read_only().map(|path| (path.to_owned(), Shown::ReadOnly)).collect();
        // The target of a link is shown at its own path.
        let targets = read_only().filter(|path| path.is_symlink()).filter_map(|path| path.canonicalize().ok());
        paths.extend(targets.filter(|target| !self.shows(target)).map(|target| (target, Shown::ReadOnly)));
        paths.extend(self.writable.iter().map(|path| (path.clone(), Shown::Writable)));
        if let ScratchHome::Folder(folder) = &self.home {
            paths.push((folder.clone(), Shown::Writable));
        }
        let beside = self.beside();
        for (defence, shown) in [(Defence::Reads, Shown::ReadOnly), (Defence::Writes, Shown::Writable)] {
            paths.extend(beside.iter().filter(|_| !self.settings.has(defence)).map(|folder| (folder.clone(), shown)));
        }
        let mut covered = visible::covered(&self.settings.hidden, &self.all_shown())?;
        covered.retain(|_| self.settings.has(Defence::Reads));
        paths.extend(covered.into_iter().filter(|path| path.is_dir()).map(|path| (path, Shown::Covered)));
        paths.sort_by_key(|(path, shown)| (path.components().count(), path.clone(), *shown));
        paths.dedup();
        for (index, (path, shown)) in paths.iter().enumerate() {
            // Deeper paths come later, so the last one above is the nearest.
            let above = paths[..index].iter().rfind(|(above, _)| path.starts_with(above));
            match shown {
                Shown::Covered => arguments.cover(path),
                Shown::ReadOnly
                    if above.is_some_and(|(above, shown)| *shown == Shown::ReadOnly && holds(above, path)) =>
                {
                    arguments.hide_logins(path);
                }
                Shown::ReadOnly if path.starts_with(LOCAL) && is_empty_folder(path) => arguments.folder(path),
                Shown::ReadOnly => arguments.bind(path, false)?,
                Shown::Writable => arguments.bind(path, true)?,
            }
        }
        Ok(())
    }

    /// Returns the parent of the writable folder, which tests make writable to disable a defense.
    pub(super) fn beside(&self) -> Option<PathBuf> {
        self.writable.first().and_then(|folder| folder.parent()).map(Path::to_owned)
    }

    /// Adds the program itself, and the package that its link leads to.
    fn show_program(&self, arguments: &mut Arguments, program: &Path) -> Result<(), Failure> {
        let real = program.canonicalize();
        let real = real.map_err(|error| Failure::new(format!("{program:?} cannot be found")).caused_by(error))?;
        if !self.shows(&real) {
            arguments.bind(package(&real), false)?;
        }
        if real != program && !self.shows(program) && !program.starts_with(package(&real)) {
            arguments.mount("--symlink", &real, program);
        }
        Ok(())
    }

    /// Returns the copy of `/etc`; `None` if there is no copy, or if another path is mounted in `/etc`.
    fn etc_copy(&self, program: &Path) -> Option<PathBuf> {
        let in_etc = |path: &Path| path.starts_with(etc::ETC);
        let helper = if let Network::Only(egress) = &self.network { in_etc(&egress.helper) } else { false };
        if helper || in_etc(program) || self.all_shown().iter().any(|path| in_etc(path)) {
            return None;
        }
        self.settings.etc.as_ref()?.current()
    }

    /// Whether a path is in a folder of the service, which shows only files that are meant for programs.
    pub(super) fn is_of_service(&self, path: &Path) -> bool {
        let mut folders = self.settings.hidden.iter().filter(|hidden| hidden.kind == HiddenKind::Folder);
        folders.any(|hidden| path.starts_with(&hidden.path))
    }

    /// Returns the paths of a view whose owners are mapped for another user of the program: those that it writes, those
    /// of the service, and single files. The other files of shown folders keep their permissions.
    pub(super) fn with_mapped_owners(&self, binds: Vec<(PathBuf, bool)>) -> Vec<(PathBuf, bool)> {
        let is_mapped = |(path, writable): &(PathBuf, bool)| {
            *writable || !self.settings.has(Defence::Reads) || self.is_of_service(path) || path.is_file()
        };
        binds.into_iter().filter(is_mapped).collect()
    }

    /// Returns the paths that are shown in addition to the system's.
    pub(super) fn all_shown(&self) -> Vec<PathBuf> {
        self.read_only.iter().cloned().chain(self.writable_folders()).collect()
    }

    /// Returns the writable paths of the machine.
    pub(in crate::process) fn writable_folders(&self) -> Vec<PathBuf> {
        let home = match &self.home {
            ScratchHome::Folder(folder) => Some(folder),
            ScratchHome::Memory => None,
        };
        self.writable.iter().chain(home).cloned().collect()
    }

    fn shows(&self, path: &Path) -> bool {
        in_system(path) || self.read_only.iter().chain(&self.writable).any(|shown| path.starts_with(shown))
    }
}

/// Returns the folder that a program needs: the outermost `node_modules` that contains it, otherwise the program
/// itself.
pub(super) fn package(program: &Path) -> &Path {
    program.ancestors().filter(|above| above.ends_with("node_modules")).last().unwrap_or(program)
}

/// Whether a mount of the folder `above` also shows `path` with the same owners: no link leads out of the folder, and
/// `path` is on the same file system, because not every file system supports mapped owners (`mounts`).
fn holds(above: &Path, path: &Path) -> bool {
    let device = |path: &Path| path.symlink_metadata().map(|found| found.dev()).ok();
    let real = |path: &Path| path.canonicalize().ok();
    let is_inside = real(above).zip(real(path)).is_some_and(|(above, path)| path.starts_with(above));
    is_inside && device(above) == device(path)
}

fn is_empty_folder(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

impl Arguments {
    fn flags(&mut self, flags: &[&str]) {
        self.list.extend(flags.iter().map(OsString::from));
    }

    fn push(&mut self, flag: &str, values: &[&OsStr]) {
        self.list.push(flag.into());
        self.list.extend(values.iter().map(OsString::from));
    }

    /// Adds an empty tmpfs of at most `bytes`. It belongs to bubblewrap's user; another user of the program gets write
    /// permission.
    fn empty(&mut self, path: &str, bytes: u64) {
        if self.user.is_some() {
            self.open_folders_above(Path::new(path));
            self.flags(&["--perms", "1777"]);
        }
        self.size(bytes);
        self.flags(&["--tmpfs", path]);
    }

    /// Limits the size of the next tmpfs.
    fn size(&mut self, bytes: u64) {
        if self.sizes {
            self.push("--size", &[bytes.to_string().as_ref()]);
        }
    }

    /// Hides a folder under an empty one, which is made read-only after everything below it is mounted.
    fn cover(&mut self, path: &Path) {
        self.push("--perms", &["0755".as_ref(), "--tmpfs".as_ref(), path.as_os_str()]);
        self.last.extend(["--remount-ro".into(), path.as_os_str().to_owned()]);
    }

    /// Adds an argument that mounts `source` at `path`.
    fn mount(&mut self, flag: &str, source: &Path, path: &Path) {
        if self.user.is_some() {
            self.open_folders_above(path);
        }
        self.push(flag, &[source.as_os_str(), path.as_os_str()]);
    }

    /// Creates the parent folders of a mount so that every user can enter them. By default, bubblewrap allows only its
    /// own user to.
    fn open_folders_above(&mut self, path: &Path) {
        let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|folder| folder.parent().is_some()).collect();
        above.reverse();
        for folder in above {
            if !in_system(folder) && self.folders.insert(folder.to_owned()) {
                self.folder(folder);
            }
        }
    }

    /// Creates a folder that every user can enter.
    fn folder(&mut self, path: &Path) {
        self.push("--perms", &["0755".as_ref(), "--dir".as_ref(), path.as_os_str()]);
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
    }

    /// Adds the parts of `/etc` that programs need, from a copy or each separately.
    fn etc(&mut self, copy: Option<&Path>) {
        if let Some(copy) = copy {
            return self.mount("--ro-bind", copy, Path::new(etc::ETC));
        }
        for path in etc::shown() {
            self.mount("--ro-bind", &path, &path);
            self.hide_logins(&path);
        }
    }

    /// Mounts a path of the machine at the same path.
    fn bind(&mut self, path: &Path, writable: bool) -> Result<(), Failure> {
        let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
        if !plain || !path.is_absolute() || path.parent().is_none() {
            return Err(Failure::new(format!(
                "{path:?} cannot be added to it: an absolute path below / without `..` is required"
            )));
        }
        if !path.exists() {
            return Err(Failure::new(format!("{path:?} cannot be added to it: it does not exist")));
        }
        if let (Ok(target), false) = (std::fs::read_link(path), writable) {
            // A link in a folder of the system is shown with its folder.
            if !in_system(path) {
                self.mount("--symlink", &target, path);
            }
            return Ok(());
        }
        self.mount(if writable { "--bind" } else { "--ro-bind" }, path, path);
        self.binds.push((path.to_owned(), writable));
        if !writable {
            self.hide_logins(path);
        }
        Ok(())
    }

    /// Hides the content of files with credentials in a folder.
    fn hide_logins(&mut self, folder: &Path) {
        for login in logins_in(folder) {
            self.push("--ro-bind", &["/dev/null".as_ref(), login.as_os_str()]);
        }
    }
}
