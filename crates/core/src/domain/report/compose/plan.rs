//! Fills the views of a plan.

use super::{commands, moment, who_may};
use crate::domain::loops::{Loop, ProposedPlan};
use crate::domain::model::ids::AccountKind;
use crate::domain::report::view::{PlanLine, PlanView, View};
use crate::domain::trust::sanitize;

/// Returns the key of the comment that requests the approval of a plan.
pub fn plan_key(proposed: &ProposedPlan) -> String {
    format!("plan/{}", proposed.number)
}

/// Fills the comment that requests the approval of a plan.
pub fn plan(current: &Loop, proposed: &ProposedPlan) -> View {
    let (requester, plan) = (&current.people.requested_by, proposed.plan.clone());
    View::Plan(Box::new(PlanView {
        loop_id: current.id.clone(),
        hash: proposed.short_hash().to_owned(),
        summary: plan.summary,
        steps: plan.steps,
        files: plan.files,
        checks: plan.checks,
        not_doing: plan.not_doing,
        questions: plan.questions,
        mention: (requester.kind == AccountKind::User).then(|| requester.login.clone()),
        commands: commands(current),
        who_may: who_may(&current.settings.policy),
        reminder: false,
    }))
}

/// Fills the reminder of an unanswered plan.
pub fn plan_reminder(current: &Loop, proposed: &ProposedPlan) -> View {
    let mut view = plan(current, proposed);
    if let View::Plan(inner) = &mut view {
        inner.reminder = true;
    }
    view
}

/// Returns the approved or pending plan; `None` if there is none.
pub(super) fn plan_line(current: &Loop) -> Option<PlanLine> {
    let approved = current.knowledge.approved_plan();
    let plan = approved.map(|(plan, _)| plan).or_else(|| current.knowledge.waiting_plan())?;
    let approval = approved.map(|(_, approval)| approval);
    Some(PlanLine {
        hash: plan.short_hash().to_owned(),
        plan_text: plan.plan.text(),
        approved_by: approval.map_or_else(String::new, |approval| approval.by.clone()),
        approved_at: approval.map_or_else(String::new, |approval| moment(approval.at)),
        changes: approval.map_or_else(String::new, |approval| sanitize::for_prompt(&approval.changes)),
    })
}
