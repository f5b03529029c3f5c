//! Corpus of real messages and of harmless prose, all formats of times, and random input.

use proptest::prelude::*;
use serde::Deserialize;

use crate::domain::model::ids::Timestamp;
use crate::domain::providers::limit::{LONGEST_MS, Limit, LimitKind, LimitSignals, LimitSource, classify};

const REAL: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/limits/real.jsonl"));
const HARMLESS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/limits/harmless.jsonl"));
/// Time for lines of the corpus that state none.
const NOW: &str = "2026-01-15T12:00:00Z";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Real {
    text: String,
    status: Option<u16>,
    code: Option<String>,
    #[serde(default)]
    headers: std::collections::BTreeMap<String, String>,
    exit: Option<i32>,
    zone: Option<String>,
    kind: LimitKind,
    now: Option<String>,
    until: Option<String>,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Harmless {
    text: String,
}

fn lines<T: for<'a> Deserialize<'a>>(text: &str) -> Vec<T> {
    let parse =
        |(index, line)| serde_json::from_str(line).unwrap_or_else(|error| panic!("line {}: {error}", index + 1));
    text.lines().enumerate().map(parse).collect()
}

fn moment(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().expect("RFC 3339").as_millisecond())
}

fn shown(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0).expect("in range").to_string()
}

/// Returns a failed run with this message.
fn failed(text: &str) -> LimitSignals {
    LimitSignals { messages: vec![text.to_owned()], ..LimitSignals::default() }
}

fn signals(real: &Real) -> LimitSignals {
    LimitSignals {
        exit_code: real.exit,
        exit_is_status: real.exit.is_some(),
        status: real.status,
        code: real.code.clone(),
        headers: real.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        messages: if real.text.is_empty() { Vec::new() } else { vec![real.text.clone()] },
        zone: real.zone.clone(),
        ..LimitSignals::default()
    }
}

/// Returns the difference between the expected and the actual result for a line of the corpus; `None` if there is none.
fn fault(real: &Real) -> Option<String> {
    let now = moment(real.now.as_deref().unwrap_or(NOW));
    let Some(limit) = classify(&signals(real), now) else {
        return Some(format!("not seen: {:?} ({})", real.text, real.source));
    };
    let until = limit.until.map(|at| Timestamp(at.0.div_euclid(1000))).map(|at| at.0);
    let wanted = real.until.as_deref().map(|text| moment(text).0.div_euclid(1000));
    if limit.kind == real.kind && until == wanted {
        return None;
    }
    let read = limit.until.map_or("never".to_owned(), shown);
    Some(format!(
        "{:?} until {read}, not {:?} until {:?}: {:?} ({})",
        limit.kind, real.kind, real.until, real.text, real.source
    ))
}

#[test]
fn real_messages_are_read_with_kind_and_time() {
    let real: Vec<Real> = lines(REAL);
    assert!(real.len() >= 120, "{} lines", real.len());
    assert!(real.iter().all(|line| !line.source.is_empty()));
    let faults: Vec<String> = real.iter().filter_map(fault).collect();
    let unseen = faults.iter().filter(|fault| fault.starts_with("not seen")).count();
    assert!(unseen * 50 <= real.len(), "{unseen} of {} not recognized:\n{}", real.len(), faults.join("\n"));
    assert!(faults.len() == unseen, "kinds and times that are wrong:\n{}", faults.join("\n"));
}

