//! Removes the key from responses. A client can join texts from the fields of several events, so a key is also found
//! if its parts are in different events and not adjacent in the bytes.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::domain::trust::bounds::BROKER_BODY_BYTES;
use crate::domain::trust::secret_forms::{SecretForms, StreamRedactor, StreamTracker};

/// Maximum number of fields whose texts are joined separately; all further fields are joined to one text.
const MAX_TEXTS: usize = 512;
/// Number of symbols: a text that ends with at least as many of a key's first symbols is held back until the next
/// event. If the response ends there, these symbols are removed.
const HELD_SYMBOLS: u16 = 10;
/// Fields that identify which of several texts an event continues.
const POSITIONS: [&str; 4] = ["index", "output_index", "content_index", "item_id"];

/// Fields of events that are not output of the model and that can occur between two parts of an output.
const STRUCTURE: [&str; 12] = [
    "type",
    "id",
    "object",
    "model",
    "role",
    "item_id",
    "call_id",
    "status",
    "finish_reason",
    "stop_reason",
    "system_fingerprint",
    "obfuscation",
];

/// Removes the key from one response.
pub(super) struct EventRedactor {
    bytes: StreamRedactor,
    line: Vec<u8>,
    /// Whether the last line ended with a carriage return.
    is_returned: bool,
    event: OpenEvent,
    waiting: WaitingEvents,
    texts: AnswerTexts,
}

/// Lines of an event whose data are incomplete.
#[derive(Default)]
struct OpenEvent {
    /// All lines, as they were received.
    lines: Vec<u8>,
    /// Lines other than data lines.
    others: Vec<u8>,
    /// Content of the data lines, without their `data:` prefix.
    data: Vec<u8>,
}

/// Event or line, as it was received.
struct HeldEvent {
    lines: Vec<u8>,
    /// Lines that are sent before the data if the data are changed.
    others: Vec<u8>,
    data: EventData,
    /// Offset of the event's first text in the joined texts of the response.
    start: usize,
    /// Offset after the event's last text.
    end: usize,
}

enum EventData {
    None,
    Text(String),
    Document(Value),
}

impl EventRedactor {
    /// Creates a redactor for one response. `mark` replaces a key.
    pub(super) fn new(forms: Arc<SecretForms>, mark: &'static [u8]) -> Self {
        Self {
            bytes: StreamRedactor::new(forms.clone(), mark),
            line: Vec::new(),
            is_returned: false,
            event: OpenEvent::default(),
            waiting: WaitingEvents {
                tracker: StreamTracker::new(forms.clone()),
                found: Vec::new(),
                mark,
                events: VecDeque::new(),
                held: 0,
            },
            texts: AnswerTexts { forms, mark, least: HELD_SYMBOLS, known: BTreeMap::new() },
        }
    }

