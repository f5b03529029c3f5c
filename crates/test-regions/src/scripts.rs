//! Scripts with tests that run when the file itself is started: Perl, Tcl, Lua, R and shells. The parser reads lines, because the
//! strings and patterns of these languages have no simple tokens.

use std::ops::Range;

use crate::RegionKind;
use crate::scan::{FileScan, ProgramItem, has_any, text_start};

/// Words of code that makes assertions.
const ASSERTIONS: [&str; 13] = [
    "assert",
    "ok(",
    "ok ",
    "is(",
    "is->",
    "is_deeply",
    "like(",
    "fail",
    "FAIL",
    "test",
    "Test",
    "expect",
    "stopifnot",
];
/// Words of code that ends with an error, and of comparisons. Together they make assertions.
const ENDS: [&str; 5] = ["exit", "die", "error", "return 1", "stop("];
const COMPARISONS: [&str; 8] = ["!=", "~=", " ne ", "==", " eq ", " -ne ", " = ", "unless"];
/// Words of scripts that run their own tests.
const RUNNERS: [&str; 6] = ["self_test", "selftest", "self-test", "run_tests", "--test", "Test::More"];
/// Functions of `Test::More`.
const TEST_MORE: [&str; 13] = [
    "ok",
    "is",
    "isnt",
    "like",
    "unlike",
    "is_deeply",
    "cmp_ok",
    "done_testing",
    "plan",
    "can_ok",
    "isa_ok",
    "pass",
    "fail",
];

/// Rules of a language.
pub(crate) struct ScriptRules {
    /// Whether a line starts a block that runs only if the file itself is started.
    starts: fn(&str) -> bool,
    /// Returns the name of the function that starts in a line.
    function: fn(&str) -> Option<&str>,
    /// Start of the line that ends a block.
    end: &'static str,
    /// End of a function, if it differs.
    function_end: &'static str,
    /// Whether the file may contain statements of `Test::More`.
    has_test_more: bool,
}

pub(crate) const PERL: ScriptRules = ScriptRules {
    starts: |line| {
        let condition = ["unless", "if"].iter().find_map(|word| line.strip_prefix(word)).unwrap_or_default();
        let condition: String = condition.chars().filter(|c| !c.is_whitespace()).collect();
        ["(caller", "(!caller", "(notcaller", "(!defined", "(defined"].iter().any(|start| condition.starts_with(start))
            && condition.contains("caller")
    },
    function: |line| line.strip_prefix("sub ").map(name),
    end: "}",
    function_end: "}",
    has_test_more: true,
};

pub(crate) const TCL: ScriptRules = ScriptRules {
    starts: |line| line.starts_with("if ") && line.contains("argv0"),
    function: |line| line.strip_prefix("proc ").map(name),
    end: "}",
    function_end: "}",
    has_test_more: false,
};

pub(crate) const LUA: ScriptRules = ScriptRules {
    starts: |line| line.starts_with("if ") && has_any(line, &["arg[0]", "debug.getlocal", "not ...", "... =="]),
    function: |line| line.strip_prefix("local ").unwrap_or(line).strip_prefix("function ").map(name),
    end: "end",
    function_end: "end",
    has_test_more: false,
};

pub(crate) const R: ScriptRules = ScriptRules {
    starts: |line| line.starts_with("if") && has_any(line, &["sys.nframe()", "interactive()", "globalenv()"]),
    function: |line| line.split_once("<- function").map(|(start, _)| name(start)),
    end: "}",
    function_end: "}",
    has_test_more: false,
};

pub(crate) const SHELL: ScriptRules = ScriptRules {
    starts: |line| line.starts_with("if ") && line.contains("BASH_SOURCE") && line.contains('0'),
    function: |line| {
        let line = line.strip_prefix("function ").unwrap_or(line);
        let name = name(line);
        line[name.len()..].trim_start().starts_with("()").then_some(name)
    },
    end: "fi",
    function_end: "}",
    has_test_more: false,
};

