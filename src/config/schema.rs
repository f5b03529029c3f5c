//! JSON Schemas of both files, and the reference for people that is made from them.

use serde_json::Value as Json;

use super::operator::OperatorFile;
use super::repository::RepositoryFile;
use crate::domain::model::settings::{ANY_NAME, ConfigSection, Settings as _};
use crate::domain::supervision::control::ControlSettings;
use crate::domain::supervision::operators_alone;
use crate::domain::supervision::oversight::OversightSettings;
use crate::domain::supervision::strategy::StrategySettings;

/// JSON Schema of the operator's file.
pub fn operator() -> Json {
    with_ranges::<OperatorFile>(operator_shape())
}

/// JSON Schema of the repository's file.
pub fn repository() -> Json {
    let mut schema = with_ranges::<RepositoryFile>(repository_shape());
    for key in operators_alone() {
        let property = find(&schema, &key);
        let place = property.as_deref().and_then(|property| property.rsplit_once('/'));
        if let Some((properties, name)) = place
            && let Some(Json::Object(properties)) = schema.pointer_mut(properties)
        {
            properties.shift_remove(name);
        }
    }
    schema
}

/// The operator's file without ranges of thresholds, which are checked with what contradicts them.
pub(super) fn operator_shape() -> Json {
    schemars::schema_for!(OperatorFile).to_value()
}

/// The repository's file without ranges of thresholds, and with the keys that only the operator's file can set: they are
/// known, and refused for what they are.
pub(super) fn repository_shape() -> Json {
    schemars::schema_for!(RepositoryFile).to_value()
}

/// Adds the bounds of numbers. The groups of supervision are partial in a file, so their types do not name them.
fn with_ranges<F: ConfigSection>(mut schema: Json) -> Json {
    let mut rules = Vec::new();
    F::rules("", &mut rules);
    ControlSettings::rules(ControlSettings::GROUP, &mut rules);
    OversightSettings::rules(OversightSettings::GROUP, &mut rules);
    StrategySettings::rules(StrategySettings::GROUP, &mut rules);
    for rule in rules {
        let property = find(&schema, &rule.key).and_then(|pointer| schema.pointer_mut(&pointer));
        let Some(Json::Object(property)) = property else { continue };
        for (keyword, bound) in [("minimum", rule.min), ("maximum", rule.max)] {
            property.extend(bound.map(|bound| (keyword.to_owned(), number(bound))));
        }
    }
    schema
}

/// Returns a JSON number, without a decimal point if it is whole.
fn number(value: f64) -> Json {
    if value.fract() == 0.0 { Json::from(value as i64) } else { Json::from(value) }
}

/// Pointer to the schema of a key (`oversight.stuck.window`).
fn find(schema: &Json, key: &str) -> Option<String> {
    let mut at = String::new();
    for step in key.split('.') {
        if let Some(reference) = schema.pointer(&at)?.get("$ref").and_then(Json::as_str) {
            at = reference.trim_start_matches('#').to_owned();
        }
        at = if step == ANY_NAME { format!("{at}/additionalProperties") } else { format!("{at}/properties/{step}") };
    }
    schema.pointer(&at).map(|_| at)
}

/// The reference of both files, as Markdown: `docs/configuration.md`.
pub fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n## The operator's file\n\n");
    let schema = operator();
    Reference { root: &schema, told: &[] }.section(&mut page, "", &schema);
    page.push_str(REPOSITORY_INTRODUCTION);
    let schema = repository();
    Reference { root: &schema, told: &TOLD }.section(&mut page, "", &schema);
    page
}

const INTRODUCTION: &str = "\
<!-- Made from the types in src/config by `ralph-bot schema --markdown`; do not edit. -->

# Configuration

There are two files: the operator's, which says what the service may do, and an optional one in each repository, which
says how that repository is worked on. Unknown keys, wrong types and contradictions are errors with file, line, column
and the nearest valid key; all of them are shown at once. `ralph-bot schema operator` and `ralph-bot schema repository`
print JSON Schemas for editors.

## Where values come from

The operator's file is the one named by `--config`, else by `RALPH_CONFIG`, else `ralph-control.yaml` in the current
folder. Relative paths in it are relative to the folder it is in.

