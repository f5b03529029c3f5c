//! Fills a loop's views with its state.

mod annotations;
mod commit_status;
mod confirm;
mod criteria;
mod ending;
mod plan;
mod replies;

pub use annotations::{NamedLine, named_lines, named_lines_of};
pub use commit_status::commit_status;
pub use confirm::{missed_label, needs_confirm};
pub use criteria::{needs_criteria, rule_words};
pub use ending::{at_home, completion, emergency, escalation, intervention, pull, reminder, test_question};
pub use plan::{plan, plan_key, plan_reminder};
pub use replies::commands;

use self::criteria::planned_check;
use crate::domain::loops::command::TABLE;
use crate::domain::loops::{
    Iteration, IterationJudgement, JudgedDetection, Loop, LoopState, LoopStep, MAX_AGENT_FAILURES, RefusedChange,
    ServedBy, check_names,
};
use crate::domain::model::ids::{AccountKind, Money, Timestamp};
use crate::domain::model::task::{CheckOutcome, CheckReport, CheckSource, DiffStat};
use crate::domain::report::control_words;
use crate::domain::report::task_words::{past_line, task_facts};
use crate::domain::report::view::{
    CheckLine, CommandReply, CourseLine, DetectionLine, FileLine, FileLinks, HelpSetting, HelpView, IterationRow,
    IterationView, Link, RepositoryFileErrorView, StatusView, View, WaitingView,
};
use crate::domain::supervision::oversight::InterventionLevel;
use crate::domain::supervision::strategy::Approach;
use crate::domain::trust::policy::{MinimumAccess, Policy};

/// Maximum number of files listed in a comment; further files are only counted.
const FILES_SHOWN: usize = 20;
/// Maximum length of the title's part in a branch name, in characters.
const SLUG_LENGTH: usize = 40;

/// Converts a title to part of a branch name: `[a-z0-9-]+`, without leading or trailing hyphens.
pub fn slug(title: &str) -> String {
    let mut slug = String::new();
    for c in title.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() >= SLUG_LENGTH {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "task".into() } else { slug.into() }
}

/// Whether a loop in this state needs a reply from a person.
pub fn wants_person(state: LoopState) -> bool {
    matches!(
        state,
        LoopState::NeedsCriteria
            | LoopState::NeedsConfirm
            | LoopState::NeedsApproval
            | LoopState::NeedsAnswer
            | LoopState::Paused
            | LoopState::LimitReached
            | LoopState::Failed
    )
}

/// Describes the people who may give commands.
pub fn who_may(policy: &Policy) -> String {
    let floor = match policy.floor {
        MinimumAccess::Write => "people with write access",
        MinimumAccess::Maintain => "people with the maintain or admin role",
        MinimumAccess::Admin => "people with the admin role",
    };
    match policy.allow.is_empty() && policy.teams.is_empty() {
        true => floor.into(),
        false => format!("{floor}, and accounts that the operator allowed"),
    }
}

fn known(cost: Money) -> Option<Money> {
    (cost > Money(0)).then_some(cost)
}

fn link(text: impl Into<String>, url: impl Into<String>) -> Link {
    Link { text: text.into(), url: url.into() }
}

/// Returns the URL of the repository's page, derived from the URL of the page; empty if this is impossible.
fn repository_page(current: &Loop) -> &str {
    current.task.url.rsplit_once("/issues/").map_or("", |(page, _)| page)
}

fn pull_link(current: &Loop) -> Option<Link> {
    current.pull.opened.as_ref().map(|pull| link(format!("#{}", pull.number), pull.url.clone()))
}

fn branch_link(current: &Loop) -> Option<Link> {
    let page = repository_page(current);
    let head = current.branch.pushed.as_ref()?;
    Some(link(
        current.branch.name.clone(),
        if page.is_empty() { String::new() } else { format!("{page}/commit/{head}") },
    ))
}

fn seconds(ms: i64) -> u64 {
    u64::try_from(ms / 1000).unwrap_or(0)
}

fn counts(report: Option<&CheckReport>, current: &Loop) -> (u32, u32) {
    let held = report.map_or(0, CheckReport::held);
    (held as u32, report.map_or(current.checks.list.len(), |r| r.outcomes.len()) as u32)
}

