//! Stops a run that has nothing left to do: it does not start, it only retries requests that the provider refuses, which some agents
//! would do for hours, or it reported its result and does not exit.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Maximum time that an agent may spend on retries while the provider refuses requests.
const MAX_REFUSED: Duration = Duration::from_secs(60);
/// Maximum time that an agent may take to exit after its result.
const MAX_COMPLETE: Duration = Duration::from_secs(30);

/// Maximum time that an agent may take to accept its prompt.
const MAX_STARTING: Duration = Duration::from_secs(120);

/// Activity of an agent, according to its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunPhase {
    /// It has not accepted its prompt.
    Starting,
    /// It works.
    Working,
    /// It waits for its model. If the broker of keys saw a refusal, it is [`Self::Refused`].
    AwaitingModel,
    /// The provider refused a request, and only retries have followed since.
    Refused,
    /// It reported its result.
    Complete,
}

impl RunPhase {
    /// Returns the phase if a model refused the last request (`is_refused`).
    fn with_refusal(self, is_refused: bool) -> Self {
        if self == Self::AwaitingModel && is_refused { Self::Refused } else { self }
    }

    /// Returns the maximum length of the phase; `None` for no limit.
    pub(super) fn longest(self) -> Option<Duration> {
        match self {
            Self::Starting => Some(MAX_STARTING),
            Self::Working | Self::AwaitingModel => None,
            Self::Refused => Some(MAX_REFUSED),
            Self::Complete => Some(MAX_COMPLETE),
        }
    }

    /// Returns the reason to stop a run that exceeded the length of the phase; `None` if the phase has no limit.
    pub(super) fn excess(self) -> Option<String> {
        let seconds = self.longest()?.as_secs();
        Some(match self {
            Self::Complete => "it did not exit after its result".to_owned(),
            Self::Starting => format!("it did not accept its prompt within {seconds} s"),
            _ => format!("its provider refused it for {seconds} s"),
        })
    }
}

/// Runs `running` to its end, but stops it if a phase exceeds its `longest` time. `refused` is true while a model refused the last
/// request. Returns the result, and the phase in which it was stopped.
pub(super) async fn run_with_phase_limits<T>(
    running: impl Future<Output = T>,
    phases: &mut watch::Receiver<RunPhase>,
    refused: &mut watch::Receiver<bool>,
    longest: impl Fn(RunPhase) -> Option<Duration>,
    stop: &CancellationToken,
) -> (T, Option<RunPhase>) {
    let phase_limit = async {
        loop {
            let phase = current_phase(phases, refused);
            let changed = async {
                while current_phase(phases, refused) == phase {
                    tokio::select! {
                        changed = phases.changed() => changed?,
                        changed = refused.changed() => changed?,
                    }
                }
                Ok::<(), watch::error::RecvError>(())
            };
            let is_open = match longest(phase) {
                Some(longest) => match tokio::time::timeout(longest, changed).await {
                    Ok(changed) => changed.is_ok(),
                    Err(_) => return phase,
                },
                None => changed.await.is_ok(),
            };
            // The senders outlive this future; if waiting failed, nothing would be stopped.
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

/// Returns the phase, and marks it as seen.
fn current_phase(phases: &mut watch::Receiver<RunPhase>, refused: &mut watch::Receiver<bool>) -> RunPhase {
    let is_refused = *refused.borrow_and_update();
    phases.borrow_and_update().with_refusal(is_refused)
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
            (vec![RunPhase::AwaitingModel], Some(RunPhase::Refused), 60),
            (vec![RunPhase::Starting], Some(RunPhase::Starting), 120),
            (vec![RunPhase::AwaitingModel, RunPhase::Working], None, 200),
        ] {
            let (sender, mut receiver) = watch::channel(RunPhase::Working);
            let (_refusals, mut refused) = watch::channel(true);
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
            let ((), ended) = run_with_phase_limits(run, &mut receiver, &mut refused, longest, &stop).await;
            assert_eq!(ended, stopped, "{phases:?}");
            assert!(begun.elapsed() >= Duration::from_millis(after * 10), "{phases:?}: {:?}", begun.elapsed());
        }
    }
}
