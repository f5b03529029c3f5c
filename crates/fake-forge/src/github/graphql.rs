//! Parts of GitHub's GraphQL API without a REST equivalent: drafts, minimized comments and edit histories. The requested
//! field identifies a query; all others are rejected like unknown fields on GitHub.

use serde_json::{Value, json};

use super::apps::reaches;
use super::shape::{node, of_node};
use crate::call::{FakeAnswer, FakeCall, FakeReply, SignedIn, utc};
use crate::core::Core;
use crate::git::MergeMethod;
use crate::state::{Access, FakeRefusal, FakeReviewComment, FakeState};
use ralph_types::ids::{AccountKind, CommentId, Number, RepoId, UserId};

/// Maximum number of edits on a page.
const PAGE: usize = 100;

/// Handles a query or mutation.
pub(super) fn dispatch(core: &Core, call: &FakeCall) -> FakeAnswer {
    call.actor()?;
    let query = call.needed("query")?;
    let outcome = if query.contains("markPullRequestReadyForReview(") {
        draft(core, call, false)
    } else if query.contains("convertPullRequestToDraft(") {
        draft(core, call, true)
    } else if query.contains("enablePullRequestAutoMerge(") {
        enable_auto_merge(core, call)
    } else if query.contains("disablePullRequestAutoMerge(") {
        disable_auto_merge(core, call)
    } else if query.contains("autoMergeAllowed") {
        merge_settings(core, call)
    } else if query.contains("isInMergeQueue") {
        still_merges(core, call)
    } else if query.contains("minimizeComment(") {
        minimize(core, call)
    } else if query.contains("resolveReviewThread(") {
        resolve(core, call)
    } else if query.contains("reviewThreads(") {
        threads(core, call)
    } else if query.contains("deleteIssue(") {
        delete_issue(core, call)
    } else if query.contains("userContentEdits(") {
        edits(core, call)
    } else {
        Err(FakeRefusal::Invalid("this field does not exist here".to_owned()))
    };
    let body = match outcome {
        Ok(data) => json!({"data": data}),
        Err(refusal) => {
            let (kind, message) = match &refusal {
                FakeRefusal::NotFound(text) => ("NOT_FOUND", format!("Could not resolve to a node: {text}")),
                FakeRefusal::Forbidden(text) => ("FORBIDDEN", text.clone()),
                FakeRefusal::Conflict(text) => ("UNPROCESSABLE", text.clone()),
                other => ("undefinedField", other.to_string()),
            };
            json!({"data": null, "errors": [{"type": kind, "message": message, "path": [], "locations": []}]})
        }
    };
    Ok(FakeReply::json(200, &body))
}

fn variable<'a>(call: &'a FakeCall, name: &str) -> &'a Value {
    call.body.get("variables").and_then(|variables| variables.get(name)).unwrap_or(&Value::Null)
}

/// Fails unless the account can read the repository. An installation token must include the repository and at least
/// one of the permissions.
fn permitted(core: &Core, call: &FakeCall, repo: RepoId, any: &[(&str, &str)]) -> Result<(), FakeRefusal> {
    let actor = call.actor()?;
    core.act(|state| state.require(repo, actor, Access::Read))?;
    let SignedIn::Installation(_, narrowed) = &call.signed_in else { return Ok(()) };
    reaches(core, narrowed, repo)?;
    match any.iter().any(|(permission, level)| narrowed.permits(permission, level)) {
        true => Ok(()),
        false => Err(FakeRefusal::Forbidden("Resource not accessible by integration".to_owned())),
    }
}

/// Parses the variable `id` as a node of the given kind.
fn subject(call: &FakeCall, kind: &str) -> Result<(RepoId, i64), FakeRefusal> {
    let text = variable(call, "id").as_str().unwrap_or_default();
    let node = of_node(text).filter(|node| node.0 == kind).map(|(_, repo, id)| (repo, id));
    node.ok_or_else(|| FakeRefusal::NotFound(format!("the global id of '{text}'")))
}

fn draft(core: &Core, call: &FakeCall, draft: bool) -> Result<Value, FakeRefusal> {
    let (repo, number) = subject(call, "PR")?;
    permitted(core, call, repo, &[("pull_requests", "write")])?;
    // GitHub requires this permission as well.
    permitted(core, call, repo, &[("contents", "write")])?;
    let (actor, number) = (call.actor()?, Number(number.unsigned_abs()));
    core.act(|state| if draft { state.set_draft(actor, repo, number) } else { state.set_ready(actor, repo, number) })?;
    let field = if draft { "convertPullRequestToDraft" } else { "markPullRequestReadyForReview" };
    Ok(json!({field: {"pullRequest": {"isDraft": draft}}}))
}

