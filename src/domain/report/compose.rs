//! What people are told about a loop: from its state to the views of what they see.

mod ending;

pub use ending::{at_home, completion, emergency, escalation, intervention, pull, reminder};

use crate::domain::loops::{Iteration, IterationJudgement, JudgedDetection, Loop, LoopState, LoopStep, ServedBy};
use crate::domain::model::ids::{AccountKind, Money, Timestamp};
use crate::domain::model::task::{Check, CheckOutcome, CheckReport, CheckRule, CheckSource, DiffStat};
use crate::domain::report::view::{
    CheckLine, CommandHint, CommandReply, Confirm, CourseLine, DetectedCheck, DetectionLine, FileLine, HelpSetting,
    HelpView, IterationRow, IterationView, Link, NeedsConfirmView, NeedsCriteriaView, RepositoryFileErrorView,
    StartedView, StatusView, View, WaitingView,
};
use crate::domain::supervision::strategy::Approach;
use crate::domain::loops::command::TABLE;
use crate::domain::trust::policy::{Floor, Policy};

/// Files listed in a comment; the rest is counted.
const FILES_SHOWN: usize = 20;
/// Longest part of a branch's name that comes from the title, in characters.
const SLUG_LENGTH: usize = 40;

/// A title as part of a branch's name: `[a-z0-9-]`, never empty, never with a dash at an end.
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

/// Whether a state waits for a person to do something.
pub fn wants_person(state: LoopState) -> bool {
    matches!(
        state,
        LoopState::NeedsCriteria
            | LoopState::NeedsConfirm
            | LoopState::Paused
            | LoopState::LimitReached
            | LoopState::Failed
    )
}

/// Who may give commands, in words.
pub fn who_may(policy: &Policy) -> String {
    let floor = match policy.floor {
        Floor::Write => "people with write access",
        Floor::Maintain => "people who maintain or administer this repository",
        Floor::Admin => "people who administer this repository",
    };
    match policy.allow.is_empty() && policy.teams.is_empty() {
        true => floor.into(),
        false => format!("{floor}, and accounts that the operator named"),
    }
}

fn hint(usage: impl Into<String>, what: &str) -> CommandHint {
    CommandHint { usage: usage.into(), what: what.into() }
}

/// Commands that make sense in the loop's state.
pub fn commands(current: &Loop) -> Vec<CommandHint> {
    let guide = || hint("/ralph guide TEXT", "tell the next iteration something");
    let abort = || hint("/ralph abort", "end the loop; the branch stays");
    match current.state {
        LoopState::NeedsCriteria => vec![hint("/ralph run --check \"COMMAND\"", "name a check and start"), abort()],
        LoopState::NeedsConfirm => {
            let short = current.task.hash.get(..8).unwrap_or_default();
            vec![hint(format!("/ralph run --confirm {short}"), "work on the text as shown"), abort()]
        }
        LoopState::Queued | LoopState::Waiting => vec![hint("/ralph pause", "hold it back"), guide(), abort()],
        LoopState::Running => vec![guide(), hint("/ralph pause", "pause after this iteration"), abort()],
        LoopState::Paused | LoopState::Failed => {
            vec![hint("/ralph resume GUIDANCE", "go on"), hint("/ralph retry", "do the last iteration again"), abort()]
        }
        LoopState::LimitReached => {
            vec![limit_hint(current), hint("/ralph retry", "do the last iteration again"), abort()]
        }
        LoopState::Review => vec![hint("/ralph guide TEXT", "ask for a change"), abort()],
        LoopState::Merged | LoopState::Closed | LoopState::Aborted => Vec::new(),
    }
}

/// The resume command that raises the limit that was reached.
fn limit_hint(current: &Loop) -> CommandHint {
    let (spent, limits) = (&current.spent, &current.limits);
    let of_money = current.escalated.as_deref() == Some("limit_money");
    if limits.cost > Money(0) && (of_money || spent.cost >= limits.cost) {
        let more = limits.cost.plus(limits.cost).usd();
        return hint(format!("/ralph resume --budget {more:.2}"), "go on with more money");
    }
    if spent.iterations >= limits.iterations {
        let more = limits.iterations.saturating_add(5);
        return hint(format!("/ralph resume --max-iterations {more}"), "go on with 5 more iterations");
    }
    if current.escalated.as_deref() == Some("limit_outlook") {
        let more = limits.iterations.saturating_add(10);
        return hint(format!("/ralph resume --max-iterations {more}"), "go on all the same, with 10 more iterations");
    }
    hint(format!("/ralph resume --timeout {}m", limits.time_ms / 60_000 + 60), "go on for another hour")
}

