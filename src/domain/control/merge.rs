//! Lays one layer of settings over another: the operator's over the defaults, the repository's over the operator's.

use serde_json::{Map, Value};

use super::gains::GainPatch;
use super::settings::ControlSettings;
use super::validate::did_you_mean;

impl ControlSettings {
    /// These settings with the keys that `layer` has put in their place. Groups and profiles are merged key by key, so that
    /// setting one leaves its neighbours; lists are replaced. What is wrong is told with key, value and what is allowed;
    /// ranges are for [`ControlSettings::validate`].
    pub fn merged(&self, layer: &Value) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mut merged = serde_json::to_value(self).map_err(|error| vec![error.to_string()])?;
        if let (Some(Value::Object(profiles)), Some(Value::Object(others))) =
            (merged.get_mut("profiles"), layer.get("profiles"))
        {
            let empty = serde_json::to_value(GainPatch::default()).unwrap_or_default();
            for name in others.keys().filter(|name| !profiles.contains_key(*name)).collect::<Vec<_>>() {
                profiles.insert(name.clone(), empty.clone());
            }
        }
        lay(&mut merged, layer, "", &mut problems);
        if problems.is_empty() {
            return serde_json::from_value(merged).map_err(|error| vec![error.to_string()]);
        }
        Err(problems)
    }
}

/// Lays `over` on `under`, which is whole: it has every key and shows the kind of each value.
fn lay(under: &mut Value, over: &Value, path: &str, problems: &mut Vec<String>) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => lay_keys(under, over, path, problems),
        (under, over) if fits(under, over) => *under = over.clone(),
        (under, over) => {
            let key = if path.is_empty() { "control" } else { path };
            problems.push(format!("`{key}` is {over}; {} is needed", kind(under)));
        }
    }
}

fn lay_keys(under: &mut Map<String, Value>, over: &Map<String, Value>, path: &str, problems: &mut Vec<String>) {
    for (key, value) in over {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match under.get_mut(key) {
            Some(slot) => lay(slot, value, &path, problems),
            None => {
                let near = did_you_mean(key, under.keys().map(String::as_str));
                problems.push(format!("`{path}` is {value}; there is no such key{near}"));
            }
        }
    }
}

/// Whether a value can stand where `slot` stands. Only the gains of a profile can be null, and they are numbers.
fn fits(slot: &Value, value: &Value) -> bool {
    match slot {
        Value::Null => value.is_number() || value.is_null(),
        Value::Bool(_) => value.is_boolean(),
        Value::Number(number) if number.is_u64() => value.as_u64().is_some_and(|whole| u32::try_from(whole).is_ok()),
        Value::Number(_) => value.is_number(),
        Value::String(_) => value.is_string(),
        Value::Array(_) => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
        Value::Object(_) => false,
    }
}

fn kind(slot: &Value) -> &'static str {
    match slot {
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_u64() => "a whole number from 0",
        Value::Null | Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list of texts",
        Value::Object(_) => "a group of keys",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_key_leaves_its_neighbours() {
        let operator = ControlSettings::default().merged(&json!({
            "window": 7,
            "profiles": { "standard": { "kp": 0.6 }, "mine": { "kp": 1, "ki": 0.2, "kd": 0.3 } },
            "actuators": { "effort": { "max": 2.0 } },
        }));
        let operator = operator.unwrap();
        let layer = json!({ "profiles": { "standard": { "ki": 0.2 }, "mine": { "kd": 0 } }, "stuck_iterations": 4 });
        let both = operator.merged(&layer).unwrap();
        let gains = |name| both.profile(name).map(|gains| (gains.kp, gains.ki, gains.kd));
        assert_eq!(gains("standard"), Some((0.6, 0.2, 0.25)));
        assert_eq!(gains("mine"), Some((1.0, 0.2, 0.0)));
        assert_eq!((both.window, both.stuck_iterations, both.oscillation_count), (7, 4, 2));
        assert_eq!((both.actuators.effort.min, both.actuators.effort.max), (0.5, 2.0));
        assert_eq!(both.merged(&json!({})).unwrap(), both);
    }

    #[test]
    fn what_is_wrong_is_told_by_key() {
        let layer = json!({
            "windov": 7,
            "window": 2.5,
            "decay": "slow",
            "profiles": { "mine": { "kpp": 1.0 } },
            "actuators": { "tone": false, "breadth": { "everything": [1] } },
            "adaptive_gains": null,
        });
        let problems = ControlSettings::default().merged(&layer).unwrap_err();
        assert_eq!(
            problems,
            [
                "`windov` is 7; there is no such key; did you mean `window`?",
                "`window` is 2.5; a whole number from 0 is needed",
                "`decay` is \"slow\"; a number is needed",
                "`profiles.mine.kpp` is 1.0; there is no such key; did you mean `kp`?",
                "`actuators.tone` is false; a group of keys is needed",
                "`actuators.breadth.everything` is [1]; a list of texts is needed",
                "`adaptive_gains` is null; true or false is needed",
            ]
        );
        assert_eq!(
            ControlSettings::default().merged(&json!(3)).unwrap_err(),
            ["`control` is 3; a group of keys is needed"]
        );
    }
}
