//! Pull requests: reviews, CI, conflicts, merge.

use ralph_bot::domain::loops::LoopState;

use crate::bot::eventually;
use crate::repo::ReviewEvent;
use crate::server::On;
use crate::stage::{RUN, Stage, StoryPlan, WILLING, on_every_gitea, on_every_server, on_old_gitea, story};

on_every_server!(reply_to_a_remark_starts_an_iteration, reopened_pull_request_is_left_alone_until_a_new_label);

on_every_gitea!(
    review_with_remarks_starts_an_iteration,
    review_that_was_drafted_earlier_keeps_its_remarks,
    failed_ci_starts_an_iteration,
    failed_ci_without_a_change_is_not_done_until_a_rerun_passes,
    ci_failure_shared_with_the_base_starts_no_iteration,
    plain_comment_is_answered_with_the_ways_to_reach_the_agent,
    passing_ci_starts_no_iteration,
    conflict_with_the_base_is_solved,
    unrelated_push_to_the_base_starts_no_iteration,
    merge_ends_the_loop,
    closed_pull_request_ends_the_loop,
    pull_request_to_a_protected_base_is_merged_once_approved,
    closed_issue_ends_the_loop_and_a_new_label_starts_another,
    deleted_pull_request_ends_the_loop,
);

on_old_gitea!(failed_ci_starts_an_iteration);

async fn review_with_remarks_starts_an_iteration(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WILLING), async |stage| {
        let first = stage.run().await;
        let pull = stage.pull_of(&first);
        let remarks = [("answer.txt", 1, "This line needs its reason.")];
        stage.repo.review(&stage.mira, pull, ReviewEvent::RequestChanges, "Please say why.", &remarks).await;
        let second = stage.ready_after(stage.issue, 2).await;
        assert_eq!((second.spent.iterations, stage.pull_of(&second)), (2, pull));
        let prompts = stage.bot.prompts(&second);
        for wanted in ["Please say why.", "This line needs its reason."] {
            assert!(prompts.contains(wanted), "{wanted} is not in a prompt: {prompts}");
        }
        stage.repo.review(&stage.mira, pull, ReviewEvent::Approve, "Good.", &[]).await;
        stage.quiet().await;
        assert_eq!(stage.bot.of_issue(stage.issue).await.expect("the loop").spent.iterations, 2);
    })
    .await;
}

async fn review_that_was_drafted_earlier_keeps_its_remarks(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WILLING), async |stage| {
        let first = stage.run().await;
        let pull = stage.pull_of(&first);
        let nora = stage.collaborator("nora", crate::server::Level::Write).await;
        let drafted = stage.repo.draft_review(&nora, pull, &[("answer.txt", 1, "Drafted before.")]).await;
        stage.repo.review(&stage.mira, pull, ReviewEvent::RequestChanges, "Do it again.", &[]).await;
        let second = stage.ready_after(stage.issue, 2).await;
        assert!(!stage.bot.prompts(&second).contains("Drafted before."), "a draft was read");
        stage.repo.submit_review(&nora, pull, drafted, ReviewEvent::Comment, "See my remark.").await;
        let third = stage.ready_after(stage.issue, 3).await;
        let prompts = stage.bot.prompts(&third);
        assert!(prompts.contains("Drafted before.") && prompts.contains("See my remark."), "{prompts}");
    })
    .await;
}

async fn reply_to_a_remark_starts_an_iteration(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WILLING), async |stage| {
        let first = stage.run().await;
        let pull = stage.pull_of(&first);
        let remarks = [("answer.txt", 1, "Why is this so?")];
        let review = stage.repo.review(&stage.mira, pull, ReviewEvent::Comment, "A question.", &remarks).await;
        stage.ready_after(stage.issue, 2).await;
        stage.repo.reply(&stage.mira, pull, review, "Still not clear to me.").await;
        let third = stage.ready_after(stage.issue, 3).await;
        assert!(stage.bot.prompts(&third).contains("Still not clear to me."));
    })
    .await;
}

async fn head(stage: &Stage) -> String {
    let found = stage.bot.of_issue(stage.issue).await.expect("the loop");
    stage.repo.pull(&stage.mira, stage.pull_of(&found)).await.head_sha
}

async fn failed_ci_starts_an_iteration(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WILLING), async |stage| {
        stage.run().await;
        let sha = head(stage).await;
        stage.repo.status(&stage.mira, &sha, "failure", "build", "the linker ran out of memory").await;
        let second = stage.bot.until(stage.issue, "an iteration", |found| found.spent.iterations == 2).await;
        let done = eventually("a new commit", async || {
            let now = head(stage).await;
            (now != sha).then_some(now)
        })
        .await;
        stage.repo.status(&stage.mira, &done, "success", "build", "").await;
        stage.ready_after(stage.issue, 2).await;
        let prompts = stage.bot.prompts(&second);
        assert!(prompts.contains("the linker ran out of memory") && prompts.contains("build"), "{prompts}");
    })
    .await;
}

