//! Tests of the Gitea and Forgejo adapter. Requests are validated against the descriptions of both servers.

use ::http::header::AUTHORIZATION;
use serde_json::{Value, json};

mod recorded;

use super::*;
use crate::domain::model::event::{ForgeEvent, ReviewVerdict};
use crate::domain::model::ids::{AccountKind, Sha, UserId};
use crate::domain::trust::outbound::Outbound;
use crate::domain::trust::permit::TeamRef;
use crate::forge::contract::{ContractSpec, ContractTransport, contract_file, contract_folder};
use crate::forge::http::Timeouts;
use crate::forge::{
    AutoMerge, Capabilities, Ci, CiState, Drafts, ForgeErrorKind, IssueHistory, ParsedDelivery, Polling, Reaction,
    Reactions, RepositoryFiles, Reviews, TeamVisibility, Teams, TextFile, Webhooks,
};

const SHA: &str = "67b56589a45103f891bdee7c0546e5d40bc02001";
const MOMENT: &str = "2025-03-09T16:19:00+09:00";

fn repo() -> RepoRef {
    RepoRef { forge: ForgeName::new("work"), id: RepoId(1), owner: "acme".into(), name: "app".into() }
}

fn ann() -> User {
    User { id: UserId(7), login: "ann".into(), kind: AccountKind::User }
}

fn settings() -> GiteaSettings {
    GiteaSettings {
        name: ForgeName::new("work"),
        url: Url::parse("https://git.test").unwrap(),
        token: SecretString::from("s3cret"),
        own: None,
        rates: RateSettings { mutation_interval_ms: Some(0), reserve: 0, attempts: 1, ..RateSettings::default() },
    }
}

fn over(settings: GiteaSettings, transport: &Arc<ContractTransport>) -> Gitea {
    let transport = Arc::clone(transport) as Arc<dyn Transport>;
    Gitea::with_transport(settings, Clock::manual(Timestamp(0)), transport).unwrap()
}

/// Returns an adapter with a scripted server of each kind.
fn servers() -> Vec<(Arc<ContractTransport>, Gitea)> {
    let transports = [ContractSpec::Gitea, ContractSpec::Forgejo].into_iter().map(ContractTransport::new);
    transports.map(|transport| (transport.clone(), over(settings(), &transport))).collect()
}

fn user(id: i64, login: &str) -> Value {
    json!({ "id": id, "login": login })
}

fn repository(id: i64, name: &str) -> Value {
    json!({ "id": id, "name": name, "full_name": format!("acme/{name}"), "owner": user(3, "acme"),
            "default_branch": "main", "private": true, "archived": false, "empty": false })
}

fn issue(number: u64, labels: &[&str]) -> Value {
    let labels: Vec<Value> = labels.iter().map(|name| json!({ "id": 1, "name": name })).collect();
    json!({ "number": number, "title": "It fails", "body": "Really", "user": user(7, "ann"), "labels": labels,
            "state": "open", "is_locked": false, "updated_at": MOMENT, "html_url": "https://git.test/acme/app/issues/1" })
}

fn comment(id: i64, created_at: &str) -> Value {
    json!({ "id": id, "body": "hello", "user": user(7, "ann"), "created_at": created_at, "html_url": "https://git.test/c" })
}

fn pull(number: u64, head: &str, head_repo: i64, title: &str, draft: bool) -> Value {
    let side = |name: &str, id: i64| json!({ "label": name, "ref": name, "sha": SHA, "repo_id": id, "repo": { "id": id, "name": "app" } });
    json!({ "number": number, "title": title, "state": "open", "draft": draft, "mergeable": true, "merged": false,
            "updated_at": MOMENT, "head": side(head, head_repo), "base": side("main", 1), "html_url": "https://git.test/p" })
}

#[tokio::test]
async fn product_is_read_from_the_version() {
    for (version, forgejo, expected) in [
        ("1.25.4", None, Ok("Gitea 1.25.4")),
        ("1.26.0+dev-12-gabc", None, Ok("Gitea 1.26.0+dev-12-gabc")),
        ("17.0.0-dev-609-a14eb80977+gitea-1.22.0", None, Ok("Forgejo 17.0.0-dev-609-a14eb80977")),
        ("1.21.11+0", Some("1.21.11+0"), Ok("Forgejo 1.21.11+0")),
        ("main", None, Ok("Gitea main")),
        ("1.21.4", None, Err("too old")),
        ("6.0.0+gitea-1.21.0", None, Err("too old")),
    ] {
        for (server, forge) in servers() {
            server.on("GET", "/version", 200, json!({ "version": version }));
            if !version.contains("+gitea-") {
                let path = "/api/forgejo/v1/version";
                server.outside("GET", path);
                match forgejo {
                    Some(own) => server.on_raw("GET", path, 200, &[], &json!({ "version": own }).to_string()),
                    None => server.on_raw("GET", path, 404, &[], ""),
                };
            }
            let found = forge.server_info().await;
            match expected {
                Ok(product) => {
                    let found = found.unwrap();
                    assert_eq!(found.product, product);
                    assert!(!found.label_deltas && forge.history().is_some() && forge.minimizing().is_none());
                    forge.server_info().await.expect("remembered, not asked again");
                }
                Err(words) => assert!(found.unwrap_err().detail.contains(words), "{version}"),
            }
            server.finish();
        }
    }
}

#[tokio::test]
async fn texts_are_rendered_by_the_server() {
    for (server, forge) in servers() {
        server.on_raw("POST", "/markdown", 200, &[], "<p><b>ä</b></p>\n");
        assert_eq!(forge.render(&repo(), "**ä**").await.unwrap(), "<p><b>ä</b></p>\n");
        let sent = json!({ "Text": "**ä**", "Mode": "gfm", "Context": "acme/app" });
        assert_eq!(server.bodies("POST", "/markdown"), [sent]);
        server.on_raw("POST", "/markdown", 500, &[], "");
        let failure = forge.render(&repo(), "**b**").await.unwrap_err();
        assert!(matches!(failure.kind, ForgeErrorKind::Transient { ambiguous: false, .. }), "{failure}");
        server.finish();
    }
}

/// See docs/research/faults.md#f4.
#[tokio::test]
async fn polling_does_not_use_the_reserve() {
    for (server, _) in servers() {
        let rates = RateSettings { reserve: 100, ..settings().rates };
        let forge = over(GiteaSettings { rates, ..settings() }, &server);
        let few = [("x-ratelimit-remaining", "99"), ("x-ratelimit-reset", "50")];
        server.on_with("GET", "/repos/acme/app/issues/1", 200, &few, issue(1, &[]));
        forge.issue(&repo(), Number(1)).await.unwrap();
        let since = Timestamp(0);
        let refusals = [
            forge.open_issues_with_label(&repo(), "ralph:run").await.map(drop),
            forge.issues_changed_since(&repo(), since).await.map(drop),
            forge.comments_changed_since(&repo(), since).await.map(drop),
            forge.repositories().await.map(drop),
        ];
        for refusal in refusals {
            let kind = refusal.unwrap_err().kind;
            assert!(matches!(kind, ForgeErrorKind::RateLimited { .. }), "{kind:?}");
        }
        server.on_with("GET", "/repos/acme/app/issues/1", 200, &few, issue(1, &[]));
        forge.issue(&repo(), Number(1)).await.unwrap();
        server.finish();
    }
}

#[tokio::test]
async fn own_account_is_requested_once_or_configured() {
    for (server, forge) in servers() {
        server.on("GET", "/user", 200, user(12, "ralph"));
        assert_eq!(forge.own_account().await.unwrap().id, UserId(12));
        assert_eq!(forge.own_account().await.unwrap().login, "ralph");
        assert_eq!(server.seen()[0].headers[AUTHORIZATION], "token s3cret");

        let narrow = over(settings(), &server);
        server.on("GET", "/user", 403, json!({ "message": "token does not have at least one of required scope(s)" }));
        let refusal = narrow.own_account().await.unwrap_err();
        assert_eq!(refusal.kind, ForgeErrorKind::Denied);
        assert!(refusal.detail.contains("set `own_id`"), "{refusal}");

        let configured = over(GiteaSettings { own: Some(ann()), ..settings() }, &server);
        assert_eq!(configured.own_account().await.unwrap(), ann());
        server.finish();
    }
}

