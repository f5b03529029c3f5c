//! Faults between the service and the forge: failed calls, lost answers, rate limits, and deliveries that are lost,
//! repeated or reordered.

use std::time::Duration;

use fake_forge::{Dialect, FakeFault, OpKind, ReviewDraft};
use ralph_bot::domain::loops::{LoopState, LoopStep};
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::{Number, User};
use ralph_bot::forge::http::Timeouts;

use crate::harness::parts::setting;
use crate::harness::{Setup, WILLING, World, on_both_forges, on_one_forge, prepared_story, story};

on_both_forges!(
    failed_calls_are_retried,
    calls_with_lost_answers_are_not_repeated,
    rate_limited_forge_is_not_called,
    deleted_status_comment_is_recreated_once,
    comment_missing_from_lists_is_posted_once,
    locked_issue_does_not_stop_the_loop,
    missed_label_asks_for_confirmation,
    missed_label_counts_if_forge_names_who_set_it,
    missed_events_are_found_by_reconciliation,
    faults_at_every_request_do_not_change_the_outcome,
    label_deliveries_are_order_independent,
    missed_review_is_found_by_reconciliation,
    concurrent_reviews_are_both_applied,
    comment_is_posted_once_if_a_following_call_is_limited,
);

on_one_forge!(
    hanging_forge_call_times_out_and_is_retried,
    escalation_is_opened_once,
    rejected_credential_is_retried,
    calls_to_unavailable_forge_back_off,
    forge_downtime_does_not_count_as_loop_time,
    refused_comments_do_not_stop_work,
    missed_issue_close_ends_the_loop,
    repeated_deliveries_are_applied_once,
    deliveries_are_order_independent,
    missed_label_removal_pauses_the_loop,
    loop_started_by_command_needs_no_label,
    forge_outage_at_any_step_is_survived,
);

/// Mutating requests: method and path pattern.
const CHANGES: &[(&str, &str)] = &[
    ("POST", r"/issues/\d+/comments$"),
    ("PATCH", r"/issues/comments/\d+$"),
    ("POST", r"/pulls$"),
    ("POST", r"/issues/\d+/labels$"),
    ("DELETE", r"/issues/\d+/labels/"),
    ("POST", r"/labels$"),
    ("POST", r"/requested_reviewers$"),
    ("PATCH", r"/pulls/\d+$"),
    ("POST", r"/git-receive-pack$"),
    ("POST", r"/statuses/"),
];

/// Visible outcome of the main story.
#[derive(Debug, PartialEq)]
struct StoryOutcome {
    state: LoopState,
    labels: Vec<String>,
    comments: usize,
    pulls: usize,
    draft: bool,
    asked: usize,
    answer: Option<String>,
    escalations: usize,
    repeated_statuses: usize,
}

async fn outcome(world: &World) -> StoryOutcome {
    let current = world.the_loop().await;
    let pulls: Vec<Number> = world.forge.with(|s| s.pulls(world.repo).iter().map(|(i, _)| i.number).collect());
    let pull = pulls.first().map(|number| world.issue_of(*number));
    StoryOutcome {
        labels: world.state_labels(),
        comments: world.bot_comments().len(),
        pulls: pulls.len(),
        draft: pull.as_ref().is_some_and(|p| world.is_draft(p)),
        asked: pull.as_ref().and_then(|p| p.pull.as_ref()).map_or(0, |p| p.requested.len()),
        answer: world.file(&current.branch.name, "answer.txt").await,
        escalations: world.escalations().len(),
        repeated_statuses: world.forge.with(|s| {
            let all = &s.repo(world.repo).expect("the repository").statuses;
            let shown = |n: usize| (&all[n].sha, &all[n].state, &all[n].description);
            (1..all.len()).filter(|n| shown(*n) == shown(n - 1)).count()
        }),
        state: current.state,
    }
}

fn undisturbed() -> StoryOutcome {
    StoryOutcome {
        state: LoopState::Review,
        labels: vec!["review".into()],
        // Comments: status, start, one iteration, completion.
        comments: 3,
        pulls: 1,
        draft: false,
        asked: 1,
        answer: Some("42\n".into()),
        escalations: 0,
        repeated_statuses: 0,
    }
}

