//! Ends a run that does nothing but ask again a provider that refuses: some agents would do so for hours.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The outcome of a run, and whether it was stopped since it did nothing but ask a refusing provider for too long.
pub(super) async fn run_with_provider_wait_limit<T>(
    running: impl Future<Output = T>,
    waiting: &mut watch::Receiver<bool>,
    longest: Duration,
    stop: &CancellationToken,
) -> (T, bool) {
    let patience = async {
        // The sender outlives this, so that waiting for a value cannot fail; if it did, nothing would be stopped.
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
        () = patience => {
            stop.cancel();
            (running.await, true)
        }
    }
}
