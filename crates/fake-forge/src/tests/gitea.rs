//! Tests of Gitea behavior that no description states.

use serde_json::{Value, json};

use super::world;
use crate::{Dialect, GiteaVersion, PullDraft};
use ralph_types::ids::AccountKind;

#[tokio::test]
async fn members_and_owners_can_read_memberships() {
    let world = world(Dialect::Gitea).await;
    let (member, owner, other) = world.forge.with(|state| {
        let add = |state: &mut crate::FakeState, login: &str| state.add_account(login, AccountKind::User, false);
        let (member, owner, other) = (add(state, "member"), add(state, "owner"), add(state, "other"));
        state.create_organization(owner.id, "team-org").unwrap();
        state.add_team_member("team-org", "devs", member.id, true);
        state.add_team_member("team-org", "others", other.id, true);
        (member, owner, other)
    });
    let team =
        world.forge.with(|state| state.teams.iter().find(|team| team.name == "devs").map(|team| team.id)).unwrap();
    let path = format!("teams/{team}/members/member");
    for (who, expected) in [(&member, 200), (&owner, 200), (&other, 403), (&world.bot, 404)] {
        let (status, _, answer) = world.ask(Some(who), "GET", &path, Value::Null).await;
        assert_eq!(status, expected, "{}: {answer}", who.login);
    }
    let (status, _, _) = world.ask(Some(&member), "GET", &format!("teams/{team}/members/other"), Value::Null).await;
    assert_eq!(status, 404, "not a member");
}

#[tokio::test]
async fn empty_post_reports_the_required_scope() {
    let world = world(Dialect::Gitea).await;
    let client = reqwest::Client::new();
    for (scope, expected) in [("read:issue", 403), ("write:issue", 422)] {
        let token = world.forge.with(|state| state.create_token(world.bot.id, Some(vec![scope.to_owned()])));
        let url = format!("{}repos/acme/app/issues", world.forge.api_url());
        let request = client.post(url).header("authorization", format!("token {token}")).json(&json!({}));
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), expected, "{scope}");
        let said = answer.text().await.unwrap();
        assert_eq!(said.contains("required=[write:issue]"), expected == 403, "{said}");
    }
}

/// A client that follows the redirect of a renamed repository sends GET instead of POST.
#[tokio::test]
async fn post_under_an_old_name_becomes_a_get() {
    let world = world(Dialect::Gitea).await;
    world.forge.with(|state| state.rename_repo(world.maintainer.id, world.repo, "tool")).unwrap();
    let (status, _, answer) = world.ask(Some(&world.bot), "POST", "repos/acme/app/issues", json!({"title": "x"})).await;
    assert_eq!((status, answer), (200, json!([])));
}

#[tokio::test]
async fn pull_request_is_checked_after_each_push_to_its_base() {
    let world = world(Dialect::Gitea).await;
    let (forge, repo) = (&world.forge, world.repo);
    forge.push_commit(&world.bot, repo, "ralph/1", &[("b", Some("b"), false)], "One").await.unwrap();
    let pull = PullDraft {
        title: "Mend".to_owned(),
        body: String::new(),
        head: "ralph/1".to_owned(),
        base: "main".to_owned(),
        draft: false,
    };
    let number = forge.open_pull(&world.bot, repo, &pull).await.unwrap();
    let mergeable = async || {
        let path = format!("repos/acme/app/pulls/{number}");
        world.ask(Some(&world.bot), "GET", &path, Value::Null).await.2["mergeable"].clone()
    };
    assert_eq!(mergeable().await, true);
    forge.push_commit(&world.maintainer, repo, "main", &[("c", Some("c"), false)], "Other").await.unwrap();
    assert_eq!((mergeable().await, mergeable().await), (json!(false), json!(true)));
}

