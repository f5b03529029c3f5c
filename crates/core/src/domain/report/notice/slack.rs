//! Slack: blocks, and one line of text for notifications and clients without blocks.
//!
//! Limits: 150 characters per header, 3,000 per section, 50 blocks and about 13,000 characters per message. Mentions and links
//! need `&`, `<` or `>`, which are escaped. `verbatim` disables the automatic detection of links.

use serde_json::{Value, json};

use super::definition::{ChannelAddress, ChannelDefinition, NoticeBody, NoticeTransport, Occasion};
use super::text::{address, evidence, fitted, headline, line, list, moment, next_actions, place, plain};

const HEADER_MAX: usize = 150;
const SECTION_MAX: usize = 2_900;
const SENTENCE_MAX: usize = 1_500;
const TITLE_MAX: usize = 300;
const LINES: usize = 10;

pub(super) const WEBHOOK: ChannelDefinition =
    ChannelDefinition { address: ChannelAddress::Secret, ..ChannelDefinition::new("slack", body) };
pub(super) const BOT: ChannelDefinition = ChannelDefinition {
    name: "slack_bot",
    // GovSlack has a different address for methods.
    address: ChannelAddress::Usual("https://slack.com/api/"),
    secret: Some("the bot token"),
    transport: NoticeTransport::SlackMessage,
    ..ChannelDefinition::new("slack", body)
};

fn body(NoticeBody { notice, answer, .. }: NoticeBody<'_>) -> Value {
    let headline = headline(notice);
    let issue = linked(&notice.issue_url, &place(notice));
    let title = escaped(&line(&notice.title), TITLE_MAX);
    let happened = escaped(&line(&notice.what_happened), SENTENCE_MAX);
    let mut blocks = vec![
        json!({ "type": "header", "text": { "type": "plain_text", "text": fitted(&headline, HEADER_MAX, plain) } }),
        section(format!("{issue} {title}\n{happened}")),
    ];
    let evidence = list(evidence(notice), "• ", LINES, SECTION_MAX, escape);
    if !evidence.is_empty() {
        blocks.push(section(format!("*Evidence*\n{evidence}")));
    }
    let ways = list(next_actions(notice), "• ", LINES, SECTION_MAX, escape);
    if !ways.is_empty() {
        blocks.push(section(format!("*What to do*\n{ways}")));
    }
    let mut small = vec![moment(notice.at)];
    if notice.occasion == Occasion::Reminder {
        small.push("no answer yet".to_owned());
    }
    if let Some(page) = notice.dashboard_url.as_deref().and_then(address) {
        small.insert(0, format!("<{page}|Loop in the dashboard>"));
    }
    if let Some(answer) = answer.and_then(address) {
        small.insert(0, format!("<{answer}|Answer on the escalation issue>"));
    }
    blocks.push(json!({ "type": "context", "elements": [mrkdwn(small.join(" · "))] }));
    json!({
        "text": format!("{}. {}", escaped(&headline, HEADER_MAX), happened),
        "blocks": blocks,
        "unfurl_links": false,
        "unfurl_media": false,
    })
}

fn section(text: String) -> Value {
    json!({ "type": "section", "text": mrkdwn(text) })
}

fn mrkdwn(text: String) -> Value {
    json!({ "type": "mrkdwn", "text": text, "verbatim": true })
}

fn linked(url: &str, words: &str) -> String {
    let words = escaped(words, TITLE_MAX);
    match address(url) {
        Some(url) => format!("<{url}|{words}>"),
        None => words,
    }
}

fn escaped(text: &str, most: usize) -> String {
    fitted(text, most, escape)
}

fn escape(c: char, out: &mut String) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        c => out.push(c),
    }
}
