//! Scripted transport for tests that validates each request and response against the forge's API description.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

use ::http::{Request, Response};
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::http::{Transport, TransportError};

/// Folder with the descriptions of the forges' interfaces and examples of their webhooks.
const CONTRACTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/contracts");

/// Reads a file of the contracts folder.
pub(crate) fn contract_file(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(CONTRACTS).join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the names of the files in a subfolder of the contracts, sorted.
pub(crate) fn contract_folder(name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(Path::new(CONTRACTS).join(name)).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// API description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContractSpec {
    Gitea,
    Forgejo,
    GitHub,
}

impl ContractSpec {
    fn file(self) -> &'static str {
        match self {
            Self::Gitea => "gitea-rest-subset.json",
            Self::Forgejo => "forgejo-rest-subset.json",
            Self::GitHub => "github-rest-subset.json",
        }
    }

    fn prefix(self) -> &'static str {
        if self == Self::GitHub { "" } else { "/api/v1" }
    }
}

/// Recorded request.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) method: String,
    /// Path and query, without the prefix of the API.
    pub(crate) target: String,
    pub(crate) headers: ::http::HeaderMap,
    /// JSON body; `Null` without a body.
    pub(crate) body: Value,
}

struct Scripted {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
    checked: bool,
}

/// Transport with scripted responses by method and target; each is used once, in order.
pub(crate) struct ContractTransport {
    spec: ContractSpec,
    document: Arc<Value>,
    script: Mutex<BTreeMap<String, VecDeque<Scripted>>>,
    outside: Mutex<BTreeSet<String>>,
    seen: Mutex<Vec<RecordedRequest>>,
}

impl ContractTransport {
    pub(crate) fn new(spec: ContractSpec) -> Arc<Self> {
        let bytes = contract_file(spec.file());
        let mut document: Value = serde_json::from_slice(&bytes).unwrap();
        prepare(&mut document, spec);
        Arc::new(Self {
            spec,
            document: Arc::new(document),
            script: Mutex::default(),
            outside: Mutex::default(),
            seen: Mutex::default(),
        })
    }

    /// Adds a response that must match the description. `target` is path and query, without `/api/v1`.
    pub(crate) fn on(&self, method: &str, target: &str, status: u16, body: Value) -> &Self {
        self.on_with(method, target, status, &[], body)
    }

    /// Adds a response with headers that must match the description.
    pub(crate) fn on_with(
        &self,
        method: &str,
        target: &str,
        status: u16,
        headers: &[(&str, &str)],
        body: Value,
    ) -> &Self {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        self.script(method, target, status, headers, body, true)
    }

    /// Adds a response that need not match the description.
    pub(crate) fn on_raw(
        &self,
        method: &str,
        target: &str,
        status: u16,
        headers: &[(&str, &str)],
        body: &str,
    ) -> &Self {
        self.script(method, target, status, headers, Bytes::copy_from_slice(body.as_bytes()), false)
    }

    /// Allows a path, given as a template, that is missing from the API description.
    pub(crate) fn outside(&self, method: &str, path: &str) -> &Self {
        self.outside.lock().unwrap().insert(format!("{method} {path}"));
        self
    }

    fn script(
        &self,
        method: &str,
        target: &str,
        status: u16,
        headers: &[(&str, &str)],
        body: Bytes,
        checked: bool,
    ) -> &Self {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let mut script = self.script.lock().unwrap();
        script.entry(format!("{method} {target}")).or_default().push_back(Scripted { status, headers, body, checked });
        drop(script);
        self
    }

    /// Validates a request of another transport and its response; `path` is relative to the API's root.
    pub(crate) fn check(&self, request: &Request<Bytes>, path: &str, answer: &Response<Bytes>) {
        let method = request.method().as_str();
        let body = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
        self.check_request(method, path, request.uri().query(), &body);
        self.check_answer(method, path, answer.status().as_u16(), answer.body());
    }

    /// Returns the recorded requests in order.
    pub(crate) fn seen(&self) -> Vec<RecordedRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the bodies of the recorded requests with a method and target.
    pub(crate) fn bodies(&self, method: &str, target: &str) -> Vec<Value> {
        self.seen().into_iter().filter(|s| s.method == method && s.target == target).map(|s| s.body).collect()
    }

