//! Tests of single rules: conditions, macros, names, moves, and files of test modules.

use crate::{
    ChangedFile, Judgement, RegionKind, is_known, regions, test_module_files, with_base_tests, with_base_tests_of,
};

/// Returns the reasons why differences could not be judged.
pub(super) fn reasons(path: &str, base: &str, branch: &str) -> Vec<String> {
    let merge = with_base_tests(path, Some(base), branch);
    merge.not_judged.iter().map(|(name, reason)| format!("{name}: {reason}")).collect()
}

pub(super) fn merged(path: &str, base: &str, branch: &str) -> String {
    let merge = with_base_tests(path, Some(base), branch);
    assert_eq!(merge.not_judged, [], "{branch}");
    merge.text.unwrap_or_else(|| panic!("no difference: {branch}"))
}

pub(super) fn kinds(path: &str, source: &str) -> Vec<RegionKind> {
    regions(path, source).expect("a known language").into_iter().map(|region| region.name.kind).collect()
}

#[test]
fn condition_of_rust_item_decides_whether_it_is_a_test() {
    for (attribute, kind) in [
        ("#[cfg(test)]", Some(RegionKind::TestCode)),
        ("#[cfg(all(test, feature = \"x\"))]", Some(RegionKind::TestCode)),
        ("#[cfg(any(test, doctest))]", Some(RegionKind::TestCode)),
        ("#[cfg(any(test, feature = \"x\"))]", None),
        ("#[cfg(not(test))]", None),
        ("#[cfg(all(unix, not(test)))]", None),
        ("#[cfg(any())]", None),
        ("#[cfg_attr(test, derive(Debug))]", None),
        ("#[test]", Some(RegionKind::Test)),
        ("#[tokio::test(flavor = \"multi_thread\")]", Some(RegionKind::Test)),
        ("#[bench]", Some(RegionKind::Test)),
        ("#[inline]", None),
    ] {
        let found = kinds("a.rs", &format!("use b::c;\n{attribute}\npub(crate) async fn a() {{}}\n"));
        assert_eq!(found.first().copied(), kind, "{attribute}");
    }
    assert_eq!(kinds("a.rs", "proptest! { #[test] fn a(x in 0..1) {} }\n"), [RegionKind::Test]);
    assert_eq!(kinds("a.rs", "fn a() { #[cfg(test)] let x = 1; }\n"), [RegionKind::TestCode]);
    assert_eq!(kinds("a.rs", "#[cfg(test)]\nmacro_rules! check { () => {} }\n"), [RegionKind::TestCode]);
}

#[test]
fn fence_of_rust_documentation_decides_whether_it_is_a_test() {
    for (doc, is_test) in [
        ("/// ```\n/// a();\n/// ```\n", true),
        ("/// ~~~rust,should_panic\n/// a();\n/// ~~~\n", true),
        ("/// ```edition2021\n/// a();\n/// ```\n", true),
        ("///     a();\n", true),
        ("/** ```\na();\n``` */\n", true),
        ("#[doc = \"```\"]\n#[doc = \"a();\"]\n#[doc = \"```\"]\n", true),
        ("#[doc = include_str!(\"../README.md\")]\n", true),
        ("/// ```text\n/// a();\n/// ```\n", false),
        ("/// ```ignore\n/// a();\n/// ```\n", false),
        ("/// ```sh\n/// a\n/// ```\n", false),
        ("/// Text.\n", false),
        ("//// ```\n//// a();\n//// ```\n", false),
    ] {
        assert_eq!(!kinds("a.rs", &format!("{doc}pub fn a() {{}}\n")).is_empty(), is_test, "{doc}");
    }
    let base = "/// ```\n/// assert!(a());\n/// ```\npub fn a() {}\n";
    let branch = base.replacen("```", "```ignore", 1);
    assert_eq!(merged("a.rs", base, &branch), base);
}

