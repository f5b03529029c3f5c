//! Agent Client Protocol (ACP), version 1, which many coding agents speak: the client, as a state machine.
//!
//! The client reads the agent's messages, one JSON-RPC message a line, and answers in a [`Dialog`]. It starts no process and
//! has no clock. It offers the agent neither files nor terminals, because the agent has its own inside of the sandbox.
//! Unknown messages are ignored; unknown requests get an error response.

mod choice;
mod updates;

use std::fs;
use std::sync::LazyLock;

use data_encoding::BASE64;
use regex::Regex;
use serde_json::{Value, json};

use self::choice::{Choice, RequestedModel, mode_of, model_of};
use self::updates::AcpUpdates;
use super::mcp::for_acp;
use super::output::MAX_NAME;
use super::preset::{AgentPreset, OutputReader, ParsedOutput, PromptDelivery, RunContext, UsageReport};
use super::refusal::{no_answer, refused};
use super::text::{MAX_EVENT_TEXT, MAX_NOTE, describe_end, shortened};
use super::usage::RunTokens;
use super::{AgentEvent, AgentStatus};
use crate::domain::model::image::format_of;
use crate::domain::providers::limit::http_error;
use crate::process::{Dialog, Finished, ProcessEnd, Stream};

/// Version of the protocol.
const VERSION: u64 = 1;
/// Error codes of JSON-RPC and ACP: the method is unknown, and a login is required.
const UNKNOWN_METHOD: i64 = -32601;
const LOGIN_REQUIRED: i64 = -32000;
/// Maximum size of all images of a prompt, in bytes.
const MAX_IMAGES: usize = 20_000_000;
/// Kinds of tool calls that are permitted without a sandbox: the agent may edit files, but not run commands.
const PERMITTED_OUTSIDE: [&str; 6] = ["read", "search", "think", "edit", "delete", "move"];

/// Preset of any command that speaks ACP.
pub(super) const PRESET: AgentPreset = preset("acp");

/// Creates the preset of an agent that speaks ACP.
pub(super) const fn preset(name: &'static str) -> AgentPreset {
    AgentPreset {
        prompt: PromptDelivery::Acp,
        usage: UsageReport::Tokens,
        takes_mcp_servers: true,
        ..AgentPreset::new(name, || {
            let run = AcpRun { is_sandboxed: true, ..AcpRun::default() };
            Box::new(AcpClient::new(run, Dialog::default()))
        })
    }
}

/// Run as the agent gets it.
#[derive(Debug, Default)]
pub(super) struct AcpRun {
    pub(super) prompt: String,
    /// Images, as parts of the prompt.
    pub(super) images: Vec<Value>,
    /// Working directory.
    pub(super) folder: String,
    /// Further folders that the agent may use.
    pub(super) folders: Vec<String>,
    /// MCP servers.
    pub(super) servers: Vec<Value>,
    /// Id of the session to resume.
    pub(super) session: Option<String>,
    /// Tokens of the session before this run.
    pub(super) before: RunTokens,
    /// Model to request.
    pub(super) model: Option<String>,
    /// Whether the agent runs in a sandbox, which then decides about its tool calls.
    pub(super) is_sandboxed: bool,
}

impl AcpRun {
    /// Creates the request of a run. Images that cannot be read or are too large are left out; the prompt names all files.
    pub(super) fn of(call: &RunContext<'_>) -> Self {
        let run = call.run;
        let mut room = MAX_IMAGES;
        let image = |file: &std::path::PathBuf| {
            let content = fs::read(file).ok()?;
            room = room.checked_sub(content.len())?;
            let format = format_of(&content).ok()?;
            Some(json!({ "type": "image", "mimeType": format.media_type(), "data": BASE64.encode(&content) }))
        };
        let folders = run.images.folder.iter().map(|folder| folder.display().to_string());
        let account = run.session.as_ref().map(|session| session.account).unwrap_or_default();
        Self {
            prompt: run.prompt.clone(),
            images: run.images.attached.iter().filter_map(image).collect(),
            folder: run.tree.display().to_string(),
            folders: std::iter::once(call.report_folder()).chain(folders).collect(),
            servers: for_acp(call.servers),
            session: run.session.as_ref().map(|session| session.id.clone()),
            before: RunTokens::of(account.usage),
            model: call.model.map(str::to_owned),
            is_sandboxed: run.sandboxed,
        }
    }
}

