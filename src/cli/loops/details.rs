//! Text of `loops show`: state, plan, checks, iterations, second opinions and calls of a loop.

use crate::cli::{moment, one_line};
use crate::domain::knowledge::intelligence::ClaimSums;
use crate::domain::loops::{Loop, LoopInput, Planning, ProposedPlan};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::opinion::{OpinionEnd, OpinionRun, OpinionVerdict};
use crate::domain::report::control_words;
use crate::store::calls;
use crate::store::loops::LogLine;

/// Formats the calls of a loop and their costs; empty if there are none.
pub(super) fn calls_table(booked: &[calls::CallRecord]) -> String {
    let mut text = String::new();
    for call in booked {
        let model = call.model.as_ref().map_or_else(String::new, |model| format!(" ({model})"));
        let about = if call.estimated { "about " } else { "" };
        let (at, outcome) = (moment(call.started_at), call.outcome.as_deref().unwrap_or("in progress"));
        text.push_str(&format!(
            "  {at} {:>4} {} by {}{model}: {outcome}, {about}{}, {} tokens\n",
            call.iteration,
            call.purpose,
            call.backend,
            call.cost,
            call.usage.total(),
        ));
    }
    if text.is_empty() { text } else { format!("\nCalls:\n{text}") }
}

/// Formats a time span in its largest unit.
pub(super) fn age(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats the state of a loop, its plan, checks and iterations.
pub(super) fn details(current: &Loop, now: Timestamp) -> String {
    let mut text = String::new();
    let mut say = |name: &str, value: &str| text.push_str(&format!("{name:11} {}\n", one_line(value)));
    say("loop", current.id.as_str());
    say("state", current.state.as_str());
    say("reason", &current.why);
    say("issue", &format!("{}#{} {}", current.place.repo, current.place.issue, current.task.title));
    say("page", &current.task.url);
    let (least, most) = current.usual_iterations();
    let (at, limit) = (current.spent.iterations, current.limits.iterations);
    say("iteration", &format!("{at} of {limit} (typical for {}: {least} to {most})", current.task_type().as_str()));
    if let Some(judged) = current.judged() {
        say("health", judged.health.word());
        say("alarms", &control_words::raised(current.retained_iterations().filter_map(|i| i.judged.as_ref())));
    }
    say("completion", &format!("{}%", current.completion().whole_percent()));
    say("cost", &format!("{} of {}", current.spent.cost, current.limits.cost));
    say("time", &format!("{} of {}", age(current.spent.time_at(now)), age(current.limits.time_ms)));
    say("branch", &format!("{} from {}", current.branch, current.base_branch));
    say("pull", current.pull.as_ref().map_or("none", |pull| pull.url.as_str()));
    say("authority", &current.authority.login);
    say("sandbox", &current.sandbox);
    if let Some(words) = ClaimSums::of(current).words() {
        say("claims", &words);
    }
    text.push_str(&plan_lines(current));
    text.push_str("\nChecks:\n");
    let latest = current.latest_checks();
    for check in &current.checks {
        let outcome = latest.and_then(|report| report.outcomes.iter().find(|o| o.name == check.name));
        let word = match outcome {
            Some(outcome) if outcome.holds => "passed".to_owned(),
            Some(outcome) => format!("failed: {}", outcome.why),
            None => "not run yet".to_owned(),
        };
        text.push_str(&format!("  {}: {}\n", one_line(&check.command), one_line(&word)));
    }
    text.push_str("\nIterations:\n");
    for i in &current.iterations {
        let (checks, held) = (i.checks.outcomes.len(), i.checks.held());
        let (added, removed) = i.stat.lines();
        let said = if i.report.summary.is_empty() { &i.agent_problem } else { &i.report.summary };
        let thrown = if i.discarded { " (discarded)" } else { "" };
        let commit = i.commit.as_ref().map_or("no commit", |sha| sha.short());
        text.push_str(&format!(
            "  {}{thrown}: {held} of {checks} checks, +{added} -{removed} in {} files, {commit}, {}, {}: {}\n",
            i.number,
            i.stat.files.len(),
            i.cost,
            age(i64::try_from(i.agent_ms).unwrap_or(i64::MAX)),
            one_line(said),
        ));
        let judgement = i.judged.iter().flat_map(control_words::lines);
        text.extend(judgement.map(|line| format!("     {}\n", one_line(&line))));
    }
    text
}

/// Formats the plan of a loop with its state, its wishes and its approval; empty if no plan is wanted.
fn plan_lines(current: &Loop) -> String {
    let Some(planning) = &current.planning else { return String::new() };
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
    planning.wishes.iter().for_each(|wish| say(&format!("wish of {}: {}", wish.who, wish.text)));
    let cost = planning.runs.iter().fold(Money(0), |sum, run| sum.plus(run.cost));
    let runs = planning.runs.len();
    say(&format!("{runs} run{}, {cost}", if runs == 1 { "" } else { "s" }));
    text
}

/// State of a plan, in a phrase.
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

/// Second opinion of a loop's log.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct GivenOpinion {
    /// Time at which the loop got it; `None` if the log does not reach back to it.
    pub at: Option<Timestamp>,
    /// Opinion.
    #[serde(flatten)]
    pub run: OpinionRun,
}

/// Returns the second opinions in a loop's log, oldest first; if the log is deleted, the one that the loop has.
pub(super) fn opinions(current: &Loop, log: &[LogLine]) -> Vec<GivenOpinion> {
    let logged = log.iter().filter_map(|line| match &line.input {
        LoopInput::SecondOpinionGiven { run, .. } => Some(GivenOpinion { at: Some(line.at), run: (**run).clone() }),
        _ => None,
    });
    let mut all: Vec<_> = logged.collect();
    if let Some(last) = current.opinions.last.clone().filter(|_| all.is_empty()) {
        all.push(GivenOpinion { at: None, run: last });
    }
    all
}

/// Formats second opinions with their findings and costs; empty if nobody was asked.
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
    if let Some(iteration) = current.opinions.iteration {
        text.push_str(&format!("  findings were given to iteration {iteration}\n"));
    }
    text
}
