//! Assertions that now accept more: weaker matchers, wider tolerances and bounds, other expected values, fewer rows in a table,
//! weaker generated input.

use std::collections::{HashMap, HashSet};

use super::blocks::{TestFile, TestLine};
use super::bounds::{compare_values, numbers};
use super::code_tokens::{CodeTokens, Difference};
use super::diff::LineChange;
use super::flow;
use super::language::{AssertionStrength, Language};
use super::matcher::compare;
use super::rows::{is_row, is_text_row};
use super::statements::{Statement, Statements, balance};
use super::summary::DiffSummary;
use super::versions::{AssertionChange, fails_under_condition, literals, shape};
use super::{Findings, TamperKind, computed, waits};

/// Maximum number of added lines among which the new version of a removed line is searched.
const MAX_VERSIONS: usize = 200;

// The expected value is what the code under test gave.
pattern!(
    TAKEN_FROM_RESULT,
    r"^\s*(?:(?:let|const|var|auto|final|String|int|my|local|declare)\s+(?:mut\s+)?)?\$?(?:\w+\.)*(?i:want|expected|exp|golden|reference)\w*(?::\s*[\w<>]+)?\s*:?=\s*[\x22']?\$?\(?\{?(?i:got|actual|result|output|res|response|observed|out)\w*\b|^\s*(?:std::)?(?:memcpy|memmove|str[nl]?cpy|copy)\(\s*&?(?i:got|actual|result|output|res|out)\w*\s*,\s*&?(?i:want|exp|golden|ref)\w*|^\s*\$?(?i:got|actual|result|output|res|observed)\w*\s*=\s*[\x22']?\$?\{?(?i:want|expected|exp|golden)\w*\}?[\x22']?\s*;?\s*$"
);
// The expected value depends on what the code under test gave.
pattern!(
    FITS_RESULT,
    r"^\s*(?:(?:let|const|var|auto|final|String|int|my|local|val)\s+(?:mut\s+)?)?\$?(?:\w+\.)*(?i:want|expected|exp|golden)\w*(?::\s*[\w<>]+)?\s*:?=[^=].*\b(?i:got|actual|result|output|res|response|observed|out)\b.*(?:\belse\b|\s:\s|\|\||\bor\b).*|^\s*(?:(?:let|const|var|auto|final|val)\s+)?\$?(?i:want|expected|exp|golden)\w*\s*:?=[^=].*(?:\bif\b|\?).*\b(?i:got|actual|result|output|res|response|observed|out)\b.*$"
);
pattern!(OPERATOR, r"\s(?:[=!<>]=?=?|-(?:eq|ne|lt|le|gt|ge))\s");
pattern!(EQUAL, r"\s(?:===?|!==?|=|-eq|-ne)\s");
pattern!(LOOSE, r"\s(?:[<>]=?|-(?:lt|le|gt|ge))\s");
pattern!(
    FEW_CASES,
    r"(?i)parametrize|@(?:ValueSource|EnumSource|CsvSource)|->with\(|\.each\(|\bValues(?:In)?\(|#\[values\(|\b(?:cases|inputs?|examples|samples|vectors|scenarios|params|table|data|tests|values|seeds|fixtures)\w*\s*(?::[^=]*)?:?=|\bfor\b.*\b(?:in|of|:)|\bforEach\b|\bGENERATE\(|\bTypes<|testWith|TestWith|@Rows|%w\["
);
// Numbers of generated cases and of repetitions, which must not sink.
pattern!(
    RUNS,
    r"(?i)\b(?:max_?examples|with_?cases|num_?runs|max_?examples|min_?successful\w*|max_?count|min_?tests|tries|iterations?|repetitions?|repeat\w*|rounds|num_?tests|num_?cases|n_?iter\w*|samples|cases|runs|trials|fuzz_?time|quick_?check_?tests|@RepeatedTest|count|\w*loop_test)\b|\brange\(|\.\.=?\s*\d|\b\d+\.times\b|\bseq\s+\d|\{\d+\.\.\d+\}|;\s*\w+\s*<=?\s*\d"
);
// Bounds of time and of repeated attempts, which must not rise.
pattern!(
    PATIENCE,
    r"(?i)timeout|time\.After|\bWithin\(|eventually|wait_?(?:for|until)|\bretr(?:y|ies)\w*|attempts|reruns?|\bmax_?wait|deadline|\bslow\b|max_?(?:duration|elapsed|time|latency|failures|errors)|budget"
);
// A value that is expected: by its name, or because nothing but the value stands there.
pattern!(
    EXPECTED,
    r#"(?i)^\s*(?:[\w$.\s:<>\[\]&*]*\b)?\$?(?:want|expect|expected|exp|golden|should|answer|output|correct|reference|wanted|target|result|err|status|code|message|msg|total|count)\w*["']?\s*(?::=|=>|[=:])|^\s*(?:"[^"]*"|'[^']*'|`[^`]*`|-?\d[\d_.eE+-]*\w*|true|false|null|nil|None|True|False)\s*[,;)\]}]*\s*(?:\\|<<.*)?$|^\s*(?://|#|\*)\s*(?i:output|=>|->|returns|[-\d"'\[{])|^\s*(?:>>>|\.\.\.)"#
);

