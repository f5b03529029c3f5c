//! People who may start loops and command them, and people who may not: collaborators, teams, readers, outsiders.

use ralph_bot::domain::loops::LoopState;

use crate::server::{Level, On};
use crate::stage::{RUN, StoryPlan, WAITING, on_every_server, story};

on_every_server!(
    command_of_an_outsider_is_refused,
    command_of_a_reader_is_refused,
    member_of_a_team_that_writes_may_start,
    member_of_a_team_that_reads_may_not_start,
    permission_that_was_withdrawn_stops_the_loop,
);

async fn command_of_an_outsider_is_refused(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let otto = stage.person("otto").await;
        stage.repo.set(&stage.mira, "private", false).await;
        let command = stage.repo.comment(&otto, stage.issue, "/ralph run").await;
        stage.reacted(command, "-1").await;
        stage.nothing_starts().await;
    })
    .await;
}

async fn command_of_a_reader_is_refused(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        let reader = stage.collaborator("reader", Level::Read).await;
        let run = stage.repo.comment(&reader, stage.issue, "/ralph run").await;
        stage.reacted(run, "-1").await;
        stage.nothing_starts().await;
        stage.label().await;
        stage.agent_waits().await;
        let abort = stage.repo.comment(&reader, stage.issue, "/ralph abort").await;
        stage.reacted(abort, "-1").await;
        stage.agent_goes_on();
        stage.ready(stage.issue).await;
    })
    .await;
}

async fn member_of_a_team_that_writes_may_start(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let dev = stage.person("dev").await;
        let team = stage.server.team(&stage.mira, &stage.org, "devs", Level::Write).await;
        stage.server.team_repository(&stage.mira, &team, &stage.repo.name(), Level::Write).await;
        // Gitea tells who is in a team to its members and to owners only.
        for login in [&dev.login, &stage.robot.login] {
            stage.server.join(&stage.mira, &team, login).await;
        }
        let answer = stage.repo.add_labels(&dev, stage.issue, &[RUN]).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let done = stage.ready(stage.issue).await;
        assert_eq!(done.requested_by.login, dev.login);
    })
    .await;
}

async fn member_of_a_team_that_reads_may_not_start(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let reader = stage.person("reader").await;
        let team = stage.server.team(&stage.mira, &stage.org, "readers", Level::Read).await;
        stage.server.team_repository(&stage.mira, &team, &stage.repo.name(), Level::Read).await;
        for login in [&reader.login, &stage.robot.login] {
            stage.server.join(&stage.mira, &team, login).await;
        }
        let command = stage.repo.comment(&reader, stage.issue, "/ralph run").await;
        stage.reacted(command, "-1").await;
        stage.nothing_starts().await;
    })
    .await;
}

async fn permission_that_was_withdrawn_stops_the_loop(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().agent(WAITING), async |stage| {
        let nora = stage.collaborator("nora", Level::Write).await;
        stage.repo.comment(&nora, stage.issue, "/ralph run").await;
        stage.agent_waits().await;
        stage.repo.remove_collaborator(&stage.mira, &nora.login).await;
        stage.agent_goes_on();
        let paused = stage.bot.until_state(stage.issue, LoopState::Paused).await;
        assert!(paused.why.contains(&nora.login), "{}", paused.why);
        assert_eq!(stage.repo.branch(&stage.mira, &paused.branch).await, None, "nothing was pushed");
        stage.comment("/ralph resume").await;
        stage.ready(stage.issue).await;
    })
    .await;
}
