//! Cost of a run's requests to models. Each request reserves its maximum cost before it is sent, and is charged the
//! actual cost when its response is complete. A request that exceeds the remaining budget is refused, and the run
//! ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ralph_types::failure::Failure;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

use super::usage::AnswerUsage;
use crate::agent::{CostGuard, CountedUsage};
use crate::domain::model::ids::Money;
use crate::domain::model::tokens::estimated_tokens;
use crate::domain::providers::limit::{EMPTY_ANSWER, LimitSignals};
use crate::domain::providers::prices::{PriceTable, TokenPrice, TokenUsage, Vendor};
use crate::domain::providers::usage::ReportedUsage;
use crate::domain::trust::bounds::{BROKER_BODIES, BROKER_BODY_BYTES};

/// Number of output tokens that a request without a limit is assumed to need: the most that any model writes.
const MOST_OUTPUT: u64 = 128_000;
/// Number of output tokens that suffice for a usual turn. A request that can get this many does not wait for other
/// requests to finish.
const USUAL_OUTPUT: u64 = 32_000;
/// Minimum number of output tokens for which a request is sent.
const LEAST_OUTPUT: u64 = 1_024;
/// Minimum number of bytes per token that is assumed when the price depends on the prompt's length.
const LEAST_BYTES_PER_TOKEN: usize = 2;
/// Maximum number of a run's requests with incomplete responses; further requests wait. Because the exact input tokens
/// are known only afterwards, this bounds how far a run can exceed its budget.
const MOST_OPEN: usize = 16;
/// Maximum number of tokens that are added to an estimate because earlier requests exceeded theirs.
const MOST_EXCESS: u64 = 200_000;
/// Number of consecutive responses without output after which the model is [`ModelState::Silent`]. Agents that give up by themselves do so
/// earlier.
const MOST_EMPTY: u32 = 5;
/// Maximum number of different refusals that are recorded for the operator.
const MOST_REFUSALS: usize = 20;

/// Properties of a request from which its cost is estimated.
#[derive(Debug, Clone)]
pub(super) struct Quote {
    /// Price of the model that the request names.
    pub(super) price: TokenPrice,
    /// Length of the request's body, in bytes.
    pub(super) bytes: usize,
    /// Whether the provider caches input for an hour, at twice the input price.
    pub(super) keeps_long: bool,
    /// Maximum number of output tokens that the request sets; `None` if it sets no limit.
    pub(super) output: Option<u64>,
    /// Number of responses that the request asks for.
    pub(super) choices: u64,
    /// Name of the model that the request names.
    pub(super) model: String,
    pub(super) vendor: Option<Vendor>,
}

/// Returns the maximum number of tokens that a request of this many bytes may have.
pub(super) fn most_tokens(bytes: usize) -> u64 {
    bytes.div_ceil(LEAST_BYTES_PER_TOKEN) as u64
}

impl Quote {
    /// Returns the estimated number of input tokens.
    fn input(&self) -> u64 {
        estimated_tokens(self.bytes) as u64
    }

    /// Returns the cost of the input if it has `excess` tokens more than estimated.
    fn input_cost(&self, excess: u64) -> Money {
        // The whole input may be written to a cache.
        let long = Money(if self.keeps_long { self.price.input.0.saturating_mul(2) } else { 0 });
        let input = self.price.input.max(self.price.cache_write).max(long);
        let price = TokenPrice { input, ..self.price };
        price.cost(&TokenUsage { input: self.input().saturating_add(excess), ..TokenUsage::default() })
    }

    /// Returns the maximum cost of the request if each response has `output` tokens.
    fn cost(&self, output: u64, excess: u64) -> Money {
        let output = output.saturating_mul(self.choices);
        self.input_cost(excess).plus(self.price.cost(&TokenUsage { output, ..TokenUsage::default() }))
    }

    /// Returns the number of output tokens per response that `left` pays for.
    fn affordable(&self, left: Money, excess: u64) -> u64 {
        let left = i128::from(left.0.saturating_sub(self.input_cost(excess).0).max(0)) * 1_000_000;
        let price = i128::from(self.price.output.0) * i128::from(self.choices.max(1));
        if price <= 0 { u64::MAX } else { u64::try_from(left / price).unwrap_or(u64::MAX) }
    }
}

/// Returns a number of bytes in KiB, at least 1.
fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024).max(1)).unwrap_or(u32::MAX)
}

