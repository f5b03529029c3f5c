//! The folders of one attempt.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::agent::AgentRun;

/// The folders of one attempt, under its scratch folder.
pub(super) struct Folders {
    pub(super) home: PathBuf,
    pub(super) temporary: PathBuf,
    /// The only one, with `home`, that an agent in a sandbox can write to.
    pub(super) report: PathBuf,
    pub(super) prompt: PathBuf,
}

impl Folders {
    /// Makes them, for their owner alone, and takes away what an earlier attempt left.
    pub(super) fn prepare(run: &AgentRun) -> io::Result<Self> {
        let folders = Self {
            home: run.scratch.join("home"),
            temporary: run.scratch.join("tmp"),
            report: run.scratch.join("report"),
            prompt: run.scratch.join("prompt.md"),
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&run.scratch)?;
        for folder in [&folders.home, &folders.temporary, &folders.report] {
            match fs::symlink_metadata(folder) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(folder)?,
                Ok(_) => fs::remove_file(folder)?,
                Err(_) => {}
            }
            builder.create(folder)?;
        }
        match fs::remove_file(&folders.prompt) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => fs::write(&folders.prompt, &run.prompt)?,
        }
        Ok(folders)
    }

    /// Writes these files into the home: path from there, and text. Each folder and file is its owner's alone.
    pub(super) fn write(&self, files: Vec<(&'static str, String)>) -> io::Result<()> {
        for (path, text) in files {
            let file = self.home.join(path);
            let folder = file.parent().unwrap_or(&self.home);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?.write_all(text.as_bytes())?;
        }
        Ok(())
    }
}
