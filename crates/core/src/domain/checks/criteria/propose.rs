//! Proposes commands that could serve as checks where detection finds none. People decide whether one of them is a check.

use std::sync::LazyLock;

use regex::Regex;

use super::plain;
use crate::domain::model::task::{Check, CheckSource};

/// Maximum number of proposed commands.
pub const MAX_PROPOSED: usize = 3;
/// Time limit of a proposed command when it is tried, in seconds.
const TRIAL_TIMEOUT_S: u64 = 300;

/// Test scripts by their usual paths. The shell is the script's own.
const SCRIPTS: [&str; 6] =
    ["test.sh", "check.sh", "run_tests.sh", "run-tests.sh", "scripts/test.sh", "scripts/check.sh"];

/// Commands by the file that declares their tool. Of each group, the first existing file decides.
const TOOLS: &[&[(&str, &str)]] = &[
    &[("setup.py", "python3 -m pytest"), ("requirements.txt", "python3 -m compileall -q .")],
    &[("CMakeLists.txt", "cmake -S . -B /tmp/build && cmake --build /tmp/build")],
    &[(".rspec", "bundle exec rspec"), ("Rakefile", "bundle exec rake")],
    &[(".rubocop.yml", "bundle exec rubocop")],
    &[("phpunit.xml", "vendor/bin/phpunit"), ("phpunit.xml.dist", "vendor/bin/phpunit")],
    &[("phpstan.neon", "vendor/bin/phpstan analyse"), ("phpstan.neon.dist", "vendor/bin/phpstan analyse")],
    &[("composer.json", "composer validate --no-check-publish")],
    &[("mvnw", "./mvnw -q -B test"), ("pom.xml", "mvn -q -B test")],
    &[("gradlew", "./gradlew test"), ("build.gradle", "gradle test"), ("build.gradle.kts", "gradle test")],
    &[("mix.exs", "mix test")],
    &[("pubspec.yaml", "dart test")],
    &[("pubspec.yaml", "dart analyze")],
    &[("deno.json", "deno test"), ("deno.jsonc", "deno test")],
    &[("deno.json", "deno lint"), ("deno.jsonc", "deno lint")],
    &[("Package.swift", "swift test")],
    &[("build.zig", "zig build")],
    &[("dune-project", "dune build")],
    &[("dune-project", "dune test")],
    &[("stack.yaml", "stack test")],
    &[("build.sbt", "sbt test")],
    &[("mkdocs.yml", "mkdocs build --strict --site-dir /tmp/site")],
    &[(".pre-commit-config.yaml", "pre-commit run --all-files")],
];

/// Recipes of a justfile that verify the repository.
static RECIPE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^@?(test|check|lint|build)\b[^:\n]*:(?:[^=]|$)").expect("constant pattern"));

/// Returns up to [`MAX_PROPOSED`] commands that could verify a tree, by its test scripts and the tools that its files declare. `files`
/// returns the text of the file at a path relative to the tree, if it exists.
pub fn propose(files: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for path in SCRIPTS {
        let Some(text) = files(path) else { continue };
        let is_bash = text.lines().next().is_some_and(|first| first.starts_with("#!") && first.contains("bash"));
        commands.push(format!("{} {path}", if is_bash { "bash" } else { "sh" }));
    }
    let justfile = ["justfile", "Justfile", ".justfile"].into_iter().find_map(files).unwrap_or_default();
    commands.extend(RECIPE.captures_iter(&justfile).map(|found| format!("just {}", &found[1])));
    let tools = TOOLS.iter().filter_map(|group| group.iter().find(|(file, _)| files(file).is_some()));
    commands.extend(tools.map(|(_, command)| (*command).to_owned()));
    commands.truncate(MAX_PROPOSED);
    commands
}

/// Converts proposed commands into checks with a short time limit, without duplicates and at most [`MAX_PROPOSED`]. Earlier commands
/// take precedence.
pub fn trial(commands: impl IntoIterator<Item = String>) -> Vec<Check> {
    let mut checks: Vec<Check> = Vec::new();
    for command in commands {
        if checks.len() < MAX_PROPOSED && checks.iter().all(|check| check.command != command) {
            checks.push(Check { timeout_s: Some(TRIAL_TIMEOUT_S), ..plain(&command, CheckSource::Detected) });
        }
    }
    checks
}
