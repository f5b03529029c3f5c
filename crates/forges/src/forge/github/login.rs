//! Login with GitHub accounts, through the App's own OAuth client or an OAuth app.

use async_trait::async_trait;
use ralph_types::failure::Failure;
use serde::Deserialize;
use serde::de::IgnoredAny;
use url::Url;

use super::{GitHub, wire};
use crate::forge::Login;
use crate::forge::login::{LoginAccount, LoginAddresses};

/// Account that a token belongs to. Enterprise Server reports whether the account is suspended.
#[derive(Deserialize)]
struct GitHubTokenOwner {
    #[serde(flatten)]
    user: wire::GitHubUser,
    suspended_at: Option<IgnoredAny>,
}

#[async_trait]
impl Login for GitHub {
    fn login_addresses(&self) -> LoginAddresses {
        let below = |base: &Url, parts: &[&str]| {
            let mut address = base.clone();
            if let Ok(mut path) = address.path_segments_mut() {
                path.pop_if_empty().extend(parts);
            }
            address
        };
        LoginAddresses {
            authorize: below(&self.web_url, &["login", "oauth", "authorize"]),
            token: below(&self.web_url, &["login", "oauth", "access_token"]),
            user: below(&self.api_url, &["user"]),
            // A token without scopes reads public data and its own account.
            scope: None,
        }
    }

    fn login_account(&self, answer: &[u8]) -> Result<LoginAccount, Failure> {
        let owner: GitHubTokenOwner = serde_json::from_slice(answer)
            .map_err(|error| Failure::new("the answer has no account").caused_by(error))?;
        Ok(LoginAccount { user: owner.user.account(), suspended: owner.suspended_at.is_some() })
    }
}
