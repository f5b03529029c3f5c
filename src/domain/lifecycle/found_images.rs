//! Images that work found in the issue, its comments or guidance.

use super::StepContext;
use crate::domain::model::image::TaskImages;
use crate::domain::supervision::oversight::{AuditEntry, AuditEvent};

impl StepContext {
    /// Adds images that the loop does not know yet, each with an entry of the audit log.
    pub(super) fn found_images(&mut self, found: TaskImages) {
        let iteration = self.next.spent.iterations;
        let entry = |words| AuditEntry::new(iteration, AuditEvent::ImageFound, words);
        let entries: Vec<_> = self.next.images.add(found).into_iter().map(entry).collect();
        if !entries.is_empty() {
            self.audit(entries);
        }
    }
}
