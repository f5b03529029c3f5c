//! Lost waiting and concurrency in tests: promises that are no longer awaited or returned, threads that now run one after
//! another, and environment variables that disable a check of the program.

use std::collections::HashMap;

use super::blocks::TestFile;
use super::blocks::TestLine;
use super::diff::LineChange;
use super::language::Language;
use super::summary::DiffSummary;
use super::{Findings, TamperKind};

// A chain of a promise that begins a line.
pattern!(CHAIN, r"^\s*[\w$.]+\(.*\)?\s*\.(?:then|catch)\(|^\s*expect\(.*\)\.(?:resolves|rejects)\b");
pattern!(AWAITS, r"\b(?:await|return)\s");
// Switches something off.
pattern!(
    OFF,
    r#"(?:\bos\.environ\[[^\]]+\]\s*=|\bsetenv\(|\bputenv\(|\bprocess\.env\.\w+\s*=|\bprocess\.env\[[^\]]+\]\s*=|\bENV\[[^\]]+\]\s*=|\bset_var\(|\bSetenv\(|\bSystem\.setProperty\(|^\s*export\s+\w+=|\$_(?:ENV|SERVER)\[[^\]]+\]\s*=).*?(?:["'=\s,](?:0|false|off|no|none|disabled?)["']?\s*\)?;?\s*$|=\s*["']["']|=\s*$|=[0'"]*(?:0|false|off|no)["']?[\s)]*;?\s*(?:\w.*)?$)"#
);

/// Searches the lines of a change group that are only removed or only added.
pub(super) fn scan(
    tests: &TestFile<'_>,
    removed: &[&TestLine<'_>],
    added: &[&TestLine<'_>],
    diff: &DiffSummary,
    findings: &mut Findings,
) {
    let path = tests.file.path();
    // Removed lines by what is left of them without a word.
    let without = |word: &str| -> HashMap<String, &TestLine<'_>> {
        let old = removed.iter().filter(|old| old.text.trim().contains(word));
        old.map(|old| (old.text.trim().replacen(word, "", 1), *old)).collect()
    };
    let words: &[&str] = match tests.language {
        Language::JavaScript => &["await ", "return "],
        Language::Python => &["await "],
        Language::Go => &["go "],
        _ => &[],
    };
    let by_word: Vec<_> = words.iter().map(|word| (*word, without(word))).collect();
    let awaited = removed.iter().any(|old| AWAITS.is_match(old.text));
    let says_done = added.iter().any(|line| line.text.contains("done"));
    let existing = |new: &&&TestLine<'_>| tests.existing(new).is_some() && !diff.had(new.text);
    for new in added.iter().filter(existing) {
        let text = new.text.trim();
        // The same call, without the word.
        let dropped = by_word
            .iter()
            .find_map(|(word, lines)| lines.get(text).filter(|_| *word != "return " || CHAIN.is_match(text)));
        if let Some(old) = dropped {
            let evidence = format!("{} -> {text}", old.text.trim());
            // A promise that is dropped lets its assertions fail unseen.
            let sure = tests.language == Language::JavaScript && CHAIN.is_match(text);
            let kind =
                if tests.language == Language::Go { TamperKind::AssertionWeakened } else { TamperKind::FailureIgnored };
            findings.add_graded(path, Some(new.number), kind, &evidence, !sure && diff.changes_code);
        } else if tests.language == Language::JavaScript
            && CHAIN.is_match(text)
            && !AWAITS.is_match(text)
            && (!text.contains('=') || text.contains("=>"))
            && awaited
            && !says_done
        {
            let evidence = format!("nobody waits for the promise: {text}");
            findings.add(path, Some(new.number), TamperKind::FailureIgnored, &evidence);
        }
    }
    let came = |line: &&&TestLine<'_>| {
        line.change == LineChange::Added && tests.is_test && !tests.is_in_new_test(line) && !tests.file.is_new()
    };
    for new in added.iter().filter(came).filter(|new| OFF.is_match(new.text) && !diff.had(new.text)) {
        findings.notice(path, Some(new.number), TamperKind::AssertionWeakened, new.text);
    }
}
