//! Facts about a finished agent run: its outcome, its figures, the backend that served it, and the session that can be resumed.

use serde::{Deserialize, Serialize};

use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::image::TaskImages;
use crate::domain::model::task::AgentReport;
use crate::domain::providers::money::Cumulative;

/// Outcome of an agent's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum AgentEnd {
    /// The agent exited successfully.
    Finished,
    /// The agent exited with an error.
    Failed { reason: String },
    /// The agent was stopped because it exceeded its time limit or idle limit.
    TimedOut { what: String },
    /// The service stopped the agent.
    Cancelled,
    /// The agent could not be started, or has no valid login.
    Unavailable { reason: String },
    /// Every agent that could be used declined this task: by a usage policy, with an empty answer, or at its own budget.
    Declined { reason: String },
    /// The provider limited the agent, until a time if the provider stated one.
    Limited { until: Option<Timestamp>, reason: String },
    /// The agent was stopped because it exceeded its cost limit.
    OverBudget,
    /// The agent was not started because a cost limit is reached.
    NoMoney {
        reason: String,
        /// Time at which money is available again; `None` if a person has to raise the limit.
        #[serde(default)]
        until: Option<Timestamp>,
    },
}

/// Outcome and figures of an agent's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRunFacts {
    /// Outcome of the run.
    pub end: AgentEnd,
    /// Report of the agent; `None` if it wrote no valid one.
    pub report: Option<AgentReport>,
    /// Last message of the agent.
    pub message: String,
    /// Cost; `None` if unknown.
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
    /// Names of the called tools, in the order of their first calls.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
    /// Backend that served the run.
    #[serde(default)]
    pub served: ServedBy,
    /// Session that the next run can resume; `None` if there is none.
    #[serde(default)]
    pub session: Option<AgentSession>,
    /// Approaches that failed in earlier loops and that the prompt of this run mentioned.
    #[serde(default)]
    pub failed_elsewhere: Vec<String>,
    /// Hosts, with ports, that the agent tried to reach and that are not on the allow list.
    #[serde(default)]
    pub refused_hosts: Vec<String>,
    /// Model requests that the key broker refused.
    #[serde(default)]
    pub refused_requests: Vec<String>,
    /// Tools whose use the agent's own permissions denied.
    #[serde(default)]
    pub denied_tools: Vec<String>,
    /// Reason why an assistant gave no usable answer to a question for this run; `None` if none failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assistant_failure: Option<String>,
    /// Whether the agent was killed: at a limit, by the service, or by a signal.
    #[serde(default)]
    pub killed: bool,
    /// Images that were found in the guidance for this iteration.
    #[serde(default, skip_serializing_if = "TaskImages::is_empty")]
    pub images: TaskImages,
}

impl AgentRunFacts {
    /// Creates the facts of a run of which only the outcome is known.
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
            denied_tools: Vec::new(),
            assistant_failure: None,
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
    /// Identifier of the session, as assigned by the backend.
    pub id: String,
    /// Name of the folder with the session's files, within the session folders of the loop.
    pub files: String,
    /// Used share of the context window, in percent; `None` if unknown.
    pub context_pct: Option<f64>,
    /// Cumulative usage of the session, as reported by the backend.
    pub account: Cumulative,
    /// Digests of facts and texts that earlier prompts of the session contained, so that they are not repeated.
    #[serde(default)]
    pub told: Vec<String>,
}

/// Backend that served an agent's run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServedBy {
    /// Backend that ran last; empty if none ran.
    pub backend: String,
    /// Model that was requested or reported; `None` if neither is known.
    pub model: Option<String>,
    /// Whether the service estimated at least a part of the cost.
    pub estimated: bool,
    /// Whether the run used tokens whose price is unknown.
    pub unpriced: bool,
    /// Identifier of the session, as assigned by the backend.
    pub session: Option<String>,
    /// Whether the run resumed the session of the previous run.
    pub resumed: bool,
    /// Used share of the session's context window, in percent; `None` if unknown.
    pub context_pct: Option<f64>,
    /// Backends that were tried before this one, one sentence each.
    pub switched: Vec<String>,
}
