//! Accounts, repositories, permissions, branches and webhooks: what stands before any issue.

use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::auth::{Purpose, Scope};
use super::client::Call;
use super::{EVENTS, GitHub, understood, wire};
use crate::domain::model::ids::{RepoRef, Sha, User};
use crate::domain::trust::permit::TeamRef;
use crate::forge::contents::{Found, Whole};
use crate::forge::http::{error, json as read_json};
use crate::forge::{Branch, ForgeErrorKind, ForgeResult, Permission, Repository, TeamSight, TextFile};

/// Header in which Enterprise Server says its version.
const ENTERPRISE_VERSION: &str = "x-github-enterprise-version";

#[derive(Deserialize)]
struct AppAnswer {
    slug: String,
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
    suspended_at: Option<IgnoredAny>,
}

/// What an installation may do, and on whose account it is.
#[derive(Deserialize)]
struct InstallationFacts {
    account: Option<InstallationAccount>,
    permissions: InstallationPermissions,
}

#[derive(Deserialize)]
struct InstallationAccount {
    login: Option<String>,
}

#[derive(Deserialize)]
struct InstallationPermissions {
    members: Option<String>,
}

#[derive(Deserialize)]
struct RepositoryPage {
    repositories: Vec<wire::Repository>,
}

#[derive(Deserialize)]
struct PermissionAnswer {
    permission: Option<String>,
    role_name: Option<String>,
    user: Option<wire::User>,
}

#[derive(Deserialize)]
struct Membership {
    state: String,
}

#[derive(Deserialize)]
struct BranchAnswer {
    name: String,
    commit: BranchCommit,
    protected: Option<bool>,
}

#[derive(Deserialize)]
struct BranchCommit {
    sha: String,
}

#[derive(Deserialize)]
struct Hook {
    id: i64,
    config: Option<HookConfig>,
}

#[derive(Deserialize)]
struct HookConfig {
    url: Option<String>,
}

impl GitHub {
    /// Product and version for people.
    pub(super) async fn ask_product(&self) -> ForgeResult<String> {
        let path = if self.is_app() { "app" } else { "user" };
        let response =
            self.client.send(&Call::new(Scope::Own, Method::GET, &[path], "ask the server's version")).await?;
        let version = response.headers().get(ENTERPRISE_VERSION).and_then(|value| value.to_str().ok());
        Ok(version.map_or_else(|| "GitHub".to_owned(), |version| format!("GitHub Enterprise Server {version}")))
    }

    /// Our account: the token's, or the bot that GitHub made for the App.
    pub(super) async fn ask_own_account(&self) -> ForgeResult<User> {
        let what = "ask who we are";
        if !self.is_app() {
            let user: wire::User = self.client.read(&Call::new(Scope::Own, Method::GET, &["user"], what)).await?;
            return Ok(user.account());
        }
        let app: AppAnswer = self.client.read(&Call::new(Scope::Own, Method::GET, &["app"], what)).await?;
        // An App's own signature is good for its own affairs only; accounts are read by an installation.
        let scope = self.installations().await?.first().map_or(Scope::Nobody, |first| Scope::Installation(first.id));
        let login = format!("{}[bot]", app.slug);
        let user: wire::User = self.client.read(&Call::new(scope, Method::GET, &["users", &login], what)).await?;
        Ok(user.account())
    }

    /// Installations that are not suspended.
    async fn installations(&self) -> ForgeResult<Vec<Installation>> {
        let call = Call::new(Scope::Own, Method::GET, &["app", "installations"], "list the App's installations")
            .query(&[("per_page", "100")]);
        let all = self.client.pages(&call, |page: Vec<Installation>| page).await?;
        Ok(all.into_iter().filter(|one| one.suspended_at.is_none()).collect())
    }

