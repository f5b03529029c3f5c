//! Tests of a JUnit XML file.

use roxmltree::{Document, Node, ParsingOptions};

use super::bounded;
use crate::domain::model::task::{TestCounts, TestResults};
use crate::domain::trust::bounds::REPORT_NODES;

/// Maximum number of attributes of an element; the parser compares each of them with all others.
const MAX_ATTRIBUTES: usize = 256;
/// Maximum number of namespaces; the parser copies an element's namespaces to the elements in it.
const MAX_NAMESPACES: usize = 5_000;

/// Counts the test cases of a JUnit file (`testsuites` or `testsuite` at the top, nested to any depth), and returns
/// the names of failed ones. Cases are counted one by one, so nested suites count once. For a file that contains only
/// totals, the totals of its outermost suites are used. `None` if the text is not a JUnit file, or one
/// whose parsing takes too much time or memory.
pub fn read_junit(xml: &str) -> Option<TestResults> {
    let xml = xml.trim_start_matches('\u{feff}');
    if !is_bounded(xml) {
        return None;
    }
    let options = ParsingOptions { nodes_limit: REPORT_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(xml, options).ok()?;
    let root = document.root_element();
    if !matches!(root.tag_name().name(), "testsuites" | "testsuite") {
        return None;
    }
    let cases = || root.descendants().filter(|node| node.has_tag_name("testcase"));
    let counts = cases().map(case).reduce(TestCounts::plus).unwrap_or_else(|| totals(root));
    let failing = bounded(cases().filter(|node| case(*node).failing > 0).map(name).collect());
    Some(TestResults { counts: Some(counts), failing, ..TestResults::default() })
}

fn name(node: Node<'_, '_>) -> String {
    let parts = [node.attribute("classname"), node.attribute("name")];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
}

fn case(node: Node<'_, '_>) -> TestCounts {
    let has = |names: &[&str]| node.children().any(|child| names.contains(&child.tag_name().name()));
    let mut counts = TestCounts::default();
    if has(&["failure", "error"]) {
        counts.failing = 1;
    } else if has(&["skipped", "disabled"])
        || matches!(node.attribute("status"), Some("notrun" | "skipped" | "disabled"))
    {
        counts.skipped = 1;
    } else {
        counts.passing = 1;
    }
    counts
}

/// Returns the totals of the outermost elements that have them.
fn totals(root: Node<'_, '_>) -> TestCounts {
    let mut counts = TestCounts::default();
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let number = |name: &str| node.attribute(name).and_then(|text| text.trim().parse::<u64>().ok());
        let Some(tests) = number("tests") else {
            open.extend(node.children().filter(|child| child.has_tag_name("testsuite")));
            continue;
        };
        let failing = number("failures").unwrap_or(0).saturating_add(number("errors").unwrap_or(0));
        let skipped = number("skipped").or_else(|| number("disabled")).unwrap_or(0);
        let passing = tests.saturating_sub(failing).saturating_sub(skipped);
        counts = counts.plus(TestCounts { passing, failing, skipped });
    }
    counts
}

/// Whether the parser reads a document in linear time and memory.
fn is_bounded(xml: &str) -> bool {
    let (mut rest, mut attributes, mut namespaces) = (xml, 0, 0);
    while let Some((_, after)) = rest.split_once('<') {
        let without_tags = [("!--", "-->"), ("![CDATA[", "]]>"), ("?", "?>")];
        if let Some((_, end)) = without_tags.into_iter().find(|(begin, _)| after.starts_with(begin)) {
            rest = after.split_once(end).map_or("", |(_, after)| after);
            continue;
        }
        let (mut quote, mut own, mut length) = (None, 0, after.len());
        for (at, byte) in after.bytes().enumerate() {
            match (quote, byte) {
                (None, b'>') => {
                    length = at;
                    break;
                }
                (None, b'"' | b'\'') => {
                    quote = Some(byte);
                    own += 1;
                }
                (Some(open), _) if open == byte => quote = None,
                _ => {}
            }
        }
        attributes += own;
        namespaces += after[..length].matches("xmlns").count();
        if own > MAX_ATTRIBUTES || attributes > REPORT_NODES as usize || namespaces > MAX_NAMESPACES {
            return false;
        }
        rest = &after[length..];
    }
    true
}
