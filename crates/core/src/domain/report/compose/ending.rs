//! Fills the views of pull requests, results and escalations.

use serde_json::json;

use super::plan::plan_line;
use super::{
    approach, branch_link, check_lines, commands, detection_line, file_lines, known, learnings, link, next_action,
    nothing_to_do, outcome_words, pull_link, seconds, sentence,
};
use crate::domain::loops::{
    BranchFinding, EscalationCause, GuidanceSource, JudgedDetection, Loop, LoopLimit, LoopState, MergeWith,
    iterations_used, restored_words,
};
use crate::domain::model::ids::{AccountKind, Money, Timestamp};
use crate::domain::model::opinion::{OpinionEnd, OpinionFinding};
use crate::domain::model::task::{DiffStat, TamperKind};
use crate::domain::report::notice::moment;
use crate::domain::report::view::FileLinks;
use crate::domain::report::view::{
    AcceptedLine, CompletionView, EscalationSeverity, EscalationView, LoopOutcome, OpinionLine, OpinionView, PullView,
    PullWorkState, RecentIteration, SpentLine, View,
};
use crate::domain::supervision::strategy::Tried;
use crate::domain::trust::protected::ProtectedPolicy;
use crate::domain::trust::tamper;

/// Fills the pull request.
pub fn pull(current: &Loop, now: Timestamp) -> PullView {
    let report = current.latest_checks().cloned().unwrap_or_default();
    let state = match current.state {
        LoopState::Review | LoopState::Merged => PullWorkState::Ready,
        LoopState::LimitReached | LoopState::Failed | LoopState::Aborted | LoopState::Closed => PullWorkState::Partial,
        _ => PullWorkState::Working,
    };
    let last = current.retained_iterations().rev().find(|i| i.commit.is_some());
    let what = last.map_or(String::new(), |i| {
        if i.report.summary.trim().is_empty() { i.message.clone() } else { i.report.summary.clone() }
    });
    let stat = current.branch_stat().cloned().unwrap_or_default();
    PullView {
        loop_id: current.id.clone(),
        title: current.settings.policy.commits.titled(
            current.task.text.title(),
            current.task_type(),
            current.issue.issue,
        ),
        template: current.settings.policy.commits.template_parts(),
        closes: current.issue.issue,
        state,
        what,
        why: current.task.text.body().to_owned(),
        plan: plan_line(current),
        checks: check_lines(&report),
        iterations: current.retained_iterations().count() as u32,
        max_iterations: current.limits.iterations.count(),
        completion_percent: current.completion().whole_percent(),
        elapsed_s: seconds(current.spent.time_at(now)),
        cost: known(current.spent.cost),
        spent_on: spent_on(current),
        look_first: look_first(current, &stat),
        manifests: tamper::flagged_manifests(&stat),
        findings: current.findings(),
        accepted: accepted_lines(current),
        opinion: opinion_view(current),
        started_by: current.people.requested_by.login.clone(),
        dashboard: None,
        places: Vec::new(),
        links: FileLinks::new(),
    }
}

/// Returns the newest second opinion. An opinion about an older commit is shown until there is a newer one.
fn opinion_view(current: &Loop) -> Option<OpinionView> {
    let last = current.supervision.opinions.last.as_ref()?;
    let mut view = OpinionView {
        backend: last.backend.clone(),
        older: (current.branch.head.as_ref() != Some(&last.commit)).then(|| last.commit.short().to_owned()),
        missing: String::new(),
        summary: String::new(),
        remarks: Vec::new(),
        iteration: current.supervision.opinions.iteration,
        lost: current.supervision.opinions.lost,
    };
    match &last.end {
        OpinionEnd::Answered(answer) => {
            view.summary.clone_from(&answer.summary);
            let line = |finding: &OpinionFinding| OpinionLine {
                place: finding.place(),
                severity: finding.severity.as_str().to_owned(),
                text: finding.text.clone(),
            };
            view.remarks = answer.findings.iter().map(line).collect();
        }
        OpinionEnd::Missing(why) => view.missing.clone_from(why),
        OpinionEnd::Lost => "its run was lost".clone_into(&mut view.missing),
    }
    Some(view)
}

