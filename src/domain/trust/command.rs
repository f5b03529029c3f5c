//! /ralph commands: extraction from Markdown, grammar, one table of usage and permission.

mod extract;
mod options;
mod values;
mod words;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::Money;
use words::WordReader;

pub use options::RunOptions;

/// What starts a command: at the very beginning of a line, followed by a space or the end of the line.
pub const PREFIX: &str = "/ralph";

/// Commands of one comment that are read; more are refused, so that a comment cannot keep the service busy.
const COMMANDS_PER_COMMENT: usize = 10;

/// Longest reason or guidance in bytes; what is beyond is cut at a character.
const TEXT_BYTES: usize = 16 * 1024;

/// What somebody with permission asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Start a loop.
    Run { options: RunOptions },
    /// Go on, with guidance for the next prompt (may be empty).
    Resume { options: RunOptions, guidance: String },
    /// End the loop and the agent; the reason may be empty.
    Abort { reason: String },
    /// Pause after the running iteration, or at once; the reason may be empty.
    Pause { now: bool, reason: String },
    /// Guidance for the next iteration, kept for the repository where `remember` is set; never empty.
    Guide { remember: bool, text: String },
    /// Set the limit of money.
    Budget { limit: Money },
    /// One fresh status comment.
    Status,
    /// Throw the last iteration away and do it again.
    Retry,
    /// Tell the commands.
    Help,
}

/// A line that begins as a command and is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{problem}{}", nearest_phrase(.nearest.as_deref()))]
pub struct CommandError {
    /// The line as it was written.
    pub line: String,
    /// What is wrong with it, in a sentence.
    pub problem: String,
    /// The nearest valid command or option, as it would be written.
    pub nearest: Option<String>,
}

fn nearest_phrase(nearest: Option<&str>) -> String {
    nearest.map(|n| format!(" Did you mean `{n}`?")).unwrap_or_default()
}

/// Whose permission a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// The level that the operator set for commands (`permissions.command`).
    CommandPermission,
}

/// One row of the table of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandInfo {
    /// The word after `/ralph`.
    pub name: &'static str,
    /// Whole usage.
    pub usage: &'static str,
    /// What it does, in a sentence.
    pub help: &'static str,
    /// Who may.
    pub needs: Needs,
}

/// Every command. `/ralph help` and the documentation are made from it.
pub const TABLE: &[CommandInfo] = &[
    CommandInfo {
        name: "run",
        usage: "/ralph run [--check \"CMD\"]… [--max-iterations N] [--timeout 90m] [--budget 5.00] [--backend NAME] [--base BRANCH] [--confirm HASH]",
        help: "Starts a loop on this issue.",
        needs: Needs::CommandPermission,
    },
    CommandInfo {
        name: "resume",
        usage: "/ralph resume [the options of run] [guidance…]",
        help: "Goes on from paused, limit reached or failed; the text after the options is guidance for the next prompt.",
        needs: Needs::CommandPermission,
    },
    CommandInfo {
        name: "abort",
        usage: "/ralph abort [reason]",
        help: "Ends the loop and stops the agent at once; the branch stays.",
        needs: Needs::CommandPermission,
    },
    CommandInfo {
        name: "pause",
        usage: "/ralph pause [--now] [reason]",
        help: "Pauses after the running iteration; `--now` stops the agent.",
        needs: Needs::CommandPermission,
    },
    CommandInfo {
        name: "guide",
        usage: "/ralph guide [--remember] TEXT",
        help: "Guidance for the next iteration without pausing; `--remember` keeps it for this repository.",
        needs: Needs::CommandPermission,
    },
    CommandInfo {
        name: "budget",
        usage: "/ralph budget 5.00",
        help: "Sets the loop's limit of money, in US dollars.",
        needs: Needs::CommandPermission,
    },
    CommandInfo {
        name: "status",
        usage: "/ralph status",
        help: "Writes a fresh status comment.",
        needs: Needs::CommandPermission,
    },
    CommandInfo {
        name: "retry",
        usage: "/ralph retry",
        help: "Throws the last iteration's commits away and does it again.",
        needs: Needs::CommandPermission,
    },
    CommandInfo {
        name: "help",
        usage: "/ralph help",
        help: "Tells the commands, the settings and who may use them.",
        needs: Needs::CommandPermission,
    },
];

impl Command {
    /// Its row of the table.
    pub fn info(&self) -> &'static CommandInfo {
        let name = match self {
            Self::Run { .. } => "run",
            Self::Resume { .. } => "resume",
            Self::Abort { .. } => "abort",
            Self::Pause { .. } => "pause",
            Self::Guide { .. } => "guide",
            Self::Budget { .. } => "budget",
            Self::Status => "status",
            Self::Retry => "retry",
            Self::Help => "help",
        };
        TABLE.iter().find(|info| info.name == name).unwrap_or(&TABLE[0])
    }
}