/// The merge does not revert a condition outside the region, so a person decides.
#[test]
fn condition_around_base_test_is_reported() {
    let rust = "mod a {\n    #[cfg(test)]\n    mod tests {\n        fn b() {}\n    }\n}\n";
    let never = format!("#[cfg(feature = \"never\")]\n{rust}");
    let gone = "test module `a::tests`: the branch changed a condition that encloses it";
    assert_eq!(reasons("a.rs", rust, &never), [gone]);
    assert_eq!(reasons("a.rs", rust, &format!("#![cfg(any())]\n{rust}")), [gone]);
    assert_eq!(reasons("a.rs", rust, &format!("ignored! {{ {rust} }}")).len(), 1);
    let doc = "/// ```\n/// a();\n/// ```\npub fn a() {}\n";
    assert_eq!(
        reasons("a.rs", doc, &format!("#[cfg(any())]\n{doc}")),
        ["doctest `a`: the branch changed a condition that encloses it"]
    );
    let python = "def a():\n    '''\n    >>> a()\n    '''\n";
    let indented = "if False:\n    def a():\n        '''\n    >>> a()\n    '''\n";
    assert_eq!(reasons("a.py", python, indented), ["doctest `a`: the branch changed a condition that encloses it"]);
    let other = "if X:\n    pass\nelse:\n    def a():\n        '''\n        >>> a()\n        '''\n";
    assert_eq!(reasons("a.py", other, &other.replace('X', "True")).len(), 1);
}

#[test]
fn region_moves_out_of_condition_to_its_container() {
    let base = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
    let branch = "fn a() {}\n\nmod never {\n    #[cfg(test)]\n    mod tests {\n        fn c() {}\n    }\n}\n";
    assert_eq!(
        merged("a.rs", base, branch),
        "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n\nmod never {\n}\n"
    );
    // The module lost its condition, so the program now contains it.
    assert_eq!(merged("a.rs", base, &base.replace("#[cfg(test)]\n", "")), base);
    // Tests inside a function do not run.
    let hidden = "fn a() {\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n}\n";
    assert_eq!(merged("a.rs", base, hidden), "fn a() {\n}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n");
}

#[test]
fn alternatives_of_preprocessor_have_the_same_brackets() {
    let base = "#ifdef A\nint f() {\n#else\nint g() {\n#endif\n    return 1;\n}\n\nTEST_CASE(\"a\") { CHECK(1); }\n";
    assert_eq!(kinds("a.cpp", base), [RegionKind::Test]);
    assert_eq!(merged("a.cpp", base, &base.replace("CHECK(1)", "CHECK(2)")), base);
}

#[test]
fn test_without_its_item_is_reported() {
    let base = "/// ```\n/// a();\n/// ```\npub fn a() {}\n";
    assert_eq!(reasons("a.rs", base, "pub fn b() {}\n"), ["doctest `a`: its item no longer exists in the branch"]);
    // The same documentation on another item still runs.
    assert_eq!(reasons("a.rs", base, &base.replace("fn a", "fn b")), [""; 0]);
    let python = "def a():\n    '''\n    >>> a()\n    1\n    '''\n";
    let shadowed = format!("{python}\ndef a():\n    return 1\n");
    assert_eq!(reasons("a.py", python, &shadowed), ["doctest `a`: several items have this name"]);
}

#[test]
fn changed_macro_of_tests_is_reported() {
    let tests = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() { check!(1, 1); }\n}\n";
    let base = format!("macro_rules! check {{ ($a:expr, $b:expr) => {{ assert_eq!($a, $b) }} }}\n{tests}");
    let branch = base.replace("assert_eq!($a, $b)", "()");
    assert_eq!(
        reasons("a.rs", &base, &branch),
        ["test module `tests`: it uses the macro `check`, which the branch changed"]
    );
    let new = format!("macro_rules! check {{ () => {{}} }}\n{tests}");
    assert_eq!(reasons("a.rs", tests, &new).len(), 1);
    assert_eq!(reasons("a.rs", &base, &base.replace("macro_rules! check", "fn b() {}\nmacro_rules! check")), [""; 0]);
}

#[test]
fn only_the_tests_of_a_new_file_are_removed() {
    let merge = with_base_tests("a.rs", None, "fn a() {}\n\n#[cfg(test)]\nmod tests {}\n");
    assert_eq!(merge.text.as_deref(), Some("fn a() {}\n"));
    assert_eq!(merge.judged.first().map(|(_, judgement)| *judgement), Some(Judgement::Removed));
    assert_eq!(with_base_tests("a.rs", None, "fn a() {}\n"), crate::FileMerge::default());
}