/// Describes the newest second opinion in one sentence; empty if none was requested.
fn opinion_words(current: &Loop) -> String {
    let Some(view) = opinion_view(current) else { return String::new() };
    let acted = view.iteration.map_or(String::new(), |n| format!(" Iteration {n} addressed its earlier findings."));
    match (view.missing.as_str(), view.remarks.len()) {
        ("", 0) => format!("Second opinion of {}: no findings.{acted}", view.backend),
        ("", 1) => format!("Second opinion of {}: 1 finding, in the pull request.{acted}", view.backend),
        ("", count) => format!("Second opinion of {}: {count} findings, in the pull request.{acted}", view.backend),
        (why, _) => format!("No second opinion: {}{acted}", sentence(why)),
    }
}

fn accepted_lines(current: &Loop) -> Vec<AcceptedLine> {
    let accepted = current.accepted_findings().into_iter();
    accepted.map(|(by, finding)| AcceptedLine { by: by.to_owned(), found: finding.found.clone() }).collect()
}

/// Returns the cost per backend, including discarded iterations. Empty if a single backend did all work and reported its
/// cost, because the total is then sufficient.
fn spent_on(current: &Loop) -> Vec<SpentLine> {
    let mut lines: Vec<SpentLine> = Vec::new();
    let plans =
        current.knowledge.planning.iter().flat_map(|planning| &planning.runs).map(|run| (&run.served, run.cost));
    let iterations = current.iterations.iter().map(|iteration| (&iteration.served, iteration.cost));
    for (served, cost) in plans.chain(iterations).filter(|(_, cost)| *cost > Money(0)) {
        match lines.iter_mut().find(|line| line.backend == served.backend) {
            Some(line) => {
                line.cost = line.cost.plus(cost);
                line.estimated |= served.estimated;
            }
            None => {
                let (backend, estimated) = (served.backend.clone(), served.estimated);
                lines.push(SpentLine { backend, cost, estimated });
            }
        }
    }
    for opinion in &current.supervision.opinions.costs {
        match lines.iter_mut().find(|line| line.backend == opinion.backend) {
            Some(line) => {
                line.cost = line.cost.plus(opinion.cost);
                line.estimated |= opinion.estimated;
            }
            None => lines.push(SpentLine {
                backend: opinion.backend.clone(),
                cost: opinion.cost,
                estimated: opinion.estimated,
            }),
        }
    }
    lines.sort_by(|a, b| b.cost.cmp(&a.cost).then_with(|| a.backend.cmp(&b.backend)));
    let needed = lines.len() > 1 || lines.iter().any(|line| line.estimated);
    if needed { lines } else { Vec::new() }
}

/// Name of git attributes files. With the attributes `linguist-generated` and `-diff`, forges fold files in a diff.
const ATTRIBUTES: &str = ".gitattributes";

/// Returns a warning about changed git attributes files, which can fold other files in the forge's diff; `None` if there are
/// none.
fn folding(stat: &DiffStat) -> Option<String> {
    let is_attributes = |path: &&str| path.rsplit('/').next() == Some(ATTRIBUTES);
    let changed: Vec<&str> = stat.files.iter().map(|file| file.path.as_str()).filter(is_attributes).collect();
    let sentence = "Settings that can fold or hide files in the forge's view of this change were changed";
    (!changed.is_empty()).then(|| format!("{sentence}: {}.", changed.join(", ")))
}

