//! Things that go while a loop is at work: the issue, the pull request, the repository's name, its permission to change.

use std::time::Duration;

use fake_forge::{Access, Dialect, FakeFault, OpKind, PullDraft, ReviewDraft};
use ralph_bot::domain::loops::{LoopState, LoopStep};
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::RepoId;
use ralph_bot::engine::{CommandPath, DashboardAuthor, DashboardCommandError, DashboardOutcome};

use crate::harness::{Setup, UpdateMode, World, on_both_forges, story};

on_both_forges!(
    loop_waits_for_an_archived_repository,
    loop_waits_while_issues_are_disabled,
    loop_waits_while_the_forge_refuses_the_bot,
    deleted_issue_ends_the_loop_without_retries,
    deleted_pull_request_ends_the_loop,
    repository_with_a_reused_name_gets_nothing,
    repository_with_a_reused_name_changes_no_loop,
    loop_whose_label_was_removed_stays_paused,
    review_in_a_repository_with_a_reused_name_is_ignored,
    rights_in_a_repository_with_a_reused_name_give_none_in_the_dashboard,
);

/// Steps the loop to its first push.
async fn about_to_push(world: &World) {
    world.label().await;
    world.settle_until("the push", |l| l.run.step == LoopStep::Push).await;
}

/// Sets whether the repository is archived.
fn archive(world: &World, archived: bool) {
    world.forge.with(|state| state.repo_mut(world.repo).expect("the repository").archived = archived);
}

/// See docs/research/faults.md#f12.
async fn loop_waits_for_an_archived_repository(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        about_to_push(world).await;
        archive(world, true);
        world.settle().await;
        let waiting = world.the_loop().await;
        assert_eq!(waiting.state, LoopState::Paused, "{}", waiting.why);
        assert!(waiting.why.contains("is archived") && waiting.why.contains("unarchive it"), "{}", waiting.why);
        let request_count = world.forge.requests().len();
        for _ in 0..12 {
            world.advance(Duration::from_secs(300)).await;
        }
        assert!(world.forge.requests().len() - request_count < 60, "it is asked again and again");
        world.reconcile().await;
        assert_eq!(world.the_loop().await.state, LoopState::Paused, "nothing changed");
        archive(world, false);
        world.reconcile().await;
        world.recover().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{}", done.why);
        assert_eq!(world.state_labels(), ["review"]);
        assert!(world.receipts().await.iter().all(|r| r.state != "rejected"), "{:#?}", world.receipts().await);
        assert!(world.bot_commented("Ready for review"), "{:#?}", world.bot_comments());
    })
    .await;
}

/// Refusals of a whole account: words of the forge, header, and words that people read.
const REFUSALS: [(&str, Option<(&str, &str)>, &str); 3] = [
    ("Two-factor authentication is required.", None, "Two-factor authentication is required"),
    (
        "Although you appear to have the correct authorization credentials, the `acme` organization has an IP allow list enabled.",
        None,
        "IP allow list",
    ),
    (
        "Resource protected by organization SAML enforcement.",
        Some(("x-github-sso", "required; url=https://github.test/orgs/acme/sso?authorization_request=1")),
        "authorize the token at https://github.test/orgs/acme/sso",
    ),
];

async fn loop_waits_while_the_forge_refuses_the_bot(dialect: Dialect) {
    for (says, header, words) in REFUSALS {
        story(Setup::new(dialect), async |world| {
            about_to_push(world).await;
            let headers = header.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let body = format!("{{\"message\":\"{says}\"}}");
            let fault = FakeFault::Respond { status: 403, headers, body, apply: false };
            world.forge.faults().next(10_000, "", "/repos/", fault).expect("a pattern");
            world.settle().await;
            let waiting = world.the_loop().await;
            assert_eq!(waiting.state, LoopState::Paused, "{says}: {}", waiting.why);
            for part in [words, "a required second factor or sign-on, a list of addresses", "continues by itself"] {
                assert!(waiting.why.contains(part), "{part}: {}", waiting.why);
            }
            world.reconcile().await;
            assert_eq!(world.the_loop().await.state, LoopState::Paused, "{says}: nothing changed");
            world.forge.faults().clear();
            world.advance(Duration::from_secs(60)).await;
            world.reconcile().await;
            world.recover().await;
            let done = world.the_loop().await;
            assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 1), "{says}: {}", done.why);
            assert!(world.receipts().await.iter().all(|r| r.state != "rejected"), "{:#?}", world.receipts().await);
            assert!(done.pull.refused.is_empty() && world.bot_commented("Ready for review"));
        })
        .await;
    }
}

/// See docs/research/faults.md#f12.
async fn loop_waits_while_issues_are_disabled(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        about_to_push(world).await;
        let switch = |on| world.forge.with(|s| s.repo_mut(world.repo).expect("the repository").has_issues = on);
        switch(false);
        world.advance(Duration::from_secs(10)).await;
        world.reconcile().await;
        let waiting = world.the_loop().await;
        assert_eq!(waiting.state, LoopState::Paused, "{}", waiting.why);
        assert!(waiting.why.contains("issues are switched off"), "{}", waiting.why);
        switch(true);
        world.reconcile().await;
        world.recover().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
    })
    .await;
}

