//! Fuzz targets for reading requests to models and their responses.

use super::formats::{EndpointPurpose, FormatName, Matched};
use super::request::{RequestRules, check_body};
use super::usage::{AnswerUsage, read_body};

/// Checks the body of a request; the first byte selects the wire format. A provider must read the forwarded body in
/// the same way as the check did, and reading the usage of any response must take bounded time.
pub(in crate::agent) fn body(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let formats = [FormatName::ALL[usize::from(choice.wrapping_sub(b'a')) % FormatName::ALL.len()]];
    let row = formats[0].row();
    let hosts = ["127.0.0.1:1".to_owned(), "localhost:1".to_owned()];
    let rules = RequestRules { formats: &formats, hosts, base_path: "", tokens: &[], allowed: &[] };
    let matched = Matched { format: row, purpose: EndpointPurpose::Answer, model: Some("m".to_owned()) };
    if let Ok(fields) = check_body(&rules, &matched, body) {
        let sent = serde_json::to_vec(&fields).expect("JSON values can be written");
        assert!(check_body(&rules, &matched, &sent).is_ok_and(|again| again == fields));
    }
    read_body(row.usage, body, &mut AnswerUsage::default());
}
