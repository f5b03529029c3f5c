//! Tests of the retrieval of learnings: candidates, ranking, and people's queries.

use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

fn query(text: &str) -> LearningQuery {
    LearningQuery { text: text.to_owned(), task_type: TaskType::TestFix, repository: repository(), embedding: None }
}

fn candidates(learnings: Vec<Learning>) -> Vec<LearningCandidate> {
    let found = learnings.into_iter().enumerate();
    found
        .map(|(at, learning)| LearningCandidate { learning, by_words: Some(1.0 / (1.0 + at as f64)), by_vector: None })
        .collect()
}

#[test]
fn rare_terms_are_selected_within_posting_limit() {
    let counts = [("pool", 400), ("tim", 3), ("connection", 40), ("handler", 500), ("deadlock", 1)];
    let frequency = |word: &str| {
        Ok::<u64, Infallible>(counts.iter().find(|(known, _)| *known == word).map_or(0, |(_, count)| *count))
    };
    let text = "The handler's connection pool timed out: unheard deadlock, deadlock";
    let settings = MemorySettings::default();
    let words = |text: &str, settings: &MemorySettings| -> Vec<String> {
        let terms = rare_terms(text, settings, frequency).expect("it cannot fail");
        terms.into_iter().map(|term| term.word).collect()
    };
    assert_eq!(words(text, &settings), ["deadlock", "tim", "connection", "pool", "handler"]);
    assert_eq!(words(text, &MemorySettings { query_terms: 2, ..settings.clone() }), ["deadlock", "tim"]);
    let bounded = MemorySettings { query_postings: 100, ..settings };
    assert_eq!(words(text, &bounded), ["deadlock", "tim", "connection"]);
    assert_eq!(words("handler", &bounded), ["handler"], "one is always taken");
}

#[test]
fn rows_are_ordered_by_term_weight() {
    let weight = |learnings: u64| Term { word: "pool".to_owned(), learnings }.weight(1_000);
    assert!(weight(1) > weight(40) && weight(40) > weight(999) && weight(999) > 0.0);
    // Manual calculation: ln(1 + 990.5 / 10.5).
    assert!((weight(10) - 4.557_379).abs() < 1e-6, "{}", weight(10));
    assert!(Term { word: "pool".to_owned(), learnings: 7 }.weight(0) > 0.0, "a count that lags behind does no harm");
    let holding =
        |rows: &[i64], weight: f64| rows.iter().map(|row| TermMatch { row: *row, weight }).collect::<Vec<_>>();
    let postings = [holding(&[2, 5, 9], 0.1), holding(&[5, 7, 9], 0.2), holding(&[3], 0.25)].concat();
    let best = best_first(postings);
    assert_eq!(best.iter().map(|one| one.row).collect::<Vec<_>>(), [9, 5, 3, 7, 2], "the newest of equals first");
    assert!(best_first(Vec::new()).is_empty());
}

#[test]
fn short_text_ranks_before_long_one() {
    let weights = Weights { cosine: 0.0, ..Weights::default() };
    let settings = MemorySettings::default();
    let short = active(strategy("restart the parser"), 0.9);
    let long = active(strategy("restart the parser, then look at what the lexer left in its buffer of tokens"), 0.9);
    let best_id = |short_weight: f64, long_weight: f64| {
        let found = [(&long, long_weight), (&short, short_weight)].map(|(learning, weight)| LearningCandidate {
            learning: learning.clone(),
            by_words: Some(weight),
            by_vector: None,
        });
        let best_id = rank_by(&weights, &query("parser"), found.to_vec(), &settings, Timestamp(0));
        (best_id[0].learning.id == short.id, best_id[0].score - best_id[1].score)
    };
    assert!(best_id(1.0, 1.0).0 && best_id(1.0, 1.0).1 > 0.0);
    assert!(!best_id(1.0, 9.0).0, "what shares much more comes first all the same");
    let twins = [active(strategy("restart the parser"), 0.9), active(strategy("restart the lexer"), 0.9)]
        .map(|learning| LearningCandidate { learning, by_words: Some(1.0), by_vector: None });
    let best_id = rank_by(&weights, &query("restart"), twins.to_vec(), &settings, Timestamp(0));
    assert_eq!(best_id[0].score, best_id[1].score, "what is worth the same shares its place");
}

