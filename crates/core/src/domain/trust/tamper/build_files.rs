//! Build files: they choose what is built, collected or run. Honest work changes them with the program, for example to list a new source.
//! Therefore the run with the base's tests first uses the base's versions. If it fails, and passes with the branch's versions, the rules
//! here decide whether the base's versions were judged, or only do not fit the branch's program.

use std::collections::BTreeMap;

use globset::GlobBuilder;

use crate::domain::model::task::{CheckReport, TestCounts};

pattern!(
    NAME,
    r"^(?:CMakeLists\.txt|meson\.build|meson\.options|meson_options\.txt|[tj]sconfig[\w.-]*\.json|(?:vite|webpack|rollup|rspack|rsbuild|tsup|esbuild|craco)\.config\.\w+|gulpfile\.\w+|Gruntfile\.\w+|(?:lerna|nx|turbo|angular|project|workspace|rush)\.json|moon\.yml|config\.nims|nim\.cfg|build\.zig|pom\.xml|build\.(?:xml|sbt|sc|mill|rs)|project\.clj|deps\.edn|bb\.edn|shadow-cljs\.edn|dub\.(?:json|sdl)|package\.yaml|Setup\.hs|mix\.exs|rebar\.config(?:\.script)?|dune|dune-project|dune-workspace|configure\.ac|Makefile\.(?:am|in|PL)|Build\.PL|BUILD(?:\.bazel)?|Package\.swift|SCons(?:truct|cript)|wscript|meson\.py|xmake\.lua|premake\d\.lua|\.busted|dist\.ini|pubspec\.yaml|dart_test\.yaml|fpm\.toml|alire\.toml|shard\.yml|setup\.py|(?:tasks|dodo|fabfile)\.py|magefile\.go|Jam(?:file|root))$|\.(?:cmake|bzl|nims|nimble|gradle|gradle\.kts|sbt|cabal|opam|rake|(?:cs|fs|vb|vcx)proj|sln|props|targets|pr[oi]|gypi?|gpr|rockspec|gemspec|ninja)$"
);

/// Maximum number of files that the patterns of one build file are compared with.
const MAX_FILES: usize = 20_000;

/// Whether a file tells a build tool what to build, collect or run.
pub fn is_build_file(path: &str) -> bool {
    NAME.is_match(path.rsplit('/').next().unwrap_or(path))
}

/// Whether the checks with the base's build files ran all tests that they run with the branch's, so that their failure is a result.
/// False if a check fails without counted tests, or with fewer, because something could not be built or loaded.
pub fn are_judged(with_base: &CheckReport, with_branch: &CheckReport) -> bool {
    let ran = |tests: TestCounts| tests.passing + tests.failing;
    with_base.outcomes.iter().filter(|outcome| !outcome.holds && !outcome.incomplete).any(|outcome| {
        let other = with_branch.outcomes.iter().find(|other| other.name == outcome.name).and_then(|other| other.tests);
        outcome.tests.zip(other).is_some_and(|(base, branch)| base.failing > 0 && ran(base) >= ran(branch))
    })
}

/// Returns a file or folder that the base's version of a build file names more often than the branch's. `files` has the files of the
/// base that the branch still has.
pub fn no_longer_named(path: &str, base: &str, branch: &str, files: &[&str]) -> Option<String> {
    let mut words: BTreeMap<&str, isize> = BTreeMap::new();
    for (text, step) in [(base, 1), (branch, -1)] {
        for word in text.split(|c: char| c.is_whitespace() || "\"'`()[]{},;=<>|&:".contains(c)) {
            *words.entry(word.trim_start_matches("./").trim_end_matches('/')).or_default() += step;
        }
    }
    let mut lost: BTreeMap<&str, isize> = BTreeMap::new();
    for (word, count) in words.into_iter().filter(|(word, count)| *count != 0 && word.len() > 1) {
        for named in named_files(path, word, files) {
            *lost.entry(named).or_default() += count;
        }
    }
    lost.into_iter().find(|(_, count)| *count > 0).map(|(named, _)| named.to_owned())
}

