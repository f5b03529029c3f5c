//! Contents of the next prompt. `templates/prompt/iteration.md` renders them, or `plan.md` for a planning run.

use serde::{Deserialize, Serialize};

use crate::domain::knowledge::intelligence::{Block, ModelAdvice, ToolUse, adapt, best_state};
use crate::domain::loops::{Guidance, GuidanceSource, Iteration, Loop, NextRunPlan, Planning};
use crate::domain::model::task::TamperKind;
use crate::domain::report::{approach, outcome_words, rule_words};
use crate::domain::supervision::control::Breadth;
use crate::domain::supervision::oversight::Directive;
use crate::domain::trust::policy::Intelligence;
use crate::domain::trust::sanitize;

/// Maximum length of a failing check's output in a prompt, in bytes. The prompt keeps its end.
const OUTPUT_BYTES: usize = 6_000;
/// Number of earlier iterations in a prompt at the minimum memory share; it grows with the share.
const HISTORY: f64 = 5.0;
/// Minimum memory share, 0..1.
const LEAST_SHARE: f64 = 0.2;

/// Description of a check for the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptCheck {
    /// Short name.
    pub name: String,
    /// Command, which the agent can also run.
    pub command: String,
    /// Passing rule, in words.
    pub rule: String,
}

/// Failing check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptFailure {
    /// Short name.
    pub name: String,
    /// Reason for the failure.
    pub why: String,
    /// End of the output.
    pub output: String,
}

/// Guidance from a person with permission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptWord {
    /// Login of the text.
    pub who: String,
    /// File that the guidance refers to; empty if none.
    pub path: String,
    /// Text.
    pub text: String,
}

/// Image of the task, which the agent receives as a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptImage {
    /// 1-based number of the image within the loop.
    pub number: u32,
    /// Alternative text; may be empty.
    pub description: String,
    /// Description of the text that contains the image ("in the issue").
    pub source: String,
    /// Path of the file.
    pub path: String,
}

/// Failed CI job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptCi {
    /// Name.
    pub name: String,
    /// Log, trimmed.
    pub log: String,
}

/// Description of an earlier iteration in one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptHistory {
    /// 1-based number.
    pub n: u32,
    /// Approach of the iteration.
    pub approach: String,
    /// Outcome of the iteration.
    pub outcome: String,
}

/// Change to tests or checks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptFinding {
    /// Path of the file.
    pub path: String,
    /// 1-based line of the evidence; `None` if the whole file is the evidence.
    pub line: Option<u32>,
    /// Name of the kind.
    pub kind: TamperKind,
    /// Line or fact that proves the finding.
    pub evidence: String,
    /// Whether the task may require the change.
    #[serde(default)]
    pub may_be_asked_for: bool,
}

/// Description of the plan for the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptPlan {
    /// Text of the plan.
    pub text: String,
    /// Login of the person who approved the plan; empty for a plan to be replaced.
    pub approved_by: String,
    /// Changes approved together with the plan; may be empty.
    pub changes: String,
}

/// Contents of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptView {
    /// Identifier of the loop.
    pub loop_id: String,
    /// 1-based number of the iteration.
    pub iteration: u32,
    /// Maximum number of iterations; `None` if unlimited.
    pub max_iterations: Option<u32>,
    /// Random delimiter around untrusted text.
    pub nonce: String,
    /// Whether the task is to repair an existing pull request.
    #[serde(default)]
    pub existing_pull: bool,
    /// Approved title of the issue, without hidden text.
    pub task_title: String,
    /// Approved body of the issue, without hidden text.
    pub task_text: String,
    /// Whether the run creates a plan instead of implementing the task.
    pub planning: bool,
    /// Approved plan, or, for a planning run, the plan to replace. `None` if there is none.
    pub plan: Option<PromptPlan>,
    /// Images of the task, added by the engine.
    pub images: Vec<PromptImage>,
    /// Checks that determine completion.
    pub checks: Vec<PromptCheck>,
    /// Currently failing checks.
    pub failing: Vec<PromptFailure>,
    /// Guidance from maintainers.
    pub guidance: Vec<PromptWord>,
    /// Requests from reviewers.
    pub reviews: Vec<PromptWord>,
    /// Findings of a second opinion, framed as data.
    pub opinions: Vec<PromptWord>,
    /// Failing CI jobs.
    pub ci: Vec<PromptCi>,
    /// Facts from the service.
    pub warnings: Vec<String>,
    /// Tests that differ from the base's tests.
    #[serde(default)]
    pub differing_tests: Vec<PromptFinding>,
    /// Weakened tests and checks that the agent must restore.
    pub put_back: Vec<PromptFinding>,
    /// Changed test files without which the checks fail.
    pub changed_tests: Vec<PromptFinding>,
    /// Program code that returns the tests' expected values without computing them.
    pub answers: Vec<PromptFinding>,
    /// Directives of the overseer, at the start of the prompt. The directive for the most important cause comes first.
    pub directives: Vec<Directive>,
    /// Advice of control and strategy, one sentence each.
    pub strategy: Vec<String>,
    /// Open blockers in the agent's words, the most frequent one first.
    #[serde(default)]
    pub blockers: Vec<String>,
    /// Files with conflict markers.
    pub conflict_files: Vec<String>,
    /// Earlier attempts.
    pub history: Vec<PromptHistory>,
    /// Globs of protected paths that exist in the tree, added by the engine. Changes to them are reverted.
    pub protected: Vec<String>,
    /// Path of the report file.
    pub report_path: String,
    /// The loop's branch.
    pub branch: String,
    /// Base branch.
    pub base_branch: String,
    /// Whether the session already received a prompt, so the context block contains only new facts.
    pub resumed: bool,
    /// Lines of the context block; if empty, `history` is used instead.
    pub context: Vec<String>,
    /// Whether the agent can query the session memory, set by the engine.
    pub asks_memory: bool,
    /// Advice for the loop's situation, in addition to `strategy`.
    pub moment: Vec<String>,
    /// A model's advice as lines, framed as data.
    pub advice: String,
    /// Files that a model suggests examining.
    pub focus: Vec<String>,
}

