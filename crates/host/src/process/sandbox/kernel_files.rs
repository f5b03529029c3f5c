//! Kernel files in a sandbox's `/proc`. Settings are read-only and information about the machine is hidden, as in
//! containers (OCI runtime specification). A sandbox has no `/sys`.

use std::path::Path;

use ralph_types::failure::Failure;

/// Folders and files with settings.
const READ_ONLY: [&str; 5] = ["/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/sysrq-trigger"];
/// Folders and files that appear empty or are not readable.
const HIDDEN: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/scsi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/timer_list",
    "/proc/timer_stats",
];
/// Files that exist in containers of Docker and of podman.
const IN_CONTAINER: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
/// Folder that exists in Kubernetes containers with a service account token.
const IN_KUBERNETES: &str = "/var/run/secrets/kubernetes.io";
/// File that Kubernetes writes in all of its containers, and its first words.
const HOSTS: (&str, &str) = ("/etc/hosts", "# Kubernetes-managed hosts file");

/// Environment that the service runs in. Each hides parts of `/proc` in a different way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Surroundings {
    Container,
    Kubernetes,
    Unit,
}

impl Surroundings {
    /// Returns the environment of this process.
    pub(super) fn here() -> Self {
        Self::by(&|path| Path::new(path).exists(), &std::fs::read_to_string(HOSTS.0).unwrap_or_default())
    }

    fn by(exists: &dyn Fn(&str) -> bool, hosts: &str) -> Self {
        if exists(IN_KUBERNETES) || hosts.starts_with(HOSTS.1) {
            Self::Kubernetes
        } else if IN_CONTAINER.into_iter().any(exists) {
            Self::Container
        } else {
            Self::Unit
        }
    }

    /// Returns the advice if the environment hides parts of `/proc`.
    pub(super) fn fix(self) -> &'static str {
        match self {
            Self::Container => {
                "the container's /proc is partly hidden: start it with `--security-opt systempaths=unconfined` (podman: \
                 `--security-opt unmask=ALL`)"
            }
            Self::Kubernetes => {
                "the container's /proc is partly hidden: set `procMount: Unmasked` in its security context and `hostUsers: false` \
                 in the pod"
            }
            Self::Unit => {
                "the unit's /proc is partly hidden: remove `ProtectKernelTunables=`, `ProtectKernelLogs=`, `ProtectHostname=` and \
                 `ProcSubset=` from the systemd unit of the service"
            }
        }
    }
}

/// Returns the advice if the kernel refuses to mount a new `/proc`. It does so if parts of the service's own `/proc`
/// are hidden.
pub(super) fn fix_of_hidden_proc() -> &'static str {
    Surroundings::here().fix()
}

/// Returns bubblewrap's arguments that follow the mount of a new `/proc`.
///
/// # Errors
/// Settings are not visible to the service and cannot be made read-only; the message contains advice.
pub(super) fn arguments() -> Result<Vec<&'static str>, Failure> {
    arguments_on(&|path| Path::new(path).exists(), &|path| Path::new(path).is_dir())
}

fn arguments_on(exists: &dyn Fn(&str) -> bool, is_dir: &dyn Fn(&str) -> bool) -> Result<Vec<&'static str>, Failure> {
    let [settings, ..] = READ_ONLY;
    if !exists(settings) {
        return Err(Failure::new(format!(
            "{settings} cannot be made read-only, because the service does not see it; {}",
            fix_of_hidden_proc()
        )));
    }
    let mut arguments = Vec::new();
    for path in READ_ONLY.into_iter().filter(|path| exists(path)) {
        arguments.extend(["--ro-bind", path, path]);
    }
    for path in HIDDEN.into_iter().filter(|path| exists(path)) {
        if is_dir(path) {
            arguments.extend(["--tmpfs", path, "--remount-ro", path]);
        } else {
            arguments.extend(["--ro-bind", "/dev/null", path]);
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_and_pod_are_detected_by_files() {
        let pod = "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n";
        for (file, hosts, expected) in [
            ("/var/run/secrets/kubernetes.io", "", Surroundings::Kubernetes),
            ("", pod, Surroundings::Kubernetes),
            ("/.dockerenv", "127.0.0.1 localhost\n", Surroundings::Container),
            ("/run/.containerenv", "", Surroundings::Container),
            ("/.dockerenv", pod, Surroundings::Kubernetes),
            ("", "127.0.0.1 localhost # Kubernetes-managed hosts file\n", Surroundings::Unit),
        ] {
            assert_eq!(Surroundings::by(&|path| path == file, hosts), expected, "{file} {hosts}");
        }
    }

    #[test]
    fn settings_are_read_only_and_data_is_hidden() {
        let is_dir = |path: &str| ["/proc/sys", "/proc/scsi"].contains(&path);
        let exists = |path: &str| is_dir(path) || ["/proc/kcore", "/proc/sysrq-trigger"].contains(&path);
        let arguments = arguments_on(&exists, &is_dir).unwrap().join(" ");
        let expected = "--ro-bind /proc/sys /proc/sys --ro-bind /proc/sysrq-trigger /proc/sysrq-trigger \
                        --tmpfs /proc/scsi --remount-ro /proc/scsi --ro-bind /dev/null /proc/kcore";
        assert_eq!(arguments, expected);
        let interrupts = arguments_on(&|path| ["/proc/sys", "/proc/interrupts"].contains(&path), &is_dir).unwrap();
        assert!(interrupts.join(" ").ends_with("--ro-bind /dev/null /proc/interrupts"), "{interrupts:?}");
    }

    #[test]
    fn inaccessible_kernel_settings_are_an_error_with_a_fix() {
        let error = arguments_on(&|_| false, &|_| false).unwrap_err().to_string();
        assert!(
            error.contains("/proc/sys cannot be made read-only") && error.ends_with(fix_of_hidden_proc()),
            "{error}"
        );
        for surroundings in [Surroundings::Container, Surroundings::Kubernetes, Surroundings::Unit] {
            assert!(surroundings.fix().contains("partly hidden: "), "{surroundings:?}");
        }
    }
}
