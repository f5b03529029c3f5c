//! Descriptions of control: terms of the control signal, changes of the profile, and alarms.

use std::collections::BTreeMap;

use crate::domain::loops::{ControlFigures, IterationJudgement, KeptAlarm};
use crate::domain::supervision::control::{AlarmKind, AlarmSeverity, ProfileTransition};

/// Formats the control signal as the sum of its terms (`0.44 = 0.23 (P) + 0.18 (I) + 0.03 (D)`); empty if the terms are not
/// stored.
pub fn terms(judged: &IterationJudgement) -> String {
    let Some(ControlFigures { terms, .. }) = &judged.control else { return String::new() };
    let sum = terms.p + terms.i + terms.d;
    let clamped =
        if (sum - judged.signal).abs() > 1e-9 { format!(", limited to {:.2}", judged.signal) } else { String::new() };
    let signed = |term: f64, name: &str| format!(" {} {:.2} ({name})", if term < 0.0 { '-' } else { '+' }, term.abs());
    format!("{sum:.2} = {:.2} (P){}{}{clamped}", terms.p, signed(terms.i, "I"), signed(terms.d, "D"))
}

/// Formats the gains (`kp 0.50, ki 0.15, kd 0.25`); empty if they are not stored.
pub fn gains(judged: &IterationJudgement) -> String {
    judged.control.as_ref().map_or_else(String::new, |ControlFigures { gains, .. }| {
        format!("kp {:.2}, ki {:.2}, kd {:.2}", gains.kp, gains.ki, gains.kd)
    })
}

/// Describes the change of the gain profile and its reason; empty if it did not change.
pub fn transition(judged: &IterationJudgement) -> String {
    let change = judged.control.as_ref().and_then(|figures| figures.transition.as_ref());
    change.map_or_else(String::new, |ProfileTransition { from, to, reason }| format!("{from} -> {to}: {reason}"))
}

/// Describes the active alarms except severity `Info`, most severe first.
pub fn alarms(judged: &IterationJudgement) -> Vec<String> {
    active_alarms(judged).map(alarm).collect()
}

/// Returns the active alarms except severity `Info`, most severe first.
pub fn active_alarms(judged: &IterationJudgement) -> impl Iterator<Item = &KeptAlarm> {
    let active = judged.control.iter().flat_map(|figures| &figures.alarms);
    active.filter(|alarm| alarm.severity > AlarmSeverity::Info)
}

/// Describes an alarm.
pub fn alarm(alarm: &KeptAlarm) -> String {
    let KeptAlarm { kind, severity, message, since, acknowledged, .. } = alarm;
    let seen = if *acknowledged { ", acknowledged" } else { "" };
    format!("{} ({}, since iteration {since}{seen}): {message}", kind.name(), severity.word())
}

/// Returns the number of times that these iterations raised each alarm.
pub fn raised_counts<'a>(judged: impl Iterator<Item = &'a IterationJudgement>) -> BTreeMap<AlarmKind, u32> {
    let figures = judged.filter_map(|judged| judged.control.as_ref());
    let mut counts = BTreeMap::new();
    for alarm in figures.flat_map(|figures| &figures.alarms).filter(|alarm| alarm.raised) {
        *counts.entry(alarm.kind).or_default() += 1;
    }
    counts
}

