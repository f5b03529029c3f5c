//! Deviation: the work has little similarity to the objective, or most of it is outside the task's scope.
//!
//! Similarity of words is weak evidence, because the work and the objective can be described with different words. A loop
//! with improving checks therefore never deviates, and an iteration without text is not judged. Where an embedding model is
//! configured, the service adds its figure ([`modeled_similarity`]).

use std::collections::BTreeSet;

use super::DetectionKind;
use super::basis::Basis;
use super::definition::{DetectionDefinition, DetectionRow, detection_settings};
use super::detection::{Detection, DetectionEvidence, DetectionSeverity};
use super::detection_input::{DetectionInput, named_files, percent};
use super::intervention::InterventionLevel;
use crate::domain::model::record::Record;
use crate::domain::model::similarity::{Rarity, WordCounts};
use crate::domain::supervision::TaskFacts;

/// Maximum length of the objective for the comparison, in bytes.
const MAX_TASK: usize = 500;
/// Maximum length of an iteration's text, and of its paths, for the comparison, in bytes.
const MAX_TEXT: usize = 300;
/// Maximum number of examined files per iteration.
const MAX_FILES: usize = 20;
/// Minimum number of words in a text for a judgement.
const MIN_WORDS: usize = 2;

detection_settings! {
    /// Conditions of deviation from the task.
    DeviationSettings {
        /// Similarity of work and objective below which an iteration is off the objective.
        #[schemars(skip)]
        pub objective_similarity: f64 = 0.5, in 0.0..=1.0;
        /// Number of newest iterations that are considered.
        #[schemars(skip)]
        pub window: u32 = 3, in 1..=10;
        /// Number of iterations off the objective within `window` at which the detection is raised.
        #[schemars(skip)]
        pub low_iterations: u32 = 2, in 1..=10, at_most window;
        /// Number of consecutive iterations off the objective at which the detection is severe.
        #[schemars(skip)]
        pub high_after: u32 = 4, in 1..=10;
        /// Number of changed files outside the task's scope per file inside of it, above which the detection is raised.
        #[schemars(skip)]
        pub scope_creep_ratio: f64 = 1.5, in 0.1..=1_000.0;
        /// Minimum number of changed files outside the task's scope.
        #[schemars(skip)]
        pub scope_min_files: u32 = 4, in 1..=10_000;
    }
}

impl DetectionDefinition for DeviationSettings {
    const ROW: DetectionRow = DetectionRow {
        title: "The changes leave the scope of the task",
        pattern: "work and files do not match the task",
        signals: &[("objective", Basis::Words), ("scope", Basis::Words)],
        effect: "",
        order: "Return to the task. Change nothing else.",
        advice: &[
            "Read the objective and the failing checks again.",
            "Revert the changes that they do not require, and make no more of them.",
        ],
        high: InterventionLevel::Warn,
        profile: |schedule| &schedule.sensitive,
        of_approach: true,
    };

    fn detect(&self, input: &DetectionInput<'_>) -> Option<Detection> {
        if input.progressing() || input.rate(self.window.saturating_add(1)) >= input.settings.min_progress {
            return None;
        }
        let mut evidence = Vec::new();
        let mut severity = DetectionSeverity::Medium;
        let similarities = similarities(input);
        let is_low = |similarity: &&Option<f64>| similarity.is_some_and(|found| found < self.objective_similarity);
        let low = similarities.iter().rev().take(self.window as usize).filter(is_low).count();
        if low >= self.low_iterations as usize {
            let run = similarities.iter().rev().take_while(is_low).count();
            if run >= self.high_after as usize {
                severity = DetectionSeverity::High;
            }
            let judged: Vec<f64> = similarities.iter().rev().take(self.window as usize).copied().flatten().collect();
            let average = judged.iter().sum::<f64>() / judged.len() as f64;
            let latest = input.recent(self.window);
            let of_latest = similarities.iter().skip(similarities.len().saturating_sub(latest.len()));
            let deviating = latest.iter().zip(of_latest).filter(|(_, found)| is_low(found)).map(|(record, _)| record);
            let text = format!(
                "the changes of {low} of the last {} iterations match less than {} of the task's words{}",
                judged.len(),
                percent(self.objective_similarity),
                named_files(deviating)
            );
            evidence.push(DetectionEvidence::new("objective", average, self.objective_similarity, text));
        }
        evidence.extend(scope_creep(input));
        Detection::of(DetectionKind::Deviation, severity, evidence)
    }
}

/// Returns the similarity of each of the last iterations to the objective, 0..1, oldest first. `None` for an iteration that
/// cannot be judged.
fn similarities(input: &DetectionInput<'_>) -> Vec<Option<f64>> {
    let settings = &input.settings.deviation;
    let objective = Objective::of(&input.facts.task);
    let judge = |record: &Record| record.objective_similarity.or_else(|| objective.cosine(record).map(f64::cbrt));
    input.recent(settings.window.max(settings.high_after)).iter().map(judge).collect()
}

/// Text of a task with its words.
struct Objective<'a> {
    text: &'a str,
    words: WordCounts,
}

impl<'a> Objective<'a> {
    fn of(task: &'a str) -> Self {
        let text = cut(task, MAX_TASK);
        Self { text, words: WordCounts::of(text) }
    }

