//! What `local` tells while its loop runs: news made from the loop as it goes, as lines for people or as JSON.

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::cli::{one_line, print};
use crate::domain::loops::{Iteration, Loop, LoopState};
use crate::domain::model::ids::Money;
use crate::domain::model::task::{CheckOutcome, CheckReport};
use crate::forge::local::LocalMessage;

/// Lines of a failed check's output that are shown.
const OUTPUT_LINES: usize = 8;

/// Something worth a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum News {
    /// What the work is measured by, and how that stands before it.
    Baseline { held: usize, checks: Vec<Failing>, total: usize },
    /// An iteration began.
    Began { iteration: u32, of: u32 },
    /// An iteration ended.
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
        failing: Vec<Failing>,
    },
    /// The state changed.
    State { state: String, why: String },
    /// A signal came.
    Interrupted { branch: Option<String> },
    /// It is over.
    Ended { state: String, good: bool, why: String, branch: Option<String>, diff: Option<String> },
}

/// A check that does not hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Failing {
    command: String,
    why: String,
    output: Vec<String>,
}

impl Failing {
    fn of(report: &CheckReport) -> Vec<Self> {
        let one = |outcome: &CheckOutcome| {
            let lines: Vec<_> = outcome.output.lines().map(one_line).filter(|line| !line.is_empty()).collect();
            let from = lines.len().saturating_sub(OUTPUT_LINES);
            let output = lines.into_iter().skip(from).collect();
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

/// What was told of a loop so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    baseline: bool,
    began: u32,
    ended: u32,
    state: Option<LoopState>,
}

impl Progress {
    /// What is new since the last look, in order.
    pub(super) fn take(&mut self, current: &Loop) -> Vec<News> {
        let mut news = Vec::new();
        if let (false, Some(report)) = (self.baseline, &current.baseline) {
            self.baseline = true;
            let (held, total) = (report.held(), report.outcomes.len());
            news.push(News::Baseline { held, total, checks: Failing::of(report) });
        }
        for iteration in &current.iterations {
            if iteration.number > self.began {
                self.began = iteration.number;
                news.push(News::Began { iteration: iteration.number, of: current.limits.iterations });
            }
            if iteration.number > self.ended && iteration.ended_at.is_some() {
                self.ended = iteration.number;
                news.push(ended(iteration));
            }
        }
        let told = matches!(current.state, LoopState::Queued | LoopState::Running);
        if self.state != Some(current.state) && !told && current.state == LoopState::Waiting {
            news.push(News::State { state: current.state.as_str().to_owned(), why: one_line(&current.why) });
        }
        self.state = Some(current.state);
        news
    }
}

fn ended(iteration: &Iteration) -> News {
    let (added, removed) = iteration.stat.lines();
    News::Iteration {
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
        failing: Failing::of(&iteration.checks),
    }
}

impl News {
    /// One JSON line, or lines for people.
    pub(super) fn text(&self, json: bool) -> String {
        if json {
            return serde_json::to_string(self).unwrap_or_default() + "\n";
        }
        let (bold, green) = (Style::new().bold(), AnsiColor::Green.on_default().bold());
        let yellow = AnsiColor::Yellow.on_default().bold();
        match self {
            Self::Baseline { held, total, checks } => {
                let failing: String = checks.iter().map(Failing::lines).collect();
                format!("{bold}before{bold:#}: {held} of {total} checks hold\n{failing}")
            }
            Self::Began { iteration, of } => format!("{bold}iteration {iteration} of {of}{bold:#}: the agent runs\n"),
            Self::Iteration { summary, problem, held, total, percent, failing, .. } => {
                let said = [summary, problem].into_iter().filter(|text| !text.is_empty());
                let said: String = said.map(|text| format!("    {text}\n")).collect();
                let failing: String = failing.iter().map(Failing::lines).collect();
                format!("  {held} of {total} checks hold, {percent}% done; {}\n{said}{failing}", self.size())
            }
            Self::State { state, why } => format!("{yellow}{state}{yellow:#}: {why}\n"),
            Self::Interrupted { branch } => {
                let kept = branch.as_ref().map(|branch| format!("; what was committed is on {branch}"));
                format!("{yellow}stopping{yellow:#}{}\n", kept.unwrap_or_default())
            }
            Self::Ended { state, good, why, branch, diff } => {
                let colour = if *good { green } else { yellow };
                let on = branch.as_ref().map(|branch| format!("branch {branch}\n")).unwrap_or_default();
                let diff = diff.as_ref().map(|diff| format!("  {diff}\n")).unwrap_or_default();
                format!("{colour}{state}{colour:#}: {}\n{on}{diff}", one_line(why))
            }
        }
    }

    /// How much an iteration changed and took.
    fn size(&self) -> String {
        let Self::Iteration { files, added, removed, cost_usd, seconds, .. } = self else { return String::new() };
        let cost = Money::from_usd(*cost_usd);
        let cost = if cost > Money(0) { format!(", {cost}") } else { String::new() };
        let files = if *files == 1 { "1 file".to_owned() } else { format!("{files} files") };
        format!("{files}, +{added} -{removed}, {seconds} s{cost}")
    }
}

/// Prints what would be said on a forge: all of it for programs; for people what needs them, as the rest is in the news.
pub(super) fn tell_said(said: &LocalMessage, json: bool) {
    let text = match said {
        said if json => serde_json::to_string(said).unwrap_or_default() + "\n",
        LocalMessage::Issue { title, .. } => {
            let yellow = AnsiColor::Yellow.on_default().bold();
            format!("{yellow}{}{yellow:#}\n", one_line(title))
        }
        LocalMessage::Comment { .. } | LocalMessage::Pull { .. } => return,
    };
    // Whoever reads has gone away; the loop goes on.
    let _ = print(&text);
}
