//! Files about a loop for people to read, in the loop's log folder: one per iteration, and a summary.

use std::path::{Path, PathBuf};

use super::next_steps::SuggestedCommand;
use super::progress::TestFinding;
use crate::cli::moment;
use crate::domain::loops::{Iteration, Loop};
use crate::domain::model::ids::Timestamp;
use crate::domain::model::task::CheckReport;

/// Writer of the files about one loop.
pub(super) struct LoopRecords {
    folder: PathBuf,
    written: u32,
}

impl LoopRecords {
    /// Returns the writer for the loop `id` in a data folder.
    pub(super) fn of(data: &Path, id: &str) -> Self {
        Self { folder: data.join("logs").join(id), written: 0 }
    }

    /// Writes `NNN.md` of each iteration that ended since the last call; failures are logged.
    pub(super) fn write_iterations(&mut self, current: &Loop) {
        let ended = current.iterations.iter().filter(|i| i.number > self.written && i.ended_at.is_some());
        for iteration in ended {
            self.write(&format!("{:03}.md", iteration.number), &iteration_text(iteration));
        }
        let last = current.iterations.iter().filter(|i| i.ended_at.is_some()).map(|i| i.number).max();
        self.written = last.unwrap_or(self.written).max(self.written);
    }

    /// Writes `summary.md`; returns its path.
    pub(super) fn write_summary(&self, current: &Loop, steps: &[SuggestedCommand], now: Timestamp) -> PathBuf {
        self.write("summary.md", &summary_text(current, steps, now));
        self.folder.join("summary.md")
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        if let Err(error) = std::fs::create_dir_all(&self.folder).and_then(|()| std::fs::write(&path, text)) {
            tracing::warn!(path = %path.display(), %error, "could not write a record of the loop");
        }
    }
}

fn iteration_text(iteration: &Iteration) -> String {
    let (added, removed) = iteration.stat.lines();
    let mut text = format!("# Iteration {}\n\n", iteration.number);
    let mut line = |name: &str, value: String| {
        if !value.trim().is_empty() {
            text.push_str(&format!("- {name}: {}\n", value.trim()));
        }
    };
    line("Started", moment(iteration.started_at));
    line("Ended", iteration.ended_at.map(moment).unwrap_or_default());
    line("Commit", iteration.commit.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string));
    line("Summary", iteration.report.summary.clone());
    line("Problem", iteration.agent_problem.clone());
    line("Denied tools", iteration.denied_tools.join(", "));
    line("Backend", iteration.served.backend.clone());
    line("Other backends", iteration.served.switched.join("; "));
    line("Agent", format!("{} s, {}", iteration.agent_ms / 1000, iteration.cost));
    line("Files", format!("{} (+{added} -{removed})", iteration.stat.files.len()));
    line("Completion", format!("{} %", iteration.completion.whole_percent()));
    for file in &iteration.stat.files {
        text.push_str(&format!("  - {} (+{} -{})\n", file.path, file.added, file.removed));
    }
    for finding in &iteration.findings {
        let kind = finding.kind.description();
        text.push_str(&format!("- Finding in {}: {kind}: {}\n", finding.path, finding.evidence));
    }
    text.push_str(&checks_text(&iteration.checks));
    text
}

/// Lists the checks of a report, with the output of those that failed.
fn checks_text(report: &CheckReport) -> String {
    let mut text = format!("\n## Checks: {} of {} pass\n", report.held(), report.outcomes.len());
    for outcome in &report.outcomes {
        let verdict = if outcome.holds { "passed" } else { "failed" };
        text.push_str(&format!("\n- `{}` {verdict}: {}\n", outcome.command, outcome.why));
        if !outcome.holds && !outcome.output.trim().is_empty() {
            let lines: String = outcome.output.trim_end().lines().map(|line| format!("      {line}\n")).collect();
            text.push_str(&format!("\n{lines}"));
        }
    }
    text
}

/// Lists the findings about tests on the branch, with the people who accepted them.
fn findings_text(current: &Loop) -> String {
    let findings = TestFinding::of_branch(current);
    let lines: String = findings.iter().map(|finding| format!("- {}\n", finding.sentence())).collect();
    if lines.is_empty() { lines } else { format!("\n## Findings about tests\n\n{lines}") }
}

fn summary_text(current: &Loop, steps: &[SuggestedCommand], now: Timestamp) -> String {
    let mut text = format!("# {}\n\n", current.task.text.title());
    let limits = &current.limits;
    let (state, minutes) = (current.state.words(), current.spent.time_at(now) / 60_000);
    text.push_str(&format!(
        "- Loop: {}\n- State: {state}: {}\n- Branch: {}\n",
        current.id, current.why, current.branch.name
    ));
    text.push_str(&format!("- Iterations: {}\n", limits.iterations.progress(current.spent.iterations)));
    text.push_str(&format!(
        "- Time: {minutes} of {} minutes\n- Cost: {}\n",
        limits.time_ms / 60_000,
        current.spent.cost
    ));
    text.push_str("\n## Iterations\n\n");
    for iteration in &current.iterations {
        let said = [&iteration.report.summary, &iteration.agent_problem];
        let said = said.into_iter().find(|text| !text.trim().is_empty()).map_or("", |text| text.trim());
        let (held, total) = (iteration.checks.held(), iteration.checks.outcomes.len());
        let first = said.lines().next().unwrap_or_default();
        text.push_str(&format!("{}. {held} of {total} checks pass: {first}\n", iteration.number));
    }
    text.push_str(&findings_text(current));
    if let Some(report) = current.latest_checks() {
        text.push_str(&checks_text(report));
    }
    if !steps.is_empty() {
        text.push_str("\n## Next steps\n\n");
        for step in steps {
            text.push_str(&format!("- {}: `{}`\n", step.purpose, step.command));
        }
    }
    text
}
