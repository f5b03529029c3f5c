//! Causes of escalations, including the limits that end a loop.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::supervision::oversight::DetectionKind;

/// Limit that ends a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopLimit {
    /// Maximum number of iterations.
    Iterations,
    /// Maximum running time.
    Time,
    /// Maximum cost.
    Money,
    /// Continuing is probably not worth its cost (see `Outlook`).
    Outlook,
}

impl LoopLimit {
    const ALL: [Self; 4] = [Self::Iterations, Self::Time, Self::Money, Self::Outlook];

    /// Returns the name, as stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iterations => "iterations",
            Self::Time => "time",
            Self::Money => "money",
            Self::Outlook => "outlook",
        }
    }
}

impl fmt::Display for LoopLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Cause of an escalation. Its text form is stored, and identifies the escalation issue: `failed`, `limit_time`, `stuck`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum EscalationCause {
    /// A limit was reached.
    Limit(LoopLimit),
    /// A detection paused or ended the loop.
    Detection(DetectionKind),
    /// An error stopped the loop.
    Failed,
    /// The person on whose authority the loop runs lost access.
    Authority,
    /// A change was blocked before the push, because it contains a secret or changes protected files.
    BlockedChange,
    /// The forge refuses the bot's pushes.
    PushRefused,
    /// The forge refuses to open the pull request.
    PullRefused,
    /// Somebody else pushed to the branch.
    BranchMoved,
    /// Changes to tests are waiting for the decision of a maintainer.
    TestFindings,
    /// A hook refused the next run, asked a question, or gave no verdict.
    Hook,
    /// The agent did not resolve a conflict with the base or with pushed commits.
    Conflict,
    /// The branch was deleted on the forge.
    BranchDeleted,
    /// No promising approach is left.
    NoWayForward,
    /// Control ended the loop without the overseer.
    Emergency,
    /// A rule of the schedule requested the attention of a person.
    Schedule,
    /// CI fails on the pull request, and an iteration did not fix it.
    Ci,
    /// A check failed once and passed once in fresh checkouts of the same commit.
    FlakyCheck,
    /// Unknown cause that another version stored. It is kept and shown unchanged.
    Other(String),
}

/// Causes without data.
const PLAIN: [EscalationCause; 15] = [
    EscalationCause::Failed,
    EscalationCause::Authority,
    EscalationCause::BlockedChange,
    EscalationCause::PushRefused,
    EscalationCause::PullRefused,
    EscalationCause::BranchMoved,
    EscalationCause::TestFindings,
    EscalationCause::Hook,
    EscalationCause::BranchDeleted,
    EscalationCause::NoWayForward,
    EscalationCause::Emergency,
    EscalationCause::Schedule,
    EscalationCause::Ci,
    EscalationCause::FlakyCheck,
    EscalationCause::Conflict,
];

/// Prefix of the text form of a limit.
const LIMIT: &str = "limit_";

impl fmt::Display for EscalationCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit) => write!(f, "{LIMIT}{limit}"),
            Self::Detection(kind) => f.write_str(kind.name()),
            Self::Failed => f.write_str("failed"),
            Self::Authority => f.write_str("authority"),
            Self::BlockedChange => f.write_str("blocked_change"),
            Self::PushRefused => f.write_str("push_refused"),
            Self::PullRefused => f.write_str("pull_refused"),
            Self::BranchMoved => f.write_str("branch_moved"),
            Self::TestFindings => f.write_str("test_findings"),
            Self::Hook => f.write_str("hook"),
            Self::BranchDeleted => f.write_str("branch_deleted"),
            Self::NoWayForward => f.write_str("no_way_forward"),
            Self::Emergency => f.write_str("emergency"),
            Self::Schedule => f.write_str("schedule"),
            Self::Ci => f.write_str("ci"),
            Self::FlakyCheck => f.write_str("flaky_check"),
            Self::Conflict => f.write_str("conflict"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl From<String> for EscalationCause {
    fn from(text: String) -> Self {
        let limit = |name: &str| LoopLimit::ALL.into_iter().find(|limit| limit.name() == name).map(Self::Limit);
        let detection = || DetectionKind::ALL.iter().find(|kind| kind.name() == text).copied().map(Self::Detection);
        let plain = || PLAIN.into_iter().find(|cause| cause.to_string() == text);
        text.strip_prefix(LIMIT).and_then(limit).or_else(detection).or_else(plain).unwrap_or(Self::Other(text))
    }
}

impl From<EscalationCause> for String {
    fn from(cause: EscalationCause) -> Self {
        cause.to_string()
    }
}

impl From<DetectionKind> for EscalationCause {
    fn from(kind: DetectionKind) -> Self {
        Self::Detection(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_stored_as_text_and_read_back() {
        let cases = [
            (EscalationCause::Limit(LoopLimit::Iterations), "limit_iterations"),
            (EscalationCause::Limit(LoopLimit::Time), "limit_time"),
            (EscalationCause::Limit(LoopLimit::Money), "limit_money"),
            (EscalationCause::Limit(LoopLimit::Outlook), "limit_outlook"),
            (EscalationCause::Failed, "failed"),
            (EscalationCause::Authority, "authority"),
            (EscalationCause::BlockedChange, "blocked_change"),
            (EscalationCause::PushRefused, "push_refused"),
            (EscalationCause::PullRefused, "pull_refused"),
            (EscalationCause::BranchMoved, "branch_moved"),
            (EscalationCause::BranchDeleted, "branch_deleted"),
            (EscalationCause::Conflict, "conflict"),
            (EscalationCause::TestFindings, "test_findings"),
            (EscalationCause::Hook, "hook"),
            (EscalationCause::NoWayForward, "no_way_forward"),
            (EscalationCause::Emergency, "emergency"),
            (EscalationCause::FlakyCheck, "flaky_check"),
            (EscalationCause::Schedule, "schedule"),
            (EscalationCause::Ci, "ci"),
            (EscalationCause::Detection(DetectionKind::TestTampering), "test_tampering"),
        ];
        let detections = DetectionKind::ALL.iter().map(|kind| (EscalationCause::Detection(*kind), kind.name()));
        let other = (EscalationCause::Other("limit_patience".into()), "limit_patience");
        for (cause, text) in cases.into_iter().chain(detections).chain([other]) {
            assert_eq!(serde_json::to_value(&cause).unwrap(), text);
            assert_eq!(serde_json::from_value::<EscalationCause>(text.into()).unwrap(), cause);
        }
        assert!(PLAIN.iter().all(|cause| EscalationCause::from(cause.to_string()) == *cause));
    }

    #[test]
    fn limits_are_stored_by_name() {
        for limit in LoopLimit::ALL {
            assert_eq!(serde_json::to_value(limit).unwrap(), limit.name());
        }
        assert!(serde_json::from_value::<LoopLimit>("patience".into()).is_err());
    }
}
