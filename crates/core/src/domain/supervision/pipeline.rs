//! Pipeline that passes an iteration through control, oversight and strategy, in this order. Loops, replays and simulations share
//! it.
//!
//! Control converts the record to figures and recommends an action. The overseer judges the history and decides. Strategy plans
//! the next iteration. The combined state of all three is stored with the loop.

use serde::{Deserialize, Serialize};

pub use super::settings::{PRESET, RENAMED_KEYS, SupervisionPreset, SupervisionSettings, operators_alone};

use crate::domain::model::record::Record;
use crate::domain::model::task::{CheckReport, DiffStat};
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::control::{self, ControlAction, ControlState, ModelTier, StandingIntervention};
use crate::domain::supervision::oversight::{
    self, AuditEntry, ControlView, DetectionKind, OverseerState, OversightVerdict,
};
use crate::domain::supervision::progress_rate::ProgressRate;
use crate::domain::supervision::strategy::{
    self, Approach, IterationIssue, Outlook, OutlookSettings, PlanInput, PreValidation, StateAssessment, StrategyPlan,
    StrategyState,
};

/// Maximum number of newest iterations to consider. It is larger than any threshold, and bounds the cost of an iteration in
/// a long loop. The figures of older iterations are ignored.
const MAX_HISTORY: usize = 1_000;

/// State of control, oversight and strategy. If part of the stored state is missing, the whole state is rebuilt from the
/// records.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Supervision {
    /// State of the controller.
    pub control: ControlState,
    /// State of the overseer.
    pub overseer: OverseerState,
    /// State of the strategy.
    pub strategy: StrategyState,
}

/// Optional inputs in addition to the records.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReviewContext<'a> {
    /// Outcomes of the last iteration's checks, including their output.
    pub checks: Option<&'a CheckReport>,
    /// Change of the last iteration.
    pub change: Option<&'a DiffStat>,
    /// Open review comments, oldest first.
    pub reviews: &'a [String],
    /// Reflections and antipatterns that describe failures.
    pub failed: &'a [String],
}

/// Result of supervising an iteration, including the plan of the next one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SupervisionReview {
    /// Figures and recommendation of control.
    pub control: control::ControlDecision,
    /// Verdict of the overseer, which decides.
    pub verdict: OversightVerdict,
    /// Problems with the end of the last iteration.
    pub after: Vec<IterationIssue>,
    /// Assessment of the loop's current state.
    pub assessment: StateAssessment,
    /// Plan of the next iteration.
    pub plan: StrategyPlan,
    /// Validation of the plan, which determines whether the next iteration may start.
    pub before: PreValidation,
    /// Expected outcome of continuing; `None` without an estimate.
    pub outlook: Option<Outlook>,
    /// Reason for giving up, without a full stop; `None` to continue.
    pub gives_up: Option<String>,
}

impl SupervisionReview {
    /// Returns the most severe of three decisions: the overseer's decision, control's action if `auto_intervene` is set, and
    /// a pause if the plan or its validation requires a person.
    pub fn decision(&self) -> oversight::OversightDecision {
        let of_control = match self.control.action {
            _ if !self.control.takes_effect => oversight::OversightDecision::Continue,
            ControlAction::Abort => oversight::OversightDecision::Abort,
            ControlAction::Pause => oversight::OversightDecision::Pause,
            ControlAction::Adjust | ControlAction::Continue => oversight::OversightDecision::Continue,
        };
        let asks = self.plan.approach == Approach::Escalate || self.before.stops();
        let of_strategy =
            if asks { oversight::OversightDecision::Pause } else { oversight::OversightDecision::Continue };
        self.verdict.decision.max(of_control).max(of_strategy)
    }

    /// Returns control's model tier for the next run, except that the cheap tier is never used after a REDIRECT.
    pub fn model(&self) -> ModelTier {
        match (self.control.actuation.model, self.verdict.redirect()) {
            (ModelTier::Cheap, Some(_)) => ModelTier::Default,
            (tier, _) => tier,
        }
    }

    /// Whether the review sends new content to the agent or to people. Afterwards, the loop counts as disturbed in the
    /// statistics for later loops.
    pub fn interferes(&self) -> bool {
        self.verdict.interventions.iter().any(|done| done.fresh && done.level >= oversight::InterventionLevel::Warn)
    }

