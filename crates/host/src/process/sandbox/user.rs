//! Separate user for programs in a sandbox, which is used if the service is the host's root.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use ralph_types::failure::Failure;
use rustix::thread::{Uid, set_thread_res_uid};

use crate::domain::trust::policy::{SANDBOX_USER, SANDBOX_USERS};

/// Paths of `setpriv` (util-linux). They are fixed, so that the environment cannot replace it.
const SETPRIV_PATHS: [&str; 3] = ["/usr/bin/setpriv", "/bin/setpriv", "/run/current-system/sw/bin/setpriv"];
/// Name of the user in the sandbox's `/etc/passwd`.
const NAME: &str = "agent";

/// Ids of the users that runs have at the moment.
static LEASED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// User and group of programs in a sandbox if the service is the host's root. Otherwise programs have the service's
/// user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxUser(NonZeroU32);

/// User that is reserved for a single run, so that the kernel counts its processes separately. Released when dropped.
#[derive(Debug)]
pub(in crate::process) struct UserLease(SandboxUser);

impl UserLease {
    /// Returns the reserved user.
    pub(in crate::process) fn user(&self) -> SandboxUser {
        self.0
    }
}

impl Drop for UserLease {
    fn drop(&mut self) {
        LEASED.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| *id != self.0.id());
    }
}

impl SandboxUser {
    /// Creates the user with this id, which is also the id of its group; `None` for 0, which is root.
    pub fn new(id: u32) -> Option<Self> {
        NonZeroU32::new(id).map(Self)
    }

    /// Returns the id of the user and of its group.
    pub(super) fn id(self) -> u32 {
        self.0.get()
    }

    /// Returns the user if the service is the host's root; otherwise `None`. A user namespace alone would let programs
    /// keep root's rights.
    pub(in crate::process) fn where_root(self) -> Option<Self> {
        static HOST_ROOT: OnceLock<bool> = OnceLock::new();
        let is_host_root = || {
            let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
            rustix::process::geteuid().is_root() && maps_root_to_root(&map)
        };
        HOST_ROOT.get_or_init(is_host_root).then_some(self)
    }

    /// Reserves the first unused user, starting with this one.
    ///
    /// # Errors
    /// All users are in use.
    pub(super) fn lease(self) -> Result<UserLease, Failure> {
        let mut leased = LEASED.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.id().saturating_add(SANDBOX_USERS - 1);
        let free = (self.id()..=last).find(|id| !leased.contains(id)).and_then(Self::new);
        let user = free.ok_or_else(|| format!("{SANDBOX_USERS} sandboxes run already; lower `limits.loops`"))?;
        leased.push(user.id());
        Ok(UserLease(user))
    }

    /// Returns the command line that precedes a program, and that switches to this user without groups and
    /// capabilities.
    pub(super) fn before_program(self) -> Result<Vec<OsString>, Failure> {
        let program = SETPRIV_PATHS.iter().map(Path::new).find_map(|path| path.canonicalize().ok());
        let program = program.ok_or(
            "setpriv is not installed, which programs need to lose the rights of root; install the package `util-linux`, or \
             run the service as a user other than root",
        )?;
        let id = self.id();
        let options = [&format!("--reuid={id}"), &format!("--regid={id}"), "--clear-groups", "--bounding-set=-all"];
        let rest = ["--inh-caps=-all", "--no-new-privs", "--"];
        let words = options.map(OsString::from).into_iter().chain(rest.map(OsString::from));
        Ok(std::iter::once(program.into()).chain(words).collect())
    }

    /// Returns the content of `/etc/passwd` and `/etc/group` in the sandbox: the machine's, with this user and its group.
    pub(super) fn accounts(self, home: &Path) -> [(&'static str, String); 2] {
        let id = self.id();
        let home = home.to_str().filter(|home| !home.contains([':', '\n'])).unwrap_or("/");
        [("/etc/passwd", format!("{NAME}:x:{id}:{id}::{home}:/bin/sh\n")), ("/etc/group", format!("{NAME}:x:{id}:\n"))]
            .map(|(file, line)| (file, with_line(&fs::read_to_string(file).unwrap_or_default(), &line)))
    }
}

impl Default for SandboxUser {
    fn default() -> Self {
        const { Self(NonZeroU32::new(SANDBOX_USER).expect("not root")) }
    }
}

/// Returns a pipe that belongs to `user`, so that programs can also open it as `/dev/stdout`. With `None` it belongs
/// to the service.
pub(in crate::process) fn pipe_of(user: Option<SandboxUser>) -> io::Result<(OwnedFd, OwnedFd)> {
    let pipe = || io::pipe().map(|(reader, writer)| (OwnedFd::from(reader), OwnedFd::from(writer)));
    let Some(user) = user else { return pipe() };
    // Users of threads are separate, and this thread ends afterwards.
    let as_user = move || {
        set_thread_res_uid(None, Uid::from_raw(user.id()), None)?;
        pipe()
    };
    std::thread::scope(|scope| scope.spawn(as_user).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that creates pipes panicked")))
}

/// Whether uid 0 of this user namespace is uid 0 of its parent, according to `/proc/self/uid_map`.
fn maps_root_to_root(map: &str) -> bool {
    map.lines().any(|line| line.split_whitespace().take(2).eq(["0", "0"]))
}

/// Returns accounts with an additional line, unless its id is already used.
fn with_line(accounts: &str, line: &str) -> String {
    let number = |line: &str| line.split(':').nth(2).map(str::to_owned);
    if accounts.lines().any(|other| number(other) == number(line.trim_end())) {
        return accounts.to_owned();
    }
    let gap = if accounts.is_empty() || accounts.ends_with('\n') { "" } else { "\n" };
    format!("{accounts}{gap}{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_root_is_recognized_by_the_map() {
        for (map, expected) in [
            ("         0          0 4294967295\n", true),
            ("0 0 1\n1 100000 65535\n", true),
            ("         0     100000      65536\n", false),
            ("1000 0 1\n", false),
            ("", false),
        ] {
            assert_eq!(maps_root_to_root(map), expected, "{map}");
        }
    }

    #[test]
    fn passwd_copy_has_one_additional_line() {
        let line = "agent:x:2000000000:2000000000::/home/agent:/bin/sh\n";
        assert_eq!(with_line("root:x:0:0:::\n", line), format!("root:x:0:0:::\n{line}"));
        assert_eq!(with_line("root:x:0:0:::", line), format!("root:x:0:0:::\n{line}"));
        assert_eq!(with_line("", line), line);
        let taken = "ours:x:2000000000:1:::\n";
        assert_eq!(with_line(taken, line), taken);
        let home = SandboxUser::default().accounts(Path::new("/a:b"));
        assert!(home[0].1.contains("agent:x:2000000000:2000000000::/:/bin/sh\n"), "{home:?}");
    }

    #[test]
    fn leased_users_differ_until_they_are_dropped() {
        let first = SandboxUser::new(3_000_000).unwrap();
        let (one, two) = (first.lease().unwrap(), first.lease().unwrap());
        assert_eq!([one.user().id(), two.user().id()], [3_000_000, 3_000_001]);
        drop(one);
        let rest: Vec<UserLease> = (1..SANDBOX_USERS).map(|_| first.lease().unwrap()).collect();
        assert_eq!(rest[0].user(), first);
        assert!(first.lease().unwrap_err().to_string().contains("limits.loops"));
    }

    #[test]
    fn root_is_not_a_sandbox_user() {
        assert_eq!(SandboxUser::new(0), None);
        assert_eq!(SandboxUser::new(SANDBOX_USER), Some(SandboxUser::default()));
    }
}
