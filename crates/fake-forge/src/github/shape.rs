//! GitHub's JSON for accounts, repositories, issues and comments.

use serde_json::{Map, Value, json};

use crate::call::utc;
use crate::core::Core;
use crate::state::apps::{FakeApp, TokenScope};
use crate::state::{
    Access, FakeComment, FakeHook, FakeIssue, FakeLabel, FakeReaction, FakeRepo, FakeState, Op, OpKind, TitleEdit,
};
use ralph_types::ids::{AccountKind, RepoId, Timestamp, UserId};

/// Address fields of an account, with their paths below its address.
const USER_LINKS: [(&str, &str); 10] = [
    ("url", ""),
    ("followers_url", "/followers"),
    ("following_url", "/following{/other_user}"),
    ("gists_url", "/gists{/gist_id}"),
    ("starred_url", "/starred{/owner}{/repo}"),
    ("subscriptions_url", "/subscriptions"),
    ("organizations_url", "/orgs"),
    ("repos_url", "/repos"),
    ("events_url", "/events{/privacy}"),
    ("received_events_url", "/received_events"),
];

/// Address fields of a repository, with their paths below its address.
const REPO_LINKS: [(&str, &str); 38] = [
    ("url", ""),
    ("forks_url", "/forks"),
    ("keys_url", "/keys{/key_id}"),
    ("collaborators_url", "/collaborators{/collaborator}"),
    ("teams_url", "/teams"),
    ("hooks_url", "/hooks"),
    ("issue_events_url", "/issues/events{/number}"),
    ("events_url", "/events"),
    ("assignees_url", "/assignees{/user}"),
    ("branches_url", "/branches{/branch}"),
    ("tags_url", "/tags"),
    ("blobs_url", "/git/blobs{/sha}"),
    ("git_tags_url", "/git/tags{/sha}"),
    ("git_refs_url", "/git/refs{/sha}"),
    ("trees_url", "/git/trees{/sha}"),
    ("statuses_url", "/statuses/{sha}"),
    ("languages_url", "/languages"),
    ("stargazers_url", "/stargazers"),
    ("contributors_url", "/contributors"),
    ("subscribers_url", "/subscribers"),
    ("subscription_url", "/subscription"),
    ("commits_url", "/commits{/sha}"),
    ("git_commits_url", "/git/commits{/sha}"),
    ("comments_url", "/comments{/number}"),
    ("issue_comment_url", "/issues/comments{/number}"),
    ("contents_url", "/contents/{+path}"),
    ("compare_url", "/compare/{base}...{head}"),
    ("merges_url", "/merges"),
    ("archive_url", "/{archive_format}{/ref}"),
    ("downloads_url", "/downloads"),
    ("issues_url", "/issues{/number}"),
    ("pulls_url", "/pulls{/number}"),
    ("milestones_url", "/milestones{/number}"),
    ("notifications_url", "/notifications{?since,all,participating}"),
    ("labels_url", "/labels{/name}"),
    ("releases_url", "/releases{/id}"),
    ("deployments_url", "/deployments"),
    ("git_url", ".git"),
];

/// Reactions, in the order of GitHub's summary.
const REACTIONS: [&str; 8] = ["+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes"];

/// Builds JSON with the addresses of the forge.
#[derive(Clone, Copy)]
pub(super) struct GitHubShape<'a> {
    pub core: &'a Core,
    pub state: &'a FakeState,
}

/// Adds fields to an object.
pub(super) fn with(mut target: Value, fields: Value) -> Value {
    if let (Value::Object(target), Value::Object(fields)) = (&mut target, fields) {
        target.extend(fields);
    }
    target
}

fn links(at: &str, rests: &[(&str, &str)]) -> Value {
    let link = |(key, rest): &(&str, &str)| ((*key).to_owned(), json!(format!("{at}{rest}")));
    Value::Object(rests.iter().map(link).collect::<Map<_, _>>())
}

