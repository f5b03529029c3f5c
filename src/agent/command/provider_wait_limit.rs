//! Stops a run that only retries a provider that refuses requests; some agents would do so for hours.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Returns the result of `running`, and whether it was stopped because `waiting` was `true` for longer than `longest`.
pub(super) async fn run_with_provider_wait_limit<T>(
    running: impl Future<Output = T>,
    waiting: &mut watch::Receiver<bool>,
    longest: Duration,
    stop: &CancellationToken,
) -> (T, bool) {
    let wait_limit = async {
        // The sender outlives this future; if waiting failed, nothing would be stopped.
        while waiting.wait_for(|waits| *waits).await.is_ok() {
            if tokio::time::timeout(longest, waiting.wait_for(|waits| !*waits)).await.is_err() {
                return;
            }
        }
        std::future::pending().await
    };
    let mut running = std::pin::pin!(running);
    tokio::select! {
        outcome = &mut running => (outcome, false),
        () = wait_limit => {
            stop.cancel();
            (running.await, true)
        }
    }
}
