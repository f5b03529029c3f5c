//! JSON format of Gitea and Forgejo in REST responses and deliveries, and its conversion to the forge-independent
//! types.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::domain::loops::CommentedLines;
use crate::domain::model::event::{CommentSnapshot, IssueSnapshot, PullSnapshot, ReviewVerdict, is_same_label};
use crate::domain::model::ids::{
    AccountKind, CommentId, ForgeName, Number, RepoId, RepoRef, Sha, Timestamp, User, UserId,
};
use crate::forge::{LabelChange, Permission, PullReview, Repository, ReviewComment, number_at_end};

/// Title prefix that marks a pull request as a draft.
pub(super) const DRAFT_PREFIX: &str = "WIP: ";
/// Title prefixes that servers recognize as draft by default, in lower case.
const DRAFT_PREFIXES: [&str; 2] = ["wip:", "[wip]"];
/// Id of the server's account that runs Actions.
const ACTIONS_ID: i64 = -2;

/// Parses a list; a missing list and `null` become empty.
pub(super) fn listed<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Parses a string; a missing string and `null` become empty.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Parses an RFC 3339 time of any time zone.
fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    let parsed = text.parse::<jiff::Timestamp>().map_err(serde::de::Error::custom)?;
    Ok(Timestamp(parsed.as_millisecond()))
}

/// Parses an optional RFC 3339 time.
fn maybe_moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    let parsed = text.map(|text| text.parse::<jiff::Timestamp>()).transpose().map_err(serde::de::Error::custom)?;
    Ok(parsed.map(|at| Timestamp(at.as_millisecond())))
}

#[derive(Debug, Deserialize)]
pub(super) struct WireUser {
    id: i64,
    #[serde(default, deserialize_with = "text")]
    login: String,
}

impl WireUser {
    pub(super) fn id(&self) -> UserId {
        UserId(self.id)
    }

    /// Converts to an account, including a deleted one, whose `id` is -1.
    pub(super) fn account(self) -> User {
        let kind = if self.id == ACTIONS_ID { AccountKind::Bot } else { AccountKind::User };
        User { id: UserId(self.id), login: self.login, kind }
    }

    /// Converts to an account; `None` for a deleted one, whose id is below 1.
    pub(super) fn existing(self) -> Option<User> {
        (self.id > 0 || self.id == ACTIONS_ID).then(|| self.account())
    }
}

/// Returns a placeholder for a missing sender, an account that does not exist.
pub(super) fn ghost() -> User {
    User { id: UserId(-1), login: "Ghost".to_owned(), kind: AccountKind::User }
}

pub(super) fn author(user: Option<WireUser>) -> Option<User> {
    user.and_then(WireUser::existing)
}

#[derive(Debug, Deserialize)]
pub(super) struct WireRepository {
    id: i64,
    name: String,
    owner: Option<WireUser>,
    #[serde(default, deserialize_with = "text")]
    full_name: String,
    #[serde(default, deserialize_with = "text")]
    default_branch: String,
    #[serde(default)]
    private: bool,
    #[serde(default)]
    internal: bool,
    #[serde(default)]
    archived: bool,
    #[serde(default)]
    empty: bool,
    has_issues: Option<bool>,
    permissions: Option<WireAccess>,
}

#[derive(Debug, Deserialize)]
struct WireAccess {
    #[serde(default)]
    push: bool,
}

impl WireRepository {
    /// Returns the reference; `None` if it has no owner or an invalid id.
    pub(super) fn reference(&self, forge: &ForgeName) -> Option<RepoRef> {
        let by_account = self.owner.as_ref().map(|owner| owner.login.as_str()).filter(|login| !login.is_empty());
        let owner = by_account.or_else(|| self.full_name.split_once('/').map(|(owner, _)| owner))?;
        let known = self.id > 0 && !owner.is_empty() && !self.name.is_empty();
        known.then(|| RepoRef {
            forge: forge.clone(),
            id: RepoId(self.id),
            owner: owner.to_owned(),
            name: self.name.clone(),
        })
    }

