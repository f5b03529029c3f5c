//! Attempts to escape from a sandbox that a shell script cannot make. `ralph-bot sandbox-attempts` makes them inside.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;

use super::seccomp::FCHMODAT2;

/// Line before the attempts, which shows that they were made.
pub(in crate::process) const BEGIN: &str = "attempts begin";
/// Line after the attempts.
pub(in crate::process) const END: &str = "attempts end";
/// Prefix of a line about a system call that was not refused.
pub(in crate::process) const CALLED: &str = "called ";
/// Prefix of a line about a socket of the host that was reached.
pub(in crate::process) const CONNECTED: &str = "connected to ";

/// Invalid descriptor number, with which a system call that passes the filter fails without effect.
const NO_FD: libc::c_long = -1;

/// System calls that must be refused, with arguments that have no effect if they are not.
const CALLS: &[(&str, libc::c_long, [libc::c_long; 4])] = &[
    ("mount", libc::SYS_mount, [0, 0, 0, 0]),
    ("unshare", libc::SYS_unshare, [libc::CLONE_NEWUSER as libc::c_long, 0, 0, 0]),
    ("setns", libc::SYS_setns, [NO_FD, 0, 0, 0]),
    ("open_tree", libc::SYS_open_tree, [NO_FD, 0, 0, 0]),
    ("bpf", libc::SYS_bpf, [NO_FD, 0, 0, 0]),
    ("perf_event_open", libc::SYS_perf_event_open, [0, NO_FD, NO_FD, NO_FD]),
    ("userfaultfd", libc::SYS_userfaultfd, [NO_FD, 0, 0, 0]),
    ("io_uring_setup", libc::SYS_io_uring_setup, [0, 0, 0, 0]),
    ("keyctl", libc::SYS_keyctl, [NO_FD, 0, 0, 0]),
    ("add_key", libc::SYS_add_key, [0, 0, 0, 0]),
    ("request_key", libc::SYS_request_key, [0, 0, 0, 0]),
    ("openat2", libc::SYS_openat2, [NO_FD, 0, 0, 0]),
    ("clone3", libc::SYS_clone3, [0, 0, 0, 0]),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, [NO_FD, NO_FD, 0, 0]),
    ("ioctl TIOCSTI", libc::SYS_ioctl, [NO_FD, libc::TIOCSTI as libc::c_long, 0, 0]),
    ("ioctl TIOCSTI with further bits", libc::SYS_ioctl, [NO_FD, libc::TIOCSTI as libc::c_long | 1 << 32, 0, 0]),
    ("ioctl TIOCLINUX", libc::SYS_ioctl, [NO_FD, libc::TIOCLINUX as libc::c_long, 0, 0]),
    ("socket AF_ALG", libc::SYS_socket, [libc::AF_ALG as libc::c_long, libc::SOCK_SEQPACKET as libc::c_long, 0, 0]),
    ("socket AF_VSOCK", libc::SYS_socket, [libc::AF_VSOCK as libc::c_long, libc::SOCK_STREAM as libc::c_long, 0, 0]),
    (
        "socket AF_NETLINK for netfilter",
        libc::SYS_socket,
        [libc::AF_NETLINK as libc::c_long, libc::SOCK_RAW as libc::c_long, libc::NETLINK_NETFILTER as libc::c_long, 0],
    ),
    ("fchmod with set-user-ID", libc::SYS_fchmod, [NO_FD, libc::S_ISUID as libc::c_long | 0o755, 0, 0]),
    ("fchmod with set-group-ID", libc::SYS_fchmod, [NO_FD, libc::S_ISGID as libc::c_long | 0o755, 0, 0]),
    ("fchmodat2 with set-user-ID", FCHMODAT2, [NO_FD, 0, libc::S_ISUID as libc::c_long | 0o755, 0]),
    (
        "openat with set-user-ID",
        libc::SYS_openat,
        [NO_FD, 0, libc::O_CREAT as libc::c_long, libc::S_ISUID as libc::c_long],
    ),
    ("mkdirat with set-group-ID", libc::SYS_mkdirat, [NO_FD, 0, libc::S_ISGID as libc::c_long, 0]),
    ("mknodat with set-user-ID", libc::SYS_mknodat, [NO_FD, 0, libc::S_ISUID as libc::c_long, 0]),
    // Newer than the filter.
    ("an unknown call", 0x3fff, [0, 0, 0, 0]),
    #[cfg(target_arch = "x86_64")]
    ("a call of x32 programs", 0x4000_0000 | libc::SYS_getpid, [0, 0, 0, 0]),
];

/// Makes all attempts. Returns the lines to print: successful attempts, between `BEGIN` and `END`. `socket`
/// is the path and `name` the abstract name of sockets of the host.
pub fn attempts(socket: &Path, name: &str) -> Vec<String> {
    let mut lines = vec![BEGIN.to_owned()];
    for (call, number, arguments) in CALLS {
        let error = refusal(*number, *arguments);
        if !matches!(error, Some(libc::EPERM | libc::ENOSYS)) {
            let result = error.map_or("no error".to_owned(), |error| io::Error::from_raw_os_error(error).to_string());
            lines.push(format!("{CALLED}{call} ({result})"));
        }
    }
    if UnixStream::connect(socket).is_ok() {
        lines.push(format!("{CONNECTED}a socket in the file system"));
    }
    if SocketAddr::from_abstract_name(name).and_then(|address| UnixStream::connect_addr(&address)).is_ok() {
        lines.push(format!("{CONNECTED}an abstract socket"));
    }
    if finds_key(name) {
        lines.push(format!("{CALLED}keyctl, which found a key of the service"));
    }
    lines.push(END.to_owned());
    lines
}

/// Whether the session keyring has a key with this description.
#[expect(unsafe_code, reason = "rustix has no keyctl")]
fn finds_key(description: &str) -> bool {
    let Ok(description) = std::ffi::CString::new(description) else { return false };
    let [search, session]: [libc::c_long; 2] = [10, -3];
    // SAFETY: both strings end with a null byte and live during the call.
    unsafe { libc::syscall(libc::SYS_keyctl, search, session, c"user".as_ptr(), description.as_ptr(), 0) >= 0 }
}

/// Makes a system call; returns its error number, or `None` if it succeeded.
#[expect(unsafe_code, reason = "the filter is tried with calls that no library makes")]
fn refusal(number: libc::c_long, [a, b, c, d]: [libc::c_long; 4]) -> Option<libc::c_int> {
    // SAFETY: all addresses are null and all descriptors closed, so that the kernel reads and writes no memory of the process.
    let result = unsafe { libc::syscall(number, a, b, c, d) };
    if result >= 0 { None } else { io::Error::last_os_error().raw_os_error() }
}
