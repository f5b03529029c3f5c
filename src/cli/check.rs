//! `ralph-bot check`: the doctor. One line a finding; exit code 1 if something fails.

mod backends;
mod ci;
mod service;
mod teams;

use std::path::Path;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

pub use backends::Row;

use super::{CliError, CliResult, Global, block_on, print};
use crate::app;
use crate::config::{Config, Env, operator_file};
use crate::domain::providers::backends::BackendRole;
use crate::workspace::{NEEDED_GIT, installed_git};

/// Free space below which a loop is likely to run out of it, in bytes.
const SPACE_WARN: u64 = 5 << 30;

/// Free space below which the service cannot be trusted to keep its database, in bytes.
const SPACE_FAIL: u64 = 512 << 20;

/// How a finding went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should be.
    Ok,
    /// It works, and could be better.
    Warn,
    /// It does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at ("disk", "backend claude").
    pub name: String,
    /// How it went.
    pub outcome: Outcome,
    /// What was found, in a sentence without secrets.
    pub detail: String,
    /// What to do; empty where it is as it should be.
    pub fix: String,
    /// Its line in the table of backends, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<Row>,
}

impl Finding {
    /// As it should be.
    pub fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::Ok, detail: detail.into(), fix: String::new(), backend: None }
    }

    /// It works, and could be better.
    pub fn warn(name: impl Into<String>, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::Warn, detail: detail.into(), fix: fix.into(), backend: None }
    }

    /// It does not work.
    pub fn fail(name: impl Into<String>, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::Fail, detail: detail.into(), fix: fix.into(), backend: None }
    }
}

/// Looks at the configuration, at this machine, and at what the service depends on.
///
/// # Errors
/// When the configuration is wrong or standard output cannot be written.
pub fn run(global: &Global, env: &Env) -> CliResult {
    let path = operator_file(global.config.as_deref(), env);
    let config = match Config::load(&path, env) {
        Ok(config) => config,
        Err(problems) if global.json => {
            let found: Vec<_> =
                problems.0.iter().map(|why| Finding::fail("configuration", why.to_string(), "")).collect();
            report(&found, true)?;
            return Ok(ExitCode::from(2));
        }
        Err(problems) => return Err(problems.into()),
    };
    let mut findings = vec![Finding::ok("configuration", path.display().to_string())];
    findings.extend(config.warnings.iter().map(|warning| Finding::warn("configuration", warning.to_string(), "")));
    findings.extend(machine(&config));
    block_on(async {
        findings.push(git().await);
        findings.extend(service::look(&config, env).await);
        report(&findings, global.json)
    })
}

/// What can be told from the configuration and this machine alone.
pub fn machine(config: &Config) -> Vec<Finding> {
    let mut findings = vec![public_url(config), disk(&config.data_dir)];
    findings.extend(assistants(config));
    findings.extend(embeddings(config));
    findings
}

/// Whether the embedding model that the configuration names can be used.
fn embeddings(config: &Config) -> Option<Finding> {
    const NAME: &str = "embeddings";
    let folder = config.memory.embeddings.as_ref()?;
    Some(match app::embedder(config) {
        Ok(Some(_)) => Finding::ok(NAME, format!("the model in {} can be used", folder.display())),
        Ok(None) => Finding::warn(NAME, "`memory.enabled` is off, so the model is not used", "leave it out"),
        Err(error) => {
            let fix = "download its three files again, name another model, or leave `memory.embeddings` out";
            Finding::fail(NAME, format!("{error:#}; the service does not start with it"), fix)
        }
    })
}

/// That nobody can help although that is wanted.
fn assistants(config: &Config) -> Option<Finding> {
    let none = !config.backends.values().any(|backend| backend.settings.roles.contains(&BackendRole::Assistant));
    (config.intelligence.asks() && none).then(|| {
        let fix = "add a backend with `type: api`, or give one with `type: internal` the role `assistant`";
        Finding::warn("intelligence", "`full`, and no backend has the role `assistant`: it is as `fallback`", fix)
    })
}

