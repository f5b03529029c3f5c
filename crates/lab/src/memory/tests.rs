//! Tests of memory's value, and of retrieval quality on a labeled set: nDCG@5 compared with BM25.
//!
//! One half of the queries tunes the weights, and the other half judges them.

use std::collections::HashMap;
use std::path::Path;

use ralph_bot::config::Env;
use ralph_bot::domain::knowledge::memory::{Weights, rank_by};
use ralph_bot::store::Store;
use ralph_bot::store::memory::{Lookup, import};
use rusqlite::{Connection, params};
use serde::Deserialize;

use super::*;

const LEARNINGS: &str = include_str!("../../../../tests/fixtures/memory/learnings.jsonl");
const QUERIES: &str = include_str!("../../../../tests/fixtures/memory/queries.jsonl");
/// Number of results that count.
const RESULTS: usize = 5;
/// First seed on the page. These seeds were not used for tuning.
const SEED: u64 = 8801;
/// Smaller number of rare words, for comparison.
const FEW_TERMS: u32 = 8;
const NOW: Timestamp = Timestamp(1_000_000);

#[derive(Deserialize)]
struct LabeledLearning {
    key: String,
    task_type: TaskType,
    content: Content,
    about: String,
}

#[derive(Clone, Deserialize)]
struct LabeledQuery {
    text: String,
    task_type: TaskType,
    /// Grade of each relevant learning: 2 answers the query, 1 is useful.
    relevant: HashMap<String, u32>,
}

fn parse_lines<T: for<'a> Deserialize<'a>>(text: &str) -> Vec<T> {
    text.lines().map(|line| serde_json::from_str(line).expect("a labeled line")).collect()
}

/// Normalized discounted cumulative gain of the first results, gain `2^grade - 1` (Burges et al., 2005).
fn ndcg(found: &[String], relevant: &HashMap<String, u32>) -> f64 {
    let gain = |grade: u32| f64::from(2u32.pow(grade) - 1);
    let sum = |grades: &[u32]| -> f64 {
        grades.iter().take(RESULTS).zip(2u32..).map(|(grade, rank)| gain(*grade) / f64::from(rank).log2()).sum()
    };
    let grades: Vec<u32> = found.iter().map(|key| relevant.get(key).copied().unwrap_or(0)).collect();
    let mut ideal: Vec<u32> = relevant.values().copied().collect();
    ideal.sort_unstable_by(|a, b| b.cmp(a));
    sum(&grades) / sum(&ideal)
}

/// SQLite's BM25 over the unprocessed texts, for any of the query's words.
struct PlainBm25(Connection);

impl PlainBm25 {
    fn new(learnings: &[(String, String)]) -> Self {
        let connection = Connection::open_in_memory().expect("opened");
        connection.execute_batch("CREATE VIRTUAL TABLE t USING fts5 (key UNINDEXED, text)").expect("made");
        for (key, text) in learnings {
            connection.execute("INSERT INTO t VALUES (?1, ?2)", [key, text]).expect("stored");
        }
        Self(connection)
    }

    fn find(&self, text: &str) -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let match_any = words.map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" OR ");
        let sql = "SELECT key FROM t WHERE t MATCH ?1 ORDER BY rank LIMIT ?2";
        let mut statement = self.0.prepare(sql).expect("prepared");
        let rows = statement.query_map(params![match_any, RESULTS as i64], |row| row.get(0)).expect("found");
        rows.collect::<Result<_, _>>().expect("read")
    }
}

/// Repository of the labeled learnings.
fn labeled_repository() -> RepoRef {
    RepoRef { forge: ForgeName::new("f"), id: RepoId(1), owner: "acme".into(), name: "app".into() }
}

/// Query with the store's candidates and BM25's nDCG.
struct RetrievalCase {
    query: LearningQuery,
    candidates: Vec<LearningCandidate>,
    relevant: HashMap<String, u32>,
    plain: f64,
}

/// Labeled set with its candidates in a store.
struct LabeledSet {
    keys: HashMap<String, String>,
    cases: Vec<RetrievalCase>,
}

