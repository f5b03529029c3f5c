//! Every command, in the states that accept it and in those that reject it.

use std::time::Duration;

use fake_forge::{Dialect, ReviewDraft};
use ralph_bot::domain::loops::{GuidanceSource, LoopState, LoopStep};
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::Money;
use ralph_bot::domain::model::task::CheckSource;

use crate::harness::{Setup, WILLING, World, live_story, on_both_forges, on_one_forge, story};

on_both_forges!(
    label_removal_pauses_and_label_resumes,
    pull_request_comments_and_reviews_accept_commands,
    run_on_closed_or_deleted_issue_starts_nothing,
);

on_one_forge!(
    commands_of_one_comment_run_in_order,
    guide_budget_status_and_help_are_answered,
    run_accepts_every_option,
    invalid_run_is_rejected_with_reason,
    missing_base_fails_and_resume_accepts_another,
    concurrent_commands_are_both_applied,
    pause_waits_for_iteration_and_resume_adds_guidance,
    pause_now_stops_the_agent,
    abort_kills_the_agent_and_its_children,
    status_command_posts_a_new_status,
    commands_invalid_in_state_are_rejected,
    retry_discards_commits,
    checks_are_set_by_command,
    invalid_repository_file_is_reported_with_position,
    checks_in_issue_count_only_from_writers,
    already_solved_issue_is_reported,
    passing_repository_checks_need_a_decision,
    resume_raises_limits,
    iteration_limit_is_raised_by_command,
    unlimited_loop_shows_no_maximum,
    iteration_limit_below_used_iterations_is_rejected,
);

/// Agent that passes the check in its second run.
const SECOND_RUN: &str = "if [ \"$RALPH_ITERATION\" -ge 2 ]; then echo 42; else echo 40; fi >answer.txt\n";
/// Agent that never passes the check but changes a file in each run.
const NEVER: &str = "echo \"$RALPH_ITERATION\" >answer.txt\n";

fn waits_for_agent(l: &ralph_bot::domain::loops::Loop) -> bool {
    l.run.step == LoopStep::Agent
}

async fn run_accepts_every_option(dialect: Dialect) {
    story(Setup::new(dialect).without(".ralph.yml"), async |world| {
        world
            .forge
            .push_commit(&world.maintainer, world.repo, "next", &[], "Begin the next version")
            .await
            .expect("pushed");
        let line =
            "/ralph run --check \"sh check.sh\" --max-iterations 3 --timeout 20m --budget 2.50 --backend mine --base next";
        let comment = world.comment(line).await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(done.checks.source, Some(CheckSource::Command));
        assert_eq!(done.checks.list.iter().map(|c| c.command.as_str()).collect::<Vec<_>>(), ["sh check.sh"]);
        let limits = (done.limits.iterations.count(), done.limits.time_ms, done.limits.cost);
        assert_eq!(limits, (Some(3), 20 * 60_000, Money(2_500_000)));
        assert_eq!(done.branch.base_branch, "next");
        let pull = done.pull.opened.expect("a pull request").number;
        let base = world.forge.with(|s| s.pull(world.repo, pull).expect("the pull request").1.base.clone());
        assert_eq!(base, "next");
        assert_eq!(world.reactions(comment), ["eyes", "rocket"]);
    })
    .await;
}

async fn invalid_run_is_rejected_with_reason(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let commands = [
            "/ralph run --max-iterations 0",
            "/ralph run --chek \"true\"",
            "/ralph rum",
            "/ralph run --timeout soon",
            "/ralph run --budget -1",
            "/ralph run --backend mein",
            "/ralph run —check true",
            "/ralph resume",
            "/ralph abort",
            "/ralph budget much",
        ];
        for line in commands {
            let before = world.bot_comments().len();
            let comment = world.comment(line).await;
            world.settle().await;
            assert_eq!(world.reactions(comment), ["eyes", "confused"], "{line}");
            assert_eq!(world.bot_comments().len(), before + 1, "{line}");
        }
        assert!(world.all_loops().await.is_empty());
        insta::assert_snapshot!("refused_commands", world.conversation());
    })
    .await;
}

