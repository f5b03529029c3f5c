//! Question for advice: a model receives the loop's state and returns advice for the iteration.

use ralph_types::failure::Failure;

use super::claims::ClaimSums;
use super::generated_prompt::GeneratedPrompt;
use super::job::{AssistantJob, JobKind};
use super::model_advice::ModelAdvice;
use crate::domain::knowledge::text;
use crate::domain::loops::Loop;
use crate::domain::report::rule_words;
use crate::domain::supervision::strategy::assess;

/// Maximum length of the task in the question, in characters.
const TASK: usize = 4_000;
/// Maximum length of a failing check's output, in bytes, and maximum number of failing checks.
const OUTPUT: (usize, usize) = (1_500, 3);
/// Maximum number of checks, of warnings, and of earlier iterations.
const ITEMS: usize = 8;

/// Question for advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Analysis {
    /// Approved title and text of the task, without hidden text.
    task: String,
    /// Facts about the loop, as lines.
    facts: String,
    /// Names of failing checks with the ends of their outputs.
    outputs: Vec<(String, String)>,
}

impl Analysis {
    /// Creates the question for the current iteration.
    pub fn of(current: &Loop) -> Self {
        let task = current.task.text.agent_text();
        let task: String = task.chars().take(TASK).collect();
        let failing = current.failing().into_iter().take(OUTPUT.1);
        let outputs = failing.map(|outcome| (text::line(&outcome.name, 60), text::tail(&outcome.output, OUTPUT.0)));
        Self { task, facts: facts(current), outputs: outputs.collect() }
    }
}

/// Describes the state of the loop, as lines.
fn facts(current: &Loop) -> String {
    let settings = current.settings.policy.supervision();
    let assessment = assess(&current.records(), &current.facts(), current.latest_checks(), None, &settings.strategy);
    let iteration = current.limits.iterations.bounded_progress(current.spent.iterations);
    let phase = format!("{:?}", assessment.phase).to_lowercase();
    let mut out = format!("Iteration {iteration}, phase {phase}.\n");
    let budget = assessment.budget_used * 100.0;
    let progress = assessment.progress * 100.0;
    out.push_str(&format!("Measured completion: {progress:.0} %. Used budget: {budget:.0} %.\n"));
    if let Some(change) = assessment.last_change {
        out.push_str(&format!("Files changed by the last iteration: {}.\n", change.files));
    }
    if let Some(judged) = current.judged() {
        out.push_str(&format!(
            "Control: P {:.2} (what is open), I {:.2} (what stays open), D {:+.2} (above 0 is getting worse), signal {:.2}, \
             urgency {}, trend {}.\n",
            judged.p,
            judged.i,
            judged.d,
            judged.signal,
            judged.urgency.word(),
            judged.trend.word()
        ));
        let way = if judged.way.is_empty() { "as before" } else { &judged.way };
        let approach = format!("{:?}", judged.approach).to_lowercase();
        let because = text::line(&judged.reasoning, 200);
        out.push_str(&format!("Strategy: {approach}, {}, because {because}.\n", text::line(way, 120)));
    }
    out.extend(ClaimSums::of(current).words().map(|words| words + "\n"));
    let mut section = |title: &str, lines: String| {
        if !lines.is_empty() {
            out.push_str(&format!("{title}:\n{lines}"));
        }
    };
    let checks =
        current.checks.list.iter().map(|c| format!("{}: `{}`, passes with {}", c.name, c.command, rule_words(&c.rule)));
    section("Criteria, all of which have to pass", text::list(&checks.collect::<Vec<_>>(), ITEMS, 200));
    let failing = assessment.failing.iter().map(|c| format!("{}: {}", c.name, c.error.as_deref().unwrap_or("fails")));
    section("Failing", text::list(&failing.collect::<Vec<_>>(), ITEMS, 240));
    let blockers = assessment.blockers.iter().map(|b| format!("{} (in {} iterations)", b.text, b.seen));
    section("Blockers, in the agent's words", text::list(&blockers.collect::<Vec<_>>(), ITEMS, 240));
    if let Some(course) = &current.supervision.course {
        let directives: Vec<String> = course.directives.iter().map(ToString::to_string).collect();
        section("Warnings and orders, which the agent gets anyway", text::list(&directives, ITEMS, 300));
    }
    let done = current.retained_iterations().rev().filter(|i| i.ended_at.is_some()).take(ITEMS);
    let tried = done.map(|i| {
        let outcome = crate::domain::report::outcome_words(i);
        format!("iteration {}: {}. {outcome}", i.number, crate::domain::report::approach(i))
    });
    section("Tried, newest first", text::list(&tried.collect::<Vec<_>>(), ITEMS, 240));
    out
}

impl AssistantJob for Analysis {
    type Output = GeneratedPrompt;

    const KIND: JobKind = JobKind::Prompt;

    fn question(&self, nonce: &str) -> String {
        let mut out = "A coding agent works on a task in a repository, in iterations. Checks decide when it is done. Write \
                       what it needs to hear for the iteration that comes: what to do first, in which way, what to leave \
                       alone because it failed before. Name files, errors and commands where you know them. Make nothing \
                       up. The agent gets the task, the checks with their output, the warnings and the rules anyway: do \
                       not repeat them, and do not set rules. Never advise to weaken, skip or delete a test or a check.\n\n"
            .to_owned();
        text::frame(&mut out, nonce, "task", &self.task);
        text::frame(&mut out, nonce, "how it stands", &self.facts);
        for (name, output) in self.outputs.iter().filter(|(_, output)| !output.is_empty()) {
            text::frame(&mut out, nonce, &format!("end of the output of {name}"), output);
        }
        out
    }

    fn checked(&self, answer: GeneratedPrompt) -> Result<GeneratedPrompt, Failure> {
        match ModelAdvice::of(&answer) {
            Some(_) => Ok(answer),
            None => Err(Failure::new("it is unusable: `prompt` must give instructions within the rules")),
        }
    }
}
