//! Agent failure: a backend that crashes, runs out of time or answers with nothing that can be used.

use super::detection::{Detection, DetectionEvidence, DetectionKind, DetectionSeverity};
use super::detection_input::{DetectionInput, line};

pub(super) fn detect(input: &DetectionInput<'_>) -> Option<Detection> {
    let settings = &input.settings.agent_failure;
    let newest = input.last.agent_failure.as_deref()?;
    let window = input.recent(settings.window);
    let failed = window.iter().filter(|record| record.agent_failure.is_some()).count();
    let failed = u32::try_from(failed).unwrap_or(u32::MAX);
    if failed < settings.iterations {
        return None;
    }
    let text = format!("the backend failed in {failed} of the last {} iterations: {}", window.len(), line(newest));
    Detection::of(
        DetectionKind::AgentFailure,
        DetectionSeverity::High,
        vec![DetectionEvidence::new("failed_runs", failed, settings.iterations, text)],
    )
}
