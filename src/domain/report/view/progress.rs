//! What people see while a loop runs: the status comment and the comment of each iteration.

use serde::{Deserialize, Serialize};

use super::{CommandHint, Link};
use crate::domain::model::ids::{LoopId, Money};
use crate::domain::model::task::{TamperFinding, TestCounts};

/// The status comment, edited in place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// Which loop.
    pub loop_id: LoopId,
    /// Name of the state (`running`, `paused`, …).
    pub state: String,
    /// One sentence that says where things stand.
    pub headline: String,
    /// Iteration under way or last ended; 0 before the first.
    pub iteration: u32,
    /// Limit of iterations.
    pub max_iterations: u32,
    /// Completion as measured, whole percent.
    pub completion_percent: u8,
    /// Checks that hold.
    pub checks_held: u32,
    /// Checks in all.
    pub checks_total: u32,
    /// One row an iteration, oldest first.
    pub rows: Vec<IterationRow>,
    /// Spent so far.
    pub cost: Option<Money>,
    /// Limit of money.
    pub cost_limit: Option<Money>,
    /// Working time so far.
    pub elapsed_s: u64,
    /// Limit of working time.
    pub timeout_s: u64,
    /// Branch of the work.
    pub branch: Option<Link>,
    /// Pull request.
    pub pull: Option<Link>,
    /// Page of the dashboard.
    pub dashboard: Option<Link>,
    /// How it is going, once an iteration was judged.
    pub course: Option<CourseLine>,
    /// What is wrong with it now, the most severe first.
    pub detections: Vec<DetectionLine>,
    /// Pauses asked for, waits: a sentence each.
    pub notes: Vec<String>,
    /// Commands that make sense now.
    pub commands: Vec<CommandHint>,
    /// What the agent is kept in, in a few words ("bubblewrap (tier A)").
    pub sandbox: String,
    /// Backend that works.
    pub backend: String,
    /// Commands of the checks.
    pub checks: Vec<String>,
    /// Pieces of text that the forge does not show and the agent did not get.
    pub hidden_removed: usize,
}

/// How a loop is going, in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CourseLine {
    /// Control signal, 0..=1.
    pub signal: f64,
    /// Its band.
    pub urgency: String,
    /// Where it is going.
    pub trend: String,
    /// Gain profile.
    pub profile: String,
    /// Iterations still needed; `None` where there is no telling.
    pub forecast: Option<u64>,
    /// How the next iteration goes at it.
    pub strategy: String,
}

/// Something that is wrong with a loop, and what was done about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DetectionLine {
    /// What, without a full stop.
    pub title: String,
    /// How bad.
    pub severity: String,
    /// What was done: LOG, WARN, REDIRECT, PAUSE or ABORT.
    pub level: String,
    /// What shows it.
    pub evidence: String,
}

/// One iteration in the status comment's table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationRow {
    /// Number, from 1.
    pub n: u32,
    /// How it was gone about.
    pub approach: String,
    /// Checks that held after it; 0 until they have run.
    pub checks_held: u32,
    /// Checks in all.
    pub checks_total: u32,
    /// Completion after it, whole percent; `None` until its checks have run.
    pub completion_percent: Option<u8>,
    /// Control signal, 0..=1, once it was judged.
    pub control_signal: Option<f64>,
    /// How long it took.
    pub duration_s: u64,
    /// What it cost.
    pub cost: Option<Money>,
}

/// The comment of one iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationView {
    /// Which loop.
    pub loop_id: LoopId,
    /// Number, from 1.
    pub n: u32,
    /// Limit of iterations.
    pub max: u32,
    /// How it was gone about.
    pub approach: String,
    /// What was done, by the agent's own words.
    pub summary: String,
    /// Files changed, the most important first.
    pub files: Vec<FileLine>,
    /// Files changed beyond those listed.
    pub more_files: usize,
    /// The checks and how they went.
    pub checks: Vec<CheckLine>,
    /// Completion after it, whole percent.
    pub completion_percent: u8,
    /// Completion before it, whole percent, where known.
    pub previous_percent: Option<u8>,
    /// What was learnt.
    pub learnings: Vec<String>,
    /// What stands in the way.
    pub blockers: Vec<String>,
    /// What comes next, in a sentence.
    pub next: String,
    /// How the next iteration goes at it, and why; empty where there is nothing to tell.
    pub strategy: String,
    /// What was found, and done about it, in this iteration.
    pub detections: Vec<DetectionLine>,
    /// Changes that weaken what measures them.
    pub findings: Vec<TamperFinding>,
    /// Protected paths that were put back.
    pub restored_paths: Vec<String>,
    /// Hosts that the agent was kept from and that no iteration before named.
    pub refused_hosts: Vec<String>,
    /// The commit, where something changed.
    pub commit: Option<Link>,
    /// What went wrong with the agent, in a sentence.
    pub agent_problem: Option<String>,
    /// How long it took.
    pub duration_s: u64,
    /// What it cost.
    pub cost: Option<Money>,
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLine {
    /// Path from the top of the tree.
    pub path: String,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
}

/// One check and how it went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckLine {
    /// Short name.
    pub name: String,
    /// Shell command.
    pub command: String,
    /// Whether its rule held.
    pub holds: bool,
    /// Why not, in a sentence; empty when it held.
    pub why: String,
    /// The runner's counts, where recognised.
    pub tests: Option<TestCounts>,
    /// How long it took.
    pub duration_s: u64,
    /// Last part of the output, secrets masked; empty where there is none to show.
    pub output: String,
}