fn look_first(current: &Loop, stat: &DiffStat) -> Vec<String> {
    let mut lines = Vec::new();
    let touched = current.settings.policy.protected.touched(stat);
    if current.settings.policy.protected.policy == ProtectedPolicy::Allow && !touched.is_empty() {
        lines.push(format!("Protected files were changed; the settings allow it: {}.", touched.join(", ")));
    }
    let restored: Vec<_> = current.retained_iterations().flat_map(|i| i.restored.clone()).collect();
    if !restored.is_empty() {
        let names = restored.join(", ");
        lines.push(format!(
            "Changes of the agent to protected files were reverted: {names}. A `/ralph guide` that names a file allows its change."
        ));
    }
    lines.extend(current.retained_iterations().flat_map(|iteration| iteration.refused.iter().cloned()));
    lines.extend(folding(stat));
    let (files, more) = file_lines(stat);
    if let Some(largest) = files.first() {
        lines.push(format!("The largest change is in `{}` (+{} −{}).", largest.path, largest.added, largest.removed));
    }
    if files.len() + more > 1 {
        lines.push(format!("{} files changed in total.", files.len() + more));
    }
    lines
}

/// Returns the unsolved problems except failing checks, one sentence each.
fn unsolved(current: &Loop) -> Vec<String> {
    let mut lines = Vec::new();
    match current.branch.merge_wanted() {
        Some(MergeWith::Base) => {
            lines.push(format!(
                "The branch conflicts with `{}`; the conflict is not resolved.",
                current.branch.base_branch
            ));
        }
        Some(MergeWith::Pushed(commit)) => {
            lines.push(format!("The commit {} that somebody else pushed is not merged.", commit.short()));
        }
        None => {}
    }
    let of =
        |source: GuidanceSource| current.requests.guidance.iter().filter(move |guidance| guidance.source == source);
    let failed: Vec<String> =
        of(GuidanceSource::Ci).filter_map(|guidance| guidance.path.as_ref()).map(|name| format!("`{name}`")).collect();
    if !failed.is_empty() {
        lines.push(format!("CI fails: {}.", failed.join(", ")));
    }
    match of(GuidanceSource::Command).chain(of(GuidanceSource::Review)).count() {
        0 => {}
        1 => lines.push("A request of a person is not done.".to_owned()),
        count => lines.push(format!("{count} requests of people are not done.")),
    }
    lines
}

/// Fills the result of a loop that ended or reached a limit.
pub fn completion(current: &Loop, now: Timestamp) -> View {
    let outcome = match current.state {
        LoopState::Review => LoopOutcome::Success,
        LoopState::Merged => LoopOutcome::Merged,
        LoopState::LimitReached => LoopOutcome::LimitReached,
        LoopState::Aborted => LoopOutcome::Aborted,
        LoopState::Closed if nothing_to_do(current) => LoopOutcome::NothingToDo,
        LoopState::Closed => LoopOutcome::Closed,
        _ => LoopOutcome::Failed,
    };
    let (files, more_files) = file_lines(&current.branch_stat().cloned().unwrap_or_default());
    let checks = check_lines(&current.latest_checks().cloned().unwrap_or_default());
    View::Completion(Box::new(CompletionView {
        loop_id: current.id.clone(),
        outcome,
        reason: sentence(&current.why),
        next_action: next_action(current),
        iterations: current.retained_iterations().count() as u32,
        max_iterations: current.limits.iterations.count(),
        elapsed_s: seconds(current.spent.time_at(now)),
        cost: known(current.spent.cost),
        spent_on: spent_on(current),
        completion_percent: current.completion().whole_percent(),
        unsolved: if matches!(outcome, LoopOutcome::Success | LoopOutcome::Merged) {
            Vec::new()
        } else {
            unsolved(current)
        },
        checks,
        files,
        more_files,
        learnings: learnings(current),
        findings: current.findings(),
        branch: branch_link(current),
        pull: pull_link(current),
        options: if current.state == LoopState::LimitReached { commands(current) } else { Vec::new() },
        proposals: if outcome == LoopOutcome::Success { current.pull.proposals.clone() } else { Vec::new() },
        opinion: if outcome == LoopOutcome::Success { opinion_words(current) } else { String::new() },
    }))
}