/// Searches one file for weaker assertions.
pub(super) fn scan(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let statements = Statements::of(tests);
    assertions(tests, &statements, diff, findings);
    let mut first = 0;
    for group in tests.lines.chunk_by(|a, b| a.hunk == b.hunk && is_changed(a) && is_changed(b)) {
        if is_changed(&group[0]) {
            ChangeGroup::of(group, &statements.covered[first..]).scan(tests, diff, findings);
        }
        first += group.len();
    }
}

fn is_changed(line: &TestLine<'_>) -> bool {
    line.change != LineChange::Context
}

/// Reports assertions whose new version accepts more or expects another value.
fn assertions(tests: &TestFile<'_>, statements: &Statements<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let path = tests.file.path();
    for (old, new) in &statements.old {
        let Some(new) = new.map(|at| &statements.new[at]) else { continue };
        if tests.language.holds_always(&new.text) || diff.has(&old.text) {
            continue;
        }
        if values_stand_beside(tests, old, new) {
            continue;
        }
        let evidence = format!("{} -> {}", old.text, new.text);
        if let Some(kind) = flow::wrapped(tests.language, &old.text, &new.text) {
            let weak = kind == TamperKind::EarlyExit && !flow::is_deferred(&new.text);
            // The failure has one more condition.
            let narrower = weak && fails_under_condition(&old.text);
            let kind = if narrower { TamperKind::AssertionWeakened } else { kind };
            findings.add_graded(path, Some(new.number), kind, &evidence, weak);
            continue;
        }
        if waits_longer(&old.text, &Difference::between(&old.text, &new.text)) {
            findings.notice(path, Some(new.number), TamperKind::AssertionWeakened, &evidence);
            continue;
        }
        let verdict = compare(tests.language, &old.text, &new.text);
        if verdict != AssertionChange::Wider && computed::computes_expectation(tests, &old.text, new) {
            let evidence = format!("the expected value is computed: {evidence}");
            findings.add(path, Some(new.number), TamperKind::AssertionWeakened, &evidence);
            continue;
        }
        let (kind, weak) = match verdict {
            AssertionChange::Wider => (TamperKind::AssertionWeakened, false),
            AssertionChange::Looser => (TamperKind::AssertionWeakened, diff.changes_code),
            AssertionChange::Expectation => {
                let helped = diff.calls_new_assertion(&new.text);
                let explained = diff.changes_code || helped || diff.follows_version(&old.text, &new.text);
                (TamperKind::ExpectationChanged, explained)
            }
            AssertionChange::Unnamed => (TamperKind::ExpectationChanged, true),
            // Without a change of the program, nothing explains why an assertion changes.
            AssertionChange::Other if !diff.changes_code && !tests.file.is_new() => {
                (TamperKind::AssertionWeakened, true)
            }
            AssertionChange::Other => continue,
        };
        findings.add_graded(path, Some(new.number), kind, &evidence, weak);
    }
}

