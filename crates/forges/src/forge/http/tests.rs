//! Tests of the request layer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::{Method, Request, Response};
use async_trait::async_trait;
use bytes::Bytes;

use super::*;
use crate::domain::model::ids::Timestamp;
use crate::forge::ForgeErrorKind::{Bug, Conflict, Denied, Moved, NotFound, RateLimited, Transient, Unauthorized};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const UNSPACED: RateSettings = RateSettings {
    mutation_interval_ms: Some(0),
    mutation_hold: Duration::from_secs(2),
    reserve: 100,
    attempts: 3,
    settling_ms: 0,
    timeouts: Timeouts::USUAL,
};

type SendResult = Result<Response<Bytes>, TransportError>;

/// Returns scripted responses in order; records each request with its time.
struct ScriptedTransport {
    answers: Mutex<VecDeque<SendResult>>,
    sent: Mutex<Vec<(Request<Bytes>, tokio::time::Instant)>>,
}

#[async_trait]
impl Transport for ScriptedTransport {
    async fn send(&self, request: Request<Bytes>) -> SendResult {
        self.sent.lock().unwrap().push((request, tokio::time::Instant::now()));
        self.answers.lock().unwrap().pop_front().expect("more requests than scripted responses")
    }
}

fn script(answers: impl IntoIterator<Item = SendResult>) -> Arc<ScriptedTransport> {
    Arc::new(ScriptedTransport { answers: Mutex::new(answers.into_iter().collect()), sent: Mutex::default() })
}

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> SendResult {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    Ok(response.body(Bytes::copy_from_slice(body.as_bytes())).unwrap())
}

fn broken(ambiguous: bool) -> SendResult {
    Err(TransportError { ambiguous, detail: "broken".into() })
}

fn request(method: Method, address: &str) -> Request<Bytes> {
    let builder = Request::builder().method(method).uri(format!("https://forge.test{address}"));
    builder.header("authorization", "token s3cret").body(Bytes::new()).unwrap()
}

fn get() -> Request<Bytes> {
    request(Method::GET, "/a")
}

fn post() -> Request<Bytes> {
    request(Method::POST, "/a")
}

fn caller(script: &Arc<ScriptedTransport>, clock: &Clock, rates: RateSettings) -> RequestLayer {
    RequestLayer::new(Arc::clone(script) as Arc<dyn Transport>, clock.clone(), rates, MutationPace::UNLIMITED)
}

impl ScriptedTransport {
    fn count(&self) -> usize {
        self.sent.lock().unwrap().len()
    }
}

/// Returns the error kind of a request with one scripted result.
async fn kind_of(request: Request<Bytes>, outcome: SendResult) -> ForgeErrorKind {
    let script = script([outcome]);
    let caller = caller(&script, &Clock::manual(NOW), RateSettings { attempts: 1, ..UNSPACED });
    caller.call("try it", request).await.expect_err("no success").kind
}

fn assert_about(kind: &ForgeErrorKind, expected_ms: i64, case: &str) {
    let RateLimited { after_ms } = kind else { panic!("{case}: {kind:?}") };
    let most = expected_ms + (expected_ms / 10).min(5_000);
    assert!((expected_ms..=most).contains(after_ms), "{case}: {after_ms} is not {expected_ms}..={most}");
}

