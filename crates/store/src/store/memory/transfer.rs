//! Export and import of learnings as JSON Lines.

use ralph_types::failure::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DamagedLearning, get, list, save};
use crate::domain::knowledge::memory::{Learning, MemorySettings, absorb};
use crate::domain::model::ids::Timestamp;
use crate::process::Masker;
use crate::store::StoreResult;
use crate::store::sql::Connection;

/// Number of learnings per page.
const PAGE: usize = 1_000;
/// Maximum length of a line, in bytes.
const MAX_LINE: usize = 256 * 1024;

/// Line of an export of learnings.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExportLine {
    /// SHA-256 of the learning's canonical form, in hexadecimal.
    checksum: String,
    /// Learning.
    learning: Learning,
}

/// Returns the JSON Schema of a line of an export.
pub fn export_schema() -> serde_json::Value {
    schemars::schema_for!(ExportLine).to_value()
}

/// Result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ImportCounts {
    /// New learnings.
    pub added: usize,
    /// Known learnings with new sources.
    pub merged: usize,
    /// Learnings that contained nothing new.
    pub unchanged: usize,
}

/// Returns all valid learnings as JSON Lines, sorted by id, and the damaged ones.
pub fn export(c: &Connection) -> StoreResult<(String, Vec<DamagedLearning>)> {
    let (mut text, mut damaged, mut after) = (String::new(), Vec::new(), String::new());
    loop {
        let (page, bad) = list(c, &after, PAGE)?;
        let full = page.len() + bad.len() == PAGE;
        after = page.iter().map(|one| &one.id).chain(bad.iter().map(|one| &one.id)).max().unwrap_or(&after).clone();
        damaged.extend(bad);
        for learning in page {
            let line = ExportLine { checksum: learning.checksum(), learning };
            text.push_str(&serde_json::to_string(&line)?);
            text.push('\n');
        }
        if !full {
            return Ok((text, damaged));
        }
    }
}

/// Parses a complete export.
///
/// # Errors
/// Number and problem of the first invalid line.
pub fn parse(text: &str, masker: &Masker) -> Result<Vec<Learning>, Failure> {
    let mut learnings = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let wrong =
            |why: Failure| Failure::new(format!("line {number}")).caused_by(why).with_hint("nothing was imported");
        if line.len() > MAX_LINE {
            return Err(wrong(format!("it is longer than {MAX_LINE} bytes").into()));
        }
        let ExportLine { checksum, learning } =
            serde_json::from_str(line).map_err(|error| wrong(Failure::new("it is not a learning").caused_by(error)))?;
        if learning.checksum() != checksum {
            return Err(wrong("its checksum is wrong; export it again from its source".into()));
        }
        learning.check().map_err(wrong)?;
        learnings.push(learning.map_text(&|text| masker.mask(text).into_owned()));
    }
    Ok(learnings)
}

/// Stores parsed learnings. New sources are added to existing learnings, so importing the same file again has no effect.
pub fn import(
    c: &Connection,
    learnings: &[Learning],
    settings: &MemorySettings,
    now: Timestamp,
) -> StoreResult<ImportCounts> {
    let mut imported = ImportCounts::default();
    for learning in learnings {
        match get(c, &learning.id, now)? {
            None => {
                save(c, learning)?;
                imported.added += 1;
            }
            Some(known) => {
                let merged = absorb(&known, learning, settings, now);
                if merged == known {
                    imported.unchanged += 1;
                } else {
                    save(c, &merged)?;
                    imported.merged += 1;
                }
            }
        }
    }
    Ok(imported)
}
