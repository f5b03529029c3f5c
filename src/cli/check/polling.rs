//! Cost of polling a forge, in requests per minute.

use super::finding::CheckFinding;
use crate::config::{ForgeConfig, ForgeKind};
use crate::domain::model::ids::RepoRef;
use crate::engine::QUIET_AT_ONCE;
use crate::store::{Store, loops};

/// Number of requests per repository and interval: the lists of issues and of comments.
const PER_REPOSITORY: f64 = 2.0;
/// Maximum number of requests per open loop and interval: issue, pull request, reviews, review comments, and four
/// about CI.
const PER_LOOP: f64 = 8.0;
/// GitHub's limit for a token or an installation, in requests per hour.
const GITHUB_HOURLY: f64 = 5_000.0;
/// Share of the limit, from 0 to 1, above which polling is reported, because the rest is needed for other requests.
const SANE_SHARE: f64 = 0.5;

/// Numbers of objects that are polled.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PolledWork {
    /// Number of watched repositories.
    repositories: usize,
    /// Number of watched repositories with open loops.
    live: usize,
    /// Number of open loops.
    loops: usize,
    /// Interval in seconds.
    interval_s: f64,
}

impl PolledWork {
    /// Returns the requests per minute: all of them, and those that count towards the limit if the forge does not
    /// count unchanged responses.
    fn per_minute(self) -> (f64, f64) {
        let rounds = 60.0 / self.interval_s;
        let quiet = self.repositories.saturating_sub(self.live);
        let stretch = self.repositories.div_ceil(QUIET_AT_ONCE).max(1) as f64;
        let busy = (self.live as f64 * PER_REPOSITORY + self.loops as f64 * PER_LOOP) * rounds;
        (busy + quiet as f64 * PER_REPOSITORY * rounds / stretch, busy)
    }
}

/// Reports the cost of polling a forge; `None` without polling.
pub(super) async fn look(forge: &ForgeConfig, watched: &[RepoRef], store: Option<&Store>) -> Option<CheckFinding> {
    let interval = forge.updates.poll?;
    let name = forge.name.clone();
    let open = match store {
        // Read errors are reported by the check of the database.
        Some(store) => store.read(|c| loops::list(c, true, usize::MAX)).await.unwrap_or_default(),
        None => Vec::new(),
    };
    let mut live: Vec<_> = open.iter().map(|one| &one.issue.repo).filter(|repo| repo.forge == name).collect();
    let loops = live.len();
    live.sort_by_key(|repo| repo.id);
    live.dedup_by_key(|repo| repo.id);
    let work = PolledWork { repositories: watched.len(), live: live.len(), loops, interval_s: interval.as_secs_f64() };
    Some(finding(forge, work))
}

fn finding(forge: &ForgeConfig, work: PolledWork) -> CheckFinding {
    let name = format!("polling of {}", forge.name);
    let (all, counted) = work.per_minute();
    let PolledWork { repositories, loops, interval_s, .. } = work;
    let asked = format!(
        "every {interval_s:.0} s, at most {all:.0} requests a minute for {repositories} repositories and {loops} open loops"
    );
    let limit = GITHUB_HOURLY / 60.0;
    match forge.kind {
        ForgeKind::Gitea => CheckFinding::ok(name, format!("{asked}; the server has no rate limit")),
        ForgeKind::GitHub => {
            let detail = format!(
                "{asked}; at most {counted:.0} of them count against GitHub's {limit:.0} a minute, because unchanged answers do not"
            );
            let fix = "raise `poll`, name fewer repositories in `repositories`, or use webhooks";
            match counted > limit * SANE_SHARE {
                true => CheckFinding::warn(name, detail, fix),
                false => CheckFinding::ok(name, detail),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(repositories: usize, live: usize, loops: usize, interval_s: f64) -> PolledWork {
        PolledWork { repositories, live, loops, interval_s }
    }

    #[test]
    fn requests_for_quiet_repositories_do_not_count() {
        assert_eq!(work(10, 0, 0, 30.0).per_minute(), (40.0, 0.0));
        assert_eq!(work(10, 2, 3, 60.0).per_minute(), (4.0 + 24.0 + 16.0, 28.0));
    }

    #[test]
    fn many_repositories_are_polled_less_often() {
        let (some, _) = work(200, 0, 0, 30.0).per_minute();
        assert_eq!(work(1_000, 0, 0, 30.0).per_minute().0, some);
    }
}
