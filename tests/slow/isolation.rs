//! Faults of one repository, forge or sender do not delay others.
//! See docs/research/faults.md#inv12.

use std::time::Duration;

use fake_forge::{Access, Dialect, FakeFault, FakeForge};
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::model::ids::{AccountKind, Number, RepoId, User};
use ralph_bot::forge::http::Timeouts;
use ralph_bot::store::inbox;

use crate::harness::{SECRET, Setup, World, live_story, on_one_forge, story};

on_one_forge!(
    hanging_repository_does_not_delay_others,
    hanging_forge_does_not_delay_others,
    irrelevant_deliveries_do_not_delay_others,
);

/// Number of issues on the hanging side, more than the concurrency limit of a forge.
const ISSUES: usize = 40;

/// Opens issues in a repository, each with a command that has to be answered.
async fn ask(forge: &FakeForge, person: &User, repo: RepoId) -> Vec<Number> {
    let mut issues = Vec::new();
    for n in 0..ISSUES {
        let issue = forge.open_issue(person, repo, &format!("Question {n}"), "", &[]).await.expect("an issue");
        forge.comment(person, repo, issue, "/ralph help").await.expect("commented");
        issues.push(issue);
    }
    forge.flush().await;
    issues
}

/// Number of unprocessed deliveries, and of pending and running effects.
async fn waiting(world: &World) -> (u64, u64) {
    (world.inbox().await.get("new").copied().unwrap_or(0), world.waiting("talk").await)
}

/// Waits until the world's loop has its pull request, and returns the numbers of `waiting`.
async fn goes_through(world: &World) -> (u64, u64) {
    world.label().await;
    world.until("the pull request", |l| l.state == LoopState::Review && l.pull.opened.is_some()).await;
    waiting(world).await
}

/// Setup with request timeouts beyond the length of the story.
fn patient(dialect: Dialect) -> Setup {
    let hour = Duration::from_secs(3_600);
    Setup { timeouts: Timeouts { idle: hour, total: hour, ..Timeouts::USUAL }, ..Setup::new(dialect) }
}

async fn hanging_repository_does_not_delay_others(dialect: Dialect) {
    live_story(patient(dialect), async |world| {
        let other = world.forge.create_repo("mira", "silent", &[("README.md", "", false)]).await.expect("a repository");
        world.forge.grant(other, &world.bot, Access::Admin).expect("the bot may");
        let url = format!("http://{}/webhooks/forge", world.app().address.expect("it listens"));
        world.forge.add_hook(other, &url, SECRET).await.expect("the hook is made");
        // Replies hang for half of the issues; for the other half, permission queries hang.
        let path = "mira/silent/";
        world.forge.faults().next(10_000, "POST", path, FakeFault::Hang).expect("a rule");
        ask(&world.forge, &world.maintainer, other).await;
        let (_, to_say) = goes_through(world).await;
        assert!(to_say >= ISSUES as u64, "{to_say} answers wait");
        world.forge.faults().next(10_000, "GET", path, FakeFault::Hang).expect("a rule");
        ask(&world.forge, &world.maintainer, other).await;
        let other_issue = world.forge.open_issue(&world.maintainer, world.repo, "Another", "", &["ralph:run"]).await;
        let other_issue = other_issue.expect("an issue");
        world
            .until("the loop beside", |l| {
                l.issue.issue == other_issue && l.state == LoopState::Review && l.pull.opened.is_some()
            })
            .await;
        let (deliveries, to_say) = waiting(world).await;
        assert!(
            deliveries >= ISSUES as u64 / 2 && to_say >= ISSUES as u64,
            "{deliveries} deliveries, {to_say} answers"
        );
        world.forge.faults().clear();
    })
    .await;
}

async fn hanging_forge_does_not_delay_others(dialect: Dialect) {
    let mut setup = patient(dialect);
    let clock = ralph_bot::clock::Clock::System;
    let silent = FakeForge::start(dialect, clock).await.expect("the forge starts");
    let (nora, bot) = (silent.add_user("nora", AccountKind::User), silent.add_user("ralph-bot", AccountKind::User));
    let repo = silent.create_repo("nora", "app", &[("README.md", "", false)]).await.expect("a repository");
    silent.grant(repo, &bot, Access::Admin).expect("the bot may");
    let kind = if dialect == Dialect::Gitea { "gitea" } else { "github" };
    setup.forges = format!(
        "\n  - {{ name: silent, kind: {kind}, url: \"{}\", token_env: OTHER_TOKEN, webhook_secret_env: SECRET }}",
        silent.url()
    );
    setup.env.push(("OTHER_TOKEN", silent.token_for(&bot)));
    live_story(setup, async |world| {
        let url = format!("http://{}/webhooks/silent", world.app().address.expect("it listens"));
        silent.add_hook(repo, &url, SECRET).await.expect("the hook is made");
        silent.faults().next(10_000, "", "nora/", FakeFault::Hang).expect("a rule");
        ask(&silent, &nora, repo).await;
        let (deliveries, _) = goes_through(world).await;
        assert!(deliveries >= ISSUES as u64, "{deliveries} deliveries wait");
        silent.faults().clear();
    })
    .await;
}

/// Two thousand irrelevant deliveries precede the relevant one.
async fn irrelevant_deliveries_do_not_delay_others(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let forge = world.engine().forges.accounts.keys().next().expect("a forge").clone();
        let now = world.clock.now();
        let flood = move |c: &_| {
            (0..2_000).try_for_each(|n| {
                let body = inbox::Body::pack(if n % 2 == 0 { b"{}" } else { b"{\"action\": \"created\", \"x\": [" });
                let (forge, delivery, event) = (forge.clone(), format!("flood-{n}"), "issues".to_owned());
                inbox::insert(c, &inbox::StoredDelivery { forge, delivery, event, body }, now).map(drop)
            })
        };
        world.engine().store.write(flood).await.expect("stored");
        world.label().await;
        world.forge.flush().await;
        let mut steps = 0;
        while world.newest().await.is_none() {
            assert!(world.engine().intake.intake_step().await.expect("intake"), "the label is lost");
            world.engine().executor.loop_step().await.expect("loop");
            steps += 1;
        }
        assert!(steps <= 34, "{steps} steps of 64 deliveries");
        world.settle().await;
        assert_eq!(world.the_loop().await.state, LoopState::Review);
    })
    .await;
}
