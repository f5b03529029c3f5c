//! Tool that reads and writes regular files of the work tree.
//!
//! The tool runs in this process, outside the sandbox, on a tree in which an agent can create links. Each folder of a
//! path is opened without following symbolic links. A file is replaced with a new one instead of being overwritten, so
//! other hard links to it keep their content. Read-only parts of the tree and git's own folder cannot be written.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use ralph_types::failure::Failure;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum size of a file that is read or written, in bytes.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// Maximum size of a shown text, in bytes.
const MAX_SHOWN: usize = 24 * 1024;
/// Maximum number of shown entries of a folder.
const MAX_ENTRIES: usize = 300;
/// Flags for opening one folder of a path.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Arguments of a call.
#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(super) enum EditCommand {
    /// Shows a file with line numbers, or the entries of a folder.
    View { path: String, view_range: Option<[i64; 2]> },
    /// Creates or replaces a file.
    Create { path: String, file_text: String },
    /// Replaces a text that occurs exactly once.
    StrReplace {
        path: String,
        old_str: String,
        #[serde(default)]
        new_str: String,
    },
    /// Inserts lines after a line; 0 is the start.
    Insert {
        path: String,
        insert_line: usize,
        #[serde(alias = "new_str")]
        insert_text: String,
    },
}

impl EditCommand {
    /// Returns the path of the file that the call changes; `None` if it changes none.
    pub(super) fn changes(&self) -> Option<&str> {
        match self {
            Self::View { .. } => None,
            Self::Create { path, .. } | Self::StrReplace { path, .. } | Self::Insert { path, .. } => Some(path),
        }
    }
}

/// Returns the JSON Schema of the arguments.
pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
            "path": {"type": "string", "description": "Path of the file, relative to the root of the work tree."},
            "view_range": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2,
                "description": "For view: first and last line, 1-based; -1 means the end of the file."},
            "file_text": {"type": "string", "description": "For create: complete content of the file."},
            "old_str": {"type": "string",
                "description": "For str_replace: the exact text to replace; it must occur exactly once in the file."},
            "new_str": {"type": "string", "description": "For str_replace: the replacement."},
            "insert_line": {"type": "integer", "minimum": 0,
                "description": "For insert: the line after which the text is inserted; 0 for the beginning."},
            "insert_text": {"type": "string", "description": "For insert: whole lines."},
        },
        "required": ["command", "path"],
    })
}

/// Work tree that the tool works on.
pub(super) struct Tree<'a> {
    /// Root of the tree, absolute.
    pub(super) top: &'a Path,
    /// Read-only paths, absolute.
    pub(super) read_only: &'a [PathBuf],
}

