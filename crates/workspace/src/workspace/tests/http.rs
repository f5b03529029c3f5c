//! Tests of remotes over HTTP, with `git http-backend` behind a password.

use std::io::Write;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64;
use secrecy::SecretString;

use super::*;

const TOKEN: &str = "tok-5ecret-canary-value";

/// Behavior and observations of the server.
#[derive(Default)]
struct GitHttpServer {
    root: PathBuf,
    /// Status of all responses, if set.
    answer: Mutex<Option<StatusCode>>,
    /// Redirect target of all requests, if set.
    redirect: Mutex<Option<String>>,
    requests: Mutex<Vec<String>>,
    authorizations: Mutex<Vec<String>>,
    /// Processes with a visible token.
    leaks: Mutex<Vec<String>>,
}

async fn serve(
    State(forge): State<Arc<GitHttpServer>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let header =
        move |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    forge.leaks.lock().unwrap().extend(processes_that_show(TOKEN));
    if let Some(status) = *forge.answer.lock().unwrap() {
        return status.into_response();
    }
    if let Some(to) = forge.redirect.lock().unwrap().clone() {
        return (StatusCode::FOUND, [("location", format!("{to}{uri}"))]).into_response();
    }
    let authorization = header("authorization");
    if !authorization.is_empty() {
        forge.authorizations.lock().unwrap().push(authorization.clone());
    }
    if authorization != format!("Basic {}", BASE64.encode(format!("bot:{TOKEN}").as_bytes())) {
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", "Basic realm=\"forge\"")]).into_response();
    }
    let kind = if String::from_utf8_lossy(&body).contains("command=fetch") { "fetch" } else { "" };
    forge.requests.lock().unwrap().push(format!("{method} {} {kind}", uri.path()));
    let (status, kind, answer) = tokio::task::spawn_blocking(move || {
        let mut child = Command::new("git")
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &forge.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("REMOTE_USER", "bot")
            .env("REQUEST_METHOD", method.as_str())
            .env("PATH_INFO", uri.path())
            .env("QUERY_STRING", uri.query().unwrap_or_default())
            .env("CONTENT_TYPE", header("content-type"))
            .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
            .env("GIT_PROTOCOL", header("git-protocol"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let feeder = std::thread::spawn(move || drop(stdin.write_all(&body)));
        let output = child.wait_with_output().unwrap().stdout;
        feeder.join().unwrap();
        cgi(output)
    })
    .await
    .unwrap();
    (status, [("content-type", kind)], answer).into_response()
}

/// Parses the response of a CGI program.
fn cgi(output: Vec<u8>) -> (StatusCode, String, Vec<u8>) {
    let end = output.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&output[..end]).into_owned();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).map(str::to_owned);
    let status = field("Status:").and_then(|text| text[..3].parse::<u16>().ok()).unwrap_or(200);
    (StatusCode::from_u16(status).unwrap(), field("Content-Type:").unwrap_or_default(), output[end + 4..].to_vec())
}

fn processes_that_show(secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        for file in ["cmdline", "environ"] {
            let text = std::fs::read(entry.path().join(file)).unwrap_or_default();
            if text.windows(secret.len()).any(|part| part == secret.as_bytes()) {
                found.push(format!("{}/{file}: {}", entry.path().display(), String::from_utf8_lossy(&text)));
            }
        }
    }
    found
}

async fn listen(forge: Arc<GitHttpServer>) -> (String, impl Future<Output = std::io::Result<()>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router =
        axum::Router::new().fallback(serve).layer(axum::extract::DefaultBodyLimit::disable()).with_state(forge);
    (url, async move { axum::serve(listener, router).await })
}

/// Runs `test` with a forge behind HTTP.
async fn with_forge(test: impl AsyncFnOnce(&mut WorkspaceWorld, &GitHttpServer)) {
    let mut world = WorkspaceWorld::new();
    let forge = Arc::new(GitHttpServer { root: world.folder.path().to_path_buf(), ..GitHttpServer::default() });
    let (url, server) = listen(forge.clone()).await;
    let credential = Some(("bot".to_owned(), SecretString::from(TOKEN)));
    world.access = GitUrl { url: format!("{url}/forge.git"), credential, settling: Default::default() };
    tokio::select! {
        ended = server => panic!("the server ended: {ended:?}"),
        () = test(&mut world, &forge) => {}
    }
}

