//! Question that asks a model for a summary of iterations.

use ralph_types::failure::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::{AssistantJob, JobKind};
use crate::domain::knowledge::text;
use crate::domain::loops::Iteration;
use crate::domain::report::{approach, outcome_words};

/// Maximum length of a summary, in characters.
const SUMMARY: usize = 1_200;
/// Maximum number of decisions, and maximum length of one, in characters.
const ITEMS: (usize, usize) = (10, 200);
/// Maximum number of iterations in a question, and maximum length of the text about each, in characters.
const TOLD: (usize, usize) = (50, 600);

/// Summary of iterations by a model. The service knows changed files and errors without the model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SummaryAnswer {
    /// Attempts, successes and failures; at most 150 words.
    pub summary: String,
    /// Decisions that are still valid.
    pub key_decisions: Vec<String>,
}

/// Question for a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summarizing {
    first: u32,
    last: u32,
    /// Descriptions of iterations, one per line, oldest first.
    told: String,
}

impl Summarizing {
    /// Creates the question about `iterations`, oldest first, limited to the newest fifty. `None` without iterations.
    pub fn of(iterations: &[&Iteration]) -> Option<Self> {
        let iterations = &iterations[iterations.len().saturating_sub(TOLD.0)..];
        let (first, last) = (iterations.first()?.number, iterations.last()?.number);
        Some(Self { first, last, told: iterations.iter().map(|iteration| line(iteration)).collect() })
    }
}

fn line(iteration: &Iteration) -> String {
    let files: Vec<&str> = iteration.stat.files.iter().map(|file| file.path.as_str()).collect();
    let error = iteration.record.as_ref().and_then(|record| record.error_signature.as_deref()).unwrap_or("none");
    let all = format!(
        "{}. {} {}. Files: {}. First error: {error}",
        approach(iteration),
        iteration.report.summary,
        outcome_words(iteration),
        files.join(", ")
    );
    format!("Iteration {}: {}\n", iteration.number, text::line(&all, TOLD.1))
}

impl AssistantJob for Summarizing {
    type Output = SummaryAnswer;

    const KIND: JobKind = JobKind::Summary;

    fn question(&self, nonce: &str) -> String {
        let mut out = format!(
            "Summarize the iterations {} to {} of a coding agent for whoever goes on. Say what was tried, what worked, what \
             failed and which decisions still hold. Keep names of files and errors as they are. Make nothing up.\n\n",
            self.first, self.last
        );
        text::frame(&mut out, nonce, "iterations", &self.told);
        out
    }

    fn checked(&self, answer: SummaryAnswer) -> Result<SummaryAnswer, Failure> {
        let summary = text::line(&answer.summary, SUMMARY);
        if summary.is_empty() {
            return Err(Failure::new("`summary` is empty"));
        }
        let decisions = answer.key_decisions.iter().map(|item| text::line(item, ITEMS.1));
        let key_decisions = decisions.filter(|item| !item.is_empty()).take(ITEMS.0).collect();
        Ok(SummaryAnswer { summary, key_decisions })
    }
}
