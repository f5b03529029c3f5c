//! State of the backends, shared by all loops: availability, cooldowns, and the choice of a backend for a call.
//!
//! Only [`transition()`] changes the state; [`choose()`] reads it. A caller that was given a backend reports
//! [`BackendObservation::CallStarted`] in the same transaction, so that two loops cannot take the same slot. Later it reports one
//! outcome. A cooldown that is over is ended by the next observation, so that no timer is needed.
//!
//! After a cooldown, a backend is on probation: one call tries it, and all other calls use other backends until that call is
//! answered. After repeated cooldowns, other backends are preferred for increasing periods.
//!
//! A refusal affects all loops only if the service observed it: in its own calls, or in calls that pass its key broker. A refusal
//! that only a run reported affects its own loop. If another loop reports the same, it affects all loops for at most an hour
//! ([`Claims`]).

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
mod transition;

pub use choice::{BackendChoice, Blocked, BlockedBy, CallRequest, PreviousSession, SessionUse};
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
pub use transition::transition;

/// Creates a random number generator. Generators with the same seed and a different `purpose` are independent.
fn luck(seed: u64, purpose: &str) -> fastrand::Rng {
    let mixed = purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    });
    fastrand::Rng::with_seed(mixed)
}

/// Returns the first 300 characters of a text, without control characters.
fn shortened(text: &str) -> String {
    text.trim().chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
