//! Plan gate: permitted actions of a loop before its plan is approved.

use super::parts::LoopKnowledge;
use super::planning::{PlanApproval, Planning, ProposedPlan};

impl LoopKnowledge {
    /// Whether a required plan is not approved yet, so that no iteration may start.
    pub fn lacks_approval(&self) -> bool {
        self.planning.as_ref().is_some_and(|planning| planning.approval.is_none())
    }

    /// Whether the next agent run makes a plan.
    pub fn plans_next(&self) -> bool {
        self.planning.as_ref().is_some_and(Planning::plans_next)
    }

    /// Returns the plan that is waiting for approval; `None` if there is none.
    pub fn waiting_plan(&self) -> Option<&ProposedPlan> {
        self.planning.as_ref()?.waiting()
    }

    /// Returns the approved plan with its approval; `None` if no plan is approved.
    pub fn approved_plan(&self) -> Option<(&ProposedPlan, &PlanApproval)> {
        let planning = self.planning.as_ref()?;
        planning.proposed.as_ref().zip(planning.approval.as_ref())
    }
}
