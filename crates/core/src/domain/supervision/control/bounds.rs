//! Bounds of the figures of control.

/// Maximum length of the window, in iterations.
pub(super) const MAX_WINDOW: u32 = 100;
/// Minimum of I.
pub const MIN_INTEGRAL: f64 = -1.0;
/// Maximum of I. The stored value is clamped, to prevent further windup.
pub const MAX_INTEGRAL: f64 = 5.0;