fn merge_settings(core: &Core, call: &FakeCall) -> Result<Value, FakeRefusal> {
    let text = |name: &str| variable(call, name).as_str().unwrap_or_default().to_owned();
    let repo = core.act(|state| state.find_repo(&text("owner"), &text("name")).map(|repo| repo.id))?;
    permitted(core, call, repo, &[("pull_requests", "read")])?;
    let number = Number(variable(call, "number").as_u64().unwrap_or(0));
    core.act(|state| {
        let (entry, (_, pull)) = (state.repo(repo)?, state.pull(repo, number)?);
        let request = pull.auto_merge.map(|_| json!({"enabledAt": utc(state.clock.now())}));
        let of_pull = json!({
            "id": node("PR", repo, number.0.cast_signed()), "headRefOid": pull.facts.head_sha.as_str(),
            "merged": pull.merged.is_some(), "autoMergeRequest": request,
        });
        Ok(json!({"repository": {
            "autoMergeAllowed": entry.auto_merge_allowed, "viewerDefaultMergeMethod": "MERGE", "mergeCommitAllowed": true,
            "squashMergeAllowed": true, "rebaseMergeAllowed": true, "pullRequest": of_pull,
        }}))
    })
}

fn still_merges(core: &Core, call: &FakeCall) -> Result<Value, FakeRefusal> {
    let text = |name: &str| variable(call, name).as_str().unwrap_or_default().to_owned();
    let repo = core.act(|state| state.find_repo(&text("owner"), &text("name")).map(|repo| repo.id))?;
    permitted(core, call, repo, &[("pull_requests", "read")])?;
    let number = Number(variable(call, "number").as_u64().unwrap_or(0));
    core.act(|state| {
        let (_, pull) = state.pull(repo, number)?;
        let request = pull.auto_merge.map(|_| json!({"enabledAt": utc(state.clock.now())}));
        let end = |(actor, queue, reason): &(UserId, bool, String)| {
            let kind = if *queue { "RemovedFromMergeQueueEvent" } else { "AutoMergeDisabledEvent" };
            let login = state.accounts.get(actor).map(|account| account.user.login.clone());
            json!({"__typename": kind, "actor": {"login": login}, "reason": reason})
        };
        let nodes: Vec<Value> = pull.merge_left.iter().map(end).collect();
        Ok(json!({"repository": {"pullRequest": {
            "merged": pull.merged.is_some(), "isInMergeQueue": false, "autoMergeRequest": request,
            "timelineItems": {"nodes": nodes},
        }}}))
    })
}

fn enable_auto_merge(core: &Core, call: &FakeCall) -> Result<Value, FakeRefusal> {
    let (repo, number) = subject(call, "PR")?;
    permitted(core, call, repo, &[("pull_requests", "write")])?;
    permitted(core, call, repo, &[("contents", "write")])?;
    let (actor, number) = (call.actor()?, Number(number.unsigned_abs()));
    let method = match variable(call, "method").as_str() {
        Some("SQUASH") => MergeMethod::Squash,
        Some("REBASE") => MergeMethod::Rebase,
        _ => MergeMethod::Merge,
    };
    let expected = variable(call, "head").as_str().unwrap_or_default().to_owned();
    core.act(|state| {
        let (entry, (issue, pull)) = (state.repo(repo)?, state.pull(repo, number)?);
        let head = &pull.facts.head_sha;
        let refusal = if !entry.auto_merge_allowed {
            Some("Auto merge is not allowed for this repository")
        } else if !issue.open || pull.draft {
            Some("Pull request is in draft state")
        } else if !expected.is_empty() && expected != head.as_str() {
            Some("Head sha didn't match expected head sha")
        } else if !entry.merge_rules.contains_key(&pull.base) {
            Some("Protected branch rules not configured for this branch")
        } else if state.unmet_rule(repo, number)?.is_none() {
            // No rule requires anything to wait for.
            Some(if state.all_checks_succeeded(repo, head) {
                "Pull request is in clean status"
            } else {
                "Pull request is in unstable status"
            })
        } else {
            None
        };
        match refusal {
            Some(text) => Err(FakeRefusal::Conflict(format!("Pull request {text}"))),
            None => state.set_auto_merge(actor, repo, number, Some(method)),
        }
    })?;
    Ok(json!({"enablePullRequestAutoMerge": {"pullRequest": {"id": variable(call, "id")}}}))
}

fn disable_auto_merge(core: &Core, call: &FakeCall) -> Result<Value, FakeRefusal> {
    let (repo, number) = subject(call, "PR")?;
    permitted(core, call, repo, &[("pull_requests", "write")])?;
    let (actor, number) = (call.actor()?, Number(number.unsigned_abs()));
    core.act(|state| {
        if state.pull(repo, number)?.1.auto_merge.is_none() {
            return Err(FakeRefusal::Conflict("Can't disable auto-merge for this pull request.".to_owned()));
        }
        state.set_auto_merge(actor, repo, number, None)
    })?;
    Ok(json!({"disablePullRequestAutoMerge": {"pullRequest": {"id": variable(call, "id")}}}))
}

