//! State of control between iterations, and its update after an iteration.

use serde::{Deserialize, Serialize};

use super::ControlDecision;
use super::actuators::{Actuation, ActuatorInput, StandingIntervention, actuate};
use super::advice::{ControlAction, action, prompt, summary};
use super::alarms::{self, Alarm, AlarmKind};
use super::blockers::Blockers;
use super::bounds::{MAX_INTEGRAL, MAX_WINDOW, MIN_INTEGRAL};
use super::complexity::complexity;
use super::gains::{ProfileInput, ScheduledGains};
use super::metrics::{self, ControlSample};
use super::resources::Resources;
use super::settings::ControlSettings;
use super::signal::{Terms, Urgency};
use crate::domain::model::record::Record;
use crate::domain::supervision::TaskFacts;

/// Maximum size of an exported state, in bytes.
pub const MAX_STATE: usize = 64 * 1024;

/// State of control of a loop. The default is the state before the first iteration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ControlState {
    /// Number of processed iterations.
    rounds: u64,
    /// Number of the last iteration.
    iteration: u64,
    /// Samples of the last `window` + 1 iterations, oldest first.
    history: Vec<ControlSample>,
    /// I, -1..5.
    integral: f64,
    blockers: Blockers,
    /// Complexity of the task as estimated in the first iteration, 1..10.
    complexity: Option<f64>,
    scheduled: Option<ScheduledGains>,
    alarms: Vec<Alarm>,
    /// Best completion, 0..1.
    best: f64,
    /// Number of consecutive iterations with a completion far below the best one.
    slide: u32,
    /// Number of consecutive iterations whose control signal selects the strong model.
    strong_run: u32,
    /// Seconds spent.
    seconds: f64,
    /// Dollars spent.
    usd: f64,
    actuation: Option<Actuation>,
    #[serde(default)]
    redirected: Option<RedirectedProfile>,
}

/// Target profile requested by a REDIRECT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RedirectedProfile {
    profile: String,
    /// Last iteration for which the request applies.
    until: u64,
}

/// Number of iterations for which the profile of a REDIRECT is the target.
const REDIRECT_LASTS: u64 = 3;

impl ControlState {
    /// Processes an iteration: updates the state and returns the decision. `settings` must be valid
    /// ([`validate`](crate::domain::model::settings::Settings::validate)).
    pub fn step(&mut self, record: &Record, facts: &TaskFacts, settings: &ControlSettings) -> ControlDecision {
        let (figures, wrong) = record.figures();
        self.take(record, &figures, settings);
        let iteration = self.iteration;
        let metrics = metrics::measure(&self.history, self.integral, settings);
        let complexity = *self.complexity.get_or_insert_with(|| complexity(facts, &figures, &settings.complexity));
        let resources = Resources::of(facts, iteration, self.rounds, self.seconds, self.usd);
        let task = ProfileInput {
            base: settings.base_profile(facts, complexity),
            redirected: self.redirected.as_ref().filter(|r| iteration <= r.until).map(|r| r.profile.as_str()),
            complexity,
            iteration,
            early: resources.is_early(),
        };
        let (gains, transition) = settings.scheduled(self.scheduled.as_ref(), &task, &metrics);
        let terms = Terms::of(gains.gains, &metrics);
        let control_signal = terms.signal();
        let urgency = Urgency::of(control_signal);
        let found = alarms::check(&self.alarm_facts(&metrics, &resources), settings);
        let alarms::AlarmChanges { raised, cleared } = alarms::settle(&mut self.alarms, found, iteration);
        let action = action(metrics.gap, urgency, &self.alarms);
        self.scheduled = Some(gains.clone());
        let decision = ControlDecision {
            iteration,
            action,
            takes_effect: settings.auto_intervene && action >= ControlAction::Pause,
            control_signal,
            urgency,
            terms,
            gains,
            transition,
            summary: summary(&metrics, urgency, &self.alarms),
            metrics,
            alarms: self.alarms.clone(),
            raised,
            cleared,
            prompt_adjustments: Vec::new(),
            actuation: Actuation::neutral(&settings.actuators),
            warnings: out_of_range(wrong, iteration).into_iter().collect(),
        };
        if settings.enabled { decision } else { decision.without_advice() }
    }

    /// Adds the actuator positions and the sentences for the next prompt to the `decision` that [`ControlState::step`]
    /// returned for the same `record`. `intervention` is the overseer's standing intervention after this iteration.
    pub fn actuate(
        &mut self,
        decision: &mut ControlDecision,
        record: &Record,
        facts: &TaskFacts,
        intervention: Option<StandingIntervention<'_>>,
        settings: &ControlSettings,
    ) {
        if !settings.enabled {
            return;
        }
        let signal = decision.control_signal;
        let strong = signal > settings.actuators.model.strong_above;
        self.strong_run = if strong { self.strong_run.saturating_add(1) } else { 0 };
        let now = ActuatorInput {
            signal,
            profile: &decision.gains.profile,
            metrics: &decision.metrics,
            intervention,
            strong_run: self.strong_run,
            resources: &Resources::of(facts, self.iteration, self.rounds, self.seconds, self.usd),
        };
        let before = self.actuation.take().unwrap_or_else(|| Actuation::neutral(&settings.actuators));
        let next = actuate(&before, &now, &settings.actuators);
        let recurring = self.blockers.recurring(self.iteration);
        decision.prompt_adjustments = prompt(&decision.metrics, record, &recurring, &self.alarms, &next);
        self.actuation = Some(Actuation { movements: Vec::new(), ..next.clone() });
        decision.actuation = next;
    }

