//! What is kept of an agent's home for going on with its session: a few named files, nothing else.
//!
//! Each run has a home of its own, so that settings, hooks and programs that an agent leaves there never run again. Of a
//! run that ended well, the files of its session are copied out; for the run that goes on with it, they are copied into
//! that run's home. Both homes were in an agent's hands, so nothing but plain files in real folders is taken, as far as
//! sizes allow; no link is followed.

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
use super::stream::Tokens;

/// Most bytes and files of one session; a longer one is begun anew.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
const MAX_FILES: usize = 10_000;
/// RunFolders within each other at most.
const MAX_DEPTH: usize = 16;
/// How much of the end of a file is looked through for the newest figures.
const END: u64 = 512 * 1024;
/// Longest line that is read whole, in bytes.
const MAX_LINE: u64 = 1024 * 1024;

/// How full a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ContextFill {
    /// Tokens of its last turn, read and written.
    pub(super) tokens: u64,
    /// Tokens that its model can have before it, where that is said.
    pub(super) window: Option<u64>,
}

/// Copies what `names` (paths from `from`, of files or folders) stand for to the same places in `to`, which is made. What
/// is there already stays. Gives the number of files.
///
/// # Errors
/// What cannot be read or written, and a session that is too large; `to` then has a part of it.
pub(super) fn copy<'a>(from: &Path, names: impl IntoIterator<Item = &'a str>, to: &Path) -> io::Result<usize> {
    let (mut bytes, mut files) = (MAX_BYTES, 0);
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

/// What the files of a session say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SessionUsage {
    /// What all of its requests used.
    pub(super) tokens: Tokens,
    /// How full it is.
    pub(super) filled: Option<ContextFill>,
}

/// What the lines of a session's files (names as for [`copy`], of which those of JSON lines count) add up to. Lines longer
/// than 1 MiB are passed over.
///
/// # Errors
/// What cannot be read, and a session that is too large.
pub(super) fn ledger<'a>(
    from: &Path,
    names: impl IntoIterator<Item = &'a str>,
    read: fn(&str, &mut SessionUsage),
) -> io::Result<SessionUsage> {
    let mut ledger = SessionUsage::default();
    each_line(from, names, &mut |line| read(line, &mut ledger))?;
    Ok(ledger)
}

/// The last model that the lines of a session's files name; as for [`ledger`].
///
/// # Errors
/// What cannot be read, and a session that is too large.
pub(super) fn model<'a>(
    from: &Path,
    names: impl IntoIterator<Item = &'a str>,
    read: fn(&str) -> Option<String>,
) -> io::Result<Option<String>> {
    let mut model = None;
    each_line(from, names, &mut |line| model = read(line).or(model.take()))?;
    Ok(model)
}

/// Hands over the lines of a session's files that are of JSON lines; longer ones than 1 MiB are cut.
fn each_line<'a>(from: &Path, names: impl IntoIterator<Item = &'a str>, take: &mut dyn FnMut(&str)) -> io::Result<()> {
    let (mut bytes, mut line) = (MAX_BYTES, Vec::new());
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

/// Hands over the files that `names` (paths from `from`, of files or folders) stand for, each with its path from there.
fn each_file<'a>(
    from: &Path,
    names: impl IntoIterator<Item = &'a str>,
    visit: &mut dyn FnMut(&Path, File) -> io::Result<()>,
) -> io::Result<()> {
    let mut walk = FileVisitor { visit, files: 0 };
    let root =
        openat(CWD, from, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    for name in names {
        let parts: Vec<&OsStr> = Path::new(name)
            .components()
            .map(|part| if let Component::Normal(part) = part { Ok(part) } else { Err(odd(name)) })
            .collect::<Result<_, _>>()?;
        walk.named(&root, &parts, Path::new(""))?;
    }
    Ok(())
}

fn odd(name: &str) -> io::Error {
    io::Error::other(format!("{name:?} is no path within a home"))
}

/// A walk through the files of a session.
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
                if self.files > MAX_FILES {
                    return Err(too_large());
                }
                (self.visit)(&path, File::from(file))
            }
            _ => Ok(()),
        }
    }
}

/// A folder, or a plain file with no second name; `None` for anything else, and for what is not there.
fn open(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<(FileType, OwnedFd)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        // Links, sockets, and what the agent itself may not read.
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

/// How full the session is by the newest line that says so in those of its files (JSON lines, copied by [`copy`]) whose
/// names hold `mark`.
pub(super) fn filled(folder: &Path, mark: &str, read: fn(&Value) -> Option<ContextFill>) -> Option<ContextFill> {
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
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

/// Whether a run that was to go on with a session did nothing because its program does not know that session (any more).
pub(super) fn is_unknown(reading: &ParsedOutput) -> bool {
    static UNKNOWN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?ix) \bno\ (?:previous\ )?(?:conversation|session|thread|rollout)s?\ found\b
              | \b(?:invalid|unknown)\ (?:session|conversation|thread)\b
              | (?:session|conversation|thread)\b[^.\n]{0,100}\b(?:not\ found|does\ not\ exist|is\ unknown|has\ expired
                  |was\ created\ under\ a\ different\ directory)\b",
        )
        .expect("the expression is fixed and valid")
    });
    let failed = matches!(reading.status, AgentStatus::Failed { .. } | AgentStatus::Unavailable { .. });
    let did_nothing = reading.tool_calls == 0 && reading.tokens_in == 0 && reading.tokens_out == 0;
    let words = || reading.errors.iter().chain(&reading.signals.messages);
    failed && did_nothing && words().any(|words| UNKNOWN.is_match(words))
}

#[cfg(test)]
mod tests;
