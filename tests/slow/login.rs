//! Login to the dashboard: refusals, ends of sessions and rights, and permitted requests.
//!
//! `pages_of_other_sites_cannot_lock_out_accounts` was seen to fail where wrong tokens in requests of other sites count.

use fake_forge::{Access, Dialect, FakeFault};
use ralph_bot::domain::model::ids::AccountKind;
use ralph_bot::domain::trust::viewer::ViewRight;
use ralph_bot::web::Viewer;
use reqwest::Method;
use secrecy::ExposeSecret;

use crate::harness::viewers::{
    LoginBrowser, ViewerKind, as_viewer, open_logins, person, prepare_logins, repo_ref, viewer, web, with_login,
};
use crate::harness::{Setup, World, on_both_forges, on_one_forge, prepared_story, story};

on_both_forges!(
    denied_login_makes_no_session,
    login_is_valid_once_and_in_its_browser_only,
    code_is_exchanged_with_its_verifier_only,
    bots_and_suspended_accounts_do_not_log_in,
    wrong_client_and_silent_forge_are_reported,
    viewers_have_the_rights_of_their_accounts,
    revoked_right_ends_within_five_minutes,
    renamed_account_has_no_right,
);

on_one_forge!(
    session_value_is_new_at_each_login,
    session_ends_by_age_and_idleness,
    change_needs_the_value_of_its_session,
    change_of_another_site_is_refused,
    login_redirects_only_to_this_server,
    unreachable_forge_gives_no_right,
    other_names_of_this_machine_are_refused,
    proxied_requests_are_refused_without_a_login,
    dashboard_uses_a_separate_address,
    wrong_tokens_are_limited,
    pages_of_other_sites_cannot_lock_out_accounts,
    failed_logins_are_limited,
    switched_off_dashboard_is_not_served,
);

async fn login_story(dialect: Dialect, scenario: impl AsyncFnOnce(&mut World)) {
    prepared_story(with_login(Setup::new(dialect)), prepare_logins, async |world| {
        open_logins(world).await;
        scenario(world).await;
        world.settle().await;
    })
    .await;
}

/// Runs a story of a dashboard without a login.
async fn local_story(setup: Setup, scenario: impl AsyncFnOnce(&mut World)) {
    story(setup, async |world| {
        scenario(world).await;
        world.settle().await;
    })
    .await;
}

/// Asserts that a login was refused and made no session.
async fn assert_refused(browser: &mut LoginBrowser, back: &str, status: u16, says: &str) {
    let answer = browser.get(back).await;
    assert!(answer.status == status && answer.text.contains(says), "{back}: {answer:?}");
    assert!(!browser.cookies.contains_key("ralph-session") && !browser.is_logged_in().await, "{back}");
    assert!(answer.header("content-security-policy").contains("default-src 'none'"), "{answer:?}");
}

/// See docs/research/threats.md#v2.
async fn denied_login_makes_no_session(dialect: Dialect) {
    login_story(dialect, async |world| {
        let mut browser = LoginBrowser::new(world);
        let page = browser.begin("").await;
        let back = browser.answer(&page, "").await;
        assert!(back.contains("error=access_denied"), "{back}");
        assert_refused(&mut browser, &back, 403, "You declined the login").await;
        assert_refused(&mut browser, &back, 403, "not valid").await;
    })
    .await;
}

/// See docs/research/threats.md#v2.
async fn login_is_valid_once_and_in_its_browser_only(dialect: Dialect) {
    login_story(dialect, async |world| {
        let (mut one, mut other) = (LoginBrowser::new(world), LoginBrowser::new(world));
        let page = one.begin("").await;
        let back = one.answer(&page, "wanda").await;
        // The address of one browser's login, opened in another browser without and with its own login.
        assert_refused(&mut other, &back, 403, "not valid").await;
        other.begin("").await;
        assert_refused(&mut other, &back, 403, "not valid").await;
        // The first browser cannot end it either: the state was used up.
        assert_refused(&mut one, &back, 403, "not valid").await;
        // Wrong, missing and doubled states.
        let page = one.begin("").await;
        let back = one.answer(&page, "wanda").await;
        let code = back.split("code=").nth(1).and_then(|rest| rest.split('&').next()).expect("a code");
        for wrong in [format!("code={code}&state=x"), format!("code={code}"), format!("code={code}&state=")] {
            one.begin("").await;
            assert_refused(&mut one, &format!("/login/callback/forge?{wrong}"), 403, "not valid").await;
        }
        // Of another forge.
        one.begin("").await;
        let elsewhere = back.replace("/callback/forge", "/callback/other");
        assert_refused(&mut one, &elsewhere, 403, "not valid").await;
        // After ten minutes.
        let page = one.begin("").await;
        let back = one.answer(&page, "wanda").await;
        world.clock.advance_ms(10 * 60_000);
        assert_refused(&mut one, &back, 403, "not valid").await;
        // Once again afterwards.
        let page = one.begin("").await;
        let back = one.answer(&page, "wanda").await;
        assert_eq!(one.get(&back).await.status, 303);
        let mut copy = LoginBrowser::new(world);
        copy.begin("").await;
        assert_refused(&mut copy, &back, 403, "not valid").await;
    })
    .await;
}

