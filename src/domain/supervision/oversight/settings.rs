//! Thresholds of the overseer, their defaults, and what each may be.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::detection::Kind;
use crate::domain::model::settings::Settings;
use crate::domain::supervision::pace::{PRIOR, Stride};

/// What the overseer looks for, and when it acts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OversightSettings {
    /// Whether people are told by escalation issue, webhook and notification. Without it a pause is told on the loop's issue
    /// alone.
    pub auto_escalate: bool,
    /// Whether a critical regression ends the loop at once, without an attempt to restore its best iteration.
    pub strict_regression: bool,
    /// Iterations that a detection may stand before its intervention climbs one level.
    pub climb_after: u32,
    /// REDIRECTs, each to another approach, that a detection is given before it pauses the loop.
    pub redirects: u32,
    /// Iterations after a person's resume during which what paused the loop only warns.
    pub grace_iterations: u32,
    /// Completion that an iteration gains at least where there is progress, 0..1.
    pub min_progress: f64,
    /// No way forward.
    pub stuck: StuckSettings,
    /// To and fro.
    pub oscillation: OscillationSettings,
    /// Work on something else.
    pub deviation: DeviationSettings,
    /// Much spent for little.
    pub resource_burn: ResourceBurnSettings,
    /// What held before holds no more.
    pub regression: RegressionSettings,
    /// Checks that were weakened.
    pub test_tampering: TestTamperingSettings,
    /// Iterations without a change.
    pub no_change: NoChangeSettings,
    /// Backends that fail.
    pub agent_failure: AgentFailureSettings,
}

impl Default for OversightSettings {
    fn default() -> Self {
        Self {
            auto_escalate: true,
            strict_regression: false,
            climb_after: 1,
            redirects: 3,
            grace_iterations: 3,
            min_progress: 0.01,
            stuck: StuckSettings::default(),
            oscillation: OscillationSettings::default(),
            deviation: DeviationSettings::default(),
            resource_burn: ResourceBurnSettings::default(),
            regression: RegressionSettings::default(),
            test_tampering: TestTamperingSettings::default(),
            no_change: NoChangeSettings::default(),
            agent_failure: AgentFailureSettings::default(),
        }
    }
}

/// Declares the settings of one detection: its two switches, and its thresholds with their defaults.
macro_rules! thresholds {
    ($(#[$of:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr,)* }) => {
        $(#[$of])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            /// Whether it is looked for.
            pub enabled: bool,
            /// Whether it is only recorded and counted, whatever its severity.
            pub observe: bool,
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { enabled: true, observe: false, $($field: $default,)* }
            }
        }
    };
}

