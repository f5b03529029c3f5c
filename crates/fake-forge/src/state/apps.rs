//! GitHub Apps with their installation, tokens and permissions.

use std::collections::{BTreeMap, BTreeSet};

use super::{Access, FakeHook, FakeRefusal, FakeState, FakeToken};
use ralph_types::ids::{AccountKind, RepoId, Timestamp, UserId};

/// Lifetime of an installation token, in milliseconds.
const TOKEN_MS: i64 = 3_600_000;
/// Validity of a manifest's code, in milliseconds.
const MANIFEST_MS: i64 = 3_600_000;

/// Key of all Apps of the fake forge, for tests only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeAppKey {
    /// Key of new Apps.
    First,
    /// Key that replaces the first one.
    Second,
}

/// GitHub App with one installation, which includes all repositories except the excluded ones.
#[derive(Debug, Clone)]
pub struct FakeApp {
    /// Id of the App.
    pub id: i64,
    /// Name in addresses; the login of its bot is `slug[bot]`.
    pub slug: String,
    /// Account of the bot.
    pub bot: UserId,
    /// Granted permissions, such as `issues` to `write`.
    pub permissions: BTreeMap<String, String>,
    /// Webhook with its subscribed events.
    pub hook: FakeHook,
    /// Id of its installation.
    pub installation: i64,
    /// Repositories excluded from the installation.
    pub excluded: BTreeSet<RepoId>,
    /// Time of suspension; `None` if the App is not suspended.
    pub suspended_at: Option<Timestamp>,
    /// Whether the App is installed. An App from a manifest is initially not installed.
    pub installed: bool,
    /// Id and secret of the OAuth client; `None` unless the App was created from a manifest.
    pub client: Option<(String, String)>,
    /// Address to which a person is redirected after the installation; empty for none.
    pub setup_url: String,
}

/// App created from a manifest whose code has not been exchanged yet.
#[derive(Debug, Clone)]
pub struct FakeManifestCode {
    /// Id of the App.
    pub app: i64,
    /// Expiry of the code.
    pub expires_at: Timestamp,
}

/// Manifest of an App, limited to the fields that the fake forge reads.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct FakeManifest {
    pub name: String,
    pub url: String,
    pub redirect_url: String,
    #[serde(default)]
    pub hook_attributes: Option<FakeManifestHook>,
    #[serde(default)]
    pub callback_urls: Vec<String>,
    #[serde(default)]
    pub setup_url: String,
    #[serde(default)]
    pub default_permissions: BTreeMap<String, String>,
    #[serde(default)]
    pub default_events: Vec<String>,
}

/// Webhook of a manifest.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct FakeManifestHook {
    pub url: String,
}

/// Scope of an installation token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenScope {
    /// The App.
    pub app: i64,
    /// Repositories; `None` for all of the installation.
    pub repos: Option<BTreeSet<RepoId>>,
    /// Permissions, such as `issues` to `write`.
    pub permissions: BTreeMap<String, String>,
}

impl TokenScope {
    /// Whether the scope includes a permission at a level (`read`, `write`) or above. All tokens may read metadata.
    pub fn permits(&self, permission: &str, level: &str) -> bool {
        let held = self.permissions.get(permission).map(String::as_str);
        held == Some("write") || held == Some(level) || (permission, level) == ("metadata", "read")
    }
}

impl FakeState {
    /// Creates an App with its bot and installs it. A webhook without an address is inactive.
    pub fn add_app(
        &mut self,
        name: &str,
        permissions: &[(&str, &str)],
        events: &[&str],
        hook_url: &str,
        secret: &str,
    ) -> FakeApp {
        let slug = name.to_ascii_lowercase().replace(' ', "-");
        let bot = self.add_account(&format!("{slug}[bot]"), AccountKind::Bot, false).id;
        let hook = FakeHook {
            id: self.fresh_id(),
            url: hook_url.to_owned(),
            secret: secret.to_owned(),
            events: events.iter().map(|event| (*event).to_owned()).collect(),
            active: !hook_url.is_empty(),
            created_at: self.clock.now(),
        };
        let app = FakeApp {
            id: self.fresh_id(),
            slug,
            bot,
            permissions: permissions.iter().map(|(name, level)| ((*name).to_owned(), (*level).to_owned())).collect(),
            hook,
            installation: self.fresh_id(),
            excluded: BTreeSet::new(),
            suspended_at: None,
            installed: true,
            client: None,
            setup_url: String::new(),
        };
        self.apps.insert(app.id, app.clone());
        app
    }

