//! Finds the installed bubblewrap.

use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use ralph_types::failure::Failure;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::process::sandbox::Bubblewrap;
use crate::process::{ProcessLimits, ProcessSpec};

/// Path of a copy of bubblewrap that only the service may execute. Where AppArmor restricts user namespaces, the
/// packages install a profile that allows them for this path only.
const OWN_PATH: &str = "/usr/lib/ralph-bot/bwrap";
/// Paths at which bubblewrap is looked for. They are fixed, so that the environment cannot replace bubblewrap.
const BUBBLEWRAP_PATHS: [&str; 4] =
    ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/run/wrappers/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// Looks for bubblewrap once per process; returns the reason if it cannot be used. The future is boxed because the
/// calls are recursive: a sandboxed run looks for bubblewrap, which runs a program.
pub(in crate::process) fn installed() -> BoxFuture<'static, Result<&'static Bubblewrap, Failure>> {
    static FOUND: OnceCell<Result<Bubblewrap, Failure>> = OnceCell::const_new();
    Box::pin(async { FOUND.get_or_init(find).await.as_ref().map_err(Clone::clone) })
}

async fn find() -> Result<Bubblewrap, Failure> {
    let own = Some(Path::new(OWN_PATH)).filter(|path| may_execute(path));
    let program = own.or_else(|| BUBBLEWRAP_PATHS.iter().map(Path::new).find(|p| p.is_file())).ok_or(
        "bubblewrap is not installed; install the package `bubblewrap` (available in apt, dnf, apk and pacman)",
    )?;
    let mut spec = ProcessSpec::new(program, "/").args(["--version"]);
    spec.limits = ProcessLimits { wall: Duration::from_secs(10), keep_bytes: 4096, ..ProcessLimits::default() };
    let finished = super::run(spec, &CancellationToken::new(), None).await.map_err(Failure::of)?;
    let version = finished.stdout.head.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    if finished.success() && version.starts_with(|c: char| c.is_ascii_digit()) {
        Ok(Bubblewrap { program: program.to_owned(), version })
    } else {
        Err(Failure::new(format!("{} --version failed: {}", program.display(), finished.stderr.text().trim())))
    }
}

/// Whether this process may execute the file. Other users may not execute the service's copy and use the system's
/// bubblewrap.
fn may_execute(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn copy_that_cannot_be_executed_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("bwrap");
        assert!(!may_execute(&copy), "missing");
        assert!(!may_execute(folder.path()), "a folder");
        std::fs::write(&copy, "").unwrap();
        let set = |mode| std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o600);
        assert!(!may_execute(&copy));
        set(0o700);
        assert!(may_execute(&copy));
    }
}
