//! Login of people with Gitea and Forgejo.

use ::http::Method;
use async_trait::async_trait;
use ralph_types::failure::Failure;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::Gitea;
use super::map::WireUser;
use crate::forge::http::json as read;
use crate::forge::login::{LoginAccount, LoginAddresses, LoginClient};
use crate::forge::{ForgeResult, Login};

/// Account that a token belongs to. Servers report the two status fields only to the account itself.
#[derive(Deserialize)]
struct GiteaTokenOwner {
    #[serde(flatten)]
    user: WireUser,
    active: Option<bool>,
    prohibit_login: Option<bool>,
}

/// OAuth application of an account. Its secret is only in the responses to its creation and changes.
#[derive(Deserialize)]
struct OAuthApplication {
    id: i64,
    name: String,
    client_id: String,
    client_secret: Option<String>,
    #[serde(default)]
    redirect_uris: Vec<String>,
}

#[async_trait]
impl Login for Gitea {
    fn login_addresses(&self) -> LoginAddresses {
        LoginAddresses {
            authorize: self.client.address(&["login", "oauth", "authorize"]),
            token: self.client.address(&["login", "oauth", "access_token"]),
            user: self.client.address(&["api", "v1", "user"]),
            // Servers before 1.23 have no scopes for applications and give a token for everything, which is dropped as well.
            scope: Some("read:user"),
        }
    }

    fn login_account(&self, answer: &[u8]) -> Result<LoginAccount, Failure> {
        let owner: GiteaTokenOwner = serde_json::from_slice(answer)
            .map_err(|error| Failure::new("the answer has no account").caused_by(error))?;
        let suspended = owner.active == Some(false) || owner.prohibit_login == Some(true);
        Ok(LoginAccount { user: owner.user.account(), suspended })
    }

    async fn find_login_client(&self, name: &str, redirect: &Url) -> ForgeResult<Option<String>> {
        let what = format!("look for the application {name:?} for logins");
        let path = ["user", "applications", "oauth2"];
        let known: Vec<OAuthApplication> = self.client.list(&what, &path, &[], |_| false).await?;
        let is_ours = |known: &OAuthApplication| {
            known.name == name && known.redirect_uris.iter().any(|one| one == redirect.as_str())
        };
        Ok(known.into_iter().find(is_ours).map(|known| known.client_id))
    }

    async fn create_login_client(&self, name: &str, redirect: &Url) -> ForgeResult<Option<LoginClient>> {
        let what = format!("create the application {name:?} for logins");
        let path = ["user", "applications", "oauth2"];
        let known: Vec<OAuthApplication> = self.client.list(&what, &path, &[], |_| false).await?;
        let known = known.into_iter().find(|application| application.name == name).map(|known| known.id.to_string());
        let body = json!({ "name": name, "redirect_uris": [redirect.as_str()], "confidential_client": true });
        let answer = match &known {
            Some(id) => self.client.send(&what, Method::PATCH, &["user", "applications", "oauth2", id], &body).await?,
            None => self.client.send(&what, Method::POST, &path, &body).await?,
        };
        let made: OAuthApplication = read(&what, &answer)?;
        Ok(made.client_secret.map(|secret| LoginClient { id: made.client_id, secret: SecretString::from(secret) }))
    }
}
