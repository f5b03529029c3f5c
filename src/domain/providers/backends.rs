//! Backends as all loops share them: which may be called now, which are parked until when, and which one a call goes to.
//!
//! [`transition()`] is the only thing that changes the state, [`choose()`] reads it. A caller that was given a backend reports
//! [`BackendObservation::CallStarted`] in the same transaction, so that two loops cannot take one free place; then one outcome.
//! The end of a park is noticed by whatever is observed next, so no timer is needed for it.
//!
//! A backend that comes back from a park is on probation: one call tries it, all others stay where they are until it
//! answered. One that is parked again and again is left alone for longer each time, as far as there is another.

mod choose;
mod ledger;
mod observation;
mod parking;
mod proactive;
mod rotation;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod thompson;
mod transition;

pub use choose::{BackendChoice, Blocked, BlockedBy, CallRequest, ChoiceReason, PreviousSession, SessionUse, choose};
pub use ledger::UsageLedger;
pub use observation::{BackendCall, BackendChange, BackendObservation, BackendTransition, CallAdvice};
pub use proactive::Threshold;
pub use settings::{
    BackendModels, BackendPriority, BackendRole, BackendSettings, BackendThresholds, BackendType, BackendsSettings,
    CooldownSettings, OutputFormatName, RotationMode, RotationSettings, StdinUse, WireName,
};
pub use state::{
    BackendState, BackendStatus, Backends, DisabledFor, InFlight, LastError, Park, ParkedFor, Probation, RotationState,
};
pub use thompson::{Posterior, Posteriors};
pub use transition::transition;

/// Luck from a seed; `purpose` keeps the streams of one seed apart.
fn luck(seed: u64, purpose: &str) -> fastrand::Rng {
    let mixed = purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    });
    fastrand::Rng::with_seed(mixed)
}

/// At most 300 characters of a text, none of which moves a terminal's cursor.
fn shortened(text: &str) -> String {
    text.trim().chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
