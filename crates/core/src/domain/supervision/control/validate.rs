//! Validates control's settings: ranges, contradictory thresholds, and names of profiles.

use super::bounds::MAX_INTEGRAL;
use super::profile::BUILT_IN;
use super::settings::{AUTO, ControlSettings};
use crate::domain::model::settings::{SectionProblems, Settings, did_you_mean, shortened};

impl Settings for ControlSettings {
    const GROUP: &'static str = "control";

    fn check_further(&self, problems: &mut SectionProblems) {
        self.check_reachable(problems);
        self.check_profiles(problems);
    }
}

impl ControlSettings {
    /// Adds a problem for each unreachable threshold.
    fn check_reachable(&self, problems: &mut SectionProblems) {
        for (key, value, most) in [
            ("stuck_critical", self.stuck_critical, 1.0),
            ("regression_critical", self.regression_critical, 1.0),
            ("quality_critical", self.quality_critical, 1.0),
            ("derivative_spike", self.derivative_spike, 1.0),
            ("integral_windup_limit", self.integral_windup_limit, MAX_INTEGRAL),
        ] {
            if value == most {
                problems.add(key, format!("is {value}; no figure can be above that, so set a lower value"));
            }
        }
        if self.min_progress_rate == 0.0 {
            problems.add("min_progress_rate", "is 0; no change can be below that, so set a higher value");
        }
    }

    fn check_profiles(&self, problems: &mut SectionProblems) {
        if self.base_profile != AUTO {
            check_profile_name(problems, "base_profile", &self.base_profile);
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
            check_profile_name(problems, &format!("schedule.{key}"), name);
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
                check_profile_name(problems, &format!("actuators.{key}"), name);
            }
        }
    }
}

/// Adds a problem if the profile does not exist.
fn check_profile_name(problems: &mut SectionProblems, key: &str, name: &str) {
    let known = || BUILT_IN.iter().map(|(name, _)| *name);
    if !known().any(|known| known == name) {
        let near = did_you_mean(name, known());
        problems.add(key, format!("is `{}`; there is no such profile{near}", shortened(name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::settings::{lines, without_range};
    use serde_json::{Value, json};

    fn with(layer: Value) -> String {
        ControlSettings::default().merged(&layer).map_or_else(|problems| lines(&problems), |_| String::new())
    }

    #[test]
    fn defaults_are_valid_and_numbers_have_ranges() {
        assert_eq!(ControlSettings::default().validate(), []);
        assert_eq!(without_range::<ControlSettings>(), [""; 0]);
    }

    #[test]
    fn setting_one_key_keeps_others() {
        let operator = ControlSettings::default().merged(&json!({
            "window": 7,
            "actuators": { "effort": { "max": 2.0 } },
        }));
        let operator = operator.unwrap();
        let layer = json!({ "stuck_iterations": 4, "actuators": { "effort": { "enabled": true } } });
        let both = operator.merged(&layer).unwrap();
        assert_eq!((both.window, both.stuck_iterations, both.oscillation_count), (7, 4, 2));
        let effort = &both.actuators.effort;
        assert_eq!((effort.enabled, effort.min, effort.max), (true, 0.5, 2.0));
        assert_eq!(both.merged(&json!({})).unwrap(), both);
    }

    #[test]
    fn problems_name_their_key() {
        insta::assert_snapshot!(with(json!({
            "windov": 7,
            "window": 2.5,
            "decay": "slow",
            "auto_interven": true,
            "actuators": { "tone": false, "breadth": { "everything": [1] } },
            "adaptive_gains": null,
        })), @r#"
        `control.windov` is 7; there is no such key
        `control.window` is 2.5; expected a non-negative whole number
        `control.decay` is "slow"; expected a number
        `control.auto_interven` is true; there is no such key; did you mean `auto_intervene`?
        `control.actuators.tone` is false; expected a section
        `control.actuators.breadth.everything` is [1]; expected a list of text
        `control.adaptive_gains` is null; expected true or false
        "#);
        insta::assert_snapshot!(with(json!(3)), @r"`control` is 3; expected a section");
    }

    #[test]
    fn out_of_range_values_are_rejected() {
        insta::assert_snapshot!(with(json!({
            "decay": 1.5,
            "slide_drop": -0.1,
            "window": 1000,
            "complexity": { "hard": 11 },
            "actuators": { "effort": { "max": 0 } },
        })), @r"
        `control.window` is 1000; it must be between 2 and 100
        `control.decay` is 1.5; it must be between 0 and 1
        `control.complexity.hard` is 11; it must be between 1 and 10
        `control.slide_drop` is -0.1; it must be between 0 and 1
        `control.actuators.effort.max` is 0; it must be between 0.1 and 10
        `control.actuators.effort.min` is 0.5; it must be at most `control.actuators.effort.max`, which is 0
        ");
        let broken = ControlSettings { deadband: f64::NAN, ..ControlSettings::default() };
        insta::assert_snapshot!(lines(&broken.validate()), @r"`control.deadband` is NaN; it must be between 0 and 0.5");
    }

    #[test]
    fn contradicting_values_are_rejected() {
        insta::assert_snapshot!(with(json!({
            "regression_rate": 0.3,
            "stuck_iterations": 8,
            "oscillation_count": 5,
            "integral_windup_limit": 5,
            "min_progress_rate": 0,
            "actuators": { "memory": { "base": 0.6 } },
        })), @r"
        `control.stuck_iterations` is 8; it must be at most `control.window`, which is 5
        `control.oscillation_count` is 5; it must be below `control.window`, which is 5
        `control.regression_rate` is 0.3; it must be below `control.regression_critical`, which is 0.2
        `control.actuators.memory.base` is 0.6; it must be at most `control.actuators.memory.max`, which is 0.5
        `control.integral_windup_limit` is 5; no figure can be above that, so set a lower value
        `control.min_progress_rate` is 0; no change can be below that, so set a higher value
        ");
    }

    #[test]
    fn invalid_profiles_are_rejected() {
        insta::assert_snapshot!(with(json!({ "base_profile": "agressive" })), @r"`control.base_profile` is `agressive`; there is no such profile; did you mean `aggressive`?");
        insta::assert_snapshot!(with(json!({ "actuators": { "breadth": { "one_change": ["zzz"] } } })), @r"`control.actuators.breadth.one_change` is `zzz`; there is no such profile");
    }
}
