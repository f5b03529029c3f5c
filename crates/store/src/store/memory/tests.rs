//! Tests of learnings on a real database: search, quarantine, export and import.

mod proposals;
mod steps;
mod vectors;

use super::*;
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::memory::{
    Content, LearningEvidence, LearningQuery, Reflection, ReflectionFacts, Source, correct,
};
use crate::domain::model::dispersion::Dispersion;
use crate::domain::model::ids::{ForgeName, LoopId, RepoId, RepoRef};
use crate::store::sql::Database;
use crate::store::{Store, StoreError};

const NOW: Timestamp = Timestamp(1_000_000);

fn repository(id: i64) -> RepoRef {
    RepoRef { forge: ForgeName::new("f"), id: RepoId(id), owner: "acme".into(), name: format!("app{id}") }
}

fn source(loop_id: &str) -> Source {
    Source { loop_id: LoopId::new(loop_id), iteration: None }
}

fn strategy(approach: &str) -> Content {
    Content::Strategy {
        approach: approach.to_owned(),
        tools: Vec::new(),
        resolution: String::new(),
        iterations: Dispersion::of(2.0),
    }
}

/// Returns an active learning, which prompts may contain.
fn active(repo: i64, content: Content) -> Learning {
    let learning = Learning::new(&repository(repo), TaskType::TestFix, content, 0.9, source("r-1"), NOW);
    Learning { state: LearningState::Active, evidence: LearningEvidence { successes: 4.0, failures: 0.0 }, ..learning }
}

fn query(repo: i64, text: &str) -> LearningQuery {
    LearningQuery { text: text.to_owned(), task_type: TaskType::TestFix, repository: repository(repo), embedding: None }
}

async fn keep(store: &Store, learning: Learning) -> LearnOutcome {
    let settings = MemorySettings::default();
    store.write(move |c| learn(c, &Masker::default(), learning, &settings, NOW)).await.expect("stored")
}

async fn told(store: &Store, query: LearningQuery, settings: MemorySettings) -> Vec<String> {
    let recalled = recall(store, query, settings, NOW).await.expect("recalled");
    recalled.into_iter().map(|one| one.learning.content.gist().to_owned()).collect()
}

async fn counted(store: &Store) -> LearningCounts {
    store.read(counts).await.expect("counted")
}

#[tokio::test]
async fn learnings_stay_in_their_repository() {
    let store = Store::in_memory().expect("opened");
    keep(&store, active(1, strategy("Roll back the database transaction in teardown"))).await;
    keep(&store, active(2, strategy("Truncate the database after each test"))).await;
    keep(&store, active(1, Content::Convention { rule: "Run cargo fmt".into(), seen_in: String::new() })).await;
    let settings = MemorySettings::default;
    let found = told(&store, query(1, "Tests leave rows in the DATABASE"), settings()).await;
    assert_eq!(found, ["Roll back the database transaction in teardown", "Run cargo fmt"]);
    let shared = MemorySettings { share_within_owner: true, ..settings() };
    assert_eq!(told(&store, query(2, "Tests leave rows in the database"), shared).await.len(), 3);
    let off = MemorySettings { enabled: false, ..settings() };
    assert!(told(&store, query(1, "database"), off).await.is_empty());
    for text in ["", "the of and", "unheard words", "\"; DROP TABLE learnings; --", "修正"] {
        assert_eq!(told(&store, query(1, text), settings()).await, ["Run cargo fmt"], "{text}");
    }
    let huge = "database ".repeat(200_000);
    assert_eq!(told(&store, query(1, &huge), settings()).await.len(), 2);
}

