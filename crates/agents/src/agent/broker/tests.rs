//! Hidden keys, forwarded requests and refused ones.

use futures::StreamExt;

use axum::http::HeaderMap;

use super::super::BackendKind;
use super::*;
use crate::agent::CountedUsage;
use crate::domain::model::ids::Money;
use crate::domain::providers::prices::{PriceEntry, PriceTable};
use crate::provider::tests::stub::{Stub, StubReply};

const KNOWN: [ModelKey; 2] = [
    ModelKey {
        keys: &["ONE_KEY", "ONE_TOKEN"],
        addresses: &["ONE_URL", "ONE_BASE"],
        default_address: Some("https://one.example/v1"),
        unless_set: &["ONE_HOME"],
        formats: FormatName::ALL,
    },
    ModelKey {
        keys: &["TWO_KEY"],
        addresses: &["TWO_URL"],
        default_address: None,
        unless_set: &[],
        formats: FormatName::ALL,
    },
];
const KEY: &str = "sk-hunter2";

fn settings(variables: &[(&str, &str)], keys: &[(&str, &str)]) -> BackendSetup {
    let mut settings = BackendSetup::new(BackendKind::Script, "/", "/usr/bin");
    settings.env = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    settings.config.keys = keys.iter().map(|(key, at)| ((*key).to_owned(), (*at).to_owned())).collect();
    settings
}

