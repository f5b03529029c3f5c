//! Authentication of viewers, and their rights.
//!
//! `guard` runs before every route: it authenticates the viewer, rejects changes from pages of other sites, and records
//! changes. `login` has the routes for login and logout, `cookies` the cookies.

mod cookies;
mod guard;
mod login;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use futures::StreamExt;
use secrecy::SecretString;
use url::Url;

use self::guard::RequestFacts;
use super::WebState;
use super::markup::session_ended_page;
use super::personal_token::TokenViewer;
use crate::domain::model::ids::{ForgeName, RepoId, RepoRef, Timestamp, User, UserId};
use crate::domain::trust::viewer::{
    FailedAttempts, RIGHT_KEPT_MS, RightFacts, STREAM_RIGHT_KEPT_MS, ViewRight, local_path,
};
use crate::engine::Engine;
use crate::forge::http::{ReqwestTransport, Timeouts, Transport, TransportError};
use crate::forge::login::LoginClient;
use crate::store::tokens::{self, TokenOwner};
use crate::store::web_sessions;

pub(super) use self::guard::guard;
pub(super) use self::login::{router, routes};

/// Maximum number of cached rights.
const MAX_RIGHTS: usize = 20_000;
/// Maximum wait for a forge's response about a right.
const RIGHT_WAIT: Duration = Duration::from_secs(10);
/// Maximum wait for a forge's response that only determines whether a page shows buttons.
const BUTTON_WAIT: Duration = Duration::from_secs(2);
/// Interval of the checks whether an open stream's right still exists.
const STREAM_LOOK: Duration = Duration::from_secs(60);
/// Maximum number of repositories whose rights are queried concurrently.
const ASKED_AT_ONCE: usize = 8;
/// Timeouts of the requests during a login, because a person waits for them.
const LOGIN_TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(5), idle: Duration::from_secs(10), total: Duration::from_secs(15) };

/// Person or program that sends a request.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// Account from a login through its forge; `None` for the token printed by `ralph-bot serve`.
    pub account: Option<(ForgeName, User)>,
    /// Whether the viewer is an operator. Operators see all repositories.
    pub operator: bool,
    /// Token that forms must send with each change, to prevent requests from other sites.
    pub csrf: String,
    /// Key of the session; `None` for a personal token.
    pub session: Option<SessionKey>,
    /// Personal token of the request; `None` if none was used.
    pub token: Option<Arc<TokenViewer>>,
    /// Client address of the request.
    pub from: Option<IpAddr>,
    /// Whether a query about a right failed because a forge was unavailable; shared by all clones.
    forge_unavailable: Arc<AtomicBool>,
}

impl Viewer {
    /// Returns the owner for personal tokens that the viewer creates.
    pub fn token_owner(&self) -> TokenOwner {
        TokenOwner { account: self.account.clone(), operator: self.operator }
    }

    /// Whether the viewer may see a forge's state: operators for all forges, other people for their forge.
    pub fn hears_of(&self, forge: &ForgeName) -> bool {
        self.operator || self.account.as_ref().is_some_and(|(own, _)| own == forge)
    }

    /// Returns the viewer for the token printed by `ralph-bot serve`, without a session.
    pub fn of_token() -> Self {
        Self {
            account: None,
            operator: true,
            csrf: String::new(),
            session: None,
            token: None,
            from: None,
            forge_unavailable: Arc::default(),
        }
    }
}

/// Formats the viewer for logs: the login is quoted, and control characters are escaped.
impl fmt::Display for Viewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.account {
            Some((forge, user)) => write!(f, "{forge}:{} {:?}", user.id, user.login),
            None => f.write_str("the operator's token"),
        }
    }
}

/// Right of a viewer to make a change in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeRight {
    /// The viewer may change it.
    Granted,
    /// The viewer may see it but not change it.
    Denied,
    /// The viewer must not learn that it exists.
    Unseen,
}

/// Digest of a session's cookie. It is the key of the stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKey(String);

