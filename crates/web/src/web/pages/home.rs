//! Home page: loops that wait for people, with evidence and possible answers, then all other loops.

use std::sync::Arc;

use axum::extract::Query;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::answers::AnswerForm;
use super::layout::{
    self, PageDef, PageError, PageFrame, PageNav, PageRights, beginning, opened, page_template, segment,
};
use super::{answers, live};
use crate::domain::loops::{Loop, LoopState};
use crate::domain::model::ids::{RepoRef, Timestamp};
use crate::domain::providers::backends::{BackendStatus, Backends};
use crate::domain::report;
use crate::domain::report::view::View;
use crate::domain::trust::viewer::ViewRight;
use crate::store::listing::{self, LoopFilter, LoopRow, RepoScope};
use crate::store::{StoreResult, calls, loops};
use crate::web::{Viewer, WebState};

/// Row of the page.
pub(super) static PAGE: PageDef = PageDef {
    route: "/",
    template: page_template!("home.html"),
    title: "Loops",
    nav: PageNav::Entry("Loops"),
    rights: PageRights::Viewer,
    show: |page| opened(page, show),
};

/// Maximum number of waiting loops per page. The page reads each of them completely.
const WAITING_SHOWN: usize = 8;
/// Maximum number of rows in a paginated list, and in any other list.
const ROWS_SHOWN: usize = 25;
const FIRST_SHOWN: usize = 15;
/// Maximum length of output shown as evidence, in characters.
const OUTPUT_SHOWN: usize = 600;
/// Maximum size of a plan or task and of any other text, in bytes, and maximum number of list entries.
const TEXT_SHOWN: usize = 2_500;
const LINE_SHOWN: usize = 400;
const ENTRIES_SHOWN: usize = 5;

/// Query of the home page.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct HomeQuery {
    /// Name of a forge.
    forge: String,
    /// `forge:owner/name`.
    repository: String,
    /// Name of a state.
    state: String,
    /// Login of a person.
    person: String,
    /// 1-based page number of the finished loops, or of the loops in the selected state.
    page: usize,
    /// 1-based page number of the waiting loops.
    waiting: usize,
}

impl HomeQuery {
    /// Returns the address of the page with other page numbers.
    fn address(&self, page: usize, waiting: usize) -> String {
        let values = [
            ("forge", self.forge.clone()),
            ("repository", self.repository.clone()),
            ("state", self.state.clone()),
            ("person", self.person.clone()),
            ("page", if page > 1 { page.to_string() } else { String::new() }),
            ("waiting", if waiting > 1 { waiting.to_string() } else { String::new() }),
        ];
        let given = values.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = given.map(|(name, value)| format!("{name}={}", segment(value))).collect();
        if query.is_empty() { "/".to_owned() } else { format!("/?{}", query.join("&")) }
    }
}

/// List of loops with a title.
struct LoopGroup {
    title: &'static str,
    states: &'static [LoopState],
    paged: bool,
}

/// Lists below the loops that wait for people.
const GROUPS: [LoopGroup; 4] = [
    LoopGroup { title: "Running now", states: &[LoopState::Running, LoopState::Waiting], paged: false },
    LoopGroup { title: "Queued", states: &[LoopState::Queued], paged: false },
    LoopGroup { title: "In review", states: &[LoopState::Review], paged: false },
    LoopGroup { title: "Ended", states: &[LoopState::Merged, LoopState::Closed, LoopState::Aborted], paged: true },
];

/// Returns the repositories with loops visible to the viewer, each with the viewer's right.
pub(super) async fn visible(state: &WebState, viewer: &Viewer) -> Result<Vec<(RepoRef, ViewRight)>, PageError> {
    let repositories = state.engine.store.read(listing::repositories).await?;
    let rights = state.access.rights(&state.engine, viewer, &repositories).await;
    Ok(repositories.into_iter().zip(rights).filter(|(_, right)| *right >= ViewRight::Read).collect())
}