#[tokio::test]
async fn repositories_are_listed_or_searched_for_limited_tokens() {
    for (server, forge) in servers() {
        let first: Vec<Value> = (1..=50).map(|id| repository(id, &format!("r{id}"))).collect();
        let total = [("x-total-count", "51")];
        server.on_with("GET", "/user/repos?limit=50&page=1", 200, &total, json!(first));
        server.on_with("GET", "/user/repos?limit=50&page=2", 200, &total, json!([repository(51, "r51")]));
        let found = forge.repositories().await.unwrap();
        assert_eq!(found.len(), 51);
        assert_eq!((found[50].repo.id, found[50].repo.full_name().as_str()), (RepoId(51), "acme/r51"));
        assert!(found[0].private && !found[0].archived && found[0].default_branch == "main");

        server.on("GET", "/user/repos?limit=50&page=1", 403, json!({ "message": "scope" }));
        let mut ours = repository(1, "app");
        ours["permissions"] = json!({ "push": true, "pull": true, "admin": false });
        let mut public = repository(2, "other");
        public["permissions"] = json!({ "push": false, "pull": true, "admin": false });
        let page = json!({ "ok": true, "data": [ours, public] });
        server.on_with("GET", "/repos/search?limit=50&page=1", 200, &[("x-total-count", "2")], page);
        let found = forge.repositories().await.unwrap();
        assert_eq!(found.iter().map(|r| r.repo.name.as_str()).collect::<Vec<_>>(), ["app"]);
        server.finish();
    }
}

/// See docs/research/faults.md#f8, docs/research/faults.md#f19.
#[tokio::test]
async fn paging_ends_with_any_kind_of_last_page() {
    let target = |page: u32| format!("/user/repos?limit=50&page={page}");
    let one = |id: i64| json!([repository(id, "r")]);
    for (server, forge) in servers() {
        let next = [("link", "<https://git.test/x?page=2>; rel=\"next\"")];
        server.on_with("GET", &target(1), 200, &next, one(1));
        server.on_with("GET", &target(2), 200, &[("link", "<https://git.test/x?page=1>; rel=\"prev\"")], one(2));
        assert_eq!(forge.repositories().await.unwrap().len(), 2, "by Link");

        server.on("GET", &target(1), 200, one(1)).on("GET", &target(2), 200, json!([]));
        assert_eq!(forge.repositories().await.unwrap().len(), 1, "by an empty page");

        server.on("GET", &target(1), 200, one(1)).on("GET", &target(2), 200, one(1));
        assert_eq!(forge.repositories().await.unwrap().len(), 1, "by the same page again");

        server.on_with("GET", &target(1), 200, &[("x-total-count", "9")], one(1));
        server.on_raw("GET", &target(2), 200, &[("x-total-count", "9")], "null");
        assert_eq!(forge.repositories().await.unwrap().len(), 1, "by nothing, when the total shrank meanwhile");
        server.finish();
    }
}

#[tokio::test]
async fn renamed_repository_is_found_by_id() {
    for (server, forge) in servers() {
        server.outside("GET", "/repositories/{id}");
        server.on("GET", "/repos/acme/app", 200, repository(1, "app"));
        assert_eq!(forge.repository(&repo()).await.unwrap().repo, repo());

        let renamed = repository(1, "application").to_string();
        server.on("GET", "/repos/acme/app", 404, json!({})).on_raw("GET", "/repositories/1", 200, &[], &renamed);
        assert_eq!(forge.repository(&repo()).await.unwrap().repo.name, "application");

        server.on("GET", "/repos/acme/app", 200, repository(2, "app")).on_raw(
            "GET",
            "/repositories/1",
            200,
            &[],
            &renamed,
        );
        assert_eq!(forge.repository(&repo()).await.unwrap().repo.name, "application", "another took the name");

        server.on("GET", "/repos/acme/app", 200, repository(2, "app")).on_raw("GET", "/repositories/1", 404, &[], "");
        assert_eq!(forge.repository(&repo()).await.unwrap_err().kind, ForgeErrorKind::NotFound);
        for name in ["..", ".", ""] {
            let elsewhere = RepoRef { name: name.into(), ..repo() };
            assert_eq!(forge.issue(&elsewhere, Number(1)).await.unwrap_err().kind, ForgeErrorKind::NotFound);
        }
        server.finish();
    }
}

/// See docs/research/threats.md#p7.
#[tokio::test]
async fn team_membership_is_checked_by_id() {
    let (search, member) = ("/orgs/acme/teams/search?q=leads&limit=50", "/teams/3/members/ann");
    let lead_team = TeamRef::parse("acme/leads").unwrap();
    for (server, forge) in servers() {
        let teams = json!({ "ok": true, "data": [{ "id": 2, "name": "leads-old" }, { "id": 3, "name": "Leads" }] });
        for (status, body, expected) in
            [(200, user(7, "ann"), true), (200, user(8, "ann"), false), (404, json!({ "message": "not found" }), false)]
        {
            server.on("GET", search, 200, teams.clone());
            server.on("GET", member, status, body);
            assert_eq!(forge.is_team_member(&repo(), &lead_team, &ann()).await.unwrap(), expected, "{status}");
        }
        for (status, nothing) in [(200, json!({ "ok": true, "data": [] })), (404, json!({ "message": "no" }))] {
            server.on("GET", search, status, nothing);
            assert!(!forge.is_team_member(&repo(), &lead_team, &ann()).await.unwrap(), "there is no such team");
        }
        server.on("GET", search, 403, json!({ "message": "Must be an organization member" }));
        let refusal = forge.is_team_member(&repo(), &lead_team, &ann()).await.unwrap_err();
        assert_eq!(refusal.kind, ForgeErrorKind::Denied, "a failure to ask is never an answer");
        let nobody = User { id: UserId(-1), ..ann() };
        assert!(!forge.is_team_member(&repo(), &lead_team, &nobody).await.unwrap(), "not even asked");
        server.finish();
    }
}

#[tokio::test]
async fn hidden_team_is_reported_with_the_remedy() {
    let (search, members) = ("/orgs/acme/teams/search?q=leads&limit=50", "/teams/3/members?limit=1");
    let lead_team = TeamRef::parse("acme/leads").unwrap();
    let teams = json!({ "ok": true, "data": [{ "id": 3, "name": "leads" }] });
    let refusal_body = || json!({ "message": "no" });
    for (server, forge) in servers() {
        server.on("GET", search, 200, teams.clone()).on("GET", members, 200, json!([user(7, "ann")]));
        assert_eq!(forge.team_visibility(&repo(), &lead_team).await.unwrap(), TeamVisibility::Visible);
        for (status, found, then, advice) in [
            (200, json!({ "ok": true, "data": [] }), None, "correct its name"),
            (404, refusal_body(), None, "member of it"),
            (403, refusal_body(), None, "read:organization"),
            (200, teams.clone(), Some(403), "read:organization"),
            (200, teams.clone(), Some(404), "read:organization"),
        ] {
            server.on("GET", search, status, found);
            if let Some(status) = then {
                server.on("GET", members, status, refusal_body());
            }
            let visibility = forge.team_visibility(&repo(), &lead_team).await.unwrap();
            assert!(
                matches!(&visibility, TeamVisibility::Hidden { fix, .. } if fix.contains(advice)),
                "{visibility:?}"
            );
        }
        server.on("GET", search, 500, refusal_body());
        forge.team_visibility(&repo(), &lead_team).await.unwrap_err();
        server.finish();
    }
}

#[tokio::test]
async fn files_of_a_folder_are_read_without_subfolders() {
    let folder = "/repos/acme/app/contents/.gitea/workflows";
    for (server, forge) in servers() {
        let entry =
            |name: &str, kind: &str| json!({ "path": format!(".gitea/workflows/{name}"), "type": kind, "size": 8 });
        // The description has only files; a folder's response is a list.
        let listed =
            json!([entry("b.yml", "file"), entry("more", "dir"), entry("a.yml", "symlink"), entry("a.md", "file")]);
        server.on_raw("GET", folder, 200, &[], &listed.to_string());
        let whole = json!({ "type": "file", "path": "b.yml", "content": "b246IHB1c2g=", "encoding": "base64" });
        server.on("GET", &format!("{folder}/b.yml"), 200, whole);
        let files = forge.folder_files(&repo(), ".gitea/workflows", |path| !path.ends_with(".md")).await.unwrap();
        assert_eq!(files, [TextFile { path: ".gitea/workflows/b.yml".into(), text: "on: push".into() }]);
        server.on("GET", "/repos/acme/app/contents", 404, json!({ "message": "no" }));
        assert!(forge.folder_files(&repo(), "", |_| true).await.unwrap().is_empty());
        server.on("GET", folder, 404, json!({ "message": "no" }));
        assert!(
            forge.folder_files(&repo(), ".gitea/workflows", |path| !path.ends_with(".md")).await.unwrap().is_empty()
        );
        server.finish();
    }
}

