//! Learnings of one loop are in the prompts of the next one, unless memory is disabled.

use fake_forge::Dialect;
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::ids::Number;
use ralph_bot::store::memory;

use super::providers::REMEMBERS;
use crate::harness::{Setup, World, on_one_forge, story};

on_one_forge!(
    learnings_reach_the_next_loop,
    disabled_memory_shares_nothing,
    isolated_loops_share_nothing_and_keep_their_own_memory,
    session_memory_of_isolated_loops_has_no_learnings,
    learnings_are_found_by_file_path,
    failed_approach_is_not_repeated_by_next_loop,
);

/// Agent that reports its action, as its task requests.
const AGENT: &str = r#"case "$(cat)" in *'other answer'*) echo 7 >other.txt ;; *) echo 42 >answer.txt ;; esac
printf '{"approach": "Write the bare number into the text file", "summary": "Done.", "learnings": ["check.sh compares the text"]}' >"$RALPH_REPORT"
"#;
const RULE: &str = "Answers end with a line feed";
const APPROACH: &str = "Write the bare number into the text file";

/// Runs a loop that gets a rule, completes and is merged, then a loop on another issue; returns the prompts of both, and the
/// second loop.
async fn two_loops(world: &World) -> (Vec<String>, Vec<String>, Loop) {
    world.label().await;
    world.settle_until("its checks", |l| !l.checks.list.is_empty()).await;
    world.comment(&format!("/ralph guide --remember {RULE}")).await;
    world.settle().await;
    let first = world.the_loop().await;
    assert_eq!(first.state, LoopState::Review, "{}", first.why);
    let prompts = world.prompts().await;
    let pull = first.pull.opened.expect("a pull request").number;
    world.forge.merge(&world.maintainer, world.repo, pull).await.expect("merged");
    world.settle().await;
    assert_eq!(world.the_loop().await.state, LoopState::Merged);

    world.clock.advance_ms(60_000);
    let (title, body) = ("The other answer is wrong", "The text file other.txt should hold 7.");
    let issue: Number =
        world.forge.open_issue(&world.maintainer, world.repo, title, body, &[]).await.expect("an issue");
    let start = "/ralph run --check \"grep -q 7 other.txt\"";
    world.forge.comment(&world.maintainer, world.repo, issue, start).await.expect("commented");
    world.settle().await;
    let second = world.the_loop().await;
    assert_eq!((second.issue.issue, second.state), (issue, LoopState::Review), "{}", second.why);
    let first_prompts = world.prompts().await;
    (prompts, first_prompts, second)
}

async fn learnings_reach_the_next_loop(dialect: Dialect) {
    story(Setup::new(dialect).agent(AGENT), async |world| {
        let (first, second, looped) = two_loops(world).await;
        assert!(!first[0].contains(APPROACH), "the first prompt has the learning: {}", first[0]);
        for wanted in [APPROACH, RULE] {
            assert!(second[0].contains(wanted), "{wanted}: {}", second[0]);
        }
        // The prompt's learnings were recorded and credited with the iteration's result.
        let (known, _) = world.engine().store.read(|c| memory::list(c, "", 99)).await.expect("read");
        let strategy = known.iter().find(|learning| learning.content.gist() == APPROACH).expect("learnt");
        assert!(strategy.merged && strategy.uses == 1 && strategy.seen >= 2, "{strategy:?}");
        let rule = known.iter().find(|learning| learning.content.gist() == RULE).expect("learnt");
        assert!(rule.uses >= 1 && rule.seen == 1, "the rule was not found: {rule:?}");
        // The first task changes the estimate for such tasks.
        assert_eq!(looped.knowledge.estimate.map(|estimate| estimate.samples), Some(1), "{:?}", looped.task_type());
        assert_ne!(looped.usual_iterations(), looped.task_type().usual_iterations());
        assert_eq!(world.engine().store.read(memory::quarantined).await.expect("counted"), 0);
    })
    .await;
}

async fn disabled_memory_shares_nothing(dialect: Dialect) {
    story(Setup::new(dialect).agent(AGENT).config("memory: { enabled: false }"), async |world| {
        let (_, second, looped) = two_loops(world).await;
        assert_eq!(looped.knowledge.estimate, None);
        for unwanted in [APPROACH, RULE] {
            assert!(!second[0].contains(unwanted), "{unwanted}: {}", second[0]);
        }
        let counts = world.engine().store.read(memory::counts).await.expect("counted");
        assert_eq!(counts, memory::LearningCounts::default());
    })
    .await;
}

async fn isolated_loops_share_nothing_and_keep_their_own_memory(dialect: Dialect) {
    story(Setup::new(dialect).agent(AGENT).config("memory: { across_loops: false }"), async |world| {
        let (_, second, looped) = two_loops(world).await;
        assert_eq!(looped.knowledge.estimate, None);
        for unwanted in [APPROACH, RULE] {
            assert!(!second[0].contains(unwanted), "{unwanted}: {}", second[0]);
        }
        let id = looped.id.clone();
        let read = world.engine().store.read(move |c| Ok((memory::counts(c)?, memory::reflections(c, &id, 9)?)));
        let (counts, reflections) = read.await.expect("read");
        assert_eq!(counts, memory::LearningCounts::default());
        assert_eq!(reflections.len(), 1, "{reflections:?}");
    })
    .await;
}

