//! Tests that a change removes, hides from the runner, disables, or empties.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::LazyLock;

use regex::Regex;

use super::blocks::{TestBlock, TestFile, TestLine, indent};
use super::diff::{FileDiff, LineChange};
use super::language::{AssertionStrength, Language, excludes_others, is_group, is_table, is_test_path};
use super::summary::DiffSummary;
use super::{Findings, TamperKind};

/// Minimum number of removed assertions that a few added ones cannot replace.
const MANY_ASSERTIONS: usize = 4;
/// Minimum similarity of two names to treat one as the renamed other, 0..1.
const ALIKE: f64 = 0.85;
/// Maximum number of lines before and after a removed assertion in which its value is searched.
const VALUES_REACH: usize = 60;
/// Number of preceding lines in which the statement that encloses a line is searched.
const GUARD_REACH: usize = 8;
/// Maximum number of new tests that are compared with a removed one.
const CANDIDATES: usize = 100;
/// Maximum length of names that are compared, in bytes.
const MAX_NAME: usize = 300;

/// Names of files that Go compiles only on one platform.
static PLATFORM_FILE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"_(?:aix|android|darwin|dragonfly|freebsd|illumos|ios|js|wasip1|netbsd|openbsd|plan9|solaris|windows|386|arm|arm64|loong64|mips\w*|ppc64\w*|riscv64|s390x|wasm)_test\.go$")
        .expect("constant pattern")
});

/// Reports a test file that was renamed so that no runner finds it. Returns whether there is a finding.
pub(super) fn moved_out_of_reach(file: &FileDiff, findings: &mut Findings) -> bool {
    let (Some(old), Some(new)) = (&file.old, &file.new) else { return false };
    let collected = |path: &str| Language::of(path).is_some_and(|language| language.collects(path));
    let lost = old != new
        && is_test_path(old)
        && (Language::of(old) != Language::of(new) && !is_test_path(new)
            || collected(old) && !collected(new)
            || PLATFORM_FILE.is_match(new) && !PLATFORM_FILE.is_match(old));
    if lost {
        findings.add(old, None, TamperKind::TestDeleted, &format!("renamed to {new}, where no runner looks for tests"));
    }
    lost
}

/// Searches one file for lost tests.
pub(super) fn scan(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let renamed = removed(tests, diff, findings);
    if tests.file.is_deleted() {
        return;
    }
    shadowed(tests, findings);
    hidden(tests, diff, findings);
    modules(tests, diff, findings);
    skipped(tests, diff, findings);
    assertions(tests, &renamed, diff, findings);
}

/// Reports removed tests. Returns the index of the new test for each removed test that was replaced.
fn removed(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) -> HashMap<usize, usize> {
    let free = |at: &usize| tests.new[*at].other.is_none() && !tests.new[*at].helper;
    let mut free: VecDeque<usize> = (0..tests.new.len()).filter(free).collect();
    let free_names: HashSet<&str> = free.iter().map(|at| tests.new[*at].name.as_str()).collect();
    let mut renamed = HashMap::new();
    let mut lost = Vec::new();
    for (at, block) in tests.old.iter().enumerate() {
        if block.other.is_some() || block.header.is_none() || block.helper {
            continue;
        }
        let elsewhere = diff.added_tests.contains(&block.name) && !free_names.contains(block.name.as_str());
        if elsewhere || body_lives_on(tests, block, diff) {
            continue;
        }
        match replacement(tests, block, &free) {
            Some(index) => {
                renamed.extend(free.remove(index).map(|new| (at, new)));
            }
            None => lost.push(block),
        }
    }
    let added: Vec<&str> = tests.file.lines(LineChange::Added).filter(|line| !line.trim().is_empty()).collect();
    if lost.is_empty() {
        return renamed;
    }
    let tabled = added.len() >= lost.len() && added.iter().any(|line| is_table(line));
    let path = tests.file.path();
    let gained = free.iter().filter(|at| tests.new[**at].assertions > 0).count();
    let about_removed_code = |block: &TestBlock| {
        diff.names_removed_code(&block.name)
            || block.lines.iter().any(|at| diff.names_removed_code(tests.lines[*at].text))
    };
    if tests.file.is_deleted() {
        let names = lost.iter().map(|block| block.name.as_str()).collect::<Vec<_>>().join(", ");
        let evidence = format!("file deleted with {} tests: {names}", lost.len());
        let weak = lost.iter().all(|block| about_removed_code(block));
        findings.add_graded(path, None, TamperKind::TestDeleted, &evidence, weak);
    } else {
        let outnumbered = diff.changes_code && gained > lost.len();
        for block in lost {
            let weak = tabled || outnumbered || about_removed_code(block);
            let evidence = format!("test removed: {}", block.name);
            findings.add_graded(path, Some(block.number), TamperKind::TestDeleted, &evidence, weak);
        }
    }
    renamed
}