#[tokio::test]
async fn permission_is_checked_by_id() {
    let target = "/repos/acme/app/collaborators/ann/permission";
    for (server, forge) in servers() {
        let says = |level: &str, id: i64| json!({ "permission": level, "role_name": level, "user": user(id, "ann") });
        server.on("GET", "/version", 200, json!({ "version": "1.22.6" }));
        server.outside("GET", "/api/forgejo/v1/version");
        server.on_raw("GET", "/api/forgejo/v1/version", 404, &[], "");
        server.outside("GET", "/repos/{owner}/{repo}/teams");
        for (level, id, expected) in [
            ("owner", 7, Permission::Admin),
            ("admin", 7, Permission::Admin),
            ("write", 7, Permission::Write),
            ("read", 7, Permission::Read),
            ("none", 7, Permission::None),
            ("owner", 8, Permission::None),
        ] {
            server.on("GET", target, 200, says(level, id));
            if matches!(level, "write" | "read" | "none") {
                // The owner is a person.
                server.on_raw("GET", TEAMS, 405, &[], "{}");
            }
            assert_eq!(forge.permission(&repo(), &ann()).await.unwrap(), expected, "{level} of {id}");
        }
        server.on("GET", target, 200, json!({ "permission": "owner" }));
        assert_eq!(forge.permission(&repo(), &ann()).await.unwrap(), Permission::None, "nobody is named");
        server.on("GET", target, 404, json!({ "message": "user does not exist" }));
        assert_eq!(forge.permission(&repo(), &ann()).await.unwrap(), Permission::None);
        server.on("GET", target, 200, says("emperor", 7));
        assert_eq!(forge.permission(&repo(), &ann()).await.unwrap_err().kind, ForgeErrorKind::Bug);
        server.on("GET", target, 403, json!({ "message": "Only admins can query all permissions" }));
        let refusal = forge.permission(&repo(), &ann()).await.unwrap_err();
        assert!(refusal.kind == ForgeErrorKind::Denied && refusal.detail.contains("administrator"), "{refusal}");
        for nobody in [User { id: UserId(-1), ..ann() }, User { login: String::new(), ..ann() }] {
            assert_eq!(forge.permission(&repo(), &nobody).await.unwrap(), Permission::None, "not even asked");
        }
        server.finish();
    }
}

const TEAMS: &str = "/repos/acme/app/teams?limit=50&page=1";

/// A team as the server lists it: `code` is the permission of its members for the code.
fn team(id: i64, name: &str, permission: &str, code: &str) -> Value {
    json!({ "id": id, "name": name, "permission": permission, "units": ["repo.code", "repo.issues"],
            "units_map": { "repo.code": code, "repo.issues": "write" } })
}

fn list_teams(server: &ContractTransport, teams: &[&Value]) {
    server.outside("GET", "/repos/{owner}/{repo}/teams");
    let total = teams.len().to_string();
    let headers = [("content-type", "application/json"), ("x-total-count", total.as_str())];
    server.on_raw("GET", TEAMS, 200, &headers, &json!(teams).to_string());
}

/// Returns the permission of ann by a version of the server, its own answer, the teams of the repository, and the status of the
/// question whether she is in each of them and whether its members can be read.
async fn permission_by_teams(version: &str, field: &str, teams: &[(&Value, u16, u16)]) -> Permission {
    let server = ContractTransport::new(ContractSpec::Gitea);
    let forge = over(settings(), &server);
    let says = json!({ "permission": field, "role_name": field, "user": user(7, "ann") });
    server.on("GET", "/repos/acme/app/collaborators/ann/permission", 200, says);
    if field == "write" {
        has_version(&server, version);
    }
    list_teams(&server, &teams.iter().map(|(team, ..)| *team).collect::<Vec<_>>());
    for (team, member, seen) in teams {
        let id = &team["id"];
        server.on("GET", &format!("/teams/{id}/members/ann"), *member, user(7, "ann"));
        server.on("GET", &format!("/teams/{id}/members?limit=1"), *seen, json!([]));
    }
    forge.permission(&repo(), &ann()).await.unwrap()
}

/// Gitea 1.25 answers `none` for members of teams; older versions and Forgejo answer the lowest permission for any part.
#[tokio::test]
async fn permission_comes_from_teams_with_code_access() {
    const FORGEJO: &str = "11.0.1+gitea-1.22.0";
    let (writers, readers) = (&team(4, "devs", "none", "write"), &team(5, "docs", "none", "read"));
    let owners = &team(3, "Owners", "owner", "owner");
    let cases = [
        ("1.25.4", "none", vec![(writers, 200, 200)], Permission::Write),
        ("1.25.4", "none", vec![(readers, 200, 200)], Permission::Read),
        ("1.25.4", "none", vec![(owners, 200, 200)], Permission::Admin),
        ("1.25.4", "none", vec![(writers, 404, 200), (readers, 200, 200)], Permission::Read),
        ("1.25.4", "none", vec![(writers, 403, 403)], Permission::None),
        ("1.25.4", "read", vec![(writers, 403, 403)], Permission::Read),
        // A team that may write issues and only read the code.
        (FORGEJO, "write", vec![(readers, 200, 200)], Permission::Read),
        ("1.22.6", "write", vec![(readers, 200, 200)], Permission::Read),
        (FORGEJO, "write", vec![(writers, 200, 200)], Permission::Write),
        // A collaborator who is in no team.
        (FORGEJO, "write", vec![(readers, 404, 200)], Permission::Write),
        // A collaborator in an organization whose owners the bot cannot see: they would have more than `write`.
        ("1.22.6", "write", vec![(owners, 404, 404), (writers, 404, 200)], Permission::Write),
        (FORGEJO, "write", vec![(owners, 404, 404), (writers, 404, 200)], Permission::Write),
        (FORGEJO, "write", vec![(owners, 403, 403), (readers, 404, 200)], Permission::Write),
        (FORGEJO, "write", vec![(owners, 404, 404), (writers, 403, 403)], Permission::Read),
        // Perhaps a member of a team that the bot cannot see.
        (FORGEJO, "write", vec![(readers, 404, 404)], Permission::Read),
        (FORGEJO, "write", vec![(readers, 403, 403)], Permission::Read),
    ];
    for (version, field, teams, expected) in cases {
        assert_eq!(permission_by_teams(version, field, &teams).await, expected, "{version} {field} {teams:?}");
    }
}

#[tokio::test]
async fn teams_whose_members_are_hidden_are_named() {
    for (server, forge) in servers() {
        let mut all = vec![team(4, "devs", "none", "write"), team(5, "docs", "none", "read")];
        // No request about administrators is needed, because the permission includes this.
        all.extend([team(6, "ops", "admin", "admin"), team(7, "qa", "none", "write")]);
        list_teams(&server, &all.iter().collect::<Vec<_>>());
        server.on("GET", "/teams/4/members?limit=1", 403, json!({ "message": "read:organization" }));
        server.on("GET", "/teams/7/members?limit=1", 200, json!([]));
        let hidden = forge.teams().unwrap().hidden_teams(&repo()).await.unwrap();
        assert_eq!(hidden.iter().map(ToString::to_string).collect::<Vec<_>>(), ["acme/devs"]);
        server.finish();
    }
}

#[tokio::test]
async fn issues_are_read_opened_and_closed() {
    for (server, forge) in servers() {
        server.on("GET", "/repos/acme/app/issues/1", 200, issue(1, &["bug", "ralph:run"]));
        let read = forge.issue(&repo(), Number(1)).await.unwrap();
        assert_eq!((read.number, read.title.as_str(), read.body.as_str()), (Number(1), "It fails", "Really"));
        assert_eq!((read.author, read.labels), (Some(ann()), vec!["bug".to_owned(), "ralph:run".to_owned()]));
        assert_eq!((read.open, read.is_pull, read.locked, read.updated_at.0), (true, false, false, 1_741_504_740_000));

        let mut wild = issue(1, &[]);
        wild["user"] = Value::Null;
        wild["labels"] = Value::Null;
        wild["body"] = Value::Null;
        wild["pull_request"] = json!({ "merged": false });
        wild["from_the_future"] = json!({});
        server.on_raw("GET", "/repos/acme/app/issues/1", 200, &[], &wild.to_string());
        let read = forge.issue(&repo(), Number(1)).await.unwrap();
        assert_eq!((read.author, read.labels.len(), read.body.as_str(), read.is_pull), (None, 0, "", true));

        server.on_raw("GET", "/repos/acme/app/issues/1", 200, &[("content-type", "text/html")], "<html>");
        assert!(forge.issue(&repo(), Number(1)).await.unwrap_err().detail.contains("web page"));

        // The server ignores unknown labels in the filter; the adapter removes the other issues.
        let listed = "/repos/acme/app/issues?state=open&type=issues&labels=ralph%3Arun&limit=50&page=1";
        let both = json!([issue(1, &["ralph:run"]), issue(2, &["bug"])]);
        server.on_with("GET", listed, 200, &[("x-total-count", "2")], both);
        let found = forge.open_issues_with_label(&repo(), "ralph:run").await.unwrap();
        assert_eq!(found.iter().map(|i| i.number.0).collect::<Vec<_>>(), [1]);

        server.on("PATCH", "/repos/acme/app/issues/1", 201, issue(1, &[]));
        forge.set_issue_open(&repo(), Number(1), false).await.unwrap();
        server.on("PATCH", "/repos/acme/app/issues/1", 201, issue(1, &[]));
        forge.set_issue_open(&repo(), Number(1), true).await.unwrap();
        let states = server.bodies("PATCH", "/repos/acme/app/issues/1");
        assert_eq!(states, [json!({ "state": "closed" }), json!({ "state": "open" })]);
        server.on("PATCH", "/repos/acme/app/issues/1", 412, json!({ "message": "open dependencies" }));
        let blocked = forge.set_issue_open(&repo(), Number(1), false).await.unwrap_err();
        assert_eq!(blocked.kind, ForgeErrorKind::Conflict);
        server.finish();
    }
}

