//! Sources of the keys in the operator's configuration: the file or an environment variable.

use std::collections::BTreeMap;

use super::problem::SourceLocation;
use super::yaml::{YamlNode, YamlValue};
use crate::domain::model::settings::join;

/// Source of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeySource {
    /// Operator's file.
    File,
    /// Environment variable, such as `RALPH_LIMITS__ITERATIONS`.
    Variable,
}

/// Keys set by the operator, including keys set to their default. All other keys have their default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySources(BTreeMap<String, KeySource>);

impl KeySources {
    /// Returns the source of each value in a document after environment variables were applied.
    pub(super) fn of(root: &YamlNode) -> Self {
        let mut sources = Self::default();
        sources.add(root, "");
        sources
    }

    fn add(&mut self, node: &YamlNode, key: &str) {
        match &node.value {
            // A key without a value has its default.
            YamlValue::Null => {}
            YamlValue::Map(entries) if !entries.is_empty() || key.is_empty() => {
                for entry in entries {
                    self.add(&entry.node, &join(key, &entry.key));
                }
            }
            // A list is set as a whole, but a variable may set a single item.
            YamlValue::List(items) => {
                self.set(key, &node.place);
                items.iter().for_each(|item| self.add_item(item, key));
            }
            _ => self.set(key, &node.place),
        }
    }

    fn add_item(&mut self, item: &YamlNode, key: &str) {
        match &item.value {
            YamlValue::Map(entries) => entries.iter().for_each(|entry| self.add_item(&entry.node, key)),
            YamlValue::List(items) => items.iter().for_each(|item| self.add_item(item, key)),
            _ => self.set(key, &item.place),
        }
    }

    fn set(&mut self, key: &str, place: &SourceLocation) {
        let source = match place {
            SourceLocation::Variable(_) => KeySource::Variable,
            SourceLocation::At { .. } | SourceLocation::File => KeySource::File,
        };
        let known = self.0.entry(key.to_owned()).or_insert(source);
        *known = (*known).max(source);
    }

    /// Returns the source of a key, or of any key in its section. An environment variable overrides the file. `None` if all
    /// have their defaults.
    pub fn source(&self, key: &str) -> Option<KeySource> {
        let below = |name: &str| name.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let from = self.0.range(key.to_owned()..).take_while(|(name, _)| name.starts_with(key));
        from.filter(|(name, _)| below(name)).map(|(_, source)| *source).max()
    }
}
