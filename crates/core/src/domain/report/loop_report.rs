//! Report on the supervision of a loop: its course, the detections and interventions, and their effect.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{approach, control_words};
use crate::domain::loops::{Iteration, JudgedDetection, Loop, LoopState};
use crate::domain::model::ids::{LoopId, Ratio, Timestamp};
use crate::domain::model::quantity::IterationLimit;
use crate::domain::supervision::oversight::{
    DetectionKind, DetectionSeverity, EffectCounts, Health, InterventionLevel,
};

/// Report on the supervision of a loop. It contains no outputs or prompts, so people with read access may see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopReport {
    /// Id of the loop.
    pub id: LoopId,
    /// Title of the issue.
    pub title: String,
    /// Repository: `forge:owner/name`.
    pub repository: String,
    /// Number of the issue.
    pub issue: u64,
    /// State of the loop.
    pub state: LoopState,
    /// Reason of the state, in one sentence.
    pub reason: String,
    /// Health after the last judged iteration; null before it.
    pub health: Option<Health>,
    /// Number of iterations.
    pub iterations: u32,
    /// Maximum number of iterations; null if unlimited.
    pub max_iterations: Option<u32>,
    /// Measured completion, 0 to 1.
    pub completion: f64,
    /// Cost, in US dollars.
    pub cost_usd: f64,
    /// Working time, in seconds.
    pub running_s: i64,
    /// Number of times that each alarm was raised, by kind.
    pub alarms: BTreeMap<String, u32>,
    /// Detections, by kind.
    pub detections: Vec<DetectionTotal>,
    /// Interventions, by level.
    pub interventions: Vec<InterventionTotal>,
    /// Iterations, oldest first.
    pub course: Vec<ReportedIteration>,
}

/// Number of iterations with a detection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DetectionTotal {
    /// Kind of the detection.
    pub kind: DetectionKind,
    /// Name of the kind for people.
    pub title: String,
    /// Number of iterations.
    pub iterations: u32,
    /// Effects of the warnings and redirects that the detection caused.
    #[serde(flatten)]
    pub effects: EffectCounts,
    /// Share of these with progress in the next two iterations, 0 to 1; null without a known effect.
    pub effectiveness: Option<f64>,
    /// Share of these after which the loop finished unchanged, 0 to 1; null without a known effect.
    pub false_positive_rate: Option<f64>,
}

/// Number of interventions of a level, and their effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterventionTotal {
    /// Level of the intervention.
    pub level: InterventionLevel,
    /// Number of interventions.
    pub count: u32,
    /// Effects of these interventions, if they are warnings or redirects.
    #[serde(flatten)]
    pub effects: EffectCounts,
}

/// Iteration in a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReportedIteration {
    /// 1-based number.
    pub iteration: u32,
    /// Approach of the agent.
    pub approach: String,
    /// Measured completion, 0 to 1.
    pub completion: f64,
    /// Control signal, 0 to 1; null if the iteration was not judged.
    pub signal: Option<f64>,
    /// Health after the iteration; null if it was not judged.
    pub health: Option<Health>,
    /// Detections.
    pub found: Vec<ReportedDetection>,
    /// Reason why supervision stopped the loop after the iteration; null if it continued.
    pub stops: Option<String>,
}

/// Detection in an iteration, with its intervention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReportedDetection {
    /// Kind of the detection.
    pub kind: DetectionKind,
    /// Severity of the detection.
    pub severity: DetectionSeverity,
    /// Level of the intervention.
    pub level: InterventionLevel,
    /// Evidence, for people.
    pub evidence: String,
}