/// Whether every assertion of a removed test is among the added lines of the diff.
fn body_lives_on(tests: &TestFile<'_>, block: &TestBlock, diff: &DiffSummary) -> bool {
    let mut any = false;
    for line in block.lines.iter().map(|at| &tests.lines[*at]).filter(|line| tests.language.asserts(line.text)) {
        any = true;
        if line.change == LineChange::Context || !diff.has(line.text) {
            return false;
        }
    }
    any
}

/// Returns the new test in `free` that replaces a removed one. It has at least as many assertions, or has a similar name and at
/// least one assertion.
fn replacement(tests: &TestFile<'_>, block: &TestBlock, free: &VecDeque<usize>) -> Option<usize> {
    let fits = |new: &TestBlock| {
        let enough = new.assertions >= block.assertions;
        let comparable = block.name.len().max(new.name.len()) <= MAX_NAME;
        enough || (new.assertions > 0 && comparable && strsim::jaro_winkler(&block.name, &new.name) > ALIKE)
    };
    let candidates = free.iter().take(CANDIDATES).enumerate().map(|(index, at)| (index, &tests.new[*at]));
    candidates.filter(|(_, new)| fits(new)).min_by_key(|(_, new)| new.assertions).map(|(index, _)| index)
}

/// Reports a test that is shadowed by a second definition of the same name in its class or file.
fn shadowed(tests: &TestFile<'_>, findings: &mut Findings) {
    if !tests.language.last_definition_wins() {
        return;
    }
    let mut seen: HashMap<(usize, &str), usize> = HashMap::new();
    let mut last_class = 0;
    let mut blocks = tests
        .new
        .iter()
        .filter(|block| !block.helper && (block.header.is_some() || !block.lines.is_empty()))
        .peekable();
    for (at, line) in tests.lines.iter().enumerate().filter(|(_, line)| line.change != LineChange::Removed) {
        let text = line.text.trim_start();
        if text.starts_with("class ") || text.starts_with("describe") || text.starts_with("context") {
            last_class = at;
        }
        while let Some(block) = blocks.next_if(|block| block.header.is_none_or(|header| header <= at)) {
            let quoted = block.name.contains(' ');
            let added = block.header.is_some_and(|header| tests.lines[header].change == LineChange::Added);
            let before = seen.insert((last_class, &block.name), at);
            if before.is_some() && added && !quoted {
                let evidence = format!("never runs: a second definition replaces {}", block.name);
                findings.add(tests.file.path(), Some(block.number), TamperKind::TestDeleted, &evidence);
            }
        }
    }
}

/// Reports suites and tests that still exist but that no runner finds, because they were renamed or are private or abstract.
fn hidden(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let path = tests.file.path();
    let language = tests.language;
    let is_suite = |line: &&TestLine<'_>| language.is_suite(line.text) && tests.is_about_tests(line);
    // Hunks in which tests came.
    let with_tests = LazyCell::new(|| -> HashSet<usize> {
        let added = tests.lines.iter().filter(|line| line.change == LineChange::Added);
        added.filter(|line| language.test_name(line.text, false).is_some()).map(|line| line.hunk).collect()
    });
    for group in tests
        .lines
        .chunk_by(|a, b| a.hunk == b.hunk && a.change != LineChange::Context && b.change != LineChange::Context)
    {
        let of = |change| group.iter().filter(move |line| line.change == change).filter(is_suite);
        let gone = of(LineChange::Removed).find(|line| !diff.has(line.text));
        // Of a suite that went as a whole, the tests are reported.
        let stays = group.iter().any(|line| line.change == LineChange::Added) || group.len() <= 2;
        // Its tests are functions of their own now.
        let freed = || with_tests.contains(&group[0].hunk);
        if let Some(line) = gone.filter(|_| stays && of(LineChange::Removed).count() > of(LineChange::Added).count()) {
            let evidence = format!("no suite any more: {}", line.text.trim());
            findings.add_graded(
                path,
                Some(line.number),
                TamperKind::TestDeleted,
                &evidence,
                freed() || diff.changes_code && group.len() > 6,
            );
        }
    }
    let private = |line: &&TestLine<'_>| line.change == LineChange::Added && line.text.trim() == "private";
    if language == Language::Ruby
        && let Some(line) = tests.lines.iter().find(private)
    {
        let after = |block: &&TestBlock| {
            !block.helper && block.other.is_some() && block.number > line.number && !block.name.contains(' ')
        };
        if let Some(block) = tests.new.iter().find(after).filter(|block| block.header.is_some()) {
            let evidence = format!("private now: {}", block.name);
            findings.add(path, Some(line.number), TamperKind::TestDeleted, &evidence);
        }
    }
    static HIDES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(?:private|protected|abstract|static)\b").expect("constant pattern"));
    if !matches!(language, Language::Jvm | Language::Php) {
        return;
    }
    let header = |block: &TestBlock| block.header.map(|at| &tests.lines[at]);
    for block in tests.old.iter().filter(|block| !block.helper) {
        let Some((old, new)) = header(block).zip(block.other.and_then(|other| header(&tests.new[other]))) else {
            continue;
        };
        let words = |text: &str| HIDES.find_iter(text).count();
        if new.change == LineChange::Added && words(new.text) > words(old.text) {
            let evidence = format!("no runner calls it: {}", new.text.trim());
            findings.add(path, Some(new.number), TamperKind::TestDeleted, &evidence);
        }
    }
}