/// Additions of the intelligence layer to a prompt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Extras {
    /// Enabled parts of the layer. `Off` disables all other fields.
    pub intelligence: Intelligence,
    /// Context block.
    pub context: Option<Block>,
    /// Whether the prompt continues a session that already received a prompt.
    pub resumed: bool,
    /// A model's advice for this iteration.
    pub model_advice: Option<ModelAdvice>,
    /// Results of the agent's tool calls so far.
    pub tools: Vec<ToolUse>,
}

impl Extras {
    /// Creates a value without additions.
    pub fn off() -> Self {
        Self { intelligence: Intelligence::Off, ..Self::default() }
    }
}

/// Returns the plain prompt for the current iteration. The caller supplies `nonce` and `report_path`.
pub fn view(current: &Loop, nonce: &str, report_path: &str) -> PromptView {
    view_with(current, nonce, report_path, &Extras::off())
}

/// Returns the prompt for the current iteration with the intelligence layer's additions: context, advice for the situation,
/// and a model's advice, which comes after the texts of the service and of people.
pub fn view_with(current: &Loop, nonce: &str, report_path: &str, extras: &Extras) -> PromptView {
    let mut view = plain(current, nonce, report_path);
    if !extras.intelligence.adapts() {
        return view;
    }
    view.resumed = extras.resumed;
    let lines = |block: &Block| block.text.lines().map(str::to_owned).collect();
    view.context = extras.context.as_ref().map_or_else(Vec::new, lines);
    view.moment = adapt(current, &extras.tools);
    view.moment.extend(better_before(current));
    if let Some(model_advice) = &extras.model_advice {
        view.advice.clone_from(&model_advice.advice);
        view.focus.clone_from(&model_advice.focus);
    }
    view
}

/// Returns a sentence about an earlier state that was better than the current one; `None` if there is none.
fn better_before(current: &Loop) -> Option<String> {
    let best = best_state(current)?;
    let number = |i: &Iteration| i.ended_at.is_some().then_some(i.number);
    let last = current.retained_iterations().rev().find_map(number)?;
    let standing = current.retained_iterations().next_back().and_then(|last| last.restored_to).is_none();
    (standing && best.iteration < last).then(|| {
        let when = match best.iteration {
            0 => "before the first iteration".to_owned(),
            number => format!("after iteration {number}"),
        };
        format!(
            "The best state so far was that {when} (commit {}): compare with it before you build on later work.",
            best.commit.short()
        )
    })
}

