//! Copies the files of a session between the homes of runs, and reads usage from them.
//!
//! Each run has its own home, so settings, hooks and programs that an agent writes there are never used again. After a
//! successful run, the files of its session are copied out of its home, and later into the home of the run that
//! resumes the session. Because agents can write to both homes, only regular files in real folders are copied, up to a
//! maximum size, and links are not followed.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path};
use std::sync::LazyLock;

use regex::Regex;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat};
use serde_json::Value;

use super::AgentStatus;
use super::preset::ParsedOutput;
use super::usage::ContextFill;
use crate::domain::trust::bounds::{SESSION_BYTES, SESSION_FILES};
use crate::process::untrusted;

/// Maximum depth of nested folders.
const MAX_DEPTH: usize = 16;
/// Number of bytes at the end of a file that are searched for the newest figures.
const SEARCHED_BYTES: u64 = 512 * 1024;
/// Maximum length of a line, in bytes; the rest of a longer line is ignored.
const MAX_LINE: u64 = 1024 * 1024;

/// Copies `names` (files or folders, relative to `from`) to the same paths in `to`, which is created. Existing files
/// are not overwritten. Returns the number of copied files.
///
/// # Errors
/// A file cannot be read or written, or the session is too large. `to` then contains a part of the session.
pub(super) fn copy<'a>(from: &Path, names: impl IntoIterator<Item = &'a str>, to: &Path) -> io::Result<usize> {
    let (mut bytes, mut files) = (SESSION_BYTES, 0);
    make_folder(to)?;
    each_file(from, names, &mut |path, file| {
        let into = to.join(path);
        make_folder(into.parent().unwrap_or(to))?;
        let mut into = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(into) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            other => other?,
        };
        let copied = io::copy(&mut file.take(bytes.saturating_add(1)), &mut into)?;
        bytes = bytes.checked_sub(copied).ok_or_else(too_large)?;
        files += 1;
        Ok(())
    })?;
    Ok(files)
}

/// Returns the model that the JSON Lines files of a session name last (`names` as for [`copy`]); `None` if they name
/// none.
///
/// # Errors
/// A file cannot be read, or the session is too large.
pub(super) fn model<'a>(
    from: &Path,
    names: impl IntoIterator<Item = &'a str>,
    read: fn(&str) -> Option<String>,
) -> io::Result<Option<String>> {
    let mut model = None;
    each_line(from, names, &mut |line| model = read(line).or(model.take()))?;
    Ok(model)
}

/// Calls `take` with each line of a session's `.jsonl` files. The rest of lines longer than 1 MiB is ignored.
fn each_line<'a>(from: &Path, names: impl IntoIterator<Item = &'a str>, take: &mut dyn FnMut(&str)) -> io::Result<()> {
    let (mut bytes, mut line) = (SESSION_BYTES, Vec::new());
    each_file(from, names, &mut |path, file| {
        if path.extension() != Some(OsStr::new("jsonl")) {
            return Ok(());
        }
        let mut lines = BufReader::new(file);
        loop {
            line.clear();
            let length = lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? as u64;
            bytes = bytes.checked_sub(length).ok_or_else(too_large)?;
            if length == 0 {
                return Ok(());
            }
            take(&String::from_utf8_lossy(&line));
        }
    })
}

fn too_large() -> io::Error {
    io::Error::other("the files of the session are too many or too large")
}

/// Calls `visit` with each file of `names` (files or folders, relative to `from`) and its path relative to `from`.
fn each_file<'a>(
    from: &Path,
    names: impl IntoIterator<Item = &'a str>,
    visit: &mut dyn FnMut(&Path, File) -> io::Result<()>,
) -> io::Result<()> {
    let mut visitor = FileVisitor { visit, files: 0 };
    let root =
        openat(CWD, from, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    for name in names {
        let parts: Vec<&OsStr> = Path::new(name)
            .components()
            .map(|part| if let Component::Normal(part) = part { Ok(part) } else { Err(not_within_home(name)) })
            .collect::<Result<_, _>>()?;
        visitor.named(&root, &parts, Path::new(""))?;
    }
    Ok(())
}

fn not_within_home(name: &str) -> io::Error {
    io::Error::other(format!("{name:?} is not a path within the home folder"))
}

/// Visitor of a session's files, which does not follow links.
struct FileVisitor<'a> {
    visit: &'a mut dyn FnMut(&Path, File) -> io::Result<()>,
    files: usize,
}

