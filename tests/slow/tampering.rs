//! Honest changes of public projects, which must not block a loop.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use ralph_bot::domain::model::task::{TamperFinding, TamperKind};
use ralph_bot::domain::trust::tamper::{self, CheckStart, LookedUpFunctions};

/// Releases and files, as read by the script `fetch` in the same folder.
const HONEST: &str = include_str!("../fixtures/tampering/honest.tsv");
/// Maximum share of honest changes with a blocking finding, in percent.
const MAX_CALLED: usize = 2;
/// Maximum share of changed files of programs with a blocking finding about what keeps tests from failing, in 1/1000.
const MAX_PROGRAMS_CALLED: usize = 5;

/// Fetches some hundred pairs of releases, so it runs only where the variable asks for it.
/// See docs/research/threats.md#g17.
#[test]
fn honest_changes_are_not_reported_as_tampering() {
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
    let mut changes = 0;
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
            let texts = tamper::files_to_read(&diff).into_iter().filter_map(read).collect();
            let changed: Vec<&str> = diff.lines().filter_map(|line| line.strip_prefix("--- a/")).collect();
            let start = CheckStart::new(["make test"], changed);
            let findings = tamper::scan(&diff, &texts, &|path| start.depends_on(path), usize::MAX);
            programs.add(&diff, &findings);
            findings
        });
        let mut mine = findings.iter().filter(|finding| finding.path == path && finding.blocks());
        changes += 1;
        called.extend(mine.next().map(|finding| format!("{pair} {path}: {finding:?}")));
    }
    assert!(changes >= 300);
    assert!(called.len() * 100 <= changes * MAX_CALLED, "{called:#?}");
    assert!(programs.called.len() * 1000 <= programs.files * MAX_PROGRAMS_CALLED, "{:#?}", programs.called);
    assert_eq!(programs.answers, 0);
}

/// Changed files of the programs, and the findings about them.
#[derive(Default)]
struct ProgramCount {
    files: usize,
    /// Blocking findings about what keeps tests from failing.
    called: Vec<String>,
    /// Files whose functions return only the expected values of tests that the releases changed.
    answers: usize,
}

impl ProgramCount {
    fn add(&mut self, diff: &str, findings: &[TamperFinding]) {
        let of_program = findings.iter().filter(|found| found.kind == TamperKind::TestsNeutralized);
        self.called.extend(of_program.map(|found| format!("{found:?}")));
        self.answers += LookedUpFunctions::of(diff, &BTreeMap::new()).known_to(&texts_of_tests(diff), "").len();
        self.files += tamper::program_files(diff).len();
    }
}

/// Returns the test files of a diff after the change.
fn texts_of_tests(diff: &str) -> Vec<String> {
    let of_file = |part: &str| {
        let path = part.lines().find_map(|line| line.strip_prefix("+++ b/"))?;
        let lines = part.lines().filter(|line| line.starts_with([' ', '+']) && !line.starts_with("+++ "));
        tamper::is_test_source(path).then(|| lines.map(|line| format!("{}\n", &line[1..])).collect())
    };
    diff.split("\ndiff --git ").filter_map(of_file).collect()
}
