//! Numbers in assertions: bounds, tolerances and digits. Determines whether another version of an assertion accepts a wider
//! range.

use std::borrow::Cow;

use super::code_tokens::with_sign;
use super::language::{Language, arguments};
use super::versions::{AssertionChange, fails_under_condition, is_same_value, literals};

pattern!(NUMBER, r"\b\d[\d_]*(?:\.\d+)?(?:\.?[eE][-+]?\d+)?");
// What stands before a tolerance.
pattern!(
    TOLERANCE,
    r"(?i)(?:\b\w*(?:rel|abs|[ar]?tol\w*|delta|eps\w*|margin|offset|percent\w*|max_relative|ulps|within|be_within|withPercentage|fuzz|slack|precision_loss|max_?diff\w*|max_error|drift|jitter|leeway)\b(?:\s?:\s?\w+\b)?[^\w\s]{0,3}\s?[^\w\s]{0,2}\s?|\bnum-?diff\b[^|;&]*\s-[ar]\s)$"
);
// What stands before a number of digits.
pattern!(
    DIGITS,
    r"(?i)\b(?:places|decimals?|digits|precision|significant|scale)\W{0,3}$|\.(?:round|toFixed|toPrecision)\($|\bround\((?:[^()]|\([^()]*\))*,\s*$"
);
// Assertions that end with a tolerance.
pattern!(
    ENDS_WITH_TOLERANCE,
    r"(?i)\b\w*(?:near|InDelta|InEpsilon|WithDelta|in_delta|in_epsilon|closeTo|approximately|assertEquals|float_within|double_within|int_within|approx_eq|relative_eq|abs_diff_eq|allclose|isclose|within_abs|within_rel|within_?ulp|withinRel|withinAbs|ulps_eq|almost_eq\w*|close_enough|float_eq\w*|double_eq\w*|close|approx)\w*f?!?\b"
);
pattern!(ENDS_WITH_DIGITS, r"\btoBeCloseTo\(|\bassertAlmostEquals?\(|\bassert_(?:array_)?almost_equal\(");
pattern!(TOLERANCE_NAME, r"(?i)^\s*(?:rel|abs|[ar]tol|delta|eps\w*|margin|tol\w*)\w*\s*[=:]");

/// Maximum share of the expected value for which an added tolerance counts as rounding.
const ROUNDING: f64 = 0.01;
/// Minimum number of digits for which an added precision counts as rounding.
const ROUNDING_DIGITS: f64 = 2.0;

/// Returns an assertion with powers of ten and constants of the machine precision replaced by plain numbers. A machine precision
/// becomes 1e-6, to which legitimate work often changes it.
pub(super) fn with_plain_numbers(text: &str) -> Cow<'_, str> {
    pattern!(
        POWER,
        r"\b10(?:\.0)?(?:_?f(?:32|64))?(?:\s*\*\*\s*\(?|\.pow[if]?\()(-?\d+)\)?|\b(?:[Mm]ath\.)?[Pp]ow\(\s*10(?:\.0)?\s*,\s*(-?\d+)\s*\)"
    );
    pattern!(
        PRECISION,
        r"\b(?:Number\.EPSILON|(?:std::)?f(?:32|64)::EPSILON|PHP_FLOAT_EPSILON|Float::EPSILON|(?:DBL|FLT|LDBL)_EPSILON|sys\.float_info\.epsilon|np\.finfo\([\w.]+\)\.eps|Double\.MIN_VALUE|math\.SmallestNonzeroFloat(?:32|64)|(?:std::)?numeric_limits<\w+>::epsilon\(\))"
    );
    match PRECISION.replace_all(text, "1e-6") {
        Cow::Borrowed(text) => POWER.replace_all(text, "1e${1}${2}"),
        Cow::Owned(text) => Cow::Owned(POWER.replace_all(&text, "1e${1}${2}").into_owned()),
    }
}

/// Returns the numbers in a line, with their signs.
pub(super) fn numbers(line: &str) -> Vec<f64> {
    placed_numbers(line).into_iter().map(|(_, number)| number).collect()
}