/// Data of the page. Addresses of previous and next pages are empty if there are none.
#[derive(Debug, Serialize)]
struct HomeView<'a> {
    waiting: Vec<WaitingLoop<'a>>,
    /// Number of waiting loops that match the filters.
    waiting_count: i64,
    waiting_previous: String,
    waiting_next: String,
    /// Number of all waiting loops.
    all_waiting: u64,
    absent: Vec<AbsentForge>,
    stopped: Vec<StoppedBackend<'a>>,
    lists: Vec<LoopList<'a>>,
    query: HomeChoice<'a>,
    forges: Vec<&'a str>,
    repositories: Vec<String>,
    states: [&'static str; LoopState::ALL.len()],
}

/// Selected filters; empty values select everything.
#[derive(Debug, Serialize)]
struct HomeChoice<'a> {
    forge: &'a str,
    repository: &'a str,
    state: &'a str,
    person: &'a str,
}

/// List of loops.
#[derive(Debug, Serialize)]
struct LoopList<'a> {
    title: &'static str,
    rows: Vec<LoopLine<'a>>,
    count: i64,
    shown: usize,
    previous: String,
    next: String,
}

/// Row of a list. The cost is in millionths of a dollar, and the time in milliseconds.
#[derive(Debug, Serialize)]
struct LoopLine<'a> {
    id: &'a str,
    state: &'static str,
    title: &'a str,
    repository: String,
    issue: u64,
    iteration: u32,
    max_iterations: Option<u32>,
    cost: i64,
    person: &'a str,
    updated_at: i64,
}

/// Unavailable forge.
#[derive(Debug, Serialize)]
struct AbsentForge {
    forge: String,
    /// Whether the forge rejects the credential.
    refused: bool,
    /// Whether its deliveries wait.
    waits: bool,
    /// Response of the forge; empty for viewers who are not operators.
    detail: String,
}

/// Backend that is cooling down, or disabled until a person acts.
#[derive(Debug, Serialize)]
struct StoppedBackend<'a> {
    name: &'a str,
    state: &'static str,
    /// End of the cool-down, in milliseconds.
    until: Option<i64>,
    reason: String,
}

/// Loop that waits for a person.
#[derive(Debug, Serialize)]
struct WaitingLoop<'a> {
    id: &'a str,
    state: String,
    title: &'a str,
    repository: String,
    issue: u64,
    url: &'a str,
    headline: String,
    person: &'a str,
    iteration: u32,
    max_iterations: Option<u32>,
    percent: u8,
    cost: i64,
    since: i64,
    /// Address of the pull request.
    pull: Option<&'a str>,
    detections: Vec<WaitingDetection>,
    checks: Vec<FailedCheckLine<'a>>,
    /// Task to confirm; empty if there is none or the viewer must not read it.
    task_text: String,
    plan: Option<ShownPlan>,
    answers: Vec<AnswerForm>,
}

/// Open detection.
#[derive(Debug, Serialize)]
struct WaitingDetection {
    level: String,
    title: String,
    severity: String,
    evidence: String,
}

/// Failed check.
#[derive(Debug, Serialize)]
struct FailedCheckLine<'a> {
    name: &'a str,
    why: String,
    /// End of the output; empty if the viewer must not read it.
    output: String,
}

/// Plan that waits for approval.
#[derive(Debug, Serialize)]
struct ShownPlan {
    plan_text: String,
}

