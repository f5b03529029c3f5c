//! Copies of homes with files that agents could create.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;
use crate::domain::providers::limit::LimitSignals;

struct Homes {
    root: tempfile::TempDir,
}

impl Homes {
    fn new() -> Self {
        let homes = Self { root: tempfile::tempdir().unwrap() };
        homes.write("home/.cli/sessions/2026/one.jsonl", "one");
        homes.write("home/.cli/sessions/two.jsonl", "two");
        homes.write("home/.cli/settings.json", "{\"hooks\": \"rm -rf\"}");
        homes.write("secret", "secret");
        homes
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), text).unwrap();
    }

    fn copy(&self, names: &[&str], to: &str) -> io::Result<usize> {
        copy(&self.at("home"), names.iter().copied(), &self.at(to))
    }

    /// Returns the relative paths of all files below a folder.
    fn files(&self, folder: &str) -> Vec<String> {
        let (top, mut found, mut folders) = (self.at(folder), Vec::new(), vec![self.at(folder)]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if entry.file_type().unwrap().is_dir() {
                    folders.push(path);
                } else {
                    found.push(path.strip_prefix(&top).unwrap().display().to_string());
                }
            }
        }
        found.sort();
        found
    }
}

#[test]
fn only_named_files_are_copied_and_existing_ones_are_kept() {
    let homes = Homes::new();
    assert_eq!(homes.copy(&[".cli/sessions", ".cli/none", ".none/at/all"], "kept").unwrap(), 2);
    assert_eq!(homes.files("kept"), [".cli/sessions/2026/one.jsonl", ".cli/sessions/two.jsonl"]);
    assert_eq!(homes.copy(&[".cli/sessions/two.jsonl"], "one").unwrap(), 1);
    homes.write("home/.cli/sessions/two.jsonl", "changed");
    assert_eq!(homes.copy(&[".cli/sessions"], "kept").unwrap(), 0);
    assert_eq!(fs::read_to_string(homes.at("kept/.cli/sessions/two.jsonl")).unwrap(), "two");
    for name in ["../secret", "/etc/passwd", "./x", ".cli/../../secret"] {
        assert!(homes.copy(&[name], "odd").is_err(), "{name}");
    }
    assert!(copy(&homes.at("nowhere"), ["x"], &homes.at("kept")).is_err());
}

#[test]
fn model_is_read_from_regular_files() {
    let homes = Homes::new();
    homes.write("home/.cli/sessions/two.jsonl", &format!("two\n{}\nthree\n", "x".repeat(MAX_LINE as usize + 10)));
    homes.write("home/.cli/sessions/notes.txt", "notes\n");
    homes.write("elsewhere.jsonl", "elsewhere\n");
    symlink(homes.at("elsewhere.jsonl"), homes.at("home/.cli/sessions/link.jsonl")).unwrap();
    let read = |line: &str| {
        assert!(!line.contains("elsewhere") && !line.contains("notes"), "{line}");
        Some(line.trim().to_owned()).filter(|line| line == "three")
    };
    assert_eq!(model(&homes.at("home"), [".cli/sessions"], read).unwrap().as_deref(), Some("three"));
    assert_eq!(model(&homes.at("home"), [".none"], read).unwrap(), None);
    assert!(model(&homes.at("home"), ["../secret"], read).is_err());
}