    /// Panics if a scripted response was not used.
    pub(crate) fn finish(&self) {
        let unused: Vec<String> =
            self.script.lock().unwrap().iter().filter(|(_, v)| !v.is_empty()).map(|(k, _)| k.clone()).collect();
        assert!(unused.is_empty(), "never asked for: {unused:?}");
    }

    /// Returns the path template and operation of a request; `None` if it is allowed without a description.
    fn operation(&self, method: &str, path: &str) -> Option<(&str, &Value)> {
        let outside = self.outside.lock().unwrap();
        let allowed = |template: &str| outside.contains(&format!("{method} {template}"));
        if outside.iter().filter_map(|o| o.split_once(' ')).any(|(m, t)| m == method && fits(t, path) && allowed(t)) {
            return None;
        }
        let paths = self.document["paths"].as_object().unwrap();
        let literal_parts = |template: &str| template.split('/').filter(|part| !part.starts_with('{')).count();
        let found = paths
            .iter()
            .filter(|(template, operations)| fits(template, path) && operations.get(method.to_lowercase()).is_some())
            .max_by_key(|(template, _)| literal_parts(template));
        let Some((template, operations)) = found else {
            panic!("{:?} has no {method} {path}", self.spec);
        };
        Some((template.as_str(), &operations[&method.to_lowercase()]))
    }

    fn check_request(&self, method: &str, path: &str, query: Option<&str>, body: &Value) {
        let Some((template, operation)) = self.operation(method, path) else { return };
        let place = format!("{method} {template}");
        let own = operation["parameters"].as_array().cloned().unwrap_or_default();
        let shared = self.document["paths"][template]["parameters"].as_array().cloned().unwrap_or_default();
        let parameters: Vec<Value> = own.iter().chain(&shared).map(|p| self.resolved(p)).collect();
        let within = |place: &str| parameters.iter().filter(move |p| p["in"] == place).cloned().collect::<Vec<_>>();

        let known = within("query");
        let given: Vec<(String, String)> =
            url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect();
        for (name, value) in &given {
            let parameter = known.iter().find(|p| p["name"] == name.as_str());
            let Some(parameter) = parameter else { panic!("{place}: no query parameter {name:?}") };
            let schema = parameter.get("schema").unwrap_or(parameter);
            check_scalar(&format!("{place}?{name}"), &self.resolved(schema), value);
        }
        for parameter in known.iter().filter(|p| p["required"] == true) {
            assert!(
                given.iter().any(|(n, _)| parameter["name"] == n.as_str()),
                "{place}: {} is missing",
                parameter["name"]
            );
        }
        for parameter in within("path") {
            let (Some(name), schema) = (parameter["name"].as_str(), parameter.get("schema").unwrap_or(&parameter))
            else {
                panic!("{place}: a nameless parameter")
            };
            if let Some(value) = part(template, path, name) {
                check_scalar(&format!("{place} {name}"), &self.resolved(schema), &value);
            }
        }

        let described = match within("body").first() {
            Some(parameter) => Some((parameter["schema"].clone(), parameter["required"] == true)),
            None => operation.get("requestBody").map(|b| {
                let b = self.resolved(b);
                (b["content"]["application/json"]["schema"].clone(), b["required"] == true)
            }),
        };
        match described {
            None => assert!(body.is_null(), "{place} takes no body, got {body}"),
            Some((_, required)) if body.is_null() => assert!(!required, "{place} needs a body"),
            Some((schema, _)) => {
                self.check_value(&place, &schema, body);
                let properties = self.resolved(&schema)["properties"].as_object().cloned().unwrap_or_default();
                for key in body.as_object().into_iter().flat_map(Map::keys).filter(|_| !properties.is_empty()) {
                    assert!(properties.contains_key(key), "{place}: no field {key:?} in the body");
                }
            }
        }
    }

    fn check_answer(&self, method: &str, path: &str, status: u16, body: &Bytes) {
        let Some((template, operation)) = self.operation(method, path) else { return };
        let place = format!("answer {status} of {method} {template}");
        // Any operation may answer these, described or not.
        if matches!(status, 304 | 401 | 403 | 404 | 408 | 409 | 422 | 423 | 429 | 500..) {
            return;
        }
        let response = operation["responses"].get(status.to_string());
        let Some(response) = response else { panic!("{place} is not described") };
        let response = self.resolved(response);
        let schema = response.get("schema").or_else(|| response["content"]["application/json"].get("schema"));
        match schema {
            None => {}
            Some(schema) => {
                let value = serde_json::from_slice(body).unwrap_or_else(|e| panic!("{place}: not JSON: {e}"));
                self.check_value(&place, schema, &value);
            }
        }
    }

