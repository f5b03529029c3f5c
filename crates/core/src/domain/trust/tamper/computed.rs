//! Expected values that are now computed by the program under test, and program code that contains values of tests.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::blocks::{TestFile, TestLine};
use super::code_tokens::{CodeTokens, Difference};
use super::diff::LineChange;
use super::language::Language;
use super::nearby::near;
use super::statements::Statement;
use super::summary::DiffSummary;
use super::{Findings, TamperKind};

/// Maximum number of lines after a variable that are searched for its comparison.
const REACH: usize = 40;
/// Maximum number of lines between a condition on several values and one of them.
const ARMS: usize = 20;

// A variable and what it is set to.
pattern!(
    ASSIGNED,
    r"^\s*(?:(?:let|const|var|auto|final|static|local|my|val|readonly|declare|mut|def)\s+)*(?:[A-Za-z_][\w:<>&*]*\s+)?[$@]?([A-Za-z_]\w*)(?:\s*:\s*[^=]+?)?\s*(?::=|=)([^=>~].*)$"
);
// A collection without elements, with some, and names of what is expected.
pattern!(
    EMPTY,
    r"^\s*(?:\[\s*\]|\{\s*\}|\(\s*\)|&\[\s*\]|\w+!\[\s*\]|(?:set|list|dict|tuple|array|Array|Map|Set)\(\s*\)|new\s+\w+(?:<.*>)?\(\s*(?:\[\s*\])?\)|(?:List|Set|Map|Stream|Arrays|Collections|vec|Vec)(?:\.|::)\w+\(\s*\)|\[\]\w+\{\s*\}|\[\d*\][\w.]+\{\s*\}|new\s+\w+(?:\[\s*\])+\s*\{\s*\}|nil|None|null|%w\[\s*\])\s*;?\s*$"
);
pattern!(COLLECTION, r"[\[{(].*\S");
pattern!(WANTED, r"(?i)want|expect|result|golden|answer|got|actual");
// Functions that any assertion or expectation may call.
pattern!(
    NOT_UNDER_TEST,
    r"(?i)^(?:\w*assert\w*|expect\w*|check\w*|require\w*|verify\w*|eq|is|to\w+|run|new|of|len|str|int|list|map|array)$"
);
// A table in program code that holds answers.
pattern!(
    ANSWERS,
    r"(?i)^\s*(?:(?:pub|static|const|let|var|private|public|final|readonly|export)\s+)*(?:[\w<>\[\], &':]+\s)?[$@]?_?\w*(?:known|answers?|expected|canned|hard_?coded|precomputed|golden|special_?cases?|fixtures?|overrides?)\w*\s*(?::[^=]+)?:?=\s*.*[\[{(]"
);
pattern!(CALLS, r"[A-Za-z_]\w*[!?]?\s*\(|\$\(|`[^`]+`|->\w+|\.\w+\s");
// Writes a file that holds what is expected.
pattern!(
    RECORDS,
    r#"(?i)(?:^|[^-=>])>{1,2}\s*["']?[^\s"'&|;]*(?:expect|golden|reference|baseline|snapshot|fixture|oracle|\.exp\b|\.ok\b|\.want\b|\.ref\b|\.good\b|\.approved|\$\{?(?:ref|exp|want|gold|good)\w*)|\|\s*tee\s+(?:-a\s+)?\S*(?:expect|golden|baseline|reference)|(?:^|\|\||&&|;|\bthen)\s*(?:cp|mv|install|ln)\s+\S.*\s\S*(?:expect|golden|reference|baseline|snapshot|oracle|\.exp\b|\.ok\b|\.want\b|\.ref\b|\.good\b|\$\{?(?:ref|exp|want|gold|good)\w*)\S*\s*(?:&&.*|\|\|.*)?$|\b(?:write\w*|put_contents|dump|save|copy\w*|rename)\w*[!?]?\(\s*[^)]*(?:expect|golden|reference|baseline|snapshot|approved)|\b(?:UPDATE|REGENERATE|BLESS|RECORD|OVERWRITE|ACCEPT)_?\w*\s*=\s*["']?(?:1|true|always|yes)|--(?:snapshot-update|update-?snapshots?|updateSnapshot|update-golden|bless|accept)\b|\b(?:update|regenerate|record|overwrite|bless)\w*\s*[:=]\s*(?:true|True|["']all|["']always|["']new_episodes)"#
);
// The same value of a comparison in which nothing can differ.
pattern!(
    OUTPUT_COMMENT,
    r"^\s*//\s*(?:[uU]nordered\s+)?[oO]utput:|^\s*(?:#|\*|//[/!]?)?\s*>>>\s|^\s*//[/!]\s*assert\w*!|^\s*#\s*=>\s"
);
// A condition on one value.
pattern!(
    ONE_VALUE,
    r#"^\s*(?:\}\s*)?(?:else\s+)?(?:if|elif|elsif|when|case|unless)\b.*(?:={2,3}|\.equals\(|\bis\b|\beq\b|strcmp\(|-eq|\bcase\s|\bwhen\s|\s=\s).*?(?:[bru]?["'][^"']{3,}["']|\b\d{2,}[\d_.]*|0x[\da-fA-F]{2,})|^\s*(?:case\s+)?(?:[bru]?["'][^"']{3,}["']|\d{3,}[\d_]*)\s*(?:=>|:)|^\s*["']?[\w .-]{4,}["']?\)\s|\bin\s+[\[({]\s*["'\d]|^\s*(?:\}\s*)?(?:else\s+)?if\b.*["'][^"']{2,}["']\.equals\("#
);
pattern!(
    GIVES_VALUE,
    r#"(?:\breturn\b|=>|->|\bSome\(|\bOk\(|\becho\b|\bprintf\b|\bthen\b|:\s)\s*\(?\s*(?:(?:new\s+)?[\w:]+\()?(?:\(\w[\w ]*\)\s*)?-?(?:[bru]?["'][^"']+["']|\d[\d_.]*\w*|0x[\da-fA-F]+|true|false|True|False|\[.*\]|\{.*\})(?:\[\w+\])?(?:,\s*(?:nil|null|None|true|0))?\s*\)*\s*[;,}]*\s*(?:;;|fi|end)?\s*$"#
);