/// Behavior of a model towards the requests of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::agent) enum ModelState {
    #[default]
    Answering,
    /// It refused the last request.
    Refusing,
    /// Its last responses had no output.
    Silent,
}

#[derive(Debug)]
struct OpenRequest {
    quote: Quote,
    reserved: Money,
    /// Maximum length of each response, in tokens.
    granted: u64,
    told: AnswerUsage,
}

impl OpenRequest {
    /// Returns the usage and cost of a request according to the response so far. If the response was interrupted
    /// before the provider reported its usage, the maximum length is assumed, because the model may have continued or
    /// produced hidden output.
    fn cut(&self, prices: &PriceTable) -> (ReportedUsage, Money) {
        let usage = self.told.or_estimated(self.quote.input());
        let price = self.price(prices, usage.input);
        if self.told.is_known() {
            return (usage, usage.cost(&price));
        }
        let longest = self.granted.saturating_mul(self.quote.choices).max(usage.output);
        let cost = ReportedUsage { output: longest, ..usage }.cost(&price);
        (usage, if self.told.usage.input == 0 { cost.max(self.reserved) } else { cost })
    }

    /// Returns the price of the model that responded, otherwise of the requested model, for a prompt of this many
    /// tokens.
    fn price(&self, prices: &PriceTable, prompt: u64) -> TokenPrice {
        let names = self.told.model.as_deref().into_iter().chain([self.quote.model.as_str()]);
        prices.price_or_highest(names, self.quote.vendor, prompt)
    }
}

#[derive(Debug, Default)]
struct MeterState {
    counted: CountedUsage,
    open: BTreeMap<u64, OpenRequest>,
    next: u64,
    /// Maximum number of tokens by which a request's input exceeded its estimate.
    excess: u64,
    /// Highest cost that was reported to the limits shared with other runs.
    published: Money,
    /// Reason why the budget is used up; `None` if it is not.
    exhausted: Option<String>,
    /// Whether the run has ended.
    has_ended: bool,
    /// Last refusal of a model, unless a later request succeeded. A response without output is a refusal.
    refusal: Option<LimitSignals>,
    /// Number of the last complete responses that had no output.
    empty: u32,
    refused: Vec<String>,
}

impl MeterState {
    fn reserved(&self) -> Money {
        self.open.values().fold(Money(0), |sum, open| sum.plus(open.reserved))
    }

    /// Returns the run's cost so far plus the maximum cost of its open requests.
    fn committed(&self) -> Money {
        self.counted.cost.plus(self.reserved())
    }
}

/// Cost meter of a run.
#[derive(Debug)]
pub(in crate::agent) struct RunMeter {
    state: Mutex<MeterState>,
    /// Budget of the run; `None` without a limit.
    budget: Option<Money>,
    /// Limits that the run shares with other runs; `None` without such limits.
    guard: Option<Arc<dyn CostGuard>>,
    prices: Arc<PriceTable>,
    freed: Notify,
    /// Room for the bodies of requests that were not sent yet, in KiB.
    bodies: Semaphore,
    /// Canceled when the budget is used up.
    exhausted: CancellationToken,
    model: watch::Sender<ModelState>,
}

/// Result of an attempt to reserve cost.
enum ReserveOutcome {
    Granted(u64, u64),
    Wait,
    Exhausted(String),
    Ended,
}

impl RunMeter {
    /// Creates the meter of a run with a maximum cost of `budget`.
    pub(in crate::agent) fn new(
        budget: Option<Money>,
        guard: Option<Arc<dyn CostGuard>>,
        prices: Arc<PriceTable>,
    ) -> Arc<Self> {
        let (state, freed, exhausted) = (Mutex::default(), Notify::new(), CancellationToken::new());
        let bodies = Semaphore::new(BROKER_BODIES * BROKER_BODY_BYTES / 1024);
        Arc::new(Self { state, budget, guard, prices, freed, bodies, exhausted, model: watch::Sender::default() })
    }

    fn state(&self) -> MutexGuard<'_, MeterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the prices of the models.
    pub(super) fn prices(&self) -> &PriceTable {
        &self.prices
    }

    /// Waits until the run has room for a body of at most this many bytes, and reserves it.
    pub(super) async fn body_room(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        self.bodies.acquire_many(kib(bytes)).await.ok()
    }

    /// Waits until the budget is used up.
    pub(in crate::agent) async fn until_exhausted(&self) {
        self.exhausted.cancelled().await;
    }

