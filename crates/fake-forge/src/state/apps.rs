//! GitHub Apps: their one installation, their tokens, and what those may do.

use std::collections::{BTreeMap, BTreeSet};

use super::{Access, Hook, Refusal, State, Token};
use ralph_types::ids::{AccountKind, RepoId, Timestamp, UserId};

/// How long an installation's token is good, in milliseconds.
const TOKEN_MS: i64 = 3_600_000;

/// A GitHub App, installed once, on all repositories but those excluded.
#[derive(Debug, Clone)]
pub struct App {
    /// Its id.
    pub id: i64,
    /// Name in addresses; its bot is `slug[bot]`.
    pub slug: String,
    /// The account that it acts as.
    pub bot: UserId,
    /// What it was granted: `issues` to `write`, and so on.
    pub permissions: BTreeMap<String, String>,
    /// Its webhook, with the events that it is subscribed to.
    pub hook: Hook,
    /// Id of its installation.
    pub installation: i64,
    /// Repositories that the installation does not have.
    pub excluded: BTreeSet<RepoId>,
    /// Since when its installation is suspended, if it is.
    pub suspended_at: Option<Timestamp>,
}

/// What a token of an installation is narrowed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Narrowed {
    /// The App.
    pub app: i64,
    /// Repositories; `None` for all of the installation.
    pub repos: Option<BTreeSet<RepoId>>,
    /// Permissions: `issues` to `write`, and so on.
    pub permissions: BTreeMap<String, String>,
}

impl Narrowed {
    /// Whether it includes a permission at least at that level (`read`, `write`). All tokens may read metadata.
    pub fn permits(&self, permission: &str, level: &str) -> bool {
        let held = self.permissions.get(permission).map(String::as_str);
        held == Some("write") || held == Some(level) || (permission, level) == ("metadata", "read")
    }
}

impl State {
    /// Makes an App with its bot and installs it. A webhook without an address delivers nothing.
    pub fn add_app(
        &mut self,
        name: &str,
        permissions: &[(&str, &str)],
        events: &[&str],
        hook_url: &str,
        secret: &str,
    ) -> App {
        let slug = name.to_ascii_lowercase().replace(' ', "-");
        let bot = self.add_account(&format!("{slug}[bot]"), AccountKind::Bot, false).id;
        let hook = Hook {
            id: self.fresh_id(),
            url: hook_url.to_owned(),
            secret: secret.to_owned(),
            events: events.iter().map(|event| (*event).to_owned()).collect(),
            active: !hook_url.is_empty(),
            created_at: self.clock.now(),
        };
        let app = App {
            id: self.fresh_id(),
            slug,
            bot,
            permissions: permissions.iter().map(|(name, level)| ((*name).to_owned(), (*level).to_owned())).collect(),
            hook,
            installation: self.fresh_id(),
            excluded: BTreeSet::new(),
            suspended_at: None,
        };
        self.apps.insert(app.id, app.clone());
        app
    }

    /// An App by id.
    pub fn app(&self, id: i64) -> Result<&App, Refusal> {
        self.apps.get(&id).ok_or_else(|| Refusal::NotFound(format!("App {id}")))
    }

    /// The App that an account is the bot of.
    pub fn app_of(&self, user: UserId) -> Option<&App> {
        self.apps.values().find(|app| app.bot == user)
    }

    /// Makes a token of an App's installation, good for an hour; `None` asks for all that the installation has.
    pub fn mint(
        &mut self,
        app: i64,
        repos: Option<BTreeSet<RepoId>>,
        permissions: Option<BTreeMap<String, String>>,
    ) -> Result<(String, Timestamp, Narrowed), Refusal> {
        let app = self.app(app)?.clone();
        if app.suspended_at.is_some() {
            return Err(Refusal::Forbidden("This installation has been suspended".to_owned()));
        }
        let missing = |id: &RepoId| app.excluded.contains(id) || !self.repos.contains_key(id);
        if repos.iter().flatten().any(missing) {
            let text = "There is at least one repository that does not exist or is not accessible to the parent \
                        installation.";
            return Err(Refusal::Invalid(text.to_owned()));
        }
        let installed = Narrowed { app: app.id, repos: None, permissions: app.permissions.clone() };
        if permissions.iter().flatten().any(|(name, level)| !installed.permits(name, level)) {
            let text = "The permissions requested are not granted to this installation.";
            return Err(Refusal::Invalid(text.to_owned()));
        }
        let narrowed = Narrowed { app: app.id, repos, permissions: permissions.unwrap_or(app.permissions) };
        // Forty characters as GitHub's; predictable, as befits a fake on loopback.
        let token = format!("ghs_{:036x}", (self.fresh_id() as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060));
        let expires_at = self.clock.now().plus_ms(TOKEN_MS);
        self.tokens.insert(token.clone(), Token { user: app.bot, expires_at: Some(expires_at) });
        self.narrowed.insert(token.clone(), narrowed.clone());
        Ok((token, expires_at, narrowed))
    }

    /// What an App's bot may do in a repository by its installation.
    pub(super) fn installed_access(&self, repo: RepoId, user: UserId) -> Access {
        match self.app_of(user) {
            Some(app) if app.suspended_at.is_none() && !app.excluded.contains(&repo) => {
                let writes = app.permissions.values().any(|level| level == "write");
                if writes { Access::Write } else { Access::Read }
            }
            _ => Access::None,
        }
    }
}
