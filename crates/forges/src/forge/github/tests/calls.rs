//! Tests of the operations: requests, responses and errors.

use serde_json::{Value, json};

use super::sample::answer;
use super::*;
use crate::domain::model::event::ReviewVerdict;
use crate::domain::trust::outbound::Outbound;

fn not_found() -> Value {
    json!({ "message": "Not Found" })
}

/// See docs/research/threats.md#p7.
#[tokio::test]
async fn permission_applies_to_the_same_account_id_only() {
    let case = |role: &str, legacy: &str, id: i64| json!({ "permission": legacy, "role_name": role, "user": { "id": id, "login": "ann", "role_name": role } });
    let mut cases = vec![
        (200, case("admin", "admin", 5), Permission::Admin),
        (200, case("maintain", "write", 5), Permission::Maintain),
        (200, case("write", "write", 5), Permission::Write),
        (200, case("triage", "read", 5), Permission::Triage),
        (200, case("read", "read", 5), Permission::Read),
        (200, case("none", "none", 5), Permission::None),
        (200, case("security-team", "write", 5), Permission::Write),
        (200, case("security-team", "odd", 5), Permission::None),
        // Role names are compared completely, and the login now belongs to another account.
        (200, case("Admin ", "none", 5), Permission::None),
        (200, case("admin", "admin", 6), Permission::None),
        (200, json!({ "permission": "admin", "role_name": "admin", "user": null }), Permission::None),
        (404, not_found(), Permission::None),
    ];
    let (github, transport) = with_token();
    let target = "/repos/acme/app/collaborators/ann/permission";
    for (status, body, expected) in cases.drain(..) {
        let template = "/repos/{owner}/{repo}/collaborators/{username}/permission";
        let full = if status == 200 { answer("GET", template, 200, body.clone()) } else { body.clone() };
        transport.on("GET", target, status, full);
        if status == 404 {
            readable(&transport);
        }
        let found = github.permission(&repo(), &user(5, "ann")).await.unwrap();
        assert_eq!(found, expected, "{body}");
    }
    // Without a role (old servers), the permission is used; a failed request is an error, never a permission.
    let old = json!({ "permission": "write", "user": { "id": 5, "login": "ann" } }).to_string();
    transport.on_raw("GET", target, 200, &[], &old);
    assert_eq!(github.permission(&repo(), &user(5, "ann")).await.unwrap(), Permission::Write);
    for status in [403, 500] {
        transport.on("GET", target, status, json!({ "message": "no" }));
        github.permission(&repo(), &user(5, "ann")).await.unwrap_err();
    }
    // Where the bot cannot read the repository, nothing is known about the account.
    transport.on("GET", target, 404, not_found());
    transport.on("GET", "/repos/acme/app", 404, not_found());
    let failure = github.permission(&repo(), &user(5, "ann")).await.unwrap_err();
    assert_eq!(failure.kind, ForgeErrorKind::NotFound, "{failure}");
    transport.finish();
}

fn readable(transport: &ContractTransport) {
    transport.on("GET", "/repos/acme/app", 200, answer("GET", "/repos/{owner}/{repo}", 200, json!({ "id": 7 })));
}

#[tokio::test]
async fn team_membership_applies_to_the_same_account_id_only() {
    let (github, transport) = with_token();
    let (target, account) = ("/orgs/acme/teams/leads/memberships/ann", "/users/ann");
    let leads = TeamRef::parse("acme/leads").unwrap();
    let template = "/orgs/{org}/teams/{team_slug}/memberships/{username}";
    let membership = |state: &str| answer("GET", template, 200, json!({ "role": "member", "state": state }));
    for (id, expected) in [(5, true), (6, false)] {
        transport.on("GET", target, 200, membership("active"));
        let ann = json!({ "id": id, "login": "ann", "type": "User" });
        transport.on("GET", account, 200, answer("GET", "/users/{username}", 200, ann));
        assert_eq!(github.is_team_member(&repo(), &leads, &user(5, "ann")).await.unwrap(), expected, "account {id}");
    }
    transport.on("GET", target, 200, membership("pending"));
    assert!(!github.is_team_member(&repo(), &leads, &user(5, "ann")).await.unwrap(), "an invitation is no membership");
    transport.on("GET", target, 404, not_found());
    assert!(!github.is_team_member(&repo(), &leads, &user(5, "ann")).await.unwrap());
    transport.on("GET", target, 403, json!({ "message": "Resource not accessible by integration" }));
    github.is_team_member(&repo(), &leads, &user(5, "ann")).await.unwrap_err();
    transport.finish();
}

#[tokio::test]
async fn hidden_team_is_distinguished_from_missing_permission() {
    let (github, transport) = with_token();
    let (target, leads) = ("/orgs/acme/teams/leads/memberships/ralph", TeamRef::parse("acme/leads").unwrap());
    for (status, body, expected) in
        [(404, not_found(), "does not report"), (403, json!({ "message": "Forbidden" }), "Members: read")]
    {
        let own_account = answer("GET", "/user", 200, json!({ "id": 12, "login": "ralph", "type": "User" }));
        transport.on("GET", "/user", 200, own_account);
        transport.on("GET", target, status, body);
        let visibility = format!("{:?}", github.team_visibility(&repo(), &leads).await.unwrap());
        assert!(visibility.contains(expected), "{visibility}");
    }
    transport.finish();
}

