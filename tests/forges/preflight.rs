//! Look at a real server before the first story: its version, the administrator's token, and whether its webhooks arrive. Without
//! it, every story would wait in vain for itself.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::network::Relay;
use crate::server::{Account, Server, ServerAnswer, TokenScopes};

/// Maximum wait for the test delivery.
const DELIVERY_LIMIT: Duration = Duration::from_secs(20);

/// Result of the look at the real server, which all stories of a run share.
static FOUND: OnceCell<Result<(), String>> = OnceCell::const_new();

/// Looks at the real server, once a run.
///
/// # Panics
///
/// If it cannot run stories, with the reason and the remedy.
pub async fn once(server: &Server) {
    if let Err(why) = FOUND.get_or_init(|| look(server, DELIVERY_LIMIT)).await {
        panic!("{} cannot run stories: {why}", server.url);
    }
}

/// Returns why a Gitea cannot run stories, with the remedy.
async fn look(server: &Server, patience: Duration) -> Result<(), String> {
    let version = server.as_admin(Method::GET, "/version", Value::Null).await;
    let unknown =
        |said: &ServerAnswer| format!("it does not know the token ({}); set RALPH_TEST_GITEA_TOKEN", told(said));
    if version.status == 401 {
        return Err(unknown(&version));
    }
    if version.status != 200 || !version.body["version"].is_string() {
        return Err(format!(
            "it has no API of Gitea ({}); set RALPH_TEST_GITEA_URL to its web address",
            told(&version)
        ));
    }
    let account = server.as_admin(Method::GET, "/user", Value::Null).await;
    if account.status == 401 {
        return Err(unknown(&account));
    }
    // An empty body reveals the scope and changes nothing.
    let asked = server.as_admin(Method::POST, "/admin/users", json!({})).await;
    let says = told(&asked);
    match asked.status {
        422 => {}
        403 if says.contains("scope") => {
            return Err(format!("the token may not make accounts ({says}); give it the scope `write:admin`, or all"));
        }
        403 => return Err(format!("the token's account is no administrator ({says}); use one of an administrator")),
        _ => return Err(format!("accounts cannot be made ({says}); give the token of an administrator `write:admin`")),
    }
    let login = format!("preflight-{}", &uuid::Uuid::now_v7().simple().to_string()[20..]);
    let account = server.account(&login, TokenScopes::All).await;
    let arrived = delivery(server, &account, patience).await;
    let deleted = server.delete_account(&login).await;
    arrived?;
    match deleted.status {
        ..300 => Ok(()),
        _ => Err(format!("the account {login} could not be deleted ({})", told(&deleted))),
    }
}

/// Makes a repository with a webhook and waits for its test delivery.
async fn delivery(server: &Server, account: &Account, patience: Duration) -> Result<(), String> {
    let new = json!({ "name": "app", "private": true, "auto_init": true, "default_branch": "main" });
    server.ok(&account.token, Method::POST, "/user/repos", new).await;
    let host = server.hook_host();
    let relay = Relay::start("http://127.0.0.1:1/", host.as_deref()).await;
    let path = format!("/repos/{}/app/hooks", account.login);
    let config = json!({ "url": relay.url(), "content_type": "json" });
    let hook = json!({ "type": "gitea", "active": true, "events": ["push"], "config": config });
    let id = server.ok(&account.token, Method::POST, &path, hook).await["id"].clone();
    let asked = server.call(&account.token, Method::POST, &format!("{path}/{id}/tests"), json!({})).await;
    if asked.status >= 300 {
        return Err(format!("it sends no test delivery ({})", told(&asked)));
    }
    let arrives = async {
        while relay.recorded().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(patience, arrives).await.map_err(|_| {
        format!(
            "no webhook arrived at {} within {} s; allow the address in its app.ini (`[webhook] ALLOWED_HOST_LIST = \
             loopback`, or `private`), and if it runs on another machine or in a container, set RALPH_TEST_HOOK_HOST to the \
             name by which it reaches this one",
            relay.url(),
            patience.as_secs()
        )
    })
}

fn told(answer: &ServerAnswer) -> String {
    let body = answer.body["message"].as_str().map_or_else(|| answer.body.to_string(), str::to_owned);
    format!("{}: {}", answer.status, body.chars().take(200).collect::<String>())
}

mod tests {
    use super::*;
    use crate::server::On;

    async fn found(server: &Server) -> Result<(), String> {
        look(server, Duration::from_millis(500)).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn preflight_passes_on_a_usable_server_without_leftovers() {
        for on in [On::FakeGitea, On::OldGitea] {
            let server = Server::open(on).await.expect("a fake");
            assert_eq!(found(&server).await, Ok(()));
            let left = server.fake().expect("a fake").with(|state| (state.repos.len(), state.accounts.len()));
            assert_eq!(left, (0, 1), "only the administrator");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn missing_requirement_is_reported_with_a_remedy() {
        let server = Server::open(On::FakeGitea).await.expect("a fake");
        let fake = server.fake().expect("a fake");
        let person = server.account("otto", TokenScopes::All).await;
        let limited = fake.with(|state| {
            let root = state.account_named("root").expect("the administrator").user.id;
            state.create_token(root, Some(vec!["read:user".to_owned(), "read:admin".to_owned()]))
        });
        for (token, remedy) in [
            ("nonsense", "RALPH_TEST_GITEA_TOKEN"),
            (person.token.as_str(), "of an administrator"),
            (limited.as_str(), "`write:admin`"),
        ] {
            let why = found(&server.with_admin(token)).await.expect_err(remedy);
            assert!(why.contains(remedy), "{why}");
        }
        fake.hooks().drop_next(1);
        let why = found(&server).await.expect_err("no delivery");
        assert!(why.contains("ALLOWED_HOST_LIST") && why.contains("RALPH_TEST_HOOK_HOST"), "{why}");
        assert!(fake.with(|state| state.repos.is_empty()), "nothing is left");
    }
}