const REPO_LABELS: &str = "/repos/acme/app/labels?limit=50&page=1";
const ORG_LABELS: &str = "/orgs/acme/labels?limit=50&page=1";
const ISSUE_LABELS: &str = "/repos/acme/app/issues/1/labels";

fn label(id: i64, name: &str) -> Value {
    json!({ "id": id, "name": name })
}

fn one_page(server: &ContractTransport, target: &str, items: Vec<Value>) {
    let total = items.len().to_string();
    server.on_with("GET", target, 200, &[("x-total-count", &total)], json!(items));
}

#[tokio::test]
async fn labels_of_repository_and_organization_are_found_by_name() {
    for (server, forge) in servers() {
        one_page(&server, REPO_LABELS, vec![label(4, "bug"), label(5, "both")]);
        one_page(&server, ORG_LABELS, vec![label(90, "ralph:run"), label(91, "both")]);
        server.on("POST", "/repos/acme/app/issues", 201, issue(9, &["bug"]));
        let new = NewIssue {
            title: "T".into(),
            body: "B".into(),
            labels: vec!["ralph:run".into(), "both".into()],
            assignees: vec!["ada".into()],
        };
        assert_eq!(forge.create_issue(&repo(), &new).await.unwrap().number, Number(9));
        let sent = server.bodies("POST", "/repos/acme/app/issues");
        assert_eq!(sent, [json!({ "title": "T", "body": "B", "labels": [90, 5], "assignees": ["ada"] })]);

        server.on("POST", ISSUE_LABELS, 200, json!([label(4, "bug"), label(90, "ralph:run")]));
        forge.add_labels(&repo(), Number(1), &["bug".into()]).await.expect("from memory");
        forge.add_labels(&repo(), Number(1), &[]).await.expect("nothing to send");

        one_page(&server, REPO_LABELS, vec![label(4, "bug")]);
        server.on("GET", ORG_LABELS, 404, json!({}));
        let missing = forge.add_labels(&repo(), Number(1), &["new".into()]).await.unwrap_err();
        assert_eq!(missing.kind, ForgeErrorKind::NotFound);
        assert!(missing.what.contains("\"new\""), "{missing}");
        server.finish();
    }
}

#[tokio::test]
async fn recreated_label_is_found() {
    for (server, forge) in servers() {
        for id in [4, 44] {
            one_page(&server, REPO_LABELS, vec![label(id, "bug")]);
            server.on("GET", ORG_LABELS, 404, json!({}));
        }
        server.on("POST", ISSUE_LABELS, 200, json!([])).on("POST", ISSUE_LABELS, 200, json!([label(44, "bug")]));
        forge.add_labels(&repo(), Number(1), &["bug".into()]).await.unwrap();
        let sent = server.bodies("POST", ISSUE_LABELS);
        assert_eq!(sent, [json!({ "labels": [4] }), json!({ "labels": [44] })]);
        server.finish();
    }
}

#[tokio::test]
async fn missing_labels_are_created_and_others_unchanged() {
    for (server, forge) in servers() {
        one_page(&server, REPO_LABELS, vec![label(4, "ralph:run")]);
        server.on("GET", ORG_LABELS, 404, json!({}));
        server.on("POST", "/repos/acme/app/labels", 201, label(6, "ralph:paused"));
        let spec =
            |name: &str| LabelSpec { name: name.into(), color: "00aabb".into(), description: "D", exclusive: false };
        forge.ensure_labels(&repo(), &[spec("ralph:run"), spec("ralph:paused")]).await.unwrap();
        let made = server.bodies("POST", "/repos/acme/app/labels");
        assert_eq!(made, [json!({ "name": "ralph:paused", "color": "#00aabb", "description": "D" })]);
        server.on("POST", ISSUE_LABELS, 200, json!([label(6, "ralph:paused")]));
        forge.add_labels(&repo(), Number(1), &["ralph:paused".into()]).await.expect("its id is known");
        server.finish();
    }
}

#[tokio::test]
async fn duplicates_of_our_labels_are_merged_once() {
    for (server, forge) in servers() {
        let ours = |id: i64| json!({ "id": id, "name": "ralph:run", "description": "D" });
        let theirs = json!({ "id": 9, "name": "Ralph:Run", "description": "mine" });
        one_page(&server, REPO_LABELS, vec![ours(7), ours(4), theirs]);
        server.on("GET", ORG_LABELS, 404, json!({}));
        let with = |number: u64, ids: &[i64]| {
            let mut issue = issue(number, &[]);
            issue["labels"] = ids.iter().map(|id| label(*id, "ralph:run")).collect();
            issue
        };
        let issues = "/repos/acme/app/issues?state=all&limit=50&page=1";
        one_page(&server, issues, vec![with(1, &[7]), with(2, &[4, 7]), with(3, &[9])]);
        server.on("POST", ISSUE_LABELS, 200, json!([]));
        server.on_raw("DELETE", "/repos/acme/app/labels/7", 204, &[], "");
        let spec = LabelSpec { name: "ralph:run".into(), color: "00aabb".into(), description: "D", exclusive: false };
        forge.ensure_labels(&repo(), std::slice::from_ref(&spec)).await.unwrap();
        assert_eq!(server.bodies("POST", ISSUE_LABELS), [json!({ "labels": [4] })]);
        forge.ensure_labels(&repo(), &[spec]).await.expect("known, not asked again");
        server.finish();
    }
}

#[tokio::test]
async fn removing_an_absent_label_has_no_effect() {
    for (server, forge) in servers() {
        server.on("GET", ISSUE_LABELS, 200, json!([label(4, "bug"), label(6, "ralph:run")]));
        server.on("DELETE", "/repos/acme/app/issues/1/labels/6", 204, Value::Null);
        forge.remove_label(&repo(), Number(1), "ralph:run").await.unwrap();
        server.on("GET", ISSUE_LABELS, 200, json!([label(4, "bug")]));
        forge.remove_label(&repo(), Number(1), "ralph:run").await.expect("not there is no error");
        server.on("GET", ISSUE_LABELS, 200, json!([label(6, "ralph:run")]));
        server.on("DELETE", "/repos/acme/app/issues/1/labels/6", 404, json!({}));
        forge.remove_label(&repo(), Number(1), "ralph:run").await.expect("gone meanwhile is no error");
        server.finish();
    }
}

#[tokio::test]
async fn comments_are_listed_in_order_and_created() {
    let all = "/repos/acme/app/issues/1/comments";
    for (server, forge) in servers() {
        let listed = json!([
            comment(3, "2025-03-09T16:19:00Z"),
            comment(2, "2025-03-09T16:00:00Z"),
            comment(1, "2025-03-09T16:00:00Z")
        ]);
        server.on("GET", &format!("{all}?since=2025-03-09T07%3A19%3A00Z"), 200, listed);
        let since = Some(Timestamp(1_741_504_740_999));
        let found = forge.comments(&repo(), Number(1), since).await.unwrap();
        assert_eq!(found.iter().map(|c| c.id.0).collect::<Vec<_>>(), [1, 2, 3]);
        server.on_raw("GET", all, 200, &[], "null");
        assert_eq!(forge.comments(&repo(), Number(1), None).await.unwrap(), []);

        server.on("POST", all, 201, comment(8, MOMENT));
        assert_eq!(
            forge.create_comment(&repo(), Number(1), &Outbound::of_test("hello")).await.unwrap().id,
            CommentId(8)
        );
        assert_eq!(server.bodies("POST", all), [json!({ "body": "hello" })]);

        let one = "/repos/acme/app/issues/comments/8";
        server.on("PATCH", one, 200, comment(8, MOMENT)).on("DELETE", one, 204, Value::Null).on(
            "DELETE",
            one,
            404,
            json!({}),
        );
        forge.edit_comment(&repo(), CommentId(8), &Outbound::of_test("new")).await.unwrap();
        forge.delete_comment(&repo(), CommentId(8)).await.unwrap();
        forge.delete_comment(&repo(), CommentId(8)).await.expect("gone is no error");
        server.finish();
    }
}