/// Returns the numbers in a line with their signs, each with the offset at which it begins.
fn placed_numbers(line: &str) -> Vec<(usize, f64)> {
    let number = |found: regex::Match<'_>| {
        let start = with_sign(line, found.start());
        Some((start, line[start..found.end()].replace('_', "").parse().ok()?))
    };
    NUMBER.find_iter(line).filter_map(number).collect()
}

/// Returns the text before a number, at most its last 400 bytes.
fn lead(text: &str, number: usize) -> &str {
    &text[text.floor_char_boundary(number.saturating_sub(400))..number]
}

/// Compares two lines that differ only in their literals.
pub(super) fn compare_values(language: Language, old: &str, new: &str) -> AssertionChange {
    pattern!(FAILS_BEHIND, r"&&\s*\{?\s*(?:echo|fail|exit|die|return|false)\b|\bexit\s*\(?[^!]*[<>]");
    let shell = language == Language::Shell;
    let asserts = language.asserts(old) || (shell && computes(old));
    let (before, after) = (placed_numbers(old), placed_numbers(new));
    let last = before.len().saturating_sub(1);
    let mut bound = false;
    for (at, ((start, was), (_, is))) in before.iter().zip(&after).enumerate().filter(|(_, (a, b))| a.1 != b.1) {
        let lead = lead(old, *start);
        let ends = at == last && at > 0;
        let named_tolerance = TOLERANCE.is_match(lead);
        let digits = DIGITS.is_match(lead) || (ends && !named_tolerance && ENDS_WITH_DIGITS.is_match(lead));
        let near_call = ends && ENDS_WITH_TOLERANCE.is_match(lead) && is_tolerance(old, *was);
        let tolerance = !digits && (named_tolerance || near_call);
        let lead = lead.trim_end().trim_end_matches('=');
        let (below, above) =
            (lead.ends_with('<'), lead.ends_with('>') && !lead.ends_with("=>") && !lead.ends_with("->"));
        // In Go, the comparison is of what fails.
        let fails = language == Language::Go || fails_under_condition(old) || (shell && FAILS_BEHIND.is_match(old));
        let near = lead.to_lowercase().contains("abs");
        let named = |words: &[&str]| words.iter().any(|word| lead.to_lowercase().contains(word));
        let at_most = named(&[
            "lessthan",
            "less_than",
            "_lt(",
            "_le(",
            "at_most",
            "atmost",
            "tobelessthan",
            "below",
            "-lt",
            "-le",
            ":<,",
            ":<=,",
        ]);
        let at_least = named(&[
            "greaterthan",
            "greater_than",
            "_gt(",
            "_ge(",
            "at_least",
            "atleast",
            "above",
            "-gt",
            "-ge",
            ":>,",
            ":>=,",
        ]);
        let wider = (digits && is < was)
            || (tolerance && is > was)
            || (below && asserts && !fails && is > was)
            || (above && asserts && !fails && is < was)
            || (below && fails && asserts && is < was)
            || (at_most && asserts && is > was)
            || (at_least && asserts && is < was)
            || ((near || asserts) && fails && above && is > was);
        if wider {
            return AssertionChange::Wider;
        }
        bound |= digits || tolerance || below || above;
    }
    let (old, new) = (literals(old), literals(new));
    let differing = old.iter().zip(&new).filter(|(a, b)| !is_same_value(a, b)).count();
    if !bound && old.len() == new.len() && differing > 0 {
        AssertionChange::Expectation
    } else {
        AssertionChange::Other
    }
}

/// Whether a line of a shell script compares numbers with a program such as `bc`.
fn computes(line: &str) -> bool {
    pattern!(COMPUTES, r"\b(?:awk|gawk|bc|perl|python3?|node|ruby)\b.*[<>]=?\s*-?[\d.]|\(\(.*[<>]=?\s*-?\d");
    COMPUTES.is_match(line)
}