#[test]
fn unknown_language_is_reported_if_tests_changed() {
    assert!(!is_known("a.vue") && !is_known("Makefile") && is_known("src/a.rs"));
    let base = "<script>\nif (import.meta.vitest) { x(1) }\n</script>\n";
    assert_eq!(reasons("a.vue", base, &base.replace("x(1)", "x(2)").replace("if", "if ")).len(), 1);
    assert_eq!(reasons("a.vue", base, &format!("{base}<p>\n")), [""; 0]);
    assert_eq!(reasons("a.json", base, ""), [""; 0]);
}

#[test]
fn region_moved_to_another_file_is_not_a_difference() {
    let tests = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {}\n}\n";
    let doc = "/// ```\n/// a();\n/// ```\npub fn a() {}\n";
    let old = format!("{doc}{tests}");
    let moved = |branch: &str| {
        let files = [
            ChangedFile { path: "src/a.rs", base: Some(&old), branch: None },
            ChangedFile { path: "src/b.rs", base: None, branch: Some(branch) },
        ];
        let merge = with_base_tests_of(&files, false, "");
        let lost = merge.files.iter().flat_map(|(path, merge)| {
            merge.not_judged.iter().map(move |(name, reason)| format!("{path}: {name}: {reason}"))
        });
        lost.collect::<Vec<_>>()
    };
    assert_eq!(moved(&old), [""; 0]);
    let changed = old.replace("/// a();", "/// b();");
    assert_eq!(moved(&changed), ["src/a.rs: doctest `a`: its file no longer exists in the branch"]);
    assert_eq!(moved("").len(), 2);
}

/// `nim doc` does not run examples of unexported functions.
#[test]
fn documentation_of_a_remaining_item_is_restored() {
    let doc = "  runnableExamples:\n    doAssert a() == 1\n";
    let base = format!("func a*(): int =\n{doc}  1\n");
    let branch = format!("func a*(): int =\n  2\n\nfunc b(): int =\n{doc}  1\n");
    let merge = with_base_tests("a.nim", Some(&base), &branch);
    assert_eq!(merge.text, Some(format!("func a*(): int =\n{doc}  2\n\nfunc b(): int =\n  1\n")));
    let away = [
        ChangedFile { path: "src/a.nim", base: Some(&base), branch: Some("func a*(): int =\n  2\n") },
        ChangedFile { path: "src/b.nim", base: None, branch: Some(&base) },
    ];
    let paths: Vec<String> = with_base_tests_of(&away, false, "").files.into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["src/a.nim", "src/b.nim"]);
}

