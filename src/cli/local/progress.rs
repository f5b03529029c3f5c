//! Progress output of `ralph-bot local`, as lines for people or as JSON.

use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::next_steps::SuggestedCommand;
use crate::cli::{one_line, print};
use crate::domain::checks::dependencies::decisive_lines;
use crate::domain::loops::{Iteration, Loop, LoopState};
use crate::domain::model::ids::Money;
use crate::domain::model::quantity::IterationLimit;
use crate::domain::model::task::{CheckOutcome, CheckReport, TamperFinding};
use crate::domain::report::denied_tools;
use crate::forge::local::LocalMessage;

/// Event of a loop.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum ProgressEvent {
    /// Something to know before the run.
    Note { text: String },
    /// Checks before the first iteration. `notes` are sentences about the repository's file.
    Baseline { held: usize, checks: Vec<FailedCheck>, total: usize, notes: Vec<String> },
    /// A plan that waits for an approval.
    Plan { hash: String, text: String },
    /// Start of an iteration.
    Began {
        iteration: u32,
        /// Maximum number of iterations; `None` if unlimited.
        of: Option<u32>,
    },
    /// End of an iteration.
    Iteration {
        iteration: u32,
        summary: String,
        problem: String,
        held: usize,
        total: usize,
        percent: u8,
        files: usize,
        added: u64,
        removed: u64,
        cost_usd: f64,
        seconds: u64,
        failing: Vec<FailedCheck>,
        findings: Vec<TestFinding>,
        /// Tools that the agent was denied for the first time.
        denied_tools: Vec<String>,
        /// Sentences about changes that are not in the commit.
        left_out: Vec<String>,
    },
    /// Change of the state.
    State { state: String, why: String },
    /// A signal was received.
    Interrupted { branch: Option<String>, next: Vec<SuggestedCommand> },
    /// End of the loop.
    Ended {
        #[serde(rename = "loop")]
        id: String,
        state: String,
        good: bool,
        why: String,
        branch: Option<String>,
        diff: Option<String>,
        /// Changes of the branch to tests and checks.
        findings: Vec<TestFinding>,
        next: Vec<SuggestedCommand>,
        /// Path of a file with a summary; `None` if no data are kept.
        summary: Option<PathBuf>,
    },
}

/// Event with the title of its task, if several tasks run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ProgressLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    #[serde(flatten)]
    pub event: ProgressEvent,
}

impl ProgressLine {
    /// Formats the event as one JSON line or as text.
    pub(super) fn text(&self, json: bool) -> String {
        if json {
            return serde_json::to_string(self).unwrap_or_default() + "\n";
        }
        let dimmed = Style::new().dimmed();
        let title = self.task.as_ref().map(|title| format!("{dimmed}{}{dimmed:#}\n", one_line(title)));
        title.unwrap_or_default() + &self.event.text()
    }
}

fn next_text(steps: &[SuggestedCommand]) -> String {
    steps.iter().map(|step| format!("  {}: {}\n", step.purpose, step.command)).collect()
}

/// Failed check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FailedCheck {
    command: String,
    why: String,
    output: Vec<String>,
}

impl FailedCheck {
    fn of(report: &CheckReport) -> Vec<Self> {
        let one = |outcome: &CheckOutcome| {
            let output = decisive_lines(&outcome.output).iter().map(|line| one_line(line)).collect();
            Self { command: one_line(&outcome.command), why: one_line(&outcome.why), output }
        };
        report.outcomes.iter().filter(|outcome| !outcome.holds).map(one).collect()
    }

    fn lines(&self) -> String {
        let red = AnsiColor::Red.on_default();
        let output: String = self.output.iter().map(|line| format!("      {line}\n")).collect();
        format!("    {red}✗{red:#} {}: {}\n{output}", self.command, self.why)
    }
}

/// Change to tests or checks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TestFinding {
    #[serde(flatten)]
    found: TamperFinding,
    /// Login of the person who accepted the finding; `None` if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_by: Option<String>,
}

impl TestFinding {
    /// Returns the findings of the branch, as shown in the pull request; accepted ones last.
    pub(super) fn of_branch(current: &Loop) -> Vec<Self> {
        let open = current.findings().into_iter().map(|found| Self { found, accepted_by: None });
        let accepted = current.accepted_findings().into_iter();
        let accepted =
            accepted.map(|(by, finding)| Self { found: finding.found.clone(), accepted_by: Some(by.into()) });
        open.chain(accepted).collect()
    }

