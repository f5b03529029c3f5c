//! Reservations of concurrent requests, and the cost of truncated answers.

use futures::future::join_all;

use super::*;
use crate::domain::providers::prices::PriceEntry;

fn prices() -> Arc<PriceTable> {
    let entry = PriceEntry { input: 10.0, output: 100.0, cache_read: None, cache_write: None };
    Arc::new(PriceTable::with_entries(&[("m".to_owned(), entry)].into(), "prices").expect("prices"))
}

/// A request with this estimate of its input tokens.
fn quote(input: usize, output: Option<u64>) -> Quote {
    Quote {
        price: prices().price("m").expect("a price"),
        bytes: input * 3,
        keeps_long: false,
        output,
        choices: 1,
        model: "m".to_owned(),
        vendor: None,
    }
}

fn meter(usd: f64) -> Arc<RunMeter> {
    RunMeter::new(Some(Money::from_usd(usd)), None, prices())
}

fn answer(call: &mut OpenCall, input: u64, output: u64) {
    call.sent();
    call.record_usage(|told| {
        told.record(ReportedUsage { input, output, ..ReportedUsage::default() });
        told.end(true);
    });
}

#[tokio::test]
async fn parallel_requests_stay_within_the_budget() {
    let meter = meter(1.0);
    // Each asks for 10 cents and uses all of it.
    let ask = || async {
        let (mut call, output_limit) = meter.reserve(&quote(0, Some(1_000))).await?;
        assert!(output_limit.is_none_or(|output_limit| output_limit <= 1_000));
        tokio::task::yield_now().await;
        answer(&mut call, 0, output_limit.unwrap_or(1_000));
        Ok::<_, Failure>(())
    };
    let all = join_all((0..200).map(|_| ask())).await;
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 10);
    assert_eq!(meter.counted().cost, Money::from_usd(1.0));
    assert!(
        meter.is_exhausted()
            && all.iter().flat_map(|one| one.as_ref().err()).all(|why| why.to_string().contains("$1.00"))
    );
}

#[tokio::test]
async fn answer_length_is_limited_by_remaining_budget() {
    let meter = meter(0.5);
    let (mut call, output_limit) = meter.reserve(&quote(10_000, None)).await.expect("it fits");
    // 10 cents of input leave 40 for the answer.
    assert_eq!(output_limit, Some(4_000));
    answer(&mut call, 10_000, 1_000);
    drop(call);
    assert_eq!(meter.counted().cost, Money::from_usd(0.2));
    let (_call, output_limit) = meter.reserve(&quote(10_000, Some(2_000))).await.expect("it fits");
    assert_eq!(output_limit, None);
    assert!(meter.reserve(&quote(60_000, Some(10))).await.is_err(), "its input alone costs more than the budget");
}

#[tokio::test]
async fn cut_answers_cost_their_reservation() {
    let meter = meter(100.0);
    let (mut call, _) = meter.reserve(&quote(1_000, Some(5_000))).await.expect("it fits");
    call.sent();
    assert_eq!(meter.counted().cost, Money::from_usd(0.51), "an open one counts in full");
    drop(call);
    assert_eq!(meter.counted().cost, Money::from_usd(0.51));
    let (mut call, _) = meter.reserve(&quote(1_000, Some(5_000))).await.expect("it fits");
    call.sent();
    call.refused();
    drop(call);
    assert_eq!((meter.counted().cost, meter.counted().requests), (Money::from_usd(0.51), 1));
}

/// The start of a stream reports its input and one token, without the hidden reasoning of the model.
#[tokio::test]
async fn hang_up_during_hidden_reasoning_costs_the_longest_answer() {
    let cost = async |end: fn(&mut AnswerUsage)| {
        let meter = meter(100.0);
        let (mut call, _) = meter.reserve(&quote(1_000, Some(5_000))).await.expect("it fits");
        call.sent();
        call.record_usage(|told| told.record(ReportedUsage { input: 2_000, output: 1, ..ReportedUsage::default() }));
        call.record_usage(end);
        drop(call);
        meter.counted().cost
    };
    assert_eq!(cost(|_| {}).await, Money::from_usd(0.52));
    // The usage of the end arrived, or all did.
    let ended = |told: &mut AnswerUsage| {
        told.record(ReportedUsage { output: 100, ..ReportedUsage::default() });
        told.end(true);
    };
    assert_eq!(cost(ended).await, Money::from_usd(0.03));
    assert_eq!(cost(|told| told.is_whole = true).await, Money(20_100));
}

