//! Tests of backends that are present, old, discontinued, not logged in, or missing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;
use crate::cli::check::FindingStatus;

/// Returns a configuration whose preset `name` is a program that prints `said` as its version.
fn preset(folder: &Path, name: &str, said: &str, rest: &str) -> (Config, Env) {
    let program = folder.join("program");
    std::fs::write(&program, format!("#!/bin/sh\ncat <<'END'\n{said}\nEND\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    config(folder, &format!("  {name}: {{ command: [./program]{rest} }}\n"))
}

fn config(folder: &Path, backends: &str) -> (Config, Env) {
    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    let variables = [("T", "t"), ("S", SECRET), ("ANTHROPIC_API_KEY", "sk-hunter2"), ("PATH", "/usr/bin:/bin")];
    let env = Env::of(variables);
    let forge = "{ name: work, kind: gitea, url: 'http://127.0.0.1:1', token_env: T, webhook_secret_env: S }";
    let text = format!("forges: [{forge}]\nbackends:\n{backends}");
    (Config::parse(&folder.join("c.yaml"), &text, &env).expect("valid"), env)
}

#[test]
fn hidden_paths_are_reported_also_in_shell_lines() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("agent.sh");
    std::fs::write(&script, "true\n").unwrap();
    let script = script.display();
    for command in [
        format!("[sh, {script}]"),
        format!("[sh, -c, 'cd . && sh \"{script}\" --fast']"),
        format!("[env, RULES={script}, sh]"),
    ] {
        let (config, env) = config(folder.path(), &format!("  mine: {{ type: script, command: {command} }}\n"));
        let hidden = crate::app::hidden_arguments(&config, "mine", &env);
        assert_eq!(hidden.len(), 1, "{command}: {hidden:?}");
        assert!(hidden[0].contains(&format!("the sandbox hides {script}")), "{hidden:?}");
    }
    let (config, env) =
        config(folder.path(), "  mine: { type: script, command: [sh, -c, 'ls /usr/bin /no/such/file'] }\n");
    assert_eq!(crate::app::hidden_arguments(&config, "mine", &env), [""; 0]);
}

/// See docs/research/threats.md#s15.
#[tokio::test]
async fn untested_version_is_reported_with_install_command() {
    let folder = tempfile::tempdir().unwrap();
    for (name, said, pinned) in [
        ("codex", "codex-cli 0.1.0", "`npm install -g @openai/codex@0.169`"),
        ("aider", "aider 0.1.0", "`pipx install aider-chat==0.86.*`"),
    ] {
        let (config, env) = preset(folder.path(), name, said, ", env: [ANTHROPIC_API_KEY]");
        let other = look(&config, &env).await.remove(0);
        assert!(other.detail.contains(said) && other.fix.contains(pinned), "{other:?}");
        assert!(overview(&[other]).contains("0.1.0"));
    }
    let (config, env) = preset(folder.path(), "codex", "codex-cli 0.169.2", ", env: [OPENAI_API_KEY]");
    assert_eq!(look(&config, &env).await[0].detail, "codex-cli 0.169.2; tested with 0.169");
}

#[tokio::test]
async fn installed_program_with_key_is_ok() {
    let folder = tempfile::tempdir().unwrap();
    let rest = ", env: [ANTHROPIC_API_KEY], models: { default: sonnet, rules: [{ when: has_error, model: opus }] }, \
                thresholds: { window: 5h, max_cost_per_hour: 5 }";
    let (config, env) = preset(folder.path(), "claude", "2.1.197 (Claude Code)", rest);
    let findings = look(&config, &env).await;
    assert_eq!(findings.len(), 2);
    assert!(findings.iter().all(|finding| finding.status == FindingStatus::Ok), "{findings:?}");
    assert_eq!(findings[1].detail, "hidden from runs: ANTHROPIC_API_KEY");
    let text = overview(&findings);
    assert_eq!(
        text,
        "\nBACKEND  TYPE    ROLES  VERSION  MODELS          THRESHOLDS\n\
         claude   preset  agent  2.1.197  sonnet, 1 rule  window 5h, max_cost_per_hour 5\n"
    );
    assert!(!format!("{findings:?}").contains("hunter2"));
}

#[tokio::test]
async fn unusable_programs_are_reported_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let one = async |name: &str, said: &str| {
        let (config, env) = preset(folder.path(), name, said, ", env: [ANTHROPIC_API_KEY]");
        look(&config, &env).await.remove(0)
    };
    let given_up = one("kimi", "kimi-cli is no longer maintained. Please use version 2.0 of the new one.").await;
    assert!(given_up.status == FindingStatus::Fail && given_up.fix.contains("@moonshot-ai/kimi-code"), "{given_up:?}");
    let nothing = one("aider", "hello").await;
    assert!(nothing.status == FindingStatus::Fail && nothing.detail.contains("hello"), "{nothing:?}");
    for (said, outcome) in [
        ("codex-cli 0.169.0", FindingStatus::Ok),
        ("codex-cli 0.200.1", FindingStatus::Ok),
        ("codex-cli 0.40.0", FindingStatus::Warn),
        ("codex-cli 1.0.0", FindingStatus::Warn),
    ] {
        let finding = one("codex", said).await;
        assert_eq!(finding.status, outcome, "{finding:?}");
    }
    let silent = one("gemini", "").await;
    assert_eq!(silent.status, FindingStatus::Fail, "{silent:?}");

    let (config_gone, env) = config(folder.path(), "  claude: { command: [./gone] }\n");
    let missing = look(&config_gone, &env).await.remove(0);
    assert!(missing.status == FindingStatus::Fail && missing.fix.contains("npm install"), "{missing:?}");
    assert!(missing.detail.starts_with("there is no program"), "{missing:?}");
    assert!(overview(&[missing]).contains("claude   preset  agent  -"));

    let (config_bare, env) = preset(folder.path(), "claude", "2.1.197 (Claude Code)", "");
    let findings = look(&config_bare, &env).await;
    assert_eq!(findings[1].status, FindingStatus::Warn);
    assert!(findings[1].detail.contains("login") && findings[1].fix.contains("ANTHROPIC_API_KEY"), "{findings:?}");
}

