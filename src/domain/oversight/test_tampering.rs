//! Test tampering: the iteration's change weakened what measures it. The one detection that finished work does not excuse.

use super::detection::{Detection, Evidence, Kind, Severity};
use super::scene::{Scene, line, number};

/// Findings that are named; the others are counted.
const MAX_NAMED: usize = 3;

pub(super) fn detect(scene: &Scene<'_>) -> Option<Detection> {
    let findings = &scene.last.tampering;
    let count = u32::try_from(findings.len()).unwrap_or(u32::MAX);
    let named: Vec<String> = findings.iter().take(MAX_NAMED).map(|finding| line(finding)).collect();
    let evidence = (count > 0).then(|| {
        let more = if findings.len() > MAX_NAMED {
            format!(" and {} more", findings.len() - MAX_NAMED)
        } else {
            String::new()
        };
        Evidence::new("weakened_checks", count, 1, format!("{}{more}", named.join("; ")))
    });
    let again = scene.redirected.get(&Kind::TestTampering).is_some_and(|then| *then < number(scene.history));
    let severity = if again { Severity::Critical } else { Severity::High };
    Detection::of(Kind::TestTampering, severity, evidence.into_iter().collect())
}
