//! Faults of agents and checks: missing programs, hangs, floods of output, false reports, and leftover processes.

use std::time::Duration;

use fake_forge::Dialect;
use ralph_bot::domain::loops::{LoopState, LoopStep};

use crate::harness::{Setup, World, on_one_forge, story};

on_one_forge!(
    missing_agent_pauses_with_advice,
    unstartable_agent_pauses_with_advice,
    silent_agent_is_killed_after_idle_limit,
    flood_of_output_is_truncated,
    binary_output_is_sanitized,
    background_processes_end_with_the_run,
    three_consecutive_agent_failures_end_the_loop,
    idle_agent_reaches_iteration_limit,
    malformed_report_is_ignored,
    false_completion_claim_is_ignored,
    symlinked_report_is_not_followed,
    hanging_check_times_out,
    check_output_is_truncated,
    flaky_check_ends_in_review_or_pause,
    service_home_is_hidden_from_agents_and_checks,
);

const ENOUGH: &str = "comments_per_hour: 1000, comments_per_day: 1000";

fn the_escalation(world: &World) -> String {
    let [number] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
    world.issue_of(number).body
}

/// See docs/research/faults.md#a6.
async fn missing_agent_pauses_with_advice(dialect: Dialect) {
    let backend = "  other: { type: script, command: [\"/nowhere/agent\"], roles: [agent] }";
    story(Setup::new(dialect).config(&format!("{backend}\nlimits: {{ {ENOUGH} }}")), async |world| {
        world.comment("/ralph run --backend other").await;
        world.settle().await;
        assert!(world.newest().await.is_none(), "a loop started with an unavailable backend");
        assert!(world.bot_commented("mine"), "{:?}", world.bot_comments());
        world.comment("/ralph run --backend mine").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
    })
    .await;
}

/// See docs/research/faults.md#a6.
async fn unstartable_agent_pauses_with_advice(dialect: Dialect) {
    let backend = "  other: { type: script, command: [\"/etc/hostname\"], roles: [agent] }";
    story(Setup::new(dialect).config(&format!("{backend}\nlimits: {{ {ENOUGH} }}")), async |world| {
        world.comment("/ralph run --backend other").await;
        world.settle().await;
        let stopped = world.the_loop().await;
        assert_eq!(stopped.state, LoopState::Failed, "{}", stopped.why);
        assert!(the_escalation(world).contains("/ralph resume"));
        assert_eq!(world.state_labels(), ["failed"]);
        world.comment("/ralph resume --backend mine").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(world.escalations().is_empty());
    })
    .await;
}

/// See docs/research/faults.md#a1.
async fn silent_agent_is_killed_after_idle_limit(dialect: Dialect) {
    let agent = "if [ $RALPH_ITERATION = 1 ]; then trap '' TERM; echo 40 >answer.txt; while :; do sleep 1; done; fi\necho 42 >answer.txt\n";
    let config = format!("limits: {{ agent_idle: 1s, {ENOUGH} }}");
    story(Setup::new(dialect).agent(agent).config(&config), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert!(done.iterations[0].agent_problem.contains("stopped"), "{}", done.iterations[0].agent_problem);
        // Its earlier work is not lost.
        assert!(done.iterations[0].commit.is_some());
    })
    .await;
}

/// See docs/research/faults.md#a3.
async fn flood_of_output_is_truncated(dialect: Dialect) {
    let agent = "yes 'a line that says nothing' | head -c 5000000\nhead -c 20000000 /dev/zero | tr '\\0' x\necho 42 >answer.txt\n";
    story(Setup::new(dialect).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let folder = world.engine().runs.folders.logs.join(done.id.as_str());
        for entry in std::fs::read_dir(folder).expect("logs").flatten() {
            let size = entry.metadata().expect("a file").len();
            assert!(size < 5_000_000, "{:?} has {size} bytes", entry.path());
        }
        assert!(world.bot_comments().iter().all(|said| said.len() < 65_000));
    })
    .await;
}

/// See docs/research/faults.md#a4.
async fn binary_output_is_sanitized(dialect: Dialect) {
    let agent = r#"printf '\377\376 a\000b \033[31mred\033[0m \033]0;title\007 c\r\n'
printf '{"summary": "told \\u001b[31mred\\u001b[0m and \\u0000 nothing", "learnings": ["\\ud800 lone"]}' >"$RALPH_REPORT"
[ $RALPH_ITERATION = 1 ] && exit 0
printf '{"summary": "told \\u001b[31mred\\u001b[0m and \\u0000 nothing"}' >"$RALPH_REPORT"
printf '\xff\xfe\x00' >binary.dat
echo 42 >answer.txt
"#;
    story(Setup::new(dialect).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        let pull = world.the_pull().await;
        for text in world.bot_comments().into_iter().chain([pull.body, pull.title]) {
            let odd = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
            assert_eq!(odd, None, "{text:?}");
        }
    })
    .await;
}

