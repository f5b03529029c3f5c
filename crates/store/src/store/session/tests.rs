//! Tests of the session memory: storage, search and retention.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::domain::knowledge::session::{
    EventKind, Hit, IterationFilter, OutputText, SearchResults, SessionQuery, SessionTier, extract,
};
use crate::store::feed::{self, FeedEvent, FeedKind, FeedPosition};
use crate::store::sql::params;
use crate::store::tests::databases;

const DAY: i64 = 24 * 60 * 60 * 1000;

fn database() -> Connection {
    let c = databases::database();
    for (id, issue, open) in [("r-1-aaaaaa", 1, 1), ("r-2-bbbbbb", 2, 1), ("r-3-cccccc", 3, 0)] {
        let sql = "INSERT INTO loops (id, forge, repo_id, issue, state, open, data, version, created_at, updated_at)
            VALUES (?1, 'gh', 1, ?2, 'running', ?3, '{}', 1, 0, 0)";
        c.execute(sql, params![id, issue, open]).expect("a loop");
    }
    c
}

fn own() -> LoopId {
    LoopId::new("r-1-aaaaaa")
}

fn other() -> LoopId {
    LoopId::new("r-2-bbbbbb")
}

fn sample(iteration: u32, response: &str) -> SessionTurn {
    SessionTurn {
        iteration,
        attempt: 1,
        role: TurnRole::Agent,
        prompt: "Mend the crash of the importer.".into(),
        response: response.into(),
        backend: "claude".into(),
        model: Some("sonnet".into()),
        tokens_in: 1_200,
        tokens_out: 300,
        tokens_cached: 9_000,
        cost: Money(12_345),
        estimated: true,
        error: None,
        learnings: vec!["a1".into(), "b2".into()],
        started: Timestamp(i64::from(iteration) * 1000),
        ended: Timestamp(i64::from(iteration) * 1000 + 500),
    }
}

fn wrote(at: i64, text: &str) -> OutputText {
    OutputText { at: Timestamp(at), text: text.into() }
}

/// Starts a turn of the first loop in iteration 2.
fn begin(c: &Connection) -> SessionTurn {
    let turn = SessionTurn { response: String::new(), tokens_out: 0, ..sample(2, "") };
    begin_turn(c, &own(), &NewRunningTurn::pack(turn.clone())).expect("begun");
    turn
}

fn rows(c: &Connection, table: &str) -> i64 {
    c.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a number")
}

