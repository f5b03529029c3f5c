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

use crate::domain::supervision::SupervisionSettings;
use crate::domain::supervision::experience::Experience;

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
        named("ours, no earlier loops", Policy::Ours(Box::new(Ours { without_experience: true, ..ours.clone() }))),
        named("ours, told the worth", Policy::Ours(Box::new(Ours { told: true, ..ours }))),
        named("all seen, three late", Policy::Late(3)),
        named("oracle", Policy::Oracle),
    ]
}

/// Ours with one part taken away, or added where the settings leave it out.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What was changed: `without stuck`, `with effort`.
    pub name: String,
    /// Ours so changed.
    pub policy: Policy,
    /// What that is held against, where it is not ours as it is.
    pub against: Option<Policy>,
    /// Whether the part is in `policy` and not in what it is held against, rather than the other way round.
    pub added: bool,
}

/// A switch of the settings.
type Switch = fn(&mut SupervisionSettings) -> &mut bool;

/// A part of ours.
enum Part {
    /// It is on where any of these is, and can be added.
    Switches(&'static [Switch]),
    /// It can be taken away.
    Away(fn(&mut Ours)),
}

const ACTUATORS: [Switch; 5] = [
    |settings| &mut settings.control.actuators.effort.enabled,
    |settings| &mut settings.control.actuators.model.enabled,
    |settings| &mut settings.control.actuators.breadth.enabled,
    |settings| &mut settings.control.actuators.tone.enabled,
    |settings| &mut settings.control.actuators.memory.enabled,
];

/// Every part of ours, with its name.
const PARTS: [(&str, Part); 22] = [
    ("PID control", Part::Away(|ours| without_control(&mut ours.settings))),
    ("effort", Part::Switches(&[ACTUATORS[0]])),
    ("model tier", Part::Switches(&[ACTUATORS[1]])),
    ("breadth", Part::Switches(&[ACTUATORS[2]])),
    ("tone", Part::Switches(&[ACTUATORS[3]])),
    ("memory share", Part::Switches(&[ACTUATORS[4]])),
    ("all actuators", Part::Switches(&ACTUATORS)),
    ("stuck", Part::Switches(&[|settings| &mut settings.oversight.stuck.enabled])),
    ("oscillation", Part::Switches(&[|settings| &mut settings.oversight.oscillation.enabled])),
    ("deviation", Part::Switches(&[|settings| &mut settings.oversight.deviation.enabled])),
    ("resource_burn", Part::Switches(&[|settings| &mut settings.oversight.resource_burn.enabled])),
    ("regression", Part::Switches(&[|settings| &mut settings.oversight.regression.enabled])),
    ("test_tampering", Part::Switches(&[|settings| &mut settings.oversight.test_tampering.enabled])),
    ("no_change", Part::Switches(&[|settings| &mut settings.oversight.no_change.enabled])),
    ("agent_failure", Part::Switches(&[|settings| &mut settings.oversight.agent_failure.enabled])),
    ("standstill", Part::Away(|ours| ours.settings.oversight.stuck.standstill_chance = 0.0)),
    ("giving up", Part::Switches(&[|settings| &mut settings.strategy.outlook.enabled])),
    (
        "strategy's own pauses",
        Part::Away(|ours| {
            ours.settings.strategy.escalation_threshold = 1000;
            ours.settings.strategy.budget_critical = 1.0;
        }),
    ),
    ("WARN and REDIRECT", Part::Away(|ours| ours.without_words = true)),
    ("fresh sessions", Part::Away(|ours| ours.without_fresh = true)),
    ("people", Part::Away(|ours| ours.without_person = true)),
    ("earlier loops", Part::Away(|ours| ours.without_experience = true)),
];

/// Ours changed by each of its parts.
pub fn changes(settings: &SupervisionSettings) -> Vec<Change> {
    let ours = Ours { settings: settings.clone(), ..Ours::default() };
    let policy = |ours: Ours| Policy::Ours(Box::new(ours));
    let change = |(name, part): &(&str, Part)| {
        let mut changed = ours.clone();
        let added = match part {
            Part::Away(away) => {
                away(&mut changed);
                false
            }
            Part::Switches(switches) => {
                let is_on = switches.iter().any(|switch| *switch(&mut changed.settings));
                switches.iter().for_each(|switch| *switch(&mut changed.settings) = !is_on);
                !is_on
            }
        };
        let name = format!("{} {name}", if added { "with" } else { "without" });
        Change { name, policy: policy(changed), against: None, added }
    };
    let mut changes: Vec<Change> = PARTS.iter().map(change).collect();
    // Loops have one. It is for their default limit of ten iterations, which is twice of it; here they may take more.
    let estimated = policy(Ours { estimated: true, ..ours.clone() });
    let name = "with the usual iterations".to_owned();
    changes.push(Change { name, policy: estimated, against: None, added: true });
    // As shipped, control's alarm of a burn counts for next to nothing, and with it the forecast that it goes by.
    let mut alarmed = ours.clone();
    alarmed.settings.oversight.resource_burn.alarm_below = 1.0;
    let mut blind = alarmed.clone();
    blind.settings.control.resource_forecast = false;
    let name = "with the alarm of a burn".to_owned();
    changes.push(Change { name, policy: policy(alarmed.clone()), against: None, added: true });
    let name = "the same without forecast".to_owned();
    changes.push(Change { name, policy: policy(blind), against: Some(policy(alarmed)), added: false });
    changes
}

/// Control sees nothing and changes nothing: no alarm, no trend, no actuator.
fn without_control(settings: &mut SupervisionSettings) {
    ACTUATORS.iter().for_each(|switch| *switch(settings) = false);
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

/// Plays so many tasks under a policy, one after the other in the same repository.
pub fn play_all(mix: &Mix, policy: &Policy, simulation: u64, tasks: u64) -> Vec<Played> {
    let mut experience = Experience::default();
    (0..tasks).map(|task| play(mix, policy, seed_of(simulation, task), &mut experience)).collect()
}
