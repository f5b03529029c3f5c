//! Tests of programs that are also tests, of honest changes of programs, and of tests that moved.

use super::details::{kinds, merged, reasons};
use crate::{ChangedFile, RegionKind, with_base_tests_of};

/// Returns the reasons why differences in several files could not be judged.
fn reasons_of(files: &[(&'static str, Option<&str>, Option<&str>)], collects: bool) -> Vec<String> {
    let file = |(path, base, branch): &(&'static str, _, _)| ChangedFile { path, base: *base, branch: *branch };
    let merge = with_base_tests_of(&files.iter().map(file).collect::<Vec<_>>(), collects, "");
    let all = merge.files.into_iter().flat_map(|(path, merge)| {
        let judged = merge.judged.into_iter().map(|(name, judgement)| format!("{name}: {judgement:?}"));
        let not_judged = merge.not_judged.into_iter().map(|(name, reason)| format!("{name}: {reason}"));
        judged.chain(not_judged).map(|text| format!("{path}: {text}")).collect::<Vec<_>>()
    });
    all.collect()
}

#[test]
fn main_program_with_assertions_is_a_test() {
    for (path, source, kind) in [
        (
            "a.py",
            "def a():\n    return 1\n\n\nif __name__ == \"__main__\":\n    for i in [1]:\n        assert a() == 7\n    print(\"ok\")\n",
            RegionKind::TestModule,
        ),
        (
            "a.c",
            "int a(void) { return 1; }\n\nint main(void) {\n    assert(a() == 7);\n    puts(\"ok\");\n    return 0;\n}\n",
            RegionKind::Test,
        ),
        ("a.cpp", "int main() {\n    if (x) { y(); }\n    assert(a() == 7);\n}\n", RegionKind::Test),
        ("A.java", "class A {\n    static void main() {\n        assert a() == 7;\n    }\n}\n", RegionKind::Test),
    ] {
        assert_eq!(kinds(path, source), [kind], "{source}");
        assert_eq!(merged(path, source, &source.replace('7', "8")), source);
        assert_eq!(merged(path, source, &source.replace("assert", "print")), source);
        assert_eq!(reasons(path, source, &source.replace("return 1", "return 7")), [""; 0]);
    }
    for (path, source) in [
        ("a.py", "if __name__ == \"__main__\":\n    asserted = main()\n"),
        ("a.py", "def main():\n    assert a()\n\n\nif __name__ == \"__main__\":\n    main()\n"),
        ("a.c", "int main(int argc, char **argv) {\n    assert(argc > 1);\n    open(argv[1]);\n    run();\n}\n"),
        ("a.c", "int main(void) {\n    run();\n    return asserted;\n}\n"),
    ] {
        assert!(kinds(path, source).is_empty(), "{source}");
    }
}

#[test]
fn part_for_a_macro_of_tests_is_a_test() {
    let program = "void a(char *b) { (void) b; }\n\n";
    for part in [
        "#ifdef SELFTEST\nint main(void) {\n    check(\"7\");\n    return failed;\n}\n#endif\n",
        "#if defined(A_TESTS) && X\nint main(void) {\n    check(\"7\");\n}\n#endif\n",
        "#ifndef A_H\n#ifdef UNITTEST\nint main(void) {\n    check(\"7\");\n}\n#endif\n#endif\n",
        "#ifdef DEMO\nstatic void check(int b) { assert(b != 7); }\n#endif\n#ifdef DEMO\nint main(void) {\n    check(7);\n    assert(a());\n    run();\n    run();\n}\n#endif\n",
    ] {
        let base = format!("{program}{part}");
        assert!(kinds("a.c", &base).contains(&RegionKind::TestCode), "{part}");
        if !part.contains("DEMO") {
            assert_eq!(merged("a.c", &base, &base.replace('7', "8")), base);
        }
        assert_eq!(reasons("a.c", &base, &base.replace("(void) b", "*b = 1")), [""; 0]);
    }
    for part in [
        "#ifdef LATEST\nint main(void) {\n    run();\n}\n#endif\n",
        "#ifndef TEST\nint main(void) {\n    run();\n}\n#endif\n",
        "#ifdef DEBUG\nvoid c(int b) { assert(b); }\n#endif\n",
        "#define DEMO\n#ifdef DEMO\nint main(void) {\n    assert(a());\n    run();\n    run();\n}\n#endif\n",
        "#ifdef _WIN32\nint main(void) {\n    assert(a());\n    run();\n    run();\n}\n#endif\n",
        "#if defined(TEST) || defined(DEMO)\nint main(void) {\n    run();\n}\n#endif\n",
    ] {
        assert!(kinds("a.c", &format!("{program}{part}")).is_empty(), "{part}");
    }
}

#[test]
fn text_with_a_session_is_a_document() {
    let base = "Usage\n\n    >>> a()\n    1\n";
    assert_eq!(kinds("docs/usage.txt", base), [RegionKind::Document]);
    assert_eq!(merged("docs/usage.txt", base, &base.replace('1', "2")), base);
    assert!(kinds("requirements.txt", "a>=1\n").is_empty());
}

#[test]
fn overload_that_no_test_can_call_is_not_a_difference() {
    for (path, base, added) in [
        (
            "a.d",
            "int a(int b, int c) { return b; }\nunittest { assert(a(2, 5) == 2); }\n",
            "double a(double b) { return b; }\n",
        ),
        (
            "a.cpp",
            "int a(int b) { return b; }\nTEST_CASE(\"a\") { CHECK(a(f(1, 2)) == 1); }\n",
            "int a(std::map<int, int> b, int c) { return c; }\n",
        ),
        ("a.cpp", "int a(int b) { return b; }\nTEST_CASE(\"a\") { CHECK(a(1) == 1); }\n", "int a() { return 1; }\n"),
    ] {
        assert_eq!(reasons(path, base, &format!("{base}{added}")), [""; 0], "{added}");
    }
    let java =
        "class A {\n    static int a(int b, int c) { return b; }\n    static void testA() { assert a(2, 5) == 2; }\n";
    let branch = |added: &str| format!("{java}    {added}\n}}\n");
    let java = branch("");
    assert_eq!(reasons("A.java", &java, &branch("static double a(double b) { return b; }")), [""; 0]);
    for added in [
        "static double a(double b, double c) { return b; }",
        "static int a(int... b) { return 1; }",
        "static <T> int a(Map<T, T> b, T c) { return 1; }",
    ] {
        assert_eq!(
            reasons("A.java", &java, &branch(added)),
            ["test `A::testA`: several items have this name"],
            "{added}"
        );
    }
    let base = "int a(int b, int c) { return b; }\nunittest { assert(2.a(5) == 2); mixin(\"a(1)\"); }\n";
    for added in [
        "int a(long b, long c) { return 1; }\n",
        "int a(int b, int c, int d = 1) { return 1; }\n",
        "int a(long b) { return 1; }\n",
    ] {
        assert_eq!(reasons("a.d", base, &format!("{base}{added}")).len(), 1, "{added}");
    }
}

#[test]
fn main_outside_of_unit_tests_is_program_code() {
    let base = "int a() { return 1; }\n\nunittest { assert(a() == 1); }\n";
    for added in [
        "version (unittest)\n{\n}\nelse\n{\n    void main()\n    {\n        import std.stdio : writeln;\n        writeln(a());\n    }\n}\n",
        "version (unittest) {} else int main(string[] args)\n{\n    return a();\n}\n",
        "version (unittest) {} else {\n    import std.stdio;\n    void main() { writeln(a()); }\n}\n",
    ] {
        assert_eq!(reasons_of(&[("a.d", Some(base), Some(&format!("{base}{added}")))], false), [""; 0], "{added}");
    }
    for added in [
        "version (unittest) {} else { int b() { return 2; } }\n",
        "version (unittest) {} else { void main() {} int b() { return 2; } }\n",
        "version (unittest) { int b() { return 2; } } else { void main() {} }\n",
    ] {
        let found = reasons_of(&[("a.d", Some(base), Some(&format!("{base}{added}")))], false);
        assert!(!found.is_empty(), "{added}");
    }
}

#[test]
fn exit_of_the_command_line_is_program_code() {
    let nim = "proc a*(): int =\n  1\n\nwhen isMainModule:\n  doAssert a() == 1\n";
    let usage = "proc usage*() =\n  if paramCount() > 0 and paramStr(1) == \"--help\":\n    quit(0)\n\n";
    let elixir = "defmodule A do\n  @doc \"\"\"\n      iex> A.a()\n      1\n  \"\"\"\n  def a(), do: 1\nend\n";
    let cli = "\ndefmodule A.CLI do\n  @spec main(list) :: any\n  def main([\"--version\"]) do\n    System.halt(0)\n  end\nend\n";
    let racket = "#lang racket/base\n(define (a) 1)\n(module+ test\n  (check-equal? (a) 1))\n";
    let main = "(module+ main\n  (when (member \"--help\" args)\n    (exit 0)))\n";
    let d = "int a() { return 1; }\nunittest { assert(a() == 1); }\n";
    for (path, base, branch) in [
        ("a.nim", nim, nim.replace("when", &format!("{usage}when"))),
        ("a.ex", elixir, format!("{elixir}{cli}")),
        ("a.rkt", racket, format!("{racket}{main}")),
        ("a.d", d, format!("{d}void main()\n{{\n    exit(0);\n}}\n")),
        ("a.d", &format!("{d}void main() {{ a(); }}\n"), format!("{d}void main()\n{{\n    exit(0);\n}}\n")),
    ] {
        assert_eq!(reasons_of(&[(path, Some(base), Some(&branch))], false), [""; 0], "{branch}");
    }
    for (path, base, branch) in [
        // The tested function calls the function that exits, or exits itself.
        ("a.nim", nim, nim.replace("when", &format!("{usage}when")).replace("  1\n", "  usage()\n  1\n")),
        ("a.nim", nim, nim.replace("  1\n", "  if paramCount() >= 0: quit(0)\n  1\n")),
        (
            "a.nim",
            &nim.replace("a() == 1", "a() == 1\n  usage()"),
            nim.replace("when", &format!("{usage}when")).replace("a() == 1", "a() == 1\n  usage()"),
        ),
        (
            "a.nim",
            nim,
            nim.replace(
                "when",
                &format!("{}when", usage.replace("if paramCount() > 0 and paramStr(1) == \"--help\"", "if true")),
            ),
        ),
        ("a.rkt", racket, format!("{racket}(exit 0)\n")),
        // The known `main` runs tests.
        (
            "a.d",
            &format!("{d}void main()\n{{\n    runTests();\n}}\n"),
            format!("{d}void main()\n{{\n    exit(0);\n}}\n"),
        ),
    ] {
        let found = reasons(path, base, &branch);
        assert!(found.iter().any(|reason| reason.contains("may keep them from running")), "{branch}: {found:?}");
    }
}

const FUNCTIONS: &str = "pub fn a() -> u8 { 1 }\npub fn b() -> u8 { 2 }\n";
const TEST_A: &str = "    #[test]\n    fn tests_a() {\n        assert_eq!(a(), 1);\n    }\n";
const TEST_B: &str = "    /// Tests `b`.\n    #[test]\n    fn tests_b() {\n        assert_eq!(helper(), 2);\n    }\n\n    fn helper() -> u8 {\n        b()\n    }\n";

fn rust(program: &str, tests: &[&str]) -> String {
    format!("{program}\n#[cfg(test)]\nmod tests {{\n    use super::*;\n\n{}}}\n", tests.join("\n"))
}

#[test]
fn divided_test_module_is_not_a_difference() {
    let base = rust(FUNCTIONS, &[TEST_A, TEST_B]);
    let one = rust("pub fn a() -> u8 { 1 }\n", &[TEST_A]);
    let two = rust("pub fn b() -> u8 { 2 }\n", &[TEST_B]);
    let divided = |one: &str, two: &str| {
        reasons_of(
            &[("src/c.rs", Some(&base), None), ("src/c/a.rs", None, Some(one)), ("src/c/mod.rs", None, Some(two))],
            false,
        )
    };
    let partly = |one: &str, two: &str| {
        reasons_of(&[("src/c.rs", Some(&base), Some(one)), ("src/d.rs", None, Some(two))], false)
    };
    assert_eq!(divided(&one, &two), [""; 0]);
    assert_eq!(partly(&one, &two), [""; 0]);
    // The other file already has tests.
    let known = TEST_A.replace("tests_a", "tests_d");
    let files = [
        ("src/c.rs", Some(base.as_str()), Some(one.as_str())),
        ("src/d.rs", Some(&*rust("", &[&known])), Some(&*rust("", &[&known, TEST_B]))),
    ];
    assert_eq!(reasons_of(&files, false), [""; 0]);
    for changed in [
        rust("", &[&TEST_B.replace('2', "3")]),
        rust("", &[&TEST_B.replace("#[test]", "#[test]\n    #[ignore]")]),
        rust("", &[TEST_B, "    fn more() {}\n"]),
        rust("", &[TEST_B]).replace("use super::*;", "use super::*;\n    use fake::assert_eq;"),
        rust("", &[TEST_B]).replace("use super::*;", "#![cfg(any())]"),
        rust("", &[TEST_B]).replace("cfg(test)", "cfg(all(test, never))"),
        rust("macro_rules! assert_eq { () => {} }\n", &[TEST_B]),
        rust("", &[]),
    ] {
        assert!(!divided(&one, &changed).is_empty(), "{changed}");
        assert!(!partly(&one, &changed).is_empty(), "{changed}");
    }
}

#[test]
fn doctest_may_move_within_a_folder_if_the_runner_collects_files() {
    let item = "def a():\n    \"\"\"\n    >>> a()\n    1\n    \"\"\"\n    return 1\n";
    let gone = ["x/a.py: doctest `a`: its item no longer exists in the branch"];
    let moved = |to: &'static str, branch: &str, collects| {
        reasons_of(&[("x/a.py", Some(item), Some("from x.b import a\n")), (to, None, Some(branch))], collects)
    };
    assert_eq!(moved("x/b.py", item, true), [""; 0]);
    assert_eq!(moved("x/b.py", item, false)[..1], gone);
    assert_eq!(moved("y/b.py", item, true)[..1], gone);
    assert_eq!(moved("x/b.py", &item.replace("    1\n", "    2\n"), true)[..1], gone);
}
