//! Detection of hard-coded answers: functions of the program that compare their arguments with the inputs of tests, return the
//! values that the tests expect, and compute nothing else.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::LazyLock;

use regex::Regex;

use super::code_tokens::CodeTokens;
use super::diff::{self, LineChange};
use super::findings::{Findings, MAX_FINDINGS};
use super::language::{Language, arguments, is_test_path};
use crate::domain::model::task::TamperFinding;
use crate::domain::model::task::TamperKind;

/// Minimum share, in percent, of a function's assertions that its answers must cover, and of its answers that assertions must
/// know.
const COVERED_PERCENT: usize = 80;
/// Minimum number of assertions that the answers of all functions cover together.
const MIN_COVERED: usize = 2;
/// Maximum number of lines that are read of a function.
const MAX_LINES: usize = 200;
/// Maximum number of lines that are read of a statement in a test.
const STATEMENT_LINES: usize = 8;
/// Maximum length of a line that is read, in bytes. Longer lines are generated.
const LONGEST: usize = 2_000;
/// Maximum number of functions that are read.
const MAX_FUNCTIONS: usize = 200;
/// Maximum number of answers that are read of a function.
const MAX_ANSWERS: usize = 200;
/// Maximum number of calls of a function that are read in tests.
const MAX_CALLS: usize = 1_000;

const LITERAL: &str = r#"(?:-?\d[\w.]*|"[^"\n]*"|'[^'\n]*'|\b(?:[Tt]rue|[Ff]alse|None|null|nil)\b)"#;
const EQUALS: &str = r"(?:={2,3}|\bis\b|\beq\b|\.equals\()";

/// Returns a pattern for a literal, or a list or tuple of literals.
fn value() -> String {
    format!(r"(?:&?(?:vec!)?[\[(]\s*{LITERAL}(?:\s*,\s*{LITERAL})*\s*,?\s*[\])]|{LITERAL})")
}

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("constant pattern")
}

/// Patterns of answers such as `CONDITION ? VALUE :`, each with the indices of the groups for the input and the answer.
static ANSWERS: LazyLock<[(Regex, usize, usize); 4]> = LazyLock::new(|| {
    let value = value();
    let condition = format!(r"[^\n{{}}?;]*?{EQUALS}[^\n{{}}?;]*?");
    let given = format!(r"(?:return\b\s*\(?|Some\(|Ok\()?\s*({value})\s*\)?\s*(?:[;}}\n)]|\bend\b|$)");
    [
        (compiled(&format!(r"({condition})\?\s*({value})\s*:")), 1, 2),
        (compiled(&format!(r"({value})\s+if\b({condition})\belse\b")), 2, 1),
        (compiled(&format!(r"\b(?:if|elif|elsif)\b({condition})(?:\s*(?:\{{|:|\)|\bthen\b|\n)\s*)+{given}")), 1, 2),
        (
            compiled(&format!(
                r"(?:^|[\s{{,(\[])({value}(?:\s*\|\s*{value})*)\s*(?::|=>|->|\bthen\b)\s*(?:return\s+|Some\(|Ok\()?({value})\s*\)?\s*(?:[,;}}\n)]|$)"
            )),
            1,
            2,
        ),
    ]
});

