//! Cost of memory: search and storage of learnings in stores of increasing size.

use std::time::Duration;

use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::knowledge::memory::{Learning, LearningQuery, MemorySettings};
use ralph_bot::domain::model::ids::RepoRef;
use ralph_bot::process::Masker;
use ralph_bot::store::Store;
use ralph_bot::store::memory::{import, learn, recall};

use crate::corpus::{Corpus, NOW, repository};
use crate::report::{FigureRow, FigureTarget};
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    The store has learnings of 30 words in one repository; one in ten is an antipattern. With `--queries FILE`, \
    words and queries come from real issues, otherwise from 60,000 words by Zipf's law. The figure is the 99th of \
    100 queries, from the call to the ranked learnings, from the page cache. The baseline is the unchanged text \
    with all words joined by OR. The time to store a learning ends at the synced commit and includes the search \
    for similar learnings; its baseline is the commit of one small row.";

const NAME: &str = "recall";
/// Number of learnings per transaction while filling a store.
const BATCH: usize = 5_000;

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let (sizes, asked, stored): (&[usize], usize, usize) = match run.size {
        Size::Brief => (&[200], 20, 20),
        Size::Usual => (&[1_000, 10_000, 100_000], 500, 300),
        Size::Full => (&[1_000, 10_000, 100_000, 1_000_000], 500, 300),
    };
    let mut corpus = match &run.queries {
        Some(file) => Corpus::of_file(7, file)?,
        None => Corpus::made(7),
    };
    if let Some(texts) = corpus.real_texts() {
        run.note(format!(
            "the queries of recall are {texts} texts of real issues; its learnings consist of their words"
        ));
    }
    let folder = run.folder()?;
    let store = Store::open(&folder.join("ralph.db"))?;
    let mut held = 0;
    for size in sizes {
        fill(&store, &mut corpus, size - held).await?;
        held = *size;
        let queries: Vec<LearningQuery> = (0..asked).map(|_| corpus.query()).collect();
        let first = timed(&store, &queries[0]).await?;
        for query in queries.iter().take(asked / 5) {
            timed(&store, query).await?;
        }
        let mut times = Vec::new();
        for query in &queries {
            times.push(timed(&store, query).await?);
        }
        let mut naive = Vec::new();
        for query in queries.iter().take(if *size > 100_000 { 5 } else { 20 }) {
            naive.push(whole_text(&store, &query.text).await?);
        }
        let target = if *size > 100_000 { 30.0 } else { 5.0 };
        let row = FigureRow::new(
            NAME,
            format!("recall of {size}, 99th percentile"),
            millis(percentile(&mut times, 99)),
            "ms",
        );
        run.add(
            row.beside("whole text, median", millis(percentile(&mut naive, 50))).target(FigureTarget::Below(target)),
        );
        run.add(FigureRow::new(NAME, format!("recall of {size}, median"), millis(percentile(&mut times, 50)), "ms"));
        run.add(FigureRow::new(NAME, format!("first recall of {size} after a start"), millis(first), "ms"));
        let (mut storing, mut plain) = storing(&store, &mut corpus, stored).await?;
        held += stored;
        let row =
            FigureRow::new(NAME, format!("storing among {size}, median"), millis(percentile(&mut storing, 50)), "ms");
        run.add(row.beside("a small row", millis(percentile(&mut plain, 50))).target(FigureTarget::Below(2.0)));
    }
    store.close().await;
    Ok(())
}

/// Stores `count` learnings of a repository.
pub async fn learnings_for(store: &Store, of: &RepoRef, count: usize) -> anyhow::Result<()> {
    let mut corpus = Corpus::made(11);
    let batch: Vec<Learning> = (0..count).map(|_| corpus.learning(of)).collect();
    store.write(move |c| import(c, &batch, &MemorySettings::default(), NOW)).await?;
    Ok(())
}

/// Adds learnings to the store.
pub async fn fill(store: &Store, corpus: &mut Corpus, count: usize) -> anyhow::Result<()> {
    let mut left = count;
    while left > 0 {
        let batch: Vec<Learning> = (0..left.min(BATCH)).map(|_| corpus.learning(&repository())).collect();
        left -= batch.len();
        store.write(move |c| import(c, &batch, &MemorySettings::default(), NOW)).await?;
    }
    Ok(())
}

/// Measures a query.
pub async fn timed(store: &Store, query: &LearningQuery) -> anyhow::Result<Duration> {
    let query = query.clone();
    let watch = Stopwatch::start();
    recall(store, query, MemorySettings::default(), NOW).await?;
    Ok(watch.elapsed())
}

/// Measures a query with all words in the text.
async fn whole_text(store: &Store, text: &str) -> anyhow::Result<Duration> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(|word| format!("\"{word}\"")).collect();
    let asked = words.join(" OR ");
    let watch = Stopwatch::start();
    let sql = "SELECT rowid FROM learnings_words WHERE learnings_words MATCH ?1 ORDER BY rank LIMIT 5";
    let found = store.read(move |c| {
        let mut statement = c.prepare_cached(sql)?;
        Ok(statement.query_map([asked], |row| row.get::<_, i64>(0))?.collect::<Result<Vec<_>, _>>()?)
    });
    found.await?;
    Ok(watch.elapsed())
}

/// Measures the times of storing learnings, and of small commits in between.
async fn storing(store: &Store, corpus: &mut Corpus, count: usize) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let (mut storing, mut plain) = (Vec::new(), Vec::new());
    for n in 0..count {
        let learning = corpus.learning(&repository());
        let watch = Stopwatch::start();
        store.write(move |c| learn(c, &Masker::default(), learning, &MemorySettings::default(), NOW)).await?;
        storing.push(watch.elapsed());
        let watch = Stopwatch::start();
        let sql = "INSERT INTO meta (key, value) VALUES (?1, 'x') ON CONFLICT (key) DO UPDATE SET value = key";
        store.write(move |c| Ok(c.execute(sql, [format!("figure{n}")])?)).await?;
        plain.push(watch.elapsed());
    }
    Ok((storing, plain))
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
