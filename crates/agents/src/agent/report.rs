//! Reads the report of an agent. The file is untrusted.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ralph_types::failure::Failure;
use rustix::fs::{FileType, Mode, OFlags};
use serde_json::Value;

use crate::domain::model::plan::TaskPlan;
use crate::domain::model::task::AgentReport;
use crate::domain::trust::bounds::AGENT_REPORT_BYTES;
use crate::process::Masker;

/// Maximum number of entries of a list.
const MAX_ENTRIES: usize = 50;
/// Maximum length of a text, in characters.
const MAX_TEXT: usize = 4_000;

/// Reads the report at `folder/name`. Returns the report and a description of its problems, if any. A missing report
/// is not a problem.
pub(super) fn read(folder: &Path, name: &str, secrets: &Masker) -> (Option<AgentReport>, Option<String>) {
    match contents(folder, name) {
        Ok(None) => (None, None),
        Ok(Some(bytes)) => parse(&bytes, secrets),
        Err(problem) => (None, Some(format!("the report was ignored: {problem}"))),
    }
}

/// Reads a regular file directly in the folder; rejects links, pipes and devices, which the agent could have created.
fn contents(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, Failure> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let folder = rustix::fs::open(folder, flags | OFlags::DIRECTORY, Mode::empty())
        .map_err(|_| "its folder was replaced during the run")?;
    let file = match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(Failure::new("it is a symbolic link")),
        Err(error) => return Err(Failure::new(format!("it cannot be opened ({error})"))),
    };
    let stat = rustix::fs::fstat(&file).map_err(|e| format!("it cannot be read ({e})"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink != 1 {
        return Err(Failure::new("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    let read = File::from(file).take(AGENT_REPORT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|e| format!("it cannot be read ({e})"))?;
    if bytes.len() as u64 > AGENT_REPORT_BYTES {
        return Err(Failure::new(format!("it is longer than {} KiB", AGENT_REPORT_BYTES / 1024)));
    }
    Ok(Some(bytes))
}

pub(super) fn parse(bytes: &[u8], secrets: &Masker) -> (Option<AgentReport>, Option<String>) {
    let text = String::from_utf8_lossy(bytes);
    let fields = match serde_json::from_str::<Value>(text.trim_start_matches('\u{feff}')) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return (None, Some("the report was ignored: it is not a JSON object".to_owned())),
        Err(e) => return (None, Some(format!("the report was ignored: it is not JSON ({e})"))),
    };
    let mut fields = Fields { fields, secrets, wrong: Vec::new() };
    let report = AgentReport {
        completion_percentage: fields.number("completion_percentage", 100.0),
        summary: fields.text("summary"),
        approach: fields.text("approach"),
        learnings: fields.list("learnings"),
        blockers: fields.list("blockers"),
        resolution_steps: fields.list("resolution_steps"),
        next_steps: fields.list("next_steps"),
        completion_signal: fields.flag("completion_signal"),
        plan: fields.plan(),
    };
    let problem =
        (!fields.wrong.is_empty()).then(|| format!("parts of the report were ignored: {}", fields.wrong.join("; ")));
    (Some(report), problem)
}

/// JSON object whose fields may be missing or invalid. Problems are collected in `wrong`.
struct Fields<'a> {
    fields: serde_json::Map<String, Value>,
    secrets: &'a Masker,
    wrong: Vec<String>,
}

impl Fields<'_> {
    /// Returns and removes a field; `None` if it is missing or null.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|value| !value.is_null())
    }

    fn number(&mut self, name: &str, max: f64) -> Option<f64> {
        let number = self.take(name)?.as_f64().filter(|n| (0.0..=max).contains(n));
        if number.is_none() {
            self.wrong.push(format!("{name} is not a number from 0 to {max}"));
        }
        number
    }

    fn flag(&mut self, name: &str) -> bool {
        match self.take(name) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(_) => {
                self.wrong.push(format!("{name} is neither true nor false"));
                false
            }
        }
    }

    fn text(&mut self, name: &str) -> String {
        match self.take(name) {
            None => String::new(),
            Some(Value::String(text)) => self.clean(&text),
            Some(_) => {
                self.wrong.push(format!("{name} is not a text"));
                String::new()
            }
        }
    }

    fn plan(&mut self) -> Option<TaskPlan> {
        let fields = match self.take("plan")? {
            Value::Object(fields) => fields,
            _ => {
                self.wrong.push("plan is not an object".to_owned());
                return None;
            }
        };
        let mut inner = Fields { fields, secrets: self.secrets, wrong: Vec::new() };
        let plan = TaskPlan {
            summary: inner.text("summary"),
            steps: inner.list("steps"),
            files: inner.list("files"),
            checks: inner.list("checks"),
            not_doing: inner.list("not_doing"),
            questions: inner.list("questions"),
        };
        self.wrong.extend(inner.wrong.iter().map(|problem| format!("plan.{problem}")));
        Some(plan)
    }

    fn list(&mut self, name: &str) -> Vec<String> {
        let entries = match self.take(name) {
            None => return Vec::new(),
            Some(Value::Array(entries)) => entries,
            Some(Value::String(one)) => vec![Value::String(one)],
            Some(_) => {
                self.wrong.push(format!("{name} is not a list"));
                return Vec::new();
            }
        };
        if entries.len() > MAX_ENTRIES {
            self.wrong.push(format!("{name} has more than {MAX_ENTRIES} entries"));
        }
        let texts: Vec<&str> = entries.iter().take(MAX_ENTRIES).filter_map(Value::as_str).collect();
        if texts.len() < entries.len().min(MAX_ENTRIES) {
            self.wrong.push(format!("{name} has entries that are not texts"));
        }
        texts.into_iter().map(|text| self.clean(text)).filter(|text| !text.is_empty()).collect()
    }

    /// Masks secrets in a text before shortening it, so that no part of a secret remains.
    fn clean(&self, text: &str) -> String {
        self.secrets.mask(text.trim()).chars().take(MAX_TEXT).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn parsed(json: &str) -> (Option<AgentReport>, Option<String>) {
        parse(json.as_bytes(), &Masker::new(["swordfish"]))
    }

    #[test]
    fn complete_report_is_parsed() {
        let (report, problem) = parsed(
            r#"{"completion_percentage": 80, "quality_score": 0.5, "summary": " did swordfish ", "approach": "a",
                "learnings": ["l"], "blockers": [], "resolution_steps": null, "next_steps": "one", "new_field": {},
                "completion_signal": true}"#,
        );
        assert_eq!(problem, None);
        let expected = AgentReport {
            completion_percentage: Some(80.0),
            summary: "did ***".into(),
            approach: "a".into(),
            learnings: vec!["l".into()],
            next_steps: vec!["one".into()],
            completion_signal: true,
            ..AgentReport::default()
        };
        assert_eq!(report, Some(expected));
    }

    #[test]
    fn plan_of_a_report_is_parsed_and_masked() {
        let (report, problem) = parsed(
            r#"{"plan": {"summary": "use swordfish", "steps": ["a", 3], "files": "src", "checks": null, "more": 1}}"#,
        );
        let plan = report.and_then(|report| report.plan).unwrap();
        assert_eq!((plan.summary.as_str(), plan.steps.len(), plan.files.len()), ("use ***", 1, 1));
        assert!(problem.is_some_and(|p| p.contains("plan.steps has entries that are not texts")));
        let (report, problem) = parsed(r#"{"plan": "do it"}"#);
        assert_eq!(report, Some(AgentReport::default()));
        assert!(problem.is_some_and(|p| p.contains("plan is not an object")));
    }

    /// See docs/research/threats.md#s9.
    #[test]
    fn invalid_fields_are_reported_and_ignored() {
        for (json, note) in [
            (r#"{"completion_percentage": "80"}"#, "completion_percentage is not a number from 0 to 100"),
            (r#"{"completion_percentage": 1e9}"#, "completion_percentage"),
            (r#"{"summary": ["x"]}"#, "summary is not a text"),
            (r#"{"learnings": {"a": 1}}"#, "learnings is not a list"),
            (r#"{"blockers": [1, {}]}"#, "blockers has entries that are not texts"),
            (r#"{"completion_signal": "true"}"#, "completion_signal is neither"),
        ] {
            let (report, problem) = parsed(json);
            assert_eq!(report, Some(AgentReport::default()), "{json}");
            assert!(problem.as_deref().is_some_and(|p| p.contains(note)), "{json}: {problem:?}");
        }
    }

    /// See docs/research/threats.md#s9.
    #[test]
    fn invalid_report_is_ignored() {
        let deep = "[".repeat(100_000);
        for json in ["", "{", "[]", "3", "\"x\"", "\u{0}", deep.as_str()] {
            let (report, problem) = parsed(json);
            assert_eq!(report, None);
            assert!(problem.is_some_and(|p| p.starts_with("the report was ignored")));
        }
        assert_eq!(parsed("\u{feff}{}").0, Some(AgentReport::default()));
    }

    /// See docs/research/threats.md#s9.
    #[test]
    fn long_lists_and_texts_are_cut() {
        let many = serde_json::json!({"learnings": vec!["x"; 60], "summary": "ä".repeat(5_000)}).to_string();
        let (report, problem) = parsed(&many);
        let report = report.unwrap();
        assert_eq!((report.learnings.len(), report.summary.chars().count()), (50, 4_000));
        assert!(problem.unwrap().contains("more than 50"));
    }

    /// See docs/research/threats.md#g9.
    #[test]
    fn only_regular_files_in_the_report_folder_are_read() {
        let root = tempfile::tempdir().unwrap();
        let (folder, masker) = (root.path().join("report"), Masker::default());
        fs::create_dir(&folder).unwrap();
        fs::write(root.path().join("secret"), "{}").unwrap();
        let read = |name: &str| read(&folder, name, &masker);
        assert_eq!(read("missing"), (None, None));

        symlink(root.path().join("secret"), folder.join("link")).unwrap();
        fs::hard_link(root.path().join("secret"), folder.join("hard")).unwrap();
        fs::create_dir(folder.join("folder")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, folder.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::write(folder.join("long"), vec![b' '; 256 * 1024 + 1]).unwrap();
        for (name, words) in [
            ("link", "symbolic link"),
            ("hard", "regular file"),
            ("folder", "regular file"),
            ("pipe", "regular file"),
            ("long", "256 KiB"),
        ] {
            let (report, problem) = read(name);
            assert_eq!(report, None, "{name}");
            assert!(problem.as_deref().is_some_and(|p| p.contains(words)), "{name}: {problem:?}");
        }
        fs::write(folder.join("good"), r#"{"summary":"s"}"#).unwrap();
        assert_eq!(read("good").0.unwrap().summary, "s");

        fs::rename(&folder, root.path().join("moved")).unwrap();
        symlink(root.path().join("moved"), &folder).unwrap();
        assert!(self::read(&folder, "good", &masker).1.unwrap().contains("folder"));
    }
}
