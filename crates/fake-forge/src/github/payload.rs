//! Webhook payloads as GitHub sends them: each label has a delivery of its own that names it.

use serde_json::{Value, json};

use super::shape::{Shape, with};
use super::shape_pulls::review_state;
use crate::call::utc;
use crate::core::{Core, Payload, issue_number};
use crate::state::{CheckRun, Event, Happened, Hook, Issue, Push, Repo, Review, State, Status};
use ralph_types::ids::{Sha, UserId};

const NO_COMMIT: &str = "0000000000000000000000000000000000000000";

fn delivery(event: &'static str, body: &Value) -> Payload {
    Payload { event: (event.to_owned(), event.to_owned()), body: body.to_string(), covered_by: vec![event] }
}

/// What a new webhook, and one that is tested, is sent.
pub(crate) fn ping(core: &Core, state: &State, repo: &Repo, sender: UserId, hook: &Hook) -> Payload {
    let shape = Shape { core, state };
    let body = json!({
        "zen": "Anything added dilutes everything else.", "hook_id": hook.id, "hook": shape.hook(repo, hook),
        "repository": shape.repo(repo, None), "sender": shape.user(sender),
    });
    delivery("ping", &body)
}

/// The deliveries of an event for a hook that wants all; `installation` is set for an App's hook.
pub(crate) fn render(core: &Core, state: &State, event: &Event, installation: Option<i64>) -> Vec<Payload> {
    let Ok(repo) = state.repo(event.repo) else { return Vec::new() };
    let shape = Shape { core, state };
    let around = json!({"repository": shape.repo(repo, None), "sender": shape.user(event.actor)});
    let named = |id: i64| json!({"installation": {"id": id, "node_id": format!("MDIz{id}")}});
    let around = installation.map_or(around.clone(), |id| with(around, named(id)));
    let described = describe(&shape, repo, event);
    described.into_iter().map(|(name, fields)| delivery(name, &with(fields, around.clone()))).collect()
}

