//! Whether settings hold together: ranges, thresholds that contradict each other, names of profiles.

use super::gains::{BUILT_IN, MAX_GAIN};
use super::metrics::MAX_INTEGRAL;
use super::settings::{AUTO, ControlSettings, MAX_WINDOW};

/// Longest name of a profile, bytes.
const MAX_NAME: usize = 64;

/// Collects what is wrong.
#[derive(Default)]
struct Check {
    problems: Vec<String>,
}

impl ControlSettings {
    /// Everything that is wrong, one sentence each, with key, value and what is allowed. Keys are from the settings' top.
    pub fn validate(&self) -> Vec<String> {
        let mut check = Check::default();
        check.controller(self);
        check.alarms(self);
        check.actuators(self);
        check.complexity(self);
        check.profiles(self);
        check.problems
    }
}

impl Check {
    fn wrong(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// A number, both ends allowed.
    fn range(&mut self, key: &str, value: f64, low: f64, high: f64) {
        if !(low..=high).contains(&value) {
            self.wrong(format!("`{key}` is {value}; {low} to {high} is allowed"));
        }
    }

    /// A count, both ends allowed.
    fn count(&mut self, key: &str, value: u32, low: u32, high: u32) {
        if !(low..=high).contains(&value) {
            self.wrong(format!("`{key}` is {value}; {low} to {high} is allowed"));
        }
    }

    /// Two values of which the first must be below the second.
    fn below(&mut self, (key, value): (&str, f64), (other, bound): (&str, f64)) {
        if value >= bound {
            self.wrong(format!("`{key}` is {value}; it must be below `{other}`, which is {bound}"));
        }
    }

    fn controller(&mut self, settings: &ControlSettings) {
        self.count("window", settings.window, 2, MAX_WINDOW);
        self.range("decay", settings.decay, 0.0, 1.0);
        self.range("deadband", settings.deadband, 0.0, 0.5);
        self.range("transition_smoothing", settings.transition_smoothing, 0.0, 1.0);
    }

    fn alarms(&mut self, s: &ControlSettings) {
        for (key, value) in [
            ("min_progress_rate", s.min_progress_rate),
            ("stuck_critical", s.stuck_critical),
            ("regression_rate", s.regression_rate),
            ("regression_critical", s.regression_critical),
            ("slide_drop", s.slide_drop),
            ("max_iterations_percent", s.max_iterations_percent),
            ("emergency_percent", s.emergency_percent),
            ("quality_drop", s.quality_drop),
            ("quality_critical", s.quality_critical),
            ("derivative_spike", s.derivative_spike),
        ] {
            self.range(key, value, 0.0, 1.0);
        }
        self.range("integral_windup_limit", s.integral_windup_limit, 0.0, MAX_INTEGRAL);
        self.count("stuck_iterations", s.stuck_iterations, 1, MAX_WINDOW);
        self.count("oscillation_count", s.oscillation_count, 1, MAX_WINDOW);
        self.count("slide_iterations", s.slide_iterations, 1, MAX_WINDOW);
        let pairs = [
            (("regression_rate", s.regression_rate), ("regression_critical", s.regression_critical)),
            (("slide_drop", s.slide_drop), ("regression_critical", s.regression_critical)),
            (("max_iterations_percent", s.max_iterations_percent), ("emergency_percent", s.emergency_percent)),
            (("quality_drop", s.quality_drop), ("quality_critical", s.quality_critical)),
        ];
        for (low, high) in pairs {
            self.below(low, high);
        }
        self.reachable(s);
    }

    /// Thresholds that no figure can pass.
    fn reachable(&mut self, s: &ControlSettings) {
        for (key, value, most) in [
            ("stuck_critical", s.stuck_critical, 1.0),
            ("regression_critical", s.regression_critical, 1.0),
            ("quality_critical", s.quality_critical, 1.0),
            ("derivative_spike", s.derivative_spike, 1.0),
            ("integral_windup_limit", s.integral_windup_limit, MAX_INTEGRAL),
        ] {
            if value == most {
                self.wrong(format!("`{key}` is {value}; nothing can be above that, so give less"));
            }
        }
        if s.min_progress_rate == 0.0 {
            self.wrong("`min_progress_rate` is 0; no change can be below that, so give more".to_owned());
        }
        let window = s.window;
        if s.stuck_iterations > window {
            let value = s.stuck_iterations;
            self.wrong(format!("`stuck_iterations` is {value}; at most `window`, which is {window}, is allowed"));
        }
        if s.oscillation_count >= window {
            let value = s.oscillation_count;
            self.wrong(format!("`oscillation_count` is {value}; it must be below `window`, which is {window}"));
        }
    }

    fn actuators(&mut self, settings: &ControlSettings) {
        let a = &settings.actuators;
        self.range("actuators.effort.offset", a.effort.offset, 0.0, 10.0);
        self.range("actuators.effort.slope", a.effort.slope, -10.0, 10.0);
        self.range("actuators.effort.min", a.effort.min, 0.1, 10.0);
        self.range("actuators.effort.max", a.effort.max, 0.1, 10.0);
        self.ordered(("actuators.effort.min", a.effort.min), ("actuators.effort.max", a.effort.max));
        let (cheap, strong) = ("actuators.model.cheap_below", "actuators.model.strong_above");
        self.range(strong, a.model.strong_above, 0.0, 1.0);
        self.range(cheap, a.model.cheap_below, 0.0, 1.0);
        self.ordered((cheap, a.model.cheap_below), (strong, a.model.strong_above));
        self.count("actuators.model.strong_iterations", a.model.strong_iterations, 1, MAX_WINDOW);
        self.range("actuators.memory.base", a.memory.base, 0.0, 1.0);
        self.range("actuators.memory.max", a.memory.max, 0.0, 1.0);
        self.ordered(("actuators.memory.base", a.memory.base), ("actuators.memory.max", a.memory.max));
    }

    /// Two values of which the first must not be above the second.
    fn ordered(&mut self, (key, value): (&str, f64), (other, bound): (&str, f64)) {
        if value > bound {
            self.wrong(format!("`{key}` is {value}; at most `{other}`, which is {bound}, is allowed"));
        }
    }

    fn complexity(&mut self, settings: &ControlSettings) {
        let c = &settings.complexity;
        for (key, value) in [("usual", c.usual), ("simple", c.simple), ("hard", c.hard)] {
            self.range(&format!("complexity.{key}"), value, 1.0, 10.0);
        }
        let added = [("per_file", c.per_file), ("per_hundred_words", c.per_hundred_words), ("tests", c.tests)];
        for (key, value) in added {
            self.range(&format!("complexity.{key}"), value, 0.0, 10.0);
        }
    }

    fn profiles(&mut self, settings: &ControlSettings) {
        for (name, patch) in &settings.profiles {
            let built_in = BUILT_IN.iter().any(|(known, _)| known == name);
            if name.is_empty() || name.len() > MAX_NAME || name == AUTO {
                self.wrong(format!("`profiles` has `{name}`; a name of 1 to {MAX_NAME} bytes but `{AUTO}` is allowed"));
            }
            for (key, value, low) in [("kp", patch.kp, 0.0), ("ki", patch.ki, 0.0), ("kd", patch.kd, -MAX_GAIN)] {
                let key = format!("profiles.{name}.{key}");
                match value {
                    Some(value) => self.range(&key, value, low, MAX_GAIN),
                    None if built_in => {}
                    None => self.wrong(format!("`{key}` is missing; a profile of your own needs kp, ki and kd")),
                }
            }
        }
        if settings.base_profile != AUTO {
            self.named(settings, "base_profile", &settings.base_profile);
        }
        let s = &settings.schedule;
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
            self.named(settings, &format!("schedule.{key}"), name);
        }
        let (model, breadth) = (&settings.actuators.model, &settings.actuators.breadth);
        for (key, names) in [
            ("model.strong_profiles", &model.strong_profiles),
            ("model.cheap_profiles", &model.cheap_profiles),
            ("breadth.first_failure", &breadth.first_failure),
            ("breadth.one_change", &breadth.one_change),
            ("breadth.everything", &breadth.everything),
        ] {
            for name in names {
                self.named(settings, &format!("actuators.{key}"), name);
            }
        }
    }

