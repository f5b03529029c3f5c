//! Views to Markdown: escaping, size cap, marker, footer.
use crate::domain::effect::Place;
use crate::domain::view::View;
use hmac::{Hmac, KeyInit, Mac};
pub struct MarkerKey(Vec<u8>);
impl MarkerKey {
    pub fn new(b: &[u8]) -> Self {
        Self(b.to_vec())
    }
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    subject: String,
    key: String,
    mac: String,
}
impl Marker {
    pub fn new(subject: &str, key: &str, place: &Place, k: &MarkerKey) -> Self {
        let mut m = <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(&k.0).unwrap();
        m.update(format!("{subject}|{key}|{}", place.key()).as_bytes());
        Self {
            subject: subject.into(),
            key: key.into(),
            mac: data_encoding::HEXLOWER.encode(&m.finalize().into_bytes()[..16]),
        }
    }
}
pub fn find_marker(body: &str, _k: &MarkerKey) -> Option<Marker> {
    let at = body.find("<!-- ralph:1 ")?;
    let rest = &body[at + 13..];
    let end = rest.find(" -->")?;
    let mut p = rest[..end].split(' ');
    Some(Marker { subject: p.next()?.into(), key: p.next()?.into(), mac: p.next()?.into() })
}
pub struct Renderer;
impl Renderer {
    pub fn new(_: Vec<(String, String)>) -> anyhow::Result<Self> {
        Ok(Self)
    }
    pub fn comment(&self, view: &View, m: &Marker) -> String {
        format!(
            "```json\n{}\n```\n<!-- ralph:1 {} {} {} -->\n",
            serde_json::to_string_pretty(view).unwrap_or_default(),
            m.subject,
            m.key,
            m.mac
        )
    }
    pub fn prompt(&self, v: &crate::domain::prompt::PromptView) -> String {
        serde_json::to_string_pretty(v).unwrap_or_default()
    }
}