fn skipped(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    let language = tests.language;
    let path = tests.file.path();
    let removed = tests.lines.iter().filter(|line| line.change == LineChange::Removed);
    let owners: HashSet<String> = removed.filter_map(|line| language.function_name(line.text)).collect();
    let conditions = CONDITIONS_OF_FILES.map(|marks| tests.lines.iter().any(|line| was_condition(line, marks)));
    let is_old = |line: &TestLine<'_>| language.function_name(line.text).is_some_and(|name| owners.contains(&name));
    for line in tests.lines.iter().filter(|line| line.change == LineChange::Added && language.skips(line.text)) {
        let fine = match line.new.map(|at| &tests.new[at]) {
            Some(block) if block.helper => diff.had(line.text) || tests.file.is_new() || block.other.is_none(),
            Some(block) => {
                let new = diff.added_tests.contains(&block.name) && !diff.removed_tests.contains(&block.name);
                // A test that is new takes nothing away, unless it takes the place of all others.
                diff.skipped_before.contains(&block.name) || (new && !excludes_others(line.text))
            }
            None => {
                let never = line.text.contains("any()") || line.text.contains("not(test)");
                diff.had(line.text) || tests.file.is_new() || (line.owner_is_new && !is_old(line) && !never)
            }
        } || same_condition_before(&conditions, line);
        let named = language.skips_by_token(line.text);
        if !fine
            && (tests.is_test
                || line.new.is_some()
                || (named && language == Language::Rust)
                || line.text.contains("+SKIP"))
        {
            let weak = conditional(tests, line) || (!named && diff.changes_code);
            findings.add_graded(path, Some(line.number), TamperKind::TestSkipped, line.text, weak);
        }
    }
    // A decorator that skips, under a name of the project.
    static ALIAS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^\w+\s*=\s*(?:unittest\.skip\w*|pytest\.mark\.(?:skip\w*|xfail))\(").expect("constant pattern")
    });
    let alias = |line: &&TestLine<'_>| line.change == LineChange::Added && ALIAS.is_match(line.text);
    for line in tests.lines.iter().filter(alias).filter(|line| !diff.had(line.text) && !tests.file.is_new()) {
        findings.notice(path, Some(line.number), TamperKind::TestSkipped, line.text);
    }
    for line in tests.lines.iter().filter(|line| line.change == LineChange::Added && is_group(line.text)) {
        let about = tests.existing(line).is_some() || line.text.starts_with("})->");
        if about && !diff.had(line.text) && !language.skips(line.text) {
            findings.notice(path, Some(line.number), TamperKind::TestSkipped, line.text);
        }
    }
    static CONDITIONAL: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^\s*(?:if|unless)\b|^\s*#\[cfg\((?:feature|any|all|not|target)|&&\s*\{?\s*$|\?\s*$|^\s*(?:const|let|var)\s+\w+\s*=.*\b(?:describe|it|test)\.skip\b")
            .expect("constant pattern")
    });
    for (at, line) in tests.lines.iter().enumerate().filter(|(_, line)| line.change == LineChange::Added) {
        // A test, a suite or a module of tests stands under a condition now.
        let compiled = language == Language::Cpp && line.text.starts_with("#if");
        if !tests.is_test || diff.had(line.text) || !(compiled || CONDITIONAL.is_match(line.text)) {
            continue;
        }
        let declares = |next: &TestLine<'_>| {
            let test = language.test_name(next.text, false).is_some() || language.is_suite(next.text);
            let module = language == Language::Rust && next.text.trim_start().starts_with("mod ");
            (next.change == LineChange::Context || diff.had(next.text)) && (test || module)
        };
        let next = tests.lines[at + 1..]
            .iter()
            .find(|next| next.change != LineChange::Removed && !next.text.trim().is_empty());
        if next.is_some_and(declares) {
            let weak = diff.changes_code || !compiled;
            findings.add_graded(path, Some(line.number), TamperKind::TestSkipped, line.text, weak);
        }
    }
    static FENCE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^\s*//[/!]\s*```\s*(?:rust,)?(?:ignore|no_run|text|compile_fail)\b").expect("constant pattern")
    });
    let fence = |line: &TestLine<'_>| line.change == LineChange::Removed && line.text.trim_end().ends_with("```");
    if language == Language::Rust && tests.lines.iter().any(fence) {
        for line in tests.lines.iter().filter(|line| line.change == LineChange::Added && FENCE.is_match(line.text)) {
            findings.add(path, Some(line.number), TamperKind::TestSkipped, line.text);
        }
    }
    // The module of unit tests is compiled under another condition now.
    let other_condition = |line: &&TestLine<'_>| {
        let text = line.text.trim_start();
        line.change == LineChange::Added && text.starts_with("#[cfg(") && text != "#[cfg(test)]"
    };
    let lost_condition = language == Language::Rust
        && tests.file.lines(LineChange::Removed).any(|line| line.trim() == "#[cfg(test)]")
        && !tests.file.lines(LineChange::Added).any(|line| line.trim() == "#[cfg(test)]");
    if lost_condition && let Some(line) = tests.lines.iter().find(other_condition) {
        findings.add(path, Some(line.number), TamperKind::TestSkipped, line.text);
    }
}

