//! Assertions as complete statements before and after a change: calls over several lines, chains of matchers, and conditions
//! under which a test fails.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

use super::blocks::{TestFile, TestLine, indent};
use super::code_tokens::Difference;
use super::diff::LineChange;

/// Maximum number of lines in a statement.
const MAX_LINES: usize = 40;
/// Maximum distance, in lines, between the two versions of a statement.
const REACH: usize = 60;
/// Minimum similarity of two versions of a statement, 0..1.
const ALIKE: f64 = 0.35;

/// Assertion on one side of a change.
pub(super) struct Statement<'a> {
    /// Text of all its lines, joined by spaces.
    pub text: String,
    /// 1-based number of its first changed line, or of its first line if none changed.
    pub number: u32,
    /// Index of its first line.
    pub at: usize,
    /// Index of its last line.
    pub end: usize,
    pub first: &'a TestLine<'a>,
    /// Whether one of its lines changed.
    pub changed: bool,
    /// Text without spaces and trailing commas.
    normal: String,
}

/// Changed assertions of a file.
pub(super) struct Statements<'a> {
    /// Assertions that were removed, each with the index of its new version in `new`.
    pub old: Vec<(Statement<'a>, Option<usize>)>,
    /// Assertions that were added.
    pub new: Vec<Statement<'a>>,
    /// For each line of the file, whether it belongs to an assertion before or after the change.
    pub covered: Vec<bool>,
}

impl<'a> Statements<'a> {
    pub fn of(tests: &'a TestFile<'a>) -> Self {
        let mut covered = vec![false; tests.lines.len()];
        let old = side(tests, LineChange::Added, &mut covered);
        let new = side(tests, LineChange::Removed, &mut covered);
        let mut remaining: HashMap<String, usize> = HashMap::new();
        new.iter().filter(|new| new.changed).for_each(|new| *remaining.entry(new.normal.clone()).or_default() += 1);
        let mut same: HashMap<String, usize> = HashMap::new();
        let stays = |old: &Statement<'_>| match remaining.get_mut(&old.normal) {
            Some(count) if *count > 0 => {
                *count -= 1;
                *same.entry(old.normal.clone()).or_default() += 1;
                true
            }
            _ => false,
        };
        let mut is_kept = stays;
        let old: Vec<Statement<'_>> = old.into_iter().filter(|old| old.changed && !is_kept(old)).collect();
        let came = |new: &Statement<'_>| match same.get_mut(&new.normal) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        };
        let mut is_new = came;
        let new: Vec<Statement<'_>> = new.into_iter().filter(|new| new.changed && is_new(new)).collect();
        let pairs = pair(tests, &old, &new);
        Self { old: old.into_iter().zip(pairs).collect(), new, covered }
    }
}

/// Parses the assertions on one side of a change. `hidden` is the role of the lines that are only on the other side.
fn side<'a>(tests: &'a TestFile<'a>, hidden: LineChange, covered: &mut [bool]) -> Vec<Statement<'a>> {
    let visible: Vec<usize> = (0..tests.lines.len()).filter(|at| tests.lines[*at].change != hidden).collect();
    let mut statements = Vec::new();
    let mut place = 0;
    while place < visible.len() {
        let line = &tests.lines[visible[place]];
        if !(tests.language.asserts(line.text) || tests.language.holds_always(line.text)) || !tests.is_about_tests(line)
        {
            place += 1;
            continue;
        }
        let condition = place > 0 && is_condition_of(&tests.lines[visible[place - 1]], line);
        let first = if condition { place - 1 } else { place };
        let last = end_of(tests, &visible, place);
        let lines = &visible[first..=last];
        lines.iter().for_each(|at| covered[*at] = true);
        let text: Vec<&str> = lines.iter().map(|at| without_comment(tests.lines[*at].text)).collect();
        let text = text.join(" ");
        let changed = lines.iter().map(|at| &tests.lines[*at]).find(|line| line.change != LineChange::Context);
        statements.push(Statement {
            number: changed.unwrap_or(line).number,
            at: visible[first],
            end: visible[last],
            first: line,
            changed: changed.is_some(),
            normal: normal(&text),
            text,
        });
        place = last + 1;
    }
    statements
}

/// Returns a line without surrounding white space and without a trailing comment.
pub(super) fn without_comment(text: &str) -> &str {
    let text = text.trim();
    match [" // ", "  # "].iter().filter_map(|mark| text.find(mark)).min() {
        Some(at) if text[..at].matches(['"', '\'', '`']).count().is_multiple_of(2) => text[..at].trim_end(),
        _ => text,
    }
}

