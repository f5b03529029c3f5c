//! Schedules deliveries: in order for one issue, concurrently for different issues, so that a
//! slow issue or repository does not delay others.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use failpoint::kill_point;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use crate::domain::model::event::ForgeEvent;
use crate::domain::model::ids::RepoRef;
use crate::engine::concurrency_limits::ConcurrencyLimits;
use crate::engine::intake::Intake;
use crate::store::StoreError;
use crate::store::inbox::{self, DeliveryOutcome};

/// Maximum number of deliveries per batch.
const BATCH: usize = 64;

/// Due delivery and the queue that it belongs to.
struct DueDelivery {
    id: i64,
    place: String,
    repo: Option<RepoRef>,
}

/// Queue of the deliveries of one issue.
struct DeliveryQueue {
    repo: Option<RepoRef>,
    waiting: BTreeSet<i64>,
    under_way: Vec<i64>,
}

/// Queues of deliveries that were found and not yet processed.
#[derive(Default)]
struct DeliveryQueues {
    queues: HashMap<String, DeliveryQueue>,
    /// Keys of the queues without a running batch, longest wait first.
    idle: VecDeque<String>,
    /// Ids of all deliveries in the queues.
    known: HashSet<i64>,
}

impl DeliveryQueues {
    fn add(&mut self, found: Vec<DueDelivery>) {
        for DueDelivery { id, place, repo } in found {
            self.known.insert(id);
            let queue = self.queues.entry(place.clone()).or_insert_with(|| {
                self.idle.push_back(place);
                DeliveryQueue { repo, waiting: BTreeSet::new(), under_way: Vec::new() }
            });
            queue.waiting.insert(id);
        }
    }

    /// Returns the next batch of a queue whose repository is below its limit.
    fn next(&mut self, call_limits: &ConcurrencyLimits) -> Option<(String, Option<RepoRef>, Vec<i64>)> {
        let saturated = call_limits.saturated();
        let free = |place: &String| {
            self.queues.get(place).is_some_and(|queue| queue.repo.as_ref().is_none_or(|repo| saturated.admits(repo)))
        };
        let at = self.idle.iter().position(free)?;
        let place = self.idle.remove(at)?;
        let queue = self.queues.get_mut(&place)?;
        while queue.under_way.len() < BATCH
            && let Some(id) = queue.waiting.pop_first()
        {
            queue.under_way.push(id);
        }
        Some((place, queue.repo.clone(), queue.under_way.clone()))
    }

    /// Ends the running batch of a queue. If it failed, the queue is dropped and its deliveries are read from the
    /// store again.
    fn over(&mut self, place: String, went_through: bool) {
        let Some(queue) = self.queues.get_mut(&place) else { return };
        for id in std::mem::take(&mut queue.under_way) {
            self.known.remove(&id);
        }
        if went_through && !queue.waiting.is_empty() {
            self.idle.push_back(place);
        } else if let Some(queue) = self.queues.remove(&place) {
            self.known.retain(|id| !queue.waiting.contains(id));
        }
    }
}

/// Result of a finished task.
enum FinishedTask {
    /// Lookup of due deliveries; `None` if there were no new ones.
    Lookup(Result<Option<Vec<DueDelivery>>, StoreError>),
    /// Batch of a queue; `false` if a delivery was postponed.
    Deliveries(String, Result<bool, StoreError>),
}

impl Intake {
    /// Processes all due deliveries; returns `true` if there were any.
    pub async fn intake_step(&self) -> Result<bool, StoreError> {
        let Some(found) = self.look(HashSet::new()).await? else { return Ok(false) };
        let mut queues = DeliveryQueues::default();
        queues.add(found);
        let mut under_way = FuturesUnordered::new();
        let mut outcome = Ok(true);
        loop {
            self.set_off(&mut queues, &under_way);
            match under_way.next().await {
                Some(FinishedTask::Deliveries(place, went)) => {
                    queues.over(place, matches!(went, Ok(true)));
                    outcome = outcome.and(went.map(|_| true));
                }
                Some(FinishedTask::Lookup(_)) => {}
                None => return outcome,
            }
        }
    }

    /// Processes deliveries until the service stops.
    pub(in crate::engine) async fn intake(self: Arc<Self>) {
        self.context.until_stopped(self.pace.stop_grace, self.take_in()).await;
    }