/// A code of another account in a login that the browser started itself. See docs/research/threats.md#v2.
async fn code_is_exchanged_with_its_verifier_only(dialect: Dialect) {
    login_story(dialect, async |world| {
        let (mut victim, mut thief) = (LoginBrowser::new(world), LoginBrowser::new(world));
        let page = victim.begin("").await;
        let stolen = victim.answer(&page, "wanda").await;
        let code = |back: &str| {
            url::Url::parse(back).unwrap().query_pairs().find(|(key, _)| key == "code").unwrap().1.into_owned()
        };
        let page = thief.begin("").await;
        let own = thief.answer(&page, "olga").await;
        let forged = own.replace(&code(&own), &code(&stolen));
        assert_refused(&mut thief, &forged, 403, "not valid").await;
        assert_eq!(world.forge.with(|state| state.logins.tokens_given), 0, "the forge gave no token");
        // A page without a challenge cannot be had from the service.
        let page = thief.begin("").await;
        assert!(page.contains("code_challenge=") && page.contains("code_challenge_method=S256"), "{page}");
    })
    .await;
}

async fn bots_and_suspended_accounts_do_not_log_in(dialect: Dialect) {
    login_story(dialect, async |world| {
        let mut browser = LoginBrowser::new(world);
        let page = browser.begin("").await;
        let back = browser.answer(&page, "ralph-bot").await;
        assert_refused(&mut browser, &back, 403, "only people can log in").await;
        if dialect == Dialect::GitHub {
            world.forge.add_user("triage-ai", AccountKind::Bot);
            let page = browser.begin("").await;
            let back = browser.answer(&page, "triage-ai").await;
            assert_refused(&mut browser, &back, 403, "only people can log in").await;
        }
        let page = browser.begin("").await;
        let back = browser.answer(&page, "wanda").await;
        world.forge.suspend_account(&person(world, ViewerKind::Writer), true);
        assert_refused(&mut browser, &back, 403, "suspended").await;
    })
    .await;
}

async fn wrong_client_and_silent_forge_are_reported(dialect: Dialect) {
    login_story(dialect, async |world| {
        let mut browser = LoginBrowser::new(world);
        let page = browser.begin("").await;
        let back = browser.answer(&page, "wanda").await;
        let secret = world.forge.with(|state| std::mem::replace(&mut state.logins.apps[0].secret, "changed".into()));
        assert_refused(&mut browser, &back, 503, "does not accept the service as a client").await;
        world.forge.with(|state| state.logins.apps[0].secret = secret);
        for (method, path) in [("POST", "access_token$"), ("GET", "/user$")] {
            let page = browser.begin("").await;
            let back = browser.answer(&page, "wanda").await;
            world.forge.faults().next(1, method, path, FakeFault::status(502)).expect("a pattern");
            assert_refused(&mut browser, &back, 503, "could not query").await;
        }
        assert_eq!(browser.log_in("wanda").await.status, 303, "and afterwards it succeeds");
    })
    .await;
}

