//! Tests that run as a user other than root: a service that is root has no sandbox without namespaces (tier B).

use std::os::unix::process::CommandExt;

/// First of the users of these tests where root runs them; nothing belongs to them.
const OTHER_USER: u32 = 2_000_100_000;
/// Message of the supervisor where the kernel has no Landlock, or too old a version.
pub const NO_LANDLOCK: &str = "the kernel cannot confine it by Landlock";

/// Whether the calling test, given with its modules, continues: not as root, who runs it again as another user, and not
/// where the kernel lacks Landlock.
pub fn goes_on_confined(test: &str) -> bool {
    let listed = std::fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    if !listed.is_empty() && !listed.contains("landlock") {
        skipped_tests::skip_in_ci_as_well("the kernel runs without Landlock");
        return false;
    }
    goes_on_as_other_user(test)
}

/// Whether the calling test, given with its modules, continues: not as root, who runs it again as another user.
pub fn goes_on_as_other_user(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    // The kernel counts much for each user.
    let user = OTHER_USER + test.bytes().map(u32::from).sum::<u32>();
    #[expect(clippy::disallowed_methods, reason = "the test itself, as another user")]
    let mut again = std::process::Command::new(std::env::current_exe().expect("a path"));
    again.args([test, "--exact", "--nocapture"]).uid(user).gid(user);
    let done = again.env("HOME", "/tmp").current_dir("/").output().expect("it runs");
    let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if text.contains(NO_LANDLOCK) {
        skipped_tests::skip_in_ci_as_well(NO_LANDLOCK);
    } else {
        assert!(done.status.success() && text.contains("1 passed"), "{text}");
    }
    false
}
