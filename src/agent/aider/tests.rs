//! Text as aider 0.86 prints it, after its documentation and source; not recorded.

use super::*;
use crate::agent::transcript::played;

fn read(stdout: &str, code: i32) -> (Reading, Vec<AgentEvent>) {
    played((PRESET.reader)(), stdout, "", Ended::Exited(code))
}

#[test]
fn answers_figures_and_edits_are_read() {
    let text = "Aider v0.86.2\n\nI add the check.\n\nsrc/a.py\nTokens: 2.4k sent, 1.1k cache hit, 850 received. \
                Cost: $0.01 message, $0.03 session.\nApplied edit to src/a.py\n";
    let (reading, events) = read(text, 0);
    assert_eq!((&reading.status, reading.cost), (&AgentStatus::Finished, Some(Money::from_usd(0.03))));
    assert_eq!((reading.tokens_in, reading.tokens_out, reading.cache_read, reading.tool_calls), (2400, 850, 1100, 1));
    assert!(reading.final_message.contains("I add the check."), "{}", reading.final_message);
    assert!(events.contains(&AgentEvent::FileChanged { path: "src/a.py".into() }), "{events:?}");
    assert_eq!(["850", "1,200", "2.4k", "x", "9e99k"].map(count), [850, 1200, 2400, 0, u64::MAX]);
}

#[test]
fn an_error_with_exit_code_0_is_an_error() {
    let refused = "Aider v0.86.2\nlitellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API \
                   key provided\nThe API provider is not able to authenticate you. Check your API key.\n";
    let (reading, _) = read(refused, 0);
    assert!(matches!(reading.status, AgentStatus::Unavailable { .. }), "{reading:?}");
    assert_eq!(reading.signals.code.as_deref(), Some("AuthenticationError"));
    let limit =
        "litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit reached\nRetrying in 0.2 seconds...\n";
    let (reading, events) = played((PRESET.reader)(), limit, "", Ended::Stopped("it waits".into()));
    assert!(matches!(reading.status, AgentStatus::Limited { .. }), "{reading:?}");
    assert!(events.iter().any(|event| matches!(event, AgentEvent::Retried { .. })), "{events:?}");
    let helped = format!("{limit}Here.\nTokens: 10 sent, 5 received.\n");
    assert_eq!(read(&helped, 0).0.status, AgentStatus::Finished);
    for silent in ["", "Aider v0.86.2\n"] {
        assert!(matches!(read(silent, 0).0.status, AgentStatus::Failed { .. }), "{silent}");
    }
}

#[test]
fn what_a_model_says_of_limits_is_text() {
    let text = "The client now handles litellm.RateLimitError: rate limit reached.\nTokens: 10 sent, 5 received.\n";
    let (reading, _) = read(text, 0);
    assert_eq!(reading.status, AgentStatus::Finished);
    assert!(reading.signals.messages.is_empty(), "{:?}", reading.signals);
}
