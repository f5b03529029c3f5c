//! Overseer: after each iteration, detects problems in the loop's behavior and decides on an intervention.
//!
//! Each detection searches the history for one pattern. Its severity determines the level of intervention, and persistence
//! raises the level. The most severe intervention determines the decision. Control only advises: its alarms are one of the
//! inputs. The result is an [`OversightVerdict`], which the loop must follow. The states "paused" and "aborted" are stored
//! before the verdict takes effect, and only a person can end them.

mod agent_failure;
mod audit;
mod basis;
mod definition;
mod detection;
mod detection_input;
mod deviation;
mod intervention;
mod no_change;
mod oscillation;
mod rank;
mod regression;
mod report;
mod resource_burn;
mod state;
mod stuck;
mod test_tampering;
mod token_growth;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::model::record::Record;
use crate::domain::model::settings::{Settings, config_section};
use crate::domain::supervision::TaskFacts;
use crate::domain::supervision::progress_rate::{PRIOR, StepThreshold};
use definition::{DetectionDefinition, detectors};
use detection_input::DetectionInput;

pub use audit::{AuditEntry, AuditEvent};
pub use basis::Basis;
pub use definition::DetectionRow;
pub use detection::{Detection, DetectionEvidence, DetectionSeverity};
pub use detection_input::ControlView;
pub use deviation::{ComparedTexts, compared_texts, modeled_similarity, named_places};
pub use intervention::{Directive, DirectiveLevel, Escalation, EscalationLevel, Intervention, InterventionLevel};
pub use rank::cause_rank;
pub use report::{CourseStep, EffectCounts, GivenIntervention, OversightReport};
pub use state::{Health, OverseerState};

detectors! {
    /// Settings of the overseer: detections and levels of intervention.
    pub struct OversightSettings {
        /// Whether the overseer looks for problems. Otherwise it detects no problems and does not intervene; weakened tests still
        /// keep a loop from review.
        pub enabled: bool = true;
        /// Whether a critical detection pauses the loop. Otherwise it redirects the agent each time that it occurs.
        pub pause_on_critical: bool = true;
        /// Whether people are notified by escalation issue and channels. Otherwise a pause is only reported on the loop's
        /// issue.
        pub auto_escalate: bool = true;
        /// Whether a critical regression ends the loop at once, without an attempt to restore its best iteration.
        pub strict_regression: bool = false;
        /// Number of iterations that a detection may persist before its intervention rises by one level.
        #[schemars(skip)]
        pub climb_after: u32 = 1, in 1..=100;
        /// Number of REDIRECTs, each to another approach, that a detection causes before it pauses the loop.
        pub redirects: u32 = 3, in 1..=100;
        /// Number of iterations after a person resumed the loop in which the detections that paused it only warn.
        #[schemars(skip)]
        pub grace_iterations: u32 = 3, in 0..=100;
        /// Minimum gain of completion of an iteration with progress.
        #[schemars(skip)]
        pub min_progress: f64 = 0.01, in 0.0..=1.0;
    }
    test_tampering: TestTampering(TestTamperingSettings),
    regression: Regression(RegressionSettings),
    agent_failure: AgentFailure(AgentFailureSettings),
    no_change: NoChange(NoChangeSettings),
    oscillation: Oscillation(OscillationSettings),
    stuck: Stuck(StuckSettings),
    resource_burn: ResourceBurn(ResourceBurnSettings),
    token_growth: TokenGrowth(TokenGrowthSettings),
    deviation: Deviation(DeviationSettings),
}

impl OversightSettings {
    /// Returns the thresholds for a step and for iterations without progress, as used for repositories without earlier
    /// loops.
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
}

impl Settings for OversightSettings {
    const GROUP: &'static str = "oversight";
}

impl DetectionKind {
    /// Returns the title for people and agents, without a full stop.
    pub fn title(self) -> &'static str {
        self.row().title
    }
}

impl fmt::Display for DetectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Decision for the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OversightDecision {
    /// The loop continues.
    #[default]
    Continue,
    /// The loop continues, and the next prompt contains the directives.
    ContinueWithDirectives,
    /// The loop waits for a person.
    Pause,
    /// The loop ends.
    Abort,
}

/// Result of oversight for an iteration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OversightVerdict {
    /// Detections, sorted by rank ([`cause_rank`]).
    pub detections: Vec<Detection>,
    /// Interventions, in the order of the detections.
    pub interventions: Vec<Intervention>,
    /// Decision for the loop.
    pub decision: OversightDecision,
    /// Directives for the start of the next prompt, in the order of the detections.
    pub directives: Vec<Directive>,
    /// Iteration whose state must be restored before the pause; 0 is the state before the first iteration. `None` to keep the
    /// files.
    pub restore: Option<u32>,
    /// Escalation to people; `None` without news.
    pub escalation: Option<Escalation>,
    /// Health of the loop.
    pub health: Health,
    /// Entries for the audit log.
    pub audit: Vec<AuditEntry>,
}

