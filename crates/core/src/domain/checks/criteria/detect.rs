//! Detects checks from the files at the root of a tree, for repositories without configured checks.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::plain;
use crate::domain::model::task::{Check, CheckSource};

/// Makefile rule with the target `test` or `check`, possibly among other targets. An assignment does not match.
static TARGET: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^(?:[\w./-]+[ ]+)*(test|check)(?:[ ]+[\w./-]+)*[ \t]*::?(?:[^=:]|$)").expect("constant pattern")
});

/// Detects known build files and returns one check per language. `files` returns the text of the file at a path relative to
/// the tree, if it exists. A makefile counts only if no language was detected, because its `test` target usually calls the
/// same runner. The check for cargo does not stop at the first failing binary, so that all tests are counted.
pub fn detect(files: &dyn Fn(&str) -> Option<String>) -> Vec<Check> {
    let mut commands: Vec<String> = Vec::new();
    if let Some(manifest) = files("Cargo.toml") {
        let workspace = manifest.lines().any(|line| line.trim_start().starts_with("[workspace"));
        commands.push(
            if workspace { "cargo test --workspace --no-fail-fast" } else { "cargo test --no-fail-fast" }.to_owned(),
        );
    }
    commands.extend(files("package.json").and_then(|text| javascript(&text, files)));
    if has_pytest(files) {
        commands.push("python3 -m pytest".to_owned());
    }
    if files("go.mod").is_some() {
        commands.push("go test ./...".to_owned());
    }
    if commands.is_empty() {
        // Same order as make uses.
        let makefile = ["GNUmakefile", "makefile", "Makefile"].into_iter().find_map(files);
        commands.extend(makefile.and_then(|text| make_target(&text)).map(|target| format!("make {target}")));
    }
    commands.iter().map(|command| plain(command, CheckSource::Detected)).collect()
}

fn javascript(manifest: &str, files: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let manifest: Value = serde_json::from_str(manifest.trim_start_matches('\u{feff}')).ok()?;
    let script = manifest.get("scripts")?.get("test")?.as_str()?.trim();
    if script.is_empty() || script.contains("no test specified") {
        return None;
    }
    let declared = manifest.get("packageManager").and_then(Value::as_str).and_then(|text| text.split('@').next());
    let locks = [("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun"), ("bun.lockb", "bun")];
    let locked = || locks.iter().find(|(lock, _)| files(lock).is_some()).map(|(_, program)| *program);
    let command = match declared.filter(|name| ["pnpm", "yarn", "bun", "npm"].contains(name)).or_else(locked) {
        Some("pnpm") => "pnpm test",
        Some("yarn") => "yarn test",
        // `bun test` is bun's built-in runner and ignores the script.
        Some("bun") => "bun run test",
        _ => "npm test",
    };
    Some(command.to_owned())
}

fn has_pytest(files: &dyn Fn(&str) -> Option<String>) -> bool {
    files("pytest.ini").is_some()
        || files("pyproject.toml").is_some()
        || files("tox.ini").is_some()
        || files("setup.cfg").is_some_and(|text| text.contains("pytest") || text.contains("[metadata]"))
}

fn make_target(makefile: &str) -> Option<&'static str> {
    let found: Vec<&str> = TARGET.captures_iter(makefile).filter_map(|c| c.get(1)).map(|m| m.as_str()).collect();
    ["test", "check"].into_iter().find(|target| found.contains(target))
}
