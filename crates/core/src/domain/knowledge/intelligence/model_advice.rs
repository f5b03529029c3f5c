//! A model's advice for a prompt, sanitized so that it cannot imitate or close parts of the prompt.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::generated_prompt::{GeneratedPrompt, PromptUrgency};
use crate::domain::knowledge::text;
use crate::domain::trust::sanitize;

/// Maximum length, in characters.
const CHARACTERS: usize = 2_400;
/// Maximum number of lines.
const LINES: usize = 30;
/// Maximum number of focus areas, and maximum length of one, in characters.
const POINTS: (usize, usize) = (5, 160);
/// Number of bytes read from an answer.
const READ: usize = 64 * 1024;

/// Lines that imitate a speaker's turn, or parts of the prompt that only the service writes.
static PRETENDS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)^[\s>*_`\#\-+.\d)\]\[|~]*(?:
            (?:begin|end)\b.*[0-9a-f]{8}
            |(?:override|warning|system|assistant|user|human|developer|tool|important|note\ from|instructions?)
                [\s*_`]*:
            |(?:rules|loop|task|checks|what\ fails\ now|guidance\ of\ maintainers?|review\ of\ the\ pull\ request
                |failing\ ci|merge\ conflicts|report|orders|advice\ for\ this\ iteration|how\ to\ go\ about\ it)
                [\s*_`:]*$
        )",
    )
    .expect("a constant pattern")
});

/// Sentences that instruct the agent to break rules.
static FORBIDDEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)
        \b(?:delet|remov|skip|disabl|weaken|loosen|bypass|silenc|ignor|drop|lower|xfail|comment(?:ing)?\s+out|mut(?:e|ing)\b)
            \w*(?:\s+[\w'`_-]+){0,3}\s+`?(?:tests?|assert\w*|checks?|thresholds?|lint\w*|rules?|instructions?|guidance)\b
        |\b(?:tests?|assert\w*|checks?|thresholds?|rules?|instructions?)\b(?:\s+[\w']+){0,3}\s+
            (?:skipped|deleted|removed|disabled|ignored|weakened|lowered|dropped)\b
        |\b(?:git\s+(?:push|commit|checkout|switch|remote|config|rebase|reset)|force[\s-]push
            |(?:may|can|should|must|please|then|and)\s+(?:push|commit))\b
        |\b(?:print|find|send|copy|look\s+for|export|upload)\w*(?:\s+\S+){0,4}\s+
            (?:credentials?|passwords?|api[\s_-]?keys?|access\s+tokens?|secrets?)\b|\.ssh\b|\bid_rsa\b
        |\b(?:curl|wget|scp)\s|https?://
        |\b(?:no\s+longer|not)\s+(?:apply|applies|binding|bound)\b
        ",
    )
    .expect("a constant pattern")
});

/// A model's advice for one iteration, sanitized.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelAdvice {
    /// Advice, as lines of simple Markdown.
    pub advice: String,
    /// Focus areas, one per line.
    pub focus: Vec<String>,
    /// Number of removed lines and sentences.
    pub removed: usize,
}

impl ModelAdvice {
    /// Sanitizes an answer: removes hidden text, headings, imitated parts of the prompt, forbidden instructions, and text
    /// beyond the limits. `None` if no text remains.
    pub fn of(generated: &GeneratedPrompt) -> Option<Self> {
        let mut removed = 0;
        let mut advice = String::new();
        for part in [&generated.system_context, &generated.prompt] {
            harmless(part, &mut advice, &mut removed);
        }
        let mut focus = Vec::new();
        for point in &generated.focus_areas {
            let point = text::line(point, POINTS.1);
            if focus.len() >= POINTS.0 || is_out_of_place(&point) {
                removed += 1;
            } else if !point.is_empty() {
                focus.push(point);
            }
        }
        let advice = advice.trim();
        (!advice.is_empty() || !focus.is_empty()).then(|| Self {
            advice: format!("{}{advice}", pressed(generated.urgency)).trim().to_owned(),
            focus,
            removed,
        })
    }
}

/// Returns the service's sentence for a high or critical urgency; empty for other urgencies.
fn pressed(urgency: PromptUrgency) -> &'static str {
    match urgency {
        PromptUrgency::Low | PromptUrgency::Normal => "",
        PromptUrgency::High => "Little time or budget remains: leave out optional work.\n",
        PromptUrgency::Critical => "The work has to be complete after this iteration: leave out all optional work.\n",
    }
}

/// Whether a line imitates the service or a speaker's turn, or instructs the agent to break rules.
pub(super) fn is_out_of_place(line: &str) -> bool {
    PRETENDS.is_match(line) || FORBIDDEN.is_match(line)
}

/// Appends the permitted parts of a text to `out`, within the total limits.
fn harmless(written: &str, out: &mut String, removed: &mut usize) {
    let read = &written[..written.floor_char_boundary(READ)];
    let (shown, comments) = sanitize::without_comments(read);
    *removed += comments + usize::from(read.len() < written.len());
    for line in text::without_tags(&shown).lines() {
        let plain = line.trim_start_matches([' ', '#', '>']).trim_end();
        let rule = !plain.is_empty() && plain.chars().all(|c| matches!(c, '=' | '-' | '*' | '_' | ' '));
        // Remove fences, which would have to be closed; code is readable without them.
        let fence = plain.starts_with("```");
        if plain.is_empty() || rule || fence {
            continue;
        }
        let tag = ["(ralph-", "(/ralph-"].iter().any(|start| plain.starts_with(start));
        let too_much = out.lines().count() >= LINES || out.chars().count() + plain.chars().count() > CHARACTERS;
        if too_much || tag || PRETENDS.is_match(plain) {
            *removed += 1;
            continue;
        }
        // Also check text that moves to the line's start when a sentence is removed.
        let allowed: Vec<&str> = plain.split_inclusive(". ").filter(|sentence| !is_out_of_place(sentence)).collect();
        *removed += plain.split_inclusive(". ").count() - allowed.len();
        let allowed = allowed.concat();
        if !allowed.trim().is_empty() {
            out.push_str(allowed.trim_end());
            out.push('\n');
        }
    }
}