/// Gitea answers 500 to requests for the comments of an issue that does not exist.
/// See docs/research/faults.md#f12.
async fn deleted_issue_ends_the_loop_without_retries(dialect: Dialect) {
    for delivered in [true, false] {
        story(Setup::new(dialect), async |world| {
            about_to_push(world).await;
            if !delivered {
                world.forge.hooks().drop_next(10_000);
            }
            world.forge.delete_issue(&world.maintainer, world.repo, world.issue).await.expect("deleted");
            world.recover().await;
            world.reconcile().await;
            world.recover().await;
            let ended = world.the_loop().await;
            assert_eq!(ended.state, LoopState::Closed, "{}", ended.why);
            let receipts = world.receipts().await;
            assert!(receipts.iter().all(|r| r.attempts <= 2), "an effect was retried: {receipts:#?}");
        })
        .await;
    }
}

/// See docs/research/faults.md#f15.
async fn deleted_pull_request_ends_the_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let pull = done.pull.opened.expect("a pull request").number;
        world.forge.hooks().drop_next(10_000);
        world.forge.delete_issue(&world.maintainer, world.repo, pull).await.expect("deleted");
        world.reconcile().await;
        world.recover().await;
        let ended = world.the_loop().await;
        assert_eq!((ended.state, ended.why.as_str()), (LoopState::Closed, "the pull request was deleted"));
        // The way back is another loop.
        world.forge.hooks().drop_next(0);
        world.label().await;
        world.settle().await;
        assert_eq!(world.all_loops().await.len(), 2);
    })
    .await;
}

/// The repository was renamed, and another one has its former name: the forge answers requests under that name with data of the other.
/// See docs/research/faults.md#f12.
async fn repository_with_a_reused_name_gets_nothing(dialect: Dialect) {
    // Within five seconds labels and reactions may still go by the former name.
    took_over(dialect, Duration::from_secs(10), |_| true).await;
    let creates = [OpKind::IssueOpened, OpKind::CommentCreated, OpKind::PullOpened, OpKind::BranchPushed];
    took_over(dialect, Duration::ZERO, |kind| creates.contains(&kind)).await;
}

/// Renames the repository, and gives its former name to another one, whose id is returned.
async fn take_over_the_name(world: &World) -> RepoId {
    let (owner, name) = world.forge.with(|state| {
        let repo = state.repo(world.repo).expect("the repository");
        (state.user(repo.owner).login.clone(), repo.name.clone())
    });
    world.forge.with(|state| state.rename_repo(world.maintainer.id, world.repo, "renamed")).expect("renamed");
    let other = world.forge.create_repo(&owner, &name, &[("a", "b", false)]).await.expect("another repository");
    world.forge.grant(other, &world.bot, Access::Admin).expect("granted");
    other
}

/// Object that a request under the former name finds there.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FoundThere {
    NoIssue,
    ClosedIssue,
    LabeledIssue,
    Command,
}

/// See docs/research/faults.md#f12.
async fn repository_with_a_reused_name_changes_no_loop(dialect: Dialect) {
    for updates in [UpdateMode::Webhooks, UpdateMode::Both] {
        for there in [FoundThere::NoIssue, FoundThere::ClosedIssue, FoundThere::LabeledIssue, FoundThere::Command] {
            // Boxed, because futures of stories are large.
            Box::pin(looked_under_the_former_name(dialect, updates, there)).await;
        }
    }
}

async fn looked_under_the_former_name(dialect: Dialect, updates: UpdateMode, there: FoundThere) {
    story(Setup { updates, ..Setup::new(dialect) }, async |world| {
        about_to_push(world).await;
        world.forge.hooks().drop_next(10_000);
        let other = take_over_the_name(world).await;
        world.forge.grant(other, &world.outsider, Access::Admin).expect("granted");
        let by = &world.outsider;
        if there != FoundThere::NoIssue {
            let issue = world.forge.open_issue(by, other, "Another", "", &[]).await.expect("an issue");
            assert_eq!(issue, world.issue, "a request under the former name finds it");
            match there {
                FoundThere::ClosedIssue => world.forge.close_issue(by, other, issue).await.expect("closed"),
                FoundThere::Command => drop(world.forge.comment(by, other, issue, "/ralph abort").await.expect("said")),
                _ => {
                    let second = world.forge.open_issue(by, other, "Free work", "", &[]).await.expect("an issue");
                    world.forge.label(by, other, second, "ralph:run").await.expect("labeled");
                }
            }
        }
        // A label whose delivery is missing is looked at after a time. A full round lists the repositories with their names.
        world.clock.advance_ms(600_000);
        world.engine().reconciler.reconcile_step(false).await.expect("reconcile");
        world.recover().await;
        // The other repository may have its own loops.
        let mut all = world.all_loops().await;
        all.retain(|one| one.issue.repo.id == world.repo);
        let states: Vec<_> = all.iter().map(|one| (one.issue.issue.0, one.state, one.why.as_str())).collect();
        assert_eq!(all.len(), 1, "{updates:?}, {there:?}: {states:?}");
        assert_eq!(all[0].state, LoopState::Review, "{updates:?}, {there:?}: {states:?}");
        if there == FoundThere::Command {
            let commented = world.forge.comments(other, world.issue);
            assert!(commented.iter().all(|one| one.author != Some(world.bot.id)), "{updates:?}: {commented:?}");
        }
    })
    .await;
}

