//! Build files, which choose the sources to build and the tests to run. Honest work changes them with the program, for example to list a
//! new source.
//! Therefore the run with the base's tests first uses the base's versions. If it fails, and passes with the branch's versions, the rules
//! here decide whether the base's versions were judged, or only do not fit the branch's program.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use globset::GlobBuilder;

use super::language::Language;
use super::marks::is_test_file;
use crate::domain::model::task::{CheckOutcome, CheckReport};

pattern!(
    NAME,
    r"^(?:CMakeLists\.txt|meson\.build|meson\.options|meson_options\.txt|[tj]sconfig[\w.-]*\.json|(?:vite|webpack|rollup|rspack|rsbuild|tsup|esbuild|craco)\.config\.\w+|gulpfile\.\w+|Gruntfile\.\w+|(?:lerna|nx|turbo|angular|rush)\.json|moon\.yml|config\.nims|nim\.cfg|build\.zig|pom\.xml|build\.(?:xml|sbt|sc|mill|rs)|project\.clj|deps\.edn|bb\.edn|shadow-cljs\.edn|dub\.(?:json|sdl)|package\.yaml|Setup\.hs|mix\.exs|rebar\.config(?:\.script)?|dune|dune-project|dune-workspace|configure\.ac|Makefile\.(?:am|in|PL)|Build\.PL|BUILD(?:\.bazel)?|Package\.swift|SCons(?:truct|cript)|wscript|xmake\.lua|premake\d\.lua|\.busted|dist\.ini|pubspec\.yaml|dart_test\.yaml|fpm\.toml|alire\.toml|shard\.yml|setup\.py|(?:tasks|dodo|fabfile)\.py|magefile\.go|Jam(?:file|root))$|\.(?:cmake|bzl|nims|nimble|gradle|gradle\.kts|sbt|cabal|opam|rake|(?:cs|fs|vb|vcx)proj|sln|props|targets|pr[oi]|gypi?|gpr|rockspec|gemspec|ninja)$"
);

/// Maximum number of files that the patterns of one build file are compared with.
const MAX_FILES: usize = 20_000;
/// Maximum number of changed patterns in a build file; more count as a change of tests.
const MAX_GLOBS: usize = 200;

/// Whether a build tool reads from a file which sources it builds or which tests it runs.
pub fn is_build_file(path: &str) -> bool {
    NAME.is_match(path.rsplit('/').next().unwrap_or(path))
}

/// Compares the number of tests that a failing check ran with the base's build files with the number that it ran with the branch's.
/// `None` if no check fails with counted failures, for example because the program could not be built.
pub fn tests_compared(with_base: &CheckReport, with_branch: &CheckReport) -> Option<Ordering> {
    let failing =
        |outcome: &CheckOutcome| outcome.tests.map_or(0, |tests| tests.failing).saturating_sub(outcome.extra_failures);
    let ran = |outcome: &CheckOutcome| outcome.tests.map_or(0, |tests| tests.passing) + failing(outcome);
    let failed = with_base.outcomes.iter().filter(|outcome| !outcome.holds && failing(outcome) > 0);
    let compared = failed.filter_map(|outcome| {
        let other = with_branch.outcomes.iter().find(|other| other.name == outcome.name && other.tests.is_some())?;
        Some(ran(outcome).cmp(&ran(other)))
    });
    compared.max()
}