#[test]
fn prose_of_failed_runs_is_not_a_rate_limit() {
    let harmless: Vec<Harmless> = lines(HARMLESS);
    assert!(harmless.len() >= 200, "{} lines", harmless.len());
    let faults: Vec<String> = harmless
        .iter()
        .filter_map(|line| Some(format!("{:?}: {:?}", classify(&failed(&line.text), moment(NOW))?.kind, line.text)))
        .collect();
    assert!(faults.is_empty(), "{} taken for limits:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn successful_run_has_no_limit() {
    let harmless = lines::<Harmless>(HARMLESS).into_iter().map(|line| failed(&line.text));
    for failed in lines::<Real>(REAL).iter().map(signals).chain(harmless) {
        let succeeded = LimitSignals { succeeded: true, ..failed };
        assert_eq!(classify(&succeeded, moment(NOW)), None, "{succeeded:?}");
    }
}

/// Returns the time read from a message, at noon UTC of Thursday, 2026-01-15.
fn until(message: &str, zone: Option<&str>) -> Option<String> {
    let signals =
        LimitSignals { zone: zone.map(str::to_owned), ..failed(&format!("You've hit your usage limit. {message}")) };
    let limit = classify(&signals, moment(NOW)).expect("these words are a limit");
    limit.until.map(shown)
}

#[test]
fn times_are_read_in_every_form() {
    let cases = [
        ("Please try again in 250ms", "2026-01-15T12:00:00.25Z"),
        ("try again in 1m30s", "2026-01-15T12:01:30Z"),
        ("Please try again in 1m12.5s.", "2026-01-15T12:01:12.5Z"),
        ("try again in 6.2s", "2026-01-15T12:00:06.2Z"),
        ("Try again in 2 days 3 hours", "2026-01-17T15:00:00Z"),
        ("Try again in 1 day, 2 hours and 5 minutes", "2026-01-16T14:05:00Z"),
        ("resets in 5 minutes", "2026-01-15T12:05:00Z"),
        ("Retry after 90 seconds", "2026-01-15T12:01:30Z"),
        ("Retry-After: 30", "2026-01-15T12:00:30Z"),
        ("retry-after-ms: 274579000", "2026-01-18T16:16:19Z"),
        ("\"retryDelay\": \"34s\"", "2026-01-15T12:00:34Z"),
        ("retry_delay { seconds: 34 }", "2026-01-15T12:00:34Z"),
        ("Retry-After: Thu, 15 Jan 2026 13:00:00 GMT", "2026-01-15T13:00:00Z"),
        ("resets at 2026-01-16T08:00:00+02:00", "2026-01-16T06:00:00Z"),
        ("resets at 2026-01-16 08:00:00 CET", "2026-01-16T07:00:00Z"),
        ("resets at 1768500000", "2026-01-15T18:00:00Z"),
        ("\"resets_at\":1768500000123", "2026-01-15T18:00:00.123Z"),
        ("\"X-RateLimit-Reset\": \"1768500000000\"", "2026-01-15T18:00:00Z"),
        ("[retrying in 32m 50s attempt #1]", "2026-01-15T12:32:50Z"),
        ("resets 3pm (Europe/Rome)", "2026-01-15T14:01:00Z"),
        ("resets 1pm (Europe/Rome)", "2026-01-15T12:01:00Z"),
        ("resets at 15:04", "2026-01-15T15:05:00Z"),
        ("resets at 15:04:05 UTC", "2026-01-15T15:04:05Z"),
        ("resets 12am", "2026-01-16T00:01:00Z"),
        ("resets 12 p.m. EST", "2026-01-15T17:01:00Z"),
        ("resets 9am PST", "2026-01-15T17:01:00Z"),
        ("resets 5:30pm IST", "2026-01-15T12:01:00Z"),
        ("resets 5:31pm IST", "2026-01-15T12:02:00Z"),
        ("resets 3pm (UTC+2)", "2026-01-15T13:01:00Z"),
        ("resets 3pm GMT-05:00", "2026-01-15T20:01:00Z"),
        ("resets Feb 9, 3am", "2026-02-09T03:01:00Z"),
        ("resets Jan 20 at 3am (Asia/Tokyo)", "2026-01-19T18:01:00Z"),
        ("try again at Jan 28th, 2026 11:32 AM.", "2026-01-28T11:33:00Z"),
        ("try again after January 23, 2026 at 2:45 PM.", "2026-01-23T14:46:00Z"),
        ("resets Friday at 9am", "2026-01-16T09:01:00Z"),
        ("resets Thu 9:00 am", "2026-01-22T09:01:00Z"),
        ("resets tomorrow at 3pm", "2026-01-16T15:01:00Z"),
        ("(resets 03:13 on 26 Jan)", "2026-01-26T03:14:00Z"),
        ("resets at 2026-01-16 08:00 CET", "2026-01-16T07:01:00Z"),
        ("resets on 2/9/2026 at 3:00 AM", "2026-02-09T03:01:00Z"),
        ("resets 2/9/26", "2026-02-09T00:00:00Z"),
        ("resets 20/1/2026", "2026-01-20T00:00:00Z"),
        ("resets at 02:00 UTC on Monday", "2026-01-19T02:01:00Z"),
        ("resets 2:00 AM PST on February 9, 2026", "2026-02-09T10:01:00Z"),
        ("resets Monday", "2026-01-19T00:00:00Z"),
        ("resets at midnight Pacific Time", "2026-01-16T08:01:00Z"),
        ("resets at noon (America/New_York)", "2026-01-15T17:01:00Z"),
        ("try again tomorrow", "2026-01-16T00:00:00Z"),
        ("available again on 9 Feb 2026 at 15:00:30 (Asia/Kolkata)", "2026-02-09T09:30:30Z"),
        ("your monthly cycle ends on 2/9/2026", "2026-02-09T00:00:00Z"),
        ("try again after Mon Feb 09 2026 02:00:00 GMT+0100 (Central European Standard Time)", "2026-02-09T01:00:00Z"),
        ("try again in 10 days 19 hours", "2026-01-26T07:00:00Z"),
        ("try again in about an hour", "2026-01-15T13:00:00Z"),
        ("resets in 1 month", "2026-02-14T12:00:00Z"),
    ];
    for (message, wanted) in cases {
        assert_eq!(until(message, None).as_deref(), Some(wanted), "{message}");
    }
    assert_eq!(until("resets 3pm", Some("America/New_York")).as_deref(), Some("2026-01-15T20:01:00Z"));
    assert_eq!(until("resets 3pm (UTC)", Some("America/New_York")).as_deref(), Some("2026-01-15T15:01:00Z"));
    assert_eq!(until("resets 3pm", Some("Nowhere/Atall")).as_deref(), Some("2026-01-15T15:01:00Z"));
}

#[test]
fn time_in_the_recent_past_becomes_a_one_minute_wait() {
    for (now, message, wanted) in [
        // Within the stated minute, the limit ends with the minute.
        ("2026-01-15T15:00:20Z", "resets 3pm", Some("2026-01-15T15:01:00Z")),
        ("2026-01-15T15:01:20Z", "resets 3pm", Some("2026-01-15T15:02:20Z")),
        ("2026-01-15T15:11:00Z", "resets 3pm", Some("2026-01-15T15:12:00Z")),
        ("2026-01-15T15:11:01Z", "resets 3pm", Some("2026-01-16T15:01:00Z")),
        ("2026-01-16T00:03:00Z", "resets 11:58pm", Some("2026-01-16T00:04:00Z")),
        ("2026-01-15T09:05:00Z", "resets Thu 9:00 am", Some("2026-01-15T09:06:00Z")),
        ("2026-01-15T09:05:00Z", "resets Jan 15, 9am", Some("2026-01-15T09:06:00Z")),
        ("2026-01-15T09:05:00Z", "resets at 2026-01-15T09:00:00Z", Some("2026-01-15T09:06:00Z")),
        ("2026-01-15T09:30:00Z", "resets at 2026-01-15T09:00:00Z", None),
    ] {
        let limit = classify(&failed(&format!("You've hit your limit · {message}")), moment(now)).expect("a limit");
        assert_eq!(limit.until.map(shown).as_deref(), wanted, "{message} at {now}");
    }
}

#[test]
fn impossible_times_are_ignored() {
    let cases = [
        "resets at 2026-01-15T11:49:59Z",
        "resets at 1749924000",
        "resets at 2036-01-15T12:00:00Z",
        "try again in 41 days",
        "try again in 99999999999 weeks",
        "try again in 0s",
        "Retry-After: -30",
        "resets at 25:00",
        "resets 13pm",
        "resets 3pm (ModelAdvice/Earth)",
        "resets Feb 30, 3am",
        "resets Oct 9, 3am",
        "resets soon",
        "Retrying in 18 seconds… (attempt 6/10)",
        "resets 3 of the counters",
    ];
    for message in cases {
        assert_eq!(until(message, None), None, "{message}");
    }
}

#[test]
fn daylight_saving_changes_are_followed() {
    let cases = [
        // Rome, 2026-03-29: 02:30 does not exist, it is an hour later. 2026-10-25: 02:30 comes twice.
        ("2026-03-28T22:00:00Z", "resets 2:30am (Europe/Rome)", "2026-03-29T01:30:00Z"),
        ("2026-03-28T22:00:00Z", "resets 3:30am (Europe/Rome)", "2026-03-29T01:30:00Z"),
        ("2026-10-24T22:00:00Z", "resets 2:30am (Europe/Rome)", "2026-10-25T00:30:00Z"),
        ("2026-10-25T00:45:00Z", "resets 2:30am (Europe/Rome)", "2026-10-25T01:30:00Z"),
        ("2026-10-25T01:45:00Z", "resets 2:30am (Europe/Rome)", "2026-10-26T01:30:00Z"),
        ("2026-07-01T12:00:00Z", "resets 3pm (Europe/Rome)", "2026-07-01T13:00:00Z"),
        ("2026-12-31T20:00:00Z", "resets Jan 1, 3am (Pacific/Auckland)", "2027-01-01T03:00:00+13:00"),
    ];
    for (now, message, wanted) in cases {
        let limit = classify(&failed(&format!("You've hit your limit · {message}")), moment(now)).expect("a limit");
        let wanted = Some(moment(wanted).plus_ms(60_000)).filter(|at| *at > moment(now));
        assert_eq!(limit.until, wanted, "{message} at {now}");
    }
}

fn refused(status: u16, headers: &[(&str, &str)]) -> LimitSignals {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    LimitSignals { status: Some(status), headers, ..LimitSignals::default() }
}

#[test]
fn end_of_a_limit_is_read_from_headers() {
    let cases: [(&[(&str, &str)], Option<&str>); 14] = [
        (&[("Retry-After", "30")], Some("2026-01-15T12:00:30Z")),
        (&[("retry-after", "Thu, 15 Jan 2026 12:05:00 GMT")], Some("2026-01-15T12:05:00Z")),
        (&[("retry-after-ms", "1500"), ("retry-after", "30")], Some("2026-01-15T12:00:01.5Z")),
        (&[("retry-after", "soon")], None),
        (&[("retry-after", "-5")], None),
        (&[("retry-after", "99999999999999999999")], None),
        (&[("retry-after", "Wed, 14 Jan 2026 12:05:00 GMT")], None),
        (&[("x-ratelimit-reset", "1768478460")], Some("2026-01-15T12:01:00Z")),
        (&[("x-ratelimit-reset", "1768478460000")], Some("2026-01-15T12:01:00Z")),
        (&[("x-ratelimit-reset", "60")], Some("2026-01-15T12:01:00Z")),
        (
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "250ms"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            Some("2026-01-15T12:00:00.25Z"),
        ),
        (
            &[
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "2026-01-15T12:00:10Z"),
                ("anthropic-ratelimit-tokens-remaining", "0"),
                ("anthropic-ratelimit-tokens-reset", "2026-01-15T12:00:40Z"),
            ],
            Some("2026-01-15T12:00:40Z"),
        ),
        (
            &[
                ("anthropic-ratelimit-unified-status", "rejected"),
                ("anthropic-ratelimit-unified-reset", "1768500000"),
                ("retry-after", "21599"),
            ],
            Some("2026-01-15T18:00:00Z"),
        ),
        (
            &[("x-codex-primary-used-percent", "100.0"), ("x-codex-primary-reset-after-seconds", "600")],
            Some("2026-01-15T12:10:00Z"),
        ),
    ];
    for (headers, wanted) in cases {
        let limit = classify(&refused(429, headers), moment(NOW)).expect("429 is a limit");
        assert_eq!(limit.until.map(shown).as_deref(), wanted, "{headers:?}");
    }
    assert_eq!(classify(&refused(400, &[("retry-after", "30")]), moment(NOW)), None);
    assert_eq!(classify(&refused(200, &[("x-ratelimit-remaining", "0")]), moment(NOW)), None);
}

