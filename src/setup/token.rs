//! Setup of a forge that is accessed with a token of the bot's account. The token is checked, stored and configured.

use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};

use super::files::{self, FileCreation};
use super::github::{address, forge_name};
use super::{OperatorFileLocation, SetupReport, StepState};
use crate::app;
use crate::clock::Clock;
use crate::config::forge_entry::{EntryAuth, ForgeEntry};
use crate::config::webhook_secrets::random_secret;
use crate::config::{ForgeAuth, ForgeConfig, ForgeKind, ForgeUpdates};
use crate::domain::model::ids::ForgeName;
use crate::forge::http::RateSettings;
use crate::forge::{ForgeError, ForgeErrorKind};

/// Source of a token.
#[derive(Debug, Clone)]
pub enum TokenSource {
    /// Environment variable, with its value.
    Variable(String, SecretString),
    /// Existing file of the operator, with its content.
    File(String, SecretString),
    /// Token that a person entered. It is stored in a new file.
    Given(SecretString),
}

impl TokenSource {
    fn token(&self) -> &SecretString {
        match self {
            Self::Variable(_, token) | Self::File(_, token) | Self::Given(token) => token,
        }
    }
}

/// Request of a person for a forge with a token.
#[derive(Debug, Clone)]
pub struct BotTokenRequest {
    /// Name of the forge in the configuration.
    pub name: String,
    /// Address of the server.
    pub url: String,
    /// Token of the bot's account.
    pub token: TokenSource,
    /// Address at which the forge reaches the service; `None` if the service polls.
    pub public_url: Option<String>,
    /// Backend to use in a new configuration.
    pub backend: String,
}

impl BotTokenRequest {
    fn token_file(&self) -> String {
        format!("{}-token", self.name)
    }

    fn secret_file(&self) -> Option<String> {
        self.public_url.as_ref().map(|_| format!("{}-webhook-secret", self.name))
    }

    fn entry(&self) -> ForgeEntry {
        ForgeEntry {
            name: self.name.clone(),
            kind: ForgeKind::Gitea,
            url: Some(self.url.clone()),
            api_url: None,
            auth: match &self.token {
                TokenSource::Variable(name, _) => EntryAuth::TokenEnv(name.clone()),
                TokenSource::File(file, _) => EntryAuth::TokenFile(file.clone()),
                TokenSource::Given(_) => EntryAuth::TokenFile(self.token_file()),
            },
            webhook_secret_file: self.secret_file(),
            public_url: self.public_url.clone(),
            login_file: None,
            backend: self.backend.clone(),
        }
    }

    /// Queries the account of the token, then writes the token, a webhook secret and the configuration. An existing
    /// configuration with this forge is not changed.
    ///
    /// # Errors
    /// The forge refuses the token or does not respond, a file already exists, or a file cannot be written. The
    /// message contains advice.
    pub async fn configure(&self, place: &OperatorFileLocation) -> Result<SetupReport, Failure> {
        forge_name(&self.name)?;
        let url = address("address of the server", &self.url)?;
        if let Some(public) = &self.public_url {
            address("public address", public)?;
        }
        let token = self.token.token().expose_secret().trim();
        if token.is_empty() || token.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("the token is empty, or is more than one line".into());
        }
        let forge = ForgeConfig {
            name: ForgeName::new(&self.name),
            kind: ForgeKind::Gitea,
            url,
            api_url: None,
            auth: ForgeAuth::Token(SecretString::from(token)),
            updates: ForgeUpdates::default(),
            webhook_secrets: Vec::new(),
            repository_secrets: Vec::new(),
            own_id: None,
            login: None,
        };
        let mut report = SetupReport::default();
        report.add(StepState::Unchanged, whose_token(&forge).await?);
        let is_configured = crate::config::forge_entry::has_forge(&place.file, &place.env).unwrap_or(false)
            && place.config().is_ok_and(|config| config.forge(&forge.name).is_some_and(|known| known.url == forge.url));
        if is_configured {
            report.add(StepState::Unchanged, format!("{} has the forge {}", place.file.display(), self.name));
            return Ok(report);
        }
        let known = place.text()?;
        let entry = self.entry();
        let (text, what) = match &known {
            None => (entry.file(), "was created with"),
            Some(known) => {
                let extended = entry.added_to(known);
                let named = |why: Failure| Failure::new(place.file.display().to_string()).caused_by(why);
                (extended.map_err(named)?, "was extended by")
            }
        };
        let mut add = |name: String, what: &str, text: &SecretString| -> Result<(), Failure> {
            let path = place.beside(&name);
            let state = match files::create(&path, text)? {
                FileCreation::Created => StepState::Done,
                FileCreation::Same => StepState::Unchanged,
            };
            report.add(state, format!("{what} is in {} (readable by its owner only)", path.display()));
            Ok(())
        };
        if matches!(self.token, TokenSource::Given(_)) {
            add(self.token_file(), "the token", &format!("{token}\n").into())?;
        }
        // A secret that is there was made by an attempt that did not come to its end.
        if let Some(file) = self.secret_file().filter(|file| !place.beside(file).exists()) {
            let secret = random_secret()
                .map_err(|error| Failure::new("could not read random numbers from the system").caused_by(error))?;
            add(file, "a webhook secret", &secret.into())?;
        }
        files::write_config(&place.file, known.as_deref(), &text)?;
        report.add(StepState::Done, format!("{} {what} the forge {}", place.file.display(), self.name));
        Ok(report)
    }
}

/// Queries the account of the token, and returns a sentence about it.
async fn whose_token(forge: &ForgeConfig) -> Result<String, Failure> {
    let adapter = app::connect(forge, RateSettings::default(), &Clock::System).map_err(Failure::of)?;
    // A server that does not accept the token says so about everything.
    let explained = |error: ForgeError| match error.kind {
        ForgeErrorKind::Unauthorized => Failure::new(format!("{} does not accept the token", forge.url))
            .with_detail(error.detail)
            .with_hint("create one in the bot's account: Settings, Applications"),
        ForgeErrorKind::Denied => Failure::new("the token lacks a permission").caused_by(error).with_hint(
            "give it the scopes write:repository, write:issue and write:user (the login is created with it)",
        ),
        _ => Failure::new(format!("{} is not a reachable Gitea or Forgejo", forge.url))
            .caused_by(error)
            .with_hint("check the address"),
    };
    let info = adapter.server_info().await.map_err(explained)?;
    let own = adapter.own_account().await.map_err(explained)?;
    Ok(format!("the token belongs to {} (id {}) on {}", own.login, own.id, info.product))
}
