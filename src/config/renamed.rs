//! Keys of the operator's file that have a new name: the old one is read, with a warning, until version 1.0.

use super::problem::ProblemCollector;
use super::yaml::{YamlNode, YamlValue};

/// Old and new names of top-level keys.
const RENAMED: &[(&str, &str)] = &[("order", "priority"), ("parking", "cooldown")];

/// Gives old keys of the file their new names.
pub(super) fn apply(root: &mut YamlNode, report: &mut ProblemCollector) {
    for (old, new) in RENAMED {
        let has_new = root.get(new).is_some();
        let YamlValue::Map(entries) = &mut root.value else { return };
        let Some(entry) = entries.iter_mut().find(|entry| entry.key == *old) else { continue };
        if has_new {
            let message = format!("`{old}` is the old name of `{new}`, which is also set; keep `{new}`");
            report.add(entry.key_place.clone(), *old, message);
            entry.node.value = YamlValue::Null;
        } else {
            report.warn(entry.key_place.clone(), *old, warning(old, new));
        }
        entry.key = (*new).to_owned();
    }
}

/// Returns the new name of a key that an environment variable names by its old one, with the warning.
pub(super) fn current_name(key: &str) -> Option<(&'static str, String)> {
    let (old, new) = RENAMED.iter().find(|(old, _)| *old == key)?;
    Some((*new, warning(old, new)))
}

fn warning(old: &str, new: &str) -> String {
    format!("`{old}` is now called `{new}`; rename it, the old name is read until version 1.0")
}