/// Formats the number of times that these iterations raised each alarm (`stuck_loop 2, regression 1`); `none` if there were
/// none.
pub fn raised<'a>(judged: impl Iterator<Item = &'a IterationJudgement>) -> String {
    let counts = raised_counts(judged).into_iter();
    let words: Vec<String> = counts.map(|(kind, count)| format!("{} {count}", kind.name())).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// Describes the judgement of an iteration line by line: control signal, profile, alarms, detections.
pub fn lines(judged: &IterationJudgement) -> Vec<String> {
    let IterationJudgement { p, i, d, signal, urgency, trend, profile, .. } = judged;
    let mut first = format!(
        "{}, {}, control signal {signal:.2} ({}), P {p:.2}, I {i:.2}, D {d:+.2}",
        judged.health.word(),
        trend.word(),
        urgency.word()
    );
    let terms = terms(judged);
    if !terms.is_empty() {
        first.push_str(&format!("; {terms}; {profile} ({})", gains(judged)));
    }
    let mut lines = vec![first];
    lines
        .extend(Some(transition(judged)).filter(|change| !change.is_empty()).map(|change| format!("profile {change}")));
    lines.extend(alarms(judged).into_iter().map(|alarm| format!("alarm {alarm}")));
    let found = judged.found.iter();
    lines.extend(found.map(|found| format!("{} {}: {}", found.level.name(), found.kind.name(), found.evidence)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::supervision::control::{Gains, Terms, Trend, Urgency};
    use crate::domain::supervision::oversight::Health;
    use crate::domain::supervision::strategy::Approach;

    fn judged() -> IterationJudgement {
        let alarm = |kind, severity, raised, acknowledged| KeptAlarm {
            kind,
            severity,
            message: "No progress in 3 iterations: P stays at 0.45.".into(),
            since: 3,
            raised,
            acknowledged,
        };
        IterationJudgement {
            p: 0.45,
            i: 1.2,
            d: -0.08,
            signal: 0.385,
            urgency: Urgency::Elevated,
            trend: Trend::Improving,
            profile: "standard".into(),
            forecast: None,
            health: Health::Warning,
            found: Vec::new(),
            approach: Approach::Persist,
            way: String::new(),
            reasoning: String::new(),
            moved: Vec::new(),
            stops: None,
            issues: Vec::new(),
            control: Some(ControlFigures {
                terms: Terms { p: 0.225, i: 0.18, d: -0.02 },
                gains: Gains { kp: 0.5, ki: 0.15, kd: 0.25 },
                transition: Some(ProfileTransition {
                    from: "recovery".into(),
                    to: "standard".into(),
                    reason: "no special condition applies".into(),
                }),
                alarms: vec![
                    alarm(AlarmKind::StuckLoop, AlarmSeverity::Warning, true, true),
                    alarm(AlarmKind::DerivativeSpike, AlarmSeverity::Info, true, false),
                ],
                cleared: vec![AlarmKind::Regression],
            }),
        }
    }

    #[test]
    fn judgement_is_explained_line_by_line() {
        insta::assert_snapshot!(lines(&judged()).join("\n"), @r"
        warning, improving, control signal 0.39 (elevated), P 0.45, I 1.20, D -0.08; 0.39 = 0.23 (P) + 0.18 (I) - 0.02 (D); standard (kp 0.50, ki 0.15, kd 0.25)
        profile recovery -> standard: no special condition applies
        alarm stuck_loop (warning, since iteration 3, acknowledged): No progress in 3 iterations: P stays at 0.45.
        ");
    }

    #[test]
    fn raised_alarms_are_counted() {
        let all = [judged(), judged(), IterationJudgement { control: None, ..judged() }];
        assert_eq!(raised(all.iter()), "stuck_loop 2, derivative_spike 2");
        assert_eq!(raised(all[2..].iter()), "none");
    }

    #[test]
    fn limited_signal_names_its_sum() {
        let mut judged = judged();
        judged.signal = 1.0;
        judged.control.as_mut().expect("figures").terms = Terms { p: 0.9, i: 2.0, d: 0.1 };
        assert_eq!(terms(&judged), "3.00 = 0.90 (P) + 2.00 (I) + 0.10 (D), limited to 1.00");
    }

    #[test]
    fn judgement_stored_without_figures_is_shown_without_them() {
        let stored = IterationJudgement { control: None, ..judged() };
        assert_eq!((terms(&stored), gains(&stored), transition(&stored)), Default::default());
        let text = serde_json::to_string(&stored).expect("JSON");
        assert!(!text.contains("\"control\""), "{text}");
        assert_eq!(serde_json::from_str::<IterationJudgement>(&text).expect("readable"), stored);
        insta::assert_snapshot!(
            lines(&stored).join("\n"),
            @"warning, improving, control signal 0.39 (elevated), P 0.45, I 1.20, D -0.08"
        );
    }

    #[test]
    fn changes_of_control_are_entries_of_the_audit_trail() {
        let entries = judged().control.expect("figures").audit(4);
        let reasons: Vec<String> = entries.iter().map(|entry| entry.reason.clone()).collect();
        insta::assert_snapshot!(reasons.join("\n"), @r"
        gain profile recovery -> standard: no special condition applies
        alarm stuck_loop (warning): No progress in 3 iterations: P stays at 0.45.
        alarm derivative_spike (info): No progress in 3 iterations: P stays at 0.45.
        alarm regression cleared
        ");
        assert!(entries.iter().all(|entry| entry.iteration == 4 && entry.level.is_none()));
    }
}