/// Settings of [`WebAccess`].
#[derive(Debug, Clone)]
pub struct AccessSettings {
    /// Token for a dashboard without a login, reachable only from this machine; `None` with a login.
    pub token: Option<SecretString>,
    /// Base address of the dashboard for browsers, without a path.
    pub base: Url,
    /// Operators' accounts. Operators see all repositories.
    pub operators: Vec<(ForgeName, UserId)>,
    /// OAuth clients for logins, by forge.
    pub logins: HashMap<ForgeName, LoginClient>,
}

/// Rights of accounts in repositories, each with the time of the forge's response.
type KnownRights = HashMap<(ForgeName, UserId, RepoId), (RightFacts, Timestamp)>;

/// Sessions and rights of viewers.
pub struct WebAccess {
    settings: AccessSettings,
    transport: Arc<dyn Transport>,
    rights: Mutex<KnownRights>,
    failed: Mutex<FailedAttempts>,
}

impl WebAccess {
    /// Creates the state. The database stores the sessions.
    ///
    /// # Errors
    /// The system's TLS roots cannot be used.
    pub fn new(settings: AccessSettings) -> Result<Self, TransportError> {
        let transport = Arc::new(ReqwestTransport::new(LOGIN_TIMEOUTS)?);
        Ok(Self { settings, transport, rights: Mutex::default(), failed: Mutex::default() })
    }

    /// Whether the dashboard is reachable only from this machine, with the token printed by `ralph-bot serve`.
    pub fn is_local(&self) -> bool {
        self.settings.token.is_some()
    }

    /// Returns a viewer's right in a repository. With `fresh`, for changes, queries the forge; otherwise accepts a response
    /// from the last five minutes. If the forge cannot be queried, the viewer has no right, and the response is 503 instead
    /// of 403 or 404.
    pub async fn right(&self, engine: &Engine, viewer: &Viewer, repo: &RepoRef, fresh: bool) -> ViewRight {
        if fresh {
            self.right_to_change(engine, viewer, repo).await
        } else {
            self.right_to_view(engine, viewer, repo, RIGHT_KEPT_MS).await
        }
    }

    /// Returns a viewer's rights in several repositories, in the same order; see [`right`](Self::right).
    pub async fn rights(&self, engine: &Engine, viewer: &Viewer, repos: &[RepoRef]) -> Vec<ViewRight> {
        let asked: Vec<_> = repos.iter().map(|repo| self.right(engine, viewer, repo, false)).collect();
        futures::stream::iter(asked).buffered(ASKED_AT_ONCE).collect().await
    }

    /// Returns whether a viewer may change an object. Always queries the forge. `seen_from` is the lowest right that makes
    /// the object visible.
    pub async fn may_change(
        &self,
        engine: &Engine,
        viewer: &Viewer,
        repo: &RepoRef,
        seen_from: ViewRight,
    ) -> ChangeRight {
        if self.right(engine, viewer, repo, true).await >= ViewRight::Write {
            return ChangeRight::Granted;
        }
        match self.right(engine, viewer, repo, false).await >= seen_from {
            true => ChangeRight::Denied,
            false => ChangeRight::Unseen,
        }
    }

    /// Returns, for each repository in the same order, whether pages show buttons because the service would accept the
    /// viewer's command. A response from the last five minutes suffices, because a pressed button queries the forge again.
    /// If the forge cannot be queried, operators keep their buttons.
    pub async fn may_press(&self, engine: &Engine, viewer: &Viewer, repos: &[RepoRef]) -> Vec<bool> {
        if viewer.account.is_none() {
            return vec![viewer.operator; repos.len()];
        }
        let of = |repo: &RepoRef| (repo.forge.clone(), repo.id);
        let mut distinct: Vec<&RepoRef> = repos.iter().collect();
        distinct.sort_unstable_by_key(|repo| of(repo));
        distinct.dedup_by_key(|repo| of(repo));
        let asked: Vec<_> = distinct
            .into_iter()
            .map(async |repo| {
                let asked = self.facts(engine, viewer, repo, RIGHT_KEPT_MS);
                let facts = tokio::time::timeout(BUTTON_WAIT, asked).await.ok().flatten();
                (of(repo), facts.map_or(viewer.operator, |facts| facts.may_command))
            })
            .collect();
        let known: HashMap<_, bool> = futures::stream::iter(asked).buffer_unordered(ASKED_AT_ONCE).collect().await;
        repos.iter().map(|repo| known.get(&of(repo)).copied().unwrap_or(false)).collect()
    }

