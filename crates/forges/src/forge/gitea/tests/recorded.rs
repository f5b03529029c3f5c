//! Every delivery and answer that was recorded from a Gitea 1.25.4, as it is and damaged.

use fake_forge::each_damage;

use super::*;
use test_support::cases;

const DELIVERIES: &str = "gitea-recorded/webhooks";
/// Number of damages of a field.
const DAMAGES: u32 = 8;

fn delivery(name: &str) -> (String, Value) {
    let recorded: Value = serde_json::from_slice(&contract_file(&format!("{DELIVERIES}/{name}"))).unwrap();
    (recorded["headers"]["X-Gitea-Event"].as_str().unwrap().to_owned(), recorded["body"].clone())
}

fn answer(name: &str) -> (u16, Value) {
    let file = format!("gitea-recorded/rest/{name}.json");
    let recorded: Value = serde_json::from_slice(&contract_file(&file)).unwrap();
    (u16::try_from(recorded["status"].as_u64().unwrap()).unwrap(), recorded["body"].clone())
}

#[test]
fn recorded_deliveries_have_the_expected_events() {
    let expected = [
        ("01-hook-test-1", "pushed"),
        ("01-hook-test-2", "pushed"),
        ("02-issue-opened-1", "issue_opened"),
        ("03-label-added-1", "label_set"),
        ("04-second-label-added-1", "label_set"),
        ("05-one-label-removed-1", "label_set"),
        ("06-labels-replaced-by-PUT-1", "label_set"),
        ("07-labels-cleared-1", "label_set"),
        ("08-issue-made-with-label-1", "issue_opened"),
        ("08-issue-made-with-label-2", "label_set"),
        ("09-title-edited-1", "issue_edited"),
        ("10-body-edited-1", "issue_edited"),
        ("11-issue-assigned-1", "ignored"),
        ("12-issue-closed-1", "issue_closed"),
        ("13-issue-reopened-1", "issue_reopened"),
        ("14-comment-made-1", "comment_created"),
        ("15-comment-edited-1", "ignored"),
        ("16-comment-deleted-1", "ignored"),
        ("19-branch-pushed-1", "ignored"),
        ("19-branch-pushed-2", "pushed"),
        ("20-draft-pull-request-opened-1", "pull_changed"),
        ("21-pull-request-made-ready-1", "pull_changed"),
        ("22-review-requested-1", "ignored"),
        ("23-review-that-comments-1", "review_submitted"),
        ("25-pending-review-submitted-1", "review_submitted"),
        ("27-review-that-approves-1", "review_submitted"),
        ("28-comment-on-the-pull-request-1", "comment_created"),
        ("30-commit-pushed-to-pull-request-1", "pushed"),
        ("30-commit-pushed-to-pull-request-2", "pull_changed"),
        ("31-push-to-base-1", "pushed"),
        ("32-base-of-pull-request-changed-1", "pull_changed"),
        ("32-base-of-pull-request-changed-2", "ignored"),
        ("32-base-of-pull-request-changed-3", "pushed"),
        ("32-base-of-pull-request-changed-4", "pull_changed"),
        ("33-pull-request-closed-1", "pull_changed"),
        ("34-pull-request-reopened-1", "pull_changed"),
        ("35-pull-request-merged-1", "pull_changed"),
        ("35-pull-request-merged-2", "issue_closed"),
        ("35-pull-request-merged-3", "pushed"),
        ("36-branch-deleted-1", "pushed"),
        ("37-issue-deleted-1", "issue_opened"),
        ("37-issue-deleted-2", "issue_gone"),
    ];
    assert_eq!(contract_folder(DELIVERIES), expected.map(|(name, _)| format!("{name}.json")));
    for (name, event) in expected {
        let (header, body) = delivery(&format!("{name}.json"));
        assert_eq!(read_as(&parsed(&header, &body)), event, "{name}");
    }
}