/// Sets the label and runs the loop while each kind of mutating request meets these faults.
async fn with_faults(dialect: Dialect, faults: &[FakeFault]) {
    story(Setup::new(dialect), async |world| {
        for (method, path) in CHANGES {
            for fault in faults {
                world.forge.faults().next(1, method, path, fault.clone()).expect("a pattern");
            }
        }
        world.label().await;
        world.recover().await;
        assert_eq!(outcome(world).await, undisturbed(), "{faults:?}: {}", world.the_loop().await.why);
    })
    .await;
}

/// Each kind of mutating request, and a read before it, gets no answer once.
/// See docs/research/faults.md#f2.
async fn hanging_forge_call_times_out_and_is_retried(dialect: Dialect) {
    let mut setup = Setup::new(dialect);
    setup.timeouts = Timeouts { idle: Duration::from_millis(400), ..Timeouts::USUAL };
    let hanging: Vec<_> = CHANGES.iter().filter(|(_, path)| !path.contains("git-receive-pack")).collect();
    story(setup, async |world| {
        for (method, path) in hanging.into_iter().chain(&[("GET", r"/permission$"), ("GET", r"/issues/\d+$")]) {
            world.forge.faults().next(1, method, path, FakeFault::Hang).expect("a pattern");
        }
        world.label().await;
        world.recover().await;
        assert_eq!(outcome(world).await, undisturbed(), "{}", world.the_loop().await.why);
        assert_eq!(world.forge.faults().remaining(), 0, "not every sort of call was made");
    })
    .await;
}

/// See docs/research/faults.md#f1.
async fn failed_calls_are_retried(dialect: Dialect) {
    let faults =
        [FakeFault::status(500), FakeFault::status(502), FakeFault::status(503), FakeFault::Reset { apply: false }];
    with_faults(dialect, &faults).await;
}

/// See docs/research/faults.md#f1 and docs/research/faults.md#f2.
async fn calls_with_lost_answers_are_not_repeated(dialect: Dialect) {
    for fault in [FakeFault::after_effect(500), FakeFault::after_effect(504), FakeFault::Reset { apply: true }] {
        with_faults(dialect, &[fault]).await;
    }
    with_faults(dialect, &[FakeFault::after_effect(502), FakeFault::Reset { apply: true }, FakeFault::status(503)])
        .await;
}

/// See docs/research/faults.md#f1.
async fn escalation_is_opened_once(dialect: Dialect) {
    let config = "limits: { iterations: 1, comments_per_hour: 1000, comments_per_day: 1000 }";
    for fault in [FakeFault::after_effect(502), FakeFault::Reset { apply: true }, FakeFault::status(500)] {
        story(Setup::new(dialect).agent("echo thinking\n").config(config), async |world| {
            world.forge.faults().next(2, "POST", r"/issues$", fault.clone()).expect("a pattern");
            world.label().await;
            world.recover().await;
            assert_eq!(world.the_loop().await.state, LoopState::LimitReached);
            let [number] = world.escalations()[..] else { panic!("{fault:?}: {:?}", world.escalations()) };
            // `/ralph resume` closes the escalation; the answer to that comment is lost once.
            world.write_agent("echo 42 >answer.txt\n");
            world
                .forge
                .faults()
                .next(1, "POST", &format!(r"/issues/{number}/comments$"), fault.clone())
                .expect("a pattern");
            world.forge.faults().next(1, "PATCH", &format!(r"/issues/{number}$"), fault.clone()).expect("a pattern");
            world
                .forge
                .comment(&world.maintainer, world.repo, number, "/ralph resume --max-iterations 3")
                .await
                .expect("said");
            world.recover().await;
            assert_eq!(world.the_loop().await.state, LoopState::Review, "{fault:?}: {}", world.the_loop().await.why);
            assert!(world.escalations().is_empty(), "{fault:?}");
            let closing: Vec<_> = world.bot_comments_on(number).into_iter().filter(|s| s.contains("Closed:")).collect();
            assert_eq!(closing.len(), 1, "{fault:?}: {closing:#?}");
        })
        .await;
    }
}