#[test]
fn ranking_respects_limits_per_kind_and_total() {
    let settings = MemorySettings::default();
    let mut learnings = Vec::new();
    for n in 0..5 {
        learnings.push(active(strategy(&format!("parser strategy {n}")), 0.9));
        learnings.push(active(antipattern(&format!("parser antipattern {n}")), 0.9));
    }
    let ranked = rank(&query("the parser"), candidates(learnings.clone()), &settings, Timestamp(0));
    let of = |kind: LearningKind| ranked.iter().filter(|one| one.learning.kind() == kind).count();
    assert_eq!((ranked.len(), of(LearningKind::Strategy), of(LearningKind::Antipattern)), (5, 3, 2));
    assert!(ranked.windows(2).all(|pair| pair[0].score >= pair[1].score));
    let none = MemorySettings { limit: 0, ..settings.clone() };
    assert!(rank(&query("the parser"), candidates(learnings.clone()), &none, Timestamp(0)).is_empty());
    let unsure = learnings.into_iter().map(|one| Learning { confidence: 0.69, ..one }).collect();
    assert!(rank(&query("the parser"), candidates(unsure), &settings, Timestamp(0)).is_empty());
}

#[test]
fn confident_learning_of_same_type_ranks_first() {
    let settings = MemorySettings::default();
    let one = active(strategy("isolate the parser"), 0.75);
    let surer = active(strategy("restart the parser"), 0.95);
    let elsewhere = Learning { task_type: TaskType::Docs, ..active(strategy("describe the parser"), 0.95) };
    let found = [&elsewhere, &one, &surer].map(|learning| LearningCandidate {
        learning: learning.clone(),
        by_words: Some(1.0),
        by_vector: None,
    });
    let ranked = rank(&query("parser"), found.to_vec(), &settings, Timestamp(0));
    let ids: Vec<&str> = ranked.iter().map(|one| one.learning.id.as_str()).collect();
    assert_eq!(ids[0], surer.id);
    assert!(rank(&query(""), Vec::new(), &settings, Timestamp(0)).is_empty());
}

#[test]
fn query_of_any_syntax_is_accepted() {
    let cases = [
        ("bash.*failed", r#""bash" AND "fail""#),
        ("connection OR pool", r#""connection" OR "pool""#),
        ("connection AND pool", r#""connection" AND "pool""#),
        (r#""connection pool" retry"#, r#""connection pool" AND "retry""#),
        ("pool NOT mutex", r#"("pool") NOT ("mutex")"#),
        ("pool -mutex -lock", r#"("pool") NOT ("mutex" OR "lock")"#),
        ("title: NEAR(parser lexer, 5)", r#""titl" AND "parser" AND "lexer""#),
        (r#"an "unclosed quote"#, r#""unclos" AND "quot""#),
        ("words MATCH 'x*' ^start", r#""word" AND "match" AND "start""#),
        ("größe 修正", r#""größe" AND "修" AND "正""#),
    ];
    for (query, expected) in cases {
        assert_eq!(correct(query).to_fts().as_deref(), Some(expected), "{query}");
    }
    for nothing in ["", "   ", "\"\"", "* ^ : ( )", "NOT", "NOT mutex", "AND OR NEAR", "the of and"] {
        assert_eq!(correct(nothing).to_fts(), None, "{nothing}");
    }
    assert_eq!(correct(&"word9 x1y2 ".repeat(2_000)).phrases.len(), 2);
    let long: String = (0..4_000).map(|n| format!("w{n} ")).collect();
    assert_eq!(correct(&long).phrases.len(), 32);
}

proptest! {
    #[test]
    fn query_correction_is_idempotent(text in any::<String>()) {
        let corrected = correct(&text);
        for phrase in corrected.phrases.iter().chain(&corrected.without) {
            prop_assert!(!phrase.contains('"') && !phrase.trim().is_empty());
        }
    }
}
