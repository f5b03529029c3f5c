//! New test files. The checks run a second time without them, because files that a runner loads beside the tests of the base can change
//! the results of these tests.

use std::collections::HashSet;

use super::build_files::is_build_file;
use super::config_files::is_makefile;
use super::diff::{self, FileDiff, LineChange};
use super::language::Language;
use super::manifests::is_manifest;
use super::marks::{is_test_code, is_test_file};
use super::starts::CheckStart;

// Other files that list sources or tests.
pattern!(LISTS, r"(?:^|/)(?:deno\.jsonc?|Makefile\.\w+|[\w.-]+\.(?:mk|am|kts))$");
// Statements that name another file or module.
pattern!(
    IMPORTS,
    r#"^\s*(?:#\s*include|(?:pub(?:\([^)]*\))?\s+)?(?:mod|use)\b|from\b|import\b|export\b|require|include|using\b|load\b|source\b|\.\s)|\brequire(?:_relative)?\s*[("'\s]|\bimport\s*\("#
);

/// Maximum length of a chain of new parts of the program, of which each names the next.
const MAX_ROUNDS: usize = 50;

/// Facts that distinguish new tests from new parts of the program: the base, the commands of the checks, and the names that the
/// branch mentions elsewhere.
#[derive(Debug)]
pub struct NewTests<'a> {
    start: &'a CheckStart<'a>,
    /// Kinds of test files that the base has.
    kinds: HashSet<TestKind>,
    folders: HashSet<&'a str>,
    /// Names of the base's files, without extensions.
    stems: HashSet<&'a str>,
    /// Words in new imports of the program's files. In a language without imports, all words in new lines.
    imported: HashSet<String>,
    /// Words and paths in new lines of build files.
    listed: HashSet<String>,
}

/// Kind of test files that one runner loads together: by language or by file name extension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TestKind {
    Known(Language),
    Ending(String),
}

impl TestKind {
    fn of(path: &str) -> Self {
        let ending = || path.rsplit('/').next().unwrap_or(path).rsplit('.').next().unwrap_or_default().to_owned();
        Language::of(path).map_or_else(|| Self::Ending(ending()), Self::Known)
    }
}

impl<'a> NewTests<'a> {
    /// Collects the facts from the complete change of a branch.
    pub fn new(start: &'a CheckStart<'a>, diff: &str) -> Self {
        let mut kinds: HashSet<TestKind> =
            start.base_paths().filter(|path| is_test_code(path)).map(TestKind::of).collect();
        if start.base_paths().any(super::starts::runs_checks) {
            kinds.insert(TestKind::Known(Language::Shell));
        }
        let folders = start.base_paths().flat_map(folders_of).collect();
        let stems = start.base_paths().map(stem).collect();
        let mut found = Self { start, kinds, folders, stems, imported: HashSet::new(), listed: HashSet::new() };
        let (mut tests, program): (Vec<_>, Vec<_>) =
            diff::parse(diff).into_iter().partition(|file| is_test_file(file.path()));
        program.iter().for_each(|file| found.read(file));
        // Program files name further program files.
        tests.retain(|file| file.is_new() && is_test_code(file.path()));
        for _ in 0..MAX_ROUNDS {
            let (apart, parts) = tests.into_iter().partition(|file| found.is_apart(file.path()));
            tests = apart;
            let parts: Vec<FileDiff> = parts;
            if parts.is_empty() {
                break;
            }
            parts.iter().for_each(|file| found.read(file));
        }
        found
    }

    fn read(&mut self, file: &FileDiff) {
        let path = file.path();
        if is_build_file(path) || is_manifest(path) || is_makefile(path) || LISTS.is_match(path) {
            let apart = |c: char| c.is_whitespace() || "\"'`()[]{},;=<>$".contains(c);
            for word in file.lines(LineChange::Added).flat_map(|line| line.split(apart)) {
                let path = word.trim_start_matches("./").trim_end_matches('/');
                self.listed.insert(path.to_owned());
                self.listed.extend(path.rsplit('/').next().map(str::to_owned));
            }
            return;
        }
        let Some(language) = Language::of(file.path()) else { return };
        // Classes of a package need no statement.
        let unnamed = matches!(language, Language::Jvm | Language::Php);
        let named = file
            .lines(LineChange::Added)
            .filter(|line| !language.is_comment(line) && (unnamed || IMPORTS.is_match(line)));
        let words = named.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-'));
        self.imported.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
    }