    /// Rebuilds the state from all records if the stored one is unreadable. Acknowledgements of alarms are lost, because the
    /// records do not contain them.
    pub fn rebuild(records: &[Record], facts: &TaskFacts, settings: &ControlSettings) -> Self {
        let mut state = Self::default();
        for record in records {
            let mut decision = state.step(record, facts, settings);
            state.actuate(&mut decision, record, facts, None, settings);
        }
        state
    }

    /// Serializes the state, to be stored with the loop.
    pub fn export(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses an exported state; `None` if the text is not a valid state.
    pub fn import(text: &str) -> Option<Self> {
        let state = (text.len() <= MAX_STATE).then(|| serde_json::from_str::<Self>(text).ok())??;
        state.is_sound().then_some(state)
    }

    /// Sets the target profile for the next iterations instead of the base profile. Called after a REDIRECT.
    pub fn redirect(&mut self, profile: &str) {
        let until = self.iteration.saturating_add(REDIRECT_LASTS);
        self.redirected = Some(RedirectedProfile { profile: profile.to_owned(), until });
    }

    /// Reverts [`ControlState::redirect`], so that the figures of the next iteration depend only on the records.
    pub fn forget_redirect(&mut self) {
        self.redirected = None;
    }

    /// Acknowledges the alarm with this id. Returns whether such an alarm is active.
    pub fn acknowledge(&mut self, id: &str) -> bool {
        let alarm = self.alarms.iter_mut().find(|alarm| alarm.id == id);
        alarm.map(|alarm| alarm.acknowledged = true).is_some()
    }

    /// Returns the active alarms, most severe first.
    pub fn alarms(&self) -> &[Alarm] {
        &self.alarms
    }

    /// Returns the number of iterations so far.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Adds an iteration's figures to the state.
    fn take(&mut self, record: &Record, figures: &Record, settings: &ControlSettings) {
        self.rounds = self.rounds.saturating_add(1);
        let counted = self.iteration.saturating_add(1);
        self.iteration = if figures.iteration >= 1.0 { figures.iteration as u64 } else { counted };
        let Record { completion, quality, errors, .. } = *figures;
        let completion = completion.get();
        let p = metrics::proportional(1.0 - completion, quality, errors, settings.deadband);
        self.history.push(ControlSample { completion, quality, p });
        let surplus = self.history.len().saturating_sub(settings.window_len() + 1);
        self.history.drain(..surplus);
        let recurrences = self.blockers.count(&record.blockers, self.iteration);
        self.integral = metrics::integral(self.integral, settings.decay, p, recurrences, record.learnings.len());
        self.best = self.best.max(completion);
        let slides = self.best - completion > settings.slide_drop;
        self.slide = if slides { self.slide.saturating_add(1) } else { 0 };
        self.seconds += figures.duration_s;
        self.usd += figures.cost_usd;
    }

    fn alarm_facts<'a>(
        &'a self,
        metrics: &'a metrics::ControlMetrics,
        resources: &'a Resources,
    ) -> alarms::AlarmFacts<'a> {
        alarms::AlarmFacts { metrics, history: &self.history, resources, best: self.best, slide: self.slide }
    }

    /// Whether the state's figures are plausible, so that they can come from `step`. False for a damaged stored state.
    pub fn is_sound(&self) -> bool {
        let part = |x: f64| (0.0..=1.0).contains(&x);
        let sample = |s: &ControlSample| part(s.completion) && part(s.quality) && part(s.p);
        let once = |kind: &AlarmKind| self.alarms.iter().filter(|alarm| alarm.kind == *kind).count() <= 1;
        self.history.len() <= MAX_WINDOW as usize + 1
            && self.history.is_empty() == (self.rounds == 0)
            && self.scheduled.is_some() == (self.rounds > 0)
            && self.scheduled.as_ref().is_none_or(|scheduled| scheduled.gains.in_range())
            && self.history.iter().all(sample)
            && (MIN_INTEGRAL..=MAX_INTEGRAL).contains(&self.integral)
            && self.complexity.is_none_or(|complexity| (1.0..=10.0).contains(&complexity))
            && part(self.best)
            && self.seconds >= 0.0
            && self.usd >= 0.0
            && self.seconds.max(self.usd) < f64::MAX / 2.0
            && self.blockers.is_sound()
            && AlarmKind::ALL.iter().all(once)
    }
}

/// Returns a warning for an iteration with `wrong` figures out of range; `None` if `wrong` is 0.
pub fn out_of_range(wrong: u32, iteration: u64) -> Option<String> {
    match wrong {
        0 => None,
        1 => Some(format!("One figure of iteration {iteration} was out of range and was clamped.")),
        _ => Some(format!("{wrong} figures of iteration {iteration} were out of range and were clamped.")),
    }
}
