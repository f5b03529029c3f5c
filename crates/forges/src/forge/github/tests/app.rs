//! Tests of authentication: signatures, tokens and their renewal, clock differences, refused credentials.

use bytes::Bytes;
use http::{Request, Response};
use jsonwebtoken::{DecodingKey, Validation};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::sample::answer;
use super::*;
use crate::forge::ForgeError;
use crate::forge::contract::RecordedRequest;
use crate::forge::http::TransportError;

const INSTALLATION: &str = "/repos/acme/app/installation";
const TOKENS: &str = "/app/installations/99/access_tokens";
const ISSUE: &str = "/repos/acme/app/issues/42";

fn with_app() -> (GitHub, Arc<ContractTransport>, Clock) {
    let transport = ContractTransport::new(ContractSpec::GitHub);
    let clock = Clock::manual(START);
    (over(app_auth(), clock.clone(), transport.clone()), transport, clock)
}

fn installed(transport: &ContractTransport) {
    let body = answer("GET", "/repos/{owner}/{repo}/installation", 200, json!({ "id": 99 }));
    transport.on("GET", INSTALLATION, 200, body);
}

fn minted(transport: &ContractTransport, token: &str, expires_at: &str) {
    let template = "/app/installations/{installation_id}/access_tokens";
    let body = answer("POST", template, 201, json!({ "token": token, "expires_at": expires_at }));
    transport.on("POST", TOKENS, 201, body);
}

fn issue(transport: &ContractTransport) {
    let body = answer("GET", "/repos/{owner}/{repo}/issues/{issue_number}", 200, json!({ "number": 42 }));
    transport.on("GET", ISSUE, 200, body);
}

fn bearer(seen: &RecordedRequest) -> String {
    let value = seen.headers.get("authorization").expect("a credential").to_str().unwrap();
    value.strip_prefix("Bearer ").unwrap().to_owned()
}

fn bearers(transport: &ContractTransport, target: &str) -> Vec<String> {
    transport.seen().iter().filter(|seen| seen.target == target).map(bearer).collect()
}

#[derive(Debug, Deserialize)]
struct VerifiedClaims {
    iat: i64,
    exp: i64,
    iss: String,
}

fn claims(signature: &str) -> VerifiedClaims {
    let key =
        DecodingKey::from_rsa_pem(include_bytes!("../../../../../../crates/fake-forge/src/github/app-key.pub.pem"))
            .unwrap();
    let mut validation = Validation::new(jsonwebtoken::Algorithm::RS256);
    validation.validate_exp = false;
    validation.required_spec_claims.clear();
    jwt_ring::decode(signature, &key, &validation).unwrap()
}

#[tokio::test]
async fn tokens_are_scoped_and_renewed_before_expiry() {
    let (github, transport, clock) = with_app();
    installed(&transport);
    minted(&transport, "ghs_first", "2026-01-01T01:00:00Z");
    minted(&transport, "ghs_second", "2026-01-01T01:56:00Z");
    for _ in 0..4 {
        issue(&transport);
    }
    for advance_min in [0, 54, 2, 1] {
        clock.advance_ms(advance_min * 60_000);
        github.issue(&repo(), Number(42)).await.unwrap();
    }
    assert_eq!(bearers(&transport, ISSUE), ["ghs_first", "ghs_first", "ghs_second", "ghs_second"]);
    let mut permissions: Value = PERMISSIONS.iter().map(|(name, access)| (*name, *access)).collect();
    permissions["checks"] = "read".into();
    let requested = json!({ "repository_ids": [7], "permissions": permissions });
    assert_eq!(transport.bodies("POST", TOKENS), [requested.clone(), requested]);

    let signed = claims(&bearers(&transport, TOKENS)[0]);
    assert_eq!((signed.iss.as_str(), signed.iat), ("12345", START.0 / 1000 - 60));
    assert!(signed.exp - signed.iat <= 540, "{signed:?}");
    assert!(transport.seen().iter().all(|seen| seen.headers["x-github-api-version"] == "2022-11-28"));
    transport.finish();
}

