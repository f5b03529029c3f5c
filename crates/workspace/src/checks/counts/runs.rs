//! Test runners and their runs within an output: ranges, and which closing lines are genuine.

use std::ops::Range;

use regex::{Captures, Regex};

use crate::domain::model::task::TestCounts;

/// Test runner, or a family of runners with the same output. Its texts appear in `docs/reference/runners.md`, which a test
/// generates.
#[cfg_attr(not(test), allow(dead_code, reason = "only the generated page has the texts"))]
pub(super) struct Runner {
    /// Names, for people.
    pub name: &'static str,
    /// Versions whose recorded output is a fixture; empty if documentation and issues are the source of the format.
    pub versions: &'static str,
    /// Prefix of the names of its fixtures.
    pub fixtures: &'static str,
    /// Description of the lines that are read, for people.
    pub reads: &'static str,
    /// Finds the runner's runs in an output whose escape sequences were removed.
    pub read: fn(&str) -> Vec<TestRun>,
}

/// Kind of count that a runner's word belongs to.
#[derive(Clone, Copy)]
pub(super) enum TestOutcome {
    Passing,
    Failing,
    Skipped,
}

/// One run of a runner within an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TestRun {
    /// Name of the runner; empty if unknown.
    pub runner: &'static str,
    /// Bytes from its first known line to the end of its closing line.
    pub span: Range<usize>,
    /// Counts; `None` if the run has no closing line.
    pub counts: Option<TestCounts>,
    /// Names of failing tests.
    pub failing: Vec<String>,
    /// Whether the run ended before all tests were finished.
    pub incomplete: bool,
    /// Whether nothing of the run's end was printed.
    pub cut: bool,
    /// Number of failures that may not be separate tests.
    pub extra: u64,
}

impl TestRun {
    pub(super) fn closed(span: Range<usize>, counts: TestCounts) -> Self {
        Self { runner: "", span, counts: Some(counts), failing: Vec::new(), incomplete: false, cut: false, extra: 0 }
    }

    /// Creates a run without a closing line; `span` is its first line.
    pub(super) fn cut(span: Range<usize>) -> Self {
        Self { runner: "", span, counts: None, failing: Vec::new(), incomplete: true, cut: true, extra: 0 }
    }

    /// Marks the run as cut, and so as incomplete, if `condition`.
    pub(super) fn cut_if(mut self, condition: bool) -> Self {
        self.cut |= condition;
        self.incomplete_if(condition)
    }

    /// Marks the run as incomplete if `condition`.
    pub(super) fn incomplete_if(mut self, condition: bool) -> Self {
        self.incomplete |= condition;
        self
    }
}

/// Line that may be the closing line of a run.
pub(super) struct Closing {
    pub span: Range<usize>,
    pub counts: TestCounts,
    /// Number of progress marks, one per test, that a run with these counts prints.
    pub claimed: u64,
}