    async fn take_in(&self) {
        let mut queues = DeliveryQueues::default();
        let mut under_way = FuturesUnordered::new();
        let (mut looking, mut again, mut rest) = (false, true, self.pace.poll);
        loop {
            let open = !self.context.stopping.is_cancelled();
            if open {
                if again && !looking {
                    (looking, again) = (true, false);
                    under_way.push(self.look(queues.known.clone()).map(FinishedTask::Lookup).boxed());
                }
                self.set_off(&mut queues, &under_way);
            } else if under_way.is_empty() {
                return;
            }
            tokio::select! {
                Some(ended) = under_way.next() => match ended {
                    FinishedTask::Lookup(found) => {
                        looking = false;
                        let found = self.or_rest(found, &mut rest).flatten();
                        again |= found.is_some();
                        queues.add(found.unwrap_or_default());
                    }
                    FinishedTask::Deliveries(place, went) => queues.over(place, self.or_rest(went, &mut rest) == Some(true)),
                },
                () = self.context.wake.intake.notified(), if open => again = true,
                () = tokio::time::sleep(rest), if open => again = true,
                () = self.context.stopping.cancelled(), if open => {}
            }
        }
    }

    /// Returns the value of a successful task. After a failure of the store, `rest` delays the next lookup.
    fn or_rest<T>(&self, outcome: Result<T, StoreError>, rest: &mut Duration) -> Option<T> {
        *rest = self.pace.wait_after_step(outcome.is_err());
        outcome.inspect_err(|error| tracing::warn!(%error, "could not process deliveries")).ok()
    }

