//! Computes the length of a cooldown.

use super::luck;
use super::settings::CooldownSettings;
use super::state::BackendState;
use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::LONGEST_MS;

/// Maximum random time that is added to an end reported by the provider, in milliseconds.
const MAX_KNOWN_JITTER_MS: i64 = 30_000;
/// Period in which cooldowns are counted, in milliseconds.
const FLAPPING_MS: i64 = 2 * 3_600_000;
/// Maximum time after a cooldown during which another backend is preferred, in milliseconds.
pub(super) const MAX_SETTLING_MS: i64 = 30 * 60_000;

/// Returns the end of a cooldown that starts now, and whether that end is certain. `reported` is the end that the provider
/// stated; it is ignored if it is in the past or beyond [`LONGEST_MS`]. The wait grows with the number of consecutive cooldowns
/// without a successful call. A provider that always answers "in a second" is therefore not called every second.
pub(super) fn end(
    reported: Option<Timestamp>,
    step: u32,
    settings: &CooldownSettings,
    seed: u64,
    now: Timestamp,
) -> (Timestamp, bool) {
    let longest = settings.longest.as_millis();
    let reported = reported.filter(|until| *until > now && until.since(now) <= LONGEST_MS);
    let length = match reported {
        Some(until) => {
            let length = until.since(now);
            let most = (length / 20).min(MAX_KNOWN_JITTER_MS);
            let known = length.saturating_add(luck(seed, "known").i64(0..=most));
            known.max(step.checked_sub(1).map_or(0, |step| backoff(step, settings, seed)))
        }
        None => backoff(step, settings, seed),
    };
    (now.plus_ms(length.min(longest)), reported.is_some())
}

/// Returns `first · 2^step`, at most the configured maximum, minus up to 10 % at random.
fn backoff(step: u32, settings: &CooldownSettings, seed: u64) -> i64 {
    let full = 1_i64
        .checked_shl(step.min(40))
        .and_then(|times| settings.backoff_first.as_millis().checked_mul(times))
        .unwrap_or(i64::MAX)
        .min(settings.backoff_max.as_millis())
        .max(1_000);
    full - luck(seed, "backoff").i64(0..=full / 10)
}

/// Returns the time after a cooldown during which other backends are preferred, in milliseconds: 0 after the first cooldown
/// within two hours, then 2, 4, 8, 16 and 30 minutes.
pub(super) fn settling_ms(backend: &BackendState, now: Timestamp) -> i64 {
    let recent = backend.parks.iter().filter(|at| now.since(**at) < FLAPPING_MS).count();
    match u32::try_from(recent).unwrap_or(u32::MAX) {
        0 | 1 => 0,
        parks => (60_000_i64 << (parks - 1).min(10)).min(MAX_SETTLING_MS),
    }
}
