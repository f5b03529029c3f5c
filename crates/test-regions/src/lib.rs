//! Tests in program files: finds them, and merges the base's version of the tests into the branch's version of a file.
//!
//! A *region* is code in a program file that a test runner collects, such as a module with `#[cfg(test)]` or a docstring
//! with `>>>`. [`with_base_tests`] replaces the branch's regions in one file with the base's regions. [`with_base_tests_of`]
//! does this for all files of a change and recognizes regions that moved to another file. Both report the regions that they
//! could not judge, with the reasons.

mod braces;
mod definitions;
mod document;
mod indent;
mod language;
mod lex;
mod lines;
mod lisp;
mod merge;
mod python;
mod rust;
mod rust_modules;
mod scan;
mod scripts;
mod tree;

use std::fmt;
use std::ops::Range;

pub use language::is_known;
pub use merge::{FileMerge, Judgement, with_base_tests};
pub use rust_modules::{TestModuleFile, test_module_files};
pub use tree::{ChangedFile, TreeMerge, with_base_tests_of};

/// Maximum size of a file that is parsed, in bytes. Larger files are reported if the base has tests in them.
pub const MAX_FILE_BYTES: usize = 512 << 10;
/// Maximum number of items and regions in both versions of all files of a change. Files beyond it are reported, too.
pub const MAX_ITEMS: usize = 200_000;

/// Kind of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegionKind {
    /// Module or block of tests, such as `#[cfg(test)] mod tests { … }` or `if (import.meta.vitest) { … }`.
    TestModule,
    /// Single test, such as `#[test] fn` or `unittest { … }`.
    Test,
    /// Code that is compiled only for tests, such as `#[cfg(test)] fn helper()`.
    TestCode,
    /// Documentation of an item with examples that a runner executes.
    Doctest,
    /// Documentation of a file or module with examples that a runner executes.
    ModuleDoctest,
    /// Code that starts or configures the file's tests, such as `doctest.testmod()`.
    TestStart,
    /// Document with examples, such as a README.
    Document,
    /// Definition that decides whether assertions pass, such as the equality of a type.
    Definition,
    /// Whole file, because it could not be parsed.
    File,
}

impl fmt::Display for RegionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TestModule => "test module",
            Self::Test => "test",
            Self::TestCode => "test code",
            Self::Doctest => "doctest",
            Self::ModuleDoctest => "doctest of the module",
            Self::TestStart => "start of the tests",
            Self::Document => "examples of the document",
            Self::Definition => "definition",
            Self::File => "tests of the file",
        })
    }
}

/// Name of a region, used to match two versions of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionName {
    pub kind: RegionKind,
    /// Path of the documented item or of the region itself, such as `Calc::add`. Empty for the file.
    pub anchor: String,
    /// 0-based index among the regions with this kind and anchor.
    pub number: usize,
}

impl fmt::Display for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        if !self.anchor.is_empty() {
            write!(f, " `{}`", self.anchor)?;
        }
        if self.number > 0 {
            write!(f, " (number {})", self.number + 1)?;
        }
        Ok(())
    }
}

/// Test region in a program file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Byte range of the region in the source, including attributes.
    pub range: Range<usize>,
    pub name: RegionName,
    /// Conditions around the region, such as `#[cfg(unix)]`. Empty if it is unconditional.
    pub condition: String,
}

/// Reason why the base's version of a region could not be merged into the branch's file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    ItemGone,
    FileGone,
    ConditionChanged,
    Ambiguous,
    /// 1-based line of the first unbalanced bracket, string or comment.
    Unbalanced {
        line: usize,
    },
    ResultDiffers,
    UnknownLanguage,
    /// The file exceeds [`MAX_FILE_BYTES`], or the change exceeds [`MAX_ITEMS`].
    TooLarge,
    /// Name of a changed macro used by the region.
    MacroChanged(String),
    /// Line of the program that detects a test run or ends the process.
    Neutralized(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ItemGone => f.write_str("its item no longer exists in the branch"),
            Self::FileGone => f.write_str("its file no longer exists in the branch"),
            Self::ConditionChanged => f.write_str("the branch changed a condition that encloses it"),
            Self::Ambiguous => f.write_str("several items have this name"),
            Self::Unbalanced { line } => {
                write!(f, "the file has an unbalanced bracket, text or comment at line {line}")
            }
            Self::ResultDiffers => {
                f.write_str("the file with the base's tests would contain other tests than the base")
            }
            Self::UnknownLanguage => f.write_str("the language of the file is unknown"),
            Self::TooLarge => f.write_str("the file is too large to be compared"),
            Self::MacroChanged(name) => write!(f, "it uses the macro `{name}`, which the branch changed"),
            Self::Neutralized(line) => write!(f, "a new line of the program may keep them from running: `{line}`"),
        }
    }
}

impl Reason {
    /// Returns advice for the branch's author.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::ItemGone | Self::FileGone => {
                "put the test back beside its item, or let a maintainer accept its removal"
            }
            Self::ConditionChanged => "remove the condition, or let a maintainer accept it",
            Self::Ambiguous => "give the items distinct names, or let a maintainer accept the change",
            Self::Unbalanced { .. } => "correct the syntax, or let a maintainer accept the change",
            Self::ResultDiffers | Self::UnknownLanguage => {
                "put the base's version back, or let a maintainer accept the change"
            }
            Self::TooLarge => {
                "put the base's version back, make the file smaller, or let a maintainer accept the change"
            }
            Self::MacroChanged(_) => "put the base's macro back, or let a maintainer accept the change",
            Self::Neutralized(_) => "remove this line, or let a maintainer accept it",
        }
    }
}

/// Returns the regions of a file in source order, including definitions that decide whether assertions pass; `None` if the
/// language is unknown or the file is larger than [`MAX_FILE_BYTES`].
///
/// For a file with unbalanced brackets, strings or comments, returns only the regions before the fault.
pub fn regions(path: &str, source: &str) -> Option<Vec<Region>> {
    let scan = scan::FileScan::of(path, source)?;
    let language = language::SourceLanguage::of(path, source)?;
    let definitions = definitions::find(language, source, &scan).into_iter();
    let definitions =
        definitions.map(|one| Region { name: one.region_name(), range: one.range, condition: String::new() });
    let mut regions: Vec<Region> = scan.tests().map(|found| found.region()).chain(definitions).collect();
    regions.sort_by_key(|region| region.range.start);
    Some(regions)
}

#[cfg(test)]
mod tests;
