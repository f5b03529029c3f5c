//! Result of supervision for one iteration, as stored with the loop and shown to people.

use serde::{Deserialize, Serialize};

use crate::domain::model::signature::{first_error, normalize};
use crate::domain::model::task::CheckReport;
use crate::domain::supervision::control::{
    Alarm, AlarmKind, AlarmSeverity, ControlDecision, Gains, ProfileTransition, Terms, Trend, Urgency,
};
use crate::domain::supervision::oversight::{
    AuditEntry, AuditEvent, Basis, DetectionKind, DetectionSeverity, Health, InterventionLevel, cause_rank,
};
use crate::domain::supervision::strategy::{Approach, IterationIssue};

/// Result of supervision for one iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationJudgement {
    /// Current error (P), 0..1.
    pub p: f64,
    /// Accumulated error (I), -1..5.
    pub i: f64,
    /// Change of the error (D), -1..1; positive if the error grows.
    pub d: f64,
    /// Control signal, 0..1.
    pub signal: f64,
    /// Urgency that corresponds to the control signal.
    pub urgency: Urgency,
    /// Trend of the error.
    pub trend: Trend,
    /// Name of the target gain profile.
    pub profile: String,
    /// Estimated number of iterations to completion; `None` if it cannot be estimated.
    pub forecast: Option<u64>,
    /// Health of the loop.
    pub health: Health,
    /// Detections, in the order of their rank ([`cause_rank`]).
    pub found: Vec<JudgedDetection>,
    /// Approach of the next iteration.
    pub approach: Approach,
    /// Name of the chosen approach; empty if the loop continues as before.
    pub way: String,
    /// Reason of the choice.
    pub reasoning: String,
    /// Actuators that changed, one sentence each with the cause.
    pub moved: Vec<String>,
    /// Reason to stop the loop; `None` if it continues.
    pub stops: Option<String>,
    /// Problems that the validations after this iteration and before the next one found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<IterationIssue>,
    /// Additional figures of control; `None` in judgements that were stored without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<ControlFigures>,
}

/// Figures of control that explain a control signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlFigures {
    /// Terms of the control signal.
    pub terms: Terms,
    /// Gains that were used.
    pub gains: Gains,
    /// Change of the gain profile; `None` if it did not change.
    pub transition: Option<ProfileTransition>,
    /// Active alarms, most severe first.
    pub alarms: Vec<KeptAlarm>,
    /// Alarms cleared in this iteration.
    pub cleared: Vec<AlarmKind>,
}

/// Active alarm, as stored with an iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptAlarm {
    /// Kind of the alarm.
    pub kind: AlarmKind,
    /// Severity in this iteration.
    pub severity: AlarmSeverity,
    /// Message of one sentence.
    pub message: String,
    /// Iteration that raised the alarm.
    pub since: u64,
    /// Whether the alarm was raised in this iteration.
    pub raised: bool,
    /// Whether a person acknowledged the alarm.
    pub acknowledged: bool,
}

impl ControlFigures {
    /// Extracts the figures of a decision.
    pub(in crate::domain) fn of(decision: &ControlDecision) -> Self {
        let stored = |alarm: &Alarm| KeptAlarm {
            kind: alarm.kind,
            severity: alarm.severity,
            message: alarm.message.clone(),
            since: alarm.raised,
            raised: decision.raised.contains(&alarm.kind),
            acknowledged: alarm.acknowledged,
        };
        Self {
            terms: decision.terms,
            gains: decision.gains.gains,
            transition: decision.transition.clone(),
            alarms: decision.alarms.iter().map(stored).collect(),
            cleared: decision.cleared.clone(),
        }
    }

    /// Returns the audit log entries for a change of the profile, and for raised and cleared alarms.
    pub(in crate::domain) fn audit(&self, iteration: u32) -> Vec<AuditEntry> {
        let entry = |event, reason| AuditEntry::new(iteration, event, reason);
        let change = self.transition.iter().map(|change| {
            let ProfileTransition { from, to, reason } = change;
            entry(AuditEvent::ProfileChanged, format!("gain profile {from} -> {to}: {reason}"))
        });
        let raised = self.alarms.iter().filter(|alarm| alarm.raised).map(|alarm| {
            let text = format!("alarm {} ({}): {}", alarm.kind.name(), alarm.severity.word(), alarm.message);
            entry(AuditEvent::AlarmRaised, text)
        });
        let cleared = self.cleared.iter();
        let cleared = cleared.map(|kind| entry(AuditEvent::AlarmCleared, format!("alarm {} cleared", kind.name())));
        change.chain(raised).chain(cleared).collect()
    }
}

