//! The page about memory: what it is worth, and how good retrieval is on a labelled set of our own, nDCG@5 against BM25.
//!
//! Weights are tuned on one half of the queries, figures are those of the other half.

use std::collections::HashMap;

use rusqlite::{Connection, params};
use serde::Deserialize;

use super::*;
use crate::domain::checks::criteria::TaskType;
use crate::domain::knowledge::memory::{
    Content, Learning, LearningCandidate, LearningEvidence, LearningQuery, LearningState, MemorySettings, Source,
    Weights, rank_by,
};
use crate::domain::model::ids::{ForgeName, LoopId, RepoId, RepoRef, Timestamp};
use crate::store::Store;
use crate::store::memory::{Lookup, import};

const LEARNINGS: &str = include_str!("../../../../tests/fixtures/memory/learnings.jsonl");
const QUERIES: &str = include_str!("../../../../tests/fixtures/memory/queries.jsonl");
/// Places that count.
const PLACES: usize = 5;
/// The first of the seeds on the page; nothing was tuned on it or on those after it.
const SEED: u64 = 8801;
/// Rare words as the design has it, for comparison.
const FEW: u32 = 8;
const NOW: Timestamp = Timestamp(1_000_000);

#[derive(Deserialize)]
struct LabelledLearning {
    key: String,
    task_type: TaskType,
    content: Content,
    about: String,
}

#[derive(Clone, Deserialize)]
struct LabelledQuery {
    text: String,
    task_type: TaskType,
    /// 2 answers it, 1 is of use.
    relevant: HashMap<String, u32>,
}

fn read<T: for<'a> Deserialize<'a>>(text: &str) -> Vec<T> {
    text.lines().map(|line| serde_json::from_str(line).expect("a labelled line")).collect()
}

/// Normalised discounted cumulative gain of the first places, gain `2^grade - 1` (Burges et al., 2005).
fn ndcg(found: &[String], relevant: &HashMap<String, u32>) -> f64 {
    let gain = |grade: u32| f64::from(2u32.pow(grade) - 1);
    let sum = |grades: &[u32]| -> f64 {
        grades.iter().take(PLACES).zip(2u32..).map(|(grade, place)| gain(*grade) / f64::from(place).log2()).sum()
    };
    let grades: Vec<u32> = found.iter().map(|key| relevant.get(key).copied().unwrap_or(0)).collect();
    let mut ideal: Vec<u32> = relevant.values().copied().collect();
    ideal.sort_unstable_by(|a, b| b.cmp(a));
    sum(&grades) / sum(&ideal)
}

/// BM25 as SQLite gives it, over the texts as they are, for any of the query's words.
struct Plain(Connection);

impl Plain {
    fn of(learnings: &[(String, String)]) -> Self {
        let connection = Connection::open_in_memory().expect("opened");
        connection.execute_batch("CREATE VIRTUAL TABLE t USING fts5 (key UNINDEXED, text)").expect("made");
        for (key, text) in learnings {
            connection.execute("INSERT INTO t VALUES (?1, ?2)", [key, text]).expect("stored");
        }
        Self(connection)
    }

    fn find(&self, text: &str) -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let asked = words.map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" OR ");
        let sql = "SELECT key FROM t WHERE t MATCH ?1 ORDER BY rank LIMIT ?2";
        let mut statement = self.0.prepare(sql).expect("prepared");
        let rows = statement.query_map(params![asked, PLACES as i64], |row| row.get(0)).expect("found");
        rows.collect::<Result<_, _>>().expect("read")
    }
}

fn repository() -> RepoRef {
    RepoRef { forge: ForgeName::new("f"), id: RepoId(1), owner: "acme".into(), name: "app".into() }
}

/// A query, with what the store found for it and what BM25 gives.
struct Case {
    query: LearningQuery,
    found: Vec<LearningCandidate>,
    relevant: HashMap<String, u32>,
    plain: f64,
}

/// The labelled set, looked up in a store of its own.
struct Labelled {
    keys: HashMap<String, String>,
    cases: Vec<Case>,
}

impl Labelled {
    async fn read(settings: MemorySettings) -> Self {
        let (labelled, queries) = (read::<LabelledLearning>(LEARNINGS), read::<LabelledQuery>(QUERIES));
        assert!(labelled.len() >= 300 && queries.len() >= 150, "{} {}", labelled.len(), queries.len());
        let (mut keys, mut texts, mut learnings) = (HashMap::new(), Vec::new(), Vec::new());
        for one in labelled {
            let source = Source { loop_id: LoopId::new("r-1"), iteration: None };
            let learning = Learning::new(&repository(), one.task_type, one.content, 0.9, source, NOW).about(&one.about);
            let evidence = LearningEvidence { successes: 4.0, failures: 0.0 };
            let learning = Learning { state: LearningState::Active, evidence, ..learning };
            texts.push((one.key.clone(), learning.search_text()));
            assert!(keys.insert(learning.id.clone(), one.key).is_none(), "two learnings are one: {}", learning.line());
            learnings.push(learning);
        }
        let plain = Plain::of(&texts);
        let store = Store::in_memory().expect("opened");
        let default = MemorySettings::default();
        store.write(move |c| import(c, &learnings, &default, NOW)).await.expect("stored");
        let mut cases = Vec::new();
        for LabelledQuery { text, task_type, relevant } in queries {
            assert!(relevant.keys().all(|key| keys.values().any(|known| known == key)), "{text}");
            let plain = ndcg(&plain.find(&text), &relevant);
            let query = LearningQuery { text, task_type, repository: repository(), embedding: None };
            let (asked, settings) = (query.clone(), settings.clone());
            let look = move |c: &Connection| Lookup { query: &asked, settings: &settings }.candidates(c);
            let (found, _) = store.read(look).await.expect("found");
            cases.push(Case { query, found, relevant, plain });
        }
        Self { keys, cases }
    }

