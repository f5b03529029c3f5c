//! Process environment, path of the operator's file, and environment variables `RALPH_…` that override its keys.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;

use super::problem::{ProblemCollector, SourceLocation};
use super::removed;
use super::renamed;
use super::schema_check::SchemaView;
use super::yaml::{MapEntry, YamlNode, YamlValue};
use crate::domain::model::settings::{did_you_mean, join};

/// Default name of the operator's file.
pub const DEFAULT_FILE: &str = "ralph-control.yaml";

/// Environment variable with the path of the operator's file.
pub const FILE_VARIABLE: &str = "RALPH_CONFIG";

/// Returns the path of the operator's file: `explicit` (`--config`), then `RALPH_CONFIG`, then `ralph-control.yaml`.
pub fn operator_file(explicit: Option<&Path>, env: &Env) -> PathBuf {
    explicit
        .map(Path::to_path_buf)
        .or_else(|| env.get(FILE_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(DEFAULT_FILE))
}

/// Prefix of variables that override keys.
const PREFIX: &str = "RALPH_";

/// Separator between the keys of a path: `RALPH_SERVER__LISTEN` sets `server.listen`.
const SEPARATOR: &str = "__";

/// Environment variables. `Debug` prints only their names, because values can be secrets.
#[derive(Clone, Default)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// Returns the environment variables of this process, except those with invalid UTF-8.
    pub fn of_process() -> Self {
        Self(std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect())
    }

    /// Returns an environment with only these variables.
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(variables.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    /// Returns the environment with another value of `name`.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Returns the value of `name`; `None` if it is not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Applies each overriding variable to `root`. A variable overrides a key if its name contains `__` or is a top-level key.
/// Ignores other `RALPH_…` variables, for example variables with secrets.
pub(super) fn apply(env: &Env, root: &mut YamlNode, shape: SchemaView<'_>, report: &mut ProblemCollector) {
    for (name, text) in &env.0 {
        let Some(path) = name.strip_prefix(PREFIX) else { continue };
        let mut steps: Vec<String> = path.split(SEPARATOR).map(str::to_lowercase).collect();
        if let Some(warning) = renamed::rename_path(&mut steps) {
            report.warn(SourceLocation::Variable(name.clone()), name, warning);
        }
        if steps.len() == 1 && !shape.keys().any(|key| Some(key) == steps.first().map(String::as_str)) {
            continue;
        }
        let place = SourceLocation::Variable(name.clone());
        let mut enclosing = steps.iter().scan(String::new(), |path, step| {
            *path = join(path, step);
            Some(path.clone())
        });
        if let Some(warning) = enclosing.find_map(|key| removed::warning(&key)) {
            report.warn(place, name, warning);
            continue;
        }
        if let Err(problem) = set(root, shape, &steps, text, &place, "") {
            report.add(place, name, format!("{problem:#}"));
        }
    }
}

/// Sets the value at the path `steps` below `node` and creates missing keys along the path.
fn set(
    node: &mut YamlNode,
    shape: SchemaView<'_>,
    steps: &[String],
    text: &str,
    place: &SourceLocation,
    path: &str,
) -> Result<(), Failure> {
    let Some((step, rest)) = steps.split_first() else {
        *node = YamlNode::from_json(value_of(text, shape), place);
        return Ok(());
    };
    if let Some(item_shape) = shape.item() {
        let item = item_of(node, step, place, path)?;
        return set(item, item_shape, rest, text, place, &format!("{path}[{step}]"));
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    if node.value == YamlValue::Null {
        *node = YamlNode { place: place.clone(), value: YamlValue::Map(Vec::new()) };
    }
    let YamlValue::Map(entries) = &mut node.value else {
        return Err(Failure::new(format!("`{path}` is {} and has no keys", node.value.kind())));
    };
    let same = |key: &str| key.to_lowercase().replace('-', "_") == *step;
    let known = entries.iter().map(|e| e.key.clone()).find(|key| same(key));
    let key = match known.or_else(|| shape.keys().find(|key| same(key)).map(str::to_owned)) {
        Some(key) => key,
        None if shape.is_open() => step.clone(),
        None => {
            let place_name = if path.is_empty() { String::new() } else { format!(" in `{path}`") };
            return Err(Failure::new(format!("unknown key `{step}`{place_name}{}", did_you_mean(step, shape.keys()))));
        }
    };
    let child_shape = shape.child(&key).unwrap_or(SchemaView::ANY);
    let index = entries.iter().position(|e| e.key == key).unwrap_or_else(|| {
        entries.push(MapEntry { key: key.clone(), key_place: place.clone(), node: YamlNode::default() });
        entries.len() - 1
    });
    match entries.get_mut(index) {
        Some(entry) => set(&mut entry.node, child_shape, rest, text, place, &below(&key)),
        None => Ok(()),
    }
}

/// Returns the item of a list with this 0-based index or this `name`. The index after the last item adds a new item.
fn item_of<'n>(
    node: &'n mut YamlNode,
    step: &str,
    place: &SourceLocation,
    path: &str,
) -> Result<&'n mut YamlNode, Failure> {
    if node.value == YamlValue::Null {
        *node = YamlNode { place: place.clone(), value: YamlValue::List(Vec::new()) };
    }
    let kind = node.value.kind();
    let YamlValue::List(items) = &mut node.value else {
        return Err(Failure::new(format!("`{path}` is {kind} and has no items")));
    };
    let named = |item: &YamlNode| matches!(item.get("name").map(|n| &n.value), Some(YamlValue::Text(name)) if name.to_lowercase().replace('-', "_") == step);
    let index = match step.parse::<usize>() {
        Ok(index) => index,
        Err(_) => items.iter().position(named).ok_or_else(|| {
            let problem = Failure::new(format!("`{path}` has no item named `{step}`"));
            problem.with_hint("use its name or its number, counted from 0")
        })?,
    };
    let count = items.len();
    if index == count {
        items.push(YamlNode { place: place.clone(), value: YamlValue::Null });
    }
    items.get_mut(index).ok_or_else(|| {
        Failure::new(format!("`{path}` has no item {index}")).with_hint(format!("the next new one is {count}"))
    })
}

/// Parses a variable's value as JSON, unless the key only accepts text. Invalid JSON is used as text.
fn value_of(text: &str, shape: SchemaView<'_>) -> serde_json::Value {
    if shape.takes_only_text() {
        return serde_json::Value::String(text.to_owned());
    }
    serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.to_owned()))
}