#[tokio::test]
async fn locked_conversation_is_a_conflict() {
    let all = "/repos/acme/app/issues/1/comments";
    for (server, forge) in servers() {
        for (locked, expected) in [(true, ForgeErrorKind::Conflict), (false, ForgeErrorKind::Denied)] {
            let mut locked_issue = issue(1, &[]);
            locked_issue["is_locked"] = locked.into();
            server.on("POST", all, 403, json!({ "message": "Kommentieren nicht erlaubt" }));
            server.on("GET", "/repos/acme/app/issues/1", 200, locked_issue);
            assert_eq!(
                forge.create_comment(&repo(), Number(1), &Outbound::of_test("x")).await.unwrap_err().kind,
                expected
            );
        }
        server.finish();
    }
}

#[tokio::test]
async fn existing_reaction_is_not_an_error() {
    let target = "/repos/acme/app/issues/comments/8/reactions";
    for (server, forge) in servers() {
        let given = json!({ "content": "eyes", "user": user(12, "ralph") });
        server.on("POST", target, 201, given.clone());
        for _ in 0..3 {
            server.on("POST", target, 200, given.clone());
        }
        for reaction in [Reaction::Eyes, Reaction::Rocket, Reaction::Confused, Reaction::ThumbsDown] {
            forge.react(&repo(), CommentId(8), reaction).await.unwrap();
        }
        let sent: Vec<Value> = server.bodies("POST", target).into_iter().map(|b| b["content"].clone()).collect();
        assert_eq!(sent, ["eyes", "rocket", "confused", "-1"]);
        server.on("POST", target, 403, json!({ "message": "Comment is locked" }));
        let locked = forge.react(&repo(), CommentId(8), Reaction::Eyes).await.unwrap_err();
        assert_eq!(locked.kind, ForgeErrorKind::Conflict);
        server.finish();
    }
}

/// See docs/research/threats.md#p14.
#[tokio::test]
async fn pull_requests_are_found_by_branch_of_this_repository() {
    let (direct, open) = ("/repos/acme/app/pulls/main/ralph/1-x", "/repos/acme/app/pulls?state=open&limit=50&page=1");
    let found = async |forge: &Gitea, base: &str| forge.find_pull(&repo(), "ralph/1-x", base).await.unwrap();
    for (server, forge) in servers() {
        server.on("GET", direct, 200, pull(8, "ralph/1-x", 1, "B", false));
        let one = found(&forge, "main").await.unwrap();
        assert_eq!((one.number, one.head_repo, one.head_sha), (Number(8), Some(RepoId(1)), Sha::new(SHA)));
        // It goes to another base by now; a fork has a branch of the same name.
        server.on("GET", direct, 404, json!({}));
        let others = vec![pull(9, "ralph/1-x", 77, "Same name, a fork", false), pull(8, "ralph/1-x", 1, "B", false)];
        one_page(&server, open, others);
        assert_eq!(found(&forge, "main").await.unwrap().number, Number(8));
        one_page(&server, open, vec![pull(1, "other", 1, "A", false)]);
        assert_eq!(found(&forge, "release/1").await, None, "a base with a slash is not asked for directly");
        server.finish();
    }
}

#[tokio::test]
async fn draft_state_is_stored_in_the_title() {
    let one = "/repos/acme/app/pulls/5";
    for (server, forge) in servers() {
        server.on("POST", "/repos/acme/app/pulls", 201, pull(5, "ralph/1-x", 1, "WIP: Fix", true));
        let new = NewPull {
            title: "Fix".into(),
            body: "B".into(),
            head: "ralph/1-x".into(),
            base: "main".into(),
            draft: true,
        };
        let made = forge.create_pull(&repo(), &new).await.unwrap();
        assert!(made.draft && made.number == Number(5));
        let sent = server.bodies("POST", "/repos/acme/app/pulls");
        assert_eq!(sent, [json!({ "title": "WIP: Fix", "body": "B", "head": "ralph/1-x", "base": "main" })]);
        server.on("POST", "/repos/acme/app/pulls", 409, json!({ "message": "pull request already exists" }));
        assert_eq!(forge.create_pull(&repo(), &new).await.unwrap_err().kind, ForgeErrorKind::Conflict);

        let draft = || pull(5, "ralph/1-x", 1, "WIP: Fix", true);
        let ready = || pull(5, "ralph/1-x", 1, "Fix", false);
        server.on("GET", one, 200, draft()).on("PATCH", one, 201, draft());
        forge.update_pull(&repo(), Number(5), &Outbound::of_test("Fix more"), &Outbound::of_test("C")).await.unwrap();
        server.on("GET", one, 200, draft()).on("PATCH", one, 201, ready());
        forge.set_pull_ready(&repo(), Number(5)).await.unwrap();
        server.on("GET", one, 200, ready());
        forge.set_pull_ready(&repo(), Number(5)).await.expect("ready is no error");
        server.on("GET", one, 200, ready()).on("PATCH", one, 201, ready());
        forge.update_pull(&repo(), Number(5), &Outbound::of_test("Fix more"), &Outbound::of_test("C")).await.unwrap();
        let titles: Vec<Value> = server.bodies("PATCH", one).into_iter().map(|b| b["title"].clone()).collect();
        assert_eq!(titles, ["WIP: Fix more", "Fix", "Fix more"]);

        server.on("GET", one, 200, pull(5, "ralph/1-x", 1, "Entwurf: Fix", true));
        let stuck = forge.set_pull_ready(&repo(), Number(5)).await.unwrap_err();
        assert!(stuck.kind == ForgeErrorKind::Conflict && stuck.detail.contains("Entwurf"), "{stuck}");
        server.on("GET", one, 200, ready());
        assert!(!forge.pull(&repo(), Number(5)).await.unwrap().draft);
        server.finish();
    }
}

#[tokio::test]
async fn unavailable_reviewers_are_omitted() {
    let target = "/repos/acme/app/pulls/5/requested_reviewers";
    for (server, forge) in servers() {
        let refusal = || json!({ "message": "poster of pr can't be reviewer" });
        server.on("POST", target, 422, refusal()).on("POST", target, 422, refusal()).on("POST", target, 201, json!([]));
        forge.request_reviewers(&repo(), Number(5), &["me".into(), "ann".into()]).await.unwrap();
        let requested: Vec<Value> = server.bodies("POST", target).into_iter().map(|b| b["reviewers"].clone()).collect();
        assert_eq!(requested, [json!(["me", "ann"]), json!(["me"]), json!(["ann"])]);
        server.on("POST", target, 422, refusal());
        forge.request_reviewers(&repo(), Number(5), &["me".into()]).await.unwrap();
        forge.request_reviewers(&repo(), Number(5), &[]).await.unwrap();
        server.on("POST", target, 500, json!({}));
        let failure = forge.request_reviewers(&repo(), Number(5), &["me".into(), "ann".into()]).await.unwrap_err();
        assert_eq!(failure.kind, ForgeErrorKind::Transient { after_ms: None, ambiguous: true });
        server.finish();
    }
}

#[tokio::test]
async fn submitted_reviews_and_comments_are_listed() {
    let list = "/repos/acme/app/pulls/5/reviews?limit=50&page=1";
    let review = |id: i64, state: &str, at: &str, remarks: i64| json!({ "id": id, "state": state, "body": "b", "user": user(7, "ann"), "submitted_at": at, "comments_count": remarks });
    for (server, forge) in servers() {
        let mut dismissed = review(4, "APPROVED", "2025-01-01T00:00:04Z", 0);
        dismissed["dismissed"] = true.into();
        let reviews = || {
            vec![
                review(3, "REQUEST_CHANGES", "2025-01-01T00:00:03Z", 2),
                review(1, "APPROVED", "2025-01-01T00:00:01Z", 0),
                review(2, "COMMENT", "2025-01-01T00:00:02Z", 0),
                dismissed.clone(),
                review(5, "PENDING", "2025-01-01T00:00:05Z", 0),
                review(6, "REQUEST_REVIEW", "2025-01-01T00:00:06Z", 0),
            ]
        };
        one_page(&server, list, reviews());
        let found = forge.submitted_reviews(&repo(), Number(5)).await.unwrap();
        use ReviewVerdict::{Approved, ChangesRequested, Commented, Dismissed};
        let verdicts: Vec<_> = found.iter().map(|r| (r.id, r.verdict)).collect();
        assert_eq!(verdicts, [(1, Approved), (2, Commented), (3, ChangesRequested), (4, Dismissed)]);
        assert_eq!(found[0].author, Some(ann()));

        one_page(&server, list, reviews());
        let remark = |id: i64, position: u64| json!({ "id": id, "body": "here", "user": user(7, "ann"), "created_at": MOMENT, "path": "src/a.rs", "position": position });
        server.on("GET", "/repos/acme/app/pulls/5/reviews/3/comments", 200, json!([remark(31, 12), remark(30, 0)]));
        let found = forge.review_comments(&repo(), Number(5)).await.unwrap();
        let places: Vec<_> = found.iter().map(|r| (r.comment.id.0, r.path.as_str(), r.line)).collect();
        assert_eq!(places, [(30, "src/a.rs", None), (31, "src/a.rs", Some(12))]);
        server.finish();
    }
}