    /// Whether the checks must have the same results without a new file. True if the file is code of tests that a runner of the
    /// base's tests may load, and no command, build file or program of the branch needs the file.
    pub fn is_apart(&self, path: &str) -> bool {
        self.is_shadow(path)
            || is_test_code(path)
                && self.kinds.contains(&TestKind::of(path))
                && !self.is_started(path)
                && !self.is_listed(path)
                && !self.is_imported(path)
    }

    /// Whether the file belongs to a package that Python finds before a test of the base.
    fn is_shadow(&self, path: &str) -> bool {
        let module = path.strip_suffix("/__init__.py").map(|package| format!("{package}.py"));
        module.is_some_and(|module| is_test_code(&module) && self.start.base_paths().any(|other| other == module))
    }

    /// Whether a command names the file, or a folder that contains the file and that the base does not have. Without the file,
    /// such a command has nothing to run.
    fn is_started(&self, path: &str) -> bool {
        let (bare, stem) = (without_extension(path), stem(path));
        self.start.commands().any(|command| {
            let apart = |c: char| c.is_whitespace() || "\"'`();|&=,".contains(c);
            let words: Vec<&str> = command.split(apart).map(|word| word.trim_start_matches("./")).collect();
            words.iter().enumerate().any(|(at, word)| {
                let (word, before) = (word.trim_end_matches('/').trim_end_matches("/..."), at.checked_sub(1));
                let target = before.is_some_and(|before| words[before] == "--test") && word == stem;
                // The word of a tool's name, or of a test of the base, is none of a new test.
                let filter = at > 0 && word == stem && word.contains(['_', '-']) && !self.stems.contains(stem);
                let module = word.replace('.', "/");
                let module = module
                    .strip_prefix(bare)
                    .is_some_and(|rest| word.contains('.') && (rest.is_empty() || rest.starts_with('/')));
                word == path || target || filter || module || self.is_new_folder_of(word, path)
            })
        })
    }

    /// Whether a build file names the file, its target, or a folder that contains the file and that the base does not have.
    fn is_listed(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let target = if stem(path) == "main" { path.rsplit('/').nth(1).unwrap_or_default() } else { stem(path) };
        let target = Language::of(path) == Some(Language::Rust) && self.listed.contains(target);
        self.listed.contains(name)
            || target
            || folders_of(path).any(|folder| !self.folders.contains(folder) && self.listed.contains(folder))
    }

    /// Whether program code imports the file. A file that a runner finds by its name is not part of a program, except in
    /// languages in which any file can have tests.
    fn is_imported(&self, path: &str) -> bool {
        let language = Language::of(path);
        let collected = language.is_some_and(|language| language != Language::Rust && language.collects(path));
        let stem = stem(path);
        let folder = path.rsplit('/').nth(1).unwrap_or_default();
        let module = if matches!(stem, "__init__" | "index" | "mod") { folder } else { stem };
        !collected && self.imported.contains(module)
    }

    fn is_new_folder_of(&self, folder: &str, path: &str) -> bool {
        let below = path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        below && !folder.is_empty() && !self.folders.contains(folder)
    }
}

/// Returns the folders that contain a path, from the outermost to the innermost.
fn folders_of(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split('.').next().unwrap_or(name)
}

