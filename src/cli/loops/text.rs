//! Output texts of `ralph-bot loops`, for data from the database or the API.

use crate::cli::{CliError, moment, one_line, table};
use crate::domain::knowledge::intelligence::ClaimSums;
use crate::domain::knowledge::session::SessionTurn;
use crate::domain::loops::{Loop, LoopInput};
use crate::domain::model::ids::Timestamp;
use crate::domain::report::control_words;
use crate::domain::report::loop_report::LoopReport;
use crate::domain::supervision::oversight::{AuditEntry, InterventionLevel, OversightReport};
use crate::store::audit::AuditLine;
use crate::store::calls::CallRecord;
use crate::store::listing::LoopRow;
use crate::store::loops::LogLine;
use crate::store::outbox::EffectRow;

use super::details::{opinion_lines, opinions, plan_lines};
use super::failed;

/// Maximum length of a reason in the table, in characters.
const REASON_MAX: usize = 60;

/// Data of a loop that `ralph-bot loops show` prints.
pub(super) struct LoopRecord {
    pub current: Loop,
    pub calls: Vec<CallRecord>,
    pub history: Vec<LogLine>,
    pub effects: Vec<EffectRow>,
    pub trail: Vec<AuditLine>,
}

/// Summaries of oversight, each with its scope.
pub(super) type OversightSums = Vec<(String, OversightReport, ClaimSums)>;

/// Formats a list of loops.
pub(super) fn list(rows: &[LoopRow], all: bool, json: bool, now: Timestamp) -> String {
    if json {
        return rows.iter().map(|row| format!("{}\n", summary(row, now))).collect();
    }
    if rows.is_empty() {
        return if all { "no loops\n" } else { "no open loops; --all includes loops that ended\n" }.to_owned();
    }
    let header = ["LOOP", "STATE", "ISSUE", "ITERATION", "DONE", "COST", "AGE", "REASON"].map(str::to_owned);
    let rows = std::iter::once(header).chain(rows.iter().map(|row| cells(row, now)));
    table(&rows.collect::<Vec<_>>())
}

/// Formats the prompts of an iteration.
pub(super) fn prompts(turns: &[SessionTurn], json: bool) -> Result<String, CliError> {
    if json {
        return Ok(format!("{}\n", serde_json::to_value(turns).map_err(failed)?));
    }
    let told = turns.iter().map(|turn| {
        let model = turn.model.as_ref().map_or_else(String::new, |model| format!(" ({model})"));
        let head = format!("{} of {}{model}, attempt {}", turn.role.as_str(), turn.backend, turn.attempt);
        format!("{head}, {}\n\n{}\n", moment(turn.started), printable(&turn.prompt))
    });
    Ok(told.collect::<Vec<_>>().join("\n"))
}

/// Formats the report on a loop: Markdown, or JSON.
pub(super) fn report(report: &LoopReport, json: bool) -> Result<String, CliError> {
    match json {
        true => Ok(format!("{}\n", serde_json::to_value(report).map_err(failed)?)),
        false => Ok(report.markdown()),
    }
}

/// Formats a loop as JSON. Reports and the log are included only on request.
pub(super) fn record_json(
    record: &LoopRecord,
    reports: Option<&OversightSums>,
    audit: bool,
    now: Timestamp,
) -> Result<String, CliError> {
    let mut value = summary(&LoopRow::of(&record.current), now);
    if let Some(map) = value.as_object_mut() {
        map.insert("loop".into(), serde_json::to_value(&record.current).map_err(failed)?);
        map.insert("calls".into(), serde_json::to_value(&record.calls).map_err(failed)?);
        let given = opinions(&record.current, &record.history);
        map.insert("second_opinions".into(), serde_json::to_value(&given).map_err(failed)?);
        if let Some(reports) = reports {
            let reports: serde_json::Map<_, _> = reports
                .iter()
                .map(|(of, report, claims)| {
                    let mut value = serde_json::to_value(report)?;
                    value["claims"] = serde_json::to_value(claims)?;
                    Ok((of.clone(), value))
                })
                .collect::<Result<_, serde_json::Error>>()
                .map_err(failed)?;
            map.insert("report".into(), reports.into());
        }
        if audit {
            map.insert("audit".into(), serde_json::to_value(&record.trail).map_err(failed)?);
            map.insert("events".into(), serde_json::to_value(&record.history).map_err(failed)?);
            map.insert("effects".into(), serde_json::to_value(&record.effects).map_err(failed)?);
        }
    }
    Ok(format!("{value}\n"))
}