impl LabeledSet {
    async fn load(settings: MemorySettings) -> Self {
        let (labeled, queries) = (parse_lines::<LabeledLearning>(LEARNINGS), parse_lines::<LabeledQuery>(QUERIES));
        assert!(labeled.len() >= 300 && queries.len() >= 150, "{} {}", labeled.len(), queries.len());
        let (mut keys, mut texts, mut learnings) = (HashMap::new(), Vec::new(), Vec::new());
        for one in labeled {
            let source = Source { loop_id: LoopId::new("r-1"), iteration: None };
            let learning =
                Learning::new(&labeled_repository(), one.task_type, one.content, 0.9, source, NOW).about(&one.about);
            let evidence = LearningEvidence { successes: 4.0, failures: 0.0 };
            let learning = Learning { state: LearningState::Active, evidence, ..learning };
            texts.push((one.key.clone(), learning.search_text()));
            assert!(keys.insert(learning.id.clone(), one.key).is_none(), "duplicate learning: {}", learning.line());
            learnings.push(learning);
        }
        let plain = PlainBm25::new(&texts);
        let store = Store::in_memory().expect("opened");
        let default = MemorySettings::default();
        store.write(move |c| import(c, &learnings, &default, NOW)).await.expect("stored");
        let mut cases = Vec::new();
        for LabeledQuery { text, task_type, relevant } in queries {
            assert!(relevant.keys().all(|key| keys.values().any(|known| known == key)), "{text}");
            let plain = ndcg(&plain.find(&text), &relevant);
            let query = LearningQuery { text, task_type, repository: labeled_repository(), embedding: None };
            let (asked, settings) = (query.clone(), settings.clone());
            let look = move |c: &ralph_bot::store::sql::Connection| {
                Lookup { query: &asked, settings: &settings }.candidates(c)
            };
            let (candidates, _) = store.read(look).await.expect("found");
            cases.push(RetrievalCase { query, candidates, relevant, plain });
        }
        Self { keys, cases }
    }

    /// Mean nDCG@5 with `weights` over every second query, starting at the first or the second.
    fn ndcg_with(&self, weights: &Weights, half: usize) -> f64 {
        let cases = self.cases.iter().skip(half).step_by(2);
        let count = cases.clone().count() as f64;
        let rank_of = |case: &RetrievalCase| {
            let ranked = rank_by(weights, &case.query, case.candidates.clone(), &MemorySettings::default(), NOW);
            let keys: Vec<String> = ranked.iter().map(|one| self.keys[&one.learning.id].clone()).collect();
            ndcg(&keys, &case.relevant)
        };
        cases.map(rank_of).sum::<f64>() / count
    }

    /// Mean nDCG@5 with BM25 over the same queries.
    fn ndcg_plain(&self, half: usize) -> f64 {
        let cases = self.cases.iter().skip(half).step_by(2);
        let count = cases.clone().count() as f64;
        cases.map(|case| case.plain).sum::<f64>() / count
    }

    /// Best weights from a small grid on one half; the first among equals. The grid omits the fusion constant, because it
    /// balances ranks against confidence, and all learnings here have the same confidence.
    fn tuned(&self, half: usize) -> Weights {
        let mut best = (f64::MIN, Weights::default());
        for cosine in [0.0, 0.5, 1.0, 2.0, 4.0] {
            for other_type in [0.5, 0.7, 0.85, 1.0] {
                let weights = Weights { cosine, other_type, ..Weights::default() };
                let reached = self.ndcg_with(&weights, half);
                if reached > best.0 + 1e-9 {
                    best = (reached, weights);
                }
            }
        }
        best.1
    }
}

/// Page section about retrieval.
fn retrieval_section(set: &LabeledSet, few: &LabeledSet) -> String {
    let ours = Weights::default();
    let without = |weights: Weights| (set.ndcg_with(&weights, 0), set.ndcg_with(&weights, 1));
    let terms = MemorySettings::default().query_terms;
    let by_few = format!("both, with {FEW_TERMS} rare words instead of {terms}");
    let rows = [
        ("BM25 over the text of the task", (set.ndcg_plain(0), set.ndcg_plain(1))),
        ("rarest words only", without(Weights { cosine: 0.0, ..ours })),
        ("cosine of all words only", without(Weights { words: 0.0, ..ours })),
        (&by_few, (few.ndcg_with(&ours, 0), few.ndcg_with(&ours, 1))),
        ("both, as in the service", without(ours)),
    ];
    let table: String =
        rows.iter().map(|(name, (one, other))| format!("| {name} | {one:.3} | {other:.3} |\n")).collect();
    format!(
        "\n## Retrieval\n\nA labeled set (`tests/fixtures/memory`): {} tasks in the words of issues, {} learnings, and the learnings \
         that answer a task (2) or are useful for it (1). nDCG@5, gain `2^grade - 1`; without an embedding model. Weights were \
         tuned on every second task over a grid of 20; those in use are within 0.01 of the best there. The other half is the \
         result. The fusion constant balances ranks against confidence, which is the same for all learnings here, and was not \
         tuned.\n\n| method | tuned half | other half |\n|---|---|---|\n{table}\nWeights: fusion constant {}, rare words {}, cosine {}, other task type {}.\n",
        set.cases.len(),
        set.keys.len(),
        ours.fusion,
        ours.words,
        ours.cosine,
        ours.other_type
    )
}