/// Reads the commands of a comment, in order; empty where there is none. Only lines of top-level paragraphs count: no
/// quotes, lists, code, tables, headings, HTML or comments.
pub fn parse(comment: &str) -> Vec<Result<Command, CommandError>> {
    let lines = extract::command_lines(comment);
    let mut results: Vec<_> =
        lines.iter().take(COMMANDS_PER_COMMENT).map(|found| parse_one(found.line, found.after)).collect();
    if let Some(extra) = lines.get(COMMANDS_PER_COMMENT) {
        let problem =
            format!("A comment may hold {COMMANDS_PER_COMMENT} commands; this one and those after it were not read.");
        results.push(Err(error(extra.line, problem, None)));
    }
    results
}

/// `line` begins with the prefix; `after` is what follows it up to the next command or the end of the comment.
fn parse_one(line: &str, after: &str) -> Result<Command, CommandError> {
    let fail = |(problem, nearest)| error(line, problem, nearest);
    let mut words = WordReader::new(line.get(PREFIX.len()..).unwrap_or_default());
    let name = words.bare();
    let command = match name {
        "run" => {
            let options = RunOptions::parse(&mut words).map_err(fail)?;
            nothing_more(words.rest(), "run").map_err(fail)?;
            Command::Run { options }
        }
        "resume" => {
            let options = RunOptions::parse(&mut words).map_err(fail)?;
            Command::Resume { options, guidance: text_of(words.rest(), after) }
        }
        "abort" => Command::Abort { reason: text_of(words.rest(), "") },
        "pause" => {
            let now = words.flag("--now").map_err(fail)?;
            Command::Pause { now, reason: text_of(words.rest(), "") }
        }
        "guide" => {
            let remember = words.flag("--remember").map_err(fail)?;
            let text = text_of(words.rest(), after);
            if text.is_empty() {
                return Err(fail(("`/ralph guide` needs the guidance as text after it.".into(), None)));
            }
            Command::Guide { remember, text }
        }
        "budget" => {
            let value = words.value().map_err(|problem| fail((problem, None)))?.unwrap_or_default();
            let limit = values::money(&value).map_err(|problem| fail((problem, Some("/ralph budget 5.00".into()))))?;
            nothing_more(words.rest(), "budget").map_err(fail)?;
            Command::Budget { limit }
        }
        "status" | "retry" | "help" | "" => {
            nothing_more(words.rest(), name).map_err(fail)?;
            match name {
                "status" => Command::Status,
                "retry" => Command::Retry,
                _ => Command::Help,
            }
        }
        other => {
            let problem = format!("There is no command `{}`.", shown(other));
            let names: Vec<&str> = TABLE.iter().map(|info| info.name).collect();
            let nearest = nearest(other, &names).unwrap_or("help");
            return Err(error(line, problem, Some(format!("{PREFIX} {nearest}"))));
        }
    };
    Ok(command)
}

fn nothing_more(rest: &str, name: &str) -> Result<(), words::Problem> {
    if rest.is_empty() {
        return Ok(());
    }
    let nearest = match name {
        "run" => Some("/ralph resume".to_owned()),
        _ => Some(format!("{PREFIX} {name}")),
    };
    Err((format!("`/ralph {name}` takes no text after it, but there is `{}`.", shown(rest)), nearest))
}

/// The rest of the command's line and what follows it, trimmed and cut to `TEXT_BYTES`.
fn text_of(rest: &str, after: &str) -> String {
    let mut text = format!("{rest}{after}").replace("\r\n", "\n");
    text.truncate(text.floor_char_boundary(TEXT_BYTES));
    text.trim().to_owned()
}

fn error(line: &str, problem: String, nearest: Option<String>) -> CommandError {
    CommandError { line: shown(line), problem, nearest }
}

/// At most 120 characters of somebody's text, without control characters or backticks, for an error.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && *c != '`').take(120).collect()
}

/// The candidate that `word` most likely meant, if any is near: a slip or two first, then a likeness.
fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    const SLIPS: usize = 2;
    const ALIKE: f64 = 0.75;
    let word = word.to_ascii_lowercase();
    let slips = candidates.iter().map(|candidate| (strsim::damerau_levenshtein(&word, candidate), *candidate));
    if let Some((count, candidate)) = slips.min_by_key(|(count, _)| *count)
        && count <= SLIPS.min(word.len() / 2)
    {
        return Some(candidate);
    }
    let alike = candidates.iter().map(|candidate| (strsim::jaro_winkler(&word, candidate), *candidate));
    alike.filter(|(score, _)| *score >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}