#[test]
fn most_trusted_source_wins() {
    let words = "You've hit your 5-hour limit · resets 3pm (UTC)".to_owned();
    let all = LimitSignals {
        exit_code: Some(173),
        exit_is_status: true,
        status: Some(429),
        code: Some("rate_limit_error".to_owned()),
        resets_at: Some(moment("2026-01-15T16:00:00Z")),
        headers: vec![("retry-after".to_owned(), "60".to_owned())],
        messages: vec![words.clone()],
        ..LimitSignals::default()
    };
    let read = |signals: &LimitSignals| classify(signals, moment(NOW)).expect("a limit");
    let expected =
        |source, at: &str| Limit { kind: LimitKind::Quota, until: Some(moment(at)), source, evidence: words.clone() };
    assert_eq!(read(&all), expected(LimitSource::Exit, "2026-01-15T16:00:00Z"));
    let unclear = LimitSignals { exit_is_status: false, ..all.clone() };
    assert_eq!(read(&unclear), expected(LimitSource::Stream, "2026-01-15T16:00:00Z"));
    let without_code = LimitSignals { status: None, code: None, resets_at: None, ..unclear };
    assert_eq!(read(&without_code).source, LimitSource::Headers);
    assert_eq!(read(&without_code).until, Some(moment("2026-01-15T12:01:00Z")));
    let words_only = LimitSignals { headers: Vec::new(), ..without_code };
    assert_eq!(read(&words_only), expected(LimitSource::Text, "2026-01-15T15:01:00Z"));
}