impl GitHubShape<'_> {
    /// Returns an API address below a repository.
    pub fn api(&self, repo: &FakeRepo, rest: &str) -> String {
        self.core.at(&format!("api/v3/repos/{}{rest}", self.state.full_name(repo)))
    }

    /// Returns a web address below a repository.
    pub fn page(&self, repo: &FakeRepo, rest: &str) -> String {
        self.core.at(&format!("{}{rest}", self.state.full_name(repo)))
    }

    pub fn user(&self, id: UserId) -> Value {
        let user = self.state.user(id);
        let organization = self.state.accounts.get(&id).is_some_and(|account| account.organization);
        let kind = match user.kind {
            AccountKind::Bot => "Bot",
            AccountKind::User if organization => "Organization",
            AccountKind::User => "User",
        };
        let login = user.login.replace('[', "%5B").replace(']', "%5D");
        let written = json!({
            "login": user.login, "id": id.0, "node_id": format!("U_{id}"), "gravatar_id": "", "type": kind,
            "avatar_url": self.core.at(&format!("avatars/{id}")), "html_url": self.core.at(&login),
            "user_view_type": "public", "site_admin": false,
        });
        with(written, links(&self.core.at(&format!("api/v3/users/{login}")), &USER_LINKS))
    }

    /// Returns an account with its profile.
    pub fn profile(&self, id: UserId) -> Value {
        let made = self.state.accounts.get(&id).map_or(self.state.clock.now(), |account| account.created_at);
        with(
            self.user(id),
            json!({
                "name": null, "company": null, "blog": "", "location": null, "email": null, "hireable": null,
                "bio": null, "public_repos": 0, "public_gists": 0, "followers": 0, "following": 0,
                "created_at": utc(made), "updated_at": utc(made),
            }),
        )
    }

    pub fn author(&self, id: Option<UserId>) -> Value {
        id.map_or(Value::Null, |id| self.user(id))
    }

    /// Returns the author association of an account.
    pub fn association(&self, repo: &FakeRepo, who: Option<UserId>) -> &'static str {
        match who {
            Some(who) if who == repo.owner => "OWNER",
            Some(who) if self.state.access(repo, Some(who)) > Access::Read => "COLLABORATOR",
            _ => "NONE",
        }
    }

    pub fn repo(&self, repo: &FakeRepo, viewer: Option<UserId>) -> Value {
        let access = self.state.access(repo, viewer);
        let open = repo.issues.values().filter(|issue| issue.open).count();
        let (full_name, made) = (self.state.full_name(repo), utc(repo.created_at));
        let written = json!({
            "id": repo.id.0, "node_id": format!("R_{}", repo.id), "name": repo.name, "full_name": full_name,
            "private": repo.private, "owner": self.user(repo.owner), "html_url": self.page(repo, ""),
            "description": null, "fork": false, "created_at": made, "updated_at": made, "pushed_at": made,
            "ssh_url": format!("git@localhost:{full_name}.git"), "clone_url": self.page(repo, ".git"),
            "svn_url": self.page(repo, ""), "homepage": null,
            // GitHub's size is in KiB, rounded, and delayed.
            "size": 0, "stargazers_count": 0, "watchers_count": 0, "language": null, "has_issues": repo.has_issues,
            "has_projects": true, "has_downloads": true, "has_wiki": true, "has_pages": false,
        });
        let settings = json!({
            "has_discussions": false, "forks_count": 0, "mirror_url": null, "archived": repo.archived,
            "disabled": false, "open_issues_count": open, "license": null, "allow_forking": true,
            "is_template": false, "web_commit_signoff_required": false, "topics": [], "custom_properties": {},
            "allow_squash_merge": true, "allow_merge_commit": true, "allow_rebase_merge": true,
            "delete_branch_on_merge": false,
            "visibility": if repo.private { "private" } else { "public" }, "forks": 0, "open_issues": open,
            "watchers": 0, "default_branch": repo.default_branch, "network_count": 0, "subscribers_count": 0,
            "permissions": {
                "admin": access >= Access::Admin, "maintain": access >= Access::Maintain,
                "push": access >= Access::Write, "triage": access >= Access::Triage, "pull": access >= Access::Read,
            },
        });
        with(with(links(&self.api(repo, ""), &REPO_LINKS), written), settings)
    }

    pub fn label(&self, repo: &FakeRepo, label: &FakeLabel) -> Value {
        json!({
            "id": label.id, "node_id": format!("LA_{}", label.id), "name": label.name, "color": label.color,
            "url": self.api(repo, &format!("/labels/{}", label.name.replace(' ', "%20"))), "default": false,
            "description": if label.description.is_empty() { Value::Null } else { json!(label.description) },
        })
    }

    /// Returns the event of a label operation; `None` for other operations.
    pub fn label_event(&self, repo: &FakeRepo, op: &Op) -> Option<Value> {
        let event = match op.kind {
            OpKind::LabelAdded => "labeled",
            OpKind::LabelRemoved => "unlabeled",
            _ => return None,
        };
        let color = repo.labels.iter().find(|label| label.name == op.detail).map_or("ededed", |label| &label.color);
        let mut written = self.issue_event(repo, (op.at_seq, event), op.actor.id, op.at);
        written["label"] = json!({"name": op.detail, "color": color});
        Some(written)
    }

    /// Returns the event of a title change.
    pub fn rename_event(&self, repo: &FakeRepo, edit: &TitleEdit) -> Value {
        let mut written = self.issue_event(repo, (edit.at_seq, "renamed"), edit.editor, edit.at);
        written["rename"] = json!({"from": edit.titles.0, "to": edit.titles.1});
        written
    }

    fn issue_event(&self, repo: &FakeRepo, (id, event): (u64, &str), by: UserId, at: Timestamp) -> Value {
        json!({
            "id": id, "node_id": format!("LE_{id}"), "event": event, "actor": self.user(by),
            "url": self.api(repo, &format!("/issues/events/{id}")), "commit_id": null, "commit_url": null,
            "created_at": utc(at), "performed_via_github_app": null,
        })
    }

    pub fn labels(&self, repo: &FakeRepo, issue: &FakeIssue) -> Value {
        let labels = repo.labels.iter().filter(|label| issue.labels.contains(&label.id));
        labels.map(|label| self.label(repo, label)).collect()
    }

    fn counted(&self, address: &str, reactions: &[FakeReaction]) -> Value {
        let count = |content: &str| reactions.iter().filter(|reaction| reaction.content == content).count();
        let counts: Map<_, _> = REACTIONS.iter().map(|name| ((*name).to_owned(), json!(count(name)))).collect();
        with(json!({"url": format!("{address}/reactions"), "total_count": reactions.len()}), Value::Object(counts))
    }

    /// Returns the web address of an issue or pull request.
    pub fn issue_page(&self, repo: &FakeRepo, issue: &FakeIssue) -> String {
        let kind = if issue.pull.is_some() { "pull" } else { "issues" };
        self.page(repo, &format!("/{kind}/{}", issue.number))
    }

    pub fn issue(&self, repo: &FakeRepo, issue: &FakeIssue) -> Value {
        let (at, page) = (self.api(repo, &format!("/issues/{}", issue.number)), self.issue_page(repo, issue));
        let mut written = json!({
            "url": at, "repository_url": self.api(repo, ""), "labels_url": format!("{at}/labels{{/name}}"),
            "comments_url": format!("{at}/comments"), "events_url": format!("{at}/events"), "html_url": page,
            "id": issue.id, "node_id": node("I", repo.id, issue.number.0 as i64), "number": issue.number.0,
            "title": issue.title, "user": self.author(issue.author), "labels": self.labels(repo, issue),
            "state": state_of(issue), "locked": issue.locked, "milestone": null,
            "assignee": issue.assignees.first().map(|id| self.user(*id)),
            "assignees": issue.assignees.iter().map(|id| self.user(*id)).collect::<Vec<_>>(),
            "draft": issue.pull.as_ref().is_some_and(|pull| pull.draft), "comments": issue.comments.len(),
            "created_at": utc(issue.created_at),
            "updated_at": utc(issue.updated_at), "closed_at": issue.closed_at.map(utc),
            "author_association": self.association(repo, issue.author), "active_lock_reason": null,
            "body": text_or_null(&issue.body), "reactions": self.counted(&at, &issue.reactions),
            "timeline_url": format!("{at}/timeline"), "performed_via_github_app": null,
            "state_reason": if issue.open { Value::Null } else { json!("completed") },
        });
        if let Some(pull) = &issue.pull {
            written["pull_request"] = json!({
                "url": self.api(repo, &format!("/pulls/{}", issue.number)), "html_url": page,
                "diff_url": format!("{page}.diff"), "patch_url": format!("{page}.patch"),
                "merged_at": pull.merged.as_ref().map(|merged| utc(merged.at)),
            });
        }
        written
    }

    pub fn comment(&self, repo: &FakeRepo, issue: &FakeIssue, comment: &FakeComment) -> Value {
        let at = self.api(repo, &format!("/issues/comments/{}", comment.id));
        json!({
            "url": at, "html_url": format!("{}#issuecomment-{}", self.issue_page(repo, issue), comment.id),
            "issue_url": self.api(repo, &format!("/issues/{}", issue.number)), "id": comment.id.0,
            "node_id": node("IC", repo.id, comment.id.0), "user": self.author(comment.author),
            "created_at": utc(comment.created_at), "updated_at": utc(comment.updated_at),
            "author_association": self.association(repo, comment.author), "body": comment.body,
            "reactions": self.counted(&at, &comment.reactions), "performed_via_github_app": null,
        })
    }

    pub fn reaction(&self, reaction: &FakeReaction) -> Value {
        json!({
            "id": reaction.id, "node_id": format!("REA_{}", reaction.id), "user": self.user(reaction.user),
            "content": reaction.content, "created_at": utc(reaction.at),
        })
    }

    pub fn hook(&self, repo: &FakeRepo, hook: &FakeHook) -> Value {
        let at = self.api(repo, &format!("/hooks/{}", hook.id));
        let mut config = json!({"content_type": "json", "url": hook.url, "insecure_ssl": "0"});
        if !hook.secret.is_empty() {
            config["secret"] = json!("********");
        }
        json!({
            "type": "Repository", "id": hook.id, "name": "web", "active": hook.active, "events": hook.events,
            "config": config, "updated_at": utc(hook.created_at), "created_at": utc(hook.created_at), "url": at,
            "test_url": format!("{at}/test"), "ping_url": format!("{at}/pings"),
            "deliveries_url": format!("{at}/deliveries"),
            "last_response": {"code": null, "status": "unused", "message": null},
        })
    }

    pub fn app(&self, app: &FakeApp) -> Value {
        let client = app.client.as_ref().map_or_else(|| format!("Iv1.{}", app.id), |(id, _)| id.clone());
        json!({
            "id": app.id, "slug": app.slug, "node_id": format!("A_{}", app.id), "client_id": client,
            "owner": self.user(self.owner_of(app)), "name": app.slug, "description": null,
            "external_url": self.core.at(""), "html_url": self.core.at(&format!("apps/{}", app.slug)),
            "created_at": utc(app.hook.created_at), "updated_at": utc(app.hook.created_at),
            "permissions": app.permissions, "events": app.hook.events, "installations_count": i32::from(app.installed),
        })
    }

    /// Returns the owner of an App: the oldest repository's owner, or the bot if there is no repository.
    fn owner_of(&self, app: &FakeApp) -> UserId {
        self.state.repos.values().next().map_or(app.bot, |repo| repo.owner)
    }

    pub fn installation(&self, app: &FakeApp) -> Value {
        let owner = self.owner_of(app);
        let account = self.user(owner);
        json!({
            "id": app.installation, "client_id": format!("Iv1.{}", app.id), "target_type": account["type"],
            "access_tokens_url": self.core.at(&format!("api/v3/app/installations/{}/access_tokens", app.installation)),
            "repositories_url": self.core.at("api/v3/installation/repositories"), "app_id": app.id,
            "html_url": self.core.at(&format!("settings/installations/{}", app.installation)), "target_id": owner.0,
            "app_slug": app.slug, "account": account, "permissions": app.permissions, "events": app.hook.events,
            "repository_selection": if app.excluded.is_empty() { "all" } else { "selected" },
            "created_at": utc(app.hook.created_at), "updated_at": utc(app.hook.created_at),
            "single_file_name": null, "has_multiple_single_files": false, "single_file_paths": [],
            "suspended_by": null, "suspended_at": app.suspended_at.map(utc),
        })
    }

    /// Returns the repositories of an installation token.
    pub fn repositories_of(&self, narrowed: &TokenScope) -> Vec<Value> {
        let Ok(app) = self.state.app(narrowed.app) else { return Vec::new() };
        let reached = self.state.repos.values().filter(|repo| {
            !app.excluded.contains(&repo.id) && narrowed.repos.as_ref().is_none_or(|only| only.contains(&repo.id))
        });
        reached.map(|repo| self.repo(repo, Some(app.bot))).collect()
    }
}

/// Returns a GraphQL node id from kind, repository, and number or id.
pub(super) fn node(kind: &str, repo: RepoId, id: i64) -> String {
    format!("{kind}_{repo}_{id}")
}

/// Parses a GraphQL node id.
pub(super) fn of_node(text: &str) -> Option<(&str, RepoId, i64)> {
    let mut parts = text.split('_');
    let (kind, repo, id) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((kind, RepoId(repo), id))
}

pub(super) fn state_of(issue: &FakeIssue) -> &'static str {
    if issue.open { "open" } else { "closed" }
}

/// Returns null for an empty text, like GitHub.
pub(super) fn text_or_null(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { json!(text) }
}