    /// The name of a profile that there is.
    fn named(&mut self, settings: &ControlSettings, key: &str, name: &str) {
        let known = || BUILT_IN.iter().map(|(name, _)| *name).chain(settings.profiles.keys().map(String::as_str));
        if !known().any(|known| known == name) {
            let near = did_you_mean(name, known());
            self.wrong(format!("`{key}` is `{name}`; there is no such profile{near}"));
        }
    }
}

/// "; did you mean `x`?" for the nearest of `candidates`, or nothing where none is near.
pub(super) fn did_you_mean<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    const NEAR: f64 = 0.7;
    let word = word.to_lowercase();
    candidates
        .map(|candidate| (strsim::jaro_winkler(&word, candidate), candidate))
        .filter(|(score, _)| *score >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, candidate)| format!("; did you mean `{candidate}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::control::gains::GainPatch;

    fn with(change: impl FnOnce(&mut ControlSettings)) -> Vec<String> {
        let mut settings = ControlSettings::default();
        change(&mut settings);
        settings.validate()
    }

    #[test]
    fn the_defaults_hold_together() {
        assert_eq!(ControlSettings::default().validate(), [""; 0]);
    }

    #[test]
    fn ranges() {
        assert_eq!(with(|s| s.decay = 1.5), ["`decay` is 1.5; 0 to 1 is allowed"]);
        assert_eq!(with(|s| s.deadband = f64::NAN), ["`deadband` is NaN; 0 to 0.5 is allowed"]);
        assert_eq!(with(|s| s.slide_drop = -0.1), ["`slide_drop` is -0.1; 0 to 1 is allowed"]);
        assert_eq!(
            with(|s| s.actuators.effort.max = f64::INFINITY),
            ["`actuators.effort.max` is inf; 0.1 to 10 is allowed"]
        );
        assert_eq!(with(|s| s.window = 1000), ["`window` is 1000; 2 to 100 is allowed"]);
        assert_eq!(with(|s| s.complexity.hard = 11.0), ["`complexity.hard` is 11; 1 to 10 is allowed"]);
    }

    #[test]
    fn contradictions() {
        assert_eq!(
            with(|s| s.regression_rate = 0.3),
            ["`regression_rate` is 0.3; it must be below `regression_critical`, which is 0.2"]
        );
        assert_eq!(
            with(|s| s.stuck_iterations = 8),
            ["`stuck_iterations` is 8; at most `window`, which is 5, is allowed"]
        );
        assert_eq!(
            with(|s| s.oscillation_count = 5),
            ["`oscillation_count` is 5; it must be below `window`, which is 5"]
        );
        assert_eq!(
            with(|s| s.integral_windup_limit = 5.0),
            ["`integral_windup_limit` is 5; nothing can be above that, so give less"]
        );
        assert_eq!(
            with(|s| s.actuators.memory.base = 0.6),
            ["`actuators.memory.base` is 0.6; at most `actuators.memory.max`, which is 0.5, is allowed"]
        );
    }

    #[test]
    fn profiles() {
        assert_eq!(
            with(|s| s.base_profile = "agressive".to_owned()),
            ["`base_profile` is `agressive`; there is no such profile; did you mean `aggressive`?"]
        );
        assert_eq!(
            with(|s| s.actuators.breadth.one_change.push("zzz".to_owned())),
            ["`actuators.breadth.one_change` is `zzz`; there is no such profile"]
        );
        let mine = |patch| with(move |s| s.profiles.extend([("mine".to_owned(), patch)]));
        assert_eq!(
            mine(GainPatch { kp: Some(-1.0), ki: Some(0.1), kd: None }),
            [
                "`profiles.mine.kp` is -1; 0 to 10 is allowed",
                "`profiles.mine.kd` is missing; a profile of your own needs kp, ki and kd"
            ]
        );
        let named = with(|s| {
            s.profiles.insert("mine".to_owned(), GainPatch { kp: Some(1.0), ki: Some(0.1), kd: Some(-1.0) });
            s.schedule.stuck = "mine".to_owned();
        });
        assert_eq!(named, [""; 0]);
    }
}