#[test]
fn auth_and_billing_need_a_message() {
    for status in [400, 401, 402, 403, 404, 413] {
        assert_eq!(classify(&refused(status, &[]), moment(NOW)), None, "{status}");
    }
    let with_words = [
        (401, "Please log in.", LimitKind::Auth),
        (402, "Top up your balance.", LimitKind::Billing),
        (403, "This key may not: permission missing.", LimitKind::Auth),
        (404, "no such model", LimitKind::ModelMissing),
        (413, "request exceeds the maximum size", LimitKind::ContextTooLong),
    ];
    for (status, words, kind) in with_words {
        let signals = LimitSignals { status: Some(status), ..failed(words) };
        assert_eq!(classify(&signals, moment(NOW)).map(|limit| limit.kind), Some(kind), "{status} {words}");
    }
    let resets_only = LimitSignals { resets_at: Some(moment("2026-01-15T16:00:00Z")), ..LimitSignals::default() };
    assert_eq!(classify(&resets_only, moment(NOW)), None);
    let other_exit = LimitSignals { exit_code: Some(173), ..LimitSignals::default() };
    assert_eq!(classify(&other_exit, moment(NOW)), None);
}

#[test]
fn sentence_overrides_the_error_kind_of_a_program() {
    let quota = "You've reached your 5-hour usage limit";
    for (status, code, text, kind) in [
        (
            Some(403),
            Some("permission_error"),
            format!("Failed to authenticate. API Error: 403 {quota}"),
            LimitKind::Quota,
        ),
        (Some(403), Some("permission_error"), quota.to_owned(), LimitKind::Quota),
        (Some(401), Some("authentication_error"), format!("API Error: 401 {quota}"), LimitKind::Quota),
        (Some(429), Some("rate_limit_error"), "Insufficient balance".to_owned(), LimitKind::Billing),
        (Some(429), Some("1310"), "Slow down".to_owned(), LimitKind::Quota),
        (Some(500), None, "API Error: 500 Invalid bearer token".to_owned(), LimitKind::Auth),
        (Some(403), Some("permission_error"), "Failed to authenticate. API Error: 403".to_owned(), LimitKind::Auth),
    ] {
        let signals = LimitSignals { status, code: code.map(str::to_owned), ..failed(&text) };
        assert_eq!(classify(&signals, moment(NOW)).map(|limit| limit.kind), Some(kind), "{status:?} {code:?} {text}");
    }
}

