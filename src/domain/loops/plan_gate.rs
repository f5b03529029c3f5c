//! Plan of a loop as a gate: what the loop may do before it has an approval.

use super::aggregate::Loop;
use super::planning::{PlanApproval, Planning, ProposedPlan};

impl Loop {
    /// Whether nothing may be implemented yet, because no plan is approved.
    pub fn lacks_approval(&self) -> bool {
        self.planning.as_ref().is_some_and(|planning| planning.approval.is_none())
    }

    /// Whether the next run of an agent makes a plan.
    pub fn plans_next(&self) -> bool {
        self.planning.as_ref().is_some_and(Planning::plans_next)
    }

    /// Returns the plan that waits for an approval, if any.
    pub fn waiting_plan(&self) -> Option<&ProposedPlan> {
        self.planning.as_ref()?.waiting()
    }

    /// Returns the approved plan with its approval, if any.
    pub fn approved_plan(&self) -> Option<(&ProposedPlan, &PlanApproval)> {
        let planning = self.planning.as_ref()?;
        planning.proposed.as_ref().zip(planning.approval.as_ref())
    }
}