/// Parses a file.
pub(crate) fn scan(source: &str, rules: &ScriptRules) -> FileScan {
    let mut scan = FileScan::new(source);
    let has_test_more = rules.has_test_more && has_any(source, &["Test::More", "Test2::"]);
    // Other scripts have functions such as `test_connection`, which are part of the program.
    let has_tests = has_any(source, &RUNNERS) || source.lines().any(rules.starts);
    let mut skip_to = text_start(source);
    let mut is_text = false;
    // Ends that occur nowhere after the current line.
    let mut missing: Vec<&str> = Vec::new();
    let mut at = 0;
    for line in source.split_inclusive('\n') {
        let start = at;
        at += line.len();
        if rules.has_test_more {
            if ["__END__", "__DATA__"].contains(&line.trim_end()) {
                break;
            }
            let is_mark = line.starts_with('=') && line[1..].starts_with(|c: char| c.is_ascii_alphabetic());
            let was_text = is_text;
            is_text = if is_mark { !line.starts_with("=cut") } else { is_text };
            if is_mark || was_text {
                continue;
            }
        }
        if start < skip_to || line.starts_with([' ', '\t', '#']) {
            continue;
        }
        let text = line.trim_end();
        let block = |end: &'static str, missing: &mut Vec<&str>| {
            let found = block(source, start, end, !missing.contains(&end));
            if found.is_none() && !missing.contains(&end) {
                missing.push(end);
            }
            found
        };
        let found = if (rules.starts)(text) {
            block(rules.end, &mut missing).map(|range| (range, "main", RegionKind::TestModule))
        } else if let Some(name) = (rules.function)(text) {
            block(rules.function_end, &mut missing).map(|range| (range, name, RegionKind::Test))
        } else if has_test_more && (TEST_MORE.contains(&name(text)) || text.starts_with("use Test")) {
            Some((statement(source, start), name(text), RegionKind::TestStart))
        } else {
            None
        };
        let Some((range, name, kind)) = found else { continue };
        skip_to = range.end;
        let body = &source[range.clone()];
        let is_test = match kind {
            RegionKind::Test => {
                has_tests && is_test_name(name) && body.split_once(name).is_some_and(|(_, body)| asserts(body))
            }
            RegionKind::TestModule => asserts(body),
            _ => true,
        };
        if is_test {
            scan.add_test(kind, ("", name.to_owned()), "", range);
        } else {
            scan.items.push(item(name, range));
        }
    }
    scan
}

fn is_test_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("test") || ["_test", "_tests", "selftest"].iter().any(|end| name.ends_with(end))
}

/// Whether code makes assertions.
fn asserts(code: &str) -> bool {
    has_any(code, &ASSERTIONS) || has_any(code, &ENDS) && has_any(code, &COMPARISONS)
}

fn item(name: &str, range: Range<usize>) -> ProgramItem {
    ProgramItem {
        path: name.to_owned(),
        parent: String::new(),
        condition: String::new(),
        outer: String::new(),
        complete: true,
        doc_at: None,
        inner_doc_at: None,
        end_at: None,
        number: 0,
        range,
    }
}

/// Returns the range of a block that starts at an offset at the start of a line; `None` if its end is missing. `has_end` is
/// false if no later line has the end.
fn block(source: &str, start: usize, end: &str, has_end: bool) -> Option<Range<usize>> {
    let ends = |text: &str| {
        let rest = text.strip_prefix(end);
        rest.is_some_and(|rest| end == "}" || !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let first = source[start..].lines().next()?.trim_end();
    let opens_later = || source[start..].lines().nth(1).is_some_and(|line| line.starts_with('{'));
    let is_whole = match end {
        "}" if first.contains('{') => first.ends_with('}'),
        "}" => !opens_later(),
        _ => first.rsplit([' ', ';']).next() == Some(end),
    };
    if is_whole {
        return Some(start..start + first.len());
    }
    if !has_end {
        return None;
    }
    let mut at = start;
    for line in source[start..].split_inclusive('\n') {
        let text = line.trim_end();
        if at > start && ends(text) {
            return Some(start..at + text.len());
        }
        at += line.len();
    }
    None
}

/// Returns the range of a statement that ends with a semicolon at the end of a line.
fn statement(source: &str, start: usize) -> Range<usize> {
    let end = source[start..].split_inclusive('\n').scan(start, |at, line| {
        *at += line.len();
        Some((line.trim_end(), *at - line.len() + line.trim_end().len()))
    });
    let mut last = start;
    for (text, end) in end.take(50) {
        last = end;
        if text.ends_with(';') {
            break;
        }
    }
    start..last
}

/// Returns the name at the start of a text.
fn name(text: &str) -> &str {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    &text[..text.find(|c| !is_part(c)).unwrap_or(text.len())]
}
