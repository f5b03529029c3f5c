//! The main path from label to merge, and its variants: reviews, CI, conflicts, closed issues, limits and restarts.

use std::time::Duration;

use fake_forge::{Access, Dialect, OpKind, ReviewDraft};
use ralph_bot::domain::loops::{LoopState, LoopStep};
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::Money;

use crate::harness::{SECRET, Setup, WILLING, on_both_forges, on_one_forge, story};

on_both_forges!(
    from_label_to_merge,
    regressing_iteration_is_followed_by_success,
    requested_changes_start_another_iteration,
    review_comments_start_another_iteration,
    conflict_with_base_is_resolved,
    closed_pull_request_ends_the_loop,
    closed_issue_ends_the_loop,
    deleted_issue_ends_the_loop,
);

on_one_forge!(
    issue_has_one_state_label_at_a_time,
    iteration_limit_ends_the_loop,
    time_limit_ends_the_loop,
    cost_limit_ends_the_loop,
    restart_loses_nothing,
    second_loop_uses_its_own_branch,
    two_issues_share_one_slot,
    repositories_have_separate_slots,
);

async fn from_label_to_merge(dialect: Dialect) {
    story(Setup::new(dialect).isolated(), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(world.state_labels(), ["review"]);
        assert_eq!(world.file(&done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
        let prompt = world.prompt(1).await;
        assert!(prompt.contains("Based on branch: main"), "{prompt}");
        let pull = world.the_pull().await;
        assert!(!world.is_draft(&pull), "{}", pull.title);
        insta::assert_snapshot!("ready_for_review", world.conversation());
        world.forge.merge(&world.maintainer, world.repo, pull.number).await.expect("merged");
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Merged);
        assert_eq!(world.state_labels(), ["merged"]);
        assert!(!world.forge.labels(world.repo, world.issue).contains(&"ralph:run".to_owned()));
        assert_eq!(world.file("main", "answer.txt").await.as_deref(), Some("42\n"));
        insta::assert_snapshot!("merged", world.conversation());
    })
    .await;
}

/// Three of four checks pass, then two, then all.
async fn regressing_iteration_is_followed_by_success(dialect: Dialect) {
    let check = |n: u32| format!("  - {{ name: part{n}, run: \"grep -q part{n} parts.txt\" }}\n");
    let file = format!("checks:\n{}", (1..=4).map(check).collect::<String>());
    let agent = r#"case $RALPH_ITERATION in
1) printf 'part1\npart2\npart3\n' >parts.txt ;;
2) printf 'part1\npart2\n' >parts.txt ;;
*) printf 'part1\npart2\npart3\npart4\n' >parts.txt ;;
esac
printf '{"summary": "tried number %s", "approach": "by hand", "learnings": ["learnt %s"]}' $RALPH_ITERATION $RALPH_ITERATION >"$RALPH_REPORT"
"#;
    story(Setup::new(dialect).file("parts.txt", "\n").file(".ralph.yml", &file).agent(agent), async |world| {
        world.label().await;
        let first = world.settle_until("the second iteration", |l| l.spent.iterations == 2).await;
        world.settle_until("the pull request", |l| l.pull.opened.is_some()).await;
        assert!(world.is_draft(&world.the_pull().await), "not a draft while work goes on");
        assert_eq!(first.iterations[0].completion.whole_percent(), 75);
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let percents: Vec<_> = done.iterations.iter().map(|i| i.completion.whole_percent()).collect();
        assert_eq!(percents, [75, 50, 100]);
        // The pull request describes its own diff, not the sum of all iterations.
        insta::assert_snapshot!("regressing_iteration", world.conversation());
        let folded = world.forge.ops().into_iter().filter(|op| op.kind == OpKind::CommentMinimized).count();
        assert_eq!(folded, if dialect == Dialect::GitHub { 2 } else { 0 }, "older iterations, where the forge can");
        let second = world.prompt(2).await;
        assert!(second.contains("part4"), "the failing check is not in the prompt: {second}");
    })
    .await;
}

