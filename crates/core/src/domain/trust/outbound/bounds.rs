//! Maximum size of a change that is pushed without asking a person.
//!
//! The limits apply to the loop: to the change from its base to its head, and to the sum of its commits, because every commit is
//! pushed.

use std::collections::BTreeSet;

/// Maximum number of changed files.
pub const MAX_CHANGED_FILES: usize = 100;
/// Maximum total size of the patches and binary files, in bytes.
pub const MAX_CHANGE_BYTES: u64 = 4 << 20;
/// Maximum total size of the binary files, in bytes.
pub const MAX_BINARY_BYTES: u64 = 1 << 20;

/// Total size of a loop's commits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeSize {
    /// Changed files.
    pub files: BTreeSet<String>,
    /// Size of the patches and of the new binary files, in bytes.
    pub bytes: u64,
    /// Size of the new binary files, in bytes.
    pub binary_bytes: u64,
}

impl ChangeSize {
    /// Returns the exceeded limit as a sentence without a full stop; `None` if no limit is exceeded.
    pub fn exceeded(&self) -> Option<String> {
        let files = self.files.len();
        if files > MAX_CHANGED_FILES {
            return Some(format!("the change touches {files} files, more than {MAX_CHANGED_FILES}"));
        }
        if self.bytes > MAX_CHANGE_BYTES {
            return Some("the change is larger than 4 MiB".to_owned());
        }
        (self.binary_bytes > MAX_BINARY_BYTES).then(|| "the change contains more than 1 MiB of binary files".to_owned())
    }
}

/// Returns the number of files in a patch.
pub fn files_of_patch(patch: &str) -> usize {
    patch.lines().filter(|line| line.starts_with("diff --git ")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See docs/research/threats.md#g14.
    #[test]
    fn each_limit_rejects_one_more() {
        let files = |count: usize| (0..count).map(|n| n.to_string()).collect();
        let most = ChangeSize { files: files(100), bytes: MAX_CHANGE_BYTES, binary_bytes: MAX_BINARY_BYTES };
        assert_eq!(most.exceeded(), None);
        for (more, word) in [
            (ChangeSize { files: files(101), ..most.clone() }, "101 files"),
            (ChangeSize { bytes: MAX_CHANGE_BYTES + 1, ..most.clone() }, "4 MiB"),
            (ChangeSize { binary_bytes: MAX_BINARY_BYTES + 1, ..most.clone() }, "binary"),
        ] {
            assert!(more.exceeded().is_some_and(|why| why.contains(word)), "{word}");
        }
        assert_eq!(files_of_patch("diff --git a/a b/a\n+diff --git x\ndiff --git a/b b/b\n"), 2);
    }
}
