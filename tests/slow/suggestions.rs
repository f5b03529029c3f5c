//! Suggested changes of maintainers in comments on lines.

use fake_forge::{Dialect, FakeReviewComment, ReviewDraft};
use ralph_bot::domain::loops::{IterationKind, LoopState};
use ralph_bot::domain::model::event::ReviewVerdict;
use ralph_bot::domain::model::ids::User;

use crate::harness::{Setup, World, on_both_forges, on_one_forge, story};

on_both_forges!(
    suggestion_is_applied_as_a_commit_with_its_author,
    suggestions_on_several_files_are_one_commit,
    suggestion_of_an_outsider_changes_nothing,
);

on_one_forge!(
    suggestion_that_does_not_apply_is_a_remark,
    suggestion_that_breaks_a_check_is_mended_by_the_agent,
    suggestion_for_a_protected_file_is_a_remark,
    retry_applies_a_suggestion_again,
);

/// Agent that writes the answer once and then notes that it ran.
const AGENT: &str =
    "test -e words.txt && echo again >>runs.txt\necho 42 >answer.txt\nprintf 'one\\ntwo\\nthree\\n' >words.txt\n";

async fn review(world: &World, by: &User, remarks: &[(&str, u64, &str)]) {
    let remarks = remarks.iter().map(|(path, line, text)| ((*path).to_owned(), *line, (*text).to_owned())).collect();
    let draft = ReviewDraft { verdict: ReviewVerdict::Commented, body: String::new(), remarks };
    let pull = world.the_pull().await.number;
    world.forge.review(by, world.repo, pull, &draft).await.expect("reviewed");
    world.settle().await;
}

async fn remarks(world: &World) -> Vec<FakeReviewComment> {
    let pull = world.the_pull().await.pull.expect("a pull request");
    pull.reviews.into_iter().flat_map(|review| review.remarks).collect()
}

async fn file(world: &World, path: &str) -> String {
    let branch = world.the_loop().await.branch.name;
    world.forge.file_at(world.repo, &branch, path).await.unwrap_or_default()
}

/// Message of a commit.
fn message(world: &World, commit: &str) -> String {
    world.git(&["log", "-1", "--format=%B", commit])
}

async fn suggestion_is_applied_as_a_commit_with_its_author(dialect: Dialect) {
    story(Setup::new(dialect).agent(AGENT), async |world| {
        world.run().await;
        review(world, &world.maintainer, &[("words.txt", 2, "Shorter:\n\n```suggestion\n2\n```\n")]).await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(done.iterations.len(), 2, "the checks ran once more, and no agent");
        assert_eq!(done.iterations[1].kind, IterationKind::Suggestions);
        assert_eq!(
            (file(world, "words.txt").await.as_str(), file(world, "runs.txt").await.as_str()),
            ("one\n2\nthree\n", "")
        );
        let commit = done.iterations[1].commit.clone().expect("a commit");
        let text = message(world, commit.as_str());
        assert!(text.starts_with("ralph: apply suggested changes\n\n- words.txt:2\n"), "{text}");
        let author = format!("Co-authored-by: mira <{}+mira@users.noreply.127.0.0.1>", world.maintainer.id);
        assert!(text.contains(&author), "{text}");
        let all = remarks(world).await;
        let answers: Vec<_> = all.iter().filter(|one| one.author == Some(world.bot.id)).collect();
        assert_eq!(answers.len(), 1, "{all:#?}");
        assert!(answers[0].body.contains(&format!("Applied in {commit}.")), "{}", answers[0].body);
        assert_eq!((answers[0].path.as_str(), answers[0].line), ("words.txt", 2));
    })
    .await;
}