impl FileVisitor<'_> {
    fn named(&mut self, folder: &OwnedFd, parts: &[&OsStr], path: &Path) -> io::Result<()> {
        let Some((first, rest)) = parts.split_first() else { return Ok(()) };
        if rest.is_empty() {
            return self.entry(folder, first, path, 0);
        }
        match open(folder, first)? {
            Some((FileType::Directory, next)) => self.named(&next, rest, &path.join(first)),
            _ => Ok(()),
        }
    }

    fn entry(&mut self, folder: &OwnedFd, name: &OsStr, path: &Path, depth: usize) -> io::Result<()> {
        let path = path.join(name);
        match open(folder, name)? {
            Some((FileType::Directory, next)) if depth < MAX_DEPTH => {
                for entry in Dir::read_from(&next)? {
                    let entry = entry?;
                    let name = OsStr::from_bytes(entry.file_name().to_bytes());
                    if name != "." && name != ".." {
                        self.entry(&next, name, &path, depth + 1)?;
                    }
                }
                Ok(())
            }
            Some((FileType::RegularFile, file)) => {
                self.files += 1;
                if self.files > SESSION_FILES {
                    return Err(too_large());
                }
                (self.visit)(&path, File::from(file))
            }
            _ => Ok(()),
        }
    }
}

/// Opens a folder, or a regular file with a single hard link. Returns `None` for other objects and if it does not
/// exist.
fn open(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<(FileType, OwnedFd)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        // Links, sockets, and files that the agent itself may not read.
        Err(_) => return Ok(None),
    };
    let stat = fstat(&file)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let plain = kind == FileType::Directory || (kind == FileType::RegularFile && stat.st_nlink == 1);
    Ok(plain.then_some((kind, file)))
}

fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Returns the used part of the context window, according to the newest line that reports it in the JSON Lines files below
/// `folder` whose names contain `mark`.
pub(super) fn context_fill(folder: &Path, mark: &str, read: fn(&Value) -> Option<ContextFill>) -> Option<ContextFill> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).ok()?.flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(_) if entry.file_name().to_string_lossy().contains(mark) => {
                    let found = end_of(&path)
                        .ok()
                        .and_then(|end| end.lines().rev().find_map(|line| read(&serde_json::from_str(line).ok()?)));
                    if found.is_some() {
                        return found;
                    }
                }
                _ => {}
            }
        }
    }
    None
}

fn end_of(path: &Path) -> io::Result<String> {
    let mut file = untrusted::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(SEARCHED_BYTES)))?;
    let mut end = Vec::new();
    file.take(SEARCHED_BYTES).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

/// Whether a run did no work because the agent's program does not have the session to resume.
pub(super) fn is_unknown(output: &ParsedOutput) -> bool {
    static UNKNOWN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?ix) \bno\ (?:\w+\ )?(?:conversation|session|thread|rollout)s?\ found\b
              | \b(?:invalid|unknown)\ (?:session|conversation|thread)\b
              | (?:session|conversation|thread)\b[^.\n]{0,100}\b(?:not\ found|does\ not\ exist|is\ unknown|has\ expired
                  |was\ created\ under\ a\ different\ directory)\b",
        )
        .expect("the expression is fixed and valid")
    });
    let failed = matches!(output.status, AgentStatus::Failed { .. } | AgentStatus::Unavailable { .. });
    let did_nothing = output.tool_calls == 0 && output.tokens_in == 0 && output.tokens_out == 0;
    let words = || output.errors.iter().chain(&output.signals.messages);
    failed && did_nothing && words().any(|words| UNKNOWN.is_match(words))
}

#[cfg(test)]
mod tests;
