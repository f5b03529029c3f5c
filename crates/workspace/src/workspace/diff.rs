//! Difference of two trees: changed files with their sizes, the patch, and problems in the changed files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::branch::ChangedPaths;
use super::git::{GitCommand, LIST_BYTES};
use super::layout::TreePaths;
use super::outgoing::{ChangedObject, RawEntry, raw_entries};
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::Sha;
use crate::domain::model::task::{ChangeKind, DiffStat, FileStat};
use crate::domain::trust::outbound::{MAX_BINARY_BYTES, MAX_CHANGE_BYTES};

/// Maximum size of the list of changed files, in bytes.
const NUMSTAT_BYTES: usize = 16 << 20;
/// Maximum size of [`TreeDiff::diff`], in bytes.
const DIFF_BYTES: usize = MAX_CHANGE_BYTES as usize;
/// Maximum number of bytes of a file that are searched for conflict markers.
const MARKER_SEARCH_BYTES: u64 = 1 << 20;

/// Changed files with their paths as git reports them.
pub(super) type ChangedFiles = Vec<(PathBuf, FileStat)>;

/// Files that a branch changed.
#[derive(Debug, Default)]
pub(super) struct BranchChange {
    /// Files with the sizes of their changes.
    pub files: ChangedFiles,
    /// The same files with the kinds of their changes.
    pub paths: ChangedPaths,
}

/// Change from one tree to another.
#[derive(Debug, Default)]
pub(super) struct TreeDiff {
    /// Changes per file.
    pub stat: DiffStat,
    /// Patch, at most 4 MiB.
    pub diff: String,
    /// Whether `diff` was cut.
    pub diff_truncated: bool,
    /// Changed binary files larger than 1 MiB.
    pub oversized: Vec<String>,
    /// Total size of the changed binary files, in bytes.
    pub binary_bytes: u64,
    /// New and changed files.
    pub objects: Vec<ChangedObject>,
    /// Changed files with an opening and a closing conflict marker.
    pub conflict_markers: Vec<String>,
}

/// Returns the sizes of changes without paths.
pub(super) fn stat_of(files: ChangedFiles) -> DiffStat {
    DiffStat { files: files.into_iter().map(|(_, stat)| stat).collect() }
}

impl Workspaces {
    /// Returns the git setting that shows source files as text in differences. It takes precedence over attributes of
    /// the tree.
    pub(super) fn sources_as_text(&self) -> String {
        format!("core.attributesFile={}", self.layout.source_attributes().display())
    }

    /// Returns the paths that differ between two commits or trees.
    pub(super) async fn differing(
        &self,
        tree_paths: &TreePaths,
        from: &Sha,
        to: &Sha,
    ) -> Result<Vec<PathBuf>, WorkspaceError> {
        let call = GitCommand::new("compare with the base", &tree_paths.store);
        let call = call.args(["diff-tree", "-r", "-z", "--no-renames", "--name-only", from.as_str(), to.as_str()]);
        let listed = self.git.ok(call).await?;
        if listed.truncated {
            return Err(too_large());
        }
        Ok(files::zero_separated(&listed.stdout).map(files::path_of).collect())
    }

    /// Returns the files that differ between a commit or tree and another one, or the private index if that is `None`. A renamed file
    /// counts as two.
    pub(super) async fn sizes(
        &self,
        tree_paths: &TreePaths,
        from: &Sha,
        to: Option<&Sha>,
    ) -> Result<BranchChange, WorkspaceError> {
        let call = GitCommand::new("measure all changes", &tree_paths.store).config(self.sources_as_text());
        let call = match to {
            Some(_) => call.args(["diff-tree", "-r"]),
            None => call.on_index(&tree_paths.index).args(["diff-index", "--cached"]),
        };
        let call = call.args(["--no-renames", "--raw", "--no-abbrev", "--numstat", "-z", "--no-ext-diff"]);
        let call = call.args(["--no-textconv", from.as_str()]).args(to.map(Sha::as_str));
        let output = self.git.ok(call).await?;
        if output.truncated {
            return Err(too_large());
        }
        let (paths, sizes) = ChangedPaths::parse(&output.stdout);
        Ok(BranchChange { files: numstat(sizes).0, paths })
    }

    /// Returns the change from `from` to `tree`.
    pub(super) async fn describe(
        &self,
        tree_paths: &TreePaths,
        from: &Sha,
        tree: &Sha,
    ) -> Result<TreeDiff, WorkspaceError> {
        let call = GitCommand::new("measure the change", &tree_paths.store).config(self.sources_as_text()).args([
            "diff-tree",
            "-r",
            "-M",
            "--raw",
            "--no-abbrev",
            "--numstat",
            "--patch",
            "-z",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            from.as_str(),
            tree.as_str(),
        ]);
        let output = self.git.ok(call.output_bytes(NUMSTAT_BYTES + DIFF_BYTES)).await?;
        let (objects, rest) = raw_entries(&output.stdout);
        let (mut files, patch) = numstat(rest);
        let kinds = change_kinds(&output.stdout);
        files.iter_mut().for_each(|(path, stat)| stat.change = kinds.get(path).cloned());
        let diff_truncated = output.truncated || patch.len() > DIFF_BYTES;
        let diff = String::from_utf8_lossy(&patch[..patch.len().min(DIFF_BYTES)]).into_owned();
        let dir = tree_paths.dir.clone();
        let (files, (oversized, binary_bytes, conflict_markers)) = files::blocking(move || {
            let seen = look_at(&dir, &files);
            Ok((files, seen))
        })
        .await?;
        Ok(TreeDiff { stat: stat_of(files), diff, diff_truncated, oversized, binary_bytes, objects, conflict_markers })
    }
}

