//! Set-up in a real browser, by its buttons alone: from no App, or from a token, to a verified pull request, also without scripts, on a
//! phone and in the dark.

use std::time::Duration;

use fake_forge::{Access, Dialect, FakeForge};
use ralph_bot::clock::Clock;
use ralph_bot::config::Env;
use ralph_bot::domain::model::ids::AccountKind;
use ralph_bot::setup::{OperatorFileLocation, SetupMode, SetupServer};
use secrecy::ExposeSecret;
use serde_json::json;

use crate::browser::{AXE, Browser};
use crate::harness::parts::npm_part;

/// A forge with a repository, and a set-up that its webhooks reach.
struct SetupStart {
    forge: FakeForge,
    /// Token of the bot's account.
    token: String,
    server: SetupServer,
    base: String,
    _folder: tempfile::TempDir,
}

impl SetupStart {
    async fn new(dialect: Dialect) -> Self {
        let forge = FakeForge::start(dialect, Clock::System).await.expect("a forge");
        let (owner, bot) = (forge.add_user("mira", AccountKind::User), forge.add_user("ralph", AccountKind::User));
        let repo = forge.create_repo(&owner.login, "app", &[("README.md", "# app\n", false)]).await.expect("made");
        if dialect == Dialect::Gitea {
            forge.grant(repo, &bot, Access::Admin).expect("granted");
        }
        let token = forge.token_for(&bot);
        let folder = tempfile::tempdir().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let place = OperatorFileLocation {
            file: folder.path().join("ralph-control.yaml"),
            env: Env::of([("PATH", path.as_str())]),
        };
        let listen = "127.0.0.1:0".parse().expect("an address");
        let server =
            SetupServer::start(place.clone(), SetupMode::Service, listen, Clock::System).await.expect("it listens");
        let base = format!("http://{}", server.address);
        let text = format!(
            "server: {{ listen: '127.0.0.1:0', public_url: '{base}' }}\nsandbox: {{ required: none }}\nengine: {{ poll_ms: 50, mutation_interval_ms: 0 }}\n"
        );
        std::fs::write(&place.file, text).expect("written");
        Self { forge, token, server, base, _folder: folder }
    }

    /// Tries the configured forge until a pull request is verified, removes the trial's objects, and ends the set-up.
    async fn try_and_finish(&self, browser: &mut Browser, pictures: &str) {
        press(browser, "#try").await;
        browser.until("document.querySelector('#trial') !== null").await;
        browser.picture(&format!("{pictures}-trial")).await;
        let verified = async {
            while browser.evaluate("document.body !== null && document.body.textContent.includes('is verified')").await
                != true
            {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), verified).await.expect("a verified pull request");
        browser.picture(&format!("{pictures}-verified")).await;
        press(browser, "#clean-up").await;
        browser.until("document.body.textContent.includes('is closed')").await;
        press(browser, "#finish").await;
        browser.until("document.body.textContent.includes('The set-up is finished')").await;
        browser.picture(&format!("{pictures}-done")).await;
    }

    /// Asserts that the browser has reported nothing but the requests that are refused by intention, with these statuses.
    async fn assert_no_faults(&self, browser: &mut Browser, refused: &[&str]) {
        let faults = browser.call(json!({ "command": "faults" })).await;
        let faults: Vec<&str> = faults.as_array().expect("a list").iter().filter_map(|fault| fault.as_str()).collect();
        // The forge has no icon.
        let expected = |fault: &&&str| {
            refused.iter().any(|status| fault.contains(status)) || fault.contains(self.forge.url().as_str())
        };
        let unexpected: Vec<_> = faults.iter().filter(|fault| !expected(fault)).collect();
        assert!(unexpected.is_empty(), "{unexpected:?}");
    }
}

/// Enters a text into a field of the page.
async fn fill(browser: &mut Browser, within: &str, name: &str, text: &str) {
    let expression =
        format!("document.querySelector('form[action=\"{within}\"] [name=\"{name}\"]').value = {}", json!(text));
    browser.evaluate(&expression).await;
}