/// Searches for expected values that a test now computes, and for program code that hard-codes values of tests.
pub(super) fn scan(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    if tests.file.is_deleted() || tests.file.is_new() {
        return;
    }
    let path = tests.file.path();
    let script = super::config_files::is_check_script(path);
    let mut first = 0;
    for group in tests.lines.chunk_by(|a, b| a.hunk == b.hunk && is_changed(a) && is_changed(b)) {
        if is_changed(&group[0]) {
            expected(tests, first..first + group.len(), diff, findings);
        }
        first += group.len();
    }
    for (at, line) in tests.lines.iter().enumerate().filter(|(_, line)| line.change == LineChange::Added) {
        if diff.had(line.text) {
            continue;
        }
        if tests.is_about_tests(line) || script {
            // A text that stands in the script itself is no output of the program.
            let literal = tests.language == Language::Shell && line.text.contains("<<");
            if RECORDS.is_match(line.text)
                && !literal
                && !tests.is_in_new_test(line)
                && !tests.language.is_comment(line.text)
            {
                let evidence = format!("writes what is expected: {}", line.text.trim());
                let weak = diff.changes_code && tests.language != Language::Shell;
                findings.add_graded(path, Some(line.number), TamperKind::ExpectationChanged, &evidence, weak);
            }
        }
        if !tests.is_about_tests(line) {
            known_value(tests, at, findings);
        }
    }
}

fn is_changed(line: &TestLine<'_>) -> bool {
    line.change != LineChange::Context
}

