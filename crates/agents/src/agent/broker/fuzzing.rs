//! Fuzz targets for reading requests to models and their responses.

use serde_json::Value;

use super::body::RequestBody;
use super::formats::{EndpointPurpose, FormatName, Matched, WireFormat};
use super::request::{RefusedRequest, RequestRules, check_body};
use super::usage::{AnswerUsage, read_body};

/// Returns the result of checking a body, and its format, which the first byte selects.
fn checked(data: &[u8]) -> Option<(Result<RequestBody, RefusedRequest>, &'static WireFormat)> {
    let (choice, body) = data.split_first()?;
    let formats = [FormatName::ALL[usize::from(choice.wrapping_sub(b'a')) % FormatName::ALL.len()]];
    let row = formats[0].row();
    let hosts = ["127.0.0.1:1".to_owned(), "localhost:1".to_owned()];
    let rules = RequestRules { formats: &formats, hosts, base_path: "", tokens: &[], allowed: &[] };
    let matched = Matched { format: row, purpose: EndpointPurpose::Answer, model: Some("m".to_owned()) };
    Some((check_body(&rules, &matched, body), row))
}

/// Whether a body passes the check; the first byte selects the wire format.
pub(in crate::agent) fn accepts(data: &[u8]) -> bool {
    checked(data).is_some_and(|(checked, _)| checked.is_ok())
}

/// Checks the body of a request; the first byte selects the wire format. A provider must read the forwarded body in
/// the same way as the check did, and reading the usage of any response must take bounded time.
pub(in crate::agent) fn body(data: &[u8]) {
    let Some((result, row)) = checked(data) else { return };
    let body = &data[1..];
    if let Ok(fields) = result {
        let sent = fields.to_bytes();
        let values = |text: &[u8]| serde_json::from_slice::<Value>(text).expect("a JSON document");
        assert_eq!(values(&sent), values(body));
        let again = [&data[..1], &sent].concat();
        assert!(checked(&again).is_some_and(|(again, _)| again.is_ok_and(|again| again.to_bytes() == sent)));
    }
    read_body(row.usage, body, &mut AnswerUsage::default());
}