    /// Creates an App from a manifest without installing it, and returns the code for requesting its secrets once.
    pub(crate) fn add_app_from(&mut self, manifest: &FakeManifest) -> Result<String, FakeRefusal> {
        let slug = manifest.name.to_ascii_lowercase().replace(' ', "-");
        if self.apps.values().any(|app| app.slug == slug) {
            return Err(FakeRefusal::Invalid("Name has already been taken".to_owned()));
        }
        let permissions: Vec<(&str, &str)> =
            manifest.default_permissions.iter().map(|(name, level)| (name.as_str(), level.as_str())).collect();
        let events: Vec<&str> = manifest.default_events.iter().map(String::as_str).collect();
        let hook = manifest.hook_attributes.as_ref().map_or("", |hook| hook.url.as_str());
        let secret = if hook.is_empty() { String::new() } else { self.fresh_secret() };
        let app = self.add_app(&manifest.name, &permissions, &events, hook, &secret);
        let login = self.add_login_app(app.bot, &manifest.name, manifest.callback_urls.clone());
        if let Some(app) = self.apps.get_mut(&app.id) {
            app.installed = false;
            app.client = Some((login.client_id, login.secret));
            app.setup_url.clone_from(&manifest.setup_url);
        }
        let code = self.fresh_secret();
        let expires_at = self.clock.now().plus_ms(MANIFEST_MS);
        self.manifest_codes.insert(code.clone(), FakeManifestCode { app: app.id, expires_at });
        Ok(code)
    }

    /// Exchanges a manifest's code for its App; each code works only once.
    pub(crate) fn take_manifest_code(&mut self, code: &str) -> Result<FakeApp, FakeRefusal> {
        let unknown = || FakeRefusal::NotFound("manifest code".to_owned());
        let found = self.manifest_codes.remove(code).ok_or_else(unknown)?;
        if found.expires_at <= self.clock.now() {
            return Err(unknown());
        }
        self.app(found.app).cloned()
    }

    /// Returns an App by id.
    pub fn app(&self, id: i64) -> Result<&FakeApp, FakeRefusal> {
        self.apps.get(&id).ok_or_else(|| FakeRefusal::NotFound(format!("App {id}")))
    }

    /// Returns the App of a bot account.
    pub fn app_of(&self, user: UserId) -> Option<&FakeApp> {
        self.apps.values().find(|app| app.bot == user)
    }

    /// Creates an installation token that is valid for an hour; `None` requests all of the installation's permissions.
    pub fn mint(
        &mut self,
        app: i64,
        repos: Option<BTreeSet<RepoId>>,
        permissions: Option<BTreeMap<String, String>>,
    ) -> Result<(String, Timestamp, TokenScope), FakeRefusal> {
        let app = self.app(app)?.clone();
        if !app.installed {
            return Err(FakeRefusal::NotFound(format!("installation {}", app.installation)));
        }
        if app.suspended_at.is_some() {
            return Err(FakeRefusal::Forbidden("This installation has been suspended".to_owned()));
        }
        let missing = |id: &RepoId| app.excluded.contains(id) || !self.repos.contains_key(id);
        if repos.iter().flatten().any(missing) {
            let text = "There is at least one repository that does not exist or is not accessible to the parent \
                        installation.";
            return Err(FakeRefusal::Invalid(text.to_owned()));
        }
        let installed = TokenScope { app: app.id, repos: None, permissions: app.permissions.clone() };
        if permissions.iter().flatten().any(|(name, level)| !installed.permits(name, level)) {
            let text = "The permissions requested are not granted to this installation.";
            return Err(FakeRefusal::Invalid(text.to_owned()));
        }
        let narrowed = TokenScope { app: app.id, repos, permissions: permissions.unwrap_or(app.permissions) };
        // Forty characters like on GitHub, but predictable.
        let token = format!("ghs_{:036x}", (self.fresh_id() as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060));
        let expires_at = self.clock.now().plus_ms(TOKEN_MS);
        self.tokens.insert(token.clone(), FakeToken { user: app.bot, scopes: None, expires_at: Some(expires_at) });
        self.narrowed.insert(token.clone(), narrowed.clone());
        if let Some((requests, _)) = self.new_token_refusals {
            self.refusals_left.insert(token.clone(), requests);
        }
        Ok((token, expires_at, narrowed))
    }

    /// Returns the status of the rejection if the next request is rejected because its token is not known everywhere yet;
    /// `None` if it is accepted.
    pub(crate) fn unknown_yet(&mut self, token: &str) -> Option<u16> {
        let (_, status) = self.new_token_refusals?;
        let left = self.refusals_left.get_mut(token).filter(|left| **left > 0)?;
        *left -= 1;
        Some(status)
    }

    /// Returns the permission of an App's bot in a repository.
    pub(super) fn installed_access(&self, repo: RepoId, user: UserId) -> Access {
        match self.app_of(user) {
            Some(app) if app.installed && app.suspended_at.is_none() && !app.excluded.contains(&repo) => {
                let writes = app.permissions.values().any(|level| level == "write");
                if writes { Access::Write } else { Access::Read }
            }
            _ => Access::None,
        }
    }
}