/// Fills an escalation.
pub fn escalation(current: &Loop, cause: &EscalationCause, advice: &str, now: Timestamp) -> View {
    let asks_about_tests = matches!(cause, EscalationCause::Limit(_) | EscalationCause::TestFindings);
    let findings = if asks_about_tests { current.open_findings() } else { Vec::new() };
    let finding = |finding: &BranchFinding| format!("`{}`: {}", finding.found.path, finding.found.evidence);
    let failing = current.latest_checks().into_iter().flat_map(|report| &report.outcomes).filter(|o| !o.holds);
    let failing = failing.map(|o| format!("`{}` fails: {}", o.command, o.why));
    let red = current.red_ci().filter(|_| *cause == EscalationCause::Ci);
    let red = red.into_iter().flat_map(|ci| &ci.names).map(|name| format!("`{name}` fails in CI"));
    let evidence = findings.into_iter().map(finding).chain(failing).chain(red).collect();
    let recent = current.retained_iterations().rev().take(3).map(|i| RecentIteration {
        n: i.number,
        approach: approach(i),
        outcome: if i.agent_problem.is_empty() { outcome_words(i) } else { i.agent_problem.clone() },
        checks_held: i.checks.held() as u32,
        checks_total: current.checks.list.len() as u32,
        completion_percent: i.completion.whole_percent(),
    });
    let mut recent: Vec<_> = recent.collect();
    recent.reverse();
    let requester = &current.people.requested_by;
    let detections = current.judged().into_iter().flat_map(|judged| &judged.found).map(detection_line).collect();
    let view = EscalationView {
        loop_id: current.id.clone(),
        severity: EscalationSeverity::Critical,
        iteration: current.spent.iterations,
        at: moment(now),
        detections,
        record: String::new(),
        cause: cause.to_string(),
        headline: cause_words(cause, current),
        state: state_words(current.state).into(),
        assignee: (requester.kind == AccountKind::User).then(|| requester.login.clone()),
        issue: link(format!("#{}", current.issue.issue), current.task.url.clone()),
        what_happened: sentence(&current.why),
        evidence,
        diff: String::new(),
        intervention: action_words(current).into(),
        recommendations: vec![sentence(advice)],
        recent,
        tried: tried(current),
        learnings: learnings(current).into_iter().chain(blockers(current)).collect(),
        replies: commands(current),
        next: next_of_ended(current),
        dashboard: None,
        at_home: false,
    };
    View::Escalation(Box::new(recorded(view)))
}

/// Sets the JSON of an escalation from its other fields.
fn recorded(mut view: EscalationView) -> EscalationView {
    let record = json!({
        "level": view.severity,
        "cause": view.cause,
        "loop": view.loop_id,
        "iteration": view.iteration,
        "at": view.at,
        "detections": view.detections,
        "evidence": view.evidence,
    });
    view.record = serde_json::to_string_pretty(&record).unwrap_or_default();
    view
}

/// Returns the approaches that iterations followed at supervision's request, each with its first iteration and its cause.
fn tried(current: &Loop) -> Vec<String> {
    let last = current.retained_iterations().map(|iteration| iteration.number).max().unwrap_or_default();
    let proposed = current.supervision.state.iter().flat_map(|known| &known.strategy.tried);
    let followed = proposed.filter(|tried| tried.since <= last);
    let words = |tried: &Tried| {
        let since = match tried.since {
            since if since == last => format!("iteration {since}"),
            since => format!("iterations {since} and later"),
        };
        format!("{} ({since}; cause: {})", tried.name, tried.cause.replace('_', " "))
    };
    followed.map(words).collect()
}

/// Returns the blockers reported by the last iteration.
fn blockers(current: &Loop) -> impl Iterator<Item = String> + '_ {
    let last = current.retained_iterations().rev().find(|iteration| iteration.ended_at.is_some());
    last.into_iter().flat_map(|last| &last.report.blockers).map(|blocker| format!("Blocked by: {blocker}"))
}

