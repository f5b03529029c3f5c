//! Appearance of a loop on the forge: statuses, threads, labels of one scope, reactions, reviewers, merges.

use ralph_bot::domain::loops::{IterationKind, LoopState};
use ralph_bot::forge::VERIFIED_STATUS;

use crate::bot::eventually;
use crate::repo::ReviewEvent;
use crate::server::{Level, On};
use crate::stage::{Stage, StoryPlan, WAITING, WILLING, on_every_gitea, on_every_server, on_old_gitea, story};

on_every_server!(
    remark_is_acknowledged_and_answered_in_its_thread,
    states_are_labels_of_one_scope,
    team_is_asked_for_a_review,
    files_are_linked_at_the_commit,
);

on_every_gitea!(
    verified_commit_has_a_status,
    commit_of_a_stopped_loop_has_a_failed_status,
    suggested_change_is_applied,
    merge_when_ready_merges_after_ci,
    merge_when_ready_is_withdrawn_by_requested_changes,
);

on_old_gitea!(team_is_asked_for_a_review);

/// Waits until the status of the bot on a commit has a state.
async fn verified(stage: &Stage, sha: &str, state: &str) {
    eventually(&format!("the status {state}"), async || {
        let found = stage.repo.status_of(&stage.mira, sha, VERIFIED_STATUS).await;
        (found.as_deref() == Some(state)).then_some(())
    })
    .await;
}

async fn verified_commit_has_a_status(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let done = stage.run().await;
        verified(stage, done.branch.pushed.expect("pushed").as_str(), "success").await;
    })
    .await;
}

async fn commit_of_a_stopped_loop_has_a_failed_status(on: On, name: &'static str) {
    let plan = StoryPlan::new().agent("echo 43 >answer.txt\n");
    story(on, name, plan, async |stage| {
        stage.comment("/ralph run --max-iterations 1").await;
        let stopped = stage.bot.until_state(stage.issue, LoopState::LimitReached).await;
        verified(stage, stopped.branch.pushed.expect("pushed").as_str(), "failure").await;
    })
    .await;
}

async fn remark_is_acknowledged_and_answered_in_its_thread(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WILLING), async |stage| {
        let first = stage.run().await;
        let pull = stage.pull_of(&first);
        let remarks = [("answer.txt", 1, "Why is this so?")];
        stage.repo.review(&stage.mira, pull, ReviewEvent::RequestChanges, "A question.", &remarks).await;
        let second = stage.ready_after(stage.issue, 2).await;
        let commit = second.branch.head.expect("a commit").to_string();
        let (repo, mira, robot) = (&stage.repo, &stage.mira, &stage.robot);
        let answer = eventually("an answer in the thread", async || {
            let all = repo.remarks(mira, pull).await;
            all.into_iter().find(|one| one["user"]["login"] == robot.login.as_str())
        })
        .await;
        let remark = repo.remarks(mira, pull).await.into_iter().find(|one| one["body"] == "Why is this so?");
        let remark = remark.expect("the remark");
        assert!(answer["body"].as_str().is_some_and(|body| body.contains(&commit)), "{answer}");
        if stage.server.is_github() {
            assert_eq!(answer["in_reply_to_id"], remark["id"]);
        } else {
            // Comments on one line are one conversation.
            assert_eq!((&answer["path"], &answer["position"]), (&remark["path"], &remark["position"]));
        }
        let seen = repo.reactions_to_remark(mira, remark["id"].as_i64().expect("an id"), &robot.login).await;
        assert!(seen.contains(&"eyes".to_owned()), "{seen:?}");
    })
    .await;
}

async fn suggested_change_is_applied(on: On, name: &'static str) {
    let agent = "echo 42 >answer.txt\ntest -e words.txt || printf 'one\\ntwo\\nthree\\n' >words.txt\n";
    story(on, name, StoryPlan::new().agent(agent), async |stage| {
        let first = stage.run().await;
        let pull = stage.pull_of(&first);
        let remarks = [("words.txt", 2, "Shorter:\n\n```suggestion\n2\n```")];
        stage.repo.review(&stage.mira, pull, ReviewEvent::Comment, "See below.", &remarks).await;
        let second = stage.ready_after(stage.issue, 2).await;
        assert!(second.iterations.iter().any(|one| one.kind == IterationKind::Suggestions), "{}", second.why);
        let text = stage.repo.file(&stage.mira, &second.branch.name, "words.txt").await;
        assert_eq!(text.as_deref(), Some("one\n2\nthree\n"));
    })
    .await;
}