#[test]
fn sentences_of_an_answer_need_no_prefix() {
    for (text, kind) in [
        ("Unauthorized", LimitKind::Auth),
        ("Something is wrong with your credit balance", LimitKind::Billing),
        ("the API did not answer: fetch failed", LimitKind::Overload),
        ("I cannot do this, because it violates our content policy", LimitKind::Policy),
    ] {
        assert_eq!(classify(&failed(text), moment(NOW)), None, "{text}");
        let signals = LimitSignals { answer: text.to_owned(), ..LimitSignals::default() };
        assert_eq!(classify(&signals, moment(NOW)).map(|limit| limit.kind), Some(kind), "{text}");
    }
}

#[test]
fn last_message_counts_after_long_output() {
    let mut long = "test rate_limit_resets ... ok\n".repeat(40_000);
    long.push_str("You've hit your limit · resets 3pm (UTC)\n");
    let limit = classify(&failed(&long), moment(NOW)).expect("a limit");
    assert_eq!((limit.kind, limit.until), (LimitKind::Quota, Some(moment("2026-01-15T15:01:00Z"))));
    let mut many = vec!["nothing".to_owned(); 10_000];
    many.push("Credit balance is too low".to_owned());
    let signals = LimitSignals { messages: many, ..LimitSignals::default() };
    assert_eq!(classify(&signals, moment(NOW)).map(|limit| limit.kind), Some(LimitKind::Billing));
}

