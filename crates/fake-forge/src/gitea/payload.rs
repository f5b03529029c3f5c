//! Webhook payloads of Gitea 1.25. Label events do not name the changed label.

use serde_json::{Value, json};

use super::shape::GiteaShape;
use crate::GiteaVersion;
use crate::core::{Core, Payload};
use crate::state::pulls::closed_by;
use crate::state::{BranchPush, FakeEvent, FakeEventKind, FakeIssue, FakeLabel, FakeRepo, FakeState, LabelRequest};
use ralph_types::ids::ReviewVerdict;
use ralph_types::ids::{Number, Sha};

const NO_COMMIT: &str = "0000000000000000000000000000000000000000";

/// Events unknown to version 1.22, which silently drops them from a subscription.
const NOT_IN_1_22: [&str; 3] = ["status", "workflow_run", "workflow_job"];

/// Returns the events included in a subscription to groups of events (`services/webhook` in Gitea).
pub(crate) fn expand(events: &[String], version: GiteaVersion) -> Vec<String> {
    let mut expanded: Vec<String> = Vec::new();
    let mut add = |names: &[&str]| {
        for name in names {
            if !expanded.iter().any(|known| known == name) {
                expanded.push((*name).to_owned());
            }
        }
    };
    for event in events {
        match event.as_str() {
            "issues" => add(&["issues", "issue_assign", "issue_label", "issue_milestone", "issue_comment"]),
            "issues_only" => add(&["issues"]),
            "pull_request" => add(&[
                "pull_request",
                "pull_request_assign",
                "pull_request_label",
                "pull_request_milestone",
                "pull_request_comment",
                "pull_request_review_approved",
                "pull_request_review_rejected",
                "pull_request_review_comment",
                "pull_request_sync",
                "pull_request_review_request",
            ]),
            "pull_request_only" => add(&["pull_request"]),
            "pull_request_review" => {
                add(&["pull_request_review_approved", "pull_request_review_rejected", "pull_request_review_comment"]);
            }
            other => add(&[other]),
        }
    }
    if version == GiteaVersion::V1_22 {
        expanded.retain(|event| !NOT_IN_1_22.contains(&event.as_str()));
    }
    if expanded.is_empty() { vec!["push".to_owned()] } else { expanded }
}

/// Returns the payloads of an event, for a webhook that subscribes to all events.
pub(crate) fn render(core: &Core, state: &FakeState, event: &FakeEvent) -> Vec<Payload> {
    let Ok(repo) = state.repo(event.repo) else { return Vec::new() };
    let shape = GiteaShape { core, state };
    let number = crate::core::issue_number(&event.what);
    let issue = number.and_then(|number| state.issue(repo.id, number).ok());
    let sender = shape.user(event.actor);
    let mut common = json!({"repository": shape.repo(repo, None), "sender": sender});
    let mut delivery = |group: &str, exact: &'static str, fields: Value| {
        merge(&mut common, fields);
        vec![Payload { event: (group.to_owned(), exact.to_owned()), body: common.to_string(), covered_by: vec![exact] }]
    };
    match &event.what {
        FakeEventKind::Pushed(push) => push_events(&shape, repo, event, push),
        FakeEventKind::IssueDeleted(issue) => delivery("issues", "issues", about_issue(&shape, repo, issue, "deleted")),
        FakeEventKind::StatusSet(_) if state.gitea == GiteaVersion::V1_22 => Vec::new(),
        FakeEventKind::StatusSet(id) => match repo.statuses.iter().find(|status| status.id == *id) {
            Some(status) => delivery("status", "status", about_status(&shape, repo, status)),
            None => Vec::new(),
        },
        FakeEventKind::RepositoryChanged(..) | FakeEventKind::HookCreated(_) | FakeEventKind::CheckRunChanged(_) => {
            Vec::new()
        }
        other => {
            let Some(issue) = issue else { return Vec::new() };
            match about(&shape, repo, issue, other) {
                Some((group, exact, fields)) => delivery(group, exact, fields),
                None => Vec::new(),
            }
        }
    }
}

type GiteaPayload = (&'static str, &'static str, Value);