/// See docs/research/threats.md#s3, docs/research/threats.md#s8.
#[tokio::test]
async fn token_authenticates_and_is_not_visible() {
    with_forge(async |world, forge| {
        let info = world.prepare().await;
        sh(&info.dir, "echo 1 >a");
        let commit = world.commit(&info.head).await.commit.unwrap();
        assert_eq!(world.push(&commit, None).await, PushOutcome::Pushed);
        assert_eq!(world.forge_tip(BRANCH), Some(commit));
        assert!(forge.authorizations.lock().unwrap().len() >= 4);
        assert_eq!(*forge.leaks.lock().unwrap(), Vec::<String>::new());
        // By a file: in its arguments, the forge of another test would take the token for leaked.
        let words = world.path("token");
        std::fs::write(&words, TOKEN).unwrap();
        let words = words.to_str().unwrap();
        let found =
            Command::new("grep").args(["-rlF", "-f", words, "."]).current_dir(world.path("state")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "");
        // The check itself can see: a process that does show one is found. Another one, as other tests look for this.
        let other = "a canary of its own 5ecret";
        let mut child = Command::new("sleep").arg("1000").env("SHOWN", other).spawn().unwrap();
        // A process that was just started may have no environment yet.
        let looks = std::iter::repeat_with(|| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            processes_that_show(other)
        });
        let seen = looks.take(100).find(|seen| !seen.is_empty()).unwrap_or_default();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!seen.is_empty());
    })
    .await;
}

#[tokio::test]
async fn second_loop_fetches_new_objects_only() {
    // Without contents, the contents of the tree's commit need a separate request.
    for (partial, each) in [(false, 1), (true, 2)] {
        with_forge(async |world, forge| {
            let fetches = || forge.requests.lock().unwrap().iter().filter(|request| request.ends_with("fetch")).count();
            world.workspaces.prepare(PrepareTree { partial, ..world.request() }).await.unwrap();
            assert_eq!(fetches(), each, "partial: {partial}");
            let other = LoopId::new("r-43-bbbbbb");
            let second = || PrepareTree { loop_id: &other, branch: "ralph/43", partial, ..world.request() };
            world.workspaces.prepare(second()).await.unwrap();
            assert_eq!(fetches(), each, "partial: {partial}");
            let base = world.human("main", "echo new >new");
            assert_eq!(world.workspaces.prepare(second()).await.unwrap().head, base);
            assert_eq!(fetches(), 2 * each, "partial: {partial}");
        })
        .await;
    }
}

#[tokio::test]
async fn missing_contents_are_fetched_with_the_same_token() {
    with_forge(async |world, forge| {
        world.human("main", "echo old >history; git add -A; git commit -qm old; echo new >history");
        let info = world.workspaces.prepare(PrepareTree { partial: true, ..world.request() }).await.unwrap();
        sh(&info.dir, "echo 1 >a");
        let commit = world.commit(&info.head).await.commit.unwrap();
        world.human("main", "echo later >later");
        assert_eq!(world.push(&commit, None).await, PushOutcome::Pushed);
        assert_eq!(*forge.leaks.lock().unwrap(), Vec::<String>::new());
    })
    .await;
}

/// See docs/research/threats.md#s8.
#[tokio::test]
async fn remote_errors_are_classified_without_token() {
    with_forge(async |world, forge| {
        let right = world.access.clone();
        let wrong = Some(("bot".to_owned(), SecretString::from("wrong-canary-token")));
        for credential in [wrong, None] {
            world.access = GitUrl { credential, ..right.clone() };
            let error = world.workspaces.prepare(world.request()).await.unwrap_err();
            assert!(matches!(error, WorkspaceError::AuthFailed { .. }), "{error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
        world.access = right;
        for (status, name) in
            [(403, "auth"), (404, "absent"), (429, "transient"), (500, "transient"), (503, "transient")]
        {
            *forge.answer.lock().unwrap() = StatusCode::from_u16(status).ok();
            let error = world.workspaces.prepare(world.request()).await.unwrap_err();
            let found = match &error {
                WorkspaceError::AuthFailed { .. } => "auth",
                WorkspaceError::Unreachable { transient: true, .. } => "transient",
                WorkspaceError::Unreachable { transient: false, .. } => "absent",
                _ => "other",
            };
            assert_eq!(found, name, "{status}: {error}");
        }
        *forge.answer.lock().unwrap() = None;
        world.prepare().await;
    })
    .await;
}

/// See docs/research/threats.md#s7, docs/research/faults.md#f7.
#[tokio::test]
async fn redirect_to_another_host_gets_no_token() {
    let elsewhere = Arc::new(GitHttpServer::default());
    let (url, server) = listen(elsewhere.clone()).await;
    let test = with_forge(async |world, forge| {
        *forge.redirect.lock().unwrap() = Some(url);
        let error = world.workspaces.prepare(world.request()).await.unwrap_err();
        assert!(matches!(error, WorkspaceError::AuthFailed { .. }), "{error}");
    });
    tokio::select! {
        ended = server => panic!("the server ended: {ended:?}"),
        () = test => {}
    }
    assert_eq!(*elsewhere.authorizations.lock().unwrap(), Vec::<String>::new());
}