/// Returns the page.
async fn show(state: Arc<WebState>, viewer: Viewer, Query(query): Query<HomeQuery>) -> Result<Response, PageError> {
    let state = &*state;
    let viewer = &viewer;
    let query = &query;
    let position = live::position(state).await?;
    let visible = visible(state, viewer).await?;
    let chosen = visible.iter().filter(|(repo, _)| {
        (query.forge.is_empty() || repo.forge.as_str() == query.forge)
            && (query.repository.is_empty() || repo.to_string() == query.repository)
    });
    let whole = viewer.operator && query.forge.is_empty() && query.repository.is_empty();
    let scope = match whole {
        true => RepoScope::All,
        false => RepoScope::Only(chosen.map(|(repo, _)| (repo.forge.clone(), repo.id)).collect()),
    };
    let filter = LoopFilter {
        person: Some(query.person.trim().to_owned()).filter(|person| !person.is_empty()),
        ..LoopFilter::of(scope)
    };
    let wanted = wanted_state(&query.state)?;
    let all_waits: Vec<LoopState> = LoopState::ALL.into_iter().filter(|known| report::wants_person(*known)).collect();
    let waits: Vec<LoopState> =
        all_waits.iter().copied().filter(|known| wanted.is_none_or(|wanted| wanted == *known)).collect();
    let unfiltered = LoopFilter { states: all_waits, ..LoopFilter::of(whole_scope(viewer, &visible)) };
    let (page, page_of_waiting) = (query.page.max(1), query.waiting.max(1));
    let groups = groups(wanted);
    let read = state.engine.store.read(move |c| {
        let in_states = |states: Vec<LoopState>, offset: usize, limit: usize| -> StoreResult<(Vec<LoopRow>, i64)> {
            // A filter without states selects all of them.
            if states.is_empty() {
                return Ok((Vec::new(), 0));
            }
            let filter = LoopFilter { states, ..filter.clone() };
            let count: u64 = listing::counts(c, &filter)?.iter().map(|(_, count)| count).sum();
            Ok((listing::slice(c, &filter, offset, limit)?, i64::try_from(count).unwrap_or(i64::MAX)))
        };
        let all: u64 = listing::counts(c, &unfiltered)?.iter().map(|(_, count)| count).sum();
        let offset = (page_of_waiting - 1).saturating_mul(WAITING_SHOWN);
        let (waiting, count) = in_states(waits, offset, WAITING_SHOWN)?;
        let waiting: Vec<Loop> =
            waiting.iter().filter_map(|row| loops::get(c, &row.id).transpose()).collect::<Result<_, _>>()?;
        let mut lists: Vec<(&'static str, Vec<LoopRow>, i64, bool)> = Vec::new();
        for (title, states, paged) in groups {
            let (offset, shown) =
                if paged { ((page - 1).saturating_mul(ROWS_SHOWN), ROWS_SHOWN) } else { (0, FIRST_SHOWN) };
            let (rows, count) = in_states(states, offset, shown)?;
            lists.push((title, rows, count, paged));
        }
        Ok((waiting, (count, all), lists, calls::state(c)?))
    });
    let (waiting, (waiting_count, all_waiting), lists, backends) = read.await?;
    let now = state.engine.clock.now();
    let asking: Vec<RepoRef> = waiting.iter().map(|current| current.issue.repo.clone()).collect();
    let presses = state.access.may_press(&state.engine, viewer, &asking).await;
    let right_of = |repo: &RepoRef| {
        let found = visible.iter().find(|(known, _)| known.forge == repo.forge && known.id == repo.id);
        found.map_or(ViewRight::None, |(_, right)| *right)
    };
    let icon = if all_waiting > 0 { "icon-waiting.svg" } else { icon_of_lists(&lists) };
    let waiting = waiting.iter().zip(presses);
    let lists = lists.iter().map(|(title, rows, count, paged)| LoopList {
        title,
        rows: rows.iter().map(line).collect(),
        count: *count,
        shown: rows.len(),
        previous: if *paged { previous(page, |p| query.address(p, page_of_waiting)) } else { String::new() },
        next: match paged {
            true => next(page, ROWS_SHOWN, *count, |p| query.address(p, page_of_waiting)),
            false => String::new(),
        },
    });
    let view = HomeView {
        waiting: waiting
            .filter_map(|(current, presses)| asked(current, right_of(&current.issue.repo), presses, now))
            .collect(),
        waiting_count,
        waiting_previous: previous(page_of_waiting, |p| query.address(page, p)),
        waiting_next: next(page_of_waiting, WAITING_SHOWN, waiting_count, |p| query.address(page, p)),
        all_waiting,
        absent: absent(state, viewer),
        stopped: if viewer.operator { stopped(state, &backends, now) } else { Vec::new() },
        lists: lists.collect(),
        query: HomeChoice {
            forge: &query.forge,
            repository: &query.repository,
            state: &query.state,
            person: &query.person,
        },
        forges: forges(&visible),
        repositories: visible.iter().map(|(repo, _)| repo.to_string()).collect(),
        states: LoopState::ALL.map(LoopState::as_str),
    };
    let title = match all_waiting {
        0 => PAGE.title.to_owned(),
        count => format!("({count}) Loops"),
    };
    let frame =
        PageFrame { title, here: query.address(page, page_of_waiting), feed: live::address("", position), icon };
    Ok(layout::page_in(state, viewer, &PAGE, &frame, &view, Vec::new()))
}

/// Returns the title and states of each list, and whether it is paginated. Omits lists that the state filter excludes.
fn groups(wanted: Option<LoopState>) -> Vec<(&'static str, Vec<LoopState>, bool)> {
    let is_wanted = |known: &LoopState| wanted.is_none_or(|wanted| wanted == *known);
    let groups = GROUPS.iter().map(|group| {
        let states = group.states.iter().copied().filter(is_wanted);
        (group.title, states.collect::<Vec<_>>(), group.paged)
    });
    groups.filter(|(_, states, _)| !states.is_empty()).collect()
}

fn line(row: &LoopRow) -> LoopLine<'_> {
    LoopLine {
        id: row.id.as_str(),
        state: row.state.as_str(),
        title: &row.title,
        repository: row.repo.to_string(),
        issue: row.issue.0,
        iteration: row.iterations,
        max_iterations: row.max_iterations.count(),
        cost: row.cost.0,
        person: &row.person.login,
        updated_at: row.updated_at.0,
    }
}