async fn missing_base_fails_and_resume_accepts_another(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.comment("/ralph run --base nowhere").await;
        world.settle().await;
        let failed = world.the_loop().await;
        assert_eq!(failed.state, LoopState::Failed, "{}", failed.why);
        assert!(failed.why.contains("nowhere"), "{}", failed.why);
        // Nothing needs confirmation: the command is rejected as a whole.
        let comment = world.comment("/ralph resume --confirm 0123abcd --base main").await;
        world.settle().await;
        assert_eq!(
            (world.the_loop().await.state, world.reactions(comment)),
            (LoopState::Failed, vec!["eyes".into(), "confused".into()])
        );
        insta::assert_snapshot!("nothing_to_confirm", world.newest_comment_on(world.issue));
        assert_eq!(world.escalations().len(), 1);
        world.comment("/ralph resume --base main").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.branch.base_branch.as_str()), (LoopState::Review, "main"), "{}", done.why);
        assert!(world.escalations().is_empty());
    })
    .await;
}

async fn commands_of_one_comment_run_in_order(dialect: Dialect) {
    story(Setup::new(dialect).agent(SECOND_RUN), async |world| {
        world.label().await;
        world.stop_at("the agent", waits_for_agent).await;
        let both = world.comment("/ralph resume\n/ralph pause --now").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Paused, "resumed first, paused then");
        assert_eq!(world.reactions(both), ["eyes", "confused", "rocket"]);
        world.comment("Fine.\n\n/ralph pause --now\n/ralph resume\n\n> /ralph abort\n").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review, "paused first, resumed then");
    })
    .await;
}

async fn concurrent_commands_are_both_applied(dialect: Dialect) {
    story(Setup::new(dialect).agent(SECOND_RUN), async |world| {
        let second = world.forge.add_user("nora", ralph_bot::domain::model::ids::AccountKind::User);
        world.forge.grant(world.repo, &second, fake_forge::Access::Write).expect("granted");
        world.label().await;
        world.stop_at("the agent", waits_for_agent).await;
        let budget = "/ralph budget 7.00";
        let guide = "/ralph guide Look at the\nsecond digit.";
        let (first, other) =
            tokio::join!(world.comment(budget), world.forge.comment(&second, world.repo, world.issue, guide));
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(done.limits.cost, Money(7_000_000));
        assert!(world.prompts().await.last().expect("a prompt").contains("second digit."));
        assert_eq!(world.reactions(first), ["eyes", "rocket"]);
        assert_eq!(world.reactions(other.expect("commented")), ["eyes", "rocket"]);
    })
    .await;
}

async fn pause_waits_for_iteration_and_resume_adds_guidance(dialect: Dialect) {
    story(Setup::new(dialect).agent(SECOND_RUN), async |world| {
        world.label().await;
        world.stop_at("the agent", waits_for_agent).await;
        let pause = world.comment("/ralph pause lunch").await;
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!(paused.state, LoopState::Paused, "{}", paused.why);
        assert!(paused.why.contains("lunch"), "{}", paused.why);
        assert_eq!(paused.iterations.len(), 1);
        assert!(
            paused.iterations[0].ended_at.is_some() && paused.branch.pushed.is_some(),
            "the iteration was finished first"
        );
        assert_eq!(world.reactions(pause), ["eyes", "rocket"]);
        assert_eq!(world.state_labels(), ["paused"]);

        world.comment("/ralph resume --max-iterations 7 Mind the units.\nAnd be quick.").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(done.limits.iterations.count(), Some(7));
        let prompts = world.prompts().await;
        assert!(!prompts[0].contains("Mind the units."));
        assert!(prompts[1].contains("Mind the units.") && prompts[1].contains("And be quick."), "{}", prompts[1]);
        assert_eq!(done.iterations[1].guidance[0].source, GuidanceSource::Command);
    })
    .await;
}

