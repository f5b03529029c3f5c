//! Removes the key from answers: from their bytes, and from the texts that a client puts together from the fields of several
//! events, where the bytes between two parts hide a key.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use crate::domain::trust::secret_forms::{SecretForms, StreamRedactor};

/// Maximum length of a line that is read as an event, in bytes.
const MAX_LINE: usize = 32 * 1024 * 1024;
/// Maximum number of fields whose texts are followed; further ones are followed as one text.
const MAX_TEXTS: usize = 512;
/// Minimum number of symbols of a key for which a text is held back until the next event. A text that ends with as many is cut.
const HELD_SYMBOLS: u16 = 10;
/// Fields by which clients tell the parts of several texts apart.
const POSITIONS: [&str; 4] = ["index", "output_index", "content_index", "item_id"];

/// Removes the key from one answer.
pub(super) struct EventRedactor {
    bytes: StreamRedactor,
    line: Vec<u8>,
    texts: AnswerTexts,
}

impl EventRedactor {
    /// Creates a redactor of one answer.
    pub(super) fn new(forms: Arc<SecretForms>, mark: &'static [u8]) -> Self {
        let bytes = StreamRedactor::new(forms.clone(), mark);
        Self {
            bytes,
            line: Vec::new(),
            texts: AnswerTexts { forms, mark, least: HELD_SYMBOLS, known: BTreeMap::new() },
        }
    }

    /// Reads bytes; returns those that can be passed on. Incomplete lines are held back.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let clean = self.bytes.push(bytes);
        self.lines(&clean)
    }

    /// Returns what was held back at the end of the answer.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let rest = self.bytes.finish();
        let mut clean = self.lines(&rest);
        let line = std::mem::take(&mut self.line);
        self.event(&line, &mut clean);
        clean
    }

    /// Returns a complete body without the key.
    pub(super) fn whole(forms: Arc<SecretForms>, mark: &'static [u8], body: &[u8]) -> Vec<u8> {
        let clean = forms.redact(body, mark);
        let mut redactor = Self::new(forms, mark);
        match serde_json::from_slice::<Value>(&clean) {
            Ok(mut document) => {
                // A text that ends like the begin of a key is cut only if the next one continues it.
                let mut found = redactor.texts.anew(u16::MAX);
                let has_key = found.clean(&mut document.clone());
                if has_key && redactor.texts.clean(&mut document) { document.to_string().into_bytes() } else { clean }
            }
            Err(_) => {
                let mut lines = redactor.lines(&clean);
                let line = std::mem::take(&mut redactor.line);
                redactor.event(&line, &mut lines);
                lines
            }
        }
    }

    fn lines(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut clean = Vec::with_capacity(bytes.len());
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") || self.line.len() > MAX_LINE {
                let line = std::mem::take(&mut self.line);
                self.event(&line, &mut clean);
            }
        }
        clean
    }

    /// Passes a line on; in a line of data, the texts of its document are cleaned.
    fn event(&mut self, line: &[u8], clean: &mut Vec<u8>) {
        let mut document = line.strip_prefix(b"data:").and_then(|data| serde_json::from_slice::<Value>(data).ok());
        let is_changed = document.as_mut().is_some_and(|document| self.texts.clean(document));
        match document {
            Some(document) if is_changed => {
                clean.extend_from_slice(format!("data: {document}").as_bytes());
                let end = line.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |last| last + 1);
                clean.extend_from_slice(&line[end..]);
            }
            _ => clean.extend_from_slice(line),
        }
    }
}

/// The texts of an answer, each by the place of its parts.
struct AnswerTexts {
    forms: Arc<SecretForms>,
    mark: &'static [u8],
    /// Minimum number of symbols of a key for which a text is held back.
    least: u16,
    known: BTreeMap<String, StreamRedactor>,
}

impl AnswerTexts {
    /// Returns the same without any text, for texts that are held back from `least` symbols on.
    fn anew(&self, least: u16) -> Self {
        Self { forms: self.forms.clone(), mark: self.mark, least, known: BTreeMap::new() }
    }

    /// Cleans all texts of a document; returns whether one changed.
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

    /// See docs/threats.md#s4.
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