/// Whether the last number of a comparison can be a tolerance, because it is the third argument.
fn is_tolerance(line: &str, number: f64) -> bool {
    !line.contains("assertEquals") || (number < 1.0 && line.matches(',').count() >= 2)
}

/// Whether two versions of an approximate comparison differ only in the last argument, and that is larger in the new version.
pub(super) fn has_wider_tolerance(old: &str, new: &str) -> bool {
    let last = |text: &str| {
        let call = ENDS_WITH_TOLERANCE.find_iter(text).filter(|call| text[call.end()..].starts_with('(')).last()?;
        let mut arguments = arguments(&text[call.end() + 1..]);
        let last = arguments.pop()?;
        let named = TOLERANCE_NAME.is_match(&last);
        (arguments.len() >= 2 || named).then_some((text[..call.start()].to_owned(), arguments, last))
    };
    let (Some(old), Some(new)) = (last(old), last(new)) else { return false };
    let greatest = |text: &str| numbers(text).into_iter().fold(f64::NEG_INFINITY, f64::max);
    (&old.0, &old.1) == (&new.0, &new.1) && old.2 != new.2 && greatest(&new.2) > greatest(&old.2)
}

/// Whether two versions of an assertion differ in only one number, and the new version accepts less: it has a smaller tolerance,
/// more digits, or a narrower bound.
pub(super) fn demands_more(language: Language, old: &str, new: &str) -> bool {
    pattern!(AT_MOST, r"(?:^|[^<=-])<=?\s*$|(?i)(?:less|below|at_?most)\w*\(\s*$|-l[te]\s+$|_L[TE]\(.*,\s*$");
    pattern!(AT_LEAST, r"(?:^|[^>=-])>=?\s*$|(?i)(?:greater|above|at_?least)\w*\(\s*$|-g[te]\s+$|_G[TE]\(.*,\s*$");
    let (before, after) = (placed_numbers(old), placed_numbers(new));
    let mut changed = before.iter().zip(&after).filter(|(old, new)| old.1 != new.1);
    let (Some(((start, was), (_, is))), None) = (changed.next(), changed.next()) else { return false };
    let others = literals(old).into_iter().zip(literals(new)).filter(|(old, new)| !is_same_value(old, new));
    if others.count() != 1 {
        return false;
    }
    match (stated_tolerance(old), stated_tolerance(new)) {
        (Some(Tolerance::Digits(then)), Some(Tolerance::Digits(now))) => return then == *was && now > then,
        (Some(Tolerance::Deviation(then)), Some(Tolerance::Deviation(now))) => return then == *was && now < then,
        _ => {}
    }
    let lead = &old[..*start];
    let fails = language == Language::Go || fails_under_condition(old);
    let (most, least) = (AT_MOST.is_match(lead), AT_LEAST.is_match(lead));
    if fails && !lead.ends_with('(') {
        return most && is > was || least && is < was;
    }
    most && is < was || least && is > was
}

/// Whether the new version of an assertion allows a deviation that the old version did not, and that is larger than rounding.
pub(super) fn adds_tolerance(old: &str, new: &str) -> bool {
    if stated_tolerance(old).is_some() {
        return false;
    }
    match stated_tolerance(new) {
        Some(Tolerance::Digits(digits)) => digits < ROUNDING_DIGITS,
        Some(Tolerance::Deviation(deviation)) => {
            let others = numbers(new).into_iter().map(f64::abs).filter(|number| *number != deviation);
            deviation > ROUNDING * others.fold(1.0, f64::max)
        }
        None => false,
    }
}

/// Deviation that an assertion accepts.
enum Tolerance {
    /// Number of decimal digits that must be equal.
    Digits(f64),
    /// Maximum absolute or relative deviation.
    Deviation(f64),
}