/// Reports variables that were literals and are now results of calls, and removed comments that state expected output, in a
/// range of adjacent changed lines.
fn expected(tests: &TestFile<'_>, range: Range<usize>, diff: &DiffSummary, findings: &mut Findings) {
    let path = tests.file.path();
    let is_read = |line: &TestLine<'_>| tests.is_about_tests(line) || OUTPUT_COMMENT.is_match(line.text);
    let group = tests.lines[range.clone()].iter().zip(range);
    let placed = |change| group.clone().filter(move |(line, _)| line.change == change && is_read(line));
    let of = |change| placed(change).map(|(line, _)| line);
    // Index of the first line that sets each variable, and its value.
    let mut given: HashMap<&str, (usize, &str)> = HashMap::new();
    for (new, at) in placed(LineChange::Added) {
        let found = ASSIGNED.captures(new.text);
        if let Some((name, value)) = found.and_then(|found| Some((found.get(1)?.as_str(), found.get(2)?.as_str()))) {
            given.entry(name).or_insert((at, value));
        }
    }
    fewer_returned(tests, &group.clone().map(|(line, _)| line).collect::<Vec<_>>(), findings);
    let states_output = of(LineChange::Added).any(|new| OUTPUT_COMMENT.is_match(new.text));
    for old in of(LineChange::Removed) {
        if OUTPUT_COMMENT.is_match(old.text) && !diff.has(old.text) && !states_output {
            let evidence = format!("expected output removed: {}", old.text.trim());
            findings.add_graded(path, Some(old.number), TamperKind::AssertionRemoved, &evidence, diff.changes_code);
        }
        let Some(was) = ASSIGNED.captures(old.text) else { continue };
        let Some((at, is)) = given.get(&was[1]).copied() else { continue };
        let new = &tests.lines[at];
        if CALLS.is_match(&was[2]) && is_compared_with_itself(tests, at, &was[1], is) {
            let evidence = format!("the result is a constant: {} -> {}", old.text.trim(), new.text.trim());
            findings.add(path, Some(new.number), TamperKind::CodeReplaced, &evidence);
            continue;
        }
        let values = CodeTokens::of(&was[2]);
        if values.literals.is_empty() || tests.language.asserts(old.text) {
            continue;
        }
        if EMPTY.is_match(is) && !EMPTY.is_match(&was[2]) && COLLECTION.is_match(&was[2]) && !WANTED.is_match(&was[1]) {
            let evidence = format!("no cases are left: {} -> {}", old.text.trim(), new.text.trim());
            findings.add_graded(path, Some(new.number), TamperKind::TestDeleted, &evidence, diff.changes_code);
            continue;
        }
        let now = CodeTokens::of(is);
        if CALLS.is_match(is) && !CALLS.is_match(&was[2]) && now.literals.len() <= values.literals.len() {
            let evidence = format!("the expected value is computed: {} -> {}", old.text.trim(), new.text.trim());
            findings.add_graded(path, Some(new.number), TamperKind::AssertionWeakened, &evidence, diff.changes_code);
        }
    }
}

