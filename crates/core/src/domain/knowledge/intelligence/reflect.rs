//! Question that asks a model for a reflection on an iteration: failure, cause, next step (Reflexion, N. Shinn et al.,
//! NeurIPS 2023).

use ralph_types::failure::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::{AssistantJob, JobKind};
use super::model_advice::is_out_of_place;
use crate::domain::knowledge::text;
use crate::domain::loops::Iteration;
use crate::domain::report::{approach, outcome_words};

/// Maximum length of each part of a reflection, in characters.
const PART: usize = 400;
/// Maximum length of the change and of failing checks' output in the question, in bytes.
const EVIDENCE: usize = 6_000;

/// Reflection on an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReflectionAnswer {
    /// Failure in one sentence; empty if there was none.
    pub what_failed: String,
    /// Cause as far as the evidence shows it, in one sentence.
    pub why: String,
    /// Next step: one concrete action.
    pub next: String,
}

/// Question for a reflection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reflecting {
    approach: String,
    outcome: String,
    said: String,
    failing: Option<String>,
    output: String,
    diff: String,
}

impl Reflecting {
    /// Creates the question about an iteration whose checks ran. `diff` is the iteration's change as text; may be empty.
    pub fn on(iteration: &Iteration, diff: &str) -> Self {
        let failed = iteration.checks.outcomes.iter().find(|outcome| !outcome.holds);
        Self {
            approach: text::line(&approach(iteration), PART),
            outcome: outcome_words(iteration),
            said: text::line(&iteration.report.summary, PART),
            failing: failed.map(|outcome| text::line(&outcome.name, 60)),
            output: failed.map(|outcome| text::tail(&outcome.output, EVIDENCE)).unwrap_or_default(),
            diff: text::tail(diff, EVIDENCE),
        }
    }
}

impl AssistantJob for Reflecting {
    type Output = ReflectionAnswer;

    const KIND: JobKind = JobKind::Reflection;

    fn question(&self, nonce: &str) -> String {
        let mut out =
            "A coding agent has ended an iteration. Say what failed, why, and the one thing to do next, so that \
                       the next iteration does not repeat it. Go by the evidence, not by the agent's word; where the \
                       evidence shows no cause, say what would show it.\n\n"
                .to_owned();
        let iteration =
            format!("Approach: {}\nOutcome: {}\nThe agent says: {}", self.approach, self.outcome, self.said);
        text::frame(&mut out, nonce, "the iteration", &iteration);
        if !self.output.is_empty() {
            let what = format!("end of the output of {}", self.failing.as_deref().unwrap_or("the check"));
            text::frame(&mut out, nonce, &what, &self.output);
        }
        if !self.diff.is_empty() {
            text::frame(&mut out, nonce, "the change, or its end", &self.diff);
        }
        out
    }

    fn checked(&self, answer: ReflectionAnswer) -> Result<ReflectionAnswer, Failure> {
        let checked = ReflectionAnswer {
            what_failed: text::line(&answer.what_failed, PART),
            why: text::line(&answer.why, PART),
            next: text::line(&answer.next, PART),
        };
        if checked.next.is_empty() {
            return Err(Failure::new("`next` is empty: name one concrete action"));
        }
        if is_out_of_place(&checked.next) {
            return Err(Failure::new("`next` requests a change to checks, which the rules forbid"));
        }
        if checked.what_failed.is_empty() && self.failing.is_some() {
            return Err(Failure::new("`what_failed` is empty, and a check failed"));
        }
        Ok(checked)
    }
}
