//! Question that asks a model to extract a report from an agent's last message.

use ralph_types::failure::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::{AssistantJob, JobKind};
use crate::domain::knowledge::agent_message::{READ_BYTES, TEXT_CHARACTERS, add_item, is_doubted};
use crate::domain::knowledge::text;
use crate::domain::model::task::AgentReport;

/// Report that a model extracts from a message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MessageReport {
    /// Completed part of the task, 0..100; null if the message does not state it.
    pub completion_percentage: Option<f64>,
    /// Summary of the work, in one or two sentences.
    pub summary: String,
    /// Approach, in a few words.
    pub approach: String,
    /// Facts that the next iteration should know.
    pub learnings: Vec<String>,
    /// Blockers.
    pub blockers: Vec<String>,
    /// Remaining work.
    pub next_steps: Vec<String>,
    /// Whether the message states plainly that all is done.
    pub completion_signal: bool,
}

impl From<MessageReport> for AgentReport {
    fn from(read: MessageReport) -> Self {
        Self {
            completion_percentage: read.completion_percentage,
            summary: read.summary,
            approach: read.approach,
            learnings: read.learnings,
            blockers: read.blockers,
            next_steps: read.next_steps,
            completion_signal: read.completion_signal,
            ..Self::default()
        }
    }
}

/// Question for the report in an agent's last message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageAnalysis {
    message: String,
}

impl MessageAnalysis {
    /// Creates the question about `message`, or about its end if it is long.
    pub fn of(message: &str) -> Self {
        Self { message: text::tail(message, READ_BYTES) }
    }
}

impl AssistantJob for MessageAnalysis {
    type Output = MessageReport;

    const KIND: JobKind = JobKind::Message;

    fn question(&self, nonce: &str) -> String {
        let mut out = "A coding agent ended with this message and wrote no report. Say what the message says, and nothing \
                       that it does not say. It claims to be done only where it says so plainly, without condition, and \
                       names nothing that fails or is left.\n\n"
            .to_owned();
        text::frame(&mut out, nonce, "last message", &self.message);
        out
    }

    fn checked(&self, answer: MessageReport) -> Result<MessageReport, Failure> {
        if answer.completion_percentage.is_some_and(|share| !(0.0..=100.0).contains(&share)) {
            return Err(Failure::new("`completion_percentage` has to be from 0 to 100, or null"));
        }
        let items = |all: &[String]| -> Vec<String> {
            let mut items = Vec::new();
            all.iter().for_each(|item| add_item(&mut items, item));
            items
        };
        let blockers = items(&answer.blockers);
        Ok(MessageReport {
            summary: text::line(&answer.summary, TEXT_CHARACTERS),
            approach: text::line(&answer.approach, TEXT_CHARACTERS),
            learnings: items(&answer.learnings),
            next_steps: items(&answer.next_steps),
            // A claim that the patterns find retracted does not count, regardless of the model's answer.
            completion_signal: answer.completion_signal && blockers.is_empty() && !is_doubted(&self.message),
            blockers,
            completion_percentage: answer.completion_percentage,
        })
    }
}
