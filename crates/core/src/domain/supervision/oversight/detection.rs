//! Detections: severity, evidence, and recommendations.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DetectionKind;
use super::basis::Basis;

/// Severity of a detection, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DetectionSeverity {
    /// The finding is only recorded.
    Low,
    /// The agent should be warned.
    Medium,
    /// The approach has to change.
    High,
    /// A person has to look at the loop.
    Critical,
}

impl DetectionSeverity {
    /// Returns the next lower severity; `Low` stays.
    #[must_use]
    pub fn lowered(self) -> Self {
        match self {
            Self::Low | Self::Medium => Self::Low,
            Self::High => Self::Medium,
            Self::Critical => Self::High,
        }
    }
}

impl fmt::Display for DetectionSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        })
    }
}

/// Signal beyond its threshold, with its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DetectionEvidence {
    /// Name of the signal.
    pub signal: String,
    /// Measured value, in the threshold's unit.
    pub value: f64,
    /// Threshold that the value crossed.
    pub threshold: f64,
    /// Value and threshold in a sentence without a full stop.
    pub text: String,
}

impl DetectionEvidence {
    /// Creates the evidence of a signal.
    pub(super) fn new(signal: &str, value: impl Into<f64>, threshold: impl Into<f64>, text: String) -> Self {
        // JSON has no infinities.
        let finite = |figure: f64| if figure.is_nan() { 0.0 } else { figure.clamp(f64::MIN, f64::MAX) };
        Self { signal: signal.to_owned(), value: finite(value.into()), threshold: finite(threshold.into()), text }
    }
}

/// Problem detected in a loop's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// Kind of the detection.
    pub kind: DetectionKind,
    /// Severity of the detection.
    pub severity: DetectionSeverity,
    /// Signals beyond their thresholds, at least one, most directly measured first.
    pub evidence: Vec<DetectionEvidence>,
    /// Recommendations, most useful first.
    pub recommendations: Vec<String>,
    /// Identifier of the cause, constant while the cause persists: the kind, possibly with a subject (`stuck:` and the
    /// error).
    pub cause: String,
}

/// Maximum length of the subject in a cause, in characters.
const MAX_CAUSE: usize = 80;

impl Detection {
    /// Creates a detection from its evidence; `None` without evidence.
    pub(super) fn of(
        kind: DetectionKind,
        severity: DetectionSeverity,
        mut evidence: Vec<DetectionEvidence>,
    ) -> Option<Self> {
        let row = kind.row();
        evidence.sort_by_key(|found| row.basis_of(&found.signal));
        let recommendations = row.advice.iter().map(|text| (*text).to_owned()).collect();
        (!evidence.is_empty()).then(|| Self {
            kind,
            severity,
            evidence,
            recommendations,
            cause: kind.name().to_owned(),
        })
    }

    /// Adds the subject `what` to the cause, such as the error in `stuck:E0308`.
    #[must_use]
    pub(super) fn about(mut self, what: &str) -> Self {
        self.cause = format!("{}:{}", self.kind, what.chars().take(MAX_CAUSE).collect::<String>());
        self
    }

    /// Returns the basis of the most direct evidence.
    pub fn basis(&self) -> Basis {
        let row = self.kind.row();
        self.evidence.iter().map(|found| row.basis_of(&found.signal)).min().unwrap_or(Basis::Words)
    }

    /// Returns the evidence in one sentence without a full stop.
    pub fn evidence_text(&self) -> String {
        self.evidence.iter().map(|evidence| evidence.text.as_str()).collect::<Vec<_>>().join("; ")
    }
}
