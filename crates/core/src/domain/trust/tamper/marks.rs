//! Recognition of test files, and digests of the change of each file.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::diff::{self, FileDiff, LineChange};
use super::language::{Language, is_test_path};
use crate::domain::model::task::TamperFinding;

/// Folders that contain tests, or recorded expectations.
const TEST_FOLDERS: [&str; 9] =
    ["tests", "test", "__tests__", "spec", "specs", "e2e", "testing", "snapshots", "__snapshots__"];
/// Folders that contain test data, which may also be code.
const DATA_FOLDERS: [&str; 11] = [
    "suite",
    "suites",
    "fixtures",
    "__fixtures__",
    "testdata",
    "test_data",
    "test-data",
    "golden",
    "goldens",
    "testfixtures",
    "cases",
];
// Files that are tests of another language, or data of tests, by the conventions of their runners.
pattern!(
    CONVENTION,
    r"(?:^|/)[\w.-]*\.(?:Unit|Integration|Functional)?Tests?/.*\.(?:cs|fs|vb)$|(?:^|/)\w*Tests?\.(?:cs|fs|vb|swift)$|(?:^|/)Tests/.*\.swift$|_(?:test|spec)\.(?:exs|dart|lua|jl|clj|cljs|cljc|ml|hs|zig|nim)$|_(?:SUITE|tests)\.erl$|(?:^|/)test_\w+\.(?:lua|d|jl|nim|hs)$|\w*tests?\.d$|(?:^|/)\w+\.test$|(?:Test|Spec)\.(?:hs|elm)$|\.(?:feature|robot)$|\.t$"
);
pattern!(
    CASES,
    r"(?i)(?:^|/)(?:(?:test[_-]?)?(?:cases?|vectors|expected|golden|expectations)|test[_-]?data)(?:[_.-][\w.-]*)?\.(?:jsonl?|ndjson|json5|ya?ml|toml|csv|tsv|txt|xml)$"
);
// Recorded expectations of tests: those that only tests have, and those in a path that names tests.
pattern!(
    EXPECTATION,
    r"(?i)\.(?:snap|ambr|golden|approved(?:\.\w+)?|verified(?:\.\w+)?|txtar)$|(?:^|/)(?:__snapshots__|golden\w*|cassettes)/"
);
pattern!(
    EXPECTATION_OF_TEST,
    r"(?i)\.(?:snapshot|expect|expected|exp|stderr|stdout|stdout_expected|out|ok|ref|reference|result|baseline|want)$|(?:^|/)(?:snapshots?|expected\w*|expectations?|baselines?|approvals?|references?|recordings?|results)/|(?:^|[/_.-])(?:expected|golden|approved|snapshot|baseline|reference|want)[\w.-]*\.\w+$"
);
// Lists of tests that runners skip, or that may fail.
pattern!(
    SKIP_LIST,
    r"(?i)(?:^|[/_.-])(?:skip(?:ped|_list|s)?[_-]tests?|skip(?:ped|list|_list|s)?|known[_-]?fail\w*|expected[_-]?fail\w*|xfail\w*|quarantine\w*|flaky|todo[_-]?tests|(?:excluded?|disabled)[_-]?tests?)\.(?:txt|json|ya?ml|toml|list|conf|cfg|csv|xml)$"
);
/// Length of a digest, in bytes.
const DIGEST: usize = 8;

/// Whether a file belongs to the tests: a test, test data, or recorded expectations.
pub fn is_test_file(path: &str) -> bool {
    let in_folder = path.to_lowercase().rsplit('/').skip(1).any(|folder| TEST_FOLDERS.contains(&folder));
    in_folder || is_in_data_folder(path) || is_test_path(path) || CONVENTION.is_match(path) || is_expectation(path)
}

/// Whether a file contains cases of tests, recorded expectations, or names of tests that are skipped.
fn is_expectation(path: &str) -> bool {
    let names_tests = || path.to_lowercase().contains("test") || path.contains("spec/");
    CASES.is_match(path)
        || EXPECTATION.is_match(path)
        || SKIP_LIST.is_match(path)
        || EXPECTATION_OF_TEST.is_match(path) && Language::of(path).is_none() && names_tests()
}

/// Whether a file contains code, according to its name. Data that a test reads has any name.
pub fn is_code(path: &str) -> bool {
    Language::of(path).is_some()
}

/// Whether a file contains code of tests, according to its name or folder. False for test data.
pub fn is_test_code(path: &str) -> bool {
    // Jest loads these in the place of other modules.
    let mocks = || path.rsplit('/').skip(1).any(|folder| folder == "__mocks__");
    Language::of(path).is_some() && (is_test_path(path) || mocks()) || CONVENTION.is_match(path)
}

fn is_in_data_folder(path: &str) -> bool {
    path.to_lowercase().rsplit('/').skip(1).any(|folder| DATA_FOLDERS.contains(&folder))
}

/// Digests and sizes of the changes in a diff, by file.
#[derive(Debug, Clone, Default)]
pub struct ChangeMarks {
    files: BTreeMap<String, FileMarks>,
}

#[derive(Debug, Clone, Default)]
struct FileMarks {
    removed: String,
    all: String,
    /// Numbers of added and removed lines.
    lines: (usize, usize),
}

