//! Creation of a GitHub App from its manifest: the form that a person's browser sends to GitHub, and the exchange of
//! the code with which GitHub redirects the browser back.

use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_LENGTH, LOCATION};
use ::http::{Request, StatusCode};
use bytes::Bytes;
use ralph_types::failure::Failure;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::forge::http::{ReqwestTransport, Timeouts, Transport, TransportError};

/// Manifest with the App's permissions and events, and placeholders for its addresses.
const MANIFEST: &str = include_str!("../../../../../app-manifest.yml");
/// Maximum length of an App's name on GitHub, in characters.
const MAX_NAME: usize = 34;
/// Maximum length of an account's name on GitHub, in characters.
const MAX_LOGIN: usize = 39;
/// Maximum length of a code, in bytes; GitHub's codes have 40.
const MAX_CODE: usize = 200;
/// Maximum size of the response to a code, in bytes; usual are 8 KiB.
const MAX_ANSWER: usize = 256 * 1024;
/// Timeouts of the exchange, which a person waits for.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(5), idle: Duration::from_secs(10), total: Duration::from_secs(20) };

/// Description of the App to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppPlan {
    /// Suggested name; a person can change it on GitHub's page.
    pub name: String,
    /// Web address of GitHub: `https://github.com`, `https://NAME.ghe.com` or the address of a server.
    pub web: Url,
    /// Organization that owns the App; `None` for the account of the person who creates it.
    pub organization: Option<String>,
    /// Name of the forge in the configuration, which is part of addresses.
    pub forge: String,
    /// Address at which GitHub reaches the service; `None` for an App without a webhook, if the service polls.
    pub public: Option<Url>,
    /// Address to which GitHub redirects the browser with a code.
    pub redirect: Url,
    /// Address to which GitHub redirects the browser after an installation; `None` for GitHub's own page.
    pub installed: Option<Url>,
}

impl AppPlan {
    /// Returns the suggested name of an App, which contains the organization or the service's host.
    pub fn usual_name(organization: Option<&str>, public: Option<&Url>) -> String {
        let place = organization.or_else(|| public.and_then(Url::host_str)).unwrap_or("local");
        let name: String = format!("ralph-bot {place}").chars().take(MAX_NAME).collect();
        name.trim_end().to_owned()
    }

    /// Returns the manifest as JSON.
    ///
    /// # Errors
    /// The built-in manifest is invalid, which a test rules out.
    pub fn manifest(&self) -> Result<String, Failure> {
        let mut manifest: Value = serde_saphyr::from_str(MANIFEST)
            .map_err(|error| Failure::new("the manifest is not valid YAML").caused_by(error))?;
        let below = |base: &Url, path: &str| format!("{}{path}", base.as_str().trim_end_matches('/'));
        manifest["name"] = json!(self.name);
        manifest["url"] = json!(self.public.as_ref().unwrap_or(&self.web).as_str());
        manifest["redirect_url"] = json!(self.redirect.as_str());
        match &self.public {
            Some(public) => {
                manifest["hook_attributes"]["url"] = json!(below(public, &format!("/webhooks/{}", self.forge)));
                manifest["callback_urls"] = json!([below(public, &format!("/login/callback/{}", self.forge))]);
            }
            None => {
                // GitHub refuses events without a webhook.
                let all = manifest.as_object_mut();
                all.into_iter()
                    .for_each(|all| all.retain(|key, _| key != "hook_attributes" && key != "default_events"));
            }
        }
        if let Some(installed) = &self.installed {
            manifest["setup_url"] = json!(installed.as_str());
        }
        Ok(manifest.to_string())
    }

    /// Returns the address to which the browser posts the manifest.
    pub fn form_address(&self, state: &str) -> Url {
        let mut address = self.web.clone();
        if let Ok(mut path) = address.path_segments_mut() {
            path.pop_if_empty();
            if let Some(organization) = &self.organization {
                path.extend(["organizations", organization]);
            }
            path.extend(["settings", "apps", "new"]);
        }
        address.query_pairs_mut().append_pair("state", state);
        address
    }
}

/// Whether a text is a valid name of an account or organization.
pub fn is_login(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    plain && !text.is_empty() && text.len() <= MAX_LOGIN && !text.starts_with('-')
}

/// Created App with its secrets, which GitHub reveals only once.
#[derive(Debug, Clone)]
pub struct CreatedApp {
    /// Id of the App.
    pub id: u64,
    /// Name of the App in addresses.
    pub slug: String,
    /// Address of the App's page, as GitHub reports it.
    pub page: String,
    /// Private key, RSA in PEM format.
    pub private_key: SecretString,
    /// Secret of the App's webhook; `None` without a webhook.
    pub webhook_secret: Option<SecretString>,
    /// Id of the App's OAuth client for logins.
    pub client_id: String,
    /// Secret of the App's OAuth client.
    pub client_secret: SecretString,
}