#[tokio::test]
async fn files_of_a_folder_are_read_without_subfolders() {
    let (github, transport) = with_token();
    let template = "/repos/{owner}/{repo}/contents/{path}";
    let folder = "/repos/acme/app/contents/.github/workflows";
    let entry = |path: &str, kind: &str, size: u64| json!({ "path": path, "type": kind, "size": size });
    let listed = json!([
        entry(".github/workflows/b.yml", "file", 6),
        entry(".github/workflows/more", "dir", 0),
        entry(".github/workflows/README.md", "file", 6),
        entry(".github/workflows/a.yml", "file", 6),
        entry(".github/workflows/large.yml", "file", 1 << 20),
    ]);
    transport.on("GET", folder, 200, answer("GET", template, 200, listed));
    for name in ["a.yml", "b.yml"] {
        let whole = json!({ "type": "file", "path": name, "content": "b246\nIHB1c2g=\n", "encoding": "base64" });
        transport.on_raw("GET", &format!("{folder}/{name}"), 200, &[], &whole.to_string());
    }
    let files = github.folder_files(&repo(), ".github/workflows", |path| !path.ends_with(".md")).await.unwrap();
    let read: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    assert_eq!(read, [(".github/workflows/a.yml", "on: push"), (".github/workflows/b.yml", "on: push")]);
    // The description has no path without a file.
    transport.outside("GET", "/repos/acme/app/contents").on("GET", "/repos/acme/app/contents", 404, not_found());
    assert!(github.folder_files(&repo(), "", |_| true).await.unwrap().is_empty());
    transport.on("GET", folder, 404, not_found());
    assert!(github.folder_files(&repo(), ".github/workflows", |path| !path.ends_with(".md")).await.unwrap().is_empty());
    transport.finish();
}

#[tokio::test]
async fn logins_and_labels_are_escaped_in_addresses() {
    let (github, transport) = with_token();
    let target = "/repos/acme/app/collaborators/..%2Fx%3Fy%5Bbot%5D/permission";
    transport.on("GET", target, 404, not_found());
    readable(&transport);
    assert_eq!(github.permission(&repo(), &user(5, "../x?y[bot]")).await.unwrap(), Permission::None);
    for label in ["", ".", ".."] {
        let failure = github.remove_label(&repo(), Number(1), label).await.unwrap_err();
        assert!(failure.detail.contains("not sent"), "{failure}");
    }
    assert_eq!(transport.seen().len(), 2);
}

#[tokio::test]
async fn missing_labels_are_created_and_existing_ones_unchanged() {
    let (github, transport) = with_token();
    let spec = |name: &str| LabelSpec { name: name.into(), color: "5319e7".into(), description: "d", exclusive: false };
    let present = json!([{ "name": "Ralph:Run", "description": "x" }]);
    let labels = "/repos/{owner}/{repo}/labels";
    transport.on("GET", "/repos/acme/app/labels?per_page=100", 200, answer("GET", labels, 200, present));
    let made = answer("POST", labels, 201, json!({ "name": "ralph:queued" }));
    transport.on("POST", "/repos/acme/app/labels", 201, made);
    let exists = json!({ "message": "Validation Failed", "errors": [{ "code": "already_exists", "field": "name" }] });
    transport.on("POST", "/repos/acme/app/labels", 422, exists);
    let all = [spec("ralph:run"), spec("ralph:queued"), spec("ralph:paused")];
    github.ensure_labels(&repo(), &all).await.unwrap();
    let sent = transport.bodies("POST", "/repos/acme/app/labels");
    assert_eq!(sent[0], json!({ "name": "ralph:queued", "color": "5319e7", "description": "d" }));
    transport.finish();

    transport.on("GET", "/repos/acme/app/labels?per_page=100", 200, json!([]));
    let invalid = json!({ "message": "Validation Failed", "errors": [{ "code": "invalid", "field": "color" }] });
    transport.on("POST", "/repos/acme/app/labels", 422, invalid);
    let failure = github.ensure_labels(&repo(), &all).await.unwrap_err();
    assert_eq!(failure.kind, ForgeErrorKind::Bug, "{failure}");
}

#[tokio::test]
async fn labels_are_added_and_removed() {
    let (github, transport) = with_token();
    let target = "/repos/acme/app/issues/42/labels";
    transport.on("POST", target, 200, json!([]));
    github.add_labels(&repo(), Number(42), &["ralph:running".into()]).await.unwrap();
    github.add_labels(&repo(), Number(42), &[]).await.unwrap();
    assert_eq!(transport.bodies("POST", target), [json!({ "labels": ["ralph:running"] })]);
    for status in [200, 404] {
        let body = if status == 200 { json!([]) } else { json!({ "message": "Label does not exist" }) };
        transport.on("DELETE", &format!("{target}/ralph%3Aqueued"), status, body);
        github.remove_label(&repo(), Number(42), "ralph:queued").await.unwrap();
    }
    transport.finish();
}

fn comment(id: i64, at: &str) -> Value {
    json!({ "id": id, "body": format!("c{id}"), "user": { "id": 5, "login": "ann" }, "created_at": at, "html_url": "https://x.test" })
}