/// Beginnings of conditions for the compilation of a whole file, in Rust and in Go.
const CONDITIONS_OF_FILES: [&[&str]; 2] = [&["#![cfg("], &["//go:build", "// +build"]];

/// Whether a line that the change did not add is such a condition.
fn was_condition(line: &TestLine<'_>, marks: &[&str]) -> bool {
    line.change != LineChange::Added && begins_with(line.text, marks)
}

fn begins_with(text: &str, marks: &[&str]) -> bool {
    marks.iter().any(|mark| text.trim_start().starts_with(mark))
}

/// Whether a condition for compilation replaces another one in the same file. `before` tells which conditions were there.
fn same_condition_before(before: &[bool; 2], line: &TestLine<'_>) -> bool {
    let is_known = |(marks, was): (&[&str], &bool)| *was && begins_with(line.text, marks);
    line.text.trim_start().starts_with("//go:build go1.") || CONDITIONS_OF_FILES.into_iter().zip(before).any(is_known)
}

/// Whether a skip depends on the platform, a feature, or installed software. Either its line says so, or an `if` encloses it.
fn conditional(tests: &TestFile<'_>, line: &TestLine<'_>) -> bool {
    static PLATFORM: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)windows|win32|linux|darwin|macos|platform|version|pypy|os\.name|goos|OnOs|OnJre|OnJava|#\[requires|is None|importorskip|hasattr|cfg_attr\(|feature\b|cfg\((?:unix|loom|miri|docsrs|nightly|target_\w+|panic|\w+_unstable)\b")
            .expect("constant pattern")
    });
    // The reason is only what somebody says.
    let code = line.text.find(['"', '\'', '`']).map_or(line.text, |at| &line.text[..at]);
    let guarded = tests.existing(line).is_none_or(|block| indent(line.text) > block.indent) && is_guarded(tests, line);
    let modifier = tests.language == Language::Ruby && [" if ", " unless "].iter().any(|word| line.text.contains(word));
    modifier || (code.contains(['(', ':']) && PLATFORM.is_match(code)) || guarded
}

/// Whether the statement that encloses a line is an `if` that can be false.
pub(super) fn is_guarded(tests: &TestFile<'_>, line: &TestLine<'_>) -> bool {
    static GUARD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^\s*(?:\}\s*)?(?:if|elif|else|unless|except|catch)\b").expect("constant pattern")
    });
    guard_of(tests, line).is_some_and(|guard| GUARD.is_match(guard.text) && !is_always_true(guard.text))
}