/// See docs/research/faults.md#f3.
async fn rate_limited_forge_is_not_called(dialect: Dialect) {
    let secondary = |status, headers: &[(&str, &str)]| FakeFault::Respond {
        status,
        headers: headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        body: r#"{"message": "You have exceeded a secondary rate limit. Please wait."}"#.into(),
        apply: false,
    };
    let cases = [
        (secondary(429, &[("retry-after", "120")]), 120_000),
        (secondary(403, &[("retry-after", "90")]), 90_000),
        // Without `Retry-After` the service waits at least a minute.
        (secondary(429, &[]), 60_000),
        (secondary(403, &[]), 60_000),
        (secondary(429, &[("retry-after", "soon")]), 60_000),
    ];
    for (fault, window) in cases {
        story(Setup::new(dialect), async |world| {
            world.forge.faults().after(1, 1, "POST", r"/issues/\d+/comments$", fault.clone()).expect("a pattern");
            world.label().await;
            world.settle().await;
            for _ in 0..8 {
                world.advance(Duration::from_secs(17)).await;
            }
            world.recover().await;
            let requests = world.forge.requests();
            let at = requests.iter().position(|r| matches!(r.status, Some(403 | 429))).expect("the limited answer");
            let limited = &requests[at];
            let early = |r: &&fake_forge::RequestRecord| r.at.since(limited.at) < window && r.path.contains("/api/");
            let early: Vec<_> = requests[at + 1..].iter().filter(early).collect();
            assert!(early.is_empty(), "within the window of {window} ms of {fault:?}: {early:#?}");
            assert_eq!(outcome(world).await, undisturbed(), "{fault:?}");
        })
        .await;
    }
}

/// See docs/research/faults.md#f5.
async fn rejected_credential_is_retried(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.label().await;
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        world.forge.faults().next(3, "", "/api/", FakeFault::status(401)).expect("a pattern");
        world.recover().await;
        assert_eq!(outcome(world).await, undisturbed());
    })
    .await;
}

/// See docs/research/faults.md#f1.
async fn calls_to_unavailable_forge_back_off(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.label().await;
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        // Reads fail, so no change has started; retries have growing delays.
        world.forge.faults().next(100_000, "GET", "/api/", FakeFault::status(503)).expect("a pattern");
        let before = world.forge.requests().len();
        for _ in 0..300 {
            world.advance(Duration::from_secs(1)).await;
        }
        let request_count = world.forge.requests().len() - before;
        assert!(request_count < 100, "{request_count} requests in 5 minutes");
        world.forge.faults().clear();
        world.recover().await;
        assert_eq!(outcome(world).await, undisturbed());
    })
    .await;
}

async fn forge_downtime_does_not_count_as_loop_time(dialect: Dialect) {
    let config = "limits: { timeout: 30m, comments_per_hour: 1000, comments_per_day: 1000 }";
    story(Setup::new(dialect).config(config), async |world| {
        world.label().await;
        world.settle_until("the push", |l| l.run.step == LoopStep::Push).await;
        world.forge.faults().next(100_000, "", "", FakeFault::status(503)).expect("a pattern");
        for _ in 0..24 {
            world.advance(Duration::from_secs(600)).await;
        }
        assert_eq!(world.the_loop().await.state, LoopState::Running);
        world.forge.faults().clear();
        world.recover().await;
        assert_eq!(outcome(world).await, undisturbed());
        let used = world.the_loop().await.spent.time_ms;
        assert!(used < 30 * 60_000, "{used} ms");
    })
    .await;
}

async fn deleted_status_comment_is_recreated_once(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.run().await;
        let status = |world: &World| -> Vec<_> {
            let ours = world.comments(world.issue).into_iter().filter(|c| c.author == Some(world.bot.id));
            ours.filter(|c| c.body.contains("/ralph") && c.body.contains(" status ")).map(|c| c.id).collect()
        };
        let [old] = status(world)[..] else { panic!("one status comment: {:?}", status(world)) };
        world.forge.with(|s| s.delete_comment(world.maintainer.id, world.repo, old)).expect("deleted");
        // The answer to the next comment, the status, is lost.
        world
            .forge
            .faults()
            .next(1, "POST", r"/issues/\d+/comments$", FakeFault::after_effect(502))
            .expect("a pattern");
        world.comment("/ralph guide Once more, please.").await;
        world.recover().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
        let [new] = status(world)[..] else { panic!("one status comment: {:?}", status(world)) };
        assert_ne!(new, old);
    })
    .await;
}

