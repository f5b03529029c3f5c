//! Deterministic mutations of the corpus: no input causes a panic, and each result has the base's tests.

use ralph_types::clock::Stopwatch;

use super::corpus;
use crate::{ChangedFile, MAX_FILE_BYTES, Reason, regions, test_module_files, with_base_tests, with_base_tests_of};

/// Texts to insert at a position, in turn.
const INSERTED: [&str; 24] = [
    "\"",
    "'",
    "`",
    "{",
    "}",
    "(",
    ")",
    "/*",
    "*/",
    "//",
    "\n",
    "\r\n",
    "é",
    "\\",
    "\"\"\"",
    "#if 0\n",
    "r#\"",
    "#[cfg(any())]\n",
    "if False:\n",
    "```",
    "end\n",
    "#;",
    "{-",
    "\u{feff}",
];

/// Checks that the result for a mutated branch has the base's tests, or reports each difference.
fn check(path: &str, base: &str, branch: &str) {
    let merge = with_base_tests(path, Some(base), branch);
    let result = merge.text.as_deref().unwrap_or(branch);
    if merge.not_judged.is_empty() {
        let texts = |source: &str| {
            let regions = regions(path, source).expect("a known language");
            let mut texts: Vec<String> =
                regions.into_iter().map(|region| format!("{}{}", region.condition, &source[region.range])).collect();
            texts.sort();
            texts
        };
        assert_eq!(texts(result), texts(base), "{path}\n{branch}");
    }
    let files = [ChangedFile { path, base: Some(base), branch: Some(branch) }];
    let tree = with_base_tests_of(&files, false, "");
    assert_eq!(tree.files.first().map(|(_, merge)| merge.text.clone()).unwrap_or_default(), merge.text);
    test_module_files(path, branch);
}

#[test]
fn mutated_branches_are_judged_or_reported() {
    for case in corpus() {
        for (turn, (at, _)) in case.base.char_indices().enumerate() {
            let (before, after) = case.base.split_at(at);
            check(&case.path, &case.base, before);
            check(&case.path, &case.base, after);
            let inserted = INSERTED[turn % INSERTED.len()];
            check(&case.path, &case.base, &format!("{before}{inserted}{after}"));
            let mut rest = after.chars();
            rest.next();
            check(&case.path, &case.base, &format!("{before}{}", rest.as_str()));
        }
    }
}

#[test]
fn text_of_one_language_does_not_panic_in_others() {
    let corpus = corpus();
    for (case, other) in corpus.iter().flat_map(|case| corpus.iter().map(move |other| (case, other))) {
        check(&case.path, &case.base, &other.base);
        check(&case.path, &other.base, &case.base);
    }
}

/// Each input repeats one piece many times. It takes milliseconds, unless the time grows faster than the length.
#[test]
fn long_files_take_less_than_two_seconds() {
    let pieces = [
        "/*",
        "*/",
        "\"",
        "'",
        "'\\",
        "`${",
        "{",
        "}",
        "(",
        "#[a] x ",
        "#[cfg(test)] x ",
        "mod a {",
        "///\n",
        "fn a() {",
        "/[/",
        "(*",
        "{|",
        "\\\n",
        "if a:\n",
        "else:\n",
        " x\n",
        "#if a\n",
        "#define a a\n",
        "@a ",
        "r#\"",
        "q\"a",
        "R\"(",
        "test {",
        ">>> a\n",
        "-- >>> a\n",
        "(module a b ",
        "#;",
        "unittest {} ",
        "a b ",
        ";",
        "/+ ",
        "def a(): 1\n",
        "\"\"\"\n>>> a\n\"\"\"\n",
        "#[cfg(all(any(",
        "def ==(a) 1\n",
        "__eq__ = a\n",
        "x: int = field(compare=False)\n",
        "bool operator==(a b);\n",
        "JSON.parse = a\n",
    ];
    for case in corpus() {
        for piece in pieces {
            let long = piece.repeat(20_000 / piece.len());
            let watch = Stopwatch::start();
            with_base_tests(&case.path, Some(&case.base), &long);
            assert!(watch.elapsed().as_secs() < 2, "{}: {piece}", case.path);
        }
        let indented: String = (0..400).map(|depth| format!("{}if a:\n", " ".repeat(depth))).collect();
        check(&case.path, &case.base, &indented);
    }
}

