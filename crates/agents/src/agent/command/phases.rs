//! Stops a run that has nothing left to do: it only retries requests that the provider refuses, which some agents would do for
//! hours, or it reported its result and does not exit.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Maximum time that an agent may spend on retries while the provider refuses requests.
pub(super) const MAX_REFUSED: Duration = Duration::from_secs(60);
/// Maximum time that an agent may take to exit after its result.
pub(super) const MAX_COMPLETE: Duration = Duration::from_secs(30);

/// Activity of an agent, according to its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunPhase {
    /// It works.
    Working,
    /// The provider refused a request, and only retries have followed since.
    Refused,
    /// It reported its result.
    Complete,
}

impl RunPhase {
    /// Returns the maximum length of the phase; `None` for no limit.
    pub(super) fn longest(self) -> Option<Duration> {
        match self {
            Self::Working => None,
            Self::Refused => Some(MAX_REFUSED),
            Self::Complete => Some(MAX_COMPLETE),
        }
    }
}

/// Runs `running` to its end, but stops it if a phase exceeds its `longest` time. Returns the result, and the phase in which it was stopped.
pub(super) async fn run_with_phase_limits<T>(
    running: impl Future<Output = T>,
    phases: &mut watch::Receiver<RunPhase>,
    longest: impl Fn(RunPhase) -> Option<Duration>,
    stop: &CancellationToken,
) -> (T, Option<RunPhase>) {
    let phase_limit = async {
        loop {
            let phase = *phases.borrow_and_update();
            let changed = phases.wait_for(|next| *next != phase);
            let is_open = match longest(phase) {
                Some(longest) => match tokio::time::timeout(longest, changed).await {
                    Ok(changed) => changed.is_ok(),
                    Err(_) => return phase,
                },
                None => changed.await.is_ok(),
            };
            // The sender outlives this future; if waiting failed, nothing would be stopped.
            if !is_open {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut running = std::pin::pin!(running);
    tokio::select! {
        outcome = &mut running => (outcome, None),
        phase = phase_limit => {
            stop.cancel();
            (running.await, Some(phase))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn phase_without_work_ends_the_run() {
        for (phases, stopped, after) in [
            (vec![RunPhase::Complete], Some(RunPhase::Complete), 30),
            (vec![RunPhase::Refused], Some(RunPhase::Refused), 60),
            (vec![RunPhase::Refused, RunPhase::Working], None, 200),
            (vec![RunPhase::Working, RunPhase::Complete], Some(RunPhase::Complete), 40),
        ] {
            let (sender, mut receiver) = watch::channel(RunPhase::Working);
            let stop = CancellationToken::new();
            let run = async {
                for (number, phase) in phases.iter().enumerate() {
                    if number > 0 {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    sender.send_replace(*phase);
                }
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(Duration::from_secs(2)) => {}
                }
            };
            let longest = |phase: RunPhase| phase.longest().map(|longest| longest / 100);
            let begun = tokio::time::Instant::now();
            let ((), ended) = run_with_phase_limits(run, &mut receiver, longest, &stop).await;
            assert_eq!(ended, stopped, "{phases:?}");
            assert!(begun.elapsed() >= Duration::from_millis(after * 10), "{phases:?}: {:?}", begun.elapsed());
        }
    }
}
