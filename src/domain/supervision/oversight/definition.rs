//! Definition of a detection: its row, its settings and its condition, and the macros that make all else of them.

use super::basis::Basis;
use super::detection::Detection;
use super::detection_input::DetectionInput;
use super::intervention::InterventionLevel;
use super::state::OverseerState;
use crate::domain::supervision::control::ProfileSchedule;

/// Row of the table of detections.
#[derive(Debug, Clone, Copy)]
pub struct DetectionRow {
    /// Title for people and agents, without a full stop.
    pub title: &'static str,
    /// Pattern that it finds, for the documentation, without a full stop.
    pub pattern: &'static str,
    /// Its signals, each with its basis.
    pub signals: &'static [(&'static str, Basis)],
    /// Effect beside the levels, for the documentation; empty if there is none.
    pub effect: &'static str,
    /// Order to the agent at a REDIRECT.
    pub order: &'static str,
    /// Recommendations, most useful first.
    pub advice: &'static [&'static str],
    /// Level that the severity HIGH asks for.
    pub high: InterventionLevel,
    /// Gain profile that control moves to after a REDIRECT.
    pub profile: fn(&ProfileSchedule) -> &String,
    /// Whether it is about the agent's approach, so that a REDIRECT ends the approach.
    pub of_approach: bool,
}

impl DetectionRow {
    /// Returns the basis of a signal; the least direct one of the detection for an unknown name.
    pub fn basis_of(&self, signal: &str) -> Basis {
        let known = self.signals.iter().find(|(name, _)| *name == signal).map(|(_, basis)| *basis);
        known.or_else(|| self.signals.iter().map(|(_, basis)| *basis).max()).unwrap_or(Basis::Words)
    }

    /// Returns the basis of its most direct signal.
    pub fn basis(&self) -> Basis {
        self.signals.iter().map(|(_, basis)| *basis).min().unwrap_or(Basis::Words)
    }
}

/// Definition of a detection; implemented once in the file of each, for its settings.
pub(super) trait DetectionDefinition {
    /// Row of the table.
    const ROW: DetectionRow;

    /// Returns what is found after the newest iteration; `None` if it is nothing.
    fn detect(&self, input: &DetectionInput<'_>) -> Option<Detection>;

    /// Whether a critical detection ends the loop instead of pausing it.
    fn ends_loop(&self, _input: &DetectionInput<'_>, _state: &OverseerState) -> bool {
        false
    }
}

/// Declares the settings of one detection: its two switches, then its thresholds as in `config_section!`. `observed` before
/// the name makes a detection that is only recorded until the operator sets `observe: false`.
macro_rules! detection_settings {
    ($(#[$meta:meta])* observed $name:ident { $($thresholds:tt)* }) => {
        detection_settings!(@section [$(#[$meta])*] $name, true, { $($thresholds)* });
    };
    ($(#[$meta:meta])* $name:ident { $($thresholds:tt)* }) => {
        detection_settings!(@section [$(#[$meta])*] $name, false, { $($thresholds)* });
    };
    (@section [$(#[$meta:meta])*] $name:ident, $observe:expr, { $($thresholds:tt)* }) => {
        $crate::domain::model::settings::config_section! {
            $(#[$meta])*
            pub struct $name {
                /// Whether the detection is used.
                pub enabled: bool = true;
                /// Whether the detection is only recorded and counted, without an intervention.
                pub observe: bool = $observe;
                $($thresholds)*
            }
        }
    };
}

/// Declares the detections, one a row, the most specific first: file (which is its name in configuration and traces), variant of [`DetectionKind`],
/// settings. The keys before them are those of all detections.
macro_rules! detectors {
    (
        $(#[$meta:meta])*
        pub struct $Settings:ident { $($general:tt)* }
        $($file:ident: $Kind:ident($Section:ident),)+
    ) => {
        $(pub use $file::$Section;)+

        /// Kind of a detection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum DetectionKind {
            $(#[doc = concat!("Detection of the file `", stringify!($file), "`.")] $Kind),+
        }

        impl DetectionKind {
            /// All kinds, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$Kind),+];

            /// Returns its name, as in configuration and traces.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Kind => stringify!($file)),+
                }
            }

            /// Returns its row of the table.
            pub fn row(self) -> DetectionRow {
                match self {
                    $(Self::$Kind => <$Section as DetectionDefinition>::ROW),+
                }
            }
        }

        config_section! {
            $(#[$meta])*
            pub struct $Settings {
                $($general)*
                $(
                    #[doc = concat!("Switches and thresholds of `", stringify!($file), "`.")]
                    pub $file: $Section => section;
                )+
            }
        }

        impl $Settings {
            /// Returns whether a detection is looked for, and whether it is only observed.
            pub fn switches(&self, kind: DetectionKind) -> (bool, bool) {
                match kind {
                    $(DetectionKind::$Kind => (self.$file.enabled, self.$file.observe)),+
                }
            }

            /// Returns the switch by which a detection is looked for.
            pub fn enabled_mut(&mut self, kind: DetectionKind) -> &mut bool {
                match kind {
                    $(DetectionKind::$Kind => &mut self.$file.enabled),+
                }
            }

            fn detect(&self, kind: DetectionKind, input: &DetectionInput<'_>) -> Option<Detection> {
                match kind {
                    $(DetectionKind::$Kind => self.$file.detect(input)),+
                }
            }

            fn ends_loop(&self, kind: DetectionKind, input: &DetectionInput<'_>, state: &OverseerState) -> bool {
                match kind {
                    $(DetectionKind::$Kind => self.$file.ends_loop(input, state)),+
                }
            }
        }
    };
}

pub(super) use {detection_settings, detectors};
