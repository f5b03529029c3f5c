//! Crashed runs of runners that print no first line. Such a run is only visible by a crash report, or by the line that shows
//! its call.

use std::ops::Range;

use super::pattern;
use crate::domain::checks::criteria::may_run_none;

// Reports of Ruby, Node.js, Python, Erlang and Java.
pattern!(
    REPORT,
    r"^(?:\S+:\d+: \[BUG\] |----- Native stack trace -----$|FATAL ERROR: .*(?:JavaScript heap|v8::|node::)|Fatal Python error: )"
);
pattern!(
    DUMP,
    r"^(?:Crash dump is being written to|# +A fatal error has been detected by the Java Runtime Environment)"
);
// Reports of shells.
pattern!(
    SIGNAL,
    r"^(?:\S+: line \d+: +\d+ )?(?:Segmentation fault|Aborted|Killed|Bus error|Illegal instruction)(?: +\(core dumped\).*)?$"
);
// jest reports that a test ended the process.
pattern!(EXIT, r"^ +● +process\.exit called with ");
// The line with which npm, pnpm, yarn and make show the call of a runner that always reports its tests.
pattern!(
    CALL,
    r"^(?:[>$] )?(?:\w+=\S* )*(?:npx )?(?:python[\d.]* -m (?:unittest|pytest)|pytest|node --test|jest|vitest run|mocha|jasmine|ava)(?: [^|<>;&\n]*)?$"
);
// Reports of jest and Vitest in a package without tests.
pattern!(NONE, r"^No test(?:s| files) found\b");
// A suite of mocha with its first test; what jest prints has no blank line before it.
pattern!(SUITE, r"(?:\A|\n)\n  \S.*\n    (?:[✔✓√] |\d+\) )");

/// Returns the range of an unfinished run after `from`, the end of the last closing line; `None` if there is none.
pub(super) fn unfinished(output: &str, from: usize) -> Option<Range<usize>> {
    let rest = &output[from..];
    let reported = [&REPORT, &DUMP, &SIGNAL, &EXIT, &SUITE].into_iter().filter_map(|pattern| pattern.find(rest));
    let mut calls = CALL.find_iter(rest).peekable();
    let call = std::iter::from_fn(|| {
        let call = calls.next()?;
        let end = calls.peek().map_or(rest.len(), |next| next.start());
        // concurrently repeats the call when it reports its end.
        let ended = call.as_str().contains(" exited with code ");
        Some((call, ended || may_run_none(call.as_str()) || reports_none(&rest[call.end()..end])))
    });
    let call = call.filter(|(_, ended)| !ended).map(|(call, _)| call);
    let first = reported.chain(call).map(|found| found.range()).min_by_key(|span| span.start)?;
    Some(from + first.start..from + first.end)
}

/// Whether a runner reports in `text` that it found no tests.
pub(super) fn reports_none(text: &str) -> bool {
    NONE.is_match(text)
}
