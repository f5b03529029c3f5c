//! Commands that start with `/ralph`: extraction from a comment's page, and grammar. Each command has a separate file with its table
//! row, its arguments and its effect on a loop.
//!
//! To add a command, create a file in `command/` and add an entry to `commands!`. The grammar, `/ralph help`, the table in the
//! README, the dispatch, and the records in session memory and audit log are derived from these. Every command requires the
//! permission `permissions.command`, which is checked before a command becomes an input of a loop.

mod abort;
mod accept_tests;
mod approve;
mod arguments;
mod budget;
mod definition;
mod extract;
mod guide;
mod help;
mod iterations;
mod merge_when_ready;
mod options;
mod pause;
mod plan;
mod resume;
mod retry;
mod run;
mod status;
mod values;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::{Loop, RunOptions};
use crate::domain::model::document::Document;
use crate::domain::model::ids::{AccountKind, User, UserId};
use crate::domain::trust::sanitize::document;
use arguments::{CommandArguments, Problem};
use definition::CommandDefinition;

pub use definition::{CommandRecord, CommandRow, CommandTarget};

/// Prefix of a command. It must be at the start of a line, followed by a space or the end of the line.
pub const PREFIX: &str = "/ralph";

/// Maximum number of commands that are read from one comment.
const COMMANDS_PER_COMMENT: usize = 10;

