//! The dashboard in a real browser while a loop waits: a login on the forge, an answer and a logout by buttons alone.

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;
use serde_json::json;

use super::browser::{AXE, Browser};
use crate::harness::parts::npm_part;
use crate::harness::viewers::{ViewerKind, dashboard, open_logins, prepare_logins, with_login};
use crate::harness::{Setup, on_one_forge, prepared_story};

/// Number of rows of the header: its parts whose middles are apart.
const HEADER_ROWS: &str = "(() => {
    const parts = [...document.querySelectorAll('header.site .name, header.site nav a, .find, .who, .leave')];
    const middles = parts.map((part) => part.getBoundingClientRect()).map((at) => (at.top + at.bottom) / 2).sort((a, b) => a - b);
    return middles.filter((middle, nth) => nth === 0 || middle - middles[nth - 1] > 12).length;
})()";

on_one_forge!(paused_loop_is_resumed_by_buttons_after_a_login);

/// A person logs in on the forge's page, finds the loop that waits, and answers it.
async fn paused_loop_is_resumed_by_buttons_after_a_login(dialect: Dialect) {
    let Some(axe) = npm_part(AXE) else { return };
    let Some(mut browser) = Browser::start().await else { return };
    let axe = axe.join("axe.min.js").display().to_string();
    let gate = tempfile::tempdir().expect("a folder");
    let file = gate.path().join("open").display().to_string();
    let setup = Setup::new(dialect).agent(&format!("if [ -e {file} ]; then echo 42 >answer.txt; fi\n"));
    prepared_story(with_login(setup), prepare_logins, async |world| {
        open_logins(world).await;
        world.label().await;
        world.settle().await;
        let paused = world.the_loop().await;
        assert_eq!(paused.state, LoopState::Paused, "{}", paused.why);
        let home = dashboard(world);

        // Login: from the dashboard to the forge's page and back.
        browser.open(home.as_str(), json!({})).await;
        browser.until("location.pathname === '/login'").await;
        browser.assert_readable("login", &format!("{home}login"), &axe).await;
        browser.assert_readable("no-such-page", &format!("{home}nothing"), &axe).await;
        browser.open(home.as_str(), json!({})).await;
        browser.evaluate("document.querySelector('main a[href^=\"/login/start\"], main form button').click()").await;
        browser.until("document.body.innerText.includes('asks who you are')").await;
        let login = ViewerKind::Writer.login();
        browser.evaluate(&format!("document.querySelector('button[value={login}]').click()")).await;
        browser.until(&format!("location.origin === '{}'", home.origin().ascii_serialization())).await;
        browser.until("document.querySelector('h1')?.textContent === 'Waiting for you'").await;

        // The loop that waits is first, with its evidence and its answers.
        let card = format!("#wait-{}", paused.id);
        assert_eq!(browser.evaluate(&format!("document.querySelector('{card} strong') !== null")).await, true);
        browser.assert_readable("home-waiting", home.as_str(), &axe).await;
        std::fs::write(&file, "").expect("the gate opens");

        // It is answered by keyboard alone.
        browser.open(home.as_str(), json!({})).await;
        browser.tab_to(&format!("{card} form textarea")).await;
        browser.write("Write 42.").await;
        let button = "document.activeElement.closest('form').querySelector('button').textContent";
        assert!(browser.evaluate(button).await.as_str().is_some_and(|text| text.contains("Resume")));
        browser.tab_to(&format!("{card} form button")).await;
        browser.press("Enter").await;
        browser.until("document.querySelector('.notice.good') !== null").await;
        world.settle().await;
        let done = world.the_loop().await;
        assert_eq!(done.state, LoopState::Review, "{}", done.why);
        let prompts = world.prompts().await;
        assert!(prompts.last().is_some_and(|prompt| prompt.contains("Write 42.")), "the guidance reaches the agent");

        // The person ends the session by a button, and sees nothing afterwards.
        browser.evaluate("document.querySelector('form[action=\"/logout\"] button').click()").await;
        browser.until("location.pathname === '/login'").await;
        browser.open(&format!("{}loops/{}", home.as_str(), paused.id), json!({})).await;
        browser.until("location.pathname === '/login'").await;

        // The header of an operator, who has the most pages, is one row on a usual screen; nothing of it is torn apart on a smaller one.
        browser.open(home.as_str(), json!({})).await;
        browser.evaluate("document.querySelector('main a[href^=\"/login/start\"], main form button').click()").await;
        browser.until("document.body.innerText.includes('asks who you are')").await;
        let login = ViewerKind::Operator.login();
        browser.evaluate(&format!("document.querySelector('button[value={login}]').click()")).await;
        browser.until("document.querySelector('nav a[href=\"/audit\"]') !== null").await;
        for (width, rows) in [(1180, 1), (800, 2), (390, 5)] {
            browser.open(home.as_str(), json!({ "width": width, "height": 900 })).await;
            let counted = browser.evaluate(HEADER_ROWS).await;
            assert!(counted.as_u64().is_some_and(|counted| counted <= rows), "{width} pixels: {counted} rows");
            browser.picture(&format!("header-{width}")).await;
        }
    })
    .await;
}