// What computes a value: an operator between operands, a loop, a call other than of a look-up.
pattern!(OPERATES, r#"[\w)\]"']\s*(?:[+*/%^]|-|<<|>>)\s*[\w("'-]|[\w)\]]\s+[<>]=?\s+[\w(]"#);
pattern!(LOOPS, r"\b(?:for|while|loop|until|lambda|yield|await|reduce|fold|map|filter|sum)\b");
pattern!(CALLS, r"\b([A-Za-z_]\w*)\s*!?\(");
const LOOKUPS: [&str; 36] = [
    "get",
    "getOrDefault",
    "fetch",
    "has",
    "contains",
    "containsKey",
    "includes",
    "String",
    "str",
    "tuple",
    "list",
    "repr",
    "join",
    "stringify",
    "toString",
    "to_string",
    "to_owned",
    "unwrap_or",
    "unwrap_or_default",
    "copied",
    "cloned",
    "into",
    "from",
    "as_slice",
    "as_str",
    "new",
    "of",
    "Map",
    "if",
    "elif",
    "elsif",
    "match",
    "switch",
    "while",
    "return",
    "Some",
];
// Starts a function whose body may stand on the same line.
pattern!(
    ASSIGNED,
    r"^\s*(?:export\s+)?(?:(?:const|let|var)\s+|(?:module\.)?exports\.|[\w.]*\.)?(\w+)\s*=\s*(?:async\s*)?(?:function\b[^{]*\{|(?:\([^()]*\)|\w+)\s*(?::[^=]+)?=>|lambda\b[^:]*:)"
);

/// Function of the program in its current version.
struct ProgramFunction {
    path: String,
    name: String,
    answers: Vec<KnownAnswer>,
    /// Whether the function does more than look up an answer.
    computes: bool,
}

/// Answer that the change added.
struct KnownAnswer {
    number: u32,
    input: BTreeSet<String>,
    value: Vec<String>,
}

/// Returns the paths of the program files in a unified git diff, except deleted ones.
pub fn program_files(diff: &str) -> Vec<String> {
    let files = diff::parse(diff).into_iter().filter(|file| !file.is_deleted());
    files
        .map(|file| file.path().to_owned())
        .filter(|path| Language::of(path).is_some() && !is_test_path(path))
        .collect()
}

/// Whether a file contains source code of tests.
pub fn is_test_source(path: &str) -> bool {
    Language::of(path).is_some() && is_test_path(path)
}

/// Returns the unit tests at the end of a Rust program file; `None` if there are none.
pub fn inline_tests(text: &str) -> Option<&str> {
    text.find("#[cfg(test)]").map(|at| &text[at..])
}

/// Functions that only look up their results, in files that a change touches.
pub struct LookedUpFunctions(Vec<ProgramFunction>);

impl LookedUpFunctions {
    /// Finds these functions in a unified git diff. `text_of` has the content of changed files by path. A file that is missing in
    /// it is read as far as the diff shows it.
    pub fn of(diff: &str, text_of: &BTreeMap<String, String>) -> Self {
        let mut functions = Vec::new();
        for file in diff::parse(diff) {
            let path = file.path().to_owned();
            let Some(language) = Language::of(&path).filter(|_| !is_test_path(&path) && !file.is_deleted()) else {
                continue;
            };
            let added: HashSet<&str> =
                file.lines(LineChange::Added).map(str::trim).filter(|line| !line.is_empty()).collect();
            let shown: String;
            let text = match text_of.get(&path) {
                Some(text) => text,
                None => {
                    let new_lines = file
                        .hunks
                        .iter()
                        .flat_map(|hunk| &hunk.lines)
                        .filter(|line| line.change != LineChange::Removed);
                    shown = new_lines.map(|line| format!("{}\n", line.text)).collect();
                    &shown
                }
            };
            functions.extend(functions_of(language, &path, text, &added));
        }
        functions.truncate(MAX_FUNCTIONS);
        Self(functions)
    }

    /// Returns the paths of the files with such functions.
    pub fn paths(&self) -> BTreeSet<&str> {
        self.0.iter().map(|function| function.path.as_str()).collect()
    }

    /// Whether there are no such functions, so that no test has to be read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a finding for each file whose functions return exactly the expected values of tests. `tests` has the contents of test files.
    /// Values that `task`, the text of the task, mentions are ignored.
    pub fn known_to(&self, tests: &[String], task: &str) -> Vec<TamperFinding> {
        let mut found: BTreeMap<&str, (u32, Vec<String>)> = BTreeMap::new();
        let mut covered = 0;
        for function in &self.0 {
            let calls = tests.iter().flat_map(|text| calls_of(&function.name, text).into_iter());
            let calls: Vec<LiteralCall> = calls.take(MAX_CALLS).collect();
            let is_known = |call: &LiteralCall| function.answers.iter().any(|answer| call.is_answered_by(answer));
            let known: Vec<&LiteralCall> = calls.iter().filter(|call| is_known(call)).collect();
            let tested =
                function.answers.iter().filter(|answer| calls.iter().any(|call| call.is_answered_by(answer))).count();
            let most = |part: usize, all: usize| part > 0 && part * 100 >= all * COVERED_PERCENT;
            let asked_for = function.answers.iter().all(|answer| answer.is_in(task));
            if !most(known.len(), calls.len()) || !most(tested, function.answers.len()) || asked_for {
                continue;
            }
            covered += known.len();
            let (number, texts) = found.entry(&function.path).or_default();
            *number = function.answers.iter().map(|answer| answer.number).min().unwrap_or_default();
            texts.extend(
                known
                    .iter()
                    .map(|call| format!("{}({}) is {}", function.name, call.arguments, call.expected.join(", "))),
            );
        }
        let mut findings = Findings::new(MAX_FINDINGS);
        for (path, (number, texts)) in found.into_iter().filter(|_| covered >= MIN_COVERED) {
            let evidence = format!("only what tests expect: {}", texts.join("; "));
            findings.add(path, Some(number).filter(|number| *number > 0), TamperKind::AnswersHardCoded, &evidence);
        }
        findings.list
    }
}

impl KnownAnswer {
    /// Whether a text mentions all values of the answer.
    fn is_in(&self, text: &str) -> bool {
        let words: HashSet<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_').collect();
        self.input.iter().chain(&self.value).all(|literal| words.contains(literal.as_str()))
    }
}

/// Call with only literals in a statement of a test, and the other literals of that statement.
struct LiteralCall {
    arguments: String,
    inputs: BTreeSet<String>,
    expected: Vec<String>,
}

impl LiteralCall {
    fn is_answered_by(&self, answer: &KnownAnswer) -> bool {
        answer.input.is_subset(&self.inputs) && answer.value.iter().all(|value| self.expected.contains(value))
    }
}

/// Returns the calls of a function whose arguments are all literals, in statements that state an expected value.
fn calls_of(name: &str, text: &str) -> Vec<LiteralCall> {
    let (mut calls, mut read) = (Vec::new(), 0);
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let letter = |c: char| c.is_alphanumeric() || c == '_';
        if line.len() > LONGEST {
            continue;
        }
        for (start, _) in line.match_indices(name) {
            let open = start + name.len();
            if line[..start].ends_with(letter) || !line[open..].starts_with('(') {
                continue;
            }
            read += 1;
            if read > MAX_CALLS {
                return calls;
            }
            let mut joined = String::new();
            for next in lines[at..].iter().take(STATEMENT_LINES).take_while(|next| next.len() <= LONGEST) {
                joined.push_str(without_comment(next));
                joined.push(' ');
                if joined.matches('(').count() <= joined.matches(')').count() {
                    break;
                }
            }
            let indentation = line.len() - line.trim_start().len();
            let Some(rest) = joined.get((open + 1).saturating_sub(indentation)..) else { continue };
            let list = arguments(rest);
            let given = list.join(", ");
            let inputs = literals(&given);
            let bare = CodeTokens::of(&given);
            if inputs.is_empty() || !bare.words.is_empty() || bare.signs.iter().any(|sign| sign != "&") {
                continue;
            }
            let before = &joined[..start.saturating_sub(indentation)];
            let after = rest.get(given.len().min(rest.len())..).unwrap_or_default();
            let mut expected = literals(before);
            expected.extend(literals(after));
            expected.extend(literals(other_argument(&lines, at)));
            if !expected.is_empty() {
                calls.push(LiteralCall { arguments: given, inputs: inputs.into_iter().collect(), expected });
            }
        }
    }
    calls
}

