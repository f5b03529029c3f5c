//! Matches over inputs and effects of a loop: a new variant must not compile until each match handles it.

use regex::Regex;

use crate::source::{SourceFile, library, line_of, report, source};

/// Types whose matches list all variants. In their own files, `Self` is one of them.
const TYPES: &str = "LoopInput|CommandInput|ForgeInput|TimerInput|WorkOutcome|Effect|WorkEffect|ForgeEffect|ChannelEffect|TimerEffect|StoreEffect";
const OWN_FILES: [&str; 2] = ["domain/loops/input.rs", "domain/lifecycle/effect.rs"];

#[test]
fn matches_over_inputs_and_effects_list_all_variants() {
    let files: Vec<SourceFile> = library().into_iter().filter(|file| !file.is_test).collect();
    let faults = files.iter().flat_map(|file| {
        let lines = catch_alls(file).into_iter();
        lines.map(move |line| format!("{}:{line}: list the variants instead of a pattern for all others", file.path))
    });
    report(faults.collect::<Vec<_>>().into_iter());
}

/// Returns the lines of arms that match all other variants of the types.
fn catch_alls(file: &SourceFile) -> Vec<usize> {
    let types =
        if OWN_FILES.iter().any(|own| file.path.ends_with(own)) { format!("{TYPES}|Self") } else { TYPES.into() };
    let listed = Regex::new(&format!(r"[{{,}}|]\s*&?(?:{types})::")).expect("pattern");
    let rest = Regex::new(r"[{,}]\s*(_|[a-z]\w*) =>").expect("pattern");
    let arms = rest.captures_iter(&file.code).map(|found| found.get(1).expect("group").start());
    let over_types = arms.filter(|at| listed.is_match(&enclosing_block(&file.code, *at)));
    over_types.map(|at| line_of(&file.code, at)).collect()
}

/// Returns the block around a position, from its brace on, with the content of all inner brackets left out.
fn enclosing_block(code: &str, at: usize) -> String {
    let mut depth = 0;
    let start = code[..at].char_indices().rev().find_map(|(index, character)| {
        depth += match character {
            ')' | ']' | '}' => 1,
            '(' | '[' | '{' => -1,
            _ => 0,
        };
        (depth < 0).then_some(index)
    });
    let (mut block, mut depth) = (String::new(), 0);
    for character in code[start.unwrap_or(0)..].chars() {
        depth -= i32::from(matches!(character, ')' | ']' | '}'));
        if depth <= 1 {
            block.push(character);
        }
        depth += i32::from(matches!(character, '(' | '[' | '{'));
        if depth == 0 {
            break;
        }
    }
    block
}

#[test]
fn pattern_for_all_other_variants_is_found() {
    let found = |text: &str| catch_alls(&source("crates/core/src/domain/x.rs", text));
    let none: [usize; 0] = [];
    assert_eq!(found("match e {\n    Effect::Work(w) => f(w),\n    _ => {}\n}"), [3]);
    assert_eq!(found("match &e {\n    Effect::Work(w) | Effect::Forge(w) => { f(w) }\n    other => g(other),\n}"), [3]);
    assert_eq!(
        found("match e {\n    Effect::Work(w) => match w { W::A => 1, _ => 2 },\n    Effect::Forge(_) => 3,\n}"),
        none
    );
    assert_eq!(found("match x {\n    X::A => Effect::Work(w),\n    _ => Effect::Forge(f),\n}"), none);
}