impl OversightVerdict {
    /// Returns the intervention that is reported to people as the main cause; `None` without an intervention.
    pub fn headline(&self) -> Option<&Intervention> {
        self.interventions.first()
    }

    /// Returns the first active intervention with the level REDIRECT or above, new or not.
    pub fn standing(&self) -> Option<&Intervention> {
        self.interventions.iter().find(|done| done.level >= InterventionLevel::Redirect)
    }

    /// Returns the first active REDIRECT, new or not.
    pub fn redirect(&self) -> Option<&Intervention> {
        self.interventions.iter().find(|done| done.level == InterventionLevel::Redirect)
    }
}

/// Reviews the newest iteration. `history` has all iterations, oldest first, with figures within their ranges
/// ([`Record::cleaned`]). An empty history returns an empty verdict. The same input gives the same verdict and state.
pub fn review(
    state: &mut OverseerState,
    history: &[Record],
    facts: &TaskFacts,
    control: &ControlView,
    settings: &OversightSettings,
) -> OversightVerdict {
    let Some(last) = history.last() else {
        return OversightVerdict { health: state.health, ..OversightVerdict::default() };
    };
    let redirected = state.redirected.clone();
    let measured = Record::measured(history);
    let all = DetectionInput { history, partial: false, last, facts, control, settings, redirected: &redirected };
    // Weakened checks do not measure their iteration or later ones.
    let input = match measured.last() {
        Some(last) => DetectionInput { history: &measured, partial: measured.len() < history.len(), last, ..all },
        None => all,
    };
    let iteration = detection_input::number(history);
    let detections = if settings.enabled { detect(&all, &input) } else { Vec::new() };
    let mut verdict = OversightVerdict {
        audit: state.forget(iteration, &detections, settings.climb_after),
        ..OversightVerdict::default()
    };
    for detection in detections {
        intervene(state, &input, iteration, detection, &mut verdict);
    }
    conclude(state, iteration, settings, verdict)
}

/// Runs all enabled detections and returns their findings in table order. `measured` lacks iterations with weakened checks.
fn detect(all: &DetectionInput<'_>, measured: &DetectionInput<'_>) -> Vec<Detection> {
    let finished = all.last.is_finished();
    let weakened = !all.last.tampering.is_empty();
    // Work that only passes because of weakened checks is not finished.
    let applies =
        |kind| all.settings.switches(kind).0 && (kind == DetectionKind::TestTampering || !finished && !weakened);
    let look = |kind: DetectionKind| {
        let input = if kind == DetectionKind::TestTampering { all } else { measured };
        all.settings.detect(kind, input)
    };
    DetectionKind::ALL.iter().copied().filter(|kind| applies(*kind)).filter_map(look).collect()
}

/// Determines the intervention for a detection and adds it to the verdict.
fn intervene(
    state: &mut OverseerState,
    input: &DetectionInput<'_>,
    iteration: u32,
    mut detection: Detection,
    verdict: &mut OversightVerdict,
) {
    let (_, observed) = input.settings.switches(detection.kind);
    let mut asked = if observed { InterventionLevel::Log } else { asked_level(state, input, &detection) };
    let mut redirects = input.settings.redirects;
    if !input.settings.pause_on_critical {
        // An abort is not a pause. Without pauses, there is no last REDIRECT either.
        asked = if asked == InterventionLevel::Pause { InterventionLevel::Redirect } else { asked };
        redirects = u32::MAX;
    }
    // While the loop improves, a persistent detection keeps its level, except for weakened checks, which are not an improvement.
    let improving = detection.kind != DetectionKind::TestTampering && input.improving();
    let climb_after = (!improving).then_some(input.settings.climb_after);
    let (level, fresh) = state.reach(iteration, &detection, asked, climb_after, redirects);
    let climbed = level > asked;
    if climbed && level == InterventionLevel::Pause {
        detection.severity = DetectionSeverity::Critical;
    }
    *state.detections.entry(detection.kind).or_default() += 1;
    let persisted = if climbed { ", and it persists" } else { "" };
    let reason = format!("{}{persisted}: {}", detection.kind.title(), detection.evidence_text());
    if fresh {
        state.count(iteration, detection.kind, level);
        verdict.audit.push(AuditEntry {
            level: Some(level),
            kind: Some(detection.kind),
            cause: Some(detection.cause.clone()),
            ..AuditEntry::new(iteration, AuditEvent::Intervened, reason.clone())
        });
    }
    if fresh && detection.kind == DetectionKind::Regression && level == InterventionLevel::Pause {
        restore(state, input, verdict);
    }
    verdict.interventions.push(Intervention {
        level,
        kind: detection.kind,
        cause: detection.cause.clone(),
        severity: detection.severity,
        basis: detection.basis(),
        fresh,
        reason,
    });
    verdict.detections.push(detection);
}

