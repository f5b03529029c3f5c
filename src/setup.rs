//! Setup: from an empty machine to a configured forge and a first verified pull request.
//!
//! `github` creates a GitHub App from its manifest, and `token` uses the token of the bot's account on Gitea or
//! Forgejo. `complete` creates and tests everything that the service needs on the forge. `trial` runs a first loop
//! with a scripted agent. `server` offers all of this on the page `/setup`, `ralph-bot init` on the command line.
//! Nothing is overwritten, and each step can be repeated.

mod access;
mod complete;
mod delivery_routes;
mod files;
mod github;
mod pages;
mod server;
mod state;
mod token;
mod trial;

use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;

use crate::config::{Config, ConfigProblems, ConfigScope, Env, forge_entry};

pub(crate) use complete::login_client_name;
pub use complete::{CompleteError, CompleteOptions, DELIVERY_TIMEOUT, WebhookSetup, complete, create_webhooks};
pub use delivery_routes::DeliveryRoutes;
pub use github::{AppRequest, AppStart, CreatedForge, SetupFailure, configure, installed_on, pending};
pub use server::SetupServer;
pub use state::SetupMode;
pub use token::{BotTokenRequest, TokenSource};
pub use trial::{TrialOutcome, TrialRepository, clean_up, run as run_trial};

/// Location of the operator's configuration file, and the environment with which it is read.
#[derive(Debug, Clone)]
pub struct OperatorFileLocation {
    /// Path of the operator's file, which may not exist yet.
    pub file: PathBuf,
    /// Environment variables.
    pub env: Env,
}

impl OperatorFileLocation {
    /// Returns the folder of the operator's file, in which files with secrets are written too.
    pub fn folder(&self) -> &Path {
        self.file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Returns the path of a file beside the operator's file.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Returns the settings that need neither forge nor backend; the defaults if there is no file.
    ///
    /// # Errors
    /// The file is not valid.
    pub fn base(&self) -> Result<Config, ConfigProblems> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let text = forge_entry::with_backend(&text);
        Config::parse_for(ConfigScope::Store, &self.file, &text, &self.env)
    }

    /// Returns the complete configuration.
    ///
    /// # Errors
    /// The file is missing or not valid.
    pub fn config(&self) -> Result<Config, ConfigProblems> {
        Config::load(&self.file, &self.env)
    }

    /// Returns the text of the operator's file; `None` if there is no file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn text(&self) -> Result<Option<String>, Failure> {
        match std::fs::read_to_string(&self.file) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::new(format!("cannot read {}", self.file.display())).caused_by(error)),
        }
    }
}

/// Outcome of a setup step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// The step changed something.
    Done,
    /// Everything was already correct.
    Unchanged,
    /// The step failed; its text contains advice.
    Failed,
    /// The text is only a remark.
    Note,
}

/// Setup step in a report.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ReportedStep {
    /// State of the step.
    pub state: StepState,
    /// Text for people, one or more lines.
    pub text: String,
}

/// Report of a setup.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct SetupReport {
    /// Steps in the order in which they were performed.
    pub steps: Vec<ReportedStep>,
}

impl SetupReport {
    fn add(&mut self, state: StepState, text: impl Into<String>) {
        self.steps.push(ReportedStep { state, text: text.into() });
    }

    /// Whether no step failed.
    pub fn is_good(&self) -> bool {
        self.steps.iter().all(|step| step.state != StepState::Failed)
    }

    /// Whether a step changed something.
    pub fn has_changed(&self) -> bool {
        self.steps.iter().any(|step| step.state == StepState::Done)
    }

    /// Returns the report as text with one step per line, and with a sentence if nothing was changed.
    pub fn text(&self) -> String {
        let mark = |state| match state {
            StepState::Done => "done",
            StepState::Unchanged => "unchanged",
            StepState::Failed => "FAILED",
            StepState::Note => "note",
        };
        let mut text: String = self
            .steps
            .iter()
            .map(|step| format!("{:<10}{}\n", mark(step.state), step.text.replace('\n', "\n          ")))
            .collect();
        if self.is_good() && !self.has_changed() {
            text.push_str("Nothing was changed.\n");
        }
        text
    }
}
