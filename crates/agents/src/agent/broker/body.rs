//! Reads the body of a request as a stream: checks the requested work of the provider, without a tree of its values.
//!
//! Only the fields that set the request's limits become values. Fields that the model reads are serialized again as they
//! are read. Input on which parsers disagree is rejected: duplicate keys, other encodings, text after the value.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use ralph_types::failure::Failure;
use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::formats::WireFormat;
use crate::domain::trust::bounds::BROKER_BODY_BYTES;

/// Maximum size of all fields that become values, in bytes.
const MAX_SETTINGS: usize = 256 * 1024;
/// Maximum number of fields of an object.
const MAX_FIELDS: usize = 10_000;
/// Maximum number of different features that a request asks for.
const MAX_FEATURES: usize = 100;
/// Maximum length of a text or name that is kept of a tool, in characters.
const MAX_KEPT: usize = 60;
/// Reason for a request whose text to send is larger than the received text, because numbers are written out.
const TOO_LARGE: &str = "the request is larger than 32 MiB";
/// Fields of a request that the model reads.
const READ_BY_THE_MODEL: [&str; 9] = [
    "messages",
    "input",
    "contents",
    "system",
    "system_instruction",
    "systemInstruction",
    "instructions",
    "generateContentRequest",
    "generate_content_request",
];
/// Further fields of a request that can be large.
const LARGE: [&str; 3] = ["tools", "functions", "prediction"];
/// Fields whose content is the agent's own data, which no provider interprets.
const DATA: [&str; 16] = [
    "input_schema",
    "parameters",
    "parametersJsonSchema",
    "parameters_json_schema",
    "args",
    "arguments",
    "response",
    "schema",
    "json_schema",
    "response_schema",
    "responseSchema",
    "responseJsonSchema",
    "metadata",
    "client_metadata",
    "annotations",
    "citations",
];
/// Fields that contain an address for the provider to fetch.
const ADDRESSES: [&str; 9] =
    ["url", "image_url", "video_url", "audio_url", "file_url", "uri", "file_uri", "fileUri", "server_url"];
/// Prefixes of addresses that a provider can fetch; they are searched in all fields.
const SCHEMES: [&str; 5] = ["http:", "https:", "ftp:", "gs:", "s3:"];
/// Fields whose content is free text, which may start with an address.
const TEXTS: [&str; 25] = [
    "text",
    "content",
    "contents",
    "parts",
    "messages",
    "input",
    "output",
    "system",
    "instructions",
    "thinking",
    "reasoning",
    "reasoning_content",
    "reasoning_text",
    "summary",
    "refusal",
    "title",
    "context",
    "name",
    "description",
    "code",
    "command",
    "commands",
    "diff",
    "stdout",
    "stderr",
];
/// Fields that refer to data that the provider stores.
const STORED: [&str; 9] = [
    "file_id",
    "fileId",
    "file_ids",
    "vector_store_ids",
    "container_id",
    "skill_id",
    "connector_id",
    "cachedContent",
    "cached_content",
];

/// Body of a request.
#[derive(Debug)]
pub(super) struct RequestBody {
    /// Fields that set the request's limits.
    pub(super) settings: Map<String, Value>,
    /// JSON texts of the other fields, by their known names.
    content: Vec<(String, Vec<u8>)>,
    /// Names of the provider's features that the fields request, except those that only the settings show.
    pub(super) features: Vec<Cow<'static, str>>,
    /// Whether the request asks for caching beyond the usual five minutes.
    pub(super) keeps_long: bool,
}

impl RequestBody {
    /// Reads a body. Needs memory for the text to send, [`MAX_SETTINGS`], and the names of nested objects.
    ///
    /// # Errors
    /// The reason, without the text.
    pub(super) fn read(format: &'static WireFormat, body: &[u8]) -> Result<Self, Failure> {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let request = RequestSeed { format }.deserialize(&mut reader).map_err(|error| error.to_string())?;
        reader.end().map_err(|error| error.to_string())?;
        Ok(request)
    }

