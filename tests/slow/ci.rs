//! CI of the pull request, and the forge's answers about its merge.

use fake_forge::{Dialect, OpKind, StatusDraft};
use ralph_bot::domain::loops::{EscalationCause, LoopState};
use ralph_bot::domain::model::ids::Sha;

use crate::harness::{Setup, WILLING, World, on_both_forges, on_one_forge, story};

on_both_forges!(
    failing_ci_starts_another_iteration,
    pending_or_passing_ci_starts_no_iteration,
    red_ci_makes_the_pull_request_a_draft,
    red_ci_without_a_change_pauses_and_asks,
    red_ci_that_passes_at_a_rerun_needs_no_iteration,
    red_ci_of_the_base_starts_no_iteration,
    red_ci_before_the_end_of_verification_prevents_completion,
    base_update_without_conflict_starts_no_iteration,
    conflict_is_found_while_the_forge_repeats_its_old_answer,
    conflict_whose_push_was_missed_is_found_by_the_answer_of_the_forge,
    conflict_whose_push_was_missed_is_found_by_a_full_round,
    unresolved_conflict_is_named_and_its_markers_are_never_pushed,
);

on_one_forge!(limit_with_an_unresolved_conflict_is_not_reported_as_complete);

fn status(state: &str, description: &str) -> StatusDraft {
    StatusDraft {
        context: "build".into(),
        state: state.into(),
        description: description.into(),
        target_url: String::new(),
    }
}

async fn set_status(world: &World, commit: &Sha, state: &str) {
    let status = status(state, "the linker ran out of ink");
    world.forge.set_status(&world.maintainer, world.repo, commit, &status).await.expect("a status");
}

/// Number of comments of the bot that call the loop done.
fn done_comments(world: &World) -> usize {
    world.bot_comments().iter().filter(|body| body.contains("✅ Ready for review: ")).count()
}

async fn failing_ci_starts_another_iteration(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let first = world.run().await;
        let head = first.branch.pushed.clone().expect("pushed");
        // The same status again starts no further iteration.
        set_status(world, &head, "failure").await;
        set_status(world, &head, "failure").await;
        world.settle().await;
        let second = world.the_loop().await;
        assert_eq!((second.state, second.spent.iterations), (LoopState::Review, 2), "{}", second.why);
        let prompt = world.prompt(2).await;
        assert!(prompt.contains("the linker ran out of ink") && prompt.contains("build"), "{prompt}");
        assert!(!world.is_draft(&world.the_pull().await), "the new commit is ready");
    })
    .await;
}

async fn pending_or_passing_ci_starts_no_iteration(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let first = world.run().await;
        let head = first.branch.pushed.clone().expect("pushed");
        for state in ["pending", "success"] {
            set_status(world, &head, state).await;
            world.settle().await;
            world.reconcile().await;
            assert_eq!(world.the_loop().await.spent.iterations, 1, "{state}");
        }
    })
    .await;
}

async fn red_ci_makes_the_pull_request_a_draft(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let first = world.run().await;
        assert!(!world.is_draft(&world.the_pull().await));
        set_status(world, &first.branch.pushed.clone().expect("pushed"), "failure").await;
        world.stop_at("the next iteration", |l| l.state == LoopState::Running).await;
        assert!(world.is_draft(&world.the_pull().await));
        assert_eq!(world.state_labels(), ["running"]);
        assert!(world.bot_commented("CI failed: `build`."), "{:#?}", world.bot_comments());
        world.settle().await;
    })
    .await;
}

async fn red_ci_without_a_change_pauses_and_asks(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let first = world.run().await;
        assert_eq!((first.state, done_comments(world)), (LoopState::Review, 1));
        let head = first.branch.pushed.clone().expect("pushed");
        set_status(world, &head, "failure").await;
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!((paused.state, paused.spent.iterations), (LoopState::Paused, 2), "{}", paused.why);
        assert_eq!(paused.run.escalated, Some(EscalationCause::Ci));
        assert_eq!((done_comments(world), world.state_labels()), (1, vec!["paused".to_owned()]));
        assert!(world.is_draft(&world.the_pull().await));
        let asked = world.escalations();
        assert_eq!(asked.len(), 1);
        insta::assert_snapshot!("failing_ci", world.conversation_on(asked[0]));
        // Resuming it gives the failures to the agent again.
        world.comment("/ralph resume").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Paused);
        assert!(world.prompt(3).await.contains("the linker ran out of ink"));
        // A re-run that passes continues the loop without an iteration.
        set_status(world, &head, "success").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 3), "{}", done.why);
        assert!(!world.is_draft(&world.the_pull().await) && world.escalations().is_empty());
    })
    .await;
}

