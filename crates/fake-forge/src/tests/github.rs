//! Tests of GitHub features: signatures of Apps, token scopes, ETags, rate limits, GraphQL, delivery ids.

use jsonwebtoken::EncodingKey;

use super::*;

fn signature(made: &AppCredentials, issuer: u64, issued_s: i64, ends_s: i64) -> String {
    let key = EncodingKey::from_rsa_pem(made.private_key_pem.as_bytes()).unwrap();
    let claims = json!({"iat": issued_s, "exp": ends_s, "iss": issuer.to_string()});
    jwt_ring::encode(&claims, &key).unwrap()
}

/// Sends a request with a credential; returns status, headers and JSON.
async fn ask(world: &FakeForgeWorld, bearer: &str, method: &str, path: &str, body: Value) -> (u16, HeaderMap, Value) {
    let url = format!("{}{path}", world.forge.api_url());
    let mut request = world.client.request(method.parse().unwrap(), url).bearer_auth(bearer);
    if !body.is_null() {
        request = request.json(&body);
    }
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    (status, headers, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Value::Null))
}

fn now_s(world: &FakeForgeWorld) -> i64 {
    world.forge.core.clock.now().0 / 1000
}

#[tokio::test]
async fn signatures_are_checked_for_key_time_and_app() {
    let world = world(Dialect::GitHub).await;
    let made = world.forge.add_app("ralph", &[("issues", "write")], &[], "", "");
    let (now, id) = (now_s(&world), made.app_id);
    let good = signature(&made, id, now - 60, now + 480);
    let mut forged = good.clone();
    forged.replace_range(good.len() - 8..good.len() - 4, "AAAA");
    for (bearer, expected, words) in [
        (good, 200, ""),
        (forged, 401, "could not be decoded"),
        (signature(&made, id, now + 120, now + 480), 401, "'Issued at'"),
        (signature(&made, id, now - 700, now - 1), 401, "'Expiration time'"),
        (signature(&made, id, now - 60, now + 3_600), 401, "too far in the future"),
        (signature(&made, 5, now - 60, now + 480), 404, "Integration not found"),
    ] {
        let (status, _, body) = ask(&world, &bearer, "GET", "app", Value::Null).await;
        let message = body["message"].as_str().unwrap_or_default();
        assert!(status == expected && message.contains(words), "{status} {body}, expected {expected} {words:?}");
    }
}

