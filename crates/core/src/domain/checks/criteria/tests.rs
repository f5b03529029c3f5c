//! Tests of criteria: parsing, detection, precedence, validation and judgement.

use std::collections::HashMap;

use super::*;
use crate::domain::model::ids::Percent;
use crate::domain::trust::sanitize::document;

fn read_issue(body: &str) -> Result<Vec<Check>, CriteriaError> {
    from_issue(&document::tests::read_markdown(body).parts)
}

fn commands_of(body: &str) -> Vec<String> {
    read_issue(body).expect("criteria").into_iter().map(|check| check.command).collect()
}

#[test]
fn issue_yields_commands_and_ignores_prose() {
    let cases: &[(&str, &[&str])] = &[
        ("", &[]),
        ("Run `cargo test` some time.", &[]),
        ("```ralph\ncargo test\nnpm run lint\n```\n", &["cargo test", "npm run lint"]),
        ("```ralph\n# comment\n\n$ cargo test\n```", &["cargo test"]),
        ("```ralph\n- cargo test\n- cargo clippy\n```", &["cargo test", "cargo clippy"]),
        (
            "```ralph\nchecks:\n  - cargo test\n  - command: make lint\n    name: lint\n```",
            &["cargo test", "make lint"],
        ),
        ("~~~ralph\nmake\n~~~", &["make"]),
        ("```ralph\ncargo test \\\n  --workspace\n```", &["cargo test    --workspace"]),
        // The block takes precedence.
        ("```ralph\ncargo test\n```\n## Acceptance criteria\n- `npm test` passes", &["cargo test"]),
        (
            "## Completion criteria\n- [ ] `cargo test` passes\n- [x] `cargo clippy -- -D warnings`",
            &["cargo test", "cargo clippy -- -D warnings"],
        ),
        ("### Acceptance criteria:\n\n* All tests pass with `pytest -q`\n* the page looks nice", &["pytest -q"]),
        ("Acceptance Criteria\n---\n1. `make` succeeds\n2. `pytest` is green", &["make", "pytest"]),
        // Names, paths, calls and requests are not commands.
        (
            "## Acceptance criteria\n- `foo()` works\n- `src/lib.rs` compiles\n- `GET /users` works\n- `Widget` is clean",
            &[],
        ),
        ("## Acceptance criteria\n- `test_login` passes", &[]),
        ("## Acceptance criteria\n- `cargo test` fails no longer\n- `npm start` does not run", &[]),
        ("## Acceptance criteria\n- replace `cargo foo` by `cargo bar`, runs", &[]),
        ("## Acceptance criteria\n- ~~`cargo test` passes~~", &[]),
        // A section ends at the next heading of the same level.
        ("## Acceptance criteria\n### Tests\n- `make test` passes\n## Notes\n- `make deploy` works", &["make test"]),
        ("# Notes\n- `make deploy` works\n", &[]),
        // Shell blocks in the section; blocks in other languages and output are not commands.
        (
            "## Completion criteria\n```sh\ncargo test\n# why\ncargo fmt --check\n```",
            &["cargo test", "cargo fmt --check"],
        ),
        ("## Completion criteria\n```console\n$ make test\nall good\n```", &["make test"]),
        ("## Completion criteria\n```rust\nfn main() {}\n```\n```json\n{}\n```", &[]),
        ("## Completion criteria\n```sh\ncd api\nmake test\n```", &["cd api\nmake test"]),
        // Quotes and hidden text.
        ("> ```ralph\n> rm -rf .\n> ```", &[]),
        ("<!--\n```ralph\nevil\n```\n-->", &[]),
        ("## Completion criteria\n> - `make evil` passes\n<!-- - `make evil` passes -->\n", &[]),
        ("## Completion criteria\n- `npm test` passes <!-- `make evil` passes -->", &["npm test"]),
    ];
    for (body, expected) in cases {
        assert_eq!(commands_of(body), *expected, "of:\n{body}");
    }
}