#[tokio::test]
async fn learnings_are_counted_by_kind_and_task_type() {
    let store = Store::in_memory().expect("opened");
    assert_eq!(store.read(|c| counts_by_kind(c, &RepoScope::All)).await.expect("counted"), []);
    let rule = |rule: &str| Content::Convention { rule: rule.into(), seen_in: String::new() };
    keep(&store, active(1, strategy("Roll back the database transaction in teardown"))).await;
    keep(&store, active(2, strategy("Truncate the tables after each test"))).await;
    keep(&store, active(1, rule("Run cargo fmt"))).await;
    keep(&store, Learning { task_type: TaskType::Docs, ..active(2, rule("Wrap lines of documents")) }).await;
    let gone = active(1, strategy("Delete the lock file before the build"));
    let id = gone.id.clone();
    keep(&store, gone).await;
    store.write(move |c| set_state(c, &id, LearningState::Archived, NOW)).await.expect("archived").expect("known");
    let found = store.read(|c| counts_by_kind(c, &RepoScope::All)).await.expect("counted");
    let found: Vec<_> = found.iter().map(|(kind, of, count)| (kind.as_str(), of.as_str(), *count)).collect();
    assert_eq!(found, [("convention", "docs", 1), ("convention", "test-fix", 1), ("strategy", "test-fix", 2)]);
    let of_second = RepoScope::Only(vec![(ForgeName::new("f"), RepoId(2))]);
    let found = store.read(move |c| counts_by_kind(c, &of_second)).await.expect("counted");
    let sum: u64 = found.iter().map(|(_, _, count)| count).sum();
    assert_eq!((found.len(), sum), (2, 2), "{found:?}");
}

#[tokio::test]
async fn learnings_of_other_repositories_do_not_use_the_limit() {
    let store = Store::in_memory().expect("opened");
    keep(&store, active(1, strategy("Feed the marmot"))).await;
    for n in 0..70 {
        keep(&store, active(2, strategy(&format!("Wake marmot and walrus x{n}x y{n}y z{n}z")))).await;
    }
    let task = query(1, "marmot walrus");
    let (found, _) = store
        .read(move |c| Lookup { query: &task, settings: &MemorySettings::default() }.candidates(c))
        .await
        .expect("found");
    let found: Vec<_> = found.iter().map(|one| (one.learning.content.gist(), one.by_words.is_some())).collect();
    assert_eq!(found, [("Feed the marmot", true)]);
}

#[tokio::test]
async fn new_learnings_are_found_at_once() {
    let store = Store::in_memory().expect("opened");
    for n in 0..3 {
        let text = format!("What about the marmot{n}x");
        for expected in [0, 1] {
            let found = recall(&store, query(1, &text), MemorySettings::default(), NOW).await.expect("found");
            assert_eq!(found.len(), expected, "{text}");
            if expected == 0 {
                keep(&store, active(1, strategy(&format!("Feed the marmot{n}x")))).await;
            }
        }
    }
}

#[tokio::test]
async fn word_counts_follow_added_changed_and_deleted_learnings() {
    let store = Store::in_memory().expect("opened");
    let count = || {
        store.read(|c| {
            let sql = "SELECT coalesce(max(learnings), -1) FROM learnings_terms WHERE term = 'marmot'";
            Ok(c.query_row(sql, [], |row| row.get::<_, i64>(0))?)
        })
    };
    let (one, other) = (active(1, strategy("Feed the marmot, marmot")), active(1, strategy("Wake the marmot")));
    let ids = [one.id.clone(), other.id.clone()];
    assert_eq!(count().await.expect("read"), -1);
    keep(&store, one.clone()).await;
    keep(&store, other).await;
    assert_eq!(count().await.expect("read"), 2);
    let reworded = Learning { about: "elsewhere".into(), ..one };
    store.write(move |c| save(c, &reworded)).await.expect("saved");
    assert_eq!(count().await.expect("read"), 2);
    store.write(move |c| forget(c, &ids)).await.expect("forgotten");
    assert_eq!(count().await.expect("read"), 0);
}

