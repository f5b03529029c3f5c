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

/// A Python package in the environment of `target/parts/python`.
pub struct PythonPart {
    environment: PathBuf,
    packages: PathBuf,
    /// The environment, and the interpreter that it was made with.
    pub folders: Vec<PathBuf>,
}

impl PythonPart {
    /// A program that it brings.
    pub fn program(&self, name: &str) -> PathBuf {
        self.environment.join("bin").join(name)
    }

    /// The folder of one of its modules.
    pub fn module(&self, name: &str) -> PathBuf {
        self.packages.join(name)
    }
}

/// A Python package, given as `name==version`; `None` where it is missing, which has been said then.
pub fn python_part(package: &str) -> Option<PythonPart> {
    let (name, version) = package.split_once("==").expect("a package with its version");
    let facts = format!("{}-{version}.dist-info", name.replace('-', "_"));
    let environment = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/parts/python");
    let libraries = std::fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
    let mut packages = libraries.map(|library| library.path().join("site-packages"));
    let Some(packages) = packages.find(|packages| packages.join(&facts).exists()) else {
        missing(&format!(
            "{package} is not in target/parts/python: run .ci/run, or, with Python 3.10 to 3.12, `python3 -m venv \
             target/parts/python && target/parts/python/bin/pip install {package}`"
        ));
        return None;
    };
    // Its programs name it by its real path.
    let [environment, packages] = [environment, packages].map(|path| path.canonicalize().expect("it is there"));
    let interpreter = environment.join("bin/python3").canonicalize().expect("an interpreter");
    let folders = interpreter.ancestors().nth(2).map(Path::to_owned).into_iter().chain([environment.clone()]).collect();
    Some(PythonPart { environment, packages, folders })
}

/// The first of these programs that is on `PATH`; `None` where none is, which has been said then.
pub fn program(names: &[&str], to_get_it: &str) -> Option<PathBuf> {
    let found = names.iter().find_map(|name| which::which(name).ok());
    if found.is_none() {
        missing(&format!("there is no {}: {to_get_it}", names.join(" or ")));
    }
    found
}

/// Says that a test is passed over; in CI, and in `.ci/run`, it fails instead.
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
