//! Stops a run that does nothing but retry requests that the provider refuses; some agents would do so for hours.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Runs `running` to its end, but stops it if `waiting` is `true` for longer than `longest`. Returns the result, and
/// whether it was stopped.
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
