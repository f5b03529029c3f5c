//! GitHub's webhook payloads. Each label change has a separate delivery.

use serde_json::{Value, json};

use super::shape::{GitHubShape, with};
use super::shape_pulls::review_state;
use crate::call::utc;
use crate::core::{Core, Payload, issue_number};
use crate::state::apps::FakeApp;
use crate::state::{
    BranchPush, FakeCheckRun, FakeEvent, FakeEventKind, FakeHook, FakeIssue, FakeRepo, FakeReview, FakeState,
    FakeStatus,
};
use ralph_types::ids::{RepoId, Sha, UserId};

const NO_COMMIT: &str = "0000000000000000000000000000000000000000";

fn delivery(event: &'static str, body: &Value) -> Payload {
    Payload { event: (event.to_owned(), event.to_owned()), body: body.to_string(), covered_by: vec![event] }
}

/// Returns the ping for a new or tested webhook.
pub(crate) fn ping(core: &Core, state: &FakeState, repo: &FakeRepo, sender: UserId, hook: &FakeHook) -> Payload {
    let shape = GitHubShape { core, state };
    let body = json!({
        "zen": "Anything added dilutes everything else.", "hook_id": hook.id, "hook": shape.hook(repo, hook),
        "repository": shape.repo(repo, None), "sender": shape.user(sender),
    });
    delivery("ping", &body)
}

