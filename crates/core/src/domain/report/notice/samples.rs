//! A sample notice, for tests.

use super::*;

/// Page of the loop in the dashboard.
pub(super) const PAGE: &str = "https://ralph.example.org/loops/r-42-k7m2qa";

/// Returns the notice about a loop that reached its limit.
pub fn notice() -> Notice {
    let hint = |usage: &str, what: &str| CommandHint { usage: usage.into(), what: what.into() };
    Notice {
        occasion: Occasion::Raised,
        level: EscalationLevel::Critical,
        loop_id: LoopId::new("r-42-k7m2qa"),
        repo: RepoRef { forge: ForgeName::new("work"), id: RepoId(7), owner: "mira".into(), name: "app".into() },
        issue: Number(42),
        title: "The answer is wrong".into(),
        issue_url: "https://git.example.org/mira/app/issues/42".into(),
        cause: "limit_iterations".into(),
        reason: "all 10 iterations are used".into(),
        what_happened: "All 10 iterations are spent.".into(),
        evidence: vec!["`sh check.sh`: exit code 1, the answer is 41".into()],
        iteration: 10,
        detections: vec![DetectionLine {
            title: "Stuck".into(),
            severity: "high".into(),
            level: "REDIRECT".into(),
            evidence: "the same error in 5 of the last 5 iterations".into(),
        }],
        tried: vec!["find the cause first (iterations 4 and later; cause: stuck)".into()],
        learnings: vec!["The answer is computed twice".into()],
        recommendations: vec!["Give it more iterations, or narrow the task.".into()],
        replies: vec![
            hint("/ralph resume --max-iterations 15", "five more iterations"),
            hint("/ralph abort", "ends the loop"),
        ],
        dashboard_url: Some(PAGE.into()),
        at: Timestamp(1_790_000_000_000),
    }
}
