//! Mount namespace of a run, in which no later mount of the machine appears. For root, it has mounts with mapped
//! owners, which let another user write to root's folders in a sandbox.
//!
//! Files on disk keep their owner. In a mapped mount, root's files belong to the sandbox's user, and files that this
//! user creates belong to root on disk. The mounts exist only in the mount namespace of the run.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use ralph_types::failure::Failure;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount, open_tree};
use rustix::process::DumpableBehavior;
use rustix::thread::UnshareFlags;

use super::user::SandboxUser;
use crate::process::{shares, syscalls};

/// Advice if the service is root and cannot drop its privileges in a sandbox.
pub(super) const NOT_AS_ROOT: &str = "run the service as a user other than root";

/// Setting by which the kernel takes the rights from user namespaces of programs without a profile. bubblewrap may have
/// a profile, which it would not get in such a namespace.
const RESTRICTED: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// Mount namespace to create.
#[derive(Debug)]
pub(in crate::process) enum Mounts {
    /// Namespace of root, with detached mounts and the paths to attach them to.
    Mapped(Vec<(OwnedFd, CString)>),
    /// Mount namespace of a service that is not root, in a user namespace.
    Own {
        /// Files with the maps of the service's user and group, and their contents.
        maps: [(CString, Vec<u8>); 3],
        /// Files with the limits of the user namespace, and their contents.
        limits: Vec<(CString, Vec<u8>)>,
    },
}

impl Mounts {
    /// Creates a namespace for a user other than root; `None` where bubblewrap would lose its rights in it.
    pub(super) fn own() -> Option<Self> {
        Self::of_user(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    }

    fn of_user(user: u32, group: u32) -> Option<Self> {
        let is_restricted = fs::read_to_string(RESTRICTED).is_ok_and(|text| text.trim() != "0");
        let map = |id: u32| format!("{id} {id} 1\n").into_bytes();
        let files = [
            (c"/proc/self/setgroups", b"deny".to_vec()),
            (c"/proc/self/uid_map", map(user)),
            (c"/proc/self/gid_map", map(group)),
        ];
        let maps = files.map(|(path, text)| (path.to_owned(), text));
        (!is_restricted).then(|| Self::Own { maps, limits: shares::of_namespace() })
    }

    /// Creates mounts of these paths, shallow ones first, in which root's files belong to `user`. Paths marked `false`
    /// need not be writable and are skipped if their file system does not support such mounts.
    ///
    /// # Errors
    /// The path that could not be mounted, the reason, and advice.
    pub(super) fn new(user: SandboxUser, binds: &[(PathBuf, bool)]) -> Result<Self, Failure> {
        let namespace = user_namespace(user)?;
        let mut mounts = BTreeMap::new();
        for (path, writable) in binds {
            let not_added = || Failure::new(format!("{path:?} cannot be added to it"));
            let real = path.canonicalize().map_err(|error| not_added().caused_by(error))?;
            match mapped(&real, &namespace) {
                Ok(mount) => {
                    let target = CString::new(real.as_os_str().as_bytes());
                    let target = target.map_err(|error| not_added().caused_by(error))?;
                    mounts.insert((real.components().count(), target), mount);
                }
                Err(_) if !writable => {}
                Err(error) => {
                    let problem = Failure::new(format!("{path:?} cannot be made writable in it"));
                    return Err(problem.with_hint(advice(&error)).caused_by(error));
                }
            }
        }
        Ok(Self::Mapped(mounts.into_iter().map(|((_, target), mount)| (mount, target)).collect()))
    }

    /// Moves this process to the new namespace. Called between fork and exec, so it does not allocate.
    ///
    /// # Errors
    /// The service is root and lacks `CAP_SYS_ADMIN`. For another user, it continues without the namespace.
    pub(in crate::process) fn attach(&self) -> io::Result<()> {
        match self {
            Self::Mapped(mounts) => {
                unshare(UnshareFlags::NEWNS)?;
                without_later_mounts()?;
                for (mount, target) in mounts {
                    move_mount(mount, c"", CWD, target.as_c_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
                }
            }
            Self::Own { maps, limits } => {
                if unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS).is_err() {
                    return Ok(());
                }
                // In `/proc`, the files of a process that is not dumpable, such as the service, belong to root.
                rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
                let written = maps.iter().try_for_each(|(path, text)| write(path, text));
                rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
                written?;
                // A read-only `/proc/sys` keeps bubblewrap from working as well, and it gives the reason.
                limits.iter().for_each(|(path, text)| drop(write(path, text)));
                without_later_mounts()?;
            }
        }
        Ok(())
    }
}

/// Writes to a file of the kernel. Does not allocate.
fn write(path: &CStr, text: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text)?;
    Ok(())
}