/// See docs/research/faults.md#f6.
#[tokio::test]
async fn statuses_map_to_error_kinds() {
    let sure = Transient { after_ms: None, ambiguous: false };
    let unsure = Transient { after_ms: None, ambiguous: true };
    let cases = [
        (400, "", Bug, Bug),
        (401, "", Unauthorized, Unauthorized),
        (403, "Resource not accessible by integration", Denied, Denied),
        (404, "", NotFound, NotFound),
        (405, "", Bug, Bug),
        (408, "", sure.clone(), unsure.clone()),
        (409, "", Conflict, Conflict),
        (410, "", NotFound, NotFound),
        (412, "", Conflict, Conflict),
        (422, r#"{"message":"Validation Failed"}"#, Bug, Bug),
        (422, r#"{"message":"A pull request already exists for a:b."}"#, Conflict, Conflict),
        (422, r#"{"errors":[{"code":"already_exists"}]}"#, Conflict, Conflict),
        (423, "", Conflict, Conflict),
        (451, "", Denied, Denied),
        (500, "", sure.clone(), unsure.clone()),
        (502, "<html>", sure.clone(), unsure.clone()),
        (503, "", sure.clone(), unsure.clone()),
        (504, "", sure, unsure),
        (304, "", Bug, Bug),
        (100, "", Bug, Bug),
    ];
    for (status, body, reading, writing) in cases {
        assert_eq!(kind_of(get(), answer(status, &[], body)).await, reading, "GET {status}");
        assert_eq!(kind_of(post(), answer(status, &[], body)).await, writing, "POST {status}");
    }
}

/// See docs/research/faults.md#f3.
#[tokio::test]
async fn rate_limit_responses_pause_requests() {
    let in_90_s = (NOW.0 / 1_000 + 90).to_string();
    let past = (NOW.0 / 1_000 - 90).to_string();
    let far = (NOW.0 / 1_000 + 90_000).to_string();
    type PauseCase<'a> = (u16, Vec<(&'a str, &'a str)>, &'a str, i64);
    let cases: Vec<PauseCase> = vec![
        (429, vec![], "", 60_000),
        (429, vec![("retry-after", "7")], "", 7_000),
        (429, vec![("retry-after", "0")], "", 0),
        (429, vec![("retry-after", "999999")], "", 3_600_000),
        (429, vec![("retry-after", "99999999999999999999999")], "", 3_600_000),
        (429, vec![("retry-after", "-5")], "", 60_000),
        (429, vec![("retry-after", "soon")], "", 60_000),
        (429, vec![("retry-after", "")], "", 60_000),
        (429, vec![("retry-after", "Tue, 14 Nov 2023 22:14:20 GMT")], "", 60_000),
        (429, vec![("retry-after", "Tue, 14 Nov 2023 22:15:20 GMT")], "", 120_000),
        (429, vec![("retry-after", "Tue, 14 Nov 2023 22:00:00 GMT")], "", 60_000),
        (429, vec![("retry-after", "Mon, 14 Nov 2033 22:00:00 GMT")], "", 3_600_000),
        (403, vec![("retry-after", "7")], "", 7_000),
        (403, vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &in_90_s)], "", 90_000),
        (403, vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &past)], "", 60_000),
        (403, vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &far)], "", 3_600_000),
        (403, vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "garbage")], "", 60_000),
        (403, vec![("x-ratelimit-remaining", "0")], "", 60_000),
        (429, vec![("retry-after", "7"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &in_90_s)], "", 7_000),
        (403, vec![], r#"{"message":"You have exceeded a secondary rate limit"}"#, 60_000),
        (403, vec![("x-ratelimit-remaining", "4000")], "You triggered an abuse detection mechanism", 60_000),
    ];
    for (status, headers, body, expected) in cases {
        let case = format!("{status} {headers:?} {body:?}");
        assert_about(&kind_of(get(), answer(status, &headers, body)).await, expected, &case);
    }
}

/// See docs/research/faults.md#f3.
#[tokio::test]
async fn requests_are_refused_during_a_pause() {
    let script = script([answer(429, &[("retry-after", "30")], ""), answer(200, &[], "{}"), answer(201, &[], "{}")]);
    let clock = Clock::manual(NOW);
    let caller = caller(&script, &clock, UNSPACED);
    caller.call("a", get()).await.unwrap_err();
    clock.advance_ms(29_999);
    for request in [get(), post(), request(Method::DELETE, "/b")] {
        let error = caller.call("b", request).await.unwrap_err();
        assert_about(&error.kind, 1, "inside");
        assert!(error.to_string().contains("not sent"), "{error}");
    }
    assert_eq!(script.count(), 1);
    clock.advance_ms(1);
    caller.call("c", get()).await.unwrap();
    caller.call("d", post()).await.unwrap();
}

