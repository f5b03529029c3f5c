//! Merging by the forge where a maintainer asked for it.

use std::time::Duration;

use fake_forge::{Access, Dialect, FakeFault, GiteaVersion, OpKind, ReviewDraft, StatusDraft};
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::{AccountKind, Sha};

use crate::harness::{Setup, WILLING, World, on_both_forges, story};

on_both_forges!(
    pull_request_is_merged_by_the_forge_once_it_is_approved,
    pull_request_without_rules_is_merged_once_ci_passed,
    repository_without_ci_is_merged_after_a_while,
    check_of_another_service_does_not_replace_ci,
    red_ci_withdraws_the_merge,
    request_for_changes_withdraws_the_merge_before_the_push,
    merge_is_withdrawn_by_command,
    commit_of_somebody_else_is_not_merged,
    allowed_account_without_write_access_cannot_merge,
    missing_permission_of_the_bot_is_reported,
    outsider_cannot_ask_for_a_merge,
);

async fn set_status(world: &World, commit: &Sha, context: &str, state: &str) {
    let status = StatusDraft {
        context: context.into(),
        state: state.into(),
        description: "the linker".into(),
        target_url: String::new(),
    };
    world.forge.set_status(&world.maintainer, world.repo, commit, &status).await.expect("a status");
}

/// Lets the check `build` have run on the base, so that its run on a pull request is its CI.
async fn ci_ran_on_base(world: &World) {
    let base = world.forge.branch_sha(world.repo, "main").await.expect("a branch");
    set_status(world, &base, "build", "success").await;
}

/// Whether the forge was asked to merge and the request was not withdrawn.
async fn is_ordered(world: &World) -> bool {
    world.the_pull().await.pull.expect("a pull request").auto_merge.is_some()
}

async fn approve(world: &World) {
    let reviewer = world.forge.add_user("rita", AccountKind::User);
    world.forge.grant(world.repo, &reviewer, Access::Write).expect("granted");
    let draft = ReviewDraft { verdict: ReviewVerdict::Approved, body: "Good.".into(), remarks: Vec::new() };
    let pull = world.the_pull().await.number;
    world.forge.review(&reviewer, world.repo, pull, &draft).await.expect("reviewed");
}

/// Allows the forge to merge, and requires `build` and an approval for it.
fn with_rules(world: &World) {
    world.forge.allow_auto_merge(world.repo, true).expect("allowed");
    world.forge.require_for_merge(world.repo, "main", &["build"], 1).expect("required");
}

async fn pull_request_is_merged_by_the_forge_once_it_is_approved(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        ci_ran_on_base(world).await;
        with_rules(world);
        // Asked for while the loop waits: it counts for the pull request that comes of it.
        world.label().await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        let ready = world.the_loop().await;
        assert_eq!(ready.state, LoopState::Review, "{}", ready.why);
        assert!(!is_ordered(world).await, "CI has not begun");
        set_status(world, &ready.branch.pushed.clone().expect("pushed"), "build", "success").await;
        world.settle().await;
        assert!(is_ordered(world).await, "{:#?}", world.receipts().await);
        assert!(world.bot_commented(
            "The forge merges the pull request once the rules of its base are satisfied, as mira asked."
        ));
        assert_eq!(world.the_loop().await.state, LoopState::Review, "an approval is missing");
        approve(world).await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Merged, "{}", done.why);
        assert_eq!(world.forge.file_at(world.repo, "main", "answer.txt").await.as_deref(), Some("42\n"));
    })
    .await;
}

async fn pull_request_without_rules_is_merged_once_ci_passed(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        ci_ran_on_base(world).await;
        world.forge.allow_auto_merge(world.repo, true).expect("allowed");
        let ready = world.run().await;
        let head = ready.branch.pushed.clone().expect("pushed");
        set_status(world, &head, "build", "pending").await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        world.reconcile().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review, "CI is pending");
        set_status(world, &head, "build", "success").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Merged);
    })
    .await;
}

