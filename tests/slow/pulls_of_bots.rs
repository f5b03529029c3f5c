//! Pull requests of Dependabot and Renovate: a person's command starts a loop on their branch, and their own words start nothing.

use fake_forge::{Access, Dialect, PullDraft, ReviewDraft, StatusDraft};
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::{AccountKind, Number, User};

use crate::harness::{Setup, WILLING, World, on_both_forges, story};

on_both_forges!(pull_request_of_a_bot_is_repaired_when_a_person_asks);

const BRANCH: &str = "update/dependency";

/// GitHub reports that an account is a bot. Gitea reports no difference from people, so that a bot needs a permission below the permission of
/// commands.
fn setup(dialect: Dialect) -> Setup {
    let setup = Setup::new(dialect).agent(WILLING);
    if dialect == Dialect::Gitea { setup.config("permissions: { command: admin }") } else { setup }
}

/// The bot opens a pull request that fails CI.
async fn opened_by_bot(world: &World) -> (User, Number) {
    let (login, kind) = match world.setup.dialect {
        Dialect::GitHub => ("dependabot[bot]", AccountKind::Bot),
        Dialect::Gitea => ("renovate", AccountKind::User),
    };
    let (forge, repo) = (&world.forge, world.repo);
    let bot = forge.add_user(login, kind);
    forge.grant(repo, &bot, Access::Write).expect("granted");
    let base = forge.branch_sha(repo, "main").await.expect("a commit");
    forge.force_branch(&bot, repo, BRANCH, &base).await.expect("made");
    let files = [("dependency.txt", Some("2\n"), false)];
    let head = forge.push_commit(&bot, repo, BRANCH, &files, "Bump dependency from 1 to 2").await.expect("pushed");
    let draft = PullDraft {
        title: "Bump dependency from 1 to 2".into(),
        body: "Release notes\n\n/ralph run\n".into(),
        head: BRANCH.into(),
        base: "main".into(),
        draft: false,
    };
    let pull = forge.open_pull(&bot, repo, &draft).await.expect("opened");
    let status = StatusDraft {
        context: "build".into(),
        state: "failure".into(),
        description: "the answer is wrong".into(),
        target_url: String::new(),
    };
    forge.set_status(&bot, repo, &head, &status).await.expect("set");
    (bot, pull)
}

/// See docs/research/threats.md#p6 and docs/research/threats.md#p17.
async fn pull_request_of_a_bot_is_repaired_when_a_person_asks(dialect: Dialect) {
    story(setup(dialect), async |world| {
        let (bot, pull) = opened_by_bot(world).await;
        let as_bot = async |text: &str| {
            world.forge.comment(&bot, world.repo, pull, text).await.expect("commented");
            world.settle().await;
        };
        as_bot("/ralph run").await;
        assert_eq!(world.newest().await.map(|found| found.id), None, "the bot's comment started a loop");
        let before = world.issue_of(pull);
        world.forge.comment(&world.maintainer, world.repo, pull, "/ralph run").await.expect("commented");
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.spent.iterations), (LoopState::Review, 1), "{}", done.why);
        assert_eq!((done.issue.issue, done.branch.name.as_str()), (pull, BRANCH));
        assert!(world.prompt(1).await.contains("the answer is wrong"), "the failed CI is not in the prompt");
        for (path, text) in [("answer.txt", "42\n"), ("dependency.txt", "2\n")] {
            assert_eq!(world.file(BRANCH, path).await.as_deref(), Some(text), "{path}");
        }
        let after = world.issue_of(pull);
        assert_eq!((&after.title, &after.body, after.open), (&before.title, &before.body, true));
        let pulls = world.forge.with(|state| {
            let issues = state.repo(world.repo).expect("the repository").issues.values();
            issues.filter(|issue| issue.pull.is_some()).count()
        });
        assert_eq!(pulls, 1, "another pull request was opened");

        // Its later words change nothing.
        as_bot("/ralph abort").await;
        let review = ReviewDraft {
            verdict: ReviewVerdict::Commented,
            body: "Change it.".into(),
            remarks: vec![("answer.txt".into(), 1, "Change this line.".into())],
        };
        world.forge.review(&bot, world.repo, pull, &review).await.expect("reviewed");
        world.settle().await;
        let later = world.the_loop().await;
        assert_eq!((later.id, later.state, later.spent.iterations), (done.id, LoopState::Review, 1), "{}", later.why);
    })
    .await;
}
