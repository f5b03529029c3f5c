//! Assertions that a diff changes so that they accept more: weaker matchers, wider tolerances and bounds, other expected
//! values, fewer rows of a table.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use regex::Regex;

use super::blocks::{TestFile, TestLine};
use super::diff::LineChange;
use super::language::{Demand, Language};
use super::tests_lost::DiffSummary;
use super::{Findings, TamperKind};

macro_rules! pattern {
    ($name:ident, $text:literal) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("constant pattern"));
    };
}

pattern!(NUMBER, r"\b\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?");
pattern!(
    LITERAL,
    r#""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|\b\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?\w*|\b(?i:true|false|none|null|nil)\b"#
);
// What stands before a tolerance.
pattern!(
    TOLERANCE,
    r"(?i)(?:\b(?:rel|abs|rtol|atol|r?tol\w*|delta|eps\w*|margin|offset|percent\w*|max_relative|ulps|within|be_within|withPercentage)\W{0,3})$"
);
// What stands before a number of digits.
pattern!(DIGITS, r"(?i)\b(?:places|decimal|digits|precision|significant)\W{0,3}$");
// Assertions that end with a tolerance.
pattern!(
    ENDS_WITH_TOLERANCE,
    r"\b\w*(?:_NEAR|InDelta|InEpsilon|WithDelta|assert_in_delta|assert_in_epsilon|closeTo|approximately|assertEquals|TEST_ASSERT_FLOAT_WITHIN|assert_approx_eq|assert_relative_eq|assert_abs_diff_eq|assert_allclose)\w*f?!?\b"
);
pattern!(ENDS_WITH_DIGITS, r"\btoBeCloseTo\(|\bassertAlmostEquals?\(|\bassert_(?:array_)?almost_equal\(");
pattern!(
    TAKEN_FROM_RESULT,
    r"^\s*(?:(?:let|const|var|auto|final|String|int)\s+)?\$?(?:want|expected|exp)\w*\s*:?=\s*\$?(?:got|actual|result|output|res)\w*\s*;?\s*$"
);
pattern!(OPERATOR, r"\s(?:[=!<>]=?=?|-(?:eq|ne|lt|le|gt|ge))\s");
pattern!(EQUAL, r"\s(?:===?|!==?|=|-eq|-ne)\s");
pattern!(LOOSE, r"\s(?:[<>]=?|-(?:lt|le|gt|ge))\s");
pattern!(FEW_CASES, r"parametrize\(|@(?:ValueSource|EnumSource|CsvSource)\(|->with\(|\.each\(|\bValues\(|#\[values\(");
pattern!(RUNS, r"\b(?:max_examples|with_cases|numRuns|maxExamples|minSuccessful|MaxCount|tries)\b");
pattern!(TEXT_ROW, r#"^\s*"[^"]*",?\s*$"#);
pattern!(
    ROW,
    r#"^\s*(?:\{.*\}|\(.*\)|\[.*\]|(?:["']?[\w -]+["']?\s*(?::|=>)\s*)[\{\[(].*[\}\])]|#\[(?:case|test_case)\(.*\)\]|@(?:CsvSource|ValueSource).*|Arguments\.of\(.*\)|arguments\(.*\))\s*,?\s*$|^\s*[\w:.]+[({].*[)}],\s*$"#
);

/// Looks for weaker assertions in one file.
pub(super) fn scan(tests: &TestFile<'_>, whole: &DiffSummary, findings: &mut Findings) {
    for group in tests.lines.chunk_by(|a, b| a.hunk == b.hunk && is_changed(a) && is_changed(b)) {
        if is_changed(&group[0]) {
            ChangeGroup::of(group).scan(tests, whole, findings);
        }
    }
}

fn is_changed(line: &TestLine<'_>) -> bool {
    line.change != LineChange::Context
}

/// A run of removed and added lines; those that are on both sides are left out.
struct ChangeGroup<'a> {
    removed: Vec<&'a TestLine<'a>>,
    added: Vec<&'a TestLine<'a>>,
}

