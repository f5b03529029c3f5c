//! State values of the browser set-up. The browser brings a value back from the forge; it is valid once, for an hour, and only in
//! the same browser.

use subtle::ConstantTimeEq;

use crate::domain::model::ids::Timestamp;

/// Lifetime of a value, in milliseconds. GitHub keeps the code of an app manifest for the same time.
pub const SETUP_STATE_MS: i64 = 3_600_000;
/// Maximum number of values that are stored. The oldest are dropped.
const MAX_STATES: usize = 32;

/// Values that were issued, each with its purpose.
#[derive(Debug, Clone)]
pub struct SetupStates<T>(Vec<GivenState<T>>);

#[derive(Debug, Clone)]
struct GivenState<T> {
    value: String,
    browser: String,
    until: Timestamp,
    purpose: T,
}

/// Reason for rejecting a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StateRefusal {
    /// The value was never issued, was used before, or was dropped.
    #[error("this set-up link is unknown or was used before; start over")]
    Unknown,
    /// The value was issued to another browser.
    #[error("this set-up was started in another browser; continue there, or start over here")]
    Foreign,
    /// The value is older than an hour.
    #[error("this set-up link has expired; start over")]
    Expired,
}

impl<T> Default for SetupStates<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> SetupStates<T> {
    /// Stores a value that is issued to a browser.
    pub fn give(&mut self, value: String, browser: &str, purpose: T, now: Timestamp) {
        self.0.retain(|given| now < given.until);
        if self.0.len() >= MAX_STATES {
            self.0.remove(0);
        }
        self.0.push(GivenState { value, browser: browser.to_owned(), until: now.plus_ms(SETUP_STATE_MS), purpose });
    }

    /// Redeems a value that a browser brings back; returns its purpose.
    ///
    /// # Errors
    /// The value is invalid. A value of another browser stays valid in that browser.
    pub fn take(&mut self, value: &str, browser: &str, now: Timestamp) -> Result<T, StateRefusal> {
        let same = |a: &str, b: &str| bool::from(a.as_bytes().ct_eq(b.as_bytes()));
        // All are compared, so that the time does not reveal which one is similar.
        let found = self.0.iter().enumerate().fold(None, |found, (at, given)| match same(&given.value, value) {
            true => Some(at),
            false => found,
        });
        let at = found.ok_or(StateRefusal::Unknown)?;
        let (until, is_same_browser) = (self.0[at].until, same(&self.0[at].browser, browser));
        if !is_same_browser {
            return Err(StateRefusal::Foreign);
        }
        let given = self.0.remove(at);
        if until <= now { Err(StateRefusal::Expired) } else { Ok(given.purpose) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn given() -> SetupStates<u8> {
        let mut states = SetupStates::default();
        states.give("first".into(), "here", 1, NOW);
        states.give("second".into(), "here", 2, NOW);
        states
    }

    #[test]
    fn value_is_accepted_once() {
        let mut states = given();
        assert_eq!(states.take("second", "here", NOW), Ok(2));
        assert_eq!(states.take("second", "here", NOW), Err(StateRefusal::Unknown));
        assert_eq!(states.take("first", "here", NOW), Ok(1));
        for other in ["", "firs", "first ", "FIRST"] {
            assert_eq!(given().take(other, "here", NOW), Err(StateRefusal::Unknown), "{other}");
        }
    }

    #[test]
    fn value_of_another_browser_stays_usable_there() {
        let mut states = given();
        assert_eq!(states.take("first", "elsewhere", NOW), Err(StateRefusal::Foreign));
        assert_eq!(states.take("first", "here", NOW), Ok(1));
    }

    #[test]
    fn value_is_valid_for_an_hour() {
        assert_eq!(given().take("first", "here", NOW.plus_ms(SETUP_STATE_MS - 1)), Ok(1));
        assert_eq!(given().take("first", "here", NOW.plus_ms(SETUP_STATE_MS)), Err(StateRefusal::Expired));
    }

    #[test]
    fn oldest_values_are_forgotten() {
        let mut states = given();
        for number in 0..MAX_STATES {
            states.give(format!("more {number}"), "here", 3, NOW);
        }
        assert_eq!(states.take("second", "here", NOW), Err(StateRefusal::Unknown));
        assert_eq!(states.0.len(), MAX_STATES);
    }
}
