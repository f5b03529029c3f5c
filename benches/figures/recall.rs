//! What remembering costs: finding the learnings for a task, and storing one more, over stores of growing size.

use std::time::Duration;

use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::criteria::TaskType;
use ralph_bot::domain::ids::{ForgeName, LoopId, RepoId, RepoRef, Timestamp};
use ralph_bot::domain::memory::{Content, Evidence, Learning, MemorySettings, Query, Source, Spread, State};
use ralph_bot::process::Masker;
use ralph_bot::store::Store;
use ralph_bot::store::memory::{import, learn, recall};

use crate::report::{Row, Target};
use crate::{Run, Size};

/// What is measured, for the page.
pub const WORDS: &str = "Learnings of one repository, of 30 words each from a vocabulary of 60,000 whose frequencies follow \
Zipf's law (the 800 or so words of the labelled set that retrieval is tested with are the most frequent ones), one in ten \
an antipattern. Asked are texts of issues of 60 to 250 words made of the same words, each about one sentence of the set; \
given is the 99th of 100 texts, each asked once, from the call to the ranked learnings, with reads that the page cache holds. Beside it stands \
the text as it is, with all of its words OR-ed. Storing goes from the call to the synced commit, with the search for a like \
learning before; beside it stands the commit of one small row.";

const NAME: &str = "recall";
const NOW: Timestamp = Timestamp(1_700_000_000_000);
/// Sentences about software, of which texts are made.
const QUERIES: &str = include_str!("../../tests/fixtures/memory/queries.jsonl");
/// Words of the vocabulary.
const VOCABULARY: usize = 60_000;
/// Learnings that are stored in one transaction while a store is filled.
const BATCH: usize = 5_000;

/// Runs all of it.
pub async fn run(run: &mut Run) -> anyhow::Result<()> {
    let (sizes, asked, stored): (&[usize], usize, usize) = match run.size {
        Size::Brief => (&[200], 20, 20),
        Size::Usual => (&[1_000, 10_000, 100_000], 500, 300),
        Size::Full => (&[1_000, 10_000, 100_000, 1_000_000], 500, 300),
    };
    let mut corpus = Corpus::new(7);
    let folder = run.folder()?;
    let store = Store::open(&folder.join("ralph.db"))?;
    let mut held = 0;
    for size in sizes {
        fill(&store, &mut corpus, size - held).await?;
        held = *size;
        let queries: Vec<Query> = (0..asked).map(|_| corpus.query()).collect();
        let first = timed(&store, &queries[0]).await?;
        for query in queries.iter().take(asked / 5) {
            timed(&store, query).await?;
        }
        let mut times = Vec::new();
        for query in &queries {
            times.push(timed(&store, query).await?);
        }
        let mut naive = Vec::new();
        for query in queries.iter().take(20) {
            naive.push(whole_text(&store, &query.text).await?);
        }
        let target = if *size > 100_000 { 30.0 } else { 5.0 };
        let row = Row::new(NAME, format!("recall of {size}, 99 of 100"), millis(percentile(&mut times, 99)), "ms");
        run.add(row.beside("whole text, median", millis(percentile(&mut naive, 50))).target(Target::Below(target)));
        run.add(Row::new(NAME, format!("recall of {size}, median"), millis(percentile(&mut times, 50)), "ms"));
        run.add(Row::new(NAME, format!("the first recall of {size} after a start"), millis(first), "ms"));
        let (mut storing, mut plain) = storing(&store, &mut corpus, stored).await?;
        held += stored;
        let row = Row::new(NAME, format!("storing among {size}, median"), millis(percentile(&mut storing, 50)), "ms");
        run.add(row.beside("a small row", millis(percentile(&mut plain, 50))).target(Target::Below(2.0)));
    }
    store.close().await;
    Ok(())
}

/// Stores so many learnings of a repository.
pub async fn learnings_for(store: &Store, of: &RepoRef, count: usize) -> anyhow::Result<()> {
    let mut corpus = Corpus::new(11);
    let batch: Vec<Learning> = (0..count).map(|_| corpus.learning(of)).collect();
    store.write(move |c| import(c, &batch, &MemorySettings::default(), NOW)).await?;
    Ok(())
}

