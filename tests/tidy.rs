//! Keeps the shape of the source: layers, headers, sizes and words that have no place where they stand.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// Which layers each layer may name; `*` is every one. A new top-level module needs a row of its own.
const LAYERS: [(&str, &[&str]); 22] = [
    ("main", &["*"]),
    ("app", &["*"]),
    ("cli", &["*"]),
    ("http", &["store", "forge", "domain", "clock", "telemetry", "config", "failpoint"]),
    (
        "engine",
        &[
            "domain",
            "render",
            "store",
            "forge",
            "agent",
            "provider",
            "workspace",
            "checks",
            "process",
            "clock",
            "config",
            "telemetry",
            "escalate",
            "mcp",
            "embed",
            "failpoint",
        ],
    ),
    ("forge", &["domain", "clock", "process", "net"]),
    ("agent", &["domain", "clock", "process", "net"]),
    ("provider", &["domain", "clock", "process", "net"]),
    ("workspace", &["domain", "clock", "process", "failpoint"]),
    ("checks", &["domain", "clock", "process"]),
    ("store", &["domain", "clock", "process", "failpoint"]),
    ("mcp", &["domain", "store"]),
    ("escalate", &["domain", "clock", "process", "net"]),
    ("embed", &["domain"]),
    ("render", &["domain"]),
    ("domain", &[]),
    ("process", &["clock", "domain", "failpoint"]),
    ("net", &[]),
    ("config", &["domain"]),
    ("clock", &["domain"]),
    ("telemetry", &["domain", "clock", "config"]),
    ("failpoint", &[]),
];

/// What the functional core must not name, and why.
const BANNED_IN_DOMAIN: [(&str, &str); 8] = [
    (r"\basync\b", "the core is synchronous; do the waiting in an adapter"),
    (r"\btokio\b", "the core has no runtime"),
    (r"\bstd::fs\b", "the core does not touch files; take their text as a value"),
    (r"\bInstant\b", "time is a value; take a Timestamp"),
    (r"\bSystemTime\b", "time is a value; take a Timestamp"),
    (r"\bstd::env\b", "only config reads the environment"),
    (r"\breqwest\b", "the core does not talk to servers"),
    (r"\brusqlite\b", "the core does not know the store"),
];

/// What must not be left in any source file.
const BANNED: [(&str, &str); 3] = [
    (r"\btodo!\s*\(", "write it, or leave it out"),
    (r"\bunimplemented!\s*\(", "write it, or leave it out"),
    (r"\bdbg!\s*\(", "use tracing"),
];

/// Longest function, in lines, outside of tests.
const MAX_FUNCTION: usize = 100;
/// Longest file, in lines, without its tests.
const MAX_FILE: usize = 600;
/// Functions that are longer, with their length; entries may shrink and go, never grow or come.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];
/// Files that are longer, with their length; entries may shrink and go, never grow or come.
const LONG_FILES: &[(&str, usize)] = &[];

/// A source file: its path from the top, its text, and its code without comments, text literals and tests.
struct Source {
    path: String,
    text: String,
    code: String,
    is_test: bool,
}

#[test]
fn layers_name_only_what_is_below_them() {
    report(sources("src").iter().flat_map(layer_faults));
}

#[test]
fn nothing_leaves_its_layer_by_super() {
    report(sources("src").iter().flat_map(super_faults));
}

#[test]
fn the_core_is_pure() {
    let core = sources("src").into_iter().filter(|file| layer(&file.path) == "domain").collect::<Vec<_>>();
    report(core.iter().flat_map(|file| banned(file, &BANNED_IN_DOMAIN)));
}

#[test]
fn nothing_is_left_unfinished() {
    report(sources("src").iter().chain(&sources("crates")).flat_map(|file| banned(file, &BANNED)));
}

#[test]
fn every_dependency_has_its_line() {
    let read = |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("a file");
    let (manifest, contributing) = (read("Cargo.toml"), read("CONTRIBUTING.md"));
    let table = contributing.split("## Dependencies").nth(1).expect("the table");
    let named: BTreeSet<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .flat_map(|cell| cell.split(", "))
        .collect();
    let mut within = false;
    report(manifest.lines().filter_map(|line| {
        if line.starts_with('[') {
            within = line.ends_with("dependencies]");
        }
        let name = line.split([' ', '.', '=']).next().filter(|name| within && !name.is_empty())?;
        let told = name.starts_with(['[', '#']) || named.contains(name);
        (!told).then(|| format!("CONTRIBUTING.md:1: the table of dependencies leaves out `{name}`"))
    }));
}

#[test]
fn every_file_says_what_it_is_for() {
    let files = sources("src").into_iter().chain(sources("crates")).chain(sources("tests")).collect::<Vec<_>>();
    report(
        files
            .iter()
            .filter(|file| !has_header(&file.text))
            .map(|file| format!("{}:1: begin the file with a `//!` line that says what it is for", file.path)),
    );
}