/// Whether a line is in a branch that the change added, and whose condition is about what the test does: not about the machine,
/// the version or what is installed.
pub(super) fn is_guarded_anew(tests: &TestFile<'_>, line: &TestLine<'_>) -> bool {
    guard_of(tests, line).is_some_and(|guard| guard.change == LineChange::Added && !asks_for_environment(guard.text))
}

/// Whether a condition is about the machine, the version, what is installed or what was chosen.
pub(super) fn asks_for_environment(condition: &str) -> bool {
    pattern!(
        ENVIRONMENT,
        r"(?i)windows|win32|linux|darwin|mac_?os|platform|version|pypy|\bos\b|goos|env|\bci\b|docker|container|avail|has_|support|feature|root|uid|which|exist|install|network|offline|skip|testing\.short|verbose|debug|release|cfg!|config|enabled|\barch|endian|locale|browser|tty|display|gpu|cuda"
    );
    ENVIRONMENT.is_match(condition)
}

/// Whether a line is in a branch whose condition is always true.
pub(super) fn is_guarded_by_truth(tests: &TestFile<'_>, line: &TestLine<'_>) -> bool {
    guard_of(tests, line).is_some_and(|guard| is_always_true(guard.text))
}

fn is_always_true(condition: &str) -> bool {
    static SURE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"^\s*if\s*\(?\s*(?:true|True|1|not\s+False|!false)\b|^\s*if\b.*(?:\|\||\bor)\s*(?:true|True|1)\s*\)?\s*(?:[:{].*)?$",
        )
        .expect("constant pattern")
    });
    SURE.is_match(condition)
}

/// Returns the line before a line that is indented less.
fn guard_of<'a>(tests: &'a TestFile<'a>, line: &TestLine<'_>) -> Option<&'a TestLine<'a>> {
    let at = tests.lines.partition_point(|other| (other.hunk, other.number) < (line.hunk, line.number));
    let mut before =
        tests.lines[..at].iter().rev().take(GUARD_REACH).filter(|other| other.change != LineChange::Removed);
    before.find(|other| !other.text.trim().is_empty() && indent(other.text) < indent(line.text))
}

/// Reports a module of unit tests that is no longer compiled.
fn modules(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    static MODULE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^\s*(?:pub\s+)?mod\s+\w*tests?\w*\s*;").expect("constant pattern"));
    let gone = |line: &&TestLine<'_>| line.change == LineChange::Removed && MODULE.is_match(line.text);
    for line in tests.lines.iter().filter(gone).filter(|line| tests.language == Language::Rust && !diff.has(line.text))
    {
        let name = line.text.trim().trim_end_matches(';').rsplit(' ').next().unwrap_or_default();
        if !diff.deleted_stems.contains(name) {
            let evidence = format!("no longer compiled: {}", line.text.trim());
            findings.add(tests.file.path(), Some(line.number), TamperKind::TestDeleted, &evidence);
        }
    }
}

/// Removed assertions of one test that exist nowhere else now.
#[derive(Default)]
struct LostAssertions<'a> {
    removed: Vec<&'a TestLine<'a>>,
    added: usize,
    table: bool,
}