async fn viewers_have_the_rights_of_their_accounts(dialect: Dialect) {
    login_story(dialect, async |world| {
        use ViewRight::{None, Operate, Read, Write};
        let (access, engine, repo) = (&web(world).access, world.engine(), repo_ref(world));
        let table = [
            (ViewerKind::Reader, Read, Read),
            (ViewerKind::Writer, Write, Write),
            (ViewerKind::OtherWriter, None, None),
            (ViewerKind::Nobody, None, None),
            (ViewerKind::Operator, Operate, Read),
        ];
        for (kind, view, change) in table {
            let viewer = viewer(world, kind);
            let rights =
                (access.right(engine, &viewer, &repo, false).await, access.right(engine, &viewer, &repo, true).await);
            assert_eq!(rights, (view, change), "{kind:?}");
        }
        let token = Viewer::of_token();
        assert_eq!(access.right(engine, &token, &repo, true).await, Operate, "the operator's token");
        // The same id on another forge is somebody else.
        let mut elsewhere = viewer(world, ViewerKind::Writer);
        elsewhere.account.as_mut().expect("an account").0 = ralph_bot::domain::model::ids::ForgeName::new("other");
        assert_eq!(access.right(engine, &elsewhere, &repo, false).await, None);
    })
    .await;
}

/// See docs/research/threats.md#v6.
async fn revoked_right_ends_within_five_minutes(dialect: Dialect) {
    login_story(dialect, async |world| {
        let (access, engine, repo) = (&web(world).access, world.engine(), repo_ref(world));
        let writer = viewer(world, ViewerKind::Writer);
        let minutes = |minutes: i64| world.clock.advance_ms(minutes * 60_000);
        assert_eq!(access.right(engine, &writer, &repo, false).await, ViewRight::Write);
        world.forge.grant(world.repo, &person(world, ViewerKind::Writer), Access::None).expect("revoked");
        minutes(3);
        assert_eq!(
            access.right(engine, &writer, &repo, false).await,
            ViewRight::Write,
            "the answer is three minutes old"
        );
        assert!(access.may_go_on(engine, &writer, Some(&repo), ViewRight::Write).await);
        minutes(1);
        assert!(!access.may_go_on(engine, &writer, Some(&repo), ViewRight::Read).await, "an open stream ends");
        assert_eq!(access.right(engine, &writer, &repo, false).await, ViewRight::None);
        // A change asks at once.
        world.forge.grant(world.repo, &person(world, ViewerKind::Writer), Access::Write).expect("granted");
        assert_eq!(access.right(engine, &writer, &repo, true).await, ViewRight::Write);
        world.forge.grant(world.repo, &person(world, ViewerKind::Writer), Access::Read).expect("granted");
        assert_eq!(access.right(engine, &writer, &repo, true).await, ViewRight::Read);
        assert_eq!(access.right(engine, &writer, &repo, false).await, ViewRight::Read, "which is known to views, too");
    })
    .await;
}

/// A released login name belongs to another account: the numeric id counts.
async fn renamed_account_has_no_right(dialect: Dialect) {
    login_story(dialect, async |world| {
        let (access, engine, repo) = (&web(world).access, world.engine(), repo_ref(world));
        let mut reused = viewer(world, ViewerKind::Writer);
        reused.account.as_mut().expect("an account").1.id.0 += 900_000;
        assert_eq!(access.right(engine, &reused, &repo, true).await, ViewRight::None);
    })
    .await;
}

/// See docs/research/threats.md#v2.
async fn session_value_is_new_at_each_login(dialect: Dialect) {
    login_story(dialect, async |world| {
        let mut browser = LoginBrowser::new(world);
        let planted = "a".repeat(64);
        browser.cookies.insert("ralph-session".into(), planted.clone());
        assert_eq!(browser.log_in("wanda").await.status, 303);
        let first = browser.clone();
        assert_ne!(first.cookies["ralph-session"], planted);
        let mut thief = LoginBrowser::new(world);
        thief.cookies.insert("ralph-session".into(), planted);
        assert!(!thief.is_logged_in().await, "a value that was planted before the login");
        assert_eq!(browser.log_in("wanda").await.status, 303);
        assert_ne!(browser.cookies["ralph-session"], first.cookies["ralph-session"]);
        assert!(browser.is_logged_in().await && !first.clone().is_logged_in().await, "the earlier session has ended");
    })
    .await;
}

