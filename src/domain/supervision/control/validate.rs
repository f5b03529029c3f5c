//! What the settings of control may be: ranges, thresholds that contradict each other, names of profiles.

use serde_json::Value;

use super::gains::{BUILT_IN, GainPatch, MAX_GAIN};
use super::metrics::MAX_INTEGRAL;
use super::settings::{AUTO, ControlSettings, MAX_WINDOW};
use crate::domain::model::settings::{Findings, Settings, did_you_mean, shortened};

/// Longest name of a profile, bytes.
const MAX_NAME: usize = 64;
/// Most profiles; they are kept with every loop.
const MAX_PROFILES: usize = 32;
/// Longest window, as the tables have it.
const WINDOW: f64 = MAX_WINDOW as f64;

impl Settings for ControlSettings {
    const GROUP: &'static str = "control";

    const RANGES: &'static [(&'static str, f64, f64)] = &[
        ("window", 2.0, WINDOW),
        ("decay", 0.0, 1.0),
        ("deadband", 0.0, 0.5),
        ("transition_smoothing", 0.0, 1.0),
        ("complexity.usual", 1.0, 10.0),
        ("complexity.simple", 1.0, 10.0),
        ("complexity.hard", 1.0, 10.0),
        ("complexity.per_file", 0.0, 10.0),
        ("complexity.per_hundred_words", 0.0, 10.0),
        ("complexity.tests", 0.0, 10.0),
        ("stuck_iterations", 1.0, WINDOW),
        ("min_progress_rate", 0.0, 1.0),
        ("stuck_critical", 0.0, 1.0),
        ("oscillation_count", 1.0, WINDOW),
        ("regression_rate", 0.0, 1.0),
        ("regression_critical", 0.0, 1.0),
        ("slide_drop", 0.0, 1.0),
        ("slide_iterations", 1.0, WINDOW),
        ("max_iterations_percent", 0.0, 1.0),
        ("emergency_percent", 0.0, 1.0),
        ("quality_drop", 0.0, 1.0),
        ("quality_critical", 0.0, 1.0),
        ("integral_windup_limit", 0.0, MAX_INTEGRAL),
        ("derivative_spike", 0.0, 1.0),
        ("actuators.effort.offset", 0.0, 10.0),
        ("actuators.effort.slope", -10.0, 10.0),
        ("actuators.effort.min", 0.1, 10.0),
        ("actuators.effort.max", 0.1, 10.0),
        ("actuators.model.strong_above", 0.0, 1.0),
        ("actuators.model.strong_iterations", 1.0, WINDOW),
        ("actuators.model.cheap_below", 0.0, 1.0),
        ("actuators.memory.base", 0.0, 1.0),
        ("actuators.memory.max", 0.0, 1.0),
    ];

    const BELOW: &'static [(&'static str, &'static str)] = &[
        ("regression_rate", "regression_critical"),
        ("slide_drop", "regression_critical"),
        ("max_iterations_percent", "emergency_percent"),
        ("quality_drop", "quality_critical"),
        ("oscillation_count", "window"),
    ];

    const AT_MOST: &'static [(&'static str, &'static str)] = &[
        ("stuck_iterations", "window"),
        ("actuators.effort.min", "actuators.effort.max"),
        ("actuators.model.cheap_below", "actuators.model.strong_above"),
        ("actuators.memory.base", "actuators.memory.max"),
    ];

    fn new_name(key: &str) -> Option<Value> {
        (key == "profiles").then(|| serde_json::to_value(GainPatch::default()).unwrap_or_default())
    }

    fn further(&self, found: &mut Findings) {
        self.reachable(found);
        self.profiles(found);
    }
}

