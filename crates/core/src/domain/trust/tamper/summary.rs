//! Summary of all files of a diff, which distinguishes moved lines and deleted parts from changes.

use std::collections::HashSet;

use super::diff::{FileDiff, LineChange};

/// Removed lines and names of deleted files of a diff.
#[derive(Default)]
pub(super) struct DiffSummary {
    /// Removed lines without their indentation.
    removed_text: HashSet<String>,
    /// Names of deleted files and their folders, and old names of renamed ones.
    deleted_names: HashSet<String>,
}

impl DiffSummary {
    pub fn of(files: &[FileDiff]) -> Self {
        let mut diff = Self::default();
        for file in files {
            let renamed = file.old.iter().filter(|old| file.new.as_ref() != Some(old));
            diff.deleted_names.extend(renamed.flat_map(|old| old.split('/')).map(str::to_owned));
            diff.removed_text.extend(file.lines(LineChange::Removed).map(|line| line.trim().to_owned()));
        }
        diff
    }

    /// Whether the path of a deleted or renamed file contains a name.
    pub fn deletes(&self, name: &str) -> bool {
        self.deleted_names.contains(name)
    }

    /// Whether the change removed the same line from any file, so that it may have moved.
    pub fn had(&self, line: &str) -> bool {
        self.removed_text.contains(line.trim())
    }
}
