//! Status that the bot sets on a commit: a check run for Apps, which only they can create, otherwise a commit status.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::GitHub;
use super::auth::Purpose;
use super::ci::{CheckRunPage, GitHubCheckRun, GitHubStatus};
use super::client::ApiCall;
use crate::domain::model::ids::RepoRef;
use crate::domain::report::view::CommitState;
use crate::forge::{CommitStatus, ForgeErrorKind, ForgeResult, InterruptedStatus, LineAnnotation, VERIFIED_STATUS};

/// Maximum length of a commit status's description, in characters.
const MAX_DESCRIPTION: usize = 140;
/// Maximum number of annotations per request.
const MAX_ANNOTATIONS: usize = 50;

#[derive(Deserialize)]
struct GitHubStatusId {
    id: i64,
}

impl GitHub {
    /// Sets the bot's status of a commit.
    pub(super) async fn set_status(&self, repo: &RepoRef, status: &CommitStatus, id: Option<i64>) -> ForgeResult<i64> {
        if !self.is_app() {
            return self.add_commit_status(repo, status).await;
        }
        let what = format!("set the check run `{VERIFIED_STATUS}` of {} on", status.commit.short());
        if let Some(id) = id {
            let path = ["check-runs", &id.to_string()];
            let call = ApiCall::on(repo, Method::PATCH, &path, &what).purpose(Purpose::Checks).json(check_run(status));
            match self.client.send(&call).await {
                // It was deleted with its suite, or belongs to an earlier installation.
                Err(failure) if failure.kind == ForgeErrorKind::NotFound => {}
                other => return other.map(|_| id),
            }
        }
        let mut body = check_run(status);
        body["head_sha"] = json!(status.commit);
        let call = ApiCall::on(repo, Method::POST, &["check-runs"], &what).purpose(Purpose::Checks).json(body);
        Ok(self.client.read::<GitHubStatusId>(&call).await?.id)
    }

    async fn add_commit_status(&self, repo: &RepoRef, status: &CommitStatus) -> ForgeResult<i64> {
        let (state, description) = (status.word(), status.description(MAX_DESCRIPTION));
        let mut body = json!({ "state": state, "context": VERIFIED_STATUS, "description": description });
        if !status.url.is_empty() {
            body["target_url"] = json!(status.url);
        }
        let what = format!("set the status `{VERIFIED_STATUS}` of {} on", status.commit.short());
        let path = ["statuses", status.commit.as_str()];
        let call = ApiCall::on(repo, Method::POST, &path, what).json(body);
        Ok(self.client.read::<GitHubStatusId>(&call).await?.id)
    }

    /// Looks for the App's newest check run of a commit.
    pub(super) async fn interrupted_check_run(
        &self,
        repo: &RepoRef,
        status: &CommitStatus,
        app: u64,
    ) -> ForgeResult<InterruptedStatus> {
        let what = format!("read the check run `{VERIFIED_STATUS}` of {} on", status.commit.short());
        let call = ApiCall::on(repo, Method::GET, &["commits", status.commit.as_str(), "check-runs"], what)
            .purpose(Purpose::Checks)
            .query(&[("check_name", VERIFIED_STATUS), ("filter", "latest"), ("per_page", "100")]);
        let runs = self.client.pages(&call, |page: CheckRunPage| page.check_runs).await?;
        let is_own = |run: &GitHubCheckRun| run.app.as_ref().is_some_and(|known| known.id == Some(app));
        let Some(run) = runs.into_iter().filter(is_own).max_by_key(|run| run.id) else {
            return Ok(InterruptedStatus::Missing);
        };
        let id = run.id.cast_signed();
        Ok(match run.external_id == Some(status.digest()) {
            true => InterruptedStatus::Set(id),
            // A completed check run is not updated: the newest of a name counts.
            false if run.status == "completed" => InterruptedStatus::Missing,
            false => InterruptedStatus::Other(id),
        })
    }

    /// Looks for the newest commit status with the bot's name.
    pub(super) async fn interrupted_commit_status(
        &self,
        repo: &RepoRef,
        status: &CommitStatus,
    ) -> ForgeResult<InterruptedStatus> {
        let statuses = self.newest_statuses(repo, &status.commit).await?;
        let newest = statuses.into_iter().find(|known| known.context.as_deref() == Some(VERIFIED_STATUS));
        let is_same = |known: &GitHubStatus| {
            let description = known.description.as_deref().unwrap_or_default();
            status.equals(&known.state, description, known.target_url.as_deref().unwrap_or_default(), MAX_DESCRIPTION)
        };
        Ok(newest.filter(is_same).map_or(InterruptedStatus::Missing, |known| InterruptedStatus::Set(known.id)))
    }
}

/// Returns the body of a check run except its commit.
fn check_run(status: &CommitStatus) -> Value {
    let (state, conclusion) = match status.state {
        CommitState::Queued => ("queued", None),
        CommitState::Running => ("in_progress", None),
        CommitState::Success => ("completed", Some("success")),
        CommitState::Failure => ("completed", Some("failure")),
        CommitState::Cancelled => ("completed", Some("cancelled")),
    };
    let mut body = json!({
        "name": VERIFIED_STATUS, "external_id": status.digest(), "status": state, "output": { "title": status.title, "summary": status.summary },
    });
    if !status.annotations.is_empty() {
        let one = |found: &LineAnnotation| {
            json!({
                "path": found.path, "start_line": found.line, "end_line": found.line, "annotation_level": "failure",
                "title": found.title, "message": found.message,
            })
        };
        body["output"]["annotations"] = status.annotations.iter().take(MAX_ANNOTATIONS).map(one).collect();
    }
    if let Some(conclusion) = conclusion {
        body["conclusion"] = json!(conclusion);
    }
    if !status.url.is_empty() {
        body["details_url"] = json!(status.url);
    }
    body
}