#[test]
fn running_turn_is_read_with_its_batches_and_stored_once_at_its_end() {
    let c = database();
    let turn = begin(&c);
    let empty = RunningTurn { turn: SessionTurn { ended: turn.started, ..turn.clone() }, output: Vec::new() };
    assert_eq!(running_turn(&c, &own(), 2).expect("read"), Some(empty));
    assert_eq!(running_turn(&c, &own(), 1).expect("read"), None, "it is of another iteration");
    assert_eq!(running_turn(&c, &other(), 2).expect("read"), None, "it is of another loop");
    let call = |at: i64, text: &str| SessionEvent {
        at: Timestamp(at),
        ..happened(2, EventKind::ToolCall, "Bash", "", text, false)
    };
    let first =
        RunBatch::pack(vec![call(2_100, "ls")], vec![wrote(2_050, "I look."), wrote(2_150, &"long ".repeat(900))]);
    assert!(add_batch(&c, &own(), &first, Timestamp(2_200)).expect("added"));
    let second = RunBatch::pack(Vec::new(), vec![wrote(2_250, "I build.")]);
    assert!(add_batch(&c, &own(), &second, Timestamp(2_300)).expect("added"));
    let (turns_now, events_now, running) = of_iteration(&c, &own(), 2).expect("read");
    let running = running.expect("a running turn");
    assert_eq!((turns_now.len(), events_now.len(), running.turn.ended), (0, 1, Timestamp(2_300)));
    assert_eq!(running.output[0], wrote(2_050, "I look."));
    assert!(running.text().ends_with("long \nI build."), "{}", running.text());
    // The agent's search does not find its current action.
    assert!(kinds(&ask(&c, r#"{"query": "ls", "tier": "events"}"#)).is_empty());

    let ended = sample(2, "Done.");
    assert!(
        end_turn(&c, &own(), &NewTurn::pack(ended.clone()), &[NewEvent::pack(call(2_400, "make"))]).expect("ended")
    );
    let (turns_now, events_now, running) = of_iteration(&c, &own(), 2).expect("read");
    assert_eq!((turns_now, running), (vec![ended.clone()], None));
    assert_eq!(events_now.iter().map(|event| event.text.as_str()).collect::<Vec<_>>(), ["ls", "make"]);
    assert_eq!(kinds(&ask(&c, r#"{"query": "ls", "tier": "events"}"#)).len(), 1, "it is found after the end");
    // A second end and a late batch change nothing.
    assert!(!end_turn(&c, &own(), &NewTurn::pack(ended), &[NewEvent::pack(call(2_400, "make"))]).expect("answered"));
    assert!(!add_batch(&c, &own(), &second, Timestamp(2_500)).expect("answered"));
    assert_eq!(
        ["session_turns", "session_events", "running_turns", "session_output"].map(|t| rows(&c, t)),
        [1, 2, 0, 0]
    );
}

#[test]
fn interrupted_turn_is_stored_with_its_output() {
    for lost in [true, false] {
        let c = database();
        let turn = begin(&c);
        let call = SessionEvent { at: Timestamp(2_100), ..happened(2, EventKind::ToolCall, "Bash", "", "ls", false) };
        let batch = RunBatch::pack(vec![call], vec![wrote(2_050, "I look."), wrote(2_150, "I build.")]);
        assert!(add_batch(&c, &own(), &batch, Timestamp(2_200)).expect("added"));
        if lost {
            assert!(cut_turn(&c, &own()).expect("cut"));
            assert!(!cut_turn(&c, &own()).expect("answered"), "it is cut once");
        } else {
            let next = SessionTurn { attempt: 2, started: Timestamp(9_000), ..turn.clone() };
            begin_turn(&c, &own(), &NewRunningTurn::pack(next)).expect("begun");
            assert_eq!(running_turn(&c, &own(), 2).expect("read").map(|next| next.turn.attempt), Some(2));
        }
        let (found, events_now, _) = of_iteration(&c, &own(), 2).expect("read");
        assert_eq!(events_now.len(), 1);
        let [cut] = &found[..] else { panic!("one turn: {found:?}") };
        assert_eq!(
            (cut.response.as_str(), cut.prompt.as_str(), cut.ended),
            ("I look.\nI build.", turn.prompt.as_str(), Timestamp(2_200))
        );
        assert!(cut.error.as_deref().is_some_and(|error| error.contains("was interrupted")), "{:?}", cut.error);
        assert_eq!(rows(&c, "session_output"), 0);
        assert_eq!(kinds(&ask(&c, r#"{"query": "build", "tier": "raw"}"#)), ["turn 2"], "it is searched as others");
    }
}

#[test]
fn long_output_of_a_running_turn_keeps_its_end() {
    let c = database();
    begin(&c);
    // Incompressible text.
    let noise = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        std::iter::repeat_with(|| random.alphanumeric()).take(15_000).collect::<String>()
    };
    for nth in 0..40 {
        let batch = RunBatch::pack(Vec::new(), vec![wrote(3_000 + nth, &noise(nth as u64))]);
        add_batch(&c, &own(), &batch, Timestamp(3_000 + nth)).expect("added");
    }
    let running = running_turn(&c, &own(), 2).expect("read").expect("a running turn");
    let bytes: usize = running.output.iter().map(|output| output.text.len()).sum();
    assert!((200_000..=300_000).contains(&bytes), "{bytes}");
    assert_eq!(running.output.last().expect("a text").text, noise(39));
}

#[test]
fn output_positions_grow_after_removal() {
    let c = database();
    let sql = "INSERT INTO loop_summaries (loop_id, forge, repo_id, owner, name, issue, title, url, state, open, waits, person_id,
            person, reason, iterations, max_iterations, completion, cost, cost_limit, branch, created_at, updated_at)
        VALUES (?1, 'gh', 1, 'acme', 'app', 1, 't', 'u', 'running', 1, 0, 1, 'mira', '', 2, 9, 0, 0, 0, 'b', 0, 0)";
    c.execute(sql, [own().as_str()]).expect("a summary");
    let output = |from: FeedPosition| {
        let events = feed::since(&c, from, None, 100).expect("read").expect("events");
        let text = |event: FeedEvent| match event.what {
            FeedKind::Output { iteration, text } => (iteration, text),
            other => panic!("no output: {other:?}"),
        };
        events.into_iter().map(text).collect::<Vec<_>>()
    };
    let write = |text: &str| {
        begin(&c);
        let batch = RunBatch::pack(Vec::new(), vec![wrote(2_050, text)]);
        add_batch(&c, &own(), &batch, Timestamp(2_200)).expect("added");
    };
    write("first");
    assert_eq!(output(FeedPosition::default()), [(2, "first".to_owned())]);
    let seen = feed::newest(&c).expect("read");
    end_turn(&c, &own(), &NewTurn::pack(sample(2, "Done.")), &[]).expect("ended");
    assert_eq!(feed::newest(&c).expect("read"), seen, "a listener that saw all has not to read its page again");
    write("second");
    assert_eq!(output(seen), [(2, "second".to_owned())]);
    assert_eq!(FeedPosition::parse(&seen.to_string()), Some(seen));
    for wrong in ["", "1", "1-2", "1-2-x", "1-2-3-4", "-1-2-3"] {
        assert_eq!(FeedPosition::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn tools_are_counted_by_name() {
    let c = database();
    let tool = |kind, tool, failed| happened(1, kind, tool, "", "text", failed);
    let events = [
        tool(EventKind::ToolCall, "Bash", false),
        tool(EventKind::ToolResult, "Bash", true),
        tool(EventKind::ToolCall, "Bash", false),
        tool(EventKind::ToolResult, "", true),
        tool(EventKind::Check, "tests", true),
        tool(EventKind::ToolCall, "Edit", false),
    ];
    add_events(&c, &own(), &events.map(NewEvent::pack)).expect("added");
    add_events(&c, &other(), &[NewEvent::pack(tool(EventKind::ToolCall, "Web", false))]).expect("added");
    let found = tools(&c, &own()).expect("read");
    let counts: Vec<_> = found.iter().map(|tool| (tool.name.as_str(), tool.calls, tool.errors)).collect();
    assert_eq!(counts, [("Bash", 2, 1), ("Edit", 1, 0)]);
}

fn happened(iteration: u32, kind: EventKind, tool: &str, path: &str, text: &str, failed: bool) -> SessionEvent {
    let part = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let at = Timestamp(i64::from(iteration) * 1000);
    SessionEvent { iteration, kind, tool: part(tool), path: part(path), text: text.into(), failed, at }
}

fn add(c: &Connection, id: &LoopId, turn: SessionTurn) {
    assert!(add_turn(c, id, &NewTurn::pack(turn)).expect("added"));
}

fn tell(c: &Connection, id: &LoopId, events: &[SessionEvent]) {
    let new: Vec<NewEvent> = events.iter().cloned().map(NewEvent::pack).collect();
    add_events(c, id, &new).expect("added");
}

/// Returns a database with a loop that has entries in each tier.
fn filled() -> Connection {
    let c = database();
    add(&c, &own(), sample(1, "The importer crashed on empty rows; I gave up on regular expressions."));
    add(&c, &own(), SessionTurn { error: Some("timed out".into()), ..sample(2, "Wrote a streaming parser.") });
    add(&c, &other(), sample(1, "secret of another loop about the importer"));
    let events = [
        happened(1, EventKind::ToolCall, "Bash", "", "cargo test importer", false),
        happened(1, EventKind::ToolResult, "Bash", "", "command failed: 3 tests of the importer", true),
        happened(2, EventKind::FileChange, "Edit", "src/rows/parser.rs", "changed", false),
        happened(3, EventKind::Check, "test", "", "all tests hold", false),
        happened(3, EventKind::FileChange, "Edit", "docs/rows.md", "changed", false),
    ];
    tell(&c, &own(), &events);
    tell(&c, &other(), &[happened(1, EventKind::Error, "", "", "importer of another loop", true)]);
    let summary = extract(1, 2, &turns(&c, &own(), 1..=2).expect("turns"), &events, Timestamp(9));
    add_summary(&c, &own(), &summary).expect("added");
    c
}

fn ask(c: &Connection, query: &str) -> SearchResults {
    search(c, &own(), &serde_json::from_str(query).expect("a query")).expect("an answer")
}

fn kinds(found: &SearchResults) -> Vec<String> {
    let kind = |hit: &Hit| match hit {
        Hit::Turn { iteration, .. } => format!("turn {iteration}"),
        Hit::Event(event) => format!("{} {}", event.kind, event.iteration),
        Hit::Summary(summary) => format!("summary {}-{}", summary.from, summary.to),
    };
    found.hits.iter().map(kind).collect()
}

#[test]
fn turns_are_found_by_backend() {
    let c = filled();
    add(&c, &own(), SessionTurn { backend: "codex-2".into(), ..sample(3, "The importer skips empty rows.") });
    assert_eq!(kinds(&ask(&c, r#"{"backends": ["codex*"]}"#)), ["turn 3"]);
    assert_eq!(kinds(&ask(&c, r#"{"query": "importer", "backends": ["CLAUDE"]}"#)), ["turn 1", "turn 2"]);
    assert!(kinds(&ask(&c, r#"{"backends": ["gemini"]}"#)).is_empty());
    let other_tier = ask(&c, r#"{"backends": ["codex-2"], "tier": "summaries"}"#);
    assert!(kinds(&other_tier) == ["turn 3"] && other_tier.notes[0].contains("only turns"), "{other_tier:?}");
    let of_events = ask(&c, r#"{"backends": ["codex-2"], "paths": ["docs/**"]}"#);
    assert!(kinds(&of_events) == ["file_change 3"] && of_events.notes[0].contains("was ignored"), "{of_events:?}");
}

#[test]
fn turns_and_events_are_read_unchanged() {
    let c = database();
    let long = "A line of a long answer, which is packed.\n".repeat(500);
    let packed = sample(1, &long);
    let failed = SessionTurn {
        attempt: 2,
        role: TurnRole::Assistant,
        error: Some("no".into()),
        model: None,
        ..sample(1, "short")
    };
    add(&c, &own(), packed.clone());
    add(&c, &own(), failed.clone());
    assert!(
        !add_turn(&c, &own(), &NewTurn::pack(packed.clone())).expect("answered"),
        "the same turn again is nothing new"
    );
    assert_eq!(turns(&c, &own(), 1..=1).expect("turns"), [packed, failed]);
    let events_made: Vec<SessionEvent> =
        EventKind::ALL.iter().map(|k| happened(2, *k, "t", "p", &long[..5_000], true)).collect();
    tell(&c, &own(), &events_made);
    assert_eq!(events(&c, &own(), 0..=9).expect("events"), events_made);
    let stored: i64 =
        c.query_row("SELECT length(response) FROM session_turns", [], |row| row.get(0)).expect("a length");
    assert!(stored < 1_000, "{stored} bytes of {}", long.len());
    assert!(turns(&c, &other(), 0..=9).expect("turns").is_empty());
    let turn_without_loop = add_turn(&c, &LoopId::new("r-9-zzzzzz"), &NewTurn::pack(sample(1, "x")));
    assert!(turn_without_loop.is_err(), "a turn belongs to a loop");
}

#[test]
fn long_text_keeps_beginning_and_end() {
    let c = database();
    let endless = format!("begin {} end", "ü".repeat(3 << 20));
    add(&c, &own(), sample(1, &endless));
    let stored = &turns(&c, &own(), 1..=1).expect("turns")[0].response;
    assert!(stored.starts_with("begin") && stored.ends_with("end") && stored.contains("bytes omitted"));
    assert!(stored.len() < MAX_TEXT + 100, "{}", stored.len());
    assert_eq!(kinds(&ask(&c, r#"{"query": "begin end"}"#)), ["turn 1"], "both ends are found");
}

#[test]
fn damaged_text_is_reported_without_allocating() {
    let c = filled();
    for bytes in [&[0xffu8, 0xff, 0xff, 0x7f, 1][..], &[1], &[]] {
        c.execute("UPDATE session_turns SET response = ?1", [bytes]).expect("damaged");
        let error = turns(&c, &own(), 1..=1).expect_err("damage").to_string();
        assert!(error.contains("damaged"), "{error}");
    }
}

#[test]
fn summary_replaces_an_older_one_of_the_same_iterations() {
    let c = filled();
    assert_eq!(summarized_to(&c, &own()).expect("a number"), 2);
    assert_eq!(summarized_to(&c, &other()).expect("a number"), 0);
    let better = SessionSummary {
        text: "Better words: zebra.".into(),
        extractive: false,
        ..extract(1, 2, &[], &[], Timestamp(1))
    };
    add_summary(&c, &own(), &better).expect("added");
    add_summary(&c, &own(), &extract(3, 4, &[], &[], Timestamp(1))).expect("added");
    assert_eq!(summaries(&c, &own(), 0).expect("summaries").len(), 2);
    assert_eq!(summaries(&c, &own(), 3).expect("summaries")[0].from, 3);
    assert_eq!(kinds(&ask(&c, r#"{"query": "zebra"}"#)), ["summary 1-2"]);
    assert!(kinds(&ask(&c, r#"{"query": "crashed", "tier": "summaries"}"#)).is_empty(), "the old words are gone");
}

#[test]
fn each_filter_narrows_the_answer() {
    let c = filled();
    let table: [(&str, &[&str]); 16] = [
        (r#"{"query": "importer"}"#, &["summary 1-2", "tool_result 1", "turn 1", "tool_call 1", "turn 2"]),
        (r#"{"query": "importer", "tier": "events"}"#, &["tool_call 1", "tool_result 1"]),
        (r#"{"query": "importer", "tier": "raw"}"#, &["turn 1", "turn 2"]),
        (r#"{"query": "importer", "iterations": {"from": 2}}"#, &["summary 1-2", "turn 2"]),
        (r#"{"query": "importer", "iterations": {"to": 1}, "tier": "raw"}"#, &["turn 1"]),
        (r#"{"event_types": ["check"]}"#, &["check 3"]),
        (r#"{"tools": ["bash"]}"#, &["tool_result 1", "tool_call 1"]),
        (r#"{"tools": ["bash"], "has_error": true}"#, &["tool_result 1"]),
        (r#"{"paths": ["src/**"]}"#, &["file_change 2"]),
        (r#"{"paths": ["*.md", "*.rs"], "tier": "raw"}"#, &["file_change 3", "file_change 2"]),
        (r#"{"tier": "raw", "has_error": true}"#, &["turn 2"]),
        (r#"{"tier": "raw", "has_error": false}"#, &["turn 1"]),
        (r#"{"query": "parsers", "tier": "raw"}"#, &["turn 2"]),
        (r#"{"query": "\"streaming parser\" NOT importer2", "tier": "raw"}"#, &["turn 2"]),
        (r#"{"query": "strea*", "tier": "raw"}"#, &["turn 2"]),
        (r#"{"query": "importer", "iterations": {"from": 7, "to": 3}}"#, &[]),
    ];
    for (query, expected) in table {
        let mut found = kinds(&ask(&c, query));
        let mut expected: Vec<String> = expected.iter().map(|&kind| kind.to_owned()).collect();
        if query.contains("importer") {
            found.sort();
            expected.sort();
        }
        assert_eq!(found, expected, "{query}");
    }
    let one = ask(&c, r#"{"query": "importer", "limit": 1}"#);
    assert_eq!((one.hits.len(), one.more, one.at_least), (1, 4, false));
}

#[test]
fn invalid_expression_is_corrected() {
    let c = filled();
    let table = [
        (r#"{"query": "bash.*failed"}"#, "tool_result 1", "\"bash\" \"failed\""),
        (r#"{"query": "error: importer ("}"#, "summary 1-2", "\"error\" \"importer\""),
        (r#"{"query": "src/rows/parser.rs"}"#, "summary 1-2", "\"src/rows/parser.rs\""),
        (r#"{"query": "\"crashed on"}"#, "summary 1-2", "\"crashed\" \"on\""),
        (r#"{"query": "nothing importer"}"#, "summary 1-2", "\"nothing\" OR \"importer\""),
    ];
    for (query, first, corrected) in table {
        let found = ask(&c, query);
        assert!(found.notes.iter().any(|note| note.contains(corrected)), "{query}: {:?}", found.notes);
        assert!(kinds(&found).iter().any(|kind| kind == first), "{query}: {:?}", kinds(&found));
    }
    let newest = ask(&c, r#"{"query": "***"}"#);
    assert!(!newest.hits.is_empty() && newest.notes[0].contains("no word"), "{newest:?}");
    assert!(ask(&c, r#"{"query": "importer"}"#).notes.is_empty());
    assert!(ask(&c, r#"{"query": "xyzzy"}"#).hits.is_empty());
    assert!(ask(&c, r#"{"tier": "raw", "tools": ["x"]}"#).notes[0].contains("only events"));
}

#[test]
fn search_never_returns_other_loops() {
    let c = filled();
    let tries = [
        "secret",
        "scope : lr2bbbbbb",
        "secret) OR scope : (lr2bbbbbb",
        "x) OR (secret",
        "importer OR secret",
        "NOT nothing",
        "{scope text} : secret",
        "\") OR (\"secret\"",
        "importer NOT scope : lr1aaaaaa",
        "s* OR l*",
    ];
    for query in tries {
        for hit in search(&c, &own(), &SessionQuery { query: query.into(), ..SessionQuery::default() })
            .expect("an answer")
            .hits
        {
            let text = format!("{hit:?}");
            assert!(!text.contains("another loop"), "{query}: {text}");
        }
    }
}

#[test]
fn expired_rows_are_removed() {
    let c = database();
    let now = Timestamp(100 * DAY);
    for (id, days) in [(own(), 40), (own(), 20), (LoopId::new("r-3-cccccc"), 40)] {
        let at = now.plus_ms(-days * DAY);
        add(&c, &id, SessionTurn { started: at, ended: at, ..sample(days as u32, "oldword") });
        let events = [SessionEvent { at, ..happened(days as u32, EventKind::Error, "", "", "oldword", true) }];
        tell(&c, &id, &events);
        add_summary(&c, &id, &extract(days as u32, days as u32, &[], &events, at)).expect("added");
        let reflection = "INSERT INTO reflections (loop_id, iteration, at, data) VALUES (?1, ?2, ?3, '{}')";
        c.execute(reflection, params![id.as_str(), days, at.0]).expect("added");
    }
    let removed = apply_retention(&c, SessionRetention::default(), now).expect("applied");
    assert_eq!(removed, RemovedRows { turns: 2, events: 2, summaries: 1, reflections: 1, more: false });
    assert_eq!(kinds(&ask(&c, r#"{"query": "oldword", "tier": "raw"}"#)), ["turn 20"], "its words went with it");
    assert_eq!(summaries(&c, &own(), 0).expect("summaries").len(), 2, "an open loop's summaries stay");
    assert_eq!(apply_retention(&c, SessionRetention::default(), now).expect("applied"), RemovedRows::default());
    for iteration in 100..110 {
        add(&c, &own(), SessionTurn { started: now, ended: now, ..sample(iteration, "newword") });
        add(&c, &other(), SessionTurn { started: now, ended: now, ..sample(iteration, "newword") });
    }
    let few = SessionRetention { max_raw_turns: 3, ..SessionRetention::default() };
    assert_eq!(apply_retention(&c, few, now).expect("applied").turns, 8 + 7);
    let iterations: Vec<u32> = turns(&c, &own(), 0..=200).expect("turns").iter().map(|turn| turn.iteration).collect();
    assert_eq!(iterations, [107, 108, 109], "the oldest went");
    let none = SessionRetention { days: u32::MAX, max_raw_turns: 0 };
    assert_eq!(apply_retention(&c, none, Timestamp(i64::MIN)).expect("applied").turns, 6);
    let words = format!("SELECT count(*) FROM session_turns_words WHERE {}", c.matches("session_turns_words", 1));
    assert_eq!(c.query_row(&words, ["newword"], |row| row.get::<_, i64>(0)).expect("a number"), 0);
}

#[test]
fn large_removals_take_several_calls() {
    let c = database();
    let events: Vec<SessionEvent> =
        (0..4_500).map(|_| happened(1, EventKind::ToolCall, "Bash", "", "ls", false)).collect();
    tell(&c, &own(), &events);
    let now = Timestamp(40 * DAY);
    let calls: Vec<RemovedRows> =
        (0..3).map(|_| apply_retention(&c, SessionRetention::default(), now).expect("applied")).collect();
    assert_eq!(
        calls.iter().map(|removed| (removed.events, removed.more)).collect::<Vec<_>>(),
        [(2000, true), (2000, true), (500, false)]
    );
}

static SHARED: LazyLock<std::sync::Mutex<Connection>> = LazyLock::new(|| std::sync::Mutex::new(filled()));

/// Generates text with special characters of FTS5.
fn queries() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "\"", "(", ")", "*", "^", ":", "-", "+", "{", "}", ",", "AND", "OR", "NOT", "NEAR", "NEAR(", "text", "scope",
        " ", "importer", "failed", "x", "'", ";", "--", "\0", "ü", "中", "\u{1a}", "rank", "\\", "%", "?1", "5",
    ]);
    let syntax = prop::collection::vec(pieces, 0..25).prop_map(|pieces| pieces.concat());
    let spaced = prop::collection::vec("[a-z()*\":^+-]{1,4}|AND|OR|NOT|NEAR", 0..12).prop_map(|words| words.join(" "));
    prop_oneof![syntax, spaced, "(?s).{0,120}"]
}

proptest! {
    #![proptest_config(test_support::cases(600))]

    #[test]
    fn every_query_is_answered(
        query in queries(),
        glob in "[a-z*?\\[\\]{},!/.\\\\-]{0,12}",
        narrow in any::<(bool, bool)>(),
        from in proptest::option::of(any::<u32>()),
        has_error in proptest::option::of(any::<bool>()),
        limit in proptest::option::of(any::<u32>()),
    ) {
        let c = SHARED.lock().expect("no panic");
        let globs = |wanted: bool| if wanted { vec![glob.clone()] } else { Vec::new() };
        let tier = (!narrow.0).then_some(SessionTier::Raw);
        let iterations = IterationFilter { from, to: None };
        let query = SessionQuery { query, tier, iterations, event_types: Vec::new(), tools: globs(narrow.0 && narrow.1),
            paths: globs(narrow.1), backends: globs(!narrow.1), has_error, limit };
        let found = search(&c, &own(), &query);
        prop_assert!(found.is_ok(), "{:?}: {:?}", query, found);
        let answer = format!("{:?}", found);
        prop_assert!(!answer.contains("another loop"), "{:?}: {}", query, answer);
    }
}

#[test]
fn deep_and_long_expressions_are_answered() {
    let c = filled();
    let queries = [
        "(".repeat(400) + "importer" + &")".repeat(400),
        "importer AND ".repeat(100),
        vec!["importer"; 500].join(" OR "),
        "NOT ".repeat(200),
        "a".repeat(100_000),
        "(importer OR failed) AND (NOT x)".to_owned(),
    ];
    for query in queries {
        let short: String = query.chars().take(30).collect();
        let found = search(&c, &own(), &SessionQuery { query, ..SessionQuery::default() });
        assert!(found.is_ok(), "{short}: {found:?}");
    }
}

#[test]
fn finished_loops_without_summary_are_listed() {
    let (c, ended) = (database(), LoopId::new("r-3-cccccc"));
    assert_eq!(last_iteration(&c, &ended).expect("read"), 0);
    for id in [&ended, &own()] {
        add(&c, id, sample(1, "One."));
        add(&c, id, sample(2, "Two."));
    }
    assert_eq!(unsummarized(&c, 9).expect("read"), std::slice::from_ref(&ended), "the others go on");
    assert_eq!(last_iteration(&c, &ended).expect("read"), 2);
    let sum_up = |to| add_summary(&c, &ended, &extract(1, to, &[], &[], Timestamp(1))).expect("added");
    sum_up(1);
    assert_eq!(unsummarized(&c, 9).expect("read").len(), 1);
    sum_up(2);
    assert!(unsummarized(&c, 9).expect("read").is_empty());
}
