//! Control flow that a diff adds before or around assertions: returns, conditions, handlers that ignore failures, and functions
//! that are never called. Keywords of control flow are the same in most languages.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};

use super::blocks::{TestBlock, TestFile, TestLine, indent};
use super::code_tokens::{Difference, is_assertion_name};
use super::diff::LineChange;
use super::language::Language;
use super::summary::DiffSummary;
use super::tests_lost::{asks_for_environment, is_guarded, is_guarded_anew, is_guarded_by_truth};
use super::{Findings, TamperKind};

/// Maximum number of lines of a handler or a guarded block that are read.
const REACH: usize = 40;

// Leaves the function or the round of a loop, with a value that says nothing.
pattern!(
    LEAVES,
    r#"^\s*(?:\}\s*)?(?:if\s*\(?\s*(?:true|True|1)\s*\)?\s*[:{]?\s*)?(?:return|next|continue|break|goto\s+\w+|yield\s+break|return@\w+|co_return|done\(\)|cb\(\)|callback\(\)|resolve\(\)|t\.end\(\)|done_testing\(?\)?|assert\.end\(\))\b?(?:\s*\(?(?:0|None|nil|null|true|True|Ok\(\(\)\)|undefined|Unit|Promise\.resolve\(\)|Success|EXIT_SUCCESS|ExitCode::SUCCESS|"[^"]*"|'[^']*')\)?)?\s*;?\s*\}?\s*(?:(?:#|//).*)?$"#
);
// The same under a condition in one line.
pattern!(
    LEAVES_IF,
    r"^\s*(?:if|unless|when|elif)\b.*[\s({:](?:return|continue|break|next|exit)\b[^;(]*;?\s*(?:\}|fi|end)?\s*;?\s*$|^\s*(?:return|next|break|continue)\b.*\s(?:if|unless)\s|(?:\|\||&&)\s*\{?\s*(?:return|continue|break|next)\b|\belse\s*\{?\s*(?:return|continue|break)\b"
);
pattern!(
    NEVER,
    r"\b(?:if|elif|while|until|unless\s+not|when)\s*\(?\s*(?:false|False|FALSE|0|nil|None|null|!true|!1|not\s+True|1\s*==\s*0|1\s*>\s*2|0\s*==\s*1|cfg!\(any\(\)\))\s*\)?\s*(?:[:{;]|&&|and\b|then\b|do\b|$)|\b(?:if|while)\b.*(?:&&|\band)\s*(?:false|False|0)\b|\bunless\s+(?:true|1)\b|^\s*(?:false|False)\s*(?:&&|and)\s|\[0?:0\]|\[:0\]|\[\.\.0\]|\.slice\(0,\s*0\)|\.take\(0\)|\.limit\(0\)|\.first\(0\)|\b(?:in|of)\s*\(?\s*(?:\[\]|\(\)|\{\}|range\(0\)|list\(\)|set\(\))\s*\)?\s*[:){]|\.each\(\s*\[\s*\]\s*\)|\bseq\s+0\b|\b(?:List|Stream|Set)\.(?:of|empty)\(\)|\bdo\s+break\b|array_slice\([^,]+,\s*0,\s*0\)|\[\s*0,\s*0\s*\]\.each|\[\[?\s+1\s+-eq\s+0\s+\]"
);
// Goes on only after success.
pattern!(
    SUCCEEDED,
    r"\bif\s+let\s+(?:Ok|Some)\b|\bif\s+(?:\w+,\s*)?err\w*\s*:?=.*;\s*err\w*\s*==\s*nil|\bif\s+err\w*\s*==\s*nil|\.ifPresent\(|\bif\s*\(?\s*\$?(?:result|res|response|ok|success)\w*\s*\)?\s*[{:]?$"
);
// Calls tests.
pattern!(
    RUNS_TESTS,
    r"\b(?:t|b|s|suite)\.Run\(|^\s*(?:test|run|check|it|spec)_?\w*\s*\(|\bRUN_\w+\(|^\s*run_test\b|^\s*\.{0,2}/\S*test"
);
// The condition of a failure that is out of sight.
pattern!(
    COMPARES_EXPECTED,
    r"(?i)^\s*(?:if|unless)\b.*(?:[!=]=|\bequal\w*\(|cmp\().*\b\w*(?:want|expect)\w*|^\s*(?:if|unless)\b.*\b\w*(?:want|expect)\w*.*[!=]="
);
// Repeats what is inside of it.
pattern!(
    LOOP,
    r"^\s*(?:async\s+)?(?:for|foreach|while|until|loop)\b|\.(?:each\w*|forEach|for_each|map|times)\b.*(?:\{|do|=>|\|)\s*(?:\|[^|]*\|)?\s*$|\bdo\s*(?:\|[^|]*\|)?\s*$"
);
// Begins a part that runs under a condition only.
pattern!(
    CONDITION,
    r"^\s*(?:\}\s*)?(?:else\s+)?(?:if|unless|elif|elsif|else|when|match|switch|case|while|until|guard|ifdef)\b|^#\s*if|\)\s*&&\s*\{\s*$|\.then\(|\bif\s+let\b|\.ifPresent\(|\.map\(|\.each\b.*\bif\b|\?\.let\s*\{|\.tap\b|\barray_(?:map|walk|filter)\(\s*(?:static\s+)?(?:function|fn)\b|^\s*(?:for|foreach)\b.*\b(?:if|filter|grep|select|reject|where)\b|\.(?:filter|select|reject|grep|where|find_all|takeWhile|take_while)\b.*\.(?:each|forEach|for_each)\b"
);
// Begins a part whose failures are handled.
pattern!(TRIES, r"^\s*(?:try|begin|do)\s*[:{]?\s*$");
// Begins a function, which runs only when it is called.
pattern!(
    FUNCTION,
    r"^\s*(?:async\s+)?(?:def|function|fn|func|fun|sub)\s+(\w+)|^\s*(?:const|let|var|auto|val|final\s+\w+|Runnable|Executable)\s+(?:mut\s+)?(\w+)\s*:?=\s*(?:async\s*)?(?:\(?[\w\s,:&]*\)?\s*(?:=>|->)|function\b|func\(|\[[^\]]*\]\s*[({]|\|[^|]*\||lambda\b|proc\b|fn\s*\()|^\s*(\w+)\s*(?::=\s*func\(|=\s*(?:lambda|proc|->)\b)|^\s*(?:go\s+func|setTimeout|setImmediate|process\.nextTick|queueMicrotask|Thread\.new|std::thread::spawn|thread::spawn|tokio::spawn|new\s+Thread|Thread\s*\{|GlobalScope|CompletableFuture|executor\.submit|at_exit|defer\s+func|register_shutdown_function|atexit)\b|^\s*[\w$.]+\.(?:on|once|addListener|addEventListener|subscribe|finally)\(.*(?:=>|\bfunction\b.*)\s*\{?\s*$"
);
// Begins a part that has to fail in any way, so that an assertion in it has to fail, too.
pattern!(
    EXPECTS_FAILURE,
    r"\b(?:pytest\.raises|assertRaises|assert_raises)\(\s*(?:Exception|BaseException|AssertionError|StandardError|Minitest::Assertion)\s*\)|\bassertThrows\(\s*(?:Throwable|Error|Exception|AssertionError|AssertionFailedError)\.class\b"
);
// What a handler does that lets the failure be seen.
pattern!(
    RETHROWS,
    r"(?i)\b(?:raise|throws?|rethrow|fail\w*|panic\w*|assert\w*|expect\w*|reject\w*|die|abort|resume_unwind|exit\(?\s*[1-9]|t\.(?:error|fatal|fail)\w*|flunk|verify\w*|check\w*|should\w*|require\.|must\w*|push|append|add|errors?\s*(?:\+|\.|<<)|record\w*|set_exception)\b|\berr\w*\s*=[^=]|\b\w+\s*=\s*(?:e|err|ex|error|exc|exception)\b"
);
pattern!(
    CLOSED_AT_ONCE,
    r"\{\s*\}\s*[;)]*\s*$|\{\s*/\*.*\*/\s*\}\s*$|\{\s*//.*$|:\s*pass\s*$|\brunCatching\s*\{|\b(?:catch_unwind|recover|suppress)\(|\brescue\s+(?:nil|false|true)|\|\||=>\s*(?:undefined|null|\{\s*\}|0|\(\)|return)|set\s+\+e|;\s*true\s*$"
);
pattern!(HANDLES_OTHERS, r"^\s*(?:except|rescue)\b|\bcatch\b");

