//! Webhook payloads as Gitea 1.25 sends them. Label events say that labels changed, never which.

use serde_json::{Value, json};

use super::shape::Shape;
use crate::core::{Core, Payload};
use crate::state::{Event, Happened, Issue, Push, Repo, State};
use ralph_types::ids::ReviewVerdict;
use ralph_types::ids::{Number, Sha};

const NO_COMMIT: &str = "0000000000000000000000000000000000000000";

/// What a subscription to a group of events turns on (`services/webhook` of Gitea).
pub(crate) fn expand(events: &[String]) -> Vec<String> {
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
    if expanded.is_empty() { vec!["push".to_owned()] } else { expanded }
}

/// The deliveries of an event, for a hook that wants all.
pub(crate) fn render(core: &Core, state: &State, event: &Event) -> Vec<Payload> {
    let Ok(repo) = state.repo(event.repo) else { return Vec::new() };
    let shape = Shape { core, state };
    let number = crate::core::issue_number(&event.what);
    let issue = number.and_then(|number| state.issue(repo.id, number).ok());
    let sender = shape.user(event.actor);
    let mut whole = json!({"repository": shape.repo(repo, None), "sender": sender});
    let mut delivery = |group: &str, exact: &'static str, fields: Value| {
        merge(&mut whole, fields);
        vec![Payload { event: (group.to_owned(), exact.to_owned()), body: whole.to_string(), covered_by: vec![exact] }]
    };
    match &event.what {
        Happened::Pushed(push) => push_events(&shape, repo, event, push),
        Happened::IssueDeleted(issue) => delivery("issues", "issues", about_issue(&shape, repo, issue, "deleted")),
        Happened::StatusSet(id) => match repo.statuses.iter().find(|status| status.id == *id) {
            Some(status) => delivery("status", "status", about_status(&shape, repo, status)),
            None => Vec::new(),
        },
        Happened::RepositoryChanged(..) | Happened::HookCreated(_) | Happened::CheckRunChanged(_) => Vec::new(),
        other => {
            let Some(issue) = issue else { return Vec::new() };
            match about(&shape, repo, issue, other) {
                Some((group, exact, fields)) => delivery(group, exact, fields),
                None => Vec::new(),
            }
        }
    }
}

type Described = (&'static str, &'static str, Value);

fn about(shape: &Shape<'_>, repo: &Repo, issue: &Issue, what: &Happened) -> Option<Described> {
    let of_issue = |action: &str| about_issue(shape, repo, issue, action);
    let of_pull = |action: &str| about_pull(shape, repo, issue, action);
    let changes = |title: &str, body: &str| {
        let mut changes = json!({});
        if title != issue.title {
            changes["title"] = json!({"from": title});
        }
        if body != issue.body {
            changes["body"] = json!({"from": body});
        }
        json!({"changes": changes})
    };
    Some(match what {
        Happened::IssueOpened(_) => ("issues", "issues", of_issue("opened")),
        Happened::IssueClosed(_) => ("issues", "issues", of_issue("closed")),
        Happened::IssueReopened(_) => ("issues", "issues", of_issue("reopened")),
        Happened::IssueEdited { title, body, .. } => {
            ("issues", "issues", merged(of_issue("edited"), changes(title, body)))
        }
        Happened::LabelsChanged { .. } => {
            let action = if issue.labels.is_empty() { "label_cleared" } else { "label_updated" };
            match issue.pull {
                Some(_) => ("pull_request", "pull_request_label", of_pull(action)),
                None => ("issues", "issue_label", of_issue(action)),
            }
        }
        Happened::CommentCreated(..) | Happened::CommentEdited(..) | Happened::CommentDeleted(..) => {
            return about_comment(shape, repo, issue, what);
        }
        Happened::PullOpened(_) => ("pull_request", "pull_request", of_pull("opened")),
        Happened::PullClosed(_) => ("pull_request", "pull_request", of_pull("closed")),
        Happened::PullReopened(_) => ("pull_request", "pull_request", of_pull("reopened")),
        Happened::PullEdited { title, body, .. } => {
            ("pull_request", "pull_request", merged(of_pull("edited"), changes(title, body)))
        }
        Happened::PullSynchronized(..) => ("pull_request", "pull_request_sync", of_pull("synchronized")),
        Happened::ReviewRequested(_, user) => {
            let fields = merged(of_pull("review_requested"), json!({"requested_reviewer": shape.user(*user)}));
            ("pull_request", "pull_request_review_request", fields)
        }
        Happened::Reviewed(_, id) => {
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

fn about_comment(shape: &Shape<'_>, repo: &Repo, issue: &Issue, what: &Happened) -> Option<Described> {
    let find = |id| issue.comments.iter().find(|comment| comment.id == id);
    let (action, comment, before) = match what {
        Happened::CommentCreated(_, id) => ("created", find(*id)?, None),
        Happened::CommentEdited(_, id, before) => ("edited", find(*id)?, Some(before)),
        Happened::CommentDeleted(_, comment) => ("deleted", &**comment, None),
        _ => return None,
    };
    let mut fields = json!({
        "action": action, "issue": shape.issue(repo, issue), "comment": shape.comment(repo, issue, comment),
        "is_pull": issue.pull.is_some(),
    });
    if let Some(before) = before {
        fields["changes"] = json!({"body": {"from": before}});
    }
    if let Some(pull) = &issue.pull {
        fields["pull_request"] = shape.pull(repo, issue, pull);
    }
    let exact = if issue.pull.is_some() { "pull_request_comment" } else { "issue_comment" };
    Some(("issue_comment", exact, fields))
}

fn about_issue(shape: &Shape<'_>, repo: &Repo, issue: &Issue, action: &str) -> Value {
    json!({"action": action, "number": issue.number.0, "issue": shape.issue(repo, issue), "commit_id": ""})
}

fn about_pull(shape: &Shape<'_>, repo: &Repo, issue: &Issue, action: &str) -> Value {
    let pull = issue.pull.as_ref().map(|pull| shape.pull(repo, issue, pull));
    let commit = issue.pull.as_ref().and_then(|pull| pull.merged.as_ref()).map_or("", |merged| merged.sha.as_str());
    let Number(number) = issue.number;
    json!({
        "action": action, "number": number, "pull_request": pull, "requested_reviewer": null, "review": null,
        "commit_id": commit,
    })
}

fn about_status(shape: &Shape<'_>, repo: &Repo, status: &crate::state::Status) -> Value {
    json!({
        "id": status.id, "sha": status.sha.as_str(), "state": status.state, "context": status.context,
        "description": status.description, "target_url": status.target_url,
        "name": shape.state.full_name(repo), "branches": [], "created_at": crate::call::zoned(status.at),
        "updated_at": crate::call::zoned(status.at),
    })
}

fn push_events(shape: &Shape<'_>, repo: &Repo, event: &Event, push: &Push) -> Vec<Payload> {
    let whole = json!({"repository": shape.repo(repo, None), "sender": shape.user(event.actor)});
    let one = |exact: &'static str, fields: Value| {
        let body = merged(whole.clone(), fields).to_string();
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
            "head_commit": commits.first().cloned().unwrap_or(Value::Null), "commits": commits,
            "pusher": shape.user(event.actor),
        });
        payloads.push(one("push", fields));
    }
    payloads
}

/// The synthetic push that `POST hooks/{id}/tests` sends.
pub(crate) fn test_push(core: &Core, state: &State, event: &Event, push: &Push) -> Vec<Payload> {
    let Ok(repo) = state.repo(event.repo) else { return Vec::new() };
    push_events(&Shape { core, state }, repo, event, push)
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
