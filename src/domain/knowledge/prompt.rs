//! What goes into the next prompt: one value, made here and nowhere else, rendered by `templates/prompt/iteration.md`.

use serde::{Deserialize, Serialize};

use crate::domain::knowledge::intelligence::{Block, Middle, ToolUse, adapt, best_state};
use crate::domain::loops::{GuidanceSource, Iteration, Loop, NextRunPlan};
use crate::domain::report::{approach, outcome_words, rule_words};
use crate::domain::supervision::control::Breadth;
use crate::domain::trust::policy::Intelligence;
use crate::domain::trust::sanitize;

/// Output of a failing check that a prompt carries, in bytes; its end is kept.
const OUTPUT_BYTES: usize = 6_000;
/// Earlier iterations that a prompt tells of, at the least share of the context that memory gets.
const HISTORY: f64 = 5.0;
/// That share; with more of it the prompt tells of more iterations.
const LEAST_SHARE: f64 = 0.2;

/// A check as the agent is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptCheck {
    /// Short name.
    pub name: String,
    /// Command that the agent can run itself.
    pub command: String,
    /// Its rule in words.
    pub rule: String,
}

/// A check that does not hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptFailure {
    /// Short name.
    pub name: String,
    /// Why not.
    pub why: String,
    /// End of its output.
    pub output: String,
}

/// What a person with permission said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptWord {
    /// Who.
    pub who: String,
    /// File it is about, or empty.
    pub path: String,
    /// What.
    pub text: String,
}

/// A failed CI job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptCi {
    /// Its name.
    pub name: String,
    /// Its log, trimmed.
    pub log: String,
}

/// An earlier iteration in a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptHistory {
    /// Number.
    pub n: u32,
    /// What was tried.
    pub approach: String,
    /// What came of it.
    pub outcome: String,
}

/// Everything that a prompt says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptView {
    /// Loop.
    pub loop_id: String,
    /// Iteration, from 1.
    pub iteration: u32,
    /// Limit.
    pub max_iterations: u32,
    /// Delimiter that nobody can guess; stands around text that is data.
    pub nonce: String,
    /// Title of the issue, as approved, without what the forge does not show.
    pub task_title: String,
    /// Body of the issue, as approved, without what the forge does not show.
    pub task_text: String,
    /// Checks that decide.
    pub checks: Vec<PromptCheck>,
    /// Those that do not hold now.
    pub failing: Vec<PromptFailure>,
    /// Guidance of maintainers.
    pub guidance: Vec<PromptWord>,
    /// What reviewers ask for.
    pub reviews: Vec<PromptWord>,
    /// Failing CI jobs.
    pub ci: Vec<PromptCi>,
    /// Facts that the service found out, and what to be careful about.
    pub warnings: Vec<String>,
    /// What the overseer orders; stands above all else.
    pub overrides: Vec<String>,
    /// How to go about this iteration, by control and strategy; a sentence each.
    pub strategy: Vec<String>,
    /// Files with conflict markers.
    pub conflict_files: Vec<String>,
    /// What was tried before.
    pub history: Vec<PromptHistory>,
    /// Globs of paths that are put back when changed.
    pub protected: Vec<String>,
    /// Where the report goes.
    pub report_path: String,
    /// Branch that the work started from.
    pub base_branch: String,
    /// Lines of the context block; empty where there is none, then `history` is told.
    pub context: Vec<String>,
    /// Sentences for the moment, beside `strategy`.
    pub moment: Vec<String>,
    /// Advice that a model wrote, as lines; it stands in a frame.
    pub advice: String,
    /// What that model would look at.
    pub focus: Vec<String>,
}

/// What the intelligence layer adds to a prompt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Extras {
    /// How much of the layer the loop uses; with `off` all else here is left out.
    pub intelligence: Intelligence,
    /// The context block.
    pub context: Option<Block>,
    /// What a model wrote for this iteration.
    pub middle: Option<Middle>,
    /// How the agent's tools did so far.
    pub tools: Vec<ToolUse>,
}

impl Extras {
    /// Nothing is added.
    pub fn off() -> Self {
        Self { intelligence: Intelligence::Off, ..Self::default() }
    }
}

/// The plain prompt of the iteration under way. `nonce` and `report_path` come from the shell.
pub fn view(current: &Loop, nonce: &str, report_path: &str) -> PromptView {
    view_with(current, nonce, report_path, &Extras::off())
}