/// Formats a loop.
pub(super) fn record_text(record: &LoopRecord, reports: Option<&OversightSums>, audit: bool, now: Timestamp) -> String {
    let mut text = details(&record.current, now);
    text.push_str(&opinion_lines(&record.current, &opinions(&record.current, &record.history)));
    text.push_str(&calls_table(&record.calls));
    for (of, report, claims) in reports.into_iter().flatten() {
        text.push_str(&format!("\n{of}\n{report}"));
        text.extend(claims.words().map(|words| words + "\n"));
    }
    if !audit {
        return text;
    }
    text.push_str("\nDecisions:\n");
    for line in &record.trail {
        let AuditEntry { iteration, level, reason, .. } = &line.entry;
        let level = level.map_or("-", InterventionLevel::name);
        text.push_str(&format!("  {} {iteration:>4} {level:<8} {}\n", moment(line.at), one_line(reason)));
    }
    text.push_str("\nEvents:\n");
    for line in &record.history {
        let reasons = one_line(&line.reasons.join("; "));
        text.push_str(&format!("  {} {:>4} {}: {reasons}\n", moment(line.at), line.seq, input_name(&line.input)));
    }
    text.push_str("\nEffects:\n");
    for effect in &record.effects {
        let receipt = one_line(effect.receipt.as_deref().unwrap_or("-"));
        let tries = if effect.attempts > 1 { format!(" ({} tries)", effect.attempts) } else { String::new() };
        let (at, key, state) = (moment(effect.created_at), &effect.key, &effect.state);
        text.push_str(&format!("  {at} {key}: {state}{tries}: {receipt}\n"));
    }
    text
}

/// Formats the answer to a command.
pub(super) fn answer(id: &str, state: &str, taken: bool, says: &str, json: bool) -> String {
    if json {
        let line = serde_json::json!({ "id": id, "state": state, "taken": taken, "says": says });
        return format!("{line}\n");
    }
    format!("{id} is {state}: {says}\n")
}

/// Formats a loop of a list as JSON.
fn summary(row: &LoopRow, now: Timestamp) -> serde_json::Value {
    serde_json::json!({
        "id": row.id,
        "state": row.state,
        "repository": row.repo.to_string(),
        "issue": row.issue,
        "title": row.title,
        "iteration": row.iterations,
        "max_iterations": row.max_iterations.count(),
        "completion": row.completion,
        "cost_usd": row.cost.usd(),
        "age_s": now.since(row.created_at) / 1000,
        "branch": row.branch,
        "pull": row.pull,
        "why": row.reason,
    })
}

fn cells(row: &LoopRow, now: Timestamp) -> [String; 8] {
    let why = one_line(&row.reason);
    let cut = if why.chars().count() > REASON_MAX {
        format!("{}…", why.chars().take(REASON_MAX).collect::<String>())
    } else {
        why
    };
    [
        row.id.to_string(),
        row.state.as_str().to_owned(),
        one_line(&format!("{}#{}", row.repo, row.issue)),
        row.max_iterations.progress(row.iterations).replace(" of ", "/"),
        format!("{}%", row.completion.whole_percent()),
        row.cost.to_string(),
        age(now.since(row.created_at)),
        cut,
    ]
}

/// Removes control characters from foreign text, so that it is safe on terminals; keeps line breaks and tabs.
fn printable(text: &str) -> String {
    text.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}

