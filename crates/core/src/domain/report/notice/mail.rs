//! Mail: subject, plain text and simple HTML. The sender adds the headers.
//!
//! The subject is one line with the state, the issue and the reason. The headers `In-Reply-To` and `References` keep a
//! loop's notices in one thread. Foreign text in HTML is escaped and contains no links.

use serde_json::{Value, json};

use super::Notice;
use super::definition::{ChannelDefinition, NoticeBody, NoticeTransport, Occasion};
use super::text::{address, evidence, fitted, headline, line, list, moment, next_actions, place, plain, subject};

const SUBJECT_MAX: usize = 200;
const SENTENCE_MAX: usize = 4_000;
const LIST_MAX: usize = 20_000;
const LINES: usize = 50;

/// Definition of the channel. Its key is the password of `user`, needed only by servers that require a login.
pub(super) const CHANNEL: ChannelDefinition =
    ChannelDefinition { transport: NoticeTransport::Mail, ..ChannelDefinition::new("mail", body) };

fn body(NoticeBody { notice, answer, .. }: NoticeBody<'_>) -> Value {
    let subject = fitted(&subject(notice), SUBJECT_MAX, plain);
    json!({ "subject": subject, "text": text(notice, answer), "html": html(notice, answer) })
}

/// Returns a notice's links, each with its text and URL.
fn links(notice: &Notice, answer: Option<&str>) -> Vec<(String, String)> {
    let all = [
        ("Answer on the escalation issue".to_owned(), answer),
        (format!("Issue {}", place(notice)), Some(notice.issue_url.as_str())),
        ("Loop in the dashboard".to_owned(), notice.dashboard_url.as_deref()),
    ];
    all.into_iter().filter_map(|(words, url)| Some((words, address(url?)?))).collect()
}

fn lists(notice: &Notice, mark: &str, form: impl Fn(char, &mut String) + Copy) -> [(&'static str, String); 2] {
    [
        ("Evidence", list(evidence(notice), mark, LINES, LIST_MAX, form)),
        ("What to do", list(next_actions(notice), mark, LINES, LIST_MAX, form)),
    ]
}

fn note(notice: &Notice) -> String {
    let reminder = if notice.occasion == Occasion::Reminder { "No answer yet. " } else { "" };
    format!("{reminder}Sent by ralph-bot about an event at {}.", moment(notice.at))
}

fn text(notice: &Notice, answer: Option<&str>) -> String {
    let happened = fitted(&line(&notice.what_happened), SENTENCE_MAX, plain);
    let mut parts = vec![headline(notice), fitted(&line(&notice.title), SENTENCE_MAX, plain), happened];
    for (title, lines) in lists(notice, "- ", plain).into_iter().filter(|(_, lines)| !lines.is_empty()) {
        parts.push(format!("{title}:\n{lines}"));
    }
    let links: Vec<String> = links(notice, answer).into_iter().map(|(words, url)| format!("{words}:\n{url}")).collect();
    if !links.is_empty() {
        parts.push(links.join("\n"));
    }
    parts.push(note(notice));
    parts.join("\n\n") + "\n"
}

fn html(notice: &Notice, answer: Option<&str>) -> String {
    let paragraph = |text: &str| format!("<p>{}</p>\n", fitted(&line(text), SENTENCE_MAX, escape));
    let mut out =
        format!("<!DOCTYPE html>\n<html><body>\n<h2>{}</h2>\n", fitted(&headline(notice), SENTENCE_MAX, escape));
    out += &paragraph(&notice.title);
    out += &paragraph(&notice.what_happened);
    for (title, lines) in lists(notice, "", escape).into_iter().filter(|(_, lines)| !lines.is_empty()) {
        let items: String = lines.lines().map(|item| format!("<li>{item}</li>\n")).collect();
        out += &format!("<h3>{title}</h3>\n<ul>\n{items}</ul>\n");
    }
    let links: String = links(notice, answer)
        .into_iter()
        .map(|(words, url)| {
            let (words, url) = (fitted(&words, LIST_MAX, escape), fitted(&url, LIST_MAX, escape));
            format!("<li><a href=\"{url}\">{words}</a></li>\n")
        })
        .collect();
    if !links.is_empty() {
        out += &format!("<ul>\n{links}</ul>\n");
    }
    out += &paragraph(&note(notice));
    out + "</body></html>\n"
}

fn escape(c: char, out: &mut String) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        c => out.push(c),
    }
}
