//! Budget of calls: the likely cost of a call is reserved before the call, and its real cost is settled afterwards.
//!
//! Several limits apply at the same time: of the loop, of the repository per day, of the service per day, and for assistants a
//! share of the loop's limit. A run starts only if its likely cost fits into all of them, in addition to the reservations of
//! other runs. A run is ended when its event stream shows that a limit is reached. A limit is therefore exceeded by at most one
//! turn of each concurrent run.

mod cumulative;
mod reservation;
#[cfg(test)]
mod tests;

use std::fmt;

use jiff::Span;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Money, Timestamp};

pub use cumulative::Cumulative;
pub use reservation::{Ending, LIKELY_DEFAULT, Reservation, likely_cost};

const DAY_MS: i64 = 24 * 3_600_000;
const EPOCH: Date = Date::constant(1970, 1, 1);

/// Scope of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// Limit of the loop, for its whole lifetime.
    Loop,
    /// Share of the loop's limit for all its calls with the same purpose.
    Purpose,
    /// Limit of the repository per day, in UTC.
    RepositoryDay,
    /// Limit of the service per day, in UTC.
    ServiceDay,
}

impl fmt::Display for LimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loop => "the loop's budget",
            Self::Purpose => "the share of the loop's budget for such calls",
            Self::RepositoryDay => "the repository's budget for the day",
            Self::ServiceDay => "the service's budget for the day",
        })
    }
}

/// Spending against one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CostAccount {
    /// Settled cost, of the whole loop or of the current day.
    pub spent: Money,
    /// Sum of the open reservations of other runs ([`Reservation::held`]), including those that were made before midnight.
    pub reserved: Money,
    /// Limit; `None` if unlimited.
    pub limit: Option<Money>,
}

impl CostAccount {
    /// Returns the sum of settled and reserved cost.
    pub fn used(&self) -> Money {
        Money(self.spent.0.max(0)).plus(Money(self.reserved.0.max(0)))
    }

    /// Returns the remaining amount, 0 or more; `None` if unlimited.
    pub fn remaining(&self) -> Option<Money> {
        self.limit.map(|limit| Money(limit.0.saturating_sub(self.used().0).max(0)))
    }

    /// Returns the amount to reserve for a run of `likely` cost; `None` if it does not fit. The first reservation may take the
    /// whole rest, because the likely cost is a guess, which should not prevent the first call in a small budget.
    fn fitting(&self, likely: Money) -> Option<Money> {
        let Some(remaining) = self.remaining() else { return Some(likely) };
        let is_first = self.used() == Money(0) && remaining > Money(0);
        if likely <= remaining { Some(likely) } else { is_first.then_some(remaining) }
    }
}

/// Accounts that a run is charged to, in their state before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CostAccounts {
    /// Account of the loop.
    pub of_loop: CostAccount,
    /// Account of the calls of the loop for the same purpose.
    pub of_purpose: CostAccount,
    /// Account of the repository.
    pub of_repository: CostAccount,
    /// Account of the service.
    pub of_service: CostAccount,
}

/// Decision whether a run may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// The run may start.
    Yes {
        /// Amount to reserve.
        reserve: Money,
        /// Cost at which the run has to be ended, by the current limits; `None` if unlimited.
        at_most: Option<Money>,
    },
    /// The run may not start.
    No(CostLimitReached),
}

/// Limit that prevents a run, or ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostLimitReached {
    /// Scope of the limit.
    pub scope: LimitScope,
    /// Sum of settled and reserved cost.
    pub used: Money,
    /// The limit.
    pub limit: Money,
    /// Likely cost of the run, or its cost so far.
    pub wanted: Money,
    /// Time at which money becomes available again: the next midnight in UTC. `None` if a person has to raise the limit.
    pub free_at: Option<Timestamp>,
}

impl fmt::Display for CostLimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, used, limit, wanted, .. } = self;
        write!(f, "{scope} is {limit}: {used} is used or reserved, and the next run needs about {wanted}")
    }
}

