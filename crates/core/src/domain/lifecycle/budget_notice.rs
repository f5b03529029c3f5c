//! Notices to people when a loop has used most of its budget.

use super::StepContext;
use crate::domain::lifecycle::effect::ChannelEffect;
use crate::domain::loops::LoopState;
use crate::domain::report::notice::Notice;

/// Parts of the budget at which people are notified, in percent, largest first.
const PARTS: [u8; 2] = [90, 70];

/// Notifies people once when a running loop has used a part of its budget. The status comment shows it from then on.
pub(super) fn notify(turn: &mut StepContext) {
    if turn.next.state != LoopState::Running {
        return;
    }
    let used = turn.next.budget_percent(turn.now);
    let reached = PARTS.into_iter().find(|part| used >= *part);
    let Some(part) = reached.filter(|part| *part > turn.next.spent.budget_notice) else { return };
    turn.next.spent.budget_notice = part;
    if turn.next.settings.policy.supervision().oversight.auto_escalate {
        let notice = Notice::budget(&turn.next, part, turn.now);
        turn.push(ChannelEffect::Warn { notice: Box::new(notice) });
    }
}