#[tokio::test]
async fn tokens_are_limited_to_their_scope() {
    let world = world(Dialect::GitHub).await;
    let other = world.forge.create_repo("acme", "other", &[("a", "a", false)]).await.unwrap();
    world.forge.open_issue(&world.outsider, world.repo, "x", "", &[]).await.unwrap();
    let made = world.forge.add_app("ralph", &[("issues", "write"), ("contents", "read")], &[], "", "");
    let signed = signature(&made, made.app_id, now_s(&world) - 60, now_s(&world) + 480);
    let tokens = format!("app/installations/{}/access_tokens", made.installation);
    let wanted = json!({"repository_ids": [world.repo.0], "permissions": {"issues": "read"}});
    let (status, _, minted) = ask(&world, &signed, "POST", &tokens, wanted).await;
    assert_eq!((status, &minted["repository_selection"]), (201, &json!("selected")), "{minted}");
    let token = minted["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("ghs_") && token.len() == 40);
    let comment = json!({"body": "hi"});
    for (method, path, body, expected) in [
        ("GET", "repos/acme/app/issues/1", Value::Null, 200),
        ("POST", "repos/acme/app/issues/1/comments", comment, 403),
        ("GET", "repos/acme/app/branches/main", Value::Null, 403),
        ("GET", "repos/acme/app/hooks", Value::Null, 403),
        ("GET", "repos/acme/other/issues", Value::Null, 404),
        ("GET", "user", Value::Null, 403),
    ] {
        let (status, _, answer) = ask(&world, &token, method, path, body).await;
        assert_eq!(status, expected, "{method} {path}: {answer}");
    }
    for (wanted, words) in [
        (json!({"permissions": {"contents": "write"}}), "permissions requested"),
        (json!({"repository_ids": [5]}), "at least one repository"),
    ] {
        let (status, _, answer) = ask(&world, &signed, "POST", &tokens, wanted).await;
        assert!(status == 422 && answer.to_string().contains(words), "{status} {answer}");
    }
    let (_, _, all) = ask(&world, &token, "GET", "installation/repositories", Value::Null).await;
    assert_eq!((&all["total_count"], &all["repositories"][0]["id"]), (&json!(1), &json!(world.repo.0)));
    world.forge.core.clock.advance_ms(3_600_000);
    let (status, _, answer) = ask(&world, &token, "GET", "repos/acme/app/issues/1", Value::Null).await;
    assert_eq!((status, answer["message"].as_str()), (401, Some("Bad credentials")));
    assert!(world.forge.with(|state| state.repo(other).is_ok()));
}

#[tokio::test]
async fn responses_have_etag_date_and_quota() {
    let world = world(Dialect::GitHub).await;
    let url = format!("{}repos/acme/app", world.forge.api_url());
    let get = |tag: Option<String>| {
        let mut request = world.client.get(&url).bearer_auth(world.forge.token_for(&world.bot));
        if let Some(tag) = tag {
            request = request.header("if-none-match", tag);
        }
        async move { request.send().await.unwrap() }
    };
    let first = get(None).await;
    assert_eq!(first.headers()["date"], "Tue, 14 Nov 2023 22:13:20 GMT");
    assert_eq!(first.headers()["x-ratelimit-remaining"], "14999");
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    let second = get(Some(tag.clone())).await;
    assert_eq!((second.status().as_u16(), second.headers()["x-ratelimit-remaining"].to_str().unwrap()), (304, "14998"));
    world.forge.with(|state| state.repo_mut(world.repo).unwrap().archived = true);
    assert_eq!(get(Some(tag)).await.status(), 200);
    world.forge.with(|state| state.quota.values_mut().for_each(|quota| quota.0 = 0));
    let refused = get(None).await;
    assert_eq!((refused.status().as_u16(), refused.headers()["x-ratelimit-remaining"].to_str().unwrap()), (403, "0"));
    world.forge.core.clock.advance_ms(3_600_000);
    assert_eq!(get(None).await.status(), 200, "the next hour has a quota of its own");
}

#[tokio::test]
async fn refusals_have_githubs_format() {
    let world = world(Dialect::GitHub).await;
    world.forge.open_issue(&world.outsider, world.repo, "x", "", &[]).await.unwrap();
    world.forge.delete_issue(&world.maintainer, world.repo, Number(1)).await.unwrap();
    let label = json!({"name": "bug", "color": "ff0000"});
    assert_eq!(world.as_bot("POST", "repos/acme/app/labels", label.clone()).await.0, 201);
    let empty = json!({"title": "x", "head": "main", "base": "main"});
    for (method, path, body, expected, words) in [
        ("POST", "repos/acme/app/labels", label, 422, "already_exists"),
        ("GET", "repos/acme/app/issues/1", Value::Null, 410, "deleted"),
        ("GET", "repos/acme/app/issues/2", Value::Null, 404, "Not Found"),
        ("POST", "repos/acme/app/issues", json!({"title": "x", "body": "y".repeat(65_537)}), 422, "too long"),
        ("POST", "repos/acme/app/pulls", empty, 422, "Validation Failed"),
        ("POST", "../graphql", json!({"query": "{ viewer { login } }"}), 200, "undefinedField"),
        ("GET", "no/such/thing", Value::Null, 404, "Not Found"),
    ] {
        let (status, answer) = world.as_bot(method, path, body).await;
        assert!(status == expected && answer.to_string().contains(words), "{method} {path}: {status} {answer}");
    }
    world.forge.with(|state| state.rename_repo(world.maintainer.id, world.repo, "tool")).unwrap();
    let (status, moved) = world.as_bot("GET", "repos/acme/app/labels", Value::Null).await;
    assert_eq!((status, &moved[0]["name"]), (200, &json!("bug")), "a redirect leads to the new name");
}

#[tokio::test]
async fn each_label_is_delivered_separately_and_redelivery_keeps_its_id() {
    let world = world(Dialect::GitHub).await;
    let (url, received, _tasks) = receiver().await;
    let (forge, repo) = (&world.forge, world.repo);
    forge.add_hook(repo, &url, "s3cret").await.unwrap();
    let number = forge.open_issue(&world.maintainer, repo, "x", "", &["one", "two"]).await.unwrap();
    forge.unlabel(&world.maintainer, repo, number, "two").await.unwrap();
    forge.flush().await;
    let headers: Vec<HeaderMap> = received.lock().unwrap().iter().map(|(headers, _)| headers.clone()).collect();
    for headers in &headers {
        assert!(headers["x-hub-signature-256"].to_str().unwrap().starts_with("sha256="));
        assert!(!headers.contains_key("x-gitea-event") && headers.contains_key("x-github-delivery"));
    }
    let deliveries = drain(&received);
    let expected = ["ping", "issues opened", "issues labeled", "issues labeled", "issues unlabeled"];
    assert_eq!(names(&deliveries), expected);
    let labels: Vec<&Value> = deliveries[2..].iter().map(|(_, _, body)| &body["label"]["name"]).collect();
    assert_eq!(labels, ["one", "two", "two"]);
    assert_eq!(deliveries[1].2["issue"]["user"]["login"], "mia");

    let past = forge.hooks().log().pop().unwrap();
    forge.hooks().redeliver(&past);
    forge.flush().await;
    let repeated_delivery_id = received.lock().unwrap()[0].0["x-github-delivery"].to_str().unwrap().to_owned();
    assert_eq!(repeated_delivery_id, past.id);
}

#[tokio::test]
async fn manifest_code_is_exchanged_once_within_an_hour() {
    let world = world(Dialect::GitHub).await;
    let made = |name: &str| {
        let manifest = json!({
            "name": name, "url": "https://r.example.org", "redirect_url": "https://r.example.org/back",
            "hook_attributes": {"url": "https://r.example.org/webhooks/github", "active": true},
            "default_permissions": {"issues": "write"}, "default_events": ["issues"],
        });
        let manifest: crate::state::apps::FakeManifest = serde_json::from_value(manifest).unwrap();
        world.forge.with(|state| state.add_app_from(&manifest))
    };
    let exchanged =
        async |code: &str| world.ask(None, "POST", &format!("app-manifests/{code}/conversions"), Value::Null).await;
    let code = made("ralph bot").unwrap();
    assert!(made("Ralph Bot").is_err(), "names are unique");
    let (status, _, app) = exchanged(&code).await;
    assert_eq!((status, &app["slug"]), (201, &json!("ralph-bot")), "{app}");
    for field in ["id", "client_id", "client_secret", "webhook_secret", "pem", "html_url", "owner", "permissions"] {
        assert!(!app[field].is_null(), "{field}: {app}");
    }
    assert_eq!(app["installations_count"], 0);
    assert_eq!(exchanged(&code).await.0, 404, "used");
    assert_eq!(exchanged("unknown").await.0, 404);
    let late = made("late").unwrap();
    world.forge.core.clock.advance_ms(3_600_000);
    assert_eq!(exchanged(&late).await.0, 404, "expired");
}
