//! GitHub's API for pull requests and reviews.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::shape::{GitHubShape, state_of};
use super::{PAGE, address, answer_with, nothing_here};
use crate::call::{FakeAnswer, FakeCall, FakeReply, id, number};
use crate::core::Core;
use crate::git::MergeMethod;
use crate::state::pulls::{PullDraft, ReviewDraft};
use crate::state::{FakeFork, FakeIssue, FakePull, FakeRefusal, FakeReview, FakeState};
use ralph_types::ids::ReviewVerdict;
use ralph_types::ids::{CommentId, Number, RepoId};

/// Handles `pulls…` of a repository.
pub(super) async fn dispatch(core: &Arc<Core>, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    match (call.method.as_str(), rest) {
        ("GET", []) => list(core, call, repo),
        ("POST", []) => open(core, call, repo).await,
        ("GET", ["comments", text]) => {
            let wanted = CommentId(id(text)?);
            answer_with(core, repo, 200, |shape, entry| {
                let pulls = shape.state.pulls(repo);
                let all = pulls.iter().flat_map(|(issue, pull)| pull.reviews.iter().map(move |review| (issue, review)));
                let mut all =
                    all.flat_map(|(issue, review)| review.remarks.iter().map(move |one| (issue, review, one)));
                let found = all.find(|(_, _, remark)| remark.id == wanted).ok_or_else(nothing_here)?;
                Ok(shape.remark(entry, found.0, found.1, found.2))
            })
        }
        ("GET", [text]) => {
            let number = number(text)?;
            let reply = pull_json(core, repo, 200, number);
            core.act(|state| state.pull_was_read(repo, number));
            reply
        }
        ("PATCH", [text]) => {
            let (actor, number) = (call.actor()?, number(text)?);
            core.act(|state| {
                state.pull(repo, number)?;
                super::issues::edit(state, call, actor, repo, number)
            })?;
            if let Some(base) = call.text("base") {
                core.retarget(actor, repo, number, base).await?;
            }
            pull_json(core, repo, 200, number)
        }
        ("POST", ["comments", text, "reactions"]) => {
            let (actor, content, wanted) = (call.actor()?, call.needed("content")?, CommentId(id(text)?));
            core.act(|state| {
                let (reaction, new) = state.react_to_remark(actor, repo, wanted, content)?;
                Ok(FakeReply::json(if new { 201 } else { 200 }, &GitHubShape { core, state }.reaction(&reaction)))
            })
        }
        ("GET", ["comments", text, "reactions"]) => {
            let wanted = CommentId(id(text)?);
            let list = core.act(|state| {
                let found = state.remark_mut(repo, wanted)?.1.reactions.clone();
                let shape = GitHubShape { core, state };
                Ok(found.iter().map(|reaction| shape.reaction(reaction)).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        ("POST", [text, "comments", first, "replies"]) => {
            let (actor, number, first) = (call.actor()?, number(text)?, CommentId(id(first)?));
            let body = call.needed("body")?;
            core.act(|state| {
                let (review, reply) = state.reply(actor, repo, number, first, body)?;
                let state: &FakeState = state;
                let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
                let (issue, pull) = state.pull(repo, number)?;
                let review = pull.reviews.iter().find(|known| known.id == review).ok_or_else(nothing_here)?;
                let remark = review.remarks.iter().find(|known| known.id == reply).ok_or_else(nothing_here)?;
                Ok(FakeReply::json(201, &shape.remark(entry, issue, review, remark)))
            })
        }
        ("PUT", [text, "merge"]) => merge(core, call, repo, number(text)?).await,
        (_, [text, "requested_reviewers"]) => requested(core, call, repo, number(text)?),
        (_, [text, "reviews", rest @ ..]) => reviews(core, call, repo, number(text)?, rest),
        ("GET", [text, "comments"]) => {
            let number = number(text)?;
            let list = core.act(|state| {
                let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
                let (issue, pull) = state.pull(repo, number)?;
                let seen = pull.reviews.iter().filter(|review| !review.pending);
                let all = seen.flat_map(|review| review.remarks.iter().map(move |one| (review, one)));
                Ok(all.map(|(review, remark)| shape.remark(entry, issue, review, remark)).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        _ => Err(nothing_here()),
    }
}

fn pull_json(core: &Core, repo: RepoId, status: u16, wanted: Number) -> FakeAnswer {
    answer_with(core, repo, status, |shape, entry| {
        let (issue, pull) = shape.state.pull(repo, wanted)?;
        Ok(shape.whole_pull(entry, issue, pull))
    })
}

fn list(core: &Core, call: &FakeCall, repo: RepoId) -> FakeAnswer {
    let wanted = call.param("state").unwrap_or("open");
    let list = core.act(|state| {
        let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
        let owner = state.user(entry.owner).login;
        let mut pulls: Vec<(&FakeIssue, &FakePull)> = state.pulls(repo);
        if call.param("sort") == Some("updated") {
            pulls.sort_by_key(|(issue, _)| std::cmp::Reverse(issue.updated_at));
        }
        if call.param("direction") == Some("asc") {
            pulls.reverse();
        }
        // A head without an owner is ignored.
        let head = call.param("head").and_then(|head| head.split_once(':'));
        let chosen = pulls.into_iter().filter(|(issue, pull)| {
            (wanted == "all" || state_of(issue) == wanted)
                && call.param("base").is_none_or(|base| pull.base == base)
                && head.is_none_or(|(whose, branch)| owner.eq_ignore_ascii_case(whose) && pull.head == branch)
        });
        Ok(chosen.map(|(issue, pull)| shape.pull(entry, issue, pull)).collect())
    })?;
    Ok(call.page(list, &address(core, call), PAGE))
}

/// Returns GitHub's error response to an invalid pull request.
fn unprocessable(error: Value) -> FakeReply {
    FakeReply::json(422, &json!({"message": "Validation Failed", "errors": [error], "status": "422"}))
}

async fn open(core: &Arc<Core>, call: &FakeCall, repo: RepoId) -> FakeAnswer {
    let actor = call.actor()?;
    let head = call.needed("head")?;
    // The head may be given as `owner:branch`.
    let (owner, head) = head.split_once(':').unwrap_or(("", head));
    let editable = call.body.get("maintainer_can_modify").and_then(Value::as_bool).unwrap_or(true);
    let fork = core.act(|state| state.fork_of(repo, owner)).map(|fork| FakeFork {
        repo: fork,
        branch: head.to_owned(),
        editable,
    });
    let draft = PullDraft {
        title: call.needed("title")?.to_owned(),
        body: call.text("body").unwrap_or_default().to_owned(),
        head: head.to_owned(),
        base: call.needed("base")?.to_owned(),
        draft: call.body.get("draft").and_then(Value::as_bool).unwrap_or(false),
    };
    let from = fork.as_ref().map_or(repo, |fork| fork.repo);
    for (field, at, branch) in [("head", from, &draft.head), ("base", repo, &draft.base)] {
        if core.git.branch(at, branch).await?.is_none() {
            return Ok(unprocessable(json!({"resource": "PullRequest", "field": field, "code": "invalid"})));
        }
    }
    let head = draft.head.clone();
    let opened = match fork {
        Some(fork) => core.open_pull_from(actor, (repo, fork), draft).await,
        None => core.open_pull(actor, repo, &draft).await,
    };
    match opened {
        Ok(number) => pull_json(core, repo, 201, number),
        Err(FakeRefusal::Conflict(_)) => {
            let owner = core.act(|state| state.repo(repo).map(|entry| state.user(entry.owner).login))?;
            let message = format!("A pull request already exists for {owner}:{head}.");
            Ok(unprocessable(json!({"resource": "PullRequest", "code": "custom", "message": message})))
        }
        Err(FakeRefusal::Invalid(message)) => {
            Ok(unprocessable(json!({"resource": "PullRequest", "code": "custom", "message": message})))
        }
        Err(other) => Err(other),
    }
}

async fn merge(core: &Arc<Core>, call: &FakeCall, repo: RepoId, number: Number) -> FakeAnswer {
    let method = match call.text("merge_method").unwrap_or("merge") {
        "merge" => MergeMethod::Merge,
        "squash" => MergeMethod::Squash,
        "rebase" => MergeMethod::Rebase,
        other => return Err(FakeRefusal::Invalid(format!("{other:?} is not a way to merge"))),
    };
    match core.merge(call.actor()?, repo, number, method, call.text("sha")).await {
        Ok(sha) => {
            let message = "Pull Request successfully merged";
            Ok(FakeReply::json(200, &json!({"sha": sha.as_str(), "merged": true, "message": message})))
        }
        Err(FakeRefusal::Conflict(_)) => {
            let message = "Head branch was modified. Review and try the merge again.";
            Ok(FakeReply::json(409, &json!({"message": message})))
        }
        Err(other) => Err(other),
    }
}

fn requested(core: &Core, call: &FakeCall, repo: RepoId, number: Number) -> FakeAnswer {
    let actor = call.actor()?;
    let logins = call.list("reviewers");
    let pull = |status| {
        answer_with(core, repo, status, |shape, entry| {
            let (issue, pull) = shape.state.pull(repo, number)?;
            Ok(shape.pull(entry, issue, pull))
        })
    };
    match call.method {
        Method::POST => {
            let teams = call.list("team_reviewers");
            let asked = core.act(|state| {
                state.request_teams(actor, repo, number, &teams)?;
                state.request_reviewers(actor, repo, number, &logins)
            });
            match asked {
                Err(FakeRefusal::NotFound(text) | FakeRefusal::Invalid(text)) => {
                    // The pull request may not exist.
                    core.act(|state| state.pull(repo, number).map(drop))?;
                    let message = "Reviews may only be requested from collaborators. One or more of the users or \
                                   teams you specified is not a collaborator of the repository.";
                    tracing::debug!(text, "a review request was refused");
                    Ok(FakeReply::json(422, &json!({"message": message})))
                }
                Err(other) => Err(other),
                Ok(_) => pull(201),
            }
        }
        Method::DELETE => {
            core.act(|state| {
                let account = |login: &String| state.account_named(login).map(|account| account.user.id);
                let reviewers: Vec<_> = logins.iter().filter_map(account).collect();
                state.require(repo, actor, crate::state::Access::Write)?;
                state.pull_mut(repo, number)?.requested.retain(|user| !reviewers.contains(user));
                Ok(())
            })?;
            pull(200)
        }
        _ => Err(nothing_here()),
    }
}

fn reviews(core: &Core, call: &FakeCall, repo: RepoId, number: Number, rest: &[&str]) -> FakeAnswer {
    let find = |pull: &FakePull, wanted: i64| -> Result<FakeReview, FakeRefusal> {
        let review = pull.reviews.iter().find(|review| review.id == wanted);
        review.cloned().ok_or_else(|| FakeRefusal::NotFound(format!("review {wanted}")))
    };
    let one = |wanted: i64| {
        answer_with(core, repo, 200, |shape, entry| {
            let (issue, pull) = shape.state.pull(repo, number)?;
            Ok(shape.review(entry, issue, &find(pull, wanted)?))
        })
    };
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let list = core.act(|state| {
                let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
                let (issue, pull) = state.pull(repo, number)?;
                let seen = pull.reviews.iter().filter(|review| !review.pending || review.author == call.caller);
                Ok(seen.map(|review| shape.review(entry, issue, review)).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        (&Method::POST, []) => {
            let (draft, actor) = (review_draft(call)?, call.actor()?);
            // A review without an event is a draft.
            one(core.act(|state| match call.text("event") {
                None => state.draft_review(actor, repo, number, &draft),
                Some(_) => state.review(actor, repo, number, &draft),
            })?)
        }
        (&Method::POST, [text, "events"]) => {
            let (actor, wanted) = (call.actor()?, id(text)?);
            let (verdict, body) = (verdict(call.needed("event")?)?, call.text("body").unwrap_or_default());
            core.act(|state| state.submit_review(actor, repo, number, wanted, verdict, body))?;
            one(wanted)
        }
        (&Method::GET, [text]) => one(id(text)?),
        (&Method::GET, [text, "comments"]) => {
            let wanted = id(text)?;
            let list = core.act(|state| {
                let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
                let (issue, pull) = state.pull(repo, number)?;
                let review = find(pull, wanted)?;
                Ok(review.remarks.iter().map(|remark| shape.remark(entry, issue, &review, remark)).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        _ => Err(nothing_here()),
    }
}

fn review_draft(call: &FakeCall) -> Result<ReviewDraft, FakeRefusal> {
    let verdict = call.text("event").map_or(Ok(ReviewVerdict::Commented), verdict)?;
    let remark = |value: &Value| {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("path"), value.get("line").and_then(Value::as_u64).unwrap_or(1), text("body"))
    };
    let remarks = call.body.get("comments").and_then(Value::as_array);
    let remarks = remarks.map(|list| list.iter().map(remark).collect()).unwrap_or_default();
    Ok(ReviewDraft { verdict, body: call.text("body").unwrap_or_default().to_owned(), remarks })
}

fn verdict(event: &str) -> Result<ReviewVerdict, FakeRefusal> {
    match event {
        "APPROVE" => Ok(ReviewVerdict::Approved),
        "REQUEST_CHANGES" => Ok(ReviewVerdict::ChangesRequested),
        "COMMENT" => Ok(ReviewVerdict::Commented),
        other => Err(FakeRefusal::Invalid(format!("event: {other:?}"))),
    }
}