impl CostAccounts {
    /// Decides whether a run of `likely` cost may start now. If several limits prevent it, returns one that a person has to
    /// raise, if there is one. A run without cost is always permitted.
    pub fn permit(&self, likely: Money, now: Timestamp) -> Permit {
        let likely = Money(likely.0.max(0));
        let mut reserve = likely;
        for (scope, account) in self.accounts() {
            // The cost of a question is not an estimate: its length is known, and the length of its answer is bounded.
            let fitting = match scope {
                LimitScope::Purpose => {
                    account.remaining().is_none_or(|remaining| likely <= remaining).then_some(likely)
                }
                _ => account.fitting(likely),
            };
            match fitting {
                Some(part) => reserve = reserve.min(part),
                None => return Permit::No(reached(scope, account, likely, now)),
            }
        }
        Permit::Yes { reserve, at_most: self.at_most() }
    }

    /// Checks whether a run that has cost `shown` so far may continue. `spent` and `reserved` of the accounts do not include this
    /// run.
    ///
    /// # Errors
    /// The limit that is reached, so that the run has to be ended.
    pub fn goes_on(&self, shown: Money, now: Timestamp) -> Result<(), CostLimitReached> {
        let reached_by = |account: &CostAccount| {
            account.remaining().is_some_and(|remaining| shown > remaining || (shown == remaining && shown.0 > 0))
        };
        match self.accounts().into_iter().find(|(_, account)| reached_by(account)) {
            Some((scope, account)) => Err(reached(scope, account, shown, now)),
            None => Ok(()),
        }
    }

    /// Checks whether the total cost of a run may reach `committed`. `spent` and `reserved` of the accounts do not include this
    /// run.
    ///
    /// # Errors
    /// The limit that this would exceed.
    pub fn covers(&self, committed: Money, now: Timestamp) -> Result<(), CostLimitReached> {
        let exceeds = |account: &CostAccount| account.remaining().is_some_and(|remaining| committed > remaining);
        match self.accounts().into_iter().find(|(_, account)| exceeds(account)) {
            Some((scope, account)) => Err(reached(scope, account, committed, now)),
            None => Ok(()),
        }
    }

    /// Returns the smallest remaining amount of all accounts; `None` if none has a limit.
    fn at_most(&self) -> Option<Money> {
        self.accounts().into_iter().filter_map(|(_, account)| account.remaining()).min()
    }

    fn accounts(&self) -> [(LimitScope, &CostAccount); 4] {
        [
            (LimitScope::Loop, &self.of_loop),
            (LimitScope::Purpose, &self.of_purpose),
            (LimitScope::RepositoryDay, &self.of_repository),
            (LimitScope::ServiceDay, &self.of_service),
        ]
    }
}

fn reached(scope: LimitScope, account: &CostAccount, wanted: Money, now: Timestamp) -> CostLimitReached {
    let free_at = matches!(scope, LimitScope::RepositoryDay | LimitScope::ServiceDay).then(|| next_midnight(now));
    CostLimitReached { scope, used: account.used(), limit: account.limit.unwrap_or_default(), wanted, free_at }
}

/// Returns the UTC day of a time, in whole days since 1970-01-01. Daily limits apply to these days.
pub fn day_of(moment: Timestamp) -> i64 {
    moment.0.div_euclid(DAY_MS)
}

/// Returns the date of a day that is counted from 1970-01-01, such as `2026-11-01`. For a day beyond the calendar, returns the
/// number itself.
pub fn date_of(day: i64) -> String {
    let date = Span::new().try_days(day).ok().and_then(|span| EPOCH.checked_add(span).ok());
    date.map_or_else(|| day.to_string(), |date| date.to_string())
}

/// Parses a date from 1970 to 9000 such as `2026-11-01`. Returns its day, counted from 1970-01-01; `None` if it is invalid.
pub fn day_of_date(text: &str) -> Option<i64> {
    let date = text.parse::<Date>().ok().filter(|date| (1970..=9000).contains(&date.year()))?;
    date.since(EPOCH).ok().map(|span| i64::from(span.get_days()))
}

/// Returns the start of the next day in UTC.
pub fn next_midnight(moment: Timestamp) -> Timestamp {
    Timestamp(day_of(moment).saturating_add(1).saturating_mul(DAY_MS))
}