/// Declares the commands in the order of the table, each with its file and its type.
macro_rules! commands {
    ($($file:ident :: $Command:ident),+ $(,)?) => {
        $(pub use $file::$Command;)+

        /// Command of a person with permission.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "command", rename_all = "snake_case")]
        pub enum LoopCommand {
            $(#[doc = concat!("Command of the file `", stringify!($file), "`.")] $Command($Command)),+
        }

        /// Rows of all commands.
        pub const TABLE: &[CommandRow] = &[$(<$Command as CommandDefinition>::ROW),+];

        impl LoopCommand {
            /// Parses the arguments of the command with that name; `None` if there is no such command.
            fn parse(name: &str, arguments: &mut CommandArguments<'_>) -> Option<Result<Self, Problem>> {
                $(if name == <$Command as CommandDefinition>::ROW.name {
                    return Some($Command::parse(arguments).map(Self::$Command));
                })+
                None
            }

            /// Returns the command's row in the table.
            pub fn row(&self) -> CommandRow {
                match self {
                    $(Self::$Command(_) => <$Command as CommandDefinition>::ROW),+
                }
            }

            /// Applies the command to the loop and answers its author.
            pub fn apply(self, target: &mut dyn CommandTarget) {
                match self {
                    $(Self::$Command(command) => command.apply(target)),+
                }
            }

            fn arguments(&self) -> String {
                match self {
                    $(Self::$Command(command) => command.arguments()),+
                }
            }
        }
    };
}

commands! {
    run::Run,
    plan::MakePlan,
    approve::Approve,
    resume::Resume,
    abort::Abort,
    pause::Pause,
    guide::Guide,
    budget::Budget,
    iterations::Iterations,
    status::Status,
    retry::Retry,
    accept_tests::AcceptTests,
    merge_when_ready::MergeWhenReady,
    help::Help,
}

impl LoopCommand {
    /// Returns the text of the command for a record, without `/ralph`; `None` if the command is not logged in that record.
    pub fn recorded(&self, record: CommandRecord) -> Option<String> {
        let row = self.row();
        (row.record >= record).then(|| format!("{} {}", row.name, self.arguments()).trim().to_owned())
    }

    /// Returns the options of `run`, `plan` and `resume`; `None` for other commands.
    pub fn options(&self) -> Option<&RunOptions> {
        match self {
            Self::Run(Run { options, .. })
            | Self::MakePlan(MakePlan { options, .. })
            | Self::Resume(Resume { options, .. }) => Some(options),
            _ => None,
        }
    }

    /// Returns the options of a command that can start a new loop, and the wishes for its plan if the command requests one.
    /// `None` for other commands.
    pub fn starts(&self) -> Option<(&RunOptions, Option<&str>)> {
        match self {
            Self::Run(Run { options, .. }) => Some((options, None)),
            Self::MakePlan(MakePlan { options, wishes }) => Some((options, Some(wishes))),
            _ => None,
        }
    }
}

impl LoopCommand {
    /// Returns the guidance of `run` for a new loop; empty for other commands.
    pub fn request(&self) -> &str {
        match self {
            Self::Run(Run { guidance, .. }) => guidance,
            _ => "",
        }
    }
}

/// Returns the account that represents the operator, who has no account on a forge.
pub fn operator() -> User {
    User { id: UserId(0), login: "the operator".into(), kind: AccountKind::User }
}

impl LoopCommand {
    /// Returns the author to record if the operator gives this command. If the loop may push after the command, this is the
    /// person on whose authority the loop runs, because no forge knows the operator.
    pub fn sender_for_operator(&self, current: &Loop) -> User {
        match self {
            Self::Pause(_) | Self::Abort(_) | Self::Status(_) | Self::Help(_) => operator(),
            _ => current.people.authority.clone(),
        }
    }
}

/// Error for a line that starts like a command but is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{problem}{}", nearest_phrase(.nearest.as_deref()))]
pub struct CommandError {
    /// Line as written, at most 120 characters.
    pub line: String,
    /// Problem, in one sentence.
    pub problem: String,
    /// Nearest valid command or option, as it would be written; `None` if none is similar.
    pub nearest: Option<String>,
}

fn nearest_phrase(nearest: Option<&str>) -> String {
    nearest.map(|n| format!(" Did you mean `{n}`?")).unwrap_or_default()
}

/// Whether the source of a comment may contain a command. Otherwise, the intake does not request its page from the forge.
pub fn is_mentioned(source: &str) -> bool {
    source.contains(PREFIX)
}

/// Parses the commands in a text that no forge renders, such as the input of the dashboard. As in comments, a text whose commands
/// appear only without its invisible characters has none.
pub fn parse_typed(text: &str) -> Vec<Result<LoopCommand, CommandError>> {
    if is_mentioned(text) { parse(&document::plain(text)) } else { Vec::new() }
}

/// Returns the text of a comment before its first command; all of it if there is none.
pub fn text_before(comment: &Document) -> String {
    extract::text_before(comment)
}

/// Parses the commands in a comment as the forge displays it, in order. Only lines of top-level paragraphs count, not lines of
/// quotations, lists, code, tables, headings or other elements, and not those below the "On … wrote:" of a mail.
pub fn parse(comment: &Document) -> Vec<Result<LoopCommand, CommandError>> {
    let lines = extract::command_lines(comment);
    let mut results: Vec<_> =
        lines.iter().take(COMMANDS_PER_COMMENT).map(|found| parse_one(&found.line, &found.after)).collect();
    if let Some(extra) = lines.get(COMMANDS_PER_COMMENT) {
        let problem =
            format!("A comment can contain {COMMANDS_PER_COMMENT} commands; this one and all after it were ignored.");
        results.push(Err(error(&extra.line, problem, None)));
    }
    results
}

/// Parses a line that starts with the prefix. `after` is the text up to the next command or the end of the comment.
fn parse_one(line: &str, after: &str) -> Result<LoopCommand, CommandError> {
    let mut arguments = CommandArguments::new(line.get(PREFIX.len()..).unwrap_or_default(), after);
    let name = match arguments.word() {
        "" => Help::ROW.name,
        name => name,
    };
    match LoopCommand::parse(name, &mut arguments) {
        Some(Ok(command)) => arguments.end(name).map(|()| command),
        Some(Err(problem)) => Err(problem),
        None => {
            let names: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
            let nearest = nearest(name, &names).unwrap_or(Help::ROW.name);
            Err((format!("There is no command `{}`.", shown(name)), Some(format!("{PREFIX} {nearest}"))))
        }
    }
    .map_err(|(problem, nearest)| error(line, problem, nearest))
}

fn error(line: &str, problem: String, nearest: Option<String>) -> CommandError {
    CommandError { line: shown(line), problem, nearest }
}

/// Returns the first 120 characters of a person's text for an error, without control characters and backticks.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && *c != '`').take(120).collect()
}

/// Returns the candidate most similar to `word`: one with up to two typing errors, else one that is similar. `None` if none is
/// similar.
fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    const MAX_TYPING_ERRORS: usize = 2;
    const MIN_SIMILARITY: f64 = 0.75;
    let word = word.to_ascii_lowercase();
    let distances = candidates.iter().map(|candidate| (strsim::damerau_levenshtein(&word, candidate), *candidate));
    if let Some((distance, candidate)) = distances.min_by_key(|(distance, _)| *distance)
        && distance <= MAX_TYPING_ERRORS.min(word.len() / 2)
    {
        return Some(candidate);
    }
    let similar = candidates.iter().map(|candidate| (strsim::jaro_winkler(&word, candidate), *candidate));
    similar
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
