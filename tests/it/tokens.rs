//! Personal tokens: created, used and revoked by the API and by the page, and refused requests.

use fake_forge::Dialect;
use ralph_bot::domain::model::ids::Timestamp;
use ralph_bot::store::tokens::{self, ApiScope, MAX_TOKENS, TokenOwner, TokenRequest};
use regex::Regex;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::dashboard::ServedPages;
use crate::harness::viewers::{
    LoginBrowser, ViewerKind, as_viewer, dashboard, open_logins, person, prepare_logins, repo_ref, with_login,
};
use crate::harness::{Setup, World, on_one_forge, prepared_story, story};

on_one_forge!(
    session_makes_a_token_that_programs_use,
    request_for_a_token_that_is_not_valid_is_refused,
    number_of_tokens_is_limited,
    session_that_ended_makes_no_token,
    token_of_somebody_else_cannot_be_revoked,
    page_shows_a_new_token_once,
    page_explains_an_invalid_request,
);

async fn login_story(dialect: Dialect, scenario: impl AsyncFnOnce(&mut World)) {
    prepared_story(with_login(Setup::new(dialect)), prepare_logins, async |world| {
        open_logins(world).await;
        scenario(world).await;
        world.settle().await;
    })
    .await;
}

/// Sends a request to the API with a browser's cookies; `csrf` is the value of its forms, if it sends one.
async fn ask(
    world: &World,
    browser: &LoginBrowser,
    (method, path): (Method, &str),
    csrf: Option<&str>,
    body: Option<&Value>,
) -> (u16, Value) {
    let base = dashboard(world);
    let cookies: Vec<String> = browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let address = base.join(&format!("/api/v1{path}")).expect("an address");
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut request = client.request(method, address).header("cookie", cookies.join("; "));
    request = request.header("origin", base.origin().ascii_serialization()).header("sec-fetch-site", "same-origin");
    if let Some(csrf) = csrf {
        request = request.header("x-csrf-token", csrf);
    }
    if let Some(body) = body {
        request = request.json(body);
    }
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16();
    let text = answer.text().await.expect("a body");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Sends a request to the API with a personal token.
async fn with_token(world: &World, token: &str, (method, path): (Method, &str), body: Option<&Value>) -> (u16, Value) {
    let address = dashboard(world).join(&format!("/api/v1{path}")).expect("an address");
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut request = client.request(method, address).bearer_auth(token);
    if let Some(body) = body {
        request = request.json(body);
    }
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), serde_json::from_str(&answer.text().await.expect("a body")).unwrap_or_default())
}

const MAKE: (Method, &str) = (Method::POST, "/tokens");

async fn session_makes_a_token_that_programs_use(dialect: Dialect) {
    login_story(dialect, async |world| {
        let browser = as_viewer(world, ViewerKind::Writer).await;
        let csrf = browser.csrf();
        let wish = json!({ "name": " ci ", "scope": "read", "days": 7 });
        let (status, made) = ask(world, &browser, MAKE, Some(&csrf), Some(&wish)).await;
        assert_eq!(status, 201, "{made}");
        let token = made["token"].as_str().expect("a token").to_owned();
        assert!(token.starts_with("ralph_") && token.len() == 70, "{made}");
        assert_eq!((&made["info"]["name"], &made["info"]["scope"]), (&json!("ci"), &json!("read")), "{made}");
        let (status, account) = with_token(world, &token, (Method::GET, "/me"), None).await;
        assert!(status == 200 && account.to_string().contains("wanda"), "{status} {account}");
        // It makes no other token, and a token that reads changes nothing.
        let (status, refused) = with_token(world, &token, MAKE, Some(&json!({ "name": "more" }))).await;
        assert_eq!(status, 403, "{refused}");
        let (status, listed) = ask(world, &browser, (Method::GET, "/tokens"), None, None).await;
        assert_eq!((status, listed["tokens"].as_array().map(Vec::len)), (200, Some(1)), "{listed}");
        assert!(!listed.to_string().contains(&token) && listed["tokens"][0]["used_at"].is_string(), "{listed}");
        let path = format!("/tokens/{}", made["info"]["id"]);
        assert_eq!(ask(world, &browser, (Method::DELETE, &path), Some(&csrf), None).await.0, 204);
        assert_eq!(ask(world, &browser, (Method::DELETE, &path), Some(&csrf), None).await.0, 404);
        assert_eq!(with_token(world, &token, (Method::GET, "/me"), None).await.0, 401);
        // Without scope and days, it reads for ninety days.
        let (_, made) = ask(world, &browser, MAKE, Some(&csrf), Some(&json!({ "name": "short" }))).await;
        let expires = world.clock.now().plus_ms(90 * 86_400_000);
        let expires = jiff::Timestamp::from_millisecond(expires.0).expect("a time").to_string();
        assert_eq!((&made["info"]["scope"], &made["info"]["expires_at"]), (&json!("read"), &json!(expires)), "{made}");
    })
    .await;
}