/// Accounts and addresses repeat everywhere; one place is representative.
fn shortened(mut body: Value) -> Value {
    let keep = ["id", "login"];
    for path in ["/issue/user", "/comment/user", "/pull_request/user", "/repository/owner", "/pusher"] {
        if let Some(Value::Object(fields)) = body.pointer_mut(path) {
            fields.retain(|key, _| keep.contains(&key.as_str()));
        }
    }
    for path in ["/pull_request/base/repo", "/pull_request/head/repo"] {
        if let Some(Value::Object(fields)) = body.pointer_mut(path) {
            fields.retain(|key, _| ["id", "name", "full_name"].contains(&key.as_str()));
        }
    }
    body
}

/// See docs/research/faults.md#f19.
#[test]
fn damaged_deliveries_are_answered_without_new_claims() {
    // Each field is damaged in some of the ways, by turns; in all of them with all cases of property tests.
    let tried = cases(DAMAGES).cases;
    let (mut count, mut last_path, mut field, mut damage) = (0, String::new(), 0, 0);
    for name in contract_folder(DELIVERIES) {
        let (header, body) = delivery(&name);
        let body = shortened(body);
        let undamaged = parsed(&header, &body);
        let undamaged =
            if matches!(undamaged, ParsedDelivery::Event(_)) { read_as(&undamaged) } else { "ignored".to_owned() };
        each_damage(&body, usize::MAX, &mut |path, damaged| {
            if last_path != path {
                (last_path, field, damage) = (path.to_owned(), field + 1, 0);
            }
            damage += 1;
            if (damage + 3 * field) % DAMAGES >= tried {
                return;
            }
            count += 1;
            // A panic fails the test. A shortened body may lose details, but must not become another command.
            if let ParsedDelivery::Event(event) = parsed(&header, damaged) {
                let event = serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned();
                let less = ["pull_changed", "repository_changed", "checks_changed"];
                // With another title than before, the delivery is an edit.
                let is_title = ["/pull_request/title", "/changes/title/from"].contains(&path);
                let is_edit = is_title && event == "issue_edited";
                assert!(
                    event == undamaged || less.contains(&event.as_str()) || is_edit,
                    "{name} {path}: {undamaged} became {event}"
                );
            }
        });
    }
    assert!(count > 2_500 * tried, "only {count} deliveries were tried");
}

#[test]
fn unknown_actions_are_ignored() {
    for name in contract_folder(DELIVERIES) {
        let (header, mut body) = delivery(&name);
        if body.get("action").is_none() {
            continue;
        }
        for action in ["", "unknown", "Opened", "opened ", "label_updated\u{0}", "deleted; opened"] {
            body["action"] = json!(action);
            let read = parsed(&header, &body);
            assert!(!matches!(read, ParsedDelivery::Event(_)), "{name} with the action {action:?}: {read:?}");
        }
    }
}

#[tokio::test]
async fn recorded_responses_are_parsed() {
    let there = RepoRef { owner: "acme97371".into(), ..repo() };
    let mira = |login: &str| User { id: UserId(2), login: login.into(), kind: AccountKind::User };
    let (server, forge) = servers().remove(0);
    let put = |name: &str, method: &str, target: &str| {
        let (status, body) = answer(name);
        server.on_raw(method, &format!("/repos/acme97371/app{target}"), status, &[], &body.to_string());
    };
    put("permission-of-the-owner", "GET", "/collaborators/mira/permission");
    assert_eq!(forge.permission(&there, &mira("mira")).await.unwrap(), Permission::Admin);
    put("issue-after-merge", "GET", "/issues/1");
    let issue = forge.issue(&there, Number(1)).await.unwrap();
    assert_eq!((issue.number, issue.open), (Number(1), false));
    put("issue-that-is-not-there", "GET", "/issues/9999");
    let missing = forge.issue(&there, Number(9999)).await.unwrap_err();
    assert_eq!(missing.kind, ForgeErrorKind::NotFound, "{missing}");
    put("merged-pull-request", "GET", "/pulls/3");
    let merged = forge.pull(&there, Number(3)).await.unwrap();
    assert!(!merged.open && merged.merged, "{merged:?}");
    for time in 0..4 {
        put(&format!("pull-request-{time}-times-after-a-push-to-its-base"), "GET", "/pulls/3");
        let open = forge.pull(&there, Number(3)).await.unwrap();
        assert!(open.open && !open.merged, "{open:?}");
    }
    let (status, body) = answer("a-bad-token");
    server.on_raw("GET", "/user", status, &[], &body.to_string());
    let refused = forge.own_account().await.unwrap_err();
    assert_eq!(refused.kind, ForgeErrorKind::Unauthorized, "{refused}");
    let (status, body) = answer("version");
    server.on_raw("GET", "/version", status, &[], &body.to_string());
    server.outside("GET", "/api/forgejo/v1/version");
    server.on_raw("GET", "/api/forgejo/v1/version", 404, &[], "");
    assert_eq!(forge.server_info().await.unwrap().product, "Gitea 1.25.4");
}

