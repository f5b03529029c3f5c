//! Tables of conditions that are true, false or rejected; rules of models.

mod schedule;

use proptest::prelude::*;

use super::*;
use crate::domain::checks::criteria::TaskType;
use crate::domain::model::ids::Money;
use crate::domain::supervision::control::{Trend, Urgency};

pub(super) fn facts() -> RuleFacts {
    RuleFacts {
        iteration: 20,
        max_iterations: 50,
        elapsed_minutes: 90,
        consec_errors: 2,
        error_count: 7,
        last_error: Some("error[E0308]: mismatched types".to_owned()),
        refused: Vec::new(),
        cost: Money(8_500_000),
        cost_hour: Money(2_250_000),
        tokens: 1_200_000,
        completion: 0.4,
        control_signal: 0.55,
        urgency: Urgency::High,
        trend: Trend::Regressing,
        task_type: TaskType::TestFix,
        backend: "claude".to_owned(),
        context_pct: 71.5,
    }
}

fn evaluate(text: &str, facts: &RuleFacts) -> RuleOutcome {
    CompiledCondition::compile(text, "when").unwrap_or_else(|problem| panic!("{text}: {problem}")).evaluate(facts)
}

fn problem(text: &str) -> RuleProblem {
    match CompiledCondition::compile(text, "models.rules[1].when") {
        Ok(rule) => panic!("{text} was taken: {rule:?}"),
        Err(problem) => problem,
    }
}

#[test]
fn valid_conditions_are_evaluated() {
    for (text, holds) in [
        // As the first designs wrote them.
        ("consec_errors >= 2", true),
        ("cost > 8.00", true),
        ("cost > 8", true),
        ("iteration % 10 == 0", true),
        ("has_error", true),
        ("error_count == 7", true),
        ("elapsed >= 90", true),
        ("total_cost > 1.0", true),
        ("total_tokens > 1000000 && tokens == total_tokens", true),
        ("iteration>10", true),
        ("has_error == true", true),
        // Every name.
        ("iteration < max_iterations", true),
        ("elapsed_minutes % 30 == 0", true),
        ("cost_hour > 2.2 && cost_hour < 2.3", true),
        ("completion < 0.5", true),
        ("control_signal > 0.5", true),
        ("urgency == \"high\"", true),
        ("urgency in ['high', 'critical']", true),
        ("trend != 'regressing'", false),
        ("task_type == 'test-fix'", true),
        ("backend.startsWith('cl') && backend.endsWith(\"e\") && backend.contains('aud')", true),
        ("backend == 'codex'", false),
        ("context_pct > 70", true),
        // Whole numbers and decimals mix.
        ("cost * 2 > 16", true),
        ("cost / iteration < 1", true),
        ("iteration + 0.5 == 20.5", true),
        ("cost == 8.5", true),
        ("8 < cost", true),
        ("iteration in [1.0, 20.0]", true),
        ("cost in [8, 9]", false),
        ("(has_error ? 1 : 2.5) < 2", true),
        ("iteration / 3 == 6", true),
        ("iteration / 3.0 > 6.5", true),
        ("int(cost) % 2 == 0 && double(iteration) > 19.5", true),
        ("-iteration < -19 && -1.5 < 0", true),
        ("size(backend) == 6 && backend.size() == 6", true),
        ("!has_error || !(cost > 8)", false),
        ("iteration > 5 ? has_error : false", true),
        // Failing parts are not computed where they do not matter.
        ("iteration < 5 && iteration % (iteration - 20) == 0", false),
        ("iteration > 5 || cost / (iteration - 20) > 1", true),
    ] {
        let expected = if holds { RuleOutcome::Holds } else { RuleOutcome::Fails };
        assert_eq!(evaluate(text, &facts()), expected, "{text}");
    }
}

#[test]
fn division_by_zero_is_reported_and_counts_as_false() {
    for (text, reason) in [
        ("iteration / (iteration - 20) > 1", "it divides by 0"),
        ("iteration % (max_iterations - 50) == 0", "it takes a remainder by 0"),
        ("cost / (completion - 0.4) > 1", "it divides by 0"),
        ("cost / (iteration - 20) > 1", "it divides by 0"),
        ("!(cost / (cost - 8.5) > 1.0)", "it divides by 0"),
        ("tokens * 9223372036854775807 > 1", "a number in it is too large"),
    ] {
        assert_eq!(evaluate(text, &facts()), RuleOutcome::Broken(reason.to_owned()), "{text}");
    }
}