async fn issue_has_one_state_label_at_a_time(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.label().await;
        let mut labels_seen: Vec<String> = Vec::new();
        let engine = world.engine();
        for _ in 0..500 {
            world.forge.flush().await;
            let mut any = engine.intake.intake_step().await.expect("intake");
            any |= engine.executor.timer_step().await.expect("timer");
            any |= engine.executor.loop_step().await.expect("loop");
            any |= engine.forge_effects.forge_effect_step().await.expect("talk");
            if !any {
                any = engine.work.work_step().await.expect("work");
            }
            let now = world.state_labels();
            assert!(now.len() <= 1, "two states at a time: {now:?}");
            labels_seen.extend(now);
            labels_seen.dedup();
            if !any {
                break;
            }
        }
        assert_eq!(labels_seen.last().map(String::as_str), Some("review"), "{labels_seen:?}");
        assert!(labels_seen.contains(&"running".to_owned()), "{labels_seen:?}");
    })
    .await;
}

/// See docs/research/faults.md#f15.
async fn requested_changes_start_another_iteration(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let first = world.run().await;
        assert_eq!(first.state, LoopState::Review, "{}", first.why);
        let review = ReviewDraft {
            verdict: ReviewVerdict::ChangesRequested,
            body: "Please say why it is 42.".into(),
            remarks: vec![("answer.txt".into(), 1, "This line needs its reason.".into())],
        };
        let pull = first.pull.opened.clone().expect("a pull request").number;
        world.forge.review(&world.maintainer, world.repo, pull, &review).await.expect("reviewed");
        world.settle().await;
        let second = world.the_loop().await;
        assert_eq!(second.state, LoopState::Review, "{}", second.why);
        assert_eq!((second.spent.iterations, &second.branch.name), (2, &first.branch.name));
        assert_eq!(second.pull.opened.as_ref().map(|p| p.number), Some(pull));
        let prompt = world.prompt(2).await;
        for wanted in ["Please say why it is 42.", "This line needs its reason.", "answer.txt"] {
            assert!(prompt.contains(wanted), "{wanted} is not in the prompt: {prompt}");
        }
        assert_eq!(prompt.matches("This line needs its reason.").count(), 1, "{prompt}");
        assert_eq!(world.file(&second.branch.name, "notes.txt").await.as_deref(), Some("round 1\nround 2\n"));
        assert!(!world.is_draft(&world.the_pull().await));
    })
    .await;
}

async fn review_comments_start_another_iteration(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let first = world.run().await;
        let pull = first.pull.opened.clone().expect("a pull request").number;
        // A review by a person without write access is ignored.
        let review =
            |text: &str| ReviewDraft { verdict: ReviewVerdict::Commented, body: text.into(), remarks: Vec::new() };
        world
            .forge
            .review(&world.outsider, world.repo, pull, &review("Do it in another way."))
            .await
            .expect("reviewed");
        world.settle().await;
        assert_eq!(world.the_loop().await.spent.iterations, 1);
        world.forge.review(&world.maintainer, world.repo, pull, &review("One more note.")).await.expect("reviewed");
        world.settle().await;
        let second = world.the_loop().await;
        assert_eq!((second.state, second.spent.iterations), (LoopState::Review, 2), "{}", second.why);
        assert!(world.prompt(2).await.contains("One more note."));
        // An approval starts no iteration.
        let approval = ReviewDraft { verdict: ReviewVerdict::Approved, body: "Good.".into(), remarks: Vec::new() };
        world.forge.review(&world.maintainer, world.repo, pull, &approval).await.expect("reviewed");
        world.settle().await;
        assert_eq!(world.the_loop().await.spent.iterations, 2);
    })
    .await;
}