#[test]
fn block_yields_rules_timeouts_and_counts() {
    let body = "```ralph\nchecks:\n  - {name: cover, command: make cover, min: 80.5, timeout: 10m}\n  - {command: tsc, \
                kind: count, pattern: '(\\d+) errors', at_most: 0, any_exit: true, timeout: 90}\n  - {command: make lint, kind: empty_output}\n  - {command: ./t, counts: 'ok (?P<passed>\\d+)', junit: 'build/*.xml'}\n```";
    let checks = read_issue(body).expect("criteria");
    assert_eq!(checks[0].name, "cover");
    assert_eq!(checks[0].timeout_s, Some(600));
    assert!(matches!(&checks[0].rule, CheckRule::Coverage { min, .. } if *min == Percent(80.5)));
    assert_eq!(checks[1].timeout_s, Some(90));
    assert!(
        matches!(&checks[1].rule, CheckRule::Count { at_most: Some(most), at_least: None, any_exit: true, .. } if *most == 0.0)
    );
    assert_eq!(checks[2].rule, CheckRule::EmptyOutput);
    assert_eq!(checks[3].counts.as_deref(), Some("ok (?P<passed>\\d+)"));
    assert_eq!(checks[3].junit.as_deref(), Some("build/*.xml"));
    assert!(checks.iter().all(|check| check.source == CheckSource::Issue));
    let silent = read_issue("## Completion criteria\n- `npm run lint` prints nothing").expect("criteria");
    assert_eq!(silent[0].rule, CheckRule::EmptyOutput);
}

#[test]
fn invalid_block_reports_problem() {
    let many = format!("```ralph\n{}```", "make x\n".repeat(MAX_CHECKS + 1));
    let cases: &[(&str, &str)] = &[
        ("```ralph\nchecks:\n  - [\n```", "cannot be read"),
        ("```ralph\nchecks: 3\n```", "must be a list"),
        ("```ralph\nchecks:\n  - a\niterations: 3\n```", "unknown key `iterations`"),
        ("```ralph\nchecks:\n  - 3\n```", "not `3`"),
        ("```ralph\nchecks:\n  - {comand: make}\n```", "did you mean `command`"),
        ("```ralph\nchecks:\n  - {name: x}\n```", "`command` is missing"),
        ("```ralph\nchecks:\n  - {command: x, kind: perfect}\n```", "is not a kind of check"),
        ("```ralph\nchecks:\n  - {command: x, kind: coverage}\n```", "needs `min`"),
        ("```ralph\nchecks:\n  - {command: x, min: 80, pattern: '\\d+%'}\n```", "needs a group"),
        ("```ralph\nchecks:\n  - {command: x, min: 101}\n```", "0 to 100"),
        ("```ralph\nchecks:\n  - {command: x, min: 80, at_most: 3}\n```", "belong to `count`"),
        ("```ralph\nchecks:\n  - {command: x, kind: count, pattern: '(', at_most: 3}\n```", "not a regular expression"),
        ("```ralph\nchecks:\n  - {command: x, kind: count, pattern: '(a)'}\n```", "needs `at_least` or `at_most`"),
        ("```ralph\nchecks:\n  - {command: x, kind: empty_output, any_exit: true}\n```", "belong to `count`"),
        (
            "```ralph\nchecks:\n  - {command: x, kind: count, pattern: '(a)', at_most: 1, any_exit: 1}\n```",
            "must be true or false",
        ),
        ("```ralph\nchecks:\n  - {command: x, pattern: '(a)', at_most: 1, at_least: 2}\n```", "above `at_most`"),
        ("```ralph\nchecks:\n  - {command: x, at_most: many}\n```", "must be a number"),
        ("```ralph\nchecks:\n  - {command: x, timeout: soon}\n```", "`timeout` must be"),
        ("```ralph\nchecks:\n  - {command: x, timeout: 0}\n```", "between 1 s"),
        ("```ralph\nchecks:\n  - {command: x, counts: '(\\d+)'}\n```", "needs a group `(?P<passed>"),
        ("```ralph\nchecks:\n  - {command: x, junit: ../r.xml}\n```", "a path from the root of the tree"),
        ("```ralph\nchecks:\n  - {command: x, junit: 'r[.xml'}\n```", "`junit`: not a pattern"),
        (&many, "maximum 20"),
    ];
    for (body, part) in cases {
        let error = read_issue(body).expect_err(body).to_string();
        assert!(error.contains(part), "{body}\ngave: {error}");
    }
}

