//! Compares deliveries and responses recorded from Gitea 1.25.4 with the fake's for the same actions: fields, types, nulls
//! and statuses.

use std::collections::BTreeMap;

use http::HeaderMap;
use serde_json::{Value, json};

use super::{ReceivedDeliveries, receiver};
use crate::{Dialect, FakeForge};
use ralph_types::clock::Clock;
use ralph_types::ids::{RepoId, Timestamp, User};

/// Allowed differences: end of the path, and the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("/language", "the fake does not find out the language of a repository"),
    ("/avatar_url", "organizations and repositories of the fake have no picture of their own"),
    ("/verification", "Gitea adds a signature's verification to some commits"),
    ("/added", "the fake does not list the files of a commit"),
    ("/email", "addresses are hidden from some readers"),
];

fn recorded(file: &str) -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/contracts/gitea-recorded/").to_owned() + file;
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))).unwrap()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(text) if text.is_empty() => "empty text",
        Value::String(_) => "text",
        // Go writes an empty list either as null or as `[]`.
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Collects the differences between a value and the recorded one in fields, types and nulls.
fn differences(recorded: &Value, ours: &Value, at: &str, found: &mut Vec<String>) {
    if EXCEPTIONS.iter().any(|(end, _)| at.ends_with(end)) {
        return;
    }
    match (recorded, ours) {
        (Value::Object(recorded), Value::Object(ours)) => {
            for (key, value) in recorded {
                match ours.get(key) {
                    Some(own) => differences(value, own, &format!("{at}/{key}"), found),
                    None => found.push(format!("{at}/{key} is missing")),
                }
            }
            for key in ours.keys().filter(|key| !recorded.contains_key(*key)) {
                found.push(format!("{at}/{key} is not in the recorded one"));
            }
        }
        (Value::Array(recorded), Value::Array(ours)) => match (recorded.first(), ours.first()) {
            (Some(recorded), Some(own)) => differences(recorded, own, &format!("{at}/0"), found),
            (None, None) => {}
            (recorded, own) => {
                found.push(format!("{at}: {} elements recorded, {} ours", recorded.is_some(), own.is_some()));
            }
        },
        (Value::Null, Value::Array(list)) | (Value::Array(list), Value::Null) if list.is_empty() => {}
        (recorded, ours) if kind(recorded) != kind(ours) => {
            found.push(format!("{at} is {}, recorded {}", kind(ours), kind(recorded)));
        }
        _ => {}
    }
}

/// Gitea with the recording's organization, people and repository.
struct Scene {
    forge: FakeForge,
    repo: RepoId,
    client: reqwest::Client,
    root: String,
    received: ReceivedDeliveries,
    clock: Clock,
    hook: i64,
    _tasks: tokio::task::JoinSet<()>,
    /// Labels by name.
    labels: BTreeMap<&'static str, i64>,
}

impl Scene {
    async fn new() -> Self {
        let clock = Clock::manual(Timestamp(1_700_000_000_000));
        let forge = FakeForge::start(Dialect::Gitea, clock.clone()).await.unwrap();
        let (root, client) = (forge.administrator_token(), plain_client());
        let (url, received, tasks) = receiver().await;
        let mut scene = Self {
            forge,
            repo: RepoId(0),
            client,
            root,
            received,
            clock,
            hook: 0,
            _tasks: tasks,
            labels: BTreeMap::new(),
        };
        let root = scene.root.clone();
        for login in ["mira", "dev", "reader", "ralph", "outsider"] {
            let user = json!({"username": login, "password": "x", "email": format!("{login}@example.org")});
            scene.call(&root, "POST", "admin/users", user).await;
        }
        scene.by("mira", "POST", "orgs", json!({"username": "acme"})).await;
        let units = json!({"repo.code": "write", "repo.issues": "write", "repo.pulls": "write"});
        let team = json!({
            "name": "devs", "permission": "write", "units_map": units, "includes_all_repositories": true,
        });
        let team = scene.by("mira", "POST", "orgs/acme/teams", team).await.1["id"].clone();
        scene.by("mira", "PUT", &format!("teams/{team}/members/dev"), json!({})).await;
        let new = json!({"name": "app", "private": true, "auto_init": false});
        scene.by("mira", "POST", "orgs/acme/repos", new).await;
        scene.repo = scene.forge.with(|state| state.find_repo("acme", "app").map(|repo| repo.id)).unwrap();
        for (login, permission) in [("reader", "read"), ("ralph", "admin")] {
            let path = format!("repos/acme/app/collaborators/{login}");
            scene.by("mira", "PUT", &path, json!({"permission": permission})).await;
        }
        scene.push("mira", "main", ".ralph.yml").await;
        for name in ["ralph:run", "bug"] {
            let label = json!({"name": name, "color": "#0e8a16"});
            let made = scene.by("mira", "POST", "repos/acme/app/labels", label).await.1;
            scene.labels.insert(name, made["id"].as_i64().unwrap());
        }
        let hook = json!({
            "type": "gitea", "active": true, "config": {"url": url, "content_type": "json", "secret": "s"},
            "events": ["create", "delete", "push", "issues", "pull_request", "repository", "status"],
        });
        scene.hook = scene.by("mira", "POST", "repos/acme/app/hooks", hook).await.1["id"].as_i64().unwrap();
        scene
    }

