//! State of the overseer between two iterations, of bounded size.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DetectionKind;
use super::OversightSettings;
use super::audit::{AuditEntry, AuditEvent};
use super::detection::Detection;
use super::intervention::InterventionLevel;

/// Maximum number of reported causes that a detection remembers.
const MAX_TOLD: usize = 8;
/// Interventions whose effect is waited for.
const MAX_AWAITED: usize = 16;
/// Iterations within which progress counts as having followed an intervention.
const FOLLOW_WITHIN: u32 = 2;

/// Health of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Nothing is wrong.
    #[default]
    Healthy,
    /// Something is wrong.
    Warning,
    /// Something is badly wrong.
    Critical,
    /// It waits for a person.
    Paused,
    /// It has ended.
    Aborted,
}

impl Health {
    /// Returns the name, for people.
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

/// Number of interventions with and without progress within two iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProgressCounts {
    /// Completion rose above its best before.
    pub progress: u32,
    /// It did not.
    pub none: u32,
}

impl ProgressCounts {
    /// Share that progress followed, 0..1; `None` where nothing is known yet.
    pub fn rate(self) -> Option<f64> {
        let known = self.progress + self.none;
        (known > 0).then(|| f64::from(self.progress) / f64::from(known))
    }
}

/// State of the overseer. It is stored with the loop after every review, before anything acts on the verdict.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OverseerState {
    /// Health of the loop. Paused and aborted remain until [`OverseerState::resume`].
    pub health: Health,
    /// Times that the best iteration was restored.
    pub restores: u32,
    /// Detections by kind.
    pub detections: BTreeMap<DetectionKind, u32>,
    /// Interventions by level.
    pub interventions: BTreeMap<InterventionLevel, u32>,
    /// Whether progress followed, by level.
    pub followed: BTreeMap<InterventionLevel, ProgressCounts>,
    /// The last iteration after which each kind was redirected.
    pub(super) redirected: BTreeMap<DetectionKind, u32>,
    standing: BTreeMap<DetectionKind, ActiveDetection>,
    /// Until after which iteration a kind only warns, because a person resumed in spite of it.
    acknowledged: BTreeMap<DetectionKind, u32>,
    awaited: Vec<PendingIntervention>,
}

/// A detection that stands, with what was done about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ActiveDetection {
    level: InterventionLevel,
    /// After which iteration the level was reached.
    since: u32,
    /// After which iteration it was seen last.
    seen: u32,
    /// Causes that were reported at this level.
    told: Vec<String>,
    /// REDIRECTs until now.
    #[serde(default)]
    redirects: u32,
}

/// An intervention whose effect is not known yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PendingIntervention {
    level: InterventionLevel,
    iteration: u32,
    /// Best completion until then.
    completion: f64,
}

impl OverseerState {
    /// A person lets the loop go on, after so many iterations. What paused it only warns for a while; a burn, which time
    /// does not mend, for good: the loop's limits still hold.
    pub fn resume(&mut self, iteration: u32, by: &str, settings: &OversightSettings) -> AuditEntry {
        let paused = std::mem::take(&mut self.standing);
        for (kind, standing) in paused.into_iter().filter(|(_, standing)| standing.level >= InterventionLevel::Pause) {
            let until = match kind {
                DetectionKind::ResourceBurn => u32::MAX,
                _ => iteration.saturating_add(settings.grace_iterations),
            };
            self.acknowledged.insert(kind, until);
            // The redirects that did not help count on, until it is gone.
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

    /// Removes detections that were not seen for `climb_after` iterations; a regression is withdrawn as soon as one iteration
    /// lacks it.
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

    /// Records a detection that asks for a level. Returns the level that it reaches and whether that is new for its cause: one
    /// level more if it persisted for `climb_after` iterations; a pause only after `redirects` REDIRECTs; never more than its
    /// basis supports.
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

    /// Counts findings that are only for information, and returns their audit entries, of the level LOG.
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

    /// Counts an intervention, and waits for what follows it; `best` is the best completion until now.
    pub(super) fn count(&mut self, iteration: u32, kind: DetectionKind, level: InterventionLevel, best: f64) {
        *self.interventions.entry(level).or_default() += 1;
        if level == InterventionLevel::Redirect {
            self.redirected.insert(kind, iteration);
        }
        if matches!(level, InterventionLevel::Warn | InterventionLevel::Redirect) && self.awaited.len() < MAX_AWAITED {
            // Kept to a millionth, which reads back as it was written.
            let completion = (best.clamp(0.0, 1.0) * 1e6).round() / 1e6;
            self.awaited.push(PendingIntervention { level, iteration, completion });
        }
    }

    /// Notes whether progress followed the interventions of the iterations before.
    pub(super) fn follow(&mut self, iteration: u32, completion: f64, min_progress: f64) {
        let followed = &mut self.followed;
        self.awaited.retain(|awaited| {
            let progress = completion > awaited.completion + min_progress;
            let over = iteration.saturating_sub(awaited.iteration) >= FOLLOW_WITHIN;
            if progress || over {
                let counts = followed.entry(awaited.level).or_default();
                if progress { counts.progress += 1 } else { counts.none += 1 }
            }
            !progress && !over
        });
    }

    /// After which iteration a REDIRECT was last given, since a person let the loop go on.
    pub fn last_redirect(&self) -> Option<u32> {
        self.redirected.values().copied().max()
    }

    /// Whether a person has to act before the loop goes on.
    pub fn is_held(&self) -> bool {
        matches!(self.health, Health::Paused | Health::Aborted)
    }
}
