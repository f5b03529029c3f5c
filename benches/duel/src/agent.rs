//! Scripted `claude`: the command line and output of Claude Code 2.1.197, and the actions sent by the harness.
//!
//! The harness listens on a socket beside this program and counts the calls there, outside any sandbox.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::scenario::Call;

/// Name under which the harness installs the program.
pub const NAME: &str = "claude";
/// Name of the socket in the program's folder.
pub const SOCKET: &str = "duel.sock";
const VERSION: &str = "2.1.197";
const MODEL: &str = "claude-opus-4-8";
/// Options without a value, from `claude --help` of 2.1.197.
const FLAGS: &str = "--allow-dangerously-skip-permissions --ax-screen-reader --bg --background --bare --brief --chrome -c --continue \
    --dangerously-skip-permissions --disable-slash-commands --exclude-dynamic-system-prompt-sections --fork-session --ide \
    --include-hook-events --include-partial-messages --no-chrome --no-session-persistence -p --print --replay-user-messages \
    --strict-mcp-config --verbose -d --debug";
/// Options with a value.
const OPTIONS: &str = "--add-dir --agent --agents --allowedTools --allowed-tools --append-system-prompt --betas --debug-file \
    --disallowedTools --disallowed-tools --effort --fallback-model --file --from-pr --input-format --json-schema \
    --max-budget-usd --max-turns --mcp-config --model -n --name --output-format --permission-mode --plugin-dir -r --resume \
    --session-id --setting-sources --settings --system-prompt --tools";

/// Time to wait for a prompt on standard input.
const STDIN_WAIT: Duration = Duration::from_secs(3);

/// First line of a call to the harness.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Arguments and standard input of the call.
    pub prompt: String,
}

/// Answer from the harness; `None` if the agent was called too often.
pub type Answer = Option<Call>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentFormat {
    Text,
    Json,
    Stream,
}

