//! Simulation of supervised tasks. A seeded stochastic agent works on many tasks, each under every policy with the same
//! random numbers, and the results are compared.
//!
//! All inputs are assumptions of a [`Mix`]: behavior of agents, frequency of each kind of task, behavior of people, and
//! values. A simulation shows which parts of supervision pay off under these assumptions, but not that the assumptions are
//! true.

mod agent;
mod figures;
mod mix;
mod play;
mod policy;
mod random;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub use agent::{Instructions, SimulatedAgent};
pub use figures::{IntervalEstimate, PolicyFigures, policy_figures, worth_difference};
#[cfg(test)]
pub use mix::{AgentModel, Obstacle};
pub use mix::{HELD_OUT, Mix, ProgressModel, ReleaseChances, TUNED_ON, TaskKind};
pub use play::{TaskResult, play};
pub use policy::{PipelineVariant, TaskPolicy};

use policy::EarlierLoops;

use ralph_bot::domain::supervision::oversight::DetectionKind;
use ralph_bot::domain::supervision::{SupervisionPreset, SupervisionSettings};

/// Parameters of the stall rule and of the restarts: the best ones on the mixes used for tuning thresholds.
const BASELINE_PARAMETERS: (u32, u32) = (3, 3);

/// Returns the compared policies, each with its name.
pub fn contenders(settings: &SupervisionSettings) -> Vec<(String, TaskPolicy)> {
    let ours = PipelineVariant { settings: settings.clone(), ..PipelineVariant::default() };
    let pipeline = |variant: PipelineVariant| TaskPolicy::Pipeline(Box::new(variant));
    let named = |name: &str, policy| (name.to_owned(), policy);
    vec![
        named("limit of 5", TaskPolicy::Limit(5)),
        named("limit of 10", TaskPolicy::Limit(10)),
        named("limit of 25", TaskPolicy::Limit(25)),
        named("the agent's claim", TaskPolicy::Claim),
        named("Luby restarts", TaskPolicy::Luby(BASELINE_PARAMETERS.1)),
        named("stall rule", TaskPolicy::Stall(BASELINE_PARAMETERS.0)),
        named("conformal step count", TaskPolicy::Conformal),
        named("ours", pipeline(ours.clone())),
        named("ours, no earlier loops", pipeline(PipelineVariant { without_experience: true, ..ours.clone() })),
        named("ours, giving up", pipeline(PipelineVariant { gives_up: true, ..ours.clone() })),
        named("ours, conformal step count", pipeline(PipelineVariant { conformal: true, ..ours })),
        named("all seen, three late", TaskPolicy::LateOracle(3)),
        named("oracle", TaskPolicy::Oracle),
    ]
}

/// The pipeline with one part removed, or added if the settings disable it.
#[derive(Debug, Clone, PartialEq)]
pub struct PartVariant {
    /// Name of the change: `without stuck`, `with effort`.
    pub name: String,
    /// The changed pipeline.
    pub policy: TaskPolicy,
    /// Policy to compare with, if it is not the unchanged pipeline.
    pub baseline: Option<TaskPolicy>,
    /// Whether `policy` adds the part to the baseline instead of removing it.
    pub added: bool,
}

/// Access to a switch of the settings.
type Switch = fn(&mut SupervisionSettings) -> &mut bool;