    /// Returns the names of the fields that are not `null`.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        let settings = self.settings.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str());
        settings.chain(self.content.iter().map(|(name, _)| name.as_str()))
    }

    /// Returns the length of the JSON text to send, in bytes.
    pub(super) fn len(&self) -> usize {
        let settings = serde_json::to_vec(&self.settings).map_or(usize::MAX, |text| text.len());
        self.content.iter().fold(settings, |sum, (name, value)| sum.saturating_add(name.len() + value.len() + 4))
    }

    /// Returns the JSON text to send.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.len());
        text.extend(serde_json::to_vec(&self.settings).unwrap_or_default());
        for (name, value) in &self.content {
            text.pop();
            if text.len() > 1 {
                text.push(b',');
            }
            text.extend(format!("\"{name}\":").bytes());
            text.extend_from_slice(value);
            text.push(b'}');
        }
        text
    }
}

/// Reader of a whole body.
struct RequestSeed {
    format: &'static WireFormat,
}

impl<'de> DeserializeSeed<'de> for RequestSeed {
    type Value = RequestBody;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<RequestBody, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RequestSeed {
    type Value = RequestBody;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<RequestBody, A::Error> {
        let mut request =
            RequestBody { settings: Map::new(), content: Vec::new(), features: Vec::new(), keeps_long: false };
        let (mut found, mut size_of_settings, mut size) = (Found::default(), 0, 0);
        let mut names = FieldNames::default();
        while let Some(name) = access.next_key_seed(FieldName)? {
            names.add(name.clone())?;
            let text = access.next_value::<&RawValue>()?.get();
            let is_read = READ_BY_THE_MODEL.contains(&&*name);
            let is_content = is_read || LARGE.contains(&&*name);
            size_of_settings += if is_content { 0 } else { name.len() + text.len() };
            if size_of_settings > MAX_SETTINGS {
                return Err(A::Error::custom(format!("`{}` is too large (maximum 256 KiB)", shortened(&name))));
            }
            let is_data = DATA.contains(&&*name);
            let place = Place { name: &name, is_data, is_read, part: BodyPart::of_field(&name), keep: false };
            let (mut reader, mut written) = (serde_json::Deserializer::from_str(text), Vec::new());
            let scan = ValueScan { format: self.format, place, written: &mut written };
            let seen = scan.deserialize(&mut reader).map_err(A::Error::custom)?;
            let is_null = seen.shape == ValueShape::Null;
            seen.add_to(&mut found, &place);
            if is_content && !is_null {
                size += written.len();
                if size > BROKER_BODY_BYTES {
                    return Err(A::Error::custom(TOO_LARGE));
                }
                request.content.push((name.into_owned(), written));
            } else {
                let value = serde_json::from_str(text).map_err(A::Error::custom)?;
                request.settings.insert(name.into_owned(), value);
            }
        }
        if found.features.len() > MAX_FEATURES {
            return Err(A::Error::custom("it asks the provider for more than 100 different features"));
        }
        Ok(RequestBody { features: found.features, keeps_long: found.keeps_long, ..request })
    }
}

/// Findings in a value and everything below it.
#[derive(Default)]
struct Found {
    /// Distinct names of features.
    features: Vec<Cow<'static, str>>,
    keeps_long: bool,
}

impl Found {
    fn add(&mut self, feature: impl Into<Cow<'static, str>>) {
        let feature = feature.into();
        // One more than the maximum, by which the request is refused.
        if self.features.len() <= MAX_FEATURES && !self.features.contains(&feature) {
            self.features.push(feature);
        }
    }

    fn merge(&mut self, other: Self) {
        self.keeps_long |= other.keeps_long;
        other.features.into_iter().for_each(|feature| self.add(feature));
    }
}

/// Meaning of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyPart {
    /// List of tools.
    Tools,
    /// One tool.
    Tool,
    /// List of items of the Responses API.
    Items,
    /// One item of the Responses API.
    Item,
    /// Request of Gemini inside a request for a count.
    Inner,
    Other,
}

