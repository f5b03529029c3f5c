//! Parses the output of failed commands for lines that state the cause, missing dependencies, and failed network access.

use std::sync::LazyLock;

use regex::Regex;

/// Maximum number of shown output lines.
const MOST_LINES: usize = 6;
/// Maximum length of a shown line, in characters.
const MOST_CHARACTERS: usize = 300;

/// Lines in which shells, package managers, compilers and interpreters state a cause.
static CAUSE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:error|fatal|failed|failure|cannot|could not|couldn't|can't|unable to|not found|no such|denied|refused|missing|unsupported|invalid|conflict|timed out|exception|panicked|killed|no space left|requires?)\b|\berr!|(?-i:\b(?:[A-Z]\w*(?:Error|Exception)|ENOENT|EACCES|EAI_AGAIN|ECONNREFUSED|ENETUNREACH)\b)",
    )
    .expect("constant pattern")
});
/// Lines that resemble a cause but only refer to another line.
static NOISE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^(?:npm (?:err!|error) )?(?:a complete log of this run|.*debug-\d+\.log|log files? were not written|for (?:more|a full)|see .* for|note: this error originates|hint: see|require stack:|.*\b0 (?:errors?|failed)\b)|^npm (?:warn|notice)|deprecat|^\s*at .*:\d+:\d+\)?$|^(?:warning|warn)\b",
    )
    .expect("constant pattern")
});
/// Failed attempts to reach a server.
static OFFLINE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)could(?: not|n't) resolve host|temporary failure in name resolution|name or service not known|nodename nor servname|getaddrinfo|(?-i:\b(?:EAI_AGAIN|ENOTFOUND|ENETUNREACH|ECONNREFUSED)\b)|network is unreachable|no route to host|dial tcp|connection refused|failed to (?:download|fetch) .*(?:https?://|from registry|index)|failed to establish a new connection|max retries exceeded with url|unable to update registry|failed to connect to|could not connect to|could not (?:fetch|reach) (?:specs|https?://)|tunneling socket could not be established|connect tunnel failed|403 forbidden from proxy|unknownhostexception|could not transfer artifact|httperror: 403|network failure|are you offline|if you are behind a proxy",
    )
    .expect("constant pattern")
});
/// Missing programs and modules.
static MISSING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)command not found|: not found$|cannot find (?:module|package|type definition)|err_module_not_found|no module named|modulenotfounderror|cannot load such file|could not find (?:gem|\S+-\d)|bundler: |could not find (?:hex|an scm)|vendor/autoload\.php|no required module provides package|missing go\.sum entry|unresolved import|can't find crate|no matching package named|failed to get .* as a dependency|the following dependencies .*(?:missing|not installed)|node_modules.*(?:missing|not found|does ?n.t exist)|unchecked dependencies|could not find .* in (?:any|the) (?:of the )?sources|package .* is not (?:installed|in std)",
    )
    .expect("constant pattern")
});

/// Returns the output lines that state why a command failed, in order, at most six; the last lines if no line states a
/// cause.
pub fn decisive_lines(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().map(str::trim_end).filter(|line| !line.trim().is_empty()).collect();
    let mut decisive: Vec<&str> = Vec::new();
    for line in lines.iter().copied().filter(|line| CAUSE.is_match(line) && !NOISE.is_match(line)) {
        if !decisive.iter().any(|known| known.trim() == line.trim()) {
            decisive.push(line);
        }
    }
    if decisive.is_empty() {
        decisive = lines[lines.len().saturating_sub(3)..].to_vec();
    }
    // The first lines state the cause, and the last line often contains a summary.
    if decisive.len() > MOST_LINES {
        let last = decisive[decisive.len() - 1];
        decisive.truncate(MOST_LINES - 1);
        decisive.push(last);
    }
    decisive.into_iter().map(|line| line.trim().chars().take(MOST_CHARACTERS).collect()).collect()
}

/// Returns the output line that reports an unreachable server; `None` if there is none.
pub fn needs_network(output: &str) -> Option<&str> {
    output.lines().map(str::trim).find(|line| OFFLINE.is_match(line))
}

/// Returns the output line that reports a missing program, module or package; `None` if there is none.
pub fn missing_dependency(output: &str) -> Option<&str> {
    let lines = || output.lines().map(str::trim);
    lines().find(|line| MISSING.is_match(line)).or_else(|| needs_network(output))
}
