//! Thresholds of the overseer, their defaults, and what each may be.

use super::detection::DetectionKind;
use crate::domain::model::settings::{Settings, config_section};
use crate::domain::supervision::progress_rate::{PRIOR, StepThreshold};

config_section! {
    /// Settings of the overseer: detections and levels of intervention.
    pub struct OversightSettings {
        /// Whether people are told by escalation issue, webhook and notification. Without it a pause is told on the loop's issue
        /// alone.
        pub auto_escalate: bool = true;
        /// Whether a critical regression ends the loop at once, without an attempt to restore its best iteration.
        pub strict_regression: bool = false;
        /// Iterations that a detection may stand before its intervention climbs one level.
        pub climb_after: u32 = 1, in 1..=100;
        /// REDIRECTs, each to another approach, that a detection is given before it pauses the loop.
        pub redirects: u32 = 3, in 1..=100;
        /// Iterations after a person's resume during which what paused the loop only warns.
        pub grace_iterations: u32 = 3, in 0..=100;
        /// Completion that an iteration gains at least where there is progress.
        pub min_progress: f64 = 0.01, in 0.0..=1.0;
        /// No way forward.
        pub stuck: StuckSettings => section;
        /// To and fro.
        pub oscillation: OscillationSettings => section;
        /// Work on something else.
        pub deviation: DeviationSettings => section;
        /// Much spent for little.
        pub resource_burn: ResourceBurnSettings => section;
        /// A check that passed now fails.
        pub regression: RegressionSettings => section;
        /// Checks that were weakened.
        pub test_tampering: TestTamperingSettings => section;
        /// Iterations without a change.
        pub no_change: NoChangeSettings => section;
        /// Backends that fail.
        pub agent_failure: AgentFailureSettings => section;
    }
}