    /// Whether the agent's next run starts a new session instead of resuming the last one.
    pub fn fresh_session(&self) -> bool {
        self.verdict.redirect().is_some_and(|redirect| redirect.fresh)
    }

    /// Whether the next run should use another backend because runs of the current one fail.
    pub fn leaves_backend(&self) -> bool {
        self.verdict.redirect().is_some_and(|redirect| redirect.kind == DetectionKind::AgentFailure)
    }
}

impl Supervision {
    /// Reviews the newest iteration. `history` has all counted iterations, oldest first, cleaned ([`Record::cleaned`]).
    /// Returns `None` if `history` is empty.
    pub fn review(
        &mut self,
        history: &[Record],
        facts: &TaskFacts,
        evidence: ReviewContext<'_>,
        settings: &SupervisionSettings,
    ) -> Option<SupervisionReview> {
        let history = &history[history.len().saturating_sub(MAX_HISTORY)..];
        let last = history.last()?;
        let mut control = self.control.step(last, facts, &settings.control);
        let mut view = ControlView::from(&control);
        if !settings.control.enabled {
            view.trend = control::Trend::default();
        }
        let mut verdict = oversight::review(&mut self.overseer, history, facts, &view, &settings.oversight);
        let schedule = &settings.control.schedule;
        let profile = |done: &oversight::Intervention| (done.kind.row().profile)(schedule).as_str();
        let intervention = verdict.standing().map(|done| StandingIntervention { profile: profile(done) });
        self.control.actuate(&mut control, last, facts, intervention, &settings.control);
        if let Some(redirect) = verdict.redirect().filter(|redirect| redirect.fresh) {
            self.control.redirect((redirect.kind.row().profile)(schedule));
        }
        let after = strategy::validate_after(last, &settings.strategy);
        let texts = after.iter().map(|issue| issue.text.as_str());
        verdict.audit.extend(self.overseer.log(oversight::iteration_of(history), texts));
        let assessment = strategy::assess(history, facts, evidence.checks, evidence.change, &settings.strategy);
        let found = |kind| verdict.detections.iter().any(|detection| detection.kind == kind);
        let situation = PlanInput {
            assessment: &assessment,
            redirect: verdict.redirect(),
            stuck: found(DetectionKind::Stuck),
            oscillating: found(DetectionKind::Oscillation),
            reviews: evidence.reviews,
            failed: evidence.failed,
        };
        let plan = strategy::plan(&mut self.strategy, &situation, &settings.strategy);
        let before = strategy::validate_before(&plan, &assessment, view.forecast, &settings.strategy);
        let threshold = facts.experience.step_threshold(settings.oversight.step_threshold());
        let rate = ProgressRate::of(&Record::measured(history), threshold);
        let outlook = Outlook::of(&rate, assessment.iterations_left, &facts.experience, &settings.strategy.outlook);
        let mut review =
            SupervisionReview { control, verdict, after, assessment, plan, before, outlook, gives_up: None };
        if !last.is_finished() {
            review.gives_up = self.gives_up(&review, &rate, &settings.strategy.outlook);
        }
        Some(review)
    }

    /// Returns the reason for giving up; `None` if the decision applies instead.
    fn gives_up(&self, review: &SupervisionReview, rate: &ProgressRate, settings: &OutlookSettings) -> Option<String> {
        let decision = review.decision();
        if !settings.enabled || decision == oversight::OversightDecision::Abort {
            return None;
        }
        let iteration = review.assessment.iteration.saturating_sub(1);
        if let Some(resumed) = self.strategy.resumed {
            // The person who resumed the loop knew the outlook.
            let still = rate.still.min(iteration.saturating_sub(resumed));
            let in_vain = settings.guided_iterations > 0 && still >= settings.guided_iterations;
            return in_vain.then(|| format!("no progress for {still} iterations since a person resumed it"));
        }
        let outlook = review.outlook?;
        // After a warning, and until a REDIRECT has had time to take effect, the loop does not have its usual rate of
        // progress. With earlier loops, it is judged by its rate before the problem, and gives up if even this rate would
        // not be sufficient.
        let warned = review.verdict.interventions.iter().any(|done| done.level >= oversight::InterventionLevel::Warn);
        let redirected = self.overseer.last_redirect();
        let troubled =
            warned || redirected.is_some_and(|last| iteration <= last.saturating_add(settings.after_redirect));
        let asks_in_vain = decision == oversight::OversightDecision::Pause && !outlook.fits();
        (asks_in_vain || (!troubled || outlook.earlier > 0) && outlook.expected_gain < 0.0).then(|| outlook.text())
    }