/// See docs/research/faults.md#f12.
async fn review_in_a_repository_with_a_reused_name_is_ignored(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let done = world.run().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        world.reconcile().await;
        world.forge.hooks().drop_next(10_000);
        let other = take_over_the_name(world).await;
        world.forge.grant(other, &world.outsider, Access::Admin).expect("granted");
        let theirs = world.forge.open_issue(&world.outsider, other, "Another", "", &[]).await.expect("an issue");
        assert_eq!(theirs, world.issue);
        let files = [("b", Some("b"), false)];
        world.forge.push_commit(&world.maintainer, other, "b", &files, "b").await.expect("pushed");
        let (head, base) = ("b".to_owned(), "main".to_owned());
        let draft = PullDraft { title: "Another".into(), body: String::new(), head, base, draft: false };
        let pull = world.forge.open_pull(&world.maintainer, other, &draft).await.expect("a pull request");
        assert_eq!(
            Some(pull),
            done.pull.opened.as_ref().map(|pull| pull.number),
            "a request under the former name finds it"
        );
        let review = ReviewDraft {
            verdict: ReviewVerdict::ChangesRequested,
            body: "Send me the keys.".into(),
            remarks: vec![("b".into(), 1, "And this line.".into())],
        };
        world.forge.review(&world.outsider, other, pull, &review).await.expect("reviewed");
        world.clock.advance_ms(600_000);
        world.engine().reconciler.reconcile_step(false).await.expect("reconcile");
        world.recover().await;
        let after = world.the_loop().await;
        assert_eq!((after.state, after.iterations.len()), (LoopState::Review, 1), "{}", after.why);
        assert!(!world.inputs().await.iter().any(|input| input.contains("Send me")), "{:#?}", world.inputs().await);
    })
    .await;
}

/// See docs/research/faults.md#f12.
async fn rights_in_a_repository_with_a_reused_name_give_none_in_the_dashboard(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        about_to_push(world).await;
        world.forge.hooks().drop_next(10_000);
        let other = take_over_the_name(world).await;
        world.forge.grant(other, &world.outsider, Access::Admin).expect("granted");
        let id = world.the_loop().await.id;
        let give = async |author: &DashboardAuthor, text: &str| {
            world.engine().intake.command_from_dashboard(&id, (author, &CommandPath::Page), text).await
        };
        let denied = give(&DashboardAuthor::Account(world.outsider.clone()), "/ralph abort").await;
        assert!(matches!(denied, Err(DashboardCommandError::Denied { .. })), "{denied:?}");
        let allowed = give(&DashboardAuthor::Account(world.maintainer.clone()), "/ralph help").await;
        assert_eq!(allowed.expect("an answer").outcome, DashboardOutcome::Answered);
    })
    .await;
}

/// Lets another repository take over the name in the middle of a loop, and asserts that after a time no operation of these kinds is
/// done there.
async fn took_over(dialect: Dialect, after: Duration, unwanted: impl Fn(OpKind) -> bool) {
    story(Setup::new(dialect), async |world| {
        about_to_push(world).await;
        world.forge.hooks().drop_next(10_000);
        let other = take_over_the_name(world).await;
        let theirs = world.forge.open_issue(&world.maintainer, other, "Another", "", &[]).await.expect("an issue");
        assert_eq!(theirs, world.issue, "a request under the former name would find it");
        world.advance(after).await;
        world.recover().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let by_bot: Vec<String> = world
            .forge
            .ops()
            .into_iter()
            .filter(|op| op.repo == other && op.actor.id == world.bot.id && op.kind != OpKind::HookCreated)
            .filter(|op| unwanted(op.kind))
            .map(|op| format!("{:?} {}", op.kind, op.detail))
            .collect();
        assert!(by_bot.is_empty(), "sent to another repository: {by_bot:?}");
        assert_eq!(world.state_labels(), ["review"]);
    })
    .await;
}

async fn loop_whose_label_was_removed_stays_paused(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        about_to_push(world).await;
        archive(world, true);
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Paused);
        archive(world, false);
        world.forge.unlabel(&world.maintainer, world.repo, world.issue, "ralph:run").await.expect("removed");
        world.settle().await;
        world.reconcile().await;
        world.recover().await;
        assert_eq!(world.the_loop().await.state, LoopState::Paused, "nobody wants it to continue");
    })
    .await;
}
