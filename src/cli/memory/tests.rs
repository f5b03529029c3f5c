//! `memory` on real databases.

use super::proposals::AcceptProposalArgs;
use super::reflections::text as reflection_text;
use super::*;
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::memory::{LearningKind, ProposalState, Reflection, ReflectionFacts, Remark, remembered};
use crate::domain::lifecycle::samples::fresh;
use crate::domain::loops::LoopStart;
use crate::domain::model::ids::{ForgeName, LoopId, RepoId, RepoRef};
use crate::store::memory::proposals;
use crate::store::{audit, loops};

fn args(line: &str) -> MemoryArgs {
    parse(line).expect("arguments")
}

fn parse(line: &str) -> Result<MemoryArgs, clap::Error> {
    #[derive(clap::Parser)]
    struct MemoryLine {
        #[command(flatten)]
        args: MemoryArgs,
    }
    <MemoryLine as clap::Parser>::try_parse_from(std::iter::once("x").chain(line.split_whitespace()))
        .map(|line| line.args)
}

async fn run(store: &Store, line: &str) -> CliResult {
    MemoryShell { store, settings: MemorySettings::default(), json: true, now: Timestamp(1_000) }.run(&args(line)).await
}

/// Creates a database with three rules.
async fn setup() -> (Store, Vec<String>) {
    let store = Store::in_memory().expect("opened");
    let repo = RepoRef { forge: ForgeName::new("work"), id: RepoId(7), owner: "team".into(), name: "app".into() };
    let mut ids = Vec::new();
    for rule in ["Never touch vendor", "Run the formatter before each commit", "Keep the parser pure\u{1b}[2J"] {
        let learning = remembered(&repo, rule, &LoopId::new("r-1"), Timestamp(1));
        assert_eq!(learning.task_type, TaskType::Other);
        ids.push(learning.id.clone());
        let settings = MemorySettings::default();
        let kept = store.write(move |c| memory::learn(c, &Masker::default(), learning, &settings, Timestamp(1)));
        kept.await.expect("stored");
    }
    (store, ids)
}

async fn active(store: &Store) -> u64 {
    store.read(memory::counts).await.expect("counted").active
}

#[tokio::test]
async fn learnings_are_listed_searched_archived_and_deleted() {
    let (store, ids) = setup().await;
    for line in ["show", "show --limit 1", "search vendor", "search bash.*failed", "search -- - \" * NOT"] {
        run(&store, line).await.expect(line);
    }
    run(&store, &format!("show {}", ids[0])).await.expect("shown");
    run(&store, &format!("archive {}", ids[0])).await.expect("archived");
    assert_eq!(active(&store).await, 2);
    run(&store, &format!("archive {} --undo", ids[0])).await.expect("back");
    assert_eq!(active(&store).await, 3);
    run(&store, "forget --query formatter").await.expect("only listed");
    run(&store, "forget --query formatter_nowhere --yes").await.expect("not every word is there");
    assert_eq!(active(&store).await, 3);
    run(&store, "forget --query formatter --yes").await.expect("forgotten");
    run(&store, &format!("forget {}", ids[0])).await.expect("forgotten");
    assert_eq!(active(&store).await, 1);
    let cases = [
        ("show l-0", "there is no learning"),
        ("archive l-0", "there is no learning"),
        ("forget l-0", "0 deleted; 1 of these ids are unknown"),
    ];
    for (line, message) in cases {
        let error = run(&store, line).await.expect_err("there is none");
        assert_eq!(error.exit_code(), 1, "{line}");
        assert!(error.to_string().contains(message), "{line}: {error}");
    }
}

#[tokio::test]
async fn import_is_all_or_nothing() {
    let (store, _) = setup().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("learnings.jsonl");
    let shell = MemoryShell { store: &store, settings: MemorySettings::default(), json: false, now: Timestamp(1_000) };
    shell.export(Some(&file)).await.expect("exported");
    let refused = shell.export(Some(&file)).await.expect_err("it is there");
    assert!(refused.to_string().contains("could not write"), "{refused}");
    let other = Store::in_memory().expect("opened");
    let importing =
        MemoryShell { store: &other, settings: MemorySettings::default(), json: false, now: Timestamp(1_000) };
    let text = std::fs::read_to_string(&file).expect("read");
    let broken = folder.path().join("broken.jsonl");
    std::fs::write(&broken, format!("{text}{text}{{\"checksum\"\n")).expect("written");
    let error = importing.import(&broken).await.expect_err("line 7 is broken");
    assert!(error.to_string().starts_with(&format!("{}: line 7: ", broken.display())), "{error}");
    assert_eq!(active(&other).await, 0);
    for _ in 0..2 {
        importing.import(&file).await.expect("imported");
        assert_eq!(active(&other).await, 3);
    }
    let missing = importing.import(&folder.path().join("none")).await.expect_err("there is none");
    assert_eq!(missing.exit_code(), 1);
}

