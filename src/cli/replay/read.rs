//! Reads traces and settings. Errors name file and line and are usage errors.

use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;
use serde_json::Value;

use crate::cli::CliError;
use crate::config::{self, Env, operator_file};
use crate::domain::supervision::SupervisionSettings;
use crate::domain::supervision::replay::Trace;

/// Maximum size of a file, in bytes.
const FILE_MAX: u64 = 1 << 28;
/// Relevant keys of a settings file.
const SECTIONS: [&str; 4] = ["preset", "control", "oversight", "strategy"];

/// Trace with the name that a comparison prints.
pub(super) struct NamedTrace {
    /// Name of the file without its extension, or id of the loop.
    pub name: String,
    /// Trace.
    pub trace: Trace,
}

/// Name of a file without its extension.
pub(super) fn name(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Reads the trace in a file.
pub(super) fn trace(path: &Path) -> Result<Trace, CliError> {
    let trace = Trace::parse(&text(path)?)
        .map_err(|error| CliError::usage(Failure::new(path.display().to_string()).caused_by(error)))?;
    match trace.records.is_empty() {
        true => Err(CliError::usage(format!("{}: the trace is empty", path.display()))),
        false => Ok(trace),
    }
}

/// Reads the traces of a folder (`*.jsonl`, sorted by name) or of one file.
pub(super) fn traces(path: &Path) -> Result<Vec<NamedTrace>, CliError> {
    let named = |file: &Path| Ok(NamedTrace { name: name(file), trace: trace(file)? });
    if !path.is_dir() {
        return Ok(vec![named(path)?]);
    }
    let unreadable =
        |error| CliError::usage(Failure::new(format!("{}: could not read", path.display())).caused_by(error));
    let entries: Result<Vec<_>, _> = std::fs::read_dir(path).map_err(unreadable)?.collect();
    let is_trace = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "jsonl");
    let mut files: Vec<PathBuf> =
        entries.map_err(unreadable)?.into_iter().map(|entry| entry.path()).filter(is_trace).collect();
    files.sort();
    if files.is_empty() {
        return Err(CliError::usage(format!("{}: the folder contains no .jsonl file", path.display())));
    }
    files.iter().map(|file| named(file)).collect()
}

/// Returns the supervision settings of the configuration file; the defaults if there is no file, or if it sets none.
///
/// # Errors
/// Fails if the file was named and does not exist, or if it is invalid.
pub fn settings(explicit: Option<&Path>, env: &Env) -> Result<SupervisionSettings, CliError> {
    let path = operator_file(explicit, env);
    let set = if explicit.is_none() && !path.exists() { None } else { settings_of(&path)? };
    Ok(set.unwrap_or_default())
}

/// Reads the keys `control`, `oversight` and `strategy` of a YAML file on top of its `preset`; `None` if the file is an
/// operator's file without any of them.
pub(super) fn settings_of(path: &Path) -> Result<Option<SupervisionSettings>, CliError> {
    let wrong = |why: Failure| CliError::usage(Failure::new(path.display().to_string()).caused_by(why));
    let text = text(path)?;
    let file: Value = if text.trim().is_empty() {
        Value::Null
    } else {
        serde_saphyr::from_str(&text).map_err(|error| wrong(Failure::of(error)))?
    };
    let sections = match &file {
        Value::Null => return Ok(None),
        Value::Object(keys) if SECTIONS.iter().any(|section| keys.contains_key(*section)) => keys,
        // A file with `forges` is an operator's file; any other without these keys is a mistake.
        Value::Object(keys) if keys.is_empty() || keys.contains_key("forges") => return Ok(None),
        _ => return Err(wrong(format!("the file has none of the keys {}", SECTIONS.join(", ")).into())),
    };
    let mut sections = sections.clone();
    // A key without a value counts as absent.
    sections.retain(|_, section| !section.is_null());
    for warning in config::drop_from_sections(&mut sections) {
        anstream::eprintln!("warning: {}: {warning}", path.display());
    }
    SupervisionSettings::layered(&sections).map(Some).map_err(|problems| {
        let problems = problems.into_iter().map(|problem| config::without_removed_keys(problem).to_string());
        wrong(problems.collect::<Vec<_>>().join("; ").into())
    })
}

/// Reads a file as UTF-8.
fn text(path: &Path) -> Result<String, CliError> {
    let wrong = |why: Failure| CliError::usage(Failure::new(path.display().to_string()).caused_by(why));
    let metadata = std::fs::metadata(path).map_err(|error| wrong(Failure::new("could not read").caused_by(error)))?;
    if metadata.is_dir() {
        return Err(wrong("expected a file, found a folder".into()));
    }
    if metadata.len() > FILE_MAX {
        return Err(wrong(format!("the file has {} bytes; the maximum is {FILE_MAX}", metadata.len()).into()));
    }
    let bytes = std::fs::read(path).map_err(|error| wrong(Failure::new("could not read").caused_by(error)))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        wrong(format!("line {line}: invalid UTF-8").into())
    })
}
