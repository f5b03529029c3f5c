//! Commands in comments and the permission of their authors.

use failpoint::kill_point;
use ralph_types::failure::Failure;

use super::approved_text::ApprovedText;
use super::existing_pulls::PullAccess;
use super::labels::NewLoop;
use crate::domain::knowledge::memory::Proposal;
use crate::domain::lifecycle::effect::{ForgeEffect, Mark};
use crate::domain::loops::command::{self, CommandError, LoopCommand};
use crate::domain::loops::{CommandInput, CommentRef, LoopInput};
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot};
use crate::domain::model::ids::{IssueRef, Number, RepoRef, Timestamp, User};
use crate::domain::report;
use crate::domain::report::view::{CommandReply, View};
use crate::domain::trust::permit::{Authorization, DenyAnswer};
use crate::engine::forges::account::ForgeAccount;
use crate::engine::intake::page::document_of;
use crate::engine::intake::{Intake, IntakeError, IntakeOutcome, IntakeResult, Origin, done, ignored};
use crate::forge::ForgeErrorKind;
use crate::store::forge_state;
use crate::store::loops::{self, IssueRole};
use crate::store::memory::proposals;

/// Maximum time by which a command may be older than the loop that it changes, in milliseconds; it covers a forge
/// whose clock is behind. An older command was written for an earlier loop.
const OLDEST_COMMAND_MS: i64 = 600_000;

/// Command from a comment or the dashboard.
pub(super) struct WrittenCommand {
    pub parsed: Result<LoopCommand, CommandError>,
    /// Comment; `None` for a command of the dashboard.
    pub at: Option<CommentRef>,
    /// Time of the comment.
    pub created_at: Timestamp,
    /// Time of the command, which is compared with the start of the loop.
    pub given_at: Timestamp,
    /// 0-based position of the command in its comment.
    pub part: usize,
}

/// Result of a command, before it is reported.
pub(super) enum GivenCommand {
    /// Processed: the command became an input of a loop, started a loop, or has no effect.
    Taken(IntakeOutcome),
    /// The command has a mistake.
    Invalid(CommandReply),
    /// There is no loop that it could change.
    Refused(CommandReply),
    /// The command asks for help on an issue without an open loop.
    Help(Box<View>),
}

impl Intake {
    /// Executes the commands of a new comment in order. A comment is processed only once, even if it is delivered
    /// twice or the reconciler also finds it.
    pub(in crate::engine) async fn comment(
        &self,
        account: &ForgeAccount,
        repo: RepoRef,
        issue: IssueSnapshot,
        comment: CommentSnapshot,
        sender: User,
        origin: &Origin,
    ) -> IntakeResult {
        let key = origin.key.clone();
        let mentioned = command::is_mentioned(&comment.body);
        if mentioned && self.context.store.read(move |c| forge_state::is_processed(c, &key)).await? {
            return Ok(IntakeOutcome::Repeated);
        }
        let (commands, verdict) = match mentioned {
            true => self.commands_of(account, &repo, issue.number, &comment, &sender, origin).await?,
            false => (Vec::new(), Authorization::Allow),
        };
        if commands.is_empty() && origin.reported && issue.is_pull {
            return self.plain_comment(account, repo, issue.number, comment, sender, origin).await;
        }
        let outcome = match commands.is_empty() {
            true if !mentioned => return ignored("no command in it"),
            // The page is not asked for again.
            true => IntakeOutcome::Ignored("no command in it".to_owned()),
            false => self.commands(account, repo, issue, comment, sender, (commands, verdict), origin).await?,
        };
        kill_point("K30");
        let (key, now) = (origin.key.clone(), self.context.clock.now());
        self.context.store.write(move |c| forge_state::mark_processed(c, &key, now)).await?;
        Ok(outcome)
    }

