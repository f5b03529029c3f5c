//! Memory that runs out: whose processes the system ends first, and whether it has ended any.

/// What is added to the service's own score for the processes that it starts, of 1000: an agent goes before the service.
const ADDED: i32 = 500;
/// Highest score that there is.
const HIGHEST: i32 = 1_000;

/// Processes that the system has ended for want of memory since it started; `None` where it does not say.
pub(super) fn killed_so_far() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Has the system end a process before this one where memory runs out, and what it starts from now on. Best effort: a
/// system that does not allow it treats both alike.
pub(super) fn goes_before_us(pid: u32) {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").ok().and_then(|text| text.trim().parse().ok());
    // From here and not by the child itself: until it is another program, its own entry in /proc is closed to it.
    if let Err(error) = std::fs::write(format!("/proc/{pid}/oom_score_adj"), score(own.unwrap_or(0)).to_string()) {
        tracing::debug!(pid, %error, "it goes no sooner than the service where memory runs out");
    }
}

fn score(own: i32) -> i32 {
    own.saturating_add(ADDED).min(HIGHEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_goes_before_the_service_whatever_the_services_own_score() {
        assert_eq!([-1000, -100, 0, 600, 1000].map(score), [-500, 400, 500, 1000, 1000]);
    }

    #[test]
    fn the_system_says_how_many_it_has_ended() {
        assert!(killed_so_far().is_some(), "Linux 4.13 and newer count them");
    }
}
