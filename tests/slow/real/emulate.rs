//! The GitHub path against `emulate`, a third-party stateful GitHub server: it signs deliveries, verifies the App's
//! signatures, issues its tokens and enforces their permissions. It has no reactions, statuses or GraphQL, like old or
//! reduced servers; a loop must complete without them.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::Method;
use ralph_bot::domain::loops::LoopState;
use ralph_bot::forge::github::{EVENTS, PERMISSIONS};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use super::front::Front;
use super::service::{RealService, bare_repository};
use crate::harness::SECRET;
use crate::harness::docs_tables::write_table;
use crate::harness::parts::{command, npm_part, program};

const REPOSITORY: &str = "mira/app";
const MIRA: &str = "mira-token-of-the-tests";
const BOT: &str = "bot-token-of-the-tests";
const APP_KEY: &str = include_str!("../../../crates/fake-forge/src/github/app-key.pem");

/// Script that makes `emulate` listen on a free loopback port and print it.
const PRELOAD: &str = r#"
const net = require("node:net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...given) {
  this.once("listening", () => console.log(`port ${this.address().port}`));
  return listen.call(this, { port: 0, host: "127.0.0.1" }, given.find((one) => typeof one === "function"));
};
"#;

/// Paths that `emulate` has no endpoint for.
const MISSING: [&str; 6] =
    ["/reactions ", "/status?", "/statuses/", "/graphql ", " /installation/repositories?", "/issues/comments?since="];

/// GitHub server with a repository, a maintainer and a bot.
struct EmulatedGitHub {
    front: Front,
    folder: TempDir,
    _process: Child,
    _output: Lines<BufReader<ChildStdout>>,
}

impl EmulatedGitHub {
    /// Starts the server; `None` if a part is missing.
    async fn start() -> Option<Self> {
        let package = npm_part("emulate@0.11.2")?;
        let node = program(&["node"], "install Node 20 or newer")?;
        let folder = tempfile::Builder::new().prefix("ralph-emulate-").tempdir().expect("a folder");
        let mut front = Front::bind(folder.path().join("git")).await;
        let seed = folder.path().join("seed.json");
        std::fs::write(&seed, seeds(&front.relay()).to_string()).expect("the seed is written");
        let preload = folder.path().join("preload.cjs");
        std::fs::write(&preload, PRELOAD).expect("the preload is written");
        let mut process = command(node)
            .arg("--require")
            .arg(&preload)
            .arg(package.join("dist/index.js"))
            .args(["start", "--service", "github", "--base-url", &front.url, "--seed"])
            .arg(&seed)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let mut output = BufReader::new(process.stdout.take().expect("piped")).lines();
        let port = loop {
            let line = output.next_line().await.expect("it prints").expect("it says its port before it ends");
            if let Some(port) = line.strip_prefix("port ") {
                break port.to_owned();
            }
        };
        bare_repository(&folder.path().join(format!("git/{REPOSITORY}.git"))).await;
        front.serve(format!("http://127.0.0.1:{port}"), REPOSITORY, MIRA).await;
        Some(Self { front, folder, _process: process, _output: output })
    }

    async fn mira(&self, method: Method, path: &str, body: Value) -> Value {
        self.front.call(MIRA, method, &format!("/repos/{REPOSITORY}{path}"), body).await
    }

