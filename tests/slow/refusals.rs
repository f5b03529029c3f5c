//! Changes that a forge refuses for good: people get the missing change, the reason and the remedy, and a restored permission and
//! `/ralph resume` make up for it.

use fake_forge::{Dialect, FakeFault};
use ralph_bot::domain::loops::{LoopState, LoopStep};

use crate::harness::{Setup, World, on_both_forges, story};

on_both_forges!(
    refused_ready_state_is_reported_and_repeated_by_resume,
    pull_request_that_cannot_be_opened_pauses_the_loop,
    question_is_asked_in_the_loops_issue_if_no_issue_can_be_opened,
    refused_labels_are_reported_without_stopping_the_loop,
    refused_commit_status_is_reported_without_stopping_the_loop,
);

const FOREVER: u32 = 10_000;
const ANSWER: &str = "Resource not accessible by integration";

/// Refuses the calls of a method to a path.
fn refuse(world: &World, method: &str, path: &str) {
    let body = format!("{{\"message\":\"{ANSWER}\"}}");
    let fault = FakeFault::Respond { status: 403, headers: Vec::new(), body, apply: false };
    world.forge.faults().next(FOREVER, method, path, fault).expect("a pattern");
}

/// Number of calls of a method to paths that end so.
fn calls(world: &World, method: &str, end: &str) -> usize {
    let is_one = |path: &str| path.ends_with(end);
    world.forge.requests().iter().filter(|request| request.method == method && is_one(&request.path)).count()
}

async fn resume(world: &World) {
    world.forge.faults().clear();
    world.comment("/ralph resume").await;
    world.settle().await;
}

async fn refused_ready_state_is_reported_and_repeated_by_resume(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.label().await;
        // GraphQL also returns the editors of the issue, which a loop needs to start.
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        match dialect {
            Dialect::GitHub => refuse(world, "POST", "/api/graphql$"),
            Dialect::Gitea => refuse(world, "PATCH", r"/pulls/\d+$"),
        }
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(world.is_draft(&world.the_pull().await));
        let status = world.bot_comments().first().cloned().expect("the status");
        for words in ["The pull request stays a draft: the forge refused to ", ANSWER, "`/ralph resume`"] {
            assert!(status.contains(words), "{words}: {status}");
        }
        resume(world).await;
        let ready = world.the_loop().await;
        assert_eq!((ready.state, ready.iterations.len(), ready.pull.refused.len()), (LoopState::Review, 1, 0));
        assert!(!world.is_draft(&world.the_pull().await));
        assert!(!world.bot_commented("stays a draft"), "{:#?}", world.bot_comments());
    })
    .await;
}

async fn pull_request_that_cannot_be_opened_pauses_the_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        refuse(world, "POST", "/pulls$");
        let paused = world.run().await;
        assert_eq!((paused.state, &paused.pull.opened), (LoopState::Paused, &None), "{}", paused.why);
        assert!(paused.branch.pushed.is_some(), "the work is on the forge");
        let [escalation] = world.escalations()[..] else { panic!("one escalation") };
        let text = world.issue_of(escalation).body;
        assert!(text.contains("The bot could not open the pull request") && text.contains(ANSWER), "{text}");
        let tried = calls(world, "POST", "/pulls");
        assert!(tried <= 3, "tried {tried} times");
        resume(world).await;
        let done = world.the_loop().await;
        assert_eq!(
            (done.state, done.iterations.len(), done.pull.refused.len()),
            (LoopState::Review, 1, 0),
            "{}",
            done.why
        );
        assert!(done.pull.opened.is_some() && !world.is_draft(&world.the_pull().await));
        assert!(world.escalations().is_empty(), "the escalation is closed");
    })
    .await;
}

async fn question_is_asked_in_the_loops_issue_if_no_issue_can_be_opened(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        refuse(world, "POST", "/pulls$");
        refuse(world, "POST", "/issues$");
        let paused = world.run().await;
        assert_eq!(paused.state, LoopState::Paused, "{}", paused.why);
        assert!(world.escalations().is_empty());
        let asked = world.bot_comments();
        let asked = asked.iter().filter(|body| body.contains("answer on the loop's own issue")).count();
        assert!(asked >= 1, "{:#?}", world.bot_comments());
        let tried = calls(world, "POST", "/issues");
        assert!(tried <= 2, "tried {tried} times");
        resume(world).await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.pull.refused.len()), (LoopState::Review, 0), "{}", done.why);
    })
    .await;
}

async fn refused_labels_are_reported_without_stopping_the_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        refuse(world, "POST", r"/issues/\d+/labels$");
        // The label that starts the loop is set by the maintainer beside the API.
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(world.bot_commented("The label of the state is out of date"), "{:#?}", world.bot_comments());
        assert!(!world.state_labels().iter().any(|label| label.contains("review")));
        resume(world).await;
        let labels = world.state_labels();
        assert!(labels.iter().any(|label| label.contains(&LoopState::Review.label())), "{labels:?}");
        assert!(!world.bot_commented("The label of the state is out of date"));
    })
    .await;
}

async fn refused_commit_status_is_reported_without_stopping_the_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        refuse(world, "POST", r"(/check-runs|/statuses/[0-9a-f]+)$");
        let done = world.run().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{}", done.why);
        assert!(world.bot_commented("The bot could not set the status `ralph/verified` of the commit"));
        let receipts = world.receipts().await;
        let tried = receipts.iter().filter(|receipt| receipt.key == "commit-status").count();
        assert!(tried < 30, "telling it causes no endless tries: {tried}");
        resume(world).await;
        assert!(world.the_loop().await.pull.refused.is_empty());
        assert!(!world.bot_commented("could not set"), "{:#?}", world.bot_comments());
    })
    .await;
}
