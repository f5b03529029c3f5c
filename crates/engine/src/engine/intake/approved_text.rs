//! Text of an issue that a person approved by a label or command, and whether it is still the same.

use crate::domain::model::event::IssueSnapshot;
use crate::domain::model::ids::{RepoRef, Timestamp};
use crate::engine::forges::account::ForgeAccount;
use crate::engine::intake::{Intake, IntakeError, Origin, text_hash};
use crate::forge::{Permission, RecordedChanges};

/// Precision of the times that forges report, in milliseconds.
const RECORDED_MS: i64 = 1_000;

/// Text of an issue that somebody approved by a label or command.
pub(super) struct ApprovedText {
    /// The issue as the forge has it.
    pub(super) issue: IssueSnapshot,
    /// Time of the approval.
    pub(super) at: Timestamp,
    /// Whether the text changed since the approval, so that it has to be confirmed.
    pub(super) edited_after: bool,
}

impl ApprovedText {
    /// Creates the approved text. `reported` is the issue as the delivery of the approval describes it; its text is
    /// used only if it equals the current text on the forge.
    pub(super) fn of(reported: &IssueSnapshot, now: IssueSnapshot, at: Timestamp) -> Self {
        let edited_after = !now.has_text_of(reported);
        Self { issue: now, at, edited_after }
    }

    /// Returns the hash of the current title and body.
    pub(super) fn hash(&self) -> String {
        text_hash(&self.issue.title, &self.issue.body)
    }
}

impl Intake {
    /// Returns the approved text after comparing it with the edits that the forge recorded since the approval. A
    /// delayed delivery carries the text of the time when it was sent; polling sees the issue only as it is now. An
    /// issue that the service read itself needs no comparison.
    pub(super) async fn approved(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        text: ApprovedText,
        origin: &Origin,
    ) -> Result<ApprovedText, IntakeError> {
        let is_known = text.edited_after || !(origin.reported || origin.polled);
        let stands = is_known || self.text_stands_since(account, repo, &text.issue, text.at, origin).await?;
        Ok(ApprovedText { edited_after: text.edited_after || !stands, ..text })
    }

    /// Whether an issue still has the text of an earlier time, according to the forge's records. A delivery contains
    /// all edits by people with write access before it was sent; a poll does not.
    async fn text_stands_since(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        issue: &IssueSnapshot,
        at: Timestamp,
        origin: &Origin,
    ) -> Result<bool, IntakeError> {
        let Some(history) = account.forge.history() else { return Ok(!origin.polled) };
        let recorded = history.recorded_changes(repo, issue.number).await?;
        if recorded.renamed_at.is_some_and(|renamed_at| renamed_at > at) {
            return Ok(false);
        }
        if !history.records_edits() {
            return self.text_is_as_recorded(account, repo, issue, (at, recorded)).await;
        }
        let edits = history.issue_edits(repo, issue.number).await?;
        for edit in edits.into_iter().filter(|edit| edit.at > at) {
            let Some(editor) = edit.editor.filter(|_| !origin.polled) else { return Ok(false) };
            if account.forge.permission(repo, &editor).await? < Permission::Write {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an issue's text is unchanged since an earlier time, on a forge that does not record edits. True if the issue
    /// was not changed since, or if it was changed by an event that the forge recorded and only people with write
    /// access can have edited it before that event.
    pub(in crate::engine) async fn text_is_as_recorded(
        &self,
        account: &ForgeAccount,
        repo: &RepoRef,
        issue: &IssueSnapshot,
        (at, recorded): (Timestamp, RecordedChanges),
    ) -> Result<bool, IntakeError> {
        let happened_after = |at: Timestamp| issue.updated_at > at.plus_ms(RECORDED_MS);
        if !happened_after(at) {
            return Ok(true);
        }
        let unexplained = recorded.last_recorded_at.is_none_or(happened_after);
        let Some(author) = issue.author.as_ref().filter(|_| !unexplained) else { return Ok(false) };
        Ok(account.forge.permission(repo, author).await? >= Permission::Write)
    }
}