/// Returns the level of intervention for a detection, regardless of its duration.
fn asked_level(state: &OverseerState, input: &DetectionInput<'_>, detection: &Detection) -> InterventionLevel {
    let critical = detection.severity == DetectionSeverity::Critical;
    if critical && input.settings.ends_loop(detection.kind, input, state) {
        return InterventionLevel::Abort;
    }
    intervention::level_of(detection.kind, detection.severity)
}

/// Requests that the state after the best iteration be restored.
fn restore(state: &mut OverseerState, input: &DetectionInput<'_>, verdict: &mut OversightVerdict) {
    verdict.restore = regression::best_iteration(input.history);
    if let Some(best) = verdict.restore {
        state.restores += 1;
        let reason = match best {
            0 => "the state before the first iteration is restored".to_owned(),
            best => format!("the state of iteration {best} is restored"),
        };
        let entry = AuditEntry::new(detection_input::number(input.history), AuditEvent::Restored, reason);
        verdict.audit.push(AuditEntry { kind: Some(DetectionKind::Regression), ..entry });
    }
}

/// Sorts detections and interventions by rank, and creates the directives from the new ones.
fn rank(verdict: &mut OversightVerdict) {
    let found = std::mem::take(&mut verdict.detections).into_iter();
    let mut causes: Vec<_> = found.zip(std::mem::take(&mut verdict.interventions)).collect();
    causes.sort_by_key(|(_, done)| cause_rank(done.kind, done.basis, done.severity, done.level));
    let fresh = causes.iter().filter(|(_, done)| done.fresh);
    verdict.directives = fresh.filter_map(|(found, done)| Directive::of(done.level, found)).collect();
    (verdict.detections, verdict.interventions) = causes.into_iter().unzip();
}

/// Combines the interventions into one decision and stores it in the state.
fn conclude(
    state: &mut OverseerState,
    iteration: u32,
    settings: &OversightSettings,
    mut verdict: OversightVerdict,
) -> OversightVerdict {
    rank(&mut verdict);
    let most = verdict.interventions.iter().map(|done| done.level).max();
    let observed = |kind| settings.switches(kind).1;
    let critical =
        verdict.detections.iter().any(|found| found.severity == DetectionSeverity::Critical && !observed(found.kind));
    let now = match most {
        Some(InterventionLevel::Abort) => Health::Aborted,
        Some(InterventionLevel::Pause) => Health::Paused,
        _ if critical => Health::Critical,
        Some(InterventionLevel::Warn | InterventionLevel::Redirect) => Health::Warning,
        Some(InterventionLevel::Log) | None => Health::Healthy,
    };
    state.health = if state.is_held() { state.health.max(now) } else { now };
    verdict.health = state.health;
    verdict.decision = match state.health {
        Health::Aborted => OversightDecision::Abort,
        Health::Paused => OversightDecision::Pause,
        _ if verdict.directives.is_empty() => OversightDecision::Continue,
        _ => OversightDecision::ContinueWithDirectives,
    };
    let fresh = verdict.interventions.iter().filter(|done| done.fresh);
    verdict.escalation = fresh.map(|done| Escalation::of(done.level, settings.auto_escalate)).max();
    if let Some(escalation) = verdict.escalation.filter(|escalation| escalation.level >= EscalationLevel::Critical) {
        let reason = match escalation.outside {
            true => "people are notified by an escalation issue",
            false => "people are notified on the loop's issue",
        };
        verdict.audit.push(AuditEntry::new(iteration, AuditEvent::Escalated, reason.to_owned()));
    }
    verdict
}

/// Returns the number of the newest iteration; 0 without iterations.
pub fn iteration_of(history: &[Record]) -> u32 {
    if history.is_empty() { 0 } else { detection_input::number(history) }
}

/// Aborts the loop because the state after could not restore the best iteration.
pub fn restore_failed(
    state: &mut OverseerState,
    iteration: u32,
    why: &str,
    settings: &OversightSettings,
) -> OversightVerdict {
    state.health = Health::Aborted;
    *state.interventions.entry(InterventionLevel::Abort).or_default() += 1;
    let reason = format!("cannot restore the best iteration: {why}");
    OversightVerdict {
        decision: OversightDecision::Abort,
        health: Health::Aborted,
        escalation: Some(Escalation::of(InterventionLevel::Abort, settings.auto_escalate)),
        audit: vec![AuditEntry {
            level: Some(InterventionLevel::Abort),
            kind: Some(DetectionKind::Regression),
            cause: Some(DetectionKind::Regression.name().to_owned()),
            ..AuditEntry::new(iteration, AuditEvent::RestoreFailed, reason)
        }],
        ..OversightVerdict::default()
    }
}

#[cfg(test)]
mod tests;
