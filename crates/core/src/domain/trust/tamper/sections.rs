//! What a diff does not show of changed files: the sections that changed lines are in. A hunk of a file with sections, such as
//! `pyproject.toml`, gets the name of its section as the heading.

use std::collections::{BTreeSet, HashMap};

use super::diff::{self, FileDiff, Hunk, LineChange};
use super::language::Language;
use super::program_code::has_text_sign;

/// Texts of changed files after the change, by path.
pub type ChangedTexts = HashMap<String, Vec<u8>>;

/// Returns the paths of changed files whose text [`super::scan`] needs: files with sections, of which some may configure checks, and
/// program files whose hunks show parts of multi-line strings.
pub fn files_to_read(diff: &str) -> BTreeSet<String> {
    let is_read = |file: &FileDiff| has_sections(file) || has_texts(file);
    diff::parse(diff).into_iter().filter(is_read).filter_map(|file| file.new).collect()
}

fn has_texts(file: &FileDiff) -> bool {
    let mut lines = file.hunks.iter().flat_map(|hunk| &hunk.lines);
    let is_program = !file.is_new() && !file.is_deleted() && Language::of(file.path()).is_some();
    is_program && lines.any(|line| has_text_sign(&line.text))
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
        let lines = lines(&text);
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

/// Returns the lines of a text without their ends.
pub(super) fn lines(text: &str) -> Vec<&str> {
    text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect()
}

/// Whether the lines of a hunk after the change are at their places.
pub(super) fn fits(lines: &[&str], hunk: &Hunk) -> bool {
    let mut kept = hunk.lines.iter().filter(|line| line.change != LineChange::Removed);
    kept.all(|line| lines.get((line.number as usize).wrapping_sub(1)).is_some_and(|text| *text == line.text))
}