    /// Adds bytes; returns the bytes that can be passed on. Incomplete lines are held back.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let clean = self.bytes.push(bytes);
        self.lines(&clean)
    }

    /// Returns the bytes that were held back, at the end of the response.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let rest = self.bytes.finish();
        let mut clean = self.lines(&rest);
        clean.extend(self.last_lines());
        clean
    }

    /// Returns a complete body with the key removed.
    pub(super) fn whole(forms: Arc<SecretForms>, mark: &'static [u8], body: &[u8]) -> Vec<u8> {
        let clean = forms.redact(body, mark);
        let mut redactor = Self::new(forms, mark);
        match serde_json::from_slice::<Value>(&clean) {
            Ok(mut document) => {
                let mut is_changed = redactor.waiting.clean(&mut document);
                // A text that ends like the start of a key is cut only if the next one continues it.
                let has_key = redactor.texts.anew(u16::MAX).clean(&mut document.clone());
                is_changed |= has_key && redactor.texts.clean(&mut document);
                if is_changed { document.to_string().into_bytes() } else { clean }
            }
            Err(_) => {
                let mut lines = redactor.lines(&clean);
                lines.extend(redactor.last_lines());
                lines
            }
        }
    }

    fn lines(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut clean = Vec::with_capacity(bytes.len());
        let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        for part in bytes.split_inclusive(is_end) {
            self.line.extend_from_slice(part);
            if part.last().is_some_and(is_end) || self.line.len() > BROKER_BODY_BYTES {
                let line = std::mem::take(&mut self.line);
                self.take_line(line);
                self.release(false, &mut clean);
            }
        }
        clean
    }

    /// Returns the lines and events that were held back.
    fn last_lines(&mut self) -> Vec<u8> {
        let (line, mut clean) = (std::mem::take(&mut self.line), Vec::new());
        self.take_line(line);
        self.end_event();
        self.release(true, &mut clean);
        clean
    }

    /// Adds a line including its line ending. Lines of an event are collected until their data are valid JSON or the
    /// event ends.
    fn take_line(&mut self, line: Vec<u8>) {
        let is_rest = std::mem::replace(&mut self.is_returned, line.ends_with(b"\r")) && line == b"\n";
        let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        let data = line[..end].strip_prefix(b"data:").map(|data| data.strip_prefix(b" ").unwrap_or(data));
        let is_open = !self.event.lines.is_empty();
        match data {
            None if end == 0 && !is_rest => {
                self.end_event();
                self.waiting.add(line, Vec::new(), EventData::None);
            }
            None if is_open => {
                self.event.lines.extend_from_slice(&line);
                if !is_rest {
                    self.event.others.extend_from_slice(&line);
                }
            }
            None => self.waiting.add(line, Vec::new(), EventData::None),
            Some(data) => match document_of(data).filter(|_| !is_open) {
                Some(document) => self.waiting.add(line, Vec::new(), EventData::Document(document)),
                None => {
                    if is_open {
                        self.event.data.push(b'\n');
                    }
                    self.event.data.extend_from_slice(data);
                    self.event.lines.extend_from_slice(&line);
                    if self.event.lines.len() > BROKER_BODY_BYTES {
                        self.end_event();
                    }
                }
            },
        }
    }

    fn end_event(&mut self) {
        let OpenEvent { lines, others, data } = std::mem::take(&mut self.event);
        if !lines.is_empty() {
            let text = || EventData::Text(String::from_utf8_lossy(&data).into_owned());
            let data = document_of(&data).map_or_else(text, EventData::Document);
            self.waiting.add(lines, others, data);
        }
    }

    /// Passes on the events that cannot contain the start of a key, or all events if `all`.
    fn release(&mut self, all: bool, clean: &mut Vec<u8>) {
        while let Some((mut event, mut is_changed)) = self.waiting.next(all) {
            let text = match &mut event.data {
                EventData::None => None,
                EventData::Document(document) => {
                    is_changed |= self.texts.clean(document);
                    is_changed.then(|| document.to_string())
                }
                EventData::Text(text) => {
                    let mut value = Value::String(std::mem::take(text));
                    is_changed |= self.texts.clean(&mut value);
                    is_changed.then(|| value.as_str().unwrap_or_default().replace('\n', "\ndata: "))
                }
            };
            match text {
                Some(text) => {
                    clean.extend_from_slice(&event.others);
                    clean.extend_from_slice(format!("data: {text}").as_bytes());
                    let end = event.lines.iter().rposition(|byte| !byte.is_ascii_whitespace());
                    clean.extend_from_slice(&event.lines[end.map_or(0, |last| last + 1)..]);
                }
                None => clean.extend_from_slice(&event.lines),
            }
        }
    }
}

/// Queue of events. The last ones are held back while their texts may contain the start of a key, regardless of
/// the fields that contain its parts.
struct WaitingEvents {
    tracker: StreamTracker,
    /// Ranges of keys in the joined texts, and whether the replacement mark was inserted for them.
    found: Vec<(Range<usize>, bool)>,
    mark: &'static [u8],
    events: VecDeque<HeldEvent>,
    /// Total size of the held-back events, in bytes.
    held: usize,
}

