//! Second opinions of a loop: the newest one, the iteration that followed from one, and their cost.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Money, Sha};
use crate::domain::model::opinion::{OpinionAnswer, OpinionEnd, OpinionRun};

/// Verified state to which a loop returns if the iteration that followed from a second opinion comes to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedState {
    /// Number of its iteration.
    pub iteration: u32,
    /// Commit.
    pub commit: Sha,
}

/// Cost of the second opinions of one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpinionCost {
    /// Backend.
    pub backend: String,
    /// Sum of the costs.
    pub cost: Money,
    /// Whether any of it is an estimate of the service.
    pub estimated: bool,
}

/// Second opinions of a loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SecondOpinions {
    /// Newest one, with an answer or the reason why there is none.
    pub last: Option<OpinionRun>,
    /// Iteration that got the findings of one; at most one of a loop does.
    pub iteration: Option<u32>,
    /// State to return to while that iteration is not verified.
    pub before: Option<VerifiedState>,
    /// Whether that state was restored and is being verified.
    pub returned: bool,
    /// Runs about the current commit that were lost with the process.
    pub lost: u32,
    /// Cost by backend.
    pub costs: Vec<OpinionCost>,
}

impl SecondOpinions {
    /// Whether nobody was asked.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the answer about a commit.
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

    /// Whether an opinion about a commit was given, or found to be missing.
    pub fn is_about(&self, commit: &Sha) -> bool {
        self.last.as_ref().is_some_and(|last| last.commit == *commit)
    }

    /// Adds the cost of a run.
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