/// See docs/research/faults.md#f17.
async fn conflict_with_base_is_resolved(dialect: Dialect) {
    let agent = "grep -rl '<<<<<<<' . --include=answer.txt >seen.txt\necho 42 >answer.txt\n";
    let test = "def test_answer():\n    assert open('answer.txt').read() == '42'\n";
    story(Setup::new(dialect).agent(agent).file("tests/old_test.py", test), async |world| {
        let first = world.run().await;
        assert_eq!(first.state, LoopState::Review, "{}", first.why);
        // The base gets more changed files than a loop may have, and loses a test.
        let many: Vec<String> = (0..120).map(|n| format!("docs/{n}.md")).collect();
        let mut change: Vec<_> = many.iter().map(|path| (path.as_str(), Some("text\n"), false)).collect();
        change.extend([("answer.txt", Some("40\n"), false), ("tests/old_test.py", None, false)]);
        let base = world.forge.push_commit(&world.maintainer, world.repo, "main", &change, "Another answer").await;
        let base = base.expect("pushed");
        world.settle().await;
        let second = world.the_loop().await;
        assert_eq!((second.state, second.spent.iterations), (LoopState::Review, 2), "{}", second.why);
        let changed_paths: Vec<_> = second.iterations[1].stat.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(changed_paths, ["answer.txt", "seen.txt"], "the other side's work is not the agent's");
        assert_eq!(second.findings(), []);
        assert_eq!(world.file(&second.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
        // The agent saw the conflict markers, and the commit has both sides as parents.
        assert_eq!(
            world.file(&second.branch.name, "seen.txt").await.as_deref(),
            Some("./answer.txt\n"),
            "{:#?}",
            world.inputs().await
        );
        assert_eq!(world.parents(&second.branch.name), [first.branch.pushed.clone().expect("pushed"), base]);
        assert!(world.prompt(2).await.contains("conflict"));
        insta::assert_snapshot!("base_conflict", world.conversation());
        let pull = world.the_pull().await;
        assert!(pull.pull.as_ref().expect("a pull request").facts.mergeable);
        world.forge.merge(&world.maintainer, world.repo, pull.number).await.expect("it merges now");
        world.settle().await;
    })
    .await;
}

/// See docs/research/faults.md#f15.
async fn closed_pull_request_ends_the_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let pull = world.run().await.pull.opened.expect("a pull request").number;
        world.forge.close_pull(&world.maintainer, world.repo, pull).await.expect("closed");
        world.settle().await;
        let now = world.the_loop().await;
        assert_eq!(now.state, LoopState::Closed, "{}", now.why);
        assert_eq!(world.state_labels(), ["closed"]);
    })
    .await;
}

/// See docs/research/faults.md#f12.
async fn closed_issue_ends_the_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.label().await;
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        world.forge.close_issue(&world.maintainer, world.repo, world.issue).await.expect("closed");
        world.settle().await;
        let now = world.the_loop().await;
        assert_eq!((now.state, now.branch.pushed), (LoopState::Closed, None), "{}", now.why);
        assert_eq!(world.state_labels(), ["closed"]);
    })
    .await;
}

/// See docs/research/faults.md#f12.
async fn deleted_issue_ends_the_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.label().await;
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        world.forge.delete_issue(&world.maintainer, world.repo, world.issue).await.expect("deleted");
        world.settle().await;
        // Some forges send no delivery for it.
        world.reconcile().await;
        let now = world.the_loop().await;
        assert_eq!((now.state, now.branch.pushed), (LoopState::Closed, None), "{}", now.why);
    })
    .await;
}

