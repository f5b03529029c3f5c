//! A burst of deliveries while none is processed: all are accepted, and each issue is handled once.

use std::time::{Duration, Instant};

use fake_forge::{Dialect, FakeFault, Outgoing};
use futures::{StreamExt, stream};
use ralph_bot::domain::loops::{LoopState, LoopStep};
use ralph_bot::forge::signature::sign;
use ralph_bot::store::{inbox, loops};
use reqwest::Client;
use secrecy::SecretString;
use tokio::process::Child;

use crate::harness::on_one_forge;
use crate::harness::parts::setting;
use crate::harness::service::{Service, stop};
use crate::harness::{SECRET, Setup, story};

on_one_forge!(burst_is_stored_completely_and_handled_once_per_issue, loops_survive_hours_of_rate_limit);

/// Number of deliveries, unless `RALPH_TEST_BURST` sets another one, and number of connections for them.
const BURST: usize = 600;
const CONNECTIONS: usize = 50;
/// Number of issues that the deliveries refer to.
pub const ISSUES: usize = 3;
/// Bytes of each body, large enough that keeping all bodies in memory would be noticed.
const BODY: usize = 40_000;
/// Maximum memory above the service at rest, in MiB; all bodies together have 23.
const MEMORY_MIB: usize = 16;

/// Deliveries about labels and comments on some issues, none of which the service has received.
pub async fn undelivered(service: &Service) -> Vec<Outgoing> {
    let world = &service.world;
    let mut issues = vec![world.issue];
    for n in 1..ISSUES {
        let title = format!("Wrong again ({n})");
        let opened = world.forge.open_issue(&world.maintainer, world.repo, &title, "It should be 42.", &[]).await;
        issues.push(opened.expect("an issue"));
    }
    world.forge.flush().await;
    world.forge.hooks().hold();
    for issue in issues {
        world.forge.label(&world.maintainer, world.repo, issue, "ralph:run").await.expect("labeled");
        world.forge.comment(&world.maintainer, world.repo, issue, "It looks easy.").await.expect("commented");
    }
    let mut held_deliveries = Vec::new();
    world.forge.hooks().release(|all| held_deliveries = std::mem::take(all));
    for one in &mut held_deliveries {
        let mut body: serde_json::Value = serde_json::from_str(&one.body).expect("JSON");
        body["filler"] = "x".repeat(BODY.saturating_sub(one.body.len())).into();
        one.body = body.to_string();
    }
    assert_eq!(held_deliveries.len(), 2 * ISSUES, "a label and a comment each");
    held_deliveries
}

/// Sends one delivery under a new id; returns the status and the duration.
pub async fn deliver(service: &Service, client: &Client, one: &Outgoing, id: String) -> (u16, Duration) {
    let (family, header, before) = match service.world.setup.dialect {
        Dialect::Gitea => ("X-Gitea", "X-Gitea-Signature", ""),
        Dialect::GitHub => ("X-GitHub", "X-Hub-Signature-256", "sha256="),
    };
    let signature = sign(&SecretString::from(SECRET.to_owned()), one.body.as_bytes());
    let request = client.post(format!("http://127.0.0.1:{}/webhooks/forge", service.port)).body(one.body.clone());
    let request = request.header("Content-Type", "application/json").header(header, format!("{before}{signature}"));
    let request =
        request.header(format!("{family}-Event"), one.event.0.as_str()).header(format!("{family}-Delivery"), id);
    let began = Instant::now();
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), began.elapsed())
}

/// Memory of a process in MiB: `VmRSS` is the current value, `VmHWM` the peak.
pub fn memory_mib(child: &Child, figure: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id().expect("it runs"))).expect("Linux");
    let line = status.lines().find(|line| line.starts_with(figure)).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number") / 1024
}