async fn red_ci_that_passes_at_a_rerun_needs_no_iteration(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let first = world.run().await;
        let head = first.branch.pushed.clone().expect("pushed");
        set_status(world, &head, "failure").await;
        world.settle_until("queued", |l| l.state == LoopState::Queued).await;
        set_status(world, &head, "success").await;
        world.settle().await;
        let done = world.the_loop().await;
        // The slot may have been granted before the second status was read.
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(!world.is_draft(&world.the_pull().await));
        assert_eq!(done_comments(world), done.spent.iterations as usize);
    })
    .await;
}

async fn red_ci_of_the_base_starts_no_iteration(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let base = world.forge.branch_sha(world.repo, "main").await.expect("a base");
        set_status(world, &base, "failure").await;
        let first = world.run().await;
        set_status(world, &first.branch.pushed.clone().expect("pushed"), "failure").await;
        world.settle().await;
        let now = world.the_loop().await;
        assert_eq!((now.state, now.spent.iterations), (LoopState::Review, 1), "{}", now.why);
        assert!(now.why.contains("CI fails on the base, too: `build`"), "{}", now.why);
        assert!(world.bot_commented("CI fails on the base, too: `build`"), "{:#?}", world.bot_comments());
        assert!(!world.is_draft(&world.the_pull().await));
    })
    .await;
}

/// CI failed while the bot's own checks ran: the loop is not reported as done before the agent handles the failure.
async fn red_ci_before_the_end_of_verification_prevents_completion(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        world.label().await;
        let step = ralph_bot::domain::loops::LoopStep::Verify;
        let verifying = world.settle_until("the verification", |l| l.run.step == step).await;
        set_status(world, &verifying.branch.pushed.clone().expect("pushed"), "failure").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 2), "{}", done.why);
        assert_eq!(done_comments(world), 1);
        assert!(world.prompt(2).await.contains("the linker ran out of ink"));
    })
    .await;
}

/// Gitea reports a pull request as "not mergeable" until its check for conflicts, which runs after each push to the base.
///
/// See docs/research/faults.md#f17.
async fn base_update_without_conflict_starts_no_iteration(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let first = world.run().await;
        let change = [("other.txt", Some("new\n"), false)];
        world.forge.push_commit(&world.maintainer, world.repo, "main", &change, "Other work").await.expect("pushed");
        world.settle().await;
        world.reconcile().await;
        let now = world.the_loop().await;
        assert_eq!((now.state, now.spent.iterations), (LoopState::Review, 1), "{}", now.why);
        assert_eq!(
            (&now.branch.pushed, done_comments(world)),
            (&first.branch.pushed, 1),
            "no merge commit, no second comment"
        );
        let opened = world.forge.ops().iter().filter(|op| op.kind == OpKind::PullOpened).count();
        assert_eq!(opened, 1);
    })
    .await;
}

/// Pushes to the base what conflicts with the loop's work.
async fn push_conflict(world: &World) {
    let change = [("answer.txt", Some("40\n"), false)];
    let pushed = world.forge.push_commit(&world.maintainer, world.repo, "main", &change, "Another answer").await;
    pushed.expect("pushed");
    world.forge.flush().await;
}

/// Same as `push_conflict`, and the delivery of the push is lost.
async fn push_conflict_unheard(world: &World) {
    world.forge.hooks().drop_next(u32::MAX);
    push_conflict(world).await;
    world.forge.hooks().drop_next(0);
}

async fn assert_iterations(world: &World, wanted: u32, when: &str) {
    let now = world.the_loop().await;
    assert_eq!((now.state, now.spent.iterations), (LoopState::Review, wanted), "{when}: {}", now.why);
}

