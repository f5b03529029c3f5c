//! Types that the bot and the fake forge share: identifiers, quantities and the clock.

pub mod clock;
pub mod ids;