    /// Returns the commands in a comment, as the forge displays it, and whether its author may give any.
    async fn commands_of(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        number: Number,
        comment: &CommentSnapshot,
        sender: &User,
        origin: &Origin,
    ) -> Result<(Vec<Result<LoopCommand, CommandError>>, Authorization), IntakeError> {
        if comment.author.as_ref().is_some_and(|author| author.id != sender.id) {
            // An error, so that the comment does not count as processed.
            return Err(IntakeError::Contradicted("the comment was not sent by its author".into()));
        }
        let (html, verdict) = match origin.reported {
            true => {
                let (found, verdict) = self.confirmed_comment(account, repo, number, comment, sender).await?;
                (found.html, verdict)
            }
            false => (comment.html.clone(), self.permitted(account, repo, sender).await?),
        };
        let document = document_of(account, repo, &comment.body, html).await?;
        Ok((command::parse(&document), verdict))
    }

    #[expect(clippy::too_many_arguments, reason = "the effects of a comment")]
    pub(super) async fn commands(
        &self,
        account: &ForgeAccount,
        repo: RepoRef,
        issue: IssueSnapshot,
        comment: CommentSnapshot,
        sender: User,
        (commands, verdict): (Vec<Result<LoopCommand, CommandError>>, Authorization),
        origin: &Origin,
    ) -> IntakeResult {
        let place = IssueRef { repo, issue: issue.number };
        let at = CommentRef { on: issue.number, id: Some(comment.id) };
        if !matches!(verdict, Authorization::Deny { answer: DenyAnswer::Silent, .. }) {
            self.still_named(account, &place.repo).await?;
        }
        if let Authorization::Deny { reason, answer } = verdict {
            match answer {
                DenyAnswer::Silent => {}
                DenyAnswer::ThumbsDown => {
                    self.enqueue_effect(&place, ForgeEffect::React { comment: comment.id, mark: Mark::Refused })
                        .await?;
                }
                DenyAnswer::CannotTell(teams) => self.reply_cannot_tell(&place, &sender, &teams).await?,
            }
            return ignored(format!("{} may not give commands: {reason}", sender.login));
        }
        self.enqueue_effect(&place, ForgeEffect::React { comment: comment.id, mark: Mark::Seen }).await?;
        let count = commands.len();
        // The commands after one that starts a loop are for that loop.
        let starts = commands.iter().flatten().any(|command| command.starts().is_some());
        let given_at = if starts { Timestamp(i64::MAX) } else { comment.created_at };
        for (part, parsed) in commands.into_iter().enumerate() {
            let written = WrittenCommand { parsed, at: Some(at), created_at: comment.created_at, given_at, part };
            self.command(account, &place, &issue, written, &sender, origin).await?;
        }
        done(format!("{count} command(s) of {}", sender.login))
    }

    /// Executes a command of a comment, and replies to it if it cannot be executed.
    async fn command(
        &self,
        account: &ForgeAccount,
        place: &IssueRef,
        issue: &IssueSnapshot,
        written: WrittenCommand,
        sender: &User,
        origin: &Origin,
    ) -> IntakeResult {
        let at = written.at.unwrap_or(CommentRef { on: place.issue, id: None });
        let key = format!("reply/{}/{}", at.id.map_or(0, |id| id.0), written.part);
        match self.give(account, place, Some(issue), written, sender, origin).await? {
            GivenCommand::Taken(outcome) => Ok(outcome),
            GivenCommand::Invalid(reply) | GivenCommand::Refused(reply) => {
                self.refuse(place, at, &key, reply).await?;
                done("answered")
            }
            GivenCommand::Help(view) => {
                self.enqueue_effect(place, ForgeEffect::Comment { key, on: at.on, view }).await?;
                if let Some(comment) = at.id {
                    self.enqueue_effect(place, ForgeEffect::React { comment, mark: Mark::Done }).await?;
                }
                done("help")
            }
        }
    }

