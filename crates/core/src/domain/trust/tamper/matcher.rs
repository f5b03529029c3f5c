//! Comparison of two versions of an assertion: whether the new one accepts more values, or expects another value. Names of
//! matchers are split into words, because the words are the same in most frameworks.

use super::bounds::{adds_tolerance, compare_values, demands_more, has_wider_tolerance, numbers, with_plain_numbers};
use super::code_tokens::{CodeTokens, Difference};
use super::language::{AssertionStrength, Language};
use super::versions::{AssertionChange, fails_under_condition, is_same_value, literals, shape};

// Patterns that match every text.
pattern!(ANY_TEXT, r#"^["'`/]?\^?(?:\.?[*+]?|\.|\[\\s\\S\][*+]|%|\\w[*+]|\\S[*+]|[a-z]?)\$?["'`/]?$"#);

/// Words of matchers that accept exactly one value.
const EXACT: [&str; 18] = [
    "equal",
    "equals",
    "eq",
    "eql",
    "same",
    "identical",
    "exactly",
    "strict",
    "strictly",
    "streq",
    "strcmp",
    "is",
    "with",
    "times",
    "once",
    "exact",
    "equivalent",
    "cmp",
];
/// Words of matchers that accept a part of a value, or a range.
const PARTIAL: [&str; 69] = [
    "issubset",
    "issuperset",
    "contain",
    "contains",
    "containing",
    "include",
    "includes",
    "including",
    "in",
    "match",
    "matches",
    "matching",
    "regex",
    "regexp",
    "like",
    "start",
    "starts",
    "end",
    "ends",
    "prefix",
    "suffix",
    "substring",
    "subset",
    "superset",
    "within",
    "between",
    "near",
    "close",
    "approx",
    "almost",
    "approximately",
    "delta",
    "isclose",
    "allclose",
    "greater",
    "less",
    "ge",
    "gt",
    "le",
    "lt",
    "gte",
    "lte",
    "least",
    "most",
    "above",
    "below",
    "partial",
    "partially",
    "ignoring",
    "ignore",
    "unordered",
    "order",
    "insensitive",
    "case",
    "lower",
    "upper",
    "lowercase",
    "uppercase",
    "trim",
    "strip",
    "sorted",
    "round",
    "rounded",
    "floor",
    "abs",
    "set",
    "any",
    "grep",
    "has",
];
/// Words of matchers that accept nearly every value.
const KIND: [&str; 51] = [
    "finite",
    "instance",
    "isinstance",
    "type",
    "typeof",
    "kind",
    "nil",
    "null",
    "none",
    "undefined",
    "defined",
    "exist",
    "exists",
    "present",
    "truthy",
    "falsy",
    "blank",
    "some",
    "string",
    "number",
    "array",
    "object",
    "int",
    "integer",
    "float",
    "bool",
    "boolean",
    "callable",
    "numeric",
    "anything",
    "respond",
    "hasattr",
    "ok",
    "err",
    "called",
    "len",
    "length",
    "size",
    "count",
    "empty",
    "nonempty",
    "positive",
    "iterable",
    "isset",
    "value",
    "any",
    "valid",
    "runs",
    "nonzero",
    "zero",
    "success",
];
/// Words in the names of general exceptions, which include all others.
const BROAD: [&str; 12] = [
    "exception",
    "throwable",
    "error",
    "base",
    "runtime",
    "standard",
    "std",
    "object",
    "any",
    "baseexception",
    "js",
    "lang",
];
/// Words that negate a matcher.
const NEGATION: [&str; 9] = ["not", "ne", "neq", "refute", "never", "unless", "differ", "no", "without"];
/// Words that add a requirement, so that losing one of them loosens an assertion.
const DEMANDS: [&str; 19] = [
    "with",
    "once",
    "times",
    "match",
    "message",
    "exactly",
    "strict",
    "deep",
    "and",
    "msg",
    "code",
    "args",
    "await",
    "resolves",
    "rejects",
    "ordered",
    "all",
    "every",
    "containing",
];

/// Compares two versions of an assertion.
pub(super) fn compare(language: Language, old: &str, new: &str) -> AssertionChange {
    // What a failure says, in AssertJ.
    pattern!(DESCRIBED, r"\.(?:as|describedAs|withFailMessage|overridingErrorMessage)\([^()]*\)");
    let plain = |text: &str| with_plain_numbers(&DESCRIBED.replace_all(text, "")).into_owned();
    let (old, new) = (&*plain(old), &*plain(new));
    if shape(old) == shape(new) {
        let (before, after) = (literals(old), literals(new));
        if before != after && before.iter().zip(&after).all(|(old, new)| is_same_value(old, new)) {
            return AssertionChange::Other;
        }
        let verdict = compare_values(language, old, new);
        if verdict == AssertionChange::Wider {
            return verdict;
        }
        if demands_more(language, old, new) {
            return AssertionChange::Other;
        }
    }
    if has_wider_tolerance(old, new) || adds_tolerance(old, new) {
        return AssertionChange::Wider;
    }
    if let Some(verdict) = in_other_words(language, old, new) {
        return verdict;
    }
    if compares_less(old, new) {
        return AssertionChange::Wider;
    }
    let difference = Difference::between(old, new);
    let fails_if = fails_under_condition(old);
    let (lost, gained) = (&difference.lost, &difference.gained);
    if language.demand(old) == AssertionStrength::Exact && language.demand(new) == AssertionStrength::Little {
        return AssertionChange::Wider;
    }
    let types = TYPE.is_match(new) && !TYPE.is_match(old);
    if asks_little(&difference, types, fails_if) {
        return AssertionChange::Wider;
    }
    if has_alternative(language, &difference, fails_if) || is_broader_exception(old, &difference) {
        return AssertionChange::Wider;
    }
    if types && (lost.has_word(&EXACT) || lost.has_sign(exact_signs(fails_if))) {
        return AssertionChange::Looser;
    }
    if is_listed(&difference, fails_if) {
        return AssertionChange::Looser;
    }
    let trivial = |literals: &[String]| literals.iter().all(|literal| is_trivial(literal));
    let exact_lost = lost.has_word(&EXACT) || lost.has_sign(exact_signs(fails_if));
    let exact_gained = gained.has_word(&EXACT) || gained.has_sign(exact_signs(fails_if));
    let turned =
        gained.has_word(&NEGATION) || gained.has_sign(&["!"]) || lost.has_word(&NEGATION) || lost.has_sign(&["!"]);
    let demanded = !lost.literals.is_empty() && !trivial(&lost.literals);
    let kind =
        gained.calls_word(&KIND) || (!gained.literals.is_empty() && trivial(&gained.literals) && loose_sign(gained));
    const PART: [&str; 12] = [
        "slice",
        "take",
        "first",
        "head",
        "limit",
        "sub",
        "substr",
        "substring",
        "prefix",
        "truncate",
        "islice",
        "strncmp",
    ];
    if gained.has_word(&PART) && !lost.has_word(&PART) && demanded {
        return AssertionChange::Wider;
    }
    if kind && demanded && lost.literals.len() > gained.literals.len() {
        return AssertionChange::Wider;
    }
    if kind && exact_lost && !exact_gained && (lost.literals.is_empty() || !trivial(&lost.literals)) && !turned {
        return AssertionChange::Looser;
    }
    let partial = gained.has_word(&PARTIAL) || (loose_sign(gained) && exact_lost);
    if partial && (exact_lost || demanded) && !exact_gained {
        return AssertionChange::Looser;
    }
    if let Some(verdict) = finds_less(&difference, new) {
        return verdict;
    }
    // The same values stand in another order.
    if shape(old) == shape(new) && literals(old) != literals(new) {
        return AssertionChange::Expectation;
    }
    values(&difference, turned, exact_lost, exact_gained)
}

/// Compares the text that must be found: it is shorter now, or any text is. `None` if neither holds.
fn finds_less(difference: &Difference, new: &str) -> Option<AssertionChange> {
    let (lost, gained) = (&difference.lost, &difference.gained);
    pattern!(
        FINDS,
        r"(?i)contain|includ|match|grep|regex|like|=~|\bin\b|prefix|suffix|starts?with|ends?with|partial|substr|death|throw|raise|message|what|panic|error"
    );
    if FINDS.is_match(new)
        && let ([old], [new]) = (&lost.literals[..], &gained.literals[..])
    {
        let number = |text: &str| text.ends_with(|c: char| c.is_ascii_digit());
        let inner = |text: &str| text.trim_matches(['"', '\'', '`', '/']).to_owned();
        if ANY_TEXT.is_match(new) {
            return Some(AssertionChange::Wider);
        }
        if inner(new).len() < inner(old).len() && !number(old) && inner(old).contains(&inner(new)) {
            return Some(AssertionChange::Looser);
        }
    }
    None
}

/// Compares two versions of which the new one says the same or more in the words of another framework. `None` if the words say
/// nothing.
fn in_other_words(language: Language, old: &str, new: &str) -> Option<AssertionChange> {
    pattern!(NO_ERROR, r"\berr\w*\s*!=\s*nil\b");
    pattern!(ERROR, r"\berr\w*\s*==\s*nil\b");
    pattern!(OTHER_ERROR, r"\berr\w*\s*!=\s*(?:\w+\.)*(?:Err|E|err)[A-Z]\w*");
    pattern!(ASKS_FOR_ERROR, r"\b(?:Error|ErrorIs|ErrorAs|ErrorContains|EqualError)\(");
    pattern!(SIZE, r"(?i)\b(?:has)?_?(?:size|length|count|len)\w*\b");
    pattern!(ALL, r"(?i)\bcontains?_?exactly\w*|\btoEqual\(|\btoStrictEqual\(|\bmatch_array\b|\bcontainsOnly\w*");
    pattern!(ABOVE, r"(?:>|\bgt|-gt|GreaterThan\()\s*(-?\d[\d_.]*)");
    pattern!(BELOW, r"(?:<|\blt|-lt|LessThan\()\s*(-?\d[\d_.]*)");
    pattern!(EQUALS, r"(?:={2,3}|-eq|toBe\(|toEqual\(|toHaveLength\(|\beq[( ])\s*(-?\d[\d_.]*)");
    if language == Language::Go && fails_under_condition(old) {
        let same =
            NO_ERROR.is_match(old) && new.contains("NoError(") || ERROR.is_match(old) && ASKS_FOR_ERROR.is_match(new);
        if same && !old.contains("&&") && !old.contains("||") {
            return Some(AssertionChange::Other);
        }
        // Linters ask for it.
        let is = new.contains("!errors.Is(") || ASKS_FOR_ERROR.is_match(new);
        let name = |text: &str| {
            text.split(|c: char| !c.is_alphanumeric())
                .find(|word| word.starts_with("Err") && word.len() > 3)
                .map(str::to_owned)
        };
        if OTHER_ERROR.is_match(old) && is && name(old).is_some() && name(old) == name(new) {
            return Some(AssertionChange::Unnamed);
        }
    }
    // The whole text in place of a part of it.
    pattern!(PART, r"(?i)\bcontain\w*|\binclude\w*|\bstarts?_?with|\bends?_?with|\bhas_?(?:prefix|suffix)|\bin\b|~=");
    pattern!(
        WHOLE,
        r"(?i)\bassert_eq!|={2,3}|\bequal\w*\(|\bassert_?(?:equals?|same)\b|\btoBe\(|\btoEqual\(|\beq\b|\bEqualTo\(|\bEXPECT_(?:STR)?EQ\b"
    );
    if PART.is_match(old)
        && !WHOLE.is_match(old)
        && WHOLE.is_match(new)
        && !PART.is_match(new)
        && let ([part], after) = (&literals(old)[..], literals(new))
    {
        let inner = |text: &str| text.trim_matches(['"', '\'', '`']).to_owned();
        if !inner(part).is_empty() && after.iter().any(|whole| inner(whole).contains(&inner(part))) {
            return Some(AssertionChange::Other);
        }
    }
    // All elements in place of their number.
    let counted = numbers(old);
    if SIZE.is_match(old) && !SIZE.is_match(new) && ALL.is_match(new) && counted.len() == 1 {
        #[expect(clippy::cast_precision_loss, reason = "few literals")]
        let elements = literals(new).len() as f64;
        return (elements >= counted[0]).then_some(AssertionChange::Other);
    }
    // One value in place of all above a bound.
    let number = |pattern: &regex::Regex, text: &str| pattern.captures(text)?[1].replace('_', "").parse::<f64>().ok();
    let bounded = |text: &str| ABOVE.is_match(text) || BELOW.is_match(text);
    if !fails_under_condition(old)
        && !EQUALS.is_match(old)
        && !bounded(new)
        && let Some(value) = number(&EQUALS, new)
        && bounded(old)
        && number(&ABOVE, old).is_none_or(|bound| value > bound)
        && number(&BELOW, old).is_none_or(|bound| value < bound)
    {
        return Some(AssertionChange::Other);
    }
    // The test fails for all values but one of those that it accepted.
    pattern!(RANGE, r"[<>]");
    let values = literals(old);
    (fails_under_condition(old)
        && fails_under_condition(new)
        && RANGE.is_match(old)
        && !old.contains("!=")
        && new.contains("!=")
        && !new.contains("&&")
        && numbers(new).iter().all(|number| numbers(old).contains(number))
        && !values.is_empty())
    .then_some(AssertionChange::Other)
}

// Looks at the type of a value.
pattern!(
    TYPE,
    r"(?i)\btypeof\b|\bisinstance\b|\binstanceof\b|\bgettype\(|\btype\(|\.class\b|\bis_a\?|\bkind_of\b|\bTypeOf\(|%T|\bIsType\(|\btypeid\(|\bexpect\.any\("
);

/// Whether the new version compares fewer bytes or characters, or leaves the expected value unset.
fn compares_less(old: &str, new: &str) -> bool {
    pattern!(
        LENGTH,
        r"(?i)\b(?:memcmp|\w*ncmp|strncasecmp|bcmp|HEX\d*_ARRAY|MEMORY|hasPrefix|startswith|slice|substr\w*|take|limit|first|head)\b|_ARRAY|_MEMORY|\bn?cmp\b"
    );
    pattern!(BYTES, r"\b(?:memcmp|bcmp|\w*ncmp|strncasecmp)\(");
    let least = |text: &str| numbers(text).last().copied().unwrap_or(f64::INFINITY);
    let sinks = || numbers(old).into_iter().zip(numbers(new)).any(|(was, is)| is < was);
    let shorter = BYTES.is_match(new) && shape(old) == shape(new) && sinks();
    let fewer = LENGTH.is_match(new) && LENGTH.is_match(old) && least(new) < least(old);
    let unset = new.contains(":-$") && !old.contains(":-$");
    shorter || fewer || unset || new.contains("cmp(") && least(new) == 0.0 && least(old) > 0.0
}

/// Whether the new version only checks the type or existence of a value, or no longer ends the test when it fails. `types` is
/// true if the new version checks the type.
fn asks_little(difference: &Difference, types: bool, fails_if: bool) -> bool {
    let (lost, gained) = (&difference.lost, &difference.gained);
    let demanded = lost.literals.iter().any(|literal| !is_trivial(literal));
    let negated = gained.has_word(&NEGATION) && !gained.literals.is_empty() && !fails_if;
    let denied = negated && demanded && gained.literals.iter().all(|literal| is_trivial(literal));
    let soft = |code_tokens: &CodeTokens| code_tokens.has_word(&["soft", "softly", "nofail"]);
    types && demanded || denied || soft(gained) && !soft(lost)
}

/// Compares the values in two versions, and whether they are required or forbidden.
fn values(difference: &Difference, turned: bool, exact_lost: bool, exact_gained: bool) -> AssertionChange {
    let (lost, gained) = (&difference.lost, &difference.gained);
    let flipped = |from: &str, to: &str| lost.has_word(&[from]) && gained.has_word(&[to]);
    if turned && exact_lost && !exact_gained && gained.literals.is_empty() {
        return AssertionChange::Wider;
    }
    if !lost.literals.is_empty() && !gained.literals.is_empty()
        || flipped("true", "false")
        || flipped("false", "true")
        || (turned && lost.literals.is_empty() && gained.literals.is_empty())
    {
        return AssertionChange::Expectation;
    }
    let drops = lost.has_word(&DEMANDS) || lost.has_sign(&["&&"]);
    let prose = |literal: &String| literal.contains(' ');
    if gained.words.is_empty() && gained.literals.is_empty() && gained.signs.is_empty() {
        let values = lost.literals.iter().filter(|literal| !prose(literal)).count();
        return match (drops, values) {
            (true, _) => AssertionChange::Wider,
            (false, 1..) => AssertionChange::Looser,
            (false, 0) => AssertionChange::Other,
        };
    }
    if !lost.literals.is_empty() && lost.literals.iter().any(|literal| !prose(literal) && !is_trivial(literal)) {
        return AssertionChange::Unnamed;
    }
    AssertionChange::Other
}

/// Whether a literal is null, a boolean, zero or empty.
fn is_trivial(literal: &str) -> bool {
    let inner = literal.trim_matches(['"', '\'', '`']).to_lowercase();
    matches!(
        inner.as_str(),
        "none"
            | "null"
            | "nil"
            | "nullptr"
            | "undefined"
            | "true"
            | "false"
            | "0"
            | "0.0"
            | ""
            | "0u"
            | "0l"
            | "$status"
    )
}

fn loose_sign(code_tokens: &CodeTokens) -> bool {
    code_tokens.has_sign(&["<", ">", "<=", ">=", "!=", "!==", "=~", "-lt", "-gt", "-le", "-ge", "-ne"])
}

/// Returns the operators that require equality. With `fails_if`, the comparison is the condition of a failure, so that these are the
/// operators of inequality.
fn exact_signs(fails_if: bool) -> &'static [&'static str] {
    if fails_if { &["!=", "!==", "-ne"] } else { &["==", "===", "=", "-eq"] }
}

