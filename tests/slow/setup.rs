//! Set-up: from nothing to a configured forge and a first verified pull request, by the pages and by the command line.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use fake_forge::{Access, Dialect, FakeFault, FakeForge};
use ralph_bot::clock::Clock;
use ralph_bot::config::{Config, Env, ForgeAuth};
use ralph_bot::domain::model::ids::{AccountKind, RepoId, User};
use ralph_bot::forge::github::PERMISSIONS;
use ralph_bot::setup::{OperatorFileLocation, SetupMode, SetupServer};
use secrecy::ExposeSecret;
use serde_json::Value;
use test_support::free_port;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::harness::parts::command;

const WAIT: Duration = Duration::from_secs(90);
/// Configuration of stories: the scripted agent runs without a sandbox, which a machine of tests may not have.
const BASE: &str = "sandbox: { required: none }\nengine: { poll_ms: 50, mutation_interval_ms: 0 }\n";

/// A forge with a maintainer, the bot and a repository, and a folder for the configuration.
struct Beginning {
    forge: FakeForge,
    bot: User,
    repo: RepoId,
    folder: tempfile::TempDir,
}

impl Beginning {
    async fn new(dialect: Dialect) -> Self {
        let forge = FakeForge::start(dialect, Clock::System).await.expect("a forge");
        let owner = forge.add_user("mira", AccountKind::User);
        let bot = forge.add_user("ralph", AccountKind::User);
        let repo =
            forge.create_repo(&owner.login, "app", &[("README.md", "# app\n", false)]).await.expect("a repository");
        if dialect == Dialect::Gitea {
            forge.grant(repo, &bot, Access::Admin).expect("granted");
        }
        forge.create_repo("acme", "other", &[("README.md", "# other\n", false)]).await.expect("an organization");
        Self { forge, bot, repo, folder: tempfile::tempdir().expect("a folder") }
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("ralph-control.yaml")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.file(), text).expect("written");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn place(&self) -> OperatorFileLocation {
        let path = std::env::var("PATH").unwrap_or_default();
        OperatorFileLocation { file: self.file(), env: Env::of([("PATH", path.as_str())]) }
    }

    fn config(&self) -> Config {
        self.place().config().unwrap_or_else(|problems| panic!("{problems}\n{}", self.read("ralph-control.yaml")))
    }

    /// Starts the set-up at an address that the forge reaches, and enters its token.
    async fn serve(&self, clock: &Clock) -> (SetupServer, SetupVisitor) {
        let listen = "127.0.0.1:0".parse().expect("an address");
        let server =
            SetupServer::start(self.place(), SetupMode::Service, listen, clock.clone()).await.expect("it listens");
        self.write(&format!("server: {{ listen: '127.0.0.1:0', public_url: 'http://{}' }}\n{BASE}", server.address));
        let mut visitor = SetupVisitor::new(&format!("http://{}", server.address));
        visitor.enter(server.link().expose_secret()).await;
        (server, visitor)
    }
}

/// A browser that keeps cookies and follows no redirect by itself.
#[derive(Clone)]
struct SetupVisitor {
    client: reqwest::Client,
    base: String,
    cookies: BTreeMap<String, String>,
}

/// Answer to a visitor.
#[derive(Debug)]
struct VisitorAnswer {
    status: u16,
    headers: reqwest::header::HeaderMap,
    text: String,
}

