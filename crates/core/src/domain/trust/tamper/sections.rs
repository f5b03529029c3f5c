//! Names of the sections that changed lines are in, where the diff does not show them. A hunk of a file with sections, such as
//! `pyproject.toml`, gets the name of its section as the heading.

use std::collections::{BTreeSet, HashMap};

use super::diff::{self, FileDiff, Hunk, LineChange};

/// Texts of changed files after the change, by path.
pub type ChangedTexts = HashMap<String, Vec<u8>>;

/// Returns the paths of changed files with sections, of which some may configure checks.
pub fn files_with_sections(diff: &str) -> BTreeSet<String> {
    diff::parse(diff).into_iter().filter(has_sections).filter_map(|file| file.new).collect()
}

fn has_sections(file: &FileDiff) -> bool {
    let name = file.path().rsplit('/').next().unwrap_or_default();
    !file.is_new() && !file.is_deleted() && ["pyproject.toml", "setup.cfg"].contains(&name)
}

/// Sets the headings of the hunks in files with sections. A file whose text does not fit its hunks is left as it is.
pub(super) fn name(files: &mut [FileDiff], texts: &ChangedTexts) {
    for file in files.iter_mut().filter(|file| has_sections(file)) {
        let Some(text) = file.new.as_ref().and_then(|path| texts.get(path)) else { continue };
        let text = String::from_utf8_lossy(text);
        let lines: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
        if !file.hunks.iter().all(|hunk| fits(&lines, hunk)) {
            continue;
        }
        for hunk in &mut file.hunks {
            let first = hunk.lines.first().map_or(0, |line| (line.number as usize).saturating_sub(1));
            let section = lines[..first.min(lines.len())].iter().rev().find(|line| line.starts_with('['));
            hunk.heading = section.map_or_else(String::new, |line| (*line).to_owned());
        }
    }
}

/// Whether the lines of a hunk after the change are at their places.
fn fits(lines: &[&str], hunk: &Hunk) -> bool {
    let mut kept = hunk.lines.iter().filter(|line| line.change != LineChange::Removed);
    kept.all(|line| lines.get((line.number as usize).wrapping_sub(1)).is_some_and(|text| *text == line.text))
}
