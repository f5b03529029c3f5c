//! Search, costs and tokens in a real browser: by keyboard, on a phone, in the dark, without scripts, and without serious faults of
//! accessibility.

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::providers::money::day_of;
use ralph_bot::store::sql::params;
use serde_json::json;

use crate::browser::{AXE, Browser};
use crate::harness::dashboard::ServedPages;
use crate::harness::parts::npm_part;
use crate::harness::{Setup, World, live_story};

/// Adds costs of thirty days, three backends and two people.
async fn add_costs(world: &World) {
    let (today, repo) = (day_of(world.clock.now()), world.repo.0);
    let added = world.engine().store.write(move |c| {
        let sql = "INSERT INTO daily_costs (day, forge, repo_id, backend, person_id, person, calls, cost, tokens_in, tokens_out)
            VALUES (?1, 'forge', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        for ago in 0..30_i64 {
            for (nth, backend) in ["claude", "codex", "gemini"].into_iter().enumerate() {
                let nth = nth as i64 + 1;
                let person = if (ago + nth) % 2 == 0 { "mira" } else { "otto" };
                let calls = (ago * nth) % 9 + 1;
                let row = params![
                    today - ago,
                    repo,
                    backend,
                    person.len() as i64 + nth,
                    person,
                    calls,
                    calls * nth * 70_000,
                    calls * 9_000,
                    calls * 700
                ];
                c.execute(sql, row)?;
            }
        }
        Ok(())
    });
    added.await.expect("stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_costs_and_tokens_work_by_keyboard_and_without_scripts() {
    let Some(axe) = npm_part(AXE) else { return };
    let Some(mut browser) = Browser::start().await else { return };
    let axe = axe.join("axe.min.js").display().to_string();
    let agent = "case $RALPH_ITERATION in 1) echo 40 >answer.txt ;; *) echo 42 >answer.txt ;; esac\n";
    live_story(Setup::new(Dialect::Gitea).agent(agent), async |world| {
        let dashboard = ServedPages::of(world, true).await;
        world.label().await;
        world.until("a review", |l| l.state == LoopState::Review).await;
        world.wait_until_idle().await;
        add_costs(world).await;

        // From any page to the line of a check's output, by keyboard.
        browser.open(&format!("{}/", dashboard.url), json!({})).await;
        browser.tab_to(".find input").await;
        browser.write("answer is 40").await;
        browser.press("Enter").await;
        browser.until("location.pathname === '/search' && document.querySelector('mark') !== null").await;
        browser.picture("search-results").await;
        browser.tab_to(".hits a[href*='text=event']").await;
        browser.press("Enter").await;
        browser.until("/^#i[0-9]+-L[0-9]+$/.test(location.hash) && document.querySelector(':target') !== null").await;
        let seen = "(() => { const at = document.querySelector(':target').getBoundingClientRect(); \
            return at.top >= 0 && at.bottom <= innerHeight; })()";
        browser.until(seen).await;
        assert_eq!(browser.evaluate("document.querySelector(':target').textContent.includes('answer')").await, true);

        // A token is made, shown once and revoked.
        browser.open(&format!("{}/tokens", dashboard.url), json!({})).await;
        browser.tab_to("main input[name=name]").await;
        browser.write("deployment").await;
        browser.press("Enter").await;
        browser.until("/^ralph_[0-9a-f]{64}$/.test(document.getElementById('token')?.textContent)").await;
        browser.picture("tokens-new").await;
        browser.open(&format!("{}/tokens", dashboard.url), json!({})).await;
        assert_eq!(browser.evaluate("document.getElementById('token')").await, json!(null));
        browser.tab_to("button.danger").await;
        browser.press("Enter").await;
        browser.until("document.querySelector('td .state')?.textContent === 'revoked'").await;

        for (name, path) in [
            ("search", "/search?q=answer"),
            ("search-empty", "/search"),
            ("search-bad", "/search?q=answer&kind=songs"),
            ("costs", "/costs"),
            ("costs-backend", "/costs?by=backend&days=90"),
            ("tokens", "/tokens"),
        ] {
            browser.assert_readable(name, &format!("{}{path}", dashboard.url), &axe).await;
        }
        let faults = browser.call(json!({ "command": "faults" })).await;
        let faults: Vec<_> =
            faults.as_array().expect("a list").iter().filter(|fault| !fault.to_string().contains("422")).collect();
        assert!(faults.is_empty(), "{faults:#?}");

        // Without scripts: filters of the search and of the costs are forms.
        browser.open(&format!("{}/search?q=answer", dashboard.url), json!({ "scripts": false })).await;
        browser.evaluate("document.querySelector('select[name=kind]').value = 'output'").await;
        browser.evaluate("document.querySelector('main form').submit()").await;
        browser
            .until("location.search.includes('kind=output') && document.querySelectorAll('.hits li').length > 0")
            .await;
        browser.open(&format!("{}/costs", dashboard.url), json!({ "scripts": false })).await;
        browser.evaluate("document.querySelector('select[name=by]').value = 'backend'").await;
        browser.evaluate("document.querySelector('main form').submit()").await;
        browser.until("location.search.includes('by=backend') && document.body.innerText.includes('gemini')").await;
    })
    .await;
}
