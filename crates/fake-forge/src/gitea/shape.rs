//! JSON of Gitea 1.25 for accounts, repositories, issues and pull requests.

use serde_json::{Value, json};

use crate::GiteaVersion;
use crate::call::zoned;
use crate::core::Core;
use crate::state::{
    Access, FakeComment, FakeHook, FakeIssue, FakeLabel, FakePull, FakeReaction, FakeRepo, FakeReview,
    FakeReviewComment, FakeState, FakeStatus, Op, OpKind, PushedCommit, TitleEdit,
};
use ralph_types::ids::ReviewVerdict;
use ralph_types::ids::{Sha, Timestamp, UserId};

/// Builds JSON with the addresses of the forge.
#[derive(Clone, Copy)]
pub(super) struct GiteaShape<'a> {
    pub core: &'a Core,
    pub state: &'a FakeState,
}

impl GiteaShape<'_> {
    fn api(&self, repo: &FakeRepo, rest: &str) -> String {
        self.core.at(&format!("api/v1/repos/{}{rest}", self.state.full_name(repo)))
    }

    fn page(&self, repo: &FakeRepo, rest: &str) -> String {
        self.core.at(&format!("{}{rest}", self.state.full_name(repo)))
    }

    pub fn user(&self, id: UserId) -> Value {
        let user = self.state.user(id);
        let created = self.state.accounts.get(&id).map_or(self.state.clock.now(), |account| account.created_at);
        json!({
            "id": id.0, "login": user.login, "login_name": "", "source_id": 0, "full_name": "",
            "email": format!("{}@noreply.localhost", user.login),
            "avatar_url": self.core.at(&format!("avatars/{id}")), "html_url": self.core.at(&user.login),
            "language": "", "is_admin": false, "last_login": "0001-01-01T00:00:00Z", "created": zoned(created),
            "restricted": false, "active": false, "prohibit_login": false, "location": "", "website": "",
            "description": "", "visibility": "public", "followers_count": 0, "following_count": 0,
            "starred_repos_count": 0, "username": user.login,
        })
    }

    fn author(&self, id: Option<UserId>) -> Value {
        id.map_or_else(
            || json!({"id": -1, "login": "Ghost", "full_name": "", "email": "", "username": "Ghost"}),
            |id| self.user(id),
        )
    }

    pub fn repo(&self, repo: &FakeRepo, viewer: Option<UserId>) -> Value {
        let access = self.state.access(repo, viewer);
        let open = |pull: bool| repo.issues.values().filter(|i| i.open && i.pull.is_some() == pull).count();
        let full_name = self.state.full_name(repo);
        let mut written = json!({
            "id": repo.id.0, "owner": self.user(repo.owner), "name": repo.name, "full_name": full_name,
            "description": "", "empty": self.core.git.is_empty(repo.id), "private": repo.private, "fork": false, "template": false,
            "mirror": false, "size": 25, "language": "", "languages_url": self.api(repo, "/languages"),
            "html_url": self.page(repo, ""), "url": self.api(repo, ""), "link": "",
            "ssh_url": format!("git@localhost:{full_name}.git"), "clone_url": self.page(repo, ".git"),
            "original_url": "", "website": "", "stars_count": 0, "forks_count": 0, "watchers_count": 1,
            "open_issues_count": open(false), "open_pr_counter": open(true), "release_counter": 0,
            "default_branch": repo.default_branch, "archived": repo.archived,
            "created_at": zoned(repo.created_at), "updated_at": zoned(repo.created_at),
            "archived_at": "1970-01-01T00:00:00Z",
            "permissions": {
                "admin": access >= Access::Admin, "push": access >= Access::Write, "pull": access >= Access::Read,
            },
        });
        let settings = json!({
            "has_code": true, "has_issues": repo.has_issues,
            "internal_tracker": {
                "enable_time_tracker": true, "allow_only_contributors_to_track_time": true,
                "enable_issue_dependencies": true,
            },
            "has_wiki": false, "has_pull_requests": true, "has_projects": false, "projects_mode": "all", "has_releases": true,
            "has_packages": false, "has_actions": false, "ignore_whitespace_conflicts": false,
            "allow_merge_commits": true, "allow_rebase": true, "allow_rebase_explicit": true,
            "allow_squash_merge": true, "allow_fast_forward_only_merge": true, "allow_rebase_update": true,
            "allow_manual_merge": false, "autodetect_manual_merge": false,
            "default_delete_branch_after_merge": false, "default_merge_style": "merge",
            "default_allow_maintainer_edit": false, "avatar_url": "", "internal": false, "mirror_interval": "",
            "object_format_name": "sha1", "mirror_updated": "0001-01-01T00:00:00Z", "topics": [], "licenses": [],
        });
        if let (Value::Object(written), Value::Object(settings)) = (&mut written, settings) {
            written.extend(settings);
        }
        written
    }

    pub fn label(&self, repo: &FakeRepo, label: &FakeLabel) -> Value {
        json!({
            "id": label.id, "name": label.name, "exclusive": label.exclusive, "is_archived": false, "color": label.color,
            "description": label.description, "url": self.api(repo, &format!("/labels/{}", label.id)),
        })
    }

    pub fn labels(&self, repo: &FakeRepo, issue: &FakeIssue) -> Value {
        let labels = repo.labels.iter().filter(|label| issue.labels.contains(&label.id));
        labels.map(|label| self.label(repo, label)).collect()
    }

    fn issue_page(&self, repo: &FakeRepo, issue: &FakeIssue) -> String {
        let kind = if issue.pull.is_some() { "pulls" } else { "issues" };
        self.page(repo, &format!("/{kind}/{}", issue.number))
    }

    pub fn issue(&self, repo: &FakeRepo, issue: &FakeIssue) -> Value {
        let pull = issue.pull.as_ref().map(|pull| {
            json!({
                "merged": pull.merged.is_some(), "merged_at": pull.merged.as_ref().map(|merged| zoned(merged.at)),
                "draft": super::is_work_in_progress(&issue.title), "html_url": self.issue_page(repo, issue),
            })
        });
        json!({
            "id": issue.id, "url": self.api(repo, &format!("/issues/{}", issue.number)),
            "html_url": self.issue_page(repo, issue), "number": issue.number.0, "user": self.author(issue.author),
            "original_author": "", "original_author_id": 0, "title": issue.title, "body": issue.body, "ref": "",
            "assets": self.assets(repo, &issue.body, Some(issue.number)), "labels": self.labels(repo, issue), "milestone": null,
            "assignee": issue.assignees.first().map(|id| self.user(*id)),
            "assignees": issue.assignees.iter().map(|id| self.user(*id)).collect::<Vec<_>>(),
            "state": state_of(issue), "is_locked": issue.locked, "comments": issue.comments.len(),
            "created_at": zoned(issue.created_at), "updated_at": zoned(issue.updated_at),
            "closed_at": issue.closed_at.map(zoned), "due_date": null, "time_estimate": 0, "pull_request": pull,
            "repository": {
                "id": repo.id.0, "name": repo.name, "owner": self.state.user(repo.owner).login,
                "full_name": self.state.full_name(repo),
            },
            "pin_order": 0,
        })
    }

    pub fn comment(&self, repo: &FakeRepo, issue: &FakeIssue, comment: &FakeComment) -> Value {
        let page = self.issue_page(repo, issue);
        let is_pull = issue.pull.is_some();
        json!({
            "id": comment.id.0, "html_url": format!("{page}#issuecomment-{}", comment.id),
            "pull_request_url": if is_pull { page.as_str() } else { "" },
            "issue_url": if is_pull { "" } else { page.as_str() },
            "user": self.author(comment.author), "original_author": "", "original_author_id": 0,
            "body": comment.body, "assets": self.assets(repo, &comment.body, None), "created_at": zoned(comment.created_at),
            "updated_at": zoned(comment.updated_at),
        })
    }

    /// Returns the timeline entry of an operation on a label or the state; `None` for other operations.
    pub fn timeline_entry(&self, repo: &FakeRepo, issue: &FakeIssue, op: &Op) -> Option<Value> {
        let (kind, body) = match op.kind {
            OpKind::LabelAdded => ("label", "1"),
            OpKind::LabelRemoved => ("label", ""),
            OpKind::IssueClosed => ("close", ""),
            OpKind::IssueReopened => ("reopen", ""),
            OpKind::TitleChanged => ("change_title", ""),
            OpKind::CommentCreated => ("comment", op.detail.as_str()),
            _ => return None,
        };
        let label = repo.labels.iter().find(|label| kind == "label" && label.name == op.detail);
        let mut entry = self.entry(repo, issue, op.at_seq, kind, op.actor.id, op.at);
        entry["body"] = json!(body);
        entry["label"] = label.map_or(Value::Null, |label| self.label(repo, label));
        Some(entry)
    }

    /// Returns the timeline entry of a title change.
    pub fn title_entry(&self, repo: &FakeRepo, issue: &FakeIssue, edit: &TitleEdit) -> Value {
        let mut entry = self.entry(repo, issue, edit.at_seq, "change_title", edit.editor, edit.at);
        entry["old_title"] = json!(edit.titles.0);
        entry["new_title"] = json!(edit.titles.1);
        entry
    }

    fn entry(&self, repo: &FakeRepo, issue: &FakeIssue, id: u64, kind: &str, by: UserId, at: Timestamp) -> Value {
        let page = self.issue_page(repo, issue);
        let is_pull = issue.pull.is_some();
        json!({
            "id": id, "type": kind, "html_url": format!("{page}#issuecomment-{id}"),
            "pull_request_url": if is_pull { page.as_str() } else { "" },
            "issue_url": if is_pull { "" } else { page.as_str() }, "user": self.user(by), "body": "",
            "created_at": zoned(at), "updated_at": zoned(at), "old_project_id": 0, "project_id": 0,
            "old_milestone": null, "milestone": null, "tracked_time": null, "old_title": "", "new_title": "",
            "old_ref": "", "new_ref": "", "ref_issue": null, "ref_comment": null, "ref_action": "none",
            "ref_commit_sha": "", "review_id": 0, "label": null, "assignee": null, "assignee_team": null,
            "removed_assignee": false, "resolve_doer": null, "dependent_issue": null,
        })
    }

    pub fn reaction(&self, reaction: &FakeReaction) -> Value {
        json!({"user": self.user(reaction.user), "content": reaction.content, "created_at": zoned(reaction.at)})
    }

    pub fn pull(&self, repo: &FakeRepo, issue: &FakeIssue, pull: &FakePull) -> Value {
        let page = self.issue_page(repo, issue);
        let facts = &pull.facts;
        let side = |name: &str, sha: &Sha| {
            json!({
                "label": name, "ref": name, "sha": sha.as_str(), "repo_id": repo.id.0,
                "repo": self.repo(repo, None),
            })
        };
        let mut head = side(&pull.head, &pull.facts.head_sha);
        if let Some((fork, of)) = pull.fork.as_ref().and_then(|fork| Some((fork, self.state.repo(fork.repo).ok()?))) {
            (head["label"], head["ref"]) = (json!(fork.branch), json!(fork.branch));
            (head["repo_id"], head["repo"]) = (json!(of.id.0), self.repo(of, None));
        }
        let requested: Vec<Value> = pull.requested.iter().map(|user| self.user(*user)).collect();
        let teams: Vec<Value> = pull.requested_teams.iter().map(|name| json!({"name": name})).collect();
        let merged = pull.merged.as_ref();
        let mut written = json!({
            "id": issue.id, "url": page, "number": issue.number.0, "user": self.author(issue.author),
            "title": issue.title, "body": issue.body, "labels": self.labels(repo, issue), "milestone": null,
            "assignee": null, "assignees": null, "requested_reviewers": requested,
            "requested_reviewers_teams": teams, "state": state_of(issue),
            "draft": super::is_work_in_progress(&issue.title), "is_locked": issue.locked,
            "comments": issue.comments.len(), "additions": facts.additions, "deletions": facts.deletions, "changed_files": facts.changed_files,
            "html_url": page, "diff_url": format!("{page}.diff"), "patch_url": format!("{page}.patch"),
            "mergeable": issue.open && pull.mergeable() == Some(true), "merged": merged.is_some(),
            "merged_at": merged.map(|merged| zoned(merged.at)),
            "merge_commit_sha": merged.map(|merged| merged.sha.as_str()),
            "merged_by": merged.map(|merged| self.user(merged.by)), "allow_maintainer_edit": pull.fork.as_ref().is_some_and(|fork| fork.editable),
            "base": side(&pull.base, &facts.base_sha), "head": head,
            "merge_base": facts.merge_base.as_ref().map_or("", Sha::as_str), "due_date": null,
            "created_at": zoned(issue.created_at), "updated_at": zoned(issue.updated_at),
            "closed_at": issue.closed_at.map(zoned), "pin_order": 0,
        });
        if self.state.gitea == GiteaVersion::V1_22
            && let Value::Object(fields) = &mut written
        {
            fields.remove("requested_reviewers_teams");
        }
        let remarks = pull.reviews.iter().map(|review| review.remarks.len()).sum::<usize>();
        if remarks > 0 {
            written["review_comments"] = json!(remarks);
        }
        written
    }

    /// Returns the review list's entry for a review requested from an account.
    pub fn requested(&self, repo: &FakeRepo, issue: &FakeIssue, user: UserId) -> Value {
        let at = zoned(issue.created_at);
        json!({
            // Unique, because pull requests and accounts share one sequence of ids.
            "id": issue.id * 1_000_000 + user.0, "user": self.user(user), "team": null, "state": "REQUEST_REVIEW",
            "body": "", "commit_id": "", "stale": false, "official": false, "dismissed": false, "comments_count": 0,
            "submitted_at": at, "updated_at": at, "html_url": "", "pull_request_url": self.issue_page(repo, issue),
        })
    }

    /// Returns the review list's entries for reviews requested from teams.
    pub fn requested_teams(&self, repo: &FakeRepo, issue: &FakeIssue, pull: &FakePull) -> Vec<Value> {
        let of_team = |(position, name): (usize, &String)| {
            let mut entry = self.requested(repo, issue, UserId(-1 - position as i64));
            entry["user"] = Value::Null;
            entry["team"] = json!({"id": position + 1, "name": name, "permission": "none"});
            entry
        };
        pull.requested_teams.iter().enumerate().map(of_team).collect()
    }

    pub fn review(&self, repo: &FakeRepo, issue: &FakeIssue, pull: &FakePull, review: &FakeReview) -> Value {
        let page = self.issue_page(repo, issue);
        json!({
            "id": review.id, "user": self.author(review.author), "team": null,
            "state": if review.pending { "PENDING" } else { review_state(review.verdict) },
            "body": review.body, "commit_id": review.commit.as_str(),
            "stale": review.commit != pull.facts.head_sha, "official": review.verdict != ReviewVerdict::Commented,
            "dismissed": review.verdict == ReviewVerdict::Dismissed, "comments_count": review.remarks.len(),
            // Start time of the review, even if it was submitted later.
            "submitted_at": zoned(review.at), "updated_at": zoned(review.submitted_at),
            "html_url": format!("{page}#issuecomment-{}", review.id), "pull_request_url": page,
        })
    }

    pub fn remark(&self, repo: &FakeRepo, issue: &FakeIssue, review: &FakeReview, remark: &FakeReviewComment) -> Value {
        let page = self.issue_page(repo, issue);
        json!({
            "id": remark.id.0, "body": remark.body, "user": self.author(remark.author),
            "resolver": remark.resolved.then(|| self.author(remark.author)),
            "pull_request_review_id": review.id, "created_at": zoned(remark.created_at),
            "updated_at": zoned(remark.updated_at),
            "path": remark.path, "commit_id": review.commit.as_str(), "original_commit_id": "",
            "diff_hunk": format!("@@ -0,0 +{} @@", remark.line),
            "position": remark.line, "original_position": 0,
            "html_url": format!("{page}#issuecomment-{}", remark.id), "pull_request_url": page,
        })
    }

    pub fn status(&self, repo: &FakeRepo, status: &FakeStatus) -> Value {
        json!({
            "id": status.id, "status": status.state, "target_url": status.target_url,
            "description": status.description, "url": self.api(repo, &format!("/statuses/{}", status.sha)),
            "context": status.context, "creator": self.user(status.creator), "created_at": zoned(status.at),
            "updated_at": zoned(status.at),
        })
    }

    pub fn combined_status(&self, repo: &FakeRepo, sha: &Sha) -> Value {
        let latest = self.state.latest_statuses(repo.id, sha);
        let has = |state: &str| latest.iter().any(|status| status.state == state);
        let worst = ["error", "failure", "pending", "success"].into_iter().find(|state| has(state));
        let statuses: Vec<Value> = latest.iter().map(|status| self.status(repo, status)).collect();
        json!({
            "state": worst.unwrap_or(""), "sha": sha.as_str(), "total_count": latest.len(),
            "statuses": if statuses.is_empty() { Value::Null } else { json!(statuses) },
            "repository": self.repo(repo, None), "commit_url": self.api(repo, &format!("/commits/{sha}")),
            "url": self.api(repo, &format!("/commits/{sha}/status")),
        })
    }

    pub fn hook(&self, hook: &FakeHook) -> Value {
        json!({
            "id": hook.id, "type": "gitea", "branch_filter": "", "authorization_header": "",
            "config": {"content_type": "json", "url": hook.url}, "events": hook.events, "active": hook.active,
            "updated_at": zoned(hook.created_at), "created_at": zoned(hook.created_at),
        })
    }

    pub fn commit(&self, repo: &FakeRepo, commit: &PushedCommit) -> Value {
        let person = json!({"name": commit.author, "email": commit.email, "username": commit.author});
        json!({
            "id": commit.sha.as_str(), "message": commit.message,
            "url": self.page(repo, &format!("/commit/{}", commit.sha)), "author": person, "committer": person,
            "verification": null, "timestamp": zoned(commit.at), "added": [], "removed": [], "modified": [],
        })
    }

    pub fn branch(&self, repo: &FakeRepo, name: &str, commit: &PushedCommit, viewer: Option<UserId>) -> Value {
        let protected = repo.protected.contains(name);
        let can_push = self.state.access(repo, viewer) >= Access::Write;
        json!({
            "name": name, "commit": self.commit(repo, commit), "protected": protected, "required_approvals": 0,
            "enable_status_check": false, "status_check_contexts": [], "user_can_push": can_push && !protected,
            "user_can_merge": can_push, "effective_branch_protection_name": if protected { name } else { "" },
        })
    }
}

pub(super) fn state_of(issue: &FakeIssue) -> &'static str {
    if issue.open { "open" } else { "closed" }
}

fn review_state(verdict: ReviewVerdict) -> &'static str {
    match verdict {
        ReviewVerdict::Approved => "APPROVED",
        ReviewVerdict::ChangesRequested => "REQUEST_CHANGES",
        // On Gitea, a dismissed review keeps its state and is marked; the state is not stored here.
        ReviewVerdict::Dismissed => "REQUEST_CHANGES",
        ReviewVerdict::Commented => "COMMENT",
    }
}
