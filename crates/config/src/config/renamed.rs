//! Old names of keys in the operator's file, and removed keys, which are accepted with a warning until version 1.0.

use super::problem::ProblemCollector;
use super::yaml::{MapEntry, YamlNode, YamlValue};
use crate::domain::supervision::{PRESET, RENAMED_KEYS};

/// Old and new names of top-level keys.
const RENAMED: &[(&str, &str)] = &[("order", "priority"), ("parking", "cooldown"), ("context_processing", "context")];
/// Keys that moved to another section: old section, key, new section.
const MOVED: &[(&str, &str, &str)] = &[("memory", "summary_model", "context")];
/// Keys that no longer have an effect, by section, key and reason.
const REMOVED: &[(&str, &str, &str)] = &[("rotation", "iteration_cost", ADAPTIVE_REMOVED)];
const ADAPTIVE_REMOVED: &str = "the mode `adaptive` was removed";

/// Renames, moves and removes old keys in the file, and converts a `command` that is a single word to a list.
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
    for (section, key, to) in MOVED {
        move_key(root, (section, key), to, report);
    }
    for (section, key, reason) in REMOVED {
        let Some(YamlValue::Map(keys)) = child(root, section).map(|node| &mut node.value) else { continue };
        let Some(at) = keys.iter().position(|entry| entry.key == *key) else { continue };
        let path = format!("{section}.{key}");
        report.warn(keys.remove(at).key_place, path.clone(), removed(&path, reason));
    }
    if let Some(mode) = child(root, "rotation").and_then(|section| child(section, "mode"))
        && mode.value == YamlValue::Text("adaptive".to_owned())
    {
        let message =
            format!("{ADAPTIVE_REMOVED} and is read as `none`; choose another, this one is read until version 1.0");
        report.warn(mode.place.clone(), "rotation.mode", message);
        mode.value = YamlValue::Text("none".to_owned());
    }
    commands(root);
}

/// Renames old supervision keys and the preset `seed` in either file. An old key beside its new one is left and
/// reported as unknown.
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

/// Moves a key to the section to which it belongs.
fn move_key(root: &mut YamlNode, (section, key): (&str, &str), to: &str, report: &mut ProblemCollector) {
    let has_new = root.has(&format!("{to}.{key}"));
    let YamlValue::Map(sections) = &mut root.value else { return };
    let of = |sections: &mut Vec<MapEntry>, name: &str| sections.iter().position(|entry| entry.key == name);
    let Some(from) = of(sections, section) else { return };
    let YamlValue::Map(entries) = &mut sections[from].node.value else { return };
    let Some(at) = entries.iter().position(|entry| entry.key == key) else { return };
    let entry = entries.remove(at);
    let (old, new) = (format!("{section}.{key}"), format!("{to}.{key}"));
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
    // A section of another type is reported as such.
    if let YamlValue::Map(entries) = &mut node.value {
        entries.push(entry);
    }
}

/// Converts each backend's `command` that is a single word to a list. Text with spaces is left unchanged, because
/// splitting it would require shell rules.
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

/// Returns the new name of a key that an environment variable names by its old one, with a warning; `None` if it was
/// not renamed.
pub(super) fn current_name(key: &str) -> Option<(&'static str, String)> {
    let (old, new) = RENAMED.iter().find(|(old, _)| *old == key)?;
    Some((*new, warning(old, new)))
}

/// Returns the warning about an environment variable that names a removed key by `path`; `None` if the key was not
/// removed.
pub(super) fn removal(path: &[String]) -> Option<String> {
    let [section, key] = path else { return None };
    let (.., reason) = REMOVED.iter().find(|(of, name, _)| of == section && name == key)?;
    Some(removed(&format!("{section}.{key}"), reason))
}

fn removed(path: &str, reason: &str) -> String {
    format!("`{path}` has no effect: {reason}; remove the key, it is accepted until version 1.0")
}

fn warning(old: &str, new: &str) -> String {
    format!("`{old}` is now called `{new}`; rename it, the old name is read until version 1.0")
}