#[tokio::test]
async fn retrieval_beats_bm25_on_the_untuned_half() {
    let set = LabeledSet::load(MemorySettings::default()).await;
    let (tuned, ours) = (set.tuned(0), Weights::default());
    let shortfall = set.ndcg_with(&tuned, 0) - set.ndcg_with(&ours, 0);
    assert!(shortfall <= 0.01, "{tuned:?} is better on the first half, by {shortfall:.4}");
    assert!(
        set.ndcg_with(&ours, 1) > set.ndcg_plain(1) && set.ndcg_with(&ours, 1) >= 0.6,
        "{:.3}",
        set.ndcg_with(&ours, 1)
    );
}

/// Checks a seed against the targets.
fn check_targets(result: &SeedFigures) {
    assert!(result.gain >= 0.15, "memory saves too little: {result:?}");
    assert!(result.done[1] >= result.done[0] && result.done[2] >= result.done[0], "{result:?}");
    // Of 40 wrong learnings; after 500 tasks, each family occurred about 25 times.
    assert!(result.poison_remaining <= 4.0, "wrong learnings remain in prompts: {result:?}");
    // A single seed has a standard deviation of about 3 points.
    assert!(result.loss <= if result.seed.is_some() { 0.1 } else { 0.05 }, "poison costs too much: {result:?}");
}

/// Compares docs/research/memory.md with the results. By default, plays only one of the page's seeds. Plays all with
/// `RALPH_TEST_LAB_SEEDS=10`, or with `UPDATE_DOCS=1`, which writes the page.
#[tokio::test]
async fn memory_page_matches_the_figures() {
    let env = Env::of_process();
    let update = env.get("UPDATE_DOCS").is_some();
    let set = env.get("RALPH_TEST_LAB_SEEDS").map(|seeds| seeds.parse().expect("a number of seeds"));
    let count: u64 = if update { SEEDS } else { set.unwrap_or(1) };
    let args = LabMemoryArgs { tasks: 500, seed: SEED, markdown: None, json: false };
    let results = play_seeds(SEED..=SEED + count - 1, args.tasks, &MemorySettings::default());
    results.iter().filter(|result| count == SEEDS || result.seed.is_some()).for_each(check_targets);
    let few = LabeledSet::load(MemorySettings { query_terms: FEW_TERMS, ..MemorySettings::default() }).await;
    let retrieval = retrieval_section(&LabeledSet::load(MemorySettings::default()).await, &few);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/research/memory.md");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let outdated = "docs/research/memory.md is out of date; run `UPDATE_DOCS=1 cargo test --release -p lab memory`";
    if count < SEEDS {
        let table = table(&results);
        let rows = table.lines().filter(|row| row.starts_with("| 8"));
        assert_eq!(rows.clone().count() as u64, count);
        rows.for_each(|row| assert!(written.contains(row), "{outdated}: it lacks {row}"));
        assert!(written.ends_with(&retrieval), "{outdated}: retrieval differs");
        return;
    }
    let origin = "# Memory\n\nWritten by `UPDATE_DOCS=1 cargo test --release -p lab memory`; do not edit.\n";
    let page = page::markdown(&args, &results).replacen("# Memory\n", origin, 1) + &retrieval;
    if update {
        std::fs::write(&path, &page).expect("written");
    } else {
        assert!(written == page, "{outdated}");
    }
}

#[test]
fn same_seeds_give_the_same_figures() {
    let settings = MemorySettings::default();
    let (first, again) = (play_seeds(1..=2, 40, &settings), play_seeds(1..=2, 40, &settings));
    assert_eq!((table(&first).lines().count(), first), (5, again));
}
