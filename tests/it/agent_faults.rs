//! What goes wrong with agents and checks: they are missing, hang, flood, lie, or leave processes behind.

use std::time::Duration;

use ralph_bot::domain::loops::{LoopState, LoopStep};
use ralph_bot::fake::Dialect;

use crate::harness::{Setup, World, on_one_forge, story};

on_one_forge!(
    an_agent_that_is_missing_is_told_of,
    an_agent_that_cannot_be_started_is_told_of,
    a_silent_agent_is_killed,
    a_flood_of_output_is_borne,
    output_that_is_no_text_is_borne,
    a_daemon_does_not_hold_the_run,
    three_failures_in_a_row_end_it,
    an_agent_that_changes_nothing_reaches_the_limit,
    a_broken_report_is_no_harm,
    a_false_claim_counts_for_nothing,
    a_report_that_is_a_link_is_not_followed,
    a_check_that_hangs_is_ended,
    a_check_that_floods_is_borne,
    a_flaky_check_comes_to_an_end,
    what_is_in_the_services_home_is_not_for_agents_and_checks,
);

const ENOUGH: &str = "comments_per_hour: 1000, comments_per_day: 1000";

fn the_escalation(world: &World) -> String {
    let [number] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
    world.issue_of(number).body
}

/// A6.
async fn an_agent_that_is_missing_is_told_of(dialect: Dialect) {
    let backend = "  other: { type: script, command: [\"/nowhere/agent\"], roles: [agent] }";
    story(Setup::new(dialect).config(&format!("{backend}\nlimits: {{ {ENOUGH} }}")), async |world| {
        world.say("/ralph run --backend other").await;
        world.settle().await;
        assert!(world.newest().await.is_none(), "nothing starts that cannot run");
        assert!(world.bot_said("mine"), "{:?}", world.bot_says());
        world.say("/ralph run --backend mine").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
    })
    .await;
}

/// A6.
async fn an_agent_that_cannot_be_started_is_told_of(dialect: Dialect) {
    let backend = "  other: { type: script, command: [\"/etc/hostname\"], roles: [agent] }";
    story(Setup::new(dialect).config(&format!("{backend}\nlimits: {{ {ENOUGH} }}")), async |world| {
        world.say("/ralph run --backend other").await;
        world.settle().await;
        let stopped = world.the_loop().await;
        assert_eq!(stopped.state, LoopState::Failed, "{}", stopped.why);
        assert!(the_escalation(&world).contains("/ralph resume"));
        assert_eq!(world.state_labels(), ["failed"]);
        world.say("/ralph resume --backend mine").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(world.escalations().is_empty());
    })
    .await;
}

/// A1.
async fn a_silent_agent_is_killed(dialect: Dialect) {
    let agent = "if [ $RALPH_ITERATION = 1 ]; then trap '' TERM; echo 40 >answer.txt; while :; do sleep 1; done; fi\necho 42 >answer.txt\n";
    let config = format!("limits: {{ agent_idle: 1s, {ENOUGH} }}");
    story(Setup::new(dialect).agent(agent).config(&config), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert!(done.iterations[0].agent_problem.contains("stopped"), "{}", done.iterations[0].agent_problem);
        // What it had done until then is not lost.
        assert!(done.iterations[0].commit.is_some());
    })
    .await;
}

/// A3.
async fn a_flood_of_output_is_borne(dialect: Dialect) {
    let agent = "yes 'a line that says nothing' | head -c 20000000\nhead -c 5000000 /dev/zero | tr '\\0' x\necho 42 >answer.txt\n";
    story(Setup::new(dialect).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let folder = world.engine().settings.logs.join(done.id.as_str());
        for entry in std::fs::read_dir(folder).expect("logs").flatten() {
            let size = entry.metadata().expect("a file").len();
            assert!(size < 5_000_000, "{:?} has {size} bytes", entry.path());
        }
        assert!(world.bot_says().iter().all(|said| said.len() < 65_000));
    })
    .await;
}

/// A4.
async fn output_that_is_no_text_is_borne(dialect: Dialect) {
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
        for text in world.bot_says().into_iter().chain([pull.body, pull.title]) {
            let odd = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
            assert_eq!(odd, None, "{text:?}");
        }
    })
    .await;
}