impl VisitorAnswer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Returns an attribute of the first tag after a mark, without escapes.
fn attribute(page: &str, mark: &str, name: &str) -> String {
    let after = page.find(mark).map(|at| &page[at..]).unwrap_or_else(|| panic!("no {mark} in {page}"));
    let start = after.find(&format!("{name}=\"")).unwrap_or_else(|| panic!("no {name} after {mark} in {page}"));
    let value = &after[start + name.len() + 2..];
    let value = &value[..value.find('"').expect("an end")];
    [("&quot;", "\""), ("&#x2f;", "/"), ("&#x27;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")]
        .iter()
        .fold(value.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

fn form(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

impl SetupVisitor {
    fn new(base: &str) -> Self {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build();
        Self { client: client.expect("a client"), base: base.to_owned(), cookies: BTreeMap::new() }
    }

    async fn send(&mut self, request: reqwest::RequestBuilder) -> VisitorAnswer {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let response = request.header("cookie", cookies.join("; ")).timeout(WAIT).send().await.expect("an answer");
        for line in response.headers().get_all("set-cookie") {
            let line = line.to_str().expect("text");
            let (name, value) = line.split(';').next().and_then(|pair| pair.split_once('=')).expect("a cookie");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        VisitorAnswer { status, headers, text: response.text().await.expect("a body") }
    }

    fn address(&self, path: &str) -> String {
        if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.base) }
    }

    async fn get(&mut self, path: &str) -> VisitorAnswer {
        let request = self.client.get(self.address(path));
        self.send(request).await
    }

    async fn post_raw(&mut self, path: &str, fields: &[(&str, &str)], origin: &str) -> VisitorAnswer {
        let request = self.client.post(self.address(path)).header("content-type", "application/x-www-form-urlencoded");
        let request = if origin.is_empty() { request } else { request.header("origin", origin) };
        self.send(request.body(form(fields))).await
    }

    /// Sends a form of the page with its `csrf` value.
    async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> VisitorAnswer {
        let page = self.get("/setup").await.text;
        let csrf = attribute(&page, "name=\"csrf\"", "value");
        let origin = self.base.clone();
        self.post_raw(path, &[fields, &[("csrf", &csrf)]].concat(), &origin).await
    }

    async fn enter(&mut self, link: &str) {
        let entered = self.get(link).await;
        assert_eq!((entered.status, entered.header("location")), (303, "/setup"), "{entered:?}");
        assert!(entered.header("set-cookie").contains("HttpOnly; SameSite=Lax"), "{entered:?}");
    }

    /// Creates the App on GitHub's pages, from the page with the manifest, and returns the address of the return.
    async fn create_on_github(&mut self, page: &str) -> String {
        let (address, manifest) = (attribute(page, "<form", "action"), attribute(page, "name=\"manifest\"", "value"));
        let mut github = Self::new("");
        let shown = github.post_raw(&address, &[("manifest", &manifest)], "").await;
        assert_eq!(shown.status, 200, "{address}: {shown:?}");
        let (action, name) =
            (attribute(&shown.text, "<form", "action"), attribute(&shown.text, "name=\"name\"", "value"));
        let base = url::Url::parse(&address).expect("an address");
        let action = base.join(&action).expect("an address").to_string();
        let made = github.post_raw(&action, &[("manifest", &manifest), ("name", &name)], "").await;
        assert_eq!(made.status, 302, "{made:?}");
        made.header("location").to_owned()
    }

    /// Loads the page until it has a text.
    async fn until(&mut self, text: &str) -> String {
        let waiting = async {
            loop {
                let page = self.get("/setup").await.text;
                if page.contains(text) {
                    return page;
                }
                assert!(!page.contains("the loop is ") && !page.contains("The loop is paused"), "{page}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(WAIT, waiting).await.unwrap_or_else(|_| panic!("the page never has {text:?}"))
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777
}

/// The pages lead from an App that does not exist to a verified pull request; afterwards they are closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn github_app_is_created_and_tried_by_the_pages() {
    let beginning = Beginning::new(Dialect::GitHub).await;
    let (server, mut visitor) = beginning.serve(&Clock::System).await;
    let github = beginning.forge.url().to_string();
    let page = visitor
        .post("/setup/github", &[("organization", "acme"), ("url", &github), ("public_url", &visitor.base.clone())])
        .await;
    assert_eq!(page.status, 200, "{page:?}");
    let policy = page.header("content-security-policy");
    let origin = github.trim_end_matches('/');
    assert!(policy.contains(&format!("form-action 'self' {origin};")) && !policy.contains("unsafe"), "{policy}");
    assert!(attribute(&page.text, "<form", "action").contains("/organizations/acme/settings/apps/new?state="));
    let back = visitor.create_on_github(&page.text).await;
    let created = visitor.get(&back).await;
    assert_eq!((created.status, created.header("location")), (303, "/setup"), "{created:?}");

    let app = beginning.forge.with(|state| state.apps.values().next().cloned()).expect("an App");
    let wanted: BTreeMap<String, String> =
        PERMISSIONS.iter().map(|(name, level)| ((*name).into(), (*level).into())).collect();
    assert_eq!(app.permissions, wanted);
    assert_eq!(app.hook.url, format!("{}/webhooks/github", visitor.base));
    for name in ["github-app-key.pem", "github-webhook-secret", "data/login-clients/github"] {
        assert_eq!(mode(&beginning.folder.path().join(name)), 0o600, "{name}");
    }
    assert!(!beginning.folder.path().join("github-app-answer.json").exists());
    assert_eq!(beginning.read("github-webhook-secret"), app.hook.secret);
    let config = beginning.config();
    assert!(matches!(config.forges[0].auth, ForgeAuth::App { id, .. } if id == app.id.unsigned_abs()));
    let (client, secret) = app.client.clone().expect("a client");
    let login = config.forges[0].login.clone().expect("a login");
    assert_eq!((login.id, login.secret.expose_secret()), (client, secret.as_str()));
    assert!(beginning.read("ralph-control.yaml").contains("engine: { poll_ms: 50"), "the rest is unchanged");

    // The same address a second time does nothing.
    let again = visitor.get(&back).await;
    assert!(again.status == 403 && again.text.contains("was used before"), "{again:?}");

    let page = visitor.get("/setup").await;
    assert!(page.text.contains("Install the App on the repositories") && page.header("refresh") == "5", "{page:?}");
    let install = attribute(&page.text, "Install the App on the repositories", "href");
    assert_eq!(install, format!("{github}apps/{}/installations/new", app.slug));
    let mut person = SetupVisitor::new("");
    person.post_raw(&format!("{github}apps/{}/installations", app.slug), &[], "").await;
    visitor.until("The App is installed.").await;

    let begun = visitor.post("/setup/try", &[("repository", "mira/app")]).await;
    assert_eq!(begun.status, 303, "{begun:?}");
    let page = visitor.until("The first pull request is verified").await;
    assert!(page.contains("It has the label ralph:run.") && page.contains("State of the loop: review"), "{page}");
    assert_tried(&beginning).await;
    let cleaned = visitor.post("/setup/clean-up", &[]).await;
    assert_eq!(cleaned.status, 303, "{cleaned:?}");
    assert_cleaned(&beginning).await;

    let done = visitor.post("/setup/finish", &[]).await;
    assert!(done.status == 200 && done.text.contains("the service starts"), "{done:?}");
    let dashboard = attribute(&done.text, "<a class=\"button\"", "href");
    assert_eq!(dashboard.trim_end_matches('/'), visitor.base, "it is where the webhooks are");
    tokio::time::timeout(WAIT, server.finished()).await.expect("finished");
    server.stop().await;
}

async fn assert_tried(beginning: &Beginning) {
    let (forge, repo) = (&beginning.forge, beginning.repo);
    let (open, branch) = forge.with(|state| {
        let repo = state.repo(repo).expect("the repository");
        let pull = repo.issues.values().find_map(|issue| Some((issue, issue.pull.as_ref()?))).expect("a pull request");
        assert!(!pull.1.draft && !pull.0.title.starts_with("WIP:"), "it is ready: {}", pull.0.title);
        (pull.0.open, pull.1.head.clone())
    });
    assert!(open && branch.starts_with("ralph/"), "{branch}");
    assert!(forge.branch_sha(repo, &branch).await.is_some());
}

async fn assert_cleaned(beginning: &Beginning) {
    let (forge, repo) = (&beginning.forge, beginning.repo);
    let (open, branches) = forge.with(|state| {
        let repo = state.repo(repo).expect("the repository");
        let open = repo.issues.values().filter(|issue| issue.open).count();
        (open, repo.issues.values().filter_map(|issue| Some(issue.pull.as_ref()?.head.clone())).collect::<Vec<_>>())
    });
    assert_eq!(open, 0, "issue and pull request are closed");
    for branch in branches {
        assert!(forge.branch_sha(repo, &branch).await.is_none(), "{branch} is deleted");
    }
    assert!(!beginning.folder.path().join("data/trial").exists());
}

/// See docs/research/threats.md#v8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn githubs_answer_is_accepted_once_from_the_same_browser_within_an_hour() {
    let beginning = Beginning::new(Dialect::GitHub).await;
    let clock = Clock::manual(Clock::System.now());
    let (server, mut visitor) = beginning.serve(&clock).await;
    let github = beginning.forge.url().to_string();
    let offered = async |visitor: &mut SetupVisitor| {
        let page = visitor.post("/setup/github", &[("url", &github), ("public_url", &visitor.base.clone())]).await;
        assert_eq!(page.status, 200, "{page:?}");
        page.text
    };
    let page = offered(&mut visitor).await;
    let back = visitor.create_on_github(&page).await;

    // Without the token, in another browser, with another value.
    let nobody = SetupVisitor::new(&visitor.base).get(&back).await;
    assert!(nobody.status == 401 && nobody.text.contains("name=\"token\""), "{nobody:?}");
    let mut other = SetupVisitor::new(&visitor.base);
    other.enter(server.link().expose_secret()).await;
    let foreign = other.get(&back).await;
    assert!(foreign.status == 403 && foreign.text.contains("started in another browser"), "{foreign:?}");
    let unknown = visitor.get("/setup/github/created?code=abc&state=abc").await;
    assert!(unknown.status == 403 && unknown.text.contains("unknown or was used before"), "{unknown:?}");
    let without = visitor.get("/setup/github/created").await;
    assert_eq!(without.status, 403);

    // It is valid for an hour, also after errors in between.
    clock.advance_ms(3_600_000);
    let expired = visitor.get(&back).await;
    assert!(expired.status == 403 && expired.text.contains("has expired"), "{expired:?}");
    assert_eq!(beginning.forge.requests().iter().filter(|one| one.path.contains("app-manifests")).count(), 0);

    let conversions = r"/app-manifests/[^/]+/conversions$";
    let large = FakeFault::Respond { status: 201, headers: Vec::new(), body: "x".repeat(300_000), apply: false };
    let cases = [
        (FakeFault::status(404), "does not know this code", false),
        (FakeFault::status(422), "refused the code (HTTP 422)", false),
        (FakeFault::with_header(302, "location", "http://127.0.0.1:1/elsewhere"), "is not followed", true),
        (large, "larger than 262144 bytes", true),
        (FakeFault::status(502), "HTTP 502", true),
    ];
    for (fault, says, again) in cases {
        let page = offered(&mut visitor).await;
        let manifest = attribute(&page, "name=\"manifest\"", "value");
        assert!(serde_json::from_str::<Value>(&manifest).is_ok(), "{manifest}");
        let state = url::Url::parse(&attribute(&page, "<form", "action")).expect("an address");
        let state =
            state.query_pairs().find(|(key, _)| key == "state").map(|(_, value)| value.into_owned()).expect("a state");
        beginning.forge.faults().next(1, "POST", conversions, fault).expect("a pattern");
        let path = format!("/setup/github/created?code=abcdef&state={state}");
        let answer = visitor.get(&path).await;
        assert!(answer.status == 502 && answer.text.contains(says), "{says}: {answer:?}");
        let repeated = visitor.get(&path).await;
        // The fake does not know the code; what matters is whether it was asked.
        assert_eq!(repeated.text.contains("does not know this code"), again, "{says}: {repeated:?}");
        assert!(!beginning.folder.path().join("github-app-key.pem").exists());
    }
    server.stop().await;
}

/// Secrets that GitHub shows once are kept until all files are written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_files_are_not_overwritten_and_secrets_are_kept() {
    let beginning = Beginning::new(Dialect::GitHub).await;
    let (server, mut visitor) = beginning.serve(&Clock::System).await;
    let github = beginning.forge.url().to_string();
    let key = beginning.folder.path().join("github-app-key.pem");
    let fields = [("url", github.as_str())];

    // Before anybody is sent to GitHub.
    std::fs::write(&key, "another").expect("written");
    let refused = visitor.post("/setup/github", &fields).await;
    assert!(
        refused.status == 422 && refused.text.contains("exists and is not overwritten; move it away"),
        "{refused:?}"
    );
    std::fs::remove_file(&key).expect("removed");
    for (wrong, says) in [
        (("organization", "a/../b"), "cannot be the name of an organization"),
        (("url", "javascript:alert(1)"), "expected an address"),
        (("public_url", "https://user:word@example.org"), "without user, password"),
        (("backend", "nobody"), "there is no backend"),
    ] {
        let refused = visitor.post("/setup/github", &[wrong]).await;
        assert!(refused.status == 422 && refused.text.replace("&#x27;", "'").contains(says), "{wrong:?}: {refused:?}");
    }

    // Between the page and GitHub's answer.
    let page = visitor.post("/setup/github", &fields).await.text;
    let back = visitor.create_on_github(&page).await;
    std::fs::write(&key, "another").expect("written");
    let stopped = visitor.get(&back).await;
    assert!(stopped.status == 502 && stopped.text.contains("was saved in"), "{stopped:?}");
    assert_eq!(std::fs::read_to_string(&key).expect("read"), "another");
    assert_eq!(mode(&beginning.folder.path().join("github-app-answer.json")), 0o600);
    assert!(!beginning.read("ralph-control.yaml").contains("forges"));
    // A second App is not created over it, and the set-up continues only after the file is moved away.
    let second = visitor.post("/setup/github", &fields).await;
    assert!(second.status == 422 && second.text.contains("continue with it first"), "{second:?}");
    let still = visitor.post("/setup/github/continue", &[]).await;
    assert!(still.status == 409 && still.text.contains("not overwritten"), "{still:?}");
    std::fs::rename(&key, beginning.folder.path().join("kept.pem")).expect("moved");
    let went_on = visitor.post("/setup/github/continue", &[]).await;
    assert_eq!(went_on.status, 303, "{went_on:?}");
    assert!(std::fs::read_to_string(&key).expect("read").contains("PRIVATE KEY"));
    assert_eq!(beginning.config().forges[0].updates.poll, Some(Duration::from_secs(30)), "no public address was given");
    assert!(!beginning.folder.path().join("github-webhook-secret").exists());
    server.stop().await;
}

/// A missing or full folder when GitHub answers: the answer is shown, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_that_cannot_be_written_is_shown() {
    let beginning = Beginning::new(Dialect::GitHub).await;
    let (server, mut visitor) = beginning.serve(&Clock::System).await;
    let github = beginning.forge.url().to_string();
    let page = visitor.post("/setup/github", &[("url", github.as_str())]).await.text;
    let back = visitor.create_on_github(&page).await;
    let away = beginning.folder.path().with_extension("away");
    std::fs::rename(beginning.folder.path(), &away).expect("moved");
    let shown = visitor.get(&back).await;
    assert!(shown.status == 500 && shown.text.contains("It is not shown again"), "{shown:?}");
    assert!(shown.text.contains("PRIVATE KEY") && shown.text.contains("github-app-answer.json"), "{shown:?}");
    assert_eq!(shown.header("cache-control"), "no-store");
    assert_eq!(attribute(&shown.text, "<a class=\"button\"", "href"), "/setup", "the page leads on");
    // Stored as the page says, it is used.
    std::fs::rename(&away, beginning.folder.path()).expect("moved back");
    let start = shown.text.find("<pre>").expect("the answer") + 5;
    let answer = &shown.text[start..start + shown.text[start..].find("</pre>").expect("an end")];
    let answer = attribute(&format!("<x y=\"{answer}\">"), "<x", "y");
    std::fs::write(beginning.folder.path().join("github-app-answer.json"), answer).expect("written");
    assert_eq!(visitor.post("/setup/github/continue", &[]).await.status, 303);
    assert!(matches!(beginning.config().forges[0].auth, ForgeAuth::App { .. }));
    server.stop().await;
}

/// See docs/research/threats.md#v8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setup_requires_the_token() {
    let beginning = Beginning::new(Dialect::Gitea).await;
    let (server, mut visitor) = beginning.serve(&Clock::System).await;
    let mut stranger = SetupVisitor::new(&visitor.base);
    assert_eq!(stranger.get("/").await.header("location"), "/setup");
    let asked = stranger.get("/setup").await;
    assert!(asked.status == 401 && !asked.text.contains("ralph-control.yaml"), "{asked:?}");
    for (name, part) in [
        ("content-security-policy", "default-src 'none'"),
        ("content-security-policy", "form-action 'self';"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert!(asked.header(name).contains(part), "{name}: {:?}", asked.headers);
    }
    for path in ["github", "github/continue", "token", "check", "try", "clean-up", "finish"] {
        let refused = stranger.post_raw(&format!("/setup/{path}"), &[("csrf", "x")], "").await;
        assert_eq!(refused.status, 401, "{path}: {refused:?}");
        // With the cookie, but without the form's value, or from a page of another site.
        let refused = visitor.post_raw(&format!("/setup/{path}"), &[("csrf", "x")], "").await;
        assert_eq!(refused.status, 403, "{path}: {refused:?}");
        let csrf = attribute(&visitor.get("/setup").await.text, "name=\"csrf\"", "value");
        let refused = visitor.post_raw(&format!("/setup/{path}"), &[("csrf", &csrf)], "https://evil.example").await;
        assert_eq!(refused.status, 403, "{path}: {refused:?}");
    }
    let ready = stranger.get("/readyz").await;
    assert!(ready.status == 503 && ready.text.starts_with("no forge is configured in "), "{ready:?}");
    assert!(!ready.text.contains(server.link().expose_secret().split('=').next_back().expect("a token")));
    assert_eq!(stranger.get("/healthz").await.status, 200);
    assert_eq!(stranger.post_raw("/webhooks/gitea", &[], "").await.status, 503);
    let base = visitor.base.clone();
    for _ in 0..20 {
        let wrong = stranger.post_raw("/setup/enter", &[("token", "wrong")], &base).await;
        assert_eq!(wrong.status, 403, "{wrong:?}");
    }
    let waits = stranger.post_raw("/setup/enter", &[("token", "wrong")], &base).await;
    assert!(waits.status == 429 && !waits.header("retry-after").is_empty(), "{waits:?}");
    assert_eq!(stranger.get(server.link().expose_secret()).await.status, 303, "the right token always works");
    server.stop().await;
}

/// From the token of the bot's account; a repetition changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setup_by_token_creates_hooks_labels_and_login_once() {
    let beginning = Beginning::new(Dialect::Gitea).await;
    let (server, mut visitor) = beginning.serve(&Clock::System).await;
    let (url, token) = (beginning.forge.url().to_string(), beginning.forge.token_for(&beginning.bot));
    let base = visitor.base.clone();
    let fields = |token: &'static str| [("url", "http://127.0.0.1:9"), ("token", token), ("public_url", "")];
    let down = visitor.post("/setup/token", &fields("abc")).await;
    assert!(down.status == 422 && down.text.contains("check the address"), "{down:?}");
    let wrong = visitor.post("/setup/token", &[("url", &url), ("token", "wrong"), ("public_url", &base)]).await;
    assert!(wrong.status == 422 && wrong.text.contains("does not accept the token"), "{wrong:?}");
    assert!(!wrong.text.contains("value=\"wrong\""), "a token is never shown again");
    let narrow = beginning.forge.with(|state| state.create_token(beginning.bot.id, Some(vec!["read:issue".into()])));
    let narrow = visitor.post("/setup/token", &[("url", &url), ("token", &narrow), ("public_url", &base)]).await;
    assert!(narrow.status == 422 && narrow.text.contains("read:user"), "{narrow:?}");
    assert!(!beginning.read("ralph-control.yaml").contains("forges"), "nothing is written before the token is known");

    let all = [("url", url.as_str()), ("token", &token), ("public_url", &base), ("repositories", "mira/app")];
    let done = visitor.post("/setup/token", &all).await;
    assert_eq!(done.status, 303, "{done:?}");
    let page = visitor.get("/setup").await.text;
    for says in ["belongs to ralph", "labels were created", "the test delivery arrived", "for logins was created"] {
        assert!(page.contains(says), "{says}: {page}");
    }
    assert!(!page.contains("state bad") && !page.contains(&token), "{page}");
    assert_eq!(beginning.read("gitea-token").trim(), token);
    assert_eq!((mode(&beginning.folder.path().join("gitea-token")), beginning.config().forges.len()), (0o600, 1));
    let counted = || (beginning.forge.ops().len(), beginning.forge.with(|state| state.logins.apps.clone()));
    let before = counted();
    let again = visitor.post("/setup/check", &[("repositories", "mira/app")]).await;
    assert_eq!(again.status, 303, "{again:?}");
    let page = visitor.get("/setup").await.text;
    assert!(page.contains("is correct; the test delivery arrived") && page.contains("the labels exist"), "{page}");
    assert!(!page.contains("state done") && !page.contains("state bad"), "{page}");
    assert!(counted() == before, "the forge is unchanged");

    // The forge may not send to the service's address.
    beginning.forge.hooks().drop_next(100);
    visitor.post("/setup/check", &[("repositories", "mira/app")]).await;
    let page = visitor.get("/setup").await.text;
    assert!(
        page.contains("no test delivery arrived within 10 s")
            && page.contains("ALLOWED_HOST_LIST = external,127.0.0.1"),
        "{page}"
    );
    server.stop().await;
}

/// The real program: a service without a forge serves the set-up, and then runs as a service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_without_a_forge_serves_the_setup_and_then_starts() {
    let beginning = Beginning::new(Dialect::Gitea).await;
    let port = free_port();
    let base = format!("http://127.0.0.1:{port}");
    beginning.write(&format!("server: {{ listen: '127.0.0.1:{port}', public_url: '{base}' }}\n{BASE}backends: {{ mine: {{ type: script, command: [sh, -c, 'true'] }} }}\n"));
    let mut process = command(env!("CARGO_BIN_EXE_ralph-bot"));
    process.current_dir(beginning.folder.path()).env("HOME", beginning.folder.path()).args(["--json", "serve"]);
    process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut process = process.spawn().expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("an output")).lines();
    let mut line = async || -> Value {
        let line =
            tokio::time::timeout(WAIT, lines.next_line()).await.expect("in time").expect("a line").expect("it runs");
        serde_json::from_str(&line).expect("JSON")
    };
    let link = line().await["setup"].as_str().expect("an address").to_owned();
    let mut visitor = SetupVisitor::new(&base);
    visitor.enter(&link).await;
    let early = visitor.post("/setup/finish", &[]).await;
    assert!(early.status == 409 && early.text.contains("no forge is configured"), "{early:?}");
    let (url, token) = (beginning.forge.url().to_string(), beginning.forge.token_for(&beginning.bot));
    let all = [("url", url.as_str()), ("token", &token), ("public_url", &base), ("repositories", "mira/app")];
    assert_eq!(visitor.post("/setup/token", &all).await.status, 303);
    let begun = visitor.post("/setup/try", &[("repository", "new")]).await;
    assert_eq!(begun.status, 303, "{begun:?}");
    visitor.until("The first pull request is verified").await;
    let own =
        |state: &mut fake_forge::FakeState| state.repos.values().any(|repo| repo.name == "ralph-trial" && repo.private);
    assert!(beginning.forge.with(own));
    visitor.post("/setup/clean-up", &[]).await;
    assert!(!beginning.forge.with(own), "the repository is deleted");
    assert_eq!(visitor.post("/setup/finish", &[]).await.status, 200);
    let serving = line().await;
    assert_eq!(serving["listening"], base);
    assert_eq!(visitor.get("/readyz").await.status, 200);
    for path in ["/setup", link.trim_start_matches(&base), "/setup/github/created"] {
        assert_eq!(visitor.get(path).await.status, 404, "{path}");
    }
    process.kill().await.expect("ended");
}

