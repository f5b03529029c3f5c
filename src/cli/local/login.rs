//! Logins of subscriptions for `ralph-bot local`: finds the user's login for a preset and, with the user's consent, has runs use it.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;

use super::folder::state_folder;
use crate::agent::presets;
use crate::cli::{CliError, print};
use crate::config::Env;

/// Login that was found for a preset.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundLogin {
    /// Environment variable, which is passed on.
    Variable(&'static str),
    /// File.
    File(PathBuf),
    /// No login; the sentence is the instruction for getting one.
    None(&'static str),
}

/// Finds the user's login for a preset; `None` if there is no such preset.
pub fn found(name: &str, env: &Env) -> Option<FoundLogin> {
    let program = presets::program(name)?;
    let is_set = |variable: &&&str| env.get(variable).is_some_and(|value| !value.is_empty());
    if let Some(variable) = program.login_variables.iter().find(is_set) {
        return Some(FoundLogin::Variable(variable));
    }
    let file = program.login_file.and_then(|file| Some(Path::new(env.get("HOME")?).join(file)));
    Some(match file.filter(|file| file.is_file()) {
        Some(file) => FoundLogin::File(file),
        None => FoundLogin::None(program.login_advice),
    })
}

/// Returns the question for the consent to use a login file.
pub fn question(name: &str, file: &Path) -> String {
    format!(
        "Give runs of {name} a copy of {}, which they can read, and write back tokens that {name} refreshes?",
        file.display()
    )
}

/// Returns the login file of a preset for whose use the user gave the consent.
pub(super) fn consented(name: &str, env: &Env) -> Option<PathBuf> {
    let path = std::fs::read_to_string(consent(name, env)?).ok()?;
    Some(PathBuf::from(path.trim())).filter(|file| file.is_file())
}

fn consent(name: &str, env: &Env) -> Option<PathBuf> {
    Some(state_folder(env)?.join("logins").join(name))
}

/// Has runs use the user's login for a preset from now on, after asking.
///
/// # Errors
/// There is no such preset or no login, the user did not consent, or the consent cannot be stored.
pub(super) fn take_over(name: &str, yes: bool, env: &Env) -> Result<(), CliError> {
    let names = presets::names().join(", ");
    let found = found(name, env)
        .ok_or_else(|| CliError::usage(format!("there is no preset `{name}`; choose one of {names}")))?;
    let file = match found {
        FoundLogin::Variable(variable) => {
            return print(&format!("{variable} is set, and `ralph-bot local --backend {name}` passes it on.\n"))
                .map(drop);
        }
        FoundLogin::None(advice) => return Err(CliError::usage(format!("no login for {name} was found; {advice}"))),
        FoundLogin::File(file) => file,
    };
    if !yes && !std::io::stdin().is_terminal() {
        return Err(CliError::usage("standard input is not a terminal; add --yes to consent"));
    }
    let agreed = yes
        || dialoguer::Confirm::new()
            .with_prompt(question(name, &file))
            .interact()
            .map_err(|error| CliError::failed(Failure::new("could not read the answer").caused_by(error)))?;
    if !agreed {
        return print("Nothing was changed.\n").map(drop);
    }
    let consent = consent(name, env).ok_or_else(|| CliError::failed("there is no home folder"))?;
    let stored = consent.parent().map_or(Ok(()), std::fs::create_dir_all);
    stored.and_then(|()| std::fs::write(&consent, file.display().to_string())).map_err(|error| {
        CliError::failed(Failure::new(format!("could not write {}", consent.display())).caused_by(error))
    })?;
    print(&format!(
        "`ralph-bot local --backend {name}` uses {} from now on; delete {} to undo this. In a configuration file, write\n\
         backends: {{ {name}: {{ login_file: {} }} }}\n",
        file.display(),
        consent.display(),
        file.display()
    ))
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_is_used_only_after_consent() {
        let home = tempfile::tempdir().expect("a folder");
        let text = home.path().display().to_string();
        let env = Env::of([("HOME", text.as_str())]);
        assert!(matches!(found("codex", &env), Some(FoundLogin::None(advice)) if advice.contains("codex login")));
        let error = take_over("codex", true, &env).expect_err("no login").to_string();
        assert!(error.contains("run `codex login`"), "{error}");
        let file = home.path().join(".codex/auth.json");
        std::fs::create_dir(home.path().join(".codex")).expect("made");
        std::fs::write(&file, "{}").expect("written");
        assert_eq!(found("codex", &env), Some(FoundLogin::File(file.clone())));
        assert_eq!(consented("codex", &env), None, "nobody was asked");
        take_over("codex", true, &env).expect("taken over");
        assert_eq!(consented("codex", &env), Some(file));
        let with_key = Env::of([("HOME", text.as_str()), ("CODEX_API_KEY", "k")]);
        assert_eq!(found("codex", &with_key), Some(FoundLogin::Variable("CODEX_API_KEY")));
        assert!(found("none", &env).is_none() && take_over("none", true, &env).is_err());
    }
}
