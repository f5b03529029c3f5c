//! Requests behind the adapter's operations: permissions, teams, files, label ids, pull requests, reviewers.

use std::collections::BTreeMap;

use ::http::Method;
use serde_json::json;

use super::client::under;
use super::map::{WireComment, WireLabel, WirePermission, WirePull, WireTeam, WireTeams, WireTimelineEntry, WireUser};
use super::{Gitea, lock, rfc3339};
use crate::domain::model::event::CommentSnapshot;
use crate::domain::model::ids::{CommentId, Number, RepoRef, Timestamp, User};
use crate::domain::trust::permit::TeamRef;
use crate::forge::ForgeErrorKind::{Denied, NotFound};
use crate::forge::contents::{FileContents, FolderContents};
use crate::forge::http::{error, json as read};
use crate::forge::{
    Forge, ForgeError, ForgeErrorKind, ForgeResult, LabelChange, Permission, Reviews, TeamVisibility, TextFile,
};

impl Gitea {
    /// Returns the current permission of an account.
    pub(super) async fn permission_of(&self, repo: &RepoRef, user: &User) -> ForgeResult<Permission> {
        let what = format!("read the permission of {} in {repo}", user.login);
        if user.login.is_empty() || user.id.0 <= 0 {
            return Ok(Permission::None);
        }
        let path = under(repo, &["collaborators", &user.login, "permission"])?;
        let found: WirePermission = match self.client.get(&what, &path, &[]).await {
            Ok(found) => found,
            // The account was deleted or renamed; its next delivery has the new name.
            Err(ForgeError { kind: NotFound, .. }) => return Ok(Permission::None),
            Err(failure) if failure.kind == Denied => {
                let detail =
                    format!("{}; make the service's account an administrator of the repository", failure.detail);
                return Err(ForgeError { detail, ..failure });
            }
            Err(failure) => return Err(failure),
        };
        let unknown = || error(ForgeErrorKind::Bug, &what, "the response has an unknown permission");
        let level = found.level().ok_or_else(unknown)?;
        // A login can be reassigned; an id cannot.
        let same_account = found.user.and_then(WireUser::existing).is_some_and(|account| account.id == user.id);
        Ok(if same_account { level } else { Permission::None })
    }

