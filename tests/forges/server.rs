//! A server that stories run on: its API for people, tokens, organizations and teams.

use std::time::Duration;

use axum::http::Method;
use data_encoding::BASE64;
use fake_forge::{Dialect, FakeForge, GiteaVersion};
use ralph_bot::clock::Clock;
use serde_json::{Value, json};

use crate::harness::parts::setting;
use crate::network::hook_host;
use crate::preflight;

/// Number of times that a request is sent at most, if it fails and may be repeated.
pub const ATTEMPTS: u32 = 4;
/// Pause after the first attempt; grows with each attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// Whether a request may be sent again without having another effect. A POST that was not sent is repeated as well.
fn is_repeatable(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::PUT | Method::DELETE)
}

/// Server of a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum On {
    FakeGitHub,
    FakeGitea,
    /// The fake as Gitea 1.22, for stories that depend on the version.
    OldGitea,
    RealGitea,
}

impl On {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::FakeGitHub => "fake GitHub",
            Self::FakeGitea => "fake Gitea",
            Self::OldGitea => "fake Gitea 1.22",
            Self::RealGitea => "real Gitea",
        }
    }
}

/// Permission of an account or a team in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Read,
    Write,
    Admin,
}

/// Scopes of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenScopes {
    All,
    /// Those that the bot's manual asks for.
    OfManual,
    /// Those that only read.
    ReadOnly,
}

/// Account with its own token.
#[derive(Debug, Clone)]
pub struct Account {
    pub login: String,
    pub token: String,
}

/// Team of an organization: name, and id on Gitea.
#[derive(Debug, Clone)]
pub struct Team {
    pub org: String,
    pub name: String,
    id: i64,
}

/// Status and body of an answer; `Null` without JSON.
#[derive(Debug, Clone)]
pub struct ServerAnswer {
    pub status: u16,
    pub body: Value,
}

/// A running server, with an administrator's token.
pub struct Server {
    pub on: On,
    /// Address without a trailing slash.
    pub url: String,
    client: reqwest::Client,
    admin: String,
    fake: Option<FakeForge>,
}

impl Server {
    /// Starts a fake server, or connects to the real one; `None` if none is configured, which is reported.
    ///
    /// # Panics
    ///
    /// If the real server cannot run stories, with the result of the preflight check, which runs once.
    pub async fn open(on: On) -> Option<Self> {
        let dialect = match on {
            On::FakeGitHub => Dialect::GitHub,
            On::FakeGitea | On::OldGitea => Dialect::Gitea,
            On::RealGitea => {
                let real = Self::real()?;
                preflight::once(&real).await;
                return Some(real);
            }
        };
        fake_forge::temporary_in_memory();
        let fake = FakeForge::start(dialect, Clock::System).await.expect("the forge starts");
        if on == On::OldGitea {
            fake.with(|state| state.gitea = GiteaVersion::V1_22);
        }
        let url = fake.url().as_str().trim_end_matches('/').to_owned();
        Some(Self { on, url, client: client(), admin: fake.administrator_token(), fake: Some(fake) })
    }

    fn real() -> Option<Self> {
        let (Some(url), Some(admin)) = (setting("RALPH_TEST_GITEA_URL"), setting("RALPH_TEST_GITEA_TOKEN")) else {
            // No registry has a Gitea to install.
            skipped_tests::skip_in_ci_as_well(
                "set RALPH_TEST_GITEA_URL and RALPH_TEST_GITEA_TOKEN to run this on a real Gitea or Forgejo",
            );
            return None;
        };
        let url = url.trim_end_matches('/').to_owned();
        Some(Self { on: On::RealGitea, url, client: client(), admin, fake: None })
    }

    /// Same server with another administrator's token.
    pub fn with_admin(&self, admin: &str) -> Self {
        Self { on: self.on, url: self.url.clone(), client: self.client.clone(), admin: admin.to_owned(), fake: None }
    }

    /// Name by which the server reaches receivers of webhooks on this machine; `None` if it runs on it.
    pub fn hook_host(&self) -> Option<String> {
        hook_host().filter(|_| self.on == On::RealGitea)
    }