/// Waits until child processes of the service run, or until none do.
async fn processes(world: &World, wanted: bool) {
    let waiting = async {
        while ralph_bot::process::survivors(&world.engine().verification.programs.instance).is_empty() == wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("processes begin and end");
}

const HANGS: &str = "sleep 1000 &\n(trap '' TERM; sleep 1000) &\nsleep 1000\n";

async fn pause_now_stops_the_agent(dialect: Dialect) {
    live_story(Setup::new(dialect).agent(HANGS), async |world| {
        world.label().await;
        world.until("the agent", waits_for_agent).await;
        processes(world, true).await;
        world.comment("/ralph pause --now").await;
        world.until("the pause", |l| l.state == LoopState::Paused).await;
        processes(world, false).await;
        world.write_agent("echo 42 >answer.txt\n");
        world.comment("/ralph resume").await;
        world.until("the review", |l| l.state == LoopState::Review).await;
    })
    .await;
}

async fn abort_kills_the_agent_and_its_children(dialect: Dialect) {
    // The agent ignores SIGTERM and has a child in another process group.
    let deaf =
        "trap '' TERM\nsetsid sh -c \"trap '' TERM; while :; do sleep 1000; done\" &\nwhile :; do sleep 1000; done\n";
    live_story(Setup::new(dialect).agent(deaf), async |world| {
        world.label().await;
        world.until("the agent", waits_for_agent).await;
        processes(world, true).await;
        let commanded_at = std::time::Instant::now();
        world.comment("/ralph abort wrong issue").await;
        let aborted = world.until("the end", |l| l.state == LoopState::Aborted).await;
        assert!(aborted.why.contains("wrong issue"), "{}", aborted.why);
        processes(world, false).await;
        // Documented maximum: 5 s on an idle machine, including 3 s for the agent to end by itself.
        assert!(commanded_at.elapsed() < Duration::from_secs(8), "it took {:?}", commanded_at.elapsed());
        let tree = world.tree().await;
        let folder = world.folder.path().join("data/trees").join(aborted.id.as_str());
        let waiting = async {
            // The loop's folder above the worktree is removed last.
            while tree.exists() || folder.exists() || world.state_labels() != ["aborted"] {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("the tree goes and the label comes");
    })
    .await;
}

async fn guide_budget_status_and_help_are_answered(dialect: Dialect) {
    story(Setup::new(dialect).agent(SECOND_RUN), async |world| {
        let help = world.comment("/ralph help").await;
        world.settle().await;
        insta::assert_snapshot!("help", world.newest_comment_on(world.issue));
        assert_eq!(world.reactions(help), ["eyes", "rocket"]);
        assert!(world.newest().await.is_none(), "help starts nothing");

        world.label().await;
        world.stop_at("the agent", waits_for_agent).await;
        world.comment("/ralph help").await;
        let guide = world.comment("/ralph guide It is more than 41.").await;
        let budget = world.comment("/ralph budget 9.50").await;
        let low = world.comment("/ralph budget 0").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(world.prompts().await[1].contains("It is more than 41."), "the next iteration has it");
        assert_eq!(done.limits.cost, Money(9_500_000));
        assert!(world.bot_commented("The budget is"));
        assert_eq!(world.reactions(guide), ["eyes", "rocket"]);
        assert_eq!(world.reactions(budget), ["eyes", "rocket"]);
        assert_eq!(world.reactions(low), ["eyes", "confused"]);

        // Guidance in review starts another iteration on the same branch and pull request.
        world.write_agent("echo more >notes.txt\n");
        world.comment("/ralph guide Write notes, too.").await;
        world.settle().await;
        let again = world.the_loop().await;
        assert_eq!(again.state, LoopState::Review, "{}", again.why);
        assert_eq!(again.pull.opened, done.pull.opened);
        assert_eq!(world.file(&again.branch.name, "notes.txt").await.as_deref(), Some("more\n"));
    })
    .await;
}

async fn status_command_posts_a_new_status(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.run().await;
        let is_status = |body: &str| body.contains(" status ") || body.contains(" status/");
        let statuses = |w: &World| w.bot_comments().iter().filter(|b| is_status(b)).count();
        let before = statuses(world);
        assert_eq!(before, 1, "{:?}", world.bot_comments());
        world.comment("/ralph status").await;
        world.settle().await;
        world.comment("/ralph status").await;
        world.settle().await;
        assert_eq!(statuses(world), before + 2);
        // The newest status comment is updated.
        world.comment("/ralph abort").await;
        world.settle().await;
        assert_eq!(statuses(world), before + 2);
        let newest = world.bot_comments().into_iter().rfind(|b| is_status(b)).expect("a status");
        assert!(newest.to_lowercase().contains("aborted"), "{newest}");
    })
    .await;
}

async fn commands_invalid_in_state_are_rejected(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.run().await;
        for line in ["/ralph resume", "/ralph pause", "/ralph run", "/ralph run --confirm 0123abcd"] {
            let before = world.bot_comments().len();
            let comment = world.comment(line).await;
            world.settle().await;
            assert_eq!(world.the_loop().await.state, LoopState::Review, "{line}");
            assert_eq!(world.reactions(comment), ["eyes", "confused"], "{line}");
            assert_eq!(world.bot_comments().len(), before + 1, "{line}");
        }
        assert_eq!(world.all_loops().await.len(), 1);
        world.comment("/ralph abort").await;
        world.settle().await;
        for line in ["/ralph resume", "/ralph guide more", "/ralph retry", "/ralph abort"] {
            let comment = world.comment(line).await;
            world.settle().await;
            assert_eq!(world.the_loop().await.state, LoopState::Aborted, "{line}");
            assert_eq!(world.reactions(comment), ["eyes", "confused"], "{line}");
        }
        // Another loop can start on the issue.
        world.clock.advance_ms(1000);
        world.comment("/ralph run").await;
        world.settle().await;
        assert_eq!(world.all_loops().await.len(), 2);
        let second = world.the_loop().await;
        assert_eq!(second.state, LoopState::Review, "{}", second.why);
        assert!(second.branch.name.ends_with("-2"), "a branch of its own: {}", second.branch.name);
    })
    .await;
}

