//! Login with a forge account by OAuth 2.0 (authorization code with PKCE). The token is used once, to determine its
//! account, and is then discarded.

use std::fmt;
use std::sync::Arc;

use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use ::http::{HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::Url;

use super::http::Transport;
use crate::domain::model::ids::User;

/// Maximum length of a forge's error message, in characters.
const MAX_WORDS: usize = 200;

/// OAuth client for the login: a GitHub App's own client, an OAuth app, or an application of Gitea or Forgejo.
#[derive(Debug, Clone)]
pub struct LoginClient {
    /// Client id.
    pub id: String,
    /// Client secret.
    pub secret: SecretString,
}

/// Addresses of a forge for logins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginAddresses {
    /// Page on which a person grants access.
    pub authorize: Url,
    /// Address that exchanges a code for a token.
    pub token: Url,
    /// Address that returns the account of a token.
    pub user: Url,
    /// Requested scope; `None` if a token without scopes can read its own account.
    pub scope: Option<&'static str>,
}

/// Account that logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginAccount {
    /// Account.
    pub user: User,
    /// Whether the forge has suspended the account.
    pub suspended: bool,
}

/// Failed login.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginFailure {
    /// The forge refused the code: it is wrong, was used before, is too old, or belongs to another browser.
    #[error("the forge refused the login: {0}")]
    Refused(String),
    /// The forge refused the client: id, secret or redirect address are wrong.
    #[error(
        "the forge refused the service's login client: {0}; compare `forges[].login` with the application's settings"
    )]
    Client(String),
    /// The forge did not answer, or not as expected.
    #[error("could not query the forge: {0}")]
    Unavailable(String),
}

/// Returns the code challenge of a verifier, by the method `S256`.
pub fn challenge(verifier: &str) -> String {
    BASE64URL_NOPAD.encode(&Sha256::digest(verifier))
}

/// Returns the address of the page on which a person grants access. `state` and `verifier` are bound to the browser
/// that starts the login.
pub fn authorize_address(
    at: &LoginAddresses,
    client: &LoginClient,
    redirect: &Url,
    state: &str,
    verifier: &str,
) -> Url {
    let mut address = at.authorize.clone();
    let mut query = address.query_pairs_mut();
    query
        .append_pair("response_type", "code")
        .append_pair("client_id", &client.id)
        .append_pair("redirect_uri", redirect.as_str())
        .append_pair("state", state)
        .append_pair("code_challenge", &challenge(verifier))
        .append_pair("code_challenge_method", "S256");
    if let Some(scope) = at.scope {
        query.append_pair("scope", scope);
    }
    drop(query);
    address
}

/// Response of the token endpoint. GitHub reports errors with status 200.
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: Option<String>,
    token_type: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

/// Code that the forge issued, with the data for exchanging it.
#[derive(Clone, Copy)]
pub struct CodeExchange<'a> {
    /// Client.
    pub client: &'a LoginClient,
    /// Redirect address of the login.
    pub redirect: &'a Url,
    /// Code.
    pub code: &'a str,
    /// Verifier of the login.
    pub verifier: &'a str,
}

/// Exchanges a code for a token, queries the token's account, and returns the forge's response about the account.
///
/// # Errors
/// The forge refuses the code or the client, or does not respond.
pub async fn account_of_code(
    transport: &Arc<dyn Transport>,
    at: &LoginAddresses,
    exchange: CodeExchange<'_>,
) -> Result<Bytes, LoginFailure> {
    let token = token(transport, at, exchange).await?;
    let mut authorization = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
        .map_err(|_| LoginFailure::Unavailable("the token contains characters that are invalid in a header".into()))?;
    authorization.set_sensitive(true);
    let request =
        Request::get(at.user.as_str()).header(ACCEPT, "application/json").header(AUTHORIZATION, authorization);
    let answer = send(transport, request.body(Bytes::new())).await?;
    match answer.status() {
        StatusCode::OK => Ok(answer.into_body()),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Err(LoginFailure::Refused(format!(
            "the response does not name the token's account (HTTP {})",
            status.as_u16()
        ))),
        status => Err(LoginFailure::Unavailable(format!("HTTP {} about the account", status.as_u16()))),
    }
}

