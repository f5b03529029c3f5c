//! Warns about workflows that run automatically on the branches of loops and have access to secrets. They execute an
//! agent's code outside the sandbox.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use ralph_types::failure::Failure;
use regex::Regex;
use serde_json::Value;

use super::finding::{CheckFinding, refused};
use crate::config::workflows;
use crate::domain::model::ids::ForgeName;
use crate::forge::{Forge, ForgeResult, Repository, TextFile};

/// Events that start workflows with secrets, for branches and pull requests of the same repository.
const EVENTS: [&str; 4] = ["push", "create", "pull_request", "pull_request_target"];
/// Names of the token that each workflow run gets; `permissions` limits its rights.
const OWN_TOKENS: [&str; 3] = ["GITHUB_TOKEN", "GITEA_TOKEN", "FORGEJO_TOKEN"];

/// Pattern of references to one secret or to all of them.
static SECRET: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"\bsecrets\s*(?:\.\s*([A-Za-z_][A-Za-z0-9_-]*)|\[\s*\\?['"]([^'"\\]+)|[,)])"#;
    Regex::new(pattern).expect("the pattern is constant and good")
});

/// Secrets that a workflow exposes to the branches of loops.
#[derive(Debug, PartialEq, Eq)]
struct ExposedSecrets {
    /// Path of the workflow file.
    path: String,
    /// Events in `EVENTS` that start the workflow.
    events: Vec<&'static str>,
    /// Names of secrets, and descriptions of write access.
    gives: BTreeSet<String>,
}

/// Checks the workflows of repositories. Returns one finding per exposed secret, or a single one if there are none.
pub(super) async fn look(
    forge: &ForgeName,
    adapter: &dyn Forge,
    watched: &[&Repository],
    branch_prefix: &str,
) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    for repository in watched {
        let name = format!("CI of {}", repository.repo.full_name());
        match workflow_files(adapter, repository).await {
            Ok(files) => findings.extend(files.iter().filter_map(|file| judge(&name, file, branch_prefix))),
            Err(error) => findings.push(refused(name, &error)),
        }
    }
    if findings.is_empty() {
        let detail =
            format!("no workflow in {} repositories has secrets on branches `{branch_prefix}…`", watched.len());
        findings.push(CheckFinding::ok(format!("CI of {forge}"), detail));
    }
    findings
}

/// Reads the workflows that the forge runs: those in the first of its workflow folders that contains any.
async fn workflow_files(adapter: &dyn Forge, repository: &Repository) -> ForgeResult<Vec<TextFile>> {
    let product = adapter.server_info().await?.product;
    let Some(repository_files) = adapter.files() else { return Ok(Vec::new()) };
    for folder in workflows::folders(&product) {
        let files = repository_files.folder_files(&repository.repo, folder, workflows::is_workflow).await?;
        if !files.is_empty() {
            return Ok(files);
        }
    }
    Ok(Vec::new())
}

fn judge(name: &str, file: &TextFile, branch_prefix: &str) -> Option<CheckFinding> {
    let exposed = match exposed(file, branch_prefix) {
        Ok(exposed) => exposed?,
        Err(why) => {
            let detail = format!("could not parse {}: {why:#}", file.path);
            let fix = format!("make sure that it has no secrets on branches `{branch_prefix}…`");
            return Some(CheckFinding::warn(name, detail, fix));
        }
    };
    let gives: Vec<String> = exposed.gives.into_iter().collect();
    let detail = format!(
        "{} runs on {} of branches `{branch_prefix}…` with {}; code of an agent could read it",
        exposed.path,
        exposed.events.join(" and "),
        gives.join(", "),
    );
    let mut fixes = Vec::new();
    if exposed.events.contains(&"push") {
        fixes.push(format!("exclude the branches under `push` (`branches-ignore: ['{branch_prefix}**']`)"));
    }
    if exposed.events.iter().any(|event| *event != "push") {
        fixes.push(format!(
            "add to its jobs `if: ${{{{ !startsWith(github.head_ref || github.ref_name, '{branch_prefix}') }}}}`"
        ));
    }
    let fix = format!("{}; move checks without secrets to a separate workflow", fixes.join(" and "));
    Some(CheckFinding::warn(name, detail, fix))
}

/// Returns the secrets that a workflow exposes to branches of loops; `None` if there are none.
fn exposed(file: &TextFile, branch_prefix: &str) -> Result<Option<ExposedSecrets>, Failure> {
    let workflow = workflows::parse(&file.text)?;
    let triggers = workflows::triggers(&workflow);
    let branch = format!("{branch_prefix}1-a");
    let events: Vec<&str> = EVENTS.into_iter().filter(|event| workflows::starts(triggers, event, &branch)).collect();
    let mut gives = BTreeSet::new();
    // Variables outside of jobs apply to all of them.
    let common = workflow.get("env").map(Value::to_string).unwrap_or_default();
    for job in workflow.get("jobs").and_then(Value::as_object).into_iter().flat_map(|jobs| jobs.values()) {
        let condition = job.get("if").map(Value::to_string).unwrap_or_default();
        if !branch_prefix.is_empty() && condition.contains(branch_prefix) {
            // The job already distinguishes these branches.
            continue;
        }
        gives.extend(secrets(&common));
        gives.extend(secrets(&job.to_string()));
        if job.get("secrets").and_then(Value::as_str) == Some("inherit") {
            gives.insert("all secrets".to_owned());
        }
        let rights = job.get("permissions").or_else(|| workflow.get("permissions"));
        gives.extend(rights.and_then(writes).map(|what| format!("a token with write access ({what})")));
    }
    let nothing = events.is_empty() || gives.is_empty();
    Ok((!nothing).then(|| ExposedSecrets { path: file.path.clone(), events, gives }))
}

/// Returns the names of the secrets in a text.
fn secrets(text: &str) -> impl Iterator<Item = String> {
    SECRET.captures_iter(text).filter_map(|found| match found.get(1).or_else(|| found.get(2)) {
        Some(name) if OWN_TOKENS.iter().any(|own| own.eq_ignore_ascii_case(name.as_str())) => None,
        Some(name) => Some(name.as_str().to_owned()),
        None => Some("all secrets".to_owned()),
    })
}

/// Returns the permission scopes with write access; `None` if there are none.
fn writes(permissions: &Value) -> Option<String> {
    match permissions {
        Value::String(all) => (all == "write-all").then(|| "everything".to_owned()),
        Value::Object(each) => {
            let named =
                each.iter().filter(|(_, access)| access.as_str() == Some("write")).map(|(name, _)| name.as_str());
            let named = named.collect::<Vec<_>>().join(", ");
            (!named.is_empty()).then_some(named)
        }
        _ => None,
    }
}
