//! Makes git read the attributes of a tree instead of those in the work tree.
//!
//! git before 2.41 has no `--attr-source`. For these versions, all `.gitattributes` files of the tree are combined
//! into one file for `core.attributesFile`, with patterns relative to the top. The service's repositories are bare, so
//! git reads no other attributes.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{Git, GitCommand};
use crate::workspace::WorkspaceError;
use crate::workspace::empty_tree::is_empty_tree;
use crate::workspace::git_version::GitVersion;

/// First version with `--attr-source`.
const ATTR_SOURCE_GIT: GitVersion = GitVersion { major: 2, minor: 41, patch: 0 };

/// Method by which git reads the attributes of a tree instead of those in the work tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::workspace) enum AttributesMethod {
    /// The option `--attr-source`.
    Option,
    /// A file for `core.attributesFile` with the combined attributes.
    File,
}

impl AttributesMethod {
    /// Returns the method for a version of git.
    pub fn of(version: GitVersion) -> Self {
        if version >= ATTR_SOURCE_GIT { Self::Option } else { Self::File }
    }
}

/// Guard that makes git store files unchanged, regardless of the encodings that attributes declare. Without it, a
/// single file that violates its declared encoding would make git reject all files.
pub(in crate::workspace) struct IgnoredEncodings(PathBuf);

impl IgnoredEncodings {
    /// Makes git ignore declared encodings in this repository.
    pub fn of(store: &Path) -> Result<Self, WorkspaceError> {
        let path = store.join("info/attributes");
        let written = std::fs::create_dir_all(store.join("info"))
            .and_then(|()| std::fs::write(&path, "* !working-tree-encoding\n"));
        written.map_err(|source| WorkspaceError::Io { what: "write attributes to", path: path.clone(), source })?;
        Ok(Self(path))
    }
}

impl Drop for IgnoredEncodings {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Arguments that make git read the attributes of a tree. The temporary file exists until this is dropped.
#[derive(Debug, Default)]
pub(super) struct AttributesArguments {
    /// Arguments that precede the subcommand.
    pub args: Vec<OsString>,
    _file: Option<NamedTempFile>,
}

impl Git {
    /// Returns the arguments that make git read the attributes of `tree`.
    pub(super) async fn attributes_arguments(
        &self,
        git_dir: &Path,
        tree: &str,
    ) -> Result<AttributesArguments, WorkspaceError> {
        match self.attributes_method().await? {
            AttributesMethod::Option => {
                Ok(AttributesArguments { args: vec![format!("--attr-source={tree}").into()], _file: None })
            }
            // Without a file, commands read no attributes at all.
            AttributesMethod::File if is_empty_tree(tree) => Ok(AttributesArguments::default()),
            AttributesMethod::File => {
                let file = self.attributes_file(git_dir, tree).await?;
                let mut entry = OsString::from("core.attributesFile=");
                entry.push(file.path());
                Ok(AttributesArguments { args: vec!["-c".into(), entry], _file: Some(file) })
            }
        }
    }

    /// Writes the attributes of a tree to a file for `core.attributesFile`.
    async fn attributes_file(&self, git_dir: &Path, tree: &str) -> Result<NamedTempFile, WorkspaceError> {
        let command = || GitCommand::new("read the attributes of a tree", git_dir);
        let listed = self.ok_without_attributes(command().args(["ls-tree", "-r", "-z", "--full-tree", tree])).await?;
        let mut files = Vec::new();
        for (id, path) in listed.stdout.split(|byte| *byte == 0).filter_map(attributes_entry) {
            let blob = self.ok_without_attributes(command().args(["cat-file", "blob", &id])).await?;
            files.push(AttributesFile { path, text: String::from_utf8_lossy(&blob.stdout).into_owned() });
        }
        let write = |text: String| -> std::io::Result<NamedTempFile> {
            let mut file = NamedTempFile::new()?;
            file.write_all(text.as_bytes())?;
            Ok(file)
        };
        write(combined(files)).map_err(|source| WorkspaceError::Io {
            what: "write the attributes of a tree below",
            path: std::env::temp_dir(),
            source,
        })
    }
}

/// Returns object id and path of a regular `.gitattributes` file in an entry of `ls-tree -z`; `None` for other
/// entries.
fn attributes_entry(entry: &[u8]) -> Option<(String, String)> {
    let (facts, path) = std::str::from_utf8(entry).ok()?.split_once('\t')?;
    let mut facts = facts.split(' ');
    let is_file = facts.next()?.starts_with("100") && facts.next()? == "blob";
    let named = path == ".gitattributes" || path.ends_with("/.gitattributes");
    (is_file && named).then(|| (facts.next().unwrap_or_default().to_owned(), path.to_owned()))
}

/// Contents of one `.gitattributes` file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AttributesFile {
    /// Path relative to the tree, such as `src/.gitattributes`.
    path: String,
    /// Content of the file.
    text: String,
}