/// Searches one file for control flow around its assertions.
pub(super) fn scan(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    if tests.file.is_deleted() {
        return;
    }
    leaves(tests, diff, findings);
    moved(tests, findings);
    once(tests, diff, findings);
    dead_branches(tests, diff, findings);
    guards(tests, diff, findings);
}

/// Returns the lines of a block after the change that are not blank, in order.
fn body<'a>(tests: &'a TestFile<'a>, block: &'a TestBlock) -> impl Iterator<Item = (usize, &'a TestLine<'a>)> {
    let lines = block.lines.iter().map(|at| (*at, &tests.lines[*at]));
    lines.filter(|(_, line)| line.change != LineChange::Removed && !line.text.trim().is_empty())
}

/// Reports statements that leave a test before its assertions.
fn leaves(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let language = tests.language;
    for block in tests.new.iter().filter(|block| block.other.is_some()) {
        let reached = |line: &TestLine<'_>| {
            let checks =
                language.asserts(line.text) || RUNS_TESTS.is_match(line.text) || COMPARES_EXPECTED.is_match(line.text);
            checks && (line.change != LineChange::Added || diff.had(line.text))
        };
        // Last line with an assertion.
        let last = LazyCell::new(|| body(tests, block).filter(|(_, line)| reached(line)).map(|(at, _)| at).last());
        let added = body(tests, block).filter(|(_, line)| line.change == LineChange::Added && !diff.had(line.text));
        let found =
            added.filter(|(_, line)| LEAVES.is_match(line.text) || LEAVES_IF.is_match(line.text)).find(|(at, line)| {
                let level = indent(line.text);
                let ends_loop = level > block.indent && last.is_some_and(|last| last > *at);
                ends_loop || block.helper && level > block.indent && is_assertion_name(&block.name)
            });
        let Some((at, line)) = found else {
            returns_at_start(tests, block, diff, findings);
            continue;
        };
        let level = indent(line.text);
        // What stands after it at the same level cannot be reached.
        let next = body(tests, block).find(|(later, _)| *later > at).map_or(0, |(_, next)| indent(next.text));
        let unguarded = next >= level && !is_guarded(tests, line);
        let sure = LEAVES.is_match(line.text)
            && (is_guarded_by_truth(tests, line) || unguarded || is_guarded_anew(tests, line) && !block.helper);
        let evidence = format!("ends before the assertions of {}: {}", block.name, line.text.trim());
        findings.add_graded(tests.file.path(), Some(line.number), TamperKind::EarlyExit, &evidence, !sure);
    }
}