fn check_lines(report: &CheckReport) -> Vec<CheckLine> {
    report.outcomes.iter().map(check_line).collect()
}

fn check_line(outcome: &CheckOutcome) -> CheckLine {
    CheckLine {
        name: outcome.name.clone(),
        command: outcome.command.clone(),
        holds: outcome.holds,
        why: outcome.why.clone(),
        flaky: outcome.flaky,
        ran_once: outcome.ran_once,
        unread: outcome.holds && outcome.objection.is_some(),
        tests: outcome.tests,
        duration_s: outcome.duration_ms.div_ceil(1000),
        output: outcome.output.clone(),
        line: None,
    }
}

fn file_lines(stat: &DiffStat) -> (Vec<FileLine>, usize) {
    let mut files: Vec<_> = stat.files.iter().collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.added + file.removed));
    let shown = files.iter().take(FILES_SHOWN);
    let lines = shown.map(|f| FileLine { path: f.path.clone(), added: f.added, removed: f.removed }).collect();
    (lines, files.len().saturating_sub(FILES_SHOWN))
}

/// Describes an iteration's approach in a few words: reported by the agent, or derived from its failure or its changes.
pub fn approach(iteration: &Iteration) -> String {
    let reported = [&iteration.report.approach, &iteration.report.summary];
    match reported.into_iter().find(|text| !text.trim().is_empty()) {
        Some(text) => text.lines().next().unwrap_or_default().to_owned(),
        None if !iteration.agent_problem.is_empty() => iteration.agent_problem.clone(),
        None if iteration.ended_at.is_none() => "in progress".into(),
        None => match &iteration.stat.files[..] {
            [] => "no changes".into(),
            [file] => format!("changed `{}`", file.path),
            files => format!("changed {} files", files.len()),
        },
    }
}

fn duration_s(iteration: &Iteration, now: Timestamp) -> u64 {
    seconds(iteration.ended_at.unwrap_or(now).since(iteration.started_at))
}

/// Whether the iteration's completion was measured.
fn measured(iteration: &Iteration) -> bool {
    iteration.ended_at.is_some() || !iteration.checks.outcomes.is_empty()
}