impl IterationJudgement {
    /// Returns the cause that is reported first; `None` if nothing was detected.
    pub fn headline(&self) -> Option<&JudgedDetection> {
        self.found.iter().min_by_key(|found| found.rank())
    }

    /// Returns the cause under which `found` is reported: `found` itself, or the headline if `found` is based on text alone.
    pub fn named<'a>(&'a self, found: &'a JudgedDetection) -> &'a JudgedDetection {
        match found.basis() {
            Basis::Measured | Basis::Derived => found,
            Basis::Words => self.headline().unwrap_or(found),
        }
    }

    /// Returns the highest level of intervention; `None` if nothing was detected.
    pub fn level(&self) -> Option<InterventionLevel> {
        self.found.iter().map(|found| found.level).max()
    }
}

/// Detection with its intervention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgedDetection {
    /// Kind of the detection.
    pub kind: DetectionKind,
    /// Severity of the detection.
    pub severity: DetectionSeverity,
    /// Basis of the evidence; `None` in detections that were stored without it.
    #[serde(default)]
    pub basis: Option<Basis>,
    /// Level of the intervention.
    pub level: InterventionLevel,
    /// Whether the intervention is new in this iteration.
    pub fresh: bool,
    /// Evidence, for people.
    pub evidence: String,
    /// Recommended actions.
    pub recommendations: Vec<String>,
}

impl JudgedDetection {
    /// Returns the basis of the evidence. A detection that was stored without it gets the basis of its kind.
    pub fn basis(&self) -> Basis {
        self.basis.unwrap_or_else(|| self.kind.row().basis())
    }

    /// Returns the title and the first piece of evidence, as the reason of a stop.
    pub fn reason(&self) -> String {
        format!("{}: {}", self.kind.title(), self.evidence.split("; ").next().unwrap_or_default())
    }

    fn rank(&self) -> impl Ord + Copy + use<> {
        cause_rank(self.kind, self.basis(), self.severity, self.level)
    }
}