/// Formats the calls of a loop and their costs; empty if there are none.
fn calls_table(booked: &[CallRecord]) -> String {
    let mut text = String::new();
    for call in booked {
        let model = call.model.as_ref().map_or_else(String::new, |model| format!(" ({model})"));
        let about = if call.estimated { "about " } else { "" };
        let (at, outcome) = (moment(call.started_at), call.outcome.as_deref().unwrap_or("in progress"));
        text.push_str(&format!(
            "  {at} {:>4} {} by {}{model}: {outcome}, {about}{}, {} tokens\n",
            call.iteration,
            call.purpose,
            call.backend,
            call.cost,
            call.usage.total(),
        ));
    }
    if text.is_empty() { text } else { format!("\nCalls:\n{text}") }
}

/// Formats a time span in its largest unit.
pub(super) fn age(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns the name of an input in the log.
fn input_name(input: &LoopInput) -> String {
    let value = serde_json::to_value(input).unwrap_or_default();
    let word = |key: &str| value.get(key).and_then(serde_json::Value::as_str).map(str::to_owned);
    let inner = value.get("command").and_then(|c| c.get("command")).and_then(serde_json::Value::as_str);
    let name = word("input").unwrap_or_else(|| "input".into());
    inner.map_or(name.clone(), |command| format!("{name} {command}"))
}

/// Formats the state of a loop, its plan, checks and iterations.
pub(super) fn details(current: &Loop, now: Timestamp) -> String {
    let mut text = String::new();
    let mut say = |name: &str, value: &str| text.push_str(&format!("{name:11} {}\n", one_line(value)));
    say("loop", current.id.as_str());
    say("state", current.state.as_str());
    say("reason", &current.why);
    say("issue", &format!("{}#{} {}", current.issue.repo, current.issue.issue, current.task.text.title()));
    say("page", &current.task.url);
    let (least, most) = current.usual_iterations();
    let iteration = current.limits.iterations.progress(current.spent.iterations);
    say("iteration", &format!("{iteration} (typical for {}: {least} to {most})", current.task_type().as_str()));
    if let Some(judged) = current.judged() {
        say("health", judged.health.word());
        say("alarms", &control_words::raised(current.retained_iterations().filter_map(|i| i.judged.as_ref())));
    }
    say("completion", &format!("{}%", current.completion().whole_percent()));
    say("cost", &format!("{} of {}", current.spent.cost, current.limits.cost));
    say("time", &format!("{} of {}", age(current.spent.time_at(now)), age(current.limits.time_ms)));
    say("branch", &format!("{} from {}", current.branch.name, current.branch.base_branch));
    say("pull", current.pull.opened.as_ref().map_or("none", |pull| pull.url.as_str()));
    for refused in &current.pull.refused {
        say("refused", &refused.words());
    }
    say("authority", &current.people.authority.login);
    say("sandbox", &current.agent.sandbox);
    if let Some(words) = ClaimSums::of(current).words() {
        say("claims", &words);
    }
    text.push_str(&plan_lines(current));
    text.push_str("\nChecks:\n");
    let latest = current.latest_checks();
    for check in &current.checks.list {
        let outcome = latest.and_then(|report| report.outcomes.iter().find(|o| o.name == check.name));
        let word = match outcome {
            Some(outcome) if outcome.holds => "passed".to_owned(),
            Some(outcome) => format!("failed: {}", outcome.why),
            None => "not run yet".to_owned(),
        };
        text.push_str(&format!("  {}: {}\n", one_line(&check.command), one_line(&word)));
    }
    text.push_str("\nIterations:\n");
    for i in &current.iterations {
        let (checks, held) = (i.checks.outcomes.len(), i.checks.held());
        let (added, removed) = i.stat.lines();
        let said = if i.report.summary.is_empty() { &i.agent_problem } else { &i.report.summary };
        let thrown = if i.discarded { " (discarded)" } else { "" };
        let commit = i.commit.as_ref().map_or("no commit", |sha| sha.short());
        text.push_str(&format!(
            "  {}{thrown}: {held} of {checks} checks, +{added} -{removed} in {} files, {commit}, {}, {}: {}\n",
            i.number,
            i.stat.files.len(),
            i.cost,
            age(i64::try_from(i.agent_ms).unwrap_or(i64::MAX)),
            one_line(said),
        ));
        let judgement = i.judged.iter().flat_map(control_words::lines);
        text.extend(judgement.map(|line| format!("     {}\n", one_line(&line))));
    }
    text
}
