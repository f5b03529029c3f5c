//! `preset`, `control`, `oversight` and `strategy` of both files: what they set, checked together with what lies below.

use serde_json::{Map, Value};

use super::problem::Reporter;
use super::tree::Node;
use crate::domain::model::settings::{self, Settings};
use crate::domain::supervision::{PRESET, Preset, SupervisionSettings, operators_alone};
use crate::domain::supervision::{control::ControlSettings, oversight::OversightSettings, strategy::StrategySettings};

/// The four keys as a file has them.
pub(super) struct Thresholds {
    pub(super) preset: Option<Preset>,
    pub(super) control: Map<String, Value>,
    pub(super) oversight: Map<String, Value>,
    pub(super) strategy: Map<String, Value>,
}

impl Thresholds {
    /// What they set, and nothing else. Everything that does not hold over `under`, the layer below, is reported where
    /// `root` has it.
    pub(super) fn check(self, under: &Map<String, Value>, root: &Node, report: &mut Reporter) -> Map<String, Value> {
        let mut given = Map::new();
        if let Some(preset) = self.preset.and_then(|preset| serde_json::to_value(preset).ok()) {
            given.insert(PRESET.to_owned(), preset);
        }
        for (group, layer) in [
            (ControlSettings::GROUP, self.control),
            (OversightSettings::GROUP, self.oversight),
            (StrategySettings::GROUP, self.strategy),
        ] {
            if !layer.is_empty() {
                given.insert(group.to_owned(), Value::Object(layer));
            }
        }
        let mut whole = under.clone();
        settings::overlay(&mut whole, &given);
        for problem in SupervisionSettings::layered(&whole).err().into_iter().flatten() {
            let other = problem.other.as_deref().unwrap_or_default();
            if report.is_settled(other) {
                continue;
            }
            // A value can be wrong because of another one that this file sets.
            let written = if root.has(&problem.key) || !root.has(other) { &problem.key } else { other };
            report.add(root.place_at(written), problem.key.clone(), problem.message);
        }
        given
    }
}

/// Reports what a repository's file sets though only the operator may.
pub(super) fn refuse_switches(root: &Node, report: &mut Reporter) {
    for key in operators_alone().iter().filter(|key| root.has(key)) {
        report.add(root.place_at(key), key.as_str(), format!("`{key}`: only the operator's file can set this"));
    }
}
