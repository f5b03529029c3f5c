//! Replaced secrets, by the commands of RUNBOOK.md on the real binary.

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;

use crate::harness::deliveries::signed_with;
use crate::harness::parts::command;
use crate::harness::service::{Service, stop};
use crate::harness::{SECRET, Setup, on_one_forge};

on_one_forge!(secret_of_a_repository_is_replaced_without_losing_a_delivery,);

/// Variables with which the forge reaches the service.
fn public(service: &Service) -> Vec<(&'static str, String)> {
    vec![("RALPH_SERVER__PUBLIC_URL", format!("http://127.0.0.1:{}", service.port))]
}

/// Runs `ralph-bot init --webhook` for the repository; returns the secret that the forge signs with then.
async fn init_webhook(service: &Service, more: &[&str]) -> String {
    let folder = service.world.folder.path();
    let mut init = command(env!("CARGO_BIN_EXE_ralph-bot"));
    init.arg("--config").arg(folder.join("ralph-control.yaml")).args(["init", "--webhook", "--repository", "mira/app"]);
    init.args(more).current_dir(folder).env_clear().envs(service.world.environment()).envs(public(service));
    let done = init.output().await.expect("it starts");
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}");
    let hooks = service.world.forge.with(|state| state.repo(service.world.repo).expect("the repository").hooks.clone());
    assert_eq!(hooks.len(), 1, "the webhook is changed, not made again: {said}");
    hooks[0].secret.clone()
}

/// Status of a delivery that is signed with a secret; the service ignores its event.
async fn status(service: &Service, secret: &str, id: &str) -> u16 {
    let dialect = service.world.setup.dialect;
    let repo = service.world.repo.0;
    let body = serde_json::json!({ "repository": { "id": repo, "full_name": "mira/app" } }).to_string();
    let client = ralph_bot::net::client().no_proxy().build().expect("a client");
    let mut request = client.post(format!("http://127.0.0.1:{}/webhooks/forge", service.port)).body(body.clone());
    for (name, value) in signed_with(secret, dialect, id, "star", body.as_bytes()) {
        request = request.header(name, value);
    }
    request.send().await.expect("an answer").status().as_u16()
}

/// The service is stopped while `init` tests the webhook. A loop is in its second iteration the first time.
async fn secret_of_a_repository_is_replaced_without_losing_a_delivery(dialect: Dialect) {
    let service = Service::new(Setup::new(dialect), false).await;
    let folder = service.world.folder.path().display().to_string();
    std::fs::write(format!("{folder}/slow"), "").expect("written");
    service.world.write_agent(&format!(
        "[ \"$RALPH_ITERATION\" -ge 2 ] || {{ echo 1 >notes.txt; exit 0; }}\n\
         if [ -e {folder}/slow ]; then touch {folder}/begun; sleep 600; fi\necho 42 >answer.txt\n"
    ));
    let first = init_webhook(&service, &[]).await;
    assert!(first != SECRET && first.len() >= 32, "a secret of the repository's own");
    let started = async || {
        let child = service.spawn_in("all", public(&service));
        service.until("the service to listen", async || service.listens().await).await;
        child
    };
    let mut child = started().await;
    service.world.label().await;
    let begun = service.world.folder.path().join("begun");
    service.until("the second iteration", async || begun.exists()).await;
    std::fs::remove_file(format!("{folder}/slow")).expect("removed");

    assert!(stop(&mut child).await.success(), "{}", service.log());
    let second = init_webhook(&service, &["--new-secret"]).await;
    assert_ne!(second, first);
    // No service receives it, and it is sent again.
    let command = service.world.comment("/ralph status").await;
    service.world.forge.flush().await;
    let mut child = started().await;
    assert!(service.redeliver_failed() > 0, "a delivery was under way");
    for (secret, expected) in [(&first, 202), (&second, 202), (&SECRET.to_owned(), 401)] {
        assert_eq!(status(&service, secret, &format!("between-{expected}-{}", &secret[..8])).await, expected);
    }
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    assert_eq!(done.spent.iterations, 2, "{}", done.why);
    service.wait_until_idle().await;
    assert!(!service.world.reactions(command).is_empty(), "the command whose delivery was sent again was read");

    assert!(stop(&mut child).await.success(), "{}", service.log());
    assert_eq!(init_webhook(&service, &[]).await, second, "the newest stays");
    let mut child = started().await;
    assert_eq!(status(&service, &first, "after-old").await, 401, "the old one is dropped");
    assert_eq!(status(&service, &second, "after-new").await, 202);
    service.wait_until_idle().await;
    assert!(stop(&mut child).await.success(), "{}", service.log());
    service.finish().await;
}
