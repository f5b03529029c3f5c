//! Tests of the intelligence layer's values.

mod context;
mod jobs;
mod message;
mod scores;

use super::adapt::tool_suggestions;
use super::*;
use crate::domain::knowledge::prompt::{Extras, view, view_with};
use crate::domain::lifecycle::samples::*;
use crate::domain::supervision::control::{Trend, Urgency};
use crate::domain::supervision::strategy::Approach;
use crate::domain::trust::policy::Intelligence;

#[test]
fn advice_matches_the_situation() {
    let first = adapt(&fresh(), &[]);
    assert_eq!(
        first,
        [
            "Read before you change: find the code that the failing checks run, and compare two ways before you take one.",
            "For `tests`: run one test alone with `pytest -x PATH::NAME`.",
        ]
    );
    let stuck = adapt(&stuck(), &[]);
    assert_eq!(
        stuck,
        [
            "First resolve the blocker that was named in 3 iterations, or find a way around it: The fixture for empty input is not \
             in the repository.",
            "If it cannot be done as requested, say so in the report with the reason, instead of trying further.",
            "The report said twice that the work was done while checks failed: run every check before you report completion.",
            "For `tests`: run one test alone with `pytest -x PATH::NAME`.",
        ]
    );
    let late = adapt(&late(), &[]);
    assert_eq!(late[0], "The last iteration made it worse: look at `git show` first, and revert what broke it.");
    assert_eq!(
        late[1],
        "There is room for one more iteration after this one: only make failing checks pass, and refactor nothing."
    );
    assert!(late.iter().any(|sentence| sentence.contains("said once that the work was done")), "{late:?}");
    assert!(late.len() <= 6);
}

#[test]
fn slowing_progress_asks_for_smaller_steps() {
    let mut current = fresh();
    for failing in [7, 3, 2] {
        ended(&mut current, agent_report("go on", "", false), checks(failing, false));
    }
    let sentence = "Progress is slowing: take smaller steps, and run the checks after each.";
    assert!(!adapt(&current, &[]).contains(&sentence.to_owned()), "nothing was judged");
    judged(&mut current, Approach::Persist, Trend::Improving, Urgency::Normal);
    assert!(adapt(&current, &[]).contains(&sentence.to_owned()), "{:?}", adapt(&current, &[]));
}

#[test]
fn advice_of_the_plan_is_not_repeated() {
    let mut current = stuck();
    let says = |current: &Loop| adapt(current, &[]).iter().any(|sentence| sentence.contains("fixture for empty"));
    assert!(says(&current));
    let course = current.supervision.course.as_mut().unwrap();
    course
        .advice
        .push("This blocked the work in 3 iterations: `the fixture for empty input is not in the repository`".into());
    assert!(!says(&current));
}

#[test]
fn mostly_failing_tool_is_named() {
    let tool = |name: &str, calls, errors| ToolUse { name: name.into(), calls, errors };
    let suggestion = |tools: &[ToolUse]| tool_suggestions(&fresh(), tools).last().cloned().unwrap();
    assert!(
        suggestion(&[tool("WebFetch", 6, 5), tool("Bash", 90, 20)]).starts_with("`WebFetch` failed in 5 of 6 calls")
    );
    assert!(suggestion(&[tool("WebFetch", 3, 3), tool("Bash", 4, 2)]).starts_with("For `tests`"));
}

#[test]
fn disabled_intelligence_adds_no_text_and_advice_is_the_last_section() {
    let current = late();
    let model_advice =
        ModelAdvice { advice: "Read src/parse.py first.".into(), focus: vec!["src/parse.py".into()], removed: 0 };
    let context = Some(Context::of(&current, NOW).block(500));
    let extras = |intelligence| Extras {
        resumed: false,
        intelligence,
        context: context.clone(),
        model_advice: Some(model_advice.clone()),
        tools: Vec::new(),
    };
    assert_eq!(view_with(&current, "n", "/r", &extras(Intelligence::Off)), view(&current, "n", "/r"));
    let full = view_with(&current, "n", "/r", &extras(Intelligence::Full));
    assert_eq!(full.advice, "Read src/parse.py first.");
    assert!(full.context[0].starts_with("Now: iteration 10 of at most 11, "), "{:?}", full.context);
    let best = full.moment.last().unwrap();
    assert!(best.starts_with("The best state so far was that after iteration 8 (commit "), "{best}");
}

use crate::domain::loops::Loop;