/// Fills the status comment.
pub fn status(current: &Loop, backend: &str, now: Timestamp) -> View {
    let (checks_held, checks_total) = counts(current.latest_checks(), current);
    let rows = current.retained_iterations().map(|i| {
        let (held, total) = counts(Some(&i.checks).filter(|r| !r.outcomes.is_empty()), current);
        IterationRow {
            n: i.number,
            approach: approach(i),
            checks_held: held,
            checks_total: total,
            completion_percent: measured(i).then(|| i.completion.whole_percent()),
            control_signal: i.judged.as_ref().map(|judged| judged.signal),
            duration_s: duration_s(i, now),
            cost: known(i.cost),
        }
    });
    let mut notes = Vec::new();
    if let Some(why) = &current.run.pause_wanted {
        notes.push(format!("The loop pauses after this iteration: {why}."));
    }
    if !current.run.labels_without_host.is_empty() {
        let labels: Vec<_> = current.run.labels_without_host.iter().map(|label| format!("`{label}`")).collect();
        let labels = labels.join(", ");
        notes.push(format!("The work waits: no host has the labels of `runs_on` in the repository's file ({labels})."));
    }
    let switched = current.current().map(|last| last.served.switched.iter().map(String::as_str).collect::<Vec<_>>());
    notes.extend(switched.filter(|words| !words.is_empty()).map(|words| format!("{}.", words.join("; "))));
    if current.retained_iterations().any(|i| i.served.estimated) {
        notes.push("The cost is estimated from published prices because the backend does not report it.".into());
    }
    if current.retained_iterations().any(|i| i.served.unpriced) {
        notes.push("The cost is unknown: the backend does not report it, and its model has no published price.".into());
    }
    if !current.requests.guidance.is_empty() {
        let waits = match current.requests.guidance.len() {
            1 => "1 piece of guidance is".to_owned(),
            many => format!("{many} pieces of guidance are"),
        };
        notes.push(format!("{waits} queued for the next iteration."));
    }
    notes.extend(current.pull.refused.iter().map(RefusedChange::words));
    notes.extend(merge_note(current));
    notes.extend(current.agent.lacks.iter().map(|note| format!("{note}.")));
    if current.spent.budget_notice > 0 {
        notes
            .push(format!("At least {} % of the loop's budget of money or time is used.", current.spent.budget_notice));
    }
    notes.extend(current.agent.assistant_failure.iter().map(|note| format!("{note}.")));
    notes.extend(current.settings.overruled.iter().map(|note| format!("Repository file: {note}.")));
    let findings = current.findings().len();
    if findings > 0 {
        let changes = if findings == 1 { "1 change".to_owned() } else { format!("{findings} changes") };
        notes.push(format!("{changes} to tests or checks; see the pull request."));
    }
    View::Status(Box::new(StatusView {
        loop_id: current.id.clone(),
        superseded: false,
        state: current.state.as_str().into(),
        headline: headline(current),
        next_action: next_action(current),
        needs_person: wants_person(current.state),
        iteration: current.current().map_or(0, |i| i.number),
        max_iterations: current.limits.iterations.count(),
        completion_percent: current.completion().whole_percent(),
        checks_held,
        checks_total,
        rows: rows.collect(),
        cost: known(current.spent.cost),
        cost_limit: known(current.limits.cost),
        elapsed_s: seconds(current.spent.time_at(now)),
        timeout_s: seconds(current.limits.time_ms),
        branch: branch_link(current),
        base_branch: current.branch.base_branch.clone(),
        pull: pull_link(current),
        dashboard: None,
        course: current.judged().map(course_line),
        detections: open_detections(current),
        notes,
        learnings: learnings(current),
        commands: commands(current),
        sandbox: current.agent.sandbox.clone(),
        backend: served_words(current, backend),
        checks: current.checks.list.iter().map(planned_check).collect(),
        detected: current.checks.source == Some(CheckSource::Detected),
        started_by: current.people.requested_by.login.clone(),
        who_may: who_may(&current.settings.policy),
        task_facts: task_facts(current),
        past: current.knowledge.past.as_ref().map(past_line),
        plan: plan::plan_line(current),
        images: current.knowledge.images.words(),
        hidden_removed: current.knowledge.hidden_removed as usize,
        task_text: current.task.text.agent_text(),
    }))
}

/// Returns the note about a merge requested from the forge; `None` if there is no request.
fn merge_note(current: &Loop) -> Option<String> {
    let wish = current.pull.merge_wish.as_ref().filter(|_| current.state.is_open())?;
    let who = &wish.by.login;
    Some(match wish.accepted {
        true => format!("The forge merges the pull request once the rules of its base are satisfied, as {who} asked."),
        false => format!("{who} asked to merge the pull request once it is ready and CI has passed."),
    })
}

/// Returns the distinct learnings of all iterations.
fn learnings(current: &Loop) -> Vec<String> {
    let mut learnings: Vec<String> = Vec::new();
    for learning in current.retained_iterations().flat_map(|i| &i.report.learnings) {
        if !learnings.contains(learning) {
            learnings.push(learning.clone());
        }
    }
    learnings
}

/// Returns the last run's backend with its model. Before the first run, returns `first`, the configured backend.
fn served_words(current: &Loop, first: &str) -> String {
    let served = current.retained_iterations().rev().map(|i| &i.served).find(|served| !served.backend.is_empty());
    match served {
        None => first.to_owned(),
        Some(ServedBy { backend, model: None, .. }) => backend.clone(),
        Some(ServedBy { backend, model: Some(model), .. }) => format!("{backend} ({model})"),
    }
}

fn course_line(judged: &IterationJudgement) -> CourseLine {
    CourseLine {
        signal: judged.signal,
        urgency: judged.urgency.word().into(),
        trend: judged.trend.word().into(),
        profile: judged.profile.clone(),
        forecast: judged.forecast,
        strategy: strategy_words(judged),
        health: judged.health.word().into(),
        terms: control_words::terms(judged),
        gains: control_words::gains(judged),
        transition: control_words::transition(judged),
        alarms: control_words::alarms(judged),
    }
}

