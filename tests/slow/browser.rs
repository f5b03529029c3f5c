//! Dashboard in a real browser: live pages, buttons, no reports of the content security policy, a phone's size, dark, without
//! scripts, and no serious fault of accessibility.

use std::process::Stdio;

use fake_forge::Dialect;
use ralph_bot::domain::loops::{LoopState, LoopStep};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::harness::dashboard::ServedPages;
use crate::harness::parts::{command, npm_part, program, setting};
use crate::harness::{Setup, live_story};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Package of tests/parts.txt that finds faults of accessibility.
pub(crate) const AXE: &str = "axe-core@4.14.1";

/// A headless browser.
pub(crate) struct Browser {
    _process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser; `None` if there is none, which is reported.
    pub(crate) async fn start() -> Option<Self> {
        let browser = program(&BROWSERS, "install chromium, as .ci/full does")?;
        let node = program(&["node", "nodejs"], "install Node.js, as .ci/full does")?;
        let profile = tempfile::tempdir().expect("a folder");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slow/browser.mjs");
        let mut process = command(node);
        process.arg(script).arg(browser).arg(profile.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = process.spawn().expect("the browser starts");
        let input = process.stdin.take().expect("an input");
        let output = BufReader::new(process.stdout.take().expect("an output")).lines();
        let mut browser = Self { _process: process, input, output, _profile: profile };
        assert_eq!(browser.line().await["ready"], true);
        Some(browser)
    }

    async fn line(&mut self) -> Value {
        let line = self.output.next_line().await.expect("a line").expect("the browser runs");
        serde_json::from_str(&line).expect("JSON")
    }

    pub(crate) async fn call(&mut self, call: Value) -> Value {
        self.input.write_all(format!("{call}\n").as_bytes()).await.expect("sent");
        let answer = self.line().await;
        assert!(answer["error"].is_null(), "{call}: {answer}");
        answer["value"].clone()
    }

    pub(crate) async fn open(&mut self, url: &str, more: Value) {
        let mut call = json!({ "command": "open", "url": url });
        call.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        self.call(call).await;
    }

    pub(crate) async fn evaluate(&mut self, expression: &str) -> Value {
        self.call(json!({ "command": "evaluate", "expression": expression })).await
    }

    pub(crate) async fn until(&mut self, expression: &str) {
        self.call(json!({ "command": "until", "expression": expression })).await;
    }

    /// Asserts that axe finds no serious fault on a page in light and dark, and that it fits on a phone 390 pixels wide.
    pub(crate) async fn assert_readable(&mut self, name: &str, url: &str, axe: &str) {
        for dark in [false, true] {
            self.open(url, json!({ "dark": dark })).await;
            let found = self.call(json!({ "command": "axe", "file": axe })).await;
            assert_eq!(found, json!([]), "{url}, dark: {dark}: {found:#}");
            self.picture(&format!("{name}-{}", if dark { "dark" } else { "light" })).await;
        }
        self.open(url, json!({ "width": 390, "height": 844 })).await;
        let wide = self.evaluate("document.documentElement.scrollWidth - innerWidth").await;
        assert!(wide.as_i64().expect("a width") <= 0, "{url} is {wide} pixels too wide for a phone");
        self.picture(&format!("{name}-phone")).await;
    }

    /// Presses a key.
    pub(crate) async fn press(&mut self, key: &str) {
        self.call(json!({ "command": "key", "key": key })).await;
    }

    /// Writes a text where the focus is.
    pub(crate) async fn write(&mut self, text: &str) {
        self.call(json!({ "command": "key", "text": text })).await;
    }

    /// Presses Tab until an element has the focus.
    pub(crate) async fn tab_to(&mut self, selector: &str) {
        for _ in 0..60 {
            self.press("Tab").await;
            let there = format!("document.activeElement.matches({})", json!(selector));
            if self.evaluate(&there).await == true {
                return;
            }
        }
        panic!("{selector} is not reached by Tab");
    }

    /// Takes a picture for a person to look at, if `RALPH_TEST_PICTURES` names a folder.
    pub(crate) async fn picture(&mut self, name: &str) {
        if let Some(folder) = setting("RALPH_TEST_PICTURES") {
            self.call(json!({ "command": "shot", "file": format!("{folder}/{name}.png") })).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_is_live_accessible_and_without_faults_in_a_browser() {
    let Some(axe) = npm_part(AXE) else { return };
    let Some(mut browser) = Browser::start().await else { return };
    let axe = axe.join("axe.min.js").display().to_string();
    let agent = "while [ ! -e \"$GATE\" ]; do sleep 0.05; done\necho 42 >answer.txt\necho 'A note.' >>README.md\n";
    let mut setup = Setup::new(Dialect::Gitea).agent(agent);
    let gate = tempfile::tempdir().expect("a folder");
    let gate = gate.path().join("open");
    setup.agent = setup.agent.replace("$GATE", &gate.display().to_string());
    live_story(setup, async |world| {
        let dashboard = ServedPages::of(world, true).await;
        world.label().await;
        let running = world.until("an agent that runs", |l| l.run.step == LoopStep::Agent).await;
        let page = format!("{}/loops/{}", dashboard.url, running.id);

        // The page follows the loop without being loaded again.
        browser.open(&page, json!({})).await;
        browser.until("document.querySelector('h1 .state').textContent === 'running'").await;
        browser.until("document.getElementById('icon').href.includes('icon-running')").await;
        browser.evaluate("window.same = true; document.querySelectorAll('details').forEach((d) => { d.open = true; })").await;
        browser.picture("loop-running").await;
        std::fs::write(&gate, "").expect("the gate opens");
        world.until("a review", |l| l.state == LoopState::Review).await;
        browser.until("document.querySelector('h1 .state').textContent === 'review'").await;
        browser.until("document.getElementById('icon').href.includes('icon-done')").await;
        assert_eq!(browser.evaluate("window.same && [...document.querySelectorAll('details')].some((d) => d.open)").await, true);

        // A button is pressed, and the page says what became of it.
        let write = "document.querySelector('.answers textarea').value = 'Add a line, please.'";
        browser.evaluate(write).await;
        browser.evaluate("document.querySelector('.answers button').click()").await;
        browser.until("document.querySelector('.notice.good') !== null").await;
        world.until("a second review", |l| l.state == LoopState::Review && l.spent.iterations == 2).await;
        world.wait_until_idle().await;

        let paths = [
            ("home", "/".to_owned()),
            ("loop", format!("/loops/{}", running.id)),
            ("report", format!("/loops/{}/report", running.id)),
            ("iteration", format!("/loops/{}/iterations/1", running.id)),
            ("backends", "/backends".to_owned()),
            ("memory", format!("/memory?loop={}", running.id)),
            ("repositories", "/repositories".to_owned()),
            ("deliveries", "/deliveries".to_owned()),
        ];
        for (name, path) in &paths {
            browser.assert_readable(name, &format!("{}{path}", dashboard.url), &axe).await;
        }
        let faults = browser.call(json!({ "command": "faults" })).await;
        assert_eq!(faults, json!([]), "{faults:#}");

        // Everything is there without scripts, and a form works.
        browser.open(&page, json!({ "scripts": false })).await;
        let read = "document.querySelector('h1 .state').textContent === 'review' && document.body.innerText.includes('Iteration 2')";
        assert_eq!(browser.evaluate(read).await, true);
        browser.evaluate("[...document.querySelectorAll('.answers form')].find((f) => f.textContent.includes('Abort')).submit()").await;
        world.until("the end", |l| l.state == LoopState::Aborted).await;
        world.wait_until_idle().await;
    })
    .await;
}
