//! People with browsers: logins to the dashboard, and the permitted requests of each kind of viewer.

use std::collections::BTreeMap;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use fake_forge::{Access, FakeLoginApp};
use hmac::{Hmac, KeyInit, Mac};
use ralph_bot::domain::model::ids::{AccountKind, RepoRef, User};
use ralph_bot::web::{Viewer, WebState};
use reqwest::{Method, Response};
use sha2::Sha256;

use super::setup::Setup;
use super::world::World;

/// Time without an event after which a stream is taken as read.
const QUIET: Duration = Duration::from_millis(200);

/// Kinds of viewers of the repository of a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewerKind {
    /// Did not log in.
    Nobody,
    /// Has read access to the repository.
    Reader,
    /// Has write access to the repository.
    Writer,
    /// Has write access to another repository, and none to this one, which is private.
    OtherWriter,
    /// Account in `dashboard.operators`, without access to the repository.
    Operator,
}

impl ViewerKind {
    pub const ALL: [Self; 5] = [Self::Nobody, Self::Reader, Self::Writer, Self::OtherWriter, Self::Operator];

    /// Login on the forge.
    pub fn login(self) -> &'static str {
        match self {
            Self::Nobody => "nora",
            Self::Reader => "otto",
            Self::Writer => "wanda",
            Self::OtherWriter => "olga",
            Self::Operator => "oscar",
        }
    }
}

/// Adds the client of logins to a setup.
pub fn with_login(mut setup: Setup) -> Setup {
    setup.credential.push_str(", login: { client_id: CLIENT, client_secret_env: LOGIN_SECRET }");
    setup
}

/// Creates the people, the other repository and the client of logins, for `prepared_story` on a setup of [`with_login`]. The
/// repository of the story becomes private.
pub fn prepare_logins(world: &mut World) {
    let client = world.forge.add_login_app("ralph-bot", "");
    world.setup.credential = world.setup.credential.replace("CLIENT", &client.client_id);
    world.setup.env.push(("LOGIN_SECRET", client.secret));
    let people = ViewerKind::ALL.map(|kind| world.forge.add_user(kind.login(), AccountKind::User));
    let [_, _, writer, _, operator] = &people;
    world.forge.grant(world.repo, writer, Access::Write).expect("granted");
    world.setup.config.push_str(&format!("dashboard: {{ operators: [\"forge:{}\"] }}\n", operator.id));
    let (owner, repo) = (world.maintainer.id, world.repo);
    world.forge.with(|state| state.show_repo(owner, repo, true)).expect("private");
}

/// Lets the forge send codes to the service, and creates the other repository. To be called when the service runs.
pub async fn open_logins(world: &World) {
    let redirect = format!("{}login/callback/forge", dashboard(world).as_str());
    world.forge.with(|state| state.logins.apps[0].redirects = vec![redirect]);
    let other = world.forge.create_repo("mira", "other", &[("README.md", "Another.\n", false)]).await.expect("made");
    let writer = person(world, ViewerKind::OtherWriter);
    world.forge.grant(other, &writer, Access::Write).expect("granted");
    world.forge.grant(other, &world.bot, Access::Admin).expect("granted");
}

/// Account of a kind of viewer.
pub fn person(world: &World, kind: ViewerKind) -> User {
    world.forge.with(|state| state.account_named(kind.login()).expect("an account").user.clone())
}

/// Address of the dashboard.
pub fn dashboard(world: &World) -> url::Url {
    world.app().dashboard.as_ref().expect("a dashboard").base.clone()
}

/// State of the dashboard's handlers.
pub fn web(world: &World) -> &WebState {
    &world.app().dashboard.as_ref().expect("a dashboard").state
}

/// The repository of the story, as loops refer to it.
pub fn repo_ref(world: &World) -> RepoRef {
    let forge = ralph_bot::domain::model::ids::ForgeName::new("forge");
    RepoRef { forge, id: world.repo, owner: "mira".into(), name: "app".into() }
}

/// Viewer with an account, without a session.
pub fn viewer(world: &World, kind: ViewerKind) -> Viewer {
    let mut viewer = Viewer::of_token();
    viewer.account = Some((repo_ref(world).forge, person(world, kind)));
    viewer.operator = kind == ViewerKind::Operator;
    viewer
}

/// Returns the browser of a kind of viewer, logged in.
pub async fn as_viewer(world: &World, kind: ViewerKind) -> LoginBrowser {
    let mut browser = LoginBrowser::new(world);
    if kind != ViewerKind::Nobody {
        let answer = browser.log_in(kind.login()).await;
        assert_eq!((answer.status, answer.location()), (303, "/"), "{}", answer.text);
    }
    browser
}

/// A browser: it keeps cookies, and follows no redirect by itself.
#[derive(Clone)]
pub struct LoginBrowser {
    client: reqwest::Client,
    base: url::Url,
    pub cookies: BTreeMap<String, String>,
}