impl LoopReport {
    /// Creates the report of a loop in its current state.
    pub fn of(current: &Loop, now: Timestamp) -> Self {
        let totals = current.oversight_report();
        let detections = totals.detections.iter().map(|(kind, iterations)| {
            let effects = totals.effects.get(kind).copied().unwrap_or_default();
            DetectionTotal {
                kind: *kind,
                title: kind.title().to_owned(),
                iterations: *iterations,
                effects,
                effectiveness: effects.effectiveness(),
                false_positive_rate: effects.false_positive_rate(),
            }
        });
        let interventions = totals.interventions.iter().map(|(level, count)| InterventionTotal {
            level: *level,
            count: *count,
            effects: totals.followed.get(level).copied().unwrap_or_default(),
        });
        let judged = current.retained_iterations().filter_map(|iteration| iteration.judged.as_ref());
        let alarms = control_words::raised_counts(judged).into_iter();
        Self {
            id: current.id.clone(),
            title: current.task.text.title().to_owned(),
            repository: current.issue.repo.to_string(),
            issue: current.issue.issue.0,
            state: current.state,
            reason: current.why.clone(),
            health: current.judged().map(|judged| judged.health),
            iterations: current.spent.iterations,
            max_iterations: current.limits.iterations.count(),
            completion: current.completion().get(),
            cost_usd: current.spent.cost.usd(),
            running_s: current.spent.time_at(now) / 1000,
            alarms: alarms.map(|(kind, count)| (kind.name().to_owned(), count)).collect(),
            detections: detections.collect(),
            interventions: interventions.collect(),
            course: current.retained_iterations().map(reported).collect(),
        }
    }

    /// Formats the report as Markdown. Texts of people and agents are on one line, without control characters.
    pub fn markdown(&self) -> String {
        let mut text = format!("# Report on {}: {}\n\n", self.id, plain(&self.title));
        let health = self.health.map_or("not judged yet", Health::word);
        let mut fact = |name: &str, value: &str| {
            let _ = writeln!(text, "- {name}: {}", plain(value));
        };
        fact("Issue", &format!("{}#{}", self.repository, self.issue));
        fact("State", &format!("{}: {}", self.state.as_str(), self.reason));
        fact("Health", health);
        let limit = self.max_iterations.map_or(IterationLimit::UNLIMITED, IterationLimit::of);
        fact("Iterations", &limit.progress(self.iterations));
        fact("Completion", &percent(self.completion));
        fact("Cost", &format!("${:.2}", self.cost_usd));
        fact("Time", &format!("{} min", (self.running_s + 30) / 60));
        text.push_str("\n## Detections\n\n");
        let head = "| detection | iterations | effective | false positives |\n|---|---|---|---|\n";
        rows(&mut text, head, &self.detections, |one| {
            let share = |part: u32| match one.effects.known() {
                0 => "-".to_owned(),
                known => format!("{part} of {known}"),
            };
            let (effective, wrong) = (share(one.effects.progress), share(one.effects.false_positives));
            format!("| {}: {} | {} | {effective} | {wrong} |", one.kind.name(), one.title, one.iterations)
        });
        text.push_str("\n## Interventions\n\n");
        let head = "| intervention | count | progress within two iterations | no progress |\n|---|---|---|---|\n";
        rows(&mut text, head, &self.interventions, |one| {
            let EffectCounts { progress, no_progress, .. } = one.effects;
            format!("| {} | {} | {progress} | {no_progress} |", one.level.name(), one.count)
        });
        text.push_str("\n## Alarms\n\n");
        let alarms: Vec<_> = self.alarms.iter().collect();
        rows(&mut text, "| alarm | raised |\n|---|---|\n", &alarms, |(kind, count)| format!("| {kind} | {count} |"));
        text.push_str("\n## Iterations\n\n");
        let head = "| iteration | completion | signal | health | approach |\n|---|---|---|---|---|\n";
        rows(&mut text, head, &self.course, |one| {
            let signal = one.signal.map_or_else(|| "-".to_owned(), |signal| format!("{signal:.2}"));
            let health = one.health.map_or("-", Health::word);
            format!(
                "| {} | {} | {signal} | {health} | {} |",
                one.iteration,
                percent(one.completion),
                cell(&one.approach)
            )
        });
        let mut decisions = Vec::new();
        for one in &self.course {
            let found = one.found.iter().map(|found| {
                let ReportedDetection { kind, severity, level, evidence } = found;
                let evidence = plain(evidence);
                format!("- Iteration {}: {} {} ({}): {evidence}", one.iteration, level.name(), kind.name(), severity)
            });
            decisions.extend(found);
            decisions
                .extend(one.stops.iter().map(|why| format!("- Iteration {}: stopped: {}", one.iteration, plain(why))));
        }
        text.push_str("\n## Decisions\n\n");
        rows(&mut text, "", &decisions, Clone::clone);
        text
    }
}

