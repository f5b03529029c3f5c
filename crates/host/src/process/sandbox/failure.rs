//! Reasons why a sandbox could not be built: messages of bubblewrap, setpriv and the starting shell, each with the
//! solution.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::Sandbox;
use super::environment::SHELL_NAME;
use super::kernel_files::Surroundings;
use super::landlock;
use crate::process::Captured;

/// Exit codes of setpriv and shells for a program that they cannot execute.
const NOT_EXECUTED: std::ops::RangeInclusive<i32> = 126..=127;
/// Path of the kernel setting for the maximum number of user namespaces.
const MOST_NAMESPACES: &str = "/proc/sys/user/max_user_namespaces";
/// Path of Debian's kernel setting that allows user namespaces to users other than root.
const MAY_CLONE: &str = "/proc/sys/kernel/unprivileged_userns_clone";

/// Returns the reason if building the sandbox failed; otherwise `None`. In that case bubblewrap prints one line on
/// standard error and exits with 1; setpriv and the shell that start the program exit with 126 or 127. A filter of
/// system calls around the service kills bubblewrap.
///
/// If the sandbox `is_built`, the program itself may have printed text that resembles such a message. Messages of
/// bubblewrap are then ignored, and messages of setpriv and the shell give no advice about the machine.
pub(in crate::process) fn setup_failure(
    (sandbox, is_built): (&Sandbox, bool),
    status: ExitStatus,
    stdout: &Captured,
    stderr: &Captured,
) -> Option<String> {
    if matches!(sandbox, Sandbox::None) || stdout.total_bytes > 0 {
        return None;
    }
    let output = stderr.head.trim();
    if status.signal() == Some(libc::SIGSYS) && !is_built {
        return Some(format!("bubblewrap was killed because of a system call; {FILTERED_UNIT}"));
    }
    if output.contains('\n') {
        return None;
    }
    if let Some(message) = output.strip_prefix("bwrap: ") {
        let is_own = status.code() == Some(1) && !is_built;
        return is_own.then(|| format!("bubblewrap: {message}; {}", fix(message, HostFacts::here())));
    }
    if let Some(message) = output.strip_prefix(landlock::MESSAGE) {
        return (status.code() == Some(landlock::NOT_STARTED.into())).then(|| message.to_owned());
    }
    let not_executed = status.code().is_some_and(|code| NOT_EXECUTED.contains(&code));
    if let Some(message) = output.strip_prefix("setpriv: ") {
        let fix = if is_not_executed(message) { not_executed_fix(message) } else { UNKNOWN };
        return not_executed.then(|| format!("setpriv: {message}; {fix}"));
    }
    let message = output.strip_prefix(SHELL_NAME)?.strip_prefix(": ")?;
    not_executed.then(|| format!("{message}; {}", not_executed_fix(message)))
}

/// Properties of the host that determine the cause of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostFacts {
    pub(super) surroundings: Surroundings,
    /// Whether the kernel allows no user namespaces.
    pub(super) no_namespaces: bool,
    /// Whether the kernel allows user namespaces only to root.
    pub(super) only_root: bool,
}

impl HostFacts {
    fn here() -> Self {
        let is_zero = |path: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == "0");
        Self {
            surroundings: Surroundings::here(),
            no_namespaces: is_zero(MOST_NAMESPACES),
            only_root: is_zero(MAY_CLONE),
        }
    }
}

const FILTERED_UNIT: &str = "the unit's filter forbids what a sandbox needs: remove `SystemCallFilter=` from the systemd unit of \
                             the service, or take that of the packages (deploy/systemd)";
const FILTERED_CONTAINER: &str = "the container's seccomp profile forbids it: start it with `--security-opt seccomp=seccomp.json` (deploy/docker) or `unconfined`";
const FILTERED_POD: &str =
    "the pod's seccomp profile forbids it: set `seccompProfile: { type: Unconfined }` in its security context";
const APPARMOR: &str = "AppArmor restricts user namespaces: install the copy of bubblewrap for the service with its profile, which the \
                        package for Debian and Ubuntu does (docs/guides/sandbox-host.md, AppArmor); `bwrap` of other programs stays restricted";
const APPARMOR_CONTAINER: &str = "the container's AppArmor profile forbids mounts: start it with `--security-opt apparmor=ralph-bot-container` (deploy/apparmor) or \
     `unconfined`";
const APPARMOR_POD: &str =
    "the pod's AppArmor profile forbids mounts: set `appArmorProfile: { type: Unconfined }` in its security context";
