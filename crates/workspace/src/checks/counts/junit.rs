//! Tests of a JUnit XML file.

use roxmltree::{Document, Node};

use super::bounded;
use crate::domain::model::task::{TestCounts, TestResults};

/// Counts the test cases of a JUnit file (`testsuites` or `testsuite` at the top, nested to any depth), and returns
/// the names of failed ones. Cases are counted one by one, so nested suites count once. For a file that contains only
/// totals, those of its outermost suites are used. `None` if the text is not a JUnit file.
pub fn read_junit(xml: &str) -> Option<TestResults> {
    let document = Document::parse(xml.trim_start_matches('\u{feff}')).ok()?;
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

/// Returns the totals of the outermost element that has them.
fn totals(node: Node<'_, '_>) -> TestCounts {
    let number = |name: &str| node.attribute(name).and_then(|text| text.trim().parse::<u64>().ok());
    let Some(tests) = number("tests") else {
        let suites = node.children().filter(|child| child.has_tag_name("testsuite"));
        return suites.map(totals).fold(TestCounts::default(), TestCounts::plus);
    };
    let failing = number("failures").unwrap_or(0).saturating_add(number("errors").unwrap_or(0));
    let skipped = number("skipped").or_else(|| number("disabled")).unwrap_or(0);
    TestCounts { passing: tests.saturating_sub(failing).saturating_sub(skipped), failing, skipped }
}