async fn failed_ci_without_a_change_is_not_done_until_a_rerun_passes(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let first = stage.run().await;
        let pull = stage.pull_of(&first);
        let sha = head(stage).await;
        stage.repo.status(&stage.mira, &sha, "failure", "build", "the linker ran out of memory").await;
        // The agent changes nothing any more.
        let paused = stage.bot.until_state(stage.issue, LoopState::Paused).await;
        assert!(paused.why.contains("CI") || paused.why.contains("build"), "{}", paused.why);
        stage.shows(stage.issue, "paused").await;
        eventually("a draft again", async || stage.repo.pull(&stage.mira, pull).await.draft.then_some(())).await;
        stage.repo.status(&stage.mira, &sha, "success", "build", "").await;
        let done = stage.ready(stage.issue).await;
        assert_eq!((done.spent.iterations, head(stage).await), (paused.spent.iterations, sha), "{}", done.why);
        stage.shows(stage.issue, "review").await;
    })
    .await;
}

async fn ci_failure_shared_with_the_base_starts_no_iteration(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WILLING), async |stage| {
        let base = stage.repo.branch(&stage.mira, "main").await.expect("a base");
        stage.repo.status(&stage.mira, &base, "failure", "build", "the linker ran out of memory").await;
        let pull = stage.pull_of(&stage.run().await);
        let sha = head(stage).await;
        stage.repo.status(&stage.mira, &sha, "failure", "build", "the linker ran out of memory").await;
        stage.says(stage.issue, "CI fails on the base, too: `build`").await;
        stage.quiet().await;
        let now = stage.bot.of_issue(stage.issue).await.expect("the loop");
        assert_eq!((now.state, now.spent.iterations), (LoopState::Review, 1), "{}", now.why);
        assert!(!stage.repo.pull(&stage.mira, pull).await.draft);
    })
    .await;
}

async fn plain_comment_is_answered_with_the_ways_to_reach_the_agent(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WILLING), async |stage| {
        let pull = stage.pull_of(&stage.run().await);
        let said = async || {
            let comments = stage.repo.comments(&stage.mira, pull).await;
            comments.iter().filter(|comment| comment.login == stage.robot.login).count()
        };
        let before = said().await;
        stage.repo.comment(&stage.mira, pull, "Please rename it.").await;
        stage.says(pull, "`/ralph guide TEXT`").await;
        stage.repo.comment(&stage.mira, pull, "And this.").await;
        stage.quiet().await;
        assert_eq!(said().await, before + 1, "once for each pull request");
        assert_eq!(stage.bot.of_issue(stage.issue).await.expect("the loop").spent.iterations, 1);
    })
    .await;
}

async fn passing_ci_starts_no_iteration(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WILLING), async |stage| {
        stage.run().await;
        let sha = head(stage).await;
        for state in ["pending", "success"] {
            stage.repo.status(&stage.mira, &sha, state, "build", "").await;
            stage.quiet().await;
            let now = stage.bot.of_issue(stage.issue).await.expect("the loop");
            assert_eq!((now.state, now.spent.iterations), (LoopState::Review, 1), "{state}: {}", now.why);
        }
    })
    .await;
}

async fn conflict_with_the_base_is_solved(on: On, name: &'static str) {
    let agent = "grep -rl '<<<<<<<' . --include=answer.txt >seen.txt\necho 42 >answer.txt\n";
    story(on, name, StoryPlan::new().agent(agent), async |stage| {
        let first = stage.run().await;
        stage.repo.push(&stage.mira, "main", &[("answer.txt", "40\n")], "Another answer").await;
        let second = stage.ready_after(stage.issue, 2).await;
        assert_eq!(second.branch.name, first.branch.name);
        let file = async |path| stage.repo.file(&stage.mira, &second.branch.name, path).await;
        assert_eq!(file("answer.txt").await.as_deref(), Some("42\n"));
        assert_eq!(file("seen.txt").await.as_deref(), Some("./answer.txt\n"), "the agent saw the conflict");
        stage.repo.merge(&stage.mira, stage.pull_of(&second)).await;
        stage.bot.until_state(stage.issue, LoopState::Merged).await;
    })
    .await;
}

async fn unrelated_push_to_the_base_starts_no_iteration(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WILLING), async |stage| {
        let first = stage.run().await;
        let sha = head(stage).await;
        for number in 0..3 {
            let file = format!("other{number}.txt");
            stage.repo.push(&stage.mira, "main", &[(&file, "new\n")], "Other work").await;
            stage.quiet().await;
        }
        let now = stage.bot.of_issue(stage.issue).await.expect("the loop");
        assert_eq!((now.state, now.spent.iterations), (LoopState::Review, 1), "{}", now.why);
        assert_eq!((head(stage).await, now.pull.opened), (sha, first.pull.opened));
    })
    .await;
}