#[derive(Deserialize)]
struct Conversion {
    id: u64,
    slug: String,
    #[serde(default)]
    html_url: String,
    pem: String,
    webhook_secret: Option<String>,
    client_id: String,
    client_secret: String,
}

impl CreatedApp {
    /// Parses GitHub's response to a code.
    ///
    /// # Errors
    /// A phrase without secrets, if parts of the response are missing.
    pub fn read(answer: &[u8]) -> Result<Self, Failure> {
        let read: Conversion = serde_json::from_slice(answer).map_err(|error| {
            // The message of an error about a type can quote the value.
            Failure::new("the answer does not describe an App").with_detail(format!(
                "line {}, column {}",
                error.line(),
                error.column()
            ))
        })?;
        Ok(Self {
            id: read.id,
            slug: read.slug,
            page: read.html_url,
            private_key: read.pem.into(),
            webhook_secret: read.webhook_secret.map(SecretString::from),
            client_id: read.client_id,
            client_secret: read.client_secret.into(),
        })
    }

    /// Returns the address of the page for installing the App.
    pub fn installation_page(&self, web: &Url) -> Url {
        let known = Url::parse(&self.page).ok().filter(|page| page.origin() == web.origin());
        let mut page = known.unwrap_or_else(|| {
            let mut usual = web.clone();
            if let Ok(mut path) = usual.path_segments_mut() {
                path.pop_if_empty().extend(["apps", &self.slug]);
            }
            usual
        });
        if let Ok(mut path) = page.path_segments_mut() {
            path.pop_if_empty().extend(["installations", "new"]);
        }
        page
    }
}

/// Failed exchange of a code.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConversionFailure {
    /// GitHub does not know the code.
    #[error("GitHub does not know this code: it was used before, or is older than an hour; create the App again")]
    Unknown,
    /// GitHub refused the request.
    #[error("GitHub refused the code (HTTP {0}); create the App again")]
    Refused(u16),
    /// GitHub did not respond, or the response was not understood; the code may still be valid.
    #[error("could not request the App from GitHub ({0:#}); load this page again within the hour")]
    Unavailable(#[source] Failure),
}

/// Returns a transport for the exchange: no redirects, a small answer, timeouts.
///
/// # Errors
/// The TLS roots of the system cannot be used.
pub fn transport() -> Result<ReqwestTransport, TransportError> {
    ReqwestTransport::with_limit(TIMEOUTS, MAX_ANSWER)
}

