//! Keys `preset`, `control`, `oversight` and `strategy` of both files. They are checked after merging with the layer below.

use serde_json::{Map, Value};

use super::problem::ProblemCollector;
use super::removed;
use super::yaml::YamlNode;
use crate::domain::model::settings::{self, Settings};
use crate::domain::supervision::{PRESET, SupervisionPreset, SupervisionSettings, operators_alone};
use crate::domain::supervision::{control::ControlSettings, oversight::OversightSettings, strategy::StrategySettings};

/// Values of the four keys in one file.
pub(super) struct SupervisionKeys {
    pub(super) preset: Option<SupervisionPreset>,
    pub(super) control: Map<String, Value>,
    pub(super) oversight: Map<String, Value>,
    pub(super) strategy: Map<String, Value>,
}

impl SupervisionKeys {
    /// Returns the file's keys merged with `base`, the layer below. Adds problems to `report` with their positions in
    /// `root`.
    pub(super) fn check(
        self,
        base: &Map<String, Value>,
        root: &YamlNode,
        report: &mut ProblemCollector,
    ) -> Map<String, Value> {
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
        let mut merged = base.clone();
        settings::overlay(&mut merged, &given);
        for problem in SupervisionSettings::layered(&merged).err().into_iter().flatten() {
            let problem = removed::without_removed_keys(problem);
            let other = problem.other().unwrap_or_default();
            if report.is_removed(other) {
                continue;
            }
            // The file may set only the other one of two conflicting keys.
            let written = if root.has(&problem.key) || !root.has(other) { &problem.key } else { other };
            report.add(root.place_at(written), problem.key.clone(), problem.message);
        }
        given
    }
}

/// Adds a problem for each operator-only key in a repository's file.
pub(super) fn refuse_operator_keys(root: &YamlNode, report: &mut ProblemCollector) {
    for key in operators_alone().iter().filter(|key| root.has(key)) {
        report.add(root.place_at(key), key.as_str(), format!("`{key}`: only the operator's file can set this key"));
    }
}