/// Pieces that made the time grow with the square of the length. `#` in a piece stands for a number.
#[test]
fn files_of_400_kib_take_less_than_ten_seconds() {
    let pieces = [
        ("a.d", "exit(0)\n"),
        ("a.d", "void f#(int a) {}\n"),
        ("a.zig", "exit(0)\n"),
        ("a.cpp", "void f#(int a) {}\n"),
        ("a.cpp", "#ifdef A\nassert(); int main() {}\n#endif\n"),
        ("a.java", "version {} else import a "),
        ("a.php", "def assert(x); end\n"),
        ("a.js", "\\\"\\'"),
        ("a.lua", "function assert#() {}\n"),
        ("a.sh", "if [ \"$0\" = \"$BASH_SOURCE\" ]; then\n"),
        ("a.pl", "if (caller) {\n"),
        ("a.py", "@a#\ndef b(): pass\n"),
        ("a.py", "  a=compare=False,\n"),
        ("a.rs", "#[test] fn a#() {}\n"),
    ];
    for (path, piece) in pieces {
        let mut text = String::new();
        for number in 0.. {
            if text.len() >= 400 << 10 {
                break;
            }
            // The directives have no numbers.
            let is_numbered = piece.contains("#(") || piece.contains("#\n");
            text.push_str(&if is_numbered { piece.replace('#', &number.to_string()) } else { piece.to_owned() });
        }
        let watch = Stopwatch::start();
        let half = &text[..text.floor_char_boundary(text.len() / 2)];
        for (base, branch) in [("", text.as_str()), (half, text.as_str()), (text.as_str(), half)] {
            let files = [ChangedFile { path, base: Some(base), branch: Some(branch) }];
            with_base_tests_of(&files, true, "");
        }
        assert!(watch.elapsed().as_secs() < 10, "{path}: {piece} took {:?}", watch.elapsed());
    }
}

#[test]
fn long_names_and_conditions_are_not_copied() {
    let long = "a".repeat(100_000);
    let rust = format!("mod {long} {{ #[test] fn b() {{}} #[test] fn c() {{}} }}\n");
    let cpp = format!("#if {long}\nvoid test_a() {{ assert(1); }}\n#endif\n");
    for (path, text) in [("a.rs", rust), ("a.cpp", cpp)] {
        let regions = regions(path, &text).expect("a known language");
        assert!(!regions.is_empty(), "{path}");
        assert!(regions.iter().all(|region| region.name.anchor.len() + region.condition.len() < 2_000), "{path}");
    }
}

#[test]
fn large_files_with_tests_of_the_base_are_reported() {
    let base = "#[test]\nfn a() {}\n";
    let large = format!("{base}{}", "// x\n".repeat(MAX_FILE_BYTES / 5));
    let of = |files: &[(&str, &str, &str)]| {
        let files: Vec<ChangedFile<'_>> = files
            .iter()
            .map(|(path, base, branch)| ChangedFile { path, base: Some(base), branch: Some(branch) })
            .collect();
        let reasons = with_base_tests_of(&files, false, "").files.into_iter().flat_map(|(_, merge)| merge.not_judged);
        reasons.map(|(_, reason)| reason).collect::<Vec<_>>()
    };
    assert_eq!(of(&[("a.rs", base, &large)]), [Reason::TooLarge]);
    assert_eq!(of(&[("a.rs", "fn a() {}\n", &large)]), []);
    // Documents of any size have one part.
    assert_eq!(of(&[("a.md", "# A\n", &large)]), []);
    let many = "const A: u8 = 1;\n".repeat(MAX_FILE_BYTES / 2 / 17);
    let name = |at: usize| format!("a{at}.rs");
    let names: Vec<String> = (0..20).map(name).collect();
    let tests = format!("{base}{many}");
    let files: Vec<(&str, &str, &str)> = names.iter().map(|name| (name.as_str(), base, tests.as_str())).collect();
    assert!(of(&files).contains(&Reason::TooLarge), "the number of items of all files is limited");
}

#[test]
fn unreadable_files_are_reported() {
    let merge = with_base_tests("a.rs", Some("#[test] fn a() {}\n"), "#[test] fn a() {}\nfn b() {\n");
    assert_eq!(merge.not_judged.first().map(|(_, reason)| reason), Some(&Reason::Unbalanced { line: 2 }));
    assert_eq!(with_base_tests("a.rs", Some("fn a() {}\n"), "fn b() {\n"), crate::FileMerge::default());
}
