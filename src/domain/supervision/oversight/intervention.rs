//! Interventions: five levels, the notifications of each, and the directives for the next prompt.

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
    /// It is recorded.
    Log,
    /// A warning opens the next prompt.
    Warn,
    /// The next prompt changes the approach; a fresh session of the agent.
    Redirect,
    /// The loop waits for a person.
    Pause,
    /// The loop ends, its work saved.
    Abort,
}

impl InterventionLevel {
    /// Returns the next higher level, at most PAUSE.
    pub(super) fn climbed(self) -> Self {
        match self {
            Self::Log => Self::Warn,
            Self::Warn => Self::Redirect,
            Self::Redirect | Self::Pause => Self::Pause,
            Self::Abort => Self::Abort,
        }
    }

    /// Returns the strongest intervention that a basis supports: words alone neither pause nor end a loop.
    pub fn strongest_by(basis: Basis) -> Self {
        match basis {
            Basis::Measured | Basis::Derived => Self::Abort,
            Basis::Words => Self::Redirect,
        }
    }

    /// Its name, in capitals as people know it.
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

/// Something that is done about a detection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intervention {
    /// Level.
    pub level: InterventionLevel,
    /// Because of which kind of detection.
    pub kind: DetectionKind,
    /// Because of which cause; see [`Detection::cause`].
    pub cause: String,
    /// Severity of the detection.
    pub severity: DetectionSeverity,
    /// Basis of the detection.
    pub basis: Basis,
    /// Whether this cause reaches this level for the first time. Later ones are not reported again.
    pub fresh: bool,
    /// Reason, one sentence.
    pub reason: String,
}

/// Urgency of an escalation, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EscalationLevel {
    /// Log entry; also the level of what waits for a person although nothing is wrong.
    Info,
    /// The status comment.
    Warning,
    /// An escalation issue.
    Critical,
    /// An escalation issue that blocks.
    Emergency,
}

/// Telling people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Escalation {
    /// Urgency.
    pub level: EscalationLevel,
    /// Whether escalation issue, webhooks and desktop are notified; otherwise only the loop's own issue.
    pub outside: bool,
}

impl Escalation {
    /// Returns the effects of a level.
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

/// The level that a severity asks for.
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
    /// The agent is warned.
    Warning,
    /// The agent has to take another approach.
    Override,
}

impl DirectiveLevel {
    /// Returns the prefix of its text form.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Warning => "WARNING: ",
            Self::Override => "OVERRIDE: ",
        }
    }
}

/// Directive for the next prompt. It is stored as text with the prefix of its level; text without one is a warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub struct Directive {
    /// Level.
    pub level: DirectiveLevel,
    /// Text without the prefix.
    pub text: String,
}

impl Directive {
    /// Returns the directive for a detection; `None` for levels without one.
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
