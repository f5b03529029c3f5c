//! Usage of one response: the provider's figures in the response or its stream, otherwise an estimate from the
//! received text.

use serde_json::Value;

use crate::domain::model::tokens::estimated_tokens;
use crate::domain::providers::usage::ReportedUsage;
use crate::domain::trust::bounds::BROKER_BODY_BYTES;

/// Fields of an event that do not contain output of the model.
const NAMES: [&str; 8] = ["type", "id", "object", "model", "role", "name", "item_id", "signature"];

/// Function that adds the usage in a response, or in an event of its stream.
pub(super) type ReadUsage = fn(&Value, &mut AnswerUsage);

/// Data of a response that determine its cost, as far as received.
#[derive(Debug, Clone, Default)]
pub(super) struct AnswerUsage {
    /// Highest figure of each kind that the provider reported.
    pub(super) usage: ReportedUsage,
    /// Name of the model that responded.
    pub(super) model: Option<String>,
    /// Whether the model completed its response.
    pub(super) is_complete: bool,
    /// Whether the response was received to the end of its connection.
    pub(super) is_whole: bool,
    /// Whether an event was not understood.
    has_unknown: bool,
    /// Number of bytes of text plus number of events with text.
    text: usize,
}

impl AnswerUsage {
    /// Records usage from a response or an event.
    pub(super) fn record(&mut self, told: ReportedUsage) {
        self.usage = self.usage.highest(told);
    }

    /// Records the name of the model; ignores values that are not names.
    pub(super) fn name_model(&mut self, name: &Value) {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            self.model = Some(name.chars().take(100).collect());
        }
    }

    /// Records whether an event completes the response.
    pub(super) fn end(&mut self, is_end: bool) {
        self.is_complete |= is_end;
    }

    /// Whether the response contains text or an unknown event, or the provider reported output tokens.
    pub(super) fn has_output(&self) -> bool {
        self.usage.output > 0 || self.text > 0 || self.has_unknown
    }

    /// Whether no more usage can follow: the whole response was received, or the model completed it and the provider
    /// reported its output tokens.
    pub(super) fn is_known(&self) -> bool {
        self.is_whole || (self.is_complete && self.usage.output > 0)
    }

    /// Reads a response or an event of its stream.
    pub(super) fn read(&mut self, usage: ReadUsage, event: &Value) {
        usage(event, self);
        let text = text_bytes(event);
        self.text = self.text.saturating_add(text);
    }

    /// Returns the usage, with estimates where the provider reported none. `input` is the estimated number of input
    /// tokens.
    pub(super) fn or_estimated(&self, input: u64) -> ReportedUsage {
        let mut usage = self.usage;
        if usage.input == 0 {
            usage.input = input;
        }
        if usage.output == 0 || !self.is_complete {
            usage.output = usage.output.max(estimated_tokens(self.text) as u64);
        }
        usage
    }
}

/// Returns the number of bytes of text in an event.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(text_bytes).fold(0, usize::saturating_add),
        Value::Object(fields) => {
            let texts = fields.iter().filter(|(name, _)| !NAMES.contains(&name.as_str()));
            texts.map(|(_, value)| text_bytes(value)).fold(0, usize::saturating_add)
        }
        _ => 0,
    }
}

/// Reads the usage from the bytes of a stream of server-sent events.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    line: Vec<u8>,
    data: Vec<u8>,
    is_too_long: bool,
}

impl EventReader {
    /// Reads bytes; adds the usage of each complete event to `told`.
    pub(super) fn read(&mut self, usage: ReadUsage, bytes: &[u8], told: &mut AnswerUsage) {
        for byte in bytes {
            if !matches!(byte, b'\n' | b'\r') {
                if self.line.len() < BROKER_BODY_BYTES {
                    self.line.push(*byte);
                } else {
                    self.is_too_long = true;
                }
                continue;
            }
            // The line feed of `\r\n` ends an empty line, which does not end an event.
            let line = std::mem::take(&mut self.line);
            match line.strip_prefix(b"data:") {
                Some(data) => self.add(usage, data, told),
                None if line.is_empty() && *byte == b'\n' => {
                    let data = std::mem::take(&mut self.data);
                    told.has_unknown |= !matches!(data.trim_ascii(), b"" | b"[DONE]");
                }
                None => {}
            }
        }
    }

    /// Adds a data line. Providers send an event as one line; if it is split over several lines, it is read when they
    /// form valid JSON.
    fn add(&mut self, usage: ReadUsage, data: &[u8], told: &mut AnswerUsage) {
        if self.data.len() + data.len() > BROKER_BODY_BYTES || self.is_too_long {
            self.data.clear();
            self.is_too_long = false;
            return;
        }
        self.data.extend_from_slice(data);
        if let Ok(event) = serde_json::from_slice::<Value>(self.data.trim_ascii()) {
            told.read(usage, &event);
            self.data.clear();
        }
    }
}

/// Reads the usage of a complete body, which is a JSON document or a stream of events.
pub(super) fn read_body(usage: ReadUsage, body: &[u8], told: &mut AnswerUsage) {
    if let Ok(document) = serde_json::from_slice::<Value>(body) {
        told.read(usage, &document);
        told.is_complete = true;
    } else {
        let mut reader = EventReader::default();
        reader.read(usage, body, told);
        reader.read(usage, b"\n\n", told);
    }
    told.is_whole = true;
}

#[cfg(test)]
mod tests;
