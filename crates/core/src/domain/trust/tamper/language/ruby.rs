//! Ruby: RSpec, minitest, test-unit.

use super::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["rb"],
    comments: &["#"],
    test: r#"^\s*(?:x|f)?(?:it|specify|test|scenario|example)\s*\(?\s*(?:'([^']*)'|"([^"]*)")|^\s*def\s+(test_\w+[?!]?)|^(?:Given|When|Then|And|But)\s*\(?\s*(?:'([^']*)'|"([^"]*)"|/([^/]*)/)"#,
    mark: "",
    function: r"^\s*def\s+(?:self\.)?(\w+)|^\s*(?:class|module)\s+(\w+)|^\s*(?:RSpec\.)?(?:describe|context)\b",
    skip: r"\{\s*(?:skip|pending)\b|^\s*(?:it|specify|example|scenario|test)\s*\(?\s*(?:'[^']*'|\x22[^\x22]*\x22)\s*\)?\s*$|^\s*(?:xit|xdescribe|xcontext|xspecify|fit|fdescribe|fcontext)\b|^\s*(?:skip|pending|pend|omit)(?:\s|\(|$)|,\s*(?::skip|:pending|:focus|skip:|pending:|focus:)|^\s*(?:RSpec\.)?(?:it|specify|example|scenario|describe|context|feature)\b.*,\s*(?:if|unless):\s|\bfilter_run_(?:excluding|including|when_matching)\b.*:",
    assertion: r"\bassert_\w+\b|\bassert\s|\brefute\w*\b|\bmust_\w+\b|\.should\b",
    exact: r"\bto\s+(?:eq|eql|match_array|match|include|contain_exactly|raise_error|be\b|have_\w+|be_within)|\bassert_(?:equal|raises|match|includes|in_delta|same)\b|\bmust_equal\b",
    weak: r"\bassert_nothing_raised\b|\b(?:not_to|to_not)\s+raise_error|\bto\s+be_truthy\b|\b(?:not_to|to_not)\s+be_nil\b|\bto\s+be_present\b|\bto\s+be_an?(?:_\w+)?\(|^\s*assert\s+\w+\s*$|\b(?:refute_nil|assert_not_nil|assert_kind_of|assert_instance_of)\b|\braise_error\s*$|\braise_error\(\s*(?:StandardError|Exception)?\s*\)|\bassert_raises\(?\s*(?:StandardError|Exception)\b|\braise_error\s*\}",
    exit: r"^\s*exit!?(?:\s*\(?\s*(?:0|true)\s*\)?)?\s*$|\bexit!?\(\s*(?:0|true)\s*\)|\bat_exit\s*(?:\{|do)\s*exit|\bProcess\.exit!?\(?\s*(?:0|true)",
    swallow: r"^\s*rescue\b(?:\s+.*(?:Minitest::Assertion|Minitest::UnexpectedError|RSpec::Expectations\S*|Test::Unit::AssertionFailedError|\bException|StandardError)\b.*)?\s*(?:=>\s*\w+)?\s*$|\brescue\s+nil\b",
    asks_for_tests: r"\bdefined\?\(?\s*(?:RSpec|Minitest)\b",
    mock: r"\ballow(?:_any_instance_of)?\([^)]*\)\.to\s+receive\(\s*:(\w+[?!]?)|\.stubs?[\s(]\s*:(\w+)|\bdefine_singleton_method\(\s*:(\w+)",
    any_value: r#"^\s*require\s*\(?\s*["'](?:minitest/mock|rspec/mocks|rspec/expectations|mocha\S*|rr|flexmock\S*)["']|\bdefine_(?:singleton_)?method\(?\s*:?["']?(?:===?|eql\?|equal\?)["']?\s*\)?.*\btrue\b"#,
    assertion_api: r"^\s*(?:module|class)\s+(?:Mini[tT]est|RSpec|Test::Unit)\b|\b(?:Mini[tT]est|RSpec|Test::Unit)(?:::\w+)*\.(?:class_eval|module_eval|class_exec|instance_eval|prepend|include|extend|send|define_method|autorun)\b",
    hard_exit: r#"(?:^|[^\w.:])exit!|\b(?:Kernel|Process)\.exit!|\bexec\s*\(?\s*["'](?:(?:/usr)?/bin/)?true["']"#,
    exit_hook: r"\bat_exit\b",
    last_definition_wins: true,
    collected: r"_(?:spec|test)\.rb$|^test_.*\.rb$",
};