Each value can be overridden by an environment variable: `RALPH_`, then the keys in capitals with two underscores between
them. An item of a list is chosen by its `name` or by its number, counted from 0. Values are text or JSON.

| variable | sets |
|---|---|
| `RALPH_DATA_DIR=/var/lib/ralph` | `data_dir` |
| `RALPH_SERVER__LISTEN=0.0.0.0:8080` | `server.listen` |
| `RALPH_LIMITS__TIMEOUT=90m` | `limits.timeout` |
| `RALPH_FORGES__WORK__URL=https://git.example.org` | `url` of the forge named `work` |
| `RALPH_REPOSITORIES='[\"work:team/*\"]'` | `repositories` |

`RALPH_LOG` (a filter such as `info` or `ralph_bot=debug`) and `RALPH_LOG_FORMAT` (`text` or `json`) set what is logged.

Secrets are never written into the file. A key that ends in `_env` names an environment variable, one that ends in
`_file` a file that holds the secret. A webhook secret has at least 32 bytes; `openssl rand -hex 32` makes one.

`preset: seed` makes the thresholds of `control`, `oversight` and `strategy` begin with the values of the design, which
stay as they are; with `preset: default` they can become better with a new version. Either is only where they begin: what a
file sets lies over it, the repository's over the operator's, key by key.

## Conditions

`when` in `backends.NAME.models.rules` and in `schedule` is an expression of the Common Expression Language (CEL), such as
`consec_errors >= 2 && cost < 8` or `task_type in [\"lint\", \"docs\"] || urgency == \"critical\"`. Whole numbers and decimals
compare freely. It is read and typed when the configuration is; what could not be computed later (a division by 0) does not
hold. There are `&& || !`, comparisons, `+ - * / %`, `in`, `? :`, `size`, `startsWith`, `endsWith` and `contains`, and these
names:

| name | what it is |
|---|---|
| `iteration`, `max_iterations` | number of the iteration, from 1; how many the loop may take |
| `elapsed_minutes` (`elapsed`) | whole minutes of running time |
| `consec_errors`, `error_count`, `has_error` | runs that failed one after the other; iterations with an error in all; whether the last run failed |
| `cost` (`total_cost`), `cost_hour` | dollars that the loop has cost; those of the last 60 minutes |
| `tokens` (`total_tokens`) | tokens read and written |
| `completion`, `control_signal` | 0 to 1 |
| `urgency` | `normal`, `elevated`, `high` or `critical` |
| `trend` | `improving`, `stable`, `regressing` or `oscillating` |
| `task_type` | `test-fix`, `feature` and so on |
| `backend` | the one that ran last, or is about to run |
| `context_pct` | percent of the model's context that the last run filled |

## Values

Durations are written `90s`, `30m`, `2h`, `1h30m`, `7d`, or as a number of seconds. Amounts of money are US dollars.
";

const REPOSITORY_INTRODUCTION: &str = "
## The repository's file

`.github/ralph.yml`, `.gitea/ralph.yml` or `.ralph.yml`, the first that exists, read from the default branch only.
A mistake in it stops the loop with a comment that shows the error.

";

/// Keys of the repository's file of which the section on the operator's file has the keys below.
const TOLD: [&str; 3] = [ControlSettings::GROUP, OversightSettings::GROUP, StrategySettings::GROUP];

struct Reference<'a> {
    root: &'a Json,
    told: &'a [&'a str],
}

