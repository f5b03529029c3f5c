//! Actuators: convert the control signal to the next iteration's effort, model, breadth, tone and memory share.

use serde::{Deserialize, Serialize};

use super::bounds::MAX_INTEGRAL;
use super::laws::{ActuatorCause, ActuatorSettings, BreadthLaw, EffortLaw, MemoryLaw, ModelLaw};
use super::metrics::ControlMetrics;
use super::resources::Resources;
use super::signal::Urgency;

/// Tier of a model. An unconfigured tier falls back to the default tier. The rules in `models.rules` take precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelTier {
    /// Cheap tier, for the last small changes.
    Cheap,
    /// Configured tier.
    #[default]
    Default,
    /// Strong tier, for tasks on which other models failed.
    Strong,
}

/// Amount of work of one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Breadth {
    /// Only the first failing check.
    FirstFailure,
    /// One change.
    OneChange,
    /// The agent decides how much to do.
    #[default]
    Usual,
    /// Everything that remains.
    Everything,
}

/// Adjustable property of an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actuator {
    /// [`Actuation::effort`].
    Effort,
    /// [`Actuation::model`].
    Model,
    /// [`Actuation::breadth`].
    Breadth,
    /// [`Actuation::tone`].
    Tone,
    /// [`Actuation::memory_share`].
    Memory,
}

impl Actuator {
    /// Returns the display name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Effort => "effort",
            Self::Model => "model",
            Self::Breadth => "breadth",
            Self::Tone => "urgency",
            Self::Memory => "memory's share",
        }
    }
}

/// Change of one actuator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Movement {
    /// Actuator that changed.
    pub actuator: Actuator,
    /// Previous position.
    pub from: String,
    /// New position.
    pub to: String,
    /// Cause, with figures.
    pub cause: String,
}

/// Actuator positions for the next iteration, with the reasons for changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Actuation {
    /// Factor for the usual time and number of turns of a run.
    pub effort: f64,
    /// Remaining seconds until the loop's limit; `None` without a limit.
    pub seconds_left: Option<f64>,
    /// Remaining dollars until the loop's limit; `None` without a limit.
    pub usd_left: Option<f64>,
    /// Tier of the model.
    pub model: ModelTier,
    /// Amount of work.
    pub breadth: Breadth,
    /// Urgency stated in the prompt.
    pub tone: Urgency,
    /// Share of the context reserved for memory, 0..1.
    pub memory_share: f64,
    /// Changes since the previous iteration.
    pub movements: Vec<Movement>,
}

impl Actuation {
    /// Returns the neutral position of every actuator.
    pub fn neutral(settings: &ActuatorSettings) -> Self {
        Self {
            effort: 1.0,
            seconds_left: None,
            usd_left: None,
            model: ModelTier::Default,
            breadth: Breadth::Usual,
            tone: Urgency::Normal,
            memory_share: settings.memory.base,
            movements: Vec::new(),
        }
    }
}

/// Active intervention of the overseer after an iteration: a REDIRECT or a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandingIntervention<'a> {
    /// Gain profile for the intervention's detection.
    pub profile: &'a str,
}

/// Inputs of the actuator laws.
pub(super) struct ActuatorInput<'a> {
    pub(super) signal: f64,
    pub(super) profile: &'a str,
    pub(super) metrics: &'a ControlMetrics,
    /// Standing intervention; `None` without one.
    pub(super) intervention: Option<StandingIntervention<'a>>,
    /// Number of consecutive iterations with a control signal above [`ModelLaw::strong_above`].
    pub(super) strong_run: u32,
    pub(super) resources: &'a Resources,
}