#[expect(unsafe_code, reason = "rustix declares unshare unsafe because of shared descriptor tables")]
fn unshare(namespaces: UnshareFlags) -> io::Result<()> {
    // SAFETY: the descriptor table stays as it is.
    Ok(unsafe { rustix::thread::unshare_unsafe(namespaces) }?)
}

/// Makes mounts that appear later invisible in this mount namespace. bubblewrap alone would receive them.
fn without_later_mounts() -> io::Result<()> {
    Ok(mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?)
}

/// Returns a detached mount of `path` with mapped owners.
fn mapped(path: &Path, namespace: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let mount = open_tree(CWD, path, flags)?;
    syscalls::map_owners(&mount, namespace)?;
    Ok(mount)
}

/// Returns advice about a refused mount with mapped owners.
fn advice(error: &io::Error) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::EINVAL) => {
            "its file system does not support idmapped mounts: put `data_dir` on ext4, xfs, btrfs or tmpfs, or "
        }
        Some(libc::ENOSYS) => "the kernel does not support idmapped mounts: use Linux 5.12 or newer, or ",
        _ => "the service is root without the capability CAP_SYS_ADMIN: ",
    };
    format!("{advice}{NOT_AS_ROOT}")
}

/// Returns a user namespace that maps root to `user`; created once per user.
fn user_namespace(user: SandboxUser) -> Result<Arc<OwnedFd>, Failure> {
    static KNOWN: Mutex<BTreeMap<u32, Arc<OwnedFd>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(namespace) = known.get(&user.id()) {
        return Ok(namespace.clone());
    }
    let created = create_user_namespace(user).map_err(|error| {
        let problem = Failure::new("the service is root and cannot create a user namespace for its files");
        problem.caused_by(error).with_hint(NOT_AS_ROOT)
    })?;
    Ok(known.entry(user.id()).or_insert(Arc::new(created)).clone())
}

#[expect(unsafe_code, reason = "a process can leave its user namespace only by itself")]
fn create_user_namespace(user: SandboxUser) -> io::Result<OwnedFd> {
    #[expect(clippy::disallowed_methods, reason = "a process that only holds a namespace; `run` needs the namespace")]
    let mut holder = std::process::Command::new("/bin/sh");
    holder.args(["-c", "read -r _"]).env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: one system call that leaves the descriptor table as it is.
    unsafe {
        holder.pre_exec(|| Ok(rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER)?));
    }
    let mut holder = holder.spawn()?;
    let folder = PathBuf::from(format!("/proc/{}", holder.id()));
    let map = format!("0 {} 1\n", user.id());
    let opened = fs::write(folder.join("uid_map"), &map)
        .and_then(|()| fs::write(folder.join("gid_map"), &map))
        .and_then(|()| File::open(folder.join("ns/user")));
    // Its input ends, and so does the shell.
    drop(holder.stdin.take());
    holder.wait()?;
    Ok(opened?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: u32 = 65_534;

    /// See docs/research/threats.md#s1.
    #[test]
    fn own_namespace_has_limits_and_no_later_mounts() {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        // Root could write the maps in any case.
        let (user, group) = if own.0 == 0 { (NOBODY, NOBODY) } else { own };
        let Some(mounts) = Mounts::of_user(user, group) else { return };
        #[expect(clippy::disallowed_methods, reason = "a process that only looks at its namespace")]
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", "id -u; id -g; cat /proc/sys/user/max_inotify_instances /proc/sys/user/max_inotify_watches; ! grep -q -e shared: -e master: /proc/self/mountinfo && echo private"]);
        if own.0 == 0 {
            shell.uid(user).gid(group);
        }
        #[expect(unsafe_code, reason = "as in a run")]
        // SAFETY: the steps only make system calls.
        unsafe {
            shell.pre_exec(move || {
                // As the service: only root could write the maps.
                rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
                mounts.attach()
            });
        }
        let output = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        let ids = format!("{user}\n{group}\n");
        let of = |name: &str| std::fs::read_to_string(format!("/proc/sys/fs/inotify/max_user_{name}")).unwrap();
        let share = |name| of(name).trim().parse::<u64>().unwrap() / shares::PART;
        let limits = format!("{}\n{}\n", share("instances"), share("watches"));
        // Where no user namespace can be created, nothing changes.
        let left = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let is_unchanged = output.starts_with(&ids) && !output.contains("private") && left.contains("shared:");
        assert!(output == format!("{ids}{limits}private\n") || is_unchanged, "{output}");
    }

    #[test]
    fn refused_mount_has_one_fix() {
        for (error, words) in [
            (libc::EINVAL, "put `data_dir` on ext4"),
            (libc::ENOSYS, "use Linux 5.12"),
            (libc::EPERM, "without the capability CAP_SYS_ADMIN"),
        ] {
            let text = advice(&io::Error::from_raw_os_error(error));
            assert!(text.contains(words) && text.ends_with(NOT_AS_ROOT), "{text}");
        }
    }
}