async fn token(
    transport: &Arc<dyn Transport>,
    at: &LoginAddresses,
    exchange: CodeExchange<'_>,
) -> Result<SecretString, LoginFailure> {
    let body = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "authorization_code")
        .append_pair("client_id", &exchange.client.id)
        .append_pair("client_secret", exchange.client.secret.expose_secret())
        .append_pair("code", exchange.code)
        .append_pair("redirect_uri", exchange.redirect.as_str())
        .append_pair("code_verifier", exchange.verifier)
        .finish();
    let request = Request::post(at.token.as_str())
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    let answer = send(transport, request.body(Bytes::from(body))).await?;
    let status = answer.status();
    let Ok(read) = serde_json::from_slice::<TokenAnswer>(answer.body()) else {
        return Err(LoginFailure::Unavailable(format!("HTTP {} about the code, not in JSON", status.as_u16())));
    };
    if let Some(error) = read.error {
        let words = read.error_description.map_or_else(|| error.clone(), |words| format!("{error}, {words}"));
        let words = plain(&words);
        // Gitea has one error code for the client and for the person's code.
        let about_client =
            matches!(error.as_str(), "incorrect_client_credentials" | "invalid_client" | "redirect_uri_mismatch")
                || ["client secret", "redirect URI"].iter().any(|subject| words.contains(subject));
        return Err(if about_client { LoginFailure::Client(words) } else { LoginFailure::Refused(words) });
    }
    let bearer = read.token_type.as_deref().is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
    match read.access_token {
        Some(token) if status.is_success() && bearer => Ok(SecretString::from(token)),
        _ => Err(LoginFailure::Unavailable(format!("HTTP {} about the code, without a token", status.as_u16()))),
    }
}

async fn send(
    transport: &Arc<dyn Transport>,
    request: Result<Request<Bytes>, ::http::Error>,
) -> Result<Response<Bytes>, LoginFailure> {
    let unavailable = |detail: &dyn fmt::Display| LoginFailure::Unavailable(detail.to_string());
    let request = request.map_err(|error| unavailable(&error))?;
    transport.send(request).await.map_err(|error| unavailable(&error))
}

