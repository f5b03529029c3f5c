//! Tests of the search over all loops: permissions, order, pages, early ends, and the effect of retention.

use super::*;
use crate::domain::knowledge::session::transcript::TextSource;
use crate::domain::knowledge::session::{SessionEvent, SessionTurn, TurnRole};
use crate::domain::loops::LoopState;
use crate::domain::model::ids::{
    AccountKind, ForgeName, Money, Number, Ratio, RepoId, RepoRef, Timestamp, User, UserId,
};
use crate::domain::model::quantity::IterationLimit;
use crate::store::session::{NewEvent, NewTurn, SessionRetention, add_events, add_turn, apply_retention};
use crate::store::sql::params;
use crate::store::tests::databases;

fn id(issue: u64) -> LoopId {
    LoopId::from_parts(Number(issue), issue as u32)
}

fn add_loop(c: &Connection, issue: u64, repo: i64, title: &str, reason: &str) {
    let sql = "INSERT INTO loops (id, forge, repo_id, issue, state, open, data, version, created_at, updated_at)
        VALUES (?1, 'gh', ?2, ?3, 'running', 1, '{}', 1, 0, 0)";
    c.execute(sql, params![id(issue).as_str(), repo, issue as i64]).expect("a loop");
    let row = LoopRow {
        id: id(issue),
        repo: RepoRef { forge: ForgeName::new("gh"), id: RepoId(repo), owner: "acme".into(), name: "app".into() },
        issue: Number(issue),
        title: title.into(),
        url: String::new(),
        state: LoopState::Running,
        waits: false,
        person: User { id: UserId(1), login: "alice".into(), kind: AccountKind::User },
        reason: reason.into(),
        iterations: 1,
        max_iterations: IterationLimit::of(9),
        completion: Ratio::new(0.5),
        cost: Money(1),
        cost_limit: Money(2),
        branch: "b".into(),
        pull: None,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
    };
    listing::save(c, &row).expect("saved");
}

fn add(c: &Connection, issue: u64, iteration: u32, prompt: &str, response: &str) {
    let turn = SessionTurn {
        iteration,
        attempt: 1,
        role: TurnRole::Agent,
        prompt: prompt.into(),
        response: response.into(),
        backend: "mine".into(),
        model: None,
        tokens_in: 1,
        tokens_out: 1,
        tokens_cached: 0,
        cost: Money(1),
        estimated: false,
        error: None,
        learnings: Vec::new(),
        started: Timestamp(i64::from(iteration)),
        ended: Timestamp(i64::from(iteration) + 1),
    };
    assert!(add_turn(c, &id(issue), &NewTurn::pack(turn)).expect("added"));
}

fn database() -> Connection {
    let c = databases::database();
    add_loop(&c, 1, 1, "Mend the importer", "The tests fail.");
    add_loop(&c, 2, 2, "Draw a zebra", "It is running.");
    add(&c, 1, 1, "Mend it.\nThe zebra is broken\nso look", "Done.");
    add(&c, 2, 1, "Draw.", "First line\nthe Zebras are drawn\nlast");
    let event = SessionEvent {
        iteration: 2,
        kind: EventKind::Check,
        tool: Some("tests".into()),
        path: None,
        text: "exit code 1: no zebra\nassertion failed: <script>".into(),
        failed: true,
        at: Timestamp(7),
    };
    add_events(&c, &id(2), &[NewEvent::pack(event)]).expect("added");
    c
}

fn query(text: &str) -> TextQuery {
    TextQuery::of(text.into(), RepoScope::All, RepoScope::All, 10)
}

fn found(c: &Connection, query: &TextQuery) -> Vec<(u64, &'static str, u32)> {
    let found = search_texts(c, query, &str::to_owned).expect("searched");
    found.hits.iter().map(|hit| (hit.of.issue.0, hit.place.as_str(), hit.line)).collect()
}

fn only(repos: &[i64]) -> RepoScope {
    RepoScope::Only(repos.iter().map(|id| (ForgeName::new("gh"), RepoId(*id))).collect())
}

