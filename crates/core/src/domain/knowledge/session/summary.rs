//! Extracts a summary from turns and events without a model.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use regex::Regex;

use super::answer::cut;
use super::{ErrorPattern, EventKind, SessionEvent, SessionSummary, SessionTurn, TurnRole};
use crate::domain::model::ids::Timestamp;
use crate::domain::model::quantity::IterationLimit;
use crate::domain::model::signature::normalize;

/// Maximum number of decisions in a summary.
const MAX_DECISIONS: usize = 8;
/// Maximum number of errors in a summary.
const MAX_ERRORS: usize = 6;
/// Maximum number of files in a summary.
const MAX_FILES: usize = 20;
/// Maximum number of breakthroughs and of approaches in the text.
const MAX_LINES: usize = 12;
/// Maximum length of a quoted sentence, in characters.
const MAX_SENTENCE: usize = 200;
/// Number of bytes of an answer that are searched for decisions.
const MAX_ANSWER: usize = 64 * 1024;

/// Words that mark a decision.
static DECISION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:decid(?:ed|ing)|decision|chose|choosing|opted|instead of|rather than|switch(?:ed|ing) to|going with|went with|settled on|gave up|reverted|will use|using .{1,60} because)\b",
    )
    .expect("constant pattern")
});
/// End of a sentence.
static END: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[.!?]\s").expect("constant pattern"));
/// Markup at the start of a Markdown line.
static LEAD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*(?:[-*+>]+|#{1,6}|\d+[.)])?\s*").expect("constant pattern"));

/// Returns the number of iterations per summary in a loop of at most `limit` iterations: `interval`, but at most half of the
/// limit, so that the agent receives a summary before the loop ends.
pub fn interval_within(interval: u32, limit: IterationLimit) -> u32 {
    limit.count().map_or(interval, |count| interval.min(count.div_ceil(2))).max(1)
}

/// Returns the range of iterations to summarize now: a complete interval, or the rest at the end of the loop; `None` if there is
/// nothing to summarize. `done` is the newest ended iteration, and `summed` the last one with a summary.
pub fn due(done: u32, summed: u32, interval: u32, ended: bool) -> Option<RangeInclusive<u32>> {
    let open = done.saturating_sub(summed);
    (open >= interval.max(1) || (ended && open > 0)).then(|| summed + 1..=done)
}

/// Summarizes the iterations `from..=to` from their turns and events, and ignores other iterations. The order is:
/// breakthroughs, decisions, approaches, errors by signature, files. Deterministic.
pub fn extract(
    from: u32,
    to: u32,
    turns: &[SessionTurn],
    events: &[SessionEvent],
    made_at: Timestamp,
) -> SessionSummary {
    let within = |iteration: u32| (from..=to).contains(&iteration);
    let mut turns: Vec<&SessionTurn> = turns.iter().filter(|turn| within(turn.iteration)).collect();
    turns.sort_by_key(|turn| (turn.iteration, turn.attempt, turn.started));
    let mut events: Vec<&SessionEvent> = events.iter().filter(|event| within(event.iteration)).collect();
    events.sort_by_key(|event| (event.iteration, event.at));

    let decisions = decisions(&turns, &events);
    let errors = errors(&turns, &events);
    let (files, changed) = files(&events);
    let sections = [
        ("Breakthroughs", breakthroughs(&events)),
        ("Decisions", decisions.clone()),
        ("Approaches", approaches(&turns)),
        ("Errors", errors.iter().map(error_line).collect()),
        ("Files", files.iter().zip(&changed).map(|(file, times)| format!("{file} ({times}x)")).collect()),
    ];
    let mut text = if from == to { format!("Iteration {from}.") } else { format!("Iterations {from} to {to}.") };
    for (title, lines) in sections.iter().filter(|(_, lines)| !lines.is_empty()) {
        text.push_str(&format!("\n{title}:"));
        for line in lines {
            text.push_str(&format!("\n- {line}"));
        }
    }
    if turns.is_empty() && events.is_empty() {
        text.push_str("\nNothing was recorded.");
    }
    SessionSummary { from, to, text, decisions, files, errors, extractive: true, made_at }
}

/// Returns the names of checks that first failed and finally passed.
fn breakthroughs(events: &[&SessionEvent]) -> Vec<String> {
    let mut failing: BTreeMap<&str, u32> = BTreeMap::new();
    let mut found: Vec<(u32, String)> = Vec::new();
    for event in events.iter().filter(|event| event.kind == EventKind::Check) {
        let name = event.tool.as_deref().unwrap_or("check");
        if event.failed {
            failing.entry(name).or_insert(event.iteration);
            found.retain(|(_, line)| !line.starts_with(&format!("{name} ")));
        } else if let Some(since) = failing.remove(name) {
            let line = format!("{name} passes since iteration {} (failed since {since})", event.iteration);
            found.push((event.iteration, line));
        }
    }
    found.into_iter().map(|(_, line)| line).take(MAX_LINES).collect()
}

/// Returns agents' sentences that state a decision, directives of the overseer and of people, and changes of backend and
/// model. If there are many, returns the newest.
fn decisions(turns: &[&SessionTurn], events: &[&SessionEvent]) -> Vec<String> {
    let mut found: Vec<(u32, String)> = Vec::new();
    for turn in turns.iter().filter(|turn| turn.role == TurnRole::Agent) {
        let answer = &turn.response[..turn.response.floor_char_boundary(MAX_ANSWER)];
        let telling = sentences(answer).filter(|sentence| DECISION.is_match(sentence));
        found.extend(telling.map(|sentence| (turn.iteration, cut(sentence, MAX_SENTENCE))));
    }
    let ordered = [
        EventKind::Intervention,
        EventKind::Command,
        EventKind::Remark,
        EventKind::BackendSwitch,
        EventKind::ModelSwitch,
    ];
    for event in events.iter().filter(|event| ordered.contains(&event.kind)) {
        let first = sentences(&event.text).next().unwrap_or_default();
        found.push((event.iteration, format!("{}: {}", event.kind, cut(first, MAX_SENTENCE))));
    }
    found.sort_by_key(|(iteration, _)| *iteration);
    let mut seen: Vec<String> = Vec::new();
    for (iteration, sentence) in found {
        if !seen.iter().any(|known| known.ends_with(&sentence)) {
            seen.push(format!("{iteration}: {sentence}"));
        }
    }
    seen.split_off(seen.len().saturating_sub(MAX_DECISIONS))
}

/// Returns the agent's statements about its work in each iteration. If there are many, returns the newest.
fn approaches(turns: &[&SessionTurn]) -> Vec<String> {
    let agents = turns.iter().filter(|turn| turn.role == TurnRole::Agent);
    let mut found: Vec<String> = agents
        .filter_map(|turn| {
            let first = sentences(&turn.response[..turn.response.floor_char_boundary(MAX_ANSWER)]).next()?;
            Some(format!("{}: {}", turn.iteration, cut(first, MAX_SENTENCE)))
        })
        .collect();
    found.split_off(found.len().saturating_sub(MAX_LINES))
}

fn errors(turns: &[&SessionTurn], events: &[&SessionEvent]) -> Vec<ErrorPattern> {
    let errors = turns.iter().filter_map(|turn| Some((turn.iteration, turn.error.as_deref()?)));
    let happened = events.iter().filter(|event| event.failed).map(|event| {
        // The check's output follows on separate lines.
        let first = if event.kind == EventKind::Check { event.text.lines().next() } else { Some(event.text.as_str()) };
        (event.iteration, first.unwrap_or_default())
    });
    let mut patterns: BTreeMap<String, ErrorPattern> = BTreeMap::new();
    for (iteration, text) in errors.chain(happened) {
        let signature = normalize(text);
        if signature.is_empty() {
            continue;
        }
        let pattern =
            patterns.entry(signature.clone()).or_insert(ErrorPattern { signature, count: 0, iterations: Vec::new() });
        pattern.count = pattern.count.saturating_add(1);
        if let Err(at) = pattern.iterations.binary_search(&iteration) {
            pattern.iterations.insert(at, iteration);
        }
    }
    let mut patterns: Vec<ErrorPattern> = patterns.into_values().collect();
    patterns.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.signature.cmp(&b.signature)));
    patterns.truncate(MAX_ERRORS);
    patterns
}

