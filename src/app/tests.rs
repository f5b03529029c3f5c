//! Tests of the backends and settings built from a configuration.

use std::path::Path;

use super::backends::{Built, build};
use super::*;
use crate::domain::providers::backends::BackendRole;
use crate::process::SandboxTier;
use crate::process::sandbox::SandboxSettings;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const FORGE: &str =
    "forges: [{ name: work, kind: gitea, url: 'https://git.example.org', token_env: T, webhook_secret_env: S }]\n";

fn env(key: &'static str) -> Env {
    Env::of([("T", "token"), ("S", SECRET), ("KEY", key), ("PATH", "/usr/local/bin:/usr/bin:/bin")])
}

fn config(folder: &Path, backends: &str, key: &'static str) -> Config {
    let text = format!("{FORGE}backends:\n{backends}");
    Config::parse(&folder.join("ralph-control.yaml"), &text, &env(key)).expect("valid")
}

fn built(config: &Config, key: &'static str) -> Built {
    build(config, &env(key), &Clock::System, "key of this installation")
}

const ALL: &str = "  mine: { type: script, command: [sh, -c, 'true'] }
  gone: { type: external, command: [./no-such-agent] }
  models: { type: api, url: 'https://api.anthropic.com', api_key_env: KEY, models: { default: haiku } }
  own: { type: internal, url: 'http://localhost:11434', models: { default: qwen }, context_window: 32000, roles: [agent, assistant] }
  tiny: { type: internal, url: 'http://localhost:11434', models: { default: qwen }, context_window: 4000 }
";

#[test]
fn each_backend_type_is_built_for_its_roles() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), ALL, "k1");
    let built = built(&config, "k1");
    let sorted = |names: Vec<&String>| {
        let mut names: Vec<String> = names.into_iter().cloned().collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(sorted(built.agents.keys().collect()), "mine own tiny");
    assert_eq!(sorted(built.assistants.keys().collect()), "models own");
    assert!(
        built.can("own", BackendRole::Agent)
            && built.can("own", BackendRole::Assistant)
            && !built.can("gone", BackendRole::Agent)
    );
    assert!(!built.can("models", BackendRole::Agent));
    assert_eq!(built.fingerprints.len(), 5, "also of those that cannot be used: they may be mended");
}

fn no_sandbox() -> SandboxFound {
    SandboxFound {
        on: false,
        tier: SandboxTier::C,
        settings: SandboxSettings::default(),
        words: String::new(),
        refusal: None,
        refusal_of_public: None,
    }
}

#[test]
fn unusable_backend_is_never_chosen_nor_default() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &format!("{ALL}priority: {{ agent: [gone, mine] }}\n"), "k1");
    let built = built(&config, "k1");
    let sandbox = no_sandbox();
    let settings = settings(&config, folder.path(), &sandbox, &HashMap::new(), &built);
    assert_eq!(settings.default_backend, "mine");
    assert!(!settings.backends.backends["gone"].enabled && settings.backends.backends["own"].enabled);
    assert_eq!(settings.backends.in_order(BackendRole::Agent), ["mine", "own", "tiny"]);
    assert_eq!(settings.context_windows.get("own"), Some(&32_000));
    assert_eq!(settings.context_windows.get("mine"), None);
    assert_eq!((settings.rules.len(), settings.prices.len(), settings.fingerprints.len()), (5, 5, 5));
}

#[test]
fn relative_program_is_resolved_from_configuration_folder() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir_in(".").unwrap();
    let here = std::env::current_dir().unwrap();
    let relative = std::path::absolute(folder.path()).unwrap();
    let relative = relative.strip_prefix(&here).unwrap();
    let program = folder.path().join("agent.sh");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = config(relative, "  mine: { type: script, command: [./agent.sh] }\n", "k1");
    assert!(built(&config, "k1").agents.contains_key("mine"));
}

#[test]
fn fingerprint_changes_with_settings_and_reveals_none() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("agent.sh");
    let write = |text: &str| {
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("#!/bin/sh\n");
    let of = |text: &str, key: &'static str| built(&config(folder.path(), text, key), key).fingerprints["mine"].clone();
    let text = "  mine: { type: script, command: [./agent.sh], env: [KEY] }\n";
    let first = of(text, "hunter2");
    assert_eq!(of(text, "hunter2"), first);
    assert!(first.len() == 32 && !first.contains("hunter2"), "{first}");
    assert_ne!(of(text, "hunter3"), first, "another key");
    assert_ne!(of("  mine: { type: script, command: [./agent.sh, x], env: [KEY] }\n", "hunter2"), first, "settings");
    let later = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
    std::fs::File::options().write(true).open(&program).unwrap().set_modified(later).unwrap();
    assert_ne!(of(text, "hunter2"), first, "another program");
    let installation = build(&config(folder.path(), text, "hunter2"), &env("hunter2"), &Clock::System, "another");
    assert_ne!(installation.fingerprints["mine"], of(text, "hunter2"), "another installation");
}

#[test]
fn stop_grace_of_the_file_reaches_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let stop_grace = |engine: &str| {
        let config = config(folder.path(), &format!("{ALL}{engine}"), "k1");
        let sandbox = no_sandbox();
        settings(&config, folder.path(), &sandbox, &HashMap::new(), &built(&config, "k1")).stop_grace
    };
    assert_eq!(stop_grace(""), Duration::from_secs(10));
    assert_eq!(stop_grace("engine: { stop_grace: 1m }\n"), Duration::from_secs(60));
}