#[tokio::test]
async fn output_contains_no_control_sequences() {
    let (store, ids) = setup().await;
    let id = ids[2].clone();
    let learning = store.write(move |c| memory::get(c, &id, Timestamp(1))).await.expect("read").expect("it is there");
    let shell = MemoryShell { store: &store, settings: MemorySettings::default(), json: false, now: Timestamp(1_000) };
    let table = shell.table(std::iter::once((&learning, "+3 points")));
    assert!(
        !table.contains('\u{1b}') && table.contains("Keep the parser pure") && table.contains("[+3 points]"),
        "{table}"
    );
}

/// Makes the same remark in the reviews of three loops.
async fn recurring_remark(store: &Store) {
    let repo = RepoRef { forge: ForgeName::new("work"), id: RepoId(7), owner: "team".into(), name: "app".into() };
    for n in 1..=3 {
        let text = "Log the request id in every handler".to_owned();
        let (repo, remark) = (repo.clone(), Remark { loop_id: LoopId::new(format!("r-{n}")), text });
        let kept =
            store.write(move |c| proposals::add_remark(c, &repo, &remark, &MemorySettings::default(), Timestamp(n)));
        kept.await.expect("stored");
    }
}

#[tokio::test]
async fn proposals_are_listed_accepted_rejected_and_forgotten() {
    let (store, _) = setup().await;
    run(&store, "proposals").await.expect("none");
    recurring_remark(&store).await;
    run(&store, "proposals --all").await.expect("listed");
    let state = async || {
        let all = store.read(|c| proposals::proposals(c, true)).await.expect("read");
        all.into_iter().map(|one| (one.number, one.state)).collect::<Vec<_>>()
    };
    assert_eq!((active(&store).await, state().await), (3, vec![(1, ProposalState::Open)]));
    run(&store, "proposals reject 1").await.expect("rejected");
    assert_eq!((active(&store).await, state().await), (3, vec![(1, ProposalState::Rejected)]));
    recurring_remark(&store).await;
    assert_eq!(state().await.len(), 1, "a rejected remark is not proposed again");
    run(&store, "proposals accept 1").await.expect("accepted");
    assert_eq!((active(&store).await, state().await), (4, vec![(1, ProposalState::Accepted)]));
    run(&store, "forget p-1").await.expect("forgotten");
    assert_eq!((active(&store).await, state().await), (4, vec![]), "the rule stays");
    for line in ["proposals accept 1", "proposals reject 77", "forget p-1"] {
        let error = run(&store, line).await.expect_err("there is none");
        assert_eq!(error.exit_code(), 1, "{line}: {error}");
    }
    for wrong in ["proposals accept", "proposals reject x", "proposals accept -1"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn accepted_proposal_can_have_another_text() {
    let store = Store::in_memory().expect("opened");
    recurring_remark(&store).await;
    let args = AcceptProposalArgs { number: 1, text: Some("Handlers log the request id\u{1b}[2J".into()) };
    let shell = MemoryShell { store: &store, settings: MemorySettings::default(), json: false, now: Timestamp(1_000) };
    shell.accept_proposal(&args).await.expect("accepted");
    let (learnings, _) = store.read(|c| memory::list(c, "", 9)).await.expect("read");
    let [rule] = &learnings[..] else { panic!("one: {learnings:?}") };
    assert!(
        rule.line().starts_with("Handlers log the request id") && !rule.line().contains('\u{1b}'),
        "{}",
        rule.line()
    );
}

#[tokio::test]
async fn reflections_of_a_loop_are_listed() {
    let store = Store::in_memory().expect("opened");
    let id = LoopId::new("r-1");
    let missing = run(&store, "reflections r-1").await.expect_err("there is no loop");
    assert!(missing.to_string().contains("there is no loop r-1"), "{missing}");
    let (sample, loop_id) = (fresh(), id.clone());
    let start = LoopStart {
        request: String::new(),
        existing: None,
        id: id.clone(),
        place: sample.issue,
        by: sample.people.requested_by,
        task: sample.task,
        options: sample.settings.options,
        plan: None,
        policy: sample.settings.policy,
        comment: None,
        hidden_removed: 0,
        round: 1,
    };
    assert!(store.write(move |c| loops::begin(c, start, "start", Timestamp(1))).await.expect("begun"));
    run(&store, "reflections r-1").await.expect("none yet");
    for iteration in 1..=3 {
        let facts = ReflectionFacts {
            iteration,
            approach: format!("attempt {iteration}\u{1b}[2J"),
            failing_checks: vec!["tests".into()],
            next_steps: vec!["read the fixture".into()],
            ..ReflectionFacts::default()
        };
        let (loop_id, reflection) = (loop_id.clone(), Reflection::of(&facts));
        let kept =
            store.write(move |c| memory::add_reflection(c, &Masker::default(), &loop_id, &reflection, Timestamp(1)));
        kept.await.expect("stored");
    }
    run(&store, "reflections r-1 --limit 2").await.expect("listed");
    let newest = store.read(move |c| memory::reflections(c, &id, 2)).await.expect("read");
    let shown: String = newest.iter().map(reflection_text).collect();
    assert!(shown.starts_with("iteration 2: attempt 2") && shown.contains("\niteration 3: attempt 3"), "{shown}");
    assert!(shown.contains("\n  next: ") && !shown.contains('\u{1b}'), "{shown}");
    for wrong in ["reflections", "reflections edit r-1 2", "reflections remove r-1", "reflections remove r-1 x"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }

    // One is corrected and one removed, which the loop's audit log names; the third stays.
    run(&store, "reflections edit r-1 2 --next another_way").await.expect("edited");
    run(&store, "reflections remove r-1 1").await.expect("removed");
    let of = LoopId::new("r-1");
    let (left, trail) =
        store.read(move |c| Ok((memory::reflections(c, &of, 9)?, audit::trail(c, &of)?))).await.expect("read");
    let [second, third] = &left[..] else { panic!("two: {left:?}") };
    assert_eq!((second.iteration, second.next.as_str()), (2, "another_way"));
    assert!(second.approach.starts_with("attempt 2") && second.failed == "failing: tests", "{second:?}");
    assert_eq!((second.edited_by.as_deref(), &third.edited_by), (Some("the command line"), &None));
    assert!(reflection_text(second).contains("(edited by the command line)"));
    let reasons: Vec<_> = trail.iter().map(|line| line.entry.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "the command line edited the reflection on iteration 2",
            "the command line removed the reflection on iteration 1"
        ]
    );
    for line in ["reflections edit r-1 1 --why x", "reflections remove r-1 1", "reflections remove r-9 2"] {
        let error = run(&store, line).await.expect_err("there is none");
        assert!(error.exit_code() == 1 && error.to_string().contains("there is no reflection"), "{line}: {error}");
    }
}

#[tokio::test]
async fn exported_learnings_fit_their_schema() {
    let (store, _) = setup().await;
    let (text, _) = store.read(memory::export).await.expect("exported");
    let schema = jsonschema::validator_for(&memory::export_schema()).expect("a schema");
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 3);
    for mut line in lines {
        assert!(schema.is_valid(&line), "{line}");
        line["learning"]["confidence"] = "high".into();
        assert!(!schema.is_valid(&line), "{line}");
    }
}

#[test]
fn arguments_parse_as_documented() {
    assert!(args("").command.is_none());
    assert!(
        matches!(args("search a b").command, Some(MemoryCommand::Search(a)) if a.query == ["a", "b"] && a.limit == 20)
    );
    assert!(matches!(args("forget l-1 l-2").command, Some(MemoryCommand::Forget(a)) if a.ids.len() == 2 && !a.yes));
    let options_last = args("search vendor files --kind antipattern --limit 3").command;
    assert!(matches!(options_last, Some(MemoryCommand::Search(a))
        if a.query == ["vendor", "files"] && a.filter.kind == Some(LearningKind::Antipattern) && a.limit == 3));
    assert!(matches!(args("search --limit 3 -- -x").command, Some(MemoryCommand::Search(a)) if a.query == ["-x"]));
    for wrong in ["forget", "forget l-1 --query x", "import", "search", "archive"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
