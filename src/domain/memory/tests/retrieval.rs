//! What is looked up, how it is ranked, and what queries of people become.

use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

fn query(text: &str) -> Query {
    Query { text: text.to_owned(), task_type: TaskType::TestFix, repository: repository(), embedding: None }
}

fn candidates(learnings: Vec<Learning>) -> Vec<Candidate> {
    let found = learnings.into_iter().enumerate();
    found.map(|(at, learning)| Candidate { learning, by_words: Some(at), by_vector: None }).collect()
}

#[test]
fn rare_words_are_taken_and_their_postings_are_bounded() {
    let counts = [("pool", 400), ("tim", 3), ("connection", 40), ("handler", 500), ("deadlock", 1)];
    let frequency = |word: &str| {
        Ok::<u64, Infallible>(counts.iter().find(|(known, _)| *known == word).map_or(0, |(_, count)| *count))
    };
    let text = "The handler's connection pool timed out: unheard deadlock, deadlock";
    let settings = MemorySettings::default();
    let terms = |settings: &MemorySettings| rare_terms(text, settings, frequency).expect("it cannot fail");
    assert_eq!(terms(&settings), ["deadlock", "tim", "connection", "pool", "handler"]);
    assert_eq!(terms(&MemorySettings { query_terms: 2, ..settings.clone() }), ["deadlock", "tim"]);
    assert_eq!(terms(&MemorySettings { query_postings: 100, ..settings.clone() }), ["deadlock", "tim", "connection"]);
    let only_common = rare_terms("handler", &MemorySettings { query_postings: 100, ..settings }, frequency);
    assert_eq!(only_common.expect("it cannot fail"), ["handler"], "one is always taken");
}

#[test]
fn each_sort_has_its_limit_and_all_have_one() {
    let settings = MemorySettings::default();
    let mut learnings = Vec::new();
    for n in 0..5 {
        learnings.push(active(strategy(&format!("parser strategy {n}")), 0.9));
        learnings.push(active(antipattern(&format!("parser antipattern {n}")), 0.9));
    }
    let told = rank(&query("the parser"), candidates(learnings.clone()), &settings, Timestamp(0));
    let of = |kind: Kind| told.iter().filter(|one| one.learning.kind() == kind).count();
    assert_eq!((told.len(), of(Kind::Strategy), of(Kind::Antipattern)), (5, 3, 2));
    assert!(told.windows(2).all(|pair| pair[0].score >= pair[1].score));
    let none = MemorySettings { limit: 0, ..settings.clone() };
    assert!(rank(&query("the parser"), candidates(learnings.clone()), &none, Timestamp(0)).is_empty());
    let unsure = learnings.into_iter().map(|one| Learning { confidence: 0.69, ..one }).collect();
    assert!(rank(&query("the parser"), candidates(unsure), &settings, Timestamp(0)).is_empty());
}

#[test]
fn what_is_surer_and_of_the_same_type_comes_first() {
    let settings = MemorySettings::default();
    let one = active(strategy("isolate the parser"), 0.75);
    let surer = active(strategy("restart the parser"), 0.95);
    let elsewhere = Learning { task_type: TaskType::Docs, ..active(strategy("describe the parser"), 0.95) };
    let found = [&elsewhere, &one, &surer].map(|learning| Candidate {
        learning: learning.clone(),
        by_words: Some(0),
        by_vector: None,
    });
    let told = rank(&query("parser"), found.to_vec(), &settings, Timestamp(0));
    let ids: Vec<&str> = told.iter().map(|one| one.learning.id.as_str()).collect();
    assert_eq!(ids[0], surer.id);
    assert!(rank(&query(""), Vec::new(), &settings, Timestamp(0)).is_empty());
}

#[test]
fn queries_of_any_syntax_are_corrected() {
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
    fn a_corrected_query_is_its_own_correction(text in any::<String>()) {
        let asked = correct(&text);
        for phrase in asked.phrases.iter().chain(&asked.without) {
            prop_assert!(!phrase.contains('"') && !phrase.trim().is_empty());
        }
    }
}
