//! Reference pages `docs/reference/configuration.md` and `docs/reference/thresholds.md`, generated from the types of both configuration
//! files.

use serde_json::Value as Json;

use super::{removed, schema};
use crate::domain::model::quantity::Duration;
use crate::domain::model::settings::{KeyRule, join};

/// Sections with a separate page.
const THRESHOLDS: [&str; 3] = ["control", "oversight", "strategy"];

/// Maximum length of a default in a table, in characters.
const MAX_DEFAULT: usize = 40;

/// Keys of the repository's file that have the name of a service-wide limit in the operator's file.
const OF_ONE_REPOSITORY: [&str; 2] = ["limits.loops", "limits.cost_usd_per_day"];

/// Mark of keys that exist in both files.
const SHARED_MARK: &str = " (R)";

/// Returns `docs/reference/configuration.md`, the reference of both files. The operator's tables contain the keys of both
/// files.
pub fn configuration() -> String {
    let (operator, operator_rules) = (schema::operator(), schema::operator_rules());
    let (repository, repository_rules) = (schema::repository(), schema::repository_rules());
    let mut operators = Reference { root: &operator, rules: &operator_rules, shared: Vec::new(), is_marked: true };
    let mut repositories =
        Reference { root: &repository, rules: &repository_rules, shared: Vec::new(), is_marked: false };
    let keys = repositories.keys();
    let is_shared = |key: &(String, String)| keys.contains(key) && !OF_ONE_REPOSITORY.contains(&key.0.as_str());
    let shared: Vec<_> = operators.keys().into_iter().filter(is_shared).map(|(key, _)| key).collect();
    repositories.shared.clone_from(&shared);
    operators.shared = shared;
    let mut page = format!("{CONFIGURATION}{OPERATOR}");
    operators.section(&mut page, "", &operator, "###");
    page.push_str(REPOSITORY);
    repositories.section(&mut page, "", &repository, "###");
    page
}

/// Returns `docs/reference/thresholds.md`, the reference of the supervision thresholds.
pub fn thresholds() -> String {
    let mut page = String::from(THRESHOLDS_PAGE);
    let (schema, rules) = (schema::operator(), schema::operator_rules());
    let reference = Reference { root: &schema, rules: &rules, shared: Vec::new(), is_marked: false };
    for group in THRESHOLDS {
        let Some(property) = schema.pointer(&format!("/properties/{group}")) else { continue };
        let about = text_of(property, "description").unwrap_or_default().replace('\n', " ");
        page.push_str(&format!("\n## `{group}`\n\n{about}\n\n"));
        reference.section(&mut page, group, reference.resolve(property), "###");
    }
    page
}

const CONFIGURATION: &str = "\
<!-- Generated from the types in crates/config/src/config by `ralph-bot schema --markdown`; do not edit. -->

# Configuration

There are two files: the operator's file configures the service, and an optional file in each repository configures the work
on that repository. Unknown keys, wrong types and contradictions are errors with file, line, column and the nearest valid key;
all of them are reported at once. `ralph-bot schema operator` and `ralph-bot schema repository` print JSON Schemas for editors.
The sections `control`, `oversight` and `strategy` of both files are in [thresholds.md](thresholds.md).

## Sources of values

The operator's file is the one given by `--config`, else by `RALPH_CONFIG`, else `ralph-control.yaml` in the current
folder. Relative paths in it are relative to its folder.

Each value can be overridden by an environment variable: `RALPH_`, then the keys in capitals, separated by two underscores. An
item of a list is selected by its `name` or by its 0-based index. Values are text or JSON.

| variable | sets |
|---|---|
| `RALPH_DATA_DIR=/var/lib/ralph` | `data_dir` |
| `RALPH_SERVER__LISTEN=0.0.0.0:8080` | `server.listen` |
| `RALPH_LIMITS__TIMEOUT=90m` | `limits.timeout` |
| `RALPH_FORGES__WORK__URL=https://git.example.org` | `url` of the forge named `work` |
| `RALPH_REPOSITORIES='[\"work:team/*\"]'` | `repositories` |

`RALPH_LOG` (a filter such as `info` or `ralph=debug`) and `RALPH_LOG_FORMAT` (`text` or `json`) configure the log.

Secrets must not be in the file. A key that ends in `_env` names an environment variable, one that ends in `_file` a file that
contains the secret; set one of both. A webhook secret has at least 32 bytes; `openssl rand -hex 32` generates one. `ralph-bot init --webhook` gives
each repository a separate secret, in `webhook-secrets` of the data folder; the forge's secret signs deliveries about all others.

## Conditions

