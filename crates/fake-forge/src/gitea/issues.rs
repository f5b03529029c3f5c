//! Gitea's API for labels, issues, comments and reactions.

use http::Method;
use serde_json::{Value, json};

use super::shape::GiteaShape;
use super::{PAGE, address, answer_with};
use crate::call::{FakeAnswer, FakeCall, FakeReply, id, number};
use crate::core::Core;
use crate::state::{FakeIssue, FakeLabel, FakeRefusal, FakeRepo, FakeState, LabelRequest};
use ralph_types::ids::{CommentId, Number, RepoId, Timestamp};

fn nothing_here() -> FakeRefusal {
    FakeRefusal::NotFound("no such endpoint".to_owned())
}

/// Handles `labels…` of a repository.
pub(super) fn labels(core: &Core, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    let find = |entry: &FakeRepo, text: &str| -> Result<FakeLabel, FakeRefusal> {
        let wanted = id(text)?;
        let label = entry.labels.iter().find(|label| label.id == wanted);
        label.cloned().ok_or_else(|| FakeRefusal::NotFound(format!("label {wanted}")))
    };
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let list = core.act(|state| {
                let (shape, entry) = (GiteaShape { core, state }, state.repo(repo)?);
                Ok(entry.labels.iter().map(|label| shape.label(entry, label)).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        (&Method::POST, []) => {
            let (actor, name, color) = (call.actor()?, call.needed("name")?, call.needed("color")?);
            let description = call.text("description").unwrap_or_default();
            let exclusive = call.body.get("exclusive").and_then(serde_json::Value::as_bool).unwrap_or(false);
            let label = core.act(|state| {
                let made = state.create_label(actor, repo, name, color, description)?;
                let labels = &mut state.repo_mut(repo)?.labels;
                let made = labels.iter_mut().find(|label| label.id == made.id).ok_or_else(nothing_here)?;
                made.exclusive = exclusive;
                Ok(made.clone())
            })?;
            answer_with(core, repo, 201, |shape, entry| Ok(shape.label(entry, &label)))
        }
        (&Method::GET, [text]) => {
            answer_with(core, repo, 200, |shape, entry| Ok(shape.label(entry, &find(entry, text)?)))
        }
        (&Method::PATCH, [text]) => {
            let actor = call.actor()?;
            let wanted = id(text)?;
            core.act(|state| {
                state.edit_label(actor, repo, wanted, |label| {
                    label.name = call.text("name").unwrap_or(&label.name).to_owned();
                    let color = call.text("color").unwrap_or(&label.color);
                    label.color = color.trim_start_matches('#').to_owned();
                    label.description = call.text("description").unwrap_or(&label.description).to_owned();
                })
            })?;
            answer_with(core, repo, 200, |shape, entry| Ok(shape.label(entry, &find(entry, text)?)))
        }
        (&Method::DELETE, [text]) => {
            let (actor, wanted) = (call.actor()?, id(text)?);
            core.act(|state| state.delete_label(actor, repo, wanted))?;
            Ok(FakeReply::empty(204))
        }
        _ => Err(nothing_here()),
    }
}

/// Handles `issues…` of a repository.
pub(super) fn dispatch(core: &Core, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    let enabled = core.act(|state| state.repo(repo).map(|entry| entry.has_issues))?;
    match rest {
        [] if !enabled && call.method == Method::GET => Ok(call.page(Vec::new(), &address(core, call), PAGE)),
        _ if !enabled => Err(FakeRefusal::NotFound("issues are switched off".to_owned())),
        [] => list_or_open(core, call, repo),
        ["comments"] if call.method == Method::GET => {
            let list = core.act(|state| {
                let (shape, entry) = (GiteaShape { core, state }, state.repo(repo)?);
                let mut list = Vec::new();
                for issue in entry.issues.values() {
                    list.extend(comments_of(&shape, call, entry, issue)?);
                }
                Ok(list)
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        ["comments", text] => one_comment(core, call, repo, CommentId(id(text)?)),
        ["comments", text, "reactions"] => reactions(core, call, repo, CommentId(id(text)?)),
        [text] => one(core, call, repo, number(text)?),
        ["comments", text, "assets"] if call.method == Method::GET => {
            let wanted = CommentId(id(text)?);
            answer_with(core, repo, 200, |shape, entry| {
                let body = shape.state.comment_body(repo, wanted)?;
                Ok(shape.assets(entry, body, None))
            })
        }
        [text, "assets"] if call.method == Method::GET => {
            let wanted = number(text)?;
            answer_with(core, repo, 200, |shape, entry| {
                Ok(shape.assets(entry, &shape.state.issue(repo, wanted)?.body, Some(wanted)))
            })
        }
        [text, "labels", rest @ ..] => labels_of(core, call, repo, number(text)?, rest),
        [text, "reactions"] if call.method == Method::POST => {
            let (actor, number, content) = (call.actor()?, number(text)?, call.needed("content")?);
            core.act(|state| {
                let (reaction, new) = state.react_to_issue(actor, repo, number, content).map_err(not_allowed)?;
                Ok(FakeReply::json(if new { 201 } else { 200 }, &GiteaShape { core, state }.reaction(&reaction)))
            })
        }
        [text, "lock"] => {
            let (actor, number) = (call.actor()?, number(text)?);
            core.act(|state| state.set_locked(actor, repo, number, call.method == Method::PUT))?;
            Ok(FakeReply::empty(204))
        }
        [text, "timeline"] if call.method == Method::GET => timeline(core, call, repo, number(text)?),
        [text, "comments"] => {
            let number = number(text)?;
            if core.act(|state| state.repo(repo).is_ok_and(|entry| !entry.issues.contains_key(&number))) {
                // The status is not 404.
                return Err(FakeRefusal::Broken);
            }
            match call.method {
                Method::GET => answer_with(core, repo, 200, |shape, entry| {
                    // Gitea does not paginate this list.
                    Ok(comments_of(shape, call, entry, shape.state.issue(repo, number)?)?.into())
                }),
                Method::POST => {
                    let (actor, body) = (call.actor()?, call.needed("body")?);
                    let created = core.act(|state| state.comment(actor, repo, number, body))?;
                    comment_json(core, repo, 201, created)
                }
                _ => Err(nothing_here()),
            }
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

fn comments_of(
    shape: &GiteaShape<'_>,
    call: &FakeCall,
    entry: &FakeRepo,
    issue: &FakeIssue,
) -> Result<Vec<Value>, FakeRefusal> {
    let (since, before) = (call.moment("since")?, call.moment("before")?);
    let (faults, now) = (&shape.core.faults, shape.core.clock.now());
    let listed = issue.comments.iter().filter(|comment| faults.is_listed(comment.created_at, now));
    let chosen = listed.filter(|comment| {
        // The forge stores times in whole seconds.
        let changed = comment.updated_at.0.div_euclid(1000) * 1000;
        since.is_none_or(|since| changed >= since.0) && before.is_none_or(|before| changed <= before.0)
    });
    Ok(chosen.map(|comment| shape.comment(entry, issue, comment)).collect())
}

/// Returns a page of an issue's timeline. Like Gitea, it takes a page of the stored entries and then removes entries that
/// the reader may not see. Therefore, a page can be short, or `null` in the middle, and `X-Total-Count` is the number of its
/// remaining entries. Operations without a timeline entry represent the removed entries.
fn timeline(core: &Core, call: &FakeCall, repo: RepoId, of: Number) -> FakeAnswer {
    if core.act(|state| state.repo(repo).is_ok_and(|entry| !entry.issues.contains_key(&of))) {
        // The status is not 404.
        return Err(FakeRefusal::Broken);
    }
    let since = call.moment("since")?;
    let list: Vec<Option<Value>> = core.act(|state| {
        let (shape, entry) = (GiteaShape { core, state }, state.repo(repo)?);
        let issue = state.issue(repo, of)?;
        let about = state.ops.iter().filter(|op| op.repo == repo && op.number == Some(of));
        // The forge stores times in whole seconds.
        let recent = |at: Timestamp| since.is_none_or(|since| at.0.div_euclid(1000) * 1000 >= since.0);
        let about = about.filter(|op| recent(op.at));
        let mut list: Vec<(u64, Option<Value>)> =
            about.map(|op| (op.at_seq, shape.timeline_entry(entry, issue, op))).collect();
        let titles = issue.titles.iter().filter(|edit| recent(edit.at));
        list.extend(titles.map(|edit| (edit.at_seq, Some(shape.title_entry(entry, issue, edit)))));
        list.sort_by_key(|(at_seq, _)| *at_seq);
        Ok(list.into_iter().map(|(_, entry)| entry).collect())
    })?;
    let number = |name: &str| call.param(name).and_then(|text| text.parse::<usize>().ok()).filter(|number| *number > 0);
    let (_, usual, most) = PAGE;
    let length = number("limit").unwrap_or(usual).min(most);
    let before = (number("page").unwrap_or(1) - 1).saturating_mul(length);
    let shown: Vec<Value> = list.into_iter().skip(before).take(length).flatten().collect();
    let count = shown.len().to_string();
    let body = if shown.is_empty() { Value::Null } else { Value::Array(shown) };
    Ok(FakeReply::json(200, &body).with("x-total-count", &count))
}

fn list_or_open(core: &Core, call: &FakeCall, repo: RepoId) -> FakeAnswer {
    if call.method == Method::POST {
        let (actor, title) = (call.actor()?, call.needed("title")?);
        let body = call.text("body").unwrap_or_default();
        let created = core.act(|state| {
            let labels = label_ids(state, call, repo);
            let assignees = state.assignable(repo, &call.list("assignees"))?;
            let number = state.open_issue(actor, repo, title, body, &labels)?;
            state.assign(repo, number, assignees)?;
            Ok(number)
        })?;
        return issue_json(core, repo, 201, created);
    }
    let state_wanted = call.param("state").unwrap_or("open");
    let mut labels: Vec<&str> = call.param("labels").map(|names| names.split(',').collect()).unwrap_or_default();
    // Unknown label names do not filter.
    core.act(|state| labels.retain(|name| state.label_named(repo, name).is_some()));
    let since = call.moment("since")?;
    let list = core.act(|state| {
        let (shape, entry) = (GiteaShape { core, state }, state.repo(repo)?);
        let bears = |issue: &FakeIssue, name: &str| {
            entry.labels.iter().filter(|label| label.name == name).all(|label| issue.labels.contains(&label.id))
        };
        let chosen = entry.issues.values().rev().filter(|issue| {
            (state_wanted == "all" || super::shape::state_of(issue) == state_wanted)
                && labels.iter().all(|name| bears(issue, name))
                && call.param("type").is_none_or(|kind| (kind == "pulls") == issue.pull.is_some())
                && since.is_none_or(|since| issue.updated_at >= since)
                && call.param("created_by").is_none_or(|login| {
                    issue.author.is_some_and(|author| state.user(author).login.eq_ignore_ascii_case(login))
                })
        });
        Ok(chosen.map(|issue| shape.issue(entry, issue)).collect())
    })?;
    Ok(call.page(list, &address(core, call), PAGE))
}

fn one(core: &Core, call: &FakeCall, repo: RepoId, number: Number) -> FakeAnswer {
    match call.method {
        Method::GET => issue_json(core, repo, 200, number),
        Method::PATCH => {
            let actor = call.actor()?;
            core.act(|state| edit(state, call, actor, repo, number))?;
            issue_json(core, repo, 201, number)
        }
        Method::DELETE => {
            let actor = call.actor()?;
            core.act(|state| state.delete_issue(actor, repo, number))?;
            Ok(FakeReply::empty(204))
        }
        _ => Err(nothing_here()),
    }
}

/// Applies a PATCH of an issue or pull request.
pub(super) fn edit(
    state: &mut FakeState,
    call: &FakeCall,
    actor: ralph_types::ids::UserId,
    repo: RepoId,
    number: Number,
) -> Result<(), FakeRefusal> {
    let (title, body) = (call.text("title"), call.text("body"));
    if title.is_some() || body.is_some() {
        state.edit_issue(actor, repo, number, title, body)?;
    }
    if call.body.get("assignees").is_some() {
        let users = state.assignable(repo, &call.list("assignees"))?;
        state.reassign(actor, repo, number, users)?;
    }
    match call.text("state") {
        Some("open") => state.set_open(actor, repo, number, true),
        Some("closed") => state.set_open(actor, repo, number, false),
        Some(other) => Err(FakeRefusal::Invalid(format!("unknown state: {other:?}"))),
        None => Ok(()),
    }
}

/// Returns the labels in a body, by id or name. Ignores unknown labels, like Gitea.
fn label_ids(state: &FakeState, call: &FakeCall, repo: RepoId) -> Vec<i64> {
    let list = call.body.get("labels").and_then(Value::as_array);
    let known = |id: i64| state.repo(repo).is_ok_and(|entry| entry.labels.iter().any(|label| label.id == id));
    let pick = |value: &Value| match value {
        Value::String(name) => state.label_named(repo, name).map(|label| label.id),
        other => other.as_i64().filter(|id| known(*id)),
    };
    list.map(|list| list.iter().filter_map(pick).collect()).unwrap_or_default()
}

fn labels_of(core: &Core, call: &FakeCall, repo: RepoId, number: Number, rest: &[&str]) -> FakeAnswer {
    let list =
        || answer_with(core, repo, 200, |shape, entry| Ok(shape.labels(entry, shape.state.issue(repo, number)?)));
    let set = |by: LabelRequest, change: &dyn Fn(&FakeState, &mut Vec<i64>) -> Result<(), FakeRefusal>| {
        let actor = call.actor()?;
        core.act(|state| {
            let mut labels = state.issue(repo, number)?.labels.clone();
            change(state, &mut labels)?;
            state.set_labels_by(actor, repo, number, &labels, by)
        })
    };
    match (&call.method, rest) {
        (&Method::GET, []) => list(),
        (&Method::POST, []) => {
            set(LabelRequest::Change, &|state, labels| {
                labels.extend(label_ids(state, call, repo));
                Ok(())
            })?;
            list()
        }
        (&Method::PUT, []) => {
            set(LabelRequest::Replace, &|state, labels| {
                *labels = label_ids(state, call, repo);
                Ok(())
            })?;
            list()
        }
        (&Method::DELETE, []) => {
            set(LabelRequest::Clear, &|_, labels| {
                labels.clear();
                Ok(())
            })?;
            Ok(FakeReply::empty(204))
        }
        (&Method::DELETE, [text]) => {
            let wanted = id(text)?;
            set(LabelRequest::Change, &|state, labels| {
                if !state.repo(repo)?.labels.iter().any(|label| label.id == wanted) {
                    return Err(FakeRefusal::Invalid(format!("label {wanted} does not exist")));
                }
                labels.retain(|label| *label != wanted);
                Ok(())
            })?;
            Ok(FakeReply::empty(204))
        }
        _ => Err(nothing_here()),
    }
}

fn one_comment(core: &Core, call: &FakeCall, repo: RepoId, wanted: CommentId) -> FakeAnswer {
    match call.method {
        // This endpoint does not return comments on lines.
        Method::GET if core.act(|state| state.is_remark(repo, wanted)) => Ok(FakeReply::empty(204)),
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

fn not_allowed(refusal: FakeRefusal) -> FakeRefusal {
    match refusal {
        FakeRefusal::Invalid(text) => FakeRefusal::Forbidden(text),
        other => other,
    }
}

fn reactions(core: &Core, call: &FakeCall, repo: RepoId, wanted: CommentId) -> FakeAnswer {
    match call.method {
        // Comments on lines can have reactions like all other comments.
        Method::GET if core.act(|state| state.remark_mut(repo, wanted).is_ok()) => {
            let found = core.act(|state| state.remark_mut(repo, wanted).map(|(_, remark)| remark.reactions.clone()))?;
            answer_with(core, repo, 200, |shape, _| Ok(found.iter().map(|reaction| shape.reaction(reaction)).collect()))
        }
        Method::GET => answer_with(core, repo, 200, |shape, _| {
            let (_, comment) = shape.state.find_comment(repo, wanted)?;
            Ok(comment.reactions.iter().map(|reaction| shape.reaction(reaction)).collect())
        }),
        Method::POST => {
            let (actor, content) = (call.actor()?, call.needed("content")?);
            core.act(|state| {
                let (reaction, new) = state.react(actor, repo, wanted, content).map_err(not_allowed)?;
                Ok(FakeReply::json(if new { 201 } else { 200 }, &GiteaShape { core, state }.reaction(&reaction)))
            })
        }
        Method::DELETE => {
            let (actor, content) = (call.actor()?, call.needed("content")?);
            core.act(|state| state.unreact(actor, repo, wanted, content))?;
            Ok(FakeReply::json(200, &json!(null)))
        }
        _ => Err(nothing_here()),
    }
}
