//! Mounts with mapped owners, which let another user write to root's folders in a sandbox.
//!
//! Files on disk keep their owner. In the mount, root's files belong to the sandbox's user, and files that this user
//! creates belong to root on disk. The mounts exist only in the mount namespace of the run.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::CWD;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount, open_tree};
use rustix::thread::UnshareFlags;

use super::user::SandboxUser;
use crate::process::syscalls;

/// Advice if the service is root and cannot drop its privileges in a sandbox.
pub(super) const NOT_AS_ROOT: &str = "run the service as a user other than root";

/// Detached mounts, each with the path to attach it to.
#[derive(Debug)]
pub(in crate::process) struct Mounts(Vec<(OwnedFd, CString)>);

impl Mounts {
    /// Creates mounts of these paths, shallow ones first, in which root's files belong to `user`. Paths marked `false`
    /// need not be writable and are skipped if their file system does not support such mounts.
    ///
    /// # Errors
    /// The path that could not be mounted, the reason, and advice.
    pub(super) fn new(user: SandboxUser, binds: &[(PathBuf, bool)]) -> Result<Self, String> {
        let namespace = user_namespace(user)?;
        let mut mounts = BTreeMap::new();
        for (path, writable) in binds {
            let real = path.canonicalize().map_err(|e| format!("{path:?} cannot be added to it: {e}"))?;
            match mapped(&real, &namespace) {
                Ok(mount) => {
                    let target = CString::new(real.as_os_str().as_bytes());
                    let target = target.map_err(|e| format!("{path:?} cannot be added to it: {e}"))?;
                    mounts.insert((real.components().count(), target), mount);
                }
                Err(_) if !writable => {}
                Err(error) => return Err(format!("{path:?} cannot be made writable in it: {}", reason(&error))),
            }
        }
        Ok(Self(mounts.into_iter().map(|((_, target), mount)| (mount, target)).collect()))
    }

    /// Attaches the mounts in a new mount namespace of this process. Called between fork and exec, so it does not
    /// allocate.
    ///
    /// # Errors
    /// The service lacks `CAP_SYS_ADMIN`.
    #[expect(unsafe_code, reason = "rustix declares unshare unsafe because of shared descriptor tables")]
    pub(in crate::process) fn attach(&self) -> io::Result<()> {
        // SAFETY: the descriptor table stays as it is.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
        mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
        for (mount, target) in &self.0 {
            move_mount(mount, c"", CWD, target.as_c_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        }
        Ok(())
    }
}

/// Returns a detached mount of `path` with mapped owners.
fn mapped(path: &Path, namespace: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let mount = open_tree(CWD, path, flags)?;
    syscalls::map_owners(&mount, namespace)?;
    Ok(mount)
}

/// Describes why a mount with mapped owners was refused, with advice.
fn reason(error: &io::Error) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::EINVAL) => {
            "its file system does not support idmapped mounts: put `data_dir` on ext4, xfs, btrfs or tmpfs, or "
        }
        Some(libc::ENOSYS) => "the kernel does not support idmapped mounts: use Linux 5.12 or newer, or ",
        _ => "the service is root without the capability CAP_SYS_ADMIN: ",
    };
    format!("{error}; {advice}{NOT_AS_ROOT}")
}

/// Returns a user namespace that maps root to `user`; created once per user.
fn user_namespace(user: SandboxUser) -> Result<Arc<OwnedFd>, String> {
    static KNOWN: Mutex<BTreeMap<u32, Arc<OwnedFd>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(namespace) = known.get(&user.id()) {
        return Ok(namespace.clone());
    }
    let created = create_user_namespace(user).map_err(|error| {
        format!("the service is root and cannot create a user namespace for its files: {error}; {NOT_AS_ROOT}")
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

    #[test]
    fn refused_mounts_name_one_fix() {
        for (error, words) in [
            (libc::EINVAL, "put `data_dir` on ext4"),
            (libc::ENOSYS, "use Linux 5.12"),
            (libc::EPERM, "without the capability CAP_SYS_ADMIN"),
        ] {
            let text = reason(&io::Error::from_raw_os_error(error));
            assert!(text.contains(words) && text.ends_with(NOT_AS_ROOT), "{text}");
        }
    }
}
