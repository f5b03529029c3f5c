//! Peculiarities of a real Gitea that are easily overlooked: teams, the labels of deliveries, drafted remarks, replies, the timeline.
//! Stories that also apply to GitHub run on both.

use std::time::Duration;

use fake_forge::{Access, Dialect, ReviewDraft, StatusDraft};
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::{AccountKind, User};

use crate::harness::{Setup, WILLING, World, on_both_forges, story};

on_both_forges!(
    drafted_remark_reaches_the_agent_with_its_review,
    plain_comment_is_answered_with_the_ways_to_reach_the_agent,
    label_of_another_case_starts_a_loop,
);

/// Declares stories that run only on Gitea.
macro_rules! on_gitea {
    ($($name:ident),+ $(,)?) => {
        mod only {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name().await
            })+
        }
    };
}

on_gitea!(
    members_of_teams_with_write_access_may_start_loops,
    hidden_team_is_answered_as_cannot_be_told,
    cleared_labels_pause_at_once,
    replaced_labels_start_a_loop,
    replaced_labels_keep_a_loop,
    reply_in_a_thread_is_a_remark,
    missed_label_starts_by_the_timeline,
    missed_label_with_a_comment_after_it_starts,
    missed_label_with_a_new_title_is_asked_about,
    quiet_repository_costs_one_request,
    log_of_a_failed_job_reaches_the_agent,
);

fn gitea() -> Setup {
    Setup::new(Dialect::Gitea)
}

async fn labels(world: &World, by: &User, on: bool) {
    let changed = match on {
        true => world.forge.label(by, world.repo, world.issue, "ralph:run").await,
        false => world.forge.unlabel(by, world.repo, world.issue, "ralph:run").await,
    };
    changed.expect("changed");
    world.settle().await;
}

/// Gives an account write access through a team of the repository's owner, which becomes an organization.
fn join_writers(world: &World, login: &str, hidden: bool) -> User {
    let member = world.forge.add_user(login, AccountKind::User);
    world.forge.with(|state| {
        let owner = world.maintainer.id;
        state.accounts.get_mut(&owner).expect("the owner").organization = true;
        state.add_team_member("mira", "devs", member.id, true);
        let team = state.teams.iter_mut().find(|team| team.org == owner).expect("the team");
        (team.access, team.everywhere) = (Access::Write, true);
        // Members of the organization are refused the members of a team that they are not in.
        state.add_team_member("mira", if hidden { "bots" } else { "devs" }, world.bot.id, true);
    });
    member
}

