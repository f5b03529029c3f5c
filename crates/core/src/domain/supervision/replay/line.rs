//! Line of a replay's output.

use serde::{Deserialize, Serialize};

use crate::domain::supervision::SupervisionReview;
use crate::domain::supervision::control::{AlarmKind, AlarmSeverity, ControlAction, Trend, Urgency};
use crate::domain::supervision::oversight::{self, DetectionKind, Health, InterventionLevel};
use crate::domain::supervision::strategy::Approach;

/// Output of the replay for one iteration. The format defines the keys but not their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayLine {
    /// 1-based number of the iteration.
    pub iteration: u64,
    /// P, 0..1.
    pub p: f64,
    /// I, -1..5.
    pub i: f64,
    /// D, -1..1; positive if the loop gets worse.
    pub d: f64,
    /// D without deadband, -1..1.
    pub d_raw: f64,
    /// Share of the gap closed per iteration, -1..1.
    pub velocity: f64,
    /// Trend of the error.
    pub trend: Trend,
    /// Target profile of the gains.
    pub profile: String,
    /// Gain of P in use.
    pub kp: f64,
    /// Gain of I in use.
    pub ki: f64,
    /// Gain of D in use.
    pub kd: f64,
    /// Control signal u, 0..1.
    pub control_signal: f64,
    /// Urgency corresponding to u.
    pub urgency: Urgency,
    /// Action recommended by control.
    pub action: ControlAction,
    /// Number of iterations still needed; null if the gap does not shrink.
    pub forecast: Option<u64>,
    /// Active alarms.
    pub alarms: Vec<AlarmMark>,
    /// Detections, most severe first.
    pub detections: Vec<DetectionMark>,
    /// Interventions, in the order of the detections.
    pub interventions: Vec<InterventionMark>,
    /// Approach of the next iteration.
    pub strategy: Approach,
    /// Health of the loop.
    pub status: Health,
}

/// Active alarm in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmMark {
    /// Kind of the alarm.
    #[serde(rename = "type")]
    pub kind: AlarmKind,
    /// Severity of the alarm.
    pub severity: AlarmSeverity,
}

/// Detection in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetectionMark {
    /// Kind of the detection.
    #[serde(rename = "type")]
    pub kind: DetectionKind,
    /// Severity of the detection.
    pub severity: oversight::DetectionSeverity,
}

/// Intervention in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterventionMark {
    /// Level of the intervention.
    pub level: InterventionLevel,
    /// Kind of the detection that caused it.
    #[serde(rename = "type")]
    pub kind: DetectionKind,
}

impl From<&SupervisionReview> for ReplayLine {
    fn from(review: &SupervisionReview) -> Self {
        let (decision, verdict) = (&review.control, &review.verdict);
        let (metrics, gains) = (decision.metrics, decision.gains.gains);
        Self {
            iteration: decision.iteration,
            p: metrics.p,
            i: metrics.i,
            d: metrics.d,
            d_raw: metrics.d_raw,
            velocity: metrics.velocity,
            trend: metrics.trend,
            profile: decision.gains.profile.clone(),
            kp: gains.kp,
            ki: gains.ki,
            kd: gains.kd,
            control_signal: decision.control_signal,
            urgency: decision.urgency,
            action: decision.action,
            forecast: metrics.forecast,
            alarms: decision.alarms.iter().map(|a| AlarmMark { kind: a.kind, severity: a.severity }).collect(),
            detections: verdict
                .detections
                .iter()
                .map(|found| DetectionMark { kind: found.kind, severity: found.severity })
                .collect(),
            interventions: verdict
                .interventions
                .iter()
                .map(|done| InterventionMark { level: done.level, kind: done.kind })
                .collect(),
            strategy: review.plan.approach,
            status: verdict.health,
        }
    }
}