    /// Converts to [`Repository`]; `None` if it has no valid reference.
    pub(super) fn facts(self, forge: &ForgeName) -> Option<Repository> {
        Some(Repository {
            repo: self.reference(forge)?,
            default_branch: self.default_branch,
            private: self.private || self.internal,
            archived: self.archived,
            empty: self.empty,
            issues_enabled: self.has_issues.unwrap_or(true),
        })
    }

    /// Whether the service's account may push.
    pub(super) fn may_push(&self) -> bool {
        self.permissions.as_ref().is_some_and(|access| access.push)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireLabel {
    pub(super) id: i64,
    pub(super) name: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) description: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireIssue {
    number: u64,
    #[serde(default, deserialize_with = "text")]
    title: String,
    #[serde(default, deserialize_with = "text")]
    body: String,
    user: Option<WireUser>,
    #[serde(default, deserialize_with = "listed")]
    labels: Vec<WireLabel>,
    state: WireState,
    pull_request: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    is_locked: bool,
    #[serde(deserialize_with = "moment")]
    updated_at: Timestamp,
    #[serde(default, deserialize_with = "text")]
    html_url: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireState {
    Open,
    Closed,
}

impl WireIssue {
    pub(super) fn snapshot(self) -> IssueSnapshot {
        IssueSnapshot {
            number: Number(self.number),
            title: self.title,
            body: self.body,
            html: None,
            author: author(self.user),
            labels: self.labels.into_iter().map(|label| label.name).collect(),
            open: self.state == WireState::Open,
            is_pull: self.pull_request.is_some(),
            locked: self.is_locked,
            updated_at: self.updated_at,
            url: self.html_url,
        }
    }

    pub(super) fn number(&self) -> Number {
        Number(self.number)
    }

    pub(super) fn label_ids(&self) -> Vec<i64> {
        self.labels.iter().map(|label| label.id).collect()
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireComment {
    id: i64,
    #[serde(default, deserialize_with = "text")]
    body: String,
    user: Option<WireUser>,
    #[serde(deserialize_with = "moment")]
    created_at: Timestamp,
    #[serde(default, deserialize_with = "maybe_moment")]
    updated_at: Option<Timestamp>,
    #[serde(default, deserialize_with = "text")]
    html_url: String,
    /// Web address of the issue; empty for a comment on a pull request.
    #[serde(default, deserialize_with = "text")]
    issue_url: String,
    /// Web address of the pull request; empty for a comment on an issue.
    #[serde(default, deserialize_with = "text")]
    pull_request_url: String,
}

impl WireComment {
    /// Returns the number of the issue or pull request; `None` if the response does not contain it.
    pub(super) fn issue(&self) -> Option<Number> {
        number_at_end(&self.issue_url).or_else(|| number_at_end(&self.pull_request_url))
    }

    pub(super) fn snapshot(self) -> CommentSnapshot {
        CommentSnapshot {
            id: CommentId(self.id),
            body: self.body,
            html: None,
            author: author(self.user),
            created_at: self.created_at,
            edited: self.updated_at != Some(self.created_at),
            url: self.html_url,
        }
    }
}

/// Entry of an issue's timeline.
#[derive(Debug, Deserialize)]
pub(super) struct WireTimelineEntry {
    id: i64,
    #[serde(default, rename = "type", deserialize_with = "text")]
    kind: String,
    /// `1` if a label was added; empty if it was removed.
    #[serde(default, deserialize_with = "text")]
    body: String,
    user: Option<WireUser>,
    label: Option<WireLabel>,
    #[serde(deserialize_with = "moment")]
    created_at: Timestamp,
}

impl WireTimelineEntry {
    pub(super) fn at(&self) -> Timestamp {
        self.created_at
    }

    /// Returns the time of the entry if it is a change of the title; otherwise `None`.
    pub(super) fn renamed_at(&self) -> Option<Timestamp> {
        (self.kind == "change_title").then_some(self.created_at)
    }

    /// Converts to a change of the label with this name; `None` for any other entry.
    pub(super) fn change_of(self, label: &str) -> Option<LabelChange> {
        let concerns = self.kind == "label" && self.label.is_some_and(|changed| is_same_label(&changed.name, label));
        let by = author(self.user).filter(|_| concerns)?;
        Some(LabelChange { id: self.id, added: !self.body.is_empty(), by, at: self.created_at })
    }
}

#[derive(Debug, Deserialize)]
struct WireSide {
    #[serde(default, rename = "ref", deserialize_with = "text")]
    reference: String,
    #[serde(default, deserialize_with = "text")]
    label: String,
    #[serde(default, deserialize_with = "text")]
    sha: String,
    repo: Option<WireRepository>,
}

impl WireSide {
    /// Returns the branch name. For a deleted branch, `ref` is `refs/pull/N/head`, and the label contains the name.
    fn branch(&self) -> &str {
        let deleted = self.reference.is_empty() || self.reference.starts_with("refs/");
        if deleted && !self.label.is_empty() { &self.label } else { &self.reference }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WirePull {
    number: u64,
    #[serde(default, deserialize_with = "text")]
    title: String,
    #[serde(default, deserialize_with = "text")]
    body: String,
    user: Option<WireUser>,
    #[serde(default, deserialize_with = "listed")]
    labels: Vec<WireLabel>,
    state: WireState,
    #[serde(default)]
    is_locked: bool,
    #[serde(deserialize_with = "moment")]
    updated_at: Timestamp,
    head: WireSide,
    base: WireSide,
    #[serde(default)]
    merged: bool,
    draft: Option<bool>,
    mergeable: Option<bool>,
    #[serde(default)]
    allow_maintainer_edit: bool,
    #[serde(default, deserialize_with = "text")]
    html_url: String,
}

impl WirePull {
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn draft(&self) -> bool {
        self.draft.unwrap_or_else(|| ready_title(&self.title) != self.title)
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == WireState::Open
    }

    /// Whether the pull request comes from this branch of the repository.
    pub(super) fn comes_from(&self, repo: RepoId, branch: &str) -> bool {
        self.head.branch() == branch && self.head.repo.as_ref().is_some_and(|head| head.id == repo.0)
    }

    /// Converts to a snapshot; `None` if it has no head commit.
    pub(super) fn snapshot(self) -> Option<PullSnapshot> {
        let draft = self.draft();
        let open = self.state == WireState::Open;
        Some(PullSnapshot {
            number: Number(self.number),
            head_branch: self.head.branch().to_owned(),
            head_repo: self.head.repo.as_ref().map(|repo| RepoId(repo.id)),
            head_repo_name: self.head.repo.as_ref().map(|repo| repo.full_name.clone()).unwrap_or_default(),
            maintainers_may_push: self.allow_maintainer_edit,
            head_sha: Sha::parse(&self.head.sha)?,
            base_branch: self.base.branch().to_owned(),
            open,
            merged: self.merged,
            draft,
            // Servers report drafts as not mergeable, with or without conflicts.
            mergeable: self.mergeable.filter(|mergeable| open && (*mergeable || !draft)),
            url: self.html_url,
        })
    }

    /// Converts to the snapshot of the pull request's issue.
    pub(super) fn issue(self) -> IssueSnapshot {
        IssueSnapshot {
            number: Number(self.number),
            title: self.title,
            body: self.body,
            html: None,
            author: author(self.user),
            labels: self.labels.into_iter().map(|label| label.name).collect(),
            open: self.state == WireState::Open,
            is_pull: true,
            locked: self.is_locked,
            updated_at: self.updated_at,
            url: self.html_url,
        }
    }

    pub(super) fn updated_at(&self) -> Timestamp {
        self.updated_at
    }
}

/// Returns a title without draft prefixes.
pub(super) fn ready_title(title: &str) -> &str {
    let mut rest = title;
    while let Some(prefix) = DRAFT_PREFIXES
        .iter()
        .find(|prefix| rest.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)))
    {
        rest = rest.get(prefix.len()..).unwrap_or_default().trim_start();
    }
    rest
}

/// Returns a title with a single draft prefix.
pub(super) fn draft_title(title: &str) -> String {
    format!("{DRAFT_PREFIX}{}", ready_title(title))
}

#[derive(Debug, Deserialize)]
pub(super) struct WireReview {
    pub(super) id: i64,
    #[serde(default, deserialize_with = "text")]
    state: String,
    #[serde(default)]
    dismissed: bool,
    #[serde(default, deserialize_with = "text")]
    body: String,
    user: Option<WireUser>,
    #[serde(default)]
    pub(super) comments_count: i64,
    #[serde(default, deserialize_with = "text")]
    pub(super) commit_id: String,
    #[serde(deserialize_with = "moment")]
    submitted_at: Timestamp,
}

impl WireReview {
    /// Converts to a review; `None` for a requested or pending one.
    pub(super) fn review(self) -> Option<PullReview> {
        let verdict = match self.state.as_str() {
            _ if self.dismissed => ReviewVerdict::Dismissed,
            "APPROVED" => ReviewVerdict::Approved,
            "REQUEST_CHANGES" => ReviewVerdict::ChangesRequested,
            "COMMENT" => ReviewVerdict::Commented,
            _ => return None,
        };
        let author = author(self.user);
        Some(PullReview { id: self.id, verdict, body: self.body, html: None, author, submitted_at: self.submitted_at })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireReviewComment {
    #[serde(flatten)]
    comment: WireComment,
    #[serde(default, deserialize_with = "text")]
    path: String,
    #[serde(default)]
    position: u64,
    #[serde(default)]
    pull_request_review_id: Option<i64>,
    /// Account that resolved the conversation.
    resolver: Option<serde::de::IgnoredAny>,
}

impl WireReviewComment {
    /// Returns the id if the conversation is resolved.
    pub(super) fn resolved(&self) -> Option<CommentId> {
        self.resolver.as_ref().map(|_| CommentId(self.comment.id))
    }

    /// Converts to a review comment of a review of `commit`.
    pub(super) fn review_comment(self, commit: Option<&Sha>) -> ReviewComment {
        let line = (self.position > 0).then_some(self.position);
        let review = self.pull_request_review_id.filter(|id| *id > 0);
        let lines =
            line.zip(commit).map(|(line, commit)| CommentedLines { first: line, last: line, commit: commit.clone() });
        ReviewComment { comment: self.comment.snapshot(), path: self.path, line, lines, review }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireTeams {
    #[serde(default)]
    pub(super) data: Vec<WireTeam>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireTeam {
    pub(super) id: i64,
    pub(super) name: String,
    #[serde(default, deserialize_with = "text")]
    permission: String,
    #[serde(default)]
    units_map: Option<BTreeMap<String, String>>,
}

impl WireTeam {
    /// Whether members of the team are owners or administrators, which every version includes in reported permissions.
    pub(super) fn is_of_administrators(&self) -> bool {
        permission_of_name(&self.permission) == Some(Permission::Admin)
    }

    /// Returns the team's permission for the code of its repositories.
    pub(super) fn code_permission(&self) -> Permission {
        let of_unit = self.units_map.as_ref().and_then(|units| units.get("repo.code"));
        let named = |name: &str| permission_of_name(name).unwrap_or(Permission::None);
        // Administrators have every part; for all others the parts decide.
        match self.is_of_administrators() {
            true => Permission::Admin,
            false => of_unit.map_or(Permission::None, |name| named(name)),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WirePermission {
    #[serde(default, deserialize_with = "text")]
    permission: String,
    pub(super) user: Option<WireUser>,
}

impl WirePermission {
    /// Returns the permission; `None` for an unknown name.
    pub(super) fn level(&self) -> Option<Permission> {
        permission_of_name(&self.permission)
    }
}

fn permission_of_name(name: &str) -> Option<Permission> {
    Some(match name {
        "owner" | "admin" => Permission::Admin,
        "write" => Permission::Write,
        "read" => Permission::Read,
        "none" => Permission::None,
        _ => return None,
    })
}

#[derive(Debug, Deserialize)]
pub(super) struct WireVersion {
    pub(super) version: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireSearch {
    #[serde(default, deserialize_with = "listed")]
    pub(super) data: Vec<WireRepository>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireHook {
    pub(super) id: i64,
    #[serde(default)]
    pub(super) active: bool,
    #[serde(default)]
    pub(super) config: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "listed")]
    pub(super) events: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draft_prefixes_are_added_and_removed() {
        for (title, ready) in [
            ("Fix it", "Fix it"),
            ("WIP: Fix it", "Fix it"),
            ("wip:Fix it", "Fix it"),
            ("[WIP] Fix it", "Fix it"),
            ("WIP: [wip] WIP: Fix it", "Fix it"),
            ("WIPE: Fix it", "WIPE: Fix it"),
            ("Fix WIP: it", "Fix WIP: it"),
            ("WIP:", ""),
            ("wı", "wı"),
            ("", ""),
        ] {
            assert_eq!(ready_title(title), ready, "{title:?}");
            assert_eq!(draft_title(title), format!("WIP: {ready}"), "{title:?}");
        }
    }

    #[test]
    fn deleted_accounts_have_no_author() {
        let user = |json: &str| serde_json::from_str::<WireUser>(json).unwrap();
        assert_eq!(user(r#"{"id":-1,"login":"Ghost"}"#).existing(), None);
        assert_eq!(user(r#"{"id":0,"login":""}"#).existing(), None);
        assert_eq!(user(r#"{"id":-2,"login":"gitea-actions"}"#).existing().unwrap().kind, AccountKind::Bot);
        let someone = user(r#"{"id":7,"login":"ann","username":"ann","new_field":{}}"#).existing().unwrap();
        assert_eq!((someone.id, someone.login.as_str(), someone.kind), (UserId(7), "ann", AccountKind::User));
    }

    fn pull(change: impl FnOnce(&mut serde_json::Value)) -> WirePull {
        let mut pull = serde_json::json!({
            "number": 5, "title": "Fix", "state": "open", "updated_at": "2025-01-02T03:04:05+02:00", "draft": false,
            "mergeable": true, "base": {"ref": "main", "label": "main"},
            "head": {"ref": "ralph/1-x", "label": "ralph/1-x", "sha": "a".repeat(40), "repo": {"id": 9, "name": "app"}},
        });
        change(&mut pull);
        serde_json::from_value(pull).unwrap()
    }

    #[test]
    fn pull_request_of_a_deleted_branch_or_fork_is_parsed() {
        let deleted = pull(|p| {
            p["head"] =
                serde_json::json!({"ref": "refs/pull/5/head", "label": "x", "sha": "b".repeat(40), "repo": null})
        });
        let snapshot = deleted.snapshot().unwrap();
        assert_eq!((snapshot.head_branch.as_str(), snapshot.head_repo), ("x", None));
        assert_eq!(pull(|p| p["head"]["sha"] = "".into()).snapshot(), None);
        let fork = pull(|p| {
            p["head"]["repo"]["full_name"] = "otto/app".into();
            p["allow_maintainer_edit"] = true.into();
        });
        let snapshot = fork.snapshot().unwrap();
        assert_eq!((snapshot.head_repo_name.as_str(), snapshot.maintainers_may_push), ("otto/app", true));
    }

    #[test]
    fn mergeable_is_ignored_for_drafts_and_closed_pull_requests() {
        let mergeable = |draft: bool, state: &str, value: serde_json::Value| {
            pull(|p| {
                p["draft"] = draft.into();
                p["state"] = state.into();
                p["mergeable"] = value;
            })
            .snapshot()
            .unwrap()
            .mergeable
        };
        assert_eq!(mergeable(false, "open", true.into()), Some(true));
        assert_eq!(mergeable(false, "open", false.into()), Some(false));
        assert_eq!(mergeable(true, "open", false.into()), None);
        assert_eq!(mergeable(false, "closed", false.into()), None);
        assert_eq!(mergeable(false, "open", serde_json::Value::Null), None);
    }

    #[test]
    fn draft_state_is_read_from_the_field_or_the_title() {
        let draft = |field: serde_json::Value, title: &str| {
            pull(|p| {
                p["draft"] = field;
                p["title"] = title.into();
            })
            .snapshot()
            .unwrap()
            .draft
        };
        assert!(draft(true.into(), "x") && draft(serde_json::Value::Null, "WIP: x"));
        assert!(!draft(false.into(), "x") && !draft(serde_json::Value::Null, "x"));
    }
}
