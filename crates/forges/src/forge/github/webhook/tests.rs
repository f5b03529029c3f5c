//! Tests with documented deliveries of GitHub and with malformed ones.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::domain::model::ids::{AccountKind, Number, RepoId, Timestamp, UserId};
use crate::forge::contract::{contract_file, contract_folder};

fn read(event: &str, body: &Value) -> ParsedDelivery {
    parse(&ForgeName::new("gh"), event, body.to_string().as_bytes())
}

fn understood(event: &str, body: &Value) -> ForgeEvent {
    match read(event, body) {
        ParsedDelivery::Event(event) => *event,
        other => panic!("{event}: {other:?}"),
    }
}

/// Number of documented examples by event and action: `e` for parsed, `i` for ignored.
const EXPECTED: &str = "\
check_run.completed e3, check_run.created i3, check_run.requested_action i1, check_run.rerequested i2
check_suite.completed e4, check_suite.requested i3, check_suite.rerequested i2
github_app_authorization.revoked i2
installation.created e2, installation.deleted e2, installation.new_permissions_accepted e1, installation.suspend e1, installation.unsuspend e1
installation_repositories.added e2, installation_repositories.removed e1
issue_comment.created e5, issue_comment.deleted i2, issue_comment.edited i2
issues.assigned i3, issues.deleted e1, issues.demilestoned i2, issues.edited e3, issues.labeled e2, issues.locked i2, issues.milestoned i2, issues.opened e4, issues.pinned i1, issues.reopened e1, issues.transferred e1, issues.unassigned i2, issues.unlabeled e2, issues.unlocked i2, issues.unpinned i1
label.created i3, label.deleted i2, label.edited i1
ping i4
pull_request.assigned i2, pull_request.closed e2, pull_request.converted_to_draft e3, pull_request.labeled i2, pull_request.locked i2, pull_request.opened e4, pull_request.ready_for_review e3, pull_request.reopened e2, pull_request.review_request_removed i1, pull_request.review_requested i1, pull_request.synchronize e1, pull_request.unassigned i2, pull_request.unlabeled i2, pull_request.unlocked i2
pull_request_review.dismissed e1, pull_request_review.submitted e3
pull_request_review_comment.created e3, pull_request_review_comment.deleted i1, pull_request_review_comment.edited i1
push e2, push i5
repository.created i2, repository.edited e1, repository.edited i1, repository.privatized e2, repository.publicized e3, repository.renamed e1, repository.transferred e3
status e4
workflow_run.completed e3, workflow_run.requested i2";

#[test]
fn documented_examples_are_parsed_or_ignored() {
    let files = contract_folder("github-webhooks");
    let mut lines = Vec::new();
    for file in files {
        let event = file.trim_end_matches(".json");
        let examples: Vec<Value> = serde_json::from_slice(&contract_file(&format!("github-webhooks/{file}"))).unwrap();
        let mut counts: BTreeMap<(String, char), u32> = BTreeMap::new();
        for example in &examples {
            let action = example.get("action").and_then(Value::as_str).map(|a| format!(".{a}")).unwrap_or_default();
            let outcome = match read(event, example) {
                ParsedDelivery::Event(_) => 'e',
                ParsedDelivery::Ignored(_) => 'i',
                ParsedDelivery::Malformed(wrong) => panic!("{event}{action}: {wrong}\n{example:#}"),
            };
            *counts.entry((format!("{event}{action}"), outcome)).or_default() += 1;
        }
        lines.push(counts.iter().map(|((n, o), c)| format!("{n} {o}{c}")).collect::<Vec<_>>().join(", "));
    }
    assert_eq!(lines.join("\n"), EXPECTED);
}

#[test]
fn delivery_with_another_event_header_is_refused() {
    let files = contract_folder("github-webhooks");
    let events: Vec<&str> = rows().map(|row| row.name).collect();
    for file in files {
        let event = file.trim_end_matches(".json");
        let examples: Vec<Value> = serde_json::from_slice(&contract_file(&format!("github-webhooks/{file}"))).unwrap();
        // A few of each suffice, because the contained objects determine the event.
        for (example, header) in examples.iter().take(3).flat_map(|e| events.iter().map(move |h| (e, *h))) {
            if header != event {
                let parsed = read(header, example);
                assert!(matches!(parsed, ParsedDelivery::Malformed(_)), "{event} under {header}: {parsed:?}");
            }
        }
    }
}

fn person(id: i64, login: &str) -> Value {
    json!({ "id": id, "login": login, "type": "User" })
}

fn repository_json() -> Value {
    json!({ "id": 7, "name": "app", "full_name": "acme/app", "owner": { "id": 1, "login": "acme" }, "private": true })
}

fn issue_json() -> Value {
    json!({
        "number": 42, "title": "Sum is wrong", "body": null, "user": person(5, "ann"), "state": "open",
        "labels": [{ "name": "ralph:run" }], "locked": false, "updated_at": "2026-01-02T03:04:05Z",
        "html_url": "https://github.com/acme/app/issues/42",
    })
}