    /// Whether it is reached by `http`, so that a proxy can be put in between.
    pub fn is_plain(&self) -> bool {
        self.url.starts_with("http://")
    }

    /// Sends a request as the administrator.
    pub async fn as_admin(&self, method: Method, path: &str, body: Value) -> ServerAnswer {
        self.call(&self.admin, method, path, body).await
    }

    /// The fake behind it; `None` for a real server.
    pub fn fake(&self) -> Option<&FakeForge> {
        self.fake.as_ref()
    }

    /// Whether it speaks GitHub's API.
    pub fn is_github(&self) -> bool {
        self.on == On::FakeGitHub
    }

    /// Value of `kind` in the bot's configuration.
    pub fn kind(&self) -> &'static str {
        if self.is_github() { "github" } else { "gitea" }
    }

    fn api(&self, path: &str) -> String {
        let root = if self.is_github() { "api/v3" } else { "api/v1" };
        // GraphQL is beside the versions.
        let root = if path == "/graphql" { "api" } else { root };
        format!("{}/{root}{path}", self.url)
    }

    /// Sends a request as the owner of a token; redirects are not followed.
    pub async fn call(&self, token: &str, method: Method, path: &str, body: Value) -> ServerAnswer {
        self.send(&format!("token {token}"), method, path, body).await
    }

    async fn send(&self, authorization: &str, method: Method, path: &str, body: Value) -> ServerAnswer {
        let mut attempt = 1;
        loop {
            let last = attempt == ATTEMPTS;
            match self.try_send(authorization, method.clone(), path, &body).await {
                Ok(answer) if last || answer.status < 500 || !is_repeatable(&method) => return answer,
                Err(failure) if last || !(is_repeatable(&method) || failure.is_connect()) => {
                    panic!("{method} {path} was not answered: {failure}")
                }
                _ => tokio::time::sleep(PAUSE * attempt).await,
            }
            attempt += 1;
        }
    }

    async fn try_send(
        &self,
        authorization: &str,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<ServerAnswer, reqwest::Error> {
        let mut request = self.client.request(method, self.api(path)).header("authorization", authorization);
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        let text = answer.text().await?;
        Ok(ServerAnswer { status, body: serde_json::from_str(&text).unwrap_or_else(|_| json!(text)) })
    }

    /// Sends a request that must succeed, and returns the body.
    pub async fn ok(&self, token: &str, method: Method, path: &str, body: Value) -> Value {
        let answer = self.call(token, method.clone(), path, body).await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {} {}", answer.status, answer.body);
        answer.body
    }

    /// Gets all pages of a list.
    pub async fn list(&self, token: &str, path: &str) -> Vec<Value> {
        let size = if self.is_github() { "per_page" } else { "limit" };
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut all: Vec<Value> = Vec::new();
        for page in 1.. {
            let path = format!("{path}{joint}{size}=50&page={page}");
            let found = self.ok(token, Method::GET, &path, Value::Null).await;
            let found = found.as_array().cloned().unwrap_or_default();
            // Gitea does not page some lists: the second page is the first again.
            let again = found.first().is_some_and(|first| all.contains(first));
            if found.is_empty() || again {
                break;
            }
            all.extend(found);
            if all.len() < 50 {
                break;
            }
        }
        all
    }

    /// Creates an account with a token. Scopes differ on Gitea only.
    pub async fn account(&self, login: &str, scopes: TokenScopes) -> Account {
        let login = login.to_owned();
        let email = format!("{login}@example.org");
        let token = if self.is_github() {
            let user = json!({ "login": login, "email": email });
            self.ok(&self.admin, Method::POST, "/admin/users", user).await;
            let scopes = json!({ "scopes": ["repo", "admin:org", "delete_repo"] });
            let path = format!("/admin/users/{login}/authorizations");
            self.ok(&self.admin, Method::POST, &path, scopes).await["token"].clone()
        } else {
            let password = format!("P-{}", uuid::Uuid::now_v7().simple());
            let user = json!({
                "username": login, "email": email, "password": password, "must_change_password": false,
            });
            self.ok(&self.admin, Method::POST, "/admin/users", user).await;
            let scopes = match scopes {
                TokenScopes::All => json!(["all"]),
                TokenScopes::OfManual => {
                    json!(["write:repository", "write:issue", "read:user", "read:organization"])
                }
                TokenScopes::ReadOnly => json!(["read:repository", "read:issue", "read:user", "read:organization"]),
            };
            let basic = format!("Basic {}", BASE64.encode(format!("{login}:{password}").as_bytes()));
            let token = json!({ "name": "story", "scopes": scopes });
            let answer = self.send(&basic, Method::POST, &format!("/users/{login}/tokens"), token).await;
            assert_eq!(answer.status, 201, "{}", answer.body);
            answer.body["sha1"].clone()
        };
        Account { login, token: token.as_str().expect("a token").to_owned() }
    }

    /// Creates an organization that an account owns.
    pub async fn organization(&self, owner: &Account, name: &str) {
        if self.is_github() {
            let org = json!({ "login": name, "admin": owner.login });
            self.ok(&self.admin, Method::POST, "/admin/organizations", org).await;
        } else {
            self.ok(&owner.token, Method::POST, "/orgs", json!({ "username": name, "visibility": "public" })).await;
        }
    }

    /// Creates an empty repository of an organization. It is private, as most are.
    pub async fn repository(&self, owner: &Account, org: &str, name: &str) {
        let new = json!({ "name": name, "private": true, "auto_init": false, "default_branch": "main" });
        self.ok(&owner.token, Method::POST, &format!("/orgs/{org}/repos"), new).await;
    }

    /// Creates an empty private repository of an account.
    pub async fn own_repository(&self, owner: &Account, name: &str) {
        let new = json!({ "name": name, "private": true, "auto_init": false, "default_branch": "main" });
        self.ok(&owner.token, Method::POST, "/user/repos", new).await;
    }

    /// Creates an ordinary team: on Gitea one whose permission comes from its units.
    pub async fn team(&self, owner: &Account, org: &str, name: &str, level: Level) -> Team {
        let word = if level == Level::Write { "write" } else { "read" };
        let new = if self.is_github() {
            json!({ "name": name, "permission": if level == Level::Write { "push" } else { "pull" } })
        } else {
            let units = json!({ "repo.code": word, "repo.issues": word, "repo.pulls": word });
            json!({ "name": name, "permission": word, "units_map": units, "includes_all_repositories": false })
        };
        let made = self.ok(&owner.token, Method::POST, &format!("/orgs/{org}/teams"), new).await;
        Team { org: org.to_owned(), name: name.to_owned(), id: made["id"].as_i64().expect("an id") }
    }

    /// Adds an account to a team.
    pub async fn join(&self, owner: &Account, team: &Team, login: &str) {
        let path = match self.is_github() {
            true => format!("/orgs/{}/teams/{}/memberships/{login}", team.org, team.name),
            false => format!("/teams/{}/members/{login}", team.id),
        };
        self.ok(&owner.token, Method::PUT, &path, json!({})).await;
    }

    /// Gives a team a repository of its organization.
    pub async fn team_repository(&self, owner: &Account, team: &Team, repo: &str, level: Level) {
        let path = match self.is_github() {
            true => format!("/orgs/{}/teams/{}/repos/{repo}", team.org, team.name),
            false => format!("/teams/{}/repos/{repo}", team.id),
        };
        let permission = if level == Level::Write { "push" } else { "pull" };
        self.ok(&owner.token, Method::PUT, &path, json!({ "permission": permission })).await;
    }

    /// Deletes an organization; its repositories are deleted before.
    pub async fn delete_organization(&self, owner: &Account, name: &str) -> ServerAnswer {
        self.call(&owner.token, Method::DELETE, &format!("/orgs/{name}"), Value::Null).await
    }

    /// Deletes an account and its repositories.
    pub async fn delete_account(&self, login: &str) -> ServerAnswer {
        let purge = if self.is_github() { "" } else { "?purge=true" };
        self.call(&self.admin, Method::DELETE, &format!("/admin/users/{login}{purge}"), Value::Null).await
    }
}

fn client() -> reqwest::Client {
    // Another test may have chosen the same provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    client.build().expect("a client")
}