/// Returns the tolerance that an assertion states as a number; `None` if it states none.
fn stated_tolerance(text: &str) -> Option<Tolerance> {
    pattern!(
        NAMED,
        r"(?i)\b(?:abs|rel|[ar]tol|(?:abs|rel)_tol|delta|eps(?:ilon)?|margin|tolerance|max_relative|max_ulps)\w*\s?[=:]\s?$|\.(?:epsilon|margin|isWithin|be_within|within|plusOrMinus)\($|\b(?:be_within|within|offset)\($"
    );
    pattern!(IN_DELTA, r"\bassert_in_(?:delta|epsilon)\s");
    let numbers = placed_numbers(text);
    if let Some((_, digits)) = numbers.iter().find(|(start, _)| DIGITS.is_match(lead(text, *start))) {
        return Some(Tolerance::Digits(*digits));
    }
    if let Some((_, deviation)) = numbers.iter().find(|(start, _)| NAMED.is_match(lead(text, *start))) {
        return Some(Tolerance::Deviation(*deviation));
    }
    let last =
        |list: &[String]| list.last().and_then(|last| last.trim().trim_end_matches(['f', 'd', 'F', 'D']).parse().ok());
    if let Some(call) = ENDS_WITH_DIGITS.find(text) {
        let arguments = arguments(&text[call.end()..]);
        let least = if call.as_str().starts_with("toBe") { 2 } else { 3 };
        return last(&arguments).filter(|_| arguments.len() >= least).map(Tolerance::Digits);
    }
    if let Some(call) = IN_DELTA.find(text) {
        let arguments = arguments(&text[call.end()..]);
        return last(&arguments).filter(|_| arguments.len() >= 3).map(Tolerance::Deviation);
    }
    let call = ENDS_WITH_TOLERANCE.find_iter(text).filter(|call| text[call.end()..].starts_with('(')).last()?;
    let arguments = arguments(&text[call.end() + 1..]);
    // The first argument can be the message.
    let message = arguments.first().is_some_and(|first| first.starts_with(['"', '\'']));
    last(&arguments).filter(|_| arguments.len() >= 3 && !message).map(Tolerance::Deviation)
}

#[cfg(test)]
mod tests {
    use super::super::matcher::compare;
    use super::*;

    #[test]
    fn powers_and_the_machines_precision_become_numbers() {
        for (text, plain) in [
            ("x < 10 ** -9", "x < 1e-9"),
            ("x < 10**(-9)", "x < 1e-9"),
            ("10f64.powi(-9)", "1e-9"),
            ("Math.pow(10, -3)", "1e-3"),
            ("diff < f64::EPSILON", "diff < 1e-6"),
            ("110 ** 2", "110 ** 2"),
        ] {
            assert_eq!(with_plain_numbers(text), plain);
        }
    }

    #[test]
    fn versions_of_a_bound_are_compared_by_sign_and_exponent() {
        use AssertionChange::{Expectation, Other, Wider};
        for (language, old, new, change) in [
            (Language::JavaScript, "expect(a).toBeCloseTo(150, 3)", "expect(a).toBeCloseTo(150, -3)", Wider),
            (Language::JavaScript, "expect(a).toBeCloseTo(150, -3)", "expect(a).toBeCloseTo(150, 3)", Other),
            (Language::JavaScript, "expect(a).toBeCloseTo(150)", "expect(a).toBeCloseTo(15)", Expectation),
            (Language::Python, "assert a == approx(1.5, abs=.001)", "assert a == approx(1.5, abs=0.001)", Other),
            (Language::Python, "assert a == approx(1.5, abs=1e-9)", "assert a == approx(-1.5, abs=1e-9)", Expectation),
            (Language::Python, "assert a == approx(1.5)", "assert a == approx(1.5, abs=1e-9)", Other),
            (Language::Python, "assert a == approx(1.5)", "assert a == approx(1.5, abs=1)", Wider),
            (Language::Go, "if got < 3 { t.Error(got) }", "if got < -3 { t.Error(got) }", Wider),
            (Language::Go, "if got != 3 {", "if got != -3 {", Expectation),
            (Language::Jvm, "assertEquals(3, a());", "assertEquals(\"areas\", 3, a());", Other),
        ] {
            assert_eq!(compare(language, old, new), change, "{old} -> {new}");
        }
    }
}
