//! Reads files in folders that agents write to. Such a file can be a link, or a pipe that blocks readers.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading. Does not follow a link in place of the file, and never blocks.
///
/// # Errors
/// The file cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Returns the first `limit` bytes of a regular file as text; invalid UTF-8 is replaced. `None` if there is no such
/// file.
pub fn read_text(path: &Path, limit: u64) -> Option<String> {
    let mut bytes = Vec::new();
    open(path).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    #[test]
    fn only_regular_files_are_read_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "a text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (done, waits) = mpsc::channel();
        let paths = ["file", "link", "pipe", ".", "none"].map(at);
        std::thread::spawn(move || done.send(paths.map(|path| read_text(&path, 4))));
        let read = waits.recv_timeout(Duration::from_secs(30)).expect("it waits for a pipe");
        assert_eq!(read, [Some("a te".to_owned()), None, None, None, None]);
    }
}
