//! Crashed runs of runners that print no first line. Such a run is only visible by a crash report, or by a progress
//! line at the very end of the output.

use std::ops::Range;

use super::pattern;

// Reports of Ruby, Node.js, Python, Erlang and Java.
pattern!(REPORT, r"^(?:\S+:\d+: \[BUG\] |----- Native stack trace -----$|FATAL ERROR: |Fatal Python error: )");
pattern!(
    DUMP,
    r"^(?:Crash dump is being written to|# +A fatal error has been detected by the Java Runtime Environment)"
);
// Reports of shells.
pattern!(
    SIGNAL,
    r"^(?:\S+: line \d+: +\d+ )?(?:Segmentation fault|Aborted|Killed|Bus error|Illegal instruction)(?: +\(core dumped\).*)?$"
);
// jest tells that a test ended the process.
pattern!(EXIT, r"^ +● +process\.exit called with ");
// Dots of RSpec, ExUnit and others; make, npm, pnpm and yarn may say that the script failed.
pattern!(PROGRESS, r"^ {0,2}[FE*!,]*\.[.FE*!,]*(?:make(?:\[\d+\])?: .*|\s*ELIFECYCLE\b.*)?$");
// The line with which npm, pnpm, yarn and make show the call of a runner that always reports its tests.
pattern!(
    CALL,
    r"^(?:[>$] )?(?:\w+=\S* )*(?:npx )?(?:python[\d.]* -m (?:unittest|pytest)|pytest|node --test|jest|vitest run|mocha|jasmine|ava)(?: [^|<>;&\n]*)?$"
);
pattern!(
    TOOL,
    r"^(?:Done|Failed|make(?:\[\d+\])?: .*|\s*ELIFECYCLE\b.*|npm (?:ERR!|error).*|error Command failed.*|info Visit .*|\s*)$"
);
// A suite of mocha with its first test; what jest prints has no blank line before it.
pattern!(SUITE, r"(?:\A|\n)\n  \S.*\n    (?:[✔✓√] |\d+\) )");

/// Returns the range of an unfinished run after `from`, the end of the last closing line; `None` if there is none. `progress`
/// tells whether a line of dots at the end counts.
pub(super) fn unfinished(output: &str, from: usize, progress: bool) -> Option<Range<usize>> {
    let rest = &output[from..];
    let reported = [&REPORT, &DUMP, &SIGNAL, &EXIT, &SUITE].into_iter().filter_map(|pattern| pattern.find(rest));
    // concurrently repeats the call when it tells how it ended.
    let call = CALL.find_iter(rest).find(|call| !call.as_str().contains(" exited with code "));
    let at_end =
        PROGRESS.find_iter(rest).filter(|dots| progress && rest[dots.end()..].lines().all(|line| TOOL.is_match(line)));
    let first = reported.chain(call).chain(at_end).map(|found| found.range()).min_by_key(|span| span.start)?;
    Some(from + first.start..from + first.end)
}
