//! Types that the bot and the fake forge share: identifiers, quantities, the clock, and the error for people.

pub mod clock;
pub mod failure;
pub mod ids;
