//! Tests of definitions that decide whether assertions pass: equality of types, and names that shadow built-in ones.

use super::details::merged;
use crate::{ChangedFile, FileMerge, with_base_tests, with_base_tests_of};

/// Path, base, and a branch that changes the base by replacements.
type Change<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

const PYTHON: &str = "from dataclasses import dataclass\n\n\n@dataclass\nclass Duration:\n    unit: str\n    seconds: int\n\n\nclass Missing:\n    \"\"\"No value.\"\"\"\n";
const RUST: &str = "/// Length.\n#[derive(Debug, PartialEq)]\npub struct Duration {\n    pub unit: char,\n}\n";
const RUBY: &str = "class Money\n  attr_reader :cents\n\n  def ==(other)\n    cents == other.cents && currency == other.currency\n  end\n\n  def plus(other)\n    self\n  end\nend\n\nclass Missing\n  def x\n    1\n  end\nend\n";
const HASKELL: &str = "module Shape where\n\ndata Rect = Rect { width :: Int, height :: Int } deriving (Eq, Show)\n";
const CPP: &str = "struct Point {\n    int x, y;\n    bool operator==(const Point& other) const { return x == other.x && y == other.y; }\n};\n";
const JAVA: &str = "record Money(int cents) {\n}\n\nclass Rate {\n    int part;\n}\n";
const KOTLIN: &str = "data class Money(val cents: Int, val currency: String) {\n    val x = 1\n}\n";
const GO: &str = "package calc\n\nfunc Mul(a, b int) int {\n\treturn 0\n}\n";
const NIM: &str = "type Money* = object\n  cents*: int\n\nproc plus*(a: Money): Money =\n  a\n";
const JS: &str = "class Money {\n  plus(other) {\n    return this;\n  }\n}\n";
const D: &str = "struct Money {\n    int cents;\n}\n";
const SWIFT: &str = "struct Money: Equatable {\n    let cents: Int\n}\n";
const CSHARP: &str = "record Money(int Cents) {\n}\n";
const LUA: &str = "local Money = {}\nlocal mt = {}\n\nreturn Money\n";
const PERL: &str = "package Calc;\n\nsub mul { return 0 }\n\n1;\n";
const C: &str = "#include \"title.h\"\n\nvoid title(char *text) {}\n";
const PHP: &str = "<?php\nnamespace App;\n\nfunction title(string $text): string {\n    return $text;\n}\n";
const OCAML: &str = "let mul a b = 0\n";
const JULIA: &str = "struct Money\n    cents::Int\nend\n";

fn branch(base: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(base.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} in {text}");
        text.replacen(from, to, 1)
    })
}

