//! Resource burn: the loop uses more iterations, money, time or tool calls than its progress justifies.
//!
//! The estimate is the usual amount of the repository's finished loops of the task type, from the third such loop on. Before that,
//! it is the usual maximum of iterations of the type, and the limits of money and time.

use super::DetectionKind;
use super::basis::Basis;
use super::definition::{DetectionDefinition, DetectionRow, detection_settings};
use super::detection::{Detection, DetectionEvidence, DetectionSeverity};
use super::detection_input::{DetectionInput, number, percent};
use super::intervention::InterventionLevel;
use super::state::OverseerState;
use crate::domain::model::record::Record;
use crate::domain::supervision::control::AlarmKind;

/// Number of newest iterations whose gain of completion is compared with `alarm_below`.
const ALARM_OVER: u32 = 5;

/// Signal of more iterations than usual for the task's type.
const TYPICAL: &str = "typical";

detection_settings! {
    /// Conditions of high resource use with little progress.
    ResourceBurnSettings {
        /// Number of iterations above which the detection is raised, as a multiple of the estimate.
        #[schemars(skip)]
        pub iteration_multiplier: f64 = 2.0, in 1.0..=1_000.0, at_most critical_multiplier;
        /// Cost above which the detection is raised, as a multiple of the estimate, or of the limit if there is no
        /// estimate.
        #[schemars(skip)]
        pub cost_multiplier: f64 = 2.0, in 1.0..=1_000.0;
        /// Time above which the detection is raised, as a multiple of the estimate, or of the limit if there is no
        /// estimate.
        #[schemars(skip)]
        pub time_multiplier: f64 = 2.0, in 1.0..=1_000.0;
        /// Multiple of any of these estimates at which the detection is critical.
        #[schemars(skip)]
        pub critical_multiplier: f64 = 2.5, in 1.0..=1_000.0;
        /// Number of tool calls of the whole loop at which the detection is raised.
        #[schemars(skip)]
        pub tool_calls: u32 = 5_000, in 1..=10_000_000;
        /// Average completion at or above which `tool_calls` is ignored.
        #[schemars(skip)]
        pub tool_calls_completion: f64 = 0.3, in 0.0..=1.0;
        /// Completion above which the severity of the detection is lowered by one.
        #[schemars(skip)]
        pub nearly_done: f64 = 0.9, in 0.0..=1.0;
        /// Gain of completion per iteration below which the alarm of control is a signal.
        #[schemars(skip)]
        pub alarm_below: f64 = 0.0, in -1.0..=1.0;
        /// Completion per iteration below which a critical detection ends the loop.
        #[schemars(skip)]
        pub abort_efficiency: f64 = 0.01, in 0.0..=1.0;
        /// Completion below which a critical detection ends the loop.
        #[schemars(skip)]
        pub abort_completion: f64 = 0.5, in 0.0..=1.0;
    }
}

impl DetectionDefinition for ResourceBurnSettings {
    const ROW: DetectionRow = DetectionRow {
        title: "High cost for little progress",
        pattern: "more iterations, time or money than earlier loops of the repository took",
        signals: &[
            ("iterations", Basis::Derived),
            (TYPICAL, Basis::Words),
            ("cost", Basis::Derived),
            ("time", Basis::Derived),
            ("tool_calls", Basis::Derived),
            ("alarm", Basis::Derived),
        ],
        effect: "ABORT if nothing was gained",
        order: "Do the least that makes the first failing check pass, and nothing else.",
        advice: &[
            "Do only what the first failing check needs.",
            "Split the remaining work into smaller tasks, or raise the limits if it is worth it.",
        ],
        high: InterventionLevel::Redirect,
        profile: |schedule| &schedule.near_completion,
        of_approach: false,
    };

    fn detect(&self, input: &DetectionInput<'_>) -> Option<Detection> {
        let mut evidence = Vec::new();
        let mut worst = 0.0_f64;
        for (signal, used, estimate, multiplier, unit) in uses(input) {
            let Some(estimate) = estimate.filter(|estimate| *estimate > 0.0) else { continue };
            let ratio = used / estimate;
            if ratio > multiplier {
                // The type is a guess from words and says little about a single repository.
                if signal != TYPICAL {
                    worst = worst.max(ratio);
                }
                let text = format!("{} of {} {unit} used, {}", round(used), round(estimate), percent(ratio));
                evidence.push(DetectionEvidence::new(signal, ratio, multiplier, text));
            }
        }
        let calls = sum(input.history, |record| record.tool_calls);
        let average = sum(input.history, |record| record.completion.get()) / input.history.len() as f64;
        if calls >= f64::from(self.tool_calls) && !input.is_all_or_nothing() && average < self.tool_calls_completion {
            let text = format!("{} calls of tools at an average completion of {}", round(calls), percent(average));
            evidence.push(DetectionEvidence::new("tool_calls", calls, self.tool_calls, text));
        }
        // A loop that still improves may use its limits.
        let slow = input.rate(ALARM_OVER) < self.alarm_below;
        if slow && input.control.alarm(AlarmKind::ResourceBurn).is_some() {
            evidence.push(DetectionEvidence::new(
                "alarm",
                1,
                1,
                "the controller raised the alarm \"resource burn\"".to_owned(),
            ));
        }
        let severity = if worst >= self.critical_multiplier {
            DetectionSeverity::Critical
        } else if evidence.iter().all(|found| found.signal == TYPICAL) {
            DetectionSeverity::Medium
        } else {
            DetectionSeverity::High
        };
        let done = input.last.completion.get();
        if let Some(last) = evidence.last_mut() {
            let per_iteration = percent(done / f64::from(number(input.history).max(1)));
            last.text.push_str(&format!(", for {} of completion, {per_iteration} per iteration", percent(done)));
        }
        let nearly_done = done > self.nearly_done;
        Detection::of(DetectionKind::ResourceBurn, if nearly_done { severity.lowered() } else { severity }, evidence)
    }

    /// Whether the loop should end, because its completion is too low for the used resources.
    fn ends_loop(&self, input: &DetectionInput<'_>, _: &OverseerState) -> bool {
        let efficiency = input.last.completion.get() / f64::from(number(input.history));
        efficiency < self.abort_efficiency && input.last.completion.get() < self.abort_completion
    }
}

type Use = (&'static str, f64, Option<f64>, f64, &'static str);

/// Returns the use of each resource: signal, used amount, estimate, excessive multiple of the estimate, and unit.
fn uses(input: &DetectionInput<'_>) -> [Use; 3] {
    let (facts, settings) = (input.facts, &input.settings.resource_burn);
    let (signal, estimate) = match (facts.estimated_iterations, facts.typical_iterations) {
        (None, Some(typical)) => (TYPICAL, typical),
        (known, _) => ("iterations", known.unwrap_or(facts.max_iterations)),
    };
    let iterations = f64::from(number(input.history));
    let cost = sum(input.history, |record| record.cost_usd);
    let minutes = sum(input.history, |record| record.duration_s) / 60.0;
    [
        (signal, iterations, Some(estimate), settings.iteration_multiplier, "iterations"),
        ("cost", cost, facts.estimated_cost_usd.or(facts.max_cost_usd), settings.cost_multiplier, "dollars"),
        ("time", minutes, facts.estimated_minutes.or(facts.timeout_minutes), settings.time_multiplier, "minutes"),
    ]
}

fn sum(history: &[Record], figure: impl Fn(&Record) -> f64) -> f64 {
    history.iter().map(figure).sum()
}

fn round(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}
