//! Operations on accounts, repositories, permissions, teams and webhooks.

use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::auth::{Purpose, Scope};
use super::client::ApiCall;
use super::{EVENTS, GitHub, parsed, wire};
use crate::domain::model::ids::{RepoRef, User};
use crate::domain::trust::permit::TeamRef;
use crate::forge::contents::{FileContents, FolderContents};
use crate::forge::http::{error, json as read_json};
use crate::forge::{
    ForgeErrorKind, ForgeResult, PathFilter, Permission, Repository, TeamVisibility, TextFile, hook_problems,
    refused_scope,
};

/// Header with the version of Enterprise Server.
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

/// Account and permissions of an installation.
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
    repositories: Vec<wire::GitHubRepository>,
}

#[derive(Deserialize)]
struct PermissionAnswer {
    permission: Option<String>,
    role_name: Option<String>,
    user: Option<PermissionUser>,
}

#[derive(Deserialize)]
struct PermissionUser {
    #[serde(flatten)]
    account: wire::GitHubUser,
    permissions: Option<RoleRights>,
}

/// Rights of a repository role, independent of its name.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RoleRights {
    admin: bool,
    maintain: bool,
    push: bool,
    triage: bool,
    pull: bool,
}

impl RoleRights {
    fn level(&self) -> Permission {
        let all = [
            (self.admin, Permission::Admin),
            (self.maintain, Permission::Maintain),
            (self.push, Permission::Write),
            (self.triage, Permission::Triage),
            (self.pull, Permission::Read),
        ];
        all.into_iter().find(|(has, _)| *has).map_or(Permission::None, |(_, level)| level)
    }
}

#[derive(Deserialize)]
struct Membership {
    state: String,
}

#[derive(Deserialize)]
struct BranchAnswer {
    name: String,
    protected: Option<bool>,
}

#[derive(Deserialize)]
struct GitHubHook {
    id: i64,
    config: Option<HookConfig>,
    active: Option<bool>,
    events: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct HookConfig {
    url: Option<String>,
    content_type: Option<String>,
}

impl GitHub {
    /// Returns product and version, such as "GitHub Enterprise Server 3.14.2".
    pub(super) async fn ask_product(&self) -> ForgeResult<String> {
        let path = if self.is_app() { "app" } else { "user" };
        let response =
            self.client.send(&ApiCall::new(Scope::Own, Method::GET, &[path], "ask the server's version")).await?;
        let version = response.headers().get(ENTERPRISE_VERSION).and_then(|value| value.to_str().ok());
        Ok(version.map_or_else(|| "GitHub".to_owned(), |version| format!("GitHub Enterprise Server {version}")))
    }

    /// Returns the account of the service: the token's account, or the App's bot.
    pub(super) async fn ask_own_account(&self) -> ForgeResult<User> {
        let what = "read the service's own account";
        if !self.is_app() {
            let user: wire::GitHubUser =
                self.client.read(&ApiCall::new(Scope::Own, Method::GET, &["user"], what)).await?;
            return Ok(user.account());
        }
        let app: AppAnswer = self.client.read(&ApiCall::new(Scope::Own, Method::GET, &["app"], what)).await?;
        // An App's signature cannot read accounts; an installation's token can.
        let scope = self.installations().await?.first().map_or(Scope::Anonymous, |first| Scope::Installation(first.id));
        let login = format!("{}[bot]", app.slug);
        let user: wire::GitHubUser =
            self.client.read(&ApiCall::new(scope, Method::GET, &["users", &login], what)).await?;
        Ok(user.account())
    }

    /// Returns the installations that are not suspended.
    async fn installations(&self) -> ForgeResult<Vec<Installation>> {
        let call = ApiCall::new(Scope::Own, Method::GET, &["app", "installations"], "list the App's installations")
            .query(&[("per_page", "100")]);
        let all = self.client.pages(&call, |page: Vec<Installation>| page).await?;
        Ok(all.into_iter().filter(|one| one.suspended_at.is_none()).collect())
    }

