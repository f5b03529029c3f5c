//! Live pages in a real browser: the output of a running agent, and pages that catch up after a lost connection and a hidden tab.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use fake_forge::Dialect;
use ralph_bot::domain::loops::{Loop, LoopState, LoopStep};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::browser::Browser;
use crate::harness::dashboard::ServedPages;
use crate::harness::{Setup, World, live_story, on_one_forge};

on_one_forge!(
    open_page_shows_the_agents_output_while_it_runs,
    page_catches_up_after_its_connection_was_cut,
    page_catches_up_after_its_tab_was_hidden,
    page_catches_up_after_its_first_connection_failed,
    page_is_live_although_a_script_arrives_late,
);

/// Lines that the agent of the first story prints at once.
const LINES: usize = 60;

/// Returns a script of an agent that waits until a file exists.
fn wait_for(folder: &Path, name: &str) -> String {
    format!("while [ ! -e {} ]; do sleep 0.05; done\n", folder.join(name).display())
}

fn open_gate(folder: &Path, name: &str) {
    std::fs::write(folder.join(name), "").expect("the gate opens");
}

async fn running_agent(world: &World) -> Loop {
    world.label().await;
    world.until("an agent that runs", |l| l.run.step == LoopStep::Agent).await
}

/// The page shows the agent's output; following stops when a person scrolls up, and resumes at the end.
async fn open_page_shows_the_agents_output_while_it_runs(dialect: Dialect) {
    let Some(mut browser) = Browser::start().await else { return };
    let gates = tempfile::tempdir().expect("a folder");
    let mut agent = String::new();
    for (nth, gate) in ["one", "two", "three"].iter().enumerate() {
        let (first, last) = (nth * LINES + 1, (nth + 1) * LINES);
        writeln!(agent, "seq {first} {last} | sed 's/$/th line/'").expect("written");
        agent.push_str(&wait_for(gates.path(), gate));
    }
    agent.push_str("echo 42 >answer.txt\n");
    live_story(Setup::new(dialect).agent(&agent), async |world| {
        let dashboard = ServedPages::of(world, true).await;
        let running = running_agent(world).await;
        browser.open(&format!("{}/loops/{}/iterations/1", dashboard.url, running.id), json!({})).await;
        let shows = |line: usize| format!("document.getElementById('page').innerText.includes('{line}th line')");
        let is_followed =
            |yes: bool| format!("document.getElementById('follow').getAttribute('aria-pressed') === '{yes}'");
        let at_end = "innerHeight + scrollY >= document.documentElement.scrollHeight - 80";
        browser.until(&shows(LINES)).await;
        browser.evaluate("window.same = true; document.getElementById('follow').click()").await;
        browser.until(&is_followed(true)).await;

        open_gate(gates.path(), "one");
        browser.until(&shows(2 * LINES)).await;
        browser.until(at_end).await;
        browser.picture("iteration-running").await;

        // A person reads further up: the page grows and stays where it is.
        browser.evaluate("scrollTo(0, 100)").await;
        browser.until(&is_followed(false)).await;
        open_gate(gates.path(), "two");
        browser.until(&shows(3 * LINES)).await;
        assert_eq!(browser.evaluate(at_end).await, false, "the page jumped to its end");
        browser.evaluate("scrollTo(0, document.documentElement.scrollHeight)").await;
        browser.until(&is_followed(true)).await;

        // Its end replaces the live output.
        open_gate(gates.path(), "three");
        world.until("a review", |l| l.state == LoopState::Review).await;
        browser
            .until("document.getElementById('follow') === null && document.body.innerText.includes('Answer of agent')")
            .await;
        assert_eq!(browser.evaluate("window.same").await, true, "the page was not loaded again");
        world.wait_until_idle().await;
    })
    .await;
}

/// A browser beside a running loop, whose agent ends when its gate opens.
struct RunningLoop {
    browser: Browser,
    gates: TempDir,
    dashboard: ServedPages,
    /// Path of the loop's page.
    path: String,
}

impl RunningLoop {
    /// Opens the loop's page of a server.
    async fn open(&mut self, server: &str) {
        self.browser.open(&format!("{server}{}", self.path), json!({})).await;
    }

    /// Waits until the page reads the stream.
    async fn connected(&mut self) {
        self.browser.until("document.getElementById('feed')._htmx?.sse?.status === 200").await;
        self.browser.evaluate("window.same = true").await;
    }

