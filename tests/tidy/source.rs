//! The project's source files for the checks: path, text, and code without comments, literals and tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// Source file: its path from the root, its text, and its code without comments, text literals and tests.
#[derive(Debug)]
pub struct SourceFile {
    pub path: String,
    pub text: String,
    pub code: String,
    pub is_test: bool,
}

impl SourceFile {
    /// Returns the path below the folder `src` of its crate.
    pub fn inner(&self) -> &str {
        self.path.split_once("src/").map_or(self.path.as_str(), |(_, inner)| inner)
    }
}

/// Crates of the bot's library, in addition to `src`. Their modules share one namespace, because each crate imports the
/// modules of lower crates by name.
const LIBRARY: [&str; 9] = ["agents", "config", "core", "engine", "forges", "host", "store", "web", "workspace"];

/// Returns all Rust files in the bot's library.
pub fn library() -> Vec<SourceFile> {
    let folders = LIBRARY.iter().map(|name| format!("crates/{name}/src"));
    std::iter::once("src".to_owned()).chain(folders).flat_map(|folder| sources(&folder)).collect()
}

/// Fails with all faults, one per line.
pub fn report(faults: impl Iterator<Item = String>) {
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{} to mend:\n{}\n", faults.len(), faults.join("\n"));
}

/// Returns the 1-based line of a byte offset.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Returns all Rust files below a folder of the package, in order.
pub fn sources(folder: &str) -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    collect(&root.join(folder), "rs", &mut paths);
    paths.sort();
    assert!(!paths.is_empty(), "no Rust files under {folder}/");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file is readable text");
        let path = path.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
        let is_test = path.starts_with("tests/") || path.ends_with("/tests.rs") || path.contains("/tests/");
        let code = without_tests(&code_only(&text));
        SourceFile { path, text, code, is_test }
    };
    paths.into_iter().map(read).collect()
}

/// Returns the texts of all files with an extension below a folder of the package, in order.
pub fn texts(folder: &str, extension: &str) -> Vec<String> {
    let mut paths = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), extension, &mut paths);
    paths.sort();
    paths.iter().map(|path| fs::read_to_string(path).expect("a file is readable text")).collect()
}

fn collect(folder: &Path, wanted: &str, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder is readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, wanted, paths);
        } else if path.extension().is_some_and(|extension| extension == wanted) {
            paths.push(path);
        }
    }
}

/// Returns the code before the unit test module, which is the last item in a file.
fn without_tests(code: &str) -> String {
    static TESTS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?m)^#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?mod \w+ \{").expect("pattern")
    });
    TESTS.find(code).map_or(code, |found| &code[..found.start()]).to_owned()
}

/// Returns source with comments and the content of text and character literals blanked; keeps line numbers.
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

/// Creates a source file from a text, for tests of the checks.
pub fn source(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), text: text.to_owned(), code: without_tests(&code_only(text)), is_test: false }
}