/// Whether the branch's version of a build file changes tests: it no longer names a file of the base that the branch still has, it
/// names a test of the base that the base's version does not name, or it disables assertions. The same applies to every change of a
/// program that makes tests, if `all_ran`: the base's version made as many tests. `files` has the files of the base that the branch
/// still has.
pub fn changes_tests(path: &str, base: &str, branch: &str, files: &[&str], all_ran: bool) -> bool {
    pattern!(NO_ASSERTIONS, r"(?i)noassert|NDEBUG|^danger$|ignore-asserts|^-*assertions?$|^-*release$");
    let mut words: BTreeMap<&str, isize> = BTreeMap::new();
    for (text, step) in [(base, 1), (branch, -1)] {
        for word in text.split(|c: char| c.is_whitespace() || "\"'`()[]{},;=<>|&:".contains(c)) {
            *words.entry(word.trim_start_matches("./").trim_end_matches('/')).or_default() += step;
        }
    }
    words.retain(|word, count| *count != 0 && word.len() > 1);
    let known = NamedFiles::new(path, files);
    let mut named: BTreeMap<&str, isize> = BTreeMap::new();
    let (globs, plain): (Vec<_>, Vec<_>) = words.iter().partition(|(word, _)| word.contains('*'));
    for (word, count) in plain.into_iter().chain(globs.iter().copied().take(MAX_GLOBS)) {
        for file in known.of(word) {
            *named.entry(file).or_default() += count;
        }
    }
    globs.len() > MAX_GLOBS
        || all_ran && makes_tests(path, base)
        || named.iter().any(|(file, count)| *count > 0 || *count < 0 && is_test_file(file))
        || words.iter().any(|(word, count)| *count < 0 && NO_ASSERTIONS.is_match(word))
}

/// Whether a program that a build tool runs, such as `build.rs`, makes tests.
pub(super) fn makes_tests(path: &str, content: &str) -> bool {
    // In a text that the program writes. Assertions of the program itself make no tests.
    pattern!(MAKES_TESTS, r##"#\[test\]|["'`][^"'`\n]*\bassert"##);
    is_build_file(path) && Language::of(path).is_some() && MAKES_TESTS.is_match(content)
}

/// Files that a build file can name, below its folder.
struct NamedFiles<'a> {
    /// Files with their paths below the folder.
    all: Vec<(&'a str, &'a str)>,
    /// Indices of files by their names: the path, the path below the folder, and the name of the module.
    names: HashMap<&'a str, Vec<usize>>,
    folders: HashSet<&'a str>,
}

