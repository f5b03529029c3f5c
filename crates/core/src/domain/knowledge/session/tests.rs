//! Tests of queries, summaries and answers within a budget.

use proptest::prelude::*;

use super::*;
use crate::domain::model::quantity::IterationLimit;
use crate::domain::model::tokens::estimated_tokens;

fn tokens(text: &str) -> usize {
    estimated_tokens(text.len())
}

fn turn(iteration: u32, response: &str) -> SessionTurn {
    SessionTurn {
        iteration,
        attempt: 1,
        role: TurnRole::Agent,
        prompt: "Mend it.".into(),
        response: response.into(),
        backend: "claude".into(),
        model: None,
        tokens_in: 10,
        tokens_out: 5,
        tokens_cached: 0,
        cost: Money(0),
        estimated: false,
        error: None,
        learnings: Vec::new(),
        started: Timestamp(i64::from(iteration) * 1000),
        ended: Timestamp(i64::from(iteration) * 1000 + 500),
    }
}

fn event(
    iteration: u32,
    kind: EventKind,
    tool: Option<&str>,
    path: Option<&str>,
    text: &str,
    failed: bool,
) -> SessionEvent {
    let (tool, path) = (tool.map(str::to_owned), path.map(str::to_owned));
    SessionEvent { iteration, kind, tool, path, text: text.into(), failed, at: Timestamp(i64::from(iteration)) }
}

#[test]
fn query_terms_are_extracted() {
    let table: [(&str, &[&str]); 12] = [
        ("auth bug approaches", &["auth", "bug", "approaches"]),
        ("bash.*failed", &["bash", "failed"]),
        ("src/lib.rs:12", &["src/lib.rs:12"]),
        ("foo|bar (baz)", &["foo", "bar", "baz"]),
        ("\"unbalanced phrase", &["unbalanced", "phrase"]),
        ("a AND b OR NOT c", &["a", "b", "c"]),
        ("NEAR(one two, 5)", &["one", "two", "5"]),
        ("error: E0502 ^ $ *", &["error", "E0502"]),
        ("-x --flag", &["x", "flag"]),
        ("twice twice", &["twice"]),
        ("\u{0}nul\u{0}byte", &["nul", "byte"]),
        (" ** ??? \"\" ", &[]),
    ];
    for (query, words) in table {
        assert_eq!(terms(query), words, "{query}");
    }
}

#[test]
fn query_forms_are_ordered_from_narrow_to_wide() {
    let expressions = |query: &str| forms(query).into_iter().map(|form| form.expression).collect::<Vec<_>>();
    assert_eq!(expressions("lock file"), ["lock file", "\"lock\" \"file\"", "\"lock\" OR \"file\""]);
    assert_eq!(expressions("a) OR (b"), ["\"a\" \"b\"", "\"a\" OR \"b\""], "what leaves its parentheses is quoted");
    assert_eq!(expressions("word"), ["word", "\"word\""]);
    assert!(expressions(" * ").is_empty());
    let notes: Vec<bool> = forms("lock file").into_iter().map(|form| form.note.is_some()).collect();
    assert_eq!(notes, [false, true, true]);
}

#[test]
fn path_globs_match_like_gitignore() {
    let table = [
        ("src/*.rs", "src/a.rs", true),
        ("src/*.rs", "src/a/b.rs", false),
        ("src/**/*.rs", "src/a/b.rs", true),
        ("*.rs", "src/a/b.rs", true),
        ("./src/a.rs", "src/a.rs", true),
        ("a[", "a[", true),
        ("a[", "b", false),
    ];
    for (glob, path, expected) in table {
        let mut notes = Vec::new();
        let patterns = Patterns::of_paths(&[glob.to_owned()], &mut notes);
        assert_eq!(patterns.matches(Some(path)), expected, "{glob} {path}");
        assert_eq!(notes.len(), usize::from(glob == "a["), "{notes:?}");
        assert!(!patterns.matches(None));
    }
    assert!(Patterns::default().matches(None));
    let names = Patterns::of_names(&["mcp__*".to_owned(), "bash".to_owned()], &mut Vec::new());
    assert!(names.matches(Some("Bash")) && names.matches(Some("mcp__x__y")) && !names.matches(Some("Edit")));
}

