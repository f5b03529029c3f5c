//! Old names of keys in the operator's file. They are accepted with a warning until version 1.0.

use super::problem::ProblemCollector;
use super::yaml::{MapEntry, YamlNode, YamlValue};
use crate::domain::supervision::{PRESET, RENAMED_KEYS};

/// Old and new names of top-level keys.
const RENAMED: &[(&str, &str)] = &[("order", "priority"), ("parking", "cooldown"), ("context_processing", "context")];
/// Keys moved to another section: old section and key, new section and key.
const MOVED: &[[&str; 4]] =
    &[["memory", "summary_model", "context", "summary_model"], ["memory", "retention_days", "retention", "days"]];

/// Renames and moves old keys in the file, and converts a single-word `command` to a list.
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
    for moved in MOVED {
        move_key(root, *moved, report);
    }
    commands(root);
}

/// Renames old supervision keys and the preset `seed` in either file. If the new key exists too, leaves the old key, which
/// is then reported as unknown.
pub(super) fn supervision(root: &mut YamlNode, report: &mut ProblemCollector) {
    if let Some(preset) = child(root, PRESET)
        && preset.value == YamlValue::Text("seed".to_owned())
    {
        report.warn(preset.place.clone(), PRESET, warning("seed", "pinned"));
        preset.value = YamlValue::Text("pinned".to_owned());
    }
    for (group, section, old, new) in RENAMED_KEYS {
        let Some(YamlValue::Map(keys)) =
            child(root, group).and_then(|group| child(group, section)).map(|node| &mut node.value)
        else {
            continue;
        };
        if keys.iter().any(|entry| entry.key == new) {
            continue;
        }
        let Some(entry) = keys.iter_mut().find(|entry| entry.key == old) else { continue };
        let (from, to) = (format!("{group}.{section}.{old}"), format!("{group}.{section}.{new}"));
        report.warn(entry.key_place.clone(), from.clone(), warning(&from, &to));
        entry.key = new.to_owned();
    }
}

/// Returns the value of a key.
fn child<'n>(node: &'n mut YamlNode, key: &str) -> Option<&'n mut YamlNode> {
    let YamlValue::Map(entries) = &mut node.value else { return None };
    entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
}

/// Moves a key to its new section.
fn move_key(root: &mut YamlNode, [section, key, to, new_key]: [&str; 4], report: &mut ProblemCollector) {
    let (old, new) = (format!("{section}.{key}"), format!("{to}.{new_key}"));
    let has_new = root.has(&new);
    let YamlValue::Map(sections) = &mut root.value else { return };
    let of = |sections: &mut Vec<MapEntry>, name: &str| sections.iter().position(|entry| entry.key == name);
    let Some(from) = of(sections, section) else { return };
    let YamlValue::Map(entries) = &mut sections[from].node.value else { return };
    let Some(at) = entries.iter().position(|entry| entry.key == key) else { return };
    let mut entry = entries.remove(at);
    entry.key = new_key.to_owned();
    if has_new {
        let message = format!("`{old}` is the old name of `{new}`, which is also set; keep `{new}`");
        return report.add(entry.key_place, old, message);
    }
    report.warn(entry.key_place.clone(), old.clone(), warning(&old, &new));
    let place = entry.key_place.clone();
    let index = of(sections, to).unwrap_or_else(|| {
        let node = YamlNode { place: place.clone(), value: YamlValue::Map(Vec::new()) };
        sections.push(MapEntry { key: to.to_owned(), key_place: place, node });
        sections.len() - 1
    });
    let node = &mut sections[index].node;
    if node.value == YamlValue::Null {
        node.value = YamlValue::Map(Vec::new());
    }
    // The schema check reports a section of another type.
    if let YamlValue::Map(entries) = &mut node.value {
        entries.push(entry);
    }
}

/// Converts each backend's single-word `command` to a list. Does not split text with spaces, because that would require
/// shell rules.
fn commands(root: &mut YamlNode) {
    let YamlValue::Map(sections) = &mut root.value else { return };
    let Some(section) = sections.iter_mut().find(|entry| entry.key == "backends") else { return };
    let YamlValue::Map(backends) = &mut section.node.value else { return };
    for backend in backends {
        let YamlValue::Map(keys) = &mut backend.node.value else { continue };
        for entry in keys.iter_mut().filter(|entry| entry.key == "command") {
            let YamlValue::Text(word) = &entry.node.value else { continue };
            if !word.is_empty() && !word.contains(char::is_whitespace) {
                entry.node.value = YamlValue::List(vec![entry.node.clone()]);
            }
        }
    }
}

/// Replaces an old key name in a path from an environment variable. Returns a warning if it replaced one.
pub(super) fn rename_path(path: &mut Vec<String>) -> Option<String> {
    if let Some((old, new)) = RENAMED.iter().find(|(old, _)| path.first().is_some_and(|first| first == old)) {
        path[0] = (*new).to_owned();
        return Some(warning(old, new));
    }
    let [section, key, to, new_key] = MOVED.iter().find(|[section, key, ..]| path[..] == [*section, *key])?;
    *path = vec![(*to).to_owned(), (*new_key).to_owned()];
    Some(warning(&format!("{section}.{key}"), &format!("{to}.{new_key}")))
}

fn warning(old: &str, new: &str) -> String {
    format!("`{old}` is now called `{new}`; rename it, the old name is read until version 1.0")
}