async fn repository_without_ci_is_merged_after_a_while(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.forge.allow_auto_merge(world.repo, true).expect("allowed");
        world.run().await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review, "CI may still begin");
        world.advance(Duration::from_secs(121)).await;
        world.reconcile().await;
        assert_eq!(world.the_loop().await.state, LoopState::Merged);
    })
    .await;
}

/// A DCO check passes in a second, before CI has started.
async fn check_of_another_service_does_not_replace_ci(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        ci_ran_on_base(world).await;
        world.forge.allow_auto_merge(world.repo, true).expect("allowed");
        let head = world.run().await.branch.pushed.expect("pushed");
        set_status(world, &head, "DCO", "success").await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review, "`build` has not begun");
        world.advance(Duration::from_secs(121)).await;
        world.reconcile().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review, "it ran on the base, so it is awaited for longer");
        set_status(world, &head, "build", "success").await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Merged);
    })
    .await;
}

async fn red_ci_withdraws_the_merge(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        ci_ran_on_base(world).await;
        with_rules(world);
        let ready = world.run().await;
        let head = ready.branch.pushed.clone().expect("pushed");
        set_status(world, &head, "build", "success").await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        assert!(is_ordered(world).await);
        set_status(world, &head, "lint", "failure").await;
        world.settle().await;
        let again = world.the_loop().await;
        assert_eq!((again.state, again.spent.iterations), (LoopState::Review, 2), "{}", again.why);
        assert!(!is_ordered(world).await && again.pull.merge_ordered.is_none());
        assert!(world.bot_commented("The merge that mira asked for is withdrawn: CI failed on the pull request"));
        // The next commit is merged only if somebody asks again.
        set_status(world, &again.branch.pushed.expect("pushed"), "build", "success").await;
        approve(world).await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

async fn request_for_changes_withdraws_the_merge_before_the_push(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        ci_ran_on_base(world).await;
        with_rules(world);
        let ready = world.run().await;
        set_status(world, &ready.branch.pushed.clone().expect("pushed"), "build", "success").await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        let pull = world.the_pull().await.number;
        let draft =
            ReviewDraft { verdict: ReviewVerdict::ChangesRequested, body: "Say why.".into(), remarks: Vec::new() };
        world.forge.review(&world.maintainer, world.repo, pull, &draft).await.expect("reviewed");
        world.settle().await;
        let again = world.the_loop().await;
        assert_eq!((again.state, again.spent.iterations), (LoopState::Review, 2), "{}", again.why);
        assert!(!is_ordered(world).await);
        assert!(world.bot_commented("is withdrawn: mira asked for changes"), "{:#?}", world.bot_comments());
    })
    .await;
}

async fn merge_is_withdrawn_by_command(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        ci_ran_on_base(world).await;
        with_rules(world);
        let ready = world.run().await;
        set_status(world, &ready.branch.pushed.clone().expect("pushed"), "build", "success").await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        assert!(is_ordered(world).await);
        let off = world.comment("/ralph merge-when-ready off").await;
        world.settle().await;
        assert!(!is_ordered(world).await && world.reactions(off).contains(&"rocket".to_owned()));
        approve(world).await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
        let again = world.comment("/ralph merge-when-ready off").await;
        world.settle().await;
        assert!(world.reactions(again).contains(&"confused".to_owned()));
    })
    .await;
}