/// Request that the client sent last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcpStage {
    Initialize,
    Authenticate,
    OpenSession,
    Choose,
    Prompt,
    /// None: the agent's turn has ended.
    Ended,
}

/// Client of one run.
#[derive(Debug)]
pub(super) struct AcpClient {
    run: AcpRun,
    dialog: Dialog,
    updates: AcpUpdates,
    stage: AcpStage,
    /// Number of requests, which is the id of the last one.
    requests: u64,
    /// The agent's answer to `initialize`.
    agent: Value,
    has_authenticated: bool,
    /// Choices that remain to be made before the prompt, the last one first.
    choices: Vec<Choice>,
    /// Whether the requested choice is required.
    is_required: bool,
    status: Option<AgentStatus>,
    is_cancelled: bool,
}

impl AcpClient {
    /// Creates the client and sends its first request.
    pub(super) fn new(run: AcpRun, dialog: Dialog) -> Self {
        let mut client = Self {
            updates: AcpUpdates::new(run.before),
            run,
            dialog,
            stage: AcpStage::Initialize,
            requests: 0,
            agent: Value::Null,
            has_authenticated: false,
            choices: Vec::new(),
            is_required: false,
            status: None,
            is_cancelled: false,
        };
        let capabilities = json!({ "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false });
        let info = json!({ "name": "ralph-bot", "title": "ralph-bot", "version": env!("CARGO_PKG_VERSION") });
        client.request(
            AcpStage::Initialize,
            "initialize",
            &json!({ "protocolVersion": VERSION, "clientCapabilities": capabilities, "clientInfo": info }),
        );
        client
    }

    fn send(&self, message: &Value) {
        self.dialog.send(format!("{message}\n").as_bytes());
    }

    fn request(&mut self, stage: AcpStage, method: &str, params: &Value) {
        self.requests += 1;
        self.stage = stage;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.requests, "method": method, "params": params }));
    }

    fn message(&mut self, message: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        let (id, params) = (&message["id"], &message["params"]);
        match message["method"].as_str() {
            // Updates that come while a session is loaded are about earlier runs.
            Some("session/update") if matches!(self.stage, AcpStage::Prompt | AcpStage::Ended) => {
                self.updates.read(params, on_event);
            }
            Some("session/update") => {}
            Some("session/request_permission") if !id.is_null() => self.answer_permission(id, params, on_event),
            Some(_) if !id.is_null() => {
                let error = json!({ "code": UNKNOWN_METHOD, "message": "the client does not offer this method" });
                self.send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            Some(_) => {}
            None if id.as_u64() == Some(self.requests) && self.stage != AcpStage::Ended => {
                match message.get("error").filter(|error| !error.is_null()) {
                    Some(error) => self.failed(error),
                    None => self.answered(&message["result"], on_event),
                }
            }
            None => {}
        }
    }

    /// Reads the result of the last request and sends the next one.
    fn answered(&mut self, result: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        match self.stage {
            AcpStage::Initialize => {
                self.agent = result.clone();
                match result["protocolVersion"].as_u64() {
                    Some(VERSION) => self.open_session(),
                    version => {
                        let version = version.map_or_else(|| "no version".to_owned(), |n| format!("version {n}"));
                        let reason = format!("it supports {version} of ACP, and ralph-bot supports version {VERSION}");
                        self.end(AgentStatus::Unavailable { reason });
                    }
                }
            }
            AcpStage::Authenticate => self.open_session(),
            AcpStage::OpenSession => {
                let id = self.run.session.as_deref().map_or_else(|| result["sessionId"].clone(), Value::from);
                if id.as_str().is_none_or(str::is_empty) {
                    return self.end(AgentStatus::Failed { reason: "it opened a session without an id".to_owned() });
                }
                self.updates.output.record_session(&id, on_event);
                self.plan_choices(result);
                self.choose_or_prompt();
            }
            AcpStage::Choose => self.choose_or_prompt(),
            AcpStage::Prompt => self.end_turn(result, on_event),
            AcpStage::Ended => {}
        }
    }

    fn open_session(&mut self) {
        let mcp = &self.agent["agentCapabilities"]["mcpCapabilities"];
        let is_taken = |server: &&Value| server["type"].as_str().is_none_or(|kind| mcp[kind] == true);
        let servers: Vec<&Value> = self.run.servers.iter().filter(is_taken).collect();
        let mut params = json!({ "cwd": self.run.folder, "mcpServers": servers });
        if !self.agent["agentCapabilities"]["sessionCapabilities"]["additionalDirectories"].is_null() {
            params["additionalDirectories"] = json!(self.run.folders);
        }
        let Some(session) = &self.run.session else {
            return self.request(AcpStage::OpenSession, "session/new", &params);
        };
        if self.agent["agentCapabilities"]["loadSession"] == true {
            params["sessionId"] = json!(session);
            self.request(AcpStage::OpenSession, "session/load", &params);
        } else {
            self.session_not_found("the agent loads no sessions");
        }
    }

    fn session_not_found(&mut self, why: &str) {
        self.updates.output.add_note(format!("the session was not found: {why}"));
        self.end(AgentStatus::Failed { reason: format!("its session was not found: {}", shortened(why, MAX_NOTE)) });
    }

    /// Plans which mode and which model are requested, of those that a session offers.
    fn plan_choices(&mut self, session: &Value) {
        let wanted = self.run.model.as_deref();
        match model_of(session, wanted) {
            Some(RequestedModel { name, choice }) => {
                self.updates.output.model = name.map(|name| shortened(&name, MAX_NAME));
                self.choices.extend(choice);
            }
            None => {
                let note = wanted.map(|model| format!("it offers no choice of models; {model:?} was not requested"));
                note.into_iter().for_each(|note| self.updates.output.add_note(note));
            }
        }
        self.choices.extend(mode_of(session, self.run.is_sandboxed));
    }

    fn choose_or_prompt(&mut self) {
        let session = self.updates.output.session.clone().unwrap_or_default();
        if let Some(choice) = self.choices.pop() {
            self.is_required = choice.is_required;
            return self.request(AcpStage::Choose, choice.method, &choice.params(&session));
        }
        let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
        self.dialog.set_farewell(format!("{cancel}\n").into_bytes());
        let mut prompt = vec![json!({ "type": "text", "text": self.run.prompt })];
        if self.agent["agentCapabilities"]["promptCapabilities"]["image"] == true {
            prompt.append(&mut self.run.images);
        }
        self.request(AcpStage::Prompt, "session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
    }

    /// Reads an error response to the last request.
    fn failed(&mut self, error: &Value) {
        let needs_login = error["code"].as_i64() == Some(LOGIN_REQUIRED);
        if needs_login && !self.has_authenticated && self.stage == AcpStage::OpenSession {
            self.has_authenticated = true;
            if let Some(method) = key_method(&self.agent["authMethods"]) {
                return self.request(AcpStage::Authenticate, "authenticate", &json!({ "methodId": method }));
            }
        }
        let message = error_text(error);
        match self.stage {
            stage if needs_login && stage != AcpStage::Prompt => {
                self.updates.output.record_error(&message, false);
                let names = self.agent["authMethods"].as_array().into_iter().flatten();
                let names: Vec<&str> = names.filter_map(|method| method["name"].as_str()).take(10).collect();
                let reason = format!("it is not logged in: {message} (its logins: {})", names.join(", "));
                self.end(AgentStatus::Unavailable { reason: shortened(&reason, MAX_NOTE) });
            }
            AcpStage::OpenSession if self.run.session.is_some() => self.session_not_found(&message),
            AcpStage::Choose if !self.is_required => {
                self.updates.output.add_note(format!("it refused the requested mode: {message}"));
                self.choose_or_prompt();
            }
            AcpStage::Prompt => {
                if let Some(status) = error["code"].as_u64().and_then(http_error) {
                    self.updates.output.signals.status = Some(status);
                }
                self.updates.output.record_provider_error(&message);
                let status = refused(&mut self.updates.output.signals, &message);
                self.end(status);
            }
            stage => {
                self.updates.output.record_error(&message, false);
                let reason = match stage {
                    AcpStage::Choose => format!("it refused the requested model: {message}"),
                    _ => message,
                };
                self.end(AgentStatus::Unavailable { reason: shortened(&reason, MAX_NOTE) });
            }
        }
    }

    fn end_turn(&mut self, result: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        self.updates.flush_text(on_event);
        self.updates.record_tokens(&result["usage"], false, on_event);
        let reason = result["stopReason"].as_str().unwrap_or_default();
        reason.clone_into(&mut self.updates.output.stop_reason);
        let failed = |reason: &str| AgentStatus::Failed { reason: reason.to_owned() };
        let status = match reason {
            "cancelled" => {
                self.is_cancelled = true;
                failed("its turn was cancelled")
            }
            "refusal" => {
                self.updates.output.signals.code = Some("refusal".to_owned());
                failed("its model refused the task")
            }
            _ if self.updates.output.last_text.trim().is_empty() => {
                let silent = "it ended without any output";
                self.updates.output.record_error(silent, false);
                failed(silent)
            }
            "end_turn" => AgentStatus::Finished,
            limit => {
                self.updates.output.add_note(format!("it stopped at a limit: {}", shortened(limit, MAX_NAME)));
                AgentStatus::Finished
            }
        };
        self.end(status);
    }

    fn end(&mut self, status: AgentStatus) {
        self.stage = AcpStage::Ended;
        self.status = Some(status);
        self.is_cancelled |= self.dialog.is_farewell_said();
        self.dialog.close();
    }

    /// Answers a request for permission: everything is permitted in a sandbox, and edits outside of one.
    fn answer_permission(&mut self, id: &Value, params: &Value, on_event: &mut dyn FnMut(AgentEvent)) {
        let (name, kind) = self.updates.permission_asked(&params["toolCall"], on_event);
        let is_permitted = self.run.is_sandboxed || PERMITTED_OUTSIDE.contains(&kind.as_str());
        if !is_permitted {
            self.updates.output.record_denial(&name);
        }
        let wanted = if is_permitted { ["allow_once", "allow_always"] } else { ["reject_once", "reject_always"] };
        let options = || params["options"].as_array().into_iter().flatten();
        let option = wanted.iter().find_map(|kind| options().find(|option| option["kind"] == *kind));
        let outcome = match option.map(|option| &option["optionId"]) {
            Some(option) => json!({ "outcome": "selected", "optionId": option }),
            None => json!({ "outcome": "cancelled" }),
        };
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": outcome } }));
    }

    /// Returns the status of a run whose turn has no result.
    fn without_result(&self, finished: &Finished) -> AgentStatus {
        let printed = format!("{}\n{}", finished.stdout.last(MAX_EVENT_TEXT), finished.stderr.last(MAX_EVENT_TEXT));
        let why = match &finished.ended {
            ProcessEnd::Stopped(reason) => reason.clone(),
            ended if self.agent.is_null() => match no_answer(&printed) {
                Some(line) => return AgentStatus::Unavailable { reason: format!("it did not start: {line}") },
                None => {
                    format!("it did not answer by ACP; is this its command for ACP? {}", describe_end(ended, finished))
                }
            },
            ended => format!("it did not end its turn: {}", describe_end(ended, finished)),
        };
        AgentStatus::Failed { reason: why }
    }
}

/// Returns the id of the login that uses a key from the environment, such as `gemini-api-key`; `None` if there is none. All
/// others need a person.
fn key_method(methods: &Value) -> Option<&str> {
    static KEY: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?i)api[ _-]?key").expect("the expression is fixed and valid"));
    let methods = methods.as_array().into_iter().flatten();
    let mut keys = methods
        .filter(|method| ["id", "name"].iter().any(|field| KEY.is_match(method[field].as_str().unwrap_or_default())));
    keys.next()?["id"].as_str()
}