/// Answer to a browser.
#[derive(Debug)]
pub struct BrowserAnswer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl BrowserAnswer {
    /// Header by name; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Address of a redirect; empty if there is none.
    pub fn location(&self) -> &str {
        self.header("location")
    }
}

impl LoginBrowser {
    pub fn new(world: &World) -> Self {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build();
        Self { client: client.expect("a client"), base: dashboard(world), cookies: BTreeMap::new() }
    }

    /// Value that forms send back, derived from the session's cookie as the service does.
    pub fn csrf(&self) -> String {
        let Some(held) = self.cookies.get("ralph-session") else { return String::new() };
        let mac = Hmac::<Sha256>::new_from_slice(held.as_bytes()).expect("any key").chain_update("csrf").finalize();
        BASE64URL_NOPAD.encode(&mac.into_bytes())
    }

    /// Sends a request with the cookies and further headers, and keeps the cookies of the answer.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> BrowserAnswer {
        let address = self.base.join(path).expect("an address");
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut request = self.client.request(method, address);
        if !cookies.is_empty() {
            request = request.header("cookie", cookies.join("; "));
        }
        if let Some(body) = body {
            if headers.iter().all(|(name, _)| *name != "content-type") {
                request = request.header("content-type", "application/x-www-form-urlencoded");
            }
            request = request.body(body);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = read(request.send().await.expect("an answer")).await;
        for line in answer.headers.get_all("set-cookie") {
            let line = line.to_str().expect("text");
            let (name, value) = line.split(';').next().and_then(|pair| pair.split_once('=')).expect("a cookie");
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        answer
    }

    pub async fn get(&mut self, path: &str) -> BrowserAnswer {
        self.send(Method::GET, path, &[], None).await
    }

    /// Asks for a stream of events from its start on, and reads it until nothing comes for a moment; returns status and text.
    pub async fn listen(&self, path: &str, headers: &[(&str, &str)]) -> BrowserAnswer {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut request =
            self.client.get(self.base.join(path).expect("an address")).header("cookie", cookies.join("; "));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request.header("last-event-id", "0-0-0").send().await.expect("an answer");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut text = String::new();
        while let Ok(Ok(Some(chunk))) = tokio::time::timeout(QUIET, response.chunk()).await {
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
        BrowserAnswer { status, headers, text }
    }

    /// Returns the headers of a page of the service that sends JSON or nothing.
    pub fn page_headers(&self) -> Vec<(&'static str, String)> {
        let origin = self.base.origin().ascii_serialization();
        let json = "application/json".to_owned();
        vec![("origin", origin), ("x-csrf-token", self.csrf()), ("content-type", json)]
    }

    /// Sends a form as a page of the service does.
    pub async fn post(&mut self, path: &str, form: &str) -> BrowserAnswer {
        let joint = if form.is_empty() { "" } else { "&" };
        let body = format!("{form}{joint}csrf={}", self.csrf());
        let origin = self.base.origin().ascii_serialization();
        let headers = [("origin", origin.as_str()), ("sec-fetch-site", "same-origin")];
        self.send(Method::POST, path, &headers, Some(body)).await
    }

    /// Whether the session is valid.
    pub async fn is_logged_in(&mut self) -> bool {
        let answer = self.clone().get("/login").await;
        assert!(matches!(answer.status, 200 | 303), "{answer:?}");
        answer.status == 303
    }

    /// Starts a login and returns the address of the forge's page.
    pub async fn begin(&mut self, query: &str) -> String {
        let answer = self.get(&format!("/login/start/forge{query}")).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        answer.location().to_owned()
    }

    /// Answers the forge's page as an account, or denies with an empty login; returns the address that it leads back to.
    pub async fn answer(&self, page: &str, login: &str) -> String {
        let shown = read(self.client.get(page).send().await.expect("an answer")).await;
        assert!(shown.status == 200 && shown.text.contains("asks who you are"), "{shown:?}");
        let sent = self.client.post(page).body(format!("as={login}")).send().await.expect("an answer");
        let sent = read(sent).await;
        assert_eq!(sent.status, 302, "{sent:?}");
        sent.location().to_owned()
    }

    /// Logs in as an account, and returns the last answer.
    pub async fn log_in(&mut self, login: &str) -> BrowserAnswer {
        self.log_in_to(login, "").await
    }

    /// Logs in as an account with a query for the start, and returns the last answer.
    pub async fn log_in_to(&mut self, login: &str, query: &str) -> BrowserAnswer {
        let page = self.begin(query).await;
        let back = self.answer(&page, login).await;
        self.get(&back).await
    }
}

async fn read(response: Response) -> BrowserAnswer {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    BrowserAnswer { status, headers, text: response.text().await.expect("a body") }
}