#[tokio::test]
async fn exhausted_budget_stops_the_next_request() {
    let reset = (NOW.0 / 1_000 + 20).to_string();
    let used_up = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset.as_str())];
    let search = [used_up[0], used_up[1], ("x-ratelimit-resource", "search")];
    let script = script([answer(200, &search, "{}"), answer(200, &used_up, "{}")]);
    let caller = caller(&script, &Clock::manual(NOW), UNSPACED);
    caller.call("a search, which has a budget of its own", get()).await.unwrap();
    caller.call("the last one", get()).await.unwrap();
    assert_about(&caller.call("one more", get()).await.unwrap_err().kind, 20_000, "one more");
    assert_eq!(script.count(), 2);
}

#[tokio::test]
async fn pauses_without_a_time_double_until_a_success() {
    let clock = Clock::manual(NOW);
    let refusals = (0..8).map(|_| answer(429, &[], ""));
    let script = script(refusals.chain([answer(200, &[], "{}"), answer(429, &[], "")]));
    let caller = caller(&script, &clock, UNSPACED);
    for expected in [60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
        assert_about(&caller.call("a", get()).await.unwrap_err().kind, expected * 1_000, "growing");
        clock.advance_ms(expected * 1_000);
    }
    caller.call("a", get()).await.unwrap();
    assert_about(&caller.call("a", get()).await.unwrap_err().kind, 60_000, "after a success");
}

/// See docs/research/faults.md#f4.
#[tokio::test]
async fn background_requests_do_not_use_the_reserve() {
    let reset = (NOW.0 / 1_000 + 50).to_string();
    let with_remaining =
        |n: &'static str| answer(200, &[("x-ratelimit-remaining", n), ("x-ratelimit-reset", &reset)], "{}");
    let script = script([
        with_remaining("100"),
        with_remaining("99"),
        with_remaining("98"),
        with_remaining("5000"),
        with_remaining("50"),
    ]);
    let clock = Clock::manual(NOW);
    let caller = caller(&script, &clock, UNSPACED);
    let background = || {
        let mut request = get();
        request.extensions_mut().insert(RequestPriority::Background);
        request
    };
    caller.call("first", background()).await.unwrap();
    caller.call("at the reserve", background()).await.unwrap();
    assert_about(&caller.call("below", background()).await.unwrap_err().kind, 50_000, "below");
    caller.call("a command", get()).await.unwrap();
    clock.advance_ms(50_000);
    caller.call("after the reset", background()).await.unwrap();
    assert_eq!(script.count(), 4);
}

#[tokio::test]
async fn reads_are_retried_with_backoff() {
    let script = script([broken(true), answer(502, &[], ""), answer(200, &[], "{}")]);
    let caller = caller(&script, &Clock::manual(NOW), UNSPACED);
    caller.call("read", get()).await.unwrap();
    let times: Vec<_> = script.sent.lock().unwrap().iter().map(|(_, at)| *at).collect();
    let gaps: Vec<u128> = times.windows(2).map(|w| (w[1] - w[0]).as_millis()).collect();
    assert!(gaps[0] >= 125 && gaps[1] >= 250, "{gaps:?}");
}

#[tokio::test]
async fn only_unambiguous_failures_are_retried() {
    let sure = Transient { after_ms: None, ambiguous: false };
    let unsure = Transient { after_ms: None, ambiguous: true };
    let cases = [
        ("reading, always failing", get(), vec![broken(true), broken(false), broken(true)], sure.clone()),
        ("reading, 404", get(), vec![answer(404, &[], "")], NotFound),
        ("writing, never reached the server", post(), vec![broken(false), broken(false), broken(false)], sure),
        ("writing, reset after sending", post(), vec![broken(true)], unsure.clone()),
        ("writing, 500", post(), vec![answer(500, &[], "")], unsure.clone()),
        ("writing, refused then reset", post(), vec![broken(false), broken(true)], unsure),
    ];
    for (case, request, answers, expected) in cases {
        let (count, script) = (answers.len(), script(answers));
        let error = caller(&script, &Clock::manual(NOW), UNSPACED).call(case, request).await.unwrap_err();
        assert_eq!((error.kind, script.count()), (expected, count), "{case}");
    }
}

