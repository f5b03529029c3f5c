//! Attributes of the base, which decide how the service's git converts files. git reads no attributes of an agent's tree: a file of
//! each loop's store takes precedence over all `.gitattributes` files.
//!
//! Attributes of the base that choose a program or a converter of the system are dropped.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::layout::TreePaths;
use super::outgoing::ObjectContent;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::Sha;
use crate::domain::trust::bounds::ATTRIBUTES_BYTES;

/// Attributes that no file of a tree sets. `diff` is missing, because commands that print differences set it by
/// `core.attributesFile`.
const RESET: &str = "* !text !eol !crlf !ident !merge !filter !working-tree-encoding\n";
/// Attribute of files that belong to Git LFS, in place of `filter=lfs`, which would choose a program.
pub(super) const LFS: &str = "ralph-lfs";
/// Encodings of files that git may convert.
const ENCODINGS: [&str; 5] = ["UTF-8", "UTF-16", "UTF-16LE", "UTF-16BE", "UTF-16LE-BOM"];
/// Maximum depth of macros that use other macros.
const MOST_DEPTH: usize = 4;

/// Path of the attributes in a loop's store.
fn path(store: &Path) -> PathBuf {
    store.join("info/attributes")
}

/// Creates the attributes of a new store, which convert no file.
pub(super) fn create(store: &Path) -> std::io::Result<()> {
    let path = path(store);
    if path.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(store.join("info"))?;
    files::put(&path, RESET)
}

/// Whether the base's attributes assign files to Git LFS.
pub(super) fn assign_assets(store: &Path) -> bool {
    std::fs::read_to_string(path(store)).is_ok_and(|text| text.contains(&format!(" {LFS}")))
}

/// Guard that makes git store files unchanged, regardless of the encodings that attributes declare. Without it, a
/// single file that violates its declared encoding would make git reject all files.
pub(super) struct IgnoredEncodings {
    path: PathBuf,
    text: String,
}

impl IgnoredEncodings {
    /// Makes git ignore declared encodings in this repository.
    pub(super) fn of(store: &Path) -> Result<Self, WorkspaceError> {
        let path = path(store);
        let text = std::fs::read_to_string(&path).map_err(WorkspaceError::io("read", &path))?;
        let without = format!("{text}* !working-tree-encoding\n");
        std::fs::write(&path, without).map_err(WorkspaceError::io("write", &path))?;
        Ok(Self { path, text })
    }
}

impl Drop for IgnoredEncodings {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.path, &self.text);
    }
}

impl Workspaces {
    /// Makes git convert files as the attributes of `base` say.
    pub(super) async fn use_attributes_of(&self, tree_paths: &TreePaths, base: &Sha) -> Result<(), WorkspaceError> {
        let path = path(&tree_paths.store);
        let head = format!("# {base}\n{RESET}");
        if std::fs::read_to_string(&path).is_ok_and(|text| text.starts_with(&head)) {
            return Ok(());
        }
        let tracked = self.tracked_at(&tree_paths.store, base).await?;
        let named = tracked.blobs().into_iter().filter(|blob| blob.path.ends_with(".gitattributes"));
        let found: Vec<(Sha, String)> =
            named.filter_map(|blob| Some((blob.id, blob.path.to_str()?.to_owned()))).collect();
        let ids: HashSet<Sha> = found.iter().map(|(id, _)| id.clone()).collect();
        let contents = self.contents(tree_paths, &ids).await?;
        let text_of = |id: &Sha| match contents.get(id) {
            Some(ObjectContent::Bytes(bytes)) if bytes.len() <= ATTRIBUTES_BYTES => {
                String::from_utf8_lossy(bytes).into_owned()
            }
            _ => String::new(),
        };
        let found = found.into_iter().map(|(id, path)| AttributesFile { path, text: text_of(&id) }).collect();
        let attributes = Some(combined(found)).filter(|text| text.len() <= ATTRIBUTES_BYTES).unwrap_or_default();
        files::put(&path, format!("{head}{attributes}")).map_err(WorkspaceError::io("write", &path))
    }
}

/// Contents of one `.gitattributes` file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AttributesFile {
    /// Path relative to the tree, such as `src/.gitattributes`.
    path: String,
    /// Content of the file.
    text: String,
}

/// Combines the files of a tree into one with the same meaning, without the attributes that are not allowed. Files of
/// deeper folders come later and take precedence.
fn combined(mut files: Vec<AttributesFile>) -> String {
    files.sort_by_key(|file| (file.path.matches('/').count(), file.path.clone()));
    let mut macros = HashMap::new();
    let top = files.iter().find(|file| file.path == ".gitattributes");
    for line in top.iter().flat_map(|file| file.text.lines()) {
        if let Some((name, attributes)) = line.strip_prefix("[attr]").and_then(|rest| rest.split_once([' ', '\t'])) {
            macros.insert(name, attributes);
        }
    }
    let mut combined = String::new();
    for file in &files {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (pattern, attributes) in file.text.lines().filter_map(pattern_and_attributes) {
            let allowed = allowed(attributes, &macros, 0);
            if !allowed.is_empty() {
                combined.push_str(&format!("\"{}\" {}\n", below(folder, &pattern), allowed.join(" ")));
            }
        }
    }
    combined
}

