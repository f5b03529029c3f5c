//! Effects of configuration changes: some only make checks stricter, others reduce the parts that are built or run.

use std::collections::HashSet;

use super::code_tokens;
use super::commands;
use super::diff::{FileDiff, LineChange};
use super::findings::Findings;
use super::summary::DiffSummary;
use crate::domain::model::task::TamperKind;

/// Maximum number of lost literals of a change that can be stricter.
const MAX_LOST: usize = 100;
/// Maximum number of changed lines of a change that can be stricter, because each is compared with all others.
const MAX_LINES: usize = 200;

// Words by which a setting or command demands less.
pattern!(
    LOOSENS,
    r#"(?i)ignor|exclu|omit|skip|\boff\b|\bwarn\w*\b|\bnone\b|\bfalse\b|\ballow|disab|overrid|\bnot\b|per-file|deselect|fail|max|min\b|retr|continue|["']!|\|\||;|[^|]\|[^|]|\btrue\s*$|\bnoop\b|\becho\b|extends|plugin|pattern|paths?\b|files\b|roots?\b|match|setup|environment|reporter|timeout|[<>]|&\s*$|:\s*\[?\s*["']?0\b"#
);

// Settings that add checks: rules at the level of an error, selected rules, environments, commands that run one more.
pattern!(
    DEMANDS,
    r#"(?i)["']?[\w@/-]+["']?\s*:\s*\[?\s*["']?(?:error|2|deny)\b|\b(?:extend[-_])?select\w*\s*=|\benv_?list\s*=|^[\w./-]*(?:test|check|lint|verify|ci|coverage)[\w./-]*\s*::?(?:\s|$)|^\t@?\S|"\w[\w:.-]*"\s*:\s*"[^"]*\w[^"]*"|\bstrict\w*\s*=\s*true|=\s*"(?:deny|forbid)""#
);

/// Whether a change of configuration only adds rules, environments, steps or dependencies to the checks and removes nothing.
pub(super) fn is_stricter(file: &FileDiff) -> bool {
    if file.is_new() || file.is_deleted() {
        return false;
    }
    let real = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with(['#', ';']);
    let text = |change| file.lines(change).filter(real).collect::<Vec<_>>().join("\n");
    let (old, new) = (text(LineChange::Removed), text(LineChange::Added));
    let level = |literal: &String| matches!(literal.trim_matches(['"', '\'']), "warn" | "off" | "0" | "1");
    let lost = code_tokens::lost(&old, &new);
    if old.lines().count() + new.lines().count() > MAX_LINES || lost.literals.len() > MAX_LOST {
        return false;
    }
    let no_loss = lost.words.is_empty() && lost.literals.iter().all(|text| level(text) || is_within(text, &new));
    let loosens = |text: &str| text.lines().map(|line| LOOSENS.find_iter(line).count()).sum::<usize>();
    let added: Vec<&str> = file.lines(LineChange::Added).filter(real).collect();
    no_loss
        && !added.is_empty()
        && loosens(&new) <= loosens(&old)
        && commands::narrows(&new) <= commands::narrows(&old)
        && added.iter().all(|line| DEMANDS.is_match(line) || old.lines().any(|old| grows(old, line)))
}

/// Whether a command is still contained in the new line as a part of a longer command, so that it still runs.
fn is_within(literal: &str, new: &str) -> bool {
    let command = literal.trim_matches('"');
    literal.starts_with('"')
        && !command.is_empty()
        && new.split('"').any(|text| {
            let mut parts = text.split("&&").map(str::trim);
            parts.any(|part| part == command || part.strip_prefix(command).is_some_and(|rest| rest.starts_with(" --")))
        })
}

/// Whether the new line is the old one with text added at its end. A longer path is narrower.
fn grows(old: &str, new: &str) -> bool {
    let plain = |line: &str| line.trim().trim_end_matches([',', ']', '}', ')', '"']).to_owned();
    plain(new).strip_prefix(&plain(old)).is_some_and(|rest| !rest.starts_with(['/', '.', ':']))
}