const APPARMOR_UNIT: &str =
    "an AppArmor profile forbids the service to mount: allow `mount` in the profile of the service";
const SELINUX: &str = "SELinux forbids mounts in the container: start it with `--security-opt label=disable`";
const MORE_NAMESPACES: &str =
    "the kernel allows no further user namespaces: set the sysctl `user.max_user_namespaces=15000`";
const UNPRIVILEGED: &str =
    "the kernel allows user namespaces to root only: set the sysctl `kernel.unprivileged_userns_clone=1`";
const RESTRICTED_UNIT: &str =
    "the unit may not create namespaces: remove `RestrictNamespaces=` from the systemd unit of the service";
const READ_ONLY_CONTAINER: &str = "the container's /proc/sys is read-only: start it with `--security-opt systempaths=unconfined` (podman: `--security-opt unmask=ALL`)";
const READ_ONLY_POD: &str = "the pod's /proc/sys is read-only: set `procMount: Unmasked` in its security context and `hostUsers: false` in the pod";
const READ_ONLY_UNIT: &str =
    "the unit's /proc/sys is read-only: remove `ProtectKernelTunables=` from the systemd unit of the service";
const NO_CAPABILITY_CONTAINER: &str = "the service is root without CAP_SYS_ADMIN: start the container with `--cap-add SYS_ADMIN`, or \
                                       as a user other than root";
const NO_SUPPORT: &str = "the kernel was built without user namespaces: use one with `CONFIG_USER_NS`";
const NO_SECCOMP: &str = "the kernel was built without filters of system calls: use one with `CONFIG_SECCOMP_FILTER`";
const UPDATE: &str = "update bubblewrap to 0.6 or newer";
const UNKNOWN: &str = "run `ralph-bot check` for a full test of the sandbox";

/// Returns the advice for a message of bubblewrap.
pub(super) fn fix(message: &str, machine: HostFacts) -> &'static str {
    use Surroundings::{Container, Kubernetes, Unit};
    let has = |part: &str| message.contains(part);
    let place = machine.surroundings;
    let of_place = |container, pod, unit| match place {
        Container => container,
        Kubernetes => pod,
        Unit => unit,
    };
    if is_not_executed(message) {
        return not_executed_fix(message);
    }
    if has("Unknown option") {
        return UPDATE;
    }
    if has("does not support user namespaces") || has("namespace failed: Function not implemented") {
        return NO_SUPPORT;
    }
    if has("max_*_namespaces") || has("No space left on device") || has("No Space left on device") {
        return MORE_NAMESPACES;
    }
    // bubblewrap prints this for every reason.
    if has("No permissions to creat") || has("namespace failed: Operation not permitted") || has("unshare user ns") {
        return match machine {
            _ if machine.no_namespaces => MORE_NAMESPACES,
            _ if machine.only_root => UNPRIVILEGED,
            _ if has("namespace failed") && place == Container => NO_CAPABILITY_CONTAINER,
            _ => of_place(FILTERED_CONTAINER, FILTERED_POD, RESTRICTED_UNIT),
        };
    }
    if has("RTM_NEWADDR") || has("RTM_NEWLINK") || has("uid map") || has("gid map") || has("NETLINK_ROUTE") {
        return APPARMOR;
    }
    if has("max_user_namespaces: Read-only file system") || has("max_user_namespaces: Permission denied") {
        return of_place(READ_ONLY_CONTAINER, READ_ONLY_POD, READ_ONLY_UNIT);
    }
    if has("mount proc") {
        return place.fix();
    }
    if has("mount tmpfs: Permission denied") {
        return SELINUX;
    }
    let mounts = has("make / slave") || has("pivot_root") || has("mount") || has("remount");
    if mounts && has("Permission denied") {
        return of_place(APPARMOR_CONTAINER, APPARMOR_POD, APPARMOR_UNIT);
    }
    if mounts && has("Operation not permitted") {
        return of_place(FILTERED_CONTAINER, FILTERED_POD, FILTERED_UNIT);
    }
    if has("SECCOMP") || has("seccomp") {
        return NO_SECCOMP;
    }
    if has("proc") { place.fix() } else { UNKNOWN }
}

/// Whether a message of bubblewrap or setpriv states that a program could not be executed.
fn is_not_executed(message: &str) -> bool {
    message.contains("execvp") || message.contains("failed to execute")
}

