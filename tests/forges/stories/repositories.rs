//! Repositories and issues that are renamed, archived, transferred, deleted, empty or without issues.

use ralph_bot::domain::loops::LoopState;

use crate::bot::eventually;
use crate::server::On;
use crate::stage::{RUN, StoryPlan, WAITING, on_every_gitea, on_every_server, on_old_gitea, story};

on_every_server!(
    renamed_repository_is_followed,
    transferred_repository_is_followed,
    empty_repository_is_reported,
    hook_of_a_repository_has_its_own_secret,
    hook_of_an_empty_repository_works_after_its_first_commit,
    loop_continues_in_a_repository_made_private,
);

on_every_gitea!(
    loop_waits_until_the_repository_is_unarchived,
    deleted_repository_stops_its_loop,
    deleted_issue_ends_its_loop,
    loop_waits_until_issues_are_enabled_again,
    loop_waits_until_the_removed_bot_is_added_again,
    repository_with_a_reused_name_gets_nothing,
    valid_webhook_is_kept,
);

on_old_gitea!(valid_webhook_is_kept);

async fn renamed_repository_is_followed(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        stage.repo.rename(&stage.mira, "renamed").await;
        stage.agent_goes_on();
        let done = stage.ready(stage.issue).await;
        let pulls = stage.repo.pulls(&stage.mira).await;
        assert_eq!(pulls.iter().map(|pull| pull.number).collect::<Vec<_>>(), [stage.pull_of(&done)]);
        stage.shows(stage.issue, "review").await;
        let status = stage.comment("/ralph status").await;
        stage.reacted(status, "rocket").await;
    })
    .await;
}

async fn transferred_repository_is_followed(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        let other = stage.other_organization().await;
        stage.label().await;
        stage.agent_waits().await;
        stage.repo.transfer(&stage.mira, &other).await;
        stage.agent_goes_on();
        stage.ready(stage.issue).await;
        assert_eq!(stage.repo.pulls(&stage.mira).await.len(), 1);
    })
    .await;
}

async fn loop_waits_until_the_repository_is_unarchived(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        stage.repo.set(&stage.mira, "archived", true).await;
        stage.answer_about_the_repository_is_old().await;
        stage.agent_goes_on();
        stage.paused_because("is archived").await;
        stage.repo.set(&stage.mira, "archived", false).await;
        stage.ready(stage.issue).await;
        assert_eq!(stage.repo.pulls(&stage.mira).await.len(), 1);
    })
    .await;
}

async fn deleted_repository_stops_its_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        assert_eq!(stage.repo.delete(&stage.mira).await.status, 204);
        stage.agent_goes_on();
        let ended = stage.bot.until(stage.issue, "an end", |found| !found.state.holds_slot()).await;
        // A deleted repository cannot be distinguished from one that the bot may no longer read.
        assert_eq!(ended.state, LoopState::Paused, "{}", ended.why);
        assert!(ended.why.contains("cannot be read any more"), "{}", ended.why);
    })
    .await;
}

async fn deleted_issue_ends_its_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        stage.repo.delete_issue(&stage.mira, stage.issue).await;
        stage.bot.until_state(stage.issue, LoopState::Closed).await;
        stage.agent_goes_on();
        // Nothing is retried without end.
        stage.bot.until_idle().await;
        assert!(stage.repo.pulls(&stage.mira).await.is_empty());
    })
    .await;
}

async fn empty_repository_is_reported(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().empty(), async |stage| {
        stage.comment("/ralph run --check \"sh check.sh\"").await;
        let failed = stage.bot.until_state(stage.issue, LoopState::Failed).await;
        assert!(failed.why.contains("empty"), "{}", failed.why);
        let setup = crate::bot::sample();
        stage.repo.push(&stage.mira, "main", &crate::bot::files(&setup), "Initial commit").await;
        stage.comment("/ralph resume").await;
        stage.ready(stage.issue).await;
    })
    .await;
}

async fn loop_waits_until_issues_are_enabled_again(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        stage.repo.set(&stage.mira, "has_issues", false).await;
        stage.answer_about_the_repository_is_old().await;
        stage.agent_goes_on();
        stage.paused_because("issues are switched off").await;
        stage.repo.set(&stage.mira, "has_issues", true).await;
        stage.ready(stage.issue).await;
    })
    .await;
}