    fn of_iteration(iteration: &Iteration) -> Vec<Self> {
        iteration.findings.iter().map(|found| Self { found: found.clone(), accepted_by: None }).collect()
    }

    fn text(&self) -> String {
        let yellow = AnsiColor::Yellow.on_default();
        format!("    {yellow}!{yellow:#} {}\n", self.sentence())
    }

    /// Returns one line without color: place, kind, person who accepted it, evidence.
    pub(super) fn sentence(&self) -> String {
        let TamperFinding { path, line, kind, evidence, .. } = &self.found;
        let place = line.map_or_else(|| path.clone(), |line| format!("{path}:{line}"));
        let accepted = self.accepted_by.as_ref().map(|by| format!(" (accepted by {by})")).unwrap_or_default();
        let (place, evidence) = (one_line(&place), one_line(evidence));
        format!("{place}: {}{accepted}: {evidence}", kind.description())
    }
}

/// Record of the events that were already printed.
#[derive(Debug, Default)]
pub(super) struct LocalProgress {
    baseline: bool,
    /// Number of the last printed plan.
    plans: u32,
    began: u32,
    ended: u32,
    state: Option<LoopState>,
}

impl LocalProgress {
    /// Skips the events of the loop that an earlier run printed.
    pub(super) fn skip(&mut self, known: &Loop) {
        self.baseline = known.checks.baseline.is_some();
        let ended = |iteration: &&Iteration| iteration.ended_at.is_some();
        self.ended = known.iterations.iter().filter(ended).map(|iteration| iteration.number).max().unwrap_or(0);
        self.began = self.ended;
    }

    /// Returns the events since the last call, in order.
    pub(super) fn take(&mut self, current: &Loop) -> Vec<ProgressEvent> {
        let mut events = Vec::new();
        if let (false, Some(report)) = (self.baseline, current.checks.baseline_report()) {
            self.baseline = true;
            let (held, total) = (report.held(), report.outcomes.len());
            let notes = current.settings.overruled.iter().map(|note| one_line(note)).collect();
            events.extend(current.agent.lacks.iter().map(|text| ProgressEvent::Note { text: one_line(text) }));
            events.push(ProgressEvent::Baseline { held, total, checks: FailedCheck::of(report), notes });
        }
        for iteration in &current.iterations {
            if iteration.number > self.began {
                self.began = iteration.number;
                events
                    .push(ProgressEvent::Began { iteration: iteration.number, of: current.limits.iterations.count() });
            }
            if iteration.number > self.ended && iteration.ended_at.is_some() {
                self.ended = iteration.number;
                events.push(ended(current, iteration));
            }
        }
        if let Some(plan) = current.knowledge.waiting_plan().filter(|plan| plan.number > self.plans) {
            self.plans = plan.number;
            events.push(ProgressEvent::Plan { hash: plan.short_hash().to_owned(), text: plan.plan.text() });
        }
        let told = matches!(current.state, LoopState::Queued | LoopState::Running);
        if self.state != Some(current.state) && !told && current.state == LoopState::Waiting {
            events.push(ProgressEvent::State { state: current.state.as_str().to_owned(), why: one_line(&current.why) });
        }
        self.state = Some(current.state);
        events
    }
}

fn ended(current: &Loop, iteration: &Iteration) -> ProgressEvent {
    let (added, removed) = iteration.stat.lines();
    ProgressEvent::Iteration {
        iteration: iteration.number,
        summary: one_line(&iteration.report.summary),
        problem: one_line(&iteration.agent_problem),
        held: iteration.checks.held(),
        total: iteration.checks.outcomes.len(),
        percent: iteration.completion.whole_percent(),
        files: iteration.stat.files.len(),
        added,
        removed,
        cost_usd: iteration.cost.usd(),
        seconds: iteration.agent_ms / 1000,
        failing: FailedCheck::of(&iteration.checks),
        findings: TestFinding::of_iteration(iteration),
        denied_tools: denied_tools(current, iteration),
        left_out: iteration.refused.iter().map(|refused| one_line(refused)).collect(),
    }
}

