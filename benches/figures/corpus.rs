//! Learnings and queries for `recall`: generated, or composed of the words in a file with real texts.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, bail};
use ralph_bot::domain::checks::criteria::TaskType;
use ralph_bot::domain::knowledge::memory::{Content, Learning, LearningEvidence, LearningQuery, LearningState, Source};
use ralph_bot::domain::model::dispersion::Dispersion;
use ralph_bot::domain::model::ids::{ForgeName, LoopId, RepoId, RepoRef, Timestamp};

/// Time of all learnings and queries.
pub const NOW: Timestamp = Timestamp(1_700_000_000_000);
/// Sentences about software, used in generated queries.
const SENTENCES: &str = include_str!("../../tests/fixtures/memory/queries.jsonl");
/// Size of the generated vocabulary, in words.
const VOCABULARY: usize = 60_000;

/// Words with the frequencies of natural language, and texts of queries.
pub struct Corpus {
    luck: fastrand::Rng,
    /// Words, most frequent first.
    words: Vec<String>,
    /// Cumulative frequencies of the words.
    sums: Vec<f64>,
    asked: Texts,
    made: u64,
}

/// Texts of queries.
enum Texts {
    /// Sentences, each followed by many random words.
    Made(Vec<String>),
    /// Unchanged texts, in order.
    Real(Vec<String>, usize),
}

impl Corpus {
    /// Creates a corpus from the words in the sentences and from generated words, with frequencies according to Zipf's law.
    pub fn made(seed: u64) -> Self {
        let mut luck = fastrand::Rng::with_seed(seed);
        let sentences = texts(SENTENCES).unwrap_or_default();
        let mut words: Vec<String> = Vec::new();
        for word in sentences.iter().flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric())) {
            let word = word.to_ascii_lowercase();
            if word.len() > 2 && !words.contains(&word) {
                words.push(word);
            }
        }
        // The other words consist of syllables, like identifiers in code.
        const SYLLABLES: [&str; 24] = [
            "con", "par", "ser", "tok", "map", "ren", "der", "que", "bat", "sync", "lo", "ad", "fig", "ma", "ter",
            "val", "id", "ex", "port", "ur", "li", "nk", "ed", "ge",
        ];
        let mut known: HashSet<String> = words.iter().cloned().collect();
        while words.len() < VOCABULARY {
            let word: String = (0..luck.usize(2..6)).map(|_| SYLLABLES[luck.usize(..SYLLABLES.len())]).collect();
            if known.insert(word.clone()) {
                words.push(word);
            }
        }
        let weights: Vec<f64> = (1..=words.len()).map(|place| 1.0 / place as f64).collect();
        Self::new(luck, words, &weights, Texts::Made(sentences))
    }

    /// Creates a corpus from real texts and the frequencies of their words. `file` is JSON Lines with a field `text`.
    ///
    /// # Errors
    /// The file cannot be read, contains no text, or has an invalid line.
    pub fn of_file(seed: u64, file: &Path) -> anyhow::Result<Self> {
        let held = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
        let mut texts = texts(&held).with_context(|| format!("{} is not JSON Lines of texts", file.display()))?;
        let mut counts: HashMap<&str, u32> = HashMap::new();
        for word in texts.iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric())) {
            if !word.is_empty() {
                *counts.entry(word).or_default() += 1;
            }
        }
        if counts.is_empty() {
            bail!("{} has no words to ask with", file.display());
        }
        let mut counted: Vec<(String, u32)> =
            counts.into_iter().map(|(word, count)| (word.to_owned(), count)).collect();
        counted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let weights: Vec<f64> = counted.iter().map(|(_, count)| f64::from(*count)).collect();
        let words = counted.into_iter().map(|(word, _)| word).collect();
        let mut luck = fastrand::Rng::with_seed(seed);
        luck.shuffle(&mut texts);
        Ok(Self::new(luck, words, &weights, Texts::Real(texts, 0)))
    }

    fn new(luck: fastrand::Rng, words: Vec<String>, weights: &[f64], asked: Texts) -> Self {
        let mut sum = 0.0;
        let sums = weights.iter().map(|weight| {
            sum += weight;
            sum
        });
        Self { luck, sums: sums.collect(), words, asked, made: 0 }
    }

    /// Returns the number of real texts; `None` for generated texts.
    pub fn real_texts(&self) -> Option<usize> {
        match &self.asked {
            Texts::Real(texts, _) => Some(texts.len()),
            Texts::Made(_) => None,
        }
    }

    fn word(&mut self) -> &str {
        let drawn = self.luck.f64() * self.sums.last().copied().unwrap_or(1.0);
        let place = self.sums.partition_point(|sum| *sum < drawn);
        &self.words[place.min(self.words.len() - 1)]
    }

    /// Returns random words according to their frequencies.
    pub fn text(&mut self, count: usize) -> String {
        let mut text = String::new();
        for _ in 0..count {
            text.push_str(self.word());
            text.push(' ');
        }
        text.trim_end().to_owned()
    }

    /// Returns the next query.
    pub fn query(&mut self) -> LearningQuery {
        let text = match &mut self.asked {
            Texts::Real(texts, next) => {
                *next += 1;
                texts[(*next - 1) % texts.len()].clone()
            }
            Texts::Made(sentences) => {
                let sentence = sentences[self.luck.usize(..sentences.len())].clone();
                let words = self.luck.usize(60..250);
                sentence + " " + &self.text(words)
            }
        };
        LearningQuery { text, task_type: TaskType::TestFix, repository: repository(), embedding: None }
    }

    /// Returns a random learning of 30 words: an antipattern in one of ten cases, otherwise a strategy.
    pub fn learning(&mut self, of: &RepoRef) -> Learning {
        self.made += 1;
        let (gist, more, about) = (self.text(14), self.text(8), self.text(8));
        let content = if self.made.is_multiple_of(10) {
            Content::Antipattern { pattern: gist, consequence: more, alternative: String::new() }
        } else {
            Content::Strategy { approach: gist, tools: Vec::new(), resolution: more, iterations: Dispersion::of(3.0) }
        };
        let source = Source { loop_id: LoopId::new(format!("r-{}", self.made)), iteration: None };
        let learning = Learning::new(of, TaskType::TestFix, content, 0.9, source, NOW).about(&about);
        Learning {
            state: LearningState::Active,
            evidence: LearningEvidence { successes: 3.0, failures: 0.0 },
            ..learning
        }
    }
}

/// Parses texts from JSON Lines. The error names the line.
fn texts(lines: &str) -> anyhow::Result<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Line {
        text: String,
    }
    let lines = (1..).zip(lines.lines()).filter(|(_, line)| !line.trim().is_empty());
    let text = |(number, line): (usize, &str)| {
        let line: Line = serde_json::from_str(line).with_context(|| format!("line {number}"))?;
        Ok(line.text)
    };
    lines.map(text).collect()
}

/// Repository of the learnings.
pub fn repository() -> RepoRef {
    RepoRef { forge: ForgeName::new("f"), id: RepoId(1), owner: "team".into(), name: "app".into() }
}