thresholds! {
    /// When a loop is stuck.
    StuckSettings {
        /// Iterations among which the same error is counted.
        window: u32 = 10,
        /// Iterations over which progress is averaged where an error or a reflection repeats, or control raised its alarm.
        progress_window: u32 = 7,
        /// How often it occurs at least.
        same_error_count: u32 = 5,
        /// How often it occurs where that is critical.
        critical_error_count: u32 = 10,
        /// Iterations without progress.
        no_progress_iterations: u32 = 8,
        /// Completion that they gain together, less than which is no progress, 0..1.
        no_progress_gain: f64 = 0.05,
        /// Iterations in a row with the same reflection.
        same_reflection_count: u32 = 4,
        /// Other signals that control's alarm needs beside it to be one.
        alarm_beside: u32 = 2,
        /// Chance of a run without a step by the loop's own pace, less than which it is stuck, 0..1; 0 leaves this out.
        standstill_chance: f64 = 0.005,
        /// Share of iterations without a step that is expected of a loop of which nothing is known, 0..1.
        idle_share: f64 = 0.3,
        /// Part of the loop's mean step that a step is at least, 0..1.
        step_part: f64 = 0.4,
        /// Iterations without a step that a blocker counts for which the agent names meanwhile.
        blocker_weight: f64 = 2.0,
    }
}
thresholds! {
    /// When a loop goes to and fro.
    OscillationSettings {
        /// Iterations that are looked at.
        window: u32 = 8,
        /// Returns to an earlier state.
        undo_redo_cycles: u32 = 2,
        /// Returns where that is critical.
        critical_cycles: u32 = 6,
        /// Share of the files of two iterations ago, more of which changed again (and not in between) is a return, 0..1.
        file_churn_threshold: f64 = 0.8,
        /// Turns between gain and loss of completion.
        sign_changes: u32 = 4,
        /// Change of completion that counts as gain or loss, 0..1.
        min_swing: f64 = 0.12,
        /// Turns that completion makes at least where control's trend is a signal.
        trend_turns: u32 = 2,
    }
}
thresholds! {
    /// When a loop works on something else.
    DeviationSettings {
        /// Similarity of work and objective, less than which is low, 0..1.
        objective_similarity: f64 = 0.5,
        /// Iterations that are looked at.
        window: u32 = 3,
        /// How many of them are low.
        low_iterations: u32 = 2,
        /// Low iterations in a row from which on it is severe.
        high_after: u32 = 4,
        /// Files outside the task's scope for each one within.
        scope_creep_ratio: f64 = 1.5,
        /// Files outside, fewer than which are no creep.
        scope_min_files: u32 = 4,
    }
}
thresholds! {
    /// When a loop spends much for little.
    ResourceBurnSettings {
        /// Iterations, as a multiple of the estimate.
        iteration_multiplier: f64 = 2.0,
        /// Money, as a multiple of the estimate (of the limit where there is none).
        cost_multiplier: f64 = 2.0,
        /// Time, as a multiple of the estimate (of the limit where there is none).
        time_multiplier: f64 = 2.0,
        /// Multiple of any estimate where that is critical.
        critical_multiplier: f64 = 2.5,
        /// Calls of tools in all.
        tool_calls: u32 = 5_000,
        /// Average completion, less than which so many calls are a burn, 0..1.
        tool_calls_completion: f64 = 0.3,
        /// Completion, more than which it is one severity less, 0..1.
        nearly_done: f64 = 0.9,
        /// Completion gained an iteration, less than which control's alarm is a signal, -1..1.
        alarm_below: f64 = 0.0,
        /// Completion an iteration, less than which a critical burn ends the loop, 0..1.
        abort_efficiency: f64 = 0.01,
        /// Completion, less than which a critical burn ends the loop, 0..1.
        abort_completion: f64 = 0.5,
    }
}
thresholds! {
    /// When what held before holds no more.
    RegressionSettings {
        /// Whether tests and checks that passed and fail now count.
        test_pass_to_fail: bool = true,
        /// Iterations in a row that show it; one flaky run is none.
        consecutive: u32 = 2,
        /// Share of all tests, more of which lost at once needs no second iteration, 0..1.
        sudden_loss: f64 = 0.2,
        /// Points of coverage lost, more than which is a regression, 0..100.
        coverage_drop_percent: f64 = 10.0,
        /// Completion lost by falls in a row, 0..1.
        completion_fall: f64 = 0.02,
        /// How often the best iteration is restored before a critical regression ends the loop.
        restores: u32 = 1,
    }
}
thresholds! {
    /// Whether weakened checks are looked for.
    TestTamperingSettings {
        /// Tests that ran before and are skipped now; 0 leaves them out.
        skipped: u32 = 1,
        /// Iterations with weakened checks, more of which are critical once a REDIRECT was given.
        repeats: u32 = 3,
    }
}
thresholds! {
    /// When iterations change nothing.
    NoChangeSettings {
        /// Iterations in a row.
        iterations: u32 = 2,
        /// Iterations in a row where that is severe.
        high_iterations: u32 = 3,
    }
}
thresholds! {
    /// When backends fail.
    AgentFailureSettings {
        /// Iterations that failed.
        iterations: u32 = 3,
        /// Iterations among which they are counted.
        window: u32 = 5,
    }
}

impl OversightSettings {
    /// What counts as a step of a loop, and as standing still, where no loop came before.
    pub fn stride(&self) -> Stride {
        let StuckSettings { step_part, idle_share, blocker_weight, .. } = self.stuck;
        Stride { least: self.min_progress, part: step_part, idle: idle_share, weight: PRIOR, blocker: blocker_weight }
    }

    /// Whether a detection is looked for, and whether it is only observed.
    pub fn switches(&self, kind: Kind) -> (bool, bool) {
        match kind {
            Kind::Stuck => (self.stuck.enabled, self.stuck.observe),
            Kind::Oscillation => (self.oscillation.enabled, self.oscillation.observe),
            Kind::Deviation => (self.deviation.enabled, self.deviation.observe),
            Kind::ResourceBurn => (self.resource_burn.enabled, self.resource_burn.observe),
            Kind::Regression => (self.regression.enabled, self.regression.observe),
            Kind::TestTampering => (self.test_tampering.enabled, self.test_tampering.observe),
            Kind::NoChange => (self.no_change.enabled, self.no_change.observe),
            Kind::AgentFailure => (self.agent_failure.enabled, self.agent_failure.observe),
        }
    }
}