    async fn right_to_view(&self, engine: &Engine, viewer: &Viewer, repo: &RepoRef, kept_ms: i64) -> ViewRight {
        if viewer.operator {
            return ViewRight::Operate;
        }
        self.facts(engine, viewer, repo, kept_ms).await.map_or(ViewRight::None, RightFacts::to_view)
    }

    async fn right_to_change(&self, engine: &Engine, viewer: &Viewer, repo: &RepoRef) -> ViewRight {
        if viewer.account.is_none() {
            return if viewer.operator { ViewRight::Operate } else { ViewRight::None };
        }
        let right = self.facts(engine, viewer, repo, 0).await.map_or(ViewRight::None, RightFacts::to_change);
        // Operators see everything, and their right to change comes from the forge.
        if viewer.operator { right.max(ViewRight::Read) } else { right }
    }

    /// Returns the forge's response, at most `kept_ms` milliseconds old; `None` if the forge could not be queried.
    async fn facts(&self, engine: &Engine, viewer: &Viewer, repo: &RepoRef, kept_ms: i64) -> Option<RightFacts> {
        let Some((_, user)) = viewer.account.as_ref().filter(|(forge, _)| *forge == repo.forge) else {
            return Some(RightFacts::NOTHING);
        };
        let key = (repo.forge.clone(), user.id, repo.id);
        let now = engine.clock.now();
        let is_new = |at: Timestamp| at <= now && now.since(at) < kept_ms;
        if let Some((facts, _)) = lock(&self.rights).get(&key).filter(|(_, at)| is_new(*at)) {
            return Some(*facts);
        }
        let answer = match tokio::time::timeout(RIGHT_WAIT, engine.forges.right_now(repo, user)).await {
            Ok(Ok(facts)) => Ok(facts),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", RIGHT_WAIT.as_secs())),
        };
        match answer {
            Ok(facts) => {
                self.remember(key, facts, now);
                Some(facts)
            }
            Err(error) => {
                tracing::warn!(%error, %repo, "the right of a viewer is not known");
                viewer.forge_unavailable.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    fn remember(&self, key: (ForgeName, UserId, RepoId), facts: RightFacts, now: Timestamp) {
        let mut rights = lock(&self.rights);
        if rights.len() >= MAX_RIGHTS {
            rights.retain(|_, (_, at)| now.since(*at) < RIGHT_KEPT_MS);
        }
        if rights.len() >= MAX_RIGHTS {
            rights.clear();
        }
        rights.insert(key, (facts, now));
    }

    /// Whether a viewer's open stream may continue: the session or token is still valid, and the right is at least `least`.
    /// The check runs once per minute, so a right that the forge removed expires within five minutes. Returns `false` if the
    /// forge cannot be queried.
    pub async fn may_go_on(&self, engine: &Engine, viewer: &Viewer, repo: Option<&RepoRef>, least: ViewRight) -> bool {
        if let Some(SessionKey(id)) = viewer.session.clone() {
            let now = engine.clock.now();
            match engine.store.read(move |c| web_sessions::find(c, &id, now)).await {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
        if let Some(id) = viewer.token.as_ref().map(|token| token.stored.id) {
            let now = engine.clock.now();
            if !engine.store.read(move |c| tokens::is_valid(c, id, now)).await.unwrap_or(false) {
                return false;
            }
        }
        match repo {
            Some(repo) => self.stream_right(engine, viewer, repo).await >= least,
            None => true,
        }
    }

    /// Returns the right of an open stream's viewer in a repository. The check runs once per minute, so a right that the
    /// forge removed expires within five minutes.
    pub async fn stream_right(&self, engine: &Engine, viewer: &Viewer, repo: &RepoRef) -> ViewRight {
        self.right_to_view(engine, viewer, repo, STREAM_RIGHT_KEPT_MS).await
    }

    /// Waits until a viewer's open stream must end; see [`may_go_on`](Self::may_go_on).
    pub async fn revoked(&self, engine: &Engine, viewer: &Viewer, repo: Option<&RepoRef>, least: ViewRight) {
        loop {
            tokio::time::sleep(STREAM_LOOK).await;
            if !self.may_go_on(engine, viewer, repo, least).await {
                return;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Code under these locks changes maps only by single operations, so the state is valid even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Response to an unauthenticated request that needs a viewer.
#[derive(Debug)]
pub enum NotLoggedIn {
    /// For a page: redirect to the login, then back to this path.
    Page(String),
    /// For a form on the page with this path, including the typed text.
    Form { page: String, typed: String },
    /// For a part of the page with this path, requested by a script.
    Part(String),
    /// For a program.
    Program,
}

/// Returns the address of the login page, with the path to redirect to afterwards.
fn login_to(path: &str) -> String {
    let path = local_path(Some(path));
    format!("/login?{}", url::form_urlencoded::Serializer::new(String::new()).append_pair("next", path).finish())
}

impl IntoResponse for NotLoggedIn {
    fn into_response(self) -> Response {
        match self {
            Self::Page(path) => Redirect::to(&login_to(&path)).into_response(),
            Self::Form { page, typed } => session_ended_page(&login_to(&page), &typed),
            Self::Part(path) => {
                let login = HeaderValue::try_from(login_to(&path)).unwrap_or(HeaderValue::from_static("/login"));
                (StatusCode::UNAUTHORIZED, [("hx-redirect", login)], "log in again\n").into_response()
            }
            Self::Program => {
                let scheme = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
                let body = serde_json::json!({ "error": "not logged in; send `Authorization: Bearer TOKEN`" });
                (StatusCode::UNAUTHORIZED, scheme, axum::Json(body)).into_response()
            }
        }
    }
}

impl FromRequestParts<Arc<WebState>> for Viewer {
    type Rejection = NotLoggedIn;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<WebState>) -> Result<Self, Self::Rejection> {
        let facts = parts.extensions.get::<RequestFacts>();
        if let Some(viewer) = facts.and_then(|facts| facts.viewer.clone()) {
            return Ok(viewer);
        }
        let path = parts.uri.path();
        let asks_for_page = parts.method.is_safe() && !parts.headers.contains_key(header::AUTHORIZATION);
        Err(if parts.headers.contains_key("hx-request") {
            let shown = parts.headers.get("hx-current-url").and_then(|address| address.to_str().ok());
            let own = state.access.own_origin(&parts.headers);
            NotLoggedIn::Part(shown.and_then(|address| guard::own_path(address, &own)).unwrap_or_default())
        } else if path.starts_with("/api/") || !asks_for_page {
            NotLoggedIn::Program
        } else {
            NotLoggedIn::Page(parts.uri.path_and_query().map_or(path, |all| all.as_str()).to_owned())
        })
    }
}

/// Returns the client address of a connection; `None` if unknown.
pub(super) fn peer(request: &axum::extract::Request) -> Option<SocketAddr> {
    request.extensions().get::<crate::net::serve::PeerAddress>().map(|peer| peer.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::AccountKind;

    #[test]
    fn name_for_logs_has_no_control_characters() {
        let mut viewer = Viewer::of_token();
        assert_eq!(viewer.to_string(), "the operator's token");
        let login = "ann\r\n2026 INFO forged\u{1b}[31m\u{202e}\"".to_owned();
        viewer.account = Some((ForgeName::new("work"), User { id: UserId(7), login, kind: AccountKind::User }));
        let shown = viewer.to_string();
        assert!(shown.starts_with("work:7 \"ann\\r\\n2026 INFO forged\\u{1b}[31m\\u{202e}\\\""), "{shown}");
        assert!(!shown.chars().any(|c| c.is_control()), "{shown}");
    }
}