#[test]
fn recorded_lists_are_read() {
    let reviews: Vec<super::map::WireReview> = serde_json::from_value(answer("reviews").1).unwrap();
    assert!(reviews.len() > 2);
    let verdicts: Vec<ReviewVerdict> =
        reviews.into_iter().filter_map(|review| review.review()).map(|review| review.verdict).collect();
    // Requested reviews are none.
    assert_eq!(verdicts[..2], [ReviewVerdict::Commented, ReviewVerdict::ChangesRequested]);
    let remarks: Vec<super::map::WireReviewComment> = serde_json::from_value(answer("comments-of-a-review").1).unwrap();
    let remarks: Vec<_> = remarks.into_iter().map(|remark| remark.review_comment(None)).collect();
    assert_eq!((remarks[0].path.as_str(), remarks[0].line), ("notes.txt", Some(1)));
    let statuses: super::ci::WireStatuses = serde_json::from_value(answer("combined-status").1).unwrap();
    assert_eq!(statuses.statuses.len(), 0);
    for name in ["issues-by-label", "label-filter-of-a-label-that-is-not-there", "issues-are-switched-off"] {
        let issues: Vec<super::map::WireIssue> = serde_json::from_value(answer(name).1).unwrap();
        assert_eq!(issues.is_empty(), name == "issues-are-switched-off", "{name}");
    }
    let hook: super::map::WireHook = serde_json::from_value(answer("hook-as-made").1).unwrap();
    assert!(hook.active);
}

/// Recorded answers that `recorded_responses_are_parsed`, `recorded_lists_are_read` and
/// `recorded_timeline_names_who_changed_a_label` read.
const READ_ELSEWHERE: [&str; 18] = [
    "a-bad-token",
    "combined-status",
    "comments-of-a-review",
    "hook-as-made",
    "issue-after-merge",
    "issue-that-is-not-there",
    "issues-are-switched-off",
    "issues-by-label",
    "label-filter-of-a-label-that-is-not-there",
    "merged-pull-request",
    "permission-of-the-owner",
    "pull-request-0-times-after-a-push-to-its-base",
    "pull-request-1-times-after-a-push-to-its-base",
    "pull-request-2-times-after-a-push-to-its-base",
    "pull-request-3-times-after-a-push-to-its-base",
    "reviews",
    "timeline-of-the-issue",
    "version",
];

/// Recorded answers that refuse something, with the kind of the failure.
const REFUSALS: [(&str, ForgeErrorKind); 11] = [
    ("comment-in-an-archived-repository", ForgeErrorKind::Conflict),
    ("comment-on-a-locked-issue-by-a-reader", ForgeErrorKind::Conflict),
    ("comment-on-an-issue-that-is-not-there", ForgeErrorKind::Transient { after_ms: None, ambiguous: true }),
    ("comments-of-an-issue-that-is-not-there", ForgeErrorKind::Transient { after_ms: None, ambiguous: false }),
    ("file-that-is-not-there", ForgeErrorKind::NotFound),
    ("organisation-labels-without-the-scope", ForgeErrorKind::Denied),
    ("permission-of-nobody", ForgeErrorKind::NotFound),
    ("pull-request-that-exists-already", ForgeErrorKind::NotFound),
    ("reaction-that-is-not-allowed", ForgeErrorKind::Denied),
    ("repository-that-is-not-there", ForgeErrorKind::NotFound),
    ("team-membership-without-the-scope", ForgeErrorKind::Denied),
];