fn about(shape: &GiteaShape<'_>, repo: &FakeRepo, issue: &FakeIssue, what: &FakeEventKind) -> Option<GiteaPayload> {
    let of_issue = |action: &str| about_issue(shape, repo, issue, action);
    let of_pull = |action: &str| about_pull(shape, repo, issue, action);
    let changes = |title: &str, body: &str| {
        let mut changes = json!({"added_labels": null, "removed_labels": null});
        if title != issue.title {
            changes["title"] = json!({"from": title});
        }
        if body != issue.body {
            changes["body"] = json!({"from": body});
        }
        json!({"changes": changes})
    };
    Some(match what {
        FakeEventKind::IssueOpened(_) => ("issues", "issues", of_issue("opened")),
        FakeEventKind::IssueClosed(_) => {
            let commit = closing_commit(shape, repo, issue);
            ("issues", "issues", merged(of_issue("closed"), json!({"commit_id": commit})))
        }
        FakeEventKind::IssueAssigned(_) => {
            let action = if issue.assignees.is_empty() { "unassigned" } else { "assigned" };
            ("issues", "issue_assign", of_issue(action))
        }
        FakeEventKind::IssueReopened(_) => ("issues", "issues", of_issue("reopened")),
        FakeEventKind::IssueEdited { title, body, .. } => {
            ("issues", "issues", merged(of_issue("edited"), changes(title, body)))
        }
        FakeEventKind::LabelsChanged { removed, by, .. } => {
            return Some(about_labels(shape, repo, issue, removed, *by));
        }
        FakeEventKind::CommentCreated(..)
        | FakeEventKind::Replied(..)
        | FakeEventKind::CommentEdited(..)
        | FakeEventKind::CommentDeleted(..) => {
            return about_comment(shape, repo, issue, what);
        }
        FakeEventKind::PullOpened(_) => ("pull_request", "pull_request", of_pull("opened")),
        FakeEventKind::PullClosed(_) => ("pull_request", "pull_request", of_pull("closed")),
        FakeEventKind::PullReopened(_) => ("pull_request", "pull_request", of_pull("reopened")),
        FakeEventKind::PullEdited { title, body, .. } => {
            ("pull_request", "pull_request", merged(of_pull("edited"), changes(title, body)))
        }
        FakeEventKind::PullRetargeted(_, before) => {
            let changes = json!({"ref": {"from": before}, "added_labels": null, "removed_labels": null});
            ("pull_request", "pull_request", merged(of_pull("edited"), json!({"changes": changes})))
        }
        FakeEventKind::PullSynchronized(..) => ("pull_request", "pull_request_sync", of_pull("synchronized")),
        FakeEventKind::ReviewRequested(_, user) => {
            let fields = merged(of_pull("review_requested"), json!({"requested_reviewer": shape.user(*user)}));
            ("pull_request", "pull_request_review_request", fields)
        }
        FakeEventKind::Reviewed(_, id) => {
            let review = issue.pull.as_ref()?.reviews.iter().find(|review| review.id == *id)?;
            let (group, exact) = match review.verdict {
                ReviewVerdict::Approved => ("pull_request_approved", "pull_request_review_approved"),
                ReviewVerdict::ChangesRequested | ReviewVerdict::Dismissed => {
                    ("pull_request_rejected", "pull_request_review_rejected")
                }
                ReviewVerdict::Commented => ("pull_request_comment", "pull_request_review_comment"),
            };
            let fields = json!({
                "review": {"type": exact, "content": review.body},
                "requested_reviewer": review.author.map(|author| shape.user(author)),
            });
            (group, exact, merged(of_pull("reviewed"), fields))
        }
        _ => return None,
    })
}

/// Returns the merge commit that closed an issue; empty if a person closed it.
fn closing_commit(shape: &GiteaShape<'_>, repo: &FakeRepo, issue: &FakeIssue) -> String {
    let pulls = shape.state.pulls(repo.id);
    let mut merges = pulls.iter().filter_map(|(of, pull)| Some((of, pull.merged.as_ref()?)));
    let closed = merges.find(|(of, merged)| {
        let text = format!("{}\n{}", of.title, of.body);
        Some(merged.at) == issue.closed_at && closed_by(&text).contains(&issue.number)
    });
    closed.map_or_else(String::new, |(_, merged)| merged.sha.to_string())
}

/// Returns the payload for changed labels. Like Gitea 1.25, it contains the old labels if all were removed, and no labels if
/// all were replaced.
fn about_labels(
    shape: &GiteaShape<'_>,
    repo: &FakeRepo,
    issue: &FakeIssue,
    removed: &[FakeLabel],
    by: LabelRequest,
) -> GiteaPayload {
    let mut shown = issue.clone();
    match by {
        LabelRequest::Change => {}
        LabelRequest::Replace => shown.labels.clear(),
        LabelRequest::Clear => shown.labels = removed.iter().map(|label| label.id).collect(),
    }
    let action = if by == LabelRequest::Clear { "label_cleared" } else { "label_updated" };
    match shown.pull {
        Some(_) => ("pull_request", "pull_request_label", about_pull(shape, repo, &shown, action)),
        None => ("issues", "issue_label", about_issue(shape, repo, &shown, action)),
    }
}