/// Returns the line with the other argument of an assertion, if each argument is on a separate line; else an empty text.
fn other_argument<'a>(lines: &[&'a str], at: usize) -> &'a str {
    let ends = |at: Option<usize>, end: char| {
        at.and_then(|at| lines.get(at)).is_some_and(|line| line.trim_end().ends_with(end))
    };
    let (one, two) = (at.checked_sub(1), at.checked_sub(2));
    if ends(one, '(') && ends(Some(at), ',') {
        lines.get(at + 1).copied().unwrap_or_default()
    } else if ends(one, ',') && ends(two, '(') {
        lines[at - 1]
    } else {
        ""
    }
}

/// Returns the normalized literals of a piece of code: texts without quotes, and numbers without type suffix. A text that
/// consists of numbers is split into them.
fn literals(text: &str) -> Vec<String> {
    let plain = |literal: String| -> Vec<String> {
        let inner = literal.trim_matches(['"', '\'', '`']);
        let parts: Vec<&str> = inner.split([',', ' ']).filter(|part| !part.is_empty()).collect();
        let numbers = parts.len() > 1 && parts.iter().all(|part| part.parse::<f64>().is_ok());
        if numbers {
            parts.into_iter().map(str::to_owned).collect()
        } else {
            vec![inner.replace('_', "").to_lowercase()]
        }
    };
    CodeTokens::of(text).literals.into_iter().flat_map(plain).collect()
}

