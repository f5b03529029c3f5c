//! Scripts that only their names or commands mark as starters of checks, although they may be the subject of the checks. A run shows
//! the difference: a check passes if a script that decides its result reports success at once, and fails if the script is its
//! subject.

use super::commands::is_runner;
use super::language::Language;
use super::marks::{is_code, is_test_code, is_test_file};
use super::role::fails_tests;
use super::starts::CheckStart;

/// Whether a run may decide the role of a script of the base. False for a script that runs tests, names tests, or asserts: its output
/// may decide the result of a check as well. `content` is the base's version.
pub fn may_be_subject(path: &str, content: &str, start: &CheckStart<'_>) -> bool {
    pattern!(NAMES_TESTS, r"(?i)\b(?:tests?|specs?|suites?)\b|\bassert");
    // Words that a command searches in the output of a runner.
    pattern!(RESULT, r"(?i)\b(?:pass(?:e[ds])?|fail(?:ed|s|ures?)?|ok|success\w*|done|errors?|green)\b");
    // A program of another language is the subject instead.
    pattern!(
        PROGRAM,
        r"(?m)(?:^|[\s;&|(!$])(?:python[\d.]*|node|deno|bun|ruby|perl|php|javac?|cargo|go|make|cmake|(?:g?cc|[cg]\+\+|clang)\S*|np[mx]|ghc|ocaml\w*|dune|nim|lua\w*|dotnet|swift|mix|elixir|raco|racket)\s"
    );
    let names_other = || {
        let file = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let ending = |path: &str| path.rsplit_once('.').map(|(_, ending)| ending.to_owned());
        let is_other = |other: &str| is_test_code(other) || is_code(other) && ending(other) != ending(path);
        let mut others = start.base_paths().filter(|other| is_other(other) && file(other) != file(path));
        others.any(|other| content.contains(&file(other)))
    };
    let starts_program = || Language::of(path) == Some(Language::Shell) && PROGRAM.is_match(content);
    let is_asked = || start.commands().any(|command| RESULT.is_match(command)) && RESULT.is_match(content);
    start.is_script(path)
        && !is_test_file(path)
        && !NAMES_TESTS.is_match(content)
        && !content.lines().any(|line| is_runner(line) || fails_tests(line))
        && !names_other()
        && !starts_program()
        && !is_asked()
}

/// Returns a version of a script that reports success at once if it is started, and does not change if it is imported. `None` if the
/// language is unknown.
pub fn succeeding(path: &str, content: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let first = content.lines().next().filter(|line| line.starts_with("#!")).unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is = |extensions: &[&str], program: &str| match extension {
        "" => first.contains(program),
        _ => extensions.contains(&extension),
    };
    // Statements that must come first.
    let (line, leading): (String, &[&str]) = if is(&["py"], "python") {
        ("if __name__ == \"__main__\": raise SystemExit(0)".to_owned(), &["from __future__"])
    } else if is(&["js", "mjs", "cjs", "ts", "mts"], "node") {
        (
            format!("if ((process.argv[1] ?? \"\").endsWith({name:?})) process.exit(0);"),
            &["\"use strict\"", "'use strict'"],
        )
    } else if is(&["rb"], "ruby") {
        ("exit 0 if $PROGRAM_NAME == __FILE__".to_owned(), &[])
    } else if is(&["pl"], "perl") {
        ("exit 0 unless caller;".to_owned(), &[])
    } else if is(&["php"], "php") {
        (
            "if (realpath($_SERVER[\"SCRIPT_FILENAME\"]) === __FILE__) exit(0);".to_owned(),
            &["<?php", "declare(", "namespace "],
        )
    } else if is(&["sh", "bash", "zsh", "ksh"], "sh") || extension.is_empty() && first.is_empty() {
        ("exit 0".to_owned(), &[])
    } else {
        return None;
    };
    let is_leading = |text: &str| text.starts_with("#!") || leading.iter().any(|start| text.starts_with(start));
    let mut lines: Vec<&str> = content.lines().collect();
    let at = lines.iter().rposition(|text| is_leading(text)).map_or(0, |at| at + 1);
    // A statement over several lines.
    if at > 0 && lines[at - 1].ends_with('(') {
        return None;
    }
    lines.insert(at, &line);
    Some(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: [&str; 9] = [
        "greet.sh",
        "check.sh",
        "calc.py",
        "tests/health.sh",
        "bin/health-check",
        "tools/verify_receipt.py",
        "tools/verify.sh",
        "ci/report.sh",
        "tests/test_calc.py",
    ];

    #[test]
    fn scripts_without_tests_may_be_subjects() {
        let commands = ["sh greet.sh Ann | grep -qx Hello", "sh check.sh", "make test", "sh tests/health.sh"];
        let start = CheckStart::new(commands, BASE);
        let may_be = |path: &str, content: &str| may_be_subject(path, content, &start);
        assert!(may_be("greet.sh", "#!/bin/sh\necho Hello\n"));
        assert!(may_be("bin/health-check", "if grep -q warn \"$1\"; then exit 1; fi\n"));
        assert!(may_be("tools/verify_receipt.py", "import sys\nprint(\"mismatch\")\nsys.exit(1)\n"));
        for (path, content) in [
            ("check.sh", "python3 -m unittest\n"),
            ("check.sh", "./tests/all\n"),
            ("check.sh", "python3 calc.py && sh test_calc.py\n"),
            ("check.sh", "java -cp . Calc <in.txt >out.txt\n"),
            ("tests/health.sh", "[ $(sh bin/health-check) = ok ]\n"),
            ("calc.py", "def add(a, b):\n    return a + b\n"),
            ("tools/verify.sh", "make check\n"),
        ] {
            assert!(!may_be(path, content), "{path}: {content}");
        }
        let start = CheckStart::new(["sh ci/report.sh | grep -q 'all passed'"], BASE);
        assert!(!may_be_subject("ci/report.sh", "echo '2 passed'\n", &start));
    }

    #[test]
    fn succeeding_script_exits_first() {
        for (path, content, wanted) in [
            ("a.sh", "#!/bin/sh\necho a\n", Some("#!/bin/sh\nexit 0\necho a\n")),
            ("bin/a", "echo a\n", Some("exit 0\necho a\n")),
            (
                "bin/a",
                "#!/usr/bin/env python3\nfrom __future__ import annotations\nprint(1)\n",
                Some(
                    "#!/usr/bin/env python3\nfrom __future__ import annotations\nif __name__ == \"__main__\": raise SystemExit(0)\nprint(1)\n",
                ),
            ),
            ("a.py", "from __future__ import (\n    annotations,\n)\n", None),
            ("a.pl", "print 1;\n", Some("exit 0 unless caller;\nprint 1;\n")),
            ("bin/a", "#!/usr/bin/env lua\nprint(1)\n", None),
            ("a.go", "package main\n", None),
        ] {
            assert_eq!(succeeding(path, content).as_deref(), wanted, "{path}");
        }
    }
}