/// The forge's own answer about the permission of a team's member is that there is none.
async fn members_of_teams_with_write_access_may_start_loops() {
    story(gitea(), async |world| {
        let member = join_writers(world, "member", false);
        world.forge.with(|state| {
            state.create_label(world.maintainer.id, world.repo, "ralph:run", "ededed", "").expect("a label");
            state.triage_needs = Access::None;
        });
        labels(world, &world.outsider, true).await;
        assert!(world.all_loops().await.is_empty());
        insta::assert_snapshot!("may_not_set_the_label", world.newest_comment_on(world.issue));
        labels(world, &world.outsider, false).await;
        labels(world, &member, true).await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

async fn hidden_team_is_answered_as_cannot_be_told() {
    story(gitea(), async |world| {
        let member = join_writers(world, "member", true);
        labels(world, &member, true).await;
        assert!(world.all_loops().await.is_empty());
        insta::assert_snapshot!("hidden_team", world.newest_comment_on(world.issue));
        // A second attempt is not answered again; once the bot sees the team, the label starts the loop.
        labels(world, &member, false).await;
        labels(world, &member, true).await;
        assert_eq!(world.bot_comments().len(), 1);
        labels(world, &member, false).await;
        world.forge.with(|state| state.add_team_member("mira", "devs", world.bot.id, true));
        labels(world, &member, true).await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// The status only says "Failing after 3s".
async fn log_of_a_failed_job_reaches_the_agent() {
    story(gitea().agent(WILLING), async |world| {
        let first = world.run().await;
        let head = first.branch.pushed.clone().expect("pushed");
        let log = "2026-11-24T05:16:13.0Z ⭐ Run Main pytest\n2026-11-24T05:16:14.0Z E assert 41 == 42\n\
            2026-11-24T05:16:14.0Z   ❌  Failure - Main pytest\n";
        let outcome = Some(("failure", "", log));
        let job =
            world.forge.set_check_run(&world.maintainer, world.repo, &head, "test", outcome).await.expect("a job");
        let status = StatusDraft {
            context: "ci / test (push)".into(),
            state: "failure".into(),
            description: "Failing after 3s".into(),
            target_url: format!("/mira/app/actions/runs/{job}/jobs/0"),
        };
        world.forge.set_status(&world.maintainer, world.repo, &head, &status).await.expect("a status");
        world.settle().await;
        let second = world.the_loop().await;
        assert_eq!((second.state, second.iterations.len()), (LoopState::Review, 2), "{}", second.why);
        let prompt = world.prompt(2).await;
        assert!(prompt.contains("E assert 41 == 42") && prompt.contains("ci / test (push)"), "{prompt}");
        assert!(!prompt.contains("Failing after 3s"), "{prompt}");
    })
    .await;
}

/// Sets the labels of the issue by a request of a kind, as the maintainer.
fn request_labels(world: &World, names: &[&str], how: fake_forge::LabelRequest) {
    world.forge.with(|state| {
        let ids: Vec<i64> = names
            .iter()
            .map(|name| match state.label_named(world.repo, name) {
                Some(known) => known.id,
                None => state.create_label(world.maintainer.id, world.repo, name, "ededed", "").expect("a label").id,
            })
            .collect();
        state.set_labels_by(world.maintainer.id, world.repo, world.issue, &ids, how).expect("changed");
    });
}

/// The delivery still lists the labels that were cleared.
async fn cleared_labels_pause_at_once() {
    story(gitea(), async |world| {
        world.label().await;
        world.settle_until("the agent", |l| l.state == LoopState::Running).await;
        request_labels(world, &[], fake_forge::LabelRequest::Clear);
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!(paused.state, LoopState::Paused, "{}", paused.why);
        assert!(paused.why.contains("mira removed the label"), "{}", paused.why);
    })
    .await;
}

/// The delivery lists no label.
async fn replaced_labels_start_a_loop() {
    story(gitea(), async |world| {
        request_labels(world, &["bug", "ralph:run"], fake_forge::LabelRequest::Replace);
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

async fn replaced_labels_keep_a_loop() {
    story(gitea(), async |world| {
        world.label().await;
        world.settle_until("the agent", |l| l.state == LoopState::Running).await;
        request_labels(world, &["bug", "ralph:run"], fake_forge::LabelRequest::Replace);
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// Forges keep the case of a label's name and compare without it.
async fn label_of_another_case_starts_a_loop(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        world.forge.label(&world.maintainer, world.repo, world.issue, "Ralph:RUN").await.expect("labeled");
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        world.comment("/ralph abort").await;
        world.settle().await;
        assert!(
            !world.forge.labels(world.repo, world.issue).iter().any(|label| label.eq_ignore_ascii_case("ralph:run"))
        );
    })
    .await;
}

fn review(body: &str, remark: &str) -> ReviewDraft {
    let remarks = vec![("answer.txt".into(), 1, remark.into())];
    ReviewDraft { verdict: ReviewVerdict::ChangesRequested, body: body.into(), remarks }
}

async fn drafted_remark_reaches_the_agent_with_its_review(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let pull = world.run().await.pull.opened.expect("a pull request").number;
        world.advance(Duration::from_secs(3 * 86_400)).await;
        // The remark was drafted two days before its review was handed in; GitHub also delivers it by itself.
        world.forge.with(|state| state.draft_age_ms = 2 * 86_400_000);
        let changes = review("Please change it.", "A remark of long ago.");
        world.forge.review(&world.maintainer, world.repo, pull, &changes).await.expect("reviewed");
        world.settle().await;
        let prompt = world.prompt(2).await;
        assert_eq!(prompt.matches("A remark of long ago.").count(), 1, "{prompt}");
    })
    .await;
}

async fn reply_in_a_thread_is_a_remark() {
    story(gitea().agent(WILLING), async |world| {
        let pull = world.run().await.pull.opened.expect("a pull request").number;
        // An outsider's review starts nothing, a maintainer's reply to it does.
        let theirs = ReviewDraft { verdict: ReviewVerdict::Commented, ..review("Hm.", "Is this right?") };
        let id = world.forge.review(&world.outsider, world.repo, pull, &theirs).await.expect("reviewed");
        world.settle().await;
        assert_eq!(world.the_loop().await.spent.iterations, 1);
        let reply = |by: &User, text: &str| {
            world.forge.with(|state| state.reply_on_page(by.id, world.repo, pull, id, text)).expect("replied");
        };
        reply(&world.outsider, "I insist.");
        world.settle().await;
        assert_eq!(world.the_loop().await.spent.iterations, 1);
        reply(&world.maintainer, "Yes, but say why.");
        world.settle().await;
        let second = world.the_loop().await;
        assert_eq!((second.state, second.spent.iterations), (LoopState::Review, 2), "{}", second.why);
        let prompt = world.prompt(2).await;
        assert!(prompt.contains("Yes, but say why.") && prompt.contains("answer.txt:1"), "{prompt}");
        assert!(!prompt.contains("I insist."), "{prompt}");
        // A reply whose delivery was lost is found.
        world.advance(Duration::from_secs(600)).await;
        world.forge.hooks().drop_next(1);
        reply(&world.maintainer, "And since when.");
        world.forge.with(|state| {
            let now = world.clock.now();
            state.issue_mut(world.repo, pull).expect("the pull request").updated_at = now;
        });
        world.settle().await;
        world.reconcile().await;
        world.reconcile().await;
        assert_eq!(world.the_loop().await.spent.iterations, 3);
        assert!(world.prompt(3).await.contains("And since when."));
    })
    .await;
}

async fn plain_comment_is_answered_with_the_ways_to_reach_the_agent(dialect: Dialect) {
    story(Setup::new(dialect).agent(WILLING), async |world| {
        let pull = world.run().await.pull.opened.expect("a pull request").number;
        let say = async |by: &User, text: &str| {
            world.forge.comment(by, world.repo, pull, text).await.expect("commented");
            world.settle().await;
            world.bot_comments_on(pull)
        };
        assert_eq!(say(&world.outsider, "Please rename it.").await.len(), 0);
        let told = say(&world.maintainer, "Please rename it.").await;
        assert!(told.len() == 1 && told[0].contains("`/ralph guide TEXT`"), "{told:?}");
        assert_eq!(say(&world.maintainer, "And this.").await.len(), 1, "once for each pull request");
        assert_eq!(world.the_loop().await.spent.iterations, 1);
        // A comment on the issue is a conversation among people.
        let before = world.bot_comments().len();
        world.comment("What do you think?").await;
        world.settle().await;
        assert_eq!(world.bot_comments().len(), before);
    })
    .await;
}

/// The maintainer sets the label, and its delivery is lost.
async fn label_unheard(world: &World) {
    world.settle().await;
    world.advance(Duration::from_secs(600)).await;
    world.forge.hooks().drop_next(1);
    world.label().await;
    world.forge.flush().await;
}

async fn missed_label_starts_by_the_timeline() {
    story(gitea(), async |world| {
        label_unheard(world).await;
        // Its delivery may still come.
        world.advance(Duration::from_secs(5)).await;
        world.reconcile().await;
        assert!(world.newest().await.is_none());
        world.advance(Duration::from_secs(6)).await;
        world.reconcile().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, &done.people.requested_by), (LoopState::Review, &world.maintainer), "{}", done.why);
    })
    .await;
}

async fn missed_label_with_a_comment_after_it_starts() {
    story(gitea(), async |world| {
        label_unheard(world).await;
        world.advance(Duration::from_secs(60)).await;
        world.comment("I labeled it.").await;
        world.advance(Duration::from_secs(60)).await;
        world.reconcile().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}

/// See docs/research/threats.md#p12.
async fn missed_label_with_a_new_title_is_asked_about() {
    story(gitea(), async |world| {
        label_unheard(world).await;
        world.advance(Duration::from_secs(60)).await;
        let edited = world.forge.edit_issue(&world.maintainer, world.repo, world.issue, Some("Another task"), None);
        edited.await.expect("edited");
        world.advance(Duration::from_secs(120)).await;
        world.reconcile().await;
        assert!(world.newest().await.is_none());
        assert!(world.bot_commented("/ralph run --confirm "), "{:#?}", world.bot_comments());
    })
    .await;
}

/// Looks at a repository without changes ask for the changes only.
async fn quiet_repository_costs_one_request() {
    story(gitea(), async |world| {
        world.advance(Duration::from_secs(600)).await;
        world.reconcile().await;
        world.advance(Duration::from_secs(600)).await;
        let before = world.forge.requests().len();
        world.engine().reconciler.reconcile_step(false).await.expect("reconcile");
        let asked: Vec<_> = world.forge.requests().split_off(before).into_iter().map(|one| one.path).collect();
        assert_eq!(asked.len(), 1, "{asked:?}");
        // It is not looked at again before its time.
        world.engine().reconciler.reconcile_step(false).await.expect("reconcile");
        assert_eq!(world.forge.requests().len(), before + 1);
    })
    .await;
}