/// `python3 -m doctest a.py` reports no number of tests, so a missing test would not be noticed.
#[test]
fn doctest_may_move_only_to_a_file_with_doctests() {
    let item = "def a():\n    \"\"\"\n    >>> a()\n    1\n    \"\"\"\n    return 1\n";
    let other = item.replace("a()", "b()");
    let both = format!("{other}{item}");
    let reasons = |files: &[(&'static str, Option<&str>, Option<&str>)]| -> Vec<String> {
        let file = |(path, base, branch): &(&'static str, _, _)| ChangedFile { path, base: *base, branch: *branch };
        let merge = with_base_tests_of(&files.iter().map(file).collect::<Vec<_>>(), false, "");
        let all = merge.files.into_iter().flat_map(|(_, merge)| merge.not_judged);
        all.map(|(name, reason)| format!("{name}: {reason}")).collect()
    };
    let gone = ["doctest `a`: its item no longer exists in the branch"];
    assert_eq!(reasons(&[("a.py", Some(item), Some("")), ("b.py", None, Some(item))]), gone);
    assert_eq!(reasons(&[("a.py", Some(item), Some("")), ("b.py", Some("x = 1\n"), Some(item))]), gone);
    assert_eq!(reasons(&[("a.py", Some(item), Some("")), ("b.py", Some(&other), Some(&both))]), [""; 0]);
    assert_eq!(reasons(&[("a.py", Some(item), None), ("b.py", None, Some(item))]), [""; 0]);
    let gone = ["doctest `a`: its file no longer exists in the branch"];
    assert_eq!(reasons(&[("a.py", Some(item), None), ("x/b.py", None, Some(item))]), gone);
}

#[test]
fn condition_of_d_ends_with_its_block() {
    let base = "long a() { return 1; }\nunittest { assert(a() == 1); }\n";
    for condition in ["version (none):", "static if (false):", "debug:"] {
        let text = merged("a.d", base, &base.replace("unittest", &format!("{condition}\nunittest")));
        assert!(text.find("unittest") < text.find(condition), "{text}");
        let other = format!("struct B\n{{\n{condition}\n    long b;\n}}\n{base}");
        assert_eq!(reasons("a.d", base, &other), [""; 0], "{condition}");
    }
}

#[test]
fn new_neutralizer_of_tests_is_reported() {
    for (path, base, question) in [
        (
            "a.d",
            "long a()\n{\n    return 1;\n}\nunittest\n{\n    assert(a() == 1);\n}\n",
            "version (unittest) return 2;",
        ),
        ("a.zig", "fn a() i64 {\n    return 1;\n}\ntest \"a\" {\n    _ = a();\n}\n", "if (builtin.is_test) return 2;"),
        (
            "a.nim",
            "proc a(): int =\n    return 1\n\nwhen isMainModule:\n  doAssert a() == 1\n",
            "when isMainModule: return 2",
        ),
        ("a.ex", "defmodule A do\n    return 1\nend\n", "if Code.loaded?(ExUnit), do: 2"),
        ("a.py", "def a():\n    return 1\n", "import __main__"),
        ("a.ts", "function a() {\n    return 1\n}\n", "if (import.meta.vitest) return 2"),
        ("b.ex", "defmodule A do\n    return 1\nend\n", "System.halt(0)"),
        ("a.hs", "a = do\n    return 1\n", "exitSuccess"),
    ] {
        let branch = base.replace("    return 1", &format!("    {question}\n    return 1"));
        let reason = format!("tests of the file: a new line of the program may keep them from running: `{question}`");
        assert_eq!(reasons(path, base, &branch), [reason], "{path}");
        assert_eq!(reasons(path, &branch, &branch.replace("return 1", "return 3")), [""; 0], "{path}");
    }
    assert_eq!(reasons("a.nim", "let a = 1\n", "let a = 1\nwhen isMainModule:\n  echo a\n"), [""; 0]);
    assert_eq!(reasons("a.d", "void main() {}\n", "void main() { exit(0); }\n"), [""; 0]);
}

#[test]
fn changed_template_that_tests_use_is_reported() {
    let base = "template same(a, b: int) =\n  doAssert a == b\n\nwhen isMainModule:\n  same(1, 1)\n  doAssert true\n";
    let found = reasons("a.nim", base, &base.replace("a == b", "true or a == b"));
    assert_eq!(found, ["test module `isMainModule`: it uses the macro `same`, which the branch changed"]);
    let base = "enum string same(string a) = \"assert(\" ~ a ~ \");\";\nunittest { mixin(same!\"1 == 1\"); }\n";
    let found = reasons("a.d", base, &base.replace("assert", "cast(void)"));
    assert_eq!(found, ["test `unittest`: it uses the macro `same`, which the branch changed"]);
}

#[test]
fn new_overload_of_a_tested_function_is_reported() {
    let base =
        "long a(long x) { return 1; }\nTEST_CASE(\"a\") { CHECK(a(1) == 1); }\nTEST_CASE(\"b\") { CHECK(b()); }\n";
    let found = reasons("a.cpp", base, &format!("static int a(int x) {{ return 2; }}\n{base}"));
    assert_eq!(found, ["test `TEST_CASE(\"a\")`: several items have this name"]);
    for added in [
        "long a(long x);\n",
        "long c(long x) { return 1; }\n",
        "#if X\nlong d() { return 1; }\n#else\nlong d() { return 2; }\n#endif\n",
    ] {
        assert_eq!(reasons("a.cpp", base, &format!("{added}{base}")), [""; 0], "{added}");
    }
}

#[test]
fn self_tests_of_programs_are_regions() {
    for (path, source, kind) in [
        ("A.java", "class A {\n    static void selfTest() {\n        assert a() == 1;\n    }\n}\n", RegionKind::Test),
        ("a.c", "static void test_a(void) {\n    assert(a() == 1);\n}\n", RegionKind::Test),
        ("a.c", "#ifdef TEST\nint main(void) {\n    return a() != 1;\n}\n#endif\n", RegionKind::TestCode),
        ("a.js", "if (require.main === module) {\n    assert(a() === 1);\n}\n", RegionKind::TestModule),
        (
            "a.php",
            "<?php\n$a = 3;\nif (realpath($argv[0]) === __FILE__) {\n    assert(a() === 1);\n}\n",
            RegionKind::TestModule,
        ),
        ("a.ml", "let test () =\n  assert (a = 1)\n", RegionKind::TestModule),
        ("a.ml", "let () = if shown then test ()\n", RegionKind::TestModule),
    ] {
        assert_eq!(kinds(path, source), [kind], "{source}");
        let branch = source.replace('1', "2").replace("if shown", "if false");
        assert_eq!(merged(path, source, &branch), source);
    }
    for (path, source) in [
        ("A.java", "class A {\n    static void latest() {\n        assert a() == 1;\n    }\n}\n"),
        ("a.c", "#ifdef TEST\n#else\nint main(void) { return 1; }\n#endif\n"),
        ("a.js", "if (require.main === module) {\n    main();\n}\n"),
        ("a.ml", "let testable = 1\n\nlet () = main ()\n"),
    ] {
        assert!(kinds(path, source).is_empty(), "{source}");
    }
}

#[test]
fn python_statements_cannot_hide_tests() {
    let base = "class A:\n    \"\"\"\n    >>> 1\n    1\n    \"\"\"\n\n\nclass ATest(TestCase):\n    def test_a(self):\n        pass\n";
    for statement in [
        "A.__doc__ = None",
        "__doc__ = ''",
        "setattr(A, '__doc__', '')",
        "del A.__doc__",
        "del ATest.test_a",
        "ATest.test_a = None",
        "ATest = None",
    ] {
        let branch = format!("{base}\n\n{statement}\n");
        assert_eq!(merged("a.py", base, &branch).trim_end(), base.trim_end(), "{statement}");
    }
    for statement in ["A.b = 1", "app.testing = True", "x = a == b", "b(test_c=1)", "def c():\n    A.__doc__ = None"] {
        let branch = format!("{base}\n\n{statement}\n");
        assert_eq!(with_base_tests("a.py", Some(base), &branch), Default::default(), "{statement}");
    }
}

#[test]
fn new_decorator_may_hide_a_doctest() {
    let base = "def a():\n    \"\"\"\n    >>> a()\n    1\n    \"\"\"\n    return 1\n";
    for decorator in ["@property", "@functools.lru_cache(maxsize=None)", "@a.setter", "@dataclass(frozen=True)"] {
        assert_eq!(reasons("a.py", base, &format!("{decorator}\n{base}")), [""; 0], "{decorator}");
    }
    for added in ["@hidden\n", "@hide.all(1)\n", "def cache(f):\n    return 1\n\n\n@cache\n"] {
        let found = reasons("a.py", base, &format!("{added}{base}"));
        assert_eq!(found, ["doctest `a`: the branch changed a condition that encloses it"], "{added}");
    }
}

#[test]
fn files_of_test_modules_are_found() {
    let source = "#[cfg(test)]\nmod tests;\nmod a { #[cfg(test)] mod b; }\n#[cfg(test)]\n#[path = \"../x.rs\"]\nmod c;\nmod d;\n";
    let found = test_module_files("src/foo.rs", source);
    let contains = |path: &str| found.iter().any(|module| module.contains(path));
    for path in ["src/foo/tests.rs", "src/foo/tests/mod.rs", "src/foo/tests/more.rs", "src/foo/a/b.rs", "x.rs"] {
        assert!(contains(path), "{path}");
    }
    for path in ["src/foo/d.rs", "src/foo.rs", "src/foo/a.rs", "src/x.rs"] {
        assert!(!contains(path), "{path}");
    }
    assert!(test_module_files("src/lib.rs", "#[cfg(test)] mod tests;").iter().any(|one| one.contains("src/tests.rs")));
    assert_eq!(test_module_files("a.py", source), []);
}

#[test]
fn program_that_uses_the_test_macro_is_reported() {
    let base = "int a(int x) {\n    return x;\n}\n\n#ifdef TEST\nint main(void) {\n    return a(1) != 2;\n}\n#endif\n";
    let branch = base.replace("    return x;", "#ifdef TEST\n    return 2;\n#endif\n    return x;");
    let reason = "tests of the file: a new line of the program may keep them from running: `#ifdef TEST`";
    assert!(reasons("a.c", base, &branch).contains(&reason.to_owned()), "{:?}", reasons("a.c", base, &branch));
    let other = base.replace("    return x;", "#ifdef LINUX\n    return 2;\n#endif\n    return x;");
    assert_eq!(reasons("a.c", base, &other), [""; 0]);
}
