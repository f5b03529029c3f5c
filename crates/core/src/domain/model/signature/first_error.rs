//! Finds the first error in the output of a failing check. Supports the formats of compilers, linters and test runners.

use std::sync::LazyLock;

use regex::RegexSet;

use super::{cut, normalize, without_ansi};

/// Number of bytes read at the start and at the end of an output. The middle of a longer output is skipped.
const MAX_END: usize = 1024 * 1024;
/// Maximum number of bytes read from a line.
const MAX_LINE: usize = 500;
/// Maximum number of lines after an error to search for the rest of its message.
const MAX_AHEAD: usize = 4;

/// Maximum number of errors returned for one output.
const MAX_ERRORS: usize = 40;

/// Role of a line in the search for errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineRole {
    /// Resembles an error but is not one: totals, hints, passed tests.
    Noise,
    /// Names the test of the following errors.
    TestHeading,
    /// Names the file of the following findings.
    FileHeading,
    /// Error in the file of the last file heading.
    Finding,
    /// Error in the test of the last test heading.
    InTest,
    /// Complete error on one line.
    Error,
    /// Error whose location is on the next line (`-->`).
    Placed,
    /// Failure whose message is on the next line.
    Failure,
    /// Failing Go test. Its message is indented below, after its subtests' messages.
    GoFailure,
    /// Possible error, used only if no certain error is found.
    Suspect,
}

/// Patterns of lines, most specific first. The first match determines the role.
const FORMS: [(LineRole, &str); 20] = [
    (LineRole::Noise, r"(?:\.\.\. |: )ok$|^\s*(?:warning|note|help|hint)\b|^(?:test result|running \d+ tests?)\b"),
    (
        LineRole::Noise,
        r"^\[ERROR\]\s*(?:$|Tests run:|COMPILATION ERROR|Failures:|Errors:|Failed to execute|\[Help|To see|Re-run|For more|See |->)",
    ),
    (
        LineRole::Suspect,
        r"^error: (?:test (?:run )?failed|could not compile|aborting due|\d+ targets? failed|process didn't)",
    ),
    (LineRole::TestHeading, r"^_{3,} \S.* _{3,}$|^(?:FAIL|ERROR): \w+ \(.+\)$|^\s*FAIL\s+\S.* > "),
    (LineRole::FileHeading, r"^(?:/|[A-Za-z]:\\|[\w.-]+/)?\S+\.(?:[cm]?[jt]sx?|vue|svelte)$"),
    (LineRole::Finding, r"^\s+\d+:\d+\s+error\s"),
    (LineRole::InTest, r"^E\s{2,}\S"),
    (LineRole::Failure, r"^\s{0,4}thread '.*panicked at .*:$"),
    (LineRole::Error, r"^\s{0,4}thread '.*panicked at "),
    (LineRole::Noise, r"^\s*● Console$"),
    (LineRole::Failure, r"^\s*● \S"),
    (LineRole::GoFailure, r"^\s*--- FAIL: "),
    (LineRole::Failure, r"^\[ERROR\] .*<<< (?:FAILURE|ERROR)!"),
    (LineRole::Error, r"^\[ERROR\] |^panic: |^e: |^not ok \d+"),
    (LineRole::Placed, r"^error(?:\[E\d+\])?: "),
    (LineRole::Error, r"^\S+?\.\w+[:(]\d+(?:[:,]\d+)*\)?(?::| -)\s+(?:fatal )?error\b"),
    (LineRole::Error, r"^\S+\.go:\d+:\d+: |^\S+\.py:\d+:\d+: [A-Z]+\d+ "),
    (LineRole::Noise, r"(?i)\b(?:0|no) (?:errors?|fail\w*|problems?)\b"),
    (LineRole::InTest, r"^\s{0,6}(?:Uncaught )?(?:[\w$]+\.)*(?:[A-Z]\w*)?(?:Error|Exception)\b(?: \[\w+\])?(?::|$)"),
    (
        LineRole::Suspect,
        r"(?i)\b(?:error|fail(?:ed|ure|ing|s)?|fatal|panic(?:ked)?|exception|cannot|undefined|unresolved|not found|no such|denied|refused|timed? ?out|segmentation fault|killed|aborted)\b",
    ),
];

static SET: LazyLock<RegexSet> =
    LazyLock::new(|| RegexSet::new(FORMS.iter().map(|(_, pattern)| pattern)).expect("constant patterns"));