/// Whether the values that an assertion lost are in other added lines nearby, such as in a variable or a table of cases.
fn values_stand_beside(tests: &TestFile<'_>, old: &Statement<'_>, new: &Statement<'_>) -> bool {
    let lost = Difference::between(&old.text, &new.text);
    // Anything but a message and a variable of a shell.
    let is_value = |literal: &String| !literal.contains(['%', ' ']) && !literal.starts_with("\"$");
    let near = &tests.lines[new.at.saturating_sub(20)..tests.lines.len().min(new.end + 20)];
    let near = || near.iter().filter(|line| line.change == LineChange::Added && line.hunk == new.first.hunk);
    let more_calls = || {
        // Columns of a table are no calls.
        let named =
            |line: &TestLine<'_>| super::language::is_table(line.text) && !line.text.trim_start().starts_with("for");
        let tabled = near().any(|line| named(line) && !line.text.contains(" for "))
            || near().filter(|line| is_row(line.text)).nth(1).is_some();
        !tabled && lost.gained.calls.len() > lost.lost.calls.len()
    };
    if lost.lost.literals.is_empty() || lost.gained.literals.iter().any(is_value) || more_calls() {
        return false;
    }
    let text: String =
        near().filter(|line| !new.text.contains(line.text.trim())).flat_map(|line| [line.text, "\n"]).collect();
    let beside = literals(&text);
    let has_value = lost.lost.literals.iter().any(is_value);
    let stands = |literal: &String| has_value && !is_value(literal) || beside.contains(&literal.as_str());
    lost.lost.literals.iter().all(stands)
}

/// Group of adjacent removed and added lines, without lines that are on both sides.
struct ChangeGroup<'a> {
    removed: Vec<&'a TestLine<'a>>,
    added: Vec<&'a TestLine<'a>>,
    /// Added lines that are part of an assertion.
    asserting: HashSet<*const TestLine<'a>>,
}

