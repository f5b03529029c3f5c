//! Files and submodules of indexes and commits.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::git::GitCommand;
use super::layout::TreePaths;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::Sha;

/// Mode of a submodule.
const SUBMODULE: &[u8] = b"160000 ";

/// Maximum size of the list of a tree's files, in bytes; a million files need about 100 MiB.
const TRACKED_BYTES: usize = 512 << 20;
/// Maximum size of a list that is kept in memory, in bytes; some 3,000 files.
const KEPT_BYTES: usize = 256 << 10;

/// File of an index or a commit.
pub(super) struct TrackedBlob {
    pub path: PathBuf,
    pub id: Sha,
    pub is_executable: bool,
}

/// Files and submodules of an index or a commit, in the format of `git ls-files -z --stage` or `git ls-tree -r -z`, sorted by path.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    listed: Vec<u8>,
    /// Range of each path in `listed`, and whether the path is a submodule.
    paths: Vec<(Range<usize>, bool)>,
}

impl Tracked {
    /// Parses the output of `git ls-files -z --stage` or `git ls-tree -r -z`.
    pub fn of(listed: Vec<u8>) -> Self {
        let mut paths = Vec::new();
        let mut start = 0;
        for entry in listed.split(|byte| *byte == 0) {
            if let Some(tab) = entry.iter().position(|byte| *byte == b'\t') {
                paths.push((start + tab + 1..start + entry.len(), entry.starts_with(SUBMODULE)));
            }
            start += entry.len() + 1;
        }
        Self { listed, paths }
    }

    /// Returns the paths of files and symbolic links; invalid UTF-8 is replaced.
    pub fn files(&self) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
        let files = self.paths.iter().filter(|(_, is_submodule)| !is_submodule);
        files.map(|(place, _)| String::from_utf8_lossy(&self.listed[place.clone()]))
    }

    /// Returns the paths of files and symbolic links.
    pub fn file_paths(&self) -> Vec<PathBuf> {
        let files = self.paths.iter().filter(|(_, is_submodule)| !is_submodule);
        files.map(|(place, _)| files::path_of(&self.listed[place.clone()])).collect()
    }

    /// Returns the paths of submodules.
    pub fn submodules(&self) -> Vec<PathBuf> {
        let submodules = self.paths.iter().filter(|(_, is_submodule)| *is_submodule);
        submodules.map(|(place, _)| files::path_of(&self.listed[place.clone()])).collect()
    }

    /// Returns the paths of submodules with their commits.
    pub fn submodule_commits(&self) -> Vec<(PathBuf, Sha)> {
        let submodules = self.paths.iter().filter(|(_, is_submodule)| *is_submodule);
        let commit = |facts: &str| facts.split(' ').find_map(Sha::parse);
        submodules
            .filter_map(|(place, _)| Some((files::path_of(&self.listed[place.clone()]), commit(&self.facts(place))?)))
            .collect()
    }

    /// Returns the paths of symbolic links; invalid UTF-8 is replaced.
    pub fn links(&self) -> Vec<String> {
        let links = self.paths.iter().filter(|(place, _)| self.facts(place).starts_with("120000 "));
        links.map(|(place, _)| String::from_utf8_lossy(&self.listed[place.clone()]).into_owned()).collect()
    }

    /// Returns the files with their objects, without symbolic links.
    pub fn blobs(&self) -> Vec<TrackedBlob> {
        let blob = |place: &Range<usize>| {
            let facts = self.facts(place);
            let id = facts.split(' ').find_map(Sha::parse).filter(|_| facts.starts_with("100"))?;
            let path = files::path_of(&self.listed[place.clone()]);
            Some(TrackedBlob { path, id, is_executable: facts.starts_with("100755") })
        };
        self.paths.iter().filter_map(|(place, _)| blob(place)).collect()
    }

    /// Returns the mode and the object of an entry.
    fn facts(&self, place: &Range<usize>) -> std::borrow::Cow<'_, str> {
        let entry = self.listed[..place.start - 1].rsplit(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(entry)
    }

    /// Whether a path is a tracked file or symbolic link.
    pub fn is_file(&self, path: &[u8]) -> bool {
        self.is_submodule(path) == Some(false)
    }

    /// Returns whether a path is a submodule; `None` if the path is not tracked.
    pub fn is_submodule(&self, path: &[u8]) -> Option<bool> {
        let found = self.paths.binary_search_by(|(place, _)| self.listed[place.clone()].cmp(path)).ok()?;
        Some(self.paths[found].1)
    }

    /// Whether the list contains a path below a folder. `folder` ends with a slash.
    pub fn holds_below(&self, folder: &[u8]) -> bool {
        let next = self.paths.partition_point(|(place, _)| &self.listed[place.clone()] < folder);
        self.paths.get(next).is_some_and(|(place, _)| self.listed[place.clone()].starts_with(folder))
    }
}

