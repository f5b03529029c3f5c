//! What the readers share.

use serde_json::json;

use super::*;

#[test]
fn a_call_is_summed_up_in_its_command_or_path() {
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