async fn iteration_limit_ends_the_loop(dialect: Dialect) {
    let agent = "if [ $RALPH_ITERATION -ge 4 ]; then echo 42 >answer.txt; else echo $RALPH_ITERATION >answer.txt; fi\n";
    let limits = "limits: { iterations: 2, comments_per_hour: 1000, comments_per_day: 1000 }";
    story(Setup::new(dialect).agent(agent).config(limits), async |world| {
        let stopped = world.run().await;
        assert_eq!((stopped.state, stopped.spent.iterations), (LoopState::LimitReached, 2), "{}", stopped.why);
        assert_eq!(world.state_labels(), ["limit-reached"]);
        let [escalation] = world.escalations()[..] else { panic!("one escalation: {:?}", world.escalations()) };
        insta::assert_snapshot!("iteration_limit", world.conversation());
        // A limit that leaves no iteration is rejected with a reason.
        let resume = |text: &'static str| world.forge.comment(&world.maintainer, world.repo, escalation, text);
        resume("/ralph resume --max-iterations 2").await.expect("commented");
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::LimitReached);
        insta::assert_snapshot!("limit_without_an_iteration", world.newest_comment_on(escalation));
        resume("/ralph resume --max-iterations 5 Think of forty-two.").await.expect("commented");
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 4), "{}", done.why);
        assert!(world.prompt(3).await.contains("Think of forty-two."));
        assert!(!world.prompt(4).await.contains("Think of forty-two."), "guidance is for the next iteration only");
        assert!(world.escalations().is_empty(), "the escalation is still open");
    })
    .await;
}

async fn time_limit_ends_the_loop(dialect: Dialect) {
    story(Setup::new(dialect).agent("echo 41 >answer.txt\n"), async |world| {
        world.label().await;
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        world.advance(Duration::from_secs(2 * 3600 + 1)).await;
        let stopped = world.the_loop().await;
        assert_eq!(stopped.state, LoopState::LimitReached, "{}", stopped.why);
        insta::assert_snapshot!("time_limit", world.conversation());
        world.write_agent("echo 42 >answer.txt\n");
        world.comment("/ralph resume --timeout 4h").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(done.spent.time_ms >= 2 * 3600 * 1000);
        assert!(world.escalations().is_empty());
        // Time in review does not count.
        world.advance(Duration::from_secs(9 * 3600)).await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

async fn cost_limit_ends_the_loop(dialect: Dialect) {
    // Agent with the output of a preset, whose runs cost 0.60 each and never pass the check.
    let line = r#"{"type":"result","subtype":"success","is_error":false,"result":"tried","total_cost_usd":0.6,"duration_ms":5,"num_turns":1,"usage":{"input_tokens":10,"output_tokens":5}}"#;
    let script = format!("cat >/dev/null; echo $RALPH_ITERATION >answer.txt; printf '%s\\n' '{line}'");
    let command = serde_json::to_string(&["/bin/sh", "-c", &script, "claude"]).expect("a list");
    let config = format!(
        "  claude: {{ enabled: true, command: {command} }}\nlimits: {{ cost_usd: 1, comments_per_hour: 1000, comments_per_day: 1000 }}\noversight: {{ stuck: {{ enabled: false }}, resource_burn: {{ enabled: false }} }}"
    );
    story(Setup::new(dialect).config(&config), async |world| {
        world.comment("/ralph run --backend claude").await;
        world.settle().await;
        let stopped = world.the_loop().await;
        // The remaining budget is below the expected cost of a run, so no run starts.
        assert_eq!((stopped.state, stopped.spent.iterations), (LoopState::LimitReached, 1), "{}", stopped.why);
        assert_eq!(stopped.spent.cost, Money(600_000));
        insta::assert_snapshot!("cost_limit", world.conversation());
        world.comment("/ralph resume --budget 2.50").await;
        world.settle().await;
        let stopped = world.the_loop().await;
        assert_eq!((stopped.state, stopped.spent.iterations), (LoopState::LimitReached, 4), "{}", stopped.why);
        assert!(world.bot_commented("2.40"), "{:#?}", world.bot_comments());
        world.comment("/ralph abort too dear").await;
        world.settle().await;
        assert!(world.escalations().is_empty());
    })
    .await;
}

async fn restart_loses_nothing(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        world.label().await;
        for step in
            [LoopStep::Baseline, LoopStep::Agent, LoopStep::Commit, LoopStep::Push, LoopStep::Check, LoopStep::Verify]
        {
            world.settle_until("the next step", |l| l.run.step == step).await;
            world.restart().await;
        }
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
        assert_eq!(world.file(&done.branch.name, "notes.txt").await.as_deref(), Some("round 1\n"));
        // Events during the downtime are found afterwards.
        world.stop().await;
        world
            .forge
            .merge(&world.maintainer, world.repo, done.pull.opened.expect("a pull request").number)
            .await
            .expect("merged");
        world.forge.flush().await;
        world.restart().await;
        world.reconcile().await;
        assert_eq!(world.the_loop().await.state, LoopState::Merged);
    })
    .await;
}

async fn second_loop_uses_its_own_branch(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let first = world.run().await;
        world.comment("/ralph abort not like this").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Aborted);
        assert_eq!(world.state_labels(), ["aborted"]);
        insta::assert_snapshot!("aborted", world.conversation());
        world.clock.advance_ms(1000);
        let second = world.run().await;
        assert_eq!(second.state, LoopState::Review, "{}", second.why);
        assert_ne!(second.id, first.id);
        assert_ne!(second.branch.name, first.branch.name);
        assert_ne!(second.pull.opened.map(|p| p.number), first.pull.opened.map(|p| p.number));
        assert_eq!(world.state_labels(), ["review"]);
        assert_eq!(world.all_loops().await.len(), 2);
    })
    .await;
}

