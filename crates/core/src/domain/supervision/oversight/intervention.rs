//! Interventions: five levels, the notifications of each level, and directives for the next prompt.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DetectionKind;
use super::basis::Basis;
use super::detection::{Detection, DetectionSeverity};

/// Level of an intervention, mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InterventionLevel {
    /// The finding is only recorded.
    Log,
    /// The next prompt starts with a warning.
    Warn,
    /// The next prompt demands another approach, and the agent starts a new session.
    Redirect,
    /// The loop waits for a person.
    Pause,
    /// The loop ends, and its work is kept.
    Abort,
}

impl InterventionLevel {
    /// Returns the next higher level, at most `Pause`.
    pub(super) fn climbed(self) -> Self {
        match self {
            Self::Log => Self::Warn,
            Self::Warn => Self::Redirect,
            Self::Redirect | Self::Pause => Self::Pause,
            Self::Abort => Self::Abort,
        }
    }

    /// Returns the most severe level justified by a basis. Text alone neither pauses nor ends a loop.
    pub fn strongest_by(basis: Basis) -> Self {
        match basis {
            Basis::Measured | Basis::Derived => Self::Abort,
            Basis::Words => Self::Redirect,
        }
    }

    /// Returns the display name, in capitals.
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "LOG",
            Self::Warn => "WARN",
            Self::Redirect => "REDIRECT",
            Self::Pause => "PAUSE",
            Self::Abort => "ABORT",
        }
    }
}

/// Intervention because of a detection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intervention {
    /// Level of the intervention.
    pub level: InterventionLevel,
    /// Kind of the detection.
    pub kind: DetectionKind,
    /// Cause of the detection; see [`Detection::cause`].
    pub cause: String,
    /// Severity of the detection.
    pub severity: DetectionSeverity,
    /// Basis of the detection.
    pub basis: Basis,
    /// Whether the cause reached this level for the first time. Only then is the intervention reported.
    pub fresh: bool,
    /// Reason, in one sentence.
    pub reason: String,
}

/// Urgency of an escalation, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EscalationLevel {
    /// Log entry. Also used for a loop that waits for a person although there is no problem.
    Info,
    /// Status comment on the issue.
    Warning,
    /// Escalation issue.
    Critical,
    /// Escalation issue that is marked as blocking.
    Emergency,
}

/// Notification of people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Escalation {
    /// Urgency of the escalation.
    pub level: EscalationLevel,
    /// Whether the escalation issue, webhooks and the desktop are used as well. If false, only the loop's issue notifies
    /// people.
    pub outside: bool,
}

impl Escalation {
    /// Returns the notification for a level of intervention.
    pub(super) fn of(level: InterventionLevel, auto_escalate: bool) -> Self {
        let loud = match level {
            InterventionLevel::Log => EscalationLevel::Info,
            InterventionLevel::Warn | InterventionLevel::Redirect => EscalationLevel::Warning,
            InterventionLevel::Pause => EscalationLevel::Critical,
            InterventionLevel::Abort => EscalationLevel::Emergency,
        };
        Self { level: loud, outside: auto_escalate && loud >= EscalationLevel::Critical }
    }
}

/// Returns the level of intervention for a severity.
pub(super) fn level_of(kind: DetectionKind, severity: DetectionSeverity) -> InterventionLevel {
    match severity {
        DetectionSeverity::Low => InterventionLevel::Log,
        DetectionSeverity::Medium => InterventionLevel::Warn,
        DetectionSeverity::High => kind.row().high,
        DetectionSeverity::Critical => InterventionLevel::Pause,
    }
}

/// Urgency of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DirectiveLevel {
    /// Warning to the agent.
    Warning,
    /// Instruction to the agent to take another approach.
    Override,
}

impl DirectiveLevel {
    /// Returns the prefix that marks the level in the text form.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Warning => "WARNING: ",
            Self::Override => "OVERRIDE: ",
        }
    }
}

/// Directive for the next prompt. Its text form starts with the prefix of its level; text without a prefix is a warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub struct Directive {
    /// Level of the directive.
    pub level: DirectiveLevel,
    /// Text without the prefix.
    pub text: String,
}

impl Directive {
    /// Returns the directive for a detection; `None` for levels without a directive.
    pub(super) fn of(level: InterventionLevel, detection: &Detection) -> Option<Self> {
        let (level, opening) = match level {
            InterventionLevel::Warn => (DirectiveLevel::Warning, format!("{}.", detection.kind.title())),
            InterventionLevel::Redirect => (DirectiveLevel::Override, detection.kind.row().order.to_owned()),
            InterventionLevel::Log | InterventionLevel::Pause | InterventionLevel::Abort => return None,
        };
        let steps: String = detection.recommendations.iter().map(|step| format!("\n- {step}")).collect();
        Some(Self { level, text: format!("{opening} Evidence: {}.{steps}", detection.evidence_text()) })
    }
}

impl fmt::Display for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.level.prefix(), self.text)
    }
}

impl From<Directive> for String {
    fn from(directive: Directive) -> Self {
        directive.to_string()
    }
}

impl From<String> for Directive {
    fn from(text: String) -> Self {
        let of = |level: DirectiveLevel| Some(Self { level, text: text.strip_prefix(level.prefix())?.to_owned() });
        let known = of(DirectiveLevel::Override).or_else(|| of(DirectiveLevel::Warning));
        known.unwrap_or(Self { level: DirectiveLevel::Warning, text })
    }
}