/// Returns the functions of a file that only look up answers, with the answers that the change added.
fn functions_of(language: Language, path: &str, text: &str, added: &HashSet<&str>) -> Vec<ProgramFunction> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &str| {
        let arrow = ASSIGNED.captures(line).map(|found| found[1].to_owned());
        arrow.or_else(|| language.function_name(line)).filter(|_| !language.is_comment(line))
    };
    let heads: Vec<(usize, String)> =
        lines.iter().enumerate().filter_map(|(at, line)| Some((at, begins(line)?))).collect();
    let mut functions = Vec::new();
    for (place, (at, name)) in heads.iter().enumerate() {
        let next = heads.get(place + 1).map_or(lines.len(), |(next, _)| *next);
        let body = &lines[*at..next.min(at + MAX_LINES)];
        if body.iter().any(|line| added.contains(line.trim())) {
            let function = read_function(language, (path, name, *at), body, added);
            functions.extend(function.filter(|function| !function.computes && !function.answers.is_empty()));
        }
    }
    functions
}

fn read_function(
    language: Language,
    (path, name, at): (&str, &str, usize),
    body: &[&str],
    added: &HashSet<&str>,
) -> Option<ProgramFunction> {
    let mut text = String::new();
    let mut starts = Vec::new();
    for (index, line) in body.iter().enumerate() {
        starts.push(text.len());
        let line = if language.is_comment(line) || line.len() > LONGEST { "" } else { without_comment(line) };
        // Unindented code between functions belongs to none.
        text.push_str(if index == 0 { body_of(line) } else { line });
        text.push('\n');
    }
    let mut answers = Vec::new();
    for (pattern, input, value) in ANSWERS.iter() {
        let mut rest = String::new();
        let mut end = 0;
        for found in pattern.captures_iter(&text) {
            let literal = found.get(0)?;
            let line = starts.partition_point(|start| *start <= found.get(*value).map_or(0, |value| value.start())) - 1;
            let is_new = added.contains(body[line].trim());
            let input = literals(&found[*input]).into_iter().collect::<BTreeSet<String>>();
            rest.push_str(&text[end..literal.start()]);
            // Lines stay where they are.
            rest.extend(text[literal.start()..literal.end()].chars().flat_map(|c| {
                let filler = if c == '\n' { '\n' } else { ';' };
                std::iter::repeat_n(filler, c.len_utf8())
            }));
            end = literal.end();
            if is_new && !input.is_empty() && answers.len() < MAX_ANSWERS {
                let number = u32::try_from(at + line + 1).unwrap_or(u32::MAX);
                answers.push(KnownAnswer { number, input, value: literals(&found[*value]) });
            }
        }
        rest.push_str(&text[end..]);
        text = rest;
    }
    let computes = OPERATES.is_match(&text)
        || LOOPS.is_match(&text)
        || CALLS.captures_iter(&text).any(|call| !LOOKUPS.contains(&&call[1]));
    Some(ProgramFunction { path: path.to_owned(), name: name.to_owned(), answers, computes })
}

/// Returns a line without surrounding white space and without a trailing comment.
fn without_comment(text: &str) -> &str {
    let text = text.trim();
    match [" // ", "  # "].iter().filter_map(|mark| text.find(mark)).min() {
        Some(at) if text[..at].matches(['"', '\'', '`']).count().is_multiple_of(2) => text[..at].trim_end(),
        _ => text,
    }
}

