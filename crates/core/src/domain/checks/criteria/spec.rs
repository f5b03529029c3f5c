//! Written form of a check: a plain command, or a mapping with a rule.

use serde_json::{Map, Value};

use super::{CriteriaError, name_of, plain, validate};
use crate::domain::model::ids::Percent;
use crate::domain::model::task::{Check, CheckRule, CheckSource};

/// Pattern of a percentage, the default for coverage checks. The last match is used.
const ANY_PERCENTAGE: &str = r"(\d+(?:\.\d+)?)\s?%";

/// Keys of a check that is a mapping.
const KEYS: [&str; 11] =
    ["name", "command", "kind", "pattern", "min", "at_least", "at_most", "any_exit", "timeout", "counts", "junit"];

/// Parses one entry of a `checks:` list. A string is a command that must exit with code 0. A mapping has `command` and
/// optionally `name`, `kind` (`exit_code`, `empty_output`, `coverage`, `count`), `pattern`, `min`, `at_least`, `at_most`,
/// `any_exit`, `timeout` (seconds, or `90s`, `10m`, `1h`), `counts` and `junit`. The returned check is valid.
pub fn check_from_value(value: &Value, source: CheckSource) -> Result<Check, CriteriaError> {
    let check = match value {
        Value::String(command) => plain(command.trim(), source),
        Value::Object(map) => from_map(map, source)?,
        other => {
            return Err(CriteriaError::Block(format!(
                "a check is a command or a mapping with `command`, not `{other}`; put quotes around the command"
            )));
        }
    };
    validate(&check)
        .map_err(|reason| CriteriaError::Invalid { name: check.name.clone(), reason: reason.to_string() })?;
    Ok(check)
}

fn from_map(map: &Map<String, Value>, source: CheckSource) -> Result<Check, CriteriaError> {
    let label =
        text(map, "name").or_else(|| text(map, "command").map(|c| name_of(&c))).unwrap_or_else(|| "?".to_owned());
    let invalid = |reason: String| CriteriaError::Invalid { name: label.clone(), reason };
    for key in map.keys() {
        if !KEYS.contains(&key.as_str()) {
            let near = KEYS.iter().max_by(|a, b| strsim::jaro(a, key).total_cmp(&strsim::jaro(b, key)));
            return Err(invalid(format!("unknown key `{key}`; did you mean `{}`?", near.unwrap_or(&"command"))));
        }
    }
    let Some(command) = text(map, "command") else {
        return Err(invalid("`command` is missing or is not text; put quotes around it".to_owned()));
    };
    let number = |key: &str| match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            value.as_f64().map(Some).ok_or_else(|| invalid(format!("`{key}` must be a number, not {value}")))
        }
    };
    let (min, at_least, at_most) = (number("min")?, number("at_least")?, number("at_most")?);
    let any_exit = match map.get("any_exit") {
        None | Some(Value::Null) => None,
        Some(value) => {
            Some(value.as_bool().ok_or_else(|| invalid(format!("`any_exit` must be true or false, not {value}")))?)
        }
    };
    let pattern = text(map, "pattern");
    let kind = text(map, "kind").unwrap_or_else(|| guess_kind(min, at_least.or(at_most)).to_owned());
    let rule = match (kind.as_str(), min, pattern) {
        ("exit_code", None, None) => CheckRule::ExitCode,
        ("empty_output", None, None) => CheckRule::EmptyOutput,
        ("coverage", Some(min), pattern) => {
            CheckRule::Coverage { pattern: pattern.unwrap_or_else(|| ANY_PERCENTAGE.to_owned()), min: Percent(min) }
        }
        ("count", None, Some(pattern)) => {
            CheckRule::Count { pattern, at_least, at_most, any_exit: any_exit.unwrap_or_default() }
        }
        ("exit_code" | "empty_output", ..) => {
            return Err(invalid(format!("`{kind}` takes neither `pattern` nor bounds; `coverage` and `count` do")));
        }
        ("coverage", ..) => return Err(invalid("`coverage` needs `min` (0 to 100)".to_owned())),
        ("count", ..) => return Err(invalid("`count` needs `pattern`, and `at_least` or `at_most`".to_owned())),
        _ => {
            return Err(invalid(format!(
                "`{kind}` is not a kind of check; use exit_code, empty_output, coverage or count"
            )));
        }
    };
    if !matches!(rule, CheckRule::Count { .. }) && (at_least.or(at_most).is_some() || any_exit.is_some()) {
        return Err(invalid(format!("`at_least`, `at_most` and `any_exit` belong to `count`, not to `{kind}`")));
    }
    let timeout_s =
        match map.get("timeout") {
            None | Some(Value::Null) => None,
            Some(value) => Some(seconds(value).ok_or_else(|| {
                invalid(format!("`timeout` must be seconds, or like `90s`, `10m`, `1h`, not {value}"))
            })?),
        };
    let name = text(map, "name").unwrap_or_else(|| name_of(&command));
    Ok(Check { name, command, rule, source, timeout_s, counts: text(map, "counts"), junit: text(map, "junit") })
}

fn guess_kind(min: Option<f64>, bound: Option<f64>) -> &'static str {
    match (min, bound) {
        (Some(_), _) => "coverage",
        (None, Some(_)) => "count",
        (None, None) => "exit_code",
    }
}

fn text(map: &Map<String, Value>, key: &str) -> Option<String> {
    map.get(key).and_then(Value::as_str).map(|value| value.trim().to_owned())
}

fn seconds(value: &Value) -> Option<u64> {
    if let Some(number) = value.as_u64() {
        return Some(number);
    }
    let text = value.as_str()?.trim();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit.trim() {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}