/// Gitea takes a page of the stored entries, then filters it and counts only the remaining entries. A page may be short, or
/// empty in the middle.
#[tokio::test]
async fn timeline_total_counts_only_its_page() {
    let world = world(Dialect::Gitea).await;
    let (forge, repo, bot) = (&world.forge, world.repo, &world.bot);
    let issue = forge.open_issue(bot, repo, "It fails", "", &[]).await.unwrap();
    let comment = forge.comment(bot, repo, issue, "first").await.unwrap();
    for reaction in ["eyes", "rocket", "confused", "-1"] {
        forge.with(|state| state.react(bot.id, repo, comment, reaction)).unwrap();
    }
    forge.comment(bot, repo, issue, "last").await.unwrap();
    let page = async |number: usize| {
        let path = format!("repos/acme/app/issues/{issue}/timeline?limit=2&page={number}");
        let (status, headers, body) = world.ask(Some(bot), "GET", &path, Value::Null).await;
        assert_eq!(status, 200);
        assert!(!headers.contains_key("link"));
        (headers["x-total-count"].to_str().unwrap().to_owned(), body.as_array().map(Vec::len))
    };
    // The stored entries: the issue, a comment, four reactions, and a comment.
    let pages = [page(1).await, page(2).await, page(3).await, page(4).await, page(5).await];
    let expected = [("1", Some(1)), ("0", None), ("0", None), ("1", Some(1)), ("0", None)];
    assert_eq!(pages, expected.map(|(count, length)| (count.to_owned(), length)));
    let (status, _, _) = world.ask(Some(bot), "GET", "repos/acme/app/issues/9999/timeline", Value::Null).await;
    assert_eq!(status, 500, "not 404");
}

#[tokio::test]
async fn review_needs_a_body_or_remarks() {
    let world = world(Dialect::Gitea).await;
    let (forge, repo) = (&world.forge, world.repo);
    forge.push_commit(&world.bot, repo, "ralph/1", &[("b", Some("b\n"), false)], "One").await.unwrap();
    let pull = PullDraft {
        title: "Mend".to_owned(),
        body: String::new(),
        head: "ralph/1".to_owned(),
        base: "main".to_owned(),
        draft: false,
    };
    let number = forge.open_pull(&world.bot, repo, &pull).await.unwrap();
    let path = format!("repos/acme/app/pulls/{number}/reviews");
    let remarks = json!([{"path": "b", "new_position": 1, "body": "Why?"}]);
    for (event, body, with_remarks, expected) in [
        ("PENDING", "", true, 422),
        ("", "", true, 422),
        ("REQUEST_CHANGES", " ", true, 422),
        ("COMMENT", "", false, 422),
        ("COMMENT", "", true, 200),
        ("COMMENT", "A word.", false, 200),
        ("REQUEST_CHANGES", "A word.", false, 200),
        ("APPROVED", "", false, 200),
        ("PENDING", "Draft.", true, 200),
    ] {
        let comments = if with_remarks { remarks.clone() } else { json!([]) };
        let review = json!({"event": event, "body": body, "comments": comments});
        let (status, _, answer) = world.ask(Some(&world.maintainer), "POST", &path, review).await;
        assert_eq!(status, expected, "{event:?} {body:?} {with_remarks}: {answer}");
    }
}

/// See docs/reference/forges.md for the differences between versions.
#[tokio::test]
async fn older_version_lacks_newer_endpoints() {
    let world = world(Dialect::Gitea).await;
    let (forge, repo) = (&world.forge, world.repo);
    forge.with(|state| state.gitea = GiteaVersion::V1_22);
    let ask = async |method: &str, path: &str, body: Value| {
        let (status, _, answer) = world.ask(Some(&world.maintainer), method, path, body).await;
        (status, answer)
    };
    assert_eq!(ask("GET", "version", Value::Null).await.1["version"], "1.22.6");
    let hook = json!({"type": "gitea", "active": true, "events": ["push", "status", "workflow_run"],
        "config": {"url": "http://127.0.0.1:1/", "content_type": "json"}});
    let (status, made) = ask("POST", "repos/acme/app/hooks", hook).await;
    assert_eq!((status, &made["events"]), (201, &json!(["push"])));
    let sha = forge.branch_sha(repo, "main").await.unwrap();
    let set = json!({"context": "ci", "state": "success"});
    assert_eq!(ask("POST", &format!("repos/acme/app/statuses/{sha}"), set).await.0, 201);
    forge.flush().await;
    assert!(forge.hooks().log().iter().all(|delivery| delivery.sent.event.0 != "status"), "nothing delivers it");
    assert_eq!(ask("GET", "repos/acme/app/actions/runs", Value::Null).await.0, 404);
}
