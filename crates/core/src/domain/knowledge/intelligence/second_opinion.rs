//! Question that asks a model for a second opinion about a finished change.

use std::fmt::Write as _;

use ralph_types::failure::Failure;

use super::job::{AssistantJob, JobKind};
use crate::domain::knowledge::text;
use crate::domain::loops::Loop;
use crate::domain::model::opinion::{OpinionAnswer, OpinionFinding, OpinionVerdict};
use crate::domain::report::rule_words;
use crate::domain::trust::sanitize;

/// Maximum number of findings.
const FINDINGS: usize = 20;
/// Maximum length of a finding, in characters.
const FINDING: usize = 600;
/// Maximum length of a path, in characters.
const PATH: usize = 300;
/// Maximum length of the summary, in characters.
const SUMMARY: usize = 400;
/// Maximum length of the change in the question, in bytes.
const CHANGE_BYTES: usize = 200 * 1024;
/// Maximum length of the task in the question, in bytes.
const TASK_BYTES: usize = 32 * 1024;

/// Question for a second opinion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewing {
    task: String,
    checks: String,
    change: String,
    /// Whether the model runs in a checkout of the change.
    has_tree: bool,
}

impl Reviewing {
    /// Creates the question about the change on a loop's branch. `patch` is its diff against the base; `is_cut` states
    /// whether its end is missing.
    pub fn of(current: &Loop, patch: &str, is_cut: bool, has_tree: bool) -> Self {
        let mut checks = String::new();
        for outcome in current.latest_checks().into_iter().flat_map(|report| &report.outcomes) {
            let check = current.checks.list.iter().find(|check| check.name == outcome.name);
            let rule = check.map_or(String::new(), |check| format!(" (passes with: {})", rule_words(&check.rule)));
            let result = if outcome.holds { "passed" } else { outcome.why.as_str() };
            let _ = writeln!(checks, "- {}: {}{rule}: {result}", outcome.name, outcome.command);
        }
        let task = current.task.text.agent_text();
        let within = patch.floor_char_boundary(CHANGE_BYTES);
        let within =
            if within < patch.len() { patch[..within].rfind('\n').map_or(within, |end| end + 1) } else { within };
        let mut change = sanitize::visible(&patch[..within]);
        if is_cut || within < patch.len() {
            change.push_str("\n[the rest of the change is left out]\n");
        }
        Self {
            task: text::without_tags(&task[..task.floor_char_boundary(TASK_BYTES)]),
            checks: text::without_tags(&checks),
            change: text::without_tags(&change),
            has_tree,
        }
    }
}

impl AssistantJob for Reviewing {
    type Output = OpinionAnswer;

    const KIND: JobKind = JobKind::SecondOpinion;

    fn question(&self, nonce: &str) -> String {
        let mut out = "Review a change that a coding agent made for a task. The checks below pass already; say what they do not \
                       see: where the change misses the task, is wrong, loses data, is insecure, or weakens tests. Report only \
                       what you can show from the code, with file and line after the change. Leave out praise, guesses and \
                       matters of taste. Your answer approves nothing: people decide.\n\n"
            .to_owned();
        if self.has_tree {
            out.push_str(
                "The current directory is a copy of the repository with the change. Read what you need, also around the change. \
                 Change nothing: the copy is thrown away, and nobody can answer questions.\n\n",
            );
        }
        text::frame(&mut out, nonce, "task", &self.task);
        text::frame(&mut out, nonce, "results of the checks", &self.checks);
        text::frame(&mut out, nonce, "change", &self.change);
        out
    }

    fn checked(&self, answer: OpinionAnswer) -> Result<OpinionAnswer, Failure> {
        let mut findings: Vec<OpinionFinding> = Vec::new();
        for finding in answer.findings {
            let known = OpinionFinding {
                file: text::line(&finding.file, PATH),
                line: finding.line.filter(|line| *line > 0),
                severity: finding.severity,
                text: text::line(&finding.text, FINDING),
            };
            if !known.text.is_empty() && !findings.contains(&known) {
                findings.push(known);
            }
        }
        if findings.is_empty() && answer.verdict == OpinionVerdict::Changes {
            return Err(Failure::new("`verdict` is `changes`, but `findings` has none"));
        }
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings.truncate(FINDINGS);
        Ok(OpinionAnswer { verdict: answer.verdict, summary: text::line(&answer.summary, SUMMARY), findings })
    }
}