fn without_extension(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    path.strip_suffix(name).map_or(path, |folder| &path[..folder.len() + stem(path).len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: [&str; 9] = [
        "calc.py",
        "test_calc.py",
        "tests/answer.sh",
        "pkg/calc_test.go",
        "src/calc.test.js",
        "src/lib.rs",
        "tests/calc.rs",
        "tests/calc_test.cpp",
        "src/test/java/CalcTest.java",
    ];

    fn apart(commands: &[&str], diff: &str, path: &str) -> bool {
        let start = CheckStart::new(commands.iter().copied(), BASE);
        NewTests::new(&start, diff).is_apart(path)
    }

    fn added(path: &str, line: &str) -> String {
        format!("diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1,1 +1,2 @@\n x\n+{line}\n")
    }

    /// See docs/research/threats.md#g17.
    #[test]
    fn new_tests_that_runners_load_are_separate() {
        for path in [
            "test_aaa.py",
            "tests/conftest.py",
            "tests/old/answer.sh",
            "pkg/zz_test.go",
            "test/setup.mjs",
            "src/aaa.spec.ts",
            "__mocks__/calc.js",
            "tests/aaa.rs",
            "tests/zz.cpp",
            "src/test/java/AaaTest.java",
        ] {
            assert!(apart(&["make check", "pytest tests"], "", path), "{path}");
        }
    }

    #[test]
    fn programs_data_and_tests_of_other_languages_are_not_separate() {
        for path in [
            "src/new.py",
            "pkg/testing/helper.go",
            "tests/fixtures/a.json",
            "tests/__snapshots__/a.snap",
            "spec/new_spec.rb",
            "tests/CalcTests.swift",
            "README.md",
        ] {
            assert!(!apart(&["make check"], "", path), "{path}");
        }
        let start = CheckStart::new(["pytest"], ["calc.py", "README.md"]);
        assert!(!NewTests::new(&start, "").is_apart("test_calc.py"), "the base has no tests");
    }

    #[test]
    fn tests_that_a_command_starts_are_not_separate() {
        for (command, path) in [
            ("python3 -m pytest tests/test_new.py", "tests/test_new.py"),
            ("python3 -m unittest tests.test_new.NewTest", "tests/test_new.py"),
            ("cargo test --test new", "tests/new.rs"),
            ("npx jest new_thing", "src/new_thing.test.js"),
            ("go test ./added/...", "added/a_test.go"),
            ("sh ./tests/new.sh", "tests/new.sh"),
        ] {
            assert!(!apart(&[command], "", path), "{command}");
        }
        for (command, path) in [
            ("npm test", "src/test.js"),
            ("go test ./pkg/...", "pkg/zz_test.go"),
            ("pytest tests", "tests/tests.py"),
            ("python3 -m unittest test_calc", "test_calc/__init__.py"),
            ("python3 -m unittest test_calc", "more/test_calc.py"),
        ] {
            assert!(apart(&[command], "", path), "{command}");
        }
    }

    #[test]
    fn tests_that_the_branch_names_elsewhere_are_not_separate() {
        for (file, line, path) in [
            ("src/lib.rs", "mod tests;", "src/tests.rs"),
            ("src/calc.rs", "mod tests;", "src/calc/tests.rs"),
            ("Cargo.toml", "name = \"bench_new\"", "tests/bench_new.rs"),
            ("Cargo.toml", "name = \"speed\"", "tests/speed/main.rs"),
            ("CMakeLists.txt", "add_executable(t tests/new_test.cpp)", "tests/new_test.cpp"),
            ("package.json", "\"test\": \"node --test checks/\"", "checks/a.test.js"),
            ("calc.py", "from app.testing import helper", "app/testing/helper.py"),
            ("calc.py", "from app import testing", "app/testing/__init__.py"),
            ("src/a.js", "import { fake } from './testing'", "src/testing/index.js"),
            ("src/lib.rs", "pub mod testing;", "src/testing/mod.rs"),
            ("src/main/java/A.java", "    return new Stub();", "src/main/java/testing/Stub.java"),
        ] {
            assert!(!apart(&["make check"], &added(file, line), path), "{path}");
        }
        let module = "diff --git a/src/testing/mod.rs b/src/testing/mod.rs\nnew file mode 100644\n--- /dev/null\n+++ b/src/testing/mod.rs\n@@ -0,0 +1,1 @@\n+pub mod data;\n";
        let named = added("src/lib.rs", "pub mod testing;");
        assert!(!apart(&["make check"], &format!("{named}{module}"), "src/testing/data.rs"));
        assert!(apart(&["make check"], module, "src/testing/data.rs"), "what names it is removed, too");
        for (file, line, path) in [
            ("calc.py", "import test_aaa", "test_aaa.py"),
            ("calc.py", "# see helper", "tests/helper.py"),
            ("calc.py", "helper = 1", "tests/helper.py"),
            ("tests/test_b.py", "import helper", "tests/helper.py"),
            ("src/a.js", "require('./aaa.test.js')", "src/aaa.test.js"),
        ] {
            assert!(apart(&["make check"], &added(file, line), path), "{line}");
        }
    }
}