#[test]
fn words_are_found_in_all_kinds_of_texts_with_their_line() {
    let c = database();
    let zebra = [(2, "title", 1), (2, "check", 1), (2, "response", 2), (1, "prompt", 2)];
    assert_eq!(found(&c, &query("zebra")), zebra);
    assert_eq!(found(&c, &query("tests fail")), [(1, "reason", 1), (2, "check", 1)], "words are stemmed");
    assert_eq!(found(&c, &query("assertion")), [(2, "check", 2)]);
    assert_eq!(found(&c, &query("Impor")), [(1, "title", 1)], "the beginning of a word, in titles");
    assert_eq!(found(&c, &query("nothing like that")), []);
    assert_eq!(found(&c, &query("  \"(* NEAR/3 ")), []);
    assert_eq!(found(&c, &query("zebra OR (draw*\" -x:")), [], "no syntax: `x` is a word, too");
    assert_eq!(found(&c, &TextQuery { of: Some(id(1)), ..query("zebra") }), [(1, "prompt", 2)]);
}

#[test]
fn search_is_restricted_by_kind_and_state() {
    let c = database();
    let of = |kind| found(&c, &TextQuery { kind: Some(kind), ..query("zebra") });
    assert_eq!(of(TextKind::Title), [(2, "title", 1)]);
    assert_eq!(of(TextKind::Prompt), [(1, "prompt", 2)]);
    assert_eq!(of(TextKind::Answer), [(2, "response", 2)]);
    assert_eq!(of(TextKind::Output), [(2, "check", 1)]);
    assert_eq!(of(TextKind::Error), [(2, "check", 1)]);
    for none in [TextKind::Comment, TextKind::Action, TextKind::Decision, TextKind::Summary] {
        assert_eq!(of(none), [], "{none:?}");
    }
    let both = found(&c, &TextQuery { kind: Some(TextKind::Answer), ..query("draw") });
    assert_eq!(both, [], "the prompt matches, too, and is not asked for: {both:?}");
    let in_state = |states| found(&c, &TextQuery { states, ..query("zebra") }).len();
    assert_eq!((in_state(vec![LoopState::Running]), in_state(vec![LoopState::Paused, LoopState::Merged])), (4, 0));
}

#[test]
fn found_row_leads_to_its_text() {
    let c = database();
    let hits = search_texts(&c, &query("zebra"), &str::to_owned).expect("searched").hits;
    let rows: Vec<String> = hits.iter().map(|hit| hit.row.map(|row| row.to_string()).unwrap_or_default()).collect();
    assert_eq!(rows, ["", "event-1", "answer-2", "prompt-1"]);
    add(&c, 2, 2, "Again.", "Nothing.");
    for (text, of, iteration, expected) in [
        ("event-1", 2, 2, Some(TextSource::Event(0))),
        ("answer-2", 2, 1, Some(TextSource::Answer(0))),
        ("prompt-1", 1, 1, Some(TextSource::Prompt(0))),
        ("prompt-1", 2, 1, None),
        ("prompt-1", 1, 2, None),
        ("event-9", 2, 2, None),
    ] {
        let row = TextRow::parse(text).expect("a row");
        assert_eq!(source_of(&c, &id(of), iteration, row).expect("read"), expected, "{text} {of} {iteration}");
    }
    for bad in ["", "event", "event-", "event-x", "event-0", "event--1", "turn-1", "event-99999999999999999999"] {
        assert_eq!(TextRow::parse(bad), None, "{bad}");
    }
}

#[test]
fn search_results_depend_on_rights() {
    let c = database();
    let cases: [(RepoScope, RepoScope, Vec<(u64, &str, u32)>); 5] = [
        (only(&[]), only(&[]), vec![]),
        (only(&[2]), only(&[]), vec![(2, "title", 1)]),
        (only(&[1, 2]), only(&[1]), vec![(2, "title", 1), (1, "prompt", 2)]),
        (only(&[1]), only(&[1]), vec![(1, "prompt", 2)]),
        (only(&[3]), only(&[3]), vec![]),
    ];
    for (titles, texts, expected) in cases {
        let query = TextQuery { titles, texts, ..query("zebra") };
        assert_eq!(found(&c, &query), expected, "{query:?}");
    }
}

#[test]
fn snippet_marks_whole_words_on_one_line() {
    let c = database();
    let found =
        search_texts(&c, &TextQuery { of: Some(id(2)), ..query("zebra drawn") }, &str::to_owned).expect("searched");
    let parts: Vec<(&str, bool)> = found.hits[0].snippet.iter().map(|part| (part.text.as_str(), part.marked)).collect();
    assert_eq!(
        parts,
        [("First line the ", false), ("Zebras", true), (" are ", false), ("drawn", true), (" last", false)]
    );
}

