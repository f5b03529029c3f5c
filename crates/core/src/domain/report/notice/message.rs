//! Messages that show a loop's latest state. Decides when to edit a message and when to post a new one.

use serde::{Deserialize, Serialize};

use super::definition::Occasion;
use super::{ChannelKind, Notice};
use crate::domain::supervision::oversight::EscalationLevel;

/// Message about a loop as last written to a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostedMessage {
    /// Location of the message at the service, such as its channel. Messages in other locations are never edited.
    pub place: String,
    /// Id of the message in this location. For mail, the `Message-ID` of the first mail about the loop.
    pub id: String,
    /// Level of the shown notice.
    pub level: EscalationLevel,
    /// Occasion of the shown notice.
    pub occasion: Occasion,
}

/// Treatment of a loop's message for a new notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageStep<'m> {
    /// Post a message.
    Post,
    /// Edit the message. If it no longer exists, post a new one.
    Change(&'m PostedMessage),
    /// Edit the message. If it no longer exists, do nothing.
    ChangeIfThere(&'m PostedMessage),
    /// Post a new message, because services do not alert people about edits, and mark the older message as outdated.
    PostAgain(&'m PostedMessage),
    /// Send nothing.
    Nothing,
}

impl MessageStep<'_> {
    /// Returns the step for a notice. `posted` is the loop's last message, which counts only if it is in `place`.
    ///
    /// Edits do not alert people, so they suit reminders, repetitions and resolutions. If a loop needs a decision again or
    /// became worse, a person must notice it, so a new message is posted.
    pub fn of<'m>(
        kind: ChannelKind,
        notice: &Notice,
        posted: Option<&'m PostedMessage>,
        place: &str,
    ) -> MessageStep<'m> {
        let resolved = notice.occasion == Occasion::Resolved;
        let posted = posted.filter(|message| message.place == place);
        match posted {
            _ if !kind.changes_messages() && !resolved => MessageStep::Post,
            _ if !kind.changes_messages() => {
                if kind.shows_resolution() {
                    MessageStep::Post
                } else {
                    MessageStep::Nothing
                }
            }
            None if resolved => MessageStep::Nothing,
            None => MessageStep::Post,
            Some(message) if resolved => MessageStep::ChangeIfThere(message),
            Some(message) if message.occasion == Occasion::Resolved || notice.level > message.level => {
                MessageStep::PostAgain(message)
            }
            Some(message) => MessageStep::Change(message),
        }
    }
}

impl Notice {
    /// Returns the notice for an older message once a newer message exists. `None` if the older message shows a resolution,
    /// which remains true.
    pub fn superseded(&self, posted: &PostedMessage) -> Option<Self> {
        (posted.occasion != Occasion::Resolved).then(|| Self {
            occasion: Occasion::Resolved,
            level: EscalationLevel::Info,
            what_happened: "A newer message shows the state of this loop.".into(),
            evidence: Vec::new(),
            recommendations: Vec::new(),
            replies: Vec::new(),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::report::notice::samples::notice;

    fn posted(level: EscalationLevel, occasion: Occasion) -> PostedMessage {
        PostedMessage { place: "C1".into(), id: "1.2".into(), level, occasion }
    }

    #[test]
    fn message_is_edited_unless_people_must_notice() {
        use EscalationLevel::{Critical, Emergency, Warning};
        use Occasion::{Raised, Reminder, Resolved};
        let step = |level, occasion, before: &PostedMessage| {
            let notice = Notice { level, occasion, ..notice() };
            format!("{:?}", MessageStep::of(ChannelKind::Discord, &notice, Some(before), "C1"))
                .split('(')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        let open = posted(Critical, Raised);
        for (level, occasion, before, wanted) in [
            (Critical, Reminder, &open, "Change"),
            (Critical, Raised, &open, "Change"),
            (Warning, Raised, &open, "Change"),
            (Emergency, Raised, &open, "PostAgain"),
            (Critical, Raised, &posted(Critical, Resolved), "PostAgain"),
            (Critical, Reminder, &posted(Critical, Resolved), "PostAgain"),
            (EscalationLevel::Info, Resolved, &open, "ChangeIfThere"),
            (EscalationLevel::Info, Resolved, &posted(Critical, Resolved), "ChangeIfThere"),
        ] {
            assert_eq!(step(level, occasion, before), wanted, "{level:?} {occasion:?} after {before:?}");
        }
    }

    #[test]
    fn message_of_another_channel_is_not_changed() {
        let before = posted(EscalationLevel::Critical, Occasion::Raised);
        let raised = notice();
        let resolved = Notice { occasion: Occasion::Resolved, ..notice() };
        let of = |kind, notice, place| MessageStep::of(kind, notice, Some(&before), place);
        assert_eq!(of(ChannelKind::SlackBot, &raised, "C2"), MessageStep::Post);
        assert_eq!(of(ChannelKind::SlackBot, &resolved, "C2"), MessageStep::Nothing);
        assert_eq!(of(ChannelKind::SlackBot, &raised, "C1"), MessageStep::Change(&before));
    }

    #[test]
    fn services_without_changes_get_every_notice_and_resolutions_only_as_incidents() {
        let before = posted(EscalationLevel::Critical, Occasion::Raised);
        let resolved = Notice { occasion: Occasion::Resolved, ..notice() };
        for kind in [ChannelKind::Slack, ChannelKind::Generic, ChannelKind::Mail] {
            assert_eq!(MessageStep::of(kind, &notice(), Some(&before), "C1"), MessageStep::Post, "{kind:?}");
            assert_eq!(MessageStep::of(kind, &resolved, Some(&before), "C1"), MessageStep::Nothing, "{kind:?}");
        }
        assert_eq!(MessageStep::of(ChannelKind::PagerDuty, &resolved, None, ""), MessageStep::Post);
    }

    #[test]
    fn superseded_message_requests_no_action() {
        let before = posted(EscalationLevel::Warning, Occasion::Raised);
        let shown = notice().superseded(&before).expect("it changes");
        assert_eq!((shown.occasion, shown.replies.len(), shown.evidence.len()), (Occasion::Resolved, 0, 0));
        assert_eq!(notice().superseded(&posted(EscalationLevel::Warning, Occasion::Resolved)), None);
    }
}
