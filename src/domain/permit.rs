//! Who may make something happen: a pure answer from facts that the forge was asked for at that moment.
//!
//! Only numeric ids decide. A login is never looked at: logins are renamed and taken over by others.

use serde::{Deserialize, Serialize};

use super::ids::{AccountKind, User, UserId};

/// What an account may do in a repository, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing beyond the public.
    None,
    /// Read.
    Read,
    /// Label and close, not push.
    Triage,
    /// Push.
    Write,
    /// Push and manage some settings.
    Maintain,
    /// Everything.
    Admin,
}

/// What the answer depends on besides the account and its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Lowest level that is enough, as configured.
    pub floor: Level,
    /// People who may whatever their level.
    pub allowed: &'a [UserId],
    /// Bots that may; no other bot does.
    pub allowed_bots: &'a [UserId],
    /// Our own account.
    pub own: UserId,
}

/// Whether it may happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allow,
    /// It may not.
    Deny {
        /// Why, in a sentence, for the log.
        reason: String,
        /// What is shown to the person.
        answer: DenyAnswer,
    },
}

/// What is shown to somebody who may not; never a reply, which would amplify noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenyAnswer {
    /// Nothing.
    Silent,
    /// A 👎 on the comment.
    ThumbsDown,
}

/// Whether `actor`, whose level in the repository is `permission`, may.
pub fn may(actor: &User, permission: Level, facts: &Facts<'_>) -> Verdict {
    let deny = |reason: String, answer| Verdict::Deny { reason, answer };
    if actor.id == facts.own {
        return deny("it is the bot's own account".into(), DenyAnswer::Silent);
    }
    if actor.kind == AccountKind::Bot {
        return if facts.allowed_bots.contains(&actor.id) {
            Verdict::Allow
        } else {
            deny(format!("account {} is a bot and not on the list of allowed bots", actor.id), DenyAnswer::Silent)
        };
    }
    if facts.allowed.contains(&actor.id) || permission >= facts.floor {
        return Verdict::Allow;
    }
    let reason = format!("account {} has {permission:?} and needs {:?}", actor.id, facts.floor);
    deny(reason, DenyAnswer::ThumbsDown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: UserId = UserId(1);
    const FRIEND: UserId = UserId(123_456);
    const BOT: UserId = UserId(77);

    fn verdict(id: i64, kind: AccountKind, level: Level, floor: Level) -> &'static str {
        let actor = User { id: UserId(id), login: "same-login".into(), kind };
        let facts = Facts { floor, allowed: &[FRIEND], allowed_bots: &[BOT], own: OWN };
        match may(&actor, level, &facts) {
            Verdict::Allow => "allow",
            Verdict::Deny { answer: DenyAnswer::Silent, .. } => "silent",
            Verdict::Deny { answer: DenyAnswer::ThumbsDown, .. } => "thumbs down",
        }
    }

    #[test]
    fn the_table_of_who_may() {
        use AccountKind::{Bot, User};
        use Level::*;
        let table = [
            (5, User, Admin, Write, "allow"),
            (5, User, Maintain, Write, "allow"),
            (5, User, Write, Write, "allow"),
            (5, User, Triage, Write, "thumbs down"),
            (5, User, Read, Write, "thumbs down"),
            (5, User, None, Write, "thumbs down"),
            (5, User, Write, Maintain, "thumbs down"),
            (5, User, Maintain, Admin, "thumbs down"),
            (123_456, User, None, Admin, "allow"),
            (9_123_456, User, None, Write, "thumbs down"),
            (12_345, User, Read, Write, "thumbs down"),
            (-123_456, User, Read, Write, "thumbs down"),
            (77, Bot, None, Admin, "allow"),
            (78, Bot, Admin, Write, "silent"),
            (123_456, Bot, Admin, Write, "silent"),
            (77, User, Read, Write, "thumbs down"),
            (1, User, Admin, Write, "silent"),
            (1, Bot, Admin, Write, "silent"),
        ];
        for (id, kind, level, floor, expected) in table {
            assert_eq!(verdict(id, kind, level, floor), expected, "{id} {kind:?} {level:?} {floor:?}");
        }
    }

    #[test]
    fn our_own_account_may_not_even_when_it_is_allowed() {
        let actor = User { id: OWN, login: "ralph".into(), kind: AccountKind::Bot };
        let facts = Facts { floor: Level::None, allowed: &[OWN], allowed_bots: &[OWN], own: OWN };
        assert!(matches!(may(&actor, Level::Admin, &facts), Verdict::Deny { answer: DenyAnswer::Silent, .. }));
    }
}