async fn retry_applies_a_suggestion_again(dialect: Dialect) {
    story(Setup::new(dialect).agent(AGENT), async |world| {
        world.run().await;
        review(world, &world.maintainer, &[("words.txt", 2, "```suggestion\n2\n```")]).await;
        let first = world.the_loop().await;
        let applied = first.iterations[1].commit.clone().expect("a commit");
        world.comment("/ralph retry").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 3), "{}", done.why);
        assert!(done.iterations[1].discarded && done.iterations[2].kind == IterationKind::Suggestions);
        assert_eq!(
            (file(world, "words.txt").await.as_str(), file(world, "runs.txt").await.as_str()),
            ("one\n2\nthree\n", "")
        );
        let again = done.iterations[2].commit.clone().expect("a commit");
        let all = remarks(world).await;
        let answers: Vec<_> = all.iter().filter(|one| one.author == Some(world.bot.id)).map(|one| &one.body).collect();
        assert_eq!(answers.len(), 2, "{all:#?}");
        for (answer, commit) in answers.iter().zip([applied, again]) {
            assert!(answer.contains(&format!("Applied in {commit}.")), "{answer}");
        }
    })
    .await;
}

async fn suggestions_on_several_files_are_one_commit(dialect: Dialect) {
    story(Setup::new(dialect).agent(AGENT), async |world| {
        world.run().await;
        let words = [
            ("words.txt", 1, "```suggestion\n1\n1.5\n```"),
            ("words.txt", 3, "```suggestion\n```"),
            ("README.md", 1, "```suggestion\n# Application\n```"),
        ];
        review(world, &world.maintainer, &words).await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 2), "{}", done.why);
        assert_eq!(file(world, "words.txt").await, "1\n1.5\ntwo\n");
        assert!(file(world, "README.md").await.starts_with("# Application\n"));
        assert_eq!(done.iterations[1].applied.len(), 3);
    })
    .await;
}

async fn suggestion_that_does_not_apply_is_a_remark(dialect: Dialect) {
    story(Setup::new(dialect).agent(AGENT), async |world| {
        world.run().await;
        review(world, &world.maintainer, &[("words.txt", 9, "```suggestion\nnine\n```")]).await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert_eq!(file(world, "runs.txt").await, "again\n", "the agent ran");
        let prompt = world.prompt(done.spent.iterations).await;
        assert!(prompt.contains("could not apply the suggestion as it is: the file has no lines 9 to 9"), "{prompt}");
        assert!(done.requests.suggestions.is_empty());
    })
    .await;
}

async fn suggestion_that_breaks_a_check_is_mended_by_the_agent(dialect: Dialect) {
    story(Setup::new(dialect).agent(AGENT), async |world| {
        world.run().await;
        review(world, &world.maintainer, &[("answer.txt", 1, "```suggestion\n43\n```")]).await;
        let done = world.the_loop().await;
        assert_eq!((done.state, done.iterations.len()), (LoopState::Review, 3), "{}", done.why);
        assert!(!done.iterations[1].checks.all_hold());
        assert_eq!(file(world, "answer.txt").await, "42\n");
    })
    .await;
}

async fn suggestion_of_an_outsider_changes_nothing(dialect: Dialect) {
    story(Setup::new(dialect).agent(AGENT), async |world| {
        let before = world.run().await;
        review(world, &world.outsider, &[("words.txt", 2, "```suggestion\n2\n```")]).await;
        world.reconcile().await;
        let after = world.the_loop().await;
        assert_eq!(
            (after.state, after.branch.head, after.iterations.len()),
            (LoopState::Review, before.branch.head, 1)
        );
    })
    .await;
}

async fn suggestion_for_a_protected_file_is_a_remark(dialect: Dialect) {
    let setup =
        Setup::new(dialect).agent(AGENT).file(".ralph.yml", "checks:\n  - name: answer\n    run: sh check.sh\n");
    story(setup, async |world| {
        world.run().await;
        review(world, &world.maintainer, &[(".ralph.yml", 1, "```suggestion\nchecks: []\n```")]).await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        assert!(file(world, ".ralph.yml").await.starts_with("checks:\n  - name"));
        let prompt = world.prompt(done.spent.iterations).await;
        assert!(prompt.contains("the file is protected"), "{prompt}");
    })
    .await;
}