    /// Starts batches of all queues that are ready.
    fn set_off<'a>(&'a self, queues: &mut DeliveryQueues, under_way: &FuturesUnordered<BoxFuture<'a, FinishedTask>>) {
        while let Some((place, repo, ids)) = queues.next(&self.limits) {
            let permit = repo.map(|repo| self.limits.acquire(&repo));
            let handled = async move {
                let outcome = self.handle_all(ids).await;
                drop(permit);
                FinishedTask::Deliveries(place, outcome)
            };
            under_way.push(handled.boxed());
        }
    }

    /// Returns the due deliveries that are not queued yet. Deliveries that need no processing are finished
    /// immediately.
    async fn look(&self, known: HashSet<i64>) -> Result<Option<Vec<DueDelivery>>, StoreError> {
        let (now, not_there) = (self.context.clock.now(), self.forges.unknown_forges());
        let due = self.context.store.read(move |c| inbox::due(c, now, &not_there)).await?;
        let new: Vec<i64> = due.into_iter().filter(|id| !known.contains(id)).take(BATCH).collect();
        if new.is_empty() {
            return Ok(None);
        }
        kill_point("K06");
        let mut found = Vec::new();
        let mut meaningless = Vec::new();
        for waiting in self.context.store.read(move |c| inbox::waiting(c, &new)).await? {
            match self.parse_delivery(&waiting) {
                Ok(report) => {
                    let (place, repo) = (place_of(&report.event), report.event.repo().cloned());
                    found.push(DueDelivery { id: waiting.id, place, repo });
                }
                Err((outcome, why)) => {
                    match outcome {
                        DeliveryOutcome::Refused => self.tell_refused(&waiting, &why),
                        _ => tracing::debug!(delivery = waiting.delivery.delivery, why, "delivery ignored"),
                    }
                    meaningless.push((waiting.id, outcome, why));
                }
            }
        }
        if !meaningless.is_empty() {
            let finish =
                move |c: &_| meaningless.iter().try_for_each(|(id, outcome, why)| inbox::finish(c, *id, *outcome, why));
            self.context.store.write(finish).await?;
        }
        Ok(Some(found))
    }

    /// Processes deliveries of one queue in order; stops and returns `false` if one was postponed.
    async fn handle_all(&self, ids: Vec<i64>) -> Result<bool, StoreError> {
        // In a burst the same label is reported repeatedly; without this check each report would ask the forge who
        // set it.
        let mut last_label = None;
        for waiting in self.context.store.read(move |c| inbox::waiting(c, &ids)).await? {
            // It was parsed successfully when it was queued.
            let Ok(report) = self.parse_delivery(&waiting) else { continue };
            let label = label_event(&report.event);
            if label.is_some() && label == last_label {
                let again = "a repeat of the previous delivery";
                self.context
                    .store
                    .write(move |c| inbox::finish(c, waiting.id, DeliveryOutcome::Ignored, again))
                    .await?;
                continue;
            }
            last_label = label.or(last_label);
            if !self.handle(&waiting, report).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the key of an event's queue: its issue or pull request, otherwise its repository.
fn place_of(event: &ForgeEvent) -> String {
    let number = event.number().map_or(0, |number| number.0);
    event.repo().map_or_else(String::new, |repo| format!("{}/{}#{number}", repo.forge, repo.id))
}

/// Returns the event if it reports labels.
fn label_event(event: &ForgeEvent) -> Option<ForgeEvent> {
    let labels =
        matches!(event, ForgeEvent::Labeled { .. } | ForgeEvent::Unlabeled { .. } | ForgeEvent::LabelSet { .. });
    labels.then(|| event.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::ids::{ForgeName, RepoId};

    fn found(id: i64, place: &str, repo: i64) -> DueDelivery {
        let repo = RepoRef { forge: ForgeName::new("f"), id: RepoId(repo), owner: "o".into(), name: "n".into() };
        DueDelivery { id, place: place.into(), repo: Some(repo) }
    }

    fn next(queues: &mut DeliveryQueues, call_limits: &ConcurrencyLimits) -> Option<(String, Vec<i64>)> {
        queues.next(call_limits).map(|(place, _, ids)| (place, ids))
    }

    #[test]
    fn queue_runs_one_batch_at_a_time_in_order() {
        let (mut queues, call_limits) = (DeliveryQueues::default(), ConcurrencyLimits::new(9, 9));
        queues.add(vec![found(3, "a", 1), found(1, "a", 1), found(2, "b", 1)]);
        assert_eq!(next(&mut queues, &call_limits), Some(("a".into(), vec![1, 3])));
        assert_eq!(next(&mut queues, &call_limits), Some(("b".into(), vec![2])));
        queues.add(vec![found(4, "a", 1)]);
        assert_eq!(next(&mut queues, &call_limits), None, "both are under way");
        queues.over("a".into(), true);
        assert_eq!(next(&mut queues, &call_limits), Some(("a".into(), vec![4])));
        queues.over("a".into(), true);
        queues.over("b".into(), true);
        assert!(queues.queues.is_empty() && queues.known.is_empty() && queues.idle.is_empty());
    }

    #[test]
    fn deliveries_after_postponed_one_are_read_again() {
        let (mut queues, call_limits) = (DeliveryQueues::default(), ConcurrencyLimits::new(9, 9));
        queues.add(vec![found(1, "a", 1)]);
        assert!(next(&mut queues, &call_limits).is_some());
        queues.add(vec![found(2, "a", 1)]);
        queues.over("a".into(), false);
        assert!(queues.known.is_empty() && queues.queues.is_empty());
        queues.add(vec![found(2, "a", 1)]);
        assert_eq!(next(&mut queues, &call_limits), Some(("a".into(), vec![2])));
    }

    #[test]
    fn saturated_repository_does_not_block_others() {
        let (mut queues, call_limits) = (DeliveryQueues::default(), ConcurrencyLimits::new(9, 1));
        queues.add(vec![found(1, "a", 1), found(2, "b", 1), found(3, "c", 2)]);
        let (place, repo, _) = queues.next(&call_limits).expect("one");
        let permit = call_limits.acquire(&repo.expect("its repository"));
        assert_eq!((place.as_str(), next(&mut queues, &call_limits)), ("a", Some(("c".into(), vec![3]))));
        assert_eq!(next(&mut queues, &call_limits), None);
        drop(permit);
        assert_eq!(next(&mut queues, &call_limits), Some(("b".into(), vec![2])));
    }

    #[test]
    fn long_queue_is_processed_in_batches() {
        let (mut queues, call_limits) = (DeliveryQueues::default(), ConcurrencyLimits::new(9, 9));
        queues.add((0..100).map(|id| found(id, "a", 1)).collect());
        assert_eq!(next(&mut queues, &call_limits).map(|(_, ids)| ids.len()), Some(BATCH));
        queues.over("a".into(), true);
        assert_eq!(next(&mut queues, &call_limits).map(|(_, ids)| ids.len()), Some(100 - BATCH));
    }
}
