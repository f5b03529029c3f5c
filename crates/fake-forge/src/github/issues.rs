//! GitHub's API for labels, issues, comments and reactions.

use http::Method;
use serde_json::Value;

use super::shape::{GitHubShape, state_of};
use super::{PAGE, address, answer_with, nothing_here};
use crate::call::{FakeAnswer, FakeCall, FakeReply, id, number};
use crate::core::Core;
use crate::state::{Access, FakeIssue, FakeLabel, FakeRefusal, FakeRepo, FakeState};
use ralph_types::ids::{CommentId, Number, RepoId, UserId};

/// Color of a label that is created when it is added to an issue.
const NEW_COLOR: &str = "ededed";

/// Handles `labels…` of a repository.
pub(super) fn labels(core: &Core, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    let find = |entry: &FakeRepo, name: &str| -> Result<FakeLabel, FakeRefusal> {
        let label = entry.labels.iter().find(|label| label.name.eq_ignore_ascii_case(name));
        label.cloned().ok_or_else(|| FakeRefusal::NotFound(format!("label {name}")))
    };
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let list = core.act(|state| {
                let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
                Ok(entry.labels.iter().map(|label| shape.label(entry, label)).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        (&Method::POST, []) => {
            let (actor, name) = (call.actor()?, call.needed("name")?);
            let color = call.text("color").unwrap_or(NEW_COLOR);
            let description = call.text("description").unwrap_or_default();
            if color.starts_with('#') || description.chars().count() > 100 {
                return Err(FakeRefusal::Invalid("a color has no #, a description at most 100 characters".to_owned()));
            }
            let label = core.act(|state| state.create_label(actor, repo, name, color, description))?;
            answer_with(core, repo, 201, |shape, entry| Ok(shape.label(entry, &label)))
        }
        (&Method::GET, [name]) => {
            answer_with(core, repo, 200, |shape, entry| Ok(shape.label(entry, &find(entry, name)?)))
        }
        (&Method::PATCH, [name]) => {
            let actor = call.actor()?;
            let wanted = core.act(|state| Ok(find(state.repo(repo)?, name)?.id))?;
            core.act(|state| {
                state.edit_label(actor, repo, wanted, |label| {
                    label.name = call.text("new_name").unwrap_or(&label.name).to_owned();
                    label.color = call.text("color").unwrap_or(&label.color).to_owned();
                    label.description = call.text("description").unwrap_or(&label.description).to_owned();
                })
            })?;
            answer_with(core, repo, 200, |shape, entry| {
                let label = entry.labels.iter().find(|label| label.id == wanted);
                label.map(|label| shape.label(entry, label)).ok_or_else(nothing_here)
            })
        }
        _ => Err(nothing_here()),
    }
}

/// Handles `issues…` of a repository.
pub(super) fn dispatch(core: &Core, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    match rest {
        [] if call.method == Method::POST => open(core, call, repo),
        [] if call.method == Method::GET => list(core, call, repo),
        ["comments"] if call.method == Method::GET => comments(core, call, repo, None),
        ["comments", text] => one_comment(core, call, repo, CommentId(id(text)?)),
        ["comments", text, "reactions", rest @ ..] => reactions(core, call, repo, CommentId(id(text)?), rest),
        [text] => one(core, call, repo, number(text)?),
        [text, "labels", rest @ ..] => labels_of(core, call, repo, number(text)?, rest),
        [text, "events"] if call.method == Method::GET => events(core, call, repo, number(text)?),
        [text, "comments"] if call.method == Method::GET => comments(core, call, repo, Some(number(text)?)),
        [text, "comments"] if call.method == Method::POST => {
            let (actor, body, number) = (call.actor()?, call.needed("body")?, number(text)?);
            let created = core.act(|state| state.comment(actor, repo, number, body))?;
            comment_json(core, repo, 201, created)
        }
        _ => Err(nothing_here()),
    }
}

fn comment_json(core: &Core, repo: RepoId, status: u16, wanted: CommentId) -> FakeAnswer {
    answer_with(core, repo, status, |shape, entry| {
        let (issue, comment) = shape.state.find_comment(repo, wanted)?;
        Ok(shape.comment(entry, issue, comment))
    })
}

fn issue_json(core: &Core, repo: RepoId, status: u16, wanted: Number) -> FakeAnswer {
    answer_with(core, repo, status, |shape, entry| Ok(shape.issue(entry, shape.state.issue(repo, wanted)?)))
}

/// Returns the comments of one issue; with `None`, of all issues.
fn comments(core: &Core, call: &FakeCall, repo: RepoId, of: Option<Number>) -> FakeAnswer {
    let since = call.moment("since")?;
    let list = core.act(|state| {
        let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
        let issues: Vec<&FakeIssue> = match of {
            Some(number) => vec![state.issue(repo, number)?],
            None => entry.issues.values().collect(),
        };
        let all = issues.into_iter().flat_map(|issue| issue.comments.iter().map(move |comment| (issue, comment)));
        // The forge stores times in whole seconds.
        let now = core.clock.now();
        let listed = all.filter(|(_, comment)| core.faults.is_listed(comment.created_at, now));
        let chosen = listed.filter(|(_, comment)| {
            since.is_none_or(|since| comment.updated_at.0.div_euclid(1000) >= since.0.div_euclid(1000))
        });
        Ok(chosen.map(|(issue, comment)| shape.comment(entry, issue, comment)).collect())
    })?;
    Ok(call.page(list, &address(core, call), PAGE))
}

/// Returns the label events of an issue.
fn events(core: &Core, call: &FakeCall, repo: RepoId, of: Number) -> FakeAnswer {
    let list = core.act(|state| {
        let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
        let issue = state.issue(repo, of)?;
        let about = state.ops.iter().filter(|op| op.repo == repo && op.number == Some(of));
        let labels = about.filter_map(|op| Some((op.at_seq, shape.label_event(entry, op)?)));
        let titles = issue.titles.iter().map(|edit| (edit.at_seq, shape.rename_event(entry, edit)));
        let mut events: Vec<(u64, Value)> = labels.chain(titles).collect();
        events.sort_by_key(|(at, _)| *at);
        Ok(events.into_iter().map(|(_, event)| event).collect())
    })?;
    Ok(call.page(list, &address(core, call), PAGE))
}

fn open(core: &Core, call: &FakeCall, repo: RepoId) -> FakeAnswer {
    let (actor, title) = (call.actor()?, call.needed("title")?);
    let body = call.text("body").unwrap_or_default();
    let created = core.act(|state| {
        // Labels are ignored if the account lacks permission for labels.
        let labels = match state.require(repo, actor, state.triage_needs) {
            Ok(()) => label_ids(state, call, actor, repo)?,
            Err(_) => Vec::new(),
        };
        let assignees = state.assignable(repo, &call.list("assignees"))?;
        let number = state.open_issue(actor, repo, title, body, &labels)?;
        state.assign(repo, number, assignees)?;
        Ok(number)
    })?;
    issue_json(core, repo, 201, created)
}

fn list(core: &Core, call: &FakeCall, repo: RepoId) -> FakeAnswer {
    let wanted = call.param("state").unwrap_or("open");
    let labels: Vec<&str> = call.param("labels").map(|names| names.split(',').collect()).unwrap_or_default();
    let since = call.moment("since")?;
    let list = core.act(|state| {
        let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
        let bears = |issue: &FakeIssue, name: &str| {
            state.label_named(repo, name).is_some_and(|label| issue.labels.contains(&label.id))
        };
        let chosen = entry.issues.values().rev().filter(|issue| {
            (wanted == "all" || state_of(issue) == wanted)
                && labels.iter().all(|name| bears(issue, name.trim()))
                && since.is_none_or(|since| issue.updated_at >= since)
                && call.param("creator").is_none_or(|login| {
                    issue.author.is_some_and(|author| state.user(author).login.eq_ignore_ascii_case(login))
                })
        });
        let mut chosen: Vec<&FakeIssue> = chosen.collect();
        if call.param("sort") == Some("updated") {
            chosen.sort_by_key(|issue| std::cmp::Reverse(issue.updated_at));
        }
        if call.param("direction") == Some("asc") {
            chosen.reverse();
        }
        Ok(chosen.into_iter().map(|issue| shape.issue(entry, issue)).collect())
    })?;
    Ok(call.page(list, &address(core, call), PAGE))
}

fn one(core: &Core, call: &FakeCall, repo: RepoId, number: Number) -> FakeAnswer {
    match call.method {
        Method::GET => {
            let known = core.act(|state| state.repo(repo).map(|entry| number.0 < entry.next_number))?;
            match issue_json(core, repo, 200, number) {
                // An assigned number without an issue means that the issue was deleted.
                Err(FakeRefusal::NotFound(_)) if known && number.0 > 0 => {
                    Ok(FakeReply::json(410, &serde_json::json!({"message": "This issue was deleted"})))
                }
                other => other,
            }
        }
        Method::PATCH => {
            let actor = call.actor()?;
            core.act(|state| edit(state, call, actor, repo, number))?;
            issue_json(core, repo, 200, number)
        }
        _ => Err(nothing_here()),
    }
}

/// Applies a PATCH of an issue or pull request.
pub(super) fn edit(
    state: &mut FakeState,
    call: &FakeCall,
    actor: UserId,
    repo: RepoId,
    number: Number,
) -> Result<(), FakeRefusal> {
    let (title, body) = (call.text("title"), call.text("body"));
    if title.is_some() || body.is_some() {
        state.edit_issue(actor, repo, number, title, body)?;
    }
    if call.body.get("labels").is_some() {
        let labels = label_ids(state, call, actor, repo)?;
        state.set_labels(actor, repo, number, &labels)?;
    }
    match call.text("state") {
        Some("open") => state.set_open(actor, repo, number, true),
        Some("closed") => state.set_open(actor, repo, number, false),
        Some(other) => Err(FakeRefusal::Invalid(format!("unknown state: {other:?}"))),
        None => Ok(()),
    }
}

/// Returns the labels in a body; GitHub creates missing labels if the account may push.
fn label_ids(state: &mut FakeState, call: &FakeCall, actor: UserId, repo: RepoId) -> Result<Vec<i64>, FakeRefusal> {
    let list = call.body.get("labels").unwrap_or(&call.body).as_array().cloned().unwrap_or_default();
    let mut ids = Vec::new();
    for value in &list {
        let name = value.as_str().or_else(|| value.get("name").and_then(Value::as_str));
        let name = name.ok_or_else(|| FakeRefusal::Invalid("a label is a name".to_owned()))?;
        let known = state.label_named(repo, name).map(|label| label.id);
        match known {
            Some(id) => ids.push(id),
            None => {
                state.require(repo, actor, Access::Write)?;
                ids.push(state.create_label(actor, repo, name, NEW_COLOR, "")?.id);
            }
        }
    }
    Ok(ids)
}

fn labels_of(core: &Core, call: &FakeCall, repo: RepoId, number: Number, rest: &[&str]) -> FakeAnswer {
    let all = || answer_with(core, repo, 200, |shape, entry| Ok(shape.labels(entry, shape.state.issue(repo, number)?)));
    let borne = |state: &FakeState| state.issue(repo, number).map(|issue| issue.labels.clone());
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let list = core.act(|state| {
                let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
                Ok(shape.labels(entry, state.issue(repo, number)?))
            })?;
            Ok(call.page(list.as_array().cloned().unwrap_or_default(), &address(core, call), PAGE))
        }
        (&Method::POST | &Method::PUT, []) => {
            let actor = call.actor()?;
            core.act(|state| {
                state.require(repo, actor, state.triage_needs)?;
                let mut labels = if call.method == Method::POST { borne(state)? } else { Vec::new() };
                labels.extend(label_ids(state, call, actor, repo)?);
                state.set_labels(actor, repo, number, &labels)
            })?;
            all()
        }
        (&Method::DELETE, []) => {
            let actor = call.actor()?;
            core.act(|state| state.set_labels(actor, repo, number, &[]))?;
            Ok(FakeReply::empty(204))
        }
        (&Method::DELETE, [name]) => {
            let actor = call.actor()?;
            core.act(|state| {
                let mut labels = borne(state)?;
                let label = state.label_named(repo, name).map(|label| label.id).filter(|id| labels.contains(id));
                let label = label.ok_or_else(|| FakeRefusal::NotFound("Label does not exist".to_owned()))?;
                labels.retain(|known| *known != label);
                state.set_labels(actor, repo, number, &labels)
            })?;
            all()
        }
        _ => Err(nothing_here()),
    }
}

