//! OpenAPI 3.1 description of the API, generated from the routes and their types.

use std::sync::{Arc, LazyLock};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{MethodRouter, get};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::problem::{ApiProblem, ApiResult};
use super::{ROOT, ok};
use crate::web::WebState;

/// JSON pointer to the schemas of all types in the description.
const SCHEMAS: &str = "/components/schemas";

/// OpenAPI description; it depends only on the version of the service.
pub(super) static DESCRIPTION: LazyLock<Value> = LazyLock::new(describe);

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Returns the full schema of a type whose properties become query parameters.
fn properties_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

/// Description of one method of a path, which OpenAPI calls an operation.
pub struct Operation {
    /// Method, in lower case.
    pub method: &'static str,
    /// Path relative to the root, with parameters in braces.
    pub path: &'static str,
    /// Unique name of the operation.
    id: &'static str,
    /// Effect of the operation, in one sentence.
    summary: &'static str,
    query: Option<SchemaOf>,
    body: Option<SchemaOf>,
    status: StatusCode,
    answer: Option<SchemaOf>,
    /// Types of the events of a stream.
    events: Vec<(&'static str, SchemaOf)>,
    /// Whether the response is a stream of events.
    pub streams: bool,
    /// Whether the operation needs no credentials.
    open: bool,
}

/// Route with its description.
pub(super) struct ApiRoute {
    pub(super) operation: Operation,
    pub(super) handler: MethodRouter<Arc<WebState>>,
}

impl ApiRoute {
    pub(super) fn new(operation: Operation, handler: MethodRouter<Arc<WebState>>) -> Self {
        Self { operation, handler }
    }
}

impl Operation {
    fn new(method: &'static str, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        let (query, body, answer, events, status) = (None, None, None, Vec::new(), StatusCode::OK);
        Self { method, path, id, summary, query, body, status, answer, events, streams: false, open: false }
    }

    /// Creates the description of a `GET` operation.
    pub fn get(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("get", path, id, summary)
    }

    /// Creates the description of a `POST` operation.
    pub fn post(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("post", path, id, summary)
    }

    /// Creates the description of a `DELETE` operation, whose response has no body.
    pub fn delete(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self { status: StatusCode::NO_CONTENT, ..Self::new("delete", path, id, summary) }
    }

    /// Sets the type of the query.
    pub fn query<T: JsonSchema>(self) -> Self {
        Self { query: Some(properties_of::<T>), ..self }
    }

    /// Sets the type of the body.
    pub fn body<T: JsonSchema>(self) -> Self {
        Self { body: Some(schema_of::<T>), ..self }
    }

    /// Sets the type of the response.
    pub fn answers<T: JsonSchema>(self) -> Self {
        Self { answer: Some(schema_of::<T>), ..self }
    }

    /// Sets the status of the response.
    pub fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Adds an event type; the response is then a stream.
    pub fn event<T: JsonSchema>(mut self, name: &'static str) -> Self {
        self.events.push((name, schema_of::<T>));
        Self { streams: true, ..self }
    }

    /// Marks the operation as public: it needs no credentials.
    fn open(self) -> Self {
        Self { open: true, ..self }
    }

    fn describe(&self, generator: &mut SchemaGenerator) -> Value {
        let mut value = json!({
            "operationId": self.id,
            "summary": self.summary,
            "parameters": self.parameters(generator),
            "responses": { self.status.as_str(): self.response(generator), "default": { "$ref": "#/components/responses/Problem" } },
        });
        if let Some(body) = self.body {
            let schema = body(generator);
            value["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        }
        if self.open {
            value["security"] = json!([]);
        }
        value
    }

    fn parameters(&self, generator: &mut SchemaGenerator) -> Vec<Value> {
        let mut parameters: Vec<Value> = path_parameters(self.path)
            .map(|name| {
                let kind = if matches!(name, "number" | "token") {
                    json!({ "type": "integer", "minimum": 1 })
                } else {
                    json!({ "type": "string" })
                };
                json!({ "name": name, "in": "path", "required": true, "schema": kind })
            })
            .collect();
        if let Some(query) = self.query {
            let schema = query(generator).to_value();
            let required = |name: &str| {
                schema.get("required").and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one == name))
            };
            for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let mut property = property.clone();
                let told = property.as_object_mut().and_then(|map| map.remove("description")).unwrap_or_default();
                parameters.push(json!({
                    "name": name, "in": "query", "required": required(name), "description": told, "schema": property,
                }));
            }
        }
        if self.streams {
            parameters.push(json!({
                "name": "Last-Event-ID", "in": "header", "required": false, "schema": { "type": "string" },
                "description": "Id of the last received event; the events after it are sent first.",
            }));
        }
        parameters
    }

    fn response(&self, generator: &mut SchemaGenerator) -> Value {
        if self.streams {
            let events: Map<String, Value> =
                self.events.iter().map(|(name, schema)| ((*name).to_owned(), schema(generator).to_value())).collect();
            return json!({
                "description": "Events, until the stream ends after five minutes. `reset` reports that too many events were missed for a replay.",
                "content": { "text/event-stream": { "schema": { "type": "string" }, "x-events": events } },
            });
        }
        match self.answer {
            Some(answer) => {
                json!({ "description": self.summary, "content": { "application/json": { "schema": answer(generator) } } })
            }
            None => json!({ "description": self.summary }),
        }
    }
}

fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn describe() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = SCHEMAS.into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for ApiRoute { operation, .. } in super::table() {
        let described = operation.describe(&mut generator);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described;
    }
    let problem = schema_of::<ApiProblem>(&mut generator);
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ralph-bot",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Loops of coding agents: their activity, their cost, and commands for them.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": ROOT }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "description": "Personal token" } },
            "responses": {
                "Problem": {
                    "description": "Problem and remedy (RFC 9457)",
                    "content": { "application/problem+json": { "schema": problem } },
                },
            },
            "schemas": schemas,
        },
    })
}

/// Returns the route that serves the description.
pub(super) fn routes() -> Vec<ApiRoute> {
    let operation = Operation::get("/openapi.json", "description", "This description").open().answers::<Value>();
    vec![ApiRoute::new(operation, get(description))]
}

async fn description(State(state): State<Arc<WebState>>) -> ApiResult {
    ok(&state, &*DESCRIPTION)
}