impl ControlSettings {
    /// Thresholds that no figure can pass.
    fn reachable(&self, found: &mut Findings) {
        for (key, value, most) in [
            ("stuck_critical", self.stuck_critical, 1.0),
            ("regression_critical", self.regression_critical, 1.0),
            ("quality_critical", self.quality_critical, 1.0),
            ("derivative_spike", self.derivative_spike, 1.0),
            ("integral_windup_limit", self.integral_windup_limit, MAX_INTEGRAL),
        ] {
            if value == most {
                found.wrong(key, format!("is {value}; nothing can be above that, so give less"));
            }
        }
        if self.min_progress_rate == 0.0 {
            found.wrong("min_progress_rate", "is 0; no change can be below that, so give more");
        }
    }

    fn profiles(&self, found: &mut Findings) {
        if self.profiles.len() > MAX_PROFILES {
            found.wrong("profiles", format!("has {} names; at most {MAX_PROFILES} are allowed", self.profiles.len()));
        }
        for (name, patch) in &self.profiles {
            let built_in = BUILT_IN.iter().any(|(known, _)| known == name);
            let shown = shortened(name);
            if name.is_empty() || name.len() > MAX_NAME || name == AUTO {
                let rule = format!("a name of 1 to {MAX_NAME} bytes but `{AUTO}` is allowed");
                found.wrong("profiles", format!("has `{shown}`; {rule}"));
            }
            for (key, value, low) in [("kp", patch.kp, 0.0), ("ki", patch.ki, 0.0), ("kd", patch.kd, -MAX_GAIN)] {
                let key = format!("profiles.{shown}.{key}");
                match value {
                    Some(value) => found.range(&key, value, low, MAX_GAIN),
                    None if built_in => {}
                    None => found.wrong(&key, "is missing; a profile of your own needs kp, ki and kd"),
                }
            }
        }
        if self.base_profile != AUTO {
            self.named(found, "base_profile", &self.base_profile);
        }
        let s = &self.schedule;
        for (key, name) in [
            ("regressing", &s.regressing),
            ("oscillating", &s.oscillating),
            ("near_completion", &s.near_completion),
            ("stuck", &s.stuck),
            ("windup", &s.windup),
            ("early", &s.early),
            ("sensitive", &s.sensitive),
            ("simple", &s.simple),
            ("otherwise", &s.otherwise),
        ] {
            self.named(found, &format!("schedule.{key}"), name);
        }
        let (model, breadth) = (&self.actuators.model, &self.actuators.breadth);
        for (key, names) in [
            ("model.strong_profiles", &model.strong_profiles),
            ("model.cheap_profiles", &model.cheap_profiles),
            ("breadth.first_failure", &breadth.first_failure),
            ("breadth.one_change", &breadth.one_change),
            ("breadth.everything", &breadth.everything),
        ] {
            for name in names {
                self.named(found, &format!("actuators.{key}"), name);
            }
        }
    }