/// Builds the part common to all prompts.
fn plain(current: &Loop, nonce: &str, report_path: &str) -> PromptView {
    let planning = current.knowledge.planning.as_ref().filter(|planning| planning.plans_next());
    let guidance: Vec<&Guidance> = match planning {
        // Guidance that waits for the first iteration also applies to the plan.
        Some(planning) => planning.wishes.iter().chain(&current.requests.guidance).collect(),
        None => current.current().into_iter().flat_map(|iteration| &iteration.guidance).collect(),
    };
    let words = |source: GuidanceSource| {
        guidance.iter().copied().filter(move |g| g.source == source).map(|g| PromptWord {
            who: g.who.clone(),
            path: g.path.clone().unwrap_or_default(),
            // A log is not Markdown.
            text: match g.source {
                GuidanceSource::Ci => sanitize::visible(&g.text),
                _ => sanitize::for_prompt(&g.text),
            },
        })
    };
    let course = current.supervision.course.as_ref();
    let failure = |o: &crate::domain::model::task::CheckOutcome| PromptFailure {
        name: o.name.clone(),
        why: o.why.clone(),
        output: tail(&o.output, OUTPUT_BYTES).to_owned(),
    };
    let most = match course.map(|course| course.breadth) {
        Some(Breadth::FirstFailure) => 1,
        _ => usize::MAX,
    };
    let failing = current.failing().into_iter().take(most).map(failure).collect();
    let entries = HISTORY * course.map_or(1.0, |course| (course.memory_share / LEAST_SHARE).max(1.0));
    let done: Vec<_> = current.retained_iterations().filter(|i| i.ended_at.is_some()).collect();
    let history = done.iter().skip(done.len().saturating_sub(entries as usize)).map(|i| PromptHistory {
        n: i.number,
        approach: approach(i),
        outcome: outcome_words(i),
    });
    PromptView {
        loop_id: current.id.to_string(),
        iteration: current.spent.iterations,
        max_iterations: current.limits.iterations.count(),
        nonce: nonce.to_owned(),
        existing_pull: current.pull.existing.is_some(),
        task_title: current.task.text.agent_title().to_owned(),
        task_text: current.task.text.agent_body(),
        planning: planning.is_some(),
        plan: plan(current),
        images: Vec::new(),
        checks: current
            .checks
            .list
            .iter()
            .map(|c| PromptCheck { name: c.name.clone(), command: c.command.clone(), rule: rule_words(&c.rule) })
            .collect(),
        failing,
        guidance: words(GuidanceSource::Command).collect(),
        reviews: words(GuidanceSource::Review).collect(),
        opinions: words(GuidanceSource::SecondOpinion).collect(),
        ci: words(GuidanceSource::Ci).map(|w| PromptCi { name: w.path, log: w.text }).collect(),
        warnings: words(GuidanceSource::Service).map(|w| w.text).chain(planning.and_then(missing_plan)).collect(),
        differing_tests: findings(current, |kind| kind == TamperKind::TestsChanged),
        put_back: findings(current, |kind| kind.blocks_review() && !kind.may_be_required()),
        changed_tests: findings(current, |kind| kind.may_be_required() && kind != TamperKind::AnswersHardCoded),
        answers: findings(current, |kind| kind == TamperKind::AnswersHardCoded),
        directives: directives(course),
        strategy: course.map_or_else(Vec::new, |course| {
            course.advice.iter().map(|text| sanitize::without_comments(text).0).collect()
        }),
        blockers: course
            .map_or_else(Vec::new, |course| course.blockers.iter().map(|text| sanitize::for_prompt(text)).collect()),
        conflict_files: current.branch.merging().map(|m| m.conflicts.clone()).unwrap_or_default(),
        history: history.collect(),
        protected: Vec::new(),
        report_path: report_path.to_owned(),
        branch: current.branch.name.clone(),
        base_branch: current.branch.base_branch.clone(),
        resumed: false,
        context: Vec::new(),
        asks_memory: false,
        moment: Vec::new(),
        advice: String::new(),
        focus: Vec::new(),
    }
}

/// Returns the approved plan, or the plan to replace.
fn plan(current: &Loop) -> Option<PromptPlan> {
    let approved = current.knowledge.approved_plan();
    let replaced = || current.knowledge.planning.as_ref()?.proposed.as_ref();
    let plan = approved.map(|(plan, _)| plan).or_else(replaced)?;
    let approval = approved.map(|(_, approval)| approval);
    Some(PromptPlan {
        text: plan.plan.text(),
        approved_by: approval.map_or_else(String::new, |approval| approval.by.clone()),
        changes: approval.map_or_else(String::new, |approval| sanitize::for_prompt(&approval.changes)),
    })
}

/// Returns a warning if the last run produced no plan; otherwise `None`.
fn missing_plan(planning: &Planning) -> Option<String> {
    let problem = sanitize::visible(&planning.problem);
    (!problem.is_empty()).then(|| format!("The last run made no plan that can be posted: {problem}."))
}

/// Returns findings of some kinds that no person accepted, except findings in commits pushed by a person.
fn findings(current: &Loop, wanted: impl Fn(TamperKind) -> bool) -> Vec<PromptFinding> {
    let open = current.branch_findings().unwrap_or_default().iter();
    let open = open.filter(|finding| !finding.pushed && current.checks.guard.accepted_by(finding).is_none());
    let wanted = open.filter(|finding| wanted(finding.found.kind));
    let (text, task) = (sanitize::visible, current.task.text.agent_text());
    wanted
        .map(|finding| (finding, &finding.found))
        .map(|(finding, found)| PromptFinding {
            path: text(&found.path),
            line: found.line,
            kind: found.kind,
            evidence: text(&found.evidence),
            may_be_asked_for: finding.may_be_asked_for(&task),
        })
        .collect()
}

/// Returns the directives without hidden text.
fn directives(course: Option<&NextRunPlan>) -> Vec<Directive> {
    let all = course.map_or(&[][..], |course| &course.directives).iter();
    all.map(|Directive { level, text }| Directive { level: *level, text: sanitize::without_comments(text).0 }).collect()
}

/// Returns at most the last `most` bytes of a text, starting at a character boundary.
fn tail(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}