/// See docs/research/faults.md#a2.
async fn background_processes_end_with_the_run(dialect: Dialect) {
    let agent =
        "sleep 600 &\nsetsid sleep 600 &\n( setsid sh -c 'trap \"\" TERM HUP; sleep 600' & ) &\necho 42 >answer.txt\n";
    story(Setup::new(dialect).isolated().agent(agent), async |world| {
        let run = tokio::time::timeout(Duration::from_secs(60), world.run());
        let done = run.await.expect("the run ends with the agent");
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        // `finish` sees to it that none of the processes is left.
    })
    .await;
}

/// See docs/research/faults.md#a5.
async fn three_consecutive_agent_failures_end_the_loop(dialect: Dialect) {
    let agent = "echo 'no credit left on this machine' >&2\nexit 7\n";
    story(Setup::new(dialect).agent(agent), async |world| {
        let stopped = world.run().await;
        assert_eq!((stopped.state, stopped.spent.iterations), (LoopState::Failed, 3), "{}", stopped.why);
        let body = the_escalation(world);
        assert!(body.contains("no credit left on this machine") && body.contains("/ralph resume"), "{body}");
        world.write_agent("echo 42 >answer.txt\n");
        world.comment("/ralph resume").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 4), "{}", done.why);
        assert!(world.escalations().is_empty());
    })
    .await;
}

/// See docs/research/faults.md#a5 and docs/research/faults.md#a7.
async fn idle_agent_reaches_iteration_limit(dialect: Dialect) {
    let config = format!("limits: {{ iterations: 2, {ENOUGH} }}");
    story(Setup::new(dialect).agent("echo thinking\n").config(&config), async |world| {
        let stopped = world.run().await;
        assert_eq!((stopped.state, stopped.branch.pushed.as_ref()), (LoopState::LimitReached, None), "{}", stopped.why);
        assert!(
            stopped.pull.opened.is_none() && world.forge.branch_sha(world.repo, &stopped.branch.name).await.is_none()
        );
        assert!(the_escalation(world).contains("--max-iterations"));
    })
    .await;
}

/// See docs/research/threats.md#s9.
async fn malformed_report_is_ignored(dialect: Dialect) {
    let agent = r#"case $RALPH_ITERATION in
1) printf '{"summary": ' >"$RALPH_REPORT" ;;
2) printf '[1, 2]' >"$RALPH_REPORT" ;;
3) printf '{"summary": 7, "learnings": "one", "completion_percentage": "much"}' >"$RALPH_REPORT" ;;
4) mkdir "$RALPH_REPORT" ;;
5) head -c 9000000 /dev/zero >"$RALPH_REPORT" ;;
*) echo 42 >answer.txt ;;
esac
"#;
    // Five iterations that change nothing; how long that is borne is another matter.
    let unseen = "oversight: { stuck: { enabled: false }, no_change: { enabled: false } }";
    story(Setup::new(dialect).agent(agent).config(unseen), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 6), "{}", done.why);
    })
    .await;
}

/// See docs/research/faults.md#a7.
async fn false_completion_claim_is_ignored(dialect: Dialect) {
    let agent = r#"printf '{"summary": "all done", "completion_percentage": 100, "quality_score": 1, "completion_signal": true}' >"$RALPH_REPORT"
echo "RALPH_DONE every check passes"
[ $RALPH_ITERATION = 3 ] && echo 42 >answer.txt || echo 43 >answer.txt
"#;
    story(Setup::new(dialect).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 3), "{}", done.why);
        assert!(done.iterations[..2].iter().all(|i| i.completion.whole_percent() == 0));
    })
    .await;
}

/// See docs/research/threats.md#g9.
async fn symlinked_report_is_not_followed(dialect: Dialect) {
    story(Setup::new(dialect).isolated(), async |world| {
        let outside = world.folder.path().join("outside.json");
        std::fs::write(&outside, r#"{"summary": "text from outside of the tree"}"#).expect("written");
        world.write_agent(&format!("ln -s {} \"$RALPH_REPORT\"\necho 42 >answer.txt\n", outside.display()));
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(!world.bot_commented("text from outside"));
        assert!(!world.the_pull().await.body.contains("text from outside"));
    })
    .await;
}

/// See docs/research/faults.md#a10.
async fn hanging_check_times_out(dialect: Dialect) {
    let file = "checks:\n  - { name: slow, run: \"grep -q 42 answer.txt || sleep 600\", timeout: 1s }\n";
    let agent = "[ $RALPH_ITERATION = 2 ] && echo 42 >answer.txt || echo 40 >answer.txt\n";
    story(Setup::new(dialect).file(".ralph.yml", file).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert!(done.iterations[0].checks.outcomes[0].why.contains("timed out"), "{:?}", done.iterations[0].checks);
        assert!(world.prompt(2).await.contains("timed out"));
    })
    .await;
}