#[test]
fn keys_with_a_known_address_are_hidden() {
    let keys_of = |variables: &[(&str, &str)], keys: &[(&str, &str)]| {
        let hidden = hidden_keys(&settings(variables, keys), &KNOWN);
        let each = hidden.iter().map(|hidden| {
            format!("{} by {} at {}", hidden.keys.join("+"), hidden.addresses.join("+"), hidden.model.as_str())
        });
        each.collect::<Vec<_>>().join("; ")
    };
    let at_one = "ONE_KEY by ONE_URL+ONE_BASE at https://one.example/v1";
    for (variables, expected) in [
        (&[][..], ""),
        (&[("OTHER_KEY", "k")], ""),
        (&[("ONE_KEY", "k")], at_one),
        (&[("ONE_KEY", "")], ""),
        (&[("ONE_KEY", "k"), ("ONE_TOKEN", "t")], "ONE_KEY+ONE_TOKEN by ONE_URL+ONE_BASE at https://one.example/v1"),
        (&[("ONE_KEY", "k"), ("ONE_BASE", "http://gate.lan:81")], "ONE_KEY by ONE_URL+ONE_BASE at http://gate.lan:81/"),
        // The agent would not use the broker's address.
        (&[("ONE_KEY", "k"), ("ONE_HOME", "/x")], ""),
        (&[("ONE_KEY", "k"), ("ONE_URL", "no address")], ""),
        (&[("TWO_KEY", "k")], ""),
        (&[("TWO_KEY", "k"), ("TWO_URL", "http://two.lan")], "TWO_KEY by TWO_URL at http://two.lan/"),
    ] {
        assert_eq!(keys_of(variables, &[]), expected, "{variables:?}");
    }
    let own = [("MY_KEY", "k"), ("MY_URL", "https://my.example/x"), ("MY_OTHER", "o")];
    let expected = "MY_KEY+MY_OTHER by MY_URL at https://my.example/x";
    assert_eq!(keys_of(&own, &[("MY_KEY", "MY_URL"), ("MY_OTHER", "MY_URL"), ("GONE", "MY_URL")]), expected);
    let one = r#"{"provider":{"base_url":"https://my.example/x","retries":2}}"#;
    assert_eq!(
        keys_of(&[("MY_KEY", "k"), ("MY_URL", one)], &[("MY_KEY", "MY_URL")]),
        "MY_KEY by MY_URL at https://my.example/x"
    );
    assert_eq!(with_address(one, "http://[::1]:9"), r#"{"provider":{"base_url":"http://[::1]:9","retries":2}}"#);
    let two = r#"{"a":"https://my.example/x","b":["https://other.example"]}"#;
    assert_eq!(keys_of(&[("MY_KEY", "k"), ("MY_URL", two)], &[("MY_KEY", "MY_URL")]), "");
    let mut open = settings(&[("ONE_KEY", "k")], &[]);
    open.config.hide_keys = false;
    assert_eq!(hidden_keys(&open, &KNOWN), []);
}

/// Starts a broker for a model at this address; returns it with the address and the token of the agent.
async fn broker(address: &str) -> (Broker, String, String) {
    metered(address, &RunMeter::new(None, None, Arc::default())).await
}

async fn metered(address: &str, meter: &Arc<RunMeter>) -> (Broker, String, String) {
    let settings = settings(&[("ONE_KEY", KEY), ("ONE_BASE", address), ("LANG", "C")], &[]);
    let (hidden, clients) = (hidden_keys(&settings, &KNOWN), ModelClients::default());
    let forms = forms_of_keys(&settings, &hidden);
    let parts = BrokerParts { hidden: &hidden, clients: &clients, forms: &forms };
    let broker = Broker::open(&settings, &parts, meter).await.expect("it answers");
    let value = |name: &str| {
        let (_, value) = broker.variables.iter().find(|(known, _)| known == name).expect("it is set");
        value.expose_secret().to_owned()
    };
    let (url, token) = (value("ONE_URL"), value("ONE_KEY"));
    assert_eq!((value("ONE_BASE"), value("LANG")), (url.clone(), "C".to_owned()));
    assert!(!broker.variables.iter().any(|(_, value)| value.expose_secret().contains(KEY)), "the key is in it");
    (broker, url, token)
}

fn client() -> reqwest::Client {
    client_of_model(&Url::parse("http://127.0.0.1/").expect("an address")).build().expect("a client")
}

/// See docs/research/threats.md#s4.
#[tokio::test]
async fn model_gets_key_and_agent_gets_token_only() {
    let limited = StubReply::Whole(429, vec![("retry-after", "7".to_owned())], "{\"error\":{}}".to_owned());
    let model =
        Stub::start([StubReply::said("hello"), limited, StubReply::said("by the third"), StubReply::Huge(3_000_000)])
            .await;
    let (_broker, url, token) = broker(&format!("{}/v1/", model.url)).await;
    assert!(url.ends_with("/v1/"), "{url}");
    let prompt = json!({ "model": "m", "messages": [] });
    let ask = |path: &str, body: &Value| client().post(format!("{url}{path}")).json(body);
    let response = ask("messages?beta=true", &prompt).header("x-api-key", &token).header("anthropic-beta", "a,b");
    let response = response.header("x-other", "dropped").send().await.expect("an answer");
    assert_eq!(response.headers()["content-type"], "application/json");
    assert!(response.text().await.expect("a text").contains("hello"));
    let limited = ask("chat/completions", &prompt).bearer_auth(&token).send().await.expect("an answer");
    assert_eq!((limited.status().as_u16(), &limited.headers()["retry-after"]), (429, &HeaderValue::from_static("7")));
    let contents = json!({ "contents": [] });
    ask("models/m:generateContent?alt=sse", &contents)
        .header("x-goog-api-key", &token)
        .send()
        .await
        .expect("an answer");
    let huge = ask("responses", &json!({ "model": "m", "input": "x" })).bearer_auth(&token).send().await;
    let bytes = huge.expect("an answer").bytes_stream();
    let bytes = bytes.fold(0, |sum, part| async move { sum + part.expect("a part").len() }).await;
    assert_eq!(bytes, 3_000_000);
    let requests = model.seen();
    let paths: Vec<&str> = requests.iter().map(|request| request.path.as_str()).collect();
    let expected =
        ["/v1/messages?beta=true", "/v1/chat/completions", "/v1/models/m:generateContent?alt=sse", "/v1/responses"];
    assert_eq!(paths, expected);
    assert_eq!(
        (&requests[0].headers["x-api-key"], &requests[0].headers["anthropic-beta"]),
        (&KEY.parse().unwrap(), &"a,b".parse().unwrap())
    );
    assert!(!requests[0].headers.contains_key("x-other"));
    assert_eq!(requests[1].headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(requests[2].headers["x-goog-api-key"], KEY);
    assert_eq!((&requests[0].body, &requests[2].body), (&prompt, &contents));
    let has_key = |headers: &HeaderMap| headers.values().filter(|v| v.to_str().is_ok_and(|v| v.contains(KEY))).count();
    assert!(requests.iter().all(
        |request| has_key(&request.headers) == 1 && model.url.ends_with(request.headers["host"].to_str().unwrap())
    ));
}

/// Requests without the run's token, outside of the model's address, or after the run are refused.
#[tokio::test]
async fn requests_without_token_or_outside_the_address_are_refused() {
    let model = Stub::start([]).await;
    let meter = RunMeter::new(None, None, Arc::default());
    let (broker, url, token) = metered(&format!("{}/v1", model.url), &meter).await;
    let (other, _, others_token) = self::broker(&format!("{}/v1", model.url)).await;
    let host = url.strip_suffix("/v1").expect("the model's path");
    for (asked, key, status) in [
        (format!("{url}/messages"), "sk-guessed", 401),
        (format!("{url}/messages"), others_token.as_str(), 401),
        (format!("{url}/messages"), &token[..token.len() - 1], 401),
        (format!("{url}/messages"), &format!("Bearer {token}"), 401),
        (format!("{url}/messages?key={token}"), "", 401),
        (format!("{host}/v2/messages"), &token, 404),
        (format!("{host}/v1messages"), &token, 404),
        (format!("{url}/files"), &token, 404),
        (format!("{host}//evil.example/v1/messages"), &token, 404),
        (format!("{host}/"), &token, 404),
    ] {
        let body = json!({ "model": "m", "messages": [] });
        let answer = client().post(&asked).header("x-api-key", key).json(&body).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), status, "{asked}");
        assert!(answer.text().await.expect("a text").contains("ralph-bot: "), "{asked}");
    }
    let large = client().post(format!("{url}/messages")).header("x-api-key", &token);
    let large = large.header("content-type", "application/json").body(vec![b' '; BROKER_BODY_BYTES + 1]).send().await;
    assert!(large.map_or(true, |answer| answer.status().as_u16() == 413), "too large");
    assert!(model.seen().is_empty(), "{:?}", model.seen());
    assert!(meter.refused().iter().any(|what| what.contains("POST /v1/files")), "{:?}", meter.refused());
    drop((broker, other));
    let after = client().get(format!("{url}/models")).header("x-api-key", &token).send().await;
    // Another server may have got the port by now, or the connection may wait in the backlog of the closed listener.
    assert!(after.map_or(true, |answer| !answer.status().is_success()), "the broker ends with its run");
    assert!(model.seen().is_empty(), "{:?}", model.seen());
}