#[test]
fn links_and_pipes_are_not_copied() {
    let homes = Homes::new();
    let sessions = homes.at("home/.cli/sessions");
    symlink(homes.at("secret"), sessions.join("link")).unwrap();
    symlink(homes.root.path(), sessions.join("folder")).unwrap();
    fs::hard_link(homes.at("secret"), sessions.join("hard")).unwrap();
    rustix::fs::mknodat(CWD, sessions.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    symlink(homes.at("home/.cli"), homes.at("home/.other")).unwrap();
    assert_eq!(homes.copy(&[".cli/sessions", ".other/sessions", ".cli/sessions/link"], "kept").unwrap(), 2);
    assert_eq!(homes.files("kept"), [".cli/sessions/2026/one.jsonl", ".cli/sessions/two.jsonl"]);
    // A home that is a link is not read.
    symlink(homes.at("home"), homes.at("linked")).unwrap();
    assert!(copy(&homes.at("linked"), [".cli"], &homes.at("kept")).is_err());
}

#[test]
fn too_large_or_deep_session_is_not_copied_completely() {
    let homes = Homes::new();
    let huge = File::create(homes.at("home/.cli/sessions/huge.jsonl")).unwrap();
    huge.set_len(SESSION_BYTES).unwrap();
    assert!(homes.copy(&[".cli/sessions"], "kept").unwrap_err().to_string().contains("too large"));
    let found = model(&homes.at("home"), [".cli/sessions"], |_| None);
    assert!(found.unwrap_err().to_string().contains("too large"));
    let deep = format!("home/.cli/deep/{}x", "d/".repeat(MAX_DEPTH + 1));
    homes.write(&deep, "x");
    assert_eq!(homes.copy(&[".cli/deep"], "deep").unwrap(), 0);
}

#[test]
fn context_fill_is_read_from_the_newest_line() {
    fn read(line: &Value) -> Option<ContextFill> {
        Some(ContextFill { tokens: line["n"].as_u64()?, window: None })
    }
    let homes = Homes::new();
    homes.write("kept/a/run-0123abcd.jsonl", "{\"n\": 1}\n{\"n\": 7}\nbroken {\n{\"m\": 9}\n");
    homes.write("kept/b/other.jsonl", "{\"n\": 3}\n");
    let found = |mark: &str| context_fill(&homes.at("kept"), mark, read).map(|context_fill| context_fill.tokens);
    assert_eq!((found("0123abcd"), found("none")), (Some(7), None));
    homes.write("kept/a/run-0123abcd.jsonl", &format!("{}{{\"n\": 5}}", "x\n".repeat(SEARCHED_BYTES as usize)));
    assert_eq!(found("0123abcd"), Some(5));
    assert_eq!(context_fill(&homes.at("nowhere"), "x", read), None);
    // A pipe without a writer is skipped.
    rustix::fs::mknodat(CWD, homes.at("kept/a/pipe-0123abcd"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(found("pipe-0123abcd"), None);
}

#[test]
fn session_is_unknown_after_idle_run_with_such_error() {
    let reading = |status: AgentStatus, words: &str| {
        let signals = LimitSignals { messages: vec![words.to_owned()], ..LimitSignals::default() };
        ParsedOutput { signals, ..ParsedOutput::only(status) }
    };
    let failed = || AgentStatus::Failed { reason: "it exited with 1".into() };
    for words in [
        "No conversation found with session ID: 11111111-54c7-4bca-994c-e5ab76a2e6ab",
        "Error: thread/resume: thread/resume failed: no rollout found for thread id 01900000-54c7 (code -32600)",
        "Error resuming session: Invalid session identifier \"11111111\".",
        "Error resuming session: No previous sessions found for this project.",
        "\u{1b}[91m\u{1b}[1mError: \u{1b}[0mSession not found",
        "session `s-1` does not exist",
    ] {
        assert!(is_unknown(&reading(failed(), words)), "{words}");
        assert!(!is_unknown(&reading(AgentStatus::Finished, words)), "{words}");
        assert!(!is_unknown(&ParsedOutput { tokens_out: 1, ..reading(failed(), words) }), "{words}");
        assert!(!is_unknown(&ParsedOutput { tool_calls: 1, ..reading(failed(), words) }), "{words}");
    }
    for words in ["429 Too Many Requests", "the session is limited", "file not found", json!({}).to_string().as_str()] {
        assert!(!is_unknown(&reading(failed(), words)), "{words}");
    }
}
