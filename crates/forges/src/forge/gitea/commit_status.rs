//! Commit status that the bot sets.

use async_trait::async_trait;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::Gitea;
use super::ci::WireStatus;
use super::client::under;
use crate::domain::model::ids::RepoRef;
use crate::forge::http::{RequestPriority, json as parsed};
use crate::forge::{CommitStatus, CommitStatuses, ForgeResult, InterruptedStatus, VERIFIED_STATUS};

/// Maximum length of a description, in characters.
const MAX_DESCRIPTION: usize = 250;

#[derive(Deserialize)]
struct GiteaStatusId {
    id: i64,
}

#[async_trait]
impl CommitStatuses for Gitea {
    async fn set_commit_status(&self, repo: &RepoRef, status: &CommitStatus, _id: Option<i64>) -> ForgeResult<i64> {
        let (state, description) = (status.word(), status.description(MAX_DESCRIPTION));
        let body = json!({
            "state": state, "context": VERIFIED_STATUS, "description": description, "target_url": status.url,
        });
        let what = format!("set the status `{VERIFIED_STATUS}` of {} in {repo}", status.commit.short());
        let path = under(repo, &["statuses", status.commit.as_str()])?;
        let sent = self.client.send_with(RequestPriority::Normal, &what, Method::POST, &path, &body).await?;
        Ok(parsed::<GiteaStatusId>(&what, &sent)?.id)
    }

    async fn interrupted_status(&self, repo: &RepoRef, status: &CommitStatus) -> ForgeResult<InterruptedStatus> {
        let newest = self
            .newest_statuses(repo, &status.commit)
            .await?
            .into_iter()
            .find(|known| known.context == VERIFIED_STATUS);
        let is_same =
            |known: &WireStatus| status.equals(&known.status, &known.description, &known.target_url, MAX_DESCRIPTION);
        Ok(newest.filter(is_same).map_or(InterruptedStatus::Missing, |known| InterruptedStatus::Set(known.id)))
    }
}
