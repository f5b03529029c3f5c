//! Fills requests to confirm a task's text.

use crate::domain::loops::{Loop, TaskText};
use crate::domain::model::document::Unseen;
use crate::domain::report::view::{ConfirmReason, NeedsConfirmView, UnseenLine, View};

/// Fills the request to confirm the task's text.
pub fn needs_confirm(current: &Loop) -> View {
    let task = &current.task;
    let reason = match task.unconfirmed_editor {
        _ if task.edited_after => ConfirmReason::EditedAfter,
        None if task.has_unconfirmed_parts() => ConfirmReason::Unseen,
        _ => ConfirmReason::EditedBefore,
    };
    let view = confirm_view(reason, &task.text, &task.hash);
    View::NeedsConfirm(NeedsConfirmView {
        loop_id: Some(current.id.clone()),
        editor: task.unconfirmed_editor.clone(),
        ..view
    })
}

/// Fills the request to confirm the text of an issue without a loop. `hash` is the hash of the text.
pub fn missed_label(text: &TaskText, hash: &str) -> View {
    View::NeedsConfirm(confirm_view(ConfirmReason::MissedEvent, text, hash))
}

fn confirm_view(reason: ConfirmReason, text: &TaskText, hash: &str) -> NeedsConfirmView {
    NeedsConfirmView {
        loop_id: None,
        reason,
        task_text: text.agent_text(),
        hash: hash.get(..8).unwrap_or_default().into(),
        editor: None,
        unseen: unseen_lines(&text.unseen),
        excerpts: text.unseen.excerpts.iter().map(|excerpt| excerpt.text.clone()).collect(),
    }
}

/// Returns the kinds of parts that the forge does not display as text, with their counts.
fn unseen_lines(unseen: &Unseen) -> Vec<UnseenLine> {
    let lines = unseen.counts.iter();
    lines.map(|(kind, count)| UnseenLine { what: kind.name().into(), count: *count }).collect()
}