impl ChangeMarks {
    /// Computes the digests and sizes of a unified git diff.
    pub fn of(text: &str) -> Self {
        let mut files = BTreeMap::new();
        for file in diff::parse(text) {
            let marks = FileMarks {
                removed: digest(&file, &[LineChange::Removed]),
                all: digest(&file, &[LineChange::Removed, LineChange::Added]),
                lines: (file.lines(LineChange::Added).count(), file.lines(LineChange::Removed).count()),
            };
            for path in file.paths() {
                files.insert(path.to_owned(), marks.clone());
            }
        }
        Self { files }
    }

    /// Returns the digest that identifies the change of a finding. It covers all changed lines if the task may require the
    /// change, else only the removed lines. Empty if the file is not changed.
    pub fn mark(&self, found: &TamperFinding) -> String {
        self.files.get(&found.path).map_or_else(String::new, |marks| match found.kind.may_be_required() {
            true => marks.all.clone(),
            false => marks.removed.clone(),
        })
    }

    /// Returns the digest of all changed lines of a file; empty if the file is not changed.
    pub fn change_of(&self, path: &str) -> String {
        self.files.get(path).map_or_else(String::new, |marks| marks.all.clone())
    }

    /// Returns the numbers of added and removed lines of a file, which are 0 for a binary file.
    pub fn lines_of(&self, path: &str) -> (usize, usize) {
        self.files.get(path).map_or((0, 0), |marks| marks.lines)
    }
}

fn digest(file: &FileDiff, changes: &[LineChange]) -> String {
    let mut digest = Sha256::new();
    for change in changes {
        for line in file.lines(*change) {
            digest.update(line.as_bytes());
            digest.update([b'\n']);
        }
        digest.update([0]);
    }
    data_encoding::HEXLOWER.encode(&digest.finalize()[..DIGEST])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::task::TamperKind;

    fn patch(added: &str) -> String {
        format!(
            "diff --git a/tests/a.py b/tests/a.py\n--- a/tests/a.py\n+++ b/tests/a.py\n@@ -1,2 +1,2 @@\n def test_a():\n-    assert f() == 1\n+{added}\n"
        )
    }

    #[test]
    fn mark_follows_lost_lines_or_all_changed_lines() {
        let (one, two) = (ChangeMarks::of(&patch("    pass")), ChangeMarks::of(&patch("    return")));
        let of = |marks: &ChangeMarks, kind| {
            let found = TamperFinding::new("tests/a.py", kind, "");
            marks.mark(&found)
        };
        assert_eq!(of(&one, TamperKind::CheckConfigEdited), of(&two, TamperKind::CheckConfigEdited));
        assert_ne!(of(&one, TamperKind::OnlyChangedTests), of(&two, TamperKind::OnlyChangedTests));
        assert_eq!(of(&one, TamperKind::OnlyChangedTests), one.change_of("tests/a.py"));
        assert_eq!((one.change_of("tests/a.py").len(), one.change_of("b.py")), (2 * DIGEST, String::new()));
        assert_eq!((one.lines_of("tests/a.py"), one.lines_of("b.py")), ((1, 1), (0, 0)));
    }

    #[test]
    fn test_files_include_data_and_snapshots() {
        for path in ["tests/a.py", "src/__snapshots__/x.snap", "pkg/testdata/in.json", "src/a.test.ts", "a_test.go"] {
            assert!(is_test_file(path), "{path}");
        }
        for path in ["src/a.rs", "contest/a.py", "test", "README.md"] {
            assert!(!is_test_file(path), "{path}");
        }
    }

    #[test]
    fn files_are_tests_by_conventions_of_runners() {
        for path in [
            "src/math_test.mjs",
            "test.mjs",
            "src/math.test.mts",
            "test-math.js",
            "math_test.ts",
            "src/test.rs",
            "src/parser/tests.rs",
            "Calc.Tests/CalcTests.cs",
            "src/Calc.UnitTests/Helper.cs",
            "Tests/CalcTests/Calc.swift",
            "test/calc_test.exs",
            "lib/calc_test.dart",
            "features/calc.feature",
            "fixtures/expected.txt",
            "pkg/testdata/in.go",
            "cases.json",
            "data/test_vectors.csv",
            "src/androidTest/java/Calc.kt",
            "shared/src/commonTest/kotlin/Calc.kt",
            "core/src/CalcSuite.scala",
            "src/check_calc.c",
            "src/CreditIT.java",
            "src/parser.snap",
            "data/golden/a.json",
            "ci/known_failures.txt",
            "checks/unit_test.expected",
        ] {
            assert!(is_test_file(path), "{path}");
        }
        for path in [
            "src/types.py",
            "src/queue/__init__.py",
            "data/infection_rates.json",
            "src/Credit.java",
            "src/latest.php",
            "src/contest.rs",
            "src/attest.mjs",
            "src/testimonials.js",
            "showcases.json",
            "src/Contests/Contest.cs",
            "docs/features.md",
            "usecases.yml",
            "docs/expected.md",
            "data/results/a.csv",
            "config/blocklist.txt",
            "config/exclude.yml",
        ] {
            assert!(!is_test_file(path), "{path}");
        }
    }
}