/// Generates text that resembles messages about limits.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("You've hit your limit · resets "),
        Just("Error: "),
        Just("API Error: 429 {\"error\":{\"message\":\""),
        Just("try again in "),
        Just("99999999999"),
        Just("3pm (Europe/Rome)"),
        Just("Feb 29"),
        Just(", 24:61"),
        Just("\\\"\\n"),
        Just("|1749924000"),
        Just("}]"),
        Just("\n│ "),
        Just("’é漢\u{1b}[31m"),
    ];
    let any = prop_oneof![piece.prop_map(str::to_owned), any::<String>()];
    prop::collection::vec(any, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(test_support::cases(128))]

    #[test]
    fn limit_of_any_message_is_valid(
        words in pieces(),
        value in pieces(),
        status in prop::option::of(any::<u16>()),
        at in any::<i64>(),
        now in any::<i64>(),
    ) {
        let header = |name: &str| (name.to_owned(), value.clone());
        let signals = LimitSignals {
            status,
            exit_code: Some(173),
            resets_at: Some(Timestamp(at)),
            headers: vec![header("retry-after"), header("x-ratelimit-reset"), header("anthropic-ratelimit-unified-reset")],
            messages: vec![words, value.clone()],
            zone: Some(value.clone()),
            ..LimitSignals::default()
        };
        if let Some(limit) = classify(&signals, Timestamp(now)) {
            prop_assert!(limit.evidence.chars().count() <= 300);
            if let Some(until) = limit.until {
                prop_assert!(until > Timestamp(now) && until.since(Timestamp(now)) <= LONGEST_MS);
            }
        }
    }
}
