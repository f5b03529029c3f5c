//! Notices for channels that follow from the effects of a step.

use super::effect::{ChannelEffect, Effect, ForgeEffect};
use crate::domain::loops::Loop;
use crate::domain::model::ids::Timestamp;
use crate::domain::report::notice::{Audience, Notice, Occasion};
use crate::domain::report::view::View;
use crate::domain::supervision::oversight::EscalationLevel;

/// Returns the notices that an effect of a step causes, each as an effect. `open` has the causes about which a channel was
/// notified and that had not ended before this step.
///
/// Services that manage incidents repeat notifications by themselves until somebody acknowledges them, and an event about a
/// manually resolved incident would open another one. They therefore get a reminder only about causes about which they were never
/// notified.
pub fn notices(
    effect: &Effect,
    current: &Loop,
    audiences: &[Audience],
    open: impl Fn(&str) -> Vec<String>,
    now: Timestamp,
) -> Vec<Effect> {
    let to = |audience: &Audience, notice: Notice| {
        Effect::Channel(ChannelEffect::Notify { channel: audience.channel.clone(), notice: Box::new(notice) })
    };
    let to_wanting = |notice: &Notice| -> Vec<Effect> {
        let knows = |audience: &&Audience| {
            let reminds = notice.occasion == Occasion::Reminder && audience.kind.definition().keeps_incidents;
            reminds && open(&audience.channel).contains(&notice.cause)
        };
        let wanting = audiences.iter().filter(|audience| audience.levels.contains(&notice.level) && !knows(audience));
        wanting.map(|audience| to(audience, notice.clone())).collect()
    };
    match effect {
        Effect::Forge(ForgeEffect::Escalate { cause, view, level, reminder }) => {
            let occasion = if *reminder { Occasion::Reminder } else { Occasion::Raised };
            let notice = Notice::of(occasion, *level, current, &cause.to_string(), now);
            to_wanting(&match &**view {
                View::Escalation(view) => notice.with(view),
                _ => notice,
            })
        }
        Effect::Channel(ChannelEffect::Warn { notice }) => to_wanting(notice),
        Effect::Forge(ForgeEffect::CloseEscalations { why }) => {
            let showing = audiences.iter().filter(|audience| audience.kind.shows_resolution());
            let ended = showing.flat_map(|audience| open(&audience.channel).into_iter().map(move |c| (audience, c)));
            ended
                .map(|(audience, cause)| {
                    let mut notice = Notice::of(Occasion::Resolved, EscalationLevel::Info, current, &cause, now);
                    notice.what_happened.clone_from(why);
                    to(audience, notice)
                })
                .collect()
        }
        Effect::Channel(ChannelEffect::Notify { .. })
        | Effect::Forge(_)
        | Effect::Work(_)
        | Effect::Timer(_)
        | Effect::Store(_) => Vec::new(),
    }
}