impl<'a> ChangeGroup<'a> {
    fn of(lines: &'a [TestLine<'a>], covered: &[bool]) -> Self {
        let texts = |change| lines.iter().filter(move |line| line.change == change).map(|line| line.text.trim());
        let old: HashSet<&str> = texts(LineChange::Removed).collect();
        let new: HashSet<&str> = texts(LineChange::Added).collect();
        let of = |change, other: &HashSet<&str>| {
            lines.iter().filter(|line| line.change == change && !other.contains(line.text.trim())).collect()
        };
        let asserting = lines
            .iter()
            .zip(covered)
            .filter(|(_, covered)| **covered)
            .map(|(line, _)| std::ptr::from_ref(line))
            .collect();
        Self { removed: of(LineChange::Removed, &new), added: of(LineChange::Added, &old), asserting }
    }

    fn is_assertion(&self, line: &TestLine<'a>) -> bool {
        self.asserting.contains(&std::ptr::from_ref(line))
    }

    fn scan(&self, tests: &TestFile<'a>, diff: &DiffSummary, findings: &mut Findings) {
        let language = tests.language;
        let mut by_shape: HashMap<String, Vec<&TestLine<'_>>> = HashMap::new();
        for line in self.added.iter().rev().filter(|line| tests.is_about_tests(line) && !tests.is_in_new_test(line)) {
            by_shape.entry(shape(line.text)).or_default().push(line);
        }
        let mut unpaired = Vec::new();
        for old in self.removed.iter().filter(|line| tests.is_about_tests(line)) {
            let Some(new) = by_shape.get_mut(&shape(old.text)).and_then(Vec::pop) else {
                unpaired.push(*old);
                continue;
            };
            self.value(tests, old, new, diff, findings);
        }
        let path = tests.file.path();
        let from_result =
            |line: &&&TestLine<'_>| TAKEN_FROM_RESULT.is_match(line.text) || FITS_RESULT.is_match(line.text);
        for new in self.added.iter().filter(from_result) {
            if tests.existing(new).is_some() && !diff.had(new.text) {
                let evidence = format!("the expected value is the result: {}", new.text.trim());
                findings.add(path, Some(new.number), TamperKind::AssertionWeakened, &evidence);
            }
        }
        for new in self.added.iter().filter(|new| tests.existing(new).is_some() && !diff.had(new.text)) {
            if cuts_itself(new.text) {
                let evidence = format!("fewer cases: {}", new.text.trim());
                let (path, kind) = (tests.file.path(), TamperKind::TestSkipped);
                findings.add_graded(path, Some(new.number), kind, &evidence, diff.changes_code);
            }
        }
        waits::scan(tests, &unpaired, &self.added, diff, findings);
        if let Some(old) = unpaired.iter().find(|line| line.in_text && !diff.has(line.text) && !self.is_assertion(line))
            && (old.old.is_none() || tests.existing_before(old))
        {
            let new = self.added.iter().find(|line| line.in_text).map_or("removed", |line| line.text.trim());
            let evidence = format!("{} -> {new}", old.text.trim());
            findings.add_graded(path, Some(old.number), TamperKind::ExpectationChanged, &evidence, diff.changes_code);
        }
        unpaired.retain(|line| !language.is_comment(line.text) && !line.in_text);
        self.expects_failure(tests, diff, findings);
        self.constant(tests, &unpaired, diff, findings);
        let table = |line: &&&TestLine<'_>| super::language::is_table(line.text) && tests.existing_before(line);
        let looped =
            unpaired.iter().find(table).filter(|_| !self.added.iter().any(|line| super::language::is_table(line.text)));
        let asserts = |lines: &[&TestLine<'_>]| lines.iter().any(|line| tests.language.asserts(line.text));
        if let Some(old) = looped.filter(|_| asserts(&unpaired) && asserts(&self.added)) {
            let evidence = format!("no longer over all cases: {}", old.text.trim());
            findings.notice(path, Some(old.number), TamperKind::TestDeleted, &evidence);
        }
        self.alike(tests, diff, &unpaired, findings);
        self.looser(tests, diff, &unpaired, findings);
        self.weaker_matchers(tests, &unpaired, findings);
        self.fewer_rows(tests, diff, &unpaired, findings);
    }

    /// Reports a line in which only values changed.
    fn value(
        &self,
        tests: &TestFile<'a>,
        old: &TestLine<'a>,
        new: &TestLine<'a>,
        diff: &DiffSummary,
        findings: &mut Findings,
    ) {
        let path = tests.file.path();
        let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
        let pairs = || numbers(old.text).into_iter().zip(numbers(new.text));
        let (sinks, rises) = (pairs().any(|(was, is)| is < was), pairs().any(|(was, is)| is > was));
        let rewrites = old.text.to_lowercase().contains("update")
            && literals(old.text).contains(&"false")
            && !literals(new.text).contains(&"false");
        if rewrites {
            let evidence = format!("expected files are rewritten: {}", new.text.trim());
            findings.add(path, Some(new.number), TamperKind::ExpectationChanged, &evidence);
        } else if RUNS.is_match(old.text) && sinks && !self.is_assertion(new) {
            let weak = diff.changes_code && !super::loosened::bounds_generated_input(old.text);
            findings.add_graded(path, Some(new.number), TamperKind::ThresholdLowered, &evidence, weak);
        } else if PATIENCE.is_match(old.text) && rises && !tests.language.is_comment(old.text) {
            findings.notice(path, Some(new.number), TamperKind::AssertionWeakened, &evidence);
        } else if self.is_assertion(new) || tests.language.holds_always(new.text) {
            // Compared as a whole statement.
        } else {
            let verdict = compare_values(tests.language, old.text, new.text);
            let expected = EXPECTED.is_match(old.text) || is_row(old.text) || old.in_text;
            match verdict {
                AssertionChange::Wider if !tests.language.is_comment(old.text) => {
                    findings.add(path, Some(new.number), TamperKind::AssertionWeakened, &evidence);
                }
                AssertionChange::Expectation if tests.language.test_name(old.text, false).is_some() => {}
                AssertionChange::Expectation if expected || !diff.changes_code => {
                    let weak = diff.changes_code || !expected;
                    findings.add_graded(path, Some(new.number), TamperKind::ExpectationChanged, &evidence, weak);
                }
                // The program is called otherwise, or set up so: an easier input satisfies the same assertion.
                AssertionChange::Expectation if !tests.language.is_comment(old.text) => {
                    findings.notice(path, Some(new.number), TamperKind::ExpectationChanged, &evidence);
                }
                _ => {}
            }
        }
    }

    /// Reports existing tests that now expect an exception as their whole result, or expect their own assertions to fail. Also
    /// reports numbers of generated cases that are too small to test anything.
    fn expects_failure(&self, tests: &TestFile<'a>, diff: &DiffSummary, findings: &mut Findings) {
        pattern!(
            WHOLE_TEST,
            r"^\s*@Test\(.*\bexpected\w*\s*=|\bexpectException\w*\(|@expectedException\b|\[(?:\w+\.)?ExpectedException|\bthrown\.expect\w*\(|->throws\w*\(|^\s*#\[should_panic|^\s*\[\[?expect_fail"
        );
        pattern!(
            OWN_FAILURE,
            r"(?:raises?|throws?|Throws\w*|raise_error|expectException|expected|THROW|panics?\w*|assertRaises\w*|assert_raises)\b.{0,12}[\s(<,=:\\]\s*(?:\w+(?:\.|::|\\))*(?:AssertionError|AssertionFailedError|ComparisonFailure|ExpectationFailedException|AssertionFailedException|Minitest::Assertion|ExpectationNotMetError|TestFailure|JestAssertionError)\b"
        );
        let path = tests.file.path();
        let before = |pattern: &regex::Regex| self.removed.iter().any(|old| pattern.is_match(old.text));
        let (expected_before, whole_test) = (before(&OWN_FAILURE), before(&WHOLE_TEST));
        let bounded = self.removed.iter().any(|old| super::loosened::bounds_generated_input(old.text));
        for new in self.added.iter().filter(|new| tests.existing(new).is_some() && !diff.had(new.text)) {
            if OWN_FAILURE.is_match(new.text) && !expected_before {
                let evidence = format!("expects that an assertion fails: {}", new.text.trim());
                findings.add_graded(
                    path,
                    Some(new.number),
                    TamperKind::AssertionWeakened,
                    &evidence,
                    diff.changes_code,
                );
            } else if WHOLE_TEST.is_match(new.text) && !whole_test && tests.language != Language::Rust {
                let evidence = format!("expects an exception in place of its result: {}", new.text.trim());
                findings.add_graded(
                    path,
                    Some(new.number),
                    TamperKind::AssertionWeakened,
                    &evidence,
                    diff.changes_code,
                );
            }
            let few = super::loosened::bounds_generated_input(new.text)
                && numbers(new.text).first().is_some_and(|number| *number <= 5.0)
                && !bounded;
            if few {
                findings.add_graded(path, Some(new.number), TamperKind::ThresholdLowered, new.text, diff.changes_code);
            }
        }
    }

    /// Reports conditions in helpers that are now true in more cases, and smaller numbers of generated cases whose lines changed
    /// otherwise too.
    fn alike(&self, tests: &TestFile<'a>, diff: &DiffSummary, unpaired: &[&TestLine<'a>], findings: &mut Findings) {
        pattern!(COMPARES, r"[=!<>]=|[<>]|&&|\|\||\b(?:and|or|not|in|is)\b|-(?:eq|ne|lt|le|gt|ge)\b");
        let path = tests.file.path();
        let candidates =
            || self.added.iter().filter(|line| tests.is_about_tests(line) && !tests.is_in_new_test(line)).take(20);
        for old in unpaired.iter().filter(|old| tests.is_about_tests(old) && !self.is_assertion(old)).take(20) {
            let evidence = |new: &TestLine<'_>| format!("{} -> {}", old.text.trim(), new.text.trim());
            let least = |text: &str| numbers(text).into_iter().fold(f64::INFINITY, f64::min);
            let fewer = |new: &&&TestLine<'_>| RUNS.is_match(new.text) && least(new.text) < least(old.text);
            if super::loosened::bounds_generated_input(old.text)
                && let Some(new) = candidates().find(fewer)
            {
                findings.add(path, Some(new.number), TamperKind::ThresholdLowered, &evidence(new));
                continue;
            }
            self.stand_ins(tests, old, diff, findings);
            if !COMPARES.is_match(old.text) {
                continue;
            }
            let alike = |new: &&&TestLine<'a>| {
                !self.is_assertion(new) && Difference::between(old.text, new.text).similarity > 0.5
            };
            if let Some(new) = candidates().find(alike)
                && compare(tests.language, old.text, new.text) == AssertionChange::Wider
            {
                findings.add_graded(
                    path,
                    Some(new.number),
                    TamperKind::AssertionWeakened,
                    &evidence(new),
                    diff.changes_code,
                );
            }
        }
    }

    /// Reports a helper that returned a computed result and now always returns success.
    fn constant(&self, tests: &TestFile<'a>, unpaired: &[&TestLine<'a>], diff: &DiffSummary, findings: &mut Findings) {
        pattern!(
            SUCCESS,
            r"(?:\breturn\b|\bpass:|=>|\bmatches:)\s*\(?\{?\s*(?:pass:\s*)?(?:true|True|nil|null|None|0)\b\s*[;,})]*|\{\s*(?:\|[^|]*\|)?\s*true\s*\}"
        );
        let new = self.added.iter().find(|line| {
            tests.is_test
                && !tests.is_in_new_test(line)
                && SUCCESS.is_match(line.text)
                && !line.text.trim_start().starts_with(['"', '\'', ':'])
                && !tests.language.asserts(line.text)
        });
        let computed = |line: &&&TestLine<'a>| CodeTokens::of(line.text).len() > 4 && !SUCCESS.is_match(line.text);
        let helper = |line: &TestLine<'a>| line.new.is_none_or(|at| tests.new[at].helper);
        if let Some((new, old)) = new.zip(unpaired.iter().find(computed)).filter(|(new, _)| helper(new)) {
            let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
            findings.add_graded(
                tests.file.path(),
                Some(new.number),
                TamperKind::AssertionWeakened,
                &evidence,
                diff.changes_code,
            );
        }
    }

    /// Reports changed lines of a test: a double instead of the program's object, a call whose failure is no longer checked, or a
    /// loop over only some of the cases.
    fn stand_ins(&self, tests: &TestFile<'a>, old: &TestLine<'a>, diff: &DiffSummary, findings: &mut Findings) {
        const DOUBLES: [&str; 13] = [
            "fake",
            "mock",
            "stub",
            "dummy",
            "noop",
            "spy",
            "double",
            "magicmock",
            "mocked",
            "stubbed",
            "createmock",
            "canned",
            "hardcoded",
        ];
        const CHECKED: [&str; 8] = ["unwrap", "expect", "must", "check", "raise", "throw", "require", "fail"];
        pattern!(
            PART,
            r"\[:\d|\[0?:\d|\.\.=?\d+\]|\.(?:slice|take|first|limit|head|Take|skip|drop|filter|select|reject|grep|where|retain|take_while|skip_while|find_all)\b|\bhead\s+-|\bgrep\s+-v|array_slice|array_filter|islice|\[\.\.\d|\bfor\b.*\bif\b"
        );
        let path = tests.file.path();
        let version = |new: &&&TestLine<'a>| {
            tests.is_about_tests(new)
                && !tests.is_in_new_test(new)
                && Difference::between(old.text, new.text).similarity > 0.4
        };
        pattern!(GIVES_CASES, r"(?i)cases|provide|data|params|examples|samples|rows|inputs");
        pattern!(IMPORTS, r"^\s*(?:import|from|use|require\w*|#\s*include|load|source|\.)\b");
        let Some(new) = self.added.iter().take(MAX_VERSIONS).find(version) else { return };
        let difference = Difference::between(old.text, new.text);
        let (lost, gained) = (&difference.lost, &difference.gained);
        let double = |word: &String| DOUBLES.iter().any(|double| word.strip_suffix('s').unwrap_or(word) == *double);
        let doubles = |code_tokens: &CodeTokens| code_tokens.words.iter().any(double);
        // A variable that an added line sets to a part of the cases.
        let part_of = |gained: &CodeTokens| {
            let sets = |line: &&&TestLine<'_>| {
                let name = line.text.split('=').next().unwrap_or_default().trim_end();
                let name = name.trim_end_matches(':').trim_end();
                PART.is_match(line.text) && gained.words.iter().any(|word| name.to_lowercase().ends_with(word.as_str()))
            };
            self.added.iter().take(MAX_VERSIONS).any(|line| sets(&line))
        };
        let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
        let weak = diff.changes_code || IMPORTS.is_match(old.text);
        const FILTERS: [&str; 9] = ["grep", "sed", "head", "tail", "sort", "tr", "cut", "uniq", "awk"];
        if tests.language == Language::Shell && gained.has_sign(&["|"]) && gained.has_word(&FILTERS) {
            findings.notice(path, Some(new.number), TamperKind::AssertionWeakened, &evidence);
        } else if doubles(gained) && !doubles(lost) && (old.text.contains('=') || IMPORTS.is_match(old.text)) {
            findings.add_graded(path, Some(new.number), TamperKind::CodeReplaced, &evidence, weak);
        } else if waits_longer(old.text, &difference) {
            findings.notice(path, Some(new.number), TamperKind::AssertionWeakened, &evidence);
        } else if lost.has_word(&CHECKED)
            && !gained.has_word(&CHECKED)
            && gained.words.len() <= 2
            && !(gained.has_sign(&["?"]) && tests.language == Language::Rust)
        {
            // Another function may check by itself.
            let other = lost.words.len() > 2 && !gained.words.is_empty();
            let weak = diff.changes_code || other;
            findings.add_graded(path, Some(new.number), TamperKind::FailureIgnored, &evidence, weak);
        } else if (PART.is_match(new.text) || super::language::is_table(new.text) && part_of(gained))
            && !PART.is_match(old.text)
            && (super::language::is_table(old.text)
                || new.new.is_some_and(|at| tests.new[at].helper && GIVES_CASES.is_match(&tests.new[at].name)))
        {
            findings.add_graded(path, Some(new.number), TamperKind::TestSkipped, &evidence, diff.changes_code);
        }
    }

    /// Reports comparisons with a looser operator, and one-line tables with fewer cases.
    fn looser(&self, tests: &TestFile<'_>, diff: &DiffSummary, unpaired: &[&TestLine<'_>], findings: &mut Findings) {
        let path = tests.file.path();
        let mut by_operands: HashMap<String, &TestLine<'_>> = HashMap::new();
        let mut by_start: HashMap<&str, &TestLine<'_>> = HashMap::new();
        for line in self.added.iter().filter(|line| !tests.is_in_new_test(line)) {
            by_operands.insert(OPERATOR.replace_all(line.text.trim(), "@").into_owned(), line);
            if FEW_CASES.is_match(line.text) {
                by_start.insert(start(line.text), line);
            }
        }
        for old in unpaired.iter().filter(|line| tests.is_about_tests(line)) {
            let operands = OPERATOR.replace_all(old.text.trim(), "@");
            let equal = EQUAL.is_match(old.text) && !LOOSE.is_match(old.text) && tests.language.asserts(old.text);
            if equal && let Some(new) = by_operands.get(operands.as_ref()).filter(|new| LOOSE.is_match(new.text)) {
                let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
                findings.add(path, Some(new.number), TamperKind::AssertionWeakened, &evidence);
            }
            let Some(new) = by_start.get(start(old.text)).filter(|_| FEW_CASES.is_match(old.text)) else { continue };
            let items = |text: &str| {
                let rest = CodeTokens::of(&text.trim()[start(text).len()..]);
                [rest.literals, rest.words].concat()
            };
            let (before, after) = (items(old.text), items(new.text));
            let complete = balance(old.text) == balance(new.text);
            if complete && after.len() < before.len() && after.iter().all(|value| before.contains(value)) {
                let evidence = format!("fewer cases: {} -> {}", old.text.trim(), new.text.trim());
                let sure = super::language::is_table(old.text) || !diff.changes_code;
                findings.add_graded(path, Some(new.number), TamperKind::TestDeleted, &evidence, !sure);
            }
        }
    }

    /// Reports exact assertions that were replaced by assertions that accept nearly every value.
    fn weaker_matchers(&self, tests: &TestFile<'_>, unpaired: &[&TestLine<'_>], findings: &mut Findings) {
        let language = tests.language;
        let is = |line: &TestLine<'_>, demand: AssertionStrength| demand_of(language, line.text) == Some(demand);
        let exact = |lines: &[&TestLine<'_>]| lines.iter().filter(|line| is(line, AssertionStrength::Exact)).count();
        let added: Vec<&TestLine<'_>> = self
            .added
            .iter()
            .copied()
            .filter(|line| !tests.is_in_new_test(line) && tests.is_about_tests(line))
            .collect();
        let little = added.iter().filter(|line| is(line, AssertionStrength::Little)).count();
        let before = unpaired.iter().filter(|line| is(line, AssertionStrength::Little)).count();
        if exact(unpaired) > exact(&added)
            && little > before
            && let (Some(old), Some(new)) = (
                unpaired.iter().find(|line| is(line, AssertionStrength::Exact)),
                added.iter().find(|line| is(line, AssertionStrength::Little)),
            )
            && !findings.has(tests.file.path(), new.number, TamperKind::AssertionWeakened)
        {
            let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
            findings.add(tests.file.path(), Some(new.number), TamperKind::AssertionWeakened, &evidence);
        }
        // A test that must panic holds whatever fails in it.
        let panics = |line: &&&TestLine<'_>| line.text.trim_start().starts_with("#[should_panic");
        if language == Language::Rust
            && !unpaired.iter().any(|line| panics(&line))
            && let Some(new) = added.iter().find(panics)
            && tests.existing(new).is_some()
        {
            findings.add(tests.file.path(), Some(new.number), TamperKind::AssertionWeakened, new.text);
        }
    }

    /// Reports rows of a table of cases that were removed without replacement.
    fn fewer_rows(
        &self,
        tests: &TestFile<'_>,
        diff: &DiffSummary,
        unpaired: &[&TestLine<'_>],
        findings: &mut Findings,
    ) {
        let gone: Vec<&&TestLine<'_>> =
            unpaired.iter().filter(|line| is_row(line.text) && !diff.has(line.text)).collect();
        let in_test = |line: &TestLine<'_>| {
            tests.is_about_tests(line)
                && (line.old.is_none() || line.old.is_some_and(|at| tests.old[at].other.is_some()))
        };
        let code = || self.added.iter().filter(|line| !tests.language.is_comment(line.text));
        let rows = code().filter(|line| is_row(line.text) || tests.is_in_new_test(line)).count();
        if gone.len() > rows && gone.iter().all(|line| in_test(line)) {
            let lost = gone.len() - rows;
            let evidence = format!("{lost} cases removed from a table: {}", gone[0].text.trim());
            let text = gone.iter().all(|line| is_text_row(line.text));
            let only = code().count() == 0 && unpaired.len() == gone.len() && lost >= 2 && !text;
            let weak = !only && (diff.changes_code || text || code().count() > 0);
            findings.add_graded(tests.file.path(), Some(gone[0].number), TamperKind::TestDeleted, &evidence, weak);
        }
    }
}