impl WaitingEvents {
    fn add(&mut self, lines: Vec<u8>, others: Vec<u8>, mut data: EventData) {
        if lines.is_empty() {
            return;
        }
        let start = self.tracker.position();
        match &mut data {
            EventData::None => {}
            EventData::Text(text) => self.track(text),
            EventData::Document(document) => each_text(document, &mut |text| self.track(text)),
        }
        self.held += lines.len();
        self.events.push_back(HeldEvent { lines, others, data, start, end: self.tracker.position() });
    }

    fn track(&mut self, text: &str) {
        self.found.extend(self.tracker.push(text.as_bytes()).into_iter().map(|place| (place, false)));
    }

    /// Returns the next event with the keys removed, and whether it contained part of a key.
    fn next(&mut self, all: bool) -> Option<(HeldEvent, bool)> {
        let open_from =
            if all || self.held > BROKER_BODY_BYTES { usize::MAX } else { self.tracker.open_from(HELD_SYMBOLS) };
        if self.events.front()?.end > open_from {
            return None;
        }
        let mut event = self.events.pop_front()?;
        self.held -= event.lines.len();
        let (mut position, mut is_changed) = (event.start, false);
        let mut cut = |text: &mut String| is_changed |= self.cut(text, &mut position);
        match &mut event.data {
            EventData::None => {}
            EventData::Text(text) => cut(text),
            EventData::Document(document) => each_text(document, &mut cut),
        }
        self.found.retain(|(place, _)| place.end > event.end);
        Some((event, is_changed))
    }

    /// Removes the keys that are found within a single JSON document; returns `true` if there were any.
    fn clean(&mut self, document: &mut Value) -> bool {
        each_text(document, &mut |text| self.track(text));
        let (mut position, mut is_changed) = (0, false);
        each_text(document, &mut |text| is_changed |= self.cut(text, &mut position));
        is_changed
    }

    /// Removes parts of keys from the text at an offset of the joined texts; returns `true` if there were any.
    fn cut(&mut self, text: &mut String, position: &mut usize) -> bool {
        let (start, end) = (*position, *position + text.len());
        *position = end;
        let (mut clean, mut at) = (Vec::new(), start);
        for (place, is_marked) in &mut self.found {
            let (from, to) = (place.start.max(at), place.end.min(end));
            if from < to {
                clean.extend_from_slice(&text.as_bytes()[at - start..from - start]);
                if !std::mem::replace(is_marked, true) {
                    clean.extend_from_slice(self.mark);
                }
                at = to;
            }
        }
        if at == start {
            return false;
        }
        clean.extend_from_slice(&text.as_bytes()[at - start..]);
        *text = String::from_utf8_lossy(&clean).into_owned();
        true
    }
}

/// Parses data as a JSON document; `None` if they are none or contain no texts.
fn document_of(data: &[u8]) -> Option<Value> {
    let document: Option<Value> = serde_json::from_slice(data).ok();
    document.filter(|document| document.is_object() || document.is_array() || document.is_string())
}

/// Calls `visit` for the texts of a document in order, except texts of structural fields.
fn each_text(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(values) => values.iter_mut().for_each(|value| each_text(value, visit)),
        Value::Object(fields) => {
            let said = fields.iter_mut().filter(|(name, _)| !STRUCTURE.contains(&name.as_str()));
            said.for_each(|(_, value)| each_text(value, visit));
        }
        _ => {}
    }
}

/// Joined texts of a response, one for each position that events can continue.
struct AnswerTexts {
    forms: Arc<SecretForms>,
    mark: &'static [u8],
    /// Number of symbols: a text that ends with at least as many of a key's first symbols is held back.
    least: u16,
    known: BTreeMap<String, StreamRedactor>,
}

impl AnswerTexts {
    /// Returns an empty copy, which holds texts back from `least` symbols on.
    fn anew(&self, least: u16) -> Self {
        Self { forms: self.forms.clone(), mark: self.mark, least, known: BTreeMap::new() }
    }

    /// Removes keys from all texts of a document; returns `true` if one changed.
    fn clean(&mut self, document: &mut Value) -> bool {
        let mut place = String::new();
        self.clean_at(document, &mut place)
    }

