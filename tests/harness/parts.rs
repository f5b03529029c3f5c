//! Finds third-party parts that tests run: npm and Python packages under `target/parts`, and programs of the machine.
//!
//! A missing part is recorded with the command that installs it, and the test is skipped; with `CI` set it fails.

use std::path::{Path, PathBuf};

use skipped_tests::skip;
use tokio::process::Command;

/// Folder of an npm package, given as `name@version`; `None` if it is missing, which is reported.
pub fn npm_part(package: &str) -> Option<PathBuf> {
    let (name, version) = package.rsplit_once('@').expect("a package with its version");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/parts/node_modules").join(name);
    let facts = std::fs::read_to_string(folder.join("package.json")).unwrap_or_default();
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap_or_default();
    if facts["version"] == version {
        return Some(folder);
    }
    skip(&format!(
        "{package} is not in target/parts: run `.ci/full stories` or `npm install --prefix target/parts --no-save {package}`"
    ));
    None
}

/// A Python package in the environment of `target/parts/python`.
pub struct PythonPart {
    environment: PathBuf,
    packages: PathBuf,
    /// Folders of the environment and of the interpreter that it was made with.
    pub folders: Vec<PathBuf>,
}

impl PythonPart {
    /// Path of a program of the package.
    pub fn program(&self, name: &str) -> PathBuf {
        self.environment.join("bin").join(name)
    }

    /// Folder of a module of the package.
    pub fn module(&self, name: &str) -> PathBuf {
        self.packages.join(name)
    }
}

/// A Python package, given as `name==version`; `None` if it is missing, which is reported.
pub fn python_part(package: &str) -> Option<PythonPart> {
    let (name, version) = package.split_once("==").expect("a package with its version");
    let facts = format!("{}-{version}.dist-info", name.replace('-', "_"));
    let environment = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/parts/python");
    let libraries = std::fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
    let mut packages = libraries.map(|library| library.path().join("site-packages"));
    let Some(packages) = packages.find(|packages| packages.join(&facts).exists()) else {
        skip(&format!(
            "{package} is not in target/parts/python: run `.ci/full stories`, or, with Python 3.10 to 3.12, `python3 -m venv \
             target/parts/python && target/parts/python/bin/pip install {package}`"
        ));
        return None;
    };
    // Programs of the environment refer to its canonical path.
    let [environment, packages] = [environment, packages].map(|path| path.canonicalize().expect("it is there"));
    let interpreter = environment.join("bin/python3").canonicalize().expect("an interpreter");
    let folders = interpreter.ancestors().nth(2).map(Path::to_owned).into_iter().chain([environment.clone()]).collect();
    Some(PythonPart { environment, packages, folders })
}

/// First of these programs that is on `PATH`; `None` if none is, which is reported.
pub fn program(names: &[&str], to_get_it: &str) -> Option<PathBuf> {
    let found = names.iter().find_map(|name| which::which(name).ok());
    if found.is_none() {
        skip(&format!("there is no {}: {to_get_it}", names.join(" or ")));
    }
    found
}

/// Command whose process is killed at the end of the test.
#[expect(clippy::disallowed_methods, reason = "these processes are not children of the service")]
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.kill_on_drop(true);
    command
}

/// Standard output of a command, which must succeed.
pub async fn output(command: &mut Command) -> Vec<u8> {
    let output = command.output().await.expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {}: {stderr}", command.as_std(), output.status);
    output.stdout
}

/// Makes an authority (`ca.pem`) and its certificate for `localhost` (`cert.pem`, `key.pem`) in a folder; `None` if openssl is missing,
/// which is reported.
pub async fn certificates(folder: &Path) -> Option<()> {
    let openssl = program(&["openssl"], "install the package openssl")?;
    let request = async |arguments: &[&str]| {
        let mut request = command(&openssl);
        request.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ]);
        output(request.args(arguments).current_dir(folder)).await;
    };
    request(&["-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Authority of a test"]).await;
    let names = ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"];
    let files =
        ["-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost"];
    request(&[&files[..], &names[..]].concat()).await;
    Some(())
}

/// Value of an environment variable; `None` if it is unset or empty.
#[expect(clippy::disallowed_methods, reason = "the tests' own switches are no part of the service's configuration")]
pub fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
