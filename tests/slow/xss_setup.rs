//! Hostile texts in the pages of the set-up, in a real browser with and without their content security policy: texts that a person
//! enters, that an address brings, and that the forge answers.

use fake_forge::{Access, Dialect, FakeFault, FakeForge};
use ralph_bot::clock::Clock;
use ralph_bot::config::Env;
use ralph_bot::domain::model::ids::AccountKind;
use ralph_bot::setup::{OperatorFileLocation, SetupMode, SetupServer};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::harness::payloads::HOSTILE_TEXTS;
use crate::xss::{AT_ONCE, INSPECT, inspected};

/// Name of the operator's file.
const FILE: &str = "ralph-control.yaml";

/// Set-up of a fake Gitea, with a browser that has entered its token.
struct SetupPages {
    browser: Browser,
    server: SetupServer,
    forge: FakeForge,
    /// Token of the bot's account.
    token: String,
    folder: tempfile::TempDir,
    base: String,
}

impl SetupPages {
    /// Starts everything; `None` if there is no browser.
    async fn open() -> Option<Self> {
        let mut browser = Browser::start().await?;
        let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.expect("a forge");
        let (owner, bot) = (forge.add_user("mira", AccountKind::User), forge.add_user("ralph", AccountKind::User));
        let repo = forge.create_repo(&owner.login, "app", &[("README.md", "# app\n", false)]).await.expect("made");
        forge.grant(repo, &bot, Access::Admin).expect("granted");
        let token = forge.token_for(&bot);
        let folder = tempfile::tempdir().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let place = OperatorFileLocation { file: folder.path().join(FILE), env: Env::of([("PATH", path.as_str())]) };
        let listen = "127.0.0.1:0".parse().expect("an address");
        let server = SetupServer::start(place, SetupMode::Service, listen, Clock::System).await.expect("it listens");
        let base = format!("http://{}", server.address);
        browser.call(json!({ "command": "watch", "origin": base, "script": INSPECT })).await;
        let pages = Self { browser, server, forge, token, folder, base };
        pages.forget();
        Some(pages)
    }

    /// Makes the set-up one that has no forge.
    fn forget(&self) {
        for entry in std::fs::read_dir(self.folder.path()).expect("a folder").flatten() {
            let path = entry.path();
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.expect("removed");
        }
        std::fs::write(
            self.folder.path().join(FILE),
            "server: { listen: '127.0.0.1:0' }\nsandbox: { required: none }\n",
        )
        .expect("written");
    }

    async fn show(&mut self, path: &str) {
        let url = format!("{}{path}", self.base);
        self.browser.open(&url, json!({})).await;
    }