    /// Whether a request was refused because the budget is used up.
    pub(in crate::agent) fn is_exhausted(&self) -> bool {
        self.exhausted.is_cancelled()
    }

    /// Refuses further requests, so that the usage counted after this call is final.
    pub(in crate::agent) fn finish(&self) {
        self.state().has_ended = true;
        self.freed.notify_waiters();
    }

    /// Returns the usage of the run. Requests with incomplete responses count as far as their usage is known.
    pub(in crate::agent) fn counted(&self) -> CountedUsage {
        let state = self.state();
        let mut sum = state.counted.clone();
        for open in state.open.values() {
            let (usage, cost) = open.cut(&self.prices);
            sum.add(usage.tokens(), cost);
        }
        sum
    }

    /// Returns the last refusal of a model, if no later request succeeded.
    pub(in crate::agent) fn refusal(&self) -> Option<LimitSignals> {
        self.state().refusal.clone()
    }

    /// Whether the run asked a model, and no response had any output.
    pub(in crate::agent) fn is_unanswered(&self) -> bool {
        self.state().next > 0 && self.counted().usage.output == 0
    }

    /// Records the model's response to a request: a refusal, or `None` if the request was accepted.
    pub(super) fn note_answer(&self, refusal: Option<LimitSignals>) {
        self.model.send_replace(if refusal.is_some() { ModelState::Refusing } else { ModelState::Answering });
        self.state().refusal = refusal;
    }

    /// Records that the response to a request is complete.
    fn note_completion(&self, id: u64) {
        let mut state = self.state();
        if state.open.get(&id).is_none_or(|open| open.told.has_output()) {
            state.empty = 0;
            return;
        }
        state.empty = state.empty.saturating_add(1);
        let message = "the model's response has no output".to_owned();
        state.refusal = Some(LimitSignals {
            code: Some(EMPTY_ANSWER.to_owned()),
            answer: message.clone(),
            messages: vec![message],
            ..LimitSignals::default()
        });
        let is_silent = state.empty >= MOST_EMPTY;
        drop(state);
        if is_silent {
            self.model.send_replace(ModelState::Silent);
        }
    }

    /// Returns a receiver of the model's behavior.
    pub(in crate::agent) fn model(&self) -> watch::Receiver<ModelState> {
        self.model.subscribe()
    }

    /// Records a refused request; returns `true` if it is the first of its kind.
    pub(super) fn note_refused(&self, what: &str) -> bool {
        let mut state = self.state();
        if state.has_ended {
            return false;
        }
        let refused = &mut state.refused;
        let is_new = refused.len() < MOST_REFUSALS && !refused.iter().any(|known| known == what);
        if is_new {
            refused.push(what.to_owned());
        }
        is_new
    }

    /// Returns descriptions of the refused requests, without repetitions.
    pub(in crate::agent) fn refused(&self) -> Vec<String> {
        self.state().refused.clone()
    }

