//! Detects languages by file name.

use crate::scan::FileScan;
use crate::{MAX_FILE_BYTES, braces, document, indent, lisp, python, rust, scripts};

/// Language of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceLanguage {
    Rust,
    Python,
    Elixir,
    Julia,
    Nim,
    /// Ruby and Crystal.
    Ruby,
    Haskell,
    OCaml,
    Racket,
    Clojure,
    /// C and C++.
    Cpp,
    D,
    Zig,
    /// JavaScript and TypeScript.
    JavaScript,
    Go,
    Lua,
    Perl,
    R,
    Shell,
    Tcl,
    /// Language that never has tests in program files: Gleam.
    NoTests,
    /// Java, Kotlin, Scala and Groovy.
    Jvm,
    Swift,
    CSharp,
    Php,
    /// Markdown, reStructuredText and plain text.
    Document,
}

/// Extensions of the languages.
const EXTENSIONS: [(SourceLanguage, &[&str]); 26] = [
    (SourceLanguage::Rust, &["rs"]),
    (SourceLanguage::Python, &["py", "pyi", "pyx"]),
    (SourceLanguage::Elixir, &["ex", "exs"]),
    (SourceLanguage::Julia, &["jl"]),
    (SourceLanguage::Nim, &["nim", "nims"]),
    (SourceLanguage::Ruby, &["rb", "rake", "cr"]),
    (SourceLanguage::Haskell, &["hs"]),
    (SourceLanguage::OCaml, &["ml", "mli"]),
    (SourceLanguage::Racket, &["rkt"]),
    (SourceLanguage::Clojure, &["clj", "cljc", "cljs"]),
    (SourceLanguage::Cpp, &["c", "cc", "cpp", "cxx", "h", "hh", "hpp", "hxx", "ipp", "inl", "tpp"]),
    (SourceLanguage::D, &["d", "di"]),
    (SourceLanguage::Zig, &["zig"]),
    (SourceLanguage::JavaScript, &["js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts"]),
    (SourceLanguage::Go, &["go"]),
    (SourceLanguage::Lua, &["lua"]),
    (SourceLanguage::Perl, &["pl", "pm"]),
    (SourceLanguage::R, &["R", "r"]),
    (SourceLanguage::Shell, &["sh", "bash"]),
    (SourceLanguage::Tcl, &["tcl"]),
    (SourceLanguage::NoTests, &["gleam"]),
    (SourceLanguage::Jvm, &["java", "kt", "kts", "scala", "groovy"]),
    (SourceLanguage::Swift, &["swift"]),
    (SourceLanguage::CSharp, &["cs"]),
    (SourceLanguage::Php, &["php"]),
    (SourceLanguage::Document, &["md", "markdown", "rst", "txt"]),
];

/// Extensions of data files and of texts that no runner executes.
const DATA: [&str; 29] = [
    "json", "yaml", "yml", "toml", "lock", "csv", "tsv", "xml", "svg", "css", "scss", "less", "html", "ini", "cfg",
    "sum", "mod", "png", "jpg", "gif", "sql", "proto", "po", "log", "build", "bazel", "bzl", "cmake", "nix",
];

/// Whether the crate supports the language of a file.
pub fn is_known(path: &str) -> bool {
    SourceLanguage::of(path, "").is_some()
}

/// Whether a file contains data rather than code. A file without an extension is usually a makefile or a license.
pub(crate) fn is_data(path: &str) -> bool {
    extension(path).is_none_or(|extension| DATA.contains(&extension))
}

fn extension(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map(|(_, extension)| extension)
}

impl SourceLanguage {
    /// Returns the language of a file, detected from its extension or its first line.
    pub fn of(path: &str, source: &str) -> Option<Self> {
        if let Some(extension) = extension(path) {
            let known = EXTENSIONS.iter().find(|(_, extensions)| extensions.contains(&extension));
            return known.map(|(language, _)| *language);
        }
        let first = source.lines().next().filter(|line| line.starts_with("#!"))?;
        let programs = [
            ("python", Self::Python),
            ("ruby", Self::Ruby),
            ("node", Self::JavaScript),
            ("racket", Self::Racket),
            ("perl", Self::Perl),
            ("tclsh", Self::Tcl),
            ("lua", Self::Lua),
            ("Rscript", Self::R),
            ("sh", Self::Shell),
        ];
        programs.into_iter().find(|(program, _)| first.contains(program)).map(|(_, language)| language)
    }

