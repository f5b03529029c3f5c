//! State of the overseer between iterations, with bounded size.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DetectionKind;
use super::OversightSettings;
use super::audit::{AuditEntry, AuditEvent};
use super::detection::Detection;
use super::intervention::InterventionLevel;

/// Maximum number of remembered reported causes per detection.
const MAX_TOLD: usize = 8;

/// Health of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// No problem was detected.
    #[default]
    Healthy,
    /// There is a problem that is not critical.
    Warning,
    /// There is a critical problem.
    Critical,
    /// The loop waits for a person.
    Paused,
    /// The loop was ended.
    Aborted,
}

impl Health {
    /// Returns the display name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Paused => "paused",
            Self::Aborted => "aborted",
        }
    }
}

/// State of the overseer. It is stored with the loop after every review, before the verdict takes effect.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OverseerState {
    /// Health of the loop. `Paused` and `Aborted` remain until [`OverseerState::resume`].
    pub health: Health,
    /// Number of times that the best iteration was restored.
    pub restores: u32,
    /// Number of iterations with a detection, by kind.
    pub detections: BTreeMap<DetectionKind, u32>,
    /// Number of interventions, by level.
    pub interventions: BTreeMap<InterventionLevel, u32>,
    /// Iteration after which the last REDIRECT was given, by kind of the detection.
    pub(super) redirected: BTreeMap<DetectionKind, u32>,
    standing: BTreeMap<DetectionKind, ActiveDetection>,
    /// Last iteration in which a detection only warns, because a person resumed the loop despite it, by kind.
    acknowledged: BTreeMap<DetectionKind, u32>,
}

/// Active detection with the level of its intervention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ActiveDetection {
    level: InterventionLevel,
    /// Iteration after which the detection reached its level.
    since: u32,
    /// Iteration after which the detection last occurred.
    seen: u32,
    /// Causes reported at the current level.
    told: Vec<String>,
    /// Number of REDIRECTs so far.
    #[serde(default)]
    redirects: u32,
}

impl OverseerState {
    /// Records that a person resumed the loop after an iteration. The detections that paused the loop only warn in the next
    /// iterations. A resource burn only warns for the rest of the loop, because waiting does not reduce it; the loop's
    /// limits still apply.
    pub fn resume(&mut self, iteration: u32, by: &str, settings: &OversightSettings) -> AuditEntry {
        let paused = std::mem::take(&mut self.standing);
        for (kind, standing) in paused.into_iter().filter(|(_, standing)| standing.level >= InterventionLevel::Pause) {
            let until = match kind {
                DetectionKind::ResourceBurn => u32::MAX,
                _ => iteration.saturating_add(settings.grace_iterations),
            };
            self.acknowledged.insert(kind, until);
            // The ineffective REDIRECTs still count until the detection ends.
            let anew = ActiveDetection {
                level: InterventionLevel::Log,
                since: iteration,
                seen: iteration,
                told: Vec::new(),
                ..standing
            };
            self.standing.insert(kind, anew);
        }
        self.redirected.clear();
        self.health = Health::Healthy;
        AuditEntry::new(iteration, AuditEvent::Resumed, format!("resumed by {by}"))
    }

    /// Removes active detections that did not occur for `climb_after` iterations. Removes a regression as soon as an
    /// iteration does not show it. Returns the audit entries.
    pub(super) fn forget(&mut self, iteration: u32, detections: &[Detection], climb_after: u32) -> Vec<AuditEntry> {
        let mut withdrawn = Vec::new();
        self.standing.retain(|kind, standing| {
            if detections.iter().any(|detection| detection.kind == *kind) {
                return true;
            }
            if *kind == DetectionKind::Regression {
                let reason = format!("{kind} recovered");
                withdrawn.push(AuditEntry {
                    kind: Some(*kind),
                    ..AuditEntry::new(iteration, AuditEvent::Withdrawn, reason)
                });
                return false;
            }
            iteration.saturating_sub(standing.seen) < climb_after
        });
        withdrawn
    }

    /// Records a detection and returns its level, and whether the level is new for its cause. The level is one higher than
    /// `asked` if the detection persisted for `climb_after` iterations. A pause requires `redirects` previous REDIRECTs. The
    /// level never exceeds the level justified by the basis.
    pub(super) fn reach(
        &mut self,
        iteration: u32,
        detection: &Detection,
        asked: InterventionLevel,
        climb_after: Option<u32>,
        redirects: u32,
    ) -> (InterventionLevel, bool) {
        let quiet = self.acknowledged.get(&detection.kind).is_some_and(|until| iteration <= *until);
        let supported = InterventionLevel::strongest_by(detection.basis());
        let most = if quiet { supported.min(InterventionLevel::Warn) } else { supported };
        let standing = self.standing.entry(detection.kind).or_insert(ActiveDetection {
            level: InterventionLevel::Log,
            since: iteration,
            seen: iteration,
            told: Vec::new(),
            redirects: 0,
        });
        standing.seen = iteration;
        let stands_for = iteration.saturating_sub(standing.since);
        let persists =
            standing.level > InterventionLevel::Log && climb_after.is_some_and(|climb_after| stands_for >= climb_after);
        let again = standing.level == InterventionLevel::Redirect && standing.redirects < redirects;
        let climbed = if persists && !again { standing.level.climbed() } else { standing.level };
        let level = asked.max(climbed).min(most);
        if persists && again && level == InterventionLevel::Redirect {
            standing.since = iteration;
            standing.told.clear();
        }
        if level > standing.level {
            standing.since = iteration;
            standing.level = level;
            standing.told.clear();
        }
        let level = standing.level.min(most);
        let fresh = !standing.told.contains(&detection.cause);
        if fresh {
            standing.redirects += u32::from(level == InterventionLevel::Redirect);
            standing.told.truncate(MAX_TOLD - 1);
            standing.told.insert(0, detection.cause.clone());
        }
        (level, fresh)
    }

    /// Counts informative findings. Returns their audit entries with the level LOG.
    pub(in crate::domain::supervision) fn log<'a>(
        &mut self,
        iteration: u32,
        findings: impl Iterator<Item = &'a str>,
    ) -> Vec<AuditEntry> {
        let entry = |text: &str| AuditEntry {
            level: Some(InterventionLevel::Log),
            ..AuditEntry::new(iteration, AuditEvent::Intervened, text.to_owned())
        };
        let entries: Vec<AuditEntry> = findings.map(entry).collect();
        if !entries.is_empty() {
            *self.interventions.entry(InterventionLevel::Log).or_default() += entries.len() as u32;
        }
        entries
    }

    /// Counts an intervention.
    pub(super) fn count(&mut self, iteration: u32, kind: DetectionKind, level: InterventionLevel) {
        *self.interventions.entry(level).or_default() += 1;
        if level == InterventionLevel::Redirect {
            self.redirected.insert(kind, iteration);
        }
    }

    /// Returns the iteration after which the last REDIRECT was given since a person resumed the loop; `None` without a
    /// REDIRECT.
    pub fn last_redirect(&self) -> Option<u32> {
        self.redirected.values().copied().max()
    }

    /// Whether the loop is paused or aborted and continues only after a person acts.
    pub fn is_held(&self) -> bool {
        matches!(self.health, Health::Paused | Health::Aborted)
    }
}