    /// All repositories that our credential reaches.
    pub(super) async fn all_repositories(&self) -> ForgeResult<Vec<Repository>> {
        let what = "list the repositories";
        let per_page = [("per_page", "100")];
        let mut found = Vec::new();
        if self.is_app() {
            for installation in self.installations().await? {
                let scope = Scope::Installation(installation.id);
                let call = Call::new(scope, Method::GET, &["installation", "repositories"], what).query(&per_page);
                found.extend(self.client.pages(&call.background(), |page: RepositoryPage| page.repositories).await?);
            }
        } else {
            let call = Call::new(Scope::Own, Method::GET, &["user", "repos"], what).query(&per_page);
            found.extend(self.client.pages(&call.background(), |page: Vec<wire::Repository>| page).await?);
        }
        let mut all = Vec::new();
        for repository in found {
            all.push(self.with_emptiness(understood(what, repository.facts(&self.name))?).await?);
        }
        Ok(all)
    }

    /// One repository, if it is still the one that was meant.
    pub(super) async fn one_repository(&self, repo: &RepoRef) -> ForgeResult<Repository> {
        let what = format!("read repository {}", repo.full_name());
        let answer: wire::Repository = self.client.read(&Call::on(repo, Method::GET, &[], "read repository")).await?;
        let facts = understood(&what, answer.facts(&self.name))?;
        if facts.repo.id != repo.id {
            let detail =
                format!("the name belongs to another repository now (id {} instead of {})", facts.repo.id, repo.id);
            return Err(error(ForgeErrorKind::NotFound, &what, detail));
        }
        self.with_emptiness(facts).await
    }

    /// GitHub's size is rounded and late: a repository of size 0 is empty only if its default branch is missing.
    async fn with_emptiness(&self, mut facts: Repository) -> ForgeResult<Repository> {
        if facts.empty {
            facts.empty = self.one_branch(&facts.repo, &facts.default_branch).await?.is_none();
        }
        Ok(facts)
    }

    /// What an account may do. The answer counts only for the very account: a login may have changed hands.
    pub(super) async fn permission_of(&self, repo: &RepoRef, user: &User) -> ForgeResult<Permission> {
        let path = ["collaborators", &user.login, "permission"];
        let what = format!("ask what {} may do in", user.login);
        let answer: PermissionAnswer = match self.client.read(&Call::on(repo, Method::GET, &path, what)).await {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => return Ok(Permission::None),
            answer => answer?,
        };
        if answer.user.map(|answered| answered.account().id) != Some(user.id) {
            return Ok(Permission::None);
        }
        let named = |name: &Option<String>| match name.as_deref()? {
            "admin" => Some(Permission::Admin),
            "maintain" => Some(Permission::Maintain),
            "write" => Some(Permission::Write),
            "triage" => Some(Permission::Triage),
            "read" => Some(Permission::Read),
            "none" => Some(Permission::None),
            _ => None,
        };
        // A role that an organisation made up is known by the built-in permission that it comes to.
        Ok(named(&answer.role_name).or_else(|| named(&answer.permission)).unwrap_or(Permission::None))
    }

    /// Whether an account is a member of a team. GitHub answers for a login, which counts only while it is the very
    /// account's.
    pub(super) async fn member_of(&self, repo: &RepoRef, team: &TeamRef, user: &User) -> ForgeResult<bool> {
        let what = format!("ask whether {} is in the team {team}", user.login);
        let scope = Scope::Repository(repo, Purpose::Members);
        let path = ["orgs", &team.org, "teams", &team.name, "memberships", &user.login];
        let membership: Membership = match self.client.read(&Call::new(scope, Method::GET, &path, &what)).await {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => return Ok(false),
            answer => answer?,
        };
        if membership.state != "active" {
            return Ok(false);
        }
        let account: wire::User =
            self.client.read(&Call::new(scope, Method::GET, &["users", &user.login], &what)).await?;
        Ok(account.id == user.id.0)
    }

