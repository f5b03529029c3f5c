//! Question after a run whether detected setup commands are kept in the repository's file.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;

use crate::cli::{CliError, print};
use crate::config::repository::REPOSITORY_FILES;
use crate::domain::checks::dependencies::setup_line;
use crate::domain::loops::Loop;

/// Name of the file in the data folder which records that the question was asked.
const ASKED: &str = "asked-to-keep-setup";

/// Asks once on a terminal whether to add the setup commands that a loop detected to the repository's file.
///
/// # Errors
/// The answer cannot be read, or the file cannot be written.
pub(super) fn ask(ended: &Loop, repo: &Path, data: &Path) -> Result<(), CliError> {
    let Some((file, line)) = proposal(ended, repo).filter(|_| !data.join(ASKED).exists()) else { return Ok(()) };
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Ok(());
    }
    let question = format!("Add `{line}` to {}, so that it applies to everybody?", file.display());
    let agreed = dialoguer::Confirm::new().with_prompt(question).interact();
    let agreed =
        agreed.map_err(|error| CliError::failed(Failure::new("could not read the answer").caused_by(error)))?;
    // The question is repeated if this fails.
    let _ = std::fs::write(data.join(ASKED), "");
    if !agreed {
        return Ok(());
    }
    add(&file, &line).map_err(|error| {
        CliError::failed(Failure::new(format!("could not write {}", file.display())).caused_by(error))
    })?;
    print(&format!("{} was changed; commit it.\n", file.display())).map(drop)
}

/// Returns the file and the line to add; `None` if the loop used no detected setup commands.
fn proposal(ended: &Loop, repo: &Path) -> Option<(PathBuf, String)> {
    let commands = &ended.settings.policy.setup;
    if commands.is_empty() || !repo.join(".git").exists() {
        return None;
    }
    let files = || REPOSITORY_FILES.iter().map(|name| repo.join(name));
    let file = files().find(|file| file.exists()).unwrap_or_else(|| repo.join(".ralph.yml"));
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let states_setup = text.lines().any(|line| line.starts_with("setup:"));
    (!states_setup).then(|| (file, setup_line(commands)))
}

fn add(file: &Path, line: &str) -> std::io::Result<()> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{end}{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_line_is_appended_to_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(".ralph.yml");
        add(&file, "setup: [npm ci]").expect("added");
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "setup: [npm ci]\n");
        std::fs::write(&file, "checks: [npm test]").expect("written");
        add(&file, "setup: [npm ci]").expect("added");
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "checks: [npm test]\nsetup: [npm ci]\n");
    }
}
