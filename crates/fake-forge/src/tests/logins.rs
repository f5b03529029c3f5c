//! Tests of logins: both forges' responses to wrong and expired codes.

use serde_json::Value;

use crate::{Dialect, FakeForge};
use ralph_types::clock::Clock;
use ralph_types::ids::{AccountKind, Timestamp};

const REDIRECT: &str = "https://ralph.example.org/login/callback/work";
/// Verifier and challenge of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

struct LoginTest {
    forge: FakeForge,
    clock: Clock,
    client: reqwest::Client,
    id: String,
    secret: String,
}

impl LoginTest {
    async fn new(dialect: Dialect) -> Self {
        let clock = Clock::manual(Timestamp(1_790_000_000_000));
        let forge = FakeForge::start(dialect, clock.clone()).await.unwrap();
        forge.add_user("ann", AccountKind::User);
        let app = forge.add_login_app("ralph-bot", REDIRECT);
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { forge, clock, client, id: app.client_id, secret: app.secret }
    }

    fn page(&self, more: &str) -> String {
        let authorize_url = format!("{}login/oauth/authorize", self.forge.url());
        format!(
            "{authorize_url}?response_type=code&client_id={}&redirect_uri={REDIRECT}&state=s&code_challenge={CHALLENGE}{more}",
            self.id
        )
    }

    /// Submits the page's form; returns the status and the query of the redirect address.
    async fn agree(&self, page: &str, body: &str) -> (u16, String) {
        let answer = self.client.post(page).body(body.to_owned()).send().await.unwrap();
        let redirect_target = answer.headers().get("location").map(|value| value.to_str().unwrap().to_owned());
        let query = redirect_target
            .as_deref()
            .and_then(|redirect_target| redirect_target.strip_prefix(REDIRECT))
            .unwrap_or_default()
            .to_owned();
        (answer.status().as_u16(), query)
    }

    async fn code(&self) -> String {
        let (status, query) = self.agree(&self.page("&code_challenge_method=S256"), "as=ann").await;
        assert!(status == 302 && query.ends_with("&state=s"), "{query}");
        query.trim_start_matches("?code=").trim_end_matches("&state=s").to_owned()
    }

    async fn exchange(&self, fields: &[(&str, &str)]) -> (u16, Value) {
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        let usual = [
            ("grant_type", "authorization_code"),
            ("client_id", &self.id),
            ("client_secret", &self.secret),
            ("redirect_uri", REDIRECT),
            ("code_verifier", VERIFIER),
        ];
        body.extend_pairs(usual.iter().filter(|(key, _)| !fields.iter().any(|(other, _)| other == key)));
        body.extend_pairs(fields);
        let request = self.client.post(format!("{}login/oauth/access_token", self.forge.url()));
        let request = request.header("accept", "application/json");
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(body.finish());
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), serde_json::from_str(&answer.text().await.unwrap()).unwrap())
    }
}

#[tokio::test]
async fn code_is_exchanged_once_in_time_and_with_its_verifier() {
    for (dialect, status, error) in
        [(Dialect::Gitea, 400, "unauthorized_client"), (Dialect::GitHub, 200, "bad_verification_code")]
    {
        let test = LoginTest::new(dialect).await;
        let refused = async |fields: &[(&str, &str)]| {
            let answer = test.exchange(fields).await;
            assert_eq!(
                (answer.0, answer.1["error"].as_str()),
                (status, Some(error)),
                "{dialect:?} {fields:?} {answer:?}"
            );
        };
        let code = test.code().await;
        let (good, answer) = test.exchange(&[("code", &code)]).await;
        assert!(good == 200 && answer["access_token"].is_string(), "{answer}");
        refused(&[("code", &code)]).await;
        refused(&[("code", "other")]).await;
        let code = test.code().await;
        refused(&[("code", &code), ("code_verifier", "wrong")]).await;
        refused(&[("code", &code)]).await;
        let code = test.code().await;
        refused(&[("code", &code), ("code_verifier", "")]).await;
        let code = test.code().await;
        test.clock.advance_ms(10 * 60_000);
        refused(&[("code", &code)]).await;
        let code = test.code().await;
        let (_, wrong) = test.exchange(&[("code", &code), ("client_secret", "wrong")]).await;
        let client = if dialect == Dialect::Gitea { "unauthorized_client" } else { "incorrect_client_credentials" };
        assert_eq!(wrong["error"], client);
    }
}

#[tokio::test]
async fn page_refuses_unknown_clients_and_addresses() {
    for dialect in [Dialect::Gitea, Dialect::GitHub] {
        let test = LoginTest::new(dialect).await;
        let page = test.page("&code_challenge_method=S256");
        assert_eq!(test.agree(&page, "").await, (302, "?error=access_denied&state=s".to_owned()));
        for wrong in [page.replace(&test.id, "client-0"), page.replace("/callback/", "/elsewhere/")] {
            assert!(matches!(test.agree(&wrong, "as=ann").await.0, 400 | 404), "{wrong}");
        }
        let (_, plain) = test.agree(&test.page("&code_challenge_method=plain"), "as=ann").await;
        assert!(plain.contains("error=invalid_request"), "{plain}");
    }
}