/// Describes the cause of an escalation in a few words.
fn cause_words(cause: &EscalationCause, current: &Loop) -> String {
    match cause {
        EscalationCause::Limit(LoopLimit::Iterations) => iterations_used(current.limits.iterations),
        EscalationCause::Limit(LoopLimit::Time) => "the time limit is reached".into(),
        EscalationCause::Limit(LoopLimit::Money) => "the cost limit is reached".into(),
        EscalationCause::Limit(LoopLimit::Outlook) => "continuing is probably not worth its cost".into(),
        EscalationCause::Failed => "an error stopped the loop".into(),
        EscalationCause::Authority => "the person who started it has lost access".into(),
        EscalationCause::BlockedChange => "a change was blocked before the push".into(),
        EscalationCause::PushRefused => "the forge refuses its pushes".into(),
        EscalationCause::PullRefused => "the bot could not open the pull request".into(),
        EscalationCause::BranchMoved => "other commits are on the branch".into(),
        EscalationCause::BranchDeleted => "its branch was deleted".into(),
        EscalationCause::Conflict => "a conflict is not resolved".into(),
        EscalationCause::TestFindings => "changes to tests wait to be accepted".into(),
        EscalationCause::Hook => "a hook stopped the loop".into(),
        EscalationCause::NoWayForward => "no promising approach is left".into(),
        EscalationCause::Emergency => "supervision found an emergency".into(),
        EscalationCause::Schedule => "a rule of the schedule asks for a review".into(),
        EscalationCause::Ci => "CI fails on the pull request".into(),
        EscalationCause::FlakyCheck => "a check passes only sometimes".into(),
        EscalationCause::Detection(kind) => {
            let found = current.judged().and_then(|judged| judged.found.iter().find(|found| found.kind == *kind));
            found.map_or_else(|| kind.title().to_lowercase(), detection_headline)
        }
        EscalationCause::Other(text) => text.replace('_', " "),
    }
}

/// Returns the state of a loop as the predicate of a sentence.
fn state_words(state: LoopState) -> &'static str {
    match state {
        LoopState::Paused => "is paused",
        LoopState::LimitReached => "reached a limit",
        LoopState::Failed => "failed",
        LoopState::Aborted => "was aborted",
        _ => "is still running",
    }
}

/// Describes the bot's action according to the loop's state.
fn action_words(current: &Loop) -> &'static str {
    match current.state {
        LoopState::Aborted => "The loop was ended; its work is on its branch.",
        LoopState::Paused => "The loop is paused: no agent runs and no cost accrues.",
        LoopState::LimitReached | LoopState::Failed => "The loop has stopped: no agent runs and no cost accrues.",
        _ => "None; the loop continues.",
    }
}

/// Returns a person's next action after the end of a loop that no command can continue; empty for other loops.
fn next_of_ended(current: &Loop) -> String {
    let (branch, prefix) = (&current.branch.name, &current.settings.policy.label_prefix);
    let label = format!("set the label `{prefix}run` again to start a new loop");
    match (current.state.is_open(), &current.branch.pushed) {
        (true, _) => String::new(),
        (false, Some(_)) => format!("review the work on the branch `{branch}`, or {label}"),
        (false, None) => label,
    }
}

/// Maximum length of a headline derived from evidence, in characters.
const HEADLINE_LENGTH: usize = 100;

/// Returns the first phrase of the evidence without quoted text, or the detection's title if the phrase is too long.
fn detection_headline(found: &JudgedDetection) -> String {
    const NUMBERS: [&str; 8] = ["two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let phrase = found.evidence.split([';', ':']).next().unwrap_or_default().trim().replace('`', "\"");
    if !(1..=HEADLINE_LENGTH).contains(&phrase.chars().count()) {
        return found.kind.title().to_lowercase();
    }
    let number = phrase.split_once(' ').and_then(|(digit, rest)| Some((digit.parse::<usize>().ok()?, rest)));
    match number.and_then(|(number, rest)| Some((NUMBERS.get(number.checked_sub(2)?)?, rest))) {
        Some((word, rest)) => format!("{word} {rest}"),
        None => phrase,
    }
}

