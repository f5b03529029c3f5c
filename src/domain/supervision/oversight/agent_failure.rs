//! Agent failure: a backend that crashes, runs out of time or answers with nothing that can be used.

use super::detection::{Detection, Evidence, Kind, Severity};
use super::scene::{Scene, line};

pub(super) fn detect(scene: &Scene<'_>) -> Option<Detection> {
    let settings = &scene.settings.agent_failure;
    let newest = scene.last.agent_failure.as_deref()?;
    let window = scene.recent(settings.window);
    let failed = window.iter().filter(|record| record.agent_failure.is_some()).count();
    let failed = u32::try_from(failed).unwrap_or(u32::MAX);
    if failed < settings.iterations {
        return None;
    }
    let text = format!("the backend failed in {failed} of the last {} iterations: {}", window.len(), line(newest));
    Detection::of(
        Kind::AgentFailure,
        Severity::High,
        vec![Evidence::new("failed_runs", failed, settings.iterations, text)],
    )
}
