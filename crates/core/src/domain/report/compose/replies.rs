//! Commands that are valid in a loop's state.

use crate::domain::loops::{EscalationCause, Loop, LoopLimit, LoopState, ProposedPlan};
use crate::domain::model::ids::Money;
use crate::domain::report::view::CommandHint;

/// Creates the hint for a command and its effect.
pub(super) fn hint(usage: impl Into<String>, what: &str) -> CommandHint {
    CommandHint { usage: usage.into(), what: what.into() }
}

/// Returns the commands that are valid in the loop's state.
pub fn commands(current: &Loop) -> Vec<CommandHint> {
    let guide = || hint("/ralph guide TEXT", "add guidance for the next iteration");
    let retry =
        current.retained_iterations().next().map(|_| hint("/ralph retry", "discard the last iteration and repeat it"));
    let abort = || hint("/ralph abort", "end the loop and keep the branch");
    match current.state {
        LoopState::NeedsCriteria => vec![hint("/ralph run --check \"COMMAND\"", "start with this check"), abort()],
        LoopState::NeedsConfirm => {
            let short = current.task.hash.get(..8).unwrap_or_default();
            vec![hint(format!("/ralph run --confirm {short}"), "start with the text as shown"), abort()]
        }
        LoopState::NeedsApproval | LoopState::NeedsAnswer => {
            let hash = current.knowledge.waiting_plan().map_or("", ProposedPlan::short_hash);
            let approve = |text: &str, what: &str| hint(format!("/ralph approve {hash}{text}"), what);
            let mut hints = match current.state {
                LoopState::NeedsAnswer => vec![approve(" ANSWERS", "start with this plan and your answers")],
                _ => vec![
                    approve("", "start with exactly this plan"),
                    approve(" CHANGES", "start with this plan and your changes"),
                ],
            };
            hints.extend([hint("/ralph plan CHANGES", "request another plan"), hint("/ralph abort", "end the loop")]);
            hints
        }
        LoopState::Queued | LoopState::Waiting => vec![hint("/ralph pause", "pause the loop"), guide(), abort()],
        LoopState::Running => vec![guide(), hint("/ralph pause", "pause after this iteration"), abort()],
        LoopState::Paused if !current.open_findings().is_empty() => {
            let mut hints = vec![
                hint("/ralph accept-tests", "accept the changes to tests as they are now"),
                hint("/ralph resume GUIDANCE", "have the agent restore them; guidance is optional"),
            ];
            hints.extend(retry.into_iter().chain([abort()]));
            hints
        }
        LoopState::Paused | LoopState::Failed => {
            let mut hints = vec![hint("/ralph resume GUIDANCE", "continue; guidance is optional")];
            hints.extend(retry.into_iter().chain([abort()]));
            hints
        }
        LoopState::LimitReached => vec![limit_hint(current), abort()],
        LoopState::Review => vec![hint("/ralph guide TEXT", "request a change"), abort()],
        LoopState::Merged | LoopState::Closed | LoopState::Aborted => Vec::new(),
    }
}

/// Returns the `resume` command that raises the exceeded limit.
fn limit_hint(current: &Loop) -> CommandHint {
    let (spent, limits) = (&current.spent, &current.limits);
    let of_money = current.run.escalated == Some(EscalationCause::Limit(LoopLimit::Money));
    if limits.cost > Money(0) && (of_money || spent.cost >= limits.cost) {
        let more = limits.cost.plus(limits.cost).usd();
        return hint(format!("/ralph resume --budget {more:.2}"), "continue with a higher budget");
    }
    if limits.iterations.is_reached(spent.iterations) {
        let more = limits.iterations.plus(5);
        return hint(format!("/ralph resume --max-iterations {more}"), "continue with 5 more iterations");
    }
    if current.run.escalated == Some(EscalationCause::Limit(LoopLimit::Outlook)) {
        let more = limits.iterations.plus(10);
        return hint(format!("/ralph resume --max-iterations {more}"), "continue anyway, with 10 more iterations");
    }
    hint(format!("/ralph resume --timeout {}m", limits.time_ms / 60_000 + 60), "continue for another hour")
}