    fn user(&self, login: &str) -> User {
        self.forge.with(|state| state.account_named(login).map(|account| account.user.clone())).unwrap()
    }

    async fn call(&self, token: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let url = format!("{}{path}", self.forge.api_url());
        let mut request = self.client.request(method.parse().unwrap(), url);
        request = request.header("authorization", format!("token {token}"));
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Value::Null))
    }

    async fn by(&self, login: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.clock.advance_ms(2000);
        let token = self.forge.token_for(&self.user(login));
        self.call(&token, method, path, body).await
    }

    async fn on(&self, login: &str, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.by(login, method, &format!("repos/acme/app/{path}"), body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    async fn push(&self, login: &str, branch: &str, file: &str) {
        self.clock.advance_ms(2000);
        let change = [(file, Some("x\n"), false)];
        self.forge.push_commit(&self.user(login), self.repo, branch, &change, "A change").await.unwrap();
    }

    /// Removes and returns the deliveries so far.
    async fn delivered(&self) -> Vec<(HeaderMap, Value)> {
        self.forge.flush().await;
        let taken = std::mem::take(&mut *self.received.lock().unwrap());
        taken.into_iter().map(|(headers, body)| (headers, serde_json::from_str(&body).unwrap())).collect()
    }

    /// Compares the deliveries since the last call with the `count` deliveries recorded as `name`; returns the differences.
    async fn compare(&self, name: &str, count: usize) -> Vec<String> {
        let numbers: Vec<usize> = (1..=count).collect();
        self.compare_numbers(name, &numbers).await
    }

    /// Same as `compare`, for the deliveries with these numbers.
    async fn compare_numbers(&self, name: &str, numbers: &[usize]) -> Vec<String> {
        let ours = self.delivered().await;
        let mut found = Vec::new();
        if ours.len() != numbers.len() {
            let names: Vec<_> =
                ours.iter().map(|(headers, body)| (&headers["x-gitea-event-type"], &body["action"])).collect();
            found.push(format!("{name}: {} deliveries instead of {numbers:?}: {names:?}", ours.len()));
        }
        for (number, (headers, body)) in numbers.iter().zip(&ours) {
            let file = format!("webhooks/{name}-{number}.json");
            let recorded = recorded(&file);
            for (header, value) in recorded["headers"].as_object().unwrap() {
                let own = headers.get(header.to_ascii_lowercase()).and_then(|value| value.to_str().ok());
                let named = header.ends_with("-Event") || header.ends_with("-Event-Type") || header.ends_with("-Type");
                match own {
                    // The fake omits the insecure SHA-1 signature.
                    None if header == "X-Hub-Signature" => {}
                    None => found.push(format!("{file}: the header {header} is missing")),
                    Some(own) if named && own != value => {
                        found.push(format!("{file}: {header} is {own}, recorded {value}"));
                    }
                    Some(_) => {}
                }
            }
            if recorded["body"]["action"] != body["action"] {
                found
                    .push(format!("{file}: the action is {}, recorded {}", body["action"], recorded["body"]["action"]));
            }
            let labels = |body: &Value| {
                let list = body["issue"]["labels"].as_array().cloned().unwrap_or_default();
                list.iter().map(|label| label["name"].to_string()).collect::<std::collections::BTreeSet<_>>()
            };
            if labels(&recorded["body"]) != labels(body) {
                found.push(format!("{file}: labels {:?}, recorded {:?}", labels(body), labels(&recorded["body"])));
            }
            differences(&recorded["body"], body, &file, &mut found);
        }
        found
    }
}

fn plain_client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

/// Fails if there are lines; lists each distinct one once.
fn assert_none(found: Vec<String>) {
    let mut lines = Vec::new();
    for line in found {
        let rest = line.split_once(".json").map_or(line.as_str(), |(_, rest)| rest).to_owned();
        if !lines.iter().any(|(_, known)| *known == rest) {
            lines.push((line, rest));
        }
    }
    let lines: Vec<String> = lines.into_iter().map(|(line, _)| line).collect();
    assert!(lines.is_empty(), "{} differences:\n{}", lines.len(), lines.join("\n"));
}

#[tokio::test]
async fn deliveries_equal_the_recorded_ones() {
    let scene = Scene::new().await;
    let hook = format!("hooks/{}/tests", scene.hook);
    scene.delivered().await;
    let mut found = Vec::new();
    let none = Value::Null;
    scene.on("mira", "POST", &hook, json!({})).await;
    found.extend(scene.compare("01-hook-test", 1).await);
    scene.push("mira", "main", "first.txt").await;
    found.extend(scene.compare_numbers("01-hook-test", &[2]).await);
    let text = json!({"title": "The answer is wrong", "body": "It should be **42**."});
    scene.on("dev", "POST", "issues", text).await;
    found.extend(scene.compare("02-issue-opened", 1).await);
    let (run, bug) = (scene.labels["ralph:run"], scene.labels["bug"]);
    scene.on("dev", "POST", "issues/1/labels", json!({"labels": [run]})).await;
    found.extend(scene.compare("03-label-added", 1).await);
    scene.on("dev", "POST", "issues/1/labels", json!({"labels": [bug]})).await;
    found.extend(scene.compare("04-second-label-added", 1).await);
    scene.on("dev", "DELETE", &format!("issues/1/labels/{bug}"), none.clone()).await;
    found.extend(scene.compare("05-one-label-removed", 1).await);
    scene.on("dev", "PUT", "issues/1/labels", json!({"labels": [run, bug]})).await;
    found.extend(scene.compare("06-labels-replaced-by-PUT", 1).await);
    scene.on("dev", "DELETE", "issues/1/labels", none.clone()).await;
    found.extend(scene.compare("07-labels-cleared", 1).await);
    scene.on("dev", "POST", "issues", json!({"title": "Two", "body": "x", "labels": [run]})).await;
    found.extend(scene.compare("08-issue-made-with-label", 2).await);
    scene.on("dev", "PATCH", "issues/1", json!({"title": "The answer is quite wrong"})).await;
    found.extend(scene.compare("09-title-edited", 1).await);
    scene.on("dev", "PATCH", "issues/1", json!({"body": "Another text"})).await;
    found.extend(scene.compare("10-body-edited", 1).await);
    scene.on("dev", "PATCH", "issues/1", json!({"assignees": ["dev"]})).await;
    found.extend(scene.compare("11-issue-assigned", 1).await);
    scene.on("dev", "PATCH", "issues/1", json!({"state": "closed"})).await;
    found.extend(scene.compare("12-issue-closed", 1).await);
    scene.on("dev", "PATCH", "issues/1", json!({"state": "open"})).await;
    found.extend(scene.compare("13-issue-reopened", 1).await);
    let comment = scene.on("dev", "POST", "issues/1/comments", json!({"body": "/ralph status"})).await["id"].clone();
    found.extend(scene.compare("14-comment-made", 1).await);
    let comment = format!("issues/comments/{comment}");
    scene.on("dev", "PATCH", &comment, json!({"body": "/ralph abort"})).await;
    found.extend(scene.compare("15-comment-edited", 1).await);
    scene.on("dev", "DELETE", &comment, none.clone()).await;
    found.extend(scene.compare("16-comment-deleted", 1).await);
    // These actions cause no deliveries.
    scene.on("mira", "PUT", "issues/1/lock", json!({"lock_reason": "Spam"})).await;
    scene.on("mira", "DELETE", "issues/1/lock", none).await;
    assert_eq!(scene.delivered().await.len(), 0);
    assert_none(found);
}

#[tokio::test]
async fn deliveries_of_pull_requests_equal_the_recorded_ones() {
    let scene = Scene::new().await;
    let mut found = Vec::new();
    for title in ["The answer is wrong", "Two"] {
        scene.on("dev", "POST", "issues", json!({"title": title, "body": "x"})).await;
    }
    scene.on("dev", "PATCH", "issues/1", json!({"assignees": ["dev"]})).await;
    scene.delivered().await;
    scene.push("ralph", "ralph/1-answer", "notes.txt").await;
    found.extend(scene.compare("19-branch-pushed", 2).await);
    let pull = json!({"title": "WIP: The answer", "body": "Closes #1", "head": "ralph/1-answer", "base": "main"});
    scene.on("ralph", "POST", "pulls", pull).await;
    found.extend(scene.compare("20-draft-pull-request-opened", 1).await);
    scene.on("ralph", "PATCH", "pulls/3", json!({"title": "The answer"})).await;
    found.extend(scene.compare("21-pull-request-made-ready", 1).await);
    scene.on("ralph", "POST", "pulls/3/requested_reviewers", json!({"reviewers": ["dev"]})).await;
    found.extend(scene.compare("22-review-requested", 1).await);
    let remark = |text: &str| json!([{"path": "notes.txt", "new_position": 1, "body": text}]);
    let review = json!({"event": "COMMENT", "body": "hm", "comments": remark("why?")});
    scene.on("dev", "POST", "pulls/3/reviews", review).await;
    found.extend(scene.compare("23-review-that-comments", 1).await);
    let review = json!({"body": "Draft.", "comments": remark("pending remark")});
    let drafted = scene.on("dev", "POST", "pulls/3/reviews", review).await["id"].clone();
    assert_eq!(scene.delivered().await.len(), 0, "a draft is not delivered");
    let submitted = json!({"event": "REQUEST_CHANGES", "body": "see my remark"});
    scene.on("dev", "POST", &format!("pulls/3/reviews/{drafted}"), submitted).await;
    found.extend(scene.compare("25-pending-review-submitted", 1).await);
    scene.on("dev", "POST", "pulls/3/reviews", json!({"event": "APPROVED", "body": "ok"})).await;
    found.extend(scene.compare("27-review-that-approves", 1).await);
    scene.on("dev", "POST", "issues/3/comments", json!({"body": "/ralph status"})).await;
    found.extend(scene.compare("28-comment-on-the-pull-request", 1).await);
    scene.push("ralph", "ralph/1-answer", "more.txt").await;
    found.extend(scene.compare("30-commit-pushed-to-pull-request", 2).await);
    scene.push("mira", "main", "other.txt").await;
    found.extend(scene.compare("31-push-to-base", 1).await);
    scene.on("dev", "PATCH", "pulls/3", json!({"state": "open"})).await;
    assert_eq!(scene.delivered().await.len(), 0, "nothing changed");
    let main = scene.forge.branch_sha(scene.repo, "main").await.unwrap();
    scene.forge.force_branch(&scene.user("mira"), scene.repo, "dev2", &main).await.unwrap();
    let changed = "32-base-of-pull-request-changed";
    found.extend(scene.compare_numbers(changed, &[2, 3]).await);
    scene.on("ralph", "PATCH", "pulls/3", json!({"base": "dev2"})).await;
    found.extend(scene.compare_numbers(changed, &[1]).await);
    scene.on("ralph", "PATCH", "pulls/3", json!({"base": "main"})).await;
    found.extend(scene.compare_numbers(changed, &[4]).await);
    scene.on("dev", "PATCH", "pulls/3", json!({"state": "closed"})).await;
    found.extend(scene.compare("33-pull-request-closed", 1).await);
    scene.on("dev", "PATCH", "pulls/3", json!({"state": "open"})).await;
    found.extend(scene.compare("34-pull-request-reopened", 1).await);
    scene.on("dev", "POST", "pulls/3/merge", json!({"Do": "merge"})).await;
    found.extend(scene.compare("35-pull-request-merged", 3).await);
    scene.on("dev", "DELETE", "branches/ralph/1-answer", Value::Null).await;
    found.extend(scene.compare("36-branch-deleted", 1).await);
    scene.on("dev", "POST", "issues", json!({"title": "Gone"})).await;
    scene.on("mira", "DELETE", "issues/4", Value::Null).await;
    found.extend(scene.compare("37-issue-deleted", 2).await);
    assert_none(found);
}

#[tokio::test]
async fn answers_equal_the_recorded_ones() {
    let scene = Scene::new().await;
    let none = Value::Null;
    let bot = scene.user("ralph");
    let limited = scene.forge.with(|state| {
        let scopes = ["write:issue", "write:repository", "read:user"].map(str::to_owned).to_vec();
        state.create_token(bot.id, Some(scopes))
    });
    scene.on("dev", "POST", "issues", json!({"title": "One", "body": "x"})).await;
    let run = scene.labels["ralph:run"];
    scene.on("dev", "POST", "issues/1/labels", json!({"labels": [run]})).await;
    scene.push("ralph", "ralph/1-answer", "notes.txt").await;
    let pull = json!({"title": "The answer", "body": "Closes #1", "head": "ralph/1-answer", "base": "main"});
    scene.on("ralph", "POST", "pulls", pull).await;
    let mut found = Vec::new();
    let opened = "repos/acme/app/pulls/2";
    let token = |login: &str| scene.forge.token_for(&scene.user(login));
    found.extend(scene.answer("pull-request-just-opened", &token("ralph"), "GET", opened, &none).await);
    scene.on("ralph", "POST", "pulls/2/requested_reviewers", json!({"reviewers": ["dev"]})).await;
    let remark = json!([{"path": "notes.txt", "new_position": 1, "body": "why?"}]);
    let review = json!({"event": "REQUEST_CHANGES", "body": "hm", "comments": remark});
    let review = scene.on("dev", "POST", "pulls/2/reviews", review).await["id"].clone();
    let sha = scene.on("dev", "GET", "pulls/2", none.clone()).await["head"]["sha"].as_str().unwrap().to_owned();
    let team =
        scene.forge.with(|state| state.teams.iter().find(|team| team.name == "devs").map(|team| team.id)).unwrap();
    scene.on("dev", "POST", "issues", json!({"title": "Two", "body": "x", "labels": [run]})).await;
    let member = format!("teams/{team}/members/dev");
    let reviews = format!("repos/acme/app/pulls/2/reviews/{review}/comments");
    let hook = format!("repos/acme/app/hooks/{}", scene.hook);
    let combined = format!("repos/acme/app/commits/{sha}/status");
    let body = json!({"body": "x"});
    let eyes = json!({"content": "eyes"});
    let nonsense = json!({"content": "nonsense"});
    let another = json!({"title": "x", "head": "nope", "base": "main"});
    for (name, token, method, path, body) in [
        ("a-bad-token", "nonsense".to_owned(), "GET", "user", &none),
        ("version", token("ralph"), "GET", "version", &none),
        ("settings-of-the-API", token("ralph"), "GET", "settings/api", &none),
        ("own-account", token("ralph"), "GET", "user", &none),
        ("repository", token("ralph"), "GET", "repos/acme/app", &none),
        ("repository-that-is-not-there", token("ralph"), "GET", "repos/acme/nope", &none),
        ("a-file", token("ralph"), "GET", "repos/acme/app/contents/.ralph.yml", &none),
        ("file-that-is-not-there", token("ralph"), "GET", "repos/acme/app/contents/nope.txt", &none),
        ("hook-as-made", token("ralph"), "GET", &hook, &none),
        ("permission-of-the-owner", token("ralph"), "GET", "repos/acme/app/collaborators/mira/permission", &none),
        ("permission-of-a-reader", token("ralph"), "GET", "repos/acme/app/collaborators/reader/permission", &none),
        (
            "permission-of-a-team-member-with-write",
            token("ralph"),
            "GET",
            "repos/acme/app/collaborators/dev/permission",
            &none,
        ),
        ("permission-of-an-outsider", token("ralph"), "GET", "repos/acme/app/collaborators/outsider/permission", &none),
        ("permission-of-nobody", token("ralph"), "GET", "repos/acme/app/collaborators/nobody-here/permission", &none),
        ("teams-of-the-repository", token("ralph"), "GET", "repos/acme/app/teams", &none),
        ("team-membership-without-the-scope", limited.clone(), "GET", &member, &none),
        ("organisation-labels-without-the-scope", limited, "GET", "orgs/acme/labels", &none),
        ("issue-that-is-not-there", token("ralph"), "GET", "repos/acme/app/issues/9999", &none),
        ("comments-of-an-issue-that-is-not-there", token("ralph"), "GET", "repos/acme/app/issues/9999/comments", &none),
        ("comment-on-an-issue-that-is-not-there", token("ralph"), "POST", "repos/acme/app/issues/9999/comments", &body),
        ("issues-by-label", token("ralph"), "GET", "repos/acme/app/issues?labels=ralph%3Arun&state=open", &none),
        (
            "label-filter-of-a-label-that-is-not-there",
            token("ralph"),
            "GET",
            "repos/acme/app/issues?labels=nope&state=open",
            &none,
        ),
        ("timeline-of-the-issue", token("ralph"), "GET", "repos/acme/app/issues/1/timeline", &none),
        ("pull-request-that-exists-already", token("ralph"), "POST", "repos/acme/app/pulls", &another),
        ("reviews", token("ralph"), "GET", "repos/acme/app/pulls/2/reviews", &none),
        ("comments-of-a-review", token("ralph"), "GET", &reviews, &none),
        ("combined-status", token("ralph"), "GET", &combined, &none),
        ("reaction", token("ralph"), "POST", "repos/acme/app/issues/1/reactions", &eyes),
        ("reaction-that-is-not-allowed", token("ralph"), "POST", "repos/acme/app/issues/1/reactions", &nonsense),
    ] {
        found.extend(scene.answer(name, &token, method, path, body).await);
    }
    scene.on("mira", "PUT", "issues/1/lock", json!({})).await;
    let path = "repos/acme/app/issues/1/comments";
    found.extend(scene.answer("comment-on-a-locked-issue-by-a-reader", &token("reader"), "POST", path, &body).await);
    scene.on("mira", "DELETE", "issues/1/lock", none.clone()).await;
    scene.push("mira", "main", "other.txt").await;
    for time in 0..4 {
        let name = format!("pull-request-{time}-times-after-a-push-to-its-base");
        found.extend(scene.answer(&name, &token("ralph"), "GET", "repos/acme/app/pulls/2", &none).await);
    }
    scene.on("dev", "DELETE", "issues/1/labels", none.clone()).await;
    scene.on("dev", "PATCH", "issues/1", json!({"assignees": ["dev"]})).await;
    scene.on("dev", "POST", "pulls/2/merge", json!({"Do": "merge"})).await;
    found.extend(scene.answer("merged-pull-request", &token("ralph"), "GET", "repos/acme/app/pulls/2", &none).await);
    found.extend(scene.answer("issue-after-merge", &token("ralph"), "GET", "repos/acme/app/issues/1", &none).await);
    scene.by("mira", "PATCH", "repos/acme/app", json!({"name": "app2"})).await;
    let (status, _) = scene.call(&token("ralph"), "GET", "repos/acme/app", none.clone()).await;
    assert_eq!(status, 301, "the old name");
    let path = "repos/acme/app2";
    found.extend(scene.answer("repository-by-its-old-name", &token("ralph"), "GET", path, &none).await);
    scene.by("mira", "PATCH", path, json!({"has_issues": false})).await;
    found
        .extend(scene.answer("issues-are-switched-off", &token("ralph"), "GET", "repos/acme/app2/issues", &none).await);
    scene.by("mira", "PATCH", path, json!({"has_issues": true, "archived": true})).await;
    let path = "repos/acme/app2/issues/1/comments";
    found.extend(scene.answer("comment-in-an-archived-repository", &token("ralph"), "POST", path, &body).await);
    assert_none(found);
}

impl Scene {
    /// Compares the response to a request with the recorded one; returns the differences.
    async fn answer(&self, name: &str, token: &str, method: &str, path: &str, body: &Value) -> Vec<String> {
        self.clock.advance_ms(2000);
        let (status, ours) = self.call(token, method, path, body.clone()).await;
        let file = format!("rest/{name}.json");
        let recorded = recorded(&file);
        let mut found = Vec::new();
        if recorded["status"] != status {
            found.push(format!("{file}: the status is {status}, recorded {}", recorded["status"]));
        }
        differences(&recorded["body"], &ours, &file, &mut found);
        found
    }
}
