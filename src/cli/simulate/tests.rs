//! Simulations as people see them.

mod memory;

use super::*;
use crate::domain::supervision::SupervisionSettings;

fn small(name: &str) -> Outcome {
    let mix = Mix::named(name).expect("a mix");
    super::outcome(&mix, &SupervisionSettings::default(), 1, 30, true)
}

#[test]
fn the_table_has_every_policy_and_part() {
    let outcome = small("everyday");
    let mut text = String::new();
    table(&mut text, &outcome);
    let text = anstream::adapter::strip_str(&text).to_string();
    assert_eq!(text.lines().count(), 2 + outcome.policies.len() + outcome.parts.len() + 1);
    for name in ["limit of 10", "stall rule", "ours", "  without fresh sessions", "oracle"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}\n{text}");
    }
    // Every figure bears its interval: half its width, and the gap its ends.
    let ours = text.lines().find(|line| line.starts_with("ours ")).unwrap();
    assert_eq!((ours.matches(" ± ").count(), ours.matches(" to ").count()), (8, 1), "{ours}");
    assert_eq!(about(Figure { value: 17.84, low: 17.3, high: 18.5 }, 1), "17.8 ± 0.6");
    let json = serde_json::to_value(&outcome).unwrap();
    assert!(json["parts"][0]["brings"]["low"].is_number() && json["parts"][0]["policy"].is_string());
    // What is off is added, and makes a difference.
    let effort = outcome.parts.iter().find(|part| part.figures.policy == "with effort").unwrap();
    assert_ne!(effort.brings, Figure::default());
}

#[test]
fn the_page_says_what_was_assumed_and_what_came_of_it() {
    let args = SimulateArgs { tasks: Some(30), seed: 1, mix: Vec::new(), memory: false, brief: false, markdown: None };
    let outcomes: Vec<Outcome> = HELD_OUT.iter().map(|name| small(name)).collect();
    let page = page::markdown(&args, &outcomes, &SupervisionSettings::default());
    for heading in
        ["Aims", "gentle", "hopeless", "shifty", "What each part is worth", "The model", "Defaults that were"]
    {
        assert!(page.contains(&format!("\n## {heading}")), "{heading}");
    }
    assert!(page.contains("ralph-bot simulate --tasks 30 --seed 1 --markdown docs/simulation.md"), "{page}");
    assert!(!page.contains("NaN") && !page.contains(" inf"));
    let row =
        |begins: &str| page.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("{begins}: {page}"));
    assert_eq!(row("| ours | ").matches(" ± ").count(), 10);
    assert_eq!(row("| without stuck |").matches(" to ").count(), outcomes.len());
    assert!(row("| with all actuators |").matches("+0.00 (+0.00 to +0.00)").count() < outcomes.len());
}

#[test]
fn every_default_that_was_changed_has_its_reason() {
    let reasons = page::reasons();
    let changed: Vec<String> = page::differences().into_iter().map(|(key, ..)| key).collect();
    let without: Vec<&String> = changed.iter().filter(|key| !reasons.contains(&key.as_str())).collect();
    let idle: Vec<&&str> = reasons.iter().filter(|key| !changed.iter().any(|changed| changed == **key)).collect();
    assert!(without.is_empty() && idle.is_empty(), "without a reason: {without:?}; reasons for nothing: {idle:?}");
}

#[test]
fn a_mix_comes_by_name_or_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let mine = mix(&file("mine.yaml", "name: mine\nregimes: {slow: 1}\nagent: {flaky: 0.5}\n")).unwrap();
    assert_eq!((mine.name.as_str(), mine.regimes.len(), mine.agent.flaky), ("mine", 1, 0.5));
    assert_eq!(mine.prices, Mix::default().prices);
    assert_eq!(mix("rough").unwrap(), Mix::named("rough").unwrap());
    let refused = |named: &str| match mix(named) {
        Err(CliError::Usage(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(refused("nowhere").contains("one of the mixes everyday, rough"));
    assert!(refused(&file("typo.yaml", "agent: {flakey: 1}\n")).contains("flakey"));
    assert!(refused(&file("range.yaml", "max_iterations: 0\n")).ends_with("it must be between 1 and 1000"));
}