/// Prints `findings`; the exit code is 1 if one of them fails.
///
/// # Errors
/// When standard output cannot be written.
pub fn report(findings: &[Finding], json: bool) -> CliResult {
    let text = if json {
        let lines: Result<Vec<_>, _> = findings.iter().map(serde_json::to_string).collect();
        lines.map_err(|error| CliError::Failed(error.to_string()))?.join("\n") + "\n"
    } else {
        let lines: String = findings.iter().map(line).collect();
        lines + &backends::overview(findings)
    };
    print(&text)?;
    let failed = findings.iter().any(|finding| finding.outcome == Outcome::Fail);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn line(finding: &Finding) -> String {
    let (word, style): (_, Style) = match finding.outcome {
        Outcome::Ok => ("ok  ", AnsiColor::Green.on_default()),
        Outcome::Warn => ("warn", AnsiColor::Yellow.on_default()),
        Outcome::Fail => ("FAIL", AnsiColor::Red.on_default().bold()),
    };
    let fix = if finding.fix.is_empty() { String::new() } else { format!("; {}", finding.fix) };
    format!("{style}{word}{style:#} {}: {}{fix}\n", finding.name, finding.detail)
}

fn public_url(config: &Config) -> Finding {
    const NAME: &str = "public address";
    match &config.server.public_url {
        Some(url) if url.scheme() == "https" => Finding::ok(NAME, url.as_str()),
        Some(url) => Finding::warn(NAME, format!("{url} is not encrypted"), "put a proxy with TLS in front of it"),
        None => Finding::warn(NAME, "none", "set `server.public_url` to the address that forges send webhooks to"),
    }
}

/// Whether the data folder can be used, and how much space is left there.
fn disk(folder: &Path) -> Finding {
    const NAME: &str = "disk";
    let existing =
        folder.ancestors().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p }).find(|p| p.exists());
    let Some(existing) = existing else {
        return Finding::fail(NAME, format!("{} cannot be made", folder.display()), "set `data_dir`");
    };
    if rustix::fs::access(existing, rustix::fs::Access::WRITE_OK).is_err() || !existing.is_dir() {
        let detail = format!("{} is not a folder that can be written", existing.display());
        return Finding::fail(NAME, detail, "set `data_dir`, or give the service's account the right to write there");
    }
    match rustix::fs::statvfs(existing) {
        Ok(stat) => space(folder, stat.f_bavail.saturating_mul(stat.f_frsize)),
        Err(error) => Finding::warn(NAME, format!("the free space of {} is unknown: {error}", existing.display()), ""),
    }
}

fn space(folder: &Path, free: u64) -> Finding {
    let detail = format!("{:.1} GiB free for {}", free as f64 / f64::from(1u32 << 30), folder.display());
    let fix = "make room, or set `data_dir` to another disk";
    match free {
        _ if free < SPACE_FAIL => Finding::fail("disk", detail, fix),
        _ if free < SPACE_WARN => Finding::warn("disk", detail, fix),
        _ => Finding::ok("disk", detail),
    }
}

/// Whether there is a git that work trees can be made with.
async fn git() -> Finding {
    match installed_git().await {
        Ok((path, version)) => Finding::ok("git", format!("{version} at {}", path.display())),
        Err(error) => Finding::fail("git", error.to_string(), format!("install git {NEEDED_GIT} or newer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_space_is_told() {
        let folder = Path::new("data");
        assert_eq!(space(folder, 20 << 30).outcome, Outcome::Ok);
        assert_eq!(
            space(folder, 1 << 30),
            Finding::warn("disk", "1.0 GiB free for data", "make room, or set `data_dir` to another disk")
        );
        assert_eq!(space(folder, 0).outcome, Outcome::Fail);
    }

    #[test]
    fn intelligence_without_anybody_to_ask_is_told() {
        let config = |text: &str| {
            let text = format!(
                "forges:\n  - {{ name: forge, kind: github, token_env: T, webhook_secret_env: S }}\nbackends:\n  \
                 mine: {{ type: script, command: [\"true\"] }}\n{text}"
            );
            let env = Env::of([("T", "a-token"), ("S", "a-webhook-secret-of-the-tests-0123456789")]);
            Config::parse(Path::new("ralph-control.yaml"), &text, &env).unwrap_or_else(|problems| panic!("{problems}"))
        };
        let told = assistants(&config("intelligence: full\n")).expect("told");
        assert!(told.outcome == Outcome::Warn && told.fix.contains("type: api"), "{told:?}");
        assert_eq!(assistants(&config("")), None);
        let helper = "  helper: { type: api, url: 'http://localhost:1', models: { default: x } }\nintelligence: full\n";
        assert_eq!(assistants(&config(helper)), None);
    }

    #[cfg(feature = "embeddings")]
    #[test]
    fn an_embedding_model_that_is_missing_or_broken_is_told() {
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
        let told = embeddings(&parsed().expect("the files are there")).expect("told");
        assert!(told.outcome == Outcome::Fail && told.detail.contains("tokenizer.json"), "{told:?}");
        assert!(told.fix.contains("download"), "{told:?}");
    }

    #[test]
    fn a_data_folder_that_cannot_be_one_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_ne!(disk(&folder.path().join("new/data")).outcome, Outcome::Fail);
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        assert_eq!(disk(&file.join("data")).outcome, Outcome::Fail);
    }

    #[test]
    fn lines_say_what_to_do() {
        let plain = anstream::adapter::strip_str(&line(&Finding::fail("git", "not found", "install git"))).to_string();
        assert_eq!(plain, "FAIL git: not found; install git\n");
        let json = serde_json::to_value(Finding::ok("git", "2.47")).expect("JSON");
        assert_eq!(json, serde_json::json!({"name": "git", "outcome": "ok", "detail": "2.47", "fix": ""}));
    }
}