    /// Enqueues a command as an input of an issue's loop, or starts a loop. `issue` is the issue as the command's
    /// delivery describes it; `None` for a command that was given just now.
    pub(super) async fn give(
        &self,
        account: &ForgeAccount,
        place: &IssueRef,
        issue: Option<&IssueSnapshot>,
        written: WrittenCommand,
        sender: &User,
        origin: &Origin,
    ) -> Result<GivenCommand, IntakeError> {
        let WrittenCommand { parsed, at, created_at, given_at, part } = written;
        let command = match self.valid(place, parsed).await? {
            Ok(command) => command,
            Err(reply) => return Ok(GivenCommand::Invalid(reply)),
        };
        let taken = |outcome: IntakeResult| outcome.map(GivenCommand::Taken);
        let refused = |problem: String, nearest: Option<String>| {
            let reply = CommandReply { command: String::new(), ok: false, lines: vec![problem], nearest };
            Ok(GivenCommand::Refused(reply))
        };
        let (repo, number) = (place.repo.clone(), place.issue);
        let found = self.context.store.read(move |c| loops::find(c, &repo, number)).await?;
        let mut now = None;
        if command.starts().is_some() && !matches!(found, Some((_, _, true))) {
            // The delivery contains the issue as of the time of the comment.
            match account.forge.issue(&place.repo, place.issue).await {
                Err(e) if e.kind == ForgeErrorKind::NotFound => {
                    return taken(ignored("stale: the issue no longer exists"));
                }
                found => now = Some(found?).filter(|now| now.open),
            }
        }
        match (found, command, now) {
            (Some((id, _, true)), command, _) => {
                let of = id.clone();
                let begun =
                    self.context.store.read(move |c| loops::get(c, &of)).await?.map(|current| current.created_at);
                if begun.is_some_and(|begun| given_at < begun.plus_ms(-OLDEST_COMMAND_MS)) {
                    return taken(ignored(format!("stale: the command is older than {id}")));
                }
                // The dashboard shows the stored plan.
                if at.is_some()
                    && matches!(command, LoopCommand::Approve(_))
                    && let Some(problem) = self.edited_plan(account, &place.repo, &id).await?
                {
                    return refused(problem.to_string(), None);
                }
                let input = LoopInput::Command(CommandInput::Given { by: sender.clone(), command, comment: at });
                taken(self.enqueue_input(&id, input, origin, part).await)
            }
            (_, LoopCommand::Help(_), _) => {
                let view = report::help(&self.forges.settings.policy(&place.repo.forge));
                Ok(GivenCommand::Help(Box::new(view)))
            }
            (None | Some((_, IssueRole::Issue, false)), command, Some(now)) => {
                let Some((options, wishes)) = command.starts() else { return taken(done("answered")) };
                if let Err(problem) = options.commands(&[]) {
                    return refused(problem.to_string(), None);
                }
                let existing = match now.is_pull {
                    true => match self.existing_pull(account, &place.repo, place.issue, options).await? {
                        PullAccess::Usable(pull) => Some(pull),
                        PullAccess::Refused { why } => return refused(why, None),
                    },
                    false => None,
                };
                let (place, by) = (place.clone(), sender.clone());
                let (options, plan) = (options.clone(), wishes.map(str::to_owned));
                let text = ApprovedText::of(issue.unwrap_or(&now.clone()), now, created_at);
                let text = self.approved(account, &place.repo, text, origin).await?;
                if let Some(typed) = options.confirm.as_deref().filter(|typed| !text.hash().starts_with(*typed)) {
                    let problem = format!("`{typed}` is not the hash of the current text; no loop was started.");
                    return refused(problem.to_string(), None);
                }
                let wanted = NewLoop { options, plan, request: command.request().to_owned(), existing };
                taken(self.begin(account, place, text, by, wanted, at, origin).await)
            }
            // A rule is for later loops, so it may come after the end of this one.
            (Some((id, _, false)), LoopCommand::Guide(guide), _) if guide.proposal.is_some() => {
                let command = LoopCommand::Guide(guide);
                let input = LoopInput::Command(CommandInput::Given { by: sender.clone(), command, comment: at });
                taken(self.enqueue_input(&id, input, origin, part).await)
            }
            (Some((id, _, false)), ..) => {
                let problem = format!(
                    "The loop {id} has ended. Set the label `{}` on its issue, or `/ralph run` there, to start a new one.",
                    self.forges.run_label(&place.repo)
                );
                refused(problem, None)
            }
            (None, ..) => {
                let problem = format!(
                    "There is no loop here. To start one, set the label `{}` on an open issue, or comment `/ralph run` on an open issue or pull request.",
                    self.forges.run_label(&place.repo)
                );
                refused(problem, Some("/ralph run".into()))
            }
        }
    }

