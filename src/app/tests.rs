//! Tests of the backends and settings built from a configuration.

use std::collections::BTreeMap;
use std::path::Path;

use super::backends::{Built, build};
use super::*;
use crate::domain::providers::backends::BackendRole;

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
  asked: { type: script, command: [sh, -c, 'true'], roles: [assistant] }
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
    assert_eq!(sorted(built.assistants.keys().collect()), "asked models own");
    assert!(
        built.can("own", BackendRole::Agent)
            && built.can("own", BackendRole::Assistant)
            && !built.can("gone", BackendRole::Agent)
    );
    assert!(!built.can("models", BackendRole::Agent));
    assert!(built.can("asked", BackendRole::Assistant) && !built.can("asked", BackendRole::Agent));
    assert_eq!(built.fingerprints.len(), 6, "also of those that cannot be used: they may be mended");
    let providers: BTreeMap<&str, &str> = built.providers.iter().map(|(name, of)| (name.as_str(), *of)).collect();
    let by_address = [("models", "anthropic"), ("own", "openai"), ("tiny", "openai")];
    assert_eq!(providers, BTreeMap::from(by_address), "a script's is not known");
}

#[test]
fn presets_name_the_provider_of_their_models() {
    let folder = tempfile::tempdir().unwrap();
    let all = "  claude: { enabled: true }\n  codex: { enabled: true }\n  gemini: { enabled: true }\n  kimi: { enabled: true }\n  \
               aider: { enabled: true }\n  opencode: { enabled: true }\n  qwen: { enabled: true }\n";
    let built = built(&config(folder.path(), all, "k1"), "k1");
    let providers: BTreeMap<&str, &str> = built.providers.iter().map(|(name, of)| (name.as_str(), *of)).collect();
    let expected = [("claude", "anthropic"), ("codex", "openai"), ("gemini", "gcp.gemini"), ("kimi", "moonshot_ai")];
    assert_eq!(providers, BTreeMap::from(expected), "those that run any vendor's models name none");
}

#[test]
fn unusable_backend_is_never_chosen_or_default() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &format!("{ALL}priority: {{ agent: [gone, mine] }}\n"), "k1");
    let built = built(&config, "k1");
    let settings = calls(&config, &built);
    assert_eq!(settings.default_backend, "mine");
    assert!(!settings.backends.backends["gone"].enabled && settings.backends.backends["own"].enabled);
    assert_eq!(settings.backends.in_order(BackendRole::Agent), ["mine", "own", "tiny"]);
    assert_eq!(settings.context_window("own"), Some(32_000));
    assert_eq!(settings.context_window("mine"), None);
    assert_eq!((settings.rules.len(), settings.prices.len(), settings.fingerprints.len()), (6, 6, 6));
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
fn fingerprint_changes_with_settings_without_revealing_them() {
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
fn configured_stop_grace_reaches_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let stop_grace = |engine: &str| {
        let config = config(folder.path(), &format!("{ALL}{engine}"), "k1");
        Options::of(&config).pace.stop_grace
    };
    assert_eq!(stop_grace(""), Duration::from_secs(10));
    assert_eq!(stop_grace("engine: { stop_grace: 1m }\n"), Duration::from_secs(60));
}

/// Configuration with a secret in each place that can have one.
const ALL_SECRETS: &str = "
server: { public_url: 'https://ralph.example.org' }
forges:
  - name: work
    kind: gitea
    url: 'https://git.example.org'
    token_env: S01
    webhook_secret_env: [S02, S03]
    login: { client_id: a, client_secret_env: S08 }
  - { name: files, kind: gitea, url: 'https://other.example.org', token_file: s04, webhook_secret_file: s05 }
  - name: gh
    kind: github
    app_id: 1
    private_key_env: S06
    webhook_secret_env: S02
    login: { client_id: b, client_secret_file: s09 }
  - { name: gh2, kind: github, url: 'https://github.example.org', app_id: 2, private_key_file: s07, webhook_secret_env: S02 }
backends:
  models: { type: api, url: 'https://api.anthropic.com', api_key_env: S10, models: { default: haiku } }
  filed: { type: api, url: 'https://api.openai.com', api_key_file: s11, models: { default: gpt-6-sol } }
  mine: { type: script, command: [sh, -c, 'true'], env: [S12_TOKEN], roles: [agent] }
  codex: { enabled: true, login_file: s22 }
escalation:
  channels:
    - { name: a, kind: slack, url_env: S13 }
    - { name: b, kind: discord, url_file: s14 }
    - { name: c, kind: generic, url: 'https://hook.example.org', secret_env: S15 }
    - { name: d, kind: generic, url: 'https://hook.example.org', secret_file: s16 }