#[tokio::test]
async fn all_pages_of_the_same_server_are_read_oldest_first() {
    let (github, transport) = with_token();
    let template = "/repos/{owner}/{repo}/issues/{issue_number}/comments";
    let first = "/repos/acme/app/issues/42/comments?per_page=100&since=2026-01-01T00%3A00%3A00Z";
    let second = "/repos/acme/app/issues/42/comments?per_page=100&page=2";
    let next = format!("<https://api.github.test{second}>; rel=\"next\", <https://api.github.test/x>; rel=\"last\"");
    let page = |comments: Value| answer("GET", template, 200, comments);
    let (early, late) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z");
    transport.on_with("GET", first, 200, &[("link", &next)], page(json!([comment(2, late)])));
    transport.on("GET", second, 200, page(json!([comment(2, late), comment(1, early)])));
    let found = github.comments(&repo(), Number(42), Some(START.plus_ms(999))).await.unwrap();
    assert_eq!(found.iter().map(|comment| comment.id.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(found[0].author.as_ref().unwrap().id, UserId(5));

    let foreign_link = [("link", "<https://evil.test/x>; rel=\"next\"")];
    transport.on_with("GET", first, 200, &foreign_link, page(json!([])));
    let failure = github.comments(&repo(), Number(42), Some(START)).await.unwrap_err();
    assert_eq!(failure.kind, ForgeErrorKind::Bug, "{failure}");
    transport.finish();
}

#[tokio::test]
async fn comments_are_created_edited_deleted_and_reacted_to() {
    let (github, transport) = with_token();
    let template = "/repos/{owner}/{repo}/issues/{issue_number}/comments";
    let at = "2026-01-01T00:00:01Z";
    let target = "/repos/acme/app/issues/42/comments";
    transport.on("POST", target, 201, answer("POST", template, 201, comment(3, at)));
    assert_eq!(github.create_comment(&repo(), Number(42), &Outbound::of_test("c3")).await.unwrap().id, CommentId(3));
    let one = "/repos/acme/app/issues/comments/3";
    let template = "/repos/{owner}/{repo}/issues/comments/{comment_id}";
    transport.on("PATCH", one, 200, answer("PATCH", template, 200, comment(3, at)));
    github.edit_comment(&repo(), CommentId(3), &Outbound::of_test("new")).await.unwrap();
    assert_eq!(transport.bodies("PATCH", one), [json!({ "body": "new" })]);
    transport.on("PATCH", one, 404, not_found());
    let missing = github.edit_comment(&repo(), CommentId(3), &Outbound::of_test("new")).await.unwrap_err();
    assert_eq!(missing.kind, ForgeErrorKind::NotFound);
    for (status, body) in [(204, Value::Null), (404, not_found())] {
        transport.on("DELETE", one, status, body);
        github.delete_comment(&repo(), CommentId(3)).await.unwrap();
    }
    let template = "/repos/{owner}/{repo}/issues/comments/{comment_id}/reactions";
    let reactions = [
        (Reaction::Eyes, "eyes", 201),
        (Reaction::Rocket, "rocket", 200),
        (Reaction::Confused, "confused", 201),
        (Reaction::ThumbsDown, "-1", 201),
    ];
    for (reaction, content, status) in reactions {
        let body = answer("POST", template, status, json!({ "content": content }));
        transport.on("POST", &format!("{one}/reactions"), status, body);
        github.react(&repo(), CommentId(3), reaction).await.unwrap();
        assert_eq!(transport.seen().last().unwrap().body, json!({ "content": content }));
    }
    transport.finish();
}

#[tokio::test]
async fn texts_are_read_with_their_html() {
    let (github, transport) = with_token();
    let template = "/repos/{owner}/{repo}/issues/{issue_number}";
    let body = json!({ "number": 42, "body": "**a**", "body_html": "<p><b>a</b></p>" });
    transport.on("GET", "/repos/acme/app/issues/42", 200, answer("GET", template, 200, body));
    let issue = github.issue(&repo(), Number(42)).await.unwrap();
    assert_eq!(issue.html.as_deref(), Some("<p><b>a</b></p>"));
    assert_eq!(transport.seen().last().unwrap().headers["accept"], "application/vnd.github.full+json");
    transport.on_raw("POST", "/markdown", 200, &[], "<p>b</p>");
    assert_eq!(github.render(&repo(), "b").await.unwrap(), "<p>b</p>");
    let sent = json!({ "text": "b", "mode": "gfm", "context": "acme/app" });
    assert_eq!(transport.bodies("POST", "/markdown"), [sent]);
    transport.finish();
}

#[tokio::test]
async fn issues_are_listed_by_label_without_pull_requests() {
    let (github, transport) = with_token();
    let issue = |number: u64, label: &str| json!({ "number": number, "state": "open", "labels": [{ "name": label }] });
    let mut pull = issue(2, "ralph:run");
    pull["pull_request"] = json!({ "url": "https://x.test" });
    let page = json!([issue(1, "Ralph:Run"), pull, issue(3, "ralph:runner"), { "number": 4, "labels": ["ralph:run"] }]);
    let target = "/repos/acme/app/issues?labels=ralph%3Arun&state=open&per_page=100";
    transport.on("GET", target, 200, answer("GET", "/repos/{owner}/{repo}/issues", 200, page));
    let found = github.open_issues_with_label(&repo(), "ralph:run").await.unwrap();
    assert_eq!(found.iter().map(|issue| issue.number.0).collect::<Vec<_>>(), [1, 4]);
}

#[tokio::test]
async fn issues_are_opened_and_closed() {
    let (github, transport) = with_token();
    let created = json!({ "number": 50, "title": "t", "labels": [{ "name": "critical" }], "user": null });
    let template = "/repos/{owner}/{repo}/issues";
    transport.on("POST", "/repos/acme/app/issues", 201, answer("POST", template, 201, created));
    let new = NewIssue {
        title: "t".into(),
        body: "b".into(),
        labels: vec!["critical".into()],
        assignees: vec!["ada".into()],
    };
    let issue = github.create_issue(&repo(), &new).await.unwrap();
    assert_eq!((issue.number, issue.author, issue.labels), (Number(50), None, vec!["critical".to_owned()]));
    let sent = json!({ "title": "t", "body": "b", "labels": ["critical"], "assignees": ["ada"] });
    assert_eq!(transport.seen().last().unwrap().body, sent);
    let template = "/repos/{owner}/{repo}/issues/{issue_number}";
    for (open, state) in [(false, "closed"), (true, "open")] {
        let body = answer("PATCH", template, 200, json!({ "number": 50 }));
        transport.on("PATCH", "/repos/acme/app/issues/50", 200, body);
        github.set_issue_open(&repo(), Number(50), open).await.unwrap();
        assert_eq!(transport.seen().last().unwrap().body, json!({ "state": state }));
    }
    transport.on("PATCH", "/repos/acme/app/issues/50", 410, json!({ "message": "This issue was deleted" }));
    let missing = github.set_issue_open(&repo(), Number(50), true).await.unwrap_err();
    assert_eq!(missing.kind, ForgeErrorKind::NotFound);
}

/// See docs/research/threats.md#p14, docs/research/faults.md#f12.
#[tokio::test]
async fn transferred_issue_is_not_found_but_renamed_repository_is_found() {
    for (place, name, is_there) in [("acme/other", "app", false), ("acme/App", "app", true), ("acme/new", "new", true)]
    {
        let (github, transport) = with_token();
        let url = format!("https://api.github.test/repos/{place}");
        let template = "/repos/{owner}/{repo}/issues/{issue_number}";
        let issue = answer("GET", template, 200, json!({ "number": 42, "repository_url": url }));
        transport.on("GET", "/repos/acme/app/issues/42", 200, issue);
        if place != "acme/App" {
            let now = json!({ "id": 7, "name": name, "owner": { "login": "acme" }, "size": 1 });
            transport.on("GET", "/repos/acme/app", 200, answer("GET", "/repos/{owner}/{repo}", 200, now));
        }
        match github.issue(&repo(), Number(42)).await {
            Ok(issue) => assert!(is_there && issue.number == Number(42), "{place}"),
            Err(failure) => assert!(!is_there && failure.kind == ForgeErrorKind::NotFound, "{place}: {failure}"),
        }
        transport.finish();
    }
}

/// A label from before the transfer of the issue belongs to the other repository.
/// See docs/research/threats.md#p14.
#[tokio::test]
async fn transferred_label_has_no_assignment() {
    let labeled = json!({ "event": "labeled", "label": { "name": "ralph:run" }, "actor": { "id": 9, "login": "ann" },
        "created_at": "2026-01-01T00:00:00Z" });
    let moved =
        json!({ "event": "transferred", "actor": { "id": 9, "login": "ann" }, "created_at": "2026-01-01T00:00:01Z" });
    let target = "/repos/acme/app/issues/42/events?per_page=100";
    for (events, known) in
        [(json!([labeled]), true), (json!([labeled, moved]), false), (json!([labeled, moved, labeled]), true)]
    {
        let (github, transport) = with_token();
        let page = answer("GET", "/repos/{owner}/{repo}/issues/{issue_number}/events", 200, events.clone());
        transport.on("GET", target, 200, page);
        let found = github.label_assignment(&repo(), Number(42), "ralph:run").await.unwrap();
        assert_eq!(found.is_some(), known, "{events}");
    }
}

fn pull(number: u64, branch: &str, head_repo: Value) -> Value {
    let side = |branch: &str, repo: Value| json!({ "ref": branch, "sha": "a".repeat(40), "repo": repo });
    json!({
        "number": number, "node_id": "PR_x", "state": "open", "html_url": "https://x.test", "head": side(branch, head_repo),
        "base": side("main", json!({ "id": 7 })),
    })
}

const PULLS: &str = "/repos/{owner}/{repo}/pulls";
const PULL: &str = "/repos/{owner}/{repo}/pulls/{pull_number}";

/// See docs/research/threats.md#p14.
#[tokio::test]
async fn newest_pull_request_from_a_branch_is_found() {
    let (github, transport) = with_token();
    let target = "/repos/acme/app/pulls?head=acme%3Aralph%2F42-sum&state=all&sort=created&direction=desc&per_page=100";
    let mut merged = pull(44, "ralph/42-sum", json!({ "id": 7 }));
    merged["merged_at"] = json!("2026-01-01T00:00:00Z");
    merged["state"] = json!("closed");
    let page = json!([
        pull(46, "other", json!({ "id": 7 })),
        pull(45, "ralph/42-sum", json!({ "id": 8 })),
        pull(43, "ralph/42-sum", json!({ "id": 7 })),
        merged,
    ]);
    transport.on("GET", target, 200, answer("GET", PULLS, 200, page));
    let found = github.find_pull(&repo(), "ralph/42-sum", "main").await.unwrap().unwrap();
    assert_eq!((found.number, found.merged, found.open), (Number(44), true, false));
    transport.on("GET", target, 200, json!([]));
    assert_eq!(github.find_pull(&repo(), "ralph/42-sum", "main").await.unwrap(), None);
}

#[tokio::test]
async fn existing_pull_request_is_a_conflict() {
    let (github, transport) = with_token();
    let new = NewPull { title: "t".into(), body: "b".into(), head: "h".into(), base: "main".into(), draft: true };
    let mut created = pull(43, "h", json!({ "id": 7 }));
    created["draft"] = json!(true);
    transport.on("POST", "/repos/acme/app/pulls", 201, answer("POST", PULLS, 201, created));
    assert!(github.create_pull(&repo(), &new).await.unwrap().draft);
    let sent = json!({ "title": "t", "body": "b", "head": "h", "base": "main", "draft": true });
    assert_eq!(transport.bodies("POST", "/repos/acme/app/pulls"), [sent]);
    let refusals = [
        ("A pull request already exists for acme:h.", ForgeErrorKind::Conflict),
        ("No commits between main and h", ForgeErrorKind::Bug),
    ];
    for (message, kind) in refusals {
        let body = json!({ "message": "Validation Failed", "errors": [{ "message": message }] });
        transport.on("POST", "/repos/acme/app/pulls", 422, body);
        let failure = github.create_pull(&repo(), &new).await.unwrap_err();
        assert_eq!(failure.kind, kind, "{failure}");
        assert!(failure.detail.contains(message), "{failure}");
    }
    transport.on(
        "PATCH",
        "/repos/acme/app/pulls/43",
        200,
        answer("PATCH", PULL, 200, pull(43, "h", json!({ "id": 7 }))),
    );
    github.update_pull(&repo(), Number(43), &Outbound::of_test("t2"), &Outbound::of_test("b2")).await.unwrap();
    assert_eq!(transport.seen().last().unwrap().body, json!({ "title": "t2", "body": "b2" }));
}

#[tokio::test]
async fn draft_is_marked_ready_by_graphql_or_rest() {
    let target = "/repos/acme/app/pulls/43";
    let draft = |draft: bool| {
        let mut pull = pull(43, "h", json!({ "id": 7 }));
        pull["draft"] = json!(draft);
        answer("GET", PULL, 200, pull)
    };
    let (github, transport) = with_token();
    transport.on("GET", target, 200, draft(false));
    github.set_pull_ready(&repo(), Number(43)).await.unwrap();

    transport.outside("POST", "/graphql").on("GET", target, 200, draft(true));
    transport.on_raw("POST", "/graphql", 200, &[], "{\"data\":{\"markPullRequestReadyForReview\":{}}}");
    github.set_pull_ready(&repo(), Number(43)).await.unwrap();
    let sent = transport.seen().last().unwrap().body.clone();
    assert!(sent["query"].as_str().unwrap().contains("markPullRequestReadyForReview"));
    assert_eq!(sent["variables"], json!({ "id": "PR_x" }));

    transport.outside("PATCH", PULL);
    for still_draft in [false, true] {
        transport.on("GET", target, 200, draft(true));
        transport.on("POST", "/graphql", 404, not_found());
        transport.on_raw("PATCH", target, 200, &[], &draft(still_draft).to_string());
        assert_eq!(github.set_pull_ready(&repo(), Number(43)).await.is_err(), still_draft);
    }
    transport.finish();
}

#[tokio::test]
async fn graphql_errors_map_to_error_kinds() {
    let cases = [
        (json!([{ "type": "NOT_FOUND", "message": "gone" }]), ForgeErrorKind::NotFound),
        (json!([{ "type": "FORBIDDEN", "message": "Resource not accessible" }]), ForgeErrorKind::Denied),
        (json!([{ "type": "RATE_LIMITED", "message": "x" }]), ForgeErrorKind::RateLimited { after_ms: 60_000 }),
        (json!([{ "type": "RATE_LIMIT", "message": "x" }]), ForgeErrorKind::RateLimited { after_ms: 60_000 }),
        (
            json!([{ "message": "You have exceeded a secondary rate limit" }]),
            ForgeErrorKind::RateLimited { after_ms: 60_000 },
        ),
        (
            json!([{ "message": "Something went wrong while executing your query." }]),
            ForgeErrorKind::Transient { after_ms: None, ambiguous: false },
        ),
        (json!([{ "message": "Parse error" }]), ForgeErrorKind::Bug),
    ];
    for (errors, kind) in cases {
        let (github, transport) = with_token();
        transport.outside("POST", "/graphql");
        let body = json!({ "data": null, "errors": errors }).to_string();
        transport.on_raw("POST", "/graphql", 200, &[], &body);
        let failure = github.issue_edits(&repo(), Number(42)).await.unwrap_err();
        assert_eq!(failure.kind, kind, "{failure}");
    }
}

/// A change that "went wrong" may have been made, so it is looked up before it is tried again.
#[tokio::test]
async fn change_with_a_graphql_error_is_ambiguous() {
    let (github, transport) = with_token();
    let template = "/repos/{owner}/{repo}/issues/comments/{comment_id}";
    let body = answer("GET", template, 200, json!({ "node_id": "IC_x" }));
    transport.on("GET", "/repos/acme/app/issues/comments/3", 200, body).outside("POST", "/graphql");
    let message = "Something went wrong while executing your query. Please include `AB12` when reporting this issue.";
    let errors = json!({ "data": null, "errors": [{ "message": message }] }).to_string();
    transport.on_raw("POST", "/graphql", 200, &[], &errors);
    let failure = github.minimizing().unwrap().minimize_comment(&repo(), CommentId(3)).await.unwrap_err();
    assert_eq!(failure.kind, ForgeErrorKind::Transient { after_ms: None, ambiguous: true }, "{failure}");
}

#[tokio::test]
async fn limit_that_graphql_reports_with_success_pauses_all_calls_until_it_resets() {
    let reset = (START.0 / 1_000 + 90).to_string();
    let later = (START.0 / 1_000 + 3_000).to_string();
    let cases: [(&[(&str, &str)], i64); 4] = [
        (&[("retry-after", "30"), ("x-ratelimit-reset", &later)], 30_000),
        (&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &reset), ("x-ratelimit-resource", "graphql")], 90_000),
        // The budget is not used up, so its reset does not belong to the limit that was hit.
        (&[("x-ratelimit-remaining", "4000"), ("x-ratelimit-reset", &later)], 60_000),
        (&[("retry-after", "soon")], 60_000),
    ];
    for (headers, expected) in cases {
        let transport = ContractTransport::new(ContractSpec::GitHub);
        let clock = Clock::manual(START);
        let github = over(token_auth(), clock.clone(), transport.clone());
        transport.outside("POST", "/graphql");
        let body = json!({ "data": null, "errors": [{ "type": "RATE_LIMITED", "message": "x" }] }).to_string();
        transport.on_raw("POST", "/graphql", 200, headers, &body);
        let failure = github.issue_edits(&repo(), Number(42)).await.unwrap_err();
        assert_eq!(failure.kind, ForgeErrorKind::RateLimited { after_ms: expected }, "{headers:?}: {failure}");
        let sent = transport.seen().len();
        // Neither GraphQL nor REST is called within the window.
        clock.advance_ms(expected - 1);
        for failure in
            [github.issue_edits(&repo(), Number(42)).await.unwrap_err(), github.repository(&repo()).await.unwrap_err()]
        {
            assert!(matches!(failure.kind, ForgeErrorKind::RateLimited { .. }), "{headers:?}: {failure}");
        }
        assert_eq!(transport.seen().len(), sent, "{headers:?}: a call was sent within the window");
        clock.advance_ms(1);
        readable(&transport);
        github.repository(&repo()).await.unwrap();
    }
}

