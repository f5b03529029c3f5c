//! Tables of measured times in `docs/research/stories.md`, written if `UPDATE_DOCS` is set.

use std::path::Path;

use super::parts::setting;

/// Replaces the lines between `<!-- NAME -->` and `<!-- /NAME -->` in `docs/research/stories.md`; without effect unless `UPDATE_DOCS` is set.
///
/// # Panics
///
/// If a mark is missing, or the page cannot be read or written.
pub fn write_table(name: &str, table: &str) {
    if setting("UPDATE_DOCS").is_none() {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/research/stories.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->\n"));
    let (before, rest) = page.split_once(&begin).expect("the mark before the table");
    let (_, after) = rest.split_once(&end).expect("the mark after the table");
    std::fs::write(&path, format!("{before}{begin}{table}{end}{after}")).expect("the page is written");
}