/// Returns the signature of the first error of the first failing check, or else of the last line that the check printed. `None`
/// if all checks passed.
pub fn error_signature(checks: &CheckReport) -> Option<String> {
    // The fact that a check failed does not identify the error; its last line is the least that does.
    let failing = checks.outcomes.iter().find(|outcome| !outcome.holds)?;
    let last = || failing.output.lines().rev().find(|line| !line.trim().is_empty());
    first_error(&failing.output).or_else(|| last().map(normalize))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEVELS: [InterventionLevel; 5] = [
        InterventionLevel::Log,
        InterventionLevel::Warn,
        InterventionLevel::Redirect,
        InterventionLevel::Pause,
        InterventionLevel::Abort,
    ];
    const SEVERITIES: [DetectionSeverity; 4] =
        [DetectionSeverity::Low, DetectionSeverity::Medium, DetectionSeverity::High, DetectionSeverity::Critical];

    /// Judgement with these detections.
    fn judgement(found: Vec<JudgedDetection>) -> IterationJudgement {
        IterationJudgement {
            p: 0.0,
            i: 0.0,
            d: 0.0,
            signal: 0.0,
            urgency: Urgency::Normal,
            trend: Trend::default(),
            profile: String::new(),
            forecast: None,
            health: Health::Healthy,
            found,
            approach: Approach::Persist,
            way: String::new(),
            reasoning: String::new(),
            moved: Vec::new(),
            stops: None,
            issues: Vec::new(),
            control: None,
        }
    }

    fn found(
        kind: DetectionKind,
        basis: Basis,
        severity: DetectionSeverity,
        level: InterventionLevel,
    ) -> JudgedDetection {
        JudgedDetection {
            kind,
            severity,
            basis: Some(basis),
            level,
            fresh: true,
            evidence: String::new(),
            recommendations: Vec::new(),
        }
    }

    /// Kind of the headline of these detections, given as kind, basis, level, each of high severity.
    fn headline(causes: &[(DetectionKind, Basis, InterventionLevel)]) -> DetectionKind {
        let high = |(kind, basis, level): &(_, _, _)| found(*kind, *basis, DetectionSeverity::High, *level);
        let judged = judgement(causes.iter().map(high).collect());
        judged.headline().expect("a headline").kind
    }

    #[test]
    fn headline_is_the_most_direct_cause_of_the_deciding_level() {
        use Basis::{Derived, Measured, Words};
        use DetectionKind::{AgentFailure, Deviation, NoChange, Oscillation, ResourceBurn, Stuck};
        use InterventionLevel::{Log, Pause, Redirect, Warn};
        assert_eq!(headline(&[(Stuck, Derived, Pause), (Oscillation, Measured, Pause)]), Oscillation);
        assert_eq!(headline(&[(Stuck, Derived, Pause), (NoChange, Measured, Warn)]), Stuck);
        assert_eq!(headline(&[(Deviation, Words, Redirect), (NoChange, Measured, Warn)]), NoChange);
        assert_eq!(headline(&[(Stuck, Words, Redirect), (ResourceBurn, Derived, Warn)]), ResourceBurn);
        assert_eq!(headline(&[(Deviation, Words, Warn), (ResourceBurn, Derived, Log)]), Deviation);
        assert_eq!(headline(&[(Stuck, Measured, Pause), (AgentFailure, Measured, Pause)]), AgentFailure);
    }

    #[test]
    fn more_severe_cause_of_the_same_level_and_basis_is_first() {
        let at = |kind, severity| found(kind, Basis::Measured, severity, InterventionLevel::Pause);
        let judged = judgement(vec![
            at(DetectionKind::Oscillation, DetectionSeverity::High),
            at(DetectionKind::Stuck, DetectionSeverity::Critical),
        ]);
        assert_eq!(judged.headline().map(|found| found.kind), Some(DetectionKind::Stuck));
    }

    #[test]
    fn detection_stored_without_basis_takes_basis_of_its_kind() {
        let stored = serde_json::json!({
            "kind": "deviation", "severity": "high", "level": "redirect", "fresh": true, "evidence": "x", "recommendations": []
        });
        let read: JudgedDetection = serde_json::from_value(stored).expect("readable");
        assert_eq!((read.basis, read.basis()), (None, Basis::Words));
    }

    #[test]
    fn redirect_is_reported_with_the_measured_cause() {
        let words = found(DetectionKind::Deviation, Basis::Words, DetectionSeverity::High, InterventionLevel::Redirect);
        let measured =
            found(DetectionKind::NoChange, Basis::Measured, DetectionSeverity::High, InterventionLevel::Warn);
        let judged = judgement(vec![measured, words.clone()]);
        assert_eq!(judged.named(&words).kind, DetectionKind::NoChange);
        assert_eq!(judged.named(&judged.found[0]).kind, DetectionKind::NoChange);
        assert_eq!(judgement(vec![words.clone()]).named(&words).kind, DetectionKind::Deviation);
    }

    proptest! {
        #[test]
        fn headline_prefers_measured_causes_over_words(
            causes in prop::collection::vec(
                (
                    prop::sample::select(DetectionKind::ALL.to_vec()),
                    prop::sample::select(Basis::ALL.to_vec()),
                    prop::sample::select(SEVERITIES.to_vec()),
                    prop::sample::select(LEVELS.to_vec()),
                ),
                1..10,
            ),
        ) {
            let causes: Vec<_> = causes.into_iter().map(|(kind, basis, severity, level)| {
                found(kind, basis, severity, level.min(InterventionLevel::strongest_by(basis)))
            }).collect();
            let acted = causes.iter().any(|found| found.basis() != Basis::Words && found.level > InterventionLevel::Log);
            let judged = judgement(causes);
            let headline = judged.headline().expect("a headline");
            prop_assert!(!acted || headline.basis() != Basis::Words, "{:?}", judged.found);
            // A pause has a cause that pauses.
            let most = judged.level().expect("a level");
            prop_assert!(most < InterventionLevel::Pause || headline.level == most, "{:?}", judged.found);
        }
    }
}