impl BodyPart {
    /// Returns the meaning of a field of the request.
    fn of_field(name: &str) -> Self {
        match name {
            "tools" => Self::Tools,
            "input" => Self::Items,
            "generateContentRequest" | "generate_content_request" => Self::Inner,
            _ => Self::Other,
        }
    }
}

/// Place of a value.
#[derive(Clone, Copy)]
struct Place<'n> {
    /// Name of the nearest field.
    name: &'n str,
    /// Whether the value is the agent's own data.
    is_data: bool,
    /// Whether the model reads the value.
    is_read: bool,
    part: BodyPart,
    /// Whether the text of the value is needed.
    keep: bool,
}

/// Result of reading a value.
struct Seen {
    found: Found,
    shape: ValueShape,
    /// Value without its nested values, of a tool or one of its fields; the text of a type.
    outline: Value,
    /// Whether it is an address, or a list with one, where the field's name does not imply free text.
    has_address: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueShape {
    Null,
    Text { is_inline: bool },
    List,
    Other,
}

impl Seen {
    fn of(shape: ValueShape, outline: Value) -> Self {
        Self { found: Found::default(), shape, outline, has_address: false }
    }

    /// Adds the findings in a field and in its name to the findings of its object.
    fn add_to(self, found: &mut Found, place: &Place<'_>) {
        if self.has_address {
            found.add("url_sources");
        }
        found.merge(self.found);
        let name = place.name;
        match self.shape {
            _ if place.is_data => {}
            ValueShape::Null => {}
            ValueShape::List if name == "tools" => {}
            _ if name == "tools" => found.add("untyped_tools"),
            ValueShape::Text { is_inline: false } if ADDRESSES.contains(&name) => found.add("url_sources"),
            _ if STORED.contains(&name) => found.add("files"),
            _ => {}
        }
    }
}

/// Reader of a value.
struct ValueScan<'n, 'w> {
    format: &'static WireFormat,
    place: Place<'n>,
    /// JSON text of the read part.
    written: &'w mut Vec<u8>,
}

impl ValueScan<'_, '_> {
    /// Writes a value without nested ones.
    fn write<E: Error>(&mut self, value: &impl Serialize) -> Result<(), E> {
        if self.written.len() > BROKER_BODY_BYTES {
            return Err(E::custom(TOO_LARGE));
        }
        serde_json::to_writer(&mut *self.written, value).map_err(E::custom)
    }

