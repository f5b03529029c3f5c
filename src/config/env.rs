//! The process's environment as a value, and `RALPH_…` variables that override keys of the operator's file.

use std::collections::BTreeMap;
use std::fmt;

use super::problem::{Place, Reporter};
use super::shape::Shape;
use super::tree::{Entry, Node, Value};
use crate::domain::model::settings::did_you_mean;

/// What every variable that overrides a key begins with.
const PREFIX: &str = "RALPH_";

/// Between the keys of a path: `RALPH_SERVER__LISTEN` is `server.listen`.
const SEPARATOR: &str = "__";

/// Environment variables. Shows only their names, as values can be secrets.
#[derive(Clone, Default)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// Those of this process, without the ones that are not valid text.
    pub fn of_process() -> Self {
        Self(std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect())
    }

    /// These and no others.
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(variables.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    /// Value of `name`, where it is set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Puts every overriding variable into `root`. A variable overrides when it has `__` in its name or names a key of the
/// top; other `RALPH_…` variables are somebody's secrets or settings and none of our business.
pub(super) fn apply(env: &Env, root: &mut Node, shape: Shape<'_>, report: &mut Reporter) {
    for (name, text) in &env.0 {
        let Some(path) = name.strip_prefix(PREFIX) else { continue };
        let steps: Vec<String> = path.split(SEPARATOR).map(str::to_lowercase).collect();
        if steps.len() == 1 && !shape.keys().any(|key| Some(key) == steps.first().map(String::as_str)) {
            continue;
        }
        let place = Place::Variable(name.clone());
        if let Err(message) = set(root, shape, &steps, text, &place, "") {
            report.add(place, name, message);
        }
    }
}

/// Sets the value `steps` below `node`, making what is missing on the way.
fn set(
    node: &mut Node,
    shape: Shape<'_>,
    steps: &[String],
    text: &str,
    place: &Place,
    path: &str,
) -> Result<(), String> {
    let Some((step, rest)) = steps.split_first() else {
        *node = Node::from_json(value_of(text, shape), place);
        return Ok(());
    };
    if let Some(item_shape) = shape.item() {
        let item = item_of(node, step, place, path)?;
        return set(item, item_shape, rest, text, place, &format!("{path}[{step}]"));
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    if node.value == Value::Null {
        *node = Node { place: place.clone(), value: Value::Map(Vec::new()) };
    }
    let Value::Map(entries) = &mut node.value else {
        return Err(format!("`{path}` is {} and has no keys", node.value.kind()));
    };
    let same = |key: &str| key.to_lowercase().replace('-', "_") == *step;
    let known = entries.iter().map(|e| e.key.clone()).find(|key| same(key));
    let key = match known.or_else(|| shape.keys().find(|key| same(key)).map(str::to_owned)) {
        Some(key) => key,
        None if shape.is_open() => step.clone(),
        None => {
            let place_name = if path.is_empty() { String::new() } else { format!(" in `{path}`") };
            return Err(format!("unknown key `{step}`{place_name}{}", did_you_mean(step, shape.keys())));
        }
    };
    let child_shape = shape.child(&key).unwrap_or(Shape::ANY);
    let index = entries.iter().position(|e| e.key == key).unwrap_or_else(|| {
        entries.push(Entry { key: key.clone(), key_place: place.clone(), node: Node::default() });
        entries.len() - 1
    });
    match entries.get_mut(index) {
        Some(entry) => set(&mut entry.node, child_shape, rest, text, place, &below(&key)),
        None => Ok(()),
    }
}

/// The item of a list by its number (the next free one makes a new item) or by its `name`.
fn item_of<'n>(node: &'n mut Node, step: &str, place: &Place, path: &str) -> Result<&'n mut Node, String> {
    if node.value == Value::Null {
        *node = Node { place: place.clone(), value: Value::List(Vec::new()) };
    }
    let kind = node.value.kind();
    let Value::List(items) = &mut node.value else {
        return Err(format!("`{path}` is {kind} and has no items"));
    };
    let named = |item: &Node| matches!(item.get("name").map(|n| &n.value), Some(Value::Text(name)) if name.to_lowercase().replace('-', "_") == step);
    let index = match step.parse::<usize>() {
        Ok(index) => index,
        Err(_) => items.iter().position(named).ok_or_else(|| {
            format!("`{path}` has no item named `{step}`; use its name or its number, counted from 0")
        })?,
    };
    let count = items.len();
    if index == count {
        items.push(Node { place: place.clone(), value: Value::Null });
    }
    items.get_mut(index).ok_or_else(|| format!("`{path}` has no item {index}; the next new one is {count}"))
}

/// Text where only text is wanted; otherwise JSON where it is JSON.
fn value_of(text: &str, shape: Shape<'_>) -> serde_json::Value {
    if shape.takes_only_text() {
        return serde_json::Value::String(text.to_owned());
    }
    serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.to_owned()))
}
