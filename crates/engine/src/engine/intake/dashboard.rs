//! Commands that people give in the dashboard. They become the same inputs as commands in comments, after the same
//! permission check.

use std::fmt;
use std::time::Duration;

use ralph_types::failure::Failure;

use super::comments::{GivenCommand, WrittenCommand};
use crate::domain::loops::command::{self, LoopCommand};
use crate::domain::loops::{CommandInput, Loop, LoopInput};
use crate::domain::model::ids::{LoopId, User};
use crate::domain::report;
use crate::domain::report::view::{CommandReply, HelpView, View};
use crate::domain::supervision::oversight::{AuditEntry, AuditEvent};
use crate::domain::trust::permit::Authorization;
use crate::engine::intake::{Intake, IntakeError, IntakeOutcome, Origin};
use crate::engine::receipt::EffectError;
use crate::store::StoreError;
use crate::store::loops::{self, InputOutcome};

/// Maximum wait for the loop to process a command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Person who gives a command in the dashboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DashboardAuthor {
    /// Account on the loop's forge, whose permission is queried from the forge.
    Account(User),
    /// Operator of this machine, who has no account on a forge.
    Operator,
}

/// Interface that a command was sent through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandPath {
    /// Button or field of a page in the dashboard.
    Page,
    /// JSON API; `token` is the name of the personal token, if one was used.
    Api { token: Option<String> },
}

impl fmt::Display for CommandPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Page => f.write_str("in the dashboard"),
            Self::Api { token: None } => f.write_str("by the API"),
            Self::Api { token: Some(name) } => write!(f, "by the API with the token {name:?}"),
        }
    }
}

/// Answer to a command of the dashboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DashboardAnswer {
    /// Text for the person who gave the command: its result, or the mistake and the most similar valid command.
    pub reply: CommandReply,
    /// Result of the command.
    pub outcome: DashboardOutcome,
}

/// Result of a command of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DashboardOutcome {
    /// The loop processed the command in the step with this position in its log.
    Taken(i64),
    /// The command was answered without a step of this loop: with help, or by a new loop of the issue.
    Answered,
    /// The command is stored; the loop has not processed it yet.
    Stored,
    /// The command has a mistake and was not passed to a loop.
    Invalid,
    /// The loop refused the command in its current state.
    Refused,
}

/// Reason why a command of the dashboard was not processed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DashboardCommandError {
    /// The loop does not exist.
    #[error("there is no loop {0}")]
    UnknownLoop(LoopId),
    /// The person may not give commands.
    #[error("{login} may not give commands: {reason}")]
    Denied { login: String, reason: String },
    /// The forge could not be queried; nothing was changed.
    #[error("nothing was changed: {0:#}; try again")]
    Unavailable(#[source] Failure),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<EffectError> for DashboardCommandError {
    fn from(error: EffectError) -> Self {
        let (EffectError::Retry { why, .. } | EffectError::Permanent { why } | EffectError::Stopped { why }) = error;
        Self::Unavailable(why.into())
    }
}

impl From<IntakeError> for DashboardCommandError {
    fn from(error: IntakeError) -> Self {
        match error {
            IntakeError::Store(error) => Self::Store(error),
            IntakeError::Retry { why, .. } | IntakeError::NotShown(why) | IntakeError::Contradicted(why) => {
                Self::Unavailable(why.into())
            }
        }
    }
}