#[test]
fn invalid_expressions_are_reported_with_position() {
    let long = "x".repeat(EXPRESSION_MAX + 1);
    for (text, column, message) in [
        ("costs > 8", Some(1), "there is no `costs`; did you mean `cost`?"),
        ("has_error && iterations > 3", Some(14), "there is no `iterations`; did you mean `iteration`?"),
        ("cost > \"8\"", Some(6), "`>` cannot take a decimal and a text"),
        ("cost", Some(1), "a condition is true or false, not a decimal"),
        ("iteration + 1", Some(11), "a condition is true or false, not a whole number"),
        ("has_error && iteration", Some(14), "each side of `&&` is true or false, not a whole number"),
        ("!cost", Some(2), "what stands behind `!` is true or false, not a decimal"),
        ("has_error > false", Some(11), "`>` cannot take true or false and true or false"),
        (
            "cost % 2 == 0",
            Some(6),
            "`%` takes whole numbers, not a decimal and a whole number; `int(x)` cuts a decimal",
        ),
        ("iteration % 0 == 0", Some(13), "divides by 0"),
        ("cost / 0.0 > 1", Some(8), "divides by 0"),
        ("cost / 0 > 1", Some(8), "divides by 0"),
        ("backend + 'x' == 'y'", Some(9), "`+` cannot take a text and a text"),
        ("backend > 'a'", Some(9), "texts have no order for `>`; name them: `x in [\"a\", \"b\"]`"),
        ("iteration in 5", Some(14), "`in` needs a list such as `[1, 2]`"),
        ("iteration in []", Some(14), "the list is empty, so this is never true"),
        ("iteration in ['1']", Some(11), "`in` cannot take a whole number and a text"),
        ("completion >= 80", Some(15), "`completion` is 0 to 1, never 80"),
        ("-0.5 > control_signal", Some(2), "`control_signal` is 0 to 1, never -0.5"),
        ("context_pct == 850", Some(16), "`context_pct` is 0 to 100, never 850"),
        (
            "urgency == 'hihg'",
            Some(12),
            "`urgency` is one of normal, elevated, high, critical, never \"hihg\"; did you mean `high`?",
        ),
        ("8u < iteration", Some(1), "numbers are written without `u`"),
        ("null == 1", Some(1), "null is not supported; every name has a value"),
        ("[1, 2].exists(x, x > 1)", Some(14), "`all`, `exists`, `map` and similar macros are not supported"),
        ("has(backend.name)", Some(4), "`has()` is not needed; every name has a value"),
        ("", None, "is empty; set a condition such as `iteration > 5`"),
        (long.as_str(), None, "has 501 characters; at most 500 are allowed"),
        ("iteration > ", Some(13), "is not an expression: mismatched input its end"),
        ("has_error and iteration > 3", Some(11), "is not an expression: mismatched input 'and'; write `&&` for and"),
        ("iteration = 3", Some(11), "is not an expression: token recognition error at: '= '; write `==` to compare"),
        ("backend == 'ä' && costs > 1", Some(19), "there is no `costs`; did you mean `cost`?"),
    ] {
        let found = problem(text);
        assert_eq!((found.at, found.message.as_str()), (column.map(|column| (1, column)), message), "{text}");
    }
    let second = problem("has_error &&\n  costs > 1");
    assert_eq!(second.at, Some((2, 3)));
    assert_eq!(
        second.to_string(),
        "`models.rules[1].when`: line 2, column 3: there is no `costs`; did you mean `cost`?"
    );
    assert!(problem("zzz > 1").message.starts_with("there is no `zzz`; there are iteration, max_iterations"));
    assert!(problem("backend.matches('a')").message.contains("there are size, startsWith, endsWith"));
    assert!(problem("backend[0] == 'c'").message.contains("no value has elements"));
    assert!(problem("divide_decimals(cost, 0.0) > 1.0").message.contains("there is no function"));
}