/// The session memory answers about the loop itself; only with `across_loops` it also searches learnings.
async fn session_memory_of_isolated_loops_has_no_learnings(dialect: Dialect) {
    let lists = r#"'{"jsonrpc":"2.0","id":3,"method":"tools/list"}' '{"jsonrpc":"2.0","id":2,"#;
    let script = REMEMBERS
        .replace(r#"'{"jsonrpc":"2.0","id":2,"#, lists)
        .replace(r#"grep -q '"id":2' "$TMPDIR/out""#, r#"[ "$(grep -c '"id":[23]' "$TMPDIR/out")" = 2 ]"#);
    assert_eq!(script.matches(r#""id":3"#).count(), 1);
    assert!(script.contains("= 2 ]"), "{script}");
    let command = serde_json::to_string(&["/bin/sh", "-c", &script, "agent"]).expect("a list");
    for shares in [true, false] {
        let config = format!(
            "  own: {{ type: external, output: jsonl, command: {command}, args: ['{{mcp_config}}'] }}\npriority: {{ agent: [own] }}\nmemory: {{ across_loops: {shares} }}\nlimits: {{ comments_per_hour: 1000, comments_per_day: 1000 }}\n"
        );
        story(Setup::new(dialect).isolated().config(&config), async |world| {
            let done = world.run().await;
            assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
            let answers = world.file(&done.branch.name, "heard.txt").await.expect("it asked");
            assert!(answers.contains("The walrus sleeps."), "{answers}");
            let offered = |tool: &str| answers.contains(&format!("\"name\":\"{tool}\""));
            assert_eq!((offered("search"), offered("learnings")), (true, shares), "{answers}");
        })
        .await;
    }
}

/// Agent whose second task takes two iterations.
const HERD: &str = r#"mkdir -p herd
case "$(cat)" in
  *zorps*|*blems*) echo $((5 + RALPH_ITERATION)) >herd/gnus.txt ;;
  *) echo 1 >herd/gnus.txt; echo 42 >answer.txt
    printf '{"approach": "Write the bare number into the text file", "summary": "Done."}' >"$RALPH_REPORT" ;;
esac
"#;

async fn learnings_are_found_by_file_path(dialect: Dialect) {
    let mut setup = Setup::new(dialect).agent(HERD);
    for (name, script) in [("quiet", ""), ("loud", "echo 'see herd/gnus.txt'; echo 'no good'; ")] {
        let text = format!("#!/bin/sh\ngrep -q 7 herd/gnus.txt && exit; {script}exit 1\n");
        setup.files.push((name.into(), text, true));
    }
    story(setup, async |world| {
        let first = world.run().await;
        assert_eq!(first.state, LoopState::Review, "{}", first.why);
        world
            .forge
            .merge(&world.maintainer, world.repo, first.pull.opened.expect("a pull request").number)
            .await
            .expect("merged");
        world.settle().await;
        // The tasks share no words with the learnings. The first changes the file, and the other's check names it.
        for (title, check, known) in
            [("Seven zorps", "./quiet", [false, true]), ("Seven blems", "./loud", [true, true])]
        {
            world.clock.advance_ms(60_000);
            let issue =
                world.forge.open_issue(&world.maintainer, world.repo, title, "Please.", &[]).await.expect("an issue");
            let start = format!("/ralph run --check \"{check}\"");
            world.forge.comment(&world.maintainer, world.repo, issue, &start).await.expect("commented");
            world.settle().await;
            let done = world.the_loop().await;
            assert_eq!(
                (done.issue.issue, done.state, done.spent.iterations),
                (issue, LoopState::Review, 2),
                "{}",
                done.why
            );
            let prompts = world.prompts().await;
            let named: Vec<_> = prompts.iter().map(|prompt| prompt.contains(APPROACH)).collect();
            assert_eq!(named, known, "{title}: {prompts:#?}");
        }
    })
    .await;
}

/// Agent without progress, whose first loop tries an approach that the service would also propose.
const LOST: &str = r#"case "$(cat)" in *'other answer'*) tried=guessing ;; *) tried='Find the cause first' ;; esac
echo "$RALPH_ITERATION" >notes.txt
printf '{"approach": "%s", "summary": "Looked again."}' "$tried" >"$RALPH_REPORT"
"#;

async fn failed_approach_is_not_repeated_by_next_loop(dialect: Dialect) {
    let limits = "limits: { comments_per_hour: 1000, comments_per_day: 1000 }\noversight: { redirects: 1 }";
    story(Setup::new(dialect).agent(LOST).config(limits), async |world| {
        assert_eq!(world.run().await.state, LoopState::Paused);
        world.comment("/ralph abort").await;
        world.settle().await;
        world.clock.advance_ms(60_000);
        let (title, body) = ("The other answer is wrong", "It should be 42, as the answer says.");
        let issue = world.forge.open_issue(&world.maintainer, world.repo, title, body, &[]).await.expect("an issue");
        world.forge.comment(&world.maintainer, world.repo, issue, "/ralph run").await.expect("commented");
        world.settle().await;
        let second = world.the_loop().await;
        assert_eq!((second.issue.issue, second.state), (issue, LoopState::Paused), "{}", second.why);
        assert!(
            second.knowledge.failed_elsewhere.iter().any(|way| way == "Find the cause first"),
            "{:?}",
            second.knowledge.failed_elsewhere
        );
        let mut ways =
            second.iterations.iter().filter_map(|iteration| iteration.judged.as_ref()).map(|judged| &judged.way);
        // Else it would be the first.
        assert_eq!(ways.find(|way| !way.is_empty()).map(String::as_str), Some("minimal reproduction"));
    })
    .await;
}