#[tokio::test]
async fn retry_after_of_a_busy_server_is_respected() {
    let script = script([answer(503, &[("retry-after", "10")], "")]);
    let caller = caller(&script, &Clock::manual(NOW), UNSPACED);
    let Transient { after_ms: Some(after), ambiguous: true } = caller.call("a", post()).await.unwrap_err().kind else {
        panic!("not transient")
    };
    assert!((10_000..=11_000).contains(&after));
    assert_about(&caller.call("b", get()).await.unwrap_err().kind, 10_000, "meanwhile");
}

#[tokio::test]
async fn read_only_post_is_never_ambiguous() {
    let mut query = post();
    query.extensions_mut().insert(ReadOnly);
    let expected = Transient { after_ms: None, ambiguous: false };
    assert_eq!(kind_of(query, broken(true)).await, expected);
}

#[tokio::test]
async fn writes_are_spaced_and_reads_are_concurrent() {
    let script = script((0..8).map(|_| answer(200, &[], "{}")));
    let caller = caller(&script, &Clock::manual(NOW), RateSettings { mutation_interval_ms: Some(40), ..UNSPACED });
    let start = tokio::time::Instant::now();
    let writes = futures::future::join_all((0..5).map(|_| caller.call("write", post())));
    let reads = futures::future::join_all((0..3).map(|_| caller.call("read", get())));
    let (writes, reads) = futures::join!(writes, reads);
    assert!(writes.iter().chain(&reads).all(Result::is_ok));
    let at = |method: Method| {
        let sent = script.sent.lock().unwrap();
        sent.iter().filter(|(r, _)| *r.method() == method).map(|(_, t)| (*t - start).as_millis()).collect::<Vec<_>>()
    };
    let (reads, posts) = (at(Method::GET), at(Method::POST));
    assert!(posts.windows(2).all(|w| w[1] - w[0] >= 39), "{posts:?}");
    assert!(reads.iter().all(|read| *read < posts[4]), "reads {reads:?} waited for writes {posts:?}");
}

#[tokio::test]
async fn urgent_write_overtakes_waiting_writes_and_keeps_spacing() {
    let script = script((0..7).map(|_| answer(200, &[], "{}")));
    let caller = caller(&script, &Clock::System, RateSettings { mutation_interval_ms: Some(40), ..UNSPACED });
    let urgent = || {
        let mut request = request(Method::POST, "/urgent");
        request.extensions_mut().insert(RequestPriority::Urgent);
        caller.call("urgent", request)
    };
    let mut given_up = Box::pin(urgent());
    let writes = futures::future::join_all((0..4).map(|_| caller.call("write", post())));
    let late = async {
        // Once the first is sent, the others wait.
        while script.count() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(futures::poll!(&mut given_up).is_pending());
        let (one, two, _) = futures::join!(urgent(), urgent(), async { drop(given_up) });
        one.and(two)
    };
    let (writes, urgent) = futures::join!(writes, late);
    assert!(writes.iter().all(Result::is_ok) && urgent.is_ok());
    let sent = script.sent.lock().unwrap();
    let order: Vec<&str> = sent.iter().map(|(request, _)| request.uri().path()).collect();
    assert_eq!(order, ["/a", "/urgent", "/urgent", "/a", "/a", "/a"]);
    assert!(sent.windows(2).all(|w| (w[1].1 - w[0].1).as_millis() >= 39), "the spacing is kept");
}