/// Describes the next iteration's strategy in a few words; empty if the loop continues as before.
fn strategy_words(judged: &IterationJudgement) -> String {
    let approach = match judged.approach {
        Approach::Persist => "",
        Approach::Pivot => "different approach",
        Approach::Simplify => "smaller steps",
        Approach::Escalate => "a person decides",
    };
    match (approach.is_empty(), judged.way.is_empty()) {
        (_, true) => approach.to_owned(),
        (true, false) => judged.way.clone(),
        (false, false) => format!("{approach}: {}", judged.way),
    }
}

/// Returns the detections of the last iteration; empty if the loop no longer works on the task.
fn open_detections(current: &Loop) -> Vec<DetectionLine> {
    let judged = current.judged().filter(|_| current.state.is_open() && current.state != LoopState::Review);
    judged.map_or_else(Vec::new, |judged| judged.found.iter().map(detection_line).collect())
}

pub(super) fn detection_line(found: &JudgedDetection) -> DetectionLine {
    DetectionLine {
        title: found.kind.title().into(),
        severity: found.severity.to_string(),
        level: found.level.name().into(),
        evidence: found.evidence.clone(),
    }
}

/// Returns the reason for the loop's state; for a running loop, its current step.
fn headline(current: &Loop) -> String {
    if current.state != LoopState::Running {
        return sentence(&current.why);
    }
    let red = current.red_ci().map_or(String::new(), |ci| format!("CI failed: {}. ", check_names(&ci.names)));
    format!("{red}{}", step_words(current))
}

/// Describes the current step of a running loop.
fn step_words(current: &Loop) -> String {
    let n = current.spent.iterations;
    match current.run.step {
        LoopStep::Idle => "Between two steps.".into(),
        LoopStep::Prepare => "Preparing the work tree.".into(),
        LoopStep::Baseline => "Running the checks before the first change.".into(),
        LoopStep::Merge => "Merging commits that other people pushed.".into(),
        LoopStep::Plan => "The agent is making a plan; it cannot change files.".into(),
        LoopStep::Agent => format!("The agent is working on iteration {n}."),
        LoopStep::Commit | LoopStep::Push => format!("Committing and pushing iteration {n}."),
        LoopStep::Check => format!("Running the checks of iteration {n}."),
        LoopStep::Restore => "Restoring the files of the best iteration.".into(),
        LoopStep::HooksBeforeAgent | LoopStep::HooksAfterIteration | LoopStep::HooksBeforeReady => {
            "Hooks are running.".into()
        }
        LoopStep::Verify => "Every check passed; running them again in a fresh checkout.".into(),
        LoopStep::SecondOpinion => "Every check passed; another model reads the change.".into(),
    }
}

/// Returns the next action of a person or of the bot. Empty after the end of the loop, or if one of `commands` is the next
/// action.
pub(super) fn next_action(current: &Loop) -> String {
    match current.state {
        LoopState::NeedsCriteria
        | LoopState::NeedsConfirm
        | LoopState::NeedsApproval
        | LoopState::NeedsAnswer
        | LoopState::Paused
        | LoopState::Failed
        | LoopState::LimitReached => String::new(),
        LoopState::Queued => "the loop starts when a slot is free; no action is needed.".into(),
        LoopState::Waiting => "the loop continues by itself; no action is needed.".into(),
        LoopState::Running => "no action is needed.".into(),
        LoopState::Review => match current.app_that_rebases() {
            Some(app) => {
                format!("review the pull request; {app} no longer rebases it, because the branch has another's commit.")
            }
            None => "review the pull request.".into(),
        },
        LoopState::Closed if current.found_nothing_to_do() => {
            "reply with `/ralph run TEXT` to say what to change.".into()
        }
        LoopState::Closed if nothing_to_do(current) => {
            "close the issue, or reply with `/ralph run --check \"COMMAND\"` to name a check that fails.".into()
        }
        LoopState::Merged | LoopState::Closed | LoopState::Aborted => String::new(),
    }
}

/// Whether there was nothing to do: every check of an issue passed before the first iteration, or a pull request had no problem.
fn nothing_to_do(current: &Loop) -> bool {
    current.found_nothing_to_do()
        || current.iterations.is_empty() && current.checks.baseline_report().is_some_and(CheckReport::all_hold)
}
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return String::new() };
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{}{}{end}", first.to_uppercase(), chars.as_str())
}