/// Returns the advice for a program that could not be executed.
fn not_executed_fix(message: &str) -> &'static str {
    if message.contains("Permission denied") {
        "its user (`sandbox.user`) may not read or execute the program: give others these permissions (chmod o+rX)"
    } else {
        "the program, or the interpreter in its first line, is not in the view: add its folder to the tools"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: HostFacts = HostFacts { surroundings: Surroundings::Unit, no_namespaces: false, only_root: false };
    const CONTAINER: HostFacts = HostFacts { surroundings: Surroundings::Container, ..UNIT };
    const POD: HostFacts = HostFacts { surroundings: Surroundings::Kubernetes, ..UNIT };

    /// Uses messages that people reported, with their environments and the solutions that helped.
    #[test]
    fn each_known_message_has_one_fix() {
        let denied = "No permissions to create new namespace, likely because the kernel does not allow non-privileged user \
                      namespaces. On e.g. debian this can be enabled with 'sysctl kernel.unprivileged_userns_clone=1'.";
        let many = "Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)";
        for (message, machine, expected) in [
            ("loopback: Failed RTM_NEWADDR: Operation not permitted", UNIT, APPARMOR),
            ("setting up uid map: Permission denied", UNIT, APPARMOR),
            (denied, UNIT, RESTRICTED_UNIT),
            (denied, CONTAINER, FILTERED_CONTAINER),
            (denied, POD, FILTERED_POD),
            (denied, HostFacts { only_root: true, ..UNIT }, UNPRIVILEGED),
            (denied, HostFacts { no_namespaces: true, ..UNIT }, MORE_NAMESPACES),
            ("No permissions to creating new namespace, likely because", CONTAINER, FILTERED_CONTAINER),
            (many, UNIT, MORE_NAMESPACES),
            ("Creating new namespace failed: No space left on device", UNIT, MORE_NAMESPACES),
            ("unshare user ns: No space left on device", UNIT, MORE_NAMESPACES),
            ("Creating new namespace failed: Operation not permitted", CONTAINER, NO_CAPABILITY_CONTAINER),
            ("Creating new namespace failed: Operation not permitted", UNIT, RESTRICTED_UNIT),
            ("Creating new namespace failed: Function not implemented", UNIT, NO_SUPPORT),
            ("Can't mount proc on /newroot/proc: Operation not permitted", UNIT, Surroundings::Unit.fix()),
            ("Can't mount proc on /newroot/proc: Operation not permitted", CONTAINER, Surroundings::Container.fix()),
            ("Can't mount proc on /newroot/proc: Operation not permitted", POD, Surroundings::Kubernetes.fix()),
            ("Can't read /proc/sys/kernel/overflowuid: No such file or directory", UNIT, Surroundings::Unit.fix()),
            ("cannot open /proc/sys/user/max_user_namespaces: Read-only file system", UNIT, READ_ONLY_UNIT),
            ("cannot open /proc/sys/user/max_user_namespaces: Read-only file system", CONTAINER, READ_ONLY_CONTAINER),
            ("cannot open /proc/sys/user/max_user_namespaces: Read-only file system", POD, READ_ONLY_POD),
            ("Failed to make / slave: Permission denied", CONTAINER, APPARMOR_CONTAINER),
            ("Failed to make / slave: Permission denied", POD, APPARMOR_POD),
            ("Failed to make / slave: Operation not permitted", CONTAINER, FILTERED_CONTAINER),
            ("Failed to make / slave: Operation not permitted", UNIT, FILTERED_UNIT),
            ("Failed to mount tmpfs: Operation not permitted", CONTAINER, FILTERED_CONTAINER),
            ("Failed to mount tmpfs: Permission denied", CONTAINER, SELINUX),
            ("pivot_root(/newroot): Operation not permitted", UNIT, FILTERED_UNIT),
            ("prctl(PR_SET_SECCOMP): Invalid argument", UNIT, NO_SECCOMP),
            ("Unknown option --add-seccomp-fd", UNIT, UPDATE),
            ("Can't chdir to /x: Permission denied", UNIT, UNKNOWN),
        ] {
            assert_eq!(fix(message, machine), expected, "{message} {machine:?}");
        }
        for (message, words) in [
            ("execvp /x: No such file or directory", "add its folder to the tools"),
            ("failed to execute /x: No such file or directory", "add its folder to the tools"),
            ("failed to execute /x: Permission denied", "chmod o+rX"),
        ] {
            assert!(fix(message, UNIT).contains(words), "{message}");
        }
    }
}