`when` in `backends.NAME.models.rules` and in `schedule` is an expression of the Common Expression Language (CEL), such as
`consec_errors >= 2 && cost < 8` or `task_type in [\"lint\", \"docs\"] || urgency == \"critical\"`. Whole numbers and decimals can
be compared with each other. Expressions are parsed and type-checked with the configuration; one that fails at run time (a
division by 0) counts as false. Available are `&& || !`, comparisons, `+ - * / %`, `in`, `? :`, `size`, `startsWith`, `endsWith`
and `contains`, and these names:

| name | meaning |
|---|---|
| `iteration`, `max_iterations` | 1-based number of the iteration; maximum number of iterations of the loop (4294967295 if unlimited) |
| `elapsed_minutes` (`elapsed`) | running time in whole minutes |
| `consec_errors`, `error_count`, `has_error` | number of consecutive failed runs; number of iterations with an error; whether the last run failed |
| `cost` (`total_cost`), `cost_hour` | cost of the loop in dollars; cost within the last 60 minutes |
| `tokens` (`total_tokens`) | tokens read and written |
| `completion`, `control_signal` | 0 to 1 |
| `urgency` | `normal`, `elevated`, `high` or `critical` |
| `trend` | `improving`, `stable`, `regressing` or `oscillating` |
| `task_type` | `test-fix`, `feature` and so on |
| `backend` | backend of the last run, or of the next one |
| `context_pct` | percentage of the model's context that the last run filled |

## Values

Durations are written `90s`, `30m`, `2h`, `1h30m`, `7d`, or as a number of seconds. Amounts are in US dollars.
";

const OPERATOR: &str = "
## Operator file

Keys with (R) can also be set in the [repository's file](#repository-file).

";

const REPOSITORY: &str = "
## Repository file

`.github/ralph.yml`, `.gitea/ralph.yml` or `.ralph.yml`, the first that exists, read from the default branch only. An error in
it stops the loop with a comment that shows the error.

It can set the keys with (R) above, the keys of [thresholds.md](thresholds.md), and the keys below. `limits` and `intelligence` can
only be lower than the operator's, `plan` and `protected.policy` only stricter, `review.when` only `never`. `protected.paths` are
added to the operator's. All other keys replace the operator's value.

";

const THRESHOLDS_PAGE: &str = "\
<!-- Generated from the types in crates/core/src/domain by `ralph-bot schema --thresholds`; do not edit. -->

# Thresholds of supervision

Keys of `control`, `oversight` and `strategy`, in the operator's file and in a repository's file, which is merged over it key by
key. `preset` selects the defaults: `default` is the table below, which can improve with a new version; `pinned` is a set of values
that stays unchanged. Keys with `true` or `false` under `oversight`, and `control.auto_intervene`, can be set by the operator only.
Shares and completion are between 0 and 1. [Configuration](configuration.md) has all other keys.
";

/// Table of the keys of one section, or of several sections with identical keys.
struct SectionTable {
    /// Full keys of the sections; empty for the whole file.
    paths: Vec<String>,
    /// Description of the section's type; `None` if the sections have different descriptions.
    about: Option<String>,
    /// Descriptions of the keys whose values are the sections, by section.
    notes: Vec<(String, String)>,
    /// Rows, each with a trailing line break.
    rows: Vec<String>,
}

impl SectionTable {
    /// Returns the headline and the description.
    fn head(&self, heading: &str) -> String {
        let titles: Vec<String> = self.paths.iter().map(|path| format!("`{path}`")).collect();
        let mut head = format!("\n{heading} {}\n\n", titles.join(", "));
        match (&self.notes[..], &self.paths[..]) {
            // The key of a list or map, which has no row, describes its items.
            ([(_, note)], [path]) if path.ends_with("[]") || path.ends_with(".NAME") => {
                head.push_str(&format!("{note}\n\n"));
            }
            (notes, paths) => {
                head.extend(self.about.as_ref().map(|about| format!("{about}\n\n")));
                if paths.len() > 1 && !notes.is_empty() {
                    head.extend(notes.iter().map(|(path, note)| format!("- `{path}`: {note}\n")));
                    head.push('\n');
                }
            }
        }
        head
    }
}

/// Writes tables of the keys of one file.
struct Reference<'a> {
    root: &'a Json,
    rules: &'a [KeyRule],
    /// Keys that exist in both files.
    shared: Vec<String>,
    /// Whether these keys are marked; otherwise they are omitted.
    is_marked: bool,
}