/// See docs/research/faults.md#a10.
async fn check_output_is_truncated(dialect: Dialect) {
    let file =
        "checks:\n  - { name: loud, run: \"yes noise | head -c 5000000; echo the end; grep -q 42 answer.txt\" }\n";
    let agent = "[ $RALPH_ITERATION = 2 ] && echo 42 >answer.txt || echo 40 >answer.txt\n";
    story(Setup::new(dialect).file(".ralph.yml", file).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        let output = &done.iterations[0].checks.outcomes[0].output;
        assert!(output.len() <= 16 * 1024 && output.contains("the end"), "{} bytes", output.len());
        assert!(world.bot_comments().iter().all(|said| said.len() < 65_000));
    })
    .await;
}

/// The same commit passes and fails at random.
/// See docs/research/faults.md#a10.
async fn flaky_check_ends_in_review_or_pause(dialect: Dialect) {
    // In a fresh checkout once; and in two iterations in a row, after it had passed before the first.
    let once = [(LoopStep::Verify, false), (LoopStep::Agent, true)];
    let twice = [(LoopStep::Check, false), (LoopStep::Agent, true), (LoopStep::Verify, false)];
    for (tosses, end) in [(&once[..], LoopState::Review), (&twice[..], LoopState::Paused)] {
        story(Setup::new(dialect), async |world| {
            // A path that checks can read and only this story changes.
            let turn = |heads: bool| {
                let agent = "echo 42 >answer.txt\necho $RALPH_ITERATION >>notes.txt\n";
                world.write_agent(&format!("# heads: {heads}\n{agent}"));
            };
            let coin = world.folder.path().join("agent.sh").display().to_string();
            let file = format!(
                "checks:\n  - {{ name: answer, run: sh check.sh }}\n  - {{ name: coin, run: \"grep -q 'heads: true' {coin}\" }}\n"
            );
            let file = [(".ralph.yml", Some(file.as_str()), false)];
            world.forge.push_commit(&world.maintainer, world.repo, "main", &file, "Toss a coin").await.expect("pushed");
            turn(true);
            world.label().await;
            for (step, heads) in tosses {
                world.settle_until("the next toss", |l| l.run.step == *step).await;
                turn(*heads);
            }
            world.settle().await;
            let done = world.the_loop().await;
            assert_eq!((done.state, done.spent.iterations), (end, 2), "{}", done.why);
            match end {
                LoopState::Review => assert_eq!(done.branch.verified, done.branch.head, "the head under review was not verified"),
                _ => assert!(done.why.contains("A check that passed now fails") && done.why.contains("`coin`"), "{}", done.why),
            }
        })
        .await;
    }
}

/// Installed packages of an agent or a check find no credentials of the service's account.
/// See docs/research/threats.md#s15.
async fn service_home_is_hidden_from_agents_and_checks(dialect: Dialect) {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::write(home.path().join(".npmrc"), "//registry.npmjs.org/:_authToken=npm_canary").expect("written");
    let look = "echo \"$HOME\"; cat \"$HOME\"/.[!.]* 2>/dev/null; env";
    let file = format!("checks:\n  - {{ name: look, run: '{look}; grep -q 42 answer.txt' }}\n");
    let agent = format!("{{ {look}; }} >seen-by-agent.txt\necho 42 >answer.txt\n");
    let mut setup = Setup::new(dialect).isolated().file(".ralph.yml", &file).agent(&agent);
    setup.env.push(("HOME", home.path().display().to_string()));
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let agent_view = world.file(&done.branch.name, "seen-by-agent.txt").await.expect("the agent looked");
        let home_path = home.path().display().to_string();
        assert!(
            agent_view.contains("HOME=") && !agent_view.contains(&home_path) && !agent_view.contains("npm_canary"),
            "{agent_view}"
        );
        let output = &done.iterations[0].checks.outcomes[0].output;
        assert!(!output.contains(&home_path) && !output.contains("npm_canary"), "{output}");
    })
    .await;
}