#[tokio::test]
async fn equal_learnings_are_merged_and_contradictions_lowered() {
    let store = Store::in_memory().expect("opened");
    let first = Learning::new(
        &repository(1),
        TaskType::TestFix,
        strategy("Bisect the failing parser test"),
        0.7,
        source("r-1"),
        NOW,
    );
    assert!(
        matches!(keep(&store, first.clone()).await, LearnOutcome::Stored(one) if one.state == LearningState::Candidate)
    );
    assert!(matches!(keep(&store, first.clone()).await, LearnOutcome::Known(_)), "the same iteration told again");
    let content = strategy("bisecting the failing parser tests");
    let reworded = Learning::new(&repository(1), TaskType::TestFix, content, 0.7, source("r-2"), NOW);
    let merged = keep(&store, reworded).await;
    assert!(
        matches!(&merged, LearnOutcome::Merged(one) if one.id == first.id && one.state == LearningState::Active && one.seen == 2)
    );
    let pattern = "Bisect the failing parser test".to_owned();
    let against = Content::Antipattern { pattern, consequence: String::new(), alternative: String::new() };
    let against = Learning::new(&repository(1), TaskType::TestFix, against, 0.7, source("r-3"), NOW);
    assert!(matches!(keep(&store, against).await, LearnOutcome::Stored(one) if one.confidence < 0.5));
    let id = first.id.clone();
    let lowered = store.write(move |c| get(c, &id, NOW)).await.expect("read").expect("it is there");
    assert!((lowered.confidence - 0.7 * 0.8).abs() < 1e-9, "{}", lowered.confidence);
    let counts = counted(&store).await;
    assert_eq!((counts.active, counts.candidates, counts.quarantined), (1, 1, 0));
}