fn too_large() -> WorkspaceError {
    WorkspaceError::TooLarge { what: "the list of changed files".to_owned(), limit: LIST_BYTES as u64 }
}

/// Parses entries of `--raw -z` at the start of an output; returns the kind of change by path.
fn change_kinds(mut output: &[u8]) -> HashMap<PathBuf, ChangeKind> {
    let mut kinds = HashMap::new();
    while let Some(entry) = RawEntry::next(&mut output) {
        let kind = match (entry.status().first(), entry.from) {
            (Some(b'R'), Some(from)) => ChangeKind::Renamed { from: String::from_utf8_lossy(from).into_owned() },
            (Some(b'A' | b'C'), _) => ChangeKind::Created,
            (Some(b'D'), _) => ChangeKind::Deleted,
            _ => ChangeKind::Modified,
        };
        kinds.insert(files::path_of(entry.path), kind);
    }
    kinds
}

/// Parses the output of `diff-tree --numstat --patch -z`; returns the files (renamed ones under their new name) and
/// the patch.
fn numstat(mut rest: &[u8]) -> (ChangedFiles, &[u8]) {
    let mut next = || {
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (part, after) = rest.split_at(end);
        rest = &after[1..];
        Some(part)
    };
    let mut found = Vec::new();
    while let Some(entry) = next().filter(|entry| !entry.is_empty()) {
        let mut fields = entry.splitn(3, |byte| *byte == b'\t');
        let (Some(added), Some(removed), Some(mut path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if path.is_empty() {
            let (_, Some(new)) = (next(), next()) else { break };
            path = new;
        }
        let count = |field: &[u8]| String::from_utf8_lossy(field).parse().unwrap_or(0);
        let stat = FileStat {
            path: String::from_utf8_lossy(path).into_owned(),
            added: count(added),
            removed: count(removed),
            binary: added == b"-",
            change: None,
        };
        found.push((files::path_of(path), stat));
    }
    (found, rest)
}

/// Returns large binary files, the total size of binary files in bytes, and files with conflict markers among the
/// changed files.
fn look_at(root: &Path, changed: &[(PathBuf, FileStat)]) -> (Vec<String>, u64, Vec<String>) {
    let (mut oversized, mut bytes, mut markers) = (Vec::new(), 0, Vec::new());
    for (path, stat) in changed {
        if stat.binary {
            let size = std::fs::symlink_metadata(root.join(path)).map_or(0, |found| found.len());
            bytes += size;
            if size > MAX_BINARY_BYTES {
                oversized.push(stat.path.clone());
            }
        } else if stat.added > 0
            && files::read_beneath(root, path, MARKER_SEARCH_BYTES)
                .is_some_and(|content| has_conflict_markers(&content))
        {
            markers.push(stat.path.clone());
        }
    }
    (oversized, bytes, markers)
}

fn has_conflict_markers(content: &[u8]) -> bool {
    let any = |marker: &[u8]| content.split(|byte| *byte == b'\n').any(|line| line.starts_with(marker));
    any(b"<<<<<<< ") && any(b">>>>>>> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numstat_is_parsed_with_renames_and_binaries() {
        let (read, patch) =
            numstat(b"3\t1\tsrc/a b.rs\0-\t-\timg.png\x001\t2\t\0old\0new\tname\0\0diff --git a/x b/x\n\0");
        let short: Vec<_> = read.iter().map(|(_, s)| (s.path.as_str(), s.added, s.removed, s.binary)).collect();
        assert_eq!(short, [("src/a b.rs", 3, 1, false), ("img.png", 0, 0, true), ("new\tname", 1, 2, false)]);
        assert_eq!(patch, b"diff --git a/x b/x\n\0");
        assert_eq!(numstat(b""), (vec![], &b""[..]));
    }

    #[test]
    fn kinds_of_changes_are_read_from_raw_entries() {
        let (zero, one) = ("0".repeat(40), "1".repeat(40));
        let output = [
            format!(":000000 100644 {zero} {one} A\0new.rs\0"),
            format!(":100644 100644 {one} {one} M\0a b.rs\0"),
            format!(":100644 000000 {one} {zero} D\0gone.rs\0"),
            format!(":100644 100644 {one} {one} R086\0old.rs\0moved.rs\0"),
            format!(":100644 120000 {one} {one} T\0link\0"),
            "3\t1\ta b.rs\0".to_owned(),
        ];
        let kinds = change_kinds(output.concat().as_bytes());
        let kind = |path: &str| kinds.get(Path::new(path)).cloned();
        assert_eq!(kind("new.rs"), Some(ChangeKind::Created));
        assert_eq!(kind("a b.rs"), Some(ChangeKind::Modified));
        assert_eq!(kind("gone.rs"), Some(ChangeKind::Deleted));
        assert_eq!(kind("moved.rs"), Some(ChangeKind::Renamed { from: "old.rs".into() }));
        assert_eq!((kind("link"), kind("old.rs")), (Some(ChangeKind::Modified), None));
        assert!(change_kinds(b":100644 cut").is_empty());
    }

    #[test]
    fn conflict_needs_opening_and_closing_marker() {
        assert!(has_conflict_markers(b"a\n<<<<<<< x\nb\n=======\nc\n>>>>>>> y\n"));
        assert!(!has_conflict_markers(b"Title\n=======\n"));
        assert!(!has_conflict_markers(b"<<<<<<< only\n"));
        assert!(!has_conflict_markers(b"  <<<<<<< x\n  >>>>>>> y\n"));
    }
}