#[tokio::test]
async fn prompt_that_is_kept_for_an_hour_is_reserved_at_twice_its_price() {
    let meter = meter(100.0);
    let quote = Quote { keeps_long: true, ..quote(1_000, Some(1_000)) };
    let _call = meter.reserve(&quote).await.expect("it fits");
    assert_eq!(meter.state().reserved(), Money::from_usd(0.12));
}

#[tokio::test]
async fn long_prompts_are_charged_at_the_long_prompt_price() {
    for (input, expected) in [(100_000, 10_500), (100_001, 52_501)] {
        let meter = RunMeter::new(None, None, Arc::default());
        let price = meter.prices().price_or_highest(["claude-haiku-5-5"], None, 0);
        let model = "claude-haiku-5-5".to_owned();
        let (mut call, _) = meter.reserve(&Quote { price, model, ..quote(0, None) }).await.expect("no limit");
        answer(&mut call, input, 1_000);
        drop(call);
        assert_eq!(meter.counted().cost, Money(expected), "{input}");
    }
}

#[tokio::test]
async fn unknown_model_costs_the_highest_price() {
    let meter = RunMeter::new(None, None, Arc::default());
    let unknown = Quote { model: "never-heard-of".into(), vendor: Some(Vendor::Anthropic), ..quote(0, None) };
    let (mut call, _) = meter.reserve(&unknown).await.expect("no limit");
    answer(&mut call, 1_000_000, 1_000_000);
    drop(call);
    assert_eq!(meter.counted().cost, Money::from_usd(15.0 + 75.0));
}

#[derive(Debug)]
struct Refusing;

#[async_trait::async_trait]
impl CostGuard for Refusing {
    async fn admit(&self, committed: Money) -> Result<(), Failure> {
        if committed > Money::from_usd(0.15) { Err("the day's budget".into()) } else { Ok(()) }
    }

    async fn note(&self, _: Money) {}
}

/// The share of one run in a limit of several runs, which contains the highest reported cost of each.
#[derive(Debug)]
struct SharedLimit {
    run: usize,
    limit: Money,
    held: Arc<Mutex<[Money; 2]>>,
}

#[async_trait::async_trait]
impl CostGuard for SharedLimit {
    async fn admit(&self, committed: Money) -> Result<(), Failure> {
        let others = self.held.lock().expect("no panic")[1 - self.run];
        if others.plus(committed) > self.limit {
            return Err("the day's budget".into());
        }
        self.note(committed).await;
        Ok(())
    }

    async fn note(&self, committed: Money) {
        let held = &mut self.held.lock().expect("no panic")[self.run];
        *held = committed.max(*held);
    }
}

/// Requests of one run have more input than estimated from their length; its next request is refused.
///
/// See docs/research/threats.md#s4.
#[tokio::test]
async fn other_runs_do_not_pay_for_underestimated_answers() {
    let (limit, held) = (Money::from_usd(2.0), Arc::new(Mutex::new([Money(0); 2])));
    let runs = [0, 1].map(|run| {
        let guard = SharedLimit { run, limit, held: held.clone() };
        RunMeter::new(None, Some(Arc::new(guard)), prices())
    });
    let ask = async |run: usize| {
        let (mut call, _) = runs[run].reserve(&quote(0, Some(1_000))).await?;
        // 20 cents instead of 10.
        answer(&mut call, 10_000, 1_000);
        call.settle().await;
        Ok::<_, Failure>(())
    };
    for _ in 0..5 {
        ask(0).await.expect("half of the money is left");
    }
    while ask(1).await.is_ok() {}
    let spent = [0, 1].map(|run| runs[run].counted().cost);
    assert_eq!(spent, [Money::from_usd(1.0), Money::from_usd(1.0)]);
    assert_eq!(*held.lock().expect("no panic"), spent);
}