fn minimize(core: &Core, call: &FakeCall) -> Result<Value, FakeRefusal> {
    let (repo, id) = subject(call, "IC")?;
    permitted(core, call, repo, &[("issues", "write"), ("pull_requests", "write")])?;
    let actor = call.actor()?;
    core.act(|state| state.minimize(actor, repo, CommentId(id)))?;
    Ok(json!({"minimizeComment": {"minimizedComment": {"isMinimized": true}}}))
}

fn resolve(core: &Core, call: &FakeCall) -> Result<Value, FakeRefusal> {
    let (repo, id) = subject(call, "PRRT")?;
    permitted(core, call, repo, &[("pull_requests", "write")])?;
    core.act(|state| state.remark_mut(repo, CommentId(id)).map(|(_, remark)| remark.resolved = true))?;
    Ok(json!({"resolveReviewThread": {"thread": {"isResolved": true}}}))
}

fn threads(core: &Core, call: &FakeCall) -> Result<Value, FakeRefusal> {
    let text = |name: &str| variable(call, name).as_str().unwrap_or_default().to_owned();
    let repo = core.act(|state| state.find_repo(&text("owner"), &text("name")).map(|repo| repo.id))?;
    permitted(core, call, repo, &[("pull_requests", "read")])?;
    let number = Number(variable(call, "number").as_u64().unwrap_or(0));
    core.act(|state| {
        let (_, pull) = state.pull(repo, number)?;
        let all: Vec<_> = pull.reviews.iter().filter(|review| !review.pending).flat_map(|one| &one.remarks).collect();
        let thread = |first: &&&FakeReviewComment| {
            let of_thread = all.iter().filter(|one| one.id == first.id || one.reply_to == Some(first.id));
            let comments: Vec<Value> = of_thread.map(|one| json!({"databaseId": one.id.0})).collect();
            let id = node("PRRT", repo, first.id.0);
            json!({"id": id, "isResolved": first.resolved, "comments": {"nodes": comments}})
        };
        let nodes: Vec<Value> = all.iter().filter(|one| one.reply_to.is_none()).map(|one| thread(&one)).collect();
        let page = json!({"hasNextPage": false, "endCursor": null});
        Ok(json!({"repository": {"pullRequest": {"reviewThreads": {"pageInfo": page, "nodes": nodes}}}}))
    })
}

fn delete_issue(core: &Core, call: &FakeCall) -> Result<Value, FakeRefusal> {
    let text = variable(call, "id").as_str().unwrap_or_default();
    let node =
        of_node(text).filter(|node| node.0 == "I").map(|(_, repo, number)| (repo, Number(number.unsigned_abs())));
    let (repo, number) = node.ok_or_else(|| FakeRefusal::NotFound(format!("the global id of '{text}'")))?;
    let actor = call.actor()?;
    core.act(|state| state.delete_issue(actor, repo, number))?;
    Ok(json!({"deleteIssue": {"clientMutationId": null}}))
}

fn edits(core: &Core, call: &FakeCall) -> Result<Value, FakeRefusal> {
    let text = |name: &str| variable(call, name).as_str().unwrap_or_default().to_owned();
    let repo = core.act(|state| match state.find_repo(&text("owner"), &text("name")) {
        // GraphQL accepts previous names.
        Err(FakeRefusal::Moved(id)) => Ok(id),
        other => other.map(|repo| repo.id),
    })?;
    permitted(core, call, repo, &[("issues", "read"), ("pull_requests", "read")])?;
    let number = Number(variable(call, "number").as_u64().unwrap_or(0));
    let start: usize = text("after").parse().unwrap_or(0);
    core.act(|state| {
        let issue = state.issue(repo, number)?;
        let editor = |state: &FakeState, id| {
            let user = state.user(id);
            let kind = if user.kind == AccountKind::Bot { "Bot" } else { "User" };
            // GraphQL omits the suffix of a bot's login.
            let login = user.login.trim_end_matches("[bot]").to_owned();
            json!({"__typename": kind, "login": login, "databaseId": id.0})
        };
        // Newest first. The original text is last, and only present if there was an edit.
        let mut nodes: Vec<Value> = issue
            .edits
            .iter()
            .rev()
            .map(|edit| json!({"editedAt": utc(edit.at), "editor": editor(state, edit.editor)}))
            .collect();
        if !nodes.is_empty() {
            let author = issue.author.map(|author| editor(state, author));
            nodes.push(json!({"editedAt": utc(issue.created_at), "editor": author}));
        }
        let end = (start + PAGE).min(nodes.len());
        let page: Vec<Value> = nodes.iter().skip(start).take(PAGE).cloned().collect();
        let info = json!({"hasNextPage": end < nodes.len(), "endCursor": end.to_string()});
        let history =
            json!({"createdAt": utc(issue.created_at), "userContentEdits": {"pageInfo": info, "nodes": page}});
        Ok(json!({"repository": {"issueOrPullRequest": history}}))
    })
}
