//! Suggested changes of maintainers. The service applies them unchanged before the agent runs again. A change that cannot be
//! applied becomes guidance for the agent.

use super::StepContext;
use crate::domain::lifecycle::effect::{Effect, ForgeEffect};
use crate::domain::loops::AppliedSuggestion;
use crate::domain::model::ids::CommentId;

/// Separates applied changes from failed changes before the loop processes their commit. Suggestions that arrived in the meantime
/// are kept for the next iteration.
pub(super) fn applied(turn: &mut StepContext, applied: Vec<CommentId>, failed: &[(CommentId, String)]) {
    let iteration = turn.next.current().map_or(0, |current| current.number);
    for one in std::mem::take(&mut turn.next.requests.suggestions) {
        if applied.contains(&one.comment) {
            turn.because(format!("the change that {} suggested for {} was applied", one.by.login, one.path));
            turn.next.requests.applied.push(AppliedSuggestion { iteration, change: one });
        } else if let Some((_, why)) = failed.iter().find(|(comment, _)| *comment == one.comment) {
            turn.because(format!("the change that {} suggested for {} does not apply: {why}", one.by.login, one.path));
            let mut remark = one.remark;
            remark.text.push_str(&format!("\n\n(The service could not apply the suggestion as it is: {why}.)"));
            turn.next.requests.guidance.push(remark);
        } else {
            turn.next.requests.suggestions.push(one);
        }
    }
    if let Some(current) = turn.next.current_mut() {
        current.applied = applied;
    }
}

/// Schedules suggested changes again whose commits were undone, because the files of iteration `best` were restored. The next
/// iteration applies them.
pub(super) fn undone(turn: &mut StepContext, best: u32) {
    if turn.next.requests.apply_again(|iteration| iteration > best) {
        turn.because("the loop applies the undone suggested changes again when it continues");
    }
}

/// Replies to the comments whose changes were pushed.
pub(super) fn pushed(turn: &mut StepContext) {
    let Some(current) = turn.next.current() else { return };
    let Some(commit) = current.commit.clone() else { return };
    let number = current.number;
    let is_repeated =
        |comment: &CommentId| turn.next.iterations.iter().any(|i| i.number < number && i.applied.contains(comment));
    let answer = |comment: &CommentId| {
        let again = if is_repeated(comment) { number } else { 0 };
        Effect::Forge(ForgeEffect::AnswerRemark { comment: *comment, commit: commit.clone(), applied: true, again })
    };
    let answers: Vec<_> = current.applied.iter().map(answer).collect();
    turn.effects.extend(answers);
}
