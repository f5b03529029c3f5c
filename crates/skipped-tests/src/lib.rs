//! Records tests that this machine cannot run because a part is missing, such as a program, for a summary at the end of a
//! test run.
//!
//! Each record is a file below `target/skipped-tests`, in one folder per run. The test programs of one run have the same
//! parent process, and its id is the folder's name.

use std::fs;
use std::path::{Path, PathBuf};

/// A skipped test.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SkippedTest {
    /// Test target and path of the test.
    pub test: String,
    /// Missing part, and how to install it.
    pub reason: String,
}

/// Records that the calling test is skipped.
///
/// # Panics
///
/// If the environment variable `CI` is set, because CI must not skip tests.
pub fn skip(reason: &str) {
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests, no part of the service's configuration")]
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!ci, "{reason}");
    skip_in_ci_as_well(reason);
}

/// Records that the calling test is skipped because of a part that CI lacks as well.
///
/// # Panics
///
/// If the record cannot be written.
pub fn skip_in_ci_as_well(reason: &str) {
    let thread = std::thread::current();
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // The name of a test program ends with a hash.
    let target = program.rsplit_once('-').map_or(program.as_str(), |(target, _)| target);
    let test = format!("{target} {}", thread.name().unwrap_or("unnamed"));
    write(&folder(), &SkippedTest { test, reason: reason.to_owned() });
}

/// Removes the records of this run and returns them, sorted by test.
pub fn take() -> Vec<SkippedTest> {
    let found = read(&folder());
    let _ = fs::remove_dir_all(folder());
    found
}

fn folder() -> PathBuf {
    let parent = std::os::unix::process::parent_id();
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/skipped-tests").join(parent.to_string())
}

fn write(folder: &Path, skipped: &SkippedTest) {
    let SkippedTest { test, reason } = skipped;
    // A test may run on several forges or for several cases; each gets a record.
    let name: String = test.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let result = fs::create_dir_all(folder).and_then(|()| fs::write(folder.join(name), format!("{test}\n{reason}")));
    result.unwrap_or_else(|error| panic!("cannot record in {} that {test} is skipped: {error}", folder.display()));
}

fn read(folder: &Path) -> Vec<SkippedTest> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let records = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let mut found: Vec<SkippedTest> = records
        .filter_map(|record| {
            let (test, reason) = record.split_once('\n')?;
            Some(SkippedTest { test: test.to_owned(), reason: reason.to_owned() })
        })
        .collect();
    found.sort();
    found
}

#[test]
fn records_are_read_once_per_test_and_sorted() {
    let folder = std::env::temp_dir().join(format!("skipped-tests-{}", std::process::id()));
    let skipped = |test: &str, reason: &str| SkippedTest { test: test.to_owned(), reason: reason.to_owned() };
    assert_eq!(read(&folder), []);
    for (test, reason) in [("it b::c", "no strace"), ("it a::b", "no\nbwrap"), ("it b::c", "no strace")] {
        write(&folder, &skipped(test, reason));
    }
    assert_eq!(read(&folder), [skipped("it a::b", "no\nbwrap"), skipped("it b::c", "no strace")]);
    fs::remove_dir_all(folder).expect("the folder is removed");
}
