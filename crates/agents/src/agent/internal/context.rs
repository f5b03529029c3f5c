//! Shortens a conversation to fit into the context window. Old and long tool results are shortened first; the task is
//! never shortened.

use crate::domain::providers::chat::{ChatImage, ChatMessage, ToolResult};

/// Number of most recent turns whose results are shortened last.
const LAST_TURNS: usize = 2;
/// Maximum length of results that are never shortened, in bytes.
const MAX_SHORT: usize = 400;
/// Bytes that are kept of a shortened result.
const KEPT_BYTES: usize = 160;
/// Text that replaces omitted turns.
const OMITTED_TURNS: &str = "[Earlier steps were omitted here to save space. `git diff` shows all changes so far.]";
/// Approximate size of a message apart from its text, in bytes.
const MESSAGE_OVERHEAD: usize = 40;

/// Returns the approximate size of the conversation as it is sent, in bytes.
pub(super) fn size(messages: &[ChatMessage]) -> usize {
    messages.iter().map(message_size).sum()
}

fn message_size(message: &ChatMessage) -> usize {
    MESSAGE_OVERHEAD
        + match message {
            ChatMessage::User(text) => text.len(),
            ChatMessage::UserWithImages(text, images) => text.len() + images.len() * ChatImage::SIZE,
            ChatMessage::Results(results) => results.iter().map(|result| MESSAGE_OVERHEAD + result.text.len()).sum(),
            ChatMessage::Model(turn) if turn.original.is_array() => turn.original.to_string().len(),
            ChatMessage::Model(turn) => {
                turn.text.len() + turn.calls.iter().map(|call| MESSAGE_OVERHEAD + call.arguments.len()).sum::<usize>()
            }
        }
}

/// Shortens a conversation that is longer than `most` bytes to two thirds of `most`. Shortening rarely but strongly
/// keeps its start unchanged for longer, which the provider may have cached. Returns `true` if anything was
/// removed.
pub(super) fn trim(messages: &mut Vec<ChatMessage>, most: usize) -> bool {
    if size(messages) <= most {
        return false;
    }
    let aim = most / 3 * 2;
    let before = size(messages);
    shorten_old(messages, aim);
    while size(messages) > aim && drop_oldest(messages) {}
    if size(messages) > aim {
        // The task and the last turns remain; their results share the available size.
        let results = messages.iter().map(|m| if let ChatMessage::Results(r) = m { r.len() } else { 0 }).sum::<usize>();
        for result in results_of(messages).flatten() {
            shorten(result, (aim / 2 / results.max(1)).max(KEPT_BYTES));
        }
    }
    size(messages) < before
}

fn results_of(messages: &mut [ChatMessage]) -> impl Iterator<Item = &mut Vec<ToolResult>> {
    messages
        .iter_mut()
        .filter_map(|message| if let ChatMessage::Results(results) = message { Some(results) } else { None })
}

fn shorten_old(messages: &mut [ChatMessage], aim: usize) {
    let mut excess = size(messages).saturating_sub(aim);
    let count = results_of(messages).count();
    for result in results_of(messages).take(count.saturating_sub(LAST_TURNS)).flatten() {
        if excess == 0 {
            return;
        }
        let before = result.text.len();
        if before > MAX_SHORT {
            shorten(result, KEPT_BYTES);
        }
        excess = excess.saturating_sub(before.saturating_sub(result.text.len()));
    }
}

/// Replaces the middle of a result with a mark, if the result is longer than `keep` bytes and the mark.
fn shorten(result: &mut ToolResult, keep: usize) {
    let text = &result.text;
    let head = text.floor_char_boundary(keep / 2);
    let tail = text.ceil_char_boundary(text.len().saturating_sub(keep / 2));
    if tail <= head + 100 {
        return;
    }
    let left_out = tail - head;
    result.text = format!(
        "{}\n[… {left_out} bytes omitted here to save space; read it again if you need them …]\n{}",
        &text[..head],
        &text[tail..]
    );
}

