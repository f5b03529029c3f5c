//! Texts of `ralph-bot loops show` about the plan and the second opinions of a loop.

use crate::cli::{moment, one_line};
use crate::domain::loops::{Loop, LoopInput, Planning, ProposedPlan, WorkOutcome};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::opinion::{OpinionEnd, OpinionRun, OpinionVerdict};
use crate::store::loops::LogLine;

/// Formats the plan of a loop with its state, requests for changes and approval; empty if the loop needs no plan.
pub(super) fn plan_lines(current: &Loop) -> String {
    let Some(planning) = &current.knowledge.planning else { return String::new() };
    let mut text = "\nPlan:\n".to_owned();
    let mut say = |line: &str| text.push_str(&format!("  {}\n", one_line(line)));
    say(&format!("state: {}", plan_state(current, planning)));
    if let Some(plan) = &planning.proposed {
        say(&format!("plan {}, hash {}, made at {}", plan.number, plan.hash, moment(plan.at)));
        say(&format!("summary: {}", plan.plan.summary));
        plan.plan.questions.iter().for_each(|question| say(&format!("question: {question}")));
    }
    if let Some(approval) = &planning.approval {
        say(&format!("approved by {} at {}", approval.by, moment(approval.at)));
        if !approval.changes.is_empty() {
            say(&format!("changes: {}", approval.changes));
        }
    }
    planning.wishes.iter().for_each(|wish| say(&format!("request of {}: {}", wish.who, wish.text)));
    let cost = planning.runs.iter().fold(Money(0), |sum, run| sum.plus(run.cost));
    let runs = planning.runs.len();
    say(&format!("{runs} run{}, {cost}", if runs == 1 { "" } else { "s" }));
    text
}

/// Describes the state of a plan in a phrase.
fn plan_state(current: &Loop, planning: &Planning) -> String {
    let proposed = planning.proposed.as_ref().map(ProposedPlan::short_hash).unwrap_or_default();
    if planning.approval.is_some() {
        return "approved".to_owned();
    }
    match planning.waiting() {
        Some(plan) if plan.plan.questions.is_empty() => format!("waits for `/ralph approve {proposed}`"),
        Some(_) => format!("waits for answers: `/ralph approve {proposed} ANSWERS`"),
        None if planning.failed > 0 => format!("not made yet: {}", planning.problem),
        None if current.state.is_open() => "not made yet".to_owned(),
        None => "never made".to_owned(),
    }
}

/// Second opinion with its time.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct GivenOpinion {
    /// Time at which the loop received the opinion; `None` if the log no longer contains it.
    pub at: Option<Timestamp>,
    /// Opinion.
    #[serde(flatten)]
    pub run: OpinionRun,
}

/// Returns the second opinions in a loop's log, oldest first. If the log was deleted, returns the last opinion, which
/// the loop itself contains.
pub(super) fn opinions(current: &Loop, log: &[LogLine]) -> Vec<GivenOpinion> {
    let logged = log.iter().filter_map(|line| match &line.input {
        LoopInput::Outcome { outcome: WorkOutcome::SecondOpinionGiven { run }, .. } => {
            Some(GivenOpinion { at: Some(line.at), run: (**run).clone() })
        }
        LoopInput::Command(_) | LoopInput::Forge(_) | LoopInput::Timer(_) | LoopInput::Outcome { .. } => None,
    });
    let mut all: Vec<_> = logged.collect();
    if let Some(last) = current.supervision.opinions.last.clone().filter(|_| all.is_empty()) {
        all.push(GivenOpinion { at: None, run: last });
    }
    all
}

/// Formats second opinions with their findings and costs; empty if there are none.
pub(super) fn opinion_lines(current: &Loop, given: &[GivenOpinion]) -> String {
    if given.is_empty() {
        return String::new();
    }
    let mut text = "\nSecond opinions:\n".to_owned();
    for GivenOpinion { at, run } in given {
        let at = at.map_or_else(|| "-".to_owned(), moment);
        let model = run.model.as_ref().map_or_else(String::new, |model| format!(" ({model})"));
        let about = if run.estimated { "about " } else { "" };
        let (words, findings) = match &run.end {
            OpinionEnd::Answered(answer) => {
                let verdict = match answer.verdict {
                    OpinionVerdict::Sound => "sound",
                    OpinionVerdict::Changes => "changes",
                };
                (format!("{verdict}: {}", answer.summary), answer.findings.as_slice())
            }
            OpinionEnd::Missing(why) => (format!("none: {why}"), [].as_slice()),
            OpinionEnd::Lost => ("lost, because the service stopped".to_owned(), [].as_slice()),
        };
        let head = format!("{at} {}{model} on {}, {about}{}: {words}", run.backend, run.commit.short(), run.cost);
        text.push_str(&format!("  {}\n", one_line(&head)));
        for finding in findings {
            let place = finding.place();
            let place = if place.is_empty() { place } else { format!("{place}: ") };
            text.push_str(&format!(
                "     {}\n",
                one_line(&format!("{} {place}{}", finding.severity.as_str(), finding.text))
            ));
        }
    }
    if let Some(iteration) = current.supervision.opinions.iteration {
        text.push_str(&format!("  findings were given to iteration {iteration}\n"));
    }
    text
}
