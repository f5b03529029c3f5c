//! The dashboard in a real browser while loops run: a login and an answer by buttons alone, pages that catch up with what they
//! missed, and output that is followed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fake_forge::Dialect;
use ralph_bot::domain::loops::{LoopState, LoopStep};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::browser::Browser;
use crate::harness::dashboard::ServedPages;
use crate::harness::viewers::{ViewerKind, dashboard, open_logins, prepare_logins, with_login};
use crate::harness::{Setup, live_story, on_both_forges, prepared_story};

on_both_forges!(paused_loop_is_resumed_by_buttons_after_a_login);

/// Backend whose agent prints 120 lines, waits for the file `1` in a folder, prints 120 lines, waits for `2` and so on, and solves the
/// task after the last.
fn gated_backend(folder: &Path, gates: usize) -> String {
    let folder = folder.display();
    let mut script = "cat >/dev/null\n".to_owned();
    for gate in 1..=gates {
        let lines: Vec<String> = (1..=120).map(|line| format!("part {gate}, line {line}")).collect();
        let content = [json!({ "type": "text", "text": lines.join("\n") })];
        let message = json!({ "id": format!("m{gate}"), "role": "assistant", "content": content });
        let message = json!({ "type": "assistant", "message": message, "session_id": "s" });
        script.push_str(&format!("echo '{message}'\nwhile [ ! -e {folder}/{gate} ]; do sleep 0.05; done\n"));
    }
    let result = json!({ "type": "result", "subtype": "success", "is_error": false, "result": "done", "session_id": "s", "usage": {} });
    script.push_str(&format!("echo 42 >answer.txt\necho '{result}'\n"));
    let command = json!(["/bin/sh", "-c", script, "claude"]);
    format!(
        "  claude: {{ enabled: true, command: {command} }}\npriority: {{ agent: [claude] }}\n\
         limits: {{ comments_per_hour: 1000, comments_per_day: 1000 }}\n"
    )
}

fn open_gate(folder: &Path, gate: usize) {
    std::fs::write(folder.join(gate.to_string()), "").expect("the gate opens");
}

/// A person logs in on the forge's page, finds the loop that waits, and answers it.
async fn paused_loop_is_resumed_by_buttons_after_a_login(dialect: Dialect) {
    let Some(mut browser) = Browser::start().await else { return };
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
        browser.picture("login").await;
        browser.evaluate("document.querySelector('main a[href^=\"/login/start\"], main form button').click()").await;
        browser.until("document.body.innerText.includes('asks who you are')").await;
        let login = ViewerKind::Writer.login();
        browser.evaluate(&format!("document.querySelector('button[value={login}]').click()")).await;
        browser.until(&format!("location.origin === '{}'", home.origin().ascii_serialization())).await;
        browser.until("document.querySelector('h1')?.textContent === 'What waits for you'").await;

        // The loop that waits is first, with its evidence and its answers.
        let card = format!("#wait-{}", paused.id);
        assert_eq!(browser.evaluate(&format!("document.querySelector('{card} strong') !== null")).await, true);
        browser.picture("home-waiting").await;
        std::fs::write(&file, "").expect("the gate opens");
        let press = |button: &str, field: &str| {
            format!(
                "(() => {{ const form = [...document.querySelectorAll('{card} form')].find((form) => \
                 form.querySelector('button').textContent.includes('{button}')); \
                 if ({field}) form.querySelector('textarea').value = 'Write 42.'; form.querySelector('button').click(); }})()"
            )
        };
        browser.evaluate(&press("Resume", "true")).await;
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
    })
    .await;
}