impl<'a> ChangeGroup<'a> {
    fn of(lines: &'a [TestLine<'a>]) -> Self {
        let texts = |change| lines.iter().filter(move |line| line.change == change).map(|line| line.text.trim());
        let old: HashSet<&str> = texts(LineChange::Removed).collect();
        let new: HashSet<&str> = texts(LineChange::Added).collect();
        let of = |change, other: &HashSet<&str>| {
            lines.iter().filter(|line| line.change == change && !other.contains(line.text.trim())).collect()
        };
        Self { removed: of(LineChange::Removed, &new), added: of(LineChange::Added, &old) }
    }

    fn scan(&self, tests: &TestFile<'a>, whole: &DiffSummary, findings: &mut Findings) {
        let language = tests.language;
        let mut by_shape: HashMap<String, Vec<&TestLine<'_>>> = HashMap::new();
        for line in self.added.iter().rev().filter(|line| tests.is_about_tests(line) && !tests.is_in_new_test(line)) {
            by_shape.entry(shape(line.text)).or_default().push(line);
        }
        let path = tests.file.path();
        let mut unpaired = Vec::new();
        for old in self.removed.iter().filter(|line| tests.is_about_tests(line) && !language.is_comment(line.text)) {
            let Some(new) = by_shape.get_mut(&shape(old.text)).and_then(Vec::pop) else {
                unpaired.push(*old);
                continue;
            };
            let evidence = format!("{} -> {}", old.text.trim(), new.text.trim());
            if RUNS.is_match(old.text) && numbers(old.text).iter().zip(numbers(new.text)).any(|(was, is)| is < *was) {
                findings.add(path, Some(new.number), TamperKind::ThresholdLowered, &evidence);
                continue;
            }
            let rewrites = old.text.to_lowercase().contains("update")
                && literals(old.text).contains(&"false")
                && !literals(new.text).contains(&"false");
            if rewrites {
                let evidence = format!("expected files are rewritten: {}", new.text.trim());
                findings.add(path, Some(new.number), TamperKind::ExpectationChanged, &evidence);
                continue;
            }
            match compare(language, old.text, new.text) {
                Change::Wider => findings.add(path, Some(new.number), TamperKind::AssertionWeakened, &evidence),
                Change::Expectation if !tests.language.holds_always(new.text) => {
                    let kind = TamperKind::ExpectationChanged;
                    findings.add_graded(path, Some(new.number), kind, &evidence, whole.changes_code);
                }
                Change::Expectation | Change::Other => {}
            }
        }
        for new in self.added.iter().filter(|line| TAKEN_FROM_RESULT.is_match(line.text)) {
            if tests.existing(new).is_some() {
                let evidence = format!("the expected value is the result: {}", new.text.trim());
                findings.add(path, Some(new.number), TamperKind::AssertionWeakened, &evidence);
            }
        }
        self.looser(tests, &unpaired, findings);
        self.weaker_matchers(tests, &unpaired, findings);
        self.fewer_rows(tests, whole, &unpaired, findings);
    }

    /// Reports comparisons with a looser operator, and tables of one line with fewer cases.
    fn looser(&self, tests: &TestFile<'_>, unpaired: &[&TestLine<'_>], findings: &mut Findings) {
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
            let (before, after) = (literals(old.text), literals(new.text));
            let whole = new.text.trim_end().chars().last() == old.text.trim_end().chars().last();
            if whole && after.len() < before.len() && after.iter().all(|value| before.contains(value)) {
                let evidence = format!("fewer cases: {} -> {}", old.text.trim(), new.text.trim());
                findings.add(path, Some(new.number), TamperKind::AssertionRemoved, &evidence);
            }
        }
    }

    /// Reports exact assertions in whose place one stands that nearly every value satisfies.
    fn weaker_matchers(&self, tests: &TestFile<'_>, unpaired: &[&TestLine<'_>], findings: &mut Findings) {
        let language = tests.language;
        let is = |line: &TestLine<'_>, demand: Demand| demand_of(language, line.text) == Some(demand);
        let exact = |lines: &[&TestLine<'_>]| lines.iter().filter(|line| is(line, Demand::Exact)).count();
        let added: Vec<&TestLine<'_>> = self
            .added
            .iter()
            .copied()
            .filter(|line| !tests.is_in_new_test(line) && tests.is_about_tests(line))
            .collect();
        let little = added.iter().filter(|line| is(line, Demand::Little)).count();
        let before = unpaired.iter().filter(|line| is(line, Demand::Little)).count();
        if exact(unpaired) > exact(&added)
            && little > before
            && let (Some(old), Some(new)) = (
                unpaired.iter().find(|line| is(line, Demand::Exact)),
                added.iter().find(|line| is(line, Demand::Little)),
            )
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

    /// Reports rows of a table of cases that went without others in their place.
    fn fewer_rows(
        &self,
        tests: &TestFile<'_>,
        whole: &DiffSummary,
        unpaired: &[&TestLine<'_>],
        findings: &mut Findings,
    ) {
        let gone: Vec<&&TestLine<'_>> =
            unpaired.iter().filter(|line| is_row(line.text) && !whole.has(line.text)).collect();
        let in_test = |line: &TestLine<'_>| {
            tests.is_test && (line.old.is_none() || line.old.is_some_and(|at| tests.old[at].other.is_some()))
        };
        if gone.len() >= 2
            && self.added.is_empty()
            && gone.iter().all(|line| in_test(line))
            && unpaired.len() == gone.len()
        {
            let evidence = format!("{} cases removed from a table: {}", gone.len(), gone[0].text.trim());
            let weak = gone.iter().all(|line| TEXT_ROW.is_match(line.text));
            findings.add_graded(tests.file.path(), Some(gone[0].number), TamperKind::AssertionRemoved, &evidence, weak);
        }
    }
}

/// Whether a line is a row of a table of cases.
fn is_row(line: &str) -> bool {
    ROW.is_match(line) || TEXT_ROW.is_match(line)
}

/// Rank of what an assertion demands; `None` for other lines.
fn demand_of(language: Language, line: &str) -> Option<Demand> {
    let demand = language.demand(line);
    let counts = language.asserts(line) || matches!(demand, Demand::Little | Demand::Exact);
    (counts && !language.is_comment(line)).then_some(demand)
}

/// Difference of two lines that are the same but for their literals.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// It accepts more.
    Wider,
    /// It expects another value.
    Expectation,
    Other,
}