/// See docs/research/faults.md#f6 and docs/research/faults.md#f18.
async fn refused_comments_do_not_stop_work(dialect: Dialect) {
    let spam =
        r#"{"message": "Validation Failed", "errors": [{"code": "custom", "message": "body was flagged as spam"}]}"#;
    for (status, body) in [(403, "{}"), (422, spam), (451, "{}")] {
        let refused = FakeFault::Respond { status, headers: Vec::new(), body: body.into(), apply: false };
        story(Setup::new(dialect), async |world| {
            world.forge.faults().next(1000, "POST", r"/issues/\d+/comments$", refused).expect("a pattern");
            world.label().await;
            world.recover().await;
            let done = outcome(world).await;
            assert_eq!(done, StoryOutcome { comments: 0, ..undisturbed() }, "{status}");
            let receipts = world.receipts().await;
            assert!(
                receipts.iter().all(|r| r.attempts <= 2),
                "{status}: an effect was retried too often: {receipts:#?}"
            );
            world.forge.faults().clear();
        })
        .await;
    }
}

/// Comment lists are stale, so a comment with a lost answer is written twice; once the lists are current, one is
/// deleted.
/// See docs/research/faults.md#f8.
async fn comment_missing_from_lists_is_posted_once(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.forge.faults().lag(Duration::from_secs(45));
        world
            .forge
            .faults()
            .next(2, "POST", r"/issues/\d+/comments$", FakeFault::after_effect(502))
            .expect("a pattern");
        world.label().await;
        world.settle().await;
        for _ in 0..40 {
            world.advance(Duration::from_secs(1)).await;
        }
        assert_eq!(world.the_loop().await.state, LoopState::Review);
        assert_eq!(world.forge.faults().remaining(), 0);
        let before = world.bot_comments().len();
        assert!(before > undisturbed().comments, "the story wants comments that stand twice: {before}");
        for _ in 0..3 {
            world.advance(Duration::from_secs(60)).await;
            world.engine().reconciler.reconcile_step(false).await.expect("reconcile");
            world.settle().await;
        }
        assert_eq!(outcome(world).await, undisturbed());
        // The remaining status comment is edited, not written again.
        world.comment("/ralph guide Once more, please.").await;
        world.settle().await;
        world.comment("/ralph abort").await;
        world.settle().await;
        let status: Vec<_> = world.bot_comments().into_iter().filter(|said| said.contains(" status ")).collect();
        assert_eq!(status.len(), 1, "{status:#?}");
        assert!(status[0].contains("### Aborted"), "it is the one that is kept up to date: {}", status[0]);
    })
    .await;
}

/// See docs/research/faults.md#f12.
async fn locked_issue_does_not_stop_the_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.forge.with(|s| s.issue_mut(world.repo, world.issue).expect("an issue").locked = true);
        world.label().await;
        world.recover().await;
        assert_eq!(outcome(world).await, undisturbed());
    })
    .await;
}

/// Sets the label, and its delivery is lost.
async fn label_unheard(world: &World) {
    // The delivery for the opened issue arrives first.
    world.forge.flush().await;
    world.forge.hooks().drop_next(1);
    world.label().await;
    world.forge.flush().await;
}

/// The forge's timeline names who set the label. GitHub's edit history shows that the text is unchanged; on Gitea, nothing
/// happened to the issue since.
async fn missed_label_counts_if_forge_names_who_set_it(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.advance(Duration::from_secs(600)).await;
        label_unheard(world).await;
        world.advance(Duration::from_secs(600)).await;
        world.reconcile().await;
        world.reconcile().await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// See docs/research/threats.md#p12.
async fn missed_label_asks_for_confirmation(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        label_unheard(world).await;
        // The text at the time of the label is unknown, even if the forge names who set it.
        world.advance(Duration::from_secs(10)).await;
        let (maintainer, body) = (&world.maintainer, "Another text");
        world.forge.edit_issue(maintainer, world.repo, world.issue, None, Some(body)).await.expect("edited");
        world.settle().await;
        assert!(world.newest().await.is_none());
        world.advance(Duration::from_secs(3600)).await;
        world.reconcile().await;
        world.reconcile().await;
        assert!(world.newest().await.is_none(), "a loop started without a confirmation");
        let comments = world.bot_comments();
        let [question] = &comments[..] else { panic!("one question: {comments:#?}") };
        let hash = question.split("--confirm ").nth(1).and_then(|rest| rest.get(..8)).expect("a hash");
        // A person without permission cannot confirm.
        let answer = format!("/ralph run --confirm {hash}");
        world.forge.comment(&world.outsider, world.repo, world.issue, &answer).await.expect("commented");
        world.settle().await;
        assert!(world.newest().await.is_none());
        world.comment(&answer).await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review, "{}", world.the_loop().await.why);
    })
    .await;
}

