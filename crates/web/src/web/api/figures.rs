//! Response types for supervision: control values, alarms and detections.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::loops::{IterationJudgement, JudgedDetection, KeptAlarm, Loop};
use crate::domain::report::control_words;
use crate::domain::supervision::control::{AlarmKind, AlarmSeverity, Gains, ProfileTransition, Terms, Trend, Urgency};
use crate::domain::supervision::oversight::{Basis, DetectionKind, DetectionSeverity, Health, InterventionLevel};

/// Supervision of a loop: the values of the last judged iteration, and the alarms of all iterations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiSupervision {
    /// 1-based number of the last judged iteration.
    pub iteration: u32,
    /// Values after this iteration.
    pub figures: ApiFigures,
    /// Number of times that the loop's iterations raised each alarm, by kind; omits alarms that were never raised.
    pub alarms_raised: BTreeMap<String, u32>,
}

impl ApiSupervision {
    /// Returns the supervision of a loop; `None` before its first judged iteration.
    pub fn of(current: &Loop) -> Option<Self> {
        let judged = || current.retained_iterations().filter_map(|one| Some((one.number, one.judged.as_ref()?)));
        let (iteration, last) = judged().next_back()?;
        let raised = control_words::raised_counts(judged().map(|(_, judged)| judged));
        let alarms_raised = raised.into_iter().map(|(kind, count)| (kind.name().to_owned(), count)).collect();
        Some(Self { iteration, figures: last.into(), alarms_raised })
    }
}

/// Control values after an iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiFigures {
    /// Health of the loop.
    pub health: Health,
    /// Trend of the loop.
    pub trend: Trend,
    /// Control signal, 0 to 1.
    pub signal: f64,
    /// Band of the control signal.
    pub urgency: Urgency,
    /// Current error, 0 to 1.
    pub p: f64,
    /// Persistent error, -1 to 5.
    pub i: f64,
    /// Change of the error, -1 to 1; positive if it grows.
    pub d: f64,
    /// Terms of the control signal, which is their sum limited to 0 to 1; null for iterations that were stored without them.
    pub terms: Option<Terms>,
    /// Gains of the terms; null for iterations that were stored without them.
    pub gains: Option<Gains>,
    /// Name of the gain profile.
    pub profile: String,
    /// Change of the gain profile in this iteration; null if it did not change.
    pub profile_change: Option<ProfileTransition>,
    /// Active alarms, most severe first.
    pub alarms: Vec<ApiAlarm>,
    /// Alarms cleared in this iteration.
    pub alarms_cleared: Vec<AlarmKind>,
    /// Estimated number of iterations until completion; null without an estimate.
    pub forecast: Option<u64>,
}

impl From<&IterationJudgement> for ApiFigures {
    fn from(judged: &IterationJudgement) -> Self {
        let control = judged.control.as_ref();
        Self {
            health: judged.health,
            trend: judged.trend,
            signal: judged.signal,
            urgency: judged.urgency,
            p: judged.p,
            i: judged.i,
            d: judged.d,
            terms: control.map(|figures| figures.terms),
            gains: control.map(|figures| figures.gains),
            profile: judged.profile.clone(),
            profile_change: control.and_then(|figures| figures.transition.clone()),
            alarms: control.iter().flat_map(|figures| &figures.alarms).map(ApiAlarm::from).collect(),
            alarms_cleared: control.map(|figures| figures.cleared.clone()).unwrap_or_default(),
            forecast: judged.forecast,
        }
    }
}

/// Active alarm of the control loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiAlarm {
    /// Kind of the alarm.
    pub kind: AlarmKind,
    /// Severity in this iteration.
    pub severity: AlarmSeverity,
    /// Message, one sentence.
    pub message: String,
    /// 1-based iteration that raised the alarm.
    pub since: u64,
    /// Whether this iteration raised the alarm.
    pub raised: bool,
    /// Whether a person acknowledged the alarm.
    pub acknowledged: bool,
}

impl From<&KeptAlarm> for ApiAlarm {
    fn from(alarm: &KeptAlarm) -> Self {
        let KeptAlarm { kind, severity, message, since, raised, acknowledged } = alarm.clone();
        Self { kind, severity, message, since, raised, acknowledged }
    }
}

/// Detection by the overseer, with its intervention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiDetection {
    /// Kind of the detection.
    pub kind: DetectionKind,
    /// Name of the kind for people.
    pub title: String,
    /// Severity of the detection.
    pub severity: DetectionSeverity,
    /// Basis of the evidence.
    pub basis: Basis,
    /// Level of the intervention.
    pub level: InterventionLevel,
    /// Whether the intervention is new in this iteration.
    pub fresh: bool,
    /// Evidence as text for people.
    pub evidence: String,
    /// Recommended actions.
    pub recommendations: Vec<String>,
}

impl From<&JudgedDetection> for ApiDetection {
    fn from(found: &JudgedDetection) -> Self {
        Self {
            kind: found.kind,
            title: found.kind.title().into(),
            severity: found.severity,
            basis: found.basis(),
            level: found.level,
            fresh: found.fresh,
            evidence: found.evidence.clone(),
            recommendations: found.recommendations.clone(),
        }
    }
}
