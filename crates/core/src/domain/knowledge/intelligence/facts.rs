//! Ranked facts of a context block, one per line.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::context::{Context, LoopProgress, Project};
use crate::domain::knowledge::memory::LearningKind;
use crate::domain::knowledge::text;

/// Minimum increase of completion that counts as a breakthrough.
const BREAKTHROUGH: f64 = 0.2;
/// Maximum number of failed approaches. This and the following limits prevent one kind of fact from filling the block.
const FAILED: usize = 6;
const BREAKTHROUGHS: usize = 3;
const ERRORS: usize = 4;
const REFLECTIONS: usize = 5;
const DECISIONS: usize = 5;
const SUMMARIES: usize = 2;
const FILES: usize = 8;
const LEARNINGS: usize = 10;
/// Maximum length of a fact, in characters.
const LINE: usize = 240;
/// Maximum length of a reflection, in characters. It is longer than `LINE`, because a reflection ends with its advice.
const REFLECTION: usize = 400;
/// Maximum length of a summary or extract, in characters.
const LONG: usize = 700;

/// Kind of a fact, in the block's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sort {
    Now,
    Failed,
    Breakthrough,
    Reflection,
    Files,
    Decision,
    Summary,
    Learning,
    Project,
}

impl Sort {
    /// Whether facts of this kind come from memory instead of the current state.
    pub fn is_memory(self) -> bool {
        matches!(self, Self::Reflection | Self::Summary | Self::Learning)
    }
}

/// Fact for a context block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fact {
    /// Kind.
    pub sort: Sort,
    /// Rank, 0 for the most important fact.
    pub rank: u32,
    /// Text of one line.
    pub text: String,
    /// Id of the learning in the fact; `None` if it is not a learning.
    pub learning: Option<String>,
    /// Identity of the fact if its text contains changing figures; `None` if the text is the identity.
    pub identity: Option<String>,
}

impl Fact {
    /// Returns a digest of the fact's identity: 16 hexadecimal digits.
    pub fn digest(&self) -> String {
        let identity = self.learning.as_ref().or(self.identity.as_ref()).unwrap_or(&self.text);
        HEXLOWER.encode(&Sha256::digest(identity)[..8])
    }

    /// Whether a resumed session already knows the fact, because it is about the project or the session's changes.
    pub fn is_background(&self) -> bool {
        matches!(self.sort, Sort::Files | Sort::Project)
    }
}

/// Returns all facts. Recent failures rank before older breakthroughs, and breakthroughs before older knowledge.
pub(super) fn facts(context: &Context) -> Vec<Fact> {
    let mut facts = FactList(Vec::new());
    facts.add(Sort::Now, 0, session_line(&context.session));
    failures(&mut facts, context);
    breakthroughs(&mut facts, context);
    let history = &context.history;
    for (at, reflection) in history.reflections.iter().rev().take(REFLECTIONS).enumerate() {
        facts.add(Sort::Reflection, 12 + 8 * at, format!("Learned: {}", text::line(reflection, REFLECTION)));
    }
    for (at, decision) in history.decisions.iter().rev().take(DECISIONS).enumerate() {
        facts.add(Sort::Decision, 30 + 8 * at, format!("Decided: {}", text::line(decision, LINE)));
    }
    for (at, summary) in history.summaries.iter().rev().take(SUMMARIES).enumerate() {
        let text = format!("Iterations {} to {}: {}", summary.from, summary.to, text::line(&summary.text, LONG));
        facts.add(Sort::Summary, 34 + 20 * at, text);
    }
    learnings(&mut facts, context);
    files(&mut facts, &context.session);
    project(&mut facts, &context.project);
    facts.0
}

struct FactList(Vec<Fact>);

impl FactList {
    /// Adds a fact unless it is a duplicate. Returns the fact if it was added.
    fn add(&mut self, sort: Sort, rank: usize, text: String) -> Option<&mut Fact> {
        if self.0.iter().any(|fact| fact.text == text) {
            return None;
        }
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        self.0.push(Fact { sort, rank, text, learning: None, identity: None });
        self.0.last_mut()
    }
}

/// Returns the line with the session's figures.
pub(super) fn session_line(session: &LoopProgress) -> String {
    let done = if session.completion.is_finite() { session.completion.clamp(0.0, 1.0) * 100.0 } else { 0.0 };
    let iteration = session.max_iterations.bounded_progress(session.iteration);
    let mut line = format!("Now: iteration {iteration}, {done:.0} % complete as measured");
    let minutes = session.elapsed_ms / 60_000;
    let spent = [
        (minutes > 0).then(|| format!("{minutes} min")),
        (session.cost.0 > 0).then(|| session.cost.to_string()),
        (session.tokens > 0).then(|| format!("{} thousand tokens", session.tokens.div_ceil(1000))),
    ];
    let spent: Vec<String> = spent.into_iter().flatten().collect();
    if !spent.is_empty() {
        line.push_str(&format!("; {} spent", spent.join(", ")));
    }
    line.push('.');
    let by = [&session.backend, &session.model].map(|name| text::line(name, 60));
    let by: Vec<&str> = by.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    if !by.is_empty() {
        line.push_str(&format!(" Run by {}.", by.join(", ")));
    }
    line
}