/// Removes everything below `dir` that is not tracked, including objects that `git clean` skips: `.git` entries at any
/// depth, pipes, sockets and devices. Folders of submodules are emptied. Links are not followed.
pub(super) fn keep_tracked(dir: &Path, tracked: &Tracked) -> Result<(), WorkspaceError> {
    // Folders, each with its path below `dir`, which is empty or ends with a slash.
    let mut waiting = vec![(dir.to_path_buf(), Vec::new())];
    while let Some((here, prefix)) = waiting.pop() {
        let entries = std::fs::read_dir(&here).map_err(WorkspaceError::io("list", &here))?;
        for entry in entries {
            let entry = entry.map_err(WorkspaceError::io("list", &here))?;
            let kind = entry.file_type().map_err(WorkspaceError::io("look at", entry.path()))?;
            let mut path = prefix.clone();
            path.extend_from_slice(entry.file_name().as_bytes());
            let is_submodule = tracked.is_submodule(&path);
            let plain = kind.is_file() || kind.is_symlink();
            if entry.file_name() == ".git" {
                files::remove(&entry.path())?;
            } else if kind.is_dir() {
                let below = [&path[..], b"/"].concat();
                if is_submodule == Some(true) {
                    empty_folder(&entry.path())?;
                } else if tracked.holds_below(&below) {
                    waiting.push((entry.path(), below));
                } else {
                    files::remove(&entry.path())?;
                }
            } else if !plain || is_submodule != Some(false) {
                files::remove(&entry.path())?;
            }
        }
    }
    Ok(())
}

fn empty_folder(dir: &Path) -> Result<(), WorkspaceError> {
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none()) {
        return Ok(());
    }
    files::remove(dir)?;
    std::fs::create_dir(dir).map_err(WorkspaceError::io("create", dir))
}

impl Workspaces {
    /// Returns the files and submodules in the index.
    pub(super) async fn tracked(&self, tree_paths: &TreePaths) -> Result<Tracked, WorkspaceError> {
        let call = GitCommand::new("list tracked files", &tree_paths.store).on_tree(&tree_paths.dir, &tree_paths.index);
        self.listed(call.args(["ls-files", "-z", "--stage"])).await
    }

    /// Returns the files and submodules of a commit or tree.
    pub(super) async fn tracked_at(&self, store: &Path, commit: &Sha) -> Result<Arc<Tracked>, WorkspaceError> {
        if let Some(known) = self.known.tracked.get(commit) {
            return Ok(known);
        }
        let list = GitCommand::new("list the files of a commit", store);
        let listed = self.listed(list.args(["ls-tree", "-r", "-z", "--full-tree", commit.as_str()])).await?;
        let tracked = Arc::new(listed);
        if tracked.listed.len() <= KEPT_BYTES {
            self.known.tracked.put(commit.clone(), tracked.clone());
        }
        Ok(tracked)
    }