async fn fill(store: &Store, corpus: &mut Corpus, count: usize) -> anyhow::Result<()> {
    let mut left = count;
    while left > 0 {
        let batch: Vec<Learning> = (0..left.min(BATCH)).map(|_| corpus.learning(&repository())).collect();
        left -= batch.len();
        store.write(move |c| import(c, &batch, &MemorySettings::default(), NOW)).await?;
    }
    Ok(())
}

async fn timed(store: &Store, query: &Query) -> anyhow::Result<Duration> {
    let query = query.clone();
    let watch = Stopwatch::start();
    recall(store, query, MemorySettings::default(), NOW).await?;
    Ok(watch.elapsed())
}

/// The query as it would be without a choice of words.
async fn whole_text(store: &Store, text: &str) -> anyhow::Result<Duration> {
    let words: Vec<String> = text.split(' ').map(|word| format!("\"{word}\"")).collect();
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

/// Times of storing learnings, and of small commits in between.
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

/// Texts with the frequencies of natural language.
struct Corpus {
    luck: fastrand::Rng,
    words: Vec<String>,
    /// Sums of the frequencies, to draw from.
    sums: Vec<f64>,
    sentences: Vec<String>,
    made: u64,
}

impl Corpus {
    fn new(seed: u64) -> Self {
        let mut luck = fastrand::Rng::with_seed(seed);
        let sentence = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            line["text"].as_str().unwrap_or_default().to_owned()
        };
        let sentences: Vec<String> = QUERIES.lines().map(sentence).collect();
        let mut words: Vec<String> = Vec::new();
        for word in sentences.iter().flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric())) {
            let word = word.to_ascii_lowercase();
            if word.len() > 2 && !words.contains(&word) {
                words.push(word);
            }
        }
        // The rest are made of syllables, as names of things in code are.
        const SYLLABLES: [&str; 24] = [
            "con", "par", "ser", "tok", "map", "ren", "der", "que", "bat", "sync", "lo", "ad", "fig", "ma", "ter",
            "val", "id", "ex", "port", "ur", "li", "nk", "ed", "ge",
        ];
        let mut known: std::collections::HashSet<String> = words.iter().cloned().collect();
        while words.len() < VOCABULARY {
            let word: String = (0..luck.usize(2..6)).map(|_| SYLLABLES[luck.usize(..SYLLABLES.len())]).collect();
            if known.insert(word.clone()) {
                words.push(word);
            }
        }
        let mut sum = 0.0;
        let weights = (1..=words.len()).map(|place| {
            sum += 1.0 / place as f64;
            sum
        });
        Self { sums: weights.collect(), luck, words, sentences, made: 0 }
    }

    fn word(&mut self) -> &str {
        let drawn = self.luck.f64() * self.sums.last().copied().unwrap_or(1.0);
        let place = self.sums.partition_point(|sum| *sum < drawn);
        &self.words[place.min(self.words.len() - 1)]
    }

    fn text(&mut self, count: usize) -> String {
        let mut text = String::new();
        for _ in 0..count {
            text.push_str(self.word());
            text.push(' ');
        }
        text.trim_end().to_owned()
    }

    fn query(&mut self) -> Query {
        let sentence = self.sentences[self.luck.usize(..self.sentences.len())].clone();
        let words = self.luck.usize(60..250);
        let text = sentence.replace(|c: char| !c.is_ascii_alphanumeric(), " ") + " " + &self.text(words);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Query { text, task_type: TaskType::TestFix, repository: repository(), embedding: None }
    }

    fn learning(&mut self, of: &RepoRef) -> Learning {
        self.made += 1;
        let (gist, more, about) = (self.text(14), self.text(8), self.text(8));
        let content = if self.made.is_multiple_of(10) {
            Content::Antipattern { pattern: gist, consequence: more, alternative: String::new() }
        } else {
            Content::Strategy { approach: gist, tools: Vec::new(), resolution: more, iterations: Spread::of(3.0) }
        };
        let source = Source { loop_id: LoopId::new(format!("r-{}", self.made)), iteration: None };
        let learning = Learning::new(of, TaskType::TestFix, content, 0.9, source, NOW).about(&about);
        Learning { state: State::Active, evidence: Evidence { successes: 3.0, failures: 0.0 }, ..learning }
    }
}

fn repository() -> RepoRef {
    RepoRef { forge: ForgeName::new("f"), id: RepoId(1), owner: "team".into(), name: "app".into() }
}