/// Gitea does not show who cancelled a scheduled merge.
/// The workflow never ran on the base, and a check of another service is skipped at once. GitHub names the workflows that started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflow_of_the_pull_request_is_awaited() {
    let workflow = "on: pull_request\njobs:\n  build:\n    runs-on: ubuntu-latest\n    steps: [{ run: make }]\n";
    let setup = Setup::new(Dialect::GitHub).file(".github/workflows/ci.yml", workflow);
    story(setup, async |world| {
        world.forge.allow_auto_merge(world.repo, true).expect("allowed");
        let head = world.run().await.branch.pushed.expect("pushed");
        let ran = async |name: &str, conclusion: &str, log: &str| {
            let outcome = Some((conclusion, "", log));
            let by = &world.maintainer;
            world.forge.set_check_run(by, world.repo, &head, name, outcome).await.expect("a check run");
        };
        ran("labels", "skipped", "").await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        world.advance(Duration::from_secs(121)).await;
        world.reconcile().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review, "`ci.yml` has not begun");
        ran("build", "success", "made").await;
        world.settle().await;
        world.reconcile().await;
        assert_eq!(world.the_loop().await.state, LoopState::Merged, "{}", world.the_loop().await.why);
        let skipped = "these jobs never ran (skipped or neutral): `labels`";
        assert!(world.bot_commented(skipped), "{:#?}", world.bot_comments());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merge_disabled_on_github_is_reported_and_not_requested_again() {
    for (queue, words) in
        [(false, "mira disabled auto-merge (too early)"), (true, "mira removed it from the merge queue (too early)")]
    {
        story(Setup::new(Dialect::GitHub), async |world| {
            ci_ran_on_base(world).await;
            with_rules(world);
            let ready = world.run().await;
            set_status(world, &ready.branch.pushed.clone().expect("pushed"), "build", "success").await;
            world.comment("/ralph merge-when-ready").await;
            world.settle().await;
            assert!(is_ordered(world).await);
            let pull = world.the_pull().await.number;
            world.forge.leave_merge(&world.maintainer, world.repo, pull, queue, "too early").expect("ended");
            world.settle().await;
            world.reconcile().await;
            world.settle().await;
            let told = format!("The pull request is not merged when it is ready: {words}.");
            assert!(world.bot_commented(&told), "{:#?}", world.bot_comments());
            let current = world.the_loop().await;
            assert!(
                current.state == LoopState::Review
                    && current.pull.merge_wish.is_none()
                    && current.pull.merge_ordered.is_none()
            );
            assert!(!is_ordered(world).await, "nobody asked again");
            world.comment("/ralph merge-when-ready").await;
            world.settle().await;
            assert!(is_ordered(world).await, "{:#?}", world.receipts().await);
        })
        .await;
    }
}

async fn commit_of_somebody_else_is_not_merged(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        ci_ran_on_base(world).await;
        with_rules(world);
        let ready = world.run().await;
        set_status(world, &ready.branch.pushed.clone().expect("pushed"), "build", "success").await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        let files = [("late.txt", Some("late\n"), false)];
        world
            .forge
            .push_commit(&world.maintainer, world.repo, &ready.branch.name, &files, "Late")
            .await
            .expect("pushed");
        world.settle().await;
        world.reconcile().await;
        assert!(!is_ordered(world).await, "{:#?}", world.receipts().await);
        assert!(world.bot_commented("The pull request is not merged when it is ready: somebody else pushed"));
        world.comment("/ralph abort").await;
        world.settle().await;
    })
    .await;
}

async fn outsider_cannot_ask_for_a_merge(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        ci_ran_on_base(world).await;
        world.forge.allow_auto_merge(world.repo, true).expect("allowed");
        let ready = world.run().await;
        set_status(world, &ready.branch.pushed.clone().expect("pushed"), "build", "success").await;
        let said = world.forge.comment(&world.outsider, world.repo, world.issue, "/ralph merge-when-ready").await;
        world.settle().await;
        assert!(world.reactions(said.expect("commented")).contains(&"-1".to_owned()));
        let current = world.the_loop().await;
        assert!(current.state == LoopState::Review && current.pull.merge_wish.is_none());
    })
    .await;
}

async fn allowed_account_without_write_access_cannot_merge(dialect: Dialect) {
    let setup = Setup::new(dialect).config("permissions: { allow: [1002] }");
    story(setup, async |world| {
        ci_ran_on_base(world).await;
        world.forge.allow_auto_merge(world.repo, true).expect("allowed");
        let ready = world.run().await;
        set_status(world, &ready.branch.pushed.clone().expect("pushed"), "build", "success").await;
        let said = world.forge.comment(&world.outsider, world.repo, world.issue, "/ralph merge-when-ready").await;
        said.expect("commented");
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
        assert!(world.bot_commented("otto has no write access to the repository"), "{:#?}", world.bot_comments());
    })
    .await;
}