fn pull_json() -> Value {
    let side = |branch: &str| json!({ "ref": branch, "sha": "A".repeat(40), "repo": { "id": 7 } });
    json!({
        "number": 43, "state": "closed", "merged": true, "merged_at": "2026-01-02T03:04:05Z", "draft": false,
        "mergeable": null, "html_url": "https://github.com/acme/app/pull/43", "head": side("ralph/42-sum"),
        "base": side("main"), "updated_at": "2026-01-02T03:04:06Z",
    })
}

fn delivery(action: &str, with: Value) -> Value {
    let mut body = json!({ "action": action, "repository": repository_json(), "sender": person(9, "max") });
    body.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    body
}

#[test]
fn label_event_contains_sender_label_and_text() {
    let body = delivery("labeled", json!({ "issue": issue_json(), "label": { "name": "ralph:run" } }));
    let ForgeEvent::Labeled { repo, issue, label, sender } = understood("issues", &body) else { panic!() };
    assert_eq!((repo.id, repo.full_name().as_str(), repo.forge.as_str()), (RepoId(7), "acme/app", "gh"));
    assert_eq!((issue.number, issue.body.as_str(), issue.open, issue.is_pull), (Number(42), "", true, false));
    assert_eq!((issue.updated_at, issue.labels), (Timestamp(1_767_323_045_000), vec!["ralph:run".to_owned()]));
    assert_eq!((label.as_str(), sender.id, sender.kind), ("ralph:run", UserId(9), AccountKind::User));

    // A label that was deleted since is left out; then only the resulting set is known.
    let body = delivery("unlabeled", json!({ "issue": issue_json() }));
    assert!(matches!(understood("issues", &body), ForgeEvent::LabelSet { .. }));
    let body = delivery("unlabeled", json!({ "issue": issue_json(), "label": { "name": "x" } }));
    assert!(matches!(understood("issues", &body), ForgeEvent::Unlabeled { label, .. } if label == "x"));
}

#[test]
fn deleted_accounts_and_bots_are_distinguished_from_people() {
    let mut issue = issue_json();
    issue["user"] = Value::Null;
    issue["pull_request"] = json!({ "url": "…" });
    let comment = json!({
        "id": 3, "body": "/ralph status", "user": { "id": 8, "login": "triage-ai[bot]", "type": "Bot" },
        "created_at": "2026-01-02T03:04:05Z", "html_url": "https://x",
    });
    let mut body = delivery("created", json!({ "issue": issue, "comment": comment }));
    let ForgeEvent::CommentCreated { issue, comment, .. } = understood("issue_comment", &body) else { panic!() };
    assert_eq!((issue.author, issue.is_pull), (None, true));
    assert_eq!(comment.author.unwrap().kind, AccountKind::Bot);

    for (kind, expected) in [("User", AccountKind::User), ("Organization", AccountKind::Bot), ("New", AccountKind::Bot)]
    {
        body["sender"]["type"] = json!(kind);
        assert_eq!(understood("issue_comment", &body).sender().unwrap().kind, expected, "{kind}");
    }
}

#[test]
fn merges_and_verdicts_are_parsed() {
    let body = delivery("closed", json!({ "number": 43, "pull_request": pull_json() }));
    let ForgeEvent::PullChanged { pull, .. } = understood("pull_request", &body) else { panic!() };
    assert!(pull.merged && !pull.open && !pull.draft);
    assert_eq!((pull.head_sha.as_str().len(), pull.head_repo), (40, Some(RepoId(7))));
    assert_eq!((pull.head_branch.as_str(), pull.base_branch.as_str()), ("ralph/42-sum", "main"));

    let cases = [
        ("submitted", "approved", Some(ReviewVerdict::Approved)),
        ("submitted", "changes_requested", Some(ReviewVerdict::ChangesRequested)),
        ("submitted", "commented", Some(ReviewVerdict::Commented)),
        ("dismissed", "dismissed", Some(ReviewVerdict::Dismissed)),
        ("submitted", "odd", None),
    ];
    for (action, state, expected) in cases {
        let review = json!({ "id": 11, "state": state, "body": null, "submitted_at": null, "user": null });
        let body = delivery(action, json!({ "review": review, "pull_request": pull_json() }));
        match (read("pull_request_review", &body), expected) {
            (ParsedDelivery::Event(event), Some(expected)) => {
                let ForgeEvent::ReviewSubmitted { verdict, id, at, .. } = *event else { panic!("{event:?}") };
                assert_eq!((verdict, id, at), (expected, Some(11), Timestamp(1_767_323_046_000)), "{state}");
            }
            (ParsedDelivery::Malformed(_), None) => {}
            (other, _) => panic!("{state}: {other:?}"),
        }
    }
}

