//! Mechanism that decided a run's result, from ralph-bot's JSON output.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Deciding evidence. If there are several, the first one in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decider {
    /// The checks failed with the base's tests.
    BaseTests,
    /// Tests whose base version could not run with the branch's program.
    NotJudged,
    /// A lower number of tests or coverage.
    Counts,
    /// Changed files that start or configure the checks.
    Starters,
    /// Tests written while the checks ran.
    Rewritten,
    /// Program code that neutralizes tests.
    Neutralizer,
    /// Program code with the tests' answers.
    Answers,
    /// Finding about the text of tests.
    Text,
    /// The checks failed.
    Checks,
    /// No objection.
    Nothing,
}

impl Decider {
    /// All values, in order.
    pub const ALL: [Self; 10] = [
        Self::BaseTests,
        Self::NotJudged,
        Self::Counts,
        Self::Starters,
        Self::Rewritten,
        Self::Neutralizer,
        Self::Answers,
        Self::Text,
        Self::Checks,
        Self::Nothing,
    ];

    /// Returns the deciding mechanism, from the blocking findings of all iterations; `None` if the output does not contain
    /// the end of a loop.
    pub fn of(output: &str) -> Option<Self> {
        let mut objections = Vec::new();
        let mut has_ended = false;
        let mut is_failing = false;
        for event in output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let list = |key: &str| event[key].as_array().cloned().unwrap_or_default();
            match event["event"].as_str() {
                Some("iteration") => is_failing = !list("failing").is_empty(),
                Some("ended") => has_ended = true,
                _ => continue,
            }
            let blocking = list("findings").into_iter().filter(|finding| finding["grade"] != "notice");
            objections.extend(blocking.map(|finding| Self::of_kind(finding["kind"].as_str().unwrap_or_default())));
        }
        let rest = if is_failing { Self::Checks } else { Self::Nothing };
        has_ended.then(|| objections.into_iter().min().unwrap_or(rest))
    }

    /// Returns the evidence for a kind of finding.
    fn of_kind(kind: &str) -> Self {
        match kind {
            "only_changed_tests" => Self::BaseTests,
            "tests_not_judged" => Self::NotJudged,
            "test_count_fell" => Self::Counts,
            "check_config_edited" | "threshold_lowered" | "workflow_edited" | "ralph_file_edited" => Self::Starters,
            "tests_rewritten" => Self::Rewritten,
            "early_exit" | "failure_ignored" | "code_replaced" => Self::Neutralizer,
            "answers_hard_coded" => Self::Answers,
            _ => Self::Text,
        }
    }

    /// Returns the name for the page.
    pub fn label(self) -> &'static str {
        match self {
            Self::BaseTests => "base's tests",
            Self::NotJudged => "tests not judged",
            Self::Counts => "counts",
            Self::Starters => "starters and settings of checks",
            Self::Rewritten => "tests written while they run",
            Self::Neutralizer => "neutralizer",
            Self::Answers => "answers",
            Self::Text => "text of tests",
            Self::Checks => "checks",
            Self::Nothing => "nothing",
        }
    }
}

#[test]
fn strongest_blocking_finding_decides() {
    let ended = |findings: &str| format!("noise\n{{\"event\":\"ended\",\"findings\":[{findings}]}}\n");
    let text = r#"{"kind":"test_deleted","grade":"blocking"}"#;
    let base = r#"{"kind":"only_changed_tests","grade":"blocking"}"#;
    let notice = r#"{"kind":"only_changed_tests","grade":"notice"}"#;
    let failing = "{\"event\":\"iteration\",\"findings\":[],\"failing\":[{}]}\n";
    assert_eq!(Decider::of("noise"), None);
    assert_eq!(Decider::of(&ended("")), Some(Decider::Nothing));
    assert_eq!(Decider::of(&ended(notice)), Some(Decider::Nothing));
    assert_eq!(Decider::of(&ended(&format!("{text},{base}"))), Some(Decider::BaseTests));
    assert_eq!(Decider::of(&format!("{failing}{}", ended(""))), Some(Decider::Checks));
    assert_eq!(Decider::of(&format!("{failing}{}", ended(text))), Some(Decider::Text));
}