fn about_comment(
    shape: &GiteaShape<'_>,
    repo: &FakeRepo,
    issue: &FakeIssue,
    what: &FakeEventKind,
) -> Option<GiteaPayload> {
    let find = |id| issue.comments.iter().find(|comment| comment.id == id);
    let reply;
    let (action, comment, before) = match what {
        FakeEventKind::CommentCreated(_, id) => ("created", find(*id)?, None),
        // A reply in a review thread looks like any comment on the pull request.
        FakeEventKind::Replied(_, id) => {
            let remarks = issue.pull.iter().flat_map(|pull| &pull.reviews).flat_map(|review| &review.remarks);
            reply = remarks.into_iter().find(|remark| remark.id == *id)?.as_comment();
            ("created", &reply, None)
        }
        FakeEventKind::CommentEdited(_, id, before) => ("edited", find(*id)?, Some(before)),
        FakeEventKind::CommentDeleted(_, comment) => ("deleted", &**comment, None),
        _ => return None,
    };
    let mut fields = json!({
        "action": action, "issue": shape.issue(repo, issue), "comment": shape.comment(repo, issue, comment),
        "is_pull": issue.pull.is_some(),
    });
    if let Some(before) = before {
        fields["changes"] = json!({"body": {"from": before}, "added_labels": null, "removed_labels": null});
    }
    if let Some(pull) = &issue.pull {
        fields["pull_request"] = shape.pull(repo, issue, pull);
    }
    let exact = if issue.pull.is_some() { "pull_request_comment" } else { "issue_comment" };
    Some(("issue_comment", exact, fields))
}

fn about_issue(shape: &GiteaShape<'_>, repo: &FakeRepo, issue: &FakeIssue, action: &str) -> Value {
    json!({"action": action, "number": issue.number.0, "issue": shape.issue(repo, issue), "commit_id": ""})
}

fn about_pull(shape: &GiteaShape<'_>, repo: &FakeRepo, issue: &FakeIssue, action: &str) -> Value {
    let pull = issue.pull.as_ref().map(|pull| shape.pull(repo, issue, pull));
    let Number(number) = issue.number;
    json!({
        "action": action, "number": number, "pull_request": pull, "requested_reviewer": null, "review": null,
        "commit_id": "",
    })
}

fn about_status(shape: &GiteaShape<'_>, repo: &FakeRepo, status: &crate::state::FakeStatus) -> Value {
    json!({
        "id": status.id, "sha": status.sha.as_str(), "state": status.state, "context": status.context,
        "description": status.description, "target_url": status.target_url,
        "name": shape.state.full_name(repo), "branches": [], "created_at": crate::call::zoned(status.at),
        "updated_at": crate::call::zoned(status.at),
    })
}

fn push_events(shape: &GiteaShape<'_>, repo: &FakeRepo, event: &FakeEvent, push: &BranchPush) -> Vec<Payload> {
    let common = json!({"repository": shape.repo(repo, None), "sender": shape.user(event.actor)});
    let one = |exact: &'static str, fields: Value| {
        let body = merged(common.clone(), fields).to_string();
        Payload { event: (exact.to_owned(), exact.to_owned()), body, covered_by: vec![exact] }
    };
    let name = |sha: &Option<Sha>| sha.as_ref().map_or(NO_COMMIT, Sha::as_str).to_owned();
    let mut payloads = Vec::new();
    if push.before.is_none() {
        let fields = json!({"sha": name(&push.after), "ref": push.branch, "ref_type": "branch"});
        payloads.push(one("create", fields));
    }
    if push.after.is_none() {
        let fields = json!({"ref": push.branch, "ref_type": "branch", "pusher_type": "user"});
        payloads.push(one("delete", fields));
    } else {
        // Gitea lists the newest commit first.
        let commits: Vec<Value> = push.commits.iter().rev().map(|commit| shape.commit(repo, commit)).collect();
        let (before, after) = (name(&push.before), name(&push.after));
        let compare = format!("{}/compare/{before}...{after}", shape.state.full_name(repo));
        let fields = json!({
            "ref": format!("refs/heads/{}", push.branch), "before": before, "after": after,
            "compare_url": shape.core.at(&compare), "total_commits": commits.len(),
            "head_commit": push.head.as_ref().map(|head| shape.commit(repo, head)), "commits": commits,
            "pusher": shape.user(event.actor),
        });
        payloads.push(one("push", fields));
    }
    payloads
}

/// Returns the push payload of `POST hooks/{id}/tests`.
pub(crate) fn test_push(core: &Core, state: &FakeState, event: &FakeEvent, push: &BranchPush) -> Vec<Payload> {
    let Ok(repo) = state.repo(event.repo) else { return Vec::new() };
    push_events(&GiteaShape { core, state }, repo, event, push)
}

fn merge(target: &mut Value, fields: Value) {
    if let (Value::Object(target), Value::Object(fields)) = (target, fields) {
        target.extend(fields);
    }
}

fn merged(mut target: Value, fields: Value) -> Value {
    merge(&mut target, fields);
    target
}