#[tokio::test]
async fn git_tokens_have_minimal_permissions() {
    let (github, transport, _) = with_app();
    installed(&transport);
    minted(&transport, "ghs_push", "2026-01-01T01:00:00Z");
    minted(&transport, "ghs_fetch", "2026-01-01T01:00:00Z");
    for (push, token) in [(true, "ghs_push"), (false, "ghs_fetch"), (true, "ghs_push")] {
        let access = github.git_access(&repo(), push).await.unwrap();
        assert_eq!(access.url, "https://github.test/acme/app.git");
        let (name, secret) = access.credential.clone().unwrap();
        assert_eq!((name.as_str(), secret.expose_secret()), ("x-access-token", token));
        assert!(!format!("{access:?}").contains(token));
    }
    let requested: Vec<Value> =
        transport.bodies("POST", TOKENS).iter().map(|body| body["permissions"].clone()).collect();
    let expected = |contents: &str| json!({ "contents": contents, "metadata": "read" });
    assert_eq!(requested, [expected("write"), expected("read")]);
    transport.finish();
}

#[tokio::test]
async fn team_membership_uses_a_token_for_members() {
    let (github, transport, _) = with_app();
    installed(&transport);
    minted(&transport, "ghs_members", "2026-01-01T01:00:00Z");
    transport.on("GET", "/orgs/acme/teams/leads/memberships/ann", 404, json!({ "message": "Not Found" }));
    let leads = TeamRef::parse("acme/leads").unwrap();
    assert!(!github.is_team_member(&repo(), &leads, &user(5, "ann")).await.unwrap());
    let requested = json!({ "repository_ids": [7], "permissions": { "members": "read", "metadata": "read" } });
    assert_eq!(transport.bodies("POST", TOKENS), [requested]);
    transport.finish();
}

#[tokio::test]
async fn team_visibility_follows_the_installation() {
    let (github, transport, _) = with_app();
    let answered = |org: &str, permissions: Value| {
        let facts = json!({ "id": 99, "account": { "login": org, "id": 3, "type": "Organization" }, "permissions": permissions });
        let body = answer("GET", "/repos/{owner}/{repo}/installation", 200, facts);
        transport.on("GET", INSTALLATION, 200, body);
    };
    let leads = TeamRef::parse("acme/leads").unwrap();
    answered("Acme", json!({ "members": "read", "issues": "write" }));
    assert_eq!(github.team_visibility(&repo(), &leads).await.unwrap(), TeamVisibility::Visible);
    for (org, permissions, words, advice) in [
        ("acme", json!({ "issues": "write" }), "may not read", "Members: read"),
        ("other", json!({ "members": "read" }), "`other`", "repository's organization"),
    ] {
        answered(org, permissions);
        let TeamVisibility::Hidden { why, fix } = github.team_visibility(&repo(), &leads).await.unwrap() else {
            panic!("{org}")
        };
        assert!(why.contains(words) && fix.contains(advice), "{why}; {fix}");
    }
    assert!(transport.bodies("POST", TOKENS).is_empty(), "nothing but the App's own signature is needed");
    transport.finish();
}

/// Transport that yields to other tasks before each response.
struct Yielding(Arc<ContractTransport>);

#[async_trait]
impl Transport for Yielding {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        self.0.send(request).await
    }
}