#[test]
fn equality_of_an_existing_type_is_restored() {
    let changes: [(Change<'_>, &[(&str, &str)]); 21] = [
        (
            ("a.py", PYTHON, &[("seconds: int", "seconds: int = field(compare=False)")]),
            &[("compare=False", "compare=True")],
        ),
        (("a.py", PYTHON, &[("@dataclass\n", "@dataclass(eq = False)\n")]), &[("eq = False", "eq = True")]),
        (
            (
                "a.py",
                PYTHON,
                &[("int\n\n", "int\n\n    def __eq__(self, other):\n        return self.unit == other.unit\n\n")],
            ),
            &[("def __eq__(self, other):\n        return self.unit == other.unit", "pass")],
        ),
        (("a.py", PYTHON, &[("int\n\n", "int\n    __eq__ = same\n\n")]), &[("__eq__ = same", "pass")]),
        (
            ("a.py", PYTHON, &[("value.\"\"\"\n", "value.\"\"\"\n\n\nDuration.__eq__ = same\n")]),
            &[("Duration.__eq__ = same", "pass")],
        ),
        (
            (
                "a.rs",
                RUST,
                &[
                    (", PartialEq", ""),
                    (
                        "\n}\n",
                        "\n}\n\nimpl PartialEq for Duration {\n    fn eq(&self, other: &Self) -> bool {\n        self.unit == other.unit\n    }\n}\n",
                    ),
                ],
            ),
            &[
                ("/// Length", "#[derive(PartialEq)]\n/// Length"),
                (
                    "impl PartialEq for Duration {\n    fn eq(&self, other: &Self) -> bool {\n        self.unit == other.unit\n    }\n}",
                    "",
                ),
            ],
        ),
        (
            ("a.rb", RUBY, &[("cents == other.cents && ", "")]),
            &[("    currency ==", "    cents == other.cents && currency ==")],
        ),
        (
            ("a.hs", HASKELL, &[("(Eq, Show)", "Show\n\ninstance Eq Rect where\n  a == b = width a == width b")]),
            &[
                ("module", "{-# LANGUAGE StandaloneDeriving #-}\nmodule"),
                ("instance Eq Rect where\n  a == b = width a == width b", "deriving instance Eq Rect"),
            ],
        ),
        (("a.hpp", CPP, &[(" && y == other.y", "")]), &[("x == other.x", "x == other.x && y == other.y")]),
        (
            (
                "a.java",
                JAVA,
                &[(
                    "(int cents) {\n",
                    "(int cents) {\n    @Override\n    public boolean equals(Object other) {\n        return true;\n    }\n",
                )],
            ),
            &[("@Override\n    public boolean equals(Object other) {\n        return true;\n    }", "")],
        ),
        (
            ("a.kt", KOTLIN, &[("val x = 1", "val x = 1\n    override fun equals(other: Any?) = other is Money")]),
            &[("override fun equals(other: Any?) = other is Money", "")],
        ),
        (
            ("a.go", GO, &[("0\n}\n", "0\n}\n\nfunc panic(problem any) { _ = problem }\n")]),
            &[("func panic(problem any) { _ = problem }", "")],
        ),
        (
            ("a.nim", NIM, &[("proc plus", "proc `==`*(a, b: Money): bool =\n  true\n\nproc plus")]),
            &[("proc `==`*(a, b: Money): bool =\n  true", "")],
        ),
        (
            ("a.js", JS, &[("class", "Object.is = (a, b) => {\n  return true;\n};\nclass")]),
            &[("Object.is = (a, b) => {\n  return true;\n};", "")],
        ),
        (
            ("a.d", D, &[("cents;", "cents;\n    bool opEquals(Money other) const { return true; }")]),
            &[("bool opEquals(Money other) const { return true; }", "")],
        ),
        (
            ("a.swift", SWIFT, &[("Int\n", "Int\n    static func == (a: Money, b: Money) -> Bool { true }\n")]),
            &[("static func == (a: Money, b: Money) -> Bool { true }", "")],
        ),
        (
            ("a.cs", CSHARP, &[("{\n", "{\n    public virtual bool Equals(Money other) => true;\n")]),
            &[("public virtual bool Equals(Money other) => true;", "")],
        ),
        (
            ("a.lua", LUA, &[("\nreturn", "mt.__eq = function(a, b)\n  return true\nend\n\nreturn")]),
            &[("mt.__eq = function(a, b)\n  return true\nend", "")],
        ),
        (
            ("a.jl", JULIA, &[("end\n", "end\nBase.:(==)(a::Money, b::Money) = true\n")]),
            &[("Base.:(==)(a::Money, b::Money) = true", "")],
        ),
        (("a.ml", OCAML, &[("0\n", "0\n\nlet (=) a b = true\n")]), &[("let (=) a b = true", "")]),
        (
            ("a.php", PHP, &[("}\n", "}\n\nfunction strcmp($a, $b) {\n    return 0;\n}\n")]),
            &[("function strcmp($a, $b) {\n    return 0;\n}", "")],
        ),
    ];
    for ((path, base, changes), back) in changes {
        let text = branch(base, changes);
        assert_eq!(merged(path, base, &text), branch(&text, back), "{path}");
        let again = merged(path, base, &text);
        assert_eq!(with_base_tests(path, Some(base), &again).text, None, "{path}: merged again");
    }
}

#[test]
fn new_definition_of_built_in_name_is_removed() {
    for (path, base, definition) in [
        ("a.py", PYTHON, "def len(x):\n    return 0\n"),
        ("a.py", PYTHON, "builtins.AssertionError = ValueError\n"),
        ("a.py", PYTHON, "AssertionError = ValueError\n"),
        ("a.c", C, "int strcmp(const char *a, const char *b) { return 0; }\n"),
        ("a.h", C, "#define strcmp(a, b) ((a)[0] - (b)[0])\n"),
        ("a.go", GO, "var true = false\n"),
        ("a.rb", RUBY, "class String\n  def ==(other)\n    size == other.size\n  end\nend\n"),
        ("a.rb", RUBY, "def raise(*)\nend\n"),
        ("a.js", JS, "globalThis.Error = class {};\n"),
        ("a.lua", LUA, "function assert(value) return value end\n"),
        ("a.lua", LUA, "_G.assert = print\n"),
        ("a.pm", PERL, "*CORE::GLOBAL::die = sub { 1 };\n"),
        ("a.nim", NIM, "template doAssert*(x: bool) = discard\n"),
    ] {
        let text = format!("{base}\n{definition}");
        let result = merged(path, base, &text);
        let first = definition.lines().find(|line| !line.starts_with("class ")).expect("a line");
        let count = |text: &str| text.matches(first.trim()).count();
        assert!(count(&result) < count(&text), "{path}: {result}");
    }
}

#[test]
fn new_equality_of_plain_class_becomes_comparison_of_all_fields() {
    let text = branch(
        PYTHON,
        &[(
            "value.\"\"\"\n",
            "value.\"\"\"\n\n    def __eq__(self, other):\n        return isinstance(other, Missing)\n",
        )],
    );
    assert!(merged("a.py", PYTHON, &text).contains("self.__reduce_ex__(4)[:3] == other"), "Python");
    let text = branch(RUBY, &[("  def x", "  def ==(other)\n    other.is_a?(Missing)\n  end\n\n  def x")]);
    assert!(merged("a.rb", RUBY, &text).contains("instance_variables.to_h"), "Ruby");
    let text =
        branch(JAVA, &[("int part;", "int part;\n    @Override public boolean equals(Object other) { return true; }")]);
    assert!(merged("a.java", JAVA, &text).contains("getDeclaredFields"), "Java");
}

/// `Comparable` derives `==` from the order of Ruby, so the run keeps the order and compares by the base's order.
#[test]
fn order_of_ruby_decides_equality_only_with_comparable() {
    let base =
        "class Version\n  include Comparable\n\n  def <=>(other)\n    [a, b] <=> [other.a, other.b]\n  end\nend\n";
    let text = branch(base, &[("[a, b] <=> [other.a, other.b]", "a <=> other.a")]);
    let result = merged("a.rb", base, &text);
    assert!(
        result.contains("    a <=> other.a\n") && result.contains("def base_order(other)\n    [a, b] <=>"),
        "{result}"
    );
    let text =
        branch(RUBY, &[("  def x", "  include Comparable\n\n  def <=>(other)\n    x <=> other.x\n  end\n\n  def x")]);
    assert!(merged("a.rb", RUBY, &text).contains("  end\ndef ==(other); self.class == other.class"), "{text}");
    let sorted = text.replace("  include Comparable\n", "");
    assert_eq!(with_base_tests("a.rb", Some(RUBY), &sorted), FileMerge::default());
}

#[test]
fn program_keeps_its_own_definitions() {
    let changes: [Change<'_>; 19] = [
        // Types of the branch.
        (
            "a.py",
            PYTHON,
            &[("class Missing", "class New:\n    def __eq__(self, other):\n        return True\n\n\nclass Missing")],
        ),
        ("a.py", PYTHON, &[("seconds: int", "seconds: int\n    cached: int = field(default=0, compare=False)")]),
        (
            "a.rs",
            RUST,
            &[(
                "\n}\n",
                "\n}\n\npub struct New;\n\nimpl PartialEq for New {\n    fn eq(&self, _: &Self) -> bool {\n        true\n    }\n}\n",
            )],
        ),
        ("a.rb", RUBY, &[("class Missing", "class New\n  def ==(other)\n    true\n  end\nend\n\nclass Missing")]),
        // Comparisons that the base did not have.
        (
            "a.rs",
            "pub struct Rate;\n",
            &[(
                "Rate;\n",
                "Rate;\n\nimpl PartialEq for Rate {\n    fn eq(&self, _: &Self) -> bool {\n        true\n    }\n}\n",
            )],
        ),
        (
            "a.rs",
            RUST,
            &[(
                "\n}\n",
                "\n}\n\nimpl PartialEq<char> for Duration {\n    fn eq(&self, other: &char) -> bool {\n        true\n    }\n}\n",
            )],
        ),
        (
            "a.hpp",
            "struct Rate {\n    int part;\n};\n",
            &[("part;\n", "part;\n    bool operator==(const Rate& other) const = default;\n")],
        ),
        // New names of fields.
        ("a.rb", RUBY, &[(":cents", ":amount"), ("cents == other.cents", "amount == other.amount")]),
        // Other derived traits.
        ("a.rs", RUST, &[("Debug, PartialEq", "Debug, Clone, PartialEq, Eq, Hash")]),
        ("a.hs", HASKELL, &[("(Eq, Show)", "(Eq, Ord, Show)")]),
        // Output and conditions of the program.
        ("a.js", JS, &[("  plus", "  toJSON() {\n    return 1;\n  }\n\n  plus")]),
        ("a.rb", RUBY, &[("  def x", "  def ===(other)\n    true\n  end\n\n  def x")]),
        // Names that only look like built-in ones.
        ("a.py", PYTHON, &[("class Missing", "def total(x):\n    len = 3\n    return len\n\n\nclass Missing")]),
        ("a.py", PYTHON, &[("class Missing:\n", "class Missing:\n    def len(self):\n        return 0\n\n")]),
        (
            "a.c",
            C,
            &[(
                "void",
                "static int strcmp_fast(const char *a) { return 0; }\n\nstatic int fabs(int a) { return a; }\n\nint abort(int a);\n\nvoid",
            )],
        ),
        ("a.go", GO, &[("0\n}\n", "0\n}\n\nfunc (s *stack) len() int {\n\treturn 0\n}\n\nfunc panics() {}\n")]),
        (
            "a.js",
            JS,
            &[(
                "class",
                "globalThis.app = {};\nconst keys = Object.keys(a);\nif (Object.is === undefined) { a(); }\nclass",
            )],
        ),
        ("a.lua", LUA, &[("\nreturn", "local assert = assert\nassert(Money == Money)\nlocal type = type\nreturn")]),
        (
            "a.php",
            PHP,
            &[("}\n", "}\n\nclass Bag {\n    public function count(): int {\n        return 1;\n    }\n}\n")],
        ),
    ];
    for (path, base, changes) in changes {
        let text = branch(base, changes);
        assert_eq!(with_base_tests(path, Some(base), &text), FileMerge::default(), "{path}: {text}");
    }
}

#[test]
fn definition_required_by_the_task_is_kept() {
    let text = branch(RUBY, &[("cents == other.cents && ", "")]);
    let files = [ChangedFile { path: "a.rb", base: Some(RUBY), branch: Some(&text) }];
    for (task, is_kept) in [
        ("Two Money values with the same currency must be equal.", true),
        ("Compare `Money` by currency.", true),
        ("Money must reject different currencies.", false),
        ("Values must be equal.", false),
    ] {
        assert_eq!(with_base_tests_of(&files, false, task).files.is_empty(), is_kept, "{task}");
    }
    let text = format!("{GO}\nfunc panic(a any) {{}}\n");
    let files = [ChangedFile { path: "a.go", base: Some(GO), branch: Some(&text) }];
    assert!(with_base_tests_of(&files, false, "Declare an own `panic`.").files.is_empty());
}

#[test]
fn definition_may_be_in_another_file_than_its_type() {
    let old = branch(RUST, &[(", PartialEq", "")]);
    let new = "use crate::Duration;\n\nimpl PartialEq for Duration {\n    fn eq(&self, _: &Self) -> bool {\n        true\n    }\n}\n";
    let files = [
        ChangedFile { path: "src/lib.rs", base: Some(RUST), branch: Some(&old) },
        ChangedFile { path: "src/eq.rs", base: None, branch: Some(new) },
    ];
    let merge = with_base_tests_of(&files, false, "");
    let texts: Vec<&str> = merge.files.iter().filter_map(|(_, merge)| merge.text.as_deref()).collect();
    assert_eq!(texts.len(), 2, "{merge:?}");
    assert!(texts[0].starts_with("#[derive(PartialEq)]\n") && !texts[1].contains("impl"), "{texts:?}");
    // A definition that only moved is not a change.
    let moved =
        branch(RUBY, &[("  def ==(other)\n    cents == other.cents && currency == other.currency\n  end\n", "")]);
    let new = "class Money\n  def ==(other)\n    cents == other.cents && currency == other.currency\n  end\nend\n";
    let files = [
        ChangedFile { path: "a.rb", base: Some(RUBY), branch: Some(&moved) },
        ChangedFile { path: "b.rb", base: None, branch: Some(new) },
    ];
    assert!(with_base_tests_of(&files, false, "").files.is_empty());
}

#[test]
fn operators_name_their_types() {
    for (path, text, name) in [
        ("a.nim", "proc `==`*(one, other: Money): bool =\n  true\n", "definition `Money::==`"),
        ("a.hpp", "bool operator==(const shop::Money& a, const shop::Money& b);\n", "definition `Money::==`"),
        ("a.hpp", "struct Money {\n    friend bool operator!=(Money a, Money b);\n};\n", "definition `Money::!=`"),
        (
            "a.hpp",
            "struct Money {\n    auto operator<=>(const Money&) const = default;\n};\n",
            "definition `Money::<=>`",
        ),
        ("a.swift", "func == (a: Money, b: Money) -> Bool { true }\n", "definition `Money::==`"),
        (
            "a.cs",
            "class Money {\n    public static bool operator ==(Money a, Money b) => true;\n}\n",
            "definition `Money::==`",
        ),
        ("a.go", "func (m *Money) Equal(other *Money) bool {\n\treturn true\n}\n", "definition `Money::Equal`"),
        ("a.hs", "instance Eq a => Eq (Tree a) where\n  a == b = True\n", "definition `Tree::Eq`"),
        ("a.rs", "impl<T: Eq> std::cmp::PartialEq for Tree<T> {}\n", "definition `Tree::PartialEq`"),
        ("a.rb", "Money = Struct.new(:cents) do\n  def ==(other)\n    true\n  end\nend\n", "definition `Money::==`"),
        ("a.py", "class A:\n    x: int = field(\n        compare=False,\n    )\n", "definition `A::x`"),
    ] {
        let names: Vec<String> =
            crate::regions(path, text).expect("a language").iter().map(|region| region.name.to_string()).collect();
        assert_eq!(names, [name], "{text}");
    }
}

#[test]
fn scripts_are_read_by_lines() {
    for (path, text, names) in [
        (
            "a.pm",
            "use Test::More;\nsub add;\nsub mul {\n    1;\n}\nis(mul(2), 4,\n  \"mul\");\ndone_testing;\n",
            "use, is, done_testing",
        ),
        ("a.pm", "sub is_new { 1 }\nis_new();\nunless (caller) { run() }\n", ""),
        ("a.pl", "if (!caller) {\n    exit main(@ARGV);\n}\n", ""),
        ("a.pl", "sub test_add\n{\n    die if add(1) != 2;\n}\nrun_tests();\n", "test_add"),
        ("a.R", "if (!interactive()) stopifnot(a == 1)\nadd <- function(a) a\n", "main"),
        ("a.sh", "test_a() { [ 1 = 2 ] || exit 1; }\nfile=x\nself_test() {\n  fine=1\n  exit 1\n}\n", "test_a"),
        ("a.lua", "local function test_a()\n  assert(a)\nend\nendpoint = 1\nrun_tests()\n", "test_a"),
        ("a.tcl", "if {$argv0 eq [info script]} {\n    main\n}\n", ""),
        ("bin/a", "#!/usr/bin/perl\nsub test_a { ok(1) }\n# --test\n", "test_a"),
        ("a.sh", "test_connection() {\n  [ $1 = 2 ] || return 1\n}\n", ""),
    ] {
        let regions = crate::regions(path, text).expect("a language");
        let found: Vec<&str> = regions.iter().map(|region| region.name.anchor.as_str()).collect();
        assert_eq!(found.join(", "), names, "{path}: {text}");
    }
}