/// Splits a line into the pattern, as it is written between quotes, and the attributes; `None` for comments, macros and
/// patterns that git ignores.
fn pattern_and_attributes(line: &str) -> Option<(String, &str)> {
    let line = line.trim_start();
    if line.is_empty() || line.starts_with('#') || line.starts_with("[attr]") || line.starts_with('!') {
        return None;
    }
    match line.strip_prefix('"') {
        Some(quoted) => {
            let end = closing_quote(quoted)?;
            Some((quoted.get(..end)?.to_owned(), quoted.get(end + 1..)?))
        }
        None => {
            let end = line.find([' ', '\t']).unwrap_or(line.len());
            Some((escaped(line.get(..end)?), line.get(end..)?))
        }
    }
}

/// Returns the attributes that may be used, with macros replaced by their attributes.
fn allowed<'a>(attributes: &'a str, macros: &HashMap<&str, &'a str>, depth: usize) -> Vec<&'a str> {
    let one = |word: &'a str| -> Vec<&'a str> {
        let (name, value) = word
            .trim_start_matches(['-', '!'])
            .split_once('=')
            .map_or_else(|| (word.trim_start_matches(['-', '!']), None), |(name, value)| (name, Some(value)));
        let is_allowed = match name {
            "text" | "eol" | "crlf" | "ident" => true,
            "merge" => value.is_none_or(|driver| ["text", "binary", "union"].contains(&driver)),
            "working-tree-encoding" => {
                value.is_none_or(|value| ENCODINGS.iter().any(|encoding| encoding.eq_ignore_ascii_case(value)))
            }
            _ => false,
        };
        match macros.get(word) {
            _ if is_allowed => vec![word],
            // Pointers are not merged line by line.
            _ if word == "filter=lfs" => vec![LFS, "-merge"],
            _ if name == "filter" => vec!["-ralph-lfs"],
            _ if word == "binary" => vec!["-merge", "-text"],
            Some(attributes) if depth < MOST_DEPTH => allowed(attributes, macros, depth + 1),
            _ => Vec::new(),
        }
    };
    attributes.split_ascii_whitespace().flat_map(one).collect()
}

/// Returns a folder's pattern relative to the top.
fn below(folder: &str, pattern: &str) -> String {
    if folder.is_empty() {
        return pattern.to_owned();
    }
    let anchored = pattern.trim_end_matches('/').contains('/');
    let pattern = pattern.trim_start_matches('/');
    let folder: String =
        folder.chars().flat_map(|c| if "*?[\\".contains(c) { vec!['\\', c] } else { vec![c] }).collect();
    let between = if anchored { "/" } else { "/**/" };
    format!("{}{between}{pattern}", escaped(&folder))
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

    fn of(files: &[(&str, &str)]) -> String {
        let file = |(path, text): &(&str, &str)| AttributesFile { path: (*path).into(), text: (*text).into() };
        combined(files.iter().map(file).collect())
    }

    #[test]
    fn attribute_patterns_become_relative_to_the_top() {
        let cases = [
            ("*.rs text", "\"src/**/*.rs\" text\n"),
            ("/a.txt -text", "\"src/a.txt\" -text\n"),
            ("b/c.txt eol=lf", "\"src/b/c.txt\" eol=lf\n"),
            ("\"with space\" !text", "\"src/**/with space\" !text\n"),
            ("d/ merge=union", "\"src/**/d/\" merge=union\n"),
            ("", ""),
            ("# comment", ""),
            ("[attr]mine text", ""),
            ("!*.rs text", ""),
            ("\"open text", ""),
        ];
        for (line, expected) in cases {
            assert_eq!(of(&[("src/.gitattributes", line)]), expected, "{line}");
        }
        assert_eq!(of(&[("a*b \"c\"/.gitattributes", "x text")]), "\"a\\\\*b \\\"c\\\"/**/x\" text\n");
    }

    #[test]
    fn attributes_of_deeper_folders_take_precedence() {
        let files = [("a/b/.gitattributes", "x -text"), (".gitattributes", "x text"), ("a/.gitattributes", "x eol=lf")];
        assert_eq!(of(&files), "\"x\" text\n\"a/**/x\" eol=lf\n\"a/b/**/x\" -text\n");
    }

    /// See docs/research/threats.md#g2 and docs/research/threats.md#g3.
    #[test]
    fn attributes_that_choose_programs_or_converters_are_dropped() {
        let cases = [
            ("a filter=x diff=x merge=x text", "\"a\" -ralph-lfs text\n"),
            ("a filter diff=x", "\"a\" -ralph-lfs\n"),
            ("a filter=lfs diff=lfs merge=lfs -text", "\"a\" ralph-lfs -merge -text\n"),
            ("a working-tree-encoding=EUC-JP eol=crlf", "\"a\" eol=crlf\n"),
            ("a working-tree-encoding=UTF-16//TRANSLIT", ""),
            ("a working-tree-encoding=utf-16le-bom", "\"a\" working-tree-encoding=utf-16le-bom\n"),
            ("a binary", "\"a\" -merge -text\n"),
            ("[attr]m merge=x text n\n[attr]n eol=lf m\na m", "\"a\" text eol=lf text eol=lf\n"),
        ];
        for (text, expected) in cases {
            assert_eq!(of(&[(".gitattributes", text)]), expected, "{text}");
        }
    }
}
