//! Set-up in a real browser, by its buttons alone: from no App to a verified pull request, also without scripts, on a phone and in the
//! dark.

use std::time::Duration;

use fake_forge::{Dialect, FakeForge};
use ralph_bot::clock::Clock;
use ralph_bot::config::Env;
use ralph_bot::domain::model::ids::AccountKind;
use ralph_bot::setup::{OperatorFileLocation, SetupMode, SetupServer};
use secrecy::ExposeSecret;
use serde_json::json;

use crate::browser::{AXE, Browser};
use crate::harness::parts::npm_part;

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
    let forge = FakeForge::start(Dialect::GitHub, Clock::System).await.expect("a forge");
    let owner = forge.add_user("mira", AccountKind::User);
    forge.create_repo(&owner.login, "app", &[("README.md", "# app\n", false)]).await.expect("a repository");
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

    // Without the token, then with it; each page on a phone, in the dark and without scripts, and without serious faults.
    browser.open(&format!("{base}/setup"), json!({})).await;
    browser.until("document.querySelector('input[name=token]') !== null").await;
    browser.picture("setup-token").await;
    browser.open(server.link().expose_secret(), json!({})).await;
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

    press(&mut browser, "#try").await;
    browser.until("document.querySelector('#trial') !== null").await;
    browser.picture("setup-trial").await;
    let verified = async {
        while browser.evaluate("document.body !== null && document.body.textContent.includes('is verified')").await
            != true
        {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), verified).await.expect("a verified pull request");
    browser.picture("setup-verified").await;
    press(&mut browser, "#clean-up").await;
    browser.until("document.body.textContent.includes('is closed')").await;
    press(&mut browser, "#finish").await;
    browser.until("document.body.textContent.includes('The set-up is finished')").await;
    browser.picture("setup-done").await;
    // The requests that end with an error by intention are those without the token.
    let faults = browser.call(json!({ "command": "faults" })).await;
    let faults: Vec<&str> = faults.as_array().expect("a list").iter().filter_map(|fault| fault.as_str()).collect();
    // The forge has no icon.
    let own = |fault: &&&str| !fault.contains("401") && !fault.contains(forge.url().as_str());
    let unexpected: Vec<_> = faults.iter().filter(own).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    server.stop().await;
}