/// Runs as the agent.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| matches!(argument.as_str(), "--version" | "-v")) {
        println!("{VERSION} (Claude Code)");
        return ExitCode::SUCCESS;
    }
    let format = match format(&arguments) {
        Ok(format) => format,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    match call(&arguments, format) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("the harness of the duel did not answer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Parses the arguments; the error is the original program's message.
fn format(arguments: &[String]) -> Result<AgentFormat, String> {
    let mut format = AgentFormat::Text;
    let mut verbose = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        verbose |= name == "--verbose";
        if !name.starts_with('-') || name == "-" || FLAGS.split_whitespace().any(|flag| flag == name) {
            continue;
        }
        if name == "--" {
            break;
        }
        if !OPTIONS.split_whitespace().any(|option| option == name) {
            return Err(format!("error: unknown option '{name}'"));
        }
        let value = inline.or_else(|| rest.next().cloned());
        let value = value.ok_or_else(|| format!("error: option '{name} <value>' argument missing"))?;
        if name == "--output-format" {
            format = match value.as_str() {
                "json" => AgentFormat::Json,
                "stream-json" => AgentFormat::Stream,
                _ => AgentFormat::Text,
            };
        }
    }
    if format == AgentFormat::Stream && !verbose {
        return Err("Error: When using --print, --output-format=stream-json requires --verbose".into());
    }
    Ok(format)
}

/// Requests the script of this call from the harness and executes it.
fn call(arguments: &[String], format: AgentFormat) -> std::io::Result<ExitCode> {
    let program = env::current_exe()?;
    let socket = program.parent().map(|folder| folder.join(SOCKET)).unwrap_or_else(|| PathBuf::from(SOCKET));
    let mut stream = UnixStream::connect(socket)?;
    let hello = serde_json::to_string(&Hello { prompt: format!("{}\n{}", arguments.join("\n"), stdin()) })?;
    stream.write_all(format!("{hello}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let Some(script) = serde_json::from_str::<Answer>(&line)? else {
        eprintln!("the agent was called too often");
        return Ok(ExitCode::FAILURE);
    };
    let mut turn = Turn { format, session: session(), count: 0, started: Instant::now() };
    turn.act(&script);
    if script.linger > 0.0 {
        thread::sleep(Duration::from_secs_f64(script.linger));
    }
    // The end of the connection marks the end of the call for the harness.
    drop(stream);
    Ok(ExitCode::from(script.exit))
}

/// Reads standard input to its end, or for a short time if it stays open.
fn stdin() -> String {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver.recv_timeout(STDIN_WAIT).unwrap_or_default()
}

/// Creates a random session id.
fn session() -> String {
    let seed = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    seed.trim().to_owned()
}

/// State of a call's output.
struct Turn {
    format: AgentFormat,
    session: String,
    /// Number of messages so far.
    count: u32,
    started: Instant,
}

impl Turn {
    fn act(&mut self, script: &Call) {
        let cwd = env::current_dir().unwrap_or_default();
        self.line(&json!({
            "type": "system", "subtype": "init", "cwd": cwd, "session_id": self.session,
            "tools": ["Task", "Bash", "Edit", "NotebookEdit", "Read", "WebFetch", "WebSearch", "Write"], "mcp_servers": [],
            "model": MODEL, "permissionMode": "bypassPermissions", "slash_commands": [], "apiKeySource": "ANTHROPIC_API_KEY",
            "claude_code_version": VERSION, "output_style": "default", "agents": ["general-purpose"], "skills": [], "plugins": [],
            "uuid": session(), "fast_mode_state": "off",
        }));
        for (path, content) in &script.files {
            let full = cwd.join(path);
            let done = match content {
                Some(text) => {
                    let _ = full.parent().map(fs::create_dir_all);
                    fs::write(&full, text)
                }
                None => fs::remove_file(&full),
            };
            let input = json!({ "file_path": full, "content": content });
            let result = done.map(|()| format!("File written: {path}")).map_err(|error| error.to_string());
            self.tool("Write", &input, &result);
        }
        if let Some(run) = &script.run {
            let input = json!({ "command": run, "description": "Work on the task" });
            let result = match Command::new("sh").args(["-c", run]).stdin(Stdio::null()).output() {
                Ok(output) => {
                    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
                    if output.status.success() { Ok(text) } else { Err(format!("Exit code 1\n{text}")) }
                }
                Err(error) => Err(error.to_string()),
            };
            self.tool("Bash", &input, &result);
        }
        if let Some(raw) = &script.raw {
            // A broken pipe ends the script and is not a failure of the agent.
            let _ = Command::new("sh").args(["-c", raw]).stdin(Stdio::null()).status();
        }
        if script.sleep > 0.0 {
            thread::sleep(Duration::from_secs_f64(script.sleep));
        }
        if script.cut {
            return;
        }
        match &script.limit {
            Some(limit) => {
                if let Some(kind) = &limit.kind {
                    let info = json!({
                        "status": "rejected", "resetsAt": limit.resets_at, "rateLimitType": kind, "overageStatus": "rejected",
                        "isUsingOverage": false,
                    });
                    let event = json!({
                        "type": "rate_limit_event", "rate_limit_info": info, "uuid": session(), "session_id": self.session,
                    });
                    self.line(&event);
                }
                self.end(&limit.message, Some(limit.status));
            }
            None => self.end(script.say.as_deref().unwrap_or("I worked on the task."), None),
        }
    }

    fn line(&self, event: &Value) {
        if self.format == AgentFormat::Stream {
            print(&event.to_string());
        }
    }

    fn message(&mut self, content: &Value) {
        self.count += 1;
        let usage = json!({
            "input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 3, "output_tokens": 1,
        });
        let message = json!({
            "id": format!("msg_{:02}", self.count), "type": "message", "role": "assistant", "model": MODEL, "content": [content],
            "stop_reason": null, "stop_sequence": null, "usage": usage, "context_management": null,
        });
        self.line(&json!({
            "type": "assistant", "message": message, "parent_tool_use_id": null, "session_id": self.session, "uuid": session(),
        }));
    }

    fn tool(&mut self, name: &str, input: &Value, result: &Result<String, String>) {
        let id = format!("toolu_{:02}", self.count + 1);
        self.message(&json!({ "type": "tool_use", "id": id, "name": name, "input": input }));
        let text = match result {
            Ok(text) | Err(text) if text.is_empty() => "(Bash completed with no output)",
            Ok(text) | Err(text) => text,
        };
        let part = json!({ "tool_use_id": id, "type": "tool_result", "content": text, "is_error": result.is_err() });
        self.line(&json!({
            "type": "user", "message": { "role": "user", "content": [part] }, "parent_tool_use_id": null,
            "session_id": self.session, "uuid": session(),
        }));
    }

    /// Prints the last message and the result; `refused` is the status of the provider's rejection.
    fn end(&mut self, text: &str, refused: Option<Option<u16>>) {
        self.message(&json!({ "type": "text", "text": text }));
        if self.format == AgentFormat::Text {
            print(text);
            return;
        }
        let spent = u64::from(if refused.is_some() { 0 } else { self.count });
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or_default();
        let cost = spent as f64 * 0.0018;
        let usage = json!({
            "input_tokens": spent * 100, "cache_creation_input_tokens": spent * 20, "cache_read_input_tokens": spent * 3,
            "output_tokens": spent * 50,
        });
        let model = json!({
            "inputTokens": spent * 100, "outputTokens": spent * 50, "cacheReadInputTokens": spent * 3,
            "cacheCreationInputTokens": spent * 20, "webSearchRequests": 0, "costUSD": cost, "contextWindow": 1_000_000,
            "maxOutputTokens": 64000,
        });
        print(
            &json!({
                "type": "result", "subtype": "success", "is_error": refused.is_some(), "api_error_status": refused.flatten(),
                "duration_ms": ms, "duration_api_ms": ms, "num_turns": self.count, "result": text,
                "stop_reason": if refused.is_some() { "stop_sequence" } else { "end_turn" }, "session_id": self.session,
                "total_cost_usd": cost, "usage": usage, "modelUsage": if spent == 0 { json!({}) } else { json!({ MODEL: model }) },
                "permission_denials": [], "terminal_reason": "completed", "fast_mode_state": "off", "uuid": session(),
            })
            .to_string(),
        );
    }
}

/// Prints a line; a closed pipe is not an error.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
