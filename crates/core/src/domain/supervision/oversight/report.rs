//! Statistics of oversight for tuning its thresholds: detections, interventions, and their effect.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DetectionKind;
use super::intervention::InterventionLevel;
use super::state::OverseerState;

/// Number of iterations before and after an intervention that show its effect.
const EFFECT_WITHIN: usize = 2;

/// Iteration of a loop, with the facts that show the effect of interventions.
#[derive(Debug, Clone, PartialEq)]
pub struct CourseStep {
    /// Measured completion, 0..1; 0 with weakened checks, which measure nothing.
    pub completion: f64,
    /// New interventions after the iteration.
    pub interventions: Vec<GivenIntervention>,
}

/// Intervention after an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenIntervention {
    /// Detection that caused it.
    pub kind: DetectionKind,
    /// Level of the intervention.
    pub level: InterventionLevel,
}

/// Numbers of warnings and redirects, by their effect.
///
/// `b(k)` is the best completion up to iteration `k`, and `d` is `oversight.min_progress`. An intervention after iteration `n`
/// has *progress after* it if `b(n + 2) > b(n) + d`, and *progress before* it if `b(n) > b(n - 2) + d`. It is a *false positive*
/// if the loop finished unchanged: the loop finished, progress after equals progress before, and its detection caused no later
/// intervention. The effect is known after progress, after two more iterations, or if the loop finished. Then:
///
/// - effectiveness = interventions with progress after / interventions with a known effect
/// - false-positive rate = false positives / interventions with a known effect
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EffectCounts {
    /// Number of interventions with progress in the next two iterations.
    pub progress: u32,
    /// Number of interventions without progress in the next two iterations.
    pub no_progress: u32,
    /// Number of interventions after which the loop finished unchanged. They are also in `progress` or `no_progress`.
    pub false_positives: u32,
}

impl EffectCounts {
    /// Returns the number of interventions with a known effect.
    pub fn known(self) -> u32 {
        self.progress + self.no_progress
    }

    /// Returns the share of interventions with subsequent progress, 0..1; `None` without a known effect.
    pub fn effectiveness(self) -> Option<f64> {
        self.share(self.progress)
    }

    /// Returns the share of false positives, 0..1; `None` without a known effect.
    pub fn false_positive_rate(self) -> Option<f64> {
        self.share(self.false_positives)
    }

    fn share(self, part: u32) -> Option<f64> {
        (self.known() > 0).then(|| f64::from(part) / f64::from(self.known()))
    }

    fn add(&mut self, other: Self) {
        self.progress += other.progress;
        self.no_progress += other.no_progress;
        self.false_positives += other.false_positives;
    }
}

impl fmt::Display for EffectCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known();
        write!(f, "progress followed {} of {known}, false positives {} of {known}", self.progress, self.false_positives)
    }
}

/// Statistics of oversight for one or several loops.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OversightReport {
    /// Number of iterations with a detection, by kind.
    pub detections: BTreeMap<DetectionKind, u32>,
    /// Number of interventions, by level.
    pub interventions: BTreeMap<InterventionLevel, u32>,
    /// Effects of warnings and redirects, by the detection that caused them.
    pub effects: BTreeMap<DetectionKind, EffectCounts>,
    /// Effects of warnings and redirects, by level.
    pub followed: BTreeMap<InterventionLevel, EffectCounts>,
}

impl OversightReport {
    /// Returns the statistics of a loop with these iterations, oldest first. `finished` states whether the loop finished its
    /// task; `min_progress` is the gain of completion that counts as progress, 0..1.
    pub fn of(state: &OverseerState, course: &[CourseStep], finished: bool, min_progress: f64) -> Self {
        let mut report = Self {
            detections: state.detections.clone(),
            interventions: state.interventions.clone(),
            ..Self::default()
        };
        let best = |count: usize| course.iter().take(count).map(|step| step.completion).fold(0.0, f64::max);
        let progresses = |from: usize, to: usize| best(to) > best(from) + min_progress;
        for (index, step) in course.iter().enumerate() {
            let done = index + 1;
            let (before, after) =
                (progresses(done.saturating_sub(EFFECT_WITHIN), done), progresses(done, done + EFFECT_WITHIN));
            if !(after || finished || course.len() >= done + EFFECT_WITHIN) {
                continue;
            }
            for given in &step.interventions {
                if !matches!(given.level, InterventionLevel::Warn | InterventionLevel::Redirect) {
                    continue;
                }
                let again = course[done..].iter().flat_map(|step| &step.interventions);
                let is_last = !again.into_iter().any(|later| later.kind == given.kind);
                let counts = EffectCounts {
                    progress: u32::from(after),
                    no_progress: u32::from(!after),
                    false_positives: u32::from(finished && is_last && before == after),
                };
                report.effects.entry(given.kind).or_default().add(counts);
                report.followed.entry(given.level).or_default().add(counts);
            }
        }
        report
    }

