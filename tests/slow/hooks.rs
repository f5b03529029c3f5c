//! Hooks of the operator: real programs that let a loop continue, block it, ask people, or fail.

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;

use ralph_bot::process::SandboxTier;

use crate::harness::{Setup, World, on_one_forge, sandbox, story};

on_one_forge!(
    next_run_gets_the_reason_of_a_blocked_review,
    question_before_an_agent_is_answered_by_resuming,
    hook_without_a_verdict_pauses_the_loop,
    optional_hook_runs_where_the_repository_names_it,
    pause_by_a_hook_restores_the_best_state,
    hook_reaches_the_data_of_the_service_only_if_the_operator_allows_it,
);

/// Agent that solves the task, and writes the text that a hook requests.
const AGENT: &str = "prompt=$(cat)\necho 42 >answer.txt\ncase $prompt in *'NEWS is missing'*) echo new >NEWS;; esac\n";

/// Returns the configuration of one hook that runs a shell script.
fn hook(event: &str, script: &str, more: &str) -> String {
    let command = serde_json::to_string(&["/bin/sh", "-c", script]).expect("a list");
    format!("hooks: {{ {event}: [{{ name: gate, command: {command}, sandbox: false{more} }}] }}")
}

async fn escalation(world: &World) -> String {
    let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
    world.issue_of(escalation).body
}

async fn next_run_gets_the_reason_of_a_blocked_review(dialect: Dialect) {
    let script = r#"grep -q '"event":"before_ready"' && test -f answer.txt || exit 3
        if test -f NEWS; then echo '{"verdict":"continue"}'; else echo '{"verdict":"block","reason":"NEWS is missing"}'; fi"#;
    let setup = Setup::new(dialect).config(&hook("before_ready", script, "")).agent(AGENT);
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert!(world.prompt(2).await.contains("NEWS is missing"));
        assert_eq!(world.file(&done.branch.name, "NEWS").await.as_deref(), Some("new\n"));
        assert_eq!(done.branch.verified, done.branch.head);
    })
    .await;
}

async fn question_before_an_agent_is_answered_by_resuming(dialect: Dialect) {
    let script = r#"echo '{"verdict":"ask","question":"May the agent run now?"}'"#;
    let setup = Setup::new(dialect).config(&hook("before_agent", script, "")).agent(AGENT);
    story(setup, async |world| {
        let paused = world.run().await;
        assert_eq!((paused.state, paused.spent.iterations), (LoopState::Paused, 0), "{}", paused.why);
        assert!(world.prompts().await.is_empty(), "no agent ran");
        assert!(escalation(world).await.contains("May the agent run now?"));
        world.comment("/ralph resume").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
    })
    .await;
}

async fn hook_without_a_verdict_pauses_the_loop(dialect: Dialect) {
    for (script, says) in
        [("echo maybe", "is not a verdict"), ("echo no >&2; exit 3", "exit code 3"), ("sleep 30", "longer than 1 s")]
    {
        let setup = Setup::new(dialect).config(&hook("after_iteration", script, ", timeout: 1s")).agent(AGENT);
        story(setup, async |world| {
            let paused = world.run().await;
            assert_eq!((paused.state, paused.spent.iterations), (LoopState::Paused, 1), "{}", paused.why);
            assert!(paused.why.contains("`gate` gave no verdict") && paused.why.contains(says), "{}", paused.why);
            assert!(escalation(world).await.contains("gave no verdict"));
        })
        .await;
    }
}

async fn optional_hook_runs_where_the_repository_names_it(dialect: Dialect) {
    let script = r#"echo '{"verdict":"block","reason":"never"}'"#;
    for (file, state) in
        [("checks: [sh check.sh]\n", LoopState::Review), ("checks: [sh check.sh]\nhooks: [gate]\n", LoopState::Paused)]
    {
        let config = hook("before_agent", script, ", optional: true");
        story(Setup::new(dialect).config(&config).file(".ralph.yml", file).agent(AGENT), async |world| {
            let ended = world.run().await;
            assert_eq!(ended.state, state, "{}", ended.why);
        })
        .await;
    }
}

async fn pause_by_a_hook_restores_the_best_state(dialect: Dialect) {
    let agent = "cat >/dev/null\nif [ -f work.txt ]; then rm kept.txt; else echo good >work.txt; fi\n";
    let checks = "checks:\n  - { name: kept, run: test -f kept.txt }\n  - { name: work, run: test -f work.txt }\n  - { name: never, run: test -f never.txt }\n";
    let script = r#"if test -f kept.txt; then echo '{"verdict":"continue"}'
        else echo '{"verdict":"ask","question":"Is kept.txt of no use?"}'; fi"#;
    let config = hook("after_iteration", script, "");
    let setup = Setup::new(dialect).agent(agent).file("kept.txt", "kept\n").file(".ralph.yml", checks).config(&config);
    story(setup, async |world| {
        let paused = world.run().await;
        assert_eq!((paused.state, paused.spent.iterations), (LoopState::Paused, 2), "{}", paused.why);
        assert!(paused.why.contains("Is kept.txt of no use?"), "{}", paused.why);
        assert_eq!(paused.current().and_then(|last| last.restored_to), Some(1), "{}", paused.why);
        assert_eq!(world.file(&paused.branch.name, "kept.txt").await.as_deref(), Some("kept\n"));
        assert_eq!(world.file(&paused.branch.name, "work.txt").await.as_deref(), Some("good\n"));
        assert_eq!(paused.branch.pushed, paused.branch.head);
        assert!(escalation(world).await.contains("the files of iteration 1, the best one, were restored"));
    })
    .await;
}

/// Looks for the database of the service above the work tree, writes beside it and into the tree, and asks with what succeeded.
const NOSY: &str = r#"cat >/dev/null; did=nothing; above=$PWD
    while [ "$above" != / ]; do
        above=$(dirname "$above")
        if head -c 6 "$above/ralph.db" 2>/dev/null | grep -q SQLite; then did="$did read"; fi
        if [ -e "$above/ralph.db" ] && true 2>/dev/null >"$above/hook-was-here"; then did="$did wrote"; fi
    done
    if true 2>/dev/null >written-by-hook; then did="$did changed"; fi
    echo "{\"verdict\":\"ask\",\"question\":\"It did: $did.\"}""#;

async fn hook_reaches_the_data_of_the_service_only_if_the_operator_allows_it(dialect: Dialect) {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let command = serde_json::to_string(&["/bin/sh", "-c", NOSY]).expect("a list");
    for (more, does) in [("", "It did: nothing."), (", sandbox: false", "It did: nothing read wrote changed.")] {
        let config = format!("hooks: {{ before_agent: [{{ name: gate, command: {command}{more} }}] }}");
        let setup = Setup::new(dialect).isolated().config(&config).agent(AGENT);
        story(setup, async |world| {
            let paused = world.run().await;
            assert_eq!((paused.state, paused.spent.iterations), (LoopState::Paused, 0), "{}", paused.why);
            assert!(paused.why.contains(does), "{more}: {}", paused.why);
            let left = world.folder.path().join("data/hook-was-here").exists();
            assert_eq!(left, !more.is_empty(), "{more}");
        })
        .await;
    }
}