#[tokio::test]
async fn statuses_are_counted_and_failures_described() {
    let target = |page: u32| format!("/repos/acme/app/commits/{SHA}/status?limit=50&page={page}");
    let status = |status: &str| json!({ "status": status, "context": format!("ci/{status}"), "description": "Failing after 3s", "target_url": "/acme/app/actions/runs/1/jobs/0" });
    // The header counts all pages, the number in the body does not.
    let total = [("x-total-count", "6")];
    for (server, forge) in servers() {
        let states = ["success", "warning", "skipped", "pending"].map(status);
        server.on_with("GET", &target(1), 200, &total, json!({ "total_count": 4, "statuses": states }));
        let states = ["error", "failure"].map(status);
        server.on_with("GET", &target(2), 200, &total, json!({ "total_count": 4, "statuses": states }));
        let found = forge.ci_results(&repo(), &Sha::new(SHA)).await.unwrap();
        assert_eq!((found.passed.len(), found.skipped.len(), found.pending.len(), found.failed.len()), (2, 1, 1, 2));
        assert_eq!(found.failed[0].name, "ci/error");
        assert_eq!(found.failed[0].url, "https://git.test/acme/app/actions/runs/1/jobs/0");
        assert_eq!(found.failed[0].log, "Failing after 3s", "no log is read while something is pending");
        server.on_raw("GET", &target(1), 200, &[], r#"{"state":"","statuses":null,"total_count":0}"#);
        assert_eq!(forge.ci_results(&repo(), &Sha::new(SHA)).await.unwrap(), CiState::default());
        server.finish();
    }
}

#[tokio::test]
async fn log_of_a_failed_job_is_read_where_the_server_has_it() {
    let statuses = format!("/repos/acme/app/commits/{SHA}/status?limit=50&page=1");
    let runs = format!("/repos/acme/app/actions/runs?head_sha={SHA}&limit=50&page=1");
    let jobs = "/repos/acme/app/actions/runs/41/jobs?limit=50&page=1";
    let failed = json!({ "statuses": [{ "status": "failure", "context": "ci / test (push)", "description": "Failing after 3s", "target_url": "/acme/app/actions/runs/1/jobs/1" }] });
    let total = [("x-total-count", "1")];
    let of_other_commit = json!({ "id": 40, "head_sha": "0".repeat(40) });
    for (server, forge) in servers() {
        for path in ["runs", "runs/{run}/jobs", "jobs/{id}/logs"] {
            server.outside("GET", &format!("/repos/{{owner}}/{{repo}}/actions/{path}"));
        }
        let log = async |forge: &Gitea| forge.ci_results(&repo(), &Sha::new(SHA)).await.unwrap().failed.remove(0).log;
        server.on_with("GET", &statuses, 200, &total, failed.clone());
        let both = json!({ "workflow_runs": [of_other_commit, { "id": 41, "head_sha": SHA }] });
        server.on_with("GET", &runs, 200, &[("x-total-count", "2")], both);
        let job = |id: i64, name: &str, conclusion: &str| json!({ "id": id, "name": name, "conclusion": conclusion, "html_url": format!("https://git.test/acme/app/actions/runs/1/jobs/{}", id - 90) });
        let both = json!({ "jobs": [job(90, "lint", "success"), job(91, "test", "failure")] });
        server.on_with("GET", jobs, 200, &[("x-total-count", "2")], both);
        let text = "2026-11-24T05:16:13.0Z ⭐ Run Main pytest\n2026-11-24T05:16:14.0Z E assert 41 == 42\n2026-11-24T05:16:14.0Z   ❌  Failure - Main pytest\n";
        server.on_raw("GET", "/repos/acme/app/actions/jobs/91/logs", 200, &[("content-type", "text/plain")], text);
        assert_eq!(log(&forge).await, "⭐ Run Main pytest\nE assert 41 == 42\n  ❌  Failure - Main pytest");
        // Before 1.24, and on Forgejo.
        server.on_with("GET", &statuses, 200, &total, failed.clone()).on("GET", &runs, 404, json!({}));
        assert_eq!(log(&forge).await, "Failing after 3s");
        server.finish();
    }
}

#[tokio::test]
async fn webhook_is_created_kept_and_replaced() {
    let (list, hooks) = ("/repos/acme/app/hooks?limit=50&page=1", "/repos/acme/app/hooks");
    let url = "https://ralph.test/webhooks/work";
    let hook = |id: i64, url: &str| json!({ "id": id, "type": "gitea", "active": true, "config": { "url": url, "content_type": "json" } });
    let (old, new) = (SecretString::from("old"), SecretString::from("new"));
    for (server, forge) in servers() {
        one_page(&server, list, vec![hook(1, "https://other.test")]);
        server.on("POST", hooks, 201, hook(2, url));
        assert_eq!(forge.ensure_webhook(&repo(), url, &old).await.unwrap(), Some(2));
        let sent = server.bodies("POST", hooks).remove(0);
        assert_eq!(sent["config"], json!({ "url": url, "content_type": "json", "secret": "old" }));
        assert_eq!((&sent["type"], &sent["active"]), (&json!("gitea"), &json!(true)));

        one_page(&server, list, vec![hook(1, "https://other.test"), hook(2, url)]);
        assert_eq!(forge.ensure_webhook(&repo(), url, &old).await.unwrap(), Some(2), "made by us, so left alone");

        for (secret, forge) in [(&new, &forge), (&old, &over(settings(), &server))] {
            one_page(&server, list, vec![hook(2, url)]);
            server.on("POST", hooks, 201, hook(3, url)).on("DELETE", "/repos/acme/app/hooks/2", 204, Value::Null);
            assert_eq!(forge.ensure_webhook(&repo(), url, secret).await.unwrap(), Some(3), "its secret is not known");
        }
        let order: Vec<String> = server.seen().iter().rev().take(2).map(|s| s.method.clone()).collect();
        assert_eq!(order, ["DELETE", "POST"], "the new one comes before the old one goes");

        server.on("POST", "/repos/acme/app/hooks/3/tests", 204, Value::Null);
        forge.test_webhook(&repo(), 3).await.unwrap();
        server.finish();
    }
}

const TIMELINE: &str = "/repos/acme/app/issues/1/timeline?limit=50&page=";

/// Scripts a page of a timeline, whose header counts the page itself; `None` for one that is empty.
fn timeline_page(server: &ContractTransport, page: usize, entries: Option<Vec<Value>>) {
    let total = entries.as_ref().map_or(0, Vec::len).to_string();
    let headers = [("content-type", "application/json"), ("x-total-count", total.as_str())];
    let body = entries.map_or(Value::Null, Value::Array).to_string();
    server.on_raw("GET", &format!("{TIMELINE}{page}"), 200, &headers, &body);
}

#[tokio::test]
async fn all_pages_of_the_timeline_are_read() {
    let entry = |id: i64, kind: &str| {
        json!({ "id": id, "type": kind, "body": "1", "user": user(7, "ann"), "created_at": MOMENT,
                "label": label(4, "ralph:run") })
    };
    for (server, forge) in servers() {
        timeline_page(&server, 1, Some((1..=49).map(|id| entry(id, "comment")).collect()));
        timeline_page(&server, 2, None);
        timeline_page(&server, 3, Some(vec![entry(60, "comment"), entry(61, "label")]));
        timeline_page(&server, 4, None);
        timeline_page(&server, 5, None);
        let found = forge.label_assignment(&repo(), Number(1), "ralph:run").await.unwrap();
        assert_eq!(found.expect("the label").id, 61);
        server.finish();
    }
}

/// The server answers 500, not 404.
#[tokio::test]
async fn timeline_of_a_missing_issue_is_empty() {
    for (server, forge) in servers() {
        for (issue_status, expected) in [(404, Ok(None)), (200, Err(()))] {
            server.on_raw("GET", &format!("{TIMELINE}1"), 500, &[], "{}");
            server.on("GET", "/repos/acme/app/issues/1", issue_status, issue(1, &[]));
            let found = forge.label_assignment(&repo(), Number(1), "ralph:run").await;
            assert_eq!(found.map_err(|_| ()), expected, "{issue_status}");
        }
        server.finish();
    }
}

/// Answers the question for the version of the server.
fn has_version(server: &ContractTransport, version: &str) {
    server.on("GET", "/version", 200, json!({ "version": version }));
    if !version.contains("+gitea-") {
        server.outside("GET", "/api/forgejo/v1/version");
        server.on_raw("GET", "/api/forgejo/v1/version", 404, &[], "");
    }
}

#[tokio::test]
async fn webhook_needs_the_status_event_if_the_version_supports_it() {
    let (list, url) = ("/repos/acme/app/hooks?limit=50&page=1", "https://ralph.test/webhooks/work");
    let events = [
        "issues",
        "issue_label",
        "issue_comment",
        "pull_request",
        "pull_request_comment",
        "pull_request_review_approved",
        "pull_request_sync",
        "push",
    ];
    let hook = |events: &[&str]| {
        json!({ "id": 2, "type": "gitea", "active": true, "events": events,
        "config": { "url": url, "content_type": "json" } })
    };
    for (version, delivers, subscribes) in [
        ("1.22.6", false, false),
        ("1.23.0", true, false),
        ("1.24.0", true, true),
        ("1.25.4", true, true),
        ("1.26.0+dev-12-gabc", true, true),
        ("7.0.4+gitea-1.22.0", false, false),
        ("13.0.2+gitea-1.22.0", false, false),
    ] {
        let server = ContractTransport::new(ContractSpec::Gitea);
        let forge = over(settings(), &server);
        has_version(&server, version);
        one_page(&server, list, vec![hook(&events)]);
        let problems = forge.webhook_problems(&repo(), url).await.unwrap().unwrap();
        let expected: &[&str] = if subscribes { &["the webhook lacks the events status"] } else { &[] };
        assert_eq!(problems, expected, "{version}");
        one_page(&server, list, vec![hook(&[&events[..], &["status"]].concat())]);
        assert_eq!(forge.webhook_problems(&repo(), url).await.unwrap().unwrap(), [""; 0], "{version}");
        assert_eq!(forge.delivers_statuses().await.unwrap(), delivers, "{version}");
        server.finish();
    }
}

#[tokio::test]
async fn merge_that_an_older_server_may_have_lost_is_repeated() {
    use crate::domain::loops::MergeAnswer;
    let merge = "/repos/acme/app/pulls/5/merge";
    let ask = async |forge: &Gitea| forge.merge_when_ready(&repo(), Number(5), &Sha::new(SHA)).await.unwrap();
    for (version, forgets) in [("1.24.2", true), ("11.0.1+gitea-1.22.0", true), ("1.24.3", false), ("1.25.4", false)] {
        let server = ContractTransport::new(ContractSpec::Gitea);
        let forge = over(settings(), &server);
        has_version(&server, version);
        let mut styles = repository(1, "app");
        styles["allow_merge_commits"] = json!(true);
        let answers = |merge_answers: &[(u16, &str)]| {
            server.on("GET", "/repos/acme/app", 200, styles.clone());
            for (status, words) in merge_answers {
                server.on_raw("POST", merge, *status, &[], &json!({ "message": words }).to_string());
            }
        };
        answers(&[(201, "")]);
        let first = if forgets { MergeAnswer::MayForget } else { MergeAnswer::Accepted };
        assert_eq!(ask(&forge).await, first, "{version}");
        let again = (409, "pull request is already scheduled to auto merge when checks succeed");
        if !forgets {
            answers(&[again]);
            assert_eq!(ask(&forge).await, MergeAnswer::Accepted, "{version}");
            server.finish();
            continue;
        }
        let withdrawn = || server.on_raw("DELETE", merge, 204, &[], "");
        for (rest, expected) in [
            (vec![(200, "")], MergeAnswer::Accepted),
            (vec![(405, "Does not have enough approvals"), (201, "")], MergeAnswer::MayForget),
            (vec![(409, "head out of date")], MergeAnswer::not_yet("HTTP 409: head out of date")),
        ] {
            withdrawn();
            answers(&[&[again][..], &rest].concat());
            let answer = ask(&forge).await;
            match (&answer, &expected) {
                (MergeAnswer::NotYet { .. }, MergeAnswer::NotYet { .. }) => {}
                _ => assert_eq!(answer, expected, "{version} {rest:?}"),
            }
        }
        let sent = server.bodies("POST", merge);
        let waits = |body: &Value| body.get("merge_when_checks_succeed") == Some(&json!(true));
        let expected = [true, true, false, true, false, true, true, false];
        assert_eq!(sent.iter().map(waits).collect::<Vec<_>>(), expected, "{version}");
        assert!(sent.iter().all(|body| body["head_commit_id"] == SHA), "{sent:?}");
        server.finish();
    }
}

#[tokio::test]
async fn git_address_contains_the_servers_path_and_no_token() {
    let url = Url::parse("https://user:pass@git.test/forge/?x=1#y").unwrap();
    let transport = ReqwestTransport::new(Timeouts::USUAL).unwrap();
    let with = |settings| {
        Gitea::with_transport(
            settings,
            Clock::manual(Timestamp(0)),
            Arc::new(ReqwestTransport::new(Timeouts::USUAL).unwrap()),
        )
    };
    let forge =
        Gitea::with_transport(GiteaSettings { url, ..settings() }, Clock::manual(Timestamp(0)), Arc::new(transport));
    let access = forge.unwrap().git_access(&repo(), true).await.unwrap();
    assert_eq!(access.url, "https://git.test/forge/acme/app.git");
    assert_eq!(access.credential.unwrap().1.expose_secret(), "s3cret");
    assert!(!format!("{:?}", settings()).contains("s3cret"));
    let unusable = with(GiteaSettings { token: SecretString::from("a\nb"), ..settings() }).err().unwrap();
    assert!(!unusable.to_string().contains('\n') && unusable.to_string().contains("token"), "{unusable}");
    for address in ["ftp://git.test", "mailto:a@git.test"] {
        assert!(with(GiteaSettings { url: Url::parse(address).unwrap(), ..settings() }).is_err(), "{address}");
    }
}

fn parsed(event: &str, body: &Value) -> ParsedDelivery {
    webhook::parse(&ForgeName::new("work"), event, body.to_string().as_bytes())
}

fn sample(name: &str) -> Value {
    serde_json::from_slice(&contract_file(&format!("gitea-webhooks/{name}.json"))).unwrap()
}

/// Returns the name of the parsed event, or `ignored`.
fn read_as(parsed: &ParsedDelivery) -> String {
    match parsed {
        ParsedDelivery::Event(event) => serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned(),
        ParsedDelivery::Ignored(_) => "ignored".to_owned(),
        ParsedDelivery::Malformed(wrong) => panic!("{wrong}"),
    }
}

/// See docs/research/faults.md#f19.
#[test]
fn recorded_deliveries_are_parsed_or_ignored() {
    let expected = [
        ("create-event.json", "create", "ignored"),
        ("delete-event.json", "delete", "pushed"),
        ("fork-event.json", "fork", "ignored"),
        ("issue-assign-event.json", "issues", "ignored"),
        ("issue-comment-event.json", "issue_comment", "comment_created"),
        ("issue-label-event.json", "issues", "label_set"),
        ("issue-milestone-event.json", "issues", "ignored"),
        ("issues-event.json", "issues", "issue_opened"),
        ("pull-request-assign-event.json", "pull_request", "ignored"),
        ("pull-request-comment-event.json", "issue_comment", "comment_created"),
        ("pull-request-event.json", "pull_request", "pull_changed"),
        ("pull-request-label-event.json", "pull_request", "label_set"),
        ("pull-request-milestone-event.json", "pull_request", "ignored"),
        ("pull-request-review-event.json", "pull_request_approved", "review_submitted"),
        ("push-event.json", "push", "pushed"),
        ("release-event.json", "release", "ignored"),
        ("repository-event.json", "repository", "repository_changed"),
    ];
    let names = contract_folder("gitea-webhooks");
    assert_eq!(names, expected.map(|(name, _, _)| name));
    for (name, header, event) in expected {
        let bytes = contract_file(&format!("gitea-webhooks/{name}"));
        let parse = |header: &str| webhook::parse(&ForgeName::new("work"), header, &bytes);
        assert_eq!(read_as(&parse(header)), event, "{name}");
        // The header is not signed, so a body with the header of another event is refused if it could have an effect.
        for other in ["ping", "", "issues", "issue_comment", "pull_request", "push"] {
            let refused = matches!(parse(other), ParsedDelivery::Malformed(_));
            let same = other == header || other.starts_with("pull_request") && header.starts_with("pull_request");
            let shaped = matches!(header, "issues" | "issue_comment" | "push") || header.starts_with("pull_request");
            assert_eq!(refused, shaped && !same, "{name} under the header {other:?}");
        }
    }
}

#[test]
fn recorded_timeline_names_who_changed_a_label() {
    let recorded: Value =
        serde_json::from_slice(&contract_file("gitea-recorded/rest/timeline-of-the-issue.json")).unwrap();
    let changes = |label: &str| {
        let entries: Vec<super::map::WireTimelineEntry> = serde_json::from_value(recorded["body"].clone()).unwrap();
        let changes = entries.into_iter().filter_map(|entry| entry.change_of(label));
        changes.map(|change| (change.id, change.added, change.by.login)).collect::<Vec<_>>()
    };
    assert_eq!(changes("ralph:run"), [(368, true, "dev".to_owned()), (373, false, "dev".to_owned())]);
    let of_bug: Vec<bool> = changes("bug").into_iter().map(|(_, added, _)| added).collect();
    assert_eq!(of_bug, [true, false, true, false]);
    assert!(changes("other").is_empty());
}

#[test]
fn actions_of_issues_and_pull_requests_map_to_events() {
    let (issue, pull) = (sample("issues-event"), sample("pull-request-event"));
    for (payload, action, event) in [
        (&issue, "edited", "issue_edited"),
        (&issue, "closed", "issue_closed"),
        (&issue, "reopened", "issue_reopened"),
        (&issue, "deleted", "issue_gone"),
        (&issue, "label_updated", "label_set"),
        (&issue, "label_cleared", "label_set"),
        (&issue, "labeled", "ignored"),
        (&issue, "", "ignored"),
        (&pull, "edited", "pull_changed"),
        (&pull, "closed", "pull_changed"),
        (&pull, "reopened", "pull_changed"),
        (&pull, "synchronized", "pull_changed"),
        (&pull, "label_cleared", "label_set"),
        (&pull, "review_requested", "ignored"),
    ] {
        let mut payload = payload.clone();
        payload["action"] = action.into();
        let header = if payload.get("pull_request").is_some() { "pull_request" } else { "issues" };
        assert_eq!(read_as(&parsed(header, &payload)), event, "{action}");
    }
    for (changes, event) in [
        (json!({ "title": { "from": "Old" } }), "issue_edited"),
        (json!({ "body": { "from": "Old" } }), "issue_edited"),
        (json!({ "ref": { "from": "main" } }), "pull_changed"),
    ] {
        let mut payload = pull.clone();
        (payload["action"], payload["changes"]) = ("edited".into(), changes);
        assert_eq!(read_as(&parsed("pull_request", &payload)), event, "{payload}");
    }
    let mut comment = sample("issue-comment-event");
    for action in ["edited", "deleted"] {
        comment["action"] = action.into();
        let ParsedDelivery::Ignored(why) = parsed("issue_comment", &comment) else {
            panic!("{action} was not ignored")
        };
        assert!(why.contains(action), "{why}");
    }
}

#[test]
fn events_contain_the_fields_of_the_delivery() {
    let (comment, mut pull, review) =
        (sample("pull-request-comment-event"), sample("pull-request-event"), sample("pull-request-review-event"));
    let ParsedDelivery::Event(event) = parsed("issue_comment", &comment) else { panic!("no event") };
    let ForgeEvent::CommentCreated { repo, issue, comment, sender } = *event else { panic!("{event:?}") };
    assert_eq!((repo.forge.as_str(), repo.id, repo.full_name().as_str()), ("work", RepoId(1), "example/example"));
    assert!(issue.is_pull);
    assert_eq!((comment.id, comment.body.as_str(), sender.id), (CommentId(6), "example", UserId(1)));

    pull["action"] = "closed".into();
    pull["pull_request"]["merged"] = true.into();
    pull["pull_request"]["state"] = "closed".into();
    let ParsedDelivery::Event(event) = parsed("pull_request", &pull) else { panic!("no event") };
    let ForgeEvent::PullChanged { pull, .. } = *event else { panic!("{event:?}") };
    assert!(pull.merged && !pull.open && pull.head_repo == Some(RepoId(2)));

    for (kind, verdict) in [
        ("pull_request_comment", Some(ReviewVerdict::Commented)),
        ("pull_request_review_comment", Some(ReviewVerdict::Commented)),
        ("pull_request_approved", Some(ReviewVerdict::Approved)),
        ("pull_request_review_approved", Some(ReviewVerdict::Approved)),
        ("pull_request_review_rejected", Some(ReviewVerdict::ChangesRequested)),
        ("pull_request_review_request", None),
    ] {
        let mut review = review.clone();
        review["review"]["type"] = kind.into();
        match (parsed("pull_request_comment", &review), verdict) {
            (ParsedDelivery::Event(event), Some(expected)) => {
                let ForgeEvent::ReviewSubmitted { id, verdict, body, .. } = *event else { panic!("{event:?}") };
                assert_eq!((id, verdict, body.as_str()), (None, expected, "123"), "{kind}");
            }
            (ParsedDelivery::Ignored(_), None) => {}
            (other, _) => panic!("{kind}: {other:?}"),
        }
    }
}

#[test]
fn pushes_deletions_statuses_and_workflows_are_parsed() {
    let push = sample("push-event");
    let zeros = "0".repeat(40);
    for (reference, after, expected) in [
        ("refs/heads/ralph/1-x", SHA, Some(("ralph/1-x", Some(Sha::new(SHA))))),
        ("refs/heads/main", zeros.as_str(), Some(("main", None))),
        ("refs/tags/v1", SHA, None),
        ("refs/heads/", SHA, None),
    ] {
        let mut push = push.clone();
        push["ref"] = reference.into();
        push["after"] = after.into();
        match (parsed("push", &push), expected) {
            (ParsedDelivery::Event(event), Some((name, to))) => {
                let ForgeEvent::Pushed { branch, after, .. } = *event else { panic!("{event:?}") };
                assert_eq!((branch.as_str(), after), (name, to));
            }
            (ParsedDelivery::Ignored(_), None) => {}
            (other, _) => panic!("{reference}: {other:?}"),
        }
    }
    let base = |extra: Value| {
        let mut payload = json!({ "repository": push["repository"], "sender": push["sender"] });
        payload.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        parsed("x", &payload)
    };
    let checks = |branch: Option<&str>| match branch {
        Some(branch) => (Sha::new(SHA), Some(branch.to_owned())),
        None => (Sha::new(SHA), None),
    };
    for (payload, expected) in [
        (json!({ "sha": SHA, "state": "failure", "context": "ci" }), Some(checks(None))),
        (
            json!({ "action": "completed", "workflow_run": { "head_sha": SHA, "head_branch": "b" } }),
            Some(checks(Some("b"))),
        ),
        (json!({ "action": "completed", "workflow_job": { "head_sha": SHA } }), Some(checks(None))),
        (json!({ "action": "in_progress", "workflow_run": { "head_sha": SHA } }), None),
    ] {
        match (base(payload), expected) {
            (ParsedDelivery::Event(event), Some(expected)) => {
                let ForgeEvent::ChecksChanged { sha, branch, .. } = *event else { panic!("{event:?}") };
                assert_eq!((sha, branch), expected);
            }
            (ParsedDelivery::Ignored(_), None) => {}
            (other, expected) => panic!("{other:?} is not {expected:?}"),
        }
    }
}

/// See docs/research/faults.md#f9, docs/research/faults.md#f19.
#[test]
fn unusual_deliveries_are_parsed_ignored_or_refused() {
    let issue = sample("issue-label-event");
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut payload = issue.clone();
        change(&mut payload);
        parsed("issues", &payload)
    };
    let ParsedDelivery::Event(event) = changed(&|p| {
        p["issue"]["user"] = Value::Null;
        p["sender"] = Value::Null;
        p["issue"]["labels"] = Value::Null;
        p["unheard_of"] = json!([1]);
    }) else {
        panic!("a deleted account is no reason to refuse")
    };
    let ForgeEvent::LabelSet { issue: seen, sender, .. } = *event else { panic!("{event:?}") };
    assert_eq!((seen.author, seen.labels.len(), sender.id), (None, 0, UserId(-1)));

    let refused: [&dyn Fn(&mut Value); 10] = [
        &|p| p["issue"]["number"] = Value::Null,
        &|p| p["issue"]["number"] = json!(-1),
        &|p| p["issue"]["state"] = json!("ajar"),
        &|p| p["issue"]["updated_at"] = json!("yesterday"),
        &|p| p["issue"] = json!([]),
        &|p| p["issue"]["labels"] = json!(["bug"]),
        &|p| p["repository"] = json!({ "id": 0, "name": "x", "full_name": "a/x" }),
        &|p| p["repository"] = json!({ "id": 1, "name": "x" }),
        &|p| p["action"] = json!(["opened"]),
        &|p| p["sender"] = json!("ann"),
    ];
    for (index, change) in refused.iter().enumerate() {
        assert!(matches!(changed(*change), ParsedDelivery::Malformed(_)), "change {index}: {:?}", changed(*change));
    }
    assert!(matches!(changed(&|p| p["repository"] = Value::Null), ParsedDelivery::Ignored(_)));

    let text = issue.to_string();
    let raw = |body: &[u8]| webhook::parse(&ForgeName::new("work"), "issues\n", body);
    for body in [
        &b""[..],
        b"[]",
        b"null",
        b"payload=%7B%7D",
        b"\xff",
        text.replacen("{", r#"{"action":"opened","#, 1).as_bytes(),
        &text.as_bytes()[..text.len() - 1],
    ] {
        assert!(matches!(raw(body), ParsedDelivery::Malformed(_)), "{:?}", String::from_utf8_lossy(body));
    }
    assert!(matches!(raw(b"{}"), ParsedDelivery::Ignored(why) if !why.contains('\n')));
}