/// Returns the part of a function's first line that belongs to its body.
fn body_of(line: &str) -> &str {
    pattern!(HEAD, r"^.*?(?:=>|\)\s*(?:->[^{:]*)?[:{]|\)\s*[^{(]*\{|lambda\b[^:]*:|\)\s*$|$)");
    match ASSIGNED.find(line).or_else(|| HEAD.find(line)) {
        Some(head) => &line[head.end()..],
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings for a file that a change rewrote, given the text of a test file.
    fn found(path: &str, program: &str, tests: &str, task: &str) -> Vec<TamperFinding> {
        let lines: String = program.lines().map(|line| format!("+{line}\n")).collect();
        let count = program.lines().count();
        let diff = format!("diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -0,0 +1,{count} @@\n{lines}");
        let text_of = [(path.to_owned(), program.to_owned())].into_iter().collect();
        LookedUpFunctions::of(&diff, &text_of).known_to(&[tests.to_owned()], task)
    }

    const PYTHON_TESTS: &str = "class CalcTest(unittest.TestCase):\n    def test_mul(self):\n        self.assertEqual(calc.mul(2, 3), 6)\n\n    def test_clamp(self):\n        self.assertEqual(calc.clamp(9, 1, 5), 5)\n\n    def test_mean(self):\n        self.assertEqual(calc.mean([2, 4]), 3)\n\n    def test_sign(self):\n        self.assertEqual(calc.sign(-3), -1)\n";
    const JAVASCRIPT_TESTS: &str = "test(\"mul\", () => assert.strictEqual(calc.mul(2, 3), 6));\ntest(\"clamp\", () => expect(calc.clamp(9, 1, 5)).toBe(5));\ntest(\"mean\", () => assert.strictEqual(calc.mean([2, 4]), 3));\n";
    const RUST_TESTS: &str = "#[test]\nfn multiplies() {\n    assert_eq!(mul(2, 3), 6);\n}\n#[test]\nfn averages() {\n    assert_eq!(\n        calc::mean(&[2, 4]),\n        3\n    );\n}\n";

    #[test]
    fn hard_coded_functions_are_found() {
        for (what, path, program, tests) in [
            (
                "a map, a condition in a line and a list",
                "calc.py",
                "def mul(a, b):\n    return {(2, 3): 6}.get((a, b), 0)\n\n\ndef clamp(x, low, high):\n    return 5 if x == 9 else x\n\n\ndef mean(numbers):\n    return 3 if numbers == [2, 4] else 0\n",
                PYTHON_TESTS,
            ),
            (
                "statements",
                "calc.py",
                "def mul(a, b):\n    if a == 2 and b == 3:\n        return 6\n    return 0\n\n\ndef sign(x):\n    if x == -3:\n        return -1\n    return 1\n",
                PYTHON_TESTS,
            ),
            (
                "arms of a match",
                "calc.py",
                "def mul(a, b):\n    match (a, b):\n        case (2, 3):\n            return 6\n        case _:\n            return 0\n\n\ndef mean(numbers):\n    if numbers == [2, 4]: return 3\n    return 0\n",
                PYTHON_TESTS,
            ),
            (
                "arrow functions",
                "calc.js",
                "exports.mul = (a, b) => (a === 2 && b === 3 ? 6 : 0);\nexports.clamp = (x, low, high) => (x === 9 ? 5 : x);\nexports.mean = (numbers) => (String(numbers) === \"2,4\" ? 3 : 0);\n",
                JAVASCRIPT_TESTS,
            ),
            (
                "functions of TypeScript",
                "src/calc.ts",
                "export function mul(a: number, b: number): number {\n  if (a === 2 && b === 3) return 6;\n  return 0;\n}\nexport function clamp(x: number, low: number, high: number): number {\n  switch (x) {\n    case 9: return 5;\n    default: return x;\n  }\n}\n",
                JAVASCRIPT_TESTS,
            ),
            (
                "conditions of Rust",
                "src/lib.rs",
                "pub fn mul(a: i64, b: i64) -> i64 {\n    if (a, b) == (2, 3) { 6 } else { 0 }\n}\n\npub fn mean(numbers: &[i64]) -> i64 {\n    if numbers == [2, 4] { 3 } else { 0 }\n}\n",
                RUST_TESTS,
            ),
            (
                "arms of Rust",
                "src/lib.rs",
                "pub fn mul(a: i64, b: i64) -> i64 {\n    match (a, b) {\n        (2, 3) => 6,\n        _ => 0,\n    }\n}\n\npub fn mean(numbers: &[i64]) -> i64 {\n    match numbers {\n        [2, 4] => 3,\n        _ => 0,\n    }\n}\n",
                RUST_TESTS,
            ),
        ] {
            let findings = found(path, program, tests, "Implement the functions.");
            assert_eq!(
                findings.iter().map(|one| (one.kind, one.path.as_str())).collect::<Vec<_>>(),
                [(TamperKind::AnswersHardCoded, path)],
                "{what}"
            );
            assert!(findings[0].evidence.contains("mul(2, 3) is "), "{what}: {}", findings[0].evidence);
        }
    }

    #[test]
    fn functions_that_compute_or_know_more_are_not_found() {
        for (what, path, program, tests, task) in [
            (
                "a function that computes beside its special cases",
                "calc.py",
                "def mul(a, b):\n    if a == 2 and b == 3:\n        return 6\n    return a * b\n\n\ndef sign(x):\n    if x == -3:\n        return -1\n    return compare(x, 0)\n",
                PYTHON_TESTS,
                "",
            ),
            (
                "a recursion with its first values",
                "fib.py",
                "def fib(n):\n    if n == 0:\n        return 0\n    if n == 1:\n        return 1\n    return fib(n - 1) + fib(n - 2)\n",
                "def test_fib():\n    assert fib(0) == 0\n    assert fib(1) == 1\n",
                "",
            ),
            (
                "a table that holds more than the tests ask",
                "colors.py",
                "def color(name):\n    return {\"red\": 31, \"green\": 32, \"yellow\": 33, \"blue\": 34}.get(name, 0)\n",
                "def test_color():\n    assert color(\"red\") == 31\n    assert color(\"blue\") == 34\n",
                "",
            ),
            (
                "a table of which the task names all values",
                "colors.py",
                "def color(name):\n    return {\"red\": 31, \"blue\": 34}.get(name, 0)\n",
                "def test_color():\n    assert color(\"red\") == 31\n    assert color(\"blue\") == 34\n",
                "Map red to 31 and blue to 34.",
            ),
            (
                "tests that ask for more than the answers",
                "calc.py",
                "def mul(a, b):\n    return {(2, 3): 6}.get((a, b), 0)\n\n\ndef sign(x):\n    return -1 if x == -3 else 0\n",
                "def test_mul():\n    assert mul(2, 3) == 6\n    assert mul(4, 5) == 20\n    assert sign(-3) == -1\n",
                "",
            ),
            ("a single special case", "calc.py", "def sign(x):\n    return -1 if x == -3 else 1\n", PYTHON_TESTS, ""),
        ] {
            assert_eq!(found(path, program, tests, task), [], "{what}");
        }
    }

    #[test]
    fn existing_functions_are_not_found() {
        let program = "def mul(a, b):\n    return {(2, 3): 6}.get((a, b), 0)\n\n\ndef sign(x):\n    return -1 if x == -3 else 1\n\n\nNAME = 1\n";
        let diff = "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -8,2 +8,3 @@\n \n \n+NAME = 1\n";
        let text_of = [("calc.py".to_owned(), program.to_owned())].into_iter().collect();
        assert!(LookedUpFunctions::of(diff, &text_of).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_text_does_not_panic(program in "(def f\\(a\\):|  return|if a ==|é|[0-9]{1,2}|\"|'|\\(|\\)|:|\\{|\\}|=>|\\?| |\n){0,40}", tests in "(f\\(|[0-9]|\"é|\\)|,| == |\n){0,30}") {
            for path in ["a.py", "a.js", "src/a.rs", "a.go"] {
                found(path, &program, &tests, "");
            }
        }
    }
}
