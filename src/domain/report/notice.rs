//! News of an escalation for channels outside of the forge: who is told what, and the body that each service takes.
//!
//! Foreign text (titles, output of checks) reaches rooms full of people here: in every body it can ping nobody and link
//! to nothing, and stays within what the service takes.

mod discord;
mod generic;
mod pagerduty;
mod slack;
mod text;

#[cfg(test)]
pub(crate) mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::loops::{JudgedDetection, Loop};
use crate::domain::model::ids::{LoopId, Number, RepoRef, Timestamp};
use crate::domain::report;
use crate::domain::report::view::{CommandHint, EscalationView};
use crate::domain::supervision::oversight::EscalationLevel;

pub use generic::VERSION as GENERIC_VERSION;
pub use text::level as level_name;

/// Services that news can go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelKind {
    /// An incoming webhook of Slack, or of what speaks like it.
    Slack,
    /// A webhook of Discord.
    Discord,
    /// Events API, version 2.
    PagerDuty,
    /// Our own signed JSON.
    Generic,
}

impl ChannelKind {
    /// Name for people and in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slack => "slack",
            Self::Discord => "discord",
            Self::PagerDuty => "pagerduty",
            Self::Generic => "generic",
        }
    }

    /// Whether it keeps incidents, which have to be ended; the others are told what happened, and that is that.
    pub fn keeps_incidents(self) -> bool {
        self == Self::PagerDuty
    }
}

/// A configured channel, as far as it matters for who is told what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience {
    /// Its name in the configuration.
    pub channel: String,
    /// Its service.
    pub kind: ChannelKind,
    /// What it wants to hear of.
    pub levels: Vec<EscalationLevel>,
}

/// What a notice tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// A person is needed.
    Raised,
    /// Nobody has answered yet.
    Reminder,
    /// The loop goes on or has ended; for services that keep incidents.
    Resolved,
}

impl Occasion {
    fn as_str(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Reminder => "reminder",
            Self::Resolved => "resolved",
        }
    }
}

/// News of an escalation. Every text is raw: making the body makes it harmless.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// What it tells.
    pub occasion: Occasion,
    /// How urgent it is.
    pub level: EscalationLevel,
    /// The loop.
    pub loop_id: LoopId,
    /// Its repository.
    pub repo: RepoRef,
    /// Its issue.
    pub issue: Number,
    /// Title of the issue.
    pub title: String,
    /// Address of the issue.
    pub issue_url: String,
    /// Cause in a word (`stuck`, `limit_time`, …).
    pub cause: String,
    /// What happened, in a sentence or two.
    pub what_happened: String,
    /// What shows it, a line each.
    pub evidence: Vec<String>,
    /// What a person might do, a sentence each.
    pub recommendations: Vec<String>,
    /// Exact replies that continue or end the loop.
    pub replies: Vec<CommandHint>,
    /// When it happened.
    pub at: Timestamp,
}

impl Notice {
    /// What all news of one cause of a loop have in common, in this installation and over all others.
    pub fn dedup_key(&self) -> String {
        let repo = &self.repo;
        let key = format!("ralph-bot/{}/{}/{}/{}", repo.forge, repo.id, self.loop_id, self.cause);
        text::fitted(&key, pagerduty::KEY_MAX, text::plain)
    }

    /// Natural key of its effect within the loop.
    pub fn key(&self, channel: &str) -> String {
        format!("notify/{channel}/{}/{}", self.occasion.as_str(), self.cause)
    }

    /// The agent of a loop is to take another approach. The cause is one of its own: where the loop has to be stopped for
    /// the same thing, that is another incident, and not one that people have been told of.
    pub fn redirected(current: &Loop, found: &JudgedDetection, at: Timestamp) -> Self {
        let cause = format!("redirect_{}", found.kind.name());
        let JudgedDetection { kind, evidence, recommendations, .. } = found;
        Self {
            what_happened: format!(
                "{}: {evidence}. The agent is told to take another approach; the loop goes on.",
                kind.title()
            ),
            recommendations: recommendations.clone(),
            replies: report::commands(current),
            ..Self::of(Occasion::Raised, EscalationLevel::Warning, current, &cause, at)
        }
    }

    pub(in crate::domain) fn of(
        occasion: Occasion,
        level: EscalationLevel,
        current: &Loop,
        cause: &str,
        at: Timestamp,
    ) -> Self {
        Self {
            occasion,
            level,
            loop_id: current.id.clone(),
            repo: current.place.repo.clone(),
            issue: current.place.issue,
            title: current.task.title.clone(),
            issue_url: current.task.url.clone(),
            cause: cause.to_owned(),
            what_happened: current.why.clone(),
            evidence: Vec::new(),
            recommendations: Vec::new(),
            replies: Vec::new(),
            at,
        }
    }

    pub(in crate::domain) fn with(mut self, view: &EscalationView) -> Self {
        self.what_happened.clone_from(&view.what_happened);
        self.evidence.clone_from(&view.evidence);
        self.recommendations.clone_from(&view.recommendations);
        self.replies.clone_from(&view.replies);
        self
    }
}

/// The causes that are open after notices with these keys, oldest first.
pub fn open_causes<'k>(keys: impl IntoIterator<Item = &'k str>) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    for key in keys {
        let mut parts = key.splitn(4, '/').skip(2);
        let (Some(occasion), Some(cause)) = (parts.next(), parts.next()) else { continue };
        open.retain(|known| known != cause);
        if occasion != Occasion::Resolved.as_str() {
            open.push(cause.to_owned());
        }
    }
    open
}

/// The body that a service takes. `delivery` is the same however often it is sent; `answer` is the address of the
/// escalation issue, where it is known. PagerDuty's routing key is added by whoever sends it.
pub fn body(kind: ChannelKind, notice: &Notice, delivery: &str, answer: Option<&str>) -> Value {
    match kind {
        ChannelKind::Slack => slack::body(notice, answer),
        ChannelKind::Discord => discord::body(notice, answer),
        ChannelKind::PagerDuty => pagerduty::body(notice, answer),
        ChannelKind::Generic => generic::body(notice, delivery, answer),
    }
}