#[test]
fn functions_and_files_stay_short() {
    let files = sources("src");
    let functions: Vec<(String, String, usize, usize)> = files
        .iter()
        .filter(|file| !file.is_test)
        .flat_map(|file| {
            functions(&file.code).into_iter().map(|(name, at, length)| (file.path.clone(), name, at, length))
        })
        .collect();
    let long = functions.iter().filter(|(.., length)| *length > MAX_FUNCTION);
    let too_long = long.clone().filter_map(|(path, name, at, length)| {
        let listed = LONG_FUNCTIONS.iter().find(|(file, function, _)| file == path && function == name);
        ratchet(&format!("{path}:{at}: function `{name}`"), *length, MAX_FUNCTION, listed.map(|entry| entry.2))
    });
    let gone = LONG_FUNCTIONS.iter().filter(|(path, name, _)| !long.clone().any(|(p, n, ..)| p == path && n == name));
    let stale = gone.map(|(path, name, _)| format!("{path}: `{name}` is short now; take it out of LONG_FUNCTIONS"));
    let lengths =
        || files.iter().filter(|file| !file.is_test).map(|file| (&file.path, file.code.trim_end().lines().count()));
    let long_files = lengths().filter(|(_, length)| *length > MAX_FILE).filter_map(|(path, length)| {
        let listed = LONG_FILES.iter().find(|(file, _)| file == path).map(|entry| entry.1);
        ratchet(&format!("{path}:1: this file"), length, MAX_FILE, listed)
    });
    let stale_files = LONG_FILES
        .iter()
        .filter(|(path, _)| !lengths().any(|(file, length)| file == path && length > MAX_FILE))
        .map(|(path, _)| format!("{path}: is short now; take it out of LONG_FILES"));
    report(too_long.chain(stale).chain(long_files).chain(stale_files));
}

/// W3: codes are compared in constant time, by what `hmac` has for it: a comparison of bytes tells by its time how many of
/// them were right.
#[test]
fn codes_are_compared_in_constant_time() {
    let keyed = sources("src").into_iter().filter(|file| file.code.contains("Hmac<")).collect::<Vec<_>>();
    report(keyed.iter().flat_map(comparisons_of_codes));
    // Those that take a code from outside.
    for path in ["src/forge/signature.rs", "src/render/marker.rs", "src/mcp.rs"] {
        let file = keyed.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("{path} has moved"));
        assert!(VERIFIES.is_match(&file.code), "{path} does not verify by `verify_slice` or its like");
    }
}

static VERIFIES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\.verify(?:_slice|_truncated_left)?\(").expect("pattern"));

/// Lines of a file with keyed codes that compare one by `==`, `!=`, `eq`, or by its text.
fn comparisons_of_codes(file: &Source) -> Vec<String> {
    static COMPARES: LazyLock<Regex> = LazyLock::new(|| {
        let code = r"(?:digest|signature|mac|code|tag|token|finalize|into_bytes|sign)";
        let calls = r"(?:\([^)]*\)|\.[a-z_]+|\[[^\]]*\])*";
        let pattern = format!(r"\b{code}\b{calls}\s*[!=]=|(?:[!=]=|\.(?:eq|ne|cmp)\()\s*[&*]*(?:\w+\.)*{code}\b");
        Regex::new(&pattern).expect("pattern")
    });
    let lengths = Regex::new(r"\.len\(\)\s*[!=]=").expect("pattern");
    let faults = file.code.lines().enumerate().filter(|(_, line)| COMPARES.is_match(line) && !lengths.is_match(line));
    faults
        .map(|(at, line)| {
            format!(
                "{}:{}: `{}` compares a code; use `verify_slice`, which takes as long for any",
                file.path,
                at + 1,
                line.trim()
            )
        })
        .collect()
}

#[test]
fn comparisons_of_codes_are_seen() {
    let cases = [
        ("if digest == expected { }", 1),
        ("if expected != mac { }", 1),
        ("mac.finalize().into_bytes()[..] == given[..]", 1),
        ("given.eq(&signature)", 1),
        ("sign(&secret, body) == value", 1),
        ("mac.verify_slice(digest).is_ok()", 0),
        ("digest.len() == HEX_CHARS", 0),
        ("let digest = if header == x { a } else { b };", 0),
        ("// digest == expected", 0),
    ];
    for (code, faults) in cases {
        assert_eq!(comparisons_of_codes(&source("src/a.rs", code)).len(), faults, "{code}");
    }
}

/// Fails with all faults, one a line.
fn report(faults: impl Iterator<Item = String>) {
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{} to mend:\n{}\n", faults.len(), faults.join("\n"));
}

fn ratchet(what: &str, length: usize, limit: usize, listed: Option<usize>) -> Option<String> {
    match listed {
        None => Some(format!("{what} has {length} lines, at most {limit} are allowed; split it by what its parts do")),
        Some(allowed) if length > allowed => Some(format!("{what} grew from {allowed} to {length} lines; split it")),
        Some(allowed) if length < allowed => {
            Some(format!("{what} shrank to {length} lines; lower its entry from {allowed}"))
        }
        Some(_) => None,
    }
}

/// The top-level module that a file under `src/` belongs to.
fn layer(path: &str) -> &str {
    let inner = path.strip_prefix("src/").unwrap_or(path);
    inner.split(['/', '.']).next().unwrap_or(inner)
}

fn layer_faults(file: &Source) -> Vec<String> {
    let own = layer(&file.path);
    if file.is_test || own == "lib" {
        return Vec::new();
    }
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == own) else {
        return vec![format!("{}:1: `{own}` is no known layer; give it a row in LAYERS of tests/tidy.rs", file.path)];
    };
    let mut faults = Vec::new();
    for (line, named) in edges(&file.code) {
        let known = LAYERS.iter().any(|(name, _)| *name == named);
        if known && named != own && !allowed.contains(&"*") && !allowed.contains(&named.as_str()) {
            let may = if allowed.is_empty() { "nothing else".to_owned() } else { allowed.join(", ") };
            faults.push(format!(
                "{}:{line}: `{own}` must not name `{named}` (it may name {may}); move the type to `domain`, or let the \
                 caller pass what is needed",
                file.path
            ));
        }
    }
    faults
}