    /// Whether an account is a member of a team of a visible organisation.
    pub(super) async fn member_of(&self, team: &TeamRef, user: &User) -> ForgeResult<bool> {
        let what = format!("check whether {} is in the team {team}", user.login);
        if user.login.is_empty() || user.id.0 <= 0 {
            return Ok(false);
        }
        let known = match self.team(&what, team).await {
            Err(ForgeError { kind: NotFound, .. }) | Ok(None) => return Ok(false),
            Ok(Some(known)) => known,
            Err(failure) => return Err(failure),
        };
        let path = ["teams", &known.id.to_string(), "members", &user.login];
        match self.client.get::<WireUser>(&what, &path, &[]).await {
            Ok(member) => Ok(member.existing().is_some_and(|account| account.id == user.id)),
            Err(ForgeError { kind: NotFound, .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Returns a visible team; `None` if there is none, `NotFound` if the organisation is not visible.
    async fn team(&self, what: &str, team: &TeamRef) -> ForgeResult<Option<WireTeam>> {
        let query = [("q", team.name.as_str()), ("limit", "50")];
        let found: WireTeams = self.client.get(what, &["orgs", &team.org, "teams", "search"], &query).await?;
        Ok(found.data.into_iter().find(|known| known.name.eq_ignore_ascii_case(&team.name)))
    }

    /// Returns whether the members of a team are visible.
    pub(super) async fn visibility_of_team(&self, team: &TeamRef) -> ForgeResult<TeamVisibility> {
        const SCOPE: &str =
            "give the token the scope `read:organization`, and make the bot's account a member of the team or an owner";
        let what = format!("look for the team {team}");
        let hidden = |why: String, fix: &str| Ok(TeamVisibility::Hidden { why, fix: fix.to_owned() });
        let known = match self.team(&what, team).await {
            Ok(Some(known)) => known,
            Ok(None) => {
                let why = format!("the organisation `{}` has no visible team `{}`", team.org, team.name);
                return hidden(
                    why,
                    "correct its name, or make the bot's account a member of it or an owner of the organisation",
                );
            }
            Err(ForgeError { kind: NotFound, .. }) => {
                let why = format!("the organisation `{}` is not visible", team.org);
                return hidden(why, "correct its name, or make the bot's account a member of it");
            }
            Err(failure) if failure.kind == Denied => return hidden(failure.to_string(), SCOPE),
            Err(failure) => return Err(failure),
        };
        let path = ["teams", &known.id.to_string(), "members"];
        match self.client.get::<Vec<WireUser>>(&what, &path, &[("limit", "1")]).await {
            Ok(_) => Ok(TeamVisibility::Visible),
            Err(failure) if matches!(failure.kind, Denied | NotFound) => hidden(failure.to_string(), SCOPE),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the last change of a label in an issue's timeline since a time.
    pub(super) async fn label_change_since(
        &self,
        repo: &RepoRef,
        number: Number,
        label: &str,
        since: Option<Timestamp>,
    ) -> ForgeResult<Option<LabelChange>> {
        let what = format!("read the timeline of {repo}#{number}");
        let since = since.map(rfc3339);
        let query: Vec<(&str, &str)> = since.iter().map(|since| ("since", since.as_str())).collect();
        let path = [String::from("issues"), number.to_string(), String::from("timeline")];
        let path = under(repo, &[&path[0], &path[1], &path[2]])?;
        let entries: Vec<WireTimelineEntry> = match self.client.list(&what, &path, &query, |_| false).await {
            Err(ForgeError { kind: NotFound, .. }) => return Ok(None),
            other => other?,
        };
        Ok(entries.into_iter().filter_map(|entry| entry.change_of(label)).max_by_key(|change| change.id))
    }

    /// Returns a comment in a conversation; `None` if it does not exist or is in another conversation.
    pub(super) async fn comment_by_id(
        &self,
        repo: &RepoRef,
        number: Number,
        id: CommentId,
    ) -> ForgeResult<Option<CommentSnapshot>> {
        let what = format!("read comment {id} in {repo}");
        let text = id.to_string();
        let found = self.client.find(&what, &under(repo, &["issues", "comments", &text])?).await?;
        let Some(found) = found else { return Ok(None) };
        if found.body().is_empty() {
            // A reply in a review's thread is delivered like a comment, but listed with the review.
            let of_reviews = match self.review_comments(repo, number).await {
                // The conversation is not that of a pull request.
                Err(ForgeError { kind: NotFound, .. }) => return Ok(None),
                other => other?,
            };
            return Ok(of_reviews.into_iter().map(|found| found.comment).find(|comment| comment.id == id));
        }
        let comment: WireComment = read(&what, &found)?;
        Ok(Some(comment).filter(|comment| comment.issue() == Some(number)).map(WireComment::snapshot))
    }

    /// Converts a server error to `NotFound` if the issue does not exist: the server answers 500 to requests for its comments.
    pub(super) async fn missing_issue(&self, repo: &RepoRef, number: Number, failure: ForgeError) -> ForgeError {
        let server_error =
            matches!(failure.kind, ForgeErrorKind::Transient { .. }) && failure.detail.starts_with("HTTP 5");
        if !server_error {
            return failure;
        }
        match self.issue(repo, number).await {
            Err(ForgeError { kind: NotFound, .. }) => error(NotFound, &failure.what, "the issue does not exist"),
            _ => failure,
        }
    }

    /// Returns the files directly in a folder of the default branch.
    pub(super) async fn files_in(&self, repo: &RepoRef, folder: &str) -> ForgeResult<Vec<TextFile>> {
        let what = format!("read the folder {folder} of {repo}");
        let found: FolderContents = match self.client.get(&what, &contents(repo, folder)?, &[]).await {
            Err(ForgeError { kind: NotFound, .. }) => return Ok(Vec::new()),
            found => found?,
        };
        let mut files = Vec::new();
        for path in found.files() {
            let file: FileContents = self.client.get(&what, &contents(repo, &path)?, &[]).await?;
            let text = file.text().map_err(|wrong| error(ForgeErrorKind::Bug, &what, wrong))?;
            files.push(TextFile { path, text });
        }
        Ok(files)
    }

    /// Returns and caches the label ids of a repository and its organisation by name; the repository's take precedence.
    pub(super) async fn fetch_labels(&self, repo: &RepoRef) -> ForgeResult<BTreeMap<String, i64>> {
        let what = format!("list the labels of {repo}");
        let labels: Vec<WireLabel> = self.client.list(&what, &under(repo, &["labels"])?, &[], |_| false).await?;
        let of_owner = self.client.list(&what, &["orgs", &repo.owner, "labels"], &[], |_| false).await;
        let shared: Vec<WireLabel> = match of_owner {
            // A user's repository has no organisation, and the token may not permit reading one.
            Err(ForgeError { kind: NotFound | Denied, .. }) => Vec::new(),
            other => other?,
        };
        let known: BTreeMap<String, i64> =
            shared.into_iter().chain(labels).map(|label| (label.name, label.id)).collect();
        lock(&self.labels).insert(repo.id, known.clone());
        Ok(known)
    }

    /// Returns the ids of labels by name, from the cache if it has all of them.
    pub(super) async fn label_ids(&self, repo: &RepoRef, names: &[String]) -> ForgeResult<Vec<i64>> {
        let cached = lock(&self.labels).get(&repo.id).cloned().unwrap_or_default();
        let known =
            if names.iter().all(|name| cached.contains_key(name)) { cached } else { self.fetch_labels(repo).await? };
        names
            .iter()
            .map(|name| {
                let missing = || {
                    error(
                        NotFound,
                        &format!("find the label {name:?} in {repo}"),
                        "the label does not exist; create it",
                    )
                };
                known.get(name).copied().ok_or_else(missing)
            })
            .collect()
    }

    pub(super) async fn wire_pull(&self, repo: &RepoRef, number: Number) -> ForgeResult<WirePull> {
        let what = format!("read pull request {repo}#{number}");
        self.client.get(&what, &under(repo, &["pulls", &number.to_string()])?, &[]).await
    }

    /// Returns the open pull request from a branch of this repository; if there is none, a closed one between the two branches.
    pub(super) async fn pull_from(
        &self,
        what: &str,
        repo: &RepoRef,
        head: &str,
        base: &str,
    ) -> ForgeResult<Option<WirePull>> {
        let matches = |pull: &WirePull| pull.comes_from(repo.id, head);
        let parts: Vec<&str> = ["pulls", base].into_iter().chain(head.split('/')).collect();
        // The server would read the rest of a base with a slash as part of the head.
        let between = match base.contains('/') {
            true => None,
            false => match self.client.get::<WirePull>(what, &under(repo, &parts)?, &[]).await {
                Err(ForgeError { kind: NotFound, .. }) => None,
                found => Some(found?).filter(matches),
            },
        };
        if between.as_ref().is_some_and(WirePull::is_open) {
            return Ok(between);
        }
        // It may go to another base by now; what was closed long ago is not listed.
        let found = |pulls: &[WirePull]| pulls.iter().any(matches);
        let open: Vec<WirePull> =
            self.client.list(what, &under(repo, &["pulls"])?, &[("state", "open")], found).await?;
        Ok(open.into_iter().find(matches).or(between))
    }

    pub(super) async fn edit_pull(
        &self,
        repo: &RepoRef,
        number: Number,
        fields: serde_json::Value,
    ) -> ForgeResult<WirePull> {
        let what = format!("edit pull request {repo}#{number}");
        let path = [String::from("pulls"), number.to_string()];
        let answer = self.client.send(&what, Method::PATCH, &under(repo, &[&path[0], &path[1]])?, &fields).await?;
        read(&what, &answer)
    }

    pub(super) async fn request_reviews(&self, repo: &RepoRef, number: Number, logins: &[String]) -> ForgeResult<()> {
        let what = format!("request reviews of {repo}#{number}");
        let number = number.to_string();
        let path = under(repo, &["pulls", &number, "requested_reviewers"])?;
        self.client.send(&what, Method::POST, &path, &json!({ "reviewers": logins })).await.map(drop)
    }
}

/// Returns the path segments of a file or folder of a repository.
fn contents<'a>(repo: &'a RepoRef, path: &'a str) -> ForgeResult<Vec<&'a str>> {
    let parts: Vec<&str> = std::iter::once("contents").chain(path.split('/')).collect();
    under(repo, &parts)
}