/// A2.
async fn a_daemon_does_not_hold_the_run(dialect: Dialect) {
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

/// A5.
async fn three_failures_in_a_row_end_it(dialect: Dialect) {
    let agent = "echo 'no credit left on this machine' >&2\nexit 7\n";
    story(Setup::new(dialect).agent(agent), async |world| {
        let stopped = world.run().await;
        assert_eq!((stopped.state, stopped.spent.iterations), (LoopState::Failed, 3), "{}", stopped.why);
        let body = the_escalation(&world);
        assert!(body.contains("no credit left on this machine") && body.contains("/ralph resume"), "{body}");
        world.write_agent("echo 42 >answer.txt\n");
        world.say("/ralph resume").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 4), "{}", done.why);
        assert!(world.escalations().is_empty());
    })
    .await;
}

/// A5, A7.
async fn an_agent_that_changes_nothing_reaches_the_limit(dialect: Dialect) {
    let config = format!("limits: {{ iterations: 2, {ENOUGH} }}");
    story(Setup::new(dialect).agent("echo thinking\n").config(&config), async |world| {
        let stopped = world.run().await;
        assert_eq!((stopped.state, stopped.pushed.as_ref()), (LoopState::LimitReached, None), "{}", stopped.why);
        assert!(stopped.pull.is_none() && world.forge.branch_sha(world.repo, &stopped.branch).await.is_none());
        assert!(the_escalation(&world).contains("--max-iterations"));
    })
    .await;
}

/// S9.
async fn a_broken_report_is_no_harm(dialect: Dialect) {
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

/// A7.
async fn a_false_claim_counts_for_nothing(dialect: Dialect) {
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

/// G9.
async fn a_report_that_is_a_link_is_not_followed(dialect: Dialect) {
    story(Setup::new(dialect).isolated(), async |world| {
        let outside = world.folder.path().join("outside.json");
        std::fs::write(&outside, r#"{"summary": "text from outside of the tree"}"#).expect("written");
        world.write_agent(&format!("ln -s {} \"$RALPH_REPORT\"\necho 42 >answer.txt\n", outside.display()));
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(!world.bot_said("text from outside"));
        assert!(!world.the_pull().await.body.contains("text from outside"));
    })
    .await;
}

/// A10.
async fn a_check_that_hangs_is_ended(dialect: Dialect) {
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

/// A10.
async fn a_check_that_floods_is_borne(dialect: Dialect) {
    let file =
        "checks:\n  - { name: loud, run: \"yes noise | head -c 20000000; echo the end; grep -q 42 answer.txt\" }\n";
    let agent = "[ $RALPH_ITERATION = 2 ] && echo 42 >answer.txt || echo 40 >answer.txt\n";
    story(Setup::new(dialect).file(".ralph.yml", file).agent(agent), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        let output = &done.iterations[0].checks.outcomes[0].output;
        assert!(output.len() <= 16 * 1024 && output.contains("the end"), "{} bytes", output.len());
        assert!(world.bot_says().iter().all(|said| said.len() < 65_000));
    })
    .await;
}

/// A10: the same commit passes and fails, as the coin lies.
async fn a_flaky_check_comes_to_an_end(dialect: Dialect) {
    // In a fresh checkout once; and in two iterations in a row, after it had passed before the first.
    let once = [(LoopStep::Verify, false), (LoopStep::Agent, true)];
    let twice = [(LoopStep::Check, false), (LoopStep::Agent, true), (LoopStep::Verify, false)];
    for (tosses, end) in [(&once[..], LoopState::Review), (&twice[..], LoopState::Paused)] {
        let world = World::new(Setup::new(dialect)).await;
        // Where checks can read it and nobody but this story turns it.
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
            world.settle_until("the next toss", |l| l.step == *step).await;
            turn(*heads);
        }
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (end, 2), "{}", done.why);
        match end {
            LoopState::Review => assert_eq!(done.verified, done.head, "what is up for review was not verified"),
            _ => assert!(done.why.contains("What held before holds no more: `coin`"), "{}", done.why),
        }
        world.finish().await;
    }
}

/// S15: a package that an agent or a check installs finds no credentials of this account to take along.
async fn what_is_in_the_services_home_is_not_for_agents_and_checks(dialect: Dialect) {
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
        let seen = world.file(&done.branch, "seen-by-agent.txt").await.expect("the agent looked");
        let own = home.path().display().to_string();
        assert!(seen.contains("HOME=") && !seen.contains(&own) && !seen.contains("npm_canary"), "{seen}");
        let output = &done.iterations[0].checks.outcomes[0].output;
        assert!(!output.contains(&own) && !output.contains("npm_canary"), "{output}");
    })
    .await;
}