/// Fills the reply to a command.
pub fn reply(ok: bool, lines: Vec<String>) -> View {
    View::Reply(CommandReply { command: String::new(), ok, lines, nearest: None })
}

/// Fills the help text.
pub fn help(policy: &Policy) -> View {
    let limits = &policy.limits;
    let setting = |name: &str, value: String| HelpSetting { name: name.into(), value };
    View::Help(HelpView {
        commands: TABLE.iter().map(|row| replies::hint(row.usage, row.help)).collect(),
        settings: vec![
            setting("Maximum iterations", limits.iterations.to_string()),
            setting("Maximum working time", format!("{} min", limits.timeout.as_seconds() / 60)),
            setting("Maximum cost", limits.cost_usd.to_string()),
            setting("Maximum concurrent loops", limits.loops.to_string()),
        ],
        who_may: who_may(policy),
        version: concat!("ralph-bot ", env!("CARGO_PKG_VERSION")).into(),
    })
}

/// Fills the report of errors in the repository's file.
pub fn repository_file(current: &Loop, path: &str, problems: &[String]) -> View {
    View::RepositoryFileError(RepositoryFileErrorView {
        loop_id: Some(current.id.clone()),
        path: path.into(),
        error: problems.join("\n"),
    })
}

/// Fills the notice that the loop waits until `until` because of `why`. With `mention`, it mentions the person who started
/// the loop.
pub fn waiting(current: &Loop, why: &str, until: Timestamp, mention: bool) -> View {
    let who = Some(&current.people.requested_by).filter(|who| mention && who.kind == AccountKind::User);
    View::Waiting(WaitingView {
        loop_id: current.id.clone(),
        reason: sentence(why),
        until: moment(until),
        wait_s: seconds(until.since(current.updated_at).max(0)),
        mention: who.map(|who| who.login.clone()),
        commands: commands(current),
    })
}

/// Formats a time for people: UTC, to the minute.
pub fn moment(at: Timestamp) -> String {
    let utc = jiff::Timestamp::from_millisecond(at.0).map(|at| at.strftime("%Y-%m-%d %H:%M UTC").to_string());
    utc.unwrap_or_else(|_| at.0.to_string())
}

/// Fills the comment on the newest iteration; `None` before the first iteration.
pub fn iteration(current: &Loop) -> Option<View> {
    current.current().map(|last| View::Iteration(Box::new(iteration_view(current, last))))
}

/// Fills the comment on an earlier iteration, folded to one line; `None` if the iteration does not exist.
pub fn folded_iteration(current: &Loop, number: u32) -> Option<View> {
    let found = current.iterations.iter().rev().find(|i| i.number == number)?;
    let view =
        IterationView { folded: true, next: String::new(), strategy: String::new(), ..iteration_view(current, found) };
    Some(View::Iteration(Box::new(view)))
}

fn iteration_view(current: &Loop, last: &Iteration) -> IterationView {
    let before =
        current.measured().rev().find(|i| i.number < last.number && i.ended_at.is_some()).map(|i| i.completion);
    let before = before.or_else(|| current.checks.baseline.as_ref().map(|_| current.checks.completion_at_start()));
    let (files, more_files) = file_lines(&last.stat);
    let summary = if last.report.summary.trim().is_empty() { &last.message } else { &last.report.summary };
    let page = repository_page(current);
    let (checks_held, checks_total) = counts(Some(&last.checks), current);
    IterationView {
        loop_id: current.id.clone(),
        folded: false,
        n: last.number,
        max: current.limits.iterations.count(),
        approach: last.report.approach.clone(),
        summary: summary.clone(),
        files,
        more_files,
        checks: check_lines(&last.checks),
        checks_held,
        checks_total,
        completion_percent: last.completion.whole_percent(),
        previous_percent: before.map(|c| c.whole_percent()),
        learnings: last.report.learnings.clone(),
        blockers: last.report.blockers.clone(),
        next: next_words(current, last),
        strategy: last
            .judged
            .as_ref()
            .filter(|judged| continues(current, last) && judged.stops.is_none() && !strategy_words(judged).is_empty())
            .map_or_else(String::new, |judged| format!("{} (reason: {})", strategy_words(judged), judged.reasoning)),
        detections: last.judged.iter().flat_map(|judged| &judged.found).map(detection_line).collect(),
        findings: last.findings.clone(),
        restored_paths: last.restored.clone(),
        refused_hosts: refused_hosts(current, last),
        refused_requests: last.refused_requests.clone(),
        denied_tools: denied_tools(current, last),
        commit: last.commit.as_ref().map(|sha| link(sha.short(), format!("{page}/commit/{sha}"))),
        agent_problem: Some(last.agent_problem.clone()).filter(|text| !text.is_empty()),
        duration_s: duration_s(last, current.updated_at),
        cost: known(last.cost),
        places: Vec::new(),
        links: FileLinks::new(),
        dashboard: None,
    }
}

