//! How good retrieval is, on a labelled set of our own: nDCG@5 against BM25 over the whole text of the query.

use std::collections::HashMap;

use serde::Deserialize;

use super::*;

const LEARNINGS: &str = include_str!("../../../../tests/fixtures/memory/learnings.jsonl");
const QUERIES: &str = include_str!("../../../../tests/fixtures/memory/queries.jsonl");
/// Places that count.
const PLACES: usize = 5;
/// What was reached when this was written, less a little.
const FLOOR: f64 = 0.6;

#[derive(Deserialize)]
struct LabelledLearning {
    key: String,
    task_type: TaskType,
    content: Content,
    about: String,
}

#[derive(Deserialize)]
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

#[tokio::test]
async fn retrieval_is_better_than_bm25_over_the_whole_query() {
    let (labelled, queries) = (read::<LabelledLearning>(LEARNINGS), read::<LabelledQuery>(QUERIES));
    assert!(labelled.len() >= 300 && queries.len() >= 150, "{} {}", labelled.len(), queries.len());
    let mut keys = HashMap::new();
    let mut texts = Vec::new();
    let mut learnings = Vec::new();
    for one in labelled {
        let learning = Learning { task_type: one.task_type, ..active(1, one.content) }.about(&one.about);
        let learning = learning.map_text(&str::to_owned);
        texts.push((one.key.clone(), learning.search_text()));
        assert!(keys.insert(learning.id.clone(), one.key).is_none(), "two learnings are one: {}", learning.line());
        learnings.push(learning);
    }
    let plain = Plain::of(&texts);
    let store = Store::in_memory().expect("opened");
    let stored = store.write(move |c| learnings.iter().try_for_each(|learning| save(c, learning)));
    stored.await.expect("stored");
    let (mut ours, mut theirs) = (0.0, 0.0);
    let count = queries.len() as f64;
    for labelled in queries {
        assert!(labelled.relevant.keys().all(|key| keys.values().any(|known| known == key)), "{}", labelled.text);
        theirs += ndcg(&plain.find(&labelled.text), &labelled.relevant);
        let query = Query { text: labelled.text.clone(), task_type: labelled.task_type, repository: repository(1) };
        let found = recall(&store, query, MemorySettings::default(), NOW).await.expect("recalled");
        let found: Vec<String> = found.into_iter().map(|one| keys[&one.learning.id].clone()).collect();
        ours += ndcg(&found, &labelled.relevant);
    }
    let (ours, theirs) = (ours / count, theirs / count);
    println!("nDCG@5 {ours:.3}, BM25 alone {theirs:.3}");
    assert!(ours >= theirs && ours >= FLOOR, "{ours:.3} against {theirs:.3}");
}
