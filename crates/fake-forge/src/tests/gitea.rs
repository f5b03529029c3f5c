//! Behavior of Gitea that no description states.

use serde_json::{Value, json};

use super::world;
use crate::{Dialect, PullDraft};
use ralph_types::ids::AccountKind;

#[tokio::test]
async fn membership_is_told_to_members_and_owners() {
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
async fn empty_post_tells_the_scope() {
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

/// A client that follows redirects sends GET instead of POST under the old name.
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