async fn retry_discards_commits(dialect: Dialect) {
    let agent = "echo \"$RALPH_ITERATION\" >>log.txt; echo 42 >answer.txt\n";
    story(Setup::new(dialect).agent(agent), async |world| {
        let none = world.comment("/ralph retry").await;
        world.settle().await;
        assert_eq!(world.reactions(none), ["eyes", "confused"]);
        let first = world.run().await;
        assert_eq!(first.state, LoopState::Review, "{}", first.why);
        let before = world.forge.branch_sha(world.repo, &first.branch.name).await.expect("a branch");
        let retry = world.comment("/ralph retry").await;
        world.settle().await;
        let again = world.the_loop().await;
        assert_eq!(again.state, LoopState::Review, "{}", again.why);
        assert_eq!(world.reactions(retry), ["eyes", "rocket"]);
        assert_eq!(again.iterations.iter().map(|i| i.discarded).collect::<Vec<_>>(), [true, false]);
        let after = world.forge.branch_sha(world.repo, &again.branch.name).await.expect("a branch");
        assert_ne!(before, after);
        assert_eq!(
            world.file(&again.branch.name, "log.txt").await.as_deref(),
            Some("2\n"),
            "the first commit is still on the branch"
        );
        assert_eq!(again.pull.opened, first.pull.opened);

        // Commits that a person pushed meanwhile are not overwritten.
        let theirs = world
            .forge
            .push_commit(
                &world.maintainer,
                world.repo,
                &again.branch.name,
                &[("theirs.txt", Some("mine\n"), false)],
                "Help",
            )
            .await
            .expect("pushed");
        world.comment("/ralph retry").await;
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!(paused.state, LoopState::Paused, "{}", paused.why);
        assert_eq!(world.forge.branch_sha(world.repo, &paused.branch.name).await, Some(theirs));
    })
    .await;
}

/// See docs/research/faults.md#f13.
async fn label_removal_pauses_and_label_resumes(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.label().await;
        world.stop_at("the agent", waits_for_agent).await;
        world.forge.unlabel(&world.maintainer, world.repo, world.issue, "ralph:run").await.expect("unlabeled");
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!(paused.state, LoopState::Paused, "{}", paused.why);
        assert!(paused.why.contains("label"), "{}", paused.why);
        world.label().await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
        assert_eq!(world.all_loops().await.len(), 1);
    })
    .await;
}

async fn checks_are_set_by_command(dialect: Dialect) {
    story(Setup::new(dialect).without(".ralph.yml"), async |world| {
        let waiting = world.run().await;
        assert_eq!(waiting.state, LoopState::NeedsCriteria, "{}", waiting.why);
        assert_eq!(world.state_labels(), ["needs-criteria"]);
        insta::assert_snapshot!("needs_check", world.conversation());
        // Another `/ralph run` without a check looks for the file again and asks again.
        world.comment("/ralph run").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::NeedsCriteria);
        // The list has the command that the repository's script suggests; only maintainers accept it.
        world.forge.comment(&world.outsider, world.repo, world.issue, "/ralph run --check 1").await.expect("commented");
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::NeedsCriteria);
        world.comment("/ralph run --check 2").await;
        world.settle().await;
        assert!(world.bot_commented("There is no proposed check 2; the list has only number 1."));
        world.restart().await;
        world.comment("/ralph run --check 1 --max-iterations 4").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!((done.checks.source, done.limits.iterations.count()), (Some(CheckSource::Detected), Some(4)));
        assert_eq!(done.checks.list.iter().map(|check| check.command.as_str()).collect::<Vec<_>>(), ["sh check.sh"]);
    })
    .await;
}

