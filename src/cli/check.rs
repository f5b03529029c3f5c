//! `ralph-bot check`: checks configuration, machine and dependencies. Prints one line per finding; the exit code is 1
//! if any check fails.

mod app_settings;
mod backends;
mod ci;
mod credential;
mod finding;
mod login;
mod polling;
mod second_opinion;
mod service;
mod teams;

use std::path::Path;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use ralph_types::failure::Failure;

use super::error::{CliError, CliResult};
use super::global::Global;
use super::{block_on, local, print};
use crate::app;
use crate::config::{Config, ConfigScope, Env, operator_file};
use crate::domain::providers::backends::BackendRole;
use crate::domain::trust::policy::Intelligence;
use crate::workspace::{InstalledGit, NEEDED_GIT, installed_git};
pub use finding::{CheckFinding, FindingStatus};

/// Name of the finding about the public address.
const PUBLIC_ADDRESS: &str = "public address";
/// Names of the findings that `ralph-bot local` does not need.
const OF_THE_SERVICE: [&str; 3] = [PUBLIC_ADDRESS, "database", "dashboard"];

/// Free space, in bytes, below which a warning is shown because a loop could fill the disk.
const SPACE_WARN: u64 = 5 << 30;

/// Free space, in bytes, below which the check fails because the database is at risk.
const SPACE_FAIL: u64 = 512 << 20;

/// Checks the configuration, this machine, and the dependencies of the service.
///
/// # Errors
/// Fails on an invalid configuration, or if standard output cannot be written.
pub fn run(global: &Global, env: &Env) -> CliResult {
    let path = operator_file(global.config.as_deref(), env);
    // Without forges, the file is one for `local`.
    let states_forges = env.get("RALPH_FORGES").is_some();
    let is_local = !states_forges && std::fs::read_to_string(&path).is_ok_and(|text| !Config::has_key(&text, "forges"));
    let scope = if is_local { ConfigScope::Local } else { ConfigScope::Service };
    let mut config = match Config::load_for(scope, &path, env) {
        Ok(config) => config,
        Err(problems) if global.json => {
            let found: Vec<_> =
                problems.0.iter().map(|why| CheckFinding::fail("configuration", why.to_string(), "")).collect();
            report(&found, true)?;
            return Ok(ExitCode::from(2));
        }
        Err(problems) => return Err(problems.into()),
    };
    if is_local && let Some(folder) = local::state_folder(env) {
        config.data_dir = folder;
    }
    let reach = if is_local { ", for `ralph-bot local` only: it has no `forges`" } else { "" };
    let mut findings = vec![CheckFinding::ok("configuration", format!("{}{reach}", path.display()))];
    findings.extend(config.warnings.iter().map(|warning| CheckFinding::warn("configuration", warning.to_string(), "")));
    findings.extend(machine(&config));
    block_on(async {
        findings.push(git().await);
        findings.extend(service::look(&config, env).await);
        findings.retain(|finding| !is_local || !OF_THE_SERVICE.contains(&finding.name.as_str()));
        report(&findings, global.json)
    })
}

/// Checks the configuration and this machine, without network access.
pub fn machine(config: &Config) -> Vec<CheckFinding> {
    let mut findings = vec![public_url(config), disk(&config.data_dir)];
    findings.extend(assistants(config));
    findings.extend(second_opinion::finding(config));
    findings.extend(embeddings(config));
    findings
}

/// Checks the configured embedding model.
fn embeddings(config: &Config) -> Option<CheckFinding> {
    const NAME: &str = "embeddings";
    let folder = config.memory.embeddings.as_ref()?;
    Some(match app::embedder(config) {
        Ok(Some(_)) => CheckFinding::ok(NAME, format!("the model in {} is usable", folder.display())),
        Ok(None) => CheckFinding::warn(
            NAME,
            "the model is unused because `memory.enabled` is off",
            "remove `memory.embeddings`",
        ),
        Err(error) => {
            let fix = "download its three files again, choose another model, or remove `memory.embeddings`";
            CheckFinding::fail(NAME, format!("{error:#}; the service would not start"), fix)
        }
    })
}