#[tokio::test]
async fn state_overtakes_waiting_decorations() {
    let script = script((0..5).map(|_| answer(200, &[], "{}")));
    let caller = caller(&script, &Clock::System, RateSettings { mutation_interval_ms: Some(40), ..UNSPACED });
    let decoration = || {
        let mut request = request(Method::POST, "/decoration");
        request.extensions_mut().insert(RequestPriority::Decoration);
        caller.call("decoration", request)
    };
    let decorations = futures::future::join_all((0..3).map(|_| decoration()));
    let late = async {
        while script.count() == 0 {
            tokio::task::yield_now().await;
        }
        futures::join!(caller.call("state", post()), caller.call("state", post()))
    };
    let (decorations, states) = futures::join!(decorations, late);
    assert!(decorations.iter().all(Result::is_ok) && states.0.is_ok() && states.1.is_ok());
    let sent = script.sent.lock().unwrap();
    let order: Vec<&str> = sent.iter().map(|(request, _)| request.uri().path()).collect();
    assert_eq!(order, ["/decoration", "/a", "/a", "/decoration", "/decoration"]);
}

/// A pause requested by the forge would also stop requests that people wait for.
#[tokio::test]
async fn own_budget_is_kept_with_a_reserve_for_state() {
    let budget = MutationBudget { per_minute: 5, per_hour: 100 };
    let script = script((0..5).map(|_| answer(200, &[], "{}")));
    let pace = MutationPace { interval_ms: 0, budget: Some(budget) };
    let rates = RateSettings { mutation_interval_ms: None, ..UNSPACED };
    let caller = RequestLayer::new(Arc::clone(&script) as Arc<dyn Transport>, Clock::manual(NOW), rates, pace);
    let decoration = || {
        let mut request = post();
        request.extensions_mut().insert(RequestPriority::Decoration);
        request
    };
    for _ in 0..4 {
        caller.call("decoration", decoration()).await.unwrap();
    }
    let refused = caller.call("decoration", decoration()).await.unwrap_err();
    assert_eq!(refused.kind, RateLimited { after_ms: 60_000 }, "{refused}");
    caller.call("state", post()).await.unwrap();
    let refused = caller.call("state", post()).await.unwrap_err();
    assert!(matches!(refused.kind, RateLimited { .. }) && refused.detail.contains("5 changes a minute"), "{refused}");
    assert_eq!(script.count(), 5, "what is over the budget is not sent");
}

#[test]
fn pace_of_github_is_replaced_by_the_operators_interval() {
    let pace = |interval| MutationPace::GITHUB.with_interval(interval);
    assert_eq!((pace(None), pace(Some(0))), (MutationPace::GITHUB, MutationPace::UNLIMITED));
    assert_eq!((pace(Some(200)).interval_ms, pace(Some(200)).budget), (200, MutationPace::GITHUB.budget));
}

/// Transport that never responds to the first request.
#[derive(Default)]
struct HangingTransport(std::sync::atomic::AtomicBool);