/// See docs/research/faults.md#f10.
async fn missed_events_are_found_by_reconciliation(dialect: Dialect) {
    story(Setup::new(dialect).agent("echo 42 >answer.txt\necho $RALPH_ITERATION >>notes.txt\n"), async |world| {
        let first = world.run().await;
        assert_eq!(first.state, LoopState::Review, "{}", first.why);
        world.advance(Duration::from_secs(300)).await;
        world.forge.hooks().drop_next(10_000);
        let comment = world.comment("/ralph guide Add a note, please.").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.spent.iterations, 1);
        world.reconcile().await;
        world.reconcile().await;
        let second = world.the_loop().await;
        assert_eq!((second.state, second.spent.iterations), (LoopState::Review, 2), "{}", second.why);
        assert!(world.prompt(2).await.contains("Add a note, please."));
        assert!(world.reactions(comment).contains(&"rocket".to_owned()), "{:?}", world.reactions(comment));
        let pull = second.pull.opened.expect("a pull request").number;
        world.forge.merge(&world.maintainer, world.repo, pull).await.expect("merged");
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
        world.reconcile().await;
        assert_eq!(world.the_loop().await.state, LoopState::Merged);
    })
    .await;
}

/// See docs/research/faults.md#f10 and docs/research/faults.md#f12.
async fn missed_issue_close_ends_the_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.label().await;
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        world.forge.hooks().drop_next(10_000);
        world.forge.close_issue(&world.maintainer, world.repo, world.issue).await.expect("closed");
        world.engine().reconciler.reconcile_step(true).await.expect("reconcile");
        world.settle().await;
        let now = world.the_loop().await;
        assert_eq!((now.state, now.branch.pushed), (LoopState::Closed, None), "{}", now.why);
    })
    .await;
    // The same with an open pull request.
    story(Setup::new(dialect), async |world| {
        let first = world.run().await;
        assert_eq!((first.state, first.pull.opened.is_some()), (LoopState::Review, true), "{}", first.why);
        world.forge.hooks().drop_next(10_000);
        world.forge.close_issue(&world.maintainer, world.repo, world.issue).await.expect("closed");
        world.reconcile().await;
        let now = world.the_loop().await;
        assert_eq!((now.state, now.why.as_str()), (LoopState::Closed, "the issue was closed"));
    })
    .await;
}

/// See docs/research/faults.md#f10.
async fn repeated_deliveries_are_applied_once(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.forge.hooks().duplicate_next(2, 100);
        world.label().await;
        world.settle().await;
        assert_eq!(outcome(world).await, undisturbed());
        assert_eq!(world.all_loops().await.len(), 1);
        world.forge.hooks().duplicate_next(1, 100);
        world.comment("/ralph guide Once more.").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert_eq!(world.prompt(2).await.matches("Once more.").count(), 1);
        world.forge.hooks().duplicate_next(1, 100);
        world.forge.hooks().hold();
        world.comment("/ralph abort enough").await;
        world.forge.hooks().release(|_| {});
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Aborted);
    })
    .await;
}

/// See docs/research/faults.md#f10.
async fn deliveries_are_order_independent(dialect: Dialect) {
    // All deliveries up to the merge arrive together, in another order.
    for turn in [0usize, 1, 2] {
        story(Setup::new(dialect), async |world| {
            world.run().await;
            world.forge.hooks().hold();
            world.comment("/ralph status").await;
            world.comment("/ralph help").await;
            world.comment("Looks good to me.").await;
            let pull = world.the_pull().await.number;
            world.forge.merge(&world.maintainer, world.repo, pull).await.expect("merged");
            world.forge.hooks().release(|held| match turn {
                0 => held.reverse(),
                1 => held.rotate_left(2),
                _ => held.sort_by(|a, b| a.body.cmp(&b.body)),
            });
            world.settle().await;
            world.reconcile().await;
            assert_eq!(world.the_loop().await.state, LoopState::Merged, "turn {turn}");
            assert_eq!(world.state_labels(), ["merged"]);
        })
        .await;
    }
}