#[tokio::test]
async fn unreachable_model_is_reported_without_key() {
    let meter = RunMeter::new(None, None, Arc::default());
    let (_broker, url, token) = metered("http://127.0.0.1:1/v1", &meter).await;
    let body = json!({ "model": "m", "messages": [] });
    let answer = client().post(format!("{url}/messages")).header("x-api-key", &token).json(&body).send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status().as_u16(), 502);
    let body = answer.text().await.expect("a text");
    assert!(body.contains("cannot reach the model") && !body.contains(KEY), "{body}");
    assert_eq!(meter.counted(), CountedUsage::default(), "what was not sent costs nothing");
}

#[tokio::test]
async fn usage_of_answers_is_counted_and_ends_with_the_money() {
    let model = Stub::start((0..9).map(|_| StubReply::said("hello"))).await;
    let price = PriceEntry { input: 1000.0, output: 1000.0, cache_read: None, cache_write: None };
    let prices = PriceTable::with_entries(&[("claude-stub".to_owned(), price)].into(), "prices").expect("prices");
    let meter = RunMeter::new(Some(Money::from_usd(0.35)), None, Arc::new(prices));
    let (_broker, url, token) = metered(&model.url, &meter).await;
    let mut statuses = Vec::new();
    for _ in 0..9 {
        let body = json!({ "model": "claude-stub", "max_tokens": 10, "messages": [] });
        let ask = client().post(format!("{url}/v1/messages")).header("x-api-key", &token).json(&body).send().await;
        statuses.push(ask.expect("an answer").status().as_u16());
    }
    // An answer costs 110 tokens at a dollar for a thousand.
    assert_eq!(statuses, [200, 200, 200, 402, 402, 402, 402, 402, 402]);
    let counted = meter.counted();
    assert_eq!((counted.requests, counted.cost, model.seen().len()), (3, Money::from_usd(0.33), 3));
    assert!(meter.is_exhausted());
}
