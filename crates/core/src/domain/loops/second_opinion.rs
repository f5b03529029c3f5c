//! Second opinions of a loop: the newest opinion, the iteration that worked on its findings, and the cost.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Money, Sha};
use crate::domain::model::opinion::{OpinionAnswer, OpinionEnd, OpinionRun};

/// Verified state before the iteration that worked on the findings of a second opinion. The loop returns to it if that iteration
/// fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedState {
    /// Number of the iteration that reached the state.
    pub iteration: u32,
    /// Hash of the commit.
    pub commit: Sha,
}

/// Cost of the second opinions of one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpinionCost {
    /// Name of the backend.
    pub backend: String,
    /// Total cost.
    pub cost: Money,
    /// Whether the service estimated any part of the cost.
    pub estimated: bool,
}

/// Second opinions of a loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SecondOpinions {
    /// Newest opinion, or the reason why there is none; `None` if none was requested.
    pub last: Option<OpinionRun>,
    /// Iteration that worked on the findings of an opinion; `None` if there was none. A loop has at most one.
    pub iteration: Option<u32>,
    /// State to return to, as long as that iteration is not verified.
    pub before: Option<VerifiedState>,
    /// Whether the earlier state was restored and is being verified.
    pub returned: bool,
    /// Number of runs about the current commit that were lost because the service stopped.
    pub lost: u32,
    /// Cost by backend.
    pub costs: Vec<OpinionCost>,
}

impl SecondOpinions {
    /// Whether no backend ran.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the answer about a commit; `None` if there is none.
    pub fn answer(&self, commit: &Sha) -> Option<&OpinionAnswer> {
        match self.last.as_ref().filter(|last| last.commit == *commit).map(|last| &last.end) {
            Some(OpinionEnd::Answered(answer)) => Some(answer),
            _ => None,
        }
    }

    /// Returns the cost of all runs.
    pub fn cost(&self) -> Money {
        self.costs.iter().fold(Money(0), |sum, one| sum.plus(one.cost))
    }

    /// Whether the newest opinion, or the reason for its absence, is about this commit.
    pub fn is_about(&self, commit: &Sha) -> bool {
        self.last.as_ref().is_some_and(|last| last.commit == *commit)
    }

    /// Adds the cost of a run to the total of its backend.
    pub fn charge(&mut self, run: &OpinionRun) {
        if run.cost <= Money(0) {
            return;
        }
        match self.costs.iter_mut().find(|known| known.backend == run.backend) {
            Some(known) => {
                known.cost = known.cost.plus(run.cost);
                known.estimated |= run.estimated;
            }
            None => {
                let (backend, cost, estimated) = (run.backend.clone(), run.cost, run.estimated);
                self.costs.push(OpinionCost { backend, cost, estimated });
            }
        }
    }
}