impl Reference<'_> {
    /// One table of the keys of `schema`, then a section for each key that has keys of its own.
    fn section(&self, page: &mut String, path: &str, schema: &Json) {
        page.push_str("| key | type | default | what for |\n|---|---|---|---|\n");
        let mut nested = Vec::new();
        for (key, property) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
            let target = self.resolve(property);
            let default = self.default_of(property);
            let about = text_of(property, "description").or_else(|| text_of(target, "description")).unwrap_or_default();
            let kind = escape(&self.type_of(property));
            page.push_str(&format!("| `{key}` | {kind} | {default} | {} |\n", escape(&about.replace('\n', " "))));
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            if self.told.contains(&path.as_str()) {
                continue;
            }
            nested.extend(self.nested(&path, target));
        }
        for (path, schema) in nested {
            page.push_str(&format!("\n### `{path}`\n\n"));
            if let Some(about) = text_of(&schema, "description") {
                page.push_str(&format!("{}\n\n", about.replace('\n', " ")));
            }
            self.section(page, &path, &schema);
        }
    }

    /// The maps with keys of their own in `schema`, with the path that leads there.
    fn nested(&self, path: &str, schema: &Json) -> Vec<(String, Json)> {
        if schema.get("properties").is_some() {
            return vec![(path.to_owned(), schema.clone())];
        }
        if let Some(items) = schema.get("items") {
            return self.nested(&format!("{path}[]"), self.resolve(items));
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            return self.nested(&format!("{path}.NAME"), self.resolve(values));
        }
        self.choices(schema).flat_map(|choice| self.nested(path, choice)).collect()
    }

    fn choices<'s>(&'s self, schema: &'s Json) -> impl Iterator<Item = &'s Json> {
        let list = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Json::as_array);
        list.into_iter().flatten().map(|choice| self.resolve(choice))
    }

    fn resolve<'s>(&'s self, schema: &'s Json) -> &'s Json {
        let pointer = schema.get("$ref").and_then(Json::as_str).and_then(|reference| reference.strip_prefix('#'));
        pointer.and_then(|pointer| self.root.pointer(pointer)).unwrap_or(schema)
    }

    /// The type in a word or two ("list of text").
    fn type_of(&self, schema: &Json) -> String {
        let schema = self.resolve(schema);
        match text_of(schema, "format") {
            Some("duration-text") => return "duration".to_owned(),
            Some("us-dollars") => return "amount".to_owned(),
            _ => {}
        }
        if let Some(Json::Array(words)) = schema.get("enum") {
            return words.iter().filter_map(Json::as_str).map(|w| format!("`{w}`")).collect::<Vec<_>>().join(" or ");
        }
        if let Some(word) = text_of(schema, "const") {
            return format!("`{word}`");
        }
        let mut kinds: Vec<String> = match schema.get("type") {
            Some(Json::String(one)) => vec![one.clone()],
            Some(Json::Array(many)) => many.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
            _ => {
                return self
                    .choices(schema)
                    .map(|c| self.type_of(c))
                    .filter(|k| k != "null")
                    .collect::<Vec<_>>()
                    .join(" or ");
            }
        };
        if kinds.len() > 1 {
            kinds.retain(|kind| kind != "null");
        }
        let name = |kind: &String| match kind.as_str() {
            "string" => "text".to_owned(),
            "integer" => "whole number".to_owned(),
            "boolean" => "`true` or `false`".to_owned(),
            "array" => {
                format!("list of {}", schema.get("items").map(|items| self.type_of(items)).unwrap_or_default())
            }
            "object" => "map".to_owned(),
            other => other.to_owned(),
        };
        let kinds = kinds.iter().map(name).collect::<Vec<_>>().join(" or ");
        match (schema.get("minimum"), schema.get("maximum")) {
            (Some(least), Some(most)) => format!("{kinds}, {least} to {most}"),
            _ => kinds,
        }
    }

    /// The default, where it is short enough to be shown in a table.
    fn default_of(&self, property: &Json) -> String {
        const LONGEST: usize = 40;
        match property.get("default") {
            None | Some(Json::Null) => "–".to_owned(),
            Some(Json::Object(_)) => "see below".to_owned(),
            Some(Json::Array(items)) if items.is_empty() => "empty".to_owned(),
            Some(Json::String(text)) if text.is_empty() => "–".to_owned(),
            Some(Json::String(text)) => format!("`{text}`"),
            Some(Json::Array(items)) if items.len() > 2 => {
                let items: Vec<_> = items.iter().filter_map(Json::as_str).map(|item| format!("`{item}`")).collect();
                items.join(", ")
            }
            Some(other) => Some(other.to_string())
                .filter(|d| d.len() <= LONGEST)
                .map_or("see below".to_owned(), |d| format!("`{d}`")),
        }
    }
}

fn text_of<'j>(schema: &'j Json, key: &str) -> Option<&'j str> {
    schema.get(key).and_then(Json::as_str)
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}