async fn invalid_repository_file_is_reported_with_position(dialect: Dialect) {
    let invalid = "checks:\n  - nmae: answer\n    run: sh check.sh\n";
    story(Setup::new(dialect).file(".ralph.yml", invalid), async |world| {
        let paused = world.run().await;
        assert_eq!(paused.state, LoopState::Paused, "{}", paused.why);
        insta::assert_snapshot!("invalid_repository_file", world.conversation());
        let fixed = [(".ralph.yml", Some("checks:\n  - name: answer\n    run: sh check.sh\n"), false)];
        world.forge.push_commit(&world.maintainer, world.repo, "main", &fixed, "Fix the file").await.expect("pushed");
        world.comment("/ralph resume").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
    })
    .await;
}

async fn checks_in_issue_count_only_from_writers(dialect: Dialect) {
    let body = "It should be 42.\n\n```ralph\nsh check.sh\n```\n";
    let mut setup = Setup::new(dialect).without(".ralph.yml");
    setup.body = body.into();
    story(setup, async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(done.checks.source, Some(CheckSource::Issue));

        world.clock.advance_ms(1000);
        let title = "Another";
        world.issue = world.forge.open_issue(&world.outsider, world.repo, title, body, &[]).await.expect("an issue");
        let waiting = world.run().await;
        assert_eq!(waiting.state, LoopState::NeedsCriteria, "{}", waiting.why);
        insta::assert_snapshot!("checks_of_an_outsider", world.conversation_on(world.issue));
    })
    .await;
}

async fn already_solved_issue_is_reported(dialect: Dialect) {
    story(Setup::new(dialect).file("answer.txt", "42\n"), async |world| {
        world.comment("/ralph run --check 'sh check.sh'").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Closed, "{}", done.why);
        assert!(done.iterations.is_empty());
        insta::assert_snapshot!("already_solved", world.conversation());
        assert_eq!(world.state_labels(), ["closed"]);
        assert!(!world.forge.labels(world.repo, world.issue).contains(&"ralph:run".to_owned()));
    })
    .await;
}

/// A passing suite does not measure a missing feature.
async fn passing_repository_checks_need_a_decision(dialect: Dialect) {
    let agent = "echo 43 >next.txt\n";
    story(Setup::new(dialect).file("answer.txt", "42\n").agent(agent), async |world| {
        let waiting = world.run().await;
        assert_eq!((waiting.state, waiting.iterations.len()), (LoopState::NeedsCriteria, 0), "{}", waiting.why);
        assert_eq!(world.state_labels(), ["needs-criteria"]);
        insta::assert_snapshot!("checks_that_pass_already", world.conversation());
        world.comment("/ralph run").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::NeedsCriteria, "they pass as before");
        world.comment("/ralph run --check 'test -f next.txt'").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{}", done.why);
        assert_eq!(done.checks.source, Some(CheckSource::Command));
    })
    .await;
}

async fn resume_raises_limits(dialect: Dialect) {
    story(Setup::new(dialect).agent(NEVER), async |world| {
        world.comment("/ralph run --max-iterations 2").await;
        world.settle().await;
        let spent = world.the_loop().await;
        assert_eq!(spent.state, LoopState::LimitReached, "{}", spent.why);
        for line in ["/ralph resume", "/ralph resume --max-iterations 2", "/ralph retry"] {
            let comment = world.comment(line).await;
            world.settle().await;
            assert_eq!(world.the_loop().await.state, LoopState::LimitReached, "{line}");
            assert_eq!(world.reactions(comment), ["eyes", "confused"], "{line}");
        }
        world.write_agent("echo 42 >answer.txt\n");
        world.comment("/ralph resume --max-iterations 3").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 3), "{}", done.why);
        assert!(world.escalations().is_empty());
    })
    .await;
}

async fn iteration_limit_is_raised_by_command(dialect: Dialect) {
    story(Setup::new(dialect).agent(NEVER), async |world| {
        world.comment("/ralph run --max-iterations 2").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::LimitReached);
        let comment = world.comment("/ralph iterations 3").await;
        world.settle().await;
        let raised = world.the_loop().await;
        assert_eq!(
            (raised.state, raised.limits.iterations.count()),
            (LoopState::LimitReached, Some(3)),
            "the loop resumed without a command"
        );
        assert_eq!(world.reactions(comment), ["eyes", "rocket"]);
        let reply = "The limit is 3 iterations; 2 are used. `/ralph resume` continues the loop.";
        assert!(world.bot_commented(reply), "{:#?}", world.bot_comments());
        world.write_agent("echo 42 >answer.txt\n");
        world.comment("/ralph resume").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 3), "{}", done.why);
    })
    .await;
}