    async fn listed(&self, call: GitCommand<'_>) -> Result<Tracked, WorkspaceError> {
        let listed = self.git.ok(call.output_bytes(TRACKED_BYTES)).await?;
        if listed.truncated {
            let what = "the list of files of a commit".to_owned();
            return Err(WorkspaceError::TooLarge { what, limit: TRACKED_BYTES as u64 });
        }
        Ok(Tracked::of(listed.stdout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_submodules_are_found_by_path() {
        let tracked = Tracked::of(b"100644 01 0\ta-b\x00100644 01 0\ta/b\x00160000 01 0\tsub\0".to_vec());
        assert_eq!(tracked.files().collect::<Vec<_>>(), ["a-b", "a/b"]);
        assert_eq!(tracked.submodules(), [PathBuf::from("sub")]);
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let listed = format!("100644 blob {one}\ta\x00160000 commit {two}\tsub\x00160000 {one} 0\tzub\0");
        let commits = Tracked::of(listed.into_bytes()).submodule_commits();
        let commits: Vec<_> = commits.iter().map(|(path, commit)| (path.to_str(), commit.as_str())).collect();
        assert_eq!(commits, [(Some("sub"), two.as_str()), (Some("zub"), one.as_str())]);
        let kinds = ["a/b", "a-b", "sub", "a"].map(|path| tracked.is_submodule(path.as_bytes()));
        assert_eq!(kinds, [Some(false), Some(false), Some(true), None]);
        assert!(tracked.holds_below(b"a/") && !tracked.holds_below(b"a-/") && !tracked.holds_below(b"sub/"));
    }

    #[test]
    fn untracked_and_special_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, deep) = (dir.path(), dir.path().join("a/b"));
        std::fs::create_dir_all(deep.join(".git/x")).unwrap();
        std::fs::create_dir_all(root.join("a-b/empty")).unwrap();
        std::fs::create_dir_all(root.join("outside/kept")).unwrap();
        for name in ["a/b/file", "a/b/file2", "a/other", "a-b/f", "a-b/empty/f", "outside/kept/f", "top"] {
            std::fs::write(root.join(name), "x").unwrap();
        }
        for folder in ["sub", "sub2", "tracked-as-a-file"] {
            std::fs::create_dir_all(root.join(folder).join("x/y")).unwrap();
        }
        std::os::unix::fs::symlink("outside", root.join("link")).unwrap();
        std::os::unix::fs::symlink("outside", root.join("a/untracked-link")).unwrap();
        for name in ["fifo", "a/b/tracked-fifo"] {
            rustix::fs::mknodat(
                rustix::fs::CWD,
                root.join(name),
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RWXU,
                0,
            )
            .unwrap();
        }
        let entry = |mode: &str, path: &str| format!("{mode} 0123 0\t{path}\0");
        let files = ["a-b/f", "a/b/file", "a/b/tracked-fifo"].map(|path| entry("100644", path)).concat();
        let rest =
            [("120000", "link"), ("100644", "outside/kept/f"), ("160000", "sub"), ("100644", "tracked-as-a-file")];
        let rest = rest.map(|(mode, path)| entry(mode, path)).concat();
        let tracked = Tracked::of(format!("{files}{rest}").into_bytes());
        assert_eq!(tracked.submodules(), [Path::new("sub")]);
        keep_tracked(root, &tracked).unwrap();
        let mut left = Vec::new();
        let mut waiting = vec![root.to_path_buf()];
        while let Some(here) = waiting.pop() {
            for entry in std::fs::read_dir(here).unwrap().flatten() {
                left.push(entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                if entry.file_type().unwrap().is_dir() {
                    waiting.push(entry.path());
                }
            }
        }
        left.sort();
        let expected =
            ["a", "a-b", "a-b/f", "a/b", "a/b/file", "link", "outside", "outside/kept", "outside/kept/f", "sub"];
        assert_eq!(left, expected);
    }
}