fn icon_of_lists(lists: &[(&'static str, Vec<LoopRow>, i64, bool)]) -> &'static str {
    let runs = lists.iter().any(|(title, rows, ..)| *title == GROUPS[0].title && !rows.is_empty());
    if runs { "icon-running.svg" } else { "icon-rest.svg" }
}

/// Parses a state name; `None` for an empty name.
fn wanted_state(name: &str) -> Result<Option<LoopState>, PageError> {
    if name.is_empty() {
        return Ok(None);
    }
    let found = LoopState::ALL.into_iter().find(|known| known.as_str() == name);
    let known = || LoopState::ALL.map(LoopState::as_str).join(", ");
    found.map(Some).ok_or_else(|| PageError::Invalid(format!("The state is none of {}.", known())))
}

/// Returns the scope of all repositories visible to the viewer.
fn whole_scope(viewer: &Viewer, visible: &[(RepoRef, ViewRight)]) -> RepoScope {
    match viewer.operator {
        true => RepoScope::All,
        false => RepoScope::Only(visible.iter().map(|(repo, _)| (repo.forge.clone(), repo.id)).collect()),
    }
}

/// Returns the unavailable forges, for operators and for people of such a forge. Only operators see the forge's response.
fn absent(state: &WebState, viewer: &Viewer) -> Vec<AbsentForge> {
    let absences = state.engine.forges.absent_forges().into_iter().filter(|absence| viewer.hears_of(&absence.forge));
    let shown = absences.map(|absence| {
        let detail = if viewer.operator { absence.detail } else { String::new() };
        AbsentForge {
            forge: absence.forge.to_string(),
            refused: absence.refused,
            waits: absence.waits,
            detail: beginning(&detail, LINE_SHOWN),
        }
    });
    shown.collect()
}

/// Returns the backends that are cooling down or disabled until a person acts.
fn stopped<'a>(state: &WebState, backends: &'a Backends, now: Timestamp) -> Vec<StoppedBackend<'a>> {
    let configured = &state.engine.calls.settings.backends.backends;
    let known = backends.backends.iter().filter(|(name, _)| configured.contains_key(*name));
    let stopped = known.filter_map(|(name, backend)| {
        let (until, reason) = match &backend.status {
            BackendStatus::Parked(park) if park.until > now => (Some(park.until.0), &park.reason),
            BackendStatus::Disabled { reason, .. } => (None, reason),
            _ => return None,
        };
        Some(StoppedBackend { name, state: backend.status.word(now), until, reason: beginning(reason, LINE_SHOWN) })
    });
    stopped.collect()
}

/// Returns the names of the repositories' forges.
pub(super) fn forges(visible: &[(RepoRef, ViewRight)]) -> Vec<&str> {
    let mut names: Vec<&str> = visible.iter().map(|(repo, _)| repo.forge.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the address of the previous page; empty on the first page.
pub(super) fn previous(page: usize, address: impl Fn(usize) -> String) -> String {
    if page > 1 { address(page - 1) } else { String::new() }
}

/// Returns the address of the next page; empty on the last page.
pub(super) fn next(page: usize, shown: usize, count: i64, address: impl Fn(usize) -> String) -> String {
    let seen = i64::try_from(page.saturating_mul(shown)).unwrap_or(i64::MAX);
    if seen < count { address(page.saturating_add(1)) } else { String::new() }
}

/// Returns the data of a waiting loop, with the evidence for its reason and the answers that are useful now.
fn asked(current: &Loop, right: ViewRight, presses: bool, now: Timestamp) -> Option<WaitingLoop<'_>> {
    let View::Status(status) = report::status(current, "", now) else { return None };
    let writes = right >= ViewRight::Write;
    let failing = current.latest_checks().into_iter().flat_map(|report| &report.outcomes).filter(|check| !check.holds);
    let checks = failing.take(3).map(|check| FailedCheckLine {
        name: &check.name,
        why: beginning(&check.why, LINE_SHOWN),
        output: if writes { last_part(&check.output) } else { String::new() },
    });
    let detections = status.detections.iter().take(ENTRIES_SHOWN).map(|found| WaitingDetection {
        level: found.level.clone(),
        title: found.title.clone(),
        severity: found.severity.clone(),
        evidence: beginning(&found.evidence, LINE_SHOWN),
    });
    let plan = status.plan.as_ref().filter(|_| writes);
    Some(WaitingLoop {
        id: current.id.as_str(),
        state: status.state.clone(),
        title: current.task.text.title(),
        repository: current.issue.repo.to_string(),
        issue: current.issue.issue.0,
        url: &current.task.url,
        headline: beginning(&status.headline, LINE_SHOWN),
        person: &current.people.requested_by.login,
        iteration: status.iteration,
        max_iterations: status.max_iterations,
        percent: status.completion_percent,
        cost: current.spent.cost.0,
        since: current.updated_at.0,
        pull: current.pull.opened.as_ref().map(|pull| pull.url.as_str()),
        detections: detections.collect(),
        checks: checks.collect(),
        task_text: match current.state == LoopState::NeedsConfirm && writes {
            true => beginning(&status.task_text, TEXT_SHOWN),
            false => String::new(),
        },
        plan: plan.map(|plan| ShownPlan { plan_text: beginning(&plan.plan_text, TEXT_SHOWN) }),
        answers: if presses { status.commands.iter().map(answers::form).collect() } else { Vec::new() },
    })
}

/// Returns the end of an output, starting at a line break.
fn last_part(output: &str) -> String {
    let output = output.trim_end();
    let skipped = output.chars().count().saturating_sub(OUTPUT_SHOWN);
    if skipped == 0 {
        return output.to_owned();
    }
    let end: String = output.chars().skip(skipped).collect();
    end.split_once('\n').map_or(end.clone(), |(_, whole)| whole.to_owned())
}