impl Reference<'_> {
    /// Appends a table of the keys of `schema`, then the sections for keys with nested keys. Sections with identical rows
    /// share a table.
    fn section(&self, page: &mut String, path: &str, schema: &Json, heading: &str) {
        let mut all = Vec::new();
        self.tables(path, "", schema, &mut all);
        let mut sections: Vec<SectionTable> = Vec::new();
        for section in all.into_iter().filter(|section| !section.rows.is_empty()) {
            match sections.iter_mut().find(|other| other.rows == section.rows) {
                Some(other) => {
                    other.paths.extend(section.paths);
                    other.notes.extend(section.notes);
                    other.about = other.about.take().filter(|about| Some(about) == section.about.as_ref());
                }
                None => sections.push(section),
            }
        }
        share_common_rows(&mut sections);
        for section in sections {
            if section.paths != [path] {
                page.push_str(&section.head(heading));
            }
            page.push_str("| key | type | default | description |\n|---|---|---|---|\n");
            page.extend(section.rows);
        }
    }

    /// Collects the tables of `schema` and its sections. A section has no row, because its heading describes it.
    fn tables(&self, path: &str, note: &str, schema: &Json, sections: &mut Vec<SectionTable>) {
        let about = text_of(schema, "description").map(|about| about.replace('\n', " "));
        let notes = if note.is_empty() { Vec::new() } else { vec![(path.to_owned(), note.to_owned())] };
        let mut table = SectionTable { paths: vec![path.to_owned()], about, notes, rows: Vec::new() };
        let mut nested = Vec::new();
        let properties = schema.get("properties").and_then(Json::as_object);
        for (key, property) in properties.into_iter().flatten() {
            let full = join(path, key);
            let target = self.resolve(property);
            let about = text_of(property, "description").or_else(|| text_of(target, "description"));
            let mut about = about.unwrap_or_default().replace('\n', " ");
            let is_only_section = self.is_only_section(&full, property);
            let note = if is_only_section { about.as_str() } else { "" };
            let inner = self.sections_of(&full, property).into_iter();
            nested.extend(inner.map(|(path, schema)| (path, note.to_owned(), schema)));
            if is_only_section {
                continue;
            }
            let is_shared = self.shared.contains(&full);
            if is_shared && !self.is_marked {
                continue;
            }
            let mut name = format!("`{key}`");
            // The two sources of a secret share a row.
            let source = |base: Option<&str>, suffix: &str| {
                base.is_some_and(|base| properties.is_some_and(|all| all.contains_key(&format!("{base}{suffix}"))))
            };
            if source(key.strip_suffix("_file"), "_env") {
                continue;
            }
            if source(key.strip_suffix("_env"), "_file") {
                name = format!("{name}, `{}_file`", key.trim_end_matches("_env"));
                about = about.replacen("Environment variable", "Environment variable or file", 1);
            }
            let mark = if is_shared { SHARED_MARK } else { "" };
            let kind = self.type_with_bounds(&full, property);
            let default = self.default_of(property);
            table.rows.push(format!("| {name}{mark} | {} | {default} | {} |\n", escape(&kind), escape(&about)));
        }
        sections.push(table);
        for (path, note, schema) in nested {
            self.tables(&path, &note, &schema, sections);
        }
    }

    /// Returns the full keys of all rows, with their types.
    fn keys(&self) -> Vec<(String, String)> {
        let mut keys = Vec::new();
        self.collect_keys("", self.root, &mut keys);
        keys
    }

    fn collect_keys(&self, path: &str, schema: &Json, keys: &mut Vec<(String, String)>) {
        for (key, property) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
            let full = join(path, key);
            if !self.is_only_section(&full, property) {
                keys.push((full.clone(), self.type_of(property)));
            }
            for (path, schema) in self.sections_of(&full, property) {
                self.collect_keys(&path, &schema, keys);
            }
        }
    }

    /// Returns the sections in the value of a key; none for sections with a separate page.
    fn sections_of(&self, key: &str, property: &Json) -> Vec<(String, Json)> {
        if THRESHOLDS.contains(&key) { Vec::new() } else { self.nested(key, self.resolve(property)) }
    }

    /// Whether a key's value is only a section, or a list or map of sections.
    fn is_only_section(&self, key: &str, property: &Json) -> bool {
        let kind = self.type_of(property);
        THRESHOLDS.contains(&key)
            || matches!(kind.as_str(), "map" | "list of map") && !self.sections_of(key, property).is_empty()
    }

    /// Returns the sections in `schema`, with their paths.
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

    /// Returns the type of a key with its bounds ("whole number, 2 to 100, at most `window`").
    fn type_with_bounds(&self, key: &str, schema: &Json) -> String {
        let kind = self.type_of(schema);
        let Some(rule) = self.rules.iter().find(|rule| rule.key == key) else { return kind };
        let is_duration = text_of(self.resolve(schema), "format") == Some("duration-text");
        let bound = |bound: f64| {
            if is_duration { Duration::seconds(bound as u64).to_string() } else { schema::number(bound).to_string() }
        };
        let range = match (rule.min, rule.max) {
            (Some(min), Some(max)) => Some(format!("{} to {}", bound(min), bound(max))),
            // The smallest amount above 0 is printed as "more than 0".
            (Some(min), None) if min < 0.01 && min > 0.0 => Some("more than 0".to_owned()),
            (Some(min), None) => Some(format!("at least {}", bound(min))),
            (None, max) => max.map(|max| format!("at most {}", bound(max))),
        };
        let section = key.rsplit_once('.').map_or("", |(section, _)| section);
        // A bound that is a removed key is printed as the key's built-in value.
        let other = |name: &str| removed::built_in(&join(section, name)).unwrap_or_else(|| format!("`{name}`"));
        let below = rule.below.iter().map(|name| format!("below {}", other(name)));
        let at_most = rule.at_most.iter().map(|name| format!("at most {}", other(name)));
        std::iter::once(kind).chain(range).chain(below).chain(at_most).collect::<Vec<_>>().join(", ")
    }

    /// Returns the type ("list of text").
    fn type_of(&self, schema: &Json) -> String {
        let schema = self.resolve(schema);
        match text_of(schema, "format") {
            Some("duration-text") => return "duration".to_owned(),
            Some("us-dollars") => return "amount".to_owned(),
            Some("iteration-limit") => return "`unlimited` or whole number".to_owned(),
            _ => {}
        }
        if let Some(Json::Array(words)) = schema.get("enum") {
            return words.iter().filter_map(Json::as_str).map(|w| format!("`{w}`")).collect::<Vec<_>>().join(" or ");
        }
        if let Some(word) = text_of(schema, "const") {
            return format!("`{word}`");
        }
        let mut kinds: Vec<&str> = match schema.get("type") {
            Some(Json::String(one)) => vec![one.as_str()],
            Some(Json::Array(many)) => many.iter().filter_map(Json::as_str).collect(),
            _ => {
                let choices = self.choices(schema).map(|choice| self.type_of(choice)).filter(|kind| kind != "null");
                return choices.collect::<Vec<_>>().join(" or ");
            }
        };
        if kinds.len() > 1 {
            kinds.retain(|kind| *kind != "null");
        }
        let name = |kind: &&str| match *kind {
            "string" => "text".to_owned(),
            "integer" => "whole number".to_owned(),
            "boolean" => "`true` or `false`".to_owned(),
            "array" => {
                format!("list of {}", schema.get("items").map(|items| self.type_of(items)).unwrap_or_default())
            }
            "object" => "map".to_owned(),
            other => other.to_owned(),
        };
        kinds.iter().map(name).collect::<Vec<_>>().join(" or ")
    }

    /// Returns the default, or "see below" if it is too long for a table.
    fn default_of(&self, property: &Json) -> String {
        match property.get("default") {
            None | Some(Json::Null) => "–".to_owned(),
            Some(Json::Object(keys)) if keys.is_empty() => "empty".to_owned(),
            Some(Json::Array(items)) if items.is_empty() => "empty".to_owned(),
            Some(Json::String(text)) if text.is_empty() => "–".to_owned(),
            Some(Json::String(text)) => format!("`{text}`"),
            Some(Json::Array(items)) if items.len() > 2 => {
                let items: Vec<_> = items.iter().filter_map(Json::as_str).map(|item| format!("`{item}`")).collect();
                items.join(", ")
            }
            Some(other) => {
                let text = other.to_string();
                if text.len() <= MAX_DEFAULT { format!("`{text}`") } else { "see below".to_owned() }
            }
        }
    }
}

/// Moves a section's rows to the shared table of several sections if the section contains all rows of this table.
fn share_common_rows(sections: &mut [SectionTable]) {
    for group in 0..sections.len() {
        if sections[group].paths.len() < 2 {
            continue;
        }
        let common = sections[group].rows.clone();
        for other in (0..sections.len()).filter(|other| *other != group) {
            if common.iter().all(|row| sections[other].rows.contains(row)) {
                sections[other].rows.retain(|row| !common.contains(row));
                let paths = sections[other].paths.clone();
                sections[group].paths.extend(paths);
            }
        }
    }
}

fn text_of<'j>(schema: &'j Json, key: &str) -> Option<&'j str> {
    schema.get(key).and_then(Json::as_str)
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}
