//! Tests of query plans: no statement of pages or the API reads a whole table that grows with loops, transcripts or
//! deliveries.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use super::data;
use crate::domain::knowledge::memory::correct;
use crate::domain::knowledge::session::{EventKind, SessionEvent, SessionTurn, TurnRole};
use crate::domain::loops::{LoopStart, LoopState, LoopTask, RunOptions, TaskText};
use crate::domain::model::ids::{
    AccountKind, ForgeName, IssueRef, LoopId, Money, Number, RepoId, RepoRef, Timestamp, User, UserId,
};
use crate::domain::trust::policy::Policy;
use crate::store::costs::{self, CostGroup};
use crate::store::feed::{self, FeedPosition};
use crate::store::listing::{self, LoopFilter, RepoScope};
use crate::store::memory::{self, proposals};
use crate::store::session::{self, NewEvent, NewTurn, TextKind, TextQuery, TextRow};
use crate::store::sql::Connection;
use crate::store::tokens::{self, TokenOwner};
use crate::store::{Store, StoreResult, access_audit, audit, calls, forge_state, inbox, loops, web_sessions};

/// Tables that grow without limit.
const LARGE: [&str; 23] = [
    "loops",
    "loop_summaries",
    "loop_events",
    "loop_numbers",
    "inputs",
    "outbox",
    "posted",
    "heard",
    "audit",
    "inbox",
    "session_turns",
    "session_events",
    "session_output",
    "session_summaries",
    "calls",
    "daily_costs",
    "learnings",
    "prompt_learnings",
    "learnings_outcomes",
    "reflections",
    "issue_labels",
    "issue_edits",
    "issue_texts",
];
/// Allowed scans that stop at a limit or read no rows: table or index, and part of the statement.
const WALKS: [(&str, &str); 5] = [
    ("loop_summaries", "ORDER BY s.id DESC LIMIT"),
    ("loop_summaries", "ORDER BY forge, repo_id LIMIT 1"),
    ("inbox", "ORDER BY id DESC LIMIT"),
    // Covering indexes without bodies.
    ("inbox", "SELECT state, count(*) FROM inbox WHERE state <> 'new' GROUP BY state"),
    ("inputs", "WHERE done = 0"),
];

thread_local! {
    static SEEN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

fn note(event: TraceEvent<'_>) {
    if let TraceEvent::Stmt(statement, _) = event {
        SEEN.with(|seen| seen.borrow_mut().insert(statement.sql().into_owned()));
    }
}

/// Returns the large tables that a statement scans completely according to its plan.
fn scanned(c: &Connection, sql: &str) -> Vec<String> {
    static TABLE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?i)\b(?:FROM|JOIN)\s+(\w+)(?:\s+(?:AS\s+)?(\w+))?").expect("pattern"));
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for found in TABLE.captures_iter(sql) {
        let table = found.get(1).map_or("", |name| name.as_str());
        names.insert(table, table);
        found.get(2).map(|alias| names.insert(alias.as_str(), table));
    }
    let c = c.as_sqlite().expect("plans of SQLite");
    let mut statement = c.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("a plan");
    let mut rows = statement.raw_query();
    let mut found = Vec::new();
    while let Some(row) = rows.next().expect("a row") {
        let detail: String = row.get(3).expect("a text");
        // An index created for a single statement reads the whole table, too.
        let made = |_: &&str| detail.contains("AUTOMATIC");
        let rest = detail.strip_prefix("SCAN ").or(detail.strip_prefix("SEARCH ").filter(made));
        let Some(rest) = rest.filter(|rest| !rest.contains("VIRTUAL TABLE")) else { continue };
        let alias = rest.split(' ').next().unwrap_or_default();
        let table = names.get(alias).copied().unwrap_or(alias);
        let walks = WALKS.iter().any(|(of, part)| *of == table && sql.contains(part));
        if LARGE.contains(&table) && !walks {
            found.push(format!("{detail} ({table}): {sql}"));
        }
    }
    found
}

fn repo() -> RepoRef {
    RepoRef { forge: ForgeName::new("gh"), id: RepoId(1), owner: "acme".into(), name: "app".into() }
}

fn fill(c: &Connection) -> StoreResult<LoopId> {
    let id = LoopId::from_parts(Number(1), 1);
    let by = User { id: UserId(1), login: "alice".into(), kind: AccountKind::User };
    let task = LoopTask {
        text: TaskText::new("Draw a zebra", "Body", None),
        url: "https://git.example.org/1".into(),
        hash: "0".repeat(64),
        author: None,
        author_trusted: true,
        unconfirmed_editor: None,
        edited_after: false,
        labels: Vec::new(),
    };
    let start = LoopStart {
        request: String::new(),
        existing: None,
        id: id.clone(),
        place: IssueRef { repo: repo(), issue: Number(1) },
        by,
        task,
        options: RunOptions::default(),
        policy: Policy::default(),
        plan: None,
        comment: None,
        hidden_removed: 0,
        round: 1,
    };
    loops::begin(c, start, "o1", Timestamp(1))?;
    let turn = SessionTurn {
        iteration: 1,
        attempt: 1,
        role: TurnRole::Agent,
        prompt: "Draw a zebra.".into(),
        response: "A zebra is drawn.".into(),
        backend: "mine".into(),
        model: None,
        tokens_in: 1,
        tokens_out: 1,
        tokens_cached: 0,
        cost: Money(1),
        estimated: false,
        error: None,
        learnings: Vec::new(),
        started: Timestamp(1),
        ended: Timestamp(2),
    };
    session::add_turn(c, &id, &NewTurn::pack(turn))?;
    let event = SessionEvent {
        iteration: 1,
        kind: EventKind::Check,
        tool: Some("tests".into()),
        path: None,
        text: "no zebra".into(),
        failed: true,
        at: Timestamp(3),
    };
    session::add_events(c, &id, &[NewEvent::pack(event)])?;
    Ok(id)
}

