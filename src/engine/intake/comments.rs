//! Comments: which commands are in them, and whether their author may give them.

use super::{Intake, Origin, done, ignored, text_hash};
use crate::domain::command::{self, Command, CommandError};
use crate::domain::effect::{Effect, Mark, Place};
use crate::domain::event::{CommentSnapshot, IssueSnapshot};
use crate::domain::ids::{RepoRef, Timestamp, User};
use crate::domain::lifecycle::{CommentRef, Input};
use crate::domain::permit::{DenyAnswer, Verdict};
use crate::domain::report;
use crate::domain::view::{CommandReply, View};
use crate::engine::{Engine, ForgeSeat};
use crate::failpoint::kill_point;
use crate::store::facts;
use crate::store::loops::{self, Role};

impl Engine {
    /// A new comment: its commands, in order. Told of twice, or found by the reconciler as well, it is read once.
    pub(in crate::engine) async fn comment(
        &self,
        seat: &ForgeSeat,
        repo: RepoRef,
        issue: IssueSnapshot,
        comment: CommentSnapshot,
        sender: User,
        received_at: Timestamp,
    ) -> Intake {
        let commands = command::parse(&comment.body);
        if commands.is_empty() {
            return ignored("no command in it");
        }
        let origin = Origin::comment(&repo, &comment, received_at);
        let key = origin.key.clone();
        if self.store.read(move |c| facts::heard(c, &key)).await? {
            return ignored("this comment was read already");
        }
        let outcome = self.commands(seat, repo, issue, comment, sender, commands, &origin).await?;
        kill_point("K30");
        let (key, now) = (origin.key, self.clock.now());
        self.store.write(move |c| facts::hear(c, &key, now)).await?;
        Ok(outcome)
    }

    #[expect(clippy::too_many_arguments, reason = "one comment and all that it came with")]
    pub(super) async fn commands(
        &self,
        seat: &ForgeSeat,
        repo: RepoRef,
        issue: IssueSnapshot,
        comment: CommentSnapshot,
        sender: User,
        commands: Vec<Result<Command, CommandError>>,
        origin: &Origin,
    ) -> Intake {
        if comment.author.as_ref().is_some_and(|author| author.id != sender.id) {
            return ignored("not sent by its author");
        }
        let place = Place { repo, issue: issue.number };
        let at = CommentRef { on: issue.number, id: Some(comment.id) };
        if let Verdict::Deny { reason, answer } = self.permitted(seat, &place.repo, &sender).await? {
            if answer == DenyAnswer::ThumbsDown {
                self.say(&place, Effect::React { comment: comment.id, mark: Mark::Refused }).await?;
            }
            return ignored(format!("{} may not command: {reason}", sender.login));
        }
        self.say(&place, Effect::React { comment: comment.id, mark: Mark::Seen }).await?;
        let count = commands.len();
        for (part, parsed) in commands.into_iter().enumerate() {
            self.command(seat, &place, &issue, parsed, &sender, at, origin, part).await?;
        }
        done(format!("{count} command(s) of {}", sender.login))
    }

    #[expect(clippy::too_many_arguments, reason = "one command and all that it came with")]
    pub(super) async fn command(
        &self,
        seat: &ForgeSeat,
        place: &Place,
        issue: &IssueSnapshot,
        parsed: Result<Command, CommandError>,
        sender: &User,
        at: CommentRef,
        origin: &Origin,
        part: usize,
    ) -> Intake {
        let key = format!("reply/{}/{part}", at.id.map_or(0, |id| id.0));
        let wrong = |line: String, problem: String, nearest: Option<String>| {
            let view = View::Reply(CommandReply { command: line, ok: false, lines: vec![problem], nearest });
            Effect::Comment { key: key.clone(), on: at.on, view: Box::new(view) }
        };
        let refuse = async |effect: Effect| -> Intake {
            self.say(place, effect).await?;
            if let Some(comment) = at.id {
                self.say(place, Effect::React { comment, mark: Mark::Wrong }).await?;
            }
            done("answered")
        };
        let command = match parsed {
            Err(CommandError { line, problem, nearest }) => return refuse(wrong(line, problem, nearest)).await,
            Ok(command) => command,
        };
        if let Some((problem, nearest)) = self.unknown_backend(&command) {
            return refuse(wrong(String::new(), problem, nearest)).await;
        }
        let (repo, number) = (place.repo.clone(), place.issue);
        let found = self.store.read(move |c| loops::find(c, &repo, number)).await?;
        match (found, command) {
            (Some((id, _, true)), command) => {
                let input = Input::Command { by: sender.clone(), command, comment: Some(at) };
                self.tell(&id, input, origin, part).await
            }
            (_, Command::Help) => {
                let view = report::help(&self.settings.policy(&place.repo.forge));
                self.say(place, Effect::Comment { key: key.clone(), on: at.on, view: Box::new(view) }).await?;
                if let Some(comment) = at.id {
                    self.say(place, Effect::React { comment, mark: Mark::Done }).await?;
                }
                done("help")
            }
            (None | Some((_, Role::Issue, false)), Command::Run { options }) if !issue.is_pull && issue.open => {
                let (place, by) = (place.clone(), sender.clone());
                if let Some(typed) =
                    options.confirm.as_deref().filter(|typed| !text_hash(&issue.title, &issue.body).starts_with(*typed))
                {
                    let problem = format!("`{typed}` is not the hash of the text as it is now; nothing was started.");
                    return refuse(wrong(String::new(), problem, None)).await;
                }
                self.begin(seat, place, issue.clone(), by, options, Some(at), origin).await
            }
            (Some((id, _, false)), _) => {
                let problem = format!(
                    "The loop {id} has ended. Set the label `{}` on its issue, or `/ralph run` there, to start a new one.",
                    self.run_label(&place.repo)
                );
                refuse(wrong(String::new(), problem, None)).await
            }
            (None, _) => {
                let problem = format!(
                    "There is no loop here. Set the label `{}`, or `/ralph run`, on an open issue.",
                    self.run_label(&place.repo)
                );
                refuse(wrong(String::new(), problem, Some("/ralph run".into()))).await
            }
        }
    }

    /// What is wrong with the backend that a command names, and the one that was likely meant.
    pub(super) fn unknown_backend(&self, command: &Command) -> Option<(String, Option<String>)> {
        let (Command::Run { options } | Command::Resume { options, .. }) = command else { return None };
        let name = options.backend.as_deref().filter(|name| !self.backends.contains_key(*name))?;
        let mut known: Vec<&str> = self.backends.keys().map(String::as_str).collect();
        known.sort_unstable();
        let likely = known.iter().min_by_key(|known| strsim::damerau_levenshtein(name, known));
        let nearest = likely.map(|likely| format!("--backend {likely}"));
        Some((format!("No backend of that name can be used; there is {}.", known.join(", ")), nearest))
    }
}