/// Combines the files of a tree into one with the same meaning. Files of deeper folders come later and take
/// precedence.
fn combined(mut files: Vec<AttributesFile>) -> String {
    files.sort_by_key(|file| (file.path.matches('/').count(), file.path.clone()));
    let mut combined = String::new();
    for file in &files {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for line in file.text.lines() {
            let line = if folder.is_empty() { Some(line.to_owned()) } else { below(folder, line) };
            if let Some(line) = line {
                combined.push_str(&line);
                combined.push('\n');
            }
        }
    }
    combined
}

/// Rewrites a line of a folder's file so that its pattern is relative to the top; `None` for comments, macros and
/// patterns that git ignores.
fn below(folder: &str, line: &str) -> Option<String> {
    let line = line.trim_start();
    if line.is_empty() || line.starts_with('#') || line.starts_with("[attr]") || line.starts_with('!') {
        return None;
    }
    let (pattern, attributes) = match line.strip_prefix('"') {
        Some(quoted) => {
            let end = closing_quote(quoted)?;
            (quoted.get(..end)?.to_owned(), quoted.get(end + 1..)?)
        }
        None => {
            let end = line.find([' ', '\t']).unwrap_or(line.len());
            (escaped(line.get(..end)?), line.get(end..)?)
        }
    };
    let anchored = pattern.trim_end_matches('/').contains('/');
    let pattern = pattern.trim_start_matches('/');
    let folder: String =
        folder.chars().flat_map(|c| if "*?[\\".contains(c) { vec!['\\', c] } else { vec![c] }).collect();
    let between = if anchored { "/" } else { "/**/" };
    Some(format!("\"{}{between}{pattern}\"{attributes}", escaped(&folder)))
}

/// Returns the position of the quote that ends a quoted pattern; `None` if there is none.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escape = false;
    text.char_indices().find_map(|(at, c)| {
        let closes = c == '"' && !escape;
        escape = c == '\\' && !escape;
        closes.then_some(at)
    })
}

/// Escapes a text for a quoted pattern.
fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| if "\"\\".contains(c) { vec!['\\', c] } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::git_version::NEEDED_GIT;

    fn file(path: &str, text: &str) -> AttributesFile {
        AttributesFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn attribute_patterns_become_relative_to_the_top() {
        let cases = [
            ("*.rs text", "\"src/**/*.rs\" text"),
            ("/a.txt -text", "\"src/a.txt\" -text"),
            ("b/c.txt eol=lf", "\"src/b/c.txt\" eol=lf"),
            ("\"with space\" binary", "\"src/**/with space\" binary"),
            ("d/ merge=union", "\"src/**/d/\" merge=union"),
        ];
        for (line, expected) in cases {
            assert_eq!(below("src", line).as_deref(), Some(expected), "{line}");
        }
        for ignored in ["", "# comment", "[attr]mine text", "!*.rs text", "\"open text"] {
            assert_eq!(below("src", ignored), None, "{ignored}");
        }
        assert_eq!(below("a*b \"c\"", "x text").as_deref(), Some("\"a\\\\*b \\\"c\\\"/**/x\" text"));
    }

    #[test]
    fn attributes_of_deeper_folders_take_precedence() {
        let files = vec![
            file("a/b/.gitattributes", "x -text"),
            file(".gitattributes", "[attr]m text\nx m"),
            file("a/.gitattributes", "x eol=lf"),
        ];
        assert_eq!(combined(files), "[attr]m text\nx m\n\"a/**/x\" eol=lf\n\"a/b/**/x\" -text\n");
    }

    #[test]
    fn old_versions_use_a_file_for_attributes() {
        assert_eq!(AttributesMethod::of(NEEDED_GIT), AttributesMethod::File);
        assert_eq!(AttributesMethod::of(ATTR_SOURCE_GIT), AttributesMethod::Option);
    }
}
