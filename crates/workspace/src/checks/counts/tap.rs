//! TAP, versions 12 to 14, of any program.

use std::ops::Range;

use super::runs::{Runner, TestRun};
use super::{number, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "TAP 12 to 14 (Perl, Bats, tape, node-tap, testem)",
    versions: "Perl 5.36.0, Bats 1.8.2, mocha and AVA with their TAP reporters",
    fixtures: "tap",
    reads: "`ok` and `not ok` at the top level under a plan `1..N` before or after them; a lone `ok` is a word like any other. \
            `not ok` with `# TODO` counts as skipped, also after another `#`. Fewer lines than planned, no plan after `TAP version`, and `Bail out!` \
            make it incomplete.",
    read,
};

pattern!(
    LINE,
    r"^(?:(TAP version \d+)|1\.\.(\d+)(?: *#.*)?|(Bail out!.*)|(not )?ok(?: (\d+))?(?:((?: +(?:- *)?[^#|\s].*?)?)(?: *# *((?i)skip\S*|todo)\b.*)?| *#.*)|((?:skip|todo) \d+ .*))$"
);
pattern!(NAME, r"^ *(?:- )?(.*?)(?: +#.*)? *$");

/// A partly parsed TAP document.
#[derive(Default)]
struct TapDocument {
    span: Range<usize>,
    versioned: bool,
    planned: Option<u64>,
    bailed: bool,
    counts: TestCounts,
    failing: Vec<String>,
}

impl TapDocument {
    fn seen(&self) -> u64 {
        self.counts.passing + self.counts.failing + self.counts.skipped
    }

    fn is_begun(&self) -> bool {
        self.versioned || self.planned.is_some() || self.seen() > 0
    }

    /// Adds the document's run; adds nothing for lines without a plan or a version.
    fn finish(self, runs: &mut Vec<TestRun>) {
        let seen = self.seen();
        let Some(planned) = self.planned.or_else(|| self.versioned.then_some(u64::MAX)) else { return };
        let mut counts = self.counts;
        // More lines than planned: somebody else printed some.
        counts.passing = counts.passing.min(planned.saturating_sub(counts.failing).saturating_sub(counts.skipped));
        let mut run = TestRun::closed(self.span, counts);
        run.failing = self.failing;
        if seen == 0 && planned == u64::MAX {
            run.counts = None;
        }
        runs.push(run.incomplete_if(self.bailed).cut_if(!self.bailed && seen < planned));
    }
}

fn read(output: &str) -> Vec<TestRun> {
    let (mut runs, mut document) = (Vec::new(), TapDocument::default());
    for found in LINE.captures_iter(output) {
        let Some(line) = found.get(0).map(|line| line.range()) else { continue };
        let version = found.get(1).is_some();
        // A line of testem for `ok 3 # skip`, a sentence elsewhere.
        let left_out = found.get(8).is_some();
        if left_out && !document.is_begun() {
            continue;
        }
        let plan = found.get(2).is_some();
        let full = document.planned.is_some_and(|planned| document.seen() >= planned);
        let next = version && document.is_begun() || plan && document.planned.is_some();
        // A test after a full plan starts a document whose plan comes last, unless the numbering continues.
        let anew = found.get(5).is_some() && number(&found, 5) == 1 && full;
        if next || anew {
            std::mem::take(&mut document).finish(&mut runs);
        }
        if !document.is_begun() {
            document.span.start = line.start;
        }
        document.span.end = line.end;
        if version {
            document.versioned = true;
        } else if plan {
            document.planned = Some(number(&found, 2));
        } else if found.get(3).is_some() {
            document.bailed = true;
        } else if left_out {
            document.counts.skipped += 1;
        } else {
            let directive = found.get(7).map(|word| word.as_str().to_lowercase());
            match (found.get(4).is_some(), directive.as_deref()) {
                (_, Some(skip)) if skip.starts_with("skip") => document.counts.skipped += 1,
                (true, Some("todo")) => document.counts.skipped += 1,
                (false, _) => document.counts.passing += 1,
                (true, _) => {
                    document.counts.failing += 1;
                    let name = found.get(6).map_or("", |name| name.as_str());
                    document.failing.extend(NAME.captures(name).map(|name| name[1].to_owned()));
                }
            }
        }
    }
    document.finish(&mut runs);
    runs
}
