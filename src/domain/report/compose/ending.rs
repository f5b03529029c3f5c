//! What people are told where a loop hands in its work, ends, or needs them.

use super::{
    approach, branch_link, check_lines, commands, file_lines, known, link, outcome_words, pull_link, seconds, sentence,
};
use crate::domain::loops::{JudgedDetection, Loop, LoopState};
use crate::domain::model::ids::{Money, Timestamp};
use crate::domain::model::task::{CheckReport, DiffStat};
use crate::domain::report::view::{
    CompletionView, EscalationView, Outcome, PullState, PullView, RecentIteration, Severity, SpentLine, View,
};
use crate::domain::trust::policy::ProtectedPolicy;
use crate::domain::trust::tamper;

/// The pull request.
pub fn pull(current: &Loop, now: Timestamp) -> PullView {
    let report = current.latest_checks().cloned().unwrap_or_default();
    let state = match current.state {
        LoopState::Review | LoopState::Merged => PullState::Ready,
        LoopState::LimitReached | LoopState::Failed | LoopState::Aborted | LoopState::Closed => PullState::Partial,
        _ => PullState::Working,
    };
    let last = current.kept().rev().find(|i| i.commit.is_some());
    let what = last.map_or(String::new(), |i| {
        if i.report.summary.trim().is_empty() { i.message.clone() } else { i.report.summary.clone() }
    });
    let whole = current.whole().cloned().unwrap_or_default();
    PullView {
        loop_id: current.id.clone(),
        title: current.task.title.clone(),
        closes: current.place.issue,
        state,
        what,
        why: current.task.body.clone(),
        checks: check_lines(&report),
        iterations: current.kept().count() as u32,
        max_iterations: current.limits.iterations,
        completion_percent: current.completion().whole_percent(),
        elapsed_s: seconds(current.spent.time_at(now)),
        cost: known(current.spent.cost),
        spent_on: spent_on(current),
        look_first: look_first(current, &whole),
        manifests: tamper::flagged_manifests(&whole),
        findings: current.findings(),
        started_by: current.requested_by.login.clone(),
        dashboard: None,
    }
}

