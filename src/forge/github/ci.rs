//! What CI says of a commit: check runs and commit statuses, and why the failed ones failed.

use http::Method;
use serde::Deserialize;

use super::client::Call;
use super::log::{KEPT_BYTES, failing_part, last_bytes};
use super::{GitHub, unless};
use crate::domain::model::ids::{RepoRef, Sha};
use crate::forge::{CiFailure, CiState, ForgeErrorKind, ForgeResult};

/// Failures whose log or remarks are fetched; the others are named with what is at hand.
const EXPLAINED: usize = 10;

#[derive(Deserialize)]
struct CheckRuns {
    check_runs: Vec<CheckRun>,
}

#[derive(Deserialize)]
struct CheckRun {
    id: u64,
    name: String,
    status: String,
    conclusion: Option<String>,
    html_url: Option<String>,
    details_url: Option<String>,
    output: Option<Output>,
    app: Option<CheckApp>,
}

#[derive(Deserialize)]
struct Output {
    title: Option<String>,
    summary: Option<String>,
    text: Option<String>,
    annotations_count: Option<u64>,
}

#[derive(Deserialize)]
struct CheckApp {
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
struct Statuses {
    statuses: Vec<Status>,
}

#[derive(Deserialize)]
struct Status {
    state: String,
    context: Option<String>,
    description: Option<String>,
    target_url: Option<String>,
}

impl CheckRun {
    /// The job of GitHub Actions behind it. A job has the id of its check run; the address says it in so many words.
    fn job(&self) -> Option<String> {
        let of_actions = self.app.as_ref().is_some_and(|app| app.slug.as_deref() == Some("github-actions"));
        let named = self
            .details_url
            .as_deref()
            .and_then(|url| url.split_once("/job/"))
            .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        of_actions.then(|| named.filter(|id| !id.is_empty()).unwrap_or_else(|| self.id.to_string()))
    }
}

impl GitHub {
    /// Check runs and the combined status of a commit.
    pub(super) async fn ci_state(&self, repo: &RepoRef, sha: &Sha) -> ForgeResult<CiState> {
        let what = format!("read the checks of {} on", sha.short());
        let call = Call::on(repo, Method::GET, &["commits", sha.as_str(), "check-runs"], &what)
            .query(&[("filter", "latest"), ("per_page", "100")]);
        let runs = self.client.pages(&call, |page: CheckRuns| page.check_runs).await?;
        let call =
            Call::on(repo, Method::GET, &["commits", sha.as_str(), "status"], &what).query(&[("per_page", "100")]);
        // The commit is there, its check runs were read: a server that finds no statuses has none to give.
        let statuses = self.client.pages(&call, |page: Statuses| page.statuses).await;
        let statuses = unless(ForgeErrorKind::NotFound, statuses)?;

        let mut state = CiState::default();
        for run in runs {
            match run.conclusion.as_deref().filter(|_| run.status == "completed") {
                None => state.pending += 1,
                Some("success" | "neutral" | "skipped") => state.passed += 1,
                Some(_) => {
                    let log = if state.failed.len() < EXPLAINED { self.reason(repo, &run).await? } else { said(&run) };
                    let url = run.html_url.or(run.details_url).unwrap_or_default();
                    state.failed.push(CiFailure { name: run.name, url, log });
                }
            }
        }
        for status in statuses {
            match status.state.as_str() {
                "success" => state.passed += 1,
                "pending" => state.pending += 1,
                _ => state.failed.push(CiFailure {
                    name: status.context.unwrap_or_else(|| "default".to_owned()),
                    url: status.target_url.unwrap_or_default(),
                    log: status.description.unwrap_or_default(),
                }),
            }
        }
        Ok(state)
    }

    /// Why a check run failed: the failing step of its job's log, otherwise what the check says of itself.
    async fn reason(&self, repo: &RepoRef, run: &CheckRun) -> ForgeResult<String> {
        if let Some(job) = run.job() {
            let call = Call::on(repo, Method::GET, &["actions", "jobs", &job, "logs"], "read a job's log on");
            match self.client.send(&call.follow_abroad()).await {
                Ok(response) => return Ok(failing_part(response.body())),
                Err(failure) if matches!(failure.kind, ForgeErrorKind::RateLimited { .. }) => return Err(failure),
                // Logs expire, and the storage they are on may be out of reach: the summary has to do.
                Err(failure) => tracing::info!(%failure, "no log of a failed job"),
            }
        }
        let mut text = said(run);
        if run.output.as_ref().and_then(|output| output.annotations_count).unwrap_or(0) > 0 {
            let id = run.id.to_string();
            let call = Call::on(repo, Method::GET, &["check-runs", &id, "annotations"], "read a check's remarks on")
                .query(&[("per_page", "100")]);
            match self.client.read::<Vec<Annotation>>(&call).await {
                Ok(annotations) => annotations.iter().for_each(|one| text.push_str(&remark(one))),
                Err(failure) if matches!(failure.kind, ForgeErrorKind::RateLimited { .. }) => return Err(failure),
                Err(failure) => tracing::info!(%failure, "no remarks of a failed check"),
            }
        }
        Ok(last_bytes(&text, KEPT_BYTES).to_owned())
    }
}

/// What a check run says of itself, or at least how it ended.
fn said(run: &CheckRun) -> String {
    let output = run.output.as_ref();
    let parts = output.map(|output| [&output.title, &output.summary, &output.text]);
    let parts: Vec<&str> =
        parts.iter().flatten().filter_map(|part| part.as_deref()).filter(|p| !p.is_empty()).collect();
    let text = match parts.is_empty() {
        true => format!("ended as {}", run.conclusion.as_deref().unwrap_or("unknown")),
        false => parts.join("\n"),
    };
    last_bytes(&text, KEPT_BYTES).to_owned()
}

fn remark(annotation: &Annotation) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let line = annotation.start_line.map(|line| format!(":{line}")).unwrap_or_default();
    let level = text(&annotation.annotation_level);
    format!("\n{}{line}: {level}: {}", text(&annotation.path), text(&annotation.message))
}