    fn check_value(&self, place: &str, schema: &Value, value: &Value) {
        let mut combined = json!({ "allOf": [schema] });
        for section in ["definitions", "components"] {
            if let Some(definitions) = self.document.get(section) {
                combined[section] = definitions.clone();
            }
        }
        let validator = jsonschema::options().with_draft(jsonschema::Draft::Draft4).build(&combined).unwrap();
        let wrong: Vec<String> =
            validator.iter_errors(value).map(|e| format!("{} at {}", e, e.instance_path())).collect();
        assert!(wrong.is_empty(), "{place}: {wrong:#?}");
    }

    /// Resolves a local `$ref`.
    fn resolved(&self, value: &Value) -> Value {
        let mut value = value.clone();
        while let Some(pointer) =
            value.get("$ref").and_then(Value::as_str).map(|r| r.trim_start_matches('#').to_owned())
        {
            value = self.document.pointer(&pointer).unwrap_or_else(|| panic!("no {pointer}")).clone();
        }
        value
    }
}

#[async_trait]
impl Transport for ContractTransport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        let method = request.method().as_str().to_owned();
        let full = request.uri().path();
        // A path outside the interface stays whole, and must have been allowed.
        let path = full.strip_prefix(self.spec.prefix()).unwrap_or(full);
        let query = request.uri().query();
        let body = if request.body().is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(request.body()).unwrap_or_else(|e| panic!("{method} {path}: body is no JSON: {e}"))
        };
        self.check_request(&method, path, query, &body);
        let target = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        self.seen.lock().unwrap().push(RecordedRequest {
            method: method.clone(),
            target: target.clone(),
            headers: request.headers().clone(),
            body,
        });
        let scripted = self.script.lock().unwrap().get_mut(&format!("{method} {target}")).and_then(VecDeque::pop_front);
        let Some(scripted) = scripted else { panic!("no answer is scripted for {method} {target}") };
        if scripted.checked {
            self.check_answer(&method, path, scripted.status, &scripted.body);
        }
        let mut answer = Response::builder().status(scripted.status);
        for (name, value) in &scripted.headers {
            answer = answer.header(name, value);
        }
        Ok(answer.body(scripted.body).unwrap())
    }
}

/// Whether a path matches a template. A last `{…}` for a file name or ref may contain slashes (percent-encoded or not).
fn fits(template: &str, path: &str) -> bool {
    let (template, path): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
    let one = |t: &&str, p: &&str| {
        if t.starts_with('{') && t.ends_with('}') && t.matches('{').count() == 1 { !p.is_empty() } else { t == p }
    };
    let open = template.last().is_some_and(|t| matches!(*t, "{filepath}" | "{path}" | "{ref}" | "{branch}" | "{head}"));
    let lengths = path.len() == template.len() || (open && path.len() > template.len());
    lengths && template.iter().zip(&path).all(|(t, p)| one(t, p))
}

/// Returns the part of a path that `{name}` matches in the template.
fn part(template: &str, path: &str, name: &str) -> Option<String> {
    let wanted = format!("{{{name}}}");
    template.split('/').zip(path.split('/')).find(|(t, _)| *t == wanted).map(|(_, p)| p.to_owned())
}

fn check_scalar(place: &str, schema: &Value, value: &str) {
    match schema["type"].as_str() {
        Some("integer") => assert!(value.parse::<i64>().is_ok(), "{place}: {value:?} is no integer"),
        Some("boolean") => assert!(matches!(value, "true" | "false"), "{place}: {value:?} is no boolean"),
        _ => {}
    }
    if schema["format"] == "date-time" {
        assert!(value.parse::<jiff::Timestamp>().is_ok(), "{place}: {value:?} is no date-time");
    }
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.iter().any(|a| a == value), "{place}: {value:?} is none of {allowed:?}");
    }
}