async fn states_are_labels_of_one_scope(on: On, name: &'static str) {
    let plan = StoryPlan::new().agent(WAITING).config("label_prefix: ralph/");
    story(on, name, plan, async |stage| {
        let (repo, mira, issue) = (&stage.repo, &stage.mira, stage.issue);
        repo.new_label(mira, "ralph/run").await;
        let states = async |wanted: &str| {
            eventually(&format!("the label {wanted}"), async || {
                let mut labels = repo.labels(mira, issue).await;
                labels.sort();
                (labels == ["ralph/run".to_owned(), wanted.to_owned()] || labels == [wanted, "ralph/run"]).then_some(())
            })
            .await;
        };
        let answer = repo.add_labels(mira, issue, &["ralph/run"]).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        stage.agent_waits().await;
        states("ralph/running").await;
        stage.agent_goes_on();
        stage.ready(issue).await;
        states("ralph/review").await;
    })
    .await;
}

async fn team_is_asked_for_a_review(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let lead = stage.person("lead").await;
        let team = stage.server.team(&stage.mira, &stage.org, "leads", Level::Write).await;
        stage.server.team_repository(&stage.mira, &team, &stage.repo.name(), Level::Write).await;
        for login in [&lead.login, &stage.robot.login] {
            stage.server.join(&stage.mira, &team, login).await;
        }
        let file = format!("checks:\n  - name: answer\n    run: sh check.sh\nreviewers: [{}/leads]\n", stage.org);
        stage.repo.push(&stage.mira, "main", &[(".ralph.yml", &file)], "Ask the leads").await;
        let done = stage.run().await;
        let pull = stage.pull_of(&done);
        eventually("a request to the team", async || {
            let asked = stage.repo.requested_teams(&stage.mira, pull).await;
            (asked == ["leads"]).then_some(())
        })
        .await;
    })
    .await;
}

async fn merge_when_ready_merges_after_ci(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let done = stage.run().await;
        let sha = done.branch.pushed.clone().expect("pushed").to_string();
        // The check ran on the base, too, so that it is the repository's CI.
        let base = done.branch.base.clone().expect("a base").to_string();
        stage.repo.status(&stage.mira, &base, "success", "build", "").await;
        stage.repo.status(&stage.mira, &sha, "pending", "build", "").await;
        let command = stage.comment("/ralph merge-when-ready").await;
        stage.reacted(command, "rocket").await;
        stage.quiet().await;
        assert!(stage.repo.pull(&stage.mira, stage.pull_of(&done)).await.open, "CI is pending");
        stage.repo.status(&stage.mira, &sha, "success", "build", "").await;
        stage.bot.until_state(stage.issue, LoopState::Merged).await;
        let text = stage.repo.file(&stage.mira, "main", "answer.txt").await;
        assert_eq!(text.as_deref(), Some("42\n"));
    })
    .await;
}

async fn merge_when_ready_is_withdrawn_by_requested_changes(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WILLING), async |stage| {
        let first = stage.run().await;
        let sha = first.branch.pushed.clone().expect("pushed").to_string();
        stage.repo.status(&stage.mira, &sha, "pending", "build", "").await;
        let command = stage.comment("/ralph merge-when-ready").await;
        stage.reacted(command, "rocket").await;
        let pull = stage.pull_of(&first);
        stage.repo.review(&stage.mira, pull, ReviewEvent::RequestChanges, "Please say why.", &[]).await;
        stage.says(stage.issue, "is withdrawn").await;
        let second = stage.ready_after(stage.issue, 2).await;
        let sha = second.branch.pushed.clone().expect("pushed").to_string();
        stage.repo.status(&stage.mira, &sha, "success", "build", "").await;
        stage.quiet().await;
        assert!(stage.repo.pull(&stage.mira, pull).await.open, "nobody asked to merge this commit");
    })
    .await;
}

async fn files_are_linked_at_the_commit(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let done = stage.run().await;
        let commit = done.branch.head.clone().expect("a commit");
        let folder = if stage.server.is_github() { "blob" } else { "src/commit" };
        stage.says(stage.issue, &format!("/{}/{folder}/{commit}/answer.txt)", stage.repo.name())).await;
    })
    .await;
}