fn known(cost: Money) -> Option<Money> {
    (cost > Money(0)).then_some(cost)
}

fn link(text: impl Into<String>, url: impl Into<String>) -> Link {
    Link { text: text.into(), url: url.into() }
}

/// The repository's page, from the page of the issue.
fn repository_page(current: &Loop) -> &str {
    current.task.url.rsplit_once("/issues/").map_or("", |(page, _)| page)
}

fn pull_link(current: &Loop) -> Option<Link> {
    current.pull.as_ref().map(|pull| link(format!("#{}", pull.number), pull.url.clone()))
}

fn branch_link(current: &Loop) -> Option<Link> {
    let page = repository_page(current);
    let head = current.pushed.as_ref()?;
    Some(link(current.branch.clone(), if page.is_empty() { String::new() } else { format!("{page}/commit/{head}") }))
}

fn seconds(ms: i64) -> u64 {
    u64::try_from(ms / 1000).unwrap_or(0)
}

fn counts(report: Option<&CheckReport>, current: &Loop) -> (u32, u32) {
    let held = report.map_or(0, CheckReport::held);
    (held as u32, report.map_or(current.checks.len(), |r| r.outcomes.len()) as u32)
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
        tests: outcome.tests,
        duration_s: outcome.duration_ms.div_ceil(1000),
        output: outcome.output.clone(),
    }
}

fn file_lines(stat: &DiffStat) -> (Vec<FileLine>, usize) {
    let mut files: Vec<_> = stat.files.iter().collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.added + file.removed));
    let shown = files.iter().take(FILES_SHOWN);
    let lines = shown.map(|f| FileLine { path: f.path.clone(), added: f.added, removed: f.removed }).collect();
    (lines, files.len().saturating_sub(FILES_SHOWN))
}

/// How an iteration went about it, in a few words.
pub fn approach(iteration: &Iteration) -> String {
    let own = [&iteration.report.approach, &iteration.report.summary];
    match own.into_iter().find(|text| !text.trim().is_empty()) {
        Some(text) => text.lines().next().unwrap_or_default().to_owned(),
        None if !iteration.agent_problem.is_empty() => iteration.agent_problem.clone(),
        None if iteration.ended_at.is_none() => "under way".into(),
        None => "no word from the agent".into(),
    }
}

fn duration_s(iteration: &Iteration, now: Timestamp) -> u64 {
    seconds(iteration.ended_at.unwrap_or(now).since(iteration.started_at))
}

/// Whether it is known how far an iteration came.
fn measured(iteration: &Iteration) -> bool {
    iteration.ended_at.is_some() || !iteration.checks.outcomes.is_empty()
}

