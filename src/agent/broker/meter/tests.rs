//! Reservations of concurrent requests, and what is booked for answers that were cut.

use futures::future::join_all;

use super::*;
use crate::domain::providers::prices::PriceEntry;

fn prices() -> Arc<PriceTable> {
    let entry = PriceEntry { input: 10.0, output: 100.0, cache_read: None, cache_write: None };
    Arc::new(PriceTable::with_entries(&[("m".to_owned(), entry)].into(), "prices").expect("prices"))
}

/// A request with this estimate of its input tokens.
fn quote(input: u64, output: Option<u64>) -> Quote {
    Quote {
        price: prices().price("m").expect("a price"),
        bytes: input * 4,
        output,
        choices: 1,
        model: "m".to_owned(),
        vendor: None,
        is_streamed: true,
    }
}

fn meter(usd: f64) -> Arc<RunMeter> {
    RunMeter::new(Some(Money::from_usd(usd)), None, prices())
}

fn answer(call: &mut OpenCall, input: u64, output: u64) {
    call.sent();
    call.record_usage(|told| {
        told.record(&SeenUsage { input, output, ..SeenUsage::default() });
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
        Ok::<_, String>(())
    };
    let all = join_all((0..200).map(|_| ask())).await;
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 10);
    assert_eq!(meter.counted().cost, Money::from_usd(1.0));
    assert!(meter.is_exhausted() && all.iter().flat_map(|one| one.as_ref().err()).all(|why| why.contains("$1.00")));
}

#[tokio::test]
async fn answer_is_limited_to_what_is_left() {
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
async fn cut_answers_are_booked() {
    let meter = meter(100.0);
    let (mut call, _) = meter.reserve(&quote(1_000, Some(5_000))).await.expect("it fits");
    call.sent();
    drop(call);
    assert_eq!(meter.counted().cost, Money::from_usd(0.01), "at least the input");
    let unstreamed_quote = Quote { is_streamed: false, ..quote(1_000, Some(5_000)) };
    let (mut call, _) = meter.reserve(&unstreamed_quote).await.expect("it fits");
    call.sent();
    assert_eq!(meter.counted().cost, Money::from_usd(0.52), "an open one counts in full");
    drop(call);
    assert_eq!(meter.counted().cost, Money::from_usd(0.52));
    let (mut call, _) = meter.reserve(&unstreamed_quote).await.expect("it fits");
    call.sent();
    call.refused();
    drop(call);
    assert_eq!((meter.counted().cost, meter.counted().requests), (Money::from_usd(0.52), 2));
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
    async fn admit(&self, committed: Money) -> Result<(), String> {
        if committed > Money::from_usd(0.15) { Err("the day's budget".to_owned()) } else { Ok(()) }
    }
}

#[tokio::test]
async fn limits_of_other_runs_are_asked_before_each_request() {
    let meter = RunMeter::new(None, Some(Arc::new(Refusing)), prices());
    for expected in [true, false, false] {
        match meter.reserve(&quote(0, Some(1_000))).await {
            Ok((mut call, _)) => answer(&mut call, 0, 1_000),
            Err(why) => assert!(!expected && why == "the day's budget", "{why}"),
        }
    }
    assert_eq!((meter.counted().cost, meter.is_exhausted()), (Money::from_usd(0.1), true));
}

#[tokio::test]
async fn estimates_follow_what_requests_really_had() {
    let meter = meter(1.0);
    let ask = || async {
        let (mut call, _) = meter.reserve(&quote(0, Some(100))).await?;
        tokio::task::yield_now().await;
        // 2 cents instead of 1.
        answer(&mut call, 1_000, 100);
        Ok::<_, String>(())
    };
    let all = join_all((0..200).map(|_| ask())).await;
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 50);
    assert_eq!(meter.counted().cost, Money::from_usd(1.0));
}