    /// Whether we can tell who is in a team. Of an App, its installation says it; to a personal token, GitHub answers for
    /// a team that it hides as for one that we are not in.
    pub(super) async fn team_sight(&self, repo: &RepoRef, team: &TeamRef) -> ForgeResult<TeamSight> {
        if !self.is_app() {
            let own = self.ask_own_account().await?;
            return match self.member_of(repo, team, &own).await {
                Ok(true) => Ok(TeamSight::Seen),
                Ok(false) => {
                    let why = format!(
                        "GitHub does not say whether {team} is hidden from the token, or {} is not in it",
                        own.login
                    );
                    Ok(TeamSight::Unsure { why })
                }
                Err(failure) if failure.kind == ForgeErrorKind::Denied => {
                    let fix = "give the token the organisation's permission Members: read (classic tokens: `read:org`)";
                    Ok(TeamSight::Hidden { why: failure.to_string(), fix: fix.to_owned() })
                }
                Err(failure) => Err(failure),
            };
        }
        let path = ["repos", &repo.owner, &repo.name, "installation"];
        let what = format!("ask what the App may do for {}", repo.full_name());
        let found: InstallationFacts = self.client.read(&Call::new(Scope::Own, Method::GET, &path, what)).await?;
        let account = found.account.and_then(|account| account.login).unwrap_or_default();
        if !account.eq_ignore_ascii_case(&team.org) {
            let why = format!(
                "the App's installation for {} belongs to `{account}` and sees no team of `{}`",
                repo.full_name(),
                team.org
            );
            return Ok(TeamSight::Hidden { why, fix: "name a team of the repository's own organisation".to_owned() });
        }
        if found.permissions.members.is_none_or(|access| !matches!(access.as_str(), "read" | "write")) {
            let why = format!("the App may not ask who is in teams of `{account}`");
            let fix = "give it Members: read (App settings, Permissions, Organization permissions), then accept that in the \
                       organisation's settings under Installed GitHub Apps";
            return Ok(TeamSight::Hidden { why, fix: fix.to_owned() });
        }
        Ok(TeamSight::Seen)
    }

    /// Files right in a folder of the default branch.
    pub(super) async fn files_in(&self, repo: &RepoRef, folder: &str) -> ForgeResult<Vec<TextFile>> {
        let what = format!("read the folder {folder} of");
        let at = |path: &str| {
            let segments: Vec<&str> = std::iter::once("contents").chain(path.split('/')).collect();
            Call::on(repo, Method::GET, &segments, &what).background()
        };
        let found: Found = match self.client.read(&at(folder)).await {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        let mut files = Vec::new();
        for path in found.files() {
            let whole: Whole = self.client.read(&at(&path)).await?;
            files.push(TextFile { text: understood(&what, whole.text())?, path });
        }
        Ok(files)
    }

    /// A branch. GitHub sends those who ask for a renamed branch to its new name; that is another branch to us.
    pub(super) async fn one_branch(&self, repo: &RepoRef, name: &str) -> ForgeResult<Option<Branch>> {
        let call = Call::on(repo, Method::GET, &["branches", name], format!("read branch `{name}` of"));
        let answer: BranchAnswer = match self.client.read(&call).await {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => return Ok(None),
            answer => answer?,
        };
        if answer.name != name {
            return Ok(None);
        }
        let sha = Sha::parse(&answer.commit.sha).ok_or_else(|| format!("`{}` is no commit", answer.commit.sha));
        Ok(Some(Branch { sha: understood("read a branch", sha)?, protected: answer.protected.unwrap_or(false) }))
    }

    /// Creates or updates our webhook of a repository; it is known by its address.
    pub(super) async fn hook(&self, repo: &RepoRef, url: &str, secret: &SecretString) -> ForgeResult<i64> {
        let list = Call::on(repo, Method::GET, &["hooks"], "list the webhooks of").query(&[("per_page", "100")]);
        let hooks = self.client.pages(&list, |page: Vec<Hook>| page).await?;
        let ours = |hook: &&Hook| hook.config.as_ref().and_then(|config| config.url.as_deref()) == Some(url);
        let config = json!({
            "url": url, "content_type": "json", "secret": secret.expose_secret(), "insecure_ssl": "0",
        });
        let call = match hooks.iter().find(ours) {
            Some(hook) => Call::on(repo, Method::PATCH, &["hooks", &hook.id.to_string()], "update the webhook of")
                .json(json!({ "active": true, "events": EVENTS, "config": config })),
            None => Call::on(repo, Method::POST, &["hooks"], "create a webhook of")
                .json(json!({ "name": "web", "active": true, "events": EVENTS, "config": config })),
        };
        let response = self.client.send(&call).await?;
        Ok(read_json::<Hook>("set up a webhook", &response)?.id)
    }
}