#[test]
fn event_filters_select_event_tier() {
    let query = |text: &str| serde_json::from_str::<SessionQuery>(text).expect("a query");
    assert_eq!(query("{}").tiers(), [SessionTier::Summaries, SessionTier::Events, SessionTier::Raw]);
    assert_eq!(query(r#"{"tier": "summary"}"#).tiers(), [SessionTier::Summaries]);
    assert_eq!(query(r#"{"tier": "raw", "tools": ["Bash"]}"#).tiers(), [SessionTier::Events]);
    assert_eq!(
        [query("{}").limit(), query(r#"{"limit": 0}"#).limit(), query(r#"{"limit": 999}"#).limit()],
        [10, 1, 50]
    );
    assert!(serde_json::from_str::<SessionQuery>(r#"{"quarry": "x"}"#).is_err(), "a misspelt field is told");
}

#[test]
fn summary_lists_breakthroughs_first() {
    let turns = [
        turn(2, "# Done\nI decided to use a lock file instead of polling. Tests in src/lib.rs fail. See you!"),
        turn(1, "- Looked at the parser.\n```\nlet x = chose;\n```\n"),
        SessionTurn { error: Some("provider answered 529 after 12 s".into()), ..turn(3, "") },
        turn(9, "Out of range, decided otherwise."),
    ];
    let events = [
        event(1, EventKind::Check, Some("test"), None, "assertion failed at src/lib.rs:10", true),
        event(2, EventKind::Check, Some("test"), None, "assertion failed at src/lib.rs:99", true),
        event(2, EventKind::FileChange, None, Some("src/lock.rs"), "made", false),
        event(3, EventKind::FileChange, None, Some("src/lock.rs"), "changed", false),
        event(3, EventKind::FileChange, None, Some("a.md"), "made", false),
        event(3, EventKind::Intervention, None, None, "Try another approach. It is the third time.", false),
        event(3, EventKind::Check, Some("test"), None, "ok", false),
        event(3, EventKind::Check, Some("lint"), None, "ok", false),
    ];
    let summary = extract(1, 3, &turns, &events, Timestamp(7));
    insta::assert_snapshot!(summary.text, @r"
    Iterations 1 to 3.
    Breakthroughs:
    - test passes since iteration 3 (failed since 1)
    Decisions:
    - 2: I decided to use a lock file instead of polling.
    - 3: intervention: Try another approach.
    Approaches:
    - 1: Looked at the parser.
    - 2: I decided to use a lock file instead of polling.
    Errors:
    - 2x assertion failed at src/lib.rs:# (iterations 1, 2)
    - 1x provider answered # after <time> (iterations 3)
    Files:
    - src/lock.rs (2x)
    - a.md (1x)
    ");
    assert_eq!(summary.files, ["src/lock.rs", "a.md"]);
    assert_eq!(summary.errors[0].iterations, [1, 2]);
    assert_eq!((summary.from, summary.to, summary.extractive), (1, 3, true));
    let mut turned = events.to_vec();
    turned.swap(0, 1);
    assert_eq!(extract(1, 3, &turns, &turned, Timestamp(7)).text, summary.text, "the order of its input is no matter");
    assert!(extract(4, 5, &[], &[], Timestamp(0)).text.contains("Nothing was recorded"));
    let broken = [
        event(1, EventKind::Check, Some("test"), None, "no", true),
        event(2, EventKind::Check, Some("test"), None, "ok", false),
        event(3, EventKind::Check, Some("test"), None, "no", true),
    ];
    assert!(!extract(1, 3, &[], &broken, Timestamp(0)).text.contains("Breakthroughs"), "it did not last");
}

#[test]
fn answer_states_number_of_omitted_results() {
    let blocks: Vec<String> = (0..100).map(|nth| format!("block {nth} {}", "word ".repeat(20))).collect();
    let text = fit(&blocks, 7, false, 400);
    assert!(tokens(&text) <= 400, "{}", tokens(&text));
    let block_count = text.matches("block").count();
    assert!(
        block_count > 5 && text.ends_with(&format!("{} more; narrow the search to see them", 107 - block_count)),
        "{text}"
    );
    assert!(fit(&blocks[..1], 5_000, true, 400).contains("at least 5000 more"));
    assert_eq!(fit(&blocks[..1], 0, false, 400), blocks[0].trim_end());
    let long = turns_text(3, &[turn(3, &"x".repeat(1 << 20))], 1_000);
    assert!(tokens(&long) <= 1_000 && long.contains("more tokens") && long.contains("Mend it."), "{long}");
    assert!(turns_text(3, &[], 1_000).contains("no turn of iteration 3"));
    let many: Vec<SessionTurn> = (0..200).map(|nth| SessionTurn { attempt: nth, ..turn(3, "short") }).collect();
    let text = turns_text(3, &many, 1_000);
    assert!(text.starts_with("[turn] iteration 3, attempt 199") && text.contains("more; narrow"), "{text}");
}

#[test]
fn excerpt_surrounds_match() {
    let text = format!("{} the parser FAILS on nested lists {}", "before ".repeat(200), "after ".repeat(200));
    let finder = word_finder(&["failed".to_owned()]).expect("a word");
    let part = excerpt(&text, Some(&finder));
    assert!(part.contains("parser FAILS on nested") && part.chars().count() <= 402, "{part}");
    assert!(excerpt(&text, None).starts_with("before"));
    assert!(word_finder(&[]).is_none());
}

proptest! {
    #[test]
    fn answers_fit_any_budget(
        blocks in prop::collection::vec("\\PC{0,300}", 0..20),
        response in "\\PC{0,3000}",
        more in 0u64..10,
        budget in 200usize..2_000,
    ) {
        prop_assert!(tokens(&fit(&blocks, more, true, budget)) <= budget + 1);
        prop_assert!(tokens(&shortened(&response, budget)) <= budget);
        prop_assert!(tokens(&turns_text(1, &[turn(1, &response), turn(1, &response)], budget)) <= budget + 1);
        let hits = blocks.iter().map(|text| Hit::Event(event(1, EventKind::Error, None, None, text, true))).collect();
        let found = SearchResults { hits, more, at_least: false, notes: blocks.clone() };
        prop_assert!(tokens(&found_text(&found, budget)) <= budget + 1);
    }

    #[test]
    fn summary_accepts_any_text(text in "(?s).{0,400}", error in ".{0,200}", from in 0u32..3, to in 0u32..3) {
        let turns = [SessionTurn { error: Some(error.clone()), ..turn(1, &text) }];
        let events = [event(1, EventKind::Check, None, Some(&text), &error, true)];
        let summary = extract(from, to, &turns, &events, Timestamp(0));
        prop_assert_eq!(&summary, &extract(from, to, &turns, &events, Timestamp(0)));
        prop_assert!(summary.text.len() < 20_000);
    }

    #[test]
    fn terms_contain_no_quotation_marks(query in "(?s).{0,700}") {
        for term in terms(&query) {
            prop_assert!(!term.contains('"') && !term.chars().any(char::is_control) && !term.is_empty());
        }
        prop_assert!(forms(&query).len() <= 3);
    }
}

#[test]
fn summaries_are_due_at_intervals_and_end() {
    let cases = [
        (0, 0, false, None),
        (9, 0, false, None),
        (10, 0, false, Some(1..=10)),
        (19, 10, false, None),
        (23, 10, false, Some(11..=23)),
        (3, 0, true, Some(1..=3)),
        (23, 20, true, Some(21..=23)),
        (20, 20, true, None),
        (5, 9, true, None),
    ];
    for (done, summed, ended, expected) in cases {
        assert_eq!(due(done, summed, 10, ended), expected, "{done} {summed} {ended}");
    }
    assert_eq!(due(1, 0, 0, false), Some(1..=1), "an interval of none is one of one");
}

#[test]
fn short_loop_is_summarized_at_half_of_its_iterations() {
    let within = |interval, limit| interval_within(interval, IterationLimit::of(limit));
    assert_eq!([within(10, 10), within(10, 40), within(3, 10)], [5, 10, 3]);
    assert_eq!([within(10, 1), within(10, 0)], [1, 1]);
    assert_eq!(interval_within(10, IterationLimit::UNLIMITED), 10);
}