impl Intake {
    /// Gives a loop the command in `text`, which starts with `/ralph`, and waits up to 5 s for its answer. The audit
    /// log records the person and the interface `by` that the command was sent through.
    ///
    /// # Errors
    /// The loop does not exist, the person may not give commands, or the forge or the store cannot be queried.
    pub async fn command_from_dashboard(
        &self,
        id: &LoopId,
        (author, by): (&DashboardAuthor, &CommandPath),
        text: &str,
    ) -> Result<DashboardAnswer, DashboardCommandError> {
        let wanted = id.clone();
        let current = self.context.store.read(move |c| loops::get(c, &wanted)).await?;
        let current = current.ok_or_else(|| DashboardCommandError::UnknownLoop(id.clone()))?;
        let forge = &current.issue.repo.forge;
        let Some(account) = self.forges.accounts.get(forge) else {
            return Err(DashboardCommandError::Unavailable(format!("the forge {forge} is not configured").into()));
        };
        let mut place = current.issue.clone();
        if let DashboardAuthor::Account(user) = author {
            // The name may have been given to another repository, whose permissions say nothing. An archived repository has
            // people with permissions, too.
            self.forges.place(account, &place.repo, true).await?;
            place.repo = self.forges.present_name(&place.repo).await?;
            let verdict = self.forges.permitted_now(account, &place.repo, user).await;
            let verdict = verdict.map_err(|error| DashboardCommandError::Unavailable(Failure::of(error)))?;
            self.still_named(account, &place.repo).await?;
            if let Authorization::Deny { reason, .. } = verdict {
                return Err(DashboardCommandError::Denied { login: user.login.clone(), reason: reason.to_string() });
            }
        }
        place.repo = self.forges.present_name(&place.repo).await?;
        let mut commands = command::parse_typed(text);
        let (parsed, more) = (commands.pop(), commands.len());
        let Some(parsed) = parsed.filter(|_| more == 0) else {
            let problem = if more > 0 { "Give one command at a time." } else { "A command starts with `/ralph`." };
            return Ok(not_taken(DashboardOutcome::Invalid, problem.to_owned(), Some("/ralph help".to_owned())));
        };
        if matches!(parsed, Ok(LoopCommand::Help(_))) {
            return Ok(said(DashboardOutcome::Answered, help_lines(&report::help(&current.settings.policy))));
        }
        if let Some(answer) = self.newer_loop(&current).await? {
            return Ok(answer);
        }
        let sender = match (author, &parsed) {
            (DashboardAuthor::Account(user), _) => user.clone(),
            (DashboardAuthor::Operator, Ok(command)) => command.sender_for_operator(&current),
            (DashboardAuthor::Operator, Err(_)) => command::operator(),
        };
        let command = parsed.as_ref().ok().cloned();
        let now = self.context.clock.now();
        let origin = Origin {
            key: format!("dashboard/{}", uuid::Uuid::now_v7()),
            received_at: now,
            reported: false,
            polled: false,
            entry: command.as_ref().map(|command| entry(&current, (author, by), command)),
        };
        let written = WrittenCommand { parsed, at: None, created_at: now, given_at: now, part: 0 };
        let given = self.give(account, &place, None, written, &sender, &origin).await?;
        match (given, command) {
            (GivenCommand::Invalid(reply), _) => Ok(DashboardAnswer { reply, outcome: DashboardOutcome::Invalid }),
            (GivenCommand::Refused(reply), _) => Ok(DashboardAnswer { reply, outcome: DashboardOutcome::Refused }),
            (GivenCommand::Help(view), _) => Ok(said(DashboardOutcome::Answered, help_lines(&view))),
            (GivenCommand::Taken(IntakeOutcome::Ignored(why)), _) => {
                Ok(not_taken(DashboardOutcome::Refused, why, None))
            }
            (GivenCommand::Taken(outcome), command) => {
                let started = match outcome {
                    IntakeOutcome::Done(what) => what,
                    _ => "the command was given before".to_owned(),
                };
                let input = command
                    .map(|command| LoopInput::Command(CommandInput::Given { by: sender, command, comment: None }));
                let Some(input) = input.filter(|_| current.state.is_open()) else {
                    return Ok(said(DashboardOutcome::Answered, vec![started]));
                };
                self.answer_of(&current, &origin.part(0), &input).await
            }
        }
    }

