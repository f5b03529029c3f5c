//! Review remarks that recur in a repository are proposed as conventions, and are in no prompt until a maintainer accepts them.

use fake_forge::{Dialect, ReviewDraft};
use ralph_bot::domain::knowledge::memory::ProposalState;
use ralph_bot::domain::loops::{Loop, LoopState};
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::{Number, User};
use ralph_bot::store::memory::proposals;

use crate::harness::{Setup, World, on_both_forges, on_one_forge, story};

on_both_forges!(recurring_remark_becomes_a_convention_by_acceptance);
on_one_forge!(outsiders_neither_make_nor_accept_proposals, remembered_text_answers_its_proposal);

/// Agent that does the task that its prompt names, and changes something in each iteration.
const AGENT: &str = r#"prompt=$(cat)
for n in 1 2 3 4; do case $prompt in *"walrus $n"*) echo "round $RALPH_ITERATION" >>walrus-$n.txt;; esac; done
"#;
/// The same request in other words.
const REMARKS: [&str; 2] = ["Please log the request id in every handler", "Every handler has to log the request id"];

/// A service that proposes a remark as a convention after two loops.
fn setup(dialect: Dialect) -> Setup {
    let limits = "limits: { comments_per_hour: 1000, comments_per_day: 1000 }";
    Setup { adjust: |config| config.memory.propose_after = 2, ..Setup::new(dialect).agent(AGENT).config(limits) }
}

/// Opens an issue and runs its loop to the review.
async fn next_loop(world: &World, n: u32) -> Loop {
    world.clock.advance_ms(60_000);
    let (title, body) = (format!("Feed walrus {n}"), "Please.".to_owned());
    let issue: Number =
        world.forge.open_issue(&world.maintainer, world.repo, &title, &body, &[]).await.expect("an issue");
    let start = format!("/ralph run --check \"test -f walrus-{n}.txt\"");
    world.forge.comment(&world.maintainer, world.repo, issue, &start).await.expect("commented");
    world.settle().await;
    in_review(world, issue).await
}

async fn in_review(world: &World, issue: Number) -> Loop {
    let done = world.the_loop().await;
    assert_eq!((done.issue.issue, done.state), (issue, LoopState::Review), "{}", done.why);
    done
}

/// Reviews the newest loop's pull request with a remark on a line, and lets the loop answer it.
async fn remarked(world: &World, by: &User, n: u32, text: &str) {
    let pull = world.the_loop().await.pull.opened.expect("a pull request").number;
    let remarks = vec![(format!("walrus-{n}.txt"), 1, text.into())];
    let review = ReviewDraft { verdict: ReviewVerdict::ChangesRequested, body: "Please change it.".into(), remarks };
    world.clock.advance_ms(5_000);
    world.forge.review(by, world.repo, pull, &review).await.expect("reviewed");
    world.settle().await;
}

async fn merged(world: &World) {
    let pull = world.the_loop().await.pull.opened.expect("a pull request").number;
    world.forge.merge(&world.maintainer, world.repo, pull).await.expect("merged");
    world.settle().await;
    assert_eq!(world.the_loop().await.state, LoopState::Merged);
}

async fn states(world: &World) -> Vec<(u64, ProposalState, u32)> {
    let all = world.engine().store.read(|c| proposals::proposals(c, true)).await.expect("read");
    all.into_iter().map(|one| (one.number, one.state, one.loops)).collect()
}

async fn say(world: &World, by: &User, on: Number, text: &str) {
    world.clock.advance_ms(5_000);
    world.forge.comment(by, world.repo, on, text).await.expect("commented");
    world.settle().await;
}

/// Runs two loops whose reviews ask for the same; returns the second.
async fn two_reviews(world: &World) -> Loop {
    let first = next_loop(world, 1).await;
    remarked(world, &world.maintainer, 1, REMARKS[0]).await;
    in_review(world, first.issue.issue).await;
    assert_eq!(states(world).await, []);
    merged(world).await;
    let second = next_loop(world, 2).await;
    remarked(world, &world.maintainer, 2, REMARKS[1]).await;
    in_review(world, second.issue.issue).await
}

async fn recurring_remark_becomes_a_convention_by_acceptance(dialect: Dialect) {
    story(setup(dialect), async |world| {
        let told = |issue: Number| {
            let comments = world.bot_comments_on(issue);
            comments.iter().filter(|text| text.contains("/ralph guide --remember 1")).count()
        };
        let second = two_reviews(world).await;
        assert_eq!(states(world).await, [(1, ProposalState::Open, 2)]);
        assert_eq!(told(second.issue.issue), 1, "{:?}", world.bot_comments_on(second.issue.issue));
        merged(world).await;

        let third = next_loop(world, 3).await;
        assert_eq!(told(third.issue.issue), 0, "people are told once");
        for prompt in world.prompts().await {
            assert!(!prompt.contains("request id"), "{prompt}");
        }
        say(world, &world.maintainer, third.issue.issue, "/ralph guide --remember 99").await;
        let comments = world.bot_comments_on(third.issue.issue);
        assert!(comments.iter().any(|text| text.contains("There is no proposal 99")), "{comments:?}");
        // The loop of the remark has ended, and its issue is where people read of the proposal.
        say(world, &world.maintainer, second.issue.issue, "/ralph guide --remember 1").await;
        assert_eq!(states(world).await, [(1, ProposalState::Accepted, 2)]);
        let third = in_review(world, third.issue.issue).await;
        assert_eq!(third.spent.iterations, 1, "a rule for later loops is no guidance for this one");
        merged(world).await;

        next_loop(world, 4).await;
        let prompts = world.prompts().await;
        assert!(prompts[0].contains(REMARKS[1]), "{}", prompts[0]);
    })
    .await;
}

async fn outsiders_neither_make_nor_accept_proposals(dialect: Dialect) {
    story(setup(dialect), async |world| {
        for n in 1..=3 {
            let before = next_loop(world, n).await;
            remarked(world, &world.outsider, n, REMARKS[0]).await;
            assert_eq!(in_review(world, before.issue.issue).await.spent.iterations, 1, "nobody asked for a change");
            merged(world).await;
        }
        assert_eq!(states(world).await, []);
    })
    .await;
    story(setup(dialect), async |world| {
        let second = two_reviews(world).await;
        say(world, &world.outsider, second.issue.issue, "/ralph guide --remember 1").await;
        assert_eq!(states(world).await, [(1, ProposalState::Open, 2)]);
        // An open loop accepts it as well, without another iteration.
        say(world, &world.maintainer, second.issue.issue, "/ralph guide --remember 1").await;
        assert_eq!(states(world).await, [(1, ProposalState::Accepted, 2)]);
        let done = in_review(world, second.issue.issue).await;
        assert_eq!((done.spent.iterations, done.requests.guidance.len()), (second.spent.iterations, 0));
    })
    .await;
}

async fn remembered_text_answers_its_proposal(dialect: Dialect) {
    story(setup(dialect), async |world| {
        let second = two_reviews(world).await;
        let text = "/ralph guide --remember Handlers log the request id, every one";
        say(world, &world.maintainer, second.issue.issue, text).await;
        assert_eq!(states(world).await, [(1, ProposalState::Accepted, 2)]);
        // A text is guidance for this loop, too.
        let done = in_review(world, second.issue.issue).await;
        assert_eq!(done.spent.iterations, second.spent.iterations + 1);
        assert!(world.prompt(done.spent.iterations).await.contains("Handlers log the request id, every one"));
    })
    .await;
}