/// Reports loops in tests that now end in their first iteration, and tests that were turned into generators.
fn once(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    pattern!(ENDS, r"^\s*(?:break|return|last|exit)\s*(?:0|None|nil|null)?\s*;?\s*(?:(?:#|//).*)?$");
    pattern!(YIELDS, r"^\s*yield\s*;?\s*$");
    let path = tests.file.path();
    let seen = |line: &TestLine<'_>| line.change != LineChange::Removed && !line.text.trim().is_empty();
    for (at, line) in tests.lines.iter().enumerate() {
        if line.change != LineChange::Added || diff.had(line.text) || tests.existing(line).is_none() {
            continue;
        }
        let level = indent(line.text);
        let next = || tests.lines[at + 1..].iter().find(|other| seen(other));
        if tests.language == Language::Go
            && line.text.trim() == "default:"
            && next().is_some_and(|next| next.text.trim_start().starts_with('}'))
        {
            findings.notice(path, Some(line.number), TamperKind::EarlyExit, "a select no longer waits: default:");
        }
        if ENDS.is_match(line.text) {
            let mut before = tests.lines[..at].iter().rev().take(REACH).filter(|other| seen(other));
            let around = before.find(|other| indent(other.text) < level || other.hunk != line.hunk);
            let last = next().is_none_or(|after| after.hunk != line.hunk || indent(after.text) < level);
            let looped = |other: &TestLine<'_>| {
                other.hunk == line.hunk && other.change == LineChange::Context && LOOP.is_match(other.text)
            };
            if last && around.is_some_and(looped) {
                let evidence = format!("the loop ends with its first round: {}", line.text.trim());
                findings.add(path, Some(line.number), TamperKind::EarlyExit, &evidence);
            }
        }
        let generator = tests.language == Language::Python
            && YIELDS.is_match(line.text)
            && line.new.is_some_and(|block| !tests.new[block].helper);
        if generator {
            findings.add(path, Some(line.number), TamperKind::EarlyExit, "a test that yields does not run");
        }
    }
}

