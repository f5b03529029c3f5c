//! People who may start loops and command them, and people who may not: collaborators, teams, readers, outsiders.

use ralph_bot::domain::loops::LoopState;

use crate::server::{Level, On, TokenScopes};
use crate::stage::{RUN, StoryPlan, WAITING, on_every_gitea, on_every_server, on_old_gitea, story};

on_every_server!(
    command_of_a_reader_is_refused,
    member_of_a_team_that_writes_may_start,
    member_of_a_team_that_reads_may_not_start,
    permission_that_was_withdrawn_stops_the_loop,
    writer_in_a_repository_of_a_person_may_start,
);

on_every_gitea!(
    command_of_an_outsider_is_refused,
    member_of_a_hidden_team_gets_an_explanation,
    check_finds_a_token_that_may_only_read,
);

on_old_gitea!(
    command_of_a_reader_is_refused,
    member_of_a_team_that_writes_may_start,
    member_of_a_team_that_reads_may_not_start,
    permission_that_was_withdrawn_stops_the_loop,
    writer_in_a_repository_of_a_person_may_start,
    member_of_a_hidden_team_gets_an_explanation,
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
        // Gitea shows the members of a team only to its members and to owners.
        for login in [&dev.login, &stage.robot.login] {
            stage.server.join(&stage.mira, &team, login).await;
        }
        let answer = stage.repo.add_labels(&dev, stage.issue, &[RUN]).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let done = stage.ready(stage.issue).await;
        assert_eq!(done.people.requested_by.login, dev.login);
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
        assert_eq!(stage.repo.branch(&stage.mira, &paused.branch.name).await, None, "nothing was pushed");
        stage.comment("/ralph resume").await;
        stage.ready(stage.issue).await;
    })
    .await;
}

/// It has no teams, and its owner has no labels.
async fn writer_in_a_repository_of_a_person_may_start(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().personal(), async |stage| {
        let otto = stage.person("otto").await;
        let reader = stage.collaborator("reader", Level::Read).await;
        let nora = stage.collaborator("nora", Level::Write).await;
        stage.repo.set(&stage.mira, "private", false).await;
        for account in [&otto, &reader] {
            let command = stage.repo.comment(account, stage.issue, "/ralph run").await;
            stage.reacted(command, "-1").await;
        }
        stage.nothing_starts().await;
        let answer = stage.repo.add_labels(&nora, stage.issue, &[RUN]).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let done = stage.ready(stage.issue).await;
        assert_eq!(done.people.requested_by.login, nora.login);
        stage.shows(stage.issue, "review").await;
    })
    .await;
}

/// "May not" and "unknown" are different answers.
async fn member_of_a_hidden_team_gets_an_explanation(on: On, name: &'static str) {
    story(on, name, StoryPlan::new(), async |stage| {
        let dev = stage.person("dev").await;
        let devs = stage.server.team(&stage.mira, &stage.org, "devs", Level::Write).await;
        let bots = stage.server.team(&stage.mira, &stage.org, "bots", Level::Read).await;
        stage.server.team_repository(&stage.mira, &devs, &stage.repo.name(), Level::Write).await;
        // Members of the organization are refused the members of a team that they are not in.
        stage.server.join(&stage.mira, &devs, &dev.login).await;
        stage.server.join(&stage.mira, &bots, &stage.robot.login).await;
        let answer = stage.repo.add_labels(&dev, stage.issue, &[RUN]).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let told = stage.says(stage.issue, "cannot tell whether").await;
        for part in [&dev.login, &format!("{}/devs", stage.org), "read:organization"] {
            assert!(told.contains(part), "{part} is not in {told}");
        }
        stage.nothing_starts().await;
        // Once the bot sees the team, the label starts the loop.
        stage.server.join(&stage.mira, &devs, &stage.robot.login).await;
        stage.repo.remove_label(&dev, stage.issue, RUN).await;
        stage.quiet().await;
        stage.repo.add_labels(&dev, stage.issue, &[RUN]).await;
        assert_eq!(stage.ready(stage.issue).await.people.requested_by.login, dev.login);
    })
    .await;
}

async fn check_finds_a_token_that_may_only_read(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().without_hook().stopped(), async |stage| {
        let reader = stage.account("reader", TokenScopes::ReadOnly).await;
        stage.repo.collaborator(&stage.mira, &reader.login, Level::Admin).await;
        let (ok, said) = stage.bot.check_token(&reader.token).await;
        assert!(!ok && said.contains("may not") && said.contains("write:"), "{said}");
        let (ok, said) = stage.bot.check_token(&stage.robot.token).await;
        assert!(ok, "{said}");
        // Nothing was changed by asking.
        assert_eq!(stage.repo.all_labels(&stage.mira).await, [RUN]);
        assert!(stage.repo.comments(&stage.mira, stage.issue).await.is_empty());
    })
    .await;
}
