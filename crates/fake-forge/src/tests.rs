//! Tests of the fake forge over HTTP, git and webhooks.

use std::path::Path;
use std::sync::{Arc, Mutex};

use http::HeaderMap;
use serde_json::{Value, json};

mod contract;
mod gitea;
mod github;
mod logins;
mod recorded;

use super::*;
use ralph_types::ids::ReviewVerdict;
use ralph_types::ids::Timestamp;

/// Received deliveries: headers and body.
pub(super) type ReceivedDeliveries = Arc<Mutex<Vec<(HeaderMap, String)>>>;

pub(super) struct FakeForgeWorld {
    pub forge: FakeForge,
    pub repo: RepoId,
    pub maintainer: User,
    pub outsider: User,
    pub bot: User,
    client: reqwest::Client,
}

pub(super) async fn world(dialect: Dialect) -> FakeForgeWorld {
    let forge = FakeForge::start(dialect, Clock::manual(Timestamp(1_700_000_000_000))).await.unwrap();
    let [maintainer, outsider] = ["mia", "otto"].map(|login| forge.add_user(login, AccountKind::User));
    let bot = forge.add_user("ralph", AccountKind::Bot);
    let files = [("README.md", "hello\n", false), ("run.sh", "#!/bin/sh\nexit 1\n", true)];
    let repo = forge.create_repo("acme", "app", &files).await.unwrap();
    forge.grant(repo, &maintainer, Access::Admin).unwrap();
    forge.grant(repo, &bot, Access::Admin).unwrap();
    FakeForgeWorld { forge, repo, maintainer, outsider, bot, client: reqwest::Client::new() }
}

