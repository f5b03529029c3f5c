//! The main story on a real Gitea or Forgejo, if one is configured: package registries do not have it. The same story always
//! runs on the fake forge, which shows that the story itself is correct.
//!
//! `RALPH_TEST_GITEA_URL` and `RALPH_TEST_GITEA_TOKEN` (of an administrator, all scopes) configure it; it must be allowed
//! to send webhooks to loopback (`[webhook] ALLOWED_HOST_LIST = loopback`). The story deletes everything that it creates.

use axum::http::Method;
use data_encoding::BASE64;
use fake_forge::{Access, Dialect, FakeForge};
use ralph_bot::clock::Clock;
use ralph_bot::domain::loops::LoopState;
use ralph_bot::domain::model::ids::AccountKind;
use serde_json::{Value, json};

use super::service::{RealService, bare_repository};
use crate::harness::parts::{command, output, setting};
use crate::harness::{SECRET, Setup};

/// API of the server for one account.
#[derive(Clone)]
struct GiteaAccount {
    client: reqwest::Client,
    api: String,
    authorization: String,
}

impl GiteaAccount {
    fn new(url: &str, authorization: String) -> Self {
        // Another test may have chosen the same provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { client, api: format!("{}/api/v1", url.trim_end_matches('/')), authorization }
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let request = self.client.request(method.clone(), format!("{}{path}", self.api));
        let mut request = request.header("authorization", &self.authorization);
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("its text");
        assert!(status.is_success(), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }
}

/// Runs the story from label to merge, with the maintainer's account and the bot's token.
async fn from_label_to_merge(url: &str, maintainer: &GiteaAccount, repository: &str, bot_token: &str) {
    let on = |path: &str| format!("/repos/{repository}{path}");
    let forge = format!("kind: gitea, url: \"{url}\", token_env: TOKEN");
    let service = RealService::start(&forge, &[("TOKEN", bot_token)]).await;
    let config = json!({ "url": service.hook(), "content_type": "json", "secret": SECRET });
    let events = ["issues", "issue_label", "issue_comment", "pull_request", "push"];
    let hook = json!({ "type": "gitea", "active": true, "events": events, "config": config });
    maintainer.call(Method::POST, &on("/hooks"), hook).await;

    let label = json!({ "name": "ralph:run", "color": "#0e8a16" });
    let label = maintainer.call(Method::POST, &on("/labels"), label).await["id"].clone();
    let issue = json!({ "title": "The answer is wrong", "body": "It should be 42." });
    let issue = maintainer.call(Method::POST, &on("/issues"), issue).await["number"].clone();
    maintainer.call(Method::POST, &on(&format!("/issues/{issue}/labels")), json!({ "labels": [label] })).await;

    let is_ready = async |pull| {
        let pull = maintainer.call(Method::GET, &on(&format!("/pulls/{pull}")), Value::Null).await;
        !pull["title"].as_str().expect("a title").starts_with("WIP:")
    };
    let done = service.until_ready(is_ready).await;
    let number = done.pull.opened.expect("a pull request").number;
    let pull = maintainer.call(Method::GET, &on(&format!("/pulls/{number}")), Value::Null).await;
    assert_eq!(pull["head"]["sha"], done.branch.pushed.expect("a pushed commit").as_str());
    let comments = maintainer.call(Method::GET, &on(&format!("/issues/{issue}/comments")), Value::Null).await;
    assert!(comments.as_array().is_some_and(|comments| !comments.is_empty()), "the bot says what it does");

    let how = json!({ "Do": "merge" });
    maintainer.call(Method::POST, &on(&format!("/pulls/{number}/merge")), how).await;
    service.until(LoopState::Merged).await;
    service.wait_until_idle().await;
    let found = maintainer.call(Method::GET, &on(&format!("/issues/{issue}")), Value::Null).await;
    let labels: Vec<_> = found["labels"].as_array().expect("labels").iter().map(|l| l["name"].clone()).collect();
    assert!(labels.contains(&json!("ralph:merged")), "{labels:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_label_to_merge_on_a_real_gitea() {
    let (Some(url), Some(token)) = (setting("RALPH_TEST_GITEA_URL"), setting("RALPH_TEST_GITEA_TOKEN")) else {
        // No registry has a Gitea to install.
        skipped_tests::skip_in_ci_as_well(
            "set RALPH_TEST_GITEA_URL and RALPH_TEST_GITEA_TOKEN to run this on a real Gitea or Forgejo",
        );
        return;
    };
    let maintainer = GiteaAccount::new(&url, format!("token {token}"));
    let owner = maintainer.call(Method::GET, "/user", Value::Null).await["login"].as_str().expect("a login").to_owned();
    let unique = uuid::Uuid::now_v7().simple().to_string();
    let (bot, name) = (format!("ralph-{}", &unique[20..]), format!("ralph-test-{}", &unique[20..]));
    let user = json!({
        "username": bot, "email": format!("{bot}@example.org"), "password": unique, "must_change_password": false,
    });
    maintainer.call(Method::POST, "/admin/users", user).await;
    let basic = BASE64.encode(format!("{bot}:{unique}").as_bytes());
    let scopes = ["write:repository", "write:issue", "read:user"];
    let made = json!({ "name": "test", "scopes": scopes });
    let account = GiteaAccount::new(&url, format!("Basic {basic}"));
    let made = account.call(Method::POST, &format!("/users/{bot}/tokens"), made).await;
    let bot_token = made["sha1"].as_str().expect("a token").to_owned();

    let new = json!({ "name": name, "auto_init": false, "default_branch": "main" });
    maintainer.call(Method::POST, "/user/repos", new).await;
    let repository = format!("{owner}/{name}");
    let folder = tempfile::tempdir().expect("a folder");
    let bare = folder.path().join("app.git");
    bare_repository(&bare).await;
    let header =
        format!("http.extraHeader=Authorization: Basic {}", BASE64.encode(format!("{owner}:{token}").as_bytes()));
    let target = format!("{}/{repository}.git", url.trim_end_matches('/'));
    output(command("git").arg("--git-dir").arg(&bare).args(["-c", &header, "push", "-q", &target, "main"])).await;
    // Only administrators may query the permissions of others.
    let collaborator = format!("/repos/{repository}/collaborators/{bot}");
    maintainer.call(Method::PUT, &collaborator, json!({ "permission": "admin" })).await;

    from_label_to_merge(&url, &maintainer, &repository, &bot_token).await;
    maintainer.call(Method::DELETE, &format!("/repos/{repository}"), Value::Null).await;
    maintainer.call(Method::DELETE, &format!("/admin/users/{bot}?purge=true"), Value::Null).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fake_gitea_matches_the_real_one() {
    let forge = FakeForge::start(Dialect::Gitea, Clock::System).await.expect("the forge starts");
    let (mira, bot) = (forge.add_user("mira", AccountKind::User), forge.add_user("ralph-bot", AccountKind::User));
    let files = Setup::new(Dialect::Gitea).files;
    let files: Vec<_> = files.iter().map(|(path, text, executable)| (&**path, &**text, *executable)).collect();
    let repo = forge.create_repo("mira", "app", &files).await.expect("the repository is made");
    forge.grant(repo, &bot, Access::Admin).expect("the bot may ask what others may do");
    let maintainer = GiteaAccount::new(forge.url().as_str(), format!("token {}", forge.token_for(&mira)));
    from_label_to_merge(forge.url().as_str(), &maintainer, "mira/app", &forge.token_for(&bot)).await;
}