#[tokio::test]
async fn custom_role_maps_to_its_permissions() {
    let rights = |admin, maintain, push, triage, pull| json!({ "admin": admin, "maintain": maintain, "push": push, "triage": triage, "pull": pull });
    let cases = [
        (rights(true, true, true, true, true), "admin", Permission::Admin),
        (rights(false, true, true, true, true), "write", Permission::Maintain),
        (rights(false, false, true, true, true), "write", Permission::Write),
        // The legacy permission is only a reduction of the role.
        (rights(false, false, false, true, true), "write", Permission::Triage),
        (rights(false, false, false, false, true), "write", Permission::Read),
        (rights(false, false, false, false, false), "read", Permission::None),
    ];
    let target = "/repos/acme/app/collaborators/ann/permission";
    for (rights, legacy, expected) in cases {
        let (github, transport) = with_token();
        let user_of = |permissions: &Value| json!({ "id": 5, "login": "ann", "role_name": "security-team", "permissions": permissions });
        let body = json!({ "permission": legacy, "role_name": "security-team", "user": user_of(&rights) });
        let template = "/repos/{owner}/{repo}/collaborators/{username}/permission";
        transport.on("GET", target, 200, answer("GET", template, 200, body));
        let found = github.permission(&repo(), &user(5, "ann")).await.unwrap();
        assert_eq!(found, expected, "{rights}");
    }
}