    /// Returns the command if it is valid; otherwise replies with the problem and returns `None`.
    pub(super) async fn understood(
        &self,
        place: &IssueRef,
        parsed: Result<LoopCommand, CommandError>,
        at: CommentRef,
        key: &str,
    ) -> Result<Option<LoopCommand>, IntakeError> {
        match self.valid(place, parsed).await? {
            Ok(command) => Ok(Some(command)),
            Err(reply) => {
                self.refuse(place, at, key, reply).await?;
                Ok(None)
            }
        }
    }

    /// Returns the command if it is valid; otherwise returns the reply that explains the mistake.
    async fn valid(
        &self,
        place: &IssueRef,
        parsed: Result<LoopCommand, CommandError>,
    ) -> Result<Result<LoopCommand, CommandReply>, IntakeError> {
        let (command, problem, nearest) = match parsed {
            Err(CommandError { line, problem, nearest }) => (line, problem, nearest),
            Ok(command) => match self.unknown_backend(&command) {
                Some((problem, nearest)) => (String::new(), problem, nearest),
                None => match self.with_proposal(place, command).await? {
                    Ok(command) => return Ok(Ok(command)),
                    Err(problem) => (String::new(), problem.to_string(), None),
                },
            },
        };
        Ok(Err(CommandReply { command, ok: false, lines: vec![problem], nearest }))
    }

    /// Inserts the text of the proposal that a command accepts. The error is a message for the command's author.
    async fn with_proposal(
        &self,
        place: &IssueRef,
        mut command: LoopCommand,
    ) -> Result<Result<LoopCommand, Failure>, IntakeError> {
        let LoopCommand::Guide(guide) = &mut command else { return Ok(Ok(command)) };
        let Some(number) = guide.proposal else { return Ok(Ok(command)) };
        if !self.learns {
            return Ok(Err(Failure::new("Loops here do not learn from each other, so there are no proposals.")));
        }
        let found = self.context.store.read(move |c| proposals::proposal(c, number)).await?;
        let here = |proposal: &Proposal| {
            proposal.repository.forge == place.repo.forge && proposal.repository.id == place.repo.id
        };
        Ok(match found.filter(here) {
            Some(proposal) => {
                guide.text = proposal.text;
                Ok(command)
            }
            None => Err(Failure::new(format!(
                "There is no proposal {number} in this repository. To remember a text, write more than a number."
            ))),
        })
    }

    /// Replies that a command cannot be executed.
    async fn refuse(
        &self,
        place: &IssueRef,
        at: CommentRef,
        key: &str,
        reply: CommandReply,
    ) -> Result<(), IntakeError> {
        let view = Box::new(View::Reply(reply));
        self.enqueue_effect(place, ForgeEffect::Comment { key: key.to_owned(), on: at.on, view }).await?;
        match at.id {
            Some(comment) => self.enqueue_effect(place, ForgeEffect::React { comment, mark: Mark::Wrong }).await,
            None => Ok(()),
        }
    }

    /// Returns the problem and the most similar backend name if a command names an unknown backend; otherwise `None`.
    pub(super) fn unknown_backend(&self, command: &LoopCommand) -> Option<(String, Option<String>)> {
        let name =
            command.options()?.backend.as_deref().filter(|name| !self.backends.iter().any(|known| known == name))?;
        let likely = self.backends.iter().min_by_key(|known| strsim::damerau_levenshtein(name, known));
        let nearest = likely.map(|likely| format!("--backend {likely}"));
        Some((format!("There is no backend `{name}`; available: {}.", self.backends.join(", ")), nearest))
    }
}