/// Beginning of a line, which finds its other version.
fn start(line: &str) -> &str {
    let line = line.trim();
    line.split_once(['[', '{', '"', '\'']).map_or(line, |(start, _)| start)
}

fn literals(text: &str) -> Vec<&str> {
    LITERAL.find_iter(text).map(|found| found.as_str()).collect()
}

fn numbers(line: &str) -> Vec<f64> {
    NUMBER.find_iter(line).filter_map(|found| found.as_str().replace('_', "").parse().ok()).collect()
}

fn compare(language: Language, old: &str, new: &str) -> Change {
    let asserts = language.asserts(old);
    let bounds = |text: &str| -> Vec<(usize, f64)> {
        NUMBER
            .find_iter(text)
            .filter_map(|found| Some((found.start(), found.as_str().replace('_', "").parse().ok()?)))
            .collect()
    };
    let (before, after) = (bounds(old), bounds(new));
    let last = before.len().saturating_sub(1);
    let mut bound = false;
    for (at, ((start, was), (_, is))) in before.iter().zip(&after).enumerate().filter(|(_, (a, b))| a.1 != b.1) {
        let lead = &old[..*start];
        let ends = at == last && at > 0;
        let digits = DIGITS.is_match(lead) || (ends && ENDS_WITH_DIGITS.is_match(lead));
        let tolerance =
            TOLERANCE.is_match(lead) || (ends && ENDS_WITH_TOLERANCE.is_match(lead) && is_tolerance(old, *was));
        let lead = lead.trim_end().trim_end_matches('=');
        let (below, above) =
            (lead.ends_with('<'), lead.ends_with('>') && !lead.ends_with("=>") && !lead.ends_with("->"));
        // In Go, the comparison is of what fails.
        let fails = language == Language::Go || language == Language::Shell || lead.trim_start().starts_with("if ");
        let near = lead.to_lowercase().contains("abs");
        let wider = (digits && is < was)
            || (tolerance && is > was)
            || (below && asserts && is > was)
            || (above && asserts && !fails && is < was)
            || (near && fails && above && is > was);
        if wider {
            return Change::Wider;
        }
        bound |= digits || tolerance || below || above;
    }
    let (old, new) = (literals(old), literals(new));
    let differing = old.iter().zip(&new).filter(|(a, b)| a != b).count();
    if asserts && !bound && old.len() == new.len() && differing == 1 { Change::Expectation } else { Change::Other }
}

/// Whether the last number of a comparison of two values can be a tolerance: it is a third argument.
fn is_tolerance(line: &str, number: f64) -> bool {
    !line.contains("assertEquals") || (number < 1.0 && line.matches(',').count() >= 2)
}

/// A line with its literals left out, for finding its other version.
fn shape(line: &str) -> String {
    LITERAL.replace_all(line.trim().trim_end_matches([',', ';']), "#").into_owned()
}