    /// Names of an issue's labels.
    async fn labels(&self, issue: u64) -> Vec<String> {
        let found = self.mira(Method::GET, &format!("/issues/{issue}"), Value::Null).await;
        let labels = found["labels"].as_array().expect("labels").iter();
        labels.map(|label| label["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Runs the main story: sets the label, waits for the service, and merges as the maintainer.
    async fn main_story(&self, service: RealService, bot: &str) {
        self.mira(Method::POST, "/labels", json!({ "name": "ralph:run", "color": "0e8a16" })).await;
        let issue = json!({ "title": "The answer is wrong", "body": "It should be 42." });
        let issue = self.mira(Method::POST, "/issues", issue).await["number"].as_u64().expect("a number");
        let label = json!({ "labels": ["ralph:run"] });
        self.mira(Method::POST, &format!("/issues/{issue}/labels"), label).await;

        let is_ready =
            async |pull| self.mira(Method::GET, &format!("/pulls/{pull}"), Value::Null).await["draft"] == false;
        let done = service.until_ready(is_ready).await;
        let number = done.pull.opened.expect("a pull request").number;
        let pull = self.mira(Method::GET, &format!("/pulls/{number}"), Value::Null).await;
        assert_eq!(pull["head"]["sha"], done.branch.pushed.expect("a pushed commit").as_str());
        assert_eq!(pull["head"]["ref"], done.branch.name);
        assert_eq!(pull["user"]["login"], bot);
        assert!(pull["body"].as_str().is_some_and(|body| body.contains(&format!("#{issue}"))), "{}", pull["body"]);
        let comments = self.mira(Method::GET, &format!("/issues/{issue}/comments"), Value::Null).await;
        let ours = comments.as_array().expect("comments").iter().filter(|comment| comment["user"]["login"] == bot);
        assert!(ours.count() > 0, "the bot says what it does: {comments}");

        let merged = self.mira(Method::PUT, &format!("/pulls/{number}/merge"), json!({})).await;
        assert_eq!(merged["merged"], true);
        service.until(LoopState::Merged).await;
        service.wait_until_idle().await;
        let labels = self.labels(issue).await;
        assert!(labels.contains(&"ralph:merged".to_owned()), "{labels:?}");
        assert!(!labels.contains(&"ralph:review".to_owned()), "{labels:?}");
        service.stop().await;
        let refused = self.front.refused();
        let unexpected: Vec<_> = refused.iter().filter(|call| !passes(call)).collect();
        assert!(unexpected.is_empty(), "{unexpected:?}");
    }
}

/// Whether a failed call has no endpoint in `emulate`.
fn passes(call: &str) -> bool {
    call.ends_with(" 404") && MISSING.iter().any(|part| call.contains(part))
}

/// Initial people, tokens, repository and App.
fn seeds(webhook: &str) -> Value {
    let permissions: serde_json::Map<String, Value> =
        PERMISSIONS.iter().map(|(name, access)| ((*name).to_owned(), json!(access))).collect();
    let scopes = json!(["repo", "user", "admin:repo_hook"]);
    json!({
        "tokens": {
            MIRA: { "login": "mira", "scopes": scopes },
            BOT: { "login": "ralph-bot", "scopes": scopes },
        },
        "github": {
            // An App's account is there from the App's start on GitHub; here it would come with its first comment.
            "users": [{ "login": "mira" }, { "login": "ralph-bot" }, { "login": "ralph[bot]" }],
            "repos": [{ "owner": "mira", "name": "app", "auto_init": false }],
            "apps": [{
                "app_id": 77, "slug": "ralph", "name": "Ralph", "private_key": APP_KEY, "permissions": permissions,
                "events": EVENTS, "webhook_url": webhook, "webhook_secret": SECRET,
                "installations": [{
                    "installation_id": 501, "account": "mira", "repository_selection": "selected",
                    "repositories": ["app"],
                }],
            }],
        },
    })
}

/// Records the time of a story that passed, and writes the table.
fn record(story: &'static str, start: Instant) {
    static TIMES: Mutex<BTreeMap<&str, Duration>> = Mutex::new(BTreeMap::new());
    let mut times = TIMES.lock().expect("not poisoned");
    times.insert(story, start.elapsed());
    let rows: String =
        times.iter().map(|(story, took)| format!("| {story} | {:.1} s |\n", took.as_secs_f64())).collect();
    write_table("emulate", &format!("| story | emulate |\n|---|---:|\n{rows}"));
}

/// With a personal access token of the bot's account, and a webhook of the repository.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_label_to_merge_with_a_token() {
    let start = Instant::now();
    let Some(github) = EmulatedGitHub::start().await else { return };
    github.mira(Method::PUT, "/collaborators/ralph-bot", json!({ "permission": "push" })).await;
    let forge = format!("kind: github, url: \"{}\", token_env: TOKEN", github.front.url);
    let service = RealService::start(&forge, &[("TOKEN", BOT)]).await;
    let config = json!({ "url": service.hook(), "content_type": "json", "secret": SECRET });
    let hook = json!({ "name": "web", "active": true, "events": EVENTS, "config": config });
    github.mira(Method::POST, "/hooks", hook).await;
    github.main_story(service, "ralph-bot").await;
    record("from label to merge with a token", start);
}

/// With a GitHub App: authenticates by its key, uses installation tokens, and receives deliveries at its own webhook.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_label_to_merge_as_an_app() {
    let start = Instant::now();
    let Some(github) = EmulatedGitHub::start().await else { return };
    let key = github.folder.path().join("app.pem");
    std::fs::write(&key, APP_KEY).expect("the key is written");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("for its owner alone");
    let forge =
        format!("kind: github, url: \"{}\", app_id: 77, private_key_file: \"{}\"", github.front.url, key.display());
    let service = RealService::start(&forge, &[]).await;
    github.front.hand_on_to(service.address());
    github.main_story(service, "ralph[bot]").await;
    record("from label to merge as an app", start);
}
