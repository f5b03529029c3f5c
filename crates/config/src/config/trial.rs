//! Configuration of a trial: the operator's configuration with one repository and one scripted backend, without sections
//! that would affect others.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::problem::{ConfigProblems, ProblemCollector};
use super::yaml::YamlNode;
use super::{Config, Env, read_limited};
use crate::domain::model::ids::{ForgeName, UserId};

/// Sections omitted from a trial: they notify other people, call other models, or use learnings of other loops.
const LEFT_OUT: [&str; 12] = [
    "priority",
    "rotation",
    "schedule",
    "intelligence",
    "assistant",
    "context",
    "escalation",
    "hooks",
    "review",
    "plan",
    "delete_branch",
    "backends",
];
/// Name of the backend of a trial.
pub const TRIAL_BACKEND: &str = "scripted";

/// Subject of a trial.
#[derive(Debug, Clone)]
pub struct TrialSettings {
    /// Forge.
    pub forge: ForgeName,
    /// Repository, `owner/name`.
    pub repository: String,
    /// Bot account, which may start the trial's loop.
    pub own: UserId,
    /// Script of the agent, which sandboxes must show.
    pub script: PathBuf,
    /// Data folder of the trial.
    pub data_dir: PathBuf,
}

impl Config {
    /// Returns a trial's configuration, based on the operator's file at `path`.
    ///
    /// # Errors
    /// The file is invalid.
    pub fn for_trial(path: &Path, env: &Env, trial: &TrialSettings) -> Result<Self, ConfigProblems> {
        let whole = Self::load(path, env)?;
        let text = read_limited(path).map_err(|problem| ConfigProblems::of_file(path, &problem))?;
        let mut report = ProblemCollector::new(path.display().to_string());
        let Some(root) = YamlNode::parse(&text, &mut report) else { return Err(report.into_problems()) };
        let mut file = root.to_json();
        if let Some(all) = file.as_object_mut() {
            all.retain(|key, _| !LEFT_OUT.contains(&key.as_str()));
        }
        if let Some(forges) = file.get_mut("forges").and_then(serde_json::Value::as_array_mut) {
            forges.retain(|forge| forge.get("name").and_then(serde_json::Value::as_str) == Some(trial.forge.as_str()));
            for forge in forges.iter_mut().filter(|forge| forge.get("updates").is_some()) {
                forge["poll"] = json!("10s");
            }
        }
        file["repositories"] = json!([format!("{}:{}", trial.forge, trial.repository)]);
        file["permissions"] = json!({ "allow": [trial.own.0], "allow_bots": [trial.own.0] });
        file["limits"] = json!({ "iterations": 5, "timeout": "15m" });
        file["memory"] = json!({ "enabled": false });
        file["dashboard"] = json!({ "enabled": false });
        let script = trial.script.display().to_string();
        let mut shown =
            file.pointer("/sandbox/read_only").and_then(|list| list.as_array().cloned()).unwrap_or_default();
        shown.push(json!(script));
        if !file["sandbox"].is_object() {
            file["sandbox"] = json!({});
        }
        file["sandbox"]["read_only"] = json!(shown);
        file["backends"] =
            json!({ TRIAL_BACKEND: { "type": "script", "command": ["/bin/sh", script], "roles": ["agent"] } });
        let mut config = Self::parse(path, &file.to_string(), env)?;
        // The service's data folder contains the secrets of single repositories.
        for forge in &mut config.forges {
            let known = whole.forge(&forge.name).map(|known| known.repository_secrets.clone());
            forge.repository_secrets = known.unwrap_or_default();
        }
        config.data_dir.clone_from(&trial.data_dir);
        config.database = None;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_has_one_repository_and_one_scripted_backend() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ralph-control.yaml");
        let text = "forges:
  - { name: work, kind: gitea, url: 'http://127.0.0.1:9', token_env: T, updates: poll }
  - { name: other, kind: gitea, url: 'http://127.0.0.1:8', token_env: T, updates: poll }
sandbox: { required: none, read_only: [/opt/tools] }
backends: { claude: { enabled: true, env: [KEY] } }
escalation: { channels: [{ name: ops, kind: slack, url_env: HOOK }] }
label_prefix: 'bot:'
";
        std::fs::write(&file, text).unwrap();
        let env = Env::of([("T", "token"), ("KEY", "k"), ("HOOK", "https://hooks.example.org/x")]);
        let trial = TrialSettings {
            forge: ForgeName::new("work"),
            repository: "team/app".into(),
            own: UserId(7),
            script: "/tmp/trial/agent.sh".into(),
            data_dir: folder.path().join("data/trial"),
        };
        let config = Config::for_trial(&file, &env, &trial).unwrap();
        assert_eq!(config.forges.len(), 1);
        assert_eq!(config.forges[0].updates.poll.map(|poll| poll.as_secs()), Some(10));
        assert_eq!(config.backends.keys().collect::<Vec<_>>(), [TRIAL_BACKEND]);
        assert!(config.channels.is_empty() && config.repositories.len() == 1 && !config.memory.enabled);
        assert_eq!(config.policy(&trial.forge).allow_bots, [UserId(7)]);
        assert_eq!(config.policy(&trial.forge).label_prefix, "bot:");
        assert_eq!(config.sandbox.read_only, [Path::new("/opt/tools"), Path::new("/tmp/trial/agent.sh")]);
        assert!(config.data_dir.ends_with("data/trial"));
    }
}
