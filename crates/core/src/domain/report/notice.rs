//! Notices about escalations for channels outside the forge, and their message bodies for each service.
//!
//! Foreign text (titles, output of checks) is escaped in every body. It therefore causes no mentions, contains no links, and
//! stays within the service's limits.

mod definition;
mod discord;
mod generic;
mod mail;
mod message;
mod pagerduty;
mod slack;
mod text;

#[cfg(any(test, feature = "testing"))]
pub mod samples;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::domain::loops::{JudgedDetection, Loop, ProposedPlan, RefusedChange};
use crate::domain::model::ids::{ForgeName, LoopId, Money, Number, RepoId, RepoRef, Timestamp};
use crate::domain::report;
use crate::domain::report::view::{CommandHint, DetectionLine, EscalationView};
use crate::domain::supervision::oversight::{EscalationLevel, InterventionLevel};

pub use definition::{ChannelAddress, ChannelDefinition, NoticeBody, NoticeTransport, Occasion};
pub use generic::VERSION as GENERIC_VERSION;
pub use message::{MessageStep, PostedMessage};
pub use text::level as level_name;
pub use text::moment;

/// Whether a number is zero, and therefore not stored.
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Cause of notices about pending plans.
const PLAN_APPROVAL: &str = "plan_approval";

/// Declares `ChannelKind` with one row per service: the variant's name and its definition.
macro_rules! channel_kinds {
    ($($(#[$doc:meta])* $kind:ident: $definition:path,)+) => {
        /// Services that accept notices.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ChannelKind {
            $($(#[$doc])* $kind,)+
        }

        impl ChannelKind {
            /// All services, in listing order.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// Returns the service's properties.
            pub fn definition(self) -> &'static ChannelDefinition {
                match self {
                    $(Self::$kind => &$definition,)+
                }
            }
        }
    };
}

channel_kinds! {
    /// Incoming webhook of Slack or a compatible service. Its messages cannot be edited.
    Slack: slack::WEBHOOK,
    /// Slack app with a bot token, which can edit its messages.
    SlackBot: slack::BOT,
    /// Discord webhook.
    Discord: discord::CHANNEL,
    /// PagerDuty Events API, version 2.
    PagerDuty: pagerduty::CHANNEL,
    /// Signed JSON in this project's format.
    Generic: generic::CHANNEL,
    /// Mail over SMTP.
    Mail: mail::CHANNEL,
}

impl ChannelKind {
    /// Returns the display name.
    pub fn as_str(self) -> &'static str {
        self.definition().name
    }

    /// Whether the service edits its message about a loop instead of posting a new one.
    pub fn changes_messages(self) -> bool {
        matches!(self.definition().transport, NoticeTransport::SlackMessage | NoticeTransport::DiscordMessage)
    }

    /// Whether the channel is notified when a loop continues or has ended.
    pub fn shows_resolution(self) -> bool {
        self.definition().keeps_incidents || self.changes_messages()
    }
}

/// Configured channel with its levels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience {
    /// Name in the configuration.
    pub channel: String,
    /// Service.
    pub kind: ChannelKind,
    /// Levels sent to the channel.
    pub levels: Vec<EscalationLevel>,
}

/// Notice of an escalation. Its texts are not escaped; `body` escapes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Occasion.
    pub occasion: Occasion,
    /// Level of the notice.
    pub level: EscalationLevel,
    /// Id of the loop.
    pub loop_id: LoopId,
    /// Owner and name of the repository.
    pub repo: RepoRef,
    /// Issue.
    pub issue: Number,
    /// Title of the issue.
    pub title: String,
    /// Address of the issue.
    pub issue_url: String,
    /// Name of the cause (`stuck`, `limit_time`, …).
    pub cause: String,
    /// Cause in a few words for the headline; empty in notices stored by older versions.
    #[serde(default)]
    pub reason: String,
    /// Cause in one or two sentences.
    pub what_happened: String,
    /// Evidence, one phrase each.
    pub evidence: Vec<String>,
    /// Last iteration; 0 before the first one, and in notices stored by older versions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub iteration: u32,
    /// Detections of the last iteration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detections: Vec<DetectionLine>,
    /// Approaches that the agent tried at supervision's request, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<String>,
    /// Learnings and blockers reported by the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learnings: Vec<String>,
    /// Recommended actions, one sentence each.
    pub recommendations: Vec<String>,
    /// Exact replies that continue or end the loop.
    pub replies: Vec<CommandHint>,
    /// URL of the loop's page in the dashboard; `None` if people cannot reach the dashboard. Set when the notice is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// Time of the event.
    pub at: Timestamp,
}

impl Notice {
    /// Returns the globally unique key shared by all notices about one cause of a loop.
    pub fn dedup_key(&self) -> String {
        let repo = &self.repo;
        let key = format!("ralph-bot/{}/{}/{}/{}", repo.forge, repo.id, self.loop_id, self.cause);
        text::fitted(&key, pagerduty::KEY_MAX, text::plain)
    }

    /// Returns the natural key of the effect that sends the notice to `channel`, unique within the loop.
    pub fn key(&self, channel: &str) -> String {
        format!("notify/{channel}/{}/{}", self.occasion.as_str(), self.cause)
    }