#[tokio::test]
async fn edits_are_listed_oldest_first_without_the_creation() {
    let (github, transport) = with_token();
    let edit = |at: &str, editor: Value| json!({ "editedAt": at, "editor": editor });
    let ann = json!({ "__typename": "User", "login": "ann", "databaseId": 5 });
    let page = |nodes: Value, next: Option<&str>| {
        let info = json!({ "hasNextPage": next.is_some(), "endCursor": next });
        let edits = json!({ "pageInfo": info, "nodes": nodes });
        json!({ "data": { "repository": { "issueOrPullRequest": {
            "createdAt": "2026-01-01T00:00:00Z", "userContentEdits": edits } } } })
        .to_string()
    };
    let newest = json!([edit("2026-01-01T03:00:00Z", ann), null]);
    let oldest = json!([edit("2026-01-01T02:00:00Z", Value::Null), edit("2026-01-01T00:00:00Z", Value::Null)]);
    transport.outside("POST", "/graphql");
    transport.on_raw("POST", "/graphql", 200, &[], &page(newest, Some("c")));
    transport.on_raw("POST", "/graphql", 200, &[], &page(oldest, None));
    let edits = github.issue_edits(&repo(), Number(42)).await.unwrap();
    let hours: Vec<i64> = edits.iter().map(|edit| edit.at.since(START) / 3_600_000).collect();
    assert_eq!(hours, [2, 3]);
    assert_eq!((edits[0].editor.clone(), edits[1].editor.clone()), (None, Some(user(5, "ann"))));
    let cursors: Vec<Value> = transport.seen().iter().map(|seen| seen.body["variables"]["after"].clone()).collect();
    assert_eq!(cursors, [Value::Null, json!("c")]);
}