/// Recommends an assistant if models may be asked but no backend answers questions. Warns only if `full` was chosen, which needs one.
fn assistants(config: &Config) -> Option<CheckFinding> {
    const NAME: &str = "intelligence";
    let with_role = |role| config.backends.iter().find(move |(_, backend)| backend.settings.roles.contains(&role));
    if !config.intelligence.asks() || with_role(BackendRole::Assistant).is_some() {
        return None;
    }
    let backend = with_role(BackendRole::Agent).map_or("claude", |(name, _)| name.as_str());
    let model = if backend == "claude" { "haiku" } else { "<a cheap model>" };
    let fix = format!("set `assistant: {{ backend: {backend}, model: {model} }}`");
    Some(if config.intelligence == Intelligence::Full {
        CheckFinding::warn(NAME, "`full` acts as `facts` because no backend answers questions", fix)
    } else {
        CheckFinding::ok(NAME, format!("prompts consist of facts; for summaries by a cheap model, {fix}"))
    })
}

/// Prints findings; the exit code is 1 if any of them is a failure.
///
/// # Errors
/// Standard output cannot be written.
pub fn report(findings: &[CheckFinding], json: bool) -> CliResult {
    let text = if json {
        let lines: Result<Vec<_>, _> = findings.iter().map(serde_json::to_string).collect();
        lines.map_err(|error| CliError::failed(Failure::of(error)))?.join("\n") + "\n"
    } else {
        let lines: String = findings.iter().map(line).collect();
        lines + &backends::overview(findings)
    };
    print(&text)?;
    let failed = findings.iter().any(|finding| finding.status == FindingStatus::Fail);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn line(finding: &CheckFinding) -> String {
    let (word, style): (_, Style) = match finding.status {
        FindingStatus::Ok => ("ok  ", AnsiColor::Green.on_default()),
        FindingStatus::Warn => ("warn", AnsiColor::Yellow.on_default()),
        FindingStatus::Fail => ("FAIL", AnsiColor::Red.on_default().bold()),
    };
    let fix = if finding.fix.is_empty() { String::new() } else { format!("; {}", finding.fix) };
    format!("{style}{word}{style:#} {}: {}{fix}\n", finding.name, finding.detail)
}

fn public_url(config: &Config) -> CheckFinding {
    const NAME: &str = PUBLIC_ADDRESS;
    match &config.server.public_url {
        None if config.forges.iter().all(|forge| !forge.updates.webhooks) => {
            CheckFinding::ok(NAME, "not needed: no forge sends webhooks")
        }
        Some(url) if url.scheme() == "https" => CheckFinding::ok(NAME, url.as_str()),
        Some(url) => CheckFinding::warn(NAME, format!("{url} is not encrypted"), "use a reverse proxy with TLS"),
        None => {
            CheckFinding::warn(NAME, "not set", "set `server.public_url` to the address that forges send webhooks to")
        }
    }
}

/// Checks that the data folder is writable and has enough free space.
fn disk(folder: &Path) -> CheckFinding {
    const NAME: &str = "disk";
    let existing =
        folder.ancestors().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p }).find(|p| p.exists());
    let Some(existing) = existing else {
        return CheckFinding::fail(NAME, format!("could not create {}", folder.display()), "set `data_dir`");
    };
    if rustix::fs::access(existing, rustix::fs::Access::WRITE_OK).is_err() || !existing.is_dir() {
        let detail = format!("{} is not a writable folder", existing.display());
        return CheckFinding::fail(NAME, detail, "set `data_dir`, or grant the service's account write access");
    }
    match rustix::fs::statvfs(existing) {
        Ok(stat) => space(folder, stat.f_bavail.saturating_mul(stat.f_frsize)),
        Err(error) => {
            CheckFinding::warn(NAME, format!("could not read the free space of {}: {error}", existing.display()), "")
        }
    }
}

fn space(folder: &Path, free: u64) -> CheckFinding {
    let detail = format!("{:.1} GiB free for {}", free as f64 / f64::from(1u32 << 30), folder.display());
    let fix = "free some space, or move `data_dir` to another disk";
    match free {
        _ if free < SPACE_FAIL => CheckFinding::fail("disk", detail, fix),
        _ if free < SPACE_WARN => CheckFinding::warn("disk", detail, fix),
        _ => CheckFinding::ok("disk", detail),
    }
}

