//! Labels of hosts, in both configuration files.

use crate::config::problem::ProblemCollector;
use crate::config::yaml::YamlNode;

/// Maximum length of a label, in characters.
const LABEL_CHARACTERS: usize = 64;

/// Adds a problem for each label at `key` that is not a plain word.
pub(in crate::config) fn check(report: &mut ProblemCollector, root: &YamlNode, key: &str, labels: &[String]) {
    let is_plain = |label: &str| {
        let is_known = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        label.bytes().all(is_known) && (1..=LABEL_CHARACTERS).contains(&label.len())
    };
    for (index, _) in labels.iter().enumerate().filter(|(_, label)| !is_plain(label)) {
        let key = format!("{key}[{index}]");
        let message = format!("`{key}`: expected at most {LABEL_CHARACTERS} letters, digits, `-`, `_` and `.`");
        report.add(root.place_at(&key), key, message);
    }
}
