//! Scores of the agent's claims, compared with measurements.

use serde::{Deserialize, Serialize};

use crate::domain::knowledge::agent_message::reported;
use crate::domain::loops::Loop;
use crate::domain::model::ids::Ratio;
use crate::domain::model::task::AgentReport;

/// Brier score of an agent that always claims 0.5.
const KNOWS_NOTHING: f64 = 0.25;
/// Weight of the prior, in number of claims.
const PRIOR: f64 = 2.0;

/// Sums over claims and measurements. Sums of several loops can be added.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimSums {
    /// Number of scored claims of completion.
    pub scored: u32,
    /// Sum of (claimed - measured)².
    pub squares: f64,
    /// Sum of claimed - measured.
    pub excess: f64,
    /// Number of claims that the task is done.
    pub done: u32,
    /// Number of claims that the task is done although a check failed.
    pub false_done: u32,
}

impl ClaimSums {
    /// Adds a claim and its measurement. `holds` states whether every check passed. Invalid figures are not scored.
    pub fn add(&mut self, report: &AgentReport, measured: Ratio, holds: bool) {
        if let Some(claimed) = report.completion_percentage.filter(|percent| percent.is_finite()) {
            let off = (claimed / 100.0).clamp(0.0, 1.0) - measured.get();
            self.scored = self.scored.saturating_add(1);
            self.squares += off * off;
            self.excess += off;
        }
        self.done = self.done.saturating_add(u32::from(report.completion_signal));
        self.false_done = self.false_done.saturating_add(u32::from(report.completion_signal && !holds));
    }

    /// Computes the sums for a loop's counted iterations whose checks ran. An iteration without a report contributes the
    /// claims in its last message.
    pub fn of(current: &Loop) -> Self {
        let mut claims = Self::default();
        for iteration in current.retained_iterations().filter(|i| i.ended_at.is_some() && !i.checks.outcomes.is_empty())
        {
            claims.add(&reported(iteration), iteration.completion, iteration.checks.all_hold());
        }
        claims
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            scored: self.scored.saturating_add(other.scored),
            squares: self.squares + other.squares,
            excess: self.excess + other.excess,
            done: self.done.saturating_add(other.done),
            false_done: self.false_done.saturating_add(other.false_done),
        }
    }

    /// Returns the Brier score: the mean of (claimed - measured)², from 0 (always right) to 1; `None` without claims. G. Brier,
    /// Monthly Weather Review 78 (1950).
    pub fn brier(&self) -> Option<f64> {
        (self.scored > 0).then(|| self.squares / f64::from(self.scored))
    }

    /// Returns the mean overestimation, -1..1; `None` without claims.
    pub fn bias(&self) -> Option<f64> {
        (self.scored > 0).then(|| self.excess / f64::from(self.scored))
    }

    /// Returns the weight of the agent's figures, 0..1: 1 minus the root of the Brier score, multiplied by the share of true
    /// claims that the task is done. Both have a prior.
    pub fn weight(&self) -> f64 {
        let score = (self.squares + PRIOR * KNOWS_NOTHING) / (f64::from(self.scored) + PRIOR);
        let truthful =
            f64::from(self.done.saturating_sub(self.false_done) + 1) / f64::from(self.done.saturating_add(1));
        ((1.0 - score.max(0.0).sqrt()) * truthful).clamp(0.0, 1.0)
    }

    /// Describes the score in one sentence; `None` without claims.
    pub fn words(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let (Some(bias), Some(brier)) = (self.bias(), self.brier()) {
            let points = (bias * 100.0).round();
            let off = match points {
                points if points > 0.0 => format!("{points:.0} points too high"),
                points if points < 0.0 => format!("{:.0} points too low", -points),
                _ => "neither too high nor too low".to_owned(),
            };
            parts.push(format!("claimed completion is {off} on average (Brier score {brier:.2})"));
        }
        if self.done > 0 {
            parts.push(format!("{} of {} claims to be done were wrong", self.false_done, self.done));
        }
        (!parts.is_empty()).then(|| format!("The agent's {}.", parts.join("; ")))
    }

    /// Returns the completion to assume without a measurement: the claim multiplied by its weight.
    pub fn believed(&self, claimed: Ratio) -> Ratio {
        Ratio::new(claimed.get() * self.weight())
    }
}
