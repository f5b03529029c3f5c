//! Wording and escaping shared by the services.

use super::definition::Occasion;
use super::{Notice, PLAN_APPROVAL};
use crate::domain::model::ids::Timestamp;
use crate::domain::supervision::oversight::EscalationLevel;
use crate::domain::trust::sanitize::visible;

/// Returns foreign text on one line, without invisible characters and automatic links.
pub(super) fn line(text: &str) -> String {
    let line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace("://", "[:]//")
}

/// Escapes each character of `text` with `form`, and cuts the result to at most `most` UTF-16 units. Services do not document the
/// unit of their limits, and UTF-16 is the strictest.
pub(super) fn fitted(text: &str, most: usize, form: impl Fn(char, &mut String)) -> String {
    let (mut out, mut length, mut cut) = (String::new(), 0, 0);
    let mut piece = String::new();
    for c in text.chars() {
        piece.clear();
        form(c, &mut piece);
        length += piece.encode_utf16().count();
        if length > most {
            out.truncate(cut);
            out.push('…');
            return out;
        }
        out.push_str(&piece);
        if length < most {
            cut = out.len();
        }
    }
    out
}

/// Leaves a character unescaped.
pub(super) fn plain(c: char, out: &mut String) {
    out.push(c);
}

/// Lists at most `count` foreign texts, one per line after `mark`, with at most `most` characters in total.
pub(super) fn list(
    items: impl IntoIterator<Item = String>,
    mark: &str,
    count: usize,
    most: usize,
    form: impl Fn(char, &mut String) + Copy,
) -> String {
    /// Maximum length of a line before escaping, in characters.
    const LINE_MAX: usize = 300;
    let mut out = String::new();
    for item in items.into_iter().take(count) {
        let item = fitted(&item, LINE_MAX, plain);
        let item = fitted(&item, most, form);
        let separator = if out.is_empty() { "" } else { "\n" };
        let added = format!("{separator}{mark}{item}");
        if out.encode_utf16().count() + added.encode_utf16().count() > most {
            break;
        }
        out.push_str(&added);
    }
    out
}

/// Returns the headline: state, issue and reason, without markup, mentions and links.
pub(super) fn headline(notice: &Notice) -> String {
    let state = match notice.level {
        EscalationLevel::Info if notice.cause == PLAN_APPROVAL => "ralph needs an approval on",
        EscalationLevel::Info => "ralph reports on",
        EscalationLevel::Warning => "ralph warns about",
        EscalationLevel::Critical => "ralph needs a decision on",
        EscalationLevel::Emergency => "ralph stopped work on",
    };
    with_issue_and_reason(state, notice)
}

/// Returns the subject of a mail: state, issue and reason.
pub(super) fn subject(notice: &Notice) -> String {
    let state = match notice.level {
        EscalationLevel::Info if notice.cause == PLAN_APPROVAL => "Approval needed on",
        EscalationLevel::Info => "Report on",
        EscalationLevel::Warning => "Warning about",
        EscalationLevel::Critical => "Decision needed on",
        EscalationLevel::Emergency => "Work stopped on",
    };
    format!("[ralph-bot] {}", with_issue_and_reason(state, notice))
}

fn with_issue_and_reason(state: &str, notice: &Notice) -> String {
    let reason = if notice.reason.is_empty() { notice.cause.replace('_', " ") } else { notice.reason.clone() };
    let issue = safe(&format!("{}#{}", notice.repo.full_name(), notice.issue), "#/._-");
    let reason = safe(&reason, " %.,-'/");
    match notice.occasion {
        Occasion::Raised => format!("{state} {issue}: {reason}"),
        Occasion::Reminder => format!("Reminder: {state} {issue}: {reason}"),
        Occasion::Resolved => format!("Resolved: {issue} ({reason})"),
    }
}

/// Returns a text's letters, digits and characters in `allowed`, at most 120 characters. No service converts them to a
/// mention or a link.
fn safe(text: &str, allowed: &str) -> String {
    line(text).chars().filter(|c| c.is_alphanumeric() || allowed.contains(*c)).take(120).collect()
}

/// Returns the name of a level.
pub fn level(level: EscalationLevel) -> &'static str {
    match level {
        EscalationLevel::Info => "info",
        EscalationLevel::Warning => "warning",
        EscalationLevel::Critical => "critical",
        EscalationLevel::Emergency => "emergency",
    }
}

/// Formats the issue as `owner/name#42`.
pub(super) fn place(notice: &Notice) -> String {
    line(&format!("{}#{}", notice.repo.full_name(), notice.issue))
}

/// Escapes a URL so that it cannot end a link early; `None` if it is not an http(s) URL or is too long.
pub(super) fn address(url: &str) -> Option<String> {
    /// Maximum length of a linked URL, in bytes. Services cut or reject longer URLs.
    const LONGEST: usize = 1_000;
    if !(url.starts_with("https://") || url.starts_with("http://")) || url.len() > LONGEST {
        return None;
    }
    let mut out = String::with_capacity(url.len());
    for byte in url.bytes() {
        if byte.is_ascii_graphic() && !b"<>|()[]\"'`\\^{}*".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    Some(out)
}

/// Formats a time as RFC 3339.
pub fn moment(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

/// Returns the evidence as lines; empty if the notice is resolved.
pub(super) fn evidence(notice: &Notice) -> impl Iterator<Item = String> {
    let open = notice.occasion != Occasion::Resolved;
    notice.evidence.iter().filter(move |_| open).map(|text| line(text))
}

/// Returns the recommendations followed by the replies; empty if the notice is resolved.
pub(super) fn next_actions(notice: &Notice) -> Vec<String> {
    if notice.occasion == Occasion::Resolved {
        return Vec::new();
    }
    let advice = notice.recommendations.iter().map(|text| line(text));
    advice.chain(notice.replies.iter().map(|reply| line(&format!("{} — {}", reply.usage, reply.what)))).collect()
}
