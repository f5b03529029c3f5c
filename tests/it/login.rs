//! Login to the dashboard: with the account of the forge, and with the token that `serve` prints.

use fake_forge::Dialect;
use secrecy::ExposeSecret;

use crate::harness::viewers::{LoginBrowser, ViewerKind, open_logins, prepare_logins, with_login};
use crate::harness::{Setup, on_both_forges, on_one_forge, prepared_story, story};

on_both_forges!(person_logs_in_with_the_forge_and_out_again);

on_one_forge!(printed_address_opens_the_dashboard_of_this_machine);

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
