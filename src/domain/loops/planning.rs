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
    /// Runs that were to make a plan, oldest first.
    pub runs: Vec<PlanRun>,
    /// Number of the last runs in a row that made none.
    pub failed: u32,
    /// Reason for which the last run made none; empty if it made one.
    pub problem: String,
    /// Newest plan.
    pub proposed: Option<ProposedPlan>,
    /// Whether a maintainer wants another plan than the newest one.
    pub another: bool,
    /// Approval of the newest plan.
    pub approval: Option<PlanApproval>,
    /// Number of the newest plan that channels were notified of; 0 for none.
    pub notified: u32,
    /// Number of the newest plan that people were reminded of; 0 for none.
    pub reminded: u32,
}

/// A plan that people can approve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProposedPlan {
    /// 1-based number among the loop's plans.
    pub number: u32,
    /// Plan.
    pub plan: TaskPlan,
    /// SHA-256 of its text, hexadecimal.
    pub hash: String,
    /// Time of the end of its run.
    pub at: Timestamp,
}

impl ProposedPlan {
    /// Beginning of the hash, as people see it.
    pub fn short_hash(&self) -> &str {
        self.hash.get(..SHORT_HASH).unwrap_or(&self.hash)
    }

    /// Whether `typed` names this plan, by at least the part of the hash that people see.
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

/// A run that was to make a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanRun {
    /// Backend that served it.
    pub served: ServedBy,
    /// Cost of its model calls.
    pub cost: Money,
}

impl Planning {
    /// Planning with the wishes that it was asked for with.
    pub fn new(wishes: Option<Guidance>) -> Self {
        Self { wishes: wishes.into_iter().collect(), ..Self::default() }
    }

    /// Whether the next run of an agent makes a plan.
    pub fn plans_next(&self) -> bool {
        self.approval.is_none() && (self.proposed.is_none() || self.another)
    }

    /// Returns the plan that waits for an approval, if any.
    pub fn waiting(&self) -> Option<&ProposedPlan> {
        self.proposed.as_ref().filter(|_| self.approval.is_none() && !self.another)
    }
}
