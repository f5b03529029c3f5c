//! Hooks: programs of the operator that decide whether a loop continues. Defines their events and the verdicts that they print.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum length of a reason or a question, in characters.
const TEXT_MAX: usize = 2_000;

/// Moment at which hooks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// Before each run of an agent.
    BeforeAgent,
    /// After the checks of an iteration.
    AfterIteration,
    /// After every check passed in a fresh checkout, before the review.
    BeforeReady,
    /// After the loop stopped working. Verdicts are ignored.
    AfterEnd,
}

impl HookEvent {
    /// All events.
    pub const ALL: [Self; 4] = [Self::BeforeAgent, Self::AfterIteration, Self::BeforeReady, Self::AfterEnd];

    /// Returns the name, as in configuration files and in the hook's input.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeAgent => "before_agent",
            Self::AfterIteration => "after_iteration",
            Self::BeforeReady => "before_ready",
            Self::AfterEnd => "after_end",
        }
    }
}

/// Hook for a loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookName {
    /// Event.
    pub event: HookEvent,
    /// Name of the hook.
    pub name: String,
    /// Whether it only runs for repositories whose file names it.
    pub optional: bool,
}

/// Verdict of a hook, which it prints as JSON on standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "snake_case", deny_unknown_fields)]
pub enum HookVerdict {
    /// The loop continues.
    Continue {},
    /// The loop does not continue: before an agent it pauses, otherwise the next run of the agent gets the reason.
    Block {
        /// Reason, 1 to 2000 characters.
        reason: String,
    },
    /// The loop pauses until a person resumes it.
    Ask {
        /// Question for people, 1 to 2000 characters.
        question: String,
    },
}

/// Reason why a hook prevents a loop from continuing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "objection", rename_all = "snake_case")]
pub enum HookObjection {
    /// The hook's verdict is `block`.
    Block { hook: String, reason: String },
    /// The hook's verdict is `ask`.
    Ask { hook: String, question: String },
    /// The hook gave no verdict: it failed, timed out, or printed invalid output.
    Broken { hook: String, problem: String },
}

/// Parses a hook's output. Returns `None` if the loop may continue; everything except a valid verdict is an objection.
pub fn read_verdict(hook: &str, output: &str) -> Option<HookObjection> {
    let hook = hook.to_owned();
    let broken = |problem: String| Some(HookObjection::Broken { hook: hook.clone(), problem });
    let text = output.trim();
    if text.is_empty() {
        return broken("it printed no verdict".to_owned());
    }
    let fits = |text: &str| !text.trim().is_empty() && text.chars().count() <= TEXT_MAX;
    match serde_json::from_str::<HookVerdict>(text) {
        Ok(HookVerdict::Continue {}) => None,
        Ok(HookVerdict::Block { reason }) if fits(&reason) => Some(HookObjection::Block { hook, reason }),
        Ok(HookVerdict::Ask { question }) if fits(&question) => Some(HookObjection::Ask { hook, question }),
        Ok(_) => broken(format!("its text must have 1 to {TEXT_MAX} characters")),
        Err(error) => broken(format!("its output is not a verdict: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(output: &str) -> String {
        match read_verdict("gate", output) {
            Some(HookObjection::Broken { hook, problem }) if hook == "gate" => problem,
            other => panic!("{output}: {other:?}"),
        }
    }

    #[test]
    fn verdicts_are_read_by_their_schema() {
        assert_eq!(read_verdict("gate", "\n{\"verdict\": \"continue\"}\n"), None);
        let (hook, reason) = ("gate".to_owned(), "no license header".to_owned());
        let block = r#"{"verdict":"block","reason":"no license header"}"#;
        assert_eq!(read_verdict("gate", block), Some(HookObjection::Block { hook: hook.clone(), reason }));
        let ask = r#"{"verdict":"ask","question":"May it?"}"#;
        let question = "May it?".to_owned();
        assert_eq!(read_verdict("gate", ask), Some(HookObjection::Ask { hook, question }));
    }

    #[test]
    fn invalid_verdicts_are_objections() {
        assert_eq!(problem("  \n"), "it printed no verdict");
        for output in [
            "ok",
            "true",
            "continue",
            "{}",
            r#"{"verdict":"yes"}"#,
            r#"{"verdict":"continue","reason":"x"}"#,
            r#"{"verdict":"continue"} {"verdict":"continue"}"#,
            r#"{"verdict":"block"}"#,
            r#"[{"verdict":"continue"}]"#,
        ] {
            assert!(problem(output).starts_with("its output is not a verdict"), "{output}");
        }
        assert!(problem(r#"{"verdict":"block","reason":"  "}"#).contains("1 to 2000 characters"));
        let long = format!(r#"{{"verdict":"ask","question":"{}"}}"#, "x".repeat(2_001));
        assert!(problem(&long).contains("1 to 2000 characters"));
    }
}
