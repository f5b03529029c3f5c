//! Finds the parts that we did not write and that a test talks to: npm packages under `target/parts`, programs of the
//! machine, servers that somebody else runs.
//!
//! A part that is missing is named with the way to get it. On somebody's machine the test then passes over it; in CI
//! it fails, so that nothing is left out there unseen.

use std::path::{Path, PathBuf};

use tokio::process::Command;

/// Folder of an npm package, given as `name@version`; `None` where it is missing, which has been said then.
pub fn npm_part(package: &str) -> Option<PathBuf> {
    let (name, version) = package.rsplit_once('@').expect("a package with its version");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/parts/node_modules").join(name);
    let facts = std::fs::read_to_string(folder.join("package.json")).unwrap_or_default();
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap_or_default();
    if facts["version"] == version {
        return Some(folder);
    }
    missing(&format!(
        "{package} is not in target/parts: run .ci/run or `npm install --prefix target/parts --no-save {package}`"
    ));
    None
}

/// The first of these programs that is on `PATH`; `None` where none is, which has been said then.
pub fn program(names: &[&str], to_get_it: &str) -> Option<PathBuf> {
    let found = names.iter().find_map(|name| which::which(name).ok());
    if found.is_none() {
        missing(&format!("there is no {}: {to_get_it}", names.join(" or ")));
    }
    found
}

/// Says that a test is passed over; in CI it fails instead.
fn missing(what: &str) {
    assert!(setting("CI").is_none(), "{what}");
    eprintln!("skipped: {what}");
}

/// A command that ends with the test.
#[expect(clippy::disallowed_methods, reason = "these processes are the world around the service, not its own")]
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.kill_on_drop(true);
    command
}

/// What a command printed; it must succeed.
pub async fn output(command: &mut Command) -> Vec<u8> {
    let output = command.output().await.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {}: {said}", command.as_std(), output.status);
    output.stdout
}

/// A variable of the environment, where it says something.
#[expect(clippy::disallowed_methods, reason = "the tests' own switches are no part of the service's configuration")]
pub fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