    /// Returns the sum of two statistics.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (kind, count) in &other.detections {
            *self.detections.entry(*kind).or_default() += count;
        }
        for (level, count) in &other.interventions {
            *self.interventions.entry(*level).or_default() += count;
        }
        for (kind, counts) in &other.effects {
            self.effects.entry(*kind).or_default().add(*counts);
        }
        for (level, counts) in &other.followed {
            self.followed.entry(*level).or_default().add(*counts);
        }
        self
    }
}

impl fmt::Display for OversightReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detections.is_empty() {
            writeln!(f, "Nothing was detected.")?;
        } else {
            writeln!(f, "Detections (iterations each):")?;
        }
        for (kind, count) in &self.detections {
            write_line(f, kind.name(), *count, self.effects.get(kind))?;
        }
        if self.interventions.is_empty() {
            return Ok(());
        }
        writeln!(f, "Interventions:")?;
        for (level, count) in &self.interventions {
            write_line(f, level.name(), *count, self.followed.get(level))?;
        }
        Ok(())
    }
}

fn write_line(f: &mut fmt::Formatter<'_>, name: &str, count: u32, effect: Option<&EffectCounts>) -> fmt::Result {
    write!(f, "  {name:<16}{count:>5}")?;
    match effect {
        Some(effect) => writeln!(f, "   {effect}"),
        None => writeln!(f),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the effects of a REDIRECT of `stuck` after the iteration with this 0-based index.
    fn after(completions: &[f64], redirected: &[usize], finished: bool) -> EffectCounts {
        let stuck = GivenIntervention { kind: DetectionKind::Stuck, level: InterventionLevel::Redirect };
        let step = |(index, completion): (usize, &f64)| CourseStep {
            completion: *completion,
            interventions: if redirected.contains(&index) { vec![stuck] } else { Vec::new() },
        };
        let course: Vec<CourseStep> = completions.iter().enumerate().map(step).collect();
        let report = OversightReport::of(&OverseerState::default(), &course, finished, 0.01);
        assert_eq!(report.effects.get(&DetectionKind::Stuck), report.followed.get(&InterventionLevel::Redirect));
        report.effects.get(&DetectionKind::Stuck).copied().unwrap_or_default()
    }

    fn counts(progress: u32, no_progress: u32, false_positives: u32) -> EffectCounts {
        EffectCounts { progress, no_progress, false_positives }
    }

    #[test]
    fn intervention_is_effective_if_progress_resumes() {
        let helped = after(&[0.3, 0.3, 0.3, 0.6, 1.0], &[2], true);
        assert_eq!(helped, counts(1, 0, 0));
        assert_eq!((helped.effectiveness(), helped.false_positive_rate()), (Some(1.0), Some(0.0)));
    }

    #[test]
    fn intervention_after_which_the_loop_finishes_unchanged_is_a_false_positive() {
        // The loop progressed before and after.
        let healthy = after(&[0.2, 0.4, 0.6, 0.8, 1.0], &[2], true);
        assert_eq!(healthy, counts(1, 0, 1));
        assert_eq!(healthy.false_positive_rate(), Some(1.0));
        // It stalled before and after, and then finished without another intervention.
        assert_eq!(after(&[0.3, 0.3, 0.3, 0.3, 0.3, 1.0], &[2], true), counts(0, 1, 1));
        // Another intervention was necessary, so that the first one was only ineffective.
        assert_eq!(after(&[0.3, 0.3, 0.3, 0.3, 0.3, 1.0], &[2, 4], true), counts(1, 1, 0));
        // A loop that did not finish shows no false positive, and neither does a loop that the intervention stopped.
        assert_eq!(after(&[0.2, 0.4, 0.6, 0.8, 0.9], &[2], false), counts(1, 0, 0));
        assert_eq!(after(&[0.2, 0.4, 0.6, 0.6, 0.6, 1.0], &[2], true), counts(0, 1, 0));
    }

    #[test]
    fn effect_is_unknown_until_progress_or_two_iterations() {
        assert_eq!(after(&[0.3, 0.3], &[1], false), counts(0, 0, 0));
        assert_eq!(after(&[0.3, 0.3, 0.3], &[1], false), counts(0, 0, 0));
        assert_eq!(after(&[0.3, 0.3, 0.5], &[1], false), counts(1, 0, 0));
        assert_eq!(after(&[0.3, 0.3, 0.3, 0.3], &[1], false), counts(0, 1, 0));
        assert_eq!(after(&[0.3, 0.3], &[1], false).effectiveness(), None);
    }
}
