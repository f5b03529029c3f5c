//! One run of an agent, from the prompt to what came of it.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Attempt, remove_folder};
use crate::agent::{self, AgentOutcome, AgentRun, AgentStatus};
use crate::domain::control::ModelTier;
use crate::domain::ids::{Money, RepoRef, Timestamp};
use crate::domain::intelligence::{Context, Intelligence, count};
use crate::domain::lifecycle::{AgentEnd, AgentRunFacts, Input, Loop};
use crate::domain::prompt::{self, Extras};
use crate::engine::Engine;
use crate::engine::executor::{Failure, Receipt};
use crate::failpoint::kill_point;
use crate::process::Cookie;
use crate::store::outbox::Claimed;

/// Tokens of a prompt's context block.
const CONTEXT_TOKENS: usize = 500;

impl Engine {
    pub(super) async fn agent(
        &self,
        claimed: &Claimed,
        repo: &RepoRef,
        current: &Loop,
        attempt: Attempt,
        cancel: &CancellationToken,
    ) -> Result<Receipt, Failure> {
        self.end_processes(current).await;
        let Attempt { ticket, iteration, attempt } = attempt;
        if claimed.attempts > 0 {
            let salvaged = self.workspaces.salvage(&current.id, repo).await.unwrap_or_default();
            return Ok(Receipt::telling("the run was lost", Input::AgentLost { ticket, salvaged }));
        }
        let name = self.backend_of(current);
        let Some(backend) = self.backends.get(name) else {
            let known: Vec<_> = self.backends.keys().map(String::as_str).collect();
            let reason = format!("no backend `{name}` is configured; there is {}", known.join(", "));
            return Ok(Receipt::telling(reason.clone(), Input::AgentEnded { ticket, run: Box::new(no_run(reason)) }));
        };
        let Some(head) = &current.head else {
            return Err(Failure::Never { why: "the loop has no commit to work on".into() });
        };
        self.workspaces.reset(&current.id, repo, head).await?;
        if let Some(merging) = &current.merging {
            self.workspaces.merge_base_into(&current.id, repo, head, &merging.other).await?;
        }
        let scratch = self.settings.scratch.join(current.id.as_str()).join(format!("run-{iteration}-{attempt}"));
        remove_folder(&scratch);
        std::fs::create_dir_all(&scratch).map_err(|e| io_failure("make", &scratch, &e))?;
        let nonce = format!("{:08x}{:08x}", self.random(), self.random());
        let report_path = agent::report_path(&scratch);
        let extras = self.extras(current, iteration).await;
        let view = prompt::view_with(current, &nonce, &report_path.display().to_string(), &extras);
        let prompt = self.renderer.prompt(&view).map_err(|e| Failure::Never { why: e.to_string() })?;
        let seen = self.workspaces.agent_view(&current.id, repo);
        let left_ms = (current.limits.time_ms - current.spent.time_at(self.clock.now())).max(1000);
        let limits = current.policy.agent;
        let course = current.course.as_ref();
        // As far as a valid law goes, whatever was stored.
        let effort = course.map_or(1.0, |course| course.effort).clamp(0.1, 10.0);
        let wall = Duration::from_secs(limits.wall_s).mul_f64(effort).min(Duration::from_millis(left_ms as u64));
        let tier = course.map_or(ModelTier::Default, |course| course.model);
        let run = AgentRun {
            prompt: prompt.clone(),
            tree: seen.tree,
            read_only: seen.read_only,
            scratch: scratch.clone(),
            loop_id: current.id.to_string(),
            iteration,
            model: self.settings.models.get(name).and_then(|models| models.of(tier)).cloned(),
            wall,
            idle: Duration::from_secs(limits.idle_s),
            max_turns: limits.turns.map(|turns| (f64::from(turns) * effort).round().max(1.0) as u32),
            max_cost: (current.limits.cost > Money(0))
                .then(|| Money((current.limits.cost.0 - current.spent.cost.0).max(0))),
            cookie: Cookie::new(&self.instance, current.id.as_str(), attempt),
            sandboxed: self.settings.sandboxed,
            network: self.settings.agent_network,
        };
        kill_point("K15");
        let outcome = backend.run(run, cancel, &mut |_event| {}).await;
        kill_point("K18");
        let cost = outcome.cost.unwrap_or_default().usd();
        self.metrics.agent_run(name, outcome_word(&outcome.status), outcome.duration_ms as f64 / 1000.0, cost);
        self.keep_log(current, iteration, attempt, &prompt, &outcome);
        remove_folder(&scratch);
        Ok(Receipt::telling(
            format!("{:?}", outcome.status),
            Input::AgentEnded { ticket, run: Box::new(facts(outcome)) },
        ))
    }