    /// Returns the refusal of a command if the issue has a newer loop, which would receive the command instead;
    /// otherwise `None`.
    async fn newer_loop(&self, current: &Loop) -> Result<Option<DashboardAnswer>, DashboardCommandError> {
        let place = current.issue.clone();
        let found = self.context.store.read(move |c| loops::find(c, &place.repo, place.issue)).await?;
        let newer = found.filter(|(newest, ..)| *newest != current.id);
        Ok(newer.map(|(newest, ..)| {
            let why = format!("The loop {} has ended; {newest} is the newest loop of its issue.", current.id);
            not_taken(DashboardOutcome::Refused, why, None)
        }))
    }

    /// Waits until the loop has processed an input, and returns the reason of its step.
    async fn answer_of(
        &self,
        current: &Loop,
        origin: &str,
        input: &LoopInput,
    ) -> Result<DashboardAnswer, DashboardCommandError> {
        let processed = async {
            loop {
                let key = origin.to_owned();
                if let Some(outcome) = self.context.store.read(move |c| loops::outcome_of_input(c, &key)).await? {
                    return Ok::<_, StoreError>(outcome);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let Ok(processed) = tokio::time::timeout(ANSWER_TIMEOUT, processed).await else {
            let why = "The command is stored; the loop will process it in a moment.".to_owned();
            return Ok(said(DashboardOutcome::Stored, vec![why]));
        };
        let outcome = processed?;
        if outcome == InputOutcome::SetAside {
            let why = "The loop could not process the command; the service's log has the reason.".to_owned();
            return Ok(not_taken(DashboardOutcome::Refused, why, None));
        }
        let (id, before, wanted) = (current.id.clone(), current.version, input.clone());
        let line = self.context.store.read(move |c| loops::step_of_input(c, &id, before, &wanted)).await?;
        let (step, reasons) = line.map_or((0, Vec::new()), |line| (line.seq, line.reasons));
        let reason = reasons.into_iter().next().filter(|reason| !reason.is_empty());
        Ok(match outcome {
            InputOutcome::Refused => not_taken(DashboardOutcome::Refused, reason.unwrap_or_default(), None),
            _ => said(DashboardOutcome::Taken(step), reason.into_iter().collect()),
        })
    }
}

fn said(outcome: DashboardOutcome, lines: Vec<String>) -> DashboardAnswer {
    DashboardAnswer { reply: CommandReply { command: String::new(), ok: true, lines, nearest: None }, outcome }
}

fn not_taken(outcome: DashboardOutcome, problem: String, nearest: Option<String>) -> DashboardAnswer {
    DashboardAnswer {
        reply: CommandReply { command: String::new(), ok: false, lines: vec![problem], nearest },
        outcome,
    }
}

/// Returns the entry of the audit log for a command: the person, the command, the permission it is based on, and the
/// interface.
fn entry(current: &Loop, (author, by): (&DashboardAuthor, &CommandPath), command: &LoopCommand) -> AuditEntry {
    let name = command.row().name;
    let who = match author {
        DashboardAuthor::Account(user) => format!("{} (id {}) gave", user.login, user.id.0),
        DashboardAuthor::Operator => {
            let sender = command.sender_for_operator(current);
            match sender == command::operator() {
                true => "the operator gave".to_owned(),
                false => format!("the operator, on the authority of {}, gave", sender.login),
            }
        }
    };
    let reason = format!("{who} the command `{name}` {by}");
    AuditEntry::new(current.spent.iterations, AuditEvent::Answered, reason)
}

/// Returns the lines of the help text: the commands with their effects, the people who may give them, and the current
/// limits.
fn help_lines(view: &View) -> Vec<String> {
    let View::Help(HelpView { commands, settings, who_may, .. }) = view else { return Vec::new() };
    let commands = commands.iter().map(|hint| format!("{}: {}", hint.usage, hint.what));
    let who = std::iter::once(format!("Commands are accepted from {who_may}."));
    commands.chain(who).chain(settings.iter().map(|setting| format!("{}: {}", setting.name, setting.value))).collect()
}