    /// Lets the agent finish.
    async fn finish(&self, world: &World) {
        open_gate(self.gates.path(), "open");
        world.until("a review", |l| l.state == LoopState::Review).await;
        world.wait_until_idle().await;
    }

    /// Lets the agent finish while the page gets no events, so that it still shows a running loop.
    async fn finish_unseen(&mut self, world: &World) {
        self.finish(world).await;
        assert_eq!(self.browser.evaluate("document.querySelector('h1 .state').textContent").await, "running");
    }

    /// Waits until the page shows the end of the loop without having been loaded again.
    async fn assert_catches_up(&mut self) {
        self.browser.until("document.querySelector('h1 .state').textContent === 'review'").await;
        assert_eq!(self.browser.evaluate("window.same").await, true, "the page was not loaded again");
    }
}

async fn with_running_loop(dialect: Dialect, scenario: impl AsyncFnOnce(&mut World, &mut RunningLoop)) {
    let Some(browser) = Browser::start().await else { return };
    let gates = tempfile::tempdir().expect("a folder");
    let agent = format!("{}echo 42 >answer.txt\n", wait_for(gates.path(), "open"));
    live_story(Setup::new(dialect).agent(&agent), async move |world| {
        let dashboard = ServedPages::of(world, true).await;
        let path = format!("/loops/{}", running_agent(world).await.id);
        scenario(world, &mut RunningLoop { browser, gates, dashboard, path }).await;
    })
    .await;
}

/// A connection that ends without any event, and a loop that changes in the meantime.
async fn page_catches_up_after_its_connection_was_cut(dialect: Dialect) {
    with_running_loop(dialect, async |world, running| {
        let line = CutLine::to(&running.dashboard.url).await;
        running.open(&line.url).await;
        running.browser.until("document.querySelector('h1 .state').textContent === 'running'").await;
        running.connected().await;
        line.cut();
        running.browser.until("document.getElementById('feed')._htmx.sse.attempt > 0").await;
        running.finish_unseen(world).await;
        line.mend();
        running.assert_catches_up().await;
    })
    .await;
}

/// The stream of a hidden tab pauses; the page that is shown again has the newest state.
async fn page_catches_up_after_its_tab_was_hidden(dialect: Dialect) {
    with_running_loop(dialect, async |world, running| {
        running.open(&running.dashboard.url.clone()).await;
        running.connected().await;
        running.browser.call(json!({ "command": "hide" })).await;
        running.browser.until("document.getElementById('feed')._htmx.sse.reader === null").await;
        running.finish_unseen(world).await;
        running.browser.call(json!({ "command": "show" })).await;
        running.assert_catches_up().await;
    })
    .await;
}

/// A page whose stream is refused at first, such as by a proxy while the service restarts.
async fn page_catches_up_after_its_first_connection_failed(dialect: Dialect) {
    with_running_loop(dialect, async |world, running| {
        running.browser.call(json!({ "command": "block", "urls": ["*/events*"] })).await;
        running.open(&running.dashboard.url.clone()).await;
        running.browser.until("document.querySelector('h1 .state').textContent === 'running'").await;
        running.browser.evaluate("window.same = true").await;
        running.finish_unseen(world).await;
        running.browser.call(json!({ "command": "block", "urls": [] })).await;
        running.assert_catches_up().await;
    })
    .await;
}

/// The scripts of a page arrive one after the other, the stream reader last.
async fn page_is_live_although_a_script_arrives_late(dialect: Dialect) {
    with_running_loop(dialect, async |world, running| {
        running.browser.call(json!({ "command": "delay", "url": "*/hx-sse.min.js", "milliseconds": 1000 })).await;
        running.open(&running.dashboard.url.clone()).await;
        running.connected().await;
        running.finish(world).await;
        running.assert_catches_up().await;
    })
    .await;
}

/// A line to a server that can be cut: connections end, and new ones are closed at once until it is mended.
struct CutLine {
    url: String,
    whole: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl CutLine {
    async fn to(url: &str) -> Self {
        let server: SocketAddr = url.strip_prefix("http://").expect("an address").parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (whole, state) = watch::channel(true);
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("a connection");
                if *state.borrow() {
                    tokio::spawn(carry(client, server, state.clone()));
                }
            }
        });
        Self { url, whole, task }
    }

    fn cut(&self) {
        self.whole.send_replace(false);
    }

    fn mend(&self) {
        self.whole.send_replace(true);
    }
}

impl Drop for CutLine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr, mut whole: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = whole.wait_for(|whole| !whole) => {}
    }
}