    /// Mean nDCG@5 over every second query, with these weights.
    fn with(&self, weights: &Weights, half: usize) -> f64 {
        let cases = self.cases.iter().skip(half).step_by(2);
        let count = cases.clone().count() as f64;
        let of = |case: &Case| {
            let ranked = rank_by(weights, &case.query, case.found.clone(), &MemorySettings::default(), NOW);
            let keys: Vec<String> = ranked.iter().map(|one| self.keys[&one.learning.id].clone()).collect();
            ndcg(&keys, &case.relevant)
        };
        cases.map(of).sum::<f64>() / count
    }

    /// The same of BM25 over the whole text.
    fn plain(&self, half: usize) -> f64 {
        let cases = self.cases.iter().skip(half).step_by(2);
        let count = cases.clone().count() as f64;
        cases.map(|case| case.plain).sum::<f64>() / count
    }

    /// The best weights of a small grid on one half; of equals the first. The fusion constant is not among them: it weighs
    /// places against confidence, and here all learnings are equally sure.
    fn tuned(&self, half: usize) -> Weights {
        let mut best = (f64::MIN, Weights::default());
        for cosine in [0.0, 0.5, 1.0, 2.0, 4.0] {
            for other_type in [0.5, 0.7, 0.85, 1.0] {
                let weights = Weights { cosine, other_type, ..Weights::default() };
                let reached = self.with(&weights, half);
                if reached > best.0 + 1e-9 {
                    best = (reached, weights);
                }
            }
        }
        best.1
    }
}

/// The part of the page about retrieval.
fn quality(set: &Labelled, few: &Labelled) -> String {
    let ours = Weights::default();
    let without = |weights: Weights| (set.with(&weights, 0), set.with(&weights, 1));
    let terms = MemorySettings::default().query_terms;
    let by_few = format!("both, with {FEW} rare words in place of {terms}");
    let rows = [
        ("BM25 over the whole text of the task", (set.plain(0), set.plain(1))),
        ("the rarest words alone", without(Weights { cosine: 0.0, ..ours })),
        ("the cosine of all words alone", without(Weights { words: 0.0, ..ours })),
        (&by_few, (few.with(&ours, 0), few.with(&ours, 1))),
        ("both, as the service does it", without(ours)),
    ];
    let table: String =
        rows.iter().map(|(name, (one, other))| format!("| {name} | {one:.3} | {other:.3} |\n")).collect();
    format!(
        "\n## Retrieval\n\nA labelled set of our own (`tests/fixtures/memory`): {} tasks as issues tell of them, {} learnings, and \
         which of these answer a task (2) or are of use (1). nDCG@5, gain `2^grade - 1`; without an embedding model. Weights were \
         tuned on one half, every second task, over a grid of 20, and the ones in use are within 0.01 of the best of it there; the other half is what counts. The fusion constant weighs places against confidence, which \
         is the same for all learnings here, and was not tuned.\n\n| what | the half that was tuned on | \
         the other half |\n|---|---|---|\n{table}\nThe weights: fusion constant {}, rare words {}, cosine {}, another type of task {}.\n",
        set.cases.len(),
        set.keys.len(),
        ours.fusion,
        ours.words,
        ours.cosine,
        ours.other_type
    )
}

#[tokio::test]
async fn retrieval_is_better_than_bm25_on_the_half_that_nothing_was_tuned_on() {
    let set = Labelled::read(MemorySettings::default()).await;
    let (tuned, ours) = (set.tuned(0), Weights::default());
    println!(
        "tuned {tuned:?}: {:.4} and {:.4}; ours: {:.4} and {:.4}; BM25: {:.4} and {:.4}",
        set.with(&tuned, 0),
        set.with(&tuned, 1),
        set.with(&ours, 0),
        set.with(&ours, 1),
        set.plain(0),
        set.plain(1)
    );
    let short = set.with(&tuned, 0) - set.with(&ours, 0);
    assert!(short <= 0.01, "the first half is better with {tuned:?}, by {short:.4}");
    assert!(set.with(&ours, 1) > set.plain(1) && set.with(&ours, 1) >= 0.6, "{:.3}", set.with(&ours, 1));
}

#[tokio::test]
async fn the_page_about_memory_is_what_the_code_gives() {
    let args = SimulateArgs { tasks: None, seed: SEED, mix: Vec::new(), memory: true, brief: false, markdown: None };
    let played = super::super::memory::played(&args);
    // Neither thresholds nor credit were tuned on these seeds.
    for one in &played {
        assert!(one.gain >= 0.15, "memory saves too little: {one:?}");
        assert!(one.done[1] >= one.done[0] && one.done[2] >= one.done[0], "{one:?}");
        // Of forty; after 500 tasks each family was met some 25 times.
        assert!(one.poison_left <= 4.0, "wrong learnings are still told: {one:?}");
        // A seed alone is uncertain by some 3 points.
        assert!(one.loss <= if one.seed.is_some() { 0.1 } else { 0.05 }, "poison costs too much: {one:?}");
    }
    assert!(played.iter().any(|one| one.seed.is_none()), "all seeds together");
    let head = super::super::memory::page(&args, &played);
    let head = head.replacen(
        "# Memory\n",
        "# Memory\n\nWritten by `UPDATE_DOCS=1 cargo test --lib simulate::`; do not edit.\n",
        1,
    );
    let few = Labelled::read(MemorySettings { query_terms: FEW, ..MemorySettings::default() }).await;
    let made = head + &quality(&Labelled::read(MemorySettings::default()).await, &few);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/memory.md");
    if Env::of_process().get("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == made, "docs/memory.md is out of date; run the tests with UPDATE_DOCS=1");
}
