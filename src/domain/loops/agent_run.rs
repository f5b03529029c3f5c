//! An agent's run, after it ended: outcome, figures, the backend that served it, and the session that it left.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::image::TaskImages;
use crate::domain::model::task::AgentReport;
use crate::domain::providers::money::Cumulative;

/// Outcome of an agent's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum AgentEnd {
    /// Exited successfully.
    Finished,
    /// Exited with an error.
    Failed { reason: String },
    /// Stopped at its time or idle limit.
    TimedOut { what: String },
    /// Stopped by the service.
    Cancelled,
    /// Could not be started, or has no valid login.
    Unavailable { reason: String },
    /// Rate limited by its provider, until a time if the provider stated one.
    Limited { until: Option<Timestamp>, reason: String },
    /// Stopped at its cost limit.
    OverBudget,
    /// Not started because a cost limit is reached.
    NoMoney {
        reason: String,
        /// Time at which money is available again, if that happens without a person.
        #[serde(default)]
        until: Option<Timestamp>,
    },
}

/// Outcome and figures of an agent's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRunFacts {
    /// Outcome.
    pub end: AgentEnd,
    /// Report, if the agent wrote a valid one.
    pub report: Option<AgentReport>,
    /// Last message.
    pub message: String,
    /// Cost, if known.
    pub cost: Option<Money>,
    /// Input tokens.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// Number of tool calls.
    pub tool_calls: u32,
    /// Number of tool calls that failed.
    #[serde(default)]
    pub tool_errors: u32,
    /// Names of the tools called, in order of first use.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
    /// Backend that served the run.
    #[serde(default)]
    pub served: ServedBy,
    /// Session that the next run can resume.
    #[serde(default)]
    pub session: Option<AgentSession>,
    /// Approaches that failed in earlier loops, as the run's prompt stated them.
    #[serde(default)]
    pub failed_elsewhere: Vec<String>,
    /// Hosts with ports that the agent requested and that are not on the allow list.
    #[serde(default)]
    pub refused_hosts: Vec<String>,
    /// Requests to the model that the broker of keys refused.
    #[serde(default)]
    pub refused_requests: Vec<String>,
    /// Whether the agent was ended from outside: at a limit, by the service, or by a signal.
    #[serde(default)]
    pub killed: bool,
    /// Images that were found in the iteration's guidance.
    #[serde(default, skip_serializing_if = "TaskImages::is_empty")]
    pub images: TaskImages,
}

impl AgentRunFacts {
    /// Returns the facts of a run whose outcome alone is known.
    pub fn ending(end: AgentEnd) -> Self {
        Self {
            end,
            report: None,
            message: String::new(),
            cost: None,
            tokens_in: 0,
            tokens_out: 0,
            tool_calls: 0,
            tool_errors: 0,
            tools: Vec::new(),
            duration_ms: 0,
            served: ServedBy::default(),
            session: None,
            failed_elsewhere: Vec::new(),
            refused_hosts: Vec::new(),
            refused_requests: Vec::new(),
            killed: false,
            images: TaskImages::default(),
        }
    }
}

/// Agent session that the next run can resume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentSession {
    /// Name of the backend.
    pub backend: String,
    /// Requested model; `None` for the backend's default.
    pub model: Option<String>,
    /// Identifier of the session at the backend.
    pub id: String,
    /// Name of the folder with its files, within the loop's session folders.
    pub files: String,
    /// Used part of the context window, in percent, if known.
    pub context_pct: Option<f64>,
    /// Usage reported by the backend so far.
    pub account: Cumulative,
    /// Digests of the facts and texts that the session has received, so that they are not repeated.
    #[serde(default)]
    pub told: Vec<String>,
}

/// Backend that served an agent's run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServedBy {
    /// Backend that ran last; empty if none did.
    pub backend: String,
    /// Model, if one was requested or reported.
    pub model: Option<String>,
    /// Whether the cost is at least partly an estimate of the service.
    pub estimated: bool,
    /// Whether it used tokens whose price is unknown.
    pub unpriced: bool,
    /// Identifier of the session at the backend.
    pub session: Option<String>,
    /// Whether it resumed the session of the previous run.
    pub resumed: bool,
    /// Used part of the session's context window, in percent, if known.
    pub context_pct: Option<f64>,
    /// Backends that were tried before, one sentence each.
    pub switched: Vec<String>,
}