type Described = Vec<(&'static str, Value)>;

fn describe(shape: &Shape<'_>, repo: &Repo, event: &Event) -> Described {
    let issue = issue_number(&event.what).and_then(|number| shape.state.issue(repo.id, number).ok());
    match &event.what {
        Happened::Pushed(push) => vec![("push", about_push(shape, repo, event.actor, push))],
        Happened::IssueDeleted(issue) => {
            vec![("issues", json!({"action": "deleted", "issue": shape.issue(repo, issue)}))]
        }
        Happened::StatusSet(id) => {
            let status = repo.statuses.iter().find(|status| status.id == *id);
            status.map(|status| ("status", about_status(shape, repo, status))).into_iter().collect()
        }
        Happened::CheckRunChanged(id) => {
            let run = repo.check_runs.iter().find(|run| run.id == *id);
            run.map(|run| ("check_run", about_run(shape, repo, run))).into_iter().collect()
        }
        Happened::RepositoryChanged(action, before) => {
            let mut fields = json!({"action": action});
            if *action == "renamed" {
                fields["changes"] = json!({"repository": {"name": {"from": before}}});
            }
            vec![("repository", fields)]
        }
        Happened::HookCreated(_) => Vec::new(),
        other => issue.map(|issue| about(shape, repo, issue, other)).unwrap_or_default(),
    }
}

fn about(shape: &Shape<'_>, repo: &Repo, issue: &Issue, what: &Happened) -> Described {
    let changed = |title: &str, body: &str| {
        let mut changes = json!({});
        if title != issue.title {
            changes["title"] = json!({"from": title});
        }
        if body != issue.body {
            changes["body"] = json!({"from": body});
        }
        json!({"changes": changes})
    };
    let one = |action: &str, extra: Value| vec![about_issue_or_pull(shape, repo, issue, action, extra)];
    match what {
        Happened::IssueOpened(_) | Happened::PullOpened(_) => one("opened", json!({})),
        Happened::IssueClosed(_) | Happened::PullClosed(_) => one("closed", json!({})),
        Happened::IssueReopened(_) | Happened::PullReopened(_) => one("reopened", json!({})),
        Happened::IssueEdited { title, body, .. } | Happened::PullEdited { title, body, .. } => {
            one("edited", changed(title, body))
        }
        Happened::LabelsChanged { added, removed, .. } => {
            let all = removed.iter().map(|label| ("unlabeled", label));
            let all = all.chain(added.iter().map(|label| ("labeled", label)));
            let labelled = |(action, label)| {
                let extra = json!({"label": shape.label(repo, label)});
                about_issue_or_pull(shape, repo, issue, action, extra)
            };
            all.map(labelled).collect()
        }
        Happened::CommentCreated(..) | Happened::CommentEdited(..) | Happened::CommentDeleted(..) => {
            about_comment(shape, repo, issue, what).map(|fields| ("issue_comment", fields)).into_iter().collect()
        }
        Happened::PullSynchronized(_, before) => {
            let after = issue.pull.as_ref().map(|pull| pull.facts.head_sha.to_string());
            one("synchronize", json!({"before": before.as_str(), "after": after}))
        }
        Happened::PullReady(_) => one("ready_for_review", json!({})),
        Happened::ReviewRequested(_, user) => one("review_requested", json!({"requested_reviewer": shape.user(*user)})),
        Happened::Reviewed(_, id) => {
            let reviews = issue.pull.iter().flat_map(|pull| &pull.reviews);
            let review = reviews.into_iter().find(|review| review.id == *id);
            review.map(|review| about_review(shape, repo, issue, review)).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn about_issue_or_pull(
    shape: &Shape<'_>,
    repo: &Repo,
    issue: &Issue,
    action: &str,
    extra: Value,
) -> (&'static str, Value) {
    match &issue.pull {
        None => ("issues", with(json!({"action": action, "issue": shape.issue(repo, issue)}), extra)),
        Some(pull) => {
            let pull = shape.whole_pull(repo, issue, pull);
            let fields = json!({"action": action, "number": issue.number.0, "pull_request": pull});
            ("pull_request", with(fields, extra))
        }
    }
}

fn about_comment(shape: &Shape<'_>, repo: &Repo, issue: &Issue, what: &Happened) -> Option<Value> {
    let find = |id| issue.comments.iter().find(|comment| comment.id == id);
    let (action, comment, before) = match what {
        Happened::CommentCreated(_, id) => ("created", find(*id)?, None),
        Happened::CommentEdited(_, id, before) => ("edited", find(*id)?, Some(before)),
        Happened::CommentDeleted(_, comment) => ("deleted", &**comment, None),
        _ => return None,
    };
    let mut fields = json!({
        "action": action, "issue": shape.issue(repo, issue), "comment": shape.comment(repo, issue, comment),
    });
    if let Some(before) = before {
        fields["changes"] = json!({"body": {"from": before}});
    }
    Some(fields)
}

/// A review, and each of its remarks.
fn about_review(shape: &Shape<'_>, repo: &Repo, issue: &Issue, review: &Review) -> Described {
    let pull = issue.pull.as_ref().map(|pull| shape.pull(repo, issue, pull));
    let mut written = shape.review(repo, issue, review);
    written["state"] = json!(review_state(review.verdict).to_ascii_lowercase());
    let mut all =
        vec![("pull_request_review", json!({"action": "submitted", "review": written, "pull_request": pull}))];
    for remark in &review.remarks {
        let comment = shape.remark(repo, issue, review, remark);
        let fields = json!({"action": "created", "comment": comment, "pull_request": pull});
        all.push(("pull_request_review_comment", fields));
    }
    all
}

fn about_status(shape: &Shape<'_>, repo: &Repo, status: &Status) -> Value {
    let sha = status.sha.as_str();
    let heads = shape.state.pulls(repo.id).into_iter().filter(|(_, pull)| pull.facts.head_sha == status.sha);
    let branches: Vec<Value> = heads
        .map(|(_, pull)| {
            let url = shape.api(repo, &format!("/commits/{sha}"));
            json!({"name": pull.head, "commit": {"sha": sha, "url": url}, "protected": false})
        })
        .collect();
    json!({
        "id": status.id, "sha": sha, "name": shape.state.full_name(repo), "target_url": status.target_url,
        "context": status.context, "description": status.description, "state": status.state,
        "commit": {"sha": sha, "node_id": format!("C_{sha}"), "url": shape.api(repo, &format!("/commits/{sha}"))},
        "branches": branches, "created_at": utc(status.at), "updated_at": utc(status.at),
    })
}

fn about_run(shape: &Shape<'_>, repo: &Repo, run: &CheckRun) -> Value {
    let mut written = shape.check_run(repo, run);
    let heads = shape.state.pulls(repo.id).into_iter().find(|(_, pull)| pull.facts.head_sha == run.sha);
    written["check_suite"] = json!({
        "id": run.id, "head_branch": heads.map(|(_, pull)| pull.head.clone()), "head_sha": run.sha.as_str(),
        "status": written["status"], "conclusion": run.conclusion,
    });
    json!({"action": if run.conclusion.is_some() { "completed" } else { "created" }, "check_run": written})
}

fn about_push(shape: &Shape<'_>, repo: &Repo, actor: UserId, push: &Push) -> Value {
    let name = |sha: &Option<Sha>| sha.as_ref().map_or(NO_COMMIT, Sha::as_str).to_owned();
    let (before, after) = (name(&push.before), name(&push.after));
    let written = |commit: &crate::state::PushedCommit| {
        let person = json!({"name": commit.author, "email": commit.email, "username": commit.author});
        json!({
            "id": commit.sha.as_str(), "tree_id": commit.tree.as_str(), "distinct": true, "message": commit.message,
            "timestamp": utc(commit.at), "url": shape.page(repo, &format!("/commit/{}", commit.sha)),
            "author": person, "committer": person, "added": [], "removed": [], "modified": [],
        })
    };
    // GitHub lists the oldest commit first.
    let commits: Vec<Value> = push.commits.iter().map(written).collect();
    let login = shape.state.user(actor).login;
    json!({
        "ref": format!("refs/heads/{}", push.branch), "before": before, "after": after,
        "created": push.before.is_none(), "deleted": push.after.is_none(), "forced": push.forced, "base_ref": null,
        "compare": shape.page(repo, &format!("/compare/{before}...{after}")),
        "head_commit": commits.last().cloned().unwrap_or(Value::Null), "commits": commits,
        "pusher": {"name": login, "email": format!("{login}@noreply.localhost")},
    })
}