    fn scalar<E: Error>(mut self, value: Value) -> Result<Seen, E> {
        self.write(&value)?;
        Ok(Seen::of(if value.is_null() { ValueShape::Null } else { ValueShape::Other }, value))
    }
}

impl<'de> DeserializeSeed<'de> for ValueScan<'_, '_> {
    type Value = Seen;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Seen, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueScan<'_, '_> {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Seen, E> {
        self.scalar(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Seen, E> {
        self.scalar(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Seen, E> {
        self.scalar(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Seen, E> {
        self.scalar(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Seen, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number is not finite"))?;
        self.scalar(number.into())
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<Seen, E> {
        self.write(&text)?;
        let Place { name, is_data, is_read, keep, .. } = self.place;
        let outline = if keep { shortened(text).into() } else { Value::Null };
        let mut seen = Seen::of(ValueShape::Text { is_inline: is_inline(text) }, outline);
        seen.has_address = is_read && !is_data && !TEXTS.contains(&name) && is_address(text);
        Ok(seen)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Seen, A::Error> {
        let part = match self.place.part {
            BodyPart::Tools => BodyPart::Tool,
            BodyPart::Items => BodyPart::Item,
            _ => BodyPart::Other,
        };
        let place = Place { part, keep: false, ..self.place };
        let mut list = Seen::of(ValueShape::List, Value::Array(Vec::new()));
        self.written.push(b'[');
        let empty = self.written.len();
        loop {
            let before = self.written.len();
            if before > empty {
                self.written.push(b',');
            }
            let each = ValueScan { format: self.format, place, written: &mut *self.written };
            let Some(one) = access.next_element_seed(each)? else {
                self.written.truncate(before);
                self.written.push(b']');
                return Ok(list);
            };
            list.has_address |= one.has_address;
            list.found.merge(one.found);
            if part == BodyPart::Tool
                && let Some(feature) = (self.format.server_tool)(&one.outline)
            {
                list.found.add(feature);
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Seen, A::Error> {
        let Place { is_data, is_read, part, .. } = self.place;
        let is_tool = part == BodyPart::Tool;
        let mut object = Seen::of(ValueShape::Other, Value::Null);
        let (mut outline, mut kind) = (Map::new(), String::new());
        // Whether these fields count depends on the object's type, which may follow.
        let (mut input, mut typed_address) = (Found::default(), Vec::new());
        let mut names = FieldNames::default();
        self.written.push(b'{');
        while let Some(name) = access.next_key_seed(FieldName)? {
            if !names.0.is_empty() {
                self.written.push(b',');
            }
            names.add(name.clone())?;
            self.write(&name)?;
            self.written.push(b':');
            let is_data = is_data || DATA.contains(&&*name);
            let below = if name == "tools" && !is_data { BodyPart::Tools } else { BodyPart::Other };
            let keep = is_tool || name == "type" || name == "ttl";
            let place = Place { name: &name, is_data, is_read, part: below, keep };
            let scan = ValueScan { format: self.format, place, written: &mut *self.written };
            let mut seen = access.next_value_seed(scan)?;
            object.found.keeps_long |= name == "ttl" && seen.outline.as_str().is_some_and(|time| time != "5m");
            if name == "type" {
                kind = seen.outline.as_str().unwrap_or_default().to_owned();
            }
            if part == BodyPart::Inner && seen.shape != ValueShape::Null && !self.format.fields.contains(&&*name) {
                object.found.add("generate_content_request");
            }
            if is_tool {
                outline.insert(name.to_string(), std::mem::take(&mut seen.outline));
            }
            if seen.has_address && (name == "data" || name == "source") {
                seen.has_address = false;
                typed_address.push(if name == "data" { "text" } else { "search_result" });
            }
            seen.add_to(if name == "input" { &mut input } else { &mut object.found }, &place);
        }
        self.written.push(b'}');
        object.found.keeps_long |= input.keeps_long;
        if !kind.ends_with("_use") {
            object.found.merge(input);
        }
        if typed_address.into_iter().any(|exempt| exempt != kind) {
            object.found.add("url_sources");
        }
        // The Responses API reads an item without a type as a reference unless it is a message.
        let is_untyped = part == BodyPart::Item && kind.is_empty() && names.has("id");
        if !is_data && (kind == "item_reference" || (is_untyped && !(names.has("role") && names.has("content")))) {
            object.found.add("stored_responses");
        }
        object.outline = Value::Object(outline);
        Ok(object)
    }
}

/// Names of the fields of one object.
#[derive(Default)]
struct FieldNames<'de>(HashSet<Cow<'de, str>>);

impl<'de> FieldNames<'de> {
    fn add<E: Error>(&mut self, name: Cow<'de, str>) -> Result<(), E> {
        if self.0.len() == MAX_FIELDS {
            return Err(E::custom("an object has more than 10000 fields"));
        }
        if !self.0.insert(name) {
            return Err(E::custom("a key occurs twice in an object"));
        }
        Ok(())
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// Reader of a field's name, which borrows it if it has no escapes.
struct FieldName;

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for FieldName {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(name.into())
    }

    fn visit_str<E>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(name.to_owned().into())
    }
}

/// Returns the start of a text, with an ellipsis if the text is longer.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_KEPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Whether a provider would read a text as an address. Leading spaces and control characters are ignored.
fn is_address(text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c.is_control());
    SCHEMES.iter().any(|scheme| text.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme)))
}

/// Whether an address contains the data itself, as a `data:` URL.
fn is_inline(text: &str) -> bool {
    text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

#[cfg(test)]
mod tests;
