//! Extracts a report from an agent's last message if the agent wrote no report. Extracts only plain statements.

use std::sync::LazyLock;

use regex::Regex;

use super::text;
use crate::domain::loops::Iteration;
use crate::domain::model::task::AgentReport;

/// Number of bytes read from the end of the message.
pub(super) const READ_BYTES: usize = 16 * 1024;
/// Maximum length of each text in the report, in characters.
pub(super) const TEXT_CHARACTERS: usize = 300;
/// Maximum number of items in each list of the report.
const ITEMS: usize = 5;

/// Sentences that unconditionally claim completion.
static DONE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)^(?:✅|☑|✔|done[.!]?\s|great[,!]?\s|ok(?:ay)?[,.]?\s|summary:?\s|result:?\s|status:?\s|so\s|and\s|now\s)*
        (?:
            (?:the\s+|this\s+|your\s+)?(?:task|work|job|issue|feature|fix|refactor(?:ing)?|migration|implementation)
                \s+(?:is|has\s+been)\s+(?:now\s+|fully\s+)*(?:done|complete|completed|finished|resolved|implemented)
            |(?:all|every)\s+(?:of\s+the\s+|the\s+)?(?:\d+\s+)?(?:tests?|checks?)
                (?:\s+and\s+(?:all\s+)?(?:the\s+)?(?:lints?|tests?|checks?))?\s+(?:now\s+)?(?:pass(?:es|ed)?|hold|succeed|are\s+(?:now\s+)?(?:passing|green))
            |everything\s+(?:now\s+)?(?:passes|works|is\s+(?:done|green|complete))
            |i(?:'ve|\s+have)\s+(?:now\s+)?(?:successfully\s+)?(?:completed|finished|resolved)\s+(?:the\s+|this\s+|your\s+)?(?:task|work|issue|job|feature|migration)
            |task\s+complete[d]?\b
        )",
    )
    .expect("a constant pattern")
});

/// Words that retract, postpone or restrict a claim.
static HEDGED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)\b(?:not|never|no\s+longer|cannot|can't|isn't|aren't|doesn't|don't|won't|haven't|hasn't|wasn't|couldn't
            |almost|nearly|mostly|partly|partially|except|apart\s+from|other\s+than|but|however|although|though|unless
            |if|once|when|until|after|should|would|could|might|may|will|hopefully|probably|likely|assum\w*|expect\w*
            |remain\w*|still|todo|left|yet|pending|only|some|most|before|need\w*|unable|fail\w*|skip\w*|locally|unverified
            |untested)\b|\?",
    )
    .expect("a constant pattern")
});

/// Sentences that name a blocker.
static BLOCKED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)
        ^(?:blockers?|blocked)\s*:\s*\S
        |\b(?:i\s+(?:am|was|'m)|i'm|we\s+are|work\s+is|is|am)\s+blocked\b
        |\bblocked\s+(?:by|on)\b
        |^unable\s+to\b
        |\b(?:i|we)\s+(?:cannot|can't|could\s+not|couldn't|was\s+unable|were\s+unable|am\s+unable|was\s+not\s+able)\b
        |\bpermission\s+denied\b|\bread-only\s+file\s+system\b
        |\b(?:network|internet)\s+(?:access\s+)?(?:is\s+)?(?:not\s+available|unavailable|closed|blocked|unreachable)
        |\bis\s+not\s+installed\b|\bcommand\s+not\s+found\b",
    )
    .expect("a constant pattern")
});

/// Headings and line starts that introduce next steps.
static NEXT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)^(?:next\s+steps?|remaining(?:\s+work)?|what(?:'s|\s+is)\s+left|left\s+to\s+do|to-?dos?|still\s+to\s+do|next)\s*:?\s*$")
        .expect("a constant pattern")
});
static NEXT_INLINE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)^(?:next\s+steps?|remaining|todo|still\s+to\s+do|next)\s*:\s*(\S.*)$").expect("a constant pattern")
});

/// Headings that introduce blockers.
static BLOCKERS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)^(?:open\s+)?blockers?\s*:?\s*$").expect("a constant pattern"));

/// Completed percentage of the whole task. Percentages of a part, or of coverage, do not match.
static PERCENT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)\b(?:completion|overall\s+progress|progress|completed)\s*(?:is|:|=|at|of|\s)\s*~?(\d{1,3}(?:\.\d+)?)\s*%
        |(?:task|work|overall|issue|i)\b[^.%]{0,30}?\b(\d{1,3}(?:\.\d+)?)\s*%\s+(?:complete|completed|done|finished)\b",
    )
    .expect("a constant pattern")
});

/// Returns the report of an iteration, or a report extracted from its last message if there is none.
pub fn reported(iteration: &Iteration) -> AgentReport {
    if iteration.report == AgentReport::default() { report_of(&iteration.message) } else { iteration.report.clone() }
}