async fn session_ends_by_age_and_idleness(dialect: Dialect) {
    login_story(dialect, async |world| {
        let minutes = |minutes: i64| world.clock.advance_ms(minutes * 60_000);
        let mut idle = as_viewer(world, ViewerKind::Writer).await;
        minutes(119);
        assert!(idle.is_logged_in().await);
        minutes(119);
        assert!(idle.is_logged_in().await, "it was used in between");
        minutes(120);
        assert!(!idle.is_logged_in().await);
        let mut used = as_viewer(world, ViewerKind::Writer).await;
        for _ in 0..7 {
            minutes(100);
            assert!(used.is_logged_in().await);
        }
        minutes(20);
        assert!(!used.is_logged_in().await, "12 hours after the login");
        let lost = used.get("/login").await;
        assert_eq!(lost.status, 200, "{lost:?}");
        let program = used.post("/logout", "").await;
        assert_eq!(program.status, 401, "{program:?}");
    })
    .await;
}

/// See docs/research/threats.md#v1.
async fn change_needs_the_value_of_its_session(dialect: Dialect) {
    login_story(dialect, async |world| {
        let mut browser = as_viewer(world, ViewerKind::Writer).await;
        let other = as_viewer(world, ViewerKind::Reader).await;
        let (own, foreign) = (browser.csrf(), other.csrf());
        let json = [("content-type", "application/json")];
        let bodies = [
            String::new(),
            "csrf=".to_owned(),
            format!("csrf={foreign}"),
            format!("csrf={}x", own),
            format!("csrf={own}&csrf={own}"),
            format!("CSRF={own}"),
        ];
        for body in bodies {
            let answer = browser.send(Method::POST, "/logout", &[], Some(body.clone())).await;
            assert!(answer.status == 403 && answer.text.contains("csrf"), "{body}: {answer:?}");
        }
        let in_query = browser.send(Method::POST, &format!("/logout?csrf={own}"), &[], Some(String::new())).await;
        assert_eq!(in_query.status, 403, "not in an address");
        let no_form = browser.send(Method::POST, "/logout", &json, None).await;
        assert_eq!(no_form.status, 403, "{no_form:?}");
        let wrong = browser.send(Method::POST, "/logout", &[("x-csrf-token", foreign.as_str())], None).await;
        assert_eq!(wrong.status, 403, "{wrong:?}");
        assert!(browser.is_logged_in().await, "nothing happened");
        let large = format!("csrf={own}&text={}", "x".repeat(300 * 1024));
        assert_eq!(browser.send(Method::POST, "/logout", &[], Some(large)).await.status, 413);
        let right = browser.send(Method::POST, "/logout", &[("x-csrf-token", own.as_str())], None).await;
        assert_eq!(right.status, 303, "{right:?}");
    })
    .await;
}

/// See docs/research/threats.md#v1.
async fn change_of_another_site_is_refused(dialect: Dialect) {
    login_story(dialect, async |world| {
        let mut browser = as_viewer(world, ViewerKind::Writer).await;
        let body = format!("csrf={}", browser.csrf());
        let headers: [&[(&str, &str)]; 5] = [
            &[("origin", "https://evil.example")],
            &[("origin", "null")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "http://127.0.0.1:1")],
        ];
        for sent in headers {
            let answer = browser.send(Method::POST, "/logout", sent, Some(body.clone())).await;
            assert!(answer.status == 403 && answer.text.contains("another site"), "{sent:?} {answer:?}");
        }
        // GET changes nothing.
        assert_eq!(browser.get("/logout").await.status, 405);
        assert!(browser.is_logged_in().await);
    })
    .await;
}