    /// Looks whether there is a profile of that name.
    fn named(&self, found: &mut Findings, key: &str, name: &str) {
        let known = || BUILT_IN.iter().map(|(name, _)| *name).chain(self.profiles.keys().map(String::as_str));
        if !known().any(|known| known == name) {
            let near = did_you_mean(name, known());
            found.wrong(key, format!("is `{}`; there is no such profile{near}", shortened(name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::settings::{gaps, lines};
    use serde_json::json;

    fn with(layer: Value) -> String {
        ControlSettings::default().merged(&layer).map_or_else(|problems| lines(&problems), |_| String::new())
    }

    #[test]
    fn the_defaults_hold_together_and_every_number_has_a_range() {
        assert_eq!(ControlSettings::default().validate(), []);
        assert_eq!(gaps::<ControlSettings>(), [""; 0]);
    }

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
        insta::assert_snapshot!(with(json!({
            "windov": 7,
            "window": 2.5,
            "decay": "slow",
            "profiles": { "mine": { "kpp": 1.0 } },
            "actuators": { "tone": false, "breadth": { "everything": [1] } },
            "adaptive_gains": null,
        })), @r#"
        `control.windov` is 7; there is no such key; did you mean `window`?
        `control.window` is 2.5; a whole number from 0 is needed
        `control.decay` is "slow"; a number is needed
        `control.profiles.mine.kpp` is 1.0; there is no such key; did you mean `kp`?
        `control.actuators.tone` is false; a group of keys is needed
        `control.actuators.breadth.everything` is [1]; a list of texts is needed
        `control.adaptive_gains` is null; true or false is needed
        "#);
        insta::assert_snapshot!(with(json!(3)), @r"`control` is 3; a group of keys is needed");
    }

    #[test]
    fn ranges() {
        insta::assert_snapshot!(with(json!({
            "decay": 1.5,
            "slide_drop": -0.1,
            "window": 1000,
            "complexity": { "hard": 11 },
            "actuators": { "effort": { "max": 0 } },
        })), @r"
        `control.window` is 1000; 2 to 100 is allowed
        `control.decay` is 1.5; 0 to 1 is allowed
        `control.complexity.hard` is 11; 1 to 10 is allowed
        `control.slide_drop` is -0.1; 0 to 1 is allowed
        `control.actuators.effort.max` is 0; 0.1 to 10 is allowed
        `control.actuators.effort.min` is 0.5; at most `control.actuators.effort.max`, which is 0, is allowed
        ");
        let broken = ControlSettings { deadband: f64::NAN, ..ControlSettings::default() };
        insta::assert_snapshot!(lines(&broken.validate()), @r"`control.deadband` is NaN; 0 to 0.5 is allowed");
    }

    #[test]
    fn contradictions() {
        insta::assert_snapshot!(with(json!({
            "regression_rate": 0.3,
            "stuck_iterations": 8,
            "oscillation_count": 5,
            "integral_windup_limit": 5,
            "min_progress_rate": 0,
            "actuators": { "memory": { "base": 0.6 } },
        })), @r"
        `control.regression_rate` is 0.3; it must be below `control.regression_critical`, which is 0.2
        `control.oscillation_count` is 5; it must be below `control.window`, which is 5
        `control.stuck_iterations` is 8; at most `control.window`, which is 5, is allowed
        `control.actuators.memory.base` is 0.6; at most `control.actuators.memory.max`, which is 0.5, is allowed
        `control.integral_windup_limit` is 5; nothing can be above that, so give less
        `control.min_progress_rate` is 0; no change can be below that, so give more
        ");
    }

    #[test]
    fn profiles() {
        insta::assert_snapshot!(with(json!({ "base_profile": "agressive" })), @r"`control.base_profile` is `agressive`; there is no such profile; did you mean `aggressive`?");
        insta::assert_snapshot!(with(json!({ "actuators": { "breadth": { "one_change": ["zzz"] } } })), @r"`control.actuators.breadth.one_change` is `zzz`; there is no such profile");
        insta::assert_snapshot!(with(json!({ "profiles": { "mine": { "kp": -1, "ki": 0.1 }, "auto": {} } })), @r"
        `control.profiles` has `auto`; a name of 1 to 64 bytes but `auto` is allowed
        `control.profiles.auto.kp` is missing; a profile of your own needs kp, ki and kd
        `control.profiles.auto.ki` is missing; a profile of your own needs kp, ki and kd
        `control.profiles.auto.kd` is missing; a profile of your own needs kp, ki and kd
        `control.profiles.mine.kp` is -1; 0 to 10 is allowed
        `control.profiles.mine.kd` is missing; a profile of your own needs kp, ki and kd
        ");
        let mine = json!({ "profiles": { "mine": { "kp": 1, "ki": 0.1, "kd": -1 } }, "schedule": { "stuck": "mine" } });
        assert_eq!(with(mine), "");
        let many: serde_json::Map<String, Value> =
            (0..40).map(|n| (n.to_string(), json!({ "kp": 1, "ki": 0, "kd": 0 }))).collect();
        insta::assert_snapshot!(with(json!({ "profiles": many })), @r"`control.profiles` has 40 names; at most 32 are allowed");
    }
}