/// Extracts a report from a message with patterns. The report claims completion only if one sentence does so unconditionally
/// and no sentence contradicts it. An empty message gives an empty report.
pub fn report_of(message: &str) -> AgentReport {
    let lines = prose(message);
    let mut report = AgentReport::default();
    let mut section = Section::None;
    let (mut done, mut doubts) = (false, false);
    let mut shares = Vec::new();
    for line in &lines {
        let (line, item) = (line.text.as_str(), line.item);
        let opens = |words: &str| match (NEXT.is_match(words), BLOCKERS.is_match(words)) {
            (true, _) => Some(Section::Next),
            (_, true) => Some(Section::Blockers),
            _ => None,
        };
        if let Some(opened) = opens(line) {
            section = opened;
            continue;
        }
        match section {
            Section::Next if item => add_item(&mut report.next_steps, line),
            Section::Blockers if item && !nothing(line) => add_item(&mut report.blockers, line),
            Section::Next | Section::Blockers if item => {}
            _ => section = Section::None,
        }
        if section != Section::None {
            continue;
        }
        if let Some(step) = NEXT_INLINE.captures(line).and_then(|found| found.get(1)) {
            add_item(&mut report.next_steps, step.as_str());
            continue;
        }
        for sentence in sentences(line) {
            let hedged = HEDGED.is_match(sentence);
            if BLOCKED.is_match(sentence) {
                add_item(&mut report.blockers, sentence);
            } else if DONE.is_match(sentence) {
                (done, doubts) = (done | !hedged, doubts | hedged);
            }
            let share = |found: regex::Captures<'_>| found.get(1).or(found.get(2))?.as_str().parse::<f64>().ok();
            shares.extend(PERCENT.captures_iter(sentence).filter_map(share).filter(|share| *share <= 100.0));
            doubts |= speaks_against(sentence);
            section = opens(sentence).unwrap_or(section);
        }
    }
    report.next_steps.retain(|step| !nothing(step));
    report.completion_signal = done && !doubts && report.blockers.is_empty() && report.next_steps.is_empty();
    // Two different figures count as no figure.
    shares.dedup();
    if let [share] = shares[..] {
        report.completion_percentage = Some(share);
        report.completion_signal &= share >= 100.0;
    }
    let stated =
        lines.iter().find(|line| !line.item && !line.heading && line.text.len() > 10 && !line.text.ends_with(':'));
    report.summary = stated.or(lines.first()).map(|line| text::line(&line.text, TEXT_CHARACTERS)).unwrap_or_default();
    report
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    None,
    Next,
    Blockers,
}

/// Line of prose.
struct ProseLine {
    text: String,
    item: bool,
    heading: bool,
}

/// Returns the prose lines at the end of a message, without code, quotations and Markdown markup.
fn prose(message: &str) -> Vec<ProseLine> {
    let message = text::tail(message, READ_BYTES);
    let mut lines = Vec::new();
    let mut fence = false;
    for line in message.lines() {
        let line = line.trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            fence = !fence;
            continue;
        }
        if fence || line.is_empty() || line.starts_with(['>', '|']) {
            continue;
        }
        let bare = line.trim_start_matches(['-', '*', '+', '•']);
        let numbered = bare.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = numbered.len() < bare.len() && numbered.starts_with(['.', ')']);
        let item = (bare.len() < line.len() && bare.starts_with(' ')) || number;
        let body = if number {
            &numbered[1..]
        } else if item {
            bare
        } else {
            line
        };
        let heading = line.starts_with('#') || (line.starts_with("**") && line.ends_with("**"));
        let body = body.trim().trim_start_matches("[ ] ").trim_start_matches('#').replace("**", "").replace("__", "");
        let body = body.trim();
        if !body.is_empty() {
            lines.push(ProseLine { text: body.to_owned(), item, heading });
        }
    }
    lines
}

/// Splits a line into sentences, which end with a punctuation mark and white space.
fn sentences(line: &str) -> impl Iterator<Item = &str> {
    let ends = line.match_indices(['.', '!', '?', ';']).map(|(at, _)| at + 1);
    let ends = ends.filter(|end| line[*end..].starts_with(char::is_whitespace)).chain([line.len()]);
    let mut from = 0;
    ends.map(move |end| line[std::mem::replace(&mut from, end)..end].trim()).filter(|sentence| sentence.len() > 2)
}

/// Whether any sentence in the message states a failure or remaining work.
pub(super) fn is_doubted(message: &str) -> bool {
    prose(message).iter().any(|line| sentences(&line.text).any(speaks_against))
}

/// Whether a sentence states a failure or remaining work.
fn speaks_against(sentence: &str) -> bool {
    static AGAINST: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?ix)\b(?:tests?|checks?|build|lint\w*|errors?|cases?|it)\b[^.]{0,40}\b(?:still\s+fail\w*|(?:is|are)\s+(?:still\s+)?failing|fails?\b|not\s+pass\w*|does\s+not\s+(?:pass|compile|build))
            |\bstill\s+(?:fail\w*|broken|missing|to\s+do|needs?)\b
            |\b(?:remains?\s+to|remaining\s+(?:work|tests?|failures?|errors?)|not\s+(?:yet\s+)?(?:done|complete|finished|implemented))\b
            |\b(?:i|we)\s+(?:did\s+not|didn't|have\s+not|haven't)\s+(?:run|verify|verified|test|tested|check|checked|finish|complete)",
        )
        .expect("a constant pattern")
    });
    static NONE_FAIL: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)\b(?:no|0|zero|none\s+of)\b[^.]{0,30}\b(?:fail|remain|error)").expect("pattern")
    });
    AGAINST.is_match(sentence) && !NONE_FAIL.is_match(sentence)
}

/// Whether a list item states that there are no items.
fn nothing(item: &str) -> bool {
    let word = item.trim_end_matches(['.', '!']).to_ascii_lowercase();
    matches!(word.as_str(), "none" | "n/a" | "nothing" | "no blockers" | "nothing left" | "no next steps" | "-")
}

/// Adds a text to a list as one line, unless the list is full or already contains it.
pub(super) fn add_item(items: &mut Vec<String>, text: &str) {
    let line = text::line(text, TEXT_CHARACTERS);
    if items.len() < ITEMS && !line.is_empty() && !items.contains(&line) {
        items.push(line);
    }
}

#[cfg(test)]
mod tests;