    fn clean_at(&mut self, value: &mut Value, place: &mut String) -> bool {
        let (length, mut changed) = (place.len(), false);
        match value {
            Value::String(text) => {
                if self.known.len() >= MAX_TEXTS && !self.known.contains_key(place) {
                    place.clear();
                }
                let (forms, mark, least) = (&self.forms, self.mark, self.least);
                let new = || StreamRedactor::new(forms.clone(), mark).holding(least);
                let clean = self.known.entry(place.clone()).or_insert_with(new).push(text.as_bytes());
                if clean != text.as_bytes() {
                    *text = String::from_utf8_lossy(&clean).into_owned();
                    changed = true;
                }
            }
            Value::Array(values) => {
                place.push_str("[]");
                for value in values {
                    changed |= self.clean_at(value, place);
                }
            }
            Value::Object(fields) => {
                for position in POSITIONS.into_iter().filter_map(|name| fields.get(name)) {
                    // Writing to a text does not fail.
                    let _ = write!(place, "@{position}");
                }
                let inner = place.len();
                for (name, value) in fields.iter_mut() {
                    let _ = write!(place, "/{name}");
                    changed |= self.clean_at(value, place);
                    place.truncate(inner);
                }
            }
            _ => {}
        }
        place.truncate(length);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-ant-api03-Zq8vT1xY-73hGmpLw0RkE";
    const MARK: &[u8] = b"[key removed]";

    fn forms() -> Arc<SecretForms> {
        Arc::new(SecretForms::new([KEY]))
    }

    /// See docs/research/threats.md#s4.
    #[test]
    fn key_split_over_events_is_removed() {
        for size in [1, 2, 5, 9] {
            let parts: Vec<String> =
                KEY.as_bytes().chunks(size).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
            let event = |text: &str| {
                format!("event: content_block_delta\ndata: {{\"index\":0,\"delta\":{{\"text\":\"{text}\"}}}}\n\n")
            };
            let stream: String = ["I say ".to_owned()].iter().chain(&parts).map(|part| event(part)).collect();
            let stream = stream + &event(", done") + "data: [DONE]\n\n";
            let mut redactor = EventRedactor::new(forms(), MARK);
            let mut clean: Vec<u8> = stream.as_bytes().chunks(11).flat_map(|chunk| redactor.push(chunk)).collect();
            clean.extend(redactor.finish());
            let clean = String::from_utf8(clean).expect("text");
            let data =
                clean.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
            let said: String =
                data.map(|event| event["delta"]["text"].as_str().unwrap_or_default().to_owned()).collect();
            assert!(!forms().is_in(said.as_bytes()) && said.contains("[key removed]"), "{size}: {said}");
            assert!(said.starts_with("I say ") && said.ends_with(", done"), "{size}: {said}");
            assert!(clean.ends_with("data: [DONE]\n\n"), "{clean}");
        }
    }

    /// Returns the texts of a document in order.
    fn said(document: &Value) -> String {
        let mut said = String::new();
        each_text(&mut document.clone(), &mut |text| said.push_str(text));
        said
    }

    /// Returns the text that a client reads from a stream that arrives in small parts.
    fn read(stream: &str) -> String {
        let mut redactor = EventRedactor::new(forms(), MARK);
        let mut clean: Vec<u8> = stream.as_bytes().chunks(7).flat_map(|chunk| redactor.push(chunk)).collect();
        clean.extend(redactor.finish());
        let clean = String::from_utf8(clean).expect("text").replace("\r\n", "\n").replace('\r', "\n");
        let events = clean.split("\n\n").map(|event| {
            let data = event.lines().filter_map(|line| line.strip_prefix("data:"));
            data.map(|data| data.strip_prefix(' ').unwrap_or(data)).collect::<Vec<_>>().join("\n")
        });
        let read = |data: String| document_of(data.as_bytes()).map_or(data, |document| said(&document));
        events.map(read).collect()
    }

    /// See docs/research/threats.md#s4.
    #[test]
    fn key_split_over_fields_positions_and_lines_of_events_is_removed() {
        type Written = fn(usize, &str) -> String;
        let ways: [(&str, Written); 7] = [
            ("carriage returns", |_, part| format!("data: {{\"delta\":{{\"text\":\"{part}\"}}}}\r\r")),
            ("both ends of lines", |_, part| format!("data: {{\"delta\":{{\"text\":\"{part}\"}}}}\r\n\r\n")),
            ("several lines of data", |_, part| {
                format!("data: {{\"delta\":\nevent: x\ndata:{{\"text\":\ndata: \"{part}\"}}}}\n\n")
            }),
            ("several lines and carriage returns", |_, part| {
                format!("data: {{\"delta\":\rdata: {{\"text\":\"{part}\"}}}}\r\r")
            }),
            ("other fields", |n, part| {
                format!("data: {{\"type\":\"part\",\"delta\":{{\"text{n}\":\"{part}\"}},\"id\":\"i\"}}\n\n")
            }),
            ("other positions", |n, part| format!("data: {{\"index\":{n},\"delta\":{{\"text\":\"{part}\"}}}}\n\n")),
            ("plain text", |_, part| format!("data: {part}\n\n")),
        ];
        for (name, written) in ways {
            for size in [1, 2, 5, 9, 12, 20] {
                let parts = KEY.as_bytes().chunks(size).map(|part| String::from_utf8_lossy(part).into_owned());
                let all = ["I say ".to_owned()].into_iter().chain(parts).chain([", done".to_owned()]);
                let stream: String = all.enumerate().map(|(n, part)| written(n, &part)).collect();
                let read = read(&stream);
                assert!(!forms().is_in(read.as_bytes()) && read.contains("[key removed]"), "{name}, {size}: {read}");
                assert!(read.starts_with("I say ") && read.ends_with(", done"), "{name}, {size}: {read}");
                assert!(!read.contains(&KEY[..10]) && !read.contains(&KEY[24..]), "{name}, {size}: {read}");
            }
            let harmless = written(0, "sk-ant is how it begins") + &written(1, "and here it ends");
            let mut redactor = EventRedactor::new(forms(), MARK);
            let mut clean = redactor.push(harmless.as_bytes());
            clean.extend(redactor.finish());
            assert_eq!(String::from_utf8_lossy(&clean), harmless, "{name}");
        }
    }

    #[test]
    fn events_without_a_part_of_the_key_are_forwarded_at_once() {
        let mut redactor = EventRedactor::new(forms(), MARK);
        let event = b"event: x\ndata: {\"delta\":{\"text\":\"Hello\"}}\n";
        assert_eq!(redactor.push(event), event);
    }

    #[test]
    fn key_split_over_other_fields_of_a_body_is_removed() {
        let body =
            serde_json::json!({ "output": [{ "type": "a", "z": &KEY[..12] }, { "type": "b", "a": &KEY[12..] }] });
        let clean = EventRedactor::whole(forms(), MARK, body.to_string().as_bytes());
        let clean: Value = serde_json::from_slice(&clean).expect("a document");
        assert!(!forms().is_in(said(&clean).as_bytes()), "{clean}");
        assert_eq!(
            (clean["output"][0]["z"].as_str(), clean["output"][1]["type"].as_str()),
            (Some("[key removed]"), Some("b"))
        );
    }

    #[test]
    fn key_split_over_fields_of_a_body_is_removed() {
        let body = serde_json::json!({ "content": [{ "type": "text", "text": &KEY[..9] }, { "type": "text", "text": &KEY[9..] }] });
        let clean = EventRedactor::whole(forms(), MARK, body.to_string().as_bytes());
        let clean: Value = serde_json::from_slice(&clean).expect("a document");
        let said: String = [0, 1].map(|at: usize| clean["content"][at]["text"].as_str().unwrap_or_default()).concat();
        assert!(!forms().is_in(said.as_bytes()), "{said}");
        let harmless = br#"{"content": [ {"text": "unchanged sk-ant"} ]}"#;
        assert_eq!(EventRedactor::whole(forms(), MARK, harmless), harmless);
    }
}