    /// Creates the warning that a loop was warned or redirected. It has a separate cause, so that a later pause because of the same
    /// detection is a new incident.
    pub fn warned(current: &Loop, found: &JudgedDetection, at: Timestamp) -> Self {
        let (name, action) = if found.level >= InterventionLevel::Redirect {
            ("redirect", "The agent was instructed to try a different approach")
        } else {
            ("warn", "The agent was warned")
        };
        let cause = format!("{name}_{}", found.kind.name());
        let JudgedDetection { kind, evidence, recommendations, .. } = found;
        Self {
            reason: kind.title().to_lowercase(),
            what_happened: format!("{}: {evidence}. {action}; the loop continues.", kind.title()),
            detections: vec![report::detection_line(found)],
            recommendations: recommendations.clone(),
            replies: report::commands(current),
            ..Self::of(Occasion::Raised, EscalationLevel::Warning, current, &cause, at)
        }
    }

    /// Creates the notice that a loop has used `part` percent of its budget. Channels get it by default, so that a person can end
    /// the loop.
    pub fn budget(current: &Loop, part: u8, at: Timestamp) -> Self {
        let (spent, limits) = (&current.spent, &current.limits);
        let minutes = |ms: i64| ms / 60_000;
        let money = if limits.cost > Money(0) { format!("{} of {}, ", spent.cost, limits.cost) } else { String::new() };
        let (used, limit) = (minutes(spent.time_at(at)), minutes(limits.time_ms));
        let completion = current.completion().whole_percent();
        Self {
            reason: format!("{part} % of its budget is used"),
            what_happened: format!(
                "At least {part} % of the budget is used: {money}{used} of {limit} minutes. {completion} % of the task is complete; \
                 the loop continues up to its limits."
            ),
            replies: report::commands(current),
            ..Self::of(Occasion::Raised, EscalationLevel::Info, current, &format!("budget_{part}"), at)
        }
    }

    /// Creates the notice that a loop is paused because its repository accepts no changes, which the forge may not display
    /// anywhere.
    pub fn unavailable(current: &Loop, level: EscalationLevel, at: Timestamp) -> Self {
        Self {
            reason: "its repository accepts no changes".into(),
            replies: report::commands(current),
            ..Self::of(Occasion::Raised, level, current, "repository", at)
        }
    }

    /// Creates the notice that the forge rejected a change whose absence matters to people, which the forge may not display
    /// anywhere.
    pub fn refused(current: &Loop, refused: &RefusedChange, at: Timestamp) -> Self {
        let cause = format!("refused_{}", refused.change.name());
        Self {
            what_happened: format!("{}.", refused.sentence()),
            recommendations: vec![format!("{}.", refused.change.advice())],
            replies: report::commands(current),
            ..Self::of(Occasion::Raised, EscalationLevel::Warning, current, &cause, at)
        }
    }

    /// Creates the notice that a plan is waiting for a person. Its level does not alert anyone, because nothing failed.
    pub fn plan(occasion: Occasion, current: &Loop, plan: &ProposedPlan, at: Timestamp) -> Self {
        let reason =
            if plan.plan.questions.is_empty() { "its plan needs an approval" } else { "its plan has questions" };
        Self {
            reason: reason.into(),
            evidence: std::iter::once(&plan.plan.summary).chain(&plan.plan.questions).cloned().collect(),
            replies: report::commands(current),
            ..Self::of(occasion, EscalationLevel::Info, current, PLAN_APPROVAL, at)
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
            repo: current.issue.repo.clone(),
            issue: current.issue.issue,
            title: current.task.text.title().to_owned(),
            issue_url: current.task.url.clone(),
            cause: cause.to_owned(),
            reason: String::new(),
            what_happened: current.why.clone(),
            evidence: Vec::new(),
            iteration: current.spent.iterations,
            detections: Vec::new(),
            tried: Vec::new(),
            learnings: Vec::new(),
            recommendations: Vec::new(),
            replies: Vec::new(),
            dashboard_url: None,
            at,
        }
    }

    /// Creates a notice for testing a channel, without a loop.
    pub fn test(occasion: Occasion, at: Timestamp) -> Self {
        let repo =
            RepoRef { forge: ForgeName::new("test"), id: RepoId(0), owner: "ralph-bot".into(), name: "test".into() };
        Self {
            occasion,
            level: EscalationLevel::Info,
            loop_id: LoopId::new("r-0-test"),
            repo,
            issue: Number(0),
            title: "Test of this channel".into(),
            issue_url: String::new(),
            cause: "test".into(),
            reason: "a test of this channel".into(),
            what_happened: "An operator tests this channel. It concerns no loop and needs no action.".into(),
            evidence: Vec::new(),
            iteration: 0,
            detections: Vec::new(),
            tried: Vec::new(),
            learnings: Vec::new(),
            recommendations: Vec::new(),
            replies: Vec::new(),
            dashboard_url: None,
            at,
        }
    }

    pub(in crate::domain) fn with(mut self, view: &EscalationView) -> Self {
        self.reason.clone_from(&view.headline);
        self.what_happened.clone_from(&view.what_happened);
        self.evidence.clone_from(&view.evidence);
        self.iteration = view.iteration;
        self.detections.clone_from(&view.detections);
        self.tried.clone_from(&view.tried);
        self.learnings.clone_from(&view.learnings);
        self.recommendations.clone_from(&view.recommendations);
        self.replies.clone_from(&view.replies);
        self
    }
}

/// Returns the causes that are still open after the notices with these keys, oldest first.
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
