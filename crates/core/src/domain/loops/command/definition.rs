//! Definition of a command: its row, its records, and the loop that it is applied to.

use super::arguments::{CommandArguments, Problem};
use crate::domain::loops::Loop;
use crate::domain::model::ids::{Timestamp, User};

/// Row of the table of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandRow {
    /// Word after `/ralph`.
    pub name: &'static str,
    /// Usage with all options.
    pub usage: &'static str,
    /// Effect of the command, in one sentence.
    pub help: &'static str,
    /// Records in which the command is logged.
    pub record: CommandRecord,
}

/// Records in which a command is logged after it was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandRecord {
    /// No record, because the command changes nothing.
    None,
    /// Only the session memory, which agents read. The audit log gets an entry of another kind.
    Session,
    /// The session memory and the audit log.
    SessionAndAudit,
}

/// Definition of a command. Each command implements it once, in its own file.
pub(super) trait CommandDefinition: Sized {
    /// Row in the table of commands.
    const ROW: CommandRow;

    /// Parses the arguments.
    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem>;

    /// Applies the command to the loop and answers its author.
    fn apply(self, target: &mut dyn CommandTarget);

    /// Returns the arguments for the record; empty if there are none.
    fn arguments(&self) -> String {
        String::new()
    }
}

/// Loop that a command is applied to, with the operations that a command can use. `lifecycle` implements it.
pub trait CommandTarget {
    /// Returns the loop.
    fn current(&mut self) -> &mut Loop;

    /// Returns the time of the step.
    fn now(&self) -> Timestamp;

    /// Returns the author of the command.
    fn author(&self) -> &User;

    /// Marks the comment of the command as executed, and logs `text`. If the comment cannot get a reaction, posts `text` instead.
    fn accept(&mut self, text: String);

    /// Marks the comment of the command as rejected, and posts the reason.
    fn reject(&mut self, reason: String);

    /// Marks the comment of the command as executed, and posts the text. `name` identifies the reply within the step.
    fn reply(&mut self, name: &str, text: String);

    /// Posts the list of commands.
    fn post_help(&mut self);

    /// Updates the status comment; with `fresh`, posts a new one.
    fn update_status(&mut self, fresh: bool);

    /// Makes the author the person on whose authority the loop runs, and puts the loop into the queue.
    fn queue(&mut self, reason: &str);

    /// Retries the changes that the forge refused.
    fn repeat_refused(&mut self);

    /// Stops running work, and closes the open iteration.
    fn stop_work(&mut self, reason: &str);

    /// Stops running work, and pauses the loop.
    fn pause(&mut self, reason: &str);

    /// Requests that the forge merges the pull request once it is ready, on the author's authority.
    fn merge_when_ready(&mut self);

    /// Withdraws the request that the forge merges the pull request.
    fn withdraw_merge(&mut self, reason: &str);

    /// Ends the loop.
    fn abort(&mut self, reason: &str);

    /// Resets supervision after a person resumed the loop.
    fn reset_supervision(&mut self);

    /// Rebuilds supervision from the iterations that were not discarded, and resets it.
    fn rebuild_supervision(&mut self);
}