/// Computes the new actuator positions from the previous positions `before` and the inputs `now`.
pub(super) fn actuate(before: &Actuation, now: &ActuatorInput<'_>, settings: &ActuatorSettings) -> Actuation {
    let mut next = Actuation::neutral(settings);
    next.seconds_left = now.resources.seconds.remaining();
    next.usd_left = now.resources.usd.remaining();
    let signal = format!("the control signal is {:.2}", now.signal);
    if settings.effort.enabled {
        next.effort = settings.effort.factor(now, settings.cause);
    }
    let (model, model_cause) = settings.model.choose(now);
    next.model = model;
    let profile = match settings.cause {
        ActuatorCause::Signal => Some(now.profile),
        ActuatorCause::Intervention => now.intervention.map(|standing| standing.profile),
    };
    next.breadth = profile.map_or(Breadth::Usual, |profile| settings.breadth.choose(profile));
    if settings.tone.enabled {
        next.tone = Urgency::of(now.signal);
    }
    let MemoryLaw { enabled, base, max } = settings.memory;
    if enabled {
        next.memory_share = base + (max - base) * (now.metrics.i / MAX_INTEGRAL).clamp(0.0, 1.0);
    }
    let cause = |of_signal: String| match (settings.cause, now.intervention) {
        (ActuatorCause::Signal, _) => of_signal,
        (ActuatorCause::Intervention, Some(standing)) => {
            format!("the overseer intervened, with the profile {}", standing.profile)
        }
        (ActuatorCause::Intervention, None) => "the intervention ended".to_owned(),
    };
    let mut moved = |actuator, from: String, to: String, cause: &str| {
        if from != to {
            next.movements.push(Movement { actuator, from, to, cause: cause.to_owned() });
        }
    };
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    moved(Actuator::Effort, percent(before.effort), percent(next.effort), &cause(signal.clone()));
    moved(Actuator::Model, before.model.word().to_owned(), next.model.word().to_owned(), &model_cause);
    let profile = cause(format!("the profile is {}", now.profile));
    moved(Actuator::Breadth, before.breadth.words().to_owned(), next.breadth.words().to_owned(), &profile);
    moved(Actuator::Tone, before.tone.word().to_owned(), next.tone.word().to_owned(), &signal);
    let integral = format!("I is {:.2}", now.metrics.i);
    moved(Actuator::Memory, percent(before.memory_share), percent(next.memory_share), &integral);
    next
}

impl EffortLaw {
    /// Returns the factor, regardless of `enabled`.
    fn factor(&self, now: &ActuatorInput<'_>, cause: ActuatorCause) -> f64 {
        match (cause, now.intervention) {
            (ActuatorCause::Signal, _) => (self.offset + self.slope * now.signal).max(self.min).min(self.max),
            (ActuatorCause::Intervention, Some(_)) => self.intervention,
            (ActuatorCause::Intervention, None) => 1.0,
        }
    }
}

impl ModelLaw {
    fn choose(&self, now: &ActuatorInput<'_>) -> (ModelTier, String) {
        let listed = |profiles: &[String]| profiles.iter().any(|name| name == now.profile);
        if !self.enabled {
            (ModelTier::Default, "it is switched off".to_owned())
        } else if listed(&self.strong_profiles) {
            (ModelTier::Strong, format!("the profile is {}", now.profile))
        } else if now.strong_run >= self.strong_iterations {
            let run = now.strong_run;
            (ModelTier::Strong, format!("the control signal was above {} {run} times in a row", self.strong_above))
        } else if now.signal < self.cheap_below && listed(&self.cheap_profiles) {
            (ModelTier::Cheap, format!("the control signal is {:.2} and the profile is {}", now.signal, now.profile))
        } else {
            (ModelTier::Default, format!("the control signal is {:.2}", now.signal))
        }
    }
}

impl BreadthLaw {
    fn choose(&self, profile: &str) -> Breadth {
        let listed = |profiles: &[String]| self.enabled && profiles.iter().any(|name| name == profile);
        if listed(&self.first_failure) {
            Breadth::FirstFailure
        } else if listed(&self.one_change) {
            Breadth::OneChange
        } else if listed(&self.everything) {
            Breadth::Everything
        } else {
            Breadth::Usual
        }
    }
}

impl ModelTier {
    /// Returns the display name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cheap => "cheap",
            Self::Default => "default",
            Self::Strong => "strong",
        }
    }
}

impl Breadth {
    /// Returns the display text.
    pub fn words(self) -> &'static str {
        match self {
            Self::FirstFailure => "only the first failing check",
            Self::OneChange => "one change",
            Self::Usual => "the usual",
            Self::Everything => "everything that is open",
        }
    }
}
