//! Pointers that git stores in place of the contents of Git LFS.

use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::WorkspaceError;
use crate::domain::trust::bounds::PUSHED_BYTES;

/// Start of all pointers.
const POINTER_START: &str = "version https://git-lfs.github.com/spec/";
/// Size that pointers stay below, in bytes.
pub(super) const POINTER_BYTES: u64 = 1024;

/// Pointer to the content of an asset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pointer {
    /// SHA-256 of the content, in hexadecimal.
    pub digest: String,
    /// Size of the content, in bytes.
    pub size: u64,
}

impl Pointer {
    /// Returns the pointer to a content.
    pub fn of(content: &[u8]) -> Self {
        Self { digest: data_encoding::HEXLOWER.encode(&Sha256::digest(content)), size: content.len() as u64 }
    }

    /// Returns the pointer to the rest of a file.
    pub fn read(file: &mut impl Read) -> std::io::Result<Self> {
        let mut hasher = Sha256::new();
        let mut size = 0;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                return Ok(Self { digest: data_encoding::HEXLOWER.encode(&hasher.finalize()), size });
            }
            hasher.update(&buffer[..length]);
            size += length as u64;
        }
    }

    /// Reads the pointer of a file; `None` if the file is not a pointer.
    pub fn parse(content: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(content).ok()?;
        if !text.starts_with(POINTER_START) || text.len() as u64 >= POINTER_BYTES {
            return None;
        }
        let value = |key| text.lines().find_map(|line| line.strip_prefix(key));
        let digest = value("oid sha256:")?;
        let is_digest = digest.len() == 64 && digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        Some(Self { digest: digest.to_owned(), size: value("size ")?.parse().ok()? }).filter(|_| is_digest)
    }

    /// Returns the text that git stores.
    pub fn text(&self) -> String {
        format!("{POINTER_START}v1\noid sha256:{}\nsize {}\n", self.digest, self.size)
    }

    /// Returns the path of the content in a mirror or store.
    pub fn path_in(&self, repository: &Path) -> PathBuf {
        repository.join("lfs/objects").join(&self.digest[..2]).join(&self.digest[2..4]).join(&self.digest)
    }

    /// Returns the path of the content in the first repository that has the complete content.
    pub fn found_in(&self, repositories: &[PathBuf]) -> Option<PathBuf> {
        let mut paths = repositories.iter().map(|repository| self.path_in(repository));
        paths.find(|path| path.metadata().is_ok_and(|found| found.len() == self.size))
    }

    /// Whether a file starts like a pointer.
    pub fn starts(content: &[u8]) -> bool {
        content.starts_with(POINTER_START.as_bytes())
    }

    /// Returns the content for a file that consists of a pointer, if one of the repositories has it and a scan for secrets may read it.
    /// `None` for other texts, also with further lines, which could hold a secret.
    pub fn content_for(text: &[u8], repositories: &[PathBuf]) -> Result<Option<Vec<u8>>, WorkspaceError> {
        let is_scanned = |pointer: &Self| pointer.text().as_bytes() == text && pointer.size <= PUSHED_BYTES as u64;
        let pointer = Self::parse(text).filter(is_scanned);
        let Some(path) = pointer.and_then(|pointer| pointer.found_in(repositories)) else { return Ok(None) };
        std::fs::read(&path).map(Some).map_err(WorkspaceError::io("read", &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pointers_are_parsed() {
        let pointer = Pointer::of(b"content");
        assert_eq!(Pointer::parse(pointer.text().as_bytes()), Some(pointer.clone()));
        let with_more = pointer.text().replace("oid", "ext-0-x sha256:1\noid").replace('\n', "\r\n");
        assert_eq!(Pointer::parse(with_more.as_bytes()), Some(pointer.clone()));
        let text = pointer.text();
        let cases = [
            text.replace("size 7", "size x"),
            text.replace("sha256:", "sha256:../"),
            text.replace("version", "Version"),
            text.to_uppercase(),
            format!("{text}{}", "x".repeat(1024)),
            String::new(),
        ];
        for case in cases {
            assert_eq!(Pointer::parse(case.as_bytes()), None, "{case}");
        }
    }
}