/// Returns the files that a word of a build file names by a path, a pattern or the name of a module, or the folder that it names.
fn named_files<'a>(path: &str, word: &'a str, files: &[&'a str]) -> Vec<&'a str> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let below = |file: &'a str| match folder {
        "" => Some(file),
        _ => file.strip_prefix(folder)?.strip_prefix('/'),
    };
    let others = files.iter().copied().take(MAX_FILES).filter(|file| *file != path);
    let all: Vec<(&str, &str)> = others.filter_map(|file| Some((file, below(file)?))).collect();
    if word.contains('*') {
        let Ok(glob) = GlobBuilder::new(word).literal_separator(true).build() else { return Vec::new() };
        let glob = glob.compile_matcher();
        return all.into_iter().filter(|(_, file)| glob.is_match(file)).map(|(file, _)| file).collect();
    }
    let stem = |file: &'a str| file.rsplit('/').next().and_then(|name| name.split('.').next());
    let is_file = |file: &str, relative: &'a str| {
        file == word || relative == word || word.len() > 2 && stem(relative) == Some(word)
    };
    let named: Vec<&str> =
        all.iter().filter(|(file, relative)| is_file(file, relative)).map(|(file, _)| *file).collect();
    let is_folder = || all.iter().any(|(_, file)| file.strip_prefix(word).is_some_and(|rest| rest.starts_with('/')));
    if named.is_empty() && is_folder() { vec![word] } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::task::CheckOutcome;

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
    fn build_files_are_known_by_their_names() {
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
    fn files_that_a_build_file_no_longer_names_are_found() {
        for (path, base, branch, lost) in [
            ("CMakeLists.txt", "(unit unit/mul.cpp unit/clamp.cpp)", "(unit unit/mul.cpp)", "unit/clamp.cpp"),
            ("unit/CMakeLists.txt", "(unit mul.cpp clamp.cpp)", "(unit mul.cpp)", "unit/clamp.cpp"),
            ("tsconfig.json", r#"["src/*.ts"]"#, r#"["src/slug.test.ts"]"#, "src/slug.ts"),
            ("dune", "(names checks_mul checks_clamp)", "(names checks_mul)", "checks_clamp.ml"),
            ("dune", "(names checks_mul) (modules checks_mul)", "(modules checks_mul)", "checks_mul.ml"),
            ("settings.gradle", "include 'lib', 'packages'", "include 'packages'", "lib"),
            ("config.nims", "exec \"nim c -r lib/calc.c\"\n", "", "lib/calc.c"),
        ] {
            assert_eq!(no_longer_named(path, base, branch, &FILES).as_deref(), Some(lost), "{base}");
        }
        for (path, base, branch) in [
            ("CMakeLists.txt", "(unit unit/mul.cpp)", "(unit\n  unit/mul.cpp\n  unit/sign.cpp\n)"),
            ("CMakeLists.txt", "(unit unit/mul.cpp unit/gone.cpp)", "(unit unit/mul.cpp)"),
            ("CMakeLists.txt", "(unit unit/mul.cpp unit/clamp.cpp)", "(GLOB unit unit/*.cpp)"),
            ("tsconfig.json", r#""strict": false"#, r#""strict": true"#),
            ("mix.exs", "version: \"0.1.0\"", "version: \"0.2.0\", deps: [:jason]"),
        ] {
            assert_eq!(no_longer_named(path, base, branch, &FILES), None, "{branch}");
        }
    }

    #[test]
    fn failure_is_a_result_if_all_tests_ran() {
        let report = |tests: Option<(u64, u64)>, holds: bool| {
            let tests = tests.map(|(passing, failing)| TestCounts { passing, failing, skipped: 0 });
            let outcome = CheckOutcome { name: "check".to_owned(), holds, tests, ..CheckOutcome::default() };
            CheckReport { outcomes: vec![outcome], ..CheckReport::default() }
        };
        let branch = report(Some((2, 0)), true);
        assert!(are_judged(&report(Some((2, 1)), false), &branch));
        assert!(are_judged(&report(Some((1, 1)), false), &branch));
        for base in [report(None, false), report(Some((0, 1)), false), report(Some((2, 0)), false), branch.clone()] {
            assert!(!are_judged(&base, &branch), "{base:?}");
        }
        assert!(!are_judged(&report(Some((1, 1)), false), &report(None, true)));
    }
}
