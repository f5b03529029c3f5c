//! This project's JSON format. A version may add fields, but never changes the meaning of existing fields.

use serde_json::{Value, json};

use super::definition::{ChannelDefinition, NoticeBody, NoticeTransport, Occasion};
use super::text::{fitted, level, moment, plain};
use crate::domain::trust::sanitize::visible;

/// Version of the format.
pub const VERSION: u32 = 1;
/// Maximum length of a text, in characters.
const TEXT_MAX: usize = 4_000;
/// Maximum number of entries in a list.
const ENTRIES: usize = 50;

pub(super) const CHANNEL: ChannelDefinition = ChannelDefinition {
    secret: Some("the signing key"),
    secret_min: 32,
    transport: NoticeTransport::SignedRequest,
    ..ChannelDefinition::new("generic", body)
};

fn body(NoticeBody { notice, delivery, answer, .. }: NoticeBody<'_>) -> Value {
    let text = |text: &str| fitted(&visible(text), TEXT_MAX, plain);
    let texts = |all: &[String]| all.iter().take(ENTRIES).map(|one| text(one)).collect::<Vec<_>>();
    let replies = notice.replies.iter().take(ENTRIES);
    json!({
        "version": VERSION,
        "id": delivery,
        "event": match notice.occasion {
            Occasion::Raised => "escalation.raised",
            Occasion::Reminder => "escalation.reminder",
            Occasion::Resolved => "escalation.resolved",
        },
        "level": level(notice.level),
        "key": notice.dedup_key(),
        "at": moment(notice.at),
        "loop": notice.loop_id.as_str(),
        "repository": { "forge": notice.repo.forge.as_str(), "id": notice.repo.id.0, "name": notice.repo.full_name() },
        "issue": { "number": notice.issue.0, "title": text(&notice.title), "url": notice.issue_url },
        "escalation_url": answer,
        "dashboard_url": notice.dashboard_url,
        "cause": notice.cause,
        "what_happened": text(&notice.what_happened),
        "iteration": notice.iteration,
        "detections": notice.detections.iter().take(ENTRIES).map(|found| json!({
            "title": text(&found.title), "severity": found.severity, "action": found.level, "evidence": text(&found.evidence),
        })).collect::<Vec<_>>(),
        "evidence": texts(&notice.evidence),
        "tried": texts(&notice.tried),
        "learnings": texts(&notice.learnings),
        "recommendations": texts(&notice.recommendations),
        "replies": replies.map(|r| json!({ "command": r.usage, "effect": r.what })).collect::<Vec<_>>(),
    })
}