/// Ways to remove or add a part of the pipeline.
enum PartSwitch {
    /// Toggles all of them; the part is enabled if any of them is.
    Switches(&'static [Switch]),
    /// Toggles a detection.
    Detection(DetectionKind),
    /// Removes the part.
    Remove(fn(&mut PipelineVariant)),
}

const ACTUATORS: [Switch; 5] = [
    |settings| &mut settings.control.actuators.effort.enabled,
    |settings| &mut settings.control.actuators.model.enabled,
    |settings| &mut settings.control.actuators.breadth.enabled,
    |settings| &mut settings.control.actuators.tone.enabled,
    |settings| &mut settings.control.actuators.memory.enabled,
];

/// Parts of the pipeline before its detections, each with its name.
const CONTROL_PARTS: [(&str, PartSwitch); 8] = [
    ("PID control", PartSwitch::Remove(|ours| disable_control(&mut ours.settings))),
    ("effort", PartSwitch::Switches(&[ACTUATORS[0]])),
    ("model tier", PartSwitch::Switches(&[ACTUATORS[1]])),
    ("breadth", PartSwitch::Switches(&[ACTUATORS[2]])),
    ("tone", PartSwitch::Switches(&[ACTUATORS[3]])),
    ("memory share", PartSwitch::Switches(&[ACTUATORS[4]])),
    ("all actuators", PartSwitch::Switches(&ACTUATORS)),
    (
        "interventions as the actuators' cause",
        PartSwitch::Remove(|ours| {
            let former = SupervisionSettings::of(SupervisionPreset::Pinned).control.actuators;
            let actuators = &mut ours.settings.control.actuators;
            (actuators.cause, actuators.breadth) = (former.cause, former.breadth);
        }),
    ),
];

/// Parts of the pipeline after its detections, each with its name.
const OTHER_PARTS: [(&str, PartSwitch); 7] = [
    ("standstill", PartSwitch::Remove(|ours| ours.settings.oversight.stuck.standstill_chance = 0.0)),
    ("giving up", PartSwitch::Switches(&[|settings| &mut settings.strategy.outlook.enabled])),
    (
        "strategy's own pauses",
        PartSwitch::Remove(|ours| {
            ours.settings.strategy.escalation_threshold = 1000;
            ours.settings.strategy.limit_share = 0.0;
            ours.settings.strategy.budget_critical = 1.0;
        }),
    ),
    ("WARN and REDIRECT", PartSwitch::Remove(|ours| ours.without_directives = true)),
    ("fresh sessions", PartSwitch::Remove(|ours| ours.without_fresh_sessions = true)),
    ("people", PartSwitch::Remove(|ours| ours.without_people = true)),
    ("earlier loops", PartSwitch::Remove(|ours| ours.without_experience = true)),
];

/// Returns one variant of the pipeline for each part.
pub fn part_variants(settings: &SupervisionSettings) -> Vec<PartVariant> {
    let ours = PipelineVariant { settings: settings.clone(), ..PipelineVariant::default() };
    let policy = |variant: PipelineVariant| TaskPolicy::Pipeline(Box::new(variant));
    let variant = |(name, part): &(&str, PartSwitch)| {
        let mut changed = ours.clone();
        let added = match part {
            PartSwitch::Remove(remove) => {
                remove(&mut changed);
                false
            }
            PartSwitch::Detection(kind) => {
                let enabled = changed.settings.oversight.enabled_mut(*kind);
                *enabled = !*enabled;
                *enabled
            }
            PartSwitch::Switches(switches) => {
                let is_on = switches.iter().any(|switch| *switch(&mut changed.settings));
                switches.iter().for_each(|switch| *switch(&mut changed.settings) = !is_on);
                !is_on
            }
        };
        let name = format!("{} {name}", if added { "with" } else { "without" });
        PartVariant { name, policy: policy(changed), baseline: None, added }
    };
    // A detection in observation mode changes nothing.
    let kinds = DetectionKind::ALL.iter().filter(|kind| !settings.oversight.switches(**kind).1);
    let detections: Vec<(&str, PartSwitch)> = kinds.map(|kind| (kind.name(), PartSwitch::Detection(*kind))).collect();
    let mut variants: Vec<PartVariant> =
        CONTROL_PARTS.iter().chain(&detections).chain(&OTHER_PARTS).map(variant).collect();
    // Real loops have an estimate that matches their default limit of ten iterations; the limit here is higher.
    let estimated = policy(PipelineVariant { has_estimate: true, ..ours.clone() });
    let name = "with the usual iterations".to_owned();
    variants.push(PartVariant { name, policy: estimated, baseline: None, added: true });
    // By default, the control alarm for resource burn and its forecast have almost no weight.
    let mut alarmed = ours.clone();
    alarmed.settings.oversight.resource_burn.alarm_below = 1.0;
    let mut without_forecast = alarmed.clone();
    without_forecast.settings.control.resource_forecast = false;
    let name = "with the alarm of a burn".to_owned();
    variants.push(PartVariant { name, policy: policy(alarmed.clone()), baseline: None, added: true });
    let name = "the same without forecast".to_owned();
    let baseline = Some(policy(alarmed));
    variants.push(PartVariant { name, policy: policy(without_forecast), baseline, added: false });
    variants
}

/// Disables control: no alarm, no trend, no actuator.
fn disable_control(settings: &mut SupervisionSettings) {
    ACTUATORS.iter().for_each(|switch| *switch(settings) = false);
    let control = &mut settings.control;
    control.deadband = 0.5;
    control.min_progress_rate = 0.0;
    // Two iterations are too few for two changes of direction.
    (control.window, control.stuck_iterations, control.oscillation_count) = (2, 2, 2);
    (control.regression_rate, control.regression_critical, control.slide_drop) = (1.0, 1.0, 1.0);
    (control.max_iterations_percent, control.emergency_percent) = (1.0, 1.0);
    (control.quality_drop, control.quality_critical) = (1.0, 1.0);
    (control.integral_windup_limit, control.derivative_spike) = (5.0, 1.0);
}

/// Returns the seed of a simulation's n-th task.
pub fn task_seed(simulation: u64, task: u64) -> u64 {
    simulation.wrapping_mul(1_000_003).wrapping_add(task)
}

/// Plays `tasks` tasks under a policy, one after another in the same repository.
pub fn play_all(mix: &Mix, policy: &TaskPolicy, simulation: u64, tasks: u64) -> Vec<TaskResult> {
    let mut earlier = EarlierLoops::default();
    (0..tasks).map(|task| play(mix, policy, task_seed(simulation, task), &mut earlier)).collect()
}