/// Executes the reads of all pages, and of the API if they differ.
fn read_all(c: &Connection, id: &LoopId) -> StoreResult<()> {
    listing::repositories(c)?;
    listing::row(c, id)?;
    for scope in [RepoScope::All, RepoScope::Only(vec![(ForgeName::new("gh"), RepoId(1))])] {
        let all = LoopFilter::of(scope.clone());
        let filters = [
            all.clone(),
            LoopFilter { states: vec![LoopState::Running, LoopState::Waiting], ..all.clone() },
            LoopFilter {
                states: vec![LoopState::Merged, LoopState::Closed],
                person: Some("alice".into()),
                ..all.clone()
            },
            LoopFilter { open: Some(true), ..all.clone() },
            LoopFilter { waits: Some(true), ..all.clone() },
        ];
        for filter in filters {
            listing::page(c, &filter, None, 50)?;
            listing::slice(c, &filter, 0, 25)?;
            if !filter.states.is_empty() {
                listing::counts(c, &filter)?;
            }
        }
        listing::page(c, &LoopFilter { text: Some("zebra".into()), ..all }, None, 50)?;
        for kind in TextKind::ALL.into_iter().map(Some).chain([None]) {
            let query = TextQuery::of("zebra".into(), scope.clone(), scope.clone(), 20);
            let query = TextQuery { kind, states: vec![LoopState::Queued], ..query };
            session::search_texts(c, &query, &str::to_owned)?;
            session::search_texts(c, &TextQuery { of: Some(id.clone()), ..query }, &str::to_owned)?;
        }
        for by in CostGroup::ALL {
            costs::daily(c, &scope, by, 0, 90)?;
        }
    }
    loops::get(c, id)?;
    loops::history(c, id)?;
    loops::newest_settings(c, &repo())?;
    data::newest_steps(c, id, 30)?;
    data::count_of_steps(c, id)?;
    data::reasons_of(c, id, 1)?;
    audit::trail(c, id)?;
    calls::of_loop(c, id)?;
    calls::state(c)?;
    session::of_iteration(c, id, 1)?;
    for row in [TextRow::Prompt(1), TextRow::Event(1)] {
        session::source_of(c, id, 1, row)?;
    }
    data::calls_by_day(c, Timestamp(0))?;
    for state in [None, Some("new"), Some("done"), Some("dead")] {
        data::deliveries(c, (state, None), Some(100), 50)?;
    }
    data::deliveries(c, (Some("done"), Some("gh")), None, 50)?;
    access_audit::newest(c, Some(100), 50)?;
    inbox::counts(c)?;
    forge_state::repositories(c, &ForgeName::new("gh"))?;
    memory::list(c, "", 50)?;
    memory::search(c, &correct("zebra"), None, 50)?;
    proposals::proposals(c, false)?;
    proposals::proposal(c, 1)?;
    tokens::of_owner(c, &TokenOwner { account: None, operator: true })?;
    tokens::find(c, &[0; 32], Timestamp(1))?;
    web_sessions::find(c, "x", Timestamp(1))?;
    feed::newest(c)?;
    for of in [None, Some(id)] {
        feed::since(c, FeedPosition::default(), of, 100)?;
    }
    Ok(())
}

#[tokio::test]
async fn no_page_reads_a_whole_table() {
    let store = Store::in_memory().expect("opened");
    let found = store.write(|c| {
        let id = fill(c)?;
        let sqlite = c.as_sqlite().expect("a trace of SQLite");
        sqlite.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note));
        let read = read_all(c, &id);
        sqlite.trace_v2(TraceEventCodes::empty(), None);
        read?;
        let seen = SEEN.with(|seen| std::mem::take(&mut *seen.borrow_mut()));
        let faults: Vec<String> = seen
            .iter()
            .filter(|sql| sql.starts_with("SELECT") || sql.starts_with("WITH"))
            .flat_map(|sql| scanned(c, sql))
            .collect();
        // A statement that the check must reject.
        let whole = "SELECT count(*) FROM loops l JOIN session_events e ON e.text = l.data WHERE l.updated_at > 1";
        Ok((seen.len(), faults, scanned(c, whole).len()))
    });
    let (statements, faults, of_whole) = found.await.expect("read");
    assert!(statements > 60, "only {statements} statements were seen");
    assert_eq!(faults, [""; 0], "{faults:#?}");
    assert_eq!(of_whole, 2, "a statement that reads two whole tables is found");
}
