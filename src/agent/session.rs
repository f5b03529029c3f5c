//! What is kept of an agent's home for going on with its session: a few named files, nothing else.
//!
//! Each run has a home of its own, so that settings, hooks and programs that an agent leaves there never run again. Of a
//! run that ended well, the files of its session are copied out; for the run that goes on with it, they are copied into
//! that run's home. Both homes were in an agent's hands, so nothing but plain files in real folders is taken, as far as
//! sizes allow; no link is followed.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path};
use std::sync::LazyLock;

use regex::Regex;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat};
use serde_json::Value;

use super::AgentStatus;
use super::preset::Reading;

/// Most bytes and files of one session; a longer one is begun anew.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
const MAX_FILES: usize = 10_000;
/// Folders within each other at most.
const MAX_DEPTH: usize = 16;
/// How much of the end of a file is looked through for the newest figures.
const END: u64 = 512 * 1024;

/// How full a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Filled {
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
    let mut copy = Copy { bytes: MAX_BYTES, files: 0 };
    let root =
        openat(CWD, from, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    make_folder(to)?;
    for name in names {
        let parts: Vec<&OsStr> = Path::new(name)
            .components()
            .map(|part| if let Component::Normal(part) = part { Ok(part) } else { Err(odd(name)) })
            .collect::<Result<_, _>>()?;
        copy.named(&root, &parts, to)?;
    }
    Ok(copy.files)
}

fn odd(name: &str) -> io::Error {
    io::Error::other(format!("{name:?} is no path within a home"))
}

/// A copy under way.
struct Copy {
    /// Bytes that may still come.
    bytes: u64,
    files: usize,
}

impl Copy {
    fn named(&mut self, folder: &OwnedFd, parts: &[&OsStr], to: &Path) -> io::Result<()> {
        let Some((first, rest)) = parts.split_first() else { return Ok(()) };
        if rest.is_empty() {
            return self.entry(folder, first, to, 0);
        }
        match open(folder, first)? {
            Some((FileType::Directory, next)) => {
                let to = to.join(first);
                make_folder(&to)?;
                self.named(&next, rest, &to)
            }
            _ => Ok(()),
        }
    }

    fn entry(&mut self, folder: &OwnedFd, name: &OsStr, to: &Path, depth: usize) -> io::Result<()> {
        let to = to.join(name);
        match open(folder, name)? {
            Some((FileType::Directory, next)) if depth < MAX_DEPTH => {
                make_folder(&to)?;
                for entry in Dir::read_from(&next)? {
                    let entry = entry?;
                    let name = OsStr::from_bytes(entry.file_name().to_bytes());
                    if name != "." && name != ".." {
                        self.entry(&next, name, &to, depth + 1)?;
                    }
                }
                Ok(())
            }
            Some((FileType::RegularFile, file)) => self.file(file, &to),
            _ => Ok(()),
        }
    }

    fn file(&mut self, file: OwnedFd, to: &Path) -> io::Result<()> {
        let into = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            other => other,
        };
        let copied = io::copy(&mut File::from(file).take(self.bytes.saturating_add(1)), &mut into?)?;
        self.files += 1;
        match self.bytes.checked_sub(copied) {
            Some(left) if self.files <= MAX_FILES => self.bytes = left,
            _ => return Err(io::Error::other("the files of the session are too many or too large")),
        }
        Ok(())
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
pub(super) fn filled(folder: &Path, mark: &str, read: fn(&Value) -> Option<Filled>) -> Option<Filled> {
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
pub(super) fn is_unknown(reading: &Reading) -> bool {
    static UNKNOWN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?ix) \bno\ (?:previous\ )?(?:conversation|session|thread|rollout)s?\ found\b
              | \b(?:invalid|unknown)\ (?:session|conversation|thread)\b
              | (?:session|conversation|thread)\b[^.\n]{0,100}\b(?:not\ found|does\ not\ exist|is\ unknown|has\ expired)\b",
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