#[test]
fn deep_expressions_are_rejected_or_fit_a_small_stack() {
    let deep = |open: &str, close: &str, n: usize| format!("{}1{} > 0", open.repeat(n), close.repeat(n));
    let mut texts: Vec<String> = (1..240).step_by(7).map(|n| deep("(", ")", n)).collect();
    texts.push(deep("[", "]", 30));
    texts.push(format!("{}has_error", "!".repeat(490)));
    texts.push(format!("{}1 < 0", "-".repeat(490)));
    texts.push(format!("{}1 < 0", "- ".repeat(240)));
    texts.push(format!("1{} > 0", "+1".repeat(245)));
    texts.push(format!("1{} > 0", "+1".repeat(29)));
    texts.push(deep("size(", ")", 8));
    texts.push(format!("has_error{}", "&&has_error".repeat(40)));
    texts.push(format!("{}true", "true?true:".repeat(45)));
    texts.push(format!("{}true{}", "true?".repeat(60), ":true".repeat(60)));
    texts.push(format!("a{}", ".b".repeat(240)));
    texts.push(format!("backend{} > 0", ".size()".repeat(60)));
    texts.push(format!("a{}", "[0]".repeat(160)));
    texts.push("{".repeat(500));
    texts.push("(".repeat(500));
    texts.push(format!("'{}' == backend", "(".repeat(100)));
    let work = move || {
        let mut taken = 0;
        for text in &texts {
            if let Ok(rule) = CompiledCondition::compile(text, "when") {
                taken += 1;
                assert!(!matches!(rule.evaluate(&facts()), RuleOutcome::Broken(_)), "{text}");
            }
        }
        taken
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap();
    assert!(thread.join().unwrap() >= 5);
}

#[test]
fn rule_facts_include_every_task_type() {
    for kind in TaskType::ALL {
        let facts = RuleFacts { task_type: kind, ..RuleFacts::default() };
        assert_eq!(evaluate(&format!("task_type == '{}'", kind.as_str()), &facts), RuleOutcome::Holds);
    }
}

fn model_rule(when: &str, model: &str) -> ModelRule {
    ModelRule { when: when.to_owned(), model: model.to_owned() }
}

#[test]
fn first_matching_rule_selects_model() {
    let rules = [
        model_rule("iteration % (iteration - 20) == 0", "broken"),
        model_rule("consec_errors >= 2", "opus"),
        model_rule("cost > 8.00", "haiku"),
    ];
    let rules = ModelRules::compile(Some("sonnet"), &rules, "models").unwrap();
    let choice = rules.choose(&facts());
    assert_eq!((choice.model.as_deref(), choice.rule), (Some("opus"), Some(1)));
    assert_eq!(choice.why, "rule 2: consec_errors >= 2");
    let broken = "rule 1 of models (`iteration % (iteration - 20) == 0`) has no effect: it takes a remainder by 0";
    assert_eq!(choice.broken, [broken]);
    let choice = rules.choose(&RuleFacts { iteration: 3, ..RuleFacts::default() });
    assert_eq!((choice.model.as_deref(), choice.rule, choice.why.as_str()), (Some("sonnet"), None, "the default"));
    assert_eq!(ModelRules::default().choose(&facts()).model, None);
}

#[test]
fn invalid_model_rules_are_reported_with_path() {
    let rules = [model_rule("has_error", "opus"), model_rule("costs > 8", "--yolo"), model_rule("cost", "a b")];
    let problems = ModelRules::compile(Some(""), &rules, "models").unwrap_err();
    let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
    let expected = [
        "models.default",
        "models.rules[1].model",
        "models.rules[2].model",
        "models.rules[1].when",
        "models.rules[2].when",
    ];
    assert_eq!(keys, expected);
    assert!(valid_model_name("openrouter/anthropic/claude-opus-4.5[1m]") && !valid_model_name("a;b"));
}

proptest! {
    #![proptest_config(test_support::cases(96))]

    #[test]
    fn any_text_does_not_panic(text in "[a-z0-9 ()\\[\\]<>=!&|%/*+.,'\"?:{}\\\\-]{0,60}", any in "\\PC{0,40}") {
        let _ = CompiledCondition::compile(&text, "when").map(|rule| rule.evaluate(&facts()));
        let _ = CompiledCondition::compile(&any, "when").map(|rule| rule.evaluate(&facts()));
    }

    #[test]
    fn typed_condition_gives_result_or_reason(
        text in expression(), iteration in any::<u32>(), cost in any::<i64>(), tokens in any::<u64>(),
        completion in any::<f64>(), percent in any::<f64>(),
    ) {
        let facts = RuleFacts { iteration, cost: Money(cost), tokens, completion, context_pct: percent, ..facts() };
        let Ok(rule) = CompiledCondition::compile(&text, "when") else { return Ok(()) };
        if let RuleOutcome::Broken(reason) = rule.evaluate(&facts) {
            let known = ["it divides by 0", "it takes a remainder by 0", "a number in it is too large"];
            prop_assert!(known.contains(&reason.as_str()), "{text}: {reason}");
        }
    }
}

/// Generates conditions, most of them with correct types.
fn expression() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        Just("iteration".to_owned()),
        Just("cost".to_owned()),
        Just("tokens".to_owned()),
        Just("completion".to_owned()),
        Just("context_pct".to_owned()),
        (0..20_i64).prop_map(|n| n.to_string()),
        (0..20_i64).prop_map(|n| format!("{n}.5")),
    ];
    let number = number.prop_recursive(3, 12, 2, |inner| {
        (inner.clone(), prop_oneof![Just("+"), Just("-"), Just("*"), Just("/"), Just("%")], inner)
            .prop_map(|(left, sign, right)| format!("({left} {sign} {right})"))
    });
    let compare = prop_oneof![Just("<"), Just(">="), Just("=="), Just("!=")];
    let condition = (number.clone(), compare, number).prop_map(|(left, sign, right)| format!("{left} {sign} {right}"));
    condition.prop_recursive(2, 6, 2, |inner| {
        (inner.clone(), prop_oneof![Just("&&"), Just("||")], inner)
            .prop_map(|(left, sign, right)| format!("({left}) {sign} !({right})"))
    })
}
