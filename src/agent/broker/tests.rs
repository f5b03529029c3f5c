//! Hidden keys, forwarded requests and refused ones.

use futures::StreamExt;

use super::super::BackendKind;
use super::*;
use crate::provider::tests::stub::{Stub, StubReply};

const KNOWN: [ModelKey; 2] = [
    ModelKey {
        keys: &["ONE_KEY", "ONE_TOKEN"],
        addresses: &["ONE_URL", "ONE_BASE"],
        default_address: Some("https://one.example/v1"),
        unless_set: &["ONE_HOME"],
    },
    ModelKey { keys: &["TWO_KEY"], addresses: &["TWO_URL"], default_address: None, unless_set: &[] },
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
    let of = |variables: &[(&str, &str)], keys: &[(&str, &str)]| {
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
        assert_eq!(of(variables, &[]), expected, "{variables:?}");
    }
    let own = [("MY_KEY", "k"), ("MY_URL", "https://my.example/x"), ("MY_OTHER", "o")];
    let expected = "MY_KEY+MY_OTHER by MY_URL at https://my.example/x";
    assert_eq!(of(&own, &[("MY_KEY", "MY_URL"), ("MY_OTHER", "MY_URL"), ("GONE", "MY_URL")]), expected);
    let mut open = settings(&[("ONE_KEY", "k")], &[]);
    open.config.hide_keys = false;
    assert_eq!(hidden_keys(&open, &KNOWN), []);
}

/// Starts a broker for a model at this address; returns it with the address and the token of the agent.
async fn broker(address: &str) -> (Broker, String, String) {
    let settings = settings(&[("ONE_KEY", KEY), ("ONE_BASE", address), ("LANG", "C")], &[]);
    let broker =
        Broker::open(&settings, &hidden_keys(&settings, &KNOWN), &ModelClients::default()).await.expect("it answers");
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

/// See docs/threats.md#s4.
#[tokio::test]
async fn model_gets_key_and_agent_gets_token_only() {
    let limited = StubReply::Whole(429, vec![("retry-after", "7".to_owned())], "{\"error\":{}}".to_owned());
    let model =
        Stub::start([StubReply::said("hello"), limited, StubReply::said("by query"), StubReply::Huge(3_000_000)]).await;
    let (_broker, url, token) = broker(&format!("{}/v1/", model.url)).await;
    assert!(url.ends_with("/v1/"), "{url}");
    let ask = |path: &str| client().post(format!("{url}{path}")).json(&json!({ "prompt": "hi" }));
    let response = ask("messages?beta=true").header("x-api-key", &token).header("anthropic-beta", "a,b").send().await;
    let response = response.expect("an answer");
    assert_eq!(response.headers()["content-type"], "application/json");
    assert!(response.text().await.expect("a text").contains("hello"));
    let limited = ask("chat").bearer_auth(&token).send().await.expect("an answer");
    assert_eq!((limited.status().as_u16(), &limited.headers()["retry-after"]), (429, &HeaderValue::from_static("7")));
    ask(&format!("models/m:generate?alt=sse&key={token}")).send().await.expect("an answer");
    let huge = ask("files").header("x-goog-api-key", &token).send().await.expect("an answer");
    let bytes = huge.bytes_stream().fold(0, |sum, part| async move { sum + part.expect("a part").len() }).await;
    assert_eq!(bytes, 3_000_000);
    let requests = model.seen();
    let paths: Vec<&str> = requests.iter().map(|request| request.path.as_str()).collect();
    let by_query = format!("/v1/models/m:generate?alt=sse&key={KEY}");
    assert_eq!(paths, ["/v1/messages?beta=true", "/v1/chat", by_query.as_str(), "/v1/files"]);
    assert_eq!(
        (&requests[0].headers["x-api-key"], &requests[0].headers["anthropic-beta"]),
        (&KEY.parse().unwrap(), &"a,b".parse().unwrap())
    );
    assert_eq!(requests[1].headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(requests[3].headers["x-goog-api-key"], KEY);
    assert!(requests.iter().all(|request| request.body == json!({ "prompt": "hi" })
        && model.url.ends_with(request.headers["host"].to_str().unwrap())));
}

/// Requests without the run's token, outside of the model's address, or after the run are refused.
#[tokio::test]
async fn requests_without_token_or_outside_the_address_are_refused() {
    let model = Stub::start([]).await;
    let (broker, url, token) = broker(&format!("{}/v1", model.url)).await;
    let (other, _, others_token) = self::broker(&format!("{}/v1", model.url)).await;
    let host = url.strip_suffix("/v1").expect("the model's path");
    for (asked, key, status) in [
        (format!("{url}/messages"), "sk-guessed", 401),
        (format!("{url}/messages"), others_token.as_str(), 401),
        (format!("{url}/messages"), &token[..token.len() - 1], 401),
        (format!("{url}/messages?key=ralph-"), "", 401),
        (format!("{host}/v2/admin"), &token, 404),
        (format!("{host}/v1x"), &token, 404),
        (format!("{url}/%2e%2e/admin"), &token, 404),
        (format!("{host}//evil.example/v1"), &token, 404),
        (format!("{host}/"), &token, 404),
    ] {
        let answer = client().get(&asked).header("x-api-key", key).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), status, "{asked}");
        assert!(answer.text().await.expect("a text").contains("ralph-bot: "), "{asked}");
    }
    let large = client().post(format!("{url}/x")).bearer_auth(&token).body(vec![b' '; MAX_REQUEST + 1]);
    assert!(large.send().await.map_or(true, |answer| answer.status().as_u16() == 413), "too large");
    assert!(model.seen().is_empty(), "{:?}", model.seen());
    drop((broker, other));
    let after = client().get(format!("{url}/messages")).header("x-api-key", &token).send().await;
    // Another server may have got the port by now, or the connection may wait in the backlog of the closed listener.
    assert!(after.map_or(true, |answer| !answer.status().is_success()), "the broker ends with its run");
    assert!(model.seen().is_empty(), "{:?}", model.seen());
}

#[tokio::test]
async fn unreachable_model_is_reported_without_key() {
    let (_broker, url, token) = broker("http://127.0.0.1:1/v1").await;
    let answer = client().get(format!("{url}/models?key={token}")).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 502);
    let body = answer.text().await.expect("a text");
    assert!(body.contains("the model cannot be reached") && !body.contains(KEY), "{body}");
}