/// The status comment.
pub fn status(current: &Loop, backend: &str, now: Timestamp) -> View {
    let (checks_held, checks_total) = counts(current.latest_checks(), current);
    let rows = current.kept().map(|i| {
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
    if let Some(why) = &current.pause_wanted {
        notes.push(format!("It pauses after this iteration: {why}."));
    }
    let switched = current.current().map(|last| last.served.switched.iter().map(String::as_str).collect::<Vec<_>>());
    notes.extend(switched.filter(|words| !words.is_empty()).map(|words| format!("{}.", words.join("; "))));
    if current.kept().any(|i| i.served.estimated) {
        notes.push("Its cost is an estimate by published prices: the backend does not say what it charges.".into());
    }
    if current.kept().any(|i| i.served.unpriced) {
        notes.push(
            "What it costs is not known: the backend does not say it, nor is there a price for its model.".into(),
        );
    }
    if !current.guidance.is_empty() {
        let waits = match current.guidance.len() {
            1 => "1 piece of guidance waits".to_owned(),
            many => format!("{many} pieces of guidance wait"),
        };
        notes.push(format!("{waits} for the next iteration."));
    }
    notes.extend(current.overruled.iter().map(|note| format!("Of the repository's file, {note}.")));
    let findings = current.findings().len();
    if findings > 0 {
        let changes = if findings == 1 { "1 change".to_owned() } else { format!("{findings} changes") };
        notes.push(format!("{changes} may weaken what measures the work; see the pull request."));
    }
    View::Status(Box::new(StatusView {
        loop_id: current.id.clone(),
        state: current.state.as_str().into(),
        headline: headline(current),
        iteration: current.current().map_or(0, |i| i.number),
        max_iterations: current.limits.iterations,
        completion_percent: current.completion().whole_percent(),
        checks_held,
        checks_total,
        rows: rows.collect(),
        cost: known(current.spent.cost),
        cost_limit: known(current.limits.cost),
        elapsed_s: seconds(current.spent.time_at(now)),
        timeout_s: seconds(current.limits.time_ms),
        branch: branch_link(current),
        pull: pull_link(current),
        dashboard: None,
        course: current.judged().map(course_line),
        detections: open_detections(current),
        notes,
        commands: commands(current),
        sandbox: current.sandbox.clone(),
        backend: served_words(current, backend),
        checks: current.checks.iter().map(|c| c.command.clone()).collect(),
        hidden_removed: current.hidden_removed as usize,
    }))
}

/// Who works on it: the backend of the last run with its model, before the first the one that comes first.
fn served_words(current: &Loop, first: &str) -> String {
    let served = current.kept().rev().map(|i| &i.served).find(|served| !served.backend.is_empty());
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
    }
}

/// How the next iteration goes at the task, in a few words.
fn strategy_words(judged: &IterationJudgement) -> String {
    let way = if judged.way.is_empty() { String::new() } else { format!(", {}", judged.way) };
    let approach = match judged.approach {
        Approach::Persist => "on as before",
        Approach::Pivot => "in another way",
        Approach::Simplify => "in smaller steps",
        Approach::Escalate => "not without a person",
    };
    format!("{approach}{way}")
}

/// What supervision found last, where the loop has not ended.
fn open_detections(current: &Loop) -> Vec<DetectionLine> {
    let judged = current.judged().filter(|_| current.state.is_open() && current.state != LoopState::Review);
    judged.map_or_else(Vec::new, |judged| judged.found.iter().map(detection_line).collect())
}

fn detection_line(found: &JudgedDetection) -> DetectionLine {
    DetectionLine {
        title: found.kind.title().into(),
        severity: found.severity.to_string(),
        level: found.level.name().into(),
        evidence: found.evidence.clone(),
    }
}

fn headline(current: &Loop) -> String {
    if current.state != LoopState::Running {
        return sentence(&current.why);
    }
    let n = current.spent.iterations;
    match current.step {
        LoopStep::Idle => "Between two steps.".into(),
        LoopStep::Prepare => "Getting the work tree ready.".into(),
        LoopStep::Baseline => "Running the checks before the first change.".into(),
        LoopStep::Merge => "Merging the other side.".into(),
        LoopStep::Agent => format!("The agent works on iteration {n}."),
        LoopStep::Commit | LoopStep::Push => format!("Recording iteration {n}."),
        LoopStep::Check => format!("Running the checks of iteration {n}."),
        LoopStep::Restore => "Putting the best iteration's files back.".into(),
        LoopStep::Verify => "Every check passed; running them again in a fresh checkout.".into(),
    }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return String::new() };
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{}{}{end}", first.to_uppercase(), chars.as_str())
}

fn source_words(source: CheckSource) -> &'static str {
    match source {
        CheckSource::Command => "the command",
        CheckSource::Issue => "this issue",
        CheckSource::RepositoryFile => "the repository's file",
        CheckSource::Detected => "found from the tree",
    }
}