    /// Reserves the maximum cost of a request. Waits for other requests of the run if the budget does not suffice for
    /// all. Returns the open request, and the maximum number of output tokens if the response must be limited.
    ///
    /// # Errors
    /// A sentence with the reason if the budget does not suffice.
    pub(super) async fn reserve(self: &Arc<Self>, quote: &Quote) -> Result<(OpenCall, Option<u64>), Failure> {
        let (id, granted) = loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registers before the state is read, so that no end of another request is missed.
            freed.as_mut().enable();
            match self.attempt(quote) {
                ReserveOutcome::Granted(id, granted) => break (id, granted),
                ReserveOutcome::Wait => freed.await,
                ReserveOutcome::Exhausted(why) => return Err(self.exhaust(why).into()),
                ReserveOutcome::Ended => return Err(Failure::new("the run has ended")),
            }
        };
        let call = OpenCall { meter: self.clone(), id, is_sent: false };
        if let Some(guard) = &self.guard {
            let committed = self.state().committed();
            if let Err(why) = guard.admit(committed).await {
                drop(call);
                return Err(self.exhaust(format!("{why:#}")).into());
            }
            let mut state = self.state();
            state.published = state.published.max(committed);
        }
        let wanted = quote.output.unwrap_or(MOST_OUTPUT);
        Ok((call, (granted < wanted).then_some(granted)))
    }

    fn attempt(&self, quote: &Quote) -> ReserveOutcome {
        let mut state = self.state();
        if state.has_ended {
            return ReserveOutcome::Ended;
        }
        if let Some(why) = &state.exhausted {
            return ReserveOutcome::Exhausted(why.clone());
        }
        if state.open.len() >= MOST_OPEN {
            return ReserveOutcome::Wait;
        }
        let wanted = quote.output.unwrap_or(MOST_OUTPUT);
        // One request alone cannot add up with others, and must not be refused because of an earlier refusal.
        let excess = if state.open.is_empty() { 0 } else { state.excess };
        let granted = match self.budget {
            None => wanted,
            Some(budget) => {
                let left = Money(budget.0.saturating_sub(state.counted.cost.0));
                let free = Money(left.0.saturating_sub(state.reserved().0));
                let alone = quote.affordable(left, 0).min(wanted);
                let now = quote.affordable(free, excess).min(wanted);
                // A model without a price costs nothing, so the remaining budget does not matter.
                let is_free = quote.cost(wanted, 0) == Money(0);
                let is_short = left <= Money(0) || quote.cost(alone, 0) > left || alone < wanted.min(LEAST_OUTPUT);
                if !is_free && is_short {
                    let cost = quote.cost(wanted.min(LEAST_OUTPUT), 0);
                    return ReserveOutcome::Exhausted(format!(
                        "the run's budget is {budget}, of which {} are used; the request needs about {cost}",
                        state.counted.cost
                    ));
                }
                let is_alone = state.open.is_empty();
                if !is_free && !is_alone && (quote.cost(now, excess) > free || now < wanted.min(USUAL_OUTPUT)) {
                    return ReserveOutcome::Wait;
                }
                now
            }
        };
        let id = state.next;
        state.next += 1;
        let reserved = quote.cost(granted, excess);
        state.open.insert(id, OpenRequest { quote: quote.clone(), reserved, granted, told: AnswerUsage::default() });
        ReserveOutcome::Granted(id, granted)
    }

    /// Reports cost beyond the reserved amount to the limits that the run shares with other runs. Without this, the
    /// limits would learn of it only with the run's next request, and other runs could spend the same money in the
    /// meantime.
    async fn publish(&self) {
        let Some(guard) = &self.guard else { return };
        let committed = {
            let state = self.state();
            Some(state.committed()).filter(|committed| *committed > state.published)
        };
        if let Some(committed) = committed {
            guard.note(committed).await;
            let mut state = self.state();
            state.published = state.published.max(committed);
        }
    }

    fn exhaust(&self, why: String) -> String {
        self.state().exhausted.get_or_insert_with(|| why.clone());
        self.exhausted.cancel();
        self.freed.notify_waiters();
        why
    }

    /// Closes an open request and charges its cost.
    fn close(&self, id: u64, cost: impl FnOnce(&OpenRequest) -> Option<(ReportedUsage, Money)>) {
        let mut state = self.state();
        if let Some(open) = state.open.remove(&id)
            && let Some((usage, cost)) = cost(&open)
        {
            let excess = usage.input.saturating_sub(open.quote.input()).min(MOST_EXCESS);
            state.excess = state.excess.max(excess);
            state.counted.add(usage.tokens(), cost);
        }
        drop(state);
        self.freed.notify_waiters();
    }
}

/// Request whose cost is reserved. Dropping it charges the known cost.
#[derive(Debug)]
pub(super) struct OpenCall {
    meter: Arc<RunMeter>,
    id: u64,
    is_sent: bool,
}

impl OpenCall {
    /// Records that the request was sent to the model and will cost something.
    pub(super) fn sent(&mut self) {
        self.is_sent = true;
    }

    /// Records that the model refused the request, which makes it free.
    pub(super) fn refused(&mut self) {
        self.is_sent = false;
    }

    /// Charges the cost of a complete response to this run and to the limits that it shares.
    pub(super) async fn settle(self) {
        let meter = self.meter.clone();
        if self.is_sent {
            meter.note_completion(self.id);
        }
        drop(self);
        meter.publish().await;
    }

    /// Adds the usage that the response reported.
    pub(super) fn record_usage(&self, read: impl FnOnce(&mut AnswerUsage)) {
        if let Some(open) = self.meter.state().open.get_mut(&self.id) {
            read(&mut open.told);
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let (meter, is_sent) = (self.meter.clone(), self.is_sent);
        meter.close(self.id, |open| is_sent.then(|| open.cut(&meter.prices)));
    }
}

#[cfg(test)]
mod tests;
