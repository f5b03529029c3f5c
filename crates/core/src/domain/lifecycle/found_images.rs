//! Images that were found in the issue, its comments or guidance during work.

use super::StepContext;
use crate::domain::model::image::TaskImages;
use crate::domain::supervision::oversight::{AuditEntry, AuditEvent};

impl StepContext {
    /// Adds the images that are new to the loop, each with an entry in the audit log.
    pub(super) fn found_images(&mut self, found: TaskImages) {
        let iteration = self.next.spent.iterations;
        let entry = |words| AuditEntry::new(iteration, AuditEvent::ImageFound, words);
        let entries: Vec<_> = self.next.knowledge.images.add(found).into_iter().map(entry).collect();
        if !entries.is_empty() {
            self.audit(entries);
        }
    }
}