/// Reports a function of a test file that gave cases and now gives none.
fn fewer_returned(tests: &TestFile<'_>, group: &[&TestLine<'_>], findings: &mut Findings) {
    pattern!(GIVES, r"^\s*(?:return|yield)\s+(\S.*)$");
    let given = |line: &TestLine<'_>| GIVES.captures(line.text).map(|found| found[1].to_owned());
    let of = |change| group.iter().filter(move |line| line.change == change && tests.is_test);
    let Some(new) = of(LineChange::Added).find(|line| given(line).is_some_and(|value| EMPTY.is_match(&value))) else {
        return;
    };
    let opens = |line: &&&TestLine<'_>| given(line).is_some_and(|value| value.trim_end().ends_with(['{', '[', '(']));
    let rows = of(LineChange::Removed).any(|line| super::rows::is_row(line.text));
    if let Some(old) = of(LineChange::Removed).find(opens).filter(|_| rows) {
        let evidence = format!("no cases are left: {} -> {}", old.text.trim(), new.text.trim());
        findings.add(tests.file.path(), Some(new.number), TamperKind::TestDeleted, &evidence);
    }
}

/// Whether `value` is a constant that the line at index `at` gives to the variable `name`, and a later line that did not
/// change compares the variable with the same constant.
fn is_compared_with_itself(tests: &TestFile<'_>, at: usize, name: &str, value: &str) -> bool {
    pattern!(
        CONSTANT,
        r#"^(?:-?\d[\w.]*|[bru]?\x22[^\x22]*\x22|[bru]?'[^']*'|[tT]rue|[fF]alse|nil|None|null|&?\[[^()]*\]|\{[^()]*\})$"#
    );
    let value = value.trim().trim_end_matches(';').trim_end();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
    let mentions = |text: &str, word: &str| {
        text.split(|c| !is_part(c)).any(|part| part.split('.').next() == Some(word) || part == word)
    };
    let has_value = |text: &str| {
        let plain = value.chars().all(is_part);
        if plain { mentions(text, value) } else { text.contains(value) }
    };
    let is_true = value.eq_ignore_ascii_case("true");
    if !CONSTANT.is_match(value) {
        return false;
    }
    let given = &tests.lines[at];
    let later = tests.lines[at + 1..].iter().take(REACH);
    later
        .take_while(|line| line.hunk == given.hunk)
        .filter(|line| line.change == LineChange::Context && line.new == given.new)
        .any(|line| mentions(line.text, name) && (has_value(line.text) || is_true && tests.language.asserts(line.text)))
}

/// Whether a variable of the new version of an assertion is set, in an added line before it, to what the program gives: to the
/// other side of the comparison, or to a call of a function that the old version called.
pub(super) fn computes_expectation(tests: &TestFile<'_>, old: &str, new: &Statement<'_>) -> bool {
    pattern!(CALL, r"\b([A-Za-z_]\w*)\(");
    pattern!(
        ASSERTS,
        r"(?i)^(?:\w*assert\w*|expect\w*|check\w*|require\w*|verify\w*|eq\w*|is\w*|to_?(?:be|eq|have|match|contain|strict|throw|raise)\w*|equals?\w*|len|str|int|list|size)$"
    );
    let difference = Difference::between(old, &new.text);
    let gained = &difference.gained;
    if gained.words.is_empty() || !gained.literals.is_empty() {
        return false;
    }
    let calls = |text: &str| -> HashSet<String> {
        let found = CALL.captures_iter(text).map(|found| found[1].to_owned());
        found.filter(|name| !ASSERTS.is_match(name)).collect()
    };
    let lines = || tests.lines[new.at.saturating_sub(REACH)..new.at].iter().filter(|line| line.hunk == new.first.hunk);
    // What set the variable that is compared stands on the other side as well.
    let repeats = |line: &TestLine<'_>| {
        let found = ASSIGNED.captures(line.text).filter(|_| line.change == LineChange::Context);
        found.is_some_and(|found| {
            let value = found[2].trim().trim_end_matches(';');
            CALLS.is_match(value) && new.text.contains(value) && !old.contains(value) && old.contains(&found[1])
        })
    };
    let lost_value = !difference.lost.literals.is_empty();
    if lost_value && (lines().any(repeats) || asks_the_same_again(old, &new.text)) {
        return true;
    }
    // Functions that set the variables of the test before the change.
    let of_test = lines().filter(|line| line.change == LineChange::Context && line.new == new.first.new);
    let made: HashSet<String> =
        of_test.filter_map(|line| ASSIGNED.captures(line.text).map(|found| calls(&found[2]))).flatten().collect();
    let before = lines().rev();
    let mut before = before.take_while(|line| line.change == LineChange::Removed || line.new == new.first.new);
    before.any(|line| {
        let Some(found) = ASSIGNED.captures(line.text).filter(|_| line.change == LineChange::Added) else {
            return false;
        };
        let (name, value) = (&found[1], found[2].trim().trim_end_matches(';'));
        let of_name = |word: &String| super::code_tokens::words(name).contains(word);
        let called = [format!("{name}("), format!("{name}!(")].iter().any(|call| new.text.contains(call));
        // Another matcher may come with the variable, if what gave the result gives the expected value as well.
        let again = || !called && gained.words.iter().any(of_name) && !calls(value).is_disjoint(&made);
        let used = gained.words.iter().all(of_name) || again();
        let is_other_side = value.contains(char::is_alphabetic)
            && CodeTokens::of(value).literals.is_empty()
            && new.text.contains(value)
            && !difference.lost.words.is_empty();
        let same_call = || !calls(value).is_disjoint(&calls(old)) || again();
        used && (is_other_side || lost_value && same_call())
    })
}

/// Whether an assertion now compares a value with another one that comes from the same call or the same object, and had a literal
/// in its place.
fn asks_the_same_again(old: &str, new: &str) -> bool {
    pattern!(METHOD, r"\b([A-Za-z_]\w*)(?:\.|->)([A-Za-z_]\w*)\(");
    pattern!(
        OF_ASSERTION,
        r"(?i)^(?:expect\w*|assert\w*|is\w*|to(?:Be|Equal|Have|Match|Contain|Strict|Throw)\w*|has\w*|contains\w*|t|this|self|require)$"
    );
    let count = |text: &str| {
        let (mut objects, mut calls): (HashMap<String, usize>, HashMap<String, usize>) = Default::default();
        for found in METHOD
            .captures_iter(text)
            .filter(|found| !OF_ASSERTION.is_match(&found[1]) && !OF_ASSERTION.is_match(&found[2]))
        {
            *objects.entry(found[1].to_owned()).or_default() += 1;
            *calls.entry(found[2].to_owned()).or_default() += 1;
        }
        (objects, calls)
    };
    let (objects, calls) = count(new);
    let (objects_before, calls_before) = count(old);
    let words: HashSet<&str> = old.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let again = calls.iter().any(|(name, times)| *times > 1 && calls_before.get(name) == Some(&1));
    let more = |(name, times): (&String, &usize)| {
        words.contains(name.as_str()) && *times > objects_before.get(name).copied().unwrap_or_default()
    };
    again || objects.iter().any(more)
}

/// Reports expected values in tables that are now computed by the code under test. Such a row, or a function that provides cases,
/// calls a function that the assertions call as well.
pub(super) fn rows(tests: &TestFile<'_>, tested: &HashSet<&str>, diff: &DiffSummary, findings: &mut Findings) {
    pattern!(CALL, r"\b([A-Za-z_]\w*)\(");
    let calls = |text: &str| -> HashSet<String> {
        let found = CALL.captures_iter(text).map(|found| found[1].to_owned());
        found.filter(|name| tested.contains(name.as_str()) && !NOT_UNDER_TEST.is_match(name)).collect()
    };
    for group in tests.lines.chunk_by(|a, b| a.hunk == b.hunk && is_changed(a) && is_changed(b)) {
        let of = |change| group.iter().filter(move |line| line.change == change);
        let removed: Vec<_> = of(LineChange::Removed).collect();
        let added: Vec<_> = of(LineChange::Added)
            .filter(|new| !tests.language.asserts(new.text) && !diff.had(new.text))
            .filter(|new| new.new.is_none_or(|at| tests.new[at].helper) || super::rows::is_row(new.text))
            .map(|new| (new, calls(new.text)))
            .filter(|(_, called)| !called.is_empty())
            .collect();
        for (at, (new, called)) in added.iter().enumerate() {
            let alike = |old: &TestLine<'_>| Difference::between(old.text, new.text).similarity > 0.5;
            let mut old = near(&removed, at, added.len()).iter();
            if let Some(old) = old.find(|old| alike(old) && calls(old.text).is_disjoint(called)) {
                let evidence = format!("the expected value is computed: {} -> {}", old.text.trim(), new.text.trim());
                let kind = TamperKind::AssertionWeakened;
                findings.add_graded(tests.file.path(), Some(new.number), kind, &evidence, diff.changes_code);
            }
        }
    }
}

/// Reports program code that returns a constant for one specific input.
fn known_value(tests: &TestFile<'_>, at: usize, findings: &mut Findings) {
    let line = &tests.lines[at];
    let text = line.text;
    if text.len() > 200 {
        return;
    }
    if ANSWERS.is_match(text) && !tests.language.is_comment(text) {
        let evidence = format!("a table of answers: {}", text.trim());
        findings.notice(tests.file.path(), Some(line.number), TamperKind::CodeReplaced, &evidence);
        return;
    }
    if line.owner_is_new {
        return;
    }
    let next =
        tests.lines[at + 1..].iter().find(|next| next.change != LineChange::Removed && !next.text.trim().is_empty());
    let one_value = ONE_VALUE.is_match(text);
    let within = next.is_some_and(|next| {
        next.change == LineChange::Added && GIVES_VALUE.is_match(next.text) && next.text.contains("return")
    });
    let inline = text.contains("return") && GIVES_VALUE.is_match(text);
    // Arms of a script and of PHP, which need no `return`.
    pattern!(
        ARM,
        r#"^\s*["']?[\w .-]+["']?\)\s*(?:echo|printf)\s+[^$`]+;\s*(?:return|exit|;;)|^\s*(?:["'][^"']+["']|\d+)\s*=>\s*(?:["'][^"']*["']|-?\d[\d.]*),?\s*$"#
    );
    pattern!(OPENS, r"^\s*case\s.*\bin\s*$|\bmatch\s*\(\s*\$\w+\s*\)\s*\{\s*$");
    let arms = ARM.is_match(text) && {
        let mut before = tests.lines[..at].iter().rev().take(ARMS).take_while(|other| other.hunk == line.hunk);
        before.any(|other| other.change == LineChange::Added && OPENS.is_match(other.text))
    };
    if one_value && (within || inline) || arms {
        let evidence = format!("a constant for one input: {}", text.trim());
        findings.notice(tests.file.path(), Some(line.number), TamperKind::CodeReplaced, &evidence);
    }
}
