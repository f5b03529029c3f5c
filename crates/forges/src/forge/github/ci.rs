//! CI results of a commit: check runs, commit statuses and the logs of failed ones.

use http::Method;
use serde::Deserialize;

use super::client::ApiCall;
use super::{GitHub, ignoring};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::forge::ci_log::{MAX_LOG_BYTES, failing_part, last_bytes};
use crate::forge::{CiFailure, CiState, ForgeErrorKind, ForgeResult, VERIFIED_STATUS};

/// Maximum number of failures whose logs or annotations are fetched.
const MAX_LOGS: usize = 10;
/// Slug of the App that runs Actions.
const ACTIONS: &str = "github-actions";

#[derive(Deserialize)]
pub(super) struct CheckRunPage {
    pub(super) check_runs: Vec<GitHubCheckRun>,
}

/// Check run, or a job of Actions if check runs cannot be read.
#[derive(Deserialize)]
pub(super) struct GitHubCheckRun {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) external_id: Option<String>,
    pub(super) status: String,
    conclusion: Option<String>,
    html_url: Option<String>,
    details_url: Option<String>,
    output: Option<CheckRunOutput>,
    pub(super) app: Option<CheckApp>,
    check_suite: Option<CheckSuiteId>,
}

#[derive(Deserialize)]
struct CheckSuiteId {
    id: Option<u64>,
}

#[derive(Deserialize)]
struct CheckRunOutput {
    title: Option<String>,
    summary: Option<String>,
    text: Option<String>,
    annotations_count: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct CheckApp {
    pub(super) id: Option<u64>,
    slug: Option<String>,
}

#[derive(Deserialize)]
struct Annotation {
    path: Option<String>,
    start_line: Option<u64>,
    annotation_level: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct StatusPage {
    statuses: Vec<GitHubStatus>,
}

#[derive(Deserialize)]
pub(super) struct GitHubStatus {
    pub(super) id: i64,
    pub(super) state: String,
    pub(super) context: Option<String>,
    pub(super) description: Option<String>,
    pub(super) target_url: Option<String>,
}

impl GitHubCheckRun {
    /// Creates a check run from a job of Actions.
    pub(super) fn of_job(
        id: u64,
        name: String,
        status: String,
        conclusion: Option<String>,
        page: Option<String>,
    ) -> Self {
        let app = Some(CheckApp { id: None, slug: Some(ACTIONS.to_owned()) });
        let details_url = page.clone();
        Self {
            id,
            name,
            external_id: None,
            status,
            conclusion,
            html_url: page,
            details_url,
            output: None,
            app,
            check_suite: None,
        }
    }

    /// Returns the id of the run's check suite.
    pub(super) fn suite(&self) -> Option<u64> {
        self.check_suite.as_ref()?.id
    }

    /// Whether the check run is a job of Actions.
    fn of_actions(&self) -> bool {
        self.app.as_ref().is_some_and(|app| app.slug.as_deref() == Some(ACTIONS))
    }