#[tokio::test]
async fn damaged_learning_is_quarantined() {
    let store = Store::in_memory().expect("opened");
    keep(&store, active(1, strategy("Reset the parser state"))).await;
    for (n, change) in [
        "UPDATE learnings SET checksum = 'x' WHERE learning = ?1",
        "UPDATE learnings SET data = replace(data, 'Rewrite', 'Delete') WHERE learning = ?1",
        "UPDATE learnings SET data = '{\"id\":' WHERE learning = ?1",
    ]
    .into_iter()
    .enumerate()
    {
        let wrong = active(1, strategy(&format!("Rewrite the parser number {n}")));
        let id = wrong.id.clone();
        store.write(move |c| save(c, &wrong)).await.expect("stored");
        store.write(move |c| Ok(c.execute(change, [&id])?)).await.expect("damaged");
    }
    assert_eq!(told(&store, query(1, "the parser"), MemorySettings::default()).await, ["Reset the parser state"]);
    assert_eq!(counted(&store).await, LearningCounts { active: 1, quarantined: 3, ..LearningCounts::default() });
    assert_eq!(told(&store, query(1, "the parser"), MemorySettings::default()).await.len(), 1);
    let reasons: Vec<String> = store
        .read(|c| {
            let mut statement = c.prepare("SELECT reason FROM learnings_quarantine ORDER BY id")?;
            Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
        .await
        .expect("read");
    assert!(reasons.iter().any(|reason| reason.contains("checksum")), "{reasons:?}");
}

#[tokio::test]
async fn queries_of_every_syntax_are_answered() {
    let store = Store::in_memory().expect("opened");
    keep(&store, active(1, strategy("The bash check failed: quote the connection pool variable"))).await;
    keep(&store, active(1, strategy("Größe der Liste prüfen"))).await;
    let found = [
        ("bash.*failed", 1),
        ("\"connection pool\"", 1),
        ("\"pool connection\"", 0),
        ("bash AND nothing", 1),
        ("bash OR größe", 2),
        ("bash NOT pool", 0),
        ("words:bash", 1),
        ("learnings_words MATCH 'bash'", 1),
        ("NEAR(bash failed, 3)", 1),
        ("bash^2 AND (", 1),
        ("\"unclosed bash", 1),
        ("{a b}: *", 0),
        ("", 0),
        ("* - + ^ : \" ' ;", 0),
        ("\0 \u{1b}[2J 😀 bash", 1),
        ("größe", 1),
    ];
    for (text, expected) in found {
        let (learnings, _) = store.read(move |c| search(c, &correct(text), None, 10)).await.expect(text);
        assert_eq!(learnings.len(), expected, "{text}");
    }
    let long = "bash \"(NEAR* ".repeat(1_000);
    let (learnings, _) = store.read(move |c| search(c, &correct(&long), None, 10)).await.expect("answered");
    assert_eq!(learnings.len(), 1);
    let all = |text: &'static str| store.read(move |c| matching_all(c, &correct(text)));
    assert_eq!(all("bash pool").await.expect("found").len(), 1);
    assert_eq!(all("bash unheard").await.expect("found").len(), 0);
}

#[tokio::test]
async fn export_is_imported_once() {
    let (from, to) = (Store::in_memory().expect("opened"), Store::in_memory().expect("opened"));
    for n in 0..20 {
        keep(&from, active(1, strategy(&format!("alpha{n}x beta{n}x gamma{n}x")))).await;
    }
    let (text, damaged) = from.read(export).await.expect("exported");
    assert_eq!((text.lines().count(), damaged.len()), (20, 0));
    let learnings = parse(&text, &Masker::default()).expect("sound");
    let settings = MemorySettings::default();
    for expected in [
        ImportCounts { added: 20, ..ImportCounts::default() },
        ImportCounts { unchanged: 20, ..ImportCounts::default() },
    ] {
        let (learnings, settings) = (learnings.clone(), settings.clone());
        let imported = to.write(move |c| import(c, &learnings, &settings, NOW)).await.expect("imported");
        assert_eq!(imported, expected);
    }
    assert_eq!(to.read(export).await.expect("exported").0, text);
    let lines: Vec<&str> = text.lines().collect();
    let with_line_7 = |line: &str| {
        let mut broken = lines.clone();
        broken[6] = line;
        parse(&broken.join("\n"), &Masker::default()).expect_err("line 7 is broken")
    };
    let cut = &lines[6][..lines[6].len() / 2];
    let changed = lines[6].replace("alpha", "omega");
    for (line, says) in
        [(cut, "it is not a learning"), ("[]", "it is not a learning"), (&changed, "its checksum is wrong")]
    {
        let error = format!("{:#}", with_line_7(line));
        assert!(
            error.starts_with("line 7: ") && error.contains(says) && error.ends_with("nothing was imported"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn export_skips_damaged_rows() {
    let store = Store::in_memory().expect("opened");
    for n in 0..5 {
        keep(&store, active(1, strategy(&format!("alpha{n}x beta{n}x")))).await;
    }
    store.write(|c| Ok(c.execute("UPDATE learnings SET checksum = '' WHERE id > 2", [])?)).await.expect("damaged");
    let (text, damaged) = store.read(export).await.expect("exported");
    assert_eq!((text.lines().count(), damaged.len()), (2, 3));
}

#[tokio::test]
async fn secrets_are_masked() {
    let store = Store::in_memory().expect("opened");
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let settings = MemorySettings::default();
    let content = strategy(&format!("Call the API with {token} and hunter2-secret"));
    let learning = active(1, content).about(&format!("secret hunter2-secret {token}"));
    let masker = Masker::new(["hunter2-secret"]);
    let stored = store.write(move |c| learn(c, &masker, learning, &settings, NOW)).await.expect("stored");
    assert!(matches!(&stored, LearnOutcome::Stored(one) if one.check().is_ok()), "{stored:?}");
    let (text, _) = store.read(export).await.expect("exported");
    assert!(!text.contains("ghp_") && !text.contains("hunter2") && text.contains("***"), "{text}");
}

#[tokio::test]
async fn outcomes_are_credited_once() {
    let store = Store::in_memory().expect("opened");
    let one = active(1, strategy("Bisect the parser"));
    let (id, loop_id) = (one.id.clone(), LoopId::new("r-7"));
    keep(&store, one).await;
    let settings = MemorySettings::default();
    let outcome = |loop_id: &str, succeeded| LoopCredit {
        loop_id: LoopId::new(loop_id),
        repository: repository(1),
        task_type: TaskType::TestFix,
        succeeded,
    };
    let (known, failed) = (id.clone(), outcome("r-7", false));
    let (after, worth) = store
        .write(move |c| {
            for _ in 0..3 {
                carried(c, &loop_id, 1, std::slice::from_ref(&known), NOW)?;
                credit_iteration(c, &loop_id, 1, ("bisecting the parser", false), &settings, NOW)?;
                credit_loop(c, &failed, &settings, NOW)?;
            }
            credit_loop(c, &outcome("r-8", true), &settings, NOW)?;
            let after = get(c, &known, NOW)?.expect("it is there");
            let worth = uplift(c, &after)?;
            Ok((after, worth))
        })
        .await
        .expect("credited");
    assert_eq!((after.uses, after.evidence.failures), (1, 1.5));
    assert!((after.confidence - 0.9 * 0.8 * 0.9).abs() < 1e-9, "{}", after.confidence);
    assert_eq!((worth.with.loops, worth.without.loops, worth.difference()), (1, 1, Some(-1.0)));
    assert!(told(&store, query(1, "the parser"), MemorySettings::default()).await.is_empty());
}

#[tokio::test]
async fn learnings_are_deleted_archived_and_decay() {
    let store = Store::in_memory().expect("opened");
    let (gone, idle, used) = (
        active(1, strategy("alpha beta")),
        active(1, strategy("gamma delta")),
        Learning { last_used_at: Some(Timestamp(900 * 86_400_000)), ..active(1, strategy("epsilon zeta")) },
    );
    let ids = [gone.id.clone(), "l-unknown".to_owned()];
    for learning in [gone, idle.clone(), used.clone()] {
        keep(&store, learning).await;
    }
    assert_eq!(store.write(move |c| forget(c, &ids)).await.expect("forgotten"), 1);
    assert!(store.read(|c| matching_all(c, &correct("alpha"))).await.expect("searched").is_empty());
    let later = Timestamp(1_000 * 86_400_000);
    let faded = store.write(move |c| decay(c, &MemorySettings::default(), later)).await.expect("decayed");
    assert_eq!(faded, 1);
    let again = store.write(move |c| decay(c, &MemorySettings::default(), later)).await.expect("decayed");
    assert_eq!((again, counted(&store).await.archived), (0, 1));
    let id = used.id.clone();
    let archived = store.write(move |c| set_state(c, &id, LearningState::Archived, NOW)).await.expect("archived");
    assert!(archived.is_some_and(|one| one.state == LearningState::Archived));
    assert_eq!(counted(&store).await, LearningCounts { archived: 2, ..LearningCounts::default() });
}

#[tokio::test]
async fn reflections_are_kept_by_iteration() {
    let store = Store::in_memory().expect("opened");
    let id = LoopId::new("r-1");
    let known = id.clone();
    let wrote = store.write(move |c| {
        for iteration in [1, 2, 2, 3] {
            let facts =
                ReflectionFacts { iteration, approach: format!("try {iteration}"), ..ReflectionFacts::default() };
            add_reflection(c, &Masker::default(), &known, &Reflection::of(&facts), NOW)?;
        }
        Ok(c.execute("UPDATE reflections SET data = '{' WHERE iteration = 3", [])?)
    });
    assert_eq!(wrote.await.expect("kept"), 1);
    let found = store.read(move |c| reflections(c, &id, 3)).await.expect("read");
    assert_eq!(found.iter().map(|one| one.iteration).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn interrupted_migration_is_completed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ralph.db");
    let connection = rusqlite::Connection::open(&path).expect("opened");
    connection.execute_batch(include_str!("../../../../../migrations/0001_first.sql")).expect("the first");
    connection.execute_batch("PRAGMA user_version = 1").expect("set");
    drop(connection);
    assert!(matches!(Store::attach(&path), Err(StoreError::Failed { .. })), "an older schema is left alone");
    let store = Store::open(&path).expect("brought up to date");
    drop(store);
    let connection = rusqlite::Connection::open(&path).expect("opened");
    let connection = Connection(Database::Sqlite(connection));
    assert_eq!(counts(&connection).expect("counted"), LearningCounts::default());
}
