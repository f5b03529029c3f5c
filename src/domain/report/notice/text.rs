//! Words and escapes that the services share.

use super::{Notice, Occasion};
use crate::domain::model::ids::Timestamp;
use crate::domain::supervision::oversight::EscalationLevel;
use crate::domain::trust::sanitize::visible;

/// Foreign text on one line: no invisible characters, and no address that a program would make a link of.
pub(super) fn line(text: &str) -> String {
    let line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace("://", "[:]//")
}

/// Puts `text` together, each character in the `form` that the service wants, and cuts it so that it has at most `most`
/// characters. Services do not say what they count; UTF-16 units are the most that it could be.
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

/// As it is.
pub(super) fn plain(c: char, out: &mut String) {
    out.push(c);
}

/// At most `count` foreign texts, each on a line of its own after `mark`, in at most `most` characters.
pub(super) fn list(
    items: impl IntoIterator<Item = String>,
    mark: &str,
    count: usize,
    most: usize,
    form: impl Fn(char, &mut String) + Copy,
) -> String {
    /// Longest line, in characters before they are escaped.
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

/// The first words: how urgent, why, and in which loop. All of it is ours.
pub(super) fn headline(notice: &Notice) -> String {
    let reminder = if notice.occasion == Occasion::Reminder { "reminder, " } else { "" };
    let level = level(notice.level).to_uppercase();
    format!("[ralph] {reminder}{level}: {} in {}", word(&notice.cause), word(notice.loop_id.as_str()))
}

/// Nothing but letters, digits, hyphens and underscores.
fn word(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(60).collect()
}

/// A level in a word.
pub fn level(level: EscalationLevel) -> &'static str {
    match level {
        EscalationLevel::Info => "info",
        EscalationLevel::Warning => "warning",
        EscalationLevel::Critical => "critical",
        EscalationLevel::Emergency => "emergency",
    }
}

/// `owner/name#42`.
pub(super) fn place(notice: &Notice) -> String {
    line(&format!("{}#{}", notice.repo.full_name(), notice.issue))
}

/// An address of the forge that ends no link of any service early; `None` for what is none.
pub(super) fn address(url: &str) -> Option<String> {
    /// Longest address that is linked to; services cut or refuse longer ones.
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

/// A moment as RFC 3339 has it.
pub(super) fn moment(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

/// What a person may do: advice, then the replies.
pub(super) fn ways_on(notice: &Notice) -> Vec<String> {
    let advice = notice.recommendations.iter().map(|text| line(text));
    advice.chain(notice.replies.iter().map(|reply| line(&format!("{} — {}", reply.usage, reply.what)))).collect()
}
