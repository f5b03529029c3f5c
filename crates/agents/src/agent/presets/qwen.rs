//! Qwen Code, by the Agent Client Protocol.

use serde_json::{Value, json};

use crate::agent::acp;
use crate::agent::broker::ModelKey;
use crate::agent::broker::formats::FormatName;
use crate::agent::preset::{AgentPackage, AgentPreset, AgentProgram, RunContext, variables, words};

/// Path of the settings file, relative to the home.
const SETTINGS: &str = ".qwen/ralph-settings.json";
/// Default address of the API. It is always set, because a `.env` in the repository could set another one.
const BASE_URL: &str = "https://api.openai.com/v1";
/// Time limit for a response, in milliseconds.
const API_TIMEOUT_MS: u64 = 300_000;

/// Preset of Qwen Code.
pub(super) const PRESET: AgentPreset = AgentPreset {
    program: Some(AgentProgram {
        name: "qwen",
        package: AgentPackage::Npm("@qwen-code/qwen-code"),
        tested_version: (0, 24),
        login_variables: &["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"],
        login_file: None,
        login_advice: "set `OPENAI_API_KEY`, `OPENAI_BASE_URL` and `OPENAI_MODEL` to a key, the address and a model of any compatible API",
    }),
    arguments: |context| [words(&["--acp", "--include-directories"]), vec![context.report_folder()]].concat(),
    environment: |context| {
        let settings = context.run.scratch.join("home").join(SETTINGS).display().to_string();
        let address = context.variable("OPENAI_BASE_URL").unwrap_or(BASE_URL);
        let mut set = vec![("QWEN_CODE_SYSTEM_SETTINGS_PATH", settings.as_str()), ("OPENAI_BASE_URL", address)];
        // A session offers only this model.
        set.extend(context.model.map(|model| ("OPENAI_MODEL", model)));
        variables(&set)
    },
    files: |context| vec![(SETTINGS, settings(context).to_string())],
    reports_usage_during_run: true,
    version: Some(&["--version"]),
    sessions: &[".qwen/projects"],
    keys: &[ModelKey {
        keys: &["OPENAI_API_KEY"],
        addresses: &["OPENAI_BASE_URL"],
        default_address: Some(BASE_URL),
        unless_set: &[],
        formats: &[FormatName::Chat],
    }],
    model_hosts: &["api.openai.com"],
    protected_paths: &["**/QWEN.md", "**/.qwen/**"],
    any_vendor: true,
    ..acp::preset("qwen")
};

/// Returns the settings, which settings in the repository cannot override.
fn settings(context: &RunContext<'_>) -> Value {
    let mut model = json!({ "generationConfig": { "maxRetries": 0, "timeout": API_TIMEOUT_MS } });
    if let Some(turns) = context.run.max_turns {
        model["maxSessionTurns"] = json!(turns);
    }
    json!({
        "security": { "auth": { "selectedType": "openai" } },
        // An entry in the repository could send the key elsewhere.
        "modelProviders": { "openai": [] },
        "general": { "enableAutoUpdate": false },
        "privacy": { "usageStatisticsEnabled": false },
        "telemetry": { "enabled": false },
        // It would request further answers after each run, for its own notes.
        "ui": { "enableFollowupSuggestions": false },
        "memory": { "enableManagedAutoMemory": false, "enableManagedAutoDream": false, "enableAutoSkill": false },
        "model": model,
    })
}