async fn run_init(beginning: &Beginning, arguments: &[&str], input: &str) -> (i32, String) {
    let mut process = command(env!("CARGO_BIN_EXE_ralph-bot"));
    process.current_dir(beginning.folder.path()).env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
    process.env("HOME", beginning.folder.path()).arg("init").args(arguments);
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut process = process.spawn().expect("it starts");
    let mut stdin = process.stdin.take().expect("an input");
    stdin.write_all(input.as_bytes()).await.expect("written");
    drop(stdin);
    let ended = tokio::time::timeout(WAIT, process.wait_with_output()).await.expect("in time").expect("it ends");
    let text = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    (ended.status.code().unwrap_or(-1), text)
}

/// The token comes from standard input and is on no command line; without a public address the forge is polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_line_sets_up_a_forge_without_a_public_address_and_runs_the_trial() {
    let beginning = Beginning::new(Dialect::Gitea).await;
    beginning.write(&format!("server: {{ listen: '127.0.0.1:0' }}\n{BASE}"));
    let (url, token) = (beginning.forge.url().to_string(), beginning.forge.token_for(&beginning.bot));
    let first = ["--forge", "gitea", "--url", &url, "--token-file", "-", "--repository", "mira/app"];
    let (code, text) = run_init(&beginning, &first, "wrong\n").await;
    assert!(code == 1 && text.contains("does not accept the token"), "{code}: {text}");
    // A set-up continues after a failure of the forge.
    beginning.forge.faults().next(1, "POST", r"/repos/mira/app/labels$", FakeFault::status(403)).expect("a pattern");
    let (code, text) = run_init(&beginning, &first, &format!("{token}\n")).await;
    assert!(code == 1 && text.contains("FAILED") && !text.contains(&token), "{code}: {text}");
    let (code, text) = run_init(&beginning, &["--repository", "mira/app"], "").await;
    assert!(code == 0 && text.contains("labels were created"), "{code}: {text}");
    let (code, text) = run_init(&beginning, &["--repository", "mira/app"], "").await;
    assert!(
        code == 0 && text.contains("Nothing was changed.") && text.contains("ralph-bot init --try mira/app"),
        "{code}: {text}"
    );
    assert_eq!(beginning.config().forges[0].updates.poll, Some(Duration::from_secs(30)));

    let (code, text) = run_init(&beginning, &["--try", "mira/nothing"], "").await;
    assert!(code == 1 && text.contains("cannot access mira/nothing"), "{code}: {text}");
    let (code, text) = run_init(&beginning, &["--try", "mira/app"], "").await;
    assert!(code == 0 && text.contains("Everything but the model is known to work"), "{code}: {text}");
    assert_tried(&beginning).await;
    let (code, text) = run_init(&beginning, &["--clean-up"], "").await;
    assert!(code == 0 && text.contains("is closed"), "{code}: {text}");
    assert_cleaned(&beginning).await;
    let (code, text) = run_init(&beginning, &["--clean-up"], "").await;
    assert!(code == 0 && text.contains("nothing of a trial to remove"), "{code}: {text}");
}