#[async_trait]
impl Transport for HangingTransport {
    async fn send(&self, _: Request<Bytes>) -> SendResult {
        if !self.0.swap(true, std::sync::atomic::Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        answer(200, &[], "{}")
    }
}

/// See docs/research/faults.md#inv12.
#[tokio::test]
async fn unanswered_write_does_not_block_the_next() {
    let rates = RateSettings { mutation_hold: Duration::from_millis(10), ..UNSPACED };
    let caller =
        RequestLayer::new(Arc::new(HangingTransport::default()), Clock::manual(NOW), rates, MutationPace::UNLIMITED);
    let mut first = Box::pin(caller.call("first", post()));
    assert!(futures::poll!(&mut first).is_pending());
    tokio::select! {
        _ = first => panic!("the first request has no response"),
        second = caller.call("second", post()) => drop(second.unwrap()),
    }
}

#[tokio::test]
async fn dropped_write_does_not_block_the_next() {
    let caller =
        RequestLayer::new(Arc::new(HangingTransport::default()), Clock::manual(NOW), UNSPACED, MutationPace::UNLIMITED);
    let mut first = Box::pin(caller.call("first", post()));
    assert!(futures::poll!(&mut first).is_pending());
    drop(first);
    caller.call("second", post()).await.unwrap();
}

#[tokio::test]
async fn unchanged_response_comes_from_the_cache() {
    let tagged = answer(200, &[("etag", "\"v1\""), ("link", "<x>; rel=\"next\"")], "[1]");
    let newer = answer(200, &[("etag", "\"v2\"")], "[2]");
    let script = script([tagged, answer(304, &[], ""), newer, answer(304, &[], ""), answer(200, &[], "other")]);
    let caller = caller(&script, &Clock::manual(NOW), UNSPACED);
    let mut bodies = vec![];
    for _ in 0..4 {
        let response = caller.call("read", get()).await.unwrap();
        assert_eq!(response.status(), 200);
        bodies.push(response.into_body());
    }
    assert_eq!(bodies, ["[1]", "[1]", "[2]", "[2]"]);
    caller.call("another page", request(Method::GET, "/a?page=2")).await.unwrap();
    let etags: Vec<_> =
        script.sent.lock().unwrap().iter().map(|(r, _)| r.headers().get(IF_NONE_MATCH).cloned()).collect();
    let tags: Vec<_> = etags.iter().map(|t| t.as_ref().map(|t| t.to_str().unwrap())).collect();
    assert_eq!(tags, [None, Some("\"v1\""), Some("\"v1\""), Some("\"v2\""), None]);
}

/// See docs/research/faults.md#f7, docs/research/threats.md#s7.
#[tokio::test]
async fn redirects_stay_on_the_server() {
    let to = |status: u16, location: &str| answer(status, &[("location", location)], "");
    for status in [301, 302, 307, 308] {
        let script = script([to(status, "/b?x=1"), to(status, "https://FORGE.test:443/c"), answer(200, &[], "{}")]);
        caller(&script, &Clock::manual(NOW), UNSPACED).call("read", get()).await.unwrap();
        let sent = script.sent.lock().unwrap();
        assert_eq!(sent[1].0.uri(), "https://forge.test/b?x=1");
        assert!(sent[2].0.headers().contains_key("authorization"));
    }
    for place in [
        "https://evil.test/a",
        "//evil.test/a",
        "http://forge.test/a",
        "https://forge.test:8443/a",
        "https://forge.test@evil.test/",
        "ftp://forge.test/a",
        "file:///etc/passwd",
        "https://",
        "",
    ] {
        let script = script([to(302, place)]);
        let error = caller(&script, &Clock::manual(NOW), UNSPACED).call("read", get()).await.unwrap_err();
        assert_eq!((error.kind, script.count()), (Bug, 1), "{place}");
    }
    let looping = script((0..4).map(|_| to(302, "/a")));
    let error = caller(&looping, &Clock::manual(NOW), UNSPACED).call("loop", get()).await.unwrap_err();
    assert_eq!((error.kind, looping.count()), (Bug, 4));
    // A 301 would turn the POST into a GET that is answered 200.
    for status in [301, 302, 307, 308] {
        let script = script([to(status, "/b"), answer(200, &[], "[]")]);
        let error = caller(&script, &Clock::manual(NOW), UNSPACED).call("write", post()).await.unwrap_err();
        assert_eq!((error.kind, script.count()), (Moved, 1), "{status}");
    }
}

/// See docs/research/threats.md#s7.
#[tokio::test]
async fn cross_origin_download_carries_no_headers() {
    let script = script([answer(302, &[("location", "https://store.test/log?sig=1")], ""), answer(200, &[], "log")]);
    let mut download = get();
    download.extensions_mut().insert(FollowCrossOrigin);
    let caller = caller(&script, &Clock::manual(NOW), UNSPACED);
    assert_eq!(caller.call("log", download).await.unwrap().into_body(), "log");
    let sent = script.sent.lock().unwrap();
    assert_eq!(sent[1].0.uri().host(), Some("store.test"));
    assert!(sent[1].0.headers().is_empty());
}

/// See docs/research/faults.md#f9.
#[test]
fn invalid_responses_are_reported_with_their_cause() {
    #[derive(Debug, serde::Deserialize)]
    struct Thing {
        #[expect(dead_code, reason = "only its absence matters")]
        id: i64,
    }
    let cases = [
        (answer(200, &[], "<!DOCTYPE html><title>Sign in"), "a web page"),
        (answer(200, &[("content-type", "text/html; charset=utf-8")], "Sign in"), "a web page"),
        (answer(200, &[], r#"{"name":"x"}"#), "missing field `id`"),
        (answer(200, &[], "null"), "invalid type: null"),
        (answer(200, &[], ""), "EOF"),
    ];
    for (response, expected) in cases {
        let error = json::<Thing>("read a thing", &response.unwrap()).unwrap_err();
        assert_eq!(error.kind, Bug);
        assert!(error.to_string().starts_with("read a thing: ") && error.detail.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn error_messages_are_quoted_up_to_the_limit() {
    let long = format!(r#"{{"message":"no\nway {}"}}"#, "x".repeat(2_000));
    let script = script([
        answer(422, &[], r#"{"message":"Validation Failed","errors":[{"field":"title"}]}"#),
        answer(400, &[], &long),
        answer(404, &[], "<html>nothing here</html>"),
        answer(404, &[], ""),
    ]);
    let caller = caller(&script, &Clock::manual(NOW), UNSPACED);
    let mut details = vec![];
    for _ in 0..4 {
        details.push(caller.call("try", get()).await.unwrap_err().detail);
    }
    assert_eq!(details[0], r#"HTTP 422: Validation Failed [{"field":"title"}]"#);
    assert!(details[1].starts_with("HTTP 400: no way xxx") && details[1].len() < 600, "{}", details[1]);
    assert_eq!(details[2], "HTTP 404: the response is a web page");
    assert_eq!(details[3], "HTTP 404");
}

#[test]
fn next_page_is_read_from_the_link_header() {
    let cases = [
        (r#"<https://f/a?page=2>; rel="next", <https://f/a?page=9>; rel="last""#, Some("https://f/a?page=2")),
        (r#"<https://f/a?page=1>; rel="prev",<https://f/a?page=3>;rel="next""#, Some("https://f/a?page=3")),
        (r#"<https://f/a?page=1>; rel="prev""#, None),
        ("", None),
        ("garbage; rel=\"next\"", None),
        ("<unclosed; rel=\"next\"", None),
    ];
    for (value, expected) in cases {
        let mut headers = HeaderMap::new();
        headers.insert("link", value.parse().unwrap());
        assert_eq!(next_page(&headers).as_deref(), expected, "{value}");
    }
    assert_eq!(next_page(&HeaderMap::new()), None);
}

/// See docs/research/faults.md#d6.
#[test]
fn pause_is_ignored_after_the_clock_was_set_back() {
    let limited = Response::builder().status(429).header("retry-after", "600").body(Bytes::new()).unwrap();
    let (noted, hour, day) = (Timestamp(1_790_000_000_000), 3_600_000, 86_400_000);
    let mut limits = RateLimits::default();
    limits.observe(&limited, noted);
    assert_eq!(limits.wait(noted, 0).map(|wait| wait.0), Some(600_000));
    assert_eq!(limits.wait(noted.plus_ms(-hour), 0), None, "the pause would exceed an hour");
    assert_eq!(limits.wait(noted.plus_ms(-day), 0), None);
    // Later pauses apply.
    limits.observe(&limited, noted.plus_ms(-day));
    assert_eq!(limits.wait(noted.plus_ms(-day + 1_000), 0).map(|wait| wait.0), Some(599_000));
}

#[tokio::test]
async fn single_sign_on_refusal_contains_the_authorization_address() {
    let address = "https://github.com/orgs/acme/sso?authorization_request=A1";
    for (header, told) in [(format!("required; url={address}"), true), ("required; url=javascript:x".to_owned(), false)]
    {
        let body = r#"{"message":"Resource protected by organization SAML enforcement."}"#;
        let script = script([answer(403, &[("x-github-sso", &header)], body)]);
        let caller = caller(&script, &Clock::manual(NOW), UNSPACED);
        let failure = caller.call("read", get()).await.unwrap_err();
        assert_eq!(failure.kind, Denied, "{failure}");
        assert_eq!(failure.detail.contains(&format!("authorize the token at {address}")), told, "{failure}");
    }
}