/// Faults at every request: each round hits every `PERIOD`th request, from another offset.
/// See docs/research/faults.md#f1 and docs/research/faults.md#f2.
async fn faults_at_every_request_do_not_change_the_outcome(dialect: Dialect) {
    const PERIOD: u32 = 7;
    const FAULTS: u32 = 14;
    let kinds = [
        FakeFault::status(502),
        FakeFault::after_effect(500),
        FakeFault::Reset { apply: true },
        FakeFault::Reset { apply: false },
    ];
    // Each forge takes half of the offsets, or all of them with `RALPH_TEST_FORGE_FAULTS=all`.
    let all = setting("RALPH_TEST_FORGE_FAULTS").as_deref() == Some("all");
    for offset in (0..PERIOD).filter(|offset| all || (offset % 2 == 0) == (dialect == Dialect::Gitea)) {
        story(Setup::new(dialect), async |world| {
            for number in 0..FAULTS {
                let kind = kinds[(offset + number) as usize % kinds.len()].clone();
                world.forge.faults().after(offset + number * (PERIOD - 1), 1, "", "", kind).expect("a pattern");
            }
            world.label().await;
            world.recover().await;
            let done = world.the_loop().await;
            assert_eq!(
                outcome(world).await,
                undisturbed(),
                "from {offset}: {} {:#?}",
                done.why,
                world.receipts().await
            );
            assert!(world.forge.faults().remaining() < FAULTS / 2, "the run had too few requests for this story");
            world.forge.faults().clear();
        })
        .await;
    }
}

/// Label deliveries are compared with the current labels.
/// See docs/research/faults.md#f10.
async fn label_deliveries_are_order_independent(dialect: Dialect) {
    for turn in [0, 1] {
        story(Setup::new(dialect), async |world| {
            world.settle().await;
            world.forge.hooks().hold();
            world.label().await;
            world.clock.advance_ms(2_000);
            world.forge.unlabel(&world.maintainer, world.repo, world.issue, "ralph:run").await.expect("unlabeled");
            world.clock.advance_ms(2_000);
            world.label().await;
            world.forge.hooks().release(|held| match turn {
                0 => held.reverse(),
                _ => held.swap(1, 2),
            });
            world.settle().await;
            assert_eq!(outcome(world).await, undisturbed(), "turn {turn}: {}", world.the_loop().await.why);
        })
        .await;
    }
}

/// See docs/research/faults.md#f10.
async fn missed_label_removal_pauses_the_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.label().await;
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        world.forge.flush().await;
        world.forge.hooks().drop_next(10_000);
        world.forge.unlabel(&world.maintainer, world.repo, world.issue, "ralph:run").await.expect("unlabeled");
        // The delivery may still arrive.
        world.engine().reconciler.reconcile_step(true).await.expect("reconcile");
        while world.engine().executor.loop_step().await.expect("loop") {}
        assert_eq!(world.the_loop().await.state, LoopState::Running);
        world.clock.advance_ms(61_000);
        world.engine().reconciler.reconcile_step(true).await.expect("reconcile");
        world.settle().await;
        let now = world.the_loop().await;
        assert_eq!((now.state, now.branch.pushed), (LoopState::Paused, None), "{}", now.why);
        assert_eq!(now.why, "the label was removed");
        world.reconcile().await;
        assert_eq!(world.the_loop().await.version, now.version, "the removal was reported twice");
        world.forge.hooks().drop_next(0);
        world.label().await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// See docs/research/faults.md#f10.
async fn loop_started_by_command_needs_no_label(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.comment("/ralph run").await;
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        world.clock.advance_ms(61_000);
        world.reconcile().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
    // The removal of the label at the end of an earlier loop does not affect the next one.
    story(Setup::new(dialect), async |world| {
        world.run().await;
        world.comment("/ralph abort").await;
        world.settle().await;
        world.clock.advance_ms(1_000);
        world.comment("/ralph run").await;
        world.settle_until("the agent's turn", |l| l.state.is_open() && l.run.step == LoopStep::Agent).await;
        world.clock.advance_ms(61_000);
        world.reconcile().await;
        assert_eq!((world.all_loops().await.len(), world.the_loop().await.state), (2, LoopState::Review));
    })
    .await;
}

