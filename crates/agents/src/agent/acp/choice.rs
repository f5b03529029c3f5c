//! Modes and models that a session offers, and the ones to request.

use serde_json::{Value, json};

/// Modes in which agents ask for no permission, because the sandbox decides; otherwise the mode in which they always ask. In a mode
/// between them, a model decides.
const MODES_INSIDE: [&str; 5] = ["bypassPermissions", "yolo", "full-access", "agent-full-access", "default"];
/// Modes in which agents ask before each command.
const MODES_OUTSIDE: [&str; 2] = ["default", "read-only"];

/// Value to request for a session.
#[derive(Debug, PartialEq)]
pub(super) struct Choice {
    /// Method that requests it.
    pub(super) method: &'static str,
    /// Whether the run must not continue without it.
    pub(super) is_required: bool,
    /// Names of the method's parameters for the option, if it has one, and for the value.
    option: Option<String>,
    parameter: &'static str,
    value: String,
}

impl Choice {
    /// Returns the parameters of the method.
    pub(super) fn params(&self, session: &str) -> Value {
        let mut params = json!({ "sessionId": session, self.parameter: self.value });
        if let Some(option) = &self.option {
            params["configId"] = json!(option);
        }
        params
    }
}

/// Values of one kind that a session offers.
struct Offer<'a> {
    method: &'static str,
    option: Option<String>,
    parameter: &'static str,
    current: &'a str,
    /// Ids with names.
    values: Vec<(&'a str, &'a str)>,
}

impl<'a> Offer<'a> {
    /// Reads the values of a category (`mode`, `model`): an option of the session, or the older lists of modes and models.
    fn of(session: &'a Value, category: &str) -> Option<Self> {
        let options = session["configOptions"].as_array().into_iter().flatten();
        let mut options = options.filter(|option| option["category"] == category && option["options"].is_array());
        if let Some(option) = options.next() {
            let values = option["options"].as_array().into_iter().flatten();
            // Values may be in groups.
            let values =
                values.flat_map(|value| value["options"].as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
            return Some(Self {
                method: "session/set_config_option",
                option: Some(option["id"].as_str()?.to_owned()),
                parameter: "value",
                current: option["currentValue"].as_str().unwrap_or_default(),
                values: values.filter_map(|value| named(value, "value")).collect(),
            });
        }
        let (list, current, parameter, method) = match category {
            "mode" => {
                (&session["modes"]["availableModes"], &session["modes"]["currentModeId"], "modeId", "session/set_mode")
            }
            _ => (
                &session["models"]["availableModels"],
                &session["models"]["currentModelId"],
                "modelId",
                "session/set_model",
            ),
        };
        let id = if category == "mode" { "id" } else { "modelId" };
        Some(Self {
            method,
            option: None,
            parameter,
            current: current.as_str().unwrap_or_default(),
            values: list.as_array()?.iter().filter_map(|value| named(value, id)).collect(),
        })
    }

    fn choose(self, value: &str, is_required: bool) -> Option<Choice> {
        let Self { method, option, parameter, current, .. } = self;
        (value != current).then(|| Choice { method, is_required, option, parameter, value: value.to_owned() })
    }
}

fn named<'a>(value: &'a Value, id: &str) -> Option<(&'a str, &'a str)> {
    let id = value[id].as_str()?;
    Some((id, value["name"].as_str().unwrap_or(id)))
}

/// Returns the mode to request; `None` if the session has it already, or offers no known one.
pub(super) fn mode_of(session: &Value, is_sandboxed: bool) -> Option<Choice> {
    let offer = Offer::of(session, "mode")?;
    let wanted = if is_sandboxed { &MODES_INSIDE[..] } else { &MODES_OUTSIDE };
    let mode = *wanted.iter().find(|mode| offer.values.iter().any(|(id, _)| id == *mode))?;
    offer.choose(mode, false)
}

/// Model of a session.
pub(super) struct RequestedModel {
    /// Its name.
    pub(super) name: Option<String>,
    /// Choice that requests it; `None` if the session has it already.
    pub(super) choice: Option<Choice>,
}

/// Returns the model to request; `None` if the session offers no choice. `wanted` is the id or the name of a model.
pub(super) fn model_of(session: &Value, wanted: Option<&str>) -> Option<RequestedModel> {
    let offer = Offer::of(session, "model")?;
    let id = match wanted {
        Some(wanted) => {
            let found = offer.values.iter().find(|(id, _)| *id == wanted);
            let found = found.or_else(|| offer.values.iter().find(|(_, name)| *name == wanted));
            // An agent may know more models than it lists.
            found.map_or(wanted, |(id, _)| id)
        }
        None => offer.current,
    };
    let name = offer.values.iter().find(|(known, _)| *known == id).map_or(id, |(_, name)| name);
    // Some ids are not names of models, such as `$runtime|openai|m(openai)`.
    let shown = if id.starts_with(|c: char| c.is_ascii_alphanumeric()) { id } else { name };
    let name = Some(shown.to_owned()).filter(|shown| !shown.is_empty());
    Some(RequestedModel { name, choice: offer.choose(id, true) })
}
