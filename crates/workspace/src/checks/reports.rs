//! JUnit files and JSON reports that a check has written.
//!
//! The tree is untrusted: links are not followed, and sizes and numbers are limited.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use globset::GlobSet;
use rustix::fs::OFlags;

use super::counts::{read_json, read_junit};
use crate::domain::model::path_patterns::path_globs;
use crate::domain::model::task::TestResults;
use crate::domain::trust::bounds::{REPORT_BYTES, REPORT_ENTRIES, REPORTS, REPORTS_BYTES};

/// Names of folders that are skipped.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

/// Version of a file: inode, change time in seconds and nanoseconds, size.
type Stamp = (u64, i64, i64, u64);

/// Reports that match a glob relative to the top of the tree.
#[derive(Debug, Clone)]
pub(super) struct Reports {
    tree: PathBuf,
    globs: GlobSet,
}

impl Reports {
    /// Creates the set of reports; `None` if the glob is invalid, which validation reports.
    pub(super) fn new(tree: &Path, glob: &str) -> Option<Self> {
        Some(Self { tree: tree.to_owned(), globs: path_globs(&[glob]).ok()? })
    }

    /// Returns the current versions of all reports.
    pub(super) fn stamps(&self) -> HashMap<PathBuf, Stamp> {
        let mut found = HashMap::new();
        let mut folders = vec![self.tree.clone()];
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                seen += 1;
                if seen > REPORT_ENTRIES || found.len() >= REPORTS {
                    return found;
                }
                let path = entry.path();
                // Metadata of the entry itself, without following links.
                let Ok(meta) = entry.metadata() else { continue };
                if meta.is_dir() && !SKIPPED.iter().any(|name| entry.file_name() == *name) {
                    folders.push(path);
                } else if meta.is_file() && path.strip_prefix(&self.tree).is_ok_and(|inner| self.globs.is_match(inner))
                {
                    found.insert(path, stamp(&meta));
                }
            }
        }
        found
    }

    /// Returns the tests in reports that are new or changed since `before`; `None` if there are none. The result is incomplete
    /// if the reports are too large together.
    pub(super) fn tests_since(&self, before: &HashMap<PathBuf, Stamp>) -> Option<TestResults> {
        let mut written: Vec<_> =
            self.stamps().into_iter().filter(|(path, stamp)| before.get(path) != Some(stamp)).collect();
        written.sort();
        let (mut left, all) = (REPORTS_BYTES, written.len());
        written.retain(|(_, (.., size))| {
            let rest = left.checked_sub(*size);
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        let incomplete = written.len() < all;
        let read = written.into_iter().filter_map(|(path, found)| {
            let text = read(&path, found)?;
            read_junit(&text).or_else(|| read_json(&text))
        });
        let results = read.reduce(TestResults::plus)?;
        Some(TestResults { incomplete: results.incomplete || incomplete, ..results })
    }
}

fn stamp(meta: &Metadata) -> Stamp {
    (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size())
}

/// Reads a file if its version is still `found`, because a replacement could be a link to another file.
fn read(path: &Path, found: Stamp) -> Option<String> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path).ok()?;
    if stamp(&file.metadata().ok()?) != found {
        return None;
    }
    let mut bytes = Vec::new();
    let read = file.take(REPORT_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (read as u64 <= REPORT_BYTES).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
