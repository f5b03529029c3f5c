//! Applies changes that review comments suggest, as a commit of the service.

use std::collections::BTreeMap;

use ralph_types::failure::Failure;
use tokio_util::sync::CancellationToken;

use super::git::{host_of, on_top, own_subject};
use crate::domain::loops::{Loop, LoopInput, SuggestedChange, WorkOutcome, with_suggestion};
use crate::domain::model::ids::{CommentId, RepoRef};
use crate::domain::trust::outbound::{CommitText, Outbound, Trailer};
use crate::engine::receipt::{EffectError, Receipt};
use crate::engine::work::Branches;

impl Branches {
    /// Applies suggested changes to the head of a loop as one commit. Changes that do not apply are skipped.
    pub(super) async fn apply_suggestions(
        &self,
        repo: &RepoRef,
        current: &Loop,
        ticket: u64,
        changes: &[SuggestedChange],
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        let (Some(parent), Some(base)) = (&current.branch.head, &current.branch.base) else {
            return Err(EffectError::Permanent { why: "the loop has no commit to apply changes to".into() });
        };
        self.verification.fresh_tree(current, repo, parent, cancel).await?;
        let mut files: BTreeMap<&str, String> = BTreeMap::new();
        let (mut applied, mut failed): (Vec<&SuggestedChange>, Vec<(CommentId, String)>) = (Vec::new(), Vec::new());
        for change in changes {
            match self.with_change(repo, current, &files, change).await? {
                Ok(text) => {
                    files.insert(&change.path, text);
                    applied.push(change);
                }
                Err(why) => failed.push((change.comment, why.to_string())),
            }
        }
        for (path, text) in &files {
            self.verification.workspaces.write_text(&current.id, repo, path, text).await?;
        }
        let message = self.suggestions_message(repo, current, &applied);
        let request = on_top(current, repo, (parent, base), &message);
        let info = self.verification.workspaces.commit(request).await?;
        let change = Box::new(self.change(current, &request, info).await?);
        let text = format!("{} applied, {} not", applied.len(), failed.len());
        let applied = applied.iter().map(|one| one.comment).collect();
        let input = LoopInput::Outcome { ticket, outcome: WorkOutcome::SuggestionsApplied { change, applied, failed } };
        Ok(Receipt::with_input(text, input))
    }

    /// Returns the file's text with a suggestion applied, or the reason why it does not apply. `files` has the texts
    /// of files that earlier suggestions changed.
    async fn with_change(
        &self,
        repo: &RepoRef,
        current: &Loop,
        files: &BTreeMap<&str, String>,
        change: &SuggestedChange,
    ) -> Result<Result<String, Failure>, EffectError> {
        let Some(head) = &current.branch.head else { return Ok(Err(Failure::new("there is no commit"))) };
        if current.settings.policy.protected.refuses(&change.path) {
            return Ok(Err(Failure::new("the file is protected")));
        }
        let text_at =
            async |commit| self.verification.workspaces.text_at(&current.id, repo, commit, &change.path).await;
        let now = match files.get(change.path.as_str()) {
            Some(text) => Some(text.clone()),
            None => text_at(head).await?,
        };
        let (Some(now), Some(commented)) = (now, text_at(&change.lines.commit).await?) else {
            return Ok(Err(Failure::new("the file is not a text file of the branch")));
        };
        Ok(with_suggestion(&commented, &now, change))
    }

    fn suggestions_message(
        &self,
        repo: &RepoRef,
        current: &Loop,
        applied: &[&SuggestedChange],
    ) -> Outbound<CommitText> {
        let host = host_of(&current.task.url).unwrap_or_default();
        let place = |one: &&SuggestedChange| format!("- {}:{}", one.path, one.lines.first);
        let lines: Vec<String> = applied.iter().map(place).collect();
        let mut trailers = self.own_trailers(repo, current);
        let mut authors: Vec<_> = applied.iter().map(|one| (one.by.login.clone(), one.by.id.0)).collect();
        authors.sort();
        authors.dedup();
        trailers.extend(authors.into_iter().map(|(login, id)| Trailer::CoAuthor(login, id, host.clone())));
        self.git.outbound.message(&own_subject(current, "apply suggested changes"), &lines, &trailers)
    }
}