/// Reports builds with fewer packages, modules or cases: members of a workspace, included projects, items of a loop.
pub(super) fn fewer_parts(file: &FileDiff, diff: &DiffSummary, findings: &mut Findings) {
    pattern!(
        WORKSPACE,
        r#"^\s*(?:(?:members|default-members)\s*=\s*\[)?\s*(?:"[^"]+"\s*,?\s*)+\]?\s*(?:#.*)?$|^\s*members\s*=\s*\[\s*\]"#
    );
    pattern!(SETTINGS, r#"^\s*include(?:Build|Flat)?\b|^\s*['"]:?[\w:./-]+['"]\s*[,)]?\s*$"#);
    pattern!(MODULE, r"<module>[^<]+</module>");
    pattern!(FOREACH, r"(?i)^\s*foreach\s*\(|^\s*set\s*\(\s*\w*(?:test|case|suite)\w*\s");
    pattern!(QUOTED, r#"["']([^"']+)["']|<module>\s*([^<]+?)\s*</module>"#);
    pattern!(WORD, r"[\w./-]+");
    if file.is_new() || file.is_deleted() {
        return;
    }
    let name = file.path().rsplit('/').next().unwrap_or_default();
    let (line_of, item): (&regex::Regex, &regex::Regex) = match name {
        "Cargo.toml" => (&WORKSPACE, &QUOTED),
        "settings.gradle" | "settings.gradle.kts" => (&SETTINGS, &QUOTED),
        "pom.xml" => (&MODULE, &QUOTED),
        "CMakeLists.txt" => (&FOREACH, &WORD),
        _ => return,
    };
    let mut lists = (Vec::new(), Vec::new());
    for hunk in &file.hunks {
        // Cargo has such lists of features and targets as well.
        let mut other = false;
        for line in &hunk.lines {
            if name == "Cargo.toml" && line.text.contains('=') {
                other = !line.text.contains("members");
            }
            let side = match line.change {
                LineChange::Removed => &mut lists.0,
                LineChange::Added => &mut lists.1,
                LineChange::Context => continue,
            };
            if !other && line_of.is_match(&line.text) {
                for found in item.captures_iter(&line.text) {
                    let text = found.iter().skip(1).flatten().next().or_else(|| found.get(0));
                    side.extend(text.map(|text| (line.number, text.as_str().to_owned())));
                }
            }
        }
    }
    let (old, new): (Vec<(u32, String)>, Vec<(u32, String)>) = lists;
    let remaining: HashSet<&str> = new.iter().map(|(_, item)| item.as_str()).collect();
    let gone: Vec<&(u32, String)> = old.iter().filter(|(_, item)| !remaining.contains(item.as_str())).collect();
    if gone.is_empty() || new.len() >= old.len() {
        return;
    }
    let names: Vec<&str> = gone.iter().map(|(_, item)| item.as_str()).collect();
    // With its files gone, a part is removed and not left out.
    let deleted = names.iter().all(|name| diff.deletes(name.rsplit([':', '/']).next().unwrap_or(name)));
    let evidence = format!("no longer built or run: {}", names.join(", "));
    if !deleted {
        findings.add(file.path(), Some(gone[0].0), TamperKind::CheckConfigEdited, &evidence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::trust::tamper::diff::parse;

    fn edit(path: &str, body: &str) -> FileDiff {
        let old = body.lines().filter(|line| !line.starts_with('+')).count();
        let new = body.lines().filter(|line| !line.starts_with('-')).count();
        parse(&format!("--- a/{path}\n+++ b/{path}\n@@ -1,{old} +1,{new} @@\n{body}\n")).remove(0)
    }

    #[test]
    fn configuration_that_only_demands_more_is_stricter() {
        for (path, body) in [
            (".eslintrc.json", "-  \"rules\": {}\n+  \"rules\": { \"no-unused-vars\": \"error\" }"),
            (".eslintrc.json", "-  \"eqeqeq\": \"warn\"\n+  \"eqeqeq\": \"error\""),
            ("ruff.toml", "+select = [\"E\", \"F\"]"),
            ("tox.ini", "-envlist = py311\n+envlist = py311, py312"),
            ("package.json", "-    \"test\": \"jest\"\n+    \"test\": \"jest --coverage && eslint .\""),
            ("Makefile", "-test:\n-\tpytest\n+test: build\n+\tpytest -v"),
        ] {
            assert!(is_stricter(&edit(path, body)), "{path}: {body}");
        }
        for (path, body) in [
            (".eslintrc.json", "-  \"eqeqeq\": \"error\"\n+  \"eqeqeq\": \"off\""),
            (".eslintrc.json", "+  \"ignorePatterns\": [\"src\"]"),
            ("ruff.toml", "-select = [\"E\", \"F\"]\n+select = [\"E\"]"),
            ("tox.ini", "-envlist = py311, py312\n+envlist = py311"),
            ("package.json", "-    \"test\": \"jest\"\n+    \"test\": \"jest || true\""),
            ("package.json", "-    \"test\": \"jest\"\n+    \"test\": \"jest --passWithNoTests\""),
            ("package.json", "-    \"test\": \"jest\"\n+    \"test\": \"echo jest\""),
            ("package.json", "-    \"test\": \"jest\"\n+    \"test\": \"true\""),
            ("Makefile", "-test:\n-\tpytest\n+test:\n+\tpytest -k fast"),
            ("Makefile", "-test:\n-\tpytest\n+test:\n+\t-pytest"),
            ("jest.config.js", "+  testPathIgnorePatterns: ['src'],"),
            ("jest.config.js", "-\n+  bail: 1,"),
        ] {
            assert!(!is_stricter(&edit(path, body)), "{path}: {body}");
        }
    }
}