/// Reports asynchronous tests that now end without waiting for the function that contains the assertions.
fn moved(tests: &TestFile<'_>, findings: &mut Findings) {
    pattern!(
        ENDS,
        r"^\s*(?:done|cb|callback|next|resolve|t\.end|assert\.end|done_testing|wg\.Done|latch\.countDown|async\.complete|testContext\.completeNow)\(\)\s*;?\s*$"
    );
    let of = |change| tests.lines.iter().filter(move |line| line.change == change && ENDS.is_match(line.text));
    let mut earlier: HashMap<(usize, &str), &TestLine<'_>> = HashMap::new();
    for old in of(LineChange::Removed) {
        earlier.entry((old.hunk, old.text.trim())).or_insert(old);
    }
    for new in of(LineChange::Added) {
        let old = earlier.get(&(new.hunk, new.text.trim()));
        if tests.existing(new).is_some() && old.is_some_and(|old| indent(old.text) > indent(new.text)) {
            let evidence = format!("no longer waits for its assertions: {}", new.text.trim());
            findings.add(tests.file.path(), Some(new.number), TamperKind::EarlyExit, &evidence);
        }
    }
}

/// Reports a return at the beginning of a test whose assertions the diff does not show.
fn returns_at_start(tests: &TestFile<'_>, block: &TestBlock, diff: &DiffSummary, findings: &mut Findings) {
    let real = |line: &TestLine<'_>| {
        let text = line.text.trim();
        !text.is_empty() && text != "{" && !text.starts_with(')') && !tests.language.is_comment(text)
    };
    let lines = || body(tests, block).filter(|(at, line)| block.header.is_none_or(|header| *at > header) && real(line));
    let leaves = |line: &TestLine<'_>| {
        let text = LEAVES.is_match(line.text) || LEAVES_IF.is_match(line.text);
        text && line.change == LineChange::Added && !diff.had(line.text)
    };
    let Some((at, found)) = lines().find(|(_, line)| leaves(line)) else { return };
    // Nothing asserts before it, and something follows.
    let asserted = lines().take_while(|(before, _)| *before < at).any(|(_, line)| tests.language.asserts(line.text));
    let old = |line: &TestLine<'_>| line.change == LineChange::Context || diff.had(line.text);
    let follows = lines()
        .any(|(later, line)| later > at && old(line) && indent(line.text) > block.indent && line.text.trim() != "}");
    if !asserted && follows && !block.helper {
        let first = block.header.is_some() && lines().next().is_some_and(|(first, _)| first == at);
        let evidence = format!("returns before the assertions of {}: {}", block.name, found.text.trim());
        let sure = first && LEAVES.is_match(found.text);
        findings.add_graded(tests.file.path(), Some(found.number), TamperKind::EarlyExit, &evidence, !sure);
    }
}

