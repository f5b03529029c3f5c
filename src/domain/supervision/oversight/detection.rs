//! Detections: kind, severity, evidence, and recommendations.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of a detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DetectionKind {
    /// No way forward.
    Stuck,
    /// To and fro.
    Oscillation,
    /// Work on something else than the objective.
    Deviation,
    /// Much spent for little.
    ResourceBurn,
    /// A check that passed now fails.
    Regression,
    /// Checks that were weakened.
    TestTampering,
    /// Iterations that changed nothing.
    NoChange,
    /// A backend that fails.
    AgentFailure,
}

impl DetectionKind {
    /// Its name, as in configuration and traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stuck => "stuck",
            Self::Oscillation => "oscillation",
            Self::Deviation => "deviation",
            Self::ResourceBurn => "resource_burn",
            Self::Regression => "regression",
            Self::TestTampering => "test_tampering",
            Self::NoChange => "no_change",
            Self::AgentFailure => "agent_failure",
        }
    }

    /// Returns the title for people and agents, without a full stop.
    pub fn title(self) -> &'static str {
        match self {
            Self::Stuck => "The loop is stuck",
            Self::Oscillation => "The loop oscillates between approaches",
            Self::Deviation => "The changes leave the scope of the task",
            Self::ResourceBurn => "High cost for little progress",
            Self::Regression => "A check that passed now fails",
            Self::TestTampering => "Checks were weakened",
            Self::NoChange => "Iterations changed nothing while checks fail",
            Self::AgentFailure => "The backend keeps failing",
        }
    }

    /// Returns recommendations, most useful first.
    pub fn recommendations(self) -> &'static [&'static str] {
        match self {
            Self::Stuck => &[
                "Take a different approach; what was tried does not work.",
                "Find the cause with a minimal reproduction before changing more.",
                "Split the task and do its smallest part first.",
            ],
            Self::Oscillation => &[
                "Decide for one approach and say why; do not return to the other.",
                "Look for requirements that contradict each other and name them.",
            ],
            Self::Deviation => &[
                "Read the objective and the failing checks again.",
                "Leave alone what they do not ask for, and take back what was changed there.",
            ],
            Self::ResourceBurn => &[
                "Do only what the first failing check needs.",
                "Split what remains into smaller tasks, or raise the limits if it is worth it.",
            ],
            Self::Regression => &[
                "Fix the check that used to pass before anything else.",
                "Compare with the best iteration and take back the change that broke it.",
            ],
            Self::TestTampering => &[
                "Put the tests and the configuration of checks back as they were.",
                "Make the checks pass by changing what they test.",
            ],
            Self::NoChange => &[
                "Change the code that the first failing check points at.",
                "If nothing can be changed, say what is missing as a blocker.",
            ],
            Self::AgentFailure => &[
                "Make the steps smaller, so that each fits the time limit.",
                "Another backend runs next where one is free; configure one if there is none.",
            ],
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

impl fmt::Display for DetectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Severity of a detection, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DetectionSeverity {
    /// Worth a record.
    Low,
    /// Worth a warning.
    Medium,
    /// The approach has to change.
    High,
    /// A person has to look.
    Critical,
}

impl DetectionSeverity {
    /// One less.
    #[must_use]
    pub fn lowered(self) -> Self {
        match self {
            Self::Low | Self::Medium => Self::Low,
            Self::High => Self::Medium,
            Self::Critical => Self::High,
        }
    }
}

/// A signal that fired, with its figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DetectionEvidence {
    /// Name of the signal.
    pub signal: String,
    /// Measured value, in the unit of the threshold.
    pub value: f64,
    /// The threshold that it crossed.
    pub threshold: f64,
    /// Both in a sentence without a full stop.
    pub text: String,
}

impl DetectionEvidence {
    /// Evidence for a signal.
    pub(super) fn new(signal: &str, value: impl Into<f64>, threshold: impl Into<f64>, text: String) -> Self {
        // JSON has no infinities.
        let finite = |figure: f64| if figure.is_nan() { 0.0 } else { figure.clamp(f64::MIN, f64::MAX) };
        Self { signal: signal.to_owned(), value: finite(value.into()), threshold: finite(threshold.into()), text }
    }
}

/// Something that was found in a loop's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// Kind of the detection.
    pub kind: DetectionKind,
    /// Severity.
    pub severity: DetectionSeverity,
    /// The signals that fired, at least one.
    pub evidence: Vec<DetectionEvidence>,
    /// Recommendations, most useful first.
    pub recommendations: Vec<String>,
    /// The same for as long as the cause is the same: the kind, or the kind and what it is about (`stuck:` and the error).
    pub cause: String,
}

/// Longest part of a cause after the kind, in characters.
const MAX_CAUSE: usize = 80;

impl Detection {
    /// A detection where any signal fired.
    pub(super) fn of(
        kind: DetectionKind,
        severity: DetectionSeverity,
        evidence: Vec<DetectionEvidence>,
    ) -> Option<Self> {
        let recommendations = kind.recommendations().iter().map(|text| (*text).to_owned()).collect();
        (!evidence.is_empty()).then(|| Self {
            kind,
            severity,
            evidence,
            recommendations,
            cause: kind.name().to_owned(),
        })
    }

    /// The same with what its cause is about.
    #[must_use]
    pub(super) fn about(mut self, what: &str) -> Self {
        self.cause = format!("{}:{}", self.kind, what.chars().take(MAX_CAUSE).collect::<String>());
        self
    }

    /// The evidence in one sentence without a full stop.
    pub fn evidence_text(&self) -> String {
        self.evidence.iter().map(|evidence| evidence.text.as_str()).collect::<Vec<_>>().join("; ")
    }
}
