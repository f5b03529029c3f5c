//! Test counts of a JUnit XML file.

use roxmltree::{Document, Node};

use super::{saturating_plus, sum};
use crate::domain::model::task::TestCounts;

/// Counts the test cases of a JUnit file (`testsuites` or `testsuite` at the top, nested to any depth). Cases are
/// counted one by one, so a suite inside a suite counts once; a file that has only totals gives those of its outermost
/// suites. `None` when the text is no such file.
pub fn read_junit(xml: &str) -> Option<TestCounts> {
    let document = Document::parse(xml.trim_start_matches('\u{feff}')).ok()?;
    let root = document.root_element();
    if !matches!(root.tag_name().name(), "testsuites" | "testsuite") {
        return None;
    }
    let cases = root.descendants().filter(|node| node.has_tag_name("testcase")).map(case);
    sum(cases).or_else(|| Some(totals(root)))
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
        return suites.map(totals).fold(TestCounts::default(), saturating_plus);
    };
    let failing = number("failures").unwrap_or(0).saturating_add(number("errors").unwrap_or(0));
    let skipped = number("skipped").or_else(|| number("disabled")).unwrap_or(0);
    TestCounts { passing: tests.saturating_sub(failing).saturating_sub(skipped), failing, skipped }
}