/// Reports branches that never run, in tests that existed before.
fn dead_branches(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let never = |line: &&TestLine<'_>| {
        line.change == LineChange::Added && NEVER.is_match(line.text) && !tests.language.is_comment(line.text)
    };
    for line in tests.lines.iter().filter(never).filter(|line| !diff.had(line.text) && tests.is_about_tests(line)) {
        if tests.existing(line).is_some() || (line.new.is_none() && !tests.file.is_new()) {
            let evidence = format!("never runs: {}", line.text.trim());
            findings.add(tests.file.path(), Some(line.number), TamperKind::EarlyExit, &evidence);
        }
    }
}

/// Reports conditions and functions that were added around existing assertions.
fn guards(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    // Number of lines after the change that contain each word.
    let mentions = LazyCell::new(|| {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for line in tests.lines.iter().filter(|line| line.change != LineChange::Removed) {
            let words: HashSet<&str> = line.text.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
            words.into_iter().for_each(|word| *counts.entry(word).or_default() += 1);
        }
        counts
    });
    for (at, line) in tests.lines.iter().enumerate().filter(|(_, line)| line.change == LineChange::Added) {
        let condition = CONDITION.is_match(line.text);
        let tries = TRIES.is_match(line.text);
        let function = FUNCTION.captures(line.text);
        let expects_failure = EXPECTS_FAILURE.is_match(line.text) || expects_throw(tests, at);
        let level = indent(line.text);
        // The next function of code of which the first is out of sight.
        let next =
            |block: &TestBlock| block.helper && block.header.is_none() && tests.language.begins_function(line.text);
        let within = tests.existing(line).is_some_and(|block| level > block.indent && !next(block));
        if !(condition || tries || function.is_some() || expects_failure) || !within || diff.had(line.text) {
            continue;
        }
        let inside = tests.lines[at + 1..]
            .iter()
            .filter(|other| other.change != LineChange::Removed && !other.text.trim().is_empty())
            .take(REACH)
            .take_while(|other| other.hunk == line.hunk && indent(other.text) > level);
        let remains = |other: &&TestLine<'_>| {
            let was = || {
                let near = tests.lines[at.saturating_sub(10)..tests.lines.len().min(at + 20)].iter();
                near.filter(|old| {
                    old.change == LineChange::Removed && old.hunk == other.hunk && tests.language.asserts(old.text)
                })
                .any(|old| Difference::between(old.text, other.text).similarity > 0.4)
            };
            tests.language.asserts(other.text) && (other.change == LineChange::Context || diff.had(other.text) || was())
        };
        let Some(first) = inside.clone().find(remains) else { continue };
        if expects_failure {
            let evidence = format!("{} is expected to fail: {}", first.text.trim(), line.text.trim());
            findings.add(tests.file.path(), Some(line.number), TamperKind::FailureIgnored, &evidence);
            continue;
        }
        if tries {
            if ignores_all(tests, at) {
                let evidence = format!("failures are caught and ignored: {}", first.text.trim());
                findings.add(tests.file.path(), Some(line.number), TamperKind::FailureIgnored, &evidence);
            }
            continue;
        }
        if NEVER.is_match(line.text) || function.is_none() && tests.language.asserts(line.text) {
            continue;
        }
        let name =
            function.and_then(|found| found.iter().skip(1).flatten().next().map(|name| name.as_str().to_owned()));
        let called = name.as_ref().is_none_or(|name| mentions.get(name.as_str()).is_some_and(|lines| *lines > 1));
        let evidence = format!("{} now stands in: {}", first.text.trim(), line.text.trim());
        // The failure of what runs elsewhere, or only after success, reaches nobody.
        let ignored = SUCCEEDED.is_match(line.text) || name.is_none() && !condition;
        let kind = if ignored { TamperKind::FailureIgnored } else { TamperKind::EarlyExit };
        pattern!(IF, r"^\s*(?:if|unless)\b");
        let in_test = tests.existing(line).is_some_and(|block| !block.helper || is_assertion_name(&block.name));
        // A failure belongs to its condition.
        pattern!(
            FAILURE,
            r"(?i)^\s*(?:\w+(?:\.|::|->))*(?:errorf?|fatalf?|fail\w*|panic|throw|raise|die|exit|return|flunk|echo|printf)\b"
        );
        let own = FAILURE.is_match(first.text);
        // Another condition stood there.
        let near = &tests.lines[at.saturating_sub(3)..tests.lines.len().min(at + 3)];
        let was = |old: &TestLine<'_>| {
            old.change == LineChange::Removed && IF.is_match(old.text) && indent(old.text) == level
        };
        let own = own || near.iter().any(was);
        let sure = IF.is_match(line.text) && in_test && !own && !asks_for_environment(line.text);
        findings.add_graded(tests.file.path(), Some(line.number), kind, &evidence, !sure && (condition || called));
    }
}

