//! The demo in a real browser: its whole story, from the agent that gets stuck to the verified pull request, by the buttons of the
//! dashboard alone.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;

use crate::browser::Browser;
use crate::harness::parts::command;

/// Maximum wait for an event, and for a state on a page, in milliseconds.
const WAIT_MS: u64 = 120_000;

/// Returns the next event of a kind; no other answer may arrive meanwhile.
async fn event(lines: &mut Lines<BufReader<ChildStdout>>, name: &str) -> Value {
    let found = async {
        loop {
            let line = lines.next_line().await.expect("a line").expect("the demo runs");
            let line: Value = serde_json::from_str(line.trim()).unwrap_or_default();
            assert_ne!(line["event"], "answered", "the demo answers for nobody");
            if line["event"] == name {
                return line;
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_millis(WAIT_MS), found).await;
    found.unwrap_or_else(|_| panic!("no event {name}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demo_is_controlled_by_buttons_alone() {
    let Some(mut browser) = Browser::start().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    // At a terminal the demo waits for a person.
    let mut demo = command("script");
    demo.current_dir(folder.path()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    demo.env("HOME", folder.path()).env("TERM", "xterm").env("TMPDIR", folder.path());
    demo.args(["-qefc", &format!("{} demo --fast --json", env!("CARGO_BIN_EXE_ralph-bot")), "/dev/null"]);
    demo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut process = demo.spawn().expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("an output")).lines();
    let opened = event(&mut lines, "opened").await;
    let wait = async |browser: &mut Browser, expression: &str| {
        browser.call(json!({ "command": "until", "expression": expression, "limit": WAIT_MS })).await;
    };

    // The first page, opened by the link that the demo prints, shows by itself that the loop needs an answer.
    browser.open(opened["dashboard"].as_str().expect("an address"), json!({})).await;
    browser.until("document.querySelector('h1')?.textContent === 'Waiting for you'").await;
    browser.evaluate("window.same = true").await;
    wait(&mut browser, "document.querySelector('section.ask form textarea') !== null").await;
    assert_eq!(browser.evaluate("window.same").await, true, "the page was not loaded again");
    browser
        .until("document.title.startsWith('(1)') && document.getElementById('icon').href.includes('icon-waiting')")
        .await;
    let evidence = browser.evaluate("document.querySelector('section.ask').innerText").await;
    let evidence = evidence.as_str().expect("a text");
    assert!(evidence.contains("The loop is stuck") && evidence.contains("Check tests failed"), "{evidence}");
    browser.picture("demo-waiting").await;

    // The person gives the cause, and the page of the loop follows it to the end.
    let answer = "(() => {
        const form = document.querySelector('section.ask form:has(textarea)');
        form.querySelector('textarea').value = 'The maximum has to sort by number.';
        const button = form.querySelector('button');
        const name = button.textContent;
        button.click();
        return name;
    })()";
    let pressed = browser.evaluate(answer).await;
    assert!(pressed.as_str().is_some_and(|name| name.contains("Resume")), "{pressed}");
    browser.until("document.querySelector('.notice.good') !== null").await;
    wait(&mut browser, "document.querySelector('h1 .state')?.textContent === 'review'").await;
    browser.until("document.getElementById('icon').href.includes('icon-done')").await;
    let ready = event(&mut lines, "ready").await;
    let pull = ready["pull"].as_str().expect("an address");
    browser.until(&format!("[...document.links].some((link) => link.href === {})", json!(pull))).await;
    browser.picture("demo-review").await;
    let faults = browser.call(json!({ "command": "faults" })).await;
    assert_eq!(faults, json!([]), "{faults:#}");
    process.kill().await.expect("ended");
}