/// See docs/research/faults.md#f5.
#[tokio::test]
async fn concurrent_calls_request_a_token_once() {
    let transport = ContractTransport::new(ContractSpec::GitHub);
    let github = over(app_auth(), Clock::manual(START), Arc::new(Yielding(transport.clone())));
    let body = answer("GET", "/repos/{owner}/{repo}/issues/{issue_number}", 200, json!({})).to_string();
    for _ in 0..8 {
        transport.on_raw("GET", INSTALLATION, 200, &[], "{\"id\":99}");
        transport.on_raw("GET", ISSUE, 200, &[], &body);
    }
    minted(&transport, "ghs_one", "2026-01-01T01:00:00Z");
    let repo = repo();
    let all = futures::future::join_all((0..8).map(|_| github.issue(&repo, Number(42)))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(transport.bodies("POST", TOKENS).len(), 1);
}

/// See docs/research/faults.md#f5.
#[tokio::test]
async fn refused_token_is_renewed_once() {
    for ends_well in [true, false] {
        let (github, transport, _) = with_app();
        for token in ["ghs_old", "ghs_new"] {
            installed(&transport);
            minted(&transport, token, "2026-01-01T01:00:00Z");
        }
        let refusal = json!({ "message": "Bad credentials" });
        transport.on("GET", ISSUE, 401, refusal.clone());
        if ends_well {
            issue(&transport);
        } else {
            transport.on("GET", ISSUE, 401, refusal);
        }
        let outcome = github.issue(&repo(), Number(42)).await;
        match outcome {
            Ok(_) => assert!(ends_well),
            Err(failure) => {
                assert!(!ends_well && failure.kind == ForgeErrorKind::Unauthorized, "{failure}");
                assert!(!failure.to_string().contains("ghs_"), "{failure}");
            }
        }
        assert_eq!(bearers(&transport, ISSUE), ["ghs_old", "ghs_new"]);
        transport.finish();
    }
}

/// See docs/research/faults.md#d6.
#[tokio::test]
async fn server_clock_is_used_after_a_refused_signature() {
    let (github, transport, clock) = with_app();
    let refusal = json!({ "message": "'Issued at' claim ('iat') must be an Integer representing the time" });
    let date = [("date", "Thu, 01 Jan 2026 02:00:00 GMT")];
    transport.on_with("GET", INSTALLATION, 401, &date, refusal.clone());
    installed(&transport);
    minted(&transport, "ghs_one", "2026-01-01T03:00:00Z");
    issue(&transport);
    issue(&transport);
    github.issue(&repo(), Number(42)).await.unwrap();
    let signed: Vec<i64> = bearers(&transport, INSTALLATION).iter().map(|signature| claims(signature).iat).collect();
    assert_eq!(signed, [START.0 / 1000 - 60, START.0 / 1000 + 7200 - 60]);

    // Token expiry is in the server's time: at 02:56 there, this token is not used any more.
    clock.advance_ms(56 * 60_000);
    minted(&transport, "ghs_two", "2026-01-01T04:00:00Z");
    github.issue(&repo(), Number(42)).await.unwrap();
    assert_eq!(bearers(&transport, ISSUE), ["ghs_one", "ghs_two"]);
    transport.finish();
}

#[tokio::test]
async fn refusal_unrelated_to_the_clock_is_not_retried() {
    let cases =
        [("A JSON web token could not be decoded", "Thu, 01 Jan 2026 02:00:00 GMT"), ("'Issued at'", "garbage")];
    for (message, date) in cases {
        let (github, transport, _) = with_app();
        transport.on_with("GET", INSTALLATION, 401, &[("date", date)], json!({ "message": message }));
        let failure = github.issue(&repo(), Number(42)).await.unwrap_err();
        assert_eq!(failure.kind, ForgeErrorKind::Unauthorized, "{failure}");
        assert_eq!(transport.seen().len(), 1);
    }
}

async fn refused_mint(status: u16, message: &str) -> (ForgeError, Arc<ContractTransport>) {
    let (github, transport, _) = with_app();
    installed(&transport);
    transport.on("POST", TOKENS, status, json!({ "message": message }));
    (github.issue(&repo(), Number(42)).await.unwrap_err(), transport)
}

#[tokio::test]
async fn missing_installation_permissions_are_reported() {
    let cases = [
        (
            422,
            "The permissions requested are not granted to this installation.",
            ForgeErrorKind::Denied,
            "app-manifest",
        ),
        (422, "There is at least one repository that does not exist", ForgeErrorKind::NotFound, "does not include"),
        (403, "This installation has been suspended", ForgeErrorKind::Denied, "suspended"),
        (404, "Not Found", ForgeErrorKind::NotFound, "issue #42"),
    ];
    for (status, message, kind, words) in cases {
        let (failure, _) = refused_mint(status, message).await;
        assert_eq!(failure.kind, kind, "{failure}");
        assert!(failure.to_string().contains(words), "{failure}");
    }
    let (github, transport, _) = with_app();
    transport.on("GET", INSTALLATION, 404, json!({ "message": "Not Found" }));
    let failure = github.issue(&repo(), Number(42)).await.unwrap_err();
    assert_eq!(failure.kind, ForgeErrorKind::NotFound);
    assert!(failure.detail.contains("not installed for this repository"), "{failure}");
}

/// See docs/research/faults.md#f5.
#[tokio::test]
async fn reinstalled_app_is_found() {
    let (failure, transport) = refused_mint(404, "Not Found").await;
    assert_eq!(failure.kind, ForgeErrorKind::NotFound);
    let github = over(app_auth(), Clock::manual(START), transport.clone());
    installed(&transport);
    transport.on("POST", TOKENS, 404, json!({ "message": "Not Found" }));
    github.issue(&repo(), Number(42)).await.unwrap_err();
    installed(&transport);
    minted(&transport, "ghs_one", "2026-01-01T01:00:00Z");
    issue(&transport);
    github.issue(&repo(), Number(42)).await.unwrap();
    transport.finish();
}

#[tokio::test]
async fn account_of_an_app_is_its_bot() {
    let (github, transport, _) = with_app();
    transport.on("GET", "/app", 200, answer("GET", "/app", 200, json!({ "slug": "ralph-bot" })));
    let list = json!([{ "id": 98, "suspended_at": "2026-01-01T00:00:00Z" }, { "id": 99 }]);
    transport.on("GET", "/app/installations?per_page=100", 200, answer("GET", "/app/installations", 200, list));
    minted(&transport, "ghs_metadata", "2026-01-01T01:00:00Z");
    let bot = json!({ "id": 4711, "login": "ralph-bot[bot]", "type": "Bot" });
    transport.on("GET", "/users/ralph-bot%5Bbot%5D", 200, answer("GET", "/users/{username}", 200, bot));
    for _ in 0..2 {
        let account = github.own_account().await.unwrap();
        assert_eq!(
            (account.id, account.login.as_str(), account.kind),
            (UserId(4711), "ralph-bot[bot]", AccountKind::Bot)
        );
    }
    assert_eq!(transport.bodies("POST", TOKENS), [json!({ "permissions": { "metadata": "read" } })]);
    transport.finish();
}

#[tokio::test]
async fn repositories_of_all_installations_are_listed() {
    let (github, transport, _) = with_app();
    let list = answer("GET", "/app/installations", 200, json!([{ "id": 99 }]));
    transport.on("GET", "/app/installations?per_page=100", 200, list);
    minted(&transport, "ghs_metadata", "2026-01-01T01:00:00Z");
    let found = json!({ "total_count": 1, "repositories": [{
        "id": 7, "name": "app", "owner": { "login": "acme" }, "default_branch": "trunk", "private": true, "size": 9,
    }] });
    let found = answer("GET", "/installation/repositories", 200, found);
    transport.on("GET", "/installation/repositories?per_page=100", 200, found);
    let all = github.repositories().await.unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!((&all[0].repo, all[0].default_branch.as_str()), (&repo(), "trunk"));
    assert!(all[0].private && !all[0].archived && !all[0].empty);

    assert_eq!(github.ensure_webhook(&repo(), "https://x", &SecretString::from("s".to_owned())).await.unwrap(), None);
    transport.on("GET", "/app", 200, answer("GET", "/app", 200, json!({})));
    assert_eq!(github.server_info().await.unwrap().product, "GitHub");
    transport.finish();
}

/// GitHub knows a new token everywhere only after some seconds.
#[tokio::test]
async fn refusal_of_new_token_is_retried() {
    let known = json!({ "data": { "node": { "id": "x" } } });
    let refusals =
        [(401, json!({ "message": "Bad credentials" })), (403, json!({})), (404, json!({ "message": "Not Found" }))];
    for (status, body) in refusals {
        for aged in [false, true] {
            let transport = ContractTransport::new(ContractSpec::GitHub);
            let clock = Clock::manual(START);
            let mut settings = settings(app_auth());
            settings.rates.settling_ms = 10_000;
            let github = GitHub::with_transport(settings, clock.clone(), transport.clone()).unwrap();
            installed(&transport);
            minted(&transport, "ghs_new", "2026-01-01T01:00:00Z");
            issue(&transport);
            github.issue(&repo(), Number(42)).await.unwrap();
            if aged {
                clock.advance_ms(10_000);
            }
            transport.on("GET", ISSUE, status, body.clone());
            issue(&transport);
            if aged && status == 401 {
                // A token that is known everywhere is replaced.
                installed(&transport);
                minted(&transport, "ghs_newer", "2026-01-01T01:00:00Z");
            }
            let outcome = github.issue(&repo(), Number(42)).await;
            assert_eq!(outcome.is_ok(), !aged || status == 401, "{status} {aged}: {outcome:?}");
        }
    }
    // GraphQL refuses in a body with status 200.
    let transport = ContractTransport::new(ContractSpec::GitHub);
    let mut settings = settings(app_auth());
    settings.rates.settling_ms = 10_000;
    let github = GitHub::with_transport(settings, Clock::manual(START), transport.clone()).unwrap();
    installed(&transport);
    minted(&transport, "ghs_new", "2026-01-01T01:00:00Z");
    let refused = json!({ "data": null, "errors": [{ "type": "FORBIDDEN", "message": "Resource not accessible by integration" }] });
    transport.outside("POST", "/graphql");
    transport.on("POST", "/graphql", 200, refused);
    transport.on("POST", "/graphql", 200, known);
    let repo = repo();
    let call = ApiCall::on(&repo, Method::POST, &[], "ask");
    github.client.graphql(call, "query", json!({})).await.unwrap();
    transport.finish();
}
