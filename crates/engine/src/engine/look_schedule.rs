//! Schedule for checking watched repositories without open loops: soon after the start, then once a minute, and less
//! often if nothing changes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::domain::model::ids::{ForgeName, RepoId, RepoRef, Timestamp};

/// Time between the first and the second check of a repository, in milliseconds. Events just before the start are left
/// to their deliveries first.
const SECOND_LOOK_MS: i64 = 20_000;
/// Initial time between two checks of a repository, in milliseconds.
const FIRST_WAIT_MS: i64 = 60_000;
/// Maximum number of a forge's repositories without open loops that are polled per interval.
pub const QUIET_AT_ONCE: usize = 200;
/// Number of checks without a change after which the time between checks grows.
const QUIET_LOOKS: u32 = 5;

/// Times of the next checks of repositories.
#[derive(Debug, Default)]
pub struct LookSchedule {
    next: HashMap<(ForgeName, RepoId), NextLook>,
}

#[derive(Debug, Clone, Copy)]
struct NextLook {
    at: Timestamp,
    wait_ms: i64,
    quiet: u32,
}

fn key(repo: &RepoRef) -> (ForgeName, RepoId) {
    (repo.forge.clone(), repo.id)
}

impl LookSchedule {
    /// Whether a repository is due for a check. True for a repository that was never checked, and if the clock was set
    /// back.
    pub(super) fn is_due(&self, repo: &RepoRef, now: Timestamp) -> bool {
        self.next.get(&key(repo)).is_none_or(|next| next.at <= now || next.at > now.plus_ms(next.wait_ms))
    }

    /// Records a check of a repository. `busy` is true if anything had changed; `longest_ms` is the maximum time until
    /// the next check.
    pub(super) fn looked(&mut self, repo: &RepoRef, now: Timestamp, busy: bool, longest_ms: i64) {
        let (quiet, wait_ms) = match self.next.get(&key(repo)) {
            None => (0, SECOND_LOOK_MS),
            Some(_) if busy => (0, FIRST_WAIT_MS),
            Some(before) => {
                let quiet = before.quiet.saturating_add(1);
                let doublings = quiet.saturating_sub(QUIET_LOOKS).min(20);
                (quiet, FIRST_WAIT_MS << doublings)
            }
        };
        let wait_ms = wait_ms.min(longest_ms).max(1);
        self.next.insert(key(repo), NextLook { at: now.plus_ms(wait_ms), wait_ms, quiet });
    }

    /// Records that a repository was polled. `live` is true if it has an open loop; other repositories are polled less
    /// often if a forge has more than [`QUIET_AT_ONCE`] of them.
    pub(super) fn polled(&mut self, repo: &RepoRef, now: Timestamp, interval: Duration, live: bool) {
        let interval_ms = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).max(1);
        let of_forge = self.next.keys().filter(|known| known.0 == repo.forge).count().max(1);
        let wait_ms = match live {
            true => interval_ms,
            false => interval_ms.saturating_mul(i64::try_from(of_forge.div_ceil(QUIET_AT_ONCE)).unwrap_or(1)),
        };
        self.next.insert(key(repo), NextLook { at: now.plus_ms(wait_ms), wait_ms, quiet: 0 });
    }

    /// Returns the time until the next check of any repository, in milliseconds; `None` if none is scheduled.
    pub(super) fn until_next_ms(&self, now: Timestamp) -> Option<i64> {
        self.next.values().map(|next| next.at.since(now).clamp(0, next.wait_ms)).min()
    }

    /// Removes the repositories of a forge that are no longer watched.
    pub(super) fn keep(&mut self, forge: &ForgeName, watched: &[RepoRef]) {
        let watched: HashSet<_> = watched.iter().map(key).collect();
        self.next.retain(|known, _| known.0 != *forge || watched.contains(known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST_MS: i64 = 900_000;

    fn repo(id: i64) -> RepoRef {
        RepoRef { forge: ForgeName::new("work"), id: RepoId(id), owner: "acme".into(), name: "app".into() }
    }

    /// Returns the waits between looks, in seconds, after a first look at 0.
    fn waits(busy: &[bool]) -> Vec<i64> {
        let (mut schedule, mut now) = (LookSchedule::default(), Timestamp(0));
        assert!(schedule.is_due(&repo(1), now));
        schedule.looked(&repo(1), now, false, LONGEST_MS);
        let mut waits = Vec::new();
        for busy in busy {
            let wait = schedule.until_next_ms(now).expect("a next look");
            assert!(!schedule.is_due(&repo(1), now.plus_ms(wait - 1)) && schedule.is_due(&repo(1), now.plus_ms(wait)));
            now = now.plus_ms(wait);
            schedule.looked(&repo(1), now, *busy, LONGEST_MS);
            waits.push(wait / 1000);
        }
        waits
    }

    #[test]
    fn quiet_repository_is_checked_less_often() {
        assert_eq!(waits(&[false; 12]), [20, 60, 60, 60, 60, 60, 120, 240, 480, 900, 900, 900]);
    }

    #[test]
    fn change_resets_the_check_interval() {
        assert_eq!(
            waits(&[false, false, false, false, false, false, false, true, false, false]),
            [20, 60, 60, 60, 60, 60, 120, 240, 60, 60]
        );
    }

    #[test]
    fn clock_set_back_does_not_delay_a_check() {
        let mut schedule = LookSchedule::default();
        schedule.looked(&repo(1), Timestamp(10_000_000), false, LONGEST_MS);
        assert!(!schedule.is_due(&repo(1), Timestamp(10_000_000)));
        assert!(schedule.is_due(&repo(1), Timestamp(5_000)));
        assert_eq!(schedule.until_next_ms(Timestamp(5_000)), Some(SECOND_LOOK_MS));
    }

    #[test]
    fn repository_that_is_no_longer_watched_is_forgotten() {
        let mut schedule = LookSchedule::default();
        schedule.looked(&repo(1), Timestamp(0), false, LONGEST_MS);
        schedule.keep(&ForgeName::new("other"), &[]);
        assert!(schedule.until_next_ms(Timestamp(0)).is_some());
        schedule.keep(&ForgeName::new("work"), &[repo(2)]);
        assert_eq!(schedule.until_next_ms(Timestamp(0)), None);
    }

    #[test]
    fn repositories_without_loops_are_polled_less_often_if_there_are_many() {
        let (mut schedule, interval) = (LookSchedule::default(), Duration::from_secs(30));
        let all = i64::try_from(QUIET_AT_ONCE).expect("small") + 1;
        (1..=all).for_each(|id| schedule.polled(&repo(id), Timestamp(0), interval, false));
        schedule.polled(&repo(1), Timestamp(0), interval, false);
        schedule.polled(&repo(2), Timestamp(0), interval, true);
        let due = |id, seconds: i64| schedule.is_due(&repo(id), Timestamp(seconds * 1000));
        assert!(!due(1, 59) && due(1, 60), "a round over all takes two intervals");
        assert!(!due(2, 29) && due(2, 30), "one with a loop is polled in each");
        assert_eq!(schedule.until_next_ms(Timestamp(0)), Some(30_000));
    }
}