impl ProgressEvent {
    /// Formats the event as text.
    fn text(&self) -> String {
        let (bold, green) = (Style::new().bold(), AnsiColor::Green.on_default().bold());
        let yellow = AnsiColor::Yellow.on_default().bold();
        match self {
            Self::Note { text } => format!("{yellow}note{yellow:#}: {text}\n"),
            Self::Baseline { held, total, checks, notes } => {
                let failing: String = checks.iter().map(FailedCheck::lines).collect();
                let notes: String =
                    notes.iter().map(|note| format!("{yellow}note{yellow:#}: repository file: {note}\n")).collect();
                format!("{notes}{bold}before{bold:#}: {held} of {total} checks pass\n{failing}")
            }
            Self::Plan { hash, text } => {
                let lines: String = text.lines().map(|line| format!("  {}\n", one_line(line))).collect();
                format!("{bold}plan {hash}{bold:#}\n{lines}")
            }
            Self::Began { iteration, of } => {
                let limit = of.map_or(IterationLimit::UNLIMITED, IterationLimit::of);
                format!("{bold}iteration {}{bold:#}: running the agent\n", limit.progress(*iteration))
            }
            Self::Iteration {
                summary,
                problem,
                held,
                total,
                percent,
                failing,
                findings,
                denied_tools,
                left_out,
                ..
            } => {
                let said = [summary, problem].into_iter().filter(|text| !text.is_empty());
                let said: String = said.map(|text| format!("    {text}\n")).collect();
                let failing: String = failing.iter().map(FailedCheck::lines).collect();
                let findings: String = findings.iter().map(TestFinding::text).collect();
                let denied = match denied_tools.iter().map(|tool| one_line(tool)).collect::<Vec<_>>().join(", ") {
                    none if none.is_empty() => none,
                    tools => format!("    {yellow}!{yellow:#} its permissions denied tools to the agent: {tools}\n"),
                };
                let left_out: String = left_out.iter().map(|why| format!("    {yellow}!{yellow:#} {why}\n")).collect();
                let size = self.size();
                format!(
                    "  {held} of {total} checks pass, {percent} % done; {size}\n{said}{denied}{left_out}{failing}{findings}"
                )
            }
            Self::State { state, why } => format!("{yellow}{state}{yellow:#}: {why}\n"),
            Self::Interrupted { branch, next } => {
                let kept = branch.as_ref().map(|branch| format!("; committed work is on {branch}"));
                format!("{yellow}stopping{yellow:#}{}\n{}", kept.unwrap_or_default(), next_text(next))
            }
            Self::Ended { state, good, why, branch, findings, next, summary, .. } => {
                let color = if *good { green } else { yellow };
                let on = branch.as_ref().map(|branch| format!("branch {branch}\n")).unwrap_or_default();
                let summary = summary.as_ref().map(|path| format!("  summary: {}\n", path.display()));
                let summary = summary.unwrap_or_default();
                let findings: String = findings.iter().map(TestFinding::text).collect();
                let (why, next) = (one_line(why), next_text(next));
                format!("{color}{state}{color:#}: {why}\n{on}{findings}{next}{summary}")
            }
        }
    }

    /// Formats the size, duration and cost of an iteration.
    fn size(&self) -> String {
        let Self::Iteration { files, added, removed, cost_usd, seconds, .. } = self else { return String::new() };
        let cost = Money::from_usd(*cost_usd);
        let cost = if cost > Money(0) { format!(", {cost}") } else { String::new() };
        let files = if *files == 1 { "1 file".to_owned() } else { format!("{files} files") };
        format!("{files}, +{added} -{removed}, {seconds} s{cost}")
    }
}

/// Prints a text that would be posted on a forge. As JSON, all texts are printed; for people, only escalations.
pub(super) fn print_forge_output(message: &LocalMessage, json: bool) {
    let text = match message {
        message if json => serde_json::to_string(message).unwrap_or_default() + "\n",
        LocalMessage::Issue { title, .. } => {
            let yellow = AnsiColor::Yellow.on_default().bold();
            format!("{yellow}{}{yellow:#}\n", one_line(title))
        }
        LocalMessage::Comment { .. } | LocalMessage::Pull { .. } => return,
    };
    // A closed pipe does not stop the loop.
    let _ = print(&text);
}
