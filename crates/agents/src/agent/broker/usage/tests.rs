//! Usage of answers and streams of each format, complete and cut.

use super::super::formats::FormatName;
use super::*;

const MESSAGES: &str = "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-x\",\"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":5,\"cache_creation_input_tokens\":7,\"output_tokens\":1}}}\r\n\r\n\
    data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"hello hello hello \\\"usage\\\":{\\\"output_tokens\\\":900}\"}}\n\n\
    data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":40,\"server_tool_use\":{\"web_search_requests\":2}}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
const CHAT: &str = "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n";
const RESPONSES: &str = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"gpt-5\",\"usage\":{\"input_tokens\":30,\"output_tokens\":6,\"input_tokens_details\":{\"cached_tokens\":9}}}}\n\n";
const GEMINI: &str = "data: {\"candidates\":[{\"content\":{}}],\"usageMetadata\":{\"promptTokenCount\":8,\"candidatesTokenCount\":1}}\n\n\
    data: {\"modelVersion\":\"gemini-x\",\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":8,\"candidatesTokenCount\":3,\"thoughtsTokenCount\":2,\"cachedContentTokenCount\":4}}\n\n";

fn usage_of(name: FormatName, stream: &str, size: usize) -> AnswerUsage {
    let (mut reader, mut reported_usage) = (EventReader::default(), AnswerUsage::default());
    for chunk in stream.as_bytes().chunks(size) {
        reader.read(name.row().usage, chunk, &mut reported_usage);
    }
    reported_usage
}

#[test]
fn usage_of_streams_is_read_in_any_chunks() {
    for (name, stream, model, input, output, cached) in [
        (FormatName::Messages, MESSAGES, "claude-x", 22, 40, 5),
        (FormatName::Chat, CHAT, "m", 20, 4, 8),
        (FormatName::Responses, RESPONSES, "gpt-5", 30, 6, 9),
        (FormatName::Gemini, GEMINI, "gemini-x", 8, 5, 4),
    ] {
        for size in [1, 7, stream.len()] {
            let reported_usage = usage_of(name, stream, size);
            let seen = reported_usage.or_estimated(999);
            assert_eq!((seen.input, seen.output, seen.cache_read), (input, output, cached), "{name:?}");
            assert_eq!((reported_usage.model.as_deref(), reported_usage.is_complete), (Some(model), true), "{name:?}");
        }
    }
    assert_eq!(usage_of(FormatName::Messages, MESSAGES, 9).usage.searches, 2);
}

#[test]
fn cut_stream_is_estimated() {
    let cut = MESSAGES.find("message_delta").expect("an end");
    let seen = usage_of(FormatName::Messages, &MESSAGES[..cut], 5).or_estimated(999);
    assert_eq!(seen.input, 22);
    assert!((15..60).contains(&seen.output), "{seen:?}");
    let silent = usage_of(FormatName::Chat, &CHAT[..CHAT.len() / 2], 5).or_estimated(999);
    assert_eq!((silent.input, silent.output), (999, 1));
    assert_eq!(usage_of(FormatName::Chat, "", 1).or_estimated(7).input, 7);
}

#[test]
fn usage_of_bodies_is_read() {
    let mut of_body = AnswerUsage::default();
    let body = r#"{"model":"claude-x","content":[{"type":"text","text":"{\"usage\":{\"output_tokens\":9}}"}],"usage":{"input_tokens":3,"output_tokens":4}}"#;
    read_body(FormatName::Messages.row().usage, body.as_bytes(), &mut of_body);
    assert_eq!((of_body.usage.input, of_body.usage.output, of_body.is_complete), (3, 4, true));
    let mut of_array = AnswerUsage::default();
    let body = r#"[{"usageMetadata":{"promptTokenCount":3}},{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2}}]"#;
    read_body(FormatName::Gemini.row().usage, body.as_bytes(), &mut of_array);
    assert_eq!((of_array.usage.input, of_array.usage.output), (3, 2));
    let mut of_stream = AnswerUsage::default();
    read_body(FormatName::Chat.row().usage, CHAT.as_bytes(), &mut of_stream);
    assert_eq!((of_stream.usage.input, of_stream.usage.output), (20, 4));
}

#[test]
fn only_text_or_unknown_events_count_as_output() {
    let has_output = |body: &str| {
        let mut told = AnswerUsage::default();
        read_body(|_, _| (), body.as_bytes(), &mut told);
        told.has_output()
    };
    for empty in
        ["", "{}", "<html>a page</html>", "data: [DONE]\n\n", "event: ping\n\n", "data: {\"type\":\"ping\"}\n\n"]
    {
        assert!(!has_output(empty), "{empty}");
    }
    for full in ["{\"text\":\"x\"}", "data: {\"text\":\"x\"}\n\n", "data: of an unknown format\n\n"] {
        assert!(has_output(full), "{full}");
    }
}