async fn missing_permission_of_the_bot_is_reported(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        ci_ran_on_base(world).await;
        with_rules(world);
        let ready = world.run().await;
        set_status(world, &ready.branch.pushed.clone().expect("pushed"), "build", "success").await;
        world.comment("/ralph merge-when-ready").await;
        if dialect == Dialect::GitHub {
            let body =
                r#"{"data":null,"errors":[{"type":"FORBIDDEN","message":"Resource not accessible by integration"}]}"#;
            let refused = FakeFault::Respond { status: 200, headers: Vec::new(), body: body.into(), apply: false };
            world.forge.faults().next(1, "POST", "/api/graphql$", refused).expect("a pattern");
        } else {
            let refused = FakeFault::status(403);
            world.forge.faults().next(1, "POST", "/pulls/[0-9]+/merge$", refused).expect("a pattern");
        }
        world.settle().await;
        let current = world.the_loop().await;
        assert!(
            current.state == LoopState::Review
                && current.pull.merge_wish.is_none()
                && current.pull.merge_ordered.is_none()
        );
        assert!(world.bot_commented("Allow the bot's account to merge"), "{:#?}", world.bot_comments());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repository_without_auto_merge_gets_advice() {
    story(Setup::new(Dialect::GitHub), async |world| {
        ci_ran_on_base(world).await;
        world.forge.require_for_merge(world.repo, "main", &["build"], 1).expect("required");
        let ready = world.run().await;
        set_status(world, &ready.branch.pushed.clone().expect("pushed"), "build", "success").await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        assert!(world.bot_commented("auto-merge is not allowed in mira/app"), "{:#?}", world.bot_comments());
        assert!(world.bot_commented("Allow auto-merge"));
        let asked = world.forge.ops().into_iter().any(|op| op.kind == OpKind::AutoMergeEnabled);
        assert!(!asked && world.the_loop().await.pull.merge_wish.is_none());
    })
    .await;
}

/// Gitea before 1.24.3 may accept a merge and lose it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merge_lost_by_an_older_gitea_is_repeated_after_some_minutes() {
    story(Setup::new(Dialect::Gitea), async |world| {
        ci_ran_on_base(world).await;
        world.forge.with(|state| state.gitea = GiteaVersion::V1_22);
        let ready = world.run().await;
        set_status(world, &ready.branch.pushed.clone().expect("pushed"), "build", "success").await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        assert!(is_ordered(world).await, "{:#?}", world.receipts().await);
        world.reconcile().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review, "the server has forgotten it");
        world.advance(Duration::from_secs(181)).await;
        world.reconcile().await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Merged, "{}", done.why);
    })
    .await;
}

/// While rules are not satisfied, the merge request stays and is renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merge_that_waits_for_an_approval_on_an_older_gitea_is_scheduled_again() {
    story(Setup::new(Dialect::Gitea), async |world| {
        ci_ran_on_base(world).await;
        world.forge.with(|state| state.gitea = GiteaVersion::V1_22);
        with_rules(world);
        let ready = world.run().await;
        set_status(world, &ready.branch.pushed.clone().expect("pushed"), "build", "success").await;
        world.comment("/ralph merge-when-ready").await;
        world.settle().await;
        let asked =
            |world: &World| world.forge.ops().into_iter().filter(|op| op.kind == OpKind::AutoMergeEnabled).count();
        assert_eq!(asked(world), 1);
        world.advance(Duration::from_secs(181)).await;
        world.reconcile().await;
        world.settle().await;
        assert_eq!((asked(world), world.the_loop().await.state), (2, LoopState::Review));
        assert!(is_ordered(world).await, "{:#?}", world.receipts().await);
        approve(world).await;
        world.advance(Duration::from_secs(400)).await;
        world.reconcile().await;
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Merged);
    })
    .await;
}
