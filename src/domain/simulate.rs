//! Simulation: what supervision is worth. A stochastic agent with a seed takes many tasks, each under every policy with the
//! same luck, and the outcomes are compared.
//!
//! Everything is an assumption of a [`Mix`]: how agents behave and answer to what is done, how often each sort of task
//! comes, what people do, what things are worth. A simulation shows which parts of supervision pay under assumptions; it
//! does not show that the assumptions hold.

mod agent;
mod chance;
mod figures;
mod mix;
mod play;
mod policy;
#[cfg(test)]
mod tests;

pub use agent::{Agent, Order};
pub use figures::{Figure, Figures, figures, lost};
pub use mix::{AgentSettings, Frees, HELD_OUT, Mix, Pace, Person, Prices, Regime, Snag, TUNED_ON};
pub use play::{Played, play};
pub use policy::{Ours, Policy};

use super::supervision::SupervisionSettings;

/// What the stall rule and the restarts are given: what was best for them on the mixes that ours is tuned on.
const BEST_OF: (u32, u32) = (3, 3);

/// The policies that are compared, each with its name.
pub fn contenders(settings: &SupervisionSettings) -> Vec<(String, Policy)> {
    let ours = Ours { settings: settings.clone(), ..Ours::default() };
    let named = |name: &str, policy| (name.to_owned(), policy);
    vec![
        named("limit of 5", Policy::Fixed(5)),
        named("limit of 10", Policy::Fixed(10)),
        named("limit of 25", Policy::Fixed(25)),
        named("the agent's claim", Policy::Claim),
        named("Luby restarts", Policy::Luby(BEST_OF.1)),
        named("stall rule", Policy::Stall(BEST_OF.0)),
        named("ours", Policy::Ours(Box::new(ours.clone()))),
        named("ours, told the worth", Policy::Ours(Box::new(Ours { told: true, ..ours }))),
        named("all seen, three late", Policy::Late(3)),
        named("oracle", Policy::Oracle),
    ]
}

/// Ours without each part.
pub fn without_parts(settings: &SupervisionSettings) -> Vec<(String, Policy)> {
    type Change = fn(&mut Ours);
    let parts: [(&str, Change); 22] = [
        ("PID control", |ours| without_control(&mut ours.settings)),
        ("effort", |ours| ours.settings.control.actuators.effort.enabled = false),
        ("model tier", |ours| ours.settings.control.actuators.model.enabled = false),
        ("breadth", |ours| ours.settings.control.actuators.breadth.enabled = false),
        ("tone", |ours| ours.settings.control.actuators.tone.enabled = false),
        ("memory share", |ours| ours.settings.control.actuators.memory.enabled = false),
        ("forecast", |ours| ours.settings.control.resource_forecast = false),
        ("stuck", |ours| ours.settings.oversight.stuck.enabled = false),
        ("oscillation", |ours| ours.settings.oversight.oscillation.enabled = false),
        ("deviation", |ours| ours.settings.oversight.deviation.enabled = false),
        ("resource_burn", |ours| ours.settings.oversight.resource_burn.enabled = false),
        ("regression", |ours| ours.settings.oversight.regression.enabled = false),
        ("test_tampering", |ours| ours.settings.oversight.test_tampering.enabled = false),
        ("no_change", |ours| ours.settings.oversight.no_change.enabled = false),
        ("agent_failure", |ours| ours.settings.oversight.agent_failure.enabled = false),
        ("standstill", |ours| ours.settings.oversight.stuck.standstill_chance = 0.0),
        ("giving up", |ours| ours.settings.strategy.outlook.enabled = false),
        ("strategy's own pauses", |ours| {
            ours.settings.strategy.escalation_threshold = 1000;
            ours.settings.strategy.budget_critical = 1.0;
        }),
        ("WARN and REDIRECT", |ours| ours.without_words = true),
        ("fresh sessions", |ours| ours.without_fresh = true),
        ("people", |ours| ours.without_person = true),
        ("all actuators", |ours| without_actuators(&mut ours.settings)),
    ];
    let ours = Ours { settings: settings.clone(), ..Ours::default() };
    let changed = |(name, change): (&str, Change)| {
        let mut ours = ours.clone();
        change(&mut ours);
        (name.to_owned(), Policy::Ours(Box::new(ours)))
    };
    parts.into_iter().map(changed).collect()
}

fn without_actuators(settings: &mut SupervisionSettings) {
    let actuators = &mut settings.control.actuators;
    actuators.effort.enabled = false;
    actuators.model.enabled = false;
    actuators.breadth.enabled = false;
    actuators.tone.enabled = false;
    actuators.memory.enabled = false;
}

/// Control sees nothing and changes nothing: no alarm, no trend, no actuator.
fn without_control(settings: &mut SupervisionSettings) {
    without_actuators(settings);
    let control = &mut settings.control;
    control.deadband = 0.5;
    control.min_progress_rate = 0.0;
    // Two changes of direction do not fit into two iterations.
    (control.window, control.stuck_iterations, control.oscillation_count) = (2, 2, 2);
    (control.regression_rate, control.regression_critical, control.slide_drop) = (1.0, 1.0, 1.0);
    (control.max_iterations_percent, control.emergency_percent) = (1.0, 1.0);
    (control.quality_drop, control.quality_critical) = (1.0, 1.0);
    (control.integral_windup_limit, control.derivative_spike) = (5.0, 1.0);
}

/// Seed of the n-th task of a simulation.
pub fn seed_of(simulation: u64, task: u64) -> u64 {
    simulation.wrapping_mul(1_000_003).wrapping_add(task)
}

/// Plays so many tasks under a policy.
pub fn play_all(mix: &Mix, policy: &Policy, simulation: u64, tasks: u64) -> Vec<Played> {
    (0..tasks).map(|task| play(mix, policy, seed_of(simulation, task))).collect()
}
