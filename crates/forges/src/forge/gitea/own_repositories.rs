//! Repositories that belong to the bot's account.

use ::http::Method;
use async_trait::async_trait;
use serde_json::json;

use super::Gitea;
use super::client::under;
use super::map::WireRepository;
use crate::domain::model::ids::RepoRef;
use crate::forge::ForgeErrorKind::{Bug, NotFound};
use crate::forge::http::{error, json as read};
use crate::forge::{ForgeError, ForgeResult, OwnRepositories, Repository};

#[async_trait]
impl OwnRepositories for Gitea {
    async fn create_private_repository(&self, name: &str) -> ForgeResult<Repository> {
        let what = format!("create the repository {name:?} on {}", self.settings.url);
        let body = json!({ "name": name, "private": true, "auto_init": true, "default_branch": "main" });
        let answer = self.client.send(&what, Method::POST, &["user", "repos"], &body).await?;
        let made = read::<WireRepository>(&what, &answer)?.facts(&self.settings.name);
        made.ok_or_else(|| error(Bug, &what, "the response has no repository"))
    }

    async fn delete_repository(&self, repo: &RepoRef) -> ForgeResult<()> {
        match self.client.send_empty(&format!("delete {repo}"), Method::DELETE, &under(repo, &[])?).await {
            Err(ForgeError { kind: NotFound, .. }) => Ok(()),
            other => other,
        }
    }
}
