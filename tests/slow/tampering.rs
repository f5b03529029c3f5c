//! Honest changes of tests in public projects, which must not be reported as tampering.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use ralph_bot::domain::model::task::{TamperFinding, TamperKind};
use ralph_bot::domain::trust::tamper::{self, LookedUpFunctions};

/// Releases and files, as read by the script `fetch` in the same folder.
const HONEST: &str = include_str!("../fixtures/tampering/honest.tsv");
/// Maximum share of honest changes with a blocking finding, in percent.
const MAX_CALLED: usize = 2;

/// Maximum share of changed files of programs with a blocking finding about what keeps tests from failing, in 1/1000.
const MAX_PROGRAMS_CALLED: usize = 5;

/// Number of changes in one language: all, with a blocking finding, with any finding.
#[derive(Default)]
struct HonestCount {
    changes: usize,
    blocking: usize,
    any: usize,
}

/// Fetches some hundred pairs of releases, so it runs only where the variable asks for it.
/// See docs/research/threats.md#g17.
#[test]
fn honest_changes_are_not_called_tampering() {
    let Some(folder) = std::env::var_os("RALPH_TEST_HONEST") else {
        skipped_tests::skip_in_ci_as_well(
            "set RALPH_TEST_HONEST to a folder: it fetches releases from four registries",
        );
        return;
    };
    let folder = Path::new(&folder);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fetched = Command::new(root.join("tests/fixtures/tampering/fetch")).arg(folder).status();
    assert!(fetched.expect("python3 is installed").success(), "some releases could not be fetched");
    let mut scanned: HashMap<String, Vec<TamperFinding>> = HashMap::new();
    let mut counts: BTreeMap<&str, HonestCount> = BTreeMap::new();
    let mut called = Vec::new();
    let mut programs = ProgramCount::default();
    for row in HONEST.lines().filter(|row| !row.starts_with('#')) {
        let fields: Vec<&str> = row.split('\t').collect();
        let (pair, path) = (fields[..4].join("-").replace('/', "_"), fields[5]);
        let findings = scanned.entry(pair.clone()).or_insert_with(|| {
            let diff = std::fs::read(folder.join(format!("{pair}.diff"))).expect("the pair was fetched");
            let diff = String::from_utf8_lossy(&diff);
            let files = folder.join(format!("{pair}.files"));
            let read = |path: String| Some((path.clone(), std::fs::read(files.join(path)).ok()?));
            let texts = tamper::files_to_extend(&diff).into_iter().filter_map(read).collect();
            let findings = tamper::scan_at_most(&diff, &texts, usize::MAX);
            programs.add(&diff, &findings);
            findings
        });
        let mine: Vec<&TamperFinding> = findings.iter().filter(|finding| finding.path == path).collect();
        let blocking = mine.iter().any(|finding| finding.blocks());
        let count = counts.entry(language(path)).or_default();
        count.changes += 1;
        count.any += usize::from(!mine.is_empty());
        count.blocking += usize::from(blocking);
        if blocking {
            called.push(format!("{pair} {path}: {mine:?}"));
        }
    }
    let total = counts.values().fold(HonestCount::default(), |sum, count| HonestCount {
        changes: sum.changes + count.changes,
        blocking: sum.blocking + count.blocking,
        any: sum.any + count.any,
    });
    let mut table = String::from("| language | honest changes | blocking | any finding |\n|---|---|---|---|\n");
    for (language, count) in counts.iter().chain([(&"all", &total)]) {
        table += &format!("| {language} | {} | {} | {} |\n", count.changes, count.blocking, count.any);
    }
    let page = std::fs::read_to_string(root.join("docs/guides/weakened-tests.md")).expect("the page is there");
    assert!(
        page.contains(&table),
        "docs/guides/weakened-tests.md is out of date; its table is now:\n{table}\n{called:#?}"
    );
    let said = programs.sentence();
    assert!(
        page.contains(&said),
        "docs/guides/weakened-tests.md is out of date; it is now: {said}\n{:#?}",
        programs.called
    );
    assert!(programs.called.len() * 1000 <= programs.files * MAX_PROGRAMS_CALLED, "{:#?}", programs.called);
    assert!(total.changes >= 300);
    assert!(total.blocking * 100 <= total.changes * MAX_CALLED, "{called:#?}");
}

/// Changed files of the programs, and what is said about them.
#[derive(Default)]
struct ProgramCount {
    files: usize,
    /// Blocking findings about what keeps tests from failing.
    called: Vec<String>,
    /// Files whose functions know only what tests expect, of the tests that the releases changed.
    answers: usize,
}

impl ProgramCount {
    fn add(&mut self, diff: &str, findings: &[TamperFinding]) {
        let files = tamper::program_files(diff);
        let kinds = [TamperKind::EarlyExit, TamperKind::FailureIgnored, TamperKind::CodeReplaced];
        let is_called = |found: &&TamperFinding| found.blocks() && kinds.contains(&found.kind);
        let of_program = findings.iter().filter(is_called).filter(|found| files.contains(&found.path));
        self.called.extend(of_program.map(|found| format!("{found:?}")));
        self.answers += LookedUpFunctions::of(diff, &BTreeMap::new()).known_to(&texts_of_tests(diff), "").len();
        self.files += files.len();
    }

    fn sentence(&self) -> String {
        let Self { files, called, answers } = self;
        format!(
            "Of {files} changed files of programs in the same releases, {} have a blocking finding of the kinds `early_exit`, `failure_ignored` and `code_replaced`, and {answers} one of the kind `answers_hard_coded`.",
            called.len()
        )
    }
}

/// Returns what a diff shows of files of tests, as they are after the change.
fn texts_of_tests(diff: &str) -> Vec<String> {
    let of_file = |part: &str| {
        let path = part.lines().find_map(|line| line.strip_prefix("+++ b/"))?;
        let lines = part.lines().filter(|line| line.starts_with([' ', '+']) && !line.starts_with("+++ "));
        tamper::is_test_source(path).then(|| lines.map(|line| format!("{}\n", &line[1..])).collect())
    };
    diff.split("\ndiff --git ").filter_map(of_file).collect()
}

fn language(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "py" => "Python",
        "rs" => "Rust",
        "go" => "Go",
        "rb" => "Ruby",
        "sh" | "bats" => "shell",
        "c" | "h" | "cc" | "cpp" | "hpp" => "C, C++",
        "java" | "kt" => "Java",
        "php" | "phpt" => "PHP",
        _ => "JavaScript, TypeScript",
    }
}
