//! Login to the dashboard: with the account of the forge, and with the token that `serve` prints.

use fake_forge::Dialect;
use ralph_bot::store::audit;
use reqwest::Method;
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::harness::viewers::{
    LoginBrowser, ViewerKind, as_viewer, dashboard, open_logins, person, prepare_logins, with_login,
};
use crate::harness::{Setup, on_both_forges, on_one_forge, prepared_story, story};

on_both_forges!(person_logs_in_with_the_forge_and_out_again);

on_one_forge!(
    printed_address_opens_the_dashboard_of_this_machine,
    form_of_an_ended_session_keeps_its_text_after_the_login,
    audit_contains_account_and_address_of_changes,
    people_get_pages_where_programs_get_texts,
    page_says_whose_commands_are_accepted,
);

/// Header that browsers send for a page.
const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");

/// A loop that stops at its limit, with logins.
fn limited() -> Setup {
    let setup = Setup::new(Dialect::Gitea).agent("echo 40 >answer.txt\n").config("limits: { iterations: 1 }");
    with_login(setup)
}

/// Decodes the entities in addresses of a page.
fn decoded(page: &str) -> String {
    page.replace("&#x2f;", "/").replace("&amp;", "&")
}

async fn form_of_an_ended_session_keeps_its_text_after_the_login(_: Dialect) {
    prepared_story(limited(), prepare_logins, async |world| {
        open_logins(world).await;
        let stopped = world.run().await;
        let mut browser = as_viewer(world, ViewerKind::Writer).await;
        let (page, csrf) = (format!("/loops/{}", stopped.id), browser.csrf());
        world.clock.advance_ms(13 * 3_600_000);
        let base = dashboard(world).to_string();
        let (origin, referer) = (base.trim_end_matches('/').to_owned(), format!("{base}loops/{}?until=3", stopped.id));
        let body = format!("csrf={csrf}&command=/ralph+resume&text=Write+42+%3Cb%3E");
        let path = format!("{page}/commands");
        let press = async |browser: &mut LoginBrowser, more: &[(&str, &str)]| {
            let mut headers = vec![BROWSER, ("origin", origin.as_str())];
            headers.extend(more);
            browser.send(Method::POST, &path, &headers, Some(body.clone())).await
        };
        let answer = press(&mut browser, &[("referer", &referer)]).await;
        assert!(answer.status == 401 && answer.header("content-type").starts_with("text/html"), "{answer:?}");
        let text = decoded(&answer.text);
        let login = format!("href=\"/login?next=%2Floops%2F{}%3Funtil%3D3\"", stopped.id);
        assert!(text.contains(&login) && text.contains("Your session has ended"), "{text}");
        assert!(text.contains("/ralph resume Write 42 &lt;b&gt;</textarea>"), "{text}");
        // Without the page's address, or with one of another site, it leads to the loop.
        for more in [vec![], vec![("referer", "https://evil.example/loops/x")]] {
            let text = decoded(&press(&mut browser, &more).await.text);
            assert!(text.contains(&format!("href=\"/login?next=%2Floops%2F{}\"", stopped.id)), "{more:?}: {text}");
            assert!(!text.contains("evil.example"), "{text}");
        }
        // A form of another site is not shown back.
        let foreign =
            browser.send(Method::POST, &path, &[BROWSER, ("origin", "https://evil.example")], Some(body.clone()));
        let foreign = foreign.await;
        assert!(foreign.status == 403 && !foreign.text.contains("Write 42"), "{foreign:?}");
        // A live page leads to the login, and from there to the page that is shown.
        let shown = format!("{origin}{page}");
        let table = [
            (shown.as_str(), format!("/login?next=%2Floops%2F{}", stopped.id)),
            ("https://evil.example/x", "/login?next=%2F".to_owned()),
            ("//evil.example/x", "/login?next=%2F".to_owned()),
        ];
        for (current, expected) in table {
            let headers = [BROWSER, ("hx-request", "true"), ("hx-current-url", current)];
            let part = browser.send(Method::GET, &page, &headers, None).await;
            assert_eq!((part.status, part.header("hx-redirect")), (401, expected.as_str()), "{current}");
        }
        // A link keeps its query.
        let read = browser.get("/search?q=answer").await;
        assert_eq!((read.status, read.location()), (303, "/login?next=%2Fsearch%3Fq%3Danswer"), "{read:?}");
        let next = format!("?next=%2Floops%2F{}%3Funtil%3D3", stopped.id);
        let back = browser.log_in_to(ViewerKind::Writer.login(), &next).await;
        assert_eq!(back.location(), format!("{page}?until=3"));
        world.settle().await;
        assert_eq!(world.the_loop().await.version, stopped.version, "nothing was changed");
    })
    .await;
}