#[tokio::test]
async fn capabilities_that_need_graphql_are_withdrawn_without_it() {
    let (github, transport) = with_token();
    assert!(github.history().is_some() && github.minimizing().is_some());
    transport.outside("POST", "/graphql").on("POST", "/graphql", 404, not_found());
    assert_eq!(github.issue_edits(&repo(), Number(42)).await.unwrap(), []);
    let template = "/repos/{owner}/{repo}/issues/comments/{comment_id}";
    let body = answer("GET", template, 200, json!({ "node_id": "IC_x" }));
    transport.on("GET", "/repos/acme/app/issues/comments/3", 200, body);
    transport.on("POST", "/graphql", 404, not_found());
    github.minimize_comment(&repo(), CommentId(3)).await.unwrap();
    assert!(github.history().is_none() && github.minimizing().is_none() && github.drafts().is_some());
    transport.finish();
}

#[tokio::test]
async fn unavailable_reviewers_are_omitted() {
    let (github, transport) = with_token();
    let target = "/repos/acme/app/pulls/43/requested_reviewers";
    let refusal = json!({ "message": "Reviews may only be requested from collaborators." });
    let template = "/repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers";
    let response = answer("POST", template, 201, pull(43, "h", json!({ "id": 7 })));
    transport.on("POST", target, 422, refusal.clone());
    transport.on("POST", target, 201, response);
    transport.on("POST", target, 422, refusal.clone());
    github.request_reviewers(&repo(), Number(43), &["ann".into(), "gone".into()]).await.unwrap();
    let sent: Vec<Value> =
        transport.bodies("POST", target).into_iter().map(|mut body| body["reviewers"].take()).collect();
    assert_eq!(sent, [json!(["ann", "gone"]), json!(["ann"]), json!(["gone"])]);

    transport.on("POST", target, 422, refusal);
    github.request_reviewers(&repo(), Number(43), &["gone".into()]).await.unwrap();
    github.request_reviewers(&repo(), Number(43), &[]).await.unwrap();
    transport.on("POST", target, 403, json!({ "message": "Resource not accessible" }));
    let failure = github.request_reviewers(&repo(), Number(43), &["ann".into()]).await.unwrap_err();
    assert_eq!(failure.kind, ForgeErrorKind::Denied);
    transport.finish();
}