    /// Whether files of this language of any size are read only by lines.
    pub fn has_no_limit(self) -> bool {
        matches!(self, Self::Document | Self::Go | Self::NoTests)
    }

    /// Code with which a program detects a test run, or replaces the test runner. The engine has further rules, including
    /// all rules for languages without a branch here. The same applies to [`Self::exits`].
    pub fn questions(self) -> &'static [&'static str] {
        match self {
            Self::D => &["version (unittest)", "version(unittest)", "UnitTester"],
            Self::Zig => &["is_test"],
            Self::Nim => &["isMainModule"],
            Self::Elixir => &["ExUnit", "Mix.env() == :test"],
            Self::JavaScript => &["import.meta.vitest"],
            Self::Python => &["import __main__", "OutputChecker", "DocTestRunner", "DocTestFinder", "DocTestParser"],
            _ => &[],
        }
    }

    /// Code that ends the process successfully.
    pub fn exits(self) -> &'static [&'static str] {
        match self {
            Self::D => &["exit(0)", "exit(EXIT_SUCCESS)", "exit!0"],
            Self::Zig => &["exit(0)"],
            Self::Nim => &["quit(0)", "quit()", "quit 0", "quit QuitSuccess", "quit(QuitSuccess)", "exitnow(0)"],
            Self::Elixir => &["System.halt(0)", "System.halt()", "System.stop(0)", "System.stop()", ":erlang.halt"],
            Self::Racket => &["(exit 0)", "(exit)", "(exit #t)"],
            Self::Haskell => &["exitSuccess", "exitImmediately"],
            Self::OCaml => &["exit 0", "_exit 0"],
            Self::Julia => &["exit(0)", "exit()"],
            Self::Clojure => &["(System/exit 0)"],
            _ => &[],
        }
    }

    /// Parses a file.
    pub fn scan(self, source: &str) -> FileScan {
        match self {
            Self::Rust => rust::scan(source),
            Self::Python => python::scan(source),
            Self::Elixir => indent::scan(source, &indent::ELIXIR),
            Self::Julia => indent::scan(source, &indent::JULIA),
            Self::Nim => indent::scan(source, &indent::NIM),
            Self::Ruby => indent::scan(source, &indent::RUBY),
            Self::Haskell => indent::scan(source, &indent::HASKELL),
            Self::OCaml => indent::scan(source, &indent::OCAML),
            Self::Racket => lisp::racket(source),
            Self::Clojure => lisp::clojure(source),
            Self::Cpp => braces::scan(source, &braces::CPP),
            Self::D => braces::scan(source, &braces::D),
            Self::Zig => braces::scan(source, &braces::ZIG),
            Self::JavaScript => braces::scan(source, &braces::JAVASCRIPT),
            Self::Lua => scripts::scan(source, &scripts::LUA),
            Self::Perl => scripts::scan(source, &scripts::PERL),
            Self::R => scripts::scan(source, &scripts::R),
            Self::Shell => scripts::scan(source, &scripts::SHELL),
            Self::Tcl => scripts::scan(source, &scripts::TCL),
            Self::Go | Self::NoTests => FileScan::new(source),
            Self::Jvm => braces::scan(source, &braces::JVM),
            Self::Swift => braces::scan(source, &braces::SWIFT),
            Self::CSharp => braces::scan(source, &braces::CSHARP),
            Self::Php => braces::scan(source, &braces::PHP),
            Self::Document => document::scan(source),
        }
    }
}

/// Whether a file is too large to be parsed.
pub(crate) fn is_too_large(path: &str, source: &str) -> bool {
    source.len() > MAX_FILE_BYTES && SourceLanguage::of(path, source).is_some_and(|language| !language.has_no_limit())
}
