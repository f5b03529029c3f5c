//! Outlook: whether the rest of the work is worth what it is likely to cost, by the pace that was measured.

use serde::{Deserialize, Serialize};

use super::OutlookSettings;
use crate::domain::pace::Pace;

/// What is to be expected of a loop that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outlook {
    /// Chance that it is done within the iterations that are left, 0..1.
    pub chance: f64,
    /// Iterations that the rest takes at its pace.
    pub needs: f64,
    /// Iterations that are left.
    pub left: f64,
    /// What going on is worth, in usual iterations; below 0 it costs more than it brings.
    pub worth: f64,
}

impl Outlook {
    /// Of a loop of this pace with so many iterations left; `None` where its pace is not known yet.
    pub fn of(pace: &Pace, left: f64, settings: &OutlookSettings) -> Option<Self> {
        if pace.steps < settings.steps || pace.gain <= 0.0 {
            return None;
        }
        let moving = f64::from(pace.moving.max(1));
        let (mean, rest) = (pace.gain / moving, (1.0 - pace.level).max(0.0));
        let variance = (pace.squares / moving - mean * mean).max(mean * mean / 4.0);
        // What chance does to the iterations that come, and how little is known of the pace.
        let deviation = (left * variance + left * left * variance / moving).sqrt().max(f64::MIN_POSITIVE);
        let chance = share_below((left * mean - rest) / deviation + settings.benefit);
        let needs = rest / mean;
        Some(Self { chance, needs, left, worth: chance * settings.task_worth - needs.min(left) })
    }

    /// Whether the rest fits into what is left, at its pace.
    pub fn fits(&self) -> bool {
        self.needs <= self.left
    }

    /// It in words, without a full stop.
    pub fn text(&self) -> String {
        let Self { chance, needs, left, .. } = self;
        format!(
            "at its pace the rest takes {needs:.0} iterations, {left:.0} are left, and the chance is {:.0} %",
            chance * 100.0
        )
    }
}

/// Share of a normal distribution below `z`, by the logistic function that comes nearest to it.
fn share_below(z: f64) -> f64 {
    1.0 / (1.0 + (-1.702 * z).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(steps: u32, gain: f64, level: f64) -> Pace {
        let each = gain / f64::from(steps);
        Pace { steps, moving: steps, gain, level, squares: f64::from(steps) * each * each, ..Pace::default() }
    }

    fn outlook(steps: u32, gain: f64, level: f64, left: f64) -> Option<Outlook> {
        Outlook::of(&pace(steps, gain, level), left, &OutlookSettings::default())
    }

    #[test]
    fn a_pace_has_to_be_known_first() {
        assert_eq!(outlook(1, 0.1, 0.2, 20.0), None);
        assert_eq!(
            Outlook::of(&Pace { steps: 9, moving: 9, ..Pace::default() }, 20.0, &OutlookSettings::default()),
            None
        );
    }

    #[test]
    fn what_fits_is_worth_going_on_with_and_what_does_not_is_not() {
        let good = outlook(5, 0.5, 0.6, 15.0).unwrap();
        assert!(good.chance > 0.95 && good.worth > 30.0 && good.fits() && (good.needs - 4.0).abs() < 1e-9, "{good:?}");
        let bad = outlook(5, 0.05, 0.15, 15.0).unwrap();
        assert!(bad.chance < 0.05 && bad.worth < -10.0 && !bad.fits(), "{bad:?}");
        assert_eq!(bad.text(), "at its pace the rest takes 85 iterations, 15 are left, and the chance is 0 %");
    }

    #[test]
    fn the_worth_of_a_task_and_the_benefit_of_doubt_decide_what_is_in_between() {
        let with = |task_worth, benefit| {
            let settings = OutlookSettings { task_worth, benefit, ..OutlookSettings::default() };
            Outlook::of(&pace(5, 0.25, 0.3), 12.0, &settings).unwrap()
        };
        assert!(with(100.0, 0.0).worth > 0.0 && with(20.0, 0.0).worth < 0.0);
        assert!(with(40.0, 1.0).chance > with(40.0, 0.0).chance);
        for (left, benefit) in [(0.0, 0.0), (1e300, 0.0), (0.0, 100.0)] {
            let settings = OutlookSettings { benefit, ..OutlookSettings::default() };
            let found = Outlook::of(&pace(5, 0.25, 0.3), left, &settings).unwrap();
            assert!(found.worth.is_finite() && (0.0..=1.0).contains(&found.chance), "{found:?}");
        }
    }
}
