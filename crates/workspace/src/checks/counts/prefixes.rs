//! Prefixes with which tools mark the lines of packages, processes and times: concurrently, npm-run-all, lerna, yarn, pnpm,
//! Turborepo, Docker Compose, foreman, Earthly, GitHub Actions and act.

use std::collections::HashMap;

use super::pattern;

// `[api] `, `[@scope/a]: `, `api-1  | `, `  +test | `, `│ `, `packages/a test: `, `@scope/a:test: `. Log levels are not packages.
pattern!(PREFIX, r"^(?:\[[^\]\n]{1,80}\]:? ?| *[^\s|│]{0,80} *[|│] ?|\S{1,80}?(?: [^\s:]{1,40})??: )");
pattern!(LEVEL, r"(?i)^\[? *(?:info|warn(?:ing)?|error|debug|trace)\b");
// `2026-01-31T12:00:00.0000000Z `, `[12:00:00] `, `12:00:00.123 `, `#12 0.345 `
pattern!(TIME, r"^(?:\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?|#\d+ \d+\.\d+) ?");
/// Minimum number of lines with the same prefix.
const MIN_LINES: usize = 2;
/// Maximum number of prefixes, those with the most lines.
const MAX_PREFIXES: usize = 64;

/// Removes the times at the start of lines, if at least two thirds of the lines have one.
pub(super) fn without_times(output: &str) -> Option<String> {
    let lines = || output.lines().filter(|line| !line.trim().is_empty());
    let timed = lines().filter(|line| TIME.is_match(line)).count();
    (timed >= MIN_LINES && timed * 3 >= lines().count() * 2).then(|| TIME.replace_all(output, "").into_owned())
}

/// Returns the lines of each prefix that several lines have, with the prefix removed, in the order of the prefixes' first lines.
pub(super) fn groups(output: &str) -> Vec<(&str, String)> {
    let mut sizes: HashMap<&str, (usize, usize)> = HashMap::new();
    for (at, line) in output.lines().enumerate() {
        if let Some(prefix) = of(line) {
            sizes.entry(prefix).or_insert((at, 0)).1 += 1;
        }
    }
    let mut common: Vec<_> = sizes.into_iter().filter(|(_, (_, lines))| *lines >= MIN_LINES).collect();
    common.sort_by_key(|(_, (at, lines))| (std::cmp::Reverse(*lines), *at));
    common.truncate(MAX_PREFIXES);
    common.sort_by_key(|(_, (at, _))| *at);
    let text = |prefix: &str| {
        let own = output.lines().filter(|line| has(line, prefix));
        own.fold(String::new(), |text, line| text + line.get(prefix.len()..).unwrap_or_default() + "\n")
    };
    common.into_iter().map(|(prefix, _)| (prefix, text(prefix))).collect()
}

/// Returns the lines without any of the prefixes.
pub(super) fn without(output: &str, prefixes: &[&str]) -> String {
    let others = output.split_inclusive('\n').filter(|line| !prefixes.iter().any(|prefix| has(line, prefix)));
    others.collect()
}

fn of(line: &str) -> Option<&str> {
    let prefix = PREFIX.find(line)?.as_str();
    (prefix.ends_with(' ') && !LEVEL.is_match(prefix)).then_some(prefix)
}

/// Whether a line has the prefix. An empty line has lost the blank at the end of it.
fn has(line: &str, prefix: &str) -> bool {
    line.starts_with(prefix) || line.trim_end() == prefix.trim_end()
}