/// Reports tests that lost assertions, and added assertions that cannot fail.
fn assertions(tests: &TestFile<'_>, renamed: &HashMap<usize, usize>, diff: &DiffSummary, findings: &mut Findings) {
    let language = tests.language;
    let mut order = Vec::new();
    let mut groups: HashMap<Option<usize>, LostAssertions<'_>> = HashMap::new();
    for line in &tests.lines {
        if line.change == LineChange::Removed && language.asserts(line.text) && tests.is_about_tests(line) {
            let key = match line.old {
                Some(old) => match tests.old[old].other.or_else(|| renamed.get(&old).copied()) {
                    Some(new) => Some(new),
                    None => continue,
                },
                None => None,
            };
            if !diff.has(line.text) {
                let group = groups.entry(key).or_default();
                if group.removed.is_empty() {
                    order.push(key);
                }
                group.removed.push(line);
            }
        } else if line.change == LineChange::Added {
            let group = groups.entry(line.new).or_default();
            let checks = language.asserts(line.text)
                || (language == Language::Rust && line.text.contains(".unwrap()") && !line.text.contains("let _ "));
            group.added += usize::from(checks);
            group.table |= is_table(line.text);
        }
    }
    // Hunks in which a table of cases came.
    let is_new_table =
        |line: &&TestLine<'_>| line.change == LineChange::Added && is_table(line.text) && !diff.had(line.text);
    let tables: HashSet<usize> = tests.lines.iter().filter(is_new_table).map(|line| line.hunk).collect();
    let path = tests.file.path();
    let total = |count: fn(&LostAssertions<'_>) -> usize| groups.values().map(count).sum::<usize>();
    let outnumbered = diff.changes_code && total(|group| group.added) > total(|group| group.removed.len());
    for (key, group) in order.iter().map(|key| (key, &groups[key])) {
        let (removed, added) = (group.removed.len(), group.added);
        let many = removed >= MANY_ASSERTIONS && added * 3 < removed && !group.table;
        let tabled = group.table || added > 0 && tables.contains(&group.removed[0].hunk);
        // One assertion has the values of all that went.
        let tabled = tabled || added > 0 && added_text_has_values(tests, &group.removed);
        if added < removed && !tabled || added == 0 {
            let first = group.removed[0];
            let evidence = format!("{removed} removed, {added} added: {}", first.text.trim());
            let helper = key.is_none_or(|at| tests.new[at].helper) && !matches!(language, Language::Shell);
            let small = |line: &&&TestLine<'_>| {
                diff.names_removed_code(line.text) || language.demand(line.text) == AssertionStrength::Little
            };
            let few = added > 0 && !many;
            let weak = few || outnumbered || helper || group.removed.iter().filter(small).count() == removed;
            findings.add_graded(path, Some(first.number), TamperKind::AssertionRemoved, &evidence, weak);
        }
    }
    steps(tests, diff, findings);
    for line in tests.lines.iter().filter(|line| line.change == LineChange::Added && language.holds_always(line.text)) {
        if tests.is_about_tests(line) && !tests.is_in_new_test(line) && !diff.had(line.text) && !line.owner_is_new {
            let evidence = format!("always holds: {}", line.text.trim());
            findings.add(path, Some(line.number), TamperKind::AssertionWeakened, &evidence);
        }
    }
}

/// Whether each removed assertion has a value, and added lines near the first one contain all of them.
fn added_text_has_values(tests: &TestFile<'_>, removed: &[&TestLine<'_>]) -> bool {
    let first = removed[0];
    let at = tests.lines.partition_point(|line| (line.hunk, line.number) < (first.hunk, first.number));
    let near = &tests.lines[at.saturating_sub(VALUES_REACH)..tests.lines.len().min(at + VALUES_REACH)];
    let added = near.iter().filter(|line| line.change == LineChange::Added && line.hunk == first.hunk);
    let added: String = added.flat_map(|line| [line.text, "\n"]).collect();
    if removed.len() > VALUES_REACH {
        return false;
    }
    removed.iter().all(|line| {
        let values = super::versions::literals(line.text);
        let stands = |value: &&str| added.contains(value.trim_matches(['"', '\'', '`']));
        !values.is_empty() && values.iter().all(stands)
    })
}

/// Reports tests that lost steps without replacement, because these steps may have been the check.
fn steps(tests: &TestFile<'_>, diff: &DiffSummary, findings: &mut Findings) {
    static STEP: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[(\w]\S*[(=]|^\s*\w+ \S").expect("constant pattern"));
    for block in tests.old.iter().filter(|block| block.other.is_some()) {
        let lines = || block.lines.iter().map(|at| &tests.lines[*at]);
        let step = |line: &&TestLine<'_>| {
            line.change == LineChange::Removed
                && STEP.is_match(line.text)
                && !line.text.trim_start().starts_with("use ")
                && !line.text.trim_start().starts_with("import ")
                && !tests.language.is_comment(line.text)
                && !tests.language.asserts(line.text)
                && !diff.has(line.text)
        };
        let got = block
            .other
            .is_some_and(|new| tests.new[new].lines.iter().any(|at| tests.lines[*at].change == LineChange::Added));
        let asserted = lines().any(|line| line.change == LineChange::Removed && tests.language.asserts(line.text));
        if let Some(line) = lines().find(step).filter(|_| !got && !asserted) {
            let evidence = format!("{} lost a step: {}", block.name, line.text.trim());
            findings.notice(tests.file.path(), Some(line.number), TamperKind::AssertionRemoved, &evidence);
        }
    }
}