/// See docs/research/threats.md#v3.
async fn login_redirects_only_to_this_server(dialect: Dialect) {
    login_story(dialect, async |world| {
        let elsewhere = [
            "//evil.example",
            "///evil.example",
            "////evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "\\/evil.example",
            "/%5Cevil.example",
            "%2F%2Fevil.example",
            "%2f%5cevil.example",
            "//evil.example%2f%2e%2e",
            "/%09/evil.example",
            "/%0a/evil.example",
            "/%0d/evil.example",
            "/%00/evil.example",
            "%20//evil.example",
            "%09//evil.example",
            "/a%0d%0aSet-Cookie:%20x=y",
            "/a%0d%0a%0d%0a<script>alert(1)</script>",
            "https://evil.example",
            "https:evil.example",
            "https:/evil.example",
            "HTTPS://evil.example",
            "http:%2F%2Fevil.example",
            "//user:word@evil.example",
            "//127.0.0.1.evil.example",
            "//%E3%80%82evil.example",
            "%EF%BC%8F%EF%BC%8Fevil.example",
            "/%EF%BC%8Fevil.example",
            "/.//evil.example",
            "/..//evil.example",
            "/x/..//evil.example",
            "evil.example",
            "?next=//evil.example",
            "javascript:alert(1)",
            "data:text/html,x",
            "/login?next=//evil.example",
            "/login/start/forge?next=//evil.example",
            "/logout",
        ];
        let same = [
            ("/loops/r-7-abc%23i4-L120", "/loops/r-7-abc#i4-L120"),
            ("/?state=paused%26page=2", "/?state=paused&page=2"),
        ];
        let ways = elsewhere.iter().map(|next| (*next, "/")).chain(same);
        let mut inside = as_viewer(world, ViewerKind::Writer).await;
        let own = ralph_bot::domain::trust::viewer::local_path;
        for (at, (next, leads)) in ways.enumerate() {
            let again = inside.get(&format!("/login?next={next}")).await;
            assert_eq!((again.status, again.location()), (303, leads), "{next}, of who is logged in already");
            assert!(again.header("set-cookie").is_empty() && !again.text.contains("<script>"), "{again:?}");
            // A whole login each takes long; all start with the same rule.
            let mut browser = LoginBrowser::new(world);
            if at % 4 == 0 || leads != "/" {
                let answer = browser.log_in_to("wanda", &format!("?next={next}")).await;
                assert_eq!((answer.status, answer.location()), (303, leads), "{next}");
                assert!(!browser.cookies.contains_key("x"));
            }
            assert_eq!(own(Some(leads)), leads);
        }
        let shown = LoginBrowser::new(world).get("/login?next=\"><script>alert(1)</script>").await;
        assert!(!shown.text.contains("<script>"), "{shown:?}");
    })
    .await;
}

async fn unreachable_forge_gives_no_right(dialect: Dialect) {
    login_story(dialect, async |world| {
        let (access, engine, repo) = (&web(world).access, world.engine(), repo_ref(world));
        let (known, unknown) = (viewer(world, ViewerKind::Writer), viewer(world, ViewerKind::Reader));
        assert_eq!(access.right(engine, &known, &repo, false).await, ViewRight::Write);
        world.forge.faults().next(1000, "GET", "/repos/", FakeFault::status(502)).expect("a pattern");
        assert_eq!(access.right(engine, &known, &repo, false).await, ViewRight::Write, "known for five minutes");
        assert_eq!(access.right(engine, &unknown, &repo, false).await, ViewRight::None, "never guessed");
        assert_eq!(access.right(engine, &known, &repo, true).await, ViewRight::None, "a change asks");
        world.clock.advance_ms(5 * 60_000);
        assert_eq!(access.right(engine, &known, &repo, false).await, ViewRight::None, "the five minutes are over");
        let operator = viewer(world, ViewerKind::Operator);
        assert_eq!(access.right(engine, &operator, &repo, false).await, ViewRight::Operate, "needs no forge");
        world.forge.faults().clear();
        world.clock.advance_ms(60_000);
        assert_eq!(access.right(engine, &known, &repo, true).await, ViewRight::Write);
    })
    .await;
}

/// See docs/research/threats.md#v4.
async fn other_names_of_this_machine_are_refused(dialect: Dialect) {
    local_story(Setup::new(dialect), async |world| {
        let link = world.app().dashboard.as_ref().expect("a dashboard").link();
        let mut browser = LoginBrowser::new(world);
        for host in ["evil.example", "evil.example:8080", "localhost.evil.example", "0.0.0.0", "169.254.169.254"] {
            let answer = browser.send(Method::GET, link.expose_secret(), &[("host", host)], None).await;
            assert_eq!((answer.status, answer.header("set-cookie")), (421, ""), "{host} {answer:?}");
        }
        let answer = browser.send(Method::GET, link.expose_secret(), &[("host", "localhost:1")], None).await;
        assert_eq!(answer.status, 303, "{answer:?}");
    })
    .await;
}

/// See docs/research/threats.md#v4.
async fn proxied_requests_are_refused_without_a_login(dialect: Dialect) {
    local_story(Setup::new(dialect), async |world| {
        let link = world.app().dashboard.as_ref().expect("a dashboard").link();
        let mut browser = LoginBrowser::new(world);
        for header in ["x-forwarded-for", "forwarded", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via"] {
            let answer = browser.send(Method::GET, link.expose_secret(), &[(header, "127.0.0.1")], None).await;
            assert!(answer.status == 403 && answer.text.contains(header), "{header} {answer:?}");
        }
        assert!(browser.cookies.is_empty());
    })
    .await;
}

