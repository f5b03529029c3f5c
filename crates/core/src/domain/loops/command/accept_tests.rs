//! `/ralph accept-tests`: accepts the findings about tests.

use serde::{Deserialize, Serialize};

use super::arguments::{CommandArguments, Problem};
use super::{CommandDefinition, CommandRecord, CommandRow, CommandTarget};
use crate::domain::loops::{AcceptedFindings, BranchFinding, EscalationCause, LoopState, named_paths};
use crate::domain::supervision::oversight::DetectionKind;

/// Accepts the open findings about tests in their current form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptTests {
    /// Paths whose findings are accepted. If empty, all open findings are accepted.
    #[serde(default)]
    pub paths: Vec<String>,
}

impl CommandDefinition for AcceptTests {
    const ROW: CommandRow = CommandRow {
        name: "accept-tests",
        usage: "/ralph accept-tests [PATH…]",
        help: "Accepts the changes to tests that keep the loop from review, as they are now: all, or the changes to these paths.",
        record: CommandRecord::SessionAndAudit,
    };

    fn parse(arguments: &mut CommandArguments<'_>) -> Result<Self, Problem> {
        let mut paths = Vec::new();
        while let Some(path) = arguments.value()? {
            paths.push(path);
        }
        Ok(Self { paths })
    }

    fn apply(self, target: &mut dyn CommandTarget) {
        let (by, at) = (target.author().login.clone(), target.now());
        let current = target.current();
        let open: Vec<BranchFinding> = current.open_findings().into_iter().cloned().collect();
        if open.is_empty() {
            return target.reject("No change to tests waits to be accepted.".into());
        }
        let known = |path: &&String| open.iter().any(|finding| finding.found.path == **path);
        if let Some(unknown) = self.paths.iter().find(|path| !known(path)) {
            let unknown = unknown.chars().filter(|c| !c.is_control() && *c != '`').take(120).collect::<String>();
            return target
                .reject(format!("No change to tests of `{unknown}` waits to be accepted; there is {}.", paths(&open)));
        }
        let chosen = |finding: &BranchFinding| self.paths.is_empty() || self.paths.contains(&finding.found.path);
        let findings: Vec<BranchFinding> = open.into_iter().filter(chosen).collect();
        let accepted = format!("{by} accepted the changes to tests in {}", paths(&findings));
        let commit = current.branch.head.clone();
        current.checks.guard.accepted.push(AcceptedFindings { by, at, commit, findings });
        let all = current.open_findings().is_empty();
        if all {
            current.checks.guard.begin_anew();
        }
        let asked_about_tests = matches!(
            current.run.escalated,
            Some(EscalationCause::TestFindings | EscalationCause::Detection(DetectionKind::TestTampering))
        );
        let goes_on = current.state == LoopState::Paused && asked_about_tests && all;
        target.accept(accepted.clone());
        if goes_on {
            target.reset_supervision();
            target.queue(&accepted);
        } else {
            target.update_status(false);
        }
    }

    fn arguments(&self) -> String {
        self.paths.join(" ")
    }
}

/// Returns the paths of the findings, without repetitions.
fn paths(findings: &[BranchFinding]) -> String {
    let mut paths: Vec<String> = findings.iter().map(|finding| finding.found.path.clone()).collect();
    paths.dedup();
    named_paths(&paths)
}
