//! Definition of a detection (table row, settings and condition), and the macros that derive all other code from it.

use super::basis::Basis;
use super::detection::Detection;
use super::detection_input::DetectionInput;
use super::intervention::InterventionLevel;
use super::state::OverseerState;
use crate::domain::supervision::control::ProfileSchedule;

/// Row of a detection in the table of detections.
#[derive(Debug, Clone, Copy)]
pub struct DetectionRow {
    /// Title for people and agents, without a full stop.
    pub title: &'static str,
    /// Pattern to detect, for the documentation; without a full stop.
    pub pattern: &'static str,
    /// Names of the signals, each with its basis.
    pub signals: &'static [(&'static str, Basis)],
    /// Effect in addition to the intervention, for the documentation; may be empty.
    pub effect: &'static str,
    /// Instruction to the agent with a REDIRECT.
    pub order: &'static str,
    /// Recommendations, most useful first.
    pub advice: &'static [&'static str],
    /// Level of intervention for the severity `High`.
    pub high: InterventionLevel,
    /// Selects control's gain profile after a REDIRECT.
    pub profile: fn(&ProfileSchedule) -> &String,
    /// Whether the detection concerns the agent's approach, so that a REDIRECT ends this approach.
    pub of_approach: bool,
}

impl DetectionRow {
    /// Returns the basis of the signal with this name, or the least direct basis of all signals for an unknown name.
    pub fn basis_of(&self, signal: &str) -> Basis {
        let known = self.signals.iter().find(|(name, _)| *name == signal).map(|(_, basis)| *basis);
        known.or_else(|| self.signals.iter().map(|(_, basis)| *basis).max()).unwrap_or(Basis::Words)
    }

    /// Returns the basis of the most direct signal.
    pub fn basis(&self) -> Basis {
        self.signals.iter().map(|(_, basis)| *basis).min().unwrap_or(Basis::Words)
    }
}

/// Definition of a detection. Each detection implements it for its settings, in a separate file.
pub(super) trait DetectionDefinition {
    /// Row in the table of detections.
    const ROW: DetectionRow;

    /// Examines the history after the newest iteration. Returns `None` if the pattern does not occur.
    fn detect(&self, input: &DetectionInput<'_>) -> Option<Detection>;

    /// Whether a critical detection ends the loop instead of pausing it.
    fn ends_loop(&self, _input: &DetectionInput<'_>, _state: &OverseerState) -> bool {
        false
    }
}

/// Declares the settings of one detection: its two switches, followed by its thresholds in the syntax of `config_section!`. The
/// keyword `observed` before the name sets the default of `observe` to true, so that the detection is only recorded until the
/// operator sets `observe: false`.
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

/// Declares all detections, one per row, most specific first. A row has the module, whose name is also the name in configuration
/// and traces, the variant of [`DetectionKind`], and the settings type. The keys before the rows are settings of oversight that
/// concern all detections.
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

            /// Returns the name used in configuration and traces.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Kind => stringify!($file)),+
                }
            }

            /// Returns the row in the table of detections.
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
            /// Returns a detection's two switches: whether it is enabled, and whether it is only observed.
            pub fn switches(&self, kind: DetectionKind) -> (bool, bool) {
                match kind {
                    $(DetectionKind::$Kind => (self.$file.enabled, self.$file.observe)),+
                }
            }

            /// Returns the switch that enables a detection.
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