async fn dashboard_uses_a_separate_address(dialect: Dialect) {
    local_story(Setup::new(dialect).config("dashboard: { listen: \"127.0.0.1:0\" }"), async |world| {
        let mut browser = LoginBrowser::new(world);
        let webhooks = format!("http://{}/", world.app().address.expect("an address"));
        assert_eq!(browser.get(&format!("{webhooks}login")).await.status, 404, "not where webhooks are received");
        assert_eq!(browser.get(&format!("{webhooks}healthz")).await.status, 200);
        assert_eq!(browser.get("/login").await.status, 200);
        assert_eq!(browser.get("/healthz").await.status, 404);
    })
    .await;
}

/// See docs/research/threats.md#v5.
async fn wrong_tokens_are_limited(dialect: Dialect) {
    local_story(Setup::new(dialect), async |world| {
        let link = world.app().dashboard.as_ref().expect("a dashboard").link();
        let mut browser = LoginBrowser::new(world);
        let mut inside = LoginBrowser::new(world);
        assert_eq!(inside.get(link.expose_secret()).await.status, 303);
        for guess in 0..20 {
            let answer = match guess % 2 {
                0 => browser.post("/login", &format!("token={guess}")).await.status,
                _ => browser.send(Method::POST, "/logout", &[("authorization", "Bearer guess")], None).await.status,
            };
            assert!(matches!(answer, 401 | 403), "{guess}: {answer}");
        }
        let limited = browser.post("/login", "token=guess").await;
        assert_eq!((limited.status, limited.header("set-cookie")), (429, ""), "{limited:?}");
        assert!(limited.header("retry-after").parse::<u32>().is_ok_and(|seconds| seconds <= 601), "{limited:?}");
        assert!(inside.is_logged_in().await, "sessions go on");
        assert_eq!(browser.get(link.expose_secret()).await.status, 303, "the right token always works");
        world.clock.advance_ms(10 * 60_000);
        assert_eq!(browser.post("/login", "token=guess").await.status, 403);
    })
    .await;
}

/// See docs/research/threats.md#v5.
async fn pages_of_other_sites_cannot_lock_out_accounts(dialect: Dialect) {
    local_story(Setup::new(dialect), async |world| {
        let mut browser = LoginBrowser::new(world);
        for site in [Some("cross-site"), Some("same-site"), None] {
            let headers: Vec<(&str, &str)> = site.map(|site| ("sec-fetch-site", site)).into_iter().collect();
            for _ in 0..25 {
                let image = browser.send(Method::GET, "/login?token=x", &headers, None).await;
                assert_eq!(image.status, 403, "{site:?}");
            }
        }
        let typed = [("sec-fetch-site", "none")];
        let mut statuses = Vec::new();
        for _ in 0..21 {
            statuses.push(browser.send(Method::GET, "/login?token=x", &typed, None).await.status);
        }
        assert_eq!((&statuses[..20], statuses[20]), ([403; 20].as_slice(), 429));
    })
    .await;
}

/// See docs/research/threats.md#v5.
async fn failed_logins_are_limited(dialect: Dialect) {
    login_story(dialect, async |world| {
        let mut browser = LoginBrowser::new(world);
        // As images and frames of another page request it.
        for _ in 0..40 {
            assert_eq!(browser.get("/login/callback/forge?code=x&state=y").await.status, 403);
        }
        for _ in 0..20 {
            assert_eq!(browser.get("/login/start/forge").await.status, 303);
            assert_eq!(browser.get("/login/callback/forge?code=x&state=y").await.status, 403);
        }
        assert_eq!(browser.get("/login/start/forge").await.status, 429);
        assert_eq!(browser.get("/login/callback/forge?code=x&state=y").await.status, 429);
        world.clock.advance_ms(10 * 60_000);
        assert_eq!(browser.log_in("wanda").await.status, 303);
    })
    .await;
}

async fn switched_off_dashboard_is_not_served(dialect: Dialect) {
    local_story(Setup::new(dialect).config("dashboard: { enabled: false }"), async |world| {
        assert!(world.app().dashboard.is_none());
        let address = world.app().address.expect("an address");
        let answer = reqwest::get(format!("http://{address}/login")).await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 404);
    })
    .await;
}
