//! JUnit and TestNG by Maven Surefire and Failsafe.

use super::runs::{Runner, TestRun, incomplete_by, name_by};
use super::{number, of_total, pattern};
use crate::domain::model::task::TestCounts;

pub(super) const RUNNER: Runner = Runner {
    name: "Maven Surefire and Failsafe (JUnit, TestNG)",
    versions: "Surefire 2.22.3 with JUnit 4 and JUnit 5.9.2; Surefire 3 from documentation",
    fixtures: "surefire",
    reads: "from `T E S T S` on the last `Tests run: …` after `Results`; without it the lines of the classes, and it is \
            incomplete, as where the forked machine ended early; the lines with `<<< FAILURE!` and `<<< ERROR!`, with the \
            parameters and numbers of parameterized tests. With `mvn -q`, which prints failures only, the last line after \
            `Failures:` or `Errors:`. Flakes count as passing.",
    read,
};

pattern!(
    LINE,
    r"^(?:\[(?:INFO|WARNING|ERROR)\] )?(?:( *T E S T S)|(Results ?:|(?:Failures|Errors):)|Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)(?:, Flakes: \d+)?(, Time elapsed: .+)?) *$"
);
pattern!(NAME, r"^(?:\[ERROR\] )?([^\s({]+(?:[({][^)}\n]*[)}]\S*)?)(?: --)? +Time elapsed: .+ <<< (?:FAILURE|ERROR)!$");
pattern!(BROKEN, r"The forked VM terminated|There was a timeout or other error in the fork|COMPILATION ERROR");

/// Run of one module, parsed line by line.
#[derive(Default)]
struct Module {
    span: std::ops::Range<usize>,
    began: bool,
    results: bool,
    classes: Option<TestCounts>,
    total: Option<TestCounts>,
}

impl Module {
    fn run(self) -> Option<TestRun> {
        let counted = |counts| TestRun::closed(self.span.clone(), counts);
        match (self.total, self.classes) {
            (Some(total), _) => Some(counted(total)),
            (None, Some(classes)) => Some(counted(classes).incomplete_if(true).cut_if(self.began)),
            (None, None) => self.began.then(|| TestRun::cut(self.span.clone())),
        }
    }
}

fn read(output: &str) -> Vec<TestRun> {
    let (mut runs, mut module) = (Vec::new(), Module::default());
    for found in LINE.captures_iter(output) {
        let Some(line) = found.get(0).map(|line| line.range()) else { continue };
        if found.get(1).is_some() {
            runs.extend(std::mem::take(&mut module).run());
            module = Module { span: line, began: true, ..Module::default() };
            continue;
        }
        if !module.began && module.classes.is_none() {
            module.span.start = line.start;
        }
        if found.get(2).is_some() {
            module.results = true;
            continue;
        }
        let failing = number(&found, 4).saturating_add(number(&found, 5));
        let counts = of_total(number(&found, 3), failing, number(&found, 6));
        if found.get(7).is_some() {
            module.classes = Some(module.classes.map_or(counts, |classes| classes.plus(counts)));
        } else if module.results {
            module.total = Some(counts);
        } else {
            continue;
        }
        module.span.end = line.end;
    }
    runs.extend(module.run());
    incomplete_by(name_by(runs, output, &NAME), output, &BROKEN)
}