#[tokio::test]
async fn reviews_and_comments_are_listed_oldest_first() {
    let (github, transport) = with_token();
    let review = |id: i64, state: &str, at: Value| {
        let mut review = json!({ "id": id, "state": state, "body": "", "user": null });
        if !at.is_null() {
            review["submitted_at"] = at;
        }
        review
    };
    let page = json!([
        review(2, "CHANGES_REQUESTED", json!("2026-01-01T02:00:00Z")),
        review(3, "PENDING", Value::Null),
        review(1, "APPROVED", json!("2026-01-01T01:00:00Z")),
    ]);
    let template = "/repos/{owner}/{repo}/pulls/{pull_number}/reviews";
    transport.on("GET", "/repos/acme/app/pulls/43/reviews?per_page=100", 200, answer("GET", template, 200, page));
    let reviews = github.submitted_reviews(&repo(), Number(43)).await.unwrap();
    let found: Vec<_> = reviews.iter().map(|review| (review.id, review.verdict)).collect();
    assert_eq!(found, [(1, ReviewVerdict::Approved), (2, ReviewVerdict::ChangesRequested)]);

    let mut remark = comment(9, "2026-01-01T01:00:00Z");
    remark["path"] = json!("src/lib.rs");
    remark["original_line"] = json!(12);
    let template = "/repos/{owner}/{repo}/pulls/{pull_number}/comments";
    let body = answer("GET", template, 200, json!([remark]));
    transport.on("GET", "/repos/acme/app/pulls/43/comments?per_page=100", 200, body);
    let remarks = github.review_comments(&repo(), Number(43)).await.unwrap();
    assert_eq!(
        (remarks[0].path.as_str(), remarks[0].line, remarks[0].comment.id),
        ("src/lib.rs", Some(12), CommentId(9))
    );
}

