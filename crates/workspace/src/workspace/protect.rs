//! Protected paths, which agents may not change. They are restored from the base before each commit.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::git::GitCommand;
use super::layout::TreePaths;
use super::{WorkspaceError, Workspaces, files};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::domain::trust::protected::{NamedPaths, ProtectedGlobs, literal, target_of};

/// Compiles glob patterns.
pub(super) fn patterns<S: AsRef<str>>(globs: &[S]) -> Result<Arc<ProtectedGlobs>, WorkspaceError> {
    ProtectedGlobs::cached(globs).map_err(|error| WorkspaceError::BadPattern {
        pattern: error.glob().unwrap_or_default().to_owned(),
        source: error,
    })
}

/// Protected paths that exist in a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtectedPresent {
    /// Patterns that match paths of the commit.
    pub patterns: Vec<String>,
    /// Patterns of the targets of protected links.
    targets: Vec<String>,
}

/// Mode of a symbolic link in git's trees.
const LINK: &[u8] = b"120000";

impl Workspaces {
    /// Returns the protected paths that exist in a commit.
    pub async fn protected_in(
        &self,
        repo: &RepoRef,
        commit: &Sha,
        patterns: &[String],
    ) -> Result<ProtectedPresent, WorkspaceError> {
        self.protected_at(&self.layout.mirror(repo), commit, patterns).await
    }

    async fn protected_at(
        &self,
        folder: &Path,
        commit: &Sha,
        extra: &[String],
    ) -> Result<ProtectedPresent, WorkspaceError> {
        let key = (commit.clone(), extra.to_vec());
        if let Some(known) = self.known.protected.get(&key) {
            return Ok(known);
        }
        let all: Vec<&String> = self.settings.protected.iter().chain(extra).collect();
        let globs = self::patterns(&all)?;
        let list = GitCommand::new("read the base", folder);
        let list = list.args(["ls-tree", "-r", "-z", "--full-tree", commit.as_str()]);
        let listed = self.git.ok(list).await?.stdout;
        let entries: Vec<(&[u8], &str)> = files::zero_separated(&listed)
            .filter_map(|entry| {
                let tab = entry.iter().position(|byte| *byte == b'\t')?;
                Some((&entry[..tab], std::str::from_utf8(&entry[tab + 1..]).ok()?))
            })
            .collect();
        let present = globs.that_protect(entries.iter().map(|(_, path)| *path));
        let mut found = ProtectedPresent::default();
        found.patterns.extend(present.into_iter().map(|index| all[index].clone()));
        let links: Vec<(&str, &str)> = entries
            .iter()
            .filter(|(facts, _)| facts.starts_with(LINK))
            .filter_map(|(facts, path)| Some((std::str::from_utf8(facts).ok()?.rsplit(' ').next()?, *path)))
            .collect();
        // A link can lead to another one.
        let mut waiting: Vec<(&str, &str)> = links.iter().filter(|(_, path)| globs.protect(path)).copied().collect();
        while let Some((blob, path)) = waiting.pop() {
            let read = GitCommand::new("read a protected link", folder).args(["cat-file", "blob", blob]);
            let Ok(read) = self.git.ok(read).await else { continue };
            let Some(target) = target_of(path, &String::from_utf8_lossy(&read.stdout)) else { continue };
            if found.targets.contains(&literal(&target)) {
                continue;
            }
            waiting.extend(links.iter().filter(|(_, path)| *path == target));
            found.targets.extend([literal(&target), format!("{}/**", literal(&target))]);
        }
        self.known.protected.put(key, found.clone());
        Ok(found)
    }