#[test]
fn validation_rejects_invalid_checks() {
    let good = plain("make", CheckSource::Command);
    validate(&good).expect("valid");
    let bad = [
        Check { name: " ".into(), ..good.clone() },
        Check { name: "a\nb".into(), ..good.clone() },
        Check { name: "x".repeat(MAX_NAME + 1), ..good.clone() },
        Check { command: "  ".into(), ..good.clone() },
        Check { command: "a\0b".into(), ..good.clone() },
        Check { command: "x".repeat(MAX_COMMAND + 1), ..good.clone() },
        Check { timeout_s: Some(MAX_TIMEOUT_S + 1), ..good.clone() },
        Check { rule: CheckRule::Coverage { pattern: "(a)".into(), min: Percent(f64::NAN) }, ..good.clone() },
        Check { rule: CheckRule::Coverage { pattern: "x".repeat(600), min: Percent(1.0) }, ..good.clone() },
        Check { rule: CheckRule::Coverage { pattern: r"(\w{900}){900}".into(), min: Percent(1.0) }, ..good.clone() },
        Check {
            rule: CheckRule::Count {
                pattern: "(a)".into(),
                at_least: Some(f64::INFINITY),
                at_most: None,
                any_exit: false,
            },
            ..good
        },
    ];
    for check in bad {
        assert!(validate(&check).is_err(), "{check:?}");
    }
}