/// Returns the text of an error response: its details if it has any.
fn error_text(error: &Value) -> String {
    let data = &error["data"];
    let details = ["details", "message", "error"].iter().find_map(|name| data[*name].as_str());
    let text = data.as_str().or(details).or(error["message"].as_str()).filter(|text| !text.trim().is_empty());
    text.map_or_else(|| shortened(&error.to_string(), MAX_NOTE), str::to_owned)
}

impl OutputReader for AcpClient {
    fn line(&mut self, stream: Stream, line: &str, on_event: &mut dyn FnMut(AgentEvent)) {
        if let Some(message) = self.updates.output.parse_line(stream, line, on_event) {
            self.message(&message, on_event);
        }
    }

    fn is_complete(&self) -> bool {
        self.status.is_some() && !self.is_cancelled
    }

    fn is_starting(&self) -> bool {
        !matches!(self.stage, AcpStage::Prompt | AcpStage::Ended)
    }

    fn awaits_model(&self) -> bool {
        self.stage == AcpStage::Prompt && !self.updates.has_open_calls()
    }

    fn observed_tokens(&self) -> Option<u64> {
        Some(self.updates.tokens.total())
    }

    fn finish(&mut self, finished: &Finished) -> ParsedOutput {
        self.updates.flush_text(&mut |_| ());
        let status = self.status.take().unwrap_or_else(|| self.without_result(finished));
        self.updates.output.finish(status, finished)
    }
}

#[cfg(test)]
mod tests;
