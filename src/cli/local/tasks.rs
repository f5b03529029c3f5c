//! `ralph-bot local --tasks`: one loop per task, up to `--jobs` at once, and a table at the end.

use futures::{StreamExt, stream};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::session::{LocalSession, has_open_findings, is_done, task_hash};
use crate::cli::{CliError, one_line, print, table};
use crate::config::tasks::ListedTask;
use crate::domain::loops::RunOptions;
use crate::domain::loops::{Loop, LoopState};
use crate::domain::model::ids::LoopId;

/// Task with its newest loop from earlier runs of the list.
pub(super) struct PlannedTask {
    /// Title of the task.
    pub title: String,
    /// Description of the task.
    pub body: String,
    /// Options of its loop.
    pub options: RunOptions,
    /// Newest loop from earlier runs; `None` if there is none.
    pub earlier: Option<Loop>,
}

impl PlannedTask {
    /// Finds the newest loop with the same text for each task.
    pub(super) fn all(tasks: Vec<ListedTask>, known: &[Loop], backend: Option<&str>) -> Vec<Self> {
        let planned = |task: ListedTask| {
            let hash = task_hash(&task.title, &task.body);
            let backend = task.options.backend.clone().or_else(|| backend.map(str::to_owned));
            let options = RunOptions { backend, ..task.options };
            let earlier = known.iter().find(|known| known.task.hash == hash).cloned();
            Self { title: task.title, body: task.body, options, earlier }
        };
        tasks.into_iter().map(planned).collect()
    }

    /// Returns the id of the task's loop if a killed process left it unfinished and it continues without a command.
    pub(super) fn cut_off(&self) -> Option<LoopId> {
        let running = |known: &&Loop| matches!(known.state, LoopState::Queued | LoopState::Running);
        self.earlier.as_ref().filter(running).map(|known| known.id.clone())
    }
}

/// Row of the final table.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct TaskRow {
    task: String,
    #[serde(rename = "loop")]
    id: Option<String>,
    state: String,
    done: bool,
    /// Whether a finding about tests waits for a decision.
    open_findings: bool,
    iterations: u32,
    cost_usd: f64,
    branch: Option<String>,
    why: String,
}

impl TaskRow {
    fn of(task: &PlannedTask, ended: &Loop) -> Self {
        Self {
            task: task.title.clone(),
            id: Some(ended.id.to_string()),
            state: ended.state.as_str().to_owned(),
            done: is_done(ended),
            open_findings: has_open_findings(ended),
            iterations: ended.spent.iterations,
            cost_usd: ended.spent.cost.usd(),
            branch: ended.branch.pushed.is_some().then(|| ended.branch.name.clone()),
            why: one_line(&ended.why),
        }
    }

    fn without_loop(task: &PlannedTask, state: &str, why: String) -> Self {
        Self {
            task: task.title.clone(),
            id: task.earlier.as_ref().map(|known| known.id.to_string()),
            state: state.to_owned(),
            done: false,
            open_findings: false,
            iterations: 0,
            cost_usd: 0.0,
            branch: None,
            why,
        }
    }
}

/// Runs the tasks in order, at most `jobs` at once. Returns whether all are done (`None` after an interruption), and
/// whether any has an open finding about tests.
pub(super) async fn run_tasks(
    session: &LocalSession<'_>,
    tasks: Vec<PlannedTask>,
    jobs: u32,
    json: bool,
    interrupted: &CancellationToken,
) -> Result<(Option<bool>, bool), CliError> {
    let results = stream::iter(tasks)
        .map(|task| async move {
            match run_one(session, &task, interrupted).await {
                Ok(result) => result,
                Err(error) => TaskRow::without_loop(&task, "failed", one_line(&error.to_string())),
            }
        })
        .buffered(jobs as usize)
        .collect::<Vec<_>>()
        .await;
    print_results(&results, json)?;
    let done = (!interrupted.is_cancelled()).then(|| results.iter().all(|result| result.done));
    Ok((done, results.iter().any(|result| result.open_findings)))
}

/// Runs one task: starts its loop, continues it, or reports that it is done.
async fn run_one(
    session: &LocalSession<'_>,
    task: &PlannedTask,
    interrupted: &CancellationToken,
) -> Result<TaskRow, CliError> {
    if interrupted.is_cancelled() {
        return Ok(TaskRow::without_loop(task, "not started", "interrupted".into()));
    }
    let id = match &task.earlier {
        Some(known) if is_done(known) => return Ok(TaskRow::of(task, known)),
        Some(known) if known.state.is_open() => {
            session.resume(&known.id, task.options.clone(), "").await?;
            known.id.clone()
        }
        _ => session.begin(&task.title, &task.body, task.options.clone()).await?,
    };
    match session.follow(&id, Some(&task.title), interrupted).await? {
        Some(ended) => Ok(TaskRow::of(task, &ended)),
        None => Ok(TaskRow::of(task, &session.read(&id).await?)),
    }
}

fn print_results(results: &[TaskRow], json: bool) -> Result<(), CliError> {
    let done = results.iter().filter(|result| result.done).count();
    if json {
        let line = serde_json::json!({ "event": "tasks", "done": done, "total": results.len(), "tasks": results });
        return print(&format!("{line}\n")).map(drop);
    }
    let header = ["TASK", "STATE", "LOOP", "ITERATIONS", "BRANCH", "REASON"].map(str::to_owned);
    let rows = results.iter().map(|result| {
        [
            one_line(&result.task),
            result.state.replace('_', " "),
            result.id.clone().unwrap_or_default(),
            result.iterations.to_string(),
            result.branch.clone().unwrap_or_default(),
            result.why.clone(),
        ]
    });
    print(&table(&std::iter::once(header).chain(rows).collect::<Vec<_>>()))?;
    print(&format!("{done} of {} tasks are done\n", results.len())).map(drop)
}