async fn audit_contains_account_and_address_of_changes(_: Dialect) {
    prepared_story(limited(), prepare_logins, async |world| {
        open_logins(world).await;
        let stopped = world.run().await;
        let mut writer = as_viewer(world, ViewerKind::Writer).await;
        let mut operator = as_viewer(world, ViewerKind::Operator).await;
        let headers = writer.page_headers();
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let wish = serde_json::json!({ "name": "ci", "scope": "write", "days": 1 }).to_string();
        let made = writer.send(Method::POST, "/api/v1/tokens", &headers, Some(wish)).await;
        let made: Value = serde_json::from_str(&made.text).expect("JSON");
        let bearer = format!("Bearer {}", made["token"].as_str().expect("a token"));
        let command = format!("/loops/{}/commands", stopped.id);
        let refused =
            writer.send(Method::POST, &command, &[("origin", "https://evil.example")], Some(String::new())).await;
        assert_eq!(refused.status, 403);
        assert_eq!(writer.post("/backends/mine/enable", "").await.status, 403);
        assert_eq!(operator.post("/backends/mine/enable", "").await.status, 303);
        // By a program, which a read needs no row for.
        let mut program = LoginBrowser::new(world);
        let by_token = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        assert_eq!(program.send(Method::GET, "/api/v1/loops", &by_token, None).await.status, 200);
        let path = format!("/api/v1{command}");
        let given = program.send(Method::POST, &path, &by_token, Some(r#"{"command":"/ralph abort"}"#.to_owned()));
        tokio::pin!(given);
        let given = loop {
            tokio::select! {
                given = &mut given => break given,
                () = tokio::time::sleep(std::time::Duration::from_millis(20)) => world.settle().await,
            }
        };
        assert_eq!(given.status, 200, "{given:?}");
        let rows: Value = serde_json::from_str(&operator.get("/api/v1/audit?limit=7").await.text).expect("JSON");
        assert_eq!(rows["next"], Value::Null);
        let rows: Vec<String> = rows["changes"]
            .as_array()
            .expect("rows")
            .iter()
            .rev()
            .map(|row| {
                assert_eq!(
                    (row["forge"].as_str(), row["address"].as_str()),
                    (Some("forge"), Some("127.0.0.1")),
                    "{row}"
                );
                let login = row["login"].as_str().unwrap_or_default();
                let kind = ViewerKind::ALL.into_iter().find(|kind| kind.login() == login).expect("a person");
                assert_eq!(row["account_id"], person(world, kind).id.0, "{row}");
                let token = row["token"].as_str().map(|name| format!(" {name}")).unwrap_or_default();
                let of = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
                format!("{login} {}{token} {} {} {}", of("via"), of("method"), of("path"), row["status"])
            })
            .collect();
        let expected = [
            "wanda login GET /login 303".to_owned(),
            "oscar login GET /login 303".to_owned(),
            "wanda session POST /api/v1/tokens 201".to_owned(),
            format!("wanda session POST {command} 403"),
            "wanda session POST /backends/mine/enable 403".to_owned(),
            "oscar session POST /backends/mine/enable 303".to_owned(),
            format!("wanda personal token ci POST {path} 200"),
        ];
        assert_eq!(rows, expected);
        let page = decoded(&operator.get("/audit").await.text);
        for word in
            ["127.0.0.1", "personal token ci", &path, &format!("forge:{}", person(world, ViewerKind::Writer).id.0)]
        {
            assert!(page.contains(word), "{word}: {page}");
        }
        let older: Value = serde_json::from_str(&operator.get("/api/v1/audit?limit=2").await.text).expect("JSON");
        let next = older["next"].as_i64().expect("more");
        let older = operator.get(&format!("/api/v1/audit?cursor={next}")).await.text;
        assert_eq!(older.matches("\"id\":").count(), 5, "{older}");
        assert_eq!(operator.get("/api/v1/audit?limit=0").await.status, 400);
        // The loop's own log says who, and that it was the API.
        let id = stopped.id.clone();
        let trail = world.engine().store.read(move |c| audit::trail(c, &id)).await.expect("a trail");
        let who = person(world, ViewerKind::Writer);
        let reason = format!("wanda (id {}) gave the command `abort` by the API with the token \"ci\"", who.id.0);
        assert!(trail.iter().any(|line| line.entry.reason == reason), "{trail:#?}");
    })
    .await;
}

async fn people_get_pages_where_programs_get_texts(_: Dialect) {
    prepared_story(limited(), prepare_logins, async |world| {
        open_logins(world).await;
        let stopped = world.run().await;
        let mut writer = as_viewer(world, ViewerKind::Writer).await;
        let command = format!("/loops/{}/commands", stopped.id);
        let origin = dashboard(world).origin().ascii_serialization();
        let same_origin = ("origin", origin.as_str());
        let table: [(Method, &str, &[(&str, &str)], u16, &str); 4] = [
            (Method::GET, "/nothing/here", &[], 404, "There is no page at this address."),
            (Method::POST, &command, &[same_origin], 403, "go back, reload the page and try again."),
            (
                Method::POST,
                &command,
                &[("origin", "https://evil.example")],
                403,
                "This change comes from a page of another site.",
            ),
            (Method::GET, "/loops/r-9-zzzzzz", &[], 404, "This page does not exist, or you may not see it."),
        ];
        for (method, path, headers, status, words) in table {
            let body = (method == Method::POST).then(|| "csrf=wrong&command=x".to_owned());
            let mut all = vec![BROWSER];
            all.extend(headers);
            let page = writer.send(method.clone(), path, &all, body.clone()).await;
            assert_eq!(
                (page.status, page.header("content-type")),
                (status, "text/html; charset=utf-8"),
                "{path}: {page:?}"
            );
            assert!(
                page.text.contains(words) && page.text.contains("href=\"&#x2f;\">All loops"),
                "{path}: {}",
                page.text
            );
            assert!(page.header("content-security-policy").contains("default-src 'none'"), "{path}");
            if !path.starts_with("/loops/r-9") {
                let text = writer.send(method, path, headers, body).await;
                assert_eq!(text.status, status, "{path}");
                assert!(text.header("content-type").starts_with("text/plain"), "{path}: {text:?}");
            }
        }
        // An error of a command leads back to its loop.
        let mut operator = as_viewer(world, ViewerKind::Operator).await;
        let denied = operator.post(&command, "command=/ralph abort").await;
        let back = format!("href=\"/loops/{}\">Back to the loop", stopped.id);
        assert!(denied.status == 403 && decoded(&denied.text).contains(&back), "{denied:?}");
        // Too many attempts.
        let mut guessing = LoginBrowser::new(world);
        for _ in 0..20 {
            guessing.send(Method::GET, "/", &[("authorization", "Bearer wrong")], None).await;
        }
        let waits = guessing.send(Method::GET, "/login/start/forge", &[BROWSER], None).await;
        assert_eq!((waits.status, waits.header("content-type")), (429, "text/html; charset=utf-8"), "{waits:?}");
        assert!(
            waits.text.contains("Too many failed attempts") && !waits.header("retry-after").is_empty(),
            "{waits:?}"
        );
    })
    .await;
}

async fn page_says_whose_commands_are_accepted(_: Dialect) {
    prepared_story(limited(), prepare_logins, async |world| {
        open_logins(world).await;
        let stopped = world.run().await;
        for (kind, presses) in [(ViewerKind::Reader, false), (ViewerKind::Operator, false), (ViewerKind::Writer, true)]
        {
            let page = as_viewer(world, kind).await.get(&format!("/loops/{}", stopped.id)).await.text;
            assert_eq!(
                page.contains("Commands are accepted from people with write access."),
                !presses,
                "{kind:?}: {page}"
            );
            assert!(!page.contains("You need write access"), "{page}");
        }
    })
    .await;
}

async fn person_logs_in_with_the_forge_and_out_again(dialect: Dialect) {
    prepared_story(with_login(Setup::new(dialect)), prepare_logins, async |world| {
        open_logins(world).await;
        let mut browser = LoginBrowser::new(world);
        let shown = browser.get("/login?next=/loops/7").await;
        assert!(
            shown.status == 200 && shown.text.replace("&#x2f;", "/").contains("/login/start/forge?next=%2Floops%2F7"),
            "{shown:?}"
        );
        assert!(!shown.text.contains("name=\"token\""), "there is no token where there is a login");
        let page = browser.begin("?next=/loops/7").await;
        assert!(page.contains("code_challenge_method=S256"), "{page}");
        let scope =
            url::Url::parse(&page).unwrap().query_pairs().find(|(key, _)| key == "scope").map(|(_, v)| v.into_owned());
        assert_eq!(scope.as_deref(), (dialect == Dialect::Gitea).then_some("read:user"), "nothing can be written");
        let back = browser.answer(&page, ViewerKind::Reader.login()).await;
        let ended = browser.get(&back).await;
        assert_eq!((ended.status, ended.location()), (303, "/loops/7"), "{ended:?}");
        assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["ralph-session"], "the login's cookie is gone");
        assert!(browser.is_logged_in().await);
        assert_eq!(world.forge.with(|state| state.logins.tokens_given), 1);
        // The token of the person was used once and is nowhere.
        let tokens: Vec<String> = world.forge.with(|state| state.tokens.keys().cloned().collect());
        let token = tokens.iter().find(|token| token.starts_with("login-")).expect("a token");
        let asked = world
            .forge
            .requests()
            .iter()
            .filter(|request| request.path.ends_with("/user") && request.authenticated)
            .count();
        assert!(asked >= 1, "whose it is");
        world.engine().store.backup(world.folder.path().join("copy.db")).await.expect("a copy");
        let copy = std::fs::read(world.folder.path().join("copy.db")).expect("read");
        let held = browser.cookies["ralph-session"].clone();
        for secret in [token.as_str(), held.as_str()] {
            assert!(!copy.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret} is in the database");
        }
        let before = browser.clone();
        let logout_answer = browser.post("/logout", "").await;
        assert_eq!((logout_answer.status, logout_answer.location()), (303, "/login"), "{logout_answer:?}");
        world.settle().await;
        assert!(browser.cookies.is_empty() && !before.clone().is_logged_in().await, "the cookie is of no more use");
    })
    .await;
}

async fn printed_address_opens_the_dashboard_of_this_machine(dialect: Dialect) {
    story(Setup::new(dialect), async |world| {
        let link = world.app().dashboard.as_ref().expect("a dashboard").link();
        let link = link.expose_secret();
        assert!(link.starts_with("http://127.0.0.1:") && link.contains("/login?token="), "{link}");
        let mut browser = LoginBrowser::new(world);
        let opened = browser.get(link).await;
        assert_eq!((opened.status, opened.location()), (303, "/"), "an address without the token");
        assert!(browser.is_logged_in().await);
        let cookie = opened.header("set-cookie");
        assert!(cookie.ends_with("; HttpOnly; SameSite=Lax") && cookie.contains("; Path=/; "), "{cookie}");
        // The same by a form.
        let token = link.split("token=").nth(1).expect("a token").to_owned();
        let mut other = LoginBrowser::new(world);
        let wrong = other.post("/login", "token=wrong").await;
        assert!(
            wrong.status == 403 && wrong.text.contains("not the token") && !other.is_logged_in().await,
            "{wrong:?}"
        );
        let right = other.post("/login", &format!("token={token}&next=/backends")).await;
        assert_eq!((right.status, right.location()), (303, "/backends"), "{right:?}");
        // A program sends it with each request.
        let bearer = format!("Bearer {token}");
        let mut program = LoginBrowser::new(world);
        let answer = program.send(reqwest::Method::POST, "/logout", &[("authorization", bearer.as_str())], None).await;
        assert_eq!(answer.status, 303, "no form, no value of a form: {answer:?}");
        world.settle().await;
        let wrong = program.send(reqwest::Method::POST, "/logout", &[("authorization", "Bearer x")], None).await;
        assert_eq!((wrong.status, wrong.header("www-authenticate")), (401, "Bearer"), "{wrong:?}");
    })
    .await;
}