fn error_line(pattern: &ErrorPattern) -> String {
    let iterations: Vec<String> = pattern.iterations.iter().map(u32::to_string).collect();
    format!("{}x {} (iterations {})", pattern.count, cut(&pattern.signature, MAX_SENTENCE), iterations.join(", "))
}

/// Returns the changed files, most frequently changed first, and the number of changes of each.
fn files(events: &[&SessionEvent]) -> (Vec<String>, Vec<u32>) {
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for path in
        events.iter().filter(|event| event.kind == EventKind::FileChange).filter_map(|event| event.path.as_deref())
    {
        let count = times.entry(path).or_default();
        *count = count.saturating_add(1);
    }
    let mut times: Vec<(&str, u32)> = times.into_iter().collect();
    times.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    times.into_iter().take(MAX_FILES).map(|(path, count)| (path.to_owned(), count)).unzip()
}

/// Returns the sentences of a text's prose, without list markers, headings, fences and code.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    let prose = text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced && !line.trim_start().starts_with('#')
    });
    prose.flat_map(|line| {
        let line = LEAD.find(line).map_or(line, |lead| &line[lead.end()..]);
        // A full stop within a word (`lib.rs`) does not end a sentence.
        let ends = END.find_iter(line).map(|end| end.end()).chain([line.len()]);
        ends.scan(0, |begin, end| Some((std::mem::replace(begin, end), end)))
            .map(|(begin, end)| line[begin..end].trim())
            .filter(|sentence| sentence.chars().any(char::is_alphanumeric))
            .collect::<Vec<_>>()
    })
}