/// The top-level modules that code names by `crate::`, each with its line; groups are looked into.
fn edges(code: &str) -> BTreeSet<(usize, String)> {
    static ROOT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(?:crate|ralph_bot)\s*::\s*").expect("pattern"));
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[a-z_][a-z0-9_]*").expect("pattern"));
    let mut found = BTreeSet::new();
    for root in ROOT.find_iter(code) {
        let rest = &code[root.end()..];
        let mut add = |at: usize| {
            let at = at + rest[at..].len() - rest[at..].trim_start().len();
            if let Some(name) = NAME.find(&rest[at..]) {
                found.insert((line_of(code, root.end() + at), name.as_str().to_owned()));
            }
        };
        if !rest.starts_with('{') {
            add(0);
            continue;
        }
        let mut depth = 0;
        for (at, character) in rest.char_indices() {
            match character {
                '{' => {
                    depth += 1;
                    if depth == 1 {
                        add(at + 1);
                    }
                }
                '}' => depth -= 1,
                ',' if depth == 1 => add(at + 1),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

fn super_faults(file: &Source) -> Vec<String> {
    static SUPERS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(?:super\s*::\s*)+").expect("pattern"));
    static INLINE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^(\s*)(?:pub(?:\([^)]*\))? )?mod \w+ \{\s*$").expect("pattern"));
    // src/a.rs is one module below the root, src/a/b.rs two.
    let depth = file.path.matches('/').count();
    let mut open: Vec<usize> = Vec::new();
    let mut faults = Vec::new();
    for (number, line) in file.code.lines().enumerate() {
        let indentation = line.len() - line.trim_start().len();
        if line.trim() == "}" && open.last() == Some(&indentation) {
            open.pop();
        }
        let ups = SUPERS.find_iter(line).map(|found| found.as_str().matches("super").count()).max().unwrap_or(0);
        if ups >= depth + open.len() && ups > 0 {
            faults.push(format!(
                "{}:{}: this `super::` leaves the layer `{}`; write `crate::…`, so that the layers can be seen",
                file.path,
                number + 1,
                layer(&file.path)
            ));
        }
        if INLINE.is_match(line) {
            open.push(indentation);
        }
    }
    faults
}

fn banned(file: &Source, words: &[(&str, &str)]) -> Vec<String> {
    if file.is_test {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (pattern, advice) in words {
        for found in Regex::new(pattern).expect("pattern").find_iter(&file.code) {
            faults.push(format!(
                "{}:{}: `{}`: {advice}",
                file.path,
                line_of(&file.code, found.start()),
                found.as_str()
            ));
        }
    }
    faults
}

fn has_header(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.strip_prefix("//!").is_some_and(|words| !words.trim().is_empty()))
}

/// Name, first line and length in lines of each function with a body.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    static FUNCTION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bfn\s+(\w+)").expect("pattern"));
    let mut found = Vec::new();
    for start in FUNCTION.captures_iter(code) {
        let begin = start.get(0).map_or(0, |whole| whole.start());
        let mut depth = 0i32;
        for (at, character) in code[begin..].char_indices() {
            match character {
                ';' if depth == 0 => break,
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                _ => {}
            }
            if character == '}' && depth == 0 {
                let first = line_of(code, begin);
                found.push((start[1].to_owned(), first, line_of(code, begin + at) - first + 1));
                break;
            }
        }
    }
    found
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// All Rust files under a folder of the package, in order.
fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    collect(&root.join(folder), &mut paths);
    paths.sort();
    assert!(!paths.is_empty(), "no Rust files under {folder}/");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file is readable text");
        let path = path.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
        let is_test = path.starts_with("tests/") || path.ends_with("/tests.rs") || path.contains("/tests/");
        let code = without_tests(&code_only(&text));
        Source { path, text, code, is_test }
    };
    paths.into_iter().map(read).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder is readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

/// The code before the module of unit tests, which is the last thing in a file.
fn without_tests(code: &str) -> String {
    static TESTS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?m)^#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?mod \w+ \{").expect("pattern")
    });
    TESTS.find(code).map_or(code, |found| &code[..found.start()]).to_owned()
}