fn review(verdict: ReviewVerdict, body: &str, remark: Option<&str>) -> ReviewDraft {
    let remarks = remark.map(|text| ("answer.txt".into(), 1, text.into())).into_iter().collect();
    ReviewDraft { verdict, body: body.into(), remarks }
}

/// See docs/research/faults.md#f10.
async fn missed_review_is_found_by_reconciliation(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let pull = world.run().await.pull.opened.expect("a pull request").number;
        world.advance(Duration::from_secs(300)).await;
        world.forge.hooks().drop_next(10_000);
        let hand_in = async |by: &User, review: ReviewDraft| {
            world.forge.review(by, world.repo, pull, &review).await.expect("reviewed");
        };
        let changes =
            review(ReviewVerdict::ChangesRequested, "Please say why it is 42.", Some("This line needs its reason."));
        hand_in(&world.maintainer, changes).await;
        hand_in(&world.outsider, review(ReviewVerdict::Commented, "Do it in another way.", None)).await;
        // The review may have been edited since, so it contains no command.
        hand_in(&world.maintainer, review(ReviewVerdict::Commented, "/ralph abort", Some("/ralph abort"))).await;
        world.settle().await;
        assert_eq!(world.the_loop().await.spent.iterations, 1);
        world.reconcile().await;
        world.reconcile().await;
        let second = world.the_loop().await;
        assert_eq!((second.state, second.spent.iterations), (LoopState::Review, 2), "{}", second.why);
        let prompt = world.prompt(2).await;
        for wanted in ["Please say why it is 42.", "This line needs its reason.", "answer.txt:1"] {
            assert!(prompt.contains(wanted), "{wanted} is not in the prompt: {prompt}");
        }
        assert!(!prompt.contains("another way") && !prompt.contains("/ralph abort"), "{prompt}");
        // A review whose delivery arrived is not applied again.
        world.forge.hooks().drop_next(0);
        world.advance(Duration::from_secs(300)).await;
        hand_in(&world.maintainer, review(ReviewVerdict::Commented, "One more note.", Some("Here."))).await;
        world.settle().await;
        let third = world.the_loop().await;
        let heard = async || world.inputs().await.iter().filter(|line| line.starts_with("Reviewed")).count();
        let before = heard().await;
        world.reconcile().await;
        assert_eq!(heard().await, before, "{:#?}", world.inputs().await);
        assert_eq!((third.state, third.spent.iterations), (LoopState::Review, 3), "{}", third.why);
    })
    .await;
}

/// Gitea's deliveries of reviews do not contain the review's id.
/// See docs/research/faults.md#f10.
async fn concurrent_reviews_are_both_applied(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let pull = world.run().await.pull.opened.expect("a pull request").number;
        world.forge.hooks().hold();
        for body in ["Please say why it is 42.", "And say since when."] {
            let review = review(ReviewVerdict::Commented, body, None);
            world.forge.review(&world.maintainer, world.repo, pull, &review).await.expect("reviewed");
        }
        world.forge.hooks().release(|_| {});
        world.settle().await;
        world.reconcile().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let prompts = world.prompts().await[1..].join("\n");
        for body in ["Please say why it is 42.", "And say since when."] {
            assert_eq!(prompts.matches(body).count(), 1, "{body}: {prompts}");
        }
    })
    .await;
}

/// API and git fail for five minutes, from each step on.
/// See docs/research/faults.md#f1.
async fn forge_outage_at_any_step_is_survived(dialect: Dialect) {
    let steps =
        [None, Some(LoopStep::Prepare), Some(LoopStep::Baseline), Some(LoopStep::Agent), Some(LoopStep::Commit)];
    let steps = steps.into_iter().chain([LoopStep::Push, LoopStep::Check, LoopStep::Verify].map(Some));
    // Every second step, and all of them in CI.
    for step in steps.step_by(if setting("CI").is_some() { 1 } else { 2 }) {
        story(Setup::new(dialect), async |world| {
            world.settle().await;
            world.label().await;
            if let Some(step) = step {
                world.settle_until("the step", |l| l.run.step == step).await;
            }
            world.forge.faults().next(100_000, "", "", FakeFault::status(503)).expect("a pattern");
            for _ in 0..5 {
                world.reconcile().await;
                world.advance(Duration::from_secs(60)).await;
            }
            assert!(world.forge.faults().remaining() < 100_000, "{step:?}: the forge was never called");
            world.forge.faults().clear();
            world.recover().await;
            let done = world.the_loop().await;
            assert_eq!(outcome(world).await, undisturbed(), "{step:?}: {} {:#?}", done.why, world.receipts().await);
        })
        .await;
    }
}

