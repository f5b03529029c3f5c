//! System calls of the sandbox that rustix does not provide.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `KEYCTL_JOIN_SESSION_KEYRING` of `keyctl(2)`.
const JOIN_SESSION_KEYRING: libc::c_long = 1;

/// Maps the owners of all files in a detached mount by a user namespace. Set-user-ID bits and device files lose their
/// effect. Requires Linux 5.12.
///
/// # Errors
/// The kernel or the file system does not support it, or the service lacks `CAP_SYS_ADMIN`.
#[expect(unsafe_code, reason = "rustix has no mount_setattr")]
pub(super) fn map_owners(mount: impl AsFd, user_namespace: impl AsFd) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(user_namespace.as_fd().as_raw_fd()).unwrap_or(u64::MAX),
    };
    // SAFETY: both descriptors are open, the path is a C string, and the structure has the given size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives this process a new session keyring. Does not allocate.
///
/// # Errors
/// The kernel does not support keyrings, or a filter of system calls forbids the call.
#[expect(unsafe_code, reason = "rustix has no keyctl")]
pub(super) fn join_new_keyring() -> io::Result<()> {
    // SAFETY: without a name the call reads no memory.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