async fn merge_ends_the_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let done = stage.run().await;
        stage.repo.merge(&stage.mira, stage.pull_of(&done)).await;
        assert!(stage.repo.pull(&stage.mira, stage.pull_of(&done)).await.merged);
        stage.bot.until_state(stage.issue, LoopState::Merged).await;
        stage.shows(stage.issue, "merged").await;
        stage.bot.until_idle().await;
        assert!(!stage.repo.labels(&stage.mira, stage.issue).await.contains(&RUN.to_owned()));
        assert_eq!(stage.repo.file(&stage.mira, "main", "answer.txt").await.as_deref(), Some("42\n"));
        assert!(!stage.repo.is_open(&stage.mira, stage.issue).await, "the pull request closes its issue");
    })
    .await;
}

/// No delivery reports it: the service checks the loop once a minute.
async fn deleted_pull_request_ends_the_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let done = stage.run().await;
        stage.repo.delete_issue(&stage.mira, stage.pull_of(&done)).await;
        let ended = stage.bot.until_state(stage.issue, LoopState::Closed).await;
        assert_eq!(ended.why, "the pull request was deleted");
        stage.shows(stage.issue, "closed").await;
        // The way back is another loop.
        stage.bot.until_idle().await;
        if stage.repo.labels(&stage.mira, stage.issue).await.contains(&RUN.to_owned()) {
            stage.repo.remove_label(&stage.mira, stage.issue, RUN).await;
        }
        stage.quiet().await;
        assert_ne!(stage.run().await.id, done.id);
    })
    .await;
}

async fn closed_pull_request_ends_the_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let done = stage.run().await;
        stage.repo.set_open(&stage.mira, stage.pull_of(&done), false).await;
        stage.bot.until_state(stage.issue, LoopState::Closed).await;
        stage.shows(stage.issue, "closed").await;
    })
    .await;
}

async fn reopened_pull_request_is_left_alone_until_a_new_label(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let first = stage.run().await;
        let pull = stage.pull_of(&first);
        stage.repo.set_open(&stage.mira, pull, false).await;
        stage.bot.until_state(stage.issue, LoopState::Closed).await;
        stage.bot.until_idle().await;
        stage.repo.set_open(&stage.mira, pull, true).await;
        stage.quiet().await;
        assert_eq!(stage.bot.of_issue(stage.issue).await.expect("the loop").state, LoopState::Closed);
        assert!(stage.repo.pull(&stage.mira, pull).await.open, "people reopened it");
        if stage.repo.labels(&stage.mira, stage.issue).await.contains(&RUN.to_owned()) {
            stage.repo.remove_label(&stage.mira, stage.issue, RUN).await;
            stage.quiet().await;
        }
        let second = stage.run().await;
        assert_ne!((&second.id, stage.pull_of(&second)), (&first.id, pull));
        assert_eq!(stage.repo.pull(&stage.mira, pull).await.head_sha, first.branch.pushed.expect("pushed").as_str());
    })
    .await;
}

async fn pull_request_to_a_protected_base_is_merged_once_approved(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        stage.repo.protect(&stage.mira, "main").await;
        let nora = stage.collaborator("nora", crate::server::Level::Write).await;
        let base = stage.repo.branch(&stage.mira, "main").await;
        let pull = stage.pull_of(&stage.run().await);
        assert_eq!(stage.repo.branch(&stage.mira, "main").await, base, "only people merge");
        stage.repo.review(&nora, pull, ReviewEvent::Approve, "Good.", &[]).await;
        stage.repo.merge(&stage.mira, pull).await;
        stage.bot.until_state(stage.issue, LoopState::Merged).await;
        stage.shows(stage.issue, "merged").await;
    })
    .await;
}

async fn closed_issue_ends_the_loop_and_a_new_label_starts_another(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let first = stage.run().await;
        stage.repo.set_open(&stage.mira, stage.issue, false).await;
        stage.bot.until_state(stage.issue, LoopState::Closed).await;
        stage.shows(stage.issue, "closed").await;
        stage.bot.until_idle().await;
        stage.repo.set_open(&stage.mira, stage.issue, true).await;
        if stage.repo.labels(&stage.mira, stage.issue).await.contains(&RUN.to_owned()) {
            stage.repo.remove_label(&stage.mira, stage.issue, RUN).await;
        }
        stage.quiet().await;
        let second = stage.run().await;
        assert_ne!((second.id, second.branch.name), (first.id, first.branch.name));
    })
    .await;
}
