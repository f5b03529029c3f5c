//! MCP servers of a run: parses Claude Code's format and writes the formats of other agents.

use std::path::Path;

use ralph_types::failure::Failure;
use serde_json::{Map, Value, json};

/// Maximum size of the file, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// An MCP server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct McpServer {
    /// Name: letters, digits, `-` and `_`.
    pub(super) name: String,
    /// Transport.
    pub(super) transport: McpTransport,
}

/// Transport of an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum McpTransport {
    /// Program that is started: command line and environment variables.
    Program { words: Vec<String>, variables: Vec<(String, String)> },
    /// Address with headers. `events` selects the older transport with server-sent events.
    Address { url: String, headers: Vec<(String, String)>, events: bool },
}

/// Reads the servers in a file.
///
/// # Errors
/// A sentence with the file and the problem.
pub(super) fn read(file: &Path) -> Result<Vec<McpServer>, Failure> {
    let wrong = |what: Failure| Failure::new(format!("the MCP configuration {}", file.display())).caused_by(what);
    let text =
        std::fs::read_to_string(file).map_err(|error| wrong(Failure::new("it cannot be read").caused_by(error)))?;
    parse(&text).map_err(wrong)
}

fn parse(text: &str) -> Result<Vec<McpServer>, Failure> {
    if text.len() > MAX_BYTES {
        return Err(Failure::new(format!("it is longer than {} KiB", MAX_BYTES / 1024)));
    }
    let config: Value = serde_json::from_str(text).map_err(|e| format!("it is not JSON ({e})"))?;
    let servers = config["mcpServers"].as_object().ok_or("it has no object `mcpServers`")?;
    servers.iter().map(|(name, server)| parse_server(name, server)).collect()
}

fn parse_server(name: &str, server: &Value) -> Result<McpServer, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(Failure::new(format!("the name {name:?} of a server may have letters, digits, `-` and `_` only")));
    }
    let transport = if let Some(url) = server["url"].as_str() {
        McpTransport::Address {
            url: url.to_owned(),
            headers: pairs(&server["headers"]),
            events: server["type"] == "sse",
        }
    } else if let Some(command) = server["command"].as_str() {
        let arguments = server["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let words = std::iter::once(command).chain(arguments).map(str::to_owned).collect();
        McpTransport::Program { words, variables: pairs(&server["env"]) }
    } else {
        return Err(Failure::new(format!("the server {name:?} has neither `command` nor `url`")));
    };
    Ok(McpServer { name: name.to_owned(), transport })
}

fn pairs(object: &Value) -> Vec<(String, String)> {
    let pairs = object.as_object().into_iter().flatten();
    pairs.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

fn object(pairs: &[(String, String)]) -> Value {
    Value::Object(pairs.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<Map<_, _>>())
}

/// Returns the value of `mcpServers` in Gemini CLI's settings. Tools of these servers are called without confirmation.
pub(super) fn for_gemini(servers: &[McpServer]) -> Value {
    let each = servers.iter().map(|server| {
        let value = match &server.transport {
            McpTransport::Program { words, variables } => {
                json!({ "command": words[0], "args": words[1..], "env": object(variables), "trust": true })
            }
            McpTransport::Address { url, headers, events } => {
                let key = if *events { "url" } else { "httpUrl" };
                json!({ key: url, "headers": object(headers), "trust": true })
            }
        };
        (server.name.clone(), value)
    });
    Value::Object(each.collect())
}

/// Returns the value of `mcp` in opencode's configuration.
pub(super) fn for_opencode(servers: &[McpServer]) -> Value {
    let each = servers.iter().map(|server| {
        let value = match &server.transport {
            McpTransport::Program { words, variables } => {
                json!({ "type": "local", "command": words, "environment": object(variables), "enabled": true })
            }
            McpTransport::Address { url, headers, .. } => {
                json!({ "type": "remote", "url": url, "headers": object(headers), "enabled": true })
            }
        };
        (server.name.clone(), value)
    });
    Value::Object(each.collect())
}

/// Returns the value of `mcpServers` in the Agent Client Protocol.
pub(super) fn for_acp(servers: &[McpServer]) -> Vec<Value> {
    let pairs = |pairs: &[(String, String)]| -> Vec<Value> {
        pairs.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
    };
    let each = servers.iter().map(|server| match &server.transport {
        McpTransport::Program { words, variables } => {
            json!({ "name": server.name, "command": words[0], "args": words[1..], "env": pairs(variables) })
        }
        McpTransport::Address { url, headers, events } => {
            let kind = if *events { "sse" } else { "http" };
            json!({ "type": kind, "name": server.name, "url": url, "headers": pairs(headers) })
        }
    });
    each.collect()
}

/// Returns settings of Codex as `key=value`, and the environment variables that they refer to. Values that may be
/// secret are passed in variables only.
pub(super) fn for_codex(servers: &[McpServer]) -> (Vec<String>, Vec<(String, String)>) {
    let (mut settings, mut environment) = (Vec::new(), Vec::new());
    for server in servers {
        let mut set = |key: &str, value: &Value| settings.push(format!("mcp_servers.{}.{key}={value}", server.name));
        match &server.transport {
            McpTransport::Program { words, variables } => {
                set("command", &json!(words[0]));
                set("args", &json!(words[1..]));
                let names: Vec<&String> = variables.iter().map(|(name, _)| name).collect();
                if !names.is_empty() {
                    set("env_vars", &json!(names));
                }
                environment.extend(variables.iter().cloned());
            }
            McpTransport::Address { url, headers, .. } => {
                set("url", &json!(url));
                let mut named = Vec::new();
                for (name, value) in headers {
                    let variable = format!("RALPH_MCP_HEADER_{}", environment.len());
                    named.push(format!("{}={}", json!(name), json!(variable)));
                    environment.push((variable, value.clone()));
                }
                if !named.is_empty() {
                    settings.push(format!("mcp_servers.{}.env_http_headers={{{}}}", server.name, named.join(", ")));
                }
            }
        }
    }
    (settings, environment)
}

#[cfg(test)]
mod tests;