async fn unlimited_loop_shows_no_maximum(dialect: Dialect) {
    story(Setup::new(dialect).agent(SECOND_RUN), async |world| {
        world.comment("/ralph run --max-iterations unlimited").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert_eq!(done.limits.iterations.count(), None);
        let comments = world.bot_comments().join("\n");
        let shown = comments.to_lowercase();
        assert!(shown.contains("iteration 2") && !shown.contains("iteration 2 of"), "{comments}");
        let prompts = world.prompts().await;
        assert!(prompts[1].contains("This is iteration 2.\n"), "{}", prompts[1]);
        assert!(world.the_pull().await.body.contains("2 iterations · "), "{}", world.the_pull().await.body);
    })
    .await;
}

async fn iteration_limit_below_used_iterations_is_rejected(dialect: Dialect) {
    story(Setup::new(dialect).agent(SECOND_RUN), async |world| {
        let done = world.run().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        for (line, reason) in [
            ("/ralph iterations 2", "2 is not more than the 2 iterations used already"),
            ("/ralph iterations many", "from 1 to 1000"),
        ] {
            let comment = world.comment(line).await;
            world.settle().await;
            assert_eq!(world.reactions(comment), ["eyes", "confused"], "{line}");
            assert!(world.bot_commented(reason), "{line}: {:#?}", world.bot_comments());
            assert_eq!(world.the_loop().await.limits, done.limits, "{line}");
        }
    })
    .await;
}

async fn pull_request_comments_and_reviews_accept_commands(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let pull = world.run().await.pull.opened.expect("a pull request").number;
        let comment = world.forge.comment(&world.maintainer, world.repo, pull, "/ralph guide Say why.").await;
        world.settle().await;
        assert_eq!(world.reactions(comment.expect("commented")), ["eyes", "rocket"]);
        assert_eq!(world.the_loop().await.spent.iterations, 2);
        assert!(world.prompt(2).await.contains("Say why."));

        let review = |verdict: ReviewVerdict, body: &str, remark: Option<&str>| ReviewDraft {
            verdict,
            body: body.into(),
            remarks: remark.map(|text| ("answer.txt".into(), 1, text.into())).into_iter().collect(),
        };
        let slip = review(ReviewVerdict::Commented, "/ralph abrot", None);
        world.forge.review(&world.maintainer, world.repo, pull, &slip).await.expect("reviewed");
        world.settle().await;
        let comments = world.bot_comments_on(pull);
        assert!(comments.iter().any(|text| text.contains("Did you mean `/ralph abort`?")), "{comments:#?}");
        assert_eq!((world.the_loop().await.state, world.the_loop().await.spent.iterations), (LoopState::Review, 2));

        let body = "Name it better.\n\n/ralph budget 20.00";
        let review_with_commands = review(ReviewVerdict::ChangesRequested, body, Some("/ralph guide From the line."));
        world.forge.review(&world.maintainer, world.repo, pull, &review_with_commands).await.expect("reviewed");
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 3), "{}", done.why);
        assert_eq!(done.limits.cost, Money(20_000_000));
        let prompt = world.prompt(3).await;
        assert!(prompt.contains("Name it better.") && prompt.contains("From the line."), "{prompt}");
        assert!(!prompt.contains("/ralph budget") && !prompt.contains("/ralph guide"), "{prompt}");
        let comments = world.bot_comments_on(pull);
        assert!(comments.iter().any(|text| text.contains("The budget is $20.00")), "{comments:#?}");
    })
    .await;
}

/// See docs/research/faults.md#f12.
async fn run_on_closed_or_deleted_issue_starts_nothing(dialect: Dialect) {
    for deleted in [false, true] {
        story(Setup::new(dialect), async |world| {
            world.settle().await;
            world.forge.hooks().hold();
            world.comment("/ralph run").await;
            if deleted {
                world.forge.delete_issue(&world.maintainer, world.repo, world.issue).await.expect("deleted");
            } else {
                world.forge.close_issue(&world.maintainer, world.repo, world.issue).await.expect("closed");
            }
            world.forge.hooks().release(|_| {});
            world.settle().await;
            // The forge is asked for the comment again before it counts as missing.
            for _ in 0..3 {
                world.advance(Duration::from_secs(5)).await;
            }
            assert!(world.all_loops().await.is_empty(), "a loop started, deleted: {deleted}");
            assert!(deleted || world.bot_commented("on an open issue"), "{:?}", world.bot_comments());
        })
        .await;
    }
}