fn one_comment(core: &Core, call: &FakeCall, repo: RepoId, wanted: CommentId) -> FakeAnswer {
    match call.method {
        Method::GET => comment_json(core, repo, 200, wanted),
        Method::PATCH => {
            let (actor, body) = (call.actor()?, call.needed("body")?);
            core.act(|state| state.edit_comment(actor, repo, wanted, body))?;
            comment_json(core, repo, 200, wanted)
        }
        Method::DELETE => {
            let actor = call.actor()?;
            core.act(|state| state.delete_comment(actor, repo, wanted))?;
            Ok(FakeReply::empty(204))
        }
        _ => Err(nothing_here()),
    }
}

fn reactions(core: &Core, call: &FakeCall, repo: RepoId, wanted: CommentId, rest: &[&str]) -> FakeAnswer {
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let list = core.act(|state| {
                let (_, comment) = state.find_comment(repo, wanted)?;
                let shape = GitHubShape { core, state };
                Ok(comment.reactions.iter().map(|reaction| shape.reaction(reaction)).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        (&Method::POST, []) => {
            let (actor, content) = (call.actor()?, call.needed("content")?);
            core.act(|state| {
                let (reaction, new) = state.react(actor, repo, wanted, content)?;
                Ok(FakeReply::json(if new { 201 } else { 200 }, &GitHubShape { core, state }.reaction(&reaction)))
            })
        }
        (&Method::DELETE, [text]) => {
            let (actor, gone) = (call.actor()?, id(text)?);
            core.act(|state| {
                let (_, comment) = state.find_comment(repo, wanted)?;
                let reaction = comment.reactions.iter().find(|known| known.id == gone && known.user == actor);
                let content = reaction.map(|reaction| reaction.content.clone());
                let content = content.ok_or_else(|| FakeRefusal::NotFound(format!("reaction {gone}")))?;
                state.unreact(actor, repo, wanted, &content)
            })?;
            Ok(FakeReply::empty(204))
        }
        _ => Err(nothing_here()),
    }
}