impl<'a> NamedFiles<'a> {
    fn new(path: &str, files: &[&'a str]) -> Self {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let below = |file: &'a str| match folder {
            "" => Some(file),
            _ => file.strip_prefix(folder)?.strip_prefix('/'),
        };
        let others = files.iter().copied().take(MAX_FILES).filter(|file| *file != path);
        let all: Vec<(&str, &str)> = others.filter_map(|file| Some((file, below(file)?))).collect();
        let mut names: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut folders = HashSet::new();
        for (at, (file, relative)) in all.iter().enumerate() {
            let stem = relative.rsplit('/').next().and_then(|name| name.split('.').next());
            for name in [Some(*file), Some(*relative), stem.filter(|stem| stem.len() > 2)].into_iter().flatten() {
                let places = names.entry(name).or_default();
                if places.last() != Some(&at) {
                    places.push(at);
                }
            }
            folders.extend(relative.match_indices('/').map(|(end, _)| &relative[..end]));
        }
        Self { all, names, folders }
    }

    /// Returns the files that a word names by a path, a pattern or the name of a module, or the folder that it names.
    fn of<'w: 'a>(&self, word: &'w str) -> Vec<&'a str> {
        if word.contains('*') {
            let Ok(glob) = GlobBuilder::new(word).literal_separator(true).build() else { return Vec::new() };
            let glob = glob.compile_matcher();
            return self.all.iter().filter(|(_, file)| glob.is_match(file)).map(|(file, _)| *file).collect();
        }
        match self.names.get(word) {
            Some(places) => places.iter().map(|at| self.all[*at].0).collect(),
            None if self.folders.contains(word) => vec![word],
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::task::TestCounts;

    const FILES: [&str; 9] = [
        "src/slug.ts",
        "src/slug.test.ts",
        "src/title.test.ts",
        "unit/mul.cpp",
        "unit/clamp.cpp",
        "checks_mul.ml",
        "checks_clamp.ml",
        "packages/title/check.js",
        "lib/calc.c",
    ];

    #[test]
    fn build_files_are_recognized_by_name() {
        for path in
            ["CMakeLists.txt", "a/dune", "app.cabal", "build.zig", "core/build.gradle.kts", "tsconfig.build.json"]
        {
            assert!(is_build_file(path), "{path}");
        }
        for path in ["package.json", "Makefile", "src/dune.ml", "readme.txt", "src/project.rs", "build.md"] {
            assert!(!is_build_file(path), "{path}");
        }
    }

    /// See docs/research/threats.md#g17.
    #[test]
    fn changed_tests_of_a_build_file_are_found() {
        let changes = |path, base, branch| changes_tests(path, base, branch, &FILES, false);
        for (path, base, branch) in [
            ("CMakeLists.txt", "(unit unit/mul.cpp unit/clamp.cpp)", "(unit unit/mul.cpp)"),
            ("unit/CMakeLists.txt", "(unit mul.cpp clamp.cpp)", "(unit mul.cpp)"),
            ("tsconfig.json", r#"["src/*.ts"]"#, r#"["src/slug.test.ts"]"#),
            ("dune", "(names checks_mul checks_clamp)", "(names checks_mul)"),
            ("dune", "(names checks_mul) (modules checks_mul)", "(modules checks_mul)"),
            ("settings.gradle", "include 'lib', 'packages'", "include 'packages'"),
            ("config.nims", "exec \"nim c -r lib/calc.c\"\n", ""),
            ("tsconfig.json", "{}", r#"{ "exclude": ["src/title.test.ts"] }"#),
            ("CMakeLists.txt", "", "add_definitions(-DNDEBUG)"),
            ("dune", "(tests (names a))", "(tests (names a) (ocamlopt_flags (:standard -noassert)))"),
        ] {
            assert!(changes(path, base, branch), "{base} -> {branch}");
        }
        for (path, base, branch) in [
            ("CMakeLists.txt", "(unit unit/mul.cpp)", "(unit\n  unit/mul.cpp\n  unit/sign.cpp\n)"),
            ("CMakeLists.txt", "(unit unit/mul.cpp unit/gone.cpp)", "(unit unit/mul.cpp)"),
            ("CMakeLists.txt", "(unit unit/mul.cpp unit/clamp.cpp)", "(GLOB unit unit/*.cpp)"),
            ("tsconfig.json", r#""strict": false"#, r#""strict": true"#),
            ("mix.exs", "version: \"0.1.0\"", "version: \"0.2.0\", elixirc_paths: [\"core\"]"),
        ] {
            assert!(!changes(path, base, branch), "{branch}");
        }
        let makes = "writeln!(code, \"#[test] fn one() {}\");\n";
        assert!(changes_tests("build.rs", makes, "", &FILES, true));
        assert!(
            !changes_tests("build.rs", makes, "", &FILES, false) && !changes_tests("build.rs", "", makes, &FILES, true)
        );
    }

    #[test]
    fn numbers_of_tests_are_compared() {
        let report = |tests: Option<(u64, u64)>, holds: bool| {
            let tests = tests.map(|(passing, failing)| TestCounts { passing, failing, skipped: 0 });
            let outcome = CheckOutcome { name: "check".to_owned(), holds, tests, ..CheckOutcome::default() };
            CheckReport { outcomes: vec![outcome] }
        };
        let branch = report(Some((2, 0)), true);
        for (base, order) in [
            (report(Some((2, 1)), false), Some(Ordering::Greater)),
            (report(Some((1, 1)), false), Some(Ordering::Equal)),
            (report(Some((0, 1)), false), Some(Ordering::Less)),
            (report(Some((3, 0)), false), None),
            (report(None, false), None),
            (branch.clone(), None),
        ] {
            assert_eq!(tests_compared(&base, &branch), order, "{base:?}");
        }
        assert_eq!(tests_compared(&report(Some((1, 1)), false), &report(None, true)), None);
    }
}
