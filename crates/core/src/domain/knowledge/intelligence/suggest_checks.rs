//! Question that asks a model for commands that could serve as checks of a repository.

use ralph_types::failure::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::{AssistantJob, JobKind};
use crate::domain::checks::criteria::MAX_PROPOSED;
use crate::domain::knowledge::text;
use crate::domain::loops::Loop;
use crate::domain::trust::sanitize;

/// Maximum length of a command or a path, in characters.
const LINE: usize = 200;
/// Maximum number of paths in the question.
const PATHS: usize = 200;
/// Maximum length of the task in the question, in bytes.
const TASK_BYTES: usize = 8 * 1024;

/// Suggested commands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SuggestedCommands {
    /// Shell commands, one line each, at most three; the most useful one first.
    pub commands: Vec<String>,
}

/// Question for commands that could serve as checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestingChecks {
    task: String,
    files: String,
}

impl SuggestingChecks {
    /// Creates the question about a loop's task and the paths of its tree.
    pub fn of(current: &Loop, paths: &[String]) -> Self {
        let task = current.task.text.agent_text();
        let files: Vec<String> = paths.iter().take(PATHS).map(|path| text::line(path, LINE)).collect();
        Self { task: text::without_tags(&task[..task.floor_char_boundary(TASK_BYTES)]), files: files.join("\n") }
    }
}

impl AssistantJob for SuggestingChecks {
    type Output = SuggestedCommands;

    const KIND: JobKind = JobKind::Checks;

    fn question(&self, nonce: &str) -> String {
        let mut out = "A repository states no command that verifies a change. Suggest up to three commands that build, lint or test \
                       this repository, or that pass only when the task is done. They run with `sh -c` in the root of the \
                       repository, without network, and change no file of it. A maintainer decides whether one is used.\n\n"
            .to_owned();
        text::frame(&mut out, nonce, "task", &self.task);
        text::frame(&mut out, nonce, "files of the repository", &self.files);
        out
    }

    fn checked(&self, answer: SuggestedCommands) -> Result<SuggestedCommands, Failure> {
        let is_line = |command: &String| {
            !command.is_empty() && command.chars().count() <= LINE && !command.chars().any(char::is_control)
        };
        let commands = answer.commands.iter().map(|command| sanitize::visible(command.trim()));
        let commands: Vec<String> = commands.filter(is_line).take(MAX_PROPOSED).collect();
        match commands.is_empty() {
            true => Err(Failure::new("`commands` has no command of one line")),
            false => Ok(SuggestedCommands { commands }),
        }
    }
}
