//! Checks whose result is a matter of chance: they start, finish and prove nothing by themselves.

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;
use regex::Regex;

use crate::harness::{Setup, WILLING, on_one_forge, story};

on_one_forge!(
    check_that_passes_every_second_time_starts_no_loop,
    check_that_fails_in_one_of_two_fresh_checkouts_needs_a_decision,
    check_that_passes_by_chance_without_a_change_needs_a_decision,
);

/// Returns a check that counts its runs in a file outside of the trees and fails in some of them.
fn failing_in(folder: &tempfile::TempDir, runs: &str) -> String {
    let file = folder.path().join("runs").display().to_string();
    format!("n=$(cat {file} 2>/dev/null || echo 0); echo $((n + 1)) >{file}; case $n in {runs}) exit 1;; esac")
}

/// See docs/research/faults.md#a10.
async fn check_that_passes_every_second_time_starts_no_loop(dialect: Dialect) {
    let counter = tempfile::tempdir().expect("a folder");
    story(Setup::new(dialect).agent(WILLING), async |world| {
        world.comment(&format!("/ralph run --check '{}'", failing_in(&counter, "0|2|4|6|8"))).await;
        world.settle().await;
        let waiting = world.the_loop().await;
        assert_eq!((waiting.state, waiting.iterations.len()), (LoopState::NeedsCriteria, 0), "{}", waiting.why);
        assert!(waiting.why.contains("failed at the base once and passed on a second run: flaky"), "{}", waiting.why);
        let commands = Regex::new("n=\\$\\(cat.*?esac").expect("a pattern");
        let conversation = world.conversation();
        insta::assert_snapshot!("flaky_check", commands.replace_all(&conversation, "COMMAND"));
        assert!(world.prompts().await.is_empty(), "no agent ran");
        world.comment("/ralph run --check 'sh check.sh'").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{}", done.why);
    })
    .await;
}

/// The check passes in the tree and in the first fresh checkout, and fails in the second one of the same commit.
/// See docs/research/faults.md#a10.
async fn check_that_fails_in_one_of_two_fresh_checkouts_needs_a_decision(dialect: Dialect) {
    let counter = tempfile::tempdir().expect("a folder");
    // Its second run changes nothing, so that the commit stays the same.
    story(Setup::new(dialect).agent("echo 42 >answer.txt\n"), async |world| {
        world.comment(&format!("/ralph run --check '{}'", failing_in(&counter, "0|1|4"))).await;
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!((paused.state, paused.spent.iterations), (LoopState::Paused, 2), "{}", paused.why);
        assert!(paused.why.contains("fresh checkouts of the same commit: flaky"), "{}", paused.why);
        assert!(world.prompt(2).await.contains("does not give the same result twice"));
        assert_eq!(paused.branch.verified, None);
        world.comment("/ralph resume").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let pull = world.the_pull().await.body;
        assert!(pull.contains("it is flaky: it failed once and passed once"), "{pull}");
    })
    .await;
}

/// See docs/research/faults.md#a10.
async fn check_that_passes_by_chance_without_a_change_needs_a_decision(dialect: Dialect) {
    let counter = tempfile::tempdir().expect("a folder");
    story(Setup::new(dialect).agent("cat >/dev/null\n"), async |world| {
        world.comment(&format!("/ralph run --check '{}'", failing_in(&counter, "0|1"))).await;
        world.settle().await;
        let waiting = world.the_loop().await;
        assert_eq!((waiting.state, waiting.iterations.len()), (LoopState::NeedsCriteria, 1), "{}", waiting.why);
        assert!(waiting.why.contains("without any change: flaky"), "{}", waiting.why);
        assert!(world.bot_commented("failed once and passed once"), "{:?}", world.bot_comments());
    })
    .await;
}