/// Answers with a body, each read as the adapter reads it.
fn read_body(name: &str, body: Value) {
    use super::map::{WirePull, WireRepository, WireTeam, WireUser};
    match name {
        "a-file" => {
            let file: crate::forge::contents::FileContents = serde_json::from_value(body).unwrap();
            assert!(file.text().unwrap().contains("check"), "{name}");
        }
        "own-account" => {
            let account = serde_json::from_value::<WireUser>(body).unwrap().existing().unwrap();
            assert_eq!((account.id, account.login.as_str()), (UserId(6), "ralph"));
        }
        "permission-of-a-reader" | "permission-of-a-team-member-with-write" | "permission-of-an-outsider" => {
            let role = if name == "permission-of-a-reader" { "read" } else { "none" };
            assert_eq!(body["permission"], role, "{name}");
            let account: WireUser = serde_json::from_value(body["user"].clone()).unwrap();
            assert!(account.existing().is_some(), "{name}");
        }
        "pull-request-just-opened" => {
            let pull: WirePull = serde_json::from_value(body).unwrap();
            let pull = pull.snapshot().unwrap();
            assert!(pull.open && !pull.merged, "{pull:?}");
        }
        // The adapter needs no more than its success.
        "reaction" => assert_eq!(body["content"], "eyes"),
        "repository" | "repository-by-its-old-name" => {
            let found: WireRepository = serde_json::from_value(body).unwrap();
            let found = found.facts(&ForgeName::new("g")).unwrap();
            assert_eq!((found.repo.id, found.repo.owner.as_str()), (RepoId(17), "acme97371"), "{name}");
            assert!(!found.archived && found.issues_enabled, "{name}");
        }
        // The adapter asks for pages of 50, which is the most that this server sends.
        "settings-of-the-API" => assert_eq!(body["max_response_items"], 50),
        "teams-of-the-repository" => {
            let teams: Vec<WireTeam> = serde_json::from_value(body).unwrap();
            assert!(teams.iter().any(|team| team.is_of_administrators()));
            let writes = |team: &WireTeam| !team.is_of_administrators() && team.code_permission() >= Permission::Write;
            assert!(teams.iter().any(writes), "{teams:?}");
        }
        other => panic!("no test reads the recorded answer {other}"),
    }
}

#[tokio::test]
async fn every_recorded_answer_is_read() {
    for file in contract_folder("gitea-recorded/rest") {
        let name = file.trim_end_matches(".json");
        let refusal = REFUSALS.iter().find(|(known, _)| *known == name);
        if READ_ELSEWHERE.contains(&name) {
            continue;
        }
        let (status, body) = answer(name);
        let Some((_, kind)) = refusal else {
            assert!((200..300).contains(&status), "{name}: {status}");
            read_body(name, body);
            continue;
        };
        // How an answer is classified depends on its status, its text and the method only.
        let changes =
            ["comment-in", "comment-on", "pull-request-that", "reaction-"].iter().any(|one| name.starts_with(one));
        let (server, forge) = servers().remove(0);
        let failure = if changes {
            server.on_raw("PATCH", "/repos/acme/app/issues/comments/8", status, &[], &body.to_string());
            forge.edit_comment(&repo(), CommentId(8), &Outbound::of_test("x")).await.unwrap_err()
        } else {
            server.on_raw("GET", "/repos/acme/app/issues/1", status, &[], &body.to_string());
            forge.issue(&repo(), Number(1)).await.unwrap_err()
        };
        assert_eq!(failure.kind, *kind, "{name}: {failure}");
    }
    let folder = contract_folder("gitea-recorded/rest");
    let known = READ_ELSEWHERE.into_iter().chain(REFUSALS.iter().map(|(name, _)| *name));
    for name in known {
        assert!(folder.contains(&format!("{name}.json")), "{name} is not there");
    }
}