/// A check's rule in words.
pub fn rule_words(rule: &CheckRule) -> String {
    match rule {
        CheckRule::ExitCode => "exits with 0".into(),
        CheckRule::EmptyOutput => "exits with 0 and prints nothing".into(),
        CheckRule::Coverage { min, .. } => format!("coverage of at least {} %", min.0),
        CheckRule::Count { at_least, at_most, .. } => match (at_least, at_most) {
            (Some(low), Some(high)) => format!("a count from {low} to {high}"),
            (Some(low), None) => format!("a count of at least {low}"),
            (None, Some(high)) => format!("a count of at most {high}"),
            (None, None) => "a count".into(),
        },
    }
}

fn named_check(check: &Check) -> DetectedCheck {
    DetectedCheck {
        name: check.name.clone(),
        command: check.command.clone(),
        rule: rule_words(&check.rule),
        source: source_words(check.source).into(),
    }
}

/// The first comment.
pub fn started(current: &Loop) -> View {
    View::Started(Box::new(StartedView {
        loop_id: current.id.clone(),
        task_title: current.task.title.clone(),
        started_by: current.requested_by.login.clone(),
        checks: current.checks.iter().map(named_check).collect(),
        detected: current.checks_from == Some(CheckSource::Detected),
        max_iterations: current.limits.iterations,
        timeout_s: seconds(current.limits.time_ms),
        cost_limit: known(current.limits.cost),
        backend: current.options.backend.clone().unwrap_or_default(),
        sandbox: current.sandbox.clone(),
        base_branch: current.base_branch.clone(),
        branch: current.branch.clone(),
        who_may: who_may(&current.policy),
        hidden_removed: current.hidden_removed as usize,
        commands: commands(current),
    }))
}

/// The question for something to verify by; `problems` say what was found and does not hold.
pub fn needs_criteria(current: &Loop, problems: &[String]) -> View {
    let mut looked_at = problems.to_vec();
    if problems.is_empty() {
        if !current.task.author_trusted {
            looked_at.push("this issue's text (its author has no write access, so checks in it do not count)".into());
        } else {
            looked_at.push("a `ralph` block or completion criteria in this issue".into());
        }
        looked_at.push("the repository's file on the default branch".into());
        if current.policy.detect_checks {
            looked_at.push("Cargo.toml, package.json, pyproject.toml, go.mod, Makefile".into());
        }
    }
    View::NeedsCriteria(NeedsCriteriaView {
        loop_id: current.id.clone(),
        looked_at,
        repository_file: ".ralph.yml".into(),
        who_may: who_may(&current.policy),
    })
}

/// The question to confirm a text.
pub fn needs_confirm(current: &Loop) -> View {
    View::NeedsConfirm(NeedsConfirmView {
        loop_id: Some(current.id.clone()),
        reason: Confirm::EditedBefore,
        text: format!("{}\n\n{}", current.task.title, current.task.body),
        hash: current.task.hash.get(..8).unwrap_or_default().into(),
        editor: current.task.unconfirmed_editor.clone(),
    })
}

/// The answer to a command.
pub fn reply(ok: bool, lines: Vec<String>) -> View {
    View::Reply(CommandReply { command: String::new(), ok, lines, nearest: None })
}

/// The commands and who may use them.
pub fn help(policy: &Policy) -> View {
    let limits = &policy.limits;
    let setting = |name: &str, value: String| HelpSetting { name: name.into(), value };
    View::Help(HelpView {
        commands: TABLE.iter().map(|row| hint(row.usage, row.help)).collect(),
        settings: vec![
            setting("iterations at most", limits.iterations.to_string()),
            setting("time at most", format!("{} min", limits.timeout_s / 60)),
            setting("money at most", limits.cost.to_string()),
            setting("loops at the same time", limits.loops.to_string()),
        ],
        who_may: who_may(policy),
        version: concat!("ralph-bot ", env!("CARGO_PKG_VERSION")).into(),
    })
}

/// The repository's file does not hold.
pub fn repository_file(current: &Loop, path: &str, problems: &[String]) -> View {
    View::RepositoryFileError(RepositoryFileErrorView {
        loop_id: Some(current.id.clone()),
        path: path.into(),
        error: problems.join("\n"),
    })
}