/// Converts a description to plain JSON Schema: `nullable` becomes a type. For Swagger 2, undescribed fields are
/// forbidden in schemas without composition.
fn prepare(value: &mut Value, spec: ContractSpec) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| prepare(item, spec)),
        Value::Object(object) => {
            object.values_mut().for_each(|inner| prepare(inner, spec));
            let described = object.get("type") == Some(&json!("object"))
                && object.get("properties").is_some_and(Value::is_object)
                && !object.contains_key("additionalProperties");
            if described && spec != ContractSpec::GitHub {
                object.insert("additionalProperties".into(), json!(false));
            }
            if object.remove("nullable") == Some(json!(true)) {
                let schema = Value::Object(std::mem::take(object));
                *value = json!({ "anyOf": [schema, { "type": "null" }] });
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(
        spec: ContractSpec,
        method: &str,
        target: &str,
        body: Option<Value>,
        status: u16,
        answer: Value,
    ) -> Result<(), String> {
        let transport = ContractTransport::new(spec);
        transport.on(method, target, status, answer);
        let body = body.map_or_else(Bytes::new, |b| Bytes::from(b.to_string()));
        let uri = format!("https://forge.test{}{target}", spec.prefix());
        let request = Request::builder().method(method).uri(uri).body(body).unwrap();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            futures::executor::block_on(transport.send(request)).unwrap();
        }));
        outcome.map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
    }

    #[test]
    fn valid_requests_pass_and_invalid_ones_fail() {
        let comment = "/repos/a/b/issues/1/comments";
        let cases = [
            (
                ContractSpec::Gitea,
                "POST",
                comment,
                Some(json!({"body": "x"})),
                201,
                json!({"id": 1, "body": "x"}),
                None,
            ),
            (ContractSpec::Gitea, "POST", comment, Some(json!({"text": "x"})), 201, json!({}), Some("body")),
            (ContractSpec::Gitea, "POST", comment, Some(json!({"body": 1})), 201, json!({}), Some("string")),
            (ContractSpec::Gitea, "POST", comment, Some(json!({"body": "x", "y": 1})), 201, json!({}), Some("y")),
            (
                ContractSpec::Gitea,
                "POST",
                comment,
                Some(json!({"body": "x"})),
                201,
                json!({"id": "1"}),
                Some("integer"),
            ),
            (
                ContractSpec::Gitea,
                "POST",
                comment,
                Some(json!({"body": "x"})),
                201,
                json!({"made_up": 1}),
                Some("made_up"),
            ),
            (ContractSpec::Gitea, "POST", comment, Some(json!({"body": "x"})), 200, json!({}), Some("not described")),
            (ContractSpec::Gitea, "PUT", comment, None, 200, json!({}), Some("has no PUT")),
            (ContractSpec::Gitea, "GET", "/repos/a/b/issues/x", None, 200, json!({}), Some("no integer")),
            (ContractSpec::Gitea, "GET", "/repos/a/b/issues?nonsense=1", None, 200, json!([]), Some("nonsense")),
            (ContractSpec::Gitea, "GET", "/repos/a/b/issues?state=odd", None, 200, json!([]), Some("odd")),
            (ContractSpec::Gitea, "GET", "/repos/a/b/issues?page=one", None, 200, json!([]), Some("no integer")),
            (ContractSpec::Forgejo, "GET", "/repos/a/b/issues?page=1", None, 200, json!([]), None),
            (ContractSpec::GitHub, "POST", comment, Some(json!({})), 201, json!({}), Some("body")),
            (
                ContractSpec::GitHub,
                "POST",
                comment,
                Some(json!({"body": "x", "y": 1})),
                201,
                json!({}),
                Some("no field"),
            ),
            (ContractSpec::GitHub, "GET", "/repos/a/b/issues?per_page=2", None, 200, json!([]), None),
            (ContractSpec::GitHub, "GET", "/repos/a/b/issues?limit=2", None, 200, json!([]), Some("limit")),
            (ContractSpec::GitHub, "GET", "/repos/a/b/issues", None, 200, json!([{"id": 1}]), Some("required")),
        ];
        for (spec, method, target, body, status, answer, complaint) in cases {
            let place = format!("{spec:?} {method} {target} {body:?} -> {status} {answer}");
            match (sent(spec, method, target, body, status, answer), complaint) {
                (Ok(()), None) => {}
                (Err(said), Some(expected)) => assert!(said.contains(expected), "{place}: {said}"),
                (outcome, _) => panic!("{place}: {outcome:?}"),
            }
        }
    }
}