#[test]
fn tree_yields_the_checks_of_its_languages() {
    const PYTEST: &str = "python3 -m pytest";
    let cases: &[(&[(&str, &str)], &[&str])] = &[
        (&[], &[]),
        (&[("README.md", "x")], &[]),
        (&[("Cargo.toml", "[package]\nname = \"a\"")], &["cargo test --no-fail-fast"]),
        (&[("Cargo.toml", "[workspace]\nmembers = []")], &["cargo test --workspace --no-fail-fast"]),
        (&[("package.json", r#"{"scripts":{"test":"jest"}}"#)], &["npm test"]),
        (&[("package.json", r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#)], &[]),
        (&[("package.json", r#"{"scripts":{"test":""}}"#)], &[]),
        (&[("package.json", r#"{"scripts":{"start":"x"}}"#)], &[]),
        // Without tests, the commands that build and lint verify the tree.
        (&[("package.json", r#"{"scripts":{"build":"x"}}"#)], &["npm run build"]),
        (
            &[("package.json", r#"{"scripts":{"build":"x","lint":"eslint ."}}"#), ("yarn.lock", "")],
            &["yarn run lint", "yarn run build"],
        ),
        (&[("package.json", r#"{"scripts":{"build":"x","test":"jest"}}"#)], &["npm test"]),
        (&[("package.json", r#"{"scripts":{"lint":"eslint --fix ."}}"#)], &[]),
        (&[("package.json", "{}"), ("tsconfig.json", "{}")], &["npx --no-install tsc --noEmit"]),
        (&[("package.json", "{ not json")], &[]),
        (&[("package.json", r#"{"scripts":{"test":"x"}}"#), ("pnpm-lock.yaml", "")], &["pnpm test"]),
        (&[("package.json", r#"{"scripts":{"test":"x"}}"#), ("yarn.lock", "")], &["yarn test"]),
        (&[("package.json", r#"{"scripts":{"test":"x"}}"#), ("bun.lock", "")], &["bun run test"]),
        (
            &[("package.json", r#"{"packageManager":"pnpm@9.1.0","scripts":{"test":"x"}}"#), ("yarn.lock", "")],
            &["pnpm test"],
        ),
        (&[("pyproject.toml", "[project]")], &[PYTEST]),
        (&[("pytest.ini", "[pytest]")], &[PYTEST]),
        (&[("tox.ini", "")], &[PYTEST]),
        (&[("setup.cfg", "[tool:pytest]")], &[PYTEST]),
        (&[("setup.cfg", "[flake8]")], &[]),
        (&[("pyproject.toml", "[tool.ruff]\n[tool.mypy]")], &["mypy .", "ruff check ."]),
        (&[("pyproject.toml", "[build-system]\n[tool.ruff]")], &[PYTEST]),
        (&[(".flake8", ""), ("ruff.toml", ""), (".ruff.toml", "")], &["flake8", "ruff check ."]),
        (&[("go.mod", "module x")], &["go test ./..."]),
        (&[("Makefile", "all:\n\techo\ntest: all\n\tx")], &["make test"]),
        (&[("Makefile", "check:\n\tx")], &["make check"]),
        (&[("Makefile", "lint test: all\n\tx")], &["make test"]),
        (&[("Makefile", "test := x\ntests:\n\ttest: y")], &[]),
        (&[("Makefile", "check:\n\ntest:\n")], &["make test"]),
        (&[("Makefile", "build:\n\tx\n")], &["make build"]),
        (&[("Makefile", "all: build\nbuild:\n\tx\nlint:\n\ty\n")], &["make lint", "make build"]),
        (&[("Makefile", "all:\n\tx\n")], &["make all"]),
        (&[("Makefile", "install:\n\tx\n")], &[]),
        // The makefile usually calls the language's runner.
        (&[("go.mod", ""), ("Makefile", "test:\n\tgo test")], &["go test ./..."]),
        (
            &[("Cargo.toml", ""), ("package.json", r#"{"scripts":{"test":"x"}}"#)],
            &["cargo test --no-fail-fast", "npm test"],
        ),
    ];
    for (tree, expected) in cases {
        let tree: HashMap<&str, &str> = tree.iter().copied().collect();
        let checks = detect(&|path: &str| tree.get(path).map(|text| (*text).to_owned()));
        let commands: Vec<&str> = checks.iter().map(|check| check.command.as_str()).collect();
        assert_eq!(commands, *expected, "of {tree:?}");
        assert!(checks.iter().all(|check| check.source == CheckSource::Detected && validate(check).is_ok()));
    }
}

#[test]
fn tree_without_checks_yields_proposed_commands() {
    let cases: &[(&[(&str, &str)], &[&str])] = &[
        (&[], &[]),
        (&[("README.md", "x")], &[]),
        (&[("check.sh", "exit 1")], &["sh check.sh"]),
        (&[("scripts/test.sh", "#!/usr/bin/env bash\nx")], &["bash scripts/test.sh"]),
        (&[("Justfile", "test := 'x'\n@lint path='.': fmt\n  x\nbuild:\n  y\n")], &["just lint", "just build"]),
        (&[("mvnw", ""), ("pom.xml", "")], &["./mvnw -q -B test"]),
        (&[("pubspec.yaml", "")], &["dart test", "dart analyze"]),
        (
            &[("test.sh", ""), ("Rakefile", ""), (".rubocop.yml", ""), ("mkdocs.yml", "")],
            &["sh test.sh", "bundle exec rake", "bundle exec rubocop"],
        ),
    ];
    for (tree, expected) in cases {
        let tree: HashMap<&str, &str> = tree.iter().copied().collect();
        let commands = propose(&|path: &str| tree.get(path).map(|text| (*text).to_owned()));
        assert_eq!(commands, *expected, "of {tree:?}");
    }
    let suggested = ["make docs", "sh test.sh", "make docs", "a", "b"].map(str::to_owned);
    let checks = trial(suggested);
    let commands: Vec<&str> = checks.iter().map(|check| check.command.as_str()).collect();
    assert_eq!(commands, ["make docs", "sh test.sh", "a"]);
    assert!(checks.iter().all(|check| check.source == CheckSource::Detected && validate(check).is_ok()));
}

#[test]
fn first_source_takes_precedence_and_names_are_unique() {
    let of = |commands: &[&str]| commands.iter().map(|c| plain(c, CheckSource::Detected)).collect::<Vec<_>>();
    let (checks, source) = choose(of(&["a"]), of(&["b"]), of(&["c"]), of(&["d"]));
    assert_eq!((checks[0].command.as_str(), source), ("a", CheckSource::Command));
    let (checks, source) = choose(vec![], of(&["b"]), of(&["c"]), of(&["d"]));
    assert_eq!((checks[0].command.as_str(), source, checks[0].source), ("b", CheckSource::Issue, CheckSource::Issue));
    assert_eq!(choose(vec![], vec![], of(&["c"]), of(&["d"])).1, CheckSource::RepositoryFile);
    assert_eq!(choose(vec![], vec![], vec![], vec![]), (vec![], CheckSource::Detected));

    let long = "x".repeat(80);
    let twice = vec![
        Check { command: "one".into(), ..plain(&long, CheckSource::Command) },
        Check { command: "two".into(), ..plain(&long, CheckSource::Command) },
        Check { command: "two".into(), ..plain("again", CheckSource::Command) },
    ];
    let (checks, _) = choose(twice, vec![], vec![], vec![]);
    assert_eq!(checks.len(), 2, "the same command under another name is dropped");
    assert_ne!(checks[0].name, checks[1].name);
    assert!(checks.iter().all(|check| validate(check).is_ok()));
}

#[test]
fn outcome_is_judged_by_rule() {
    let coverage = CheckRule::Coverage { pattern: r"^TOTAL.* (\S+)%$".into(), min: Percent(80.0) };
    let count = |any_exit| CheckRule::Count {
        pattern: r"Found ([\d,]+) error".into(),
        at_least: None,
        at_most: Some(2.0),
        any_exit,
    };
    let (errors, strict) = (count(true), count(false));
    let cases: &[(&CheckRule, Option<i32>, &str, bool, &str, Option<f64>)] = &[
        (&CheckRule::ExitCode, Some(0), "anything", true, "", None),
        (&CheckRule::ExitCode, Some(1), "", false, "exit code 1", None),
        (&CheckRule::ExitCode, None, "", false, "was ended by a signal", None),
        (&CheckRule::ExitCode, Some(127), "sh: 1: jest: not found\n", false, "command not found: jest", None),
        (
            &CheckRule::ExitCode,
            Some(127),
            "sh: line 1: jest: command not found",
            false,
            "command not found: jest",
            None,
        ),
        (&CheckRule::ExitCode, Some(127), "", false, "command not found (exit code 127)", None),
        (&coverage, Some(137), "TOTAL 1 99%", false, "was ended by signal 9 (exit code 137)", None),
        (&CheckRule::EmptyOutput, Some(0), " \n\t\n", true, "", None),
        (&CheckRule::EmptyOutput, Some(0), "a\n\nb\n", false, "printed 2 lines, must print nothing", Some(2.0)),
        (&CheckRule::EmptyOutput, Some(0), "a", false, "printed 1 line, must print nothing", Some(1.0)),
        (&CheckRule::EmptyOutput, Some(2), "", false, "exit code 2", None),
        (&coverage, Some(0), "TOTAL 10 1 80%\nmore", true, "", Some(80.0)),
        (&coverage, Some(0), "TOTAL 1 99%\nTOTAL 2 79.5%\n", false, "found 79.5 %, needs 80 %", Some(79.5)),
        (&coverage, Some(0), "TOTAL n/a%", false, "not a number", None),
        (&coverage, Some(1), "TOTAL 1 99%", false, "exit code 1", Some(99.0)),
        (&coverage, Some(2), "TOTAL 1 79%", false, "found 79 %, needs 80 %", Some(79.0)),
        (&coverage, Some(1), "nothing", false, "exit code 1", None),
        (&coverage, Some(0), "nothing", false, "was not found in the output", None),
        (&coverage, Some(127), "TOTAL 1 99%", false, "command not found", None),
        (&coverage, None, "TOTAL 1 99%", false, "signal", None),
        (&errors, Some(1), "Found 2 errors", true, "", Some(2.0)),
        (&errors, Some(2), "crashed", false, "was not found in the output", None),
        (&strict, Some(0), "Found 2 errors", true, "", Some(2.0)),
        (&strict, Some(1), "Found 2 errors", false, "exit code 1", Some(2.0)),
        (&strict, Some(1), "Found 3 errors", false, "found 3, needs at most 2", Some(3.0)),
        (&strict, Some(1), "crashed", false, "exit code 1", None),
        (&errors, Some(1), "Found 1,200 errors", false, "found 1200, needs at most 2", Some(1200.0)),
    ];
    for (rule, exit, output, holds, why, measured) in cases {
        let verdict = judge(rule, *exit, output);
        assert_eq!((verdict.holds, verdict.measured), (*holds, *measured), "{rule:?} {output}");
        assert!(verdict.why.contains(why) && verdict.why.is_empty() == *holds, "{}", verdict.why);
    }
    let least =
        CheckRule::Count { pattern: r"(\d+) tests".into(), at_least: Some(5.0), at_most: None, any_exit: false };
    assert_eq!(judge(&least, Some(0), "4 tests").why, "found 4, needs at least 5");
}

#[test]
fn task_type_uses_labels_then_title_then_checks() {
    let check = |command: &str| plain(command, CheckSource::Issue);
    let cases: &[(&str, &[&str], &[Check], TaskType)] = &[
        ("Fix the failing tests in auth", &[], &[], TaskType::TestFix),
        ("Parser crashes on empty input", &[], &[], TaskType::TestFix),
        ("Fix mypy errors in api", &[], &[], TaskType::TypeErrors),
        ("Fix clippy findings", &[], &[], TaskType::Lint),
        ("Fix a typo in the README", &[], &[], TaskType::Docs),
        ("Migrate from moment to luxon", &[], &[], TaskType::Migration),
        ("Refactor the store", &[], &[], TaskType::Refactor),
        ("Raise coverage of the parser", &[], &[], TaskType::Coverage),
        ("Bump serde to 2", &[], &[], TaskType::Dependency),
        ("Add an export button", &[], &[], TaskType::Feature),
        ("Hm", &["ralph:run"], &[], TaskType::Other),
        ("Add an export button", &["area: refactoring"], &[], TaskType::Refactor),
        ("Clean house", &["good-first-issue", "documentation"], &[], TaskType::Docs),
        ("Do it", &[], &[check("npx tsc --noEmit")], TaskType::TypeErrors),
        ("Do it", &[], &[check("cargo clippy"), check("cargo fmt --check")], TaskType::Lint),
        ("Do it", &[], &[check("cargo clippy"), check("cargo test")], TaskType::Other),
    ];
    for (title, labels, checks, expected) in cases {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(task_type(title, &labels, checks), *expected, "{title} {labels:?}");
    }
    for kind in TaskType::ALL {
        assert_eq!(TaskType::parse(kind.as_str()), Some(kind));
        assert!(kind.usual_iterations().0 < kind.usual_iterations().1);
    }
}