/// Nothing can run until a moment; `tells` says whether whoever started the loop is to know.
pub fn waiting(current: &Loop, until: Timestamp, tells: bool) -> View {
    let who = Some(&current.requested_by).filter(|who| tells && who.kind == AccountKind::User);
    View::Waiting(WaitingView {
        loop_id: current.id.clone(),
        reason: sentence(&current.why),
        until: moment(until),
        wait_s: seconds(until.since(current.updated_at).max(0)),
        mention: who.map(|who| who.login.clone()),
        commands: commands(current),
    })
}

/// A moment for people, to the minute.
pub fn moment(at: Timestamp) -> String {
    let utc = jiff::Timestamp::from_millisecond(at.0).map(|at| at.strftime("%Y-%m-%d %H:%M UTC").to_string());
    utc.unwrap_or_else(|_| at.0.to_string())
}

/// The comment of the newest iteration.
pub fn iteration(current: &Loop) -> Option<View> {
    let last = current.current()?;
    let before =
        current.measured().rev().find(|i| i.number < last.number && i.ended_at.is_some()).map(|i| i.completion);
    let before = before.or_else(|| current.baseline.as_ref().map(|_| current.completion_at_start()));
    let (files, more_files) = file_lines(&last.stat);
    let summary = if last.report.summary.trim().is_empty() { &last.message } else { &last.report.summary };
    let page = repository_page(current);
    Some(View::Iteration(Box::new(IterationView {
        loop_id: current.id.clone(),
        n: last.number,
        max: current.limits.iterations,
        approach: last.report.approach.clone(),
        summary: summary.clone(),
        files,
        more_files,
        checks: check_lines(&last.checks),
        completion_percent: last.completion.whole_percent(),
        previous_percent: before.map(|c| c.whole_percent()),
        learnings: last.report.learnings.clone(),
        blockers: last.report.blockers.clone(),
        next: next_words(current, last),
        strategy: last
            .judged
            .as_ref()
            .filter(|_| goes_on(current, last))
            .map_or_else(String::new, |judged| format!("{}, because {}", strategy_words(judged), judged.reasoning)),
        detections: last.judged.iter().flat_map(|judged| &judged.found).map(detection_line).collect(),
        findings: last.findings.clone(),
        restored_paths: last.restored.clone(),
        refused_hosts: refused_hosts(current, last),
        commit: last.commit.as_ref().map(|sha| link(sha.short(), format!("{page}/commit/{sha}"))),
        agent_problem: Some(last.agent_problem.clone()).filter(|text| !text.is_empty()),
        duration_s: duration_s(last, current.updated_at),
        cost: known(last.cost),
    })))
}

/// Hosts that the agent was kept from for the first time in this loop.
fn refused_hosts(current: &Loop, last: &Iteration) -> Vec<String> {
    let before = |host: &&String| {
        current.iterations.iter().filter(|i| i.number < last.number).any(|i| i.refused_hosts.contains(host))
    };
    last.refused_hosts.iter().filter(|host| !before(host)).cloned().collect()
}

/// Whether another iteration may follow.
fn goes_on(current: &Loop, last: &Iteration) -> bool {
    last.number < current.limits.iterations && (!last.checks.all_hold() || !current.guidance.is_empty())
}

fn next_words(current: &Loop, last: &Iteration) -> String {
    if last.checks.all_hold() && current.guidance.is_empty() {
        return "Every check holds; they run once more in a fresh checkout.".into();
    }
    if last.checks.all_hold() {
        return "Every check holds; what people asked for meanwhile comes next.".into();
    }
    if last.number >= current.limits.iterations {
        return "That was the last iteration of its limit.".into();
    }
    let failing: Vec<_> = last.checks.outcomes.iter().filter(|o| !o.holds).map(|o| format!("`{}`", o.name)).collect();
    format!("Make {} hold.", failing.join(", "))
}

/// What came of an iteration, in a few words.
pub fn outcome_words(iteration: &Iteration) -> String {
    let failing: Vec<_> = iteration.checks.outcomes.iter().filter(|o| !o.holds).map(|o| o.name.as_str()).collect();
    match (iteration.checks.outcomes.is_empty(), failing.is_empty()) {
        (true, _) => "its checks did not run".into(),
        (false, true) => "every check held".into(),
        (false, false) => format!("still failing: {}", failing.join(", ")),
    }
}
