//! Wording and escaping shared by the services.

use super::{Notice, Occasion, PLAN_APPROVAL};
use crate::domain::model::ids::Timestamp;
use crate::domain::supervision::oversight::EscalationLevel;
use crate::domain::trust::sanitize::visible;

/// Escapes foreign text to one line without invisible characters and without automatic links.
pub(super) fn line(text: &str) -> String {
    let line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace("://", "[:]//")
}

/// Escapes each character of `text` by `form` and cuts the result to at most `most` UTF-16 units. Services do not document
/// the unit of their limits; UTF-16 is the strictest.
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

/// Lists at most `count` foreign texts, one per line after `mark`, in at most `most` characters.
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

/// Returns the headline: action needed, cause and loop. It contains no foreign text.
pub(super) fn headline(notice: &Notice) -> String {
    let reminder = if notice.occasion == Occasion::Reminder { "Reminder: " } else { "" };
    let action = match notice.level {
        _ if notice.occasion == Occasion::Resolved => "Resolved",
        EscalationLevel::Info if notice.cause == PLAN_APPROVAL => "ralph waits for an approval",
        EscalationLevel::Info => "ralph reports",
        EscalationLevel::Warning => "ralph warns",
        EscalationLevel::Critical => "ralph needs a decision",
        EscalationLevel::Emergency => "ralph stopped work",
    };
    let cause = word(&notice.cause).replace('_', " ");
    format!("{reminder}{action}: {cause} (loop {})", word(notice.loop_id.as_str()))
}

/// Removes everything but ASCII letters, digits, hyphens and underscores.
fn word(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(60).collect()
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

/// Escapes an address so that it cannot end a link early; `None` if it is no http(s) address or too long.
pub(super) fn address(url: &str) -> Option<String> {
    /// Maximum length of a linked address; services cut or refuse longer ones.
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
pub(super) fn moment(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

/// Lists the recommendations, then the replies.
pub(super) fn next_actions(notice: &Notice) -> Vec<String> {
    let advice = notice.recommendations.iter().map(|text| line(text));
    advice.chain(notice.replies.iter().map(|reply| line(&format!("{} — {}", reply.usage, reply.what)))).collect()
}
