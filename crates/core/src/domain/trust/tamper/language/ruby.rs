//! Ruby: RSpec, minitest, test-unit.

use super::tokens::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["rb"],
    comments: &["#"],
    function: r"^\s*def\s+(?:self\.)?(\w+)|^\s*(?:class|module)\s+(\w+)|^\s*(?:RSpec\.)?(?:describe|context)\b",
    exit: r"^\s*exit!?(?:\s*\(?\s*(?:0|true)\s*\)?)?\s*$|\bexit!?\(\s*(?:0|true)\s*\)|\bat_exit\s*(?:\{|do)\s*exit|\bProcess\.exit!?\(?\s*(?:0|true)",
    asks_for_tests: r"\bdefined\?\(?\s*(?:RSpec|Minitest)\b",
    any_value: r#"^\s*require\s*\(?\s*["'](?:minitest/mock|rspec/mocks|rspec/expectations|mocha\S*|rr|flexmock\S*)["']|\bdefine_(?:singleton_)?method\(?\s*:?["']?(?:===?|eql\?|equal\?)["']?\s*\)?.*\btrue\b"#,
    assertion_api: r"^\s*(?:module|class)\s+(?:Mini[tT]est|RSpec|Test::Unit)\b|\b(?:Mini[tT]est|RSpec|Test::Unit)(?:::\w+)*\.(?:class_eval|module_eval|class_exec|instance_eval|prepend|include|extend|send|define_method|autorun)\b",
    hard_exit: r#"(?:^|[^\w.:])exit!|\b(?:Kernel|Process)\.exit!|\bexec\s*\(?\s*["'](?:(?:/usr)?/bin/)?true["']"#,
    exit_hook: r"\bat_exit\b",
    collected: r"_(?:spec|test)\.rb$|^test_.*\.rb$",
};