impl FakeForgeWorld {
    /// Sends an API request as `who`; returns status, headers and JSON (`Null` without a body).
    pub async fn ask(&self, who: Option<&User>, method: &str, path: &str, body: Value) -> (u16, HeaderMap, Value) {
        let url = format!("{}{path}", self.forge.api_url());
        let mut request = self.client.request(method.parse().unwrap(), url);
        if let Some(who) = who {
            request = request.header("authorization", format!("token {}", self.forge.token_for(who)));
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = answer.text().await.unwrap();
        (status, headers, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn as_bot(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let (status, _, value) = self.ask(Some(&self.bot), method, path, body).await;
        (status, value)
    }

    /// Clones over HTTP, commits a file to a branch, and pushes; returns git's output and whether it succeeded.
    async fn push_by_git(&self, who: Option<&User>, branch: &str, text: &str) -> (bool, String) {
        let tree = tempfile::tempdir().unwrap();
        let url = format!("{}acme/app.git", self.forge.url());
        let (cloned, git_output) = git(tree.path(), &["clone", "-q", &url, "."]).await;
        assert!(cloned, "{git_output}");
        git(tree.path(), &["checkout", "-q", "-B", branch]).await;
        std::fs::write(tree.path().join("new.txt"), text).unwrap();
        git(tree.path(), &["add", "."]).await;
        let identity = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"];
        git(tree.path(), &[&identity[..], &["commit", "-q", "-m", "A change"]].concat()).await;
        let mut args = Vec::new();
        let header = who.map(|who| {
            let pair = format!("x-access-token:{}", self.forge.token_for(who));
            format!("http.extraHeader=Authorization: Basic {}", data_encoding::BASE64.encode(pair.as_bytes()))
        });
        if let Some(header) = &header {
            args.extend(["-c", header]);
        }
        args.extend(["push", "-q", "origin", branch]);
        git(tree.path(), &args).await
    }
}

#[expect(clippy::disallowed_methods, reason = "plays the client's git, away from the code under test")]
async fn git(directory: &Path, args: &[&str]) -> (bool, String) {
    let output = tokio::process::Command::new("git")
        .args(args)
        .current_dir(directory)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .await
        .unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Starts a webhook receiver, which ends with the task set.
pub(super) async fn receiver() -> (String, ReceivedDeliveries, JoinSet<()>) {
    let received = ReceivedDeliveries::default();
    let received_by_router = received.clone();
    let router = axum::Router::new().fallback(move |headers: HeaderMap, body: String| {
        received_by_router.lock().unwrap().push((headers, body));
        async { "ok" }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, received, tasks)
}

/// Removes and returns event, action and body of all deliveries.
pub(super) fn drain(received: &ReceivedDeliveries) -> Vec<(String, String, Value)> {
    let taken = std::mem::take(&mut *received.lock().unwrap());
    let read = taken.into_iter().map(|(headers, body)| {
        let body: Value = serde_json::from_str(&body).unwrap();
        let event = headers["x-github-event"].to_str().unwrap().to_owned();
        (event, body["action"].as_str().unwrap_or_default().to_owned(), body)
    });
    read.collect()
}

fn names(deliveries: &[(String, String, Value)]) -> Vec<String> {
    deliveries.iter().map(|(event, action, _)| format!("{event} {action}").trim().to_owned()).collect()
}

#[tokio::test]
async fn credentials_and_permissions_are_enforced() {
    let world = world(Dialect::Gitea).await;
    let number = world.forge.open_issue(&world.outsider, world.repo, "Broken", "Please mend", &[]).await.unwrap();
    world.forge.label(&world.maintainer, world.repo, number, "ralph:run").await.unwrap();
    let label = json!({"labels": ["ralph:run"]});
    let comment = json!({"body": "hi"});
    let anybody = None;
    let outsider = Some(&world.outsider);
    for (who, method, path, body, expected) in [
        (anybody, "GET", "user", Value::Null, 401),
        (anybody, "GET", "repos/acme/app/issues/1", Value::Null, 200),
        (anybody, "POST", "repos/acme/app/issues/1/comments", comment.clone(), 401),
        (outsider, "POST", "repos/acme/app/issues/1/comments", comment, 201),
        (outsider, "POST", "repos/acme/app/issues/1/labels", label.clone(), 403),
        (outsider, "GET", "repos/acme/app/hooks", Value::Null, 403),
        (outsider, "GET", "repos/acme/app/collaborators/mia/permission", Value::Null, 403),
        (outsider, "GET", "repos/acme/app/collaborators/otto/permission", Value::Null, 200),
        (outsider, "PATCH", "repos/acme/app/issues/1", json!({"title": "Still broken"}), 201),
        (Some(&world.maintainer), "POST", "repos/acme/app/issues/1/labels", label, 200),
        (outsider, "GET", "repos/acme/none", Value::Null, 404),
        (outsider, "GET", "repos/acme/app/issues/99", Value::Null, 404),
        (outsider, "GET", "no/such/thing", Value::Null, 404),
    ] {
        let (status, _, value) = world.ask(who, method, path, body).await;
        assert_eq!(status, expected, "{method} {path}: {value}");
    }
    let bad = reqwest::Client::new().get(format!("{}version", world.forge.api_url()));
    let status = bad.header("authorization", "token nonsense").send().await.unwrap().status();
    assert_eq!(status, 401);
}

#[tokio::test]
async fn private_repository_is_not_found_by_outsiders() {
    let world = world(Dialect::Gitea).await;
    world.forge.with(|state| state.repo_mut(world.repo).unwrap().private = true);
    let path = "repos/acme/app";
    assert_eq!(world.ask(Some(&world.outsider), "GET", path, Value::Null).await.0, 404);
    assert_eq!(world.ask(Some(&world.bot), "GET", path, Value::Null).await.0, 200);
    let (_, _, search) = world.ask(Some(&world.outsider), "GET", "repos/search", Value::Null).await;
    assert_eq!(search, json!({"ok": true, "data": []}));
}

#[tokio::test]
async fn renamed_repository_redirects() {
    let world = world(Dialect::Gitea).await;
    world.forge.with(|state| state.rename_repo(world.maintainer.id, world.repo, "tool")).unwrap();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let answer = client.get(format!("{}repos/acme/app/issues", world.forge.api_url())).send().await.unwrap();
    assert_eq!(answer.status(), 301);
    assert_eq!(answer.headers()["location"], "/api/v1/repos/acme/tool/issues");
}

#[tokio::test]
async fn lists_are_paged() {
    let world = world(Dialect::Gitea).await;
    for number in 0..65 {
        let title = format!("Issue {number}");
        world.forge.open_issue(&world.maintainer, world.repo, &title, "", &["ralph:run"]).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut path = Some("repos/acme/app/issues?type=issues&state=open&labels=ralph:run&limit=999".to_owned());
    while let Some(next) = path.take() {
        let (status, headers, page) = world.ask(Some(&world.bot), "GET", &next, Value::Null).await;
        assert_eq!((status, &headers["x-total-count"]), (200, &"65".parse().unwrap()));
        assert!(page.as_array().unwrap().len() <= 50);
        seen.extend(page.as_array().unwrap().iter().map(|issue| issue["number"].as_u64().unwrap()));
        let link = headers.get("link").map(|link| link.to_str().unwrap().to_owned()).unwrap_or_default();
        let target = link.split(',').find(|part| part.contains("rel=\"next\""));
        let root = world.forge.api_url().to_string();
        path = target.map(|part| part.split(['<', '>']).nth(1).unwrap().replace(&root, ""));
    }
    assert_eq!(seen, (1..=65).rev().collect::<Vec<u64>>());
    // The name of a nonexistent label does not filter.
    let (_, all) = world.as_bot("GET", "repos/acme/app/issues?labels=other&limit=3", Value::Null).await;
    assert_eq!(all.as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn git_clones_and_pushes_over_http() {
    let world = world(Dialect::Gitea).await;
    let (url, received, _tasks) = receiver().await;
    world.forge.add_hook(world.repo, &url, "s3cret").await.unwrap();

    let (pushed, git_output) = world.push_by_git(None, "ralph/1", "x").await;
    assert!(
        !pushed && (git_output.contains("401") || git_output.contains("terminal prompts disabled")),
        "{git_output}"
    );
    let (pushed, git_output) = world.push_by_git(Some(&world.outsider), "ralph/1", "x").await;
    assert!(!pushed && git_output.contains("403"), "{git_output}");
    assert_eq!(world.forge.branch_sha(world.repo, "ralph/1").await, None);

    let (pushed, git_output) = world.push_by_git(Some(&world.bot), "ralph/1", "made by the bot").await;
    assert!(pushed, "{git_output}");
    assert_eq!(world.forge.file_at(world.repo, "ralph/1", "new.txt").await.unwrap(), "made by the bot");
    let op = world.forge.ops().pop().unwrap();
    assert_eq!((op.kind, op.actor.login.as_str()), (OpKind::BranchPushed, "ralph"));

    world.forge.protect_branch(world.repo, "main", true).unwrap();
    let (pushed, git_output) = world.push_by_git(Some(&world.bot), "main", "x").await;
    assert!(!pushed && git_output.contains("protected branch"), "{git_output}");

    world.forge.flush().await;
    let deliveries = drain(&received);
    assert_eq!(names(&deliveries), ["create", "push"]);
    assert_eq!(deliveries[1].2["ref"], "refs/heads/ralph/1");
    assert_eq!(deliveries[1].2["commits"][0]["message"], "A change");
}

#[tokio::test]
async fn pull_request_is_opened_updated_and_merged() {
    let world = world(Dialect::Gitea).await;
    let (url, received, _tasks) = receiver().await;
    let (forge, repo) = (&world.forge, world.repo);
    let issue = forge.open_issue(&world.maintainer, repo, "Say more", "", &[]).await.unwrap();
    forge.push_commit(&world.bot, repo, "ralph/1", &[("README.md", Some("more\n"), false)], "One").await.unwrap();
    forge.add_hook(repo, &url, "s3cret").await.unwrap();

    let wanted = json!({"title": "WIP: More", "body": "Closes #1", "head": "ralph/1", "base": "main"});
    let (status, pull) = world.as_bot("POST", "repos/acme/app/pulls", wanted.clone()).await;
    assert_eq!((status, pull["draft"].as_bool(), pull["mergeable"].as_bool()), (201, Some(true), Some(true)), "{pull}");
    assert_eq!(world.as_bot("POST", "repos/acme/app/pulls", wanted).await.0, 409);
    let missing = json!({"title": "x", "head": "nowhere", "base": "main"});
    assert_eq!(world.as_bot("POST", "repos/acme/app/pulls", missing).await.0, 404);
    let (status, _) = world.as_bot("POST", "repos/acme/app/pulls/2/merge", json!({"Do": "merge"})).await;
    assert_eq!(status, 405, "a draft is not merged");
    let ready = json!({"title": "More"});
    assert_eq!(world.as_bot("PATCH", "repos/acme/app/pulls/2", ready).await.0, 201);
    let head = forge.push_commit(&world.bot, repo, "ralph/1", &[("b", Some("b"), false)], "Two").await.unwrap();
    let (_, found) = world.as_bot("GET", "repos/acme/app/pulls/main/ralph/1", Value::Null).await;
    assert_eq!(found["head"]["sha"], head.as_str());

    let draft = ReviewDraft {
        verdict: ReviewVerdict::ChangesRequested,
        body: "Not so".to_owned(),
        remarks: vec![("README.md".to_owned(), 1, "why?".to_owned())],
    };
    forge.review(&world.maintainer, repo, Number(2), &draft).await.unwrap();
    let asked = json!({"reviewers": ["mia"]});
    assert_eq!(world.as_bot("POST", "repos/acme/app/pulls/2/requested_reviewers", asked).await.0, 201);
    forge.merge(&world.maintainer, repo, Number(2)).await.unwrap();
    assert_eq!(forge.file_at(repo, "main", "README.md").await.unwrap(), "more\n");
    assert!(!forge.with(|state| state.issue(repo, issue).unwrap().open), "the keyword closed the issue");

    forge.flush().await;
    let deliveries = drain(&received);
    let expected = [
        "pull_request opened",
        "pull_request edited",
        "push",
        "pull_request synchronized",
        "pull_request_rejected reviewed",
        "pull_request review_requested",
        "pull_request closed",
        "issues closed",
        "push",
    ];
    assert_eq!(names(&deliveries), expected);
    let merged = &deliveries[6].2["pull_request"];
    assert_eq!((merged["merged"].as_bool(), merged["merged_by"]["login"].as_str()), (Some(true), Some("mia")));
    assert_eq!(deliveries[4].2["review"]["content"], "Not so");
}

#[tokio::test]
async fn conflicting_pull_request_is_not_merged() {
    let world = world(Dialect::Gitea).await;
    let (forge, repo) = (&world.forge, world.repo);
    forge.push_commit(&world.bot, repo, "work", &[("README.md", Some("mine\n"), false)], "Mine").await.unwrap();
    let draft = PullDraft {
        title: "Mine".to_owned(),
        body: String::new(),
        head: "work".to_owned(),
        base: "main".to_owned(),
        draft: false,
    };
    let number = forge.open_pull(&world.bot, repo, &draft).await.unwrap();
    forge.push_commit(&world.maintainer, repo, "main", &[("README.md", Some("theirs\n"), false)], "T").await.unwrap();
    let (_, pull) = world.as_bot("GET", "repos/acme/app/pulls/1", Value::Null).await;
    assert_eq!(pull["mergeable"], false);
    let refusal = forge.merge(&world.maintainer, repo, number).await.unwrap_err();
    assert!(matches!(refusal, FakeRefusal::NotMergeable(_)), "{refusal}");
    forge.delete_branch(&world.maintainer, repo, "work").await.unwrap();
    let (_, pull) = world.as_bot("GET", "repos/acme/app/pulls/1", Value::Null).await;
    assert_eq!(pull["state"], "closed", "a pull request without its branch is closed");
}

#[tokio::test]
async fn all_merge_methods_produce_the_same_files() {
    for (method, expected) in [("merge", 3), ("squash", 2), ("rebase", 3), ("fast-forward-only", 3)] {
        let world = world(Dialect::Gitea).await;
        let (forge, repo) = (&world.forge, world.repo);
        for file in ["a", "b"] {
            forge.push_commit(&world.bot, repo, "work", &[(file, Some("text\n"), false)], file).await.unwrap();
        }
        let wanted = json!({"title": "Both", "head": "work", "base": "main"});
        assert_eq!(world.as_bot("POST", "repos/acme/app/pulls", wanted).await.0, 201);
        let (status, value) = world.as_bot("POST", "repos/acme/app/pulls/1/merge", json!({"Do": method})).await;
        assert_eq!(status, 200, "{method}: {value}");
        assert_eq!(forge.file_at(repo, "main", "b").await.as_deref(), Some("text\n"), "{method}");
        let tip = forge.branch_sha(repo, "main").await.unwrap();
        let along = forge.core.git.commits(repo, None, &tip, 50).await.unwrap().len();
        assert_eq!(along, expected + usize::from(method == "merge"), "{method}");
    }
}

#[tokio::test]
async fn gitea_deliveries_are_signed_and_name_no_label() {
    let world = world(Dialect::Gitea).await;
    let (url, received, _tasks) = receiver().await;
    let (forge, repo) = (&world.forge, world.repo);
    let hook = json!({"type": "gitea", "active": true, "events": ["issues"],
        "config": {"url": url, "content_type": "json", "secret": "s3cret"}});
    let (status, made) = world.as_bot("POST", "repos/acme/app/hooks", hook).await;
    assert_eq!(status, 201);
    assert!(made["events"].as_array().unwrap().contains(&json!("issue_comment")));
    let number = forge.open_issue(&world.outsider, repo, "Hm", "", &[]).await.unwrap();
    forge.label(&world.maintainer, repo, number, "ralph:run").await.unwrap();
    forge.unlabel(&world.maintainer, repo, number, "ralph:run").await.unwrap();
    forge.comment(&world.outsider, repo, number, "/ralph status").await.unwrap();
    forge.flush().await;
    let raw = received.lock().unwrap().clone();
    let mut ids: Vec<String> = Vec::new();
    for (headers, body) in &raw {
        use hmac::{Hmac, KeyInit, Mac};
        let digest = data_encoding::HEXLOWER.decode(headers["x-gitea-signature"].as_bytes()).unwrap();
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"s3cret").unwrap();
        mac.update(body.as_bytes());
        mac.verify_slice(&digest).unwrap();
        let hub = format!("sha256={}", headers["x-gitea-signature"].to_str().unwrap());
        assert_eq!(headers["x-hub-signature-256"], hub.as_str());
        ids.push(headers["x-gitea-delivery"].to_str().unwrap().to_owned());
    }
    ids.dedup();
    assert_eq!(ids.len(), 4, "each delivery has an id of its own");
    assert_eq!(raw[1].0["x-gitea-event-type"], "issue_label");
    let deliveries = drain(&received);
    let expected = ["issues opened", "issues label_updated", "issues label_updated", "issue_comment created"];
    assert_eq!(names(&deliveries), expected);
    assert_eq!(deliveries[1].2["issue"]["labels"][0]["name"], "ralph:run");
    assert!(deliveries[1].2.get("label").is_none() && deliveries[1].2.get("changes").is_none());
    let id = made["id"].as_i64().unwrap();
    assert_eq!(world.as_bot("POST", &format!("repos/acme/app/hooks/{id}/tests"), Value::Null).await.0, 204);
    forge.flush().await;
    assert_eq!(names(&drain(&received)), ["push"]);
}

#[tokio::test]
async fn deliveries_can_be_dropped_duplicated_and_reordered() {
    let world = world(Dialect::Gitea).await;
    let (url, received, _tasks) = receiver().await;
    let (forge, repo) = (&world.forge, world.repo);
    forge.add_hook(repo, &url, "").await.unwrap();
    let number = forge.open_issue(&world.maintainer, repo, "x", "", &[]).await.unwrap();
    forge.flush().await;
    assert_eq!(received.lock().unwrap()[0].0["x-hub-signature-256"], "sha256=", "no secret, an empty digest");
    drain(&received);

    forge.hooks().drop_next(1);
    forge.comment(&world.maintainer, repo, number, "lost").await.unwrap();
    forge.flush().await;
    assert_eq!(drain(&received).len(), 0);
    forge.hooks().duplicate_next(1, 3);
    forge.comment(&world.maintainer, repo, number, "thrice").await.unwrap();
    forge.flush().await;
    assert_eq!(drain(&received).len(), 3);
    forge.hooks().hold();
    for text in ["first", "second"] {
        forge.comment(&world.maintainer, repo, number, text).await.unwrap();
    }
    forge.flush().await;
    assert_eq!(drain(&received).len(), 0);
    forge.hooks().release(|held| held.reverse());
    forge.flush().await;
    let bodies: Vec<Value> = drain(&received).into_iter().map(|(_, _, body)| body["comment"]["body"].clone()).collect();
    assert_eq!(bodies, [json!("second"), json!("first")]);
    let log = forge.hooks().log();
    assert_eq!(log.iter().filter(|delivery| delivery.status.is_none()).count(), 1);
    forge.hooks().redeliver(&log[1]);
    forge.flush().await;
    assert_eq!(drain(&received)[0].2["comment"]["body"], "lost");
}

#[tokio::test]
async fn faults_occur_before_or_after_the_effect() {
    let world = world(Dialect::Gitea).await;
    let (forge, repo) = (&world.forge, world.repo);
    let number = forge.open_issue(&world.maintainer, repo, "x", "", &[]).await.unwrap();
    let path = "repos/acme/app/issues/1/comments";
    let faults = forge.faults();
    let count = || forge.comments(repo, number).len();

    faults.next(2, "POST", "/comments$", FakeFault::with_header(429, "retry-after", "7")).unwrap();
    for _ in 0..2 {
        let (status, headers, _) = world.ask(Some(&world.bot), "POST", path, json!({"body": "a"})).await;
        assert_eq!((status, headers["retry-after"].to_str().unwrap(), count()), (429, "7", 0));
    }
    faults.after(1, 1, "POST", "/comments$", FakeFault::after_effect(502)).unwrap();
    assert_eq!(world.as_bot("POST", path, json!({"body": "b"})).await.0, 201);
    assert_eq!(world.as_bot("POST", path, json!({"body": "c"})).await.0, 502);
    assert_eq!((count(), faults.remaining()), (2, 0));

    let send = |apply: bool| {
        faults.next(1, "POST", "/comments$", FakeFault::Reset { apply }).unwrap();
        let request = reqwest::Client::new().post(format!("{}{path}", forge.api_url())).json(&json!({"body": "d"}));
        request.header("authorization", format!("Bearer {}", forge.token_for(&world.bot))).send()
    };
    assert!(send(false).await.unwrap_err().is_request());
    assert_eq!(count(), 2);
    assert!(send(true).await.unwrap_err().is_request());
    assert_eq!(count(), 3, "the effect happened although the answer was lost");

    faults.next(1, "GET", "/version$", FakeFault::Hang).unwrap();
    let until_seen = async {
        while !forge.requests().iter().any(|request| request.path == "/api/v1/version") {
            tokio::task::yield_now().await;
        }
        world.as_bot("GET", "user", Value::Null).await
    };
    tokio::select! {
        _ = world.as_bot("GET", "version", Value::Null) => panic!("a hung request was answered"),
        (status, _) = until_seen => assert_eq!(status, 200, "others are answered meanwhile"),
    }
    let open = forge.requests().into_iter().filter(|request| request.status.is_none());
    let open: Vec<String> = open.map(|request| request.path).collect();
    let comments = "/api/v1/repos/acme/app/issues/1/comments";
    assert_eq!(open, [comments, comments, "/api/v1/version"]);
}

#[tokio::test]
async fn reactions_labels_and_comments_work_over_http() {
    let world = world(Dialect::Gitea).await;
    let (forge, repo) = (&world.forge, world.repo);
    let number = forge.open_issue(&world.outsider, repo, "x", "", &[]).await.unwrap();
    let id = forge.comment(&world.outsider, repo, number, "/ralph run").await.unwrap();
    let reactions = format!("repos/acme/app/issues/comments/{id}/reactions");
    for (content, expected) in [("eyes", 201), ("eyes", 200), ("lol", 403)] {
        assert_eq!(world.as_bot("POST", &reactions, json!({"content": content})).await.0, expected, "{content}");
    }
    let (_, label) = world.as_bot("POST", "repos/acme/app/labels", json!({"name": "bug", "color": "#FF0000"})).await;
    assert_eq!(label["color"], "ff0000");
    let labels = "repos/acme/app/issues/1/labels";
    let (status, set) = world.as_bot("POST", labels, json!({"labels": [label["id"], 999_999]})).await;
    assert_eq!((status, set.as_array().unwrap().len()), (200, 1));
    let path_of_label = format!("{labels}/{}", label["id"]);
    assert_eq!(world.as_bot("DELETE", &path_of_label, Value::Null).await.0, 204);
    assert_eq!(forge.labels(repo, number), Vec::<String>::new());
    forge.core.clock.advance_ms(60_000);
    let (status, made) = world.as_bot("POST", "repos/acme/app/issues/1/comments", json!({"body": "Working"})).await;
    assert_eq!(status, 201);
    let since = "repos/acme/app/issues/1/comments?since=2023-11-14T22:14:00Z";
    let (_, newer) = world.as_bot("GET", since, Value::Null).await;
    assert_eq!(newer.as_array().unwrap().len(), 1);
    assert_eq!(newer[0]["created_at"], "2023-11-15T00:14:20+02:00");
    let one = format!("repos/acme/app/issues/comments/{}", made["id"]);
    assert_eq!(world.as_bot("PATCH", &one, json!({"body": "Done"})).await.0, 200);
    assert_eq!(world.as_bot("DELETE", &one, Value::Null).await.0, 204);
    assert_eq!(world.as_bot("DELETE", &one, Value::Null).await.0, 404);
}
