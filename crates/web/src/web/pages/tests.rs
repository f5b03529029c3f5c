//! Tests of the pages' rows: each template and each route has a row.

use std::collections::BTreeSet;

use serde_json::json;

use super::page_def::PageNav;
use super::{PAGES, layout};
use crate::render;

/// Templates of pages without a row: parts of pages, the page for errors, and the pages of the set-up.
const WITHOUT_ROW: [&str; 4] = ["error.html", "layout.html", "parts.html", "setup.html"];

#[test]
fn every_template_has_one_row() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates/page");
    let files = std::fs::read_dir(folder).expect("folder").map(|file| file.expect("file").file_name());
    let files: BTreeSet<String> = files.map(|name| name.to_string_lossy().into_owned()).collect();
    let named = PAGES.iter().map(|page| page.template.name).chain(WITHOUT_ROW);
    assert_eq!(named.clone().map(str::to_owned).collect::<BTreeSet<_>>(), files);
    assert_eq!(named.count(), files.len(), "a template has two rows");
}

#[test]
fn every_row_has_its_own_route() {
    let routes: BTreeSet<&str> = PAGES.iter().map(|page| page.route).collect();
    assert_eq!(routes.len(), PAGES.len());
    let has_entry = |route: &str| PAGES.iter().any(|page| page.route == route && matches!(page.nav, PageNav::Entry(_)));
    for page in PAGES {
        // An entry is a link, so its route has no parameters.
        assert!(!has_entry(page.route) || !page.route.contains('{'), "{}", page.route);
        assert!(page.marked().is_empty() || has_entry(page.marked()), "{}", page.route);
        assert!(!page.title.is_empty(), "{}", page.route);
    }
}

#[test]
fn every_template_parses() {
    layout::TEMPLATES.as_ref().expect("templates");
}

#[test]
fn evidence_starts_with_a_capital_on_every_page() {
    let sentences = PAGES.iter().map(|page| page.template).flat_map(|template| {
        let found = template.text.match_indices(". {{ found.evidence");
        found.map(move |(at, _)| (template.name, &template.text[at..]))
    });
    let sentences: Vec<_> = sentences.collect();
    assert!(!sentences.is_empty());
    for (name, rest) in sentences {
        let shown = rest.split_inclusive("}}").next().unwrap_or_default().trim_start_matches(". ");
        let found = json!({ "found": { "evidence": "the same <error>" } });
        let page = layout::TEMPLATES.as_ref().expect("templates").render_str(shown, render::value(&found));
        assert_eq!(page.expect("a page"), "The same &lt;error&gt;", "{name}: {shown}");
    }
}
