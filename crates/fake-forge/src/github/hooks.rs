//! GitHub's API for a repository's webhooks.

use http::Method;
use serde_json::Value;

use super::shape::GitHubShape;
use super::{PAGE, address, answer_with, nothing_here, payload};
use crate::call::{FakeAnswer, FakeCall, FakeReply, id};
use crate::core::Core;
use crate::state::{Access, FakeHook, FakeRefusal, FakeRepo};
use ralph_types::ids::RepoId;

fn find(repo: &FakeRepo, wanted: i64) -> Result<&FakeHook, FakeRefusal> {
    let hook = repo.hooks.iter().find(|hook| hook.id == wanted);
    hook.ok_or_else(|| FakeRefusal::NotFound(format!("webhook {wanted}")))
}

/// Handles `hooks…` of a repository.
pub(super) fn dispatch(core: &Core, call: &FakeCall, repo: RepoId, rest: &[&str]) -> FakeAnswer {
    let actor = call.actor()?;
    // Accounts without permission for webhooks get 404.
    core.act(|state| state.require(repo, actor, Access::Admin)).map_err(|_| nothing_here())?;
    let names = |list: &Vec<Value>| list.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    let events = call.body.get("events").and_then(Value::as_array).map(names);
    let active = call.body.get("active").and_then(Value::as_bool);
    let config = |name: &str| call.body.get("config").and_then(|config| config.get(name)).and_then(Value::as_str);
    let one =
        |status, wanted| answer_with(core, repo, status, |shape, entry| Ok(shape.hook(entry, find(entry, wanted)?)));
    match (&call.method, rest) {
        (&Method::GET, []) => {
            let list = core.act(|state| {
                let (shape, entry) = (GitHubShape { core, state }, state.repo(repo)?);
                Ok(entry.hooks.iter().map(|hook| shape.hook(entry, hook)).collect())
            })?;
            Ok(call.page(list, &address(core, call), PAGE))
        }
        (&Method::POST, []) => {
            let url =
                config("url").ok_or_else(|| FakeRefusal::Invalid("Config must contain URL for webhooks".to_owned()))?;
            let events = events.unwrap_or_else(|| vec!["push".to_owned()]);
            let secret = config("secret").unwrap_or_default();
            let created = core.act(|state| {
                if state.repo(repo)?.hooks.iter().any(|hook| hook.url == url && hook.events == events) {
                    return Err(FakeRefusal::Invalid("Hook already exists on this repository".to_owned()));
                }
                state.add_hook(actor, repo, url, secret, events, active.unwrap_or(true))
            })?;
            one(201, created)
        }
        (&Method::GET, [text]) => one(200, id(text)?),
        (&Method::PATCH, [text]) => {
            let wanted = id(text)?;
            core.act(|state| {
                state.edit_hook(actor, repo, wanted, |hook| {
                    hook.events = events.unwrap_or_else(|| hook.events.clone());
                    hook.active = active.unwrap_or(hook.active);
                    if call.body.get("config").is_some() {
                        // The request replaces the whole configuration, so a missing secret removes the secret.
                        hook.url = config("url").unwrap_or(&hook.url).to_owned();
                        hook.secret = config("secret").unwrap_or_default().to_owned();
                    }
                })
            })?;
            one(200, wanted)
        }
        (&Method::DELETE, [text]) => {
            let wanted = id(text)?;
            core.act(|state| state.remove_hook(actor, repo, wanted))?;
            Ok(FakeReply::empty(204))
        }
        (&Method::POST, [text, "pings"]) => {
            let wanted = id(text)?;
            core.act(|state| {
                let entry = state.repo(repo)?;
                let hook = find(entry, wanted)?;
                core.hooks.send(payload::ping(core, state, entry, actor, hook).to(hook));
                Ok(())
            })?;
            Ok(FakeReply::empty(204))
        }
        _ => Err(nothing_here()),
    }
}