/// Deliveries are processed only after the burst.
/// See docs/research/faults.md#f11.
async fn burst_is_stored_completely_and_handled_once_per_issue(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let world = &service.world;
    let deliveries = undelivered(&service).await;
    let burst = setting("RALPH_TEST_BURST").map_or(BURST, |text| text.parse().expect("a number"));

    let mut ingest = service.spawn("ingest", None);
    service.until("the service to listen", async || service.listens().await).await;
    let at_rest = memory_mib(&ingest, "VmRSS");
    let client = Client::builder().no_proxy().pool_max_idle_per_host(CONNECTIONS).build().expect("a client");
    let began = Instant::now();
    let sending =
        (0..burst).map(|n| deliver(&service, &client, &deliveries[n % deliveries.len()], format!("burst-{n}")));
    let answers: Vec<_> = stream::iter(sending).buffer_unordered(CONNECTIONS).collect().await;
    let took = began.elapsed();
    assert!(answers.iter().all(|(status, _)| *status == 202), "{}", service.log());
    let mut times: Vec<Duration> = answers.into_iter().map(|(_, time)| time).collect();
    times.sort();
    let (p99, grown) = (times[burst * 99 / 100], memory_mib(&ingest, "VmHWM").saturating_sub(at_rest));
    println!("{burst} deliveries in {took:?}, p99 {p99:?}, {grown} MiB more than the {at_rest} at rest");
    assert!(*times.last().expect("some") < Duration::from_secs(10), "a forge would have given up: {times:?}");
    assert!(grown < MEMORY_MIB, "{grown} MiB more than at rest");
    let store = service.store().await.expect("a database");
    let waiting = store.read(inbox::counts).await.expect("counts");
    assert_eq!(waiting, [("new".to_owned(), burst as u64)], "none is lost, none is acted on yet");

    let requests = world.forge.requests().len();
    let mut others = ["control", "runner"].map(|role| service.spawn(role, None));
    let in_between = deliver(&service, &client, &deliveries[0], "in-between".into()).await;
    assert_eq!(in_between.0, 202, "what comes while the burst is worked through is taken as well");
    let reviewed = async || store.read(|c| loops::in_state(c, LoopState::Review)).await.expect("loops").len();
    service.until("a review for each issue", async || reviewed().await == ISSUES).await;
    service.wait_until_idle().await;
    let all = store.read(|c| loops::list(c, false, 100)).await.expect("loops");
    assert_eq!(all.len(), ISSUES);
    assert!(all.iter().all(|l| l.spent.iterations == 1), "{all:#?}");
    for current in &all {
        let comments = world.bot_comments_on(current.issue.issue);
        assert!(comments.len() <= 4, "more comments than for one delivery: {comments:#?}");
    }
    // Questions about each label event would be as many as the deliveries, and more than a forge allows.
    let request_count = world.forge.requests().len() - requests;
    println!("{request_count} requests to the forge");
    assert!(
        request_count < burst * 2 / 3,
        "{request_count} requests to the forge for {burst} deliveries of {ISSUES} labels"
    );
    for process in others.iter_mut().chain([&mut ingest]) {
        assert!(stop(process).await.success(), "{}", service.log());
    }
    service.finish().await;
}

/// The forge fails for two hours for all loops.
/// See docs/research/faults.md#f4.
async fn loops_survive_hours_of_rate_limit(dialect: Dialect) {
    let limits =
        "limits: { timeout: 6h, loops: 10, loops_per_repository: 10, comments_per_hour: 1000, comments_per_day: 1000 }";
    story(Setup::new(dialect).config(limits), async |world| {
        let mut issues = vec![world.issue];
        for n in 1..5 {
            let title = format!("Wrong again ({n})");
            let opened = world.forge.open_issue(&world.maintainer, world.repo, &title, "It should be 42.", &[]).await;
            issues.push(opened.expect("an issue"));
        }
        for issue in &issues {
            world.forge.label(&world.maintainer, world.repo, *issue, "ralph:run").await.expect("labeled");
        }
        world.settle_until("the agent's turn", |l| l.run.step == LoopStep::Agent).await;
        let limited = FakeFault::with_header(429, "retry-after", "3600");
        world.forge.faults().next(100_000, "", "/api/", limited).expect("a pattern");
        let before = world.forge.requests().len();
        for _ in 0..12 {
            world.advance(Duration::from_secs(600)).await;
            world.comment("It takes a while.").await;
            world.forge.flush().await;
            let newest = world.forge.hooks().log().pop().expect("a delivery");
            assert_eq!(newest.status, Some(202), "what comes in is taken all the while");
        }
        let new_requests = world.forge.requests().split_off(before);
        let refused = new_requests.iter().filter(|request| request.status == Some(429)).count();
        assert!((1..=6).contains(&refused), "{refused} requests in two hours: {new_requests:#?}");
        world.forge.faults().clear();
        world.advance(Duration::from_secs(3_700)).await;
        world.recover().await;
        let all = world.all_loops().await;
        assert_eq!(all.len(), issues.len());
        for current in all {
            assert_eq!((current.state, current.spent.iterations), (LoopState::Review, 1), "{}", current.why);
            let comments = world.bot_comments_on(current.issue.issue);
            assert!(comments.len() <= 4, "more comments than without the limit: {comments:#?}");
            assert_eq!(comments.iter().filter(|body| body.contains(" status ")).count(), 1, "{comments:#?}");
        }
    })
    .await;
}