/// Whether the new version accepts more because it has an additional alternative.
fn has_alternative(language: Language, difference: &Difference, fails_if: bool) -> bool {
    let (lost, gained) = (&difference.lost, &difference.gained);
    let spoken = matches!(language, Language::Python | Language::Ruby | Language::Php);
    let or = |code_tokens: &CodeTokens| code_tokens.has_sign(&["||"]) || (spoken && code_tokens.has_word(&["or"]));
    let and = |code_tokens: &CodeTokens| code_tokens.has_sign(&["&&"]) || (spoken && code_tokens.has_word(&["and"]));
    let more = if fails_if { and(gained) && !and(lost) } else { or(gained) && !or(lost) };
    more && language != Language::Shell
}

/// Whether a list of accepted values replaces a single value.
fn is_listed(difference: &Difference, fails_if: bool) -> bool {
    let (lost, gained) = (&difference.lost, &difference.gained);
    gained.has_word(&["in", "one", "either", "any", "some", "includes", "include", "contains", "among"])
        && (lost.has_word(&EXACT) || lost.has_sign(exact_signs(fails_if)))
        && lost.literals.is_empty()
        && !gained.literals.is_empty()
}

/// Whether the new version accepts any exception instead of a specific one.
fn is_broader_exception(old: &str, difference: &Difference) -> bool {
    pattern!(RAISES, r"(?i)raise|throw|catch|except|panic|reject|fails?_with|assert_fail");
    let gained = &difference.gained.words;
    let broad = |word: &String| BROAD.contains(&word.as_str());
    RAISES.is_match(old)
        && !gained.is_empty()
        && gained.iter().all(broad)
        && difference.lost.words.iter().any(|word| !broad(word))
        && difference.gained.literals.is_empty()
}
