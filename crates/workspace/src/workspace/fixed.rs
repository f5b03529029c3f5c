//! Files of a checkout that must not be written while checks run: their earlier contents, and files with different
//! content later.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::tree::CleanCheckout;
use super::{WorkspaceError, Workspaces, files};

/// Maximum number of bytes of a file that are compared.
const COMPARED_BYTES: u64 = 16 << 20;

/// Contents of some files of a checkout at one moment.
#[derive(Debug)]
pub struct FixedFiles {
    dir: PathBuf,
    states: BTreeMap<String, FileState>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    /// Device, inode, size and change time, which programs cannot set; `None` for a missing file.
    stamp: Option<(u64, u64, u64, i64, i64)>,
    digest: String,
}

impl FileState {
    fn of(dir: &Path, path: &str) -> Self {
        Self { stamp: stamp(dir, path), digest: digest(dir, path) }
    }
}

impl FixedFiles {
    /// Reads the files again that were replaced on purpose. Missing files are dropped.
    pub async fn replaced(mut self, paths: &[String]) -> Result<Self, WorkspaceError> {
        let paths = paths.to_vec();
        files::blocking(move || {
            for path in paths {
                match FileState::of(&self.dir, &path) {
                    FileState { stamp: None, .. } => self.states.remove(&path),
                    state => self.states.insert(path, state),
                };
            }
            Ok(self)
        })
        .await
    }

    /// Returns the files whose content has changed, each with a digest of its current content, or an empty text if it
    /// is missing.
    pub async fn written(self) -> Result<(Self, Vec<(String, String)>), WorkspaceError> {
        files::blocking(move || {
            let changed = self.states.iter().filter(|(path, state)| stamp(&self.dir, path) != state.stamp);
            let now = changed.map(|(path, state)| (path, state, digest(&self.dir, path)));
            let written = now.filter(|(_, state, now)| state.digest != *now).map(|(path, _, now)| (path.clone(), now));
            let written = written.collect();
            Ok((self, written))
        })
        .await
    }
}

impl Workspaces {
    /// Reads the tracked files of a checkout for which `wanted` is true.
    pub async fn fixed_files(
        &self,
        checkout: &CleanCheckout,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<FixedFiles, WorkspaceError> {
        let tracked = self.tracked(&checkout.tree_paths).await?;
        let paths: Vec<String> = tracked.files().filter(|path| wanted(path)).map(|path| path.into_owned()).collect();
        let none = FixedFiles { dir: checkout.dir.clone(), states: BTreeMap::new() };
        none.replaced(&paths).await
    }
}

fn stamp(dir: &Path, path: &str) -> Option<(u64, u64, u64, i64, i64)> {
    let found = std::fs::symlink_metadata(dir.join(path)).ok()?;
    Some((found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

/// Returns a digest of a file's content or a link's target; empty if it is missing or a parent folder is a link.
fn digest(dir: &Path, path: &str) -> String {
    let relative = Path::new(path);
    let content = files::read_beneath(dir, relative, COMPARED_BYTES).or_else(|| {
        let real = files::parents_are_real(dir, relative);
        let target = std::fs::read_link(dir.join(path)).ok().filter(|_| real)?;
        Some(target.as_os_str().as_bytes().to_vec())
    });
    content.map_or_else(String::new, |bytes| data_encoding::HEXLOWER.encode(&Sha256::digest(bytes)[..8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See docs/research/threats.md#g17.
    #[tokio::test]
    async fn only_files_with_changed_content_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir(root.join("tests")).unwrap();
        let names = ["same", "other", "gone", "replaced", "linked", "back"];
        let paths: Vec<String> = names.iter().map(|name| format!("tests/{name}.sh")).collect();
        for path in &paths {
            std::fs::write(root.join(path), "old").unwrap();
        }
        let fixed = FixedFiles { dir: root.to_owned(), states: BTreeMap::new() };
        let fixed = fixed.replaced(&paths).await.unwrap();
        let (fixed, written) = fixed.written().await.unwrap();
        assert_eq!(written, []);
        std::fs::write(root.join("tests/same.sh"), "old").unwrap();
        std::fs::write(root.join("tests/other.sh"), "new").unwrap();
        std::fs::remove_file(root.join("tests/gone.sh")).unwrap();
        std::fs::write(root.join("tests/replaced.sh"), "base").unwrap();
        std::fs::remove_file(root.join("tests/linked.sh")).unwrap();
        std::os::unix::fs::symlink("same.sh", root.join("tests/linked.sh")).unwrap();
        std::fs::remove_file(root.join("tests/back.sh")).unwrap();
        let on_purpose = ["tests/replaced.sh".to_owned(), "tests/back.sh".to_owned()];
        let (fixed, written) = fixed.replaced(&on_purpose).await.unwrap().written().await.unwrap();
        let names: Vec<&str> = written.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(names, ["tests/gone.sh", "tests/linked.sh", "tests/other.sh"]);
        assert_eq!(written[0].1, "");
        assert_ne!(written[1].1, written[2].1);
        std::fs::rename(root.join("tests"), root.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", root.join("tests")).unwrap();
        let (_, written) = fixed.written().await.unwrap();
        let digest = written.iter().find(|(path, _)| path == "tests/replaced.sh").map(|(_, digest)| digest.as_str());
        assert_eq!(digest, None, "the same file, at another place");
    }
}