/// The prompt of the iteration under way with what the intelligence layer adds: context, sentences for the moment, and a
/// model's advice, which stands below all that the service and people say.
pub fn view_with(current: &Loop, nonce: &str, report_path: &str, extras: &Extras) -> PromptView {
    let mut view = plain(current, nonce, report_path);
    if !extras.intelligence.adapts() {
        return view;
    }
    let lines = |block: &Block| block.text.lines().map(str::to_owned).collect();
    view.context = extras.context.as_ref().map_or_else(Vec::new, lines);
    view.moment = adapt(current, &extras.tools);
    view.moment.extend(better_before(current));
    if let Some(middle) = &extras.middle {
        view.advice.clone_from(&middle.advice);
        view.focus.clone_from(&middle.focus);
    }
    view
}

/// That an earlier state was better than the one at hand.
fn better_before(current: &Loop) -> Option<String> {
    let best = best_state(current)?;
    let number = |i: &Iteration| i.ended_at.is_some().then_some(i.number);
    let last = current.kept().rev().find_map(number)?;
    let standing = current.kept().next_back().and_then(|last| last.restored_to).is_none();
    (standing && best.iteration < last).then(|| {
        format!(
            "The best state so far was that after iteration {} (commit {}): compare with it before you build on what came \
             later.",
            best.iteration,
            best.commit.short()
        )
    })
}

/// What every prompt says.
fn plain(current: &Loop, nonce: &str, report_path: &str) -> PromptView {
    let guidance = current.current().map(|i| i.guidance.as_slice()).unwrap_or_default();
    let words = |source: GuidanceSource| {
        guidance.iter().filter(move |g| g.source == source).map(|g| PromptWord {
            who: g.who.clone(),
            path: g.path.clone().unwrap_or_default(),
            text: sanitize::for_prompt(&g.text).text,
        })
    };
    let course = current.course.as_ref();
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
    let told = HISTORY * course.map_or(1.0, |course| (course.memory_share / LEAST_SHARE).max(1.0));
    let done: Vec<_> = current.kept().filter(|i| i.ended_at.is_some()).collect();
    let history = done.iter().skip(done.len().saturating_sub(told as usize)).map(|i| PromptHistory {
        n: i.number,
        approach: approach(i),
        outcome: outcome_words(i),
    });
    PromptView {
        loop_id: current.id.to_string(),
        iteration: current.spent.iterations,
        max_iterations: current.limits.iterations,
        nonce: nonce.to_owned(),
        task_title: sanitize::for_prompt(&current.task.title).text,
        task_text: sanitize::for_prompt(&current.task.body).text,
        checks: current
            .checks
            .iter()
            .map(|c| PromptCheck { name: c.name.clone(), command: c.command.clone(), rule: rule_words(&c.rule) })
            .collect(),
        failing,
        guidance: words(GuidanceSource::Command).collect(),
        reviews: words(GuidanceSource::Review).collect(),
        ci: words(GuidanceSource::Ci).map(|w| PromptCi { name: w.path, log: w.text }).collect(),
        warnings: directives(course, WARNING).chain(words(GuidanceSource::Service).map(|w| w.text)).collect(),
        overrides: directives(course, OVERRIDE).collect(),
        strategy: course
            .map_or_else(Vec::new, |course| course.advice.iter().map(|text| sanitize::for_prompt(text).text).collect()),
        conflict_files: current.merging.as_ref().map(|m| m.conflicts.clone()).unwrap_or_default(),
        history: history.collect(),
        protected: current.policy.protected.paths.clone(),
        report_path: report_path.to_owned(),
        base_branch: current.base_branch.clone(),
        context: Vec::new(),
        moment: Vec::new(),
        advice: String::new(),
        focus: Vec::new(),
    }
}

/// What the overseer's words begin with.
const WARNING: &str = "WARNING: ";
const OVERRIDE: &str = "OVERRIDE: ";

/// The overseer's words of one sort, without what they begin with: the template says that.
fn directives(course: Option<&NextRunPlan>, sort: &'static str) -> impl Iterator<Item = String> {
    let all = course.map_or(&[][..], |course| &course.directives);
    all.iter().filter_map(move |text| text.strip_prefix(sort)).map(|text| sanitize::for_prompt(text).text)
}

/// The last `most` bytes of a text, beginning at a character.
fn tail(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}
