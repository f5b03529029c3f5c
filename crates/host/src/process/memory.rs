//! Handling of low memory: OOM scores of processes, and the number of processes that the kernel killed.

/// Difference between the OOM scores of children and of the service, out of 1000, which makes the kernel kill children
/// first.
const ADDED: i32 = 500;
/// Maximum OOM score.
const HIGHEST: i32 = 1_000;

/// Returns the number of processes that the kernel has killed since boot because memory ran out; `None` if it is
/// unknown.
pub(super) fn killed_so_far() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Raises the OOM score of a process and its future children above the service's own. Failures are ignored, because
/// some systems do not allow it.
pub(super) fn raise_oom_score(pid: u32) {
    let own_score = std::fs::read_to_string("/proc/self/oom_score_adj").ok().and_then(|text| text.trim().parse().ok());
    // The child cannot do it: until it executes the program, it cannot write its own entry in /proc.
    if let Err(error) = std::fs::write(format!("/proc/{pid}/oom_score_adj"), score(own_score.unwrap_or(0)).to_string())
    {
        tracing::debug!(pid, %error, "could not raise the child's OOM score");
    }
}

fn score(own_score: i32) -> i32 {
    own_score.saturating_add(ADDED).min(HIGHEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_have_higher_memory_score_than_service() {
        assert_eq!([-1000, -100, 0, 600, 1000].map(score), [-500, 400, 500, 1000, 1000]);
    }

    #[test]
    fn number_of_killed_processes_is_read() {
        assert!(killed_so_far().is_some(), "Linux 4.13 and newer count them");
    }
}