async fn press(browser: &mut Browser, selector: &str) {
    browser.evaluate(&format!("document.querySelector('{selector}').click()")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn app_is_created_and_tried_by_buttons_alone() {
    let Some(axe) = npm_part(AXE) else { return };
    let Some(mut browser) = Browser::start().await else { return };
    let axe = axe.join("axe.min.js").display().to_string();
    let start = SetupStart::new(Dialect::GitHub).await;
    let (forge, base) = (&start.forge, start.base.as_str());

    // Without the token, then with it; each page on a phone, in the dark and without scripts, and without serious faults.
    browser.open(&format!("{base}/setup"), json!({})).await;
    browser.until("document.querySelector('input[name=token]') !== null").await;
    browser.picture("setup-token").await;
    browser.open(start.server.link().expose_secret(), json!({})).await;
    browser.until("location.search === '' && document.querySelector('#github') !== null").await;
    browser.picture("setup-choose").await;
    let found = browser.call(json!({ "command": "axe", "file": axe })).await;
    assert_eq!(found, json!([]), "the choice");
    browser
        .open(&format!("{base}/setup"), json!({ "width": 390, "height": 844, "dark": true, "scripts": false }))
        .await;
    browser.picture("setup-choose-phone-dark").await;
    let too_wide = browser.evaluate("document.documentElement.scrollWidth > innerWidth").await;
    assert_eq!(too_wide, false);

    browser.open(&format!("{base}/setup"), json!({})).await;
    press(&mut browser, "summary").await;
    fill(&mut browser, "/setup/github", "url", forge.url().as_str()).await;
    press(&mut browser, "#github").await;
    browser
        .until("document.querySelector('#create') !== null && document.querySelector('input[name=manifest]') !== null")
        .await;
    browser.picture("setup-create").await;
    press(&mut browser, "#create").await;
    browser
        .until(&format!(
            "location.href.startsWith('{}') && document.querySelector('input[name=name]') !== null",
            forge.url()
        ))
        .await;
    press(&mut browser, "#create").await;
    browser
        .until(&format!("location.href === '{base}/setup' && document.body.textContent.includes('Install the App')"))
        .await;
    browser.picture("setup-created").await;
    // GitHub's page for the installation sends back to the set-up.
    browser
        .evaluate("[...document.querySelectorAll('a')].find((a) => a.textContent === 'Install the App').click()")
        .await;
    browser.until("[...document.querySelectorAll('button')].some((b) => b.textContent === 'Install')").await;
    press(&mut browser, "form button").await;
    browser
        .until("location.pathname === '/setup' && document.body.textContent.includes('The App is installed.')")
        .await;
    let found = browser.call(json!({ "command": "axe", "file": axe })).await;
    assert_eq!(found, json!([]), "the configured forge");

    start.try_and_finish(&mut browser, "setup").await;
    start.assert_no_faults(&mut browser, &["401"]).await;
    start.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forge_is_set_up_from_a_token_and_tried_by_buttons_alone() {
    let Some(axe) = npm_part(AXE) else { return };
    let Some(mut browser) = Browser::start().await else { return };
    let axe = axe.join("axe.min.js").display().to_string();
    let start = SetupStart::new(Dialect::Gitea).await;
    browser.open(start.server.link().expose_secret(), json!({})).await;
    browser.until("location.search === '' && document.querySelector('#gitea') !== null").await;

    // A wrong token is refused with what to do, and the other values are still there.
    let form = "/setup/token";
    let url = start.forge.url().to_string();
    let values = [("url", &*url), ("token", "wrong"), ("repositories", "mira/app"), ("public_url", &start.base)];
    for (name, value) in values {
        fill(&mut browser, form, name, value).await;
    }
    press(&mut browser, "#gitea").await;
    browser.until("document.querySelector('.notice.wrong')?.textContent.includes('does not accept the token')").await;
    let kept = |name: &str| format!("document.querySelector('form[action=\"{form}\"] [name=\"{name}\"]').value");
    assert_eq!(browser.evaluate(&kept("url")).await, json!(url));
    assert_eq!(browser.evaluate(&kept("repositories")).await, "mira/app");
    assert_eq!(browser.evaluate(&kept("token")).await, "");
    browser.picture("setup-token-refused").await;

    // Webhooks, labels and the application of logins are made and tested.
    fill(&mut browser, form, "token", &start.token).await;
    press(&mut browser, "#gitea").await;
    browser.until("document.querySelector('#try') !== null").await;
    let page = browser.evaluate("document.body.textContent").await;
    let page = page.as_str().expect("a text");
    for says in ["belongs to ralph", "labels were created", "the test delivery arrived", "for logins was created"] {
        assert!(page.contains(says), "{says}: {page}");
    }
    assert!(!page.contains(&start.token), "a token is never shown");
    assert_eq!(browser.evaluate("document.querySelector('.state.bad')").await, json!(null), "{page}");
    // The page's address accepts GET, so it can be reloaded.
    browser.assert_readable("setup-gitea", &format!("{}/setup", start.base), &axe).await;
    browser.open(&format!("{}/setup", start.base), json!({})).await;
    let chosen = "document.querySelector('select[name=repository]').value";
    assert_eq!(browser.evaluate(chosen).await, "mira/app");
    start.try_and_finish(&mut browser, "setup-gitea").await;
    start.assert_no_faults(&mut browser, &["422"]).await;
    start.server.stop().await;
}