async fn loop_waits_until_the_removed_bot_is_added_again(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        stage.repo.remove_collaborator(&stage.mira, &stage.robot.login).await;
        stage.agent_goes_on();
        stage.paused_because("the loop continues by itself").await;
        stage.repo.collaborator(&stage.mira, &stage.robot.login, crate::server::Level::Admin).await;
        stage.ready(stage.issue).await;
    })
    .await;
}

/// The repository was renamed, and another one has its former name: the server answers requests under that name with data of the other.
async fn repository_with_a_reused_name_gets_nothing(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        stage.shows(stage.issue, "running").await;
        stage.repo.rename(&stage.mira, "renamed").await;
        let other = stage.another_repository("app").await;
        other.push(&stage.mira, "main", &[("readme.md", "Another program.\n")], "Initial commit").await;
        let theirs = other.open_issue(&stage.mira, "Another task", "").await;
        assert_eq!(theirs, stage.issue, "a request under the former name would find it");
        stage.answer_about_the_repository_is_old().await;
        stage.agent_goes_on();
        let done = stage.ready(stage.issue).await;
        stage.shows(stage.issue, "review").await;
        assert_eq!(stage.repo.pulls(&stage.mira).await.len(), 1);
        assert_eq!(other.branch(&stage.mira, &done.branch.name).await, None);
        assert!(other.pulls(&stage.mira).await.is_empty() && other.labels(&stage.mira, theirs).await.is_empty());
        let comments = other.comments(&stage.mira, theirs).await;
        assert!(comments.is_empty(), "sent to another repository: {comments:?}");
    })
    .await;
}

async fn hook_of_a_repository_has_its_own_secret(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().without_hook().stopped(), async |stage| {
        assert!(stage.bot.init_webhook(&stage.repo.name()).await);
        stage.bot.start().await;
        stage.label().await;
        stage.ready(stage.issue).await;
        let labels = eventually("labels", async || {
            let labels = stage.repo.labels(&stage.mira, stage.issue).await;
            labels.contains(&RUN.to_owned()).then_some(labels)
        })
        .await;
        assert!(labels.contains(&"ralph:review".to_owned()), "{labels:?}");
    })
    .await;
}

async fn hook_of_an_empty_repository_works_after_its_first_commit(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().empty().without_hook().stopped(), async |stage| {
        // Gitea has nothing to test it with.
        let tested = stage.bot.init_webhook(&stage.repo.name()).await;
        assert!(tested || !stage.server.is_github());
        let setup = crate::bot::sample();
        stage.repo.push(&stage.mira, "main", &crate::bot::files(&setup), "Initial commit").await;
        stage.bot.start().await;
        stage.label().await;
        stage.ready(stage.issue).await;
        assert!(stage.bot.deliveries().await > 0, "the webhook delivered nothing");
    })
    .await;
}

async fn loop_continues_in_a_repository_made_private(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.repo.set(&stage.mira, "private", false).await;
        stage.label().await;
        stage.agent_waits().await;
        stage.repo.set(&stage.mira, "private", true).await;
        stage.answer_about_the_repository_is_old().await;
        stage.agent_goes_on();
        stage.ready(stage.issue).await;
        assert_eq!(stage.repo.pulls(&stage.mira).await.len(), 1);
    })
    .await;
}

/// Events that the version does not deliver are not a reason to create the webhook again.
async fn valid_webhook_is_kept(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().without_hook().stopped(), async |stage| {
        assert!(stage.bot.init_webhook(&stage.repo.name()).await);
        let made = stage.repo.hooks(&stage.mira).await;
        let (ok, said) = stage.bot.check_webhooks().await;
        assert!(ok, "{said}");
        let is_old = on == On::OldGitea;
        assert!(!is_old || said.contains("the service checks CI once a minute"), "{said}");
        assert!(stage.bot.init_webhook(&stage.repo.name()).await);
        assert_eq!(stage.repo.hooks(&stage.mira).await, made);
    })
    .await;
}
