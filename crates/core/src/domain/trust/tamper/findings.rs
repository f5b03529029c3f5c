//! Findings of a scan, without repetitions.

use std::collections::BTreeSet;

use crate::domain::model::task::{TamperFinding, TamperKind};

/// Default maximum number of findings of one diff.
pub const MAX_FINDINGS: usize = 100;
/// Maximum length of evidence, in characters.
pub(super) const MAX_EVIDENCE: usize = 200;

/// Distinct findings so far.
pub(super) struct Findings {
    pub(super) list: Vec<TamperFinding>,
    seen: BTreeSet<(TamperKind, String, String)>,
    /// Maximum number of findings.
    most: usize,
}

impl Findings {
    /// Creates an empty list for at most `most` findings.
    pub(super) fn new(most: usize) -> Self {
        Self { list: Vec::new(), seen: BTreeSet::new(), most }
    }

    /// Adds a finding. `line` is 1-based.
    pub(super) fn add(&mut self, path: &str, line: Option<u32>, kind: TamperKind, evidence: &str) {
        let finding = TamperFinding { line, ..TamperFinding::new(path, kind, brief(evidence)) };
        let key = (kind, finding.path.clone(), finding.evidence.clone());
        if self.list.len() < self.most && self.seen.insert(key) {
            self.list.push(finding);
        }
    }
}

fn brief(evidence: &str) -> String {
    evidence.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_EVIDENCE).collect()
}