/// Whether all handlers of the part that begins with a line contain nothing but comments.
fn ignores_all(tests: &TestFile<'_>, at: usize) -> bool {
    pattern!(HANDLER, r"^\s*\}?\s*(?:catch|except|rescue)\b");
    let line = &tests.lines[at];
    let level = indent(line.text);
    let rest = tests.lines[at + 1..].iter().take(2 * REACH).take_while(|other| other.hunk == line.hunk);
    let mut rest = rest
        .filter(|other| other.change != LineChange::Removed && !other.text.trim().is_empty())
        .skip_while(|other| indent(other.text) > level);
    let Some(handler) = rest.next().filter(|handler| HANDLER.is_match(handler.text)) else { return false };
    let nothing = |other: &TestLine<'_>| tests.language.is_comment(other.text) || other.text.trim() == "pass";
    let closed = handler.text.trim_end().ends_with("{}") || handler.text.trim_end().ends_with(": pass");
    let mut body = rest.take_while(|other| indent(other.text) > level);
    handler.change == LineChange::Added && (closed || body.all(nothing))
}

/// Whether a line begins a function that is expected to fail, according to the line that ends it.
fn expects_throw(tests: &TestFile<'_>, at: usize) -> bool {
    pattern!(
        OPENS,
        r"^\s*(?:await\s+|return\s+)?(?:expect\s*(?:\(\s*(?:async\s*)?(?:\(\)\s*=>|function\s*\(\))\s*\{|\{|do)|assert\.(?:throws|rejects)\(\s*(?:async\s*)?(?:\(\)\s*=>|function\s*\(\))\s*\{)\s*$"
    );
    pattern!(FAILS, r"toThrow|rejects|raise_error|raise_exception|^\s*\}\s*\)\s*;?\s*$");
    pattern!(NOT, r"\.not\b|\bnot_to\b|\bto_not\b");
    let line = &tests.lines[at];
    if !OPENS.is_match(line.text) {
        return false;
    }
    let rest = tests.lines[at + 1..].iter().take(REACH).filter(|other| other.change != LineChange::Removed);
    let mut rest = rest.filter(|other| !other.text.trim().is_empty()).take_while(|other| other.hunk == line.hunk);
    let end = rest.find(|other| indent(other.text) <= indent(line.text));
    end.is_some_and(|end| FAILS.is_match(end.text) && !NOT.is_match(end.text))
}