/// Asserts that the work contains the base.
async fn assert_conflict_is_resolved(world: &World) {
    assert_iterations(world, 2, "after the conflict").await;
    let branch = world.the_loop().await.branch.name;
    assert_eq!(world.parents(&branch).len(), 2, "the base was merged into {branch}");
    assert_eq!(world.file(&branch, "answer.txt").await.as_deref(), Some("42\n"));
}

/// The push itself is the reason to ask git: the forge's answer predates it.
///
/// See docs/research/faults.md#f17.
async fn conflict_is_found_while_the_forge_repeats_its_old_answer(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        world.run().await;
        world.forge.with(|state| state.stale_reads = u32::MAX);
        push_conflict(world).await;
        world.settle().await;
        assert_conflict_is_resolved(world).await;
    })
    .await;
}

/// The service did not hear of the push; a status of the pull request triggers a check, and the forge does not know the result (GitHub)
/// or that the pull request cannot be merged (Gitea).
async fn conflict_whose_push_was_missed_is_found_by_the_answer_of_the_forge(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let head = world.run().await.branch.pushed.expect("pushed");
        push_conflict_unheard(world).await;
        world.settle().await;
        assert_iterations(world, 1, "the push was not delivered").await;
        set_status(world, &head, "success").await;
        world.settle().await;
        assert_conflict_is_resolved(world).await;
    })
    .await;
}

/// Neither a delivery nor the forge's answer says that anything changed.
///
/// See docs/research/faults.md#f17.
async fn conflict_whose_push_was_missed_is_found_by_a_full_round(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let head = world.run().await.branch.pushed.expect("pushed");
        world.forge.with(|state| state.stale_reads = u32::MAX);
        push_conflict_unheard(world).await;
        set_status(world, &head, "success").await;
        world.settle().await;
        assert_iterations(world, 1, "nothing says so").await;
        world.engine().reconciler.reconcile_step(false).await.expect("a round over open loops");
        world.settle().await;
        assert_iterations(world, 1, "between two full rounds").await;
        world.reconcile().await;
        assert_conflict_is_resolved(world).await;
    })
    .await;
}

/// The agent leaves the markers twice.
///
/// See docs/research/faults.md#f17.
async fn unresolved_conflict_is_named_and_its_markers_are_never_pushed(dialect: Dialect) {
    let agent = "grep -qs '<<<<<<<' answer.txt || echo 42 >answer.txt\necho \"round $RALPH_ITERATION\" >>notes.txt\n";
    story(Setup::new(dialect).agent(agent), async |world| {
        let ready = world.run().await;
        push_conflict(world).await;
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!((paused.state, paused.spent.iterations), (LoopState::Paused, 3), "{}", paused.why);
        let start = "the branch conflicts with `main` in `answer.txt` (changed there by ";
        assert!(paused.why.starts_with(start) && paused.why.contains("did not resolve it"), "{}", paused.why);
        let on_forge = world.forge.branch_sha(world.repo, &paused.branch.name).await;
        assert_eq!(on_forge, ready.branch.pushed, "nothing of the merge was pushed");
        let body = world.issue_of(world.escalations()[0]).body;
        assert!(body.contains("two ways out") && body.contains("`answer.txt`"), "{body}");
    })
    .await;
}

/// All checks pass, but no iteration is left for the conflict.
async fn limit_with_an_unresolved_conflict_is_not_reported_as_complete(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        world.comment("/ralph run --max-iterations 1").await;
        world.settle().await;
        assert_iterations(world, 1, "at first").await;
        push_conflict(world).await;
        world.settle().await;
        let stopped = world.the_loop().await;
        assert_eq!((stopped.state, stopped.spent.iterations), (LoopState::LimitReached, 1), "{}", stopped.why);
        let comments = world.bot_comments();
        let unsolved = "The branch conflicts with `main`; the conflict is not resolved.";
        let last = comments.iter().find(|body| body.contains(unsolved)).unwrap_or_else(|| panic!("{comments:#?}"));
        assert!(last.contains("**Unresolved**") && !last.contains("100 %"), "{last}");
        world.comment("/ralph resume --max-iterations 2").await;
        world.settle().await;
        assert_conflict_is_resolved(world).await;
    })
    .await;
}