/// Proxy between a browser and a server, whose connections can be cut.
struct Connection {
    url: String,
    open: Arc<AtomicBool>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Connection {
    async fn to(server: &str) -> Self {
        let server: SocketAddr = server.strip_prefix("http://").expect("an address").parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (open, tasks) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(JoinSet::new())));
        let (is_open, all) = (Arc::clone(&open), Arc::clone(&tasks));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                if is_open.load(Ordering::SeqCst) {
                    all.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
                        if let Ok(mut upstream) = TcpStream::connect(server).await {
                            let _ = copy_bidirectional(&mut client, &mut upstream).await;
                        }
                    });
                }
            }
        });
        Self { url, open, tasks }
    }

    /// Closes all connections and refuses new ones.
    fn cut(&self) {
        self.open.store(false, Ordering::SeqCst);
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    fn restore(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_page_catches_up_after_a_lost_connection_and_a_hidden_tab() {
    let Some(mut browser) = Browser::start().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(Dialect::Gitea).config(&gated_backend(folder.path(), 2));
    live_story(setup, async |world| {
        let served = ServedPages::of(world, true).await;
        let connection = Connection::to(&served.url).await;
        world.label().await;
        let running = world.until("an agent that runs", |l| l.step == LoopStep::Agent).await;
        let (id, text) = (running.id.clone(), "document.getElementById('page').innerText");
        browser.open(&format!("{}/loops/{id}/iterations/1", connection.url), json!({})).await;
        browser.until(&format!("{text}.includes('part 1, line 120')")).await;
        browser.evaluate("window.same = true").await;

        // What the agent prints while the connection is down is shown once it is back.
        connection.cut();
        open_gate(folder.path(), 1);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(browser.evaluate(&format!("{text}.includes('part 2')")).await, false, "the connection is down");
        connection.restore();
        browser.call(json!({ "command": "until", "expression": format!("{text}.includes('part 2, line 120')"), "limit": 60_000 })).await;

        // So is what happens while another tab covers the page.
        browser.call(json!({ "command": "hide", "hidden": true })).await;
        open_gate(folder.path(), 2);
        world.until("a review", |l| l.state == LoopState::Review).await;
        browser.call(json!({ "command": "hide", "hidden": false })).await;
        browser.call(json!({ "command": "until", "expression": format!("{text}.includes('fresh checkout') || {text}.includes('passed')"), "limit": 60_000 })).await;
        assert_eq!(browser.evaluate("window.same").await, true, "the page was not loaded again");
        world.wait_until_idle().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followed_output_stays_in_view_until_one_scrolls() {
    let Some(mut browser) = Browser::start().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup::new(Dialect::Gitea).config(&gated_backend(folder.path(), 3));
    live_story(setup, async |world| {
        let served = ServedPages::of(world, true).await;
        world.label().await;
        let running = world.until("an agent that runs", |l| l.step == LoopStep::Agent).await;
        browser.open(&format!("{}/loops/{}/iterations/1", served.url, running.id), json!({})).await;
        let shows = |text: &str| format!("document.getElementById('page').innerText.includes('{text}')");
        browser.until(&shows("part 1, line 120")).await;
        browser.evaluate("document.getElementById('follow').click()").await;
        let pressed = "document.getElementById('follow').getAttribute('aria-pressed')";
        assert_eq!(browser.evaluate(pressed).await, "true");
        let below = "document.documentElement.scrollHeight - innerHeight - scrollY";
        let distance = |value: Value| value.as_f64().expect("a number of pixels");
        let height = distance(browser.evaluate("document.documentElement.scrollHeight").await);

        open_gate(folder.path(), 1);
        browser.until(&shows("part 2, line 120")).await;
        assert!(distance(browser.evaluate("document.documentElement.scrollHeight").await) > height, "the page has grown");
        browser.until(&format!("{below} < 100")).await;
        assert_eq!(browser.evaluate(pressed).await, "true");

        // A person who scrolls stays there.
        browser.evaluate("scrollTo(0, 100)").await;
        browser.until(&format!("{pressed} === 'false'")).await;
        open_gate(folder.path(), 2);
        browser.until(&shows("part 3, line 120")).await;
        assert_eq!(browser.evaluate("scrollY").await, 100);
        assert_eq!(browser.evaluate(pressed).await, "false");

        open_gate(folder.path(), 3);
        world.until("a review", |l| l.state == LoopState::Review).await;
        world.wait_until_idle().await;
    })
    .await;
}
