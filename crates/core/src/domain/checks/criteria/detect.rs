//! Detects checks from the files at the root of a tree, for repositories without configured checks.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::plain;
use crate::domain::model::task::{Check, CheckSource};

/// Makefile rule with a target that verifies the tree, possibly among other targets. An assignment does not match.
static TARGET: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^(?:[\w./-]+[ ]+)*(test|check|lint|build|all)(?:[ ]+[\w./-]+)*[ \t]*::?(?:[^=:]|$)")
        .expect("constant pattern")
});
/// Section of a `pyproject.toml` that describes a package or the test runner. Without such a section, the file only configures tools.
static PYTHON_PACKAGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\[(?:project|build-system|tool\.poetry)|pytest").expect("constant pattern"));
/// Files that configure a Python linter, with its command.
const PYTHON_LINTERS: [(&str, &str); 4] =
    [("ruff.toml", "ruff check ."), (".ruff.toml", "ruff check ."), (".flake8", "flake8"), ("mypy.ini", "mypy .")];
/// Scripts of a `package.json` without tests that verify the tree.
const SCRIPTS: [&str; 4] = ["typecheck", "type-check", "lint", "build"];

/// Detects known build files and returns the test command of each language, or its build and lint commands where it has no tests.
/// `files` returns the text of the file at a path relative to the tree, if it exists. A makefile counts only if no language was
/// detected, because its `test` target usually calls the same runner. The check for cargo does not stop at the first failing
/// binary, so that all tests are counted.
pub fn detect(files: &dyn Fn(&str) -> Option<String>) -> Vec<Check> {
    let mut commands: Vec<String> = Vec::new();
    if let Some(manifest) = files("Cargo.toml") {
        let workspace = manifest.lines().any(|line| line.trim_start().starts_with("[workspace"));
        commands.push(
            if workspace { "cargo test --workspace --no-fail-fast" } else { "cargo test --no-fail-fast" }.to_owned(),
        );
    }
    commands.extend(files("package.json").map(|text| javascript(&text, files)).unwrap_or_default());
    commands.extend(python(files));
    if files("go.mod").is_some() {
        commands.push("go test ./...".to_owned());
    }
    if commands.is_empty() {
        // Same order as make uses.
        let makefile = ["GNUmakefile", "makefile", "Makefile"].into_iter().find_map(files);
        commands.extend(make_targets(&makefile.unwrap_or_default()).map(|target| format!("make {target}")));
    }
    commands.iter().map(|command| plain(command, CheckSource::Detected)).collect()
}

/// Returns the test script of a `package.json`. Without one, returns the scripts that verify the tree and do not change it, or the
/// type check of TypeScript.
fn javascript(manifest: &str, files: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let Ok(manifest) = serde_json::from_str::<Value>(manifest.trim_start_matches('\u{feff}')) else {
        return Vec::new();
    };
    let script = |name: &str| manifest["scripts"][name].as_str().map(str::trim).filter(|script| !script.is_empty());
    let declared = manifest["packageManager"].as_str().and_then(|text| text.split('@').next());
    let locks = [("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun"), ("bun.lockb", "bun")];
    let locked = || locks.iter().find(|(lock, _)| files(lock).is_some()).map(|(_, program)| *program);
    let manager =
        declared.filter(|name| ["pnpm", "yarn", "bun", "npm"].contains(name)).or_else(locked).unwrap_or("npm");
    if script("test").is_some_and(|script| !script.contains("no test specified")) {
        // `bun test` is bun's built-in runner and ignores the script.
        return vec![if manager == "bun" { "bun run test".to_owned() } else { format!("{manager} test") }];
    }
    let verifies = |name: &&str| script(name).is_some_and(|text| !text.contains("--fix") && !text.contains("--write"));
    let found: Vec<String> =
        SCRIPTS.iter().filter(|name| verifies(name)).map(|name| format!("{manager} run {name}")).collect();
    if found.is_empty() && files("tsconfig.json").is_some() {
        return vec!["npx --no-install tsc --noEmit".to_owned()];
    }
    found
}

/// Returns the command of pytest for a package or a configuration of pytest, otherwise the commands of the configured linters.
fn python(files: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let project = files("pyproject.toml").unwrap_or_default();
    let has_tests = files("pytest.ini").is_some()
        || PYTHON_PACKAGE.is_match(&project)
        || files("tox.ini").is_some()
        || files("setup.cfg").is_some_and(|text| text.contains("pytest") || text.contains("[metadata]"));
    if has_tests {
        return vec!["python3 -m pytest".to_owned()];
    }
    let configured = PYTHON_LINTERS.iter().filter(|(file, _)| files(file).is_some()).map(|(_, command)| *command);
    let sections = [("[tool.ruff", "ruff check ."), ("[tool.mypy", "mypy .")];
    let named = sections.iter().filter(|(section, _)| project.contains(section)).map(|(_, command)| *command);
    let mut commands: Vec<String> = configured.chain(named).map(str::to_owned).collect();
    commands.sort();
    commands.dedup();
    commands
}

/// Returns the target of a makefile that runs the tests; without one, the targets that lint and build.
fn make_targets(makefile: &str) -> impl Iterator<Item = &'static str> {
    let found: Vec<&str> = TARGET.captures_iter(makefile).filter_map(|c| c.get(1)).map(|m| m.as_str()).collect();
    let has = |target: &&str| found.contains(target);
    let tests = ["test", "check"].into_iter().find(has);
    let others = ["lint", "build"].into_iter().filter(has);
    let mut targets: Vec<&'static str> = tests.map_or_else(|| others.collect(), |target| vec![target]);
    if targets.is_empty() {
        targets.extend(["all"].into_iter().filter(has));
    }
    targets.into_iter()
}