/// See docs/research/threats.md#s4.
#[tokio::test]
async fn keys_readable_by_runs_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let keys = async |name: &str, rest: &str| {
        let (config, env) = preset(folder.path(), name, "0.169.0", rest);
        let reported = look(&config, &env).await.into_iter().find(|finding| finding.name.starts_with("keys of"));
        reported.map(|finding| (finding.status, finding.detail))
    };
    let warned = Some((FindingStatus::Warn, "runs can read ANTHROPIC_API_KEY".to_owned()));
    assert_eq!(keys("codex", ", env: [ANTHROPIC_API_KEY, PATH]").await, warned);
    assert_eq!(keys("mine", ", type: script, env: [ANTHROPIC_API_KEY]").await, warned);
    assert_eq!(keys("mine", ", type: script, env: [PATH]").await, None);
    let given = Some((FindingStatus::Ok, "runs can read ANTHROPIC_API_KEY because `hide_keys` is off".to_owned()));
    assert_eq!(keys("mine", ", type: script, env: [ANTHROPIC_API_KEY], hide_keys: false").await, given);
}

#[tokio::test]
async fn backend_without_known_cost_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let cost = async |name: &str, said: &str, rest: &str| {
        let (config, env) = preset(folder.path(), name, said, &format!(", env: [ANTHROPIC_API_KEY]{rest}"));
        let reported = look(&config, &env).await.into_iter().find(|finding| finding.name.starts_with("cost of"));
        reported.map(|finding| (finding.status, finding.detail, finding.fix))
    };
    let opencode = "1.18.33";
    for (name, said, rest, told) in [
        ("claude", "2.1.197 (Claude Code)", "", None),
        ("codex", "codex-cli 0.169.0", "", None),
        ("codex", "codex-cli 0.169.0", ", models: { default: gpt-5 }", None),
        ("codex", "codex-cli 0.169.0", ", models: { default: gpt-5, cheap: our-own }", Some("`prices`")),
        (
            "codex",
            "codex-cli 0.169.0",
            ", models: { default: our-own }, prices: { our-own: { input: 1, output: 2 } }",
            None,
        ),
        ("opencode", opencode, "", Some("`models.default`")),
        ("opencode", opencode, ", models: { default: anthropic/claude-sonnet-4-5 }", None),
        ("mine", "", ", type: external", Some("`output`")),
        ("mine", "", ", type: external, output: jsonl", Some("`models.default`")),
        ("mine", "", ", type: external, output: jsonl, models: { default: gpt-5 }", None),
        ("mine", "", ", type: script", None),
    ] {
        let found = cost(name, said, rest).await;
        let fix = found.as_ref().map(|(_, _, fix)| fix.as_str());
        assert_eq!(
            told.is_some(),
            fix.is_some_and(|fix| fix.contains(told.unwrap_or_default())),
            "{name}{rest}: {found:?}"
        );
        assert!(
            found.is_none_or(|(outcome, detail, _)| outcome == FindingStatus::Warn && detail.contains("cost limits"))
        );
    }
}

#[tokio::test]
async fn unreachable_api_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (config, env) = config(
        folder.path(),
        "  own: { type: internal, url: 'http://127.0.0.1:1', models: { default: x }, roles: [agent, assistant] }\n",
    );
    let finding = look(&config, &env).await.remove(0);
    assert!(finding.status == FindingStatus::Fail && finding.fix.contains("`url`"), "{finding:?}");
    assert!(overview(&[finding]).contains("own      internal  agent, assistant  -        x"));
}

#[test]
fn versions_are_parsed_from_program_output() {
    for (said, version) in [
        ("2.1.197 (Claude Code)", Some(("2.1.197", (2, 1)))),
        ("codex-cli 0.169.0", Some(("0.169.0", (0, 169)))),
        ("aider 0.86.2", Some(("0.86.2", (0, 86)))),
        ("kimi, version 2.1.0.", Some(("2.1.0", (2, 1)))),
        ("v1.18.33-beta.1", Some(("1.18.33-beta.1", (1, 18)))),
        ("3.0-rc1", Some(("3.0-rc1", (3, 0)))),
        ("no version", None),
        ("e.g. this one", None),
        ("", None),
    ] {
        let expected = version.map(|(whole, parts)| (whole.to_owned(), parts));
        assert_eq!(version_in(said), expected, "{said}");
    }
}