/// Checks the version of git.
async fn git() -> CheckFinding {
    match installed_git().await {
        Ok(InstalledGit { program, version, has_lfs }) => {
            let lfs =
                if has_lfs { "git-lfs is installed" } else { "git-lfs is not installed, so its files stay pointers" };
            CheckFinding::ok("git", format!("{version} at {}; {lfs}", program.display()))
        }
        Err(error) => CheckFinding::fail("git", error.to_string(), format!("install git {NEEDED_GIT} or newer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_space_is_reported() {
        let folder = Path::new("data");
        assert_eq!(space(folder, 20 << 30).status, FindingStatus::Ok);
        assert_eq!(
            space(folder, 1 << 30),
            CheckFinding::warn("disk", "1.0 GiB free for data", "free some space, or move `data_dir` to another disk")
        );
        assert_eq!(space(folder, 0).status, FindingStatus::Fail);
    }

    #[test]
    fn intelligence_without_assistant_is_reported() {
        let config = |text: &str| {
            let text = format!(
                "forges:\n  - {{ name: forge, kind: github, token_env: T, webhook_secret_env: S }}\nbackends:\n  \
                 mine: {{ type: script, command: [\"true\"] }}\n{text}"
            );
            let env = Env::of([("T", "a-token"), ("S", "a-webhook-secret-of-the-tests-0123456789")]);
            Config::parse(Path::new("ralph-control.yaml"), &text, &env).unwrap_or_else(|problems| panic!("{problems}"))
        };
        let warning = assistants(&config("intelligence: full\n")).expect("a finding");
        let wanted = "assistant: { backend: mine, model: <a cheap model> }";
        assert!(warning.status == FindingStatus::Warn && warning.fix.contains(wanted), "{warning:?}");
        let recommended = assistants(&config("")).expect("a finding");
        assert!(recommended.status == FindingStatus::Ok && recommended.detail.contains(wanted), "{recommended:?}");
        assert_eq!(assistants(&config("intelligence: facts\n")), None);
        assert_eq!(assistants(&config("assistant: { backend: mine }\n")), None);
        let helper = "  helper: { type: api, url: 'http://localhost:1', models: { default: x } }\nintelligence: full\n";
        assert_eq!(assistants(&config(helper)), None);
    }

    #[cfg(feature = "embeddings")]
    #[test]
    fn missing_or_broken_embedding_model_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let env = Env::of([("T", "a-token"), ("S", "a-webhook-secret-of-the-tests-0123456789")]);
        let text = format!(
            "forges:\n  - {{ name: forge, kind: github, token_env: T, webhook_secret_env: S }}\nbackends:\n  \
             mine: {{ type: script, command: [\"true\"] }}\nmemory: {{ embeddings: {:?} }}\n",
            folder.path()
        );
        let parsed = || Config::parse(Path::new("ralph-control.yaml"), &text, &env);
        let missing = parsed().expect_err("there is no model").to_string();
        assert!(missing.contains("memory.embeddings") && missing.contains("model.safetensors"), "{missing}");
        for name in crate::domain::knowledge::memory::EMBEDDING_FILES {
            std::fs::write(folder.path().join(name), "a download that broke off").expect("written");
        }
        let warning = embeddings(&parsed().expect("the files are there")).expect("a finding");
        assert!(warning.status == FindingStatus::Fail && warning.detail.contains("tokenizer.json"), "{warning:?}");
        assert!(warning.fix.contains("download"), "{warning:?}");
    }

    #[test]
    fn unusable_data_folder_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_ne!(disk(&folder.path().join("new/data")).status, FindingStatus::Fail);
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        assert_eq!(disk(&file.join("data")).status, FindingStatus::Fail);
    }

    #[test]
    fn lines_contain_the_fix() {
        let plain =
            anstream::adapter::strip_str(&line(&CheckFinding::fail("git", "not found", "install git"))).to_string();
        assert_eq!(plain, "FAIL git: not found; install git\n");
        let json = serde_json::to_value(CheckFinding::ok("git", "2.47")).expect("JSON");
        assert_eq!(json, serde_json::json!({"name": "git", "outcome": "ok", "detail": "2.47", "fix": ""}));
    }
}