    /// What is known at this moment and remembered of earlier loops.
    async fn extras(&self, current: &Loop, iteration: u32) -> Extras {
        let mut context = Context::of(current, self.clock.now());
        let recalled = self.recall(current).await;
        (context.recall, context.history.reflections) = (recalled.learnings, recalled.reflections);
        let block = context.block(CONTEXT_TOKENS, &count);
        self.carried(current, iteration, &block.learnings).await;
        Extras { intelligence: Intelligence::Fallback, context: Some(block), ..Extras::default() }
    }

    /// Prompt and output of a run stay on disk, for people; a full disk loses them, not the run.
    fn keep_log(&self, current: &Loop, iteration: u32, attempt: u32, prompt: &str, outcome: &AgentOutcome) {
        let folder = self.settings.logs.join(current.id.as_str());
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join(format!("{iteration:03}-{attempt}.prompt.md")), prompt)?;
            std::fs::write(folder.join(format!("{iteration:03}-{attempt}.log")), &outcome.output)
        };
        if let Err(error) = write() {
            tracing::warn!(folder = %folder.display(), %error, "prompt and output could not be kept");
        }
    }
}

fn no_run(reason: String) -> AgentRunFacts {
    AgentRunFacts {
        end: AgentEnd::Unavailable { reason },
        report: None,
        message: String::new(),
        cost: None,
        tokens_in: 0,
        tokens_out: 0,
        tool_calls: 0,
        tool_errors: 0,
        duration_ms: 0,
    }
}

fn facts(outcome: AgentOutcome) -> AgentRunFacts {
    let end = match outcome.status {
        AgentStatus::Finished => AgentEnd::Finished,
        AgentStatus::Failed { reason } => AgentEnd::Failed { reason },
        AgentStatus::TimedOut { what } => AgentEnd::TimedOut { what },
        AgentStatus::Cancelled => AgentEnd::Cancelled,
        AgentStatus::Unavailable { reason } => AgentEnd::Unavailable { reason },
        AgentStatus::Limited { until_ms, reason } => AgentEnd::Limited { until: until_ms.map(Timestamp), reason },
        AgentStatus::OverBudget => AgentEnd::OverBudget,
    };
    AgentRunFacts {
        end,
        report: outcome.report,
        message: outcome.final_message,
        cost: outcome.cost,
        tokens_in: outcome.tokens_in,
        tokens_out: outcome.tokens_out,
        tool_calls: outcome.tool_calls,
        tool_errors: outcome.tool_errors,
        duration_ms: outcome.duration_ms,
    }
}

fn outcome_word(status: &AgentStatus) -> &'static str {
    match status {
        AgentStatus::Finished => "finished",
        AgentStatus::Failed { .. } => "failed",
        AgentStatus::TimedOut { .. } => "timed_out",
        AgentStatus::Cancelled => "cancelled",
        AgentStatus::Unavailable { .. } => "unavailable",
        AgentStatus::Limited { .. } => "limited",
        AgentStatus::OverBudget => "over_budget",
    }
}

fn io_failure(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::Later { after_ms: None, began: true, why: format!("could not {what} {}: {error}", path.display()) }
}
