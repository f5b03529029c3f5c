//! The dashboard in a real browser while loops run: a login and an answer by buttons alone, and pages that catch up with what they
//! missed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fake_forge::Dialect;
use ralph_bot::domain::loops::{LoopState, LoopStep};
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::browser::Browser;
use crate::harness::dashboard::ServedPages;
use crate::harness::viewers::{ViewerKind, dashboard, open_logins, prepare_logins, with_login};
use crate::harness::{Setup, live_story, on_both_forges, prepared_story};

/// Maximum time in milliseconds in which a page shows what it missed; connections are tried again at growing intervals.
const CATCHES_UP_MS: u64 = 60_000;

on_both_forges!(paused_loop_is_resumed_by_buttons_after_a_login);

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
        browser.until("document.querySelector('h1')?.textContent === 'Waiting for you'").await;

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
    let agent = format!(
        "while [ ! -e {}/$RALPH_ITERATION ]; do sleep 0.05; done\n\
         if [ $RALPH_ITERATION = 1 ]; then echo 40 >answer.txt; else echo 42 >answer.txt; fi\n",
        folder.path().display()
    );
    live_story(Setup::new(Dialect::Gitea).agent(&agent), async |world| {
        let served = ServedPages::of(world, true).await;
        let connection = Connection::to(&served.url).await;
        world.label().await;
        let running = world.until("an agent that runs", |l| l.step == LoopStep::Agent).await;
        browser.open(&format!("{}/loops/{}", connection.url, running.id), json!({})).await;
        browser.until("document.querySelector('h1 .state').textContent === 'running'").await;
        browser.evaluate("window.same = true").await;
        let second = format!("document.querySelector('a[href=\"/loops/{}/iterations/2\"]') !== null", running.id);
        let caught_up =
            |expression: &str| json!({ "command": "until", "expression": expression, "limit": CATCHES_UP_MS });

        // What happens while the connection is down is shown once it is back.
        connection.cut();
        open_gate(folder.path(), 1);
        world.until("a second iteration", |l| l.iterations.len() == 2 && l.step == LoopStep::Agent).await;
        assert_eq!(browser.evaluate(&second).await, false, "the connection is down");
        connection.restore();
        browser.call(caught_up(&second)).await;

        // So is what happens while another tab covers the page.
        browser.call(json!({ "command": "hide", "hidden": true })).await;
        open_gate(folder.path(), 2);
        world.until("a review", |l| l.state == LoopState::Review).await;
        browser.call(json!({ "command": "hide", "hidden": false })).await;
        browser.call(caught_up("document.querySelector('h1 .state').textContent === 'review'")).await;
        assert_eq!(browser.evaluate("window.same").await, true, "the page was not loaded again");
        world.wait_until_idle().await;
    })
    .await;
}