/// Removes the oldest turn after the task, with its results. Returns `false` if only the last two turns are left.
fn drop_oldest(messages: &mut Vec<ChatMessage>) -> bool {
    let turns: Vec<usize> =
        messages.iter().enumerate().filter(|(_, m)| matches!(m, ChatMessage::Model(_))).map(|(at, _)| at).collect();
    let [first, second, _, ..] = turns[..] else { return false };
    messages.drain(first..second);
    if !messages[..first].iter().any(|message| *message == ChatMessage::User(OMITTED_TURNS.to_owned())) {
        messages.insert(first, ChatMessage::User(OMITTED_TURNS.to_owned()));
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::domain::providers::chat::{ModelTurn, ToolCall};

    const TASK: &str = "the task";

    fn turn(number: usize, result: usize) -> [ChatMessage; 2] {
        let id = format!("c{number}");
        let call = ToolCall { id: id.clone(), name: "bash".into(), arguments: "{}".into() };
        let turn = ModelTurn { text: format!("turn {number}"), calls: vec![call], original: Value::Null };
        [
            ChatMessage::Model(turn),
            ChatMessage::Results(vec![ToolResult { id, text: "ä".repeat(result / 2), failed: false }]),
        ]
    }

    fn conversation(results: &[usize]) -> Vec<ChatMessage> {
        let turns = results.iter().enumerate().flat_map(|(number, result)| turn(number, *result));
        std::iter::once(ChatMessage::User(TASK.into())).chain(turns).collect()
    }

    fn lengths(messages: &[ChatMessage]) -> Vec<usize> {
        messages
            .iter()
            .filter_map(|m| if let ChatMessage::Results(r) = m { Some(r[0].text.len()) } else { None })
            .collect()
    }

    #[test]
    fn oldest_results_are_shortened_first() {
        let mut messages = conversation(&[3_000, 100, 3_000, 3_000, 3_000, 3_000]);
        assert!(!trim(&mut messages, 20_000));
        assert!(trim(&mut messages, 15_000));
        let lengths = lengths(&messages);
        assert!(lengths[0] < MAX_SHORT && lengths[1] == 100 && lengths[2] < MAX_SHORT, "{lengths:?}");
        assert!(lengths[3] < MAX_SHORT && lengths[4..] == [3_000; 2], "{lengths:?}");
        assert!(size(&messages) <= 10_000);
        let ChatMessage::Results(first) = &messages[2] else { panic!() };
        assert!(first[0].text.contains("2840 bytes omitted"), "{}", first[0].text);
    }

    #[test]
    fn oldest_turns_are_replaced_by_a_mark() {
        let mut messages = conversation(&[300; 40]);
        assert!(trim(&mut messages, 6_000));
        assert_eq!(messages[0], ChatMessage::User(TASK.into()));
        assert_eq!(messages[1], ChatMessage::User(OMITTED_TURNS.into()));
        assert!(size(&messages) <= 4_000 && messages.len() > 10, "{}", messages.len());
        assert!(trim(&mut messages, 3_000));
        assert_eq!(messages.iter().filter(|m| **m == ChatMessage::User(OMITTED_TURNS.into())).count(), 1);
    }

    #[test]
    fn last_results_are_shortened_as_last_resort() {
        let mut messages = conversation(&[50_000, 90_000]);
        assert!(trim(&mut messages, 12_000));
        assert!(size(&messages) <= 8_000, "{}", size(&messages));
        let mut only_task = vec![ChatMessage::User("x".repeat(9_000))];
        assert!(!trim(&mut only_task, 1_000));
        assert_eq!(size(&only_task), 9_000 + MESSAGE_OVERHEAD);
    }

    proptest! {
        #![proptest_config(test_support::cases(128))]
        #[test]
        fn shortened_context_keeps_results_with_their_calls(results in prop::collection::vec(0usize..5_000, 0..30), most in 0usize..40_000) {
            let mut messages = conversation(&results);
            let before = size(&messages);
            trim(&mut messages, most);
            prop_assert!(size(&messages) <= before.max(most));
            prop_assert_eq!(&messages[0], &ChatMessage::User(TASK.into()));
            for (at, message) in messages.iter().enumerate() {
                if let ChatMessage::Model(turn) = message {
                    let Some(ChatMessage::Results(results)) = messages.get(at + 1) else { panic!("no results") };
                    prop_assert_eq!(&results[0].id, &turn.calls[0].id);
                }
            }
            let turns = messages.iter().filter(|m| matches!(m, ChatMessage::Model(_))).count();
            prop_assert!(turns >= results.len().min(2));
        }
    }
}
