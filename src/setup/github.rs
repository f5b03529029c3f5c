//! GitHub App from its manifest: the person's request, GitHub's response, and the files that are written.
//!
//! GitHub reveals the App's secrets only once. Its response is stored in a separate file until all other files are
//! written, so that a full disk, an existing file or a killed process loses nothing.

use std::path::{Path, PathBuf};

use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use super::files::{self, FileCreation};
use super::{OperatorFileLocation, SetupReport, StepState};
use crate::app;
use crate::clock::Clock;
use crate::config::forge_entry::{EntryAuth, ForgeEntry};
use crate::config::webhook_secrets::{random_secret, write_private};
use crate::config::{ForgeConfig, ForgeKind, github_api, login_clients};
use crate::domain::model::ids::ForgeName;
use crate::forge::github::manifest::{self, AppPlan, ConversionFailure, CreatedApp, is_login};
use crate::forge::http::RateSettings;

/// Name of the file that stores GitHub's response until it is used.
const KEPT_ANSWER: &str = "github-app-answer.json";

/// Request of a person for a GitHub App.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRequest {
    /// Name of the forge in the configuration.
    pub name: String,
    /// Web address of Enterprise Server or GHE.com; `None` for github.com.
    pub url: Option<String>,
    /// Address of the REST API; `None` for the default one.
    pub api_url: Option<String>,
    /// Organization that owns the App; `None` for the person's account.
    pub organization: Option<String>,
    /// Address at which GitHub reaches the service; `None` if the service polls.
    pub public_url: Option<String>,
    /// Backend to use in a new configuration.
    pub backend: String,
}

/// GitHub's response together with the request.
#[derive(Serialize, Deserialize)]
struct KeptAnswer {
    request: AppRequest,
    answer: String,
}

/// App that is ready to be created, whose form the person's browser posts.
#[derive(Debug, Clone)]
pub struct AppStart {
    /// Request.
    pub request: AppRequest,
    /// Description of the App to create.
    pub plan: AppPlan,
}

/// Created and configured App.
#[derive(Debug, Clone)]
pub struct CreatedForge {
    /// Name of the forge in the configuration.
    pub name: ForgeName,
    /// Address of the page for installing the App.
    pub installation_page: Url,
    /// Report of the steps.
    pub report: SetupReport,
}