#[tokio::test]
async fn renamed_branch_does_not_exist() {
    let (github, transport) = with_token();
    let target = "/repos/acme/app/branches/ralph%2F42-sum";
    let template = "/repos/{owner}/{repo}/branches/{branch}";
    let branch = |name: &str| {
        let content = json!({ "name": name, "protected": true, "commit": { "sha": "A".repeat(40) } });
        answer("GET", template, 200, content)
    };
    transport.on("GET", target, 200, branch("ralph/42-sum"));
    assert!(github.has_branch(&repo(), "ralph/42-sum").await.unwrap());
    transport.on("GET", target, 404, json!({ "message": "Branch not found" }));
    assert!(!github.has_branch(&repo(), "ralph/42-sum").await.unwrap());
    transport.on("GET", target, 200, branch("renamed"));
    assert!(!github.has_branch(&repo(), "ralph/42-sum").await.unwrap());
}

#[tokio::test]
async fn repository_with_another_id_is_not_found() {
    let (github, transport) = with_token();
    let template = "/repos/{owner}/{repo}";
    let full = |id: i64, size: u64| {
        let content = json!({
            "id": id, "name": "app", "owner": { "login": "acme" }, "default_branch": "main", "private": false,
            "archived": true, "size": size,
        });
        answer("GET", template, 200, content)
    };
    transport.on("GET", "/repos/acme/app", 200, full(7, 10));
    let found = github.repository(&repo()).await.unwrap();
    assert!(found.archived && !found.private && !found.empty);
    transport.on("GET", "/repos/acme/app", 200, full(7, 0));
    transport.on("GET", "/repos/acme/app/branches/main", 404, not_found());
    assert!(github.repository(&repo()).await.unwrap().empty);
    // Another repository took over the name.
    transport.on("GET", "/repos/acme/app", 200, full(8, 10)).outside("GET", "/repositories/{id}");
    transport.on("GET", "/repositories/7", 200, full(7, 10));
    assert_eq!(github.repository(&repo()).await.unwrap().repo.id, repo().id);
    transport.on("GET", "/repos/acme/app", 200, full(8, 10)).on("GET", "/repositories/7", 404, not_found());
    let failure = github.repository(&repo()).await.unwrap_err();
    assert_eq!(failure.kind, ForgeErrorKind::NotFound, "{failure}");

    let listed = json!([{ "id": 7, "name": "app", "owner": { "login": "acme" }, "size": 1 }]).to_string();
    transport.outside("GET", "/user/repos").on_raw("GET", "/user/repos?per_page=100", 200, &[], &listed);
    let all = github.repositories().await.unwrap();
    assert_eq!(all[0].repo, repo());
    assert!(all[0].private, "what is not said counts as private");
    transport.finish();
}

#[tokio::test]
async fn webhook_with_the_same_address_is_updated() {
    let (github, transport) = with_token();
    let (hooks, hook) = ("/repos/{owner}/{repo}/hooks", "/repos/{owner}/{repo}/hooks/{hook_id}");
    let (url, secret) = ("https://bot.test/webhooks/gh", SecretString::from("hook-secret".to_owned()));
    let list = "/repos/acme/app/hooks?per_page=100";
    let config = json!({ "url": url, "content_type": "json", "secret": "hook-secret", "insecure_ssl": "0" });
    let other = json!({ "id": 1, "config": { "url": "https://else.test" } });
    transport.on("GET", list, 200, answer("GET", hooks, 200, json!([other.clone()])));
    transport.on("POST", "/repos/acme/app/hooks", 201, answer("POST", hooks, 201, json!({ "id": 2 })));
    assert_eq!(github.ensure_webhook(&repo(), url, &secret).await.unwrap(), Some(2));
    let sent = json!({ "name": "web", "active": true, "events": EVENTS, "config": config });
    assert_eq!(transport.seen().last().unwrap().body, sent);

    let ours = json!({ "id": 2, "config": { "url": url } });
    transport.on("GET", list, 200, answer("GET", hooks, 200, json!([other, ours])));
    transport.on("PATCH", "/repos/acme/app/hooks/2", 200, answer("PATCH", hook, 200, json!({ "id": 2 })));
    assert_eq!(github.ensure_webhook(&repo(), url, &secret).await.unwrap(), Some(2));
    let sent = json!({ "active": true, "events": EVENTS, "config": config });
    assert_eq!(transport.seen().last().unwrap().body, sent);

    transport.on("POST", "/repos/acme/app/hooks/2/pings", 204, Value::Null);
    github.test_webhook(&repo(), 2).await.unwrap();
    transport.on("GET", list, 404, not_found());
    let failure = github.ensure_webhook(&repo(), url, &secret).await.unwrap_err();
    assert_eq!(failure.kind, ForgeErrorKind::NotFound);
    assert!(!failure.to_string().contains("hook-secret"));
    transport.finish();
}

/// See docs/research/faults.md#f9.
#[tokio::test]
async fn invalid_responses_are_errors_without_panic() {
    let bodies = ["", "<html>login</html>", "[]", "{\"number\":\"x\"}", "null", "{\"number\":-1}"];
    let (github, transport) = with_token();
    for body in bodies {
        transport.on_raw("GET", "/repos/acme/app/issues/42", 200, &[], body);
        let failure = github.issue(&repo(), Number(42)).await.unwrap_err();
        assert_eq!(failure.kind, ForgeErrorKind::Bug, "{body}: {failure}");
        assert!(failure.what.contains("issue #42 of acme/app"), "{failure}");
    }
}
