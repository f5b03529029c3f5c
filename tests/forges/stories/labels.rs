//! Labels: how they are set and removed, by whom, and how many there are.

use ralph_bot::domain::loops::LoopState;

use crate::bot::eventually;
use crate::server::{Level, On};
use crate::stage::{RUN, StoryPlan, WAITING, on_every_gitea, on_every_server, on_old_gitea, story};

on_every_server!(
    label_starts_a_loop,
    label_of_a_writer_starts_a_loop,
    label_set_by_put_starts_a_loop,
    label_set_with_the_issue_starts_a_loop,
    labels_cleared_pause,
    labels_replaced_without_ours_pause,
    labels_of_four_issues_at_once_are_made_once,
);

on_every_gitea!(label_in_another_case_starts_a_loop, label_removed_pauses_and_set_again_resumes);

on_old_gitea!(label_of_a_writer_starts_a_loop);

async fn label_starts_a_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let done = stage.run().await;
        let pull = stage.repo.pull(&stage.mira, stage.pull_of(&done)).await;
        assert_eq!(
            (pull.head_sha.as_str(), pull.head),
            (done.branch.pushed.expect("pushed").as_str(), done.branch.name.clone())
        );
        assert_eq!(pull.author, stage.robot.login);
        assert!(pull.body.contains(&format!("#{}", stage.issue)), "{}", pull.body);
        assert_eq!(stage.repo.file(&stage.mira, &done.branch.name, "answer.txt").await.as_deref(), Some("42\n"));
        stage.shows(stage.issue, "review").await;
    })
    .await;
}

async fn label_of_a_writer_starts_a_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let nora = stage.collaborator("nora", Level::Write).await;
        let reader = stage.collaborator("reader", Level::Read).await;
        let refused = stage.repo.add_labels(&reader, stage.issue, &[RUN]).await;
        assert!(refused.status >= 400 || stage.repo.labels(&stage.mira, stage.issue).await.is_empty(), "{refused:?}");
        stage.nothing_starts().await;
        let answer = stage.repo.add_labels(&nora, stage.issue, &[RUN]).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let done = stage.ready(stage.issue).await;
        assert_eq!(done.people.requested_by.login, nora.login);
    })
    .await;
}

async fn label_set_by_put_starts_a_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        stage.repo.new_label(&stage.mira, "bug").await;
        stage.repo.replace_labels(&stage.mira, stage.issue, &["bug", RUN]).await;
        stage.ready(stage.issue).await;
        assert!(stage.repo.labels(&stage.mira, stage.issue).await.contains(&"bug".to_owned()));
    })
    .await;
}

async fn label_set_with_the_issue_starts_a_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let issue = stage.repo.open_labeled(&stage.mira, "Another answer", "It should be 42.", RUN).await;
        stage.ready(issue).await;
        assert_eq!(stage.bot.loops().await.len(), 1);
    })
    .await;
}

async fn label_in_another_case_starts_a_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().without_label(), async |stage| {
        stage.repo.new_label(&stage.mira, "Ralph:Run").await;
        let answer = stage.repo.add_labels(&stage.mira, stage.issue, &["Ralph:Run"]).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        stage.ready(stage.issue).await;
        let ours = stage.repo.all_labels(&stage.mira).await;
        assert_eq!(ours.iter().filter(|label| label.eq_ignore_ascii_case(RUN)).count(), 1, "{ours:?}");
    })
    .await;
}

async fn label_removed_pauses_and_set_again_resumes(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        stage.repo.remove_label(&stage.mira, stage.issue, RUN).await;
        let paused = stage.bot.until_state(stage.issue, LoopState::Paused).await;
        assert!(paused.why.contains("label"), "{}", paused.why);
        stage.shows(stage.issue, "paused").await;
        stage.agent_goes_on();
        stage.run().await;
        assert_eq!(stage.bot.loops().await.len(), 1);
    })
    .await;
}

async fn labels_cleared_pause(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.label().await;
        stage.agent_waits().await;
        stage.repo.clear_labels(&stage.mira, stage.issue).await;
        let before = std::time::Instant::now();
        let paused = stage.bot.until_state(stage.issue, LoopState::Paused).await;
        assert!(paused.why.contains("label"), "{}", paused.why);
        assert!(before.elapsed().as_secs() < 15, "paused after {:?}", before.elapsed());
    })
    .await;
}

async fn labels_replaced_without_ours_pause(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        stage.repo.new_label(&stage.mira, "bug").await;
        stage.label().await;
        stage.agent_waits().await;
        stage.repo.replace_labels(&stage.mira, stage.issue, &["bug"]).await;
        let paused = stage.bot.until_state(stage.issue, LoopState::Paused).await;
        assert!(paused.why.contains("label"), "{}", paused.why);
    })
    .await;
}

async fn labels_of_four_issues_at_once_are_made_once(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let mut issues = vec![stage.issue];
        for number in 1..4 {
            let body = "It should be 42.";
            issues.push(stage.repo.open_issue(&stage.mira, &format!("Wrong answer {number}"), body).await);
        }
        let set = issues.iter().map(|issue| stage.repo.add_labels(&stage.mira, *issue, &[RUN]));
        for answer in futures::future::join_all(set).await {
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
        for issue in issues {
            stage.ready(issue).await;
        }
        // Duplicates that were made at once are merged.
        eventually("labels of different names", async || {
            let mut labels = stage.repo.all_labels(&stage.mira).await;
            let count = labels.len();
            labels.sort();
            labels.dedup();
            (labels.len() == count).then_some(())
        })
        .await;
    })
    .await;
}
