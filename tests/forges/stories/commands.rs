//! Commands of people who may give them, and how they are answered.

use ralph_bot::domain::loops::LoopState;

use crate::bot::eventually;
use crate::server::On;
use crate::stage::{StoryPlan, WAITING, WILLING, on_every_gitea, on_every_server, story};

on_every_server!(
    command_starts_a_loop,
    abort_ends_the_loop,
    escalation_is_answered_in_its_issue,
    unknown_command_is_refused,
);

on_every_gitea!(
    pause_and_resume_with_guidance,
    guidance_reaches_the_next_iteration,
    retry_repeats_the_iteration,
    edited_comment_is_not_a_command,
);

async fn command_starts_a_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let comment = stage.comment("/ralph run --max-iterations 3").await;
        stage.reacted(comment, "rocket").await;
        let done = stage.ready(stage.issue).await;
        assert_eq!(
            (done.limits.iterations.count(), done.people.requested_by.login),
            (Some(3), stage.mira.login.clone())
        );
        stage.shows(stage.issue, "review").await;
    })
    .await;
}

async fn pause_and_resume_with_guidance(on: On, name: &'static str) {
    // The second iteration passes.
    let agent = format!("{WAITING}[ \"$RALPH_ITERATION\" -ge 2 ] || echo 40 >answer.txt\n");
    story(on, name, StoryPlan::new().agent(&agent), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        let pause = stage.comment("/ralph pause lunch").await;
        stage.reacted(pause, "rocket").await;
        stage.agent_goes_on();
        let paused = stage.bot.until_state(stage.issue, LoopState::Paused).await;
        assert!(paused.why.contains("lunch"), "{}", paused.why);
        stage.shows(stage.issue, "paused").await;
        let resume = stage.comment("/ralph resume Mind the units.").await;
        let done = stage.ready(stage.issue).await;
        stage.reacted(resume, "rocket").await;
        assert!(stage.bot.prompts(&done).contains("Mind the units."));
    })
    .await;
}

async fn guidance_reaches_the_next_iteration(on: On, name: &'static str) {
    let agent = format!("{WAITING}[ \"$RALPH_ITERATION\" -ge 2 ] || echo 40 >answer.txt\n");
    story(on, name, StoryPlan::new().agent(&agent), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        let guide = stage.comment("/ralph guide The file has one line only.").await;
        stage.reacted(guide, "rocket").await;
        stage.agent_goes_on();
        let done = stage.ready(stage.issue).await;
        assert_eq!(done.spent.iterations, 2);
        assert!(stage.bot.prompts(&done).contains("The file has one line only."));
    })
    .await;
}

async fn abort_ends_the_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        let abort = stage.comment("/ralph abort not like this").await;
        stage.bot.until_state(stage.issue, LoopState::Aborted).await;
        stage.reacted(abort, "rocket").await;
        stage.shows(stage.issue, "aborted").await;
        assert!(stage.repo.pulls(&stage.mira).await.is_empty());
    })
    .await;
}

async fn retry_repeats_the_iteration(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WILLING), async |stage| {
        let first = stage.run().await;
        let before = stage.repo.branch(&stage.mira, &first.branch.name).await.expect("a branch");
        let retry = stage.comment("/ralph retry").await;
        stage.reacted(retry, "rocket").await;
        let again = stage.bot.until(stage.issue, "the retry", |found| found.iterations.len() == 2).await;
        assert!(again.iterations[0].discarded);
        let again = stage.ready(stage.issue).await;
        assert_eq!(again.pull.opened, first.pull.opened);
        let after = stage.repo.branch(&stage.mira, &again.branch.name).await.expect("a branch");
        assert_ne!(before, after);
        assert_eq!(stage.repo.file(&stage.mira, &again.branch.name, "notes.txt").await.as_deref(), Some("round 2\n"));
    })
    .await;
}

async fn escalation_is_answered_in_its_issue(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        stage.comment("/ralph run --base nowhere").await;
        let failed = stage.bot.until_state(stage.issue, LoopState::Failed).await;
        assert!(failed.why.contains("nowhere"), "{}", failed.why);
        let escalation = eventually("an escalation", async || {
            stage.repo.issues_with(&stage.mira, "ralph:escalation").await.first().copied()
        })
        .await;
        let answer = stage.repo.comment(&stage.mira, escalation, "/ralph resume --base main").await;
        stage.reacted(answer, "rocket").await;
        stage.ready(stage.issue).await;
        eventually("an escalation that is closed", async || {
            (!stage.repo.is_open(&stage.mira, escalation).await).then_some(())
        })
        .await;
    })
    .await;
}

async fn edited_comment_is_not_a_command(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let comment = stage.comment("I think that this can be done.").await;
        stage.quiet().await;
        stage.repo.edit_comment(&stage.mira, comment, "/ralph run").await;
        stage.nothing_starts().await;
    })
    .await;
}

async fn unknown_command_is_refused(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let comment = stage.comment("/ralph rum").await;
        stage.reacted(comment, "confused").await;
        stage.says(stage.issue, "rum").await;
        stage.nothing_starts().await;
    })
    .await;
}
