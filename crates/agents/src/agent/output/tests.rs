//! Tests of the parts that readers share.

use serde_json::json;

use super::*;
use crate::agent::presets::find;
use crate::agent::script::text_reader;
use crate::agent::transcript::played;
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::{LimitKind, classify};

#[test]
fn tool_call_is_summarized_by_command_or_path() {
    for (input, expected) in [
        (json!({"command": "make", "description": "x"}), "make"),
        (json!({"cmd": ["git", "status"]}), "git status"),
        (json!({"content": "long", "file_path": "a.rs"}), "a.rs"),
        (json!({"n": 1}), "{\"n\":1}"),
        (json!("plain"), "plain"),
        (json!(null), ""),
    ] {
        assert_eq!(summary(&input), expected);
    }
    assert_eq!(summary(&json!("ä".repeat(900))).chars().count(), 501);
}

#[test]
fn last_output_of_failed_text_program_is_searched_for_limits() {
    let text = "I looked at the tests.\n\nError: Rate limit is exceeded. Please try\nagain in 90s.\n";
    for reader in [text_reader, find("claude").expect("a preset").reader] {
        let limit =
            |how: ProcessEnd, stdout: &str| classify(&played(reader(), stdout, "", how).0.signals, Timestamp(1_000));
        let found = limit(ProcessEnd::Exited(1), text).expect("a limit");
        assert_eq!((found.kind, found.until), (LimitKind::Rate, Some(Timestamp(91_000))), "{found:?}");
        // Not the output of a run that succeeded or was stopped, and not a long text.
        for how in [ProcessEnd::Exited(0), ProcessEnd::Signalled(9), ProcessEnd::IdleLimit] {
            assert_eq!(limit(how, text), None);
        }
        let prose =
            "The page shows a rate limit of 429 answers; whoever has to try again in 90s is told so.\n1 test failed";
        assert_eq!(limit(ProcessEnd::Exited(1), prose), None);
    }
}

#[test]
fn answer_about_logins_is_not_a_refusal() {
    let answer = "I changed three files.\n\n- The page asks users to sign in.\n- `--json` is no unknown option now.\n";
    let status = |stdout: &str, stderr: &str, how| {
        played((find("claude").expect("a preset").reader)(), stdout, stderr, how).0.status
    };
    assert_eq!(status(answer, "", ProcessEnd::Exited(0)), AgentStatus::Finished);
    assert_eq!(status(answer, "the plugin x has been deprecated", ProcessEnd::Exited(0)), AgentStatus::Finished);
    let brief = "Welcome!\n\nPlease sign in to continue.\n";
    for (stdout, stderr, how) in
        [(brief, "", ProcessEnd::Exited(0)), ("", answer, ProcessEnd::Exited(0)), (answer, "", ProcessEnd::Exited(1))]
    {
        let status = status(stdout, stderr, how);
        assert!(matches!(status, AgentStatus::Unavailable { .. }), "{stdout} {stderr}: {status:?}");
    }
}