/// Returns the payload about an App's installation: `event` with its action, and the added and removed repositories.
pub(crate) fn of_installation(
    core: &Core,
    state: &FakeState,
    app: &FakeApp,
    (event, action): (&'static str, &str),
    changed: Option<(RepoId, bool)>,
) -> Payload {
    let shape = GitHubShape { core, state };
    let listed = |wanted: bool| -> Vec<Value> {
        let found = changed.filter(|(_, added)| *added == wanted).and_then(|(repo, _)| state.repo(repo).ok());
        found.into_iter().map(|repo| {
            let name = state.full_name(repo);
            json!({"id": repo.id.0, "node_id": format!("R_{}", repo.id), "name": repo.name, "full_name": name, "private": repo.private})
        }).collect()
    };
    let mut body = json!({
        "action": action, "installation": shape.installation(app), "sender": shape.user(app.bot), "requester": null,
    });
    if changed.is_some() {
        body["repository_selection"] = json!("selected");
        body["repositories_added"] = listed(true).into();
        body["repositories_removed"] = listed(false).into();
    }
    delivery(event, &body)
}

/// Returns the payloads of an event for a webhook that subscribes to all events. `installation` is set for an App's
/// webhook.
pub(crate) fn render(core: &Core, state: &FakeState, event: &FakeEvent, installation: Option<i64>) -> Vec<Payload> {
    let Ok(repo) = state.repo(event.repo) else { return Vec::new() };
    let shape = GitHubShape { core, state };
    let around = json!({"repository": shape.repo(repo, None), "sender": shape.user(event.actor)});
    let named = |id: i64| json!({"installation": {"id": id, "node_id": format!("MDIz{id}")}});
    let around = installation.map_or(around.clone(), |id| with(around, named(id)));
    let described = describe(&shape, repo, event);
    described.into_iter().map(|(name, fields)| delivery(name, &with(fields, around.clone()))).collect()
}

type GitHubPayloads = Vec<(&'static str, Value)>;

fn describe(shape: &GitHubShape<'_>, repo: &FakeRepo, event: &FakeEvent) -> GitHubPayloads {
    let issue = issue_number(&event.what).and_then(|number| shape.state.issue(repo.id, number).ok());
    match &event.what {
        FakeEventKind::Pushed(push) => vec![("push", about_push(shape, repo, event.actor, push))],
        FakeEventKind::IssueDeleted(issue) => {
            vec![("issues", json!({"action": "deleted", "issue": shape.issue(repo, issue)}))]
        }
        FakeEventKind::StatusSet(id) => {
            let status = repo.statuses.iter().find(|status| status.id == *id);
            status.map(|status| ("status", about_status(shape, repo, status))).into_iter().collect()
        }
        FakeEventKind::CheckRunChanged(id) => {
            let run = repo.check_runs.iter().find(|run| run.id == *id);
            run.map(|run| ("check_run", about_run(shape, repo, run))).into_iter().collect()
        }
        FakeEventKind::RepositoryChanged(action, before) => {
            let mut fields = json!({"action": action});
            if *action == "renamed" {
                fields["changes"] = json!({"repository": {"name": {"from": before}}});
            }
            vec![("repository", fields)]
        }
        FakeEventKind::HookCreated(_) => Vec::new(),
        other => issue.map(|issue| about(shape, repo, issue, other)).unwrap_or_default(),
    }
}

fn about(shape: &GitHubShape<'_>, repo: &FakeRepo, issue: &FakeIssue, what: &FakeEventKind) -> GitHubPayloads {
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
        FakeEventKind::IssueOpened(_) | FakeEventKind::PullOpened(_) => one("opened", json!({})),
        FakeEventKind::IssueClosed(_) | FakeEventKind::PullClosed(_) => one("closed", json!({})),
        FakeEventKind::IssueReopened(_) | FakeEventKind::PullReopened(_) => one("reopened", json!({})),
        FakeEventKind::IssueEdited { title, body, .. } | FakeEventKind::PullEdited { title, body, .. } => {
            one("edited", changed(title, body))
        }
        FakeEventKind::PullRetargeted(_, before) => {
            one("edited", json!({"changes": {"base": {"ref": {"from": before}}}}))
        }
        FakeEventKind::LabelsChanged { added, removed, .. } => {
            let all = removed.iter().map(|label| ("unlabeled", label));
            let all = all.chain(added.iter().map(|label| ("labeled", label)));
            let labeled = |(action, label)| {
                let extra = json!({"label": shape.label(repo, label)});
                about_issue_or_pull(shape, repo, issue, action, extra)
            };
            all.map(labeled).collect()
        }
        FakeEventKind::CommentCreated(..) | FakeEventKind::CommentEdited(..) | FakeEventKind::CommentDeleted(..) => {
            about_comment(shape, repo, issue, what).map(|fields| ("issue_comment", fields)).into_iter().collect()
        }
        FakeEventKind::PullSynchronized(_, before) => {
            let after = issue.pull.as_ref().map(|pull| pull.facts.head_sha.to_string());
            one("synchronize", json!({"before": before.as_str(), "after": after}))
        }
        FakeEventKind::PullReady(_) => one("ready_for_review", json!({})),
        FakeEventKind::PullDraft(_) => one("converted_to_draft", json!({})),
        FakeEventKind::MergeLeft(_, queue) => {
            let reason = issue.pull.iter().flat_map(|pull| &pull.merge_left).map(|(.., reason)| reason.as_str()).next();
            one(if *queue { "dequeued" } else { "auto_merge_disabled" }, json!({"reason": reason}))
        }
        FakeEventKind::ReviewRequested(_, user) => {
            one("review_requested", json!({"requested_reviewer": shape.user(*user)}))
        }
        FakeEventKind::Reviewed(_, id) => {
            let reviews = issue.pull.iter().flat_map(|pull| &pull.reviews);
            let review = reviews.into_iter().find(|review| review.id == *id);
            review.map(|review| about_review(shape, repo, issue, review)).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn about_issue_or_pull(
    shape: &GitHubShape<'_>,
    repo: &FakeRepo,
    issue: &FakeIssue,
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

fn about_comment(shape: &GitHubShape<'_>, repo: &FakeRepo, issue: &FakeIssue, what: &FakeEventKind) -> Option<Value> {
    let find = |id| issue.comments.iter().find(|comment| comment.id == id);
    let (action, comment, before) = match what {
        FakeEventKind::CommentCreated(_, id) => ("created", find(*id)?, None),
        FakeEventKind::CommentEdited(_, id, before) => ("edited", find(*id)?, Some(before)),
        FakeEventKind::CommentDeleted(_, comment) => ("deleted", &**comment, None),
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

/// Returns the payloads of a review and of each of its comments.
fn about_review(shape: &GitHubShape<'_>, repo: &FakeRepo, issue: &FakeIssue, review: &FakeReview) -> GitHubPayloads {
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

fn about_status(shape: &GitHubShape<'_>, repo: &FakeRepo, status: &FakeStatus) -> Value {
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

fn about_run(shape: &GitHubShape<'_>, repo: &FakeRepo, run: &FakeCheckRun) -> Value {
    let mut written = shape.check_run(repo, run);
    let heads = shape.state.pulls(repo.id).into_iter().find(|(_, pull)| pull.facts.head_sha == run.sha);
    written["check_suite"] = json!({
        "id": run.id, "head_branch": heads.map(|(_, pull)| pull.head.clone()), "head_sha": run.sha.as_str(),
        "status": written["status"], "conclusion": run.conclusion,
    });
    json!({"action": if run.conclusion.is_some() { "completed" } else { "created" }, "check_run": written})
}

fn about_push(shape: &GitHubShape<'_>, repo: &FakeRepo, actor: UserId, push: &BranchPush) -> Value {
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
        "head_commit": push.head.as_ref().map(written), "commits": commits,
        "pusher": {"name": login, "email": format!("{login}@noreply.localhost")},
    })
}
