//! Kimi Code, by the Agent Client Protocol. A discontinued Python program has the same name; it prints a notice and exits with 0.

use crate::agent::acp;
use crate::agent::broker::ModelKey;
use crate::agent::broker::formats::FormatName;
use crate::agent::preset::{AgentPackage, AgentPreset, AgentProgram, variables, words};

/// Preset of Kimi Code.
pub(super) const PRESET: AgentPreset = AgentPreset {
    program: Some(AgentProgram {
        name: "kimi",
        package: AgentPackage::Npm("@moonshot-ai/kimi-code"),
        tested_version: (2, 1),
        login_variables: &["KIMI_MODEL_API_KEY", "KIMI_MODEL_NAME", "KIMI_MODEL_BASE_URL"],
        login_file: None,
        login_advice: "set `KIMI_MODEL_API_KEY`, `KIMI_MODEL_NAME` and `KIMI_MODEL_BASE_URL` to a key of the Kimi platform, a model and the address of its API",
    }),
    arguments: |_| words(&["acp"]),
    environment: |_| variables(&[("KIMI_CODE_NO_AUTO_UPDATE", "1"), ("KIMI_DISABLE_TELEMETRY", "1")]),
    files: |_| vec![(".kimi-code/config.toml", "[loop_control]\nmax_attempts_per_step = 3\n".to_owned())],
    version: Some(&["--version"]),
    sessions: &[".kimi-code/sessions"],
    keys: &[ModelKey {
        keys: &["KIMI_MODEL_API_KEY"],
        addresses: &["KIMI_MODEL_BASE_URL"],
        default_address: None,
        unless_set: &[],
        formats: &[FormatName::Chat],
    }],
    model_hosts: &["api.moonshot.ai", "api.moonshot.cn", "api.kimi.com", "auth.kimi.com"],
    ..acp::preset("kimi")
};
