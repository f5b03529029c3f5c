//! Texts that describe the work of an iteration, for comparison with the task.

use crate::domain::loops::Loop;
use crate::domain::model::record::Record;
use crate::domain::model::task::{AgentReport, DiffStat};
use crate::domain::supervision::oversight::{ComparedTexts, compared_texts};

impl Loop {
    /// Returns the texts of the task and of the running iteration's work, whose change is `stat`, for an embedding model.
    /// `None` if one has too few words.
    pub fn compared_texts(&self, stat: &DiffStat) -> Option<ComparedTexts> {
        compared_texts(&self.task.text.agent_text(), &described(&self.current()?.report, stat))
    }
}

/// Returns a record with only the texts that describe an iteration's work.
pub(super) fn described(report: &AgentReport, stat: &DiffStat) -> Record {
    Record {
        learnings: report.learnings.clone(),
        summary: [&report.summary, &report.approach].map(String::as_str).join(" "),
        files: stat.files.iter().map(|file| file.path.clone()).collect(),
        ..Record::default()
    }
}
