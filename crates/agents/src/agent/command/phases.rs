//! Stops a run that has nothing left to do: it does not start, it only repeats requests that the provider refuses or answers without
//! output, which some agents would do for hours, or it reported its result and does not exit.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::agent::broker::meter::ModelState;

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
    /// It waits for its model.
    AwaitingModel,
    /// The provider refused a request, and only retries have followed since.
    Refused,
    /// Its model gave no output in its last responses.
    Unanswered,
    /// It reported its result.
    Complete,
}

impl RunPhase {
    /// Returns the phase of an agent whose model behaves like `model`, according to the broker of keys.
    fn with_model(self, model: ModelState) -> Self {
        match (self, model) {
            (Self::AwaitingModel, ModelState::Refusing) => Self::Refused,
            (Self::AwaitingModel | Self::Working, ModelState::Silent) => Self::Unanswered,
            (phase, _) => phase,
        }
    }

    /// Returns the maximum length of the phase; `None` for no limit.
    pub(super) fn longest(self) -> Option<Duration> {
        match self {
            Self::Starting => Some(MAX_STARTING),
            Self::Working | Self::AwaitingModel => None,
            Self::Refused => Some(MAX_REFUSED),
            Self::Unanswered => Some(Duration::ZERO),
            Self::Complete => Some(MAX_COMPLETE),
        }
    }

    /// Returns the reason to stop a run that exceeded the length of the phase; `None` if the phase has no limit.
    pub(super) fn excess(self) -> Option<String> {
        let seconds = self.longest()?.as_secs();
        Some(match self {
            Self::Complete => "it did not exit after its result".to_owned(),
            Self::Unanswered => "its model's responses have no output".to_owned(),
            Self::Starting => format!("it did not accept its prompt within {seconds} s"),
            _ => format!("its provider refused it for {seconds} s"),
        })
    }
}

/// Runs `running` to its end, but stops it if a phase exceeds its `longest` time. `model` is the behavior of its model.
/// Returns the result, and the phase in which it was stopped.
pub(super) async fn run_with_phase_limits<T>(
    running: impl Future<Output = T>,
    phases: &mut watch::Receiver<RunPhase>,
    model: &mut watch::Receiver<ModelState>,
    longest: impl Fn(RunPhase) -> Option<Duration>,
    stop: &CancellationToken,
) -> (T, Option<RunPhase>) {
    let phase_limit = async {
        loop {
            let phase = current_phase(phases, model);
            let changed = async {
                while current_phase(phases, model) == phase {
                    tokio::select! {
                        changed = phases.changed() => changed?,
                        changed = model.changed() => changed?,
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
fn current_phase(phases: &mut watch::Receiver<RunPhase>, model: &mut watch::Receiver<ModelState>) -> RunPhase {
    let model = *model.borrow_and_update();
    phases.borrow_and_update().with_model(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn phase_without_work_ends_the_run() {
        use ModelState::{Answering, Refusing, Silent};
        for (phases, model, stopped, after) in [
            (vec![RunPhase::Complete], Silent, Some(RunPhase::Complete), 30),
            (vec![RunPhase::Refused], Refusing, Some(RunPhase::Refused), 60),
            (vec![RunPhase::Refused, RunPhase::Working], Refusing, None, 200),
            (vec![RunPhase::Working, RunPhase::Complete], Refusing, Some(RunPhase::Complete), 40),
            (vec![RunPhase::AwaitingModel], Refusing, Some(RunPhase::Refused), 60),
            (vec![RunPhase::AwaitingModel], Answering, None, 200),
            (vec![RunPhase::AwaitingModel], Silent, Some(RunPhase::Unanswered), 0),
            (vec![RunPhase::Working], Silent, Some(RunPhase::Unanswered), 0),
            (vec![RunPhase::Starting], Refusing, Some(RunPhase::Starting), 120),
            (vec![RunPhase::AwaitingModel, RunPhase::Working], Refusing, None, 200),
        ] {
            let (sender, mut receiver) = watch::channel(RunPhase::Working);
            let (_models, mut model) = watch::channel(model);
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
            let ((), ended) = run_with_phase_limits(run, &mut receiver, &mut model, longest, &stop).await;
            assert_eq!(ended, stopped, "{phases:?}");
            assert!(begun.elapsed() >= Duration::from_millis(after * 10), "{phases:?}: {:?}", begun.elapsed());
        }
    }
}