    /// Returns all repositories that the credential can access.
    pub(super) async fn all_repositories(&self) -> ForgeResult<Vec<Repository>> {
        let what = "list the repositories";
        let per_page = [("per_page", "100")];
        let mut found = Vec::new();
        if self.is_app() {
            for installation in self.installations().await? {
                let scope = Scope::Installation(installation.id);
                let call = ApiCall::new(scope, Method::GET, &["installation", "repositories"], what).query(&per_page);
                found.extend(self.client.pages(&call.background(), |page: RepositoryPage| page.repositories).await?);
            }
        } else {
            let call = ApiCall::new(Scope::Own, Method::GET, &["user", "repos"], what).query(&per_page);
            found.extend(self.client.pages(&call.background(), |page: Vec<wire::GitHubRepository>| page).await?);
        }
        let mut all = Vec::new();
        for repository in found {
            all.push(self.with_emptiness(parsed(what, repository.facts(&self.name))?).await?);
        }
        Ok(all)
    }

    /// Returns a repository. If its name now belongs to another repository, it is looked up by its id.
    pub(super) async fn one_repository(&self, repo: &RepoRef) -> ForgeResult<Repository> {
        let what = format!("read repository {}", repo.full_name());
        let answer: wire::GitHubRepository =
            self.client.read(&ApiCall::on(repo, Method::GET, &[], "read repository")).await?;
        let facts = parsed(&what, answer.facts(&self.name))?;
        if facts.repo.id == repo.id {
            return self.with_emptiness(facts).await;
        }
        let path = ["repositories", &repo.id.to_string()];
        let call = ApiCall::new(Scope::Repository(repo, Purpose::Api), Method::GET, &path, what.clone());
        let by_id: ForgeResult<wire::GitHubRepository> = self.client.read(&call).await;
        match by_id.map(|answer| answer.facts(&self.name)) {
            Ok(Ok(found)) if found.repo.id == repo.id => self.with_emptiness(found).await,
            Err(failure) if failure.kind != ForgeErrorKind::NotFound => Err(failure),
            _ => {
                self.client.forget_installation(repo);
                let detail =
                    format!("the name belongs to another repository now (id {} instead of {})", facts.repo.id, repo.id);
                Err(error(ForgeErrorKind::NotFound, &what, detail))
            }
        }
    }

    /// Determines whether a repository of size 0 is empty. GitHub's size is rounded and delayed, so only a missing
    /// default branch proves it.
    async fn with_emptiness(&self, mut facts: Repository) -> ForgeResult<Repository> {
        if facts.empty {
            facts.empty = !self.has_branch(&facts.repo, &facts.default_branch).await?;
        }
        Ok(facts)
    }