    /// Restores protected paths among the `differing` ones from `base`, in the index and the tree, except files that people
    /// `named`. Returns the restored paths, sorted.
    pub(super) async fn restore_protected(
        &self,
        tree_paths: &TreePaths,
        differing: BTreeSet<&Path>,
        base: &Sha,
        extra: &[String],
        named: Option<&NamedPaths>,
    ) -> Result<Vec<String>, WorkspaceError> {
        let mut extra = extra.to_vec();
        if !extra.is_empty() || !self.settings.protected.is_empty() {
            extra.extend(self.protected_at(&tree_paths.store, base, &extra).await?.targets);
        }
        let more = patterns(&extra)?;
        let is_protected = |path: &Path| {
            let path = path.to_string_lossy();
            self.protected.protect(&path) || more.protect(&path)
        };
        // The name belongs to a file: a link in place of a folder would replace all files in the folder.
        let is_named = |path: &Path| {
            let is_link = std::fs::symlink_metadata(tree_paths.dir.join(path)).is_ok_and(|found| !found.is_file());
            let is_folder = differing.iter().any(|other| other.starts_with(path) && *other != path);
            !is_link && !is_folder && named.is_some_and(|named| named.name(&path.to_string_lossy()))
        };
        let changed = differing.iter().filter(|path| is_protected(path) && !is_named(path));
        let changed: Vec<&[u8]> = changed.map(|path| path.as_os_str().as_encoded_bytes()).collect();
        if !changed.is_empty() {
            self.restore(tree_paths, base, &changed).await?;
        }
        let names: BTreeSet<String> = changed.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        Ok(names.into_iter().collect())
    }

    pub(super) async fn restore(
        &self,
        tree_paths: &TreePaths,
        base: &Sha,
        changed: &[&[u8]],
    ) -> Result<(), WorkspaceError> {
        let list = GitCommand::new("read the base", &tree_paths.store).args([
            "ls-tree",
            "-r",
            "-z",
            "--full-tree",
            base.as_str(),
        ]);
        let listed = self.git.ok(list).await?.stdout;
        let wanted: BTreeSet<&[u8]> = changed.iter().copied().collect();
        let (mut back, mut kept) = (Vec::new(), BTreeSet::new());
        for entry in files::zero_separated(&listed) {
            let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else { continue };
            if wanted.contains(&entry[tab + 1..]) {
                back.extend(entry);
                back.push(0);
                kept.insert(&entry[tab + 1..]);
            }
        }
        let zeros = "0".repeat(base.as_str().len());
        let mut index_info = Vec::new();
        for path in wanted.iter().filter(|path| !kept.contains(*path)) {
            index_info.extend(format!("0 {zeros}\t").into_bytes());
            index_info.extend(*path);
            index_info.push(0);
        }
        index_info.extend(back);
        let update =
            GitCommand::new("put protected paths back", &tree_paths.store).on_tree(&tree_paths.dir, &tree_paths.index);
        self.git.ok(update.args(["update-index", "-z", "--index-info"]).input(index_info)).await?;
        for path in &wanted {
            remove_beneath(&tree_paths.dir, &files::path_of(path))?;
        }
        let paths: Vec<PathBuf> = kept.iter().map(|path| files::path_of(path)).collect();
        let check_out =
            GitCommand::new("put protected paths back", &tree_paths.store).on_tree(&tree_paths.dir, &tree_paths.index);
        let check_out = check_out.args(["checkout-index", "-f", "-u", "-q", "-z", "--stdin"]);
        self.git.ok(check_out.input(files::zero_terminated(&paths))).await?;
        if self.puts_assets(tree_paths) { self.fill_assets(tree_paths, paths).await } else { Ok(()) }
    }
}

/// Removes `path`, or a file or link that replaces one of its parent folders.
fn remove_beneath(root: &Path, path: &Path) -> Result<(), WorkspaceError> {
    let mut here = root.to_path_buf();
    for part in path.components() {
        here.push(part);
        match std::fs::symlink_metadata(&here) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return files::remove(&here),
            Err(_) => return Ok(()),
        }
    }
    files::remove(&here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_pattern_is_reported() {
        assert!(matches!(patterns(&["a/{b"]), Err(WorkspaceError::BadPattern { .. })));
    }
}