/// Exchanges a code for GitHub's response about the created App, which contains its secrets. `api` is the address of
/// the REST API.
///
/// # Errors
/// GitHub refuses the code or does not respond.
pub async fn convert(transport: &dyn Transport, api: &Url, code: &str) -> Result<Bytes, ConversionFailure> {
    let sensible = !code.is_empty()
        && code.len() <= MAX_CODE
        && code.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if !sensible {
        return Err(ConversionFailure::Unknown);
    }
    let mut address = api.clone();
    if let Ok(mut path) = address.path_segments_mut() {
        path.pop_if_empty().extend(["app-manifests", code, "conversions"]);
    }
    let request = Request::post(address.as_str())
        .header(ACCEPT, "application/vnd.github+json")
        .header("x-github-api-version", "2022-11-28")
        .header(CONTENT_LENGTH, "0")
        .body(Bytes::new())
        .map_err(|error| ConversionFailure::Unavailable(Failure::of(error)))?;
    let answer = transport.send(request).await.map_err(|error| ConversionFailure::Unavailable(error.detail))?;
    match answer.status() {
        StatusCode::CREATED | StatusCode::OK => Ok(answer.into_body()),
        StatusCode::NOT_FOUND => Err(ConversionFailure::Unknown),
        status if status.is_redirection() => {
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("another address");
            let to: String = to.chars().filter(|c| !c.is_control()).take(200).collect();
            let problem = Failure::new(format!("it redirects to {to}, which is not followed"));
            Err(ConversionFailure::Unavailable(problem.with_hint("set the address of the API")))
        }
        status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
            Err(ConversionFailure::Refused(status.as_u16()))
        }
        status => Err(ConversionFailure::Unavailable(format!("HTTP {}", status.as_u16()).into())),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;
    use crate::forge::github::{EVENTS, PERMISSIONS};

    fn plan() -> AppPlan {
        let url = |text: &str| Url::parse(text).unwrap();
        AppPlan {
            name: "ralph-bot acme".into(),
            web: url("https://github.com/"),
            organization: Some("acme".into()),
            forge: "github".into(),
            public: Some(url("https://ralph.example.org/")),
            redirect: url("http://127.0.0.1:4000/setup/github/created"),
            installed: None,
        }
    }

    /// The manifest requests exactly the permissions and events that the adapter needs.
    #[test]
    fn manifest_has_the_permissions_and_events_of_the_adapter() {
        let manifest: Value = serde_json::from_str(&plan().manifest().unwrap()).unwrap();
        let permissions: serde_json::Map<_, _> =
            PERMISSIONS.iter().map(|(name, level)| ((*name).to_owned(), json!(level))).collect();
        assert_eq!(manifest["default_permissions"], Value::Object(permissions));
        let mut events: Vec<&str> =
            manifest["default_events"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let mut needed = EVENTS.to_vec();
        events.sort_unstable();
        needed.sort_unstable();
        assert_eq!(events, needed);
        assert_eq!(manifest["public"], false);
        assert_eq!(manifest["hook_attributes"]["url"], "https://ralph.example.org/webhooks/github");
        assert_eq!(manifest["callback_urls"], json!(["https://ralph.example.org/login/callback/github"]));
        assert_eq!(manifest["redirect_url"], "http://127.0.0.1:4000/setup/github/created");
        assert!(!manifest.to_string().contains("ralph.example.org/webhooks/github/"));
    }

    #[test]
    fn app_without_a_public_address_has_no_webhook() {
        let text = AppPlan { public: None, ..plan() }.manifest().unwrap();
        let manifest: Value = serde_json::from_str(&text).unwrap();
        assert!(manifest.get("hook_attributes").is_none() && manifest.get("default_events").is_none(), "{text}");
        assert!(manifest.get("callback_urls").is_none() && !text.contains("example.org"), "{text}");
        assert_eq!(manifest["url"], "https://github.com/");
    }

    #[test]
    fn form_goes_to_the_account_or_the_organization() {
        let address = |web: &str, organization: Option<&str>| {
            let organization = organization.map(str::to_owned);
            AppPlan { web: Url::parse(web).unwrap(), organization, ..plan() }.form_address("a b").to_string()
        };
        assert_eq!(address("https://github.com", None), "https://github.com/settings/apps/new?state=a+b");
        assert_eq!(
            address("https://acme.ghe.com/", Some("acme")),
            "https://acme.ghe.com/organizations/acme/settings/apps/new?state=a+b"
        );
        assert_eq!(
            address("https://git.example.org/github", Some("a/../b")),
            "https://git.example.org/github/organizations/a%2F..%2Fb/settings/apps/new?state=a+b"
        );
    }

    #[test]
    fn app_names_have_a_maximum_length() {
        let name =
            AppPlan::usual_name(None, Some(&Url::parse("https://a-very-long-name-of-a-server.example.org").unwrap()));
        assert_eq!(name, "ralph-bot a-very-long-name-of-a-se");
        assert_eq!(AppPlan::usual_name(Some("acme"), None), "ralph-bot acme");
        assert_eq!(AppPlan::usual_name(None, None), "ralph-bot local");
        for (text, good) in
            [("acme-co", true), ("", false), ("-a", false), ("a/b", false), ("a b", false), ("..", false)]
        {
            assert_eq!(is_login(text), good, "{text}");
        }
        assert!(!is_login(&"a".repeat(40)));
    }

    #[test]
    fn answer_without_a_key_is_refused_and_not_quoted() {
        let whole = json!({"id": 7, "slug": "ralph", "html_url": "https://github.com/apps/ralph", "pem": "KEY",
            "webhook_secret": null, "client_id": "Iv1", "client_secret": "SECRET"});
        let app = CreatedApp::read(whole.to_string().as_bytes()).unwrap();
        assert_eq!((app.id, app.private_key.expose_secret()), (7, "KEY"));
        assert!(app.webhook_secret.is_none() && !format!("{app:?}").contains("SECRET"));
        for wrong in ["", "[]", "{\"id\":\"SECRET\"}", "<html>SECRET</html>"] {
            let why = CreatedApp::read(wrong.as_bytes()).unwrap_err().to_string();
            assert!(!why.contains("SECRET"), "{why}");
        }
    }

    #[test]
    fn installation_page_is_on_the_forge() {
        let app = |page: &str| CreatedApp {
            id: 1,
            slug: "ralph".into(),
            page: page.into(),
            private_key: "k".into(),
            webhook_secret: None,
            client_id: String::new(),
            client_secret: "s".into(),
        };
        let web = Url::parse("https://git.example.org").unwrap();
        let page = |of: &str| app(of).installation_page(&web).to_string();
        assert_eq!(
            page("https://git.example.org/github-apps/ralph"),
            "https://git.example.org/github-apps/ralph/installations/new"
        );
        for foreign in ["https://evil.example/apps/ralph", "javascript:alert(1)", ""] {
            assert_eq!(page(foreign), "https://git.example.org/apps/ralph/installations/new", "{foreign}");
        }
    }
}