    /// Returns the permission of an account; `None` if its login now belongs to another account.
    pub(super) async fn permission_of(&self, repo: &RepoRef, user: &User) -> ForgeResult<Permission> {
        let path = ["collaborators", &user.login, "permission"];
        let what = format!("read the permission of {} in", user.login);
        let answer: PermissionAnswer = match self.client.read(&ApiCall::on(repo, Method::GET, &path, what)).await {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => {
                // A repository that the bot cannot read says nothing about the account.
                self.client.send(&ApiCall::on(repo, Method::GET, &[], "read repository")).await?;
                return Ok(Permission::None);
            }
            answer => answer?,
        };
        let Some(answered) = answer.user else { return Ok(Permission::None) };
        let rights = answered.permissions;
        if answered.account.account().id != user.id {
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
        // A custom role counts by its permissions; without them, by the built-in permission that it is reduced to.
        let custom = || rights.map(|rights| rights.level());
        Ok(named(&answer.role_name).or_else(custom).or_else(|| named(&answer.permission)).unwrap_or(Permission::None))
    }

    /// Whether an account is a member of a team; `false` if its login now belongs to another account.
    pub(super) async fn member_of(&self, repo: &RepoRef, team: &TeamRef, user: &User) -> ForgeResult<bool> {
        let what = format!("check whether {} is in the team {team}", user.login);
        let scope = Scope::Repository(repo, Purpose::Members);
        let path = ["orgs", &team.org, "teams", &team.name, "memberships", &user.login];
        let membership: Membership = match self.client.read(&ApiCall::new(scope, Method::GET, &path, &what)).await {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => return Ok(false),
            answer => answer?,
        };
        if membership.state != "active" {
            return Ok(false);
        }
        let account: wire::GitHubUser =
            self.client.read(&ApiCall::new(scope, Method::GET, &["users", &user.login], &what)).await?;
        Ok(account.id == user.id.0)
    }

    /// Returns whether the members of a team are visible. For an App, its installation determines this. For a personal
    /// token, GitHub gives the same response for a hidden team and for a team that the account is not in.
    pub(super) async fn visibility_of_team(&self, repo: &RepoRef, team: &TeamRef) -> ForgeResult<TeamVisibility> {
        if !self.is_app() {
            let own = self.ask_own_account().await?;
            return match self.member_of(repo, team, &own).await {
                Ok(true) => Ok(TeamVisibility::Visible),
                Ok(false) => {
                    let why = format!(
                        "GitHub does not report whether {team} is hidden from the token or {} is not a member",
                        own.login
                    );
                    Ok(TeamVisibility::Unknown { why })
                }
                Err(failure) if failure.kind == ForgeErrorKind::Denied => {
                    let fix = "give the token the organization's permission Members: read (classic tokens: `read:org`)";
                    Ok(TeamVisibility::Hidden { why: failure.to_string(), fix: fix.to_owned() })
                }
                Err(failure) => Err(failure),
            };
        }
        let path = ["repos", &repo.owner, &repo.name, "installation"];
        let what = format!("read the App's permissions for {}", repo.full_name());
        let found: InstallationFacts = self.client.read(&ApiCall::new(Scope::Own, Method::GET, &path, what)).await?;
        let account = found.account.and_then(|account| account.login).unwrap_or_default();
        if !account.eq_ignore_ascii_case(&team.org) {
            let why = format!(
                "the App's installation for {} belongs to `{account}` and cannot see teams of `{}`",
                repo.full_name(),
                team.org
            );
            return Ok(TeamVisibility::Hidden { why, fix: "use a team of the repository's organization".to_owned() });
        }
        if found.permissions.members.is_none_or(|access| !matches!(access.as_str(), "read" | "write")) {
            let why = format!("the App may not read the members of teams of `{account}`");
            let fix = "give it Members: read (App settings, Permissions, Organization permissions), then accept that in the \
                       organization's settings under Installed GitHub Apps";
            return Ok(TeamVisibility::Hidden { why, fix: fix.to_owned() });
        }
        Ok(TeamVisibility::Visible)
    }

    /// Returns the files directly in a folder of the default branch.
    pub(super) async fn files_in(
        &self,
        repo: &RepoRef,
        folder: &str,
        wanted: PathFilter,
    ) -> ForgeResult<Vec<TextFile>> {
        let what = format!("read the folder {folder} of");
        let contents = |path: &str| {
            let segments: Vec<&str> =
                std::iter::once("contents").chain(path.split('/').filter(|part| !part.is_empty())).collect();
            ApiCall::on(repo, Method::GET, &segments, &what).background()
        };
        let found: FolderContents = match self.client.read(&contents(folder)).await {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        let mut files = Vec::new();
        for path in found.files(wanted) {
            let file: FileContents = self.client.read(&contents(&path)).await?;
            files.push(TextFile { text: parsed(&what, file.text())?, path });
        }
        Ok(files)
    }

    /// Whether a branch exists. GitHub redirects from a renamed branch to its new name, which counts as another
    /// branch.
    pub(super) async fn has_branch(&self, repo: &RepoRef, name: &str) -> ForgeResult<bool> {
        let call = ApiCall::on(repo, Method::GET, &["branches", name], format!("read branch `{name}` of"));
        match self.client.read::<BranchAnswer>(&call).await {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => Ok(false),
            answer => Ok(answer?.name == name),
        }
    }

    /// Whether a branch exists and is protected.
    pub(super) async fn has_protected_branch(&self, repo: &RepoRef, name: &str) -> ForgeResult<bool> {
        let path: Vec<&str> = std::iter::once("branches").chain(name.split('/')).collect();
        let call = ApiCall::on(repo, Method::GET, &path, format!("read branch `{name}` of"));
        match self.client.read::<BranchAnswer>(&call).await {
            Err(failure) if failure.kind == ForgeErrorKind::NotFound => Ok(false),
            answer => Ok(answer?.protected.unwrap_or(false)),
        }
    }

    /// Returns the missing permissions of a personal token in a repository. The permissions of an App depend on its
    /// installation and are not checked here.
    pub(super) async fn scopes_refused(&self, repo: &RepoRef) -> ForgeResult<Vec<String>> {
        let mut refused = Vec::new();
        let asked: [(&str, &[&str]); 3] =
            [("open issues and comment", &["issues"]), ("open pull requests", &["pulls"]), ("push", &["git", "refs"])];
        for (what, path) in asked.into_iter().filter(|_| !self.is_app()) {
            let call = ApiCall::on(repo, Method::POST, path, format!("ask whether the token may {what} in"));
            let answer = self.client.send(&call.json(json!({})).read_only()).await;
            refused.extend(refused_scope(what, answer.map(drop))?);
        }
        Ok(refused)
    }

    /// Returns the problems of a repository's webhooks that send to an address.
    pub(super) async fn hooks_to(&self, repo: &RepoRef, url: &str) -> ForgeResult<Vec<String>> {
        let list = ApiCall::on(repo, Method::GET, &["hooks"], "list the webhooks of").query(&[("per_page", "100")]);
        let hooks = self.client.pages(&list, |page: Vec<GitHubHook>| page).await?;
        let facts = |hook: GitHubHook| {
            let config = hook.config.filter(|config| config.url.as_deref() == Some(url))?;
            let json = config.content_type.as_deref() == Some("json");
            Some((hook.active.unwrap_or(true), json, hook.events.unwrap_or_default()))
        };
        Ok(hook_problems(&hooks.into_iter().filter_map(facts).collect::<Vec<_>>(), EVENTS))
    }

    /// Creates the service's webhook for a repository, or updates the one with the same address. Returns its id.
    pub(super) async fn hook(&self, repo: &RepoRef, url: &str, secret: &SecretString) -> ForgeResult<i64> {
        let list = ApiCall::on(repo, Method::GET, &["hooks"], "list the webhooks of").query(&[("per_page", "100")]);
        let hooks = self.client.pages(&list, |page: Vec<GitHubHook>| page).await?;
        let same_url = |hook: &&GitHubHook| hook.config.as_ref().and_then(|config| config.url.as_deref()) == Some(url);
        let config = json!({
            "url": url, "content_type": "json", "secret": secret.expose_secret(), "insecure_ssl": "0",
        });
        let call = match hooks.iter().find(same_url) {
            Some(hook) => ApiCall::on(repo, Method::PATCH, &["hooks", &hook.id.to_string()], "update the webhook of")
                .json(json!({ "active": true, "events": EVENTS, "config": config })),
            None => ApiCall::on(repo, Method::POST, &["hooks"], "create a webhook of")
                .json(json!({ "name": "web", "active": true, "events": EVENTS, "config": config })),
        };
        let response = self.client.send(&call).await?;
        Ok(read_json::<GitHubHook>("set up a webhook", &response)?.id)
    }
}
