//! Costs that a CLI adds up over a whole session, taken apart into what each run cost.

use serde::{Deserialize, Serialize};

use crate::domain::ids::Money;

/// Most sessions that are remembered; the one that was not heard of for longest goes first.
const SESSIONS_MAX: usize = 64;

/// The last figure of each session of a loop, so that a resumed one is not paid for twice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cumulative {
    /// Session and its last figure; the one heard of last stands last.
    sessions: Vec<(String, Money)>,
}

impl Cumulative {
    /// What was spent since the last figure. `session` is unique over backends; without one a figure counts whole, as does
    /// the first figure of a new session. `resumed` is the session that this one goes on from, as some CLIs give a resumed
    /// session a new name and keep its sum. A figure that is lower than the one before counts whole too: the CLI began to
    /// add up anew. Never negative.
    pub fn difference(&mut self, session: Option<&str>, resumed: Option<&str>, figure: Money) -> Money {
        let figure = Money(figure.0.max(0));
        let Some(session) = session else { return figure };
        let before = self.figure(session).or_else(|| self.figure(resumed?)).unwrap_or_default();
        self.sessions.retain(|(name, _)| name != session);
        if self.sessions.len() >= SESSIONS_MAX {
            self.sessions.remove(0);
        }
        self.sessions.push((session.to_owned(), figure));
        if figure < before { figure } else { Money(figure.0 - before.0) }
    }

    fn figure(&self, session: &str) -> Option<Money> {
        self.sessions.iter().find(|(name, _)| name == session).map(|(_, figure)| *figure)
    }
}