/// Declares the settings of one detection: its two switches, then its thresholds.
macro_rules! detection_settings {
    ($(#[$meta:meta])* $name:ident { $($thresholds:tt)* }) => {
        config_section! {
            $(#[$meta])*
            pub struct $name {
                /// Whether it is looked for.
                pub enabled: bool = true;
                /// Whether it is only recorded and counted, whatever its severity.
                pub observe: bool = false;
                $($thresholds)*
            }
        }
    };
}

detection_settings! {
    /// Conditions of a stuck loop.
    StuckSettings {
        /// Iterations among which the same error is counted.
        pub window: u32 = 10, in 2..=100;
        /// Iterations over which progress is averaged where an error or a reflection repeats, or control raised its alarm.
        pub progress_window: u32 = 7, in 2..=100;
        /// Minimum number of occurrences of the same error.
        pub same_error_count: u32 = 5, in 2..=100, at_most critical_error_count;
        /// Number of occurrences at which the detection is critical.
        pub critical_error_count: u32 = 10, in 2..=100, at_most window;
        /// Iterations without progress.
        pub no_progress_iterations: u32 = 8, in 2..=100;
        /// Completion that they gain together, less than which is no progress.
        pub no_progress_gain: f64 = 0.05, in 0.0..=1.0;
        /// Iterations in a row with the same reflection.
        pub same_reflection_count: u32 = 4, in 2..=100;
        /// Other signals that control's alarm needs beside it to be one.
        pub alarm_beside: u32 = 2, in 0..=3;
        /// Chance of a run without a step by the loop's own pace, less than which it is stuck; 0 leaves this out.
        pub standstill_chance: f64 = 0.005, in 0.0..=1.0;
        /// Share of iterations without a step that is expected of a loop of which nothing is known.
        pub idle_share: f64 = 0.3, in 0.01..=0.9;
        /// Part of the loop's mean step that a step is at least.
        pub step_part: f64 = 0.4, in 0.0..=1.0;
        /// Iterations without a step that a blocker counts for which the agent names meanwhile.
        pub blocker_weight: f64 = 2.0, in 0.0..=10.0;
    }
}
detection_settings! {
    /// Conditions of oscillation.
    OscillationSettings {
        /// Iterations that are looked at.
        pub window: u32 = 8, in 3..=50;
        /// Returns to an earlier state.
        pub undo_redo_cycles: u32 = 2, in 1..=50, at_most critical_cycles;
        /// Returns where that is critical.
        pub critical_cycles: u32 = 6, in 1..=50, at_most window;
        /// Share of the files of two iterations ago, more of which changed again (and not in between) is a return.
        pub file_churn_threshold: f64 = 0.8, in 0.0..=1.0;
        /// Turns between gain and loss of completion.
        pub sign_changes: u32 = 4, in 1..=50, at_most window;
        /// Change of completion that counts as gain or loss.
        pub min_swing: f64 = 0.12, in 0.0..=1.0;
        /// Turns that completion makes at least where control's trend is a signal.
        pub trend_turns: u32 = 2, in 0..=50;
    }
}
detection_settings! {
    /// Conditions of deviation from the task.
    DeviationSettings {
        /// Similarity of work and objective, less than which is low.
        pub objective_similarity: f64 = 0.5, in 0.0..=1.0;
        /// Iterations that are looked at.
        pub window: u32 = 3, in 1..=10;
        /// Number of iterations in the window with low similarity.
        pub low_iterations: u32 = 2, in 1..=10, at_most window;
        /// Low iterations in a row from which on it is severe.
        pub high_after: u32 = 4, in 1..=10;
        /// Files outside the task's scope for each one within.
        pub scope_creep_ratio: f64 = 1.5, in 0.1..=1_000.0;
        /// Files outside, fewer than which are no creep.
        pub scope_min_files: u32 = 4, in 1..=10_000;
    }
}
detection_settings! {
    /// Conditions of high resource use with little progress.
    ResourceBurnSettings {
        /// Iterations, as a multiple of the estimate.
        pub iteration_multiplier: f64 = 2.0, in 1.0..=1_000.0, at_most critical_multiplier;
        /// Money, as a multiple of the estimate (of the limit where there is none).
        pub cost_multiplier: f64 = 2.0, in 1.0..=1_000.0;
        /// Time, as a multiple of the estimate (of the limit where there is none).
        pub time_multiplier: f64 = 2.0, in 1.0..=1_000.0;
        /// Multiple of any estimate where that is critical.
        pub critical_multiplier: f64 = 2.5, in 1.0..=1_000.0;
        /// Calls of tools in all.
        pub tool_calls: u32 = 5_000, in 1..=10_000_000;
        /// Average completion, less than which so many calls are a burn.
        pub tool_calls_completion: f64 = 0.3, in 0.0..=1.0;
        /// Completion, more than which it is one severity less.
        pub nearly_done: f64 = 0.9, in 0.0..=1.0;
        /// Completion gained an iteration, less than which control's alarm is a signal.
        pub alarm_below: f64 = 0.0, in -1.0..=1.0;
        /// Completion an iteration, less than which a critical burn ends the loop.
        pub abort_efficiency: f64 = 0.01, in 0.0..=1.0;
        /// Completion, less than which a critical burn ends the loop.
        pub abort_completion: f64 = 0.5, in 0.0..=1.0;
    }
}
detection_settings! {
    /// Conditions of a regression.
    RegressionSettings {
        /// Whether tests and checks that passed and fail now count.
        pub test_pass_to_fail: bool = true;
        /// Iterations in a row that show it; one flaky run is none.
        pub consecutive: u32 = 2, in 1..=100;
        /// Share of all tests, more of which lost at once needs no second iteration.
        pub sudden_loss: f64 = 0.2, in 0.0..=1.0;
        /// Points of coverage lost, more than which is a regression.
        pub coverage_drop_percent: f64 = 10.0, in 0.0..=100.0;
        /// Completion lost by falls in a row.
        pub completion_fall: f64 = 0.02, in 0.0..=1.0;
        /// Number of times that the best iteration is restored before a critical regression ends the loop.
        pub restores: u32 = 1, in 0..=100;
    }
}
detection_settings! {
    /// Whether weakened checks are looked for.
    TestTamperingSettings {
        /// Tests that ran before and are skipped now; 0 leaves them out.
        pub skipped: u32 = 1, in 0..=1_000_000;
        /// Iterations with weakened checks, more of which are critical once a REDIRECT was given.
        pub repeats: u32 = 3, in 1..=100;
    }
}
detection_settings! {
    /// Conditions of iterations without changes.
    NoChangeSettings {
        /// Iterations in a row.
        pub iterations: u32 = 2, in 1..=100, at_most high_iterations;
        /// Iterations in a row where that is severe.
        pub high_iterations: u32 = 3, in 1..=100;
    }
}
detection_settings! {
    /// Conditions of failing backends.
    AgentFailureSettings {
        /// Iterations that failed.
        pub iterations: u32 = 3, in 1..=100, at_most window;
        /// Iterations among which they are counted.
        pub window: u32 = 5, in 1..=100;
    }
}

impl OversightSettings {
    /// Returns the thresholds of a step and of an iteration without progress, for repositories without earlier loops.
    pub fn step_threshold(&self) -> StepThreshold {
        let StuckSettings { step_part, idle_share, blocker_weight, .. } = self.stuck;
        StepThreshold {
            least: self.min_progress,
            part: step_part,
            idle: idle_share,
            weight: PRIOR,
            blocker: blocker_weight,
        }
    }

    /// Whether a detection is looked for, and whether it is only observed.
    pub fn switches(&self, kind: DetectionKind) -> (bool, bool) {
        match kind {
            DetectionKind::Stuck => (self.stuck.enabled, self.stuck.observe),
            DetectionKind::Oscillation => (self.oscillation.enabled, self.oscillation.observe),
            DetectionKind::Deviation => (self.deviation.enabled, self.deviation.observe),
            DetectionKind::ResourceBurn => (self.resource_burn.enabled, self.resource_burn.observe),
            DetectionKind::Regression => (self.regression.enabled, self.regression.observe),
            DetectionKind::TestTampering => (self.test_tampering.enabled, self.test_tampering.observe),
            DetectionKind::NoChange => (self.no_change.enabled, self.no_change.observe),
            DetectionKind::AgentFailure => (self.agent_failure.enabled, self.agent_failure.observe),
        }
    }
}

impl Settings for OversightSettings {
    const GROUP: &'static str = "oversight";
}