/// `init --create-app` without a public address: a page on loopback, GitHub's pages, and the wait for the installation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_line_creates_an_app_and_waits_for_its_installation() {
    let beginning = Beginning::new(Dialect::GitHub).await;
    let github = beginning.forge.url().to_string();
    let mut process = command(env!("CARGO_BIN_EXE_ralph-bot"));
    process.current_dir(beginning.folder.path()).env("HOME", beginning.folder.path());
    process.args(["--json", "init", "--forge", "github", "--create-app", "--organization", "acme", "--url", &github]);
    process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut process = process.spawn().expect("it starts");
    let mut lines = BufReader::new(process.stdout.take().expect("an output")).lines();
    let mut line = async || -> Value {
        let line =
            tokio::time::timeout(WAIT, lines.next_line()).await.expect("in time").expect("a line").expect("it runs");
        serde_json::from_str(&line).expect("JSON")
    };
    let link = line().await["open"].as_str().expect("an address").to_owned();
    let base = link.split("/setup").next().expect("an address").to_owned();
    let mut visitor = SetupVisitor::new(&base);
    visitor.enter(&link).await;
    let page = visitor.get("/setup").await;
    let manifest: Value = serde_json::from_str(&attribute(&page.text, "name=\"manifest\"", "value")).expect("JSON");
    assert!(manifest.get("hook_attributes").is_none() && manifest["name"] == "ralph-bot acme", "{manifest}");
    let back = visitor.create_on_github(&page.text).await;
    assert_eq!(visitor.get(&back).await.status, 303);
    assert!(visitor.get("/setup").await.text.contains("Continue in the terminal"));
    let created = line().await;
    assert!(
        created["install"].as_str().is_some_and(|page| page.ends_with("/apps/ralph-bot-acme/installations/new")),
        "{created}"
    );
    SetupVisitor::new("").post_raw(&format!("{github}apps/ralph-bot-acme/installations"), &[], "").await;
    let next = line().await;
    assert!(next["repositories"].as_array().is_some_and(|all| all.len() == 2), "{next}");
    let ended = tokio::time::timeout(WAIT, process.wait()).await.expect("in time").expect("it ends");
    assert!(ended.success());
    assert_eq!(mode(&beginning.folder.path().join("github-app-key.pem")), 0o600);
    // A second time nothing is replaced.
    let (code, text) = run_init(&beginning, &["--create-app", "--url", &github], "").await;
    assert!(code == 2 && text.contains("exists and is not overwritten"), "{code}: {text}");
    let (code, text) = run_init(&beginning, &["--create-app", "--url", &github, "--name", "x/y"], "").await;
    assert!(code == 2 && text.contains("is invalid"), "{code}: {text}");
}