fn reported(iteration: &Iteration) -> ReportedIteration {
    let judged = iteration.judged.as_ref();
    let found = judged.into_iter().flat_map(|judged| &judged.found);
    let found = found.map(|JudgedDetection { kind, severity, level, evidence, .. }| ReportedDetection {
        kind: *kind,
        severity: *severity,
        level: *level,
        evidence: evidence.clone(),
    });
    ReportedIteration {
        iteration: iteration.number,
        approach: approach(iteration),
        completion: iteration.completion.get(),
        signal: judged.map(|judged| judged.signal),
        health: judged.map(|judged| judged.health),
        found: found.collect(),
        stops: judged.and_then(|judged| judged.stops.clone()),
    }
}

/// Appends one line per item after a heading; `None.` if there are no items.
fn rows<T>(text: &mut String, head: &str, items: &[T], line: impl Fn(&T) -> String) {
    if items.is_empty() {
        text.push_str("None.\n");
        return;
    }
    text.push_str(head);
    items.iter().for_each(|item| text.push_str(&(line(item) + "\n")));
}

fn percent(share: f64) -> String {
    format!("{} %", Ratio::new(share).whole_percent())
}

/// Returns a text on one line without control characters.
fn plain(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a text for a cell of a table.
fn cell(text: &str) -> String {
    plain(text).replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_has_every_part_on_its_own_line() {
        let iteration = |found: Vec<ReportedDetection>, stops: Option<&str>| ReportedIteration {
            iteration: 1,
            approach: "left | right\nside".to_owned(),
            completion: 0.3,
            signal: Some(0.5),
            health: Some(Health::Warning),
            found,
            stops: stops.map(str::to_owned),
        };
        let found = ReportedDetection {
            kind: DetectionKind::Stuck,
            severity: DetectionSeverity::High,
            level: InterventionLevel::Redirect,
            evidence: "the same\nerror".to_owned(),
        };
        let mut report = LoopReport {
            id: LoopId::new("r-1-aaaaaa"),
            title: "Fix\u{1b}[2J it".to_owned(),
            repository: "work:team/app".to_owned(),
            issue: 1,
            state: LoopState::Paused,
            reason: "it is stuck".to_owned(),
            health: Some(Health::Paused),
            iterations: 1,
            max_iterations: Some(10),
            completion: 0.309,
            cost_usd: 1.25,
            running_s: 90,
            alarms: [("stuck_loop".to_owned(), 1)].into(),
            detections: vec![DetectionTotal {
                kind: DetectionKind::Stuck,
                title: "The loop is stuck".to_owned(),
                iterations: 2,
                effects: EffectCounts { progress: 0, no_progress: 1, false_positives: 0 },
                effectiveness: Some(0.0),
                false_positive_rate: Some(0.0),
            }],
            interventions: vec![InterventionTotal {
                level: InterventionLevel::Redirect,
                count: 1,
                effects: EffectCounts { progress: 0, no_progress: 1, false_positives: 0 },
            }],
            course: vec![iteration(vec![found], Some("a person is needed"))],
        };
        insta::assert_snapshot!(report.markdown(), @r"
        # Report on r-1-aaaaaa: Fix [2J it

        - Issue: work:team/app#1
        - State: paused: it is stuck
        - Health: paused
        - Iterations: 1 of 10
        - Completion: 30 %
        - Cost: $1.25
        - Time: 2 min

        ## Detections

        | detection | iterations | effective | false positives |
        |---|---|---|---|
        | stuck: The loop is stuck | 2 | 0 of 1 | 0 of 1 |

        ## Interventions

        | intervention | count | progress within two iterations | no progress |
        |---|---|---|---|
        | REDIRECT | 1 | 0 | 1 |

        ## Alarms

        | alarm | raised |
        |---|---|
        | stuck_loop | 1 |

        ## Iterations

        | iteration | completion | signal | health | approach |
        |---|---|---|---|---|
        | 1 | 30 % | 0.50 | warning | left \| right side |

        ## Decisions

        - Iteration 1: REDIRECT stuck (high): the same error
        - Iteration 1: stopped: a person is needed
        ");
        report.course.clear();
        assert!(report.markdown().ends_with("## Iterations\n\nNone.\n\n## Decisions\n\nNone.\n"));
    }
}