/// What each backend's iterations cost, also those that were thrown away; nothing where one backend did all and said what it
/// charged, as the sum says it all then.
fn spent_on(current: &Loop) -> Vec<SpentLine> {
    let mut lines: Vec<SpentLine> = Vec::new();
    for iteration in current.iterations.iter().filter(|iteration| iteration.cost > Money(0)) {
        let (served, cost) = (&iteration.served, iteration.cost);
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
    lines.sort_by(|a, b| b.cost.cmp(&a.cost).then_with(|| a.backend.cmp(&b.backend)));
    let tells = lines.len() > 1 || lines.iter().any(|line| line.estimated);
    if tells { lines } else { Vec::new() }
}

fn look_first(current: &Loop, stat: &DiffStat) -> Vec<String> {
    let mut lines = Vec::new();
    let touched = current.policy.protected.touched(stat);
    if current.policy.protected.policy == ProtectedPolicy::Allow && !touched.is_empty() {
        lines.push(format!("Protected files were changed, which the settings allow: {}.", touched.join(", ")));
    }
    let restored: Vec<_> = current.kept().flat_map(|i| i.restored.clone()).collect();
    if !restored.is_empty() {
        lines.push(format!("The agent changed protected files, which were put back: {}.", restored.join(", ")));
    }
    let (files, more) = file_lines(stat);
    if let Some(largest) = files.first() {
        lines.push(format!("The largest change is in `{}` (+{} −{}).", largest.path, largest.added, largest.removed));
    }
    if files.len() + more > 1 {
        lines.push(format!("{} files changed in all.", files.len() + more));
    }
    lines
}

/// The report at the end, or at a limit.
pub fn completion(current: &Loop, now: Timestamp) -> View {
    let outcome = match current.state {
        LoopState::Review => Outcome::Success,
        LoopState::Merged => Outcome::Merged,
        LoopState::LimitReached => Outcome::LimitReached,
        LoopState::Aborted => Outcome::Aborted,
        LoopState::Closed
            if current.iterations.is_empty() && current.baseline.as_ref().is_some_and(CheckReport::all_hold) =>
        {
            Outcome::NothingToDo
        }
        LoopState::Closed => Outcome::Closed,
        _ => Outcome::Failed,
    };
    let (files, more_files) = file_lines(&current.whole().cloned().unwrap_or_default());
    let report = current.latest_checks().cloned().unwrap_or_default();
    let mut learnings: Vec<String> = Vec::new();
    for learning in current.kept().flat_map(|i| &i.report.learnings) {
        if !learnings.contains(learning) {
            learnings.push(learning.clone());
        }
    }
    View::Completion(Box::new(CompletionView {
        loop_id: current.id.clone(),
        outcome,
        reason: sentence(&current.why),
        task_title: current.task.title.clone(),
        iterations: current.kept().count() as u32,
        max_iterations: current.limits.iterations,
        elapsed_s: seconds(current.spent.time_at(now)),
        cost: known(current.spent.cost),
        spent_on: spent_on(current),
        completion_percent: current.completion().whole_percent(),
        checks: check_lines(&report),
        files,
        more_files,
        learnings,
        findings: current.findings(),
        branch: branch_link(current),
        pull: pull_link(current),
        options: commands(current),
    }))
}

/// An escalation.
pub fn escalation(current: &Loop, cause: &str, advice: &str) -> View {
    let evidence = current.latest_checks().map_or_else(Vec::new, |report| {
        let failing = report.outcomes.iter().filter(|o| !o.holds);
        failing.map(|o| format!("`{}`: {}", o.command, o.why)).collect()
    });
    let recent = current.kept().rev().take(3).map(|i| RecentIteration {
        n: i.number,
        approach: approach(i),
        outcome: if i.agent_problem.is_empty() { outcome_words(i) } else { i.agent_problem.clone() },
        checks_held: i.checks.held() as u32,
        checks_total: current.checks.len() as u32,
        completion_percent: i.completion.whole_percent(),
    });
    let mut recent: Vec<_> = recent.collect();
    recent.reverse();
    View::Escalation(Box::new(EscalationView {
        loop_id: current.id.clone(),
        severity: Severity::Critical,
        cause: cause.into(),
        issue: link(format!("#{}", current.place.issue), current.task.url.clone()),
        what_happened: sentence(&current.why),
        evidence,
        intervention: "The loop stands still; nothing runs and nothing is spent.".into(),
        recommendations: vec![sentence(advice)],
        recent,
        replies: commands(current),
        dashboard: None,
        at_home: false,
    }))
}

/// What is said to have been done where a loop was ended.
const ENDED: &str = "The loop was ended; its work is on its branch.";

/// An escalation because of a detection.
pub fn intervention(current: &Loop, found: &JudgedDetection, severity: Severity) -> View {
    let advice = found.recommendations.first().cloned().unwrap_or_default();
    let mut view = escalation(current, found.kind.name(), &advice);
    if let View::Escalation(inner) = &mut view {
        inner.severity = severity;
        inner.what_happened = format!("{}. {}", found.kind.title(), sentence(&found.evidence));
        let others = current.judged().into_iter().flat_map(|judged| &judged.found).filter(|f| f.kind != found.kind);
        let lines = others.map(|f| format!("also {}: {}", f.kind, f.evidence));
        inner.evidence.splice(0..0, lines);
        inner.evidence.insert(0, found.evidence.clone());
        inner.recommendations = found.recommendations.iter().map(|text| sentence(text)).collect();
        let restored = current.current().and_then(|last| last.restored_to);
        inner.intervention = match (severity, restored) {
            (Severity::Emergency, _) => ENDED.into(),
            (Severity::Critical, Some(0)) => {
                "The files are as they were before the first iteration; the loop stands still.".into()
            }
            (Severity::Critical, Some(best)) => {
                format!("The files of iteration {best}, the best one, were put back; the loop stands still.")
            }
            (Severity::Critical, None) => "The loop stands still; nothing runs and nothing is spent.".into(),
        };
    }
    view
}

/// An escalation because control ended the loop by itself.
pub fn emergency(current: &Loop, cause: &str) -> View {
    let mut view = escalation(current, cause, "look at the work that is saved; another label begins anew");
    if let View::Escalation(inner) = &mut view {
        inner.severity = Severity::Emergency;
        inner.intervention = ENDED.into();
    }
    view
}

/// An escalation as a comment on the loop's own issue.
pub fn at_home(mut view: View) -> View {
    if let View::Escalation(inner) = &mut view {
        inner.at_home = true;
    }
    view
}

/// The one reminder of an escalation that nobody answered.
pub fn reminder(current: &Loop, cause: &str) -> View {
    let mut view = escalation(current, cause, "answer with one of the commands above");
    if let View::Escalation(inner) = &mut view {
        inner.what_happened = format!("Nobody has answered yet. {}", inner.what_happened);
    }
    view
}