impl Tree<'_> {
    /// Executes a call; returns the text for the model.
    ///
    /// # Errors
    /// A message for the model: the call is invalid, or the system reported an error.
    pub(super) fn edit(&self, edit: EditCommand) -> Result<String, Failure> {
        match edit {
            EditCommand::View { path, view_range } => self.view(&path, view_range),
            EditCommand::Create { path, file_text } => {
                let lines = file_text.lines().count();
                let new = self.write(&path, &file_text, true)?;
                Ok(format!("{path} is {} ({lines} lines).", if new { "made" } else { "replaced" }))
            }
            EditCommand::StrReplace { path, old_str, new_str } => {
                let text = self.text(&path)?;
                let made = replaced(&path, &text, &old_str, &new_str)?;
                let same = text.bytes().zip(made.bytes()).take_while(|(old, new)| old == new).count();
                let line = text.as_bytes()[..same].iter().filter(|byte| **byte == b'\n').count() + 1;
                self.write(&path, &made, false)?;
                Ok(format!("{path} is changed at line {line}:\n{}", around(&made, line, new_str.lines().count())))
            }
            EditCommand::Insert { path, insert_line, insert_text } => {
                let text = self.text(&path)?;
                let made = inserted(&path, &text, insert_line, &insert_text)?;
                self.write(&path, &made, false)?;
                let shown = around(&made, insert_line + 1, insert_text.lines().count());
                Ok(format!("{path} has {} new lines:\n{shown}", insert_text.lines().count()))
            }
        }
    }

    /// Splits a path within the tree into its parts.
    fn parts(&self, path: &str) -> Result<Vec<String>, Failure> {
        let given = Path::new(path);
        let within = if given.is_absolute() {
            given.strip_prefix(self.top).map_err(|_| {
                format!("{path:?} is outside of the work tree; only files in {} can be edited", self.top.display())
            })?
        } else {
            given
        };
        let mut parts = Vec::new();
        for component in within.components() {
            match component {
                Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
                Component::CurDir => {}
                _ => {
                    return Err(Failure::new(format!(
                        "{path:?} is not valid: write the path without `..`, relative to the root of the tree"
                    )));
                }
            }
        }
        if path.contains('\0') || path.is_empty() {
            return Err(Failure::new("the path is empty or contains NUL characters"));
        }
        Ok(parts)
    }

    /// Opens a folder without following symbolic links. With `make`, missing folders are created.
    fn folder(&self, parts: &[String], make: bool) -> Result<OwnedFd, Failure> {
        let mut folder = openat(CWD, self.top, FOLDER, Mode::empty())
            .map_err(|error| format!("cannot open the work tree ({error})"))?;
        for part in parts {
            folder = match openat(&folder, part.as_str(), FOLDER, Mode::empty()) {
                Err(Errno::NOENT) if make => mkdirat(&folder, part.as_str(), Mode::from_raw_mode(0o777))
                    .and_then(|()| openat(&folder, part.as_str(), FOLDER, Mode::empty())),
                other => other,
            }
            .map_err(|error| unopened(part, error))?;
        }
        Ok(folder)
    }

    fn view(&self, path: &str, range: Option<[i64; 2]>) -> Result<String, Failure> {
        let parts = self.parts(path)?;
        let Some((name, above)) = parts.split_last() else { return listed(self.folder(&[], false)?) };
        let folder = self.folder(above, false)?;
        match statat(&folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                listed(self.folder(&parts, false)?)
            }
            _ => numbered(path, &String::from_utf8_lossy(&contents(&folder, path, name)?), range),
        }
    }

    fn text(&self, path: &str) -> Result<String, Failure> {
        let parts = self.parts(path)?;
        let (name, above) = parts.split_last().ok_or("expected the path of a file")?;
        String::from_utf8(contents(&self.folder(above, false)?, path, name)?)
            .map_err(|_| Failure::new(format!("{path} is not UTF-8 text; change it by a command")))
    }

    /// Creates or replaces a file; returns `true` if it is new.
    fn write(&self, path: &str, text: &str, make_folders: bool) -> Result<bool, Failure> {
        let parts = self.parts(path)?;
        let (name, above) = parts.split_last().ok_or("expected the path of a file")?;
        let full = self.top.join(parts.iter().collect::<PathBuf>());
        if parts[0] == ".git" || self.read_only.iter().any(|path| full.starts_with(path)) {
            return Err(Failure::new(format!("{path} may only be read")));
        }
        if text.len() as u64 > MAX_FILE {
            return Err(Failure::new(format!(
                "a file of {} bytes is too large; at most {MAX_FILE} are written",
                text.len()
            )));
        }
        let folder = self.folder(above, make_folders)?;
        let mode = match statat(&folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Some(Mode::from_raw_mode(stat.st_mode & 0o777))
            }
            Ok(_) => return Err(Failure::new(format!("{path} is not a regular file (links are not followed)"))),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(Failure::new(format!("cannot inspect {path} ({error})"))),
        };
        let beside = format!(".ralph-{}", uuid::Uuid::now_v7().simple());
        let placed = placed(&folder, &beside, name, text, mode);
        if placed.is_err() {
            let _ = unlinkat(&folder, beside.as_str(), AtFlags::empty());
        }
        placed.map_err(|error| format!("cannot write {path} ({error})"))?;
        Ok(mode.is_none())
    }
}

/// Writes a temporary file in the target's folder and renames it to the target's name.
fn placed(folder: &OwnedFd, beside: &str, name: &str, text: &str, mode: Option<Mode>) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, beside, flags, Mode::from_raw_mode(0o666))?);
    file.write_all(text.as_bytes())?;
    if let Some(mode) = mode {
        rustix::fs::fchmod(&file, mode)?;
    }
    Ok(renameat(folder, beside, folder, name)?)
}

fn unopened(part: &str, error: Errno) -> String {
    match error {
        Errno::NOENT => format!("there is no {part:?}"),
        Errno::LOOP | Errno::NOTDIR => format!("{part:?} is not a folder (symbolic links are not followed)"),
        other => format!("cannot open {part:?} ({other})"),
    }
}