/// Fills the escalation for a detection.
pub fn intervention(current: &Loop, found: &JudgedDetection, severity: EscalationSeverity, now: Timestamp) -> View {
    let advice = found.recommendations.first().cloned().unwrap_or_default();
    let mut view = escalation(current, &found.kind.into(), &advice, now);
    if let View::Escalation(inner) = &mut view {
        inner.severity = severity;
        inner.headline = detection_headline(found);
        inner.what_happened = sentence(found.kind.title());
        // The cause comes first.
        inner.detections.sort_by_key(|line| line.title != found.kind.title());
        inner.evidence.splice(0..0, found.evidence.split("; ").map(str::to_owned));
        inner.recommendations = found.recommendations.iter().map(|text| sentence(text)).collect();
        let restored = current.current().and_then(|last| last.restored_to);
        match (severity, restored) {
            (EscalationSeverity::Emergency, _) | (_, None) => {}
            (EscalationSeverity::Critical, Some(best)) => {
                inner.intervention = format!("The loop is paused; {}.", restored_words(best));
            }
        }
        **inner = recorded((**inner).clone());
    }
    view
}

/// Fills the question whether changes to tests are acceptable.
pub fn test_question(current: &Loop, now: Timestamp) -> View {
    let open = current.open_findings();
    let required = open.iter().all(|finding| finding.found.kind.may_be_required());
    let answers = open.iter().all(|finding| finding.found.kind == TamperKind::AnswersHardCoded);
    let advice = if answers {
        "If the task asks for a table of exactly these values, accept it; else resume, and name the values that must be computed"
    } else if open.iter().all(|finding| finding.found.kind == TamperKind::TestsNotJudged) {
        "If the task requires the changes to these tests, accept them; else resume, and name the tests that must stay"
    } else if required {
        "If the task changes what these tests expect, accept the change; else resume, and name the tests that must stay"
    } else {
        "Accept the changes only if the task asks for them; else resume, or end the loop"
    };
    let mut view = escalation(current, &EscalationCause::TestFindings, advice, now);
    if let View::Escalation(inner) = &mut view
        && let Some(last) = current.current().filter(|_| required)
    {
        inner.diff.clone_from(&last.test_changes);
    }
    view
}

/// Fills the escalation for a loop ended by control.
pub fn emergency(current: &Loop, now: Timestamp) -> View {
    let advice = "Narrow the task, or split it, before you start a new loop";
    let mut view = escalation(current, &EscalationCause::Emergency, advice, now);
    if let View::Escalation(inner) = &mut view {
        inner.severity = EscalationSeverity::Emergency;
        **inner = recorded((**inner).clone());
    }
    view
}

/// Marks an escalation as a comment on the loop's issue instead of an escalation issue.
pub fn at_home(mut view: View) -> View {
    if let View::Escalation(inner) = &mut view {
        inner.at_home = true;
    }
    view
}

/// Fills the reminder of an unanswered escalation.
pub fn reminder(current: &Loop, cause: &EscalationCause, now: Timestamp) -> View {
    let mut view = escalation(current, cause, "Reply with one of the commands above", now);
    if let View::Escalation(inner) = &mut view {
        inner.what_happened = format!("No reply yet. {}", sentence(&current.why));
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::task::FileStat;

    /// `linguist-generated` folds a file on the pull request's page.
    #[test]
    fn settings_that_fold_files_cause_a_warning() {
        let file = |path: &str| FileStat { path: path.into(), added: 1, removed: 0, binary: false, change: None };
        let folded = |paths: &[&str]| folding(&DiffStat { files: paths.iter().map(|path| file(path)).collect() });
        assert_eq!(folded(&["src/a.rs", "x.gitattributes", ".gitattributes.md"]), None);
        let sentence = folded(&["src/a.rs", "src/.gitattributes", ".gitattributes"]).unwrap();
        assert!(sentence.ends_with("were changed: src/.gitattributes, .gitattributes."), "{sentence}");
    }
}