/// Returns the kind of finding if the new version wraps an assertion on its own line; `None` if it does not.
pub(super) fn wrapped(language: Language, old: &str, new: &str) -> Option<TamperKind> {
    let difference = Difference::between(old, new);
    let gained = &difference.gained;
    let only_gained = difference.lost.words.is_empty() && difference.lost.literals.is_empty();
    if !only_gained || gained.words.is_empty() && gained.signs.is_empty() {
        return None;
    }
    let swallows = gained.has_word(&["rescue", "catch", "suppress", "try", "except", "recover", "trap"])
        || (language == Language::Rust && gained.has_word(&["ok", "unwrap_or_default", "is_ok"]));
    let guard = gained
        .has_word(&["if", "unless", "when", "while", "lambda", "defer", "timeout", "nexttick", "void", "spawn"])
        || (language != Language::Shell && gained.has_sign(&["=>", "->"]))
        || (gained.has_sign(&["&&"]) && !language.asserts(&new[..new.find("&&").unwrap_or(0)]))
        || FUNCTION.is_match(new) && !FUNCTION.is_match(old)
        || (language == Language::Ruby && gained.has_word(&["and"]));
    // A message does not make a script fail.
    pattern!(ONLY_SAYS, r"\|\|\s*(?:echo|printf|true|:)\b[^;&|]*$");
    let only_says = language == Language::Shell && ONLY_SAYS.is_match(new) && !ONLY_SAYS.is_match(old);
    // A namespace of Catch2.
    let swallows = swallows && !new.contains("Catch::");
    if swallows || only_says {
        Some(TamperKind::FailureIgnored)
    } else if guard {
        Some(TamperKind::EarlyExit)
    } else {
        None
    }
}

/// Whether a line runs later, after the test has ended: nothing waits for the timer.
pub(super) fn is_deferred(text: &str) -> bool {
    pattern!(TIMER, r"^\s*(?:set(?:Timeout|Interval|Immediate)|process\.nextTick|queueMicrotask)\(");
    pattern!(ENDS, r"\b(?:done|resolve|reject|cb|callback|next)\b");
    TIMER.is_match(text) && !ENDS.is_match(text)
}

/// Determines whether a line in an existing test catches failures and ignores them. `Some(true)` is weak evidence, `Some(false)` is
/// strong evidence, and `None` is no evidence.
pub(super) fn drops_failure(tests: &TestFile<'_>, at: usize, diff: &DiffSummary) -> Option<bool> {
    let line = &tests.lines[at];
    let block = tests.existing(line)?;
    let level = indent(line.text);
    let inner = || {
        tests.lines[at + 1..]
            .iter()
            .filter(|other| other.change != LineChange::Removed && !other.text.trim().is_empty())
            .take(REACH)
            .take_while(move |other| other.hunk == line.hunk && indent(other.text) > level)
    };
    let closed = CLOSED_AT_ONCE.is_match(line.text);
    // What a message says does nothing.
    pattern!(TEXT, r#""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`"#);
    let lets_through = |other: &TestLine<'_>| {
        let nothing = tests.language.is_comment(other.text)
            || tests.language.holds_always(other.text)
            || other.text.contains("NotToPerformAssertions");
        !nothing && RETHROWS.is_match(&TEXT.replace_all(other.text, "''"))
    };
    if !closed && (inner().any(lets_through) || lets_through_inline(line.text)) {
        return None;
    }
    // What is caught holds an assertion, or held one before.
    let guards = block.first_assertion.is_some_and(|first| first < at + 4);
    let held = block.other.is_some_and(|old| tests.old[old].assertions > 0);
    let broad = closed || inner().all(|other| tests.language.is_comment(other.text)) || inner().count() <= 2;
    let arm = tests.language == Language::Rust && !line.text.contains("catch_unwind");
    (guards || held || block.assertions == 0).then_some((block.helper && diff.changes_code) || !broad || arm)
}

/// Whether a handler on one line passes the failure on.
fn lets_through_inline(text: &str) -> bool {
    HANDLES_OTHERS
        .find(text)
        .and_then(|found| text[found.end()..].split_once('{').or_else(|| text.split_once(": ")))
        .is_some_and(|(_, handler)| RETHROWS.is_match(handler))
}
