//! Fills requests to confirm a task's text.

use std::collections::HashSet;

use crate::domain::loops::{Loop, LoopTask};
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
    let view = confirm_view(reason, (task.agent_text(), &task.unseen), &task.hash);
    View::NeedsConfirm(NeedsConfirmView {
        loop_id: Some(current.id.clone()),
        editor: task.unconfirmed_editor.clone(),
        ..view
    })
}

/// Fills the request to confirm the text of an issue without a loop. `html` is the body as rendered by the forge, and `hash`
/// is the hash of the issue's text.
pub fn missed_label(title: &str, (body, html): (&str, Option<&str>), hash: &str) -> View {
    let (text, unseen) = LoopTask::read_issue(title, body, html, &HashSet::new());
    View::NeedsConfirm(confirm_view(ConfirmReason::MissedEvent, (text, &unseen), hash))
}

fn confirm_view(reason: ConfirmReason, (task_text, unseen): (String, &Unseen), hash: &str) -> NeedsConfirmView {
    NeedsConfirmView {
        loop_id: None,
        reason,
        task_text,
        hash: hash.get(..8).unwrap_or_default().into(),
        editor: None,
        unseen: unseen_lines(unseen),
        excerpts: unseen.excerpts.iter().map(|excerpt| excerpt.text.clone()).collect(),
    }
}

/// Returns the kinds of parts that the forge does not display as text, with their counts.
fn unseen_lines(unseen: &Unseen) -> Vec<UnseenLine> {
    let lines = unseen.counts.iter();
    lines.map(|(kind, count)| UnseenLine { what: kind.name().into(), count: *count }).collect()
}