/// Returns a forge's message on one line, cut to the maximum length.
fn plain(words: &str) -> String {
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::forge::http::TransportError;

    /// Transport with prepared responses, which records the requests.
    #[derive(Default)]
    struct PreparedAnswers(Mutex<(Vec<(u16, &'static str)>, Vec<Request<Bytes>>)>);

    #[async_trait]
    impl Transport for PreparedAnswers {
        async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
            let mut state = self.0.lock().unwrap();
            state.1.push(request);
            if state.0.is_empty() {
                return Err(TransportError { ambiguous: false, detail: "connection refused".into() });
            }
            let (status, body) = state.0.remove(0);
            Ok(Response::builder().status(status).body(Bytes::from(body)).unwrap())
        }
    }

    fn addresses() -> LoginAddresses {
        let at = |path: &str| Url::parse(&format!("https://git.example.org/{path}")).unwrap();
        let (authorize, token) = (at("login/oauth/authorize"), at("login/oauth/access_token"));
        LoginAddresses { authorize, token, user: at("api/v1/user"), scope: Some("read:user") }
    }

    fn client() -> LoginClient {
        LoginClient { id: "the id".into(), secret: "the secret".into() }
    }

    async fn exchanged(answers: &[(u16, &'static str)]) -> (Result<Bytes, LoginFailure>, Vec<Request<Bytes>>) {
        let prepared = Arc::new(PreparedAnswers(Mutex::new((answers.to_vec(), Vec::new()))));
        let transport: Arc<dyn Transport> = prepared.clone();
        let redirect = Url::parse("https://ralph.example.org/login/callback/work").unwrap();
        let exchange = CodeExchange { client: &client(), redirect: &redirect, code: "a&b", verifier: "v" };
        let outcome = account_of_code(&transport, &addresses(), exchange).await;
        let sent = std::mem::take(&mut prepared.0.lock().unwrap().1);
        (outcome, sent)
    }

    /// The example of RFC 7636, appendix B.
    #[test]
    fn challenge_matches_the_standard() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn login_page_address_has_state_and_challenge_without_secrets() {
        let redirect = Url::parse("https://ralph.example.org/login/callback/work").unwrap();
        let address = authorize_address(&addresses(), &client(), &redirect, "the-state", "v");
        let query: Vec<(String, String)> = address.query_pairs().into_owned().collect();
        let query: Vec<(&str, &str)> = query.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let challenge = challenge("v");
        assert_eq!(
            query,
            [
                ("response_type", "code"),
                ("client_id", "the id"),
                ("redirect_uri", redirect.as_str()),
                ("state", "the-state"),
                ("code_challenge", &challenge),
                ("code_challenge_method", "S256"),
                ("scope", "read:user"),
            ]
        );
        assert!(!address.as_str().contains("secret"));
        let without = LoginAddresses { scope: None, ..addresses() };
        assert!(!authorize_address(&without, &client(), &redirect, "s", "v").as_str().contains("scope"));
    }

    #[tokio::test]
    async fn token_is_used_once_and_secrets_are_in_bodies() {
        let token = r#"{"access_token":"t-1","token_type":"bearer","scope":""}"#;
        let (outcome, sent) = exchanged(&[(200, token), (200, r#"{"id":5}"#)]).await;
        assert_eq!(outcome.unwrap(), &br#"{"id":5}"#[..]);
        let [first, second] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!((first.method().as_str(), first.uri().query()), ("POST", None));
        let body = std::str::from_utf8(first.body()).unwrap();
        assert!(body.contains("client_secret=the+secret&code=a%26b&") && body.ends_with("&code_verifier=v"), "{body}");
        assert_eq!(second.headers()[AUTHORIZATION], "Bearer t-1");
        assert!(second.headers()[AUTHORIZATION].is_sensitive() && second.uri().query().is_none());
    }

    #[tokio::test]
    async fn login_refusals_are_classified() {
        use LoginFailure::{Client, Refused, Unavailable};
        let kind = |failure: &LoginFailure| match failure {
            Refused(_) => "refused",
            Client(_) => "client",
            Unavailable(_) => "unavailable",
        };
        let token = r#"{"access_token":"t-1","token_type":"Bearer"}"#;
        let table: [(&[(u16, &str)], &str); 13] = [
            (&[(200, r#"{"error":"bad_verification_code","error_description":"expired"}"#)], "refused"),
            (
                &[(400, r#"{"error":"unauthorized_client","error_description":"failed PKCE code challenge"}"#)],
                "refused",
            ),
            (&[(200, r#"{"error":"incorrect_client_credentials"}"#)], "client"),
            (&[(400, r#"{"error":"unauthorized_client","error_description":"invalid client secret"}"#)], "client"),
            (&[(400, r#"{"error":"invalid_client"}"#)], "client"),
            (&[(200, r#"{"error":"redirect_uri_mismatch"}"#)], "client"),
            (&[(200, r#"{"access_token":"t","token_type":"mac"}"#)], "unavailable"),
            (&[(200, "{}")], "unavailable"),
            (&[(200, "access_token=t&token_type=bearer")], "unavailable"),
            (&[(502, "<html>")], "unavailable"),
            (&[], "unavailable"),
            (&[(200, token), (401, "{}")], "refused"),
            (&[(200, token), (500, "{}")], "unavailable"),
        ];
        for (answers, expected) in table {
            let failure = exchanged(answers).await.0.unwrap_err();
            assert_eq!(kind(&failure), expected, "{answers:?} {failure}");
            assert!(!failure.to_string().contains("t-1"), "{failure}");
        }
    }

    #[tokio::test]
    async fn forge_message_is_cut_to_one_line() {
        let (outcome, _) = exchanged(&[(400, "{\"error\":\"x\",\"error_description\":\"a\\nb\\u001b[31m\"}")]).await;
        assert_eq!(outcome.unwrap_err().to_string(), "the forge refused the login: x, a b [31m");
    }
}
