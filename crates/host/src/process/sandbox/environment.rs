//! Environment and limits of a program. A shell sets them inside the sandbox and then executes the program.
//!
//! If the service is root, bubblewrap and setpriv run as root. With the program's environment, variables such as
//! `LD_PRELOAD` would make them load a library that the program wrote.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use ralph_types::failure::Failure;

use crate::domain::trust::limits::SandboxLimits;

/// Path of the file in the sandbox that contains the environment. Programs can read it, which have the same variables.
pub(super) const FILE: &str = "/run/environment";
/// Name of the shell in its error messages.
pub(super) const SHELL_NAME: &str = "sandbox";
/// Number of processes and threads that a user may have beyond the limit, so that exceeding the limit can be observed.
const SPARE_PROCESSES: u64 = 64;
/// First Linux version that counts the processes of a user separately in each user namespace.
const COUNTS_IN_NAMESPACES: (u32, u32) = (5, 14);

/// Returns the command line that precedes a program. `own_user` states that no other run uses the program's user.
pub(super) fn before_program(limits: SandboxLimits, own_user: bool) -> [OsString; 4] {
    let is_counted = own_user || kernel().is_some_and(|version| version >= COUNTS_IN_NAMESPACES);
    let processes = if is_counted {
        let most = limits.processes + SPARE_PROCESSES;
        // The option has different names in bash and dash; elsewhere processes are only measured.
        format!("ulimit -u {most} 2>/dev/null || ulimit -p {most} 2>/dev/null; ")
    } else {
        String::new()
    };
    ["/bin/sh", "-c", &format!("{processes}. {FILE}; exec \"$@\""), SHELL_NAME].map(OsString::from)
}

/// Returns a shell script that exports the variables.
///
/// # Errors
/// A variable's name cannot be exported by shells.
pub(super) fn exports(environment: &[(OsString, OsString)]) -> Result<Vec<u8>, Failure> {
    let mut script = Vec::new();
    for (name, value) in environment {
        if !is_name(name) {
            return Err(Failure::new(format!(
                "the environment variable {name:?} cannot be set in it: its name must consist of letters, digits and `_`"
            )));
        }
        script.extend(b"export ");
        script.extend(name.as_bytes());
        script.extend(b"='");
        for byte in value.as_bytes() {
            if *byte == b'\'' { script.extend(b"'\\''") } else { script.push(*byte) }
        }
        script.extend(b"'\n");
    }
    Ok(script)
}

fn is_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    bytes.iter().all(is_part) && bytes.first().is_some_and(|first| !first.is_ascii_digit())
}

/// Returns the major and minor version of the kernel; `None` if it is unknown.
fn kernel() -> Option<(u32, u32)> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_and_names_are_checked() {
        let of = |name: &str, value: &str| exports(&[(name.into(), value.into())]);
        assert_eq!(of("A_1", "it's $x\n\\").unwrap(), b"export A_1='it'\\''s $x\n\\'\n");
        for name in ["", "1a", "a b", "a=b", "npm_config_//host/:_token", "a\n"] {
            assert!(of(name, "").unwrap_err().to_string().contains("letters, digits"), "{name:?}");
        }
    }

    #[test]
    fn kernel_version_is_parsed() {
        assert!(kernel().is_some_and(|version| version > (2, 6)));
    }
}
