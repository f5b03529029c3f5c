//! Bounds of the figures of control.

/// Longest window that is kept, in iterations.
pub(super) const MAX_WINDOW: u32 = 100;
/// Least value of I.
pub const MIN_INTEGRAL: f64 = -1.0;
/// Greatest value of I; what is kept is clamped, so that it cannot wind up further.
pub const MAX_INTEGRAL: f64 = 5.0;