/// Adds distinct approaches without a gain, newest first, and errors, most frequent first.
fn failures(facts: &mut FactList, context: &Context) {
    let newest = context.history.tries.last().map_or(0, |tried| tried.iteration);
    let mut failures: Vec<String> = Vec::new();
    for tried in context.history.tries.iter().rev().filter(|tried| tried.gain < BREAKTHROUGH) {
        let what = clause(&tried.approach, 120);
        if failures.contains(&what) {
            continue;
        }
        if failures.len() >= FAILED {
            break;
        }
        let fell = if tried.gain < -0.005 {
            format!("; completion fell by {:.0} points", -tried.gain * 100.0)
        } else {
            String::new()
        };
        let age = (newest.saturating_sub(tried.iteration) as usize).min(20);
        let outcome = clause(&tried.outcome, 100);
        let line = format!("Tried in iteration {}: {what}; {outcome}{fell}.", tried.iteration);
        facts.add(Sort::Failed, 2 + 6 * age, line);
        failures.push(what);
    }
    let mut errors: Vec<_> = context.session.errors.iter().collect();
    errors.sort_by_key(|error| std::cmp::Reverse((error.last, error.times)));
    for (at, error) in errors.into_iter().take(ERRORS).enumerate() {
        let words = text::line(&error.text, LINE);
        let seen = match error.times {
            0 | 1 => format!("in iteration {}", error.last),
            times => format!("in {times} iterations, last in iteration {}", error.last),
        };
        if let Some(added) = facts.add(Sort::Failed, 3 + 8 * at, format!("Error {seen}: {words}")) {
            added.identity = Some(words);
        }
    }
}

/// Adds approaches with a gain, largest gain first.
fn breakthroughs(facts: &mut FactList, context: &Context) {
    let mut best: Vec<_> = context.history.tries.iter().filter(|tried| tried.gain >= BREAKTHROUGH).collect();
    best.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    for (at, tried) in best.into_iter().take(BREAKTHROUGHS).enumerate() {
        let points = tried.gain.min(1.0) * 100.0;
        let what = clause(&tried.approach, 160);
        let line = format!("Worked in iteration {}: {what}; completion rose by {points:.0} points.", tried.iteration);
        facts.add(Sort::Breakthrough, 4 + 8 * at, line);
    }
}

/// Adds learnings, highest confidence first.
fn learnings(facts: &mut FactList, context: &Context) {
    let mut known: Vec<_> = context.recall.iter().filter(|learning| learning.confidence.is_finite()).collect();
    known.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    for (at, learning) in known.into_iter().take(LEARNINGS).enumerate() {
        let sort = match learning.kind {
            LearningKind::Strategy => "Worked in earlier loops",
            LearningKind::Antipattern => "Failed in earlier loops",
            LearningKind::Estimate => "Usual here",
            LearningKind::Convention => "Custom here",
        };
        let sure = learning.confidence.clamp(0.0, 1.0) * 100.0;
        let line = format!("{sort} ({sure:.0} % sure): {}", text::line(&learning.text, LINE));
        if let Some(added) = facts.add(Sort::Learning, 14 + 5 * at, line) {
            added.learning = Some(learning.id.clone());
        }
    }
}

/// Adds the changed files as one line, most frequently changed first.
fn files(facts: &mut FactList, session: &LoopProgress) {
    let mut files: Vec<_> = session.files.iter().collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.times));
    let named: Vec<String> = files
        .iter()
        .take(FILES)
        .map(|file| match file.times {
            0 | 1 => text::line(&file.path, 100),
            times => format!("{} ({times} times)", text::line(&file.path, 100)),
        })
        .collect();
    if !named.is_empty() {
        let more = files.len().saturating_sub(FILES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        facts.add(Sort::Files, 26, format!("Changed so far: {}{more}.", named.join(", ")));
    }
}

fn project(facts: &mut FactList, project: &Project) {
    let mut add = |rank: usize, name: &str, value: &str, most: usize| {
        let value = text::line(value, most);
        if !value.is_empty() {
            facts.add(Sort::Project, rank, format!("{name}: {value}"));
        }
    };
    add(20, "Tests", &project.tests, LINE);
    add(22, "Build", &project.build, LINE);
    add(24, "Based on branch", &project.branch, 100);
    add(28, "From the repository's guide", &project.guide, LONG);
    add(60, "Tree", &project.outline, LONG);
}

/// Returns a text for use in the middle of a sentence: on one line, without a full stop.
fn clause(words: &str, characters: usize) -> String {
    text::line(words, characters).trim_end_matches(['.', ' ']).to_owned()
}