    /// Enters values into a form of the page, and sends it as a button would.
    async fn send(&mut self, action: &str, fields: &[(&str, &str)]) {
        let script = format!(
            "(() => {{
                window.before = true;
                const form = document.querySelector('form[action=\"{action}\"]');
                for (const [name, value] of {}) {{
                    const field = form.elements[name];
                    if (field.tagName === 'SELECT') field.add(new Option(value, value, true, true));
                    field.value = value;
                }}
                form.submit();
            }})()",
            json!(fields)
        );
        self.browser.evaluate(&script).await;
        self.browser.until("window.before === undefined && document.readyState === 'complete'").await;
    }

    /// Lets the forge answer the next requests to a path with a body.
    fn answer(&self, times: u32, path: &str, status: u16, body: &Value) {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let fault = FakeFault::Respond { status, headers, body: body.to_string(), apply: false };
        self.forge.faults().next(times, "GET", path, fault).expect("a pattern");
    }

    /// Inspects the page; returns the number of the texts that it shows.
    async fn assert_harmless(&mut self, what: &str, texts: &[&str]) -> u64 {
        let (wrong, shown) = inspected(&mut self.browser, texts).await;
        // Forms of the page go to the set-up.
        let own = |alarm: &String| {
            let alarm = alarm.trim_matches('"');
            alarm.strip_prefix("navigation: ").is_some_and(|url| url.starts_with(&format!("{}/setup", self.base)))
        };
        let wrong: Vec<String> = wrong.into_iter().filter(|alarm| !own(alarm)).collect();
        assert_eq!(wrong, [""; 0], "{what}, of {texts:#?}");
        shown
    }

    /// Shows the texts in all stages; returns how many of them each of the stages showed.
    async fn stages(&mut self, texts: &[&'static str]) -> [(&'static str, u64); 5] {
        let text = texts.join(" ").replace('\u{0}', "");
        let query: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        self.show(&format!("/setup/github/created?code={query}&state={query}")).await;
        self.assert_harmless("the answer of GitHub", texts).await;
        self.show("/setup").await;
        let fields = [("organization", &*text), ("url", &text), ("api_url", &text), ("public_url", &text)];
        self.send("/setup/github", &fields).await;
        let github = self.assert_harmless("the form of GitHub", texts).await;
        self.show("/setup").await;
        let fields = [("url", &*text), ("token", "x"), ("repositories", &text), ("public_url", &text)];
        self.send("/setup/token", &fields).await;
        let gitea = self.assert_harmless("the form of Gitea", texts).await;

        // A forge that refuses, and one that answers with names.
        let (url, token) = (self.forge.url().to_string(), self.token.clone());
        let fields = [("url", &*url), ("token", &token), ("repositories", "mira/app"), ("public_url", "")];
        self.answer(1, "/user$", 422, &json!({ "message": text }));
        self.show("/setup").await;
        self.send("/setup/token", &fields).await;
        let refused = self.assert_harmless("a refusal of the forge", texts).await;
        self.forge.faults().clear();
        self.answer(1, "/user$", 200, &json!({ "id": 2, "login": text }));
        let names: Vec<Value> = texts
            .iter()
            .zip(100..)
            .map(|(name, id)| {
                let owner = json!({ "id": 1, "login": "mira" });
                json!({ "id": id, "name": name, "full_name": name, "owner": owner, "permissions": { "push": true } })
            })
            .collect();
        self.answer(9, "/user/repos$", 200, &json!(names));
        self.show("/setup").await;
        self.send("/setup/token", &fields).await;
        let answered = self.assert_harmless("names of the forge", texts).await;
        self.send("/setup/check", &[("repositories", &text)]).await;
        self.assert_harmless("repositories to check", texts).await;
        self.send("/setup/try", &[("repository", &text)]).await;
        self.assert_harmless("a repository to try", texts).await;
        let name = format!("mira/{}", text.replace('/', ""));
        self.show("/setup").await;
        self.send("/setup/try", &[("repository", &name)]).await;
        self.browser
            .until("document.querySelector('#try') !== null && document.querySelector('.notice.wrong') !== null")
            .await;
        let tried = self.assert_harmless("a failed trial", texts).await;
        self.forge.faults().clear();
        self.forget();
        let shown = [github, gitea, refused, answered, tried];
        let names = ["the form of GitHub", "the form of Gitea", "a refusal", "names of the forge", "a failed trial"];
        std::array::from_fn(|nth| (names[nth], shown[nth]))
    }
}

/// See docs/research/threats.md#i11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_texts_have_no_effect_in_the_setup() {
    let Some(mut pages) = SetupPages::open().await else { return };
    let link = pages.server.link().expose_secret().to_owned();
    pages.browser.open(&link, json!({})).await;
    pages.browser.until("location.search === '' && document.querySelector('#gitea') !== null").await;
    let mut shown_in = std::collections::BTreeMap::<&str, u64>::new();
    for texts in HOSTILE_TEXTS.chunks(AT_ONCE) {
        for bypass in [false, true] {
            pages.browser.call(json!({ "command": "bypass", "enabled": bypass })).await;
            for (stage, shown) in pages.stages(texts).await {
                *shown_in.entry(stage).or_default() += shown;
            }
        }
    }
    let faults = pages.browser.call(json!({ "command": "faults" })).await.to_string();
    assert!(!faults.contains("Content Security"), "{faults}");
    let all = 2 * HOSTILE_TEXTS.len() as u64;
    for (stage, shown) in &shown_in {
        // A refusal is shown shortened, and the name of a repository has no slashes.
        let least = match *stage {
            "a refusal" => all * 3 / 10,
            "a failed trial" => all * 5 / 10,
            _ => all * 7 / 10,
        };
        assert!(*shown > least, "{stage} shows {shown} of {all}: {shown_in:#?}");
    }
    assert_eq!(shown_in.len(), 5, "{shown_in:#?}");
    pages.server.stop().await;
}