/// Returns a statement in normalized form: without white space and trailing commas, and with uniform quotes.
pub(super) fn normal(text: &str) -> String {
    if text.contains("\"\"\"") || text.contains('`') {
        return text.to_owned();
    }
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    text.replace(",)", ")")
        .replace(",]", "]")
        .replace(",}", "}")
        .replace('\'', "\"")
        .trim_end_matches([',', ';'])
        .to_owned()
}

/// Whether a line is the condition for a failure in the next line.
fn is_condition_of(line: &TestLine<'_>, next: &TestLine<'_>) -> bool {
    static CONDITION: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^\s*(?:\}\s*else\s+)?(?:if|unless|elif)\b|^\s*\[\[?\s").expect("constant pattern")
    });
    static FAILURE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)^\s*(?:\w+(?:\.|::|->))*(?:error|errorf|fatal|fatalf|fail\w*|panic!?|throw|raise|die|exit|return|flunk)\b")
            .expect("constant pattern")
    });
    line.hunk == next.hunk
        && indent(line.text) < indent(next.text)
        && CONDITION.is_match(line.text)
        && FAILURE.is_match(next.text)
}

/// Returns the index in `visible` of the last line of the statement that begins at index `place`.
fn end_of(tests: &TestFile<'_>, visible: &[usize], place: usize) -> usize {
    let hunk = tests.lines[visible[place]].hunk;
    let mut depth = 0;
    let mut last = place;
    for at in place..visible.len().min(place + MAX_LINES) {
        let line = &tests.lines[visible[at]];
        let text = line.text.trim();
        if line.hunk != hunk || text.is_empty() {
            break;
        }
        let chained = text.starts_with(['.', '&', '|', '+', '='])
            || text.starts_with("->")
            || text.starts_with("?.")
            || text.starts_with("and ")
            || text.starts_with("or ")
            || text.starts_with("<<");
        let open = at == place
            || depth > 0
            || chained
            || tests.lines[visible[at - 1]].text.trim_end().ends_with(['\\', ',', '=', '|', '&']);
        if !open {
            break;
        }
        depth += balance(text);
        last = at;
        // A block that opens here holds statements of its own.
        let object = ["({", "[{", ", {", ": {", "= {", "{{"].iter().any(|end| text.ends_with(end)) || text == "{";
        if depth > 0
            && (text.ends_with('{') && !object || text.ends_with(" do") || text.ends_with('|') || text.ends_with("=>"))
        {
            break;
        }
    }
    last
}

/// Returns the number of brackets that a line opens minus those that it closes, ignoring strings.
pub(super) fn balance(text: &str) -> i32 {
    let (mut depth, mut quoted, mut escaped) = (0, None, false);
    for c in text.chars() {
        match (quoted, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(quote), _) if quote == c => quoted = None,
            (None, '"' | '`') => quoted = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            _ => {}
        }
    }
    depth
}

/// Finds the new version of each removed assertion: the most similar one nearby in the same test. Returns its index, or `None`.
fn pair(tests: &TestFile<'_>, old: &[Statement<'_>], new: &[Statement<'_>]) -> Vec<Option<usize>> {
    let mut taken = vec![false; new.len()];
    let mut pairs = vec![None; old.len()];
    let mut begin = 0;
    for (at, statement) in old.iter().enumerate() {
        while begin < new.len() && new[begin].end + REACH < statement.at {
            begin += 1;
        }
        let near = (begin..new.len()).take_while(|at| new[*at].at <= statement.end + REACH).take(REACH);
        let fits: Vec<usize> =
            near.filter(|other| !taken[*other] && same_test(tests, statement, &new[*other])).collect();
        let only =
            fits.len() == 1 && old.iter().skip(at + 1).take(2).all(|next| !same_test(tests, next, &new[fits[0]]));
        let best = fits
            .iter()
            .map(|other| (*other, Difference::between(&statement.text, &new[*other].text).similarity))
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        if let Some((other, similarity)) = best
            && (similarity >= ALIKE || only)
        {
            taken[other] = true;
            pairs[at] = Some(other);
        }
    }
    pairs
}

/// Whether two versions belong to the same test, or to a test and its replacement.
fn same_test(tests: &TestFile<'_>, old: &Statement<'_>, new: &Statement<'_>) -> bool {
    let block = |side: Option<usize>, blocks: &[super::blocks::TestBlock]| side.map(|at| blocks[at].other);
    if old.first.hunk != new.first.hunk {
        return false;
    }
    match (block(old.first.old, &tests.old), block(new.first.new, &tests.new)) {
        (Some(Some(other)), Some(_)) => new.first.new == Some(other),
        (Some(None), Some(None)) | (None, None) => true,
        (Some(None) | None, Some(Some(_))) | (Some(_), None) | (None, Some(None)) => false,
    }
}