/// Returns the hosts that the sandbox rejected in this iteration for the first time in the loop.
fn refused_hosts(current: &Loop, last: &Iteration) -> Vec<String> {
    let before = |host: &&String| {
        current.iterations.iter().filter(|i| i.number < last.number).any(|i| i.refused_hosts.contains(host))
    };
    last.refused_hosts.iter().filter(|host| !before(host)).cloned().collect()
}

/// Returns the tools that the agent was denied in this iteration for the first time in the loop.
pub fn denied_tools(current: &Loop, last: &Iteration) -> Vec<String> {
    let before = |tool: &&String| {
        current.iterations.iter().filter(|i| i.number < last.number).any(|i| i.denied_tools.contains(tool))
    };
    last.denied_tools.iter().filter(|tool| !before(tool)).cloned().collect()
}

/// Whether the loop may run another iteration after this one.
fn continues(current: &Loop, last: &Iteration) -> bool {
    !current.limits.iterations.is_reached(last.number)
        && (!last.checks.all_hold() || !current.requests.guidance.is_empty())
}

/// Describes the next step after an iteration.
fn next_words(current: &Loop, last: &Iteration) -> String {
    match (last.checks.all_hold(), current.requests.guidance.is_empty()) {
        (true, true) => return "run the checks again in a fresh checkout.".into(),
        (true, false) => return "follow the guidance that arrived meanwhile.".into(),
        (false, _) if current.limits.iterations.is_reached(last.number) => {
            return "none; this was the last iteration.".into();
        }
        (false, _) => {}
    }
    if current.agent.failures >= MAX_AGENT_FAILURES {
        return format!("the loop ends, because the agent failed {MAX_AGENT_FAILURES} times in a row.");
    }
    if let Some(judged) = last.judged.as_ref().filter(|judged| judged.stops.is_some()) {
        return stop_words(current, judged);
    }
    if current.run.pause_wanted.is_some() {
        return "the loop pauses, as requested.".into();
    }
    let failing: Vec<_> = last.checks.outcomes.iter().filter(|o| !o.holds).map(|o| format!("`{}`", o.name)).collect();
    match failing.len() {
        0 => "run the checks, which did not run in this iteration.".into(),
        1 => format!("fix the failing check {}.", failing[0]),
        _ => format!("fix the failing checks {}.", failing.join(", ")),
    }
}

/// Describes the consequence of a judgement that stops the loop. The loop is still running at that time, because it stops
/// only after the iteration is reported.
fn stop_words(current: &Loop, judged: &IterationJudgement) -> String {
    let asks = match current.settings.policy.supervision().oversight.auto_escalate {
        true => "asks for a decision in an escalation issue",
        false => "asks for a decision here",
    };
    match judged.level() {
        Some(InterventionLevel::Abort) => "the loop ends; its work stays on its branch.".into(),
        Some(InterventionLevel::Pause) => format!("the loop pauses and {asks}."),
        _ => format!("the loop stops and {asks}."),
    }
}

/// Describes the result of an iteration's checks in a few words.
pub fn outcome_words(iteration: &Iteration) -> String {
    let failing: Vec<_> = iteration.checks.outcomes.iter().filter(|o| !o.holds).map(|o| o.name.as_str()).collect();
    match (iteration.checks.outcomes.is_empty(), failing.is_empty()) {
        (true, _) => "checks did not run".into(),
        (false, true) => "every check passed".into(),
        (false, false) => format!("still failing: {}", failing.join(", ")),
    }
}