/// Returns the content of a regular file.
fn contents(folder: &impl AsFd, path: &str, name: &str) -> Result<Vec<u8>, Failure> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(folder, name, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => format!("there is no file {path}"),
        Errno::LOOP => format!("{path} is a symbolic link, which is not followed"),
        other => format!("cannot open {path} ({other})"),
    })?;
    let stat = rustix::fs::fstat(&file).map_err(|error| format!("cannot read {path} ({error})"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Failure::new(format!("{path} is not a regular file")));
    }
    let mut bytes = Vec::new();
    File::from(file)
        .take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read {path} ({error})"))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Failure::new(format!("{path} is larger than {MAX_FILE} bytes; read parts of it by a command")));
    }
    Ok(bytes)
}

fn listed(folder: OwnedFd) -> Result<String, Failure> {
    let entries = rustix::fs::Dir::read_from(&folder).map_err(|error| format!("cannot list it ({error})"))?;
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| {
            let slash = if entry.file_type() == FileType::Directory { "/" } else { "" };
            format!("{}{slash}", entry.file_name().to_string_lossy())
        })
        .filter(|name| !matches!(name.as_str(), "./" | "../" | ".git/"))
        .collect();
    names.sort();
    let more = names.len().saturating_sub(MAX_ENTRIES);
    names.truncate(MAX_ENTRIES);
    if more > 0 {
        names.push(format!("[… {more} more]"));
    }
    Ok(if names.is_empty() { "(an empty folder)".to_owned() } else { names.join("\n") })
}

/// Returns the lines of a text in a range, with line numbers.
fn numbered(path: &str, text: &str, range: Option<[i64; 2]>) -> Result<String, Failure> {
    let count = text.lines().count();
    if count == 0 {
        return Ok("(an empty file)".to_owned());
    }
    let [first, last] = range.unwrap_or([1, -1]);
    let last = if last < 0 { count } else { usize::try_from(last).unwrap_or(count).min(count) };
    let first = usize::try_from(first).unwrap_or(0).max(1);
    if first > last {
        return Err(Failure::new(format!("{path} has {count} lines; there are none from {first} to {last}")));
    }
    let mut shown = String::new();
    for (at, line) in text.lines().enumerate().take(last).skip(first - 1) {
        if shown.len() + line.len() > MAX_SHOWN {
            let line: String = line.chars().take(if shown.is_empty() { MAX_SHOWN / 4 } else { 0 }).collect();
            shown.push_str(&format!("{line}\n[… cut at line {} of {count}; ask for a view_range …]\n", at + 1));
            break;
        }
        shown.push_str(&format!("{:>6}\t{line}\n", at + 1));
    }
    Ok(shown)
}

/// Returns the new lines with three lines of context on each side.
fn around(text: &str, first: usize, lines: usize) -> String {
    let from = first.saturating_sub(3).max(1);
    let to = i64::try_from((first + lines.min(30) + 2).min(text.lines().count())).unwrap_or(i64::MAX);
    numbered("it", text, Some([from as i64, to])).unwrap_or_default()
}

fn replaced(path: &str, text: &str, old: &str, new: &str) -> Result<String, Failure> {
    if old.is_empty() {
        return Err(Failure::new("old_str is empty: give the text to replace"));
    }
    match text.matches(old).count() {
        1 => Ok(text.replacen(old, new, 1)),
        // Models write line feeds, even if the lines of the file end with CRLF.
        0 if text.contains("\r\n") && old.contains('\n') && !old.contains('\r') => {
            replaced(path, text, &old.replace('\n', "\r\n"), &new.replace('\n', "\r\n"))
        }
        0 => {
            let hint = if text.contains(old.trim()) { " exactly: the blanks at its ends differ" } else { "" };
            Err(Failure::new(format!("old_str is not in {path}{hint}. View the file and copy the text exactly.")))
        }
        count => Err(Failure::new(format!(
            "old_str is {count} times in {path}; add surrounding lines, so that it occurs once"
        ))),
    }
}

fn inserted(path: &str, text: &str, after: usize, new: &str) -> Result<String, Failure> {
    let count = text.lines().count();
    if after > count {
        return Err(Failure::new(format!("{path} has {count} lines; line {after} does not exist")));
    }
    let at = text.split_inclusive('\n').take(after).map(str::len).sum();
    let (before, rest) = text.split_at(at);
    let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let end = if new.is_empty() || new.ends_with('\n') { "" } else { "\n" };
    Ok(format!("{before}{gap}{new}{end}{rest}"))
}

#[cfg(test)]
mod tests;
