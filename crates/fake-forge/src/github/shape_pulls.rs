//! GitHub's JSON for pull requests, reviews, commits, statuses and check runs.

use serde_json::{Value, json};

use super::shape::{GitHubShape, node, state_of, text_or_null, with};
use crate::call::utc;
use crate::state::{
    FakeCheckRun, FakeIssue, FakePull, FakeRepo, FakeReview, FakeReviewComment, FakeStatus, PushedCommit,
};
use ralph_types::ids::ReviewVerdict;
use ralph_types::ids::Sha;

impl GitHubShape<'_> {
    /// Returns a pull request with the fields of lists and most deliveries.
    pub fn pull(&self, repo: &FakeRepo, issue: &FakeIssue, pull: &FakePull) -> Value {
        let at = self.api(repo, &format!("/pulls/{}", issue.number));
        let issue_at = self.api(repo, &format!("/issues/{}", issue.number));
        let page = self.issue_page(repo, issue);
        let owner = self.state.user(repo.owner).login;
        let side = |name: &str, sha: &Sha| {
            json!({
                "label": format!("{owner}:{name}"), "ref": name, "sha": sha.as_str(),
                "user": self.user(repo.owner), "repo": self.repo(repo, None),
            })
        };
        let mut head = side(&pull.head, &pull.facts.head_sha);
        if let Some((fork, of)) = pull.fork.as_ref().and_then(|fork| Some((fork, self.state.repo(fork.repo).ok()?))) {
            head["label"] = json!(format!("{}:{}", self.state.user(of.owner).login, fork.branch));
            (head["ref"], head["repo"], head["user"]) = (json!(fork.branch), self.repo(of, None), self.user(of.owner));
        }
        let facts = &pull.facts;
        let mut places = json!({
            "comments_url": format!("{issue_at}/comments"), "review_comments_url": format!("{at}/comments"),
            "review_comment_url": self.api(repo, "/pulls/comments{/number}"), "commits_url": format!("{at}/commits"),
            "statuses_url": self.api(repo, &format!("/statuses/{}", facts.head_sha)), "issue_url": issue_at,
            "html_url": page, "url": at,
        });
        let mut links = json!({});
        for key in ["comments", "review_comments", "review_comment", "commits", "statuses", "issue", "html"] {
            links[key] = json!({"href": places[format!("{key}_url")]});
        }
        links["self"] = json!({"href": at});
        places["_links"] = links;
        let requested: Vec<Value> = pull.requested.iter().map(|user| self.user(*user)).collect();
        let team = |name: &String| json!({"name": name, "slug": name});
        let teams: Vec<Value> = pull.requested_teams.iter().map(team).collect();
        let merged = pull.merged.as_ref();
        let written = json!({
            "id": issue.id, "node_id": node("PR", repo.id, issue.number.0 as i64), "number": issue.number.0,
            "diff_url": format!("{page}.diff"), "patch_url": format!("{page}.patch"), "state": state_of(issue),
            "locked": issue.locked, "title": issue.title, "user": self.author(issue.author),
            "body": text_or_null(&issue.body), "created_at": utc(issue.created_at),
            "updated_at": utc(issue.updated_at), "closed_at": issue.closed_at.map(utc),
            "merged_at": merged.map(|merged| utc(merged.at)),
            "merge_commit_sha": merged.map(|merged| merged.sha.as_str()), "assignee": null, "assignees": [],
            "requested_reviewers": requested, "requested_teams": teams, "labels": self.labels(repo, issue),
            "milestone": null, "draft": pull.draft, "head": head,
            "base": side(&pull.base, &facts.base_sha), "auto_merge": null, "active_lock_reason": null,
            "author_association": self.association(repo, issue.author),
        });
        with(places, written)
    }

    /// Returns a single pull request, with more fields than in lists.
    pub fn whole_pull(&self, repo: &FakeRepo, issue: &FakeIssue, pull: &FakePull) -> Value {
        let (facts, merged) = (&pull.facts, pull.merged.as_ref());
        let mergeable = pull.mergeable().filter(|_| issue.open);
        let state = match mergeable {
            None => "unknown",
            Some(false) => "dirty",
            Some(true) if pull.draft => "draft",
            Some(true) => "clean",
        };
        with(
            self.pull(repo, issue, pull),
            json!({
                "merged": merged.is_some(), "mergeable": mergeable, "rebaseable": mergeable, "mergeable_state": state,
                "merged_by": merged.map(|merged| self.user(merged.by)), "comments": issue.comments.len(),
                "review_comments": pull.reviews.iter().map(|review| review.remarks.len()).sum::<usize>(),
                "maintainer_can_modify": pull.fork.as_ref().is_some_and(|fork| fork.editable), "commits": facts.commits, "additions": facts.additions,
                "deletions": facts.deletions, "changed_files": facts.changed_files,
            }),
        )
    }

    pub fn review(&self, repo: &FakeRepo, issue: &FakeIssue, review: &FakeReview) -> Value {
        let page = format!("{}#pullrequestreview-{}", self.issue_page(repo, issue), review.id);
        let pull = self.api(repo, &format!("/pulls/{}", issue.number));
        json!({
            "id": review.id, "node_id": node("PRR", repo.id, review.id), "user": self.author(review.author),
            "body": review.body,
            "state": if review.pending { "PENDING" } else { review_state(review.verdict) }, "html_url": page, "pull_request_url": pull,
            "author_association": self.association(repo, review.author),
            "_links": {"html": {"href": page}, "pull_request": {"href": pull}}, "submitted_at": utc(review.submitted_at),
            "commit_id": review.commit.as_str(),
        })
    }

    pub fn remark(&self, repo: &FakeRepo, issue: &FakeIssue, review: &FakeReview, remark: &FakeReviewComment) -> Value {
        let at = self.api(repo, &format!("/pulls/comments/{}", remark.id));
        let page = format!("{}#discussion_r{}", self.issue_page(repo, issue), remark.id);
        let pull = self.api(repo, &format!("/pulls/{}", issue.number));
        let mut written = json!({
            "url": at, "pull_request_review_id": review.id, "id": remark.id.0,
            "node_id": node("PRRC", repo.id, remark.id.0), "diff_hunk": "@@ -0,0 +1 @@", "path": remark.path,
            "position": remark.line, "original_position": remark.line, "commit_id": review.commit.as_str(),
            "original_commit_id": review.commit.as_str(), "user": self.author(remark.author), "body": remark.body,
            "created_at": utc(remark.created_at), "updated_at": utc(remark.updated_at), "html_url": page, "pull_request_url": pull,
            "author_association": self.association(repo, review.author),
            "_links": {"self": {"href": at}, "html": {"href": page}, "pull_request": {"href": pull}},
            "line": remark.line, "original_line": remark.line, "side": "RIGHT", "start_line": null,
            "original_start_line": null, "start_side": null, "subject_type": "line",
        });
        if let Some(first) = remark.reply_to {
            written["in_reply_to_id"] = json!(first.0);
        }
        written
    }

    pub fn commit(&self, repo: &FakeRepo, commit: &PushedCommit) -> Value {
        let (sha, tree) = (&commit.sha, &commit.tree);
        let at = self.api(repo, &format!("/commits/{sha}"));
        let person = json!({"name": commit.author, "email": commit.email, "date": utc(commit.at)});
        let known = self.state.account_named(&commit.author).map(|account| account.user.id);
        json!({
            "sha": sha.as_str(), "node_id": format!("C_{sha}"), "url": at, "comments_url": format!("{at}/comments"),
            "commit": {
                "author": person, "committer": person, "message": commit.message, "comment_count": 0,
                "tree": {"sha": tree.as_str(), "url": self.api(repo, &format!("/git/trees/{tree}"))},
                "url": self.api(repo, &format!("/git/commits/{sha}")),
            },
            "html_url": self.page(repo, &format!("/commit/{sha}")), "author": self.author(known),
            "committer": self.author(known), "parents": [],
        })
    }

    pub fn branch(&self, repo: &FakeRepo, name: &str, commit: &PushedCommit) -> Value {
        let at = self.api(repo, &format!("/branches/{name}"));
        json!({
            "name": name, "commit": self.commit(repo, commit), "protected": repo.protected.contains(name),
            "_links": {"self": at, "html": self.page(repo, &format!("/tree/{name}"))},
            "protection": {"enabled": repo.protected.contains(name)}, "protection_url": format!("{at}/protection"),
        })
    }

    pub fn status(&self, repo: &FakeRepo, status: &FakeStatus) -> Value {
        json!({
            "url": self.api(repo, &format!("/statuses/{}", status.sha)), "id": status.id,
            "avatar_url": self.core.at(&format!("avatars/{}", status.creator)),
            "node_id": format!("SC_{}", status.id), "state": status.state, "description": status.description,
            "target_url": if status.target_url.is_empty() { Value::Null } else { json!(status.target_url) },
            "context": status.context, "created_at": utc(status.at), "updated_at": utc(status.at),
            "creator": self.user(status.creator),
        })
    }

    /// Returns the combined status; the caller adds a page of statuses.
    pub fn combined_status(&self, repo: &FakeRepo, sha: &Sha) -> Value {
        let latest = self.state.latest_statuses(repo.id, sha);
        let has = |states: &[&str]| latest.iter().any(|status| states.contains(&status.state.as_str()));
        let state = match () {
            () if has(&["failure", "error"]) => "failure",
            () if latest.is_empty() || has(&["pending"]) => "pending",
            () => "success",
        };
        json!({
            "state": state, "statuses": [], "sha": sha.as_str(), "total_count": latest.len(),
            "repository": self.repo(repo, None), "commit_url": self.api(repo, &format!("/commits/{sha}")),
            "url": self.api(repo, &format!("/commits/{sha}/status")),
        })
    }

    pub fn check_run(&self, repo: &FakeRepo, run: &FakeCheckRun) -> Value {
        let at = self.api(repo, &format!("/check-runs/{}", run.id));
        let done = run.conclusion.is_some();
        let page = self.page(repo, &format!("/actions/runs/{0}/job/{0}", run.id));
        json!({
            "id": run.id, "node_id": format!("CR_{}", run.id), "head_sha": run.sha.as_str(),
            "external_id": run.set_by.as_ref().map_or("", |(_, id)| id), "url": at, "html_url": page, "details_url": page,
            "status": if done { "completed" } else { "in_progress" }, "conclusion": run.conclusion,
            "started_at": utc(run.at), "completed_at": done.then(|| utc(run.at)),
            "output": {
                "title": null, "summary": text_or_null(&run.summary), "text": null, "annotations_count": 0,
                "annotations_url": format!("{at}/annotations"),
            },
            "name": run.name, "check_suite": {"id": run.id}, "app": self.check_app(repo, run), "pull_requests": [],
        })
    }

    /// Returns the workflow run of a job; each job has a separate run.
    pub fn workflow_run(&self, repo: &FakeRepo, run: &FakeCheckRun) -> Value {
        let (name, event) = run.workflow.clone().unwrap_or_default();
        let at = self.api(repo, &format!("/actions/runs/{}", run.id));
        let workflow: i64 = name.bytes().fold(7, |sum, byte| sum * 31 % 1_000_003 + i64::from(byte));
        let at_workflow = self.api(repo, &format!("/actions/workflows/{workflow}"));
        let repository = self.repo(repo, None);
        json!({
            "id": run.id, "node_id": format!("WR_{}", run.id), "name": name, "display_title": name,
            "head_branch": null, "head_sha": run.sha.as_str(), "path": format!(".github/workflows/{name}.yml"),
            "run_number": 1, "run_attempt": 1, "event": event, "workflow_id": workflow, "check_suite_id": run.id,
            "status": if run.conclusion.is_some() { "completed" } else { "in_progress" }, "conclusion": run.conclusion,
            "url": at, "html_url": self.page(repo, &format!("/actions/runs/{}", run.id)), "pull_requests": [],
            "created_at": utc(run.at), "updated_at": utc(run.at), "run_started_at": utc(run.at),
            "jobs_url": format!("{at}/jobs"), "logs_url": format!("{at}/logs"), "check_suite_url": at,
            "artifacts_url": format!("{at}/artifacts"), "cancel_url": format!("{at}/cancel"),
            "rerun_url": format!("{at}/rerun"), "workflow_url": at_workflow, "head_commit": null,
            "repository": repository, "head_repository": repository,
        })
    }

    /// Returns the job of a check run.
    pub fn job(&self, repo: &FakeRepo, run: &FakeCheckRun) -> Value {
        let at = self.api(repo, &format!("/actions/jobs/{}", run.id));
        json!({
            "id": run.id, "run_id": run.id, "run_url": self.api(repo, &format!("/actions/runs/{}", run.id)),
            "node_id": format!("J_{}", run.id), "head_sha": run.sha.as_str(), "url": at, "name": run.name,
            "html_url": self.page(repo, &format!("/actions/runs/{0}/job/{0}", run.id)),
            "status": if run.conclusion.is_some() { "completed" } else { "in_progress" }, "conclusion": run.conclusion,
            "created_at": utc(run.at), "started_at": utc(run.at),
            "completed_at": run.conclusion.as_ref().map(|_| utc(run.at)),
            "check_run_url": self.api(repo, &format!("/check-runs/{}", run.id)), "labels": [], "runner_id": null,
            "runner_name": null, "runner_group_id": null, "runner_group_name": null, "head_branch": null,
            "workflow_name": run.workflow.as_ref().map(|(name, _)| name),
        })
    }

    /// Returns the App of a check run: GitHub Actions if it belongs to a workflow, otherwise another App.
    fn check_app(&self, repo: &FakeRepo, run: &FakeCheckRun) -> Value {
        let slug = if run.workflow.is_some() { "github-actions" } else { "some-ci" };
        let id = run.set_by.as_ref().map_or(15368, |(app, _)| *app);
        json!({
            "id": id, "slug": slug, "node_id": "A_15368", "owner": self.user(repo.owner), "name": slug,
            "description": "", "external_url": self.core.at(""), "html_url": self.core.at(&format!("apps/{slug}")),
            "created_at": utc(repo.created_at), "updated_at": utc(repo.created_at), "permissions": {}, "events": [],
        })
    }
}

/// Returns the state of a review in REST; webhooks use lower case.
pub(super) fn review_state(verdict: ReviewVerdict) -> &'static str {
    match verdict {
        ReviewVerdict::Approved => "APPROVED",
        ReviewVerdict::ChangesRequested => "CHANGES_REQUESTED",
        ReviewVerdict::Dismissed => "DISMISSED",
        ReviewVerdict::Commented => "COMMENTED",
    }
}