/// Returns the first error in the output of a failed check, normalized, with its test or file. `None` if no line looks like
/// an error. If the output exceeds 2 MiB, reads its first and last MiB.
pub fn first_error(output: &str) -> Option<String> {
    if output.len() <= 2 * MAX_END {
        let (sure, suspect) = search(output);
        return sure.or(suspect);
    }
    let (sure, suspect) = search(cut(output, MAX_END));
    sure.or_else(|| {
        let tail = &output[output.ceil_char_boundary(output.len() - MAX_END)..];
        let (sure, late) = search(tail);
        sure.or(suspect).or(late)
    })
}

/// Returns the distinct certain errors in the output of a failed check, in order, at most 40. Each is normalized and
/// includes its test or file. If the output exceeds 2 MiB, reads only its first MiB.
pub fn error_lines(output: &str) -> Vec<String> {
    let text = if output.len() <= 2 * MAX_END { output } else { cut(output, MAX_END) };
    let mut lines = Vec::new();
    for line in CertainErrors::of(text) {
        if lines.len() >= MAX_ERRORS {
            break;
        }
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Returns the first certain error, and the first possible error before it.
fn search(text: &str) -> (Option<String>, Option<String>) {
    let mut errors = CertainErrors::of(text);
    let sure = errors.next();
    (sure, errors.suspect)
}

/// Iterator over the certain errors of a text, in order and normalized.
struct CertainErrors<'t> {
    rest: &'t str,
    test: Option<String>,
    file: Option<String>,
    /// First possible error up to the current position.
    suspect: Option<String>,
}

impl<'t> CertainErrors<'t> {
    fn of(text: &'t str) -> Self {
        Self { rest: text, test: None, file: None, suspect: None }
    }
}

impl Iterator for CertainErrors<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        while let Some((line, after)) = next_line(self.rest) {
            self.rest = after;
            let line = visible(line);
            let sure = match kind_of(&line) {
                None | Some(LineRole::Noise) => continue,
                Some(LineRole::TestHeading) => {
                    self.test = Some(line.into_owned());
                    continue;
                }
                Some(LineRole::FileHeading) => {
                    self.file = Some(line.into_owned());
                    continue;
                }
                Some(LineRole::Suspect) => {
                    if self.suspect.is_none() {
                        self.suspect = Some(normalize(&line));
                    }
                    continue;
                }
                Some(LineRole::Finding) => joined(self.file.as_deref(), &line),
                Some(LineRole::InTest) => joined(self.test.as_deref(), &line),
                Some(LineRole::Error) => line.into_owned(),
                Some(LineRole::Placed) => match ahead(after, 1).next() {
                    Some(place) if place.trim_start().starts_with("-->") => joined(Some(&line), &place),
                    _ => line.into_owned(),
                },
                Some(LineRole::Failure) => match ahead(after, MAX_AHEAD).next() {
                    Some(message) => joined(Some(&line), &message),
                    None => line.into_owned(),
                },
                Some(LineRole::GoFailure) => go_failure(line.into_owned(), after),
            };
            return Some(normalize(&sure));
        }
        None
    }
}

/// Returns a failing Go test with its message. For nested tests, returns the innermost one.
fn go_failure(mut failure: String, rest: &str) -> String {
    for line in ahead(rest, MAX_AHEAD) {
        if kind_of(&line) == Some(LineRole::GoFailure) {
            failure = line;
        } else if line.trim_start().starts_with("--- ") {
            // Another subtest, which passed or was skipped.
        } else if line.starts_with([' ', '\t']) {
            return joined(Some(&failure), &line);
        } else {
            break;
        }
    }
    failure
}

fn joined(first: Option<&str>, second: &str) -> String {
    match first {
        Some(first) => format!("{} {}", first.trim_matches([' ', '_']), second.trim()),
        None => second.trim().to_owned(),
    }
}

/// Returns the next non-blank lines among at most `lines` lines.
fn ahead(text: &str, lines: usize) -> impl Iterator<Item = String> {
    let mut rest = text;
    let next = move || {
        let (line, after) = next_line(rest)?;
        rest = after;
        Some(visible(line).into_owned())
    };
    std::iter::from_fn(next).take(lines).filter(|line| !line.trim().is_empty())
}

fn next_line(text: &str) -> Option<(&str, &str)> {
    if text.is_empty() { None } else { Some(text.split_once('\n').unwrap_or((text, ""))) }
}

/// Returns a line as displayed by a terminal: without colors, and only the part after the last carriage return.
fn visible(line: &str) -> std::borrow::Cow<'_, str> {
    let line = line.trim_end();
    let line = line.rsplit_once('\r').map_or(line, |(_, last)| last);
    without_ansi(cut(line, MAX_LINE))
}

fn kind_of(line: &str) -> Option<LineRole> {
    SET.matches(line).iter().next().map(|form| FORMS[form].0)
}