commits: { sign: git, key_file: s17 }
database: postgres://ralph@db.example.org/ralph
database_password_env: S23
";
/// Line in place of the database's password above.
const PASSWORD_FILE: &str = "database_password_file: s24";
/// Keys of the configuration that name a file or variable without a secret.
const NO_SECRETS: [&str; 2] = ["ca_file", "per_file"];

/// Collects the names of keys whose value is the name of a file or a variable.
fn keys_of_sources(schema: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
    match schema {
        serde_json::Value::Array(items) => items.iter().for_each(|item| keys_of_sources(item, found)),
        serde_json::Value::Object(fields) => {
            let properties = fields.get("properties").and_then(|properties| properties.as_object());
            let names = properties.into_iter().flat_map(|properties| properties.keys());
            found.extend(names.filter(|name| name.ends_with("_env") || name.ends_with("_file")).cloned());
            fields.values().for_each(|value| keys_of_sources(value, found));
        }
        _ => {}
    }
}

/// See docs/research/threats.md#s8.
#[test]
fn outbound_filter_knows_every_secret_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let value = |name: &str| match name {
        "S13" => "https://hooks.slack.com/services/T000/B000/xCANARYs13xCANARYs13x".to_owned(),
        "s14" => "https://discord.com/api/webhooks/1/xCANARYs14xCANARYs14x".to_owned(),
        "s22" => r#"{ "tokens": { "access_token": "xCANARYs22xCANARYs22x" } }"#.to_owned(),
        name => {
            let name = name.to_lowercase();
            let text = format!("xCANARY{}xCANARY{}x0123456789abcdef", &name[..3], &name[..3]);
            let is_key = ["s06", "s07", "s17"].contains(&name.as_str());
            if is_key { format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n") } else { text }
        }
    };
    for name in ["s04", "s05", "s07", "s09", "s11", "s14", "s16", "s17", "s22", "s24"] {
        std::fs::write(folder.path().join(name), value(name)).unwrap();
    }
    let variables = ["S01", "S02", "S03", "S06", "S08", "S10", "S12_TOKEN", "S13", "S15", "S23"];
    let values: Vec<(String, String)> = variables.iter().map(|name| ((*name).to_owned(), value(name))).collect();
    let of_traces = "authorization=Bearer%20xCANARYs18xCANARYs18x, x-api-key=xCANARYs19xCANARYs19x";
    let further = [("OTEL_EXPORTER_OTLP_HEADERS", of_traces), ("PATH", "/usr/bin:/bin")];
    let env = Env::of(values.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(further));
    let config = Config::parse(&folder.path().join("ralph-control.yaml"), ALL_SECRETS, &env).expect("valid");

    let built = build(&config, &env, &Clock::System, "key of this installation");
    let keys = [("s20", &"xCANARYs20xCANARYs20x".to_owned()), ("s21", &"xCANARYs21xCANARYs21x".to_owned())];
    let outbound = super::backends::outbound(&config, &built.masker, keys);
    for number in 1..=23 {
        let part = format!("xCANARYs{number:02}xCANARYs{number:02}x");
        let of_file = [4, 5, 7, 9, 11, 14, 16, 17].contains(&number);
        let name = if of_file { format!("s{number:02}") } else { format!("S{number:02}") };
        let whole = if (18..=22).contains(&number) { part.clone() } else { value(&name).trim().to_owned() };
        let masked = outbound.masked(&format!("before {whole} after"));
        assert!(!masked.contains(&part), "{number}: {masked}");
    }
    let with_file = ALL_SECRETS.replace("database_password_env: S23", PASSWORD_FILE);
    let config = Config::parse(&folder.path().join("ralph-control.yaml"), &with_file, &env).expect("valid");
    let built = build(&config, &env, &Clock::System, "key of this installation");
    let masked = super::backends::outbound(&config, &built.masker, keys).masked(&value("s24"));
    assert!(!masked.contains("xCANARYs24"), "{masked}");
    // A new key with a secret belongs into the configuration above.
    let mut sources = std::collections::BTreeSet::new();
    keys_of_sources(&crate::config::schema::operator(), &mut sources);
    let used = |name: &String| {
        NO_SECRETS.contains(&name.as_str())
            || [ALL_SECRETS, PASSWORD_FILE].iter().any(|text| text.contains(&format!("{name}:")))
    };
    assert!(sources.len() > 8, "{sources:?}");
    let missing: Vec<&String> = sources.iter().filter(|name| !used(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
