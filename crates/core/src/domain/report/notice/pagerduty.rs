//! PagerDuty Events API, version 2. Events with the same key update and resolve the open incident. After its resolution,
//! they open a new one.
//!
//! Limits: 1,024 characters per summary, 255 per key, 512 KiB per event.

use serde_json::{Value, json};

use super::definition::{ChannelAddress, ChannelDefinition, NoticeBody, NoticeTransport, Occasion};
use super::text::{address, fitted, headline, level, line, moment, next_actions, place, plain};
use crate::domain::supervision::oversight::EscalationLevel;

/// Maximum length of a key, in characters.
pub(super) const KEY_MAX: usize = 255;
const SUMMARY_MAX: usize = 1_024;
const LINE_MAX: usize = 1_000;
const LINES: usize = 20;

pub(super) const CHANNEL: ChannelDefinition = ChannelDefinition {
    // Accounts in other regions have a different address.
    address: ChannelAddress::Usual("https://events.pagerduty.com/v2/enqueue"),
    secret: Some("the routing key"),
    // It pages people, so it does not receive notices without a problem.
    levels: &[EscalationLevel::Critical, EscalationLevel::Emergency],
    keeps_incidents: true,
    transport: NoticeTransport::KeyedRequest("routing_key"),
    ..ChannelDefinition::new("pagerduty", body)
};

fn body(NoticeBody { notice, answer, .. }: NoticeBody<'_>) -> Value {
    let key = notice.dedup_key();
    if notice.occasion == Occasion::Resolved {
        return json!({ "event_action": "resolve", "dedup_key": key });
    }
    let severity = match notice.level {
        EscalationLevel::Info => "info",
        EscalationLevel::Warning => "warning",
        EscalationLevel::Critical | EscalationLevel::Emergency => "critical",
    };
    let place = place(notice);
    let summary = format!("{}. {}", headline(notice), line(&notice.what_happened));
    let short = |text: &str| fitted(&line(text), LINE_MAX, plain);
    let lines = |all: Vec<String>| all.iter().take(LINES).map(|text| fitted(text, LINE_MAX, plain)).collect::<Vec<_>>();
    let issue = address(&notice.issue_url);
    let mut links = Vec::new();
    links.extend(answer.and_then(address).map(|url| json!({ "href": url, "text": "Answer on the escalation issue" })));
    let page = notice.dashboard_url.as_deref().and_then(address);
    links.extend(page.map(|url| json!({ "href": url, "text": "Loop in the dashboard" })));
    links.extend(issue.as_ref().map(|url| json!({ "href": url, "text": format!("Issue {place}") })));
    let mut event = json!({
        "event_action": "trigger",
        "dedup_key": key,
        "client": "ralph-bot",
        "links": links,
        "payload": {
            "summary": fitted(&summary, SUMMARY_MAX, plain),
            "source": fitted(&format!("{}:{place}", notice.repo.forge), LINE_MAX, plain),
            "severity": severity,
            "timestamp": moment(notice.at),
            "component": notice.loop_id.as_str(),
            "group": fitted(&line(&notice.repo.full_name()), LINE_MAX, plain),
            "class": short(&notice.cause),
            "custom_details": {
                "level": level(notice.level),
                "reminder": notice.occasion == Occasion::Reminder,
                "title": short(&notice.title),
                "what_happened": short(&notice.what_happened),
                "evidence": lines(notice.evidence.iter().map(|text| line(text)).collect()),
                "what_to_do": lines(next_actions(notice)),
            },
        },
    });
    if let Some(issue) = issue {
        event["client_url"] = json!(issue);
    }
    event
}