mod github_apps {
    use ralph_bot::forge::github::{EVENTS, PERMISSIONS};

    use super::*;

    /// Installation tokens of a GitHub App expire after an hour.
    /// See docs/research/faults.md#f5.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn expired_app_token_is_renewed() {
        let limits = "limits: { timeout: 6h, comments_per_hour: 1000, comments_per_day: 1000 }";
        let setup = Setup::new(Dialect::GitHub).agent(WILLING).config(limits);
        let with_app = |world: &mut World| {
            let app = world.forge.add_app("Ralph Bot", PERMISSIONS, EVENTS, "", "");
            world.bot = app.bot;
            world.setup.credential = format!("app_id: {}, private_key_env: KEY", app.app_id);
            world.setup.env.push(("KEY", app.private_key_pem));
        };
        prepared_story(setup, with_app, async |world| {
            let minted = |world: &World| {
                world.forge.requests().iter().filter(|request| request.path.ends_with("/access_tokens")).count()
            };
            world.label().await;
            world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
            let mut before = minted(world);
            for iterations in [1, 2] {
                world.clock.advance_ms(61 * 60_000);
                world.settle().await;
                let done = world.the_loop().await;
                assert_eq!((done.state, done.spent.iterations), (LoopState::Review, iterations), "{}", done.why);
                assert!(minted(world) > before, "{iterations}: no further token was asked for");
                before = minted(world);
                world.comment("/ralph guide Once more, please.").await;
            }
            let refused = world.forge.requests().into_iter().find(|r| r.authenticated && r.status == Some(401));
            assert_eq!(refused, None, "an expired token was used");
            world.settle().await;
        })
        .await;
    }
}

/// The comment of an iteration folds the earlier one.
async fn comment_is_posted_once_if_a_following_call_is_limited(dialect: Dialect) {
    let agent = "echo $(($(cat answer.txt) + 1)) >answer.txt\n";
    let limited = |body: &str| FakeFault::Respond {
        status: 429,
        headers: vec![("retry-after".into(), "2".into())],
        body: body.into(),
        apply: false,
    };
    story(Setup::new(dialect).agent(agent).file("answer.txt", "40\n"), async |world| {
        world.label().await;
        world.settle_until("the second iteration", |l| l.iterations.len() == 2 && l.run.step == LoopStep::Commit).await;
        let (method, path) = match dialect {
            Dialect::GitHub => ("POST", "/api/graphql$"),
            Dialect::Gitea => ("PATCH", r"/issues/comments/\d+$"),
        };
        world.forge.faults().next(4, method, path, limited("")).expect("a pattern");
        world.recover().await;
        assert_eq!(world.forge.faults().remaining(), 0, "the call was never made");
        assert_eq!(world.the_loop().await.state, LoopState::Review);
        // Status, two iterations, completion.
        let created = world.forge.ops().iter().filter(|op| op.kind == OpKind::CommentCreated).count();
        assert_eq!(created, 4, "{:#?}", world.bot_comments());
    })
    .await;
}

/// GraphQL answers 200 with an error that has neither type nor code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_with_a_server_error_is_retried() {
    let body = r#"{"data": null, "errors": [{"message": "Something went wrong while executing your query. Please include `AB12:34` when reporting this issue."}]}"#;
    let fault = FakeFault::Respond { status: 200, headers: Vec::new(), body: body.into(), apply: false };
    story(Setup::new(Dialect::GitHub), async |world| {
        world.label().await;
        world.settle_until("the verification", |l| l.run.step == LoopStep::Verify).await;
        world.forge.faults().next(3, "POST", "/api/graphql$", fault).expect("a pattern");
        world.recover().await;
        assert_eq!(world.forge.faults().remaining(), 0, "nothing was asked again");
        let done = world.the_loop().await;
        assert_eq!(outcome(world).await, undisturbed(), "{}", done.why);
        assert!(done.pull.refused.is_empty(), "{:?}", done.pull.refused);
        let ready = world.forge.ops().iter().filter(|op| op.kind == OpKind::PullReady).count();
        assert_eq!(ready, 1);
    })
    .await;
}