/// Returns a possible closing line for every match of `pattern`.
pub(super) fn closings(
    output: &str,
    pattern: &Regex,
    counts: impl Fn(&Captures<'_>) -> Option<TestCounts>,
) -> Vec<TestRun> {
    let run = |found: Captures<'_>| Some(TestRun::closed(found.get(0)?.range(), counts(&found)?));
    pattern.captures_iter(output).filter_map(run).collect()
}

/// Returns the runs between starting and closing lines. Pairs can be nested; the outermost one counts. Of several
/// closing lines after a starting line, the last one counts, because tests printed the earlier ones. A starting line
/// without a closing line is an incomplete run.
pub(super) fn between(
    output: &str,
    start: &Regex,
    close: &Regex,
    counts: impl Fn(&Captures<'_>) -> Option<TestCounts>,
) -> Vec<TestRun> {
    let starts = start.find_iter(output).map(|found| (found.range(), None));
    let ends = close.captures_iter(output).filter_map(|found| Some((found.get(0)?.range(), Some(counts(&found)?))));
    let mut lines: Vec<_> = starts.chain(ends).collect();
    lines.sort_by_key(|(span, _)| span.start);
    let (mut open, mut runs, mut inner) = (Vec::<Range<usize>>::new(), Vec::<TestRun>::new(), Vec::new());
    for (span, closed) in lines {
        match (closed, open.pop()) {
            (None, outer) => open.extend(outer.into_iter().chain([span])),
            (Some(counts), Some(begin)) => {
                let run = TestRun::closed(begin.start..span.end, counts);
                if open.is_empty() {
                    inner.clear();
                    runs.push(run);
                } else {
                    inner.push(run);
                }
            }
            (Some(counts), None) => match runs.last_mut() {
                Some(last) => *last = TestRun::closed(last.span.start..span.end, counts),
                None => runs.push(TestRun::closed(span, counts)),
            },
        }
    }
    // A run that is still open did not contain the runs after it: it was cut short.
    runs.extend(inner);
    runs.extend(open.into_iter().map(TestRun::cut));
    runs.sort_by_key(|run| run.span.start);
    runs
}

/// Returns the runs of a runner that prints no starting line. `marks` are the byte positions of progress marks,
/// `starts` the positions of lines that only this runner prints; both are sorted.
///
/// A closing line is genuine if at least half of the marks that it claims were printed since the previous genuine one,
/// or if there are no marks. Of two closing lines that can only belong to one run, the one with fewer passing tests is
/// used. A run starts at the first of `starts` after the previous run; without one, at its closing line.
///
/// Marks that a closing line does not claim belong to the run around it, for example of a test that calls the runner: if the
/// next closing line claims exactly these marks and its own, the earlier run is left out.
pub(super) fn believed(closings: Vec<Closing>, marks: &[usize], starts: &[usize]) -> Vec<TestRun> {
    let mut believed: Vec<(TestRun, u64)> = Vec::new();
    // Marks before the last genuine closing line that it does not claim.
    let mut unclaimed = 0;
    let mut doubtful: Option<TestRun> = None;
    let mut from = 0;
    let fewer = |run: &TestRun, counts: TestCounts| run.counts.is_none_or(|known| counts.passing < known.passing);
    for Closing { span, counts, claimed } in closings {
        let before = |places: &[usize], end: usize| places.partition_point(|at| *at < end);
        let seen = before(marks, span.start).saturating_sub(before(marks, from)) as u64;
        let start = starts.get(before(starts, from)).copied().unwrap_or(span.start);
        let mut run = TestRun::closed(start.min(span.start)..span.end, counts);
        if marks.is_empty() || seen.saturating_mul(2) >= claimed {
            from = run.span.end;
            if unclaimed > 0 && seen + unclaimed == claimed {
                run.span.start = believed.pop().map_or(run.span.start, |(inner, _)| inner.span.start);
                unclaimed = 0;
            } else {
                unclaimed = seen.saturating_sub(claimed);
            }
            believed.push((run, seen));
        } else if let Some((last, of)) = believed.last_mut() {
            if fewer(last, counts) && (*of + seen).saturating_mul(2) >= claimed {
                *last = TestRun::closed(last.span.start..span.end, counts);
            }
        } else if doubtful.as_ref().is_none_or(|known| fewer(known, counts)) {
            doubtful = Some(run);
        }
    }
    if believed.is_empty() {
        doubtful.into_iter().collect()
    } else {
        believed.into_iter().map(|(run, _)| run).collect()
    }
}

/// Returns the positions of the marks that `pattern` matches: every character of its first group, or the whole match.
pub(super) fn marks(output: &str, pattern: &Regex) -> Vec<usize> {
    let of = |found: Captures<'_>| match (found.get(1), found.get(0)) {
        (Some(group), _) => group.as_str().char_indices().map(|(at, _)| group.start() + at).collect::<Vec<_>>(),
        (None, all) => all.iter().map(regex::Match::start).collect(),
    };
    pattern.captures_iter(output).flat_map(of).collect()
}

/// Assigns names of failing tests, given with their byte positions, to the run that contains them, otherwise to the
/// last run before them, otherwise to the first run.
pub(super) fn add_names(runs: &mut [TestRun], names: impl IntoIterator<Item = (usize, String)>) {
    for (at, name) in names {
        let next = runs.partition_point(|run| run.span.end <= at);
        let around = runs.get(next).is_some_and(|run| run.span.start <= at);
        let run = if around { next } else { next.saturating_sub(1) };
        if let Some(run) = runs.get_mut(run) {
            run.failing.push(name);
        }
    }
}

/// Adds the first matched group of each match of `pattern` as the name of a failing test.
pub(super) fn name_by(mut runs: Vec<TestRun>, output: &str, pattern: &Regex) -> Vec<TestRun> {
    let names = pattern.captures_iter(output).filter_map(|found| {
        let name = found.iter().skip(1).flatten().next()?;
        Some((name.start(), name.as_str().trim().to_owned()))
    });
    add_names(&mut runs, names);
    runs
}

/// Marks each run as incomplete if `pattern` matches between the end of the previous run and the start of the next
/// one.
pub(super) fn incomplete_by(mut runs: Vec<TestRun>, output: &str, pattern: &Regex) -> Vec<TestRun> {
    let bounds: Vec<Range<usize>> = (0..runs.len())
        .map(|at| {
            let from = if at == 0 { 0 } else { runs[at - 1].span.end };
            from.min(runs[at].span.start)
                ..runs.get(at + 1).map_or(output.len(), |next| next.span.start.max(runs[at].span.end))
        })
        .collect();
    for (run, bound) in runs.iter_mut().zip(bounds) {
        run.incomplete |= pattern.is_match(&output[bound]);
    }
    runs
}