/// Whether a line sets a variable to the first of its own elements.
fn cuts_itself(text: &str) -> bool {
    pattern!(
        FIRST,
        r"^\s*\$?(\w+)\s*=\s*\(?[\x22']?\$?\{?(\w+)(?:\[@\]:0:\d|\[0?:\d|\.(?:slice|take|first|limit|head|filter|select|reject)\b)"
    );
    FIRST.captures(text).is_some_and(|found| found[1] == found[2])
}

/// Whether a time limit has a longer unit in the new version.
fn waits_longer(old: &str, difference: &Difference) -> bool {
    const SHORT: [&str; 10] =
        ["second", "seconds", "millisecond", "milliseconds", "ms", "millis", "sec", "secs", "s", "minute"];
    const LONG: [&str; 8] = ["minute", "minutes", "hour", "hours", "mins", "min", "h", "m"];
    PATIENCE.is_match(old) && difference.lost.has_word(&SHORT) && difference.gained.has_word(&LONG)
}

/// Returns the strength of an assertion; `None` for other lines.
fn demand_of(language: Language, line: &str) -> Option<AssertionStrength> {
    let demand = language.demand(line);
    let counts = language.asserts(line) || matches!(demand, AssertionStrength::Little | AssertionStrength::Exact);
    (counts && !language.is_comment(line)).then_some(demand)
}

/// Returns the beginning of a line, by which its other version is found.
fn start(line: &str) -> &str {
    let line = line.trim();
    if let Some(at) = line.find(" in ").filter(|_| line.starts_with("for ") && line.ends_with("do")) {
        return &line[..at + 4];
    }
    line.split_once(['[', '{', '"', '\'', '(', '<']).map_or(line, |(start, _)| start)
}
