//! Tests of the crate. `corpus/` has files in each language: the base's version, a branch with an honest change of the
//! program, and branches that also change the tests.

mod definitions;
mod details;
mod mutations;
mod programs;

use super::*;

/// Case of the corpus.
struct Case {
    path: String,
    base: String,
    /// The base with an honest change of the program.
    honest: Option<String>,
    tampered: Vec<Tampered>,
}

/// Branch with changed tests.
struct Tampered {
    name: String,
    text: String,
    /// Expected result; by default, the honest version.
    merged: Option<String>,
}

fn corpus() -> Vec<Case> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder).expect("corpus").flatten().map(|entry| entry.path()).collect();
    files.sort();
    let read = |path: &std::path::PathBuf| case(&std::fs::read_to_string(path).expect("a text"));
    files.iter().map(read).collect()
}

fn case(text: &str) -> Case {
    let mut sections = text.split("=== ");
    let path = sections.next().and_then(|head| head.strip_prefix("path: ")).expect("a path").trim().to_owned();
    let mut case = Case { path, base: String::new(), honest: None, tampered: Vec::new() };
    for section in sections {
        let (title, text) = section.split_once('\n').expect("a title");
        let text = text.to_owned();
        match title.split_once(": ").unwrap_or((title, "")) {
            ("base", _) => case.base = text,
            ("honest", _) => case.honest = Some(text),
            ("tampered", name) => case.tampered.push(Tampered { name: name.to_owned(), text, merged: None }),
            ("merged", _) => case.tampered.last_mut().expect("a branch").merged = Some(text),
            _ => panic!("unknown section {title}"),
        }
    }
    case
}

/// Returns a case with different line endings.
fn with_line_endings(case: &Case, ending: &str) -> Case {
    let convert = |text: &String| text.replace('\n', ending);
    let tampered = case.tampered.iter().map(|one| Tampered {
        name: one.name.clone(),
        text: convert(&one.text),
        merged: one.merged.as_ref().map(convert),
    });
    Case {
        path: case.path.clone(),
        base: convert(&case.base),
        honest: case.honest.as_ref().map(convert),
        tampered: tampered.collect(),
    }
}

fn check(case: &Case) {
    let path = &case.path;
    assert_eq!(with_base_tests(path, Some(&case.base), &case.base), FileMerge::default(), "{path}");
    if let Some(honest) = &case.honest {
        assert_eq!(with_base_tests(path, Some(&case.base), honest), FileMerge::default(), "{path}: honest");
    }
    for Tampered { name, text, merged } in &case.tampered {
        let merge = with_base_tests(path, Some(&case.base), text);
        assert_eq!(merge.not_judged, [], "{path}: {name}");
        let expected = merged.as_ref().or(case.honest.as_ref()).expect("an expected text");
        let found = merge.text.as_deref().unwrap_or_else(|| panic!("{path}: {name}: no difference was found"));
        assert!(found == expected, "{path}: {name}\n{found}\n--- expected\n{expected}\n--- {:?}", merge.judged);
        assert_eq!(with_base_tests(path, Some(&case.base), found).text, None, "{path}: {name}: merged again");
    }
}

#[test]
fn base_tests_replace_changed_tests_in_each_language() {
    let corpus = corpus();
    assert!(corpus.len() >= 26, "{} cases", corpus.len());
    let mut failed = Vec::new();
    for case in &corpus {
        if let Err(fault) = std::panic::catch_unwind(|| check(case)) {
            failed.push(fault.downcast_ref::<String>().cloned().unwrap_or_default());
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n========\n"));
}

#[test]
fn line_endings_are_preserved() {
    corpus().iter().for_each(|case| check(&with_line_endings(case, "\r\n")));
}

#[test]
fn byte_order_mark_is_preserved() {
    for case in corpus().iter().filter(|case| case.path != "calc.rkt") {
        let mark = |text: &String| format!("\u{feff}{text}");
        let marked = Case {
            path: case.path.clone(),
            base: mark(&case.base),
            honest: case.honest.as_ref().map(mark),
            tampered: Vec::new(),
        };
        check(&marked);
        for one in &case.tampered {
            let expected = one.merged.as_ref().or(case.honest.as_ref()).map(mark);
            assert_eq!(
                with_base_tests(&case.path, Some(&marked.base), &mark(&one.text)).text,
                expected,
                "{}",
                case.path
            );
        }
    }
}

#[test]
fn regions_have_names() {
    let names: Vec<String> = corpus()
        .iter()
        .map(|case| {
            let regions = regions(&case.path, &case.base).expect("a known language");
            let names: Vec<String> = regions.iter().map(|region| region.name.to_string()).collect();
            format!("{}: {}", case.path, names.join(", "))
        })
        .collect();
    let expected = [
        "src/calc.clj: test `deftest adds`",
        "src/calc.cpp: test `calc::TEST_CASE(\"adds\")`, test `TEST_CASE(\"adds twice\")`",
        "src/Calc.cs: test `Calc::Adds`",
        "source/calc.d: test `unittest`, test code `version(unittest)`, test `unittest` (number 2)",
        "lib/calc.ex: doctest of the module `Calc`, doctest `Calc::add`",
        "calc.go: ",
        "src/Calc.hs: doctest `add`, doctest `double`",
        "src/calc.js: doctest `add`",
        "src/Calc.jl: doctest `add`",
        "src/main/kotlin/Calc.kt: test `Calc::adds`",
        "calc.lua: test `test_twice`, test module `main`",
        "README.md: examples of the document",
        "src/calc.nim: doctest `add`, test module `isMainModule`",
        "lib/calc.ml: test `let%test \"adds\"`, test `let%test _`, test `Inner::let%expect_test \"shows\"`",
        "lib/Calc.pm: test `test_twice`, test module `main`",
        "src/Calc.php: test module `CalcTest`",
        "calc.py: doctest of the module, doctest `add`, doctest `Calc::total`, test `test_add`, start of the tests `__main__`",
        "R/calc.R: test `test_twice`, test module `main`",
        "calc.rkt: test module `module+ test`",
        "lib/calc.rb: doctest `Calc::self.add`, test module `__FILE__`",
        "src/calc.rs: doctest `add`, doctest `Calc::length`, test module `tests`",
        "calc.sh: test `test_twice`, test module `main`",
        "Sources/Calc.swift: test `adds`",
        "calc.tcl: test `test_twice`, test module `main`",
        "src/calc.ts: test module `import.meta.vitest`",
        "src/calc.zig: test `Calc::test \"adds inside\"`, test `test \"adds\"`, test `test`",
    ];
    assert_eq!(names, expected);
}
