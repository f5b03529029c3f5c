//! Usage of one answer: what the provider tells in the answer or its stream, or an estimate from the text that arrived.

use serde_json::Value;

use crate::domain::model::ids::Money;
use crate::domain::providers::prices::{TokenPrice, TokenUsage};

/// Maximum length of an event that is read for its usage, in bytes.
const MAX_EVENT: usize = 32 * 1024 * 1024;
/// Bytes of text that are counted as one token where a stream ended without its usage.
const BYTES_PER_TOKEN: u64 = 3;
/// Price of a search of the web, which some providers charge beside the tokens.
const SEARCH: Money = Money(10_000);
/// Fields of an event that are not text of the model.
const NAMES: [&str; 8] = ["type", "id", "object", "model", "role", "name", "item_id", "signature"];

/// Adds the usage that an answer or an event of its stream reports.
pub(super) type ReadUsage = fn(&Value, &mut AnswerUsage);

/// Usage that the provider reported; the highest figure of each kind counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SeenUsage {
    /// Input tokens, including cached ones.
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    /// Part of `cache_write` that is kept for an hour, at twice the price of input.
    pub(super) long_cache_write: u64,
    /// Searches of the web by the provider.
    pub(super) searches: u64,
}

/// Content of an answer that concerns its cost, as far as it has arrived.
#[derive(Debug, Clone, Default)]
pub(super) struct AnswerUsage {
    pub(super) usage: SeenUsage,
    /// Model that answered.
    pub(super) model: Option<String>,
    /// Whether the model ended its answer.
    pub(super) is_complete: bool,
    /// Whether the whole answer arrived, to the end of its connection.
    pub(super) is_whole: bool,
    /// Bytes of text, and events with text.
    text: u64,
}

impl SeenUsage {
    /// Takes the higher figure of each kind.
    fn highest(&mut self, told: &Self) {
        let pairs = [
            (&mut self.input, told.input),
            (&mut self.output, told.output),
            (&mut self.cache_read, told.cache_read),
            (&mut self.cache_write, told.cache_write),
            (&mut self.long_cache_write, told.long_cache_write),
            (&mut self.searches, told.searches),
        ];
        for (known, told) in pairs {
            *known = (*known).max(told);
        }
    }

    /// Returns the tokens as the rest of the service counts them.
    pub(super) fn tokens(&self) -> TokenUsage {
        TokenUsage::with_cached_in(self.input, self.output, self.cache_read, self.cache_write)
    }

    /// Returns the cost at a price.
    pub(super) fn cost(&self, price: &TokenPrice) -> Money {
        let longer = Money(price.input.0.saturating_mul(2).saturating_sub(price.cache_write.0).max(0));
        let long = TokenPrice { input: longer, output: Money(0), cache_read: Money(0), cache_write: Money(0) };
        let long = long.cost(&TokenUsage { input: self.long_cache_write, ..TokenUsage::default() });
        let searches = Money(i64::try_from(self.searches).unwrap_or(i64::MAX).saturating_mul(SEARCH.0));
        price.cost(&self.tokens()).plus(long).plus(searches)
    }
}

impl AnswerUsage {
    /// Notes the usage in an answer or an event.
    pub(super) fn record(&mut self, told: &SeenUsage) {
        self.usage.highest(told);
    }

    /// Notes the model, if the value is a name.
    pub(super) fn name_model(&mut self, name: &Value) {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            self.model = Some(name.chars().take(100).collect());
        }
    }

    /// Notes whether the event ends the answer.
    pub(super) fn end(&mut self, is_end: bool) {
        self.is_complete |= is_end;
    }

    /// Whether no more usage can follow: all arrived, or the model ended its answer and the provider told what it wrote.
    pub(super) fn is_known(&self) -> bool {
        self.is_whole || (self.is_complete && self.usage.output > 0)
    }

    /// Reads an answer or an event of its stream.
    pub(super) fn read(&mut self, usage: ReadUsage, event: &Value) {
        usage(event, self);
        let text = text_bytes(event);
        self.text = self.text.saturating_add(text);
    }

    /// Returns the usage with estimates where the provider reported none. `input` is the estimate of the request.
    pub(super) fn or_estimated(&self, input: u64) -> SeenUsage {
        let mut usage = self.usage;
        if usage.input == 0 {
            usage.input = input;
        }
        if usage.output == 0 || !self.is_complete {
            usage.output = usage.output.max(self.text.div_ceil(BYTES_PER_TOKEN));
        }
        usage
    }
}

/// Returns the number of bytes of text in an event.
fn text_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => u64::try_from(text.len()).unwrap_or(u64::MAX),
        Value::Array(values) => values.iter().map(text_bytes).fold(0, u64::saturating_add),
        Value::Object(fields) => {
            let texts = fields.iter().filter(|(name, _)| !NAMES.contains(&name.as_str()));
            texts.map(|(_, value)| text_bytes(value)).fold(0, u64::saturating_add)
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
    /// Reads bytes; events that are complete are added to `told`.
    pub(super) fn read(&mut self, usage: ReadUsage, bytes: &[u8], told: &mut AnswerUsage) {
        for byte in bytes {
            if !matches!(byte, b'\n' | b'\r') {
                if self.line.len() < MAX_EVENT {
                    self.line.push(*byte);
                } else {
                    self.is_too_long = true;
                }
                continue;
            }
            // The line feed of `\r\n` ends an empty line, which is no end of an event.
            let line = std::mem::take(&mut self.line);
            match line.strip_prefix(b"data:") {
                Some(data) => self.add(usage, data, told),
                None if line.is_empty() && *byte == b'\n' => self.data.clear(),
                None => {}
            }
        }
    }

    /// Reads a line of data. Providers send an event in one line; one that is cut into lines is read once it is a document.
    fn add(&mut self, usage: ReadUsage, data: &[u8], told: &mut AnswerUsage) {
        if self.data.len() + data.len() > MAX_EVENT || self.is_too_long {
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

/// Reads the usage of a complete body: a document, or a stream of events.
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