    /// Returns the cosine of the words of the task and of the more similar text of an iteration, 0..1; `None` if they cannot be
    /// compared. Texts about the same subject share few words: a cosine of 1/8 means half similar, so the function returns the
    /// cube root of the similarity.
    fn cosine(&self, record: &Record) -> Option<f64> {
        let by_words = |text: &String| {
            let words = WordCounts::of(text);
            let comparable = self.words.len().min(words.len()) >= MIN_WORDS && is_latin(self.text) == is_latin(text);
            // All words have equal weights, because a word that is common in the few texts of one loop is relevant to it.
            comparable.then(|| Rarity::default().cosine(&words, &self.words))
        };
        [report_text(record), changed(record)].iter().filter_map(by_words).reduce(f64::max)
    }
}

/// Texts that an embedding model compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedTexts {
    /// Objective of the task.
    pub objective: String,
    /// Report of the agent and changed paths.
    pub work: String,
}

/// Returns the texts of the task and of an iteration's work; `None` if one has too few words for a judgement.
pub fn compared_texts(task: &str, record: &Record) -> Option<ComparedTexts> {
    let objective = cut(task, MAX_TASK).to_owned();
    let work = format!("{} {}", report_text(record), changed(record));
    let comparable = [&objective, &work].iter().all(|text| WordCounts::of(text).len() >= MIN_WORDS);
    comparable.then_some(ComparedTexts { objective, work })
}

/// Returns the similarity of an iteration's work and the task, 0..1, from the cosine of a model's embeddings, -1..1. It is
/// based on the mean of this cosine and the cosine of the words, because the mean separates the task's own work from other work
/// of the repository better than either.
pub fn modeled_similarity(task: &str, record: &Record, cosine: f64) -> f64 {
    let cosine = if cosine.is_nan() { 0.0 } else { cosine.clamp(0.0, 1.0) };
    let by_words = Objective::of(task).cosine(record);
    by_words.map_or(cosine, |by_words| (cosine + by_words) / 2.0).cbrt()
}

/// Whether most letters are basic Latin. Texts in different scripts cannot be compared by their words.
fn is_latin(text: &str) -> bool {
    let letters = || text.chars().filter(|character| character.is_alphabetic());
    2 * letters().filter(char::is_ascii).count() >= letters().count()
}

/// Returns the texts of the agent's report about its work.
fn report_text(record: &Record) -> String {
    let mut text = cut(&record.summary, MAX_TEXT).to_owned();
    for learning in &record.learnings {
        text.push(' ');
        text.push_str(cut(learning, MAX_TEXT));
    }
    cut(&text, MAX_TEXT).to_owned()
}

/// Returns the paths that the agent changed, as text.
fn changed(record: &Record) -> String {
    let files: Vec<&str> = record.files.iter().take(MAX_FILES).map(String::as_str).collect();
    cut(&files.join(" "), MAX_TEXT).to_owned()
}

fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Returns evidence that many more files were changed outside the task's scope than inside; otherwise `None`.
fn scope_creep(input: &DetectionInput<'_>) -> Option<DetectionEvidence> {
    let settings = &input.settings.deviation;
    let scope = scope(input.facts);
    if scope.is_empty() {
        return None;
    }
    let records = input.recent(settings.window).iter();
    let touched: BTreeSet<&str> =
        records.flat_map(|record| record.files.iter().take(MAX_FILES)).map(String::as_str).collect();
    let inside = touched.iter().filter(|file| scope.iter().any(|place| is_within(file, place))).count();
    let outside = touched.len() - inside;
    let ratio = outside as f64 / inside.max(1) as f64;
    let creeps = ratio > settings.scope_creep_ratio && outside >= settings.scope_min_files as usize;
    let text = format!("{outside} files outside of the task's scope were changed and {inside} within");
    creeps.then(|| DetectionEvidence::new("scope", ratio, settings.scope_creep_ratio, text))
}

/// Returns the task's scope: the stated scope, or the files and folders named in its text.
fn scope(facts: &TaskFacts) -> Vec<&str> {
    if !facts.scope.is_empty() {
        return facts.scope.iter().map(|place| place.trim_end_matches('/')).collect();
    }
    named_places(&facts.task)
}

/// Returns the files and folders named in a task's text.
pub fn named_places(text: &str) -> Vec<&str> {
    let is_edge = |c: char| !(c.is_alphanumeric() || matches!(c, '/' | '_' | '-'));
    let words = cut(text, MAX_TASK).split_whitespace().map(|word| word.trim_matches(is_edge));
    let is_path = |word: &&str| {
        let (folder, name) = word.rsplit_once('/').unwrap_or_default();
        !folder.is_empty() && !word.contains("://") && (name.is_empty() || name.contains('.'))
    };
    words.filter(is_path).map(|word| word.trim_end_matches('/')).collect()
}

/// Whether a changed file belongs to a place in the scope: it is the place, is inside or next to it, or has a related name
/// (for example a test of the place).
fn is_within(file: &str, place: &str) -> bool {
    let stem = place.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or(place);
    file == place
        || file.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'))
        || folder(file).is_some() && folder(file) == folder(place)
        || stem.len() > 3 && file.contains(stem)
}

fn folder(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(folder, _)| folder)
}