#[test]
fn best_line_has_most_of_the_words() {
    let finder = word_finder(&["answer".to_owned(), "forty".to_owned()]);
    let line = |text: &str| (best_line(text, finder.as_ref()).line, best_line(text, finder.as_ref()).words);
    assert_eq!(line("Check answer failed\nnothing\nanswer answer\nthe Answer is Forty\nforty answers"), (4, 2));
    assert_eq!(line("the first answer\nthe second answer"), (1, 1), "the first of equal ones");
    assert_eq!(line("nothing\nof that"), (1, 0));
    assert_eq!(best_line("a\nb", None), BestLine { words: 0, start: 0, line: 1 });
    let text = format!("{}the answer is forty", "answer\n".repeat(MOST_MATCHES));
    assert_eq!(line(&text), (1, 1), "the comparison is bounded");
}

#[test]
fn pages_have_each_result_once() {
    let c = database();
    for iteration in 2..30 {
        add(&c, 1, iteration, "Look.", &format!("zebra number {iteration}"));
    }
    let whole = found(&c, &TextQuery { limit: 100, ..query("zebra") });
    assert_eq!(whole.len(), 32);
    for limit in [1, 3, 7] {
        let (mut paged, mut before) = (Vec::new(), TextPosition::default());
        loop {
            let page =
                search_texts(&c, &TextQuery { limit, before, ..query("zebra") }, &str::to_owned).expect("searched");
            assert!(page.hits.len() <= limit && !page.early);
            paged.extend(page.hits.iter().map(|hit| (hit.of.issue.0, hit.place.as_str(), hit.line, hit.iteration)));
            let Some(next) = page.next else { break };
            assert_eq!(TextPosition::parse(&next.to_string()), Some(next));
            before = next;
        }
        let all = paged.len();
        paged.sort_unstable();
        paged.dedup();
        assert_eq!((all, paged.len()), (32, 32), "limit {limit}");
    }
}

#[test]
fn slow_search_returns_partial_results() {
    let c = database();
    if c.as_sqlite().is_none() {
        // PostgreSQL sends the rows of a query together, so a slow search has none.
        return;
    }
    for iteration in 2..300 {
        add(&c, 1, iteration, "Look.", "zebra");
    }
    let all = TextQuery { limit: 1_000, ..query("zebra") };
    let first = search_within(&c, &all, &str::to_owned, Duration::ZERO).expect("searched");
    assert!(first.early && (3..302).contains(&first.hits.len()), "{}", first.hits.len());
    let newest: Vec<_> = first.hits.iter().filter_map(|hit| hit.iteration).skip(1).take(2).collect();
    assert_eq!(newest, [299, 298]);
    let before = first.next.expect("a position");
    let rest = search_within(&c, &TextQuery { before, ..all.clone() }, &str::to_owned, Duration::from_secs(600))
        .expect("searched");
    assert_eq!((rest.early, rest.next, first.hits.len() + rest.hits.len()), (false, None, 302));
    let hidden = TextQuery { texts: only(&[3]), titles: only(&[3]), ..all };
    let found = search_within(&c, &hidden, &str::to_owned, Duration::ZERO).expect("searched");
    assert_eq!(found, FoundTexts { early: true, ..FoundTexts::default() }, "no position leads further");
}

#[test]
fn malformed_positions_are_refused() {
    for text in ["", "1", "1.2.3", "1.2.3.4.5", "1.2.3.-4", "a.b.c.d", "1.2.3.99999999999999999999"] {
        assert_eq!(TextPosition::parse(text), None, "{text}");
    }
}

#[test]
fn searches_do_not_find_deleted_texts() {
    let c = database();
    let day = 24 * 60 * 60 * 1000;
    let removed = apply_retention(&c, SessionRetention { days: 1, max_raw_turns: 10 }, Timestamp(3 * day));
    assert_eq!(removed.expect("applied").turns, 2);
    assert_eq!(found(&c, &query("zebra")), [(2, "title", 1)]);
}

/// A highlight in the middle of a secret would hide its parts from the masker.
#[test]
fn secrets_are_masked_before_snippets_are_cut() {
    let c = database();
    add_loop(&c, 3, 3, &format!("{}the key is key_secret and more", "word ".repeat(100)), "It is running.");
    let mask = |text: &str| text.replace("key_secret", "[masked]");
    let found = search_texts(&c, &query("key"), &mask).expect("searched");
    let text: String = found.hits[0].snippet.iter().map(|part| part.text.as_str()).collect();
    assert!(text.contains("the key is [masked] and more") && text.starts_with('…'), "{text}");
}
