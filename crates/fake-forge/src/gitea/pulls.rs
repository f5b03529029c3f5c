//! Gitea's API for pull requests and reviews.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::shape::GiteaShape;
use super::{PAGE, address, answer_with};
use crate::call::{FakeAnswer, FakeCall, FakeReply, id, number};
use crate::core::Core;
use crate::git::MergeMethod;
use crate::state::pulls::{PullDraft, ReviewDraft};
use crate::state::{FakeFork, FakeIssue, FakePull, FakeRefusal, FakeReview};
use ralph_types::ids::ReviewVerdict;
use ralph_types::ids::{Number, RepoId, Sha, UserId};

fn nothing_here() -> FakeRefusal {
    FakeRefusal::NotFound("no such endpoint".to_owned())
}

/// Handles `pulls…` of a repository.
pub(super) async fn dispatch(core: &Arc<Core>, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    match (call.method.as_str(), rest) {
        ("GET", []) => list(core, call, repo),
        ("POST", []) => open(core, call, repo).await,
        ("GET", [text]) if text.ends_with(".diff") || text.ends_with(".patch") => {
            let number = number(text.split('.').next().unwrap_or_default())?;
            let (from, to) = range(core, repo, number)?;
            Ok(FakeReply::text(200, core.git.diff(repo, &from, &to).await?))
        }
        ("GET", [text]) => {
            let number = number(text)?;
            let reply = pull_json(core, repo, 200, number);
            core.act(|state| state.pull_was_read(repo, number));
            reply
        }
        ("PATCH", [text]) => {
            let (actor, number) = (call.actor()?, number(text)?);
            core.act(|state| super::issues::edit(state, call, actor, repo, number))?;
            if let Some(editable) = call.body.get("allow_maintainer_edit").and_then(Value::as_bool) {
                core.act(|state| {
                    let fork = state.pull_mut(repo, number)?.fork.as_mut();
                    fork.map(|fork| fork.editable = editable).ok_or_else(nothing_here)
                })?;
            }
            if let Some(base) = call.text("base") {
                core.retarget(actor, repo, number, base).await?;
            }
            pull_json(core, repo, 201, number)
        }
        ("GET", [text, "commits"]) => {
            let (from, to) = range(core, repo, number(text)?)?;
            let commits = core.git.commits(repo, Some(&from), &to, 250).await?;
            let list = core.act(|state| {
                let (shape, entry) = (GiteaShape { core, state }, state.repo(repo)?);
                let one =
                    |commit| json!({"sha": shape.commit(entry, commit)["id"], "commit": shape.commit(entry, commit)});
                Ok(commits.iter().map(one).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        ("GET", [text, "files"]) => {
            let (from, to) = range(core, repo, number(text)?)?;
            let files = core.git.changed_files(repo, &from, &to).await?.into_iter();
            let list = files.map(|(name, additions, deletions, letter)| {
                let status = match letter {
                    'A' => "added",
                    'D' => "deleted",
                    _ => "changed",
                };
                json!({
                    "filename": name, "status": status, "additions": additions, "deletions": deletions,
                    "changes": additions + deletions, "html_url": "", "contents_url": "", "raw_url": "",
                })
            });
            Ok(call.page(list.collect(), &address(core, call), PAGE))
        }
        (_, [text, "merge"]) => merge(core, call, repo, number(text)?).await,
        (_, [text, "requested_reviewers"]) => requested(core, call, repo, number(text)?),
        (_, [text, "reviews", rest @ ..]) => reviews(core, call, repo, number(text)?, rest),
        ("GET", [base, head @ ..]) => {
            let head = head.join("/");
            let found = core.act(|state| {
                let mut pulls = state.pulls(repo).into_iter();
                pulls.find(|(_, pull)| pull.base == **base && pull.head == head).map(|(issue, _)| issue.number)
            });
            let found = found.ok_or_else(|| FakeRefusal::NotFound(format!("pull request {base}/{head}")))?;
            pull_json(core, repo, 200, found)
        }
        _ => Err(nothing_here()),
    }
}

fn pull_json(core: &Core, repo: RepoId, status: u16, wanted: Number) -> FakeAnswer {
    answer_with(core, repo, status, |shape, entry| {
        let (issue, pull) = shape.state.pull(repo, wanted)?;
        Ok(shape.pull(entry, issue, pull))
    })
}

fn range(core: &Core, repo: RepoId, number: Number) -> Result<(Sha, Sha), FakeRefusal> {
    core.act(|state| {
        let facts = &state.pull(repo, number)?.1.facts;
        Ok((facts.merge_base.clone().unwrap_or_else(|| facts.base_sha.clone()), facts.head_sha.clone()))
    })
}

fn list(core: &Core, call: &FakeCall, repo: RepoId) -> FakeAnswer {
    let wanted = call.param("state").unwrap_or("open");
    let list = core.act(|state| {
        let (shape, entry) = (GiteaShape { core, state }, state.repo(repo)?);
        let mut pulls: Vec<(&FakeIssue, &FakePull)> = state.pulls(repo);
        match call.param("sort") {
            Some("oldest") => pulls.reverse(),
            Some("recentupdate") => pulls.sort_by_key(|(issue, _)| std::cmp::Reverse(issue.updated_at)),
            _ => {}
        }
        let chosen = pulls.into_iter().filter(|(issue, pull)| {
            (wanted == "all" || super::shape::state_of(issue) == wanted)
                && call.param("base_branch").is_none_or(|base| pull.base == base)
        });
        Ok(chosen.map(|(issue, pull)| shape.pull(entry, issue, pull)).collect())
    })?;
    Ok(call.page(list, &address(core, call), PAGE))
}

async fn open(core: &Arc<Core>, call: &FakeCall, repo: RepoId) -> FakeAnswer {
    let actor = call.actor()?;
    let head = call.needed("head")?;
    // The head may be given as `owner:branch`.
    let (owner, head) = head.split_once(':').unwrap_or(("", head));
    let fork = core.act(|state| state.fork_of(repo, owner)).map(|fork| FakeFork {
        repo: fork,
        branch: head.to_owned(),
        editable: false,
    });
    let draft = PullDraft {
        title: call.needed("title")?.to_owned(),
        body: call.text("body").unwrap_or_default().to_owned(),
        head: head.to_owned(),
        base: call.needed("base")?.to_owned(),
        draft: false,
    };
    let number = match fork {
        Some(fork) => core.open_pull_from(actor, (repo, fork), draft).await?,
        None => core.open_pull(actor, repo, &draft).await?,
    };
    let labels: Vec<i64> = call
        .body
        .get("labels")
        .and_then(Value::as_array)
        .map_or_else(Vec::new, |list| list.iter().filter_map(Value::as_i64).collect());
    if !labels.is_empty() {
        core.act(|state| state.set_labels(actor, repo, number, &labels))?;
    }
    pull_json(core, repo, 201, number)
}

async fn merge(core: &Arc<Core>, call: &FakeCall, repo: RepoId, number: Number) -> FakeAnswer {
    match call.method {
        Method::GET => {
            let merged = core.act(|state| state.pull(repo, number).map(|(_, pull)| pull.merged.is_some()))?;
            Ok(FakeReply::empty(if merged { 204 } else { 404 }))
        }
        Method::POST => {
            let method = match call.needed("Do")? {
                "merge" => MergeMethod::Merge,
                "squash" => MergeMethod::Squash,
                "rebase" => MergeMethod::Rebase,
                "fast-forward-only" => MergeMethod::FastForward,
                other => return Err(FakeRefusal::Invalid(format!("[Do]: {other:?} is not a way to merge here"))),
            };
            let actor = call.actor()?;
            if call.body.get("merge_when_checks_succeed").and_then(Value::as_bool) == Some(true) {
                return schedule(core, actor, repo, number, method);
            }
            core.merge(actor, repo, number, method, call.text("head_commit_id")).await?;
            Ok(FakeReply::empty(200))
        }
        Method::DELETE => core.act(|state| {
            if state.pull(repo, number)?.1.auto_merge.is_none() {
                return Err(FakeRefusal::NotFound("scheduled auto merge".to_owned()));
            }
            state.set_auto_merge(call.actor()?, repo, number, None)?;
            Ok(FakeReply::empty(204))
        }),
        _ => Err(nothing_here()),
    }
}

/// Schedules a merge. Like Gitea, it checks neither `head_commit_id` nor the branch protection rules, which the merge
/// checks.
fn schedule(core: &Core, actor: UserId, repo: RepoId, number: Number, method: MergeMethod) -> FakeAnswer {
    core.act(|state| {
        let (issue, pull) = state.pull(repo, number)?;
        if !issue.open {
            return Err(FakeRefusal::NotMergeable("the pull request is closed".to_owned()));
        }
        if super::is_work_in_progress(&issue.title) {
            return Err(FakeRefusal::NotMergeable("Work in progress PRs cannot be merged".to_owned()));
        }
        if pull.checking > 0 {
            return Err(FakeRefusal::NotMergeable("Please try again later".to_owned()));
        }
        if pull.auto_merge.is_some() {
            let text = "pull request is already scheduled to auto merge when checks succeed";
            return Err(FakeRefusal::Conflict(text.to_owned()));
        }
        state.set_auto_merge(actor, repo, number, Some(method))?;
        Ok(FakeReply::empty(201))
    })
}

fn requested(core: &Core, call: &FakeCall, repo: RepoId, number: Number) -> FakeAnswer {
    let actor = call.actor()?;
    let list = call.body.get("reviewers").and_then(Value::as_array);
    let logins: Vec<String> =
        list.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect()).unwrap_or_default();
    match call.method {
        Method::POST => {
            let teams = call.list("team_reviewers");
            let asked = core.act(|state| {
                state.request_teams(actor, repo, number, &teams)?;
                state.request_reviewers(actor, repo, number, &logins)
            })?;
            answer_with(core, repo, 201, |shape, entry| {
                let (issue, _) = shape.state.pull(repo, number)?;
                let one = |user| shape.requested(entry, issue, user);
                Ok(asked.into_iter().map(one).collect())
            })
        }
        Method::DELETE => core.act(|state| {
            let reviewers: Vec<_> = logins.iter().filter_map(|login| state.account_named(login)).collect();
            let reviewers: Vec<_> = reviewers.into_iter().map(|account| account.user.id).collect();
            state.require(repo, actor, crate::state::Access::Write)?;
            state.pull_mut(repo, number)?.requested.retain(|user| !reviewers.contains(user));
            Ok(FakeReply::empty(204))
        }),
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
            Ok(shape.review(entry, issue, pull, &find(pull, wanted)?))
        })
    };
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let list = core.act(|state| {
                let (shape, entry) = (GiteaShape { core, state }, state.repo(repo)?);
                let (issue, pull) = state.pull(repo, number)?;
                let seen = pull.reviews.iter().filter(|review| !review.pending || review.author == call.caller);
                let asked = pull.requested.iter().map(|user| shape.requested(entry, issue, *user));
                let asked = asked.chain(shape.requested_teams(entry, issue, pull));
                Ok(asked.chain(seen.map(|review| shape.review(entry, issue, pull, review))).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        (&Method::POST, []) => {
            let actor = call.actor()?;
            let remark = |value: &Value| {
                let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                (text("path"), value.get("new_position").and_then(Value::as_u64).unwrap_or(1), text("body"))
            };
            let remarks = call.body.get("comments").and_then(Value::as_array);
            let remarks: Vec<_> = remarks.map(|list| list.iter().map(remark).collect()).unwrap_or_default();
            let (event, body) = (call.text("event").unwrap_or_default(), call.text("body").unwrap_or_default());
            require_body(event, body, !remarks.is_empty())?;
            // A review without an event is a draft.
            let pending = matches!(event, "" | "PENDING");
            let verdict = if pending { ReviewVerdict::Commented } else { verdict(event)? };
            let draft = ReviewDraft { verdict, body: body.to_owned(), remarks };
            one(core.act(|state| match pending {
                true => state.draft_review(actor, repo, number, &draft),
                false => state.review(actor, repo, number, &draft),
            })?)
        }
        (&Method::POST, [text]) => {
            let (actor, wanted) = (call.actor()?, id(text)?);
            let (event, body) = (call.text("event").unwrap_or_default(), call.text("body").unwrap_or_default());
            let remarks = core.act(|state| Ok(find(state.pull(repo, number)?.1, wanted)?.remarks.len()))?;
            require_body(event, body, remarks > 0)?;
            let verdict = verdict(event)?;
            core.act(|state| state.submit_review(actor, repo, number, wanted, verdict, body))?;
            one(wanted)
        }
        (&Method::GET, [text]) => one(id(text)?),
        (&Method::GET, [text, "comments"]) => {
            let wanted = id(text)?;
            answer_with(core, repo, 200, |shape, entry| {
                let (issue, pull) = shape.state.pull(repo, number)?;
                let review = find(pull, wanted)?;
                Ok(review.remarks.iter().map(|remark| shape.remark(entry, issue, &review, remark)).collect())
            })
        }
        _ => Err(nothing_here()),
    }
}

/// Fails for a review without a body if its event requires one: a comment without line comments, a request for changes, and
/// a draft.
fn require_body(event: &str, body: &str, has_remarks: bool) -> Result<(), FakeRefusal> {
    let lacking = match event {
        _ if !body.trim().is_empty() => return Ok(()),
        "APPROVED" => return Ok(()),
        "COMMENT" if has_remarks => return Ok(()),
        "COMMENT" => "a body or a comment",
        _ => "a body",
    };
    Err(FakeRefusal::Invalid(format!("review event {event} requires {lacking}")))
}

fn verdict(event: &str) -> Result<ReviewVerdict, FakeRefusal> {
    match event {
        "APPROVED" => Ok(ReviewVerdict::Approved),
        "REQUEST_CHANGES" => Ok(ReviewVerdict::ChangesRequested),
        "COMMENT" => Ok(ReviewVerdict::Commented),
        other => Err(FakeRefusal::Invalid(format!("[event]: {other:?}"))),
    }
}
