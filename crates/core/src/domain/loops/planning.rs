//! Planning of a loop: a plan that a person approves before anything is implemented.

use serde::{Deserialize, Serialize};

use super::agent_run::ServedBy;
use super::iteration::Guidance;
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::plan::{SHORT_HASH, TaskPlan};

/// Planning of a loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Planning {
    /// Wishes of maintainers for the plan, oldest first.
    pub wishes: Vec<Guidance>,
    /// Agent runs for a plan, oldest first.
    pub runs: Vec<PlanRun>,
    /// Number of consecutive runs, up to the last one, that made no plan.
    pub failed: u32,
    /// Reason why the last run made no plan; empty if it made one.
    pub problem: String,
    /// Newest plan; `None` if there is none yet.
    pub proposed: Option<ProposedPlan>,
    /// Whether a maintainer requested another plan instead of the newest one.
    pub another: bool,
    /// Approval of the newest plan; `None` if it is not approved.
    pub approval: Option<PlanApproval>,
    /// Number of the newest plan about which channels were notified; 0 for none.
    pub notified: u32,
    /// Number of the newest plan about which people were reminded; 0 for none.
    pub reminded: u32,
}

/// Plan that people can approve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProposedPlan {
    /// 1-based number among the loop's plans.
    pub number: u32,
    /// Plan.
    pub plan: TaskPlan,
    /// SHA-256 of the plan's text, in hexadecimal.
    pub hash: String,
    /// Time at which the run that made the plan ended.
    pub at: Timestamp,
}

impl ProposedPlan {
    /// Returns the start of the hash that is displayed.
    pub fn short_hash(&self) -> &str {
        self.hash.get(..SHORT_HASH).unwrap_or(&self.hash)
    }

    /// Whether `typed` is the start of this plan's hash, at least as long as the displayed part.
    pub fn is_named(&self, typed: &str) -> bool {
        typed.len() >= SHORT_HASH && self.hash.starts_with(&typed.to_ascii_lowercase())
    }
}

/// Approval of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanApproval {
    /// Login of the person.
    pub by: String,
    /// Time of the approval.
    pub at: Timestamp,
    /// Changes to the plan and answers to its questions, not sanitized; may be empty.
    pub changes: String,
}

/// Agent run for a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanRun {
    /// Backend that served the run.
    pub served: ServedBy,
    /// Cost of the run's model calls.
    pub cost: Money,
}

impl Planning {
    /// Creates a planning. `wishes` are the wishes in the request for the plan.
    pub fn new(wishes: Option<Guidance>) -> Self {
        Self { wishes: wishes.into_iter().collect(), ..Self::default() }
    }

    /// Whether the next agent run makes a plan.
    pub fn plans_next(&self) -> bool {
        self.approval.is_none() && (self.proposed.is_none() || self.another)
    }

    /// Returns the plan that is waiting for approval; `None` if there is none.
    pub fn waiting(&self) -> Option<&ProposedPlan> {
        self.proposed.as_ref().filter(|_| self.approval.is_none() && !self.another)
    }
}