/// Source with comments and the insides of text and character literals blanked; lines stay where they are.
fn code_only(source: &str) -> String {
    static SKIP: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r###"(?s)//[^\n]*|/\*.*?\*/|\bb?r"[^"]*"|\bb?r#"(?:[^"]|"[^#])*"#|\bb?r##".*?"##|"(?:[^"\\]|\\.)*"|'(?:[^'\\\n]|\\[^\n]{1,10}?)'"###,
        )
        .expect("pattern")
    });
    let blank = |found: &regex::Captures<'_>| -> String {
        found[0].chars().map(|character| if character == '\n' { '\n' } else { ' ' }).collect()
    };
    SKIP.replace_all(source, blank).into_owned()
}

fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned(), code: without_tests(&code_only(text)), is_test: false }
}

#[test]
fn faults_of_layers_are_seen() {
    let cases = [
        ("src/forge.rs", "use crate::domain::model::ids::Sha;", 0),
        ("src/forge.rs", "use crate::store::Store;", 1),
        ("src/forge/http.rs", "fn f() { crate::engine::go() }", 1),
        ("src/checks.rs", "use crate::{\n    domain::{ids::Sha, task},\n    agent::{self, store},\n};", 1),
        ("src/domain/a.rs", "use crate::clock::Clock;", 1),
        ("src/domain/a.rs", "// use crate::clock::Clock;\nlet a = \"crate::store\";", 0),
        ("src/domain/a.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n    use crate::fake::Forge;\n}", 0),
        ("src/engine/a.rs", "use crate::http::x;\nuse crate::cli::y;", 2),
        ("src/cli/a.rs", "use crate::engine::x;", 0),
        ("src/novel.rs", "", 1),
    ];
    for (path, text, faults) in cases {
        assert_eq!(layer_faults(&source(path, text)).len(), faults, "{path}: {text}");
    }
    let fault = layer_faults(&source("src/forge.rs", "\nuse crate::store::Store;")).remove(0);
    assert!(fault.starts_with("src/forge.rs:2: `forge` must not name `store`"), "{fault}");
}

#[test]
fn other_faults_are_seen() {
    let cases = [
        ("src/a.rs", "use super::b;", 1),
        ("src/a/b.rs", "use super::c;", 0),
        ("src/a/b.rs", "use super::super::c;", 1),
        ("src/a/b/c.rs", "use super::super::d;", 0),
        ("src/a/b.rs", "mod inner {\n    use super::super::c;\n}\nuse super::super::d;", 1),
    ];
    for (path, text, faults) in cases {
        assert_eq!(super_faults(&source(path, text)).len(), faults, "{path}: {text}");
    }
    let impure = source(
        "src/domain/a.rs",
        "async fn a() { tokio::go(); } // async\nconst A: &str = r#\"async \"quoted\" tokio\"#;\n'a: loop {}",
    );
    assert_eq!(banned(&impure, &BANNED_IN_DOMAIN).len(), 2);
    assert_eq!(banned(&source("src/a.rs", "todo!(); dbg!(1); let todo = 1;"), &BANNED).len(), 2);
    assert!(
        has_header("//! For this.\n") && !has_header("//!\n") && !has_header("use a;\n//! Late.") && !has_header("")
    );
    let code =
        "trait T { fn none(&self) -> [u8; 3]; }\nfn two() {\n}\nfn four(a: &str)\nwhere A: B {\n    if a { }\n}\n";
    assert_eq!(functions(code), [("two".to_owned(), 2, 2), ("four".to_owned(), 4, 4)]);
    assert!(ratchet("x", 101, 100, None).is_some() && ratchet("x", 101, 100, Some(101)).is_none());
    assert!(ratchet("x", 120, 100, Some(110)).is_some() && ratchet("x", 105, 100, Some(110)).is_some());
}
