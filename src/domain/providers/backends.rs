//! State of the backends, shared by all loops: availability, cooldowns, and the choice of a backend for a call.
//!
//! Only [`transition()`] changes the state; [`choose()`] reads it. A caller that was given a backend reports
//! [`BackendObservation::CallStarted`] in the same transaction, so that two loops cannot take the same slot, and later
//! one outcome. The next observation ends a cooldown that is over, so that no timer is needed.
//!
//! A backend is on probation after a cooldown: one call tries it, and all others use other backends until that call is
//! answered. After repeated cooldowns another backend is preferred for increasing periods.
//!
//! A refusal is held against a backend for all loops only if the service saw it: in its own calls, and in those that go through
//! the broker of keys. What a run reported holds for its loop until another loop reports the same ([`Claims`]).

mod choice;
mod choose;
mod claims;
mod ledger;
mod observation;
mod parking;
mod proactive;
mod provider_name;
mod reasons;
mod rotation;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod thompson;
mod transition;

pub use choice::{BackendChoice, Blocked, BlockedBy, CallRequest, ChoiceReason, PreviousSession, SessionUse};
pub use choose::choose;
pub use claims::{ClaimedState, Claims, RefusalClaim};
pub use ledger::UsageLedger;
pub use observation::{BackendCall, BackendChange, BackendObservation, BackendTransition, CallAdvice};
pub use proactive::Threshold;
pub use provider_name::provider_name;
pub use settings::{
    BackendModels, BackendPriority, BackendRole, BackendSettings, BackendThresholds, BackendType, BackendsSettings,
    CooldownSettings, OutputFormatName, RotationMode, RotationSettings, StdinUse, WireName,
};
pub use state::{
    BackendState, BackendStatus, Backends, Cooldown, CooldownReason, DisabledFor, InFlight, LastError, Probation,
    RotationState,
};
pub use thompson::{Posterior, Posteriors};
pub use transition::transition;

/// Returns a random number generator for a seed; `purpose` separates the generators of one seed.
fn luck(seed: u64, purpose: &str) -> fastrand::Rng {
    let mixed = purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    });
    fastrand::Rng::with_seed(mixed)
}

/// Returns at most 300 characters of a text, without control characters.
fn shortened(text: &str) -> String {
    text.trim().chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