    /// Records that a person resumed the loop after `iteration`. Acknowledges the causes of the pause and the active alarms.
    pub fn resume(&mut self, iteration: u32, by: &str, settings: &SupervisionSettings) -> AuditEntry {
        let standing: Vec<String> = self.control.alarms().iter().map(|alarm| alarm.id.clone()).collect();
        for id in standing {
            self.control.acknowledge(&id);
        }
        self.strategy.resumed = Some(iteration);
        self.overseer.resume(iteration, by, &settings.oversight)
    }

    /// Rebuilds the state from the records if the stored state is unreadable or incompatible. People's acknowledgements are
    /// lost, because the records do not contain them.
    pub fn rebuilt(records: &[Record], facts: &TaskFacts, settings: &SupervisionSettings) -> Self {
        let mut known = Self::default();
        for upto in 1..=records.len() {
            known.review(&records[..upto], facts, ReviewContext::default(), settings);
        }
        known
    }

    /// Whether the state is plausible for a loop with this number of iterations. False for a damaged stored state.
    pub fn is_sound(&self, iterations: usize) -> bool {
        self.control.is_sound() && self.control.rounds() == iterations as u64
    }
}

impl From<&control::ControlDecision> for ControlView {
    fn from(decision: &control::ControlDecision) -> Self {
        let severity = |severity| match severity {
            control::AlarmSeverity::Info => oversight::DetectionSeverity::Low,
            control::AlarmSeverity::Warning => oversight::DetectionSeverity::Medium,
            control::AlarmSeverity::Critical | control::AlarmSeverity::Emergency => {
                oversight::DetectionSeverity::Critical
            }
        };
        Self {
            alarms: decision.alarms.iter().map(|alarm| (alarm.kind, severity(alarm.severity))).collect(),
            trend: decision.metrics.trend,
            forecast: decision.metrics.forecast.map(|more| more as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::Ratio;
    use crate::domain::model::record::{CheckFact, MAX_BLOCKERS};
    use crate::domain::supervision::control::Breadth;
    use crate::domain::supervision::experience::{EarlierLoop, Experience};

    fn record(iteration: u32, completion: f64, error: &str) -> Record {
        Record {
            iteration: f64::from(iteration),
            completion: Ratio::new(completion),
            errors: 1.0,
            error_signature: Some(error.to_owned()),
            checks: vec![CheckFact { name: "test".to_owned(), passed: completion >= 1.0, baseline: Some(false) }],
            files: vec!["src/lib.rs".to_owned()],
            tree: Some(format!("{iteration:040x}")),
            summary: "work on the failing test".to_owned(),
            ..Record::default()
        }
    }

    fn run(completions: &[f64]) -> (Supervision, Vec<SupervisionReview>) {
        let facts = TaskFacts { max_iterations: 30.0, ..TaskFacts::default() };
        let (mut supervision, settings) = (Supervision::default(), SupervisionSettings::default());
        let records: Vec<Record> = completions
            .iter()
            .zip(1..)
            .map(|(completion, n)| record(n, *completion, "E0308 mismatched types"))
            .collect();
        let reviews = (1..=records.len())
            .filter_map(|upto| supervision.review(&records[..upto], &facts, ReviewContext::default(), &settings))
            .collect();
        (supervision, reviews)
    }

    #[test]
    fn stuck_loop_is_redirected_then_paused() {
        let (mut supervision, reviews) = run(&[0.3; 12]);
        let decisions: Vec<_> = reviews.iter().map(SupervisionReview::decision).collect();
        let redirected = reviews.iter().position(|review| review.verdict.redirect().is_some()).unwrap();
        let paused = decisions.iter().position(|decision| *decision == oversight::OversightDecision::Pause).unwrap();
        assert!(redirected < paused, "{decisions:?}");
        let review = &reviews[redirected];
        assert!(review.fresh_session() && review.plan.approach == Approach::Pivot, "{:?}", review.plan);
        assert_eq!(review.verdict.directives[0].level, oversight::DirectiveLevel::Override);
        // Only a person ends the pause; then the loop continues.
        assert_eq!(decisions.last(), Some(&oversight::OversightDecision::Pause));
        assert!(supervision.overseer.is_held());
        let entry = supervision.resume(12, "maria", &SupervisionSettings::default());
        assert!(entry.reason.contains("maria") && !supervision.overseer.is_held());
        assert!(supervision.control.alarms().iter().all(|alarm| alarm.acknowledged));
    }

    #[test]
    fn redirect_moves_gains_of_constant_loop() {
        let gains = |change: fn(u32, &mut Record)| {
            let facts = TaskFacts { max_iterations: 30.0, ..TaskFacts::default() };
            let (mut supervision, settings) = (Supervision::default(), SupervisionSettings::default());
            let mut records = Vec::new();
            loop {
                let n = records.len() as u32 + 1;
                records.push(record(n, 0.6, "E0308 mismatched types"));
                change(n, &mut records[n as usize - 1]);
                let review = supervision.review(&records, &facts, ReviewContext::default(), &settings).unwrap();
                assert_eq!(review.control.gains.profile, "standard", "iteration {n}");
                if let Some(redirect) = review.verdict.redirect() {
                    let kind = redirect.kind;
                    records.push(records[n as usize - 1].clone());
                    let next =
                        supervision.review(&records, &facts, ReviewContext::default(), &settings).unwrap().control;
                    let because = next.transition.expect("another profile").reason;
                    assert_eq!(because, "the overseer redirected the loop");
                    return (kind, next.gains.profile);
                }
            }
        };
        assert_eq!(gains(|_, _| {}), (DetectionKind::Stuck, "recovery".to_owned()));
        let to_and_fro = |n: u32, record: &mut Record| {
            record.error_signature = Some("x".repeat(n as usize));
            record.tree = Some(["a", "b"][n as usize % 2].to_owned());
        };
        assert_eq!(gains(to_and_fro), (DetectionKind::Oscillation, "damped".to_owned()));
    }

    #[test]
    fn effort_and_breadth_follow_the_active_intervention() {
        let (_, healthy) = run(&[0.2, 0.35, 0.5, 0.62, 0.8, 0.9, 1.0]);
        let neutral = |review: &SupervisionReview| {
            let actuation = &review.control.actuation;
            (actuation.effort, actuation.breadth) == (1.0, Breadth::Usual) && actuation.movements.is_empty()
        };
        assert!(healthy.iter().all(neutral), "{healthy:?}");

        let (_, stuck) = run(&[0.3; 8]);
        let first = stuck.iter().position(|review| review.verdict.redirect().is_some()).expect("a REDIRECT");
        assert!(stuck[..first].iter().all(neutral));
        let actuation = &stuck[first].control.actuation;
        assert_eq!((actuation.effort, actuation.breadth), (1.5, Breadth::Usual));
        let texts: Vec<_> =
            actuation.movements.iter().map(|m| format!("{} to {}: {}", m.from, m.to, m.cause)).collect();
        assert_eq!(texts, ["100 % to 150 %: the overseer intervened, with the profile recovery"]);

        let facts = TaskFacts { max_iterations: 30.0, ..TaskFacts::default() };
        let (mut supervision, settings) = (Supervision::default(), SupervisionSettings::default());
        let mut records = Vec::new();
        let oscillating = (1..10).find_map(|n| {
            let tree = Some(["a", "b"][n as usize % 2].to_owned());
            records.push(Record { tree, ..record(n, 0.6, &"x".repeat(n as usize)) });
            let review = supervision.review(&records, &facts, ReviewContext::default(), &settings)?;
            review.verdict.redirect().is_some().then_some(review)
        });
        let control = oscillating.expect("a REDIRECT").control;
        assert_eq!((control.actuation.effort, control.actuation.breadth), (1.5, Breadth::FirstFailure));
        let narrow = "Work on the first failing check only, and leave the rest for later.";
        assert_eq!(control.prompt_adjustments.last().map(String::as_str), Some(narrow));
    }

    #[test]
    fn informational_finding_is_only_logged() {
        let facts = TaskFacts { max_iterations: 30.0, ..TaskFacts::default() };
        let claims = Record { completion_signal: true, ..record(1, 0.3, "E0308 mismatched types") };
        let mut supervision = Supervision::default();
        let review = supervision
            .review(&[claims], &facts, ReviewContext::default(), &SupervisionSettings::default())
            .expect("a review");
        let logged: Vec<_> = review.verdict.audit.iter().map(|entry| (entry.level, entry.reason.as_str())).collect();
        let expected = (Some(oversight::InterventionLevel::Log), "the agent reports completion, but checks fail");
        assert_eq!(logged, [expected]);
        assert_eq!(review.decision(), oversight::OversightDecision::Continue);
        assert!(!review.interferes() && supervision.overseer.health == oversight::Health::Healthy);
        assert_eq!(
            oversight::OversightReport::of(&supervision.overseer, &[], false, 0.01).to_string().lines().last(),
            Some("  LOG                 1")
        );
    }

    #[test]
    fn person_is_asked_within_a_loop_of_ten_iterations() {
        let escalated = |most: f64, settings: &SupervisionSettings| {
            let facts = TaskFacts { max_iterations: most, ..TaskFacts::default() };
            let mut supervision = Supervision::default();
            let records: Vec<Record> = (1..=15).map(|n| record(n, 0.3, &"x".repeat(n as usize))).collect();
            (1..=records.len()).find(|upto| {
                let review = supervision.review(&records[..*upto], &facts, ReviewContext::default(), settings);
                review.expect("a review").plan.reasoning.starts_with("no progress for")
            })
        };
        let fixed = |limit_share: f64| {
            let mut settings = SupervisionSettings::default();
            settings.strategy.limit_share = limit_share;
            settings
        };
        assert_eq!(escalated(10.0, &fixed(0.7)), Some(8));
        assert_eq!(escalated(10.0, &fixed(0.0)), Some(13));
        assert_eq!(escalated(40.0, &fixed(0.7)), Some(13));
    }

    #[test]
    fn healthy_loop_is_not_disturbed() {
        let (supervision, reviews) = run(&[0.2, 0.35, 0.5, 0.62, 0.8, 0.9, 1.0]);
        assert!(
            reviews.iter().all(|review| review.decision() == oversight::OversightDecision::Continue),
            "{reviews:?}"
        );
        assert_eq!(supervision.overseer.health, oversight::Health::Healthy);
    }

    /// Returns the messages after each iteration of a loop with these completions and a distinct error per iteration.
    fn moving(completions: &[f64], resumed: Option<u32>, settings: &SupervisionSettings) -> Vec<Option<String>> {
        let facts = TaskFacts { max_iterations: 25.0, ..TaskFacts::default() };
        let mut supervision = Supervision::default();
        let mut records = Vec::new();
        let mut messages = Vec::new();
        for (completion, n) in completions.iter().zip(1..) {
            records.push(record(n, *completion, &format!("case_{} fails", ["a", "b", "c", "d"][n as usize % 4])));
            messages.push(supervision.review(&records, &facts, ReviewContext::default(), settings).unwrap().gives_up);
            if resumed == Some(n) {
                supervision.resume(n, "maria", settings);
            }
        }
        messages
    }

    /// Returns the defaults, with the outlook enabled.
    fn giving_up() -> SupervisionSettings {
        let mut settings = SupervisionSettings::default();
        settings.strategy.outlook.enabled = true;
        settings
    }

    #[test]
    fn hopeless_loop_stops_if_the_outlook_is_enabled() {
        let settings = giving_up();
        let slow: Vec<f64> = (1..=10).map(|n| 0.02 * f64::from(n)).collect();
        let messages = moving(&slow, None, &settings);
        assert_eq!(messages[..3], [None, None, None], "its pace is not known yet");
        let text = messages[3].clone().unwrap();
        assert_eq!(text, "at its rate the rest takes 46 iterations, 21 are left, and the chance is 1 %");
        let steady: Vec<f64> = (1..=10).map(|n| 0.07 * f64::from(n)).collect();
        assert_eq!(moving(&steady, None, &settings), vec![None; 10]);
        // Without the setting, it continues to its limits.
        assert_eq!(moving(&slow, None, &SupervisionSettings::default()), vec![None; 10]);
    }

    #[test]
    fn earlier_loops_affect_outlook() {
        let earlier = |mean: f64| EarlierLoop { mean, variance: mean * mean / 4.0, paced: 9, seen: 90, idle: 45 };
        let reviews_with = |experience: Experience| {
            let facts = TaskFacts { max_iterations: 25.0, experience, ..TaskFacts::default() };
            let (mut supervision, settings) = (Supervision::default(), giving_up());
            let records: Vec<Record> =
                (1..=7).map(|n| record(n, 0.1, ["a fails", "b fails"][n as usize % 2])).collect();
            let review = |upto: usize| {
                supervision.review(&records[..upto], &facts, ReviewContext::default(), &settings).expect("a record")
            };
            (1..=records.len()).map(review).collect::<Vec<SupervisionReview>>()
        };
        let (first, slow, fast) = (
            reviews_with(Experience::default()),
            reviews_with(Experience::of([earlier(0.01); 50])),
            reviews_with(Experience::of([earlier(0.2); 50])),
        );
        let gives_up = |reviews: &[SupervisionReview]| reviews.iter().position(|review| review.gives_up.is_some());
        assert_eq!((gives_up(&first), gives_up(&slow), gives_up(&fast)), (None, Some(4), None));
        // Loops in a repository with frequent standstills are disturbed later.
        let first_intervention = |reviews: &[SupervisionReview]| reviews.iter().position(SupervisionReview::interferes);
        assert_eq!((first_intervention(&first), first_intervention(&fast)), (Some(5), None));
    }

    #[test]
    fn resumed_loop_continues_while_it_progresses() {
        let settings = giving_up();
        let slow: Vec<f64> = (1..=10).map(|n| 0.02 * f64::from(n)).collect();
        assert!(moving(&slow, Some(3), &settings).iter().all(Option::is_none));
        let mut stops = slow[..4].to_vec();
        stops.extend([0.08; 4]);
        let messages = moving(&stops, Some(4), &settings);
        assert!(messages[3].is_some(), "which the person saw");
        assert_eq!(messages[4..6], [None, None]);
        assert_eq!(messages[6].as_deref(), Some("no progress for 3 iterations since a person resumed it"));
    }

    #[test]
    fn records_of_weakened_checks_are_ignored() {
        let facts = TaskFacts { max_iterations: 25.0, ..TaskFacts::default() };
        let settings = SupervisionSettings::default();
        let mut records: Vec<Record> =
            [0.1, 1.0, 0.2, 0.3, 0.42, 0.5, 0.6, 0.7].iter().zip(1..).map(|(c, n)| record(n, *c, "fails")).collect();
        records[1].tampering = vec!["a test was taken out".to_owned()];
        let mut supervision = Supervision::default();
        let reviews: Vec<SupervisionReview> = (1..=records.len())
            .map(|upto| supervision.review(&records[..upto], &facts, ReviewContext::default(), &settings).unwrap())
            .collect();
        let kinds =
            |review: &SupervisionReview| review.verdict.detections.iter().map(|found| found.kind).collect::<Vec<_>>();
        assert_eq!(kinds(&reviews[1]), [DetectionKind::TestTampering]);
        assert!(reviews[2..].iter().all(|review| kinds(review).is_empty()), "{reviews:?}");
        assert_eq!(reviews.last().unwrap().assessment.without_progress, 0);
    }

    #[test]
    fn million_blockers_are_reviewed_in_bounded_time() {
        let name = |mut n: usize| {
            let mut word = String::new();
            while n > 0 {
                word.push(char::from(b'g' + (n % 20) as u8));
                n /= 20;
            }
            word
        };
        let blockers: Vec<String> = (1..=1_000_000).map(name).collect();
        let records = [1, 2].map(|n| Record { blockers: blockers.clone(), ..record(n, 0.3, "fails") });
        let (facts, settings) = (TaskFacts::default(), SupervisionSettings::default());
        let mut supervision = Supervision::default();
        supervision.review(&records[..1], &facts, ReviewContext::default(), &settings).unwrap();
        let review = supervision.review(&records, &facts, ReviewContext::default(), &settings).unwrap();
        assert_eq!(review.assessment.blockers.len(), MAX_BLOCKERS);
        assert!(review.assessment.blockers.iter().all(|blocker| blocker.seen == 2));
    }

    #[test]
    fn state_survives_serialization() {
        let (supervision, _) = run(&[0.3; 9]);
        let text = serde_json::to_string(&supervision).unwrap();
        assert_eq!(serde_json::from_str::<Supervision>(&text).unwrap(), supervision);
        let fresh = serde_json::to_value(Supervision::default()).unwrap();
        assert_eq!(serde_json::from_value::<Supervision>(fresh.clone()).unwrap(), Supervision::default());
        for part in ["control", "overseer", "strategy"] {
            for damage in [serde_json::json!({}), serde_json::json!(null)] {
                let mut damaged = fresh.clone();
                damaged[part] = damage;
                assert!(serde_json::from_value::<Supervision>(damaged).is_err(), "{part}");
            }
        }
    }
}
