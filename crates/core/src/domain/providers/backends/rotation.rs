//! Order in which the backends are considered for a call.

use super::choice::CallRequest;
use super::settings::{BackendsSettings, RotationMode};
use super::state::Backends;
use crate::domain::model::ids::Timestamp;

/// Returns the backends with the role in order of preference.
pub(super) fn ranking<'s>(
    state: &Backends,
    settings: &'s BackendsSettings,
    request: &CallRequest,
    now: Timestamp,
) -> Vec<&'s str> {
    let in_order = settings.in_order(request.role);
    let order = &settings.rotation.order;
    let turns = match settings.sorted_by(order, request.role, false) {
        turns if turns.is_empty() => in_order.clone(),
        turns => turns,
    };
    match settings.rotation.mode {
        RotationMode::None => in_order,
        RotationMode::RoundRobin => {
            let last = request.previous.as_ref().or_else(|| state.rotation.last.get(&request.role));
            let first = last.and_then(|last| turns.iter().position(|name| name == last)).map_or(0, |at| at + 1);
            turned(turns, first, in_order)
        }
        RotationMode::TimeSliced => {
            let slice = now.0.div_euclid(settings.rotation.interval.as_millis().max(1));
            let count = i64::try_from(turns.len()).unwrap_or(i64::MAX).max(1);
            let first = usize::try_from(slice.rem_euclid(count)).unwrap_or(0);
            turned(turns, first, in_order)
        }
    }
}

/// Rotates `turns` so that it starts at index `first`, and appends the backends of `all` that are not in it.
fn turned<'s>(mut turns: Vec<&'s str>, first: usize, all: Vec<&'s str>) -> Vec<&'s str> {
    let count = turns.len().max(1);
    turns.rotate_left(first % count);
    let spare: Vec<&str> = all.into_iter().filter(|name| !turns.contains(name)).collect();
    turns.extend(spare);
    turns
}
