//! Discord: each notice is one embed.
//!
//! Limits: 256 characters per title, 4,096 per description, 1,024 per field value, 2,048 per footer, 6,000 per embed. An empty
//! `allowed_mentions.parse` disables mentions. A backslash escapes Markdown, links and mentions.

use serde_json::{Value, json};

use super::definition::{ChannelAddress, ChannelDefinition, NoticeBody, NoticeTransport, Occasion};
use super::text::{address, evidence, fitted, headline, line, list, moment, next_actions, place};
use crate::domain::supervision::oversight::EscalationLevel;

const TITLE_MAX: usize = 256;
const DESCRIPTION_MAX: usize = 1_500;
const VALUE_MAX: usize = 1_000;
const LINES: usize = 10;
/// Footer of a message that may exist twice, because a webhook cannot search for the first one.
const REPEATED: &str =
    "posted again because an earlier attempt failed or its answer was lost; a copy above this one is out of date";

pub(super) const CHANNEL: ChannelDefinition = ChannelDefinition {
    address: ChannelAddress::Secret,
    transport: NoticeTransport::DiscordMessage,
    ..ChannelDefinition::new("discord", body)
};

fn body(NoticeBody { notice, answer, again, .. }: NoticeBody<'_>) -> Value {
    let (title, happened) = (line(&notice.title), line(&notice.what_happened));
    let description = format!("{}\n{}", escaped(&title, VALUE_MAX), escaped(&happened, DESCRIPTION_MAX));
    let mut fields = vec![field("Issue", linked(&notice.issue_url, &place(notice)))];
    if let Some(answer) = answer.and_then(address) {
        fields.push(field("Answer", format!("[on the escalation issue]({answer})")));
    }
    if let Some(page) = notice.dashboard_url.as_deref().and_then(address).filter(|page| page.len() < VALUE_MAX / 2) {
        fields.push(field("Dashboard", format!("[loop]({page})")));
    }
    let evidence = list(evidence(notice), "• ", LINES, VALUE_MAX, escape);
    if !evidence.is_empty() {
        fields.push(field("Evidence", evidence));
    }
    let ways = list(next_actions(notice), "• ", LINES, VALUE_MAX, escape);
    if !ways.is_empty() {
        fields.push(field("What to do", ways));
    }
    let color = match notice.level {
        _ if notice.occasion == Occasion::Resolved => 0x1a_7f_37,
        EscalationLevel::Info => 0x8b_94_9e,
        EscalationLevel::Warning => 0xd2_99_22,
        EscalationLevel::Critical => 0xd9_3f_0b,
        EscalationLevel::Emergency => 0xb6_02_05,
    };
    let mut embed = json!({
        "title": escaped(&headline(notice), TITLE_MAX),
        "description": description,
        "color": color,
        "fields": fields,
        "timestamp": moment(notice.at),
    });
    let reminds = (notice.occasion == Occasion::Reminder).then_some("no answer yet");
    let footer: Vec<&str> = reminds.into_iter().chain(again.then_some(REPEATED)).collect();
    if !footer.is_empty() {
        embed["footer"] = json!({ "text": footer.join("; ") });
    }
    json!({ "embeds": [embed], "allowed_mentions": { "parse": [] } })
}

fn field(name: &str, value: String) -> Value {
    json!({ "name": name, "value": value })
}

fn linked(url: &str, words: &str) -> String {
    /// Maximum length of a link's text, in characters. Together with the longest URL, it fits into a field.
    const WORDS_MAX: usize = 200;
    let words = escaped(words, WORDS_MAX);
    match address(url).filter(|url| url.len() + words.len() < VALUE_MAX) {
        Some(url) => format!("[{words}]({url})"),
        None => words,
    }
}

fn escaped(text: &str, most: usize) -> String {
    fitted(text, most, escape)
}

fn escape(c: char, out: &mut String) {
    if "\\`*_~|<>[]()#@:".contains(c) {
        out.push('\\');
    }
    out.push(c);
}
