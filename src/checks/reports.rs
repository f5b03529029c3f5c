//! JUnit files that a check wrote into the tree.
//!
//! The tree is the agent's: links are never followed, and sizes and numbers are bounded.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use globset::{Glob, GlobSet, GlobSetBuilder};

use super::counts::read_junit;
use crate::domain::task::TestCounts;

/// Largest report that is read, in bytes.
const MAX_REPORT: u64 = 16 << 20;
/// Most reports that are read after one check.
const MAX_REPORTS: usize = 2000;
/// Most folder entries that are looked at.
const MAX_ENTRIES: usize = 200_000;
/// Folders that hold no reports of this repository.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

/// Tells one state of a file from another: inode, time of change in seconds and nanoseconds, size.
type Stamp = (u64, i64, i64, u64);

/// Finds the reports that match some globs, relative to the top of the tree.
#[derive(Debug, Clone)]
pub(super) struct Reports {
    tree: PathBuf,
    globs: GlobSet,
}

impl Reports {
    /// `None` where there is no glob to look for. Globs that do not compile are passed over: the configuration has
    /// refused them already.
    pub(super) fn new(tree: &Path, globs: &[String]) -> Option<Self> {
        let mut builder = GlobSetBuilder::new();
        globs.iter().filter_map(|glob| Glob::new(glob).ok()).for_each(|glob| {
            builder.add(glob);
        });
        let globs = builder.build().ok().filter(|set| !set.is_empty())?;
        Some(Self { tree: tree.to_owned(), globs })
    }

    /// What is there now.
    pub(super) fn stamps(&self) -> HashMap<PathBuf, Stamp> {
        let mut found = HashMap::new();
        let mut folders = vec![self.tree.clone()];
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                seen += 1;
                if seen > MAX_ENTRIES || found.len() >= MAX_REPORTS {
                    return found;
                }
                let path = entry.path();
                // Of the entry itself, not of what a link points to.
                let Ok(meta) = entry.metadata() else { continue };
                if meta.is_dir() && !SKIPPED.iter().any(|name| entry.file_name() == *name) {
                    folders.push(path);
                } else if meta.is_file() && path.strip_prefix(&self.tree).is_ok_and(|inner| self.globs.is_match(inner))
                {
                    found.insert(path, (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size()));
                }
            }
        }
        found
    }

    /// Counts of the reports that are new or changed since `before`; reports of earlier runs do not count.
    pub(super) fn counts_since(&self, before: &HashMap<PathBuf, Stamp>) -> Option<TestCounts> {
        let written = self.stamps().into_iter().filter(|(path, stamp)| before.get(path) != Some(stamp));
        written.filter_map(|(path, _)| read_junit(&read(&path)?)).reduce(TestCounts::plus)
    }
}

fn read(path: &Path) -> Option<String> {
    let file = fs::File::open(path).ok()?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_REPORT + 1).read_to_end(&mut bytes).ok()?;
    (read as u64 <= MAX_REPORT).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