#[test]
fn push_contains_branch_and_new_commit() {
    let sha = "b".repeat(40);
    for (reference, after, deleted, expected) in [
        ("refs/heads/a/b", sha.as_str(), false, Some(("a/b", Some(sha.as_str())))),
        ("refs/heads/main", "0".repeat(40).as_str(), true, Some(("main", None))),
        ("refs/tags/v1", sha.as_str(), false, None),
    ] {
        let body = json!({
            "ref": reference, "before": sha, "after": after, "deleted": deleted, "repository": repository_json(),
            "sender": person(9, "max"),
        });
        let found = match read("push", &body) {
            ParsedDelivery::Event(event) => match *event {
                ForgeEvent::Pushed { branch, after, .. } => Some((branch, after)),
                other => panic!("{other:?}"),
            },
            ParsedDelivery::Ignored(_) => None,
            ParsedDelivery::Malformed(wrong) => panic!("{wrong}"),
        };
        let found = found.as_ref().map(|(branch, after)| (branch.as_str(), after.as_ref().map(Sha::as_str)));
        assert_eq!(found, expected, "{reference}");
    }
}

#[test]
fn status_contains_the_branch_with_that_head() {
    let sha = "c".repeat(40);
    let branches = json!([
        { "name": "main", "commit": { "sha": "d".repeat(40) } },
        { "name": "ralph/42-sum", "commit": { "sha": sha } },
    ]);
    let body = json!({
        "sha": sha, "context": "ci", "state": "failure", "branches": branches, "repository": repository_json(),
    });
    let ForgeEvent::ChecksChanged { branch, .. } = understood("status", &body) else { panic!() };
    assert_eq!(branch.as_deref(), Some("ralph/42-sum"));
}

/// See docs/research/threats.md#w7, docs/research/faults.md#f9.
#[test]
fn malformed_deliveries_are_refused_with_a_reason() {
    let labeled = delivery("labeled", json!({ "issue": issue_json(), "label": { "name": "ralph:run" } }));
    let mut no_sender = labeled.clone();
    no_sender.as_object_mut().unwrap().remove("sender");
    let mut no_time = labeled.clone();
    no_time["issue"]["updated_at"] = json!("yesterday");
    let star = delivery("deleted", json!({ "starred_at": null }));
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("issues", no_sender.to_string().into(), "sender"),
        ("issues", no_time.to_string().into(), "yesterday"),
        ("ping", labeled.to_string().into(), "shape of `issues`"),
        ("issues", star.to_string().into(), "does not have its shape"),
        ("repository", star.to_string().into(), "does not have its shape"),
        ("issues", b"{\"action\":\"labeled\",\"action\":\"opened\"}".to_vec(), "action"),
        ("issues", b"\xff\xfe".to_vec(), "UTF-8"),
        ("issues", Vec::new(), "JSON"),
        ("issues", "[".repeat(10_000).into(), "nested"),
        ("issues", b"[]".to_vec(), "shape"),
        ("issues", b"null".to_vec(), "shape"),
    ];
    for (event, body, expected) in cases {
        match parse(&ForgeName::new("gh"), event, &body) {
            ParsedDelivery::Malformed(wrong) => assert!(wrong.contains(expected), "{event}: {wrong}"),
            other => panic!("{event}: {other:?}"),
        }
    }
    let odd = read("star\n\u{202e}x", &star);
    assert_eq!(odd, ParsedDelivery::Ignored("event `star??x` is not used".to_owned()));
}

#[test]
fn unknown_fields_are_ignored() {
    let mut body = delivery("labeled", json!({ "issue": issue_json(), "label": { "name": "x", "new": [1] } }));
    let before = understood("issues", &body);
    body["new_object"] = json!({ "deep": { "er": 1 } });
    body["issue"]["type"] = json!({ "name": "Bug" });
    assert_eq!(understood("issues", &body), before);
}

proptest! {
    /// See docs/research/threats.md#w9.
    #[test]
    fn arbitrary_bodies_do_not_panic(header in 0..SUBSCRIBED_NAMES.len(), text in "\\PC{0,200}", cut in 0usize..600) {
        let event = SUBSCRIBED_NAMES[header];
        let _ = parse(&ForgeName::new("gh"), event, text.as_bytes());
        let whole = delivery("labeled", json!({ "issue": issue_json(), "pull_request": pull_json() })).to_string();
        let _ = parse(&ForgeName::new("gh"), event, &whole.as_bytes()[..cut.min(whole.len())]);
    }
}

/// A merge queue tests its own commits: their CI does not apply to a loop's commit.
#[test]
fn merge_queue_is_recognized_and_its_ci_ignored() {
    let queue = "gh-readonly-queue/main/pr-7-0123456789abcdef0123456789abcdef01234567";
    let sha = "0123456789abcdef0123456789abcdef01234567";
    let run = json!({
        "action": "completed", "repository": repository_json(), "sender": person(1, "mia"),
        "check_run": { "name": "test", "head_sha": sha, "check_suite": { "head_branch": queue } },
    });
    let group = json!({
        "action": "destroyed", "reason": "invalidated", "merge_group": { "head_sha": sha, "head_ref": queue },
        "repository": repository_json(), "sender": person(1, "mia"),
    });
    let push = json!({
        "ref": format!("refs/heads/{queue}"), "before": sha, "after": sha, "repository": repository_json(),
        "sender": person(1, "mia"),
    });
    for (event, body) in [("check_run", run), ("merge_group", group), ("push", push)] {
        let parsed = read(event, &body);
        assert!(matches!(parsed, ParsedDelivery::Ignored(_)), "{event}: {parsed:?}");
    }
}