    /// Returns the id of the GitHub Actions job of this check run, read from its address; otherwise the check run's
    /// id. `None` for check runs of other Apps.
    fn actions_job(&self) -> Option<String> {
        let named = self
            .details_url
            .as_deref()
            .and_then(|url| url.split_once("/job/"))
            .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        self.of_actions().then(|| named.filter(|id| !id.is_empty()).unwrap_or_else(|| self.id.to_string()))
    }
}

impl GitHub {
    /// Returns the check runs and commit statuses of a commit.
    pub(super) async fn ci_state(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<CiState> {
        let what = format!("read the checks of {} on", sha.short());
        let call = ApiCall::on(repo, Method::GET, &["commits", sha.as_str(), "check-runs"], &what)
            .query(&[("filter", "latest"), ("per_page", "100")]);
        let mut runs = match self.client.pages(&call, |page: CheckRunPage| page.check_runs).await {
            // Fine-grained tokens cannot have the permission.
            Err(failure) if failure.kind == ForgeErrorKind::Denied => self.jobs_of(repo, sha).await?,
            found => self.newest_runs(repo, sha, found?).await?,
        };
        // The check runs were read, so the commit exists: 404 means that there are no statuses.
        let mut statuses = ignoring(ForgeErrorKind::NotFound, self.newest_statuses(repo, sha).await)?;
        runs.retain(|run| run.name != VERIFIED_STATUS);
        statuses.retain(|status| status.context.as_deref() != Some(VERIFIED_STATUS));

        let mut state = CiState::default();
        let unfinished = runs.iter().filter(|run| run.status != "completed").count()
            + statuses.iter().filter(|status| status.state == "pending").count();
        for run in runs {
            let conclusion = run.conclusion.as_deref().filter(|_| run.status == "completed");
            let is_unrun =
                matches!(conclusion, Some("neutral" | "skipped" | "cancelled" | "stale" | "action_required"));
            state.from_workflows |= !is_unrun && run.of_actions();
            match conclusion {
                None => state.pending.push(run.name),
                Some("success") => state.passed.push(run.name),
                // No failures of the code: a newer run replaced it, it was never picked up, or it waits for a person.
                _ if is_unrun => state.skipped.push(run.name),
                Some(_) => {
                    // While something is pending, the logs are not needed.
                    let read = unfinished == 0 && state.failed.len() < MAX_LOGS;
                    let log = if read { self.failure_log(repo, &run).await? } else { summary(&run) };
                    let url = run.html_url.or(run.details_url).unwrap_or_default();
                    state.failed.push(CiFailure { name: run.name, url, log });
                }
            }
        }
        for status in statuses {
            match status.state.as_str() {
                "success" => state.passed.push(name_of(status)),
                "pending" => state.pending.push(name_of(status)),
                _ => state.failed.push(CiFailure {
                    url: status.target_url.clone().unwrap_or_default(),
                    log: status.description.clone().unwrap_or_default(),
                    name: name_of(status),
                }),
            }
        }
        Ok(state)
    }

    /// Returns the newest commit status of each name.
    pub(super) async fn newest_statuses(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<Vec<GitHubStatus>> {
        let what = format!("read the statuses of {} on", sha.short());
        let call =
            ApiCall::on(repo, Method::GET, &["commits", sha.as_str(), "status"], what).query(&[("per_page", "100")]);
        self.client.pages(&call, |page: StatusPage| page.statuses).await
    }

    /// Returns the failing step of the job's log; if there is no log, the check's summary and annotations.
    async fn failure_log(&self, repo: &RepoRef, run: &GitHubCheckRun) -> ForgeResult<String> {
        if let Some(job) = run.actions_job() {
            let call = ApiCall::on(repo, Method::GET, &["actions", "jobs", &job, "logs"], "read a job's log on");
            match self.client.send(&call.follow_cross_origin()).await {
                Ok(response) => return Ok(failing_part(response.body())),
                Err(failure) if matches!(failure.kind, ForgeErrorKind::RateLimited { .. }) => return Err(failure),
                // Logs expire, and their storage may be unreachable: the summary is used instead.
                Err(failure) => {
                    tracing::info!(%failure, "could not read the log of a failed job; using the check's summary")
                }
            }
        }
        let mut text = summary(run);
        if run.output.as_ref().and_then(|output| output.annotations_count).unwrap_or(0) > 0 {
            let id = run.id.to_string();
            let call = ApiCall::on(
                repo,
                Method::GET,
                &["check-runs", &id, "annotations"],
                "read the annotations of a check on",
            )
            .query(&[("per_page", "100")]);
            match self.client.read::<Vec<Annotation>>(&call).await {
                Ok(annotations) => annotations.iter().for_each(|one| text.push_str(&annotation_line(one))),
                Err(failure) if matches!(failure.kind, ForgeErrorKind::RateLimited { .. }) => return Err(failure),
                Err(failure) => tracing::info!(%failure, "could not read the annotations of a failed check"),
            }
        }
        Ok(last_bytes(&text, MAX_LOG_BYTES).to_owned())
    }
}

fn name_of(status: GitHubStatus) -> String {
    status.context.unwrap_or_else(|| "default".to_owned())
}

/// Returns title, summary and text of a check run; its conclusion if these are empty.
fn summary(run: &GitHubCheckRun) -> String {
    let output = run.output.as_ref();
    let parts = output.map(|output| [&output.title, &output.summary, &output.text]);
    let parts: Vec<&str> =
        parts.iter().flatten().filter_map(|part| part.as_deref()).filter(|p| !p.is_empty()).collect();
    let text = match parts.is_empty() {
        true => format!("ended as {}", run.conclusion.as_deref().unwrap_or("unknown")),
        false => parts.join("\n"),
    };
    last_bytes(&text, MAX_LOG_BYTES).to_owned()
}

fn annotation_line(annotation: &Annotation) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let line = annotation.start_line.map(|line| format!(":{line}")).unwrap_or_default();
    let level = text(&annotation.annotation_level);
    format!("\n{}{line}: {level}: {}", text(&annotation.path), text(&annotation.message))
}
