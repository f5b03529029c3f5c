//! Hidden text in issues of outsiders, and commands that the page does not contain, with recorded answers of forges.
//!
//! The texts and pages come from the unit tests (`tests/fixtures/pages`). The fakes return the recorded page of a text. The agent
//! keeps the prompts that it gets, and the canary is a word of each hidden text.
//!
//! `hidden_texts_reach_the_agent_from_an_imitated_page` leaves the defense out: the fake renders the texts with a library for CommonMark.
//! By hand: where `document::read_beside` takes the source in place of the page, commands that the page does not contain are obeyed on
//! Gitea.

use std::time::Duration;

use fake_forge::{Dialect, FakeFault};
use ralph_bot::domain::loops::{LoopState, LoopStep};
use serde::Deserialize;

use crate::harness::{Setup, World, on_both_forges, prepared_story};

on_both_forges!(
    hidden_texts_reach_no_agent,
    hidden_texts_reach_the_agent_from_an_imitated_page,
    only_visible_commands_are_executed,
    text_waits_until_the_forge_renders_it
);

/// Word of each hidden text.
const CANARY: &str = "canary";

#[derive(Deserialize)]
struct RecordedPages {
    texts: Vec<RecordedText>,
    commands: Vec<RecordedComment>,
}

#[derive(Deserialize)]
struct RecordedText {
    source: String,
    page: String,
    hidden: Vec<String>,
}

#[derive(Deserialize)]
struct RecordedComment {
    name: String,
    source: String,
    page: String,
    commands: usize,
}

fn recorded(dialect: Dialect) -> RecordedPages {
    let file = match dialect {
        Dialect::GitHub => include_str!("../fixtures/pages/github.json"),
        Dialect::Gitea => include_str!("../fixtures/pages/gitea.json"),
    };
    serde_json::from_str(file).expect("recorded pages")
}

/// Lets the agent keep its prompts.
fn keep(world: &mut World) {
    let folder = world.folder.path().display();
    world.write_agent(&format!("cat >>\"{folder}/prompts\"\necho 42 >answer.txt\n"));
}

/// Returns the recorded texts with a hidden part.
fn texts_with_hidden_parts(dialect: Dialect) -> Vec<RecordedText> {
    let mut texts = recorded(dialect).texts;
    texts.retain(|text| !text.hidden.is_empty());
    assert!(!texts.is_empty());
    texts
}

/// Opens an issue of an outsider with this text, confirms it, and returns the prompt of the agent.
async fn prompt_for(world: &mut World, body: &str) -> String {
    let prompts = world.folder.path().join("prompts");
    let (who, title) = (world.outsider.clone(), "The answer is wrong here");
    world.issue = world.forge.open_issue(&who, world.repo, title, body, &[]).await.expect("an issue");
    world.settle().await;
    // A recent edit would be a reason to wait, too.
    world.advance(Duration::from_secs(3600)).await;
    let held = world.run().await;
    assert_eq!(held.state, LoopState::NeedsConfirm, "{}", held.why);
    assert!(!prompts.exists(), "an agent ran before the confirmation");
    world.comment(&format!("/ralph run --confirm {}", &held.task.hash[..8])).await;
    world.stop_at("the end of the agent", |current| current.run.step == LoopStep::Commit).await;
    std::fs::read_to_string(&prompts).expect("the agent's prompt")
}

/// See docs/research/threats.md#i2.
async fn hidden_texts_reach_no_agent(dialect: Dialect) {
    prepared_story(Setup::new(dialect), keep, async |world| {
        let texts = texts_with_hidden_parts(dialect);
        let body = texts.iter().map(|text| text.source.as_str()).collect::<Vec<_>>().join("\n\n");
        let page = texts.iter().map(|text| text.page.as_str()).collect::<Vec<_>>().join("\n");
        world.forge.set_page(&body, &page);
        let prompt = prompt_for(world, &body).await;
        assert!(!prompt.to_lowercase().contains(CANARY), "a canary reached the agent:\n{prompt}");
        assert!(prompt.contains("Before"), "{prompt}");
        let asked = world.forge.requests().iter().filter(|request| request.path.ends_with("/markdown")).count();
        assert_eq!(asked, if dialect == Dialect::Gitea { 2 } else { 0 }, "for the issue and for the command");
    })
    .await;
}

/// Texts of which a CommonMark library displays more than Gitea.
async fn hidden_texts_reach_the_agent_from_an_imitated_page(dialect: Dialect) {
    prepared_story(Setup::new(dialect), keep, async |world| {
        let texts = texts_with_hidden_parts(Dialect::Gitea);
        let body = texts.iter().map(|text| text.source.as_str()).collect::<Vec<_>>().join("\n\n");
        let prompt = prompt_for(world, &body).await;
        assert!(prompt.to_lowercase().contains(CANARY), "no canary reached the agent:\n{prompt}");
    })
    .await;
}

async fn only_visible_commands_are_executed(dialect: Dialect) {
    prepared_story(Setup::new(dialect), keep, async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        for comment in recorded(dialect).commands.into_iter().filter(|comment| comment.commands == 0) {
            world.forge.set_page(&comment.source, &comment.page);
            let id = world.comment(&comment.source).await;
            world.settle().await;
            assert_eq!(world.the_loop().await.state, LoopState::Review, "{}", comment.name);
            assert_eq!(world.reactions(id), Vec::<String>::new(), "{}", comment.name);
        }
        world.comment("Thanks!\n/ralph abort **please**").await;
        world.settle().await;
        let ended = world.the_loop().await;
        assert!(ended.why.contains("please"), "{}", ended.why);
    })
    .await;
}

async fn text_waits_until_the_forge_renders_it(dialect: Dialect) {
    text_waits(dialect, FakeFault::status(500)).await;
    text_waits(dialect, FakeFault::Reset { apply: false }).await;
    // GitHub would say that the issue does not exist.
    if dialect == Dialect::Gitea {
        text_waits(dialect, FakeFault::status(404)).await;
    }
}

async fn text_waits(dialect: Dialect, fault: FakeFault) {
    prepared_story(Setup::new(dialect), keep, async |world| {
        let (who, title) = (world.maintainer.clone(), "The answer is wrong here");
        let body = "The answer is **wrong**.\n\n```ralph\ntest \"$(cat answer.txt)\" = 42\n```";
        world.issue = world.forge.open_issue(&who, world.repo, title, body, &[]).await.expect("an issue");
        world.settle().await;
        world.advance(Duration::from_secs(3600)).await;
        // GitHub returns the page with the text.
        let (method, path) = match dialect {
            Dialect::Gitea => ("POST", "/markdown$"),
            Dialect::GitHub => ("GET", r"/issues/\d+$"),
        };
        world.forge.faults().next(1_000, method, path, fault).expect("a rule");
        world.label().await;
        world.settle().await;
        assert!(world.newest().await.is_none(), "nothing starts on a text that was not rendered");
        world.forge.faults().clear();
        world.advance(Duration::from_secs(3600)).await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(done.checks.list.len(), 1, "the check of the issue");
    })
    .await;
}