/// Reason why the creation failed.
#[derive(Debug, thiserror::Error)]
pub enum SetupFailure {
    /// The step can be repeated; the message contains advice.
    #[error("{0:#}")]
    Failed(#[source] Failure),
    /// GitHub did not respond, so its code may still be valid; the message contains advice.
    #[error("{0:#}")]
    Unavailable(#[source] Failure),
    /// GitHub's response could not be stored and has to be shown to the person.
    #[error("GitHub's answer could not be written ({why}); it is shown here, once: store it as {file}, then try again")]
    Shown {
        /// Reason.
        why: String,
        /// Name of the file that should contain the response.
        file: String,
        /// Content of the file.
        answer: SecretString,
    },
}

impl From<ConversionFailure> for SetupFailure {
    fn from(failure: ConversionFailure) -> Self {
        match failure {
            ConversionFailure::Unavailable(_) => Self::Unavailable(Failure::of(failure)),
            ConversionFailure::Unknown | ConversionFailure::Refused(_) => Self::Failed(Failure::of(failure)),
        }
    }
}

/// Parses the address of a server or of the service: http or https, without credentials, query and fragment.
pub(super) fn address(what: &str, text: &str) -> Result<Url, Failure> {
    let url = Url::parse(text).map_err(|_| {
        Failure::new(format!("{what}: expected an address such as https://git.example.org, not `{text}`"))
    })?;
    let plain =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain {
        return Err(Failure::new(format!(
            "{what}: expected an address with https:// or http://, without user, password, `?` and `#`"
        )));
    }
    Ok(url)
}

/// Checks the name of a forge, which becomes part of file names and addresses.
pub(super) fn forge_name(name: &str) -> Result<(), Failure> {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if !plain || name.is_empty() || name.starts_with('-') || name.len() > 40 {
        return Err(Failure::new(format!(
            "the name `{name}` is invalid: use lower-case letters, digits and hyphens, at most 40"
        )));
    }
    Ok(())
}

impl AppRequest {
    fn web(&self) -> Result<Url, Failure> {
        address("address of GitHub", self.url.as_deref().unwrap_or("https://github.com"))
    }

    fn api(&self) -> Result<Url, Failure> {
        let configured = self.api_url.as_deref().map(|text| address("address of the API", text)).transpose()?;
        Ok(github_api(&self.web()?, configured.as_ref()))
    }

    fn public(&self) -> Result<Option<Url>, Failure> {
        self.public_url.as_deref().map(|text| address("public address", text)).transpose()
    }

    /// Returns the name of the file for the App's private key.
    fn key_file(&self) -> String {
        format!("{}-app-key.pem", self.name)
    }

    fn secret_file(&self) -> Option<String> {
        self.public_url.as_ref().map(|_| format!("{}-webhook-secret", self.name))
    }

    fn entry(&self, id: u64) -> ForgeEntry {
        ForgeEntry {
            name: self.name.clone(),
            kind: ForgeKind::GitHub,
            url: self.url.clone(),
            api_url: self.api_url.clone(),
            auth: EntryAuth::App { id, key: self.key_file() },
            webhook_secret_file: self.secret_file(),
            public_url: self.public_url.clone(),
            login_file: None,
            backend: self.backend.clone(),
        }
    }

    /// Returns the path of the file for the App's OAuth client; `None` if the dashboard has no address for the
    /// redirect after a login.
    fn login_file(&self, place: &OperatorFileLocation) -> Result<Option<PathBuf>, Failure> {
        let Some(public) = self.public()? else { return Ok(None) };
        if !matches!(public.path(), "" | "/") {
            return Ok(None);
        }
        let base =
            place.base().map_err(|problems| Failure::new("the configuration is not valid").caused_by(problems))?;
        Ok(Some(login_clients::path(&base.data_dir, &ForgeName::new(&self.name))))
    }

    /// Checks the request, and that all files can be written, before the person is sent to GitHub. `redirect` and
    /// `installed` are the addresses to which GitHub redirects the browser.
    ///
    /// # Errors
    /// A value is invalid, a file already exists, or the folder is not writable; the message contains advice.
    pub fn start(
        self,
        place: &OperatorFileLocation,
        redirect: Url,
        installed: Option<Url>,
    ) -> Result<AppStart, Failure> {
        forge_name(&self.name)?;
        if let Some(organization) = self.organization.as_deref().filter(|name| !is_login(name)) {
            return Err(Failure::new(format!("`{organization}` cannot be the name of an organization")));
        }
        let (web, public) = (self.web()?, self.public()?);
        self.api()?;
        if let Some(kept) = pending(place)? {
            let problem =
                Failure::new(format!("the App in {} already exists and is not configured yet", kept.display()));
            return Err(problem.with_hint("continue with it first"));
        }
        let mut wanted = vec![place.beside(&self.key_file())];
        wanted.extend(self.secret_file().map(|file| place.beside(&file)));
        wanted.extend(self.login_file(place)?);
        if let Some(taken) = wanted.iter().find(|path| path.exists()) {
            return Err(files::in_the_way(taken));
        }
        if let Some(text) = place.text()? {
            self.entry(0)
                .added_to(&text)
                .map_err(|why| Failure::new(place.file.display().to_string()).caused_by(why))?;
        }
        let kept = place.beside(KEPT_ANSWER);
        write_private(&kept, "").and_then(|()| std::fs::remove_file(&kept)).map_err(|error| {
            let problem = Failure::new(format!("cannot write into the folder {}", place.folder().display()));
            problem.caused_by(error).with_hint("check its permissions")
        })?;
        let plan = AppPlan {
            name: AppPlan::usual_name(self.organization.as_deref(), public.as_ref()),
            web,
            organization: self.organization.clone(),
            forge: self.name.clone(),
            public,
            redirect,
            installed,
        };
        Ok(AppStart { request: self, plan })
    }

    /// Exchanges GitHub's code for the App, and writes its files and the configuration.
    ///
    /// # Errors
    /// GitHub refuses the code or does not respond, or a file cannot be written; if a file cannot be written, the response is
    /// stored.
    pub async fn finish(self, place: &OperatorFileLocation, code: &str) -> Result<CreatedForge, SetupFailure> {
        let transport = manifest::transport().map_err(|error| SetupFailure::Failed(error.detail))?;
        let answer = manifest::convert(&transport, &self.api().map_err(SetupFailure::Failed)?, code).await?;
        let kept = KeptAnswer { request: self, answer: String::from_utf8_lossy(&answer).into_owned() };
        let text = serde_json::to_string(&kept).map_err(|error| SetupFailure::Failed(Failure::of(error)))?;
        let file = place.beside(KEPT_ANSWER);
        if let Err(error) = write_private(&file, &text) {
            let _ = std::fs::remove_file(&file);
            let (why, file) = (error.to_string(), file.display().to_string());
            return Err(SetupFailure::Shown { why, file, answer: SecretString::from(text) });
        }
        configure(place).map_err(SetupFailure::Failed)
    }
}

/// Returns the file with a response of GitHub that was not used completely; `None` if there is none.
///
/// # Errors
/// The folder cannot be read.
pub fn pending(place: &OperatorFileLocation) -> Result<Option<PathBuf>, Failure> {
    let file = place.beside(KEPT_ANSWER);
    let exists = file
        .try_exists()
        .map_err(|error| Failure::new(format!("cannot look for {}", file.display())).caused_by(error))?;
    Ok(exists.then_some(file))
}

/// Writes the files and the configuration of the App in the stored response, and removes the response. Can be
/// repeated.
///
/// # Errors
/// A file already exists or cannot be written. The message contains advice, and the response remains stored.
pub fn configure(place: &OperatorFileLocation) -> Result<CreatedForge, Failure> {
    let kept = place.beside(KEPT_ANSWER);
    let again = |why: Failure| {
        let problem = Failure::new("could not configure the App").caused_by(why);
        problem.with_hint(format!("GitHub's answer was saved in {}; try again", kept.display()))
    };
    let failed = |what: &str, path: &Path| Failure::new(format!("cannot {what} {}", path.display()));
    let text = std::fs::read_to_string(&kept).map_err(|error| failed("read", &kept).caused_by(error))?;
    let KeptAnswer { request, answer } = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("{} is damaged", kept.display())).caused_by(error))?;
    let created = CreatedApp::read(answer.as_bytes()).map_err(again)?;
    let mut report = SetupReport::default();
    let mut add = |path: &PathBuf, what: &str, text: &SecretString| -> Result<(), Failure> {
        let state = match files::create(path, text).map_err(again)? {
            FileCreation::Created => StepState::Done,
            FileCreation::Same => StepState::Unchanged,
        };
        report.add(state, format!("{what} is in {} (readable by its owner only)", path.display()));
        Ok(())
    };
    add(&place.beside(&request.key_file()), "the App's private key", &created.private_key)?;
    let mut has_own_secret = true;
    if let Some(file) = request.secret_file() {
        let path = place.beside(&file);
        match &created.webhook_secret {
            Some(secret) => add(&path, "the webhook secret", secret)?,
            None => {
                has_own_secret = false;
                if !path.exists() {
                    let secret = random_secret().map_err(|error| {
                        again(Failure::new("could not read random numbers from the system").caused_by(error))
                    })?;
                    add(&path, "a new webhook secret", &secret.into())?;
                }
            }
        }
    }
    if let Some(file) = request.login_file(place).map_err(again)? {
        if let Some(folder) = file.parent() {
            let made = crate::process::private::create_folder(folder);
            made.map_err(|error| again(failed("create", folder).caused_by(error)))?;
        }
        let client = format!("{}\n{}\n", created.client_id, created.client_secret.expose_secret());
        add(&file, "the App's client for logins", &client.into())?;
    }
    let entry = request.entry(created.id);
    let known = place.text().map_err(again)?;
    let is_written = known.is_some()
        && place.config().is_ok_and(|config| config.forges.iter().any(|forge| forge.name.as_str() == request.name));
    if is_written {
        report.add(StepState::Unchanged, format!("{} has the forge {}", place.file.display(), request.name));
    } else {
        let (text, what) = match &known {
            None => (entry.file(), "was created with"),
            Some(known) => (entry.added_to(known).map_err(again)?, "was extended by"),
        };
        files::write_config(&place.file, known.as_deref(), &text).map_err(again)?;
        report.add(StepState::Done, format!("{} {what} the forge {}", place.file.display(), request.name));
    }
    std::fs::remove_file(&kept).map_err(|error| failed("remove", &kept).caused_by(error))?;
    if !has_own_secret {
        let why = "GitHub's answer has no webhook secret; enter the one in that file in the App's settings";
        report.add(StepState::Note, why);
    }
    let web = request.web()?;
    Ok(CreatedForge { name: ForgeName::new(&request.name), installation_page: created.installation_page(&web), report })
}

/// Returns the names of the repositories on which an App is installed, or which a token can access.
///
/// # Errors
/// The forge cannot be queried.
pub async fn installed_on(forge: &ForgeConfig) -> Result<Vec<String>, Failure> {
    let adapter = app::connect(forge, RateSettings::default(), &Clock::System).map_err(Failure::of)?;
    let found = adapter.repositories().await;
    let found = found.map_err(Failure::of)?;
    Ok(found.into_iter().map(|found| found.repo.full_name()).collect())
}
