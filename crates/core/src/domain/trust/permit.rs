//! Permission to act on a loop. It is decided from facts that were just requested from the forge.
//!
//! Accounts are compared only by numeric id. Logins are ignored, because they can be renamed and then reused by others.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{AccountKind, User, UserId};

/// Access level of an account in a repository, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessLevel {
    /// Only public access.
    None,
    /// Can read.
    Read,
    /// Can label and close issues, but not push.
    Triage,
    /// Can push.
    Write,
    /// Can push and manage some settings.
    Maintain,
    /// Has all permissions.
    Admin,
}

/// Team of an organization.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TeamRef {
    /// Login of the organization.
    pub org: String,
    /// Name of the team, as in its URL.
    pub name: String,
}

impl TeamRef {
    /// Parses `organization/team`; `None` if the text is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let sensible = |part: &str| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && !part.contains(|c: char| c.is_whitespace() || "/:?#".contains(c))
        };
        let (org, name) = text.split_once('/')?;
        (sensible(org) && sensible(name)).then(|| Self { org: org.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for TeamRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.org, self.name)
    }
}

/// Facts for the decision, in addition to the account and its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitFacts<'a> {
    /// Lowest access level that is sufficient, as configured.
    pub floor: AccessLevel,
    /// Accounts that are permitted regardless of their level.
    pub allowed: &'a [UserId],
    /// Whether the account is in a team whose members are permitted regardless of their level, as the forge currently reports.
    pub in_allowed_team: bool,
    /// Bot accounts that are permitted. All other bots are denied.
    pub allowed_bots: &'a [UserId],
    /// Account of the service itself.
    pub own: UserId,
}

/// Decision whether an account may act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// The account may act.
    Allow,
    /// The account may not act.
    Deny {
        /// Reason in one sentence, for the log.
        reason: String,
        /// Reaction that the person sees.
        answer: DenyAnswer,
    },
}

/// Reaction that a person without permission sees. There is no comment per denial, because anyone could trigger many of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DenyAnswer {
    /// No reaction.
    Silent,
    /// A 👎 reaction on the comment.
    ThumbsDown,
    /// The membership is unknown, because the members of these teams are hidden from the service. Reported once per issue.
    CannotTell(Vec<TeamRef>),
}

/// Returns the decision for an account without permission whose membership in the teams `hidden` cannot be determined. A team can be
/// configured and have access to the repository as well; it is named once.
pub fn cannot_tell(actor: &User, mut hidden: Vec<TeamRef>) -> Authorization {
    let mut known = Vec::new();
    hidden.retain(|team| {
        !known.contains(team) && {
            known.push(team.clone());
            true
        }
    });
    let teams = hidden.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let reason = format!("the bot cannot check whether account {} is in one of the teams {teams}", actor.id);
    Authorization::Deny { reason, answer: DenyAnswer::CannotTell(hidden) }
}

/// Decides whether `actor` may act. `permission` is the actor's level in the repository.
pub fn may(actor: &User, permission: AccessLevel, facts: &PermitFacts<'_>) -> Authorization {
    let deny = |reason: String, answer| Authorization::Deny { reason, answer };
    if actor.id == facts.own {
        return deny("it is the bot's own account".into(), DenyAnswer::Silent);
    }
    if actor.kind == AccountKind::Bot {
        return if facts.allowed_bots.contains(&actor.id) {
            Authorization::Allow
        } else {
            deny(format!("account {} is a bot and not on the list of allowed bots", actor.id), DenyAnswer::Silent)
        };
    }
    if facts.allowed.contains(&actor.id) || facts.in_allowed_team || permission >= facts.floor {
        return Authorization::Allow;
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

    #[test]
    fn hidden_team_is_reported_once() {
        let team = |name: &str| TeamRef::parse(name).expect("valid");
        let actor = User { id: FRIEND, login: "olaf".into(), kind: AccountKind::User };
        let verdict = cannot_tell(&actor, vec![team("org/devs"), team("org/ops"), team("org/devs")]);
        let Authorization::Deny { answer: DenyAnswer::CannotTell(teams), .. } = verdict else { panic!("denied") };
        assert_eq!(teams, [team("org/devs"), team("org/ops")]);
    }

    fn verdict(id: i64, kind: AccountKind, level: AccessLevel, floor: AccessLevel) -> &'static str {
        let actor = User { id: UserId(id), login: "same-login".into(), kind };
        let facts = PermitFacts { floor, allowed: &[FRIEND], in_allowed_team: false, allowed_bots: &[BOT], own: OWN };
        match may(&actor, level, &facts) {
            Authorization::Allow => "allow",
            Authorization::Deny { answer: DenyAnswer::Silent, .. } => "silent",
            Authorization::Deny { answer: DenyAnswer::ThumbsDown, .. } => "thumbs down",
            Authorization::Deny { answer: DenyAnswer::CannotTell(_), .. } => "cannot tell",
        }
    }

    #[test]
    fn permission_depends_on_level_floor_and_lists() {
        use AccessLevel::*;
        use AccountKind::{Bot, User};
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
    fn team_permits_people_but_not_bots() {
        let facts =
            PermitFacts { floor: AccessLevel::Admin, allowed: &[], in_allowed_team: true, allowed_bots: &[], own: OWN };
        let of = |kind| may(&User { id: UserId(5), login: "ann".into(), kind }, AccessLevel::None, &facts);
        assert_eq!(of(AccountKind::User), Authorization::Allow);
        assert!(matches!(of(AccountKind::Bot), Authorization::Deny { answer: DenyAnswer::Silent, .. }));
    }

    #[test]
    fn team_needs_its_organization() {
        let team = TeamRef::parse("acme/maintainers").expect("a team");
        assert_eq!(
            (team.org.as_str(), team.name.as_str(), team.to_string().as_str()),
            ("acme", "maintainers", "acme/maintainers")
        );
        for wrong in ["", "acme", "acme/", "/maintainers", "a/b/c", "acme/a b", "../x", "acme/..", "acme/a?b"] {
            assert_eq!(TeamRef::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn own_account_is_denied_even_if_allowed() {
        let actor = User { id: OWN, login: "ralph".into(), kind: AccountKind::Bot };
        let facts = PermitFacts {
            floor: AccessLevel::None,
            allowed: &[OWN],
            in_allowed_team: true,
            allowed_bots: &[OWN],
            own: OWN,
        };
        assert!(matches!(
            may(&actor, AccessLevel::Admin, &facts),
            Authorization::Deny { answer: DenyAnswer::Silent, .. }
        ));
    }
}
