//! Notices to the service manager by systemd's protocol (`sd_notify`): started, stopping, alive. Nothing is sent without one.

use std::time::Duration;

use sd_notify::NotifyState;

use crate::store::Store;

/// Number of notifications in a period of the watchdog; one may be lost.
const SIGNS_PER_PERIOD: u32 = 3;

/// Reports that the service has started, with a line that `systemctl status` shows.
pub(super) fn started(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the service is stopping.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping; agents get a grace period")]);
}

/// Reports that the service is alive until the future is dropped, if the manager has a watchdog (`WatchdogSec=`). A sign is sent only
/// after any answer of the database's writer: a start does not free a full disk, but it ends a deadlock. The
/// set-up has no database.
pub(super) async fn keep_alive(store: Option<&Store>) {
    let Some(period) = sd_notify::watchdog_enabled().and_then(sign_interval) else {
        return std::future::pending().await;
    };
    let mut due = tokio::time::interval(period);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        if let Some(store) = store {
            let answer = store.write(|_| Ok(())).await;
            tracing::trace!(ok = answer.is_ok(), "the database's writer answered; notifying the service manager");
        }
        tell(&[NotifyState::Watchdog]);
    }
}

/// Returns the time between two signs for a watchdog's period; `None` for a period that is too short to be kept.
fn sign_interval(period: Duration) -> Option<Duration> {
    let interval = period / SIGNS_PER_PERIOD;
    (interval >= Duration::from_millis(1)).then_some(interval)
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, ?states, "could not notify the service manager; with `Type=notify` it ends the service");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_is_notified_three_times_per_period() {
        assert_eq!(sign_interval(Duration::from_secs(90)), Some(Duration::from_secs(30)));
        assert_eq!(sign_interval(Duration::ZERO), None);
    }
}