async fn request_for_a_token_that_is_not_valid_is_refused(dialect: Dialect) {
    login_story(dialect, async |world| {
        let browser = as_viewer(world, ViewerKind::Writer).await;
        let csrf = browser.csrf();
        let good = json!({ "name": "ci" });
        for wrong in [None, Some(""), Some("x"), Some(&csrf[1..])] {
            let (status, answer) = ask(world, &browser, MAKE, wrong, Some(&good)).await;
            assert_eq!(status, 403, "{wrong:?}: {answer}");
        }
        let long = "x".repeat(101);
        for bad in [
            json!({ "name": "" }),
            json!({ "name": "  " }),
            json!({ "name": long }),
            json!({ "name": "a\nb" }),
            json!({ "name": "a", "days": 0 }),
            json!({ "name": "a", "days": 367 }),
            json!({ "name": "a", "days": -1 }),
            json!({ "name": "a", "scope": "all" }),
            json!({ "name": "a", "owner": "olga" }),
            json!({}),
        ] {
            let (status, answer) = ask(world, &browser, MAKE, Some(&csrf), Some(&bad)).await;
            assert!(matches!(status, 400 | 422) && answer["action"].is_string(), "{bad}: {status} {answer}");
        }
        let (_, listed) = ask(world, &browser, (Method::GET, "/tokens"), None, None).await;
        assert_eq!(listed["tokens"], json!([]), "nothing was made");
        let nobody = LoginBrowser::new(world);
        assert_eq!(ask(world, &nobody, MAKE, Some(&csrf), Some(&good)).await.0, 401);
    })
    .await;
}

/// Adds tokens of a viewer to the database.
async fn add_tokens(world: &World, kind: ViewerKind, count: usize) {
    let owner = TokenOwner { account: Some((repo_ref(world).forge, person(world, kind))), operator: false };
    let now = world.clock.now();
    let added = world.engine().store.write(move |c| {
        for nth in 0..count {
            let request = TokenRequest {
                name: format!("token {nth}"),
                owner: owner.clone(),
                scope: ApiScope::Read,
                expires_at: Timestamp(i64::MAX),
            };
            tokens::add(c, &request, &[nth as u8; 32], "abcd", now)?;
        }
        Ok(())
    });
    added.await.expect("stored");
}

async fn number_of_tokens_is_limited(dialect: Dialect) {
    login_story(dialect, async |world| {
        let mut browser = as_viewer(world, ViewerKind::Writer).await;
        add_tokens(world, ViewerKind::Writer, MAX_TOKENS).await;
        let wish = json!({ "name": "one more" });
        let (status, answer) = ask(world, &browser, MAKE, Some(&browser.csrf()), Some(&wish)).await;
        assert!(
            status == 409 && answer["detail"].as_str().is_some_and(|detail| detail.contains("maximum")),
            "{answer}"
        );
        let answer = browser.post("/tokens", "name=more&scope=read&days=1").await;
        assert!(answer.status == 422 && answer.text.contains("which is the maximum"), "{answer:?}");
        let shown = browser.get("/tokens").await;
        assert_eq!(shown.text.matches(">Revoke<").count(), MAX_TOKENS, "{}", shown.text);
        assert!(shown.text.len() < 100 * 1024, "{} bytes", shown.text.len());
        assert_eq!(browser.post("/tokens/1/revoke", "").await.status, 303);
        assert_eq!(ask(world, &browser, MAKE, Some(&browser.csrf()), Some(&wish)).await.0, 201);
    })
    .await;
}

async fn session_that_ended_makes_no_token(dialect: Dialect) {
    login_story(dialect, async |world| {
        let mut browser = as_viewer(world, ViewerKind::Writer).await;
        let csrf = browser.csrf();
        world.clock.advance_ms(13 * 3_600_000);
        assert_eq!(ask(world, &browser, MAKE, Some(&csrf), Some(&json!({ "name": "late" }))).await.0, 401);
        let answer = browser.post("/tokens", "name=late&scope=read&days=1").await;
        assert!(matches!(answer.status, 303 | 401), "{answer:?}");
        let mut again = as_viewer(world, ViewerKind::Writer).await;
        assert!(again.get("/tokens").await.text.contains("None."), "nothing was made");
    })
    .await;
}

