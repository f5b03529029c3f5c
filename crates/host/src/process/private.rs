//! Files and folders that only the service's user can read: databases, prompts, logs, tokens.
//!
//! Permissions are set on creation; existing files and folders keep their permissions.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Mode of folders.
const FOLDER: u32 = 0o700;
/// Mode of files.
const FILE: u32 = 0o600;

/// Creates a folder and its missing parents with mode 0700.
///
/// # Errors
/// A folder cannot be created.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER).create(folder)
}

/// Creates an empty file with mode 0600 unless the file exists.
///
/// # Errors
/// The file cannot be created or opened for writing.
pub fn create_file(file: &Path) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).mode(FILE).open(file).map(drop)
}

/// Writes a file; creates it with mode 0600 or replaces its content.
///
/// # Errors
/// The file cannot be written.
pub fn write(file: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let mut opened = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE).open(file)?;
    opened.write_all(content.as_ref())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn created_files_and_folders_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let inner = folder.path().join("a/b");
        create_folder(&inner).unwrap();
        create_folder(&inner).unwrap();
        assert_eq!((mode(&inner), mode(&folder.path().join("a"))), (0o700, 0o700));
        let (empty, written) = (inner.join("empty"), inner.join("written"));
        create_file(&empty).unwrap();
        write(&written, "longer").unwrap();
        write(&written, "text").unwrap();
        create_file(&written).unwrap();
        assert_eq!((mode(&empty), mode(&written)), (0o600, 0o600));
        assert_eq!(fs::read_to_string(&written).unwrap(), "text");
    }
}