impl Settings for OversightSettings {
    const GROUP: &'static str = "oversight";

    const RANGES: &'static [(&'static str, f64, f64)] = &[
        ("climb_after", 1.0, 100.0),
        ("redirects", 1.0, 100.0),
        ("grace_iterations", 0.0, 100.0),
        ("min_progress", 0.0, 1.0),
        ("stuck.window", 2.0, 100.0),
        ("stuck.progress_window", 2.0, 100.0),
        ("stuck.same_error_count", 2.0, 100.0),
        ("stuck.critical_error_count", 2.0, 100.0),
        ("stuck.no_progress_iterations", 2.0, 100.0),
        ("stuck.no_progress_gain", 0.0, 1.0),
        ("stuck.same_reflection_count", 2.0, 100.0),
        ("stuck.alarm_beside", 0.0, 3.0),
        ("stuck.standstill_chance", 0.0, 1.0),
        ("stuck.idle_share", 0.01, 0.9),
        ("stuck.step_part", 0.0, 1.0),
        ("stuck.blocker_weight", 0.0, 10.0),
        ("oscillation.window", 3.0, 50.0),
        ("oscillation.undo_redo_cycles", 1.0, 50.0),
        ("oscillation.critical_cycles", 1.0, 50.0),
        ("oscillation.file_churn_threshold", 0.0, 1.0),
        ("oscillation.sign_changes", 1.0, 50.0),
        ("oscillation.min_swing", 0.0, 1.0),
        ("oscillation.trend_turns", 0.0, 50.0),
        ("deviation.objective_similarity", 0.0, 1.0),
        ("deviation.window", 1.0, 10.0),
        ("deviation.low_iterations", 1.0, 10.0),
        ("deviation.high_after", 1.0, 10.0),
        ("deviation.scope_creep_ratio", 0.1, 1_000.0),
        ("deviation.scope_min_files", 1.0, 10_000.0),
        ("resource_burn.iteration_multiplier", 1.0, 1_000.0),
        ("resource_burn.cost_multiplier", 1.0, 1_000.0),
        ("resource_burn.time_multiplier", 1.0, 1_000.0),
        ("resource_burn.critical_multiplier", 1.0, 1_000.0),
        ("resource_burn.tool_calls", 1.0, 10_000_000.0),
        ("resource_burn.tool_calls_completion", 0.0, 1.0),
        ("resource_burn.nearly_done", 0.0, 1.0),
        ("resource_burn.alarm_below", -1.0, 1.0),
        ("resource_burn.abort_efficiency", 0.0, 1.0),
        ("resource_burn.abort_completion", 0.0, 1.0),
        ("regression.consecutive", 1.0, 100.0),
        ("regression.sudden_loss", 0.0, 1.0),
        ("regression.coverage_drop_percent", 0.0, 100.0),
        ("regression.completion_fall", 0.0, 1.0),
        ("regression.restores", 0.0, 100.0),
        ("test_tampering.skipped", 0.0, 1_000_000.0),
        ("test_tampering.repeats", 1.0, 100.0),
        ("no_change.iterations", 1.0, 100.0),
        ("no_change.high_iterations", 1.0, 100.0),
        ("agent_failure.iterations", 1.0, 100.0),
        ("agent_failure.window", 1.0, 100.0),
    ];

    const BELOW: &'static [(&'static str, &'static str)] = &[];

    const AT_MOST: &'static [(&'static str, &'static str)] = &[
        ("stuck.same_error_count", "stuck.critical_error_count"),
        ("stuck.critical_error_count", "stuck.window"),
        ("oscillation.undo_redo_cycles", "oscillation.critical_cycles"),
        ("oscillation.critical_cycles", "oscillation.window"),
        ("oscillation.sign_changes", "oscillation.window"),
        ("deviation.low_iterations", "deviation.window"),
        ("resource_burn.iteration_multiplier", "resource_burn.critical_multiplier"),
        ("no_change.iterations", "no_change.high_iterations"),
        ("agent_failure.iterations", "agent_failure.window"),
    ];
}