async fn token_of_somebody_else_cannot_be_revoked(dialect: Dialect) {
    login_story(dialect, async |world| {
        let owner = as_viewer(world, ViewerKind::Writer).await;
        let mut other = as_viewer(world, ViewerKind::OtherWriter).await;
        let mut operator = as_viewer(world, ViewerKind::Operator).await;
        let (_, made) = ask(world, &owner, MAKE, Some(&owner.csrf()), Some(&json!({ "name": "ci" }))).await;
        let id = made["info"]["id"].as_i64().expect("a number");
        for foreign in [&mut other, &mut operator] {
            let path = format!("/tokens/{id}");
            assert_eq!(ask(world, foreign, (Method::DELETE, &path), Some(&foreign.csrf()), None).await.0, 404);
            assert_eq!(foreign.post(&format!("/tokens/{id}/revoke"), "").await.status, 404);
            assert!(!foreign.get("/tokens").await.text.contains(">ci<"), "it is not listed");
        }
        let token = made["token"].as_str().expect("a token");
        assert_eq!(with_token(world, token, (Method::GET, "/me"), None).await.0, 200);
        assert_eq!(ask(world, &owner, (Method::DELETE, "/tokens/x"), Some(&owner.csrf()), None).await.0, 404);
    })
    .await;
}

async fn page_shows_a_new_token_once(dialect: Dialect) {
    login_story(dialect, async |world| {
        let mut browser = as_viewer(world, ViewerKind::Writer).await;
        let answer = browser.post("/tokens", "name=a+%3Cb%3E+c&scope=write&days=30").await;
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.header("cache-control"), "no-store");
        let found = Regex::new("ralph_[0-9a-f]{64}").expect("pattern");
        let token = found.find(&answer.text).expect("the token is shown").as_str().to_owned();
        assert_eq!(with_token(world, &token, (Method::GET, "/me"), None).await.0, 200);
        let shown = browser.get("/tokens").await;
        assert!(!found.is_match(&shown.text) && shown.text.contains("a &lt;b&gt; c"), "{}", shown.text);
        assert!(shown.text.contains("read and write") && shown.text.contains(&token[66..]), "{}", shown.text);
        let path = Regex::new("action=\"(/tokens/[0-9]+/revoke)\"").expect("pattern");
        let path = path.captures(&shown.text).expect("a form")[1].to_owned();
        assert_eq!(browser.send(Method::POST, &path, &[], Some(String::new())).await.status, 403, "without its value");
        assert_eq!(with_token(world, &token, (Method::GET, "/me"), None).await.0, 200);
        let revoked = browser.post(&path, "").await;
        assert_eq!((revoked.status, revoked.location()), (303, "/tokens"));
        assert!(browser.get("/tokens").await.text.contains(">revoked<"));
        assert_eq!(with_token(world, &token, (Method::GET, "/me"), None).await.0, 401);
        // Pages accept no personal token, and do not redirect to the login.
        let address = dashboard(world).join("/tokens").expect("an address");
        let answer = reqwest::Client::new().get(address).bearer_auth(&token).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 401);
        assert_eq!(LoginBrowser::new(world).get("/tokens").await.status, 303);
    })
    .await;
}

async fn page_explains_an_invalid_request(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let pages = ServedPages::of(world, false).await;
        for (fields, says) in [
            ([("name", ""), ("scope", "read"), ("days", "7")], "1 to 100 characters"),
            ([("name", "kept"), ("scope", "admin"), ("days", "7")], "read or write"),
            ([("name", "kept"), ("scope", "write"), ("days", "400")], "from 1 to 366"),
            ([("name", "kept"), ("scope", "write"), ("days", "soon")], "from 1 to 366"),
        ] {
            let answer = pages.post("/tokens", &fields).await;
            assert!(
                answer.status == 422 && answer.body.contains(says),
                "{fields:?}: {} {}",
                answer.status,
                answer.body
            );
            assert!(fields[0].1.is_empty() || answer.body.contains("value=\"kept\""), "{}", answer.body);
        }
        assert_eq!(pages.post("/tokens", &[("name", "ci"), ("scope", "read"), ("days", "7")]).await.status, 201);
        assert_eq!(pages.post("/tokens/99/revoke", &[]).await.status, 404);
        assert_eq!(pages.post("/tokens/x/revoke", &[]).await.status, 400);
    })
    .await;
}