async fn two_issues_share_one_slot(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let other = world.forge.open_issue(&world.maintainer, world.repo, "The same again", "42, please.", &[]).await;
        let other = other.expect("an issue");
        world.label().await;
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        world.clock.advance_ms(1000);
        world.forge.label(&world.maintainer, world.repo, other, "ralph:run").await.expect("labeled");
        world.settle_until("a second loop", |l| l.issue.issue == other).await;
        let states: Vec<_> = world.all_loops().await.into_iter().map(|l| (l.issue.issue, l.state)).collect();
        assert!(
            states.contains(&(world.issue, LoopState::Running)) && states.contains(&(other, LoopState::Queued)),
            "{states:?}"
        );
        world.settle().await;
        let all = world.all_loops().await;
        assert!(
            all.iter().all(|l| l.state == LoopState::Review),
            "{:?}",
            all.iter().map(|l| &l.why).collect::<Vec<_>>()
        );
        let begun = |issue| all.iter().find(|l| l.issue.issue == issue).map(|l| l.branch.name.clone()).expect("a loop");
        assert_ne!(begun(world.issue), begun(other));
    })
    .await;
}

async fn repositories_have_separate_slots(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let files: Vec<_> = world.setup.files.iter().map(|(p, t, x)| (p.as_str(), t.as_str(), *x)).collect();
        let second = world.forge.create_repo("mira", "lib", &files).await.expect("a repository");
        world.forge.grant(second, &world.bot, Access::Admin).expect("the bot may");
        let url = format!("http://{}/webhooks/forge", world.app().address.expect("it listens"));
        world.forge.add_hook(second, &url, SECRET).await.expect("a hook");
        let issue = world.forge.open_issue(&world.maintainer, second, "Here too", "42", &[]).await.expect("an issue");
        world.label().await;
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        world.clock.advance_ms(1000);
        world.forge.label(&world.maintainer, second, issue, "ralph:run").await.expect("labeled");
        world.settle_until("both at work", |l| l.issue.repo.id == second && l.state == LoopState::Running).await;
        assert!(world.all_loops().await.iter().all(|l| l.state == LoopState::Running));
        world.settle().await;
        assert!(world.all_loops().await.iter().all(|l| l.state == LoopState::Review));
    })
    .await;
}