/// The count at the end of a run is of all of it: a request that arrives afterwards is not sent, one that waits neither.
#[tokio::test]
async fn run_that_ended_sends_no_more_requests() {
    let meter = meter(1.0);
    let (mut call, _) = meter.reserve(&quote(0, Some(10_000))).await.expect("it fits");
    let waiting = quote(0, Some(10_000));
    let end = async {
        tokio::task::yield_now().await;
        meter.finish();
        answer(&mut call, 0, 1_000);
        drop(call);
    };
    let (waited, ()) = tokio::join!(meter.reserve(&waiting), end);
    assert_eq!(waited.map(|_| ()).expect_err("it comes too late").to_string(), "the run has ended");
    assert!(meter.reserve(&quote(0, Some(10))).await.is_err());
    assert!(!meter.note_refused("a request") && meter.refused().is_empty());
    // The money was not used up.
    assert_eq!((meter.counted().cost, meter.is_exhausted()), (Money::from_usd(0.1), false));
}

#[tokio::test]
async fn limits_of_other_runs_are_checked_before_each_request() {
    let meter = RunMeter::new(None, Some(Arc::new(Refusing)), prices());
    for expected in [true, false, false] {
        match meter.reserve(&quote(0, Some(1_000))).await {
            Ok((mut call, _)) => answer(&mut call, 0, 1_000),
            Err(why) => assert!(!expected && why.to_string() == "the day's budget", "{why}"),
        }
    }
    assert_eq!((meter.counted().cost, meter.is_exhausted()), (Money::from_usd(0.1), true));
}

#[tokio::test]
async fn estimates_follow_real_token_counts() {
    let meter = meter(1.0);
    let ask = || async {
        let (mut call, _) = meter.reserve(&quote(0, Some(100))).await?;
        tokio::task::yield_now().await;
        // 2 cents instead of 1.
        answer(&mut call, 1_000, 100);
        Ok::<_, Failure>(())
    };
    let all = join_all((0..200).map(|_| ask())).await;
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 50);
    assert_eq!(meter.counted().cost, Money::from_usd(1.0));
}

#[tokio::test]
async fn model_without_output_is_silent_after_five_responses_in_a_row() {
    let meter = RunMeter::new(None, None, prices());
    let model = meter.model();
    let ask = async |output: u64| {
        let (mut call, _) = meter.reserve(&quote(10, Some(1_000))).await.expect("no limit");
        meter.note_answer(None);
        answer(&mut call, 10, output);
        call.settle().await;
        *model.borrow()
    };
    for round in 0..2 {
        for _ in 1..MOST_EMPTY {
            assert_eq!(ask(0).await, ModelState::Answering, "round {round}");
            assert_eq!(meter.refusal().and_then(|signals| signals.code).as_deref(), Some(EMPTY_ANSWER));
        }
        assert_eq!(ask(7).await, ModelState::Answering, "an answer ends the row");
        assert_eq!(meter.refusal(), None);
    }
    for _ in 1..MOST_EMPTY {
        ask(0).await;
    }
    assert_eq!(ask(0).await, ModelState::Silent);
}

#[tokio::test]
async fn refused_request_does_not_count_as_response_without_output() {
    let meter = RunMeter::new(None, None, prices());
    for _ in 0..=MOST_EMPTY {
        let (mut call, _) = meter.reserve(&quote(10, Some(1_000))).await.expect("no limit");
        call.sent();
        call.refused();
        meter.note_answer(Some(LimitSignals { status: Some(400), ..LimitSignals::default() }));
        call.settle().await;
    }
    assert_eq!(*meter.model().borrow(), ModelState::Refusing);
    assert_eq!(meter.refusal().and_then(|signals| signals.status), Some(400));
}
